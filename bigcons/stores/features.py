"""Features: the rows of any table as numbers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from bigcons.errors import InvalidInputError, first_line
from bigcons.memory import Block, row_blocks
from bigcons.storage.commit import is_store
from bigcons.tables.ids import Ids
from bigcons.tables.intake import open_table
from bigcons.tables.select import Column, Columns, select
from bigcons.tables.table import Rows, Table

MAX_CATEGORIES = 1000
"""Columns with more distinct values are text, which names objects or is prose, not categories."""

_BLOCK_VALUES = 1 << 20


def open_features(
    source: object, *, id: Column | None = None, columns: Columns | None = None, drop: Columns | None = None
) -> Features:
    """Open a feature matrix for reading by rows.

    Parameters
    ----------
    source
        An array ``(n_objects, n_features)`` (numpy, memory map, Zarr, nested lists), a pandas, polars or
        pyarrow table or any object with ``__arrow_c_stream__``, a dask array or dataframe, or a path to
        ``.npy``, ``.npz``, ``.zarr``, ``.parquet``, ``.csv`` or ``.tsv`` (or these with ``.gz``), a folder of
        files, in the order of the numbers in their names, a pattern such as ``data/*.parquet``, or a list of
        paths. The same rules apply to labels.
    id, columns, drop
        The column that identifies the objects, and those that are features: see `bigcons.select`.

    Numbers and booleans are used unchanged. Categorical columns (text, dictionary and categorical types) are
    encoded as integers: the position of the value among the sorted distinct values of the column, as
    Lourenço et al. 2015 discretize the symbolic attributes of KDD Cup 1999.

    Cost: only the head of the source is read, except that a first pass reads the categorical columns, and
    all of a source whose number of rows is unknown (CSV, dask dataframe). Memory: a block, plus what the
    source decodes at once (`Features.held_bytes`): two Zarr chunks, a dask partition, two pages of every
    Parquet column (usually 2.5 MB each), 64 MB of CSV; an Arrow stream is kept in memory.

    Raises StoreNotFoundError for a path that does not exist, and InvalidInputError, naming the column, for
    values that are not features: non-numeric arrays, dates, text columns with more than 1,000 distinct
    values. Missing and infinite values raise InvalidInputError, with row and column, when they are read.
    """
    if isinstance(source, Features):
        if id is not None or columns is not None or drop is not None:
            raise InvalidInputError(
                "the features are open; choose id, columns and drop where they are opened."
            )
        return source
    if isinstance(source, (str, os.PathLike)) and is_store(source):
        raise InvalidInputError(
            f"{source} is a store of bigcons, not features; pass the features of the objects."
        )
    return Features(open_table(select(source, id=id, columns=columns, drop=drop), "features"))


class Features:
    """A feature matrix ``(n_objects, n_features)`` read by rows; created by `open_features`.

    Attributes
    ----------
    n_objects, n_features
        Its shape.
    names
        Names of the columns; ``f0``, ``f1``, ... where the source has none.
    categories
        The sorted values of each categorical column; cells are positions in them.
    dtype
        float32 if it represents the values of an array exactly, else float64.
    chunk_rows
        Rows of a block by default; depends on ``n_features`` only.
    held_bytes
        About how much the source decodes at a time, in addition to the block.
    where
        Name of the source in messages: its path, or "features".
    ids
        What identifies the objects, if that is known.
    """

    def __init__(self, table: Table, *, may_be_missing: bool = False) -> None:
        self._table = table
        self._may_be_missing = may_be_missing
        self.where: str = table.where
        self.ids: Ids | None = table.ids
        self.n_features: int = table.n_columns
        if self.n_features == 0:
            raise InvalidInputError(f"{self.where} has no columns; features need at least one.")
        if table.dtype is not None and table.dtype.kind not in "buif":
            raise InvalidInputError(
                f"{self.where} has dtype {table.dtype}; an array of features must be real numbers: use a "
                "table for text columns."
            )
        self.names: list[str] = table.names or [f"f{c}" for c in range(self.n_features)]
        repeated = sorted({name for name in self.names if self.names.count(name) > 1})
        if repeated:
            raise InvalidInputError(
                f"{self.where} has more than one column {repeated[0]!r}; give each its own name."
            )
        self.chunk_rows: int = 1 << max(_BLOCK_VALUES // self.n_features, 1).bit_length() - 1
        self._types = table.column_types()
        self.categories: dict[str, np.ndarray] = self._find_categories()
        if not table.n_rows:
            raise InvalidInputError(f"{self.where} has no rows; features need at least one.")
        self.n_objects: int = table.n_rows
        self.held_bytes: int = table.held_bytes
        exact = table.dtype is not None and np.can_cast(table.dtype, np.float32)
        self.dtype: np.dtype = np.dtype(np.float32 if exact else np.float64)

    def __repr__(self) -> str:
        return f"Features({self.where!r}, n_objects={self.n_objects}, n_features={self.n_features})"

    def blocks(self, rows: int | None = None) -> list[Block]:
        """Return blocks of ``rows`` rows, by default ``chunk_rows``."""
        return row_blocks(self.n_objects, rows or self.chunk_rows)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return rows ``start`` to ``stop``, ``(stop - start, n_features)`` of ``dtype``, all finite.

        Reading from the middle of a CSV file parses everything before it; `iterate` reads any source once.
        """
        if not 0 <= start < stop <= self.n_objects:
            raise InvalidInputError(
                f"rows {start}:{stop} are not within the {self.n_objects} rows; use 0 <= start < stop."
            )
        return next(values for _, values in self._stream([Block(0, start, stop)]))

    def iterate(self, rows: int | None = None, first: int = 0) -> Iterator[tuple[Block, np.ndarray]]:
        """Yield every block from the ``first`` on with its values, in one pass over the source."""
        return self._stream(self.blocks(rows)[first:])

    def _stream(self, blocks: list[Block]) -> Iterator[tuple[Block, np.ndarray]]:
        """Yield adjacent blocks with their values, assembled from the blocks of the table."""
        pieces = self._table.blocks(self.chunk_rows, blocks[0].start, blocks[-1].stop)
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
            if not finite.all() and not self._may_be_missing:
                row, column = np.unravel_index(int(finite.argmin()), finite.shape)
                raise InvalidInputError(
                    f"{self.where} has {values[row, column]} at row {block.start + row} (from 0), column "
                    f"{self.names[column]!r}; features must be finite: fill or drop missing values first."
                )
            yield block, values

    def _cast(self, rows: Rows | None) -> np.ndarray:
        """Return a block of the table as numbers, missing values as NaN."""
        if rows is None:
            raise InvalidInputError(
                f"{self.where} has fewer rows than the {self.n_objects} of the first pass; "
                "do not modify it while it is read."
            )
        if isinstance(rows, np.ma.MaskedArray):
            rows = np.ma.filled(rows.astype(np.float64), np.nan)  # masked values are missing
        if isinstance(rows, np.ndarray):
            return rows.astype(self.dtype, copy=False)
        values = np.empty((len(rows[0]), self.n_features), dtype=self.dtype)
        for c, column in enumerate(rows):
            values[:, c] = self._numbers(column, c)
        return values

    def _numbers(self, column: Any, c: int) -> np.ndarray:
        import pyarrow.compute as pc

        if isinstance(column, np.ndarray) and column.dtype.kind in "buif":
            return column
        name, column = self.names[c], self._arrow(column, c)
        is_category = _is_category(column.type, name, self.where)
        if is_category and name in self.categories:
            column = _decoded(column)
            column = pc.index_in(column, value_set=pa.array(self.categories[name].tolist(), column.type))
        elif (is_category or name in self.categories) and column.null_count < len(column):
            raise InvalidInputError(
                f"column {name!r} of {self.where} mixes text and numbers; convert it to one type."
            )
        return np.asarray(pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False))

    def _arrow(self, column: Any, c: int) -> Any:
        """Return a column as Arrow, of the type that the table declares, if any."""
        if not isinstance(column, np.ndarray):
            return column
        try:
            return pa.array(column, None if self._types is None else self._types[c], from_pandas=True)
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise InvalidInputError(
                f"column {self.names[c]!r} of {self.where} has mixed types ({first_line(error)}); "
                "convert it to one type."
            ) from None

    def _find_categories(self) -> dict[str, np.ndarray]:
        """Return the sorted values of the categorical columns; the table counts its rows along the way."""
        columns = list(range(self.n_features))
        if self._types is not None:
            columns = [c for c in columns if _is_category(self._types[c], self.names[c], self.where)]
        if self._table.n_rows is not None and (self._table.dtype is not None or not columns):
            return {}
        columns = columns or [0]  # any column will do to count rows
        found: dict[str, set[Any]] = {}
        for rows in self._table.blocks(self.chunk_rows, columns=columns):
            if isinstance(rows, list):
                for c, column in zip(columns, rows, strict=True):
                    self._add_categories(found, column, c)
        return {name: np.array(sorted(found[name])) for name in self.names if name in found}

    def _add_categories(self, found: dict[str, set[Any]], column: Any, c: int) -> None:
        if isinstance(column, np.ndarray) and column.dtype.kind in "buif":
            return
        name, column = self.names[c], self._arrow(column, c)
        if _is_category(column.type, name, self.where):
            values = found.setdefault(name, set())
            values.update(_decoded(column).unique().drop_null().to_pylist())
            if len(values) > MAX_CATEGORIES:
                raise InvalidInputError(
                    f"column {name!r} of {self.where} has more than {MAX_CATEGORIES} distinct texts; "
                    "use it as the id (--id), drop it (--drop), or convert it to numbers or fewer categories."
                )


def _is_category(kind: pa.DataType, name: str, where: str) -> bool:
    """Return whether a column is categorical; raises InvalidInputError unless it is that or numeric."""
    types = pa.types
    if types.is_dictionary(kind) or _is_text(kind):
        return True
    numeric = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    if not any(test(kind) for test in numeric):
        raise InvalidInputError(
            f"column {name!r} of {where} has type {kind}; drop it, or convert it to numbers or text."
        )
    return False


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _decoded(column: Any) -> Any:
    """Return the values of a categorical column, decoded."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.cast(pa.large_string()) if _is_text(column.type) else column
