"""PairTable: pairs of objects with their counts of agreement, in memory or in a store.

A symmetric matrix in compressed sparse rows: every pair is in the rows of both of its objects, so that a
block of rows is self-contained. A Zarr store has the four arrays in chunks of equal length that decode fast.

A Parquet file, or a folder of them, is a store too: it lists every pair once, for other programs to read, and
is converted to rows when rows are needed.
"""

from __future__ import annotations

import json
import os
import shutil
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from bigcons.disk.commit import is_finished_import, is_store, names_parquet, refuse_source
from bigcons.disk.interface import StorePath
from bigcons.disk.leftovers import make_temporary_folder, temporary_folder
from bigcons.disk.places import place_of
from bigcons.disk.schema import PAIRS, checksum_of
from bigcons.errors import (
    CorruptStoreError,
    InvalidPairsError,
    StoreExistsError,
    StoreNotFoundError,
)
from bigcons.io.files import describe, footer_of, is_parquet, provenance_of_files
from bigcons.io.intake import open_table
from bigcons.memory import Block, format_size, parse_size, row_blocks
from bigcons.store.display import facts_table
from bigcons.store.pair_lists import PairList, blocks_within, scratch_beside, sorted_rows, store_list
from bigcons.store.pair_parquet import (
    ParquetPairs,
    provenance_of_pairs,
    refuse_existing_pairs,
    write_parquet,
)
from bigcons.store.pair_rows import (
    CHUNK_ENTRIES,
    MAX_OBJECTS,
    OBJECT_BYTES,
    PAIR_BYTES,
    Edges,
    Rows,
    ascending_pairs,
    checked_counts,
    fault_of,
    imbalance,
    row_of_entries,
    symmetric_rows,
)
from bigcons.store.pair_store import KIND, RESTORE, write_pairs
from bigcons.store.store import Objects, Store, consistent
from bigcons.validation import check_int, check_rows

DEFAULT_MEMORY = 10**9
"""Budget for converting Parquet to rows where none is given."""


