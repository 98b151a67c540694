"""How far the work is: every step reports to a listener, which draws a bar, or which tests supply."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, TextIO


class Progress:
    """Listener of a step, called from one thread; this one ignores it all."""

    def start(self, what: str, total: int, unit: str) -> None:
        """Begin a step of ``total`` units; 0 if their number is not known."""

    def advance(self, n: int) -> None:
        """Report that ``n`` more units are done."""

    def note(self, state: str) -> None:
        """Say what the step is at, such as "pass 3"."""

    def finish(self) -> None:
        """End the step."""


_listener: ContextVar[Callable[[], Progress]] = ContextVar("bigcons_listener", default=Progress)

current_step: ContextVar[str] = ContextVar("bigcons_step", default="")
"""The name of the innermost step of the caller; empty if there is none."""


@contextmanager
def report_progress_to(listener: Callable[[], Progress]) -> Iterator[None]:
    """Report each step begun inside the ``with`` block to a new ``listener()``."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def progress(what: str, total: int, unit: str = "rows") -> Iterator[Progress]:
    """Begin a step of ``total`` units, 0 if their number is not known, and yield its listener."""
    listener = _listener.get()()
    token = current_step.set(what)
    listener.start(what, total, unit)
    try:
        yield listener
    finally:
        current_step.reset(token)
        listener.finish()


class ProgressBar:
    """Shows a bar for each step of the work inside its ``with`` block: how far it is, and its time left.

    A bar appears at the first progress after a second, and goes when its step ends. It is a bar of tqdm: a
    widget in notebooks, a line elsewhere. Without ``file``, none is drawn if standard error is no terminal.

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
        self._tokens: list[Token[Callable[[], Progress]]] = []

    def __enter__(self) -> ProgressBar:
        self._tokens.append(_listener.set(lambda: _Bar(self.file, self.after)))
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        _listener.reset(self._tokens.pop())


class _Bar(Progress):
    """The bar of a step."""

    def __init__(self, file: TextIO | None, after: float) -> None:
        self._file, self._after = file, after

    def start(self, what: str, total: int, unit: str) -> None:
        from tqdm.auto import tqdm

        is_in_notebook = "ipykernel" in sys.modules
        self._bar: Any = tqdm(
            desc=what,
            total=total or None,
            unit=f" {unit}",
            unit_scale=True,
            file=self._file,
            delay=max(self._after, 1e-9),  # 0 would draw before the step begins
            leave=False,
            dynamic_ncols=True,
            disable=self._file is None and not is_in_notebook and not sys.stderr.isatty(),
        )

    def advance(self, n: int) -> None:
        self._bar.update(n)

    def note(self, state: str) -> None:
        self._bar.set_postfix_str(state, refresh=False)

    def finish(self) -> None:
        self._bar.close()
