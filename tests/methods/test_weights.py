"""Weights of partitions, and "local" ones of base clusters by their reliability.

That a partition of weight w counts as if it occurred w times is in test_invariances, for every method.
"""

import inspect
import itertools

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from bigcons import METHODS, Ensemble
from bigcons.errors import UnlabeledObjectsWarning
from bigcons.methods.incidence import bipartite_embedding, weights_of
from bigcons.metrics import adjusted_rand
from bigcons.run.engine import SerialEngine
from bigcons.trust.groups import reliability_of_overlaps, reliability_of_table
from bigcons.weights import incidence_of
from tests.naive import hypergraph, overlaps
from tests.naive import linkage as naive_linkage
from tests.naive import reliability as naive
from tests.support.refusals import refused
from tests.support.stores import dense_codes
from tests.support.strategies import label_matrices

pytestmark = [
    pytest.mark.filterwarnings("ignore::bigcons.errors.UnlabeledObjectsWarning"),
    pytest.mark.filterwarnings("ignore::bigcons.errors.SurplusClustersWarning"),  # chains of single linkage
]

K, SERIAL = 4, SerialEngine()
WEIGHTS = np.array([1, 2, 3, 1, 2, 1, 1, 0])
WEIGHTED = [n for n, cls in METHODS.items() if "weights" in inspect.signature(cls).parameters and n != "did"]
LOCAL = ("eac", "eac-average", "eac-single", "hbgf", "cspa")


@pytest.fixture(scope="module")
def labels():
    """Four groups of 300 objects in 8 partitions, a quarter of the labels random, others missing."""
    _, labels = hypergraph.noisy_copies(300, K, 8, 0.25, 0)
    labels[np.random.default_rng(1).random(labels.shape) < 0.25] = -1
    return labels


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights__of_zero_leave_a_partition_out_and_do_not_label_an_object(labels, name):
    without = METHODS[name](K, random_state=0).fit(labels[:, :7])
    model = METHODS[name](K, weights=np.append(np.ones(7), 0), random_state=0).fit(labels)
    np.testing.assert_array_equal(model.labels_, without.labels_)
    assert model.objective_ == pytest.approx(without.objective_, rel=1e-9)
    # a tree and its groups leave an object itself out of what places it, PCC starts anew, a cut places none
    predicts = hasattr(model, "predict") and name not in ("tree", "eac-groups", "pcc", "hgpa")
    if predicts:
        np.testing.assert_array_equal(model.predict(labels), model.labels_)
    lone = labels.copy()
    lone[7] = -1
    lone[7, 7] = 0
    with pytest.warns(UnlabeledObjectsWarning, match="1 of 300"):
        model = METHODS[name](K, weights=WEIGHTS, random_state=0).fit(lone)
    assert np.flatnonzero(model.labels_ < 0).tolist() == [7]
    if predicts:
        assert model.predict(lone[7:8])[0] == -1


@pytest.mark.parametrize("name", ["ccc", "ccu", "ccsvd", "mcla"])
def test_weights__count_in_the_votes(labels, name):
    weights = np.array([1, 2, 0.5, 1, 3, 1, 0.25, 1])
    labels = labels.copy()  # some groups have more base clusters, of heavier partitions, than others
    labels[::2, 1:5][labels[::2, 1:5] == 0] = K
    model = METHODS[name](K, weights=weights, random_state=0).fit(labels)
    votes = np.zeros((len(labels), K))
    offsets = np.append(0, np.cumsum(labels.max(axis=0) + 1))
    for i, u in np.argwhere(labels >= 0):
        group = model.meta_clusters_[offsets[u] + labels[i, u]]
        if group >= 0:
            votes[i, group] += weights[u]
    if name == "mcla":
        votes /= np.bincount(model.meta_clusters_, np.repeat(weights, np.diff(offsets)), K)
    voted = votes.any(axis=1)
    expected = votes[voted] / votes[voted].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.memberships_[voted], expected, atol=1e-6)


REFUSED = [
    *(
        ("mcla", {"weights": w})
        for w in (np.ones(7), [1.0] * 7 + [np.nan], np.zeros(8), "heavy", [[1.0] * 8])
    ),
    *((name, {"weights": [1.0] * 7 + [-1.0]}) for name in WEIGHTED),
    *((name, {"weights": "global"}) for name in LOCAL),
    *((name, {"weights": "local"}) for name in ("pcc", "mcla", "kcc")),  # of which base clusters have none
    *((name, {"weights": WEIGHTS, "partitioner": "metis"}) for name in ("cspa", "hbgf", "mcla")),
]


@pytest.mark.parametrize(("name", "parameters"), REFUSED)
def test_weights__that_a_method_cannot_use_are_refused_in_one_line(labels, name, parameters):
    with refused("weights"):
        METHODS[name](K, random_state=0, **parameters).fit(labels)


def parts(labels):
    ensemble = Ensemble.from_labels(labels)
    codes = ensemble.read(0, ensemble.n_objects)
    return codes, incidence_of(codes, ensemble.offsets), ensemble.offsets


