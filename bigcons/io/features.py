"""Features: the rows of any source as numbers; what each column becomes is learned once and used again.

Every column of a table counts the same: once scaled, the mean squared distance of two objects in it is 2.

- Numbers, booleans (0 and 1) and dates (in days) are scaled to mean 0 and variance 1.
- Text and categories are one-hot: one column for each of up to `LEVELS` values, which share one scale. More
  values are hashed into `LEVELS` columns. Blanks around text do not count, and the words that pandas reads as
  missing are missing. Missing text is a value of its own; one that did not occur has none of the columns.
- A missing number becomes the mean of its column, and a column that tells where it is missing is added, so
  high that a missing and a known value are as far apart as two known ones, on average.

This is what ColumnTransformer, OneHotEncoder, SimpleImputer and StandardScaler of scikit-learn do together,
but for the shared scale and the height of that column.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bigcons import errors
from bigcons.errors import InvalidInputError, SuspiciousFeaturesWarning, first_line, quote, warn_user
from bigcons.io.columns import MISSING_WORDS, Column, Columns, Ids, loose_number, options_of, select
from bigcons.io.labels import rechunk
from bigcons.io.sources import IN_MEMORY, Rows, Source, open_source, origin, provenance_of_files
from bigcons.memory import BLOCK_ROWS, VALUES_TOGETHER, Block, row_blocks
from bigcons.progress import progress
from bigcons.validation import check_rows

LEVELS = 64
"""Columns that a column of text has at most. Each costs as much as a number."""

NUMBER, DATE, CATEGORY, HASHED = _KINDS = ("number", "date", "category", "hashed")
_TEXTS = (CATEGORY, HASHED)


class ColumnCode(NamedTuple):
    """What a column of a table becomes."""

    name: str
    kind: str
    """number, date, category or hashed."""
    levels: tuple[str, ...] = ()
    """The values of a category, ascending."""
    may_miss: bool = False
    """Whether text has a column for what is missing; of numbers, see `Scaling`."""
    missing: tuple[str, ...] = ()
    """The values that are missing besides the default ones, as text."""

    @property
    def width(self) -> int:
        """Number of columns that the column becomes, without the one for missing numbers."""
        if self.kind not in _TEXTS:
            return 1
        return (LEVELS if self.kind == HASHED else len(self.levels)) + self.may_miss


@dataclass(frozen=True)
class Scaling:
    """The transformation of columns of numbers into the float32 values that are clustered.

    Attributes
    ----------
    kept
        Positions of the columns that vary.
    mean, scale
        Subtracted from them, 0 if the features were sparse, and their divisor.
    gaps
        Positions of the columns with missing values, each of which gets one more column.
    heights, shares
        The difference in that column between missing and known values, and the share of missing ones.
    checksum
        CRC-32 of all features, which identifies them when a run is resumed.
    """

    kept: np.ndarray
    mean: np.ndarray
    scale: np.ndarray
    gaps: np.ndarray
    heights: np.ndarray
    shares: np.ndarray
    checksum: int

    @property
    def width(self) -> int:
        """Number of columns that are clustered."""
        return len(self.kept) + len(self.gaps)

    def apply(self, values: Any, *, scaled: bool = True) -> Any:
        """Return ``(rows, width)`` float32, C-contiguous; sparse rows stay so if nothing is subtracted.

        If not ``scaled``, values are float64 as they are, with means where one is missing.
        """
        if not isinstance(values, np.ndarray) and self.mean.any():
            values = values.toarray()
        if not isinstance(values, np.ndarray):
            points = values[:, self.kept]
            points.data = (points.data / self.scale[points.indices]).astype(np.float32)
            points.sort_indices()
            return points
        points = values[:, self.kept] - self.mean if scaled else values[:, self.kept].astype(np.float64)
        if scaled:
            points /= self.scale
        if (missing := np.isnan(points)).any():
            points = np.where(missing, 0.0 if scaled else self.mean, points)
        if len(self.gaps):
            gaps = (np.isnan(values[:, self.gaps]) - self.shares) * self.heights
            points = np.concatenate([points, gaps], axis=1)
        if scaled and max(points.max(initial=0.0), -points.min(initial=0.0)) > 3e38:
            raise InvalidInputError("features has a number that is too far for float32; rescale or clip it.")
        return np.asarray(points.astype(np.float32 if scaled else np.float64, order="C"))


@dataclass
class FeatureEncoding:
    """What each column of a table of features becomes, in the rows it was learned from and in new ones.

    Attributes
    ----------
    columns
        What each column of the table becomes.
    is_named
        Whether the columns have names, so that new rows may have them in any order.
    scaling
        How numeric columns are scaled; None until they have been measured.
    id_name
        The column that identifies the objects, which is no feature.
    names, starts
        Names of the numeric columns that result; the number of the first one that each column becomes, and at
        the end their count, ``(n_columns + 1,)`` int64.
    is_plain
        Whether all columns are numbers, each of which becomes one.

    Examples
    --------
    >>> import bigcons as bc, pyarrow as pa
    >>> table = pa.table({"city": ["Oslo", "Rome", "Rome", "Oslo"], "age": [30.0, None, 50.0, 41.5]})
    >>> ensemble = bc.generate.kmeans(table, n_partitions=3, n_clusters=2, sample=1, random_state=0)
    >>> ensemble.generator.encoding
    FeatureEncoding(2 columns: number 'age'; category 'city')
    >>> ensemble.generator.encoding.transform(table).shape
    (4, 4)
    """

    columns: tuple[ColumnCode, ...]
    is_named: bool = True
    scaling: Scaling | None = None
    id_name: str | None = None

    def __post_init__(self) -> None:
        self.names: list[str] = []
        self.is_plain: bool = True
        starts = [0]
        for code in self.columns:
            if code.kind in _TEXTS:
                levels = code.levels or [f"#{b}" for b in range(LEVELS)]
                self.names += [f"{code.name}={level}" for level in levels]
                self.names += [f"{code.name} is missing"] * code.may_miss
                self.is_plain = False
            else:
                self.names.append(code.name)
            starts.append(len(self.names))
        self.starts: np.ndarray = np.array(starts)

    def transform(self, features: Any) -> np.ndarray:
        """Return the rows of a table as the float32 values that are clustered, ``(n_objects, width)``.

        The table has the columns of the first one, in any order if they have names; others are not read.
        """
        assert self.scaling is not None  # noqa: S101 - a published encoding has been measured
        table = self.table_of(features)
        blocks = (self.numbers(rows, np.dtype(float), table.where) for rows in table.batches(4096))
        points = [self.scaling.apply(block) for block in blocks]
        return np.concatenate([getattr(block, "toarray", lambda block=block: block)() for block in points])

    def table_of(self, features: Any, id: Column | None = None) -> Source:
        """Return the table of new rows, with the columns that the encoding was learned from, in their order.

        A table with names needs all of them, in any order; others are not read. The ids are in the column
        ``id``, by default in the one named like the ids of the first objects, if there is one.
        """
        missing = list(self.columns[0].missing) or None
        source = open_source(select(features, missing=missing), "features", with_ids=False)
        names = [column.name for column in self.columns] if self.is_named and source.names else None
        if lacking := [name for name in names or () if name not in (source.names or ())]:
            error = errors.UnknownColumnError(source.where, lacking[0], source.names)
            remedy = "of which the ensemble was made; add it, with gaps for what is not known."
            error.args = (f"{source.where} has no column {quote(lacking)}, {remedy}",)
            raise error
        table = open_source(select(source, id=id, columns=names), "features", usual_id=self.id_name)
        if table.n_columns != len(self.columns):
            raise InvalidInputError(
                f"{table.where} has {table.n_columns} columns, not {len(self.columns)}; give the same."
            )
        return table

    def numbers(self, rows: Rows, dtype: np.dtype, where: str = "features") -> np.ndarray:
        """Return a block of a table as numbers ``(rows, width)`` of ``dtype``, NaN where one is missing."""
        if isinstance(rows, np.ma.MaskedArray) and kind_of(rows.dtype):
            rows = np.ma.filled(rows.astype(np.float64), np.nan)  # masked values are missing
        if not isinstance(rows, list) and self.is_plain and kind_of(rows.dtype):
            values = np.array(rows, dtype, order="C") if isinstance(rows, np.ndarray) else rows.astype(dtype)
            for c, code in enumerate(self.columns):
                if code.missing:
                    values[:, c] = without_missing(values[:, c], code, rows.dtype)
            return values
        columns = rows if isinstance(rows, list) else list(rows.T)
        values = np.empty((len(columns[0]), len(self.names)), dtype)
        for column, code, start in zip(columns, self.columns, self.starts, strict=False):
            if code.kind in _TEXTS:
                codes = codes_of(column, code, where)
                values[:, start : start + code.width] = codes[:, None] == np.arange(code.width)
            else:
                values[:, start] = numbers_of(column, code, where)
        return values

    def to_dict(self) -> dict[str, Any]:
        """Return the encoding as JSON values; the arrays of the scaling as lists."""
        arrays = vars(self.scaling).items()
        scaling = {name: values if name == "checksum" else values.tolist() for name, values in arrays}
        columns = [column._asdict() for column in self.columns]
        return {"columns": columns, "is_named": self.is_named, "scaling": scaling, "id_name": self.id_name}

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> FeatureEncoding:
        """Return the encoding of `to_dict`; raises KeyError, TypeError or ValueError for any other."""
        columns = []
        for entry in entries["columns"]:
            lists = {name: tuple(entry[name]) for name in ("levels", "missing")}
            columns.append(ColumnCode(**{**entry, **lists}))
        scaling = dict(entries["scaling"])
        for name in scaling.keys() - {"checksum"}:
            scaling[name] = np.array(scaling[name], np.int64 if name in ("kept", "gaps") else np.float64)
        return cls(tuple(columns), entries["is_named"], Scaling(**scaling), entries["id_name"])

    def column_names(self) -> list[str]:
        """Return the names of the columns that are clustered."""
        assert self.scaling is not None  # noqa: S101 - set before names are asked for
        names = self.names
        gaps = [f"{names[c]} is missing" for c in self.scaling.gaps]
        return [names[c] for c in self.scaling.kept] + gaps

    def __repr__(self) -> str:
        return f"FeatureEncoding({self.summary()})"

    def summary(self) -> str:
        """Return one line that tells how many columns there are, and names some of each kind."""
        names = {kind: [code.name for code in self.columns if code.kind == kind] for kind in _KINDS}
        kinds = "; ".join(f"{kind} {quote(names[kind])}" for kind in _KINDS if names[kind])
        return f"{len(self.columns):,} column{'s' * (len(self.columns) > 1)}: {kinds}"


# What a column is


def kind_of(kind: Any) -> str | None:
    """Return the kind of a column by its Arrow or NumPy type, CATEGORY for any text; None if no feature."""
    if isinstance(kind, np.dtype):
        return NUMBER if kind.kind in "buif" else None
    types = pa.types
    tests = {
        CATEGORY: (types.is_dictionary, types.is_string, types.is_large_string, types.is_string_view),
        DATE: (types.is_timestamp, types.is_date),
        NUMBER: (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null),
    }
    return next((name for name, is_kind in tests.items() if any(test(kind) for test in is_kind)), None)


def as_arrow(column: Any, name: str, where: str) -> Any:
    """Return a column as one Arrow array."""
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks()
    if not isinstance(column, np.ndarray):
        return column
    try:
        return pa.array(column, from_pandas=True)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"column {name!r} of {where} has mixed types ({first_line(error)}); convert it to one type."
        ) from None


def texts_of(column: Any, missing: tuple[str, ...]) -> tuple[list[str | None], np.ndarray]:
    """Return the different texts of a column, None for missing ones, and the number of each row's text."""
    if pa.types.is_null(column.type):
        return [], np.full(len(column), -1)
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    rows = encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    texts: list[str | None] = []
    for value in encoded.dictionary.to_pylist():
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # as it would stand in a file
        text = str(value).strip()
        is_missing = value is None or text in MISSING_WORDS or text in missing
        texts.append(None if is_missing else text)
    return texts, rows


