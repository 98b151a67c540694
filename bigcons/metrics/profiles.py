"""What is in each cluster, by features that are read once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from bigcons.errors import InvalidInputError, shown
from bigcons.io.columns import Selection, choose
from bigcons.io.features import CATEGORY, DATE, NUMBER, ColumnCode, as_arrow, kind_of, numbers_of, texts_of
from bigcons.io.labels import LabelColumn, names_of_rows, refuse_other_rows
from bigcons.io.sources import open_source
from bigcons.memory import BLOCK_ROWS, parse_size, rows_within
from bigcons.progress import progress

__all__ = ["cluster_profiles"]

MAX_CATEGORIES = 1000
"""Columns with more distinct values are text, which names objects or is prose, not categories."""


class ClusterProfiles(NamedTuple):
    """What is in each cluster; see `cluster_profiles`."""

    numbers: pa.Table
    """One row per cluster and column of numbers."""
    categories: pa.Table
    """The most frequent values of each cluster and column of text."""
    left_out: dict[str, str]
    """Why columns are in none of these, by name."""
    dates: pa.Table
    """One row per cluster and column of dates."""
    followed: list[str]
    """Columns of few values of which each cluster has one, where most columns are not like that."""

    def followed_in_words(self) -> str:
        """Return what the clusters follow in a sentence, empty if it is nothing."""
        if not self.followed:
            return ""
        each, them = ("it", "it") if len(self.followed) == 1 else ("each of them", "them")
        return (
            f"The clusters follow {shown(self.followed)}: almost all objects of a cluster have the same "
            f"value of {each}. If that is no finding, make partitions without {them} (drop=, --drop)."
        )


def cluster_profiles(
    features: Any,
    labels: Any,
    *,
    columns: Sequence[str] | None = None,
    n_categories: int = 3,
    memory: int | str = "1GB",
) -> ClusterProfiles:
    """Return what is in each cluster, by columns of any table of its objects.

    The table ``numbers`` has the columns ``cluster``; ``feature``; ``n``, how many objects have a value;
    ``mean`` and ``std`` of them; ``overall``, the mean of the objects of all clusters; ``lift``, the mean
    over that, null where a value is negative; and ``difference``, the mean minus that in standard deviations
    of all objects. The table
    ``categories`` has ``cluster``, ``feature``, ``category``, its ``share`` of the objects of the cluster
    that have a value, its share ``overall``, and its ``lift``, one over the other. The table ``dates`` is as
    ``numbers``, without ``lift``: ``mean`` and ``overall`` are dates, and ``std`` is in days.

    The list ``followed`` has the columns, at most half of those that vary, that the clusters repeat: text,
    and booleans or numbers with no more different values than there are clusters, whose variance is at least
    90 % between the clusters; of text, that of its one-hot columns (Goodman and Kruskal's tau). If objects
    have no value, the share is counted of all objects.

    Parameters
    ----------
    features
        Anything `Ensemble.from_labels` takes, with one row per object in their order: numbers, booleans,
        text and dates, each of which may be missing, also by ``missing`` of `bigcons.select`. Text with more
        than 1,000 values is left out.
    labels
        Labels ``(n_objects,)``, negative for none; a fitted method; or a `Consensus`.
    columns
        Names of the columns to describe; by default all.
    n_categories
        Values of a column of text to name, of each cluster.
    memory
        For reading and counting, besides what the process holds.

    One pass over the features and two over the labels. Memory for a block and, of each cluster, four
    numbers per column and up to 1,000 counts per column of text. Raises InvalidInputError for names of no
    columns and another number of rows, MemoryBudgetError if the counts do not fit.

    Examples
    --------
    >>> import bigcons as bc
    >>> import pyarrow as pa
    >>> people = pa.table({"age": [20, 30, 60, 70], "city": ["Bern", "Bern", "Oslo", "Rome"]})
    >>> profiles = bc.metrics.cluster_profiles(people, [0, 0, 1, 1])
    >>> profiles.numbers["mean"].to_pylist()
    [25.0, 65.0]
    >>> profiles.categories.slice(0, 1).to_pylist()
    [{'cluster': 0, 'feature': 'city', 'category': 'Bern', 'share': 1.0, 'overall': 0.5, 'lift': 2.0}]
    """
    table = open_source(features, "features")
    if columns is not None:
        table = choose(table, Selection(None, columns=columns))
    column = LabelColumn("labels", labels)
    refuse_other_rows("labels", column.row_names, table.where, table.ids or names_of_rows(features))
    names, K = table.names or [f"f{c}" for c in range(table.n_columns)], column.n_clusters
    n_text = sum(kind_of(kind) == CATEGORY for kind in table.column_types() or ())
    row_bytes = 8 * table.n_columns if table.is_sparse else table.row_bytes
    rows_that_fit = rows_within(
        parse_size(memory), row_bytes + 64, at_least=256,
        fixed=int(table.held_bytes + K * (32 * len(names) + 8 * MAX_CATEGORIES * (n_text + 1))),
        what=f"counts of {K:,} clusters by {len(names):,} columns",
    )  # fmt: skip
    profiled = [
        _Column(ColumnCode(name, NUMBER, missing=table.rule_of(c).more_words), c in table.categorical, K)
        for c, name in enumerate(names)
    ]
    start, n_labeled = 0, 0
    with progress("what is in each cluster", column.n_objects) as listener:
        for rows in table.batches(min(rows_that_fit, BLOCK_ROWS), columns=list(range(len(names)))):
            values = rows if isinstance(rows, list) else (rows.toarray() if table.is_sparse else rows).T
            n_rows = len(rows[0]) if isinstance(rows, list) else rows.shape[0]
            codes = column.codes(start, min(start + n_rows, column.n_objects))
            start += n_rows
            if start > column.n_objects:
                break
            n_labeled += int(np.count_nonzero(codes >= 0))
            for one, of_column in zip(profiled, values, strict=True):
                one.add(of_column, codes, table.where)
            listener.advance(n_rows)
    if start != column.n_objects:
        raise InvalidInputError(
            f"{table.where} has {max(start, table.n_rows or 0):,} rows or more but there are "
            f"{column.n_objects:,} labels; give one row per object, in their order."
        )
    shares = {one.name: one.share_between(n_labeled) for one in profiled if one.kind}
    # nearly all variance of a column of few values is between clusters which follow it
    followed = [name for name, share in shares.items() if share >= 0.9]
    n_varying = np.count_nonzero(~np.isnan(list(shares.values())))
    kinds = {kind: [one for one in profiled if one.kind == kind] for kind in (NUMBER, CATEGORY, DATE)}
    return ClusterProfiles(
        _table_of_numbers(kinds[NUMBER], column.values, _NUMBERS),
        _table_of_texts(kinds[CATEGORY], column.values, n_categories),
        {one.name: one.why_not for one in profiled if not one.kind},
        _table_of_numbers(kinds[DATE], column.values, _DATES),
        followed if 2 * len(followed) <= n_varying else [],
    )


_CATEGORIES = {
    "cluster": pa.int64(), "feature": pa.string(), "category": pa.string(), "share": pa.float64(),
    "overall": pa.float64(), "lift": pa.float64(),
}  # fmt: skip
_NUMBERS = {
    "cluster": pa.int64(), "feature": pa.string(), "n": pa.int64(), "mean": pa.float64(), "std": pa.float64(),
    "overall": pa.float64(), "lift": pa.float64(), "difference": pa.float64(),
}  # fmt: skip
_DATES = {name: kind for name, kind in _NUMBERS.items() if name != "lift"} | dict.fromkeys(
    ("mean", "overall"), pa.timestamp("s")
)


class _Column:
    """Sums of the numbers or counts of the texts of a column, in each of K clusters."""

    def __init__(self, code: ColumnCode, is_category: bool, n_clusters: int) -> None:
        self.name, self._code, self._is_category = code.name, code, is_category
        self.kind = ""
        """NUMBER, DATE or CATEGORY; empty before the first value, and once it is left out."""
        self.why_not = "it has no value"
        self.sums = np.zeros((3, n_clusters))
        """Number of values, their sum and the sum of their squares, less the shift."""
        self.shift: float | None = None
        self.has_negative = False
        self._values: np.ndarray | None = np.empty(0)
        """The different numbers; None if there are more than clusters."""
        self.texts: dict[str, int] = {}
        self.counts = np.zeros((n_clusters, 0), np.int64)
        """(K, texts): how many objects have each text."""

    def add(self, column: Any, codes: np.ndarray, where: str) -> None:
        """Count a block of values, of objects with these codes of clusters."""
        if not self.kind and self.why_not != "it has no value":
            return
        kind, numbers, why_not = NUMBER, np.empty(0), ""
        try:
            if not isinstance(column, np.ndarray) or column.dtype.kind not in "buif" or self._is_category:
                column = as_arrow(column, self.name, where)
                kind = CATEGORY if self._is_category else kind_of(column.type) or ""
            if kind in (NUMBER, DATE):
                numbers = numbers_of(column, self._code._replace(kind=kind), where)
        except InvalidInputError:
            why_not = "it has values of several types"
        if why_not or (kind in (NUMBER, DATE) and np.isnan(numbers).all()):
            pass
        elif kind not in (NUMBER, DATE, CATEGORY):
            why_not = f"it has type {column.type}"
        elif self.kind not in ("", kind):
            why_not = "it has values of several types"
        elif kind == CATEGORY:
            why_not = self._add_texts(*texts_of(column, self._code.missing), codes)
        else:
            self.kind = kind
            self._add_numbers(np.round(86_400.0 * numbers, 3) if kind == DATE else numbers, codes)
        if why_not:
            self.kind, self.why_not = "", why_not

    def _add_numbers(self, numbers: np.ndarray, codes: np.ndarray) -> None:
        counted, K = np.isfinite(numbers) & (codes >= 0), self.sums.shape[1]
        numbers, codes = numbers[counted], codes[counted]
        if self.shift is None and numbers.size:
            self.shift = float(numbers.mean())
        self.has_negative = self.has_negative or bool((numbers < 0).any())
        for values in (numbers[: K + 1], numbers):  # mostly, a few show that there are many
            if self._values is not None:
                self._values = np.union1d(self._values, values)
                self._values = self._values if self._values.size <= K else None
        numbers = numbers - (self.shift or 0.0)
        for row, weights in zip(self.sums, (None, numbers, numbers**2), strict=True):
            row += np.bincount(codes, weights, K)

    def _add_texts(self, texts: Sequence[str | None], rows: np.ndarray, codes: np.ndarray) -> str:
        """Count texts; return why the column is left out, if it has too many."""
        code_of, K = self.texts, len(self.counts)
        numbers = [-1 if text is None else code_of.setdefault(text, len(code_of)) for text in texts]
        if len(code_of) > MAX_CATEGORIES:
            return f"it has more than {MAX_CATEGORIES:,} different texts"
        if code_of:
            self.kind = CATEGORY
            numbers_of_rows = np.array([*numbers, -1])[rows]
            counted = (numbers_of_rows >= 0) & (codes >= 0)
            cells = codes[counted] * len(code_of) + numbers_of_rows[counted]
            self.counts = np.pad(self.counts, ((0, 0), (0, len(code_of) - self.counts.shape[1])))
            self.counts += np.bincount(cells, minlength=self.counts.size).reshape(K, -1)
        return ""

    def share_between(self, n_labeled: int) -> float:
        """Return the share of the variance that is between clusters, times that of objects with a value.

        0 of numbers with more values than clusters, NaN if no two values differ.
        """
        n, sums, squares = self.sums[0], self.sums[1][:, None], self.sums[2].sum()
        values = self._values
        if self.kind == CATEGORY:
            sums = self.counts.astype(np.float64)
            n, squares, values = sums.sum(axis=1), sums.sum(), np.flatnonzero(sums.any(axis=0))
        if values is None:
            return 0.0
        if values.size < 2:
            return np.nan
        within = squares - (sums**2 / np.maximum(n, 1.0)[:, None]).sum()
        total = squares - (sums.sum(axis=0) ** 2).sum() / n.sum()
        return float((1.0 - within / total) * n.sum() / n_labeled)


def _table_of_numbers(
    columns: list[_Column], clusters: np.ndarray, types: dict[str, pa.DataType]
) -> pa.Table:
    """Return a row for every cluster and column of numbers, or of dates in seconds, by cluster."""
    shape = len(columns), len(clusters)
    n, sums, squares = np.array([one.sums for one in columns]).reshape(-1, 3, shape[1]).transpose(1, 0, 2)
    shift = np.array([one.shift or 0.0 for one in columns])[:, None]
    of_lift = np.array([np.nan if one.has_negative else 1.0 for one in columns])[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        mean, of_all = sums / n, n.sum(axis=1, keepdims=True)
        overall = sums.sum(axis=1, keepdims=True) / of_all
        spread = np.sqrt(np.maximum(squares.sum(axis=1, keepdims=True) / of_all - overall**2, 0.0))
        values = {
            "cluster": clusters,
            "feature": np.array([one.name for one in columns], object)[:, None],
            "n": n.astype(np.int64),
            "mean": mean + shift,
            "std": np.sqrt(np.maximum(squares / n - mean**2, 0.0)),
            "overall": overall + shift,
            "lift": (mean + shift) / (of_lift * (overall + shift)),
            "difference": np.where(spread > 0, (mean - overall) / spread, 0.0 * mean),
        }
    if types is _DATES:
        values["std"] = values["std"] / 86_400.0
    arrays = {}
    for name, kind in types.items():
        array = pa.array(np.broadcast_to(values[name], shape).ravel(order="F"), from_pandas=True)
        is_date = pa.types.is_timestamp(kind)
        arrays[name] = (array.cast(pa.int64(), safe=False) if is_date else array).cast(kind)
    return pa.table(arrays)


def _table_of_texts(columns: list[_Column], clusters: np.ndarray, most: int) -> pa.Table:
    """Return the ``most`` frequent texts of every cluster and column of text, by cluster."""
    rows, of_all = [], [one.counts.sum(axis=0) / np.maximum(one.counts.sum(), 1) for one in columns]
    for k, cluster in enumerate(clusters.tolist()):
        for one, overall in zip(columns, of_all, strict=True):
            texts, counts = list(one.texts), one.counts[k]
            for c in np.argsort(-counts, kind="stable")[:most].tolist():
                if counts[c]:
                    share = counts[c] / counts.sum()
                    row = cluster, one.name, texts[c], share, overall[c], share / overall[c]
                    rows.append(dict(zip(_CATEGORIES, row, strict=True)))
    return pa.Table.from_pylist(rows, pa.schema(_CATEGORIES))
