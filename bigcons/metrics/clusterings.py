"""Criteria of two clusterings: their contingency table, and what is computed from it.

Labels are whole numbers or text; negative numbers, None and NaN are missing. The objects labeled in both
clusterings are compared. Labels are read block by block, so they may be memory-mapped or in Zarr. In place of
labels stands a fitted clusterer or a `Consensus`.

Every criterion has two functions: one of two clusterings, and one (``..._of_table``) of their contingency
table ``(n_classes, n_clusters)``, which may have empty rows and columns. For symmetric criteria, the latter
also takes a stack of tables ``(..., n_classes, n_clusters)`` and returns as many values. `OF_TWO_CLUSTERINGS`
and `OF_TRUTH` list them by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigcons.errors import InvalidInputError, MemoryBudgetError
from bigcons.io.labels import LabelColumn as LabelColumn
from bigcons.io.labels import refuse_other_rows
from bigcons.memory import BLOCK_ROWS, format_size, row_blocks
from bigcons.validation import check_choice

MAX_TABLE_BYTES = 1 << 30

Criterion = Callable[[np.ndarray], Any]
"""A number for one table ``(ka, kb)``."""


# Contingency


def contingency(a: Any, b: Any) -> np.ndarray:
    """Return how many objects lie in each cluster of ``a`` and each of ``b``: ``(ka, kb)`` int64.

    ``a`` and ``b`` are ``(n_objects,)`` labels, whole numbers or text, a fitted clusterer or a `Consensus`.
    Objects whose label is negative, None or NaN in either are left out. Rows and columns are in ascending
    order of the labels; labels of no compared object are left out, so no row or column is empty. Arrays are
    compared in their order; where indexes or ids show that the rows are others, or in another order, they are
    refused.

    Raises InvalidInputError for these, and if the lengths differ or no object is labeled in both.

    Examples
    --------
    >>> import bigcons as bc
    >>> bc.metrics.contingency([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7])
    array([[2, 1],
           [0, 3]])
    """
    return compared_table(LabelColumn("a", a), LabelColumn("b", b))


def truth_table(truth: Any, labels: Any) -> np.ndarray:
    """Return the contingency of ``truth`` (rows) with ``labels`` (columns)."""
    return compared_table(LabelColumn("truth", truth), LabelColumn("labels", labels))


def compared_table(a: LabelColumn, b: LabelColumn) -> np.ndarray:
    """Return the contingency of two columns over the objects labeled in both."""
    if a.n_objects != b.n_objects:
        raise InvalidInputError(
            f"{a.name} has {a.n_objects:,} objects but {b.name} has {b.n_objects:,}; "
            "pass one label per object in each."
        )
    refuse_other_rows(a.name, a.row_names, b.name, b.row_names)
    shape = (a.n_clusters, b.n_clusters)
    check_size(shape)
    table = np.zeros(shape, dtype=np.int64)
    for block in row_blocks(a.n_objects, BLOCK_ROWS):
        rows, columns = (labels.codes(block.start, block.stop) for labels in (a, b))
        both = (rows >= 0) & (columns >= 0)
        cells = rows[both] * shape[1] + columns[both]
        table += np.bincount(cells, minlength=table.size).reshape(shape)
    if not table.any():
        raise InvalidInputError(
            f"no object has a label in both {a.name} and {b.name}; pass clusterings of the same objects."
        )
    return table[table.any(axis=1)][:, table.any(axis=0)]


def check_size(shape: tuple[int, int]) -> None:
    """Raise MemoryBudgetError for a table that would take more than MAX_TABLE_BYTES."""
    needed = 8 * shape[0] * shape[1]
    if needed > MAX_TABLE_BYTES:
        raise MemoryBudgetError(
            f"the contingency table of {shape[0]:,} by {shape[1]:,} clusters needs {format_size(needed)}, "
            f"more than {format_size(MAX_TABLE_BYTES)}; compare clusterings with fewer clusters.",
            needed=needed,
            budget=MAX_TABLE_BYTES,
        )


# Objects and pairs of objects on which clusterings agree


def matching_accuracy(truth: Any, labels: Any) -> float:
    """Return the H criterion: the share of objects in agreement under the best one-to-one matching.

    Clusters of ``labels`` are matched with classes of ``truth`` by the Hungarian method; if their numbers
    differ, some match nothing (Lourenço et al. 2015). In (0, 1], 1 if equal up to names. Labels as in
    `contingency`.

    Examples
    --------
    >>> import bigcons as bc
    >>> round(bc.metrics.matching_accuracy([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7]), 3)
    0.833
    """
    return float(matching_accuracy_of_table(truth_table(truth, labels)))


def consistency_index(truth: Any, labels: Any, *, matching: str = "hungarian") -> float:
    """Return the consistency index (CI), the share of objects in agreement under a one-to-one matching.

    With ``matching="hungarian"``, the best matching, it is the H criterion (`matching_accuracy`); with
    "greedy" the largest overlaps are matched first, as in Fred (2001).

    Examples
    --------
    >>> import bigcons as bc
    >>> round(bc.metrics.consistency_index([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7]), 3)
    0.833
    """
    check_choice("matching", matching, ("hungarian", "greedy"))
    return micro_precision(truth, labels, mode=matching)


def micro_precision(truth: Any, labels: Any, *, mode: str = "greedy") -> float:
    """Return the micro-precision (MP): the share of objects whose cluster represents their class.

    ``mode`` decides which class a cluster represents. "greedy" takes the largest cell of the contingency
    table, then the largest among the classes and clusters that remain, and so on (ties in ascending order of
    class, then of cluster); "hungarian" is the best one-to-one matching (`matching_accuracy`); "majority"
    lets several clusters represent one class (`purity`).

    Wang, Shan and Banerjee (2009) define it by the majority, but their tables have values below the share of
    the largest class, which is impossible with a majority: compare with them by the default.

    Examples
    --------
    >>> import bigcons as bc
    >>> round(bc.metrics.micro_precision([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7]), 3)
    0.833
    """
    check_choice("mode", mode, tuple(_MODES))
    return float(_MODES[mode](truth_table(truth, labels)))


def purity(truth: Any, labels: Any) -> float:
    """Return the share of objects whose class is the most frequent one of their cluster.

    The accuracy of Nguyen and Caruana (2007). Many clusters may represent one class, so it grows with the
    number of clusters and is 1 for singletons: compare it at equal numbers of clusters only.

    Examples
    --------
    >>> import bigcons as bc
    >>> round(bc.metrics.purity([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7]), 3)
    0.833
    """
    return purity_of_table(truth_table(truth, labels))


def rand_index(a: Any, b: Any) -> float:
    """Return the share of pairs of objects that both clusterings join or both separate (Rand 1971).

    Symmetric, in [0, 1], 1 if equal up to names or if there is one object. With many clusters it is near 1 by
    chance alone; `adjusted_rand` corrects for that. The Rand distance of Nguyen and Caruana (2007), which
    they call adjusted, is 1 minus this index.

    Examples
    --------
    >>> import bigcons as bc
    >>> round(bc.metrics.rand_index([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7]), 3)
    0.667
    """
    return float(rand_index_of_table(contingency(a, b)))


def adjusted_rand(truth: Any, labels: Any) -> float:
    """Return the adjusted Rand index of Hubert and Arabie (1985): 1 if equal, 0 on average by chance.

    Symmetric. 1 if both clusterings have a single cluster, or both have only singletons. Labels as in
    `contingency`: objects labeled -1, None or NaN in either are left out, whereas scikit-learn's
    ``adjusted_rand_score`` takes -1 as a cluster.

    Examples
    --------
    >>> import bigcons as bc
    >>> round(bc.metrics.adjusted_rand([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7]), 3)
    0.324
    """
    return float(adjusted_rand_of_table(truth_table(truth, labels)))


def van_dongen(a: Any, b: Any) -> float:
    """Return the normalized van Dongen distance: the share of objects to move to turn one into the other.

    ``1 - (sum of row maxima + sum of column maxima) / 2n`` of the contingency table (Nguyen and Caruana
    2007). A symmetric distance in [0, 1), 0 if equal up to names.

    Examples
    --------
    >>> import bigcons as bc
    >>> round(bc.metrics.van_dongen([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7]), 3)
    0.167
    """
    return float(van_dongen_of_table(contingency(a, b)))


# Information


def nmi(a: Any, b: Any) -> float:
    """Return the mutual information of two clusterings over the geometric mean of their entropies.

    In [0, 1], 1 if equal up to names; 0 by definition if one of them has a single cluster (Strehl and Ghosh
    2002). Labels as in `contingency`.

    Examples
    --------
    >>> import bigcons as bc
    >>> round(bc.metrics.nmi([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7]), 3)
    0.479
    """
    return float(nmi_of_table(contingency(a, b)))


def relative_nmi(truth: Any, labels: Any, reference: Any) -> float:
    """Return the NMI of ``labels`` with ``truth`` over that of ``reference``, a clustering of all the data.

    The quality of a consensus of clusterings of parts of the data relative to one clustering of all (Strehl
    and Ghosh 2002, object-distributed clustering); above 1 if it is better. Each NMI compares the objects
    labeled in both. Raises InvalidInputError if the reference has NMI 0 with the truth.

    Examples
    --------
    >>> import bigcons as bc
    >>> truth, reference = [0, 0, 1, 1], [0, 1, 1, 1]
    >>> round(bc.metrics.relative_nmi(truth, [0, 0, 1, 1], reference), 3)
    2.894
    """
    whole = nmi(truth, reference)
    if whole == 0:
        raise InvalidInputError(
            "reference has NMI 0 with truth, so the ratio is undefined; pass a better clustering."
        )
    return nmi(truth, labels) / whole


def variation_of_information(a: Any, b: Any) -> float:
    """Return the variation of information ``H(a) + H(b) - 2 I(a; b)`` of two clusterings, in nats.

    A metric of clusterings (Meilă 2007): symmetric, 0 exactly if they are equal up to names, at most
    ``log n``. Labels as in `contingency`. Nguyen and Caruana (2007) do not say which logarithm they use.

    Examples
    --------
    >>> import bigcons as bc
    >>> round(bc.metrics.variation_of_information([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7]), 3)
    0.693
    """
    return float(variation_of_information_of_table(contingency(a, b)))


# Of contingency tables


def matching_accuracy_of_table(tables: np.ndarray) -> Any:
    """Return `matching_accuracy` from contingency tables."""
    from scipy.optimize import linear_sum_assignment

    each = tables.reshape(-1, *tables.shape[-2:])
    matched = [table[linear_sum_assignment(table, maximize=True)].sum() for table in each]
    return np.reshape(matched, tables.shape[:-2])[()] / tables.sum(axis=(-2, -1))


def greedy_accuracy_of_table(table: np.ndarray) -> float:
    """Return greedy `micro_precision` from a contingency table of classes (rows) and clusters."""
    row_is_free, column_is_free = (np.ones(size, bool) for size in table.shape)
    matched = 0
    for cell in np.argsort(-table, axis=None, kind="stable"):
        row, column = divmod(int(cell), table.shape[1])
        if row_is_free[row] and column_is_free[column]:
            row_is_free[row] = column_is_free[column] = False
            matched += int(table[row, column])
    return float(matched / table.sum())


def purity_of_table(table: np.ndarray) -> float:
    """Return `purity` from a contingency table of classes (rows) and clusters."""
    return float(np.max(table, axis=0).sum() / np.float64(table.sum()))


def rand_index_of_table(tables: np.ndarray) -> Any:
    """Return `rand_index` from contingency tables."""
    together, in_rows, in_columns, all_pairs = joined_pairs(tables)
    no_pair = all_pairs == 0
    return (all_pairs - in_rows - in_columns + 2 * together + no_pair) / (all_pairs + no_pair)


def adjusted_rand_of_table(tables: np.ndarray) -> Any:
    """Return `adjusted_rand` from contingency tables."""
    return adjusted_rand_of_pairs(*joined_pairs(tables))


def adjusted_rand_of_pairs(together: Any, in_rows: Any, in_columns: Any, all_pairs: Any) -> Any:
    """Return `adjusted_rand` from how many pairs both clusterings join, either joins, and there are."""
    is_trivial = (in_rows == in_columns) & ((in_rows == 0) | (in_rows == all_pairs))
    by_chance = in_rows * in_columns / np.maximum(all_pairs, 1.0)
    at_most = np.where(is_trivial, 1.0, (in_rows + in_columns) / 2 - by_chance)
    return np.where(is_trivial, 1.0, (together - by_chance) / at_most)[()]


def van_dongen_of_table(tables: np.ndarray) -> Any:
    """Return `van_dongen` from contingency tables."""
    n = tables.sum(axis=(-2, -1))
    kept = tables.max(axis=-1).sum(axis=-1) + tables.max(axis=-2).sum(axis=-1)
    return (2 * n - kept) / (2 * n)


def joined_pairs(tables: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return how many pairs both clusterings join, the rows join, the columns join, and there are."""
    return (
        pairs_of(tables).sum(axis=(-2, -1)),
        pairs_of(tables.sum(axis=-1)).sum(axis=-1),
        pairs_of(tables.sum(axis=-2)).sum(axis=-1),
        pairs_of(tables.sum(axis=(-2, -1))),
    )


