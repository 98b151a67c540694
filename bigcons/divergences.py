"""Divergences between an observed share of agreement and a co-membership probability.

PCC minimizes ``sum N_ij d(c_ij / N_ij, y_i.y_j)`` for a Bregman divergence ``d`` that is also convex in its
second argument, "double-convex" (Lourenço et al. 2015). The paper uses two: squared Euclidean and
Kullback-Leibler.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from bigcons.errors import InvalidInputError

Scalar = Callable[[float], float]


Compiled = tuple[Callable[..., float], Callable[..., float], Callable[..., float], float]
"""The compiled value, slope and curvature of a divergence, and its parameter, as kernels take them."""


class Divergence:
    """A Bregman divergence with generator ``phi`` on [0, 1].

    The divergence of ``x`` and ``p`` is that of the distributions ``(x, 1 - x)`` and ``(p, 1 - p)`` under
    the generator ``phi(x) + phi(1 - x)``. ``phi`` takes and returns a float and must be compilable by numba.
    Missing derivatives are computed numerically, to about six digits; without a second derivative the
    divergence is continued as a parabola within 1e-3 of 0 and 1, where differences fail.

    A generator that is not double-convex is refused by solvers, because line searches could stop anywhere.
    ``name`` appears in messages. The divergences that `resolve_divergence` names are compiled before.

    >>> Divergence(lambda x: x * x, name="twice l2").is_double_convex
    True
    """

    label: str
    """The name with its parameter, as `resolve_divergence` accepts it."""

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
        self.name = self.label = name
        self.parameter: float = 0.0
        self._is_analytic = second_derivative is not None

    @cached_property
    def compiled(self) -> Compiled:
        """The scalar functions for kernels."""
        from bigcons.kernels.divergences import bregman_functions

        value, slope, curvature = bregman_functions(self.phi, self.derivative, self.second_derivative)
        return value, slope, curvature, 0.0

    @cached_property
    def nonconvexity(self) -> float | None:
        """The first point of a grid where the criterion of double convexity fails; None if there is none.

        ``d`` is convex in ``p`` for every ``x`` if and only if ``p F''(p)`` never decreases and
        ``(1 - p) F''(p)`` never increases. The grid is finer near 0 and 1. Numerical derivatives are too
        noisy to test closer than 1e-3.
        """
        edge = np.geomspace(1e-6 if self._is_analytic else 1e-3, 0.01, 200)
        p = np.unique(np.concatenate([edge, np.linspace(0.01, 0.99, 2001), 1 - edge]))
        _, slope, _, parameter = self.compiled
        bend_times_p = np.array([slope(0.0, v, parameter) for v in p])  # (p - 0) F''(p)
        bend_times_q = np.array([-slope(1.0, v, parameter) for v in p])
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
        return f"Divergence({self.label!r})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Divergence:
        return self  # immutable, and a cloned estimator keeps the compiled functions


class _Family(Divergence):
    """A divergence whose functions are kernels."""

    def __init__(self, name: str, parameter: float = 0.0) -> None:
        self.name, self.parameter = name, parameter
        self.label = f"{name}:{parameter:g}" if parameter else name
        self._is_analytic = True

    @cached_property
    def compiled(self) -> Compiled:
        from bigcons.kernels import divergences as family

        parts = (getattr(family, f"{self.name}_{part}") for part in ("value", "slope", "curvature"))
        return *parts, self.parameter

    @cached_property
    def nonconvexity(self) -> float | None:
        return None if self.name in ("l2", "kl") else super().nonconvexity

    def __reduce__(self) -> tuple[Any, ...]:
        return _Family, (self.name, self.parameter)  # every process has one copy of the compiled functions


def resolve_divergence(divergence: str | Divergence) -> Divergence:
    """Return the divergence that an argument names; raise InvalidInputError if solvers cannot use it.

    Names are "l2", ``(x - p)^2``, half the divergence of ``|x|^2``, and "kl", in nats, the maximum
    likelihood under binomial agreement, as in the paper; "power:1.5", with the generator ``sum x^1.5``,
    double-convex for exponents of 1 to 2 and 3 to 5; "exponential" and "exponential:2", with ``sum exp(2
    x)``, double-convex for rates up to about 2.
    """
    if isinstance(divergence, str):
        divergence = parse_divergence(divergence)
    if not isinstance(divergence, Divergence):
        raise InvalidInputError(
            f"divergence={divergence!r}; use 'l2', 'kl', 'power:1.5', 'exponential' or a Divergence."
        )
    if not divergence.is_double_convex:
        raise InvalidInputError(
            f"divergence {divergence.label!r} is not double-convex (the criterion fails at "
            f"p={divergence.nonconvexity:.3g}); use a double-convex one such as 'l2' or 'kl'."
        )
    value, _, _, parameter = divergence.compiled
    if not all(np.isfinite(value(x, 0.5, parameter)) for x in (0.0, 1.0)):
        raise InvalidInputError(
            f"divergence {divergence.label!r} is not finite for shares of 0 or 1, which are common; "
            "give a phi that is finite on all of [0, 1] (0 log 0 is 0)."
        )
    return divergence


def parse_divergence(text: str) -> Divergence:
    """Return the divergence with a name."""
    match = re.fullmatch(r"(l2|kl|power|exponential)(?::([+-]?\d+\.?\d*(?:[eE][+-]?\d+)?))?", text)
    name, number = match.groups() if match else (None, None)
    if name in ("l2", "kl") and number is None:
        return _Family(name)
    if name == "exponential" or (name == "power" and number is not None):
        parameter, least = float(number or 1.0), 1 if name == "power" else 0
        if not parameter > least:
            raise InvalidInputError(f"divergence={text!r} is refused; use {name}:p with p above {least}.")
        return _Family(name, parameter)
    raise InvalidInputError(
        f"divergence={text!r} is unknown; use 'l2', 'kl', 'power:1.5' or 'exponential:1'."
    )
