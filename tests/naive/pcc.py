"""Probabilistic consensus clustering as the paper writes it, one pair at a time.

A problem is a list of pairs ``(i, j, n_agree, n_seen)`` with i < j; memberships ``Y (n, K)`` are a float
array; ``value`` and ``slope`` are functions of (observed share, probability).
"""

from itertools import combinations
from typing import NamedTuple

import numpy as np


def l2(x, p):
    return (x - p) ** 2


def l2_slope(x, p):
    return 2 * (p - x)


def kl(x, p):
    """0 log 0 is 0; p is kept away from 0 and 1."""
    p = min(max(p, 1e-12), 1 - 1e-12)
    return sum(u * np.log(u / v) for u, v in ((x, p), (1 - x, 1 - p)) if u > 0)


def kl_slope(x, p):
    p = min(max(p, 1e-12), 1 - 1e-12)
    return (1 - x) / (1 - p) - x / p


def all_pairs(labels, weights=None):
    """Return every pair that some partition sees; negative labels are missing."""
    weights = np.ones(len(labels[0]), int) if weights is None else np.asarray(weights)
    pairs = []
    for i, j in combinations(range(len(labels)), 2):
        seen = (labels[i] >= 0) & (labels[j] >= 0)
        if weights[seen].any():
            pairs.append((i, j, weights[seen & (labels[i] == labels[j])].sum(), weights[seen].sum()))
    return pairs


def objective(pairs, Y, value=l2):
    return sum(n_seen * value(n_agree / n_seen, Y[i] @ Y[j]) for i, j, n_agree, n_seen in pairs)


def constant(pairs):
    """Return the part of the squared objective that does not depend on memberships."""
    return sum(n_agree**2 / n_seen for _, _, n_agree, n_seen in pairs)


def gradient(pairs, Y, slope=l2_slope):
    g = np.zeros_like(Y)
    for i, j, n_agree, n_seen in pairs:
        s = n_seen * slope(n_agree / n_seen, Y[i] @ Y[j])
        g[i] += s * Y[j]
        g[j] += s * Y[i]
    return g


def local_problem(pairs, Y, j):
    """Return A and b such that ``y'Ay - 2b'y`` is, up to a constant, the squared objective of object j."""
    K = Y.shape[1]
    A, b = np.zeros((K, K)), np.zeros(K)
    for *ends, n_agree, n_seen in pairs:
        if j in ends:
            other = Y[sum(ends) - j]
            A += n_seen * np.outer(other, other)
            b += n_agree * other
    return A, b


def kkt_gaps(pairs, Y, slope=l2_slope):
    """Return for each object the largest gradient on its support minus the smallest of all."""
    g = gradient(pairs, Y, slope)
    return np.array([row[y > 0].max() - row.min() for row, y in zip(g, Y, strict=True)])


def mean_weight(pairs, n_objects):
    """Return the mean over the objects of the summed ``n_seen`` of their pairs."""
    return 2 * sum(n_seen for *_, n_seen in pairs) / n_objects


class Step(NamedTuple):
    J: int
    U: int
    V: int
    length: float


def algorithm_1(pairs, Y, slope, n_steps, delta=1e-12):
    """Take the paper's steps on ``Y`` in place and yield each; stop at a gap of zero."""
    for _ in range(n_steps):
        g = gradient(pairs, Y, slope)
        U = g.argmin(axis=1)
        V = np.where(Y > 0, g, -np.inf).argmax(axis=1)
        rows = np.arange(len(Y))
        J = int((g[rows, V] - g[rows, U]).argmax())
        u, v = int(U[J]), int(V[J])
        if g[J, v] <= g[J, u]:
            return
        length = bisection(lambda e, j=J, u=u, v=v: rho(pairs, Y, slope, j, u, v, e), Y[J, v], delta)
        Y[J, u] += length
        Y[J, v] = 0 if length == Y[J, v] else Y[J, v] - length
        yield Step(J, u, v, length)


def rho(pairs, Y, slope, J, U, V, length):
    """Return the derivative of the objective after a step of object J from cluster V to U."""
    total = 0.0
    for *ends, n_agree, n_seen in pairs:
        if J in ends:
            y = Y[sum(ends) - J]
            b = y[U] - y[V]
            total += n_seen * b * slope(n_agree / n_seen, Y[J] @ y + length * b)
    return total


def bisection(derivative, longest, delta):
    """Return where a rising derivative changes sign in [0, longest], or ``longest`` if it never does."""
    if derivative(longest) <= 0:
        return longest
    low, high = 0.0, longest
    while high - low > delta:
        middle = (low + high) / 2
        if derivative(middle) > 0:
            high = middle
        else:
            low = middle
    return (low + high) / 2
