"""What solves add to processes that are warm, against what their plan says of data.

The promise in all, of `test_solve_memory`, sets 120 MB aside for each process to compile, beneath which data
could hide. Here everything is compiled and loaded before the measuring begins.
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

N_OBJECTS, N_PARTITIONS, CHUNK_ROWS, K = 1_300_000, 250, 32_768, 4


@pytest.fixture(scope="module")
def ensembles(tmp_path_factory):
    """A store of 325 MB of labels in 40 blocks, and one of the same kind for warming up."""
    folder = tmp_path_factory.mktemp("ensembles")
    labels = np.random.default_rng(0).integers(-1, 2, (N_OBJECTS, N_PARTITIONS), np.int8)
    Ensemble.from_labels(labels).save(folder / "e.zarr", chunk_rows=CHUNK_ROWS)
    Ensemble.from_labels(labels[:5000]).save(folder / "small.zarr", chunk_rows=1024)
    return {"ensemble": str(folder / "e.zarr"), "small": str(folder / "small.zarr")}


# With the other engine each, PCC is in `test_solve_memory`.
@pytest.mark.parametrize(
    ("method", "parameters", "engine"),
    [
        ("pcc", {}, "cluster"),
        ("pcc", {"divergence": "kl", "n_prototypes": 4}, "serial"),
        ("mixture", {}, "serial"),
    ],
    ids=["pcc-l2-cluster", "pcc-kl-serial", "mixture-serial"],
)
def test_fit__adds_no_more_than_its_plan_says(ensembles, tmp_path, engine, method, parameters):
    asked = {"n_clusters": K, **parameters}
    grown, stated = growth(tmp_path, method=method, engine=engine, parameters=asked, **ensembles)
    print(f"grown {grown / 1e6:.0f} MB of {stated / 1e6:.0f} MB")
    if not 0 < stated < N_OBJECTS * N_PARTITIONS:
        pytest.fail("make the store larger: a solve that held all labels would pass as well")
    assert grown <= stated, f"{grown / 1e6:.0f} MB more in use, and the plan says {stated / 1e6:.0f} MB"
