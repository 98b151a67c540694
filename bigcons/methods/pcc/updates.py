"""One pass of PCC over all pairs: the update of a block, and how far to go along the changes of all blocks.

Every block starts from the same sums and updates its own objects in turn, so each block alone would lower the
objective by a known amount. In the rare case that all blocks together fall short of that prediction, an exact
line search along the sum of all changes ensures descent: a second fold measures the objective along it, a
quartic.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigcons.coassociation.factorized import (
    AgreementSums,
    aligned_copy,
    in_order,
    kernels_for,
    no_sums,
)

# Successive over-relaxation speeds up convergence within a block, whose objects move in turn (below 2, every
# step lowers the objective): 2,000 objects in 60 partitions take 180 passes with it, 280 without. Several
# blocks move at once and overshoot already, so they do without it.
RELAXATION = 1.5


class Change(NamedTuple):
    """The change by one block or the sum over all: the statistics of a pass."""

    S: np.ndarray
    T: np.ndarray
    squares: float
    quartics: float
    gap: float
    """The largest KKT gap before the update."""
    n_moved: int
    """Number of objects whose membership changed."""
    predicted: float
    """The change of the objective if each block changed alone, summed over the blocks."""


def update_block(
    sums: AgreementSums,
    offsets: np.ndarray,
    threshold: float,
    relaxation: float,
    labels: np.ndarray,
    memberships: np.ndarray,
) -> tuple[Change, np.ndarray]:
    """Update each object of a block given all others; return the change and the new memberships.

    Objects whose KKT gap is at most ``threshold`` do not move; the others take ``relaxation`` times the step
    to their optimum, within the simplex. Later objects see the moves of earlier ones.
    Cost: see ``kernels.all_pairs.sweep``.
    """
    order, totals = _heaviest_first(sums), np.zeros(4)
    updated = np.empty_like(memberships)
    S, T = map(aligned_copy, in_order(sums.S, sums.T, order))
    S_before, T_before = S.copy(), T.copy()
    kernels_for(labels).sweep(
        *(labels, offsets, sums.partition_weights, S, T, S, T, order, memberships, updated),
        *(threshold, relaxation, False, totals, *sums.gains),
    )
    S, T = in_order(S - S_before, T - T_before, np.argsort(order))
    squares, quartics, gap, n_moved = totals.tolist()
    change = Change(S, T, squares, quartics, gap, int(n_moved), predicted=0.0)
    return change._replace(predicted=objective_change(sums, change)), updated


def place_block(
    estimate: AgreementSums, labels: np.ndarray, offsets: np.ndarray, placed: np.ndarray
) -> AgreementSums:
    """Write each object's best membership given an estimate to ``placed``; return the block's sums."""
    order, totals = _heaviest_first(estimate), np.zeros(4)
    S, T = map(aligned_copy, in_order(estimate.S, estimate.T, order))
    found = no_sums(offsets, placed.shape[1], estimate.weights)
    kernels_for(labels).sweep(
        *(labels, offsets, estimate.partition_weights, S, T, found.S, found.T, order, placed, placed),
        *(0.0, 1.0, True, totals, *estimate.gains),
    )
    S, T = in_order(found.S, found.T, np.argsort(order))
    squares, quartics = totals[:2].tolist()
    return AgreementSums(estimate.n_clusters, S, T, squares, quartics, estimate.weights)


def _heaviest_first(sums: AgreementSums) -> np.ndarray:
    """Return the clusters by decreasing total membership, so that objects need few of the first ones."""
    return np.argsort(-sums.S[:, : sums.n_clusters].sum(axis=0), kind="stable")


def add_changes(a: Change, b: Change) -> Change:
    """Add ``b`` to ``a`` in place, and return it."""
    np.add(a.S, b.S, out=a.S)
    np.add(a.T, b.T, out=a.T)
    return a._replace(
        squares=a.squares + b.squares,
        quartics=a.quartics + b.quartics,
        gap=max(a.gap, b.gap),
        n_moved=a.n_moved + b.n_moved,
        predicted=a.predicted + b.predicted,
    )


def objective_change(sums: AgreementSums, change: Change) -> float:
    """Return the exact change of the objective over the full step."""
    agreement = 2.0 * sums.dot(sums.S, change.S) + sums.dot(change.S, change.S) - change.squares
    together = 2.0 * sums.inner(sums.T, change.T) + sums.inner(change.T, change.T) - change.quartics
    return float(-agreement + 0.5 * together)


def decreases_enough(sums: AgreementSums, change: Change) -> bool:
    """Return whether the full step lowers the objective sufficiently compared with the prediction.

    A full step keeps the exact zeros of the memberships and needs no second fold, so it is taken if the
    blocks together gain at least 30 % of what each would alone. In the quadratic model it then achieves at
    least half the decrease of the best step length.
    """
    return objective_change(sums, change) <= 0.3 * change.predicted


def apply_change(sums: AgreementSums, change: Change) -> AgreementSums:
    """Return the sums after the full step."""
    return sums._replace(
        S=sums.S + change.S,
        T=sums.T + change.T,
        squares=sums.squares + change.squares,
        quartics=sums.quartics + change.quartics,
    )


# The line search


class StepSums(NamedTuple):
    """Terms of the objective along the changes of one block or all, besides those of a `Change`."""

    T_step: np.ndarray
    """The quadratic term of T in the step length: the sum of the changes' outer products."""
    sums: np.ndarray
    """Sums over the block, which ``kernels.all_pairs.measure_step`` defines."""


