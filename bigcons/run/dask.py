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
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
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
"""How long a wait, or a map, goes on before it looks at the workers."""

_answers: WeakKeyDictionary[distributed.Client, dict[str, Any]] = WeakKeyDictionary()
"""Futures of the fault of each worker, by its address: "" if it has none."""

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

    Workers are asked for their versions when they are first seen, and get no task before they have answered.
    One that does not run this version of bigcons, Python (3.x), Numba and NumPy gets none; a warning names
    it, or an error if there is no other.

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
        """Ask the scheduler for its workers, none if it does not answer, and keep those that are checked."""
        previous, self.workers = self.workers, {}
        self.last_refresh: float = time.monotonic()
        with suppress(OSError):
            if self.client.status not in ("closing", "closed"):
                workers = self.client.sync(_describe, self.client, callback_timeout=connect_seconds())
                for address in previous.keys() - workers.keys():
                    logger.warning(
                        "Dask worker %s has left; tasks it had run again, with the same results", address
                    )
                self.workers = checked(self.client, workers)
        self.n_workers: int = max(1, sum(worker["nthreads"] for worker in self.workers.values()))
        self.in_flight: int = 2 * self.n_workers + 2
        # the most on one host, and this process; workers that are its threads count with it
        hosts = [w["host"] for address, w in self.workers.items() if not address.startswith("inproc://")]
        self.n_processes: int = 1 + max(Counter(hosts).values(), default=0)

    def check_limits(self, name: str, per_process: int, per_thread: int) -> None:
        """Raise MemoryBudgetError for a worker whose memory limit, if it has one, is too low.

        A worker needs ``per_process`` bytes, and ``per_thread`` for each thread.
        """
        # Dask gives a worker no more tasks, or ends it, at a share of its limit
        shares = [dask.config.get(f"distributed.worker.memory.{at}", False) for at in ("pause", "terminate")]
        share = min([float(share) for share in shares if share], default=1.0)
        for address, worker in self.workers.items():
            limit, size = worker["memory_limit"], int((per_process + per_thread * worker["nthreads"]) / share)
            if 0 < limit < size:
                raise errors.MemoryBudgetError(
                    f"{name} needs {format_size(size)} in Dask worker {address}, over its memory limit of "
                    f"{format_size(limit)}; start it with --memory-limit '{enough_for(size)}' or more, or "
                    "with fewer threads.",
                    needed=size,
                    budget=limit,
                )

    # Tasks

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Generator[Result, None, None]:
        """Yield ``task(item)`` for every item, in the order of the items."""
        self.refresh()
        step = current_step.get() or "the call"
        words = ["bigcons", *re.findall(r"[a-z]+|[0-9]+", step.lower())]
        content, numbered = cloudpickle.dumps(task), enumerate(items)
        window, futures, copies = deque[Any](), deque[Any](), list[Any]()
        addresses, n_done, n_lost = set[str](), 0, 0

        def submit(batch: list[Any]) -> None:
            keys = [f"{run}-{position}" for position, _ in batch]
            # Dask would search items passed as an argument for futures
            calls = [partial(run_task, item) for _, item in batch]
            functions = [copies[position % len(copies)] for position, _ in batch]
            futures.extend(self._submit(step, keys, addresses, operator.call, calls, functions))

        def release() -> None:
            # the scheduler drops released tasks; the last first, or it would start in their place
            for future in [*reversed(futures), *copies]:
                future.release()
            futures.clear()

        try:
            while True:
                if self.workers and addresses.isdisjoint(self.workers):  # at first, or when all have left
                    release()
                    n_lost += bool(addresses)
                    if n_lost > dask.config.get("distributed.scheduler.allowed-failures", 3):
                        raise _killed(f"task {n_done} of {step}", n_lost)
                    # Each worker loads a copy of its own, which the tasks of every n-th item take: a function
                    # sent with each item costs 6 ms per MB, and the scheduler keeps the last thousand
                    # messages to each worker. Copies are computed, not scattered, so that one is computed
                    # again if its worker is lost.
                    addresses = set(self.workers)
                    run = "-".join([*words, uuid.uuid4().hex])  # dashboards group keys by how they begin
                    keys = [f"{run}-function-{number}" for number in range(len(addresses))]
                    copies = self._submit("the task function", keys, addresses, _load, [content] * len(keys))
                    if window:
                        submit([*window])
                if time.monotonic() > self.last_refresh + REFRESH_SECONDS:
                    self.refresh()
                n_new = self.in_flight - len(window) if copies else 0
                if any(future.status in ("error", "cancelled") for future in futures):
                    n_new = 0
                if batch := list(islice(numbered, max(n_new, 0))):
                    window.extend(batch)
                    submit(batch)
                if copies and not window:
                    break
                for outcome in self._wait(f"task {n_done} of {step}", list(futures), addresses):
                    window.popleft()
                    futures.popleft().release()
                    if isinstance(outcome, Exception):
                        if isinstance(outcome, KilledWorker):
                            raise _killed(f"task {n_done} of {step}", outcome.allowed_failures + 1)
                        raise outcome
                    result, error = outcome
                    if error is not None:
                        raise error
                    n_done, n_lost = n_done + 1, 0
                    yield result
            self.refresh()
        finally:
            release()

    def _submit(
        self, step: str, keys: list[str], hosts: set[str], function: Callable[..., Any], *arguments: list[Any]
    ) -> list[distributed.Future[Any]]:
        """Send tasks in one message, to the workers that are checked, else to these ``hosts``."""
        no_warning = dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"})
        with no_warning, _scheduler_errors(step):
            # without fifo_timeout=0, items sent in quick succession run in any order; were they pure, Dask
            # would hash the function with every task
            options: dict[str, Any] = {"pure": False, "retries": self.retries, "fifo_timeout": "0 ms"}
            options["workers"] = list(self.workers or hosts)
            return list(self.client.map(function, *arguments, key=keys, **options))

    def _wait(self, step: str, futures: list[Any], addresses: set[str]) -> list[Any]:
        """Return the error of the first task, or the results of it and the next ones that are done.

        It returns nothing if other workers have replaced the ones at ``addresses``, to which tasks were sent.
        """
        n_done, active_at, has_warned = 0, time.monotonic(), False
        timeout = min(REFRESH_SECONDS, self.patience / 4)
        while True:
            with suppress(TimeoutError), _scheduler_errors(step):
                if not futures:
                    time.sleep(timeout / 8)
                    raise TimeoutError if self.client.status == "running" else OSError
                first = futures[0]
                if first.status != "finished" and (error := first.exception(timeout=timeout)) is not None:
                    return [error]
                finished = [first, *takewhile(lambda future: future.status == "finished", futures[1:])]
                try:
                    return list(self.client.sync(_gather, self.client, finished, callback_timeout=timeout))
                except Exception:  # of a task that ran again, as its worker was lost
                    if not any(future.status == "error" for future in finished):
                        raise
            last_seen = {address: worker["last_seen"] for address, worker in self.workers.items()}
            n_before, n_done = n_done, sum(future.status not in ("pending", "lost") for future in futures)
            self.refresh()
            if self.workers and addresses.isdisjoint(self.workers):
                return []
            is_active = n_done != n_before
            for address, worker in self.workers.items():
                counts = worker["metrics"].get("task_counts", {})
                is_busy = any(counts.get(state, 0) for state in ("executing", "long-running", "flight"))
                is_active |= is_busy and worker["last_seen"] != last_seen.get(address)
            if is_active:
                active_at = time.monotonic()
            quiet = time.monotonic() - active_at
            states = Counter(worker["status"] for worker in self.workers.values())
            workers = ", ".join(f"{n} {state}" for state, n in sorted(states.items())) or "none there"
            if quiet > self.patience:
                raise ExecutionError(
                    f"{step} has not finished and no Dask worker worked for {quiet:.0f} s (workers: "
                    f"{workers}); start workers or free the memory of paused ones, then run again (see the "
                    "workers' logs for the cause)."
                )
            if quiet > 20.0 and not has_warned:
                has_warned = True
                logger.warning(
                    "waiting for %s; no Dask worker is busy (workers: %s; see their logs for the cause)",
                    *(step, workers),
                )


