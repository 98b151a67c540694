"""Random subsets of the objects, drawn piece by piece of the data so that they need no memory of its size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bigcons.memory import row_blocks
from bigcons.seeding import generator

STRATUM_ROWS = 4096
"""Rows that are dealt out together to the partitions that share all objects among them."""


class Rows(Protocol):
    """The objects a partition sees."""

    @property
    def n_objects(self) -> int:
        """Number of all objects."""
        ...

    @property
    def segment_rows(self) -> int:
        """Rows of a segment."""
        ...

    def segment(self, segment: int) -> np.ndarray:
        """Return the chosen rows of one segment, ascending."""
        ...

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return the chosen rows from ``start``, the begin of a segment, to ``stop``, the end of one."""
        ...


@dataclass(frozen=True)
class Subset:
    """A random share of ``n_objects`` objects, the same however it is read.

    The objects are cut into segments of ``segment_rows``. Each segment gives a fixed number of its
    rows, drawn without replacement by a generator of its own; the numbers differ by at most one and
    add up to ``size``.
    """

    n_objects: int
    share: float
    segment_rows: int
    seed: int
    stream: str
    index: int

    @property
    def size(self) -> int:
        """Number of objects in the subset."""
        return subset_size(self.n_objects, self.share)

    def segment(self, segment: int) -> np.ndarray:
        """Return the chosen rows of one segment, ascending."""
        start = segment * self.segment_rows
        stop = min(start + self.segment_rows, self.n_objects)
        count = subset_size(stop, self.share) - subset_size(start, self.share)
        rng = generator(self.seed, self.stream, self.index, segment)
        return start + np.sort(rng.choice(stop - start, size=count, replace=False, shuffle=False))

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return the chosen rows from ``start``, the begin of a segment, to ``stop``, the end of one."""
        first = start // self.segment_rows
        return np.concatenate(
            [self.segment(first + block.index) for block in row_blocks(stop - start, self.segment_rows)]
        )


@dataclass(frozen=True)
class DealtSubset:
    """The objects of partition ``index`` where ``n_partitions`` share all objects, each ``repetition`` times.

    The coordinated sampling of Strehl and Ghosh 2002 (object-distributed clustering): a shuffled order
    of the objects is dealt out, ``n / p`` to each of the ``p`` partitions, so that every object is in
    one; each partition then draws ``(v - 1) n / p`` of the objects it has not. They deal contiguous
    ranges of one shuffled order of all objects. Here each stratum of 4,096 rows (or ``2 p``; the last
    has up to twice as many) is shuffled and dealt in turn, which needs no memory of the size of the
    data and gives every partition the same number of objects, up to one, of the whole and of any part.
    """

    n_objects: int
    n_partitions: int
    repetition: int
    segment_rows: int
    seed: int
    stream: str
    index: int

    @property
    def size(self) -> int:
        """Number of objects in the subset."""
        return self._size(self.n_objects)

    def segment(self, segment: int) -> np.ndarray:
        """Return the chosen rows of one segment, ascending."""
        start = segment * self.segment_rows
        return self.rows(start, min(start + self.segment_rows, self.n_objects))

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return the chosen rows from ``start`` to ``stop``, ascending."""
        strata = range(self._stratum(start), self._stratum(stop - 1) + 1)
        chosen = np.concatenate([self._chosen(stratum) for stratum in strata])
        return chosen[slice(*np.searchsorted(chosen, (start, stop)))]

    @property
    def _stratum_rows(self) -> int:
        return max(STRATUM_ROWS, 2 * self.n_partitions)  # so many that none has fewer than are dealt

    @property
    def _n_strata(self) -> int:
        return max(1, self.n_objects // self._stratum_rows)

    def _stratum(self, row: int) -> int:
        return min(row // self._stratum_rows, self._n_strata - 1)

    def _chosen(self, stratum: int) -> np.ndarray:
        start = stratum * self._stratum_rows
        stop = self.n_objects if stratum == self._n_strata - 1 else start + self._stratum_rows
        order = start + generator(self.seed, f"{self.stream}.deal", stratum).permutation(stop - start)
        is_dealt = np.arange(start, stop) % self.n_partitions == self.index
        dealt, others = order[is_dealt], order[~is_dealt]
        n_more = self._size(stop) - self._size(start) - len(dealt)
        rng = generator(self.seed, f"{self.stream}.rest", self.index, stratum)
        rest = rng.choice(others, size=n_more, replace=False, shuffle=False) if n_more else others[:0]
        return np.sort(np.concatenate([dealt, rest]))

    def _size(self, stop: int) -> int:
        """How many of the first ``stop`` objects are chosen; with ``repetition=1``, how many are dealt."""
        return (self.repetition * stop + self.n_partitions - 1 - self.index) // self.n_partitions


def subset_size(n_objects: int, share: float) -> int:
    """Return how many of the first ``n_objects`` objects a subset of ``share`` holds."""
    return round(share * n_objects)
