"""Processes that stay: a gloo group started once and asked to run one function after another."""

from __future__ import annotations

import datetime
import multiprocessing
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import avalanche.training  # noqa: F401 -- it cannot be imported once there is a process group
import torch
import torch.distributed as dist

ANSWER_SECONDS = 120
"""Longer than anything a test asks for; a rank that is silent for so long hangs."""
START_SECONDS = 300


class RankGroup:
    """R processes of one group. Functions must be importable by name."""

    def __init__(self, connections: list[Connection]) -> None:
        self._connections = connections
        self.size = len(connections)

        assert self._answers(START_SECONDS) == ["ready"] * self.size

    def run(
        self, function: Callable[..., Any], *args: Any, seconds: float = ANSWER_SECONDS
    ) -> list[Any]:
        """What ``function(rank, *args)`` returns, or raises, on each rank, in rank order.

        An EOFError means that the rank has died, a TimeoutError that it is silent.
        """
        for connection in self._connections:
            connection.send((function, args))
        return self._answers(seconds)

    def _answers(self, seconds: float) -> list[Any]:
        deadline = time.monotonic() + seconds
        answers: list[Any] = []
        for connection in self._connections:
            try:
                answers.append(
                    connection.recv()
                    if connection.poll(max(0.0, deadline - time.monotonic()))
                    else TimeoutError(f"a rank did not answer within {seconds} seconds")
                )
            except EOFError as error:
                answers.append(error)
        return answers

    def results(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """The same, where no rank may raise."""
        answers = self.run(function, *args)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers


@contextmanager
def rank_group(size: int, *, backend: str = "gloo", timeout: float = 120) -> Iterator[RankGroup]:
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(size)]
    with tempfile.TemporaryDirectory() as folder:
        meeting = (Path(folder) / "meeting").as_uri()
        processes = [
            context.Process(
                target=_serve, args=(rank, size, backend, meeting, timeout, pipe), daemon=True
            )
            for rank, (_, pipe) in enumerate(pipes)
        ]
        for process, (_, pipe) in zip(processes, pipes, strict=True):
            process.start()
            pipe.close()  # so that the end of a process is noticed here
        try:
            yield RankGroup([pipe for pipe, _ in pipes])
        finally:
            for (pipe, _), process in zip(pipes, processes, strict=True):
                pipe.close()
                process.kill()
                process.join(10)


def _serve(
    rank: int, size: int, backend: str, meeting: str, timeout: float, pipe: Connection
) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if backend == "nccl":
        torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group(
        backend,
        init_method=meeting,
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=timeout),
    )
    pipe.send("ready")
    while True:
        try:
            function, args = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer = function(rank, *args)
        except Exception as error:
            answer = error
        pipe.send(answer)
