"""Methods with weights="local": LWEA, LWGP and CSPA by the reliability of base clusters, in full matrices."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from bigcons import METHODS, Ensemble
from bigcons.errors import InvalidInputError, MemoryBudgetError
from bigcons.methods.embedding import bipartite_embedding, cut_embedding
from bigcons.methods.evidence import EAC, EACAverage
from bigcons.methods.hypergraph import HBGF
from bigcons.methods.incidence import reliability, weights_of
from bigcons.metrics import adjusted_rand
from bigcons.run.engine import SerialEngine, ThreadsEngine
from tests.naive import hypergraph, overlaps
from tests.naive import linkage as naive_linkage
from tests.naive import reliability as naive
from tests.support.strategies import label_matrices

pytestmark = [
    pytest.mark.filterwarnings("ignore::bigcons.errors.UnlabeledObjectsWarning"),
    pytest.mark.filterwarnings("ignore::bigcons.errors.SurplusClustersWarning"),  # chains of single linkage
]

K = 4
LOCAL = ("eac", "eac-average", "eac-single", "hbgf", "cspa")
SERIAL = SerialEngine()


def planted(n_objects=200, n_partitions=14, wrong=0.25, missing=0.2, seed=0):
    """Return groups and noisy labels with gaps in which partitions differ in how fine they are."""
    rng = np.random.default_rng(seed)
    truth, labels = hypergraph.noisy_copies(n_objects, K, n_partitions, wrong, seed)
    labels[:, ::3] = labels[:, ::3] * 2 + rng.integers(2, size=labels[:, ::3].shape)
    labels[rng.random(labels.shape) < missing] = -1
    return truth, labels


def dense_codes(labels):
    ensemble = Ensemble.from_labels(labels)
    return ensemble, np.array(ensemble.read(0, ensemble.n_objects), dtype=np.int64)


# Evidence accumulation


@pytest.mark.parametrize("normalize", ["observed", "all"])
@given(labels=label_matrices(min_objects=3, max_objects=9))
def test_lwea__merges_nearest_clusters_of_objects_every_time(normalize, labels):
    model = EACAverage(1, weights="local", normalize=normalize).fit(labels)
    pairs = list(itertools.permutations(range(len(labels)), 2))
    similar = naive.coassociation(labels, normalize=normalize)
    distances = {pair: 1 - similar[pair] for pair in pairs}
    tree = model.linkage_
    points = list(range(len(tree) + 1))  # a point of every cluster
    merges = []
    for first, second in tree[:, :2].astype(int):
        merges.append((points[first], points[second]))
        points.append(points[first])
    groups = [np.flatnonzero(model.row_of_object_ == r).tolist() for r in range(len(tree) + 1)]
    steps = naive_linkage.replay(distances, groups, merges, "average")
    for height, (found, least) in zip(tree[:, 2], steps, strict=True):
        assert height == pytest.approx(found)
        assert height == pytest.approx(least)


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("method", ["average", "single"])
def test_eac__has_the_clusters_that_scipy_finds_from_the_full_matrix(method, missing):
    labels = planted(missing=missing)[1]
    codes = dense_codes(np.unique(labels, axis=0))[1]  # in which similarities of clusters do not tie
    distances = 1 - naive.coassociation(codes, normalize="observed")
    tree = linkage(squareform(distances, checks=False), method)
    model = EAC(K, linkage=method, weights="local").fit(codes)
    np.testing.assert_allclose(model.linkage_[:, 2], tree[:, 2])
    assert adjusted_rand(fcluster(tree, K, "maxclust"), model.labels_) == 1.0


def test_eac__has_the_distances_of_equal_rows_in_its_objective():
    labels = np.repeat(planted(60, missing=0.0)[1], 2, axis=0)
    distances = 1 - naive.coassociation(labels, normalize="observed")
    tree = linkage(squareform(distances, checks=False), "average")
    assert EACAverage(1, weights="local").fit(labels).objective_ == pytest.approx(tree[:, 2].sum())


# Graphs


def transfer_cut(labels, n_vectors):
    """Return the eigenvalues and eigenvectors by which the bipartite graph is cut (Li, Wu and Chang 2012)."""
    edges = overlaps.incidence(labels) * naive.reliability(labels)
    of_objects, of_clusters = edges.sum(axis=1), edges.sum(axis=0)
    small = edges.T @ (edges / of_objects[:, None])
    values, vectors = np.linalg.eigh(small / np.sqrt(np.outer(of_clusters, of_clusters)))
    values, leading = values[: -n_vectors - 1 : -1], vectors[:, : -n_vectors - 1 : -1]
    of_small = leading / np.sqrt(of_clusters)[:, None]
    return values, edges / of_objects[:, None] @ of_small / np.sqrt(values)  # transferred to the objects


def test_lwgp__embeds_objects_by_the_transfer_cut_of_the_weighted_graph():
    ensemble, labels = dense_codes(planted()[1])
    weights = weights_of("HBGF", "local", ensemble, SERIAL, None)
    embedding = bipartite_embedding(ensemble, SERIAL, K, weights)
    values, vectors = transfer_cut(labels, K)
    np.testing.assert_allclose(embedding.singular_values**2, values)
    vectors /= np.linalg.norm(vectors, axis=1)[:, None]
    rows, _ = embedding.rows_of(labels)
    np.testing.assert_allclose(rows @ rows.T, vectors @ vectors.T, atol=1e-9)


def test_cspa__has_the_spectrum_of_the_locally_weighted_coassociation():
    for normalize in ("observed", "all"):
        ensemble, labels = dense_codes(planted(missing=0.0 if normalize == "observed" else 0.3)[1])
        weights = weights_of("CSPA", "local", ensemble, SERIAL, None)
        similar = naive.coassociation(labels, normalize=normalize)
        values = np.linalg.eigvalsh(hypergraph.normalized(similar))[::-1]
        embedding = cut_embedding(ensemble, SERIAL, K, weights, observed=normalize == "observed")
        np.testing.assert_allclose(embedding.singular_values**2, values[:K])


def test_cspa__divides_joins_by_the_labels_of_both_objects():
    ensemble, labels = dense_codes(planted(missing=0.3)[1])
    seen = (labels >= 0).sum(axis=1)
    expected = naive.coassociation(labels, normalize="all") / np.outer(seen, seen)
    weights = weights_of("CSPA", "local", ensemble, SERIAL, None)
    embedding = cut_embedding(ensemble, SERIAL, K, weights, observed=True)
    values = np.linalg.eigvalsh(hypergraph.normalized(expected))[::-1]
    np.testing.assert_allclose(embedding.singular_values**2, values[:K])


# What all of them promise


@pytest.mark.parametrize("name", LOCAL)
def test_fit__has_the_same_bits_on_threads(name, tmp_path):
    labels = planted(500)[1]
    stored = Ensemble.from_labels(labels).save(tmp_path / "e.zarr", chunk_rows=64)
    found = []
    for client in ("serial", ThreadsEngine(3)):
        model = METHODS[name](K, weights="local", random_state=0, client=client).fit(stored)
        found.append((model.labels_.tobytes(), model.objective_))
    assert found[0] == found[1]


@pytest.mark.parametrize("name", LOCAL)
def test_fit__finds_planted_groups_and_a_lone_label_is_a_label(name):
    truth, labels = planted(400, wrong=0.1)
    labels[7] = -1
    labels[7, 1] = 0
    labels[8] = -1
    model = METHODS[name](K, weights="local", random_state=0).fit(labels)
    assert np.flatnonzero(model.labels_ < 0).tolist() == [8]
    if name != "eac-single":
        assert adjusted_rand(truth, model.labels_) > 0.9
    if hasattr(model, "predict"):
        np.testing.assert_array_equal(model.predict(labels), model.labels_)


@pytest.mark.parametrize("name", ["hbgf", "cspa"])
def test_memberships__of_zeros_and_ones_are_labels(name):
    ensemble, labels = dense_codes(planted()[1])
    tables = [(column[:, None] == np.arange(column.max() + 1)).astype(float) for column in labels.T]
    soft = Ensemble.from_memberships(tables)
    np.testing.assert_allclose(reliability(soft, SERIAL), reliability(ensemble, SERIAL), rtol=1e-12)
    hard = METHODS[name](K, weights="local", random_state=0).fit(ensemble)
    np.testing.assert_array_equal(
        METHODS[name](K, weights="local", random_state=0).fit(soft).labels_, hard.labels_
    )


@pytest.mark.slow
def test_fit__of_very_many_base_clusters_has_the_same_bits_on_threads(tmp_path):
    rng = np.random.default_rng(0)
    group = rng.integers(260, size=2600)
    labels = np.stack([rng.permutation(260)[group] for _ in range(20)], axis=1)
    noisy = rng.random(labels.shape) < 0.2
    labels[noisy] = rng.integers(260, size=noisy.sum())
    labels[rng.random(labels.shape) < 0.1] = -1
    stored = Ensemble.from_labels(labels).save(tmp_path / "e.zarr", chunk_rows=500)
    assert stored.n_base_clusters > 5_000  # sparse overlaps, and eigenvectors by passes
    found = reliability(stored, SERIAL)
    np.testing.assert_allclose(found, naive.reliability(stored.read(0, 2600)), rtol=1e-12)
    np.testing.assert_array_equal(reliability(stored, ThreadsEngine(3)), found)
    one, three = (
        HBGF(20, weights="local", random_state=0, client=c).fit(stored) for c in ("serial", ThreadsEngine(3))
    )
    np.testing.assert_array_equal(one.labels_, three.labels_)
    assert one.objective_ == three.objective_
    assert one.n_passes_ > 3


@pytest.mark.parametrize("name", LOCAL)
def test_weights__by_another_word_are_refused_in_one_line(name):
    with pytest.raises(InvalidInputError) as refusal:
        METHODS[name](K, weights="global", random_state=0).fit(planted(50)[1])
    assert str(refusal.value).startswith("weights='global' is not known; use 'local', one number for each")
    assert "\n" not in str(refusal.value)
    assert refusal.value.parameter == "weights"


@pytest.mark.parametrize("name", ["pcc", "mcla", "kcc"])
def test_weights__of_base_clusters_are_refused_by_other_methods(name):
    with pytest.raises(InvalidInputError, match="weights"):
        METHODS[name](K, weights="local", random_state=0).fit(planted(50)[1])


def test_memory__of_the_overlaps_is_refused_with_the_number():
    ensemble = Ensemble.from_labels(planted()[1])
    with pytest.raises(MemoryBudgetError, match="EAC with weights='local' needs") as refused:
        weights_of("EAC", "local", ensemble, SERIAL, "1MB")
    assert refused.value.needed > refused.value.budget
