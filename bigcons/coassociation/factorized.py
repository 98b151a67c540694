"""The co-association of all pairs in factorized form, for the squared divergence.

With ``S_b`` the summed memberships of base cluster ``b`` and ``T_u`` the summed outer products of the objects
seen in partition ``u``, the sums ``sum c_ij y_i.y_j`` and ``sum N_ij (y_i.y_j)^2`` over all pairs are norms
of S and T minus the terms of each object with itself. One pass over the labels, linear cost. A weight of a
partition counts as that many copies of it. Of objects in one cluster each, S is what `counts_of` counts.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from bigcons.kernels import all_pairs as kernel
from bigcons.kernels.cluster_tables import padded
from bigcons.weights import Weights


class AgreementSums(NamedTuple):
    """The influence of all objects on one of them, as sums over the label matrix.

    Sizes: B base clusters, M partitions, K clusters.
    """

    n_clusters: int
    S: np.ndarray
    """(B, padded K): summed memberships of each base cluster."""
    T: np.ndarray
    """(M, padded K(K+1)/2): summed outer products of the objects seen in each partition, entries k <= r at
    r(r+1)/2 + k."""
    squares: float
    """Sum of m_i |y_i|^2, with m_i the number of labels of object i or the sum of their weights."""
    quartics: float
    """Sum of m_i |y_i|^4."""
    weights: Weights | None = None
    """None: all partitions count the same. S and T are what they are without weights."""

    def scaled(self, factor: float) -> AgreementSums:
        """Return the sums over ``factor`` times as many objects of the same kind."""
        return self._replace(
            S=self.S * factor,
            T=self.T * factor,
            squares=self.squares * factor,
            quartics=self.quartics * factor,
        )

    @property
    def objective(self) -> float:
        """The objective over all pairs without ``sum c_ij^2 / N_ij``, which memberships do not change."""
        agreement = self.dot(self.S, self.S) - self.squares
        products = self.inner(self.T, self.T) - self.quartics
        return float(-agreement + 0.5 * products)

    @property
    def partition_weights(self) -> np.ndarray | None:
        """Weights (M,) of the partitions, if they have any."""
        return None if self.weights is None else self.weights.partitions

    def dot(self, A: np.ndarray, B: np.ndarray) -> float:
        """Return the inner product of two tables such as S, partitions by their weights.

        Not by BLAS, whose sums depend on its number of threads.
        """
        if self.weights is None:
            return float(np.einsum("ij,ij->", A, B))
        return float(np.einsum("i,i->", np.einsum("ij,ij->i", A, B), self.weights.base_clusters))

    def inner(self, A: np.ndarray, B: np.ndarray) -> float:
        """Return the inner product of two tables such as T, partitions by their weights."""
        counts = 2.0 * np.ones((self.n_clusters, self.n_clusters)) - np.eye(self.n_clusters)
        counts = counts[np.tril_indices(self.n_clusters)]  # of each entry of the triangle in the whole
        A, B = A[:, : counts.size], B[:, : counts.size]
        if self.weights is None:
            return float(np.einsum("uq,uq,q->", A, B, counts))
        return float(np.einsum("uq,uq,q,u->", A, B, counts, self.weights.partitions))


def agreement_sums(
    labels: np.ndarray, offsets: np.ndarray, memberships: np.ndarray, weights: Weights | None = None
) -> AgreementSums:
    """Return the sums over a block's objects under the given memberships (rows, K) float32."""
    K, powers = memberships.shape[1], np.zeros(2)
    S = in_lines((int(offsets[-1]), padded(K)))
    T = in_lines((offsets.size - 1, padded(K * (K + 1) // 2)))
    S[:], T[:] = 0.0, 0.0
    counts = None if weights is None else weights.partitions
    kernel.accumulate(labels, offsets, counts, memberships, S, T, powers)
    return AgreementSums(K, S, T, float(powers[0]), float(powers[1]), weights)


def add_sums(a: AgreementSums, b: AgreementSums) -> AgreementSums:
    """Add ``b`` to ``a`` in place, and return it."""
    np.add(a.S, b.S, out=a.S)
    np.add(a.T, b.T, out=a.T)
    return a._replace(squares=a.squares + b.squares, quartics=a.quartics + b.quartics)


def in_order(S: np.ndarray, T: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return copies of tables such as S and T with cluster ``order[k]`` as their ``k``-th."""
    first, second = order[np.array(np.tril_indices(order.size))]
    larger, smaller = np.maximum(first, second), np.minimum(first, second)
    s_order, t_order = np.arange(S.shape[1]), np.arange(T.shape[1])
    s_order[: order.size], t_order[: larger.size] = order, larger * (larger + 1) // 2 + smaller
    take = partial(np.take, axis=1, mode="clip")
    return take(S, s_order, out=in_lines(S.shape)), take(T, t_order, out=in_lines(T.shape))


def in_lines(shape: tuple[int, ...]) -> np.ndarray:
    """Return a table in float64, of any values, whose rows begin at cache lines: kernels add whole lines."""
    line, size = 8 * padded(1), 8 * shape[0] * shape[1]
    room = np.empty(size + line, np.uint8)
    start = -room.ctypes.data % line
    return room[start : start + size].view(np.float64).reshape(shape)
