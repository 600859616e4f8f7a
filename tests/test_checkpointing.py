"""Interrupted and resumed runs end where uninterrupted ones do; files are whole or refused."""

from __future__ import annotations

import errno
import io
import os
import pickle
import resource
import signal

import pytest
import torch
from avalanche import checkpointing as avalanche_checkpointing
from avalanche.training.plugins import EWCPlugin, LRSchedulerPlugin
from avalanche.training.storage_policy import ReservoirSamplingBuffer
from small_streams import (
    FirstComeBuffer,
    class_incremental,
    mlp,
    naive,
    online,
    parameters,
    train,
    uneven,
)
from torch import nn
from torch.optim.lr_scheduler import StepLR

from avalanche_gmc import checkpointing
from avalanche_gmc.buffers import GradientMatchingBuffer
from avalanche_gmc.checkpointing import (
    enable_checkpointing,
    maybe_load_checkpoint,
    save_checkpoint,
)
from avalanche_gmc.plugins import CoresetGDumbPlugin, CoresetReplayPlugin

POLICIES = {
    "gradient matching": lambda: GradientMatchingBuffer(12),
    "weighted": lambda: FirstComeBuffer(12, uneven),
    "reservoir": lambda: ReservoirSamplingBuffer(12),
}
PLUGINS = {
    "gdumb fresh": lambda policy: CoresetGDumbPlugin(12, policy),
    "gdumb factory": lambda policy: CoresetGDumbPlugin(12, policy, model_factory=mlp),
    "gdumb same": lambda policy: CoresetGDumbPlugin(12, policy, init="same"),
    "gdumb last": lambda policy: CoresetGDumbPlugin(12, policy, train_on="last"),
    "replay": lambda policy: CoresetReplayPlugin(12, storage_policy=policy),
    "replay batch": lambda policy: CoresetReplayPlugin(
        12, storage_policy=policy, memory_share="batch"
    ),
}


