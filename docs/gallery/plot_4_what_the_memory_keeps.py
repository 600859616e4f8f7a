"""
What the memory keeps
=====================

A memory can be looked at at any time: ``buffer`` is an ordinary dataset of the exemplars and
``weights`` says how many examples each of them represents.
"""

import matplotlib.pyplot as plt
import torch
from avalanche.benchmarks import class_incremental_benchmark
from avalanche.benchmarks.utils import as_classification_dataset
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from avalanche_gmc import GradientMatchingBuffer, LastLayerEmbedding

images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
data = TensorDataset(images.float() / 16, labels)
data.targets = labels.tolist()
data = {"train": as_classification_dataset(data)}
stream = class_incremental_benchmark(
    data, class_order=list(range(10)), num_experiences=5
).train_stream


def new_model():
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


# %%
# Feed it
# -------
# No strategy is needed if the memory has an embedding of its own. After each experience we note
# what is in it.

memory = GradientMatchingBuffer(60, LastLayerEmbedding(new_model, draws=4))
snapshots = []
for experience in stream:
    memory.update_from_dataset(experience.dataset)
    snapshots.append((memory.class_counts, memory.residual_norm))
    print(memory)

# %%
# The exemplars
# -------------
# Sorted by class, with the weight above each. A weight of 40 says: this image represents 40.

figure, grid = plt.subplots(5, 12, figsize=(9, 4.6), layout="constrained")
by_class = sorted(range(60), key=lambda i: int(memory.buffer[i][1]))
for axes, i in zip(grid.flat, by_class, strict=True):
    axes.imshow(memory.buffer[i][0].reshape(8, 8), cmap="gray_r")
    axes.set_title(f"{memory.weights[i]:.0f}", fontsize=8, pad=2)
    axes.axis("off")
figure.suptitle("the memory after the stream, with weights")
plt.show()

# %%
# How it changes
# --------------
# Two classes come with each experience, and the classes before make room. The same 60 exemplars
# represent more and more, so that a larger part of the target's norm is left unmatched.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
steps = range(1, 6)
bottom = [0] * 5
for label in range(10):
    counts = [snapshot[0].get(label, 0) for snapshot in snapshots]
    left.bar(steps, counts, bottom=bottom, label=label, color=plt.cm.tab10(label))
    bottom = [a + b for a, b in zip(bottom, counts, strict=True)]
left.set(xlabel="experiences seen", ylabel="exemplars", title="by class")
left.legend(title="class", fontsize=7, ncols=2, loc="center left", bbox_to_anchor=(1, 0.5))
right.plot(steps, [snapshot[1] for snapshot in snapshots], marker="o", color="black")
right.set(xlabel="experiences seen", ylabel="relative residual", ylim=(0, 0.2))
right.set_title("what is not matched")
plt.show()
