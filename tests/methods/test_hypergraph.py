"""CSPA, HGPA, MCLA and HBGF: overlaps, spectra, k-means of embeddings and cuts against full matrices."""

import itertools
import sys
import threading
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from bigcons import METHODS, Ensemble, errors, partitioners, spectra
from bigcons.coassociation import dense
from bigcons.datasets import ce_8d5k, planted_ensemble
from bigcons.methods import incidence
from bigcons.methods.hypergraph import CSPA, HBGF, HGPA, MCLA, hyperedges, jaccard_weights
from bigcons.methods.incidence import fold_overlaps
from bigcons.metrics import adjusted_rand, nmi
from bigcons.partitioners import graph_of, partition_graph
from bigcons.run.engine import SerialEngine, ThreadsEngine, one_thread
from tests.naive import hypergraph as naive
from tests.naive import overlaps as counted
from tests.support.fits import quiet
from tests.support.labels import SEVEN
from tests.support.refusals import refused
from tests.support.stores import dense_codes
from tests.support.strategies import label_matrices

FAMILY = ("cspa", "hgpa", "mcla", "hbgf", "ccc", "ccu", "ccsvd", "best")
SERIAL = SerialEngine()
needs_mtkahypar = pytest.mark.skipif(not partitioners.has_mtkahypar(), reason="mtkahypar is not installed")


