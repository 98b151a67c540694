"""Vectors of eight doubles for kernels, and two operations on bits: by LLVM, or by plain loops.

``zero8()`` is a vector of zeros; ``load8`` and ``store8`` move the eight consecutive entries of a flat
float64 array that begin at a uint64 offset, in entries, which is not checked: rows are padded to whole
vectors. ``add8(a, b)`` is ``a + b``, ``add_times8(a, b, factor)`` is ``a + b * factor`` for a number,
``add_products8(a, b, c)`` is ``a + b * c``, and ``sum8`` sums the entries, first the two halves, then theirs.
``power_of_two`` is 2 to the power of a whole float64 from -1022 to 1023, ``count_bits`` the number of bits
set in a uint64.

`_jit` decides which twin serves: the instructions of `_llvm`, or `_plain` where numba no longer allows them.
"""

from __future__ import annotations

from bigcons.kernels._jit import LLVM

if LLVM is not None:
    from bigcons.kernels._llvm import (
        add8,
        add_products8,
        add_times8,
        count_bits,
        load8,
        power_of_two,
        store8,
        sum8,
        zero8,
    )
else:
    from bigcons.kernels._plain import (
        add8,
        add_products8,
        add_times8,
        count_bits,
        load8,
        power_of_two,
        store8,
        sum8,
        zero8,
    )

WIDTH = 8

__all__ = [
    "WIDTH",
    "add8",
    "add_products8",
    "add_times8",
    "count_bits",
    "load8",
    "power_of_two",
    "store8",
    "sum8",
    "zero8",
]
