"""Rows of labels: which partitions label them, and those of one clustering, recoded block by block."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.io.factorize import Encoding
from bigcons.memory import BLOCK_ROWS, row_blocks


def observed(rows: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return which partitions label each object (rows, M), given labels (rows, M) or memberships (rows, B).

    Partition ``u`` has the columns of memberships from ``offsets[u]``, all 0 where it is missing.
    """
    if rows.dtype.kind != "f":
        return rows >= 0
    return np.maximum.reduceat(rows, offsets[:-1], axis=1) > 0


def are_labeled(rows: np.ndarray, offsets: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Return which objects (rows,) have a label, of partitions of weight 0 none counted."""
    seen = observed(rows, offsets)
    return np.asarray((seen if weights is None else seen[:, weights > 0]).any(axis=1))


def names_of_rows(x: Any) -> Any:
    """Return what identifies the rows of something: an index of pandas, `Ids`, or a range without ids.

    None of arrays, whose rows have no names. An ensemble, a consensus or a fitted clusterer has ids; without,
    its rows have numbers, of which an index may be a permutation.
    """
    if hasattr(index := getattr(x, "index", None), "nlevels"):
        return index
    if hasattr(x, "id_column"):
        return range(x.n_objects) if x.id_column is None else x.id_column
    if hasattr(x, "_ids"):
        return range(len(x.labels_)) if x._ids is None else x._ids
    return None


def are_other_rows(names: Any, others: Any) -> bool:
    """Return whether `names_of_rows` are known to be others or in another order.

    0, 1, ... in order name nothing, unless the others are these in another order.
    """
    if names is None or others is None or names is others:
        return False
    both = []
    for given in (names, others):
        if hasattr(given, "hold"):
            given = given.hold().values.to_numpy(zero_copy_only=False)
        array = given.to_numpy() if hasattr(given, "nlevels") else np.asarray(given)
        both.append(array if array.dtype.kind in "iu" else array.astype(object))
    one, two = both
    if np.array_equal(one, two):
        return False
    is_default = any(np.array_equal(array, np.arange(len(array))) for array in both)
    return not is_default or set(one.tolist()) == set(two.tolist())


def refuse_other_rows(a: str, of_a: Any, b: str, of_b: Any) -> None:
    """Raise InvalidInputError for `are_other_rows`; ``a`` and ``b`` say whose names they are."""
    if not are_other_rows(of_a, of_b):
        return
    if not hasattr(of_a, "nlevels"):
        a, of_a, b, of_b = b, of_b, a, of_a
    remedy = ""
    if hasattr(of_a, "nlevels"):
        in_order = f"{a}.sort_index()" if isinstance(of_b, range) else f"{a}.loc[the ids of {b}]"
        in_order = f"{a}.loc[{b}.index]" if hasattr(of_b, "nlevels") else in_order
        remedy = f", such as {in_order}, or {a}.to_numpy() if they are"
    raise InvalidInputError(
        f"{a} and {b} are of rows of other names, or in another order; pass them in one order{remedy}."
    )


def labels_of(found: Any) -> Any:
    """Return the labels ``(n_objects,)`` of a fitted clusterer, a `Consensus` (lazily), or labels as given.

    Raises InvalidInputError for a clusterer that is not fitted, and for an ensemble.
    """
    if hasattr(found, "fit") and not hasattr(found, "labels_"):
        raise InvalidInputError(f"{type(found).__name__} is not fitted; call fit first.")
    if hasattr(found, "n_partitions") and not hasattr(found, "fit"):
        raise InvalidInputError(
            f"an {type(found).__name__} has no labels of a consensus; pass one that was made of it."
        )
    return getattr(found, "label_rows", getattr(found, "labels_", found))


class LabelColumn:
    """Labels ``(n_objects,)`` of a clustering, recoded to 0 .. n_clusters - 1 as they are read.

    Of a fitted clusterer or a `Consensus`, those that were found; of an index, `row_names` are kept.
    """

    def __init__(self, name: str, labels: Any) -> None:
        self.name = name
        self.row_names: Any = names_of_rows(labels)
        labels = labels_of(labels)
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
        encoding = Encoding(self.name)
        for block in row_blocks(self.n_objects, BLOCK_ROWS):
            encoding.add(self._labels[block.start : block.stop])
        return encoding.finish()
