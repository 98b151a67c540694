"""What solves add to processes that are warm, against what their plan says of data.

The promise in all, of `test_solve_memory`, sets memory aside for each process to load packages and compile,
beneath which data could hide. Here everything is compiled and loaded before the measuring begins.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest

from bigcons import Ensemble
from tests.memory.solving import growth

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="resident memory as Linux counts it"),
    pytest.mark.slow,
]

N_PARTITIONS, CHUNK_ROWS, K = 100, 16_384, 4
N_OBJECTS = {"cluster": 1_000_000, "serial": 700_000}  # more labels than the plan says, by the engine


@pytest.fixture(scope="module")
def ensembles(tmp_path_factory):
    """Stores of 100 and 70 MB of labels, by the engine, and one of the same kind for warming up."""
    folder = tmp_path_factory.mktemp("ensembles")
    labels = np.random.default_rng(0).integers(-1, 2, (max(N_OBJECTS.values()), N_PARTITIONS), np.int8)
    for name, n_objects in N_OBJECTS.items():
        Ensemble.from_labels(labels[:n_objects]).save(folder / f"{name}.zarr", chunk_rows=CHUNK_ROWS)
    Ensemble.from_labels(labels[:5000]).save(folder / "small.zarr", chunk_rows=1024)
    return folder


@pytest.mark.parametrize(
    ("method", "parameters", "engine"),
    [
        ("pcc", {}, "cluster"),
        ("pcc", {}, "serial"),
        ("mixture", {}, "serial"),
    ],
    ids=["pcc-cluster", "pcc-serial", "mixture-serial"],
)
def test_fit__adds_no_more_than_its_plan_says(ensembles, tmp_path, engine, method, parameters):
    asked = {"n_clusters": K, **parameters}
    stores = {"ensemble": str(ensembles / f"{engine}.zarr"), "small": str(ensembles / "small.zarr")}
    grown, stated = growth(tmp_path, method=method, engine=engine, parameters=asked, **stores)
    print(f"grown {grown / 1e6:.0f} MB of {stated / 1e6:.0f} MB")
    if not 0 < stated < N_OBJECTS[engine] * N_PARTITIONS:
        pytest.fail("make the store larger: a solve that held all labels would pass as well")
    assert grown <= stated, f"{grown / 1e6:.0f} MB more in use, and the plan says {stated / 1e6:.0f} MB"


@pytest.mark.parametrize("method", ["kcc", "mixture"])
def test_starts__of_many_clusters_add_no_more_than_the_plan_says(method, tmp_path):
    """Five starts, of which each holds tables of all base clusters by all clusters, and a large sample."""
    labels = np.random.default_rng(0).integers(0, 100, (20_000, 20), np.int8)
    Ensemble.from_labels(labels).save(tmp_path / "ensemble.zarr", chunk_rows=2048)
    Ensemble.from_labels(labels[:2000]).save(tmp_path / "small.zarr", chunk_rows=2048)
    stores = {name: str(tmp_path / f"{name}.zarr") for name in ("ensemble", "small")}
    asked = {"n_clusters": 600, "n_init": 5}
    grown, stated = growth(tmp_path, method=method, engine="serial", parameters=asked, **stores)
    print(f"grown {grown / 1e6:.0f} MB of {stated / 1e6:.0f} MB")
    assert grown <= stated, f"{grown / 1e6:.0f} MB more in use, and the plan says {stated / 1e6:.0f} MB"
