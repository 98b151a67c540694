"""How far the work is: the library reports to a listener, which draws a bar, or which tests supply.

A task is one loop, such as a read of all blocks. A job is all that a call does: many tasks, of which it
states those that take long beforehand, as its steps, so that the time left is that of the whole call.
"""

from __future__ import annotations

import logging
import math
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from types import TracebackType
from typing import TextIO


class Progress:
    """Listener of a task, called from one thread except for `note`; this one ignores it all."""

    def start(self, what: str, total: int, unit: str) -> None:
        """Begin a task of ``total`` units."""

    def advance(self, n: int) -> None:
        """Report that ``n`` more units are done."""

    def expect(self, total: int | None) -> None:
        """Correct the number of units by what the work so far shows; None where it cannot be told."""

    def note(self, state: str) -> None:
        """Say what the task is at, such as "pass 3"; called from any thread."""

    def finish(self) -> None:
        """End the task."""


# Jobs, and how long they still take


@dataclass
class Step:
    """A step of a job: the tasks of one name."""

    units: float | None
    """Expected in all; None where it cannot be told."""
    cost: float = 1.0
    """Cost of a unit relative to those of the other steps, until some have been timed."""
    done: float = 0.0
    is_over: bool = False
    timed: float = 0.0
    """Units that were timed; earlier ones count less, as the load of a machine changes."""
    seconds: float = 0.0
    """What these took."""


@dataclass
class Job:
    """The time left of a call: its steps in their order, and what they have taken so far.

    Steps that have been timed go on at their speed. The others take what they cost relative to these.
    """

    what: str
    began: float
    is_inner: bool = False
    """Whether it is part of another job, of which it cannot tell the time left."""
    steps: dict[str, Step] = field(default_factory=dict)

    def seconds_left(self) -> float | None:
        """Return how long the steps that are left take; None where too little is known."""
        steps = self.steps.values()
        done = sum(step.cost * step.done for step in steps if step.timed)
        if self.is_inner or not done:
            return None
        speed = sum(step.seconds for step in steps) / sum(step.cost * step.timed for step in steps)
        total, ahead = 0.0, 0.0
        for step in steps:
            if step.is_over:
                continue
            if step.units is None:
                return None
            left = max(step.units - step.done, 0.0)
            # the stated cost counts as much as 5 % of the step, beside the time that its units took
            prior = 0.05 * max(step.units, 1.0)
            total += left * (step.seconds + prior * step.cost * speed) / (step.timed + prior)
            ahead += 0.0 if step.timed else step.cost * left
        return total if done >= 0.1 * (done + ahead) else None


_job: ContextVar[Job | None] = ContextVar("bigcons_job", default=None)


@contextmanager
def job(what: str) -> Iterator[None]:
    """Take the tasks of the ``with`` block for one job, unless they are part of another already."""
    outer = _job.get()
    own = Job(what, time.monotonic()) if outer is None else Job(outer.what, outer.began, is_inner=True)
    token = _job.set(own)
    try:
        yield
    finally:
        _job.reset(token)


def expect_steps(steps: Mapping[str, tuple[float | None, float]]) -> None:
    """State the steps of the caller's job in order: by name of the task, its units, and the cost of one."""
    if (own := _job.get()) is not None:
        own.steps = {name: Step(*step) for name, step in steps.items()}


def time_left() -> str:
    """Return how long the caller's job still takes, such as "0:41"; empty where that is not known."""
    own = _job.get()
    left = None if own is None else own.seconds_left()
    return "" if left is None else _clock(left)


