"""Groups of objects: their nearest centers, agglomeration by tables, and naive Bayes placement in clusters.

A table is ``(G, B)`` float64: how many objects of each group are in each base cluster; partition u has the
base clusters from ``offsets[u]`` to before ``offsets[u + 1]``. Rows add up when groups merge.
"""

from __future__ import annotations

import math

import numpy as np

from bigcons.kernels._jit import jit, leaf
from bigcons.kernels._vector import empty, flat, zeros
from bigcons.kernels.cluster_tables import add_rows, end_of_slice, find_rows, rows_together

AVERAGE, DISTINCT = 0, 1


@leaf
def list_row(rule, table, offsets, row, columns, shares, starts, totals):
    """List the base clusters of row ``row`` in ``columns`` (G, B) and its counts in ``shares`` (G, B).

    The entries of partition u are from ``starts[row, u]`` to before ``starts[row, u + 1]``, (G, M + 1), and
    have unit length where ``rule`` is DISTINCT; ``totals[row, u]`` (G, M) is the sum of the counts.
    """
    n = 0
    for u in range(offsets.shape[0] - 1):
        total, squares = 0.0, 0.0
        starts[row, u] = n
        for e in range(offsets[u], offsets[u + 1]):
            if table[row, e] != 0.0:
                columns[row, n] = e
                shares[row, n] = table[row, e]
                total += table[row, e]
                squares += table[row, e] * table[row, e]
                n += 1
        if rule == DISTINCT and squares > 0.0:
            scale = 1.0 / math.sqrt(squares)
            for entry in range(starts[row, u], n):
                shares[row, entry] *= scale
        totals[row, u] = total
    starts[row, offsets.shape[0] - 1] = n


@leaf
def spread_row(columns, shares, starts, row, filled, dense_row):
    """Set ``dense_row`` (B,) to the listed shares of a row, or back to 0 unless ``filled``."""
    for entry in range(starts[row, starts.shape[1] - 1]):
        dense_row[columns[row, entry]] = shares[row, entry] if filled else 0.0


@leaf
def cost_of(rule, dense_row, columns, shares, starts, totals, counts, gains, a, b, unknown):
    """Return what it costs to merge groups a and b, ``unknown`` if no partition sees objects of both.

    ``dense_row`` (B,): the shares of a, see `spread_row`.
    """
    agreement, pairs, total, squares = 0.0, 0.0, 0.0, 0.0
    first, second, values, entries, begins = totals[a], totals[b], shares[b], columns[b], starts[b]
    stop = np.uint64(0)
    for u in range(counts.shape[0]):
        start, stop = stop, np.uint64(begins[u + 1])
        if first[u] == 0.0 or second[u] == 0.0 or counts[u] == 0.0:
            continue
        pairs += counts[u] * first[u] * second[u]
        if rule == AVERAGE:
            for position in range(start, stop):
                e = np.uint64(entries[position])
                agreement += gains[e] * dense_row[e] * values[position]
        else:
            cosine = 0.0
            for position in range(start, stop):
                cosine += dense_row[np.uint64(entries[position])] * values[position]
            x = max(1.0 - cosine, 0.0)
            total += counts[u] * x
            squares += counts[u] * x * x
    if pairs == 0.0:
        return unknown
    if rule == AVERAGE:
        return 1.0 - agreement / pairs
    # a few partitions may cut a cluster by chance: two that join the groups stand beside those that tell them
    # apart; `benchmarks/tree_ablation.py` has what it is worth
    return squares / (2.0 + total)


def pair_costs(
    rule: int, table: np.ndarray, offsets: np.ndarray, counts: np.ndarray, gains: np.ndarray
) -> np.ndarray:
    """Return what it costs to merge each two groups (G, G), NaN where no partition sees both.

    ``rule`` AVERAGE: one minus the mean of ``gains[b]`` over pairs of objects of the two, each counted for
    each partition that labels both, 0 if it does not join them. DISTINCT: ``sum_u c_u x_u^2 / (2 + sum_u c_u
    x_u)``, with ``x_u`` one minus the cosine of the two rows within partition u. ``counts`` (M,) are
    weights c of partitions and ``gains`` (B,) those of base clusters, times that of the partition. The
    diagonal is infinite. O(E G^2) for E base clusters with objects of a group, in the mean.
    """
    costs, sides = np.empty((len(table), len(table))), np.empty((0, 2), np.int64)
    agglomerate(rule, table, offsets, counts, gains, costs, np.nan, sides, np.empty(0))
    return costs


