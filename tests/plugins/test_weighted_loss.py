"""The weighted loss against its definition, written out by hand."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from avalanche.training.losses import MaskedCrossEntropy
from avalanche.training.plugins import SupervisedPlugin
from hypothesis import given
from hypothesis import strategies as st
from small_streams import FirstComeBuffer, class_incremental, mlp, naive, uneven
from torch import Tensor, nn
from torch.nn import functional as F

from avalanche_gmc.plugins.base import WeightedLossPlugin
from avalanche_gmc.plugins.weighted_loss import (
    check_criterion,
    joint_weights,
    memory_weights,
    weighted_loss,
)

ROWS, CLASSES = 11, 4
CLASS_WEIGHTS = torch.tensor([0.5, 2.0, 1.0, 3.0])

INDEX_CRITERIA = {
    "plain": nn.CrossEntropyLoss(),
    "sum": nn.CrossEntropyLoss(reduction="sum"),
    "class weights": nn.CrossEntropyLoss(weight=CLASS_WEIGHTS),
    "label smoothing": nn.CrossEntropyLoss(label_smoothing=0.2),
    "all of them": nn.CrossEntropyLoss(weight=CLASS_WEIGHTS, label_smoothing=0.2, ignore_index=2),
    "ignored class": nn.CrossEntropyLoss(ignore_index=1),
    "nll": nn.NLLLoss(weight=CLASS_WEIGHTS),
    "margin": nn.MultiMarginLoss(),
    "masked": MaskedCrossEntropy(mask="all"),
    "function": F.cross_entropy,
    "function with options": partial(
        F.cross_entropy, weight=CLASS_WEIGHTS, label_smoothing=0.2, ignore_index=2
    ),
    "function that sums": partial(F.cross_entropy, reduction="sum"),
    "nll function": F.nll_loss,
}
DENSE_CRITERIA = {
    "mse": nn.MSELoss(),
    "bce": nn.BCEWithLogitsLoss(),
    "soft targets": nn.CrossEntropyLoss(weight=CLASS_WEIGHTS),
    "kl batchmean": nn.KLDivLoss(reduction="batchmean"),
    "kl mean": nn.KLDivLoss(),
    "mse function": F.mse_loss,
    "kl function": partial(F.kl_div, reduction="batchmean"),
}


def batch(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    output = torch.randn(ROWS, CLASSES, generator=generator, requires_grad=True)
    target = torch.randint(CLASSES, (ROWS,), generator=generator)
    weights = torch.rand(ROWS, generator=generator)
    weights[3] = 0
    return output, target, weights / weights.mean()


@pytest.mark.parametrize("criterion", INDEX_CRITERIA.values(), ids=INDEX_CRITERIA)
def test_weights_of_one_give_the_criterion_itself(criterion):
    output, target, _ = batch()
    plain = criterion(output, target)
    (expected,) = torch.autograd.grad(plain, output)
    loss = weighted_loss(criterion, output, target, torch.ones(ROWS))
    (actual,) = torch.autograd.grad(loss, output)
    torch.testing.assert_close(loss, plain)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("criterion", DENSE_CRITERIA.values(), ids=DENSE_CRITERIA)
def test_weights_of_one_give_the_criterion_itself_for_dense_targets(criterion):
    output, _, _ = batch()
    target = torch.softmax(torch.randn(ROWS, CLASSES), 1)
    loss = weighted_loss(criterion, output, target, torch.ones(ROWS))
    torch.testing.assert_close(loss, criterion(output, target))


@pytest.mark.parametrize("criterion", INDEX_CRITERIA.values(), ids=INDEX_CRITERIA)
def test_the_loss_is_linear_in_the_weights_with_the_plain_denominator(criterion):
    """The derivative by one weight is the term of that example in the plain loss."""
    output, target, weights = batch()
    output = output.detach()
    weights.requires_grad_()
    (by_weight,) = torch.autograd.grad(weighted_loss(criterion, output, target, weights), weights)
    for row in range(ROWS):
        indicator = torch.zeros(ROWS)
        indicator[row] = 1
        term = weighted_loss(criterion, output, target, indicator)
        torch.testing.assert_close(by_weight[row], term)
    torch.testing.assert_close(by_weight.sum(), criterion(output, target))


def test_a_whole_memory_gives_the_weighted_mean():
    output, target, weights = batch()
    terms = F.cross_entropy(output, target, reduction="none")
    expected = (weights * terms).sum() / weights.sum()
    torch.testing.assert_close(
        weighted_loss(nn.CrossEntropyLoss(), output, target, weights), expected
    )


def test_minibatches_estimate_the_memory_without_bias():
    """The mean over all minibatches of two is the loss of the memory, zero weights or not."""
    output, target, weights = batch()
    criterion = nn.CrossEntropyLoss()
    pairs = torch.combinations(torch.arange(ROWS))
    losses = [weighted_loss(criterion, output[p], target[p], weights[p]) for p in pairs]
    whole = weighted_loss(criterion, output, target, weights)
    torch.testing.assert_close(torch.stack(losses).mean(), whole)


def test_each_position_of_an_image_counts_with_the_weight_of_its_example():
    output = torch.randn(3, CLASSES, 2, 5)
    target = torch.randint(CLASSES, (3, 2, 5))
    weights = torch.tensor([0.0, 1.0, 2.0])
    terms = F.cross_entropy(output, target, reduction="none")
    expected = sum(w * terms[i].sum() for i, w in enumerate(weights)) / 30
    torch.testing.assert_close(
        weighted_loss(nn.CrossEntropyLoss(), output, target, weights), expected
    )


def test_the_criterion_keeps_its_reduction_even_after_an_error():
    criterion = nn.CrossEntropyLoss()
    with pytest.raises(ValueError, match="batch_size"):
        weighted_loss(criterion, torch.randn(3, 2), torch.tensor([0, 1]), torch.ones(3))
    assert criterion.reduction == "mean"


def test_a_criterion_that_reduces_anyway_is_refused():
    class Stubborn(nn.CrossEntropyLoss):
        def forward(self, input: Tensor, target: Tensor) -> Tensor:
            return F.cross_entropy(input, target)

    output, target, weights = batch()
    with pytest.raises(ValueError, match=r"Stubborn gave losses of shape \(\) for 11 weights"):
        weighted_loss(Stubborn(), output, target, weights)


@pytest.mark.parametrize(
    "criterion", [nn.CrossEntropyLoss(reduction="none"), lambda output, target: output.sum(), print]
)
def test_a_criterion_without_a_usable_reduction_is_refused(criterion):
    with pytest.raises(ValueError, match="use one with a `reduction` of 'mean' or 'sum'"):
        check_criterion(criterion)


def buffer_with(weights, size: int | None = None):
    memory = FirstComeBuffer(len(weights), lambda i: weights[i])
    memory.buffer = list(range(len(weights) if size is None else size))
    return memory


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30).filter(lambda w: max(w) > 1e-6))
def test_memory_weights_have_mean_one_and_keep_their_ratios(weights):
    relative = memory_weights(buffer_with(weights))
    if relative is None:
        relative = torch.ones(len(weights))
    torch.testing.assert_close(relative.mean(), torch.tensor(1.0))
    expected = torch.tensor(weights, dtype=torch.float64) * len(weights) / sum(weights)
    torch.testing.assert_close(relative, expected.float())


@given(st.floats(1e-6, 1e6), st.integers(1, 500))
def test_equal_weights_are_no_weights(weight, size):
    assert memory_weights(buffer_with([weight] * size)) is None


def test_a_policy_without_weights_has_none():
    assert memory_weights(FirstComeBuffer(3)) is None


@pytest.mark.parametrize(
    ("weights", "size", "message"),
    [
        ([1.0, -0.5, -2.0], 3, "2 negative weights of 3, which make a loss unbounded below"),
        ([1.0, float("nan")], 2, "not finite"),
        ([0.0, 0.0], 2, "all weights of FirstComeBuffer are 0"),
    ],
)
def test_useless_weights_are_refused(weights, size, message):
    with pytest.raises(ValueError, match=message):
        memory_weights(buffer_with(weights, size))


def test_weights_that_do_not_fit_the_buffer_are_refused():
    memory = FirstComeBuffer(3)
    memory.buffer = [0, 1, 2]
    memory.__class__ = type("Odd", (FirstComeBuffer,), {"weights": torch.ones(2)})
    with pytest.raises(ValueError, match=r"Odd has weights of shape \(2,\) for 3 exemplars"):
        memory_weights(memory)


@given(st.integers(1, 20), st.integers(1, 20), st.floats(0, 1))
def test_joint_weights_share_the_loss(num_current, num_memory, share):
    weights = joint_weights(num_current, torch.ones(num_memory), share)
    rows = num_current + num_memory
    torch.testing.assert_close(weights[num_current:].sum() / rows, torch.tensor(share))
    torch.testing.assert_close(weights[:num_current].sum() / rows, torch.tensor(1 - share))


def test_without_a_share_current_rows_count_one():
    assert joint_weights(2, torch.tensor([3.0, 0.0]), None).tolist() == [1, 1, 3, 0]


class Batches(list):
    """Minibatches with the same weights by position."""

    weights = None

    def __iter__(self):
        for batch in super().__iter__():
            self.weights = torch.tensor([uneven(i) for i in range(len(batch[1]))])
            yield batch


class Probe(WeightedLossPlugin):
    """Weights for Naive itself, to look at the hooks alone."""

    def __init__(self):
        super().__init__(1, FirstComeBuffer(1))

    def before_training_exp(self, strategy, **kwargs):
        self._weighted = True
        strategy.dataloader = Batches(strategy.dataloader)


def test_everybody_else_sees_the_stock_minibatch_and_the_plain_criterion():
    seen = []

    class Witness(SupervisedPlugin):
        def before_forward(self, strategy, **kwargs):
            seen.append(len(strategy.mbatch))

        def before_backward(self, strategy, **kwargs):
            seen.append(strategy._criterion)

    criterion = nn.CrossEntropyLoss()
    strategy = naive(mlp(), Witness(), Probe(), Witness(), criterion=criterion, train_epochs=1)
    strategy.train(class_incremental()[0])
    assert set(seen) == {3, criterion}


def test_a_strategy_that_ignores_its_criterion_is_told():
    strategy = naive(mlp(), Probe())
    strategy.criterion = lambda: strategy.mb_output.sum()
    plain = strategy._criterion
    with pytest.raises(ValueError, match="Naive computes its loss without its criterion"):
        strategy.train(class_incremental()[0])
    assert strategy._criterion is plain


def test_an_interrupted_iteration_does_not_weight_an_evaluation():
    class Failing(SupervisedPlugin):
        def after_forward(self, strategy, **kwargs):
            raise KeyboardInterrupt

    strategy = naive(mlp(), Probe(), Failing())
    plain = strategy._criterion
    with pytest.raises(KeyboardInterrupt):
        strategy.train(class_incremental()[0])
    strategy.eval(class_incremental()[1:2])
    assert strategy._criterion is plain


def test_an_interrupted_iteration_leaves_no_trace():
    strategy = naive(mlp(), Probe())
    plain = strategy._criterion
    compute, strategy.criterion = strategy.criterion, lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        strategy.train(class_incremental()[0])
    strategy.criterion = compute
    strategy.train(class_incremental()[0])
    assert strategy._criterion is plain
