"""Rows of a table that an object's labels point at: summed up, or added to.

Tables have one row a base cluster, (B, width) float64, or one a partition, (M, width), the width padded to
whole vectors; a base cluster is ``offsets[u] + label``. Everything a method knows of an object's labels comes
from such sums.
"""

from __future__ import annotations

import numpy as np

from bigcons.kernels._jit import leaf
from bigcons.kernels._vector import WIDTH, add8, add_times8, load8, store8, zero8


@leaf
def padded(width):
    """Return ``width`` rounded up to whole vectors."""
    return (width + WIDTH - 1) // WIDTH * WIDTH


@leaf
def find_rows(labels, i, offsets, width, at, partition_width=0, partition_at=None):
    """List in ``at`` where the rows of object ``i``'s base clusters begin, in entries; return their number.

    With ``partition_at``, list there where those of its partitions begin, in a table of that other width: the
    labels are read once for both.
    """
    m = 0
    for u in range(labels.shape[1]):
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
def sum_columns(table, at, w_at, m, start, stop, out):
    """Do so for the columns from ``start``, where a vector begins, to ``stop`` or the end of its vector.

    With ``w_at`` each row counts by its weight there.
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

    What pads ``values`` to a whole vector must be zero. Vectors of zeros are skipped: few clusters of an
    object change at a time.
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