def pairs_of(n_objects: Any) -> np.ndarray:
    """Return ``n (n - 1) / 2``, the number of pairs of n objects, as floats: it may not fit an integer."""
    n = np.asarray(n_objects, dtype=np.float64)
    return np.asarray(n * (n - 1) / 2)


def nmi_of_table(tables: np.ndarray) -> Any:
    """Return `nmi` from contingency tables; 0 for one without objects."""
    of_rows, of_columns, joint = entropies_of_table(tables)
    both = of_rows * of_columns
    is_single = both == 0  # the entropy of a single cluster is 0 exactly, that of more is not
    information = (of_rows + of_columns - joint) / np.sqrt(both + is_single)
    return np.clip(information, 0.0, 1.0) * ~is_single  # rounding may exceed either end


def variation_of_information_of_table(tables: np.ndarray) -> Any:
    """Return `variation_of_information` from contingency tables.

    The sum of the entropies of each clustering given the other, whose terms are never negative, so that it is
    exactly 0 for equal clusterings.
    """
    of_rows, of_columns = lost_information(tables)
    return of_rows + of_columns


def lost_information(tables: np.ndarray) -> tuple[Any, Any]:
    """Return the entropies in nats of the columns given the rows, and of the rows given the columns."""
    from scipy.special import xlogy

    n, cells = tables.sum(axis=(-2, -1)), np.where(tables > 0, tables, 1)
    rows, columns = tables.sum(axis=-1, keepdims=True), tables.sum(axis=-2, keepdims=True)
    return tuple(xlogy(tables, sizes / cells).sum(axis=(-2, -1)) / n for sizes in (rows, columns))


