"""Training on several ranks, as torchrun starts it; ranks that die; what a restarted run finds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from avalanche.benchmarks.utils.data_loader import ReplayDataLoader, TaskBalancedDataLoader
from rank_group import rank_group
from small_streams import dataset, mlp
from torch.utils.data import DataLoader

from avalanche_gmc import (
    CoresetGDumbPlugin,
    CoresetReplayPlugin,
    GradientMatchingBuffer,
    LastLayerEmbedding,
)
from avalanche_gmc.collectives import RankFailure, Ranks
from avalanche_gmc.exemplars import with_weights
from avalanche_gmc.plugins.loading import gathering

ROOT = Path(__file__).resolve().parents[2]


def torchrun(ranks: int, folder: Path) -> list[dict[str, Any]]:
    """What each rank of the training script ends with."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
        str(ranks), str(ROOT / "tests/train_on_ranks.py"), str(folder),
    ]  # fmt: skip
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [torch.load(folder / f"{rank}.pt") for rank in range(ranks)]


def assert_ranks_agree(found: list[dict[str, Any]]) -> None:
    # One process, for comparison: the memory does not depend on how the model is trained.
    from train_on_ranks import train

    memory = train(CoresetReplayPlugin(mem_size=60), epochs=1)[1]
    for one in found:
        assert one["ranks"] == len(found)
        for way in ("replay", "strategy", "gdumb"):
            for field in ("parameters", "inputs", "weights", "target"):
                assert torch.equal(one[way][field], found[0][way][field]), (way, field)
            inputs = torch.stack([x for x, *_ in memory.buffer.eval()])
            assert torch.equal(one[way]["inputs"], inputs)
            torch.testing.assert_close(one[way]["weights"], memory.weights, rtol=1e-4, atol=1e-4)
        assert one["replay"]["accuracy"] > 0.7
        assert one["gdumb"]["accuracy"] > 0.75


def test_torchrun_with_two_ranks(tmp_path):
    assert_ranks_agree(torchrun(2, tmp_path))


@pytest.mark.slow
def test_torchrun_with_four_ranks(tmp_path):
    assert_ranks_agree(torchrun(4, tmp_path))


def test_distributed_training_is_claimed():
    assert CoresetGDumbPlugin.supports_distributed
    assert CoresetReplayPlugin.supports_distributed


def minibatches(rank: int, kind: str) -> list[list[list[tuple[int, float]]]]:
    """Memory rows and their weights, batch by batch, of three epochs."""
    memory = dataset([0, 1], 21)
    rows = {tuple(memory[i][0].tolist()): i for i in range(len(memory))}
    memory = with_weights(memory, [float(i) for i in range(len(memory))])
    current = dataset([2, 3], 42)
    if kind == "replay":
        loader = ReplayDataLoader(
            current, memory, batch_size=6, batch_size_mem=4, oversample_small_tasks=True,
            shuffle=True,
        )  # fmt: skip
    elif kind == "task-balanced":
        loader = TaskBalancedDataLoader(memory, batch_size=6, shuffle=True)
    else:
        loader = DataLoader(memory, batch_size=6, shuffle=True, collate_fn=memory.collate_fn)
    gathered = gathering(loader)
    return [
        [
            [
                (rows[tuple(x.tolist())], float(w))
                for x, w in zip(batch[0], gathered.weights, strict=True)
                if tuple(x.tolist()) in rows
            ]
            for batch in gathered
        ]
        for _ in range(3)
    ]


@pytest.mark.parametrize("kind", ["replay", "task-balanced", "task-free"])
def test_ranks_share_the_rows_and_weights_follow_them(pair, kind):
    answers = pair.results(minibatches, kind)
    for epochs in zip(*answers, strict=True):
        assert len({len(batches) for batches in epochs}) == 1
        pairs = [pair for batches in epochs for batch in batches for pair in batch]
        assert {row for row, _ in pairs} == set(range(21))
        assert all(weight == row for row, weight in pairs)
        if kind != "replay":  # there the memory is read several times an epoch
            assert len(pairs) == 22  # one row twice, so that both ranks have as many
    first, second, _ = answers[0]
    assert first != second


EXPERIENCES = [([t % 6, (t + 1) % 6], 40) for t in range(4)]


def stream_with_checkpoints(
    rank: int, checkpoint: Path, how: signal.Signals | None
) -> dict[str, Any]:
    """A memory's way through a stream; in the middle of the third update rank 1 gets a signal."""
    buffer = GradientMatchingBuffer(20, LastLayerEmbedding(mlp(), draws=2))
    done = 0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=False)
        buffer.load_state_dict(state["buffer"])
        done = state["done"]
    for index in range(done, len(EXPERIENCES)):
        classes, size = EXPERIENCES[index]
        with mock.patch.object(
            Ranks, "minimum", _deadly(how if index == 2 and rank == 1 else None)
        ):
            buffer.update_from_dataset(dataset(classes, size, seed=index))
        if rank == 0:
            torch.save({"buffer": buffer.state_dict(), "done": index + 1}, checkpoint)
    return {
        "inputs": torch.stack([buffer.buffer[i][0] for i in range(20)]),
        "weights": buffer.weights,
        "target": buffer.target,
        "began": done,
    }


def _deadly(how: signal.Signals | None) -> Any:
    """The exchange in which ranks agree on a trial, where a rank may get a signal."""
    plain = Ranks.minimum

    def minimum(self: Ranks, *args: Any) -> Any:
        if how is not None:
            os.kill(os.getpid(), how)
        return plain(self, *args)

    return minimum


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)]
)
def test_the_others_report_a_lost_rank_and_a_restarted_run_goes_on(pair, tmp_path, how):
    checkpoint = tmp_path / "checkpoint.pt"
    with rank_group(2, timeout=5) as group:
        start = time.monotonic()
        survivor, lost = group.run(stream_with_checkpoints, checkpoint, how, seconds=60)
        assert time.monotonic() - start < (50 if how == signal.SIGKILL else 90)
    assert isinstance(lost, EOFError if how == signal.SIGKILL else TimeoutError)
    assert isinstance(survivor, RankFailure)
    assert "winners on trial, rank 0 of 2: the other ranks did not answer" in str(survivor)
    restarted = pair.results(stream_with_checkpoints, checkpoint, None)
    undisturbed = pair.results(stream_with_checkpoints, tmp_path / "another.pt", None)
    assert [one["began"] for one in restarted] == [2, 2]
    for one in restarted:
        for field in ("inputs", "weights", "target"):
            assert torch.equal(one[field], undisturbed[0][field])
