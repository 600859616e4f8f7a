"""One loss value per example, whatever the criterion, against the criterion itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from avalanche_gmc.embedding.losses import ExampleLoss

LABELS = torch.tensor([2, 0, 1, 1, 2])
NUMBERS = torch.randn(5, 3, generator=torch.Generator().manual_seed(1)) * 2
SEVERAL = (NUMBERS > 0).long()
WEIGHTS = torch.tensor([1.0, 5.0, 0.5])
CRITERIA: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Tensor]] = {
    "cross entropy": (nn.CrossEntropyLoss(), LABELS),
    "smoothed": (nn.CrossEntropyLoss(label_smoothing=0.2), LABELS),
    "soft labels": (nn.CrossEntropyLoss(), NUMBERS.softmax(1)),
    "function": (F.cross_entropy, LABELS),
    "function, soft labels": (F.cross_entropy, NUMBERS.softmax(1)),
    "function with options": (partial(F.cross_entropy, label_smoothing=0.3), LABELS),
    "squared error": (nn.MSELoss(), NUMBERS),
    "squared error, summed": (nn.MSELoss(reduction="sum"), NUMBERS),
    "squared error of integers": (nn.MSELoss(), SEVERAL),
    "absolute error": (nn.L1Loss(), NUMBERS),
    "huber": (nn.HuberLoss(delta=0.5), NUMBERS),
    "smooth absolute error": (F.smooth_l1_loss, NUMBERS),
    "function, summed": (partial(F.mse_loss, reduction="sum"), NUMBERS),
    "several labels": (nn.BCEWithLogitsLoss(pos_weight=WEIGHTS), SEVERAL),
    "several labels, function": (F.binary_cross_entropy_with_logits, SEVERAL.float()),
}


def outputs(columns: int = 3) -> Tensor:
    return torch.randn(5, columns, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", list(CRITERIA))
def test_each_example_has_the_loss_and_gradient_that_it_has_alone(name: str) -> None:
    criterion, targets = CRITERIA[name]
    loss, leaf = ExampleLoss(criterion), outputs().requires_grad_()
    wanted = targets.float() if "several" in name or "integers" in name else targets
    alone = torch.stack([criterion(leaf[i : i + 1], wanted[i : i + 1]) for i in range(5)])
    torch.testing.assert_close(loss(leaf, targets), alone)
    exact = torch.autograd.grad(alone.sum(), leaf)[0]
    torch.testing.assert_close(loss.output_gradient(outputs(), targets), exact)


def test_class_weights_multiply_an_examples_loss() -> None:
    weighted = ExampleLoss(nn.CrossEntropyLoss(weight=WEIGHTS))
    plain = ExampleLoss()
    torch.testing.assert_close(
        weighted.output_gradient(outputs(), LABELS),
        plain.output_gradient(outputs(), LABELS) * WEIGHTS[LABELS][:, None],
    )


@pytest.mark.parametrize("shape", [(5,), (5, 1)])
@pytest.mark.parametrize("columns", [(5,), (5, 1)])
def test_one_output_and_one_target_meet_in_any_shape(
    shape: tuple[int, ...], columns: tuple[int, ...]
) -> None:
    found = ExampleLoss(nn.MSELoss())(outputs(1).reshape(columns), NUMBERS[:, 0].reshape(shape))
    torch.testing.assert_close(found, (outputs(1)[:, 0] - NUMBERS[:, 0]).square())


def test_one_class_label_is_no_target_for_several_outputs() -> None:
    with pytest.raises(ValueError, match=r"outputs of the shape \(3,\).*targets of the shape \(\)"):
        ExampleLoss(nn.MSELoss())(outputs(), LABELS)


def test_the_callers_criterion_is_left_alone() -> None:
    criterion = nn.MSELoss()
    ExampleLoss(criterion)(outputs(), NUMBERS)
    assert criterion.reduction == "mean"
