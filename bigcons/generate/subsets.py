"""Random subsets of the objects, drawn segment by segment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigcons.memory import row_blocks
from bigcons.seeding import generator


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


def subset_size(n_objects: int, share: float) -> int:
    """Return how many of the first ``n_objects`` objects a subset of ``share`` holds."""
    return round(share * n_objects)
