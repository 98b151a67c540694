"""PCC with rates that all partitions share, as its definition reads, one pair at a time.

Pairs, values and slopes are those of `naive.pcc`; a pair joins with probability ``a + d y_i.y_j``.
"""

import numpy as np


def objective(pairs, Y, value, a, d):
    return sum(w * value(c / w, a + d * (Y[i] @ Y[j])) for i, j, c, w in pairs)


def gradient(pairs, Y, slope, a, d):
    g = np.zeros_like(Y)
    for i, j, c, w in pairs:
        s = w * d * slope(c / w, a + d * (Y[i] @ Y[j]))
        g[i] += s * Y[j]
        g[j] += s * Y[i]
    return g


def kkt_gap(pairs, Y, slope, a, d):
    """Return the largest over the objects of the largest gradient on the support minus the smallest."""
    g = gradient(pairs, Y, slope, a, d)
    return max(row[y > 0].max() - row.min() for row, y in zip(g, Y, strict=True))


def sums(pairs, Y):
    """Return the sums over the votes of 1, x, p, p^2, x p, and of 1 and x in equal clusters."""
    total, clusters = np.zeros(7), Y.argmax(axis=1)
    for i, j, c, w in pairs:
        p, equal = Y[i] @ Y[j], clusters[i] == clusters[j]
        total += [w, c, w * p, w * p * p, c * p, w * equal, c * equal]
    return total
