"""Rows of a table that an object's labels point at: summed up, or added to.

Tables have one row a base cluster, (B, width) float64, the width padded to whole vectors; a base cluster
is ``offsets[u] + label``. Everything a method knows of an object's labels comes from such sums.
"""

from __future__ import annotations

import numpy as np

from bigcons.kernels._jit import jit
from bigcons.kernels._vector import WIDTH, add8, load8, store8, zero8


@jit
def find_rows(labels, i, offsets, width, at):
    """List in ``at`` where the table rows of object ``i`` begin, in entries; return how many they are."""
    m = 0
    for u in range(labels.shape[1]):
        label = labels[i, u]
        at[m] = np.uint64((offsets[u] + label) * width)  # overwritten by the next if the label is missing
        m += label >= 0
    return m


@jit
def sum_rows(table, at, m, out):
    """Set ``out`` (width,) to the sum of the ``m`` rows of the flat ``table`` that begin at ``at``."""
    for k in range(0, out.shape[0], WIDTH):
        total = zero8()
        for j in range(m):
            total = add8(total, load8(table, at[j] + np.uint64(k)))
        store8(out, np.uint64(k), total)


@jit
def add_to_rows(table, at, m, values):
    """Add ``values`` (width,) to each of the ``m`` rows of the flat ``table`` that begin at ``at``."""
    for k in range(0, values.shape[0], WIDTH):
        part = load8(values, np.uint64(k))
        for j in range(m):
            here = at[j] + np.uint64(k)
            store8(table, here, add8(load8(table, here), part))
