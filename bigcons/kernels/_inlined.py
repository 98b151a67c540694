"""Leaves compiled only as far as the kernels need that have them inlined.

Numba optimizes every function and turns it into machine code before others may call it. Of a leaf neither is
ever run: kernels have its code within theirs, and optimize that. Without, a first fit compiles a fifth less.

Assumptions beyond numba's documented ``pipeline_class``:

- a compiler takes the contexts of types and of the target, then the library for its code;
- a library makes machine code in ``_finalize_final_module``, after ``_optimize_final_module``;
- its address is asked for by ``get_pointer_to_function``, and its ``codegen`` keeps an environment for it.

If `broken_assumptions` finds any that no longer hold, leaves are compiled as all functions are.
"""

from __future__ import annotations

import inspect
from types import SimpleNamespace

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class _Library(JITCodeLibrary):
    """The code of a leaf in LLVM's language, for others to link."""

    codegen = SimpleNamespace(set_env=lambda *_: None)  # what is not run needs none

    def _optimize_final_module(self):
        pass

    def _finalize_final_module(self):
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name):
        """Return that there is no such function."""
        self._ensure_finalized()
        return 0


class LeafCompiler(Compiler):
    """Numba's compiler, with the library of a leaf."""

    def __init__(self, typingctx, targetctx, library, *arguments):
        super().__init__(typingctx, targetctx, _Library(targetctx.codegen(), "leaf"), *arguments)


def broken_assumptions() -> list[str]:
    """Return the assumptions of this module that do not hold, one line each."""
    needed = (
        *("_optimize_final_module", "_finalize_final_module", "_finalize_dynamic_globals"),
        *("_ensure_finalized", "get_pointer_to_function", "codegen"),
    )
    broken = [f"numba's library has no {name}" for name in needed if not hasattr(JITCodeLibrary, name)]
    arguments = list(inspect.signature(Compiler.__init__).parameters)
    if arguments[:4] != ["self", "typingctx", "targetctx", "library"]:
        broken.append(f"numba's Compiler takes {', '.join(arguments)}")
    return broken
