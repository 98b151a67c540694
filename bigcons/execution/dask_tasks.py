"""What runs on the workers of a Dask cluster, and what comes back of it.

Imported only when a client is in play, like the engine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar, cast

import cloudpickle  # type: ignore[import-untyped]
import distributed
from dask.sizeof import sizeof

from bigcons.errors import BigconsError, ExecutionError, StoreNotFoundError
from bigcons.execution.allocator import keep_freed_memory
from bigcons.execution.dask_versions import one_line

Item = TypeVar("Item")


class Done(NamedTuple):
    """What a task did."""

    results: list[Any]
    seconds: float
    n_bytes: int
    """About the memory that the results take."""


class Refusal(NamedTuple):
    """An error that would come again, returned as a result so that it is not tried again."""

    error: BigconsError


def run_task(run: str, items: Sequence[Item], task: bytes | Callable[[Item], Any]) -> Done | Refusal:
    """Do a task of a run, its function pickled or not, on a worker."""
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
        return Refusal(error)


_latest: tuple[str, Callable[[Any], Any] | None] = ("", None)


def _unpickled(run: str, content: bytes) -> Callable[[Any], Any]:
    """Return the task function of a run: stores are opened once for all of its blocks on a worker."""
    global _latest  # replaced as a whole: threads of the worker may do this at once
    latest_run, function = _latest
    if latest_run != run or function is None:
        function = _load(content)
        _latest = run, function
    return function


def load_shared(content: bytes) -> Callable[[Any], Any]:
    """Return the task function of a run, in a task of its own, on a worker."""
    with _naming_the_worker():
        return _load(content)


def _load(content: bytes) -> Callable[[Any], Any]:
    """Unpickle a task function; raises ExecutionError if its code is not on this worker."""
    try:
        return cast("Callable[[Any], Any]", cloudpickle.loads(content))
    except BigconsError:
        raise  # of an optional package that is missing
    except (ImportError, AttributeError) as error:
        raise ExecutionError(
            f"Dask worker {distributed.get_worker().address} cannot load a task ({one_line(error)}), for its "
            "code of bigcons or of a module of yours is not that of this process; "
            "install the same on every worker and restart them."
        ) from error


@contextmanager
def _naming_the_worker() -> Iterator[None]:
    """Say which worker does not find a store that this process may well see."""
    try:
        yield
    except StoreNotFoundError as error:
        raise StoreNotFoundError(
            f"on Dask worker {distributed.get_worker().address}, {one_line(error)} "
            "Workers must see a store at the same path as this process; use a path that all share."
        ) from error
