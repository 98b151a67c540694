"""Arrays as sources of labels: in memory, mapped from a file, or in a Zarr store."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bigcons.memory import row_blocks
from bigcons.tables.relabel import RawColumn
from bigcons.tables.sources.base import LabelSource, check_two_dimensions, columns_of


class ArraySource(LabelSource):
    """Anything with a shape and row slices: a numpy array, a memory map, a Zarr array."""

    def __init__(self, array: Any) -> None:
        check_two_dimensions(array.shape)
        self._array = array
        self._n_rows, self.n_partitions = array.shape
        unit = getattr(array, "shards", None) or getattr(array, "chunks", None)
        self.least_rows = unit[0] if unit else 1
        copies = 3 if unit else 2  # as decoded, as read, as columns
        self.row_bytes = float(copies * array.dtype.itemsize * self.n_partitions)

    def blocks(self, rows: int) -> Iterator[Sequence[RawColumn]]:
        """Yield all rows in order, as columns of ``rows`` rows rounded to whole chunks."""
        rows = max(rows - rows % self.least_rows, self.least_rows)
        for block in row_blocks(self._n_rows, rows):
            yield columns_of(np.asanyarray(self._array[block.start : block.stop]))  # masks stay
            release_pages(self._array)


def release_pages(array: Any) -> None:
    """Let the system take back what was read of a memory map, which otherwise counts as ours."""
    pages = getattr(array, "_mmap", None)
    if (
        isinstance(pages, mmap.mmap)
        and getattr(array, "mode", "") in ("r", "r+")
        and hasattr(pages, "madvise")
    ):
        pages.madvise(mmap.MADV_DONTNEED)
