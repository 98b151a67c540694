"""Sources of features that are made of parts: row groups, partitions, one stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from bigcons.tables.feature_sources.base import Piece


class PartedSource:
    """A source read part by part; the length of a part is None until it has been read to its end."""

    where: str
    names: list[str]
    schema: pa.Schema | None = None
    dtype: np.dtype | None = None
    lengths: list[int | None]
    held_bytes: int

    @property
    def n_rows(self) -> int | None:
        """Number of rows, None while the length of any part is unknown."""
        known = [length for length in self.lengths if length is not None]
        return sum(known) if len(known) == len(self.lengths) else None

    def load(self, part: int, rows: int, columns: Sequence[str] | None) -> Iterator[Piece]:
        """Yield the pieces of one part."""
        raise NotImplementedError

    def pieces(
        self, start: int, stop: int | None, rows: int, columns: Sequence[str] | None = None
    ) -> Iterator[Piece]:
        """Yield what the parts hold of the rows, leaving out the parts before them."""
        row = 0
        for part, length in enumerate(self.lengths):
            if length is not None and row + length <= start:
                row += length
                continue
            part_start = row
            for piece in self.load(part, rows, columns):
                first, row = row, row + piece.shape[0]
                if row > start and piece.shape[0]:
                    yield piece[max(start - first, 0) : piece.shape[0] if stop is None else stop - first]
                if stop is not None and row >= stop:
                    return
            self.lengths[part] = row - part_start
