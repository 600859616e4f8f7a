"""How hard exemplars are, by a forest that has not seen them."""

import numpy as np

from benchmarks.__main__ import main
from benchmarks.commands.hardness import hardness


def test_wrong_labels_are_hard_and_the_middle_of_a_class_is_not():
    generator = np.random.RandomState(0)
    labels = np.repeat([3, 7], 100)
    inputs = generator.randn(200, 2) + 4 * (labels == 7)[:, None]
    inputs[:2], labels[:2] = [[0, 0], [-1, -1]], 7  # wrong
    order = np.argsort(inputs[:, 0])  # sorted, as streams are
    found = hardness(inputs[order], labels[order])
    wrong = np.isin(order, [0, 1])
    assert found.shape == (200,)
    assert found[wrong].min() > 0.8 and found[~wrong].mean() < 0.1


def test_too_little_of_a_stream_is_refused(capsys):
    assert main(["hardness", "--streams", "digits", "--train-fraction", "0.01"]) == 2
    assert "take more of the stream" in capsys.readouterr().err


def test_a_memory_of_everything_is_as_hard_as_the_stream(capsys):
    options = [
        "--streams",
        "digits",
        "noisy-digits",
        "--train-fraction",
        "0.2",
        "--seeds",
        "0",
        "1",
    ]
    sizes = ["--methods", "reservoir", "gmc", "--memory-sizes", "20", "1000"]
    assert main(["hardness", *options, *sizes]) == 0
    _, _, whole, reservoir, gmc = (
        [cell.strip() for cell in line.split("|")[2:-1]]
        for line in capsys.readouterr().out.splitlines()
    )
    assert reservoir[1] == gmc[1] == whole[1] and reservoir[3] == gmc[3] == whole[3]
    assert whole[0] == whole[1] and reservoir[0] != whole[0] and gmc[0] != whole[0]
    assert float(whole[2]) > float(whole[0])
