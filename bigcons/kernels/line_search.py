"""Line searches along a step, for any divergence, compiled for its scalar functions.

``scratch (4, l)`` holds for each neighbor the probability ``p`` now, its change ``b`` per unit of step, the
observed share ``x`` and the weight ``w``; the derivative along the step is ``sum w b slope(x, p + eps b)``,
``-gap`` at 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigcons.kernels._jit import jit, made_once


@made_once
def newton_search(slope: Callable[..., Any], curvature: Callable[..., Any]) -> Callable[..., Any]:
    """Return the search for a double-convex divergence: Newton kept inside the paper's shrinking bracket.

    Lourenço et al. 2015 bisect; here a Newton iterate that leaves the bracket is replaced by its midpoint.
    """

    @jit
    def search(scratch, m, gap, longest, parameter):
        low, high = 0.0, longest
        slope_at_end = 0.0
        bend = 0.0
        for e in range(m):
            p, b, x, w = scratch[0, e], scratch[1, e], scratch[2, e], scratch[3, e]
            slope_at_end += w * b * slope(x, p + longest * b, parameter)
            bend += w * b * b * curvature(x, p, parameter)
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
                rise += w * b * slope(x, p, parameter)
                bend += w * b * b * curvature(x, p, parameter)
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


@made_once
def sampling_search(value: Callable[..., Any]) -> Callable[..., Any]:
    """Return the safeguarded search for a divergence that is not double-convex: sample, then golden section.

    Never raises the objective: returns the best of the samples, 0 included, and the refined point.
    """

    @jit
    def along(scratch, m, length, parameter):
        total = 0.0
        for e in range(m):
            total += scratch[3, e] * value(scratch[2, e], scratch[0, e] + length * scratch[1, e], parameter)
        return total

    @jit
    def search(scratch, m, _gap, longest, parameter):
        n_samples, golden = 16, (np.sqrt(5.0) - 1.0) / 2.0
        best = 0.0
        lowest = along(scratch, m, 0.0, parameter)
        for s in range(1, n_samples + 1):
            length = longest * s / n_samples
            f = along(scratch, m, length, parameter)
            if f < lowest:
                lowest = f
                best = length
        low = max(best - longest / n_samples, 0.0)
        high = min(best + longest / n_samples, longest)
        while high - low > 1e-6:
            a = high - golden * (high - low)
            b = low + golden * (high - low)
            if along(scratch, m, a, parameter) < along(scratch, m, b, parameter):
                high = b
            else:
                low = a
        middle = 0.5 * (low + high)
        if along(scratch, m, middle, parameter) < lowest:
            return middle
        return best

    return search
