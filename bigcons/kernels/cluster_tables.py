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
from typing import Any

import numpy as np

from bigcons.kernels._jit import jit, leaf
from bigcons.kernels._vector import WIDTH, add8, add_times8, empty, flat, load8, store8, zero8, zeros

# Entries of a table that stay in a second-level cache while all objects of a block visit them.
CACHED_ENTRIES = 1 << 15


def padded(width: int) -> int:
    """Return ``width`` rounded up to whole vectors."""
    return (width + WIDTH - 1) // WIDTH * WIDTH


padded_leaf: Any = leaf(padded)  # the same in kernels


def in_whole_vectors(table: np.ndarray) -> np.ndarray:
    """Return a table (B, K) in float64 with columns of zeros up to whole vectors; itself if it has them."""
    if table.dtype == np.float64 and table.shape[1] % WIDTH == 0 and table.flags.c_contiguous:
        return table
    result = np.zeros((len(table), padded(table.shape[1])))
    result[:, : table.shape[1]] = table
    return result


def summed_rows(labels: np.ndarray, offsets: np.ndarray, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums (rows, K) of the rows of a table (B, K) that the labels of each object select, and
    their numbers (rows,) int64.
    """
    padded_table = in_whole_vectors(table)
    sums, n_labels = np.empty((len(labels), padded_table.shape[1])), np.empty(len(labels), np.int64)
    sum_votes(labels, offsets, padded_table, sums, n_labels)
    return sums[:, : table.shape[1]], n_labels


@leaf
def find_rows(labels, i, first, last, offsets, width, at, partition_width=0, partition_at=None):
    """List in ``at`` where the rows of object ``i``'s base clusters begin, in entries; return their number.

    Of the partitions from ``first`` to before ``last``. With ``partition_at``, also list where the rows of
    its partitions begin in a table of ``partition_width``, so that labels are read once for both.
    """
    row, m = labels[i], np.uint64(0)
    for u in range(np.uint64(first), np.uint64(last)):  # unsigned numbers need no check for < 0
        label = np.int64(row[u])
        at[m] = np.uint64((offsets[u] + label) * width)  # overwritten by the next if the label is missing
        if partition_at is not None:
            partition_at[m] = u * np.uint64(partition_width)
        m += np.uint64(label >= 0)
    return np.int64(m)


@leaf
def sum_rows(table, at, m, out):
    """Set ``out`` (width,) to the sum of the ``m`` rows of the flat ``table`` that begin at ``at``."""
    sum_columns(table, at, None, m, 0, out.shape[0], out)


@leaf
def add_rows(table, at, m, out, width):
    """Add the ``m`` rows of the flat ``table`` that begin at ``at`` to ``out[:width]``, one by one."""
    for k in range(0, width, WIDTH):
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
    n = np.uint64(m)
    for k in range(start, stop, 3 * WIDTH):
        first, second, third = np.uint64(k), np.uint64(k + WIDTH), np.uint64(k + 2 * WIDTH)
        a, b, c = zero8(), zero8(), zero8()
        if k + 2 * WIDTH < stop:  # sums of several vectors do not wait for each other
            for e in range(n):
                a = add_row(a, table, at[e] + first, w_at, e)
                b = add_row(b, table, at[e] + second, w_at, e)
                c = add_row(c, table, at[e] + third, w_at, e)
            store8(out, third, c)
            store8(out, second, b)
        elif k + WIDTH < stop:
            for e in range(n):
                a = add_row(a, table, at[e] + first, w_at, e)
                b = add_row(b, table, at[e] + second, w_at, e)
            store8(out, second, b)
        else:
            for e in range(n):
                a = add_row(a, table, at[e] + first, w_at, e)
        store8(out, first, a)


@leaf
def add_row(total, table, at, w_at, e):
    """Return ``total`` and the vector of the flat ``table`` at ``at``, times ``w_at[e]`` if it is given."""
    row = load8(table, at)
    return add8(total, row) if w_at is None else add_times8(total, row, w_at[e])


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
            entry = at[e] + column
            store8(table, entry, add8(load8(table, entry), part))


@leaf
def _has_entries(values, k):
    """Return whether any entry of the vector that begins at ``k`` is not zero."""
    total = 0.0
    for r in range(WIDTH):
        total += abs(values[k + r])
    return total != 0.0


@leaf
def end_of_slice(offsets, first, width, partition_width):
    """Return the partition before which the table rows of those from ``first`` on fill the cache.

    These are rows of ``width`` for base clusters and of ``partition_width`` for partitions.
    """
    last, M = first + 1, offsets.shape[0] - 1
    while (
        last < M
        and (offsets[last + 1] - offsets[first]) * width + (last + 1 - first) * partition_width
        <= CACHED_ENTRIES
    ):
        last += 1
    return last


@leaf
def rows_together(n_rows, offsets, width, partition_width):
    """Return how many objects visit a slice of the partitions before the next; 1 if all are one slice.

    From 8 to 256, as many as have their sums in the cache. They read their labels again where each alone
    would list them once, which pays from four visits to a row of the tables on. Arguments as in
    `end_of_slice`.
    """
    M = offsets.shape[0] - 1
    if offsets[M] * width + M * partition_width <= CACHED_ENTRIES:
        return 1
    fitting = CACHED_ENTRIES // (2 * (width + partition_width))
    n_together = min(max(min(fitting, 256), 8), n_rows)
    return n_together if n_together * M >= 4 * offsets[M] else 1


@leaf
def gather(labels, start, n, offsets, table, width, at, sums, n_labels, by_slices):
    """Set ``sums[:n]`` to the summed rows of the flat ``table`` of ``n`` objects from ``start`` on.

    Also ``n_labels[:n]`` to their numbers of labels. The objects visit a slice of the partitions after the
    other; a single object may visit all at once, and ``at`` (M,) then lists its rows. The sums are the same.
    """
    M = labels.shape[1]
    if not by_slices:
        n_labels[0] = find_rows(labels, start, 0, M, offsets, width, at)
        sum_rows(table, at, n_labels[0], sums[0])
        return
    for r in range(n):
        n_labels[r] = 0
        for k in range(width):
            sums[r, k] = 0.0
    first = 0
    while first < M:
        last = end_of_slice(offsets, first, width, 0)
        for r in range(n):
            m = find_rows(labels, start + r, first, last, offsets, width, at)
            add_rows(table, at, m, sums[r], width)
            n_labels[r] += m
        first = last


@leaf
def scatter(labels, start, n, offsets, table, width, at, shares):
    """Add ``shares[:n]`` of ``n`` objects to their rows of the flat ``table``; arguments as in `gather`."""
    M = labels.shape[1]
    first = 0
    while first < M:
        last = end_of_slice(offsets, first, width, 0)
        for r in range(n):
            m = find_rows(labels, start + r, first, last, offsets, width, at)
            add_to_rows(table, at, m, shares[r], width)
        first = last


@jit
def sum_votes(labels, offsets, table, votes, n_labels):
    """Set ``votes`` (n, width) float64 to the summed table rows of each object, n_labels (n,) int64.

    labels (n, M), negative where missing; table (B, width) float64, the width a multiple of eight. Objects
    visit a slice of the partitions after the other.
    """
    at = empty(labels.shape[1], np.uint64)
    gather(labels, 0, len(labels), offsets, flat(table), table.shape[1], at, votes, n_labels, True)


@jit
def count_shares(labels, offsets, shares, table):
    """Add ``shares`` (n, width) of the objects to the rows of ``table`` (B, width) of their labels.

    Arguments as in `sum_votes`. Narrower shares would be read beyond their end.
    """
    if shares.shape[1] != table.shape[1]:
        raise ValueError("shares and table need as many columns")
    at = empty(labels.shape[1], np.uint64)
    scatter(labels, 0, len(labels), offsets, flat(table), table.shape[1], at, shares)


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
    highest = empty(K, np.float64)
    winner = empty(K, np.int64)
    for u in range(offsets.shape[0] - 1):
        highest[:] = 0.0
        for b in range(offsets[u], offsets[u + 1]):
            for k in range(K):
                if T[b, k] > highest[k]:
                    highest[k] = T[b, k]
                    winner[k] = b
        for k in range(K):
            if highest[k] > 0.0:
                majority[winner[k], k] = 1.0


@jit
def assign(labels, offsets, table, bias, current, assigned, T, sizes, totals):
    """Assign every object to its best cluster; on a tie it stays where it is, else the lowest number wins.

    Scores that differ by less than their sums are rounded are a tie.

    labels (rows, M) with -1 missing; offsets (M+1,) int64; table, T (B, padded K) float64; bias, sizes (K,)
    float64; current, assigned (rows,) int32, -1 where there is no cluster yet or no label at all. Adds to T,
    to sizes and to totals (4,): the best scores, the objects whose cluster changed, the labels present, and
    the objects that have any.
    """
    n_rows, M = labels.shape
    K, width = bias.shape[0], table.shape[1]
    at = empty(M, np.uint64)
    scores = empty(width, np.float64)
    rows, counts = flat(table), flat(T)
    for i in range(n_rows):
        m = find_rows(labels, i, 0, M, offsets, width, at)
        if m == 0:
            assigned[i] = -1
            continue
        sum_rows(rows, at, m, scores)
        best = previous = current[i]
        highest = scores[best] + bias[best] if best >= 0 else -np.inf
        for k in range(K):
            if scores[k] + bias[k] > highest + 1e-12 * (m + abs(scores[k])):
                highest = scores[k] + bias[k]
                best = k
        assigned[i] = best
        for j in range(m):
            counts[at[j] + np.uint64(best)] += 1.0
        sizes[best] += 1.0
        totals[0] += highest
        totals[1] += best != previous
        totals[2] += m
        totals[3] += 1.0


@jit
def respond(labels, offsets, table, bias, T, sizes, totals):
    """Add the responsibilities of a block to T and sizes, and ``log sum_k exp(g_ik)`` to totals[0].

    Arguments as in `assign`.
    """
    batch = rows_together(len(labels), offsets, table.shape[1], 0)
    at = empty(labels.shape[1], np.uint64)
    scores, n_labels = zeros((batch, table.shape[1]), np.float64), empty(batch, np.int64)
    rows, sums = flat(table), flat(T)
    for start in range(0, len(labels), batch):
        n = min(batch, len(labels) - start)
        respond_together(
            labels, start, n, offsets, rows, bias, sums, sizes, totals, at, scores, n_labels
        )  # fmt: skip


@leaf
def respond_together(
    labels, start, n, offsets, rows, bias, sums, sizes, totals, at, scores, n_labels
):  # fmt: skip
    """Take the part of `respond` of ``n`` objects from ``start`` on."""
    width, by_slices = scores.shape[1], len(scores) > 1
    gather(labels, start, n, offsets, rows, width, at, scores, n_labels, by_slices)
    for r in range(n):
        if n_labels[r] == 0:
            continue
        totals[0] += normalize(scores[r], bias)
        for k in range(bias.shape[0]):
            sizes[k] += scores[r, k]
        totals[2] += n_labels[r]
        totals[3] += 1.0
    if by_slices:
        scatter(labels, start, n, offsets, sums, width, at, scores)
    else:
        add_to_rows(sums, at, n_labels[0], scores[0], width)


@jit
def responsibilities(labels, offsets, table, bias, out):
    """Set ``out`` (rows, K) float32 to the responsibilities; without labels they come from bias alone."""
    n_rows, M = labels.shape
    K, width = bias.shape[0], table.shape[1]
    batch = rows_together(n_rows, offsets, width, 0)
    at = empty(M, np.uint64)
    scores, n_labels = zeros((batch, width), np.float64), empty(batch, np.int64)
    for start in range(0, n_rows, batch):
        n = min(batch, n_rows - start)
        gather(labels, start, n, offsets, flat(table), width, at, scores, n_labels, batch > 1)
        for r in range(n):
            normalize(scores[r], bias)
            for k in range(K):
                out[start + r, k] = np.float32(scores[r, k])


@leaf
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
            T[offsets[u] + labels[i, u], k] += labels[i, u] >= 0
