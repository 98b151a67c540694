"""Engines, which map tasks over items, and the fold over row blocks that implements a pass.

An engine is a bounded, ordered map: it applies a function to items and yields the results in the order of
the items, with only a few in flight. `fold` combines them in a fixed order, so that no result depends on the
number of workers. If items fail, every engine raises the error of the first, and queued items are not
started; the same holds for an interrupt. Within a task, `one_thread` keeps BLAS and OpenMP to its own thread.
"""

from __future__ import annotations

import copy
import math
import os
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, nullcontext
from functools import cache
from typing import Any, Protocol, Self, TypeVar

from bigcons.errors import InvalidInputError
from bigcons.memory import Block
from bigcons.progress import Progress
from bigcons.progress import progress as show

Item = TypeVar("Item")
Result = TypeVar("Result")
Sums = TypeVar("Sums")


class Engine(Protocol):
    """Interface of all engines, and base class of the engines in this process."""

    name: str
    """For logs."""
    n_workers: int
    """Number of items that may run at a time."""
    in_flight: int
    """The most results being computed or awaiting collection."""
    n_processes: int = 1
    """Processes on one machine with the packages loaded, including this one."""
    shares_memory: bool = True
    """Whether tasks share the arrays of the calling process and may write to them."""

    def check_limits(self, name: str, per_process: int, per_thread: int) -> None:  # noqa: ARG002
        """Raise MemoryBudgetError for a worker process that may not hold so many bytes."""
        return  # there is none

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Generator[Result, None, None]:
        """Yield ``task(item)`` for every item, in the order of the items. Closing cancels queued items."""


class SerialEngine(Engine):
    """One task after another in the calling thread."""

    name: str = "serial"
    n_workers: int = 1
    in_flight: int = 1

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Generator[Result, None, None]:
        """Yield ``task(item)`` for every item, in the order of the items."""
        for item in items:
            yield task(item)


class ThreadsEngine(Engine):
    """A pool of threads: the default on one machine, since kernels and decompression release the GIL."""

    name: str = "threads"

    def __init__(self, n_workers: int | None = None) -> None:
        self.n_workers: int = n_workers or available_cores()
        self.in_flight: int = self.n_workers + 1

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Generator[Result, None, None]:
        """Yield ``task(item)`` for every item, in the order of the items."""
        stop_after = math.inf

        def run(position: int, item: Item) -> Result:
            nonlocal stop_after
            if position > stop_after:
                raise CancelledError
            _running.is_cancelled = lambda: position > stop_after
            try:
                return task(item)
            except BaseException:
                stop_after = min(stop_after, position)
                raise

        futures: deque[Future[Result]] = deque()
        with ThreadPoolExecutor(self.n_workers, thread_name_prefix="bigcons") as pool:
            try:
                for position, item in enumerate(items):
                    if len(futures) == self.in_flight:
                        yield futures.popleft().result()
                    futures.append(pool.submit(run, position, item))
                while futures:
                    yield futures.popleft().result()
            finally:
                stop_after = -1


_running = threading.local()


def stop_if_cancelled() -> None:
    """Raise CancelledError in a thread's task if its result is no longer needed; for tasks of many steps."""
    if getattr(_running, "is_cancelled", bool)():
        raise CancelledError


def available_cores() -> int:
    """Return the number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def open_engine(client: object = None) -> Iterator[Engine]:
    """Yield the engine that a ``client=`` argument names.

    ``client`` is an argument of `resolve_engine`, or the address of a Dask scheduler such as
    "tcp://host:8786" or "host:8786", connected for the duration of the ``with`` block. In the block, Dask
    collections are computed on that client, too. A Ctrl-C that comes while Numba loads a kernel leaves the
    block as the KeyboardInterrupt it is.
    """
    with ExitStack() as stack:
        if isinstance(client, str) and re.fullmatch(r".*://.*|[\w.-]+:[0-9]+", client):
            from bigcons.run.dask import connect

            engine: Engine = stack.enter_context(connect(client))
        else:
            engine = resolve_engine(client)
        if hasattr(engine, "client"):
            stack.enter_context(engine.client.as_current())
        try:
            yield engine
        except SystemError as error:  # by which Numba's dispatcher in C replaces it
            reason: BaseException | None = error
            while isinstance(reason, SystemError):
                reason = reason.__cause__
            if isinstance(reason, KeyboardInterrupt):
                raise reason from None
            raise


def resolve_engine(client: object = None) -> Engine:
    """Return the engine that a ``client=`` argument names without connecting to a scheduler.

    None: the active ``distributed.Client``, if any, else threads; "serial"; "threads"; a
    ``distributed.Client``; an Engine. Within a Dask task None is serial, since the worker's other threads
    have work of their own.
    """
    if hasattr(client, "map") and hasattr(client, "in_flight"):
        return client  # type: ignore[return-value]
    if client in ("threads", "serial"):
        return ThreadsEngine() if client == "threads" else SerialEngine()
    distributed: Any = sys.modules.get("distributed")  # to import it would take half a second
    if distributed is not None and (client is None or isinstance(client, distributed.Client)):
        from bigcons.run.dask import DaskEngine, active_client, is_within_task

        if client is None and is_within_task():
            return SerialEngine()
        client = active_client() if client is None else client
        if client is not None:
            return DaskEngine(client)
    if client is None:
        return ThreadsEngine()
    raise InvalidInputError(
        f"client={client!r} is unknown; use None or 'threads' (all cores of this machine), 'serial', the "
        "address of a Dask scheduler such as 'tcp://host:8786', or distributed.Client(cluster)."
    )


class HasClient:
    """Base of estimators with a ``client``, which clones share.

    A pickle or a copy keeps an address or a name; of a client or an engine, which live in their process, it
    keeps None, the active client.
    """

    client: object

    def __getstate__(self) -> dict[str, Any]:
        client = self.client if isinstance(self.client, str) else None
        return {**super().__getstate__(), "client": client}  # type: ignore[dict-item]

    def __sklearn_clone__(self) -> Self:
        """Return scikit-learn's clone of the estimator, with the same client."""
        clone: Self = super(HasClient, copy.copy(self)).__sklearn_clone__()  # type: ignore[misc]
        clone.client = self.client
        return clone