def random_labels(n_objects, n_partitions, n_clusters, gaps, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(n_clusters, size=(n_objects, n_partitions))
    labels[rng.random(labels.shape) < gaps] = -1
    labels[:n_clusters] = np.arange(n_clusters)[:, None]
    return labels


def made(method, **parameters):
    """Return a method that works from overlaps: of HGPA, the relaxation."""
    return METHODS[method](**({"objective": "laplacian"} if method == "hgpa" else {}), **parameters)


@pytest.fixture(scope="module")
def planted():
    """Five groups of 6000 objects in 12 partitions, a third of the labels random, a quarter missing."""
    truth, labels = naive.noisy_copies(3000, 5, 12, 0.33, 0)
    labels[np.random.default_rng(1).random(labels.shape) < 0.25] = -1
    return np.tile(truth, 2), np.tile(labels, (2, 1))  # starts are on a sample of 4,096


@given(label_matrices(), st.integers(1, 9))
def test_folds__are_products_with_the_incidence_matrix(labels, n_columns):
    ensemble, labels = dense_codes(labels)
    H, table = counted.incidence(labels), np.random.default_rng(n_columns).normal(size=(1, n_columns))
    overlaps = fold_overlaps(ensemble, SERIAL)
    np.testing.assert_array_equal(overlaps, H.T @ H)
    table = table * np.arange(1, len(overlaps) + 1)[:, None]
    scores, n_labels = incidence.votes_of(labels, ensemble.offsets, table)
    np.testing.assert_allclose(scores, H @ table, atol=1e-12)
    np.testing.assert_array_equal(n_labels, (labels >= 0).sum(axis=1))
    found = [vertices.tolist() for vertices in hyperedges(labels, ensemble.n_clusters)]
    assert found == [sorted(cluster) for cluster in counted.base_clusters(labels)]
    if labels.shape[1] > 1:
        weights = jaccard_weights(overlaps, ensemble.offsets)
        np.testing.assert_allclose(weights, counted.jaccard(labels), atol=1e-15)


@pytest.mark.parametrize("chunk_rows", [7, 1000])
def test_fold_overlaps__does_not_depend_on_chunks_or_threads(chunk_rows, tmp_path):
    labels = random_labels(500, 8, 5, 0.5)
    stored = Ensemble.from_labels(labels).save(tmp_path / "e.zarr", chunk_rows=chunk_rows)

    def weigh(labels):
        return 1.0 / np.maximum((labels >= 0).sum(axis=1), 1)

    expected = fold_overlaps(Ensemble.from_labels(labels), SERIAL)
    np.testing.assert_array_equal(fold_overlaps(stored, ThreadsEngine(3)), expected)
    weighted = fold_overlaps(stored, SERIAL, weigh)
    expected = fold_overlaps(Ensemble.from_labels(labels), SERIAL, weigh)
    np.testing.assert_allclose(weighted, expected, rtol=1e-12)
    assert fold_overlaps(stored, ThreadsEngine(3), weigh).tobytes() == weighted.tobytes()


def test_seven_objects__have_the_papers_hyperedges_similarities_and_jaccard_measure():
    ensemble = Ensemble.from_labels(SEVEN)
    assert len(hyperedges(ensemble.read(0, 7), ensemble.n_clusters)) == 11
    np.testing.assert_array_equal(dense(SEVEN)[0][0] / 4, [1, 0.75, 0.5, 0.25, 0, 0, 0])
    weights = jaccard_weights(fold_overlaps(ensemble, SERIAL), ensemble.offsets)
    assert round(weights[0, ensemble.offsets[2]], 2) == 0.67


@pytest.mark.parametrize("method", FAMILY)
def test_seven_objects__are_grouped_as_in_the_paper(method):
    found = made(method, n_clusters=3, random_state=0).fit(SEVEN).labels_
    assert adjusted_rand(found, SEVEN[:, 0]) == 1.0


@given(label_matrices(min_objects=2, min_partitions=2, max_objects=9))
def test_hbgf__has_the_singular_values_of_the_full_matrix(labels):
    ensemble, labels = dense_codes(labels[(labels >= 0).any(axis=1)])
    _, expected, _ = np.linalg.svd(naive.bipartite(labels))
    embedding = incidence.bipartite_embedding(ensemble, SERIAL, 6)
    found = embedding.singular_values
    np.testing.assert_allclose(found, expected[: len(found)], atol=1e-7)
    assert (expected[len(found) : 6] < 1e-4).all()


@pytest.mark.parametrize("normalize", ["observed", "all"])
def test_cspa__has_the_spectrum_of_the_normalized_similarity(normalize):
    ensemble, labels = dense_codes(random_labels(60, 6, 4, 0.4))
    over_all = naive.similarity(labels, normalize="all")
    graph = naive.expected_similarity(labels) if normalize == "observed" else over_all
    values, vectors = np.linalg.eigh(naive.normalized(graph))
    embedding = incidence.cut_embedding(ensemble, SERIAL, 4, observed=normalize == "observed")
    np.testing.assert_allclose(embedding.singular_values**2, values[:-5:-1], rtol=1e-9)
    rows, _ = embedding.rows_of(labels)
    leading = vectors[:, :-5:-1]
    np.testing.assert_allclose(
        np.abs(rows), np.abs(leading) / np.linalg.norm(leading, axis=1)[:, None], atol=1e-8
    )


@pytest.mark.parametrize("edge_weight", ["unit", "size"])
def test_hgpa__has_the_spectrum_of_the_hypergraph_laplacian(edge_weight):
    labels = random_labels(60, 6, 4, 0.4)
    H = counted.incidence(labels)
    weights = H.sum(axis=0) if edge_weight == "size" else np.ones(H.shape[1])
    expected = np.linalg.eigvalsh(naive.zhou(labels, weights))[::-1]
    model = HGPA(4, objective="laplacian", edge_weight=edge_weight, random_state=0).fit(labels)
    np.testing.assert_allclose(model.singular_values_**2, expected[:4], rtol=1e-9)


@pytest.mark.parametrize("size", [80, 2_100], ids=["by lapack", "by lanczos"])
def test_leading_eigenvectors__are_those_of_the_matrix(size):
    assert spectra.is_dense(size, 5) == (size == 80)
    basis, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((size, 8)))
    matrix = 0.1 * np.eye(size) + (basis * np.arange(8.0, 0.0, -1.0)) @ basis.T
    values, vectors = spectra.leading_eigenvectors(matrix, 5)
    np.testing.assert_allclose(values, [8.1, 7.1, 6.1, 5.1, 4.1])
    np.testing.assert_allclose(np.abs(basis[:, :5].T @ vectors), np.eye(5), atol=1e-8)
    largest = np.abs(vectors).argmax(axis=0)
    assert (vectors[largest, np.arange(5)] > 0).all()


def weights_of_objects(rows):
    """Return weights that differ, by the labels or memberships of an object alone."""
    return 1.0 / (1.0 + np.maximum(rows, 0).sum(axis=1))


def by_table(codes, n_vectors, scale):
    """Return the leading eigenvalues and vectors of the dense matrix, and the matrix."""
    H = counted.incidence(codes) * scale
    matrix = H.T @ (H * weights_of_objects(codes)[:, None])
    values, vectors = np.linalg.eigh(matrix)
    return values[::-1][:n_vectors], vectors[:, ::-1][:, :n_vectors], matrix


