"""The memory a solve takes: stated before it begins, and refused if it is over the budget."""

from __future__ import annotations

import logging
from functools import cache
from typing import NamedTuple

from bigcons.errors import MemoryBudgetError
from bigcons.execution.engine import Engine
from bigcons.memory import enough_for, format_size, parse_size, resident_bytes
from bigcons.storage.arrays import bytes_kept_by_decoding
from bigcons.stores.ensemble import Ensemble
from bigcons.stores.ensemble_store import MAX_CHUNK_COLUMNS

logger: logging.Logger = logging.getLogger("bigcons")

# What loading and compiling kernels adds to a process that has imported them, and compiling those of another
# method to one that has solved before: measured, with room.
COMPILER_BYTES = 120_000_000
COMPILER_AGAIN_BYTES = 85_000_000

# What methods in memory may hold without a budget.
DEFAULT_DATA_BYTES = 4_000_000_000


class MemoryPlan(NamedTuple):
    """What a solve takes beside its processes, in bytes."""

    held: int
    """As long as it lasts."""
    per_block: int = 0
    """For each block at work."""
    per_result: int = 0
    """For each result of a block on its way."""

    def n_bytes(self, engine: Engine, ensemble: Ensemble) -> int:
        """Return what the solve takes in all, with its processes and what reading keeps in them."""
        results = max(self.per_result, engine.bundle_bytes) * engine.in_flight
        beside = self.held + self.per_block * engine.n_workers + results
        return process_bytes(engine) + reading_bytes(engine, ensemble) + beside

    def check(
        self,
        name: str,
        engine: Engine,
        ensemble: Ensemble,
        memory: str | float | None,
        remedy: str = "",
    ) -> None:
        """Log what the method ``name`` will take, and raise MemoryBudgetError if it is over ``memory``.

        ``remedy`` continues "raise it to X".
        """
        needed = self.n_bytes(engine, ensemble)
        process, reading = process_bytes(engine), reading_bytes(engine, ensemble)
        logger.info(
            "%s plan: %s in all: %s for the processes and %s for their reading, %s held, %d blocks of %s at "
            "work, %d results of %s",
            *(name, format_size(needed), format_size(process), format_size(reading), format_size(self.held)),
            *(engine.n_workers, format_size(self.per_block), engine.in_flight, format_size(self.per_result)),
        )
        if memory is not None and needed > parse_size(memory):
            raise MemoryBudgetError(
                f"{name} needs {format_size(needed)}, over memory={format_size(parse_size(memory))}; "
                f"raise it to {enough_for(needed)}{remedy}.",
                needed=needed,
                budget=parse_size(memory),
            )


def check_matrix_plan(
    name: str, engine: Engine, ensemble: Ensemble, *, memory: str | float | None, remedy: str
) -> None:
    """Check the plan of a method that holds a matrix of all pairs: 4 GB of it without ``memory``."""
    n_objects = ensemble.n_objects
    held = 20 * n_objects**2  # two counts, the similarity and what it is made with
    name = f"{name} of {n_objects:,} objects"
    if memory is None and held > DEFAULT_DATA_BYTES:
        raise MemoryBudgetError(
            f"{name} needs {format_size(held)} beside the process; "
            f"pass memory='{enough_for(2 * held)}' or so to allow it{remedy}.",
            needed=held,
            budget=DEFAULT_DATA_BYTES,
        )
    MemoryPlan(held).check(name, engine, ensemble, memory, remedy)


def data_budget(memory: str | float | None, engine: Engine) -> int:
    """Return the bytes that ``memory`` leaves for data beside the processes; 4 GB if it is None.

    Raises MemoryBudgetError if it is below what the processes take.
    """
    if memory is None:
        return DEFAULT_DATA_BYTES
    left = parse_size(memory) - process_bytes(engine)
    if left <= 0:
        raise MemoryBudgetError(
            f"memory={format_size(parse_size(memory))} is below the {format_size(process_bytes(engine))} of "
            "the processes themselves; raise it.",
            needed=process_bytes(engine),
            budget=parse_size(memory),
        )
    return left


def process_bytes(engine: Engine) -> int:
    """Return what the processes of a solve take before they hold any data, on the machine with most of them.

    A Dask worker is taken to be like this process, which has imported the same.
    """
    process = max(_resident_at_first() + COMPILER_BYTES, resident_bytes() + COMPILER_AGAIN_BYTES)
    return process * engine.n_processes


@cache
def _resident_at_first() -> int:
    """Return the memory of this process when it first planned a solve, before it compiled anything."""
    return resident_bytes()


def reading_bytes(engine: Engine, ensemble: Ensemble) -> int:
    """Return what reading a stored ensemble leaves in the processes that read, beside what was read."""
    if ensemble.path is None:
        return 0
    columns = min(ensemble.n_partitions, MAX_CHUNK_COLUMNS)
    chunk = ensemble.chunk_rows * columns * ensemble.dtype.itemsize
    n_readers = 1 if engine.shares_memory else engine.n_processes - 1  # whoever sends tasks reads nothing
    return n_readers * bytes_kept_by_decoding(chunk)


def block_label_bytes(ensemble: Ensemble) -> int:
    """Return what the labels of a block at work take: as read, and which of them are observed; twice as much,
    measured, for what the allocator keeps between buffers.
    """
    return 4 * label_bytes(ensemble, ensemble.chunk_rows)


def label_bytes(ensemble: Ensemble, n_rows: int) -> int:
    """Return the bytes of the labels of ``n_rows`` objects."""
    return n_rows * ensemble.n_partitions * ensemble.dtype.itemsize
