"""What every embedding promises: stable, portable, without side effects, clear about bad data."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

import dill
import pytest
import torch
from gradient_oracle import MODELS, Talkative, Tokens, make_examples
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from avalanche_gmc.dictionary import Dictionary
from avalanche_gmc.embedding import (
    GradientEmbedding,
    LastLayerEmbedding,
    LocalEmbedding,
    RandomProjectionEmbedding,
)
from avalanche_gmc.embedding.examples import Examples
from avalanche_gmc.initialization import fresh_draws
from avalanche_gmc.pursuit.matching_pursuit import orthogonal_matching_pursuit
from benchmarks.streams.models import cnn, mlp

SHAPE = (1, 16, 16)
MAKERS: dict[str, Callable[..., GradientEmbedding]] = {
    "last layer": lambda model, **options: LastLayerEmbedding(model, draws=2, **options),
    "sparse": lambda model, **options: RandomProjectionEmbedding(
        model, draws=2, dim=400, **options
    ),
    "dense": lambda model, **options: RandomProjectionEmbedding(
        model, draws=2, dim=400, projection="rademacher", **options
    ),
    "local": lambda model, **options: LocalEmbedding(as_module(model), **options),
    "local projection": lambda model, **options: LocalEmbedding(
        as_module(model), reduction="random-projection", dim=400, **options
    ),
}
EVERY = pytest.mark.parametrize("make", list(MAKERS.values()), ids=list(MAKERS))


def as_module(model: nn.Module | Callable[[], nn.Module]) -> nn.Module:
    return model if isinstance(model, nn.Module) else fresh_draws(model, 1, 0)[0]


def small_cnn() -> nn.Module:
    return MODELS["cnn"][0]()


def atoms(dictionary: Dictionary) -> Tensor:
    return dictionary.rows(torch.arange(dictionary.num_atoms))


def assert_same(found: Dictionary, expected: Tensor) -> None:
    scale = float(expected.abs().max())
    torch.testing.assert_close(atoms(found), expected, rtol=1e-4, atol=1e-5 * scale)


@EVERY
def test_batch_size_and_neighbours_change_nothing(make: Callable[..., GradientEmbedding]) -> None:
    inputs, targets = make_examples(SHAPE, 11)
    exact = atoms(make(small_cnn).embed(inputs, targets))
    for batch_size in (1, 4, 100):
        assert_same(make(small_cnn, batch_size=batch_size).embed(inputs, targets), exact)
    embedding = make(small_cnn)
    embedding.embed(inputs, targets)
    assert_same(embedding.embed(inputs[5:6], targets[5:6]), exact[5:6])
    assert_same(embedding.embed(inputs.flip(0), targets.flip(0)), exact.flip(0))


@EVERY
def test_datasets_give_what_tensors_give(make: Callable[..., GradientEmbedding]) -> None:
    inputs, targets = make_examples(SHAPE, 9)
    exact = atoms(make(small_cnn).embed(inputs, targets))
    with_tasks = TensorDataset(inputs, targets, torch.zeros(9))
    assert_same(make(small_cnn).embed(with_tasks), exact)
    as_numbers = [(x.numpy(), int(y)) for x, y in zip(inputs, targets, strict=True)]
    assert_same(make(small_cnn).embed(as_numbers), exact)


@EVERY
@pytest.mark.parametrize("tool", [pickle, dill], ids=["pickle", "dill"])
@pytest.mark.parametrize("used", [False, True], ids=["new", "used"])
def test_pickles_are_the_same_embedding(
    make: Callable[..., GradientEmbedding], tool: object, used: bool
) -> None:
    embedding = make(lambda: small_cnn())
    first, later = make_examples(SHAPE, 9), make_examples(SHAPE, 9, seed=1)
    if used:
        embedding.embed(*first)
    copied = tool.loads(tool.dumps(embedding))  # type: ignore[attr-defined]
    assert_same(copied.embed(*first), atoms(embedding.embed(*first)))
    assert_same(copied.embed(*later), atoms(embedding.embed(*later)))


@EVERY
@pytest.mark.parametrize("used", [False, True], ids=["new", "used"])
def test_a_state_makes_another_embedding_the_same(
    make: Callable[..., GradientEmbedding], used: bool
) -> None:
    embedding = make(small_cnn, seed=1)
    first, later = make_examples(SHAPE, 9), make_examples(SHAPE, 9, seed=1)
    if used:
        embedding.embed(*first)
    state = copy.deepcopy(embedding.state_dict())
    assert all(isinstance(v, Tensor | int | str | bool | None) for v in state.values())
    other = make(small_cnn, seed=2)
    other.embed(*later)
    other.load_state_dict(state)
    assert_same(other.embed(*first), atoms(embedding.embed(*first)))
    assert_same(other.embed(*later), atoms(embedding.embed(*later)))
    assert all(torch.equal(state[k], v) for k, v in state.items() if isinstance(v, Tensor))


def test_states_of_other_embeddings_are_refused() -> None:
    state = RandomProjectionEmbedding(small_cnn, draws=2, dim=400).state_dict()
    for other, message in [
        (LastLayerEmbedding(small_cnn, draws=2), "kind='RandomProjectionEmbedding'"),
        (RandomProjectionEmbedding(small_cnn, draws=2, dim=401), "dim=400, this .* dim=401"),
        (RandomProjectionEmbedding(small_cnn, draws=3, dim=400), "draws=2, this .* draws=3"),
        (
            RandomProjectionEmbedding(cnn, draws=2, dim=400),
            "parameters=.*, this .* parameters=.*same model",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            other.load_state_dict(state)


@EVERY
def test_a_state_that_cannot_be_loaded_changes_nothing(
    make: Callable[..., GradientEmbedding],
) -> None:
    embedding, data = make(small_cnn), make_examples(SHAPE, 9)
    exact = atoms(embedding.embed(*data))
    other = make(small_cnn, seed=1)
    other.embed(data[0] * 3, data[1])
    state = other.state_dict()
    for key in state:
        broken = {k: v for k, v in state.items() if k != key}
        with pytest.raises(ValueError, match=r"state"):
            embedding.load_state_dict(broken)
        if isinstance(state[key], Tensor) and state[key].ndim:
            with pytest.raises(ValueError, match=r"state"):
                embedding.load_state_dict({**state, key: state[key][:-1]})
    assert_same(embedding.embed(*data), exact)


@EVERY
def test_first_data_that_is_refused_calibrates_nothing(
    make: Callable[..., GradientEmbedding],
) -> None:
    embedding, data = make(small_cnn), make_examples(SHAPE, 9)
    with pytest.raises(ValueError, match="out of range"):
        embedding.embed(data[0] * 50, data[1] + 1)
    assert_same(embedding.embed(*data), atoms(make(small_cnn).embed(*data)))


@EVERY
@pytest.mark.parametrize(
    "surroundings",
    [lambda: torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode, torch.no_grad],
    ids=["autocast", "inference mode", "no grad"],
)
def test_the_callers_mode_changes_nothing(
    make: Callable[..., GradientEmbedding], surroundings: Callable[[], AbstractContextManager[None]]
) -> None:
    data, later = make_examples(SHAPE, 9), make_examples(SHAPE, 9, seed=1)
    model = small_cnn()
    embedding = make(model)
    exact = atoms(embedding.embed(*data)), atoms(embedding.embed(*later))
    with surroundings():
        inside = make(model)
        found = atoms(inside.embed(data[0].clone(), data[1]))
    assert torch.equal(found, exact[0])
    assert torch.equal(atoms(inside.embed(*later)), exact[1])


@EVERY
def test_compiled_models_are_embedded_as_what_they_are(
    make: Callable[..., GradientEmbedding],
) -> None:
    model, data = mlp(12, 4), make_examples((12,), 5)
    inner = nn.Sequential(torch.compile(model[:2]), *model[2:])
    exact = atoms(make(model).embed(*data))
    for compiled in (torch.compile(model), inner):
        embedding = make(compiled)
        assert_same(embedding.embed(*data), exact)
        embedding.check_model(compiled)


@EVERY
def test_caller_and_global_state_are_untouched(make: Callable[..., GradientEmbedding]) -> None:
    model = small_cnn().train()
    inputs, targets = make_examples(SHAPE, 6)
    model(inputs).sum().backward()
    before = copy.deepcopy(model.state_dict())
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    state, kept = torch.get_rng_state(), (inputs.clone(), targets.clone())
    make(model).embed(inputs, targets)
    assert torch.equal(state, torch.get_rng_state())
    assert torch.is_grad_enabled()
    assert torch.equal(inputs, kept[0]) and torch.equal(targets, kept[1])
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert all(
        torch.equal(old, new.grad) for old, new in zip(gradients, model.parameters(), strict=True)
    )
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@EVERY
def test_first_data_calibrates_the_embedding(make: Callable[..., GradientEmbedding]) -> None:
    embedding = make(small_cnn)
    first, later = make_examples(SHAPE, 12), make_examples(SHAPE, 12, seed=1)
    exact = atoms(embedding.embed(*first))
    embedding.embed(later[0] * 50, later[1])
    assert_same(embedding.embed(*first), exact)


@EVERY
@pytest.mark.parametrize("as_dataset", [False, True], ids=["tensors", "dataset"])
def test_no_examples_give_no_atoms_and_calibrate_nothing(
    make: Callable[..., GradientEmbedding], as_dataset: bool
) -> None:
    embedding = make(small_cnn)
    inputs, targets = make_examples(SHAPE, 8)
    nothing = inputs[:0], targets[:0]
    empty = embedding.embed(TensorDataset(*nothing)) if as_dataset else embedding.embed(*nothing)
    assert (empty.num_atoms, empty.dim) == (0, embedding.dim)
    full = embedding.embed(inputs, targets)
    assert full.dim == empty.dim == embedding.dim
    assert_same(empty.concat(full), atoms(make(small_cnn).embed(inputs, targets)))


@EVERY
def test_dropout_is_off(make: Callable[..., GradientEmbedding]) -> None:
    model = nn.Sequential(nn.Linear(12, 9), nn.Dropout(0.9), nn.Linear(9, 4)).train()
    embedding, data = make(model), make_examples((12,), 5)
    assert torch.equal(atoms(embedding.embed(*data)), atoms(embedding.embed(*data)))


@EVERY
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_floating_inputs_of_any_type(
    make: Callable[..., GradientEmbedding], dtype: torch.dtype
) -> None:
    inputs, targets = make_examples(SHAPE, 5)
    inputs = inputs.bfloat16().half().to(dtype)
    found = make(small_cnn).embed(inputs, targets.to(torch.uint8))
    assert found.dtype == torch.float32
    assert_same(found, atoms(make(small_cnn).embed(inputs.float(), targets)))


@EVERY
def test_models_in_double_precision(make: Callable[..., GradientEmbedding]) -> None:
    inputs, targets = make_examples(SHAPE, 5)
    found = make(lambda: small_cnn().double()).embed(inputs, targets)
    assert found.dtype == torch.float32
    assert_same(found, atoms(make(small_cnn).embed(inputs, targets)))


@EVERY
def test_integer_inputs_where_the_model_takes_them(make: Callable[..., GradientEmbedding]) -> None:
    found = make(Tokens).embed(torch.randint(9, (6, 3)), torch.randint(4, (6,)))
    assert found.norms().min() > 0


@EVERY
def test_integer_images_are_refused_with_advice(make: Callable[..., GradientEmbedding]) -> None:
    images = torch.randint(256, (5, *SHAPE), dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"inputs of type torch\.uint8.*float\(\) / 255"):
        make(small_cnn).embed(images, torch.zeros(5, dtype=torch.int64))


@EVERY
@pytest.mark.parametrize(("position", "target"), [(11, 4), (3, -1)])
def test_targets_without_an_output_are_named(
    make: Callable[..., GradientEmbedding], position: int, target: int
) -> None:
    inputs, targets = make_examples(SHAPE, 14)
    embedding = make(small_cnn, batch_size=5)
    embedding.embed(inputs, targets)
    targets[position] = target
    with pytest.raises(ValueError, match=rf"target {target} of example {position} .* 4 outputs"):
        embedding.embed(inputs, targets)


@EVERY
def test_targets_in_a_column_of_their_own(make: Callable[..., GradientEmbedding]) -> None:
    inputs, targets = make_examples(SHAPE, 5)
    exact = atoms(make(small_cnn).embed(inputs, targets))
    assert_same(make(small_cnn).embed(inputs, targets[:, None]), exact)
    assert_same(make(small_cnn).embed(TensorDataset(inputs, targets[:, None])), exact)


@EVERY
@pytest.mark.parametrize(
    ("loss", "ignored"), [(None, -100), (nn.CrossEntropyLoss(ignore_index=7), 7)]
)
def test_ignored_targets_have_no_gradient(
    make: Callable[..., GradientEmbedding], loss: nn.Module | None, ignored: int
) -> None:
    inputs, targets = make_examples(SHAPE, 5)
    embedding = make(small_cnn, loss=loss)
    exact = atoms(embedding.embed(inputs, targets))
    targets[2] = ignored
    found = embedding.embed(inputs, targets)
    exact[2] = 0
    assert_same(found, exact)


@EVERY
@pytest.mark.parametrize("scale", [1e20, 1e38])
def test_huge_inputs_are_named(make: Callable[..., GradientEmbedding], scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(5, 12, generator=generator) * scale
    with pytest.raises(ValueError, match=r"example \d at draw 0 .*scale the inputs"):
        make(lambda: mlp(12, 4)).embed(inputs, torch.arange(5) % 4)


@EVERY
def test_gradients_that_are_not_finite_are_named(make: Callable[..., GradientEmbedding]) -> None:
    inputs, targets = make_examples(SHAPE, 14)
    embedding = make(small_cnn, batch_size=5)
    embedding.embed(inputs, targets)
    inputs[11, 0, 2, 2] = torch.nan
    with pytest.raises(ValueError, match="gradient of example 11 at draw 0 is not finite or"):
        embedding.embed(inputs, targets)


@EVERY
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda x, y: (x, y[:-1]), "5 inputs and 4 targets"),
        (lambda x, y: (x,), "two tensors.*or one dataset"),
        (lambda x, y: (TensorDataset(x, y), y), "two tensors.*or one dataset"),
        (lambda x, y: ([("picture", 0)],), "items, of type str, cannot be stacked.*ToTensor"),
        (lambda x, y: ([(x[0], "cat")],), "targets, of type str, cannot be stacked.*class label"),
        (lambda x, y: ([(x[0], None)],), "targets, of type NoneType, cannot be stacked"),
        (lambda x, y: ([(x[0], {"label": 1})],), "targets, of type dict, cannot be stacked"),
        (lambda x, y: (x, y.float()), r"must be integers, got .* torch\.float32; convert"),
    ],
)
def test_data_of_the_wrong_form_is_refused(
    make: Callable[..., GradientEmbedding],
    given: Callable[[Tensor, Tensor], tuple[object, ...]],
    message: str,
) -> None:
    with pytest.raises(ValueError, match=message):
        make(small_cnn).embed(*given(*make_examples(SHAPE, 5)))  # type: ignore[arg-type]


@EVERY
def test_models_and_losses_of_the_wrong_form_are_refused(
    make: Callable[..., GradientEmbedding],
) -> None:
    data = make_examples((12,), 5)
    with pytest.raises(
        ValueError, match=r"one tensor with a row of outputs.*got tuple.*SelectOutput"
    ):
        make(lambda: Talkative(tuple)).embed(*data)
    with pytest.raises(ValueError, match=r"one value per example.*returned shape \(\)"):
        make(lambda: mlp(12, 4), loss=lambda out, y: F.cross_entropy(out, y)).embed(*data)


@EVERY
def test_a_head_that_changed_is_refused(make: Callable[..., GradientEmbedding]) -> None:
    embedding = make(lambda: mlp(12, 4))
    embedding.check_model(mlp(12, 4))
    with pytest.raises(
        ValueError, match=r"parameter 4\.weight has the shape \(6, 128\).*\(4, 128\)"
    ):
        embedding.check_model(mlp(12, 6))


def test_the_local_variant_is_frozen_at_the_weights_it_was_given() -> None:
    model = small_cnn().train()
    inputs, targets = make_examples(SHAPE, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    nn.functional.cross_entropy(model(inputs), targets).backward()
    statistics = model[0][1].running_mean.clone()
    embedding = LocalEmbedding(model)
    exact = atoms(embedding.embed(inputs, targets))
    head = copy.deepcopy(model).eval()
    loss = nn.functional.cross_entropy(head(inputs[:1]), targets[:1])
    weight, bias = torch.autograd.grad(loss, [head[-1].weight, head[-1].bias])
    torch.testing.assert_close(exact[0], torch.cat([weight, bias[:, None]], 1).flatten())
    optimizer.step()
    assert_same(embedding.embed(inputs, targets), exact)
    assert torch.equal(statistics, model[0][1].running_mean)


def test_the_local_variant_refuses_what_it_cannot_use() -> None:
    with pytest.raises(ValueError, match=r"\['last-layer', 'random-projection'\], got 'all'"):
        LocalEmbedding(mlp(2, 2), reduction="all")
    with pytest.raises(ValueError, match="trained module itself, got function"):
        LocalEmbedding(lambda: mlp(2, 2))  # type: ignore[arg-type]


def test_processes_agree() -> None:
    code = """
