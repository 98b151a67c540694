"""Agglomeration of groups of objects by their tables, and naive Bayes placement of objects in clusters.

A table is ``(G, B)`` float64: how many objects of each group are in each base cluster; partition u has the
base clusters from ``offsets[u]`` to before ``offsets[u + 1]``. Rows add up when groups merge.
"""

from __future__ import annotations

import math

import numpy as np

from bigcons.kernels._jit import jit, leaf
from bigcons.kernels.cluster_tables import find_rows, gather, rows_together

AVERAGE, DISTINCT = 0, 1

# How many partitions that join two groups entirely stand beside those that tell them apart: a few partitions
# may cut a cluster by chance. `benchmarks/tree_ablation.py` has what it is worth.
PRIOR = 2.0


@leaf
def normalize_row(table, offsets, row, scaled, seen):
    """Set row ``row`` of ``scaled`` (G, B) to unit length within each partition, and its ``seen`` (G, M)."""
    for u in range(offsets.shape[0] - 1):
        total, squares = 0.0, 0.0
        for b in range(offsets[u], offsets[u + 1]):
            total += table[row, b]
            squares += table[row, b] * table[row, b]
        scale = 1.0 / math.sqrt(squares) if squares > 0.0 else 0.0
        for b in range(offsets[u], offsets[u + 1]):
            scaled[row, b] = scale * table[row, b]
        seen[row, u] = total


@leaf
def cost_of(rule, table, scaled, seen, offsets, counts, gains, a, b, unknown):
    """Return what it costs to merge groups a and b, ``unknown`` if no partition sees objects of both."""
    M = offsets.shape[0] - 1
    together, pairs, summed, squares = 0.0, 0.0, 0.0, 0.0
    for u in range(M):
        if seen[a, u] == 0.0 or seen[b, u] == 0.0 or counts[u] == 0.0:
            continue
        pairs += counts[u] * seen[a, u] * seen[b, u]
        if rule == AVERAGE:
            for e in range(offsets[u], offsets[u + 1]):
                together += gains[e] * table[a, e] * table[b, e]
        else:
            alike = 0.0
            for e in range(offsets[u], offsets[u + 1]):
                alike += scaled[a, e] * scaled[b, e]
            x = max(1.0 - alike, 0.0)
            summed += counts[u] * x
            squares += counts[u] * x * x
    if pairs == 0.0:
        return unknown
    if rule == AVERAGE:
        return 1.0 - together / pairs
    return squares / (PRIOR + summed)


@jit
def pair_costs(rule, table, offsets, counts, gains, costs):
    """Set ``costs`` (G, G) to what it costs to merge each two groups, NaN where no partition sees both.

    ``rule`` AVERAGE: one minus the mean of ``gains[b]`` over pairs of objects of the two, each counted for
    each partition that labels both, 0 if it does not join them. DISTINCT: ``sum_u c_u x_u^2 / (PRIOR + sum_u
    c_u x_u)``, with ``x_u`` one minus the cosine of the two rows within partition u. ``counts`` (M,) are
    weights c of partitions and ``gains`` (B,) those of base clusters, times that of the partition. The
    diagonal is infinite. O(B G^2).
    """
    G = table.shape[0]
    scaled, seen = np.empty_like(table), np.empty((G, offsets.shape[0] - 1))
    for a in range(G):
        normalize_row(table, offsets, a, scaled, seen)
    for a in range(G):
        costs[a, a] = np.inf
        for b in range(a + 1, G):
            costs[a, b] = cost_of(rule, table, scaled, seen, offsets, counts, gains, a, b, np.nan)
            costs[b, a] = costs[a, b]


