"""The spectral embedding of objects from the overlaps of base clusters, and k-means in it.

The graph of the objects is ``N N^T`` with ``N = W^(1/2) H C^(1/2)``, W and C diagonal; weights of partitions
are factors of C. Its eigenvectors are the left singular vectors of N and follow from the right ones, the
eigenvectors of the small ``C^(1/2) H^T W H C^(1/2)``, by ``U = N V S^-1``. Rows of U are scaled to unit
length, so that W drops out of them: the embedding of an object is the sum of the rows of ``C^(1/2) V S^-1``
that its labels select, normalized.

Spherical k-means runs on a sample, then in passes over the blocks. An object with few labels, or
contradictory ones, is about as far from all centers. With many clusters the sum of squares is then often
lowest with one center near the origin, the nearest of all such objects: of 100,000 objects of 300 planted
classes (50 partitions of 10 to 40 clusters, half of the labels missing), k-means from the centers of the
classes puts 9,091 into one cluster, for an adjusted Rand index of .39. Centers therefore have unit length,
too (Dhillon and Modha 2001), for an index of .91, as by the centers of the classes.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from bigcons.coassociation.factorized import Weights
from bigcons.errors import ConvergenceWarning, warn_user
from bigcons.memory import Block
from bigcons.methods.eigenvectors import MOST_FOR_DENSE, leading_by_passes, leading_eigenvectors
from bigcons.methods.incidence import (
    Weigh,
    fold_overlaps,
    fold_sizes,
    over_zero,
    sum_of_weights,
    votes_of,
)
from bigcons.progress import progress
from bigcons.run.engine import Engine, fold, one_thread
from bigcons.run.passes import History, as_history, timed
from bigcons.run.starts import best_start
from bigcons.seeding import generator
from bigcons.store.ensemble import Ensemble


class Embedding(NamedTuple):
    """The spectral embedding of objects by their labels: rows of unit length, one column an eigenvector."""

    table: np.ndarray
    """(B, columns) float64, perhaps with further columns of zeros."""
    offsets: np.ndarray
    singular_values: np.ndarray
    """(columns,) of N, descending."""
    vectors: np.ndarray
    """(B, columns) right singular vectors of N."""
    weights: Weights | None = None
    n_passes: int = 1

    def rows_of(self, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the embedding (rows, columns) of objects by their labels, and which have a label."""
        from bigcons.kernels.nearest import normalize_rows

        counted = labels if self.weights is None else self.weights.counted(labels)
        rows, n_labels = votes_of(counted, self.offsets, self.table, self.singular_values.size)
        normalize_rows(rows)
        return rows, n_labels > 0

    def rows_of_base_clusters(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the embedding (rows, columns) of the base clusters that count, and their weights (rows,)."""
        from bigcons.kernels.nearest import normalize_rows

        rows = np.ascontiguousarray(self.vectors)
        normalize_rows(rows)
        weights = np.ones(len(rows)) if self.weights is None else self.weights.base_clusters
        return rows[weights > 0], weights[weights > 0]


def cut_embedding(
    ensemble: Ensemble, engine: Engine, n_columns: int, weights: Weights | None = None, *, observed: bool
) -> Embedding:
    """Return the embedding by the normalized cut of the co-association ``c_ij r_i r_j``.

    ``r_i`` is ``1 / m_i`` if ``observed``, else 1; ``c_ij`` sums the weights of base clusters, ``m_i`` those
    of partitions. Two passes; of many base clusters a pass, and those that the eigenvectors take.
    """
    offsets = ensemble.offsets
    seen = None if weights is None else np.repeat(weights.partitions, np.diff(offsets))

    def scale_of(labels: np.ndarray) -> np.ndarray:
        return 1.0 / over_zero(sum_of_weights(labels, offsets, seen)) if observed else np.ones(len(labels))

    sizes = fold_sizes(ensemble, engine, scale_of)
    if weights is not None:
        sizes *= weights.base_clusters

    def weigh(labels: np.ndarray) -> np.ndarray:
        together = votes_of(labels, offsets, sizes[:, None])[0][:, 0]
        return np.divide(scale_of(labels), together, out=np.zeros(len(labels)), where=together > 0)

    counted = np.ones(len(sizes)) if weights is None else weights.base_clusters
    return _embedding(ensemble, engine, weigh, np.sqrt(counted), n_columns, weights)


def bipartite_embedding(
    ensemble: Ensemble,
    engine: Engine,
    n_columns: int,
    weights: Weights | None = None,
    *,
    more_objects: float = 0.0,
) -> Embedding:
    """Return the embedding by the singular vectors of ``D_r^(-1/2) H D_c^(-1/2)``.

    Two passes; of many base clusters a pass, and those that the eigenvectors take. With weights of base
    clusters, these multiply the columns of H, whose sums are then ``D_r`` and ``D_c``. Base clusters count as
    if they had ``more_objects``.
    """
    offsets = ensemble.offsets
    counted = None if weights is None else weights.base_clusters

    def weigh(labels: np.ndarray) -> np.ndarray:
        return 1.0 / over_zero(sum_of_weights(labels, offsets, counted))

    def has_label(labels: np.ndarray) -> np.ndarray:
        return (sum_of_weights(labels, offsets, counted) > 0) * 1.0

    sizes = fold_sizes(ensemble, engine, has_label)
    scale = np.sqrt((1.0 if counted is None else counted) / over_zero(sizes + more_objects))
    return _embedding(ensemble, engine, weigh, scale, n_columns, weights)


def _embedding(
    ensemble: Ensemble,
    engine: Engine,
    weigh: Weigh,
    scale: np.ndarray,
    n_columns: int,
    weights: Weights | None,
) -> Embedding:
    """Return the embedding of ``H^T W H`` (B, B) and ``C^(1/2)`` (B,), of at most ``n_columns`` columns.

    It has fewer if N has a lower rank. Of few base clusters by a table of their overlaps, exactly.
    """
    from bigcons.kernels.cluster_tables import in_whole_vectors

    if scale.size <= MOST_FOR_DENSE:
        overlaps, n_passes = fold_overlaps(ensemble, engine, weigh), 1
        overlaps *= scale[:, None]
        overlaps *= scale
        values, vectors = leading_eigenvectors(overlaps, n_columns)
    else:
        values, vectors, n_passes = leading_by_passes(ensemble, engine, weigh, scale, n_columns)
    singular_values = np.sqrt(values)
    table = in_whole_vectors(scale[:, None] * vectors / singular_values)
    return Embedding(table, ensemble.offsets, singular_values, vectors, weights, 1 + n_passes)


# K-means of unit rows in memory


class RowClusters(NamedTuple):
    """The result of k-means of rows in memory."""

    centers: np.ndarray
    """(K, columns) float64."""
    labels: np.ndarray
    """(rows,) int32."""
    objective: float
    """Sum of the squared distances of all rows to their centers."""
    n_iter: int


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

    def means(self, centers: np.ndarray) -> np.ndarray:
        """Return the next centers, of unit length; clusters that lose all rows keep theirs."""
        from bigcons.kernels.nearest import normalize_rows

        found, kept = centers.copy(), self.sizes > 0
        found[kept] = self.rows[kept] / self.sizes[kept, None]
        normalize_rows(found)
        return found


def assign(rows: np.ndarray, counted: np.ndarray, centers: np.ndarray) -> tuple[np.ndarray, RowSums]:
    """Return the nearest centers of rows and their sums, rows ``counted`` by weights or, as flags, or not."""
    from bigcons.kernels.nearest import nearest_centers

    assigned = np.empty(len(rows), np.int32)
    sums, sizes = np.zeros_like(centers), np.zeros(len(centers))
    inertia = nearest_centers(rows, counted.astype(np.float64), centers, assigned, sums, sizes)
    return assigned, RowSums(sums, sizes, inertia)


def n_distinct_rows(rows: np.ndarray) -> int:
    """Return the number of rows distinct up to rounding errors: the most clusters k-means can find."""
    return len(np.unique(rows.round(8), axis=0))


def kmeans_of_unit_rows(
    rows: np.ndarray,
    n_clusters: int,
    n_init: int,
    draw: int,
    weights: np.ndarray | None = None,
    *,
    max_iter: int = 300,
    tol: float = 1e-4,
) -> tuple[RowClusters, list[float]]:
    """Return the clusters of rows of unit length, and the squared distances of every start.

    Spherical k-means, first from rows that are as orthogonal as possible, by QR with pivots (Damle, Minden
    and Ying 2019); where there are more clusters than columns, and in further starts, by k-means++. Clusters
    are numbered by their first rows. O(rows K columns) time for an iteration of a start.
    """
    import scipy.linalg
    from sklearn.cluster import kmeans_plusplus
    from sklearn.utils import check_random_state

    counted = np.ones(len(rows)) if weights is None else weights
    threshold = tol * float(np.var(rows, axis=0).mean())
    stream = check_random_state(draw)

    def start(number: int) -> RowClusters:
        if number == 0 and n_clusters <= rows.shape[1]:
            _, pivots = scipy.linalg.qr(rows.T, mode="r", pivoting=True)
            centers = rows[pivots[:n_clusters]]
        else:
            centers, _ = kmeans_plusplus(rows, n_clusters, sample_weight=counted, random_state=stream)
        return spherical_kmeans(rows, counted, centers, max_iter, threshold)

    with one_thread():
        best, objectives = best_start(map(start, range(n_init)), lambda found: found.objective)
    members, first = np.unique(best.labels, return_index=True)
    ranks = np.full(n_clusters, len(rows))
    ranks[members] = first
    order = np.argsort(ranks, kind="stable")
    labels = np.argsort(order)[best.labels].astype(best.labels.dtype)
    return best._replace(centers=best.centers[order], labels=labels), objectives


def spherical_kmeans(
    rows: np.ndarray, weights: np.ndarray, centers: np.ndarray, max_iter: int, threshold: float
) -> RowClusters:
    """Iterate until the summed squared moves of the centers are at most the threshold."""
    for n_iter in range(1, max_iter + 1):
        labels, sums = assign(rows, weights, centers)
        moved = sums.means(centers)
        if ((moved - centers) ** 2).sum() <= threshold:
            break
        if n_iter < max_iter:
            centers = moved
    return RowClusters(centers, labels, sums.inertia, n_iter)


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
    n_groups = min(n_groups, n_distinct_rows(rows))
    found, objectives = kmeans_of_unit_rows(rows, n_groups, n_init, draw, weights)
    return found.labels.astype(np.int64), objectives


# K-means of all objects


class KMeansSettings(NamedTuple):
    """The parameters of k-means in an embedding."""

    n_clusters: int
    n_init: int
    max_iter: int
    tol: float


class Centers(NamedTuple):
    """The result of k-means in an embedding."""

    embedding: Embedding
    centers: np.ndarray
    """(K, columns) float64."""
    objective: float
    """Sum of the squared distances of all rows to their centers."""
    history: History
    n_passes: int
    start_objectives: list[float]
    """The squared distances of every start, on the sample."""

    def labels_of(self, labels: np.ndarray) -> np.ndarray:
        """Return the clusters (rows,) int32 of objects by their base labels, -1 without any."""
        return assign(*self.embedding.rows_of(labels), self.centers)[0]


def find_centers(
    embedding: Embedding,
    ensemble: Ensemble,
    sample: np.ndarray,
    extra: tuple[np.ndarray, np.ndarray],
    settings: KMeansSettings,
    seed: int,
    engine: Engine,
) -> Centers:
    """Return the centers of k-means over all objects with a label and ``extra`` rows with their weights.

    K-means starts on the ``sample`` of label rows. If these are not all objects, it starts on no more extra
    rows than these, and Lloyd passes over the blocks continue until the summed squared moves of the centers
    are at most ``tol`` times the mean variance of the columns.
    """
    rows, labeled = embedding.rows_of(sample)
    n_sampled, further = len(sample), extra
    share = ensemble.n_objects / n_sampled
    if len(extra[0]) > n_sampled < ensemble.n_objects:
        draw = generator(seed, "embedding.base_clusters")
        chosen = np.sort(draw.choice(len(extra[0]), n_sampled, replace=False, shuffle=False))
        further = extra[0][chosen], extra[1][chosen] * (len(extra[0]) / n_sampled)
    rows = np.concatenate([rows[labeled], further[0]])
    weights = np.concatenate([np.full(np.count_nonzero(labeled), share), further[1]])
    first, objectives = kmeans_of_unit_rows(
        rows,
        min(settings.n_clusters, n_distinct_rows(rows)),
        settings.n_init,
        int(generator(seed, "embedding.kmeans").integers(2**31)),
        weights,
        max_iter=settings.max_iter,
        tol=settings.tol,
    )
    if n_sampled == ensemble.n_objects:
        history: History = {"pass": [first.n_iter], "objective": [first.objective]}
        return Centers(embedding, first.centers, first.objective, history, 0, objectives)
    threshold = settings.tol * float(np.var(rows, axis=0).mean())
    found = _lloyd_passes(embedding, ensemble, extra, first.centers, threshold, settings, engine)
    return found._replace(start_objectives=objectives)


def _lloyd_passes(
    embedding: Embedding,
    ensemble: Ensemble,
    extra: tuple[np.ndarray, np.ndarray],
    centers: np.ndarray,
    threshold: float,
    settings: KMeansSettings,
    engine: Engine,
) -> Centers:
    """Make Lloyd passes from the given centers; the result has the centers that the last pass evaluated."""
    what, evaluated, records = "k-means of the embedding", centers, []

    def visit(block: Block) -> RowSums:
        return assign(*embedding.rows_of(ensemble.read(block.start, block.stop)), evaluated)[1]

    for number in range(1, settings.max_iter + 1):
        began, evaluated = time.perf_counter(), centers
        with progress(what, ensemble.n_objects) as listener:
            found = fold(engine, ensemble.blocks(), visit, RowSums.plus, progress=listener)
        found = found.plus(assign(*extra, evaluated)[1])
        centers = found.means(evaluated)
        move = float(((centers - evaluated) ** 2).sum())
        records.append(timed(what, number, {"objective": found.inertia, "move": move}, began))
        if move <= threshold:
            break
    else:
        warn_user(
            f"k-means stopped at max_iter={settings.max_iter} while its centers still moved; raise max_iter "
            "or tol if the labels still change.",
            ConvergenceWarning,
        )
    return Centers(embedding, evaluated, records[-1]["objective"], as_history(records), len(records), [])
