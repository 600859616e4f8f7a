"""
A sorted table of your own
==========================

Data often arrive sorted: by time, by price, by region. Then the newest examples are a poor sample
of all of them. Here a table comes sorted by one column in ten parts; no class or task marks where
one part ends.
"""

import matplotlib.pyplot as plt
import pandas
import torch
from avalanche.benchmarks import benchmark_from_datasets
from avalanche.benchmarks.utils import as_classification_dataset
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.storage_policy import ReservoirSamplingBuffer
from avalanche.training.supervised import Naive
from sklearn.datasets import make_classification
from torch import nn
from torch.utils.data import TensorDataset

from avalanche_gmc import CoresetGDumbPlugin, GradientMatchingBuffer, SlidingWindowBuffer

# %%
# The table
# ---------
# With your own, write ``table = pandas.read_csv("mine.csv")``.

features, label = make_classification(
    6000, 12, n_informative=8, n_classes=4, class_sep=1.5, random_state=0
)
table = pandas.DataFrame(features, columns=[f"column {i}" for i in range(12)])
table["label"] = label
train, test = table[:5000].sort_values("column 0"), table[5000:]
train[["column 0", "column 1", "label"]].head()

# %%
# The stream
# ----------
# Ten datasets in the order of the rows. Columns are scaled by the training part.

columns = [name for name in table if name != "label"]
mean, spread = train[columns].mean(), train[columns].std()


def dataset(rows):
    values = ((rows[columns] - mean) / spread).to_numpy()
    data = TensorDataset(torch.tensor(values).float(), torch.tensor(rows["label"].to_numpy()))
    data.targets = rows["label"].tolist()
    return as_classification_dataset(data)


parts = [dataset(train[start : start + 500]) for start in range(0, 5000, 500)]
benchmark = benchmark_from_datasets(train=parts, test=[dataset(test)])

# %%
# Three memories
# --------------
# GDumb trains on the memory alone, from scratch, so that its accuracy says how good the memory is.
# The final accuracy depends on the final memory only: ``train_on="last"`` saves nine trainings.


def accuracy(memory):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 4))
    strategy = Naive(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=1e-2),
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=100,
        train_epochs=60,
        eval_mb_size=1000,
        plugins=[CoresetGDumbPlugin(memory.max_size, memory, train_on="last")],
        evaluator=EvaluationPlugin(accuracy_metrics(stream=True), loggers=[]),
    )
    for experience in benchmark.train_stream:
        strategy.train(experience)
    results = strategy.eval(benchmark.test_stream)
    return next(v for k, v in results.items() if k.startswith("Top1_Acc_Stream"))


sizes = [50, 100, 200]
memories = {
    "gradient matching": GradientMatchingBuffer,
    "reservoir": ReservoirSamplingBuffer,
    "sliding window": SlidingWindowBuffer,
}
found = {name: [accuracy(kind(size)) for size in sizes] for name, kind in memories.items()}

# %%
# The window knows the end of the table only. One run each: differences of a percent mean nothing.

figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
for i, (name, values) in enumerate(found.items()):
    places = [place + 0.27 * (i - 1) for place in range(len(sizes))]
    bars = axes.bar(places, values, width=0.25, label=name)
    axes.bar_label(bars, fmt="%.2f", fontsize=8)
axes.set(xlabel="exemplars", ylabel="test accuracy", ylim=(0, 1))
axes.set_xticks(range(len(sizes)), sizes)
axes.legend(loc="upper center", ncols=3, fontsize=8, bbox_to_anchor=(0.5, 1.15))
plt.show()