def strategy_with(plugin, policy):
    model = mlp(middle=nn.Dropout(0.2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = LRSchedulerPlugin(StepLR(optimizer, 1, 0.7))
    return naive(model, EWCPlugin(0.1), scheduler, plugin(policy()), optimizer=optimizer)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("plugin", PLUGINS.values(), ids=PLUGINS)
def test_a_resumed_run_ends_where_an_uninterrupted_one_does(plugin, policy, tmp_path):
    torch.manual_seed(7)
    whole = train(strategy_with(plugin, policy), class_incremental())

    torch.manual_seed(7)
    first = strategy_with(plugin, policy)
    train(first, class_incremental()[:2])
    save_checkpoint(first, tmp_path / "state")

    torch.manual_seed(99)  # the generators come back with the checkpoint
    second, done = maybe_load_checkpoint(strategy_with(plugin, policy), tmp_path / "state")
    assert done == 2
    assert torch.equal(parameters(train(second, class_incremental()[done:])), parameters(whole))
    assert not torch.equal(parameters(first.model), parameters(whole))


def test_an_online_run_resumes_and_finds_the_end(tmp_path):
    def fresh():
        plugin = CoresetGDumbPlugin(12, FirstComeBuffer(12, uneven), train_on="last")
        return naive(mlp(), plugin)

    first = fresh()
    train(first, list(online())[:3])
    save_checkpoint(first, tmp_path / "state")
    second, done = maybe_load_checkpoint(fresh(), tmp_path / "state")
    resumed = parameters(train(second, list(online())[done:]))
    assert torch.equal(resumed, parameters(train(fresh(), online())))


def test_without_a_file_the_strategy_stays(tmp_path):
    strategy = naive(mlp())
    before = strategy.model
    loaded, done = maybe_load_checkpoint(strategy, tmp_path / "nothing")
    assert loaded is strategy and loaded.model is before and done == 0


@pytest.mark.parametrize("plugin", PLUGINS.values(), ids=PLUGINS)
def test_plugins_survive_pickle(plugin):
    tested = plugin(FirstComeBuffer(12, float))
    naive(mlp(), tested).train(class_incremental()[0])
    again = pickle.loads(pickle.dumps(tested))
    assert torch.equal(again.storage_policy.weights, tested.storage_policy.weights)


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW", "RMSprop"])
def test_avalanches_own_function_works_once_enabled(optimizer, monkeypatch, tmp_path):
    """As torch leaves it, without the names of the modules, saving fails."""
    cls = getattr(torch.optim, optimizer)
    for base in cls.__mro__:  # AdamW is an Adam
        package, _, module = base.__module__.rpartition(".")
        if package == "torch.optim":
            monkeypatch.delattr(torch.optim, module, raising=False)
    model = mlp()
    strategy = naive(model, optimizer=cls(model.parameters(), lr=0.1))
    try:
        avalanche_checkpointing.save_checkpoint(strategy, tmp_path / "state")
    except pickle.PicklingError:
        enable_checkpointing()
    else:
        pytest.skip("saving works as it is, such as with Python 3.10 and torch 2.2")
    avalanche_checkpointing.save_checkpoint(strategy, tmp_path / "state")
    loaded, _ = avalanche_checkpointing.maybe_load_checkpoint(naive(mlp()), tmp_path / "state")
    assert type(loaded.optimizer) is cls


@pytest.fixture
def saved(tmp_path):
    """A file with a checkpoint in a folder of its own."""
    (tmp_path / "run").mkdir()
    save_checkpoint(naive(mlp(seed=1)), tmp_path / "run" / "state")
    return tmp_path / "run" / "state"


def in_child(work) -> int:
    """Do some work in a forked process, and how that ended: its exit code or minus its signal."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except OSError as error:
            os._exit(error.errno)
        finally:
            os._exit(255)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill(*_args):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("place", [0, 1, 3, 9, "fsync", "replace"])
def test_a_run_killed_while_saving_keeps_its_last_checkpoint(saved, place, monkeypatch):
    before = saved.read_bytes()
    if isinstance(place, int):
        calls = iter(range(100))

        class Fatal(io.BufferedRandom):
            def write(self, data):
                return kill() if next(calls) == place else super().write(data)

        monkeypatch.setattr(
            checkpointing, "open", lambda *where: Fatal(io.FileIO(*where)), raising=False
        )
    else:
        monkeypatch.setattr(os, place, kill)
    strategy = naive(mlp(seed=2))
    assert in_child(lambda: save_checkpoint(strategy, saved)) == -signal.SIGKILL
    monkeypatch.undo()
    assert saved.read_bytes() == before
    loaded, _ = maybe_load_checkpoint(naive(mlp()), saved)
    assert torch.equal(parameters(loaded.model), parameters(mlp(seed=1)))
    save_checkpoint(strategy, saved)  # what the killed run left behind is no obstacle, and goes
    loaded, _ = maybe_load_checkpoint(naive(mlp()), saved)
    assert torch.equal(parameters(loaded.model), parameters(mlp(seed=2)))
    assert os.listdir(saved.parent) == ["state"]


@pytest.mark.parametrize("limit", [0, 1, 500, 5000])
def test_a_file_that_cannot_be_written_whole_is_not_kept(saved, limit):
    """The system writes up to a limit and then refuses: a short write."""
    before = saved.read_bytes()

    def save():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        save_checkpoint(naive(mlp()), saved)

    assert len(before) > limit
    assert in_child(save) == errno.EFBIG
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == ["state"]


def refused(path) -> bool:
    with pytest.raises(ValueError, match="was cut off or altered") as raised:
        maybe_load_checkpoint(None, path)
    return str(path) in str(raised.value)


def test_a_file_that_was_cut_off_is_refused(saved):
    whole = saved.read_bytes()
    for size in {*range(0, len(whole), 401), *range(len(whole) - 60, len(whole))}:
        if size == len(whole) - checkpointing.TRAILER_SIZE:
            continue  # all but the checksum: as Avalanche writes it
        saved.write_bytes(whole[:size])
        assert refused(saved)


def test_an_altered_file_is_refused(saved):
    whole = saved.read_bytes()
    for place in {*range(0, len(whole), 401), *range(len(whole) - 60, len(whole))}:
        altered = bytearray(whole)
        altered[place] ^= 1 << place % 8
        saved.write_bytes(altered)
        assert refused(saved)


def test_avalanche_reads_our_files_and_we_read_avalanches(saved, tmp_path):
    loaded, _ = avalanche_checkpointing.maybe_load_checkpoint(naive(mlp()), saved)
    assert torch.equal(parameters(loaded.model), parameters(mlp(seed=1)))
    avalanche_checkpointing.save_checkpoint(naive(mlp(seed=2)), tmp_path / "plain")
    with pytest.warns(UserWarning, match="plain has no checksum"):
        loaded, _ = maybe_load_checkpoint(naive(mlp()), tmp_path / "plain")
    assert torch.equal(parameters(loaded.model), parameters(mlp(seed=2)))


def test_a_link_stays_a_link(saved):
    link = saved.parent / "link"
    link.symlink_to(saved)
    save_checkpoint(naive(mlp(seed=2)), link)
    assert link.is_symlink()
    loaded, _ = maybe_load_checkpoint(naive(mlp()), saved)
    assert torch.equal(parameters(loaded.model), parameters(mlp(seed=2)))
