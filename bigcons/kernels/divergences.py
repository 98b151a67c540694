"""Double-convex Bregman divergences as compiled scalar functions.

For a generator ``phi`` on pairs ``(x, 1 - x)`` with ``F(x) = phi(x) + phi(1 - x)`` (Lourenço et al. 2015):

    value(x, p)     = F(x) - F(p) - (x - p) F'(p)
    slope(x, p)     = d value / dp     = (p - x) F''(p)
    curvature(x, p) = d2 value / dp2   = F''(p) + (p - x) F'''(p)

``x`` is the observed share of agreement, ``p`` the co-membership probability. Where a
generator is infinitely steep at 0 or 1, ``p`` is kept ``EDGE`` away from them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigcons.kernels._jit import cache_maker, jit

Kernel = Callable[..., Any]

EDGE = 1e-12


@jit
def inside(p):
    """Return ``p`` kept away from 0 and 1."""
    return min(max(p, EDGE), 1.0 - EDGE)


@jit
def l2_value(x, p):
    """Squared difference. The generator |x|^2 gives twice this; the paper's objective has no 2."""
    return (x - p) * (x - p)


@jit
def l2_slope(x, p):
    """Slope of the squared difference."""
    return 2.0 * (p - x)


@jit
def l2_curvature(_x, _p):
    """Curvature of the squared difference."""
    return 2.0


@jit
def kl_value(x, p):
    """Kullback-Leibler divergence of Bernoulli distributions, in nats; 0 log 0 is 0."""
    p = inside(p)
    value = 0.0
    if x > 0.0:
        value += x * np.log(x / p)
    if x < 1.0:
        value += (1.0 - x) * np.log((1.0 - x) / (1.0 - p))
    return value


@jit
def kl_slope(x, p):
    """Slope of KL. A term whose numerator is 0 vanishes, also at the edge: 0/0 is 0."""
    p = inside(p)
    return (1.0 - x) / (1.0 - p) - x / p


@jit
def kl_curvature(x, p):
    """Curvature of KL."""
    p = inside(p)
    return (1.0 - x) / ((1.0 - p) * (1.0 - p)) + x / (p * p)


@cache_maker
def bregman_functions(
    phi: Kernel, derivative: Kernel | None = None, second_derivative: Kernel | None = None
) -> tuple[Kernel, Kernel, Kernel]:
    """Compile value, slope and curvature of a user's generator; missing derivatives become differences.

    Near 0 and 1, where a generator may be infinitely steep and differences are mere rounding, the divergence
    is continued by its parabola at the edge, which keeps it convex and its slope continuous. Second
    derivatives that are differences themselves need a wider edge.
    """
    edge = 1e-9 if second_derivative is not None else 1e-3
    f = jit(phi)
    f1 = jit(derivative) if derivative is not None else central_difference(f)
    f2 = jit(second_derivative) if second_derivative is not None else second_central_difference(f)
    f3 = central_difference(f2)

    @jit
    def value(x, p):
        c = min(max(p, edge), 1.0 - edge)
        q = 1.0 - c
        at_edge = f(x) + f(1.0 - x) - f(c) - f(q) - (x - c) * (f1(c) - f1(q))
        return at_edge + 0.5 * (f2(c) + f2(q)) * (p - c) * (p + c - 2.0 * x)

    @jit
    def slope(x, p):
        c = min(max(p, edge), 1.0 - edge)
        return (p - x) * (f2(c) + f2(1.0 - c))

    @jit
    def curvature(x, p):
        c = min(max(p, edge), 1.0 - edge)
        q = 1.0 - c
        bend = f2(c) + f2(q)
        return bend + (p - x) * (f3(c) - f3(q)) if p == c else bend

    return value, slope, curvature


def central_difference(f: Kernel) -> Kernel:
    """Compile the first derivative of ``f`` by the five-point rule."""

    @jit
    def first(x):
        h = min(1e-3, 0.03 * x, 0.03 * (1.0 - x))
        return (8.0 * (f(x + h) - f(x - h)) - (f(x + 2.0 * h) - f(x - 2.0 * h))) / (12.0 * h)

    return first


def second_central_difference(f: Kernel) -> Kernel:
    """Compile the second derivative of ``f`` by the five-point rule."""

    @jit
    def second(x):
        h = min(1e-2, 0.03 * x, 0.03 * (1.0 - x))
        inner = f(x + h) + f(x - h)
        outer = f(x + 2.0 * h) + f(x - 2.0 * h)
        return (16.0 * inner - outer - 30.0 * f(x)) / (12.0 * h * h)

    return second


# Line searches along a step, for any divergence, compiled for its scalar functions.
#
# ``scratch (4, l)`` holds for each neighbor the probability ``p`` now, its change ``b`` per unit of step, the
# observed share ``x`` and the weight ``w``; the derivative along the step is ``sum w b slope(x, p + eps b)``,
# ``-gap`` at 0.


@cache_maker
def newton_search(slope: Callable[..., Any], curvature: Callable[..., Any]) -> Callable[..., Any]:
    """Return the search for a double-convex divergence: Newton kept inside the paper's shrinking bracket.

    Lourenço et al. 2015 bisect; here a Newton iterate that leaves the bracket is replaced by its midpoint.
    """

    @jit
    def search(scratch, m, gap, longest):
        low, high = 0.0, longest
        slope_at_end = 0.0
        bend = 0.0
        for e in range(m):
            p, b, x, w = scratch[0, e], scratch[1, e], scratch[2, e], scratch[3, e]
            slope_at_end += w * b * slope(x, p + longest * b)
            bend += w * b * b * curvature(x, p)
        if slope_at_end <= 0.0:
            return longest
        length = gap / bend
        if not 0.0 < length < longest:
            length = longest * gap / (gap + slope_at_end)  # secant between the ends
        for _ in range(64):
            rise = 0.0
            bend = 0.0
            for e in range(m):
                p, b, x, w = scratch[0, e], scratch[1, e], scratch[2, e], scratch[3, e]
                p += length * b
                rise += w * b * slope(x, p)
                bend += w * b * b * curvature(x, p)
            if rise > 0.0:
                high = length
            else:
                low = length
            step = rise / bend
            # Newton converges quadratically: after so small a move the error is about its square. It is
            # relative to the distance to both ends of the step, where slopes may be infinite and Newton is
            # slow.
            if abs(step) <= 1e-4 * min(length, longest - length):
                return length - step
            length -= step
            if not low < length < high:
                length = 0.5 * (low + high)
        return length

    return search
