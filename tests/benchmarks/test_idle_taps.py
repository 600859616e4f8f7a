"""A model without idle taps is the same function, and trains to the same one."""

import copy

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from benchmarks.grid.idle_taps import drop_idle_taps
from benchmarks.grid.training import Recipe
from benchmarks.streams.models import cnn, dropout_cnn, mlp, resnet18, small_image_resnet18


def sizes(model):
    return [layer.kernel_size for layer in model.modules() if isinstance(layer, nn.Conv2d)]


def trained(model, inputs, labels, steps=3):
    """Outputs after some steps of Adam."""
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    model.eval()
    return model(inputs).detach()


def test_the_last_stage_of_resnet18_loses_seven_million_weights_and_nothing_else():
    torch.manual_seed(0)
    whole, inputs = resnet18().double(), torch.randn(6, 3, 32, 32, dtype=torch.float64)
    cut = copy.deepcopy(whole)
    drop_idle_taps(cut, inputs[:1])
    lost = sum(p.numel() for p in whole.parameters()) - sum(p.numel() for p in cut.parameters())
    assert lost == 3 * 512 * 512 * 8 + 256 * 512 * 5
    assert [new for old, new in zip(sizes(whole), sizes(cut), strict=True) if old != new] == [
        (2, 2),
        *[(1, 1)] * 3,
    ]
    labels = torch.arange(6)
    torch.testing.assert_close(
        trained(cut, inputs, labels), trained(whole, inputs, labels), rtol=1e-8, atol=1e-10
    )


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (cnn, (1, 28, 28)),
        (dropout_cnn, (1, 28, 28)),
        (small_image_resnet18, (3, 32, 32)),
        (lambda: mlp(4, 2), (4,)),
    ],
    ids=["cnn", "dropout-cnn", "small-resnet18", "mlp"],
)
def test_a_model_without_idle_taps_is_left_alone(make, shape):
    model = make()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    parameters = list(model.parameters())
    drop_idle_taps(model, torch.randn(1, *shape))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    assert model.training


@given(
    st.integers(1, 7),
    st.integers(1, 7),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(0, 4),
    st.integers(1, 2),
)
@settings(max_examples=300, deadline=None)
def test_any_convolution_gives_the_same_outputs(height, width, kernel, stride, padding, dilation):
    assume(min(height, width) + 2 * padding > dilation * (kernel - 1))
    options = {"stride": stride, "padding": padding, "dilation": dilation, "bias": False}
    layer = nn.Conv2d(2, 3, (kernel, max(1, kernel - 1)), **options).double()
    inputs = torch.randn(2, 2, height, width, dtype=torch.float64)
    expected = layer(inputs)
    drop_idle_taps(layer, inputs[:1])
    torch.testing.assert_close(layer(inputs), expected)


def test_a_layer_that_sees_maps_of_two_sizes_stays_whole():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Conv2d(1, 1, 3, padding=1)

        def forward(self, inputs):
            return self.layer(inputs).mean() + self.layer(inputs[..., :1, :1]).mean()

    model = Twice()
    drop_idle_taps(model, torch.randn(1, 1, 4, 4))
    assert sizes(model) == [(3, 3)]


def test_trainings_of_the_grid_go_without_them():
    options = Recipe(resnet18, 1, 10, 1e-3, 0).strategy_options(0, torch.zeros(3, 32, 32))
    model, (group,) = options["model"], options["optimizer"].param_groups
    assert sizes(model).count((1, 1)) == sizes(resnet18()).count((1, 1)) + 3
    assert all(a is b for a, b in zip(group["params"], model.parameters(), strict=True))
