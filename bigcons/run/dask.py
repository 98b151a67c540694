"""The engine on Dask workers: a window of tasks in flight, recovery from lost workers, and no endless waits.

Imported only when a client is used, because ``distributed`` takes half a second to import.
"""

from __future__ import annotations

import asyncio
import logging
import operator
import re
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice, takewhile
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import cloudpickle  # type: ignore[import-untyped]
import dask
import distributed
from dask.utils import parse_timedelta
from distributed.client import ClosedClientError
from distributed.scheduler import KilledWorker

from bigcons import errors
from bigcons.errors import BigconsError, ExecutionError, InvalidInputError, first_line
from bigcons.memory import enough_for, format_size
from bigcons.progress import current_step
from bigcons.version import __version__

Item = TypeVar("Item")
Result = TypeVar("Result")

logger: logging.Logger = logging.getLogger("bigcons")

REFRESH_SECONDS = 2.0
"""How long a wait lasts before it looks at the workers."""

_checked: WeakKeyDictionary[distributed.Client, set[str]] = WeakKeyDictionary()
"""Workers whose versions are known to match."""

# As text, because a worker without bigcons dies when it unpickles one of its tasks, and one with another
# Python when it runs bytecode of this one. Dask's get_versions reads bigcons' metadata, which need not match
# the code that is imported.
VERSIONS = """{
    "bigcons": __import__("bigcons").__version__,
    "Python": "%d.%d" % __import__("sys").version_info[:2],
    **{name: __import__("importlib.metadata").metadata.version(name) for name in ("numba", "numpy")},
}"""


