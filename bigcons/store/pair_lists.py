"""Tables that list pairs, one in each row: read in chunks, checked, and sorted into symmetric rows.

The rows may be in any order, and the table larger than memory. It is read twice: once to check every row and
to count the ends of pairs in each range of objects, and once to write every pair to two files, those of the
ranges of its objects. Ranges are chosen so that each fits in memory, where it is sorted.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bigcons.disk.files import StorePath
from bigcons.disk.places import BESIDE, DiskPlace, disk_errors, make_temporary_folder, naming, place_of
from bigcons.disk.schema import PAIR_COLUMNS
from bigcons.errors import InvalidInputError, InvalidPairsError, MemoryBudgetError
from bigcons.io.batches import Source
from bigcons.io.files import CsvSource, ParquetSource
from bigcons.memory import BLOCK_ROWS, Block, enough_for, format_size, rows_within
from bigcons.progress import progress
from bigcons.store.pair_rows import (
    CHUNK_ENTRIES,
    MAX_OBJECTS,
    MAX_SEEN,
    OBJECT_BYTES,
    Edges,
    Rows,
    counts_dtype,
    rows_of_entries,
    write_pairs,
)

logger: logging.Logger = logging.getLogger("bigcons")

RANGES = 1 << 16
"""Ends of pairs are counted in at most this many ranges of objects of equal width, a power of 2."""


class Scan(NamedTuple):
    """What a table of pairs contains, once every row has been checked."""

    n_rows: int
    n_pairs: int
    """Rows with ``n_seen > 0``."""
    n_objects: int
    largest_seen: int
    ends: np.ndarray
    """Number of ends of pairs in each range of ``width`` objects, int64."""
    width: int


class PairList:
    """A table with one row for each pair, in any order, in the columns of `bigcons.disk.schema.PAIR_COLUMNS`.

    All are integers.
    ``columns`` are other names of these four, in their order. ``n_objects`` is None if it is unknown.
    """

    def __init__(
        self, table: Source, *, n_objects: int | None = None, columns: Sequence[str] | None = None
    ) -> None:
        self.table = table
        self.n_objects = n_objects
        self._reads_by_arrow = isinstance(table, (CsvSource, ParquetSource))
        self.columns: list[str] = list(PAIR_COLUMNS if columns is None else columns)
        if len(self.columns) != len(PAIR_COLUMNS):
            raise InvalidInputError(
                f"columns={self.columns}; give four names, of the columns {', '.join(PAIR_COLUMNS)}.",
                parameter="columns",
            )
        if n_objects is not None and not 0 <= n_objects <= MAX_OBJECTS:
            raise InvalidInputError(
                f"n_objects={n_objects} is out of range; use 0 to {MAX_OBJECTS:,}.", parameter="n_objects"
            )
        self._positions = self._find()

    def _find(self) -> list[int]:
        """Return the positions of the four columns; they must be integers if the table states types."""
        names, types = self.table.names, self.table.column_types()
        needed = f"the integer columns {', '.join(self.columns)}"
        if names is None:
            raise InvalidPairsError(
                f"{self.table.where} has no column names; it needs {needed}.", path=self.table.where
            )
        once = all(names.count(name) == 1 for name in self.columns)
        positions = [names.index(name) for name in self.columns] if once else []
        kinds = () if types is None else [types[c] for c in positions]
        if not once or not all(map(_is_integer, kinds)):
            stated = names if types is None else [f"{n}: {t}" for n, t in zip(names, types, strict=True)]
            raise InvalidPairsError(
                f"{self.table.where} has the columns {', '.join(stated)}; it needs {needed}.",
                path=self.table.where,
            )
        return positions

    # Reading

    def chunk_rows(self, budget: int) -> int:
        """Return how many rows to read at a time within ``budget`` bytes."""
        # measured, with a margin: a row while it is checked and distributed, and what Arrow's allocator holds
        # while a file is read, however little of it at a time
        rows = rows_within(
            budget,
            self.table.row_bytes + 160,
            fixed=self.table.held_bytes + (24_000_000 if self._reads_by_arrow else 0),
            at_least=self.table.least_rows,
            what="one chunk of the table of pairs",
        )
        return min(rows, max(1 << 18, self.table.least_rows))

    def chunks(self, rows: int) -> Iterator[Edges]:
        """Yield the rows about ``rows`` at a time: int32 objects, uint16 counts, checked.

        Raises InvalidPairsError, with the file and row, for the first that breaks a rule. Pairs listed twice
        are not found here.
        """
        first = 0
        for block in self.table.batches(rows, columns=self._positions):
            columns = [
                self._numbers(name, column, first) for name, column in zip(self.columns, block, strict=True)
            ]
            del block
            part = Edges(*columns)
            self._check(part, first)
            first += len(part.i)
            yield Edges(
                part.i.astype(np.int32, copy=False),
                part.j.astype(np.int32, copy=False),
                part.n_agree.astype(np.uint16, copy=False),
                part.n_seen.astype(np.uint16, copy=False),
            )
            del part, columns  # before the table makes the next ones
        if first == 0 and self.n_objects is None:
            raise InvalidPairsError(
                f"{self.table.where} is empty; write at least one pair, or give the number of objects.",
                path=self.table.where,
            )

    def _numbers(self, name: str, column: Any, first: int) -> np.ndarray:
        is_array = isinstance(column, np.ndarray)
        if not is_array and column.null_count:
            nulls = np.asarray(column.is_null())
            raise self._invalid(first + int(np.argmax(nulls)), f"no {name} (null)", "every pair needs one")
        fits = column.dtype.kind in "iu" if is_array else _is_integer(column.type)
        if not fits:
            kind = column.dtype if is_array else column.type
            where = self.table.where
            raise InvalidPairsError(
                f"column {name!r} of {where} has type {kind}; it needs integers.", path=where, row=first
            )
        return column if is_array else np.asarray(column)

    def _check(self, part: Edges, first: int) -> None:
        i, j, n_agree, n_seen = part
        n_objects = MAX_OBJECTS if self.n_objects is None else self.n_objects
        bad = (i < 0) | (i >= j) | (j >= n_objects)
        bad |= (n_agree < 0) | (n_agree > n_seen) | (n_seen > MAX_SEEN)
        if not bad.any():
            return
        at = int(np.argmax(bad))
        pair = f"{self.columns[0]}={i[at]}, {self.columns[1]}={j[at]}"
        if i[at] < 0 or j[at] < 0 or max(i[at], j[at]) >= n_objects:
            raise self._invalid(first + at, pair, f"objects are numbered 0 to {n_objects - 1}")
        if i[at] >= j[at]:
            names = f"{self.columns[0]} < {self.columns[1]}"
            raise self._invalid(first + at, pair, f"a pair is given once, with {names}")
        counts = f"{self.columns[2]}={n_agree[at]}, {self.columns[3]}={n_seen[at]}"
        names = f"0 <= {self.columns[2]} <= {self.columns[3]} <= {MAX_SEEN}"
        raise self._invalid(first + at, counts, f"{names} must hold")

    def _invalid(self, row: int, got: str, rule: str) -> InvalidPairsError:
        where = self.table.where
        return InvalidPairsError(
            f"row {row} of {where} has {got}, but {rule}; correct or remove it.", path=where, row=row
        )

    def repeated(self, number: int, rows: int) -> InvalidPairsError:
        """Return the error of a pair, by its number, that is listed twice; reads the table to find where."""
        i, j = number >> 32, number & 0xFFFFFFFF
        found: list[int] = []
        first = 0
        for part in self.chunks(rows):
            found += (first + np.flatnonzero((part.i == i) & (part.j == j))).tolist()
            first += len(part.i)
            if len(found) > 1:
                break
        row, again = found[:2]
        where = self.table.where
        return InvalidPairsError(
            f"rows {row} and {again} of {where} both list the pair {self.columns[0]}={i}, "
            f"{self.columns[1]}={j}; keep one of them.",
            path=where,
            row=again,
        )

    def scan(self, rows: int) -> Scan:
        """Read and check all rows, ``rows`` at a time."""
        ends, width = np.zeros(RANGES, np.int64), 1
        n_rows = n_pairs = largest = 0
        last = -1  # object, as the largest of the list so far
        with progress("check pairs", self.table.n_rows or 0, "pairs") as listener:
            for part in self.chunks(rows):
                n_rows += len(part.i)
                listener.advance(len(part.i))
                last = max(last, int(part.j.max(initial=-1)))
                part = _seen(part)
                largest = max(largest, int(part.n_seen.max(initial=0)))
                n_pairs += len(part.i)
                ends, width = _widened(ends, width, last + 1)
                for column in (part.i, part.j):
                    ends += np.bincount(column // width, minlength=RANGES)
        _release_arrow()
        n_objects = self._n_objects(last, n_rows)
        ends, width = _widened(ends, width, n_objects)  # the last may be in no pair
        return Scan(n_rows, n_pairs, n_objects, largest, ends[: -(-n_objects // width)], width)

    def load(self) -> Edges:
        """Return the pairs with ``n_seen > 0``, ascending by i, then j, each once.

        The number of objects, if unknown, becomes that of the largest object. Raises InvalidPairsError if a
        pair is listed twice.
        """
        last = -1
        parts = [Edges(*(np.empty(0, t) for t in (np.int32, np.int32, np.uint16, np.uint16)))]
        for part in self.chunks(BLOCK_ROWS):
            last = max(last, int(part.j.max(initial=-1)))
            parts.append(_seen(part))
        self.n_objects = self._n_objects(last, sum(len(part.i) for part in parts))
        edges = Edges(*map(np.concatenate, zip(*parts, strict=True)))
        del parts
        number = _pair_numbers(edges.i, edges.j)
        if (number[1:] <= number[:-1]).any():
            order = np.argsort(number)
            number = number[order]
            edges = Edges(*(column[order] for column in edges))
        again = number[1:][number[1:] == number[:-1]]
        if len(again):
            raise self.repeated(int(again[0]), BLOCK_ROWS)
        return edges

    def _n_objects(self, last: int, n_pairs: int) -> int:
        """Return the number of objects: as known, or else that of the largest object of ``n_pairs`` pairs."""
        if self.n_objects is not None:
            return self.n_objects
        # More objects than this, and than this many for each pair, are numbers that are no rows.
        if last >= max(1 << 24, 100 * n_pairs):
            raise InvalidPairsError(
                f"{self.table.where} has {n_pairs:,} pairs and an object {last:,}; number the objects from 0 "
                f"without gaps or, if there are that many, give n_objects={last + 1}.",
                path=self.table.where,
            )
        return last + 1


def _is_integer(kind: Any) -> bool:
    """Return whether an Arrow type is one of integers."""
    import pyarrow as pa

    return bool(pa.types.is_integer(kind))


def _widened(ends: np.ndarray, width: int, n_objects: int) -> tuple[np.ndarray, int]:
    """Return the counts of ends in ranges so wide that they cover so many objects, and their width."""
    while n_objects > width * RANGES:
        ends, width = np.append(ends.reshape(-1, 2).sum(axis=1), np.zeros(RANGES // 2, np.int64)), 2 * width
    return ends, width


def _pair_numbers(i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Return a number for each pair, in the order of i, then j."""
    return i.astype(np.int64) << 32 | j


