"""Ensembles from what is no matrix with a row for each object: runs, and long tables of votes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from bigcons.disk.places import temporary_folder
from bigcons.disk.schema import MISSING
from bigcons.errors import InvalidIdsError, InvalidInputError
from bigcons.io.codes import Encoding, EncodingBuilder
from bigcons.io.encode import (
    check_distinct,
    counts_of,
    default_chunk_rows,
    encode_labels,
    given_names,
    label_dtype,
    scan_labels,
)
from bigcons.io.files import is_table_path
from bigcons.io.ids import TEXT, HeldIds, IdFacts, Ids, are_positions, canonical, whole_or_text
from bigcons.io.intake import open_table
from bigcons.io.memory import map_npy, release_pages
from bigcons.io.select import Column, SelectedTable, select, source_of
from bigcons.io.table import Table
from bigcons.memory import BLOCK_ROWS, VALUES_TOGETHER, row_blocks, rows_within
from bigcons.store.ensemble_store import Content, Header
from bigcons.store.ids import ids_of
from bigcons.validation import is_names

# Runs


def read_runs(
    runs: Any,
    names: Sequence[str] | None,
    stack: ExitStack,
    *,
    ids: Any = None,
    on_disk: bool = False,
    **how: Any,
) -> Content:
    """Read partitions of the same objects, one from each of ``runs``; see `Ensemble.from_runs`.

    ``how`` are ``id``, ``columns``, ``missing`` and ``header`` of the tables. The codes of all runs are held
    in memory or, ``on_disk``, in temporary files that are removed when the ``stack`` is closed.
    """
    found, names = _listed_runs(runs, names)
    tables = [_table_of_run(run, name, how) for run, name in zip(found, names, strict=True)]
    objects = None if ids is None else ids_of(ids)
    if objects is None:
        objects = _objects_of(tables, names)
    folder = stack.enter_context(temporary_folder()) if on_disk else None
    columns: list[Any] = []
    encodings: list[Encoding] = []
    n_objects = None if objects is None else objects.n_objects
    for table, name in zip(tables, names, strict=True):
        (encoding,) = scan_labels(table, [name]).encodings
        dtype = label_dtype([len(encoding.values)])
        codes = np.concatenate(list(encode_labels(table, [encoding], dtype)))[:, 0]
        if table.ids is not None and objects is not None:
            codes = np.append(codes, dtype.type(MISSING))[_rows_in(table.ids, objects, name)]
        n_objects = len(codes) if n_objects is None else n_objects
        if len(codes) != n_objects:
            raise InvalidInputError(
                f"run {name!r} has {len(codes):,} labels but there are {n_objects:,} objects; give each run "
                "a label for every object, -1 where it is missing, or ids to join them by."
            )
        columns.append(codes)
        if folder is not None:
            np.save(folder / f"{len(encodings)}.npy", codes)
            columns[-1] = map_npy(folder / f"{len(encodings)}.npy")
        encodings.append(encoding)
    assert n_objects is not None  # noqa: S101 - there was a run
    if objects is not None and ids is None and are_positions(objects):
        objects = None
    n_clusters, n_labeled, categories = counts_of(encodings)
    chunk_rows = default_chunk_rows(n_objects, len(names))
    header = Header(n_objects, names, n_clusters, n_labeled, chunk_rows, {}, ids=objects)
    return Content(header, categories, _side_by_side(columns, header))


def _side_by_side(columns: Sequence[np.ndarray], header: Header) -> Iterator[np.ndarray]:
    for block in row_blocks(header.n_objects, header.chunk_rows):
        codes = np.empty((block.n_rows, len(columns)), header.dtype)
        for u, column in enumerate(columns):
            codes[:, u] = column[block.start : block.stop]
            release_pages(column)
        yield codes


def _listed_runs(runs: Any, names: Sequence[str] | None) -> tuple[list[Any], list[str]]:
    """Return the runs as a list, and their names: given, keys of a mapping, their own, or p0, p1, ..."""
    wanted = "pass a list with an entry for each partition: its labels, or a file of them"
    if isinstance(runs, Mapping):
        names, runs = list(map(str, runs)) if names is None else names, list(runs.values())
        if any(map(_is_label, runs)):
            raise InvalidInputError(
                "runs is a mapping from objects to labels, a single run; pass [pandas.Series(runs)]."
            )
    if isinstance(runs, (str, os.PathLike, set, frozenset)) or not hasattr(runs, "__len__"):
        raise InvalidInputError(f"runs has type {type(runs).__name__}; {wanted}.")
    if hasattr(runs, "columns") or not (hasattr(runs, "__getitem__") and len(runs)):
        raise InvalidInputError(
            f"runs has type {type(runs).__name__} and {len(runs)} entries; {wanted}; a table with a column "
            "for each goes to Ensemble.from_labels."
        )
    found = [runs[r] for r in range(len(runs))]
    if any(map(_is_label, found)):
        raise InvalidInputError(f"runs is a list of {len(found)} labels, a single run; pass [runs].")
    if names is None:
        own = {name for run in found if (name := _own_name(run))}
        return found, [_own_name(run) if len(own) == len(found) else f"p{u}" for u, run in enumerate(found)]
    return found, given_names(names, len(found), "runs")


def _own_name(run: Any) -> str:
    """Return the name of a file, or of a column of pandas or polars; "" without one."""
    run = source_of(run)
    if isinstance(run, (str, os.PathLike)):
        return Path(run).name.partition(".")[0]
    name = getattr(run, "name", None)
    return "" if name is None or not hasattr(run, "to_frame") else str(name)


def _is_label(run: Any) -> bool:
    """Return whether what should be a run is a single label."""
    if isinstance(run, str):
        return not is_table_path(run) and not Path(run).exists()
    return run is None or isinstance(run, (int, float, np.number, np.bool_))


def _table_of_run(run: Any, name: str, how: Mapping[str, Any]) -> Table:
    """Return the labels of a run as a table of one column, with the ids of its objects if it has them."""
    import pyarrow as pa

    if hasattr(run, "labels_"):  # of scikit-learn
        run = run.labels_
    is_nested = isinstance(run, (list, tuple)) and any(
        hasattr(x, "__len__") and not isinstance(x, str) for x in run
    )
    if isinstance(run, (Mapping, set, frozenset)) or is_nested or hasattr(run, "membership"):
        raise InvalidInputError(
            f"run {name!r} has type {type(run).__name__}; pass a vector with the label of each object, such "
            "as clustering.membership, or pandas.Series with the objects as its index."
        )
    if isinstance(run, (list, tuple)) or getattr(run, "ndim", 2) == 1 or _is_column(run):
        how = {"missing": how.get("missing")}
        if hasattr(run, "to_frame"):
            is_pandas = type(run).__module__.startswith("pandas")
            how |= {"id": "index"} if _has_names(run) else {}
            run = run.to_frame(name="label") if is_pandas else run.to_frame()
        elif _is_column(run):
            run = pa.table({"label": run})
        elif isinstance(run, (list, tuple)):
            values = np.empty((len(run), 1), object)
            values[:, 0] = run
            run = values
        else:
            run = np.asanyarray(run).reshape(-1, 1)
    else:
        how = dict(how)
        if _has_names(run) and how.get("id") is None:
            how["id"] = "index"
    table = open_table(select(run, **how), "labels", are_objects=True)
    if table.n_columns != 1:
        shown = f": {', '.join(table.names[:4])}" if table.names else ""
        raise InvalidInputError(
            f"run {name!r}, {table.where}, has {table.n_columns} columns{shown}; name the one with its "
            "labels by columns= (--columns) and that of the ids by id= (--id)."
        )
    return table


def _has_names(run: Any) -> bool:
    """Return whether ``run`` has an index of pandas other than the one that rows have by default."""
    index = getattr(run, "index", None)
    return hasattr(index, "nlevels") and (type(index).__name__ != "RangeIndex" or is_names(index))


def _is_column(run: Any) -> bool:
    """Return whether ``run`` is an Arrow array, or a column of polars."""
    return hasattr(run, "null_count") and not hasattr(run, "columns")


def _objects_of(tables: Sequence[Table], names: Sequence[str]) -> Ids | None:
    """Return the ids of all objects, each once, in the order of the runs; None without ids."""
    import pyarrow as pa

    given = [table.ids for table in tables if table.ids is not None]
    if not given:
        return None
    first = given[0]
    lengths = {table.n_rows for table in tables if table.ids is None}
    for ids, name in zip((table.ids for table in tables), names, strict=True):
        if ids is not None and ids.facts.dtype != first.facts.dtype:
            raise InvalidIdsError(
                f"the objects of run {name!r} are {ids.facts.dtype} and those before {first.facts.dtype}; "
                "convert them to one type.",
                column=ids.facts.name,
            )
    if not lengths and all(ids.facts.digest == first.facts.digest for ids in given):
        return first
    values = pa.concat_arrays([block for ids in given for block in ids.blocks()]).unique()
    objects = HeldIds.of(values, first.facts)
    if lengths and not (lengths == {objects.n_objects} and are_positions(objects)):
        name = next(name for table, name in zip(tables, names, strict=True) if table.ids is None)
        raise InvalidInputError(
            f"run {name!r} has labels without ids, beside runs with the ids of their objects; give all of "
            "them ids, or pass ids= with those of all objects in the order of the labels."
        )
    return objects


def _rows_in(ids: Ids, objects: Ids, name: str) -> np.ndarray:
    """Return the row in ``ids`` of each of the ``objects``, -1 of those that have none; refuse other ids."""
    import pyarrow.compute as pc

    known, given = objects.hold().values, ids.hold().values
    if known.type != given.type:
        raise InvalidIdsError(
            f"the objects of run {name!r} are {ids.facts.dtype} but the ids are {objects.facts.dtype}; "
            "convert them.",
            column=ids.facts.name,
        )
    unknown = pc.is_null(pc.index_in(given, value_set=known))
    if pc.any(unknown).as_py():
        first = given[unknown.index(True).as_py()].as_py()
        raise InvalidIdsError(f"run {name!r} has object {first!r}, which is not in ids; give all ids.")
    return pc.fill_null(pc.index_in(known, value_set=given), -1).to_numpy(zero_copy_only=False)


# Long tables


_VOTE = np.dtype([("object", "<i8"), ("partition", "<i4"), ("label", "<i4")])


def read_long(
    source: Any,
    stack: ExitStack,
    *,
    object: Column,
    partition: Column,
    label: Column,
    missing: Any = None,
    header: bool | None = None,
    budget: int,
) -> Content:
    """Read a table with a row for each label; see `Ensemble.from_long`.

    The table is read twice; votes are sorted in temporary files that are removed when the ``stack`` is
    closed. Memory: the distinct objects, a share of the votes, and a block.
    """
    chosen = select(source, columns=[object, partition, label], missing=missing, header=header)
    table = open_table(chosen, "labels", are_objects=True, with_ids=False)
    found = _Long(table)
    n_objects, n_partitions = len(found.objects.values), len(found.partitions.values)
    folder = stack.enter_context(temporary_folder())
    # six copies of the votes that are sorted at a time
    n_parts = max(1, -(-found.n_votes * _VOTE.itemsize * 6 // (budget // 4)))
    per_part = -(-n_objects // n_parts)
    found.write(folder, per_part)
    names = [str(value) for value in found.partitions.values.to_pylist()]
    check_distinct(names)
    n_labeled = np.zeros(n_partitions, np.int64)
    for path in found.files(folder):
        votes = _without_repeats(np.fromfile(path, _VOTE), found, names)
        votes.tofile(path)
        n_labeled += np.bincount(votes["partition"], minlength=n_partitions)
    n_clusters, _, categories = counts_of(found.encodings)
    dtype = label_dtype(n_clusters)
    ids = found.objects.ids()
    row_bytes = dtype.itemsize * n_partitions
    chunk_rows = default_chunk_rows(n_objects, n_partitions)
    rows = min(rows_within(budget // 4, 2 * row_bytes, what="the labels of one object"), BLOCK_ROWS)

    def blocks() -> Iterator[np.ndarray]:
        for first in range(0, n_objects, per_part):
            path = folder / str(first // per_part)
            votes = np.fromfile(path, _VOTE) if path.exists() else np.empty(0, _VOTE)
            for start in range(first, min(first + per_part, n_objects), rows):
                stop = min(start + rows, first + per_part, n_objects)
                low, high = np.searchsorted(votes["object"], (start, stop))
                part = votes[low:high]
                labels = np.full((stop - start, n_partitions), MISSING, dtype)
                labels[part["object"] - start, part["partition"]] = part["label"]
                yield labels

    head = Header(n_objects, names, n_clusters, n_labeled, chunk_rows, {}, ids=ids)
    return Content(head, categories, blocks())


class _Distinct:
    """The different values of a column of ids, ascending."""

    def __init__(self, table: Table, position: int) -> None:
        source = table.id_table(position) or SelectedTable(table, [position])
        self.name: str = table.names[position] if table.names else str(position)
        self.where: str = table.where
        self.dtype: str | None = whole_or_text(source, self.name)
        self.values: Any = None
        self._waiting: list[Any] = []
        self._n_waiting = 0

    def of(self, raw: Any, first: int) -> Any:
        """Return a block of the column as Arrow; ``first`` is its first row."""
        found = canonical(raw, self.name, self.where, first=first, dtype=self.dtype)
        self.dtype = self.dtype or (TEXT if found.type == "large_string" else str(found.type))
        return found

    def add(self, block: Any) -> None:
        self._waiting.append(block.unique())
        self._n_waiting += len(self._waiting[-1])
        if self._n_waiting > max(VALUES_TOGETHER, len(self.values) if self.values is not None else 0):
            self.gather()

    def gather(self) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        held = [*([] if self.values is None else [self.values]), *self._waiting]
        if self.dtype == TEXT:
            values = pa.concat_arrays(held).unique()
            self.values = values.take(pc.array_sort_indices(values))
        else:  # in a third of the memory
            self.values = pa.array(np.unique(np.concatenate([part.to_numpy() for part in held])))
        self._waiting, self._n_waiting = [], 0

    def codes(self, block: Any) -> np.ndarray:
        """Return the positions of a block's values."""
        import pyarrow.compute as pc

        if self.dtype == TEXT:
            return pc.index_in(block, value_set=self.values).to_numpy(zero_copy_only=False)
        return np.searchsorted(self.values.to_numpy(), block.to_numpy())

    def ids(self) -> HeldIds:
        kind = "string" if self.dtype == TEXT else str(self.dtype)
        return HeldIds.of(self.values, IdFacts(self.name, kind, False, str(self.dtype), 0, ""))


