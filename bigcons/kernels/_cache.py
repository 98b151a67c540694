"""Cache of compiled kernels on disk, safe with concurrent processes.

With numba's own ``cache=True``, processes overwrite each other's index of files, so that one may load the
machine code of another signature; changes in the kernels that a kernel calls go unnoticed; and a kernel that
takes a function is never found again. Here every entry is one file, written under a temporary name, renamed,
and named by hashes of everything it depends on: processes share no index. An entry is read whole or not at
all. Processes that need the same entry at the same time wait while the first compiles it.

The folder is the user's, whichever copy of bigcons asks: ``NUMBA_CACHE_DIR/bigcons`` if that is set, else
``bigcons/kernels`` in the system's folder for caches (``~/.cache`` or ``XDG_CACHE_HOME`` on Linux).

Writing an entry removes entries of the same kernel, types, versions and processor that were compiled from
other sources and have not been used for a day. Removing one too early only costs a compilation.

An entry is machine code, which this process would run. It is loaded only if nobody but the user of this
process, the administrator or the owner of bigcons' own sources can have put it there: folder and entry must
belong to one of them and not be writable by others. From any other folder nothing is loaded, which is logged.

Undocumented behavior of numba that this module relies on:

- ``numba.core.caching.FunctionCache`` loads and saves through ``load_overload(sig, target_context)`` and
  ``_save_overload(sig, data)``, which are overridden here;
- compiled code needs nothing of a process but what importing numba registers and
  ``numba.core.runtime.rtsys.initialize(target_context)``: the declarations of all of NumPy, which numba reads
  first, take a quarter of a second and are for compiling, which reads them itself;
- its ``_impl`` turns a compiled function into something to pickle (``check_cachable``, ``reduce``) and back
  (``rebuild``), and ``numba.core.serialize.dumps`` pickles it;
- a dispatcher accepts a cache as ``_cache`` and an identity by ``_set_uuid``, and its type refers to it as
  ``dispatcher``;
- a code generator describes the processor by ``magic_tuple``.

If `broken_assumptions` finds any that no longer hold, every process compiles its kernels. An entry that
cannot be loaded or saved is compiled again, whatever the error.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import logging
import os
import pickle
import re
import stat
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba import types
from numba.core.caching import FunctionCache
from numba.core.codegen import CPUCodegen
from numba.core.dispatcher import Dispatcher
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

if sys.platform == "win32":
    fcntl: Any = None  # processes do not wait for each other
else:
    import fcntl

# Seconds for which a kernel is waited for that another process compiles, which takes a few; one that is
# suspended meanwhile may never come back.
_PATIENCE = 30.0

logger = logging.getLogger("bigcons")


class KernelCache(FunctionCache):
    """Numba's cache of one kernel, with our own files in a folder of the user."""

    def __init__(self, kernel: Any, variant: str) -> None:
        super().__init__(kernel.py_func)
        self._kernel_name = _stable_name(kernel)
        self._variant = variant
        self._serializer = self._impl
        self._turns: dict[Any, int | None] = {}

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled kernel, None if it has to be compiled; others wait until `end_turn`."""
        if not _takes_only_ours(sig):
            return None
        path = self._entry(sig, target_context.codegen())
        found = self._loaded(path, target_context)
        if found is None:
            self._turns[sig] = _wait_for_turn(path)
            found = self._loaded(path, target_context)  # if another process had the turn before
        return found

    def end_turn(self, sig: Any) -> None:
        """Let other processes compile what this one has compiled, or failed to compile."""
        if (turn := self._turns.pop(sig, None)) is not None:
            with contextlib.suppress(OSError):
                fcntl.lockf(_locks(), fcntl.LOCK_UN, 1, turn)

    def _loaded(self, path: Path, target_context: Any) -> Any:
        try:
            if not _is_safe(path.parent):
                return None
            with path.open("rb") as file:
                if _distrust(os.fstat(file.fileno())) is not None:
                    return None
                content = file.read()
        except OSError:
            return None
        with contextlib.suppress(OSError):  # a file of another user
            os.utime(path)  # mark it as used now
        digest, content = content[:32], content[32:]
        if _seal(path, content) != digest:
            return None
        try:
            rtsys.initialize(target_context)
            entry = pickle.loads(content)  # noqa: S301 - the user's own files, as checked above
            return self._serializer.rebuild(target_context, entry)
        except Exception:  # whatever cannot be read is compiled again
            return None

    def _save_overload(self, sig: Any, data: Any) -> None:
        try:
            if not _takes_only_ours(sig) or not self._serializer.check_cachable(data):
                return
            path = self._entry(sig, data.codegen)
            content = dumps(self._serializer.reduce(data))
            if not _make_safe(path.parent):
                return
            with tempfile.NamedTemporaryFile(
                dir=path.parent, prefix=f"{path.stem}-", suffix=".tmp", delete=False
            ) as file:
                file.write(_seal(path, content) + content)
            Path(file.name).replace(path)
            _remove_superseded(path)
        except OSError:  # a full or read-only disk only costs a compilation
            return
        except Exception as error:  # as does a numba that pickles differently
            _warn_once(f"{type(error).__name__}: {error}")

    def _entry(self, sig: Any, codegen: Any) -> Path:
        names = [self._kernel_name, *map(_stable_type, sig)]
        parts = [
            *names,
            self._variant,
            numba.__version__,
            str(sys.implementation.cache_tag),
            str(codegen.magic_tuple()),
        ]
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
        kernel = f"bigcons-{self._kernel_name.rpartition('.')[2][:40]}-{digest}"
        modules = frozenset(re.findall(r"bigcons\.kernels\.(\w+)\.", " ".join(names)))
        return _folder() / f"{kernel}-{_sources(modules)[:32]}.nbc"


@cache
def _folder() -> Path:
    """Return where the user's entries are, of every copy of bigcons: their names tell them apart."""
    if numba.config.CACHE_DIR:
        return Path(numba.config.CACHE_DIR) / "bigcons"
    if sys.platform == "win32":
        caches = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        caches = "~/Library/Caches"
    else:
        caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(caches).expanduser() / "bigcons" / "kernels"


