"""PairTable: pairs of objects with their counts of agreement, in memory or in a store.

A symmetric matrix in compressed sparse rows: every pair is in the rows of both of its objects, so that a
block of rows is self-contained. A store has the four arrays in chunks of equal length that decode fast.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bigcons.disk import commit
from bigcons.disk.arrays import ArrayAppender, ChunkSums, digest_text, rows_digest, seals_of
from bigcons.disk.files import StorePath, corrupt
from bigcons.disk.places import local_path, place_of
from bigcons.disk.schema import PAIR_COLUMNS, arrays_of
from bigcons.errors import CorruptStoreError, InvalidInputError, InvalidPairsError
from bigcons.io import sources
from bigcons.io.columns import plain_arrow
from bigcons.memory import BLOCK_ROWS, Block, DataBudget, beside_processes, row_blocks
from bigcons.progress import progress
from bigcons.store.store import Objects, Store, consistent
from bigcons.validation import check_int, check_rows

KIND = "pairs"

MAX_OBJECTS = 2**31 - 1
MAX_SEEN = 2**16 - 2

CHUNK_ENTRIES = 1 << 20
"""Entries of a chunk of a store; each pair has two."""

# Bytes of a pair and of an object while a table is built. Half more above a billion pairs.
PAIR_BYTES, OBJECT_BYTES = 60, 40

_METADATA, _STATED = b"bigcons.pairs", ("n_objects", "rows_per_block")
"""The key of the metadata of Parquet files, and what the JSON object states there."""


class Edges(NamedTuple):
    """Pairs ``i < j`` in ascending order, with their counts; four arrays ``(n_pairs,)``."""

    i: np.ndarray
    j: np.ndarray
    n_agree: np.ndarray
    n_seen: np.ndarray


class Rows(NamedTuple):
    """Compressed sparse rows: row ``r`` is at ``indptr[r]:indptr[r + 1]`` of the other three."""

    indptr: np.ndarray
    indices: np.ndarray
    n_agree: np.ndarray
    n_seen: np.ndarray


class PairTable(Objects):
    """Pairs of objects, with the number of partitions that cluster them together and that label both.

    Stored as compressed sparse rows: row ``r`` has the neighbors ``indices[indptr[r]:indptr[r + 1]]`` in
    ascending order, with their counts at the same positions; every pair is in the rows of both of its
    objects. ``indptr`` ``(n_objects + 1,)`` int64; ``indices`` ``(2 n_pairs,)`` int32; ``n_agree`` and
    ``n_seen`` ``(2 n_pairs,)`` uint8 or, for counts above 254, uint16. Pairs that no partition
    labels at both ends carry no information and are omitted.

    A stored table is read on demand: ``read`` reads a range of rows, the four attributes read everything.
    ``provenance`` records the source of the table and how it was made. ``rows_per_block`` is set if the pairs
    were sampled in tiles: the rows of one such block then have neighbors in a few blocks only.

    Examples
    --------
    >>> import bigcons as bc
    >>> pairs = bc.coassociation.count([[0, 0], [0, 1], [1, 1]], i=[0, 1], j=[1, 2])
    >>> pairs.n_agree, pairs.n_seen
    (array([1, 1, 1, 1], dtype=uint8), array([2, 2, 2, 2], dtype=uint8))
    >>> _ = pairs.save("pairs.zarr")
    >>> bc.PairTable.open("pairs.zarr").n_objects
    3
    """

    kind: str = KIND
    summary: tuple[str, ...] = ("path", "n_objects", "n_pairs", "rows_per_block", "provenance")

    def __init__(
        self, rows: Rows, provenance: Mapping[str, Any] | None = None, stored: Store | None = None
    ) -> None:
        self.path: str | None = str(stored.place) if stored else None
        self.provenance: dict[str, Any] = dict(provenance or {})
        self.n_objects: int = rows.indptr.shape[0] - 1
        self.n_pairs: int = rows.indices.shape[0] // 2
        self._columns = rows
        self._chunk_entries: int = stored.body["chunk_entries"] if stored else CHUNK_ENTRIES
        self._store = stored
        self.rows_per_block: int | None = stored.body["rows_per_block"] if stored else None

    @classmethod
    def from_arrays(
        cls,
        i: Any,
        j: Any,
        n_agree: Any,
        n_seen: Any,
        *,
        n_objects: int,
        provenance: Mapping[str, Any] | None = None,
    ) -> PairTable:
        """Create a table from pairs ``(i[p], j[p])``, each given once, in any order and orientation.

        The four columns are ``(n_pairs,)`` integers with ``0 <= i, j < n_objects``, ``i != j`` and
        ``0 <= n_agree <= n_seen``. Sorts the pairs unless they are sorted with i < j.
        """
        low, high, order = ascending_pairs(i, j, n_objects)
        _, n_agree, n_seen = _integers(i=low, n_agree=n_agree, n_seen=n_seen)
        is_bad = (n_agree < 0) | (n_agree > n_seen) | (n_seen > MAX_SEEN)
        _refuse(is_bad, f"0 <= n_agree <= n_seen <= {MAX_SEEN} must hold", n_agree=n_agree, n_seen=n_seen)
        if order is not None:
            n_agree, n_seen = n_agree[order], n_seen[order]
        rows = symmetric_rows(Edges(low, high, n_agree, n_seen), n_objects)
        return cls(rows, provenance)

    @classmethod
    def open(cls, path: StorePath, *, n_objects: int | None = None) -> PairTable:
        """Open the table stored at ``path``; only its head is read.

        A Parquet file of pairs, or a folder of them, is read into memory by `from_table`. ``n_objects`` is
        then the number of objects, by default the one that a file of `to_parquet` states. `import_pairs`
        stores such files.

        Raises StoreNotFoundError if there is no table, CorruptStoreError if it is damaged and
        InvalidPairsError if a Parquet file does not have the columns of `bigcons.disk.schema.PAIR_COLUMNS`.
        """
        if sources.is_parquet(path):
            metadata = _metadata_in(local_path(path))
            table = cls.from_table(path, n_objects=n_objects or metadata.get("n_objects"))
            table.rows_per_block = metadata.get("rows_per_block")
            return table
        place = place_of(path)
        store = Store(place, KIND)
        with consistent(place):
            check_int("n_objects", store.body["n_objects"], at_least=0, at_most=MAX_OBJECTS)
        columns: list[Any] = [store.arrays[name] for name in Rows._fields]
        return PairTable(Rows(*columns), store.body["provenance"], store)

    @classmethod
    def from_table(cls, x: Any, *, n_objects: int | None = None) -> PairTable:
        """Read a table with one row for each pair into memory.

        ``x`` is a pandas, polars or Arrow table, anything else with ``__arrow_c_stream__``, a dask dataframe,
        or the path of a .parquet (or a folder of them), .csv or .csv.gz with the integer columns ``i``,
        ``j``, ``n_agree`` and ``n_seen`` (see `bigcons.disk.schema.PAIR_COLUMNS`). Rows may be in any order;
        each pair is given once, with ``i < j``. The number of objects, if it is not given, is one more than
        the largest of a pair.

        Raises InvalidPairsError, with the file and row, for a table that breaks a rule. Takes about 60 bytes
        for each pair.
        """
        provenance = {"made_by": "from_table", "source": sources.describe(x)}
        return _loaded(x, provenance, n_objects, DataBudget(1 << 62))

    def save(self, path: StorePath, *, overwrite: bool = False) -> PairTable:
        """Store the table at ``path``, all or nothing, and return the stored table."""
        parts = (self.read(block.start, block.stop) for block in self.blocks())
        facts = {name: getattr(self, name) for name in ("n_objects", "rows_per_block", "provenance")}
        facts |= {"counts_dtype": self._columns.n_seen.dtype.name, "chunk_entries": self._chunk_entries}
        return self.store_blocks(path, parts, facts, overwrite=overwrite)

    @classmethod
    def store_blocks(
        cls, path: StorePath, parts: Iterable[Rows], facts: Mapping[str, Any], *, overwrite: bool
    ) -> PairTable:
        """Store consecutive blocks of rows as a table, all or nothing, and return it opened.

        Each part is like a result of ``read``; one part and one chunk are in memory at a time. Together, the
        parts must have ``n_objects`` rows and contain every pair in the rows of both of its objects.
        ``facts`` are the entries of the head, without those that follow from the parts.
        """
        body = dict(facts)
        with commit.new_store(path, overwrite, KIND) as folder:
            arrays = arrays_of(KIND, {**body, "n_pairs": 1 << 60})
            columns = {name: ArrayAppender(folder / name, array) for name, array in arrays.items()}
            n_entries = 0
            columns["indptr"].append(np.zeros(1, np.int64))
            for part in parts:
                columns["indptr"].append(part.indptr[1:] + n_entries)
                for name in ("indices", "n_agree", "n_seen"):
                    columns[name].append(getattr(part, name))
                n_entries += len(part.indices)
            if columns["indptr"].n_appended != body["n_objects"] + 1 or n_entries % 2:
                raise ValueError("the parts are not the rows of a symmetric table of n_objects objects")
            body["n_pairs"] = n_entries // 2
            for name, array in arrays_of(KIND, body).items():
                columns[name].close(array)
            seals = seals_of(*(column.chunk_sums for column in columns.values()), ChunkSums())
            commit.write_head(folder, KIND, body | seals)
        return PairTable.open(path)

    indptr: cached_property[np.ndarray] = cached_property(lambda self: self._part("indptr"))
    """Start of each row in the other arrays, ``(n_objects + 1,)`` int64."""
    indices: cached_property[np.ndarray] = cached_property(lambda self: self._part("indices"))
    """The other object of every entry, ``(2 n_pairs,)`` int32, ascending within a row."""
    n_agree: cached_property[np.ndarray] = cached_property(lambda self: self._part("n_agree"))
    """Partitions that put the pair together, ``(2 n_pairs,)``."""
    n_seen: cached_property[np.ndarray] = cached_property(lambda self: self._part("n_seen"))
    """Partitions that label both objects, ``(2 n_pairs,)``."""

    def blocks(self, rows: int | None = None) -> list[Block]:
        """Return blocks of ``rows`` objects.

        The default is ``rows_per_block`` or, if that is not set, blocks of about 4 million entries.
        """
        mean_entries = 2 * self.n_pairs / max(self.n_objects, 1)
        rows = rows or self.rows_per_block or max(1, int((1 << 22) / max(mean_entries, 1)))
        return row_blocks(self.n_objects, rows)

    def degrees(self, start: int, stop: int) -> np.ndarray:
        """Return the number of pairs of each of the objects ``start`` to ``stop``."""
        return np.diff(self._part("indptr", start, stop + 1))

    def read(self, start: int, stop: int) -> Rows:
        """Return the rows of the objects ``start`` to ``stop``, with ``indptr`` counted from 0.

        Raises CorruptStoreError if rows of a stored table are invalid.
        """
        check_rows(start, stop, self.n_objects)
        indptr = self._part("indptr", start, stop + 1)
        entries = (int(indptr[0]), int(indptr[-1]))
        columns = (self._part(name, *entries) for name in ("indices", "n_agree", "n_seen"))
        return Rows(indptr - indptr[0], *columns)

    def edges(self) -> Edges:
        """Return every pair once: ``(i, j, n_agree, n_seen)`` with ``i < j``, ascending."""
        parts = list(self._edges_of_blocks(self.blocks()))
        return Edges(*map(np.concatenate, zip(*parts, strict=True)))

    def to_parquet(self, path: StorePath, *, overwrite: bool = False) -> None:
        """Write every pair once, as columns ``i < j``, ``n_agree``, ``n_seen``, to a file on a disk.

        All or nothing; a block of rows is in memory at a time. Pages have checksums; the metadata state
        ``n_objects`` and ``rows_per_block``.
        """
        import pyarrow as pa
        from pyarrow import parquet

        metadata = {_METADATA: json.dumps({name: getattr(self, name) for name in _STATED})}
        edges = self._edges_of_blocks(self.blocks())
        with commit.new_file(path, overwrite=overwrite) as file:
            first = pa.table(next(edges)._asdict())
            options = {"compression": "zstd", "write_page_checksum": True}
            with parquet.ParquetWriter(file, first.schema.with_metadata(metadata), **options) as writer:
                writer.write_table(first)
                for part in edges:
                    writer.write_table(pa.table(part._asdict()))

    def digest(self) -> str:
        """Return a text that identifies the pairs.

        A stored table takes it from its head; in memory, all pairs are read.
        """
        if self._store is not None:
            digest = self._store.body["digest"]
        else:
            size = self._chunk_entries
            digest = digest_text(
                sum(
                    rows_digest(name, b.index, column[b.start : b.stop], (size,))
                    for name, column in self._columns._asdict().items()
                    for b in row_blocks(len(column), size)
                )
            )
        return f"{self.n_pairs} pairs of {self.n_objects}, crc {digest}"

    def verify(self) -> dict[str, Any]:
        """Read every entry and compare it with what was written and the rules of rows.

        Returns ``{"kind", "path", "n_objects", "n_pairs", "n_blocks"}``; raises CorruptStoreError if a
        chunk differs from what was written, or a row does not ascend.
        """
        table = self
        if self._store is not None:
            table = PairTable(self._columns, self.provenance, self._store)  # without the cached arrays
            for _ in self._store.checked_chunks():
                pass
        blocks = table.blocks()
        for block in blocks:
            rows = table.read(block.start, block.stop)
            i = block.start + np.repeat(np.arange(block.n_rows), np.diff(rows.indptr))
            if (rows.n_agree > rows.n_seen).any():
                raise table._corrupt("n_agree", "exceeds n_seen for some pair")
            if (i == rows.indices).any() or (np.diff(rows.indices)[i[1:] == i[:-1]] <= 0).any():
                raise table._corrupt("indices", "has a row that does not ascend or contains its own object")
        facts = {name: getattr(self, name) for name in ("path", "n_objects", "n_pairs")}
        return {"kind": KIND, **facts, "n_blocks": len(blocks)}

    def _check(self, name: str, part: np.ndarray) -> np.ndarray:
        """Raise CorruptStoreError for positions and counts out of range."""
        if not len(part):
            return part
        if name == "indptr":
            if part[0] < 0 or part[-1] > 2 * self.n_pairs or (np.diff(part) < 0).any():
                raise self._corrupt(name, "does not ascend")
        elif name == "indices":
            if part.min() < 0 or part.max() >= self.n_objects:
                raise self._corrupt(name, f"has values outside 0 to {self.n_objects - 1}")
        elif name == "n_seen" and part.min() < 1:
            raise self._corrupt(name, "has values out of range")
        return part

    def _edges_of_blocks(self, blocks: list[Block]) -> Iterator[Edges]:
        for block in blocks or [Block(0, 0, 0)]:
            indptr, *columns = self.read(block.start, block.stop)
            i = np.repeat(np.arange(block.start, block.stop, dtype=np.int32), np.diff(indptr))
            is_first = i < columns[0]
            yield Edges(i[is_first], *(column[is_first] for column in columns))

    def _part(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Return a slice of one of the four arrays, by default all, from memory if it is loaded."""
        column = vars(self).get(name, getattr(self._columns, name))
        if isinstance(column, np.ndarray):
            return column[start:stop]
        return self._check(name, column[start:stop])

    def _corrupt(self, name: str, fault: str) -> CorruptStoreError:
        return corrupt(self.path or "the table", f"is damaged: {name} {fault}")

    def __reduce__(self) -> tuple[Any, ...]:
        return PairTable, (self._columns, self.provenance, self._store)

    def __repr__(self) -> str:
        where = self.path or "in memory"
        return f"<PairTable: {self.n_objects:,} objects, {self.n_pairs:,} pairs, {where}>"


