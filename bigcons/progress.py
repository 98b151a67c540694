"""Progress reporting: the library reports to a listener, which the command line and tests supply."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Progress:
    """Listener of a long task, called in order from one thread; this one, the default, ignores everything."""

    def start(self, what: str, total: int, unit: str) -> None:
        """Begin a task of ``total`` units."""

    def advance(self, n: int) -> None:
        """Report that ``n`` more units are done."""

    def finish(self) -> None:
        """End the task."""


_factory: ContextVar[Callable[[], Progress]] = ContextVar("bigcons_progress", default=Progress)


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
