"""What is no matrix of labels with a row for each object: runs, long tables, memberships and pairs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bigcons.disk.places import temporary_folder
from bigcons.disk.schema import MISSING, PAIR_COLUMNS
from bigcons.errors import (
    EmptyPartitionError,
    InvalidIdsError,
    InvalidInputError,
    InvalidPairsError,
)
from bigcons.io.batches import Rows, Source, columns_of
from bigcons.io.columns import Column, select, source_of
from bigcons.io.factorize import (
    Encoding,
    check_distinct,
    counts_of,
    default_chunk_rows,
    encode_labels,
    label_dtype,
    partition_names,
    rechunk,
    scan_labels,
)
from bigcons.io.ids import (
    Ids,
    are_positions,
    canonical,
    joined_ids,
    plain_arrow,
    refuse_other_type,
    rows_of_ids,
)
from bigcons.io.labels import observed
from bigcons.io.sources import as_table, open_source
from bigcons.memory import BLOCK_ROWS, DataBudget, row_blocks
from bigcons.progress import progress
from bigcons.store.ensemble_store import SUM_TOLERANCE, Content, Header
from bigcons.store.pair_rows import MAX_OBJECTS, MAX_SEEN, OBJECT_BYTES, PAIR_BYTES, Edges
from bigcons.validation import check_int

# Runs


def read_runs(
    runs: Any,
    names: Sequence[str] | None,
    stack: ExitStack,
    *,
    ids: Ids | None = None,
    on_disk: bool = False,
    **how: Any,
) -> Content:
    """Read partitions of the same objects, one from each of ``runs``; see `Ensemble.from_runs`.

    ``how`` are ``id``, ``columns``, ``missing`` and ``header`` of the tables. The codes of all runs are held
    in memory or, ``on_disk``, in temporary files that are removed when the ``stack`` is closed.
    """
    entries, names = _listed_runs(runs, names)
    sources = [_source_of_run(run, name, how) for run, name in zip(entries, names, strict=True)]
    objects = ids or _objects_of(sources, names)
    folder = stack.enter_context(temporary_folder()) if on_disk else None
    columns: list[np.ndarray] = []
    encodings = []
    n_objects = None if objects is None else objects.n_objects
    for source, name in zip(sources, names, strict=True):
        _, (encoding,) = scan_labels(source, [name])
        dtype = label_dtype([len(encoding.values)])
        codes = np.concatenate(list(encode_labels(source, [encoding], dtype, are_new=True)))[:, 0]
        if source.ids is not None and objects is not None:
            rows = rows_of_ids(objects, source.ids, f"run {name!r}")
            codes = codes if rows is None else np.append(codes, dtype.type(MISSING))[rows]
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
    n_clusters, n_labeled, categories = counts_of(encodings)
    chunk_rows = default_chunk_rows(len(codes), len(names))
    header = Header(len(codes), names, n_clusters, n_labeled, chunk_rows, {}, ids=objects)
    blocks = (
        np.column_stack([column[b.start : b.stop] for column in columns]).astype(header.dtype)
        for b in row_blocks(len(codes), chunk_rows)
    )
    return Content(header, categories, blocks)


def _listed_runs(runs: Any, names: Sequence[str] | None) -> tuple[list[Any], list[str]]:
    """Return the runs as a list, and their names: given, of a mapping, files or columns, or p0, ..."""
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
    return list(runs), partition_names(names, len(runs), "runs")


def _source_of_run(run: Any, name: str, how: Mapping[str, Any]) -> Source:
    """Return the labels of a run as a source of one column, with the ids of its objects if it has them."""
    run = getattr(run, "labels_", run)  # of scikit-learn
    table = as_table(run)
    is_vector = table is not run and not hasattr(run, "to_frame")
    options = {"missing": how.get("missing")} if is_vector else dict(how)
    source = open_source(select(table, **options), "labels", are_objects=True)
    if source.n_columns != 1:
        columns = f": {', '.join(source.names[:4])}" if source.names else ""
        raise InvalidInputError(
            f"run {name!r}, {source.where}, has {source.n_columns} columns{columns}; name the one with its "
            "labels by columns= (--columns) and that of the ids by id= (--id)."
        )
    return source


def _objects_of(sources: Sequence[Source], names: Sequence[str]) -> Ids | None:
    """Return the ids of all objects, each once, in the order of the runs; None without ids."""
    ids = [source.ids for source in sources]
    given = [one for one in ids if one is not None]
    if not given:
        return None
    if None in ids:
        raise InvalidInputError(
            f"run {names[ids.index(None)]!r} has labels without ids, beside runs with ids; give all ids."
        )
    for one, name in zip(given, names, strict=True):
        refuse_other_type(given[0], one, f"run {name!r}")
    if all(one.facts.digest == given[0].facts.digest for one in given):
        return given[0]
    import pyarrow as pa

    return given[0].others(pa.concat_arrays([one.hold().values for one in given]).unique())


# Long tables


def read_long(
    table: Any,
    *,
    object: Column,
    partition: Column,
    label: Column,
    missing: Any = None,
    header: bool | None = None,
    budget: int,
) -> Content:
    """Read a table with a row for each label into memory; see `Ensemble.from_long`.

    Raises MemoryBudgetError for more rows than fit in ``budget`` bytes.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    chosen = select(table, columns=[object, partition, label], missing=missing, header=header)
    source = open_source(chosen, "labels", are_objects=True, with_ids=False)
    names, where = source.names or ["0", "1", "2"], source.where
    parts: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    n_rows = 0
    for batch in source.batches(BLOCK_ROWS):
        *named, votes = columns_of(batch)
        for c, column in enumerate(named):
            parts[c].append(canonical(column, names[c], where, n_rows))
        parts[2].append(votes if isinstance(votes, np.ndarray) else plain_arrow(votes))
        n_rows += len(votes)
        n_most = source.n_rows or n_rows
        # a vote takes 100 bytes while it is read and sorted, with a margin
        DataBudget(budget).check(100 * n_most, f"{n_most:,} rows or more of {where}", "give fewer")
    keys = [joined_ids(parts[c], names[c], where, is_text=source.is_text) for c in range(2)]
    objects, partitions = (one.take(pc.array_sort_indices(one)) for one in (key.unique() for key in keys))
    of_object, of_partition = (
        pc.index_in(key, value_set=values).to_numpy()
        for key, values in zip(keys, (objects, partitions), strict=True)
    )
    titles = [str(value) for value in partitions.to_pylist()]
    check_distinct(titles)
    is_array = isinstance(parts[2][0], np.ndarray)
    votes = np.concatenate(parts[2]) if is_array else pa.concat_arrays(parts[2])
    encodings, of_label = [], np.empty(len(votes), np.int32)
    ends = np.cumsum(np.bincount(of_partition, minlength=len(titles)))
    for name, rows in zip(titles, np.split(np.argsort(of_partition, kind="stable"), ends[:-1]), strict=True):
        given = votes[rows] if is_array else votes.take(pa.array(rows))
        encoding = Encoding(name, None, source.rule, is_text=source.is_text)
        encoding.add(given)
        encodings.append(encoding.finish())
        of_label[rows] = encoding.encode(given)
    order = np.lexsort((of_label, of_partition, of_object))
    order = order[of_label[order] != MISSING]
    of_object, of_partition, of_label = of_object[order], of_partition[order], of_label[order]
    is_same = np.append(False, (of_object[1:] == of_object[:-1]) & (of_partition[1:] == of_partition[:-1]))
    if (at := np.flatnonzero(is_same & (of_label != np.roll(of_label, 1)))).size:
        u = int(of_partition[at[0]])
        one, other = encodings[u].values[of_label[at[0] - 1 : at[0] + 1]].tolist()
        raise InvalidInputError(
            f"{names[0]} {objects[int(of_object[at[0]])].as_py()!r} has the labels {one!r} and "
            f"{other!r} of {names[1]} {titles[u]!r}; keep one of them."
        )
    of_object, of_partition, of_label = of_object[~is_same], of_partition[~is_same], of_label[~is_same]
    n_clusters, _, categories = counts_of(encodings)
    n_labeled = np.bincount(of_partition, minlength=len(titles))
    chunk_rows = default_chunk_rows(len(objects), len(titles))
    ids = Ids(objects, names[0])
    head = Header(len(objects), titles, n_clusters, n_labeled, chunk_rows, {}, ids=ids)

    def blocks() -> Iterator[np.ndarray]:
        for block in row_blocks(len(objects), min(chunk_rows, max(budget // (4 * len(titles)), 1))):
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
        self.names: list[str] = partition_names(names, len(tables), "tables", first)
        self.n_objects: int = 0
        self.ids: Ids | None = None
        self._tables: list[Source] = []
        for name, given in zip(self.names, tables, strict=True):
            given = np.asarray(given) if isinstance(given, (list, tuple)) else given
            where, table = f"memberships of {name!r}", open_source(select(given, id=id), "memberships")
            kinds = table.column_types() or [table.dtype]
            if not all(re.match(r"u?int|float|double|halffloat|bool|null|decimal", str(k)) for k in kinds):
                raise InvalidInputError(f"{where} have a column that has no numbers; pass numbers.")
            if table.n_rows is None:
                for _ in table.batches(BLOCK_ROWS, columns=[0]):
                    pass
            self.n_objects = self.n_objects or table.n_rows or 0
            if table.n_rows != self.n_objects:
                raise InvalidInputError(
                    f"{where} have {table.n_rows or 0:,} objects but those before have {self.n_objects:,}; "
                    "give a row for each, NaN where it is missing."
                )
            if self.ids is not None and table.ids and rows_of_ids(self.ids, table.ids, where) is not None:
                what = f"{where} have {table.ids.facts.name} in another order than those before."
                raise InvalidIdsError(what, column=table.ids.facts.name)
            self.ids = self.ids or table.ids
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
        readers = [rechunk(map(_numbers, table.batches(rows)), rows) for table in self._tables]
        for block in row_blocks(self.n_objects, rows):
            memberships = np.empty((block.n_rows, int(self.offsets[-1])), np.float32)
            for name, (first, last), reader in zip(self.names, pairwise(self.offsets), readers, strict=True):
                values = next(reader).astype(np.float64)
                missing = np.isnan(values).all(axis=1) | ~values.any(axis=1)
                values[missing] = 0.0
                sums = values.sum(axis=1)
                bad = ~missing & ~((np.abs(sums - 1.0) <= SUM_TOLERANCE) & (values >= 0).all(axis=1))
                if bad.any():
                    i = int(np.argmax(bad))
                    raise InvalidInputError(
                        f"memberships of object {block.start + i} in {name!r} have sum {sums[i]:g} and "
                        f"minimum {values[i].min():g}; give probabilities, or all NaN."
                    )
                memberships[:, first:last] = values / np.where(missing, 1.0, sums)[:, None]
            yield memberships

    def count_labeled(self, *, rows: int = 4096, may_be_empty: bool = False) -> np.ndarray:
        """Read everything once and return how many objects each partition labels, ``(M,)`` int64.

        Raises EmptyPartitionError for a partition that labels none, unless it ``may_be_empty``.
        """
        n_labeled = np.zeros(len(self.names), np.int64)
        for block in self.blocks(rows):
            n_labeled += np.count_nonzero(observed(block, self.offsets), axis=0)
        if not may_be_empty and not n_labeled.all():
            raise EmptyPartitionError(self.names[int(np.argmin(n_labeled))])
        return n_labeled


def _numbers(batch: Rows) -> np.ndarray:
    """Return a batch of memberships as floats, NaN where they are missing."""
    if not isinstance(batch, list):
        return np.ma.filled(batch.astype(np.float64), np.nan)
    import pyarrow as pa

    columns = [plain_arrow(column).cast(pa.float64()) for column in batch]
    return np.column_stack([column.to_numpy(zero_copy_only=False) for column in columns])


# Pairs


def read_pairs(
    table: Source, *, n_objects: int | None = None, columns: Sequence[str] | None = None, budget: int
) -> tuple[Edges, int]:
    """Return the pairs of a table with ``n_seen > 0``, ascending by i, then j, and the number of objects.

    The table has a row for each pair, in any order. The columns are integers, by default
    `bigcons.disk.schema.PAIR_COLUMNS`, or have the names ``columns`` in this order. The number of objects, if
    None, is one more than the largest of a pair. Raises InvalidPairsError, with the file and row, for the
    first that breaks a rule, and MemoryBudgetError for more pairs than fit in ``budget`` bytes.
    """
    names = list(PAIR_COLUMNS if columns is None else columns)
    if len(names) != len(PAIR_COLUMNS):
        what = f"columns={names}; give four names, of the columns {', '.join(PAIR_COLUMNS)}."
        raise InvalidInputError(what, parameter="columns")
    if n_objects is not None:
        check_int("n_objects", n_objects, at_least=0, at_most=MAX_OBJECTS)
    if any((table.names or []).count(name) != 1 for name in names):
        stated = f"the columns {', '.join(table.names)}" if table.names else "no column names"
        what = f"{table.where} has {stated}; it needs the integer columns {', '.join(names)}."
        raise InvalidPairsError(what, path=table.where)
    parts = [Edges(*(np.empty(0, dtype) for dtype in (np.int32, np.int32, np.uint16, np.uint16)))]
    n_rows, last = 0, -1
    with progress("check pairs", table.n_rows or 0, "pairs") as listener:
        for batch in table.batches(BLOCK_ROWS, columns=[(table.names or []).index(name) for name in names]):
            part = _checked_pairs(batch, names, n_rows, n_objects, table.where)
            last = max(last, int(part.j.max(initial=-1)))
            n_rows += len(part.i)
            listener.advance(len(part.i))
            seen = part.n_seen > 0
            parts.append(Edges(*(column[seen] for column in part)))
            needed = PAIR_BYTES * max(n_rows, table.n_rows or 0) + OBJECT_BYTES * (n_objects or 0)
            remedy = "store them by import_pairs (bigcons import --pairs), which takes memory="
            DataBudget(budget).check(needed, f"the pairs in {table.where}, which are sorted,", remedy)
    if n_objects is None and (n_rows == 0 or last >= max(1 << 24, 100 * n_rows)):
        # more objects than this, and than this many for each pair, are numbers that are no rows
        what = f"{table.where} has {n_rows:,} pairs and a largest object {last:,}; number from 0, or give"
        raise InvalidPairsError(f"{what} n_objects={last + 1}.", path=table.where)
    edges = Edges(*map(np.concatenate, zip(*parts, strict=True)))
    del parts
    number = edges.i.astype(np.int64) << 32 | edges.j
    if (number[1:] <= number[:-1]).any():
        order = np.argsort(number)
        number, edges = number[order], Edges(*(column[order] for column in edges))
        if (repeated := np.flatnonzero(number[1:] == number[:-1])).size:
            at = repeated[0]
            what = f"{table.where} lists the pair {names[0]}={edges.i[at]}, {names[1]}={edges.j[at]} twice"
            raise InvalidPairsError(f"{what}; keep one of them.", path=table.where)
    return edges, last + 1 if n_objects is None else n_objects


def _checked_pairs(
    batch: Sequence[Any], names: Sequence[str], first: int, n_objects: int | None, where: str
) -> Edges:
    """Return a batch as int32 objects and uint16 counts; ``first`` is its first row, for messages."""
    columns = [plain_arrow(column) for column in batch]
    for name, column in zip(names, columns, strict=True):
        kind = getattr(column, "type", column)
        if "int" not in str(kind):
            what = f"column {name!r} of {where} has type {kind}; it needs integers."
            raise InvalidPairsError(what, path=where, row=first)
        if column.null_count:
            row = first + column.is_null().index(True).as_py()
            what = f"row {row} of {where} has no {name} (null), but every pair needs one; correct it."
            raise InvalidPairsError(what, path=where, row=row)
    i, j, n_agree, n_seen = values = [np.asarray(column) for column in columns]
    most = MAX_OBJECTS if n_objects is None else n_objects
    bad = (i < 0) | (i >= j) | (j >= most) | (n_agree < 0) | (n_agree > n_seen) | (n_seen > MAX_SEEN)
    if bad.any():
        at = int(np.argmax(bad))
        got = ", ".join(f"{name}={column[at]}" for name, column in zip(names, values, strict=True))
        rule = f"0 <= {names[0]} < {names[1]} < {most} and 0 <= {names[2]} <= {names[3]} <= {MAX_SEEN}"
        what = f"row {first + at} of {where} has {got}, but {rule} must hold; correct or remove it."
        raise InvalidPairsError(what, path=where, row=first + at)
    kinds = (np.int32, np.int32, np.uint16, np.uint16)
    return Edges(*(column.astype(kind, copy=False) for column, kind in zip(values, kinds, strict=True)))