def _killed(step: str, n_workers: int) -> ExecutionError:
    return ExecutionError(
        f"{step} ran on {n_workers} workers that died one after another; it may need more memory than they "
        "have: give them more, or store the data in smaller chunks (see the workers' logs)."
    )


@contextmanager
def _scheduler_errors(step: str) -> Iterator[None]:
    """Turn the loss of the scheduler or a closed client into an ExecutionError of one line."""
    try:
        yield
    except TimeoutError:
        raise
    except (OSError, CancelledError, ClosedClientError) as error:
        raise ExecutionError(
            f"the Dask scheduler was lost or dropped its work, or the client was closed, before {step} "
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
    identity = asyncio.ensure_future(scheduler.identity(n_workers=-1))
    try:
        while not (await asyncio.wait({identity}, timeout=0.1))[0]:
            if client.status != "running":
                raise OSError("the scheduler is lost")
        return dict(identity.result()["workers"])
    finally:
        identity.cancel()


def checked(
    client: distributed.Client, workers: dict[str, dict[str, Any]], *, seconds: float = 5.0
) -> dict[str, dict[str, Any]]:
    """Return the workers that have the versions of this process, as `VERSIONS` lists them.

    Each worker is asked once, which takes some 5 ms plus its import of bigcons. The answers are waited for
    only if no worker is known to be right, and not longer than ``seconds``. A worker that has other versions,
    or lacks bigcons, is warned of once. Raises ExecutionError if no worker is right.
    """
    target: dict[str, str] = eval(VERSIONS)  # noqa: S307 - the text above
    answers, loop = _answers.setdefault(client, {}), getattr(client.loop, "asyncio_loop")  # noqa: B009

    async def refusal_of(address: str) -> str:
        versions = (await client.run(eval, VERSIONS, workers=[address], on_error="return"))[address]
        if versions == target:
            return ""
        if isinstance(versions, (ImportError, AttributeError)):
            flaw = f"cannot load bigcons ({first_line(versions)}); install bigcons {__version__}"
        elif isinstance(versions, dict):
            keys = [name for name, version in target.items() if versions[name] != version]
            has, install = (", ".join(f"{name} {side[name]}" for name in keys) for side in (versions, target))
            flaw = f"has {has}; install {install}"
        else:
            raise OSError(f"Dask worker {address} was lost")  # if it is there again, it is asked again
        flaw = (
            f"Dask worker {address} {flaw}, as run here, in the environment of every worker and restart them."
        )
        logger.warning("no tasks go to a worker: %s", flaw)
        return flaw

    for address in workers:
        if address not in answers or (answers[address].done() and answers[address].exception() is not None):
            answers[address] = asyncio.run_coroutine_threadsafe(refusal_of(address), loop)
    calls = {address: answers[address] for address in workers}

    def refusals() -> dict[str, str]:
        done = (address for address in calls if calls[address].done() and calls[address].exception() is None)
        return {address: calls[address].result() for address in done}

    if "" not in refusals().values():
        wait(calls.values(), seconds)
    reasons = refusals()
    if len(reasons) == len(workers) > 0 and all(reasons.values()):
        raise ExecutionError(next(iter(reasons.values())))
    return {address: workers[address] for address, refusal in reasons.items() if not refusal}


# Connections


def connect_seconds() -> float:
    """Return how long a scheduler may take to answer, as Dask is configured; 30 s by default."""
    return float(parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"), default="s"))


@contextmanager
def connect(address: str, *, grace: float = 5.0) -> Iterator[DaskEngine]:
    """Yield an engine on the Dask scheduler at ``address``; disconnect at the end.

    A scheduler that is being started may refuse connections for ``grace`` seconds. It has to exchange
    Dask's greetings first, for which a client would wait without end.
    """
    client, seconds = None, connect_seconds()

    async def greet() -> None:
        security = distributed.Security().get_connection_args("client")
        async with asyncio.timeout(seconds):
            comm = await distributed.comm.core.connect(address, timeout=min(grace, seconds), **security)
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
