"""Similarity of objects from counts of agreement, and the distances of all pairs in condensed form."""

from __future__ import annotations

from functools import partial

import numpy as np

from bigcons.execution.engine import Engine
from bigcons.memory import Block, row_blocks
from bigcons.progress import progress

NORMALIZATIONS = ("observed", "all")

# Entries of a band of rows with all that follow, enough to keep a worker busy, and their bytes on the way:
# counts, quotient, distance and where they stand.
BAND_ENTRIES = 1 << 19
BYTES_PER_BAND_ENTRY = 50


def similarity(n_agree: np.ndarray, n_seen: np.ndarray, n_partitions: int, normalize: str) -> np.ndarray:
    """Return ``c / N`` ("observed"; 0 where no partition sees both) or ``c / M`` ("all"), float64."""
    if normalize == "all":
        return n_agree / n_partitions
    return np.divide(n_agree, n_seen, out=np.zeros(np.shape(n_agree)), where=n_seen > 0)


def distance(n_agree: np.ndarray, n_seen: np.ndarray, n_partitions: int, normalize: str) -> np.ndarray:
    """Return one less the similarity, float64."""
    return 1.0 - similarity(n_agree, n_seen, n_partitions, normalize)


def condensed_distances(rows: np.ndarray, normalize: str, engine: Engine) -> np.ndarray:
    """Return the distances of all pairs of label rows ``(n, n_partitions)`` as scipy's condensed vector.

    Row 0 with 1, 2, ..., then row 1 with 2, 3, ...: ``n (n - 1) / 2`` float64. O(n^2 n_partitions) time.
    """
    n = len(rows)
    distances = np.empty(n * (n - 1) // 2)
    bands = row_blocks(n, max(BAND_ENTRIES // max(n, 1), 1))
    filled = 0
    with progress("distances", n) as listener:
        for band, part in zip(bands, engine.map(partial(_band, rows, normalize), bands), strict=True):
            distances[filled : filled + len(part)] = part
            filled += len(part)
            listener.advance(band.n_rows)
    return distances


def condensed_bytes(n_rows: int, engine: Engine) -> int:
    """Return the memory that `condensed_distances` of so many rows takes, bands under way included."""
    on_the_way = BYTES_PER_BAND_ENTRY * min(max(BAND_ENTRIES, n_rows), n_rows * n_rows) * engine.in_flight
    return 4 * n_rows * (n_rows - 1) + on_the_way


def _band(rows: np.ndarray, normalize: str, band: Block) -> np.ndarray:
    """Return the distances of a band of rows with the rows after each."""
    from bigcons.kernels.label_rows import count_tile

    left, right = rows[band.start : band.stop], rows[band.start :]
    n_agree = np.empty((len(left), len(right)), np.int32)
    n_seen = np.empty_like(n_agree)
    count_tile(left, right, n_agree, n_seen)
    return distance(n_agree, n_seen, rows.shape[1], normalize)[np.triu_indices(len(left), 1, len(right))]
