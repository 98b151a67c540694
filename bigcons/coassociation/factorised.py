"""The co-association of all pairs in factorised form: what the squared divergence asks of it.

With ``S_b`` the summed memberships of base cluster ``b`` and ``T_u`` the summed outer products of the objects
seen in partition ``u``, the sums ``sum c_ij y_i.y_j`` and ``sum N_ij (y_i.y_j)^2`` over all pairs are norms
of S and T less what each object would contribute with itself. One pass over the labels, linear cost.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigcons.kernels import all_pairs as kernel


class State(NamedTuple):
    """What all objects together mean to one object. Sizes: B base clusters, M partitions, K clusters."""

    n_clusters: int
    S: np.ndarray
    """(B, padded K): summed memberships of each base cluster."""
    T: np.ndarray
    """(M, padded K(K+1)/2): summed outer products of the objects seen in each partition, entries k <= r at
    r(r+1)/2 + k."""
    squares: float
    """Sum of m_i |y_i|^2, m_i the number of labels of object i."""
    quartics: float
    """Sum of m_i |y_i|^4."""

    def scaled(self, factor: float) -> State:
        """Return the state of ``factor`` times as many objects of the same kind."""
        return State(
            self.n_clusters, self.S * factor, self.T * factor, self.squares * factor, self.quartics * factor
        )

    @property
    def objective(self) -> float:
        """The objective over all pairs, less ``sum c_ij^2 / N_ij``, which memberships do not change."""
        agreement = dot(self.S, self.S) - self.squares
        together = inner(self.n_clusters, self.T, self.T) - self.quartics
        return float(-agreement + 0.5 * together)


def empty_state(n_base_clusters: int, n_partitions: int, n_clusters: int) -> State:
    """Return the state of no objects."""
    S = np.zeros((n_base_clusters, kernel.padded(n_clusters)))
    T = np.zeros((n_partitions, kernel.padded(kernel.triangle(n_clusters))))
    return State(n_clusters, S, T, 0.0, 0.0)


def state_of_block(labels: np.ndarray, offsets: np.ndarray, memberships: np.ndarray) -> State:
    """Return the state of a block's objects under the given memberships (rows, K) float32."""
    _, S, T, _, _ = empty_state(*sizes_of(offsets, labels, memberships))
    sums = np.zeros(2)
    kernel.accumulate(labels, offsets, memberships, S, T, sums)
    return State(memberships.shape[1], S, T, *sums.tolist())


def add_states(a: State, b: State) -> State:
    """Add ``b`` to ``a`` in place, and return it."""
    np.add(a.S, b.S, out=a.S)
    np.add(a.T, b.T, out=a.T)
    return State(a.n_clusters, a.S, a.T, a.squares + b.squares, a.quartics + b.quartics)


def sizes_of(offsets: np.ndarray, labels: np.ndarray, memberships: np.ndarray) -> tuple[int, int, int]:
    """Return the numbers of base clusters, partitions and clusters."""
    return int(offsets[-1]), labels.shape[1], memberships.shape[1]


def dot(A: np.ndarray, B: np.ndarray) -> float:
    """Return the inner product of two matrices: not by BLAS, whose sums depend on its number of threads."""
    return float(np.einsum("ij,ij->", A, B))


def inner(n_clusters: int, A: np.ndarray, B: np.ndarray) -> float:
    """Return the summed inner products of symmetric matrices of which triangles are stored."""
    weights = 2.0 * np.ones((n_clusters, n_clusters)) - np.eye(n_clusters)
    weights = weights[np.tril_indices(n_clusters)]
    return float(np.einsum("uq,uq,q->", A[:, : weights.size], B[:, : weights.size], weights))


def clusters_in_order(S: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return a copy of a table such as S with cluster ``order[k]`` as its ``k``-th."""
    columns = np.arange(S.shape[1])
    columns[: order.size] = order
    return np.take(S, columns, axis=1)


def triangles_in_order(T: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return a copy of a table such as T with cluster ``order[k]`` as its ``k``-th."""
    first, second = (order[index] for index in np.tril_indices(order.size))
    larger, smaller = np.maximum(first, second), np.minimum(first, second)
    columns = np.arange(T.shape[1])
    columns[: larger.size] = larger * (larger + 1) // 2 + smaller
    return np.take(T, columns, axis=1)
