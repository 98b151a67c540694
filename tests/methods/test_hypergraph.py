"""CSPA, HGPA, MCLA and HBGF against full matrices; the fold of overlaps that they share."""

import sys
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from bigcons import METHODS, Ensemble, spectra
from bigcons.coassociation import dense
from bigcons.datasets import ce_8d5k
from bigcons.errors import (
    ConsensusWarning,
    ConvergenceWarning,
    InvalidInputError,
    MemoryBudgetError,
    MissingDependencyError,
    UnlabeledObjectsWarning,
)
from bigcons.kernels.nearest import nearest_centers
from bigcons.kernels.overlaps import add_overlaps, count_overlaps, mirror
from bigcons.methods import incidence
from bigcons.methods.embedding import Centers, bipartite_embedding, cut_embedding, find_centers
from bigcons.methods.hypergraph import CSPA, HBGF, HGPA, MCLA, hyperedges, jaccard_weights
from bigcons.methods.incidence import block_overlaps, fold_overlaps, observed_pairs, votes_of
from bigcons.metrics import adjusted_rand, nmi
from bigcons.partitioners import graph_of, partition_graph
from bigcons.progress import Progress, report_progress_to
from bigcons.run.engine import SerialEngine, ThreadsEngine, one_thread
from bigcons.run.memory_plan import check_held_plan
from tests.naive import hypergraph as naive
from tests.naive import overlaps as counted
from tests.support.strategies import label_matrices

FAMILY = ("cspa", "hgpa", "mcla", "hbgf", "ccc", "ccu", "ccsvd", "best")
SERIAL = SerialEngine()

# Strehl and Ghosh 2002, section 2: four labelings of seven objects, the last with gaps.
SEVEN = np.array(
    [[1, 1, 1, 2, 2, 3, 3], [2, 2, 2, 3, 3, 1, 1], [1, 1, 2, 2, 3, 3, 3], [1, 2, -1, 1, 2, -1, -1]]
).T


def dense_codes(labels):
    """Return an ensemble and its labels in dense codes."""
    ensemble = Ensemble.from_labels(labels)
    return ensemble, np.array(ensemble.read(0, ensemble.n_objects), dtype=np.int64)


