"""PCC over all pairs with the squared divergence, as a fold over row blocks.

The whole interaction between objects goes through a state of a few thousand numbers (see
``kernels/all_pairs.py`` for the identities), so that a pass over the label matrix costs O(n M K + n K^2 M)
whatever the number of pairs. Every block starts from the same state and updates its own objects one after
another, so that each on its own would lower the objective by a known amount. Where all at once fall short of
what they promised, which is rare, an exact line search along the sum of all changes, for which a second fold
yields the quartic, makes the pass as a whole lower the objective.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigcons.coassociation.factorized import (
    State,
    aligned_copy,
    clusters_in_order,
    empty_state,
    sizes_of,
    triangles_in_order,
)
from bigcons.kernels import all_pairs as kernel

# A full step keeps the exact zeros of the memberships and needs no second fold, so it is taken whenever the
# blocks' changes together lower the objective by at least this share of what each would alone. By the
# quadratic model it then gains at least half of what the best step length would.
PROMISE_SHARE = 0.3

# Below every gap: all objects move. A near-uniform start has gaps near zero although it is a saddle.
MOVE_ALL = -1.0

# Objects of a block move one after another, and what is slow to settle settles sooner if each goes on past
# its minimum (successive over-relaxation: below 2, every step lowers the objective). Of several blocks, which
# move at once and so go too far as it is, steps would be refused.
RELAXATION = 1.5


class Change(NamedTuple):
    """What one block, or all of them, would change: the statistics of a pass."""

    S: np.ndarray
    T: np.ndarray
    totals: np.ndarray
    """See ``kernels.all_pairs.sweep``."""
    promised: float
    """The sum over the blocks of the change of the objective if no other block changed."""

    @property
    def gap(self) -> float:
        """The largest KKT gap met."""
        return float(self.totals[kernel.MAX_GAP])

    @property
    def n_moved(self) -> int:
        """Number of objects whose membership changed."""
        return int(self.totals[kernel.N_MOVED])


class Course(NamedTuple):
    """What the objective along the changes of one block, or of all, is made of besides a `Change`."""

    T_step: np.ndarray
    """The part of the change of T that is quadratic in the step: summed outer products of the changes."""
    sums: np.ndarray
    """See ``kernels.all_pairs.measure_step``."""


def update_block(
    state: State,
    labels: np.ndarray,
    offsets: np.ndarray,
    memberships: np.ndarray,
    updated: np.ndarray,
    threshold: float,
    relaxation: float = 1.0,
) -> Change:
    """Update each object of a block given all others, and return what that changes; ``updated`` gets the
    result.

    Objects whose KKT gap is at most ``threshold`` stay as they are; the others go ``relaxation`` times as far
    as their optimum, or as far as they can. Cost: see ``kernels.all_pairs.sweep``.
    """
    order = _heaviest_first(state)
    before = clusters_in_order(state.S, order), triangles_in_order(state.T, order)
    S, T = aligned_copy(before[0]), aligned_copy(before[1])
    totals = np.zeros(kernel.N_TOTALS)
    weights = state.partition_weights
    kernel.sweep(
        labels,
        offsets,
        weights,
        S,
        T,
        S,
        T,
        order,
        memberships,
        updated,
        threshold,
        relaxation,
        False,
        totals,
    )
    back = np.argsort(order)
    change = Change(
        clusters_in_order(S - before[0], back), triangles_in_order(T - before[1], back), totals, 0.0
    )
    return change._replace(promised=rise(state, change))


def place_block(estimate: State, labels: np.ndarray, offsets: np.ndarray, placed: np.ndarray) -> State:
    """Give each object of a block its best membership under an estimate; return the block's own state."""
    order, totals = _heaviest_first(estimate), np.zeros(kernel.N_TOTALS)
    S, T = clusters_in_order(estimate.S, order), triangles_in_order(estimate.T, order)
    S, T, weights = aligned_copy(S), aligned_copy(T), estimate.partition_weights
    state = empty_state(*sizes_of(offsets, labels, placed), estimate.weights)
    kernel.sweep(
        labels, offsets, weights, S, T, state.S, state.T, order, placed, placed, 0.0, 1.0, True, totals
    )
    back = np.argsort(order)
    return state._replace(
        S=clusters_in_order(state.S, back),
        T=triangles_in_order(state.T, back),
        squares=float(totals[kernel.SQUARES]),
        quartics=float(totals[kernel.QUARTICS]),
    )