@jit
def agglomerate(rule, table, offsets, counts, gains, costs, unknown, sides, heights):
    """Merge the two groups of least cost, again and again, until one is left; O(E G^2) time.

    ``table`` (G, B) and the ``costs`` (G, G) of `pair_costs` are changed in place; pairs of groups that no
    partition sees together cost ``unknown``. ``sides`` (G - 1, 2): the two nodes that each merge joins, first
    the one with the lowest group; nodes are groups from 0, the results of merges from G. ``heights``
    (G - 1,): their cost. If ``sides`` has no rows, ``costs`` are set for any two groups, and nothing
    is merged.
    """
    G, is_merging = table.shape[0], sides.shape[0] > 0
    columns, shares = empty(table.shape, np.int32), empty(table.shape, np.float64)
    starts, totals = empty((G, offsets.shape[0]), np.int64), empty((G, offsets.shape[0] - 1), np.float64)
    dense_row = zeros(table.shape[1], np.float64)
    is_gone, nearest, nodes = zeros(G, np.bool_), empty(G, np.int64), np.arange(G)
    for step in range(-G, sides.shape[0] if is_merging else G):
        a, b = step + G if step < 0 else step, -1
        if step >= 0 and is_merging:
            a = -1
            for k in range(G):
                if is_gone[k]:
                    continue
                if nearest[k] < 0:
                    nearest[k] = nearest_of(costs, is_gone, k)
                if a < 0 or costs[k, nearest[k]] < costs[a, nearest[a]]:
                    a = k
            b = nearest[a]
            if b < a:
                a, b = b, a
            sides[step, 0], sides[step, 1], heights[step] = nodes[a], nodes[b], costs[a, b]
            nodes[a] = G + step
            is_gone[b] = True
            for e in range(table.shape[1]):
                table[a, e] += table[b, e]
        list_row(rule, table, offsets, a, columns, shares, starts, totals)
        nearest[a] = -1
        if step < 0:  # all rows are listed first
            continue
        costs[a, a] = np.inf
        spread_row(columns, shares, starts, a, True, dense_row)
        for k in range(0 if is_merging else a + 1, G):
            if k == a or is_gone[k]:
                continue
            cost = cost_of(rule, dense_row, columns, shares, starts, totals, counts, gains, a, k, unknown)
            costs[a, k] = costs[k, a] = cost
            if nearest[k] == a or nearest[k] == b:
                nearest[k] = -1
            elif nearest[k] >= 0 and (
                cost < costs[k, nearest[k]] or (cost == costs[k, nearest[k]] and a < nearest[k])
            ):
                nearest[k] = a
        spread_row(columns, shares, starts, a, False, dense_row)


@leaf
def nearest_of(costs, is_gone, a):
    """Return the group other than ``a`` that costs least to merge with it, the first of equal ones."""
    best = a
    for b in range(costs.shape[0]):
        if not is_gone[b] and b != a and (best == a or costs[a, b] < costs[a, best]):
            best = b
    return best


