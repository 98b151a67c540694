"""One object's best membership among fixed prototypes: Newton on the simplex.

The cost is ``sum_e w_e d(x_e, y.q_e)`` over the prototypes ``q_e``: the divergence of the observed share
``x_e`` from the probability ``y.q_e`` under the membership ``y``, with weight ``w_e``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigcons.kernels._jit import jit, leaf
from bigcons.kernels._vector import empty
from bigcons.kernels.simplex import minimize_on_simplex


class Cost(NamedTuple):
    """The cost of one object of K clusters among up to G prototypes, and scratch space to minimize it."""

    y: np.ndarray
    """(K,): the membership."""
    prototypes: np.ndarray
    """(G, K)"""
    terms: np.ndarray
    """(4, G): probability, its change along the step, observed share, weight: see ``line_search``."""
    gradient: np.ndarray
    A: np.ndarray
    b: np.ndarray
    step: np.ndarray
    support: np.ndarray
    work: np.ndarray


@jit
def cost_for(G, K):
    """Allocate the cost of one object of K clusters among G prototypes."""
    y, gradient = empty(K, np.float64), empty(K, np.float64)
    b, step = empty(K, np.float64), empty(K, np.float64)
    prototypes, terms, A = empty((G, K), np.float64), empty((4, G), np.float64), empty((K, K), np.float64)
    return Cost(y, prototypes, terms, gradient, A, b, step, empty(K, np.int64), empty((K, K + 2), np.float64))


@leaf
def set_gradient(cost, n_terms, slope, parameter):
    """Set the gradient of the cost of ``n_terms`` prototypes."""
    g = cost.gradient
    for k in range(g.shape[0]):
        g[k] = 0.0
    for e in range(n_terms):
        rise = cost.terms[3, e] * slope(cost.terms[2, e], cost.terms[0, e], parameter)
        for k in range(g.shape[0]):
            g[k] += rise * cost.prototypes[e, k]


@leaf
def newton_model(cost, n_terms, slope, curvature, parameter):
    """Set the gradient, and ``A``, ``b`` of the quadratic model ``z'Az - 2b'z``; return the KKT gap."""
    K = cost.y.shape[0]
    set_gradient(cost, n_terms, slope, parameter)
    A, b, q = cost.A, cost.b, cost.prototypes
    for k in range(K):
        for r in range(K):
            A[k, r] = 0.0
    for e in range(n_terms):
        bend = cost.terms[3, e] * max(curvature(cost.terms[2, e], cost.terms[0, e], parameter), 0.0)
        for k in range(K):
            for r in range(k + 1):
                A[k, r] += bend * q[e, k] * q[e, r]
    for k in range(K):
        for r in range(k):
            A[r, k] = A[k, r]
    for k in range(K):
        b[k] = -cost.gradient[k]
        for r in range(K):
            b[k] += A[k, r] * cost.y[r]
    return kkt_gap(cost.gradient, cost.y)


@leaf
def kkt_gap(g, y):
    """Return the largest gradient on the support of ``y`` less the smallest of all; 0 at the optimum."""
    lowest = np.inf
    highest = -np.inf
    for k in range(y.shape[0]):
        lowest = min(lowest, g[k])
        if y[k] > 0.0:
            highest = max(highest, g[k])
    return highest - lowest


@leaf
def minimize(cost, n_terms, gap, convex, slope, curvature, search, parameter):
    """Minimize one object's cost over the simplex, in place in ``cost.y``, from its model there.

    Every step heads for the minimizer of the quadratic model over the simplex: the full step, so that
    vanishing coordinates become exactly zero, unless the slope at its end shows that the model is poor. Where
    some probability is nearly zero, curvatures can differ by so much that rounding spoils the minimizer: then
    the step is the paper's, between two coordinates.
    """
    y, step = cost.y, cost.step
    K = y.shape[0]
    weight = 0.0
    for e in range(n_terms):
        weight += cost.terms[3, e]
    for _ in range(12):  # an object is visited again in the next pass
        if gap <= 1e-7 * weight:
            return
        for k in range(K):
            step[k] = y[k]
        minimize_on_simplex(cost.A, cost.b, step, K, cost.support, cost.work)
        promised = 0.0
        for k in range(K):
            step[k] -= y[k]
            promised -= cost.gradient[k] * step[k]
        if promised <= 0.0:
            promised = set_pair_step(y, cost.gradient, step)
        for e in range(n_terms):
            change = 0.0
            for k in range(K):
                change += cost.prototypes[e, k] * step[k]
            cost.terms[1, e] = change
        length = step_length(cost, n_terms, promised, convex, slope, search, parameter)
        if length <= 0.0:
            return
        take_step(y, step, length)
        for e in range(n_terms):
            p = 0.0
            for k in range(K):
                p += cost.prototypes[e, k] * y[k]
            cost.terms[0, e] = p
        gap = newton_model(cost, n_terms, slope, curvature, parameter)


@leaf
def set_pair_step(y, gradient, step):
    """Set the step that moves all of the worst coordinate of ``y`` to the best; return its first decrease."""
    best = worst = -1
    for k in range(y.shape[0]):
        step[k] = 0.0
        if best < 0 or gradient[k] < gradient[best]:
            best = k
        if y[k] > 0.0 and (worst < 0 or gradient[k] > gradient[worst]):
            worst = k
    step[best] += y[worst]
    step[worst] -= y[worst]
    return (gradient[worst] - gradient[best]) * y[worst]


@leaf
def step_length(cost, n_terms, promised, convex, slope, search, parameter):
    """Return 1 if the slope at the end of the step is small, else the length that a line search finds.

    A step is taken in full if the slope at its end is at most half of that at its start. A non-convex
    divergence always needs the search. The model is poor where a probability leaves zero, which it allows to
    double in a step: the search then extends to the boundary of the simplex.
    """
    rise = 0.0
    for e in range(n_terms):
        p, b, x, w = cost.terms[0, e], cost.terms[1, e], cost.terms[2, e], cost.terms[3, e]
        rise += w * b * slope(x, p + b, parameter)
    if convex and abs(rise) <= 0.5 * promised:
        return 1.0
    longest = 1.0
    if rise < 0.0:
        longest = np.inf
        for k in range(cost.y.shape[0]):
            if cost.step[k] < 0.0:
                longest = min(longest, cost.y[k] / -cost.step[k])
    return search(cost.terms, n_terms, promised, longest, parameter)


@leaf
def take_step(y, step, length):
    """Move ``y`` by ``length`` of a step, and set the rounding residue of vanishing coordinates to zero."""
    total = 0.0
    for k in range(y.shape[0]):
        reached = y[k] + length * step[k]
        y[k] = reached if reached > 1e-15 else 0.0
        total += y[k]
    for k in range(y.shape[0]):
        y[k] /= total
