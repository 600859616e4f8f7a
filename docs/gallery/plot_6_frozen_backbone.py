"""
A frozen backbone
=================

Often only the head of a model is trained, on top of a backbone that is pretrained and frozen. Then
a draw should be the pretrained weights with a fresh head, and so it is: parameters that are frozen
keep their values. Here a ResNet-18 learns the digits 0 to 4, is saved, loaded and frozen, and a new
head learns all ten digits from a stream.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from avalanche.benchmarks import class_incremental_benchmark
from avalanche.benchmarks.utils import as_classification_dataset
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.storage_policy import ReservoirSamplingBuffer
from avalanche.training.supervised import Naive
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset
from torchvision.models import resnet18

from avalanche_gmc import CoresetGDumbPlugin, GradientMatchingBuffer, Redrawn

images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
images = nn.functional.interpolate(images.float().reshape(-1, 1, 8, 8) / 16, size=(24, 24))
images = images.expand(-1, 3, -1, -1).contiguous()  # ResNet-18 takes three colours

# %%
# A file of pretrained weights
# ----------------------------
# It stands for the one that you have. These documents are built without a network; with one,
# ``resnet18(weights="DEFAULT")`` fetches weights of ImageNet.

torch.manual_seed(0)
pretrained = resnet18(num_classes=5)
small = [i for i in range(600) if labels[i] < 5]
optimizer = torch.optim.Adam(pretrained.parameters(), lr=1e-3)
for _ in range(8):
    for batch in torch.tensor(small)[torch.randperm(len(small))].split(32):
        loss = nn.functional.cross_entropy(pretrained(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
file = Path(tempfile.mkdtemp()) / "resnet18-digits.pt"
torch.save(pretrained.state_dict(), file)
print(f"loss {loss.item():.3f}, {file.stat().st_size / 1e6:.0f} MB")

# %%
# Load it, freeze it, give it a new head
# --------------------------------------
# ``requires_grad_(False)`` freezes the parameters. Batch norm has statistics too, which a strategy
# would update when it calls ``train()``: the backbone stays in ``eval()`` mode.


class FrozenBackbone(nn.Module):
    """A backbone that keeps what it knows, and a linear head."""

    def __init__(self, backbone, num_features, num_classes):
        super().__init__()
        self.backbone = backbone.requires_grad_(False)
        self.fc = nn.Linear(num_features, num_classes)

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, x):
        return self.fc(self.backbone(x))


def new_model():
    backbone = resnet18(num_classes=5)
    backbone.load_state_dict(torch.load(file, weights_only=True))
    backbone.fc = nn.Identity()  # the features themselves, 512 of them
    return FrozenBackbone(backbone, 512, 10)


# %%
# The stream
# ----------
# All ten digits, two at a time, in images that the backbone has not seen.

data = TensorDataset(images, labels)
data.targets = labels.tolist()
data = as_classification_dataset(data)
split = {"train": data.subset(range(600, 1200)), "test": data.subset(range(1200, 1797))}
benchmark = class_incremental_benchmark(split, num_experiences=5, class_order=[*range(10)])

# %%
# Two memories
# ------------
# ``Redrawn(model, only="fc")`` says what a fresh start is: this model, with a new ``fc``. GDumb
# starts each training there. The memory would find out by itself what is frozen.


def accuracy(kind, size):
    torch.manual_seed(0)
    model = new_model()
    start = Redrawn(model, only="fc")
    memory = kind(size)
    strategy = Naive(
        model=model,
        optimizer=torch.optim.Adam(model.fc.parameters(), lr=1e-2),
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=32,
        train_epochs=20,
        eval_mb_size=200,
        plugins=[CoresetGDumbPlugin(size, memory, train_on="last", model_factory=start)],
        evaluator=EvaluationPlugin(accuracy_metrics(stream=True), loggers=[]),
    )
    for experience in benchmark.train_stream:
        strategy.train(experience)
    results = strategy.eval(benchmark.test_stream)
    return next(v for k, v in results.items() if k.startswith("Top1_Acc_Stream"))


sizes = [10, 20, 40]
found = {
    "gradient matching": [accuracy(GradientMatchingBuffer, size) for size in sizes],
    "reservoir": [accuracy(ReservoirSamplingBuffer, size) for size in sizes],
}

# %%
# What came of it
# ---------------
# One run of each: look at the order, not at the second digit.

figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
for name, values in found.items():
    axes.plot(sizes, values, marker="o", label=name)
axes.set(xlabel="exemplars", ylabel="accuracy on all ten digits", ylim=(0, 1), xticks=sizes)
axes.legend()
plt.show()
