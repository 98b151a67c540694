"""Orders and criteria that look at distances between objects."""

from __future__ import annotations

import numpy as np

from bigcons.errors import InvalidInputError


def vat_order(dissimilarities: np.ndarray) -> np.ndarray:
    """Return the order of objects in which clusters show as blocks on the diagonal (VAT).

    Bezdek and Hathaway (2002): begin at an end of the largest dissimilarity, then append again and
    again the object nearest to those already placed (Prim's algorithm). Ties go to the lower index.

    ``dissimilarities`` is ``(n, n)`` and symmetric, for example ``1 - n_agree / n_seen``; NaN, for
    pairs never seen together, counts as farther than anything else. Returns ``(n,)`` int64, a
    permutation. Costs O(n^2) time and one copy of the matrix in memory, so for many objects order a sample.
    """
    distances = np.asarray(dissimilarities, dtype=np.float64)
    if distances.ndim != 2 or distances.shape[0] != distances.shape[1]:
        raise InvalidInputError(
            f"dissimilarities has shape {distances.shape}; pass a square (n_objects, n_objects) matrix."
        )
    n = len(distances)
    order = np.empty(n, dtype=np.int64)
    if n == 0:
        return order
    distances = np.where(np.isnan(distances), np.inf, distances)
    to_placed = np.full(n, np.inf)
    waiting = np.ones(n, dtype=bool)
    current = int(np.argmax(distances)) // n
    for position in range(n):
        order[position] = current
        waiting[current] = False
        np.minimum(to_placed, distances[current], out=to_placed)
        left = np.flatnonzero(waiting)
        if len(left):
            current = int(left[np.argmin(to_placed[left])])
    return order
