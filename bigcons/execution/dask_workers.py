"""The workers of a Dask cluster as the scheduler describes them, and waits that do not outlast them.

Imported only when a client is in play, like the engine.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from typing import Any

import distributed

from bigcons.errors import ExecutionError
from bigcons.execution.dask_versions import check_versions

logger = logging.getLogger("bigcons")

CONNECT_SECONDS = 5.0
LOOK_SECONDS = 2.0
WARN_SECONDS = 20.0

BUSY_STATES = ("executing", "long-running", "flight")


class Crew:
    """The workers as the scheduler last described them, asked again when that is a while ago.

    ExecutionError is raised when workers appear that do not run this bigcons.
    """

    def __init__(self, client: distributed.Client) -> None:
        self._client = client
        self._asked = -math.inf
        self._workers: dict[str, dict[str, Any]] = {}
        self._heard: dict[str, float] = {}

    @property
    def n_threads(self) -> int:
        """Worker threads, of the last seconds."""
        if time.monotonic() - self._asked > LOOK_SECONDS:
            self.look()
        return sum(worker["nthreads"] for worker in self._workers.values())

    @property
    def most_on_a_host(self) -> int:
        """Worker processes on the host that has the most of them now."""
        self.look()
        return max(Counter(worker["host"] for worker in self._workers.values()).values(), default=0)

    def look(self) -> None:
        """Have the workers described anew."""
        self._asked = time.monotonic()
        if self._client.status in ("closing", "closed"):
            self._workers = {}
            return
        try:
            self._workers = self._client.sync(
                _describe_workers, self._client, callback_timeout=CONNECT_SECONDS
            )
        except OSError:  # a scheduler that does not answer shows no worker at work
            self._workers = {}
        check_versions(self._client, self._workers)

    def is_working(self) -> bool:
        """Return whether any worker gave a sign of life since the last look and is at work."""
        self._heard = {address: worker["last_seen"] for address, worker in self._workers.items()}
        self.look()
        return any(map(self._is_at_work, self._workers))

    def __str__(self) -> str:
        states = Counter(worker["status"] for worker in self._workers.values())
        return ", ".join(f"{n} {state}" for state, n in sorted(states.items())) or "none there"

    def _is_at_work(self, address: str) -> bool:
        worker = self._workers[address]
        counts = worker["metrics"].get("task_counts", {})
        is_heard = worker["last_seen"] != self._heard.get(address)
        return is_heard and any(counts.get(state, 0) for state in BUSY_STATES)


async def _describe_workers(client: distributed.Client) -> dict[str, dict[str, Any]]:
    return dict((await client.scheduler.identity(n_workers=-1))["workers"])


class Watch:
    """Watches one wait: it ends when nothing has come and nobody has worked for too long."""

    def __init__(self, crew: Crew, what: str, patience: float) -> None:
        self._crew, self._what, self._patience = crew, what, patience
        self._n_done = 0
        self._active = time.monotonic()
        self._has_warned = False
        self.look_seconds = min(LOOK_SECONDS, patience / 4)

    def look(self, n_done: int) -> None:
        """Take note of progress; raise ExecutionError if there was none for too long."""
        if n_done != self._n_done or self._crew.is_working():
            self._n_done, self._active = n_done, time.monotonic()
        quiet = time.monotonic() - self._active
        if quiet > self._patience:
            raise ExecutionError(
                f"{self._what} has not come for {quiet:.0f} s in which no Dask worker worked "
                f"(workers: {self._crew}); start workers or free the memory of paused ones, then run again "
                "(logs of workers say why they ended)."
            )
        if quiet > WARN_SECONDS and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "waiting for %s; no Dask worker works (workers: %s; logs of workers say why they ended)",
                *(self._what, self._crew),
            )
