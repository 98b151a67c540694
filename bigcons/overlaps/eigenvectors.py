"""Leading eigenvectors: of a table, and of the scaled overlaps ``C^(1/2) H^T W H C^(1/2)`` without the table.

Where it would be large, the table of overlaps is never formed: a pass over the labels takes a table Q
(B, width) to ``C^(1/2) H^T W (H C^(1/2) Q)``, by two sums for each label. Passes build a block Krylov space
from a random start (a randomized range finder whose every pass counts), in which Rayleigh and Ritz give the
eigenvectors. Memory is B times a few dozen columns, and the number of passes depends on how far the
eigenvalues fall after those wanted: a handful where there are clusters. Of far fewer objects than base
clusters the same is done in the space of the objects, ``W^(1/2) H C H^T W^(1/2)``, whose vectors are shorter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

from bigcons.execution.engine import Engine, fold, one_thread
from bigcons.memory import Block, format_size
from bigcons.overlaps.incidence import MOST_FOR_TABLE, Weigh, votes_of
from bigcons.progress import progress
from bigcons.seeding import generator
from bigcons.solving.memory_plan import MemoryPlan, block_label_bytes
from bigcons.stores.ensemble import Ensemble

logger: logging.Logger = logging.getLogger("bigcons")

# Above this many base clusters the leading eigenvectors of a table are found by Lanczos iterations.
MOST_FOR_DENSE = 2_000

# Eigenvalues below this share of the largest, and columns as small beside what they were before they were
# made orthogonal, are rounding errors of zero.
NEGLIGIBLE = 1e-10

# Blocks of the Krylov space, after which it restarts from its best vectors.
MOST_BLOCKS = 4

# An eigenvector is found when ``|A v - value v|`` is at most this share of the largest eigenvalue; the angle
# to the true one is at most this, divided by the distance to the next eigenvalue not wanted.
RESIDUAL = 1e-3

# Passes after which vectors count as found: with no gap after them, no space of theirs is to be found.
MOST_PASSES = 12

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
    residual: float
    """The residual of the vector that is furthest from found, relative to the largest eigenvalue."""


def takes_passes(ensemble: Ensemble, n_vectors: int) -> bool:
    """Return whether `leading_by_passes` costs less than a table of overlaps (B, B) and its eigenvectors.

    It depends on the shape of the ensemble alone, so that results do not depend on the machine.
    """
    B = ensemble.n_base_clusters
    if B <= MOST_FOR_DENSE or 2 * MOST_BLOCKS * width_of(n_vectors, B) > B:
        return False
    passes, table = costs(ensemble, n_vectors)
    return B > MOST_FOR_TABLE or passes < table


def costs(ensemble: Ensemble, n_vectors: int) -> tuple[float, float]:
    """Return the operations of usual passes, and of a table of overlaps and its eigenvectors."""
    n, M, B = ensemble.n_objects, ensemble.n_partitions, ensemble.n_base_clusters
    passes = 8 * n * M * width_of(n_vectors, B) / 4  # eight passes, two sums of whole vectors for each label
    table = min(n * M * M / 2, n * B * B / 128) + (len(ensemble.blocks()) + 4.0 * n_vectors) * B * B
    return passes, table


def check_passes_plan(
    name: str,
    ensemble: Ensemble,
    engine: Engine,
    memory: str | float | None,
    *,
    columns: int,
    held: int = 0,
) -> None:
    """Log the memory of a method by `leading_by_passes`, and refuse a budget that cannot hold it.

    ``columns`` eigenvectors are found; ``held`` is added to the bytes held.
    """
    n, B, rows = ensemble.n_objects, ensemble.n_base_clusters, ensemble.chunk_rows
    logger.info(
        "%s: eigenvectors of %d base clusters by passes over the labels, %.2g operations; a table of "
        "overlaps would take %.2g and %s",
        *(name, B, *costs(ensemble, columns), format_size(8 * B * B)),
    )
    table = 8 * B * (-(-width_of(columns, B) // 8) * 8)
    if goes_by_objects(ensemble):
        held += 3 * table + (2 * MOST_BLOCKS + 8) * (table // B) * n
    else:
        held += (2 * MOST_BLOCKS + 6) * table
    held += 4 * n
    per_block = 2 * table + block_label_bytes(ensemble) + 24 * rows * (columns + 1)
    plan = MemoryPlan(held, per_block, max(table, 12 * rows))
    plan.check(name, engine, ensemble, memory, f" for n_base_clusters={B}")


def width_of(n_vectors: int, n_base_clusters: int) -> int:
    """Return the number of columns of a pass, whole vectors; eight more than wanted speed up convergence."""
    return min(-(-(n_vectors + 8) // 8) * 8, n_base_clusters)


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

    ``weigh`` gives the weights (rows,) of the objects of a block. The vectors do not depend on the engine.
    Of far fewer objects than base clusters, they follow from those of the objects.
    """
    groups = groups_of(ensemble, LABELS_PER_BASE_CLUSTER * scale.size)
    if goes_by_objects(ensemble):
        what, n = "objects", ensemble.n_objects
        found = leading_by_objects(
            ensemble, engine, groups, weigh, scale, n_vectors, tol=tol, max_products=max_passes
        )
    else:
        what, n = "base clusters", scale.size

        def product(table: np.ndarray) -> np.ndarray:
            return multiply(ensemble, engine, groups, weigh, scale, table)

        found = leading_by_products(product, n, n_vectors, tol=tol, max_products=max_passes)
    arguments = found.values.size, n, what, found.n_passes, found.residual
    logger.info("%d eigenvectors of %d %s: %d products, residual %.2g", *arguments)
    return found


