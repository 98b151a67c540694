"""k-means partitions of random subsets of the objects, in memory or out of core."""

from __future__ import annotations

import logging
import os
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons import __version__
from bigcons.errors import InvalidInputError
from bigcons.execution.engine import Engine, open_engine
from bigcons.generate.partition import Matrix, PartitionTask, calm_scikit_learn
from bigcons.generate.plan import Plan, Settings, make_plan
from bigcons.generate.scaling import Scaling, measure
from bigcons.generate.scratch import open_scratch, replacing
from bigcons.generate.subsets import subset_size
from bigcons.memory import parse_size
from bigcons.progress import progress
from bigcons.seeding import SeedLike, resolve_seed
from bigcons.stores import manifest
from bigcons.stores.feature_sources import NpyFile
from bigcons.stores.features import Features, open_features
from bigcons.validation import check_choice, check_int, check_number

if TYPE_CHECKING:
    from bigcons.stores.ensemble import Ensemble

_log = logging.getLogger(__name__)


def kmeans(
    features: object,
    *,
    n_partitions: int = 100,
    n_clusters: int | tuple[int, int] = (2, 10),
    sample: float = 0.5,
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
    """Return an ensemble of k-means partitions, each of a random subset of the objects.

    The ensembles of Lourenço et al. 2015 (large scale: 100 partitions of random halves into 2 to 10
    clusters, random starts).

    Parameters
    ----------
    features
        Whatever `bigcons.stores.features.open_features` takes: array, table, dask collection, path.
    n_partitions
        Number of partitions.
    n_clusters
        Number of clusters, or a range (low, high), ends included, to draw it from uniformly.
    sample
        Share of the objects that each partition sees; the others have no label (-1) in it.
    out
        Path of the store to write; without it the ensemble stays in memory.
    standardize
        Give every column mean 0 and variance 1 over all objects. Constant columns are always dropped.
    algorithm
        "lloyd": scikit-learn's KMeans, with the subset in memory. "minibatch": Lloyd's algorithm on
        up to 2 million values of the subset, one pass of MiniBatchKMeans over the rest, and a pass
        that assigns the labels. "auto": "lloyd" if ``memory`` holds a subset, else "minibatch"; the
        choice is logged and kept in the provenance.
    init, n_init, max_iter, tol
        As in scikit-learn's KMeans; ``init`` is "random" or "k-means++".
    memory
        Bound on the memory the call holds at a time, beside the labels it returns when there is no
        ``out``. Data that do not fit are kept, scaled, as one float32 file in a scratch directory:
        ``n_objects * n_features * 4`` bytes beside ``out``, or in the temporary directory.
    random_state
        Seed. Partition ``u`` depends on the seed and on ``u``, not on the number of partitions or
        workers, nor on the budget except as it chooses the algorithm.
    overwrite
        Replace the store at ``out``.
    resume
        Go on from the partitions that an interrupted call left in ``<out>.partial``; they are refused
        if its parameters were others. False discards them.
    client
        Engine: None or "threads", "serial", or an Engine. Every task runs on one thread.

    Subsets are drawn as a fixed number of rows from each segment of 4,096 (see `Subset`). Clusters
    that come out empty are left out, so a partition may have fewer clusters than asked for.

    Raises InvalidInputError, StoreExistsError, StoreError for a scratch directory made with other
    parameters, and MemoryBudgetError if not even one task fits.

    Cost: one pass over the features, a second one to scale them, then per partition
    ``sample * n_objects * n_features * K`` operations per iteration. On two cores, 100 partitions of
    120,000 objects with 39 features take 5 to 15 seconds.
    """
    from bigcons.stores.ensemble import Ensemble, write_partitions  # imports zarr

    settings = Settings(
        n_clusters=_check_clusters(n_clusters),
        sample=check_number("sample", sample, above=0, at_most=1),
        init=check_choice("init", init, ("random", "k-means++")),
        n_init=check_int("n_init", n_init),
        max_iter=check_int("max_iter", max_iter),
        tol=check_number("tol", tol, at_least=0),
    )
    check_int("n_partitions", n_partitions)
    check_choice("algorithm", algorithm, ("auto", "lloyd", "minibatch"))
    budget = parse_size(memory)
    with open_engine(client) as engine:
        seed = resolve_seed(random_state)
        target = None if out is None else manifest.local_path(out)
        if target is not None:
            manifest.refuse_existing(target, overwrite)
        data = open_features(features)
        _check_subset(data.n_objects, settings)
        scaling = measure(data, standardize=standardize)
        plan = make_plan(data, len(scaling.kept), settings, budget, algorithm)
        _log.info("k-means of %s: %s", data.where, plan.reason)
        if target is None:
            with tempfile.TemporaryDirectory(prefix="bigcons-") as directory:
                matrix = _scaled_matrix(data, scaling, plan, Path(directory))
                task = PartitionTask(matrix, settings, plan, seed, scratch=None)
                return Ensemble.from_labels(
                    np.stack(_run(task, plan.limit(engine), range(n_partitions)), axis=1)
                )
        parameters = _parameters(settings, plan, data, scaling, standardize=standardize)
        with open_scratch(
            target, parameters, seed=seed, seed_is_given=random_state is not None, resume=resume
        ) as scratch:
            unfinished = scratch.unfinished(n_partitions)
            if len(unfinished) < n_partitions:
                _log.info("%d of %d partitions are finished", n_partitions - len(unfinished), n_partitions)
            if unfinished:
                matrix = _scaled_matrix(data, scaling, plan, scratch.directory)
                task = PartitionTask(matrix, settings, plan, scratch.seed, scratch)
                _run(task, plan.limit(engine), unfinished)
            provenance = {**parameters, "seed": scratch.seed, "source": data.where}
            return write_partitions(
                target,
                [scratch.partition(u) for u in range(n_partitions)],
                n_objects=data.n_objects,
                provenance=provenance,
                overwrite=overwrite,
                memory=budget,
            )


# Checks


def _check_clusters(n_clusters: int | tuple[int, int]) -> tuple[int, int]:
    if isinstance(n_clusters, (tuple, list)):
        if len(n_clusters) != 2:
            raise InvalidInputError(f"n_clusters={n_clusters!r} is no range; use an integer or (low, high).")
        low = check_int("n_clusters[0]", n_clusters[0])
        return low, check_int("n_clusters[1]", n_clusters[1], at_least=low)
    number = check_int("n_clusters", n_clusters)
    return number, number


def _check_subset(n_objects: int, settings: Settings) -> None:
    size = subset_size(n_objects, settings.sample)
    if size < settings.n_clusters[1]:
        raise InvalidInputError(
            f"sample={settings.sample:g} of n_objects={n_objects} is {size} objects, fewer than "
            f"n_clusters={settings.n_clusters[1]}; raise sample or ask for fewer clusters."
        )


# The work


def _scaled_matrix(data: Features, scaling: Scaling, plan: Plan, directory: Path) -> Matrix:
    """The scaled features, in memory or in a file of ``directory`` that an earlier call may have left."""
    shape = (data.n_objects, len(scaling.kept))
    if plan.matrix_in_memory:
        matrix = np.empty(shape, dtype=np.float32)
        with progress("scale the features", data.n_objects) as listener:
            for block, values in data.iterate():
                matrix[block.start : block.stop] = scaling.apply(values)
                listener.advance(block.n_rows)
        return matrix
    path = directory / "features.npy"
    if not path.exists():
        with replacing(path) as partial:
            _write_scaled(data, scaling, shape, partial)
    return NpyFile(path)


def _write_scaled(data: Features, scaling: Scaling, shape: tuple[int, int], path: Path) -> None:
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    with path.open("wb") as file, progress("scale the features", data.n_objects) as listener:
        np.lib.format.write_array_header_1_0(file, header)
        for block, values in data.iterate():
            file.write(scaling.apply(values).astype("<f4", copy=False).data)
            listener.advance(block.n_rows)


def _run(task: PartitionTask, engine: Engine, partitions: Sequence[int]) -> list[Any]:
    """Make partitions; return their labels unless the task writes them."""
    results = []
    with calm_scikit_learn(), progress("make partitions", len(partitions), "partitions") as listener:
        for result in engine.map(task, partitions):
            results.append(result)
            listener.advance(1)
    return results


def _parameters(
    settings: Settings, plan: Plan, data: Features, scaling: Scaling, *, standardize: bool
) -> dict[str, Any]:
    """Everything but the seed that decides the labels of a partition, for provenance and for resuming."""
    from sklearn import __version__ as sklearn_version

    return {
        "generator": "kmeans",
        **settings._asdict(),
        "algorithm": plan.algorithm,
        "standardize": standardize,
        "n_objects": data.n_objects,
        "features": [data.names[c] for c in scaling.kept],
        "features_checksum": zlib.crc32(scaling.mean.tobytes() + scaling.scale.tobytes()),
        "bigcons": __version__,
        "scikit_learn": sklearn_version,
    }
