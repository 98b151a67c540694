"""Kernels that make tables with a row per base cluster: the same bits as plain numpy."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bigcons import Ensemble
from bigcons.kernels.bce import sum_partitions
from bigcons.kernels.cluster_tables import count_shares, end_of_slice, mark_majorities, sum_votes
from tests.support.strategies import label_matrices


@st.composite
def offsets_and_table(draw, values):
    """Return offsets of partitions, some of which may be without clusters, and a table of such values."""
    sizes = draw(st.lists(st.integers(0, 12), min_size=1, max_size=6))
    rows, columns = sum(sizes), draw(st.integers(1, 19))
    seed = draw(st.integers(0, 2**32 - 1))
    return np.cumsum([0, *sizes]), values(np.random.default_rng(seed), (rows, columns))


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


@given(labels=label_matrices(min_objects=2, max_objects=20, max_partitions=5), seed=st.integers(0, 99))
def test_count_shares__adds_objects_in_their_order(labels, seed):
    ensemble = Ensemble.from_labels(labels)
    codes, K = ensemble.read(0, ensemble.n_objects), 3
    shares = np.random.default_rng(seed).dirichlet(np.ones(K), len(codes))
    expected = np.zeros((ensemble.n_base_clusters, 8))
    for row, share in zip(codes.tolist(), shares, strict=True):
        for first, label in zip(ensemble.offsets[:-1].tolist(), row, strict=True):
            if label >= 0:
                expected[first + label, :K] += share
    table = np.zeros_like(expected)
    count_shares(codes, ensemble.offsets, np.pad(shares, [(0, 0), (0, 5)]), table)
    np.testing.assert_array_equal(table, expected)


def test_tables__larger_than_the_cache_are_visited_in_slices_with_the_same_bits():
    rng = np.random.default_rng(0)
    labels = rng.integers(-1, 10, (9, 700)).astype(np.int8)
    offsets, votes, n_labels = 10 * np.arange(701), np.empty((9, 8)), np.empty(9, np.int64)
    assert end_of_slice(offsets, 0, 8, 0) < 700
    table, shares = rng.normal(size=(7000, 8)), rng.dirichlet(np.ones(8), 9)
    counts, expected_counts, expected = np.zeros((7000, 8)), np.zeros((7000, 8)), np.zeros((9, 8))
    for i, u in zip(*np.nonzero(labels >= 0), strict=True):
        expected[i] += table[offsets[u] + labels[i, u]]
        expected_counts[offsets[u] + labels[i, u]] += shares[i]
    sum_votes(labels, offsets, table, votes, n_labels)
    count_shares(labels, offsets, shares, counts)
    np.testing.assert_array_equal(votes, expected)
    np.testing.assert_array_equal(n_labels, (labels >= 0).sum(axis=1))
    np.testing.assert_array_equal(counts, expected_counts)
