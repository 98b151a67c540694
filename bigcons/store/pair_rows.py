"""Pairs as columns and as symmetric compressed sparse rows: validation, conversion and stores of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigcons.errors import InvalidInputError

KIND = "pairs"

MAX_OBJECTS = 2**31 - 1
MAX_SEEN = 2**16 - 2

CHUNK_ENTRIES = 1 << 20
"""Entries of a chunk of a store; each pair has two."""

# Bytes of a pair and of an object while a table is built. Half more above a billion pairs.
PAIR_BYTES, OBJECT_BYTES = 60, 40


class Edges(NamedTuple):
    """Pairs ``i < j`` in ascending order, with their counts; four arrays ``(n_pairs,)``."""

    i: np.ndarray
    j: np.ndarray
    n_agree: np.ndarray
    n_seen: np.ndarray


class Rows(NamedTuple):
    """Compressed sparse rows: row ``r`` is at ``indptr[r]:indptr[r + 1]`` of the other three."""

    indptr: np.ndarray
    indices: np.ndarray
    n_agree: np.ndarray
    n_seen: np.ndarray


def ascending_pairs(i: Any, j: Any, n_objects: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return the pairs as ``(i, j, order)``: int32, ``i < j``, ascending; raises InvalidInputError.

    ``order`` sorts columns that belong to the pairs; None if they were sorted. Columns are copied only if
    they change.
    """
    if not 0 <= n_objects <= MAX_OBJECTS:
        raise InvalidInputError(f"n_objects={n_objects} is out of range; use 0 to {MAX_OBJECTS:,}.")
    i, j = _integers(i=i, j=j)
    outside = (i < 0) | (j < 0) | (i >= n_objects) | (j >= n_objects)
    _refuse(outside, f"objects are numbered 0 to {n_objects - 1}", i=i, j=j)
    _refuse(i == j, "a pair has two different objects", i=i, j=j)
    low, high = (i, j) if (i < j).all() else (np.minimum(i, j), np.maximum(i, j))
    low, high = low.astype(np.int32, copy=False), high.astype(np.int32, copy=False)
    number = low * np.int64(n_objects)
    number += high
    order = None
    if np.any(number[1:] <= number[:-1]):
        order = np.argsort(number)
        number, low, high = number[order], low[order], high[order]
    repeated = np.concatenate([[False], number[1:] == number[:-1]])
    _refuse(repeated, "each pair must be given once", i=low, j=high)
    return low, high, order


def checked_counts(n_agree: Any, n_seen: Any, n_pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the counts of ``n_pairs`` pairs, integers; raises InvalidInputError if they are invalid."""
    _, n_agree, n_seen = _integers(i=np.arange(n_pairs), n_agree=n_agree, n_seen=n_seen)
    bad = (n_agree < 0) | (n_agree > n_seen) | (n_seen > MAX_SEEN)
    _refuse(bad, f"0 <= n_agree <= n_seen <= {MAX_SEEN} must hold", n_agree=n_agree, n_seen=n_seen)
    return n_agree, n_seen


def _integers(**columns: Any) -> list[np.ndarray]:
    """Return columns of equal length as arrays of integers."""
    arrays = [np.asarray(column) for column in columns.values()]
    for name, array in zip(columns, arrays, strict=True):
        if array.size and (array.ndim != 1 or array.dtype.kind not in "iu"):
            raise InvalidInputError(
                f"{name} has shape {array.shape} and type {array.dtype}; pass integers of shape (n_pairs,)."
            )
    if len({array.size for array in arrays}) > 1:
        got = ", ".join(f"{name} has {array.size}" for name, array in zip(columns, arrays, strict=True))
        raise InvalidInputError(f"the columns differ in length ({got}); give one entry per pair in each.")
    return [array if array.size else array.astype(np.int64) for array in arrays]


def _refuse(bad: np.ndarray, rule: str, **columns: np.ndarray) -> None:
    if bad.any():
        p = int(np.argmax(bad))
        got = ", ".join(f"{name}={column[p]}" for name, column in columns.items())
        raise InvalidInputError(f"pair {p} has {got}, but {rule}; correct or remove it.")


def symmetric_rows(edges: Edges, n_objects: int) -> Rows:
    """Return ascending ``edges`` as ascending rows with every pair in the rows of both objects.

    Pairs with ``n_seen = 0`` are omitted. Working memory: 42 bytes per pair and 40 per object.
    """
    counts = counts_dtype(int(edges.n_seen.max(initial=0)))
    n_agree, n_seen = (np.tile(column.astype(counts), 2) for column in edges[2:])
    # in this order the columns of every row ascend already
    row, column = np.concatenate([edges.j, edges.i]), np.concatenate([edges.i, edges.j])
    return rows_of_entries(row, column, n_agree, n_seen, n_rows=n_objects, n_objects=n_objects)


def rows_of_entries(
    i: np.ndarray, j: np.ndarray, n_agree: np.ndarray, n_seen: np.ndarray, *, n_rows: int, n_objects: int
) -> Rows:
    """Return entries ``(i, j)``, in any order and each once, as ascending rows.

    Entries with ``n_seen = 0`` are omitted; counts keep their type. Working memory: 20 bytes per entry.
    """
    from scipy.sparse import coo_array

    seen = n_seen > 0
    if not seen.all():
        i, j, n_agree, n_seen = (part[seen] for part in (i, j, n_agree, n_seen))
    rows = coo_array((_packed(n_agree, n_seen), (i, j)), shape=(n_rows, n_objects)).tocsr()
    rows.sort_indices()
    return _unpacked(rows, n_seen.dtype)


def _packed(n_agree: np.ndarray, n_seen: np.ndarray) -> np.ndarray:
    """Return both counts in one number, 16 bits each."""
    counts = n_seen.astype(np.uint32)
    counts <<= np.uint32(16)
    counts |= n_agree.astype(np.uint32)
    return counts


def _unpacked(rows: Any, dtype: np.dtype) -> Rows:
    """Unpack the counts of the matrix ``rows``, which is overwritten, to ``dtype``."""
    indptr, indices = rows.indptr.astype(np.int64), rows.indices.astype(np.int32, copy=False)
    n_agree = rows.data.astype(np.uint16).astype(dtype, copy=False)
    rows.data >>= np.uint32(16)
    return Rows(indptr, indices, n_agree, rows.data.astype(dtype))


def counts_dtype(largest: int) -> np.dtype:
    """Return the smallest unsigned type for counts up to ``largest`` and the fill value of lost chunks."""
    if largest > MAX_SEEN:
        raise InvalidInputError(
            f"pairs may be labeled by {largest:,} partitions, more than {MAX_SEEN:,}; use fewer partitions."
        )
    return np.dtype(np.uint8 if largest < np.iinfo(np.uint8).max else np.uint16)
