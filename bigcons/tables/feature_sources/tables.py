"""Tables in memory as sources of features: pandas, polars and pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from bigcons.errors import InvalidInputError
from bigcons.tables.feature_sources.base import Source, check_names, first_line


def open_table(table: Any, package: str) -> Source:
    """Return the source that reads a table, or refuse another object of these packages."""
    if package == "pyarrow" and isinstance(table, (pa.Table, pa.RecordBatch)):
        return TableSource(table, table.schema)
    if package == "polars" and type(table).__name__ == "DataFrame":
        return TableSource(table, table[:0].to_arrow().schema)
    if package == "pandas" and type(table).__name__ == "DataFrame":
        return TableSource(table, pandas_schema(table))
    raise InvalidInputError(
        f"features has type {package}.{type(table).__name__}; give a table: a DataFrame or a pyarrow.Table."
    )


class TableSource:
    """A pandas, polars or pyarrow table in memory, made into Arrow slice by slice."""

    where = "features"
    dtype = None
    held_bytes = 0

    def __init__(self, table: Any, schema: pa.Schema) -> None:
        self.schema: pa.Schema | None = schema
        self.names = check_names(schema.names, self.where)
        self.n_rows: int | None = table.shape[0]
        self._table = table

    def pieces(
        self, start: int, stop: int | None, rows: int, columns: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        """Yield slices of ``rows`` rows."""
        stop = self.n_rows if stop is None else stop
        for first in range(start, stop or 0, rows):
            piece = to_arrow(self._table[first : min(first + rows, stop or 0)], self.schema)
            yield piece if columns is None else piece.select(list(columns))


def pandas_schema(table: Any) -> pa.Schema:
    """Return the Arrow schema of a pandas table; object columns are looked through for their type."""
    try:
        schema = pa.Schema.from_pandas(table, preserve_index=False)
    except (pa.ArrowException, ValueError) as error:
        raise InvalidInputError(
            f"features has a column of mixed types or names ({first_line(error)}); convert it to one type."
        ) from None
    return schema.remove_metadata()


def to_arrow(piece: Any, schema: pa.Schema | None = None) -> pa.Table:
    """Return a slice of a pandas, polars or pyarrow table as an Arrow table."""
    if hasattr(piece, "to_arrow"):
        return piece.to_arrow()
    if isinstance(piece, (pa.Table, pa.RecordBatch)):
        return piece
    named = piece.set_axis(piece.columns.map(str), axis="columns")  # as in the schema
    return pa.Table.from_pandas(named, schema=schema or pandas_schema(named), preserve_index=False)
