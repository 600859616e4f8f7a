"""The contact sheet shows every exemplar once, by class, heaviest first."""

import numpy as np
import pytest
import torch
from PIL import Image

from benchmarks.__main__ import main
from benchmarks.commands import show_memory
from benchmarks.report import choice, contact_sheet


def test_rows_are_classes_with_the_heaviest_first(monkeypatch):
    monkeypatch.setattr(contact_sheet, "MOST_COLUMNS", 2)
    rows = contact_sheet.rows_of_classes([1, 0, 1, 1], [0.1, 5.0, 3.0, 2.0])
    assert rows == [(0, [1]), (1, [2, 3]), (1, [0])]
    assert contact_sheet.rows_of_classes([0, 0], None) == [(0, [0, 1])]


@pytest.mark.parametrize("shape", [(1, 4, 4), (3, 4, 4)])
def test_images_are_scaled_for_display(shape):
    image = contact_sheet.displayable(np.random.default_rng(0).normal(size=shape))
    assert image.min() == 0 and image.max() == pytest.approx(1)
    assert image.shape == ((4, 4) if shape[0] == 1 else (4, 4, 3))
    assert contact_sheet.displayable(np.zeros(shape)).max() == 0


def test_digit_images_are_the_original_pixels():
    from benchmarks.data import arrays
    from benchmarks.streams import tabular

    (train, _), _, rows = tabular.standardized(arrays.digits(), tabular.DIGITS_TEST_SHARE)
    images = show_memory.digit_images(train[:5])
    expected = torch.from_numpy(arrays.digits().features[rows[:5]]).reshape(-1, 1, 8, 8)
    torch.testing.assert_close(images.float(), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("method", ["gmc-last-layer", "reservoir"])
def test_sheet_is_written(tmp_path, capsys, method):
    path = tmp_path / "sheet.png"
    arguments = ["digits", "--method", method, "--memory-size", "20", "--output", str(path)]
    assert main(["show-memory", *arguments]) == 0
    assert capsys.readouterr().out.strip() == str(path)
    with Image.open(path) as image:
        assert image.width > 200 and image.height > 500


@pytest.mark.parametrize(
    "arguments",
    [
        ["covertype"],
        ["digits", "--memory-size", "0"],
        ["digits", "--train-fraction", "2"],
        ["digits", "--output", "sheet.xyz"],
    ],
)
def test_bad_options_exit_2_with_one_sentence(arguments, capsys):
    assert main(["show-memory", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_choice_is_drawn_on_a_map_of_the_gradients(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sklearn.manifold.TSNE.fit_transform", lambda self, atoms: atoms[:, :2])
    path = tmp_path / "choice.svg"
    options = ["--train-fraction", "0.2", "--memory-size", "20", "--output", str(path)]
    assert main(["show-choice", *options]) == 0
    assert capsys.readouterr().out.strip() == str(path)
    assert "<svg" in path.read_text()


def test_discs_are_as_large_as_weights_and_labels_count_the_exemplars():
    places, labels = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]]), np.array([0, 1, 1])
    memory = choice.Chosen("GMC", places[:2], labels[:2], np.array([0.5, 1.5]), 0.25)
    figure = choice.draw(places, labels, [memory], ["cat", "dog"])
    (axis,) = figure.axes
    dots, discs = axis.collections
    assert len(dots.get_offsets()) == 3
    assert discs.get_sizes()[0] == 3 * discs.get_sizes()[1]
    assert [text.get_text() for text in axis.texts] == ["cat: 1", "dog: 1"]
    assert "0.25" in axis.get_title()
