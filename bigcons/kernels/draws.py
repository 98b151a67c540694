"""Random draws inside kernels, from a state that is passed along: the same whatever thread makes them."""

from __future__ import annotations

import numpy as np

from bigcons.kernels._jit import jit

# numba turns a signed and an unsigned integer into a float, so all parts are unsigned.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_TO_UNIT = 2.0**-53


@jit
def uniform(random):
    """Return a number in [0, 1); ``random`` (1,) uint64 moves on (SplitMix64 of Steele, Lea, Flood 2014).

    numba's own generator is one for each thread, which no seed of ours would reach.
    """
    random[0] += _GOLDEN
    x = random[0]
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    return np.float64((x ^ (x >> np.uint64(31))) >> np.uint64(11)) * _TO_UNIT
