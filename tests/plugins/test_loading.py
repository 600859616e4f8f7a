"""The gathering loader: Avalanche's minibatches, whatever the way they are fetched."""

from __future__ import annotations

import pytest
import torch
from avalanche.benchmarks.utils import AvalancheDataset, _make_taskaware_classification_dataset
from avalanche.benchmarks.utils.data_loader import ReplayDataLoader, TaskBalancedDataLoader
from small_streams import dataset
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)
from torchvision import transforms

from avalanche_gmc.exemplars import materialize, with_weights
from avalanche_gmc.exemplars.fixed_items import has_fixed_items
from avalanche_gmc.plugins import loading, minibatches
from avalanche_gmc.plugins.loading import gathering


def images(size: int, transform=None, task: int = 0) -> AvalancheDataset:
    generator = torch.Generator().manual_seed(size)
    tensors = TensorDataset(torch.rand(size, 1, 4, 4, generator=generator), torch.arange(size) % 3)
    return _make_taskaware_classification_dataset(
        tensors,
        targets=(torch.arange(size) % 3).tolist(),
        task_labels=task,
        transform_groups={"train": (transform, None), "eval": (None, None)},
    )


def replaying(current, memory, batch_size_mem=4, **options) -> ReplayDataLoader:
    """Minibatches of 5 current rows and some of the memory."""
    return ReplayDataLoader(
        current,
        memory,
        batch_size=5,
        batch_size_mem=batch_size_mem,
        oversample_small_tasks=True,
        **{"shuffle": True, **options},
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
    "replay": lambda: replaying(images(23), images(7), shuffle=False),
    "fixed transform": lambda: TaskBalancedDataLoader(
        images(23, NORMALIZE), batch_size=5, shuffle=True
    ),
    "random transform": lambda: replaying(
        images(23, FLIP), images(7, transforms.Compose([NORMALIZE, FLIP]))
    ),
    "owned exemplars": lambda: replaying(
        images(23), materialize(images(9, NORMALIZE), [4, 1, 8]), batch_size_mem=2
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


def weighted_epochs(loader, count=2):
    """Minibatches with their weights as a further column."""
    torch.manual_seed(0)
    return [[*batch, loader.weights] for _ in range(count) for batch in loader]


@pytest.mark.parametrize("make", LOADERS.values(), ids=LOADERS)
def test_minibatches_are_avalanches(make):
    loader = gathering(make())
    assert loader.weights is None
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
    memory = with_weights(marked([float(i) for i in range(7)], transform), weights)
    loader = gathering(replaying(marked([-1.0] * 23, transform), memory), share=share)
    for x, y, task, w in weighted_epochs(loader):
        mark = x[:, 0, 0, 0] / 2 + 0.5 if transform is NORMALIZE else x[:, 0, 0, 0]
        past = mark >= 0
        expected = torch.where(past, weights[mark.long().clamp(0)], torch.ones(()))
        if share is not None:
            expected[past] *= share * len(y) / past.sum()
            expected[~past] *= (1 - share) * len(y) / (~past).sum()
        torch.testing.assert_close(w, expected)
        assert torch.equal(mark.long(), y)
        assert task.tolist() == [0] * len(y)


def test_weights_without_task_labels():
    data = AvalancheDataset([TensorDataset(torch.arange(6.0), torch.arange(6))])
    weighted = with_weights(data, [float(i) for i in range(6)])
    for x, _, w in weighted_epochs(gathering(DataLoader(weighted, batch_size=4, shuffle=True))):
        assert torch.equal(x, w)


def test_weights_follow_their_rows_into_task_groups():
    data = dataset([0, 1], 8, task=0).concat(dataset([0, 1], 6, task=1))
    marked = with_weights(data, [100.0 * (i >= 8) + i for i in range(14)])
    loader = gathering(
        TaskBalancedDataLoader(marked, batch_size=4, oversample_small_groups=True, shuffle=True)
    )
    inputs = torch.stack([data[i][0] for i in range(14)])
    for x, _, task, w in weighted_epochs(loader):
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
    monkeypatch.setattr(minibatches, "MAX_CACHED_BYTES", 100)
    for ours, stock in zip(
        epochs(gathering(LOADERS["replay"]())), epochs(LOADERS["replay"]()), strict=True
    ):
        assert all(torch.equal(a, b) for a, b in zip(ours, stock, strict=True))


def test_a_custom_collate_function_sees_the_whole_minibatch():
    sizes = []

    def collate(items):
        sizes.append(len(items))
        return default_collate(items)

    loader = replaying(images(23), with_weights(images(7), 2.0), shuffle=False, collate_fn=collate)
    batches = weighted_epochs(gathering(loader), count=1)
    assert sizes == [len(b[1]) for b in batches]
    assert all(len(b) == 4 and len(b[3]) == len(b[1]) for b in batches)


def with_dict(items):
    x, y, task = default_collate(items)
    return {"x": x, "y": y, "task": task}


def with_tuple(items):
    return tuple(default_collate(items))


@pytest.mark.parametrize("collate", [with_dict, with_tuple])
def test_a_collate_function_may_return_anything(collate):
    def make(memory):
        return replaying(marked([-1.0] * 23), memory, collate_fn=collate)

    memory = marked([float(i) for i in range(7)])
    loader = gathering(make(with_weights(memory, [2.0 * i for i in range(7)])))
    torch.manual_seed(0)
    actual = [(batch, loader.weights) for batch in loader]
    torch.manual_seed(0)
    for (batch, weights), stock in zip(actual, make(memory), strict=True):
        assert type(batch) is type(stock)
        x, y, _ = batch.values() if collate is with_dict else batch
        assert torch.equal(x, stock["x"] if collate is with_dict else stock[0])
        assert weights.tolist() == [1.0 if label < 0 else 2.0 * label for label in y.tolist()]


def test_columns_that_are_no_tensors():
    class Named(Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, i):
            return {"pixels": torch.full((2,), float(i))}, i

    data = AvalancheDataset([Named()])
    loader = ReplayDataLoader(data, with_weights(data, 2.0), batch_size=2, batch_size_mem=1)
    for x, y in gathering(loader):
        assert x["pixels"][:, 0].tolist() == y.tolist()
        assert len(y) == 3


def drawn_by_weight(data):
    sampler = WeightedRandomSampler([float(i % 3) for i in range(len(data))], 40)
    return DataLoader(data, batch_size=6, sampler=sampler)


def by_own_generator(data):
    generator = torch.Generator().manual_seed(4)
    return DataLoader(data, batch_size=6, shuffle=True, generator=generator)


def by_own_batches(data):
    return DataLoader(data, batch_sampler=[[0, 1, 2], [2, 1], [5, 5, 5, 5]])


class Doubled(DataLoader):
    def __iter__(self):
        for x, *others in super().__iter__():
            yield [2 * x, *others]


class Halved(TaskBalancedDataLoader):
    """Every other minibatch, the rows in order, the inputs doubled."""

    def __iter__(self):
        for i, (x, *others) in enumerate(super().__iter__()):
            if i % 2 == 0:
                yield [2 * x, *others]

    def __len__(self):
        return (super().__len__() + 1) // 2

    @staticmethod
    def _create_samplers(datasets, *_):
        return [BatchSampler(SequentialSampler(d), 4, drop_last=False) for d in datasets]


class Handmade(TaskBalancedDataLoader):
    def _make_pytorch_loader(self, datasets, batch_sampler):
        return DataLoader(datasets[0], batch_sampler=[[3, 1], [2]])


class HandmadeWhole(TaskBalancedDataLoader):
    def _get_loader(self):
        return DataLoader(self.datasets[0], batch_sampler=[[3, 1], [2]])


def handmade_list(data):
    return [default_collate([data[i] for i in rows]) for rows in ([0, 3], [2, 2, 1])]


USERS_LOADERS = {
    "sampler": drawn_by_weight,
    "generator": by_own_generator,
    "batch sampler": by_own_batches,
    "subclass of torch's": lambda data: Doubled(data, batch_size=6, shuffle=True),
    "subclass of Avalanche's": lambda data: Halved(data, batch_size=6),
    "loader inside": lambda data: Handmade(data, batch_size=6),
    "loader instead": lambda data: HandmadeWhole(data, batch_size=6),
    "list": handmade_list,
}


@pytest.mark.parametrize("make", USERS_LOADERS.values(), ids=USERS_LOADERS)
def test_a_users_loader_stays_in_force(make):
    """What it gives without weights it gives with them, and every row keeps its weight."""
    data = marked([float(i) for i in range(23)])
    weighted = with_weights(data, [float(i) / 2 for i in range(23)])
    loader = gathering(make(weighted), data=weighted)
    stock = make(data)
    assert len(loader) == len(stock)
    for (x, y, task, weights), expected in zip(weighted_epochs(loader), epochs(stock), strict=True):
        assert all(torch.equal(a, b) for a, b in zip((x, y, task), expected, strict=True))
        assert torch.equal(weights, y / 2)


def test_only_a_stock_loader_is_split_among_ranks():
    data = marked([float(i) for i in range(23)])
    for stock in (DataLoader(data, batch_size=6), DataLoader(data, batch_size=6, shuffle=True)):
        assert loading._split_among_ranks(stock) is not stock
    with_replacement = RandomSampler(data, replacement=True)
    for own in (
        drawn_by_weight(data),
        by_own_generator(data),
        by_own_batches(data),
        Doubled(data, batch_size=6),
        DataLoader(data, batch_size=6, sampler=with_replacement),
        DataLoader(data, batch_size=6, sampler=RandomSampler(data, num_samples=40)),
    ):
        assert loading._split_among_ranks(own) is own


def test_weights_in_a_minibatch_that_somebody_else_makes_must_be_found():
    weighted = with_weights(marked([1.0, 2.0]), 1.0)
    loader = gathering([{"x": torch.ones(2)}], data=weighted)
    with pytest.raises(ValueError, match="list makes minibatches of the type dict"):
        list(loader)


def test_other_loaders_without_weights_come_back_as_they_are():
    batches = [[torch.ones(1), torch.ones(1)]]
    assert gathering(batches) is batches
    assert gathering(batches, data=marked([1.0])) is batches


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
