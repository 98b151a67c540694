"""A store of any kind, open for reading: its head, arrays, files and ids.

Ids are an array of numbers, or the text of all ids and where each of them ends.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from bigcons.disk.arrays import (
    MAX_CHUNK_BYTES,
    METADATA,
    StoredArray,
    digest_text,
    read_metadata,
    refuse_link,
    rows_digest,
)
from bigcons.disk.commit import Head, head_of, read_head
from bigcons.disk.files import MOST_BYTES, Place, corrupt, decoding
from bigcons.disk.schema import TEXT_CHUNK, arrays_of, check_body, id_arrays
from bigcons.errors import CorruptStoreError, InvalidIdsError, StoreError, StoreNotFoundError
from bigcons.io.batches import ColumnsSource, index_frame
from bigcons.io.columns import INDEX
from bigcons.io.ids import NUMBERS, TEXT, Digest, HeldIds, IdFacts, Ids, parts_of, regrouped, scan_ids
from bigcons.io.sources import open_source
from bigcons.memory import BLOCK_ROWS, Block, row_blocks
from bigcons.validation import check_int

INCONSISTENT = (LookupError, TypeError, ValueError, AttributeError, OverflowError)
"""What reading a body raises that is not consistent."""

Made = TypeVar("Made")


@contextmanager
def consistent(place: Place, remedy: str) -> Iterator[None]:
    """Raise CorruptStoreError for what is inconsistent in a head."""
    try:
        yield
    except INCONSISTENT as error:
        raise corrupt(place, f"has an inconsistent head ({error})", remedy) from error


class Store:
    """A store that is open for reading; thread-safe, and pickled as its path.

    Attributes: ``place``, ``data`` (the folder of its arrays and files), ``body`` (of its head), ``ids``.
    """

    def __init__(self, place: Place, kind: str, remedy: str) -> None:
        """Open the store at ``place``; ``remedy`` says what to do if it is damaged.

        Raises StoreNotFoundError if there is none of this kind, CorruptStoreError if its head is damaged.
        """
        self._opened_with = (place, kind, remedy)
        self.place: Place = place
        self.remedy: str = remedy
        self._file = head_of(place)
        self._stamp: Hashable = self._file.stamp()
        head = read_head(place, kind)
        self.head: Head = head
        self.data: Place = head.data
        self.body: dict[str, Any] = head.body
        self.ids: StoredIds | None = None
        with consistent(place, remedy):
            check_body(kind, head.body)
            arrays = {} if head.is_parquet else arrays_of(kind, head.body)
            for name, array in arrays.items():
                n_bytes = int(np.prod(array.chunks, dtype=object)) * np.dtype(array.dtype).itemsize
                if n_bytes > MAX_CHUNK_BYTES or array.shape[0] > array.chunks[0] << 24:
                    raise ValueError(f"the size or number of chunks of {name}")
            self._names = list(arrays)
            if any("/" in name for name in head.body.get("files", {})):
                raise ValueError("files outside the store")
            if (ids := head.body.get("ids")) is not None:
                self.ids = StoredIds(self)
                if not head.is_parquet:
                    sizes = (ids["n_bytes"], head.body["n_objects"], head.body["chunk_rows"])
                    arrays |= id_arrays(ids["dtype"], *sizes)
        self.arrays: dict[str, StoredArray] = {
            name: StoredArray(self.data / name, array) for name, array in arrays.items()
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return Store, self._opened_with

    def column(self, name: str) -> Column:
        """Return an array that is read when sliced."""
        return Column(self, name, self.arrays[name].shape, self.arrays[name].dtype)

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Return entries, or rows, of an array.

        Raises CorruptStoreError for the first chunk that is damaged or missing, and StoreError if the store
        has changed since it was opened.
        """
        try:
            with decoding(lambda reason: self.broken(name, start, stop, f"cannot be read ({reason})")):
                values = self.arrays[name].read(start, stop)
        except CorruptStoreError:
            self.check_unchanged()
            at_once = self.arrays[name].array.chunks[0]
            if (stop - 1) // at_once > start // at_once:
                for first in range(start - start % at_once, stop, at_once):
                    self.read(name, max(first, start), min(first + at_once, stop))
            raise
        self.check_unchanged()
        return values

    def check_unchanged(self) -> None:
        """Raise StoreError if the store has changed since it was opened: what was read may be old or new."""
        if self._file.stamp() != self._stamp:
            raise StoreError(f"{self.place} has changed since it was opened; open it again.", path=self.place)

    def broken(self, name: str, start: int, stop: int, what: str) -> CorruptStoreError:
        """Return the error of damaged entries of an array, or of all arrays of the same objects."""
        part = "rows" if "object" in self.arrays[name].array.dims else name
        return CorruptStoreError(
            f"{self.place}: {part} {start} to {stop} {what}; {self.remedy}", path=self.place
        )

    def checked_chunks(self) -> Iterator[tuple[str, int, np.ndarray]]:
        """Yield the rows of chunks of all arrays: name, first row and values.

        Afterwards everything has been read, and is what was written; raises CorruptStoreError if it is not.
        """
        total = 0
        for name in self._names:
            stored = self.arrays[name]
            for block in row_blocks(stored.shape[0], stored.array.chunks[0]):
                values = self.read(name, block.start, block.stop)
                total += rows_digest(name, block.index, values, stored.array.chunks)
                yield name, block.start, values
        self.check_digest(total)

    def check_digest(self, total: int) -> None:
        """Compare a digest of all arrays, and what is besides them, with the head; refuse symbolic links."""
        if digest_text(total) != self.body["digest"]:
            raise corrupt(self.place, "has a chunk that is not the one that was written there", self.remedy)
        if self.ids is not None:
            self.ids.verify()
        for stored in self.arrays.values():  # which other tools read
            with suppress(StoreNotFoundError):
                if read_metadata(stored.place) == stored.array.metadata():
                    continue
            raise corrupt(stored.place / METADATA, "is not as the head says", self.remedy)
        for name in self.body.get("files", {}):
            self.read_file(name)
        for link in self.place.links():
            refuse_link(link)

    def read_file(self, name: str, at_most: int = MOST_BYTES) -> bytes:
        """Return a file besides the arrays; raises CorruptStoreError if it does not have its checksum."""
        file = self.data / name
        try:
            content = bytes(file.read(at_most))
        except FileNotFoundError:
            self.check_unchanged()
            raise corrupt(file, "is missing", self.remedy) from None
        if zlib.crc32(content) != self.body["files"].get(name):
            self.check_unchanged()
            raise corrupt(file, "is damaged (wrong checksum)", self.remedy)
        return content

    def read_parts(self, name: str, of: Callable[[dict[str, Any], dict[str, np.ndarray]], Made]) -> Made:
        """Return what ``of`` makes of facts and arrays in a file; raises CorruptStoreError if it cannot."""
        data = self.read_file(name)
        try:
            return of(*unpacked_parts(data))
        except (*INCONSISTENT, EOFError, RecursionError) as error:
            raise corrupt(self.data / name, f"is damaged ({error})", self.remedy) from None