class PairTable(Objects):
    """Pairs of objects, with the number of partitions that cluster them together and that label both.

    Stored as compressed sparse rows: row ``r`` has the neighbors ``indices[indptr[r]:indptr[r + 1]]`` in
    ascending order, with their counts at the same positions; every pair is in the rows of both of its
    objects. ``indptr`` ``(n_objects + 1,)`` int64; ``indices`` ``(2 n_pairs,)`` int32; ``n_agree`` and
    ``n_seen`` ``(2 n_pairs,)`` uint8 or, for counts above 254, uint16. Pairs that no partition
    labels at both ends carry no information and are omitted. Of soft clusterings, ``n_agree`` is the expected
    number of partitions that put the pair together, ``sum_u p_iu . p_ju``, float32.

    A stored table is read on demand: ``read`` reads a range of rows, the four attributes read everything.
    Stored as Parquet, it is first converted to rows, in memory or, if that would take more than 1 GB, in a
    temporary folder; methods that solve by blocks do so within their memory budget.
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

    def __init__(
        self,
        indptr: Any,
        indices: Any,
        n_agree: Any,
        n_seen: Any,
        *,
        path: str | None = None,
        provenance: Mapping[str, Any] | None = None,
        stored: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = path
        self.provenance: dict[str, Any] = dict(provenance or {})
        self.n_objects: int = indptr.shape[0] - 1
        self.n_pairs: int = indices.shape[0] // 2
        self._columns = Rows(indptr, indices, n_agree, n_seen)
        self._stored = stored or {"chunk_entries": CHUNK_ENTRIES, "checksums": {}}
        self._store: Store | None = None
        self.rows_per_block: int | None = self._stored.get("rows_per_block")

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
        ``0 <= n_agree <= n_seen``; ``n_agree`` may be float32. Sorts the pairs unless they are sorted with
        i < j.
        """
        low, high, order = ascending_pairs(i, j, n_objects)
        n_agree, n_seen = checked_counts(n_agree, n_seen, len(low))
        if order is not None:
            n_agree, n_seen = n_agree[order], n_seen[order]
        rows = symmetric_rows(Edges(low, high, n_agree, n_seen), n_objects)
        return cls(*rows, provenance=provenance)

    @classmethod
    def open(cls, path: StorePath, *, n_objects: int | None = None) -> PairTable:
        """Open the table stored at ``path``: a Zarr store, a Parquet file, or a folder of Parquet files.

        Nothing but metadata is read. ``n_objects`` is for Parquet files of other programs, which do not state
        it (by default, the largest object that is in a pair is the last); any other table must agree with it.

        Raises StoreNotFoundError if there is no table, CorruptStoreError if it is damaged and
        InvalidPairsError if a Parquet file does not have the columns of `bigcons.disk.schema.PAIR_COLUMNS`.
        """
        if is_parquet(path):
            return ParquetPairTable(path, n_objects)
        place = place_of(path)
        if place.is_file():
            raise StoreNotFoundError(
                f"{place} is not a store of pairs; store it with bigcons import --pairs.", path=place
            )
        store = Store(place, KIND, RESTORE)
        with consistent(place, RESTORE):
            check_int("n_objects", store.body["n_objects"], at_least=0, at_most=MAX_OBJECTS)
        columns = {name: store.column(name) for name in PAIRS}
        made_with = store.body["provenance"]
        table = PairTable(**columns, path=str(place), provenance=made_with, stored=store.body)
        table._store = store
        if n_objects not in (None, table.n_objects):
            raise InvalidPairsError(
                f"{place} has pairs of n_objects={table.n_objects}, not {n_objects}; "
                "use pairs of the same objects.",
                path=place,
            )
        return table

    @classmethod
    def from_table(
        cls, x: Any, *, n_objects: int | None = None, columns: Sequence[str] | None = None
    ) -> PairTable:
        """Read a table with one row for each pair into memory.

        ``x`` is a pandas, polars or Arrow table, anything else with ``__arrow_c_stream__``, a dask dataframe,
        or the path of a .parquet (or a folder of them), .csv or .csv.gz with the integer columns ``i``,
        ``j``, ``n_agree`` and ``n_seen`` (see `bigcons.disk.schema.PAIR_COLUMNS`), or those of ``columns``,
        in this order. Rows may be in any order; each pair is given once, with ``i < j``. The number of
        objects, if neither given nor stated in a Parquet file, is one more than the largest of a pair.

        Raises InvalidPairsError, with the file and row, for a table that breaks a rule. Takes about 60 bytes
        for each pair; `import_pairs` stores tables of any size.
        """
        return _loaded(_list_of(x, n_objects, columns), {"made_by": "from_table", "source": describe(x)})

    def save(self, path: StorePath, *, overwrite: bool = False) -> PairTable:
        """Store the table at ``path``, all or nothing, and return the stored table.

        It is Parquet if the path ends in .parquet, else a Zarr store.
        """
        if names_parquet(path):
            return self.to_parquet(path, overwrite=overwrite)
        return type(self).store_blocks(
            path,
            (self.read(block.start, block.stop) for block in self.blocks()),
            n_objects=self.n_objects,
            counts_dtype=self._columns.n_seen.dtype,
            agree_dtype=self._columns.n_agree.dtype,
            rows_per_block=self.rows_per_block,
            chunk_entries=self._stored["chunk_entries"],
            provenance=self.provenance,
            overwrite=overwrite,
        )

    @classmethod
    def store_blocks(
        cls,
        path: StorePath,
        parts: Iterable[Rows],
        *,
        n_objects: int,
        counts_dtype: np.dtype,
        agree_dtype: np.dtype | None = None,
        rows_per_block: int | None = None,
        chunk_entries: int | None = None,
        provenance: Mapping[str, Any] | None = None,
        overwrite: bool = False,
    ) -> PairTable:
        """Store consecutive blocks of rows as a table, all or nothing, and return it opened.

        Each part is like a result of ``read``; one part and one chunk are in memory at a time. Together, the
        parts must have ``n_objects`` rows and contain every pair in the rows of both of its objects. The
        table is Parquet if the path ends in .parquet, written from a temporary store next to it.
        """
        facts = {
            "n_objects": n_objects,
            "rows_per_block": rows_per_block,
            "provenance": dict(provenance or {}),
        }
        agree = counts_dtype if agree_dtype is None else agree_dtype
        how = (counts_dtype, agree, chunk_entries or CHUNK_ENTRIES, facts)
        return _written(path, overwrite, lambda out, over: write_pairs(out, parts, *how, overwrite=over))

    @cached_property
    def indptr(self) -> np.ndarray:
        """Start of each row in the other arrays, ``(n_objects + 1,)`` int64."""
        return self._whole("indptr")

    @cached_property
    def indices(self) -> np.ndarray:
        """The other object of every entry, ``(2 n_pairs,)`` int32, ascending within a row."""
        return self._whole("indices")

    @cached_property
    def n_agree(self) -> np.ndarray:
        """Partitions that put the pair together, ``(2 n_pairs,)``."""
        return self._whole("n_agree")

    @cached_property
    def n_seen(self) -> np.ndarray:
        """Partitions that label both objects, ``(2 n_pairs,)``."""
        return self._whole("n_seen")

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

    def to_parquet(
        self, path: StorePath, *, pairs_per_file: int | None = None, overwrite: bool = False
    ) -> PairTable:
        """Store every pair once, as columns ``i < j``, ``n_agree``, ``n_seen``, and return the stored table.

        ``path`` is a file or, with ``pairs_per_file``, a folder of part files, on a disk; all or nothing.
        Takes about 60 MB, for a block of rows and a row group of a million pairs. Pages have checksums; the
        metadata of each file has the entries of `bigcons.disk.schema.PARQUET_PAIRS`.
        """
        mean_entries = 2 * self.n_pairs / max(self.n_objects, 1)
        rows = max(1, int((1 << 20) / max(mean_entries, 1)))
        write_parquet(
            path,
            self._edges_of_blocks(self.blocks(min(rows, self.rows_per_block or rows))),
            {
                "n_objects": self.n_objects,
                "rows_per_block": self.rows_per_block,
                "provenance": self.provenance,
            },
            n_pairs=self.n_pairs,
            pairs_per_file=pairs_per_file,
            overwrite=overwrite,
        )
        return PairTable.open(path)

    def digest(self) -> str:
        """Return a text that identifies the pairs.

        A stored table takes it from its manifest; in memory, all pairs are read.
        """
        checksums = self._stored["checksums"] or {name: checksum_of(self._whole(name)) for name in PAIRS}
        crc = zlib.crc32(json.dumps([checksums[name] for name in PAIRS]).encode())
        return f"{self.n_pairs} pairs of {self.n_objects}, crc {crc:08x}"

    def info(self) -> dict[str, Any]:
        """Return a summary as JSON values, without reading the arrays."""
        return {
            "kind": KIND,
            "path": self.path,
            "n_objects": self.n_objects,
            "n_pairs": self.n_pairs,
            "pairs_per_object": 2 * self.n_pairs / max(self.n_objects, 1),
            "rows_per_block": self.rows_per_block,
            **self._stored_as(),
            "provenance": self.provenance,
        }

    def _stored_as(self) -> dict[str, Any]:
        """Return what tells of the form in which the pairs are stored, and their bytes."""
        held = sum(column.nbytes for column in self._columns) if self.path is None else 0
        return {
            "counts_dtype": str(np.dtype(self._columns.n_seen.dtype)),
            "n_bytes": place_of(self.path).n_bytes() if self.path else held,
        }

    def verify(self) -> dict[str, Any]:
        """Read every entry and check it against the checksums and the rules of a symmetric table.

        Returns ``{"kind", "path", "n_objects", "n_pairs", "n_blocks"}``; raises CorruptStoreError if a
        chunk differs from what was written, a row does not ascend, or a pair differs between its two rows.
        """
        table = self if self.path is None else type(self).open(self.path)  # not the cached arrays
        if table._store is not None:
            for _ in table._store.proven():  # which raises an error for a wrong checksum
                pass
            table._store.check_rest()
        blocks = table.blocks()
        balance = 0
        for block in blocks:
            rows = table.read(block.start, block.stop)
            i = row_of_entries(block.start, rows)
            fault = fault_of(i, rows)
            if fault is not None:
                raise table._corrupt(*fault)
            balance += imbalance(i, rows, table.n_objects)
        if balance % 2**64 != 0:
            raise table._corrupt("indices", "does not have every pair at both ends")
        return {
            "kind": KIND,
            "path": self.path,
            "n_objects": self.n_objects,
            "n_pairs": self.n_pairs,
            "n_blocks": len(blocks),
        }

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
        elif (name == "n_seen" or part.dtype.kind == "f") and not part.min() >= (name == "n_seen"):
            raise self._corrupt(name, "has values out of range")
        return part

    def _edges_of_blocks(self, blocks: list[Block]) -> Iterator[Edges]:
        for block in blocks or [Block(0, 0, 0)]:
            indptr, *columns = self.read(block.start, block.stop)
            i = np.repeat(np.arange(block.start, block.stop, dtype=np.int32), np.diff(indptr))
            once = i < columns[0]
            yield Edges(i[once], *(column[once] for column in columns))

    def _whole(self, name: str) -> np.ndarray:
        return self._part(name, 0, getattr(self._columns, name).shape[0])

    def _part(self, name: str, start: int, stop: int) -> np.ndarray:
        """Return a slice of one of the four arrays, from memory if it is loaded."""
        column = vars(self).get(name, getattr(self._columns, name))
        if isinstance(column, np.ndarray):
            return column[start:stop]
        return self._check(name, column[start:stop])

    def _corrupt(self, name: str, what: str) -> CorruptStoreError:
        return CorruptStoreError(f"{self.path or 'the table'}: {name} {what}; {RESTORE}", path=self.path)

    def __getstate__(self) -> Any:
        """Pickle a stored table as its path."""
        return self.path or vars(self)

    def __setstate__(self, state: Any) -> None:
        vars(self).update(vars(type(self).open(state)) if isinstance(state, str) else state)

    def __repr__(self) -> str:
        where = self.path or "in memory"
        return f"<PairTable: {self.n_objects:,} objects, {self.n_pairs:,} pairs, {where}>"

    def _repr_html_(self) -> str:
        info = self.info()
        facts = {
            "objects": f"{self.n_objects:,}",
            "pairs": f"{self.n_pairs:,}",
            "pairs per object": f"{info['pairs_per_object']:.3g}",
            "size": format_size(info["n_bytes"]),
            **self.provenance,
        }
        return facts_table(f"PairTable {self.path or 'in memory'}", facts)


