"""Graph and hypergraph partitioning by optional packages: METIS and Mt-KaHyPar."""

from __future__ import annotations

import importlib
import importlib.util
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from bigcons.errors import MissingDependencyError
from bigcons.execution.engine import available_cores

# METIS takes integer weights: the largest edge weight is scaled to this, or to less if the sum would exceed
# the limit of builds with 32-bit integers.
LARGEST_WEIGHT = 10_000
LARGEST_TOTAL = 1 << 30

# Bytes per stored entry of a graph (two per edge) while it is built and partitioned.
BYTES_PER_ENTRY = 64

# Bytes per vertex of a hyperedge in Python lists and in the partitioner.
BYTES_PER_PIN = 80


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
    """Return METIS's parts (n,) int32 of a graph and the weight of the edges cut.

    No part has more than ``(1 + imbalance) n / n_parts`` vertices, unless METIS finds no such cut.
    """
    try:
        import pymetis
    except ImportError:
        raise MissingDependencyError(
            "partitioner='metis' needs pymetis, which is not installed; pip install 'bigcons[graph]', or use "
            "the default partitioner.",
            extra="graph",
        ) from None
    if n_parts == 1:
        return np.zeros(len(graph.indptr) - 1, np.int32), 0.0
    options = pymetis.Options(seed=seed % (2**31 - 1), ufactor=max(1, round(1000 * imbalance)))
    edges = pymetis.CSRAdjacency(*(part.astype(np.int64, copy=False) for part in graph[:2]))
    # recursive bisection, its default for few parts, starts from equal parts and rarely changes them
    cut, parts = pymetis.part_graph(n_parts, edges, eweights=graph.weights, recursive=False, options=options)
    return np.asarray(parts, np.int32), cut / graph.scale


def partition_hypergraph(
    pins: list[np.ndarray],
    weights: np.ndarray,
    n_vertices: int,
    n_parts: int,
    imbalance: float,
    seed: int,
) -> tuple[np.ndarray, float]:
    """Return Mt-KaHyPar's parts (n_vertices,) int32 of a hypergraph and the weight of the hyperedges cut.

    ``pins`` are the vertices of each hyperedge, ``weights`` whole numbers > 0. The deterministic mode gives
    the same parts for the same seed with any number of threads.
    """
    if n_parts == 1:
        return np.zeros(n_vertices, np.int32), 0.0
    mtkahypar, session = _mtkahypar()
    mtkahypar.set_seed(seed % (2**31 - 1))
    context = session.context_from_preset(mtkahypar.PresetType.DETERMINISTIC)
    context.set_partitioning_parameters(n_parts, imbalance, mtkahypar.Objective.CUT)
    context.logging = False
    hypergraph = session.create_hypergraph(
        context,
        n_vertices,
        len(pins),
        [vertices.tolist() for vertices in pins],
        [1] * n_vertices,
        weights.tolist(),
    )
    found = hypergraph.partition(context)
    return np.array(found.get_partition(), np.int32), float(found.cut())


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
            "partitioner='mtkahypar' needs mtkahypar, which is not installed; pip install 'bigcons[graph]', "
            "or use partitioner='spectral'.",
            extra="graph",
        ) from None
    return mtkahypar, mtkahypar.initialize(available_cores(), print_warnings=False)
