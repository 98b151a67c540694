"""PCC over all pairs with the squared divergence: an exact fold over row blocks, without forming pairs.

Objects interact only through sums of a few thousand numbers (``AgreementSums``; the identities are in
``kernels/all_pairs.py``), so a pass over the label matrix costs O(n M K + n K^2 M), whatever the number of
pairs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bigcons.coassociation.factorized import AgreementSums, Rates, Weights, add_sums, agreement_sums
from bigcons.execution.engine import local_engine
from bigcons.memory import Block, row_blocks
from bigcons.methods.pcc.memberships import MOVE_ALL, Init, checked_start, start_of_block, threshold_after
from bigcons.methods.pcc.subsample import (
    ENTROPY,
    Subsample,
    entropy_weights,
    information_weights,
    solve_subsample,
)
from bigcons.methods.pcc.updates import (
    RELAXATION,
    Change,
    add_changes,
    add_step_sums,
    apply_change,
    apply_part,
    decreases_enough,
    line_search,
    measure_block,
    objective_change,
    place_block,
    update_block,
)
from bigcons.progress import progress
from bigcons.solving.passes import Iterate, Record, Run, Step, Visit, run_passes, sizes_of, until
from bigcons.solving.survey import mean_pair_weight
from bigcons.storage.checkpoint import BlockArrays
from bigcons.stores.ensemble import Ensemble
from bigcons.stores.ensemble_store import observed

# Passes over calibrated models end when the memberships are estimated to change by at most this many times
# `tol` in all further ones: changes fall by the mean factor of the last passes, LEAST_FACTOR at least.
FEWEST_PASSES, CHANGE_PER_TOL, LEAST_FACTOR = 3, 30.0, 0.25

# Passes by which the next one is extrapolated, at most, and what keeps their equations solvable.
MOST_PAST, RIDGE = 4, 1e-10

# Of the last passes, how many may have been undone before another one goes by sums ahead.
LATE_PASSES, MOST_UNDONE = 8, 2

# How far beyond a pass the first stride away from a saddle goes, in errors of that pass.
FIRST_STRIDE = 8.0

# The tolerance of passes over the larger sample, in those of passes over all, and its blocks.
LARGER_TOL, LARGER_BLOCKS = 3.0, 16

# Passes over calibrated models that are expected before two have been made.
USUAL_CALIBRATED = 4


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
        place, weights, solved = None, None, None
        with progress("start from a sample", 0):
            if callable(init):
                place, weights = init(run)
            if weights is None:
                weights, solved = self._counted(run)
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
                estimate = self._estimate(run, solved)
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

    def _estimate(self, run: Run, solved: Subsample) -> AgreementSums:
        """Return the sums over all objects that the samples tell: the subsample, then the larger one.

        The memberships of a few thousand objects miss those of all by several percent, which passes over a
        small part of all correct for the most part.
        """
        n, estimate, n_sampled = run.data.n_objects, solved.sums, run.sample.shape[0]
        if n_larger := len(run.larger):
            engine = local_engine(run.engine)
            data = SampleData(run.larger, run.data.offsets)
            n_seen = np.count_nonzero(observed(run.larger, run.data.offsets), axis=0)
            about = self.n_clusters, n_seen, self.solve_sample
            method = LargerSample(*about, estimate.scaled(n_larger / n_sampled))
            larger = Run(data, engine, run.seed, run.max_passes, LARGER_TOL * run.tol, init=run.init)
            estimate, n_sampled = run_passes(larger, method).state.sums, n_larger
        return estimate.scaled(n / n_sampled)

    def visit(self, run: Run, at: Iterate[Passes]) -> Visit:
        """Return the task that updates every object of a block given all others."""
        sums, ahead = at.state.sums, at.state.ahead
        threshold = self._threshold(run, at) * self._mean_weight(run, sums)
        at_once = self.solve_sample is not None
        relaxation = RELAXATION if len(run.blocks) == 1 and not at_once else 1.0
        reads, writes = [at.generation], at.generation + 1
        update = partial(update_block, at_once=at_once)
        given = sums if ahead is None else ahead
        return run.visit(update, given, run.data.offsets, threshold, relaxation, reads=reads, writes=writes)

    def add(self, total: Change, part: Change) -> Change:
        """Add the change of a further block, in place."""
        return add_changes(total, part)

    def step(self, run: Run, at: Iterate[Passes], total: Change) -> Step[Passes]:
        """Take the full step if the objective decreases enough, else the best shorter one.

        A step by sums ahead is taken if the objective decreases, else none. Where the next pass can be by
        sums ahead, a step that decreases it too little is not taken either, which costs no further pass.
        """
        sums, change, length, n_generations = at.state.sums, total, 1.0, 1
        reached = found = apply_change(sums, change)
        is_ahead = at.state.ahead is not None
        if is_ahead:
            # nor may it be NaN, as of sums far from those of any memberships
            overshoots = not objective_change(sums, change) <= 0.0
        else:
            move_at_once = len(run.blocks) > 1 or self.solve_sample is not None
            overshoots = move_at_once and change.n_moved > 0 and not decreases_enough(sums, change)
        is_left = overshoots and (is_ahead or self._may_leave(at))
        if is_left:
            run.arrays.drop(at.generation + 1)
            reached, length, n_generations = sums, 0.0, 0
        elif overshoots:
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
            "change": change.largest * length if length > 0.0 else 0.0,
        }
        is_settled = not is_ahead and change.n_moved == 0
        if self.solve_sample is None:
            return Step(Passes(reached), record, is_settled, n_generations)
        if is_left and is_ahead:
            return Step(at.state.undone(), record, is_settled, n_generations)
        remaining = change.largest if is_left else remaining_change([*at.records, record])
        is_near = remaining < CHANGE_PER_TOL * run.tol or change.n_moved == 0
        leads = not is_near and (is_left or (length == 1.0 and may_lead(at.records)))
        state = at.state.after(reached, found, leads=leads)
        is_settled |= is_near and not is_ahead and len(at.records) >= FEWEST_PASSES - 1
        return Step(state, record, is_settled, n_generations)

    def _may_leave(self, at: Iterate[Passes]) -> bool:
        """Return whether a pass may take no step, since the next goes by sums ahead: not twice in turn."""
        steps = at.records[-1:]
        return self.solve_sample is not None and may_lead(at.records) and all(r["step_length"] for r in steps)

    def passes_left(self, run: Run, records: list[Record]) -> int | None:
        """Return about how many more passes there are: over a calibrated model, by the changes that remain.

        A pass by sums ahead, as most after the first are, may not be the last.
        """
        if self.solve_sample is None:
            return until(sizes_of(records), run.tol)
        n_passes, end = len(records), CHANGE_PER_TOL * run.tol
        if n_passes < 2 or end <= 0.0:
            return None if end <= 0.0 else USUAL_CALIBRATED - n_passes
        if math.isinf(remaining := remaining_change(records)):
            return None
        if remaining < end:
            return max(1, FEWEST_PASSES - n_passes)
        n_to_come = math.ceil(math.log(end / remaining) / math.log(mean_factor(records))) + 1
        return max(FEWEST_PASSES - n_passes, n_to_come)

    def pack(self, state: Passes) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the sums, also those ahead, and the partition weights as arrays and facts."""
        sums, ahead = state.sums, state.ahead
        arrays = {"S": sums.S, "T": sums.T}
        if sums.weights is not None:
            arrays |= {name: part for name, part in sums.weights._asdict().items() if part is not None}
        if ahead is not None:
            arrays |= {"ahead_S": ahead.S, "ahead_T": ahead.T}
        for p, past in enumerate(state.past):
            arrays |= {f"past_{p}.{name}": array for name, array in past._asdict().items()}
        facts = {"n_clusters": sums.n_clusters, "squares": sums.squares, "quartics": sums.quartics}
        return arrays, {**facts, "stride": state.stride}

    def unpack(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> Passes:
        """Return the sums of a snapshot."""
        S, T = arrays.pop("S"), arrays.pop("T")
        facts = dict(facts)
        stride = facts.pop("stride")
        n_past = sum(name.endswith(".error") for name in arrays)
        past = [
            Past(**{name: arrays.pop(f"past_{p}.{name}") for name in Past._fields}) for p in range(n_past)
        ]
        ahead_S, ahead_T = arrays.pop("ahead_S", None), arrays.pop("ahead_T", None)
        kind = Rates if "omega" in arrays else Weights
        sums = AgreementSums(S=S, T=T, **facts, weights=kind(**arrays) if arrays else None)
        ahead = None if ahead_S is None or ahead_T is None else sums._replace(S=ahead_S, T=ahead_T)
        return Passes(sums, ahead, tuple(past), stride)

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

    A pass places the objects by sums ``e`` and finds theirs, ``F(e)``; the solution is where they agree. The
    errors ``F(e) - e`` of the last passes tell where they lead: the affine combination of these passes whose
    error is least is where ``e`` is next, by Anderson's extrapolation. After a single pass it is halfway to
    ``F(e)``, as objects that move at once usually move about twice too far.

    Near a saddle the errors grow, and extrapolation leads back to it: the objective would rise, and the pass
    is undone. The next ones then stride away from it, ``stride`` errors beyond ``F(e)``, twice as far each
    time, until the objective would rise again.
    """

    sums: AgreementSums
    """Of the memberships."""
    ahead: AgreementSums | None = None
    """The sums ahead, by which the next pass places objects; None for those of the memberships."""
    past: tuple[Past, ...] = ()
    """The last passes by which the next ones are extrapolated, the latest last."""
    stride: float = 0.0
    """How many errors the next pass goes beyond ``F(e)``; 0 where it is extrapolated."""

    def undone(self) -> Passes:
        """Return the state after a pass by sums ahead that would raise the objective."""
        return Passes(self.sums, None, (), 0.0 if self.stride else FIRST_STRIDE)

    def after(self, reached: AgreementSums, found: AgreementSums, *, leads: bool) -> Passes:
        """Return the state after a pass that found these sums, and reached those of its step.

        ``leads``: the next pass is to be by sums ahead.
        """
        given = self.sums if self.ahead is None else self.ahead
        past = (*self.past, Past(found.S - given.S, found.S, found.T))[-MOST_PAST:]
        if not leads:
            return Passes(reached, None, past, self.stride)
        if self.stride:
            stride = self.stride if self.ahead is None else 2.0 * self.stride
            S, T = (at + stride * (at - before) for at, before in ((found.S, given.S), (found.T, given.T)))
            return Passes(reached, reached._replace(S=S, T=T), past, stride)
        if len(past) == 1:
            halfway = reached._replace(S=0.5 * (given.S + found.S), T=0.5 * (given.T + found.T))
            return Passes(reached, halfway, past)
        turns = [later.error - sooner.error for sooner, later in itertools.pairwise(past)]
        products = np.array([[np.einsum("bk,bk->", a, b) for b in turns] for a in turns])
        products += RIDGE * np.trace(products) * np.eye(len(turns))
        if not products.any():
            return Passes(reached, None, past)
        parts = np.linalg.solve(products, [np.einsum("bk,bk->", turn, past[-1].error) for turn in turns])
        S, T = found.S.copy(), found.T.copy()
        for part, (sooner, later) in zip(parts, itertools.pairwise(past), strict=True):
            S -= part * (later.S - sooner.S)
            T -= part * (later.T - sooner.T)
        return Passes(reached, reached._replace(S=S, T=T), past)


class Past(NamedTuple):
    """A pass that has been made."""

    error: np.ndarray
    """``F(e) - e``, of S."""
    S: np.ndarray
    """Of ``F(e)``, as T."""
    T: np.ndarray


def may_lead(records: list[Record]) -> bool:
    """Return whether the next pass may be by sums ahead: not if several of late led nowhere."""
    return sum(record["step_length"] == 0.0 for record in records[-LATE_PASSES:]) < MOST_UNDONE


def remaining_change(records: list[Record]) -> float:
    """Return the estimated largest change of a membership that further passes would make in all.

    The changes of full steps fall geometrically, by `mean_factor`; infinite if that cannot be told.
    """
    factor = mean_factor(records)
    return full_changes(records)[-1] * factor / (1.0 - factor) if factor < 1.0 else math.inf


def mean_factor(records: list[Record]) -> float:
    """Return the mean factor by which the last three changes at most fall, `LEAST_FACTOR` or more.

    1 if they do not fall, or that cannot be told. Those of extrapolated passes fall unevenly.
    """
    changes = full_changes(records)[-4:]
    if len(changes) < 2:
        return 1.0
    first, last = changes[0], changes[-1]
    if last == 0.0:
        return LEAST_FACTOR
    return max((last / first) ** (1.0 / (len(changes) - 1)), LEAST_FACTOR) if last < first else 1.0


def full_changes(records: list[Record]) -> list[float]:
    """Return the largest change of each pass, had it taken its full step; without the passes undone."""
    return [record["change"] / record["step_length"] for record in records if record["step_length"] > 0.0]


class LargerSample(AllPairs):
    """The passes over a larger sample, from sums that the subsample tells."""

    name = "start from a larger sample"

    def __init__(
        self,
        n_clusters: int,
        n_seen: np.ndarray,
        solve_sample: Callable[..., Subsample] | None,
        estimate: AgreementSums,
    ) -> None:
        super().__init__(n_clusters, n_seen, solve_sample=solve_sample)
        self.estimate = estimate
        """Sums over the larger sample."""

    def start(self, run: Run) -> tuple[Passes, list[float]]:
        """Write the first memberships and return their sums."""
        how = run.seed, run.init, self.estimate, self.estimate.weights
        return Passes(run.fold(FirstBlock(run.data, run.arrays, self.n_clusters, *how), add_sums)), []


class SampleData(NamedTuple):
    """Labels of some objects as the data of a run."""

    labels: np.ndarray
    offsets: np.ndarray

    @property
    def n_objects(self) -> int:
        """The number of objects."""
        return len(self.labels)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return the labels of objects ``start`` to ``stop``."""
        return self.labels[start:stop]

    def blocks(self) -> list[Block]:
        """Return blocks of equal size."""
        return row_blocks(self.n_objects, -(-self.n_objects // LARGER_BLOCKS))


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
            memberships = np.empty((block.n_rows, self.estimate.n_clusters), np.float32)
            sums = place_block(self.estimate, labels, offsets, memberships)
        else:
            memberships = (
                start_of_block(self.init, block, self.n_clusters, self.seed)
                if self.place is None
                else self.place(labels)
            )
            sums = agreement_sums(labels, offsets, memberships, self.weights)
        unused = self.n_clusters - memberships.shape[1]
        memberships = np.pad(memberships, ((0, 0), (0, unused))) if unused else memberships
        self.arrays.write(0, block, memberships)
        return sums
