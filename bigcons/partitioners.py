"""Graph and hypergraph partitioning by optional packages: METIS and Mt-KaHyPar."""

from __future__ import annotations

import importlib
import importlib.util
import math
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from bigcons.errors import ConsensusWarning, MissingDependencyError, warn_user
from bigcons.run.engine import available_cores
from bigcons.seeding import generator

# METIS takes integer weights: the largest edge weight is scaled to this, or to less if the sum would exceed
# the limit of builds with 32-bit integers.
LARGEST_WEIGHT = 10_000
LARGEST_TOTAL = 1 << 30

# Vertices up to which the least cut is searched for, which takes up to a second.
SEARCHED = 12

# Seeds of METIS that are tried until a cut keeps to the balance.
N_ATTEMPTS = 10

# Bytes per stored entry of a graph (two per edge) while it is built and partitioned.
BYTES_PER_ENTRY = 64

# The state of Mt-KaHyPar belongs to the process, so that hypergraphs are partitioned one at a time.
_ONE_AT_A_TIME = threading.Lock()


class Graph(NamedTuple):
    """A graph in CSR form, without self-loops, each edge in both directions."""

    indptr: np.ndarray
    indices: np.ndarray
    weights: np.ndarray | None = None
    """Whole numbers > 0; None: all 1."""
    scale: float = 1.0
    """The factor by which weights were multiplied before rounding."""


def graph_of(weights: np.ndarray) -> Graph:
    """Return the graph of a symmetric matrix (n, n) of edge weights, which is overwritten.

    The diagonal is ignored. Entries that are not positive or round to 0 are not edges: those below 1/20,000
    of the largest, or a larger share if the sum of all weights is large.
    """
    np.fill_diagonal(weights, 0.0)
    largest, total = weights.max(initial=0.0), weights.sum(where=weights > 0)
    scale = min(LARGEST_WEIGHT / largest, LARGEST_TOTAL / total) if largest > 0 else 1.0
    weights *= scale
    edges = np.rint(weights, out=weights) > 0
    indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(edges, axis=1))])
    return Graph(indptr, np.nonzero(edges)[1], weights[edges].astype(np.int64), scale)


def partition_graph(graph: Graph, n_parts: int, imbalance: float, seed: int) -> tuple[np.ndarray, float]:
    """Return balanced parts (n,) int32 of a graph by METIS and the weight of the edges cut.

    No part has more than ``(1 + imbalance) n / n_parts`` vertices, or than ``n / n_parts`` rounded up if the
    former is too little for all, and none is empty. METIS partitions both k ways at once, which cuts less in
    large graphs, and by recursive bisection, which rarely leaves a part of a small one empty; the lesser cut
    is kept. If neither keeps to the balance, other seeds are tried, and a ConsensusWarning says if none does.
    Graphs of at most `SEARCHED` vertices are searched for the least cut: METIS misses it in a quarter.
    """
    try:
        import pymetis
    except ImportError:
        raise MissingDependencyError(
            "partitioner='metis' needs pymetis, which is not installed; pip install 'bigcons[graph]', or use "
            "the default partitioner.",
            extra="graph",
        ) from None
    n = len(graph.indptr) - 1
    if n_parts == 1:
        return np.zeros(n, np.int32), 0.0
    if n_parts >= n:
        return np.arange(n, dtype=np.int32), float(_weights_of(graph).sum()) / 2 / graph.scale
    share = n / n_parts
    most = max(math.ceil(share), math.floor((1 + imbalance) * share))
    if n <= SEARCHED:
        fewest = max(1, min(math.floor(share), math.ceil((1 - imbalance) * share)))
        parts, cut = least_cut(graph, n_parts, fewest, most)
        return parts, cut / graph.scale
    allowed = max(imbalance, most / share - 1)  # below the latter METIS cuts at random
    edges = pymetis.CSRAdjacency(*(part.astype(np.int64, copy=False) for part in graph[:2]))
    for attempt in range(N_ATTEMPTS):
        drawn = (seed + attempt) % (2**31 - 1)
        options = pymetis.Options(seed=drawn, ufactor=max(1, math.ceil(1000 * allowed)))
        found = []
        for recursive in (False, True):
            cut, of_vertices = pymetis.part_graph(
                n_parts, edges, eweights=graph.weights, recursive=recursive, options=options
            )
            parts = np.asarray(of_vertices, np.int32)
            sizes = np.bincount(parts, minlength=n_parts)
            excess = max(int(np.max(sizes)) - most, 0) + np.count_nonzero(sizes == 0)
            found.append((excess, cut, parts))
        excess, cut, parts = min(found, key=lambda one: one[:2])
        if not excess:
            break
    else:
        sizes = np.bincount(parts, minlength=n_parts)
        warn_user(
            f"METIS finds no cut into {n_parts} parts of 1 to {most} vertices, but one of {np.min(sizes)} to "
            f"{np.max(sizes)}; use the default partitioner, another n_clusters or a larger imbalance.",
            ConsensusWarning,
        )
    return parts, cut / graph.scale


def _weights_of(graph: Graph) -> np.ndarray:
    return np.ones(len(graph.indices), np.int64) if graph.weights is None else graph.weights