class _Long:
    """The objects and partitions of a long table, and the labels of each partition, found in a first pass."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.objects, self.partitions = (_Distinct(table, c) for c in range(2))
        builders: dict[Any, EncodingBuilder] = {}
        self.n_votes = 0
        for objects, partitions, raw in self._rows():
            self.objects.add(objects)
            self.partitions.add(partitions)
            here = partitions.dictionary_encode()
            values = here.dictionary.to_pylist()
            for place, rows in _places(here.indices.to_numpy()):
                value = values[place]
                if value not in builders:
                    rule = table.rule_of(2)
                    builders[value] = EncodingBuilder(str(value), is_text=table.is_text, rule=rule)
                builders[value].add(_rows_of(raw, rows))
            self.n_votes += len(objects)
        if not self.n_votes:
            raise InvalidInputError(f"{table.where} has no rows; give at least one label.")
        self.objects.gather()
        self.partitions.gather()
        self.encodings = [builders[value].build() for value in self.partitions.values.to_pylist()]

    def _rows(self) -> Iterator[tuple[Any, Any, Any]]:
        first = 0
        for rows in self._table.blocks(BLOCK_ROWS):
            columns = rows if isinstance(rows, list) else list(rows.T)
            objects, partitions = self.objects.of(columns[0], first), self.partitions.of(columns[1], first)
            yield objects, partitions, columns[2]
            first += len(objects)

    def write(self, folder: Path, per_part: int) -> None:
        """Write the votes that have a label to files, one for every ``per_part`` objects."""
        import pyarrow as pa

        waiting: list[tuple[Any, np.ndarray, np.ndarray]] = []

        def flush() -> None:
            votes = np.empty(sum(len(labels) for _, _, labels in waiting), _VOTE)
            votes["object"] = self.objects.codes(pa.concat_arrays([objects for objects, _, _ in waiting]))
            votes["partition"] = np.concatenate([partitions for _, partitions, _ in waiting])
            votes["label"] = np.concatenate([labels for _, _, labels in waiting])
            votes = votes[votes["label"] != MISSING]
            waiting.clear()
            for number, own in _places(votes["object"] // per_part):
                with (folder / str(number)).open("ab") as file:
                    file.write(votes[own].tobytes())

        n_waiting = 0
        for objects, partitions, raw in self._rows():
            codes = self.partitions.codes(partitions)
            labels = np.empty(len(codes), np.int32)
            for u, own in _places(codes):
                labels[own] = self.encodings[u].encode(_rows_of(raw, own))
            waiting.append((objects, codes, labels))
            n_waiting += len(labels)
            if n_waiting >= VALUES_TOGETHER:
                flush()
                n_waiting = 0
        if waiting:
            flush()

    def files(self, folder: Path) -> list[Path]:
        """Return the files with votes."""
        return sorted(folder.iterdir(), key=lambda path: int(path.name))


def _places(numbers: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each of the numbers that are there, ascending, and where it is."""
    order = np.argsort(numbers, kind="stable")
    found, starts = np.unique(numbers[order], return_index=True)
    yield from zip(found.tolist(), np.split(order, starts[1:]), strict=True)


def _rows_of(raw: Any, rows: np.ndarray) -> Any:
    """Return some rows of a column of numpy or Arrow."""
    return raw[rows] if isinstance(raw, np.ndarray) else raw.take(rows)


def _without_repeats(votes: np.ndarray, found: _Long, names: Sequence[str]) -> np.ndarray:
    """Return votes in order, each once; refuse two labels of an object in a partition."""
    votes = votes[np.lexsort((votes["label"], votes["partition"], votes["object"]))]
    is_same = (votes["object"][1:] == votes["object"][:-1]) & (
        votes["partition"][1:] == votes["partition"][:-1]
    )
    differs = np.flatnonzero(is_same & (votes["label"][1:] != votes["label"][:-1]))
    if differs.size:
        one, other = votes[differs[0]], votes[differs[0] + 1]
        values = found.encodings[one["partition"]].values.tolist()
        raise InvalidInputError(
            f"{found.objects.name} {found.objects.values[int(one['object'])].as_py()!r} has the labels "
            f"{values[one['label']]!r} and {values[other['label']]!r} of {found.partitions.name} "
            f"{names[one['partition']]!r}; keep one of them."
        )
    return votes[np.concatenate([[True], ~is_same])] if len(votes) else votes
