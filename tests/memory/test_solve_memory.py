"""The memory promise of stored solves: the smallest budget that is accepted, against the measured peak.

The peak is that of all processes of the solve together, workers too. The promise in all sets memory aside for
each process to load packages and compile, beneath which data could hide: so what solves add to processes that
are warm is measured alone, against what their plan says of data. One method stands for those that keep tables
only, one for those of base-cluster overlaps, one for those whose objects carry numbers from pass to pass.
"""

import sys

import numpy as np
import pytest

from bigcons import Ensemble
from tests.memory.solving import growth, solve

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="resident memory as Linux counts it"),
    pytest.mark.slow,
]

N_LONG = 1_100_000


def test_fit__on_workers_that_are_sent_what_is_held_keeps_the_promise_of_the_smallest_budget(tmp_path):
    labels = np.random.default_rng(0).integers(-1, 2, (150_000, 250), np.int8)
    path = Ensemble.from_labels(labels).save(tmp_path / "e.zarr").path
    how = {"method": "mixture", "engine": "cluster", "parameters": {"n_clusters": 4}}
    peak, budget = solve(tmp_path, ensemble=path, held=True, **how)
    assert peak <= budget, f"{peak / 1e6:.0f} MB in use under a budget of {budget / 1e6:.0f} MB"


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """A store of few labels for each of many objects, with which memberships grow, too.

    One in twenty labels differs; with more, an object takes more steps, but no more memory.
    """
    rng = np.random.default_rng(0)
    labels = rng.integers(-1, 20, (N_LONG, 6), np.int8)
    classes = rng.integers(20, size=(N_LONG, 1), dtype=np.int8)
    labels = np.where(rng.random(labels.shape, np.float32) < 0.05, labels, classes)
    return Ensemble.from_labels(labels).save(tmp_path_factory.mktemp("ensemble") / "e.zarr").path


@pytest.mark.parametrize("method", ["pcc", "hbgf", "bce", "tree"])
def test_methods__keep_the_promise_of_the_smallest_budget(method, long, tmp_path):
    again = method == "hbgf"  # which loads and keeps most
    how = {"method": method, "engine": "threads", "parameters": {"n_clusters": 20}}
    peak, budget = solve(tmp_path, ensemble=long, again=again, **how)
    assert peak <= budget, f"{peak / 1e6:.0f} MB in use under a budget of {budget / 1e6:.0f} MB"
    assert peak + N_LONG * (6 + 8 * 20) > budget, "a solve that held all would keep it, too"


def test_tree__keeps_the_promise_where_the_tree_of_a_sample_needs_most(tmp_path):
    """Many labels of few objects."""
    rng = np.random.default_rng(0)
    labels = (rng.integers(8, size=(2500, 1)) + rng.integers(12, size=(2500, 200))) % 12
    path = Ensemble.from_labels(labels).save(tmp_path / "e.zarr").path
    how = {"method": "tree", "engine": "threads", "parameters": {"n_clusters": 8}}
    peak, budget = solve(tmp_path, ensemble=path, **how)
    assert peak <= budget, f"{peak / 1e6:.0f} MB in use under a budget of {budget / 1e6:.0f} MB"


@pytest.mark.parametrize(
    ("method", "engine", "n_objects"),
    [("pcc", "cluster", 700_000), ("mixture", "serial", 200_000)],  # more labels than the plan says
)
def test_fit__adds_no_more_than_its_plan_says_to_processes_that_are_warm(tmp_path, method, engine, n_objects):
    labels = np.random.default_rng(0).integers(-1, 2, (n_objects, 100), np.int8)
    stores = {name: str(tmp_path / f"{name}.zarr") for name in ("ensemble", "small")}
    Ensemble.from_labels(labels).save(stores["ensemble"], chunk_rows=16_384)
    Ensemble.from_labels(labels[:5000]).save(stores["small"], chunk_rows=1024)
    grown, stated = growth(tmp_path, method=method, engine=engine, parameters={"n_clusters": 4}, **stores)
    if not 0 < stated < labels.size:
        pytest.fail("make the store larger: a solve that held all labels would pass as well")
    assert grown <= stated, f"{grown / 1e6:.0f} MB more in use, and the plan says {stated / 1e6:.0f} MB"


def test_starts__of_many_clusters_add_no_more_than_the_plan_says(tmp_path):
    """Five starts, of which each holds tables of all base clusters by all clusters, and a large sample."""
    labels = np.random.default_rng(0).integers(0, 100, (20_000, 20), np.int8)
    stores = {name: str(tmp_path / f"{name}.zarr") for name in ("ensemble", "small")}
    Ensemble.from_labels(labels).save(stores["ensemble"], chunk_rows=2048)
    Ensemble.from_labels(labels[:2000]).save(stores["small"], chunk_rows=2048)
    how = {"method": "mixture", "engine": "serial", "parameters": {"n_clusters": 300, "n_init": 5}}
    grown, stated = growth(tmp_path, **how, **stores)
    assert grown <= stated, f"{grown / 1e6:.0f} MB more in use, and the plan says {stated / 1e6:.0f} MB"
