"""Our plugins beside other plugins, in users' strategies, and what is said before training."""

from __future__ import annotations

import warnings

import pytest
import torch
from avalanche.benchmarks.utils.data_attribute import DataAttribute
from avalanche.training import Naive
from avalanche.training.plugins import (
    EWCPlugin,
    GDumbPlugin,
    LwFPlugin,
    ReplayPlugin,
    SupervisedPlugin,
)
from avalanche.training.storage_policy import ReservoirSamplingBuffer
from small_streams import (
    FEATURES,
    FirstComeBuffer,
    Recorder,
    class_incremental,
    dataset,
    mlp,
    naive,
    parameters,
    run,
    stream_of,
    task_free,
    train,
    uneven,
)
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, WeightedRandomSampler, default_collate

from avalanche_gmc import (
    CoresetGDumbPlugin,
    CoresetReplayPlugin,
    GradientMatchingBuffer,
    LastLayerEmbedding,
)


def replay(weigh=uneven):
    return CoresetReplayPlugin(12, storage_policy=FirstComeBuffer(12, weigh))


def gdumb(weigh=uneven):
    return CoresetGDumbPlugin(12, FirstComeBuffer(12, weigh))


PAIRS = [
    (replay, lambda: ReplayPlugin(12)),
    (replay, replay),
    (gdumb, lambda: GDumbPlugin(12)),
    (gdumb, gdumb),
    (gdumb, replay),
    (gdumb, lambda: ReplayPlugin(12)),
    (lambda: replay(None), lambda: ReplayPlugin(12)),
]


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("pair", PAIRS)
def test_two_plugins_that_choose_the_data_are_refused_before_training(pair, swapped):
    plugins = [make() for make in pair]
    strategy = naive(mlp(), *(reversed(plugins) if swapped else plugins))
    before = parameters(strategy.model)
    with pytest.raises(ValueError, match=r"each would replace the data .* keep one of the two"):
        strategy.train(class_incremental()[0])
    assert torch.equal(parameters(strategy.model), before)


@pytest.mark.parametrize("plugin", [replay, gdumb])
@pytest.mark.parametrize("other", [lambda: LwFPlugin(), lambda: EWCPlugin(0.4)], ids=["LwF", "EWC"])
def test_penalties_compose_in_any_order(other, plugin):
    """Whoever comes first, the penalty is there and the weights are."""
    results = []
    for swapped in (False, True):
        torch.manual_seed(0)
        plugins = [other(), plugin()]
        strategy = naive(mlp(), *(reversed(plugins) if swapped else plugins))
        results.append(parameters(train(strategy, class_incremental())))
    torch.testing.assert_close(*results)
    plain = run(plugin(), class_incremental(), seed=0)
    assert not torch.allclose(results[0], plain, atol=1e-4)


class OtherData(SupervisedPlugin):
    """A plugin that nobody knows, with data of its own."""

    def after_train_dataset_adaptation(self, strategy, **kwargs):
        strategy.adapted_dataset = strategy.experience.dataset

    def before_training_exp(self, strategy, **kwargs):
        strategy.dataloader = DataLoader(strategy.experience.dataset, batch_size=5)


def test_other_data_in_the_place_of_the_memory_are_noticed():
    with pytest.raises(ValueError, match="replaced the data that CoresetGDumbPlugin chose"):
        naive(mlp(), gdumb(), OtherData()).train(class_incremental()[0])
    with pytest.raises(ValueError, match="put in the place of the loader of CoresetReplayPlugin"):
        train(naive(mlp(), replay(), OtherData()), class_incremental())


@pytest.mark.parametrize("plugin", [replay, gdumb])
def test_a_further_data_attribute_is_not_taken_for_weights(plugin):
    def stream(*attributes):
        parts = [dataset([2 * t, 2 * t + 1], 20, seed=t) for t in range(3)]
        for name in attributes:
            values = DataAttribute([100.0 * i for i in range(20)], name, use_in_getitem=True)
            parts = [part.update_data_attribute(name, values) for part in parts]
            for part in parts:
                part._data_attributes.move_to_end("targets_task_labels")
        return stream_of(*parts)

    results = []
    for attributes in ((), ("age",)):
        torch.manual_seed(0)
        results.append(parameters(train(naive(mlp(), plugin()), stream(*attributes))))
    assert torch.equal(*results)


class Favouring(Naive):
    """Draws rows with chances of its own."""

    def make_train_dataloader(self, **kwargs):
        chances = [float(i < 3) for i in range(len(self.adapted_dataset))]
        sampler = WeightedRandomSampler(chances, 30)
        self.dataloader = DataLoader(self.adapted_dataset, batch_size=6, sampler=sampler)


@pytest.mark.parametrize("weigh", [None, uneven])
def test_gdumb_keeps_the_sampler_of_a_strategy(weigh):
    model, seen = mlp(), Recorder("before_forward", lambda s: s.mb_x.tolist())
    strategy = Favouring(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        plugins=[gdumb(weigh), seen],
        evaluator=None,
    )
    experience = class_incremental()[0]
    strategy.train(experience)
    rows = [tuple(row) for rows in seen.values for row in rows]
    assert len(rows) == 30
    favoured = [experience.dataset[i][0].tolist() for i in range(3)]
    assert set(rows) == {tuple(row) for row in favoured}


