"""One pass of PCC over all pairs: the update of a block, and how far to go along the changes of all blocks.

Every block starts from the same sums and updates its own objects in turn, so each block alone would lower the
objective by a known amount. In the rare case that all blocks together fall short of that prediction, an exact
line search along the sum of all changes ensures descent: a second fold measures the objective along it, a
quartic.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigcons.coassociation.factorized import (
    AgreementSums,
    Rates,
    add_partitions,
    agreement_sums,
    aligned_copy,
    aligned_zeros,
    clusters_in_order,
    kernels_for,
    no_sums,
    rows_times,
    sizes_of,
    triangles_in_order,
    triangles_times,
)
from bigcons.kernels import all_pairs as kernel
from bigcons.kernels.cluster_tables import padded, rows_together
from bigcons.methods.pcc.block_model import MOST_PARTITIONS

# A full step keeps the exact zeros of the memberships and needs no second fold, so it is taken if the blocks
# together lower the objective by at least this share of the sum of what each would alone. In the quadratic
# model it then achieves at least half the decrease of the best step length.
SUFFICIENT_SHARE = 0.3

# Successive over-relaxation speeds up convergence within a block, whose objects move in turn (below 2, every
# step lowers the objective). Several blocks move at once and overshoot already, so they do without it.
RELAXATION = 1.5


class Change(NamedTuple):
    """The change by one block or the sum over all: the statistics of a pass."""

    S: np.ndarray
    T: np.ndarray
    totals: np.ndarray
    """See ``kernels.all_pairs.sweep``."""
    predicted: float
    """The change of the objective if each block changed alone, summed over the blocks."""
    largest: float
    """Change of a membership."""

    @property
    def gap(self) -> float:
        """The largest KKT gap before the update."""
        return float(self.totals[kernel.MAX_GAP])

    @property
    def n_moved(self) -> int:
        """Number of objects whose membership changed."""
        return int(self.totals[kernel.N_MOVED])


def update_block(
    sums: AgreementSums,
    offsets: np.ndarray,
    threshold: float,
    relaxation: float,
    labels: np.ndarray,
    memberships: np.ndarray,
    *,
    at_once: bool = False,
) -> tuple[Change, np.ndarray]:
    """Update each object of a block given all others; return the change and the new memberships.

    Objects whose KKT gap is at most ``threshold`` do not move; the others take ``relaxation`` times the step
    to their optimum, within the simplex. Later objects see the moves of earlier ones, except ``at_once``.
    Cost: see ``kernels.all_pairs.sweep``.
    """
    given, memberships = memberships, in_use(sums, memberships)
    order = _heaviest_first(sums)
    updated, totals = np.empty_like(memberships), np.zeros(kernel.N_TOTALS)
    how = threshold, relaxation, False, totals
    if at_once and isinstance(sums.weights, Rates):
        S, T = sweep_at_once(sums, sums.weights, offsets, labels, order, memberships, updated, *how)
    else:
        S, T, further = _tables_in_order(sums, order)
        S_before, T_before, S_out, T_out = S.copy(), T.copy(), S, T
        if sums.theta is not None:  # S and T are then of theta y
            S_before, T_before = np.zeros_like(sums.S), np.zeros_like(T)
            S_out, T_out = aligned_copy(S_before), aligned_copy(T_before)
        kernels_for(labels).sweep(
            *(labels, offsets, sums.partition_weights, S, T, S_out, T_out, order, memberships, updated),
            *(*how, *further),
        )
        back = np.argsort(order)
        S, T = clusters_in_order(S_out - S_before, back), triangles_in_order(T_out - T_before, back)
    change = Change(S, T, totals, predicted=0.0, largest=largest_change(memberships, updated))
    if updated.shape != given.shape:
        updated = np.pad(updated, ((0, 0), (0, given.shape[1] - updated.shape[1])))
    return change._replace(predicted=objective_change(sums, change)), updated


def is_wide(sums: AgreementSums) -> bool:
    """Return whether objects of a block are to move at once because the tables of so many partitions exceed
    the cache: read by one object after the other, they would come from memory each time.

    Objects that move in turn see the moves of earlier ones, but each is small beside the sum of all.
    """
    return isinstance(sums.weights, Rates) and len(sums.T) >= MOST_PARTITIONS


def largest_change(before: np.ndarray, after: np.ndarray) -> float:
    """Return the largest change of a membership."""
    change = after - before
    return float(np.abs(change, out=change).max(initial=0.0))


def in_use(sums: AgreementSums, memberships: np.ndarray) -> np.ndarray:
    """Return the columns of the clusters in use, the first ones, contiguous."""
    return np.ascontiguousarray(memberships[:, : sums.n_clusters])


def place_block(
    estimate: AgreementSums, labels: np.ndarray, offsets: np.ndarray, placed: np.ndarray
) -> AgreementSums:
    """Write each object's best membership given an estimate to ``placed``; return the block's sums."""
    order, totals = _heaviest_first(estimate), np.zeros(kernel.N_TOTALS)
    how = 0.0, 1.0, True, totals
    if isinstance(estimate.weights, Rates):
        S, T = sweep_at_once(estimate, estimate.weights, offsets, labels, order, placed, placed, *how)
    else:
        S, T, further = _tables_in_order(estimate, order)
        found = no_sums(*sizes_of(offsets, placed), estimate.weights)
        kernels_for(labels).sweep(
            *(labels, offsets, estimate.partition_weights, S, T, found.S, found.T, order, placed, placed),
            *(*how, *further),
        )
        back = np.argsort(order)
        S, T = clusters_in_order(found.S, back), triangles_in_order(found.T, back)
    squares, quartics = float(totals[kernel.SQUARES]), float(totals[kernel.QUARTICS])
    return AgreementSums(estimate.n_clusters, S, T, squares, quartics, estimate.weights)


def sweep_at_once(
    sums: AgreementSums,
    rates: Rates,
    offsets: np.ndarray,
    labels: np.ndarray,
    order: np.ndarray,
    memberships: np.ndarray,
    updated: np.ndarray,
    *how: Any,
) -> tuple[np.ndarray, np.ndarray]:
    """Update every object of a block in a calibrated model, none seeing the moves of others.

    Returns what changes of S and T; ``how``: the last arguments of ``kernels.all_pairs.sweep``.
    """
    K, B, M = sums.n_clusters, int(offsets[-1]), offsets.size - 1
    theta = np.eye(K) if rates.theta is None else rates.theta
    theta = np.ascontiguousarray(theta[np.ix_(order, order)])
    S, S_out = aligned_zeros(B, padded(K + 2)), aligned_zeros(B, padded(K + 2))
    kernel.weigh_rows(sums.S, offsets, order, theta, rates.base_clusters, rates.partitions, S)
    T = aligned_copy(triangles_times(triangles_in_order(sums.T, order), theta))
    T *= rates.partitions[:, None]
    T_out = aligned_zeros(*T.shape)
    scratch = scratch_for(len(labels), offsets, K, S.shape[1], T.shape[1])
    flat = (table.ravel() for table in (S, T, S_out, T_out))  # views
    kernel.sweep_at_once(labels, offsets, *flat, order, memberships, updated, *how, theta, scratch)
    del S, T  # they are as large as what follows
    change, columns = np.zeros((B + M, padded(K))), np.argsort(order)
    change[:B, :K] = S_out[:, columns]
    add_partitions(change, offsets)
    return change, triangles_in_order(T_out, columns)


def scratch_for(
    n_rows: int, offsets: np.ndarray, n_clusters: int, s_width: int, t_width: int
) -> tuple[np.ndarray, ...]:
    """Return what ``kernels.all_pairs.sweep_at_once`` needs to work with, for tables of these widths."""
    n_together, M, K = rows_together(n_rows, offsets, s_width, t_width), offsets.size - 1, n_clusters
    return (
        *(np.empty(M, np.uint64), np.empty(M, np.uint64), np.ones(M)),
        *(np.empty((n_together, s_width)), np.empty((n_together, t_width))),
        *(np.zeros((n_together, s_width)), np.zeros((n_together, t_width))),
        *(np.empty((n_together, K)), np.empty((n_together, K)), np.empty((n_together, K))),
        *(np.empty(n_together, np.int64), np.empty((K, K)), np.zeros(s_width)),
        *(np.empty(K, np.int64), np.empty((K, K + 2))),
    )


def remove_block(
    estimate: AgreementSums,
    kept: np.ndarray,
    offsets: np.ndarray,
    labels: np.ndarray,
    memberships: np.ndarray,
) -> tuple[AgreementSums, np.ndarray]:
    """Return the sums and memberships of a block with the clusters ``kept`` only, as its first columns.

    Objects that had a share in another cluster get their best membership given ``estimate``.
    """
    left = np.ascontiguousarray(memberships[:, kept])
    others = np.setdiff1d(np.arange(memberships.shape[1]), kept)
    torn = memberships[:, others].any(axis=1)
    placed = np.empty((np.count_nonzero(torn), kept.size), np.float32)
    place_block(estimate, labels[torn], offsets, placed)
    left[torn] = placed
    reached = np.zeros_like(memberships)
    reached[:, : kept.size] = left
    return agreement_sums(labels, offsets, left, estimate.weights), reached


def _tables_in_order(
    sums: AgreementSums, order: np.ndarray
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, ...]]:
    """Return S and T as kernels read them, cluster ``order[k]`` as the ``k``-th, and further arguments."""
    S, T = clusters_in_order(sums.S, order), triangles_in_order(sums.T, order)
    further = sums.gains
    if sums.theta is not None:
        theta = np.ascontiguousarray(sums.theta[np.ix_(order, order)])
        S, T, further = rows_times(S, theta), triangles_times(T, theta), (further[0], theta)
    return aligned_copy(S), aligned_copy(T), further


def _heaviest_first(sums: AgreementSums) -> np.ndarray:
    """Return the clusters by decreasing total membership, so that objects need few of the first ones."""
    return np.argsort(-sums.S[:, : sums.n_clusters].sum(axis=0), kind="stable")


def add_changes(a: Change, b: Change) -> Change:
    """Add ``b`` to ``a`` in place, and return it."""
    gap = max(a.gap, b.gap)
    for total, part in ((a.S, b.S), (a.T, b.T), (a.totals, b.totals)):
        np.add(total, part, out=total)
    a.totals[kernel.MAX_GAP] = gap
    return a._replace(predicted=a.predicted + b.predicted, largest=max(a.largest, b.largest))


def objective_change(sums: AgreementSums, change: Change) -> float:
    """Return the exact change of the objective over the full step."""
    squares, quartics = change.totals[kernel.SQUARES], change.totals[kernel.QUARTICS]
    agreement = 2.0 * sums.dot(sums.S, change.S) + sums.dot(change.S, change.S) - squares
    together = 2.0 * sums.inner(sums.T, change.T) + sums.inner(change.T, change.T) - quartics
    return float(-agreement + 0.5 * together)


def decreases_enough(sums: AgreementSums, change: Change) -> bool:
    """Return whether the full step lowers the objective sufficiently compared with the prediction."""
    return objective_change(sums, change) <= SUFFICIENT_SHARE * change.predicted


def apply_change(sums: AgreementSums, change: Change) -> AgreementSums:
    """Return the sums after the full step."""
    return sums._replace(
        S=sums.S + change.S,
        T=sums.T + change.T,
        squares=float(sums.squares + change.totals[kernel.SQUARES]),
        quartics=float(sums.quartics + change.totals[kernel.QUARTICS]),
    )


# The line search


class StepSums(NamedTuple):
    """Terms of the objective along the changes of one block or all, besides those of a `Change`."""

    T_step: np.ndarray
    """The quadratic term of T in the step length: the sum of the changes' outer products."""
    sums: np.ndarray
    """See ``kernels.all_pairs.measure_step``."""


def measure_block(
    sums: AgreementSums, offsets: np.ndarray, labels: np.ndarray, before: np.ndarray, after: np.ndarray
) -> StepSums:
    """Return a block's terms of the line search between the memberships ``before`` and ``after``."""
    found = StepSums(np.zeros_like(sums.T), np.zeros(kernel.N_STEP_SUMS))
    before, after = in_use(sums, before), in_use(sums, after)
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
