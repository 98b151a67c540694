"""Comparisons of label rows: how often two objects agree.

Label rows are ``(n_rows, n_partitions)``, negative where missing, C-contiguous; label ``l`` of partition
``u`` is base cluster ``offsets[u] + l``. Kernels count numerators and denominators; the caller divides.
"""

from __future__ import annotations

import numpy as np

from bigcons.kernels._jit import jit, leaf


@leaf
def compare_rows(x, y):
    """Return (n_agree, n_seen) of two label rows ``(n_partitions,)``; negative labels are missing."""
    n_agree = np.int32(0)  # 32 bits so that the loop fills whole vector registers
    n_seen = np.int32(0)
    for u in range(x.shape[0]):
        is_seen = (x[u] >= 0) & (y[u] >= 0)
        n_agree = np.int32(n_agree + ((x[u] == y[u]) & is_seen))
        n_seen = np.int32(n_seen + is_seen)
    return n_agree, n_seen


@jit
def count_pairs(left, right, i, j, n_agree, n_seen):
    """Fill ``n_agree`` and ``n_seen`` ``(n_pairs,)`` for the rows ``left[i[p]]`` and ``right[j[p]]``.

    ``left`` and ``right`` are label blocks ``(rows, n_partitions)``, C-contiguous.
    """
    for p in range(i.shape[0]):
        n_agree[p], n_seen[p] = compare_rows(left[i[p]], right[j[p]])


@jit
def count_tile(left, right, n_agree, n_seen):
    """Fill ``n_agree`` and ``n_seen`` ``(rows of left, rows of right)`` for every row with every row."""
    for a in range(left.shape[0]):
        for b in range(right.shape[0]):
            n_agree[a, b], n_seen[a, b] = compare_rows(left[a], right[b])


@jit
def weigh_tile(left, right, offsets, cluster_weights, partition_weights, agree, seen):
    """Fill ``agree`` and ``seen`` (rows of left, rows of right) float64 for every row with every row.

    They sum the ``cluster_weights`` (n_base_clusters,) of the base clusters that have both rows,
    and ``partition_weights`` (n_partitions,) of the partitions that label both.
    """
    for a in range(left.shape[0]):
        for b in range(right.shape[0]):
            agreement, coverage = 0.0, 0.0
            for u in range(left.shape[1]):
                if left[a, u] >= 0 and right[b, u] >= 0:
                    coverage += partition_weights[u]
                    if left[a, u] == right[b, u]:
                        agreement += cluster_weights[offsets[u] + left[a, u]]
            agree[a, b], seen[a, b] = agreement, coverage


# The objective of PCC, pair by pair


@jit
def over_pairs(i, j, n_agree, n_seen, rows, value):
    """Return the weighted divergence summed over listed pairs, ``rows (n, K)`` the memberships."""
    total = 0.0
    for e in range(i.shape[0]):
        w = float(n_seen[e])
        total += w * value(n_agree[e] / w, probability(rows, i[e], j[e]))
    return total


@jit
def over_tile(labels, rows, start, stop, tile, value):
    """Return the sum over ``i < j`` with ``start <= i < stop``, ``tile`` columns at a time for the cache."""
    total = 0.0
    n = labels.shape[0]
    for first in range(start, n, tile):
        for i in range(start, stop):
            for j in range(max(first, i + 1), min(first + tile, n)):
                n_agree, n_seen = compare_rows(labels[i], labels[j])
                if n_seen > 0:
                    total += n_seen * value(n_agree / n_seen, probability(rows, i, j))
    return total


@leaf
def probability(rows, i, j):
    """Return the co-membership probability of two objects."""
    p = 0.0
    for k in range(rows.shape[1]):
        p += rows[i, k] * rows[j, k]
    return p
