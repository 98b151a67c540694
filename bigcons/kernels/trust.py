"""How much partitions repeat each other.

Label rows are ``(n_rows, n_partitions)``, negative where missing, C-contiguous; label ``l`` of partition
``u`` is base cluster ``offsets[u] + l``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigcons.kernels._jit import empty, jit, leaf, zeros
from bigcons.kernels._vector import count_bits


@jit
def compare_partitions(labels, offsets, others, together, in_first, in_second, in_all):
    """Count pairs of objects that two partitions join, of each with ``others`` (R,), (M, R) int64 each.

    Over the objects that both label: pairs that both join, that the first joins, that the other joins, and
    all pairs. Two of the ``others`` are compared once, the lower first. O(M R n_rows) time; partitions of few
    clusters are compared 64 objects at a time, by bits.
    """
    n_rows, M = labels.shape
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
        pack_column(labels, v, other_bits[starts[r] : starts[r] + offsets[v + 1] - offsets[v]])
    in_columns = empty(widest, np.int64)
    ends, order = empty(widest + 1, np.int64), empty(n_rows, np.int64)
    in_group, in_column = zeros(widest, np.int64), zeros(widest, np.int64)
    is_other = zeros(M, np.bool_)
    for r in range(others.shape[0]):
        is_other[others[r]] = True
    for u in range(M):
        width = offsets[u + 1] - offsets[u]
        pack_column(labels, u, bits[:width])
        for b in range(width + 1):
            ends[b] = 0
        for i in range(n_rows):
            if labels[i, u] >= 0:
                ends[labels[i, u] + 1] += 1
        for b in range(width):
            ends[b + 1] += ends[b]
        for i in range(n_rows):  # objects by their label in u; afterwards ends[b] is the end of group b
            if labels[i, u] >= 0:
                order[ends[labels[i, u]]] = i
                ends[labels[i, u]] += 1
        for r in range(others.shape[0]):
            v = others[r]
            if v == u or (v < u and is_other[u]):
                continue
            other_width = offsets[v + 1] - offsets[v]
            if width * other_width * n_words <= 4 * n_rows:  # up to so many operations on words an object
                columns = other_bits[starts[r] : starts[r] + other_width]
                together[u, r], in_first[u, r], in_second[u, r], in_all[u, r] = compare_bits(
                    bits[:width], columns, in_columns
                )
                continue
            for c in range(other_width):
                in_column[c] = 0
            start, n_both, n_together, n_first, n_second = 0, 0, 0, 0, 0
            for b in range(width):
                n_group = 0
                for e in range(start, ends[b]):
                    label = labels[order[e], v]
                    if label >= 0:
                        n_together += in_group[label]
                        n_second += in_column[label]
                        n_first += n_group
                        in_group[label] += 1
                        in_column[label] += 1
                        n_group += 1
                for e in range(start, ends[b]):
                    label = labels[order[e], v]
                    if label >= 0:
                        in_group[label] = 0
                n_both += n_group
                start = ends[b]
            together[u, r], in_first[u, r], in_second[u, r] = n_together, n_first, n_second
            in_all[u, r] = n_both * (n_both - 1) // 2


@leaf
def pack_column(labels, u, bits):
    """Set bit ``i`` of the row of ``bits`` (width, words) of each base cluster of partition u that has i."""
    bits[:] = np.uint64(0)
    for i in range(labels.shape[0]):
        if labels[i, u] >= 0:
            bits[labels[i, u], i >> 6] |= np.uint64(1) << np.uint64(i & 63)


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
