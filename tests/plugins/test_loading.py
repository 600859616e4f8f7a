"""The gathering loader: Avalanche's minibatches, whatever the way they are fetched."""

from __future__ import annotations

import pytest
import torch
from avalanche.benchmarks.utils import AvalancheDataset, _make_taskaware_classification_dataset
from avalanche.benchmarks.utils.data_loader import ReplayDataLoader, TaskBalancedDataLoader
from small_streams import dataset
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate
from torchvision import transforms

from avalanche_gmc.exemplars import materialize, with_weights
from avalanche_gmc.exemplars.fixed_items import has_fixed_items
from avalanche_gmc.plugins import loading
from avalanche_gmc.plugins.loading import GatheringLoader, gathering


def images(size: int, transform=None, task: int = 0) -> AvalancheDataset:
    generator = torch.Generator().manual_seed(size)
    tensors = TensorDataset(torch.rand(size, 1, 4, 4, generator=generator), torch.arange(size) % 3)
    return _make_taskaware_classification_dataset(
        tensors,
        targets=(torch.arange(size) % 3).tolist(),
        task_labels=task,
        transform_groups={"train": (transform, None), "eval": (None, None)},
    )


NORMALIZE = transforms.Normalize(0.5, 0.5)
FLIP = transforms.RandomHorizontalFlip()

LOADERS = {
    "one dataset": lambda: TaskBalancedDataLoader(images(23), batch_size=5, shuffle=True),
    "in order": lambda: TaskBalancedDataLoader(images(23), batch_size=5, shuffle=False),
    "drop last": lambda: TaskBalancedDataLoader(
        images(23), batch_size=5, shuffle=True, drop_last=True
    ),
    "two tasks": lambda: TaskBalancedDataLoader(
        images(23).concat(images(9, task=1)),
        batch_size=6,
        oversample_small_groups=True,
        shuffle=True,
    ),
    "replay": lambda: ReplayDataLoader(
        images(23), images(7), batch_size=5, batch_size_mem=4, oversample_small_tasks=True
    ),
    "fixed transform": lambda: TaskBalancedDataLoader(
        images(23, NORMALIZE), batch_size=5, shuffle=True
    ),
    "random transform": lambda: ReplayDataLoader(
        images(23, FLIP),
        images(7, transforms.Compose([NORMALIZE, FLIP])),
        batch_size=5,
        batch_size_mem=4,
        oversample_small_tasks=True,
        shuffle=True,
    ),
    "owned exemplars": lambda: ReplayDataLoader(
        images(23),
        materialize(images(9, NORMALIZE), [4, 1, 8]),
        batch_size=5,
        batch_size_mem=2,
        oversample_small_tasks=True,
        shuffle=True,
    ),
    "plain torch": lambda: DataLoader(images(23), batch_size=5, shuffle=True),
    "plain torch in order": lambda: DataLoader(images(23), batch_size=5, drop_last=True),
    "workers": lambda: TaskBalancedDataLoader(
        images(23), batch_size=5, shuffle=True, num_workers=1
    ),
}


def epochs(loader, count=2):
    torch.manual_seed(0)
    return [[column.clone() for column in batch] for _ in range(count) for batch in loader]


@pytest.mark.parametrize("make", LOADERS.values(), ids=LOADERS)
def test_minibatches_are_avalanches(make):
    loader = gathering(make())
    assert isinstance(loader, GatheringLoader)
    actual, expected = epochs(loader), epochs(make())
    assert len(actual) == len(expected) == 2 * len(loader)
    for ours, stock in zip(actual, expected, strict=True):
        assert len(ours) == len(stock) == 3
        for a, b in zip(ours, stock, strict=True):
            assert a.dtype == b.dtype
            assert torch.equal(a, b)


def test_random_state_is_used_as_avalanche_does():
    after = []
    for loader in (LOADERS["random transform"](), gathering(LOADERS["random transform"]())):
        epochs(loader)
        after.append(torch.rand(3).tolist())
    assert after[0] == after[1]


def marked(marks, transform=None) -> AvalancheDataset:
    """Images of one colour, which survives flips and can be read off after normalising."""
    marks = torch.tensor(marks)
    return _make_taskaware_classification_dataset(
        TensorDataset(marks[:, None, None, None].expand(-1, 1, 2, 2).clone(), marks.long()),
        targets=marks.long().tolist(),
        task_labels=0,
        transform_groups={"train": (transform, None), "eval": (None, None)},
    )