class ParquetPairTable(PairTable):
    """A table stored as Parquet, as `PairTable.open` returns it."""

    def __init__(self, path: StorePath, n_objects: int | None = None) -> None:
        self._pairs = ParquetPairs(path, n_objects=n_objects)
        stated = self._pairs.stated
        self.states_n_objects: bool = self._pairs.n_objects is not None
        """Whether the number of objects is stated or was given, rather than that of the largest object."""
        if self._pairs.n_objects is None:
            self._pairs.n_objects = 1 + self._pairs.largest_object()
        self.path: str = str(place_of(path))
        self.provenance: dict[str, Any] = stated.provenance or {"source": self.path}
        self.n_objects: int = self._pairs.n_objects
        self.n_pairs: int = self._pairs.n_seen_pairs()
        self.rows_per_block: int | None = stated.rows_per_block
        self._stored = {
            "chunk_entries": CHUNK_ENTRIES,
            "checksums": {},
            "rows_per_block": self.rows_per_block,
        }

    def load(self) -> PairTable:
        """Return the table with its rows in memory."""
        return _loaded(self._pairs, self.provenance)

    def save(
        self, path: StorePath, *, overwrite: bool = False, memory: int | str = DEFAULT_MEMORY
    ) -> PairTable:
        """Store the table at ``path`` within ``memory``, all or nothing, and return the stored table.

        It is Parquet, sorted, if the path ends in .parquet, else rows in a Zarr store.
        """
        return _store(self._pairs, path, self.provenance, memory=memory, overwrite=overwrite)

    def digest(self) -> str:
        """Return a text that identifies the pairs, from the metadata that end every file."""
        crc = 0
        for file in self._pairs.files():
            crc = zlib.crc32(footer_of(file), crc)
        return f"{self.n_pairs} pairs of {self.n_objects}, crc {crc:08x}"

    @cached_property
    def _columns(self) -> Rows:  # type: ignore[override]
        """The rows, converted when they are first needed."""
        return self._converted()

    def _converted(self, memory: int = DEFAULT_MEMORY) -> Rows:
        """Return the rows in memory, or in a temporary folder if they take more than ``memory`` bytes."""
        if PAIR_BYTES * self.n_pairs + OBJECT_BYTES * self.n_objects <= memory:
            return self.load()._columns
        folder = make_temporary_folder()
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return self.save(folder / "pairs.zarr")._columns

    def _stored_as(self) -> dict[str, Any]:
        n_bytes = sum(file.stat().st_size for file in self._pairs.files())
        return {"format": "parquet", "n_files": self._pairs.n_files, "n_bytes": n_bytes}

    def verify(self) -> dict[str, Any]:
        """Read every pair and check it against the checksums and `bigcons.disk.schema.PAIR_COLUMNS`.

        Returns ``{"kind", "path", "n_objects", "n_pairs", "n_files"}``. Raises CorruptStoreError for a page
        that differs from its checksum, InvalidPairsError, with the file and row, for a pair that breaks a
        rule or is listed twice. Files that are not sorted by ``i`` and ``j`` are sorted on disk for this.
        """
        rows = self._pairs.chunk_rows(DEFAULT_MEMORY)
        scan = self._pairs.scan(rows)
        if not scan.is_sorted:
            with temporary_folder() as folder:
                blocks = blocks_within(scan, DEFAULT_MEMORY)
                for _ in sorted_rows(self._pairs, scan, blocks, rows, folder):
                    pass  # which raises an error for a pair listed twice
        if scan.n_pairs != self.n_pairs:
            raise self._corrupt("n_seen", "differs from its statistics")
        return {
            "kind": KIND,
            "path": self.path,
            "n_objects": self.n_objects,
            "n_pairs": self.n_pairs,
            "n_files": self._pairs.n_files,
        }

    def __reduce__(self) -> Any:
        """Pickle the table as its path."""
        return ParquetPairTable, (self.path, self.n_objects if self.states_n_objects else None)