import torch
from avalanche_gmc.embedding import LastLayerEmbedding, RandomProjectionEmbedding
from benchmarks.streams.models import mlp
torch.manual_seed(int(__import__("os").urandom(2).hex(), 16))
x, y = torch.linspace(-1, 1, 60).view(5, 12), torch.arange(5) % 4
embeddings = [
    LastLayerEmbedding(mlp(12, 4), seed=7),
    RandomProjectionEmbedding(mlp(12, 4), dim=9, seed=7),
    RandomProjectionEmbedding(lambda: mlp(12, 4), dim=9, projection="rademacher", seed=7),
]
sums = [embedding.embed(x, y).sum() for embedding in embeddings]
print(torch.cat(sums).tolist())
"""
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    scope: dict[str, object] = {"print": lambda _: None}
    exec(code, scope)
    here = torch.cat(scope["sums"]).tolist()  # type: ignore[call-overload]
    assert here == pytest.approx(eval(there.stdout), rel=1e-5, abs=1e-5)


def digit_images() -> tuple[Tensor, Tensor]:
    """scikit-learn's digits, enlarged to 16×16 so that four poolings have something to pool."""
    digits = load_digits()
    images = torch.as_tensor(digits.images, dtype=torch.float32)[:, None] / 8 - 1
    return nn.functional.interpolate(images, scale_factor=2), torch.as_tensor(digits.target)


