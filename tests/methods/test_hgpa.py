"""HGPA: the cut of the hypergraph against all balanced cuts, and what takes its place if it cannot be had."""

import itertools
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons import Ensemble, partitioners
from bigcons.errors import MemoryBudgetError, MissingDependencyError, MissingDependencyWarning
from bigcons.methods import HGPA
from bigcons.methods.hypergraph import hyperedges
from bigcons.metrics import adjusted_rand
from tests.naive import hypergraph as naive
from tests.naive.overlaps import base_clusters
from tests.support.strategies import label_matrices

needs_mtkahypar = pytest.mark.skipif(not partitioners.has_mtkahypar(), reason="mtkahypar is not installed")


@given(label_matrices())
def test_hyperedges__are_the_objects_of_every_base_cluster(labels):
    ensemble = Ensemble.from_labels(labels)
    codes = ensemble.read(0, ensemble.n_objects)
    found = [vertices.tolist() for vertices in hyperedges(codes, ensemble.n_clusters)]
    assert found == [sorted(cluster) for cluster in base_clusters(codes)]


@needs_mtkahypar
@pytest.mark.filterwarnings("ignore::bigcons.errors.UnlabeledObjectsWarning")
@given(
    labels=label_matrices(min_objects=2, max_objects=9),
    k=st.integers(1, 4),
    objective=st.sampled_from(["km1", "cut"]),
    edge_weight=st.sampled_from(["unit", "size"]),
)
def test_hgpa__labels_whom_a_partition_labels_and_tells_the_objective_of_its_balanced_cut(
    labels, k, objective, edge_weight
):
    k = min(k, len(labels))
    model = HGPA(k, objective=objective, edge_weight=edge_weight, random_state=0).fit(labels)
    labeled = (labels >= 0).any(axis=1)
    np.testing.assert_array_equal(model.labels_ >= 0, labeled)
    assert model.objective_ == naive.cut(labels, model.labels_, objective, edge_weight)
    assert model.minimized_ == objective
    n_parts = min(k, int(labeled.sum()))
    largest = int(1.05 * -(-labeled.sum() // n_parts))
    assert np.bincount(model.labels_[labeled]).max() <= largest


@needs_mtkahypar
@pytest.mark.parametrize("objective", ["km1", "cut"])
@pytest.mark.parametrize("seed", range(3))
def test_hgpa__finds_the_least_cut_of_a_few_objects(objective, seed):
    rng = np.random.default_rng(seed)
    labels = np.where(rng.random((9, 4)) < 0.2, -1, rng.integers(3, size=(9, 4)))
    labels[(labels < 0).all(axis=1), 0] = 0
    balanced = {p for p in itertools.product(range(3), repeat=9) if max(map(p.count, range(3))) <= 3}
    least = min(naive.cut(labels, np.array(parts), objective, "unit") for parts in balanced)
    found = [HGPA(3, objective=objective, random_state=s).fit(labels).objective_ for s in range(5)]
    assert min(found) == least


@needs_mtkahypar
def test_hgpa__by_default_recovers_a_clustering_of_which_an_object_moved():
    truth = np.arange(120) % 3
    labels = np.tile(truth[:, None], 4)
    labels[0, 0] = 1
    model = HGPA(3, random_state=0).fit(labels)
    assert model.minimized_ == "km1"
    assert adjusted_rand(model.labels_, truth) == 1.0
    assert model.objective_ == 1  # the object that moved cuts the one it moved to


@needs_mtkahypar
@pytest.mark.parametrize("scale", [1, 0.37])
def test_hgpa__counts_partitions_by_their_weights(scale):
    labels = np.random.default_rng(0).integers(-1, 4, (40, 5))
    labels[:, 0] = np.arange(40) % 2
    model = HGPA(2, weights=scale * np.array([50, 1, 1, 1, 0]), random_state=0).fit(labels)
    assert adjusted_rand(labels[:, 0], model.labels_) == 1.0
    assert model.objective_ == pytest.approx(
        scale * naive.cut(labels[:, 1:4], model.labels_, "km1", "unit"), rel=0.02
    )


@needs_mtkahypar
def test_hgpa__keeps_to_the_imbalance_allowed():
    labels = np.tile(np.repeat([0, 1], [400, 200])[:, None], 6)
    sizes = [np.bincount(HGPA(2, imbalance=e, random_state=0).fit(labels).labels_).max() for e in (0.05, 0.4)]
    assert sizes[0] <= 1.05 * 300
    assert sizes[1] == 400


# A solve with one thread.
ALONE = """
import numpy as np
from bigcons import partitioners
partitioners.available_cores = lambda: 1
from bigcons.methods import HGPA
labels = np.random.default_rng(0).integers(-1, 6, (400, 6))
print(HGPA(5, random_state=3).fit(labels).labels_.tolist())
"""


@pytest.mark.slow
@needs_mtkahypar
def test_hgpa__finds_the_same_with_any_number_of_threads():
    found = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True).stdout
    labels = np.random.default_rng(0).integers(-1, 6, (400, 6))
    assert str(HGPA(5, random_state=3).fit(labels).labels_.tolist()) == found.strip()
    assert str(HGPA(5, random_state=4).fit(labels).labels_.tolist()) != found.strip()


@needs_mtkahypar
def test_hgpa__of_two_threads_at_once_keeps_the_seeds_apart():
    labels = np.random.default_rng(0).integers(-1, 6, (300, 6))
    expected = [HGPA(5, random_state=seed).fit(labels).labels_ for seed in range(4)]
    found = [None] * 4

    def solve(seed):
        found[seed] = HGPA(5, random_state=seed, client="serial").fit(labels).labels_

    threads = [threading.Thread(target=solve, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(found, expected)


def test_hgpa__of_too_many_labels_is_refused_with_the_number():
    with pytest.raises(MemoryBudgetError, match=r"over memory=1 MB; raise it to .* objective='laplacian'"):
        HGPA(2, objective="km1", memory="1MB").fit(np.zeros((20_000, 2), int))


def test_mtkahypar__that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mtkahypar", None)
    partitioners._mtkahypar.cache_clear()
    with pytest.raises(MissingDependencyError, match="objective='laplacian'") as refused:
        HGPA(3, objective="km1").fit(np.arange(12).reshape(6, 2) % 3)
    assert refused.value.extra == "graph"


def test_hgpa__by_default_falls_back_to_the_laplacian_and_says_so(monkeypatch):
    monkeypatch.setattr("bigcons.methods.hypergraph.has_mtkahypar", lambda: False)
    labels = np.tile((np.arange(60) % 3)[:, None], 4)
    with pytest.warns(MissingDependencyWarning, match="objective='laplacian'") as warned:
        model = HGPA(3, random_state=0).fit(labels)
    assert {warning.filename for warning in warned} == {__file__}
    assert model.minimized_ == "laplacian"
    expected = HGPA(3, objective="laplacian", random_state=0).fit(labels)
    np.testing.assert_array_equal(model.labels_, expected.labels_)