def pairs_of(pairs: StorePath | PairTable, n_objects: int) -> PairTable:
    """Return the table given or stored at the path given, for use with ``n_objects`` objects.

    Only a Parquet file that does not state its number of objects is then of this number.
    """
    table = pairs if isinstance(pairs, PairTable) else PairTable.open(pairs)
    if isinstance(table, ParquetPairTable) and not table.states_n_objects:
        return ParquetPairTable(table.path, n_objects)
    return table


# Tables with one row for each pair


def import_pairs(
    source: Any,
    out: StorePath,
    *,
    n_objects: int | None = None,
    columns: Sequence[str] | None = None,
    overwrite: bool = False,
    memory: int | str = "1GB",
) -> PairTable:
    """Store a table with one row for each pair, of any size, at ``out``; return the stored table.

    ``out`` is a Zarr store or, if it ends in .parquet, a Parquet file of the sorted pairs.
    ``source``, ``n_objects`` and ``columns`` as for `PairTable.from_table`. Reads the source twice, first to
    check it, and sorts it through files of 24 bytes a pair next to ``out``, within ``memory`` besides the
    process itself; a data frame or an Arrow stream is in memory already.

    A store at ``out`` that the same call made of files that have not changed since is returned as it is.

    Raises InvalidPairsError, with the file and row, for a table that breaks a rule, and MemoryBudgetError if
    not even the pairs of a few objects fit.
    """
    given = {"n_objects": n_objects, "columns": columns}
    provenance = {"made_by": "import_pairs", **provenance_of_files(source, given)}
    made = provenance_of_pairs(out) or {}
    if not overwrite and is_finished_import(out, made.get("imported", made), provenance):
        return PairTable.open(out)
    refuse_existing_pairs(out, overwrite)
    if isinstance(source, (str, os.PathLike)):
        refuse_source(out, source)
    pairs = _list_of(source, n_objects, columns)
    if isinstance(pairs, ParquetPairs) and (stated := pairs.stated.provenance):
        pairs.stated = pairs.stated._replace(provenance={**stated, "imported": provenance})
    return _store(pairs, out, provenance, memory=memory, overwrite=overwrite)