def goes_by_objects(ensemble: Ensemble) -> bool:
    """Return whether the eigenvectors are found by those of the objects, which are far fewer.

    A product then takes two passes, but all else is quick.
    """
    few = 4 * ensemble.n_objects <= ensemble.n_base_clusters
    return few and not ensemble.is_soft


def leading_by_objects(
    ensemble: Ensemble,
    engine: Engine,
    groups: Sequence[Sequence[Block]],
    weigh: Weigh,
    scale: np.ndarray,
    n_vectors: int,
    *,
    tol: float,
    max_products: int,
) -> Eigenvectors:
    """Return the eigenvectors by those of ``N N^T`` of the objects, ``N = W^(1/2) H`` times ``scale``.

    A product takes two passes: one for the sums of the objects of each base cluster, and one for the sums of
    these of each object.
    """
    from bigcons.kernels.cluster_tables import count_shares, in_whole_vectors

    offsets, what = ensemble.offsets, "eigenvectors of objects"

    def of_base_clusters(columns: np.ndarray) -> np.ndarray:
        """Return ``N^T`` times columns (n, k), of whole vectors."""

        def task(group: Sequence[Block]) -> np.ndarray:
            sums = np.zeros((scale.size, columns.shape[1]))
            for block in group:
                labels = ensemble.read(block.start, block.stop)
                rows = columns[block.start : block.stop] * np.sqrt(weigh(labels))[:, None]
                count_shares(labels, offsets, rows, sums)
            return sums

        sums = fold_groups(what, ensemble, engine, groups, task)
        sums *= scale[:, None]
        return sums

    def product(table: np.ndarray) -> np.ndarray:
        sums = of_base_clusters(in_whole_vectors(table))
        sums *= scale[:, None]

        def task(block: Block) -> list[np.ndarray]:
            labels = ensemble.read(block.start, block.stop)
            return [votes_of(labels, offsets, sums)[0] * np.sqrt(weigh(labels))[:, None]]

        with progress(what, ensemble.n_objects) as listener:
            parts = fold(engine, ensemble.blocks(), task, list.__add__, progress=listener)
        return np.concatenate(parts)[:, : table.shape[1]]

    found = leading_by_products(product, ensemble.n_objects, n_vectors, tol=tol, max_products=max_products)
    vectors = of_base_clusters(in_whole_vectors(found.vectors))[:, : found.values.size]
    return found._replace(vectors=with_signs(vectors / np.sqrt(found.values)))


