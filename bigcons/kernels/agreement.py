"""Agreement of label rows: how often two objects share a cluster, and how often both have a label.

Numerators and denominators only; whoever wants a similarity divides at the end.
"""

from __future__ import annotations

import numpy as np

from bigcons.kernels._jit import jit


@jit
def compare_rows(x, y):
    """Return (n_agree, n_seen) of two label rows ``(n_partitions,)``; negative labels are missing."""
    n_agree = np.int32(0)  # 32 bits on purpose: the loop then fills whole vector registers
    n_seen = np.int32(0)
    for u in range(x.shape[0]):
        seen = (x[u] >= 0) & (y[u] >= 0)
        n_agree = np.int32(n_agree + ((x[u] == y[u]) & seen))
        n_seen = np.int32(n_seen + seen)
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
def add_contingency(codes, labels, offsets, table):
    """Add a block to the contingency of one clustering with all base clusters.

    ``codes`` ``(rows,)`` are the clusters of the clustering, ``labels`` ``(rows, n_partitions)`` the
    base labels, negative where missing; label ``l`` of partition ``u`` is column ``offsets[u] + l``
    of ``table`` ``(n_clusters, n_base_clusters)``.
    """
    for i in range(labels.shape[0]):
        cluster = codes[i]
        if cluster < 0:
            continue
        for u in range(labels.shape[1]):
            if labels[i, u] >= 0:
                table[cluster, offsets[u] + labels[i, u]] += 1
