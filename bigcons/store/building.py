"""Store ensembles, build them from tables of labels, and append objects or partitions to existing ones.

Every table is read twice, once to find the values and once to encode them, so it is never in memory as a
whole unless the ensemble is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from bigcons.disk.commit import names_parquet, new_store
from bigcons.disk.files import Place, StorePath
from bigcons.disk.schema import MISSING
from bigcons.errors import InvalidIdsError, InvalidInputError, shown
from bigcons.io.batches import Source
from bigcons.io.factorize import (
    MIN_CHUNK_ROWS,
    Encoding,
    check_chunk_rows,
    check_distinct,
    counts_of,
    default_chunk_rows,
    encode_labels,
    label_dtype,
    partition_names,
    plain_column,
    rechunk,
    refuse_no_objects,
    rows_per_read,
    scan_labels,
    warn_of_labels,
)
from bigcons.io.ids import Ids, are_positions, refuse_other_type, refuse_repeated_ids, rows_of_ids
from bigcons.io.labels import refuse_other_rows
from bigcons.memory import BLOCK_ROWS, DataBudget, row_blocks, rows_within
from bigcons.progress import Progress, progress
from bigcons.store.ensemble_store import (
    KIND,
    Categories,
    Content,
    Header,
    RowsWriter,
)
from bigcons.store.generator import Generator
from bigcons.store.reshaping import SoftSources
from bigcons.validation import check_int

# Stores


def write_store(path: StorePath, content: Content, overwrite: bool) -> None:
    """Store what is given as a new ensemble; the suffix tells if in Parquet."""
    with new_store(path, overwrite, KIND) as folder:
        write_rows(folder, content, is_parquet=names_parquet(path))


def write_rows(folder: Place, content: Content, *, is_parquet: bool) -> None:
    """Write what is given to the folder of a store."""
    header = content.header
    writer = RowsWriter(folder, header, content.categories, parquet=is_parquet)
    with progress("labels to the store", header.n_objects) as listener:
        for block in rechunk(content.blocks, header.chunk_rows):
            writer.write(block.astype(header.dtype, copy=False))
            listener.advance(len(block))
    writer.commit()


def hold(content: Content, listener: Progress | None = None) -> tuple[np.ndarray, Header, Categories]:
    """Read what is given into memory: labels or memberships, header, categories."""
    header = content.header
    rows = np.empty((header.n_objects, header.n_columns), header.dtype)
    start = 0
    for block in content.blocks:
        rows[start : start + len(block)] = block
        start += len(block)
        if listener is not None:
            listener.advance(len(block))
    ids = None if header.ids is None else header.ids.hold()
    return rows, header._replace(ids=ids), content.categories


# New ensembles


def of_array(
    labels: np.ndarray, names: Sequence[str] | None, provenance: dict[str, Any]
) -> tuple[np.ndarray, Header, Categories]:
    """Return codes, header and categories of a matrix of numbers in memory, at once."""
    columns, encodings = [], []
    texts = partition_names(names, labels.shape[1])
    for name, column in zip(texts, np.ascontiguousarray(labels.T), strict=True):
        encoding, numbers = Encoding(name), plain_column(column, name)
        encoding.add(numbers)
        smallest = label_dtype([len(encoding.finish().values)])
        columns.append(encoding.encode(numbers).astype(smallest, copy=False))
        encodings.append(encoding)
    n_clusters, n_labeled, categories = counts_of(encodings)
    codes = np.ascontiguousarray(np.array(columns, label_dtype(n_clusters)).T)
    refuse_no_objects("labels", len(codes), codes[:BLOCK_ROWS], encodings)
    warn_of_labels(len(codes), encodings)
    chunk_rows = default_chunk_rows(*codes.shape)
    return codes, Header(len(codes), texts, n_clusters, n_labeled, chunk_rows, provenance), categories


def content_of(
    source: Source | SoftSources,
    provenance: dict[str, Any],
    *,
    names: Sequence[str] | None = None,
    known: Sequence[np.ndarray] | None = None,
    may_be_empty: bool = False,
    budget: int | None = None,
    chunk_rows: int | None = None,
    generator: Generator | None = None,
) -> Content:
    """Read a table of labels, or tables of memberships, once, and return what is to be held or stored.

    New values come after the ``known`` ones. Partitions of memberships that label no object are refused
    unless they ``may_be_empty``. Blocks fit in a ``budget`` of bytes; one too small for chunks is refused.
    """
    to_read = budget
    if budget is not None and source.ids is not None:
        what = "the ids, and as much to read beside them,"
        DataBudget(budget).check(2 * source.ids.held_bytes, what, "leave them out by drop= (--drop)")
        to_read = budget - source.ids.held_bytes
    content = _read(source, names, known=known, may_be_empty=may_be_empty, budget=to_read)
    header = content.header._replace(provenance=provenance, generator=generator)
    if chunk_rows is None:
        chunk_rows = default_rows(header)
        if budget is not None:
            id_bytes = 0 if header.ids is None else math.ceil(header.ids.row_bytes)
            row_bytes = header.dtype.itemsize * header.n_columns + id_bytes
            check_chunk_rows(chunk_rows, row_bytes, budget)
    return content._replace(header=header._replace(chunk_rows=check_int("chunk_rows", chunk_rows)))


def _read(
    source: Source | SoftSources,
    names: Sequence[str] | None,
    *,
    beside: Sequence[str] = (),
    known: Sequence[np.ndarray] | None = None,
    may_be_empty: bool = False,
    budget: int | None = None,
) -> Content:
    """Read a source once, in blocks within a ``budget``; its names differ from those ``beside`` it."""
    blocks: Iterable[np.ndarray]
    categories: Categories
    if isinstance(source, SoftSources):
        rows = 4096
        if budget is not None:
            rows = rows_within(budget // 4, source.row_bytes, what="one row of memberships")
        rows = min(rows, BLOCK_ROWS)
        names, n_objects, n_clusters = source.names, source.n_objects, source.n_clusters
        check_distinct(names, beside)
        n_labeled = source.count_labeled(rows=rows, may_be_empty=may_be_empty)
        categories, blocks = [None] * len(names), source.blocks(rows)
    else:
        rows = BLOCK_ROWS if budget is None else rows_per_read(source, budget)
        chosen = source.names if names is None else names
        names = partition_names(chosen, source.n_columns, first=len(beside))
        check_distinct(names, beside)
        most = None if budget is None else budget // 4
        n_objects, encodings = scan_labels(source, names, known=known, rows=rows, values_budget=most)
        n_clusters, n_labeled, categories = counts_of(encodings)
        blocks = encode_labels(source, encodings, label_dtype(n_clusters), rows, are_new=known is None)
    is_soft = isinstance(source, SoftSources)
    header = Header(n_objects, names, n_clusters, n_labeled, n_objects, {}, is_soft, source.ids)
    return Content(header, categories, blocks)


def default_rows(header: Header) -> int:
    """Return the default rows per chunk, of memberships halved until a block is small."""
    rows = default_chunk_rows(header.n_objects, header.n_columns)
    while header.is_soft and rows > MIN_CHUNK_ROWS and 4 * header.n_columns * rows > 1 << 24:
        rows //= 2
    return rows


# Appends


Read = Callable[[int, int], np.ndarray]
"""Returns rows of an ensemble."""


def with_objects(source: Source | SoftSources, header: Header, categories: Categories, read: Read) -> Content:
    """Return an ensemble, of which ``read`` returns rows, with more objects; new labels come last."""
    if isinstance(source, SoftSources):
        if (source.n_clusters != header.n_clusters).any():
            u = int((source.n_clusters != header.n_clusters).argmax())
            raise InvalidInputError(
                f"memberships of {header.names[u]!r} have {source.n_clusters[u]} clusters, not "
                f"{header.n_clusters[u]} as in the ensemble; give the same."
            )
    elif source.names is not None and sorted(source.names) == sorted(header.names):
        source = source.selected([source.names.index(name) for name in header.names])
    elif source.n_columns != len(header.names) or not (_generic(source.names) or _generic(header.names)):
        raise InvalidInputError(
            f"{source.where} has other columns than the {len(header.names)} partitions of the ensemble, "
            f"{shown(header.names)}; leave some out (drop=, --drop), or add empty ones."
        )
    both = zip(header.n_clusters, categories, strict=True)
    known = [np.arange(k) if values is None else values for k, values in both]
    more, new_categories, blocks = _read(source, header.names, known=known, may_be_empty=True)
    grown = header._replace(
        n_objects=header.n_objects + more.n_objects,
        n_clusters=more.n_clusters,
        n_labeled=header.n_labeled + more.n_labeled,
        provenance=_appended(header, objects=more.n_objects),
        ids=_ids_of_more(header, source.ids, source.where),
    )
    old = (read(b.start, b.stop) for b in row_blocks(header.n_objects, header.chunk_rows))
    return Content(grown, new_categories, chain(old, blocks))


def with_partitions(
    source: Source | SoftSources,
    names: Sequence[str] | None,
    header: Header,
    categories: Categories,
    read: Read,
) -> Content:
    """Return an ensemble, of which ``read`` returns rows, with more partitions."""
    if names is None and isinstance(source, Source) and _generic(source.names):
        names = [f"p{len(header.names) + u}" for u in range(source.n_columns)]
    rows = None
    if header.ids is not None and source.ids is not None:
        rows = rows_of_ids(header.ids, source.ids, source.where)
    elif header.ids is None:
        refuse_other_rows("labels", source.ids, "the ensemble", range(header.n_objects))
    more, new_categories, blocks = _read(source, names, beside=header.names)
    if rows is None and more.n_objects != header.n_objects:
        raise InvalidInputError(
            f"{source.where} has {more.n_objects:,} objects but the ensemble has {header.n_objects:,}; give "
            "one row for each, or id= with the column of their ids."
        )
    grown = header._replace(
        names=[*header.names, *more.names],
        n_clusters=np.append(header.n_clusters, more.n_clusters),
        n_labeled=np.append(header.n_labeled, more.n_labeled),
        provenance=_appended(header, partitions=len(more.names)),
        ids=header.ids or source.ids,
    )

    def side_by_side() -> Iterator[np.ndarray]:
        """Yield old columns and new ones; those of objects without a row are missing."""
        new = blocks
        if rows is not None:
            given = np.concatenate([*blocks])
            missing = np.full((1, given.shape[1]), MISSING if given.dtype.kind == "i" else 0, given.dtype)
            new = [np.concatenate([given, missing])[rows]]
        start = 0
        for block in rechunk(new, header.chunk_rows):
            yield np.hstack([read(start, start + len(block)), block])
            start += len(block)

    return Content(grown, [*categories, *new_categories], side_by_side())


def _ids_of_more(header: Header, ids: Ids | None, where: str) -> Ids | None:
    """Return the ids of the objects and of those that are appended; refuse known and missing ones."""
    import pyarrow as pa

    known = header.ids
    if known is None and (ids is None or (ids.facts.is_index and are_positions(ids, header.n_objects))):
        return None  # numbered on, as the rest of a data frame is
    if known is None or ids is None:
        name = next(one.facts.name for one in (ids, known) if one is not None)
        what = f"of the objects of the ensemble and of {where}, one have ids, {name!r}, the others none"
        remedy = "pass id=, or leave out the id of the new ones, as by df.reset_index(drop=True)"
        raise InvalidIdsError(f"{what}; {remedy}.", column=name)
    refuse_other_type(known, ids, where)
    values = pa.concat_arrays([known.hold().values, ids.hold().values])
    refuse_repeated_ids(values, known.facts.name, f"the ensemble with {where}")
    return known.others(values)


def _generic(names: Sequence[str] | None) -> bool:
    """Return whether there are no names, or numbers, like ``p0, p1, ...`` or ``0, 1, ...``."""
    return all(re.fullmatch(r"p?\d+", name) for name in names or ())


def _appended(header: Header, **what: int) -> dict[str, Any]:
    return header.provenance | {"appended": [*header.provenance.get("appended", []), what]}
