"""The pipeline shared by all ensembles of features, from these to stored partitions.

`make_partitions` checks the call and measures the features, of which it draws a pool; sets of centers are
trained one by one on samples of the pool, and all partitions are labeled together, in one pass.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Generator as Yields
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, TypeVar

import numpy as np

from bigcons.disk.places import place_of
from bigcons.errors import InvalidInputError, SuspiciousLabelsWarning, warn_user
from bigcons.generate.planning import SamplingPlan, budget_of, make_sampling_plan
from bigcons.generate.sampling import PIECES_AT_ONCE, Scheme
from bigcons.generate.scaling import measure_and_sample
from bigcons.generate.scratch import (
    Scratch,
    find_finished,
    kept_seed,
    local_output,
    open_scratch,
    take_finished,
)
from bigcons.generate.training import (
    LabelTask,
    Pool,
    Seen,
    Settings,
    TrainTask,
    centers_of,
    choose_sample_rows,
    quiet_scikit_learn,
    sets_of,
)
from bigcons.io.select import Column, Columns
from bigcons.memory import DataBudget, parse_size, row_blocks
from bigcons.progress import progress
from bigcons.run.engine import Engine, ThreadsEngine, open_engine
from bigcons.seeding import SeedLike, resolve_seed
from bigcons.store.encoding import Scaling
from bigcons.store.features import Features, open_features
from bigcons.store.generator import FAR, Generator
from bigcons.validation import check_choice, check_flag, check_int
from bigcons.version import __version__

if TYPE_CHECKING:
    from bigcons.store.ensemble import Ensemble

Item = TypeVar("Item")
Result = TypeVar("Result")

ClusterCount = int | tuple[int, int] | range | str
"""An integer, an inclusive range (low, high), a range of Python, or "split"."""

SPLIT = "split"

FAR_ROWS = 10_000
"""Rows by whose distances to the centers it is told which new rows are far: 100 of them are."""

# Cost of k-means of some objects, in units of labeling them once.
FITTING = 30.0

TRAINING = "train partitions"

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


class KMeansOptions(GeneratorOptions, total=False):
    """Those of ensembles by k-means alone, too."""

    n_init: int


def make_partitions(
    features: object,
    scheme: Scheme,
    *,
    n_partitions: int,
    n_clusters: ClusterCount | None,
    id: Column | None = None,
    columns: Columns | None = None,
    drop: Columns | None = None,
    log: Columns | None = None,
    out: str | os.PathLike[str] | None = None,
    standardize: bool = True,
    train: int | str = "auto",
    n_init: int = 1,
    memory: int | float | str | None = None,
    random_state: SeedLike = None,
    overwrite: bool = False,
    client: object = None,
) -> Ensemble:
    """Return the ensemble of ``scheme``; parameters as in `bigcons.generate.kmeans`.

    ``n_clusters``: None for the ranges of `Settings`, as far as the objects reach.
    """
    if isinstance(n_clusters, str) and n_clusters != SPLIT:
        raise InvalidInputError(
            f"n_clusters={n_clusters!r} is unknown; use an integer, (low, high) or {SPLIT!r}."
        )
    clusters = None if n_clusters in (None, SPLIT) else check_range(n_clusters)
    settings = Settings() if clusters is None else Settings(clusters, clusters)
    settings = settings._replace(n_init=check_int("n_init", n_init))
    check_int("n_partitions", n_partitions)
    check_flag("standardize", standardize)
    if isinstance(train, str):
        check_choice("train", train, ("auto", "all"))
    else:
        train = check_int("train", train)
    seed = resolve_seed(random_state)
    if memory is not None:
        parse_size(memory)
    asked = {
        "n_partitions": n_partitions,
        "n_init": n_init,
        "standardize": standardize,
        "generator": scheme.name,
    }
    asked |= scheme.parameters() | ({} if clusters is None else {"n_clusters": clusters})
    asked["train"] = train
    asked["seed"] = None if random_state is None else seed
    finished = find_finished(out, asked, overwrite=overwrite)  # before any work
    with open_logged_engine(client, scheme.name) as engine:
        data = open_features(features, id=id, columns=columns, drop=drop, log=log)
        _log.info("%s has %s", data.where, data.encoding.summary())
        n_seen = scheme.objects.least(data.n_objects)
        if clusters is None:
            settings = settings_for(n_seen, n_clusters, settings)
        if n_seen < settings.n_clusters[1]:
            given = ", ".join(f"{name}={value:g}" for name, value in asdict(scheme.objects).items())
            raise InvalidInputError(
                f"{given} of n_objects={data.n_objects} is {n_seen} objects, fewer than "
                f"n_clusters={settings.n_clusters[1]}; {scheme.objects.remedy} or use fewer clusters."
            )
        most = scheme.objects.most(data.n_objects)
        sample_rows = most
        if train == "auto":
            sample_rows = min(most, choose_sample_rows(settings.n_clusters[1], data.n_features))
        elif train != "all":
            sample_rows = min(most, check_int("train", train, at_least=settings.n_clusters[1]))
        call = Call(
            data,
            scheme,
            settings,
            n_partitions=n_partitions,
            standardize=standardize,
            train=train,
            sample_rows=sample_rows,
            budget=budget_of(memory, engine),
            seed=seed,
            seed_is_given=random_state is not None,
            out=out,
            overwrite=overwrite,
            finished=finished,
            engine=engine,
        )
        return _make(call)


class Call(NamedTuple):
    """A checked call of a generator."""

    data: Features
    scheme: Scheme
    settings: Settings
    n_partitions: int
    standardize: bool
    train: int | str
    sample_rows: int
    budget: DataBudget
    seed: int
    seed_is_given: bool
    out: str | os.PathLike[str] | None
    overwrite: bool
    finished: Ensemble | None
    engine: Engine

    def made_with(self, scaling: Scaling) -> dict[str, Any]:
        """Return everything but the seed that determines the labels; it must match to resume."""
        from sklearn import __version__ as sklearn_version

        ids = self.data.ids
        return {
            "generator": self.scheme.name,
            "n_partitions": self.n_partitions,  # of every block of labels
            **({} if ids is None else {"ids": ids.facts.in_words}),
            "n_clusters": self.settings.n_clusters,
            "n_init": self.settings.n_init,
            **self.scheme.parameters(),
            "train": self.train,
            "sample_rows": self.sample_rows,
            "standardize": self.standardize,
            "n_objects": self.data.n_objects,
            "features": self.data.encoding.with_scaling(scaling).column_names(),
            "columns": [code.name for code in self.data.encoding.columns],
            "read": self.data.options,
            "features_checksum": scaling.checksum,
            "bigcons": __version__,
            "scikit_learn": sklearn_version,
        }

    def generator(self, scaling: Scaling, task: LabelTask, pool: Pool) -> Generator:
        """Return what labels new rows: the centers, and how far from them some of the objects are.

        As new rows are, these are compared with the centers of sets that have not seen them, if there are.
        """
        chosen = _evenly(len(pool.rows), scaling.width)
        rows, distances = pool.rows[chosen], []
        for block in row_blocks(self.data.n_objects, PIECES_AT_ONCE * task.seen.segment_rows):
            first, last = np.searchsorted(rows, (block.start, block.stop)).tolist()
            if first == last:
                continue
            is_new = ~task.is_seen(block)
            for part in row_blocks(last - first, self.data.chunk_rows):
                here = slice(first + part.start, first + part.stop)
                points = pool.points[chosen[here]]
                is_new_here = is_new[:, rows[here] - block.start]
                nearest = task.centers.label(points, is_new_here | ~is_new_here.any(axis=0))[1]
                distances.append(task.centers.distances(points, nearest))
        names = [f"p{u}" for u in range(self.n_partitions)]
        reach = float(np.quantile(np.concatenate(distances), FAR))
        return Generator(self.data.encoding.with_scaling(scaling), names, task.centers, reach)

    def of_columns(self, scaling: Scaling) -> Call:
        """Return the call, once it is known which numbers the columns of the features become."""
        columns = self.data.encoding.with_scaling(scaling).columns_of_numbers()
        return self._replace(scheme=self.scheme.of_columns(columns))

    def seen(self, segment_rows: int) -> Seen:
        """Return what the partitions see of the objects."""
        return Seen(self.scheme, self.data.n_objects, segment_rows, self.seed)

    @contextmanager
    def scratch(self, made_with: dict[str, Any]) -> Iterator[Scratch]:
        """Yield the folder in which the call keeps what is finished."""
        assert self.out is not None  # noqa: S101 - results in memory need none
        with (
            local_output(place_of(self.out), self.overwrite) as path,
            open_scratch(
                path, made_with, seed=self.seed, seed_is_given=self.seed_is_given, resume=not self.overwrite
            ) as scratch,
        ):
            yield scratch


def _make(call: Call) -> Ensemble:
    """Return the ensemble: measure, draw a pool, train the sets of centers, label all objects."""
    from bigcons.store.ensemble import ensemble_of_content  # imports zarr
    from bigcons.store.ensemble_store import Content, Header

    data = call.data
    if not call.overwrite and not call.seed_is_given and (kept := kept_seed(call.out)) is not None:
        call = call._replace(seed=kept)
    shape = data, call.scheme, call.settings, call.n_partitions, call.sample_rows, call.budget, call.engine
    plan = make_sampling_plan(*shape, in_memory=call.out is None)
    seen = call.seen(plan.segment_rows)
    subset = seen.pool(plan.pool_rows) if call.finished is None else None
    scaling, rows = measure_and_sample(data, subset, standardize=call.standardize)
    call = call.of_columns(scaling)
    call.scheme.features.width(scaling.width)
    seen, made_with = call.seen(plan.segment_rows), call.made_with(scaling)
    if subset is None:
        assert call.finished is not None  # noqa: S101 - or there were a sample
        return take_finished(call.finished, made_with)
    # gaps, and what varies of categories, were not known before all was read
    if len(scaling.gaps) or not data.encoding.is_plain:
        plan = make_sampling_plan(*shape, n_gaps=len(scaling.gaps), in_memory=call.out is None)
    _log.info("%s of %s: %s", call.scheme.name, data.where, plan.reason)
    if data.is_sparse:
        points = scaling.apply(rows)
    else:
        points = np.empty((len(rows), scaling.width), np.float32)
        for block in row_blocks(len(rows), data.chunk_rows):
            points[block.start : block.stop] = scaling.apply(rows[block.start : block.stop])
    seen = replace(seen, scheme=call.scheme.of_pool(points))
    pool = Pool(subset.rows(0, data.n_objects), points)
    del rows, points
    train, members = (
        TrainTask(seen, call.settings, pool, call.sample_rows),
        sets_of(call.scheme, call.n_partitions),
    )

    def content(trained: list[np.ndarray], scratch: Scratch | None) -> Content:
        nonlocal train, pool
        task = LabelTask(seen, scaling, centers_of(seen, trained, call.n_partitions, scaling.width))
        made_by = call.generator(scaling, task, pool)
        del train, pool
        header = Header(
            data.n_objects,
            made_by.names,
            task.centers.n_clusters,
            np.array([seen.subset(u).size(data.n_objects) for u in range(call.n_partitions)], np.int64),
            plan.store_rows,
            {**made_with, "seed": call.seed, "source": data.where},
            ids=data.ids,
            generator=made_by,
        )
        return Content(header, [None] * call.n_partitions, _label_blocks(call, plan, task, scratch))

    if call.out is None:
        return ensemble_of_content(content(_train(call, plan, train, members, None), None))
    with call.scratch(made_with) as scratch:
        found = content(_train(call, plan, train, members, scratch), scratch)
        return ensemble_of_content(found, call.out, overwrite=call.overwrite)


def _train(
    call: Call,
    plan: SamplingPlan,
    task: TrainTask,
    members: Sequence[tuple[int, ...]],
    scratch: Scratch | None,
) -> list[np.ndarray]:
    """Return the sets of centers; those in ``scratch`` are not trained again."""
    trained: dict[tuple[int, ...], np.ndarray] = {}
    if scratch is not None:
        files = {partitions: scratch.centers(partitions[0]) for partitions in members}
        trained = {partitions: np.load(file) for partitions, file in files.items() if scratch.has(file)}
        if trained:
            n_finished = sum(map(len, trained))
            _log.warning("Resuming: %d of %d partitions were trained.", n_finished, call.n_partitions)
    left = [partitions for partitions in members if partitions not in trained]
    with quiet_scikit_learn(), progress(TRAINING, call.n_partitions, "partitions") as listener:
        listener.advance(sum(map(len, trained)))
        for partitions, found in zip(left, map_within(call.engine, plan.n_tasks, task, left), strict=True):
            if scratch is not None:
                scratch.write(scratch.centers(partitions[0]), found)
            trained[partitions] = found
            listener.advance(len(partitions))
    return [trained[partitions] for partitions in members]


def _label_blocks(
    call: Call, plan: SamplingPlan, task: LabelTask, scratch: Scratch | None
) -> Yields[np.ndarray, None, None]:
    """Yield the labels of all blocks in order; those in ``scratch`` are not computed again."""
    blocks = call.data.blocks(plan.block_rows)
    is_done = [scratch is not None and scratch.has(scratch.block(block)) for block in blocks]
    if any(is_done):
        _log.warning("Resuming: %d of %d blocks of labels were finished.", sum(is_done), len(blocks))
    if not all(is_done):
        first = is_done.index(False)
        stream = call.data.iterate(plan.block_rows, first, gaps=True, sparse=True)
        items = (item for item in stream if not is_done[item[0].index])
        made = call.engine.map(task, items)
    try:
        for block in blocks:
            if is_done[block.index]:
                assert scratch is not None  # noqa: S101 - or nothing were done
                yield np.load(scratch.block(block))
                continue
            labels = next(made)
            if scratch is not None:
                scratch.write(scratch.block(block), labels)
            yield labels
    finally:
        if not all(is_done):
            made.close()


# Numbers of clusters


def check_range(n_clusters: ClusterCount) -> tuple[int, int]:
    """Return a number or a range of clusters as ``(low, high)``; warn if all partitions have one cluster."""
    if isinstance(n_clusters, range) and len(n_clusters) and n_clusters.step == 1:
        n_clusters = n_clusters[0], n_clusters[-1]
    if isinstance(n_clusters, (tuple, list)):
        if len(n_clusters) != 2:
            raise InvalidInputError(
                f"n_clusters={n_clusters!r} is not a range; use an integer or (low, high)."
            )
        low, high = (check_int(f"n_clusters[{end}]", n_clusters[end]) for end in (0, 1))
        if low > high:
            raise InvalidInputError(f"n_clusters={n_clusters!r} is not a range; use (low, high), low first.")
    elif isinstance(n_clusters, (int, np.integer)):
        low = high = check_int("n_clusters", n_clusters)
    else:
        raise InvalidInputError(
            f"n_clusters={n_clusters!r} has type {type(n_clusters).__name__}; use an integer >= 1, or (low, "
            "high), both included.",
            parameter="n_clusters",
        )
    if high == 1:
        warn_user(
            "partitions of a single cluster say nothing; use n_clusters of at least 2.",
            SuspiciousLabelsWarning,
        )
    return low, high


def settings_for(n_seen: int, n_clusters: ClusterCount | None, settings: Settings) -> Settings:
    """Return the settings for partitions of so many objects, of which no range of clusters is given."""
    if n_clusters == SPLIT:
        return settings._replace(n_clusters=split_range(n_seen))
    (low, high), (least, most) = settings.n_clusters, settings.landmark_clusters
    return settings._replace(
        n_clusters=(min(low, n_seen), min(high, n_seen)),
        landmark_clusters=(min(least, n_seen), min(most, n_seen)),
    )


def split_range(n_seen: int) -> tuple[int, int]:
    """Return ``(kmin, kmin + 20)`` with ``kmin = max(sqrt(n) / 2, n / 50)`` for ``n_seen`` objects.

    The rule of Aidos and Fred's DID paper. Rounding ``kmin`` up and limiting both ends to the number of
    objects are ours.
    """
    low = math.ceil(max(math.sqrt(n_seen) / 2, n_seen / 50))
    return min(low, n_seen), min(low + 20, n_seen)


# Engines


@contextmanager
def open_logged_engine(client: object, name: str) -> Iterator[Engine]:
    """Yield and log the engine of ``client``; None uses the active Dask client if there is one."""
    with open_engine(client) as engine:
        _log.info("%s runs on the engine %r (workers: %d)", name, engine.name, engine.n_workers)
        yield engine


def map_within(
    engine: Engine, n_tasks: int, task: Callable[[Item], Result], items: Sequence[Item]
) -> Yields[Result, None, None]:
    """Yield ``task(item)`` for every item in order, at most ``n_tasks`` concurrently.

    Threads are limited to that number; other engines with more workers get that many items at a time.
    """
    if isinstance(engine, ThreadsEngine) and engine.n_workers > n_tasks:
        engine = ThreadsEngine(n_tasks)
    at_once = len(items) if engine.n_workers <= n_tasks else n_tasks
    for first in range(0, len(items), max(at_once, 1)):
        yield from engine.map(task, items[first : first + at_once])


def _evenly(n_rows: int, width: int) -> np.ndarray:
    """Return the rows whose distances to the centers tell which others are far: some, evenly spaced."""
    n_chosen = min(n_rows, FAR_ROWS, max((1 << 22) // width, 1))
    return np.arange(n_chosen) * n_rows // n_chosen
