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
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Set
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice, takewhile
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import cloudpickle  # type: ignore[import-untyped]
import dask
import distributed
from dask.utils import parse_timedelta
from distributed.client import ClosedClientError
from distributed.scheduler import KilledWorker

from bigcons.errors import (
    BigconsError,
    ExecutionError,
    InvalidInputError,
    MemoryBudgetError,
    StoreError,
    StoreNotFoundError,
)
from bigcons.memory import Block, enough_for, format_size
from bigcons.progress import current_step
from bigcons.version import __version__

Item = TypeVar("Item")
Result = TypeVar("Result")

logger: logging.Logger = logging.getLogger("bigcons")

REFRESH_SECONDS = 2.0
"""How old a description of the workers may be, and how long a wait lasts before it looks at them."""

_checked: WeakKeyDictionary[distributed.Client, set[str]] = WeakKeyDictionary()
"""Workers whose versions are known to match."""


class DaskEngine:
    """Tasks on the workers of a ``distributed.Client``, which the caller closes.

    Two tasks per worker thread plus two are in flight. A task is retried on another worker if its worker is
    lost, as often as Dask allows (``distributed.scheduler.allowed-failures``, 3), and after an error at most
    ``retries`` times; a BigconsError would recur and is raised at once. A worker that left is logged.

    Tasks go to workers that were checked when they were first seen, those that join later included: every
    worker must run this version of bigcons, Python (3.x), Numba and NumPy, and its own memory limit, if it
    has one, must hold what a plan needs of it (`check_limits`); an error names a worker that does not.

    A wait ends in an ExecutionError if for ``patience`` seconds no task ends and no worker is busy, and at
    once if the scheduler is lost. Running tasks are never timed out.
    """

    name = "dask"
    shares_memory = False

    def __init__(self, client: distributed.Client, *, retries: int = 3, patience: float = 360.0) -> None:
        if client.asynchronous:
            raise InvalidInputError("client= is asynchronous; pass a distributed.Client(asynchronous=False).")
        until = time.monotonic() + connect_seconds()
        while client.status == "newly-created" and time.monotonic() < until:  # by another task of the worker
            time.sleep(0.01)
        if client.status not in ("running", "connecting"):
            raise InvalidInputError(
                f"client= is {client.status}; pass a distributed.Client that is connected."
            )
        self.client = client
        self.retries = retries
        self.patience = patience  # more than the 300 s after which Dask reassigns a worker's blocks
        self.workers: dict[str, dict[str, Any]] = {}
        self._needs: tuple[str, int, int] | None = None
        self.refresh()

    # The workers

    @property
    def n_workers(self) -> int:
        """Number of worker threads within the last REFRESH_SECONDS, at least 1."""
        if time.monotonic() - self._described_at > REFRESH_SECONDS:
            self.refresh()
        return max(1, sum(worker["nthreads"] for worker in self.workers.values()))

    @property
    def in_flight(self) -> int:
        """The most tasks that are sent and not collected."""
        return 2 * self.n_workers + 2

    @property
    def n_processes(self) -> int:
        """Worker processes on the host that has the most of them, and this process.

        Workers of a cluster with ``processes=False`` are threads of this process.
        """
        workers = self.workers.items()
        hosts = [worker["host"] for address, worker in workers if not address.startswith("inproc://")]
        return 1 + max(Counter(hosts).values(), default=0)

    def refresh(self) -> None:
        """Ask the scheduler for its workers, none if it does not answer, and check those that are new."""
        before, self.workers, self._described_at = self.workers, {}, time.monotonic()
        if self.client.status in ("closing", "closed"):
            return
        with suppress(OSError):
            workers = self.client.sync(_describe, self.client, callback_timeout=connect_seconds())
            for address in before.keys() - workers.keys():
                logger.warning(
                    "Dask worker %s has left; tasks it had run again, with the same results", address
                )
            check_versions(self.client, workers)
            self.workers = workers
            for address in workers.keys() - before.keys():
                self._check_limit(address)

    def check_limits(self, what: str, of_process: int, of_thread: int) -> None:
        """Raise MemoryBudgetError for a worker whose memory limit, if it has one, is below what it needs.

        This is ``of_process``, and ``of_thread`` for each thread; workers that join later need it, too.
        """
        self._needs = what, of_process, of_thread
        for address in self.workers:
            self._check_limit(address)

    def _check_limit(self, address: str) -> None:
        if self._needs is None:
            return
        # Dask gives a worker no more tasks, or ends it, at a share of its limit
        shares = [dask.config.get(f"distributed.worker.memory.{at}", False) for at in ("pause", "terminate")]
        share = min([float(share) for share in shares if share], default=1.0)
        (what, of_process, of_thread), worker = self._needs, self.workers[address]
        needed = int((of_process + of_thread * worker["nthreads"]) / share)
        if 0 < worker["memory_limit"] < needed:
            raise MemoryBudgetError(
                f"{what} needs {format_size(needed)} in Dask worker {address}, over its memory limit of "
                f"{format_size(worker['memory_limit'])}; start it with --memory-limit "
                f"'{enough_for(needed)}' or more, or with fewer threads.",
                needed=needed,
                budget=worker["memory_limit"],
            )

    # Tasks

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Generator[Result, None, None]:
        """Yield ``task(item)`` for every item, in the order of the items."""
        if is_within_task():  # leave the worker a thread for the tasks that are now sent, and waited for here
            with suppress(KeyError):  # of a thread that has left, for an earlier map or by its own code
                distributed.secede()
        words = ["bigcons", *re.findall(r"[a-z]+|[0-9]+", current_step().lower())]
        run = "-".join([*words, uuid.uuid4().hex])  # dashboards group tasks by how their keys begin
        function = self._send_function(task, run)
        numbered, window = enumerate(items), deque[_Sent]()
        try:
            while True:
                n_new = self.in_flight - len(window)
                if any(one.future.status in ("error", "cancelled") for one in window):
                    n_new = 0
                # Dask would search items passed as an argument for futures
                new = [
                    _Sent(_name(position, item), f"{run}-{position}", partial(run_task, run, item), function)
                    for position, item in islice(numbered, max(n_new, 0))
                ]
                self._send(new)
                window.extend(new)
                if not window:
                    break
                yield from self._collect(window)
            self.refresh()
        finally:  # the scheduler drops released tasks; the last first, or it would start in their place
            for one in reversed(window):
                one.future.release()
            if isinstance(function, distributed.Future):
                function.release()

    def _send(self, tasks: Sequence[_Sent]) -> None:
        """Send tasks in one message to the workers that were checked."""
        if tasks:
            keys, calls, functions = zip(
                *((task.key, task.call, task.function) for task in tasks), strict=True
            )
            to = sorted(self.workers) or ["none-yet"]  # sent again when there are some
            futures = self._submit(tasks[0].what, [*keys], operator.call, calls, functions, to=to)
            for task, future in zip(tasks, futures, strict=True):
                task.future, task.to = future, self.workers.keys()

    def _send_function(self, task: Callable[[Any], Any], run: str) -> bytes | distributed.Future[Any]:
        """Return the pickled task, sent with every item, or, if it is large, a future that workers share.

        The future is a task like the others, not scattered data, so it is recomputed if its worker is lost.
        """
        content: bytes = cloudpickle.dumps(task)
        # A task function sent with every item costs 6 ms per MB and item. Shared by the workers it costs
        # nothing, but Dask crowds the first blocks on the worker that has it: short folds take up to twice as
        # long on 8 workers.
        if len(content) <= 2_000_000:
            return content
        return self._submit("the task function", [f"{run}-function"], _load, [content], to=None)[0]

    def _submit(
        self,
        what: str,
        keys: list[str],
        function: Callable[..., Any],
        *arguments: Sequence[Any],
        to: list[str] | None,
    ) -> list[distributed.Future[Any]]:
        no_warning = dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"})
        with no_warning, _scheduler_errors(what):
            # without fifo_timeout=0, items sent in quick succession run in any order; were they pure, Dask
            # would hash the function with every task
            futures: list[distributed.Future[Any]] = self.client.map(
                function,
                *arguments,
                key=keys,
                pure=False,
                retries=self.retries,
                workers=to,
                fifo_timeout="0 ms",
            )
        return futures

    def _collect(self, window: deque[_Sent]) -> Iterator[Any]:
        """Wait for the first task of the window; remove it and those after it that are done.

        Yields their results in order, and raises the error of one.
        """
        what, n_done, active_at, has_warned = window[0].what, 0, time.monotonic(), False
        while True:
            try:
                with _scheduler_errors(what):
                    outcomes = self._outcomes(list(window), min(REFRESH_SECONDS, self.patience / 4))
                break
            except TimeoutError:
                pass
            n_before, n_done = n_done, sum(one.future.status not in ("pending", "lost") for one in window)
            if self._are_working() or n_done != n_before:
                active_at = time.monotonic()
            self._send_again(window)
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
        for outcome in outcomes:
            window.popleft().future.release()
            if isinstance(outcome, KilledWorker):
                raise _killed(what, outcome.allowed_failures + 1)
            if isinstance(outcome, Exception):
                raise outcome
            result, error = outcome
            if error is not None:
                raise error
            yield result

    def _outcomes(self, window: Sequence[_Sent], timeout: float) -> list[Any]:
        """Return the error of the first task, or what it and the next ones that are done returned.

        Raises TimeoutError if the first is not done, or the results have not arrived, in time.
        """
        first = window[0].future
        if first.status != "finished" and (error := first.exception(timeout=timeout)) is not None:
            return [error]
        rest = (one.future for one in window[1:])
        done = [first, *takewhile(lambda future: future.status == "finished", rest)]
        try:
            return list(self.client.sync(_gather, self.client, done, callback_timeout=timeout))
        except Exception:  # of a task that ran again, as its worker was lost
            if not any(future.status == "error" for future in done):
                raise
        return self._outcomes(window, timeout)

    def _are_working(self) -> bool:
        """Describe the workers anew; return whether a busy one has sent a heartbeat since the last time."""
        heard_before = {address: worker["last_seen"] for address, worker in self.workers.items()}
        self.refresh()
        for address, worker in self.workers.items():
            counts = worker["metrics"].get("task_counts", {})
            is_busy = any(counts.get(state, 0) for state in ("executing", "long-running", "flight"))
            if is_busy and worker["last_seen"] != heard_before.get(address):
                return True
        return False

    def _send_again(self, window: Sequence[_Sent]) -> None:
        """Send tasks again whose workers are all lost, for which Dask would wait, as often as it allows."""
        most, again = dask.config.get("distributed.scheduler.allowed-failures"), []
        for one in window if self.workers else ():
            if one.future.status in ("pending", "lost") and not one.to & self.workers.keys():
                one.n_lost += len(one.to) > 0
                if one.n_lost > most:
                    raise _killed(one.what, one.n_lost)
                one.future.release()
                one.key += "-again"
                again.append(one)
        self._send(again)


