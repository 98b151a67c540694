"""How reliable base clusters are, by how the other partitions divide their objects.

A base cluster whose objects others put together too is to be relied on; one that they scatter is not. The
uncertainty of base cluster b is the entropy of the labels of its objects, summed over the partitions:

    H_b = sum_v c_v H_v(b),   H_v(b) = -sum_{a in v} p_ab log2 p_ab,

with the share ``p_ab = |a and b| / sum_{a' in v} |a' and b|`` of the objects of b that v labels, and weights
``c_v`` of the partitions, 1 without any. Its reliability is ``exp(-H_b / (theta sum_v c_v))``, the
"ensemble-driven cluster index" of Huang, Wang and Lai (2018), *Locally weighted ensemble clustering*. The own
partition adds nothing, as its labels of b are all alike; objects that v does not label are left out of its
entropy. In soft clusterings overlaps of memberships take the place of counts, and the own partition adds how
far it divides the objects of b itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigcons.coassociation.factorized import Weights
from bigcons.errors import InvalidInputError
from bigcons.execution.engine import Engine
from bigcons.overlaps.incidence import check_overlaps_plan, fold_overlaps
from bigcons.overlaps.sparse import (
    both_triangles,
    estimated_pairs,
    sparse_overlaps,
    takes_sparse,
)
from bigcons.stores.ensemble import Ensemble

# As published.
THETA = 0.4

LOCAL = "local"

# Base clusters whose overlaps are held at once.
AT_ONCE = 1_000


def weights_of(
    name: str, weights: Any, ensemble: Ensemble, engine: Engine, memory: str | float | None
) -> Weights | None:
    """Return what a parameter ``weights`` of the method ``name`` tells: "local", one number for each
    partition, or None.

    With "local", base clusters join objects by their reliability, and all partitions count the same. Raises
    InvalidInputError for others, MemoryBudgetError if ``memory`` cannot hold the overlaps.
    """
    if not isinstance(weights, str):
        return Weights.given(weights, ensemble.offsets)
    if weights != LOCAL:
        raise InvalidInputError(
            f"weights={weights!r} is not known; use {LOCAL!r}, one number for each partition, or None.",
            parameter="weights",
        )
    by_base_cluster = reliability(ensemble, engine, name=f"{name} with weights='local'", memory=memory)
    return Weights(np.ones(ensemble.n_partitions), by_base_cluster, ensemble.offsets)


def reliability(
    ensemble: Ensemble,
    engine: Engine,
    counts: np.ndarray | None = None,
    *,
    name: str = "the reliability of base clusters",
    memory: str | float | None = None,
) -> np.ndarray:
    """Return the reliability (B,) of the base clusters of an ensemble; ``counts`` (M,) weigh the partitions.

    One pass over the labels, O(n M^2) time; two of very many base clusters, whose overlaps are then sparse.
    Logs the memory of this step of the method ``name``, and refuses a budget that cannot hold it.
    """
    if takes_sparse(ensemble):
        n_pairs = estimated_pairs(ensemble, engine)
        upper = sparse_overlaps(name, ensemble, engine, memory, n_pairs, columns=0, in_memory=False)
        return reliability_of_overlaps(both_triangles(upper), ensemble.offsets, counts)
    check_overlaps_plan(name, ensemble, engine, memory, columns=0, in_memory=False)
    return reliability_of_overlaps(fold_overlaps(ensemble, engine), ensemble.offsets, counts)


def reliability_of_table(incidence: Any, offsets: np.ndarray, counts: np.ndarray | None = None) -> np.ndarray:
    """Return the reliability (B,) of base clusters from the incidence matrix H (rows, B) of some objects.

    H is a csr_array of SciPy's, ``counts`` (M,) are weights of the partitions. The overlaps of `AT_ONCE` base
    clusters at a time: 2,400 objects in 200 partitions of 40 clusters take 2 s.
    """
    members, B = incidence.T.tocsr(), incidence.shape[1]
    parts = []
    for first in range(0, B, AT_ONCE):
        overlaps = (members[first : first + AT_ONCE] @ incidence).tocsr()
        parts.append(reliability_of_overlaps(overlaps, offsets, counts))
    return np.concatenate(parts)


def reliability_of_overlaps(
    overlaps: Any, offsets: np.ndarray, counts: np.ndarray | None = None
) -> np.ndarray:
    """Return the reliability (B,) of base clusters from their overlaps ``H^T H`` (B, B).

    A table, or a csr_array of both triangles; ``counts`` (M,) are weights of the partitions.
    """
    is_table, M = isinstance(overlaps, np.ndarray), offsets.size - 1
    shared = overlaps if is_table else overlaps.data
    n_log_n = shared * np.log2(np.where(shared > 0, shared, 1.0))
    if is_table:
        sizes, sums = (np.add.reduceat(of, offsets[:-1], axis=1) for of in (shared, n_log_n))
    else:
        B = overlaps.shape[0]
        at = np.repeat(np.arange(B) * M, np.diff(overlaps.indptr))
        at += np.repeat(np.arange(M), np.diff(offsets))[overlaps.indices]
        sizes, sums = (np.bincount(at, of, B * M).reshape(B, M) for of in (shared, n_log_n))
    sizes = np.where(sizes > 0, sizes, 1.0)
    entropies = np.maximum(np.log2(sizes) - sums / sizes, 0.0)  # 0 where a partition labels no object of b
    counts = np.ones(M) if counts is None else counts
    return np.asarray(np.exp(-np.einsum("bu,u->b", entropies, counts) / (THETA * counts.sum())))
