"""PCC of many clusters as its definition reads, one pair at a time."""

from itertools import combinations

import numpy as np


def objective(labels, offsets, Y, rates):
    """Return ``sum_{i<j} w_ij p_ij^2 - 2 sum_u w_u d_u (omega J - a_u) p_ij``, w_ij from what each has."""
    weights, P = rates.w * rates.d**2, Y @ rates.theta @ Y.T
    v = (labels >= 0) @ weights / np.sqrt(weights.sum())
    total = 0.0
    for i, j in combinations(range(len(labels)), 2):
        pull = 0.0
        for u in range(labels.shape[1]):
            if labels[i, u] >= 0 and labels[j, u] >= 0:
                joined = rates.omega[offsets[u] + labels[i, u]] if labels[i, u] == labels[j, u] else 0.0
                pull += rates.w[u] * rates.d[u] * (joined - rates.a[u])
        total += v[i] * v[j] * P[i, j] ** 2 - 2.0 * pull * P[i, j]
    return total