def leading_by_products(
    product: Callable[[np.ndarray], np.ndarray],
    n_rows: int,
    n_vectors: int,
    *,
    tol: float = RESIDUAL,
    max_products: int = MOST_PASSES,
    most_blocks: int = MOST_BLOCKS,
) -> Eigenvectors:
    """Return the leading eigenvectors of a semidefinite matrix by its products with tables (B, columns)."""
    width, k = width_of(n_vectors, n_rows), min(n_vectors, n_rows)
    V = AV = np.empty((n_rows, 0))
    projected = np.empty((0, 0))
    with one_thread(user_api="blas"):
        new = orthonormal(generator(0, "overlaps.range").standard_normal((n_rows, width)), V)
    n_products = 0
    while True:
        image = product(new)
        n_products += 1
        with one_thread(user_api="blas"):
            V, AV = np.concatenate([V, new], axis=1), np.concatenate([AV, image], axis=1)
            of_new = V.T @ image
            old = of_new[: len(projected)]
            projected = np.block([[projected, old], [old.T, of_new[len(old) :]]])
            values, Z = np.linalg.eigh(0.5 * (projected + projected.T))
            best = np.argsort(-values, kind="stable")[:width]
            values, Z = values[best], np.ascontiguousarray(Z[:, best])
            X, AX = V @ Z, AV @ Z
            errors = AX - X * values
            largest = max(float(values[0]), np.finfo(float).tiny)
            residual = float(np.sqrt(np.einsum("bk,bk->k", errors, errors)[:k].max()) / largest)
            if residual <= tol or n_products >= max_products:
                break
            if V.shape[1] + width > most_blocks * width:
                V, AV, projected = X, AX, np.diag(values)
            new = orthonormal(errors, V)
        if not new.shape[1]:  # the space is invariant: its vectors are exact
            break
    known = np.flatnonzero(values[:k] > NEGLIGIBLE * largest)
    return Eigenvectors(values[known], with_signs(X[:, known]), n_products, residual)


def orthonormal(columns: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis of what is in ``columns`` (B, width) but not in ``basis`` (B, m)."""
    import scipy.linalg

    lengths = np.sqrt(np.einsum("bk,bk->k", columns, columns))
    columns = columns[:, lengths > 0] / lengths[lengths > 0]
    for _ in range(2):
        columns = columns - basis @ (basis.T @ columns)
    if not columns.shape[1]:
        return columns
    Q, R, _ = scipy.linalg.qr(columns, mode="economic", pivoting=True, check_finite=False)
    Q = Q[:, np.abs(np.diag(R)) > NEGLIGIBLE]
    Q -= basis @ (basis.T @ Q)
    return np.ascontiguousarray(Q)


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

    total = fold_groups("eigenvectors of base clusters", ensemble, engine, groups, product_of)
    return total[:, :columns] * scale[:, None]


def fold_groups(
    what: str,
    ensemble: Ensemble,
    engine: Engine,
    groups: Sequence[Sequence[Block]],
    task: Callable[[Sequence[Block]], np.ndarray],
) -> np.ndarray:
    """Return the sum of the arrays that ``task`` returns for groups of blocks, added in their order."""
    total: np.ndarray | None = None
    with progress(what, ensemble.n_objects) as listener, closing(engine.map(task, groups)) as found:
        for group, part in zip(groups, found, strict=True):
            if total is None:
                total = np.zeros_like(part)
            total += part
            listener.advance(sum(block.n_rows for block in group))
    assert total is not None  # noqa: S101 - an ensemble has blocks
    return total


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
