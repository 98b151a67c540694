"""Equal label rows found by hashing."""

from __future__ import annotations

import numpy as np

from bigcons.kernels._jit import jit


@jit
def number_rows(rows, known, n_known, slots, numbers):
    """Give every row the number of the equal row of ``known``; rows not met before are added to it.

    ``rows`` (n, n_partitions); ``known`` has at least n free rows after the first ``n_known``, and ``slots``,
    a power of two of int64 that holds -1 where free, more places than ``known`` has rows. Rows are compared
    in full, so the hash (FNV-1a by label) decides on speed alone. Returns the new number of known rows.
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
                known[number] = rows[r]
                break
            if _equal(rows[r], known[number]):
                break
            at = (at + np.uint64(1)) & mask
        numbers[r] = number
    return n_known


@jit
def _equal(x, y):
    same = True
    for u in range(x.shape[0]):
        same &= x[u] == y[u]
    return same