@given(label_matrices(min_objects=2, max_objects=30, max_partitions=6), st.integers(1, 6))
def test_passes__find_the_eigenvectors_of_the_table(labels, n_vectors):
    ensemble, codes = dense_codes(labels)
    scale = 1.0 / np.sqrt(1.0 + np.arange(ensemble.n_base_clusters))
    found, own, _ = incidence.leading_by_passes(
        ensemble, SERIAL, weights_of_objects, scale, n_vectors, tol=1e-12
    )
    values, _, matrix = by_table(codes, n_vectors, scale)
    known = values > spectra.NEGLIGIBLE * max(values[0], 1e-300)
    np.testing.assert_allclose(found, values[known], rtol=1e-9)
    np.testing.assert_allclose(own.T @ own, np.eye(known.sum()), atol=1e-9)
    np.testing.assert_allclose(matrix @ own, own * found, atol=1e-9 * values[0])


@pytest.mark.parametrize("kind", ["labels", "memberships"])
def test_embedding__of_few_objects_with_many_base_clusters_is_that_of_the_table(kind, monkeypatch):
    labels = random_labels(70, 40, 60, 0.1)
    ensemble = Ensemble.from_labels(labels)
    if kind == "memberships":
        ensemble = Ensemble.from_memberships([np.eye(60)[column] for column in np.maximum(labels.T, 0)])
    assert ensemble.n_base_clusters > spectra.MOST_FOR_DENSE
    by_objects = incidence.bipartite_embedding(ensemble, SERIAL, 5)
    monkeypatch.setattr(spectra, "MOST_FOR_DENSE", ensemble.n_base_clusters)
    by_table = incidence.bipartite_embedding(ensemble, SERIAL, 5)
    np.testing.assert_allclose(by_objects.singular_values, by_table.singular_values, rtol=1e-9)
    np.testing.assert_allclose(by_objects.table, by_table.table, atol=1e-8)


def test_passes__have_the_same_bits_on_any_engine_and_from_a_store_and_take_memberships(tmp_path):
    ensemble, _ = planted_ensemble(600, 10, n_clusters=(3, 9), missing=0.3, random_state=2)
    stored = ensemble.save(tmp_path / "e.zarr", chunk_rows=64)
    assert 2 < len(incidence.groups_of(stored, 8 * stored.n_base_clusters)) <= len(stored.blocks())
    scale, found = np.ones(stored.n_base_clusters), set()
    for data, engine in itertools.product((stored, stored.load()), (SERIAL, ThreadsEngine(3))):
        found.add(incidence.leading_by_passes(data, engine, weights_of_objects, scale, 5)[1].tobytes())
    assert len(found) == 1
    labels = np.random.default_rng(0).integers(0, 4, (50, 3))
    soft = Ensemble.from_memberships([np.eye(4)[column] for column in labels.T])
    of_hard, of_soft = (
        incidence.leading_by_passes(data, SERIAL, lambda rows: np.ones(len(rows)), np.ones(12), 3, tol=1e-10)
        for data in (Ensemble.from_labels(labels), soft)
    )
    np.testing.assert_allclose(of_hard[0], of_soft[0])
    np.testing.assert_allclose(of_hard[1], of_soft[1], atol=1e-8)


def test_fit__lets_no_cluster_take_the_objects_with_few_labels():
    K, n = 150, 6000
    shape = {"shares": [1 / K] * K, "n_clusters": (10, 40), "missing": 0.5}
    ensemble, classes = planted_ensemble(n, 50, **shape, random_state=0)
    found = HBGF(K, random_state=0).fit(ensemble).labels_
    assert np.bincount(found).max() < 2.5 * n / K
    assert adjusted_rand(classes, found) > 0.88