class DaskEngine:
    """Tasks on the workers of a ``distributed.Client``, which the caller closes.

    Two tasks per worker thread plus two are in flight. A task is retried on another worker if its worker is
    lost, as often as Dask allows (``distributed.scheduler.allowed-failures``, 3), and after an error at most
    ``retries`` times; a BigconsError would recur and is raised at once. A worker that left is logged.

    Workers are checked when they are first seen, before, during and after a map: every worker must run this
    version of bigcons, Python (3.x), Numba and NumPy; an error names one that does not.

    A wait ends in an ExecutionError if for ``patience`` seconds no task ends and no worker is busy, and at
    once if the scheduler is lost. Running tasks are never timed out.
    """

    name = "dask"
    shares_memory = False

    def __init__(self, client: distributed.Client, *, retries: int = 3, patience: float = 360.0) -> None:
        if client.asynchronous or client.status not in ("running", "connecting"):
            state = "asynchronous" if client.asynchronous else client.status
            raise InvalidInputError(f"client= is {state}; pass a distributed.Client that is connected.")
        if is_within_task():
            raise InvalidInputError(
                "client= is passed within a Dask task, which would wait for itself; leave it out."
            )
        self.client = client
        self.retries = retries
        self.patience = patience  # more than the 300 s after which Dask reassigns a worker's blocks
        self.workers: dict[str, dict[str, Any]] = {}
        self.refresh()

    # The workers

    def refresh(self) -> None:
        """Ask the scheduler for its workers, none if it does not answer, and check those that are new."""
        before, self.workers = self.workers, {}
        with suppress(OSError):
            if self.client.status not in ("closing", "closed"):
                workers = self.client.sync(_describe, self.client, callback_timeout=connect_seconds())
                for address in before.keys() - workers.keys():
                    logger.warning(
                        "Dask worker %s has left; tasks it had run again, with the same results", address
                    )
                check_versions(self.client, workers)
                self.workers = workers
        self.n_workers: int = max(1, sum(worker["nthreads"] for worker in self.workers.values()))
        self.in_flight: int = 2 * self.n_workers + 2
        # the most on one host, and this process; workers that are its threads count with it
        hosts = [w["host"] for address, w in self.workers.items() if not address.startswith("inproc://")]
        self.n_processes: int = 1 + max(Counter(hosts).values(), default=0)

    def check_limits(self, what: str, of_process: int, of_thread: int) -> None:
        """Raise MemoryBudgetError for a worker whose memory limit, if it has one, is below what it needs.

        This is ``of_process``, and ``of_thread`` for each thread.
        """
        # Dask gives a worker no more tasks, or ends it, at a share of its limit
        shares = [dask.config.get(f"distributed.worker.memory.{at}", False) for at in ("pause", "terminate")]
        share = min([float(share) for share in shares if share], default=1.0)
        for address, worker in self.workers.items():
            limit, needed = worker["memory_limit"], int((of_process + of_thread * worker["nthreads"]) / share)
            if 0 < limit < needed:
                raise errors.MemoryBudgetError(
                    f"{what} needs {format_size(needed)} in Dask worker {address}, over its memory limit of "
                    f"{format_size(limit)}; start it with --memory-limit '{enough_for(needed)}' or more, or "
                    "with fewer threads.",
                    needed=needed,
                    budget=limit,
                )

    # Tasks

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Generator[Result, None, None]:
        """Yield ``task(item)`` for every item, in the order of the items."""
        self.refresh()
        step = current_step() or "the call"
        words = ["bigcons", *re.findall(r"[a-z]+|[0-9]+", step.lower())]
        run = "-".join([*words, uuid.uuid4().hex])  # dashboards group tasks by how their keys begin
        # Each worker loads a copy of its own, which the tasks of every n-th item take: a function sent with
        # each item costs 6 ms per MB, and the scheduler keeps the last thousand messages to each worker.
        # Copies are computed, not scattered, so that one is computed again if its worker is lost.
        n_copies = max(1, len(self.workers))
        keys = [f"{run}-function-{number}" for number in range(n_copies)]
        copies = self._submit("the task function", keys, _load, [cloudpickle.dumps(task)] * n_copies)
        numbered, window, n_done = enumerate(items), deque[Any](), 0
        try:
            while True:
                n_new = self.in_flight - len(window)
                if any(future.status in ("error", "cancelled") for future in window):
                    n_new = 0
                if new := list(islice(numbered, max(n_new, 0))):
                    keys = [f"{run}-{position}" for position, _ in new]
                    # Dask would search items passed as an argument for futures
                    calls = [partial(run_task, item) for _, item in new]
                    taken = [copies[position % n_copies] for position, _ in new]
                    window.extend(self._submit(step, keys, operator.call, calls, taken))
                if not window:
                    break
                for outcome in self._wait(f"task {n_done} of {step}", list(window)):
                    window.popleft().release()
                    if isinstance(outcome, Exception):
                        self.refresh()  # raises what is wrong with a new worker
                        if isinstance(outcome, KilledWorker):
                            raise ExecutionError(
                                f"task {n_done} of {step} ran on {outcome.allowed_failures + 1} workers that "
                                "died one after another; it may need more memory than they have: give them "
                                "more, or store the data in smaller chunks (see the workers' logs)."
                            )
                        raise outcome
                    result, error = outcome
                    if error is not None:
                        raise error
                    n_done += 1
                    yield result
            self.refresh()
        finally:  # the scheduler drops released tasks; the last first, or it would start in their place
            for future in [*reversed(window), *copies]:
                future.release()

    def _submit(
        self, what: str, keys: list[str], function: Callable[..., Any], *arguments: list[Any]
    ) -> list[distributed.Future[Any]]:
        """Send tasks in one message."""
        no_warning = dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"})
        with no_warning, _scheduler_errors(what):
            # without fifo_timeout=0, items sent in quick succession run in any order; were they pure, Dask
            # would hash the function with every task
            options: dict[str, Any] = {"pure": False, "retries": self.retries, "fifo_timeout": "0 ms"}
            return list(self.client.map(function, *arguments, key=keys, **options))

    def _wait(self, what: str, futures: list[Any]) -> list[Any]:
        """Return the error of the first task, or what it and the next ones that are done returned."""
        first, n_done, active_at, has_warned = futures[0], 0, time.monotonic(), False
        timeout = min(REFRESH_SECONDS, self.patience / 4)
        while True:
            with suppress(TimeoutError), _scheduler_errors(what):
                if first.status != "finished" and (error := first.exception(timeout=timeout)) is not None:
                    return [error]
                done = [first, *takewhile(lambda future: future.status == "finished", futures[1:])]
                try:
                    return list(self.client.sync(_gather, self.client, done, callback_timeout=timeout))
                except Exception:  # of a task that ran again, as its worker was lost
                    if not any(future.status == "error" for future in done):
                        raise
            heard_before = {address: worker["last_seen"] for address, worker in self.workers.items()}
            n_before, n_done = n_done, sum(future.status not in ("pending", "lost") for future in futures)
            self.refresh()
            is_active = n_done != n_before
            for address, worker in self.workers.items():
                counts = worker["metrics"].get("task_counts", {})
                is_busy = any(counts.get(state, 0) for state in ("executing", "long-running", "flight"))
                is_active |= is_busy and worker["last_seen"] != heard_before.get(address)
            if is_active:
                active_at = time.monotonic()
            quiet = time.monotonic() - active_at
            states = Counter(worker["status"] for worker in self.workers.values())
            workers = ", ".join(f"{n} {state}" for state, n in sorted(states.items())) or "none there"
            if quiet > self.patience:
                raise ExecutionError(
                    f"{what} has not finished and no Dask worker worked for {quiet:.0f} s (workers: "
                    f"{workers}); start workers or free the memory of paused ones, then run again (see the "
                    "workers' logs for the cause)."
                )
            if quiet > 20.0 and not has_warned:
                has_warned = True
                logger.warning(
                    "waiting for %s; no Dask worker is busy (workers: %s; see their logs for the cause)",
                    *(what, workers),
                )


