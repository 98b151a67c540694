"""Sums of base clusters and their hints as full tables, one object and one entry at a time."""

import numpy as np


def sum_moves(labels, offsets, before, after):
    """Return what moves from memberships ``before`` to ``after`` (rows, K) add to those of base clusters."""
    table = np.zeros((offsets[-1], after.shape[1]))
    for i, row in enumerate(labels):
        for u, label in enumerate(row):
            if label >= 0:
                table[offsets[u] + label] += after[i] - before[i]
    return table


def hints(S, offsets, shares, gains, least):
    """Return the hints (B, K), the rest of each base cluster (B,), and which clusters are hinted at."""
    found, rest, hinted = np.zeros_like(S), np.zeros(len(S)), np.zeros(S.shape, bool)
    for u in range(len(offsets) - 1):
        for b in range(offsets[u], offsets[u + 1]):
            for k in range(S.shape[1]):
                of_cluster = S[offsets[u] : offsets[u + 1], k].sum()
                is_part = S[b, k] >= least * S[b].sum() or S[b, k] >= least * of_cluster
                hinted[b, k] = S[b, k] != 0 and is_part
            others = ~hinted[b]
            if others.any():
                rest[b] = S[b, others].sum() / shares[others].sum()
            found[b, hinted[b]] = gains[b] * (S[b] - rest[b] * shares)[hinted[b]]
    return found, gains * rest, hinted


def best_memberships(row, offsets, y, hints, hinted, rest, shares, S, X, rates, least, minimize):
    """Return the best memberships of an object given the sums, among clusters its base clusters hint at."""
    seen = np.flatnonzero(row >= 0)
    at, B, theta = offsets[seen] + row[seen], offsets[-1], rates.theta
    h = hints[at].sum(axis=0)
    may = (hinted[at].any(axis=0) & (h >= least * h.max())) | (y > 0)
    of_partitions = np.array([S[offsets[u] : offsets[u + 1]].sum(axis=0) for u in seen])
    pull = rates.base_clusters[at].sum() + rates.base_clusters[B + seen].sum()
    v = rates.partitions[seen].sum() / np.sqrt(rates.partitions.sum())
    b = theta @ (h + rest[at].sum() * shares + rates.base_clusters[B + seen] @ of_partitions - pull * y)
    A = v * theta @ (X - v * np.outer(y, y)) @ theta
    best = np.zeros(len(y))
    best[may] = minimize(A[np.ix_(may, may)], b[may])
    return best
