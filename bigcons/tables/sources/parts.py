"""Sources of labels that are made of parts: lists of rows, tables, columns, another ensemble."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.memory import Block, row_blocks
from bigcons.tables.relabel import RawColumn
from bigcons.tables.sources.arrays import ArraySource, release_pages
from bigcons.tables.sources.base import LabelSource, check_two_dimensions, columns_of, frame_columns
from bigcons.tables.sources.files import map_npy


class FrameSource(LabelSource):
    """A pandas frame, or a polars or pyarrow table."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame
        self.names = [str(name) for name in _column_names(frame)]
        self.n_partitions = len(self.names)
        self.row_bytes = 16.0 * self.n_partitions

    def blocks(self, rows: int) -> Iterator[Sequence[RawColumn]]:
        """Yield all rows in order, as columns of ``rows`` rows."""
        for block in row_blocks(len(self._frame), rows):
            yield frame_columns(self._frame, block.start, block.stop)


class ColumnsSource(LabelSource):
    """One ``(n_objects,)`` array or .npy file per partition."""

    def __init__(self, columns: Sequence[Any], n_objects: int) -> None:
        self._columns = columns
        self._n_objects = n_objects
        self.n_partitions = len(columns)
        self.row_bytes = 8.0 * self.n_partitions
        for index in range(self.n_partitions):
            self._open(index)

    def blocks(self, rows: int) -> Iterator[Sequence[RawColumn]]:
        """Yield all rows in order, as columns of ``rows`` rows."""
        for block in row_blocks(self._n_objects, rows):
            yield [self._part(u, block) for u in range(self.n_partitions)]

    def _part(self, index: int, block: Block) -> np.ndarray:
        part = np.array(self._open(index)[block.start : block.stop])
        release_pages(self._columns[index])
        return part

    def _open(self, index: int) -> np.ndarray:
        """Return the column as an array; a file is mapped, and forgotten with the array."""
        column = self._columns[index]
        if isinstance(column, (str, os.PathLike)):
            column = map_npy(Path(column))
        column = np.asarray(column)
        if column.shape != (self._n_objects,):
            raise InvalidInputError(
                f"column {index} has shape {column.shape} but n_objects={self._n_objects}; "
                f"give one label per object, shape ({self._n_objects},)."
            )
        return column


class EnsembleSource(LabelSource):
    """Another ensemble, read with its original label values."""

    def __init__(self, ensemble: Any) -> None:
        self._ensemble = ensemble
        self.names = list(ensemble.names)
        self.n_partitions = ensemble.n_partitions
        self.least_rows = ensemble.chunk_rows
        self.row_bytes = 8.0 * self.n_partitions

    def blocks(self, rows: int) -> Iterator[Sequence[RawColumn]]:
        """Yield all rows in order, as columns of about ``rows`` rows."""
        for block in self._ensemble.blocks(max(rows, self.least_rows)):
            columns = columns_of(self._ensemble.read(block.start, block.stop))
            yield [
                values_of(codes, values)
                for codes, values in zip(columns, self._ensemble.categories, strict=True)
            ]


def _column_names(frame: Any) -> Sequence[Any]:
    return frame.column_names if hasattr(frame, "column_names") else list(frame.columns)


def rows_source(rows: Sequence[Any]) -> ArraySource:
    """Return the source that reads a list of rows, each with one label per partition."""
    if rows and not _is_row(rows[0]):
        check_two_dimensions((len(rows),))
    matrix = np.empty((len(rows), len(rows[0]) if rows else 0), dtype=object)
    for index, row in enumerate(rows):
        if not _is_row(row) or len(row) != matrix.shape[1]:
            found = f"{len(row)} label(s)" if _is_row(row) else "no list of labels"
            raise InvalidInputError(
                f"labels is ragged: row {index} has {found} but row 0 has {matrix.shape[1]}; "
                "give one label per partition, None where missing."
            )
        matrix[index] = row
    return ArraySource(matrix)


def _is_row(row: Any) -> bool:
    return hasattr(row, "__len__") and not isinstance(row, str)


def values_of(codes: np.ndarray, values: np.ndarray | None) -> np.ndarray:
    """Return the original label values of codes, missing as None for text, -1 for numbers."""
    if values is None:
        return codes
    missing: Any = None if values.dtype == object else -1
    return np.append(values, missing)[codes]


class ReorderedSource(LabelSource):
    """A source with its columns in another order."""

    def __init__(self, source: LabelSource, names: Sequence[str]) -> None:
        assert source.names is not None  # noqa: S101 - only named columns can be ordered
        self._source = source
        self._order = [source.names.index(name) for name in names]
        self.names = list(names)
        self.n_partitions = source.n_partitions
        self.row_bytes = source.row_bytes
        self.fixed_bytes = source.fixed_bytes
        self.least_rows = source.least_rows
        self.untyped = source.untyped

    def blocks(self, rows: int) -> Iterator[Sequence[RawColumn]]:
        """Yield the blocks of the source with their columns in order."""
        for columns in self._source.blocks(rows):
            yield [columns[place] for place in self._order]
