"""Ensembles of different algorithms on the same data, in memory."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bigcons.errors import InvalidInputError, MemoryBudgetError, MissingDependencyError
from bigcons.execution.engine import Engine, open_engine
from bigcons.generate.clusterers import CLUSTERERS, LINKAGES
from bigcons.generate.counts import check_range
from bigcons.generate.partition import calm_scikit_learn, one_thread
from bigcons.generate.plan import limit_threads
from bigcons.generate.scaling import measure
from bigcons.memory import format_size, parse_size
from bigcons.progress import progress
from bigcons.seeding import SeedLike, generator, resolve_seed
from bigcons.storage.commit import refuse_existing
from bigcons.stores.features import Features, open_features
from bigcons.validation import check_choice
from bigcons.version import __version__

if TYPE_CHECKING:
    from bigcons.stores.ensemble import Ensemble

_log = logging.getLogger(__name__)

SETS = {
    "pcc": (*LINKAGES, "kmeans", "spectral"),
    "rcc": tuple(name for name in CLUSTERERS if name.startswith(("kmeans", "graph"))),
}
"""Algorithms under one name."""


def diverse(
    features: object,
    *,
    n_clusters: int | tuple[int, int] = (2, 10),
    algorithms: str | Sequence[str] = "pcc",
    out: str | os.PathLike[str] | None = None,
    standardize: bool = True,
    memory: int | float | str = "1GB",
    random_state: SeedLike = None,
    overwrite: bool = False,
    client: object = None,
) -> Ensemble:
    """Return an ensemble of different algorithms, each for several numbers of clusters.

    Parameters
    ----------
    features
        As in `kmeans`; held in memory as float64.
    n_clusters
        Number of clusters, or a range (low, high), ends included, every number of which each algorithm
        is run for. The papers' tables are lost; the default is ours.
    algorithms
        Names, or the name of a set:

        "pcc" (ensembles of the second type of Lourenço et al. 2015): "single", "average", "ward" and
        "centroid" linkage, "kmeans", and "spectral" by Ng, Jordan and Weiss;

        "rcc" (robust centralised clustering of Strehl and Ghosh 2002): k-means by four distances,
        "kmeans", "kmeans-cosine", "kmeans-correlation", "kmeans-jaccard", and balanced graph
        partitioning by four similarities, "graph-euclidean", "graph-cosine", "graph-correlation",
        "graph-jaccard". Two of their ten algorithms are left out, for no well-kept library has them:
        the self-organizing map and hypergraph partitioning.

        Beside these "random", their baseline of random labels.
    out
        Path of the store to write; without it the ensemble stays in memory.
    standardize
        Give every column mean 0 and variance 1; else columns are used as they are. Constant columns
        are always dropped. Cosine and Jaccard similarities below 0, of which only centered data
        have many, are no edges of a graph.
    memory
        Bound on what is held at a time.
    random_state
        Seed. What an algorithm makes depends on the seed, its name and ``n_clusters``, not on the
        other algorithms or on workers.
    overwrite
        Replace the store at ``out``.
    client
        Engine: None or "threads", "serial", a Dask client or its address, or an Engine. Every
        algorithm is one task.

    Partitions are named after algorithm and number of clusters, such as "ward-3".

    Raises MemoryBudgetError, with the size that would do, if an algorithm that looks at all pairs does
    not fit (beyond 10,000 objects for linkage within 1 GB); InvalidInputError, StoreExistsError,
    and MissingDependencyError for graph partitioning without pymetis. Cost: the linkages, spectral
    clustering and graph partitioning take at least ``n_objects ** 2`` time, and 8, 36 and 48 bytes for
    every (ordered) pair of objects.
    """
    from bigcons.stores.ensemble import ensemble_of
    from bigcons.tables.memory import ColumnsTable

    low, high = check_range(n_clusters)
    names = _check_algorithms(algorithms)
    budget = parse_size(memory)
    if out is not None:
        refuse_existing(out, overwrite)
    data = open_features(features)
    if high >= data.n_objects:
        raise InvalidInputError(
            f"n_clusters={high} but there are {data.n_objects} objects; ask for fewer clusters than objects."
        )
    n_tasks = _n_tasks(data, names, budget)
    seed = resolve_seed(random_state)
    numbers = range(low, high + 1)
    with open_engine(client) as engine:
        task = _Task(_matrix(data, standardize=standardize), numbers, seed)
        columns = _run_algorithms(task, names, limit_threads(engine, n_tasks))
    source = ColumnsTable(columns, data.n_objects, [f"{name}-{k}" for name in names for k in numbers])
    provenance = {
        "generator": "diverse",
        "n_clusters": [low, high],
        "algorithms": names,
        "standardize": standardize,
        "seed": seed,
        "source": data.where,
        "bigcons": __version__,
    }
    return ensemble_of(source, out, provenance=provenance, overwrite=overwrite, memory=memory)


@dataclass(frozen=True)
class _Task:
    """Runs one algorithm on ``points (n_objects, n_features)`` for all numbers of clusters."""

    points: np.ndarray
    numbers: range
    seed: int

    def __call__(self, name: str) -> list[np.ndarray]:
        rng = generator(self.seed, f"generate.diverse.{name}")
        with one_thread():
            partitions = CLUSTERERS[name].make(self.points, self.numbers, rng)
        return [labels.astype(np.int32) for labels in partitions]


def _run_algorithms(task: _Task, names: list[str], engine: Engine) -> list[np.ndarray]:
    """Return the partitions (n_objects,) of all algorithms, those of one after those of another."""
    columns: list[np.ndarray] = []
    with calm_scikit_learn(), progress("run algorithms", len(names), "algorithms") as listener:
        for partitions in engine.map(task, names):
            columns += partitions
            listener.advance(1)
    return columns


def _check_algorithms(algorithms: str | Sequence[str]) -> list[str]:
    if isinstance(algorithms, str):
        algorithms = SETS.get(algorithms, (algorithms,))
    if not isinstance(algorithms, (list, tuple)):
        raise InvalidInputError(
            f"algorithms has type {type(algorithms).__name__}; give 'pcc', 'rcc', or names of algorithms."
        )
    names = list(algorithms)
    for name in names:
        check_choice("algorithms", name, (*SETS, *CLUSTERERS))
        if name in SETS:
            raise InvalidInputError(
                f"algorithms={names} has the set {name!r} among names; give one or the other."
            )
    if not names or len(set(names)) < len(names):
        raise InvalidInputError(f"algorithms={names} is empty or names one twice; name each once.")
    graphs = [name for name in names if name.startswith("graph")]
    if graphs and importlib.util.find_spec("pymetis") is None:
        raise MissingDependencyError(
            f"algorithm {graphs[0]!r} needs pymetis; install bigcons[graph], or name algorithms without it.",
            extra="graph",
        )
    return names


def _n_tasks(data: Features, names: list[str], budget: int) -> int:
    """How many algorithms fit into memory at a time; raises MemoryBudgetError if one does not."""
    points = 8 * data.n_objects * data.n_features
    needs = {name: 3 * points + CLUSTERERS[name].pair_bytes * data.n_objects**2 for name in names}
    largest = max(needs, key=lambda name: needs[name])
    if budget < points + needs[largest]:
        raise MemoryBudgetError(
            f"memory={format_size(budget)} cannot hold {largest!r} on n_objects={data.n_objects}, which "
            f"needs {format_size(points + needs[largest])}; raise the budget to that, take a sample of the "
            "objects, or use generate.kmeans.",
            needed=points + needs[largest],
            budget=budget,
        )
    return (budget - points) // needs[largest]


def _matrix(data: Features, *, standardize: bool) -> np.ndarray:
    """All features that vary, float64; not centered unless they are standardized, for angles notice."""
    scaling = measure(data, standardize=standardize)
    matrix = np.empty((data.n_objects, len(scaling.kept)))
    for block, values in data.iterate():
        matrix[block.start : block.stop] = values[:, scaling.kept]
    if standardize:
        matrix -= scaling.mean
        matrix /= scaling.scale
    return matrix
