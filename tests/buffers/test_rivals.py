"""The rivals in a stream, against slow list-based readings of their definitions."""

import inspect
import random
import re
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.benchmarks.utils.data_attribute import DataAttribute
from hypothesis import given
from hypothesis import strategies as st
from small_streams import class_incremental, dataset, mlp, run
from torch.nn import functional
from torch.utils.data import TensorDataset

from avalanche_gmc.buffers.baselines import (
    BASELINES,
    BilevelBuffer,
    CBRSBuffer,
    GIGABuffer,
    GradientNormBuffer,
    GradMatchBuffer,
    GSSBuffer,
    HerdingBuffer,
    KCenterBuffer,
    KMeansPlusPlusBuffer,
)
from avalanche_gmc.buffers.baselines.bilevel import bilevel
from avalanche_gmc.buffers.baselines.geometry import layer_features
from avalanche_gmc.buffers.baselines.k_center import k_center
from avalanche_gmc.embedding import LastLayerEmbedding, LocalEmbedding, RandomProjectionEmbedding
from avalanche_gmc.initialization import derive_seed
from avalanche_gmc.plugins import CoresetGDumbPlugin, CoresetReplayPlugin

CLASSES = 6
UPDATES = [([0, 1], 40), ([2, 3], 50), ([1, 4], 30), ([0], 1), ([5, 2], 35)]


def stream():
    """Classes that come again, and an update with a single example."""
    return [dataset(classes, size, seed=t) for t, (classes, size) in enumerate(UPDATES)]


def strategy(seed=0):
    return SimpleNamespace(model=mlp(CLASSES, seed))


def inputs(buffer):
    return [tuple(sample[0].tolist()) for sample in buffer.buffer]


def examples(data):
    return [(data[i][0], int(data[i][1])) for i in range(len(data))]


def gradient(model, x, y):
    """Of the last layer, by autograd."""
    loss = functional.cross_entropy(model(x[None]), torch.tensor([y]))
    layer = model[-1]
    weight, bias = torch.autograd.grad(loss, [layer.weight, layer.bias])
    return torch.cat([weight, bias[:, None]], dim=1).flatten().double().numpy()


def unit_features(embedding, x):
    """Of the last layer at all draws, without the bias, at length 1."""
    atom = embedding.embed(x[None], torch.tensor([0]))
    features = atom.features[:, 0, :-1].flatten().double().numpy()
    return features / np.linalg.norm(features)


def plain_herding(embedding, updates, size):
    """iCaRL's lists, with the mean over everything seen of a class."""
    lists, seen = {}, {}
    for data in updates:
        new = {}
        for x, y in examples(data):
            feature = unit_features(embedding, x)
            seen.setdefault(y, []).append(feature)
            new.setdefault(y, []).append((tuple(x.tolist()), feature))
        budget = {y: len(lists.get(y, [])) + len(new.get(y, [])) for y in seen}
        while sum(budget.values()) > size:
            budget[max(budget, key=lambda y: (budget[y], -y))] -= 1
        for y, count in budget.items():
            if y in new:
                lists[y] = herded(lists.get(y, []) + new[y], np.mean(seen[y], axis=0), count)
            lists[y] = lists[y][:count]
    return [name for y in sorted(lists) for name, _ in lists[y]]


def herded(candidates, mean, count):
    chosen = []
    while len(chosen) < count:
        left = [c for c in candidates if all(c is not other for other in chosen)]
        total = sum(feature for _, feature in chosen)
        gaps = [np.linalg.norm(mean - (total + f) / (len(chosen) + 1)) for _, f in left]
        chosen.append(left[int(np.argmin(gaps))])
    return chosen


@pytest.mark.parametrize("size", [12, 18, 60, 200])
def test_herding_equals_the_plain_lists(size):
    embedding = LastLayerEmbedding(mlp(CLASSES), draws=3)
    buffer = HerdingBuffer(size, embedding)
    for data in stream():
        buffer.update_from_dataset(data)
    assert inputs(buffer) == plain_herding(embedding, stream(), size)


