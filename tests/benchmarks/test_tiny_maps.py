"""A convolution that multiplies by its matrix is the same convolution, and trains alike."""

import copy

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from benchmarks.grid.idle_taps import drop_idle_taps
from benchmarks.grid.tiny_maps import TinyMapConv2d, multiply_tiny_maps
from benchmarks.grid.training import Recipe
from benchmarks.streams.models import resnet18


def multiplied(model):
    """A copy of a model that multiplies over tiny maps."""
    twin = copy.deepcopy(model)
    multiply_tiny_maps(twin)
    return twin


def gradients(layer, inputs):
    """Outputs, and gradients of inputs and parameters, for a loss in which each output differs."""
    inputs = inputs.clone().requires_grad_()
    outputs = layer(inputs)
    slopes = torch.arange(outputs.numel(), dtype=outputs.dtype).cos().view(outputs.shape)
    found = torch.autograd.grad(outputs, [inputs, *layer.parameters()], slopes)
    return [outputs, *found]


@given(
    st.integers(1, 2),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 3),
    st.integers(1, 2),
)
@settings(max_examples=300, deadline=None)
def test_outputs_and_gradients_are_those_of_the_convolution(
    height, width, kernel, stride, padding, dilation
):
    assume(min(height, width) + 2 * padding > dilation * (kernel - 1))
    options = {"stride": stride, "padding": padding, "dilation": dilation, "bias": False}
    torch.manual_seed(0)
    layer = nn.Conv2d(3, 5, kernel, **options).double()
    inputs = torch.randn(4, 3, height, width, dtype=torch.float64)
    for mine, theirs in zip(
        gradients(multiplied(layer), inputs), gradients(layer, inputs), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)


def test_a_step_in_bfloat16_is_as_close_to_the_exact_one_as_the_convolutions():
    torch.manual_seed(0)
    layer, inputs = nn.Conv2d(64, 64, 3, padding=1, bias=False), torch.randn(50, 64, 2, 2)
    exact = gradients(layer.double(), inputs.double())
    rounded = inputs.bfloat16()
    layer = layer.bfloat16()
    plain, mine = gradients(layer, rounded), gradients(multiplied(layer), rounded)
    for reference, ours, theirs in zip(exact, mine, plain, strict=True):
        error, usual = ((g.double() - reference).norm() for g in (ours, theirs))
        assert 0 < error <= 1.1 * usual


def test_resnet18_trains_alike_and_keeps_its_parameters():
    torch.manual_seed(0)
    model, inputs = resnet18().double(), torch.randn(6, 3, 32, 32, dtype=torch.float64)
    drop_idle_taps(model, inputs[:1])
    twin = multiplied(model)
    assert list(twin.state_dict()) == list(model.state_dict())
    for each in (model, twin):
        optimizer = torch.optim.Adam(each.parameters(), lr=1e-3)
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(each(inputs), torch.arange(6)).backward()
            optimizer.step()
        each.eval()
    torch.testing.assert_close(twin(inputs), model(inputs), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    "options",
    [
        {"groups": 2},
        {"padding_mode": "circular", "padding": 1},
        {"padding": "same"},
        {"bias": True},
    ],
    ids=["groups", "circular", "same", "bias"],
)
def test_other_convolutions_are_left_alone(options):
    layer = multiplied(nn.Sequential(nn.Conv2d(4, 4, 3, **{"bias": False, **options})))[0]
    assert type(layer) is nn.Conv2d


def test_larger_maps_are_convolved_as_before():
    torch.manual_seed(0)
    layer, inputs = nn.Conv2d(3, 5, 3, padding=1, bias=False), torch.randn(4, 3, 3, 3)
    assert torch.equal(multiplied(layer)(inputs), layer(inputs))


def test_recipes_train_with_it():
    options = Recipe(resnet18, 1, 10, 1e-3, 0).strategy_options(0, torch.zeros(3, 32, 32))
    assert any(isinstance(layer, TinyMapConv2d) for layer in options["model"].modules())
