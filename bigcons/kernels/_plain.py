"""Plain versions of the functions of `_llvm`: a vector is a tuple of eight floats.

Slower, and sums may differ in the last bits because the compiler is free to rearrange them.
"""

from __future__ import annotations

import math

import numpy as np

from bigcons.kernels._jit import leaf


@leaf
def zero8():
    """See `_vector`."""
    return (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@leaf
def load8(array, offset):
    """See `_vector`."""
    p = np.int64(offset)
    return (array[p], array[p + 1], array[p + 2], array[p + 3],
            array[p + 4], array[p + 5], array[p + 6], array[p + 7])  # fmt: skip


@leaf
def store8(array, offset, vector):
    """See `_vector`."""
    p = np.int64(offset)
    for lane in range(8):
        array[p + lane] = vector[lane]


@leaf
def fill8(number):
    """See `_vector`."""
    return (number, number, number, number, number, number, number, number)


@leaf
def choose8(a, b, c, d):
    """See `_vector`."""
    return (c[0] if a[0] > b[0] else d[0], c[1] if a[1] > b[1] else d[1],
            c[2] if a[2] > b[2] else d[2], c[3] if a[3] > b[3] else d[3],
            c[4] if a[4] > b[4] else d[4], c[5] if a[5] > b[5] else d[5],
            c[6] if a[6] > b[6] else d[6], c[7] if a[7] > b[7] else d[7])  # fmt: skip


@leaf
def add8(a, b):
    """See `_vector`."""
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3],
            a[4] + b[4], a[5] + b[5], a[6] + b[6], a[7] + b[7])  # fmt: skip


@leaf
def add_products8(a, b, c):
    """See `_vector`."""
    return (a[0] + b[0] * c[0], a[1] + b[1] * c[1], a[2] + b[2] * c[2], a[3] + b[3] * c[3],
            a[4] + b[4] * c[4], a[5] + b[5] * c[5], a[6] + b[6] * c[6], a[7] + b[7] * c[7])  # fmt: skip


@leaf
def add_times8(a, b, factor):
    """See `_vector`."""
    return add_products8(a, b, (factor, factor, factor, factor, factor, factor, factor, factor))


@leaf
def sum8(a):
    """See `_vector`."""
    return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]))


@leaf
def power_of_two(exponent):
    """See `_vector`."""
    return math.ldexp(1.0, int(exponent))


@leaf
def count_bits(word):
    """See `_vector`."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    pairs = np.uint64(0x3333333333333333)
    word = (word & pairs) + ((word >> np.uint64(2)) & pairs)
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (word * np.uint64(0x0101010101010101)) >> np.uint64(56)