def measure_block(
    sums: AgreementSums, offsets: np.ndarray, labels: np.ndarray, before: np.ndarray, after: np.ndarray
) -> StepSums:
    """Return a block's terms of the line search between the memberships ``before`` and ``after``."""
    found = StepSums(np.zeros_like(sums.T), np.zeros(6))
    counted = sums.partition_weights
    kernels_for(labels).measure_step(labels, offsets, counted, before, after, *found, *sums.gains)
    return found


def add_step_sums(a: StepSums, b: StepSums) -> StepSums:
    """Add ``b`` to ``a`` in place, and return it."""
    for total, part in zip(a, b, strict=True):
        np.add(total, part, out=total)
    return a


def line_search(sums: AgreementSums, change: Change, along: StepSums) -> tuple[float, float]:
    """Return the best step length in (0, 1] along a pass's changes, and the change of the objective.

    Along ``Y + gamma D`` the sums are ``S + gamma S_D`` and ``T + gamma T_YD + gamma^2 T_DD``, so the
    objective is a quartic in ``gamma``, and its coefficients are inner products of the folded sums.
    """
    T, T_step = sums.T, along.T_step
    T_cross = change.T - T_step
    mb, mc, mab, mquad, mbc, mcc = along.sums
    quartic = np.array(
        [
            0.5 * sums.inner(T_step, T_step) - 0.5 * mcc,
            sums.inner(T_cross, T_step) - 2.0 * mbc,
            0.5 * sums.inner(T_cross, T_cross)
            + sums.inner(T, T_step)
            - mquad
            - sums.dot(change.S, change.S)
            + mc,
            sums.inner(T, T_cross) - 2.0 * mab - 2.0 * sums.dot(sums.S, change.S) + 2.0 * mb,
            0.0,
        ]
    )
    stationary = np.roots(np.polyder(quartic))
    lengths = [1.0] + [float(r.real) for r in stationary if abs(r.imag) < 1e-9 and 0.0 < r.real < 1.0]
    best = min(lengths, key=lambda length: np.polyval(quartic, length))
    return best, float(np.polyval(quartic, best))


def apply_part(sums: AgreementSums, change: Change, along: StepSums, step: float) -> AgreementSums:
    """Return the sums after a step of the given length along a pass's changes."""
    mb, mc, mab, mquad, mbc, mcc = along.sums
    return sums._replace(
        S=sums.S + step * change.S,
        T=sums.T + step * (change.T - along.T_step) + step**2 * along.T_step,
        squares=float(sums.squares + 2.0 * step * mb + step**2 * mc),
        quartics=float(
            sums.quartics + 4.0 * step * mab + 2.0 * step**2 * mquad + 4.0 * step**3 * mbc + step**4 * mcc
        ),
    )
