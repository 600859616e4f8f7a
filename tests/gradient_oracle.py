"""Slow, independent oracles for gradient embeddings, and the models they are tried on.

Letters: N examples, P parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models import resnet18 as torchvision_resnet18
from torchvision.models.vision_transformer import VisionTransformer

from avalanche_gmc.embedding import SelectOutput
from benchmarks.streams.models import cnn, mlp, resnet18


class TiedAutoencoder(nn.Module):
    """Uses one weight twice: in its layer, and transposed outside of any layer."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(12, 5)
        self.head = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        decoded = F.linear(torch.tanh(self.encoder(x)), self.encoder.weight.t())
        return self.head(decoded)


class SharedLayer(nn.Module):
    """Calls one layer twice, and ties the weight of a third layer to it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(12, 12)
        self.other = nn.Linear(12, 12)
        self.other.weight = self.inner.weight
        self.head = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.other(torch.tanh(self.inner(self.inner(x))))))


class Convolutions(nn.Module):
    """Strides, dilation, groups, kinds of padding, in-place activations, batch norm, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(2, 6, (3, 2), stride=(2, 1), padding=(1, 0), bias=False),
            nn.BatchNorm2d(6),
            nn.ReLU(inplace=True),
            nn.Conv2d(6, 6, 3, padding="same", dilation=2, groups=3, padding_mode="reflect"),
            nn.ReLU(inplace=True),
            nn.Conv2d(6, 5, 2, padding=1, padding_mode="circular"),
            nn.Flatten(1),
            nn.LazyLinear(7),
            nn.BatchNorm1d(7),
            nn.Dropout(),
            nn.Linear(7, 4),
        )
        self.body(torch.zeros(2, 2, 9, 8))
        self.body[1].reset_running_stats()
        self.body[8].reset_running_stats()

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.body(x)
        return output


class Tokens(nn.Module):
    """Layers over positions, an embedding table and layer norm, for integer inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 6)
        self.mix = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        output: Tensor = self.head(self.norm(self.mix(self.table(tokens))).mean(dim=1))
        return output


class TextClassifier(nn.Module):
    """Attention over embedded tokens, averaged."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 8)
        layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.classifier = nn.Linear(8, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        output: Tensor = self.classifier(self.encoder(self.table(tokens)).mean(dim=1))
        return output


class Recurrent(nn.Module):
    """A recurrent layer over embedded tokens."""

    def __init__(self, kind: type[nn.RNNBase] = nn.LSTM) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 6)
        self.steps = kind(6, 5, batch_first=True)  # type: ignore[call-arg]
        self.head = nn.Linear(5, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        output: Tensor = self.head(self.steps(self.table(tokens))[0][:, -1])
        return output


class NamedHead(nn.Module):
    """As timm has them: a head under one of several names, followed by nothing, and dropout."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 5, 3, stride=2), nn.BatchNorm2d(5), nn.GELU())
        self.add_module(name, nn.Linear(5, 4))
        self.name = name
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        pooled = self.drop(self.stem(x).mean(dim=(2, 3)))
        output: Tensor = self.get_submodule(self.name)(pooled)
        return output


class Answer(NamedTuple):
    hidden: Tensor
    logits: Tensor


class Talkative(nn.Module):
    """Returns its outputs among other things: in a dict, a tuple or an object."""

    def __init__(self, kind: type[Any]) -> None:
        super().__init__()
        self.kind = kind
        self.body, self.head = nn.Linear(12, 5), nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Any:
        hidden = torch.tanh(self.body(x))
        answer = Answer(hidden, self.head(hidden))
        return {dict: answer._asdict(), tuple: tuple(answer), Answer: answer}[self.kind]


def small_vit() -> nn.Module:
    return VisionTransformer(
        image_size=16,
        patch_size=8,
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        mlp_dim=16,
        num_classes=4,
    )


def partly_frozen() -> nn.Module:
    """An MLP whose first layer is frozen."""
    model = mlp(12, 4)
    model[0].requires_grad_(False)
    return model


def head_only() -> nn.Module:
    """A convolutional model of which only the last layer is trained."""
    model = cnn(num_classes=4).requires_grad_(False)
    model[-1].requires_grad_(True)
    return model


def normless() -> nn.Module:
    """Convolutions without batch norm."""
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3 * 49, 4)
    )


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: mlp(12, 4), (12,)),
    "cnn": (lambda: cnn(num_classes=4), (1, 16, 16)),
    "cnn without batch norm": (normless, (1, 16, 16)),
    "resnet18": (lambda: resnet18(num_classes=4), (3, 32, 32)),
    "odd convolutions": (Convolutions, (2, 9, 8)),
    "partly frozen": (partly_frozen, (12,)),
    "head only": (head_only, (1, 16, 16)),
    "shared layers": (SharedLayer, (12,)),
    "tied outside of a layer": (TiedAutoencoder, (12,)),
}


TOKENS = (7,)
ARCHITECTURES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "torchvision resnet18": (lambda: torchvision_resnet18(num_classes=4), (3, 32, 32)),
    "torchvision vit": (small_vit, (3, 16, 16)),
    "transformer": (TextClassifier, TOKENS),
    "lstm": (Recurrent, TOKENS),
    "head": (lambda: NamedHead("head"), (3, 8, 8)),
    "fc": (lambda: NamedHead("fc"), (3, 8, 8)),
    "classifier": (lambda: NamedHead("classifier"), (3, 8, 8)),
    "dict": (lambda: SelectOutput(Talkative(dict), "logits"), (12,)),
    "tuple": (lambda: SelectOutput(Talkative(tuple), -1), (12,)),
    "object": (lambda: SelectOutput(Talkative(Answer), "logits"), (12,)),
}
"""What people train, each with the shape of an example; TOKENS are integers."""


def make_examples(shape: tuple[int, ...], count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Random inputs N×shape and targets N of 4 classes."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.rand(count, *shape, generator=generator)
    if shape == TOKENS:
        inputs = (inputs * 9).long()
    return inputs, torch.randint(4, (count,), generator=generator)


def gradient_loop(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
) -> list[list[Tensor]]:
    """For each example alone, autograd's gradient of every trainable parameter."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    rows = []
    for x, y in zip(inputs, targets, strict=True):
        value = loss(model(x[None]), y[None]).sum()
        rows.append(list(torch.autograd.grad(value, parameters, materialize_grads=True)))
    return rows
