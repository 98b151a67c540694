"""The pipeline shared by all k-means ensembles, from features to stored partitions.

`make_partitions` measures the features, plans the work within the memory budget, scales the features into one
matrix, computes the partitions one by one and stores them.
"""

from __future__ import annotations

import logging
import math
import os
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import numpy as np

from bigcons.errors import InvalidInputError, MemoryBudgetError
from bigcons.execution.engine import Engine, ThreadsEngine, open_engine
from bigcons.generate.partition import Matrix, PartitionTask, Plan, Settings, quiet_scikit_learn
from bigcons.generate.sampling import Scheme
from bigcons.generate.scaling import Scaling, measure
from bigcons.generate.scratch import find_finished, local_output, open_scratch, take_finished
from bigcons.memory import format_size, parse_size
from bigcons.progress import progress
from bigcons.seeding import SeedLike, resolve_seed
from bigcons.storage.places import atomic_file, disk_errors, place_of
from bigcons.stores.features import Features, open_features
from bigcons.tables.files import NpyTable
from bigcons.validation import check_choice, check_int, check_number
from bigcons.version import __version__

if TYPE_CHECKING:
    from bigcons.stores.ensemble import Ensemble

Item = TypeVar("Item")
Result = TypeVar("Result")

ClusterCount = int | tuple[int, int] | str
"""An integer, an inclusive range (low, high), or "split"."""

SEGMENT_ROWS = 4096
"""Rows from which a subset is drawn at a time; fewer if there are more than 256 features."""

SPLIT = "split"
_SPLIT_SPAN = 20
_BATCH_VALUES = 1 << 20
_START_VALUES = 1 << 21
_PREPARE_BYTES_PER_VALUE = 48
_DISTANCE_BYTES = 2048
"""Per cluster: its distances to the 256 points that Lloyd's algorithm processes together."""

_log = logging.getLogger(__name__)


class KMeansOptions(TypedDict, total=False):
    """Parameters of every k-means ensemble; see `bigcons.generate.kmeans`."""

    out: str | os.PathLike[str] | None
    standardize: bool
    algorithm: str
    init: str
    n_init: int
    max_iter: int
    tol: float
    memory: int | float | str
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
    out: str | os.PathLike[str] | None = None,
    standardize: bool = True,
    algorithm: str = "auto",
    init: str = "random",
    n_init: int = 1,
    max_iter: int = 100,
    tol: float = 1e-4,
    memory: int | float | str = "1GB",
    random_state: SeedLike = None,
    overwrite: bool = False,
    resume: bool = True,
    client: object = None,
) -> Ensemble:
    """Return the ensemble of ``scheme``; parameters as in `bigcons.generate.kmeans`."""
    from bigcons.stores.ensemble import ensemble_of  # imports zarr
    from bigcons.tables.memory import ColumnsTable

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
    check_choice("algorithm", algorithm, ("auto", "lloyd", "minibatch"))
    budget, seed = parse_size(memory), resolve_seed(random_state)
    asked = {"n_partitions": n_partitions, "standardize": standardize, "generator": scheme.name}
    asked |= settings._asdict() | scheme.parameters()
    if clusters is None:
        del asked["n_clusters"]
    asked["algorithm"] = None if algorithm == "auto" else algorithm
    asked["seed"] = None if random_state is None else seed
    finished = find_finished(out, asked, overwrite=overwrite, resume=resume)  # before any work
    with open_logged_engine(client, scheme.name) as engine:
        data = open_features(features)
        n_seen = scheme.objects.least(data.n_objects)
        if clusters is None:
            settings = settings._replace(n_clusters=split_range(n_seen))
        if n_seen < settings.n_clusters[1]:
            given = ", ".join(f"{name}={value:g}" for name, value in asdict(scheme.objects).items())
            raise InvalidInputError(
                f"{given} of n_objects={data.n_objects} is {n_seen} objects, fewer than "
                f"n_clusters={settings.n_clusters[1]}; {scheme.objects.remedy} or use fewer clusters."
            )
        scaling = measure(data, standardize=standardize)
        plan = make_plan(data, len(scaling.kept), scheme, settings, budget, algorithm, engine)
        made_with = _made_with(data, scaling, scheme, settings, plan, standardize)
        if finished is not None:
            return take_finished(finished, made_with)
        _log.info("%s of %s: %s", scheme.name, data.where, plan.reason)
        if out is None:
            with tempfile.TemporaryDirectory(prefix="bigcons-") as folder:
                matrix = _scaled_matrix(data, scaling, plan, Path(folder))
                task = PartitionTask(matrix, scheme, settings, plan, seed, scratch=None)
                columns = _run(task, plan, engine, range(n_partitions))
            table = ColumnsTable(columns, data.n_objects)
            return ensemble_of(table, provenance={**made_with, "seed": seed, "source": data.where})
        with (
            local_output(place_of(out)) as path,
            open_scratch(
                path,
                made_with,
                seed=seed,
                seed_is_given=random_state is not None,
                resume=resume and not overwrite,
            ) as scratch,
        ):
            unfinished = scratch.unfinished(n_partitions)
            if len(unfinished) < n_partitions:
                _log.info("%d of %d partitions are finished", n_partitions - len(unfinished), n_partitions)
            if unfinished:
                matrix = _scaled_matrix(data, scaling, plan, scratch.folder)
                task = PartitionTask(matrix, scheme, settings, plan, scratch.seed, scratch)
                _run(task, plan, engine, unfinished)
            return ensemble_of(
                ColumnsTable([scratch.partition(u) for u in range(n_partitions)], data.n_objects),
                out,
                provenance={**made_with, "seed": scratch.seed, "source": data.where},
                overwrite=overwrite,
                memory=budget,
            )


