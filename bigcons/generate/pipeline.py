"""The pipeline of all ensembles of features, from these to stored partitions.

All objects are read twice, however many partitions there are: to measure the features and draw a pool of
objects, and to label. In between, sets of centers are trained one by one on samples of the pool.

Repeating an interrupted call resumes it, and repeating a finished one returns its result, as of every solve:
sets of centers and blocks of labels are kept, each sealed as a snapshot, in the folder ``<out>.partial``.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from reprlib import repr as short
from typing import Any, TypedDict

import numpy as np

from bigcons.disk.checkpoint import Snapshots, differences
from bigcons.disk.commit import refuse_existing, refuse_other, stored_kind
from bigcons.errors import CorruptStoreError, InvalidInputError, MemoryBudgetError
from bigcons.generate.scheme import BY_LANDMARKS, Scheme, check_range
from bigcons.generate.training import (
    AT_ONCE,
    N_NEAREST,
    choose_pool_rows,
    choose_sample_rows,
    make_pool,
    measure,
    n_landmarks,
    reach_of,
    train_centers,
)
from bigcons.io.columns import Column, Columns
from bigcons.io.factorize import default_chunk_rows, label_dtype
from bigcons.io.features import Features, open_features
from bigcons.memory import (
    BLOCK_ROWS,
    PROCESS_BYTES,
    Block,
    DataBudget,
    enough_for,
    format_size,
    parse_size,
)
from bigcons.run.engine import Engine, beside_processes, open_engine
from bigcons.run.passes import open_workspace
from bigcons.run.results import Output, clear_finished, logging_how_to_resume, seed_of_run
from bigcons.seeding import SeedLike, resolve_seed
from bigcons.store.ensemble import Ensemble, ensemble_of_content
from bigcons.store.ensemble_store import Content, Header
from bigcons.store.generator import Generator
from bigcons.store.parquet import refuse_wide
from bigcons.validation import check_choice, check_flag, check_int
from bigcons.version import __version__

_log = logging.getLogger(__name__)


class GeneratorOptions(TypedDict, total=False):
    """Parameters of every ensemble of features; see `bigcons.generate.kmeans`."""

    id: Column | None
    columns: Columns | None
    drop: Columns | None
    log: Columns | None
    out: str | os.PathLike[str] | None
    standardize: bool
    train: int | str
    memory: int | float | str | None
    random_state: SeedLike
    overwrite: bool
    client: object


def make_partitions(
    features: object,
    scheme: Scheme,
    *,
    id: Column | None = None,
    columns: Columns | None = None,
    drop: Columns | None = None,
    log: Columns | None = None,
    out: str | os.PathLike[str] | None = None,
    standardize: bool = True,
    train: int | str = "auto",
    memory: int | float | str | None = None,
    random_state: SeedLike = None,
    overwrite: bool = False,
    client: object = None,
) -> Ensemble:
    """Return the ensemble of ``scheme``; parameters as in `bigcons.generate.kmeans`."""
    from sklearn import __version__ as sklearn_version

    check_flag("standardize", standardize)
    if isinstance(train, str):
        check_choice("train", train, ("auto", "all"))
    else:
        train = check_int("train", train)
    if memory is not None:
        parse_size(memory)
    seed = resolve_seed(random_state)
    asked = {"generator": scheme.name, "standardize": standardize, "train": train, **scheme.parameters()}
    if scheme.n_clusters not in (None, "split"):
        asked["n_clusters"] = check_range(scheme.n_clusters)
    asked["seed"] = None if random_state is None else seed
    finished = None if out is None else find_finished(out, asked, overwrite=overwrite)  # before any work
    if random_state is None and out is not None and not overwrite:
        kept_seed = seed_of_run(out, finished)
        seed = seed if kept_seed is None else kept_seed
    with ExitStack() as stack:
        if out is not None:
            stack.enter_context(logging_how_to_resume(out, overwrite))
        engine = stack.enter_context(open_engine(client))
        _log.info("%s runs on the engine %r (workers: %d)", scheme.name, engine.name, engine.n_workers)
        data = open_features(features, id=id, columns=columns, drop=drop, log=log)
        _log.info("%s has %s", data.where, data.encoding.summary())
        scheme = replace(scheme, seed=seed).of_objects(data.n_objects, data.chunk_rows)
        most = scheme.ranges[0][1]
        sample_rows = int(scheme.subset(0).size(data.n_objects))  # no other sees more
        if train == "auto":
            sample_rows = min(sample_rows, choose_sample_rows(most, data.n_features))
        elif train != "all":
            sample_rows = min(sample_rows, check_int("train", train, at_least=most))
        budget = beside_processes(memory, PROCESS_BYTES * engine.n_processes)
        shape = data, scheme, sample_rows, budget, engine
        pool_rows, n_tasks, block_rows = make_plan(*shape, in_memory=out is None)
        subset = scheme.pool(pool_rows)
        scaling, rows = measure(data, subset if finished is None else None, standardize=standardize)
        encoding = data.encoding.with_scaling(scaling)
        made_with = {
            **asked,
            **({} if data.ids is None else {"ids": data.ids.facts.in_words}),
            "n_clusters": scheme.ranges[0],
            "sample_rows": sample_rows,
            "n_objects": data.n_objects,
            "features": encoding.column_names(),
            "columns": [code.name for code in encoding.columns],
            "read": data.options,
            "features_checksum": scaling.checksum,
            "bigcons": __version__,
            "scikit_learn": sklearn_version,
            "seed": seed,
        }
        run_facts = {name: value for name, value in made_with.items() if name not in ("features", "read")}
        output = None if out is None else Output(out, overwrite, not overwrite, run_facts)
        if finished is not None and output is not None:
            refuse_difference(finished, made_with)
            clear_finished(output)
            return finished
        # gaps, and what varies of categories, were not known before all was read
        if len(scaling.gaps) or not data.encoding.is_plain:
            _, n_tasks, block_rows = make_plan(*shape, len(scaling.gaps), in_memory=out is None)
        scheme, pool = make_pool(scheme, subset, rows, encoding)
        del rows
        run = None if output is None else stack.enter_context(open_workspace(output, engine, 0))[1]
        if run is not None:
            run.load()  # refuses a run of other parameters

        def map_sets(task: Callable[[Any], np.ndarray], sets: list[tuple[int, ...]]) -> Iterator[np.ndarray]:
            at_once = max(len(sets) if engine.n_workers <= n_tasks else n_tasks, 1)
            for first in range(0, len(sets), at_once):
                some = sets[first : first + at_once]
                yield from map_kept(
                    run, engine, task, some, [f"centers-{partitions[0]}" for partitions in some]
                )

        centers = train_centers(scheme, pool, sample_rows, map_sets)
        reach = reach_of(centers, pool)
        del pool
        names = [f"p{u}" for u in range(scheme.n_partitions)]
        subsets = [scheme.subset(partitions[0]) for partitions in scheme.sets()]

        def label(item: tuple[Block, Any]) -> np.ndarray:
            """Return the labels (rows, n_partitions) of a block of features, -1 for what is not seen.

            The objects that trained a center get it again, so every cluster of every partition occurs.
            """
            block, values = item
            is_seen = np.array([subset.mask(block.start, block.stop) for subset in subsets])
            return centers.label(scaling.apply(values), is_seen)[0]

        header = Header(
            data.n_objects,
            names,
            centers.n_clusters,
            np.array([scheme.subset(u).size(data.n_objects) for u in range(len(names))], np.int64),
            default_chunk_rows(data.n_objects, len(names)),
            {**made_with, "source": data.where},
            ids=data.ids,
            generator=Generator(encoding, names, centers, reach),
        )
        parts = [f"labels-{block.start}-{block.stop}" for block in data.blocks(block_rows)]
        blocks = data.iterate(block_rows, gaps=True, sparse=True)
        content = Content(header, [None] * len(names), map_kept(run, engine, label, blocks, parts))
        return ensemble_of_content(content, out, overwrite=overwrite)


def find_finished(
    out: str | os.PathLike[str], asked: Mapping[str, Any], *, overwrite: bool
) -> Ensemble | None:
    """Return the ensemble of a finished call at ``out``; None if ``out`` is free or may be overwritten.

    Raises StoreExistsError for anything else at ``out``; for an ensemble with other parameters than those
    ``asked`` for, the error names the difference. A parameter that is None matches any value.
    """
    if not overwrite and stored_kind(out) == "ensemble":
        finished = Ensemble.open(out)
        if "generator" in finished.provenance:
            refuse_difference(finished, asked)
            return finished
    refuse_existing(out, overwrite, "ensemble")
    refuse_wide(out, int(asked["n_partitions"]))
    return None


def refuse_difference(finished: Ensemble, wanted: Mapping[str, Any]) -> None:
    """Raise StoreExistsError if an ensemble was made with other parameters or of other features.

    The options of reading matter only where other features come of them, and are then named in their place.
    """
    made_with = {**finished.provenance, "n_partitions": finished.n_partitions}
    wanted = {name: value for name, value in json.loads(json.dumps(wanted)).items() if value is not None}
    for entries in (made_with, wanted):  # of tuples the difference shows both
        entries |= {name: tuple(entries[name]) for name in ("n_clusters", "alpha_range") if name in entries}
    features = [name for name in ("ids", "columns", "features_checksum") if name in wanted]
    others = [name for name in features if made_with.get(name) != wanted[name]]
    was, read = ({**(entries.get("read") or {})} for entries in (made_with, wanted))
    names = {**was, **read}
    options = differences({name: was.get(name) for name in names}, {name: read.get(name) for name in names})
    left_out = {"bigcons", "scikit_learn", "features", "read", *(others if options else others[1:])}
    rest = differences(made_with, {name: wanted[name] for name in wanted if name not in left_out}, short)
    refuse_other(finished.path or "", "; ".join(filter(None, [options if others else "", rest])))


def map_kept(
    run: Snapshots | None,
    engine: Engine,
    task: Callable[[Any], np.ndarray],
    items: Iterable[Any],
    names: list[str],
) -> Iterator[Any]:
    """Yield ``task(item)`` for every item in order, and keep it by name; what a run has is not made again.

    Each result is sealed as a snapshot of its own.
    """
    parts: dict[str, Snapshots] = {}
    if run is not None:
        parts = {n: Snapshots(run.folder / n, {**run.fingerprint, "name": n}) for n in names}
    kept = {name for name, part in parts.items() if load(part) is not None}
    if kept:
        _log.warning("Resuming: %d of %d parts such as %s were finished.", len(kept), len(names), names[0])
    left = (item for item, name in zip(items, names, strict=True) if name not in kept)
    with closing(engine.map(task, left)) as made:
        for name in names:
            if name in kept:
                yield load(parts[name])
                continue
            result = next(made)
            if run is not None:
                if not run.exists():
                    run.save({}, {})
                run.check_lock()
                parts[name].save({"values": result}, {})
            yield result


def load(part: Snapshots) -> Any:
    """Return the result in a part; None if there is none, or it is damaged, or of another place or run."""
    try:
        snapshot = part.load()
    except (CorruptStoreError, InvalidInputError) as error:
        _log.warning("%s is made again: %s", part.folder, error)
        return None
    return None if snapshot is None else snapshot.arrays["values"]


def make_plan(
    data: Features,
    scheme: Scheme,
    sample_rows: int,
    budget: DataBudget,
    engine: Engine,
    n_gaps: int = 0,
    *,
    in_memory: bool,
) -> tuple[int, int, int]:
    """Return the rows of the pool, the sets that may be trained, and the rows that may be labeled, at a time.

    The first is independent of the budget, and labels are of all. Raises MemoryBudgetError.

    All columns count, because it is not known yet which vary, and ``n_gaps`` more that tell what is missing.
    Of sparse rows the values that are stored do. Held are the pool, once more while it is scaled, and the
    centers; besides, either a block of features is measured, a set of centers trained, or blocks are labeled.
    """
    width, n_features = data.row_values + n_gaps, data.n_features + n_gaps
    read_values, value_bytes = min(data.chunk_rows, data.n_objects) * width, data.dtype.itemsize
    pool_rows = choose_pool_rows(sample_rows, data.n_objects, scheme.share)
    pool, unscaled = pool_rows * (4 * width + 8), pool_rows * width * value_bytes
    sets, k, p = scheme.sets(), scheme.ranges[0][1], n_landmarks(sample_rows, n_features)
    n_centers = sum(p if scheme.is_by_landmarks(partitions[0]) else k for partitions in sets)
    centers = 8 * n_centers * (n_features + 1) + 8 * p * scheme.n_partitions
    measuring = 48 * read_values + unscaled + pool
    # the points, as the partition sees them, a copy to measure their variance, work per row and cluster
    task = sample_rows * (16 * width + 64) + k * (32 * n_features + 2048)
    if scheme.name in BY_LANDMARKS:  # the points, the graph twice, distances, and the graph of landmarks
        graph = sample_rows * (8 * width + 80 * N_NEAREST) + 32 * AT_ONCE + 8 * p * (6 * p + 4 * n_features)
        task = max(task, graph)
    copies = 1 if engine.shares_memory else max(engine.n_processes, 2)  # a worker may be a thread here
    held = pool * copies + centers
    most = max(k, scheme.ranges[1][1])
    label_bytes = scheme.n_partitions * label_dtype([most]).itemsize
    # a block in transit is held as read, centered, and as float32; labels three times, and what is nearest
    row_bytes = (value_bytes + 12) * width + 3 * label_bytes + 3 * len(sets)
    row_bytes += 8 * n_centers if data.is_sparse else 0  # its products with all centers
    row_bytes *= engine.in_flight + 1
    stored_bytes = label_bytes + (0 if data.ids is None else math.ceil(data.ids.row_bytes))
    kept_rows = data.n_objects if in_memory else 4 * default_chunk_rows(data.n_objects, scheme.n_partitions)
    fixed = 24 * read_values + (2 * centers + (1 << 20)) * engine.n_workers + stored_bytes * kept_rows
    block_rows = min(BLOCK_ROWS, data.sparse_rows if data.is_sparse else data.chunk_rows)
    needed = data.held_bytes + max(measuring, held + task, fixed + scheme.segment_rows * row_bytes)
    if budget.n_bytes < needed:
        total = needed + budget.processes
        raise MemoryBudgetError(
            f"generate.{scheme.name} needs {format_size(total)} for its processes, samples of "
            f"{sample_rows:,} objects and blocks of labels, over memory="
            f"{format_size(budget.n_bytes + budget.processes)}; raise it to {enough_for(total)}.",
            needed=total,
            budget=budget.n_bytes + budget.processes,
        )
    left = budget.n_bytes - data.held_bytes
    while fixed + block_rows * row_bytes > left and block_rows > scheme.segment_rows:
        block_rows //= 2
    of_thread = max(task, block_rows * row_bytes // engine.in_flight)
    engine.check_limits(scheme.name, PROCESS_BYTES + pool + centers, of_thread)
    n_tasks = int((left - held) // task)
    _log.info(
        f"{scheme.name} of {data.where}: partitions trained on {sample_rows} of {pool_rows} objects "
        f"({format_size(task)} each, {n_tasks} at a time), labeled {block_rows} objects at a time"
    )
    return pool_rows, n_tasks, block_rows
