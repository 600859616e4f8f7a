"""The models are those of the paper's appendix: layer by layer, shapes and parameter counts."""

import pytest
import torch
from torch import nn

from benchmarks.streams.models import (
    channels_last,
    cnn,
    count_parameters,
    mlp,
    resnet18,
    small_image_resnet18,
)


def test_mlp_is_two_hidden_layers_of_128_relu_units():
    layers = list(mlp(54, 7))
    kinds = [type(layer) for layer in layers]
    assert kinds == [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear]
    widths = [(layer.in_features, layer.out_features) for layer in layers[::2]]
    assert widths == [(54, 128), (128, 128), (128, 7)]


def test_cnn_has_four_blocks_a_spatial_average_and_64_features():
    model = cnn()
    blocks = [child for child in model if isinstance(child, nn.Sequential)]
    assert len(blocks) == 4
    for block in blocks:
        convolution, norm, relu, pool = block
        assert (convolution.out_channels, convolution.kernel_size) == (64, (3, 3))
        assert convolution.padding == (1, 1)
        assert isinstance(norm, nn.BatchNorm2d) and isinstance(relu, nn.ReLU)
        assert isinstance(pool, nn.MaxPool2d) and pool.kernel_size == 2
    assert model[-1].in_features == 64


@pytest.mark.parametrize(
    ("model", "shape", "parameters"),
    [
        (mlp(64, 10), (2, 64), 65 * 128 + 129 * 128 + 129 * 10),
        (cnn(), (2, 1, 28, 28), 10 * 64 + 3 * (9 * 64 + 1) * 64 + 4 * 2 * 64 + 65 * 10),
        (cnn(in_channels=3), (2, 3, 32, 32), 28 * 64 + 3 * (9 * 64 + 1) * 64 + 512 + 650),
        (resnet18(), (2, 3, 32, 32), 11_181_642),
        (small_image_resnet18(), (2, 3, 32, 32), 11_173_962),
    ],
    ids=["mlp", "cnn", "cnn-colour", "resnet18", "resnet18 for small images"],
)
def test_output_shape_and_parameter_count(model, shape, parameters):
    assert model(torch.zeros(shape)).shape == (2, 10)
    assert count_parameters(model) == parameters


def test_channels_last_computes_the_same_function():
    model, images = cnn().eval(), torch.randn(3, 1, 28, 28)
    expected = model(images)
    torch.testing.assert_close(channels_last(model)(images), expected)


def test_resnet18_for_small_images_halves_them_three_times():
    sizes = []
    model = small_image_resnet18().eval()
    for layer in (model.layer1, model.layer2, model.layer3, model.layer4):
        layer.register_forward_hook(lambda _, __, output: sizes.append(tuple(output.shape[1:])))
    model(torch.zeros(1, 3, 32, 32))
    assert sizes == [(64, 32, 32), (128, 16, 16), (256, 8, 8), (512, 4, 4)]
