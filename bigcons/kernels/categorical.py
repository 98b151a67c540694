"""Labels drawn from memberships: one categorical draw per object and partition."""

from __future__ import annotations

import numpy as np


def draw_labels(memberships: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Return labels ``(n_objects, n_partitions)``, each drawn from its object's memberships.

    ``memberships`` ``(n_objects, n_clusters)`` are >= 0 and need not sum to one; an object whose
    memberships are all zero gets -1. ``draws`` ``(n_objects, n_partitions)`` are uniform in [0, 1).
    A label is the first cluster whose cumulated membership exceeds the draw, so that a cluster of
    membership zero is never drawn. Smallest signed type; O(n_objects * n_partitions * n_clusters).
    """
    cumulated = memberships.cumsum(axis=1, dtype=np.float64)
    total = cumulated[:, -1:]
    thresholds = np.divide(cumulated, total, out=np.zeros_like(cumulated), where=total > 0)
    n_clusters = memberships.shape[1]
    labels = np.zeros(draws.shape, dtype=np.min_scalar_type(-n_clusters))
    for k in range(n_clusters):
        labels += draws >= thresholds[:, k, None]
    labels[total[:, 0] <= 0] = -1
    return labels