def test_herding_cuts_lists_at_their_end():
    buffer = HerdingBuffer(20, LastLayerEmbedding(mlp(CLASSES)))
    buffer.update_from_dataset(dataset([0, 1], 40))
    before = inputs(buffer)
    buffer.update_from_dataset(dataset([2, 3], 40))
    assert inputs(buffer)[:10] == before[:5] + before[10:15]
    buffer.resize(None, 8)
    assert inputs(buffer)[:4] == before[:2] + before[10:12]


def test_herding_by_the_trained_model_lets_exemplars_stand_for_the_past():
    buffer = HerdingBuffer(10, "local")
    buffer.update_from_dataset(dataset([0, 1], 40, seed=0), strategy(0))
    old = examples(buffer.buffer)
    new = dataset([0, 1], 20, seed=1)
    later = strategy(1)
    buffer.update_from_dataset(new, later)
    view = LocalEmbedding(later.model)
    expected = []
    for label in (0, 1):
        stored = [(tuple(x.tolist()), unit_features(view, x)) for x, y in old if y == label]
        fresh = [
            (tuple(x.tolist()), unit_features(view, x)) for x, y in examples(new) if y == label
        ]
        total = 20 / 5 * sum(f for _, f in stored) + sum(f for _, f in fresh)
        expected += [name for name, _ in herded(stored + fresh, total / 30, 5)]
    assert inputs(buffer) == expected


def plain_gss(updates, models, size, compared, seed):
    """Algorithm 2 of Aljundi et al.; exemplars' gradients are taken anew at every update."""
    memory, scores, seen = [], [], 0
    for data, model in zip(updates, models, strict=True):
        seen += len(data)
        generator = np.random.default_rng(derive_seed(seed, seen, len(memory)))
        for x, y in examples(data):
            places = generator.choice(len(memory), min(compared, len(memory)), replace=False)
            own = gradient(model, x, y)
            others = [gradient(model, *memory[place]) for place in places]
            cosines = [own @ g / np.linalg.norm(own) / np.linalg.norm(g) for g in others]
            score = max(cosines) + 1 if cosines else 1.0
            if len(memory) < size:
                memory.append((x, y))
                scores.append(score)
            elif score < 1:
                point, place = generator.random() * sum(scores), 0
                while point >= sum(scores[: place + 1]):
                    place += 1
                if generator.random() < scores[place] / (scores[place] + score):
                    memory[place], scores[place] = (x, y), score
    return [tuple(x.tolist()) for x, _ in memory]


@pytest.mark.parametrize("seed", [0, 1])
def test_gss_equals_the_plain_loop(seed):
    agents = [strategy(number) for number in range(len(UPDATES))]
    buffer = GSSBuffer(15, num_compared=4, seed=seed)
    for data, agent in zip(stream(), agents, strict=True):
        buffer.update_from_dataset(data, agent)
    models = [agent.model for agent in agents]
    assert inputs(buffer) == plain_gss(stream(), models, 15, 4, seed)


def plain_cbrs(labels, size, generator):
    """Algorithm 1 of Chrysakis and Moens on a plain list."""
    memory, full, seen = [], set(), Counter()
    for number, label in enumerate(labels):
        seen[label] += 1
        counts = Counter(kept for _, kept in memory)
        if len(memory) < size:
            memory.append((number, label))
            continue
        largest = [c for c in counts if counts[c] == max(counts.values())]
        full.update(largest)
        if label not in full:
            victims = [e for e in memory if e[1] == min(largest)]
            memory.remove(victims[generator.randrange(len(victims))])
            memory.append((number, label))
        elif generator.random() <= counts[label] / seen[label]:
            own = [place for place, e in enumerate(memory) if e[1] == label]
            memory[own[generator.randrange(len(own))]] = (number, label)
    return memory


