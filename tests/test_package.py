"""The distribution as users meet it: metadata, wheel, import from elsewhere, make targets."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import requires, version
from pathlib import Path

import pytest
import torch
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import avalanche_gmc

ROOT = Path(__file__).resolve().parents[1]
DEPENDENCY_FILES = ("setup.cfg", "setup.py", "pyproject.toml", "constraints.txt")


def run(*command: str | Path, cwd: Path, **kwargs) -> subprocess.CompletedProcess[str]:
    """Run a command with nothing of this make or of the current folder leaking into it."""
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "PYTHONPATH")}
    return subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=120, **kwargs
    )


def pins() -> dict[str, Requirement]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    parsed = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(pin.name): pin for pin in parsed}


def test_version_is_the_same_everywhere():
    citation = (ROOT / "CITATION.cff").read_text()
    assert version("avalanche-gmc") == avalanche_gmc.__version__
    assert re.search(r"^version: (.+)$", citation, re.M)[1] == avalanche_gmc.__version__


def test_public_names_are_listed_once_and_exist():
    names = avalanche_gmc.__all__
    assert len(names) == len(set(names))
    assert [name for name in names if not hasattr(avalanche_gmc, name)] == []


def test_every_public_name_says_what_it_is():
    undocumented = [n for n in avalanche_gmc.__all__ if not getattr(avalanche_gmc, n).__doc__]
    assert undocumented == []


def test_the_pursuit_alone_does_not_import_avalanche():
    code = """
import sys
import torch
import avalanche_gmc
coreset = avalanche_gmc.orthogonal_matching_pursuit(torch.eye(3), torch.ones(3), 2)
avalanche_gmc.LastLayerEmbedding(lambda: torch.nn.Linear(2, 2))
assert len(coreset.indices) == 2 and "avalanche" not in sys.modules
assert set(avalanche_gmc.__all__) <= set(dir(avalanche_gmc))
assert not hasattr(avalanche_gmc, "nothing") and "avalanche" not in sys.modules
assert avalanche_gmc.buffers.GradientMatchingBuffer is avalanche_gmc.GradientMatchingBuffer
from avalanche_gmc import *
assert coreset_metrics.__module__ == "avalanche_gmc.metrics" and "avalanche" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=120)


def test_everything_the_changelog_names_is_public():
    entries = (ROOT / "CHANGELOG.md").read_text()
    named = set(re.findall(r"`([A-Z][a-z]\w+|orthogonal_\w+)`", entries))
    assert len(named) >= 13
    assert named - {"ReplayPlugin", "ReservoirSamplingBuffer"} <= set(avalanche_gmc.__all__)


