"""Expected losses of a clustering, object by object and pair by pair."""

from itertools import combinations
from math import comb, log

import numpy as np


def vi(labels, column):
    """Return the variation of information of labels and one partition, over shared objects."""
    both = [(a, b) for a, b in zip(labels, column, strict=True) if a >= 0 and b >= 0]
    lost = 0.0
    for a, b in both:
        joint = both.count((a, b))
        lost += log(sum(x == a for x, _ in both) / joint) + log(sum(y == b for _, y in both) / joint)
    return lost / len(both)


def binder(labels, column):
    """Return the loss of Binder, the share of the pairs of shared objects that one alone joins."""
    both = [(a, b) for a, b in zip(labels, column, strict=True) if a >= 0 and b >= 0]
    wrong = sum((a == c) != (b == d) for (a, b), (c, d) in combinations(both, 2))
    return wrong / max(comb(len(both), 2), 1)


LOSSES = {"vi": vi, "binder": binder}


def expected(x, labels, loss, weights=None):
    """Return the mean loss over partitions (n, M), by the number of objects compared times weights."""
    weights = np.ones(x.shape[1]) if weights is None else np.asarray(weights, float)
    counts = weights * ((x >= 0) & (labels >= 0)[:, None]).sum(axis=0)
    compared = zip(counts, x.T, strict=True)
    return sum(c * LOSSES[loss](labels, column) for c, column in compared if c > 0) / counts.sum()
