"""Features: the blocks of a feature matrix, wherever it lies and whatever the types of its columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from bigcons.errors import InvalidInputError
from bigcons.memory import Block, row_blocks
from bigcons.tables.feature_sources import Piece, Source, open_source

MAX_CATEGORIES = 1000
"""Columns with more distinct values are text, not categories (an arbitrary line)."""

_BLOCK_VALUES = 1 << 20


def open_features(source: object) -> Features:
    """Open a feature matrix for reading by rows.

    Parameters
    ----------
    source
        An array ``(n_objects, n_features)`` (numpy, memory map, Zarr, nested lists), a pandas, polars
        or pyarrow table, a dask.array or dask.dataframe, or a path to ``.npy``, ``.zarr``,
        ``.parquet`` (a file or a directory of files), ``.csv`` or ``.csv.gz``.

    Numbers and booleans are taken as they are. Columns of categories (text, dictionary and
    categorical types) become whole numbers: the position of the value among the sorted distinct
    values of the column, as Lourenço et al. 2015 discretize the symbolic attributes of KDD Cup 1999.

    Cost: nothing is read but the head of the source, except that a first pass reads the columns of
    categories, and all of a source that does not know how many rows it has (CSV, dask.dataframe).
    Memory: a block, plus what the source decodes at once (`Features.held_bytes`): a Zarr chunk, a dask
    partition, two pages of every Parquet column (2.5 MB each as usually written), 64 MB of CSV.

    Raises StoreNotFoundError for a path that is not there, and InvalidInputError, naming the column,
    for what is not a feature: arrays of other than numbers, dates, columns of more than 1,000
    distinct texts. Missing and infinite values are refused, with row and column, when they are read.
    """
    if isinstance(source, Features):
        return source
    return Features(open_source(source))


class Features:
    """A feature matrix ``(n_objects, n_features)`` read by rows; made by `open_features`.

    Attributes
    ----------
    n_objects, n_features
        Its shape.
    names
        Names of the columns; ``f0``, ``f1``, ... where the source has none.
    categories
        For each column of categories, its sorted values; a cell holds the position of its value.
    dtype
        float32 if that holds the values of an array exactly, else float64.
    chunk_rows
        Rows of a block by default; depends on ``n_features`` only.
    held_bytes
        About how much the source decodes at a time, beside the block that is read.
    where
        What messages call the source: its path, or "features".
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.where = source.where
        self.names = source.names
        self.n_features = len(source.names)
        self.chunk_rows = 1 << max(_BLOCK_VALUES // self.n_features, 1).bit_length() - 1
        self.categories = _survey(source, self.chunk_rows)
        if not source.n_rows:
            raise InvalidInputError(f"{self.where} has no rows; features need at least one.")
        self.n_objects = source.n_rows
        self.held_bytes = source.held_bytes
        exact = source.dtype is not None and np.can_cast(source.dtype, np.float32)
        self.dtype = np.dtype(np.float32 if exact else np.float64)

    def __repr__(self) -> str:
        return f"Features({self.where!r}, n_objects={self.n_objects}, n_features={self.n_features})"

    def blocks(self, rows: int | None = None) -> list[Block]:
        """Return the blocks of ``rows`` rows that make up the matrix."""
        return row_blocks(self.n_objects, rows or self.chunk_rows)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return rows ``start`` to ``stop``, ``(stop - start, n_features)`` of ``dtype``, all finite.

        Reading a CSV file from the middle parses what lies before; `iterate` reads any source once.
        """
        if not 0 <= start < stop <= self.n_objects:
            raise InvalidInputError(
                f"rows {start}:{stop} are not within the {self.n_objects} rows; ask for 0 <= start < stop."
            )
        return next(values for _, values in self._stream([Block(0, start, stop)]))

    def iterate(self, rows: int | None = None) -> Iterator[tuple[Block, np.ndarray]]:
        """Yield every block with its values, in order, in one pass over the source."""
        return self._stream(self.blocks(rows))

    def _stream(self, blocks: list[Block]) -> Iterator[tuple[Block, np.ndarray]]:
        """Yield adjoining blocks, filled with the rows of the pieces as these come."""
        pieces = self._source.pieces(blocks[0].start, blocks[-1].stop, self.chunk_rows)
        rest = np.empty((0, self.n_features), dtype=self.dtype)
        for block in blocks:
            values = np.empty((block.n_rows, self.n_features), dtype=self.dtype)
            filled = 0
            while filled < block.n_rows:
                if len(rest) == 0:
                    rest = self._encode(self._next(pieces))
                taken = rest[: block.n_rows - filled]
                values[filled : filled + len(taken)] = taken
                filled += len(taken)
                rest = rest[len(taken) :]
            self._require_finite(values, block.start)
            yield block, values

    def _next(self, pieces: Iterator[Piece]) -> Piece:
        for piece in pieces:
            return piece
        raise InvalidInputError(
            f"{self.where} has fewer rows than the {self.n_objects} counted at first; "
            "leave it unchanged while it is read."
        )

    def _encode(self, piece: Piece) -> np.ndarray:
        """Return a piece as numbers, missing values as NaN."""
        if isinstance(piece, np.ndarray):
            return piece.astype(self.dtype, copy=False)
        values = np.empty((piece.num_rows, self.n_features), dtype=self.dtype)
        for c, name in enumerate(self.names):
            values[:, c] = self._numbers(piece.column(c), name)
        return values

    def _numbers(self, column: Any, name: str) -> np.ndarray:
        import pyarrow.compute as pc

        is_category = _is_category(column.type, name, self.where)
        if name in self.categories:
            if is_category:
                column = pc.index_in(
                    _decoded(column), value_set=_value_set(self.categories[name], column.type)
                )
            elif column.null_count < len(column):
                raise InvalidInputError(
                    f"column {name!r} of {self.where} mixes text and numbers; convert it to one type."
                )
        return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False))

    def _require_finite(self, values: np.ndarray, first_row: int) -> None:
        finite = np.isfinite(values)
        if not finite.all():
            row, column = np.unravel_index(int(finite.argmin()), finite.shape)
            raise InvalidInputError(
                f"{self.where} has {values[row, column]} at row {first_row + row} (from 0), column "
                f"{self.names[column]!r}; features must be finite: fill or drop missing values first."
            )


def _survey(source: Source, rows: int) -> dict[str, np.ndarray]:
    """Return the categories of every column that has some; have the source count its rows on the way."""
    columns = None
    if source.schema is not None:
        columns = [f.name for f in source.schema if _is_category(f.type, f.name, source.where)]
    if source.n_rows is not None and not columns and (source.schema or source.dtype):
        return {}
    if columns == []:
        columns = source.names[:1]  # only to count the rows: any column does
    found: dict[str, set[Any]] = {}
    for piece in source.pieces(0, None, rows, columns):
        if source.dtype is None:
            _collect_categories(piece, found, source.where)
    return {name: np.array(sorted(found[name])) for name in source.names if name in found}


def _collect_categories(piece: Any, found: dict[str, set[Any]], where: str) -> None:
    for name, column in zip(piece.schema.names, piece.columns, strict=True):
        if _is_category(column.type, name, where):
            values = found.setdefault(name, set())
            values.update(_decoded(column).unique().drop_null().to_pylist())
            if len(values) > MAX_CATEGORIES:
                raise InvalidInputError(
                    f"column {name!r} of {where} has more than {MAX_CATEGORIES} distinct texts; "
                    "drop it, or convert it to numbers or to fewer categories."
                )


def _is_category(kind: pa.DataType, name: str, where: str) -> bool:
    """Tell categories from numbers; refuse a column that is neither."""
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
    """The plain values of a column of categories."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.cast(pa.large_string()) if _is_text(column.type) else column


def _value_set(categories: np.ndarray, kind: pa.DataType) -> pa.Array:
    value_type = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.array(categories.tolist(), type=pa.large_string() if _is_text(value_type) else value_type)
