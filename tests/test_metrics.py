"""Metrics of memories, read back from Avalanche's loggers."""

import csv
import io
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from avalanche.benchmarks.utils import _make_taskaware_classification_dataset
from avalanche.evaluation.metrics import loss_metrics
from avalanche.logging import CSVLogger, InteractiveLogger, TensorboardLogger, TextLogger
from avalanche.training import ER_ACE
from avalanche.training.plugins import EvaluationPlugin, GDumbPlugin, ReplayPlugin
from avalanche.training.storage_policy import ReservoirSamplingBuffer
from PIL import Image
from small_streams import class_incremental, mlp, naive, online, task_free

from avalanche_gmc.buffers import GradientMatchingBuffer, SlidingWindowBuffer
from avalanche_gmc.metrics import coreset_metrics
from avalanche_gmc.plugins import CoresetReplayPlugin


def train(experiences, *plugins, metrics=None, loggers=()):
    evaluator = EvaluationPlugin(
        *(coreset_metrics() if metrics is None else metrics), loggers=list(loggers)
    )
    strategy = naive(mlp(), *plugins, evaluator=evaluator, train_epochs=1)
    for exp in experiences:
        strategy.train(exp)
    return evaluator.get_all_metrics()


def last(metrics, prefix):
    """The last value whose name starts with `prefix` and a slash."""
    (values,) = (values for name, (_, values) in metrics.items() if name.startswith(f"{prefix}/"))
    return values[-1]


def test_values_are_those_of_the_memory_after_each_experience():
    buffer = GradientMatchingBuffer(12)
    metrics = train(class_incremental(), ReplayPlugin(12, storage_policy=buffer))
    steps, sizes = metrics["Memory_Size/train_phase/train_stream"]
    assert sizes == [12, 12, 12]
    assert steps == sorted(set(steps))
    assert last(metrics, "Memory_Residual") == buffer.residual_norm > 0
    weights = buffer.weights.double()
    effective = float(weights.sum() ** 2 / (weights**2).sum())
    assert last(metrics, "Memory_EffectiveSize") == pytest.approx(effective)
    counts = {label: last(metrics, f"Memory_Class{label:03}") for label in buffer.class_counts}
    assert counts == buffer.class_counts
    assert sum(counts.values()) == 12


@pytest.mark.parametrize("stream", [online, task_free])
def test_other_streams(stream):
    buffer = GradientMatchingBuffer(12)
    metrics = train(stream(), ReplayPlugin(12, storage_policy=buffer))
    assert last(metrics, "Memory_Residual") == buffer.residual_norm


def test_memories_without_weights_and_residual():
    plugin = GDumbPlugin(10)
    plugin.storage_policy = ReservoirSamplingBuffer(10)
    metrics = train(class_incremental(), plugin)
    assert last(metrics, "Memory_Size") == 10
    assert last(metrics, "Memory_EffectiveSize") == 10
    assert not any("Residual" in name for name in metrics)


def test_a_class_that_left_shows_as_zero():
    plugin = ReplayPlugin(5, storage_policy=SlidingWindowBuffer(5))
    metrics = train(class_incremental(), plugin)
    assert metrics["Memory_Class000/train_phase/train_stream"][1][1:] == [0, 0]
    assert last(metrics, "Memory_Class005") > 0


def test_several_memories():
    one, two = SlidingWindowBuffer(5), SlidingWindowBuffer(7)
    plugins = [ReplayPlugin(5, storage_policy=one), ReplayPlugin(7, storage_policy=two)]
    metrics = train(class_incremental(), *plugins, metrics=[*coreset_metrics(), loss_metrics()])
    assert last(metrics, "Memory1_Size") == 5
    assert last(metrics, "Memory2_Size") == 7


def test_the_memory_of_a_strategy():
    model = mlp()
    strategy = ER_ACE(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        mem_size=9,
        batch_size_mem=5,
        train_mb_size=7,
        evaluator=EvaluationPlugin(*coreset_metrics(), loggers=[]),
    )
    strategy.storage_policy = GradientMatchingBuffer(9)
    for exp in class_incremental():
        strategy.train(exp)
    assert last(strategy.evaluator.get_all_metrics(), "Memory_Size") == 9


def test_no_memory_no_metrics():
    assert train(class_incremental()) == {}


def printed_lines(text, prefix):
    """The lines that start like this, and between which messages of the logger they stand."""
    found, message = [], ""
    for line in text.splitlines():
        if line.strip().startswith(prefix):
            found.append((message, line.strip()))
        elif line.startswith(("--", ">")):
            message = line
    return found


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "in one call"])
@pytest.mark.parametrize("eval_every", [-1, 0], ids=["no evaluation", "evaluation"])
def test_text_loggers_print_them_at_the_end_of_the_experience(together, eval_every):
    text = io.StringIO()
    metrics = [*coreset_metrics(), loss_metrics(epoch=True, experience=True)]
    evaluator = EvaluationPlugin(*metrics, loggers=[TextLogger(text)])
    plugin = CoresetReplayPlugin(45, storage_policy=SlidingWindowBuffer(45))
    strategy = naive(mlp(), plugin, evaluator=evaluator, eval_every=eval_every)
    stream = class_incremental()
    for part in [stream] if together else stream:
        strategy.train(part)
    expected = [
        ("-- Starting training on experience", f"Memory_Size/train_phase/train_stream = {size}")
        for size in (20, 40, 45)
    ]
    sizes = printed_lines(text.getvalue(), "Memory_Size")
    assert [(message[:34], line) for message, line in sizes] == expected
    assert [f" {i} " in message for i, (message, _) in enumerate(sizes)] == [True] * 3


