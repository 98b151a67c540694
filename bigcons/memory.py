"""Sizes, memory budgets and blocks of rows."""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from bigcons.errors import InvalidInputError, MemoryBudgetError

_UNITS = {"B": 1}
_UNITS |= {f"{p}B": 1000 ** (i + 1) for i, p in enumerate("KMGT")}
_UNITS |= {f"{p}IB": 1024 ** (i + 1) for i, p in enumerate("KMGT")}
_UNITS |= {p: 1000 ** (i + 1) for i, p in enumerate("KMGT")}

BLOCK_ROWS = 1 << 16
"""Rows that are read, encoded or written at a time; of a chunk, at most."""

VALUES_TOGETHER = 1 << 20
"""Values, votes or keys that are clustered, looked up or compared at a time."""

LABELS_TOGETHER = 16_000_000
"""Labels of the largest sample that is solved or compared at a time."""

N_SAMPLED = 2048
"""Objects that stand for all where pairs of them are compared, or many solutions tried."""

TILE_ROWS = 1024
"""Rows on each side of a tile of a square of objects: 8 MB of distances."""

PROCESS_BYTES = 370_000_000
"""What a process that does one thing takes at most, without data: packages, and kernels that it compiles."""

WORKER_BYTES = 290_000_000
"""What a Dask worker that solves takes at most, without data: it loads no scikit-learn."""

DEFAULT_DATA_BYTES = 4_000_000_000
"""Data that may be held if no budget is given."""

MOST_BYTES = 1 << 50
"""The largest budget; no machine has more, so a larger one is a mistake."""


class Block(NamedTuple):
    """A range of rows: the unit of reading, work, checkpoint and retry."""

    index: int  # type: ignore[assignment] # shadows tuple.index, which a block does not need
    start: int
    stop: int

    @property
    def n_rows(self) -> int:
        """Number of rows in the block."""
        return self.stop - self.start

    def rows_of(self, rows: np.ndarray) -> np.ndarray:
        """Return which of the ascending ``rows`` are in the block, counted from its start."""
        first, last = rows.searchsorted((self.start, self.stop))
        return rows[first:last] - self.start


class RowSet:
    """Some of the rows of an ensemble, ascending: a bit for each row of the blocks that have any."""

    def __init__(self, parts: Iterable[tuple[Block, np.ndarray]]) -> None:
        """Take the blocks that have any, with their rows as `numpy.packbits` packs them."""
        self._bits = dict(parts)
        self.size: int = sum(self.rows_of(block).size for block in self._bits)

    def rows_of(self, block: Block) -> np.ndarray:
        """Return which rows of a block of the ensemble are in the set, counted from its start."""
        return np.flatnonzero(np.unpackbits(self._bits.get(block, np.empty(0, np.uint8))))

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        """Return all of them, int64."""
        parts = (block.start + self.rows_of(block) for block in self._bits)
        return np.concatenate([np.empty(0, np.int64), *parts])


class DataBudget(NamedTuple):
    """Bytes available for data, beyond what the processes take."""

    n_bytes: int
    processes: int = 0

    def check(self, n_bytes: int, subject: str, remedy: str) -> None:
        """Raise MemoryBudgetError if ``n_bytes`` do not fit; it states what ``memory`` has to be.

        ``subject`` is what needs them, in the plural; ``remedy`` follows "or", unless processes alone
        need more.
        """
        if n_bytes > self.n_bytes:
            total, budget = n_bytes + self.processes, self.n_bytes + self.processes
            words = f"{subject} need {format_size(total)}, over memory={format_size(budget)}"
            words += f"; raise it to {enough_for(total)}"
            words += f", or {remedy}." if remedy and self.n_bytes > 0 else "."
            raise MemoryBudgetError(words, needed=total, budget=budget)


def beside_processes(memory: str | float | None, process_bytes: int = PROCESS_BYTES) -> DataBudget:
    """Return what ``memory`` leaves for data beside ``process_bytes`` of processes; 4 GB if it is None.

    By default they are one process. What is left is negative if the processes take more.
    """
    if memory is None:
        return DataBudget(DEFAULT_DATA_BYTES, process_bytes)
    return DataBudget(parse_size(memory) - process_bytes, process_bytes)


def release_unused() -> None:
    """Give the system back what Arrow and the C library keep of memory that nothing uses."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    with suppress(AttributeError, OSError, TypeError):  # which only glibc has
        ctypes.CDLL(None).malloc_trim(0)


def check_all(checks: Iterable[Callable[[], Any]]) -> None:
    """Make all checks, and raise the MemoryBudgetError that needs most memory, if there is any."""
    refusals = []
    for check in checks:
        try:
            check()
        except MemoryBudgetError as error:
            refusals.append(error)
    if refusals:
        raise max(refusals, key=lambda error: error.needed or 0)


def row_blocks(n_rows: int, rows_per_block: int) -> list[Block]:
    """Split ``n_rows`` rows into consecutive blocks of at most ``rows_per_block`` rows."""
    starts = range(0, n_rows, rows_per_block)
    return [Block(b, start, min(start + rows_per_block, n_rows)) for b, start in enumerate(starts)]


def parse_size(size: int | float | str) -> int:
    """Return a size in bytes, given as a number or as text such as ``"2GB"`` or ``"512 MiB"``.

    Raises InvalidInputError for anything else.
    """
    number: Any = size
    unit = "B"
    if isinstance(size, str) and (match := re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", size)):
        number, unit = float(match[1]), match[2].upper() or "B"
    is_number = isinstance(number, (int, float, np.integer, np.floating)) and not isinstance(number, bool)
    if not is_number or not 0 < number <= MOST_BYTES or unit not in _UNITS:
        raise InvalidInputError(
            f"memory={size!r} is not a size; use bytes or text such as '2GB' or '512MiB'.", parameter="memory"
        )
    return int(number * _UNITS[unit])


def format_size(n_bytes: float) -> str:
    """Format a size for people: three significant digits and a decimal unit."""
    value = float(n_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"


def enough_for(n_bytes: float) -> str:
    """Format a size as `format_size` does, but rounded up: a budget sufficient for ``n_bytes``."""
    digits = max(math.floor(math.log10(max(n_bytes, 1.0))) - 2, 0)
    return format_size(math.ceil(n_bytes / 10**digits) * 10**digits)


def rows_within(
    budget: DataBudget, bytes_per_row: float, *, fixed: int = 0, at_least: int = 1, noun: str
) -> int:
    """Return how many rows of ``bytes_per_row`` fit into ``budget`` besides ``fixed`` bytes.

    Raises MemoryBudgetError if fewer than ``at_least`` rows fit; ``noun`` names them in its message.
    """
    rows = int((budget.n_bytes - fixed) // max(bytes_per_row, 1e-9))
    if rows < at_least:
        n_bytes, total = fixed + int(at_least * bytes_per_row) + budget.processes, sum(budget)
        noun += " besides the process" if budget.processes else ""
        raise MemoryBudgetError(
            f"memory={format_size(total)} cannot hold {noun}, which needs at least {format_size(n_bytes)}; "
            f"raise the budget to {enough_for(n_bytes)} or more.",
            needed=n_bytes,
            budget=total,
        )
    return rows
