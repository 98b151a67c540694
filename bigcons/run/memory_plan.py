"""The memory a solve needs, checked against the budget before it starts."""

from __future__ import annotations

import logging
import math
from typing import NamedTuple

from bigcons.errors import MemoryBudgetError
from bigcons.memory import PROCESS_BYTES, WORKER_BYTES, DataBudget, enough_for, format_size, parse_size
from bigcons.run.engine import Engine, beside_processes
from bigcons.store.ensemble import Ensemble
from bigcons.store.ensemble_store import reading_bytes as rows_reading_bytes

logger: logging.Logger = logging.getLogger("bigcons")


class MemoryPlan(NamedTuple):
    """Memory of a solve in bytes, excluding its processes."""

    held: int
    """For the whole solve."""
    per_block: int = 0
    """For each block being processed."""
    per_result: int = 0
    """For each block result in transit."""

    def n_bytes(self, engine: Engine, ensemble: Ensemble) -> int:
        """Return the total, including the processes and their read buffers."""
        n_results = engine.in_flight + engine.n_workers  # each worker adds to one
        data = self.held + self.per_block * engine.n_workers + self.per_result * n_results
        return process_bytes(engine) + reading_bytes(engine, ensemble) + data

    def check(
        self,
        name: str,
        engine: Engine,
        ensemble: Ensemble,
        memory: str | float | None,
        remedy: str = "",
        stored: MemoryPlan | None = None,
        *,
        most: float = math.inf,
    ) -> None:
        """Log the needs of the method ``name``, and raise MemoryBudgetError if they exceed ``memory``.

        ``remedy`` continues "raise it to X", after that of ``out=`` if ``stored``, the plan with it, fits.
        Without ``memory``, data may take ``most`` bytes. Raises it, too, for a Dask worker whose own limit is
        too small, now or when it joins.
        """
        of_process = WORKER_BYTES + _reading_bytes(ensemble, 1, 1, is_sent=True)
        engine.check_limits(name, of_process, self.per_block + 2 * self.per_result)
        needed = self.n_bytes(engine, ensemble)
        process, reading = process_bytes(engine), reading_bytes(engine, ensemble)
        logger.info(
            "%s plan: %s in total: %s for the processes, %s for read buffers, %s held, %d concurrent blocks "
            "of %s, %d results of %s",
            *(name, format_size(needed), format_size(process), format_size(reading), format_size(self.held)),
            *(engine.n_workers, format_size(self.per_block), engine.in_flight, format_size(self.per_result)),
        )
        allowed = process + reading + most if memory is None else parse_size(memory)
        if needed <= allowed:
            return
        if memory is None:
            words = f"; pass memory='{enough_for(needed)}' to allow it{remedy}"
        else:
            if stored is not None and stored.n_bytes(engine, ensemble) <= allowed:
                remedy = f" or write the result to a store with out={',' if remedy else ''}{remedy}"
            words = f", over memory={format_size(allowed)}; raise it to {enough_for(needed)}{remedy}"
        budget = most or None if memory is None else allowed
        raise MemoryBudgetError(f"{name} needs {format_size(needed)}{words}.", needed=needed, budget=budget)


def data_budget(memory: str | float | None, engine: Engine, ensemble: Ensemble) -> DataBudget:
    """Return what ``memory`` leaves for data, after processes and the labels they hold; 4 GB if it is None.

    Raises MemoryBudgetError if it is below the memory of the processes themselves.
    """
    taken = process_bytes(engine) + (reading_bytes(engine, ensemble) if ensemble.path is None else 0)
    budget = beside_processes(memory, taken)
    if memory is not None and budget.n_bytes <= 0:
        raise MemoryBudgetError(
            f"memory={format_size(parse_size(memory))} is below the {format_size(taken)} of the processes "
            "themselves; raise it.",
            needed=taken,
            budget=parse_size(memory),
        )
    return budget


def process_bytes(engine: Engine) -> int:
    """Return the memory of the processes of a solve without data, on the machine that runs most of them.

    It is what they take at most, so that a plan depends on the call alone: what this process has loaded,
    compiled or kept so far, and what it will, cannot be told from its size.
    """
    return PROCESS_BYTES + WORKER_BYTES * (engine.n_processes - 1)


def reading_bytes(engine: Engine, ensemble: Ensemble) -> int:
    """Return what reading takes in all processes, besides blocks: buffers, or an ensemble in memory."""
    return _reading_bytes(ensemble, engine.n_processes, engine.n_workers, is_sent=not engine.shares_memory)


def _reading_bytes(ensemble: Ensemble, n_processes: int, n_workers: int, *, is_sent: bool) -> int:
    if ensemble.path is None:
        # Sent to workers, each process has it pickled, too, and as much again that it has freed and not
        # returned; the scheduler has what it passes on.
        copies = 4 * n_processes + 1 if is_sent else 1
        return label_bytes(ensemble, ensemble.n_objects) * copies
    # the client reads nothing, unless the workers are its threads
    n_readers = max(n_processes - 1, 1) if is_sent else 1
    if ensemble.stored is not None:
        return ensemble.stored.reading_bytes(n_readers, n_workers)
    return rows_reading_bytes(ensemble.chunk_rows, ensemble.row_bytes, ensemble.dtype, n_workers)


def block_label_bytes(ensemble: Ensemble) -> int:
    """Return the memory of one block's labels and their mask, doubled for (measured) allocator overhead."""
    return 4 * ensemble.chunk_rows * ensemble.row_bytes


def label_bytes(ensemble: Ensemble, n_rows: int) -> int:
    """Return the bytes of the labels, or memberships, of ``n_rows`` objects."""
    return n_rows * ensemble.row_bytes