def packed_parts(facts: Any, arrays: dict[str, np.ndarray]) -> bytes:
    """Return JSON values and arrays as one .npz archive, the same bytes for the same content."""
    text = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    file = io.BytesIO()
    np.savez(file, facts=text, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def unpacked_parts(data: bytes) -> tuple[Any, dict[str, np.ndarray]]:
    """Return what `packed_parts` packed; raises KeyError or ValueError for anything else. No pickles."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, zipfile.BadZipFile, NotImplementedError, zlib.error) as error:
        raise ValueError(str(error)) from None
    return json.loads(arrays.pop("facts").tobytes()), arrays


def write_files(folder: Place, files: Mapping[str, bytes]) -> dict[str, int]:
    """Write files besides the arrays, but empty ones; return their checksums, as the head has them."""
    for name, data in files.items():
        if data:
            (folder / name).write(data)
    return {name: zlib.crc32(data) for name, data in files.items() if data}


class Objects:
    """What has a row for each object and is read block by block: ensembles, pairs, consensuses, features."""

    n_objects: int
    id_column: Ids | None = None
    """What identifies the objects, block by block; None if they have no ids."""

    @property
    def id_name(self) -> str | None:
        """Name of the column that identifies the objects; None if they have no ids."""
        return None if self.id_column is None else self.id_column.facts.name


def reopened(kind: Any, *given: Any) -> Any:
    """Open a store where it is unpickled: a class method would be pickled as its bytecode."""
    return kind.open(*given)


# Arrays that are read when sliced, or when they are computed


@dataclass(frozen=True)
class Column:
    """An array of a store that is read when sliced, so that it is never in memory as a whole."""

    source: Store
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype

    def __getitem__(self, rows: Any) -> np.ndarray:
        part, *columns = rows if isinstance(rows, tuple) else (rows,)
        start, stop, _ = part.indices(self.shape[0])
        found = self.source.read(self.name, start, stop)
        return found[(slice(None), *columns)] if columns else found


def dask_rows(
    read: Callable[[int, int], np.ndarray],
    blocks: Sequence[Block],
    row_shape: tuple[int, ...],
    dtype: np.dtype,
) -> Any:
    """Return the dask array of what ``read(start, stop)`` gives, one chunk per block of rows."""
    import dask.array
    from dask.delayed import delayed

    later = delayed(read, pure=True)
    chunks = [
        dask.array.from_delayed(later(block.start, block.stop), (block.n_rows, *row_shape), dtype)
        for block in blocks
    ]
    return dask.array.concatenate(chunks)


# Ids


def ids_of(source: Any) -> Ids | None:
    """Return the ids of an ensemble, or an array or column of ids; None stays."""
    if source is None or isinstance(source, Ids):
        return source
    if hasattr(source, "id_column"):
        return source.id_column
    name = getattr(source, "name", None)
    if hasattr(source, "nlevels"):  # an index of pandas
        table = open_source(index_frame(source, "ids"), "ids")
    elif hasattr(source, "to_frame"):  # a column of pandas or polars
        table = open_source(source.to_frame(), "ids")
    elif hasattr(source, "null_count"):
        import pyarrow as pa

        table = open_source(pa.table({"id": source}), "ids")
    else:
        values = np.asarray(source)
        table = ColumnsSource([values], len(values))
        table.where = "ids"
    return scan_ids(table, str(name) if name else "id", is_index=hasattr(source, "nlevels")).hold()


def id_array(ids: Ids) -> np.ndarray:
    """Return all ids as an array ``(n_objects,)`` of numbers, or text as objects."""
    found: np.ndarray = ids.hold().values.to_numpy(zero_copy_only=False)
    return found


def ids_first(columns: dict[str, Any], ids: Ids, values: Any) -> dict[str, Any]:
    """Return columns of some objects, and first the ``values`` of their ids, as these came."""
    name = ids.facts.name
    return {"id" if name in columns else name: ids.as_they_came(values), **columns}


def data_frame(table: Any, ids: Ids | None) -> Any:
    """Return an Arrow table as a pandas data frame; its first column is its index if the ids were one."""
    found = table.to_pandas()
    if ids is None or not ids.facts.is_index:
        return found
    name = table.column_names[0]
    return found.set_index(name).rename_axis(None if name == INDEX else name)


def ids_at(ids: Ids, rows: np.ndarray) -> HeldIds:
    """Return the ids of some objects in memory; reads all."""
    import pyarrow as pa

    order = np.argsort(rows, kind="stable")
    parts, start = [], 0
    for block in ids.blocks():
        low, high = np.searchsorted(rows, (start, start + len(block)), sorter=order)
        parts.append(block.take(pa.array(rows[order[low:high]] - start)))
        start += len(block)
    return HeldIds.of(pa.concat_arrays(parts).take(pa.array(np.argsort(order))), ids.facts)


def write_ids(folder: Place, ids: Ids, n_objects: int, chunk_rows: int) -> tuple[dict[str, Any], list[str]]:
    """Write ids block by block; return their entry of the head, and the names of their arrays."""
    facts = ids.facts
    if ids.n_objects != n_objects:
        raise InvalidIdsError(
            f"there are {ids.n_objects:,} ids {facts.name!r} but {n_objects:,} objects; pass one for each.",
            column=facts.name,
        )
    arrays = {
        name: StoredArray.create(folder / name, array)
        for name, array in id_arrays(facts.dtype, facts.n_bytes, n_objects, chunk_rows).items()
    }
    start = n_text = n_written = 0
    text = bytearray()
    for block in ids.blocks(chunk_rows):
        values, content = parts_of(block, n_text)
        next(iter(arrays.values())).write(start, values)
        start += len(block)
        n_text += len(content)
        text += content.tobytes()
        whole = len(text) if start == n_objects else len(text) - len(text) % TEXT_CHUNK
        if facts.dtype == TEXT and whole:
            arrays["id_text"].write(n_written, np.frombuffer(bytes(text[:whole]), np.uint8))
            n_written += whole
            del text[:whole]
    return facts._asdict(), list(arrays)


class StoredIds(Ids):
    """The ids of a store: arrays of it, or a column of its Parquet files."""

    def __init__(self, store: Store) -> None:
        """Take what the head says; raises KeyError, TypeError or ValueError if that is inconsistent."""
        entry = store.body["ids"]
        self._store = store
        self.n_objects: int = store.body["n_objects"]
        self.chunk_rows: int = store.body["chunk_rows"]
        self.facts: IdFacts = IdFacts(
            str(entry["name"]),
            str(entry["type"]),
            bool(entry["is_index"]),
            str(entry["dtype"]),
            check_int("n_bytes", entry["n_bytes"]),
            str(entry["digest"]),
        )
        if self.facts.dtype not in (TEXT, *NUMBERS):
            raise ValueError(f"ids of type {self.facts.dtype!r}")

    def blocks(self, rows: int = BLOCK_ROWS) -> Iterator[Any]:
        """Yield the ids chunk by chunk, regrouped."""
        chunks = (self.read(b.start, b.stop) for b in row_blocks(self.n_objects, self.chunk_rows))
        yield from regrouped(chunks, rows)

    def read(self, start: int, stop: int) -> Any:
        """Return the ids of a range of rows; raises CorruptStoreError if they are damaged."""
        import pyarrow as pa

        if self.facts.dtype != TEXT:
            return pa.array(self._store.read("ids", start, stop))
        if start == stop:
            return pa.array([], pa.large_string())
        ends = self._store.read("id_ends", max(start - 1, 0), stop)
        if start == 0:
            ends = np.concatenate([np.zeros(1, np.int64), ends])
        with decoding(
            lambda reason: self._store.broken("id_ends", start, stop, f"have damaged ids ({reason})")
        ):
            if ends[0] < 0 or ends[-1] > self.facts.n_bytes or (np.diff(ends) < 1).any():
                raise ValueError("their ends do not ascend")
            content = self._store.read("id_text", int(ends[0]), int(ends[-1]))
            buffers = [pa.py_buffer(np.ascontiguousarray(ends - ends[0])), pa.py_buffer(content)]
            found = pa.LargeStringArray.from_buffers(stop - start, *buffers)
            found.validate(full=True)
        return found

    def verify(self) -> None:
        """Read all ids and compare them with the head."""
        digest = Digest()
        for block in self.blocks():
            digest.add(block)
        if digest.value != self.facts.digest:
            raise corrupt(self._store.place, "has ids that differ from their digest", self._store.remedy)


class AppendedIds(Ids):
    """The ids of a store or table, followed by those of another."""

    def __init__(self, first: Ids, second: Ids) -> None:
        digest = Digest()
        self.n_objects: int = first.n_objects + second.n_objects
        self._both = (first, second)
        for block in self._parts():
            digest.add(block)
        n_bytes = first.facts.n_bytes + second.facts.n_bytes
        self.facts: IdFacts = first.facts._replace(n_bytes=n_bytes, digest=digest.value)

    def blocks(self, rows: int = BLOCK_ROWS) -> Iterator[Any]:
        """Yield the first and then the second ones."""
        yield from regrouped(self._parts(), rows)

    def _parts(self) -> Iterator[Any]:
        for ids in self._both:
            yield from ids.blocks()
