"""Ids in a store: an array of numbers, or the text of all ids and where each of them ends.

Rows have the chunks of the store's other arrays. Whole chunks are read, each of which is compared with its
checksum in the manifest.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bigcons.disk.arrays import create_array, open_declared
from bigcons.disk.interface import Place
from bigcons.disk.reading import decoding
from bigcons.disk.schema import IDS
from bigcons.errors import CorruptStoreError, InvalidIdsError
from bigcons.io.ids import (
    NUMBERS,
    TEXT,
    Digest,
    HeldIds,
    IdFacts,
    Ids,
    parts_of,
    regrouped,
    scan_ids,
)
from bigcons.io.intake import open_table
from bigcons.io.memory import ColumnsTable, index_frame
from bigcons.io.select import INDEX
from bigcons.memory import BLOCK_ROWS
from bigcons.store.display import import_pandas
from bigcons.validation import check_int

_TEXT_CHUNK = 1 << 20
_RESTORE = "restore the store from a copy."


def ids_of(source: Any) -> Ids | None:
    """Return the ids of an ensemble, or an array or column of ids; None stays."""
    if source is None or isinstance(source, Ids):
        return source
    if hasattr(source, "id_column"):
        return source.id_column
    name = getattr(source, "name", None)
    if hasattr(source, "nlevels"):  # an index of pandas
        table = open_table(index_frame(source, "ids"), "ids")
    elif hasattr(source, "to_frame"):  # a column of pandas or polars
        table = open_table(source.to_frame(), "ids")
    elif hasattr(source, "null_count"):
        import pyarrow as pa

        table = open_table(pa.table({"id": source}), "ids")
    else:
        values = np.asarray(source)
        table = ColumnsTable([values], len(values))
        table.where = "ids"
    return scan_ids(table, str(name) if name else "id", is_index=hasattr(source, "nlevels")).hold()


def as_index(ids: Ids | None) -> Any:
    """Return ids as an index of pandas, in the type that they came in; None without ids."""
    if ids is None:
        return None
    values = ids.as_they_came(ids.hold().values).to_pandas()
    return import_pandas().Index(values, name=None if ids.facts.name == INDEX else ids.facts.name)


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


def array_names(dtype: str, suffix: str) -> dict[str, str]:
    """Return the arrays that ids of a type have, and their names in a store."""
    return {name: name + suffix for name in (("id_ends", "id_text") if dtype == TEXT else ("ids",))}


def write_ids(folder: Place, suffix: str, ids: Ids, n_objects: int, chunk_rows: int) -> dict[str, Any]:
    """Write ids block by block and return their entry of the manifest; arrays are named with a suffix."""
    facts = ids.facts
    if ids.n_objects != n_objects:
        raise InvalidIdsError(
            f"there are {ids.n_objects:,} ids {facts.name!r} but {n_objects:,} objects; pass one for each.",
            column=facts.name,
        )
    is_text = facts.dtype == TEXT
    sizes = {"n_objects": n_objects, "n_id_bytes": facts.n_bytes}
    arrays = {}
    for name, stored_name in array_names(facts.dtype, suffix).items():
        spec = IDS[name]
        chunks = (min(_TEXT_CHUNK, facts.n_bytes) if name == "id_text" else min(chunk_rows, n_objects),)
        dtype = facts.dtype if name == "ids" else spec.dtypes[0]
        arrays[name] = create_array(folder / stored_name, spec, spec.shape_in(sizes), chunks, dtype)
    start = n_text = n_written = 0
    text = bytearray()
    checksums = []
    for block in ids.blocks(chunk_rows):
        values, content = parts_of(block, n_text)
        arrays["id_ends" if is_text else "ids"][start : start + len(block)] = values
        checksums.append(zlib.crc32(content.data, zlib.crc32(values.data)))
        start += len(block)
        n_text += len(content)
        text += content.tobytes()
        if is_text and (whole := len(text) if start == n_objects else len(text) - len(text) % _TEXT_CHUNK):
            arrays["id_text"][n_written : n_written + whole] = np.frombuffer(bytes(text[:whole]), np.uint8)
            n_written += whole
            del text[:whole]
    return {**facts._asdict(), "checksums": checksums}


class StoredIds(Ids):
    """The ids of a store."""

    def __init__(
        self, data: Place, suffix: str, entry: Mapping[str, Any], n_objects: int, chunk_rows: int
    ) -> None:
        """Open the arrays; raises KeyError, TypeError or ValueError for an entry that is inconsistent."""
        self._opened_with = (data, suffix, entry, n_objects, chunk_rows)
        self.take(data, entry, n_objects, chunk_rows)
        sizes = {"n_objects": n_objects, "n_id_bytes": self.facts.n_bytes}
        self._arrays = {
            name: open_declared(
                data / stored_name,
                IDS[name].shape_in(sizes),
                self.facts.dtype if name == "ids" else IDS[name].dtypes[0],
                _RESTORE,
            )
            for name, stored_name in array_names(self.facts.dtype, suffix).items()
        }

    def take(self, data: Place, entry: Mapping[str, Any], n_objects: int, chunk_rows: int) -> None:
        """Set what the entry of a manifest says; raises KeyError, TypeError or ValueError if inconsistent."""
        self.facts: IdFacts = IdFacts(
            str(entry["name"]),
            str(entry["type"]),
            bool(entry["is_index"]),
            str(entry["dtype"]),
            check_int("n_bytes", entry["n_bytes"]),
            str(entry["digest"]),
        )
        self.n_objects: int = n_objects
        self.chunk_rows: int = chunk_rows
        self._place = data
        self._entry = entry
        self._checksums = [int(checksum) for checksum in entry["checksums"]]
        if self.facts.dtype not in (TEXT, *NUMBERS):
            raise ValueError(f"ids of type {self.facts.dtype!r}")
        if len(self._checksums) != math.ceil(n_objects / chunk_rows):
            raise ValueError("the number of checksums of the ids")

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredIds, self._opened_with

    def blocks(self, rows: int = BLOCK_ROWS) -> Iterator[Any]:
        """Yield the ids chunk by chunk, regrouped."""
        chunks = (self._chunk(number) for number in range(len(self._checksums)))
        yield from regrouped(chunks, rows)

    def read(self, start: int, stop: int) -> Any:
        """Return the ids of a range of rows."""
        import pyarrow as pa

        kind = pa.large_string() if self.facts.dtype == TEXT else pa.type_for_alias(self.facts.dtype)
        if start == stop:
            return pa.array([], kind)
        first, last = start // self.chunk_rows, (stop - 1) // self.chunk_rows
        chunks = pa.concat_arrays([self._chunk(number) for number in range(first, last + 1)])
        return chunks.slice(start - first * self.chunk_rows, stop - start)

    def verify(self) -> None:
        """Read all ids and compare them with the manifest."""
        digest = Digest()
        for block in self.blocks():
            digest.add(block)
        if digest.value != self.facts.digest:
            raise self._broken(0, self.n_objects, "differ from their digest")

    def _chunk(self, number: int) -> Any:
        """Return the ids of one chunk of rows, which have been checked."""
        start = number * self.chunk_rows
        stop = min(start + self.chunk_rows, self.n_objects)
        with decoding(lambda reason: self._broken(start, stop, f"cannot be read ({reason})")):
            return self._decoded(number, start, stop)

    def _decoded(self, number: int, start: int, stop: int) -> Any:
        """Return the ids of one chunk and compare them with its checksum."""
        import pyarrow as pa

        if self.facts.dtype != TEXT:
            values = np.ascontiguousarray(self._arrays["ids"][start:stop])
            self._check(number, values, np.empty(0, np.uint8))
            return pa.array(values)
        ends = np.ascontiguousarray(self._arrays["id_ends"][max(start - 1, 0) : stop])
        if start == 0:
            ends = np.concatenate([np.zeros(1, np.int64), ends])
        if ends[0] < 0 or ends[-1] > self.facts.n_bytes or (np.diff(ends) < 1).any():
            raise ValueError("ends of ids that do not ascend")
        content = np.ascontiguousarray(self._arrays["id_text"][int(ends[0]) : int(ends[-1])])
        self._check(number, np.ascontiguousarray(ends[1:]), content)
        buffers = [pa.py_buffer(np.ascontiguousarray(ends - ends[0])), pa.py_buffer(content)]
        found = pa.LargeStringArray.from_buffers(stop - start, *buffers)
        found.validate(full=True)
        return found

    def _check(self, number: int, values: np.ndarray, text: np.ndarray) -> None:
        if zlib.crc32(text.data, zlib.crc32(values.data)) != self._checksums[number]:
            start = number * self.chunk_rows
            raise self._broken(
                start, min(start + self.chunk_rows, self.n_objects), "differ from their checksum"
            )

    def _broken(self, start: int, stop: int, what: str) -> CorruptStoreError:
        return CorruptStoreError(
            f"{self._place}: the ids of rows {start} to {stop} {what}; {_RESTORE}", path=self._place
        )


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
