"""What stores of all kinds share: heads, arrays, files and ids, and exports.

Ids are an array of numbers, or the text of all ids and where each of them ends.
"""

from __future__ import annotations

import csv
import io
import math
import os
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from typing import IO, Any, TypeVar

import numpy as np

from bigcons import errors
from bigcons.disk import arrays as disk_arrays
from bigcons.disk.commit import Head, head_of, new_file, read_head
from bigcons.disk.files import MOST_BYTES, Place, StorePath, corrupt, decoding, unpack
from bigcons.disk.places import local_path
from bigcons.disk.schema import arrays_of, check_body, id_arrays
from bigcons.io.columns import INDEX, NUMBERS, TEXT, IdFacts, Ids, parts_of, scan_ids
from bigcons.io.sources import as_table, open_source
from bigcons.memory import row_blocks
from bigcons.progress import progress
from bigcons.validation import check_int

Made = TypeVar("Made")


@contextmanager
def consistent(place: Place) -> Iterator[None]:
    """Raise CorruptStoreError for an inconsistent head, or an inconsistent file beside the arrays."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise corrupt(place, f"is inconsistent ({error})") from error


class Store:
    """A store that is open for reading; thread-safe, and pickled as its path and identity.

    All reads are from the store that was opened: if another takes its place, or it grows, every read raises
    StoreError, and so does its pickle. Attributes: ``place``, ``data`` (the folder of its arrays and files),
    ``body`` (of its head), ``arrays`` (none in Parquet), ``ids``.
    """

    def __init__(self, place: Place, kind: str, identity: Hashable = None) -> None:
        """Open the store at ``place``, which must have the ``identity`` unless this is None.

        Raises StoreNotFoundError if there is none of this kind, CorruptStoreError if its head is damaged, and
        StoreError if it is another.
        """
        self.place: Place = place
        self._file = head_of(place)
        self._stamp: Hashable = self._file.stamp()
        self.head: Head = read_head(place, kind)
        if identity not in (None, self.head.identity):
            raise self._changed()
        self.data: Place = self.head.data
        self.body: dict[str, Any] = self.head.body
        self.ids: StoredIds | None = None
        self.arrays: dict[str, disk_arrays.StoredArray] = {}
        with consistent(place):
            check_body(kind, self.body)
            if any("/" in name for name in self.body.get("files", {})):
                raise ValueError("files outside the store")
            arrays = {} if self.head.is_parquet else arrays_of(kind, self.body)
            self._names = list(arrays)
            if (ids := self.body.get("ids")) is not None:
                self.ids = StoredIds(self)
                if not self.head.is_parquet:
                    sizes = (ids["n_bytes"], self.body["n_objects"], self.body["chunk_rows"])
                    arrays |= id_arrays(ids["dtype"], *sizes)
            for name, array in arrays.items():
                n_bytes = int(np.prod(array.chunks, dtype=object)) * np.dtype(array.dtype).itemsize
                n_chunks = math.prod(-(-n // m) for n, m in zip(array.shape, array.chunks, strict=True))
                sums = self.body["crc32c"][name]
                if n_bytes > disk_arrays.MAX_CHUNK_BYTES or len(sums) != 8 * n_chunks:
                    raise ValueError(f"the size or number of chunks of {name}")
                self.arrays[name] = disk_arrays.StoredArray(
                    self.data / name, array, self.check_unchanged, sums
                )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.place, self.head.kind, self.head.identity)

    def check_unchanged(self) -> None:
        """Raise StoreError if the store has changed since it was opened: what was read may be old or new."""
        stamp, identity = self._file.stamp(), None
        if stamp == self._stamp:
            return
        with suppress(errors.StoreError):
            identity = read_head(self.place).identity
        if identity != self.head.identity:
            raise self._changed() from None
        self._stamp = stamp  # copied, or written anew with the same content

    def _changed(self) -> errors.StoreError:
        words = f"{self.place} has changed since it was opened; open it again."
        return errors.StoreError(words, path=self.place)

    def read_ids(self, start: int, stop: int) -> Any:
        """Return the ids of a range of rows, an Arrow array; raises CorruptStoreError if they are damaged."""
        import pyarrow as pa

        if "ids" in self.arrays:
            return pa.array(self.arrays["ids"].read(start, stop))
        if start == stop:
            return pa.array([], pa.large_string())
        ends = self.arrays["id_ends"].read(max(start - 1, 0), stop)
        if start == 0:
            ends = np.append(0, ends)
        with decoding(lambda reason: self.broken(f"has damaged ids ({reason})")):
            if ends[0] < 0 or ends[-1] > self.arrays["id_text"].shape[0] or (np.diff(ends) < 1).any():
                raise ValueError("their ends do not ascend")
            text = self.arrays["id_text"].read(int(ends[0]), int(ends[-1]))
            buffers = [pa.py_buffer(ends - ends[0]), pa.py_buffer(text)]
            ids = pa.LargeStringArray.from_buffers(stop - start, *buffers)
            ids.validate(full=True)
        return ids

    def broken(self, fault: str, where: object = None) -> errors.CorruptStoreError:
        """Return the error of a ``fault``; raises StoreError if the store has changed meanwhile."""
        self.check_unchanged()
        return corrupt(where or self.place, fault)

    def checked_chunks(self) -> Iterator[tuple[str, int, np.ndarray]]:
        """Yield the rows of chunks of all arrays: name, first row and values.

        At the end the whole store has been read, and is as it was written; else raises CorruptStoreError.
        """
        for name in self._names:
            stored = self.arrays[name]
            for block in row_blocks(stored.shape[0], stored.array.chunks[0]):
                yield name, block.start, stored.read(block.start, block.stop)
        self.check_rest()

    def check_rest(self) -> None:
        """Read the ids and the files beside the arrays, and compare the arrays' metadata with the head."""
        for _ in () if self.ids is None else self.ids.blocks():
            pass
        for stored in self.arrays.values():  # which other tools read
            with suppress(errors.StoreNotFoundError):
                if disk_arrays.read_metadata(stored.place) == stored.array.metadata():
                    continue
            raise self.broken("is not as the head says", stored.place / disk_arrays.METADATA)
        for name in self.body.get("files", {}):
            self.read_file(name)

    def read_file(self, name: str, at_most: int = MOST_BYTES) -> bytes:
        """Return a file besides the arrays; raises CorruptStoreError if it does not have its checksum."""
        file, content = self.data / name, None
        with suppress(FileNotFoundError):
            content = bytes(file.read(at_most))
        self.check_unchanged()
        if content is None or zlib.crc32(content) != self.body["files"].get(name):
            raise corrupt(file, "is missing" if content is None else "is damaged (wrong checksum)")
        return content

    def read_parts(self, name: str, make: Callable[[dict[str, Any], dict[str, np.ndarray]], Made]) -> Made:
        """Return ``make`` of the facts and arrays in a file; raises CorruptStoreError if that fails."""
        content, file = self.read_file(name), self.data / name
        with decoding(lambda reason: corrupt(file, f"is inconsistent ({reason})")):
            return make(*unpack(content))


