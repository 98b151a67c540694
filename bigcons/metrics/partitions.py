"""A consensus beside the partitions: their contingency in one pass, and how alike partitions are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.io.labels import LabelColumn, names_of_rows, refuse_other_rows
from bigcons.memory import LABELS_TOGETHER, N_SAMPLED, Block
from bigcons.metrics.clusterings import adjusted_rand_of_pairs, check_size
from bigcons.progress import progress
from bigcons.run.engine import Engine, fold
from bigcons.seeding import generator
from bigcons.store.ensemble import Ensemble
from bigcons.weights import counts_of

SEED = 0
"""Seed of the sample of objects and of the halves of partitions: equal input gives equal results."""

COMPARISONS, LEAST_SAMPLE = 25_000_000, 256
"""Partitions are compared on so many objects times pairs of partitions, but no fewer objects than that."""

Codes = Callable[[int, int], np.ndarray]
"""Gives the clusters of the objects in a range of rows, 0 .. K - 1, -1 for none; sent to workers."""


def codes_for(ensemble: Ensemble, labels: Any) -> tuple[Codes, np.ndarray]:
    """Return the codes of labels of the objects of an ensemble, and the labels (K,) that they stand for.

    Refuses labels of other objects, and so many that no table holds their overlaps with base clusters.
    """
    column = LabelColumn("labels", labels)
    if column.n_objects != ensemble.n_objects:
        raise InvalidInputError(
            f"labels has {column.n_objects:,} objects but the ensemble has {ensemble.n_objects:,}; "
            "pass one label per object of the ensemble."
        )
    refuse_other_rows("labels", column.row_names, "the ensemble", names_of_rows(ensemble))
    check_size((len(column.values), ensemble.n_base_clusters))
    return column.codes, column.values


def count_with_partitions(
    ensemble: Ensemble, codes: Codes, n_clusters: int, engine: Engine, *samples: np.ndarray
) -> tuple[Any, ...]:
    """Return the contingency (1 + K, B) int64 of clusters with all base clusters, and their sizes (1 + K,).

    The first row is of objects in no cluster. Then of ``samples``, objects in ascending order: the labels of
    the first one, and the clusters of each, in parts.
    """

    def count_block(block: Block) -> tuple[Any, ...]:
        found, labels = codes(block.start, block.stop), ensemble.read(block.start, block.stop)
        counts = counts_of(labels, ensemble.offsets, 1 + found, 1 + n_clusters)
        chosen = [block.rows_of(rows) for rows in samples]
        return *counts, [labels[rows] for rows in chosen[:1]], *([found[rows]] for rows in chosen)

    def add(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(own + other for own, other in zip(a, b, strict=True))

    with progress("compare with partitions", ensemble.n_objects) as listener:
        T, sizes, *parts = fold(engine, ensemble.blocks(), count_block, add, progress=listener)
    return T.T.astype(np.int64, order="C"), sizes.astype(np.int64), *parts


def sampled_rows(ensemble: Ensemble) -> np.ndarray:
    """Return the objects that are sampled, ascending: at most `N_SAMPLED`, fewer of very many partitions."""
    n = ensemble.n_objects
    n_sampled = min(N_SAMPLED, max(LEAST_SAMPLE, LABELS_TOGETHER // ensemble.n_partitions))
    if n <= n_sampled:
        return np.arange(n)
    return np.sort(generator(SEED, "trust.sample").choice(n, n_sampled, replace=False))


def adjusted_rand_of_partitions(
    labels: np.ndarray, offsets: np.ndarray, *, pairs: int = 1_000_000
) -> tuple[np.ndarray, np.ndarray]:
    """Return the adjusted Rand index of partitions with others (M, n_others), and which these are.

    The others are all or, of more ``pairs`` of partitions, some of them, evenly spaced. NaN where two share
    no pair of objects, and of a partition with itself.
    """
    from bigcons.kernels.overlaps import compare_partitions

    M = offsets.size - 1
    n_others = M if pairs >= M * M else max(pairs // M, 2)
    others = np.arange(n_others) * M // n_others
    counts = np.zeros((4, M, n_others), np.int64)
    step = -(-len(labels) // max(LEAST_SAMPLE, COMPARISONS // (M * n_others)))
    columns = np.ascontiguousarray(labels[::step].T, np.int32)  # in one type, so that one kernel is compiled
    compare_partitions(columns, offsets, others, *counts)
    index = adjusted_rand_of_pairs(*counts.astype(np.float64))
    index = np.where(counts[3] > 0, index, np.nan)
    index[others] = np.fmax(index[others], index[others].T)  # two of the others are compared once
    index[others, np.arange(n_others)] = np.nan
    return index, others
