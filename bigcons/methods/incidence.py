"""Products with the incidence matrix H (objects x base clusters) of an ensemble, which is never formed.

A block is labels (rows, M), whose H has zeros and ones, or the memberships of soft clusterings (rows, B)
float32, which are H itself; everything here takes both. One fold over row blocks sums the overlaps ``H^T W
H`` of base clusters; in another, every observed label of an object votes by the row of its base cluster in a
table, ``H T``. The methods that use this are these two, with a problem on the base clusters between them.

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

Passes may start from the embedding, too, where a sample says too little of an ensemble. A start on a sample
takes clusters from one base partition, and learns what every base cluster is about from
the few sampled objects in it. If base clusters are many and small, the largest clusters of a partition hold
few of the objects, and a base cluster has few of the sample or none. If partitions are many, a start on the
sample costs as much as on all objects. Both kinds of ensembles start from k-means in the embedding of
`bipartite_embedding`, which takes a few passes over the labels, instead of from the best of several starts.
"""

from __future__ import annotations

import logging
import math
import operator
import warnings
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from bigcons import spectra
from bigcons.errors import ConvergenceWarning, InvalidInputError, warn_user
from bigcons.io.labels import observed
from bigcons.memory import DEFAULT_DATA_BYTES, Block
from bigcons.progress import progress
from bigcons.run.engine import Engine, fold, one_thread
from bigcons.run.passes import Counts, History, Run, as_history
from bigcons.run.survey import MemoryPlan, Survey, block_label_bytes
from bigcons.seeding import generator
from bigcons.store.ensemble import Ensemble
from bigcons.trust.groups import reliability_of_overlaps
from bigcons.weights import Weights, counted_labels, counts_of, incidence_of

logger: logging.Logger = logging.getLogger("bigcons")

Weigh = Callable[[np.ndarray], np.ndarray]


