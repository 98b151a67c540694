"""The spectral embedding of objects from base-cluster overlaps, by votes.

The graph of the objects is ``N N^T`` with ``N = W^(1/2) H C^(1/2)``, W and C diagonal. Its eigenvectors are
the left singular vectors of N and follow from the right ones, which those of the small ``C^(1/2) H^T W H
C^(1/2)`` are: ``U = N V S^-1``. As rows of U are normalized, W drops out of them, and the embedding of an
object is the sum of the rows of ``C^(1/2) V S^-1`` that its labels point at, scaled to unit length.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from bigcons.overlaps.incidence import votes_of
from bigcons.seeding import generator
from bigcons.solving.starts import best_start

# Above this many base clusters the few leading eigenvectors are found by Lanczos iterations.
MOST_FOR_DENSE = 2_000

# Eigenvalues below this share of the largest are rounding errors of zero.
NEGLIGIBLE = 1e-10

# Decimals by which rows of unit length are told apart.
DECIMALS = 8


class Embedding(NamedTuple):
    """Where the labels of an object put it: rows of unit length, one column per eigenvector kept."""

    table: np.ndarray
    """(B, columns) float64."""
    offsets: np.ndarray
    singular_values: np.ndarray
    """(columns,) of N, descending."""
    vectors: np.ndarray
    """(B, columns) right singular vectors of N."""

    def rows_of(self, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the embedding (rows, columns) of objects by their labels, and which have a label."""
        from bigcons.kernels.overlaps import normalize_rows

        rows, n_labels = votes_of(labels, self.offsets, self.table)
        normalize_rows(rows)
        return rows, n_labels > 0


def embed(overlaps: np.ndarray, scale: np.ndarray, offsets: np.ndarray, n_columns: int) -> Embedding:
    """Return the embedding of ``H^T W H`` (B, B) and ``C^(1/2)`` (B,), of at most ``n_columns`` columns.

    It has fewer if N has a lower rank. ``overlaps`` is scaled in place, for it may be what memory is full of.
    """
    overlaps *= scale[:, None]
    overlaps *= scale
    values, vectors = leading_eigenvectors(overlaps, n_columns)
    singular_values = np.sqrt(values)
    return Embedding(scale[:, None] * vectors / singular_values, offsets, singular_values, vectors)


def leading_eigenvectors(matrix: np.ndarray, n_vectors: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest eigenvalues, descending, and their vectors (B, k) of a semidefinite matrix.

    At most ``n_vectors``, none whose value is zero up to rounding. The entry of a vector that is largest in
    size is positive, so that signs are always the same.
    """
    import scipy.linalg
    import scipy.sparse.linalg

    B = len(matrix)
    k = min(n_vectors, B)
    with one_thread():
        if B <= MOST_FOR_DENSE or 10 * k > B:
            values, vectors = scipy.linalg.eigh(matrix, subset_by_index=(B - k, B - 1))
        else:
            start = np.random.default_rng(0).standard_normal(B)
            values, vectors = scipy.sparse.linalg.eigsh(matrix, k, v0=start)
    order = np.argsort(-values, kind="stable")
    order = order[values[order] > NEGLIGIBLE * values[order[0]]]
    values, vectors = values[order], vectors[:, order]
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(len(order))]
    return values, vectors * np.where(largest < 0, -1.0, 1.0)


def group_rows(rows: np.ndarray, n_groups: int, n_init: int, seed: int) -> tuple[np.ndarray, list[float]]:
    """Return the groups (B,) int64 of base clusters by k-means of their rows (B, columns), scaled to unit
    length, and the squared distances of every start.
    """
    from bigcons.kernels.overlaps import normalize_rows

    rows = np.array(rows, order="C")
    normalize_rows(rows)
    draw = int(generator(seed, "base_clusters.kmeans").integers(2**31))
    model, objectives = best_kmeans(rows, min(n_groups, n_different_rows(rows)), n_init, draw)
    return np.asarray(model.labels_, np.int64), objectives


def best_kmeans(
    rows: np.ndarray,
    n_clusters: int,
    n_init: int,
    draw: int,
    weights: np.ndarray | None = None,
    **settings: float,
) -> tuple[Any, list[float]]:
    """Return scikit-learn's KMeans of the start with the least squared distances, and those of all starts.

    The starts draw from one stream, as those of scikit-learn do, which keeps only the best one's distances.
    """
    from sklearn.cluster import KMeans
    from sklearn.utils import check_random_state

    stream = check_random_state(draw)

    def start(_number: int) -> KMeans:
        model = KMeans(n_clusters, n_init=1, random_state=stream, **settings)
        return model.fit(rows, sample_weight=weights)

    with one_thread():
        return best_start(map(start, range(n_init)), lambda model: model.inertia_)


def n_different_rows(rows: np.ndarray) -> int:
    """Return how many rows differ by more than rounding errors: k-means can find no more clusters."""
    return len(np.unique(rows.round(DECIMALS), axis=0))


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep BLAS and OpenMP to one thread, so that the order of their sums does not depend on the machine."""
    import sklearn.cluster  # noqa: F401 - loads the libraries that are to be limited
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):
        yield
