"""Soft clusterings: products with a real incidence matrix, and expected agreement of pairs.

Memberships are ``(rows, B)`` float32, C-contiguous; partition ``u`` has the columns ``offsets[u]`` to
``offsets[u + 1]``, which sum to 1 or, where it is missing, are all 0. Zeros cost next to nothing.
"""

from __future__ import annotations

import numpy as np

from bigcons.kernels._jit import jit, leaf
from bigcons.kernels._vector import empty


@jit
def add_soft_overlaps(memberships, weights, table):
    """Add ``weights[i] h_i h_i^T`` of every row to ``table`` (B, B) float64, on and above the diagonal.

    weights (rows,) float64. O(b_i^2) for an object with memberships in b_i base clusters.
    """
    B = memberships.shape[1]
    codes, values = empty(B, np.int64), empty(B, np.float64)
    for i in range(memberships.shape[0]):
        m = list_memberships(memberships, i, codes, values)
        for p in range(m):
            weighted = weights[i] * values[p]
            for q in range(p, m):
                table[codes[p], codes[q]] += weighted * values[q]


@jit
def sum_soft_votes(memberships, table, scores):
    """Set ``scores`` (rows, K) float64 to the product of the memberships and ``table`` (B, K) float64."""
    B, K = memberships.shape[1], scores.shape[1]
    codes, values = empty(B, np.int64), empty(B, np.float64)
    for i in range(memberships.shape[0]):
        m = list_memberships(memberships, i, codes, values)
        scores[i] = 0.0
        for p in range(m):
            for k in range(K):
                scores[i, k] += values[p] * table[codes[p], k]


@leaf
def list_memberships(memberships, i, codes, values):
    """List the base clusters of object ``i`` in ``codes`` (B,), with ``values`` (B,), and return how many."""
    m = 0
    for b in range(memberships.shape[1]):
        codes[m] = b  # overwritten by the next if there is no membership
        values[m] = memberships[i, b]
        m += memberships[i, b] > 0
    return m


@jit
def soft_pairs(left, right, left_seen, right_seen, i, j, n_agree, n_seen):
    """Fill ``n_agree`` and ``n_seen`` ``(n_pairs,)`` for the rows ``left[i[p]]`` and ``right[j[p]]``.

    ``n_agree`` is the expected number of partitions that join the two, if each draws the cluster of every
    object by its memberships; ``left_seen`` and ``right_seen`` (rows, M) flag the partitions of each object.
    """
    for p in range(i.shape[0]):
        n_agree[p], n_seen[p] = compare_soft_rows(left[i[p]], right[j[p]], left_seen[i[p]], right_seen[j[p]])


@jit
def soft_tile(left, right, left_seen, right_seen, n_agree, n_seen):
    """Fill ``n_agree`` and ``n_seen`` ``(rows of left, rows of right)`` for every row with every row."""
    for a in range(left.shape[0]):
        for b in range(right.shape[0]):
            n_agree[a, b], n_seen[a, b] = compare_soft_rows(left[a], right[b], left_seen[a], right_seen[b])


@leaf
def compare_soft_rows(x, y, x_seen, y_seen):
    """Return (n_agree, n_seen) of two rows of memberships: their product, and the partitions of both."""
    agree = 0.0
    for b in range(x.shape[0]):
        agree += np.float64(x[b]) * np.float64(y[b])
    seen = 0
    for u in range(x_seen.shape[0]):
        seen += x_seen[u] & y_seen[u]
    return min(agree, float(seen)), seen  # rows sum to 1 up to rounding