def check_overlaps_plan(
    model: Any,
    ensemble: Ensemble,
    engine: Engine,
    *,
    columns: int,
    in_memory: bool = False,
    extra_bytes: int = 0,
    embedded: bool = False,
) -> None:
    """Log the memory of a method that works from overlaps, and refuse a budget that cannot hold it.

    ``columns`` is the number of values a pass computes for every object, of a soft method its results, which
    are held with the labels if ``in_memory``; ``extra_bytes`` is added to the bytes held.
    If ``embedded``, these are the columns of an `Embedding`, for which many overlaps are not held.
    """
    n, B, rows = ensemble.n_objects, ensemble.n_base_clusters, ensemble.chunk_rows
    memberships = 8 * columns if in_memory and model.info.soft else 0
    # four tables: overlaps, similarities, and those of eigenvectors or linkage
    table, n_tables = 8 * B**2, 4
    if embedded and B > spectra.MOST_FOR_DENSE:
        # vectors, residuals and directions, their products, and copies
        table, n_tables = 8 * B * (-(-columns // 8) * 8), 16
        extra_bytes += 32 * n**2 if n <= spectra.MOST_FOR_DENSE else 0
    plan = MemoryPlan(
        held=n_tables * table + extra_bytes + n * (memberships + (4 if in_memory else 0)),
        per_block=2 * table + block_label_bytes(ensemble) + 24 * rows * (columns + 1),
        per_result=max(table, rows * (12 + memberships)),
    )
    remedy = f" for n_base_clusters={B}, or use ConsensusTree or PCC"
    limit = DEFAULT_DATA_BYTES if table > 2_000_000_000 else math.inf  # of 15,800 base clusters
    plan.check(type(model).__name__, engine, ensemble, model.memory, remedy, limit=limit)


def fold_overlaps(ensemble: Ensemble, engine: Engine, weigh: Weigh | None = None) -> np.ndarray:
    """Return ``H^T W H`` (B, B) float64 in one pass; with ``weigh`` None the counts ``H^T H``, exactly.

    ``weigh`` gives the weights (rows,) of the objects of a block of labels.
    """
    from bigcons.kernels.overlaps import mirror

    offsets = ensemble.offsets

    def overlaps_of(block: Block) -> np.ndarray:
        labels = ensemble.read(block.start, block.stop)
        return block_overlaps(labels, offsets, None if weigh is None else weigh(labels))

    step = "overlaps of base clusters"
    table = fold(engine, ensemble.blocks(), overlaps_of, operator.iadd, progress=step)
    mirror(table)
    return table


def block_overlaps(labels: np.ndarray, offsets: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Return the upper triangle of the overlaps of one block: see `fold_overlaps`."""
    from bigcons.kernels.overlaps import add_overlaps, add_soft_overlaps, count_overlaps

    n_base_clusters = int(offsets[-1])
    table = np.zeros((n_base_clusters, n_base_clusters))
    weights = np.ones(len(labels)) if weights is None else weights
    if labels.dtype.kind == "f":
        add_soft_overlaps(labels, weights, table)
        return table
    n_labels = np.count_nonzero(labels >= 0, axis=1)
    times = weights[n_labels > 0]
    # By bits up to about 16 clusters in a partition: measured, with a margin for processors that count bits
    # more slowly.
    if times.size and (times == times[0]).all() and n_base_clusters <= 16 * n_labels.mean():
        count_overlaps(labels, offsets, table)
        if times[0] != 1.0:
            table *= times[0]
    else:
        add_overlaps(labels, offsets, weights, table)
    return table


def fold_sizes(ensemble: Ensemble, engine: Engine, weigh: Weigh) -> np.ndarray:
    """Return the summed weights of the objects in each base cluster ``H^T w`` (B,) float64, in one pass."""
    from bigcons.kernels.cluster_tables import add_sizes

    offsets = ensemble.offsets

    def sizes_of(block: Block) -> np.ndarray:
        labels = ensemble.read(block.start, block.stop)
        weights, sizes = weigh(labels), np.zeros(int(offsets[-1]))
        if labels.dtype.kind == "f":
            return np.einsum("i,ib->b", weights, labels)
        add_sizes(labels, offsets, weights, sizes)
        return sizes

    return fold(engine, ensemble.blocks(), sizes_of, operator.iadd, progress="sizes of base clusters")


def votes_of(
    labels: np.ndarray, offsets: np.ndarray, table: np.ndarray, n_columns: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the summed rows of ``table`` (B, K) that the labels of each object select, and their numbers.

    (rows, K) float64 and (rows,) int64, of the first ``n_columns`` if that is given. Memberships weigh the
    rows; the number is that of the partitions.
    """
    K = table.shape[1] if n_columns is None else n_columns
    if labels.dtype.kind == "f":
        from scipy.sparse import csr_array

        scores = csr_array(labels) @ table[:, :K].astype(np.float64)
        return scores, np.count_nonzero(observed(labels, offsets), axis=1)
    from bigcons.kernels.cluster_tables import summed_rows

    votes, n_labels = summed_rows(labels, offsets, table)
    return np.ascontiguousarray(votes[:, :K]), n_labels


def cluster_sizes(overlaps: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the number of objects, or the summed memberships, of each base cluster (B,) from the overlaps.

    The memberships in the clusters of one partition sum to 1, so the overlaps of a base cluster with them
    sum to its size.
    """
    return np.array(
        [overlaps[b, first:last].sum() for first, last in pairwise(offsets) for b in range(first, last)]
    )


def clear_same_partitions(table: np.ndarray, offsets: np.ndarray) -> None:
    """Set the entries (B, B) between base clusters of one partition to zero."""
    for first, last in pairwise(offsets):
        table[first:last, first:last] = 0.0


def one_hot(groups: np.ndarray, n_groups: int, weights: np.ndarray | None = None) -> np.ndarray:
    """Return the indicator table (B, n_groups) float64 of groups of base clusters, -1 in none.

    With ``weights`` (B,) of the base clusters, these take the place of the ones.
    """
    table = np.zeros((len(groups), n_groups))
    members = np.flatnonzero(groups >= 0)
    table[members, groups[members]] = 1.0 if weights is None else weights[members]
    return table


def divisors(sizes: np.ndarray) -> np.ndarray:
    """Return summed weights to divide by, 1 where there is nothing to divide."""
    return np.where(sizes > 0, sizes, 1.0)


def sum_of_weights(labels: np.ndarray, offsets: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Return ``m_i`` (rows,) float64, the summed weights (B,) of the base clusters of each object, 1 if None.

    Memberships are factors of the weights.
    """
    if weights is None:
        return np.count_nonzero(observed(labels, offsets), axis=1).astype(np.float64)
    return votes_of(labels, offsets, weights[:, None])[0][:, 0]


def shares(scores: np.ndarray) -> np.ndarray:
    """Return scores (rows, K) divided by their sum, float32; uniform where all are zero."""
    totals = scores.sum(axis=1, keepdims=True)
    uniform: Any = np.full_like(scores, 1.0 / scores.shape[1])
    return np.divide(scores, totals, out=uniform, where=totals > 0).astype(np.float32)


# Weights of base clusters by their reliability


def weights_of(model: Any, ensemble: Ensemble, engine: Engine) -> Weights | None:
    """Return the weights by the parameter of a method: "local", a number for each partition, or None.

    "local" weighs base clusters by their reliability: see `bigcons.trust.groups`.
    """
    if not isinstance(model.weights, str):
        return Weights.parse(model.weights, ensemble.offsets)
    if model.weights != "local":
        raise InvalidInputError(
            f"weights={model.weights!r} is not known; use 'local', one number for each partition, or None.",
            parameter="weights",
        )
    check_overlaps_plan(model, ensemble, engine, columns=0)
    reliability = reliability_of_overlaps(fold_overlaps(ensemble, engine), ensemble.offsets)
    return Weights(np.ones(ensemble.n_partitions), reliability, ensemble.offsets)


# The spectral embedding


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

        used_labels = counted_labels(labels, self.weights)
        rows, n_labels = votes_of(used_labels, self.offsets, self.table, self.singular_values.size)
        normalize_rows(rows)
        return rows, n_labels > 0

    def labels_of(self, labels: np.ndarray, centers: np.ndarray) -> np.ndarray:
        """Return the clusters (rows,) int32 of objects by their labels, -1 without any.

        The cluster is the nearest of the ``centers`` (K, columns) float64, of unit length.
        """
        return spectra.assign(*self.rows_of(labels), centers)[0]

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

    ``r_i`` is ``1 / m_i`` if ``observed``, else 1; ``c_ij`` sums the weights of base clusters, ``m_i`` the
    weights of partitions. Two passes; with many base clusters, one and the passes of the eigenvectors.
    """
    offsets = ensemble.offsets
    counts = None if weights is None else np.repeat(weights.partitions, np.diff(offsets))

    def scale_of(labels: np.ndarray) -> np.ndarray:
        return 1.0 / divisors(sum_of_weights(labels, offsets, counts)) if observed else np.ones(len(labels))

    sizes = fold_sizes(ensemble, engine, scale_of)
    if weights is not None:
        sizes *= weights.base_clusters

    def weigh(labels: np.ndarray) -> np.ndarray:
        sums = votes_of(labels, offsets, sizes[:, None])[0][:, 0]
        return np.divide(scale_of(labels), sums, out=np.zeros(len(labels)), where=sums > 0)

    cluster_weights = np.ones(len(sizes)) if weights is None else weights.base_clusters
    return _embedding(ensemble, engine, weigh, np.sqrt(cluster_weights), n_columns, weights)


def bipartite_embedding(
    ensemble: Ensemble,
    engine: Engine,
    n_columns: int,
    weights: Weights | None = None,
    *,
    more_objects: float = 0.0,
) -> Embedding:
    """Return the embedding by the singular vectors of ``D_r^(-1/2) H D_c^(-1/2)``.

    Two passes; with many base clusters, one and the passes of the eigenvectors. Weights of base
    clusters multiply the columns of H, whose sums are then ``D_r`` and ``D_c``. Base clusters count as if
    they had ``more_objects``.
    """
    offsets = ensemble.offsets
    factors = None if weights is None else weights.base_clusters

    def weigh(labels: np.ndarray) -> np.ndarray:
        return 1.0 / divisors(sum_of_weights(labels, offsets, factors))

    sizes = fold_sizes(ensemble, engine, lambda rows: (sum_of_weights(rows, offsets, factors) > 0) * 1.0)
    scale = np.sqrt((1.0 if factors is None else factors) / divisors(sizes + more_objects))
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

    It has fewer if N has a lower rank. Of few base clusters by a table of their overlaps, exactly, and of few
    objects by their products.
    """
    from bigcons.kernels.cluster_tables import in_whole_vectors

    if scale.size <= spectra.MOST_FOR_DENSE:
        overlaps, n_passes = fold_overlaps(ensemble, engine, weigh), 1
        overlaps *= scale[:, None]
        overlaps *= scale
        values, vectors = spectra.leading_eigenvectors(overlaps, n_columns)
    elif ensemble.n_objects <= spectra.MOST_FOR_DENSE:
        labels, n_passes = ensemble.read(0, ensemble.n_objects), 1
        factor = incidence_of(labels, ensemble.offsets)
        factor.data *= np.repeat(np.sqrt(weigh(labels)), np.diff(factor.indptr)) * scale[factor.indices]
        values, left = spectra.leading_eigenvectors(spectra.products_of_rows(factor), n_columns)
        vectors = spectra.with_signs((factor.T @ left) / np.sqrt(values))
    else:
        values, vectors, n_passes = leading_by_passes(ensemble, engine, weigh, scale, n_columns)
    singular_values = np.sqrt(values)
    table = in_whole_vectors(scale[:, None] * vectors / singular_values)
    return Embedding(table, ensemble.offsets, singular_values, vectors, weights, 1 + n_passes)


# K-means of all objects

# Passes, and the share of the variance by which centers may still move after the last.
MOST_PASSES, MOVE_TOL = 100, 1e-4


def find_centers(
    embedding: Embedding,
    ensemble: Ensemble,
    sample: np.ndarray,
    extra: tuple[np.ndarray, np.ndarray],
    n_clusters: int,
    seed: int,
    engine: Engine,
) -> tuple[np.ndarray, History]:
    """Return the centers of k-means over all objects with a label and ``extra`` rows with their weights.

    Returns the history, too. K-means starts on the ``sample`` of label rows. If it has not all objects, the
    start has no more extra rows than it, and passes over the blocks continue, at most `MOST_PASSES`, until
    the summed squared moves of the centers are at most `MOVE_TOL` times the mean variance of the columns.
    """
    rows, labeled = embedding.rows_of(sample)
    n_sampled, added = len(sample), extra
    if len(extra[0]) > n_sampled < ensemble.n_objects:
        draw = generator(seed, "embedding.base_clusters")
        indices = np.sort(draw.choice(len(extra[0]), n_sampled, replace=False, shuffle=False))
        added = extra[0][indices], extra[1][indices] * (len(extra[0]) / n_sampled)
    share = np.full(np.count_nonzero(labeled), ensemble.n_objects / n_sampled)
    rows = np.concatenate([rows[labeled], added[0]])
    kmeans_seed = int(generator(seed, "embedding.kmeans").integers(2**31))
    row_weights = np.concatenate([share, added[1]])
    options: dict[str, Any] = {"max_iter": MOST_PASSES, "tol": MOVE_TOL}
    result = spectra.kmeans_of_unit_rows(rows, n_clusters, 1, kmeans_seed, row_weights, **options)
    if n_sampled == ensemble.n_objects:
        history: History = {"pass": [len(result.records)], "objective": [result.records[-1]["objective"]]}
        return result.centers, history

    def sums_of(centers: np.ndarray) -> spectra.RowSums:
        def visit(block: Block) -> spectra.RowSums:
            return spectra.assign(*embedding.rows_of(ensemble.read(block.start, block.stop)), centers)[1]

        step = "k-means of the embedding"
        sums = fold(engine, ensemble.blocks(), visit, spectra.RowSums.plus, progress=step)
        return sums.plus(spectra.assign(*extra, centers)[1])

    threshold = MOVE_TOL * float(np.var(rows, axis=0).mean())
    centers, records = spectra.move_centers(result.centers, sums_of, MOST_PASSES, threshold)
    if records[-1]["move"] > threshold:
        warn_user(
            f"k-means of the embedding stopped after {MOST_PASSES} passes while its centers still moved; "
            "compare the labels with those of ConsensusTree.",
            ConvergenceWarning,
        )
    history = {"pass": list(range(1, len(records) + 1)), **as_history(records)}
    return centers, history


# Eigenvectors by passes


def leading_by_passes(
    ensemble: Ensemble, engine: Engine, weigh: Weigh, scale: np.ndarray, n_vectors: int, tol: float = 1e-3
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the leading eigenvalues (k,) and vectors (B, k) of ``H^T W H``, and the passes.

    Rows and columns are times ``scale`` (B,). At most ``n_vectors``, none whose value is zero up to rounding.
    ``weigh`` gives the weights (rows,) of the objects of a block. By LOBPCG (Knyazev 2001), a pass an
    iteration, until no residual ``|A v - value v|`` is above ``tol``, from a random start that does not
    depend on the engine. The largest eigenvalue is 1; the angle to a true vector is at most ``tol`` divided
    by the distance to the first eigenvalue after them. After 24 passes the vectors are taken as they are:
    without a gap after their eigenvalues, they span no definite space.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import LinearOperator, eigsh, lobpcg

    from bigcons.kernels.cluster_tables import in_whole_vectors
    from bigcons.kernels.overlaps import add_products

    B, n_passes, offsets = scale.size, 0, ensemble.offsets
    k, most_passes = min(n_vectors, B), 24
    # of so many labels of base clusters that adding up tables (B, width) costs little beside making them
    groups = groups_of(ensemble, 8 * B)

    def product(table: np.ndarray) -> np.ndarray:
        """Return the scaled overlaps times a table, in one pass over the labels."""
        nonlocal n_passes
        n_passes += 1
        table = table.reshape(B, -1)
        scaled = in_whole_vectors(table * scale[:, None])

        def product_of(group: list[Block]) -> np.ndarray:
            part = np.zeros_like(scaled)
            for block in group:
                labels = ensemble.read(block.start, block.stop)
                if labels.dtype.kind == "f":
                    memberships = csr_array(labels)
                    part += memberships.T @ (weigh(labels)[:, None] * (memberships @ scaled))
                else:
                    add_products(labels, offsets, weigh(labels), scaled, part)
            return part

        total = np.zeros_like(scaled)
        with (
            progress("eigenvectors of base clusters", ensemble.n_objects) as listener,
            closing(engine.map(product_of, groups)) as parts,
        ):
            for group, part in zip(groups, parts, strict=True):
                total += part
                listener.advance(sum(block.n_rows for block in group))
        return total[:, : table.shape[1]] * scale[:, None]

    start = generator(0, "overlaps.range").standard_normal((B, k))
    with one_thread(user_api="blas"), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of what has not converged
        if 5 * k >= B:  # LOBPCG would take as many columns
            values, vectors = np.linalg.eigh(product(np.eye(B)))
            values, vectors = values[B - k :], vectors[:, B - k :]
        else:
            options: dict[str, Any] = {"tol": tol, "maxiter": most_passes, "retResidualNormsHistory": True}
            values, vectors, residuals = lobpcg(product, start, **options)
            if np.max(residuals[-1]) > tol and len(residuals) < most_passes:  # its space broke down
                operator = LinearOperator((B, B), matvec=product, matmat=product, dtype=np.float64)
                values, vectors = eigsh(operator, k, v0=start[:, 0], tol=tol)
    logger.info("%d eigenvectors of %d base clusters: %d passes", values.size, B, n_passes)
    order = np.argsort(-values, kind="stable")
    order = order[values[order] > spectra.NEGLIGIBLE * values[order[0]]]
    return values[order], spectra.with_signs(vectors[:, order]), n_passes


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


# A start from the embedding

# Labels in the sample for each base cluster below which base clusters are too fine for it. Starts on the
# sample missed a class of twelve with 38 labels (20,000 objects, 50 partitions of about 106 clusters), and
# lost a quarter of the accuracy with 4 (40,000 objects, 20 partitions of 500 clusters, 8 classes).
FEWEST_LABELS = 64

# Objects that base clusters count as if they had besides their own. Without any, the leading vectors of very
# small base clusters tell of a few objects that hang on the others by a single label: from them, KCC of
# 200,000 objects in 20 partitions of 50,000 base clusters, half of the labels missing, had an adjusted Rand
# index of .03 (8 planted classes), with one more object .84. Of larger base clusters hardly anything changes.
MORE_OBJECTS = 1.0


def starts_spectrally(ensemble: Ensemble, survey: Survey, n_clusters: int) -> bool:
    """Return whether the sample says too little of the base clusters, or has too many labels to start on."""
    is_wide = int(np.count_nonzero(survey.sample >= 0)) > 1 << 22  # starts on it cost more than the embedding
    return is_wide or survey.undersamples(ensemble, n_clusters, FEWEST_LABELS)


def count_spectral(n_clusters: int, weights: Weights | None, run: Run) -> Counts:
    """Return the counts of the clusters of k-means of the sample in the spectral embedding of all objects."""
    embedding = bipartite_embedding(run.data, run.engine, n_clusters, weights, more_objects=MORE_OBJECTS)
    rows, labeled = embedding.rows_of(run.sample)
    draw = int(generator(run.seed, "spectral_start.kmeans").integers(2**31))
    clustering = spectra.kmeans_of_unit_rows(rows[labeled], n_clusters, 1, draw)
    return count_nearest(run, embedding, clustering.centers, n_clusters, weights)


def count_nearest(
    run: Run, embedding: Embedding, centers: np.ndarray, n_clusters: int, weights: Weights | None
) -> Counts:
    """Return the counts of the clusters of all objects, of the nearest of the centers (K, columns)."""
    offsets = run.data.offsets

    def count_block(block: Block) -> Counts:
        labels = run.data.read(block.start, block.stop)
        return counts_of(labels, offsets, embedding.labels_of(labels, centers), n_clusters, weights)

    return fold(run.engine, run.blocks, count_block, lambda a, b: (a[0] + b[0], a[1] + b[1]))