def test_wheel_holds_the_typed_package_and_nothing_else(tmp_path):
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "avalanche_gmc", source / "avalanche_gmc", ignore=ignored)
    for folder in ("benchmarks", "tests"):
        (source / folder).mkdir()
        (source / folder / "__init__.py").touch()
    for name in ("setup.cfg", "setup.py", "pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, source)
    (source / "README.md").write_text(
        "# avalanche-gmc\n\n![A picture](docs/a.png)\n\n[Here](docs/a.md), [there](https://a.org/b).\n"
    )

    build = run(sys.executable, "-m", "build", "--wheel", "--no-isolation", cwd=source)
    assert build.returncode == 0, build.stdout + build.stderr
    (wheel,) = (source / "dist").glob("avalanche_gmc-*-py3-none-any.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    ours = [path for path in (source / "avalanche_gmc").rglob("*") if path.is_file()]
    assert packed == {path.relative_to(source).as_posix() for path in ours}
    assert "avalanche_gmc/py.typed" in packed
    (metadata,) = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("/METADATA")]
    _, _, description = zipfile.ZipFile(wheel).read(metadata).decode().partition("\n\n")
    assert description.strip() == "# avalanche-gmc\n\nHere, [there](https://a.org/b)."


def test_imports_from_another_folder_without_touching_global_randomness(tmp_path):
    code = (
        "import torch; before = torch.get_rng_state(); import avalanche_gmc;"
        "assert torch.equal(before, torch.get_rng_state()); print(avalanche_gmc.__version__)"
    )
    done = run(sys.executable, "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == avalanche_gmc.__version__


def test_every_declared_dependency_is_pinned_inside_its_range():
    declared = [Requirement(line) for line in requires("avalanche-gmc")]
    pinned = pins()
    for requirement in declared:
        name = canonicalize_name(requirement.name)
        if name != "avalanche-gmc":
            (pin,) = pinned[name].specifier
            assert requirement.specifier.contains(pin.version, prereleases=True), str(requirement)


def test_constraints_are_exact_public_versions():
    for pin in pins().values():
        assert re.fullmatch(r"==[0-9a-z.]+", str(pin.specifier)), str(pin)
        assert pin.url is None


def test_slow_tests_are_left_out_by_default():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    assert '-m "not slow"' in config["tool:pytest"]["addopts"]


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="only workers share the cores")
def test_a_worker_has_one_torch_thread():
    assert torch.get_num_threads() == 1


@pytest.fixture
def installed(tmp_path):
    """A folder with our Makefile and an environment that looks installed just now."""
    for name in ("Makefile", *DEPENDENCY_FILES):
        shutil.copy(ROOT / name, tmp_path)
        os.utime(tmp_path / name, (1_000, 1_000))
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for name in ("bin/python", ".installed-dev"):
        (tmp_path / ".venv" / name).touch()
        os.utime(tmp_path / ".venv" / name, (2_000, 2_000))
    return tmp_path


@pytest.mark.parametrize(
    "target", ["test", "demo", "lint", "docs", "build", "coverage", "test-slow"]
)
def test_make_installs_nothing_when_nothing_changed(installed, target):
    done = run("make", "-n", target, cwd=installed)
    assert done.returncode == 0, done.stderr
    assert "pip install" not in done.stdout


@pytest.mark.parametrize("changed", DEPENDENCY_FILES)
@pytest.mark.parametrize("target", ["test", "demo"])
def test_make_installs_again_when_a_dependency_file_changed(installed, target, changed):
    os.utime(installed / changed, (3_000, 3_000))
    done = run("make", "-n", target, cwd=installed)
    assert "pip install" in done.stdout
    assert "-c constraints.txt" in done.stdout
    assert "-m venv" not in done.stdout


@pytest.mark.parametrize("target", ["test", "demo"])
def test_make_creates_the_environment_from_nothing(installed, target):
    shutil.rmtree(installed / ".venv")
    done = run("make", "-n", target, cwd=installed)
    assert done.stdout.index("-m venv") < done.stdout.index("pip install")


def test_make_refuses_a_missing_or_old_python_in_one_sentence(installed):
    shutil.rmtree(installed / ".venv")
    old = installed / "old-python"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.9.1" && exit\nexit 1\n')
    old.chmod(0o755)
    for python, message in ((old, "Python 3.9.1 is too old"), ("no-such-python", "No 'no-such")):
        done = run("make", "test", f"PYTHON={python}", cwd=installed)
        assert done.returncode != 0
        assert message in done.stdout
        assert not (installed / ".venv").exists()


def make_targets() -> list[str]:
    return re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.M)[1].split()


def test_continuous_integration_runs_commands_that_exist():
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    commands = [step["run"].split() for step in steps if "run" in step]
    commands += [line.split() for line in (ROOT / ".ci/run").read_text().splitlines()[3:]]
    for program, argument, *_ in filter(None, commands):
        if program == "make":
            assert argument in make_targets()
        elif program.startswith(".ci/"):
            assert os.access(ROOT / program, os.X_OK)
        else:
            assert program in ("cd", "pip", "python")


def test_the_oldest_versions_are_those_of_the_ranges():
    workflow = (ROOT / ".github/workflows/ci.yml").read_text()
    oldest = dict(re.findall(r"(\w+)==([\d.]+)", workflow))
    declared = [Requirement(line) for line in requires("avalanche-gmc") if ";" not in line]
    bounds = {r.name: s.version for r in declared for s in r.specifier if s.operator == ">="}
    assert oldest == {
        name: f"{bounds[name]}.0" for name in ("torch", "torchvision", "numpy", "tqdm")
    }


def test_make_help_lists_every_target():
    targets = make_targets()
    listed = run("make", "help", cwd=ROOT).stdout
    assert [name for name in targets if f"  {name} " not in listed] == []
