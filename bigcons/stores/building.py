"""Build ensembles from tables of labels, and append objects or partitions to existing ones.

Every table is read twice, once to find the values and once to encode them, so it is never in memory as a
whole unless the ensemble is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.memory import row_blocks
from bigcons.storage.interface import StorePath
from bigcons.stores.ensemble_store import (
    MAX_CHUNK_COLUMNS,
    Appending,
    Categories,
    Header,
    LabelWriter,
    write_store,
)
from bigcons.tables.codes import Encoding
from bigcons.tables.encode import (
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
from bigcons.tables.memory import SelectedTable
from bigcons.tables.table import Table
from bigcons.validation import check_int

# New ensembles


def read_labels(
    table: Table,
    provenance: dict[str, Any],
    *,
    names: Sequence[str] | None = None,
    known: Sequence[np.ndarray] | None = None,
) -> tuple[np.ndarray, Header, Categories]:
    """Read a table into memory: labels, header, categories; new values come after the ``known`` ones."""
    scan = scan_labels(table, partition_names(table, names), known=known)
    dtype = label_dtype([len(encoding.values) for encoding in scan.encodings])
    labels = np.empty((scan.n_objects, table.n_columns), dtype)
    start = 0
    for block in encode_labels(table, scan.encodings, dtype):
        labels[start : start + len(block)] = block
        start += len(block)
    return labels, _header(scan, provenance), [e.categories for e in scan.encodings]


def store_labels(
    table: Table,
    out: StorePath,
    provenance: dict[str, Any],
    *,
    budget: int,
    overwrite: bool,
    chunk_rows: int | None = None,
) -> None:
    """Store a table as a new ensemble at ``out`` within a ``budget`` of bytes; see `import_labels`."""
    rows = rows_per_read(table, budget)
    scan = scan_labels(table, partition_names(table, None), rows=rows, values_budget=budget // 4)
    dtype = label_dtype([len(encoding.values) for encoding in scan.encodings])
    if chunk_rows is None:
        chunk_rows = chunk_rows_within(scan.n_objects, dtype.itemsize * table.n_columns, budget)
    header = _header(scan, provenance)._replace(chunk_rows=check_int("chunk_rows", chunk_rows))
    categories = [encoding.categories for encoding in scan.encodings]
    write_store(out, encode_labels(table, scan.encodings, dtype, rows), header, categories, dtype, overwrite)


def _header(scan: LabelScan, provenance: dict[str, Any]) -> Header:
    return Header(
        scan.n_objects,
        [encoding.name for encoding in scan.encodings],
        np.array([len(encoding.values) for encoding in scan.encodings], np.int64),
        np.array([encoding.n_labeled for encoding in scan.encodings], np.int64),
        default_chunk_rows(scan.n_objects),
        provenance,
    )


# Appends: the new header and categories


class Extended(NamedTuple):
    """The header and categories of an ensemble after an append, and the encodings of the new labels."""

    header: Header
    categories: Categories
    dtype: np.dtype
    encodings: list[Encoding]


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
    scan = scan_labels(table, names)
    if scan.n_objects != header.n_objects:
        raise InvalidInputError(
            f"labels has {scan.n_objects} objects but the ensemble has {header.n_objects}; "
            "give one row for each, -1 where the label is missing."
        )
    encodings = scan.encodings
    extended = header._replace(
        names=[*header.names, *names],
        n_clusters=np.append(header.n_clusters, [len(encoding.values) for encoding in encodings]),
        n_labeled=np.append(header.n_labeled, [encoding.n_labeled for encoding in encodings]),
        provenance=_appended(header, partitions=table.n_columns),
    )
    categories = [*categories, *(encoding.categories for encoding in encodings)]
    return Extended(extended, categories, label_dtype(extended.n_clusters), encodings)


def _in_order_of(header: Header, table: Table) -> Table:
    """Return ``table`` with its columns in the order of the partitions if their names are the same.

    Raises InvalidInputError if both have names other than the default ones and these differ.
    """
    if table.names is None or table.names == header.names:
        return table
    if sorted(table.names) == sorted(header.names):
        return SelectedTable(table, header.names)
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
    header = extended.header._replace(chunk_rows=default_chunk_rows(extended.header.n_objects))
    return np.concatenate([labels.astype(extended.dtype, copy=False), *new]), header, extended.categories


def append_partitions_in_memory(
    labels: np.ndarray,
    header: Header,
    categories: Categories,
    table: Table,
    names: Sequence[str] | None,
) -> tuple[np.ndarray, Header, Categories]:
    """Return labels, header and categories with the new partitions."""
    extended = _with_partitions(header, categories, table, names)
    new = np.concatenate([*encode_labels(table, extended.encodings, extended.dtype)])
    labels = np.hstack([labels.astype(extended.dtype, copy=False), new])
    return labels, extended.header, extended.categories


# Appends: in a store


def append_objects_to_store(append: Appending, table: Table) -> None:
    """Append objects to a store; full chunks are shared unless the type grows."""
    stored = append.stored
    header, rows = stored.header, stored.header.chunk_rows
    table = _in_order_of(header, table)
    extended = _with_objects(header, stored.categories(), table)
    kept_rows = header.n_objects // rows if extended.dtype == stored.dtype else 0
    writer = LabelWriter(
        append.folder,
        stored.generation + 1,
        (extended.header.n_objects, len(header.names)),
        extended.dtype,
        (rows, stored.chunk_columns),
        kept=stored,
        kept_rows=kept_rows,
    )
    first = kept_rows * rows
    old = (
        stored.read(first + block.start, first + block.stop).astype(extended.dtype)
        for block in row_blocks(header.n_objects - first, rows)
    )
    new = encode_labels(table, extended.encodings, extended.dtype)
    for block in rechunk(chain(old, new), rows):
        writer.write(block)
    append.check_lock()
    writer.commit(stored.path, extended.header, extended.categories)


def append_partitions_to_store(append: Appending, table: Table, names: Sequence[str] | None) -> None:
    """Append partitions to a store; full columns of chunks are shared unless the type grows."""
    stored = append.stored
    header = stored.header
    extended = _with_partitions(header, stored.categories(), table, names)
    n_partitions = len(extended.header.names)
    full = len(header.names) // MAX_CHUNK_COLUMNS if stored.chunk_columns == MAX_CHUNK_COLUMNS else 0
    kept_columns = full if extended.dtype == stored.dtype else 0
    writer = LabelWriter(
        append.folder,
        stored.generation + 1,
        (header.n_objects, n_partitions),
        extended.dtype,
        (header.chunk_rows, min(n_partitions, MAX_CHUNK_COLUMNS)),
        kept=stored,
        kept_columns=kept_columns,
    )
    start = 0
    for new in rechunk(encode_labels(table, extended.encodings, extended.dtype), header.chunk_rows):
        old = stored.read(start, start + len(new), kept_columns * MAX_CHUNK_COLUMNS)
        writer.write(np.hstack([old.astype(extended.dtype, copy=False), new]))
        start += len(new)
    append.check_lock()
    writer.commit(stored.path, extended.header, extended.categories)
