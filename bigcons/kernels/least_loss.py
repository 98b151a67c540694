"""Moves of objects, and merges of clusters, that lower the expected loss of a clustering.

Of the counts ``T[b, k]`` of the objects of base cluster b in cluster k, and ``n_uk``, their sums over the
base clusters of partition u, the loss is a sum over clusters and partitions,

    sum_k sum_u v_u (m F(n_uk) - 2 sum_{b in u} F(T[b, k])),

up to a constant, with ``F(x) = x log x`` for the variation of information and ``x^2`` for Binder's loss; m is
the cost of joining two objects that belong apart, 2 that of both mistakes. One more object with a label b of
u in cluster k raises it by a sum over its labels, so that costs of moves are sums of rows of a table.
"""

from __future__ import annotations

import math

import numpy as np

from bigcons.kernels._jit import jit, leaf
from bigcons.kernels._vector import empty, flat
from bigcons.kernels.cluster_tables import add_rows, find_rows

# Shares of the moves of a pass that are tried: all, a half, a quarter, an eighth.
N_LEVELS = 4


@jit
def propose(
    labels, offsets, table, own, bias, least_gain, codes, first_level, current, moves, changes, totals
):  # fmt: skip
    """Find the cluster that each object of a block would best move to, the others staying where they are.

    labels (rows, M), negative where missing; ``table`` (B, padded K) is the cost of one more object with that
    label in each cluster, ``own`` what its own cluster costs less, which is counted without it; ``bias`` (K,)
    is added. An object moves if it gains more than ``least_gain``. ``current`` (rows,) int32 are their
    clusters, -1 for those in none yet.

    A move has a level: j at least with probability ``2^-j``, by the ``codes`` (B,) uint64 of its labels, so
    that equal rows have the same. Moves below ``first_level`` are left out; from there on they are counted
    from 0 to ``N_LEVELS - 1``, which the first moves of objects in no cluster have. Sets ``moves`` (rows,)
    int32 to ``N_LEVELS * cluster + level``, -1 of objects that stay; of equal clusters the first is taken.
    Adds to ``changes`` (N_LEVELS, B, padded K) what the moves of each level change in T, and to ``totals``
    (1 + N_LEVELS,) the objects that have a better cluster, and the moves of each level.
    """
    n, M = labels.shape
    K, width = bias.shape[0], table.shape[1]
    at, costs = empty(M, np.uint64), empty(width, np.float64)
    rows, without = flat(table), flat(own)
    counts = changes.reshape(N_LEVELS, changes.shape[1] * width)
    for i in range(n):
        moves[i] = -1
        m = find_rows(labels, i, 0, M, offsets, width, at)
        if m == 0:
            continue
        for k in range(width):
            costs[k] = 0.0
        add_rows(rows, at, m, costs, width)
        before = current[i]
        best, least = before, np.inf
        if before >= 0:
            least = costs[before]
            for e in range(m):
                least -= without[at[e] + np.uint64(before)]
            least -= least_gain
        for k in range(K):
            if k != before and costs[k] + bias[k] < least:
                best, least = k, costs[k] + bias[k]
        if best == before:
            continue
        level = N_LEVELS - 1
        if before >= 0:
            totals[0] += 1.0
            code = np.uint64(0)
            for u in range(M):
                if labels[i, u] >= 0:
                    code += codes[offsets[u] + labels[i, u]]
            level = trailing_zeros(mixed(code)) - first_level
            if level < 0:
                continue
            level = min(level, N_LEVELS - 1)
        moves[i] = N_LEVELS * best + level
        totals[1 + level] += 1.0
        for e in range(m):
            counts[level, at[e] + np.uint64(best)] += 1.0
            if before >= 0:
                counts[level, at[e] + np.uint64(before)] -= 1.0


@leaf
def mixed(x):
    """Return the 64 bits of ``x`` mixed (the finalizer of SplitMix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@leaf
def trailing_zeros(x):
    """Return how many of the last bits of ``x`` are 0, at most 63."""
    n = 0
    while n < 63 and not (x >> np.uint64(n)) & np.uint64(1):
        n += 1
    return n


@leaf
def valued(x, squared):
    """Return F of a count."""
    if squared:
        return x * x
    return x * math.log(x) if x > 0.0 else 0.0


@jit
def merge_costs(T, offsets, of_partitions, merging, squared, costs):
    """Set ``costs`` (K, K), above the diagonal, to what merging two clusters adds to the loss.

    T (B, K) float64; ``of_partitions`` (M,) are v, ``merging`` m; ``squared`` chooses F. O(B K + K^2 M) time,
    and for each base cluster the square of the number of clusters that hold some of it.
    """
    K = T.shape[1]
    sizes, held = empty(K, np.float64), empty(K, np.int64)
    costs[:] = 0.0
    for u in range(offsets.shape[0] - 1):
        sizes[:] = 0.0
        for b in range(offsets[u], offsets[u + 1]):
            n_held = 0
            for k in range(K):
                if T[b, k] > 0.0:
                    sizes[k] += T[b, k]
                    held[n_held] = k
                    n_held += 1
            add_joined(T[b], held, n_held, -2.0 * of_partitions[u], squared, costs)
        n_held = 0
        for k in range(K):
            if sizes[k] > 0.0:
                held[n_held] = k
                n_held += 1
        add_joined(sizes, held, n_held, merging * of_partitions[u], squared, costs)


@leaf
def add_joined(counts, held, n_held, factor, squared, costs):
    """Add ``factor`` times what F gains where the counts of two clusters are joined to their cost."""
    for i in range(n_held):
        a = held[i]
        alone = valued(counts[a], squared)
        for j in range(i + 1, n_held):
            b = held[j]
            joined = valued(counts[a] + counts[b], squared)
            costs[a, b] += factor * (joined - alone - valued(counts[b], squared))