def _heaviest_first(state: State) -> np.ndarray:
    """Return the clusters by the memberships they sum, the order in which objects need the fewest of them."""
    return np.argsort(-state.S[:, : state.n_clusters].sum(axis=0), kind="stable")


def add_changes(a: Change, b: Change) -> Change:
    """Add ``b`` to ``a`` in place, and return it."""
    gap = max(a.gap, b.gap)
    for total, part in ((a.S, b.S), (a.T, b.T), (a.totals, b.totals)):
        np.add(total, part, out=total)
    a.totals[kernel.MAX_GAP] = gap
    return a._replace(promised=a.promised + b.promised)


def rise(state: State, change: Change) -> float:
    """Return by how much the objective rises over the full step, exactly."""
    squares, quartics = change.totals[kernel.SQUARES], change.totals[kernel.QUARTICS]
    agreement = 2.0 * state.dot(state.S, change.S) + state.dot(change.S, change.S) - squares
    together = 2.0 * state.inner(state.T, change.T) + state.inner(change.T, change.T) - quartics
    return float(-agreement + 0.5 * together)


def keeps_promise(state: State, change: Change) -> bool:
    """Tell whether the full step lowers the objective by about as much as the blocks each would."""
    return rise(state, change) <= PROMISE_SHARE * change.promised


def apply_change(state: State, change: Change) -> State:
    """Return the state after the full step."""
    return state._replace(
        S=state.S + change.S,
        T=state.T + change.T,
        squares=float(state.squares + change.totals[kernel.SQUARES]),
        quartics=float(state.quartics + change.totals[kernel.QUARTICS]),
    )


def course_of_block(
    state: State, labels: np.ndarray, offsets: np.ndarray, memberships: np.ndarray, updated: np.ndarray
) -> Course:
    """Return what a line search needs of a block that went from ``memberships`` to ``updated``."""
    course = Course(np.zeros_like(state.T), np.zeros(kernel.N_STEP_SUMS))
    kernel.measure_step(labels, offsets, state.partition_weights, memberships, updated, *course)
    return course


def add_courses(a: Course, b: Course) -> Course:
    """Add ``b`` to ``a`` in place, and return it."""
    for total, part in zip(a, b, strict=True):
        np.add(total, part, out=total)
    return a


def line_search(state: State, change: Change, course: Course) -> tuple[float, float]:
    """Return the best step length in (0, 1] along a pass's changes, and the change of the objective there.

    Along ``Y + gamma D`` the state is ``S + gamma S_D`` and ``T + gamma T_YD + gamma^2 T_DD``, so the
    objective is a quartic in ``gamma``, and its coefficients are inner products of what the folds returned.
    """
    T, T_step = state.T, course.T_step
    T_cross = change.T - T_step
    mb, mc, mab, mquad, mbc, mcc = course.sums
    quartic = np.array(
        [
            0.5 * state.inner(T_step, T_step) - 0.5 * mcc,
            state.inner(T_cross, T_step) - 2.0 * mbc,
            0.5 * state.inner(T_cross, T_cross)
            + state.inner(T, T_step)
            - mquad
            - state.dot(change.S, change.S)
            + mc,
            state.inner(T, T_cross) - 2.0 * mab - 2.0 * state.dot(state.S, change.S) + 2.0 * mb,
            0.0,
        ]
    )
    stationary = np.roots(np.polyder(quartic))
    lengths = [1.0] + [float(r.real) for r in stationary if abs(r.imag) < 1e-9 and 0.0 < r.real < 1.0]
    best = min(lengths, key=lambda length: np.polyval(quartic, length))
    return best, float(np.polyval(quartic, best))


def apply_part(state: State, change: Change, course: Course, step: float) -> State:
    """Return the state after a step of the given length along a pass's changes."""
    mb, mc, mab, mquad, mbc, mcc = course.sums
    return state._replace(
        S=state.S + step * change.S,
        T=state.T + step * (change.T - course.T_step) + step**2 * course.T_step,
        squares=float(state.squares + 2.0 * step * mb + step**2 * mc),
        quartics=float(
            state.quartics + 4.0 * step * mab + 2.0 * step**2 * mquad + 4.0 * step**3 * mbc + step**4 * mcc
        ),
    )