def _made_with(
    data: Features, scaling: Scaling, scheme: Scheme, settings: Settings, plan: Plan, standardize: bool
) -> dict[str, Any]:
    """Return everything but the seed that determines the labels; it must match to resume."""
    from sklearn import __version__ as sklearn_version

    return {
        "generator": scheme.name,
        **settings._asdict(),
        **scheme.parameters(),
        "algorithm": plan.algorithm,
        "standardize": standardize,
        "n_objects": data.n_objects,
        "features": [data.names[c] for c in scaling.kept],
        "features_checksum": scaling.checksum,
        "bigcons": __version__,
        "scikit_learn": sklearn_version,
    }


# Numbers of clusters


def check_range(n_clusters: ClusterCount) -> tuple[int, int]:
    """Return a number or a range of clusters as ``(low, high)``."""
    if isinstance(n_clusters, (tuple, list)):
        if len(n_clusters) != 2:
            raise InvalidInputError(
                f"n_clusters={n_clusters!r} is not a range; use an integer or (low, high)."
            )
        low = check_int("n_clusters[0]", n_clusters[0])
        return low, check_int("n_clusters[1]", n_clusters[1], at_least=low)
    number = check_int("n_clusters", n_clusters)
    return number, number


def split_range(n_seen: int) -> tuple[int, int]:
    """Return ``(kmin, kmin + 20)`` with ``kmin = max(sqrt(n) / 2, n / 50)`` for ``n_seen`` objects.

    The rule of Aidos and Fred's DID paper. Rounding ``kmin`` up and limiting both ends to the number of
    objects are ours.
    """
    low = math.ceil(max(math.sqrt(n_seen) / 2, n_seen / 50))
    return min(low, n_seen), min(low + _SPLIT_SPAN, n_seen)


# Memory and engines