def _list_of(x: Any, n_objects: int | None, columns: Sequence[str] | None) -> PairList:
    if isinstance(x, (str, os.PathLike)):
        if is_store(x):
            raise StoreExistsError(f"{x} is a store already; open it with PairTable.open.", path=x)
        if is_parquet(x):
            return ParquetPairs(x, n_objects=n_objects, columns=columns)
    return PairList(open_table(x, "pairs"), n_objects=n_objects, columns=columns)


def _facts(pairs: PairList, provenance: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of the manifest that the table states; it may have its own ``provenance``."""
    if not isinstance(pairs, ParquetPairs):
        return {"rows_per_block": None, "provenance": provenance}
    return {
        "rows_per_block": pairs.stated.rows_per_block,
        "provenance": pairs.stated.provenance or provenance,
    }


def _loaded(pairs: PairList, provenance: dict[str, Any]) -> PairTable:
    """Read a list of pairs into memory."""
    edges = pairs.load()
    assert pairs.n_objects is not None  # noqa: S101 - known once they are read
    facts = _facts(pairs, provenance)
    stored = {**facts, "chunk_entries": CHUNK_ENTRIES, "checksums": {}}
    rows = symmetric_rows(edges, pairs.n_objects)
    return PairTable(*rows, provenance=facts["provenance"], stored=stored)


def _store(
    pairs: PairList, out: StorePath, provenance: dict[str, Any], *, memory: int | str, overwrite: bool
) -> PairTable:
    """Store a list of pairs at ``out`` within ``memory``: as rows or, if it ends in .parquet, as Parquet."""
    facts, budget = _facts(pairs, provenance), parse_size(memory)
    return _written(
        out, overwrite, lambda at, over: store_list(pairs, at, facts, budget=budget, overwrite=over)
    )


def _written(out: StorePath, overwrite: bool, write: Callable[[StorePath, bool], None]) -> PairTable:
    """Let ``write`` store rows at ``out`` or, if it ends in .parquet, beside it, from where they are listed.

    It takes the path and whether to overwrite.
    """
    refuse_existing_pairs(out, overwrite)
    if not names_parquet(out):
        write(out, overwrite)
        return PairTable.open(out)
    with scratch_beside(out) as folder:
        write(folder / "pairs.zarr", False)
        return PairTable.open(folder / "pairs.zarr").to_parquet(out, overwrite=overwrite)
