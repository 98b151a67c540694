"""Progress bars on a terminal's standard error, for work that takes longer than a second."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import click

from bigcons.progress import report_progress_to

QUIET_SECONDS = 1.0


class TerminalProgress:
    """One bar; it stays hidden for a second, and while another bar is on the screen."""

    _on_screen: TerminalProgress | None = None
    _bar: Any

    def start(self, what: str, total: int, unit: str) -> None:
        """Begin a piece of work of ``total`` units."""
        label = f"{what} ({total:,} {unit})"
        self._bar = click.progressbar(length=total, label=label, file=sys.stderr, hidden=True)
        self._show_after = time.monotonic() + QUIET_SECONDS
        self._drawing = threading.Lock()
        self._first = threading.Timer(max(QUIET_SECONDS, 0.0), self._draw)
        self._first.daemon = True
        self._first.start()

    def advance(self, n: int) -> None:
        """Move the bar; it shows once a second has gone by, moved or not."""
        self._draw(n)

    def finish(self) -> None:
        """Leave the bar as it is and give the screen back."""
        self._first.cancel()
        self._first.join()
        self._bar.render_finish()
        if TerminalProgress._on_screen is self:
            TerminalProgress._on_screen = None

    def _draw(self, n: int = 0) -> None:
        with self._drawing:
            late = time.monotonic() >= self._show_after
            if self._bar.hidden and TerminalProgress._on_screen is None and late:
                TerminalProgress._on_screen = self
                self._bar.hidden = False
                self._bar.render_progress()
            self._bar.update(n)


def progress_on_terminal() -> AbstractContextManager[None]:
    """Draw the progress of all work in the ``with`` block, if standard error is a terminal."""
    return report_progress_to(TerminalProgress) if sys.stderr.isatty() else nullcontext()
