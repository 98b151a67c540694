"""Tables with one row per base cluster: sums over the rows an object's labels select, and updates.

A table is (B, width) float64 with one row per base cluster, ``offsets[u] + label``, or (M, width) with one
row per partition; its width is padded to whole vectors. Methods use an object's labels through such sums: the
votes of methods that group or embed base clusters (`sum_votes`), and the scores

    g_ik = bias_k + sum_j table[offset_j + x_ij, k]    over the observed labels of object i

by which `assign` takes the best cluster and `respond` the probabilities ``r_ik = exp(g_ik) / sum_h
exp(g_ih)``. Both also accumulate the statistics of the next table: ``T[b, k]``, the weight of cluster ``k``
in base cluster ``b``.
"""

from __future__ import annotations

import math

import numpy as np

from bigcons.kernels._jit import jit, leaf
from bigcons.kernels._vector import WIDTH, add8, add_times8, load8, store8, zero8

SCORE, MOVED, LABELS, LABELED = 0, 1, 2, 3
N_TOTALS = 4

# Entries of a table that stay in a second-level cache while all objects of a block visit them.
CACHED_ENTRIES = 1 << 15


@leaf
def padded(width):
    """Return ``width`` rounded up to whole vectors."""
    return (width + WIDTH - 1) // WIDTH * WIDTH


@leaf
def find_rows(labels, i, offsets, width, at, partition_width=0, partition_at=None, first=0, last=None):
    """List in ``at`` where the rows of object ``i``'s base clusters begin, in entries; return their number.

    Of the partitions from ``first`` to before ``last``, by default all. With ``partition_at``, also list
    where the rows of its partitions begin in a table of ``partition_width``, so that labels are read once
    for both.
    """
    m = 0
    for u in range(first, labels.shape[1] if last is None else last):
        label = labels[i, u]
        at[m] = np.uint64((offsets[u] + label) * width)  # overwritten by the next if the label is missing
        if partition_at is not None:
            partition_at[m] = np.uint64(u * partition_width)
        m += label >= 0
    return m


@leaf
def sum_rows(table, at, m, out):
    """Set ``out`` (width,) to the sum of the ``m`` rows of the flat ``table`` that begin at ``at``."""
    sum_columns(table, at, None, m, 0, out.shape[0], out)


@leaf
def add_rows(table, at, m, out):
    """Add the ``m`` rows of the flat ``table`` that begin at ``at`` to ``out`` (width,), one by one."""
    for k in range(0, out.shape[0], WIDTH):
        column = np.uint64(k)
        total = load8(out, column)
        for e in range(m):
            total = add8(total, load8(table, at[e] + column))
        store8(out, column, total)


@leaf
def sum_columns(table, at, w_at, m, start, stop, out):
    """Sum the columns from ``start``, where a vector begins, to ``stop`` or the end of its vector.

    ``w_at``, if given, are the weights of the rows.
    """
    for k in range(start, stop, WIDTH):
        column = np.uint64(k)
        total = zero8()
        for e in range(m):
            row = load8(table, at[e] + column)
            total = add8(total, row) if w_at is None else add_times8(total, row, w_at[e])
        store8(out, column, total)


@leaf
def add_to_rows(table, at, m, values, width):
    """Add ``values[:width]`` to the ``m`` rows of the flat ``table`` that begin at ``at``.

    The padding of ``values`` to a whole vector must be zero. Vectors of zeros are skipped: few clusters of
    an object change at a time.
    """
    for k in range(0, width, WIDTH):
        if not _has_entries(values, k):
            continue
        column = np.uint64(k)
        part = load8(values, column)
        for e in range(m):
            here = at[e] + column
            store8(table, here, add8(load8(table, here), part))


@leaf
def _has_entries(values, k):
    """Return whether any entry of the vector that begins at ``k`` is not zero."""
    total = 0.0
    for r in range(WIDTH):
        total += abs(values[k + r])
    return total != 0.0


@jit
def end_of_slice(offsets, first, width):
    """Return the partition before which the table rows of those from ``first`` on fill the cache."""
    last = first + 1
    while last < offsets.shape[0] - 1 and (offsets[last + 1] - offsets[first]) * width <= CACHED_ENTRIES:
        last += 1
    return last


