"""Leading eigenvectors: of a table, and of the scaled overlaps ``C^(1/2) H^T W H C^(1/2)`` without the table.

A pass over the labels takes a table Q (B, columns) to ``C^(1/2) H^T W (H C^(1/2) Q)``, by two sums for each
label. Memory is B times a few dozen columns, and the number of passes depends on how far the eigenvalues fall
after those wanted: a handful where there are clusters.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

from bigcons.memory import Block
from bigcons.methods.incidence import Weigh, check_overlaps_plan
from bigcons.progress import progress
from bigcons.run.engine import Engine, one_thread
from bigcons.run.memory_plan import MemoryPlan, block_label_bytes
from bigcons.seeding import generator
from bigcons.store.ensemble import Ensemble

logger: logging.Logger = logging.getLogger("bigcons")

# Above this many base clusters the leading eigenvectors of a table are found by Lanczos iterations, and those
# of an embedding without a table.
MOST_FOR_DENSE = 2_000

# Eigenvalues below this share of the largest, and columns as small beside what they were before they were
# made orthogonal, are rounding errors of zero.
NEGLIGIBLE = 1e-10

# An eigenvector is found when ``|A v - value v|`` is at most this; the largest eigenvalue is 1. The angle to
# the true one is at most this, divided by the distance to the next eigenvalue not wanted.
RESIDUAL = 1e-3

# Passes after which vectors count as found: with no gap after them, no space of theirs is to be found.
MOST_PASSES = 24

# Blocks of objects are visited together by a task until they have this many labels for each base cluster, so
# that adding up tables (B, width) costs little beside making them.
LABELS_PER_BASE_CLUSTER = 8


def is_dense(n_rows: int, n_vectors: int) -> bool:
    """Return whether eigenvectors of a matrix (rows, rows) are found by LAPACK, not by Lanczos iterations."""
    return n_rows <= MOST_FOR_DENSE or 10 * n_vectors > n_rows


def leading_eigenvectors(matrix: Any, n_vectors: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest eigenvalues, descending, and their vectors (B, k) of a semidefinite matrix.

    At most ``n_vectors``, none whose value is zero up to rounding. The entry of largest magnitude of a vector
    is positive, which fixes the signs. Of a matrix that `is_dense` is not true of, its products are enough:
    it may be a linear operator of SciPy's.
    """
    import scipy.linalg
    import scipy.sparse.linalg

    B = matrix.shape[0]
    k = min(n_vectors, B)
    with one_thread(user_api="blas"):
        if is_dense(B, k):
            try:
                values, vectors = scipy.linalg.eigh(matrix, subset_by_index=(B - k, B - 1))
            except np.linalg.LinAlgError:  # LAPACK's syevr fails on some matrices with repeated eigenvalues
                values, vectors = scipy.linalg.eigh(matrix, driver="ev")
                values, vectors = values[B - k :], vectors[:, B - k :]
        else:
            start = np.random.default_rng(0).standard_normal(B)
            values, vectors = scipy.sparse.linalg.eigsh(matrix, k, v0=start)
    order = np.argsort(-values, kind="stable")
    order = order[values[order] > NEGLIGIBLE * values[order[0]]]
    return values[order], with_signs(vectors[:, order])


