"""Ensembles made row by row: a task turns one segment of rows into labels, on any engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigcons.execution.engine import Engine
from bigcons.memory import Block
from bigcons.tables.encode import rechunk
from bigcons.tables.memory import values_of
from bigcons.tables.table import PartedTable

SEGMENT_ROWS = 4096
"""Rows that share one generator."""

_WORKING_BYTES = 24
"""per label that is being made: draws of 8 bytes, comparisons, the label and its copies"""


@dataclass(frozen=True)
class Segment:
    """The rows from ``start`` on, and what labels are made of."""

    index: int
    rows: np.ndarray

    @property
    def start(self) -> int:
        """The first row."""
        return self.index * SEGMENT_ROWS

    @property
    def stop(self) -> int:
        """The row after the last."""
        return self.start + len(self.rows)


def segments(blocks: Iterable[np.ndarray]) -> Iterator[Segment]:
    """Cut consecutive blocks of rows into segments, which do not depend on how the blocks were cut."""
    for index, rows in enumerate(rechunk(blocks, SEGMENT_ROWS)):
        yield Segment(index, rows)


def read_blocks(stored: Any, read: Callable[[int, int], np.ndarray]) -> Iterator[np.ndarray]:
    """Read all rows of what has ``blocks()``, block by block."""
    blocks: list[Block] = stored.blocks()
    for block in blocks:
        yield read(block.start, block.stop)


class MappedLabels(PartedTable):
    """Labels ``make(segment)`` ``(rows, n_partitions)`` of all segments; they are made at each reading.

    ``categories`` are the values that the labels of each partition stand for, None for themselves.
    """

    where = "labels"
    least_rows = SEGMENT_ROWS

    def __init__(
        self,
        engine: Engine,
        read: Callable[[], Iterable[Segment]],
        make: Callable[[Segment], np.ndarray],
        n_partitions: int,
        *,
        row_bytes: int,
        held_bytes: int = 0,
        names: Sequence[str] | None = None,
        categories: Sequence[np.ndarray | None] | None = None,
    ) -> None:
        self._engine, self._read, self._make = engine, read, make
        self._categories = [None] * n_partitions if categories is None else categories
        self.n_columns = n_partitions
        self.lengths = [None]
        self.names = None if names is None else list(names)
        in_work = SEGMENT_ROWS * (row_bytes + _WORKING_BYTES * n_partitions)
        self.fixed_bytes = held_bytes + engine.in_flight * in_work
        self.row_bytes = 8.0 * n_partitions

    def load(
        self,
        part: int,  # noqa: ARG002 - all segments are one part
        rows: int,  # noqa: ARG002 - segments have their size
        columns: Sequence[int] | None,
    ) -> Iterator[list[np.ndarray]]:
        """Yield the columns of all segments, in order."""
        positions = range(self.n_columns) if columns is None else columns
        with closing(self._engine.map(self._make, self._read())) as made:
            for labels in made:
                codes = np.ascontiguousarray(labels.T)
                yield [values_of(codes[u], self._categories[u]) for u in positions]
