"""Progress as a listener: the library reports, the command line draws, tests listen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Progress(Protocol):
    """What long work reports to. All methods are called from one thread, in order."""

    def start(self, what: str, total: int, unit: str) -> None:
        """Begin a piece of work of ``total`` units."""
        ...

    def advance(self, n: int) -> None:
        """Report ``n`` further units done."""
        ...

    def finish(self) -> None:
        """End the piece of work."""
        ...


class SilentProgress:
    """Reports to nobody: the default inside programs and notebooks."""

    def start(self, what: str, total: int, unit: str) -> None:
        """Ignore the start."""

    def advance(self, n: int) -> None:
        """Ignore the step."""

    def finish(self) -> None:
        """Ignore the end."""


_factory: ContextVar[Callable[[], Progress]] = ContextVar("bigcons_progress", default=SilentProgress)


@contextmanager
def report_progress_to(factory: Callable[[], Progress]) -> Iterator[None]:
    """Send the progress of all work begun inside the ``with`` block to new ``factory()`` listeners."""
    token = _factory.set(factory)
    try:
        yield
    finally:
        _factory.reset(token)


@contextmanager
def progress(what: str, total: int, unit: str = "rows") -> Iterator[Progress]:
    """Announce a piece of work and yield the listener to advance."""
    listener = _factory.get()()
    listener.start(what, total, unit)
    try:
        yield listener
    finally:
        listener.finish()
