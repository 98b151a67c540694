"""Features as numbers: what each column of a table becomes, learned once and used again for new rows.

Every column of a table counts the same: once scaled, the mean squared distance of two objects in it is 2.

- Numbers, booleans (0 and 1), dates and durations (in days) are scaled to mean 0 and variance 1.
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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bigcons.errors import InvalidInputError, first_line, shown
from bigcons.io.batches import Rows, Source
from bigcons.io.columns import MISSING_WORDS, Column, loose_number, select
from bigcons.io.sources import is_vector, open_source

LEVELS = 64
"""Columns that a column of text has at most. Each costs as much as a number."""

NUMBER, BOOLEAN, DATE, DURATION, CATEGORY, HASHED = (
    *("number", "boolean", "date", "duration"),
    *("category", "hashed"),
)
_KINDS = (NUMBER, BOOLEAN, DATE, DURATION, CATEGORY, HASHED)
_TEXTS = (CATEGORY, HASHED)


class ColumnCode(NamedTuple):
    """What a column of a table becomes."""

    name: str
    kind: str
    """number, boolean, date, duration, category or hashed."""
    levels: tuple[str, ...] = ()
    """The values of a category, ascending."""
    may_miss: bool = False
    """Whether text has a column for what is missing; of numbers, see `Scaling`."""
    logged: bool = False
    """Whether numbers are taken as ``sign(x) log(1 + |x|)``."""
    missing: tuple[str, ...] = ()
    """What is missing besides what is so by default, as text."""

    @property
    def width(self) -> int:
        """Number of columns that it becomes, but that of missing numbers."""
        if self.kind not in _TEXTS:
            return 1
        return (LEVELS if self.kind == HASHED else len(self.levels)) + self.may_miss

    @property
    def names(self) -> list[str]:
        """Names of these columns."""
        if self.kind not in _TEXTS:
            return [f"log {self.name}" if self.logged else self.name]
        levels = [f"#{b}" for b in range(LEVELS)] if self.kind == HASHED else self.levels
        return [f"{self.name}={level}" for level in levels] + [f"{self.name} is missing"] * self.may_miss

    def in_words(self) -> str:
        """Return what the column becomes, for people."""
        if self.kind == CATEGORY:
            return f"{len(self.levels)} values, one-hot"
        if self.kind == HASHED:
            return f"more than {LEVELS} values, hashed into {LEVELS} columns"
        return f"{self.kind}, sign(x) log(1 + |x|)" if self.logged else self.kind


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
    gaps: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    heights: np.ndarray = field(default_factory=lambda: np.empty(0))
    shares: np.ndarray = field(default_factory=lambda: np.empty(0))
    checksum: int = 0

    @property
    def width(self) -> int:
        """Number of columns that are clustered."""
        return len(self.kept) + len(self.gaps)

    def apply(self, values: Any) -> Any:
        """Return ``(rows, width)`` float32, C-contiguous; sparse rows stay so if nothing is subtracted."""
        if not isinstance(values, np.ndarray) and self.mean.any():
            values = values.toarray()
        if not isinstance(values, np.ndarray):
            points = values[:, self.kept]
            points.data = (points.data / self.scale[points.indices]).astype(np.float32)
            points.sort_indices()
            return points
        scaled = values[:, self.kept] - self.mean
        scaled /= self.scale
        return self._with_gaps(values, scaled, 0.0, np.float32)

    def filled(self, values: np.ndarray) -> np.ndarray:
        """Return ``(rows, width)`` float64, not scaled, with means where values are missing."""
        return self._with_gaps(values, values[:, self.kept].astype(np.float64), self.mean, np.float64)

    def _with_gaps(self, values: np.ndarray, known: np.ndarray, filling: Any, dtype: Any) -> np.ndarray:
        missing = np.isnan(known)
        if missing.any():
            known = np.where(missing, filling, known)
        if len(self.gaps):
            gaps = (np.isnan(values[:, self.gaps]) - self.shares) * self.heights
            known = np.concatenate([known, gaps], axis=1)
        return np.asarray(known.astype(dtype, order="C"))


@dataclass(frozen=True)
class FeatureEncoding:
    """What each column of a table of features becomes; the same for the rows it was learned of and new ones.

    Attributes
    ----------
    columns
        What each column of the table becomes.
    is_named
        Whether the table has names of its columns, by which new rows are read in any order of columns.
    scaling
        How the columns of numbers are scaled; None until they have been measured.
    id_name
        The column that identifies the objects, which is no feature.

    Examples
    --------
    >>> import bigcons as bc, pyarrow as pa
    >>> table = pa.table({"city": ["Oslo", "Rome", "Rome", "Oslo"], "age": [30.0, None, 50.0, 41.5]})
    >>> ensemble = bc.generate.kmeans(table, n_partitions=3, n_clusters=2, sample=1, random_state=0)
    >>> ensemble.generator.encoding
    FeatureEncoding(2 columns as 4: city 2 values, one-hot; age number, missing in 25.0%)
    >>> ensemble.generator.encoding.transform(table).shape
    (4, 4)
    """

    columns: tuple[ColumnCode, ...]
    is_named: bool = True
    scaling: Scaling | None = None
    id_name: str | None = None

    @property
    def names(self) -> list[str]:
        """Names of the columns of numbers."""
        return [name for column in self.columns for name in column.names]

    @property
    def width(self) -> int:
        """Number of the columns of numbers, but those of missing numbers."""
        return sum(column.width for column in self.columns)

    @property
    def starts(self) -> np.ndarray:
        """The first column of numbers of each column, and their number, ``(n_columns + 1,)`` int64."""
        return np.cumsum([0, *(column.width for column in self.columns)])

    @property
    def is_plain(self) -> bool:
        """Whether all columns are numbers, each of which becomes one."""
        return all(column.kind not in _TEXTS for column in self.columns)

    def with_scaling(self, scaling: Scaling) -> FeatureEncoding:
        """Return the encoding once its numbers have been measured."""
        return replace(self, scaling=scaling)

    def transform(self, features: Any) -> np.ndarray:
        """Return the rows of a table as the float32 values that are clustered, ``(n_objects, width)``.

        The table has the columns of the first one, in any order if they have names; others are not read.
        """
        assert self.scaling is not None  # noqa: S101 - a published encoding has been measured
        table = self.table_of(features)
        blocks = [
            self.scaling.apply(self.numbers(rows, np.dtype(float), table.where))
            for rows in table.batches(4096)
        ]
        return np.concatenate(
            [block if isinstance(block, np.ndarray) else block.toarray() for block in blocks]
        )

    def table_of(self, features: Any, id: Column | None = None) -> Source:
        """Return the table of new rows, with the columns that the encoding was learned of, in their order.

        A table with names needs all of them, in any order; others are not read. The ids are in the column
        ``id``, by default in that of the same name as those of the first objects, if the table has it.
        """
        missing = self.columns[0].missing
        alike = list(missing) if missing and all(c.missing == missing for c in self.columns) else None
        opened = open_source(select(features, missing=alike), "features", with_ids=False)
        wanted = None
        if self.is_named and opened.names is not None:
            wanted = [column.name for column in self.columns]
            absent = [name for name in wanted if name not in (opened.names or [])]
            if absent:
                raise InvalidInputError(
                    f"{opened.where} has no column {shown(absent)}; give the columns that the ensemble was "
                    "made of."
                )
        table = open_source(select(opened, id=id, columns=wanted), "features", usual_id=self.id_name)
        if table.n_columns != len(self.columns):
            raise InvalidInputError(
                f"{table.where} has {table.n_columns} columns but the ensemble was made of "
                f"{len(self.columns)}; give the same ones in the same order."
            )
        return table

    def numbers(self, rows: Rows, dtype: np.dtype, where: str = "features") -> np.ndarray:
        """Return a block of a table as numbers ``(rows, width)`` of ``dtype``, NaN where one is missing."""
        if isinstance(rows, np.ma.MaskedArray):
            rows = np.ma.filled(rows.astype(np.float64), np.nan)  # masked values are missing
        if not isinstance(rows, list) and not self.is_plain:
            rows = list(rows.T)
        if not isinstance(rows, list):
            values = rows.astype(dtype, copy=any(code.missing for code in self.columns))
            for c, code in enumerate(self.columns):
                if code.missing:
                    values[:, c] = without_missing(values[:, c], code, rows.dtype)
            return values
        values = np.empty((len(rows[0]), self.width), dtype)
        for column, code, start in zip(rows, self.columns, self.starts, strict=False):
            if code.kind in _TEXTS:
                codes = codes_of(column, code, where)
                values[:, start : start + code.width] = codes[:, None] == np.arange(code.width)
            else:
                found = numbers_of(column, code, where)
                values[:, start] = np.sign(found) * np.log1p(np.abs(found)) if code.logged else found
        return values

    def to_dict(self) -> dict[str, Any]:
        """Return the encoding as JSON values; the arrays of the scaling as lists."""
        scaling = None
        if self.scaling is not None:
            scaling = {name: getattr(v, "tolist", lambda v=v: v)() for name, v in vars(self.scaling).items()}
        columns = [column._asdict() for column in self.columns]
        return {"columns": columns, "is_named": self.is_named, "scaling": scaling, "id_name": self.id_name}

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> FeatureEncoding:
        """Return the encoding of `to_dict`; raises KeyError, TypeError or ValueError for any other."""
        columns = []
        for entry in entries["columns"]:
            levels = tuple(str(level) for level in entry["levels"])
            code = ColumnCode(
                *(str(entry["name"]), str(entry["kind"]), levels),
                *(bool(entry["may_miss"]), bool(entry["logged"])),
                tuple(str(text) for text in entry.get("missing", ())),
            )
            if code.kind not in _KINDS or len(levels) > LEVELS or not code.width:
                raise ValueError(f"the kind of column {code.name!r}")
            columns.append(code)
        id_name = None if entries["id_name"] is None else str(entries["id_name"])
        encoding = cls(tuple(columns), bool(entries["is_named"]), None, id_name)
        if (given := entries["scaling"]) is None:
            return encoding
        kept, gaps = (np.array(given[name], np.int64) for name in ("kept", "gaps"))
        others = [np.array(given[name], np.float64) for name in ("mean", "scale", "heights", "shares")]
        lengths = [len(values) for values in others]
        positions = np.concatenate([kept, gaps])
        is_within = positions.size and positions.min() >= 0 and positions.max() < encoding.width
        is_sound = all(np.isfinite(values).all() for values in others) and (others[1] > 0).all()
        if lengths != [len(kept), len(kept), len(gaps), len(gaps)] or not is_within or not is_sound:
            raise ValueError("the scaling")
        mean, scale, heights, shares = others
        return encoding.with_scaling(
            Scaling(kept, mean, scale, gaps, heights, shares, int(given["checksum"]))
        )

    def columns_of_numbers(self) -> list[int]:
        """Return the column of each number that is clustered."""
        assert self.scaling is not None  # noqa: S101 - asked for once they are known
        positions = np.concatenate([self.scaling.kept, self.scaling.gaps])
        found: list[int] = (np.searchsorted(self.starts, positions, side="right") - 1).tolist()
        return found

    def column_names(self) -> list[str]:
        """Return the names of the columns that are clustered."""
        assert self.scaling is not None  # noqa: S101 - asked for once they are known
        names = self.names
        gaps = [f"{names[c]} is missing" for c in self.scaling.gaps]
        return [names[c] for c in self.scaling.kept] + gaps

    def __repr__(self) -> str:
        width = self.width if self.scaling is None else self.scaling.width
        shown = "; ".join(self.lines()[:8]) + ("; ..." if len(self.columns) > 8 else "")
        return f"FeatureEncoding({len(self.columns)} columns as {width}: {shown})"

    def lines(self) -> list[str]:
        """Return a line for each column: what it becomes, and how much of it is missing."""
        share, constant = {}, self.constant()
        if self.scaling is not None:
            share = dict(zip(self.scaling.gaps.tolist(), self.scaling.shares.tolist(), strict=True))
        lines = []
        for column, start in zip(self.columns, self.starts.tolist(), strict=False):
            line = f"{column.name} {column.in_words()}"
            if start in share:
                line += f", missing in {share[start]:.1%}"
            if column.kind in _TEXTS and column.may_miss:
                line += ", missing in some"
            if column.name in constant:
                line += ", constant: left out"
            lines.append(line)
        return lines

    def constant(self) -> list[str]:
        """Return the names of the columns that are left out: all their values are alike, or missing."""
        if self.scaling is None:
            return []
        kept = {*self.scaling.kept.tolist(), *self.scaling.gaps.tolist()}
        found = zip(self.columns, self.starts.tolist(), strict=False)
        return [c.name for c, start in found if kept.isdisjoint(range(start, start + c.width))]

    def summary(self) -> str:
        """Return one line that tells how many columns are of which kind, and names some of each."""
        counts = {kind: [c for c in self.columns if c.kind == kind] for kind in _KINDS}
        if len(counts[NUMBER]) == len(self.columns):
            return f"{len(self.columns):,} column{'s' if len(self.columns) > 1 else ''} of numbers"
        plural = {BOOLEAN: "booleans", CATEGORY: "categories", HASHED: "hashed"}
        parts = []
        for kind, found in counts.items():
            if not found:
                continue
            names = f" ({', '.join(c.name for c in found[:8])}{', ...' if len(found) > 8 else ''})"
            word = kind if len(found) == 1 else plural.get(kind, f"{kind}s")
            parts.append(f"{len(found):,} {word}{names}")
        return f"{len(self.columns):,} column{'s' if len(self.columns) > 1 else ''}: {', '.join(parts)}"


# What a column is


def kind_of(kind: pa.DataType) -> str | None:
    """Return what a column of an Arrow type becomes, CATEGORY for any text; None if it is no feature."""
    types = pa.types
    if types.is_dictionary(kind) or is_text(kind):
        return CATEGORY
    if types.is_boolean(kind):
        return BOOLEAN
    if types.is_timestamp(kind) or types.is_date(kind):
        return DATE
    if types.is_duration(kind) or types.is_time(kind):
        return DURATION
    numeric = (types.is_integer, types.is_floating, types.is_decimal, types.is_null)
    return NUMBER if any(test(kind) for test in numeric) or is_vector(kind) else None


def is_text(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is text."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def as_arrow(column: Any, kind: pa.DataType | None, name: str, where: str) -> Any:
    """Return a column as one Arrow array, of the type that the table declares, if any."""
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks()
    if not isinstance(column, np.ndarray):
        return column
    try:
        return pa.array(column, kind, from_pandas=True)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"column {name!r} of {where} has mixed types ({first_line(error)}); convert it to one type."
        ) from None


def texts_of(column: Any, missing: tuple[str, ...]) -> tuple[list[str | None], np.ndarray]:
    """Return the different texts of a column, None for missing ones, and which each row has, -1 of none."""
    if pa.types.is_null(column.type):
        return [], np.full(len(column), -1)
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    rows = encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    return [_as_text(value, missing) for value in encoded.dictionary.to_pylist()], rows


def _as_text(value: Any, missing: tuple[str, ...]) -> str | None:
    """Return a value as it would stand in a file, None if it means that there is none."""
    if isinstance(value, float) and value == int(value if np.isfinite(value) else 0):
        value = int(value)
    text = str(value).strip()
    return None if value is None or text in MISSING_WORDS or text in missing else text


def codes_of(column: Any, code: ColumnCode, where: str) -> np.ndarray:
    """Return which column of a category each row has, ``(rows,)`` int64, -1 of none."""
    texts, rows = texts_of(as_arrow(column, None, code.name, where), code.missing)
    missing = code.width - 1 if code.may_miss else -1
    if code.kind == HASHED:
        found = [missing if text is None else bucket_of(text) for text in texts]
    else:
        places: dict[str | None, int] = {level: place for place, level in enumerate(code.levels)}
        places[None] = missing
        found = [places.get(text, -1) for text in texts]
    return np.array([*found, missing], np.int64)[rows]


def bucket_of(text: str) -> int:
    """Return the column that a text is hashed into."""
    return zlib.crc32(text.encode()) % LEVELS


def numbers_of(column: Any, code: ColumnCode, where: str) -> np.ndarray:
    """Return a column of numbers, booleans, dates or durations ``(rows,)`` float64, NaN where missing."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "buif" and code.kind in (NUMBER, BOOLEAN):
        return without_missing(column.astype(np.float64, copy=False), code, column.dtype)
    column = as_arrow(column, None, code.name, where)
    kind = column.type
    if is_text(kind) or pa.types.is_dictionary(kind):
        texts, rows = texts_of(column, code.missing)
        column = pa.array([*texts, None], pa.large_string()).take(pa.array(rows % (len(texts) + 1)))
        if column.null_count == len(column):
            return np.full(len(column), np.nan)
        if code.kind == NUMBER and code.missing:
            with suppress(pa.ArrowException):
                return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False))
        if code.kind != DATE:
            raise InvalidInputError(
                f"column {code.name!r} of {where} has text, such as {column.drop_null()[0].as_py()!r}, where "
                f"it had {code.kind}s before; convert it to one type."
            )
        try:
            has_zone = re.search(r":.*(Z|[+-]\d\d:?\d\d)$", column.drop_null()[0].as_py())
            column = column.cast(pa.timestamp("us", "UTC" if has_zone else None))
        except pa.ArrowException as error:
            raise InvalidInputError(
                f"column {code.name!r} of {where} has text that is no date ({first_line(error)}); write "
                "dates as 2024-12-31."
            ) from None
        kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    is_date, is_time = pa.types.is_timestamp(kind) or pa.types.is_date(kind), pa.types.is_time(kind)
    if is_date != (code.kind == DATE) or (code.kind == DURATION) != (is_time or pa.types.is_duration(kind)):
        raise InvalidInputError(
            f"column {code.name!r} of {where} has type {kind}, but it is a {code.kind}; convert it."
        )
    if code.kind not in (DATE, DURATION):
        found = np.asarray(pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False))
        is_single = pa.types.is_float32(kind)
        return without_missing(found, code, np.dtype(np.float32 if is_single else np.float64))
    unit = pa.timestamp("us", getattr(kind, "tz", None)) if is_date else pa.duration("us")
    micros = pc.cast(column, pa.time64("us") if is_time else unit, safe=False).cast(pa.int64())
    days = pc.cast(micros, pa.float64(), safe=False).to_numpy(zero_copy_only=False) / 86_400e6
    return np.asarray(days)


