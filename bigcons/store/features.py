"""Features: the rows of any table as numbers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pyarrow as pa

from bigcons.disk.commit import is_store
from bigcons.errors import InvalidInputError, UnknownColumnError
from bigcons.io.batches import Rows, Source
from bigcons.io.columns import Column, Columns, choices_of, given_for, loose_number, select
from bigcons.io.ids import Ids
from bigcons.io.sources import open_source
from bigcons.memory import BLOCK_ROWS, VALUES_TOGETHER, Block, row_blocks
from bigcons.progress import progress
from bigcons.store.encoding import (
    BOOLEAN,
    CATEGORY,
    DATE,
    HASHED,
    LEVELS,
    NUMBER,
    ColumnCode,
    FeatureEncoding,
    as_arrow,
    kind_of,
    numbers_of,
    refuse_columns,
    texts_of,
)
from bigcons.store.store import Objects
from bigcons.validation import check_rows

_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?\d\d)?)?")
_LIKE_NUMBER = re.compile(
    r"(?i)(?=\D*\d)([^a-z]|jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sept?(ember)?"
    r"|oct(ober)?|nov(ember)?|dec(ember)?|\de[+-]?\d)+"
)
"""Text with a digit and no letters but of months: a number or date in another form, or a code."""


def open_features(
    source: object,
    *,
    id: Column | None = None,
    columns: Columns | None = None,
    drop: Columns | None = None,
    log: Columns | None = None,
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
    log
        Columns of numbers with heavy tails, to be taken as ``sign(x) log(1 + |x|)``; names, patterns or
        positions.

    Numbers and booleans are used unchanged, dates and durations as days; lists of floats, as those of
    embeddings are, become a column for each number; columns of text are one-hot, or hashed if they have many
    values: see `FeatureEncoding`. Text of which each value is an ISO date is a date, as in a CSV file. Text
    with values of digits and no letters may be numbers, dates or codes and is refused, unless `select` names
    it as ``categorical``, or all other values as ``missing``.

    Cost: only the head of the source is read, except that a first pass reads a source with text, and all of a
    source whose number of rows is unknown (CSV, dask dataframe). Memory: a block, plus what the source
    decodes at once (`Features.held_bytes`): two Zarr chunks, a dask partition, two pages of every Parquet
    column (usually 2.5 MB each), 64 MB of CSV; an Arrow stream is kept in memory.

    Raises StoreNotFoundError for a path that does not exist, and InvalidInputError, naming all such columns
    before any row is read, for types that are no features; after a first pass, for infinite values and for
    columns that look like ids, because all values in the first 65,536 rows, of 200 or more, are different
    whole numbers or texts, unless ``columns`` names the features. Missing and infinite values
    raise InvalidInputError, with row and column, when they are read, but missing ones in `bigcons.generate`,
    which fills them.
    """
    if isinstance(source, Features):
        if id is not None or columns is not None or drop is not None or log is not None:
            raise InvalidInputError(
                "the features are open; choose id, columns, drop and log where they are opened."
            )
        return source
    if isinstance(source, (str, os.PathLike)) and is_store(source):
        raise InvalidInputError(
            f"{source} is a store of bigcons, not features; pass the features of the objects."
        )
    chosen = select(source, id=id, columns=columns, drop=drop)
    table = open_source(chosen, "features", check=_refuse_types)
    are_chosen = any(choice.columns is not None for choice in choices_of(chosen))
    options = {"log": log, **given_for(chosen)}
    plain = {name: getattr(given, "tolist", lambda given=given: given)() for name, given in options.items()}
    return Features(
        table,
        log=log,
        are_chosen=are_chosen,
        options={name: str(given) for name, given in plain.items() if given is not None},
    )


def encoded_features(source: object, encoding: FeatureEncoding, id: Column | None = None) -> Features:
    """Open the features of new rows, which become what those did of which the encoding was learned."""
    return (
        source if isinstance(source, Features) else Features(encoding.table_of(source, id), encoding=encoding)
    )