def local_engine(engine: Engine) -> Engine:
    """Return an engine whose tasks may write to arrays of this process: the given one, else threads."""
    return engine if engine.shares_memory else ThreadsEngine()


def map_with_progress(
    engine: Engine, task: Callable[[Item], Result], items: Sequence[Item], step: str, unit: str = "rows"
) -> Iterator[tuple[Item, Result]]:
    """Yield every item with ``task(item)``, in order, and show the progress, of blocks by their rows."""
    sizes = [item.n_rows if isinstance(item, Block) else 1 for item in items]
    with closing(engine.map(task, items)) as results, show(step, sum(sizes), unit) as listener:
        for item, size, result in zip(items, sizes, results, strict=True):
            yield item, result
            listener.advance(size)


def fold(
    engine: Engine,
    blocks: Sequence[Block],
    sums_of_block: Callable[[Block], Sums],
    combine: Callable[[Sums, Sums], Sums],
    *,
    progress: Progress | str | None = None,
) -> Sums:
    """Return ``sums_of_block`` of all blocks combined: first within groups of blocks, then over the groups.

    A worker combines a group of consecutive blocks in their order, and returns one result. A group has a 40th
    of the blocks left, at most 8: few results are collected, and workers finish together
    (``benchmarks/workers.py --simulate``). The groups depend on the number of blocks alone and are combined
    from the first to the last, so that floating-point sums are equal bit for bit on every engine. ``combine``
    may modify and return its first argument. ``progress`` hears of each block; a text is the name of a step
    to show.
    """
    if not blocks:
        raise ValueError("a fold needs at least one block")
    groups: list[Sequence[Block]] = []
    first = 0
    while first < len(blocks):
        n_together = min(max((len(blocks) - first) // 40, 1), 8)
        groups.append(blocks[first : first + n_together])
        first += n_together

    def sums_of_group(group: Sequence[Block]) -> Sums:
        sums = sums_of_block(group[0])
        for block in group[1:]:
            stop_if_cancelled()
            sums = combine(sums, sums_of_block(block))
        return sums

    total: Sums | None = None
    n_rows = blocks[-1].stop - blocks[0].start
    step = show(progress, n_rows) if isinstance(progress, str) else nullcontext(progress or Progress())
    with closing(engine.map(sums_of_group, groups)) as results, step as listener:
        for group, sums in zip(groups, results, strict=True):
            total = sums if total is None else combine(total, sums)
            for block in group:
                listener.advance(block.n_rows)
    assert total is not None  # noqa: S101 - blocks is not empty
    return total


# The threads of BLAS and OpenMP, which NumPy, SciPy and scikit-learn start on their own


_blas_lock = threading.Lock()
_n_inside = 0
_limit: Any = None
"""The limit of the process, while any thread is inside."""


@contextmanager
def one_thread(*, user_api: str | None = None) -> Iterator[None]:
    """Let BLAS and OpenMP use one thread in the ``with`` block.

    Concurrent tasks then start no threads of their own, and the order of sums does not depend on the machine.
    The threads of OpenBLAS are those of the process: they stay limited until the last block ends, of
    whichever thread.

    Parameters
    ----------
    user_api : {'blas', 'openmp'}, default=None
        The threads to limit; both kinds by default.
    """
    global _n_inside, _limit
    pools = _thread_pools(user_api == "blas")
    with _blas_lock:
        if not _n_inside:
            _limit = pools.limit(limits=1, user_api="blas")
        _n_inside += 1
    try:
        with pools.limit(limits=1, user_api=user_api):  # of libraries that count for each thread
            yield
    finally:
        with _blas_lock:
            _n_inside -= 1
            if not _n_inside:
                with _limit:  # whose end restores what was before, and lets any thread set limits
                    pass


@cache
def _thread_pools(only_blas: bool) -> Any:
    """Return the thread pools of this process, those of BLAS or all; finding them takes long."""
    if only_blas:
        import scipy.linalg  # noqa: F401
    else:
        import sklearn.cluster  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
