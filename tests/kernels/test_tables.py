"""Kernels of tables with a row per base cluster, object or center: plain loops say the same."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from bigcons import Ensemble
from bigcons.kernels.bce import sum_partitions
from bigcons.kernels.cluster_tables import count_shares, end_of_slice, mark_majorities, sum_votes
from bigcons.kernels.label_rows import weigh_tile
from bigcons.kernels.nearest import label_nearest, mean_distances, nearest_centers, pack_centers
from bigcons.kernels.overlaps import add_overlaps, count_overlaps, mirror, multiply_rows
from tests.naive import hypergraph as naive_hypergraph
from tests.naive import nearest as naive
from tests.naive import overlaps as counted
from tests.support.strategies import label_matrices


@st.composite
def offsets_and_table(draw, values):
    """Return offsets of partitions, some of which may be without clusters, and a table of such values."""
    sizes = draw(st.lists(st.integers(0, 12), min_size=1, max_size=6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return np.cumsum([0, *sizes]), values(rng, (sum(sizes), draw(st.integers(1, 19))))


@given(offsets_and_table(lambda rng, shape: np.exp(10 * rng.standard_normal(shape))))
def test_sum_partitions__adds_rows_in_their_order(case):
    offsets, values = case
    partition = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    expected = np.zeros((offsets.size - 1, values.shape[1]))
    np.add.at(expected, partition, values)
    sums = np.full(values.shape, np.nan)
    sum_partitions(values, offsets, sums)
    np.testing.assert_array_equal(sums, expected[partition])


@given(offsets_and_table(lambda rng, shape: rng.integers(0, 4, shape).astype(np.float64)))
def test_mark_majorities__takes_the_first_largest_count_and_none_of_zeros(case):
    offsets, counts = case
    expected = np.zeros(counts.shape)
    for first, last in pairwise(offsets):
        for k in range(counts.shape[1]):
            column = counts[first:last, k].tolist()
            if any(column):
                expected[first + column.index(max(column)), k] = 1.0
    majority = np.zeros(counts.shape)
    mark_majorities(counts, offsets, majority)
    np.testing.assert_array_equal(majority, expected)


@pytest.mark.parametrize("n_partitions", [5, 700], ids=["in the cache", "in slices"])
def test_votes_and_shares__add_objects_in_their_order(n_partitions):
    rng = np.random.default_rng(0)
    labels = rng.integers(-1, 10, (9, n_partitions)).astype(np.int8)
    offsets, votes, n_labels = 10 * np.arange(n_partitions + 1), np.empty((9, 8)), np.empty(9, np.int64)
    assert (end_of_slice(offsets, 0, 8, 0) < n_partitions) == (n_partitions == 700)
    table, shares = rng.normal(size=(10 * n_partitions, 8)), rng.dirichlet(np.ones(8), 9)
    (counts, expected_counts), expected = np.zeros((2, *table.shape)), np.zeros((9, 8))
    for i, u in zip(*np.nonzero(labels >= 0), strict=True):
        expected[i] += table[offsets[u] + labels[i, u]]
        expected_counts[offsets[u] + labels[i, u]] += shares[i]
    sum_votes(labels, offsets, table, votes, n_labels)
    count_shares(labels, offsets, shares, counts)
    np.testing.assert_array_equal(votes, expected)
    np.testing.assert_array_equal(n_labels, (labels >= 0).sum(axis=1))
    np.testing.assert_array_equal(counts, expected_counts)


@given(label_matrices(max_objects=9), st.integers(0, 99))
def test_overlaps__count_and_weigh_what_base_clusters_share(labels, seed):
    ensemble = Ensemble.from_labels(labels)
    labels, size = ensemble.read(0, ensemble.n_objects), ensemble.n_base_clusters
    weights = np.random.default_rng(seed).random(len(labels))
    counts, ones, weighted = np.zeros((3, size, size))
    count_overlaps(labels, ensemble.offsets, counts)
    add_overlaps(labels, ensemble.offsets, np.ones(len(labels)), ones)
    add_overlaps(labels, ensemble.offsets, weights, weighted)
    np.testing.assert_array_equal(counts, np.triu(counted.overlaps(labels)))
    np.testing.assert_array_equal(ones, counts)
    np.testing.assert_allclose(weighted, np.triu(counted.overlaps(labels, weights)), rtol=1e-12)


@pytest.mark.parametrize("n_objects", [63, 64, 65, 4096, 4097, 10_000])
def test_overlaps__agree_at_the_ends_of_words_and_chunks(n_objects):
    labels = np.random.default_rng(0).integers(-1, 7, (n_objects, 6)).astype(np.int8)
    offsets, (counts, ones) = 7 * np.arange(7), np.zeros((2, 42, 42))
    count_overlaps(labels, offsets, counts)
    add_overlaps(labels, offsets, np.ones(n_objects), ones)
    np.testing.assert_array_equal(counts, ones)
    assert np.diag(counts).tolist() == [(column == k).sum() for column in labels.T for k in range(7)]


@pytest.mark.parametrize("size", [1, 255, 256, 257, 600])
def test_mirror__makes_a_table_symmetric_by_its_upper_triangle(size):
    table = np.random.default_rng(size).random((size, size))
    expected = np.triu(table) + np.triu(table, 1).T
    mirror(table)
    np.testing.assert_array_equal(table, expected)


@pytest.mark.parametrize(
    ("shape", "share"), [((1, 1), 1.0), ((7, 40), 0.3), ((90, 3000), 0.5), ((5, 9), 0.0)]
)
def test_multiply_rows__gives_the_products_of_the_dense_matrix(shape, share):
    rng = np.random.default_rng(0)
    dense = rng.normal(size=shape) * (rng.random(shape) < share)
    dense[:, :2] = 0.0
    sparse, found = scipy.sparse.csr_array(dense), np.zeros((shape[0], shape[0]))
    column_starts = np.append(0, np.bincount(sparse.indices, minlength=shape[1]).cumsum())
    multiply_rows(sparse.indptr, sparse.indices, sparse.data, column_starts, found)
    assert share < 0.5 or shape[0] == 1 or (dense != 0).sum() > 1 << 16  # of more than one slice
    np.testing.assert_allclose(found, dense @ dense.T, rtol=1e-12, atol=1e-12)


@given(label_matrices(max_objects=8), st.integers(0, 99))
def test_weigh_tile__sums_the_weights_of_agreeing_partitions(labels, seed):
    rng, offsets = np.random.default_rng(seed), np.cumsum([0, *(labels.max(axis=0) + 1)])
    of_clusters, weights = rng.random(offsets[-1]), rng.random(labels.shape[1])
    agree, seen = np.empty((2, len(labels), len(labels)))
    weigh_tile(labels, labels, offsets, of_clusters, weights, agree, seen)
    for i, j in np.ndindex(agree.shape):
        both = [u for u in range(labels.shape[1]) if labels[i, u] >= 0 and labels[j, u] >= 0]
        assert seen[i, j] == pytest.approx(sum(weights[u] for u in both))
        joining = [offsets[u] + labels[i, u] for u in both if labels[i, u] == labels[j, u]]
        assert agree[i, j] == pytest.approx(sum(of_clusters[joining]))


@st.composite
def problems(draw):
    """Draw whole coordinates: both ways of computing a distance are exact, and ties are frequent."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    n_rows, n_features = draw(st.integers(1, 70)), draw(st.integers(1, 5))
    sizes = draw(st.lists(st.integers(1, 11), min_size=1, max_size=4))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    points = rng.integers(-4, 5, (n_rows, n_features)).astype(np.float32)
    centers = rng.integers(-4, 5, (offsets[-1], n_features)).astype(float)
    share = rng.choice([0.0, 0.1, 0.5, 1.0], len(sizes))
    labels = np.where(rng.random((n_rows, len(sizes))) < share, 0, -1).astype(np.int8)
    return points, centers, offsets, labels


