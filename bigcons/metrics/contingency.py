"""The contingency table of two clusterings, which most criteria need and nothing else.

Labels are folded block by block, so that they may be long, memory-mapped or in Zarr. Labels are whole
numbers or text; negative numbers, None and NaN are missing, and objects labeled in both clusterings
are what is compared.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from bigcons.errors import InvalidInputError, MemoryBudgetError
from bigcons.memory import format_size, row_blocks
from bigcons.tables.codes import Encoding, EncodingBuilder

BLOCK_ROWS = 1 << 20
MAX_TABLE_BYTES = 1 << 30


def contingency(a: Any, b: Any) -> np.ndarray:
    """Return how many objects lie in each cluster of ``a`` and each of ``b``: ``(ka, kb)`` int64.

    ``a`` and ``b`` are ``(n_objects,)`` labels. Rows and columns follow the labels in ascending order;
    labels that no compared object has are left out, so every row and column has an object.

    Raises InvalidInputError if the lengths differ or no object is labeled in both.
    """
    return compared_table(LabelColumn("a", a), LabelColumn("b", b))


def truth_table(truth: Any, labels: Any) -> np.ndarray:
    """Return the contingency of ``truth`` (rows) with ``labels`` (columns)."""
    return compared_table(LabelColumn("truth", truth), LabelColumn("labels", labels))


class LabelColumn:
    """Labels ``(n_objects,)`` of a clustering, read and recoded to 0 .. n_clusters - 1 by ranges."""

    def __init__(self, name: str, labels: Any) -> None:
        self.name = name
        self._labels = _sliceable(labels)
        shape = self._labels.shape if hasattr(self._labels, "shape") else (len(self._labels),)
        if len(shape) != 1:
            raise InvalidInputError(f"{name} has shape {shape}; pass one label per object, (n_objects,).")
        self.n_objects: int = shape[0]

    @property
    def n_clusters(self) -> int:
        """Number of different labels."""
        return len(self._encoding.values)

    def codes(self, start: int, stop: int) -> np.ndarray:
        """Return the codes ``(stop - start,)`` int64 of a range of objects, -1 where missing."""
        return self._encoding.encode(self._labels[start:stop]).astype(np.int64, copy=False)

    @cached_property
    def _encoding(self) -> Encoding:
        builder = EncodingBuilder(self.name)
        for block in row_blocks(self.n_objects, BLOCK_ROWS):
            builder.add(self._labels[block.start : block.stop])
        return builder.build()


def _sliceable(labels: Any) -> Any:
    """Return labels as something with a length whose slices are numpy or pyarrow arrays."""
    package = type(labels).__module__.partition(".")[0]
    if package in ("numpy", "pyarrow", "zarr", "bigcons"):
        return labels
    return np.asarray(labels, dtype=None if hasattr(labels, "__array__") else object)


def compared_table(a: LabelColumn, b: LabelColumn) -> np.ndarray:
    """Return the contingency of two columns over the objects labeled in both."""
    _check_lengths(a, b)
    shape = (a.n_clusters, b.n_clusters)
    check_size(shape)
    table = np.zeros(shape, dtype=np.int64)
    for block in row_blocks(a.n_objects, BLOCK_ROWS):
        table += _block_table(a.codes(block.start, block.stop), b.codes(block.start, block.stop), shape)
    if not table.any():
        raise InvalidInputError(
            f"no object has a label in both {a.name} and {b.name}; pass clusterings of the same objects."
        )
    return table[table.any(axis=1)][:, table.any(axis=0)]


def _check_lengths(a: LabelColumn, b: LabelColumn) -> None:
    if a.n_objects != b.n_objects:
        raise InvalidInputError(
            f"{a.name} is for {a.n_objects} objects but {b.name} for {b.n_objects}; "
            "pass one label per object in each."
        )


def check_size(shape: tuple[int, int]) -> None:
    """Refuse a table that would take more than MAX_TABLE_BYTES."""
    needed = 8 * shape[0] * shape[1]
    if needed > MAX_TABLE_BYTES:
        raise MemoryBudgetError(
            f"the contingency table of {shape[0]:,} by {shape[1]:,} clusters needs {format_size(needed)}, "
            f"more than {format_size(MAX_TABLE_BYTES)}; compare clusterings with fewer clusters.",
            needed=needed,
            budget=MAX_TABLE_BYTES,
        )


def _block_table(a: np.ndarray, b: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    both = (a >= 0) & (b >= 0)
    cells = a[both] * shape[1] + b[both]
    return np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)
