"""The objective of PCC, pair by pair."""

from __future__ import annotations

from bigcons.kernels._jit import jit, leaf
from bigcons.kernels.label_rows import compare_rows


@jit
def over_pairs(i, j, n_agree, n_seen, rows, value, parameter):
    """Return the weighted divergence summed over listed pairs, ``rows (n, K)`` the memberships."""
    total = 0.0
    for e in range(i.shape[0]):
        w = float(n_seen[e])
        total += w * value(n_agree[e] / w, probability(rows, i[e], j[e]), parameter)
    return total


@jit
def over_tile(labels, rows, start, stop, tile, value, parameter):
    """Return the sum over ``i < j`` with ``start <= i < stop``, ``tile`` columns at a time for the cache."""
    total = 0.0
    n = labels.shape[0]
    for first in range(start, n, tile):
        for i in range(start, stop):
            for j in range(max(first, i + 1), min(first + tile, n)):
                n_agree, n_seen = compare_rows(labels[i], labels[j])
                if n_seen > 0:
                    total += n_seen * value(n_agree / n_seen, probability(rows, i, j), parameter)
    return total


@leaf
def probability(rows, i, j):
    """Return the co-membership probability of two objects."""
    p = 0.0
    for k in range(rows.shape[1]):
        p += rows[i, k] * rows[j, k]
    return p
