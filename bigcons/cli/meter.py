"""What a step of work takes: seconds and memory."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any

INTERVAL = 0.01


class Meter:
    """Measures a ``with`` block: ``seconds`` by the wall clock, ``peak_memory`` in bytes.

    The memory is the highest resident memory of the whole process seen by a thread that looks every
    10 ms. It includes the interpreter, the libraries and what earlier steps still hold.
    """

    seconds: float
    peak_memory: int

    def __enter__(self) -> Meter:
        import psutil

        self._memory_info = psutil.Process().memory_info
        self.peak_memory = self._memory_info().rss
        self._done = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="bigcons-meter", daemon=True)
        self._watcher.start()
        self._began = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.seconds = time.perf_counter() - self._began
        self._done.set()
        self._watcher.join()

    def as_numbers(self, name: str) -> dict[str, Any]:
        """Return the measurement of the step ``name``, fit for JSON."""
        return {"name": name, "seconds": self.seconds, "peak_memory": self.peak_memory}

    def _watch(self) -> None:
        while not self._done.wait(INTERVAL):
            self.peak_memory = max(self.peak_memory, self._memory_info().rss)
