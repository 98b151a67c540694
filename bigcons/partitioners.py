"""Graph and hypergraph partitioning by optional packages: METIS and Mt-KaHyPar."""

from __future__ import annotations

import importlib
import importlib.util
import math
import threading
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from bigcons.errors import ConsensusWarning, MissingDependencyError, warn_user
from bigcons.run.engine import available_cores
from bigcons.seeding import generator

# The share by which a part may exceed the mean.
IMBALANCE = 0.05

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


def graph_of(weights: np.ndarray) -> Graph:
    """Return the graph of a symmetric matrix (n, n) of edge weights, which is overwritten.

    The diagonal is ignored. Entries that are not positive or round to 0 are not edges: those below 1/20,000
    of the largest, or a larger share if the sum of all weights is large.
    """
    np.fill_diagonal(weights, 0.0)
    largest, total = weights.max(initial=0.0), weights.sum(where=weights > 0)
    # METIS takes whole weights, whose sum builds with 32-bit integers must hold
    scale = min(10_000 / largest, (1 << 30) / total) if largest > 0 else 1.0
    weights *= scale
    edges = np.rint(weights, out=weights) > 0
    indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(edges, axis=1))])
    return Graph(indptr, np.nonzero(edges)[1], weights[edges].astype(np.int64))


def partition_graph(graph: Graph, n_parts: int, seed: int) -> np.ndarray:
    """Return balanced parts (n,) int32 of a graph by METIS.

    No part has more than ``(1 + IMBALANCE) n / n_parts`` vertices, or than ``n / n_parts`` rounded up if the
    former is too little for all, and none is empty. METIS partitions both k ways at once, which cuts less in
    large graphs, and by recursive bisection, which rarely leaves a part of a small one empty; the lesser cut
    is kept. If neither keeps to the balance, and for small graphs, nine other seeds are tried; a
    ConsensusWarning says if none keeps to it.
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
        return np.zeros(n, np.int32)
    if n_parts >= n:
        return np.arange(n, dtype=np.int32)
    share = n / n_parts
    room = max(math.ceil(share), math.floor((1 + IMBALANCE) * share))
    imbalance = max(IMBALANCE, room / share - 1)  # below the latter METIS cuts at random
    edges = pymetis.CSRAdjacency(*(part.astype(np.int64, copy=False) for part in graph[:2]))
    cuts = []
    for attempt in range(10):
        attempt_seed = (seed + attempt) % (2**31 - 1)
        options = pymetis.Options(seed=attempt_seed, ufactor=max(1, math.ceil(1000 * imbalance)))
        for recursive in (False, True):
            cut, part_numbers = pymetis.part_graph(
                n_parts, edges, eweights=graph.weights, recursive=recursive, options=options
            )
            parts = np.asarray(part_numbers, np.int32)
            sizes = np.bincount(parts, minlength=n_parts)
            excess = max(int(np.max(sizes)) - room, 0) + np.count_nonzero(sizes == 0)
            cuts.append((excess, cut, parts))
        excess, _, parts = min(cuts, key=lambda one: one[:2])
        if n > 100 and not excess:
            break
    if excess:
        sizes = np.bincount(parts, minlength=n_parts)
        warn_user(
            f"METIS finds no cut into {n_parts} parts of 1 to {room} vertices, but one of {np.min(sizes)} to "
            f"{np.max(sizes)}; use the default partitioner or another n_clusters.",
            ConsensusWarning,
        )
    return parts


def partition_hypergraph(
    pins: list[np.ndarray], weights: np.ndarray, sizes: np.ndarray, n_parts: int, seed: int, objective: str
) -> tuple[np.ndarray, float]:
    """Return Mt-KaHyPar's parts (n_vertices,) int32 of a hypergraph, and the objective that they reach.

    ``pins`` are the vertices of each hyperedge, ``weights`` numbers > 0; unless all are whole, they are
    rounded to a 10,000th of the largest, and no less; ``sizes`` (n_vertices,) int64 are what vertices weigh.
    ``objective`` is "cut", the weight of the hyperedges in more than one part, or "km1", which counts a
    hyperedge once for every part it is in beyond the first. No part has more than ``(1 + IMBALANCE)`` times
    its equal share of the sizes, rounded up. The deterministic modes give the same parts with any number of
    threads, and do not use the seed of Mt-KaHyPar: ``seed`` shuffles the hypergraph.
    """
    n_vertices = len(sizes)
    if n_parts == 1:
        return np.zeros(n_vertices, np.int32), 0.0
    mtkahypar, session = _mtkahypar()
    scale = 1.0 if (weights == np.rint(weights)).all() else 10_000 / weights.max()
    rounded = np.maximum(np.rint(scale * weights), 1).astype(np.int64)
    draw = generator(seed, "partitioners.hypergraph")
    place, order = draw.permutation(n_vertices).astype(np.int32), draw.permutation(len(pins))
    with _ONE_AT_A_TIME:
        mtkahypar.set_seed(0)
        context = session.context_from_preset(mtkahypar.PresetType.DETERMINISTIC_QUALITY)
        context.set_partitioning_parameters(
            n_parts, IMBALANCE, getattr(mtkahypar.Objective, objective.upper())
        )
        context.logging = False
        edges, vertex_sizes = [place[pins[e]].tolist() for e in order], sizes[np.argsort(place)].tolist()
        counts = context, n_vertices, len(pins)
        hypergraph = session.create_hypergraph(*counts, edges, vertex_sizes, rounded[order].tolist())
        parts = hypergraph.partition(context)
        vertex_parts = np.array(parts.get_partition(), np.int32)[place]
    n_extra = np.array([max(len(np.unique(vertex_parts[vertices])), 1) - 1 for vertices in pins])
    return vertex_parts, float(weights @ (np.minimum(n_extra, 1) if objective == "cut" else n_extra))


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
