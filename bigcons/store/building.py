"""Build ensembles from tables of labels, runs, long tables and memberships, and append to them.

Every table is read twice, once to find the values and once to encode them, so it is never in memory as a
whole unless the ensemble is.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bigcons.disk.places import temporary_folder
from bigcons.disk.schema import MISSING
from bigcons.errors import EmptyPartitionError, InvalidIdsError, InvalidInputError, quote
from bigcons.io import labels as coding
from bigcons.io.columns import (
    Column,
    Ids,
    are_positions,
    canonical,
    joined_ids,
    plain_arrow,
    refuse_other_type,
    refuse_repeated_ids,
    rows_of_ids,
    select,
    source_of,
)
from bigcons.io.sources import Rows, Source, as_table, columns_of, open_source
from bigcons.memory import BLOCK_ROWS, DataBudget, row_blocks, rows_within
from bigcons.progress import progress
from bigcons.store.ensemble_store import GIVEN_TOLERANCE, Categories, Content, Header, sum_to_one
from bigcons.store.generator import Generator
from bigcons.validation import check_int


def hold(content: Content) -> tuple[np.ndarray, Header, Categories]:
    """Read a content into memory; return its labels or memberships, its header and its categories."""
    header = content.header
    rows = np.empty((header.n_objects, header.n_columns), header.dtype)
    start = 0
    with progress("labels to memory", header.n_objects) as listener:
        for block in content.blocks:
            rows[start : start + len(block)] = block
            start += len(block)
            listener.advance(len(block))
    ids = None if header.ids is None else header.ids.hold()
    return rows, header._replace(ids=ids), content.categories


# New ensembles


def of_array(
    labels: np.ndarray, names: Sequence[str] | None, provenance: dict[str, Any]
) -> tuple[np.ndarray, Header, Categories]:
    """Return codes, header and categories of a matrix of numbers in memory, at once."""
    columns, encodings = [], []
    texts = coding.partition_names(names, labels.shape[1])
    for name, column in zip(texts, np.ascontiguousarray(labels.T), strict=True):
        encoding, numbers = coding.Encoding(name), coding.plain_column(column, name)
        encoding.add(numbers)
        smallest = coding.label_dtype([len(encoding.finish().values)])
        columns.append(encoding.encode(numbers).astype(smallest, copy=False))
        encodings.append(encoding)
    n_clusters, n_labeled, categories = coding.counts_of(encodings)
    codes = np.ascontiguousarray(np.array(columns, coding.label_dtype(n_clusters)).T)
    coding.refuse_no_objects("labels", len(codes), codes[:BLOCK_ROWS], encodings)
    coding.warn_of_labels(len(codes), encodings, codes[:BLOCK_ROWS])
    chunk_rows = coding.default_chunk_rows(*codes.shape)
    return codes, Header(len(codes), texts, n_clusters, n_labeled, chunk_rows, provenance), categories


def content_of(
    source: Source | SoftSources,
    provenance: dict[str, Any],
    *,
    names: Sequence[str] | None = None,
    values: Sequence[np.ndarray] | None = None,
    may_be_empty: bool = False,
    budget: DataBudget | None = None,
    chunk_rows: int | None = None,
    generator: Generator | None = None,
) -> Content:
    """Read a table of labels, or tables of memberships, once, and return the content to hold or store.

    Other values come after these ``values``. Partitions of memberships that label no object are refused
    unless they ``may_be_empty``. Blocks fit in a ``budget``; one too small for chunks is refused.
    """
    content = _read(source, names, values=values, may_be_empty=may_be_empty, budget=budget)
    header = content.header._replace(provenance=provenance, generator=generator)
    n_rows = None if chunk_rows is None else check_int("chunk_rows", chunk_rows)
    header = header._replace(chunk_rows=n_rows or default_rows(header))
    check_chunk_rows(header, budget if n_rows is None else None)
    return content._replace(header=header)


def check_chunk_rows(header: Header, budget: DataBudget | None) -> None:
    """Raise MemoryBudgetError if four copies of a chunk do not fit in half of a ``budget``.

    Chunks do not become smaller for it: the bits of a consensus depend on them.
    """
    if budget is not None:
        id_bytes = 0 if header.ids is None else math.ceil(header.ids.row_bytes)
        row_bytes, rows = header.dtype.itemsize * header.n_columns + id_bytes, header.chunk_rows
        rows_within(budget, 8 * row_bytes, at_least=rows, noun=f"a chunk of {rows:,} rows of labels")


def _read(
    source: Source | SoftSources,
    names: Sequence[str] | None,
    *,
    existing: Sequence[str] = (),
    ids: Ids | None = None,
    values: Sequence[np.ndarray] | None = None,
    may_be_empty: bool = False,
    budget: DataBudget | None = None,
) -> Content:
    """Read a source once, in blocks within a ``budget``; its names differ from the ``existing`` ones.

    Its ids are held in memory, and then ``ids`` beside them.
    """
    blocks: Iterable[np.ndarray]
    categories: Categories
    if budget is not None and source.ids is not None:
        n_bytes = source.ids.held_bytes + (0 if ids is None else int(ids.n_objects * ids.row_bytes))
        purpose = "the process, the ids, and as much to read beside them,"
        budget.check(2 * n_bytes, purpose, "leave them out by drop= (--drop)")
        budget = DataBudget(budget.n_bytes - n_bytes, budget.processes + n_bytes)
    if isinstance(source, SoftSources):
        rows = 4096
        if budget is not None:
            rows = rows_within(budget, 4 * source.row_bytes, noun="one row of memberships")
        rows = min(rows, BLOCK_ROWS)
        names, n_objects, n_clusters = source.names, source.n_objects, source.n_clusters
        coding.check_distinct(names, existing)
        n_labeled = np.zeros(len(names), np.int64)
        for block in source.blocks(rows):
            n_labeled += np.count_nonzero(coding.observed(block, source.offsets), axis=0)
        if not may_be_empty and not n_labeled.all():
            raise EmptyPartitionError(names[int(np.argmin(n_labeled))])
        categories, blocks = [None] * len(names), source.blocks(rows)
    else:
        rows = BLOCK_ROWS if budget is None else coding.rows_per_read(source, budget)
        titles = source.names if names is None else names
        names = coding.partition_names(titles, source.n_columns, first=len(existing))
        coding.check_distinct(names, existing)
        n_objects, encodings = coding.scan_labels(source, names, values=values, rows=rows, budget=budget)
        n_clusters, n_labeled, categories = coding.counts_of(encodings)
        blocks = coding.encode_labels(source, encodings, rows, are_new=values is None)
    is_soft = isinstance(source, SoftSources)
    header = Header(n_objects, names, n_clusters, n_labeled, n_objects, {}, is_soft, source.ids)
    return Content(header, categories, blocks)


def default_rows(header: Header) -> int:
    """Return the default rows per chunk, of memberships halved until a block is small."""
    rows = coding.default_chunk_rows(header.n_objects, header.n_columns)
    while header.is_soft and rows > coding.MIN_CHUNK_ROWS and 4 * header.n_columns * rows > 1 << 24:
        rows //= 2
    return rows


# Appends


Read = Callable[[int, int], np.ndarray]
"""Returns rows of an ensemble."""
Budget = DataBudget | None


def with_objects(
    source: Source | SoftSources, header: Header, categories: Categories, read_rows: Read, budget: Budget
) -> Content:
    """Return an ensemble, of which ``read_rows`` returns rows, with more objects; new labels come last."""
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
        remedy = "leave some out by drop= (--drop), or add empty ones"
        if header.generator is not None:
            remedy = "place new features (bigcons place), or append their generator.assign(features).labels"
        raise InvalidInputError(
            f"{source.where} has other columns than the {len(header.names)} partitions of the ensemble, "
            f"{quote(header.names)}; {remedy}."
        )
    pairs = zip(header.n_clusters, categories, strict=True)
    values = [np.arange(k) if labels is None else labels for k, labels in pairs]
    options: dict[str, Any] = {"ids": header.ids, "values": values, "may_be_empty": True, "budget": budget}
    part, new_categories, blocks = _read(source, header.names, **options)
    new_header = header._replace(
        n_objects=header.n_objects + part.n_objects,
        n_clusters=part.n_clusters,
        n_labeled=header.n_labeled + part.n_labeled,
        provenance=_note_append(header, objects=part.n_objects),
        ids=_ids_of_more(header, source.ids, source.where),
    )
    old_blocks = (read_rows(b.start, b.stop) for b in row_blocks(header.n_objects, header.chunk_rows))
    return Content(new_header, new_categories, chain(old_blocks, blocks))


def with_partitions(
    source: Source | SoftSources,
    names: Sequence[str] | None,
    header: Header,
    categories: Categories,
    read_rows: Read,
    budget: Budget,
) -> Content:
    """Return an ensemble, of which ``read_rows`` returns rows, with more partitions."""
    if names is None and isinstance(source, Source) and _generic(source.names):
        names = coding.partition_names(None, source.n_columns, first=len(header.names))
    rows = None
    if header.ids is not None and source.ids is not None:
        rows = rows_of_ids(header.ids, source.ids, source.where)
    elif header.ids is None:
        coding.refuse_other_rows("labels", source.ids, "the ensemble", range(header.n_objects))
    part, new_categories, blocks = _read(source, names, existing=header.names, ids=header.ids, budget=budget)
    if rows is not None and budget is not None:
        size = 3 * part.n_objects * part.dtype.itemsize * part.n_columns + rows.nbytes
        budget.check(size, "the process and the labels to join by ids", "append fewer partitions at a time")
    if rows is None and part.n_objects != header.n_objects:
        raise InvalidInputError(
            f"{source.where} has {part.n_objects:,} objects but the ensemble has {header.n_objects:,}; give "
            "one row for each, or id= with the column of their ids."
        )
    new_header = header._replace(
        names=[*header.names, *part.names],
        n_clusters=np.append(header.n_clusters, part.n_clusters),
        n_labeled=np.append(header.n_labeled, part.n_labeled),
        provenance=_note_append(header, partitions=len(part.names)),
        ids=header.ids or source.ids,
    )

    def side_by_side() -> Iterator[np.ndarray]:
        """Yield old columns and new ones, which are missing for objects without a row."""
        new_blocks = blocks
        if rows is not None:
            labels = np.concatenate([*blocks])
            missing = np.full((1, labels.shape[1]), MISSING if labels.dtype.kind == "i" else 0, labels.dtype)
            new_blocks = [np.concatenate([labels, missing])[rows]]
        start = 0
        for block in coding.rechunk(new_blocks, header.chunk_rows):
            yield np.hstack([read_rows(start, start + len(block)), block])
            start += len(block)

    return Content(new_header, [*categories, *new_categories], side_by_side())


def _ids_of_more(header: Header, ids: Ids | None, where: str) -> Ids | None:
    """Return the ids of the old objects, then of the appended ones; refuse repeated and missing ids."""
    import pyarrow as pa

    old_ids = header.ids
    if old_ids is None and (ids is None or (ids.facts.is_index and are_positions(ids, header.n_objects))):
        return None  # numbered on, as the rest of a data frame is
    if old_ids is None or ids is None:
        name = next(column.facts.name for column in (ids, old_ids) if column is not None)
        fault = f"of the objects of the ensemble and of {where}, one have ids, {name!r}, the others none"
        remedy = "pass id=, or leave out the id of the new ones, as by df.reset_index(drop=True)"
        raise InvalidIdsError(f"{fault}; {remedy}.", column=name)
    refuse_other_type(old_ids, ids, where)
    values = pa.concat_arrays([old_ids.hold().values, ids.hold().values])
    refuse_repeated_ids(values, old_ids.facts.name, f"the ensemble with {where}, which may be in it already")
    return old_ids.with_values(values)


def _generic(names: Sequence[str] | None) -> bool:
    """Return whether there are no names, or numbers, like ``p0, p1, ...`` or ``0, 1, ...``."""
    return all(re.fullmatch(r"p?\d+", name) for name in names or ())


def _note_append(header: Header, **counts: int) -> dict[str, Any]:
    return header.provenance | {"appended": [*header.provenance.get("appended", []), counts]}


# Runs


def read_runs(
    runs: Any,
    names: Sequence[str] | None,
    stack: ExitStack,
    *,
    ids: Ids | None = None,
    on_disk: bool = False,
    **options: Any,
) -> Content:
    """Read partitions of the same objects, one from each of ``runs``; see `Ensemble.from_runs`.

    ``options`` are ``id``, ``columns``, ``missing`` and ``header`` of the tables. The codes of all runs are
    held in memory or, ``on_disk``, in temporary files that are removed when the ``stack`` is closed.
    """
    entries, names = _listed_runs(runs, names)
    sources = [_source_of_run(run, name, options) for run, name in zip(entries, names, strict=True)]
    objects = ids or _objects_of(sources, names)
    folder = stack.enter_context(temporary_folder()) if on_disk else None
    columns: list[np.ndarray] = []
    encodings = []
    n_objects = None if objects is None else objects.n_objects
    for source, name in zip(sources, names, strict=True):
        _, (encoding,) = coding.scan_labels(source, [name])
        codes = np.concatenate(list(coding.encode_labels(source, [encoding], are_new=True)))[:, 0]
        if source.ids is not None and objects is not None:
            rows = rows_of_ids(objects, source.ids, f"run {name!r}")
            codes = codes if rows is None else np.append(codes, codes.dtype.type(MISSING))[rows]
        n_objects = len(codes) if n_objects is None else n_objects
        if len(codes) != n_objects:
            raise InvalidInputError(
                f"run {name!r} has {len(codes):,} labels but there are {n_objects:,} objects; give one for "
                "each, -1 where it is missing, or ids to join them by."
            )
        if folder is not None:
            np.save(folder / f"{len(columns)}.npy", codes)
            codes = np.load(folder / f"{len(columns)}.npy", mmap_mode="r")
        columns.append(codes)
        encodings.append(encoding)
    if objects is not None and ids is None and are_positions(objects):
        objects = None
    n_clusters, n_labeled, categories = coding.counts_of(encodings)
    chunk_rows = coding.default_chunk_rows(len(codes), len(names))
    header = Header(len(codes), names, n_clusters, n_labeled, chunk_rows, {}, ids=objects)
    blocks = (
        np.column_stack([column[b.start : b.stop] for column in columns]).astype(header.dtype)
        for b in row_blocks(len(codes), chunk_rows)
    )
    return Content(header, categories, blocks)


def _listed_runs(runs: Any, names: Sequence[str] | None) -> tuple[list[Any], list[str]]:
    """Return the runs as a list, and their names: ``names``, keys, names of files or columns, or p0, ..."""
    if isinstance(runs, Mapping):
        names, runs = list(runs) if names is None else names, list(runs.values())
    is_list = isinstance(runs, (Sequence, np.ndarray)) and not isinstance(runs, str)
    if not is_list or not len(runs):
        raise InvalidInputError(
            f"runs has type {type(runs).__name__} or no entries; pass a list of labels or files, one for "
            "each partition; a table with a column for each goes to Ensemble.from_labels."
        )
    if any(run is None or isinstance(run, (int, float, np.number, np.bool_)) for run in runs):
        raise InvalidInputError(
            f"runs has {len(runs)} labels, a single run; pass [runs], of a mapping [pandas.Series(runs)]."
        )
    if names is None:
        stems = []
        for run in map(source_of, runs):
            is_path = isinstance(run, (str, os.PathLike))
            name = getattr(run, "name", None) if hasattr(run, "to_frame") else None
            stems.append(Path(run).name.partition(".")[0] if is_path else "" if name is None else str(name))
        names = stems if len(set(stems) - {""}) == len(stems) else None
    return list(runs), coding.partition_names(names, len(runs), "runs")


def _source_of_run(run: Any, name: str, options: Mapping[str, Any]) -> Source:
    """Return the labels of a run as a source of one column, with the ids of its objects if it has them."""
    run = getattr(run, "labels_", run)  # of scikit-learn
    table = as_table(run)
    is_vector = table is not run and not hasattr(run, "to_frame")
    choice = {"missing": options.get("missing")} if is_vector else dict(options)
    source = open_source(select(table, **choice), "labels", are_objects=True)
    if source.n_columns != 1:
        columns = f": {', '.join(source.names[:4])}" if source.names else ""
        raise InvalidInputError(
            f"run {name!r}, {source.where}, has {source.n_columns} columns{columns}; name the one with its "
            "labels by columns= (--columns) and the one with the ids by id= (--id)."
        )
    return source


def _objects_of(sources: Sequence[Source], names: Sequence[str]) -> Ids | None:
    """Return the ids of all objects, each once, in the order of the runs; None without ids."""
    ids = [source.ids for source in sources]
    columns = [column for column in ids if column is not None]
    if not columns:
        return None
    if None in ids:
        raise InvalidInputError(
            f"run {names[ids.index(None)]!r} has labels without ids, beside runs with ids; give all ids."
        )
    for column, name in zip(columns, names, strict=True):
        refuse_other_type(columns[0], column, f"run {name!r}")
    if all(column.facts.digest == columns[0].facts.digest for column in columns):
        return columns[0]
    import pyarrow as pa

    return columns[0].with_values(pa.concat_arrays([column.hold().values for column in columns]).unique())


# Long tables


def read_long(table: Any, *, budget: DataBudget) -> Content:
    """Read a table with a row for each label into memory; see `Ensemble.from_long`.

    Its columns are the object, the partition and the label. Raises MemoryBudgetError for more rows than fit
    in ``budget``.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    source = open_source(table, "labels", are_objects=True, with_ids=False)
    names, where = source.names or ["0", "1", "2"], source.where
    parts: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    n_rows = 0
    for batch in source.batches(BLOCK_ROWS):
        *keys, votes = columns_of(batch)
        for c, column in enumerate(keys):
            parts[c].append(canonical(column, names[c], where, n_rows))
        parts[2].append(votes if isinstance(votes, np.ndarray) else plain_arrow(votes))
        n_rows += len(votes)
        n_most = source.most_rows(n_rows, budget.n_bytes // 100)  # of votes that are read and sorted
        budget.check(100 * n_most, f"the process and {n_most:,} rows of {where}", "give fewer")
    values, numbers = [], []
    for c in range(2):
        key = joined_ids(parts[c], names[c], where, is_text=source.is_text)
        values.append(key.unique().take(pc.array_sort_indices(key.unique())))
        numbers.append(pc.index_in(key, value_set=values[c]).to_numpy())
    (objects, partitions), (of_object, of_partition) = values, numbers
    titles = [str(value) for value in partitions.to_pylist()]
    is_array = isinstance(parts[2][0], np.ndarray)
    votes = np.ma.concatenate(parts[2]) if is_array else pa.concat_arrays(parts[2])
    encodings, of_label = [], np.empty(len(votes), np.int32)
    ends = np.cumsum(np.bincount(of_partition, minlength=len(titles)))
    for name, rows in zip(titles, np.split(np.argsort(of_partition, kind="stable"), ends[:-1]), strict=True):
        part_votes = votes[rows] if is_array else votes.take(pa.array(rows))
        encoding = coding.Encoding(name, None, source.rule, is_text=source.is_text)
        encoding.add(part_votes)
        encodings.append(encoding.finish())
        of_label[rows] = encoding.encode(part_votes)
    order = np.lexsort((of_label, of_partition, of_object))
    order = order[of_label[order] != MISSING]
    of_object, of_partition, of_label = of_object[order], of_partition[order], of_label[order]
    is_same = np.append(False, (of_object[1:] == of_object[:-1]) & (of_partition[1:] == of_partition[:-1]))
    if (conflicts := np.flatnonzero(is_same & (of_label != np.roll(of_label, 1)))).size:
        u = int(of_partition[conflicts[0]])
        one, other = encodings[u].values[of_label[conflicts[0] - 1 : conflicts[0] + 1]].tolist()
        raise InvalidInputError(
            f"{names[0]} {objects[int(of_object[conflicts[0]])].as_py()!r} has the labels {one!r} and "
            f"{other!r} of {names[1]} {titles[u]!r}; keep one of them."
        )
    of_object, of_partition, of_label = of_object[~is_same], of_partition[~is_same], of_label[~is_same]
    n_clusters, _, categories = coding.counts_of(encodings)
    n_labeled = np.bincount(of_partition, minlength=len(titles))
    chunk_rows = coding.default_chunk_rows(len(objects), len(titles))
    ids = Ids(objects, names[0])
    head = Header(len(objects), titles, n_clusters, n_labeled, chunk_rows, {}, ids=ids)

    def blocks() -> Iterator[np.ndarray]:
        for block in row_blocks(len(objects), min(chunk_rows, max(budget.n_bytes // (4 * len(titles)), 1))):
            low, high = np.searchsorted(of_object, (block.start, block.stop))
            labels = np.full((block.n_rows, len(titles)), MISSING, head.dtype)
            labels[of_object[low:high] - block.start, of_partition[low:high]] = of_label[low:high]
            yield labels

    return Content(head, categories, blocks())


# Memberships


class SoftSources:
    """The memberships ``(n_objects, k_u)`` of M partitions, read side by side.

    Each source is a table as for `Ensemble.from_labels` but with one column for each cluster.
    """

    where: str = "memberships"

    def __init__(
        self, tables: Any, names: Sequence[str] | None = None, *, first: int = 0, id: Column | None = None
    ) -> None:
        """Open the tables, with ids in the column ``id``; names are by default numbered from ``first``."""
        is_list = isinstance(tables, Sequence) or getattr(tables, "ndim", 0) == 3
        if not is_list or isinstance(tables, str) or not len(tables):
            raise InvalidInputError(
                f"memberships has type {type(tables).__name__}; pass a list of tables, one per partition."
            )
        self.names: list[str] = coding.partition_names(names, len(tables), "tables", first)
        self.n_objects: int = 0
        self.ids: Ids | None = None
        self._tables: list[Source] = []
        for name, data in zip(self.names, tables, strict=True):
            where, table = f"memberships of {name!r}", open_source(select(data, id=id), "memberships")
            kinds = table.column_types() or [table.dtype]
            if not all(re.match(r"u?int|float|double|halffloat|bool|null|decimal", str(k)) for k in kinds):
                raise InvalidInputError(f"{where} have a column that has no numbers; pass numbers.")
            table.most_rows(BLOCK_ROWS, at_most=0)  # counts them
            self.n_objects = self.n_objects or table.n_rows or 0
            if table.n_rows != self.n_objects:
                raise InvalidInputError(
                    f"{where} have {table.n_rows or 0:,} objects but those before have {self.n_objects:,}; "
                    "give a row for each, NaN where it is missing."
                )
            ids = self.ids if self._tables else table.ids
            if not (ids is table.ids or (ids and table.ids and rows_of_ids(ids, table.ids, where) is None)):
                raise InvalidIdsError(f"{where} have other ids, or another order, than before; use the same.")
            self.ids = table.ids
            self._tables.append(table)
        self.n_clusters: np.ndarray = np.array([table.n_columns for table in self._tables], np.int64)
        self.offsets: np.ndarray = np.concatenate([[0], np.cumsum(self.n_clusters)])

    @property
    def row_bytes(self) -> int:
        """Approximate bytes to read one object."""
        return 32 * int(self.n_clusters.sum())

    def blocks(self, rows: int = 4096) -> Iterator[np.ndarray]:
        """Yield the memberships ``(rows, n_base_clusters)`` float32: rows of a partition sum to 1, or are 0.

        Raises InvalidInputError, with object and partition, for rows that are not on the simplex.
        """
        readers = [coding.rechunk(map(_numbers, table.batches(rows)), rows) for table in self._tables]
        for block in row_blocks(self.n_objects, rows):
            memberships = np.empty((block.n_rows, int(self.offsets[-1])), np.float32)
            for name, (first, last), reader in zip(self.names, pairwise(self.offsets), readers, strict=True):
                values = next(reader).astype(np.float64)
                missing = np.isnan(values).all(axis=1) | ~values.any(axis=1)
                values[missing] = 0.0
                sums = values.sum(axis=1)
                bad = ~missing & ~(sum_to_one(sums) & (values >= 0).all(axis=1))
                if bad.any():
                    i = int(np.argmax(bad))
                    raise InvalidInputError(
                        f"memberships of object {block.start + i} in {name!r} have sum {sums[i]:g} and "
                        f"minimum {values[i].min():g}; give probabilities, whose sum is within "
                        f"{GIVEN_TOLERANCE} of 1, or all NaN."
                    )
                memberships[:, first:last] = values / np.where(missing, 1.0, sums)[:, None]
            yield memberships


def _numbers(batch: Rows) -> np.ndarray:
    """Return a batch of memberships as floats, NaN where they are missing."""
    if not isinstance(batch, list):
        return np.ma.filled(batch.astype(np.float64), np.nan)
    import pyarrow as pa

    columns = [plain_arrow(column).cast(pa.float64()) for column in batch]
    return np.column_stack([column.to_numpy(zero_copy_only=False) for column in columns])
