"""Products with the incidence matrix H (objects x base clusters) of an ensemble, which is never formed.

A block is labels (rows, M), whose H has zeros and ones, or the memberships of soft clusterings (rows, B)
float32, which are H itself; everything here takes both. One fold over row blocks sums the overlaps ``H^T W
H`` of base clusters; in another, every observed label of an object votes by the row of its base cluster in a
table, ``H T``. The methods that use this are these two, with a problem on the base clusters between them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.io.labels import observed
from bigcons.memory import Block
from bigcons.progress import progress
from bigcons.run.engine import Engine, fold
from bigcons.run.memory_plan import MemoryPlan, block_label_bytes
from bigcons.store.ensemble import Ensemble
from bigcons.trust.groups import reliability_of_overlaps
from bigcons.weights import Weights

Weigh = Callable[[np.ndarray], np.ndarray]


def check_overlaps_plan(
    name: str,
    ensemble: Ensemble,
    engine: Engine,
    memory: str | float | None,
    *,
    columns: int,
    in_memory: bool,
    held: int = 0,
) -> None:
    """Log the memory of a method that works from overlaps, and refuse a budget that cannot hold it.

    ``columns`` is the number of values a pass computes for every object; ``held`` is added to the bytes held.
    """
    table, n, rows = 8 * ensemble.n_base_clusters**2, ensemble.n_objects, ensemble.chunk_rows
    # four tables: overlaps, similarities, and those of eigenvectors or linkage
    held = 4 * table + 4 * n + held + (8 * n * columns if in_memory else 0)
    per_block = 2 * table + block_label_bytes(ensemble) + 24 * rows * (columns + 1)
    per_result = max(table, 12 * rows + (8 * rows * columns if in_memory else 0))
    plan = MemoryPlan(held, per_block, per_result)
    remedy = f" for n_base_clusters={ensemble.n_base_clusters}, or use ConsensusTree or PCC"
    is_large = table > 2_000_000_000  # of 15,800 base clusters
    plan.check(name, engine, ensemble, memory, remedy, most=0 if is_large else math.inf)


def fold_overlaps(ensemble: Ensemble, engine: Engine, weigh: Weigh | None = None) -> np.ndarray:
    """Return ``H^T W H`` (B, B) float64 in one pass; with ``weigh`` None the counts ``H^T H``, exactly.

    ``weigh`` gives the weights (rows,) of the objects of a block of labels.
    """
    from bigcons.kernels.overlaps import mirror

    offsets = ensemble.offsets

    def overlaps_of(block: Block) -> np.ndarray:
        labels = ensemble.read(block.start, block.stop)
        return block_overlaps(labels, offsets, None if weigh is None else weigh(labels))

    with progress("overlaps of base clusters", ensemble.n_objects) as listener:
        table = fold(engine, ensemble.blocks(), overlaps_of, operator.iadd, progress=listener)
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
    own = weights[n_labels > 0]
    # By bits up to about 16 clusters in a partition: measured, with a margin for processors that count bits
    # more slowly.
    if own.size and (own == own[0]).all() and n_base_clusters <= 16 * n_labels.mean():
        count_overlaps(labels, offsets, table)
        if own[0] != 1.0:
            table *= own[0]
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

    with progress("sizes of base clusters", ensemble.n_objects) as listener:
        return fold(engine, ensemble.blocks(), sizes_of, operator.iadd, progress=listener)


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


def observed_pairs(overlaps: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return how many objects of each base cluster each partition labels: (B, M), from the overlaps.

    An object that partition ``u`` labels is in exactly one of its clusters, so their overlaps with a base
    cluster add up to it: ``H^T o`` needs no pass of its own.
    """
    return np.add.reduceat(overlaps, offsets[:-1], axis=1)


def cluster_sizes(overlaps: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the number of objects, or the summed memberships, of each base cluster (B,) from the overlaps.

    The memberships in the clusters of one partition sum to 1, so the overlaps of a base cluster with them
    sum to its size.
    """
    return np.array(
        [overlaps[b, first:last].sum() for first, last in pairwise(offsets) for b in range(first, last)]
    )


def clear_own_partitions(table: np.ndarray, offsets: np.ndarray) -> None:
    """Set the entries (B, B) between base clusters of one partition to zero."""
    for first, last in pairwise(offsets):
        table[first:last, first:last] = 0.0


def one_hot(groups: np.ndarray, n_groups: int, weights: np.ndarray | None = None) -> np.ndarray:
    """Return the indicator table (B, n_groups) float64 of groups of base clusters, -1 in none.

    With ``weights`` (B,) of the base clusters, these take the place of the ones.
    """
    table = np.zeros((len(groups), n_groups))
    inside = np.flatnonzero(groups >= 0)
    table[inside, groups[inside]] = 1.0 if weights is None else weights[inside]
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

LOCAL = "local"


def weights_of(
    name: str, weights: Any, ensemble: Ensemble, engine: Engine, memory: str | float | None
) -> Weights | None:
    """Return what a parameter ``weights`` of the method ``name`` tells: "local", one number for each
    partition, or None.

    With "local", base clusters join objects by their reliability, and all partitions count the same. Raises
    InvalidInputError for others, MemoryBudgetError if ``memory`` cannot hold the overlaps.
    """
    if not isinstance(weights, str):
        return Weights.given(weights, ensemble.offsets)
    if weights != LOCAL:
        raise InvalidInputError(
            f"weights={weights!r} is not known; use {LOCAL!r}, one number for each partition, or None.",
            parameter="weights",
        )
    by_base_cluster = reliability(ensemble, engine, name=f"{name} with weights='local'", memory=memory)
    return Weights(np.ones(ensemble.n_partitions), by_base_cluster, ensemble.offsets)


def reliability(
    ensemble: Ensemble,
    engine: Engine,
    counts: np.ndarray | None = None,
    *,
    name: str = "the reliability of base clusters",
    memory: str | float | None = None,
) -> np.ndarray:
    """Return the reliability (B,) of the base clusters of an ensemble; ``counts`` (M,) weigh the partitions.

    One pass over the labels, O(n M^2) time. Logs the memory of this step of the method ``name``, and refuses
    a budget that cannot hold it.
    """
    check_overlaps_plan(name, ensemble, engine, memory, columns=0, in_memory=False)
    return reliability_of_overlaps(fold_overlaps(ensemble, engine), ensemble.offsets, counts)
