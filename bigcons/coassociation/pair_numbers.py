"""Pairs by number: the pairs ``i < j`` counted row by row, 0 to ``n (n - 1) / 2 - 1``, exact in integers."""

from __future__ import annotations

import numpy as np

from bigcons.errors import InvalidInputError

MAX_OBJECTS = 2**31 - 1


def count_all_pairs(n_objects: int) -> int:
    """Return ``n (n - 1) / 2``, the number of pairs of ``n_objects`` objects."""
    if not 2 <= n_objects <= MAX_OBJECTS:
        raise InvalidInputError(
            f"n_objects={n_objects} has no pairs to sample; between 2 and {MAX_OBJECTS:,} objects are needed."
        )
    return n_objects * (n_objects - 1) // 2


def pairs_of_numbers(numbers: np.ndarray, n_objects: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs ``(i, j)`` int32 of pair ``numbers`` ``(n_pairs,)`` int64; order is kept."""
    i = np.empty(len(numbers), dtype=np.int32)
    j = np.empty(len(numbers), dtype=np.int32)
    step = 1 << 20  # a slice at a time, so that the temporaries stay small
    for start in range(0, len(numbers), step):
        part = slice(start, start + step)
        row, column = _triangle_coordinates(count_all_pairs(n_objects) - 1 - numbers[part])
        i[part] = n_objects - 2 - row
        j[part] = n_objects - 1 - column
    return i, j


def _triangle_coordinates(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Invert ``number = row (row + 1) / 2 + column`` with ``0 <= column <= row``, exactly."""
    row = (np.sqrt(2.0 * numbers + 0.25) - 0.5).astype(np.int64)
    row -= row * (row + 1) // 2 > numbers  # the float root is off by one at most
    row += (row + 1) * (row + 2) // 2 <= numbers
    return row, numbers - row * (row + 1) // 2


def distinct_numbers(rng: np.random.Generator, total: int, wanted: int) -> np.ndarray:
    """Return ``wanted`` distinct numbers below ``total``, ascending; every subset is equally likely."""
    if 2 * wanted > total:  # draw what to leave out: then at most half is ever repeated
        keep = np.ones(total, dtype=bool)
        keep[distinct_numbers(rng, total, total - wanted)] = False
        return np.flatnonzero(keep)
    # The first `wanted` distinct values of an endless uniform sequence are a uniform subset. A batch
    # never holds more than what is still missing, so none is ever dropped for any other reason
    # than having come before.
    numbers = np.empty(0, dtype=np.int64)
    while len(numbers) < wanted:
        batch = np.sort(rng.integers(total, size=wanted - len(numbers)))
        first = np.concatenate([[True], batch[1:] != batch[:-1]])
        numbers = _merge_distinct(numbers, batch[first])
    return numbers


def _merge_distinct(numbers: np.ndarray, batch: np.ndarray) -> np.ndarray:
    """Merge two ascending arrays of distinct numbers into one."""
    if not len(numbers):
        return batch
    position = np.searchsorted(numbers, batch)
    fresh = numbers[np.minimum(position, len(numbers) - 1)] != batch
    return np.insert(numbers, position[fresh], batch[fresh])