@jit
def find_nearest(starts, columns, values, center_starts, centers, shares, n_centers, groups, score):
    """Find the center that has most in common with each row of a sparse matrix.

    Row i has ``values`` in ``columns`` from ``starts[i]`` to before ``starts[i + 1]``; column b is in
    ``centers`` with ``shares`` from ``center_starts[b]`` to before ``center_starts[b + 1]``. A row and a
    center have in common the sum of the products of what both have, which is never negative. Sets ``groups``
    (rows,) to the first of the centers that are at most 1e-9 below the largest, and ``score`` (rows,) to the
    largest, and leaves both where nothing is in common.
    """
    scores, met = zeros(n_centers, np.float64), empty(n_centers + 1, np.int64)
    for i in range(groups.shape[0]):
        n, largest, first = np.uint64(0), 0.0, n_centers
        for q in range(np.uint64(starts[i]), np.uint64(starts[i + 1])):
            value, b = values[q], np.uint64(columns[q])
            for e in range(np.uint64(center_starts[b]), np.uint64(center_starts[b + np.uint64(1)])):
                product, k = value * shares[e], np.uint64(centers[e])
                if product > 0.0:
                    met[n] = k  # overwritten by the next unless it is new
                    n += np.uint64(scores[k] == 0.0)
                    scores[k] += product
        for position in range(n):
            largest = max(largest, scores[met[position]])
        for position in range(n):
            k = met[position]
            if scores[k] >= largest - 1e-9 and k < first:
                first = k
            scores[k] = 0.0
        if n:
            groups[i], score[i] = first, largest


# Current cluster of an object that is not placed.
UNPLACED = -2