def write_files(folder: Place, files: Mapping[str, bytes]) -> dict[str, int]:
    """Write the files beside the arrays, except empty ones; return their checksums for the head."""
    for name, data in files.items():
        if data:
            (folder / name).write(data)
    return {name: zlib.crc32(data) for name, data in files.items() if data}


class Objects:
    """What has a row for each object and is read block by block: ensembles, pairs, consensuses, features."""

    n_objects: int
    id_column: Ids | None = None
    """What identifies the objects, block by block; None if they have no ids."""
    kind: str
    """The kind of store."""
    summary: tuple[str, ...]
    """The attributes that `info` tells."""

    @property
    def id_name(self) -> str | None:
        """Name of the column that identifies the objects; None if they have no ids."""
        return None if self.id_column is None else self.id_column.facts.name

    @property
    def ids(self) -> np.ndarray | None:
        """What identifies the objects, ``(n_objects,)`` numbers or text; None if unknown. Reads the array."""
        if self.id_column is None:
            return None
        ids: np.ndarray = self.id_column.hold().values.to_numpy(zero_copy_only=False)
        return ids

    def info(self) -> dict[str, Any]:
        """Return a summary as JSON values, without reading arrays."""
        facts = {name: getattr(self, name) for name in self.summary}
        return {"kind": self.kind, **facts, "id": self.id_name}


# Ids


def ids_of(source: Any) -> Ids | None:
    """Return the ids of an ensemble, or an array or column of ids; None stays."""
    if source is None or isinstance(source, Ids):
        return source
    if hasattr(source, "id_column"):
        return source.id_column
    name = getattr(source, "name", None)
    table = open_source(as_table(source), "ids", with_ids=False)
    return scan_ids(table, str(name) if name else "id", is_index=hasattr(source, "nlevels"))


