"""Vectors of eight doubles for kernels, and two operations on bits: by LLVM, or by plain loops.

``zero8()`` is a vector of zeros and ``fill8(number)`` one of a number; ``load8`` and ``store8`` move the
eight consecutive entries of a flat float64 array that begin at a uint64 offset, in entries, which is not
checked: rows are padded to whole vectors. ``add8(a, b)`` is ``a + b``, ``add_times8(a, b, factor)`` is
``a + b * factor`` for a number, ``add_products8(a, b, c)`` is ``a + b * c``, and ``sum8`` adds the two
halves, then theirs, down to a number. ``choose8(a, b, c, d)`` is ``c`` where ``a`` is greater than ``b``,
else ``d``.
``power_of_two`` is 2 to the power of a whole float64 from -1022 to 1023; ``count_bits`` is the number of bits
set in a uint64.

`_jit` chooses the implementation: the instructions of `_llvm`, or `_plain` where numba does not support them.
"""

from __future__ import annotations

from bigcons.kernels._jit import LLVM

if LLVM is not None:
    from bigcons.kernels import _llvm as _functions
else:
    from bigcons.kernels import _plain as _functions  # type: ignore[no-redef]

WIDTH = 8

zero8, load8, store8, sum8 = _functions.zero8, _functions.load8, _functions.store8, _functions.sum8
add8, add_times8, add_products8 = _functions.add8, _functions.add_times8, _functions.add_products8
fill8, choose8 = _functions.fill8, _functions.choose8
power_of_two, count_bits = _functions.power_of_two, _functions.count_bits
