"""Bregman divergences by definition, from a generator and its derivatives."""

import math


def xlogx(x):
    return x * math.log(x) if x > 0 else 0.0


# Each family: the generator and its first three derivatives.
def squared():
    """Half of |x|^2, so that the divergence is (x - p)^2."""
    return lambda x: x * x / 2, lambda x: x, lambda x: 1.0, lambda x: 0.0


def entropy():
    return xlogx, lambda x: math.log(x) + 1, lambda x: 1 / x, lambda x: -1 / x**2


def exponential(t):
    return tuple(lambda x, n=n: t**n * math.exp(t * x) for n in range(4))


def value(family, x, p):
    """Return the divergence of (x, 1 - x) and (p, 1 - p)."""
    phi, phi1, _, _ = family
    return sum(phi(u) - phi(v) - (u - v) * phi1(v) for u, v in ((x, p), (1 - x, 1 - p)))


def slope(family, x, p):
    """Return the derivative of the divergence with respect to p."""
    phi2 = family[2]
    return (p - x) * (phi2(p) + phi2(1 - p))


def curvature(family, x, p):
    """Return the second derivative of the divergence with respect to p."""
    _, _, phi2, phi3 = family
    return phi2(p) + phi2(1 - p) + (p - x) * (phi3(p) - phi3(1 - p))