@pytest.mark.parametrize("method", ["cspa", "hgpa", "hbgf"])
def test_passes__find_what_kmeans_of_everything_finds(method, planted, tmp_path):
    labels = planted[1]
    stored = Ensemble.from_labels(labels).save(tmp_path / "e.zarr", chunk_rows=999)
    found = made(method, n_clusters=5, random_state=0).fit(stored)
    assert found.n_passes_ > 2
    embed = (
        partial(incidence.cut_embedding, observed=True) if method == "cspa" else incidence.bipartite_embedding
    )
    embedding = embed(stored, SERIAL, 5)
    extra = tuple(part[: None if method == "hbgf" else 0] for part in embedding.rows_of_base_clusters())
    every = stored.read(0, len(labels))
    centers, history = incidence.find_centers(embedding, stored, every, extra, 5, 0, SERIAL)
    assert "move" not in history
    assert found.objective_ == pytest.approx(history["objective"][-1], rel=1e-4)
    assert adjusted_rand(found.labels_, embedding.labels_of(every, centers)) > 0.99
    objective = np.array(found.history_["objective"])
    assert (np.diff(objective) <= 1e-9 * objective[0]).all()


@given(label_matrices(min_objects=3, min_partitions=2), st.integers(1, 3))
def test_mcla__memberships_are_the_shares_of_associations(labels, n_clusters):
    _, labels = dense_codes(labels)
    model = quiet(MCLA(n_clusters), labels)
    labeled = (labels >= 0).any(axis=1)
    expected = naive.associations(labels, model.meta_clusters_, n_clusters)[labeled]
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.memberships_[labeled], expected, atol=1e-6)
    assert (model.labels_[~labeled] == -1).all()
    assert (model.labels_[labeled] >= 0).all()


def test_mcla__ties_go_to_the_lowest_or_to_any_of_the_best():
    labels = np.repeat([[0, 0], [1, 1], [0, 1]], [60, 60, 60], axis=0)
    tied = slice(120, 180)
    lowest = MCLA(2).fit(labels)
    np.testing.assert_array_equal(lowest.memberships_[tied], 0.5)
    assert (lowest.labels_[tied] == 0).all()
    random = MCLA(2, ties="random", random_state=0).fit(labels)
    assert 10 < random.labels_[tied].sum() < 50
    np.testing.assert_array_equal(random.labels_[:120], lowest.labels_[:120])
    np.testing.assert_array_equal(random.labels_, random.memberships_.argmax(axis=1))
    np.testing.assert_array_equal(MCLA(2, ties="random", random_state=0).fit(labels).labels_, random.labels_)
    assert (MCLA(2, ties="random", random_state=1).fit(labels).labels_ != random.labels_).any()


@pytest.fixture(scope="module")
def views_of_8d5k():
    """The classes of 8D5K, and k-means labels from five pairs of its features."""
    features, classes = ce_8d5k(random_state=3)
    rng = np.random.default_rng(0)
    views = [rng.choice(8, 2, replace=False) for _ in range(5)]
    with one_thread():
        labels = [KMeans(5, n_init=5, random_state=0).fit_predict(features[:, view]) for view in views]
    return classes, np.stack(labels, axis=1)


@pytest.mark.parametrize("method", ["cspa", "mcla", "hbgf", "ccc", "ccu", "ccsvd"])
def test_8d5k__seen_in_two_dimensions_at_a_time_is_recovered(method, views_of_8d5k):
    classes, labels = views_of_8d5k
    single = max(nmi(classes, labels[:, u]) for u in range(5))
    found = made(method, n_clusters=5, random_state=0).fit(labels).labels_
    assert nmi(classes, found) > single


@pytest.mark.parametrize("method", FAMILY)
def test_memory__that_cannot_hold_the_overlaps_is_refused_with_the_number(method, planted):
    with refused(r"needs .* over memory=1 MB; raise it to .* n_base_clusters=60", errors.MemoryBudgetError):
        made(method, n_clusters=5, memory="1MB").fit(planted[1][:3000])


@pytest.mark.parametrize(
    "model", [*(of(3, partitioner="metis") for of in (CSPA, HBGF, MCLA)), HGPA(3, objective="km1")]
)
def test_packages__that_are_not_installed_are_named(model, monkeypatch):
    for package in ("pymetis", "mtkahypar"):
        monkeypatch.setitem(sys.modules, package, None)
    partitioners._mtkahypar.cache_clear()
    with pytest.raises(errors.MissingDependencyError, match=r"pip install 'bigcons\[graph\]'") as refused:
        model.fit(SEVEN)
    assert refused.value.extra == "graph"