@given(label_matrices(max_objects=16), st.data())
def test_reliability__is_what_counting_labels_gives_and_weights_are_copies(labels, data):
    codes, incidence, offsets = parts(labels)
    expected, counted = naive.reliability(codes), overlaps.overlaps(codes)
    np.testing.assert_allclose(reliability_of_table(incidence, offsets), expected, rtol=1e-12)
    for form in (counted, scipy.sparse.csr_array(counted)):
        np.testing.assert_allclose(reliability_of_overlaps(form, offsets), expected, rtol=1e-12)
    copies = np.array([data.draw(st.integers(1, 3)) for _ in range(codes.shape[1])])
    found = reliability_of_table(incidence, offsets, copies)
    np.testing.assert_allclose(found, naive.reliability(codes, counts=copies), rtol=1e-12)
    repeated = np.repeat(codes, copies, axis=1)
    of_copies = np.split(naive.reliability(repeated), np.cumsum(repeated.max(axis=0) + 1)[:-1])
    of_firsts = np.concatenate([of_copies[u] for u in np.cumsum(copies) - copies])
    np.testing.assert_allclose(found, of_firsts, rtol=1e-12)


def test_reliability__of_soft_clusterings_is_that_of_overlaps_of_memberships():
    rng = np.random.default_rng(1)
    rows = [rng.dirichlet(np.ones(k), 40).astype(np.float32) for k in (2, 3, 4)]
    rows[1][:9] = 0.0  # not labeled
    offsets, H = np.array([0, 2, 5, 9]), np.concatenate(rows, axis=1)
    found = reliability_of_table(incidence_of(H, offsets), offsets)
    np.testing.assert_allclose(found, naive.soft_reliability(H.astype(float), offsets), rtol=1e-12)


def uneven(n_objects=100, wrong=0.25, missing=0.2):
    """Return groups and noisy labels with gaps in which partitions differ in how fine they are."""
    rng = np.random.default_rng(0)
    truth, labels = hypergraph.noisy_copies(n_objects, K, 14, wrong, 0)
    labels[:, ::3] = labels[:, ::3] * 2 + rng.integers(2, size=labels[:, ::3].shape)
    labels[rng.random(labels.shape) < missing] = -1
    return truth, labels


@pytest.mark.parametrize("normalize", ["observed", "all"])
@given(labels=label_matrices(min_objects=3, max_objects=9))
def test_lwea__merges_nearest_clusters_of_objects_every_time(normalize, labels):
    model = METHODS["eac-average"](1, weights="local", normalize=normalize).fit(labels)
    similar = naive.coassociation(labels, normalize=normalize)
    distances = {pair: 1 - similar[pair] for pair in itertools.permutations(range(len(labels)), 2)}
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


@pytest.mark.parametrize("method", ["average", "single"])
def test_eac__has_the_clusters_and_the_objective_that_scipy_finds_from_the_full_matrix(method):
    codes = dense_codes(np.unique(uneven()[1], axis=0))[1]  # in which similarities of clusters do not tie
    distances = 1 - naive.coassociation(codes, normalize="observed")
    tree = linkage(squareform(distances, checks=False), method)
    model = METHODS["eac"](K, linkage=method, weights="local").fit(codes)
    np.testing.assert_allclose(model.linkage_[:, 2], tree[:, 2])
    assert adjusted_rand(fcluster(tree, K, "maxclust"), model.labels_) == 1.0
    twice = np.repeat(uneven(60, missing=0.0)[1], 2, axis=0)
    distances = 1 - naive.coassociation(twice, normalize="observed")
    heights = linkage(squareform(distances, checks=False), method)[:, 2]
    of_all = METHODS["eac"](1, linkage=method, weights="local").fit(twice)
    assert of_all.objective_ == pytest.approx(heights.sum())


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
    ensemble, labels = dense_codes(uneven()[1])
    embedding = bipartite_embedding(
        ensemble, SERIAL, K, weights_of(METHODS["hbgf"](weights="local"), ensemble, SERIAL)
    )
    values, vectors = transfer_cut(labels, K)
    np.testing.assert_allclose(embedding.singular_values**2, values)
    vectors /= np.linalg.norm(vectors, axis=1)[:, None]
    rows, _ = embedding.rows_of(labels)
    np.testing.assert_allclose(rows @ rows.T, vectors @ vectors.T, atol=1e-9)


@pytest.mark.parametrize("name", LOCAL)
def test_fit__by_reliability_finds_planted_groups_and_a_lone_label_is_a_label(name):
    truth, labels = uneven(400, wrong=0.1)
    labels[7:9] = -1
    labels[7, 1] = 0
    model = METHODS[name](K, weights="local", random_state=0).fit(labels)
    assert np.flatnonzero(model.labels_ < 0).tolist() == [8]
    if name != "eac-single":
        assert adjusted_rand(truth, model.labels_) > 0.9
    if hasattr(model, "predict"):
        np.testing.assert_array_equal(model.predict(labels), model.labels_)
