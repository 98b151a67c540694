"""Store ensembles, build them from tables of labels, and append objects or partitions to existing ones.

Every table is read twice, once to find the values and once to encode them, so it is never in memory as a
whole unless the ensemble is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from bigcons.errors import CorruptStoreError, InvalidIdsError, InvalidInputError
from bigcons.memory import BLOCK_ROWS, row_blocks, rows_within
from bigcons.progress import progress
from bigcons.schema import MISSING
from bigcons.storage.commit import PARQUET_MANIFEST, manifest_of, names_parquet, new_store
from bigcons.storage.interface import Place, StorePath
from bigcons.stores import parquet_ensemble, zarr_ensemble
from bigcons.stores.ensemble_store import (
    KIND,
    Appending,
    Categories,
    Header,
    RowsWriter,
    StoredRows,
    stamp_of,
)
from bigcons.stores.generator import Generator
from bigcons.stores.ids import AppendedIds
from bigcons.stores.soft_sources import SoftSources
from bigcons.tables.codes import Encoding
from bigcons.tables.encode import (
    MIN_CHUNK_ROWS,
    LabelScan,
    check_distinct,
    chunk_rows_within,
    default_chunk_rows,
    encode_labels,
    label_dtype,
    partition_names,
    rechunk,
    rows_per_read,
    scan_labels,
)
from bigcons.tables.ids import Ids, check_distinct_ids, refuse_other_ids, rows_of_ids
from bigcons.tables.select import SelectedTable
from bigcons.tables.table import Table
from bigcons.validation import check_int

# Stores


def open_labels(path: Place) -> StoredRows:
    """Open the store at ``path``, even while another process appends to it."""
    while True:
        stamp = stamp_of(path)
        try:
            if manifest_of(path).name == PARQUET_MANIFEST:
                return parquet_ensemble.ParquetRows(path)
            return zarr_ensemble.ZarrRows(path)
        except CorruptStoreError:
            if stamp_of(path) == stamp:
                raise


def write_store(
    path: StorePath,
    blocks: Iterable[np.ndarray],
    header: Header,
    categories: Categories,
    dtype: np.dtype,
    overwrite: bool,
) -> None:
    """Store consecutive blocks of labels or memberships as a new ensemble; the suffix tells if in Parquet."""
    parquet_ensemble.refuse_wide(path, len(header.names))
    with new_store(path, overwrite, KIND) as folder:
        writer: RowsWriter
        if names_parquet(path):
            writer = parquet_ensemble.ParquetWriter(folder, header, categories, dtype)
        else:
            writer = zarr_ensemble.ArrayWriter(folder, folder, header, categories, dtype)
        with progress("labels to the store", header.n_objects) as listener:
            for block in rechunk(blocks, header.chunk_rows):
                writer.write(block)
                listener.advance(len(block))
        writer.commit()


def appending(place: Place) -> AbstractContextManager[Appending]:
    """Lock the store at ``place`` for an append; if the ``with`` block fails, the store stays as it was."""
    is_parquet = manifest_of(place).name == PARQUET_MANIFEST
    return (parquet_ensemble if is_parquet else zarr_ensemble).appending(place)


# New ensembles


def read_labels(
    table: Table,
    provenance: dict[str, Any],
    *,
    names: Sequence[str] | None = None,
    known: Sequence[np.ndarray] | None = None,
    generator: Generator | None = None,
) -> tuple[np.ndarray, Header, Categories]:
    """Read a table into memory: labels, header, categories; new values come after the ``known`` ones."""
    scan = scan_labels(table, partition_names(table, names), known=known)
    dtype = label_dtype([len(encoding.values) for encoding in scan.encodings])
    labels = np.empty((scan.n_objects, table.n_columns), dtype)
    start = 0
    for block in encode_labels(table, scan.encodings, dtype):
        labels[start : start + len(block)] = block
        start += len(block)
    header = held(_header(scan, provenance, table.ids))._replace(generator=generator)
    return labels, header, [e.categories for e in scan.encodings]


def store_labels(
    table: Table,
    out: StorePath,
    provenance: dict[str, Any],
    *,
    budget: int,
    overwrite: bool,
    chunk_rows: int | None = None,
    generator: Generator | None = None,
) -> None:
    """Store a table as a new ensemble at ``out`` within a ``budget`` of bytes; see `import_labels`."""
    parquet_ensemble.refuse_wide(out, table.n_columns)
    rows = rows_per_read(table, budget)
    scan = scan_labels(table, partition_names(table, None), rows=rows, values_budget=budget // 4)
    dtype = label_dtype([len(encoding.values) for encoding in scan.encodings])
    if chunk_rows is None:
        id_bytes = 0 if table.ids is None else math.ceil(table.ids.row_bytes)
        row_bytes = dtype.itemsize * table.n_columns + id_bytes
        chunk_rows = chunk_rows_within(scan.n_objects, table.n_columns, row_bytes, budget)
    header = _header(scan, provenance, table.ids)
    header = header._replace(chunk_rows=check_int("chunk_rows", chunk_rows), generator=generator)
    categories = [encoding.categories for encoding in scan.encodings]
    write_store(out, encode_labels(table, scan.encodings, dtype, rows), header, categories, dtype, overwrite)


def _header(scan: LabelScan, provenance: dict[str, Any], ids: Ids | None) -> Header:
    return Header(
        scan.n_objects,
        [encoding.name for encoding in scan.encodings],
        np.array([len(encoding.values) for encoding in scan.encodings], np.int64),
        np.array([encoding.n_labeled for encoding in scan.encodings], np.int64),
        default_chunk_rows(scan.n_objects, len(scan.encodings)),
        provenance,
        ids=ids,
    )


# Appends: the new header and categories


class Extended(NamedTuple):
    """The header and categories of an ensemble after an append, and the encodings of the new labels."""

    header: Header
    categories: Categories
    dtype: np.dtype
    encodings: list[Encoding]
    rows: np.ndarray | None = None
    """Row of the table ``(n_objects,)`` with the new labels of each object, -1 of none; None if in order."""

    def encoded(self, table: Table) -> Iterator[np.ndarray]:
        """Yield the new labels, in the order of the objects."""
        blocks = encode_labels(table, self.encodings, self.dtype)
        if self.rows is None:
            yield from blocks
            return
        labels = np.concatenate([*blocks, np.full((1, len(self.encodings)), MISSING, self.dtype)])
        for block in row_blocks(len(self.rows), BLOCK_ROWS):
            yield labels[self.rows[block.start : block.stop]]


def _with_objects(header: Header, categories: Categories, table: Table) -> Extended:
    """Find the values of the new objects; new values come after the known ones."""
    if table.n_columns != len(header.names):
        raise InvalidInputError(
            f"labels has {table.n_columns} partitions but the ensemble has {len(header.names)}; "
            "give one column for each."
        )
    known = [
        np.arange(k) if values is None else values
        for k, values in zip(header.n_clusters, categories, strict=True)
    ]
    scan = scan_labels(table, header.names, known=known)
    encodings = scan.encodings
    extended = header._replace(
        n_objects=header.n_objects + scan.n_objects,
        n_clusters=np.array([len(encoding.values) for encoding in encodings]),
        n_labeled=header.n_labeled + [encoding.n_labeled for encoding in encodings],
        provenance=_appended(header, objects=scan.n_objects),
        ids=_ids_of_more(header, table.ids, table.where),
    )
    return Extended(extended, [e.categories for e in encodings], label_dtype(extended.n_clusters), encodings)


def _with_partitions(
    header: Header, categories: Categories, table: Table, names: Sequence[str] | None
) -> Extended:
    """Find the values of the new partitions of the same objects."""
    if names is None and table.names is not None and _generic(table.names):
        names = [f"p{len(header.names) + u}" for u in range(table.n_columns)]
    names = partition_names(table, names, first=len(header.names))
    check_distinct([*header.names, *names])
    rows = None
    if header.ids is not None and table.ids is not None:
        rows = rows_of_ids(header.ids, table.ids, table.where)
    scan = scan_labels(table, names)
    if rows is None and scan.n_objects != header.n_objects:
        by_id = "" if header.ids is None else ", or id= with the column of their ids"
        raise InvalidInputError(
            f"labels has {scan.n_objects} objects but the ensemble has {header.n_objects}; "
            f"give one row for each, -1 where the label is missing{by_id}."
        )
    encodings = scan.encodings
    extended = header._replace(
        names=[*header.names, *names],
        n_clusters=np.append(header.n_clusters, [len(encoding.values) for encoding in encodings]),
        n_labeled=np.append(header.n_labeled, [encoding.n_labeled for encoding in encodings]),
        provenance=_appended(header, partitions=table.n_columns),
        ids=header.ids or table.ids,
    )
    categories = [*categories, *(encoding.categories for encoding in encodings)]
    return Extended(extended, categories, label_dtype(extended.n_clusters), encodings, rows)


def _ids_of_more(header: Header, ids: Ids | None, where: str) -> Ids | None:
    """Return the ids of the objects and of those that are appended; refuse known and missing ones."""
    known = header.ids
    if ids is None:
        if known is None:
            return None
        name = known.facts.name
        raise InvalidIdsError(
            f"the objects of the ensemble have ids, {name!r}, and the new ones none; pass id= with the "
            "column that has them.",
            column=name,
        )
    name = ids.facts.name
    if known is None:
        raise InvalidIdsError(
            f"the new objects have ids, {name!r}, and those of the ensemble none; leave out the id.",
            column=name,
        )
    if known.facts.dtype != ids.facts.dtype:
        raise InvalidIdsError(
            f"{name} of {where} is {ids.facts.dtype} but the ids of the ensemble are {known.facts.dtype}; "
            "convert them.",
            column=name,
        )
    both = AppendedIds(known, ids)
    check_distinct_ids(both.blocks, known.facts.name, f"the ensemble with {where}")
    return both


def held(header: Header) -> Header:
    """Return a header with its ids in memory."""
    return header if header.ids is None else header._replace(ids=header.ids.hold())


def _in_order_of(header: Header, table: Table) -> Table:
    """Return ``table`` with its columns in the order of the partitions if their names are the same.

    Raises InvalidInputError if both have names other than the default ones and these differ.
    """
    if table.names is None or table.names == header.names:
        return table
    if sorted(table.names) == sorted(header.names):
        return SelectedTable(table, [table.names.index(name) for name in header.names], table.ids)
    if _generic(table.names) or _generic(header.names):
        return table
    unknown = next((name for name in table.names if name not in header.names), table.names[-1])
    raise InvalidInputError(
        f"labels has a partition {unknown!r} that the ensemble does not have; "
        "give columns with the same names, or an array in the order of the partitions."
    )


def _generic(names: Sequence[str]) -> bool:
    """Return whether all names are numbers, like the default ones: ``p0, p1, ...`` or ``0, 1, ...``."""
    return all(re.fullmatch(r"p?\d+", name) for name in names)


def _appended(header: Header, **what: int) -> dict[str, Any]:
    return header.provenance | {"appended": [*header.provenance.get("appended", []), what]}


# Appends: in memory


def append_objects_in_memory(
    labels: np.ndarray, header: Header, categories: Categories, table: Table
) -> tuple[np.ndarray, Header, Categories]:
    """Return labels, header and categories with the new objects."""
    table = _in_order_of(header, table)
    extended = _with_objects(header, categories, table)
    new = encode_labels(table, extended.encodings, extended.dtype)
    labels = np.concatenate([labels.astype(extended.dtype, copy=False), *new])
    return labels, _held_in_chunks(extended.header), extended.categories


def append_partitions_in_memory(
    labels: np.ndarray,
    header: Header,
    categories: Categories,
    table: Table,
    names: Sequence[str] | None,
) -> tuple[np.ndarray, Header, Categories]:
    """Return labels, header and categories with the new partitions."""
    extended = _with_partitions(header, categories, table, names)
    new = np.concatenate([*extended.encoded(table)])
    labels = np.hstack([labels.astype(extended.dtype, copy=False), new])
    return labels, _held_in_chunks(extended.header), extended.categories


def _held_in_chunks(header: Header) -> Header:
    """Return a header with its ids in memory and the default rows per chunk."""
    return held(header)._replace(chunk_rows=default_chunk_rows(header.n_objects, header.n_columns))


# Appends: in a store


def append_objects_to_store(append: Appending, table: Table) -> None:
    """Append objects to a store; full chunks are shared unless the type grows."""
    stored = append.stored
    table = _in_order_of(stored.header, table)
    extended = _with_objects(stored.header, stored.categories(), table)
    new = encode_labels(table, extended.encodings, extended.dtype)
    _write_objects(append, extended.header, extended.categories, extended.dtype, new)


def append_partitions_to_store(append: Appending, table: Table, names: Sequence[str] | None) -> None:
    """Append partitions to a store; full columns of chunks are shared unless the type grows."""
    stored = append.stored
    extended = _with_partitions(stored.header, stored.categories(), table, names)
    new = extended.encoded(table)
    _write_partitions(append, extended.header, extended.categories, extended.dtype, new)


def _write_objects(
    append: Appending, header: Header, categories: Categories, dtype: np.dtype, new: Iterable[np.ndarray]
) -> None:
    """Write a store that is grown by the rows ``new``."""
    stored, rows = append.stored, header.chunk_rows
    writer = append.writer(header, categories, dtype, False)
    first, n_before = writer.n_kept, stored.header.n_objects
    old = (stored.read(first + b.start, first + b.stop) for b in row_blocks(n_before - first, rows))
    for block in rechunk(chain((block.astype(dtype, copy=False) for block in old), new), rows):
        writer.write(block)
    writer.commit()


def _write_partitions(
    append: Appending, header: Header, categories: Categories, dtype: np.dtype, new: Iterable[np.ndarray]
) -> None:
    """Write a store that is grown by the columns ``new``."""
    parquet_ensemble.refuse_wide(append.stored.path, len(header.names))
    writer = append.writer(header, categories, dtype, True)
    start = 0
    for block in rechunk(new, header.chunk_rows):
        old = append.stored.read(start, start + len(block), writer.first_column)
        writer.write(np.hstack([old.astype(dtype, copy=False), block]))
        start += len(block)
    writer.commit()


# Soft clusterings


def read_memberships(
    tables: Sequence[Any], names: Sequence[str], *, may_be_empty: bool = False
) -> tuple[np.ndarray, Header, Categories]:
    """Read tables of memberships into memory: memberships, header, categories.

    Partitions that label no object are refused unless they ``may_be_empty``.
    """
    sources = SoftSources(tables, names)
    header = _soft_header(sources, sources.count_labeled(may_be_empty=may_be_empty))
    return _read_all(sources), held(header), [None] * len(names)


def store_memberships(
    sources: SoftSources,
    out: StorePath,
    provenance: dict[str, Any],
    *,
    budget: int,
    overwrite: bool,
    chunk_rows: int | None = None,
) -> None:
    """Store tables of memberships as a new ensemble at ``out`` within a ``budget`` of bytes."""
    parquet_ensemble.refuse_wide(out, len(sources.names))
    rows = min(rows_within(budget // 4, sources.row_bytes, what="one row of memberships"), BLOCK_ROWS)
    header = _soft_header(sources, sources.count_labeled(rows=rows))
    if chunk_rows is None:
        fitting = chunk_rows_within(header.n_objects, header.n_columns, 4 * header.n_columns, budget)
        chunk_rows = min(fitting, header.chunk_rows)
    header = header._replace(chunk_rows=check_int("chunk_rows", chunk_rows), provenance=provenance)
    blocks = sources.blocks(rows)
    write_store(out, blocks, header, [None] * len(sources.names), np.dtype(np.float32), overwrite)


def append_soft_objects(
    memberships: np.ndarray, header: Header, sources: SoftSources
) -> tuple[np.ndarray, Header]:
    """Return memberships and header with the new objects."""
    extended = _with_soft_objects(header, sources)
    extended = extended._replace(chunk_rows=_soft_chunk_rows(extended.n_objects, extended.n_columns))
    return np.concatenate([memberships, _read_all(sources)]), held(extended)


def append_soft_partitions(
    memberships: np.ndarray, header: Header, sources: SoftSources
) -> tuple[np.ndarray, Header]:
    """Return memberships and header with the new partitions."""
    extended = _with_soft_partitions(header, sources)
    return np.hstack([memberships, _read_all(sources)]), held(extended)


def append_soft_objects_to_store(append: Appending, sources: SoftSources) -> None:
    """Append objects to a store; full chunks are shared."""
    extended = _with_soft_objects(append.stored.header, sources)
    categories: Categories = [None] * len(extended.names)
    _write_objects(append, extended, categories, append.stored.dtype, sources.blocks())


def append_soft_partitions_to_store(append: Appending, sources: SoftSources) -> None:
    """Append partitions to a store; full columns of chunks are shared."""
    extended = _with_soft_partitions(append.stored.header, sources)
    categories: Categories = [None] * len(extended.names)
    new = sources.blocks(extended.chunk_rows)
    _write_partitions(append, extended, categories, append.stored.dtype, new)


def _read_all(sources: SoftSources) -> np.ndarray:
    memberships = np.empty((sources.n_objects, int(sources.offsets[-1])), np.float32)
    start = 0
    for block in sources.blocks():
        memberships[start : start + len(block)] = block
        start += len(block)
    return memberships


def _soft_chunk_rows(n_objects: int, n_columns: int) -> int:
    """Return the default rows per chunk, halved until a block is small relative to other memory."""
    rows = default_chunk_rows(n_objects, n_columns)
    while rows > MIN_CHUNK_ROWS and 4 * n_columns * rows > 1 << 24:
        rows //= 2
    return rows


def _soft_header(sources: SoftSources, n_labeled: np.ndarray) -> Header:
    provenance = {"made_by": "from_memberships", "n_tables": len(sources.names)}
    chunk_rows = _soft_chunk_rows(sources.n_objects, int(sources.offsets[-1]))
    return Header(
        sources.n_objects,
        sources.names,
        sources.n_clusters,
        n_labeled,
        chunk_rows,
        provenance,
        is_soft=True,
        ids=sources.ids,
    )


def _with_soft_objects(header: Header, sources: SoftSources) -> Header:
    if (sources.n_clusters != header.n_clusters).any():
        u = int((sources.n_clusters != header.n_clusters).argmax())
        raise InvalidInputError(
            f"memberships of {header.names[u]!r} have {sources.n_clusters[u]} clusters but the ensemble has "
            f"{header.n_clusters[u]}; give the same clusters, in the same order."
        )
    return header._replace(
        n_objects=header.n_objects + sources.n_objects,
        n_labeled=header.n_labeled + sources.count_labeled(may_be_empty=True),
        provenance=_appended(header, objects=sources.n_objects),
        ids=_ids_of_more(header, sources.ids, "memberships"),
    )


def _with_soft_partitions(header: Header, sources: SoftSources) -> Header:
    check_distinct([*header.names, *sources.names])
    if header.ids is not None and sources.ids is not None:
        refuse_other_ids(header.ids.blocks(), sources.ids.blocks(), sources.ids.facts.name, "memberships")
    if sources.n_objects != header.n_objects:
        raise InvalidInputError(
            f"memberships have {sources.n_objects} objects but the ensemble has {header.n_objects}; "
            "give one row for each, NaN where it is missing."
        )
    return header._replace(
        names=[*header.names, *sources.names],
        n_clusters=np.append(header.n_clusters, sources.n_clusters),
        n_labeled=np.append(header.n_labeled, sources.count_labeled()),
        provenance=_appended(header, partitions=len(sources.names)),
        ids=header.ids or sources.ids,
    )
