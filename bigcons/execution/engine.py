"""Engines: how the tasks of a fold are run. An engine is a bounded, ordered map.

The algorithm hands over a function and its items and gets the results back in the order of the
items, never more than a few in flight. It cannot learn how many workers there are, so its result
cannot depend on it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from bigcons.errors import InvalidInputError

Item = TypeVar("Item")
Result = TypeVar("Result")


class Engine(Protocol):
    """What a fold needs of an engine."""

    name: str
    n_workers: int
    in_flight: int
    """How many items may be under way or waiting to be collected: what a memory plan multiplies by."""
    shares_memory: bool
    """Whether tasks see the arrays of the calling process and may fill them."""

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield ``task(item)`` for every item, in the order of the items."""
        ...


class SerialEngine:
    """One task after another in the calling thread."""

    name = "serial"
    shares_memory = True
    n_workers = 1
    in_flight = 1

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield ``task(item)`` for every item, in the order of the items."""
        return map(task, items)


class ThreadsEngine:
    """A pool of threads: the default on one machine, for kernels and decompression release the GIL."""

    name = "threads"
    shares_memory = True

    def __init__(self, n_workers: int | None = None) -> None:
        self.n_workers = n_workers or available_cores()
        self.in_flight = self.n_workers + 1

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield ``task(item)`` for every item, in the order of the items."""
        waiting: deque[Any] = deque()
        with ThreadPoolExecutor(self.n_workers, thread_name_prefix="bigcons") as pool:
            try:
                for item in items:
                    if len(waiting) == self.in_flight:
                        yield waiting.popleft().result()
                    waiting.append(pool.submit(task, item))
                while waiting:
                    yield waiting.popleft().result()
            finally:  # an error or an interrupt: what has not begun does not begin
                for future in waiting:
                    future.cancel()


def available_cores() -> int:
    """Return the number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def resolve_engine(client: object = None) -> Engine:
    """Return the engine a ``client=`` argument asks for: None or "threads", "serial", or an Engine."""
    if client is None or client == "threads":
        return ThreadsEngine()
    if client == "serial":
        return SerialEngine()
    if hasattr(client, "map") and hasattr(client, "in_flight"):
        return client  # type: ignore[return-value]
    raise InvalidInputError(
        f"client={client!r} names no engine; use None or 'threads' (all cores of this machine) or 'serial'."
    )