def random_labels(n_objects, n_partitions, n_clusters, gaps, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(n_clusters, size=(n_objects, n_partitions))
    labels[rng.random(labels.shape) < gaps] = -1
    labels[:n_clusters] = np.arange(n_clusters)[:, None]
    return labels


def made(method, **parameters):
    """Return a method that works from overlaps: of HGPA, the relaxation."""
    return METHODS[method](**({"objective": "laplacian"} if method == "hgpa" else {}), **parameters)


def same_grouping(a, b):
    return adjusted_rand(a, b) == 1.0


@pytest.fixture(scope="module")
def planted():
    """Five groups of 3000 objects in 12 partitions, a third of the labels random, a quarter missing."""
    truth, labels = naive.noisy_copies(3000, 5, 12, 0.33, 0)
    labels[np.random.default_rng(1).random(labels.shape) < 0.25] = -1
    return truth, labels


# The folds


@given(label_matrices(max_objects=9), st.integers(0, 99))
def test_kernels__count_what_base_clusters_share(labels, seed):
    ensemble, labels = dense_codes(labels)
    weights = np.random.default_rng(seed).random(len(labels))
    size = ensemble.n_base_clusters
    counts, ones, weighted = np.zeros((3, size, size))
    count_overlaps(labels, ensemble.offsets, counts)
    add_overlaps(labels, ensemble.offsets, np.ones(len(labels)), ones)
    add_overlaps(labels, ensemble.offsets, weights, weighted)
    np.testing.assert_array_equal(counts, np.triu(counted.overlaps(labels)))
    np.testing.assert_array_equal(ones, counts)
    np.testing.assert_allclose(weighted, np.triu(counted.overlaps(labels, weights)), rtol=1e-12)


@pytest.mark.parametrize("size", [1, 255, 256, 257, 600])
def test_mirror__makes_a_table_symmetric_by_its_upper_triangle(size):
    table = np.random.default_rng(size).random((size, size))
    expected = np.triu(table) + np.triu(table, 1).T
    mirror(table)
    np.testing.assert_array_equal(table, expected)


@pytest.mark.parametrize("n_objects", [63, 64, 65, 4096, 4097, 10_000])
def test_kernels__agree_at_the_ends_of_words_and_chunks(n_objects):
    ensemble, labels = dense_codes(random_labels(n_objects, 6, 7, 0.4))
    counts, ones = np.zeros((2, ensemble.n_base_clusters, ensemble.n_base_clusters))
    count_overlaps(labels, ensemble.offsets, counts)
    add_overlaps(labels, ensemble.offsets, np.ones(n_objects), ones)
    np.testing.assert_array_equal(counts, ones)
    np.testing.assert_array_equal(np.diag(counts), [len(c) for c in hyperedges(labels, ensemble.n_clusters)])


@pytest.mark.parametrize("n_clusters", [4, 60], ids=["packed", "one by one"])
def test_block_overlaps__counts_few_and_many_clusters_alike(n_clusters):
    ensemble, labels = dense_codes(random_labels(300, 3, n_clusters, 0.3))
    upper = np.triu(counted.overlaps(labels))
    np.testing.assert_array_equal(block_overlaps(labels, ensemble.offsets), upper)
    np.testing.assert_array_equal(block_overlaps(labels, ensemble.offsets, np.full(300, 0.5)), upper / 2)


@given(label_matrices())
def test_fold_overlaps__is_the_gram_matrix_of_the_incidence(labels):
    ensemble, labels = dense_codes(labels)
    H = counted.incidence(labels)
    overlaps = fold_overlaps(ensemble, SERIAL)
    np.testing.assert_array_equal(overlaps, H.T @ H)
    np.testing.assert_array_equal(observed_pairs(overlaps, ensemble.offsets), H.T @ (labels >= 0))


@pytest.mark.parametrize("chunk_rows", [7, 64, 1000])
def test_fold_overlaps__does_not_depend_on_chunks_or_threads(chunk_rows, tmp_path):
    labels = random_labels(500, 8, 5, 0.5)
    stored = Ensemble.from_labels(labels).save(tmp_path / "e.zarr", chunk_rows=chunk_rows)

    def weigh(labels):
        return 1.0 / np.maximum((labels >= 0).sum(axis=1), 1)

    expected = fold_overlaps(Ensemble.from_labels(labels), SERIAL)
    np.testing.assert_array_equal(fold_overlaps(stored, ThreadsEngine(3)), expected)
    weighted = fold_overlaps(stored, SERIAL, weigh)
    np.testing.assert_allclose(
        weighted, fold_overlaps(Ensemble.from_labels(labels), SERIAL, weigh), rtol=1e-12
    )
    assert fold_overlaps(stored, ThreadsEngine(3), weigh).tobytes() == weighted.tobytes()


@given(label_matrices(), st.integers(1, 9))
def test_votes__are_the_incidence_times_a_table(labels, n_columns):
    ensemble, labels = dense_codes(labels)
    table = np.random.default_rng(n_columns).standard_normal((ensemble.n_base_clusters, n_columns))
    scores, n_labels = votes_of(labels, ensemble.offsets, table)
    np.testing.assert_allclose(scores, counted.incidence(labels) @ table, atol=1e-12)
    np.testing.assert_array_equal(n_labels, (labels >= 0).sum(axis=1))


# The paper's example


def test_seven_objects__have_eleven_hyperedges():
    ensemble = Ensemble.from_labels(SEVEN)
    assert len(hyperedges(ensemble.read(0, 7), ensemble.n_clusters)) == 11


def test_seven_objects__have_the_papers_similarities():
    n_agree, _ = dense(SEVEN)
    np.testing.assert_array_equal(n_agree[0] / 4, [1, 0.75, 0.5, 0.25, 0, 0, 0])


def test_seven_objects__have_the_papers_jaccard_measure():
    ensemble = Ensemble.from_labels(SEVEN)
    weights = jaccard_weights(fold_overlaps(ensemble, SERIAL), ensemble.offsets, observed=False)
    assert round(weights[0, ensemble.offsets[2]], 2) == 0.67


@pytest.mark.parametrize("method", FAMILY)
def test_seven_objects__are_grouped_as_in_the_paper(method):
    found = made(method, n_clusters=3, random_state=0).fit(SEVEN).labels_
    assert same_grouping(found, SEVEN[:, 0])


# Spectra


@given(label_matrices(min_objects=2, min_partitions=2, max_objects=9))
def test_hbgf__has_the_singular_values_of_the_full_matrix(labels):
    ensemble, labels = dense_codes(labels[(labels >= 0).any(axis=1)])
    _, expected, _ = np.linalg.svd(naive.bipartite(labels))
    embedding = bipartite_embedding(ensemble, SERIAL, 6)
    found = embedding.singular_values
    np.testing.assert_allclose(found, expected[: len(found)], atol=1e-7)
    assert (expected[len(found) : 6] < 1e-4).all()


def test_hbgf__embeds_objects_and_base_clusters_by_the_singular_vectors():
    ensemble, labels = dense_codes(random_labels(60, 5, 4, 0.4))
    U, values, Vt = np.linalg.svd(naive.bipartite(labels), full_matrices=False)
    assert (np.diff(values[:5]) < -1e-3).all()
    embedding = bipartite_embedding(ensemble, SERIAL, 4)
    rows, labeled = embedding.rows_of(labels)
    assert labeled.all()
    for found, vectors in ((rows, U[:, :4]), (embedding.rows_of_base_clusters()[0], Vt.T[:, :4])):
        np.testing.assert_allclose(np.abs(found), np.abs(vectors) / np.linalg.norm(vectors, axis=1)[:, None])
    signs = np.sign(rows[0] * U[0, :4])
    np.testing.assert_allclose(rows * signs, U[:, :4] / np.linalg.norm(U[:, :4], axis=1)[:, None], atol=1e-9)


@pytest.mark.parametrize("normalize", ["observed", "all"])
def test_cspa__has_the_spectrum_of_the_normalized_similarity(normalize):
    ensemble, labels = dense_codes(random_labels(60, 6, 4, 0.4))
    graph = naive.expected_similarity if normalize == "observed" else similarity_over_all
    values, vectors = np.linalg.eigh(naive.normalized(graph(labels)))
    embedding = cut_embedding(ensemble, SERIAL, 4, observed=normalize == "observed")
    np.testing.assert_allclose(embedding.singular_values**2, values[:-5:-1], rtol=1e-9)
    rows, _ = embedding.rows_of(labels)
    leading = vectors[:, :-5:-1]
    np.testing.assert_allclose(
        np.abs(rows), np.abs(leading) / np.linalg.norm(leading, axis=1)[:, None], atol=1e-8
    )


def similarity_over_all(labels):
    return naive.similarity(labels, normalize="all")


def test_cspa__needs_no_choice_of_normalize_without_gaps():
    labels = random_labels(60, 6, 4, 0.0)
    np.testing.assert_allclose(
        naive.expected_similarity(labels), naive.similarity(labels, normalize="observed")
    )
    found = [CSPA(4, normalize=normalize, random_state=0).fit(labels) for normalize in ("all", "observed")]
    np.testing.assert_allclose(found[0].singular_values_, found[1].singular_values_)


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


def test_leading_eigenvectors__leaves_out_what_is_zero():
    vector = np.arange(1.0, 7.0)
    values, vectors = spectra.leading_eigenvectors(np.outer(vector, vector), 4)
    np.testing.assert_allclose(values, [91.0])
    np.testing.assert_allclose(vectors[:, 0], vector / np.sqrt(91.0))


def test_leading_eigenvectors__fall_back_where_lapack_finds_no_subset():
    labels = np.array([[1, 0, 0, 0], [0, -1, 1, -1], [0, -1, -1, 1]])
    found = bipartite_embedding(Ensemble.from_labels(labels), SerialEngine(), 6)
    H = counted.incidence(labels)
    expected = np.linalg.svd(H / np.sqrt(np.outer(H.sum(axis=1), H.sum(axis=0))), compute_uv=False)
    np.testing.assert_allclose(found.singular_values, expected[expected > 1e-5])


# K-means over blocks


@pytest.mark.parametrize("method", ["cspa", "hgpa", "hbgf"])
@pytest.mark.parametrize("chunk_rows", [999, 6000])
def test_passes__find_what_kmeans_of_everything_finds(method, chunk_rows, planted, tmp_path):
    labels = np.tile(planted[1], (2, 1))  # starts are on a sample of 4,096
    stored = Ensemble.from_labels(labels).save(tmp_path / "e.zarr", chunk_rows=chunk_rows)
    found = made(method, n_clusters=5, random_state=0, tol=0.0).fit(stored)
    assert found.n_passes_ > 2
    embedding = found._centers.embedding
    extra = tuple(part[: None if method == "hbgf" else 0] for part in embedding.rows_of_base_clusters())
    every = stored.read(0, len(labels))
    how = {"n_clusters": 5, "n_init": 1, "max_iter": 100, "tol": 0.0}
    centers, history, _ = find_centers(embedding, stored, every, extra, 0, SERIAL, **how)
    assert "move" not in history
    assert found.objective_ == pytest.approx(history["objective"][-1], rel=1e-4)
    assert adjusted_rand(found.labels_, Centers(embedding, centers).labels_of(every)) > 0.99
    objective = np.array(found.history_["objective"])
    assert (np.diff(objective) <= 1e-9 * objective[0]).all()


def test_passes__end_where_another_would_change_nothing(planted):
    labels = np.tile(planted[1], (2, 1))
    ensemble, codes = dense_codes(labels)
    model = HBGF(5, random_state=0, tol=0.0).fit(ensemble)
    embedding = bipartite_embedding(ensemble, SERIAL, 5)
    rows = np.concatenate([embedding.rows_of(codes)[0], embedding.rows_of_base_clusters()[0]])
    clusters = model.labels_
    for _ in range(20):  # from the second time on with the base clusters, which have no labels of their own
        means = np.stack([rows[: len(clusters)][clusters == k].mean(axis=0) for k in range(5)])
        means /= np.sqrt((means**2).sum(axis=1, keepdims=True))
        clusters = (rows @ means.T).argmax(axis=1)
    assert same_grouping(clusters[: len(labels)], model.labels_)
    assert ((rows - means[clusters]) ** 2).sum() == pytest.approx(model.objective_)


def test_passes__that_reach_max_iter_warn(planted):
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        CSPA(5, max_iter=1, tol=0.0, random_state=0).fit(np.tile(planted[1], (2, 1)))


def test_settings__of_kmeans_are_checked():
    for wrong in ({"n_init": 0}, {"max_iter": 0}, {"tol": -1.0}):
        with pytest.raises(InvalidInputError, match=next(iter(wrong))):
            HBGF(2, **wrong).fit([[0, 0], [0, 1], [1, 1]])


# MCLA


@given(label_matrices(min_partitions=2), st.booleans())
def test_jaccard__compares_base_clusters_of_different_partitions(labels, observed):
    ensemble, labels = dense_codes(labels)
    weights = jaccard_weights(fold_overlaps(ensemble, SERIAL), ensemble.offsets, observed=observed)
    np.testing.assert_allclose(weights, counted.jaccard(labels, observed=observed), atol=1e-15)


@given(label_matrices(min_objects=3, min_partitions=2), st.integers(1, 3))
def test_mcla__memberships_are_the_shares_of_associations(labels, n_clusters):
    _, labels = dense_codes(labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnlabeledObjectsWarning)
        model = MCLA(n_clusters).fit(labels)
    labeled = (labels >= 0).any(axis=1)
    expected = naive.associations(labels, model.meta_clusters_, n_clusters)[labeled]
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.memberships_[labeled], expected, atol=1e-6)
    assert (model.labels_[~labeled] == -1).all()
    assert (model.labels_[labeled] >= 0).all()