def _metadata_in(path: Path) -> dict[str, Any]:
    """Return the facts that a file of `PairTable.to_parquet` states of its pairs; none for other files."""
    from pyarrow import parquet

    if path.is_dir():
        return {}
    with sources.reading(path, "Parquet"):
        metadata = json.loads((parquet.read_metadata(path).metadata or {}).get(_METADATA, "{}"))
        for name in metadata:
            if metadata[name] is not None:
                check_int(name, metadata[name], at_least=0, at_most=MAX_OBJECTS)
    return dict(metadata)


def pairs_of(pairs: StorePath | PairTable, n_objects: int) -> PairTable:
    """Return the table, opened if ``pairs`` is its path; a Parquet file has pairs of ``n_objects``."""
    if isinstance(pairs, PairTable):
        return pairs
    return PairTable.open(pairs, n_objects=n_objects if sources.is_parquet(pairs) else None)


# Columns and rows


def ascending_pairs(i: Any, j: Any, n_objects: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return the pairs as ``(i, j, order)``: int32, ``i < j``, ascending; raises InvalidInputError.

    ``order`` sorts columns that belong to the pairs; None if they were sorted. Columns are copied only if
    they change.
    """
    if not 0 <= n_objects <= MAX_OBJECTS:
        raise InvalidInputError(f"n_objects={n_objects} is out of range; use 0 to {MAX_OBJECTS:,}.")
    i, j = _integers(i=i, j=j)
    outside = (i < 0) | (j < 0) | (i >= n_objects) | (j >= n_objects)
    _refuse(outside, f"objects are numbered 0 to {n_objects - 1}", i=i, j=j)
    _refuse(i == j, "a pair has two different objects", i=i, j=j)
    low, high = (i, j) if (i < j).all() else (np.minimum(i, j), np.maximum(i, j))
    low, high = low.astype(np.int32, copy=False), high.astype(np.int32, copy=False)
    number = low * np.int64(n_objects)
    number += high
    order = None
    if np.any(number[1:] <= number[:-1]):
        order = np.argsort(number)
        number, low, high = number[order], low[order], high[order]
    is_repeated = np.concatenate([[False], number[1:] == number[:-1]])
    _refuse(is_repeated, "each pair must be given once", i=low, j=high)
    return low, high, order


def _integers(**columns: Any) -> list[np.ndarray]:
    """Return columns of equal length as arrays of integers."""
    arrays = [np.asarray(column) for column in columns.values()]
    for name, array in zip(columns, arrays, strict=True):
        if array.size and (array.ndim != 1 or array.dtype.kind not in "iu"):
            raise InvalidInputError(
                f"{name} has shape {array.shape} and type {array.dtype}; pass integers of shape (n_pairs,)."
            )
    if len({array.size for array in arrays}) > 1:
        sizes = ", ".join(f"{name} has {array.size}" for name, array in zip(columns, arrays, strict=True))
        raise InvalidInputError(f"the columns differ in length ({sizes}); give one entry per pair in each.")
    return [array if array.size else array.astype(np.int64) for array in arrays]


def _refuse(bad: np.ndarray, rule: str, **columns: np.ndarray) -> None:
    if bad.any():
        p = int(np.argmax(bad))
        values = ", ".join(f"{name}={column[p]}" for name, column in columns.items())
        raise InvalidInputError(f"pair {p} has {values}, but {rule}; correct or remove it.")


def symmetric_rows(edges: Edges, n_objects: int) -> Rows:
    """Return ascending ``edges`` as ascending rows with every pair in the rows of both objects.

    Pairs with ``n_seen = 0`` are omitted. Working memory: 42 bytes per pair and 40 per object.
    """
    counts = counts_dtype(int(edges.n_seen.max(initial=0)))
    n_agree, n_seen = (np.tile(column.astype(counts), 2) for column in edges[2:])
    # in this order the columns of every row ascend already
    row, column = np.concatenate([edges.j, edges.i]), np.concatenate([edges.i, edges.j])
    return rows_of_entries(row, column, n_agree, n_seen, n_rows=n_objects, n_objects=n_objects)


def rows_of_entries(
    i: np.ndarray, j: np.ndarray, n_agree: np.ndarray, n_seen: np.ndarray, *, n_rows: int, n_objects: int
) -> Rows:
    """Return entries ``(i, j)``, in any order and each once, as ascending rows.

    Entries with ``n_seen = 0`` are omitted; counts keep their type. Working memory: 20 bytes per entry.
    """
    from scipy.sparse import coo_array

    is_seen = n_seen > 0
    if not is_seen.all():
        i, j, n_agree, n_seen = (part[is_seen] for part in (i, j, n_agree, n_seen))
    counts = n_seen.astype(np.uint32)  # both in one number, 16 bits each
    counts <<= np.uint32(16)
    counts |= n_agree.astype(np.uint32)
    rows = coo_array((counts, (i, j)), shape=(n_rows, n_objects)).tocsr()
    rows.sort_indices()
    indptr, indices = rows.indptr.astype(np.int64), rows.indices.astype(np.int32, copy=False)
    n_agree = rows.data.astype(np.uint16).astype(n_seen.dtype, copy=False)
    rows.data >>= np.uint32(16)
    return Rows(indptr, indices, n_agree, rows.data.astype(n_seen.dtype))


def counts_dtype(largest: int) -> np.dtype:
    """Return the smallest unsigned type for counts up to ``largest`` and the fill value of lost chunks."""
    if largest > MAX_SEEN:
        raise InvalidInputError(
            f"pairs may be labeled by {largest:,} partitions, more than {MAX_SEEN:,}; use fewer partitions."
        )
    return np.dtype(np.uint8 if largest < np.iinfo(np.uint8).max else np.uint16)


# Tables with one row for each pair


def import_pairs(
    source: Any,
    out: StorePath,
    *,
    n_objects: int | None = None,
    overwrite: bool = False,
    memory: int | str = "1GB",
) -> PairTable:
    """Store a table with one row for each pair at ``out``; return the stored table.

    ``source`` and ``n_objects`` as for `PairTable.from_table`. The pairs are sorted in memory,
    at 60 bytes each. A store at ``out`` that the same call made of files that have not changed since is
    returned as it is.

    Raises InvalidPairsError, with the file and row, for a table that breaks a rule, and MemoryBudgetError if
    the pairs take more than ``memory``.
    """
    sources.refuse_inputs(out, source)
    provenance = {"made_by": "import_pairs", **sources.provenance_of_files(source, {"n_objects": n_objects})}
    if commit.is_finished_import(out, KIND, provenance, overwrite):
        return PairTable.open(out)
    table = _loaded(source, provenance, n_objects, beside_processes(memory))
    return table.save(out, overwrite=overwrite)


def _loaded(x: Any, provenance: dict[str, Any], n_objects: int | None, budget: DataBudget) -> PairTable:
    """Read a table with one row for each pair."""
    source = sources.open_source(x, "pairs")
    edges, n_objects = read_pairs(source, n_objects, budget)
    return PairTable(symmetric_rows(edges, n_objects), provenance)


def read_pairs(table: sources.Source, n_objects: int | None, budget: DataBudget) -> tuple[Edges, int]:
    """Return the pairs of a table with ``n_seen > 0``, ascending by i, then j, and the number of objects.

    The table has a row for each pair, in any order, and the integer columns `PAIR_COLUMNS`. The number of
    objects, if None, is one more than the largest of a pair. Raises InvalidPairsError, with the file and row,
    for the first that breaks a rule, and MemoryBudgetError for more pairs than fit in ``budget``.
    """
    if n_objects is not None:
        check_int("n_objects", n_objects, at_least=0, at_most=MAX_OBJECTS)
    names = table.names or []
    if any(names.count(name) != 1 for name in PAIR_COLUMNS):
        listing = f"the columns {', '.join(names)}" if names else "no column names"
        fault = f"{table.where} has {listing}; it needs the integer columns {', '.join(PAIR_COLUMNS)}."
        raise InvalidPairsError(fault, path=table.where)
    parts = [Edges(*(np.empty(0, dtype) for dtype in (np.int32, np.int32, np.uint16, np.uint16)))]
    n_rows, largest = 0, -1
    with progress("check pairs", table.n_rows or 0, "pairs") as listener:
        for batch in table.batches(BLOCK_ROWS, columns=[names.index(name) for name in PAIR_COLUMNS]):
            part = _checked_pairs(batch, n_rows, n_objects, table.where)
            largest = max(largest, int(part.j.max(initial=-1)))
            n_rows += len(part.i)
            listener.advance(len(part.i))
            is_seen = part.n_seen > 0
            parts.append(Edges(*(column[is_seen] for column in part)))
            n_most = table.most_rows(n_rows, budget.n_bytes // PAIR_BYTES)
            n_bytes = PAIR_BYTES * n_most + OBJECT_BYTES * (n_objects or 0)
            budget.check(n_bytes, f"the process and the sorted pairs of {table.where}", "give fewer")
    if n_objects is None and (n_rows == 0 or largest >= max(1 << 24, 100 * n_rows)):
        # more objects than this, and than this many for each pair, are numbers that are no rows
        fault = f"{table.where} has {n_rows:,} pairs and a largest object {largest:,}; number from 0, or give"
        raise InvalidPairsError(f"{fault} n_objects={largest + 1}.", path=table.where)
    edges = Edges(*map(np.concatenate, zip(*parts, strict=True)))
    del parts
    number = edges.i.astype(np.int64) << 32 | edges.j
    if (number[1:] <= number[:-1]).any():
        order = np.argsort(number)
        number, edges = number[order], Edges(*(column[order] for column in edges))
        if (repeats := np.flatnonzero(number[1:] == number[:-1])).size:
            index = repeats[0]
            fault = f"{table.where} lists the pair i={edges.i[index]}, j={edges.j[index]} twice"
            raise InvalidPairsError(f"{fault}; keep one of them.", path=table.where)
    return edges, largest + 1 if n_objects is None else n_objects


def _checked_pairs(batch: Sequence[Any], first: int, n_objects: int | None, where: str) -> Edges:
    """Return a batch as int32 objects and uint16 counts; ``first`` is its first row, for messages."""
    columns = [plain_arrow(column) for column in batch]
    for name, column in zip(PAIR_COLUMNS, columns, strict=True):
        kind = getattr(column, "type", column)
        if not re.match("u?int", str(kind)):
            fault = f"column {name!r} of {where} has type {kind}; it needs integers."
            raise InvalidPairsError(fault, path=where, row=first)
        if column.null_count:
            row = first + column.is_null().index(True).as_py()
            fault = f"row {row} of {where} has no {name} (null), but every pair needs one; correct it."
            raise InvalidPairsError(fault, path=where, row=row)
    i, j, n_agree, n_seen = values = [np.asarray(column) for column in columns]
    limit = MAX_OBJECTS if n_objects is None else n_objects
    bad = (i < 0) | (i >= j) | (j >= limit) | (n_agree < 0) | (n_agree > n_seen) | (n_seen > MAX_SEEN)
    if bad.any():
        index = int(np.argmax(bad))
        pair = ", ".join(f"{name}={column[index]}" for name, column in zip(PAIR_COLUMNS, values, strict=True))
        rule = f"0 <= i < j < {limit} and 0 <= n_agree <= n_seen <= {MAX_SEEN}"
        fault = f"row {first + index} of {where} has {pair}, but {rule} must hold; correct or remove it."
        raise InvalidPairsError(fault, path=where, row=first + index)
    kinds = (np.int32, np.int32, np.uint16, np.uint16)
    return Edges(*(column.astype(kind, copy=False) for column, kind in zip(values, kinds, strict=True)))
