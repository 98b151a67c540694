"""How kernels are compiled, and kept on disk.

Kernels release the GIL, so plain threads run them in parallel, and never use numba's own parallel loops: the
code fixes the order of every sum, so the result depends on the input alone. Kernels are compiled at the first
call with given types, never at import. They copy arrays in loops: of ``a[:] = b`` numba compiles the text of
its error for half a second to three.

Compiled kernels are kept where numba keeps those of ``cache=True``: in ``NUMBA_CACHE_DIR`` if that is set,
else beside the sources or, if these cannot be written, in the user's folder for caches. With numba's own
index of files, concurrent processes overwrite each other's entries, so that one may load the machine code of
other types; changes in the kernels that a kernel calls go unnoticed; and a kernel that takes or closes over a
function is never found again. So each entry is one file here, named by what it is of, renamed when it is
complete, and sealed with the sources.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
import pickle
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import cache, wraps
from pathlib import Path
from threading import Lock
from typing import Any

import numba
from numba import types
from numba.core.caching import FunctionCache
from numba.core.serialize import dumps

from bigcons.disk.files import open_file
from bigcons.disk.places import atomic_file
from bigcons.errors import ExecutionError, StoreError

if numba.config.DISABLE_JIT:
    raise ExecutionError("kernels are compiled, and NUMBA_DISABLE_JIT forbids that; unset it.")
logger = logging.getLogger("bigcons")

# Contraction and reassociation are allowed; NaN and infinity keep their meaning: kernels test for them.
_FASTMATH = {"contract", "reassoc", "nsz", "arcp"}

# Every callee is inlined: otherwise a call binds to whichever copy of the callee the process compiled first,
# in another context, so the last bits could differ. Nobody calls kernels from C.
_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": _FASTMATH,
    "forceinline": True,
    "no_cfunc_wrapper": True,
}


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel: nopython, GIL released, errors as in numpy (1/0 is inf); kept on disk."""
    kernel = numba.njit(**_OPTIONS)(function)
    if (name := _stable_name(kernel)) is not None:
        kernel._set_uuid(name)  # the same type in every process
        with suppress(RuntimeError):  # there is no folder to write to: every process compiles
            kernel._cache = _Cache(function, name)
    return kernel


def leaf(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that only kernels call, without reference counts for its arrays.

    These would be two atomic instructions per array and call; the caller holds the arrays. Rows and slices
    are views; methods such as ``ravel`` do not compile. Python runs it as it is written.
    """
    kernel = numba.njit(**_OPTIONS, _nrt=False, no_cpython_wrapper=True)(function)
    kernel.__class__ = _Leaf
    return kernel


class _Leaf(type(numba.njit(lambda: None))):  # type: ignore[misc]
    """A kernel without an entry for Python."""

    def __call__(self, *arguments: Any) -> Any:
        return self.py_func(*arguments)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Type a call, constants as any number of their type: numba would compile the leaf for each."""
        return super().get_call_template([types.unliteral(argument) for argument in args], kws)


def cache_maker(make: Callable[..., Any]) -> Callable[..., Any]:
    """Cache a function that makes kernels, so that all threads get the same kernel for the same arguments.

    To numba, two kernels made from the same arguments are different types with the same name, and code
    compiled for one rejects the other.
    """
    cached, lock = cache(make), Lock()

    @wraps(make)
    def make_kernel(*arguments: Any) -> Any:
        with lock:
            return cached(*arguments)

    return make_kernel


class _Cache(FunctionCache):
    """Numba's cache of a kernel, with files of its own."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        super().__init__(function)
        self._kernel_name = name
        self._cache_file = _Entries(Path(self._cache_path), self._impl.filename_base)

    def _index_key(self, sig: Any, codegen: Any) -> str | None:
        """Return what an entry is of: kernel, types, versions and processor; None if it takes a function of a
        user, which may change.
        """
        parts = [self._kernel_name, numba.__version__, str(codegen.magic_tuple())]
        for argument in sig:
            is_function = isinstance(argument, types.Dispatcher)
            part = _stable_name(argument.dispatcher) if is_function else str(argument)
            if part is None:
                return None
            parts.append(part)
        return "\n".join(parts)


class _Entries:
    """The files of a kernel; one that is damaged, or cannot be written, only costs a compilation."""

    def __init__(self, folder: Path, base: str) -> None:
        self._folder, self._base = folder, base

    def load(self, key: str | None) -> Any:
        """Return the entry of a key, None if there is none that is whole."""
        try:
            if key is None or not _is_safe(self._folder):
                return None
            with open_file(self._path(key), 1 << 28) as file:
                content = file.read()
        except (OSError, StoreError):
            return None
        return pickle.loads(content[32:]) if _seal(key, content[32:]) == content[:32] else None  # noqa: S301

    def save(self, key: str | None, data: Any) -> None:
        """Write the entry of a key."""
        if key is None:
            return
        content = dumps(data)
        with suppress(OSError), atomic_file(self._path(key), durable=False) as file:
            file.write(_seal(key, content) + content)

    def _path(self, key: str) -> Path:
        return self._folder / f"{self._base}-{hashlib.sha256(key.encode()).hexdigest()[:32]}.nbc"


@cache
def _is_safe(folder: Path) -> bool:
    """Return whether nobody but this user, the administrator or the owner of the sources may have written
    what is in a folder, which is machine code that this process would run; log if not.
    """
    status = folder.stat()
    owners = (os.geteuid(), 0, Path(__file__).stat().st_uid) if os.name == "posix" else (status.st_uid,)
    if status.st_uid in owners and not (os.name == "posix" and status.st_mode & stat.S_IWOTH):
        return True
    logger.warning(
        "compiled kernels in %s are not loaded, because other users may write to it, and every process "
        "compiles them; set NUMBA_CACHE_DIR to a folder of your own.",
        folder,
    )
    return False


def _seal(key: str, content: bytes) -> bytes:
    """Return a hash of an entry, its key and the sources, of which it has to be."""
    return hashlib.sha256(_sources() + key.encode() + content).digest()


def _stable_name(kernel: Any) -> str | None:
    """Return a name that is the same in every process and tells kernels apart by what they close over.

    None for a function of a user, and what closes over one.
    """
    function = getattr(kernel, "py_func", None)
    if function is None or not function.__module__.startswith("bigcons.kernels."):
        return None
    parts = [_stable_name(part) for part in inspect.getclosurevars(function).nonlocals.values()]
    if None in parts:
        return None
    return f"{function.__module__}.{function.__qualname__}[{','.join(map(str, parts))}]"


@cache
def _sources() -> bytes:
    """Return a hash of the sources of all kernels, which have each other inlined."""
    sources = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
    return hashlib.sha256(b"\n".join(sources)).digest()
