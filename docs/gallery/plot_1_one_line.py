"""
One line in a replay strategy
=============================

A strategy with experience replay becomes one with gradient matching by changing one line: the
plugin. Here scikit-learn's digits come two classes at a time, and 50 of 1,200 images are kept.
"""

import matplotlib.pyplot as plt
import torch
from avalanche.benchmarks import class_incremental_benchmark
from avalanche.benchmarks.utils import as_classification_dataset
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin
from avalanche.training.storage_policy import ReservoirSamplingBuffer
from avalanche.training.supervised import Naive
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from avalanche_gmc import CoresetReplayPlugin

# %%
# The stream
# ----------
# Avalanche makes a class-incremental stream from any dataset with ``targets``.

images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
data = TensorDataset(images.float() / 16, labels)
data.targets = labels.tolist()
data = as_classification_dataset(data)
split = {"train": data.subset(range(1200)), "test": data.subset(range(1200, 1797))}
benchmark = class_incremental_benchmark(split, class_order=list(range(10)), num_experiences=5)


# %%
# Three strategies, one line apart
# --------------------------------
# ``plugins`` is all that differs. Avalanche's evaluator measures the accuracy on all ten classes.


def accuracies(plugins):
    """The accuracy on the whole test set after each experience."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    strategy = Naive(
        model=model,
        optimizer=torch.optim.Adam(model.parameters()),
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=32,
        train_epochs=20,
        eval_mb_size=600,
        plugins=plugins,
        evaluator=EvaluationPlugin(accuracy_metrics(stream=True), loggers=[]),
    )
    after_each = []
    for experience in benchmark.train_stream:
        strategy.train(experience)
        results = strategy.eval(benchmark.test_stream)
        after_each.append(next(v for k, v in results.items() if k.startswith("Top1_Acc_Stream")))
    return after_each


size = 50
reservoir = ReplayPlugin(size, storage_policy=ReservoirSamplingBuffer(size))
curves = {
    "gradient matching": accuracies([CoresetReplayPlugin(size)]),  # the one line
    "reservoir sampling": accuracies([reservoir]),
    "no memory": accuracies([]),
}

# %%
# What came of it
# ---------------
# Without a memory only the last two classes are known. Both memories have 50 images; which ones
# they are, and how much each counts in the loss, makes the difference.

figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
for name, curve in curves.items():
    axes.plot(range(1, 6), curve, marker="o", label=f"{name}: {curve[-1]:.2f}")
axes.set(xlabel="experiences seen", ylabel="accuracy on all ten classes", xticks=range(1, 6))
axes.set_ylim(0, 1)
axes.legend(title="after the last")
plt.show()
