"""Divergences between an observed share of agreement and a co-membership probability.

PCC minimizes ``sum N_ij d(c_ij / N_ij, y_i.y_j)`` for a Bregman divergence ``d`` that is also convex in its
second argument, "double-convex" (Lourenço et al. 2015). The paper uses two: squared Euclidean and
Kullback-Leibler.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from bigcons.errors import InvalidInputError

Scalar = Callable[[float], float]


Compiled = tuple[Callable[[float, float], float], ...]
"""The compiled value, slope and curvature of a divergence, as kernels take them."""


class Divergence:
    """A Bregman divergence with generator ``phi`` on [0, 1].

    The divergence of ``x`` and ``p`` compares the distributions ``(x, 1 - x)`` and ``(p, 1 - p)`` under
    the generator ``phi(x) + phi(1 - x)``. ``phi`` takes and returns a float and must be compilable by numba.
    Missing derivatives are computed numerically, to about six digits; without a second derivative the
    divergence is continued as a parabola within 1e-3 of 0 and 1, where differences fail.

    A generator that is not double-convex is refused by solvers, because line searches could stop anywhere.
    ``name`` appears in messages.

    >>> Divergence(lambda x: x * x, name="twice l2").is_double_convex
    True
    """

    def __init__(
        self,
        phi: Scalar,
        *,
        derivative: Scalar | None = None,
        second_derivative: Scalar | None = None,
        name: str = "custom",
    ) -> None:
        if not callable(phi):
            raise InvalidInputError(f"phi={phi!r} is not a function; pass a function of one float in [0, 1].")
        self.phi = phi
        self.derivative = derivative
        self.second_derivative = second_derivative
        self.name = name
        self._is_analytic = second_derivative is not None

    @cached_property
    def compiled(self) -> Compiled:
        """The scalar functions for kernels."""
        from bigcons.kernels.divergences import bregman_functions

        return bregman_functions(self.phi, self.derivative, self.second_derivative)

    @cached_property
    def nonconvexity(self) -> float | None:
        """The first point of a grid where the criterion of double convexity fails; None if there is none.

        ``d`` is convex in ``p`` for every ``x`` if and only if ``p F''(p)`` never decreases and
        ``(1 - p) F''(p)`` never increases. The grid is finer near 0 and 1. Numerical derivatives are too
        noisy to test closer than 1e-3.
        """
        edge = np.geomspace(1e-6 if self._is_analytic else 1e-3, 0.01, 200)
        p = np.unique(np.concatenate([edge, np.linspace(0.01, 0.99, 2001), 1 - edge]))
        _, slope, _ = self.compiled
        bend_times_p = np.array([slope(0.0, v) for v in p])  # (p - 0) F''(p)
        bend_times_q = np.array([-slope(1.0, v) for v in p])
        slack = 1e-12 if self._is_analytic else 1e-5
        fails = np.diff(bend_times_p) < -slack * np.abs(bend_times_p)[1:]
        fails |= np.diff(bend_times_q) > slack * np.abs(bend_times_q)[1:]
        fails |= ~(np.isfinite(bend_times_p) & np.isfinite(bend_times_q))[1:] | (bend_times_p[1:] < 0)
        return float(p[1:][fails][0]) if fails.any() else None

    @property
    def is_double_convex(self) -> bool:
        """Whether the divergence is convex in its second argument for every first one."""
        return self.nonconvexity is None

    def __repr__(self) -> str:
        return f"Divergence({self.name!r})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Divergence:
        return self  # immutable, and a cloned estimator keeps the compiled functions


class _Named(Divergence):
    """The divergence "l2" or "kl", double-convex, whose functions are kernels."""

    nonconvexity = None

    def __init__(self, name: str) -> None:
        self.name = name

    @cached_property
    def compiled(self) -> Compiled:
        from bigcons.kernels import divergences as kernels

        return tuple(getattr(kernels, f"{self.name}_{part}") for part in ("value", "slope", "curvature"))

    def __reduce__(self) -> tuple[Any, ...]:
        return _Named, (self.name,)  # every process has one copy of the compiled functions


def resolve_divergence(divergence: str | Divergence) -> Divergence:
    """Return the divergence that an argument names; raise InvalidInputError if solvers cannot use it.

    Names are "l2", ``(x - p)^2``, half the divergence of ``|x|^2``, and "kl", in nats, the maximum
    likelihood under binomial agreement, as in the paper.
    """
    if isinstance(divergence, str) and divergence in ("l2", "kl"):
        return _Named(divergence)
    if not isinstance(divergence, Divergence):
        raise InvalidInputError(f"divergence={divergence!r} is unknown; use 'l2', 'kl' or a Divergence.")
    if not divergence.is_double_convex:
        raise InvalidInputError(
            f"divergence {divergence.name!r} is not double-convex (the criterion fails at "
            f"p={divergence.nonconvexity:.3g}); use a double-convex one such as 'l2' or 'kl'."
        )
    if not all(np.isfinite(divergence.compiled[0](x, 0.5)) for x in (0.0, 1.0)):
        raise InvalidInputError(
            f"divergence {divergence.name!r} is not finite for shares of 0 or 1, which are common; "
            "give a phi that is finite on all of [0, 1] (0 log 0 is 0)."
        )
    return divergence
