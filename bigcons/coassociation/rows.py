"""Distinct label rows: objects that no method can tell apart from their labels, counted once."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigcons.errors import MemoryBudgetError
from bigcons.execution.engine import Engine
from bigcons.memory import Block, format_size
from bigcons.progress import progress

if TYPE_CHECKING:
    from bigcons.stores.ensemble import Ensemble


class UniqueRows(NamedTuple):
    """The distinct rows of an ensemble, numbered in the order in which they first appear."""

    labels: np.ndarray
    """(n_rows, n_partitions) the rows, each with a label."""
    weights: np.ndarray
    """(n_rows,) int64 number of objects of each."""
    row_of_object: np.ndarray
    """(n_objects,) int32 number of each object's row, -1 for objects without any label."""


def unique_rows(ensemble: Ensemble, engine: Engine, *, budget: int, remedy: str) -> UniqueRows:
    """Collect the distinct label rows in one pass; gaps count, so rows differ if one has a label more.

    Takes O(n_objects n_partitions) time, and 4 bytes an object and up to twice the labels of the distinct
    rows in memory, refused with MemoryBudgetError and ``remedy``, what to do, once that exceeds ``budget``.
    """
    table = RowTable(ensemble.n_partitions, ensemble.dtype)
    row_of_object = np.empty(ensemble.n_objects, np.int32)
    blocks = ensemble.blocks()
    distinct = engine.map(partial(_distinct_of_block, ensemble), blocks)
    with progress("distinct rows", ensemble.n_objects) as listener, closing(distinct):
        for block, (rows, numbers) in zip(blocks, distinct, strict=True):
            _refuse_more(table.n_bytes(len(rows)) + row_of_object.nbytes, budget, table.n_rows, remedy)
            numbers_in_table = np.append(table.number(rows), np.int32(-1))
            row_of_object[block.start : block.stop] = numbers_in_table[numbers]
            listener.advance(block.n_rows)
    weights = np.bincount(row_of_object[row_of_object >= 0], minlength=table.n_rows)
    return UniqueRows(table.rows, weights, row_of_object)


class RowTable:
    """A growing table of distinct rows ``(n_rows, n_partitions)``."""

    def __init__(self, n_partitions: int, dtype: np.dtype) -> None:
        self.n_rows = 0
        self._rows = np.empty((0, n_partitions), dtype)
        self._slots = np.full(16, -1, np.int64)

    @property
    def rows(self) -> np.ndarray:
        """The rows in the order in which they came."""
        return self._rows[: self.n_rows]

    def n_bytes(self, n_more: int) -> int:
        """Return the memory the table may take once ``n_more`` rows have come."""
        capacity = self._capacity(n_more)
        return capacity * self._rows.shape[1] * self._rows.itemsize + 8 * _n_slots(capacity)

    def number(self, rows: np.ndarray) -> np.ndarray:
        """Return the number ``(n,)`` int32 of each of ``rows``, adding those not met before."""
        from bigcons.kernels.label_rows import number_rows

        self._make_room(len(rows))
        numbers = np.empty(len(rows), np.int32)
        self.n_rows: int = number_rows(
            np.ascontiguousarray(rows), self._rows, self.n_rows, self._slots, numbers
        )
        return numbers

    def _capacity(self, n_more: int) -> int:
        wanted, held = self.n_rows + n_more, len(self._rows)
        return held if wanted <= held else max(wanted, 3 * held // 2)

    def _make_room(self, n_more: int) -> None:
        from bigcons.kernels.label_rows import number_rows

        capacity = self._capacity(n_more)
        if capacity == len(self._rows):
            return
        known = self.rows
        self._rows = np.empty((capacity, known.shape[1]), known.dtype)
        self._slots = np.full(_n_slots(capacity), -1, np.int64)
        number_rows(known, self._rows, 0, self._slots, np.empty(len(known), np.int32))


def _n_slots(capacity: int) -> int:
    return 1 << (2 * capacity).bit_length()


def _distinct_of_block(ensemble: Ensemble, block: Block) -> tuple[np.ndarray, np.ndarray]:
    """Return a block's distinct rows that have a label, and for each object the number of its own or -1."""
    labels = ensemble.read(block.start, block.stop)
    numbers = np.full(block.n_rows, -1, np.int32)
    labeled = (labels >= 0).any(axis=1)
    table = RowTable(labels.shape[1], labels.dtype)
    numbers[labeled] = table.number(labels[labeled])
    return table.rows, numbers


def _refuse_more(needed: int, budget: int, n_rows: int, remedy: str) -> None:
    if needed > budget:
        raise MemoryBudgetError(
            f"the labels of {n_rows:,} or more distinct rows need {format_size(needed)}, over the budget of "
            f"{format_size(budget)}; {remedy}.",
            needed=needed,
            budget=budget,
        )