@pytest.mark.parametrize("share", [None, 0.25])
@pytest.mark.parametrize("transform", [None, NORMALIZE, FLIP], ids=["none", "fixed", "random"])
def test_weights_stand_beside_their_rows(share, transform):
    weights = torch.arange(7.0) / 3
    loader = gathering(
        ReplayDataLoader(
            marked([-1.0] * 23, transform),
            with_weights(marked([float(i) for i in range(7)], transform), weights.tolist()),
            batch_size=5,
            batch_size_mem=4,
            oversample_small_tasks=True,
            shuffle=True,
        ),
        share,
    )
    for x, y, w, task in epochs(loader):
        mark = x[:, 0, 0, 0] / 2 + 0.5 if transform is NORMALIZE else x[:, 0, 0, 0]
        past = mark >= 0
        expected = torch.where(past, weights[mark.long().clamp(0)], torch.ones(()))
        if share is not None:
            expected[past] *= share * len(y) / past.sum()
            expected[~past] *= (1 - share) * len(y) / (~past).sum()
        torch.testing.assert_close(w, expected)
        assert torch.equal(mark.long(), y)
        assert task.tolist() == [0] * len(y)


def test_weights_without_task_labels_come_last():
    data = AvalancheDataset([TensorDataset(torch.arange(6.0), torch.arange(6))])
    weighted = with_weights(data, [float(i) for i in range(6)])
    for x, _, w in epochs(gathering(DataLoader(weighted, batch_size=4, shuffle=True))):
        assert torch.equal(x, w)


def test_weights_follow_their_rows_into_task_groups():
    data = dataset([0, 1], 8, task=0).concat(dataset([0, 1], 6, task=1))
    marked = with_weights(data, [100.0 * (i >= 8) + i for i in range(14)])
    loader = gathering(
        TaskBalancedDataLoader(marked, batch_size=4, oversample_small_groups=True, shuffle=True)
    )
    inputs = torch.stack([data[i][0] for i in range(14)])
    for x, _, w, task in epochs(loader):
        rows = torch.cdist(x, inputs).argmin(1)
        assert torch.equal(w, 100.0 * task + rows)


def test_items_are_read_once(monkeypatch):
    reads = []
    read = AvalancheDataset.__getitem__
    monkeypatch.setattr(
        AvalancheDataset, "__getitem__", lambda self, i: (reads.append(i), read(self, i))[1]
    )
    epochs(gathering(LOADERS["owned exemplars"]()), count=3)
    assert len(reads) == 23 + 3
    reads.clear()
    batches = epochs(gathering(LOADERS["random transform"]()), count=3)
    assert len(reads) == sum(len(batch[1]) for batch in batches)


def test_a_part_too_large_to_keep_is_read_item_by_item(monkeypatch):
    monkeypatch.setattr(loading, "MAX_CACHED_BYTES", 100)
    for ours, stock in zip(
        epochs(gathering(LOADERS["replay"]())), epochs(LOADERS["replay"]()), strict=True
    ):
        assert all(torch.equal(a, b) for a, b in zip(ours, stock, strict=True))


def test_a_custom_collate_function_sees_the_whole_minibatch():
    sizes = []

    def collate(items):
        sizes.append(len(items))
        return default_collate(items)

    def make():
        return ReplayDataLoader(
            images(23),
            with_weights(images(7), 2.0),
            batch_size=5,
            batch_size_mem=4,
            oversample_small_tasks=True,
            collate_fn=collate,
        )

    batches = epochs(gathering(make()), count=1)
    assert sizes == [len(b[1]) for b in batches]
    assert all(len(b) == 4 for b in batches)


def test_other_loaders_come_back_as_they_are():
    batches = [[torch.ones(1), torch.ones(1)]]
    assert gathering(batches) is batches


class Noisy(Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, i):
        return torch.rand(2), 0


class NoisyTensors(TensorDataset):
    def __getitem__(self, i):
        return torch.rand(2), 0


@pytest.mark.parametrize(
    ("data", "fixed"),
    [
        (images(5), True),
        (images(5, NORMALIZE), True),
        (images(5, transforms.Compose([transforms.Resize(2), NORMALIZE])), True),
        (images(5, FLIP), False),
        (images(5, FLIP).eval(), True),
        (images(5, transforms.Compose([NORMALIZE, FLIP])), False),
        (images(5, transforms.Lambda(lambda x: x)), False),
        (images(5).concat(images(4, FLIP)), False),
        (images(5, FLIP).freeze_transforms(), False),
        (materialize(images(5, NORMALIZE), [0, 3]), True),
        (materialize(images(5, FLIP), [0, 3]), False),
        (images(5).subset([1, 2]), True),
        (AvalancheDataset([Noisy()]), False),
        (AvalancheDataset([NoisyTensors(torch.ones(3))]), False),
    ],
)
def test_only_what_is_known_to_be_fixed_is_fixed(data, fixed):
    assert has_fixed_items(data) is fixed
