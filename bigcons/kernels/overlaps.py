"""Overlaps of base clusters, ``G = H^T H``: how many objects each pair shares, and how alike partitions are.

Unweighted objects are packed into bits, 64 to a word, and an overlap is the number of bits that two rows of
words have in common. Objects are added one by one if they have weights, or if partitions have so many
clusters that most bits would be zero. Both fill the upper triangle only, with the same counts to the bit.
"""

from __future__ import annotations

import numpy as np

from bigcons.kernels._jit import jit, leaf
from bigcons.kernels._vector import count_bits, empty, flat, zeros
from bigcons.kernels.cluster_tables import add_to_rows, find_rows, sum_rows


def mirror(table: np.ndarray) -> None:
    """Copy the upper triangle of ``table`` (B, B) to the lower one, by tiles that stay in the cache."""
    tiles = [slice(first, first + 256) for first in range(0, len(table), 256)]
    for number, rows in enumerate(tiles):
        for columns in tiles[:number]:
            table[rows, columns] = table[columns, rows].T
        upper = np.triu(table[rows, rows])
        table[rows, rows] = upper + np.triu(upper, 1).T


@jit
def count_overlaps(labels, offsets, table):
    """Add the overlaps of a block to ``table`` (B, B) float64, on and above the diagonal.

    labels (rows, M), negative where missing; base cluster ``offsets[u] + label``. O(B^2 rows / 64).
    """
    n_rows, M = labels.shape
    B = offsets[M]
    # 64 words for each of a thousand base clusters stay in the cache; for few objects rows are shorter.
    words = min(64, (n_rows + 63) // 64)
    bits = empty((B + 1, words), np.uint64)  # the last row collects missing labels without a branch
    for first in range(0, n_rows, 64 * words):
        last = min(n_rows, first + 64 * words)
        pack(labels, offsets, first, last, bits)
        n_words = (last - first + 63) // 64
        for u in range(M):
            for a in range(offsets[u], offsets[u + 1]):
                table[a, a] += common_bits(bits, a, a, n_words)
                for b in range(offsets[u + 1], B):
                    table[a, b] += common_bits(bits, a, b, n_words)


@leaf
def pack(labels, offsets, first, last, bits):
    """Set bit ``i - first`` of the row of every base cluster that object ``i`` is in."""
    M = labels.shape[1]
    bits[:] = np.uint64(0)
    for i in range(first, last):
        word = (i - first) >> 6
        bit = np.uint64(1) << np.uint64((i - first) & 63)
        for u in range(M):
            label = labels[i, u]
            row = offsets[u] + label if label >= 0 else offsets[M]
            bits[row, word] |= bit


@leaf
def common_bits(bits, a, b, n_words):
    """Return how many bits two rows have in common."""
    n = np.uint64(0)
    for w in range(n_words):
        n += count_bits(bits[a, w] & bits[b, w])
    return n


@jit
def multiply_rows(starts, columns, values, column_starts, table):
    """Set ``table`` (n, n), zero before, to the products of any two rows of a sparse matrix.

    Row i has ``values`` in ``columns``, ascending, from ``starts[i]`` to before ``starts[i + 1]``;
    ``column_starts`` are as far apart as columns have entries. Rows visit a slice of the columns after the
    other, of entries that stay in the cache, from the last row to the first, and list their entries by
    column: each is multiplied with those listed before it. n at most 2^16.
    """
    n, n_columns = starts.shape[0] - 1, column_starts.shape[0] - 1
    rows, shares = empty(columns.shape[0], np.uint16), empty(columns.shape[0], np.float64)
    ends, cursor = column_starts.copy(), starts.copy()
    last = 0
    while last < n_columns:
        first = last
        last += 1
        while last < n_columns and column_starts[last + 1] - column_starts[first] <= 1 << 16:
            last += 1
        for i in range(n - 1, -1, -1):
            row = table[i]
            while cursor[i] < starts[i + 1] and columns[cursor[i]] < last:
                column, value = columns[cursor[i]], values[cursor[i]]
                cursor[i] += 1
                rows[ends[column]] = i
                shares[ends[column]] = value
                ends[column] += 1
                for e in range(np.uint64(column_starts[column]), np.uint64(ends[column])):
                    row[rows[e]] += value * shares[e]
    for i in range(n):
        for j in range(i):
            table[i, j] = table[j, i]


@jit
def add_overlaps(labels, offsets, weights, table):
    """Add ``weights[i]`` to ``table`` for each pair of base clusters of object ``i``; as `count_overlaps`.

    weights (rows,) float64. O(m_i^2) for an object with m_i labels.
    """
    n_rows, M = labels.shape
    # Rows are added together, one partition after another, so that the table rows of one stay in the cache.
    chunk = min(n_rows, max(2048, 8 * offsets[M]))
    codes = empty((chunk, M), np.int32)
    n_labels = empty(chunk, np.int32)
    n_done = empty(chunk, np.int32)
    for first in range(0, n_rows, chunk):
        last = min(n_rows, first + chunk)
        for i in range(first, last):
            n_labels[i - first] = list_codes(labels, i, offsets, codes[i - first])
            n_done[i - first] = 0
        for u in range(M):
            for i in range(first, last):
                if labels[i, u] < 0:
                    continue
                row = i - first
                a = codes[row, n_done[row]]
                for p in range(n_done[row], n_labels[row]):
                    table[a, codes[row, p]] += weights[i]
                n_done[row] += 1


@leaf
def list_codes(labels, i, offsets, codes):
    """List the base clusters of an object in ``codes`` (M,) and return their number."""
    m = 0
    for u in range(labels.shape[1]):
        codes[m] = offsets[u] + labels[i, u]  # overwritten by the next if the label is missing
        m += labels[i, u] >= 0
    return m


@jit
def add_products(labels, offsets, weights, table, product):
    """Add ``H^T W H`` of a block times ``table`` to ``product``, (B, width) float64 both; O(rows M width).

    labels (rows, M), negative where missing; weights (rows,) float64; the width is a multiple of eight.
    """
    n_rows, M = labels.shape
    width = table.shape[1]
    at = empty(M, np.uint64)
    total = empty(width, np.float64)
    rows, products = flat(table), flat(product)
    for i in range(n_rows):
        m = find_rows(labels, i, 0, M, offsets, width, at)
        sum_rows(rows, at, m, total)
        for k in range(width):
            total[k] *= weights[i]
        add_to_rows(products, at, m, total, width)


@jit
def add_soft_overlaps(memberships, weights, table):
    """Add ``weights[i] h_i h_i^T`` of all memberships (rows, B) float32 to ``table``, as `add_overlaps`.

    O(b_i^2) for an object with memberships in b_i base clusters.
    """
    B = memberships.shape[1]
    codes, values = empty(B, np.int64), empty(B, np.float64)
    for i in range(memberships.shape[0]):
        m = list_memberships(memberships, i, codes, values)
        for p in range(m):
            weighted = weights[i] * values[p]
            for q in range(p, m):
                table[codes[p], codes[q]] += weighted * values[q]


@leaf
def list_memberships(memberships, i, codes, values):
    """List the base clusters of object ``i`` in ``codes`` (B,), with ``values`` (B,), and return how many."""
    m = 0
    for b in range(memberships.shape[1]):
        codes[m] = b  # overwritten by the next if there is no membership
        values[m] = memberships[i, b]
        m += memberships[i, b] > 0
    return m


# Overlaps of the clusters of any two partitions


@jit
def compare_partitions(columns, offsets, others, joined, in_first, in_second, in_all):
    """Count pairs of objects that two partitions join, of each one with ``others`` (R,); (M, R) int64 each.

    columns (M, n_rows): a partition in each row. Over the objects that both label: pairs that both join, that
    the first joins, that the other joins, and all pairs. Two of the ``others`` are compared once, the lower
    first. O(M R n_rows) time.
    """
    M, n_rows = columns.shape
    widest = 0
    for u in range(M):
        widest = max(widest, offsets[u + 1] - offsets[u])
    ends, order = empty(widest + 1, np.int64), empty(n_rows, np.int64)
    in_group, in_column = zeros(widest, np.int64), zeros(widest, np.int64)
    is_other = zeros(M, np.bool_)
    for r in range(others.shape[0]):
        is_other[others[r]] = True
    for u in range(M):
        width = offsets[u + 1] - offsets[u]
        for b in range(width + 1):
            ends[b] = 0
        for i in range(n_rows):
            if columns[u, i] >= 0:
                ends[columns[u, i] + 1] += 1
        for b in range(width):
            ends[b + 1] += ends[b]
        for i in range(n_rows):  # objects by their label in u; afterwards ends[b] is the end of group b
            if columns[u, i] >= 0:
                order[ends[columns[u, i]]] = i
                ends[columns[u, i]] += 1
        for r in range(others.shape[0]):
            v = others[r]
            if v == u or (v < u and is_other[u]):
                continue
            for c in range(offsets[v + 1] - offsets[v]):
                in_column[c] = 0
            start, n_both, n_together, n_first, n_second = 0, 0, 0, 0, 0
            for b in range(width):
                n_group = 0
                for e in range(start, ends[b]):
                    label = columns[v, order[e]]
                    if label >= 0:
                        n_together += in_group[label]
                        n_second += in_column[label]
                        n_first += n_group
                        in_group[label] += 1
                        in_column[label] += 1
                        n_group += 1
                for e in range(start, ends[b]):
                    label = columns[v, order[e]]
                    if label >= 0:
                        in_group[label] = 0
                n_both += n_group
                start = ends[b]
            joined[u, r], in_first[u, r], in_second[u, r] = n_together, n_first, n_second
            in_all[u, r] = n_both * (n_both - 1) // 2
