"""Leading eigenvectors: of a table, and of the scaled overlaps ``C^(1/2) H^T W H C^(1/2)`` without the table.

A pass over the labels takes a table Q (B, columns) to ``C^(1/2) H^T W (H C^(1/2) Q)``, by two sums for each
label. Memory is B times a few dozen columns, and the number of passes depends on how far the eigenvalues fall
after those wanted: a handful where there are clusters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bigcons.run.engine import one_thread
from bigcons.seeding import generator

# Above this many base clusters the leading eigenvectors of a table are found by Lanczos iterations, and those
# of an embedding without a table.
MOST_FOR_DENSE = 2_000

# Eigenvalues below this share of the largest, and columns as small beside what they were before they were
# made orthogonal, are rounding errors of zero.
NEGLIGIBLE = 1e-10


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
    by_row = 1.0 / np.sqrt(np.where(n_labels > 0, n_labels, 1.0))
    by_column = np.sqrt(counts) * (1.0 / np.sqrt(np.where(sizes > 0, sizes, 1.0)))
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


# Spherical k-means of rows of unit length


class RowSums(NamedTuple):
    """What rows add to their centers."""

    rows: np.ndarray
    """(K, columns)."""
    sizes: np.ndarray
    """(K,), summed weights."""
    inertia: float
    """Sum of the squared distances."""

    def plus(self, other: RowSums) -> RowSums:
        """Return the sums of both."""
        return RowSums(self.rows + other.rows, self.sizes + other.sizes, self.inertia + other.inertia)


def assign(rows: np.ndarray, weights: np.ndarray, centers: np.ndarray) -> tuple[np.ndarray, RowSums]:
    """Return the nearest centers (rows,) int32, -1 of rows of weight 0, and the sums of the rows.

    ``weights`` (rows,) are numbers or flags.
    """
    from bigcons.kernels.nearest import nearest_centers

    assigned = np.empty(len(rows), np.int32)
    sums, sizes = np.zeros_like(centers), np.zeros(len(centers))
    inertia = nearest_centers(rows, weights.astype(np.float64), centers, assigned, sums, sizes)
    return assigned, RowSums(sums, sizes, inertia)


def move_centers(
    centers: np.ndarray, sums_of: Callable[[np.ndarray], RowSums], max_iter: int, threshold: float
) -> tuple[np.ndarray, list[dict[str, float]]]:
    """Move centers (K, columns) to the means of their rows, of unit length; those without rows stay.

    Until the summed squared moves are at most the threshold. Returns the centers last evaluated by
    ``sums_of``, and the ``objective`` and ``move`` of every iteration.
    """
    from bigcons.kernels.nearest import normalize_rows

    records: list[dict[str, float]] = []
    while True:
        sums = sums_of(centers)
        new_centers, is_used = centers.copy(), sums.sizes > 0
        new_centers[is_used] = sums.rows[is_used] / sums.sizes[is_used, None]
        normalize_rows(new_centers)
        move = float(((new_centers - centers) ** 2).sum())
        records.append({"objective": sums.inertia, "move": move})
        if move <= threshold or len(records) >= max_iter:
            return centers, records
        centers = new_centers


class RowClusters(NamedTuple):
    """The result of k-means of rows in memory, numbered by their first rows."""

    centers: np.ndarray
    """(K, columns) float64."""
    labels: np.ndarray
    """(rows,) int32."""
    records: list[dict[str, float]]
    """See `move_centers`."""
    start_objectives: list[float]


def kmeans_of_unit_rows(
    rows: np.ndarray,
    n_clusters: int,
    n_init: int,
    draw: int,
    weights: np.ndarray | None = None,
    *,
    max_iter: int = 300,
    tol: float = 1e-4,
) -> RowClusters:
    """Return clusters of rows of unit length by spherical k-means, no more than rows that differ.

    The first start is from rows that are as orthogonal as possible, by QR with pivots (Damle, Minden and Ying
    2019); where there are more clusters than columns, and in further starts, it is by k-means++. O(rows K
    columns) time for an iteration of a start.
    """
    import scipy.linalg
    from sklearn.cluster import kmeans_plusplus
    from sklearn.utils import check_random_state

    masses = np.ones(len(rows)) if weights is None else weights
    K = min(n_clusters, len(np.unique(rows.round(8), axis=0)))
    threshold = tol * float(np.var(rows, axis=0).mean())
    stream, best, objectives = check_random_state(draw), None, []
    with one_thread():
        for number in range(n_init):
            if number == 0 and rows.shape[1] >= K:
                _, pivots = scipy.linalg.qr(rows.T, mode="r", pivoting=True)
                centers = rows[pivots[:K]]
            else:
                centers, _ = kmeans_plusplus(rows, K, sample_weight=masses, random_state=stream)
            result = move_centers(centers, lambda means: assign(rows, masses, means)[1], max_iter, threshold)
            objectives.append(result[1][-1]["objective"])
            if objectives[-1] == min(objectives):
                best = result
    centers, records = best or result
    labels, _ = assign(rows, masses, centers)
    first = np.full(K, len(rows))
    np.minimum.at(first, labels, np.arange(len(rows)))
    order = np.argsort(first, kind="stable")
    return RowClusters(centers[order], np.argsort(order)[labels].astype(np.int32), records, objectives)


def group_rows(
    rows: np.ndarray, n_groups: int, n_init: int, seed: int, weights: np.ndarray | None = None
) -> tuple[np.ndarray, list[float]]:
    """Return the groups (B,) int64 of base clusters by k-means of their rows (B, columns), scaled to unit
    length and counted by their weights (B,), and the squared distances of every start.
    """
    from bigcons.kernels.nearest import normalize_rows

    rows = np.array(rows, order="C")
    normalize_rows(rows)
    draw = int(generator(seed, "base_clusters.kmeans").integers(2**31))
    result = kmeans_of_unit_rows(rows, n_groups, n_init, draw, weights)
    return result.labels.astype(np.int64), result.start_objectives
