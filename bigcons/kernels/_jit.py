"""The one place that sets numba's options, and decides which of its private parts kernels rest on.

Kernels release the GIL, so that plain threads run them in parallel, and never use numba's own parallel
loops: the order of every sum is fixed by the code, hence the result by the input. Compilation is lazy (at
the first call with given types), never at import.

Three things rest on what numba does not document, each with a plain substitute. A release of numba that
changes one of them costs speed, which one warning says, and nothing else:

- `_cache` keeps compiled kernels on disk; otherwise every process compiles them anew. Numba's own cache does
  not serve: it misses changes in the kernels that a kernel calls, and processes race for its index.
- `_llvm` has vectors of eight doubles; otherwise `_plain` has tuples of eight floats.
- `leaf` switches reference counts off; otherwise they are counted.

``BIGCONS_JIT_CACHE=0`` and ``BIGCONS_JIT_VECTORS=0`` in the environment leave the first two out.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable
from functools import cache, wraps
from threading import Lock
from typing import Any

import numba
from numba.core.options import DefaultOptions

logger = logging.getLogger("bigcons")

# Contraction and reassociation are allowed; NaN and infinity keep their meaning, for kernels test for them.
_FASTMATH = {"contract", "reassoc", "nsz", "arcp"}


def _private_parts() -> tuple[Any, Any, dict[str, bool]]:
    """Return `_cache` and `_llvm`, None where they cannot be used, and the option for no reference counts."""
    broken: list[str] = []

    def part(name: str, switch: str) -> Any:
        if numba.config.DISABLE_JIT or os.environ.get(switch) == "0":
            return None
        try:
            module = importlib.import_module(f"bigcons.kernels.{name}")
            found = module.broken_assumptions()
        except Exception as error:  # a release may remove or change anything
            found = [f"{name} cannot be imported ({type(error).__name__}: {error})"]
        broken.extend(found)
        return None if found else module

    disk, llvm = part("_cache", "BIGCONS_JIT_CACHE"), part("_llvm", "BIGCONS_JIT_VECTORS")
    uncounted = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}
    if not uncounted:
        broken.append("numba's options have no _nrt")
    if broken:
        logger.warning(
            "numba %s is not what compiled kernels were written for: %s; results stay, speed suffers. "
            "Use a numba that bigcons was released with to have it back.",
            *(numba.__version__, "; ".join(broken)),
        )
    return disk, llvm, uncounted


_DISK, LLVM, _UNCOUNTED = _private_parts()


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel: nopython, GIL released, errors as in numpy (1/0 is inf)."""
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
    if _DISK is not None:
        _DISK.keep_on_disk(kernel, variant="plain" if LLVM is None else "llvm")
    return kernel