def test_mcla__groups_by_average_linkage(planted):
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    ensemble = Ensemble.from_labels(planted[1])
    model = MCLA(5, partitioner="average").fit(ensemble)
    weights = jaccard_weights(fold_overlaps(ensemble, SERIAL), ensemble.offsets, observed=False)
    distances = 1.0 - weights
    np.fill_diagonal(distances, 0.0)
    expected = fcluster(linkage(squareform(distances), "average"), 5, "maxclust")
    assert same_grouping(model.meta_clusters_, expected)
    together = model.meta_clusters_[:, None] == model.meta_clusters_
    assert model.objective_ == pytest.approx(weights[together].sum() / weights.sum())


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


def uneven_partitions(seed):
    """Return six groups of uneven sizes, and partitions that merge or split them."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(6, 2000, p=[0.3, 0.22, 0.18, 0.14, 0.1, 0.06])
    labels = np.empty((2000, 40), int)
    for u in range(40):
        k = rng.integers(2, 11)
        names = rng.permutation(
            np.concatenate([np.arange(min(k, 6)), rng.integers(min(k, 6), size=max(6 - k, 0))])
        )
        column = names[truth]
        for new in range(6, k):
            column[(truth == rng.integers(6)) & (rng.random(2000) < 0.5)] = new
        wrong = rng.random(2000) < 0.25
        column[wrong] = rng.integers(k, size=wrong.sum())
        labels[:, u] = column
    return truth, labels


@pytest.mark.parametrize("seed", [7, 9, 16])  # where average linkage falls to 0.65 and less
def test_mcla__is_safe_from_partitions_of_uneven_numbers(seed):
    truth, labels = uneven_partitions(seed)
    assert adjusted_rand(truth, MCLA(6, random_state=0).fit(labels).labels_) > 0.95


# The paper's experiments


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


class Listening(Progress):
    heard = None

    def start(self, what, total, unit):
        Listening.heard.append([what, total, 0])

    def advance(self, n):
        Listening.heard[-1][2] += n

    def finish(self):
        pass


def test_progress__tells_every_pass_over_the_objects(planted, monkeypatch):
    monkeypatch.setattr(Listening, "heard", [])
    with report_progress_to(Listening):
        model = CSPA(5, random_state=0, client="serial").fit(np.tile(planted[1], (2, 1)))
    names = [what for what, _, _ in Listening.heard]
    assert names[:3] == ["survey", "sizes of base clusters", "overlaps of base clusters"]
    assert names.count("k-means of the embedding") == model.n_passes_ - 2
    assert all(total == done for _, total, done in Listening.heard)


# Limits


@pytest.mark.parametrize("method", FAMILY)
def test_memory__that_cannot_hold_the_overlaps_is_refused_with_the_number(method, planted):
    with pytest.raises(
        MemoryBudgetError, match=r"needs .* over memory=1 MB; raise it to .* n_base_clusters=60"
    ):
        made(method, n_clusters=5, memory="1MB").fit(planted[1])


def test_memory__of_many_base_clusters_must_be_allowed():
    fine = Ensemble.from_labels(np.repeat(np.arange(160)[:, None], 100, axis=1))
    plan = {"columns": 5, "in_memory": True}
    with pytest.raises(MemoryBudgetError, match=r"n_base_clusters=16000; pass memory='.* GB'") as refusal:
        incidence.check_overlaps_plan("MCLA", fine, SERIAL, None, **plan)
    enough = str(refusal.value).split("'")[1]
    incidence.check_overlaps_plan("MCLA", fine, SERIAL, enough, **plan)


@pytest.mark.parametrize("method", FAMILY)
def test_n_clusters__beyond_what_the_labels_tell_apart_stay_empty(method):
    labels = np.array([[0, 0], [0, 0], [1, 0], [1, 1], [1, 1], [0, 0]])
    model = made(method, n_clusters=6, random_state=0).fit(labels)
    assert model.n_clusters_ <= 3
    assert model.labels_[0] == model.labels_[1] == model.labels_[5]
    assert model.labels_[3] == model.labels_[4]


@pytest.mark.parametrize("method", FAMILY)
def test_n_clusters__of_one_takes_all(method):
    model = made(method, n_clusters=1, random_state=0).fit(np.zeros((4, 2), int))
    np.testing.assert_array_equal(model.labels_, 0)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (CSPA(2, partitioner="cut"), "partitioner='cut' is unknown"),
        (CSPA(2, normalize="some"), "normalize='some' is unknown"),
        (CSPA(2, imbalance=0.1), "imbalance=0.1 does not apply to partitioner='spectral'"),
        (CSPA(2, partitioner="metis", imbalance=0), "imbalance=0 is out of range"),
        (HBGF(2, partitioner="cut"), "partitioner='cut' is unknown"),
        (HBGF(2, imbalance=0.1), "imbalance=0.1 does not apply to partitioner='spectral'"),
        (HGPA(2, edge_weight="mass"), "edge_weight='mass' is unknown"),
        (MCLA(2, union="none"), "union='none' is unknown"),
        (MCLA(2, ties="first"), "ties='first' is unknown"),
        (MCLA(2, imbalance=0.1), "imbalance=0.1 does not apply to partitioner='spectral'"),
        (
            MCLA(2, partitioner="average", imbalance=0.1),
            "imbalance=0.1 does not apply to partitioner='average'",
        ),
        (CSPA(2, partitioner="metis", n_init=3), "n_init=3 does not apply to partitioner='metis'"),
        (HBGF(2, partitioner="metis", max_iter=5), "max_iter=5 does not apply to partitioner='metis'"),
        (HGPA(2, objective="soed"), "objective='soed' is unknown"),
        (
            HGPA(2, objective="laplacian", imbalance=0.1),
            "imbalance=0.1 does not apply to objective='laplacian'",
        ),
        (HGPA(2, objective="cut", tol=0.0), "tol=0.0 does not apply to objective='cut'; leave it at 0.0001"),
    ],
)
def test_parameters__that_make_no_sense_are_refused(model, message):
    with pytest.raises(InvalidInputError, match=message) as refusal:
        model.fit(SEVEN)
    assert "\n" not in str(refusal.value)


# Partitioners of other packages


@pytest.mark.parametrize("method", [CSPA, HBGF, MCLA])
def test_metis__that_is_not_installed_is_named(method, monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'bigcons\[graph\]'"):
        method(3, partitioner="metis").fit(SEVEN)


@pytest.mark.parametrize("method", [CSPA, HBGF, MCLA])
def test_metis__finds_balanced_clusters_and_repeats_itself(method):
    pytest.importorskip("pymetis")
    truth, labels = naive.noisy_copies(400, 4, 10, 0.2, 0)
    labels[np.random.default_rng(0).random(labels.shape) < 0.2] = -1
    model = method(4, partitioner="metis", random_state=0).fit(labels)
    assert adjusted_rand(truth, model.labels_) > 0.95
    again = method(4, partitioner="metis", random_state=0).fit(labels)
    np.testing.assert_array_equal(again.labels_, model.labels_)
    assert again.objective_ == model.objective_


def test_metis__keeps_to_the_imbalance_allowed():
    pytest.importorskip("pymetis")
    truth = np.repeat([0, 1], [300, 100])
    labels = np.tile(truth[:, None], 5)
    labels[np.random.default_rng(0).random(labels.shape) < 0.02] = 0
    even = np.bincount(CSPA(2, partitioner="metis", random_state=0).fit(labels).labels_)
    assert even.max() <= 1.05 * 200
    uneven = CSPA(2, partitioner="metis", imbalance=0.6, random_state=0).fit(labels)
    assert adjusted_rand(truth, uneven.labels_) > 0.9


@pytest.mark.parametrize("n_objects", [50, 62, 73])
def test_metis__finds_parts_of_a_few_objects(n_objects):
    """A twentieth of them is no object: 62 objects do not fit into ten parts of at most 6.5."""
    pytest.importorskip("pymetis")
    truth, labels = naive.noisy_copies(n_objects, 10, 10, 0.2, 0)
    labels = CSPA(10, partitioner="metis", random_state=0).fit(labels).labels_
    assert adjusted_rand(truth, labels) == 1.0
    assert np.bincount(labels).max() == -(-n_objects // 10)


@pytest.mark.parametrize("method", [CSPA, HBGF, MCLA])
def test_metis__recovers_the_grouping_of_the_seven_objects(method):
    pytest.importorskip("pymetis")
    for seed in range(5):
        model = method(3, partitioner="metis", random_state=seed).fit(SEVEN)
        assert adjusted_rand([0, 0, 0, 1, 1, 2, 2], model.labels_) == 1.0


@pytest.mark.parametrize("K", [3, 5, 8])
def test_metis__leaves_no_part_empty(K):
    """METIS's k-way scheme leaves parts of such graphs empty."""
    pytest.importorskip("pymetis")
    labels = random_labels(20, 3, 3, 0.0)
    sizes = np.bincount(CSPA(K, partitioner="metis", random_state=0).fit(labels).labels_, minlength=K)
    assert 1 <= sizes.min() <= sizes.max() <= -(-20 // K)


def test_metis__that_finds_no_balanced_cut_says_so():
    pytest.importorskip("pymetis")
    graph = graph_of(np.ones((13, 13)))
    with pytest.warns(ConsensusWarning, match="METIS finds no cut into 11 parts of 1 to 2 vertices"):
        partition_graph(graph, 11, 0.05, 0)


def test_metis__objective_is_the_similarity_cut():
    pytest.importorskip("pymetis")
    labels = random_labels(60, 5, 4, 0.0)
    model = CSPA(3, partitioner="metis", random_state=0).fit(labels)
    apart = model.labels_[:, None] != model.labels_
    cut = np.triu(naive.similarity(labels, normalize="observed") * apart).sum()
    assert model.objective_ == pytest.approx(cut, rel=1e-3)  # weights are rounded to whole numbers


def test_metis__of_too_many_pairs_is_refused_with_the_number():
    labels = np.zeros((20_000, 1), int)
    for memory in (None, "4GB"):
        with pytest.raises(MemoryBudgetError, match="or use partitioner='spectral'") as refused:
            CSPA(2, partitioner="metis", memory=memory).fit(labels)
        assert refused.value.budget == 4_000_000_000


def test_cut__without_a_budget_does_not_count_the_processes():
    ensemble = Ensemble.from_labels([[0], [1]])
    check_held_plan("CSPA", SERIAL, ensemble, 4_000_000_000, memory=None, remedy="")
    with pytest.raises(MemoryBudgetError):
        check_held_plan("CSPA", SERIAL, ensemble, 4_000_000_000, memory="4GB", remedy="")


@pytest.mark.parametrize(("n", "K", "D"), [(1, 1, 1), (3, 9, 2), (37, 8, 11), (70, 19, 5)])
def test_nearest_centers__are_those_of_brute_force_and_the_first_of_a_tie(n, K, D):
    rng = np.random.default_rng(n)
    rows, centers, weights = rng.normal(size=(n, D)), rng.normal(size=(K, D)), rng.integers(0, 3, n) / 2.0
    centers[K // 2] = centers[-1]
    assigned, sums, sizes = np.full(n, 7, np.int32), np.zeros((K, D)), np.zeros(K)
    inertia = nearest_centers(rows, weights, centers, assigned, sums, sizes)
    expected, expected_sums, expected_sizes, total = naive.nearest_centers(rows, weights, centers)
    assert assigned.tolist() == expected
    np.testing.assert_allclose(sums, expected_sums, atol=1e-12)
    np.testing.assert_array_equal(sizes, expected_sizes)
    assert inertia == pytest.approx(total, abs=1e-12)
