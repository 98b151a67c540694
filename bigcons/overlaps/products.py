"""Overlaps of base clusters in the form that takes least: a table, a sparse matrix, or products with tables.

Where partitions are very many, most pairs of base clusters share an object, and neither a table nor a sparse
matrix of them fits. A product of ``H^T H`` and a table (B, columns) then takes a pass over the labels, with
two sums for each. The cosine ``|a and b| / sqrt(|a| |b|)`` of base clusters of different partitions is that
of the scaled incidence matrix with itself, without its diagonal: base clusters of one partition share no
object.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from bigcons.execution.engine import Engine
from bigcons.memory import DEFAULT_DATA_BYTES
from bigcons.overlaps.eigenvectors import (
    LABELS_PER_BASE_CLUSTER,
    check_passes_plan,
    costs,
    groups_of,
    logger,
    multiply,
)
from bigcons.overlaps.incidence import (
    check_overlaps_plan,
    fold_overlaps,
    fold_sizes,
    over_zero,
)
from bigcons.overlaps.sparse import (
    MARGIN,
    PAIR_BYTES,
    estimated_pairs,
    sparse_overlaps,
    takes_sparse,
)
from bigcons.solving.memory_plan import label_bytes
from bigcons.stores.ensemble import Ensemble

# Pairs of base clusters above which they are not listed.
MOST_PAIRS = int(DEFAULT_DATA_BYTES / (PAIR_BYTES * MARGIN))


class Form(IntEnum):
    """A form of the overlaps; the finer base clusters are, the later the one that takes least."""

    TABLE = 0
    SPARSE = 1
    PRODUCTS = 2


def overlaps_in_any_form(
    name: str,
    ensemble: Ensemble,
    engine: Engine,
    memory: str | float | None,
    *,
    columns: int,
    in_memory: bool,
    last: Form = Form.PRODUCTS,
    n_vectors: int = 0,
) -> Any:
    """Return ``H^T H`` (B, B): a table, the upper triangle as a csr_array, or `Products`.

    ``last`` is the last form that the method ``name`` can use. Logs its memory, and refuses a budget that
    cannot hold it. ``columns``, ``in_memory``: see `check_overlaps_plan`; ``n_vectors``: `form_of`.
    """
    plan: dict[str, Any] = {"columns": columns, "in_memory": in_memory}
    form, n_pairs = form_of(ensemble, engine, last, n_vectors)
    if form == Form.TABLE:
        check_overlaps_plan(name, ensemble, engine, memory, **plan)
        return fold_overlaps(ensemble, engine)
    if form == Form.SPARSE:
        return sparse_overlaps(name, ensemble, engine, memory, n_pairs, **plan)
    return overlaps_by_products(name, ensemble, engine, memory, **plan)


def form_of(
    ensemble: Ensemble, engine: Engine, last: Form = Form.PRODUCTS, n_vectors: int = 0
) -> tuple[Form, int]:
    """Return the form that takes least, up to ``last``, and of a sparse matrix about how many pairs it has.

    Products, if too many pairs of base clusters share an object to list them, or if all that is wanted are
    ``n_vectors`` eigenvectors and products take less. At most one pass over the labels.
    """
    if last == Form.TABLE or not takes_sparse(ensemble):
        return Form.TABLE, 0
    n, M, B = ensemble.n_objects, ensemble.n_partitions, ensemble.n_base_clusters
    # to list an overlap of two labels of an object takes four operations of `costs`
    takes_less = n_vectors > 0 and costs(ensemble, n_vectors)[0] < 4 * n * M * M / 2
    # a base cluster overlaps with at least one of every other partition, if no labels are missing
    if last == Form.PRODUCTS and (takes_less or M * B // 2 > MOST_PAIRS):
        return Form.PRODUCTS, 0
    n_pairs = estimated_pairs(ensemble, engine)
    return (Form.PRODUCTS if n_pairs > MOST_PAIRS and last == Form.PRODUCTS else Form.SPARSE), n_pairs


def of_base_clusters(overlaps: Any, kept: np.ndarray) -> Any:
    """Return the overlaps, or similarities, in any form, of some base clusters."""
    if isinstance(overlaps, Products):
        return overlaps.of(kept)
    return overlaps[kept][:, kept] if issparse(overlaps) else overlaps[np.ix_(kept, kept)]


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
        """Return the shape of the matrix."""
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
