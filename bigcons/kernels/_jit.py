"""Numba's options for all kernels, and which of its private parts they use.

Kernels release the GIL, so plain threads run them in parallel, and never use numba's own parallel loops: the
code fixes the order of every sum, so the result depends on the input alone. Kernels are compiled at the first
call with given types, never at import. They copy arrays in loops: of ``a[:] = b`` numba compiles the text of
its error for half a second to three.

Four features rely on undocumented parts of numba, and each has a plain fallback. If a release of numba
changes one of these parts, one warning is logged and only speed suffers:

- `_cache` keeps compiled kernels on disk; otherwise every process compiles them. Numba's own cache misses
  changes in the kernels that a kernel calls, and processes race for its index.
- `_llvm` provides vectors of eight doubles; otherwise `_plain` uses tuples of eight floats.
- `_inlined` compiles leaves as far as the kernels need that call them, which are all there is to run.
- `_options` leaves out entries for calls from C, which nobody makes. `leaf` also leaves out those for calls
  from Python, which would take longer to compile than the few small loops it consists of, and reference
  counting, which takes two atomic instructions per array and call.

The environment variables ``BIGCONS_JIT_CACHE=0`` and ``BIGCONS_JIT_VECTORS=0`` disable the first two.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
from collections.abc import Callable
from functools import cache, wraps
from threading import Lock
from typing import Any

import numba
import numpy as np
from numba.core.options import DefaultOptions

logger = logging.getLogger("bigcons")

# Contraction and reassociation are allowed; NaN and infinity keep their meaning: kernels test for them.
_FASTMATH = {"contract", "reassoc", "nsz", "arcp"}
_OPTIONS = {"nogil": True, "error_model": "numpy", "fastmath": _FASTMATH, "forceinline": True}


def _private_parts() -> tuple[Any, Any, dict[str, Any], dict[str, Any]]:
    """Return `_cache` and `_llvm`, or None where unusable, and the options of all kernels and of leaves."""
    broken: list[str] = []

    def part(name: str, switch: str = "") -> Any:
        if numba.config.DISABLE_JIT or os.environ.get(switch) == "0":
            return None
        try:
            module = importlib.import_module(f"bigcons.kernels.{name}")
            found = module.broken_assumptions()
        except Exception as error:  # a release may remove or change anything
            found = [f"{name} cannot be imported ({type(error).__name__}: {error})"]
        broken.extend(found)
        return None if found else module

    def option(name: str, value: bool) -> dict[str, Any]:
        if hasattr(DefaultOptions, name):
            return {name: value}
        broken.append(f"numba's options have no {name}")
        return {}

    disk, llvm = part("_cache", "BIGCONS_JIT_CACHE"), part("_llvm", "BIGCONS_JIT_VECTORS")
    of_all = option("no_cfunc_wrapper", True)
    of_leaves = of_all | option("_nrt", False) | option("no_cpython_wrapper", True)
    if (inlined := part("_inlined")) is not None:
        of_leaves["pipeline_class"] = inlined.LeafCompiler
    if broken:
        logger.warning(
            "numba %s lacks internals that bigcons relies on for speed: %s; results agree up to rounding. "
            "Install a version of numba that this release of bigcons was tested with.",
            *(numba.__version__, "; ".join(broken)),
        )
    return disk, llvm, of_all, of_leaves


_DISK, LLVM, _OF_ALL, _OF_LEAVES = _private_parts()

# `empty(shape, dtype)` and `zeros(shape, dtype)` make arrays in kernels; `flat` is the view of a C-contiguous
# one by its single entries.
empty, zeros, flat = (np.empty, np.zeros, np.ravel) if LLVM is None else (LLVM.empty, LLVM.zeros, LLVM.flat)


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel: nopython, GIL released, errors as in numpy (1/0 is inf)."""
    return _compiled(function, _Kernel, _OF_ALL)


def leaf(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that only kernels call, without reference counts for its arrays.

    The caller holds the arrays. Rows and slices are views; methods such as ``ravel`` do not compile. Python
    runs it as it is written.
    """
    return _compiled(function, _Leaf, _OF_LEAVES)


_Dispatcher: Any = object if numba.config.DISABLE_JIT else type(numba.njit(lambda: None))


class _Kernel(_Dispatcher):
    """A kernel that Python calls."""

    def compile(self, sig: Any) -> Any:
        """Compile without a search for garbage, which takes a tenth of the time and finds next to none."""
        is_on = gc.isenabled()
        gc.disable()
        try:
            return super().compile(sig)
        finally:
            if _DISK is not None and isinstance(self._cache, _DISK.KernelCache):
                self._cache.end_turn(sig)
            if is_on:
                gc.enable()


class _Leaf(_Kernel):
    """A kernel without an entry for Python."""

    def __call__(self, *arguments: Any) -> Any:
        return self.py_func(*arguments)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Type a call, constants as any number of their type: numba would compile the leaf for each."""
        return super().get_call_template([numba.types.unliteral(given) for given in args], kws)


def made_once(make: Callable[..., Any]) -> Callable[..., Any]:
    """Cache a function that makes kernels, so that all threads get the same kernel for the same arguments.

    To numba, two kernels made from the same arguments are different types with the same name, and code
    compiled for one rejects the other.
    """
    made, lock = cache(make), Lock()

    @wraps(make)
    def only(*arguments: Any) -> Any:
        with lock:
            return made(*arguments)

    return only


def _compiled(function: Callable[..., Any], kind: type, options: dict[str, Any]) -> Callable[..., Any]:
    # Inline every callee: otherwise a call binds to whichever copy of the callee the process compiled first,
    # in another context, so the last bits could differ.
    kernel = numba.njit(**_OPTIONS, **options)(function)
    if not numba.config.DISABLE_JIT:
        kernel.__class__ = kind
    if _DISK is not None and kind is _Kernel:
        _DISK.keep_on_disk(kernel, variant="plain" if LLVM is None else "llvm")
    return kernel