def _refuse_types(table: Source) -> None:
    """Raise InvalidInputError, naming all columns whose types are no features."""
    if table.dtype is not None and table.dtype.kind not in "buif":
        raise InvalidInputError(
            f"{table.where} has dtype {table.dtype}; an array of features must be real numbers: use a "
            "table for text columns."
        )
    types = table.column_types() or []
    names = table.names or [f"f{c}" for c in range(table.n_columns)]
    problems = [
        (name, f"has type {kind}") for name, kind in zip(names, types, strict=False) if kind_of(kind) is None
    ]
    remedy = "drop " + ("it" if len(problems) == 1 else "them") + " (drop=, --drop)"
    remedy += ", or convert to numbers, dates or text, a list to columns"
    if problems:
        refuse_columns({remedy: problems}, table.where)


class Features(Objects):
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
    held_bytes
        About how much the source decodes at a time, in addition to the block.
    where
        Name of the source in messages: its path, or "features".
    ids
        What identifies the objects, if that is known.
    options
        How it was chosen and read, as far as that was given: parameters of `select`, and ``log``, as text.
    """

    def __init__(
        self,
        table: Source,
        *,
        may_be_missing: bool = False,
        log: Columns | None = None,
        are_chosen: bool = False,
        options: Mapping[str, str] | None = None,
        encoding: FeatureEncoding | None = None,
    ) -> None:
        self._table = table
        self._may_be_missing = may_be_missing
        self.options: dict[str, str] = dict(options or {})
        self.where: str = table.where
        self.ids: Ids | None = table.ids
        self.id_column: Ids | None = self.ids
        self.is_sparse: bool = table.is_sparse
        if table.n_columns == 0:
            raise InvalidInputError(f"{self.where} has no columns; features need at least one.")
        _refuse_types(table)
        names = table.names or [f"f{c}" for c in range(table.n_columns)]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise InvalidInputError(
                f"{self.where} has more than one column {repeated[0]!r}; give each its own name."
            )
        self._types = table.column_types()
        if encoding is None:
            kinds = [NUMBER] * len(names) if self._types is None else [kind_of(t) for t in self._types]
            codes = [
                ColumnCode(name, kind or NUMBER, missing=table.rule_of(c).more_words)
                for c, (name, kind) in enumerate(zip(names, kinds, strict=True))
            ]
            if self._types is None and table.dtype is None:
                codes = [code._replace(kind=kind) for code, kind in zip(codes, self._kinds(), strict=True)]
            for c in table.categorical:
                if codes[c].kind in (NUMBER, BOOLEAN):
                    codes[c] = codes[c]._replace(kind=CATEGORY)
            logged = _positions(log, names, self.where)
            self._are_chosen: bool = are_chosen or table.dtype is not None
            if table.n_rows is None or any(code.kind == CATEGORY for code in codes):
                codes = self._look_at(codes)
            elif not self._are_chosen:
                self._refuse_ids(next(iter(table.batches(BLOCK_ROWS)), []), codes)
            for c in logged:
                if codes[c].kind not in (NUMBER, BOOLEAN):
                    raise InvalidInputError(
                        f"log names column {names[c]!r} of {self.where}, a {codes[c].kind}; name columns of "
                        "numbers."
                    )
                codes[c] = codes[c]._replace(logged=True)
            id_name = None if table.ids is None or table.ids.facts.is_index else table.ids.facts.name
            encoding = FeatureEncoding(tuple(codes), table.names is not None, None, id_name)
        elif table.n_rows is None:
            for _ in table.batches(1 << 16, columns=[0]):
                pass
        self.encoding: FeatureEncoding = encoding
        self.names: list[str] = encoding.names
        self.n_features: int = len(self.names)
        self.chunk_rows: int = 1 << max(VALUES_TOGETHER // self.n_features, 1).bit_length() - 1
        self.sparse_rows: int = min(1 << max(VALUES_TOGETHER // self.row_values, 1).bit_length() - 1, 1 << 12)
        if not table.n_rows:
            raise InvalidInputError(f"{self.where} has no rows; features need at least one.")
        self.n_objects: int = table.n_rows
        self.held_bytes: int = table.held_bytes
        exact = table.dtype is not None and np.can_cast(table.dtype, np.float32)
        self.dtype: np.dtype = np.dtype(np.float32 if exact else np.float64)

    def __repr__(self) -> str:
        return f"Features({self.where!r}, n_objects={self.n_objects}, n_features={self.n_features})"

    @property
    def categories(self) -> dict[str, np.ndarray]:
        """The sorted values of each column of text; none of one that is hashed."""
        found = [code for code in self.encoding.columns if code.kind in (CATEGORY, HASHED)]
        return {code.name: np.array(code.levels) for code in found}

    @property
    def row_values(self) -> int:
        """About how many numbers a row takes in memory: of sparse rows, twice those that are stored."""
        if not self.is_sparse:
            return self.n_features
        return min(self.n_features, 1 + int(2 * self._table.row_bytes / 8))

    def blocks(self, rows: int | None = None) -> list[Block]:
        """Return blocks of ``rows`` rows, by default ``chunk_rows``."""
        return row_blocks(self.n_objects, rows or self.chunk_rows)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return rows ``start`` to ``stop``, ``(stop - start, n_features)`` of ``dtype``, all finite.

        Reading from the middle of a CSV file parses everything before it; `iterate` reads any source once.
        """
        check_rows(start, stop, self.n_objects)
        return next(values for _, values in self._stream([Block(0, start, stop)], self._may_be_missing))

    def iterate(
        self, rows: int | None = None, first: int = 0, *, gaps: bool = False, sparse: bool = False
    ) -> Iterator[tuple[Block, Any]]:
        """Yield every block from the ``first`` on with its values, in one pass over the source.

        With ``gaps``, missing values are NaN, else refused; with ``sparse``, rows of a sparse source are CSR.
        """
        if not (sparse and self.is_sparse):
            yield from self._stream(self.blocks(rows)[first:], gaps or self._may_be_missing)
            return
        yield from self._sparse_blocks(self.blocks(rows or self.sparse_rows)[first:])

    def _stream(self, blocks: list[Block], gaps: bool) -> Iterator[tuple[Block, np.ndarray]]:
        """Yield adjacent blocks with their values, assembled from the blocks of the table."""
        if self.is_sparse:
            yield from ((block, values.toarray()) for block, values in self._sparse_blocks(blocks))
            return
        pieces = self._table.batches(self.chunk_rows, blocks[0].start, blocks[-1].stop)
        rest = np.empty((0, self.n_features), dtype=self.dtype)
        for block in blocks:
            values = np.empty((block.n_rows, self.n_features), dtype=self.dtype)
            filled = 0
            while filled < block.n_rows:
                if len(rest) == 0:
                    rest = self._cast(next(pieces, None))
                taken = rest[: block.n_rows - filled]
                values[filled : filled + len(taken)] = taken
                filled += len(taken)
                rest = rest[len(taken) :]
            finite = np.isfinite(values)
            if not finite.all() and (not gaps or np.isinf(values).any()):
                refused = np.isinf(values) if gaps else ~finite
                row, column = np.unravel_index(int(np.argmax(refused)), refused.shape)
                raise self._not_finite(values[row, column], block.start + int(row), self.names[column])
            yield block, values

    def _sparse_blocks(self, blocks: list[Block]) -> Iterator[tuple[Block, Any]]:
        """Yield blocks in compressed sparse rows, of which no value may be missing."""
        for block in blocks:
            for rows in self._table.batches(block.n_rows, block.start, block.stop):
                if not (finite := np.isfinite(rows.data)).all():
                    at = int(finite.argmin())
                    row = int(np.searchsorted(rows.indptr, at, side="right")) - 1
                    name = self.names[int(rows.indices[at])]
                    raise self._not_finite(rows.data[at], block.start + row, name)
                yield block, rows

    def _not_finite(self, value: Any, row: int, name: str) -> InvalidInputError:
        remedy = "replace what is infinite" if np.isinf(value) else "fill or drop missing values"
        return InvalidInputError(
            f"{self.where} has {value} at row {row} (from 0), column {name!r}; features must be finite: "
            f"{remedy} first."
        )

    def _cast(self, rows: Rows | None) -> np.ndarray:
        """Return a block of the table as numbers, missing values as NaN."""
        if rows is None:
            raise InvalidInputError(
                f"{self.where} has fewer rows than the {self.n_objects:,} of the first pass; "
                "do not modify it while it is read."
            )
        if isinstance(rows, list) and self._types is not None:
            rows = [self._of_its_type(column, c) for c, column in enumerate(rows)]
        return self.encoding.numbers(rows, self.dtype, self.where)

    def _of_its_type(self, column: Any, c: int) -> Any:
        """Return a column of the source; those of objects as Arrow, of the type that the table declares."""
        if isinstance(column, np.ndarray) and column.dtype.kind not in "buif":
            kind = self._types[c] if self._types is not None and column.dtype.kind == "O" else None
            return as_arrow(column, kind, self._table.names[c] if self._table.names else f"f{c}", self.where)
        return column

    # Looking at all columns first

    def _kinds(self) -> list[str]:
        """Return what the columns of a table without types are: by the first block that has a value of each.

        As in a table with types, another type further down is refused when it is read.
        """
        kinds: list[str | None] = [None] * self._table.n_columns
        types: dict[int, pa.DataType] = {}
        for rows in self._table.batches(1 << 16):
            for c, column in enumerate(rows):
                if kinds[c] is None:
                    types[c] = as_arrow(column, None, (self._table.names or [""])[c], self.where).type
                    kinds[c] = None if pa.types.is_null(types[c]) else kind_of(types[c]) or ""
            if None not in kinds:
                break
        names = self._table.names or []
        if problems := [(name, f"has type {types[c]}") for c, name in enumerate(names) if kinds[c] == ""]:
            remedy = "drop it (drop=, --drop), or convert it to numbers, dates or text"
            refuse_columns({remedy: problems}, self.where)
        return [kind or NUMBER for kind in kinds]

    def _look_at(self, codes: list[ColumnCode]) -> list[ColumnCode]:
        """Return what the columns become, after a pass that finds all that is wrong with any of them.

        The table counts its rows along the way.
        """
        table, n_rows = self._table, 0
        infinite: dict[int, int] = {}
        texts = {c: _Texts(c in table.categorical) for c, code in enumerate(codes) if code.kind == CATEGORY}
        with ExitStack() as stack:
            listener = None
            if table.n_rows is not None:
                listener = stack.enter_context(progress("look at the columns", table.n_rows))
            for rows in table.batches(BLOCK_ROWS):
                n_here = len(rows[0]) if isinstance(rows, list) else rows.shape[0]
                if n_rows == 0 and not self._are_chosen:
                    self._refuse_ids(rows, codes)
                if isinstance(rows, list) or texts:
                    for c, column in enumerate(rows if isinstance(rows, list) else rows.T):
                        column = self._of_its_type(column, c)
                        if c in texts:
                            texts[c].add(as_arrow(column, None, codes[c].name, self.where), codes[c].missing)
                            continue
                        found = numbers_of(column, codes[c], self.where)
                        if c not in infinite and np.isinf(found).any():
                            infinite[c] = n_rows + int(np.argmax(np.isinf(found)))
                n_rows += n_here
                if listener is not None:
                    listener.advance(n_here)
        problems: dict[str, list[tuple[str, str]]] = {}
        for c, code in enumerate(codes):
            if c in infinite:
                what = f"is infinite at row {infinite[c]} (from 0)"
                problems.setdefault(_INFINITE, []).append((code.name, what))
            elif c in texts and texts[c].like_number and not texts[c].are_numbers_with_gaps:
                what = f"has text such as {texts[c].like_number!r}"
                problems.setdefault(_NUMBERS, []).append((code.name, what))
        refuse_columns(problems, self.where)
        return [texts[c].code(code) if c in texts else code for c, code in enumerate(codes)]

    def _refuse_ids(self, rows: Rows, codes: list[ColumnCode]) -> None:
        """Raise InvalidInputError for columns with a different whole number or text in each of the rows."""
        if not isinstance(rows, list) or not rows or len(rows[0]) < 200:
            return
        problems = []
        for c, (column, code) in enumerate(zip(rows, codes, strict=True)):
            if c in self._table.categorical or code.kind not in (NUMBER, CATEGORY):
                continue
            values = as_arrow(self._of_its_type(column, c), None, code.name, self.where)
            if code.kind == NUMBER:
                numbers = numbers_of(values, code, self.where)
                if not ((np.rint(numbers) == numbers) & np.isfinite(numbers)).all():
                    continue
            if values.null_count == 0 and len(values.unique()) == len(values):
                kind = "whole number" if code.kind == NUMBER else "text"
                problems.append((code.name, f"has a different {kind} in every row"))
        if problems:
            name = problems[0][0]
            first = f"pass id={name!r} (--id {name}) if it names the rows, " if self.ids is None else ""
            remedy = f"{first}leave it out with drop= (--drop), or name all features in columns= (--columns)"
            refuse_columns({remedy: problems}, self.where)


