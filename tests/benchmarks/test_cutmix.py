"""CutMix against a slow version, image by image, and its loss with and without weights."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from avalanche_gmc.plugins.weighted_loss import weighted_loss
from benchmarks.grid.cutmix import CutMix, box, shares


def minibatch(count=6, weights=None, seed=0):
    torch.manual_seed(seed)
    images, labels = torch.randn(count, 3, 8, 10), torch.arange(count) % 4
    loader, model = SimpleNamespace(weights=weights), nn.Linear(2, 4)
    strategy = SimpleNamespace(mbatch=[images, labels], dataloader=loader, model=model)
    strategy.mb_x, strategy.mb_y = images, labels
    return strategy


def pasted_from(images, mixed):
    """For each image which other one its box is from, and the rows and columns of the box."""
    changed = (mixed != images).any(1)
    rows, columns = changed.any(0).any(1).nonzero()[:, 0], changed.any(0).any(0).nonzero()[:, 0]
    box_rows, box_columns = slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
    boxes = [part[:, :, box_rows, box_columns] for part in (images, mixed)]
    owners = []
    for pasted in boxes[1]:
        owners.append(next(i for i, own in enumerate(boxes[0]) if torch.equal(own, pasted)))
    area = len(rows) * len(columns) / images[0, 0].numel()
    return owners, area, (box_rows, box_columns)


@pytest.mark.parametrize("seed", range(5))
def test_a_box_of_every_image_is_from_another_one_and_labels_are_shared_by_area(seed):
    strategy = minibatch(seed=seed)
    images, labels = strategy.mbatch
    CutMix(probability=1.0).before_forward(strategy)
    mixed, targets = strategy.mbatch
    if torch.equal(mixed, images):  # a box without area
        assert torch.equal(targets, nn.functional.one_hot(labels, 4).float())
        return
    owners, area, (rows, columns) = pasted_from(images, mixed)
    assert sorted(owners) == list(range(6))
    for number, owner in enumerate(owners):
        expected = images[number].clone()
        for row in range(rows.start, rows.stop):
            for column in range(columns.start, columns.stop):
                expected[:, row, column] = images[owner][:, row, column]
        assert torch.equal(mixed[number], expected)
        wanted = torch.zeros(4)
        wanted[labels[number]] += 1 - area
        wanted[labels[owner]] += area
        torch.testing.assert_close(targets[number], wanted)


def test_a_box_has_the_area_that_is_asked_for_unless_an_edge_cuts_it():
    areas = [box(32, 32, 0.75) for _ in range(300)]
    for top, bottom, left, right in areas:
        assert 0 <= top < bottom <= 32 and 0 <= left < right <= 32
        assert (bottom - top) * (right - left) <= 16 * 16
    assert any((b - t, r - left) == (16, 16) for t, b, left, r in areas)


def test_about_half_of_the_minibatches_are_mixed():
    torch.manual_seed(0)
    cutmix, mixed = CutMix(), 0
    for seed in range(200):
        strategy = minibatch(seed=seed)
        torch.manual_seed(1000 + seed)
        cutmix.before_forward(strategy)
        mixed += strategy.mbatch[1].is_floating_point()
    assert 70 < mixed < 130


@pytest.mark.parametrize("weights", [None, torch.tensor([0.5, 2.0, 1.0, 0.5])])
def test_each_label_counts_with_the_weight_of_its_exemplar(weights):
    labels, order = torch.tensor([0, 1, 2, 0]), torch.tensor([2, 0, 1, 3])
    outputs = torch.randn(4, 3)
    plain = torch.ones(4) if weights is None else weights
    loss = nn.functional.cross_entropy
    expected = sum(
        0.7 * plain[i] * loss(outputs[i], labels[i])
        + 0.3 * plain[order[i]] * loss(outputs[i], labels[order[i]])
        for i in range(4)
    )
    targets = shares(labels, order, 0.3, 3, weights)
    found = weighted_loss(nn.CrossEntropyLoss(), outputs, targets, plain)
    assert float(found) == pytest.approx(float(expected) / 4, rel=1e-5)


def test_weights_of_zero_stay_without_a_loss():
    weights, order = torch.tensor([0.0, 1.0]), torch.tensor([1, 0])
    targets = shares(torch.tensor([0, 1]), order, 0.25, 2, weights)
    assert targets.isfinite().all()
    assert targets.tolist() == [[0.75, 0.0], [0.0, 0.75]]