def labelled(labels, first=0):
    """Examples whose input is their number in the stream."""
    x = torch.arange(first, first + len(labels)).reshape(-1, 1).float()
    y = torch.tensor(labels, dtype=torch.long)
    attributes = [DataAttribute(list(labels), "targets")]
    return AvalancheDataset([TensorDataset(x, y)], data_attributes=attributes)


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=12), max_size=6),
    st.integers(1, 9),
    st.integers(0, 3),
)
def test_cbrs_equals_the_plain_loop(batches, size, seed):
    buffer, seen = CBRSBuffer(size, seed), 0
    for labels in batches:
        buffer.update_from_dataset(labelled(labels, seen))
        seen += len(labels)
    labels = [label for batch in batches for label in batch]
    expected = plain_cbrs(labels, size, random.Random(seed))
    assert sorted(int(sample[0]) for sample in buffer.buffer) == sorted(n for n, _ in expected)


def test_cbrs_keeps_a_uniform_sample_of_a_full_class():
    times = Counter()
    for seed in range(400):
        buffer = CBRSBuffer(4, seed)
        buffer.update_from_dataset(labelled([0] * 20 + [1]))
        assert buffer.class_counts == {0: 3, 1: 1}
        times.update(int(sample[0]) for sample in buffer.buffer if sample[1] == 0)
    # Each of 20 examples is kept with probability 3/20: 60 times, give or take 7.
    assert min(times[number] for number in range(20)) > 30
    assert max(times.values()) < 95


def test_grand_in_a_stream_is_grand_of_all_data():
    embedding = LastLayerEmbedding(mlp(CLASSES), draws=3)
    buffer = GradientNormBuffer(18, embedding)
    scores = {}
    for data in stream():
        buffer.update_from_dataset(data)
        for x, y in examples(data):
            atom = embedding.embed(x[None], torch.tensor([y])).rows(torch.tensor([0]))
            score = atom.reshape(3, -1).norm(dim=1).mean()
            scores.setdefault(y, []).append((float(score), tuple(x.tolist())))
    best = [name for y in sorted(scores) for _, name in sorted(scores[y], reverse=True)[:3]]
    assert inputs(buffer) == best


def test_giga_matches_the_gradients_of_everything_seen():
    embedding = LastLayerEmbedding(mlp(CLASSES))
    buffer = GIGABuffer(40, embedding)
    target = torch.zeros(embedding.dim, dtype=torch.float64)
    for data in stream():
        buffer.update_from_dataset(data)
        target += embedding.embed(data).sum()
    atoms = embedding.embed(buffer.buffer)
    match = buffer.weights.double() @ atoms.rows(torch.arange(40)).double()
    assert float((target - match).norm() / target.norm()) < 0.2
    assert float(buffer.weights.min()) >= 0


def test_k_means_counts_stand_for_everything_seen():
    buffer = KMeansPlusPlusBuffer(20, LastLayerEmbedding(mlp(CLASSES)))
    for data in stream():
        buffer.update_from_dataset(data)
        assert float(buffer._memory.weights.sum()) == pytest.approx(buffer.num_seen)
    assert getattr(buffer, "weights", None) is None
    others = KMeansPlusPlusBuffer(20, LastLayerEmbedding(mlp(CLASSES)), seed=1)
    for data in stream():
        others.update_from_dataset(data)
    assert inputs(others) != inputs(buffer)


@pytest.mark.parametrize("embedding", ["local", "last-layer"])
def test_grad_match_weighs_each_class_by_what_was_seen_of_it(embedding):
    buffer, seen = GradMatchBuffer(24, embedding), Counter()
    for data in stream():
        buffer.update_from_dataset(data, strategy())
        seen.update(data.targets)
    totals = Counter()
    for label, weight in zip(buffer.buffer.targets, buffer.weights.tolist(), strict=True):
        totals[label] += weight
    assert totals == pytest.approx(seen)
    assert buffer.class_counts == dict.fromkeys(range(CLASSES), 4)
    assert float(buffer.weights.min()) >= 0


