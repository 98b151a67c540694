"""Contingency tables: of two clusterings, of one with all partitions, and the criteria computed from them.

A criterion takes a table ``(n_classes, n_clusters)``, which may have empty rows and columns: an array or, of
very many clusters, a csr_array of SciPy's. A symmetric one, of `SYMMETRIC`, also takes a stack of arrays
``(..., n_classes, n_clusters)`` and returns as many values.
`bigcons.metrics` describes each.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from bigcons.errors import InvalidInputError, MemoryBudgetError
from bigcons.io.labels import LabelColumn, names_of_rows, refuse_other_rows
from bigcons.memory import (
    BLOCK_ROWS,
    LABELS_TOGETHER,
    N_SAMPLED,
    VALUES_TOGETHER,
    Block,
    format_size,
    row_blocks,
)
from bigcons.progress import progress
from bigcons.run.engine import Engine, fold
from bigcons.seeding import generator
from bigcons.store.ensemble import Ensemble
from bigcons.weights import counts_of, incidence_of

MAX_TABLE_BYTES = 1 << 30

SEED = 0
"""Seed of the sample of objects and of the halves of partitions: equal input gives equal results."""

COMPARISONS, LEAST_SAMPLE = 25_000_000, 256
"""Partitions are compared on so many objects times pairs of partitions, but no fewer objects than that."""

Criterion = Callable[[Any], Any]
"""A number for one table ``(ka, kb)``."""

Codes = Callable[[int, int], np.ndarray]
"""Gives the clusters of the objects in a range of rows, 0 .. K - 1, -1 for none; sent to workers."""


# Tables


def refuse_other_objects(
    name: str, n_objects: int, names: Any, owner: str, n_others: int, other_names: Any = None
) -> None:
    """Raise InvalidInputError for another number of objects than ``owner``, as "b has", or other names."""
    if n_objects != n_others:
        raise InvalidInputError(
            f"{name} has {n_objects:,} objects but {owner} {n_others:,}; pass one row each, in their order."
        )
    refuse_other_rows(name, names, owner.rpartition(" ")[0], other_names)


def table_of(a: LabelColumn, b: LabelColumn) -> Any:
    """Return how many objects lie in each cluster of ``a`` and of ``b``, (ka, kb) int64, none empty.

    A csr_array where `is_sparse`.
    """
    refuse_other_objects(a.name, a.n_objects, a.row_names, f"{b.name} has", b.n_objects, b.row_names)
    n, shape = a.n_objects, (a.n_clusters, b.n_clusters)
    if is_sparse(shape, n):
        of_a, of_b = (incidence_of(col.codes(0, n)[:, None], np.array([0, col.n_clusters])) for col in (a, b))
        table = (of_a.T @ of_b).tocsr().astype(np.int64)
    else:
        table = np.zeros(shape, dtype=np.int64)
        for block in row_blocks(n, BLOCK_ROWS):
            rows, columns = (labels.codes(block.start, block.stop) for labels in (a, b))
            in_both = (rows >= 0) & (columns >= 0)
            cells = rows[in_both] * shape[1] + columns[in_both]
            table += np.bincount(cells, minlength=table.size).reshape(shape)
    in_rows, in_columns = (table.sum(axis=axis) > 0 for axis in (1, 0))
    if not in_rows.any():
        raise InvalidInputError(
            f"no object has a label in both {a.name} and {b.name}; pass clusterings of the same objects."
        )
    return table[in_rows][:, in_columns]


def is_sparse(shape: tuple[int, int], n_labels: int) -> bool:
    """Return whether of a large table only the counts above zero are held: it has more cells than labels."""
    return shape[0] * shape[1] > max(n_labels, VALUES_TOGETHER)


def check_size(shape: tuple[int, int]) -> None:
    """Raise MemoryBudgetError for a table that would take more than MAX_TABLE_BYTES."""
    n_bytes = 8 * shape[0] * shape[1]
    if n_bytes > MAX_TABLE_BYTES:
        raise MemoryBudgetError(
            f"the contingency table of {shape[0]:,} by {shape[1]:,} clusters needs {format_size(n_bytes)}, "
            f"more than {format_size(MAX_TABLE_BYTES)}; compare clusterings with fewer clusters.",
            needed=n_bytes,
            budget=MAX_TABLE_BYTES,
        )


def codes_for(ensemble: Ensemble, labels: Any) -> tuple[Codes, np.ndarray]:
    """Return the codes of labels of the objects of an ensemble, and the labels (K,) that they stand for.

    Refuses labels of other objects.
    """
    column = LabelColumn("labels", labels)
    reference = "the ensemble has", ensemble.n_objects, names_of_rows(ensemble)
    refuse_other_objects("labels", column.n_objects, column.row_names, *reference)
    return column.codes, column.values


def count_with_partitions(
    ensemble: Ensemble,
    codes: Codes,
    n_clusters: int,
    engine: Engine,
    *samples: np.ndarray,
    sparse: bool = False,
) -> tuple[Any, ...]:
    """Return the contingency (1 + K, B) int64 of clusters with all base clusters, and their sizes (1 + K,).

    The first row is of objects in no cluster; the table is an array or, if ``sparse``, a csr_array. Then of
    ``samples``, objects in ascending order: the labels of the first one, and the clusters of each, in parts.
    """
    K = 1 + n_clusters

    def count_block(block: Block) -> tuple[Any, ...]:
        clusters, labels = codes(block.start, block.stop), ensemble.read(block.start, block.stop)
        if sparse:
            incidence = incidence_of(1 + clusters[:, None], np.array([0, K]))
            T = (incidence_of(labels, ensemble.offsets).T @ incidence).tocsr()
            counts: tuple[Any, Any] = T, np.bincount(1 + clusters, minlength=K)
        else:
            counts = counts_of(labels, ensemble.offsets, 1 + clusters, K)
        positions = [block.rows_of(rows) for rows in samples]
        return *counts, [labels[rows] for rows in positions[:1]], *([clusters[rows]] for rows in positions)

    def add(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(one + other for one, other in zip(a, b, strict=True))

    with progress("compare with partitions", ensemble.n_objects) as listener:
        T, sizes, *parts = fold(engine, ensemble.blocks(), count_block, add, progress=listener)
    table = T.T.tocsr() if sparse else np.ascontiguousarray(T.T)
    return table.astype(np.int64), sizes.astype(np.int64), *parts


# Partitions beside each other


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
    """Return the adjusted Rand index of partitions with others (M, n_others), and the numbers of the others.

    The others are all or, of more ``pairs`` of partitions, some of them, evenly spaced. NaN where two share
    no pair of objects, and of a partition with itself.
    """
    from bigcons.kernels.overlaps import compare_partitions

    M = offsets.size - 1
    n_others = M if pairs >= M * M else max(pairs // M, 2)
    references = np.arange(n_others) * M // n_others
    counts = np.zeros((4, M, n_others), np.int64)
    step = -(-len(labels) // max(LEAST_SAMPLE, COMPARISONS // (M * n_others)))
    columns = np.ascontiguousarray(labels[::step].T, np.int32)  # in one type, so that one kernel is compiled
    compare_partitions(columns, offsets, references, *counts)
    index = adjusted_rand_of_pairs(*counts.astype(np.float64))
    index = np.where(counts[3] > 0, index, np.nan)
    index[references] = np.fmax(index[references], index[references].T)  # two of the others are compared once
    index[references, np.arange(n_others)] = np.nan
    return index, references


# Criteria


def matching_accuracy(tables: Any) -> Any:
    """Return the share of objects in agreement under the best one-to-one matching."""
    stack = tables.reshape(-1, *tables.shape[-2:]) if isinstance(tables, np.ndarray) else [tables]
    n_matched = [table[best_matching(table)].sum() for table in stack]
    return np.reshape(n_matched, tables.shape[:-2])[()] / tables.sum(axis=(-2, -1))


def best_matching(table: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows and columns that are matched so that most objects are in agreement."""
    from scipy.optimize import linear_sum_assignment
    from scipy.sparse import csr_array, eye_array, hstack
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    if isinstance(table, np.ndarray):
        rows, columns = linear_sum_assignment(table, maximize=True)
        return rows, columns
    # a row that has no other has a column of its own, which gains nothing: 1 as against 1 and its objects
    shifted_table = csr_array((table.data + 1, table.indices, table.indptr), table.shape)
    every = hstack([shifted_table, eye_array(table.shape[0], dtype=np.int64)]).tocsr()
    rows, columns = min_weight_full_bipartite_matching(every, maximize=True)
    is_matched = columns < table.shape[1]
    return rows[is_matched], columns[is_matched]


