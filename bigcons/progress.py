"""How far the work is: the library reports to a listener, which draws a bar, or which tests supply."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import NamedTuple, TextIO


class Progress:
    """Listener of a task, called from one thread except for `note`; this one, the default, ignores it all."""

    def start(self, what: str, total: int, unit: str) -> None:
        """Begin a task of ``total`` units."""

    def advance(self, n: int) -> None:
        """Report that ``n`` more units are done."""

    def expect(self, total: int) -> None:
        """Correct the number of units by what the work so far shows."""

    def note(self, state: str) -> None:
        """Say what the task is at, such as "pass 3"; called from any thread."""

    def finish(self) -> None:
        """End the task."""


class Begun(NamedTuple):
    """A task that has begun and not ended."""

    what: str
    listener: Progress
    states: list[str]
    """What it was said to be at; the last one holds."""


_factory: ContextVar[Callable[[], Progress]] = ContextVar("bigcons_progress", default=Progress)

_current: ContextVar[Begun | None] = ContextVar("bigcons_task", default=None)

_begun: list[Begun] = []
"""The tasks of this process, for threads that do not know which is theirs."""


@contextmanager
def report_progress_to(factory: Callable[[], Progress]) -> Iterator[None]:
    """Report each task begun inside the ``with`` block to a new listener, ``factory()``."""
    token = _factory.set(factory)
    try:
        yield
    finally:
        _factory.reset(token)


@contextmanager
def progress(what: str, total: int, unit: str = "rows") -> Iterator[Progress]:
    """Begin a task and yield the listener to advance."""
    listener = _factory.get()()
    listener.start(what, total, unit)
    task = Begun(what, listener, [])
    _begun.append(task)
    token = _current.set(task)
    try:
        yield listener
    finally:
        _current.reset(token)
        _begun.remove(task)
        listener.finish()


def note(state: str) -> None:
    """Say what the innermost task of the caller, or else of this process, is at; `COMPILING` is of all."""
    for task in list(_begun) if state == COMPILING else _tasks():
        if state != COMPILING:
            task.states.append(state)
        task.listener.note(state)


def current_work() -> str:
    """Return what the innermost task of the caller, or else of this process, is, and is at."""
    return "".join(", ".join([task.what, *task.states[-1:]]) for task in _tasks())


def _tasks() -> list[Begun]:
    current = _current.get()
    return _begun[-1:] if current is None else [current]


class ProgressBar:
    """Shows how far the work inside its ``with`` block is, on one line.

    The line appears after a second. It tells the share that is done, the time left and, of solves, the pass
    and the gap; how many passes a solve still takes is estimated from how fast its gap shrinks. A solve is
    several tasks, such as starts, passes and confidence: each has a line and a time of its own.

    Parameters
    ----------
    file : text stream, default=None
        Where to draw; None is standard error.
    after : float, default=1.0
        Seconds of work before a bar appears.

    Examples
    --------
    >>> import bigcons as bc
    >>> with bc.ProgressBar():
    ...     model = bc.PCC(n_clusters=2, random_state=0).fit([[0, 1], [0, 1], [1, 0], [1, 0]])
    """

    def __init__(self, file: TextIO | None = None, *, after: float = 1.0) -> None:
        self.file = file
        self.after = after
        self._on_screen: _Bar | None = None
        self._is_compiling = False
        self._tokens: list[Token[Callable[[], Progress]]] = []

    def __enter__(self) -> ProgressBar:
        self._tokens.append(_factory.set(lambda: _Bar(self)))
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        _factory.reset(self._tokens.pop())


_REDRAW_SECONDS = 0.1
_BAR_WIDTH = 24


class _Bar(Progress):
    """The bar of one task, hidden at first and while another is on the screen."""

    def __init__(self, owner: ProgressBar) -> None:
        self._owner = owner
        owner._is_compiling = False
        self._drawing = threading.Lock()

    def start(self, what: str, total: int, unit: str) -> None:
        self._label = f"{what} ({total:,} {unit})" if total else what
        self._total, self._done, self._drawn = total, 0, 0
        self._state = ""
        self._timed_from: tuple[float, int] | None = None
        """When the first units were done, after any compilation, and how many these were."""
        self._show_at = time.monotonic() + self._owner.after
        self._next = self._show_at
        self._first = threading.Timer(max(self._owner.after, 0.0), self._draw)
        self._first.daemon = True
        self._first.start()

    def advance(self, n: int) -> None:
        self._done += n
        if self._timed_from is None or self._owner._is_compiling:
            self._timed_from = time.monotonic(), self._done
        self._owner._is_compiling = False
        if time.monotonic() >= self._next or self._done >= self._total:
            self._draw()

    def expect(self, total: int) -> None:
        self._total = total

    def note(self, state: str) -> None:
        if state == COMPILING:
            self._owner._is_compiling = True
        else:
            self._state = state
        self._draw()

    def finish(self) -> None:
        self._first.cancel()
        self._first.join()
        if self._owner._on_screen is self:
            self._owner._on_screen = None
            self._write("\n")

    def _draw(self) -> None:
        with self._drawing:
            now = time.monotonic()
            if self._owner._on_screen is None and now >= self._show_at:
                self._owner._on_screen = self
            if self._owner._on_screen is not self:
                return
            self._next = now + _REDRAW_SECONDS
            parts = [self._label, COMPILING if self._owner._is_compiling else self._state]
            if self._total:
                share = min(self._done / self._total, 1.0)
                bar = "#" * int(share * _BAR_WIDTH)
                parts[1:1] = [f"[{bar:-<{_BAR_WIDTH}}] {share:4.0%}", self._time_left(now)]
            line = "  ".join(part for part in parts if part)[: shutil.get_terminal_size().columns - 1]
            self._write(f"\r{line:{self._drawn}}")
            self._drawn = len(line)

    def _time_left(self, now: float) -> str:
        if self._timed_from is None or self._owner._is_compiling:
            return ""
        began, done = self._timed_from
        if self._done <= done or now - began < 1.0:
            return ""
        seconds = round((now - began) / (self._done - done) * max(self._total - self._done, 0))
        hours, rest = divmod(seconds, 3600)
        minutes = f"{rest // 60}:{rest % 60:02}"
        return f"{hours}:{minutes:0>5} left" if hours else f"{minutes} left"

    def _write(self, text: str) -> None:
        file = sys.stderr if self._owner.file is None else self._owner.file
        file.write(text)
        file.flush()


COMPILING = "compiling kernels, once on this machine"
