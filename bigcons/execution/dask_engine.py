"""The engine on Dask workers: few blocks in flight, lost workers survived, no wait without an end.

Imported only when a client is in play, for ``distributed`` takes half a second to import.
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

import cloudpickle  # type: ignore[import-untyped]
import dask
import distributed
from distributed.client import ClosedClientError
from distributed.scheduler import KilledWorker

from bigcons.errors import BigconsError, ExecutionError, InvalidInputError
from bigcons.execution.allocator import keep_freed_memory
from bigcons.memory import Block

Item = TypeVar("Item")
Result = TypeVar("Result")

logger = logging.getLogger("bigcons")

CONNECT_SECONDS = 5.0

# Dask gives the blocks of a worker that fell silent to others after 300 s, its worker-ttl: wait for that.
PATIENCE = 360.0

# Sent along, a task function costs each block 6 ms a MB. Shared by the workers it costs nothing, but Dask
# crowds the first blocks on the worker that has it: short folds take up to twice as long on 8 workers.
BYTES_WITH_BLOCK = 2_000_000

LOOK_SECONDS = 2.0
WARN_SECONDS = 20.0

BUSY_STATES = ("executing", "long-running", "flight")


class DaskEngine:
    """Tasks on the workers of a ``distributed.Client``, which stays the caller's to close.

    Tasks may run more than once: on another worker when theirs is lost, and again after an error, at most
    ``retries`` times; a BigconsError says what will not go away and is raised at once. A worker's own ending
    is survived as often as Dask allows (``distributed.scheduler.allowed-failures``, 3).

    A wait in which no block comes and no worker is seen working for ``patience`` seconds ends in an
    ExecutionError; so does the loss of the scheduler, at once. A task that runs is given all its time.

    Two blocks per worker thread and two more are in flight. A block costs about 3 ms beside its own work.
    Workers keep what a block frees for the next one, see `allocator.keep_freed_memory`.
    """

    name = "dask"
    shares_memory = False

    def __init__(self, client: distributed.Client, *, retries: int = 3, patience: float = PATIENCE) -> None:
        if client.asynchronous:
            raise InvalidInputError("client= is asynchronous; pass a distributed.Client(asynchronous=False).")
        if client.status not in ("running", "connecting"):
            raise InvalidInputError(
                f"client= is {client.status}; pass a distributed.Client that is connected."
            )
        self.client = client
        self.retries = retries
        self.patience = patience

    @property
    def n_workers(self) -> int:
        """Worker threads at this time, at least 1."""
        return max(1, _Crew(self.client).n_threads)

    @property
    def in_flight(self) -> int:
        """Blocks that are sent and not collected, at most."""
        return _bound(self.n_workers)

    @property
    def n_processes(self) -> int:
        """Workers on the host that has the most of them, and this process."""
        return 1 + _Crew(self.client).most_on_a_host

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Generator[Result, None, None]:
        """Yield ``task(item)`` for every item, in the order of the items."""
        crew = _Crew(self.client)
        run = uuid.uuid4().hex
        function = self._send_function(task, run)
        waiting: deque[_Sent] = deque()
        try:
            for position, item in enumerate(items):
                while len(waiting) >= _bound(crew.n_threads) or any(sent.has_failed for sent in waiting):
                    yield self._collect(waiting, crew)
                what, key = _name(position, item), f"bigcons-block-{run}-{position}"
                # as an argument, the item would be searched for futures
                waiting.append(_Sent(what, self._submit(what, key, partial(_run, run, item), function)))
            while waiting:
                yield self._collect(waiting, crew)
        finally:  # the scheduler drops what nobody holds; the last first, or it would take the others' place
            for sent in reversed(waiting):
                sent.future.release()
            if isinstance(function, distributed.Future):
                function.release()

    def _send_function(self, task: Callable[[Any], Any], run: str) -> bytes | distributed.Future:
        """Return the pickled task to go with every block, or, if it is large, a future that workers share.

        The future is of a task like the others, not scattered: it is done again if its worker is lost.
        """
        content: bytes = cloudpickle.dumps(task)
        if len(content) <= BYTES_WITH_BLOCK:
            return content
        return self._submit("the task function", f"bigcons-task-{run}", cloudpickle.loads, content)

    def _submit(self, what: str, key: str, function: Callable[..., Any], *args: Any) -> distributed.Future:
        no_warning = dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"})
        with no_warning, _scheduler_errors(what):
            # without a time for first-in-first-out, blocks sent shortly after one another run in any order
            return self.client.submit(function, *args, key=key, retries=self.retries, fifo_timeout="0 ms")

    def _collect(self, waiting: deque[_Sent], crew: _Crew) -> Any:
        """Wait for the head of the queue, take it out and return its result, or raise its error."""
        what, future = waiting[0]
        watch = _Watch(crew, what, self.patience)
        while True:
            try:
                with _scheduler_errors(what):
                    error, result = _outcome(future, watch.look_seconds)
                break
            except TimeoutError:
                watch.look(n_done=sum(sent.future.status != "pending" for sent in waiting))
        waiting.popleft()
        future.release()
        if isinstance(error, KilledWorker):
            raise ExecutionError(
                f"{what} was with {error.allowed_failures + 1} workers that died one after another; it may "
                "need more memory than they have: give them more, or store the data in smaller chunks."
            )
        if error is not None:
            raise error
        return result


@contextmanager
def connect(address: str) -> Iterator[DaskEngine]:
    """Yield an engine on the Dask scheduler at ``address``; disconnect at the end."""
    client = None
    with suppress(Exception):  # anything may answer there; a kept error would keep the client
        client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    if client is None:
        raise InvalidInputError(
            f"client={address!r} does not answer as a Dask scheduler within {CONNECT_SECONDS:.0f} s; "
            "correct the address, start one there with 'dask scheduler', or use client='threads'."
        )
    try:
        yield DaskEngine(client)
    finally:
        client.close()


def active_client() -> distributed.Client | None:
    """Return the client that is active here, if it can be used from plain code."""
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


class _Sent(NamedTuple):
    """An item on its way."""

    what: str
    """Its name for messages."""
    future: distributed.Future

    @property
    def has_failed(self) -> bool:
        return bool(self.future.status in ("error", "cancelled"))


class _Refusal(NamedTuple):
    """An error that would come again, returned as a result so that it is not tried again."""

    error: BigconsError


def _run(run: str, item: Item, task: bytes | Callable[[Item], Result]) -> Result | _Refusal:
    """Do a task of a run, pickled or not, on a worker."""
    keep_freed_memory()
    try:
        return (_unpickled(run, task) if isinstance(task, bytes) else task)(item)
    except BigconsError as error:
        if isinstance(error, OSError) or isinstance(error.__cause__, OSError):
            raise  # a disk or a network may recover
        return _Refusal(error)


_latest: tuple[str, Callable[[Any], Any] | None] = ("", None)


def _unpickled(run: str, content: bytes) -> Callable[[Any], Any]:
    """Return the task function of a run: stores are opened once for all of its blocks on a worker."""
    global _latest  # replaced as a whole: threads of the worker may do this at once
    latest_run, function = _latest
    if latest_run != run or function is None:
        function = cloudpickle.loads(content)
        _latest = run, function
    return function


def _outcome(future: distributed.Future, timeout: float) -> tuple[Exception | None, Any]:
    """Return the task's error or result; raise TimeoutError if it does not come."""
    try:
        result = future.result(timeout=timeout)
    except Exception as error:
        if future.status != "error":
            raise
        return error, None
    return (result.error, None) if isinstance(result, _Refusal) else (None, result)


