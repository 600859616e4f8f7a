"""The last layer's gradient, against autograd."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from gradient_oracle import MODELS, make_examples
from torch import Tensor, nn
from torch.nn import functional as F

from avalanche_gmc.dictionary import LastLayerDictionary
from avalanche_gmc.embedding import LastLayerEmbedding
from avalanche_gmc.embedding.base import DrawsEmbedding
from benchmarks.streams.models import cnn


def autograd_atoms(
    embedding: DrawsEmbedding[object],
    layer: Callable[[nn.Module], nn.Linear],
    inputs: Tensor,
    targets: Tensor,
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
) -> Tensor:
    """N×D: at each draw, the gradient of the layer's [weight, bias] for each example alone."""
    rows = []
    for x, y in zip(inputs, targets, strict=True):
        parts = []
        for draw in embedding._draws:
            head = layer(draw)
            parameters = [p for p in (head.weight, head.bias) if p is not None]
            grads = torch.autograd.grad(loss(draw(x[None]), y[None]).sum(), parameters)
            columns = [grads[0], *(g[:, None] for g in grads[1:])]
            parts.append(torch.cat(columns, dim=1).flatten())
        rows.append(torch.cat(parts))
    return torch.stack(rows)


def last_linear(model: nn.Module) -> nn.Linear:
    return [layer for layer in model.modules() if isinstance(layer, nn.Linear)][-1]


@pytest.mark.parametrize(
    "name",
    ["mlp", "cnn", "cnn without batch norm", "resnet18", "odd convolutions", "shared layers"],
)
def test_atoms_equal_autograd(name: str) -> None:
    factory, shape = MODELS[name]
    embedding = LastLayerEmbedding(factory, draws=2, batch_size=3)
    inputs, targets = make_examples(shape, 5)
    dictionary = embedding.embed(inputs, targets)
    assert isinstance(dictionary, LastLayerDictionary)
    exact = autograd_atoms(embedding, last_linear, inputs, targets)
    assert exact.shape == (5, embedding.dim)
    torch.testing.assert_close(
        dictionary.rows(torch.arange(5)), exact.float(), rtol=1e-3, atol=1e-4 * exact.abs().max()
    )


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets[:, None]).square().sum(dim=1)


@pytest.mark.parametrize(
    "loss", [squared_error, nn.CrossEntropyLoss(label_smoothing=0.2)], ids=["squares", "smoothed"]
)
def test_any_loss(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    embedding = LastLayerEmbedding(MODELS["mlp"][0], draws=2, loss=loss)
    inputs, targets = make_examples((12,), 5)
    found = embedding.embed(inputs, targets).rows(torch.arange(5))
    exact = autograd_atoms(embedding, last_linear, inputs, targets, loss)
    torch.testing.assert_close(found, exact, rtol=1e-4, atol=1e-5)


def test_a_layer_without_bias_has_no_constant_column() -> None:
    model = nn.Sequential(nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 4, bias=False))
    embedding = LastLayerEmbedding(model, draws=3)
    inputs, targets = make_examples((12,), 5)
    found = embedding.embed(inputs, targets).rows(torch.arange(5))
    assert embedding.dim == 3 * 4 * 6
    torch.testing.assert_close(found, autograd_atoms(embedding, last_linear, inputs, targets))


class HeadFirst(nn.Module):
    """Declares its layers in another order than it uses them."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 4)
        self.body = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(torch.relu(self.body(x)))
        return output


class Scaled(HeadFirst):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).mul_(3)


@pytest.mark.parametrize("layer", [None, "head"])
def test_the_layer_that_produces_the_outputs_is_found_or_named(layer: str | None) -> None:
    embedding = LastLayerEmbedding(HeadFirst(), draws=2, layer=layer)
    inputs, targets = make_examples((12,), 5)
    found = embedding.embed(inputs, targets).rows(torch.arange(5))
    exact = autograd_atoms(embedding, lambda model: model.head, inputs, targets)
    torch.testing.assert_close(found, exact, rtol=1e-4, atol=1e-6)
    assert embedding.dim == found.shape[1]


@pytest.mark.parametrize(
    ("model", "layer", "message"),
    [
        (Scaled(), None, "do not come straight from a linear layer .tried head, body"),
        (HeadFirst(), "body", "do not come straight from a linear layer .tried body"),
        (nn.Sequential(nn.Linear(12, 4), nn.Softmax(dim=1)), None, "do not come straight"),
    ],
)
def test_outputs_that_are_not_linear_are_refused(
    model: nn.Module, layer: str | None, message: str
) -> None:
    embedding = LastLayerEmbedding(model, draws=1, layer=layer)
    with pytest.raises(ValueError, match=message):
        embedding.embed(*make_examples((12,), 5))


def test_models_without_linear_layers_and_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match=r"has no nn\.Linear"):
        LastLayerEmbedding(nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten()))
    with pytest.raises(ValueError, match=r"layer='neck' is not an nn.Linear.*'head', 'body'"):
        LastLayerEmbedding(HeadFirst(), layer="neck")


def test_no_backward_pass_runs() -> None:
    class NoBackward(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, *grads: Tensor) -> Tensor:
            raise AssertionError("a backward pass ran")

    class Body(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            output: Tensor = NoBackward.apply(x)
            return output

    model = nn.Sequential(nn.Linear(12, 5), Body(), nn.Linear(5, 4))
    LastLayerEmbedding(model, loss=squared_error).embed(*make_examples((12,), 3))


def test_forward_passes_in_bfloat16_are_near_and_stay_what_they_are() -> None:
    data = make_examples((1, 16, 16), 20)
    model = cnn(4)
    exact = LastLayerEmbedding(model, draws=2)
    rounded = LastLayerEmbedding(model, draws=2, bfloat16=True)
    every = torch.arange(20)
    wanted, found = (embedding.embed(*data).rows(every) for embedding in (exact, rounded))
    assert found.dtype == torch.float32
    error = float((found - wanted).norm() / wanted.norm())
    assert 1e-4 < error < 0.03
    twin = LastLayerEmbedding(model, draws=2, bfloat16=True, seed=1)
    twin.load_state_dict(rounded.state_dict())
    assert torch.equal(twin.embed(*data).rows(every), found)
    with pytest.raises(ValueError, match="bfloat16=True, this embedding has bfloat16=False"):
        exact.load_state_dict(rounded.state_dict())
    with pytest.raises(ValueError, match="bfloat16 must be True or False"):
        LastLayerEmbedding(model, bfloat16="yes")  # type: ignore[arg-type]
