"""Per-example gradients, by layer and by torch.func, against a loop of autograd."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from unittest import mock

import pytest
import torch
from gradient_oracle import MODELS, Recurrent, Tokens, gradient_loop, make_examples
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from avalanche_gmc.embedding.layers import RULES
from avalanche_gmc.embedding.losses import ExampleLoss
from avalanche_gmc.embedding.per_example import PerExampleGradients

SLOW_WAY = {"tied outside of a layer"}


def assemble(engine: PerExampleGradients, inputs: Tensor, targets: Tensor) -> dict[int, Tensor]:
    """All pieces put together: N×p for each block."""
    found: dict[int, Tensor] = {}
    for piece in engine.pieces(inputs, targets):
        gradients = piece.block.whole()
        whole = found.setdefault(piece.number, torch.zeros(len(inputs), gradients.shape[1]))
        whole[piece.rows] += gradients
    return found


def expected_blocks(model: nn.Module, inputs: Tensor, targets: Tensor, limit: int) -> list[Tensor]:
    """The loop's gradients, cut into blocks of whole channels as documented."""
    blocks = []
    for gradients in zip(*gradient_loop(model, inputs, targets), strict=True):
        stacked = torch.stack(gradients).to_dense()
        ordered = stacked.permute(0, 1, 3, 4, 2) if stacked.ndim == 5 else stacked
        matrix = ordered.reshape(len(inputs), stacked.shape[1], -1)
        blocks += [b.flatten(1) for b in matrix.split(max(1, limit // matrix.shape[2]), dim=1)]
    return blocks


def with_statistics(model: nn.Module, inputs: Tensor) -> nn.Module:
    """Statistics other than mean 0 and variance 1, so that mistakes with them show."""
    model.train()
    model(inputs)
    return model.eval()


CASES = [(name, limit) for name in MODELS for limit in (2**14, 100)]
CASES.remove(("resnet18", 100))  # a hundred thousand blocks


@pytest.mark.parametrize(("name", "limit"), CASES)
def test_gradients_equal_the_autograd_loop(
    name: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("avalanche_gmc.embedding.per_example.BLOCK_PARAMETERS", limit)
    factory, shape = MODELS[name]
    torch.manual_seed(0)
    model = with_statistics(factory(), make_examples(shape, 8)[0])
    inputs, targets = make_examples(shape, 5, seed=1)
    engine = PerExampleGradients(model, ExampleLoss(), work_elements=2**16)
    found = assemble(engine, inputs, targets)
    expected = expected_blocks(model, inputs, targets, limit)
    assert sorted(found) == list(range(len(expected)))
    for block, exact in enumerate(expected):
        scale = float(exact.abs().max())
        torch.testing.assert_close(found[block], exact, rtol=1e-3, atol=1e-4 * scale + 1e-7)
    assert engine.ways.by_layer is (name not in SLOW_WAY)


@given(
    height=st.integers(1, 4),
    width=st.integers(1, 4),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.integers(1, 3),
    padding=st.one_of(st.integers(0, 3), st.just("same")),
    dilation=st.integers(1, 2),
    limit=st.integers(1, 100),
)
def test_taps_that_meet_no_pixel_change_nothing(
    height: int,
    width: int,
    kernel: tuple[int, int],
    stride: int,
    padding: int | str,
    dilation: int,
    limit: int,
) -> None:
    zeros = 0 if isinstance(padding, str) else padding
    if isinstance(padding, str):
        stride = 1
    else:
        assume(height + 2 * zeros > dilation * (kernel[0] - 1))
        assume(width + 2 * zeros > dilation * (kernel[1] - 1))
    torch.manual_seed(0)
    options = {"stride": stride, "padding": padding, "dilation": dilation}
    layer = nn.Conv2d(2, 3, kernel, **options)
    model = nn.Sequential(layer, nn.Tanh(), nn.Flatten(), nn.LazyLinear(4))
    inputs, targets = torch.randn(3, 2, height, width), torch.tensor([0, 1, 3])
    model(inputs)
    with (
        mock.patch("avalanche_gmc.embedding.layers.FEWEST_CHANNELS", 1),
        mock.patch("avalanche_gmc.embedding.per_example.BLOCK_PARAMETERS", limit),
    ):
        engine = PerExampleGradients(model, ExampleLoss(), work_elements=50)
        found = assemble(engine, inputs, targets)
    assert engine.ways.by_layer
    for block, exact in enumerate(expected_blocks(model, inputs, targets, limit)):
        torch.testing.assert_close(found[block], exact, rtol=1e-3, atol=1e-5)


def test_only_taps_that_meet_a_pixel_are_computed() -> None:
    layer = nn.Conv2d(256, 8, 3, stride=2, padding=1)
    errors = torch.randn(2, 8, 1, 1)
    inputs = torch.randn(2, 256, 2, 2)  # met by the four taps of the lower right corner
    blocks = list(RULES[nn.Conv2d]["weight"](layer, inputs, errors, 8))
    assert [block.gradients.shape for block in blocks] == [(2, 8 * 4 * 256)]
    whole = blocks[0].whole().view(2, 8, 9, 256)
    assert (whole.count_nonzero(dim=(0, 1, 3)) > 0).tolist() == [False] * 4 + [
        *(True, True, False, True, True)
    ]


@pytest.mark.parametrize("name", ["mlp", "cnn", "odd convolutions", "shared layers"])
def test_both_ways_agree(name: str) -> None:
    factory, shape = MODELS[name]
    torch.manual_seed(0)
    model = with_statistics(factory(), make_examples(shape, 8)[0])
    inputs, targets = make_examples(shape, 6, seed=1)
    fast = PerExampleGradients(model, ExampleLoss(), work_elements=1)
    slow = PerExampleGradients(model, ExampleLoss(), work_elements=2**20)
    slow.ways.by_layer = False
    one, other = (assemble(engine, inputs, targets) for engine in (fast, slow))
    assert one.keys() == other.keys()
    for block in one:
        torch.testing.assert_close(one[block], other[block], rtol=1e-3, atol=1e-5)


def test_embedding_tables_and_layer_norm_take_the_general_way() -> None:
    torch.manual_seed(0)
    model = Tokens().eval()
    inputs = torch.randint(9, (5, 3))
    targets = torch.randint(4, (5,))
    engine = PerExampleGradients(model, ExampleLoss(), work_elements=1)
    found = assemble(engine, inputs, targets)
    expected = expected_blocks(model, inputs, targets, 2**14)
    assert not engine.ways.by_layer
    for block, exact in enumerate(expected):
        torch.testing.assert_close(found[block], exact, rtol=1e-4, atol=1e-6)


class MixesExamples(nn.Module):
    """Rows of its layer are not examples: it turns two examples into positions and back."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layer(x.reshape(-1, 3)).reshape(len(x), -1, 2).sum(dim=1)
        return output


def test_layers_whose_rows_are_not_examples_take_the_general_way() -> None:
    torch.manual_seed(0)
    model = MixesExamples()
    inputs, targets = torch.rand(4, 2, 3), torch.tensor([0, 1, 1, 0])
    engine = PerExampleGradients(model, ExampleLoss(), work_elements=100)
    found = assemble(engine, inputs, targets)
    assert not engine.ways.by_layer
    for block, exact in enumerate(expected_blocks(model, inputs, targets, 2**14)):
        torch.testing.assert_close(found[block], exact)


class AlsoElsewhere(nn.Module):
    """Uses its layer's weight a second time, if the inputs are larger than a threshold."""

    def __init__(self, threshold: float) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(4, 4), nn.Linear(4, 2)
        self.threshold = threshold

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.layer(x)
        if x.abs().max() > self.threshold:
            hidden = hidden + F.linear(x, self.layer.weight)
        output: Tensor = self.head(torch.tanh(hidden))
        return output


@pytest.mark.parametrize("threshold", [-1.0, 50.0], ids=["always", "in a later batch"])
def test_zero_examples_cannot_hide_that_a_weight_is_used_elsewhere(threshold: float) -> None:
    torch.manual_seed(0)
    model = AlsoElsewhere(threshold)
    engine = PerExampleGradients(model, ExampleLoss(), work_elements=100)
    targets = torch.arange(5) % 2
    assemble(engine, torch.zeros(5, 4), targets)
    inputs = torch.randn(5, 4) * 100
    found = assemble(engine, inputs, targets)
    assert not engine.ways.by_layer
    for block, exact in enumerate(expected_blocks(model, inputs, targets, 2**14)):
        torch.testing.assert_close(found[block], exact)


class RoundedByBatch(nn.Module):
    """Stands for rounding, which is another for an example alone: half of its activations are at
    a kink, and above it only in company."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(4, 6), nn.Linear(6, 3)
        with torch.no_grad():
            self.layer.weight[:3], self.layer.bias[:3] = 0, 0

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.layer(x) + (1e-6 if len(x) > 1 else -1e-6)
        output: Tensor = self.head(F.relu(hidden))
        return output


def test_rounding_does_not_send_a_model_the_slow_way() -> None:
    torch.manual_seed(0)
    model, targets = RoundedByBatch(), torch.arange(6) % 3
    inputs = torch.randn(6, 4)
    engine = PerExampleGradients(model, ExampleLoss(), work_elements=100)
    found = assemble(engine, inputs, targets)
    assert engine.ways.by_layer
    gradients = torch.autograd.grad(
        F.cross_entropy(model(inputs), targets, reduction="sum"), list(model.parameters())
    )
    for block, gradient in enumerate(gradients):
        torch.testing.assert_close(found[block].sum(0), gradient.flatten())


class LooksAtTheBatch(nn.Module):
    """Scales its outputs by other examples, without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.layer(x)
        return hidden / hidden.detach().abs().mean()


def test_outputs_that_depend_on_other_examples_take_the_general_way() -> None:
    torch.manual_seed(0)
    model, inputs, targets = LooksAtTheBatch(), torch.randn(6, 4), torch.arange(6) % 3
    engine = PerExampleGradients(model, ExampleLoss(), work_elements=100)
    found = assemble(engine, inputs, targets)
    assert not engine.ways.by_layer
    for block, exact in enumerate(expected_blocks(model, inputs, targets, 2**14)):
        torch.testing.assert_close(found[block], exact)


class TimeFirst(nn.Module):
    """Lets a layer run over (positions, examples) instead of (examples, positions)."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layer(x.transpose(0, 1)).mean(dim=0)
        return output


class Backwards(TimeFirst):
    """Turns the order of the examples around and back."""

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layer(x.mean(dim=1).flip(0)).flip(0)
        return output


@pytest.mark.parametrize("kind", [TimeFirst, Backwards])
@pytest.mark.parametrize("positions", [2, 3, 5])
def test_equal_examples_cannot_hide_that_rows_are_not_examples(
    kind: type[nn.Module], positions: int
) -> None:
    torch.manual_seed(0)
    model, targets = kind(), torch.arange(positions) % 2
    engine = PerExampleGradients(model, ExampleLoss(), work_elements=100)
    assemble(engine, torch.ones(positions, positions, 3), targets)
    inputs = torch.randn(positions, positions, 3)
    found = assemble(engine, inputs, targets)
    for block, exact in enumerate(expected_blocks(model, inputs, targets, 2**14)):
        torch.testing.assert_close(found[block], exact)


class AsksForValues(nn.Module):
    """Control flow by values, which torch.func cannot follow; a sparse gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 6, sparse=True)
        self.head = nn.Linear(6, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.table(tokens).mean(dim=1)
        output: Tensor = self.head(hidden if hidden.sum() > 0 else -hidden)
        return output


@pytest.mark.parametrize(
    "make",
    [*(partial(Recurrent, kind) for kind in (nn.RNN, nn.GRU, nn.LSTM)), AsksForValues],
    ids=["rnn", "gru", "lstm", "control flow"],
)
def test_models_that_torch_func_cannot_run_go_example_by_example(
    make: Callable[[], nn.Module],
) -> None:
    torch.manual_seed(0)
    model = make().eval()
    inputs, targets = torch.randint(9, (5, 3)), torch.randint(4, (5,))
    engine = PerExampleGradients(model, ExampleLoss(), work_elements=500)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = assemble(engine, inputs, targets)
    for block, exact in enumerate(expected_blocks(model, inputs, targets, 2**14)):
        torch.testing.assert_close(found[block], exact)


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets[:, None]).square().sum(dim=1)


@pytest.mark.parametrize(
    "loss", [squared_error, nn.CrossEntropyLoss(label_smoothing=0.3)], ids=["squares", "smoothed"]
)
def test_any_loss_per_example(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    model = MODELS["mlp"][0]()
    inputs, targets = make_examples((12,), 5)
    found = assemble(PerExampleGradients(model, ExampleLoss(loss), 2**20), inputs, targets)
    for example, gradients in enumerate(gradient_loop(model, inputs, targets, loss)):
        for block, gradient in enumerate(gradients):
            torch.testing.assert_close(found[block][example], gradient.flatten())


def test_models_are_left_as_they_were() -> None:
    model = MODELS["cnn"][0]().eval()
    engine = PerExampleGradients(model, ExampleLoss(), 2**20)
    assemble(engine, *make_examples((1, 16, 16), 3))
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())