def ids_first(columns: dict[str, Any], ids: Ids, values: Any) -> dict[str, Any]:
    """Return columns of some objects, and first the ``values`` of their ids."""
    name = ids.facts.name
    return {"id" if name in columns else name: values, **columns}


def data_frame(table: Any, ids: Ids | None) -> Any:
    """Return an Arrow table as a pandas data frame; its first column is its index if the ids were one."""
    frame = table.to_pandas()
    if ids is None or not ids.facts.is_index:
        return frame
    name = table.column_names[0]
    return frame.set_index(name).rename_axis(None if name == INDEX else name)


def write_ids(
    folder: Place, ids: Ids, n_objects: int, chunk_rows: int
) -> tuple[dict[str, Any], disk_arrays.ChunkSums]:
    """Write ids block by block; return their entry of the head, and the sums of their chunks."""
    facts = ids.facts
    if ids.n_objects != n_objects:
        raise errors.InvalidIdsError(
            f"there are {ids.n_objects:,} ids {facts.name!r} but {n_objects:,} objects; pass one for each.",
            column=facts.name,
        )
    arrays = id_arrays(facts.dtype, facts.n_bytes, n_objects, chunk_rows)
    columns = {name: disk_arrays.ArrayAppender(folder / name, array) for name, array in arrays.items()}
    n_text = 0
    for block in ids.blocks(chunk_rows):
        parts = parts_of(block, n_text)  # numbers, or ends and text
        n_text += len(parts[1])
        for column, part in zip(columns.values(), parts, strict=False):
            column.append(part)
    chunk_sums: disk_arrays.ChunkSums = {}
    for name, column in columns.items():
        column.close(arrays[name])
        chunk_sums |= column.chunk_sums
    return facts._asdict(), chunk_sums


class StoredIds(Ids):
    """The ids of a store."""

    def __init__(self, store: Store) -> None:
        """Take what the head says; raises KeyError, TypeError or ValueError if that is inconsistent."""
        self._store = store
        self.n_objects: int = store.body["n_objects"]
        self.held_bytes: int = 0
        self.facts: IdFacts = IdFacts(*(store.body["ids"][name] for name in IdFacts._fields))
        check_int("n_bytes", self.facts.n_bytes)
        if self.facts.dtype not in (TEXT, *NUMBERS) or not isinstance(self.facts.name, str):
            raise ValueError(f"ids {self.facts.name!r} of type {self.facts.dtype!r}")

    def read(self, start: int, stop: int) -> Any:
        """Read the ids of a range of rows, an Arrow array."""
        return self._store.read_ids(start, stop)

    def hold(self) -> Ids:
        """Read all ids."""
        import pyarrow as pa

        return self.with_values(pa.concat_arrays([*self.blocks()]))


# Files of columns


def export_blocks(
    path: StorePath | IO[bytes], n_rows: int, blocks: Iterable[Mapping[str, Any]], *, overwrite: bool
) -> None:
    """Write blocks of columns ``(rows,)``, by name, to a file; see `Consensus.export`.

    An open file gets comma-separated values.
    """
    import pyarrow as pa
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    batches = (pa.record_batch([*columns.values()], names=[*columns]) for columns in blocks)
    with ExitStack() as stack:
        suffix, file = ".csv", path
        if isinstance(path, (str, os.PathLike)):
            suffix = local_path(path).suffix.lower()
            if suffix not in (".parquet", ".csv"):
                raise errors.InvalidInputError(f"{path} has suffix {suffix!r}; use .parquet or .csv.")
            file = stack.enter_context(new_file(path, overwrite=overwrite))
        first = next(batches)
        if suffix == ".parquet":
            labels = [field.name for field in first.schema if field.type == pa.int32()]
            layout: dict[str, Any] = {"use_dictionary": labels, "write_page_checksum": True}
            writer: Any = parquet.ParquetWriter(file, first.schema, compression="zstd", **layout)
        else:
            header = io.StringIO()
            csv.writer(header, lineterminator="\n").writerow(first.schema.names)
            file.write(header.getvalue().encode())  # type: ignore[union-attr] # pyarrow would quote all names
            options = arrow_csv.WriteOptions(include_header=False)
            writer = arrow_csv.CSVWriter(file, first.schema, write_options=options)
        stack.enter_context(writer)
        listener = stack.enter_context(progress("export", n_rows))
        for batch in chain([first], batches):
            writer.write_batch(batch)
            listener.advance(batch.num_rows)
