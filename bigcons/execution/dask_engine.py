"""The engine on Dask workers: bounded blocks in flight, recovery from lost workers, and no endless waits.

Imported only when a client is used, because ``distributed`` takes half a second to import.
"""

from __future__ import annotations

import asyncio
import ctypes
import operator
import os
import re
import time
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Sized
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice, takewhile
from typing import Any, NamedTuple, TypeVar, cast

import cloudpickle  # type: ignore[import-untyped]
import dask
import distributed
from dask.sizeof import sizeof
from dask.utils import parse_timedelta
from distributed.client import ClosedClientError
from distributed.scheduler import KilledWorker

from bigcons.errors import BigconsError, ExecutionError, InvalidInputError, StoreError, StoreNotFoundError
from bigcons.execution.dask_workers import KEY_PREFIX, Admission, Wait, Workers, connect_seconds, one_line
from bigcons.memory import MOST_TOGETHER, Block, EngineSizes
from bigcons.progress import current_step

Item = TypeVar("Item")
Result = TypeVar("Result")

# A task costs client, scheduler and worker some 4 ms of CPU, whatever it does. Short items therefore share a
# task, as many as take this long together and return at most `DaskEngine.bundle_bytes`.
TASK_SECONDS = 0.4

# The MALLOC_TRIM_THRESHOLD_ that Dask's nanny sets in its workers, and the thresholds set instead (malloc.h;
# 32 MB is the most that glibc allows for the second).
DASK_TRIM_THRESHOLD = "65536"


