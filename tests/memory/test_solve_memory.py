"""The memory promise of stored solves: the smallest budget that is accepted, against the measured peak.

The peak is that of all processes of the solve together, workers too. What is set aside for packages and
kernels could hide data: `test_growth_memory` measures these alone.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest

from bigcons import Ensemble
from tests.memory.solving import solve

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="resident memory as Linux counts it"),
    pytest.mark.slow,
]

N_OBJECTS, N_PARTITIONS, K = 460_000, 250, 4


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory):
    """A store of 115 MB; wide, not long, for the time goes into objects."""
    path = tmp_path_factory.mktemp("ensemble") / "e.zarr"
    rng = np.random.default_rng(0)
    labels = rng.integers(-1, 2, (N_OBJECTS, N_PARTITIONS), np.int8)
    labels[: N_OBJECTS // 2, ::2] = 0
    return Ensemble.from_labels(labels).save(path).path


@pytest.mark.parametrize("engine", ["threads", "cluster"])
def test_fit__keeps_the_promise_of_the_smallest_budget(ensemble, tmp_path, engine):
    options = {"method": "pcc", "engine": engine, "ensemble": ensemble, "parameters": {"n_clusters": K}}
    peak, budget = solve(tmp_path, **options)
    print(f"peak {peak / 1e6:.0f} MB of {budget / 1e6:.0f} MB")
    assert peak <= budget, f"{peak / 1e6:.0f} MB in use under a budget of {budget / 1e6:.0f} MB"


def test_fit__keeps_the_promise_of_an_ensemble_in_memory_that_workers_are_sent(ensemble, tmp_path):
    options = {
        "method": "mixture",
        "engine": "cluster",
        "ensemble": ensemble,
        "parameters": {"n_clusters": K},
    }
    peak, budget = solve(tmp_path, **options, held=True, again=True)
    print(f"peak {peak / 1e6:.0f} MB of {budget / 1e6:.0f} MB")
    assert peak <= budget, f"{peak / 1e6:.0f} MB in use under a budget of {budget / 1e6:.0f} MB"


def test_fit__keeps_the_promise_of_the_smallest_budget_from_parquet(ensemble, tmp_path):
    path = Ensemble.open(ensemble).save(tmp_path / "e.parquet").path
    asked = {"n_clusters": K}
    peak, budget = solve(tmp_path, method="pcc", engine="threads", ensemble=path, parameters=asked)
    print(f"peak {peak / 1e6:.0f} MB of {budget / 1e6:.0f} MB")
    assert peak <= budget, f"{peak / 1e6:.0f} MB in use under a budget of {budget / 1e6:.0f} MB"