def entropies_of_table(tables: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the entropies in nats of the rows, of the columns and of the cells of each table.

    Counts may be fractional. The mutual information is the first two less the third.
    """
    from scipy.special import entr

    total = np.asarray(tables.sum(axis=(-2, -1)))
    n = np.where(total > 0, total, 1)
    in_rows, in_columns = tables.sum(axis=-1), tables.sum(axis=-2)
    return (
        entr(in_rows / n[..., None]).sum(axis=-1),
        entr(in_columns / n[..., None]).sum(axis=-1),
        entr(tables / n[..., None, None]).sum(axis=(-2, -1)),
    )


_MODES = {
    "greedy": greedy_accuracy_of_table,
    "majority": purity_of_table,
    "hungarian": matching_accuracy_of_table,
}

OF_TWO_CLUSTERINGS: dict[str, Criterion] = {
    "adjusted_rand": adjusted_rand_of_table,
    "matching_accuracy": matching_accuracy_of_table,
    "nmi": nmi_of_table,
    "rand_index": rand_index_of_table,
    "van_dongen": van_dongen_of_table,
    "variation_of_information": variation_of_information_of_table,
}
"""Symmetric criteria; they also take stacks of tables ``(..., ka, kb)``."""

OF_TRUTH: dict[str, Criterion] = {
    **OF_TWO_CLUSTERINGS,
    "micro_precision": greedy_accuracy_of_table,
    "purity": purity_of_table,
}
"""Criteria of a table whose rows are the true classes."""


def of_each(criterion: Criterion, table: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return a criterion, or several, (..., M) of the table (K, width) of each partition.

    Those of one width are taken together.
    """
    widths = np.diff(offsets)
    found = []
    for width in np.unique(widths):
        starts = offsets[:-1][widths == width]
        found.append(criterion(table[:, starts[:, None] + np.arange(width)].transpose(1, 0, 2)))
    order = np.argsort(np.argsort(widths, kind="stable"), kind="stable")
    return np.concatenate(found, axis=-1)[..., order]


def ratio(a: Any, b: Any, otherwise: float = np.nan) -> Any:
    """Return ``a / b``, or ``otherwise`` where b is 0."""
    a, b = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(b, np.float64))
    return np.divide(a, b, out=np.full(a.shape, otherwise), where=b != 0)[()]
