"""PCC over all pairs with the squared divergence: an exact fold over row blocks, without forming pairs.

Objects interact only through sums of a few thousand numbers (``AgreementSums``; the identities are in
``kernels/all_pairs.py``), so a pass over the label matrix costs O(n M K + n K^2 M), whatever the number of
pairs. Every block starts from the same sums and updates its own objects in turn, so each block alone would
lower the objective by a known amount. In the rare case that all blocks together fall short of that
prediction, an exact line search along the sum of all changes ensures descent: a second fold measures the
objective along it, a quartic.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bigcons.coassociation.factorized import (
    AgreementSums,
    Rates,
    Weights,
    add_sums,
    agreement_sums,
    aligned_copy,
    clusters_in_order,
    kernels_for,
    no_sums,
    rows_times,
    sizes_of,
    triangles_in_order,
    triangles_times,
)
from bigcons.execution.engine import Engine, stop_if_cancelled
from bigcons.kernels import all_pairs as kernel
from bigcons.memory import Block
from bigcons.methods.pcc.memberships import (
    MOVE_ALL,
    Init,
    checked_start,
    dirichlet,
    start_of_block,
    threshold_after,
)
from bigcons.metrics.clusterings import mutual_information_of_table
from bigcons.progress import Progress, progress
from bigcons.solving.passes import Iterate, Record, Run, Step, Visit, best_start
from bigcons.solving.survey import mean_pair_weight
from bigcons.storage.checkpoint import BlockArrays
from bigcons.stores.ensemble import Ensemble
from bigcons.stores.ensemble_store import observed

# A full step keeps the exact zeros of the memberships and needs no second fold, so it is taken if the blocks
# together lower the objective by at least this share of the sum of what each would alone. In the quadratic
# model it then achieves at least half the decrease of the best step length.
SUFFICIENT_SHARE = 0.3

# Successive over-relaxation speeds up convergence within a block, whose objects move in turn (below 2, every
# step lowers the objective). Several blocks move at once and overshoot already, so they do without it.
RELAXATION = 1.5

# With this many blocks or more, the objects of a block may as well move at once as the blocks do. The tables
# of calibrated models, which are expensive to keep current, are then computed once for each block.
MANY_BLOCKS = 8

# Passes over calibrated models end when the memberships are estimated to change by at most this many times
# `tol` in all further ones: they fall by the factor of the last passes, LEAST_FACTOR at least. The sums are
# extrapolated by at most FARTHEST times the change of the last pass.
FEWEST_PASSES, CHANGE_PER_TOL, LEAST_FACTOR, FARTHEST = 3, 30.0, 0.25, 10.0


class AllPairs:
    """The passes of PCC over all pairs, squared divergence; objects carry memberships (rows, K) float32.

    The gap is in units of the mean weight of an object, ``sum_j N_ij``. A solve has converged after a pass in
    which no object has a gap above the tolerance. That pass changes nothing, so the gap it reports is exact.

    Passes over a calibrated model are extrapolated, and end earlier: see `Passes` and `remaining_change`.
    """

    name = "all-pairs PCC"

    def __init__(
        self,
        n_clusters: int,
        n_seen: np.ndarray,
        weights: Weights | str | None = None,
        solve_sample: Callable[..., Subsample] | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_seen = n_seen
        """(M,): number of objects that each partition labels."""
        self.weights = weights
        """Of the partitions; "entropy" and "information" are computed at the start."""
        self.solve_sample = solve_sample
        """Solves the subsample, given labels, offsets, numbers of clusters and starts, and a seed, and finds
        the rates of a calibrated model. None for the model of the paper: `solve_subsample`."""

    def start(self, run: Run) -> tuple[Passes, list[float]]:
        """Write the first memberships and return their sums; from a subsample, by solving it first."""
        ensemble, K, init, estimate, objectives = run.data, self.n_clusters, run.init, None, []
        with progress("start from a sample", 0):
            weights, solved = self._counted(run)
        place = init(run) if callable(init) else None
        if place is None and not isinstance(init, str):
            init = checked_start(init, ensemble.n_objects, K)
        elif place is None and init == "subsample":
            if solved is None:
                arguments = run.sample, ensemble.offsets, K, run.n_init, run.seed, run.engine
                solved = solve_subsample(*arguments, weights)
            objectives = solved.start_objectives
            if run.sample.shape[0] == ensemble.n_objects:
                init = solved.memberships
            else:
                estimate = solved.sums.scaled(ensemble.n_objects / run.sample.shape[0])
        first = FirstBlock(ensemble, run.arrays, K, run.seed, init, estimate, weights, place)
        with progress("start of PCC", ensemble.n_objects) as listener:
            return Passes(run.fold(first, add_sums, listener)), objectives

    def _counted(self, run: Run) -> tuple[Weights | Rates | None, Subsample | None]:
        """Return how partitions count, and the solved subsample if that gives the rates."""
        offsets, K = run.data.offsets, self.n_clusters
        if self.solve_sample is not None:
            solved = self.solve_sample(run.sample, offsets, K, run.n_init, run.seed)
            return solved.sums.weights, solved
        if not isinstance(self.weights, str):
            return self.weights, None
        if self.weights == ENTROPY:
            return entropy_weights(run.sample, offsets), None
        plain = solve_subsample(run.sample, offsets, K, run.n_init, run.seed, run.engine)
        return information_weights(plain.sums, offsets), None

    def visit(self, run: Run, at: Iterate[Passes]) -> Visit:
        """Return the task that updates every object of a block given all others."""
        sums, ahead = at.state.sums, at.state.ahead
        threshold = self._threshold(run, at) * self._mean_weight(run, sums)
        relaxation = RELAXATION if len(run.blocks) == 1 else 1.0
        reads, writes = [at.generation], at.generation + 1
        update = partial(update_block, at_once=len(run.blocks) >= MANY_BLOCKS)
        given = sums if ahead is None else ahead
        return run.visit(update, given, run.data.offsets, threshold, relaxation, reads=reads, writes=writes)

    def add(self, total: Change, part: Change) -> Change:
        """Add the change of a further block, in place."""
        return add_changes(total, part)

    def step(self, run: Run, at: Iterate[Passes], total: Change) -> Step[Passes]:
        """Take the full step if the objective decreases enough, else the best shorter one.

        A step by extrapolated sums is taken if the objective decreases, else none, and passes go on without.
        """
        sums, change, length, n_generations = at.state.sums, total, 1.0, 1
        reached, is_ahead = apply_change(sums, change), at.state.ahead is not None
        if is_ahead and objective_change(sums, change) > 0.0:
            run.arrays.drop(at.generation + 1)
            reached, length, n_generations = sums, 0.0, 0
        elif not is_ahead and len(run.blocks) > 1 and change.n_moved and not decreases_enough(sums, change):
            reads = [at.generation, at.generation + 1]
            along = run.fold(run.visit(measure_block, sums, run.data.offsets, reads=reads), add_step_sums)
            length, _ = line_search(sums, change, along)
            if length < 1.0:
                run.shorten(at.generation, length)
                reached, n_generations = apply_part(sums, change, along, length), 2
        record = {
            "objective": reached.objective,
            "gap": change.gap / self._mean_weight(run, sums),
            "moved": change.n_moved,
            "step_length": length,
            "change": change.largest * length,
        }
        is_settled = not is_ahead and change.n_moved == 0
        if self.solve_sample is None:
            return Step(Passes(reached), record, is_settled, n_generations)
        is_near = remaining_change([*at.records, record]) < CHANGE_PER_TOL * run.tol
        is_near |= change.n_moved == 0
        state = at.state.after(reached, ends=is_near, is_full=length == 1.0)
        is_settled |= is_near and not is_ahead and len(at.records) >= FEWEST_PASSES - 1
        return Step(state, record, is_settled, n_generations)

    def pack(self, state: Passes) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the sums, also those ahead, and the partition weights as arrays and facts."""
        sums, ahead = state.sums, state.ahead
        arrays = {"S": sums.S, "T": sums.T}
        if sums.weights is not None:
            arrays |= {name: part for name, part in sums.weights._asdict().items() if part is not None}
        if ahead is not None:
            arrays |= {"ahead_S": ahead.S, "ahead_T": ahead.T}
        if state.error is not None:
            arrays["error"] = state.error
        facts = {"n_clusters": sums.n_clusters, "squares": sums.squares, "quartics": sums.quartics}
        return arrays, facts

    def unpack(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> Passes:
        """Return the sums of a snapshot."""
        S, T, error = arrays.pop("S"), arrays.pop("T"), arrays.pop("error", None)
        ahead_S, ahead_T = arrays.pop("ahead_S", None), arrays.pop("ahead_T", None)
        kind = Rates if "omega" in arrays else Weights
        sums = AgreementSums(S=S, T=T, **facts, weights=kind(**arrays) if arrays else None)
        ahead = None if ahead_S is None or ahead_T is None else sums._replace(S=ahead_S, T=ahead_T)
        return Passes(sums, ahead, error)

    def _threshold(self, run: Run, at: Iterate[Passes]) -> float:
        """Return the relative gap up to which objects do not move in the next pass."""
        if at.records:
            return threshold_after(at.records[-1]["gap"], run.tol)
        if isinstance(run.init, str):
            return 0.0 if run.init == "subsample" else MOVE_ALL
        if callable(run.init):
            return 0.0
        return run.tol  # given memberships that meet the tolerance are kept

    def _mean_weight(self, run: Run, sums: AgreementSums) -> float:
        return mean_pair_weight(self.n_seen, run.data.n_objects, sums.partition_weights)


class Passes(NamedTuple):
    """The sums between two passes, and those by which objects are placed in the next.

    A pass places the objects by sums ``e`` and finds theirs, ``F(e)``; the solution is where they agree.
    Where every pass makes the same part of the way that is left, the errors ``F(e) - e`` of two passes tell
    where it leads: there ``e`` is next, the extrapolation of Anderson with one past pass.
    """

    sums: AgreementSums
    """Of the memberships."""
    ahead: AgreementSums | None = None
    """The sums extrapolated, by which the next pass places objects; None for those of the memberships."""
    error: np.ndarray | None = None
    """``F(e) - e`` of the last pass, of S; None if the next pass is not to be extrapolated."""

    def after(self, reached: AgreementSums, *, ends: bool, is_full: bool) -> Passes:
        """Return the state after a pass that reached these sums, by its full step or not.

        ``ends``: the next pass is to be by the sums of the memberships, because it may be the last.
        """
        if not is_full:
            return Passes(reached)
        given, last = self.sums if self.ahead is None else self.ahead, self.error
        error = reached.S - given.S
        if ends or last is None:
            return Passes(reached, None, error)
        turn = error - last
        size = float(np.einsum("bk,bk->", turn, turn))
        part = -float(np.einsum("bk,bk->", error, turn)) / size if size > 0.0 else 0.0
        part = min(max(part, -0.5), FARTHEST)
        ahead = reached._replace(
            S=reached.S + part * (reached.S - self.sums.S), T=reached.T + part * (reached.T - self.sums.T)
        )
        return Passes(reached, ahead, error)


def remaining_change(records: list[Record]) -> float:
    """Return the estimated largest change of a membership that further passes would make in all.

    Their changes fall geometrically, by the slower of the last two factors; infinite if that cannot be told.
    """
    latest = records[-3:]
    if len(latest) < 2 or any(record["step_length"] < 1.0 for record in latest):
        return math.inf
    changes = [record["change"] for record in latest]
    pairs = itertools.pairwise(changes)
    factors = [after / before if before > 0.0 else math.inf for before, after in pairs if after > 0.0]
    factor = max([LEAST_FACTOR, *factors])
    return changes[-1] * factor / (1.0 - factor) if factor < 1.0 else math.inf


@dataclass(frozen=True)
class FirstBlock:
    """A task: write the first memberships of a block, and return their sums."""

    ensemble: Ensemble
    arrays: BlockArrays
    n_clusters: int
    seed: int
    init: Init
    estimate: AgreementSums | None
    """Sums over all objects, to place those of the block instead of using ``init``."""
    weights: Weights | Rates | None
    place: Callable[[np.ndarray], np.ndarray] | None = None
    """Gives the memberships of labels, instead of both."""

    def __call__(self, block: Block) -> AgreementSums:
        """Write a block."""
        labels, offsets = self.ensemble.read(block.start, block.stop), self.ensemble.offsets
        if self.estimate is not None:
            memberships = np.empty((block.n_rows, self.n_clusters), np.float32)
            sums = place_block(self.estimate, labels, offsets, memberships)
        else:
            memberships = (
                start_of_block(self.init, block, self.n_clusters, self.seed)
                if self.place is None
                else self.place(labels)
            )
            sums = agreement_sums(labels, offsets, memberships, self.weights)
        self.arrays.write(0, block, memberships)
        return sums


# One pass


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
    rates = sums.weights if at_once and isinstance(sums.weights, Rates) else None
    if rates is not None:
        weights, S, T, further = None, *_weighed_tables(sums, rates, offsets, order)
    else:
        weights, S, T, further = sums.partition_weights, *_tables_in_order(sums, order)
    S_before, T_before, S_out, T_out = S.copy(), T.copy(), S, T
    if rates is not None or sums.theta is not None:  # S and T are then of theta y
        S_before, T_before = np.zeros_like(sums.S), np.zeros_like(T)
        S_out, T_out = aligned_copy(S_before), aligned_copy(T_before)
    kernels_for(labels).sweep(
        *(labels, offsets, weights, S, T, S_out, T_out, order, memberships, updated),
        *(threshold, relaxation, False, totals, *further),
    )
    if rates is not None:
        _add_partitions(S_out, offsets)
    back = np.argsort(order)
    change = Change(
        *(clusters_in_order(S_out - S_before, back), triangles_in_order(T_out - T_before, back)),
        totals=totals,
        predicted=0.0,
        largest=largest_change(memberships, updated),
    )
    if updated.shape != given.shape:
        updated = np.pad(updated, ((0, 0), (0, given.shape[1] - updated.shape[1])))
    return change._replace(predicted=objective_change(sums, change)), updated


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
    rates = estimate.weights if isinstance(estimate.weights, Rates) else None
    if rates is not None:
        weights, S, T, further = None, *_weighed_tables(estimate, rates, offsets, order)
    else:
        weights, S, T, further = estimate.partition_weights, *_tables_in_order(estimate, order)
    sums = no_sums(*sizes_of(offsets, placed), estimate.weights)
    kernels_for(labels).sweep(
        *(labels, offsets, weights, S, T, sums.S, sums.T, order, placed, placed, 0.0, 1.0, True, totals),
        *further,
    )
    if rates is not None:
        _add_partitions(sums.S, offsets)
    back = np.argsort(order)
    return sums._replace(
        S=clusters_in_order(sums.S, back),
        T=triangles_in_order(sums.T, back),
        squares=float(totals[kernel.SQUARES]),
        quartics=float(totals[kernel.QUARTICS]),
    )


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


def _weighed_tables(
    sums: AgreementSums, rates: Rates, offsets: np.ndarray, order: np.ndarray
) -> tuple[np.ndarray, np.ndarray, tuple[Any, ...]]:
    """Return the tables of a calibrated model with rows weighed in advance, and further arguments.

    See ``counts`` of ``kernels.all_pairs.sweep``.
    """
    n_clusters = np.diff(offsets)
    B, M = int(offsets[-1]), n_clusters.size
    theta = np.eye(sums.n_clusters) if rates.theta is None else rates.theta
    theta = np.ascontiguousarray(theta[np.ix_(order, order)])
    S = rows_times(clusters_in_order(sums.S, order), theta) * rates.base_clusters[:, None]
    T = triangles_times(triangles_in_order(sums.T, order), theta) * rates.partitions[:, None]
    counts, at = np.zeros((2, B + M)), np.arange(B) + np.repeat(np.arange(1, M + 1), n_clusters)
    counts[0, at] = rates.base_clusters[:B] + np.repeat(rates.base_clusters[B:], n_clusters)
    counts[1, at] = np.repeat(rates.partitions, n_clusters)
    S = S[:B] + np.repeat(S[B:], n_clusters, axis=0)
    return aligned_copy(S), aligned_copy(T), (None, theta, counts)


def _add_partitions(S: np.ndarray, offsets: np.ndarray) -> None:
    """Fill the rows of partitions in a table such as S of a calibrated model: sums over base clusters."""
    S[int(offsets[-1]) :] = np.add.reduceat(S[: int(offsets[-1])], offsets[:-1], axis=0)


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


# The start on a subsample: a few thousand objects over all their pairs, from several random starts

SUBSAMPLE = 2048

# Effort of every start, enough to rank them.
SHORT_PASSES = 50
SHORT_TOL = 1e-3

# Effort of the best start: accuracy missing here would cost passes over all objects.
LONG_PASSES = 200
LONG_TOL = 1e-4


class Subsample(NamedTuple):
    """The solved subsample."""

    sums: AgreementSums
    memberships: np.ndarray
    """(rows, K) float32."""
    start_objectives: list[float]
    """Of every start at the time of choice: the squared divergence over the pairs of the subsample."""


@dataclass(frozen=True)
class SubsampleStart:
    """A task: run one start on the subsample."""

    labels: np.ndarray
    offsets: np.ndarray
    n_clusters: int
    seed: int
    weights: Weights | Rates | None
    draw: Callable[..., np.ndarray] = dirichlet

    def __call__(self, number: int) -> Subsample:
        """Run start ``number`` until it can be ranked."""
        memberships = self.draw(self.labels.shape[0], self.n_clusters, self.seed, number)
        sums = agreement_sums(self.labels, self.offsets, memberships, self.weights)
        first = self.resume(Subsample(sums, memberships, []), 1, MOVE_ALL)
        return self.resume(first, SHORT_PASSES - 1, SHORT_TOL)

    def resume(self, found: Subsample, max_passes: int, tol: float) -> Subsample:
        """Continue until no object moves; a canceled task ends between passes."""
        labeled = np.count_nonzero(observed(self.labels, self.offsets), axis=0)
        by_partition = None if self.weights is None else self.weights.partitions
        threshold = tol * mean_pair_weight(labeled, self.labels.shape[0], by_partition)
        for _ in range(max_passes):
            stop_if_cancelled()
            change, memberships = update_block(
                found.sums, self.offsets, threshold, RELAXATION, self.labels, found.memberships
            )
            found = found._replace(sums=apply_change(found.sums, change), memberships=memberships)
            if change.n_moved == 0:
                break
        return found


def solve_subsample(
    labels: np.ndarray,
    offsets: np.ndarray,
    n_clusters: int,
    n_init: int,
    seed: int,
    engine: Engine,
    weights: Weights | Rates | None = None,
    draw: Callable[..., np.ndarray] = dirichlet,
) -> Subsample:
    """Solve a few thousand objects from ``n_init`` starts, of which ``draw`` returns the memberships.

    The default is random (Dirichlet) starts, because over all pairs near-uniform starts all reach the same
    optimum, which is not always the lowest.
    """
    task = SubsampleStart(labels, offsets, n_clusters, seed, weights, draw)
    with progress("starts of PCC", n_init, "starts") as listener:
        starts = _counted(engine.map(task, range(n_init)), listener)
        best, objectives = best_start(starts, lambda found: found.sums.objective)
    return task.resume(best, LONG_PASSES, LONG_TOL)._replace(start_objectives=objectives)


def _counted(starts: Iterator[Subsample], listener: Progress) -> Iterator[Subsample]:
    for found in starts:
        listener.advance(1)
        yield found


@dataclass(frozen=True)
class Extension:
    """Memberships of any block: the optimum of each object given a solved subsample, over all pairs."""

    ensemble: Ensemble
    estimate: AgreementSums
    start_objectives: list[float]
    """Of every start on the subsample."""

    def __call__(self, block: Block) -> np.ndarray:
        """Return the memberships (rows, K) float32 of a block."""
        labels = self.ensemble.read(block.start, block.stop)
        memberships = np.empty((block.n_rows, self.estimate.n_clusters), np.float32)
        place_block(self.estimate, labels, self.ensemble.offsets, memberships)
        return memberships


def extend_subsample(
    ensemble: Ensemble,
    sample: np.ndarray,
    n_clusters: int,
    n_init: int,
    seed: int,
    engine: Engine,
    draw: Callable[..., np.ndarray] = dirichlet,
) -> Extension:
    """Solve the rows ``sample`` of labels from ``n_init`` starts; return the placement of all objects."""
    found = solve_subsample(sample, ensemble.offsets, n_clusters, n_init, seed, engine, draw=draw)
    return extension_of(found, ensemble, sample)


def extension_of(found: Subsample, ensemble: Ensemble, sample: np.ndarray) -> Extension:
    """Return the placement of all objects given the solved rows ``sample`` of labels."""
    estimate = found.sums.scaled(ensemble.n_objects / sample.shape[0])
    return Extension(ensemble, estimate, found.start_objectives)


# Weights of partitions: with weights w_u, c_ij sums those of the partitions that put two objects together and
# N_ij those of the partitions that labeled both, as if partition u occurred w_u times

ENTROPY, INFORMATION = "entropy", "information"

# Relative to the mean weight: an uninformative partition counts next to nothing, yet objects that no other
# partition labeled are still placed by it.
LEAST_WEIGHT = 1e-3


def entropy_weights(labels: np.ndarray, offsets: np.ndarray) -> Weights:
    """Return weights of mean 1: the entropy of each partition's labels (rows, M) over its labeled rows.

    Two objects share label ``b`` by chance with probability ``p_b``, so sharing it carries information
    ``log(1 / p_b)``; the entropy is its mean over the objects.
    """
    return _of_mean_one(np.array([_entropy(column[column >= 0]) for column in labels.T]), offsets)


def information_weights(sums: AgreementSums, offsets: np.ndarray) -> Weights:
    """Return weights of mean 1: the mutual information of each partition and the solved memberships.

    Row ``b`` of S sums the memberships of the objects in base cluster ``b``, so the rows of one partition are
    its contingency table with the consensus, over the objects it labels.
    """
    memberships = np.maximum(sums.S[:, : sums.n_clusters], 0.0)  # rounding can leave negative sums
    tables = np.split(memberships, offsets[1:-1])
    return _of_mean_one(np.array([mutual_information_of_table(table) for table in tables]), offsets)


def _entropy(labels: np.ndarray) -> float:
    """Return the entropy of labels in nats, their mutual information with themselves; 0 if there are none."""
    return mutual_information_of_table(np.diag(np.bincount(labels))) if labels.size else 0.0


def _of_mean_one(worth: np.ndarray, offsets: np.ndarray) -> Weights:
    """Return weights proportional to ``worth (M,)``, or all one if that is zero."""
    if not worth.any():
        return Weights.of(np.ones(worth.size), offsets)
    weights = np.maximum(worth, LEAST_WEIGHT * worth.mean())
    return Weights.of(weights / weights.mean(), offsets)
