"""The memory promise of methods out of core: the smallest budget accepted, against the measured peak.

One method stands for those that keep tables only, one for those of base-cluster overlaps, one for those whose
objects carry numbers from pass to pass. `test_solve_memory` has PCC.
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

N_OBJECTS, N_PARTITIONS, K = 1_800_000, 50, 20


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory):
    """A store of 90 MB of labels: long, for memberships grow with the objects, too.

    A tenth of the labels differ; with more, an object of BCE takes more steps, but no more memory.
    """
    path = tmp_path_factory.mktemp("ensemble") / "e.zarr"
    rng = np.random.default_rng(0)
    labels = rng.integers(-1, 6, (N_OBJECTS, N_PARTITIONS), np.int8)
    classes = rng.integers(6, size=(N_OBJECTS, 1), dtype=np.int8)
    labels = np.where(rng.random(labels.shape, np.float32) < 0.1, labels, classes)
    return Ensemble.from_labels(labels).save(path).path


@pytest.mark.parametrize("method", ["mixture", "hbgf", "bce", "tree"])
def test_fit__keeps_the_promise_of_the_smallest_budget(method, ensemble, tmp_path):
    peak, budget = solve(
        tmp_path,
        method=method,
        engine="threads",
        ensemble=ensemble,
        parameters={"n_clusters": K},
        again=method == "hbgf",  # which loads and keeps most
    )
    print(f"{method}: peak {peak / 1e6:.0f} MB of {budget / 1e6:.0f} MB")
    assert peak <= budget, f"{peak / 1e6:.0f} MB in use under a budget of {budget / 1e6:.0f} MB"
    assert peak + N_OBJECTS * (N_PARTITIONS + 8 * K) > budget, "a solve that held all would keep it, too"


def test_fit__keeps_the_promise_where_the_tree_of_a_sample_needs_most(tmp_path):
    """Many labels of few objects."""
    rng = np.random.default_rng(0)
    labels = (rng.integers(8, size=(2500, 1)) + rng.integers(12, size=(2500, 400))) % 12
    path = Ensemble.from_labels(labels).save(tmp_path / "e.zarr").path
    peak, budget = solve(
        tmp_path, method="tree", engine="threads", ensemble=path, parameters={"n_clusters": 8}
    )
    print(f"tree: peak {peak / 1e6:.0f} MB of {budget / 1e6:.0f} MB")
    assert peak <= budget