def _clock(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    minutes = f"{rest // 60}:{rest % 60:02}"
    return f"{hours}:{minutes:0>5}" if hours else minutes


# Tasks


@dataclass(eq=False)
class Task:
    """A task that has begun and not ended: it is told how far it is, and tells its job and its listener."""

    what: str
    job: Job
    """Which it is a step of, or its own."""
    listener: Progress | None
    step: Step
    """Of the job; one of its own where the job does not state it."""
    before: float
    """Units of the step when the task began."""
    since: float
    """When the last units were done."""
    n_compiled: int
    """Kernels that had been compiled by then."""
    states: list[str] = field(default_factory=list)
    """What it was said to be at; the last one holds."""

    def advance(self, n: int) -> None:
        """Report that ``n`` more units are done; not timed if kernels were compiled meanwhile."""
        now, step = time.monotonic(), self.step
        seconds, is_timed = now - self.since, self.n_compiled == _n_compiled
        self.since, self.n_compiled = now, _n_compiled
        step.done += n
        if is_timed and n > 0:
            # after 15 % of the step, what it took before counts e times less
            fade = math.exp(-n / (0.15 * max(step.units or 0.0, step.done)))
            step.timed, step.seconds = step.timed * fade + n, step.seconds * fade + seconds
        if self.listener is not None:
            self.listener.advance(n)

    def expect(self, total: int | None, state: str) -> None:
        """Correct the number of units, None where it cannot be told, and say what the task is at."""
        self.step.units = None if total is None else self.before + total
        self.states.append(state)
        if self.listener is not None:
            self.listener.expect(total)
            self.listener.note(state)


_factory: ContextVar[Callable[[], Progress] | None] = ContextVar("bigcons_progress", default=None)

_current: ContextVar[Task | None] = ContextVar("bigcons_task", default=None)

_begun: list[Task] = []
"""The tasks of this process, for threads that do not know which is theirs."""

_n_compiled = 0
"""Kernels that this process has compiled."""


@contextmanager
def report_progress_to(factory: Callable[[], Progress]) -> Iterator[None]:
    """Report each task begun inside the ``with`` block to a new listener, ``factory()``."""
    token = _factory.set(factory)
    try:
        yield
    finally:
        _factory.reset(token)


@contextmanager
def progress(what: str, total: int, unit: str = "rows") -> Iterator[Task]:
    """Begin a task of ``total`` units, 0 if their number is not known, and yield it, to be advanced.

    It ends the steps of the job before it.
    """
    now, own, factory = time.monotonic(), _job.get(), _factory.get()
    if own is None or not (own.steps or own.is_inner):
        own = Job(what, now, steps={what: Step(None)})
    step = own.steps.get(what, Step(None))
    for earlier in own.steps.values() if what in own.steps else ():
        earlier.is_over = earlier is not step
        if earlier is step:
            break
    if total:
        step.units = step.done + total
    task = Task(what, own, None if factory is None else factory(), step, step.done, now, _n_compiled)
    _begun.append(task)
    token = _current.set(task)
    try:
        if task.listener is not None:
            task.listener.start(what, total, unit)
        yield task
    finally:
        _current.reset(token)
        _begun.remove(task)
        step.is_over = True
        if task.listener is not None:
            task.listener.finish()


def note_compiling() -> None:
    """Say to all tasks that a kernel is compiled: the thread that does it may not know which is its own."""
    global _n_compiled
    _n_compiled += 1
    for task in list(_begun):
        if task.listener is not None:
            task.listener.note(COMPILING)


def current_work() -> str:
    """Return what the innermost task of the caller, or else of this process, is, and is at."""
    current = _current.get()
    tasks = _begun[-1:] if current is None else [current]
    return "".join(", ".join([task.what, *task.states[-1:]]) for task in tasks)


# On the screen


class ProgressBar:
    """Shows how far the work inside its ``with`` block is, on one line.

    The line appears after a second. It tells the share that is done and the time left of the whole call, such
    as a fit, and the current step: of solves the pass, of about how many, and the gap. The time left follows
    from how long the steps took so far and from how fast the solve converges. It is a dash where too little
    is known, and that of the current step for methods that cannot state their steps beforehand.

    Parameters
    ----------
    file : text stream, default=None
        Where to draw; None is standard error.
    after : float, default=1.0
        Seconds of work before the line appears.

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
        self._tokens: list[Token[Callable[[], Progress] | None]] = []

    def __enter__(self) -> ProgressBar:
        self._tokens.append(_factory.set(lambda: _Bar(self)))
        logging.getLogger("bigcons").addFilter(self._make_room)
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        logging.getLogger("bigcons").removeFilter(self._make_room)
        _factory.reset(self._tokens.pop())

    def _make_room(self, _: logging.LogRecord) -> bool:
        """Clear the line for what is logged; it is drawn again later."""
        if (bar := self._on_screen) is not None:
            bar.clear()
        return True


class _Bar(Progress):
    """The line of one task, hidden at first and while that of another is on the screen."""

    def __init__(self, owner: ProgressBar) -> None:
        self._owner, self._drawing = owner, threading.Lock()
        owner._is_compiling = False

    def start(self, what: str, total: int, unit: str) -> None:
        self._what, self._total, self._done, self._drawn = what, total, 0, 0
        self._label, self._state = f"{what} ({total:,} {unit})" if total else what, ""
        current, self._whole, now = _current.get(), _job.get(), time.monotonic()
        self._job = Job(what, now) if current is None else current.job
        began = now if self._whole is None else self._whole.began
        self._show_at = self._next = began + self._owner.after
        self._first = threading.Timer(max(self._show_at - now, 0.0), self._draw)
        self._first.daemon = True
        self._first.start()

    def advance(self, n: int) -> None:
        self._done += n
        self._owner._is_compiling = False
        if time.monotonic() >= self._next or self._done >= self._total:
            self._draw()

    def expect(self, total: int | None) -> None:
        self._total = total or 0

    def note(self, state: str) -> None:
        if state == COMPILING:
            self._owner._is_compiling = True
        else:
            self._state = state
        self._draw()

    def finish(self) -> None:
        """End the line; a step of a job makes room for the next, or for whatever is printed meanwhile."""
        self._first.cancel()
        self._first.join()
        if self._owner._on_screen is self:
            self._owner._on_screen = None
            if self._whole is None:
                self._write("\n")
            else:
                self.clear()

    def clear(self) -> None:
        with self._drawing:
            self._write(f"\r{'':{self._drawn}}\r")
            self._drawn = 0

    def _draw(self) -> None:
        with self._drawing:
            now = time.monotonic()
            if self._owner._on_screen is None and now >= self._show_at:
                self._owner._on_screen = self
            if self._owner._on_screen is not self:
                return
            self._next = now + 0.1
            line = self._line(now, shutil.get_terminal_size().columns - 1)
            self._write(f"\r{line:{self._drawn}}")
            self._drawn = len(line)

    def _line(self, now: float, width: int) -> str:
        """Return what is done, a bar as long as there is room for, the time left, and the current step."""
        seconds, state = self._job.seconds_left(), self._state
        share = min(self._done / self._total, 1.0) if self._total else None
        left = "-:-- left" if seconds is None else f"{_clock(seconds)} left"
        label = self._label
        if self._whole is not None:
            label, state = self._whole.what, state or self._what
            if self._whole.steps:
                gone = now - self._whole.began
                share = None if seconds is None else gone / max(gone + seconds, 1e-9)
            elif not self._whole.is_inner:
                left += " of this step"
        parts = [label, "", COMPILING] if self._owner._is_compiling else [label, left, state]
        size = len("[] 100%") + sum(len(part) + 2 for part in parts if part)
        size = min(max(width - size, 8), 24)
        bar, done = "#" * int((share or 0.0) * size), "   -" if share is None else f"{share:4.0%}"
        parts.insert(1, f"[{bar:-<{size}}] {done}")
        return "  ".join(part for part in parts if part)[:width]

    def _write(self, text: str) -> None:
        file = sys.stderr if self._owner.file is None else self._owner.file
        file.write(text)
        file.flush()


COMPILING = "compiling kernels, once on this machine"
