"""PCC over all pairs with the squared divergence, as a fold over row blocks.

The whole interaction between objects goes through a state of a few thousand numbers (see
``kernels/all_pairs.py`` for the identities), so that a pass over the label matrix costs O(n M K + n K^2 M)
whatever the number of pairs. Every block starts from the same state and updates its own objects one after
another; an exact line search along the sum of all changes, whose quartic comes out of the same fold, then
makes the pass as a whole lower the objective.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigcons.coassociation.factorised import (
    State,
    clusters_in_order,
    dot,
    empty_state,
    inner,
    sizes_of,
    triangles_in_order,
)
from bigcons.kernels import all_pairs as kernel

# A full step keeps the exact zeros of the memberships, so it is taken whenever it gains at least this share
# of what the best step length would.
FULL_STEP_SHARE = 0.5


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


def update_block(
    state: State,
    labels: np.ndarray,
    offsets: np.ndarray,
    memberships: np.ndarray,
    updated: np.ndarray,
    threshold: float,
) -> Change:
    """Update each object of a block given all others, and return what that changes; ``updated`` gets the
    result.

    Objects whose KKT gap is at most ``threshold`` stay as they are. Cost: see ``kernels.all_pairs.sweep``.
    """
    order = np.argsort(-state.S[:, : state.n_clusters].sum(axis=0), kind="stable")  # heaviest first
    before = clusters_in_order(state.S, order), triangles_in_order(state.T, order)
    S, T = before[0].copy(), before[1].copy()
    T_step = np.zeros_like(T)
    totals = np.zeros(kernel.N_TOTALS)
    kernel.sweep(labels, offsets, S, T, S, T, T_step, order, memberships, updated, threshold, False, totals)
    back = np.argsort(order)
    return Change(
        clusters_in_order(S - before[0], back),
        triangles_in_order(T - before[1], back),
        triangles_in_order(T_step, back),
        totals,
    )


def place_block(estimate: State, labels: np.ndarray, offsets: np.ndarray, placed: np.ndarray) -> State:
    """Give each object of a block its best membership under an estimate; return the block's own state."""
    _, S, T, _, _ = empty_state(*sizes_of(offsets, labels, placed))
    T_step = np.zeros_like(T)
    totals = np.zeros(kernel.N_TOTALS)
    order = np.arange(placed.shape[1])
    kernel.sweep(
        labels, offsets, estimate.S, estimate.T, S, T, T_step, order, placed, placed, 0.0, True, totals
    )
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

    Along ``Y + gamma D`` the state is ``S + gamma S_D`` and ``T + gamma T_YD + gamma^2 T_DD``, so the
    objective is a quartic in ``gamma``, and its coefficients are inner products of what the fold returned.
    """
    K, S, T = state.n_clusters, state.S, state.T
    T_cross = change.T - change.T_step
    mb, mc, mab, mquad, mbc, mcc = change.totals[:6]
    quartic = np.array(
        [
            0.5 * inner(K, change.T_step, change.T_step) - 0.5 * mcc,
            inner(K, T_cross, change.T_step) - 2.0 * mbc,
            0.5 * inner(K, T_cross, T_cross)
            + inner(K, T, change.T_step)
            - mquad
            - dot(change.S, change.S)
            + mc,
            inner(K, T, T_cross) - 2.0 * mab - 2.0 * dot(S, change.S) + 2.0 * mb,
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