def _seal(path: Path, content: bytes) -> bytes:
    """Return a hash of an entry and its name: under another name it is the code of another kernel."""
    return hashlib.sha256(path.name.encode() + content).digest()


def _wait_for_turn(path: Path) -> int | None:
    """Wait while another process compiles the entry at ``path``; return the byte that now is locked for it.

    None if there are no locks, or the wait was too long: then several may compile it. The system releases a
    lock when its process dies. A wait cannot be circular: numba compiles in one thread of a process, and a
    kernel never calls one that calls it.
    """
    byte = int.from_bytes(hashlib.sha256(path.name.encode()).digest()[:7])
    waited_until = time.monotonic() + _PATIENCE
    try:
        while fcntl is not None and _make_safe(path.parent):
            locks = _locks()
            try:
                fcntl.lockf(locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
                return byte
            except BlockingIOError:
                if time.monotonic() > waited_until:
                    return None
                time.sleep(0.02)
    except OSError:  # no folder, or one without locks
        pass
    return None


@cache
def _locks() -> int:
    """Return a descriptor of the file whose bytes are locked; closing it would unlock them all."""
    return os.open(_folder() / "locks", os.O_RDWR | os.O_CREAT, 0o600)


def _make_safe(folder: Path) -> bool:
    """Make the folder of entries unless it exists, and return whether entries in it may be loaded."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    return _is_safe(folder)


def _is_safe(folder: Path) -> bool:
    """Return whether entries in ``folder`` may be loaded; logs why not, once."""
    fault = _distrust(folder.stat())
    if fault is not None:
        _refuse_once(str(folder), fault)
    return fault is None


def _distrust(found: os.stat_result) -> str | None:
    """Return why others than this user may have written a file or folder, None if they cannot have."""
    if os.name != "posix":  # elsewhere, folders of a user are closed to others by default
        return None
    if found.st_uid not in (os.geteuid(), 0, Path(__file__).stat().st_uid):
        return f"it belongs to user {found.st_uid}"
    is_private_group = found.st_gid == found.st_uid  # as many systems give each user, with umask 002
    if found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and not is_private_group):
        return "other users may write to it"
    return None


@cache
def _refuse_once(folder: str, fault: str) -> None:
    logger.warning(
        "compiled kernels in %s are not loaded, because %s, and every process compiles them; "
        "run chmod go-w on it, or set NUMBA_CACHE_DIR to a folder of your own.",
        *(folder, fault),
    )


def _remove_superseded(path: Path) -> None:
    """Remove entries that differ only in their sources, and files left by killed processes."""
    kernel = path.stem.rpartition("-")[0]
    for other in path.parent.iterdir():
        if other == path or not other.name.startswith(f"{kernel}-"):
            continue
        with contextlib.suppress(OSError):  # removed by another process, or open on Windows
            if other.stat().st_mtime < time.time() - 24 * 3600:  # users switch versions
                other.unlink()


def broken_assumptions() -> list[str]:
    """Return the assumptions of this module that do not hold, one line each."""
    impl = FunctionCache._impl_class
    needed = [  # what is used, with its arguments if it is called or overridden
        (FunctionCache, "load_overload", ("sig", "target_context")),
        (FunctionCache, "_save_overload", ("sig", "data")),
        (impl, "check_cachable", ("compile_result",)),
        (impl, "reduce", ("compile_result",)),
        (impl, "rebuild", ("target_context", "reduced")),
        (Dispatcher, "_set_uuid", ("uuid",)),
        (type(rtsys), "initialize", ("ctx",)),
        (types.Dispatcher, "dispatcher", ()),
        (CPUCodegen, "magic_tuple", ()),
    ]
    broken = []
    for owner, name, arguments in needed:
        what = f"{owner.__name__}.{name}"
        if not hasattr(owner, name):
            broken.append(f"numba has no {what}")
        elif arguments and len(inspect.signature(getattr(owner, name)).parameters) != 1 + len(arguments):
            broken.append(f"numba's {what} does not take ({', '.join(arguments)})")
    return broken


def keep_on_disk(kernel: Any, variant: str) -> None:
    """Cache a kernel of this package, or a function made of such kernels, for later processes.

    ``variant`` names the vectors it is compiled with.
    """
    if not _is_ours(kernel):
        return
    try:
        kernel._set_uuid(_stable_name(kernel))  # the same type after reloading
        kernel._cache = KernelCache(kernel, variant)
    except RuntimeError:  # numba finds no directory that it may write to
        return
    except Exception as error:
        _warn_once(f"{type(error).__name__}: {error}")


@cache
def _warn_once(error: str) -> None:
    logger.warning(
        "numba %s does not keep compiled kernels on disk as expected (%s); every process compiles them.",
        *(numba.__version__, error),
    )


def _is_ours(kernel: Any) -> bool:
    """Return whether a function and everything it closes over belong to this package: a user's may change."""
    if not hasattr(kernel, "py_func") or not kernel.py_func.__module__.startswith("bigcons.kernels."):
        return False
    return all(_is_ours(part) for part in inspect.getclosurevars(kernel.py_func).nonlocals.values())


def _stable_name(kernel: Any) -> str:
    """Return a name that is the same in every process and distinguishes functions by what they close over."""
    function = kernel.py_func
    parts = [_stable_name(part) for part in inspect.getclosurevars(function).nonlocals.values()]
    return f"{function.__module__}.{function.__qualname__}" + (f"[{','.join(parts)}]" if parts else "")


def _takes_only_ours(sig: Any) -> bool:
    return all(_is_ours(argument.dispatcher) for argument in sig if isinstance(argument, types.Dispatcher))


def _stable_type(argument: Any) -> str:
    return _stable_name(argument.dispatcher) if isinstance(argument, types.Dispatcher) else str(argument)


@cache
def _sources(modules: frozenset[str]) -> str:
    """Return a hash of the sources of modules of kernels and of all that they import: it may be inlined."""
    sources: dict[str, bytes] = {}
    waiting = {"_jit", "_llvm", "_inlined", *modules}
    while waiting:
        module = waiting.pop()
        sources[module] = (Path(__file__).parent / f"{module}.py").read_bytes()
        imported = re.findall(rb"bigcons\.kernels\.(\w+)|bigcons\.kernels import (\w+)", sources[module])
        waiting |= {name.decode() for names in imported for name in names if name} - sources.keys()
    return hashlib.sha256(b"\n".join(sources[module] for module in sorted(sources))).hexdigest()
