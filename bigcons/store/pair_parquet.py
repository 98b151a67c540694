"""Pairs in Parquet: a file or a folder of part files, written in chunks and opened without being read."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bigcons.disk.commit import (
    names_parquet,
    new_file,
    new_folder_of_files,
    provenance_at,
    refuse_existing,
    refuse_existing_file,
)
from bigcons.disk.interface import StorePath
from bigcons.disk.places import DiskPlace, place_of
from bigcons.disk.reading import corrupt
from bigcons.disk.schema import PAIR_COLUMNS
from bigcons.errors import BigconsError, InvalidPairsError
from bigcons.io.files import ParquetTable, is_parquet
from bigcons.memory import BLOCK_ROWS
from bigcons.store.pair_lists import PairList
from bigcons.store.pair_rows import MAX_OBJECTS, Edges
from bigcons.validation import check_int

_METADATA = b"bigcons.pairs"


def holds_pairs(path: StorePath) -> bool:
    """Return whether the Parquet at ``path`` has the columns of a table of pairs."""
    return set(PAIR_COLUMNS) <= set(ParquetTable(_path_of(path)).names or [])


def refuse_existing_pairs(path: StorePath, overwrite: bool) -> None:
    """Raise StoreExistsError if a table of pairs must not be written at ``path``; call it before any work."""
    if names_parquet(path):
        refuse_existing_file(path, overwrite)
    else:
        refuse_existing(path, overwrite, "pairs")


def provenance_of_pairs(path: StorePath) -> Mapping[str, Any] | None:
    """Return what the table of pairs at ``path`` was made with; None if it does not say it."""
    if not is_parquet(path):
        return provenance_at(path, "pairs")
    with suppress(BigconsError):
        return ParquetPairs(path).stated.provenance
    return None


# Writing


def write_parquet(
    path: StorePath,
    parts: Iterable[Edges],
    facts: Mapping[str, Any],
    *,
    n_pairs: int,
    pairs_per_file: int | None,
    overwrite: bool,
) -> None:
    """Write consecutive ``parts`` of ``n_pairs`` pairs, with ``facts`` in the metadata, all or nothing.

    One file or, with ``pairs_per_file``, a folder of files of that many pairs each. One part and one row
    group are in memory at a time.
    """
    if pairs_per_file is None:
        with new_file(path, overwrite=overwrite) as file:
            _write_file(file, _row_groups(parts, None), facts)
        return
    groups = _row_groups(parts, check_int("pairs_per_file", pairs_per_file))
    with new_folder_of_files(path, "part-*.parquet", overwrite=overwrite) as folder:
        for number, of_file in groupby(groups, lambda group: group[0]):
            with (folder / f"part-{number:05}.parquet").open("wb") as file:
                _write_file(file, of_file, {**facts, "n_pairs": n_pairs})


def _row_groups(parts: Iterable[Edges], pairs_per_file: int | None) -> Iterator[tuple[int, Edges]]:
    """Regroup ``parts`` into row groups of a million, at least one, each with the number of its file."""
    file, room = 0, pairs_per_file or sys.maxsize
    held: list[Edges] = []
    n_held = n_groups = 0
    for part in parts:
        held.append(part)
        n_held += len(part.i)
        while n_held >= (size := min(1 << 20, room)):
            joined = _joined(held)
            yield file, Edges(*(column[:size] for column in joined))
            held, n_held = [Edges(*(column[size:] for column in joined))], n_held - size
            n_groups, room = n_groups + 1, room - size
            if not room:
                file, room = file + 1, pairs_per_file or sys.maxsize
    if n_held or not n_groups:
        yield file, _joined(held)


def _joined(parts: list[Edges]) -> Edges:
    return Edges(*map(np.concatenate, zip(*parts, strict=True)))


def _write_file(file: Any, groups: Iterable[tuple[int, Edges]], facts: Mapping[str, Any]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    writer = None
    for _, group in groups:
        table = pa.table(group._asdict())
        if writer is None:
            stated = json.dumps(facts, default=str).encode()
            schema = table.schema.with_metadata({_METADATA: stated})
            writer = parquet.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True)
        writer.write_table(table)
    if writer is not None:
        writer.close()


# Reading


class Stated(NamedTuple):
    """What the files state: None where they do not."""

    n_objects: int | None
    n_pairs: int | None
    """In all files together."""
    rows_per_block: int | None
    provenance: dict[str, Any] | None


class ParquetPairs(PairList):
    """The pairs in a Parquet file or folder, with what its footers state.

    ``n_objects`` is what the files state, else the one given, else None.
    """

    def __init__(
        self, path: StorePath, *, n_objects: int | None = None, columns: Sequence[str] | None = None
    ) -> None:
        table = ParquetTable(_path_of(path))
        self.stated: Stated = _stated(table)
        if None not in (n_objects, self.stated.n_objects) and n_objects != self.stated.n_objects:
            raise InvalidPairsError(
                f"{table.where} has pairs of n_objects={self.stated.n_objects}, not {n_objects}; "
                "use pairs of the same objects.",
                path=table.where,
            )
        known = n_objects if self.stated.n_objects is None else self.stated.n_objects
        super().__init__(table, n_objects=known, columns=columns)
        if self.stated.n_pairs not in (None, table.n_rows):
            raise corrupt(
                table.where,
                f"states n_pairs={self.stated.n_pairs} but its files have {table.n_rows}",
                "restore the missing files or, if pairs were left out, remove the key bigcons.pairs.",
            )
        self.n_files: int = len(table.files())

    def n_seen_pairs(self) -> int:
        """Return the number of pairs with ``n_seen > 0``, from the statistics or by reading."""
        n_rows = self.table.n_rows or 0
        lowest = self._statistics(self.columns[3], "min")
        if lowest is not None and lowest > 0:
            return n_rows
        return sum(int(np.count_nonzero(part.n_seen)) for part in self.chunks(BLOCK_ROWS))

    def largest_object(self) -> int:
        """Return the largest object of any pair, -1 without pairs; from the statistics, else by reading."""
        largest = self._statistics(self.columns[1], "max")
        if largest is not None:
            return int(largest)
        return max((int(part.j.max(initial=-1)) for part in self.chunks(BLOCK_ROWS)), default=-1)

    def _statistics(self, name: str, which: str) -> int | None:
        """Return the "min" or "max" of a column over all row groups; None if one does not state it."""
        found: list[Any] = []
        for metadata in map(_footer, self.files()):
            for g in range(metadata.num_row_groups):
                group = metadata.row_group(g)
                columns = [group.column(c) for c in range(group.num_columns)]
                try:
                    statistics = next(c.statistics for c in columns if c.path_in_schema == name)
                except (ValueError, StopIteration):  # a damaged footer: reading tells
                    return None
                if group.num_rows and (statistics is None or not statistics.has_min_max):
                    return None
                if group.num_rows:
                    found.append(getattr(statistics, which))
        return {"min": min, "max": max}[which](found, default=None)

    def files(self) -> list[Path]:
        """Return the paths of the files, in order."""
        assert isinstance(self.table, ParquetTable)  # noqa: S101 - set so
        return self.table.files()


def _path_of(path: StorePath) -> Path:
    place = place_of(path)
    assert isinstance(place, DiskPlace)  # noqa: S101 - `is_parquet` was asked
    return place.path


def _footer(path: Path) -> Any:
    from pyarrow import parquet

    return parquet.read_metadata(path)


def _stated(table: ParquetTable) -> Stated:
    """Return what the files state in their metadata, which must agree."""
    found: list[Stated] = []
    for path in table.files():
        text = (_footer(path).metadata or {}).get(_METADATA)
        try:
            facts = {} if text is None else dict(json.loads(text))
            for name, most in (
                ("n_objects", MAX_OBJECTS),
                ("n_pairs", 2**62),
                ("rows_per_block", MAX_OBJECTS),
            ):
                if facts.get(name) is not None:
                    check_int(name, facts[name], at_least=int(name == "rows_per_block"), at_most=most)
            provenance = facts.get("provenance")
            facts["provenance"] = None if provenance is None else dict(provenance)
        except (ValueError, TypeError, RecursionError) as error:
            raise corrupt(path, f"has damaged metadata ({error})", "write the pairs again.") from error
        found.append(Stated(*(facts.get(name) for name in Stated._fields)))
        if found[-1]._replace(provenance=None) != found[0]._replace(provenance=None):
            what = f"and {table.files()[0]} are of different tables"
            raise corrupt(path, what, "keep each in a folder of its own.")
    return found[0]