def greedy_accuracy(table: Any) -> float:
    """Return the accuracy where the largest overlaps are matched first, classes in rows."""
    from scipy.sparse import coo_array

    row_is_free, column_is_free = (np.ones(size, bool) for size in table.shape)
    n_matched, cells = 0, coo_array(table)
    for cell in np.argsort(-cells.data, kind="stable"):
        row, column = cells.row[cell], cells.col[cell]
        if row_is_free[row] and column_is_free[column]:
            row_is_free[row] = column_is_free[column] = False
            n_matched += int(cells.data[cell])
    return float(n_matched / table.sum())


def purity(table: Any) -> float:
    """Return the share of objects whose class, in rows, is the most frequent one of their cluster."""
    return float(np.max(table, axis=0).sum() / np.float64(table.sum()))


def rand_index(tables: Any) -> Any:
    """Return the share of pairs that both clusterings join or both separate."""
    in_both, in_rows, in_columns, all_pairs = joined_pairs(tables)
    no_pair = all_pairs == 0
    return (all_pairs - in_rows - in_columns + 2 * in_both + no_pair) / (all_pairs + no_pair)


def adjusted_rand(tables: Any) -> Any:
    """Return the adjusted Rand index."""
    return adjusted_rand_of_pairs(*joined_pairs(tables))


