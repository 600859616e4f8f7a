"""Projected gradients of all parameters, against an autograd loop and the projection's matrix."""

from __future__ import annotations

import pytest
import torch
from gradient_oracle import MODELS, gradient_loop, make_examples
from torch import Tensor, nn

from avalanche_gmc.embedding import RandomProjectionEmbedding
from avalanche_gmc.embedding.layers import Block
from avalanche_gmc.embedding.projection import PROJECTIONS

KINDS = pytest.mark.parametrize("projection", ["sparse", "rademacher"])


def projected_loop(
    embedding: RandomProjectionEmbedding, kind: str, dim: int, inputs: Tensor, targets: Tensor
) -> Tensor:
    """N×D, example by example and tensor by tensor (every tensor a single block)."""
    parts = []
    for number, draw in enumerate(embedding._draws):
        out = torch.zeros(len(inputs), dim)
        projection = PROJECTIONS[kind](dim, seed=embedding.seed, draw=number)
        for block, rows in enumerate(zip(*gradient_loop(draw, inputs, targets), strict=True)):
            gradient = torch.stack(rows)
            if gradient.ndim == 5:
                gradient = gradient.permute(0, 1, 3, 4, 2)
            projection.add(out, Block(gradient.flatten(1)), block)
        parts.append(out)
    return torch.cat(parts, dim=1)


@KINDS
@pytest.mark.parametrize("name", [name for name in MODELS if name != "resnet18"])
def test_atoms_equal_the_projected_autograd_loop(
    name: str, projection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("avalanche_gmc.embedding.per_example.BLOCK_PARAMETERS", 2**20)
    factory, shape = MODELS[name]
    embedding = RandomProjectionEmbedding(
        factory, draws=2, dim=30, projection=projection, batch_size=4, seed=3
    )
    inputs, targets = make_examples(shape, 6)
    found = embedding.embed(inputs, targets).rows(torch.arange(6))
    exact = projected_loop(embedding, projection, 30, inputs, targets)
    assert found.shape == (6, embedding.dim) and found.dtype == torch.float32
    torch.testing.assert_close(found, exact, rtol=1e-3, atol=1e-4 * float(exact.abs().max()))


@KINDS
def test_inner_products_approach_those_of_the_gradients(projection: str) -> None:
    factory, shape = MODELS["cnn"]
    embedding = RandomProjectionEmbedding(factory, draws=1, dim=3000, projection=projection)
    inputs, targets = make_examples(shape, 8)
    atoms = embedding.embed(inputs, targets).rows(torch.arange(8))
    rows = gradient_loop(embedding._draws[0], inputs, targets)
    full = torch.stack([torch.cat([g.flatten() for g in row]) for row in rows])
    # The standard deviation of an inner product is about sqrt(2 / 3000) of the norms.
    error = (atoms @ atoms.T - full @ full.T) / (full.norm(dim=1) * full.norm(dim=1)[:, None])
    assert error.abs().max() < 0.12


def test_frozen_parameters_take_no_part() -> None:
    class Frozen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(12, 5), nn.Linear(5, 4)
            self.body.requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            output: Tensor = self.head(torch.relu(self.body(x)))
            return output

    model = Frozen()
    embedding = RandomProjectionEmbedding(model, draws=1, dim=4000, projection="rademacher")
    inputs, targets = make_examples((12,), 3)
    atoms = embedding.embed(inputs, targets).rows(torch.arange(3))
    rows = gradient_loop(embedding._draws[0], inputs, targets)
    assert len(rows[0]) == 2
    squares = torch.tensor([sum(float(g.square().sum()) for g in row) for row in rows])
    torch.testing.assert_close(atoms.square().sum(dim=1), squares, rtol=0.15, atol=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"projection": "gaussian"}, r"one of \['sparse', 'rademacher'\], got 'gaussian'"),
        ({"dim": 0}, "dim must be an integer of at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be an integer of at least 1, got 0"),
        ({"draws": 0}, "number of draws must be an integer of at least 1, got 0"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RandomProjectionEmbedding(MODELS["mlp"][0], **options)  # type: ignore[arg-type]
