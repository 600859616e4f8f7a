"""Command line of the benchmark suite: ``python -m benchmarks <command> [options]``.

Each command is a module with a docstring whose first line is its help text,
``add_arguments(parser)`` and ``run(args) -> int``. Only the chosen one is imported, so that
``figures`` starts without torch. Results go to stdout or to files, progress to stderr.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from benchmarks import DataUnavailable, UsageError

COMMANDS = {
    "demo": "commands.demo",
    "data": "commands.data",
    "run": "commands.run",
    "figures": "commands.figures",
    "claims": "commands.claims",
    "compare": "commands.compare",
    "superseded": "commands.superseded",
    "hardness": "commands.hardness",
    "unseen-draws": "commands.unseen_draws",
    "show-memory": "commands.show_memory",
    "show-choice": "commands.show_choice",
    "report": "commands.report",
    "selection-speed": "speed.selection",
    "embedding-speed": "speed.embedding",
    "training-speed": "speed.training",
    "update-cost": "speed.update",
    "online-cost": "speed.online",
    "scaling": "speed.scaling",
}
"""Command → the module of this package that has its options and runs it."""


def summary(command: str) -> str:
    """First docstring line of a command's module, read without importing it."""
    source = Path(__file__).parent / f"{COMMANDS[command].replace('.', '/')}.py"
    docstring = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0].rstrip(".")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; 2 means that the input was wrong."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: python -m benchmarks <command> [options]\n")
        for command in COMMANDS:
            print(f"  {command:<16} {summary(command)}")
        return 0 if arguments else 2
    command = arguments[0]
    if command not in COMMANDS:
        message = f"unknown command {command!r}: choose one of {', '.join(COMMANDS)}"
        print(f"python -m benchmarks: error: {message}", file=sys.stderr)
        return 2
    return run_command(command, arguments[1:])


def run_command(command: str, arguments: Sequence[str]) -> int:
    """Import the command's module, parse its options and run it."""
    module = importlib.import_module(f"benchmarks.{COMMANDS[command]}")
    parser = Parser(
        prog=f"python -m benchmarks {command}",
        description=module.__doc__,
        formatter_class=HelpFormatter,
    )
    module.add_arguments(parser)
    try:
        parsed = parser.parse_args(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    try:
        code = int(module.run(parsed))
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # whoever reads has enough, as in "… | head"
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at the end
        return 0
    except (UsageError, DataUnavailable, OSError) as error:  # OSError: such as a full disk
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 1)


class Parser(argparse.ArgumentParser):
    """Answers bad options with one sentence; ``--help`` shows the rest."""

    def error(self, message: str) -> NoReturn:
        """Print the sentence and leave with 2."""
        self.exit(2, f"{self.prog}: error: {message}\n")


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Defaults in the option help, the module docstring as it was written."""


if __name__ == "__main__":
    sys.exit(main())
