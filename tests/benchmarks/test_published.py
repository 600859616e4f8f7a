"""GDumb's own training, and the streams that go beyond the paper's."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.data import arrays
from benchmarks.data.arrays import Images
from benchmarks.grid import runner
from benchmarks.grid.cells import make_cells, make_groups
from benchmarks.grid.cutmix import CutMix
from benchmarks.grid.experiments import EXPERIMENTS
from benchmarks.grid.published import (
    ClippedGradients,
    MirroredImages,
    ShiftedImages,
    gdumb_training,
    mirrored,
    shifted,
)
from benchmarks.grid.rows import ResultsFile
from benchmarks.report import tables
from benchmarks.streams import images
from benchmarks.streams.assembly import stacked
from benchmarks.streams.opening import open_stream


def test_images_are_shifted_by_up_to_four_pixels_each_for_itself():
    pixels = torch.rand(200, 2, 9, 7) + 1
    moved, found = shifted(pixels), set()
    assert moved.shape == pixels.shape
    framed = np.pad(
        pixels.numpy(), ((0, 0), (0, 0), (4, 4), (4, 4)), constant_values=float(pixels.min())
    )
    for image, after in zip(framed, moved.numpy(), strict=True):
        crops = {(i, j): image[:, i : i + 9, j : j + 7] for i in range(9) for j in range(9)}
        found.add(next(place for place, crop in crops.items() if np.array_equal(crop, after)))
    assert len(found) > 60 and np.min(list(found)) == 0 and np.max(list(found)) == 8


def test_the_rate_restarts_in_periods_that_double():
    training = gdumb_training(nn.Linear(2, 2), 0.05)
    optimizer, schedule = training["optimizer"], training["plugins"][0].scheduler
    rates = []
    for _ in range(127):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert [i for i, rate in enumerate(rates) if rate == 0.05] == [0, 1, 3, 7, 15, 31, 63]
    period = 0.0005 + 0.5 * 0.0495 * (1 + np.cos(np.pi * np.arange(64) / 64))
    assert rates[63:] == pytest.approx(period)
    assert optimizer.defaults["momentum"] == 0.9 and optimizer.defaults["weight_decay"] == 1e-6


def test_gradients_are_clipped():
    model = nn.Linear(2, 2, bias=False)
    model.weight.grad = torch.full((2, 2), 100.0)
    ClippedGradients().before_update(type("Strategy", (), {"model": model}))
    assert float(model.weight.grad.norm()) == pytest.approx(10.0)


def test_methods_run_and_stand_beside_gdumbs_figures(mnist, tmp_path):
    experiment = EXPERIMENTS["gdumb-published"]
    options = {"epochs": 3, "train_fraction": 0.1}
    grid = (["split-mnist", "split-mnist-400"], experiment.methods, [20], [0])
    for group in make_groups(make_cells("gdumb-published", *grid, **options)):
        assert runner.run_group(group, tmp_path, None)
    rows = ResultsFile(tmp_path / "gdumb-published.csv").rows()
    assert len(rows) == 6 and {row["model"] for row in rows} == {"mlp-100", "mlp-400"}
    assert {(row["batch_size"], row["learning_rate"]) for row in rows} == {("16", "0.05")}
    assert "0.891 ± 0.004" in tables.markdown("gdumb-published", rows)


@pytest.fixture
def cifar10(monkeypatch):
    """Random images in place of CIFAR-10."""
    draw = np.random.default_rng(0)

    def part(count):
        pixels = draw.integers(0, 256, size=(count, 3, 32, 32), dtype=np.uint8)
        return pixels, np.arange(count) % 10

    made = Images(part(60), part(20))
    monkeypatch.setattr(arrays, "cifar10", lambda root: made)
    open_stream.cache_clear()
    yield made
    open_stream.cache_clear()


def test_cifar10_is_trained_as_gdumbs_authors_do(cifar10, tmp_path):
    what = ["split-cifar10-gdumb"], ["gmc", "class-balanced"], [20], [0]
    (whole, *_) = make_cells("gdumb-published", *what)
    assert (whole.epochs, whole.batch_size, whole.model) == (255, 16, "small-resnet18")
    for group in make_groups(make_cells("gdumb-published", *what, epochs=1)):
        assert runner.run_group(group, tmp_path, None)
    assert len(ResultsFile(tmp_path / "gdumb-published.csv").rows()) == 2
    plugins = gdumb_training(nn.Linear(2, 2), 0.05, "cifar10")["plugins"]
    kinds = [type(plugin) for plugin in plugins]
    assert kinds[1:4] == [ShiftedImages, MirroredImages, CutMix]


def test_the_frame_of_coloured_images_is_black(cifar10):
    black = images.black(images.CIFAR10_PIXELS)
    dark = images.normalized(np.zeros((1, 3, 2, 2), dtype=np.uint8), images.CIFAR10_PIXELS)
    torch.testing.assert_close(dark[0, :, 0, 0], black)
    strategy = SimpleNamespace(mb_x=torch.ones(50, 3, 6, 6), mbatch=[None])
    ShiftedImages(black).before_forward(strategy)
    moved = strategy.mbatch[0]
    assert moved.shape == (50, 3, 6, 6)
    for channel in range(3):
        values = moved[:, channel].flatten()
        assert values.isclose(black[channel]).logical_or(values.isclose(torch.ones(()))).all()
        assert values.isclose(black[channel]).any()


def test_half_of_the_images_are_mirrored():
    pixels = torch.randn(100, 3, 4, 5)
    found = mirrored(pixels)
    swapped = [torch.equal(a, b.flip(2)) for a, b in zip(found, pixels, strict=True)]
    kept = [torch.equal(a, b) for a, b in zip(found, pixels, strict=True)]
    assert all(a != b for a, b in zip(swapped, kept, strict=True)) and 25 < sum(swapped) < 75


def test_split_mnist_comes_in_an_order_of_its_own_for_each_seed(mnist):
    first, other = (images.split_mnist(seed=seed).train_stream for seed in (0, 1))
    one, two = (stacked([stream[0]])[0].flatten(1) for stream in (first, other))
    assert not torch.equal(one, two)
    assert sorted(map(tuple, one[:, :2].tolist())) == sorted(map(tuple, two[:, :2].tolist()))


@pytest.mark.parametrize("name", ["noisy-digits", "confused-digits"])
def test_a_fifth_of_the_labels_is_wrong_in_training_and_none_in_the_test(name):
    noisy, clean = open_stream(name, seed=3), open_stream("digits")
    inputs, labels = stacked(noisy.benchmark.train_stream)
    same, truth = stacked(clean.benchmark.train_stream)
    assert torch.equal(inputs, same) and torch.equal(noisy.test_labels, clean.test_labels)
    wrong = labels != truth
    assert 0.17 < wrong.float().mean() < 0.23
    assert noisy.share_of_wrong_labels(inputs) == pytest.approx(float(wrong.float().mean()))
    assert noisy.share_of_wrong_labels(inputs[wrong]) == 1
    assert noisy.share_of_wrong_labels(inputs[~wrong]) == 0
    assert noisy.share_of_wrong_labels(inputs, 1.0 + 3 * wrong) == pytest.approx(
        4 * wrong.sum().item() / (len(wrong) + 3 * wrong.sum().item())
    )
    assert clean.share_of_wrong_labels(inputs) is None
    assert len(set(labels[wrong].tolist())) == 10
    within = bool((labels // 2 == truth // 2).all())
    assert within == (name == "confused-digits")
    other = stacked(open_stream(name, seed=4).benchmark.train_stream)[1]
    assert not torch.equal(labels, other)


def test_rows_tell_the_share_of_wrong_labels_in_the_memory(tmp_path):
    options = {"epochs": 1, "train_fraction": 0.5}
    cells = make_cells("label-noise", ["noisy-digits"], ["reservoir"], [100, 629], [0], **options)
    weighted = make_cells("label-noise", ["noisy-digits"], ["gmc"], [100], [0], **options)
    for group in make_groups(cells + weighted):
        assert runner.run_group(group, tmp_path, None)
    part, everything, matched = ResultsFile(tmp_path / "label-noise.csv").rows()
    assert part["wrong_weight"] == ""
    assert 0 < float(matched["wrong_weight"]) < float(matched["wrong_labels"]) < 0.5
    assert 0 < float(part["wrong_labels"]) < 0.5
    stream = runner.open_for(cells[0], None)
    inputs = stacked(stream.benchmark.train_stream)[0]
    assert float(everything["wrong_labels"]) == pytest.approx(
        stream.share_of_wrong_labels(inputs), abs=1e-5
    )
