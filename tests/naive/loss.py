"""Expected losses of a clustering, object by object and pair by pair."""

from itertools import combinations
from math import comb, log

import numpy as np


def vi(labels, column, split_cost=1.0):
    """Return the generalized variation of information of labels and one partition, over shared objects."""
    both = [(a, b) for a, b in zip(labels, column, strict=True) if a >= 0 and b >= 0]
    lost = 0.0
    for a, b in both:
        joint = both.count((a, b))
        lost += (2 - split_cost) * log(sum(x == a for x, _ in both) / joint)
        lost += split_cost * log(sum(y == b for _, y in both) / joint)
    return lost / len(both)


def binder(labels, column, split_cost=1.0):
    """Return the generalized loss of Binder, a share of the pairs of shared objects."""
    both = [(a, b) for a, b in zip(labels, column, strict=True) if a >= 0 and b >= 0]
    wrong = 0.0
    for (a, b), (c, d) in combinations(both, 2):
        wrong += split_cost * (a != c and b == d) + (2 - split_cost) * (a == c and b != d)
    return wrong / max(comb(len(both), 2), 1)


LOSSES = {"vi": vi, "binder": binder}


def distances(x, labels, loss, split_cost=1.0):
    """Return the loss (M,) of labels to each partition of x (n, M), NaN where no object is shared."""
    shared = [any((labels >= 0) & (column >= 0)) for column in x.T]
    return np.array(
        [
            LOSSES[loss](labels, column, split_cost) if known else np.nan
            for column, known in zip(x.T, shared, strict=True)
        ]
    )


def expected(x, labels, loss, split_cost=1.0, weights=None):
    """Return the mean loss, by the number of objects compared times the weights."""
    weights = np.ones(x.shape[1]) if weights is None else np.asarray(weights, float)
    counts = weights * ((x >= 0) & (labels >= 0)[:, None]).sum(axis=0)
    found = distances(x, labels, loss, split_cost)
    return sum(c * d for c, d in zip(counts, found, strict=True) if c > 0) / counts.sum()