@jit
def place(
    labels, current, fixed, offsets, half, rates, without, prior, temperature,
    assigned, memberships, confidence, second, second_confidence, T, sizes, totals, summed, agreements,
):  # fmt: skip
    """Place objects in their most probable clusters by naive Bayes on their labels.

    labels (n, M), negative where missing; ``current`` (n,) int32 the cluster in which the table counts the
    object, -1 for none, `UNPLACED` for one that is left out. ``fixed``: whether objects are in that cluster,
    whatever their labels say, and those in none are left out. ``rates`` (B, padded K) are the
    log-probabilities of base clusters in each cluster, ``without`` is added to those of the
    object's own cluster, as if it were in none; ``prior`` (K,) are the clusters'
    log-probabilities. Probabilities are by the evidence of labels and sizes times ``temperature``. ``half``
    (M,) bool divides the partitions in two.

    Sets ``assigned`` (n,) int32, -1 without labels. Sets ``memberships`` (n, K) float32, unless they have no
    rows, to the probabilities, all others below that of the object's cluster unless it stays there. Sets,
    unless they have none, ``confidence`` (n,) float32, ``second`` (n,) int32 and ``second_confidence`` (n,)
    float32 to the probability of the object's cluster, the most probable other one, -1 for none, and its
    probability. Adds the objects to ``sizes`` (K,) and, unless it has no rows, to ``T`` (B, padded K).
    ``totals`` (2,) gains the summed log-probability of the labels and the number of objects that moved. With
    the confidence, ``summed`` (K,) gains its sum in each cluster, and ``agreements`` (3, 2, K), for each half
    of the partitions, how many objects of each cluster it knows, how many objects it alone would assign to
    the cluster, and how many are both.
    """
    M = labels.shape[1]
    K, width, has_confidence = prior.shape[0], rates.shape[1], confidence.shape[0] > 0
    batch = rows_together(labels.shape[0], offsets, width, 0)
    at, n_labels = empty(M, np.uint64), empty((2, batch), np.int64)
    sums = empty((2, batch, width), np.float64)
    gains, changes, counts = flat(rates), flat(without), flat(T)
    # the partitions of the first half, then the others: as unsigned numbers, which need no check for < 0
    column, begins, from_here = empty(M, np.uint64), empty(M, np.uint64), zeros(M + 1, np.int64)
    ends = zeros(3, np.int64)
    n = 0
    for h in range(2):
        for u in range(M):
            if half[u] == (h == 0):
                column[n], begins[n] = np.uint64(u), np.uint64(offsets[u] * width)
                from_here[n + 1] = from_here[n] + offsets[u + 1] - offsets[u]
                n += 1
        ends[h + 1] = n
    row_entries, m = np.uint64(width), np.uint64(0)
    for start in range(0, labels.shape[0], batch):
        n_rows = min(batch, labels.shape[0] - start)
        for r in range(n_rows):
            for h in range(2):
                n_labels[h, r] = 0
                for k in range(width):
                    sums[h, r, k] = 0.0
        first = 0
        while first < M:  # a slice of the partitions after the other, whose rates stay in the cache
            last = end_of_slice(from_here, first, width, 0) if batch > 1 else M
            for r in range(n_rows):
                i = start + r
                row, m = labels[i], np.uint64(0)
                for h in range(2):
                    listed = np.int64(m)
                    for position in range(max(first, ends[h]), min(last, ends[h + 1])):
                        j = np.uint64(position)
                        label = np.int64(row[column[j]])
                        # overwritten by the next unless the label is there
                        at[m] = begins[j] + np.uint64(label) * row_entries
                        m += np.uint64(label >= 0)
                    n_found = np.int64(m) - listed
                    add_evidence(gains, changes, at[listed:], n_found, current[i], sums[h, r], width)
                    n_labels[h, r] += n_found
            first = last
        for r in range(n_rows):
            i = start + r
            previous, scores = current[i], sums[0, r]
            if previous == UNPLACED or (previous < 0 if fixed else n_labels[0, r] + n_labels[1, r] == 0):
                assigned[i] = -1
                for k in range(K if memberships.shape[0] else 0):
                    memberships[i, k] = np.float32(1.0 / K)
                if has_confidence:
                    confidence[i], second[i], second_confidence[i] = 0.0, -1, 0.0
                continue
            winners = (-1, -1)
            if has_confidence:
                winners = (
                    best_of(sums[0, r], prior, -1) if n_labels[0, r] else -1,
                    best_of(sums[1, r], prior, -1) if n_labels[1, r] else -1,
                )
            for k in range(K):
                scores[k] += sums[1, r, k]
            best = best_of(scores, prior, previous)
            highest = temperature * (scores[best] + prior[best])
            mass = 0.0
            for k in range(K):
                scores[k] = math.exp(temperature * (scores[k] + prior[k]) - highest)
                mass += scores[k]
            cluster = previous if fixed else best
            assigned[i] = cluster
            sizes[cluster] += 1.0
            totals[0] += highest + math.log(mass)
            totals[1] += cluster != previous
            if has_confidence or memberships.shape[0]:
                own_share, other, other_share = np.float32(scores[cluster] / mass), -1, np.float32(-1.0)
                for k in range(K):
                    share = np.float32(scores[k] / mass)
                    if k != cluster:
                        if not fixed and share >= own_share:
                            share = np.float32((1.0 - 2.0**-24) * own_share)  # the next lower one
                        if share > other_share and prior[k] > -np.inf:
                            other, other_share = k, share
                    if memberships.shape[0]:
                        memberships[i, k] = share
                if has_confidence:
                    confidence[i], second[i], second_confidence[i] = own_share, other, max(other_share, 0.0)
                    summed[cluster] += own_share
                    for h in range(2):
                        if winners[h] >= 0:
                            agreements[0, h, cluster] += 1.0
                            agreements[1, h, winners[h]] += 1.0
                            agreements[2, h, cluster] += winners[h] == cluster
            if T.shape[0]:
                if batch > 1:
                    m = np.uint64(find_rows(labels, i, 0, M, offsets, width, at))
                for e in range(np.int64(m)):
                    counts[at[e] + np.uint64(cluster)] += 1.0


@leaf
def add_evidence(rates, without, at, m, cluster, scores, width):
    """Add the rates of the ``m`` labels whose rows begin at ``at`` to ``scores``, without the object."""
    add_rows(rates, at, m, scores, width)
    if cluster >= 0:
        total = 0.0
        for e in range(m):
            total += without[at[e] + np.uint64(cluster)]
        scores[cluster] += total


@leaf
def best_of(scores, prior, previous):
    """Return the cluster of the highest score with its prior: on a tie the one before, else the first."""
    best, highest = previous, -np.inf
    if previous >= 0:
        highest = scores[previous] + prior[previous] + 1e-9  # which is more than rounding
    for k in range(prior.shape[0]):
        if best < 0 or scores[k] + prior[k] > highest:
            best, highest = k, scores[k] + prior[k]
    return best
