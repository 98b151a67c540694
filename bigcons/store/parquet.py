"""The rows of an ensemble in a folder of Parquet files, which every reader of Parquet opens.

There is a file for each chunk of rows, ``part-00000.parquet`` and so on, with the ids and a column for each
partition, its original labels, null where missing. The head beside the files has the checksums of their
footers.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.disk.commit import names_parquet
from bigcons.disk.files import Place, StorePath, corrupt, decoding
from bigcons.disk.places import DiskPlace
from bigcons.disk.schema import MISSING
from bigcons.errors import InvalidInputError
from bigcons.io.factorize import Encoding
from bigcons.io.files import footer_of
from bigcons.io.ids import TEXT, canonical
from bigcons.io.labels import observed

if TYPE_CHECKING:
    from bigcons.store.ensemble_store import Categories, Header

MOST_PARTITIONS = 4_096
"""Partitions of an ensemble in Parquet, which describes each column in every file. Of more, the time to open
a file grows faster than their number: measured by ``benchmarks/stores.py``."""

_TOGETHER = 16
"""Columns that a thread decodes at a time."""


def refuse_wide(out: StorePath | Place, n_partitions: int) -> None:
    """Raise InvalidInputError for an ensemble in Parquet with more partitions than its footers bear."""
    if names_parquet(out) and n_partitions > MOST_PARTITIONS:
        raise InvalidInputError(
            f"{out} would have n_partitions={n_partitions:,}, but Parquet describes each column in every "
            f"file and is slow beyond {MOST_PARTITIONS:,}; store it as .zarr."
        )


def part_name(number: int) -> str:
    """Return the name of the file of a chunk of rows."""
    return f"part-{number:05}.parquet"


class ParquetFiles:
    """The files of an ensemble, open for reading; thread-safe.

    ``categories`` reads the original values of the labels, which is None where no partition has any.
    """

    def __init__(
        self,
        folder: Place,
        header: Header,
        dtype: np.dtype,
        footers: list[int],
        categories: Callable[[], Categories] | None,
    ) -> None:
        self._folder, self._footers, self._categories = folder, footers, categories
        self.header: Header = header
        self.dtype: np.dtype = dtype
        self._encodings: list[Encoding] = []
        """Those of the partitions, made when a label is looked up."""
        if len(footers) != -(-header.n_objects // header.chunk_rows):
            raise ValueError("the number of footers")

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return rows from the files that they are in; raises an error of any type for damaged ones."""
        header, chunk = self.header, self.header.chunk_rows
        rows = np.empty((stop - start, header.n_columns), self.dtype)
        for number in range(start // chunk, (stop - 1) // chunk + 1):
            low, high = max(start, number * chunk), min(stop, (number + 1) * chunk)
            out = rows[low - start : high - start]
            with self._opened(number) as file:
                for first in range(0, len(header.names), _TOGETHER):
                    names = header.names[first : first + _TOGETHER]
                    table = file.read_row_group(0, columns=names, use_threads=False)
                    table = table.slice(low - number * chunk, len(out))
                    self._decode(first, [table.column(name).combine_chunks() for name in names], out)
        return rows

    def _decode(self, first: int, columns: list[Any], out: np.ndarray) -> None:
        """Write the columns of partitions from number ``first`` on to those of ``out``."""
        offsets = self.header.offsets
        if self.header.is_soft:
            for u, column in enumerate(columns, first):
                labeled = column.is_valid().to_numpy(zero_copy_only=False)
                values = column.flatten().to_numpy(zero_copy_only=False)
                out[:, offsets[u] : offsets[u + 1]] = 0.0
                shape = int(labeled.sum()), int(self.header.n_clusters[u])
                out[labeled, offsets[u] : offsets[u + 1]] = values.reshape(shape)
            return
        codes = np.empty((len(columns), len(out)), out.dtype)
        for u in range(len(columns)):
            codes[u] = self._codes(columns[u], first + u)
            columns[u] = None
        for start in range(0, len(out), 2048):  # tile by tile, which stay in the cache
            out[start : start + 2048, first : first + len(codes)] = codes[:, start : start + 2048].T

    def _codes(self, column: Any, u: int) -> np.ndarray:
        """Return the codes of a partition's labels, -1 where they are missing."""
        import pyarrow as pa

        header = self.header
        if self._categories is None:
            if column.type != pa.from_numpy_dtype(self.dtype):
                raise ValueError(f"labels of type {column.type}")
            return _whole_numbers(column)
        if not self._encodings:
            for name, k, values in zip(header.names, header.n_clusters, self._categories(), strict=True):
                known = np.arange(k) if values is None else values
                self._encodings.append(Encoding(name, known).finish())
        if pa.types.is_dictionary(column.type):  # each of its values is looked up once
            codes = np.append(self._encodings[u].encode(column.dictionary), MISSING)
            codes = codes[_whole_numbers(column.indices)]
        else:
            codes = self._encodings[u].encode(column)
        if int(np.count_nonzero(codes >= 0)) != len(column) - column.null_count:
            raise ValueError("a label that the head does not know")
        return codes

    def read_ids(self, start: int, stop: int) -> Any:
        """Return the ids of a range of rows; raises CorruptStoreError if they are damaged."""
        import pyarrow as pa

        facts, chunk, parts = self.header.ids.facts, self.header.chunk_rows, []  # type: ignore[union-attr]
        for number in range(start // chunk, -(-stop // chunk)):
            first, path = number * chunk, str(self._folder / part_name(number))
            with decoding(lambda reason: corrupt(path, f"has damaged ids ({reason})")):  # noqa: B023
                with self._opened(number) as file:
                    column = file.read_row_group(0, columns=[facts.name], use_threads=False).column(
                        facts.name
                    )
                ids = canonical(column, facts.name, path, first)
            parts.append(ids.slice(max(start - first, 0), min(stop - first, chunk) - max(start - first, 0)))
        kind = pa.large_string() if facts.dtype == TEXT else pa.type_for_alias(facts.dtype)
        return pa.concat_arrays(parts) if parts else pa.array([], kind)

    @contextmanager
    def _opened(self, number: int) -> Iterator[Any]:
        """Yield a file. Its footer is compared with its checksum, and pages with theirs when read.

        Arrow may crash on a damaged footer.
        """
        from pyarrow import parquet

        header, path = self.header, _path(self._folder, number)
        n_rows = min(header.chunk_rows, header.n_objects - number * header.chunk_rows)
        if not path.exists():
            raise ValueError(f"{path.name} is missing")
        if zlib.crc32(footer_of(path)) != self._footers[number]:
            raise ValueError(f"{path.name} has a damaged footer")
        with parquet.ParquetFile(path, page_checksum_verification=True, pre_buffer=False) as file:
            group = file.metadata.row_group(0)
            if file.num_row_groups != 1 or group.num_rows != n_rows:
                raise ValueError(f"{path.name} has other rows")
            yield file

    def reading_bytes(self, n_processes: int, n_threads: int) -> int:
        """Return what each thread holds, a footer and a few columns of a chunk, besides Arrow (measured)."""
        header = self.header
        n_columns = min(header.n_columns, _TOGETHER)
        if header.is_soft:
            groups = range(0, len(header.names), _TOGETHER)
            n_columns = int(np.add.reduceat(header.n_clusters, groups).max())
        label_bytes = 20 + 4 * self.dtype.itemsize  # Parquet's 32 bits and levels, Arrow, codes
        of_thread = 8_000 * len(header.names) + header.chunk_rows * n_columns * label_bytes
        return n_processes * 25_000_000 + n_threads * of_thread


def _path(folder: Place, number: int) -> Path:
    assert isinstance(folder, DiskPlace)  # noqa: S101 - buckets have no Parquet
    return folder.path / part_name(number)


def _whole_numbers(column: Any) -> np.ndarray:
    """Return an Arrow array of integers, -1 where it is null."""
    validity, content = column.buffers()
    dtype = np.dtype(column.type.to_pandas_dtype())
    values = np.frombuffer(content, dtype, len(column), column.offset * dtype.itemsize)
    if column.null_count == 0:
        return values
    bits = np.unpackbits(
        np.frombuffer(validity, np.uint8), count=column.offset + len(column), bitorder="little"
    )
    return np.where(bits[column.offset :].view(bool), values, dtype.type(MISSING))


# Writing


def schema_of(header: Header, categories: Categories, dtype: np.dtype) -> Any:
    """Return the columns of the files: ids, and labels as they were given or lists of memberships."""
    import pyarrow as pa

    def type_of(values: np.ndarray | None) -> pa.DataType:
        if header.is_soft:
            return pa.list_(pa.float32())
        if values is None:
            return pa.from_numpy_dtype(dtype)
        return pa.dictionary(pa.int32(), pa.string()) if values.dtype == object else pa.int64()

    fields = [(name, type_of(values)) for name, values in zip(header.names, categories, strict=True)]
    if header.ids is not None:
        name = header.ids.facts.name
        if name in header.names:
            raise InvalidInputError(
                f"the ids have the name of the partition {name!r}, but columns of Parquet need different "
                "ones; rename one of them, or store the ensemble as .zarr."
            )
        fields.insert(0, (name, header.ids.type))
    return pa.schema(fields)


def write_part(
    folder: Place,
    number: int,
    block: np.ndarray,
    ids: Any,
    header: Header,
    categories: Categories,
    schema: Any,
) -> int:
    """Write a chunk of rows, and their ids if they have some, as a file; return the CRC-32 of its footer."""
    import pyarrow as pa
    from pyarrow import parquet

    path = _path(folder, number)
    columns = [] if header.ids is None else [header.ids.as_they_came(ids)]
    if header.is_soft:
        labeled = observed(block, header.offsets)
        for u in range(len(header.names)):
            memberships = block[labeled[:, u], header.offsets[u] : header.offsets[u + 1]]
            ends = np.append(0, np.cumsum(labeled[:, u])) * memberships.shape[1]
            mask = pa.array(~labeled[:, u])
            offsets = pa.array(ends.astype(np.int32))
            columns.append(pa.ListArray.from_arrays(offsets, pa.array(memberships.ravel()), mask=mask))
    else:
        for codes, values in zip(np.ascontiguousarray(block.T), categories, strict=True):
            missing = codes < 0
            if values is None:
                columns.append(pa.array(codes, mask=missing))
            elif values.dtype == object:
                indices = pa.array(codes.astype(np.int32), mask=missing)
                columns.append(pa.DictionaryArray.from_arrays(indices, pa.array(values, pa.string())))
            else:
                columns.append(pa.array(values.astype(np.int64)[codes], mask=missing))
    with parquet.ParquetWriter(
        path,
        schema,
        compression="zstd",
        use_dictionary=[] if header.is_soft else header.names,
        write_statistics=False,
        write_page_checksum=True,
    ) as writer:
        writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=max(len(block), 1))
    return zlib.crc32(footer_of(path))
