"""Tables for people: what is in each cluster, by features that are read once, and how partitions agree."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bigcons.errors import InvalidInputError, shown
from bigcons.io.batches import Source, count_rows
from bigcons.io.columns import Selection, choose
from bigcons.io.features import NUMBER, ColumnCode, numbers_of, texts_of
from bigcons.io.labels import names_of_rows, refuse_other_rows
from bigcons.io.sources import open_source
from bigcons.memory import BLOCK_ROWS, parse_size, rows_within
from bigcons.metrics.clusterings import LabelColumn
from bigcons.metrics.partitions import adjusted_rand_of_partitions, sampled_rows
from bigcons.progress import progress
from bigcons.store.ensemble import as_ensemble

if TYPE_CHECKING:
    from bigcons.store.ensemble import Ensemble

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
        is_one = len(self.followed) == 1
        return (
            f"The clusters follow {shown(self.followed)}: almost all objects of a cluster have the same "
            f"value of {'it' if is_one else 'each of them'}. If that is no finding, make partitions without "
            f"{'it' if is_one else 'them'} (drop=, --drop)."
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
        table = choose(table, Selection(None, None, columns, None))
    column = LabelColumn("labels", labels)
    if table.n_rows not in (None, column.n_objects):
        raise _other_length(table, table.n_rows or 0, column)
    refuse_other_rows("labels", column.row_names, table.where, table.ids or names_of_rows(features))
    names = table.names or [f"f{c}" for c in range(table.n_columns)]
    n_text = sum(_kind(column_type) == "text" for column_type in table.column_types() or ())
    row_bytes = 8 * table.n_columns if table.is_sparse else table.row_bytes
    counted = column.n_clusters * (32 * len(names) + 8 * MAX_CATEGORIES * (n_text + 1))
    rows_that_fit = rows_within(
        parse_size(memory), row_bytes + 64, fixed=int(table.held_bytes + counted), at_least=256,
        what=f"counts of {column.n_clusters:,} clusters by {len(names):,} columns",
    )  # fmt: skip
    profiled = [
        _Column(name, column.n_clusters, table.rule_of(c).more_words, c in table.categorical)
        for c, name in enumerate(names)
    ]
    start, n_labeled = 0, 0
    with progress("what is in each cluster", column.n_objects) as listener:
        for rows in table.batches(min(rows_that_fit, BLOCK_ROWS), columns=list(range(len(names)))):
            rows = rows.toarray() if table.is_sparse else rows
            stop = start + count_rows(rows)
            if stop > column.n_objects:
                raise _other_length(table, stop, column)
            codes = column.codes(start, stop)
            n_labeled += int(np.count_nonzero(codes >= 0))
            for c, of_column in enumerate(profiled):
                of_column.add(rows[c] if isinstance(rows, list) else rows[:, c], codes)
            listener.advance(stop - start)
            start = stop
    if start != column.n_objects:
        raise _other_length(table, start, column)
    numbers = [of_column.numbers(column.values) for of_column in profiled if of_column.kind == "number"]
    dates = [of_column.dates(column.values) for of_column in profiled if of_column.kind == "date"]
    texts = [
        of_column.categories(column.values, n_categories)
        for of_column in profiled
        if of_column.kind == "text"
    ]
    left_out = {of_column.name: of_column.reason for of_column in profiled if of_column.reason}
    shares = {of_column.name: of_column.between(n_labeled) for of_column in profiled if of_column.kind}
    # nearly all variance of a column of few values is between clusters which follow it
    followed = [name for name, share in shares.items() if share >= 0.9]
    n_varying = np.count_nonzero(~np.isnan(list(shares.values())))
    return ClusterProfiles(
        *(_joined(numbers, _NUMBERS), _joined(texts, _CATEGORIES), left_out, _joined(dates, _DATES)),
        followed if 2 * len(followed) <= n_varying else [],
    )


_NUMBERS = {
    "cluster": pa.int64(), "feature": pa.string(), "n": pa.int64(), "mean": pa.float64(), "std": pa.float64(),
    "overall": pa.float64(), "lift": pa.float64(), "difference": pa.float64(),
}  # fmt: skip
_DATES = {
    "cluster": pa.int64(), "feature": pa.string(), "n": pa.int64(), "mean": pa.timestamp("s"),
    "std": pa.float64(), "overall": pa.timestamp("s"), "difference": pa.float64(),
}  # fmt: skip
_CATEGORIES = {
    "cluster": pa.int64(), "feature": pa.string(), "category": pa.string(), "share": pa.float64(),
    "overall": pa.float64(), "lift": pa.float64(),
}  # fmt: skip


class _Column:
    """What is known of one column: sums of numbers or counts of categories, by cluster."""

    def __init__(
        self, name: str, n_clusters: int, missing: tuple[str, ...] = (), is_category: bool = False
    ) -> None:
        self.name = name
        self._missing, self._is_category = missing, is_category
        self.kind = ""
        """"number", "date" or "text"; empty before the first value, and once it is left out."""
        self.reason = "it has no value"
        self._n_clusters = n_clusters
        self._sums = np.zeros((3, n_clusters))
        """Number of values, their sum and the sum of their squares, less the shift."""
        self._shift: float | None = None
        self._has_negative = False
        self._values: np.ndarray | None = np.empty(0)
        """The different numbers; None if there are more than clusters."""
        self._codes: dict[str, int] = {}
        self._counts = np.zeros((n_clusters, 8), np.int64)

    def add(self, values: Any, codes: np.ndarray) -> None:
        """Count a block of values, of objects with these codes of clusters.

        Those named as missing are; text that holds only numbers besides is numbers, unless the column is
        named as one of categories.
        """
        if not self.kind and self.reason != "it has no value":
            return
        if not isinstance(values, np.ndarray) or values.dtype.kind not in "buif":
            try:
                values = _arrow(values)
            except pa.ArrowException:
                self._leave_out("it mixes text and numbers")
                return
        if self._missing or self._is_category:
            values = self._as_named(values)
        is_array = isinstance(values, np.ndarray)
        if not is_array and values.null_count == len(values):
            return
        kind = "number" if is_array else _kind(values.type)
        if not kind:
            self._leave_out(f"it has type {values.type}")
        elif self.kind not in ("", kind):
            self._leave_out(f"it mixes {self.kind} and {kind}")
        else:
            self.kind, self.reason = kind, ""
            if kind == "text":
                self._add_text(values, codes)
            elif kind == "date":
                seconds = values.cast(pa.timestamp("us", getattr(values.type, "tz", None)), safe=False)
                self._add_numbers(pc.divide(seconds.cast(pa.int64()).cast(pa.float64()), 1e6), codes)
            else:
                self._add_numbers(values, codes)

    def _as_named(self, values: Any) -> Any:
        """Return values without those named as missing, and as text if they are named as categories."""
        kind = "number" if isinstance(values, np.ndarray) else _kind(values.type)
        if kind == "number" and not self._is_category:
            return numbers_of(values, ColumnCode(self.name, NUMBER, missing=self._missing), self.name)
        if kind not in ("number", "text"):
            return values
        values = _arrow(values)
        texts, rows = texts_of(values, self._missing)
        known = pa.array([*texts, None], pa.large_string()).take(pa.array(rows % (len(texts) + 1)))
        has_named = not set(self._missing).isdisjoint(texts_of(values, ())[0])
        if not self._is_category and (self.kind == "number" or (has_named and not self.kind)):
            with suppress(pa.ArrowException):
                return known.cast(pa.float64())
        return known

    def _leave_out(self, reason: str) -> None:
        self.kind, self.reason, self._codes = "", reason, {}
        self._counts = self._counts[:, :0].copy()

    def _add_numbers(self, values: Any, codes: np.ndarray) -> None:
        if not isinstance(values, np.ndarray):
            values = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        numbers = np.ma.filled(values.astype(np.float64), np.nan)
        counted = np.isfinite(numbers) & (codes >= 0)
        numbers, codes = numbers[counted], codes[counted]
        if self._shift is None and numbers.size:
            self._shift = float(numbers.mean())
        self._has_negative = self._has_negative or bool((numbers < 0).any())
        for values in (numbers[: self._n_clusters + 1], numbers):  # mostly, a few show that there are many
            if self._values is not None:
                self._values = np.union1d(self._values, values)
                self._values = self._values if self._values.size <= self._n_clusters else None
        numbers = numbers - (self._shift or 0.0)
        for row, weights in zip(self._sums, (None, numbers, numbers**2), strict=True):
            row += np.bincount(codes, weights, self._n_clusters)

    def _add_text(self, values: Any, codes: np.ndarray) -> None:
        encoded = values.dictionary_encode()
        texts = encoded.dictionary.cast(pa.string()).to_pylist()
        numbers = np.array([self._codes.setdefault(text, len(self._codes)) for text in texts], np.int64)
        if len(self._codes) > MAX_CATEGORIES:
            self._leave_out(f"it has more than {MAX_CATEGORIES:,} different texts")
            return
        width = self._counts.shape[1]
        if len(self._codes) > width:
            self._counts = np.pad(self._counts, ((0, 0), (0, max(len(self._codes) - width, width))))
        positions = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        counted = (positions >= 0) & (codes >= 0)
        cells = codes[counted] * self._counts.shape[1] + numbers[positions[counted]]
        self._counts += np.bincount(cells, minlength=self._counts.size).reshape(self._counts.shape)

    def between(self, n_labeled: int) -> float:
        """Return the share of the variance that is between clusters, times that of objects with a value.

        0 of numbers with more values than clusters, NaN if no two values differ.
        """
        n, sums, squares = self._sums[0], self._sums[1][:, None], self._sums[2].sum()
        values = self._values
        if self.kind == "text":
            sums = self._counts.astype(np.float64)
            n, squares, values = sums.sum(axis=1), sums.sum(), np.flatnonzero(sums.any(axis=0))
        if values is None:
            return 0.0
        if values.size < 2:
            return np.nan
        within = squares - (sums**2 / np.maximum(n, 1.0)[:, None]).sum()
        total = squares - (sums.sum(axis=0) ** 2).sum() / n.sum()
        return float((1.0 - within / total) * n.sum() / n_labeled)

    def numbers(self, clusters: np.ndarray) -> pa.Table:
        """Return the rows of the table of numbers."""
        shift = self._shift or 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            n, sums, squares = self._sums
            mean, all_n = sums / n, n.sum()
            overall = sums.sum() / all_n
            spread = np.sqrt(np.maximum(squares.sum() / all_n - overall**2, 0.0))
            found = {
                "cluster": clusters,
                "feature": [self.name] * len(clusters),
                "n": n.astype(np.int64),
                "mean": mean + shift,
                "std": np.sqrt(np.maximum(squares / n - mean**2, 0.0)),
                "overall": np.full(len(clusters), overall + shift),
                "lift": (mean + shift) / (np.nan if self._has_negative else overall + shift),
                "difference": np.where(spread > 0, (mean - overall) / spread, 0.0 * mean),
            }
        return _table(found, _NUMBERS)

    def dates(self, clusters: np.ndarray) -> pa.Table:
        """Return the rows of the table of dates."""
        seconds = self.numbers(clusters)
        found: dict[str, Any] = {name: seconds[name].combine_chunks() for name in _DATES}
        found["std"] = pc.divide(found["std"], 86_400.0)
        for name in ("mean", "overall"):
            found[name] = found[name].cast(pa.int64(), safe=False).cast(pa.timestamp("s"))
        return pa.table(found)

    def categories(self, clusters: np.ndarray, most: int) -> pa.Table:
        """Return the rows of the table of categories: the most frequent ones of each cluster."""
        counts = self._counts[:, : len(self._codes)]
        overall = counts.sum(axis=0) / np.maximum(counts.sum(), 1)
        texts, rows = list(self._codes), []
        for cluster, of_cluster in zip(clusters.tolist(), counts, strict=True):
            for c in np.argsort(-of_cluster, kind="stable")[:most].tolist():
                if of_cluster[c]:
                    share = of_cluster[c] / of_cluster.sum()
                    rows.append((cluster, self.name, texts[c], share, overall[c], share / overall[c]))
        columns = zip(*rows, strict=True) if rows else [[]] * len(_CATEGORIES)
        return _table(dict(zip(_CATEGORIES, map(list, columns), strict=True)), _CATEGORIES)


def _table(columns: dict[str, Any], types: dict[str, pa.DataType]) -> pa.Table:
    return pa.table({name: pa.array(columns[name], kind, from_pandas=True) for name, kind in types.items()})


def _joined(tables: list[pa.Table], types: dict[str, pa.DataType]) -> pa.Table:
    """Return tables one below the other, sorted by cluster."""
    if not tables:
        return pa.schema(list(types.items())).empty_table()
    table = pa.concat_tables(tables)
    return table.take(np.argsort(table["cluster"].to_numpy(), kind="stable"))


def _arrow(values: Any) -> Any:
    """Return a column as an Arrow array, text decoded."""
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(object), None)
    if isinstance(values, np.ndarray):
        values = pa.array(values, from_pandas=True)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return values


def _kind(kind: pa.DataType) -> str:
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    if types.is_timestamp(kind) or types.is_date(kind):
        return "date"
    numeric = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    return "number" if any(test(kind) for test in numeric) else ""


def _other_length(table: Source, n_rows: int, column: LabelColumn) -> InvalidInputError:
    return InvalidInputError(
        f"{table.where} has {n_rows:,} rows or more but there are {column.n_objects:,} labels; "
        "give one row per object, in their order."
    )


# Partitions


def partition_agreement(x: Any) -> pa.Table:
    """Return the partitions of an ensemble and how well they agree with each other.

    The table has the columns ``partition``, its name; ``n_clusters``; ``n_labeled``, its objects with a
    label; ``coverage``, their share; ``agreement``, its mean adjusted Rand index with the other partitions,
    near 0 if it is random; ``redundancy``, its largest; and ``most_alike``, the partition that has it.
    Agreement is of at most 2,048 sampled objects and, of more than a thousand partitions, with some of the
    others; null where no two partitions label the same.

    ``x`` is an ensemble of labels, or anything `Ensemble.from_labels` takes; `Ensemble.select` chooses
    among its partitions.

    Examples
    --------
    >>> import bigcons as bc
    >>> found = bc.metrics.partition_agreement([[0, 0, 0], [0, 0, 1], [1, 1, 0], [1, 1, 1]])
    >>> found.select(["partition", "agreement", "most_alike"]).to_pylist()[0]
    {'partition': 'p0', 'agreement': 0.25, 'most_alike': 'p1'}
    """
    ensemble = as_ensemble(x)
    names = ensemble.names
    index, others = partition_similarity(ensemble)
    known = ~np.isnan(index)
    has_other = known.any(axis=1)
    filled = np.where(known, index, -np.inf)
    alike = others[filled.argmax(axis=1)].tolist()
    n_labeled = ensemble.n_labeled
    found = {
        "partition": names,
        "n_clusters": ensemble.n_clusters,
        "n_labeled": n_labeled,
        "coverage": n_labeled / ensemble.n_objects,
        "agreement": np.divide(
            np.where(known, index, 0.0).sum(axis=1),
            known.sum(axis=1),
            out=np.full(len(names), np.nan),
            where=has_other,
        ),
        "redundancy": np.where(has_other, filled.max(axis=1), np.nan),
        "most_alike": [names[v] if has else None for v, has in zip(alike, has_other, strict=True)],
    }
    return pa.table({name: pa.array(values, from_pandas=True) for name, values in found.items()})


def partition_similarity(ensemble: Ensemble) -> tuple[np.ndarray, np.ndarray]:
    """Return `adjusted_rand_of_partitions` on sampled objects."""
    rows = sampled_rows(ensemble)
    labels = np.ascontiguousarray(ensemble.read_rows(rows), np.int32)
    return adjusted_rand_of_partitions(labels, ensemble.offsets)