def effective_rank(matrix: Tensor) -> float:
    """The participation ratio of the singular values' squares."""
    squares = torch.linalg.svdvals(matrix.double()).square()
    return float(squares.sum() ** 2 / squares.square().sum())


def fresh_statistics() -> nn.Module:
    """The CNN with batch-norm statistics that count as trained, and are mean 0 and variance 1."""
    model = cnn()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.num_batches_tracked.fill_(1)
    return model


# Effective ranks when this was written: 12.1 and 30.5; with fresh statistics 9.0 and 12.3. Nine is
# what the classes alone give: ten errors that add up to nearly nothing.
GUARDED = {
    "last layer": (LastLayerEmbedding, 11.0),
    "sparse": (lambda model: RandomProjectionEmbedding(model, draws=2, dim=1000), 22.0),
}


@pytest.mark.parametrize("kind", list(GUARDED))
def test_a_small_memory_of_a_class_incremental_stream_keeps_every_class(kind: str) -> None:
    make, rank_floor = GUARDED[kind]
    images, labels = digit_images()
    embedding, collapsed = make(cnn), make(fresh_statistics)
    memory, target, owners = None, torch.zeros(embedding.dim).double(), torch.zeros(0).long()
    for task in range(5):
        new = (labels // 2 == task).nonzero().flatten()
        dictionary = embedding.embed(images[new], labels[new])
        target += dictionary.sum()
        owners = torch.cat([owners, new])
        joined = dictionary if memory is None else memory.concat(dictionary)
        coreset = orthogonal_matching_pursuit(joined, target, 100)
        memory, owners = joined.take(coreset.indices), owners[coreset.indices]
    counts = torch.bincount(labels[owners], minlength=10)
    assert counts.min() >= 5, counts.tolist()
    some = images[::4], labels[::4]
    assert effective_rank(atoms(embedding.embed(*some))) > rank_floor
    assert effective_rank(atoms(collapsed.embed(*some))) < rank_floor


@pytest.mark.parametrize(("width", "expected"), [(8, 1024), (2**14, 256), (2**23, 1)])
def test_batches_are_as_large_as_activations_allow(width: int, expected: int) -> None:
    def wide() -> nn.Module:
        return nn.Sequential(nn.Linear(1, width), nn.AdaptiveAvgPool1d(2), nn.Linear(2, 2))

    data = TensorDataset(torch.zeros(3, 1), torch.zeros(3))
    assert LastLayerEmbedding(wide, draws=1).batch_size_for(Examples(data)) == expected
    assert LastLayerEmbedding(wide, draws=1, batch_size=7).batch_size_for(Examples(data)) == 7
