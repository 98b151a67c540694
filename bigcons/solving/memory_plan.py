"""The memory a solve needs, stated before it begins and refused if the budget cannot hold it."""

from __future__ import annotations

import logging
from functools import cache

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

# What methods in memory may hold if nothing is said.
DEFAULT_DATA_BYTES = 4_000_000_000


def check_plan(
    name: str,
    engine: Engine,
    *,
    ensemble: Ensemble,
    held: int,
    per_block: int,
    per_result: int,
    memory: str | float | None,
    remedy: str = "",
) -> None:
    """Log what the method ``name`` will need: its processes, what reading keeps in them, ``held``
    bytes, ``per_block`` for each block at work and ``per_result`` for each result on its way.

    Raises MemoryBudgetError, with both numbers, if this is more than ``memory``; ``remedy`` continues
    "raise it to X".
    """
    process, reading = process_bytes(engine), reading_bytes(engine, ensemble)
    needed = planned_bytes(engine, ensemble, held, per_block, per_result)
    logger.info(
        "%s plan: %s in all: %s for the processes and %s for their reading, %s held, %d blocks of %s at "
        "work, %d results of %s",
        *(name, format_size(needed), format_size(process), format_size(reading), format_size(held)),
        *(engine.n_workers, format_size(per_block), engine.in_flight, format_size(per_result)),
    )
    if memory is not None and needed > parse_size(memory):
        raise MemoryBudgetError(
            f"{name} needs {format_size(needed)}, over memory={format_size(parse_size(memory))}; "
            f"raise it to {enough_for(needed)}{remedy}."
        )


def check_matrix_plan(
    name: str, engine: Engine, ensemble: Ensemble, *, memory: str | float | None, remedy: str
) -> None:
    """As `check_plan`, for a method that holds a matrix of all pairs: 4 GB if ``memory`` says nothing."""
    n_objects = ensemble.n_objects
    held = 20 * n_objects**2  # two counts, the similarity and what it is made with
    name = f"{name} of {n_objects:,} objects"
    if memory is None and held > DEFAULT_DATA_BYTES:
        raise MemoryBudgetError(
            f"{name} needs {format_size(held)} beside the process; "
            f"pass memory='{enough_for(2 * held)}' or so to allow it{remedy}."
        )
    check_plan(
        name, engine, ensemble=ensemble, held=held, per_block=0, per_result=0, memory=memory, remedy=remedy
    )


def planned_bytes(engine: Engine, ensemble: Ensemble, held: int, per_block: int, per_result: int) -> int:
    """Return what processes, their reading, ``held`` bytes, blocks at work and results on their way take."""
    results = max(per_result, engine.bundle_bytes) * engine.in_flight
    beside = held + per_block * engine.n_workers + results
    return process_bytes(engine) + reading_bytes(engine, ensemble) + beside


def data_budget(memory: str | float | None, engine: Engine) -> int:
    """Return the bytes that ``memory`` leaves for data beside the processes; 4 GB if it is None.

    Raises MemoryBudgetError if it does not hold the processes.
    """
    if memory is None:
        return DEFAULT_DATA_BYTES
    left = parse_size(memory) - process_bytes(engine)
    if left <= 0:
        raise MemoryBudgetError(
            f"memory={format_size(parse_size(memory))} does not even hold the processes, which take "
            f"{format_size(process_bytes(engine))}; raise it."
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
    """Return what reading a stored ensemble keeps in the processes that do it, beside what was read."""
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
