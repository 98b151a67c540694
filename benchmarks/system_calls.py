"""Every call by which a commit changes a disk fails once: is the state after it the old or the new one?

In the style of SQLite, an append, a commit that replaces a store, and a solve with passes are run as often as
they make calls (open, write, flush, rename, link, make or remove), and the n-th call of the n-th run

- fails, as on a full disk (ENOSPC) or on one that breaks (EIO): the work ends well or in one line of bigcons,
- is the last before a power cut: all later calls fail, so that nothing is tidied up, and files that were not
  flushed lose their second half.

What is then there must be the old state or the new one, whole, and repeating the work must give the new one.
Interrupted calls (EINTR) are repeated by Python itself. A part of ``faults.py``.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from bigcons import PCC, Consensus, Ensemble
from bigcons.disk import commit
from bigcons.errors import BigconsError, CorruptStoreError

LABELS = np.arange(60).reshape(20, 3) % 4
FAULTS = {"full": errno.ENOSPC, "broken": errno.EIO, "power cut": None}
CALLS = ("open", "fsync", "replace", "rename", "link", "mkdir", "unlink", "rmdir", "truncate")


class Calls:
    """Counts the calls that change what is below a folder, in the ``with`` block; the ``at``-th fails."""

    def __init__(self, folder: Path, at: int = 0, code: int | None = errno.ENOSPC) -> None:
        self.folder, self.at, self.code = folder, at, code
        self.n = 0
        self.lost: list[Path] = []
        """What was not flushed when the power was cut."""
        self._lock = threading.Lock()
        self._flushed = {path.stat().st_ino: _state(path) for path in _files(folder)}

    def tick(self, path: object) -> None:
        """Count a call on a path or descriptor, and fail if it is its turn."""
        if isinstance(path, int):
            path = Path(f"/proc/self/fd/{path}").readlink()
        if not str(os.fspath(path) if isinstance(path, os.PathLike) else path).startswith(str(self.folder)):
            return
        with self._lock:
            self.n += 1
            if self.n == self.at and self.code is None:
                self.lost = [
                    f for f in _files(self.folder) if self._flushed.get(f.stat().st_ino) != _state(f)
                ]
            if self.n == self.at or (self.code is None and 0 < self.at < self.n):
                raise OSError(self.code or errno.EIO, os.strerror(self.code or errno.EIO), str(path))

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count, and fail, in the ``with`` block."""
        with ExitStack() as patches:
            for name in CALLS:
                patches.enter_context(patch.object(os, name, self._counting(getattr(os, name), name)))
            patches.enter_context(patch.object(io, "open", self._opening(io.open)))
            patches.enter_context(
                patch.object(commit, "_exchange", self._counting(commit._exchange, "rename"))
            )
            yield

    def _counting(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def counting(path: Any, *args: Any, **options: Any) -> Any:
            if name == "open" and not args[0] & (os.O_WRONLY | os.O_RDWR):
                return call(path, *args, **options)
            within = options.get("dir_fd")
            where = path if within is None else Path(f"/proc/self/fd/{within}").readlink() / path
            self.tick(where)
            result = call(path, *args, **options)
            if name == "fsync" and (file := Path(f"/proc/self/fd/{path}").resolve()).is_file():
                self._flushed[os.fstat(path).st_ino] = _state(file)
            return result

        return counting

    def _opening(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def opening(path: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
            if isinstance(path, int) or not set(mode) & set("wxa") or "b" not in mode:
                return call(path, mode, *args, **options)
            self.tick(path)
            return io.BufferedWriter(_Raw(self, path, mode.replace("b", "")))

        return opening


class _Raw(io.FileIO):
    """A file whose writes are counted."""

    def __init__(self, calls: Calls, path: Any, mode: str) -> None:
        super().__init__(os.fspath(path), mode)
        self._calls, self._path = calls, path

    def write(self, content: Any) -> int:
        """Write, if it is not the turn of this call to fail."""
        self._calls.tick(self._path)
        return super().write(content)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]


def _state(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


class Work(NamedTuple):
    """What is done, of which the state is asked afterwards."""

    prepare: Callable[[Path], Any]
    do: Callable[[Path], Any]
    state: Callable[[Path], bytes]
    """The content of what is there, checked as a whole."""


def _labels(folder: Path) -> bytes:
    ensemble = Ensemble.open(folder / "x")
    assert ensemble.verify()["ok"]
    return ensemble.read(0, ensemble.n_objects).tobytes()


def _solution(folder: Path) -> bytes:
    if not (folder / "x").exists():
        return b""
    consensus = Consensus.open(folder / "x")
    consensus.verify()
    return np.asarray(consensus.labels).tobytes()


def _store(folder: Path, labels: np.ndarray, *, overwrite: bool = False) -> None:
    """Store labels as a consensus."""
    facts: dict[str, Any] = {"n_objects": len(labels), "n_clusters": int(labels.max()) + 1}
    with Consensus.create(folder / "x", **facts, memberships=False, overwrite=overwrite) as writer:
        writer.write(0, labels.astype(np.int32))


WORK = {
    "append": Work(
        lambda f: Ensemble.from_labels(LABELS).save(f / "x", chunk_rows=8),
        lambda f: Ensemble.open(f / "x", "a").append_objects(LABELS[:9]),
        _labels,
    ),
    "commit": Work(
        lambda f: _store(f, LABELS[:, 0]),
        lambda f: _store(f, LABELS[:, 1], overwrite=True),
        _solution,
    ),
    "passes": Work(
        lambda f: Ensemble.from_labels(LABELS).save(f / "e", chunk_rows=8),
        lambda f: _solve(f),
        _solution,
    ),
}


def _solve(folder: Path) -> None:
    """Solve, or resume; start over if that is what a power cut leaves: blocks of passes are not flushed."""
    model = PCC(3, n_init=1, max_iter=2, tol=0, random_state=0, client="serial")
    try:
        model.fit(folder / "e", out=folder / "x")
    except CorruptStoreError as error:
        if "start over with overwrite=True" not in str(error):
            raise
        model.fit(folder / "e", out=folder / "x", overwrite=True)


def fail_every_call(folder: Path, name: str, fault: str, every: int = 1) -> tuple[Counter[str], list[str]]:
    """Have each ``every``-th call fail in a run of its own; return counts of outcomes, and what is wrong."""
    work, outcomes, wrong = WORK[name], Counter[str](), list[str]()

    def fresh() -> Path:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        work.prepare(folder)
        return folder

    old = work.state(fresh())
    calls = Calls(folder)
    with calls.counted():
        work.do(folder)
    new = work.state(folder)
    for at in range(1, calls.n + 1, every):
        failing = Calls(fresh(), at, FAULTS[fault])
        error: BaseException | None = None
        with failing.counted():
            try:
                work.do(folder)
            except Exception as raised:
                error = raised
        for path in failing.lost:
            with suppress(FileNotFoundError):
                os.truncate(path, path.stat().st_size // 2)
        case = f"{name}, {fault}, call {at}"
        is_told = isinstance(error, BigconsError) and "\n" not in str(error)
        if fault != "power cut" and not (error is None or is_told):
            wrong.append(f"{case}: untyped: {error!r}")
        try:
            state = work.state(folder)
            if state == old != new:
                work.do(folder)
        except Exception as raised:
            wrong.append(f"{case}: then {raised!r}")
            continue
        outcomes["old" if state == old else "new" if state == new else "other"] += 1
        if state not in (old, new) or work.state(folder) != new:
            wrong.append(f"{case}: neither the old nor the new state")
    return outcomes, wrong