class DaskEngine:
    """Tasks on the workers of a ``distributed.Client``, which the caller closes.

    A task is retried on another worker if its worker is lost, and after an error at most ``retries`` times; a
    BigconsError would recur and is raised at once. A task may lose as many workers as Dask allows
    (``distributed.scheduler.allowed-failures``, 3). A lost worker and the number of its tasks are logged.

    Every worker must run this version of bigcons, Python (3.x), Numba and NumPy. This is checked when the
    engine is made and whenever workers join; an ExecutionError names a worker that does not.

    A wait ends in an ExecutionError if for ``patience`` seconds no block arrives and no worker is busy, and
    at once if the scheduler is lost. Running tasks are never timed out.

    Two tasks per worker thread plus two are in flight, more of those with small results, each with one item,
    or with up to eight short items; near the end they have one item again, so that workers finish together.
    Workers reuse freed memory for the next block, see `keep_freed_memory`.
    """

    name = "dask"
    shares_memory = False
    bundle_bytes = 1_000_000

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
        self.admission: Admission = Admission(client, self._sizes)
        Workers(client).refresh()

    @property
    def n_workers(self) -> int:
        """Current number of worker threads, at least 1."""
        return max(1, Workers(self.client, self.admission).n_threads)

    @property
    def in_flight(self) -> int:
        """The most tasks that are sent and not collected, of results as large as bundles may be."""
        return _in_flight(self.n_workers)

    @property
    def n_processes(self) -> int:
        """Worker processes on the host that has the most of them, and this process."""
        return 1 + Workers(self.client, self.admission).most_on_a_host

    def _sizes(self, n_on_a_host: int, n_threads: int) -> EngineSizes:
        """Return the sizes of an engine with other workers."""
        return EngineSizes(
            n_threads, _in_flight(n_threads), self.bundle_bytes, 1 + n_on_a_host, self.shares_memory
        )

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Generator[Result, None, None]:
        """Yield ``task(item)`` for every item, in the order of the items."""
        _secede()
        workers = Workers(self.client, self.admission)
        run, work = uuid.uuid4().hex, _key_of_work()
        function = self._send_function(task, run)
        sent: deque[_Sent] = deque()
        bundles = _Bundles(items)
        try:
            while (taken := bundles.take(sent, workers.n_threads)) or sent:
                # Dask would search items passed as an argument for futures
                calls = [partial(run_task, run, [item for _, item in bundle]) for bundle in taken]
                keys = [f"{work}-{run}-{bundle[0][0]}" for bundle in taken]
                new = [_Sent(*one, function) for one in zip(map(_name, taken), keys, calls, strict=True)]
                self._send(new, workers.chosen)
                sent.extend(new)
                for done in self._collect(sent, workers, bundles.n_at_once):
                    bundles.adapt(done)
                    yield from done.results
            workers.tell_lost()
        finally:  # the scheduler drops released tasks; the last first, or it would start in their place
            for one in reversed(sent):
                one.future.release()
            if isinstance(function, distributed.Future):
                function.release()

    def _send(self, tasks: Sequence[_Sent], to: frozenset[str] | None) -> None:
        """Send tasks in one message."""
        if not tasks:
            return
        keys, calls, functions = zip(*((task.key, task.call, task.function) for task in tasks), strict=True)
        futures = self._submit(tasks[0].what, [*keys], operator.call, calls, functions, to=to)
        for task, future in zip(tasks, futures, strict=True):
            task.future, task.to = future, to

    def _send_again(self, sent: deque[_Sent], workers: Workers) -> None:
        """Send tasks again that only some workers may run, if others may now.

        These are tasks whose workers are all lost, for which Dask would wait, and those far behind, which
        newcomers may begin.
        """
        n_near = _in_flight(workers.n_threads)
        chosen = workers.chosen
        if not chosen or sent[-1].to == chosen:
            return
        again = []
        for position, one in enumerate(sent):
            are_lost = one.to is not None and not one.to & chosen
            if not _is_done(one) and one.to != chosen and (are_lost or position >= n_near):
                one.future.release()
                one.key += "-again"
                again.append(one)
        self._send(again, chosen)

    def _send_function(self, task: Callable[[Any], Any], run: str) -> bytes | distributed.Future[Any]:
        """Return the pickled task, sent with every block, or, if it is large, a future that workers share.

        The future is a task like the others, not scattered data, so it is recomputed if its worker is lost.
        """
        content: bytes = cloudpickle.dumps(task)
        # A task function sent with every block costs 6 ms per MB and block. Shared by the workers it costs
        # nothing, but Dask crowds the first blocks on the worker that has it: short folds take up to twice as
        # long on 8 workers.
        if len(content) <= 2_000_000:
            return content
        key = f"{_key_of_work()}-function-{run}"
        return self._submit("the task function", [key], load_shared, [content])[0]

    def _submit(
        self,
        what: str,
        keys: list[str],
        function: Callable[..., Any],
        *arguments: Sequence[Any],
        to: frozenset[str] | None = None,
    ) -> list[distributed.Future[Any]]:
        no_warning = dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"})
        with no_warning, _scheduler_errors(what):
            # without fifo_timeout=0, blocks sent in quick succession run in any order; were they pure, Dask
            # would hash the function with every task
            futures: list[distributed.Future[Any]] = self.client.map(
                function,
                *arguments,
                key=keys,
                pure=False,
                retries=self.retries,
                workers=None if to is None else sorted(to),
                fifo_timeout="0 ms",
            )
        return futures

    def _collect(self, sent: deque[_Sent], workers: Workers, n_at_once: int) -> Iterator[Done]:
        """Wait for the first task sent, remove it and those after it that are done, up to so many.

        Yields their outcomes in order, and raises the error of one.
        """
        self._send_again(sent, workers)
        what = sent[0].what
        wait = Wait(workers, what, self.patience)
        while True:
            try:
                with _scheduler_errors(what):
                    outcomes = self._outcomes(list(islice(sent, n_at_once)), wait.check_seconds)
                break
            except TimeoutError:
                wait.check(n_done=sum(map(_is_done, sent)))
                self._send_again(sent, workers)
        for outcome in outcomes:
            sent.popleft().future.release()
            if isinstance(outcome, KilledWorker):
                raise ExecutionError(
                    f"{what} ran on {outcome.allowed_failures + 1} workers that died one after another; it "
                    "may need more memory than they have: give them more, or store the data in smaller "
                    "chunks (see the workers' logs for the cause)."
                )
            if isinstance(outcome, FinalError):
                raise outcome.error
            if isinstance(outcome, Exception):
                raise outcome
            yield outcome

    def _outcomes(self, sent: Sequence[_Sent], timeout: float) -> list[Done | FinalError | Exception]:
        """Return the error of the first task, or its result and those of the next ones that are done.

        Raises TimeoutError if the first is not done, or the results have not arrived, in time.
        """
        first = sent[0].future
        if first.status != "finished" and (error := first.exception(timeout=timeout)) is not None:
            return [cast("Exception", error)]
        others = takewhile(lambda future: future.status == "finished", [one.future for one in sent[1:]])
        done = [first, *others]
        try:
            return list(self.client.sync(_gather, self.client, done, callback_timeout=timeout))
        except Exception:  # of a task that ran again, as its worker was lost
            if not any(future.status == "error" for future in done):
                raise
        return self._outcomes(sent, timeout)


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