@pytest.mark.parametrize("method", [CSPA, HBGF, MCLA])
def test_metis__finds_balanced_clusters_and_repeats_itself(method):
    pytest.importorskip("pymetis")
    truth, labels = naive.noisy_copies(400, 4, 10, 0.2, 0)
    labels[np.random.default_rng(0).random(labels.shape) < 0.2] = -1
    model, again = (method(4, partitioner="metis", random_state=0).fit(labels) for _ in range(2))
    assert adjusted_rand(truth, model.labels_) > 0.95
    np.testing.assert_array_equal(again.labels_, model.labels_)
    assert again.objective_ == model.objective_
    of_seven = method(3, partitioner="metis", random_state=0).fit(SEVEN)
    assert adjusted_rand([0, 0, 0, 1, 1, 2, 2], of_seven.labels_) == 1.0


@pytest.mark.parametrize("n_objects", [50, 62, 73])
def test_metis__finds_parts_of_a_few_objects(n_objects):
    """A twentieth of them is no object: 62 objects do not fit into ten parts of at most 6.5."""
    pytest.importorskip("pymetis")
    truth, labels = naive.noisy_copies(n_objects, 10, 10, 0.2, 0)
    labels = CSPA(10, partitioner="metis", random_state=0).fit(labels).labels_
    assert adjusted_rand(truth, labels) == 1.0
    assert np.bincount(labels).max() == -(-n_objects // 10)
    few = random_labels(20, 3, 3, 0.0)  # METIS's k-way scheme leaves parts of such graphs empty
    sizes = np.bincount(CSPA(8, partitioner="metis", random_state=0).fit(few).labels_, minlength=8)
    assert 1 <= sizes.min() <= sizes.max() <= 3


@pytest.mark.parametrize("normalize", ["observed", "all"])
@pytest.mark.parametrize("n_clusters", [1, 3])
def test_metis__tells_the_cut_by_weights_that_are_not_rounded(normalize, n_clusters):
    pytest.importorskip("pymetis")
    labels = random_labels(40, 7, 3, 0.3)
    model = CSPA(n_clusters, partitioner="metis", normalize=normalize, random_state=0).fit(labels)
    seen = (labels >= 0).astype(int) @ (labels >= 0).T
    agree = sum((column[:, None] == column) & (column >= 0) for column in labels.T)
    similarity = agree / (np.maximum(seen, 1) if normalize == "observed" else 7)
    apart = model.labels_[:, None] != model.labels_
    assert model.objective_ == pytest.approx(similarity[apart].sum() / 2, rel=1e-12)
    of_labels = HBGF(n_clusters, partitioner="metis", random_state=0).fit(labels)
    assert of_labels.objective_ == int(of_labels.objective_) < (labels >= 0).sum()


def test_metis__that_finds_no_balanced_cut_says_so():
    pytest.importorskip("pymetis")
    graph = graph_of(np.ones((13, 13)))
    with pytest.warns(errors.ConsensusWarning, match="METIS finds no cut into 11 parts of 1 to 2 vertices"):
        partition_graph(graph, 11, 0)


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
    least = min(naive.cut(labels, np.array(parts), objective) for parts in balanced)
    found = [HGPA(3, objective=objective, random_state=s).fit(labels).objective_ for s in range(5)]
    assert min(found) == least


@needs_mtkahypar
@pytest.mark.parametrize("scale", [1, 0.37])
def test_hgpa__counts_partitions_by_their_weights(scale):
    labels = np.random.default_rng(0).integers(-1, 4, (40, 5))
    labels[:, 0] = np.arange(40) % 2
    model = HGPA(2, weights=scale * np.array([50, 1, 1, 1, 0]), random_state=0).fit(labels)
    assert adjusted_rand(labels[:, 0], model.labels_) == 1.0
    expected = scale * naive.cut(labels[:, 1:4], model.labels_, "km1")
    assert model.objective_ == pytest.approx(expected, rel=1e-12)


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


def test_hgpa__by_default_falls_back_to_the_laplacian_and_says_so(monkeypatch):
    monkeypatch.setattr("bigcons.methods.hypergraph.has_mtkahypar", lambda: False)
    labels = np.tile((np.arange(60) % 3)[:, None], 4)
    with pytest.warns(errors.ConsensusWarning, match="objective='laplacian'") as warned:
        model = HGPA(3, random_state=0).fit(labels)
    assert {warning.filename for warning in warned} == {__file__}
    assert model.minimized_ == "laplacian"
    expected = HGPA(3, objective="laplacian", random_state=0).fit(labels)
    np.testing.assert_array_equal(model.labels_, expected.labels_)
