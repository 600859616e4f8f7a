"""Checks by a bfloat16 copy of the atoms are as certain as those by the atoms themselves."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import naive_pursuit
from test_engines import SPECTRA, engine

from avalanche_gmc import DenseDictionary, orthogonal_matching_pursuit
from avalanche_gmc.pursuit import rounded
from avalanche_gmc.pursuit.rounded import RoundedAtoms
from avalanche_gmc.pursuit.scoreboard import Scoreboard, checked_norms


def scoreboard(atoms: torch.Tensor) -> Scoreboard:
    dictionary = DenseDictionary(atoms)
    return Scoreboard(dictionary, checked_norms(dictionary))


@pytest.mark.parametrize("spectrum", SPECTRA, ids=lambda spectrum: spectrum.__name__)
@given(dim=st.integers(12, 300), count=st.integers(2, 12), seed=st.integers(0, 99))
def test_no_score_is_higher_than_it_can_be(spectrum, dim, count, seed):
    atoms = spectrum(60, dim, seed).float()
    residual = atoms.double().sum(dim=0)
    board = scoreboard(atoms)
    board.restart(residual)
    basis = torch.linalg.qr(atoms[:count].double().T).Q.T[:count]
    coefficients = basis @ residual
    path = torch.cat([residual[None], -coefficients[:, None] * basis]).cumsum(dim=0)[:-1]
    exact = path @ torch.nn.functional.normalize(atoms.double(), dim=1).T
    highest = RoundedAtoms(board)._highest(basis.float(), coefficients)
    room = board.precision.tie * float(residual.norm())
    assert bool((highest + room >= exact).all())
    assert bool((highest - exact <= 0.1 * float(residual.norm())).all())


@pytest.mark.parametrize("most", [0.0, 1.0])
@pytest.mark.parametrize("spectrum", SPECTRA, ids=lambda spectrum: spectrum.__name__)
def test_picks_do_not_depend_on_how_many_are_in_question(spectrum, most, monkeypatch):
    monkeypatch.setattr(rounded, "MOST_IN_QUESTION", most)
    atoms = spectrum(500, 120, 7).float()
    target = atoms.double().sum(dim=0)
    picks, _ = naive_pursuit(atoms, target, 40)
    with engine("bfloat16 checks"):
        coreset = orthogonal_matching_pursuit(atoms, target, 40)
    assert coreset.indices.tolist() == picks[0]


def test_few_atoms_are_scored_again(monkeypatch):
    """The bound is of use: on a large dictionary most atoms are out of question."""
    full: list[int] = []
    verify = Scoreboard.verify
    monkeypatch.setattr(
        Scoreboard, "verify", lambda self, *args: (full.append(1), verify(self, *args))[1]
    )
    draw = torch.Generator().manual_seed(0)
    atoms = torch.randn(2000, 600, generator=draw) + 0.3 * torch.randn(1, 600, generator=draw)
    with engine("bfloat16 checks"):
        orthogonal_matching_pursuit(atoms, atoms.double().sum(dim=0), 60)
    assert not full