def _secede() -> None:
    """Within a Dask task, leave its worker a thread for the tasks that are now sent, and waited for here."""
    if is_within_task():
        with suppress(KeyError):  # of a thread that has left, for an earlier map or by its own code
            distributed.secede()


@dataclass
class _Sent:
    """A submitted task."""

    what: str
    """Description of its items, for messages."""
    key: str
    call: Callable[..., Any]
    function: Any
    """The argument of the call: the task function, pickled, or a future of it."""
    future: Any = None
    to: frozenset[str] | None = None
    """The workers that may run it; None for all."""


def _is_done(one: _Sent) -> bool:
    """Return whether a task has ended, and its worker still has the result."""
    return one.future.status not in ("pending", "lost")


async def _gather(client: distributed.Client, futures: list[distributed.Future[Any]]) -> Any:
    return await client.gather(futures, asynchronous=True)


class _Bundles:
    """Items not sent yet, and how many of them share a task."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = enumerate(items)
        # generators often yield data, so draw no more than the memory plan allows
        self._n_left = len(items) if isinstance(items, Sized) else 0
        self._together = 0.0
        """Items per task according to the latest results; 0 before the first."""
        self._seconds = self._n_bytes = 0.0
        """Seconds and bytes of an item, according to the latest results."""
        self.n_at_once = 1
        """Tasks whose results are collected together: as large as those of so many bundles may be."""

    def take(self, sent: Sequence[_Sent], n_threads: int) -> list[list[tuple[int, Any]]]:
        """Return the items, with their positions, of each task that may be sent; none at the end or after an
        error.
        """
        most = self._most_in_flight(n_threads)
        bundles: list[list[tuple[int, Any]]] = []
        if any(one.future.status in ("error", "cancelled") for one in sent):
            return bundles
        while len(sent) + len(bundles) < most and (bundle := self._next(n_threads)):
            bundles.append(bundle)
        return bundles

    def _next(self, n_threads: int) -> list[tuple[int, Any]]:
        to_end_together = self._n_left / (2 * max(n_threads, 1))
        n_items = max(1, int(min(MOST_TOGETHER, self._together, to_end_together)))
        bundle = list(islice(self._items, n_items))
        self._n_left -= len(bundle)
        return bundle

    def adapt(self, done: Done) -> None:
        """Set the number of items per task from the time and memory that a task took."""
        by_time = TASK_SECONDS / max(done.seconds, 1e-6)
        by_size = DaskEngine.bundle_bytes / max(done.n_bytes, 1)
        self._together = min(by_time, by_size) * len(done.results)
        self.n_at_once = max(1, int(MOST_TOGETHER * by_size))
        self._seconds = done.seconds / len(done.results)
        self._n_bytes = done.n_bytes / len(done.results)

    def _most_in_flight(self, n_threads: int) -> int:
        """Return how many tasks may be sent and not collected.

        Workers do not wait for the client, and adaptive clusters grow, if twice the work that such a cluster
        wants for a worker is sent ahead: of items that are all there, and of results that together are no
        larger than the plan of memory expects.
        """
        planned = _in_flight(n_threads)
        if self._n_left <= 0 or not self._seconds:  # drawn as they go, or nothing is known yet
            return planned
        target = float(parse_timedelta(dask.config.get("distributed.adaptive.target-duration")))
        n_items = max(1, int(min(MOST_TOGETHER, self._together)))
        by_time = 2 * n_threads * target / max(n_items * self._seconds, 1e-3)
        by_size = planned * DaskEngine.bundle_bytes / max(n_items * self._n_bytes, 1)
        return max(planned, int(min(by_time, by_size)))


def _in_flight(n_threads: int) -> int:
    return 2 * n_threads + 2


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


def _name(bundle: Sequence[tuple[int, Any]]) -> str:
    """Describe the items for messages: by their blocks and rows, else by their positions."""
    (first, first_item), (last, last_item) = bundle[0], bundle[-1]
    if isinstance(first_item, list) and isinstance(last_item, list):  # groups of blocks
        first_item, last_item = next(iter(first_item), None), next(reversed(last_item), None)
    blocks = [getattr(item, "block", item) for item in (first_item, last_item)]
    if not all(isinstance(block, Block) for block in blocks):
        return _span("task", first, last)
    return f"{_span('block', blocks[0].index, blocks[1].index)} (rows {blocks[0].start} to {blocks[1].stop})"


def _key_of_work() -> str:
    """Return the start of the keys of tasks, by which dashboards group them: what is done, and which pass."""
    words = re.findall(r"[a-z]+|[0-9]+", re.split(" of about|, gap", current_step())[0].lower())
    return "-".join([KEY_PREFIX, *words])


def _span(word: str, first: int, last: int) -> str:
    return f"{word} {first}" if first == last else f"{word}s {first} to {last}"


# Code that runs on the workers


class Done(NamedTuple):
    """Outcome of a task."""

    results: list[Any]
    seconds: float
    n_bytes: int
    """Approximate size of the results."""


class FinalError(NamedTuple):
    """An error that would recur, returned as a result so that Dask does not retry the task."""

    error: BigconsError


def run_task(run: str, items: Sequence[Item], task: bytes | Callable[[Item], Any]) -> Done | FinalError:
    """Run a task function, pickled or not, on the items."""
    keep_freed_memory()
    began = time.perf_counter()
    try:
        with _naming_the_worker():
            function = _unpickled(run, task) if isinstance(task, bytes) else task
            results = [function(item) for item in items]
        return Done(results, time.perf_counter() - began, sizeof(results))
    except BigconsError as error:
        if isinstance(error, OSError) or isinstance(error.__cause__, OSError):
            raise  # a disk or a network may recover
        return FinalError(error)


_latest: tuple[str, Callable[[Any], Any] | None] = ("", None)


def _unpickled(run: str, content: bytes) -> Callable[[Any], Any]:
    """Return the task function of a run, so that a worker opens its stores once for all blocks."""
    global _latest  # replaced as a whole: threads of the worker may do so concurrently
    latest_run, function = _latest
    if latest_run != run or function is None:
        function = _load(content)
        _latest = run, function
    return function


def load_shared(content: bytes) -> Callable[[Any], Any]:
    """Return the task function of a run, as a task of its own."""
    with _naming_the_worker():
        return _load(content)


def _load(content: bytes) -> Callable[[Any], Any]:
    """Unpickle a task function; raises ExecutionError if its code is not on this worker."""
    try:
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


@cache
def keep_freed_memory() -> None:
    """Let glibc keep up to 64 MB of freed memory despite Dask's setting.

    Under Dask's setting, every buffer of a block returns to the system and is mapped again, page by page, for
    the next block, which doubles the time to read one. A threshold set by the user and other allocators are
    left alone. Runs once per process.
    """
    if os.environ.get("MALLOC_TRIM_THRESHOLD_") != DASK_TRIM_THRESHOLD:
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(-1, 64 << 20)  # M_TRIM_THRESHOLD
    mallopt(-3, 32 << 20)  # M_MMAP_THRESHOLD
