"""PCC over all pairs with the squared divergence, as a fold over row blocks.

The whole interaction between objects goes through a state of a few thousand numbers (see ``kernels/all_pairs.py``
for the identities), so that a pass over the label matrix costs O(n M K + n K^2 M) whatever the number of pairs.
Every block starts from the same state and updates its own objects one after another; an exact line search along the
sum of all changes, whose quartic comes out of the same fold, then makes the pass as a whole lower the objective.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigcons.kernels import all_pairs as kernel

# A full step keeps the exact zeros of the memberships, so it is taken whenever it gains at least this share of
# what the best step length would.
FULL_STEP_SHARE = 0.5


class State(NamedTuple):
    """What all objects together mean to one object. Sizes: B base clusters, M partitions, K clusters."""

    n_clusters: int
    S: np.ndarray
    """(B, padded K): summed memberships of each base cluster."""
    T: np.ndarray
    """(M, padded K(K+1)/2): summed outer products of the objects seen in each partition, upper triangle."""
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
        """The objective over all pairs, less ``sum c_ij^2 / N_ij``, which does not depend on the memberships."""
        agreement = np.vdot(self.S, self.S) - self.squares
        together = _inner(self.n_clusters, self.T, self.T) - self.quartics
        return float(-agreement + 0.5 * together)


class Change(NamedTuple):
    """What one block, or all of them, would change: the statistics of a pass."""

    S: np.ndarray
    T: np.ndarray
    """Change of T at the full step."""
    T_step: np.ndarray
    """The part of it that is quadratic in the step: summed outer products of the changes."""
    totals: np.ndarray
    """See ``kernels.all_pairs.sweep``."""

    @property
    def gap(self) -> float:
        """The largest KKT gap met."""
        return float(self.totals[kernel.MAX_GAP])

    @property
    def n_moved(self) -> int:
        """Number of objects whose membership changed."""
        return int(self.totals[kernel.N_MOVED])


def empty_state(n_base_clusters: int, n_partitions: int, n_clusters: int) -> State:
    """Return the state of no objects."""
    S = np.zeros((n_base_clusters, kernel.padded(n_clusters)))
    T = np.zeros((n_partitions, kernel.padded(kernel.triangle(n_clusters))))
    return State(n_clusters, S, T, 0.0, 0.0)


def state_of_block(labels: np.ndarray, offsets: np.ndarray, memberships: np.ndarray) -> State:
    """Return the state of a block's objects under the given memberships (rows, K) float32."""
    _, S, T, _, _ = empty_state(*_sizes(offsets, labels, memberships))
    sums = np.zeros(2)
    kernel.accumulate(labels, offsets, memberships, S, T, sums)
    return State(memberships.shape[1], S, T, *sums.tolist())


def add_states(a: State, b: State) -> State:
    """Add ``b`` to ``a`` in place, and return it."""
    np.add(a.S, b.S, out=a.S)
    np.add(a.T, b.T, out=a.T)
    return State(a.n_clusters, a.S, a.T, a.squares + b.squares, a.quartics + b.quartics)


def update_block(
    state: State,
    labels: np.ndarray,
    offsets: np.ndarray,
    memberships: np.ndarray,
    updated: np.ndarray,
    threshold: float,
) -> Change:
    """Update each object of a block given all others, and return what that changes; ``updated`` gets the result.

    Objects whose KKT gap is at most ``threshold`` stay as they are. Cost: see ``kernels.all_pairs.sweep``.
    """
    S, T, T_step = state.S.copy(), state.T.copy(), np.zeros_like(state.T)
    totals = np.zeros(kernel.N_TOTALS)
    kernel.sweep(labels, offsets, S, T, S, T, T_step, memberships, updated, threshold, False, totals)
    np.subtract(S, state.S, out=S)
    np.subtract(T, state.T, out=T)
    return Change(S, T, T_step, totals)


def place_block(estimate: State, labels: np.ndarray, offsets: np.ndarray, placed: np.ndarray) -> State:
    """Give each object of a block its best membership under an estimated state; return the block's own state."""
    _, S, T, _, _ = empty_state(*_sizes(offsets, labels, placed))
    T_step = np.zeros_like(T)
    totals = np.zeros(kernel.N_TOTALS)
    kernel.sweep(labels, offsets, estimate.S, estimate.T, S, T, T_step, placed, placed, 0.0, True, totals)
    return State(placed.shape[1], S, T, float(totals[1]), float(totals[5]))


def add_changes(a: Change, b: Change) -> Change:
    """Add ``b`` to ``a`` in place, and return it."""
    gap = max(a.gap, b.gap)
    for total, part in zip(a, b, strict=True):
        np.add(total, part, out=total)
    a.totals[kernel.MAX_GAP] = gap
    return a


def line_search(state: State, change: Change) -> tuple[float, float]:
    """Return the step length in (0, 1] along a pass's changes and the change of the objective there.

    Along ``Y + gamma D`` the state is ``S + gamma S_D`` and ``T + gamma T_YD + gamma^2 T_DD``, so the objective is a
    quartic in ``gamma``, and its coefficients are inner products of what the fold returned.
    """
    K, S, T = state.n_clusters, state.S, state.T
    T_cross = change.T - change.T_step
    mb, mc, mab, mquad, mbc, mcc = change.totals[:6]
    quartic = np.array(
        [
            0.5 * _inner(K, change.T_step, change.T_step) - 0.5 * mcc,
            _inner(K, T_cross, change.T_step) - 2.0 * mbc,
            0.5 * _inner(K, T_cross, T_cross)
            + _inner(K, T, change.T_step)
            - mquad
            - np.vdot(change.S, change.S)
            + mc,
            _inner(K, T, T_cross) - 2.0 * mab - 2.0 * np.vdot(S, change.S) + 2.0 * mb,
            0.0,
        ]
    )
    stationary = np.roots(np.polyder(quartic))
    lengths = [1.0] + [float(r.real) for r in stationary if abs(r.imag) < 1e-9 and 0.0 < r.real < 1.0]
    best = min(lengths, key=lambda length: np.polyval(quartic, length))
    if np.polyval(quartic, 1.0) <= FULL_STEP_SHARE * np.polyval(quartic, best):
        best = 1.0
    return best, float(np.polyval(quartic, best))


def apply_change(state: State, change: Change, step: float) -> State:
    """Return the state after a step of the given length along a pass's changes."""
    mb, mc, mab, mquad, mbc, mcc = change.totals[:6]
    T_cross = change.T - change.T_step
    return State(
        state.n_clusters,
        state.S + step * change.S,
        state.T + step * T_cross + step**2 * change.T_step,
        float(state.squares + 2.0 * step * mb + step**2 * mc),
        float(
            state.quartics + 4.0 * step * mab + 2.0 * step**2 * mquad + 4.0 * step**3 * mbc + step**4 * mcc
        ),
    )


def _sizes(offsets: np.ndarray, labels: np.ndarray, memberships: np.ndarray) -> tuple[int, int, int]:
    return int(offsets[-1]), labels.shape[1], memberships.shape[1]


def _inner(n_clusters: int, A: np.ndarray, B: np.ndarray) -> float:
    """Return the summed inner products of symmetric matrices of which the upper triangles are stored."""
    weights = 2.0 * np.ones((n_clusters, n_clusters)) - np.eye(n_clusters)
    weights = weights[np.triu_indices(n_clusters)]
    return float(np.einsum("uq,uq,q->", A[:, : weights.size], B[:, : weights.size], weights))