def make_plan(
    data: Features,
    n_kept: int,
    scheme: Scheme,
    settings: Settings,
    budget: int,
    algorithm: str,
    engine: Engine,
) -> Plan:
    """Plan the work for ``n_kept`` columns of ``data``; raises MemoryBudgetError if it does not fit.

    The budget covers all concurrent tasks, on all workers, and every process that holds the matrix. The
    choice of the algorithm does not depend on the engine.
    """
    width, k = scheme.features.width(n_kept), settings.n_clusters[1]
    block_values = min(data.chunk_rows, data.n_objects) * data.n_features
    prepare = _PREPARE_BYTES_PER_VALUE * block_values + data.held_bytes
    column = data.n_objects * settings.label_dtype.itemsize
    size = scheme.objects.most(data.n_objects)
    centers = k * (32 * width + _DISTANCE_BYTES)
    # the subset, a copy to measure its variance, work per row
    lloyd = column + centers + size * (8 * width + 64)
    matrix = 4 * data.n_objects * n_kept * matrix_copies(engine)
    segment_rows = min(SEGMENT_ROWS, data.chunk_rows)
    start_rows = min(size, max(_START_VALUES // width, 20 * k))
    batch_rows = min(size, max(_BATCH_VALUES // width, 20 * k))
    minibatch = column + centers + start_rows * (8 * width + 64) + 16 * (batch_rows + segment_rows) * width
    if budget < prepare + column:
        raise _too_little("a block of the features and the labels of a partition", budget, prepare + column)
    free = budget - prepare
    if algorithm != "minibatch" and free >= lloyd:
        in_memory = free >= matrix + lloyd
        task, chosen = lloyd, "lloyd"
        n_tasks = (free - matrix if in_memory else free) // lloyd
    elif algorithm == "lloyd":
        raise _too_little(
            f"a subset of {size} objects (algorithm='minibatch' does not need to)", budget, prepare + lloyd
        )
    elif free < minibatch:
        raise _too_little("the mini-batches of a partition", budget, prepare + minibatch)
    else:
        in_memory, task, chosen = False, minibatch, "minibatch"
        n_tasks = free // minibatch
    where = "in memory" if in_memory else "in a file"
    reason = (
        f"algorithm={chosen!r}, scaled features ({format_size(matrix)}) {where}, {format_size(task)} per "
        f"partition, {n_tasks} at a time within memory={format_size(budget)}"
    )
    return Plan(
        algorithm=chosen,
        matrix_in_memory=in_memory,
        n_tasks=int(n_tasks),
        chunk_rows=data.chunk_rows,
        segment_rows=segment_rows,
        batch_segments=math.ceil(batch_rows / (segment_rows * scheme.objects.share)),
        start_rows=start_rows,
        reason=reason,
    )


def _too_little(what: str, budget: int, needed: float) -> MemoryBudgetError:
    return MemoryBudgetError(
        f"memory={format_size(budget)} cannot hold {what}, which needs {format_size(needed)}; "
        "raise the budget to that.",
        needed=needed,
        budget=budget,
    )


def matrix_copies(engine: Engine) -> int:
    """Return how many processes on one machine hold a copy of data in memory."""
    return 1 if engine.shares_memory else engine.n_processes


@contextmanager
def open_logged_engine(client: object, name: str) -> Iterator[Engine]:
    """Yield and log the engine of ``client``; None uses the active Dask client if there is one."""
    with open_engine(client) as engine:
        _log.info("%s runs on the engine %r (workers: %d)", name, engine.name, engine.n_workers)
        yield engine


def map_within(
    engine: Engine, n_tasks: int, task: Callable[[Item], Result], items: Sequence[Item]
) -> Generator[Result, None, None]:
    """Yield ``task(item)`` for every item in order, at most ``n_tasks`` concurrently.

    Threads are limited to that number; other engines with more workers get that many items at a time.
    """
    if isinstance(engine, ThreadsEngine) and engine.n_workers > n_tasks:
        engine = ThreadsEngine(n_tasks)
    at_once = len(items) if engine.n_workers <= n_tasks else n_tasks
    for first in range(0, len(items), max(at_once, 1)):
        yield from engine.map(task, items[first : first + at_once])


# The scaled matrix


def _scaled_matrix(data: Features, scaling: Scaling, plan: Plan, folder: Path) -> Matrix:
    """Return the scaled features, in memory or in a file in ``folder``, which is reused if it exists."""
    shape = (data.n_objects, len(scaling.kept))
    if plan.matrix_in_memory:
        matrix = np.empty(shape, dtype=np.float32)
        with progress("scale the features", data.n_objects) as listener:
            for block, values in data.iterate():
                matrix[block.start : block.stop] = scaling.apply(values)
                listener.advance(block.n_rows)
        return Matrix(*shape, matrix)
    path = folder / "features.npy"
    if not path.exists():
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        with (
            disk_errors(path),
            atomic_file(path) as file,
            progress("scale the features", data.n_objects) as listener,
        ):
            np.lib.format.write_array_header_1_0(file, header)
            for block, values in data.iterate():
                file.write(scaling.apply(values).astype("<f4", copy=False).data)
                listener.advance(block.n_rows)
    return Matrix(*shape, NpyTable(path))


def _run(task: PartitionTask, plan: Plan, engine: Engine, partitions: Sequence[int]) -> list[Any]:
    """Compute partitions; return their labels unless the task writes them."""
    results = []
    with quiet_scikit_learn(), progress("make partitions", len(partitions), "partitions") as listener:
        for result in map_within(engine, plan.n_tasks, task, partitions):
            results.append(result)
            listener.advance(1)
    return results
