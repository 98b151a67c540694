"""Overlaps of base clusters that are too many to list: as products with tables, by passes over the labels.

Where partitions are very many, most pairs of base clusters share an object, and neither a table nor a sparse
matrix of them fits. The product of ``H^T H`` and a table (B, columns) takes two sums for each label, and the
cosine ``|a and b| / sqrt(|a| |b|)`` of base clusters of different partitions is that of the scaled incidence
matrix with itself, without its diagonal: base clusters of one partition share no object.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from bigcons.execution.engine import Engine
from bigcons.overlaps.eigenvectors import (
    LABELS_PER_BASE_CLUSTER,
    check_passes_plan,
    costs,
    groups_of,
    logger,
    multiply,
)
from bigcons.overlaps.incidence import fold_sizes, over_zero
from bigcons.overlaps.sparse import MARGIN, MOST_BYTES, PAIR_BYTES, estimated_pairs, takes_sparse
from bigcons.solving.memory_plan import label_bytes
from bigcons.stores.ensemble import Ensemble

# Pairs of base clusters above which they are not listed.
MOST_PAIRS = int(MOST_BYTES / (PAIR_BYTES * MARGIN))


# Operations of a pair of labels of an object whose overlap is listed, in units of `costs`.
LISTED = 4


def takes_products(ensemble: Ensemble, engine: Engine, n_vectors: int = 0) -> bool:
    """Return whether too many pairs of base clusters share an object to list them; at most one pass.

    Or whether products take less, if ``n_vectors`` eigenvectors are all that is wanted. A base cluster
    overlaps with at least one of every other partition, if no labels are missing.
    """
    if not takes_sparse(ensemble):
        return False
    n, M, B = ensemble.n_objects, ensemble.n_partitions, ensemble.n_base_clusters
    if n_vectors and costs(ensemble, n_vectors)[0] < LISTED * n * M * M / 2:
        return True
    if M * B // 2 > MOST_PAIRS:
        return True
    return min(B * B, n * M * M) // 2 > MOST_PAIRS and estimated_pairs(ensemble, engine) > MOST_PAIRS


class Products(NamedTuple):
    """A symmetric matrix (b, b) over base clusters, ``scale H^T H scale``, as products with tables."""

    ensemble: Ensemble
    engine: Engine
    sizes: np.ndarray
    """(B,): objects of all base clusters."""
    kept: np.ndarray
    """(b,): the base clusters of the matrix."""
    is_scaled: bool = False
    """Whether it is of cosines between partitions, not of numbers of objects."""

    @property
    def shape(self) -> tuple[int, int]:
        """Of the matrix."""
        return self.kept.size, self.kept.size

    def diagonal(self) -> np.ndarray:
        """Return the objects (b,) of each base cluster."""
        return self.sizes[self.kept]

    def of(self, kept: np.ndarray) -> Products:
        """Return the matrix of some of its base clusters."""
        return self._replace(kept=self.kept[kept])

    def cosines(self) -> Products:
        """Return the cosines of base clusters of different partitions."""
        return self._replace(is_scaled=True)

    def __matmul__(self, table: np.ndarray) -> np.ndarray:
        """Return the product (b, columns) with a table, in one pass over the labels."""
        B, scale = self.sizes.size, np.zeros(self.sizes.size)
        scale[self.kept] = 1.0 / np.sqrt(over_zero(self.diagonal())) if self.is_scaled else 1.0
        whole = np.zeros((B, table.shape[1]))
        whole[self.kept] = table
        groups = groups_of(self.ensemble, LABELS_PER_BASE_CLUSTER * B)
        found = multiply(self.ensemble, self.engine, groups, _ones, scale, whole)[self.kept]
        return found - table if self.is_scaled else found

    def columns(self, chosen: list[int]) -> np.ndarray:
        """Return some columns (b, number)."""
        table = np.zeros((self.kept.size, len(chosen)))
        table[chosen, np.arange(len(chosen))] = 1.0
        return self @ table


def overlaps_by_products(
    name: str,
    ensemble: Ensemble,
    engine: Engine,
    memory: str | float | None,
    *,
    columns: int,
    in_memory: bool,
) -> Products:
    """Return ``H^T H`` after a pass for its diagonal.

    Logs the memory of the method ``name``, and refuses a budget that cannot hold it.
    """
    n = ensemble.n_objects
    held = 2 * label_bytes(ensemble, n) + 8 * n * columns * (2 + in_memory)
    check_passes_plan(name, ensemble, engine, memory, columns=columns, held=held)
    logger.info("%s compares base clusters by cosines, in passes over the labels", name)
    sizes = fold_sizes(ensemble, engine, _ones)
    return Products(ensemble, engine, sizes, np.arange(sizes.size))


def _ones(labels: np.ndarray) -> np.ndarray:
    return np.ones(len(labels))


class Columns:
    """How similar the base clusters of one partition after another are to groups, by the labels in memory.

    Each object has the sum of the rows of a table that its base clusters select, which follows the table.
    """

    def __init__(self, cosines: Products, offsets: np.ndarray) -> None:
        ensemble, kept = cosines.ensemble, cosines.kept
        labels, before = ensemble.read(0, ensemble.n_objects), ensemble.offsets
        numbers = np.full(cosines.sizes.size, -1)
        numbers[kept] = np.arange(kept.size)
        self.offsets = offsets
        self.scale: np.ndarray = 1.0 / np.sqrt(over_zero(cosines.diagonal()))[:, None]
        self.rows: list[np.ndarray] = []
        """Of each partition: the number (n,) of an object's base cluster in it, from 1; 0 for none."""
        partitions = np.searchsorted(before, kept[offsets[:-1]], side="right") - 1
        for u, first in zip(partitions.tolist(), offsets[:-1].tolist(), strict=True):
            own = numbers[before[u] : before[u + 1]]
            rows = np.append(np.where(own >= 0, own - first + 1, 0), 0)  # the last: of missing labels
            self.rows.append(rows.astype(np.min_scalar_type(int(rows.max())))[labels[:, u]])
        self.sums: np.ndarray = np.empty((0, 0))

    def begin(self, table: np.ndarray) -> None:
        """Sum the rows of a table (b, K)."""
        self.sums = np.zeros((len(self.rows[0]), table.shape[1]))
        for u, (first, last) in enumerate(pairwise(self.offsets)):
            self.add(u, table[first:last])

    def add(self, u: int, change: np.ndarray) -> None:
        """Add a change of the rows of partition ``u``."""
        if change.any():
            first, last = self.offsets[u], self.offsets[u + 1]
            self.sums += np.vstack([np.zeros(change.shape[1]), change * self.scale[first:last]])[self.rows[u]]

    def similarity(self, u: int, own: np.ndarray) -> np.ndarray:
        """Return the similarity (k, K) of the base clusters of partition ``u`` to the others by their rows.

        ``own`` (k, K) are the rows of that partition.
        """
        (k, K), rows = own.shape, self.rows[u]
        cells = rows.astype(np.int64)[:, None] * K + np.arange(K)
        sums = np.bincount(cells.ravel(), self.sums.ravel(), (k + 1) * K).reshape(k + 1, K)[1:]
        return sums * self.scale[self.offsets[u] : self.offsets[u + 1]] - own


class Strips:
    """The same by a matrix (B, B) of similarities, dense or sparse."""

    def __init__(self, similarity: Any, offsets: np.ndarray) -> None:
        self.strips: list[Any] = [similarity[first:last] for first, last in pairwise(offsets)]
        self.table: np.ndarray = np.empty((0, 0))

    def begin(self, table: np.ndarray) -> None:
        """Take a table (B, K), which the caller changes."""
        self.table = table

    def add(self, u: int, change: np.ndarray) -> None:
        """Do nothing: the table has changed."""

    def similarity(self, u: int, own: np.ndarray) -> np.ndarray:  # noqa: ARG002 - see `Columns`
        """Return the similarity (k, K) of the base clusters of partition ``u``."""
        return np.asarray(self.strips[u] @ self.table)
