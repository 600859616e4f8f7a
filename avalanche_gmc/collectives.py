"""What the processes of a group tell each other: every exchange named, counted, and guarded.

All ranks must make the same exchanges in the same order. Tensors may live anywhere; they travel on
the device of the group's backend (the current GPU for NCCL, the CPU otherwise) and the answers come
back there. Numbers are never added up on the way where that could round: a reduction is a maximum,
a minimum, or a sum of bits of which all ranks but one sent zeros.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")
WORD = 8
"""Tensors that travel together start at multiples of this many bytes."""


class RankValueError(ValueError):
    """The input of one rank is not usable: raised on every rank, with the same words."""


class RankFailure(RuntimeError):
    """A rank failed or cannot be reached."""


@dataclass
class Traffic:
    """What one rank sent.

    :param calls: how many collective operations it took part in.
    :param bytes: how many bytes it handed to them.
    :param rounds: how many rounds of a pursuit these were for.
    """

    calls: int = 0
    bytes: int = 0
    rounds: int = 0

    def __str__(self) -> str:
        return f"{self.rounds} rounds, {self.calls} collectives, {self.bytes:,} bytes"


class OneRank:
    """A process on its own, as a group of one: nothing is sent, and errors stay as they are."""

    rank, size = 0, 1

    def part(self, count: int) -> range:
        """The part of ``count`` things that is this rank's: contiguous, sizes differ by one."""
        return range(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def gather(self, step: str, *tensors: Tensor) -> list[list[Tensor]]:
        """The tensors of the one rank."""
        return [list(tensors)]

    def together(
        self,
        step: str,
        work: Callable[[], T],
        facts: Callable[[T], Mapping[str, object]] | None = None,
    ) -> T:
        """Do some work."""
        return work()

    @contextmanager
    def in_step(self, step: str) -> Iterator[None]:
        """A block that nobody else waits for."""
        yield


class Ranks(OneRank):
    """The processes of a group.

    :param process_group: of ``torch.distributed``; None is the default group.
    """

    def __init__(self, process_group: Any = None) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise ValueError(
                "torch.distributed has no process group yet; start the script with torchrun and "
                "call torch.distributed.init_process_group() first."
            )
        self._group = process_group
        self.rank = dist.get_rank(process_group)
        self.size = dist.get_world_size(process_group)
        self.traffic = Traffic()
        if self.rank < 0:
            raise ValueError("this process does not belong to the process group that was given.")

    def gather(self, step: str, *tensors: Tensor) -> list[list[Tensor]]:
        """The tensors of every rank, in rank order; all ranks send the same shapes and types."""
        packed = _pack(tensors).to(self._device)
        answers = [torch.empty_like(packed) for _ in range(self.size)]
        self._exchange(step, packed, lambda: dist.all_gather(answers, packed, group=self._group))
        return [_unpack(answer, tensors) for answer in answers]

    def merge(self, step: str, *tensors: Tensor) -> list[Tensor]:
        """Tensors of which each entry is filled in by one rank at most, and zero elsewhere."""
        packed = _pack(tensors).to(self._device)
        # One rank's bits plus zeros: exact for numbers of any type.
        self._exchange(step, packed, lambda: dist.all_reduce(packed, group=self._group))
        return _unpack(packed, tensors)

    def maximum(self, step: str, tensor: Tensor) -> Tensor:
        """The largest of the ranks' entries."""
        return self._reduce(step, tensor, dist.ReduceOp.MAX)

    def minimum(self, step: str, tensor: Tensor) -> Tensor:
        """The smallest of the ranks' entries."""
        return self._reduce(step, tensor, dist.ReduceOp.MIN)

    def together(
        self,
        step: str,
        work: Callable[[], T],
        facts: Callable[[T], Mapping[str, object]] | None = None,
    ) -> T:
        """Do some work on every rank; go on only if it succeeded, and alike, everywhere.

        :param step: what the work is, in words.
        :param work: called once; it must not talk to other ranks.
        :param facts: of the result, that must be the same on all ranks.
        :raises RankValueError: on every rank if one's work raised a ValueError, or if facts differ.
        :raises RankFailure: on every rank if one's work raised anything else.
        """
        message: dict[str, Any] = {"step": step, "error": None, "facts": {}}
        cause: Exception | None = None
        try:
            result = work()
            known = facts(result) if facts is not None else {}
            message["facts"] = {name: _short(fact) for name, fact in known.items()}
        except Exception as error:
            cause = error
            message["error"] = str(error) or type(error).__name__
            message["value"] = isinstance(error, ValueError)
        everyone = [json.loads(text) for text in self._gather_texts(step, json.dumps(message))]
        for rank, other in enumerate(everyone):
            if other["error"] is not None:
                kind = RankValueError if other["value"] else RankFailure
                raise kind(f"{other['step']}, rank {rank}: {other['error']}") from cause
        for rank, other in enumerate(everyone):
            if other["step"] != everyone[0]["step"]:
                raise RankFailure(
                    f"rank 0 came to the step '{everyone[0]['step']}' and rank {rank} to the step "
                    f"'{other['step']}'; all ranks must make the same calls in the same order."
                )
        _check_same_facts(step, [other["facts"] for other in everyone])
        return result

    @contextmanager
    def in_step(self, step: str) -> Iterator[None]:
        """Leave the block with success only if all ranks do.

        A rank that fails inside the block tells the others where they next do something
        :meth:`together`, at the end of the block at the latest.
        """
        try:
            yield
        except (RankValueError, RankFailure):
            raise
        except Exception as error:
            raised: Exception | None = error
        else:
            raised = None

        def work() -> None:
            if raised is not None:
                raise raised

        self.together(step, work)

    @property
    def _device(self) -> torch.device:
        if "nccl" in dist.get_backend(self._group):
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("cpu")

    def _reduce(self, step: str, tensor: Tensor, operation: Any) -> Tensor:
        sent = tensor.clone().to(self._device)
        self._exchange(step, sent, lambda: dist.all_reduce(sent, operation, group=self._group))
        return sent.to(tensor.device)

    def _gather_texts(self, step: str, text: str) -> list[str]:
        raw = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
        sizes = [int(size) for (size,) in self.gather(step, torch.tensor(len(raw)))]
        padded = torch.zeros(max(sizes), dtype=torch.uint8)
        padded[: len(raw)] = raw
        texts = self.gather(step, padded)
        return [
            bytes(text[:size].tolist()).decode() for (text,), size in zip(texts, sizes, strict=True)
        ]

    def _exchange(self, step: str, sent: Tensor, operation: Callable[[], Any]) -> None:
        if sent.numel() == 0:
            return
        self.traffic.calls += 1
        self.traffic.bytes += sent.nbytes
        try:
            operation()
        except RuntimeError as error:
            reason = (str(error).splitlines() or ["no reason given"])[0]
            raise RankFailure(
                f"{step}, rank {self.rank} of {self.size}: the other ranks did not answer, so one "
                f"of them has probably failed; look at its output, then start all ranks again "
                f"from the last checkpoint ({reason})"
            ) from error


def _short(fact: object) -> str:
    """A fact in a few words; tensors by their digest."""
    if isinstance(fact, Tensor):
        raw = fact.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        return f"{tuple(fact.shape)} {fact.dtype} #{hashlib.sha256(raw).hexdigest()[:12]}"
    return str(fact)


def _check_same_facts(step: str, facts: Sequence[Mapping[str, str]]) -> None:
    for name, first in facts[0].items():
        for rank, other in enumerate(facts):
            if other.get(name) != first:
                raise RankValueError(
                    f"{step}: all ranks must have the same {name}, but rank 0 has {first} and "
                    f"rank {rank} has {other.get(name)}."
                )


def _pack(tensors: Sequence[Tensor]) -> Tensor:
    """The bytes of all tensors, as 64-bit integers."""
    pieces = []
    for tensor in tensors:
        raw = tensor.detach().contiguous().view(-1).view(torch.uint8)
        pieces += [raw, raw.new_zeros(-len(raw) % WORD)]
    return torch.cat(pieces).view(torch.int64)


def _unpack(packed: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """The tensors again, each in the shape and type and on the device of its pattern."""
    raw, start, tensors = packed.view(torch.uint8), 0, []
    for pattern in like:
        piece = raw[start : start + pattern.nbytes].clone()
        tensors.append(piece.view(pattern.dtype).view(pattern.shape).to(pattern.device))
        start += pattern.nbytes + -pattern.nbytes % WORD
    return tensors
