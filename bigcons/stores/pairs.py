"""PairTable: pairs of objects with their counts of agreement, in memory or in a store.

A symmetric matrix in compressed sparse rows: every pair is in the rows of both of its objects, so that a
block of rows is self-contained. A store has the four arrays in chunks of equal length that decode fast;
Parquet is for exchange with other programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from bigcons.errors import CorruptStoreError, InvalidInputError, StoreError
from bigcons.memory import Block, format_size, row_blocks
from bigcons.schema import PAIRS
from bigcons.storage.interface import StorePath
from bigcons.storage.places import place_of
from bigcons.stores.display import facts_table
from bigcons.stores.pair_rows import (
    Edges,
    Rows,
    ascending_pairs,
    checked_counts,
    fault_of,
    imbalance,
    row_of_entries,
    symmetric_rows,
)
from bigcons.stores.pair_store import (
    KIND,
    RESTORE,
    checksum,
    open_pairs,
    read_parquet,
    write_pairs,
    write_parquet,
)

CHUNK_ENTRIES = 1 << 20
ENTRIES_PER_BLOCK = 1 << 22


class PairTable:
    """Pairs of objects, with the number of partitions that cluster them together and that label both.

    Stored as compressed sparse rows: row ``r`` has the neighbors ``indices[indptr[r]:indptr[r + 1]]`` in
    ascending order, with their counts at the same positions; every pair is in the rows of both of its
    objects. ``indptr`` ``(n_objects + 1,)`` int64; ``indices`` ``(2 n_pairs,)`` int32; ``n_agree`` and
    ``n_seen`` ``(2 n_pairs,)`` uint8 or, for counts above 254, uint16. Pairs that no partition
    labels at both ends carry no information and are omitted. Of soft clusterings, ``n_agree`` is the expected
    number of partitions that put the pair together, ``sum_u p_iu . p_ju``, float32.

    A stored table is read on demand: ``read`` reads a range of rows, the four attributes read everything.
    ``provenance`` records the source of the table and how it was made. ``rows_per_block`` is set if the pairs
    were sampled in tiles: the rows of one such block then have neighbors in a few blocks only.
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
    def open(cls, path: StorePath) -> PairTable:
        """Open the table stored at ``path`` for reading.

        Raises StoreNotFoundError if it does not exist, CorruptStoreError if its arrays do not match the
        manifest.
        """
        place = place_of(path)
        arrays, body = open_pairs(place)
        return cls(**arrays, path=str(place), provenance=body["provenance"], stored=body)

    def save(self, path: StorePath, *, overwrite: bool = False) -> PairTable:
        """Store the table at ``path``, all or nothing, and return the stored table."""
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
        parts must have ``n_objects`` rows and contain every pair in the rows of both of its objects.
        """
        facts = {
            "n_objects": n_objects,
            "rows_per_block": rows_per_block,
            "provenance": dict(provenance or {}),
        }
        write_pairs(
            path,
            parts,
            counts_dtype,
            counts_dtype if agree_dtype is None else agree_dtype,
            chunk_entries or CHUNK_ENTRIES,
            facts,
            overwrite=overwrite,
        )
        return cls.open(path)

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
        rows = rows or self.rows_per_block or max(1, int(ENTRIES_PER_BLOCK / max(mean_entries, 1)))
        return row_blocks(self.n_objects, rows)

    def degrees(self, start: int, stop: int) -> np.ndarray:
        """Return the number of pairs of each of the objects ``start`` to ``stop``."""
        return np.diff(self._part("indptr", start, stop + 1))

    def read(self, start: int, stop: int) -> Rows:
        """Return the rows of the objects ``start`` to ``stop``, with ``indptr`` counted from 0.

        Raises CorruptStoreError if rows of a stored table are invalid.
        """
        if not 0 <= start <= stop <= self.n_objects:
            raise InvalidInputError(
                f"rows {start} to {stop} are not within a table of n_objects={self.n_objects}; "
                f"use 0 <= start <= stop <= {self.n_objects}."
            )
        indptr = self._part("indptr", start, stop + 1)
        entries = (int(indptr[0]), int(indptr[-1]))
        columns = (self._part(name, *entries) for name in ("indices", "n_agree", "n_seen"))
        return Rows(indptr - indptr[0], *columns)

    def edges(self) -> Edges:
        """Return every pair once: ``(i, j, n_agree, n_seen)`` with ``i < j``, ascending."""
        parts = list(self._edges_of_blocks())
        return Edges(*map(np.concatenate, zip(*parts, strict=True)))

    def to_parquet(self, path: StorePath, *, overwrite: bool = False) -> None:
        """Write every pair once, as columns ``i < j``, ``n_agree``, ``n_seen``, all or nothing.

        Pages have checksums; ``n_objects`` and the provenance are in the file's metadata.
        """
        facts = {"n_objects": self.n_objects, "provenance": self.provenance}
        write_parquet(path, self._edges_of_blocks(), facts, overwrite=overwrite)

    @classmethod
    def from_parquet(cls, path: StorePath, n_objects: int | None = None) -> PairTable:
        """Read a table from the integer columns ``i``, ``j``, ``n_agree``, ``n_seen`` of a Parquet file.

        ``n_objects`` is required for files of other programs, because the last objects may have no pairs.
        """
        columns, facts = read_parquet(path, n_objects)
        return cls.from_arrays(*columns, **facts)

    def info(self) -> dict[str, Any]:
        """Return a summary as JSON values, without reading the arrays."""
        if self.path is None:
            n_bytes = sum(column.nbytes for column in self._columns)
        else:
            n_bytes = place_of(self.path).n_bytes()
        return {
            "kind": KIND,
            "path": self.path,
            "n_objects": self.n_objects,
            "n_pairs": self.n_pairs,
            "pairs_per_object": 2 * self.n_pairs / max(self.n_objects, 1),
            "counts_dtype": str(np.dtype(self._columns.n_seen.dtype)),
            "rows_per_block": self.rows_per_block,
            "n_bytes": n_bytes,
            "provenance": self.provenance,
        }

    def verify(self) -> dict[str, Any]:
        """Read every entry and check it against the checksums and the rules of a symmetric table.

        Returns ``{"kind", "path", "n_objects", "n_pairs", "n_blocks"}``; raises CorruptStoreError if a
        chunk differs from what was written, a row does not ascend, or a pair differs between its two rows.
        """
        table = self if self.path is None else type(self).open(self.path)  # not the cached arrays
        for name, checksums in table._stored["checksums"].items():
            chunks = row_blocks(getattr(table._columns, name).shape[0], table._stored["chunk_entries"])
            for chunk, expected in zip(chunks, checksums, strict=True):
                if checksum(table._part(name, chunk.start, chunk.stop)) != expected:
                    raise table._corrupt(name, f"differs from its checksum in chunk {chunk.index}")
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
        """Raise CorruptStoreError for positions out of range and for the fill value of a missing chunk."""
        if not len(part):
            return part
        if name == "indptr":
            if part[0] < 0 or part[-1] > 2 * self.n_pairs or (np.diff(part) < 0).any():
                raise self._corrupt(name, "does not ascend")
        elif name == "indices":
            if part.min() < 0 or part.max() >= self.n_objects:
                raise self._corrupt(name, f"has values outside 0 to {self.n_objects - 1}")
        elif part.dtype.kind == "f":
            if not part.min() >= 0:
                raise self._corrupt(name, "is missing a chunk")
        elif part.max() == PAIRS[name].fill_value(part.dtype) or (name == "n_seen" and part.min() == 0):
            raise self._corrupt(name, "is missing a chunk")
        return part

    def _edges_of_blocks(self) -> Iterator[Edges]:
        for block in self.blocks() or [Block(0, 0, 0)]:
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
        try:
            part = np.ascontiguousarray(column[start:stop])
        except (OSError, MemoryError, StoreError):
            raise
        except Exception as error:  # codecs raise errors of many types
            raise self._corrupt(name, f"cannot be decoded ({error})") from error
        return self._check(name, part)

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
