"""Dask arrays and dataframes as sources of labels: one chunk at a time, never gathered."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from bigcons.errors import InvalidInputError
from bigcons.tables.relabel import RawColumn
from bigcons.tables.sources.base import LabelSource, check_two_dimensions, columns_of, frame_columns


class DaskArraySource(LabelSource):
    """A ``dask.array`` ``(n_objects, n_partitions)``; the number of rows may be unknown."""

    def __init__(self, array: Any) -> None:
        check_two_dimensions(array.shape)
        if math.isnan(array.shape[1]):
            raise InvalidInputError(
                "labels does not know its number of columns; call its compute_chunk_sizes() first."
            )
        self._array = array
        self.n_partitions = int(array.shape[1])
        copies = 4  # as the graph reads, decodes and cuts it, and as columns
        self.row_bytes = float(copies * array.dtype.itemsize * self.n_partitions)
        known = [rows for rows in array.chunks[0] if not math.isnan(rows)]
        self.least_rows = int(max(known, default=1))

    def blocks(self, rows: int) -> Iterator[Sequence[RawColumn]]:  # noqa: ARG002 - dask has cut the rows
        """Yield all rows in order, one chunk of rows after the other."""
        for index in range(self._array.numblocks[0]):
            yield columns_of(self._array.blocks[index].compute())


class DaskFrameSource(LabelSource):
    """A ``dask.dataframe``."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame
        self.names = [str(name) for name in frame.columns]
        self.n_partitions = len(self.names)
        self.row_bytes = 16.0 * self.n_partitions

    def blocks(self, rows: int) -> Iterator[Sequence[RawColumn]]:
        """Yield all rows in order, as columns of at most ``rows`` rows."""
        for index in range(self._frame.npartitions):
            part = self._frame.get_partition(index).compute()
            for start in range(0, len(part), rows):
                yield frame_columns(part, start, min(start + rows, len(part)))


def open_dask(x: Any) -> LabelSource:
    """Return the source that reads a dask collection."""
    if hasattr(x, "npartitions") and hasattr(x, "get_partition") and hasattr(x, "columns") and x.ndim == 2:
        return DaskFrameSource(x)
    if hasattr(x, "numblocks"):
        return DaskArraySource(x)
    raise InvalidInputError(
        f"labels is a dask {type(x).__name__}; give a dask array or dataframe with one column per partition."
    )
