"""Progress reporting: the library reports to a listener, which the command line and tests supply."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Progress(Protocol):
    """Listener of a long task. All methods are called in order from one thread."""

    def start(self, what: str, total: int, unit: str) -> None:
        """Begin a task of ``total`` units."""
        ...

    def advance(self, n: int) -> None:
        """Report that ``n`` more units are done."""
        ...

    def finish(self) -> None:
        """End the task."""
        ...


class SilentProgress:
    """A listener that ignores everything: the default in programs and notebooks."""

    def start(self, what: str, total: int, unit: str) -> None:
        """Ignore the start."""

    def advance(self, n: int) -> None:
        """Ignore the step."""

    def finish(self) -> None:
        """Ignore the end."""


_factory: ContextVar[Callable[[], Progress]] = ContextVar("bigcons_progress", default=SilentProgress)


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
    try:
        yield listener
    finally:
        listener.finish()
