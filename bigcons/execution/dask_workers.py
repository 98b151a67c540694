"""The workers of a Dask cluster as its scheduler describes them: their number, versions and work.

Imported only when a client is used, like the engine.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

import dask
import distributed
from dask.utils import parse_timedelta
from distributed.client import ClosedClientError

from bigcons.errors import ExecutionError, MemoryBudgetError
from bigcons.memory import EngineSizes, enough_for, format_size
from bigcons.version import __version__

logger: logging.Logger = logging.getLogger("bigcons")

REFRESH_SECONDS = 2.0

KEY_PREFIX = "bigcons"
"""With which the keys of all tasks begin."""

BUSY_STATES = ("executing", "long-running", "flight")

# As text, because a worker without bigcons dies when it unpickles one of its tasks, and one with another
# Python when it runs bytecode of this one. Dask's get_versions reads bigcons' metadata, which need not match
# the code that is imported.
VERSIONS = """{
    "bigcons": __import__("bigcons").__version__,
    "Python": "%d.%d" % __import__("sys").version_info[:2],
    **{name: __import__("importlib.metadata").metadata.version(name) for name in ("numba", "numpy")},
}"""
TASKS = "__import__('bigcons.execution.dask_engine', fromlist=['run_task']).run_task.__name__"

_checked: WeakKeyDictionary[distributed.Client, set[str]] = WeakKeyDictionary()
"""Workers whose versions are known to match."""


def connect_seconds() -> float:
    """Return how long a scheduler may take to answer, as Dask is configured; 30 s by default."""
    return float(parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"), default="s"))


class Admission:
    """Which workers get tasks: all, or as many as ``fits`` says that the memory stated has room for.

    A worker that was let in stays; others are let in, in the order of their addresses, where they fit. One is
    let in always, since the plan was checked with the workers that were there.
    """

    def __init__(self, client: distributed.Client, sizes: Callable[[int, int], EngineSizes]) -> None:
        self._client = client
        self._sizes = sizes
        self._inside: set[str] = set()
        self._told: set[str] = set()
        self.fits: Callable[[EngineSizes], bool] | None = None

    def of(self, workers: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return the workers that get tasks."""
        if self.fits is None:
            self._inside = set(workers)
            return workers
        chosen = {address: workers[address] for address in sorted(self._inside & workers.keys())}
        for address in sorted(workers.keys() - chosen.keys()):
            larger = {**chosen, address: workers[address]}
            if not chosen or self.fits(self._sizes(most_on_a_host(larger), n_threads_of(larger))):
                chosen = larger
        self._inside = set(chosen)
        for address in workers.keys() - chosen.keys() - self._told:
            self._told.add(address)
            logger.warning("Dask worker %s gets no tasks: the memory stated has no room for it", address)
        return chosen

    def check_limits(self, what: str, of_process: int, of_thread: int) -> None:
        """Raise MemoryBudgetError for a worker whose memory limit, if it has one, is below what it needs.

        This is ``of_process``, and ``of_thread`` for each thread. Dask gives a worker no more tasks, or ends
        it, at a share of its limit.
        """
        shares = [dask.config.get(f"distributed.worker.memory.{at}", False) for at in ("pause", "terminate")]
        share = min([float(share) for share in shares if share], default=1.0)
        for address, worker in Workers(self._client).refresh().items():
            needed = int((of_process + of_thread * worker["nthreads"]) / share)
            if 0 < worker["memory_limit"] < needed:
                raise MemoryBudgetError(
                    f"{what} needs {format_size(needed)} in Dask worker {address}, over its memory limit of "
                    f"{format_size(worker['memory_limit'])}; start it with --memory-limit "
                    f"'{enough_for(needed)}' or more, or with fewer threads.",
                    needed=needed,
                    budget=worker["memory_limit"],
                )


def most_on_a_host(workers: dict[str, dict[str, Any]]) -> int:
    """Return the number of worker processes on the host with the most of them, without this process.

    Workers of a cluster with ``processes=False`` are threads of this process.
    """
    hosts = [worker["host"] for address, worker in workers.items() if not address.startswith("inproc://")]
    return max(Counter(hosts).values(), default=0)


def n_threads_of(workers: dict[str, dict[str, Any]]) -> int:
    """Return the number of threads of workers."""
    return sum(worker["nthreads"] for worker in workers.values())


