"""The one place that sets numba's options, and keeps compiled kernels on disk.

Kernels release the GIL, so that plain threads run them in parallel, and never use numba's own
parallel loops: the order of every sum is fixed by the code, hence the result by the input.
Compilation is lazy (at the first call with given types), never at import.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, wraps
from threading import Lock
from typing import Any

import numba
from numba.core.options import DefaultOptions

from bigcons.kernels._cache import keep_on_disk

# Contraction and reassociation are allowed; NaN and infinity keep their meaning, for kernels test for them.
_FASTMATH = {"contract", "reassoc", "nsz", "arcp"}

# Numba's switch for reference counts is not public: without it kernels are compiled with them, and slower.
_UNCOUNTED = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel: nopython, GIL released, errors as in numpy (1/0 is inf).

    With ``BIGCONS_JIT_CACHE=0`` in the environment nothing is kept on disk.
    """
    return _compiled(function)


def leaf(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel that allocates no memory, and do not count references to the arrays it works on.

    Its caller holds them. A count is two atomic instructions for each array and call, which is more than a
    kernel of a few small loops costs itself.
    """
    return _compiled(function, **_UNCOUNTED)


def made_once(make: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function that makes a kernel make it once for given arguments, whatever threads ask together.

    Two kernels made alike are two types to numba, and of one name: who takes either refuses the other.
    """
    made, lock = cache(make), Lock()

    @wraps(make)
    def only(*arguments: Any) -> Any:
        with lock:
            return made(*arguments)

    return only


def _compiled(function: Callable[..., Any], **options: bool) -> Callable[..., Any]:
    # Each kernel is whole, with what it calls inside: a call would be bound to whichever copy of the callee
    # the process met first, compiled among other neighbors, and so perhaps to other last bits.
    kernel = numba.njit(nogil=True, error_model="numpy", fastmath=_FASTMATH, forceinline=True, **options)(
        function
    )
    if os.environ.get("BIGCONS_JIT_CACHE") != "0" and not numba.config.DISABLE_JIT:
        keep_on_disk(kernel)
    return kernel
