"""Ids in a store: an array of numbers, or the text of all ids and where each of them ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.disk.arrays import StoredArray
from bigcons.disk.files import Place, corrupt, decoding
from bigcons.disk.schema import TEXT_CHUNK, id_arrays
from bigcons.errors import InvalidIdsError
from bigcons.io.batches import ColumnsSource, index_frame
from bigcons.io.columns import INDEX
from bigcons.io.ids import NUMBERS, TEXT, Digest, HeldIds, IdFacts, Ids, parts_of, regrouped, scan_ids
from bigcons.io.sources import open_source
from bigcons.memory import BLOCK_ROWS, row_blocks
from bigcons.validation import check_int

if TYPE_CHECKING:
    from bigcons.store.store import Store


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
