"""Files of tables as sources of features: Parquet and CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from bigcons.errors import InvalidInputError
from bigcons.tables.column_names import check_commas, column_names
from bigcons.tables.feature_sources.base import check_names, first_line
from bigcons.tables.feature_sources.parts import PartedSource

_CSV_BLOCK = 1 << 20
_CSV_READ_AHEAD = 64 << 20  # measured: the reader runs some 32 blocks ahead
_READ_BUFFER = 1 << 16
_PARQUET_PAGES = 5 << 19  # a data page and a dictionary page, a megabyte each as usually written


class ParquetSource(PartedSource):
    """A Parquet file, or a directory of them in the order of their names; parts are row groups."""

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        self._parts: list[tuple[Path, int]] = []
        self.lengths = []
        self.held_bytes = 0
        for file in files:
            self._add(file)
        assert self.schema is not None  # noqa: S101 - there was at least one file
        self.names = check_names(self.schema.names, self.where)

    def _add(self, path: Path) -> None:
        with self._open(path) as file:
            schema = file.schema_arrow.remove_metadata()
            if self.schema is not None and not schema.equals(self.schema):
                raise InvalidInputError(
                    f"{path} has other columns than the files before it; make them alike."
                )
            self.schema = schema
            for g in range(file.metadata.num_row_groups):
                group = file.metadata.row_group(g)
                self._parts.append((path, g))
                self.lengths.append(group.num_rows)
                sizes = (group.column(c).total_uncompressed_size for c in range(group.num_columns))
                self.held_bytes = max(self.held_bytes, sum(min(size, _PARQUET_PAGES) for size in sizes))

    def load(self, part: int, rows: int, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """Yield record batches of one row group; page checksums are verified where they exist."""
        path, group = self._parts[part]
        with self._open(path) as file:
            yield from file.iter_batches(rows, row_groups=[group], columns=columns, use_threads=False)

    @staticmethod
    def _open(path: Path) -> Any:
        from pyarrow import parquet

        try:
            return parquet.ParquetFile(
                path, buffer_size=_READ_BUFFER, pre_buffer=False, page_checksum_verification=True
            )
        except (pa.ArrowInvalid, OSError) as error:
            raise InvalidInputError(
                f"{path} cannot be read as Parquet ({first_line(error)}); write it anew."
            ) from None


class CsvSource(PartedSource):
    """A CSV file, plain or gzipped, read as a stream: reading from the middle parses all before it.

    The first line names the columns if `column_names` says so, else they are f0, f1, ...
    Types are taken from the first megabytes: a column is a number, a boolean or text.
    """

    def __init__(self, path: Path) -> None:
        from pyarrow import csv

        self.where = str(path)
        self.held_bytes = _CSV_READ_AHEAD
        self._path = path
        self._read_options = csv.ReadOptions(block_size=_CSV_BLOCK)
        self._types: dict[str, pa.DataType] = {}
        schema = self._peek()
        check_commas(schema.names, self.where)
        if column_names([name.strip() for name in schema.names], self.where) is None:
            self._read_options.autogenerate_column_names = True
            schema = self._peek()
        self._types = {field.name: _csv_type(field.type) for field in schema}
        self.schema = pa.schema(self._types)
        self.names = check_names(schema.names, self.where)
        self.lengths = [None]

    def load(
        self,
        part: int,  # noqa: ARG002 - the file is the only part
        rows: int,  # noqa: ARG002 - the size of a batch is fixed in bytes
        columns: Sequence[str] | None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of the file."""
        try:
            with self._open(columns) as reader:
                yield from reader
        except pa.ArrowInvalid as error:
            raise self._unreadable(error) from None

    def _peek(self) -> pa.Schema:
        try:
            with self._open(None) as reader:
                return reader.schema
        except pa.ArrowInvalid as error:
            raise self._unreadable(error) from None

    def _open(self, columns: Sequence[str] | None) -> Any:
        from pyarrow import csv

        options = csv.ConvertOptions(
            column_types=self._types, strings_can_be_null=True, include_columns=list(columns or [])
        )
        return csv.open_csv(self._path, read_options=self._read_options, convert_options=options)

    def _unreadable(self, error: Exception) -> InvalidInputError:
        return InvalidInputError(
            f"{self.where} cannot be read ({first_line(error)}); repair it, or write it as Parquet."
        )


def _csv_type(inferred: pa.DataType) -> pa.DataType:
    """The type to read a column as: whole numbers may turn out to have fractions further down."""
    numeric = pa.types.is_integer(inferred) or pa.types.is_null(inferred)
    return pa.float64() if numeric else inferred