class Workers:
    """The workers as last described by the scheduler, refreshed after REFRESH_SECONDS; of those let in.

    Raises ExecutionError if a new worker does not run this version of bigcons, Python, Numba and NumPy.
    """

    def __init__(self, client: distributed.Client, admission: Admission | None = None) -> None:
        self._client = client
        self._admission = admission
        self._described_at = -math.inf
        self._workers: dict[str, dict[str, Any]] = {}

    @property
    def n_threads(self) -> int:
        """Number of worker threads within the last REFRESH_SECONDS."""
        if time.monotonic() - self._described_at > REFRESH_SECONDS:
            self.refresh()
        return n_threads_of(self._workers)

    @property
    def most_on_a_host(self) -> int:
        """Current number of worker processes on the host with the most of them."""
        return most_on_a_host(self.refresh())

    @property
    def chosen(self) -> frozenset[str] | None:
        """The workers that get tasks as last described; None for all."""
        if self._admission is None or self._admission.fits is None:
            return None
        return frozenset(self._workers)

    def refresh(self) -> dict[str, dict[str, Any]]:
        """Ask the scheduler for a new description and return it; empty if it does not answer."""
        self._described_at = time.monotonic()
        self._workers = {}
        if self._client.status in ("closing", "closed"):
            return {}
        with suppress(OSError):
            self._workers = self._client.sync(_describe, self._client, callback_timeout=connect_seconds())
        check_versions(self._client, self._workers)
        if self._admission is not None:
            self._workers = self._admission.of(self._workers)
        return self._workers

    def tell_lost(self) -> None:
        """Log which workers were lost since this was last called for the client, and how much ran again."""
        known = _checked.get(self._client, set())
        if self._client.status != "running":
            return
        with suppress(OSError, CancelledError, ClosedClientError):  # which the work itself reports
            present = self._client.sync(_describe, self._client, callback_timeout=connect_seconds())
            for address in known - present.keys():
                known.discard(address)
                events = self._client.sync(_events, self._client, address, callback_timeout=connect_seconds())
                removals = [event for _, event in events if event.get("action") == "remove-worker"]
                lost: dict[str, Any] = removals[-1] if removals else {}
                keys = {*lost.get("processing-tasks", ()), *lost.get("lost-computed-tasks", ())}
                n_tasks = sum(str(key).startswith(KEY_PREFIX) for key in keys)
                if n_tasks and not lost.get("expected"):
                    what = "1 task it had" if n_tasks == 1 else f"{n_tasks} tasks it had"
                    logger.warning(
                        "Dask worker %s was lost; %s ran again, with the same results", address, what
                    )

    def are_working(self) -> bool:
        """Return whether any busy worker has sent a heartbeat since the last description."""
        heard_before = {address: worker["last_seen"] for address, worker in self._workers.items()}
        self.refresh()
        for address, worker in self._workers.items():
            counts = worker["metrics"].get("task_counts", {})
            is_busy = any(counts.get(state, 0) for state in BUSY_STATES)
            if is_busy and worker["last_seen"] != heard_before.get(address):
                return True
        return False

    def __str__(self) -> str:
        states = Counter(worker["status"] for worker in self._workers.values())
        return ", ".join(f"{n} {state}" for state, n in sorted(states.items())) or "none there"


async def _describe(client: distributed.Client) -> dict[str, dict[str, Any]]:
    """Return the scheduler's description of its workers; raise OSError as soon as it is lost.

    A client that has lost it tries to connect again, as long as Dask is configured to, but has dropped all.
    """
    scheduler: Any = client.scheduler
    asked = asyncio.ensure_future(scheduler.identity(n_workers=-1))
    try:
        while not (await asyncio.wait({asked}, timeout=0.1))[0]:
            if client.status != "running":
                raise OSError("the scheduler is lost")
        return dict(asked.result()["workers"])
    finally:
        asked.cancel()


async def _events(client: distributed.Client, address: str) -> Any:
    scheduler: Any = client.scheduler
    return await scheduler.events(topic=address)


class Wait:
    """A wait for one result, which fails if no result arrives and no worker is busy for too long."""

    def __init__(self, workers: Workers, what: str, patience: float) -> None:
        self._workers, self._what, self._patience = workers, what, patience
        self._n_done = 0
        self._active_at = time.monotonic()
        self._has_warned = False
        self.check_seconds: float = min(REFRESH_SECONDS, patience / 4)

    def check(self, n_done: int) -> None:
        """Note progress; raise ExecutionError if there has been none for longer than the patience."""
        if n_done != self._n_done or self._workers.are_working():
            self._n_done, self._active_at = n_done, time.monotonic()
        quiet = time.monotonic() - self._active_at
        if quiet > self._patience:
            raise ExecutionError(
                f"{self._what} has not finished and no Dask worker worked for {quiet:.0f} s "
                f"(workers: {self._workers}); start workers or free the memory of paused ones, then run "
                "again (see the workers' logs for the cause)."
            )
        if quiet > 20.0 and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "waiting for %s; no Dask worker is busy (workers: %s; see their logs for the cause)",
                *(self._what, self._workers),
            )


def check_versions(client: distributed.Client, addresses: Iterable[str], *, seconds: float = 5.0) -> None:
    """Raise ExecutionError if a worker lacks bigcons, has other code of it or another version of `VERSIONS`.

    Each worker is asked once, which takes some 5 ms plus its import of bigcons. One that does not answer
    within ``seconds`` passes, since waits for its results time out as well.
    """
    checked = _checked.setdefault(client, set())
    new = [address for address in addresses if address not in checked]

    async def ask_all() -> list[str]:
        return await asyncio.gather(*(_ask(client, address, seconds) for address in new))

    for address, refusal in zip(new, client.sync(ask_all) if new else [], strict=True):
        if refusal:
            raise ExecutionError(f"Dask worker {address} {refusal}")
        checked.add(address)


async def _ask(client: distributed.Client, address: str, seconds: float) -> str:
    """Return what is wrong with a worker's packages and what to do, an empty string if nothing is."""
    found: dict[str, str] = {}
    wanted: dict[str, str] = eval(VERSIONS)  # noqa: S307 - the text above
    try:
        async with asyncio.timeout(seconds):
            found = (await client.run(eval, VERSIONS, workers=[address]))[address]
            if other := {name: version for name, version in wanted.items() if found[name] != version}:
                return _to_install(f"has {_listed({name: found[name] for name in other})}", other)
            await client.run(eval, TASKS, workers=[address])
    except (ImportError, AttributeError) as error:
        what = (
            f"runs other code of bigcons {__version__} than this process" if found else "cannot load bigcons"
        )
        return _to_install(f"{what} ({one_line(error)})", {"bigcons": __version__})
    except Exception:  # lost, unresponsive or closed, which the waits report
        return ""
    return ""


def _to_install(what: str, wanted: dict[str, str]) -> str:
    runs = "which runs here" if len(wanted) == 1 else "which run here"
    return f"{what}; install {_listed(wanted)}, {runs}, in the environment of every worker and restart them."


def _listed(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def one_line(error: Exception) -> str:
    """Return an error's message without line breaks."""
    return " ".join(str(error).split()) or type(error).__name__