@contextmanager
def _scheduler_errors(what: str) -> Iterator[None]:
    """Say in one line that the scheduler was lost."""
    try:
        yield
    except TimeoutError:
        raise
    except (OSError, CancelledError, ClosedClientError) as error:
        raise ExecutionError(
            f"the Dask scheduler was lost, or dropped its work, before {what} came back; "
            "see that it runs, then run again (a solve with out= can be resumed)."
        ) from error


def _bound(n_threads: int) -> int:
    return 2 * n_threads + 2


def _name(position: int, item: Any) -> str:
    block = getattr(item, "block", item)
    if isinstance(block, Block):
        return f"block {block.index} (rows {block.start} to {block.stop})"
    return f"task {position}"


class _Crew:
    """The workers as the scheduler last described them, asked again when that is a while ago."""

    def __init__(self, client: distributed.Client) -> None:
        self._client = client
        self._asked = -math.inf
        self._workers: dict[str, dict[str, Any]] = {}
        self._heard: dict[str, float] = {}

    @property
    def n_threads(self) -> int:
        """Worker threads, of the last seconds."""
        if time.monotonic() - self._asked > LOOK_SECONDS:
            self._ask()
        return sum(worker["nthreads"] for worker in self._workers.values())

    @property
    def most_on_a_host(self) -> int:
        """Worker processes on the host that has the most of them now."""
        self._ask()
        return max(Counter(worker["host"] for worker in self._workers.values()).values(), default=0)

    def is_working(self) -> bool:
        """Return whether any worker gave a sign of life since the last look and is at work."""
        self._heard = {address: worker["last_seen"] for address, worker in self._workers.items()}
        self._ask()
        return any(map(self._is_at_work, self._workers))

    def __str__(self) -> str:
        states = Counter(worker["status"] for worker in self._workers.values())
        return ", ".join(f"{n} {state}" for state, n in sorted(states.items())) or "none there"

    def _is_at_work(self, address: str) -> bool:
        worker = self._workers[address]
        counts = worker["metrics"].get("task_counts", {})
        is_heard = worker["last_seen"] != self._heard.get(address)
        return is_heard and any(counts.get(state, 0) for state in BUSY_STATES)

    def _ask(self) -> None:
        self._asked = time.monotonic()
        try:
            self._workers = self._client.sync(
                _describe_workers, self._client, callback_timeout=CONNECT_SECONDS
            )
        except OSError:  # a scheduler that does not answer shows no worker at work
            self._workers = {}


async def _describe_workers(client: distributed.Client) -> dict[str, dict[str, Any]]:
    return dict((await client.scheduler.identity(n_workers=-1))["workers"])


class _Watch:
    """Watches one wait: it ends when nothing has come and nobody has worked for too long."""

    def __init__(self, crew: _Crew, what: str, patience: float) -> None:
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
                f"(workers: {self._crew}); start workers or free the memory of paused ones, then run again."
            )
        if quiet > WARN_SECONDS and not self._has_warned:
            self._has_warned = True
            logger.warning("waiting for %s; no Dask worker works (workers: %s)", self._what, self._crew)
