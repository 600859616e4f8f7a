"""
An imbalanced stream
====================

Matching the sum of all gradients reproduces the imbalance of a stream: classes with few examples
count little. With ``target="balanced"`` all classes count alike, however rare.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from avalanche.benchmarks import benchmark_from_datasets
from avalanche.benchmarks.utils import as_classification_dataset
from avalanche.training.storage_policy import ReservoirSamplingBuffer
from avalanche.training.supervised import Naive
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from avalanche_gmc import CoresetGDumbPlugin, GradientMatchingBuffer

# %%
# The stream
# ----------
# Eight classes have 15 images each, the last two about 120 each.

images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
images = images.float() / 16


def of_classes(classes, count):
    chosen = torch.cat([(labels[:1200] == label).nonzero()[:count, 0] for label in classes])
    chosen = chosen[torch.randperm(len(chosen))]
    data = TensorDataset(images[chosen], labels[chosen])
    data.targets = labels[chosen].tolist()
    return as_classification_dataset(data)


torch.manual_seed(0)
parts = [of_classes([first, first + 1], 15) for first in range(0, 8, 2)]
parts.append(of_classes([8, 9], 200))
benchmark = benchmark_from_datasets(train=parts)
print([len(part) for part in parts])

# %%
# Three memories of 30
# --------------------


def recall_and_counts(memory):
    """The accuracy on each class, and its exemplars."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    strategy = Naive(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=1e-2),
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=30,
        train_epochs=100,
        plugins=[CoresetGDumbPlugin(memory.max_size, memory, train_on="last")],
        evaluator=None,
    )
    for experience in benchmark.train_stream:
        strategy.train(experience)
    with torch.no_grad():
        right = model(images[1200:]).argmax(1) == labels[1200:]
    recall = [right[labels[1200:] == label].float().mean().item() for label in range(10)]
    kept = torch.tensor([int(y) for _, y, *_ in memory.buffer])
    return recall, torch.bincount(kept, minlength=10).tolist()


found = {
    "balanced target": recall_and_counts(GradientMatchingBuffer(30, target="balanced")),
    "stream target": recall_and_counts(GradientMatchingBuffer(30)),
    "reservoir": recall_and_counts(ReservoirSamplingBuffer(30)),
}

# %%
# What came of it
# ---------------
# The mean over classes says how well the rare ones are known. One run of each: look at the order,
# not at the second digit.

figure, (top, bottom) = plt.subplots(2, 1, figsize=(7, 5), sharex=True, layout="constrained")
for i, (name, (recall, counts)) in enumerate(found.items()):
    places = np.arange(10) + 0.27 * (i - 1)
    top.bar(places, counts, width=0.25, label=name)
    bottom.bar(places, recall, width=0.25, label=f"{name}: mean {np.mean(recall):.2f}")
top.set(ylabel="exemplars")
bottom.set(xlabel="class (8 and 9 make up most of the stream)", ylabel="accuracy")
bottom.set_xticks(range(10))
for axes in (top, bottom):
    axes.legend(fontsize=8, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1))
plt.show()