def test_the_interactive_logger_prints_them_in_time_too(capsys):
    plugin = CoresetReplayPlugin(45, storage_policy=SlidingWindowBuffer(45))
    train(class_incremental(), plugin, loggers=[InteractiveLogger()])
    lines = printed_lines(capsys.readouterr().out, "Memory_Size")
    assert [line[-2:] for _, line in lines] == ["20", "40", "45"]


def test_online_pieces_do_not_break_the_bar_of_the_interactive_logger(capsys):
    plugin = CoresetReplayPlugin(45, storage_policy=SlidingWindowBuffer(45))
    train(online(), plugin, loggers=[InteractiveLogger()])
    assert printed_lines(capsys.readouterr().out, "Memory_Size") == []


def test_a_csv_logger_has_them_in_a_file_of_their_own(tmp_path):
    (tmp_path / "memory_results.csv").write_text("of an older run")
    plugin = CoresetReplayPlugin(45, storage_policy=SlidingWindowBuffer(45))
    train(class_incremental(), plugin, loggers=[CSVLogger(tmp_path)])
    with open(tmp_path / "memory_results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    sizes = [(row["training_exp"], row["value"]) for row in rows if row["name"] == "Memory_Size"]
    assert sizes == [("0", "20"), ("1", "40"), ("2", "45")]
    last_counts = [
        int(row["value"])
        for row in rows
        if row["training_exp"] == "2" and row["name"].startswith("Memory_Class")
    ]
    assert sum(last_counts) == 45


def test_only_what_is_asked_for():
    metrics = coreset_metrics(size=False, residual=False, class_counts=False)
    plugin = ReplayPlugin(12, storage_policy=GradientMatchingBuffer(12))
    found = train(class_incremental(), plugin, metrics=metrics)
    assert list(found) == ["Memory_EffectiveSize/train_phase/train_stream"]


def image_experiences():
    """Two experiences of images 4×4 in three colours, as bright as their class."""
    for labels in ([0, 1] * 3, [2, 3] * 3):
        targets = torch.tensor(labels)
        inputs = (targets / 4).reshape(-1, 1, 1, 1).expand(-1, 3, 4, 4).contiguous()
        data = torch.utils.data.TensorDataset(inputs, targets)
        yield _make_taskaware_classification_dataset(data, targets=labels)


class Heavier(SlidingWindowBuffer):
    """Later examples count more."""

    @property
    def weights(self):
        return torch.arange(1.0, 1 + len(self.buffer))


def sheet_values(memory, **options):
    """What the contact sheet's metric returns after an experience, without training."""
    strategy = SimpleNamespace(
        plugins=[SimpleNamespace(storage_policy=memory)],
        clock=SimpleNamespace(train_iterations=7),
        experience=None,
        evaluator=SimpleNamespace(loggers=[]),
    )
    metric = coreset_metrics(contact_sheet=True, **options)[-1]
    return metric.after_training_exp(strategy)


def test_a_contact_sheet_has_a_row_for_each_class():
    memory = Heavier(8)
    for data in image_experiences():
        memory.update_from_dataset(data)
    (value,) = sheet_values(memory)
    assert (value.name, value.x_plot) == ("Memory_ContactSheet/train_phase", 7)
    image = value.value.image
    assert image.shape == (3, 4 * 4, 24 * 4)
    brightness = [int(image[0, 4 * row, 0]) for row in range(4)]
    assert brightness == [0, 64, 128, 191]
    filled = [int((image[0, 4 * row] > 0).sum()) // 4 for row in range(4)]
    assert filled == [0, 1, 3, 3]
    # W&B takes an array for height × width × colours, and does not scale it.
    array = np.array(value.value)
    assert (array.shape, array.dtype) == ((16, 96, 3), np.uint8)


def test_a_contact_sheet_is_only_made_of_images_and_if_asked_for():
    memory = SlidingWindowBuffer(5)
    assert sheet_values(memory) == []
    memory.update_from_dataset(class_incremental()[0].dataset)
    assert sheet_values(memory) == []
    assert len(coreset_metrics()) + 1 == len(coreset_metrics(contact_sheet=True))


def test_loggers_show_a_contact_sheet(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    memory, text = Heavier(8), io.StringIO()
    for data in image_experiences():
        memory.update_from_dataset(data)
    (value,) = sheet_values(memory)
    tensorboard, printed = TensorboardLogger(tmp_path), TextLogger(text)
    for logger in (tensorboard, printed, CSVLogger(tmp_path)):
        logger.log_single_metric(value.name, value.value, value.x_plot)
    tensorboard.writer.close()
    printed.print_current_metrics()
    assert text.getvalue() == ""
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    (image,) = events.Images(value.name)
    assert (image.step, image.width, image.height) == (7, 96, 16)
    pixels = np.asarray(Image.open(io.BytesIO(image.encoded_image_string)))
    assert pixels[:, 0, 0].tolist() == [k for k in (0, 64, 128, 191) for _ in range(4)]
