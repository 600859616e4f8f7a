"""The paper's three models (appendix "Model architectures") and others', as PyTorch draws them.

Shapes: N examples, F input features, C image channels, K classes.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import nn


def mlp(num_features: int, num_classes: int, width: int = 128) -> nn.Sequential:
    """Two hidden layers of ReLU units, the paper's 128, and a linear output: N×F → N×K."""
    return nn.Sequential(
        nn.Linear(num_features, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, num_classes),
    )


def normalized_mlp(num_features: int, num_classes: int, width: int) -> nn.Sequential:
    """The model of GDumb's authors for MNIST, with batch normalisation: N×… → N×K."""
    hidden = [
        nn.Sequential(nn.Linear(size, width, bias=False), nn.BatchNorm1d(width), nn.ReLU())
        for size in (num_features, width)
    ]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(width, num_classes))


def cnn(num_classes: int = 10, in_channels: int = 1) -> nn.Sequential:
    """Four blocks of 64 filters, spatial average, linear output: N×C×height×width → N×K."""
    blocks = [_block(channels) for channels in (in_channels, 64, 64, 64)]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, num_classes))


def _block(in_channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(in_channels, 64, kernel_size=3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )


def dropout_cnn(num_classes: int = 10) -> nn.Sequential:
    """The model of Borsos et al. (2020) for MNIST: N×1×28×28 → N×K."""
    return nn.Sequential(
        *(nn.Conv2d(1, 32, kernel_size=5), nn.Dropout(), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, kernel_size=5), nn.Dropout(), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1024, 128), nn.ReLU(), nn.Dropout()),
        nn.Linear(128, num_classes),
    )


def resnet18(num_classes: int = 10) -> nn.Module:
    """torchvision's ResNet-18, unchanged and untrained: N×3×height×width → N×K."""
    from torchvision.models import resnet18 as torchvision_resnet18

    model: nn.Module = torchvision_resnet18(weights=None, num_classes=num_classes)
    return model


def small_image_resnet18(num_classes: int = 10) -> nn.Module:
    """ResNet-18 as GDumb's authors and many others have it for 32×32 images: N×3×32×32 → N×K.

    It begins with a 3×3 convolution of stride 1 and has no max pooling.
    """
    model: Any = resnet18(num_classes)
    model.conv1 = nn.Conv2d(3, 64, kernel_size=3, padding=1, bias=False)
    nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
    model.maxpool = nn.Identity()
    return cast(nn.Module, model)


def count_parameters(model: nn.Module) -> int:
    """Number of trainable parameters."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def channels_last(model: nn.Module) -> nn.Module:
    """The same model with its convolutions stored channels-last, which is faster on CPUs."""
    return model.to(memory_format=torch.channels_last)