def codes_of(column: Any, code: ColumnCode, where: str) -> np.ndarray:
    """Return the column of each row's category, ``(rows,)`` int64, -1 for rows of no known category."""
    texts, rows = texts_of(column := as_arrow(column, code.name, where), code.missing)
    missing = code.width - 1 if code.may_miss else -1
    places: dict[str | None, int] = {level: place for place, level in enumerate(code.levels)}
    if kind_of(column.type) == NUMBER:  # rows of a file of text that have no other words
        levels = zip(code.levels, map(loose_number, code.levels), strict=True)
        places = {**{t.title() if x is None else f"{x:.15g}": places[t] for t, x in levels}, **places}
    places[None] = missing
    if code.kind == HASHED:
        places |= {text: zlib.crc32(text.encode()) % LEVELS for text in texts if text is not None}
    return np.array([*(places.get(text, -1) for text in texts), missing], np.int64)[rows]


def numbers_of(column: Any, code: ColumnCode, where: str) -> np.ndarray:
    """Return a column of numbers, or of dates in days, ``(rows,)`` float64, NaN where missing."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "buif" and code.kind == NUMBER:
        return without_missing(np.ma.filled(column.astype(float, copy=False), np.nan), code, column.dtype)
    column = as_arrow(column, code.name, where)
    kind = column.type
    if pa.types.is_null(kind) or (kind_of(kind) == CATEGORY and not any(texts_of(column, code.missing)[0])):
        return np.full(len(column), np.nan)
    if kind_of(kind) != code.kind:
        raise InvalidInputError(
            f"column {code.name!r} of {where} has type {kind}, where it had {code.kind}s before; convert it."
        )
    if code.kind == DATE:
        micros = pc.cast(column, pa.timestamp("us", getattr(kind, "tz", None)), safe=False).cast(pa.int64())
        days = pc.cast(micros, pa.float64(), safe=False).to_numpy(zero_copy_only=False) / 86_400e6
        return np.asarray(days)
    numbers = np.asarray(pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    is_single = pa.types.is_float32(kind)
    return without_missing(numbers, code, np.dtype(np.float32 if is_single else np.float64))


def without_missing(values: np.ndarray, code: ColumnCode, dtype: np.dtype) -> np.ndarray:
    """Return numbers with NaN in place of the codes of missing ones; ``dtype`` is the type of the source."""
    if not code.missing:
        return values
    numbers = np.array([number for text in code.missing if (number := loose_number(text)) is not None])
    if dtype.kind == "f":  # as the source holds them
        numbers = numbers.astype(dtype)
    return np.where(np.isin(values, numbers), values.dtype.type(np.nan), values)


# Reading

_LIKE_NUMBER = re.compile(
    r"(?i)(?=\D*\d)([^a-z]|jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sept?(ember)?"
    r"|oct(ober)?|nov(ember)?|dec(ember)?|\d[te][+-]?\d|\dz)+"
)
"""Text with a digit and no letters but of months: a number or date, or a code."""


def open_features(
    source: object, *, id: Column | None = None, columns: Columns | None = None, drop: Columns | None = None
) -> Features:
    """Open a feature matrix for reading by rows.

    Parameters
    ----------
    source
        An array ``(n_objects, n_features)`` (numpy, memory map, Zarr, nested lists, a sparse matrix of
        scipy), a pandas, polars or pyarrow table or any object with ``__arrow_c_stream__``, a dask array or
        dataframe, or a path to ``.npy``, ``.zarr``, ``.parquet``, ``.csv`` or ``.tsv`` (or these compressed),
        a folder of files, in the order of the numbers in their names, a pattern such as ``data/*.parquet``,
        or a list of paths. The same rules apply to labels.
    id, columns, drop
        The column that identifies the objects, and those that are features: see `bigcons.select`.

    Numbers and booleans are used unchanged, dates as days; columns of text are one-hot, or hashed if they
    have many values: see `FeatureEncoding`. Text with values of digits and no letters may be numbers, dates
    or codes and is refused, unless `select` names it as ``categorical``; Arrow finds dates in CSV.

    Cost: only the head of the source is read, except that a first pass reads the columns of text, and one of
    a source whose number of rows is unknown (CSV, dask dataframe). Memory: a block, plus what the source
    decodes at once (`Features.held_bytes`): two Zarr chunks, a dask partition, two pages of every Parquet
    column (usually 2.5 MB each), 64 MB of CSV; an Arrow stream is kept in memory.

    Raises StoreNotFoundError for a path that does not exist, and InvalidInputError for types that are no
    features, and for columns that look like ids, because all values in the first rows, of 200 or more, are
    different whole numbers or texts, unless ``columns`` names the features. Missing and infinite values
    raise InvalidInputError, with row and column, when they are read, but missing ones in `bigcons.generate`,
    which fills them.
    """
    if isinstance(source, Features):
        return source
    choice = select(source, id=id, columns=columns, drop=drop)
    plain = {name: str(v.tolist() if hasattr(v, "tolist") else v) for name, v in options_of(choice).items()}
    features = Features(open_source(choice, "features"), options=plain)
    if origin(choice) != IN_MEMORY:
        features.version = provenance_of_files(choice, {}).get("version")
    return features


def encoded_features(source: object, encoding: FeatureEncoding, id: Column | None = None) -> Features:
    """Open the features of new rows, encoded like the rows from which the encoding was learned."""
    if isinstance(source, Features):
        return source
    return Features(encoding.table_of(source, id), encoding=encoding)


def _code_of_missing(numbers: np.ndarray) -> float | None:
    """Return the lowest or highest number if it may stand for a missing value, else None.

    Such a code is the only negative number, or all nines; it is repeated; and it is more than half the range
    away from the others, of which there are three or more.
    """
    values = np.unique(numbers)
    for end, neighbor in (values[:2], values[:-3:-1]) if len(values) > 3 else ():
        is_code = end < 0 <= neighbor or set(f"{abs(end):.0f}") == {"9"}
        if is_code and 2 * abs(end - neighbor) > values[-1] - values[0] and (numbers == end).sum() > 1:
            return float(end)
    return None


class Features:
    """A feature matrix ``(n_objects, n_features)`` read by rows; created by `open_features`.

    Attributes
    ----------
    n_objects, n_features
        Its shape.
    names
        Names of the columns; ``f0``, ``f1``, ... where the source has none.
    encoding
        What each column of the source becomes; its numbers are not scaled yet.
    dtype
        float32 if it represents the values of an array exactly, else float64.
    is_sparse
        Whether the source is sparse, and so are its rows if asked for.
    chunk_rows, sparse_rows
        Rows of a block by default, and of a block of sparse rows.
    row_values
        About how many numbers a row takes in memory: of sparse rows, twice those that are stored.
    held_bytes
        About how much the source decodes at a time, in addition to the block, and its ids in memory.
    where
        Name of the source in messages: its path, or "features".
    ids
        What identifies the objects, if that is known.
    version
        What tells whether the files have changed that they are read from; None in memory.
    options
        How it was chosen and read, as far as that was given: parameters of `select`, as text.
    """

    def __init__(
        self, table: Source, *, options: dict[str, str] | None = None, encoding: FeatureEncoding | None = None
    ) -> None:
        self.table = table
        self.options: dict[str, str] = dict(options or {})
        self.version: str | None = None
        self.where: str = table.where
        self.ids: Ids | None = table.ids
        self.is_sparse: bool = table.is_sparse
        if encoding is None:
            codes = self._codes()
            if table.dtype is None:
                self._check_head(codes)
            id_name = None if table.ids is None or table.ids.facts.is_index else table.ids.facts.name
            encoding = FeatureEncoding(tuple(codes), table.names is not None, None, id_name)
        table.most_rows(BLOCK_ROWS, at_most=0)  # counts them
        if not table.n_rows:
            raise InvalidInputError(f"{self.where} has no rows; features need at least one.")
        self.encoding: FeatureEncoding = encoding
        self.names: list[str] = encoding.names
        self.n_objects: int = table.n_rows
        self.n_features: int = len(self.names)
        self.row_values: int = self.n_features
        if self.is_sparse:
            self.row_values = min(self.n_features, 1 + int(2 * table.row_bytes / 8))
        self.chunk_rows: int = 1 << max(VALUES_TOGETHER // self.n_features, 1).bit_length() - 1
        self.sparse_rows: int = min(1 << max(VALUES_TOGETHER // self.row_values, 1).bit_length() - 1, 1 << 12)
        self.held_bytes: int = table.held_bytes + (0 if table.ids is None else table.ids.held_bytes)
        exact = table.dtype is not None and np.can_cast(table.dtype, np.float32)
        self.dtype: np.dtype = np.dtype(np.float32 if exact else np.float64)

    def _codes(self) -> list[ColumnCode]:
        """Return the codes of the columns, those of text columns after a pass over these."""
        table, codes, refusals = self.table, [], []
        names = table.names or [f"f{c}" for c in table.positions]
        types: Sequence[Any] = table.column_types() or [table.dtype] * len(names)
        for c, (name, column_type) in enumerate(zip(names, types, strict=True)):
            kind = kind_of(column_type)
            if kind is None:
                refusals.append(f"{name!r} ({column_type})")
            elif c in table.categorical and kind != DATE:
                kind = CATEGORY
            codes.append(ColumnCode(name, kind or NUMBER, missing=table.rule.more_words))
        if not names or len(set(names)) < len(names):
            repeats = [name for name in names if names.count(name) > 1]
            fault = f"more than one column {repeats[0]!r}" if repeats else "no columns"
            raise InvalidInputError(f"{self.where} has {fault}; give each its own name, and at least one.")
        if refusals:
            raise InvalidInputError(
                f"{self.where} has columns that cannot serve as features, {', '.join(refusals[:20])}; leave "
                "them out by drop= (--drop), or convert them, lists to columns."
            )
        if texts := [c for c, code in enumerate(codes) if code.kind == CATEGORY]:
            self._learn_texts(codes, texts)
        return codes

    def _learn_texts(self, codes: list[ColumnCode], places: list[int]) -> None:
        """Complete the codes of columns of text by a pass over these; refuse text that may be numbers."""
        table = self.table
        oddities: dict[int, list[str]] = {}
        levels: dict[int, set[str]] = {c: set() for c in places}
        with_gaps: set[int] = set()
        with progress("scan columns", table.n_rows or 0) as listener:
            for rows in table.batches(BLOCK_ROWS, columns=places):
                for c, raw in zip(places, rows if isinstance(rows, list) else rows.T, strict=True):
                    column = as_arrow(raw, codes[c].name, self.where)
                    texts, text_codes = texts_of(column, codes[c].missing)
                    labels = {texts[code] if code >= 0 else None for code in np.unique(text_codes).tolist()}
                    words = {text for text in labels if text is not None}
                    if len(words) < len(labels):
                        with_gaps.add(c)
                    if c not in table.categorical and not pa.types.is_dictionary(column.type):
                        for text in sorted(filter(_LIKE_NUMBER.fullmatch, words))[:1]:
                            oddities[c] = [text]
                    if len(levels[c]) <= LEVELS:
                        levels[c] |= words
                listener.advance(len(column))
        if oddities:
            for c, samples in oddities.items():
                samples += [word for word in sorted(levels[c]) if not _LIKE_NUMBER.fullmatch(word)][:1]
            pairs = {c: " beside ".join(map(repr, samples)) for c, samples in oddities.items()}
            examples = "; ".join(f"{codes[c].name!r}, such as {samples}" for c, samples in pairs.items())
            raise InvalidInputError(
                f"{self.where} has text that may be numbers or dates in column {examples}; convert it, "
                "name in decimal= of bigcons.select (--decimal) what stands before fractions, the column "
                "in categorical= (--categorical) or what is missing in missing= (--missing), or leave "
                "out a row of names, units or totals."
            )
        for c, words in levels.items():
            kind = HASHED if len(words) > LEVELS else CATEGORY if words else NUMBER
            values = tuple(sorted(words)) if kind == CATEGORY else ()
            codes[c] = codes[c]._replace(kind=kind, levels=values, may_miss=bool(words) and c in with_gaps)

    def _check_head(self, codes: Sequence[ColumnCode]) -> None:
        """Refuse columns with a different whole number or text in each of many rows, unless they were chosen.

        Warns of numbers that may stand for missing values, and of a last row that is the sum of all others,
        before there is any work.
        """
        like_ids: list[str] = []
        missing: dict[str, float] = {}
        rows = min(max(VALUES_TOGETHER // (8 * len(codes)), 1024), BLOCK_ROWS)
        batches = self.table.batches(rows)
        batch: Rows = next(batches, [])
        numeric = [c for c, code in enumerate(codes) if code.kind == NUMBER and c < len(batch)]
        n_read = len(batch[0]) if numeric else 0
        may_be_all = n_read >= 20 and self.table.lengths in ([None], [n_read])  # else no more need be read
        if may_be_all and next(batches, None) is None:
            values = np.column_stack([numbers_of(batch[c], codes[c], self.where) for c in numeric])
            if values[-1].any() and np.allclose(values[-1], np.nansum(values[:-1], axis=0)):
                told = f"{self.where} has the sum of all other rows in its last one; leave out totals."
                warn_user(told, SuspiciousFeaturesWarning)
        for c, column in enumerate(batch):
            if len(column) < 200 or c in self.table.categorical or codes[c].kind == DATE:
                continue
            values = as_arrow(column, codes[c].name, self.where)
            if codes[c].kind == NUMBER:
                numbers = numbers_of(values, codes[c], self.where)
                if (number := _code_of_missing(numbers[np.isfinite(numbers)])) is not None:
                    missing[codes[c].name] = number
                if not ((np.rint(numbers) == numbers) & np.isfinite(numbers)).all():
                    continue
            if values.null_count == 0 and len(values.unique()) == len(values):
                like_ids.append(codes[c].name)
        if like_ids and "columns" not in self.options:
            name = like_ids[0]
            as_id = f"pass id={name!r} (--id {name}), " if self.table.ids is None else ""
            raise InvalidInputError(
                f"{self.where} has different whole numbers or texts in all rows of column {quote(like_ids)}; "
                f"{as_id}leave it out by drop= (--drop), or name all features in columns= (--columns)."
            )
        if missing:
            texts = ", ".join(dict.fromkeys(f"{number:.15g}" for number in missing.values()))
            warn_user(
                f"{self.where} has {texts} far from all other values of column {quote(list(missing))}, which "
                "then hardly count, and its rows may become a cluster; if it stands for a missing value, "
                f"pass missing=[{texts}] of bigcons.select (--missing {texts.replace(' ', '')}).",
                SuspiciousFeaturesWarning,
            )

    def __repr__(self) -> str:
        return f"Features({self.where!r}, n_objects={self.n_objects}, n_features={self.n_features})"

    def blocks(self, rows: int | None = None) -> list[Block]:
        """Return blocks of ``rows`` rows, by default ``chunk_rows``."""
        return row_blocks(self.n_objects, rows or self.chunk_rows)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return rows ``start`` to ``stop``, ``(stop - start, n_features)`` of ``dtype``, all finite.

        Reading from the middle of a CSV file parses everything before it; `iterate` reads any source once.
        """
        check_rows(start, stop, self.n_objects)
        nothing = np.empty((0, self.n_features), self.dtype)
        return next((values for _, values in self._stream([Block(0, start, stop)], gaps=False)), nothing)

    def iterate(
        self, rows: int | None = None, *, gaps: bool = False, sparse: bool = False
    ) -> Iterator[tuple[Block, Any]]:
        """Yield every block with its values, in one pass over the source.

        With ``gaps``, missing values are NaN, else refused; with ``sparse``, rows of a sparse source are CSR.
        """
        if sparse and self.is_sparse:
            yield from self._sparse_blocks(self.blocks(rows or self.sparse_rows))
        else:
            yield from self._stream(self.blocks(rows), gaps=gaps)

    def _stream(self, blocks: list[Block], *, gaps: bool) -> Iterator[tuple[Block, np.ndarray]]:
        """Yield adjacent blocks with their values, assembled from the batches of the table."""
        if self.is_sparse:
            yield from ((block, values.toarray()) for block, values in self._sparse_blocks(blocks))
            return
        batches = self.table.batches(self.chunk_rows, blocks[0].start, blocks[-1].stop)
        numbers = map(partial(self.encoding.numbers, dtype=self.dtype, where=self.where), batches)
        for block, values in zip(blocks, rechunk(numbers, max(blocks[0].n_rows, 1)), strict=False):
            is_refused = np.isinf(values) if gaps else ~np.isfinite(values)
            if is_refused.any():
                row, column = np.unravel_index(int(np.argmax(is_refused)), is_refused.shape)
                raise self._not_finite(values[row, column], block.start + int(row), int(column))
            yield block, values

    def _sparse_blocks(self, blocks: list[Block]) -> Iterator[tuple[Block, Any]]:
        """Yield blocks in compressed sparse rows, of which no value may be missing."""
        for block in blocks:
            for rows in self.table.batches(block.n_rows, block.start, block.stop):
                if not (finite := np.isfinite(rows.data)).all():
                    entry = int(finite.argmin())
                    row = int(np.searchsorted(rows.indptr, entry, side="right")) - 1
                    raise self._not_finite(rows.data[entry], block.start + row, int(rows.indices[entry]))
                yield block, rows

    def _not_finite(self, value: Any, row: int, column: int) -> InvalidInputError:
        return InvalidInputError(
            f"{self.where} has {value} at row {row} (from 0), column {self.names[column]!r}; features must "
            "be finite: replace what is infinite, and fill what is missing, first."
        )