@contextmanager
def _scheduler_errors(what: str) -> Iterator[None]:
    """Turn the loss of the scheduler or a closed client into an ExecutionError of one line."""
    try:
        yield
    except TimeoutError:
        raise
    except (OSError, CancelledError, ClosedClientError) as error:
        raise ExecutionError(
            f"the Dask scheduler was lost or dropped its work, or the client was closed, before {what} "
            "finished; if the scheduler ended, restart it and its workers, which end with it; connect a new "
            "client, then run again (a solve with out= can be resumed)."
        ) from error


async def _gather(client: distributed.Client, futures: list[distributed.Future[Any]]) -> Any:
    return await client.gather(futures, asynchronous=True)


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


def check_versions(client: distributed.Client, addresses: Iterable[str], *, seconds: float = 5.0) -> None:
    """Raise ExecutionError if a worker lacks bigcons, or has another version of what `VERSIONS` tells.

    Each worker is asked once, which takes some 5 ms plus its import of bigcons. One that does not answer
    within ``seconds`` passes, and those asked with it, since waits for its results time out as well.
    """
    checked = _checked.setdefault(client, set())
    new = [address for address in addresses if address not in checked]
    wanted: dict[str, str] = eval(VERSIONS)  # noqa: S307 - the text above

    async def ask_all() -> dict[str, Any]:
        async with asyncio.timeout(seconds):
            return await client.run(eval, VERSIONS, workers=new, on_error="return")

    answers: dict[str, Any] = {}
    with suppress(TimeoutError, OSError, ClosedClientError):  # which the waits report
        answers = client.sync(ask_all) if new else {}
    for address, versions in answers.items():
        refusal = ""
        if isinstance(versions, (ImportError, AttributeError)):
            refusal = f"cannot load bigcons ({first_line(versions)}); install bigcons {__version__}"
        elif isinstance(versions, dict) and versions != wanted:
            other = [name for name, version in wanted.items() if versions[name] != version]
            has, install = (", ".join(f"{name} {of[name]}" for name in other) for of in (versions, wanted))
            refusal = f"has {has}; install {install}"
        if refusal:
            raise ExecutionError(
                f"Dask worker {address} {refusal}, as run here, in the environment of every worker and "
                "restart them."
            )
    checked.update(new)


# Connections


def connect_seconds() -> float:
    """Return how long a scheduler may take to answer, as Dask is configured; 30 s by default."""
    return float(parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"), default="s"))


@contextmanager
def connect(address: str, *, refused: float = 5.0) -> Iterator[DaskEngine]:
    """Yield an engine on the Dask scheduler at ``address``; disconnect at the end.

    One that is being started may refuse connections for ``refused`` seconds. It has to exchange Dask's
    greetings first, for which a client would wait without end.
    """
    client, seconds = None, connect_seconds()

    async def greet() -> None:
        security = distributed.Security().get_connection_args("client")
        async with asyncio.timeout(seconds):
            comm = await distributed.comm.core.connect(address, timeout=min(refused, seconds), **security)
        await comm.close()

    try:
        with ThreadPoolExecutor(1) as pool:  # the caller's thread may have a running loop, as in Jupyter
            pool.submit(asyncio.run, greet()).result()
        client = distributed.Client(address, timeout=seconds, set_as_default=False)
    except TimeoutError:
        fault = f"something listens there, but says nothing within {seconds:g} s"
    except Exception as error:  # not kept: it would keep the client
        fault = first_line(error)
    if client is None:
        raise InvalidInputError(
            f"client={address!r} does not answer as a Dask scheduler ({fault}); "
            "correct the address, start one there with 'dask scheduler', or use client='threads'."
        )
    try:
        yield DaskEngine(client)
    finally:
        client.close()


def active_client() -> distributed.Client | None:
    """Return the active client, if synchronous code can use it."""
    try:
        client = distributed.Client.current()
    except ValueError:
        return None
    return client if client.status == "running" and not client.asynchronous else None


def is_within_task() -> bool:
    """Return whether the caller runs as a task on a Dask worker."""
    try:
        distributed.get_worker()
    except ValueError:
        return False
    return True


# Code that runs on the workers


def run_task(item: Item, function: Any) -> tuple[Any, BigconsError | None]:
    """Return what a loaded task function returns for the item, or an error that would recur.

    ``function`` is what `_load` returned. Were the error raised, Dask would retry the task.
    """
    task, error = function
    if error is not None:
        return None, error
    try:
        return task(item), None
    except errors.StoreNotFoundError as error:
        raise errors.StoreNotFoundError(
            f"on Dask worker {distributed.get_worker().address}, {error} Workers must find a store at the "
            "same path as this process; use a shared path."
        ) from error
    except BigconsError as error:
        if isinstance(error, OSError) or isinstance(error.__cause__, OSError):
            raise  # a disk or a network may recover
        return None, error


def _load(content: bytes) -> tuple[Any, BigconsError | None]:
    """Unpickle a task function, which opens its stores once for all items of this copy."""
    return run_task(content, (cloudpickle.loads, None))
