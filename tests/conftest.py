"""What every test relies on: one thread per worker, reproducible randomness, no display."""

import os

# Workers already fill the cores. The libraries read these once, when first imported, and the
# subprocesses that tests start inherit them.
if "PYTEST_XDIST_WORKER" in os.environ:
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = "1"
os.environ["MPLBACKEND"] = "Agg"

import pytest
import torch
from hypothesis import HealthCheck, settings

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)

# `ci` tries the same examples every time, so that a red run is red again. The first call into
# torch is slow and the machine is shared, hence no deadline and no complaint about slow draws.
settings.register_profile(
    "ci",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session")
def pair():
    """Two processes of one group, started once: their imports take seconds."""
    from rank_group import rank_group

    with rank_group(2) as group:
        yield group


@pytest.fixture(autouse=True)
def _seeded_global_state() -> None:
    """Start every test from the same torch state, whatever ran before it in this worker."""
    torch.manual_seed(0)
