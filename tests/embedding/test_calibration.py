"""Batch-norm statistics: measured once, on any amount of data, and worth it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from avalanche_gmc.embedding.calibration import calibrate_batch_norm, refuse_batch_statistics
from benchmarks.streams.models import cnn


def normalised(model: nn.Module, inputs: Tensor) -> list[Tensor]:
    """What each batch norm puts out, channels first: one C×(values) matrix per layer."""
    outputs: list[Tensor] = []
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.register_forward_hook(lambda _, __, out: outputs.append(out))
    with torch.no_grad():
        model(inputs)
    return [output.transpose(0, 1).flatten(1) for output in outputs]


def test_many_examples_are_normalised_in_every_layer() -> None:
    model, inputs = cnn().eval(), torch.rand(256, 1, 28, 28) * 5
    calibrate_batch_norm(model, inputs)
    for layer in normalised(model, inputs):
        assert layer.mean(dim=1).abs().max() < 0.05
        assert (layer.std(dim=1) - 1).abs().max() < 0.1


def test_statistics_are_a_weighted_average_with_those_of_the_layer() -> None:
    model = nn.BatchNorm1d(3).eval()
    inputs = torch.randn(4, 3, dtype=torch.float64) * torch.tensor([1.0, 2, 3])
    calibrate_batch_norm(model, inputs.float())
    mean = inputs.mean(0) * 0.8 + inputs.mean() * 0.2
    var = inputs.var(0, correction=0) * 0.8 + inputs.var(correction=0) * 0.2
    torch.testing.assert_close(model.running_mean.double(), mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(model.running_var.double(), var, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("count", [1, 2, 10])
def test_a_handful_of_examples_gives_sane_statistics(count: int) -> None:
    model = cnn().eval()
    calibrate_batch_norm(model, torch.rand(count, 1, 28, 28))
    for layer in normalised(model, torch.rand(64, 1, 28, 28)):
        assert layer.isfinite().all()
        assert 0.2 < layer.std() < 5


def test_only_statistics_change_and_the_model_keeps_no_hooks() -> None:
    model = cnn().eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    calibrate_batch_norm(model, torch.rand(8, 1, 28, 28))
    changed = {n for n, t in model.state_dict().items() if not torch.equal(t, before[n])}
    assert changed == {name for name in before if "running" in name}
    assert not any(layer._forward_pre_hooks for layer in model.modules())


def test_trained_statistics_are_kept() -> None:
    model = cnn().train()
    model(torch.rand(8, 1, 28, 28))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    calibrate_batch_norm(model.eval(), torch.rand(8, 1, 28, 28) * 9)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_layers_without_statistics_are_refused() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, track_running_stats=False))
    with pytest.raises(ValueError, match=r"'1' keeps no running statistics.*track_running_stats"):
        refuse_batch_statistics(model)
    refuse_batch_statistics(nn.Sequential(nn.BatchNorm1d(3), nn.InstanceNorm1d(3)))
