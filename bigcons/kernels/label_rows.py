"""Comparisons of labels: how often two objects agree, which rows are equal, contingency tables, and how much
partitions repeat each other.

Label rows are ``(n_rows, n_partitions)``, negative where missing, C-contiguous; label ``l`` of partition
``u`` is base cluster ``offsets[u] + l``. Kernels count numerators and denominators; the caller divides.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigcons.kernels._jit import empty, jit, leaf, zeros
from bigcons.kernels._vector import count_bits


@leaf
def compare_rows(x, y):
    """Return (n_agree, n_seen) of two label rows ``(n_partitions,)``; negative labels are missing."""
    n_agree = np.int32(0)  # 32 bits so that the loop fills whole vector registers
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
def weigh_tile(left, right, offsets, of_clusters, of_partitions, agree, seen):
    """Fill ``agree`` and ``seen`` (rows of left, rows of right) float64 for every row with every row.

    They are the summed weights ``of_clusters`` (n_base_clusters,) of the base clusters that have both rows,
    and ``of_partitions`` (n_partitions,) of the partitions that label both.
    """
    for a in range(left.shape[0]):
        for b in range(right.shape[0]):
            joined, both = 0.0, 0.0
            for u in range(left.shape[1]):
                if left[a, u] >= 0 and right[b, u] >= 0:
                    both += of_partitions[u]
                    if left[a, u] == right[b, u]:
                        joined += of_clusters[offsets[u] + left[a, u]]
            agree[a, b], seen[a, b] = joined, both


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


@jit
def number_rows(rows, known, n_known, slots, numbers):
    """Give every row the number of the equal row of ``known``; new rows are appended to it.

    ``rows`` (n, n_partitions); ``known`` has at least n free rows after the first ``n_known``; ``slots``
    int64, -1 where free, has a power-of-two length greater than the number of rows of ``known``. Rows are
    compared in full, so the hash (FNV-1a by label) affects speed only. Returns the new number of known rows.
    """
    mask = np.uint64(slots.shape[0] - 1)
    for r in range(rows.shape[0]):
        code = np.uint64(14695981039346656037)
        for u in range(rows.shape[1]):
            code = (code ^ np.uint64(rows[r, u] + 1)) * np.uint64(1099511628211)
        at = (code ^ (code >> np.uint64(32))) & mask
        while True:
            number = slots[at]
            if number < 0:
                number = n_known
                n_known += 1
                slots[at] = number
                for u in range(rows.shape[1]):
                    known[number, u] = rows[r, u]
                break
            if _equal(rows[r], known[number]):
                break
            at = (at + np.uint64(1)) & mask
        numbers[r] = number
    return n_known


@leaf
def _equal(x, y):
    same = True
    for u in range(x.shape[0]):
        same &= x[u] == y[u]
    return same


@jit
def compare_partitions(columns, offsets, others, together, in_first, in_second, in_all):
    """Count pairs of objects that two partitions join, of each with ``others`` (R,), (M, R) int64 each.

    columns (M, n_rows): a partition in each row. Over the objects that both label: pairs that both join, that
    the first joins, that the other joins, and all pairs. Two of the ``others`` are compared once, the lower
    first. O(M R n_rows) time; partitions of few clusters are compared 64 objects at a time, by bits.
    """
    M, n_rows = columns.shape
    n_words = (n_rows + 63) // 64
    widest, n_other_bits = 0, 0
    for u in range(M):
        widest = max(widest, offsets[u + 1] - offsets[u])
    starts = empty(others.shape[0], np.int64)
    for r in range(others.shape[0]):
        starts[r] = n_other_bits
        n_other_bits += offsets[others[r] + 1] - offsets[others[r]]
    bits, other_bits = empty((widest, n_words), np.uint64), empty((n_other_bits, n_words), np.uint64)
    for r in range(others.shape[0]):
        v = others[r]
        pack_column(columns[v], other_bits[starts[r] : starts[r] + offsets[v + 1] - offsets[v]])
    in_columns = empty(widest, np.int64)
    ends, order = empty(widest + 1, np.int64), empty(n_rows, np.int64)
    in_group, in_column = zeros(widest, np.int64), zeros(widest, np.int64)
    is_other = zeros(M, np.bool_)
    for r in range(others.shape[0]):
        is_other[others[r]] = True
    for u in range(M):
        width = offsets[u + 1] - offsets[u]
        pack_column(columns[u], bits[:width])
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
            other_width = offsets[v + 1] - offsets[v]
            if width * other_width * n_words <= 4 * n_rows:  # up to so many operations on words an object
                together[u, r], in_first[u, r], in_second[u, r], in_all[u, r] = compare_bits(
                    bits[:width], other_bits[starts[r] : starts[r] + other_width], in_columns
                )
                continue
            for c in range(other_width):
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
            together[u, r], in_first[u, r], in_second[u, r] = n_together, n_first, n_second
            in_all[u, r] = n_both * (n_both - 1) // 2


@leaf
def pack_column(column, bits):
    """Set bit ``i`` of the row of ``bits`` (width, words) of each base cluster of a partition that has i."""
    bits[:] = np.uint64(0)
    for i in range(column.shape[0]):
        if column[i] >= 0:
            bits[column[i], i >> 6] |= np.uint64(1) << np.uint64(i & 63)


@leaf
def compare_bits(bits, other_bits, in_columns):
    """Return the four counts of `compare_partitions` of two partitions."""
    n_both = n_together = n_first = n_second = np.int64(0)
    in_columns[:] = 0
    for a in range(bits.shape[0]):
        in_row: Any = np.int64(0)
        for b in range(other_bits.shape[0]):
            n = np.uint64(0)
            for w in range(bits.shape[1]):
                n += count_bits(bits[a, w] & other_bits[b, w])
            common: Any = np.int64(n)
            n_together += common * (common - 1) // 2
            in_row += common
            in_columns[b] += common
        n_first += in_row * (in_row - 1) // 2
        n_both += in_row
    for b in range(other_bits.shape[0]):
        n_second += in_columns[b] * (in_columns[b] - 1) // 2
    return n_together, n_first, n_second, n_both * (n_both - 1) // 2
