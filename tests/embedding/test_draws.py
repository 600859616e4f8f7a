"""Draws: made from a seed when needed, the same ones each time, and light to store."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator

import pytest
import torch
from gradient_oracle import make_examples
from torch import Tensor, nn

from avalanche_gmc.embedding import (
    GradientEmbedding,
    LastLayerEmbedding,
    RandomProjectionEmbedding,
    draws,
)
from avalanche_gmc.embedding.checksum import checksum, same_checksum
from avalanche_gmc.embedding.draws import Draws
from avalanche_gmc.initialization import Redrawn, fresh_draws
from benchmarks.speed.peak_memory import copies_of_a_model
from benchmarks.streams.models import cnn, mlp

SHAPE = (1, 16, 16)
KINDS: dict[str, Callable[..., GradientEmbedding]] = {
    "last layer": LastLayerEmbedding,
    "sparse": lambda model, **options: RandomProjectionEmbedding(model, dim=100, **options),
}
EVERY = pytest.mark.parametrize("make", list(KINDS.values()), ids=list(KINDS))


def atoms(embedding: GradientEmbedding, data: tuple[Tensor, Tensor]) -> Tensor:
    return embedding.embed(*data).rows(torch.arange(len(data[0])))


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Let no two draws be cached; count how many are alive whenever one is made."""
    monkeypatch.setattr(draws, "CACHE_BYTES", 0)
    alive: list[int] = []
    make = Draws._make

    def counted(self: Draws, draw: int) -> nn.Module:
        alive.append(len(self._made))
        return make(self, draw)

    monkeypatch.setattr(Draws, "_make", counted)
    yield alive


@EVERY
def test_large_draws_are_made_one_at_a_time_and_give_the_same_gradients(
    make: Callable[..., GradientEmbedding], request: pytest.FixtureRequest
) -> None:
    data, later = make_examples(SHAPE, 7), make_examples(SHAPE, 7, seed=1)
    cached = make(cnn(num_classes=4), batch_size=3)
    exact = atoms(cached, data), atoms(cached, later)
    alive: list[int] = request.getfixturevalue("one_at_a_time")
    single = make(cnn(num_classes=4), batch_size=3)
    assert torch.equal(atoms(single, data), exact[0])
    assert torch.equal(atoms(single, later), exact[1])
    assert set(alive) == {0} and len(alive) > 8


@EVERY
@pytest.mark.parametrize("given", [lambda: cnn(num_classes=4), cnn], ids=["module", "callable"])
def test_states_and_pickles_have_no_parameters(
    make: Callable[..., GradientEmbedding], given: Callable[[], nn.Module]
) -> None:
    model = given if given is cnn else given()
    embedding, data = make(model), make_examples((1, 28, 28) if given is cnn else SHAPE, 5)
    exact = atoms(embedding, data)
    state, pickled = embedding.state_dict(), pickle.dumps(embedding)
    statistics = sum(t.nbytes for k, t in state.items() if k.startswith("statistics"))
    assert len(pickle.dumps(state)) < statistics + 20_000
    assert len(pickled) < statistics + 40_000
    assert torch.equal(atoms(pickle.loads(pickled), data), exact)
    other = make(model, seed=9)
    other.load_state_dict(state)
    assert torch.equal(atoms(other, data), exact)


@EVERY
def test_pretrained_weights_are_stored_once(make: Callable[..., GradientEmbedding]) -> None:
    model = mlp(2000, 4)
    embedding, data = make(Redrawn(model, only="4")), make_examples((2000,), 5)
    exact = atoms(embedding, data)
    kept = sum(parameter.nbytes for parameter in model[:4].parameters())
    assert kept < len(pickle.dumps(embedding)) < kept + 40_000
    with torch.no_grad():
        model[0].weight.zero_()
    assert torch.equal(atoms(pickle.loads(pickle.dumps(embedding)), data), exact)


def test_draws_are_those_of_fresh_draws() -> None:
    found = Draws(cnn(), 3, 5)
    for one, other in zip(found, fresh_draws(cnn(), 3, 5), strict=True):
        assert all(
            torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items()
        )


@EVERY
@pytest.mark.parametrize("saved", [False, True], ids=["seeds", "tensors"])
def test_if_torch_draws_other_numbers_a_state_needs_tensors(
    make: Callable[..., GradientEmbedding], saved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, data = mlp(12, 4), make_examples((12,), 5)
    embedding = make(model, save_draws=saved)
    exact = atoms(embedding, data)
    state, pickled = embedding.state_dict(), pickle.dumps(embedding)
    uniform = nn.init.kaiming_uniform_
    monkeypatch.setattr(
        nn.init, "kaiming_uniform_", lambda t, **kw: t.copy_(uniform(t, **kw).flip(0))
    )
    other = make(model)
    before = atoms(other, data)
    if saved:
        other.load_state_dict(state)
        assert torch.equal(atoms(other, data), exact)
        assert torch.equal(atoms(pickle.loads(pickled), data), exact)
    else:
        message = r"draw 0 of seed 0 has other numbers.*this version of torch.*save_draws=True"
        with pytest.raises(ValueError, match=message):
            other.load_state_dict(state)
        assert torch.equal(atoms(other, data), before)
        with pytest.raises(ValueError, match=message):
            atoms(pickle.loads(pickled), data)


def test_other_frozen_weights_are_noticed() -> None:
    model = mlp(12, 4)
    model[0].requires_grad_(False)
    state = LastLayerEmbedding(model).state_dict()
    with torch.no_grad():
        model[0].weight[3] *= 1.1
    with pytest.raises(ValueError, match="frozen weights"):
        LastLayerEmbedding(model).load_state_dict(state)


def test_a_factory_that_ignores_the_seed_is_noticed(one_at_a_time: list[int]) -> None:
    numbers = iter(range(100))

    def unseeded() -> nn.Module:
        model = mlp(12, 4)
        nn.init.constant_(model[0].weight, next(numbers))
        return model

    with pytest.raises(ValueError, match=r"other numbers than when it was first made.*factory"):
        LastLayerEmbedding(unseeded, draws=2).embed(*make_examples((12,), 5))


def test_a_pickle_without_its_callable_says_so_when_it_needs_it() -> None:
    embedding = LastLayerEmbedding(lambda: mlp(12, 4))
    state = LastLayerEmbedding(mlp(12, 4), seed=3).state_dict()
    with pytest.raises(ValueError, match=r"could not be pickled.*in place of a lambda"):
        pickle.loads(pickle.dumps(embedding)).load_state_dict(state)


def test_checksums_forgive_rounding_and_nothing_else() -> None:
    one, other = fresh_draws(mlp(50, 4), 2, 0)
    known = checksum(one)
    assert not same_checksum(checksum(other), known)
    with torch.no_grad():
        for parameter in one.parameters():
            parameter.mul_(1 + 1e-7 * torch.randn_like(parameter))
        assert same_checksum(checksum(one), known)
        one[0].weight.copy_(one[0].weight.flip(0))
    assert not same_checksum(checksum(one), known)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("embedding", "model", "most"),
    [
        ("last-layer", "25 layers", 2.1),
        ("last-layer", "2 layers", 2.1),
        ("random-projection", "25 layers", 2.1),
        # Where almost all parameters are one weight matrix, the gradient of one example that the
        # first batch is checked with is as large as the model.
        ("random-projection", "2 layers", 3.2),
    ],
)
def test_a_hundred_million_parameters_exist_twice_at_most(
    embedding: str, model: str, most: float
) -> None:
    # The user's model and one draw; a tenth of a copy is for activations and temporaries.
    assert copies_of_a_model(embedding, model) < most