def adjusted_rand_of_pairs(in_both: Any, in_rows: Any, in_columns: Any, all_pairs: Any) -> Any:
    """Return the adjusted Rand index by the pairs both clusterings join, either joins, and there are."""
    is_trivial = (in_rows == in_columns) & ((in_rows == 0) | (in_rows == all_pairs))
    by_chance = in_rows * in_columns / np.maximum(all_pairs, 1.0)
    at_most = np.where(is_trivial, 1.0, (in_rows + in_columns) / 2 - by_chance)
    return np.where(is_trivial, 1.0, (in_both - by_chance) / at_most)[()]


def van_dongen(tables: Any) -> Any:
    """Return the normalized van Dongen distance."""
    n = tables.sum(axis=(-2, -1))
    n_matched = tables.max(axis=-1).sum(axis=-1) + tables.max(axis=-2).sum(axis=-1)
    return (2 * n - n_matched) / (2 * n)


def nmi(tables: Any) -> Any:
    """Return the mutual information over the geometric mean of the entropies; 0 without objects."""
    row_entropy, column_entropy, joint = entropies(tables)
    product = row_entropy * column_entropy
    is_single = product == 0  # the entropy of a single cluster is 0 exactly, that of more is not
    information = (row_entropy + column_entropy - joint) / np.sqrt(product + is_single)
    return np.clip(information, 0.0, 1.0) * ~is_single  # rounding may exceed either end


def variation_of_information(tables: Any) -> Any:
    """Return the sum of the entropies in nats of each clustering given the other.

    Their terms are never negative, so that it is exactly 0 for equal clusterings.
    """
    from scipy.special import xlogy

    n, rows, columns = tables.sum(axis=(-2, -1)), tables.sum(axis=-1), tables.sum(axis=-2)
    if isinstance(tables, np.ndarray):
        rows, columns = rows[..., None], columns[..., None, :]
    else:
        cells = tables.tocoo()
        tables, rows, columns = (array[None] for array in (cells.data, rows[cells.row], columns[cells.col]))
    counts = np.where(tables > 0, tables, 1)
    losses = [xlogy(tables, sizes / counts).sum(axis=(-2, -1)) / n for sizes in (rows, columns)]
    return losses[0] + losses[1]