@jit
def sum_votes(labels, offsets, table, votes, n_labels):
    """Set ``votes`` (n, width) float64 to the summed table rows of each object, n_labels (n,) int64.

    labels (n, M), negative where missing; table (B, width) float64, the width a multiple of eight. Objects
    visit a slice of the partitions after the other.
    """
    n_rows, M = labels.shape
    width = table.shape[1]
    at = np.empty(M, np.uint64)
    flat = table.ravel()
    votes[:] = 0.0
    n_labels[:] = 0
    first = 0
    while first < M:
        last = end_of_slice(offsets, first, width)
        for i in range(n_rows):
            m = find_rows(labels, i, offsets, width, at, first=first, last=last)
            add_rows(flat, at, m, votes[i])
            n_labels[i] += m
        first = last


@jit
def count_shares(labels, offsets, shares, table):
    """Add ``shares`` (n, width) of the objects to the rows of ``table`` (B, width) of their labels.

    Arguments as in `sum_votes`.
    """
    n_rows, M = labels.shape
    width = table.shape[1]
    at = np.empty(M, np.uint64)
    flat = table.ravel()
    first = 0
    while first < M:
        last = end_of_slice(offsets, first, width)
        for i in range(n_rows):
            m = find_rows(labels, i, offsets, width, at, first=first, last=last)
            add_to_rows(flat, at, m, shares[i], width)
        first = last


@jit
def map_rows(table, matrix, out):
    """Set each row of ``out`` (n, width) to the first K entries of that of ``table`` times ``matrix``.

    matrix (K, width) float64, the width a multiple of eight; products are added in the order of its rows.
    """
    K, width = matrix.shape
    at = np.empty(K, np.uint64)
    for r in range(K):
        at[r] = np.uint64(r * width)
    flat = matrix.ravel()
    for i in range(table.shape[0]):
        sum_columns(flat, at, table[i], K, 0, width, out[i])


@jit
def add_sizes(labels, offsets, weights, sizes):
    """Add ``weights`` (n,) float64 of the objects to ``sizes`` (B,) of their base clusters."""
    for i in range(labels.shape[0]):
        for u in range(labels.shape[1]):
            if labels[i, u] >= 0:
                sizes[offsets[u] + labels[i, u]] += weights[i]


@jit
def mark_majorities(T, offsets, majority):
    """Set ``majority`` (B, K), initially zero, to 1 at each cluster's most frequent label in each partition.

    T (B, K) float64 counts the members of every base cluster; on a tie the lowest label wins, and none where
    a cluster has no member. One pass over T.
    """
    K = T.shape[1]
    most = np.empty(K)
    winner = np.empty(K, np.int64)
    for u in range(offsets.shape[0] - 1):
        most[:] = 0.0
        for b in range(offsets[u], offsets[u + 1]):
            for k in range(K):
                if T[b, k] > most[k]:
                    most[k] = T[b, k]
                    winner[k] = b
        for k in range(K):
            if most[k] > 0.0:
                majority[winner[k], k] = 1.0


@jit
def assign(labels, offsets, table, bias, current, assigned, T, sizes, totals):
    """Assign every object to its best cluster; on a tie it stays where it is, else the lowest number wins.

    labels (rows, M) with -1 missing; offsets (M+1,) int64; table, T (B, padded K) float64; bias, sizes (K,)
    float64; current, assigned (rows,) int32, -1 where there is no cluster yet or no label at all, and -2 - k
    for an object that stayed in cluster k although one of lower number scores the same. Adds to T and sizes,
    and to totals: SCORE the best scores, MOVED the objects whose cluster changed, LABELS the labels present
    and LABELED the objects that have any.
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
        before = current[i] if current[i] >= -1 else -2 - current[i]
        best = before
        highest = scores[best] + bias[best] if best >= 0 else -np.inf
        for k in range(K):
            if scores[k] + bias[k] > highest:
                highest = scores[k] + bias[k]
                best = k
        assigned[i] = best
        for k in range(before if best == before else 0):
            if scores[k] + bias[k] == highest:
                assigned[i] = -2 - best
                break
        for j in range(m):
            counts[at[j] + np.uint64(best)] += 1.0
        sizes[best] += 1.0
        totals[SCORE] += highest
        totals[MOVED] += best != before
        totals[LABELS] += m
        totals[LABELED] += 1.0


@jit
def respond(labels, offsets, table, bias, T, sizes, totals):
    """Add the responsibilities of a block to T and sizes, and ``log sum_k exp(g_ik)`` to totals[SCORE].

    Arguments as in `assign`.
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
