"""Objects assigned to clusters by tables: each observed label votes with its row, the sum decides.

With ``g_ik = bias_k + sum_j table[offset_j + x_ij, k]`` over the observed labels of object ``i``, `assign`
takes the best cluster and `respond` the probabilities ``r_ik = exp(g_ik) / sum_h exp(g_ih)``. What the
next tables follow from is summed on the way: ``T[b, k]``, the weight of cluster ``k`` in base cluster ``b``.
"""

from __future__ import annotations

import math

import numpy as np

from bigcons.kernels._jit import jit
from bigcons.kernels.table_rows import add_to_rows, find_rows, sum_rows

SCORE, MOVED, LABELS, LABELED = 0, 1, 2, 3
N_TOTALS = 4


@jit
def assign(labels, offsets, table, bias, current, assigned, T, sizes, totals):
    """Give every object its best cluster; it stays where it is on a tie, else the lowest number wins.

    labels (rows, M) with -1 missing; offsets (M+1,) int64; table, T (B, padded K) float64; bias, sizes (K,)
    float64; current, assigned (rows,) int32, -1 where there is no cluster yet or no label at all. Adds to T
    and sizes, and to totals: SCORE the best scores, MOVED the objects whose cluster changed, LABELS and
    LABELED the labels seen and the objects that have some.
    """
    n_rows, M = labels.shape
    K, width = bias.shape[0], table.shape[1]
    at = np.empty(M, np.uint64)
    scores = np.empty(width)
    rows, counts = table.ravel(), T.ravel()
    for i in range(n_rows):
        m = find_rows(labels, i, offsets, width, at)
        if m == 0:
            assigned[i] = -1
            continue
        sum_rows(rows, at, m, scores)
        best = current[i]
        highest = scores[best] + bias[best] if best >= 0 else -np.inf
        for k in range(K):
            if scores[k] + bias[k] > highest:
                highest = scores[k] + bias[k]
                best = k
        assigned[i] = best
        for j in range(m):
            counts[at[j] + np.uint64(best)] += 1.0
        sizes[best] += 1.0
        totals[SCORE] += highest
        totals[MOVED] += best != current[i]
        totals[LABELS] += m
        totals[LABELED] += 1.0


@jit
def respond(labels, offsets, table, bias, T, sizes, totals):
    """Add the responsibilities of a block to T and sizes, and ``log sum_k exp(g_ik)`` to totals[SCORE].

    Arguments as of `assign`, which see.
    """
    n_rows, M = labels.shape
    K, width = bias.shape[0], table.shape[1]
    at = np.empty(M, np.uint64)
    scores = np.zeros(width)
    rows, sums = table.ravel(), T.ravel()
    for i in range(n_rows):
        m = find_rows(labels, i, offsets, width, at)
        if m == 0:
            continue
        sum_rows(rows, at, m, scores)
        totals[SCORE] += normalize(scores, bias)
        add_to_rows(sums, at, m, scores, width)
        for k in range(K):
            sizes[k] += scores[k]
        totals[LABELS] += m
        totals[LABELED] += 1.0


@jit
def responsibilities(labels, offsets, table, bias, out):
    """Set ``out`` (rows, K) float32 to the responsibilities; without labels they come from bias alone."""
    n_rows, M = labels.shape
    K, width = bias.shape[0], table.shape[1]
    at = np.empty(M, np.uint64)
    scores = np.zeros(width)
    rows = table.ravel()
    for i in range(n_rows):
        m = find_rows(labels, i, offsets, width, at)
        sum_rows(rows, at, m, scores)
        normalize(scores, bias)
        for k in range(K):
            out[i, k] = np.float32(scores[k])


@jit
def normalize(scores, bias):
    """Turn scores into probabilities ``exp(scores + bias) / sum``, in place; return the log of the sum."""
    K = bias.shape[0]
    highest = -np.inf
    for k in range(K):
        scores[k] += bias[k]
        highest = max(highest, scores[k])
    total = 0.0
    for k in range(K):
        scores[k] = math.exp(scores[k] - highest)
        total += scores[k]
    for k in range(K):
        scores[k] /= total
    return highest + math.log(total)


@jit
def count_shares(labels, offsets, shares, T):
    """Add ``shares`` (rows, K) float64 of the objects to the rows of T (B, padded K) of their labels."""
    for i in range(labels.shape[0]):
        for u in range(labels.shape[1]):
            if labels[i, u] >= 0:
                b = offsets[u] + labels[i, u]
                for k in range(shares.shape[1]):
                    T[b, k] += shares[i, k]


@jit
def count_assigned(labels, offsets, assigned, T, sizes):
    """Add one-hot clusters to T (B, padded K) and sizes (K,); a cluster of -1 counts nothing."""
    for i in range(labels.shape[0]):
        k = assigned[i]
        if k < 0:
            continue
        sizes[k] += 1.0
        for u in range(labels.shape[1]):
            if labels[i, u] >= 0:
                T[offsets[u] + labels[i, u], k] += 1.0
