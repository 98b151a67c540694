"""The pipeline of all ensembles of features, from these to stored partitions.

All objects are read twice, however many partitions there are: to measure the features and draw a pool of
objects, and to label. In between, sets of centers are trained one by one on samples of the pool.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import numpy as np

from bigcons.errors import MemoryBudgetError, SuspiciousLabelsWarning, warn_user
from bigcons.generate.scaling import measure
from bigcons.generate.scheme import (
    Scheme,
    check_range,
    smooth_columns,
)
from bigcons.generate.scratch import (
    Scratch,
    check_same,
    clear_finished,
    find_finished,
    kept_seed,
    open_scratch,
)
from bigcons.generate.training import (
    AT_ONCE,
    N_NEAREST,
    Pool,
    TrainTask,
    centers_of,
    choose_pool_rows,
    choose_sample_rows,
    n_landmarks,
    quiet_scikit_learn,
)
from bigcons.io.columns import Column, Columns
from bigcons.io.factorize import default_chunk_rows, label_dtype
from bigcons.io.features import Features, Scaling, open_features
from bigcons.memory import (
    BLOCK_ROWS,
    PROCESS_BYTES,
    Block,
    DataBudget,
    enough_for,
    format_size,
    parse_size,
    row_blocks,
)
from bigcons.progress import progress
from bigcons.run.engine import Engine, beside_processes, open_engine
from bigcons.seeding import SEGMENT_ROWS, SeedLike, resolve_seed
from bigcons.store.generator import Centers
from bigcons.store.generator import Generator as StoredGenerator
from bigcons.validation import check_choice, check_flag, check_int
from bigcons.version import __version__

if TYPE_CHECKING:
    from bigcons.store.ensemble import Ensemble

Item = TypeVar("Item")
Result = TypeVar("Result")

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

    from bigcons.store.ensemble import ensemble_of_content  # imports zarr
    from bigcons.store.ensemble_store import Content, Header

    check_scheme(scheme)
    check_flag("standardize", standardize)
    check_flag("overwrite", overwrite)
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
    finished = find_finished(out, asked, overwrite=overwrite)  # before any work
    if random_state is None and not overwrite and (kept := kept_seed(out)) is not None:
        seed = kept
    with open_engine(client) as engine:
        _log.info("%s runs on the engine %r (workers: %d)", scheme.name, engine.name, engine.n_workers)
        data = open_features(features, id=id, columns=columns, drop=drop, log=log)
        _log.info("%s has %s", data.where, data.encoding.summary())
        scheme = replace(scheme, seed=seed).of_objects(data.n_objects, min(SEGMENT_ROWS, data.chunk_rows))
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
        }
        scheme = replace(scheme, feature_of_column=tuple(encoding.columns_of_numbers()))
        scheme.check_features(scaling.width)
        if finished is not None:
            check_same(finished, made_with)
            clear_finished(finished)
            return finished
        made_with["seed"] = seed
        # gaps, and what varies of categories, were not known before all was read
        if len(scaling.gaps) or not data.encoding.is_plain:
            _, n_tasks, block_rows = make_plan(*shape, len(scaling.gaps), in_memory=out is None)
        pool = Pool(subset.rows(0, data.n_objects), _scaled(rows, scaling, data.chunk_rows))
        del rows
        if scheme.by_landmarks:
            scheme = replace(scheme, smooth=smooth_columns(pool.points))
        with open_scratch(out, made_with, overwrite=overwrite) as scratch:
            trained = train_sets(scheme, pool, sample_rows, n_tasks, engine, scratch)
            task = LabelTask(scheme, scaling, centers_of(scheme, trained, scaling.width))
            reach = _reach(task.centers, pool)
            del pool, trained
            names = [f"p{u}" for u in range(scheme.n_partitions)]
            header = Header(
                data.n_objects,
                names,
                task.centers.n_clusters,
                np.array([scheme.subset(u).size(data.n_objects) for u in range(len(names))], np.int64),
                default_chunk_rows(data.n_objects, len(names)),
                {**made_with, "source": data.where},
                ids=data.ids,
                generator=StoredGenerator(encoding, names, task.centers, reach),
            )
            blocks = _label_blocks(task, data, block_rows, engine, scratch)
            content = Content(header, [None] * len(names), blocks)
            return ensemble_of_content(content, out, overwrite=overwrite)


def check_scheme(scheme: Scheme) -> None:
    """Refuse parameters that callers give; warn if all partitions have one cluster."""
    for name in ("n_partitions", "n_init"):
        check_int(name, getattr(scheme, name))
    if scheme.n_clusters not in (None, "split") and check_range(scheme.n_clusters)[1] == 1:
        warn_user(
            "partitions of a single cluster say nothing; use n_clusters of at least 2.",
            SuspiciousLabelsWarning,
        )


def _scaled(rows: Any, scaling: Scaling, chunk_rows: int) -> Any:
    """Return scaled rows, float32, in whose place no more than a chunk is held twice."""
    if not isinstance(rows, np.ndarray):
        return scaling.apply(rows)
    points = np.empty((len(rows), scaling.width), np.float32)
    for block in row_blocks(len(rows), chunk_rows):
        points[block.start : block.stop] = scaling.apply(rows[block.start : block.stop])
    return points


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
    n_centers = sum(k if scheme.landmarks_before(members[0]) is None else p for members in sets)
    centers = 8 * n_centers * (n_features + 1) + 8 * p * scheme.n_partitions
    measuring = 48 * read_values + unscaled + pool
    # the points, as the partition sees them, a copy to measure their variance, work per row and cluster
    task = sample_rows * (16 * width + 64) + k * (32 * n_features + 2048)
    if scheme.by_landmarks:  # the points, the graph twice, distances, and the graph of landmarks
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


def train_sets(
    scheme: Scheme, pool: Pool, sample_rows: int, n_tasks: int, engine: Engine, scratch: Scratch | None
) -> list[np.ndarray]:
    """Return the sets of centers; those in ``scratch`` are not trained again."""
    sets = scheme.sets()
    trained: dict[tuple[int, ...], np.ndarray] = {}
    for partitions in sets:
        kept = None if scratch is None else scratch.load(f"centers-{partitions[0]:06d}")
        if kept is not None:
            trained[partitions] = kept
    n_finished = sum(map(len, trained))
    if n_finished:
        _log.warning("Resuming: %d of %d partitions were trained.", n_finished, scheme.n_partitions)
    left = [partitions for partitions in sets if partitions not in trained]
    with quiet_scikit_learn(), progress("train partitions", scheme.n_partitions, "partitions") as listener:
        listener.advance(n_finished)
        made = map_within(engine, n_tasks, TrainTask(scheme, pool, sample_rows), left)
        for partitions, centers in zip(left, made, strict=True):
            if scratch is not None:
                scratch.save(f"centers-{partitions[0]:06d}", centers)
            trained[partitions] = centers
            listener.advance(len(partitions))
    return [trained[partitions] for partitions in sets]


def map_within(
    engine: Engine, n_tasks: int, task: Callable[[Item], Result], items: Sequence[Item]
) -> Iterator[Result]:
    """Yield ``task(item)`` for every item in order, at most ``n_tasks`` of them at work at a time."""
    at_once = len(items) if engine.n_workers <= n_tasks else n_tasks
    for first in range(0, len(items), max(at_once, 1)):
        yield from engine.map(task, items[first : first + at_once])


@dataclass(frozen=True)
class LabelTask:
    """Labels a block of objects in all partitions.

    The objects that trained a center are labeled with it again, so every cluster of every partition occurs.
    """

    scheme: Scheme
    scaling: Scaling
    centers: Centers

    def __call__(self, item: tuple[Block, Any]) -> np.ndarray:
        """Return the labels ``(rows, n_partitions)`` of a block of features, -1 for what is not seen."""
        block, values = item
        return self.centers.label(self.scaling.apply(values), self.is_seen(block))[0]

    def is_seen(self, block: Block) -> np.ndarray:
        """Return what each set sees of a block of objects, ``(n_sets, rows)`` bool."""
        sets = self.scheme.sets()
        return np.array([self.scheme.subset(one[0]).mask(block.start, block.stop) for one in sets])


def _reach(centers: Centers, pool: Pool) -> float:
    """Return the distance from the centers within which 99 % of some objects of the pool are."""
    n_rows, width = pool.points.shape
    n_chosen = min(n_rows, 10_000, max((1 << 22) // width, 1))
    points = pool.points[np.arange(n_chosen) * n_rows // n_chosen]
    nearest = centers.label(points, np.ones((len(centers.offsets) - 1, n_chosen), bool))[1]
    return float(np.quantile(centers.distances(points, nearest), 0.99))


def _label_blocks(
    task: LabelTask, data: Features, block_rows: int, engine: Engine, scratch: Scratch | None
) -> Generator[np.ndarray, None, None]:
    """Yield the labels of all blocks in order; those in ``scratch`` are not computed again."""
    blocks = data.blocks(block_rows)
    is_done = [scratch is not None and scratch.load(_name_of(block)) is not None for block in blocks]
    if any(is_done):
        _log.warning("Resuming: %d of %d blocks of labels were finished.", sum(is_done), len(blocks))
    first = is_done.index(False) if not all(is_done) else len(blocks)
    stream = data.iterate(block_rows, first, gaps=True, sparse=True) if first < len(blocks) else iter(())
    made = engine.map(task, (item for item in stream if not is_done[item[0].index]))
    try:
        for block in blocks:
            labels = scratch.load(_name_of(block)) if scratch is not None and is_done[block.index] else None
            if labels is None:
                labels = next(made)
                if scratch is not None:
                    scratch.save(_name_of(block), labels)
            yield labels
    finally:
        made.close()


def _name_of(block: Block) -> str:
    return f"labels-{block.start}-{block.stop}"
