"""Models, criteria and targets that people have, in both embeddings, against autograd."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from gradient_oracle import ARCHITECTURES, gradient_loop, make_examples
from torch import Tensor, nn
from torch.nn import functional as F

from avalanche_gmc.embedding import LastLayerEmbedding, RandomProjectionEmbedding
from avalanche_gmc.embedding.layers import Block
from avalanche_gmc.embedding.projection import PROJECTIONS
from avalanche_gmc.initialization import Redrawn, derive_seed, draw_from
from benchmarks.streams.models import mlp

Criterion = Callable[[Tensor, Tensor], Tensor]
DIM = 40


def draws_of(model: Callable[[], nn.Module], calibrated_like: dict[str, object]) -> list[nn.Module]:
    """The two draws of seed 0, with the batch-norm statistics that the embedding measured."""
    draws = [draw_from(model, derive_seed(0, draw)).eval() for draw in range(2)]
    for position, draw in enumerate(draws):
        for name, buffer in draw.named_buffers():
            found = calibrated_like.get(f"statistics.{position}.{name}")
            if isinstance(found, Tensor):
                buffer.copy_(found)
    return draws


def last_layer_loop(
    draws: list[nn.Module], inputs: Tensor, targets: Tensor, loss: Criterion
) -> Tensor:
    """N×D: the gradient of each example alone in [weight, bias] of the last nn.Linear."""
    columns = []
    for draw in draws:
        head = [layer for layer in draw.modules() if isinstance(layer, nn.Linear)][-1]
        rows = gradient_loop(draw, inputs, targets, loss)
        trainable = [id(p) for p in draw.parameters() if p.requires_grad]
        weight, bias = trainable.index(id(head.weight)), trainable.index(id(head.bias))
        atoms = [torch.cat([row[weight], row[bias][:, None]], dim=1).flatten() for row in rows]
        columns.append(torch.stack(atoms))
    return torch.cat(columns, dim=1)


def projected_loop(
    draws: list[nn.Module], inputs: Tensor, targets: Tensor, loss: Criterion
) -> Tensor:
    """N×D: the same for all parameters, every tensor one block of the projection."""
    columns = []
    for number, draw in enumerate(draws):
        out = torch.zeros(len(inputs), DIM)
        projection = PROJECTIONS["sparse"](DIM, seed=0, draw=number)
        per_tensor = zip(*gradient_loop(draw, inputs, targets, loss), strict=True)
        for block, rows in enumerate(per_tensor):
            gradient = torch.stack(rows)
            ordered = gradient.movedim(2, -1) if gradient.ndim > 3 else gradient
            projection.add(out, Block(ordered.flatten(1)), block)
        columns.append(out)
    return torch.cat(columns, dim=1)


@pytest.fixture(params=["last layer", "projection"])
def check(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[], nn.Module], Tensor, Tensor, Criterion], None]:
    """Compare one of the embeddings with its loop."""
    monkeypatch.setattr("avalanche_gmc.embedding.per_example.BLOCK_PARAMETERS", 2**20)

    def compare(
        model: Callable[[], nn.Module], inputs: Tensor, targets: Tensor, loss: Criterion
    ) -> None:
        if request.param == "last layer":
            embedding, loop = LastLayerEmbedding(model, draws=2, loss=loss), last_layer_loop
        else:
            embedding = RandomProjectionEmbedding(model, draws=2, dim=DIM, loss=loss)
            loop = projected_loop
        dictionary = embedding.embed(inputs, targets)
        found = dictionary.rows(torch.arange(len(inputs)))
        exact = loop(draws_of(model, embedding.state_dict()), inputs, targets, loss)
        assert exact.shape == (len(inputs), embedding.dim)
        torch.testing.assert_close(found, exact, rtol=1e-3, atol=1e-4 * float(exact.abs().max()))

    return compare


@pytest.mark.parametrize("name", list(ARCHITECTURES))
@pytest.mark.filterwarnings("error:There is a performance drop")
def test_architectures(
    name: str, check: Callable[..., None], request: pytest.FixtureRequest
) -> None:
    model, shape = ARCHITECTURES[name]
    if "resnet18" in name and "projection" in request.node.name:
        pytest.skip("several seconds; the same layers are in tests of per-example gradients")
    check(model, *make_examples(shape, 4), F.cross_entropy)


NUMBERS = torch.randn(6, 4, generator=torch.Generator().manual_seed(3))
LABELS = torch.tensor([3, 1, 0, 0, 2, 1])
CRITERIA: dict[str, tuple[Criterion, Tensor]] = {
    "label smoothing": (nn.CrossEntropyLoss(label_smoothing=0.1), LABELS),
    "squared error": (nn.MSELoss(), NUMBERS),
    "absolute error": (nn.L1Loss(), NUMBERS),
    "huber": (nn.HuberLoss(), NUMBERS),
    "smooth absolute error": (nn.SmoothL1Loss(), NUMBERS),
    "several labels": (nn.BCEWithLogitsLoss(), (NUMBERS > 0).float()),
}


@pytest.mark.parametrize("name", list(CRITERIA))
def test_criteria_and_targets(name: str, check: Callable[..., None]) -> None:
    loss, targets = CRITERIA[name]
    check(lambda: mlp(12, 4), make_examples((12,), 6)[0], targets, loss)


def test_class_weights(check: Callable[..., None]) -> None:
    weights = torch.tensor([1.0, 5.0, 0.5, 2.0])
    # Of one example, torch's mean is the loss without its weight: it divides by it.
    loss = nn.CrossEntropyLoss(weight=weights, reduction="sum")
    check(lambda: mlp(12, 4), make_examples((12,), 6)[0], LABELS, loss)


class Squeezed(nn.Module):
    """One output without a dimension of its own, as regressions often have."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(12, 5), nn.Linear(5, 1)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(torch.tanh(self.body(x))).squeeze(-1)
        return output


def relative_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return ((outputs - targets) / (1 + targets.abs())).square()


@pytest.mark.parametrize("loss", [nn.MSELoss(), F.l1_loss, relative_error])
def test_one_output_without_a_dimension(loss: Criterion, check: Callable[..., None]) -> None:
    check(Squeezed, make_examples((12,), 6)[0], NUMBERS[:, 0], loss)


def test_pretrained_weights_with_a_fresh_head(check: Callable[..., None]) -> None:
    make, shape = ARCHITECTURES["fc"]
    model, (inputs, targets) = make(), make_examples(shape, 4)
    for _ in range(20):
        model(inputs * 5)
    check(Redrawn(model, only="fc"), inputs, targets, F.cross_entropy)