def least_cut(graph: Graph, n_parts: int, fewest: int, most: int) -> tuple[np.ndarray, float]:
    """Return the parts (n,) int32, of ``fewest`` to ``most`` vertices each, of least cut, and that cut.

    Branch and bound: the vertex whose part matters most is placed next, and a branch is left when the edges
    cut, and those that every other vertex must still cut to the placed ones, are not fewer than in the best.
    Of equal cuts the first found.
    """
    n = len(graph.indptr) - 1
    weights = np.zeros((n, n))
    weights[np.repeat(np.arange(n), np.diff(graph.indptr)), graph.indices] = _weights_of(graph)
    parts, sizes = np.full(n, -1, np.int32), np.zeros(n_parts, np.int64)
    joined = np.zeros((n_parts, n))  # weight of each vertex to the placed ones of each part
    best, least = parts, np.inf

    def place(cut: float) -> None:
        nonlocal best, least
        left, short = np.flatnonzero(parts < 0), np.maximum(fewest - sizes, 0)
        if not left.size:
            best, least = parts.copy(), cut
            return
        if short.sum() > left.size:
            return
        open_parts = np.flatnonzero(short > 0 if short.sum() == left.size else sizes < most)
        is_empty = sizes[open_parts] == 0
        open_parts = open_parts[~is_empty | (np.cumsum(is_empty) == 1)]  # empty parts are all alike
        added = joined[:, left].sum(axis=0) - joined[np.ix_(open_parts, left)]
        lowest = added.min(axis=0)
        others = cut + lowest.sum() - lowest
        matters = np.ptp(np.sort(added, axis=0)[:2], axis=0)
        chosen = np.lexsort((-weights[left].sum(axis=1), -matters))[0]
        vertex = left[chosen]
        for at in np.argsort(added[:, chosen], kind="stable"):
            if others[chosen] + added[at, chosen] >= least:
                return
            part = open_parts[at]
            parts[vertex], joined[part] = part, joined[part] + weights[vertex]
            sizes[part] += 1
            place(cut + added[at, chosen])
            sizes[part] -= 1
            parts[vertex], joined[part] = -1, joined[part] - weights[vertex]

    place(0.0)
    return best, float(least)


def partition_hypergraph(
    pins: Sequence[np.ndarray],
    weights: np.ndarray,
    sizes: np.ndarray,
    n_parts: int,
    imbalance: float,
    seed: int,
    objective: str,
) -> tuple[np.ndarray, float]:
    """Return Mt-KaHyPar's parts (n_vertices,) int32 of a hypergraph, and the objective that they reach.

    ``pins`` are the vertices of each hyperedge, ``weights`` numbers > 0; unless all are whole, they are
    rounded to a 10,000th of the largest, and no less; ``sizes`` (n_vertices,) int64 are what vertices weigh.
    ``objective`` is "cut", the weight of the hyperedges in more than one part, or "km1", which counts a
    hyperedge once for every part it is in beyond the first. No part has more than ``(1 + imbalance)`` times
    its equal share of the sizes, rounded up. The deterministic modes give the same parts with any number of
    threads, and do not use the seed of Mt-KaHyPar: ``seed`` shuffles the hypergraph.
    """
    n_vertices = len(sizes)
    if n_parts == 1:
        return np.zeros(n_vertices, np.int32), 0.0
    mtkahypar, session = _mtkahypar()
    scale = 1.0 if (weights == np.rint(weights)).all() else LARGEST_WEIGHT / weights.max()
    rounded = np.maximum(np.rint(scale * weights), 1).astype(np.int64)
    draw = generator(seed, "partitioners.hypergraph")
    place, order = draw.permutation(n_vertices).astype(np.int32), draw.permutation(len(pins))
    with _ONE_AT_A_TIME:
        mtkahypar.set_seed(0)
        context = session.context_from_preset(mtkahypar.PresetType.DETERMINISTIC_QUALITY)
        context.set_partitioning_parameters(
            n_parts, imbalance, getattr(mtkahypar.Objective, objective.upper())
        )
        context.logging = False
        hypergraph = session.create_hypergraph(
            context,
            n_vertices,
            len(pins),
            _Shuffled(pins, order, place),
            sizes[np.argsort(place)].tolist(),
            rounded[order].tolist(),
        )
        found = hypergraph.partition(context)
        value = found.cut() if objective == "cut" else found.km1()
        return np.array(found.get_partition(), np.int32)[place], value / scale


class _Shuffled:
    """Hyperedges in another order, of vertices with other numbers: lists that are made one at a time, for
    all of them would take several times the memory of the arrays.
    """

    def __init__(self, pins: Sequence[np.ndarray], order: np.ndarray, place: np.ndarray) -> None:
        self._pins, self._order, self._place = pins, order, place

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, index: int) -> list[int]:
        numbers: list[int] = self._place[self._pins[self._order[index]]].tolist()
        return numbers


def has_mtkahypar() -> bool:
    """Return whether Mt-KaHyPar is installed."""
    return importlib.util.find_spec("mtkahypar") is not None


@cache
def _mtkahypar() -> tuple[Any, Any]:
    """Return the package and the process's only session."""
    try:
        mtkahypar = importlib.import_module("mtkahypar")
    except ImportError:
        raise MissingDependencyError(
            "the cut of a hypergraph needs mtkahypar, which is not installed; pip install 'bigcons[graph]', "
            "or use objective='laplacian'.",
            extra="graph",
        ) from None
    return mtkahypar, mtkahypar.initialize(available_cores(), print_warnings=False)
