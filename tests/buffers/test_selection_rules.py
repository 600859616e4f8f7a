"""The rivals' selection rules against slow readings of their definitions."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from avalanche_gmc.buffers.baselines import geometry
from avalanche_gmc.buffers.baselines.bilevel import bilevel
from avalanche_gmc.buffers.baselines.geometry import (
    Columns,
    class_budgets,
    inner_products,
    layer_features,
    weighted_sum,
)
from avalanche_gmc.buffers.baselines.giga import giga
from avalanche_gmc.buffers.baselines.grad_match import ridge_pursuit
from avalanche_gmc.buffers.baselines.grand import grand_scores
from avalanche_gmc.buffers.baselines.herding import herd
from avalanche_gmc.buffers.baselines.k_center import k_center
from avalanche_gmc.buffers.baselines.k_means import k_means_plus_plus
from avalanche_gmc.dictionary import DenseDictionary, LastLayerDictionary


def normal(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def last_layer(size=30, draws=2, outputs=3, features=4, seed=0):
    """Atoms as a bias makes them: the last feature is 1."""
    inputs = normal(draws, size, features, seed=seed)
    inputs[:, :, -1] = 1
    return LastLayerDictionary(normal(draws, size, outputs, seed=seed + 1), inputs)


def dense(atoms):
    return atoms.rows(torch.arange(len(atoms)))


DICTIONARIES = {
    "last layer": last_layer(),
    "dense": DenseDictionary(normal(30, 12)),
    "more dimensions than atoms": DenseDictionary(normal(20, 50)),
    "with duplicates and zeros": DenseDictionary(
        torch.cat([normal(15, 6), normal(15, 6)[:4], torch.zeros(2, 6, dtype=torch.float64)])
    ),
}
every_dictionary = pytest.mark.parametrize("atoms", DICTIONARIES.values(), ids=DICTIONARIES)


@every_dictionary
def test_inner_products_and_weighted_sum(atoms):
    rows, chosen = dense(atoms), torch.tensor([3, 0, 7])
    weights = normal(len(atoms)).abs()
    torch.testing.assert_close(inner_products(atoms, chosen), rows @ rows[chosen].T)
    torch.testing.assert_close(weighted_sum(atoms, weights), weights @ rows)


@every_dictionary
@pytest.mark.parametrize("needed", [1, 20])  # one by one, all at once
def test_columns_of_the_gram_matrix(atoms, needed, monkeypatch):
    monkeypatch.setattr(geometry, "BLOCK", 7)
    rows, columns = dense(atoms), Columns(atoms, needed)
    for atom in (0, 6, 7, len(atoms) - 1):
        torch.testing.assert_close(columns[atom], rows @ rows[atom])


def test_layer_features_are_those_of_all_draws_without_the_bias():
    atoms = last_layer()
    features = layer_features(atoms)
    for example in range(len(atoms)):
        own = atoms.features[:, example].clone()
        own[:, -1] = 0
        assert features[example].tolist() == own.flatten().tolist()
    without_bias = LastLayerDictionary(atoms.errors, atoms.features[:, :, :-1])
    assert layer_features(without_bias).shape == (30, 6)
    assert layer_features(without_bias).abs().min() > 0


@given(st.dictionaries(st.integers(0, 20), st.integers(1, 12), min_size=1), st.integers(0, 60))
def test_class_budgets_are_as_equal_as_they_can_be(available, size):
    budgets = class_budgets(available, size)
    assert sum(budgets.values()) == min(size, sum(available.values()))
    for label, budget in budgets.items():
        assert budget <= available[label]
        if budget < available[label]:
            assert budget >= max(budgets.values()) - 1


def plain_herding(features, mean, size):
    """Algorithm 4 of iCaRL."""
    picks = []
    for k in range(1, size + 1):
        distances = {
            x: np.linalg.norm(mean - (features[x] + sum(features[p] for p in picks)) / k)
            for x in range(len(features))
            if x not in picks
        }
        picks.append(min(distances, key=distances.get))
    return picks


@pytest.mark.parametrize("size", [0, 1, 10, 30])
def test_herding_equals_the_plain_loop(size):
    features, mean = normal(30, 5), normal(5, seed=1) / 3
    expected = plain_herding(features.numpy(), mean.numpy(), size)
    assert herd(features, mean, size).tolist() == expected


def plain_k_center(features, size):
    picks = [int(np.linalg.norm(features - features.mean(axis=0), axis=1).argmin())]
    while len(picks) < size:
        nearest = [
            -1 if x in picks else min(np.linalg.norm(features[x] - features[p]) for p in picks)
            for x in range(len(features))
        ]
        picks.append(int(np.argmax(nearest)))
    return picks


@pytest.mark.parametrize("size", [1, 7, 25])
def test_k_center_equals_the_plain_loop(size):
    features = normal(25, 4) + 10
    assert k_center(features, size).tolist() == plain_k_center(features.numpy(), size)


def test_k_center_with_nothing_but_duplicates():
    assert sorted(k_center(torch.ones(6, 3), 6).tolist()) == list(range(6))


def plain_k_means(rows, weights, uniforms):
    """One draw after the other, by walking along the masses."""

    def squared(row, picks):
        return [np.square(row - rows[p]).sum() for p in picks] or [1.0]

    picks = []
    for uniform in uniforms:
        near = [0.0 if x in picks else min(squared(row, picks)) for x, row in enumerate(rows)]
        left, x = uniform * np.dot(weights, near), 0
        while left >= weights[x] * near[x]:
            left -= weights[x] * near[x]
            x += 1
        picks.append(x)
    closest = [int(np.argmin(squared(row, picks))) for row in rows]
    counts = np.bincount(closest, weights, minlength=len(picks))
    return picks, counts


@every_dictionary
def test_k_means_equals_the_plain_loop(atoms):
    weights = 1 + normal(len(atoms)).abs()
    selection = k_means_plus_plus(atoms, weights, 9, torch.Generator().manual_seed(5))
    uniforms = torch.rand(9, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    picks, counts = plain_k_means(dense(atoms).numpy(), weights.tolist(), uniforms.tolist())
    assert selection.indices.tolist() == picks
    np.testing.assert_allclose(selection.weights, counts)
    assert float(selection.weights.sum()) == pytest.approx(float(weights.sum()))


def test_k_means_with_nothing_but_duplicates():
    atoms = DenseDictionary(torch.ones(6, 3))
    selection = k_means_plus_plus(atoms, torch.ones(6).double(), 6, torch.Generator())
    assert sorted(selection.indices.tolist()) == list(range(6))


def test_grand_scores_are_mean_gradient_norms():
    atoms = last_layer(draws=3)
    norms = dense(atoms).reshape(30, 3, -1).norm(dim=2)
    torch.testing.assert_close(grand_scores(atoms), norms.mean(dim=1))


def plain_giga(rows, target, size):
    """Algorithm 2 of Campbell and Broderick, until there are `size` different picks."""
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    goal = target / np.linalg.norm(target)
    y, w, picks = np.zeros_like(goal), np.zeros(len(rows)), []
    while len(picks) < size:
        d = goal - (goal @ y) * y
        steps = unit - (unit @ y)[:, None] * y
        lengths = np.linalg.norm(steps, axis=1)
        cosines = steps @ (d / np.linalg.norm(d)) / np.maximum(lengths, 1e-9)
        cosines[lengths < 1e-5] = -np.inf
        n = int(cosines.argmax())
        z0, z1, z2 = goal @ unit[n], goal @ y, unit[n] @ y
        gamma = (z0 - z1 * z2) / ((z0 - z1 * z2) + (z1 - z0 * z2))
        y = (1 - gamma) * y + gamma * unit[n]
        w *= 1 - gamma
        w[n] += gamma
        y, w = y / np.linalg.norm(y), w / np.linalg.norm(y)
        picks += [n] if n not in picks else []
    weights = w / np.linalg.norm(rows, axis=1) * np.linalg.norm(target) * (y @ goal)
    return picks, weights[picks]


@pytest.mark.parametrize("size", [1, 4, 9])
@pytest.mark.parametrize("name", ["last layer", "more dimensions than atoms"])
def test_giga_equals_the_plain_loop(name, size):
    rows = dense(DICTIONARIES[name])
    target = rows.abs().max() + rows.sum(dim=0)  # far from all atoms
    selection = giga(DICTIONARIES[name], target, size)
    picks, weights = plain_giga(rows.numpy(), target.numpy(), size)
    assert selection.indices.tolist() == picks
    np.testing.assert_allclose(selection.weights, weights, rtol=1e-6)


@every_dictionary
def test_giga_gives_distinct_atoms_with_weights_that_match(atoms):
    rows = dense(atoms)
    target = rows.sum(dim=0)
    for size in (2, 8, len(atoms) - 1):
        selection = giga(atoms, target, size)
        assert len(set(selection.indices.tolist())) == len(selection.weights) == size
        assert float(selection.weights.min()) >= 0
        picked = rows[selection.indices]
        residual = float((target - selection.weights @ picked).norm())
        least = nnls(picked.T.numpy(), target.numpy())[1]
        assert residual - least < 0.15 * float(target.norm())


def test_giga_of_a_zero_target():
    selection = giga(DenseDictionary(normal(5, 3)), torch.zeros(3), 3)
    assert len(set(selection.indices.tolist())) == 3
    assert selection.weights.tolist() == [0, 0, 0]


def outer_loss(weights, kernel, targets, importance, ridge):
    """Kernel ridge regression on weighted picks, judged on all candidates."""
    chosen = weights.nonzero()[:, 0].detach()
    inner = kernel[chosen][:, chosen] + torch.diag(ridge / weights[chosen])
    outputs = kernel[:, chosen] @ torch.linalg.solve(inner, targets[chosen])
    return (importance * (outputs - targets).square().sum(dim=1)).sum()


def plain_bilevel(kernel, targets, importance, size, ridge, step=1e-6):
    """The next pick is the one whose weight, a little above 0, lowers the outer loss most."""
    weights, picks = torch.zeros(len(kernel), dtype=torch.float64), []
    for _ in range(size):
        losses = []
        for k in range(len(kernel)):
            raised = weights.clone()
            raised[k] += step
            loss = outer_loss(raised, kernel, targets, importance, ridge)
            losses.append(float(loss) if k not in picks else np.inf)
        picks.append(int(np.argmin(losses)))
        weights[picks[-1]] = 1
    return picks


@pytest.mark.parametrize("ridge", [0.1, 1.0])
def test_bilevel_equals_finite_differences(ridge):
    features, importance = normal(25, 6), 1 + normal(25, seed=1).abs()
    targets = torch.eye(3, dtype=torch.float64)[torch.arange(25) % 3]
    picks = bilevel(features, targets, importance, 10, ridge)
    kernel = features @ features.T
    assert picks.tolist() == plain_bilevel(kernel, targets, importance, 10, ridge)


def plain_ridge_pursuit(rows, weights, size, ridge):
    """Least squares on atoms with one more row each, which holds the ridge."""
    penalty = np.sqrt(ridge * np.square(rows).sum(axis=1).mean())
    target, picks = weights @ rows, []
    for k in range(size + 1):
        matrix = np.vstack([rows[picks].T, penalty * np.eye(k)])
        goal = np.concatenate([target, np.zeros(k)])
        if k == size:
            return picks, nnls(matrix, goal)[0]
        fit = np.linalg.lstsq(matrix, goal, rcond=None)[0]
        scores = rows @ (target - fit @ rows[picks])
        scores[picks] = -np.inf
        picks.append(int(scores.argmax()))


@every_dictionary
@pytest.mark.parametrize("ridge", [0.01, 0.5])
def test_ridge_pursuit_equals_the_plain_loop(atoms, ridge):
    weights = 1 + normal(len(atoms)).abs()
    indices, fitted = ridge_pursuit(atoms, weights, 14, ridge)
    picks, expected = plain_ridge_pursuit(dense(atoms).numpy(), weights.numpy(), 14, ridge)
    assert indices.tolist() == picks
    np.testing.assert_allclose(fitted, expected, atol=1e-8)


def test_ridge_pursuit_where_all_gradients_vanish():
    atoms = DenseDictionary(torch.zeros(6, 3))
    indices, weights = ridge_pursuit(atoms, torch.ones(6).double(), 4, 0.5)
    assert indices.tolist() == [0, 1, 2, 3]
    assert weights.tolist() == [0] * 4
