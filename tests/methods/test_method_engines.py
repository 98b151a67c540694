"""Every method that works out of core gives the same bits on a cluster and of repeated tasks, too.

Threads are in the contract of estimators.
"""

import numpy as np
import pytest

from bigcons import METHODS, Consensus, Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.run.engine import ThreadsEngine
from tests.support.clusters import local_client
from tests.support.engines import RepeatedTasks
from tests.support.fits import bits, quiet

pytestmark = pytest.mark.slow

# Starts see 4,096 of the objects, so that passes have something left to do.
N_OBJECTS, N_PARTITIONS, CHUNK_ROWS, K = 4500, 12, 1024, 4
UNLABELED = [5, 1500]

# The method and the parameters of each solve.
SOLVES = {
    **{name: (name, {}) for name in METHODS if METHODS[name].info.out_of_core},
    "cspa local": ("cspa", {"weights": "local"}),
    "hbgf local": ("hbgf", {"weights": "local"}),
    "furthest": ("furthest", {"init": "sampled"}),
    "furthest exact": ("furthest", {}),
    "greedy annealed": ("greedy-anmi", {"temperature": 0.2, "max_iter": 26}),
    "hgpa": ("hgpa", {"objective": "laplacian"}),
    "hgpa km1": ("hgpa", {"objective": "km1"}),
    "ipc": ("ipc", {"normalize": "all"}),
    "ipc observed": ("ipc", {}),
    "kmeans onehot": ("kmeans", {"encode": "onehot"}),
    "mcla random ties": ("mcla", {"ties": "random"}),
    "supra": ("supra", {"members": "cspa, mcla, best"}),
    "pcc kl of pairs": ("pcc", {"divergence": "kl", "pairs": 0.05, "solver": "blocked", "max_iter": 2}),
    "pcc of the heap": ("pcc", {"pairs": 0.05, "solver": "heap", "max_iter": 5000}),
}

# Of each way in which a cluster returns results, one solve without a store: carried by passes, by labels, and
# by memberships of blocks.
IN_MEMORY_TOO = ("bce", "ivc", "hbgf", "pcc", "pcc of the heap")


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    labels = planted_ensemble(N_OBJECTS, N_PARTITIONS, missing=0.4, random_state=4)[0].read(0, N_OBJECTS)
    labels[UNLABELED] = -1
    return Ensemble.from_labels(labels).save(
        tmp_path_factory.mktemp("engines") / "ensemble.zarr", chunk_rows=CHUNK_ROWS
    )


@pytest.fixture(scope="module")
def cluster():
    """Two threads of another process, which loads each kernel once; `test_same_bits` has two processes."""
    with local_client(threads_per_worker=2) as client:
        yield client


def fit(solve, stored, client, out=None):
    name, parameters = SOLVES[solve]
    few = {"n_init": 2, "max_iter": 6}
    few = {key: value for key, value in few.items() if key in METHODS[name]().get_params()}
    few = {} if solve == "hgpa km1" else few
    model = METHODS[name](**{"n_clusters": K, "random_state": 3, "client": client, **few, **parameters})
    return quiet(model, stored, out=out)


@pytest.mark.parametrize("solve", SOLVES)
def test_fit__has_the_same_bits_on_every_engine(solve, stored, cluster, tmp_path):
    assert len(stored.blocks()) == 5
    model = fit(solve, stored, "serial")
    expected = bits(model)
    assert model.n_clusters_ > 1
    assert np.flatnonzero(model.labels_ < 0).tolist() == UNLABELED
    if "tol" in model.get_params() and solve != "hgpa km1":  # a cut takes one pass
        assert model.n_passes_ > 1
    on_cluster = fit(solve, stored, cluster, out=tmp_path / "consensus.zarr")
    assert bits(on_cluster) == expected
    assert Consensus.open(tmp_path / "consensus.zarr").labels.tobytes() == expected[0]
    assert bits(fit(solve, stored, RepeatedTasks(), out=tmp_path / "repeated.zarr")) == expected
    if solve in IN_MEMORY_TOO:
        assert bits(fit(solve, stored, cluster)) == expected


@pytest.mark.parametrize("name", ["did", "eac-average", "eac-average local"])
def test_fit__of_a_dendrogram_has_the_same_bits_on_every_engine(name, cluster):
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(800, 2)), rng.integers(-1, 4, (800, 6))  # two bands of pairs
    parameters = {"features": features} if name == "did" else {}
    if name.endswith("local"):
        name, parameters = "eac-average", {"weights": "local"}
    serial, *others = (
        bits(METHODS[name](K, client=client, **parameters).fit(labels))
        for client in ("serial", ThreadsEngine(2), cluster)
    )
    assert others == [serial, serial]
