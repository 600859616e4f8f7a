"""Random histories of a memory: whatever happens, it stays one that could have been."""

import copy
import pickle

import numpy as np
import torch
from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.benchmarks.utils.data_attribute import DataAttribute
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from avalanche_gmc import DenseDictionary, GradientMatchingBuffer

DIM, CLASSES = 50, 3


class Features:
    """Fixed random features; fails on demand."""

    dim = DIM

    def __init__(self):
        self._map = torch.randn(3, DIM, generator=torch.Generator().manual_seed(0)).double()
        self.fails = None

    def embed(self, data):
        if self.fails is not None:
            raise self.fails
        return DenseDictionary(self.rows([data[i][0] for i in range(len(data))]))

    def rows(self, inputs):
        return torch.sin(torch.stack(inputs).double() @ self._map) + 0.5


class History(RuleBasedStateMachine):
    """Updates, resizes, flushes, copies, states and failures in any order."""

    @initialize(size=st.integers(0, 45), chunk=st.sampled_from([None, 9]))
    def begin(self, size, chunk):
        self.options = {"chunk_size": chunk}
        self.buffer = GradientMatchingBuffer(size, Features(), **self.options)
        self.seen = []
        self.size = size
        self.random = np.random.default_rng(0)
        self.complete = True

    def _examples(self, count):
        # The first number tells every example from all others.
        x = torch.tensor(self.random.normal(size=(count, 3)), dtype=torch.float32)
        x[:, 0] = (torch.arange(count) + len(self.seen)) / 100
        y = self.random.integers(CLASSES, size=count).tolist()
        leaf = list(zip(x, y, strict=True))
        return leaf, AvalancheDataset([leaf], data_attributes=[DataAttribute(y, "targets")])

    @rule(count=st.one_of(st.integers(0, 12), st.integers(13, 60)))
    def update(self, count):
        leaf, data = self._examples(count)
        self.buffer.update_from_dataset(data)
        self.seen += leaf
        self.complete = self.complete and len(self.seen) <= self.size

    @rule(size=st.integers(0, 45))
    def resize(self, size):
        before = {x for x, _ in self._shown()}
        self.buffer.resize(None, size)
        if size >= self.size:
            assert before <= {x for x, _ in self._shown()}
        self.size = size
        self.complete = self.complete and len(self.seen) <= size

    @rule()
    def flush(self):
        self.buffer.flush()
        once = self._contents()
        self.buffer.flush()
        assert self._contents() == once
        if self.buffer.target is not None and len(self.buffer.buffer):
            rows = Features().rows([x for x, _ in self.buffer.buffer])
            left = self.buffer.target - self.buffer.weights.double() @ rows
            relative = float(left.norm() / self.buffer.target.norm())
            assert abs(relative - self.buffer.residual_norm) < 1e-5

    @rule(clone=st.sampled_from([copy.deepcopy, lambda b: pickle.loads(pickle.dumps(b))]))
    def copy(self, clone):
        before = self._contents()
        self.buffer = clone(self.buffer)
        assert self._contents() == before

    @rule(other_size=st.integers(0, 45))
    def load_state(self, other_size):
        before = self._contents()
        state = pickle.loads(pickle.dumps(self.buffer.state_dict()))
        self.buffer = GradientMatchingBuffer(other_size, Features(), **self.options)
        self.buffer.load_state_dict(state)
        assert self._contents() == before

    @rule(
        error=st.sampled_from([OSError("unreadable"), KeyboardInterrupt()]),
        count=st.integers(1, 30),
    )
    def fail(self, error, count):
        before = self._contents()
        embedding = self.buffer._embedding.resolve(None, self.size)
        embedding.fails = error
        try:
            self.buffer.update_from_dataset(self._examples(count)[1])
        except (OSError, KeyboardInterrupt) as raised:
            assert raised is error
        else:
            raise AssertionError("nothing was raised")
        embedding.fails = None
        assert self._contents() == before

    def _shown(self):
        return [(tuple(x.tolist()), int(y)) for x, y in self.buffer.buffer]

    def _contents(self):
        target = self.buffer.target
        return (
            self._shown(),
            self.buffer.weights.tolist(),
            None if target is None else target.tolist(),
            self.buffer.num_seen,
            self.buffer.max_size,
            self.buffer.residual_norm,
        )

    @invariant()
    def holds(self):
        if not hasattr(self, "buffer"):
            return
        shown = self._shown()
        seen = {(tuple(x.tolist()), y) for x, y in self.seen}
        assert len(set(shown)) == len(shown) <= self.size == self.buffer.max_size
        assert set(shown) <= seen
        assert self.buffer.num_seen == len(self.seen)
        assert len(self.buffer.weights) == len(shown)
        assert bool((self.buffer.weights >= 0).all())
        if self.seen:
            total = Features().rows([x for x, _ in self.seen]).sum(dim=0)
            torch.testing.assert_close(self.buffer.target, total)
        if self.complete:
            assert set(shown) == seen
            assert self.buffer.weights.tolist() == [1] * len(shown)


History.TestCase.settings = settings(max_examples=15, stateful_step_count=12)
test_random_histories = History.TestCase
