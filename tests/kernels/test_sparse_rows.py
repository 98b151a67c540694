"""The sparse sums of many clusters, their hints, and the moves they lead to, against full tables."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from bigcons.coassociation.factorized import Rates
from bigcons.kernels import sparse_rows
from bigcons.methods.pcc import many
from bigcons.methods.pcc.memberships import all_shares, few_shares
from tests.naive import simplex
from tests.naive import sparse_rows as naive

K, N, M = 7, 40, 9


@pytest.fixture(params=[0.0, 0.4], ids=["complete", "incomplete"])
def problem(request):
    """Return labels, offsets, clusters and rates, and the sums after a pass that leaves some objects soft."""
    rng = np.random.default_rng(8)
    truth = rng.integers(K, size=N)
    sizes = rng.integers(3, 7, size=M)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    labels = np.stack([rng.permutation(K)[truth] % size for size in sizes], axis=1).astype(np.int8)
    wrong = rng.random(labels.shape) < 0.2
    labels[wrong] = (rng.integers(100, size=labels.shape) % sizes)[wrong]
    labels[rng.random(labels.shape) < request.param] = -1
    theta = np.eye(K) + 0.1 * rng.random((K, K))
    omega, a, d = rng.uniform(1, 3, offsets[-1]), rng.uniform(0.1, 0.2, M), rng.uniform(0.5, 1.0, M)
    rates = Rates.of(a, d, rng.uniform(0.5, 2.0, M), omega, offsets, theta + theta.T)
    sums = many.sums_of_clusters(labels, offsets, truth, rates)
    change, kept = many.update_block(
        many.tables_of(sums, offsets)[0], offsets, 0.0, 0.5, labels, few_shares(truth, K)
    )
    return labels, offsets, truth, rates, change, kept, many.after_moves(sums, change)


def dense(table):
    starts, columns, values = table
    assert all(np.all(np.diff(part) > 0) for part in np.split(columns, starts[1:-1]))
    return scipy.sparse.csr_array((values, columns, starts), shape=(len(starts) - 1, K)).toarray()


def shares_of(kept):
    return np.where(kept[:, :1] >= 0, all_shares(kept, K), 0.0).astype(np.float64)


def test_sums_of_moves_are_the_naive_ones(problem):
    labels, offsets, truth, _, change, kept, sums = problem
    before, after = shares_of(few_shares(truth, K)), shares_of(kept)
    assert ((after > 0).sum(axis=1) > 1).any()
    expected = naive.sum_moves(labels, offsets, before, after)
    np.testing.assert_allclose(dense(change.S), expected, atol=1e-6)
    np.testing.assert_allclose(dense(sums.S), naive.sum_moves(labels, offsets, 0 * before, after), atol=1e-6)
    back = change.S._replace(values=-change.S.values)
    assert len(change.S.plus(back).values) == 0  # what cancels leaves no entry


def test_hints_and_agreement_are_the_naive_ones(problem):
    _, offsets, _, rates, _, _, sums = problem
    S, gains = dense(sums.S), rates.base_clusters[: offsets[-1]]
    of_partitions, rest = sums.S.of_partitions(offsets, K), np.empty(len(S))
    shares = of_partitions.sum(axis=0) / of_partitions.sum()
    near = scipy.sparse.csr_array(rates.theta)
    near = near.indptr.astype(np.int64), near.indices, near.data
    found, agreement = sparse_rows.choose_hints(
        *(tuple(sums.S), offsets, of_partitions, shares, gains, 0.2, near, rest)
    )
    expected, others, hinted = naive.hints(S, offsets, shares, gains, 0.2)
    assert 0 < hinted.sum() < (S > 0).sum()
    np.testing.assert_allclose(dense(found), expected, atol=1e-9)
    np.testing.assert_allclose(rest, others, atol=1e-9)
    np.testing.assert_allclose(agreement, np.einsum("bk,kl,bl,b->", S, rates.theta, S, gains))


def test_moves_are_to_the_best_of_the_clusters_that_are_hinted(problem, monkeypatch):
    monkeypatch.setattr(many, "LEAST_HINT", 0.2)
    monkeypatch.setattr(many, "LEAST_PULL", 0.3)
    labels, offsets, _, rates, _, kept, sums = problem
    tables, _ = many.tables_of(sums, offsets)
    S, of_partitions = dense(sums.S), sums.S.of_partitions(offsets, K)
    shares = of_partitions.sum(axis=0) / of_partitions.sum()
    hints, rest, hinted = naive.hints(S, offsets, shares, rates.base_clusters[: offsets[-1]], 0.2)
    for before in (kept, None):
        memberships = np.zeros((N, K)) if before is None else shares_of(before)
        _, found = many.update_block(tables, offsets, 0.0, 1.0, labels, before)
        of_sums = hints, hinted, rest, shares, S, sums.X, rates, 0.3, simplex.minimize
        for row, y, reached in zip(labels, memberships, shares_of(found), strict=True):
            if (row >= 0).any():
                expected = naive.best_memberships(row, offsets, y, *of_sums)
                np.testing.assert_allclose(reached, expected, atol=1e-4)
            else:
                assert not reached.any()
