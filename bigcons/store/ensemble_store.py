"""A stored ensemble: a header, and rows of labels or memberships that are read block by block.

The rows are an array of Zarr, or a folder of Parquet files, which every reader of Parquet opens.
There is a file for each chunk of rows, ``part-00000.parquet`` and so on, with the ids and a column for each
partition, its original labels, null where missing. The head beside the files has the checksums of their
footers.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from bigcons.disk.arrays import AT_ONCE, ChunkSums, StoredArray, digest_text, rows_digest, seals_of
from bigcons.disk.commit import names_parquet, new_store, write_head
from bigcons.disk.files import MOST_JSON_BYTES, Place, StorePath, corrupt, decoding, parse_json
from bigcons.disk.places import local_path
from bigcons.disk.schema import MISSING, arrays_of, chunk_columns
from bigcons.errors import InvalidInputError
from bigcons.io.columns import Ids, canonical, digest_of_ids
from bigcons.io.labels import Encoding, label_dtype, observed, rechunk
from bigcons.io.sources import footer_of
from bigcons.memory import Block, row_blocks
from bigcons.progress import progress
from bigcons.store.generator import Generator, StoredGenerator
from bigcons.store.store import Store, consistent, write_files, write_ids

KIND = "ensemble"
SUM_TOLERANCE, GIVEN_TOLERANCE = 1e-3, 1e-2
"""How far from 1 memberships of an object in a partition may sum: in a store, and as an ensemble is made of
them, when they may be rounded to few decimals."""


def sum_to_one(sums: np.ndarray) -> np.ndarray:
    """Return which sums of memberships that a user gives are 1, up to `GIVEN_TOLERANCE`, .99 included."""
    return np.abs(sums - 1.0) <= GIVEN_TOLERANCE + 1e-9


_TOGETHER = 16
"""Columns of a Parquet file that a thread decodes at a time."""

Categories = list[np.ndarray | None]
"""Original value of each label, per partition; None where values and labels are the same."""


class Header(NamedTuple):
    """The metadata of an ensemble."""

    n_objects: int
    names: list[str]
    n_clusters: np.ndarray
    """``(n_partitions,)`` int64"""
    n_labeled: np.ndarray
    """``(n_partitions,)`` int64: number of objects labeled by each partition"""
    chunk_rows: int
    provenance: dict[str, Any]
    is_soft: bool = False
    """Whether the columns of the array are memberships in base clusters, rather than labels of partitions."""
    ids: Ids | None = None
    """What identifies the objects, if that is known."""
    generator: Generator | StoredGenerator | None = None
    """What labels new rows by their features, if the partitions were generated."""

    @property
    def n_columns(self) -> int:
        """Number of columns of the array."""
        return int(self.n_clusters.sum()) if self.is_soft else len(self.names)

    @property
    def dtype(self) -> np.dtype:
        """Smallest type of the array."""
        return np.dtype(np.float32) if self.is_soft else label_dtype(self.n_clusters)

    @property
    def offsets(self) -> np.ndarray:
        """First base cluster of each partition: ``(n_partitions + 1,)`` int64."""
        return np.concatenate([[0], np.cumsum(self.n_clusters)])

    def digest(self, block: Block, rows: np.ndarray) -> int:
        """Return the part of a block of ``chunk_rows`` rows in the digest of the store, which is the sum."""
        name = "memberships" if self.is_soft else "labels"
        return rows_digest(name, block.index, rows, (self.chunk_rows, chunk_columns(self.n_columns)))


class Content(NamedTuple):
    """An ensemble that is ready to be held or stored, or what is appended to one."""

    header: Header
    """The header, with the appended objects or partitions counted."""
    categories: Categories
    blocks: Iterable[np.ndarray]
    """Labels ``(n_rows, n_partitions)`` or memberships ``(n_rows, n_base_clusters)``, in the order of the
    objects; of an append, only of the new objects, or of the new partitions."""


# Reading


class StoredRows(Store):
    """An ensemble that is open for reading; thread-safe."""

    def __init__(self, place: Place, kind: str = KIND, identity: Hashable = None) -> None:
        """Open the ensemble at ``place``, see `Store`."""
        super().__init__(place, kind, identity)
        self.is_parquet: bool = self.head.is_parquet
        self._prefix = "_" if self.is_parquet else ""  # readers of Parquet pass over such names
        self._encodings: list[Encoding] = []
        """The encodings of partitions in Parquet, made when a label is looked up."""
        body = self.body
        with consistent(place):
            n_objects, chunk_rows, names = (body[name] for name in ("n_objects", "chunk_rows", "names"))
            n_clusters, n_labeled = (np.array(body[name], np.int64) for name in ("n_clusters", "n_labeled"))
            fits = n_clusters.shape == n_labeled.shape == (len(names),) != (0,) and bool(
                (n_clusters >= 1).all() and (n_labeled >= 1).all() and (n_labeled <= n_objects).all()
            )
            is_soft = body["dtype"] == "float32"
            self.dtype: np.dtype = np.dtype(body["dtype"])
            if not fits or (not is_soft and int(n_clusters.max()) - 1 > np.iinfo(self.dtype).max):
                raise ValueError("the numbers of names, clusters or labels")
            if self.is_parquet:
                if is_soft:
                    raise ValueError("memberships in Parquet")
                if len(body["footers"] or []) != -(-n_objects // chunk_rows):
                    raise ValueError("the number of footers")
            file = f"{self._prefix}generator.npz"
            self.header: Header = Header(
                *(n_objects, names, n_clusters, n_labeled, chunk_rows, body["provenance"], is_soft),
                *(self.ids, StoredGenerator(self, file) if file in body["files"] else None),
            )

    def reading_bytes(self, n_processes: int, n_threads: int) -> int:
        """Return the memory that reading takes in all, besides the rows that are returned.

        ``n_threads`` threads, in all of ``n_processes`` processes, read at a time. In Parquet each holds a
        footer and a few columns of a chunk, and each process Arrow (measured).
        """
        header, itemsize = self.header, self.dtype.itemsize
        if not self.is_parquet:
            return reading_bytes(header.chunk_rows, header.n_columns * itemsize, self.dtype, n_threads)
        label_bytes = 20 + 4 * itemsize  # Parquet's 32 bits and levels, Arrow, codes
        column_bytes = header.chunk_rows * min(header.n_columns, _TOGETHER) * label_bytes
        return n_processes * 25_000_000 + n_threads * (8_000 * len(header.names) + column_bytes)

    def categories(self) -> Categories:
        """Return the original label values of every partition; None where values and labels are the same."""
        n_clusters, name = self.header.n_clusters, f"{self._prefix}categories.json"
        if name not in self.body["files"]:
            return [None] * len(n_clusters)
        file = self.data / name
        entries = parse_json(self.read_file(name, MOST_JSON_BYTES), file)
        with consistent(file):
            values = []
            for entry, k in zip(entries, n_clusters, strict=True):
                if entry is not None:
                    are_text = all(isinstance(value, str) for value in entry)
                    entry = np.array(entry, object if are_text else np.int64)
                    if entry.shape != (k,):
                        raise ValueError("other numbers of values than of clusters")
                values.append(entry)
        return values

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return rows ``start`` to ``stop``.

        Raises CorruptStoreError for a chunk that is damaged, missing or has an invalid label, and StoreError
        if the store has changed since it was opened.
        """
        header, where = self.header, f"is damaged in rows {start} to {stop}"
        if start == stop:
            return np.empty((0, header.n_columns), self.dtype)
        if not self.is_parquet:
            block = self.arrays["memberships" if header.is_soft else "labels"].read(start, stop)
        else:
            with decoding(lambda reason: self.broken(f"{where} ({reason})")):
                block = self._read_parquet(start, stop)
            self.check_unchanged()
        if header.is_soft:
            if not (block.min() >= 0 and block.max() <= 1):  # NaN fails too
                raise self.broken(f"{where} (a membership is not from 0 to 1)")
        elif block.min() < MISSING or (_column_maxima(block) >= header.n_clusters).any():
            raise self.broken(f"{where} (a label is negative or exceeds the number of clusters)")
        return block

    def _read_parquet(self, start: int, stop: int) -> np.ndarray:
        """Return rows from the files that they are in; raises an error of any type for damaged ones."""
        header, chunk = self.header, self.header.chunk_rows
        rows = np.empty((stop - start, header.n_columns), self.dtype)
        for number in range(start // chunk, (stop - 1) // chunk + 1):
            low, high = max(start, number * chunk), min(stop, (number + 1) * chunk)
            out = rows[low - start : high - start]
            with self._opened(number) as file:
                for column in range(0, len(header.names), _TOGETHER):
                    names = header.names[column : column + _TOGETHER]
                    table = file.read_row_group(0, columns=names, use_threads=False)
                    table = table.slice(low - number * chunk, len(out))
                    codes = np.empty((len(names), len(out)), out.dtype)
                    for u, name in enumerate(names):
                        codes[u] = self._codes(table.column(name).combine_chunks(), column + u)
                    del table
                    for row in range(0, len(out), 2048):  # tile by tile, which stay in the cache
                        out[row : row + 2048, column : column + len(codes)] = codes[:, row : row + 2048].T
        return rows

    def _codes(self, column: Any, u: int) -> np.ndarray:
        """Return the codes of a partition's labels, -1 where they are missing."""
        import pyarrow as pa

        header = self.header
        if "_categories.json" not in self.body["files"]:
            if column.type != pa.from_numpy_dtype(self.dtype):
                raise ValueError(f"labels of type {column.type}")
            return _whole_numbers(column)
        if not self._encodings:
            for name, k, values in zip(header.names, header.n_clusters, self.categories(), strict=True):
                labels = np.arange(k) if values is None else values
                self._encodings.append(Encoding(name, labels).finish())
        if pa.types.is_dictionary(column.type):  # each of its values is looked up once
            codes = np.append(self._encodings[u].encode(column.dictionary), MISSING)
            codes = codes[_whole_numbers(column.indices)]
        else:
            codes = self._encodings[u].encode(column)
        if int(np.count_nonzero(codes >= 0)) != len(column) - column.null_count:
            raise ValueError("a label that the head does not know")
        return codes

    def read_ids(self, start: int, stop: int) -> Any:
        """Return the ids of a range of rows, an Arrow array; raises CorruptStoreError if they are damaged."""
        import pyarrow as pa

        if not self.is_parquet:
            return super().read_ids(start, stop)
        facts, chunk, parts = self.header.ids.facts, self.header.chunk_rows, []  # type: ignore[union-attr]
        for number in range(start // chunk, -(-stop // chunk)):
            first, path = number * chunk, str(self.place / part_name(number))
            with decoding(lambda reason: self.broken(f"has damaged ids ({reason})", path)):  # noqa: B023
                with self._opened(number) as file:
                    table = file.read_row_group(0, columns=[facts.name], use_threads=False)
                ids = canonical(table.column(facts.name), facts.name, path, first)
            low = max(start - first, 0)
            parts.append(ids.slice(low, min(stop - first, chunk) - low))
        self.check_unchanged()
        return pa.concat_arrays(parts) if parts else pa.array([], self.header.ids.type)  # type: ignore[union-attr]

    @contextmanager
    def _opened(self, number: int) -> Iterator[Any]:
        """Yield a Parquet file. Its footer is compared with its checksum, and pages with theirs when read.

        Arrow may crash on a damaged footer.
        """
        from pyarrow import parquet

        header, path = self.header, local_path(str(self.place / part_name(number)))
        n_rows = min(header.chunk_rows, header.n_objects - number * header.chunk_rows)
        if not path.exists():
            raise ValueError(f"{path.name} is missing")
        if zlib.crc32(footer_of(path)) != self.body["footers"][number]:
            raise ValueError(f"{path.name} has a damaged footer")
        with parquet.ParquetFile(path, page_checksum_verification=True, pre_buffer=False) as file:
            group = file.metadata.row_group(0)
            if file.num_row_groups != 1 or group.num_rows != n_rows:
                raise ValueError(f"{path.name} has other rows")
            yield file

    def verify(self) -> int:
        """Read everything and compare it with the head; return the number of chunks.

        Refuses other files beside those of an ensemble in Parquet.
        """
        header = self.header
        self.categories()
        n_labeled = np.zeros(len(header.names), np.int64)
        present = [np.zeros(k, bool) for k in header.n_clusters]
        blocks = row_blocks(header.n_objects, header.chunk_rows)
        for block in blocks:
            rows = self.read(block.start, block.stop)
            n_labeled += np.count_nonzero(observed(rows, header.offsets), axis=0)
            if header.is_soft:
                sums = np.add.reduceat(rows, header.offsets[:-1], axis=1, dtype=np.float64)
                if (np.minimum(np.abs(sums - 1.0), np.abs(sums)) > SUM_TOLERANCE).any():
                    where = f"is damaged in rows {block.start} to {block.stop}"
                    raise self.broken(f"{where} (memberships of a partition do not sum to 1)")
                continue
            for u, is_present in enumerate(present):
                is_present[rows[:, u][rows[:, u] >= 0]] = True
        has_all = header.is_soft or all(is_present.all() for is_present in present)
        if not np.array_equal(n_labeled, header.n_labeled) or not has_all:
            raise self.broken("has labels that do not match the counts in its head")
        if isinstance(header.generator, StoredGenerator):
            header.generator.load()
        self.check_rest()
        part_names = {part_name(block.index) for block in blocks}
        for name in self.place.names() if self.is_parquet else ():
            if name not in part_names and not name.startswith(("_", ".")):
                fault = "is not part of the ensemble, but other readers would read it"
                raise corrupt(self.place / name, fault, "remove it.")
        return len(blocks) * -(-header.n_columns // chunk_columns(header.n_columns))


def reading_bytes(chunk_rows: int, row_bytes: int, dtype: np.dtype, n_threads: int) -> int:
    """Return the buffers that reading an array of such rows leaves behind, in as many threads.

    glibc retains for each thread what it freed: a chunk and its compressed form, about 1.5 chunks together.
    Of rows that span several chunks, a few are read at a time.
    """
    columns = row_bytes // dtype.itemsize
    at_once = min(-(-columns // chunk_columns(columns)), AT_ONCE)
    return n_threads * at_once * chunk_rows * chunk_columns(columns) * dtype.itemsize * 3 // 2


def _column_maxima(block: np.ndarray) -> np.ndarray:
    """Return the maximum of each column; folds rows first, because long rows reduce much faster."""
    (n_rows, n_columns), n_folded = block.shape, 256
    if n_rows < 2 * n_folded:
        return block.max(axis=0)
    n_whole = n_rows - n_rows % n_folded
    maxima = block[:n_whole].reshape(-1, n_folded * n_columns).max(axis=0).reshape(n_folded, n_columns)
    return np.maximum(maxima.max(axis=0), block[n_whole:].max(axis=0, initial=MISSING))


def _whole_numbers(column: Any) -> np.ndarray:
    """Return an Arrow array of integers, -1 where it is null."""
    validity, content = column.buffers()
    dtype = np.dtype(column.type.to_pandas_dtype())
    values = np.frombuffer(content, dtype, len(column), column.offset * dtype.itemsize)
    if column.null_count == 0:
        return values
    packed, n_bits = np.frombuffer(validity, np.uint8), column.offset + len(column)
    bits = np.unpackbits(packed, count=n_bits, bitorder="little")
    return np.where(bits[column.offset :].view(bool), values, dtype.type(MISSING))


# Writing


def part_name(number: int) -> str:
    """Return the name of the Parquet file of a chunk of rows."""
    return f"part-{number:05}.parquet"


def write_store(path: StorePath, content: Content, overwrite: bool) -> None:
    """Store a content as a new ensemble, in Parquet if the suffix says so."""
    with new_store(path, overwrite, KIND) as folder:
        write_ensemble(folder, content, is_parquet=names_parquet(path))


def write_ensemble(folder: Place, content: Content, *, is_parquet: bool) -> None:
    """Write an ensemble to the empty folder of a store, block by block.

    Raises InvalidInputError unless there are as many rows as the header says.
    """
    header, categories = content.header, content.categories
    if is_parquet and header.is_soft:
        raise InvalidInputError("soft clusterings are not stored in Parquet; store them as .zarr.")
    body: dict[str, Any] = {
        "n_objects": header.n_objects,
        "names": header.names,
        "n_clusters": header.n_clusters.tolist(),
        "n_labeled": header.n_labeled,
        "dtype": header.dtype.name,
        "chunk_rows": header.chunk_rows,
        "provenance": header.provenance,
        "ids": None if header.ids is None else header.ids.facts._asdict(),
        "footers": [] if is_parquet else None,
    }
    label_sums, id_sums, prefix = ChunkSums(), ChunkSums(), "_" if is_parquet else ""
    if is_parquet:
        write = _parts_writer(folder, header, categories, body["footers"])
    else:
        ((name, array),) = arrays_of(KIND, body).items()
        stored = StoredArray.create(folder / name, array)
    start = total = 0
    with progress("labels to the store", header.n_objects) as listener:
        for number, rows in enumerate(rechunk(content.blocks, header.chunk_rows)):
            block = rows.astype(header.dtype, copy=False)
            if is_parquet:
                total += write(number, block)
            else:
                label_sums |= stored.write(start, block)
            start += len(block)
            listener.advance(len(block))
    if start != header.n_objects:
        raise InvalidInputError(
            f"labels has {start:,} objects but {header.n_objects:,} before; pass labels that do not change."
        )
    if header.ids is not None and not is_parquet:
        id_sums = write_ids(folder, header.ids, header.n_objects, header.chunk_rows)[1]
    values = [None if labels is None else labels.tolist() for labels in categories]
    data = b"" if all(labels is None for labels in values) else json.dumps(values).encode()
    generator = b"" if header.generator is None else header.generator.to_bytes()
    files = {f"{prefix}categories.json": data, f"{prefix}generator.npz": generator}
    seals = {"digest": digest_text(total), "crc32c": {}} if is_parquet else seals_of(label_sums, id_sums)
    write_head(folder, KIND, body | seals | {"files": write_files(folder, files)}, parquet=is_parquet)


def _parts_writer(
    folder: Place, header: Header, categories: Categories, footers: list[int]
) -> Callable[[int, np.ndarray], int]:
    """Return the function that writes a chunk of rows, by its number, and their ids as a Parquet file.

    It appends the CRC-32 of the file's footer, which has the digests of both, to ``footers``, and returns
    the digest of the rows.
    """
    import pyarrow as pa
    from pyarrow import parquet

    schema, ids = _schema_of(header, categories), header.ids

    def write(number: int, block: np.ndarray) -> int:
        path = local_path(str(folder / part_name(number)))
        start = number * header.chunk_rows
        columns = [] if ids is None else [ids.read(start, start + len(block))]
        digest, id_digest = header.digest(Block(number, start, 0), block), digest_of_ids(columns)[0]
        marked = schema.with_metadata({"bigcons": f"{digest_text(digest)} {id_digest}"})
        for codes, values in zip(np.ascontiguousarray(block.T), categories, strict=True):
            missing = codes < 0
            if values is None:
                columns.append(pa.array(codes, mask=missing))
            elif values.dtype == object:
                indices = pa.array(codes.astype(np.int32), mask=missing)
                columns.append(pa.DictionaryArray.from_arrays(indices, pa.array(values, pa.string())))
            else:
                columns.append(pa.array(values.astype(np.int64)[codes], mask=missing))
        options: dict[str, Any] = {"compression": "zstd", "use_dictionary": header.names}
        options |= {"write_statistics": False, "write_page_checksum": True}
        with parquet.ParquetWriter(path, marked, **options) as writer:
            table = pa.Table.from_arrays(columns, schema=marked)
            writer.write_table(table, row_group_size=max(len(block), 1))
        footers.append(zlib.crc32(footer_of(path)))
        return digest

    return write


def _schema_of(header: Header, categories: Categories) -> Any:
    """Return the columns of Parquet files: ids, and labels as they were given."""
    import pyarrow as pa

    codes, text = pa.from_numpy_dtype(header.dtype), pa.dictionary(pa.int32(), pa.string())
    fields = [
        (name, codes if values is None else text if values.dtype == object else pa.int64())
        for name, values in zip(header.names, categories, strict=True)
    ]
    if header.ids is not None:
        name = header.ids.facts.name
        if name in header.names:
            raise InvalidInputError(
                f"the ids have the name of the partition {name!r}, but columns of Parquet need different "
                "ones; rename one of them, or store the ensemble as .zarr."
            )
        fields.insert(0, (name, header.ids.type))
    return pa.schema(fields)
