"""The road every k-means ensemble takes: measure, scale, make the partitions one by one, store them."""

from __future__ import annotations

import logging
import os
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.execution.engine import Engine, open_engine
from bigcons.generate.counts import ClusterCount, check_clusters, split_range
from bigcons.generate.partition import Matrix, PartitionTask, calm_scikit_learn
from bigcons.generate.plan import Plan, Settings, make_plan
from bigcons.generate.scaling import Scaling, measure
from bigcons.generate.schemes import Scheme
from bigcons.generate.scratch import Scratch, local_output, open_scratch, replacing
from bigcons.memory import parse_size
from bigcons.progress import progress
from bigcons.seeding import SeedLike, resolve_seed
from bigcons.storage.commit import refuse_existing
from bigcons.storage.places import Place, place_of
from bigcons.stores.features import Features, open_features
from bigcons.tables.files import NpyTable
from bigcons.validation import check_choice, check_int, check_number
from bigcons.version import __version__

if TYPE_CHECKING:
    from bigcons.stores.ensemble import Ensemble

_log = logging.getLogger(__name__)


class KMeansOptions(TypedDict, total=False):
    """The parameters that every k-means ensemble has; `bigcons.generate.kmeans` explains them."""

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
    """Return the ensemble of ``scheme``; the parameters are those of `bigcons.generate.kmeans`."""
    clusters = check_clusters(n_clusters)
    settings = Settings(
        n_clusters=clusters or (1, 1),  # "split" is settled when the number of objects is known
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
        target = None if out is None else place_of(out)
        if target is not None:
            refuse_existing(target, overwrite)
        data = open_features(features)
        n_seen = scheme.objects.least(data.n_objects)
        if clusters is None:
            settings = settings._replace(n_clusters=split_range(n_seen))
        _check_seen(scheme, settings, n_seen, data.n_objects)
        scaling = measure(data, standardize=standardize)
        plan = make_plan(data, len(scaling.kept), scheme, settings, budget, algorithm)
        job = _Job(data, scaling, scheme, settings, plan, n_partitions, standardize)
        _log.info("%s of %s: %s", scheme.name, data.where, plan.reason)
        if target is None:
            return job.in_memory(seed, engine)
        with (
            local_output(target) as path,
            open_scratch(
                path, job.parameters(), seed=seed, seed_is_given=random_state is not None, resume=resume
            ) as scratch,
        ):
            job.finish(scratch, engine)
            return job.store(scratch, target, overwrite=overwrite, memory=budget)


class _Job(NamedTuple):
    """The partitions of one ensemble, still to be made."""

    data: Features
    scaling: Scaling
    scheme: Scheme
    settings: Settings
    plan: Plan
    n_partitions: int
    standardize: bool

    def in_memory(self, seed: int, engine: Engine) -> Ensemble:
        """Make all partitions; return them as an ensemble in memory."""
        with tempfile.TemporaryDirectory(prefix="bigcons-") as directory:
            matrix = _scaled_matrix(self.data, self.scaling, self.plan, Path(directory))
            task = PartitionTask(matrix, self.scheme, self.settings, self.plan, seed, scratch=None)
            columns = _run(task, self.plan.limit(engine), range(self.n_partitions))
            return in_memory(columns, self.provenance(seed))

    def finish(self, scratch: Scratch, engine: Engine) -> None:
        """Make the partitions that are not in ``scratch`` yet."""
        unfinished = scratch.unfinished(self.n_partitions)
        if len(unfinished) < self.n_partitions:
            _log.info(
                "%d of %d partitions are finished", self.n_partitions - len(unfinished), self.n_partitions
            )
        if unfinished:
            matrix = _scaled_matrix(self.data, self.scaling, self.plan, scratch.directory)
            task = PartitionTask(matrix, self.scheme, self.settings, self.plan, scratch.seed, scratch)
            _run(task, self.plan.limit(engine), unfinished)

    def store(self, scratch: Scratch, target: Place, *, overwrite: bool, memory: int) -> Ensemble:
        """Write the finished partitions to ``target``; return the ensemble opened."""
        from bigcons.stores.ensemble import write_partitions  # imports zarr

        return write_partitions(
            str(target),
            [scratch.partition(u) for u in range(self.n_partitions)],
            n_objects=self.data.n_objects,
            provenance=self.provenance(scratch.seed),
            overwrite=overwrite,
            memory=memory,
        )

    def provenance(self, seed: int) -> dict[str, Any]:
        """Return what an ensemble says it was made with."""
        return {**self.parameters(), "seed": seed, "source": self.data.where}

    def parameters(self) -> dict[str, Any]:
        """Return all but the seed that decides the labels of a partition; resuming asks for the same."""
        from sklearn import __version__ as sklearn_version

        kept, checked = self.scaling.kept, self.scaling.mean.tobytes() + self.scaling.scale.tobytes()
        return {
            "generator": self.scheme.name,
            **self.settings._asdict(),
            **self.scheme.parameters(),
            "algorithm": self.plan.algorithm,
            "standardize": self.standardize,
            "n_objects": self.data.n_objects,
            "features": [self.data.names[c] for c in kept],
            "features_checksum": zlib.crc32(checked),
            "bigcons": __version__,
            "scikit_learn": sklearn_version,
        }


def in_memory(columns: Sequence[np.ndarray], provenance: dict[str, Any]) -> Ensemble:
    """Return the ensemble of partitions ``(n_objects,)``."""
    from bigcons.stores.ensemble import ensemble_of
    from bigcons.tables.memory import ColumnsTable

    return ensemble_of(ColumnsTable(columns, len(columns[0])), provenance=provenance)


def _check_seen(scheme: Scheme, settings: Settings, n_seen: int, n_objects: int) -> None:
    if n_seen < settings.n_clusters[1]:
        given = ", ".join(f"{name}={value:g}" for name, value in scheme.objects.parameters().items())
        raise InvalidInputError(
            f"{given} of n_objects={n_objects} is {n_seen} objects, fewer than "
            f"n_clusters={settings.n_clusters[1]}; {scheme.objects.remedy} or ask for fewer clusters."
        )


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
    return NpyTable(path)


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