def labeled(points, centers, offsets, labels):
    halves = (centers**2).sum(axis=1, keepdims=True) / 2
    found, is_seen = np.full_like(labels, 99), np.ascontiguousarray(labels.T >= 0)
    label_nearest(points, pack_centers(np.hstack([centers, halves])), offsets, is_seen, found)
    return found


@given(problems())
def test_label_nearest__is_the_naive_one(problem):
    np.testing.assert_array_equal(labeled(*problem), naive.label(*problem))


def test_label_nearest__of_a_point_does_not_depend_on_those_around_it():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(1000, 300)).astype(np.float32)  # several panels
    centers = points[rng.integers(1000, size=40)] + 1e-7 * rng.normal(size=(40, 300))
    offsets, labels = np.array([0, 10, 40]), np.zeros((1000, 2), np.int8)
    labels[:, 1] = np.where(rng.random(1000) < 0.1, 0, -1)
    expected, order = labeled(points, centers, offsets, labels), rng.permutation(1000)[:700]
    assert len(np.unique(expected)) > 20
    found = labeled(points[order], centers, offsets, labels[order])
    np.testing.assert_array_equal(found, expected[order], strict=True)


@given(problems(), st.booleans())
def test_mean_distances__is_the_naive_one(problem, is_shared):
    points, centers, offsets, labels = problem
    rng, shape = np.random.default_rng(len(points)), (len(offsets) - 1, points.shape[1])
    weights = np.ones((1, shape[1])) if is_shared else rng.integers(0, 4, shape).astype(float)
    labels = np.minimum(labels, np.diff(offsets) - 1).astype(np.int8)
    of_partitions = np.broadcast_to(weights, shape)
    of_each = np.repeat(of_partitions, np.diff(offsets), axis=0)
    inner = centers * of_each
    packed = pack_centers(np.hstack([inner * of_each, (inner**2).sum(axis=1, keepdims=True) / 2]))
    found = np.empty(len(points))
    mean_distances(points, packed, offsets, weights**2, labels, found)
    expected = naive.mean_distance(points, centers, offsets, of_partitions, labels)
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize(("n", "K", "D"), [(1, 1, 1), (3, 9, 2), (37, 8, 11), (70, 19, 5)])
def test_nearest_centers__are_those_of_brute_force_and_the_first_of_a_tie(n, K, D):
    rng = np.random.default_rng(n)
    rows, centers, weights = rng.normal(size=(n, D)), rng.normal(size=(K, D)), rng.integers(0, 3, n) / 2.0
    centers[K // 2] = centers[-1]
    assigned, sums, sizes = np.full(n, 7, np.int32), np.zeros((K, D)), np.zeros(K)
    inertia = nearest_centers(rows, weights, centers, assigned, sums, sizes)
    expected, expected_sums, expected_sizes, total = naive_hypergraph.nearest_centers(rows, weights, centers)
    assert assigned.tolist() == expected
    np.testing.assert_allclose(sums, expected_sums, atol=1e-12)
    np.testing.assert_array_equal(sizes, expected_sizes)
    assert inertia == pytest.approx(total, abs=1e-12)