@dataclass
class _Sent:
    """A task that is sent."""

    what: str
    """Description of its item, for messages."""
    key: str
    call: Callable[..., Any]
    function: Any
    """The argument of the call: the task function, pickled, or a future of it."""
    future: Any = None
    to: Set[str] = frozenset()
    """The workers that may run it."""
    n_lost: int = 0
    """How often these were all lost."""


def _name(position: int, item: Any) -> str:
    """Describe an item for messages: by its blocks and rows, else by its position."""
    blocks = item if isinstance(item, list) and item else [item]
    first, last = (getattr(block, "block", block) for block in (blocks[0], blocks[-1]))
    if not isinstance(first, Block) or not isinstance(last, Block):
        return f"task {position}"
    span = f"block {first.index}" if first == last else f"blocks {first.index} to {last.index}"
    return f"{span} (rows {first.start} to {last.stop})"


def _killed(what: str, n_workers: int) -> ExecutionError:
    return ExecutionError(
        f"{what} ran on {n_workers} workers that died one after another; it may need more memory than they "
        "have: give them more, or store the data in smaller chunks (see the workers' logs for the cause)."
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


# Versions


# As text, because a worker without bigcons dies when it unpickles one of its tasks, and one with another
# Python when it runs bytecode of this one. Dask's get_versions reads bigcons' metadata, which need not match
# the code that is imported.
VERSIONS = """{
    "bigcons": __import__("bigcons").__version__,
    "Python": "%d.%d" % __import__("sys").version_info[:2],
    **{name: __import__("importlib.metadata").metadata.version(name) for name in ("numba", "numpy")},
}"""
TASKS = "__import__('bigcons.run.dask', fromlist=['run_task']).run_task.__name__"


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
    versions: dict[str, str] = {}
    wanted: dict[str, str] = eval(VERSIONS)  # noqa: S307 - the text above
    try:
        async with asyncio.timeout(seconds):
            versions = (await client.run(eval, VERSIONS, workers=[address]))[address]
            if other := {name: version for name, version in wanted.items() if versions[name] != version}:
                return _to_install(f"has {_listed({name: versions[name] for name in other})}", other)
            await client.run(eval, TASKS, workers=[address])
    except (ImportError, AttributeError) as error:
        what = f"runs other code of bigcons {__version__} than this process"
        what = what if versions else "cannot load bigcons"
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


# Connections


def connect_seconds() -> float:
    """Return how long a scheduler may take to answer, as Dask is configured; 30 s by default."""
    return float(parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"), default="s"))


@contextmanager
def connect(address: str, *, refused: float = 5.0) -> Iterator[DaskEngine]:
    """Yield an engine on the Dask scheduler at ``address``; disconnect at the end.

    One that is being started may refuse connections for ``refused`` seconds.
    """
    encrypted = distributed.Security().get_connection_args("client").get("ssl_context") is not None
    if address.startswith("tls://") and not encrypted:
        raise InvalidInputError(
            f"client={address!r} needs certificates; set distributed.comm.tls.ca-file, .client.cert and "
            ".client.key in Dask's configuration, such as a file that DASK_CONFIG names."
        )
    client, seconds = None, connect_seconds()
    fault = _fault_of(address, seconds, refused)
    if fault is None:
        fault = f"it takes no client within {seconds:g} s"
        with suppress(Exception):  # keeping the error would keep the client
            client = distributed.Client(address, timeout=seconds, set_as_default=False)
    if client is None:
        raise InvalidInputError(
            f"client={address!r} does not answer as a Dask scheduler ({fault}); "
            "correct the address, start one there with 'dask scheduler', or use client='threads'."
        )
    try:
        yield DaskEngine(client)
    finally:
        client.close()


def _fault_of(address: str, seconds: float, refused: float) -> str | None:
    """Return why nothing at ``address`` exchanges Dask's greetings within so many seconds; None if it does.

    A client would wait for a greeting without end.
    """

    async def greet() -> None:
        security = distributed.Security().get_connection_args("client")
        async with asyncio.timeout(seconds):
            comm = await distributed.comm.core.connect(address, timeout=min(refused, seconds), **security)
        await comm.close()

    try:
        with ThreadPoolExecutor(1) as pool:  # the caller's thread may have a running loop, as in Jupyter
            pool.submit(asyncio.run, greet()).result()
    except TimeoutError:
        return f"something listens there, but says nothing within {seconds:g} s"
    except Exception as error:
        return one_line(error)
    return None


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


def run_task(
    run: str, item: Item, task: bytes | Callable[[Item], Result]
) -> tuple[Result | None, BigconsError | None]:
    """Return what a task function, pickled or not, returns for the item, or an error that would recur.

    Were that raised, Dask would retry the task.
    """
    try:
        function = _unpickled(run, task) if isinstance(task, bytes) else task
        with _naming_the_worker():
            return function(item), None
    except BigconsError as error:
        if isinstance(error, OSError) or isinstance(error.__cause__, OSError):
            raise  # a disk or a network may recover
        return None, error


_latest: tuple[str, Callable[[Any], Any] | None] = ("", None)


def _unpickled(run: str, content: bytes) -> Callable[[Any], Any]:
    """Return the task function of a run, so that a worker opens its stores once for all blocks."""
    global _latest  # replaced as a whole: threads of the worker may do so concurrently
    latest_run, function = _latest
    if latest_run != run or function is None:
        function = _load(content)
        _latest = run, function
    return function


def _load(content: bytes) -> Callable[[Any], Any]:
    """Unpickle a task function; raises ExecutionError if its code is not on this worker."""
    try:
        with _naming_the_worker():
            return cast("Callable[[Any], Any]", cloudpickle.loads(content))
    except BigconsError:
        raise  # an optional package is missing
    except (ImportError, AttributeError) as error:
        raise ExecutionError(
            f"Dask worker {distributed.get_worker().address} cannot load a task ({one_line(error)}): its "
            "version of bigcons or of one of your modules differs from this process's; install the same on "
            "every worker and restart them."
        ) from error


@contextmanager
def _naming_the_worker() -> Iterator[None]:
    """Add the worker's address to the error about a store that the worker cannot find, or access."""
    try:
        yield
    except StoreNotFoundError as error:
        raise StoreNotFoundError(
            f"on Dask worker {distributed.get_worker().address}, {one_line(error)} "
            "Workers must find a store at the same path as this process; use a shared path."
        ) from error
    except StoreError as error:
        if type(error) is not StoreError:
            raise  # of what is in the store, whoever reads it
        where = f"on Dask worker {distributed.get_worker().address}"
        raise StoreError(f"{where}, {one_line(error)}", path=error.path) from error.__cause__