def _seen(pairs: Edges) -> Edges:
    """Return the pairs with ``n_seen > 0``."""
    seen = pairs.n_seen > 0
    return pairs if seen.all() else Edges(*(column[seen] for column in pairs))


def _release_arrow() -> None:
    """Return to the system what Arrow keeps of the memory that it has used."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()


# Sorting

# An end of a pair in the file of a range.
_END = np.dtype([("row", "<i4"), ("column", "<i4"), ("n_agree", "<u2"), ("n_seen", "<u2")])


def store_list(
    pairs: PairList, out: StorePath, facts: Mapping[str, Any], *, budget: int, overwrite: bool
) -> None:
    """Store a list of pairs as rows at ``out`` within ``budget`` bytes, with ``facts`` in the head.

    The number of objects, if unknown, becomes that of the largest object.
    """
    rows = pairs.chunk_rows(budget)
    scan = pairs.scan(rows)
    pairs.n_objects = scan.n_objects
    chunk_entries, entry_bytes = CHUNK_ENTRIES, 96  # while the chunk is written
    while chunk_entries > 1 << 12 and 8 * entry_bytes * chunk_entries > budget:
        chunk_entries //= 2
    blocks = blocks_within(scan, max(budget - entry_bytes * chunk_entries, budget // 2))
    logger.info(
        "%s: sorting %s pairs of %s objects into rows, in %d parts",
        *(pairs.table.where, f"{scan.n_pairs:,}", f"{scan.n_objects:,}", len(blocks)),
    )
    with scratch_beside(out) as folder:
        parts = sorted_rows(pairs, scan, blocks, rows, folder)
        all_facts = {**facts, "n_objects": scan.n_objects}
        dtype = counts_dtype(scan.largest_seen)
        write_pairs(out, parts, dtype, chunk_entries, all_facts, overwrite=overwrite)


@contextmanager
def scratch_beside(out: StorePath) -> Iterator[Path]:
    """Yield a temporary folder on the disk of ``out``, or the system's if that is in a bucket."""
    place = place_of(out)
    parent = place.path.parent if isinstance(place, DiskPlace) else None
    if parent is not None:
        parent.mkdir(parents=True, exist_ok=True)
    with naming(Path(str(place))):
        folder = make_temporary_folder(parent, BESIDE)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sorted_rows(pairs: PairList, scan: Scan, blocks: list[Block], rows: int, folder: Path) -> Iterator[Rows]:
    """Yield the symmetric rows of each of the ``blocks`` of objects, in order.

    ``blocks`` from `blocks_within`; every pair is written twice to files in ``folder``, 12 bytes each time
    which are removed as they are read. ``rows`` of the table are read at a time. Raises
    InvalidPairsError if a pair is listed twice.
    """
    with disk_errors(folder):
        _distribute(pairs, scan, blocks, rows, folder)
    dtype = counts_dtype(scan.largest_seen)
    for block in blocks:
        file = folder / str(block.index)
        ends = np.fromfile(file, _END) if file.exists() else np.empty(0, _END)
        file.unlink(missing_ok=True)
        row = ends["row"] - np.int32(block.start)
        columns = (ends["column"], ends["n_agree"].astype(dtype), ends["n_seen"].astype(dtype))
        part = rows_of_entries(row, *columns, n_rows=block.n_rows, n_objects=scan.n_objects)
        if len(part.indices) < len(ends):  # equal entries were added up
            raise pairs.repeated(_first_repeated(ends), rows)
        del ends, row, columns
        yield part


