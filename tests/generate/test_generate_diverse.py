"""Ensembles of different algorithms, against scipy, scikit-learn and what each similarity promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster import hierarchy
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

from bigcons import datasets, generate
from bigcons.errors import InvalidInputError, MemoryBudgetError, MissingDependencyError
from bigcons.generate.diverse import (
    CLUSTERERS,
    LINKAGES,
    SETS,
    after_merges,
    correlation,
    cosine,
    euclidean,
    jaccard,
)
from bigcons.metrics import matching_accuracy
from bigcons.partitioners import graph_of

WITHOUT_METIS = [name for name in CLUSTERERS if not name.startswith(("graph", "hyper"))]


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(300, n_features=4, centers=4, cluster_std=0.5, random_state=1)


def make(x, **kwargs):
    """The labels of every partition by its name."""
    ensemble = generate.diverse(x, **{"random_state": 0, **kwargs})
    return dict(zip(ensemble.names, ensemble.read(0, ensemble.n_objects).T, strict=True))


# The ensemble


def test_diverse__each_algorithm_for_each_number_of_clusters(blobs):
    partitions = make(blobs[0], n_clusters=(2, 5))
    assert list(partitions) == [f"{name}-{k}" for name in SETS["pcc"] for k in range(2, 6)]
    for name, labels in partitions.items():
        assert labels.min() == 0
        assert labels.max() + 1 == int(name[-1])


def test_diverse__does_not_depend_on_memory_or_the_other_algorithms(blobs):
    expected = make(blobs[0], n_clusters=(2, 4), algorithms=WITHOUT_METIS)
    other = make(blobs[0], n_clusters=(2, 4), algorithms=WITHOUT_METIS, memory="375MB")
    for name, labels in expected.items():
        np.testing.assert_array_equal(other[name], labels)
    alone = make(blobs[0], n_clusters=(2, 4), algorithms="kmeans")
    np.testing.assert_array_equal(alone["kmeans-3"], expected["kmeans-3"])
    assert not np.array_equal(make(blobs[0], algorithms="random", random_state=1)["random-5"],
                              make(blobs[0], algorithms="random")["random-5"])  # fmt: skip


# Linkage


@given(st.sampled_from(LINKAGES), st.integers(3, 25), st.integers(0, 20), st.data())
def test_after_merges__has_so_many_clusters_and_is_scipys_cut(method, n, seed, data):
    points = np.random.default_rng(seed).normal(size=(n, 2))
    k = data.draw(st.integers(1, n))
    tree = hierarchy.linkage(points, method)
    labels = after_merges(tree, n, k)
    assert sorted(np.unique(labels)) == list(range(k))
    if method != "centroid":  # whose heights may fall, so that a cut by height is another thing
        expected = hierarchy.fcluster(tree, k, "maxclust")
        assert adjusted_rand_score(labels, expected) == pytest.approx(1)


# Similarities


def points_pairs():
    rng = np.random.default_rng(0)
    return rng.normal(size=(6, 4)), rng.normal(size=(5, 4))


def test_similarities__are_their_formulas():
    a, b = points_pairs()
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            dot = sum(x * y)
            assert euclidean(a, b)[i, j] == pytest.approx(np.exp(-sum((x - y) ** 2)))
            assert cosine(a, b)[i, j] == pytest.approx(dot / np.sqrt(sum(x * x) * sum(y * y)))
            assert correlation(a, b)[i, j] == pytest.approx((np.corrcoef(x, y)[0, 1] + 1) / 2)
            assert jaccard(a, b)[i, j] == pytest.approx(dot / (sum(x * x) + sum(y * y) - dot))


def test_k_means__by_angles_sees_nothing_else():
    rng = np.random.default_rng(0)
    truth = np.repeat(range(3), 60)
    directions = np.array([[1, 0.2, 0.1], [0.1, 1, 0.2], [0.2, 0.1, 1]])[truth]
    far = directions * rng.uniform(1, 100, size=(180, 1))
    for name in ("kmeans-cosine", "kmeans-correlation"):
        found = max(
            matching_accuracy(
                truth,
                make(far, n_clusters=3, algorithms=name, standardize=False, random_state=seed)[f"{name}-3"],
            )
            for seed in range(5)
        )
        assert found == 1


# Graphs


class TestGraphs:
    @pytest.fixture(autouse=True)
    def metis(self):
        pytest.importorskip("pymetis")

    @pytest.mark.parametrize("name", [name for name in CLUSTERERS if name.startswith("graph")])
    def test_graph__parts_are_balanced_and_good(self, name):
        x, truth = datasets.ce_8d5k(1)
        labels = make(x, n_clusters=5, algorithms=name, standardize=name != "graph-euclidean")[f"{name}-5"]
        assert np.bincount(labels).max() <= 1.05 * 200 + 1
        assert matching_accuracy(truth, labels) > 0.95

    def test_graph__without_edges_is_still_cut(self):
        unlike = np.eye(20)
        labels = make(unlike, n_clusters=4, algorithms="graph-cosine", standardize=False)["graph-cosine-4"]
        assert labels.shape == (20,)


@pytest.mark.parametrize(("n", "scale"), [(50, 1e-9), (600, 1e6)])
def test_graph__weights_are_whole_and_in_proportion(n, scale):
    weights = np.random.default_rng(0).uniform(0.1, 1, (n, n))
    weights = (weights + weights.T) * scale
    graph = graph_of(weights.copy())
    np.fill_diagonal(weights, 0)
    assert graph.weights.dtype == np.int64
    assert graph.weights.sum() <= (1 << 30) + n * n
    others = [np.delete(np.arange(n), i) for i in range(n)]
    np.testing.assert_array_equal(graph.indices.reshape(n, n - 1), others)
    np.testing.assert_allclose(graph.weights / graph.scale, weights[weights > 0], atol=0.51 / graph.scale)


def test_diverse__graphs_without_pymetis_name_the_extra(blobs, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        MissingDependencyError, match=r"'graph-euclidean' needs pymetis; install bigcons\[graph\]"
    ):
        make(blobs[0], algorithms="rcc")


def test_hypergraph__parts_of_features_are_balanced_and_good():
    pytest.importorskip("mtkahypar")
    truth = np.repeat([0, 1, 2], 40)
    shares = np.where(truth[:, None] == np.arange(30) % 3, 0.4, 0.002)
    words = (np.random.default_rng(0).random((120, 30)) < shares).astype(float)
    found = make(words, n_clusters=3, algorithms="hypergraph", standardize=False)["hypergraph-3"]
    assert np.bincount(found).max() <= 1.05 * 40 + 1
    assert matching_accuracy(truth, found) > 0.95


# Errors


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"algorithms": "gas"}, "algorithms='gas' is unknown"),
        ({"algorithms": ["kmeans", "gas"]}, "algorithms='gas' is unknown"),
        ({"algorithms": ["kmeans", "pcc"]}, "algorithms='pcc' is unknown"),
        ({"algorithms": ["kmeans", "kmeans"]}, "has duplicates"),
        ({"algorithms": []}, "is empty"),
        ({"n_clusters": (3, 2)}, r"n_clusters=\(3, 2\) is not a range"),
        ({"n_clusters": "split"}, "n_clusters='split'"),
        ({"n_clusters": 300}, "n_clusters=300 but there are 300 objects"),
        ({"memory": "no"}, "memory='no'"),
    ],
)
def test_diverse__says_what_is_wrong_in_one_line(blobs, kwargs, message):
    with pytest.raises(InvalidInputError, match=message) as error:
        make(blobs[0], **kwargs)
    assert "\n" not in str(error.value)


def test_diverse__rejects_all_pairs_of_many_objects_with_the_number():
    many = np.random.default_rng(0).normal(size=(50_000, 2))
    with pytest.raises(MemoryBudgetError, match=r"pairs of 'ward' need 20 GB, over the 4 GB available"):
        make(many, algorithms=["ward", "kmeans"])
    assert len(make(many, n_clusters=2, algorithms="kmeans")) == 1
