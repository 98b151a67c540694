"""Membership tables that users hold, one for each partition of the same objects, read side by side."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.disk.commit import is_store
from bigcons.errors import EmptyPartitionError, InvalidInputError
from bigcons.io.columns import Column, select
from bigcons.io.factorize import partition_names
from bigcons.io.ids import Ids, refuse_other_ids
from bigcons.io.labels import observed
from bigcons.io.sources import open_source
from bigcons.memory import row_blocks
from bigcons.store.consensus import Consensus
from bigcons.store.ensemble_store import SUM_TOLERANCE

if TYPE_CHECKING:  # it imports Arrow, which few fits need
    from bigcons.io.features import Features


class SoftSources:
    """The memberships ``(n_objects, k_u)`` of M partitions.

    Each source is a table as for `Ensemble.from_labels` but with one column for each cluster, or the path of
    a Consensus with memberships, or such a Consensus.
    """

    where: str = "memberships"

    def __init__(self, sources: Any, names: Sequence[str]) -> None:
        self.names: list[str] = list(names)
        self._sources = [_open(source, name) for source, name in zip(sources, names, strict=True)]
        self.n_objects: int = self._sources[0].n_objects
        self.ids: Ids | None = None
        for name, source in zip(names, self._sources, strict=True):
            if source.n_objects != self.n_objects:
                raise InvalidInputError(
                    f"memberships of {name!r} have {source.n_objects:,} objects but those of {names[0]!r} "
                    f"have {self.n_objects:,}; give one row per object, in the same order, NaN where "
                    "it is missing."
                )
            ids = source.id_column
            if self.ids is not None and ids is not None:
                refuse_other_ids(self.ids.blocks(), ids.blocks(), ids.facts.name, f"memberships of {name!r}")
            self.ids = self.ids or ids
        counts = [s.n_clusters if isinstance(s, Consensus) else s.n_features for s in self._sources]
        self.n_clusters: np.ndarray = np.array(counts, np.int64)
        self.offsets: np.ndarray = np.concatenate([[0], np.cumsum(self.n_clusters)])

    @property
    def row_bytes(self) -> int:
        """Approximate bytes to read one object."""
        return 32 * int(self.n_clusters.sum())

    def blocks(self, rows: int = 4096) -> Iterator[np.ndarray]:
        """Yield the memberships ``(rows, n_base_clusters)`` float32: rows of a partition sum to 1, or are 0.

        Raises InvalidInputError, with object and partition, for rows that are not on the simplex.
        """
        readers = [_rows_of(source, rows) for source in self._sources]
        for block in row_blocks(self.n_objects, rows):
            memberships = np.empty((block.n_rows, int(self.offsets[-1])), np.float32)
            for name, (first, last), reader in zip(self.names, pairwise(self.offsets), readers, strict=True):
                values = next(reader).astype(np.float64)
                missing = np.isnan(values).all(axis=1) | ~values.any(axis=1)
                values[missing] = 0.0
                sums = values.sum(axis=1)
                bad = ~missing & ~((np.abs(sums - 1.0) <= SUM_TOLERANCE) & (values >= 0).all(axis=1))
                if bad.any():
                    i = int(np.argmax(bad))
                    raise InvalidInputError(
                        f"memberships of object {block.start + i} in {name!r} have sum {sums[i]:g} and "
                        f"minimum {values[i].min():g}; give probabilities, or all NaN where it is missing."
                    )
                memberships[:, first:last] = values / np.where(missing, 1.0, sums)[:, None]
            yield memberships

    def count_labeled(self, *, rows: int = 4096, may_be_empty: bool = False) -> np.ndarray:
        """Read everything once and return how many objects each partition labels, ``(M,)`` int64.

        Raises EmptyPartitionError for a partition that labels none, unless it ``may_be_empty``.
        """
        n_labeled = np.zeros(len(self.names), np.int64)
        for block in self.blocks(rows):
            n_labeled += np.count_nonzero(observed(block, self.offsets), axis=0)
        if not may_be_empty and not n_labeled.all():
            raise EmptyPartitionError(self.names[int(np.argmin(n_labeled))])
        return n_labeled


def listed(
    sources: Any, names: Sequence[str] | None, first: int = 0, id: Column | None = None
) -> tuple[list[Any], list[str]]:
    """Return membership tables as a list, with the names of their partitions.

    Names are by default ``p0, p1, ...``, numbered from ``first``; ``id`` is the column of the ids in tables.
    """
    is_one = isinstance(sources, (str, os.PathLike, Consensus)) or getattr(sources, "ndim", 3) != 3
    if is_one or not isinstance(sources, (Sequence, np.ndarray)) or len(sources) == 0:
        raise InvalidInputError(
            f"memberships has type {type(sources).__name__}; pass a list of tables (n_objects, n_clusters), "
            "one for each partition."
        )
    sources = [source if _is_consensus(source) else select(source, id=id) for source in sources]
    return sources, partition_names(names, len(sources), "tables", first)


def _is_consensus(source: Any) -> bool:
    return isinstance(source, Consensus) or (isinstance(source, (str, os.PathLike)) and is_store(source))


def _open(source: Any, name: str) -> Features | Consensus:
    if _is_consensus(source):
        consensus = source if isinstance(source, Consensus) else Consensus.open(source)
        consensus.read_memberships(0, 0)  # raises if there are only labels
        return consensus
    from bigcons.io.features import Features

    source = np.asarray(source) if isinstance(source, (list, tuple)) else source
    table = Features(open_source(source, "memberships"), may_be_missing=True)
    if not table.encoding.is_plain:
        raise InvalidInputError(f"memberships of {name!r} have a column of text; pass numbers.")
    return table


def _rows_of(source: Features | Consensus, rows: int) -> Iterator[np.ndarray]:
    """Yield the memberships of one partition, missing rows as NaN or 0."""
    if not isinstance(source, Consensus):
        yield from (values for _, values in source.iterate(rows))
        return
    for block in source.blocks(rows):
        missing = source.read_labels(block.start, block.stop) < 0
        memberships = source.read_memberships(block.start, block.stop)
        yield np.where(missing[:, None], np.float32(0), memberships)