def without_missing(values: np.ndarray, code: ColumnCode, dtype: np.dtype) -> np.ndarray:
    """Return numbers with NaN where they are named as missing; ``dtype`` is that of the source."""
    if not code.missing:
        return values
    numbers = np.array([number for text in code.missing if (number := loose_number(text)) is not None])
    if dtype.kind == "f":  # as the source holds them
        numbers = numbers.astype(dtype)
    return np.where(np.isin(values, numbers), values.dtype.type(np.nan), values)


# Columns whose values all differ


def refuse_columns(problems: Mapping[str, Sequence[tuple[str, str]]], where: str) -> None:
    """Raise InvalidInputError if there are problems, all of them in one message.

    ``problems`` are names of columns and what they are, by what to do about them.
    """
    n_columns = sum(map(len, problems.values()))
    if n_columns == 1:
        ((remedy, ((name, what),)),) = problems.items()
        raise InvalidInputError(f"column {name!r} of {where} {what}; {remedy}.")
    told = []
    for remedy, found in problems.items():
        shown = "; ".join(f"{name!r} {what}" for name, what in found[:20])
        more = f"; and {len(found) - 20} more" if len(found) > 20 else ""
        told.append(f"{shown}{more}; {remedy}" if len(problems) == 1 else f"{shown}{more} ({remedy})")
    if told:
        raise InvalidInputError(f"{where} has {n_columns} columns that are no features: {'; '.join(told)}.")
