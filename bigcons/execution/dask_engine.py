"""The engine on Dask workers: few blocks in flight, lost workers survived, no wait without an end.

Imported only when a client is in play, for ``distributed`` takes half a second to import.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Sized
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice, starmap
from typing import Any, NamedTuple, TypeVar

import cloudpickle  # type: ignore[import-untyped]
import dask
import distributed
from distributed.client import ClosedClientError
from distributed.scheduler import KilledWorker

from bigcons.errors import ExecutionError, InvalidInputError
from bigcons.execution.dask_tasks import Done, Refusal, load_shared, run_task
from bigcons.execution.dask_workers import CONNECT_SECONDS, Crew, Watch
from bigcons.memory import Block

Item = TypeVar("Item")
Result = TypeVar("Result")

# Dask gives the blocks of a worker that fell silent to others after 300 s, its worker-ttl: wait for that.
PATIENCE = 360.0

# Sent along, a task function costs each block 6 ms a MB. Shared by the workers it costs nothing, but Dask
# crowds the first blocks on the worker that has it: short folds take up to twice as long on 8 workers.
BYTES_WITH_BLOCK = 2_000_000

# A task costs the scheduler and a worker some 10 ms of CPU, whatever is in it: short items share one, as
# many as take this long together and return no more than BUNDLE_BYTES.
TASK_SECONDS = 0.4
MOST_TOGETHER = 8
BUNDLE_BYTES = 1_000_000


class DaskEngine:
    """Tasks on the workers of a ``distributed.Client``, which stays the caller's to close.

    Tasks may run more than once: on another worker when theirs is lost, and again after an error, at most
    ``retries`` times; a BigconsError says what will not go away and is raised at once. A worker's own ending
    is survived as often as Dask allows (``distributed.scheduler.allowed-failures``, 3).

    Every worker has to run this version of bigcons, which is looked at when the engine is made and whenever
    workers appear; if not, an ExecutionError names the worker.

    A wait in which no block comes and no worker is seen working for ``patience`` seconds ends in an
    ExecutionError; so does the loss of the scheduler, at once. A task that runs is given all its time.

    Two tasks per worker thread and two more are in flight, each of one item, or of up to eight short ones
    that return little; towards the end they go singly again, for the workers to end together. Workers keep
    what a block frees for the next one, see `allocator.keep_freed_memory`.
    """

    name = "dask"
    shares_memory = False
    bundle_bytes = BUNDLE_BYTES

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
        Crew(client).look()

    @property
    def n_workers(self) -> int:
        """Worker threads at this time, at least 1."""
        return max(1, Crew(self.client).n_threads)

    @property
    def in_flight(self) -> int:
        """Tasks that are sent and not collected, at most."""
        return _bound(self.n_workers)

    @property
    def n_processes(self) -> int:
        """Workers on the host that has the most of them, and this process."""
        return 1 + Crew(self.client).most_on_a_host

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Generator[Result, None, None]:
        """Yield ``task(item)`` for every item, in the order of the items."""
        crew = Crew(self.client)
        run = uuid.uuid4().hex
        function = self._send_function(task, run)
        waiting: deque[_Sent] = deque()
        queue = _Queue(items)
        try:
            while group := queue.take(crew.n_threads):
                what, key = _name(group), f"bigcons-block-{run}-{group[0].position}"
                # as an argument, the items would be searched for futures
                work = partial(run_task, run, [numbered.item for numbered in group])
                waiting.append(_Sent(what, self._submit(what, key, work, function)))
                while queue.has_sent_enough(waiting, crew.n_threads):
                    yield from queue.results_of(self._collect(waiting, crew))
            while waiting:
                yield from self._collect(waiting, crew).results
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
        return self._submit("the task function", f"bigcons-task-{run}", load_shared, content)

    def _submit(self, what: str, key: str, function: Callable[..., Any], *args: Any) -> distributed.Future:
        no_warning = dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"})
        with no_warning, _scheduler_errors(what):
            # without a time for first-in-first-out, blocks sent shortly after one another run in any order
            return self.client.submit(function, *args, key=key, retries=self.retries, fifo_timeout="0 ms")

    def _collect(self, waiting: deque[_Sent], crew: Crew) -> Done:
        """Wait for the head of what was sent, take it out and return what it did, or raise its error."""
        what, future = waiting[0]
        watch = Watch(crew, what, self.patience)
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
                "need more memory than they have: give them more, or store the data in smaller chunks "
                "(logs of workers say why they ended)."
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
    """Items on their way, in one task."""

    what: str
    """Their name for messages."""
    future: distributed.Future

    @property
    def has_failed(self) -> bool:
        return bool(self.future.status in ("error", "cancelled"))


class _Numbered(NamedTuple):
    position: int
    item: Any


class _Queue:
    """Items that are not sent yet, and how many of them go with one task."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = starmap(_Numbered, enumerate(items))
        # what is drawn from a generator is data often, of which no more than the plan says may be drawn
        self._n_left = len(items) if isinstance(items, Sized) else 0
        self._most_together = 0.0
        """As the latest results tell; 0 before the first."""

    def take(self, n_threads: int) -> list[_Numbered]:
        """Return the items of the next task, in their order; none if there are no more."""
        group = list(islice(self._items, self._n_together(n_threads)))
        self._n_left -= len(group)
        return group

    def results_of(self, done: Done) -> list[Any]:
        """Take note of what a task took, and return its results."""
        by_time = TASK_SECONDS / max(done.seconds, 1e-6)
        by_size = BUNDLE_BYTES / max(done.n_bytes, 1)
        self._most_together = min(by_time, by_size) * len(done.results)
        return done.results

    def has_sent_enough(self, waiting: Sequence[_Sent], n_threads: int) -> bool:
        """Return whether something has to be collected before the next task is sent."""
        # of the first, enough to keep all at work: they tell how the others are grouped
        most = _bound(n_threads) if self._most_together else n_threads + 1
        return len(waiting) >= most or any(sent.has_failed for sent in waiting)

    def _n_together(self, n_threads: int) -> int:
        to_end_together = self._n_left / (2 * max(n_threads, 1))
        return max(1, int(min(MOST_TOGETHER, self._most_together, to_end_together)))