@jit
def agglomerate(rule, table, offsets, counts, gains, costs, unknown, merges, heights):
    """Merge the two groups of least cost, again and again, until one is left; O(B G^2) time.

    ``table`` (G, B) and the ``costs`` (G, G) of `pair_costs` are changed in place; pairs of groups that no
    partition sees together cost ``unknown``. ``merges`` (G - 1, 2): the kept group, which is the lower, and
    the one merged into it; ``heights`` (G - 1,): their cost.
    """
    G = table.shape[0]
    scaled, seen = np.empty_like(table), np.empty((G, offsets.shape[0] - 1))
    alive = np.ones(G, np.bool_)
    nearest = np.zeros(G, np.int64)
    for a in range(G):
        normalize_row(table, offsets, a, scaled, seen)
        for b in range(G):
            if math.isnan(costs[a, b]):
                costs[a, b] = unknown
    for a in range(G):
        nearest[a] = nearest_of(costs, alive, a)
    for step in range(G - 1):
        a = -1
        for k in range(G):
            if alive[k] and (a < 0 or costs[k, nearest[k]] < costs[a, nearest[a]]):
                a = k
        b = nearest[a]
        if b < a:
            a, b = b, a
        merges[step, 0], merges[step, 1], heights[step] = a, b, costs[a, b]
        alive[b] = False
        for e in range(table.shape[1]):
            table[a, e] += table[b, e]
        normalize_row(table, offsets, a, scaled, seen)
        for k in range(G):
            if alive[k] and k != a:
                costs[a, k] = cost_of(rule, table, scaled, seen, offsets, counts, gains, a, k, unknown)
                costs[k, a] = costs[a, k]
        nearest[a] = nearest_of(costs, alive, a)
        for k in range(G):
            if not alive[k] or k == a:
                continue
            if nearest[k] == a or nearest[k] == b:
                nearest[k] = nearest_of(costs, alive, k)
            elif costs[k, a] < costs[k, nearest[k]] or (
                costs[k, a] == costs[k, nearest[k]] and a < nearest[k]
            ):
                nearest[k] = a


@leaf
def nearest_of(costs, alive, a):
    """Return the living group other than ``a`` that costs least to merge with it, the first of equal ones."""
    best = a
    for b in range(costs.shape[0]):
        if alive[b] and b != a and (best == a or costs[a, b] < costs[a, best]):
            best = b
    return best


@jit
def place(
    labels, current, offsets, rates, without, prior, own_prior, temperature,
    assigned, memberships, T, sizes, totals,
):  # fmt: skip
    """Place objects in their most probable clusters by naive Bayes on their labels.

    labels (n, M), negative where missing; ``current`` (n,) int32 the cluster in which the table counts the
    object, -1 for none. ``rates`` (B, padded K) are the log-probabilities of base clusters in each cluster,
    ``without`` what is to be added to that of the object's own cluster, as if it were in none; ``prior`` and
    ``own_prior`` (K,) are those of the clusters. Sets ``assigned`` (n,) int32, -1 without labels; unless they
    have no rows, sets ``memberships`` (n, K) float32 to the probabilities by the evidence of labels and sizes
    times ``temperature``, and adds the objects to ``T`` (B, padded K) and ``sizes`` (K,). ``totals`` (2,)
    gains the summed log-probability of the labels and the number of objects that moved.
    """
    n, M = labels.shape
    K, width = prior.shape[0], rates.shape[1]
    together = rows_together(n, offsets, width, 0)
    at = np.empty(M, np.uint64)
    scores, n_labels = np.zeros((together, width)), np.empty(together, np.int64)
    flat, own = rates.ravel(), without.ravel()
    for start in range(0, n, together):
        n_rows = min(together, n - start)
        gather(labels, start, n_rows, offsets, flat, width, at, scores, n_labels, together > 1)
        for r in range(n_rows):
            i = start + r
            m = find_rows(labels, i, 0, M, offsets, width, at)
            before = current[i]
            if m == 0:
                assigned[i] = -1
                for k in range(memberships.shape[1] if memberships.shape[0] else 0):
                    memberships[i, k] = np.float32(1.0 / K)
                continue
            if before >= 0:
                for e in range(m):
                    scores[r, before] += own[at[e] + np.uint64(before)]
            best, highest = -1, -np.inf
            for k in range(K):
                scores[r, k] = temperature * (scores[r, k] + (own_prior[k] if k == before else prior[k]))
                if scores[r, k] > highest:
                    best, highest = k, scores[r, k]
            mass = 0.0
            for k in range(K):
                scores[r, k] = math.exp(scores[r, k] - highest)
                mass += scores[r, k]
            totals[0] += highest + math.log(mass)
            totals[1] += best != before
            assigned[i] = best
            if memberships.shape[0]:
                for k in range(K):
                    memberships[i, k] = np.float32(scores[r, k] / mass)
            if T.shape[0]:
                sizes[best] += 1.0
                counts = T.ravel()
                for e in range(m):
                    counts[at[e] + np.uint64(best)] += 1.0