def spectrum(incidence: Any, counts: np.ndarray, n_values: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the leading squared singular values (k,), descending, and left vectors (rows, k) of objects.

    At most ``n_values``, none zero up to rounding: of ``D_r^(-1/2) H C^(1/2) D_c^(-1/2)``, by the incidence
    matrix H (rows, B), a csr_array, with the ``counts`` (B,) of base clusters in C. From the eigenvectors of
    the smaller of its two products with its transpose, which is formed only where that takes less than eight
    times the operations of multiplying by both: it is read in order.
    """
    import scipy.sparse.linalg

    n_labels = incidence @ counts
    sizes = np.bincount(incidence.indices, incidence.data, incidence.shape[1])
    by_row, by_column = (1.0 / np.sqrt(np.where(of > 0, of, 1.0)) for of in (n_labels, sizes))
    by_column *= np.sqrt(counts)
    entries = incidence.data * (np.repeat(by_row, np.diff(incidence.indptr)) * by_column[incidence.indices])
    scaled = scipy.sparse.csr_array((entries, incidence.indices, incidence.indptr), incidence.shape)
    is_wide = scaled.shape[1] > scaled.shape[0]
    factor = scaled if is_wide else scaled.T.tocsr()
    n = factor.shape[0]
    if is_dense(n, min(n_values, n)) or 16 * factor.nnz > n * n:
        product = products_of_rows(factor)
    else:
        product = scipy.sparse.linalg.aslinearoperator(factor)
        product = product @ scipy.sparse.linalg.aslinearoperator(factor.T.tocsr())
    values, vectors = leading_eigenvectors(product, n_values)
    return values, vectors if is_wide else (scaled @ vectors) / np.sqrt(values)


def products_of_rows(matrix: Any) -> np.ndarray:
    """Return the products (n, n) of any two rows of a csr_array (n, columns)."""
    from bigcons.kernels.overlaps import multiply_rows

    matrix.sort_indices()
    products = np.zeros((matrix.shape[0], matrix.shape[0]))
    column_starts = np.append(0, np.bincount(matrix.indices, minlength=matrix.shape[1]).cumsum())
    multiply_rows(matrix.indptr, matrix.indices, matrix.data, column_starts, products)
    return products


def with_signs(vectors: np.ndarray) -> np.ndarray:
    """Return vectors (B, k) whose entry of largest magnitude is positive."""
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])]
    return np.asarray(vectors * np.where(largest < 0, -1.0, 1.0))


class Eigenvectors(NamedTuple):
    """What `leading_by_passes` finds."""

    values: np.ndarray
    """(k,) descending."""
    vectors: np.ndarray
    """(B, k) orthonormal."""
    n_passes: int


def check_embedding_plan(
    name: str,
    ensemble: Ensemble,
    engine: Engine,
    memory: str | float | None,
    *,
    columns: int,
    held: int = 0,
) -> None:
    """Log the memory of a method by an `Embedding` in ``columns``, and refuse a budget that cannot hold it.

    ``held`` is added to the bytes held.
    """
    n, B, rows = ensemble.n_objects, ensemble.n_base_clusters, ensemble.chunk_rows
    if B <= MOST_FOR_DENSE:
        plan: dict[str, Any] = {"columns": columns, "in_memory": False, "held": held}
        check_overlaps_plan(name, ensemble, engine, memory, **plan)
        return
    table = 8 * B * (-(-columns // 8) * 8)
    held += 16 * table + 4 * n  # vectors, residuals and directions, their products, and copies
    per_block = 2 * table + block_label_bytes(ensemble) + 24 * rows * (columns + 1)
    needed = MemoryPlan(held, per_block, max(table, 12 * rows))
    needed.check(name, engine, ensemble, memory, f" for n_base_clusters={B}")


def leading_by_passes(
    ensemble: Ensemble,
    engine: Engine,
    weigh: Weigh,
    scale: np.ndarray,
    n_vectors: int,
    *,
    tol: float = RESIDUAL,
    max_passes: int = MOST_PASSES,
) -> Eigenvectors:
    """Return the leading eigenvectors of ``H^T W H``, rows and columns times ``scale`` (B,).

    At most ``n_vectors``, none whose value is zero up to rounding. ``weigh`` gives the weights (rows,) of the
    objects of a block. By LOBPCG (Knyazev 2001), a pass an iteration, until no residual ``|A v - value v|``
    is above ``tol``, from a random start that does not depend on the engine.
    """
    from scipy.sparse.linalg import lobpcg

    B, n_passes = scale.size, 0
    groups = groups_of(ensemble, LABELS_PER_BASE_CLUSTER * B)

    def product(table: np.ndarray) -> np.ndarray:
        nonlocal n_passes
        n_passes += 1
        return multiply(ensemble, engine, groups, weigh, scale, table)

    start = generator(0, "overlaps.range").standard_normal((B, min(n_vectors, B)))
    with one_thread(user_api="blas"), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of what has not converged, and of small matrices
        values, vectors = lobpcg(product, start, tol=tol, maxiter=max_passes)
    logger.info("%d eigenvectors of %d base clusters: %d passes", values.size, B, n_passes)
    order = np.argsort(-values, kind="stable")
    order = order[values[order] > NEGLIGIBLE * values[order[0]]]
    return Eigenvectors(values[order], with_signs(vectors[:, order]), n_passes)


def multiply(
    ensemble: Ensemble,
    engine: Engine,
    groups: Sequence[Sequence[Block]],
    weigh: Weigh,
    scale: np.ndarray,
    table: np.ndarray,
) -> np.ndarray:
    """Return the product (B, columns) of the scaled overlaps and a ``table``, in one pass over the labels."""
    from bigcons.kernels.cluster_tables import in_whole_vectors
    from bigcons.kernels.overlaps import add_products, add_soft_products

    offsets, columns = ensemble.offsets, table.shape[1]
    scaled = in_whole_vectors(table * scale[:, None])

    def product_of(group: Sequence[Block]) -> np.ndarray:
        product = np.zeros_like(scaled)
        for block in group:
            labels = ensemble.read(block.start, block.stop)
            if labels.dtype.kind == "f":
                add_soft_products(labels, weigh(labels), scaled, product)
            else:
                add_products(labels, offsets, weigh(labels), scaled, product)
        return product

    total = np.zeros_like(scaled)
    with (
        progress("eigenvectors of base clusters", ensemble.n_objects) as listener,
        closing(engine.map(product_of, groups)) as products,
    ):
        for group, product in zip(groups, products, strict=True):
            total += product
            listener.advance(sum(block.n_rows for block in group))
    return total[:, :columns] * scale[:, None]


def groups_of(ensemble: Ensemble, n_labels: int) -> list[list[Block]]:
    """Return the blocks in consecutive groups of at least ``n_labels`` labels, whatever the engine."""
    groups: list[list[Block]] = []
    rows = 0
    for block in ensemble.blocks():
        if not groups or rows * ensemble.n_partitions >= n_labels:
            groups.append([])
            rows = 0
        groups[-1].append(block)
        rows += block.n_rows
    return groups