SYMMETRIC: dict[str, Criterion] = {
    "adjusted_rand": adjusted_rand,
    "matching_accuracy": matching_accuracy,
    "nmi": nmi,
    "rand_index": rand_index,
    "van_dongen": van_dongen,
    "variation_of_information": variation_of_information,
}


def joined_pairs(tables: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return how many pairs both clusterings join, the rows join, the columns join, and there are."""
    cells = tables if isinstance(tables, np.ndarray) else tables.data[None]  # of a csr_array those above 0
    return (
        pairs_of(cells).sum(axis=(-2, -1)),
        pairs_of(tables.sum(axis=-1)).sum(axis=-1),
        pairs_of(tables.sum(axis=-2)).sum(axis=-1),
        pairs_of(tables.sum(axis=(-2, -1))),
    )


def pairs_of(n_objects: Any) -> np.ndarray:
    """Return ``n (n - 1) / 2``, the number of pairs of n objects, as floats: it may not fit an integer."""
    n = np.asarray(n_objects, dtype=np.float64)
    return np.asarray(n * (n - 1) / 2)


def entropies(tables: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the entropies in nats of the rows, of the columns and of the cells of each table.

    Counts may be fractional. The mutual information is the first two less the third.
    """
    from scipy.special import entr

    cells = tables if isinstance(tables, np.ndarray) else tables.data[None]
    total = np.asarray(tables.sum(axis=(-2, -1)))
    n = np.where(total > 0, total, 1)
    in_rows, in_columns = tables.sum(axis=-1), tables.sum(axis=-2)
    return (
        entr(in_rows / n[..., None]).sum(axis=-1),
        entr(in_columns / n[..., None]).sum(axis=-1),
        entr(cells / n[..., None, None]).sum(axis=(-2, -1)),
    )


def of_each(criterion: Criterion, table: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return a criterion, or several, (..., M) of the table (K, width) of each partition in (K, B).

    Tables of one width are taken together.
    """
    widths = np.diff(offsets)
    values = []
    for width in np.unique(widths):
        starts = offsets[:-1][widths == width]
        values.append(criterion(table[:, starts[:, None] + np.arange(width)].transpose(1, 0, 2)))
    order = np.argsort(np.argsort(widths, kind="stable"), kind="stable")
    return np.concatenate(values, axis=-1)[..., order]


def mean_over_partitions(
    criterion: Criterion, table: Any, offsets: np.ndarray, *, weighted: bool, weights: Any = None
) -> float:
    """Return the mean of a symmetric criterion of labels with every partition, by their table (K, B) int64.

    ``weighted``: partitions count by their objects. Raises InvalidInputError if there are none.
    """
    sizes = np.add.reduceat(table.sum(axis=0), offsets[:-1]).astype(np.float64)
    with np.errstate(invalid="ignore"):  # of partitions that label none of the objects
        if isinstance(table, np.ndarray):  # the order of sums is that of one table
            values = of_each(lambda tables: criterion(np.ascontiguousarray(tables)), table, offsets)
        else:
            columns = table.tocsc()
            values = np.array([criterion(columns[:, a:b].tocsr()) for a, b in pairwise(offsets)])
    counts = np.ones(sizes.size) if weights is None else np.asarray(weights, np.float64)
    is_compared = (counts > 0) & (sizes > 0)
    if not is_compared.any():
        raise InvalidInputError(
            "no object is labeled both in labels and in a partition; pass labels of the ensemble's objects."
        )
    counts = counts * sizes if weighted else counts
    return float(np.average(values[is_compared], weights=counts[is_compared]))


def ratio(a: Any, b: Any, otherwise: float = np.nan) -> Any:
    """Return ``a / b``, or ``otherwise`` where b is 0."""
    a, b = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(b, np.float64))
    return np.divide(a, b, out=np.full(a.shape, otherwise), where=b != 0)[()]
