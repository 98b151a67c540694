"""Rows of labels: which partitions label them, and those of one clustering, recoded block by block."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.memory import BLOCK_ROWS, row_blocks
from bigcons.tables.codes import Encoding, EncodingBuilder
from bigcons.validation import is_text


def observed(rows: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return which partitions label each object (rows, M), given labels (rows, M) or memberships (rows, B).

    Partition ``u`` has the columns of memberships from ``offsets[u]``, all 0 where it is missing.
    """
    if rows.dtype.kind != "f":
        return rows >= 0
    return np.maximum.reduceat(rows, offsets[:-1], axis=1) > 0


class LabelColumn:
    """Labels ``(n_objects,)`` of a clustering, recoded to 0 .. n_clusters - 1 as they are read.

    The text index of a pandas Series is kept, as the names of the rows.
    """

    def __init__(self, name: str, labels: Any) -> None:
        self.name = name
        index = getattr(labels, "index", None)
        self.row_names: Any = index if is_text(index) else None
        if type(labels).__module__.partition(".")[0] not in ("numpy", "pyarrow", "zarr", "bigcons"):
            labels = np.asarray(labels, dtype=None if hasattr(labels, "__array__") else object)
        self._labels = labels  # slices are arrays of numpy or pyarrow
        shape = self._labels.shape if hasattr(self._labels, "shape") else (len(self._labels),)
        if len(shape) != 1:
            raise InvalidInputError(f"{name} has shape {shape}; pass one label per object, (n_objects,).")
        self.n_objects: int = shape[0]

    @property
    def n_clusters(self) -> int:
        """Number of different labels."""
        return len(self.values)

    @cached_property
    def values(self) -> np.ndarray:
        """The different labels ``(n_clusters,)``, ascending: those of codes 0, 1, ..."""
        return self._encoding.values

    def codes(self, start: int, stop: int) -> np.ndarray:
        """Return the codes ``(stop - start,)`` int64 of a range of objects, -1 where missing."""
        return self._encoding.encode(self._labels[start:stop]).astype(np.int64, copy=False)

    @cached_property
    def _encoding(self) -> Encoding:
        builder = EncodingBuilder(self.name)
        for block in row_blocks(self.n_objects, BLOCK_ROWS):
            builder.add(self._labels[block.start : block.stop])
        return builder.build()