def blocks_within(scan: Scan, budget: int) -> list[Block]:
    """Return blocks of objects whose pairs can each be sorted in ``budget`` bytes.

    Raises MemoryBudgetError if those of a single range cannot.
    """
    starts, held = [0], 0
    for number, n_ends in enumerate(scan.ends.tolist()):
        # measured, with a margin: an end of a pair while a range of objects is sorted and stored
        needed = 96 * n_ends + OBJECT_BYTES * scan.width
        if needed > budget:
            raise MemoryBudgetError(
                f"the pairs of objects {number * scan.width} to {(number + 1) * scan.width - 1} take "
                f"{format_size(needed)} while they are sorted, over {format_size(budget)}; raise memory to "
                f"{enough_for(needed)}.",
                needed=needed,
                budget=budget,
            )
        if held + needed > budget:
            starts.append(number * scan.width)
            held = 0
        held += needed
    stops = [*starts[1:], scan.n_objects]
    return [Block(b, *ends) for b, ends in enumerate(zip(starts, stops, strict=True))]


def _distribute(pairs: PairList, scan: Scan, blocks: list[Block], rows: int, folder: Path) -> None:
    """Append both ends of every pair to the files of their blocks."""
    n_ranges = [-(-block.n_rows // scan.width) for block in blocks]
    block_of = np.repeat(np.arange(len(blocks), dtype=np.uint16), n_ranges)
    n_written = 0
    with progress("sort pairs", scan.n_rows, "pairs") as listener:
        for part in pairs.chunks(rows):
            listener.advance(len(part.i))
            part = _seen(part)
            n = len(part.i)
            ends = np.empty(2 * n, _END)
            ends["row"][:n], ends["row"][n:] = part.i, part.j
            ends["column"][:n], ends["column"][n:] = part.j, part.i
            for name in ("n_agree", "n_seen"):
                ends[name][:n] = ends[name][n:] = getattr(part, name)
            of = block_of[np.minimum(ends["row"] // scan.width, len(block_of) - 1)]
            ends = ends[np.argsort(of, kind="stable")]
            stops = np.cumsum(np.bincount(of, minlength=len(blocks)))
            for block in np.unique(of).tolist():
                start = stops[block - 1] if block else 0
                with (folder / str(block)).open("ab") as file:
                    file.write(ends[start : stops[block]].data)
            n_written += len(ends)
            del part, ends, of
    _release_arrow()
    if n_written != 2 * scan.n_pairs:
        raise InvalidPairsError(
            f"{pairs.table.where} changed while it was read; pass pairs that do not change.",
            path=pairs.table.where,
        )


def _first_repeated(ends: np.ndarray) -> int:
    """Return the number of a pair of which ``ends`` has the same end twice."""
    number = np.sort(_pair_numbers(ends["row"], ends["column"]))
    found = int(number[1:][number[1:] == number[:-1]][0])
    one, other = found >> 32, found & 0xFFFFFFFF
    return min(one, other) << 32 | max(one, other)
