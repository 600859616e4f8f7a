"""
A coreset of any PyTorch dataset
================================

Nothing here needs Avalanche or a stream: three lines pick the examples of a dataset whose weighted
gradients add up to those of all of it. A model is then trained on them, and on a random subset.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from avalanche_gmc import LastLayerEmbedding, orthogonal_matching_pursuit

images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
images = images.float() / 16
dataset = TensorDataset(images[:1200], labels[:1200])  # any dataset of (input, target)


def new_model():
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


# %%
# The three lines
# ---------------
# The embedding draws initialisations of the model and turns every example into its loss gradient
# there. The pursuit picks examples and weights.

embedding = LastLayerEmbedding(new_model, draws=4)
atoms = embedding.embed(dataset)
coreset = orthogonal_matching_pursuit(atoms, atoms.sum(), size=50)

print(atoms)
print(f"{len(coreset)} picks leave {coreset.residual_norm:.1%} of the gradient unmatched")
print("the first five:", coreset.indices[:5].tolist())
print("their weights:", [round(w, 1) for w in coreset.weights[:5].tolist()])

# %%
# Train on it
# -----------
# The weights belong in the loss: divide them by their mean, multiply, take the mean.


def accuracy(chosen, weights, seed):
    torch.manual_seed(seed)
    model, (x, y) = new_model(), (images[chosen], labels[chosen])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(150):
        losses = nn.functional.cross_entropy(model(x), y, reduction="none")
        loss = (losses * weights / weights.mean()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (model(images[1200:]).argmax(1) == labels[1200:]).float().mean().item()


# %%
# One pursuit is enough for all sizes up to the largest: the picks of a smaller coreset are the
# first ones of a larger. The weights are not, so the pursuit is run for each size here.

sizes, seeds = [10, 20, 50, 100, 200], range(5)
matched, random = [], []
torch.manual_seed(0)
for size in sizes:
    coreset = orthogonal_matching_pursuit(atoms, atoms.sum(), size=size)
    weights = coreset.weights.float()
    matched.append([accuracy(coreset.indices, weights, seed) for seed in seeds])
    subsets = [torch.randperm(1200)[:size] for _ in seeds]
    random.append([accuracy(s, torch.ones(size), i) for i, s in enumerate(subsets)])

figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
for name, rows in {"gradient matching": matched, "random subset": random}.items():
    rows = torch.tensor(rows)
    mean, spread = rows.mean(1), rows.std(1)
    axes.plot(sizes, mean, marker="o", label=name)
    axes.fill_between(sizes, mean - spread, mean + spread, alpha=0.2)
axes.set(xscale="log", xlabel="examples", ylabel="test accuracy", xticks=sizes)
axes.set_xticklabels(sizes)
axes.minorticks_off()
axes.legend()
plt.show()