_INFINITE = "features must be finite: replace what is infinite"
_NUMBERS = (
    "write numbers alone, as 1234.5 (or with decimal=',' of bigcons.select, --decimal ,), and dates as "
    "2024-12-31, name the column in categorical= (--categorical) if its values are categories, or what is "
    "missing in missing= (--missing)"
)
"""What to do about columns that the first pass refuses."""


def _positions(columns: Columns | None, names: list[str], where: str) -> list[int]:
    """Return the positions of columns that are named, matched or numbered; raise UnknownColumnError."""
    chosen: set[int] = set()
    listed = [columns] if isinstance(columns, (str, int, np.integer)) else columns or []
    for entry in listed:
        if isinstance(entry, str):
            found = [c for c, name in enumerate(names) if name == entry or fnmatchcase(name, entry)]
        else:
            found = [int(entry)] if 0 <= int(entry) < len(names) else []
        if not found:
            raise UnknownColumnError(where, entry, names)
        chosen.update(found)
    return sorted(chosen)


class _Texts:
    """What has been seen of a column of text."""

    def __init__(self, is_category: bool) -> None:
        self._levels: set[str] = set()
        self._is_hashed = self._has_gaps = self._has_named = False
        self._is_category = is_category
        self._are_iso = not is_category
        self._are_numbers = not is_category
        self.like_number: str = ""
        """A text that may be a number or date in another form, or a code."""

    def add(self, column: Any, missing: tuple[str, ...]) -> None:
        """Look at the next rows, an Arrow array of text."""
        texts, rows = texts_of(column, missing)
        if missing and not self._has_named:
            self._has_named = not set(missing).isdisjoint(texts_of(column, ())[0])
        used = np.unique(rows)
        self._has_gaps = self._has_gaps or bool(used.size and used[0] < 0)
        found = [texts[at] for at in used[used >= 0].tolist()]
        known = {text for text in found if text is not None}
        self._has_gaps = self._has_gaps or len(known) < len(set(found))
        self._are_iso = self._are_iso and all(map(_ISO_DATE.fullmatch, known))
        if not self._is_category and not pa.types.is_dictionary(column.type):
            self._are_numbers = self._are_numbers and None not in map(loose_number, known)
            odd = [text for text in known if _LIKE_NUMBER.fullmatch(text) and not _ISO_DATE.fullmatch(text)]
            self.like_number = self.like_number or min(odd, default="")
        if not self._is_hashed:
            self._levels |= known
            self._is_hashed = len(self._levels) > LEVELS

    @property
    def are_numbers_with_gaps(self) -> bool:
        """Whether the column is text only because of what was named as missing in it."""
        return self._are_numbers and self._has_named and self.like_number != ""

    def code(self, code: ColumnCode) -> ColumnCode:
        """Return what the column becomes."""
        if self._levels and self._are_iso:
            return code._replace(kind=DATE)
        if not self._levels or self.are_numbers_with_gaps:
            return code._replace(kind=NUMBER)
        if self._is_hashed:
            return code._replace(kind=HASHED, may_miss=self._has_gaps)
        return code._replace(levels=tuple(sorted(self._levels)), may_miss=self._has_gaps)