class OfDicts(Naive):
    """A strategy whose minibatches are dicts, as tokenizers make them."""

    def _unpack_minibatch(self):
        self.mbatch = {name: value.to(self.device) for name, value in self.mbatch.items()}

    mb_x = property(lambda self: self.mbatch["x"])
    mb_y = property(lambda self: self.mbatch["y"])
    mb_task_id = property(lambda self: self.mbatch["task"])


def as_dict(items):
    x, y, task = default_collate(items)
    return {"x": x, "y": y, "task": task}


@pytest.mark.parametrize("plugin", [replay, gdumb])
def test_minibatches_may_be_dicts(plugin):
    def trained(strategy_class, collate):
        torch.manual_seed(0)
        model = mlp()
        strategy = strategy_class(
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            plugins=[plugin()],
            train_mb_size=7,
            evaluator=None,
        )
        parts = [dataset([2 * t, 2 * t + 1], 20, seed=t) for t in range(3)]
        for part in parts:
            part.collate_fn = collate
        return parameters(train(strategy, stream_of(*parts)))

    assert torch.equal(trained(OfDicts, as_dict), trained(Naive, default_collate))


class Impossible(nn.Module):
    """A parameter that only the constructor initialises."""

    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.randn(FEATURES))
        self.body = mlp()

    def forward(self, x):
        return self.body(x + self.shift)


def unweightable(output, target):
    return F.cross_entropy(output, target)


IMPOSSIBLE = {
    "a model that cannot be drawn again": (
        {"model": Impossible},
        lambda: CoresetReplayPlugin(12),
        "shift",
    ),
    "a criterion that cannot be weighted": (
        {"criterion": unweightable},
        lambda: replay(None),
        "weights need one loss per example",
    ),
    "the same under GDumb, while all weights are 1": (
        {"criterion": unweightable},
        lambda: gdumb(lambda i: 1.0),
        "weights need one loss per example",
    ),
    "an embedding that does not fit the data": (
        {},
        lambda: CoresetReplayPlugin(
            12,
            storage_policy=GradientMatchingBuffer(12, LastLayerEmbedding(mlp(classes=1))),
        ),
        "out of range",
    ),
}


@pytest.mark.parametrize(("options", "plugin", "message"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_cannot_work_is_said_before_the_first_training(options, plugin, message):
    options = dict(options)
    model = options.pop("model", mlp)()
    strategy = naive(model, plugin(), **options)
    before = parameters(model)
    with pytest.raises(ValueError, match=message):
        strategy.train(class_incremental()[0])
    assert torch.equal(parameters(model), before)
    assert strategy.clock.train_iterations == 0


def test_task_balance_without_task_labels_is_refused_before_training():
    plugin = CoresetReplayPlugin(
        12, storage_policy=FirstComeBuffer(12), task_balanced_dataloader=True
    )
    strategy = naive(mlp(), plugin)
    experience = task_free()[0]
    del experience.dataset._data_attributes["targets_task_labels"]
    with pytest.raises(ValueError, match="needs a stream with task labels"):
        strategy.train(experience)
    assert strategy.clock.train_iterations == 0


def test_the_check_before_training_changes_nothing():
    results = []
    for rehearsed in (False, True):
        torch.manual_seed(0)
        plugin = CoresetReplayPlugin(12)
        plugin._rehearsed = not rehearsed
        model = train(naive(mlp(middle=nn.BatchNorm1d(8)), plugin), class_incremental())
        results += [parameters(model), plugin.storage_policy.target]
    assert torch.equal(results[0], results[2])
    assert torch.equal(results[1], results[3])


def unread(plugin):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(naive(mlp(), plugin), class_incremental())
    return [str(w.message) for w in caught if "ignores the weights" in str(w.message)]


def test_a_stock_plugin_that_ignores_weights_is_named_once():
    (message,) = unread(ReplayPlugin(12, storage_policy=GradientMatchingBuffer(12)))
    assert message.startswith("ReplayPlugin ignores the weights of the GradientMatchingBuffer")
    assert "avalanche_gmc.CoresetReplayPlugin(mem_size=12, storage_policy=...)" in message
    stock = GDumbPlugin(12)
    stock.storage_policy = GradientMatchingBuffer(12)
    (message,) = unread(stock)
    assert "avalanche_gmc.CoresetGDumbPlugin(mem_size=12" in message


@pytest.mark.parametrize(
    "plugin",
    [
        lambda: CoresetReplayPlugin(12),
        lambda: CoresetGDumbPlugin(12),
        lambda: ReplayPlugin(12, storage_policy=ReservoirSamplingBuffer(12)),
    ],
)
def test_who_reads_the_weights_or_has_none_is_not_told(plugin):
    assert unread(plugin()) == []
