"""Dissimilarity increments: the law by quadrature, the matrix by three loops, what it can see."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import linkage
from scipy.integrate import quad
from scipy.spatial.distance import squareform
from sklearn.cluster import KMeans
from sklearn.datasets import make_moons
from threadpoolctl import threadpool_limits

from bigcons import DID
from bigcons.coassociation import did_matrix, did_ranking
from bigcons.coassociation.increments import log_increment_density, spanning_tree
from bigcons.errors import MemoryBudgetError
from bigcons.methods.evidence import EAC
from bigcons.metrics import matching_accuracy
from tests.naive import did as naive
from tests.support.strategies import label_matrices

pytestmark = pytest.mark.filterwarnings("ignore::bigcons.errors.UnlabeledObjectsWarning")


def micro_clusters(points, n_partitions=60, seed=0):
    """Return k-means partitions of random numbers of clusters, by the rule of the paper."""
    rng = np.random.default_rng(seed)
    fewest = max(int(np.sqrt(len(points)) / 2), len(points) // 50)
    numbers = rng.integers(fewest, fewest + 21, n_partitions).tolist()
    models = [KMeans(k, init="random", n_init=1, random_state=u) for u, k in enumerate(numbers, 1000 * seed)]
    with threadpool_limits(1):  # threads of so small a problem wait for each other
        return np.stack([model.fit(points).labels_ for model in models], axis=1)


@pytest.fixture(scope="module")
def moons():
    points, truth = make_moons(300, noise=0.02, random_state=0)
    return points, truth, micro_clusters(points)


@pytest.mark.parametrize("mean", [0.03, 1.0, 40.0])
def test_density__integrates_to_one_and_has_its_mean(mean):
    moments = [
        quad(lambda w, k=k: w**k * np.exp(log_increment_density(w, mean)), 0, 20 * mean, points=[mean])[0]
        for k in range(3)
    ]
    _, first, second = moments
    assert moments[0] == pytest.approx(1, abs=1e-9)
    assert first == pytest.approx(mean, rel=1e-9)
    assert np.sqrt(second - first**2) == pytest.approx(0.76978 * mean, rel=1e-5)
    assert np.exp(log_increment_density(np.zeros(1), mean))[0] == pytest.approx(0.650645 / mean, rel=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 25])
@pytest.mark.parametrize("choice", ["vertex", "sorted"])
def test_spanning_tree__equals_naive_increments_and_neighbors(n, choice):
    points = np.random.default_rng(n).normal(size=(n, 3))
    tree = spanning_tree(points)
    np.testing.assert_allclose(np.sort(tree.edges)[::2], [e[0] for e in naive.spanning_tree(points)])
    distances = np.linalg.norm(points[:, None] - points, axis=2) + np.diag(np.full(n, np.inf))
    ordered = np.sort(distances, axis=1)
    np.testing.assert_allclose(tree.distance, ordered[:, 0])
    if n > 1:
        np.testing.assert_array_equal(tree.nearest, distances.argmin(axis=1))
        np.testing.assert_allclose(tree.next_distance, ordered[:, 1])
    expected = naive.increments(points, choice)
    np.testing.assert_allclose(np.sort(tree.increments(choice)), np.sort(expected))


@given(
    labels=label_matrices(min_objects=3, max_objects=12, max_clusters=2, max_partitions=3),
    exclude_self=st.booleans(),
    by_observed=st.booleans(),
    choice=st.sampled_from(["vertex", "sorted"]),
    seed=st.integers(0, 9),
)
def test_did_matrix__equals_the_three_loops(labels, exclude_self, by_observed, choice, seed):
    rng = np.random.default_rng(seed)
    points, weights = rng.normal(size=(len(labels), 2)), rng.random(labels.shape[1]) + 0.1
    normalize, how = "observed" if by_observed else "all", {"weights": weights, "exclude_self": exclude_self}
    found = did_matrix(points, labels, normalize=normalize, increments=choice, **how)
    given, how = (points.tolist(), labels.tolist()), {**how, "weights": weights.tolist()}
    expected = naive.matrix(*given, choice=choice, by_observed=by_observed, **how)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("label_code", [False, True])
@given(
    labels=label_matrices(min_objects=6, max_objects=14, max_clusters=2, min_partitions=3),
    seed=st.integers(0, 9),
)
def test_did_ranking__equals_naive_description_lengths(label_code, labels, seed):
    points = np.random.default_rng(seed).normal(size=(len(labels), 2))
    order, lengths = did_ranking(points, labels, label_code=label_code)
    columns = [[row[u] for row in labels.tolist()] for u in range(labels.shape[1])]
    expected = [naive.description_length(points.tolist(), c, "vertex", label_code) for c in columns]
    np.testing.assert_allclose(lengths, expected)
    assert (np.diff(lengths[order]) >= 0).all()


def test_pair_model__coassociation_has_the_dendrogram_of_eac(moons):
    points, truth, labels = moons
    weights = np.random.default_rng(0).uniform(0.5, 1.5, labels.shape[1])  # so that few distances are equal
    for method in ("single", "average"):
        expected = EAC(2, linkage=method, weights=weights).fit(labels)
        how = {"linkage": method, "pair_model": "coassociation", "weights": weights}
        model = DID(2, features=points, **how).fit(labels)
        assert model.objective_ == pytest.approx(expected.objective_)
        heights = model.linkage_[-len(expected.linkage_) :, 2]
        np.testing.assert_allclose(heights, expected.linkage_[:, 2], atol=1e-12)
        assert model.row_of_object_.tolist() == list(range(len(truth)))


@pytest.mark.parametrize("symmetrize", ["mean", "max"])
@pytest.mark.parametrize("method", ["average", "single"])
def test_fit__is_linkage_of_the_symmetric_matrix(method, symmetrize):
    rng = np.random.default_rng(3)
    points, labels = rng.normal(size=(40, 2)), rng.integers(-1, 3, (40, 6))
    labels[[5, 17]] = -1
    labeled = (labels >= 0).any(axis=1)
    model = DID(4, features=points, linkage=method, symmetrize=symmetrize).fit(labels)
    matrix = did_matrix(points, labels)[np.ix_(labeled, labeled)]
    both = np.maximum(matrix, matrix.T) if symmetrize == "max" else (matrix + matrix.T) / 2
    np.fill_diagonal(both, 1)
    heights = linkage(squareform(1 - both), method)[:, 2]
    assert model.objective_ == pytest.approx(heights[:-3].sum())
    np.testing.assert_array_equal(model.labels_ >= 0, labeled)
    assert model.n_clusters_ == 4


@pytest.mark.parametrize("method", ["single", "average"])
def test_fit__separates_moons(method, moons):
    points, truth, labels = moons
    assert matching_accuracy(truth, DID(2, features=points, linkage=method).fit(labels).labels_) == 1


def test_fit__refuses_what_does_not_fit_memory(moons):
    points, _, labels = moons
    with pytest.raises(MemoryBudgetError, match=r"all pairs of 300 objects need .* use eac-single"):
        DID(2, features=points, memory="371MB").fit(labels)
    with pytest.raises(MemoryBudgetError, match="all pairs of 300 objects need"):
        did_matrix(points, labels, memory="1MB")
