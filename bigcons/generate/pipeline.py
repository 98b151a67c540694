"""The pipeline shared by all k-means ensembles, from features to stored partitions.

`make_partitions` checks the call and measures the features. Partitions trained on all objects they see are
computed one by one, from the features scaled into one matrix; those trained on samples are trained one by one
and labeled together, in one pass over the features.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Generator as Yields
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, TypeVar

import numpy as np

from bigcons.errors import InvalidInputError, SuspiciousLabelsWarning, warn_user
from bigcons.execution.engine import Engine, ThreadsEngine, open_engine
from bigcons.generate.one_pass import LabelTask, Pool, TrainTask, choose_sample_rows
from bigcons.generate.partition import (
    Matrix,
    PartitionTask,
    Plan,
    Seen,
    Settings,
    quiet_scikit_learn,
    stacked,
)
from bigcons.generate.planning import SamplingPlan, budget_of, ensemble_within, make_plan, make_sampling_plan
from bigcons.generate.sampling import PIECES_AT_ONCE, AllFeatures, Scheme
from bigcons.generate.scaling import measure, measure_and_sample
from bigcons.generate.scratch import (
    Scratch,
    find_finished,
    kept_seed,
    local_output,
    open_scratch,
    take_finished,
)
from bigcons.memory import DataBudget, parse_size, row_blocks
from bigcons.progress import expect_steps, job, progress
from bigcons.seeding import SeedLike, resolve_seed
from bigcons.storage.leftovers import temporary_folder
from bigcons.storage.places import place_of
from bigcons.stores.encoding import Scaling
from bigcons.stores.features import Features, open_features
from bigcons.stores.generator import FAR, Generator, label_points
from bigcons.tables.files import NpyTable
from bigcons.tables.select import Column, Columns
from bigcons.validation import check_choice, check_flag, check_int, check_number
from bigcons.version import __version__

if TYPE_CHECKING:
    from bigcons.stores.ensemble import Ensemble

Item = TypeVar("Item")
Result = TypeVar("Result")

ClusterCount = int | tuple[int, int] | range | str
"""An integer, an inclusive range (low, high), a range of Python, or "split"."""

SPLIT = "split"

FAR_ROWS = 10_000
"""Rows by whose distances to the centers it is told which new rows are far: 100 of them are."""

# Cost of k-means of some objects, in units of labeling them once.
FITTING = 30.0

_log = logging.getLogger(__name__)


class KMeansOptions(TypedDict, total=False):
    """Parameters of every k-means ensemble; see `bigcons.generate.kmeans`."""

    id: Column | None
    columns: Columns | None
    drop: Columns | None
    log: Columns | None
    out: str | os.PathLike[str] | None
    standardize: bool
    train: int | str
    algorithm: str
    init: str
    n_init: int
    max_iter: int
    tol: float
    memory: int | float | str | None
    random_state: SeedLike
    overwrite: bool
    resume: bool
    client: object


def make_partitions(
    features: object,
    scheme: Scheme,
    *,
    n_partitions: int,
    n_clusters: ClusterCount,
    id: Column | None = None,
    columns: Columns | None = None,
    drop: Columns | None = None,
    log: Columns | None = None,
    out: str | os.PathLike[str] | None = None,
    standardize: bool = True,
    train: int | str = "auto",
    algorithm: str = "auto",
    init: str = "random",
    n_init: int = 1,
    max_iter: int = 100,
    tol: float = 1e-4,
    memory: int | float | str | None = None,
    random_state: SeedLike = None,
    overwrite: bool = False,
    resume: bool = True,
    client: object = None,
) -> Ensemble:
    """Return the ensemble of ``scheme``; parameters as in `bigcons.generate.kmeans`."""
    if isinstance(n_clusters, str) and n_clusters != SPLIT:
        raise InvalidInputError(
            f"n_clusters={n_clusters!r} is unknown; use an integer, (low, high) or {SPLIT!r}."
        )
    clusters = None if n_clusters == SPLIT else check_range(n_clusters)
    settings = Settings(
        n_clusters=clusters or (1, 1),  # "split" is resolved when the number of objects is known
        init=check_choice("init", init, ("random", "k-means++")),
        n_init=check_int("n_init", n_init),
        max_iter=check_int("max_iter", max_iter),
        tol=check_number("tol", tol, at_least=0),
    )
    check_int("n_partitions", n_partitions)
    check_flag("standardize", standardize)
    check_flag("resume", resume)
    check_choice("algorithm", algorithm, ("auto", "lloyd", "minibatch"))
    if isinstance(train, str):
        check_choice("train", train, ("auto", "all"))
    elif algorithm != "auto":
        raise InvalidInputError(
            f"train={train} with algorithm={algorithm!r}, which runs on all objects; use algorithm='auto'.",
            parameter="train",
        )
    seed = resolve_seed(random_state)
    if memory is not None:
        parse_size(memory)
    asked = {"n_partitions": n_partitions, "standardize": standardize, "generator": scheme.name}
    asked |= settings._asdict() | scheme.parameters()
    if clusters is None:
        del asked["n_clusters"]
    asked["algorithm"] = None if algorithm == "auto" else algorithm
    may_sample = train != "all" and algorithm == "auto"
    asked["train"] = None if may_sample else "all"
    asked["seed"] = None if random_state is None else seed
    finished = find_finished(out, asked, overwrite=overwrite, resume=resume)  # before any work
    with job("generate"), open_logged_engine(client, scheme.name) as engine:
        data = open_features(features, id=id, columns=columns, drop=drop, log=log)
        _log.info("%s has %s", data.where, data.encoding.summary())
        n_seen = scheme.objects.least(data.n_objects)
        if clusters is None:
            settings = settings._replace(n_clusters=split_range(n_seen))
        if n_seen < settings.n_clusters[1]:
            given = ", ".join(f"{name}={value:g}" for name, value in asdict(scheme.objects).items())
            raise InvalidInputError(
                f"{given} of n_objects={data.n_objects} is {n_seen} objects, fewer than "
                f"n_clusters={settings.n_clusters[1]}; {scheme.objects.remedy} or use fewer clusters."
            )
        call = Call(
            data,
            scheme,
            settings,
            n_partitions=n_partitions,
            standardize=standardize,
            algorithm=algorithm,
            budget=budget_of(memory, engine),
            seed=seed,
            seed_is_given=random_state is not None,
            out=out,
            overwrite=overwrite,
            resume=resume and not overwrite,
            finished=finished,
            engine=engine,
        )
        if isinstance(train, str):
            sample_rows = choose_sample_rows(settings.n_clusters[1], data.n_features)
        else:
            sample_rows = check_int("train", train, at_least=settings.n_clusters[1])
        on_samples = may_sample and n_seen > sample_rows
        # costs relative to that of labeling an object in one partition
        what, of_partition = "make partitions", FITTING * float(n_seen)
        if on_samples:
            what, of_partition = "train partitions", FITTING * float(sample_rows)
        labels = "label the objects" if out is None else "labels to the store"
        expect_steps(
            {
                "measure the features": (data.n_objects, 3.0),
                "scale the features": (0 if on_samples else data.n_objects, 3.0),
                what: (n_partitions, of_partition),
                labels: (data.n_objects if on_samples else 0, float(n_partitions)),
            }
        )
        return _train_on_samples(call, sample_rows) if on_samples else _train_on_all(call)


class Call(NamedTuple):
    """A checked call of a generator."""

    data: Features
    scheme: Scheme
    settings: Settings
    n_partitions: int
    standardize: bool
    algorithm: str
    budget: DataBudget
    seed: int
    seed_is_given: bool
    out: str | os.PathLike[str] | None
    overwrite: bool
    resume: bool
    finished: Ensemble | None
    engine: Engine

    def made_with(self, scaling: Scaling, **how: Any) -> dict[str, Any]:
        """Return everything but the seed that determines the labels; it must match to resume."""
        from sklearn import __version__ as sklearn_version

        ids = self.data.ids
        return {
            "generator": self.scheme.name,
            **({} if ids is None else {"ids": ids.facts.in_words}),
            **self.settings._asdict(),
            **self.scheme.parameters(),
            **how,
            "standardize": self.standardize,
            "n_objects": self.data.n_objects,
            "features": self.data.encoding.with_scaling(scaling).column_names(),
            "columns": [code.name for code in self.data.encoding.columns],
            "read": self.data.options,
            "features_checksum": scaling.checksum,
            "bigcons": __version__,
            "scikit_learn": sklearn_version,
        }

    def generator(
        self,
        scaling: Scaling,
        seen: Seen,
        centers: list[np.ndarray],
        rows: np.ndarray,
        read: Callable[[int, int], Any],
    ) -> Generator:
        """Return what labels new rows: the centers, and how far from them some of the objects are.

        The objects are ``rows``, ascending, and ``read(first, last)`` gives the scaled features of these. As
        new rows are, they are compared with the centers of partitions that have not seen them, if there are.
        """
        names = [f"p{u}" for u in range(self.n_partitions)]
        squares = np.ones((1, scaling.width))
        if not isinstance(self.scheme.features, AllFeatures):
            views = [seen.view(scaling.width, u) for u in range(self.n_partitions)]
            squares = np.array([view.squares(scaling.width) for view in views])
        made = Generator(self.data.encoding.with_scaling(scaling), names, centers, squares, np.inf)
        task, distances = made.task(), []
        for block in row_blocks(self.data.n_objects, PIECES_AT_ONCE * seen.segment_rows):
            first, last = np.searchsorted(rows, (block.start, block.stop)).tolist()
            for part in row_blocks(last - first, self.data.chunk_rows):
                here = rows[first + part.start : first + part.stop]
                points = read(first + part.start, first + part.stop)
                is_new = np.empty((self.n_partitions, len(here)), bool)
                for u in range(self.n_partitions):
                    is_new[u] = ~seen.subset(u).mask(block.start, block.stop)[here - block.start]
                is_new |= ~is_new.any(axis=0)
                labels = np.empty((len(here), self.n_partitions), task.dtype)
                label_points(points, task.centers, task.offsets, is_new, labels)
                distances.append(task.distances(points, labels))
        return replace(made, reach=float(np.quantile(np.concatenate(distances), FAR)))

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
                path, made_with, seed=self.seed, seed_is_given=self.seed_is_given, resume=self.resume
            ) as scratch,
        ):
            yield scratch

    def unfinished(self, file: Callable[[int], Path], has: Callable[[Path], bool]) -> list[int]:
        """Return the partitions without their file, whole; log how many have one."""
        unfinished = [u for u in range(self.n_partitions) if not has(file(u))]
        if len(unfinished) < self.n_partitions:
            n_finished = self.n_partitions - len(unfinished)
            _log.warning("Resuming: %d of %d partitions were finished.", n_finished, self.n_partitions)
        return unfinished


# Partitions trained on all objects they see, one by one


def _train_on_all(call: Call) -> Ensemble:
    """Return the ensemble of partitions that are computed one by one."""
    from bigcons.stores.ensemble import ensemble_of  # imports zarr
    from bigcons.tables.memory import ColumnsTable

    data = call.data
    scaling = measure(data, standardize=call.standardize)
    call = call.of_columns(scaling)
    plan = make_plan(
        *(data, scaling.width, call.scheme, call.settings, call.n_partitions, call.budget),
        *(call.algorithm, call.engine),
        in_memory=call.out is None,
    )
    made_with = call.made_with(scaling, algorithm=plan.algorithm, train="all")
    if call.finished is not None:
        return take_finished(call.finished, made_with)
    _log.info("%s of %s: %s", call.scheme.name, data.where, plan.reason)
    if call.out is None:
        with temporary_folder() as folder:
            matrix = _scaled_matrix(data, scaling, plan, Scratch(folder, call.seed, bytes(16)))
            seen = call.seen(plan.segment_rows)
            task = PartitionTask(matrix, seen, call.settings, plan, scratch=None)
            found = _run("make partitions", task, plan.n_tasks, call.engine, range(call.n_partitions))
            columns, centers = (list(part) for part in zip(*found, strict=True))
            made_by = _generator_of(call, scaling, seen, centers, matrix)
        table = ColumnsTable(columns, data.n_objects, ids=data.ids)
        provenance = {**made_with, "seed": call.seed, "source": data.where}
        return ensemble_of(table, provenance=provenance, generator=made_by)
    with call.scratch(made_with) as scratch:
        for u in range(call.n_partitions):  # labels without the centers that go with them are made again
            if not scratch.has(scratch.found(u)):
                scratch.partition(u).unlink(missing_ok=True)
        unfinished = call.unfinished(scratch.partition, scratch.has)
        seen = call._replace(seed=scratch.seed).seen(plan.segment_rows)
        matrix = _scaled_matrix(data, scaling, plan, scratch)
        if unfinished:
            task = PartitionTask(matrix, seen, call.settings, plan, scratch)
            _run("make partitions", task, plan.n_tasks, call.engine, unfinished)
        centers = [np.load(scratch.found(u)) for u in range(call.n_partitions)]
        made_by = _generator_of(call, scaling, seen, centers, matrix)
        del matrix
        return ensemble_within(
            call.budget,
            f"generate.{call.scheme.name}",
            ColumnsTable(
                [scratch.partition(u) for u in range(call.n_partitions)], data.n_objects, ids=data.ids
            ),
            call.out,
            n_objects=data.n_objects,
            label_bytes=call.settings.label_dtype.itemsize,
            overwrite=call.overwrite,
            provenance={**made_with, "seed": scratch.seed, "source": data.where},
            generator=made_by,
        )


def _generator_of(
    call: Call, scaling: Scaling, seen: Seen, centers: list[np.ndarray], matrix: Matrix
) -> Generator:
    """Return what labels new rows, given the scaled features."""
    rows = _evenly(matrix.n_objects, matrix.n_features)

    def read(first: int, last: int) -> Any:
        chosen = rows[first:last]
        return matrix.read(int(chosen[0]), int(chosen[-1]) + 1)[chosen - chosen[0]]

    return call.generator(scaling, seen, centers, rows, read)


# Partitions trained on samples, labeled in one pass


def _train_on_samples(call: Call, sample_rows: int) -> Ensemble:
    """Return the ensemble of partitions that are trained on ``sample_rows`` objects each."""
    from bigcons.stores.ensemble import ensemble_of_content  # imports zarr
    from bigcons.stores.ensemble_store import Content, Header

    data = call.data
    if call.resume and not call.seed_is_given and (kept := kept_seed(call.out)) is not None:
        call = call._replace(seed=kept)
    plan = make_sampling_plan(
        *(data, call.scheme, call.settings, call.n_partitions, sample_rows, call.budget, call.engine),
        in_memory=call.out is None,
    )
    seen = call.seen(plan.segment_rows)
    subset = seen.pool(plan.pool_rows) if call.finished is None else None
    scaling, rows = measure_and_sample(data, subset, standardize=call.standardize)
    call = call.of_columns(scaling)
    call.scheme.features.width(scaling.width)
    seen = call.seen(plan.segment_rows)
    made_with = call.made_with(scaling, algorithm="lloyd", train="samples", sample_rows=sample_rows)
    made_with["n_partitions"] = call.n_partitions  # of every block of labels
    if subset is None:
        assert call.finished is not None  # noqa: S101 - or there were a sample
        return take_finished(call.finished, made_with)
    # gaps, and what varies of categories, were not known before all was read
    if len(scaling.gaps) or not data.encoding.is_plain:
        plan = make_sampling_plan(
            *(data, call.scheme, call.settings, call.n_partitions, sample_rows, call.budget, call.engine),
            n_gaps=len(scaling.gaps),
            in_memory=call.out is None,
        )
    _log.info("%s of %s: %s", call.scheme.name, data.where, plan.reason)
    points = rows
    if not data.is_sparse:
        points = np.empty((len(rows), scaling.width), np.float32)
        for block in row_blocks(len(rows), data.chunk_rows):
            points[block.start : block.stop] = scaling.apply(rows[block.start : block.stop])
    else:
        points = scaling.apply(rows)
    pool = Pool(subset.rows(0, data.n_objects), points)
    del rows, points
    train = TrainTask(seen, call.settings, pool, sample_rows)
    provenance = {**made_with, "seed": call.seed, "source": data.where}

    def content(centers: list[np.ndarray], made_by: Generator, blocks: Iterator[np.ndarray]) -> Content:
        header = Header(
            data.n_objects,
            [f"p{u}" for u in range(call.n_partitions)],
            np.array([len(found) for found in centers], np.int64),
            np.array([seen.subset(u).size(data.n_objects) for u in range(call.n_partitions)], np.int64),
            plan.store_rows,
            provenance,
            ids=data.ids,
            generator=made_by,
        )
        return Content(header, [None] * call.n_partitions, blocks)

    def generator_of(centers: list[np.ndarray], pool: Pool) -> Generator:
        chosen = _evenly(len(pool.rows), scaling.width)
        return call.generator(
            scaling, seen, centers, pool.rows[chosen], lambda first, last: pool.points[chosen[first:last]]
        )

    if call.out is None:
        centers = _run("train partitions", train, plan.n_tasks, call.engine, range(call.n_partitions))
        made_by = generator_of(centers, pool)
        del train, pool
        blocks = _label_blocks(call, plan, LabelTask.of(seen, scaling, centers), None)
        return ensemble_of_content(content(centers, made_by, blocks))
    with call.scratch(made_with) as scratch:
        unfinished = call.unfinished(scratch.centers, scratch.has)
        _run("train partitions", train, plan.n_tasks, call.engine, unfinished, scratch.write_centers)
        centers = [np.load(scratch.centers(u)) for u in range(call.n_partitions)]
        made_by = generator_of(centers, pool)
        del train, pool
        blocks = _label_blocks(call, plan, LabelTask.of(seen, scaling, centers), scratch)
        return ensemble_of_content(content(centers, made_by, blocks), call.out, overwrite=call.overwrite)


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


# The scaled matrix


def _scaled_matrix(data: Features, scaling: Scaling, plan: Plan, scratch: Scratch) -> Matrix:
    """Return the scaled features, in memory or in a file of ``scratch``, which is reused if it is whole.

    Those of a sparse source stay sparse, in memory as the source is.
    """
    shape = (data.n_objects, scaling.width)
    if data.is_sparse:
        blocks = data.iterate(sparse=True)
        return Matrix(*shape, stacked([scaling.apply(values) for _, values in blocks]))
    if plan.matrix_in_memory:
        matrix = np.empty(shape, dtype=np.float32)
        with progress("scale the features", data.n_objects) as listener:
            for block, values in data.iterate(gaps=True):
                matrix[block.start : block.stop] = scaling.apply(values)
                listener.advance(block.n_rows)
        return Matrix(*shape, matrix)
    if not scratch.has(scratch.features):
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        with (
            scratch.writing(scratch.features) as file,
            progress("scale the features", data.n_objects) as listener,
        ):
            np.lib.format.write_array_header_1_0(file, header)
            for block, values in data.iterate(gaps=True):
                file.write(scaling.apply(values).astype("<f4", copy=False).data)
                listener.advance(block.n_rows)
    return Matrix(*shape, NpyTable(scratch.features))


def _evenly(n_rows: int, width: int) -> np.ndarray:
    """Return the rows whose distances to the centers tell which others are far: some, evenly spaced."""
    n_chosen = min(n_rows, FAR_ROWS, max((1 << 22) // width, 1))
    return np.arange(n_chosen) * n_rows // n_chosen


def _run(
    what: str,
    task: Callable[[int], Any],
    n_tasks: int,
    engine: Engine,
    partitions: Sequence[int],
    keep: Callable[[int, Any], None] | None = None,
) -> list[Any]:
    """Compute partitions, at most ``n_tasks`` at a time, and ``keep`` or return the results."""
    results = []
    with quiet_scikit_learn(), progress(what, len(partitions), "partitions") as listener:
        for u, result in zip(partitions, map_within(engine, n_tasks, task, partitions), strict=True):
            if keep is None:
                results.append(result)
            else:
                keep(u, result)
            listener.advance(1)
    return results
