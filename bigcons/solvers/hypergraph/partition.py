"""Partitioners of graphs and hypergraphs by other packages, which are optional: METIS and Mt-KaHyPar."""

from __future__ import annotations

import importlib
import importlib.util
from functools import cache
from typing import Any

import numpy as np

from bigcons.errors import MissingDependencyError
from bigcons.execution.engine import available_cores

# Weights are whole numbers there; the largest edge weight becomes this.
LARGEST_WEIGHT = 10_000

# What a stored entry of a graph (both directions of an edge) takes while it is built and partitioned.
BYTES_PER_ENTRY = 64

# What a vertex of a hyperedge takes, in Python lists and in the partitioner.
BYTES_PER_PIN = 80


def partition_graph(
    indptr: np.ndarray,
    indices: np.ndarray,
    weights: np.ndarray | None,
    n_parts: int,
    imbalance: float,
    seed: int,
) -> tuple[np.ndarray, float]:
    """Return the parts (n,) int32 that METIS cuts a graph into, and the weight of the edges cut.

    The graph in CSR form, without self-loops, each edge in both directions, weights > 0 (None: all 1).
    No part weighs more than ``(1 + imbalance) n / n_parts``, unless METIS finds no such cut.
    """
    pymetis = _pymetis()
    if n_parts == 1:
        return np.zeros(len(indptr) - 1, np.int32), 0.0
    scale = 1.0
    whole = None
    if weights is not None and len(weights):
        scale = LARGEST_WEIGHT / float(weights.max())
        whole = np.maximum(np.rint(weights * scale), 1).astype(np.int64)
    options = pymetis.Options(seed=seed % (2**31 - 1), ufactor=max(1, round(1000 * imbalance)))
    graph = pymetis.CSRAdjacency(indptr.astype(np.int64), indices.astype(np.int64))
    # its recursive bisection, the default for few parts, starts from even ones and seldom leaves them
    cut, parts = pymetis.part_graph(n_parts, graph, eweights=whole, recursive=False, options=options)
    return np.asarray(parts, np.int32), cut / scale


def partition_hypergraph(
    pins: list[np.ndarray],
    weights: np.ndarray,
    n_vertices: int,
    n_parts: int,
    imbalance: float,
    seed: int,
) -> tuple[np.ndarray, float]:
    """Return the parts (n_vertices,) int32 that Mt-KaHyPar finds, and the weight of the hyperedges cut.

    ``pins`` are the vertices of each hyperedge, ``weights`` whole numbers > 0. Its deterministic mode: the
    same parts for the same seed with any number of threads.
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


def _pymetis() -> Any:
    try:
        import pymetis
    except ImportError:
        raise MissingDependencyError(
            "partitioner='metis' needs pymetis, which is not installed; pip install 'bigcons[graph]', or use "
            "the default partitioner."
        ) from None
    return pymetis


@cache
def _mtkahypar() -> tuple[Any, Any]:
    """Return the package and its session, of which a process has one."""
    try:
        mtkahypar = importlib.import_module("mtkahypar")
    except ImportError:
        raise MissingDependencyError(
            "partitioner='mtkahypar' needs mtkahypar, which is not installed; pip install mtkahypar, or use "
            "partitioner='spectral'."
        ) from None
    return mtkahypar, mtkahypar.initialize(available_cores(), print_warnings=False)