def test_bilevel_counts_exemplars_for_what_they_stand_for():
    embedding = LastLayerEmbedding(mlp(CLASSES))
    buffer = BilevelBuffer(24, embedding, ridge=0.3)
    buffer.update_from_dataset(dataset(range(CLASSES), 300))
    new = dataset([0], 30, seed=1)
    candidates = examples(buffer.buffer) + examples(new)
    buffer.update_from_dataset(new)
    labels = torch.tensor([y for _, y in candidates])
    atoms = embedding.embed(torch.stack([x for x, _ in candidates]), labels)
    features = atoms.features.transpose(0, 1).flatten(1).double()
    features /= features.square().sum(dim=1).mean().sqrt()
    stands_for = torch.tensor([300 / 24] * 24 + [1.0] * 30).double()
    picks = bilevel(features, functional.one_hot(labels).double(), stands_for, 24, 0.3)
    assert inputs(buffer) == [tuple(candidates[pick][0].tolist()) for pick in picks]


def test_k_center_covers_everything_seen():
    embedding = LastLayerEmbedding(mlp(CLASSES))
    buffer = KCenterBuffer(15, embedding)
    for data in stream():
        buffer.update_from_dataset(data)
    everything = torch.stack([x for data in stream() for x, _ in examples(data)])
    labels = torch.zeros(len(everything), dtype=torch.long)
    features = layer_features(embedding.embed(everything, labels))
    chosen = layer_features(embedding.embed(buffer.buffer))
    radius = torch.cdist(features, chosen).min(dim=1).values.max()
    offline = torch.cdist(features, features[k_center(features, 15)]).min(dim=1).values.max()
    assert radius < 1.5 * offline


@pytest.mark.parametrize("name", ["gss", "grad-match"])
def test_what_needs_a_model_says_so(name):
    with pytest.raises(ValueError, match="needs the strategy for its model"):
        BASELINES[name](5).update_from_dataset(dataset([0], 9))


@pytest.mark.parametrize("rule", [HerdingBuffer, KCenterBuffer, GradientNormBuffer, BilevelBuffer])
def test_what_needs_features_refuses_projections(rule):
    embedding = RandomProjectionEmbedding(mlp(CLASSES), dim=20)
    with pytest.raises(ValueError, match="features of the last layer"):
        rule(5, embedding).update_from_dataset(dataset([0], 9))


@pytest.mark.parametrize("rule", [KMeansPlusPlusBuffer, GSSBuffer, GIGABuffer, GradMatchBuffer])
def test_the_others_take_projections(rule):
    buffer = rule(5, RandomProjectionEmbedding(mlp(CLASSES), dim=20))
    for data in stream():
        buffer.update_from_dataset(data)
    assert len(buffer.buffer) == 5


@pytest.mark.parametrize("rule", [BilevelBuffer, GradMatchBuffer])
@pytest.mark.parametrize("ridge", [0, -1, float("nan")])
def test_ridges_that_are_none(rule, ridge):
    with pytest.raises(ValueError, match="ridge must be a number above 0"):
        rule(5, ridge=ridge)


def test_gss_must_compare_with_something():
    with pytest.raises(ValueError, match="num_compared"):
        GSSBuffer(5, num_compared=0)


@pytest.mark.parametrize("name", BASELINES)
def test_every_rival_takes_a_size_and_a_seed_and_names_its_source(name):
    rule = BASELINES[name]
    if name == "sliding-window":
        assert rule(3).max_size == 3
    else:
        assert rule(3, seed=1).max_size == 3
        assert re.search(r"\(.*20\d\d", inspect.getdoc(rule))


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("plugin", [CoresetReplayPlugin, CoresetGDumbPlugin])
def test_rivals_can_be_given_to_the_plugins(name, plugin):
    policy = BASELINES[name](9)
    model = mlp(CLASSES)
    run(plugin(9, storage_policy=policy), class_incremental(), model=model)
    assert len(policy.buffer) == 9
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())
