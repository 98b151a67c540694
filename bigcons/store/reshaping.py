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
from bigcons.errors import InvalidInputError, MemoryBudgetError
from bigcons.io.batches import Source, columns_of
from bigcons.io.columns import Column, select, source_of
from bigcons.io.factorize import (
    Builder,
    check_distinct,
    counts_of,
    default_chunk_rows,
    encode_labels,
    label_dtype,
    partition_names,
    scan_labels,
)
from bigcons.io.ids import (
    TEXT,
    HeldIds,
    IdFacts,
    Ids,
    are_positions,
    canonical,
    plain_arrow,
    refuse_other_type,
    rows_of_ids,
    type_in_text,
)
from bigcons.io.sources import open_source
from bigcons.memory import BLOCK_ROWS, enough_for, format_size, row_blocks
from bigcons.store.ensemble_store import Content, Header
from bigcons.store.store import ids_of

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
    entries, names = _listed_runs(runs, names)
    sources = [_source_of_run(run, name, how) for run, name in zip(entries, names, strict=True)]
    objects = _objects_of(sources, names) if ids is None else ids_of(ids)
    folder = stack.enter_context(temporary_folder()) if on_disk else None
    columns: list[np.ndarray] = []
    encodings = []
    n_objects = None if objects is None else objects.n_objects
    for source, name in zip(sources, names, strict=True):
        _, (encoding,) = scan_labels(source, [name])
        dtype = label_dtype([len(encoding.values)])
        codes = np.concatenate(list(encode_labels(source, [encoding], dtype)))[:, 0]
        if source.ids is not None and objects is not None:
            rows = rows_of_ids(objects, source.ids, f"run {name!r}")
            codes = codes if rows is None else np.append(codes, dtype.type(MISSING))[rows]
        n_objects = len(codes) if n_objects is None else n_objects
        if len(codes) != n_objects:
            raise InvalidInputError(
                f"run {name!r} has {len(codes):,} labels but there are {n_objects:,} objects; give each run "
                "a label for every object, -1 where it is missing, or ids to join them by."
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
    """Return the runs as a list, and their names: given, keys of a mapping, their own, or p0, p1, ..."""
    if isinstance(runs, Mapping):
        names, runs = list(map(str, runs)) if names is None else names, list(runs.values())
    is_one = isinstance(runs, (str, os.PathLike, set, frozenset)) or hasattr(runs, "columns")
    if is_one or not (hasattr(runs, "__getitem__") and hasattr(runs, "__len__") and len(runs)):
        raise InvalidInputError(
            f"runs has type {type(runs).__name__} or no entries; pass a list with an entry for each "
            "partition: its labels, or a file of them; a table with a column for each goes to "
            "Ensemble.from_labels."
        )
    entries = [runs[r] for r in range(len(runs))]
    if any(run is None or isinstance(run, (int, float, np.number, np.bool_)) for run in entries):
        raise InvalidInputError(
            f"runs has {len(entries)} labels, a single run; pass [runs], of a mapping [pandas.Series(runs)]."
        )
    if names is None:
        own = [_own_name(run) for run in entries]
        names = own if "" not in own and len(set(own)) == len(own) else None
    return entries, partition_names(names, len(entries), "runs")


def _own_name(run: Any) -> str:
    """Return the name of a file, or of a column of pandas or polars; "" without one."""
    run = source_of(run)
    if isinstance(run, (str, os.PathLike)):
        return Path(run).name.partition(".")[0]
    name = getattr(run, "name", None)
    return "" if name is None or not hasattr(run, "to_frame") else str(name)


def _source_of_run(run: Any, name: str, how: Mapping[str, Any]) -> Source:
    """Return the labels of a run as a source of one column, with the ids of its objects if it has them."""
    run = getattr(run, "labels_", run)  # of scikit-learn
    is_vector = isinstance(run, (list, tuple)) or getattr(run, "ndim", 2) == 1
    options = {"missing": how.get("missing")} if is_vector or hasattr(run, "null_count") else dict(how)
    if hasattr(run, "to_frame") and not hasattr(run, "columns"):  # a column of pandas or polars
        run = run.to_frame()
    elif hasattr(run, "null_count") and not hasattr(run, "columns"):
        import pyarrow as pa

        run = pa.table({"label": run})
    elif is_vector:
        values = np.empty(len(run), object)
        values[:] = run
        run = (values if isinstance(run, (list, tuple)) else np.asanyarray(run)).reshape(-1, 1)
        if any(hasattr(value, "__len__") and not isinstance(value, str) for value in values):
            raise InvalidInputError(
                f"run {name!r} is a list of lists or sets; pass a vector with the label of each object, such "
                "as clustering.membership, or pandas.Series with the objects as its index."
            )
    source = open_source(select(run, **options), "labels", are_objects=True)
    if source.n_columns != 1:
        columns = f": {', '.join(source.names[:4])}" if source.names else ""
        raise InvalidInputError(
            f"run {name!r}, {source.where}, has {source.n_columns} columns{columns}; name the one with its "
            "labels by columns= (--columns) and that of the ids by id= (--id)."
        )
    return source


def _objects_of(sources: Sequence[Source], names: Sequence[str]) -> Ids | None:
    """Return the ids of all objects, each once, in the order of the runs; None without ids."""
    import pyarrow as pa

    given = [source.ids for source in sources if source.ids is not None]
    if not given:
        return None
    if len(given) < len(sources):
        name = next(name for source, name in zip(sources, names, strict=True) if source.ids is None)
        raise InvalidInputError(
            f"run {name!r} has labels without ids, beside runs with the ids of their objects; give all of "
            "them ids, or pass ids= with those of all objects in the order of the labels."
        )
    for ids, name in zip(given, names, strict=True):
        refuse_other_type(given[0], ids, f"run {name!r}")
    if all(ids.facts.digest == given[0].facts.digest for ids in given):
        return given[0]
    values = pa.concat_arrays([block for ids in given for block in ids.blocks()]).unique()
    return HeldIds.of(values, given[0].facts)


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
    chosen = select(table, columns=[object, partition, label], missing=missing, header=header)
    source = open_source(chosen, "labels", are_objects=True, with_ids=False)
    names = source.names or ["0", "1", "2"]
    kinds = [type_in_text(source.selected([c]), names[c]) for c in range(2)]
    held: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    n_rows = 0
    for rows in source.batches(BLOCK_ROWS):
        *named, votes = columns_of(rows)
        for c, column in enumerate(named):
            held[c].append(canonical(column, names[c], source.where, first=n_rows, dtype=kinds[c]))
            kinds[c] = TEXT if held[c][-1].type == "large_string" else str(held[c][-1].type)
        held[2].append(votes if isinstance(votes, np.ndarray) else plain_arrow(votes))
        n_rows += len(votes)
        needed = 100 * (source.n_rows or n_rows)  # of a vote while it is read and sorted, with a margin
        if needed > budget:
            raise MemoryBudgetError(
                f"{source.where} has {source.n_rows or n_rows:,} rows or more, which take "
                f"{format_size(needed)} while they are sorted, over {format_size(budget)}; raise memory to "
                f"{enough_for(needed)}.",
                needed=needed,
                budget=budget,
            )
    if not n_rows:
        raise InvalidInputError(f"{source.where} has no rows; give at least one label.")
    (objects, object_of), (partitions, partition_of) = map(_distinct, held[:2])
    titles = [str(value) for value in partitions.to_pylist()]
    check_distinct(titles)
    encodings, label_of = _encoded(source, held[2], partition_of, titles)
    order = np.lexsort((label_of, partition_of, object_of))
    order = order[label_of[order] != MISSING]
    of_object, of_partition, of_label = object_of[order], partition_of[order], label_of[order]
    is_same = np.append(False, (of_object[1:] == of_object[:-1]) & (of_partition[1:] == of_partition[:-1]))
    if (at := np.flatnonzero(is_same & (of_label != np.roll(of_label, 1)))).size:
        u, values = int(of_partition[at[0]]), encodings[int(of_partition[at[0]])].values.tolist()
        one, other = (values[code] for code in of_label[at[0] - 1 : at[0] + 1].tolist())
        raise InvalidInputError(
            f"{names[0]} {objects[int(of_object[at[0]])].as_py()!r} has the labels {one!r} and "
            f"{other!r} of {names[1]} {titles[u]!r}; keep one of them."
        )
    of_object, of_partition, of_label = of_object[~is_same], of_partition[~is_same], of_label[~is_same]
    n_clusters, _, categories = counts_of(encodings)
    n_labeled = np.bincount(of_partition, minlength=len(titles))
    chunk_rows = default_chunk_rows(len(objects), len(titles))
    kind = "string" if kinds[0] == TEXT else str(kinds[0])
    ids = HeldIds.of(objects, IdFacts(names[0], kind, False, str(kinds[0]), 0, ""))
    head = Header(len(objects), titles, n_clusters, n_labeled, chunk_rows, {}, ids=ids)

    def blocks() -> Iterator[np.ndarray]:
        for block in row_blocks(len(objects), min(chunk_rows, max(budget // (4 * len(titles)), 1))):
            low, high = np.searchsorted(of_object, (block.start, block.stop))
            labels = np.full((block.n_rows, len(titles)), MISSING, head.dtype)
            labels[of_object[low:high] - block.start, of_partition[low:high]] = of_label[low:high]
            yield labels

    return Content(head, categories, blocks())


def _distinct(parts: Sequence[Any]) -> tuple[Any, np.ndarray]:
    """Return the different values of a column of ids, ascending, and which of them each row has."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = pa.concat_arrays(parts)
    values = column.unique()
    values = values.take(pc.array_sort_indices(values))
    return values, pc.index_in(column, value_set=values).to_numpy()


def _encoded(
    source: Source, parts: Sequence[Any], partition_of: np.ndarray, names: Sequence[str]
) -> tuple[list[Any], np.ndarray]:
    """Return the encoding of each partition, by the labels that it gives, and the codes of all rows."""
    import pyarrow as pa

    is_array = isinstance(parts[0], np.ndarray)
    raw = np.concatenate(parts) if is_array else pa.concat_arrays(parts)
    encodings, codes = [], np.empty(len(raw), np.int32)
    order = np.argsort(partition_of, kind="stable")
    ends = np.cumsum(np.bincount(partition_of, minlength=len(names)))
    for name, rows in zip(names, np.split(order, ends[:-1]), strict=True):
        part = raw[rows] if is_array else raw.take(pa.array(rows))
        builder = Builder(name, is_text=source.is_text, rule=source.rule_of(2))
        builder.add(part)
        encodings.append(builder.build())
        codes[rows] = encodings[-1].encode(part)
    return encodings, codes
