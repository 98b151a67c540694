"""The spectral embedding of objects from the overlaps of base clusters, and k-means in it.

The graph of the objects is ``N N^T`` with ``N = W^(1/2) H C^(1/2)``, W and C diagonal; weights of partitions
are factors of C. Its eigenvectors are
the left singular vectors of N and follow from the right ones, the eigenvectors of the small ``C^(1/2) H^T W H
C^(1/2)``, by ``U = N V S^-1``. Rows of U are scaled to unit length, so that W drops out of them: the
embedding of an object is the sum of the rows of ``C^(1/2) V S^-1`` that its labels select, normalized.
Spherical k-means runs on a sample, then in passes over the blocks.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from bigcons.coassociation.factorized import Weights
from bigcons.errors import ConvergenceWarning, warn_user
from bigcons.execution.engine import Engine, fold
from bigcons.memory import Block
from bigcons.overlaps.eigenvectors import (
    leading_by_passes,
    leading_eigenvectors,
    takes_passes,
)
from bigcons.overlaps.incidence import (
    Weigh,
    fold_overlaps,
    fold_sizes,
    over_zero,
    sum_of_weights,
    votes_of,
)
from bigcons.overlaps.kmeans import RowSums, assign, kmeans_of_unit_rows, n_distinct_rows
from bigcons.progress import progress
from bigcons.seeding import generator
from bigcons.solving.passes import History, as_history, timed
from bigcons.stores.ensemble import Ensemble


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
        from bigcons.kernels.overlaps import normalize_rows

        counted = labels if self.weights is None else self.weights.counted(labels)
        rows, n_labels = votes_of(counted, self.offsets, self.table, self.singular_values.size)
        normalize_rows(rows)
        return rows, n_labels > 0

    def rows_of_base_clusters(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the embedding (rows, columns) of the base clusters that count, and their weights (rows,)."""
        from bigcons.kernels.overlaps import normalize_rows

        rows = np.ascontiguousarray(self.vectors)
        normalize_rows(rows)
        weights = np.ones(len(rows)) if self.weights is None else self.weights.base_clusters
        return rows[weights > 0], weights[weights > 0]


def cut_embedding(
    ensemble: Ensemble, engine: Engine, n_columns: int, weights: Weights | None = None, *, observed: bool
) -> Embedding:
    """Return the embedding by the normalized cut of the co-association ``c_ij r_i r_j``.

    ``r_i`` is ``1 / m_i`` if ``observed``, else 1; ``c_ij`` sums the weights of base clusters, ``m_i`` those
    of partitions. Two passes, more where a table of overlaps would cost more.
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
    overlaps = None if takes_passes(ensemble, n_columns) else fold_overlaps(ensemble, engine, weigh)
    return _embedding(ensemble, engine, weigh, np.sqrt(counted), n_columns, weights, overlaps)


def bipartite_embedding(
    ensemble: Ensemble,
    engine: Engine,
    n_columns: int,
    weights: Weights | None = None,
    *,
    more_objects: float = 0.0,
) -> Embedding:
    """Return the embedding by the singular vectors of ``D_r^(-1/2) H D_c^(-1/2)``.

    One pass; where a table of overlaps would cost more, several, until residuals are small. With
    weights of base clusters, these multiply the columns of H, whose sums are then ``D_r`` and ``D_c``. Base
    clusters count as if they had ``more_objects``.
    """
    offsets = ensemble.offsets
    counted = None if weights is None else weights.base_clusters

    def weigh(labels: np.ndarray) -> np.ndarray:
        return 1.0 / over_zero(sum_of_weights(labels, offsets, counted))

    overlaps = None
    if takes_passes(ensemble, n_columns):
        sizes = fold_sizes(
            ensemble, engine, lambda labels: (sum_of_weights(labels, offsets, counted) > 0) * 1.0
        )
        scale = np.sqrt((1.0 if counted is None else counted) / over_zero(sizes + more_objects))
    else:
        overlaps = fold_overlaps(ensemble, engine, weigh)
        if counted is None:  # an object adds 1 / m_i for each of its m_i labels
            scale = 1.0 / np.sqrt(over_zero(overlaps.sum(axis=1) + more_objects))
        else:
            sizes = np.einsum("bc,c->b", overlaps, counted)
            scale = np.sqrt(counted / over_zero(sizes + more_objects))
    return _embedding(ensemble, engine, weigh, scale, n_columns, weights, overlaps)


def _embedding(
    ensemble: Ensemble,
    engine: Engine,
    weigh: Weigh,
    scale: np.ndarray,
    n_columns: int,
    weights: Weights | None,
    overlaps: np.ndarray | None,
) -> Embedding:
    """Return the embedding of ``H^T W H`` (B, B) and ``C^(1/2)`` (B,), of at most ``n_columns`` columns.

    It has fewer if N has a lower rank. ``overlaps``, which may fill the memory, is scaled in place; without
    them, after a pass that has found ``scale``, further passes take their place.
    """
    from bigcons.kernels.cluster_tables import in_whole_vectors

    n_passes = 1
    if overlaps is None:
        values, vectors, n_further, _ = leading_by_passes(ensemble, engine, weigh, scale, n_columns)
        n_passes += n_further
    else:
        overlaps *= scale[:, None]
        overlaps *= scale
        values, vectors = leading_eigenvectors(overlaps, n_columns)
    singular_values = np.sqrt(values)
    table = in_whole_vectors(scale[:, None] * vectors / singular_values)
    return Embedding(table, ensemble.offsets, singular_values, vectors, weights, n_passes)


def group_rows(
    rows: np.ndarray, n_groups: int, n_init: int, seed: int, weights: np.ndarray | None = None
) -> tuple[np.ndarray, list[float]]:
    """Return the groups (B,) int64 of base clusters by k-means of their rows (B, columns), scaled to unit
    length and counted by their weights (B,), and the squared distances of every start.
    """
    from bigcons.kernels.overlaps import normalize_rows

    rows = np.array(rows, order="C")
    normalize_rows(rows)
    draw = int(generator(seed, "base_clusters.kmeans").integers(2**31))
    n_groups = min(n_groups, n_distinct_rows(rows))
    found, objectives = kmeans_of_unit_rows(rows, n_groups, n_init, draw, weights)
    return found.labels.astype(np.int64), objectives


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