def _outcome(future: distributed.Future, timeout: float) -> tuple[Exception | None, Any]:
    """Return the task's error or what it did; raise TimeoutError if it does not come."""
    try:
        result = future.result(timeout=timeout)
    except Exception as error:
        if future.status != "error":
            raise
        return error, None
    return (result.error, None) if isinstance(result, Refusal) else (None, result)


@contextmanager
def _scheduler_errors(what: str) -> Iterator[None]:
    """Say in one line that the scheduler was lost, or the client closed."""
    try:
        yield
    except TimeoutError:
        raise
    except (OSError, CancelledError, ClosedClientError) as error:
        raise ExecutionError(
            f"the Dask scheduler was lost or dropped its work, or the client was closed, before {what} came "
            "back; if the scheduler ended, start it and its workers, which end with it, again; connect a new "
            "client, then run again (a solve with out= can be resumed)."
        ) from error


def _bound(n_threads: int) -> int:
    return 2 * n_threads + 2


def _name(group: Sequence[_Numbered]) -> str:
    first, last = group[0], group[-1]
    blocks = [getattr(numbered.item, "block", numbered.item) for numbered in (first, last)]
    if not all(isinstance(block, Block) for block in blocks):
        return _span("task", first.position, last.position)
    return f"{_span('block', blocks[0].index, blocks[1].index)} (rows {blocks[0].start} to {blocks[1].stop})"


def _span(word: str, first: int, last: int) -> str:
    return f"{word} {first}" if first == last else f"{word}s {first} to {last}"
