"""PCC with one prototype for every group of objects, by definition.

``value`` is a function of (observed share, probability), as in ``naive.pcc``.
"""

import numpy as np


def group_of(centers, y):
    return int(((centers - y) ** 2).sum(axis=1).argmin())


def agreement(x, y):
    """Return how many labels two rows share, and how many partitions label both."""
    seen = (x >= 0) & (y >= 0)
    return int((x == y)[seen].sum()), int(seen.sum())


def terms(labels, Y, centers, j):
    """Return (n_agree, n_seen, prototype) of object j and every group of others it is seen with."""
    others = [i for i in range(len(Y)) if i != j and (labels[i] >= 0).any()]
    found = []
    for a in range(len(centers)):
        members = [i for i in others if group_of(centers, Y[i]) == a]
        n_agree, n_seen = (
            np.sum([agreement(labels[i], labels[j]) for i in members], axis=0) if members else (0, 0)
        )
        if n_seen:
            found.append((n_agree, n_seen, Y[members].mean(axis=0)))
    return found


def cost(found, y, value):
    """Return the cost of one object with membership y."""
    return sum(
        n_agree * value(1.0, y @ q) + (n_seen - n_agree) * value(0.0, y @ q) for n_agree, n_seen, q in found
    )


def objective(labels, Y, centers, value):
    """Return the grouped objective, in which each pair counts half for either object."""
    return sum(cost(terms(labels, Y, centers, j), Y[j], value) for j in range(len(Y))) / 2


def gradient(found, y, slope):
    g = np.zeros_like(y)
    for n_agree, n_seen, q in found:
        g += n_seen * slope(n_agree / n_seen, y @ q) * q
    return g


def kkt_gap(found, y, slope):
    g = gradient(found, y, slope)
    return g[y > 0].max() - g.min()


def exact_objective(pairs, Y, value):
    """Return the part of the objective over pairs (i, j, n_agree, n_seen) that depends on memberships."""
    return sum(c * value(1.0, Y[i] @ Y[j]) + (n - c) * value(0.0, Y[i] @ Y[j]) for i, j, c, n in pairs)
