"""The variants of PCC: what each takes, how much memory it plans, which steps it has, and how it solves.

All pairs by the squared divergence are solved exactly by sums, by other divergences pair by pair or by
prototypes; listed pairs by a heap in memory, or block by block. `TAKES` tells which parameter applies to
which.
"""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bigcons.coassociation import count
from bigcons.coassociation.factorized import Rates, Weights
from bigcons.coassociation.sampling import sample_in_memory
from bigcons.divergences import Divergence, resolve_divergence
from bigcons.errors import (
    ConsensusWarning,
    InvalidInputError,
    MemoryBudgetError,
    SoftEnsembleError,
    warn_user,
)
from bigcons.execution.engine import Engine, local_engine
from bigcons.memory import DEFAULT_DATA_BYTES, Block, enough_for, format_size, parse_size
from bigcons.methods.pcc.all_pairs import (
    SUBSAMPLE,
    AllPairs,
    Begin,
    BySquares,
    Solved,
    first_rows,
    perturbed_uniform,
    softened,
    solve_sample,
)
from bigcons.methods.pcc.pairs import (
    BlockedPairs,
    FirstRows,
    Neighborhoods,
    check_tasks,
    cut_blocks,
    isolated_objects,
    place_isolated,
    placer_of,
    read_across,
    refuse_isolated,
    stretch_steps,
)
from bigcons.methods.pcc.prototypes import ByPrototypes, Pairwise, Prototypes, default_prototypes, sampled_gap
from bigcons.methods.tree import Placement
from bigcons.overlaps.tree import Sample, n_groups_for, plan_bytes
from bigcons.solving.assignment import count_given
from bigcons.solving.memory_plan import (
    MemoryPlan,
    block_label_bytes,
    is_planned,
    process_bytes,
)
from bigcons.solving.passes import Iterate, Run, run_passes
from bigcons.solving.survey import Survey
from bigcons.solving.workspace import Output, scratch_place
from bigcons.storage.interface import Place
from bigcons.stores.aligning import Start
from bigcons.stores.ensemble import Ensemble
from bigcons.stores.pair_rows import PAIR_BYTES
from bigcons.stores.pairs import PairTable, ParquetPairTable, pairs_of
from bigcons.stores.trust import TRUST_ROW
from bigcons.validation import check_choice, check_int, check_number

logger: logging.Logger = logging.getLogger("bigcons")

ALL, DENSE, PAPER, ENTROPY, CALIBRATED = "all", "dense", "paper", "entropy", "calibrated"
SQUARES, DIVERGENCES, HEAP, BLOCKED = "squares", "divergences", "heap", "blocked"


class Takes(NamedTuple):
    """The variants that a parameter applies to, and what it requires."""

    of: dict[str, str]
    """By kind of variant, in words: the default, or what it is; the others refuse it."""
    needs: str
    squares_only: bool = False
    """Whether it requires divergence="l2" besides."""


EVERY, ON_PAIRS = (SQUARES, DIVERGENCES, HEAP, BLOCKED), (HEAP, BLOCKED)

TAKES: dict[str, Takes] = {
    "n_init": Takes(dict.fromkeys(EVERY, "8"), "a start other than that of max_iter='paper'"),
    "start": Takes(dict.fromkeys(EVERY, "yes"), "a start other than that of max_iter='paper'"),
    "max_iter": Takes({**dict.fromkeys(EVERY, "100 passes"), HEAP: "10 n K steps"}, ""),
    "max_iter='paper'": Takes({HEAP: "n K steps"}, "solver='heap' and coassociation='paper'"),
    "weights": Takes({SQUARES: "yes"}, "pairs='all' and divergence='l2'"),
    "coassociation='calibrated'": Takes(
        dict.fromkeys((SQUARES, *ON_PAIRS), "by l2"), "divergence='l2'", squares_only=True
    ),
    "soft clusterings": Takes(
        dict.fromkeys((SQUARES, *ON_PAIRS), "yes"), "divergence='l2' or sampled pairs, for memberships"
    ),
}
"""Which parameters and inputs apply to which variants; "PCC in depth" in the documentation shows it."""


class Solution(NamedTuple):
    """The memberships found, and what else a fit keeps."""

    read: Callable[[Block], np.ndarray]
    """Gives the memberships (rows, K) float32 of a block, read-only."""
    at: Iterate[Any]
    """Where the passes ended."""
    gap: float
    converged: bool
    placer: BySquares | ByPrototypes | None
    """Gives the memberships of new objects; None if they cannot be placed."""
    attributes: dict[str, Any]
    """Further results of the fit."""


@dataclass(frozen=True)
class Variant(ABC):
    """A way to solve PCC, with checked parameters."""

    n_clusters: int
    divergence: Divergence
    pairs: Any
    max_iter: int | str | None
    tol: float
    n_init: int
    weights: Weights | str | None
    calibrates: bool
    memory: str | float | None
    earlier: Start | None
    """Clusters to start from."""

    kind: ClassVar[str]
    instead: ClassVar[str | None] = None
    """What takes less memory; None: ConsensusTree, if its plan fits."""
    n_generations: ClassVar[int] = 3
    """Generations of the memberships that a pass holds, one of them if it is shortened."""

    def n_passes(self, n_objects: int) -> int:  # noqa: ARG002 - of the heap, which counts steps
        """Return the largest number of passes."""
        return 100 if self.max_iter is None else int(self.max_iter)

    def begin(self, sample: Sample, weights: Weights | None, run: Run) -> Solved:
        """Solve the sample of a run over the labels, from clusters of its tree or of an earlier consensus."""
        K, n_init = self.n_clusters, self.n_init
        if self.earlier is None:
            groups = sample.groups(n_groups_for(K))
            clusters = groups.clusters_of(groups.cut(K))
        else:
            placement, n_init = Placement(run.data.offsets, K, weights), 1
            state = placement.state(*count_given(self.earlier.clusters, K, weights, run))
            clusters = placement.place(state, run.sample, None).clusters
        return solve_sample(run, clusters, K, n_init, weights, calibrates=self.calibrates)

    def statistics_bytes(self, ensemble: Ensemble) -> int:
        """Return the size of what a block reports of a pass, or of placing objects: the sums."""
        K, M = self.n_clusters, ensemble.n_partitions
        return 8 * ((ensemble.n_base_clusters + M) * (K + 8) + M * (K * (K + 1) + 16))

    def held_bytes(self, ensemble: Ensemble) -> int:  # noqa: ARG002 - of pairs in memory
        """Return the size of what else the solve holds."""
        return 0

    def plan(self, ensemble: Ensemble, engine: Engine, *, in_memory: bool) -> MemoryPlan:
        """Return the memory plan; ``in_memory``: whether memberships are held rather than stored."""
        n, K, rows = ensemble.n_objects, self.n_clusters, ensemble.chunk_rows
        n_sampled, statistics = min(n, SUBSAMPLE), self.statistics_bytes(ensemble)
        held = (4 if self.earlier is None else 8) * n + (
            4 * self.n_generations * n * K + TRUST_ROW.itemsize * n if in_memory else 0
        )
        held += n * ensemble.row_bytes if keeps_labels(ensemble, engine) else 0
        # of the sample: its incidence matrix, overlaps and groups, and a start; or what its judgment takes
        square = min(n_sampled, ensemble.n_base_clusters)
        start = 32 * n_sampled * ensemble.n_partitions + 24 * square**2 + 8 * n_sampled * (200 + 4 * K)
        held += max(start, plan_bytes(ensemble, n_sampled, n_groups_for(K), K))
        return MemoryPlan(
            held=held + self.held_bytes(ensemble),
            # including the memberships before and after, and their change
            per_block=block_label_bytes(ensemble) + 16 * rows * K + 64 * rows + 3 * statistics,
            per_result=statistics + 8 * rows + (4 * rows * K if in_memory else 0),
        )

    def check_memory(self, ensemble: Ensemble, engine: Engine, *, in_memory: bool) -> None:
        """Log the memory plan; raise MemoryBudgetError if it, or tables for many clusters, are too large."""
        of_tables = self.statistics_bytes(ensemble)
        if self.memory is None and of_tables > DEFAULT_DATA_BYTES:
            raise MemoryBudgetError(
                f"PCC of {self.n_clusters:,} clusters needs tables of {format_size(of_tables)} a block; "
                f"pass memory='{enough_for(8 * of_tables)}' to allow it, or use ConsensusTree.",
                needed=of_tables,
                budget=DEFAULT_DATA_BYTES,
            )
        if is_planned(engine, self.memory):
            plan = self.plan(ensemble, engine, in_memory=in_memory)
            stored = self.plan(ensemble, engine, in_memory=False) if in_memory else None
            remedy = ""
            if self.memory is not None and plan.n_bytes(engine, ensemble) > parse_size(self.memory):
                remedy = self._instead(ensemble, engine, parse_size(self.memory), in_memory=in_memory)
            plan.check("PCC", engine, ensemble, self.memory, remedy, stored)

    def _instead(self, ensemble: Ensemble, engine: Engine, budget: int, *, in_memory: bool) -> str:
        """Return what to use within a budget that is too small for this, if anything."""
        from bigcons.methods.tree import ConsensusTree

        if self.instead is not None:
            return f" or use {self.instead}"
        plan = ConsensusTree(self.n_clusters).memory_plan(ensemble, engine, in_memory=in_memory)
        return " or use ConsensusTree" if plan.n_bytes(engine, ensemble) <= budget else ""

    def steps(self, ensemble: Ensemble) -> dict[str, tuple[int | None, float]]:  # noqa: ARG002
        """Return the steps of the solve after the survey: objects, None if unknown, and cost of each."""
        return {}

    @abstractmethod
    def solve(self, run: Run, survey: Survey, begin: Begin, out: Output | None) -> Solution:
        """Solve, given a run over the labels, from the memberships of ``begin``."""


class Squares(Variant):
    """All pairs by the squared divergence, exactly."""

    kind = SQUARES
    n_generations = 2

    def steps(self, ensemble: Ensemble) -> dict[str, tuple[int | None, float]]:
        """Return the steps, with costs relative to that of comparing partitions."""
        of_pass = 0.8 + 0.06 * self.n_clusters
        return {"start of PCC": (ensemble.n_objects, 1.7 * of_pass), AllPairs.name: (None, of_pass)}

    def solve(self, run: Run, survey: Survey, begin: Begin, out: Output | None) -> Solution:  # noqa: ARG002
        """Solve, given a run over the labels."""
        at = run_passes(run, AllPairs(run.data.offsets, self.n_clusters, survey.n_seen, begin))
        counted, gap = at.state.weights, at.records[-1]["gap"]
        weights = np.ones(len(survey.n_seen)) if counted is None else counted.partitions
        attributes: dict[str, Any] = {"weights_": weights}
        if isinstance(counted, Rates):
            attributes |= rates_found((counted.a, counted.d))
        place = BySquares(at.state, run.data.offsets)
        read = partial(run.arrays.read, at.generation)
        return Solution(read, at, gap, gap <= self.tol, place, attributes)


class EveryPair(Variant):
    """All pairs of a few thousand objects by any divergence, pair by pair."""

    kind = DIVERGENCES

    def statistics_bytes(self, ensemble: Ensemble) -> int:
        """Return the size of labels and memberships of all objects, and of the terms of one of them."""
        n = ensemble.n_objects
        return n * ensemble.row_bytes + 20 * n * self.n_clusters + 32 * n

    def solve(self, run: Run, survey: Survey, begin: Begin, out: Output | None) -> Solution:  # noqa: ARG002
        """Solve, given a run over the labels."""
        at = run_passes(run, Pairwise(self.n_clusters, self.divergence, survey.mean_weight, begin))
        gap, read = at.records[-1]["gap"], partial(run.arrays.read, at.generation)
        place = placer_of(run, read, self.divergence, None, np.empty(0, np.int64))
        return Solution(read, at, gap, gap <= self.tol, place, {})


class Grouped(Variant):
    """All pairs by any divergence, by prototypes."""

    kind = DIVERGENCES

    def statistics_bytes(self, ensemble: Ensemble) -> int:
        """Return the size of the tables of prototypes."""
        n_tables = ensemble.n_base_clusters + ensemble.n_partitions
        return 8 * (default_prototypes(self.n_clusters) + 8) * n_tables

    def solve(self, run: Run, survey: Survey, begin: Begin, out: Output | None) -> Solution:  # noqa: ARG002
        """Solve, given a run over the labels."""
        scale = survey.mean_weight
        method = Prototypes(self.divergence, default_prototypes(self.n_clusters), scale, begin)
        at = run_passes(run, method)
        gap = sampled_gap(run, at.generation, self.divergence) / scale
        last = at.records[-1]
        attributes = {"approximation_error_": last["error"], "grouped_gap_": last["gap"]}
        place = ByPrototypes(at.state.tables, run.data.offsets, self.divergence)
        read = partial(run.arrays.read, at.generation)
        return Solution(read, at, gap, at.is_settled, place, attributes)


# Listed pairs


class Listed(Variant):
    """Pairs of a table, in one block or many."""

    @abstractmethod
    def blocks(self, pairs: PairTable) -> list[Block]:
        """Return the blocks that are solved one by one."""

    def first(self, run: Run, begin: Begin) -> FirstRows:
        """Return the first memberships: those of a solved sample, extended to all objects."""
        solved = begin(run)
        first, rates = first_rows(run.data, solved), solved.sums.weights
        is_squared = self.divergence.label == "l2"

        def of_block(block: Block) -> np.ndarray:
            rows, _ = first(block)
            return rows if is_squared else softened(rows)

        given = (rates.a, rates.d) if isinstance(rates, Rates) else None
        return FirstRows(of_block, given, tuple(solved.start_objectives))

    def solve(self, run: Run, survey: Survey, begin: Begin, out: Output | None) -> Solution:  # noqa: ARG002
        """Solve, given a run over the labels; objects that are in no pair are placed over all pairs."""
        ensemble, n, K = run.data, run.data.n_objects, self.n_clusters
        pairs = counted_pairs(self.pairs, ensemble, run.seed, run.engine)
        warn_of_few_pairs(pairs, K)
        can_place = not ensemble.is_soft or self.divergence.label == "l2"
        with scratch_place(out) as scratch:
            pairs, engine = self.ready(pairs, run.engine, scratch)
            if not can_place:
                refuse_isolated(ensemble, pairs)
            near = Neighborhoods.of(pairs, self.blocks(pairs), engine, self.divergence)
            budget = self.memory if self.kind == BLOCKED else None
            left = None if budget is None else max(parse_size(budget) - process_bytes(run.engine), 0)
            check_tasks(near, K, engine, left)
            over_pairs = replace(run, data=pairs, engine=engine, rounds=near.in_rounds())
            method = BlockedPairs(near, partial(self.first, run, begin), self.max_steps(n))
            at = run_passes(over_pairs, method)
            generation = at.generation
            read = partial(read_across, run.arrays, generation, near.blocks)
            gap, rates, place = at.records[-1]["gap"], at.state.rates, None
            if can_place:
                isolated = isolated_objects(pairs)
                if isolated.size:
                    logger.info("%d objects in no sampled pair are placed over all pairs", isolated.size)
                    place = placer_of(run, read, self.divergence, rates, isolated)
                    place_isolated(run, read, generation + 1, isolated, place)
                    read = partial(run.arrays.read, generation + 1)
                place = placer_of(run, read, self.divergence, rates, np.empty(0, np.int64))
            attributes = {} if rates is None else rates_found(rates)
            return Solution(read, at, gap, gap <= self.tol, place, attributes)

    @abstractmethod
    def ready(self, pairs: PairTable, engine: Engine, scratch: Place) -> tuple[PairTable, Engine]:
        """Return the pairs where tasks can read them, and the engine of the tasks."""

    def max_steps(self, n_objects: int) -> int | None:  # noqa: ARG002 - of the heap
        """Return the largest number of steps, None for as many as the passes take."""
        return None


class Heap(Listed):
    """Algorithm 1 of the paper: one block of all objects, in memory, on one core."""

    kind = HEAP
    instead: ClassVar[str | None] = "solver='blocked', pairs='all' or a smaller share"

    def held_bytes(self, ensemble: Ensemble) -> int:
        """Return the size of the pairs, and of memberships and gradients."""
        n = ensemble.n_objects
        # a pair end: index, two counts, share, weight, and temporaries
        return 16 * n * self.n_clusters + 36 * n_pair_ends(self.pairs, n)

    def max_steps(self, n_objects: int) -> int:
        """Return the largest number of steps: n K in the paper, short of the optimum, else 10 n K."""
        if isinstance(self.max_iter, int):
            return self.max_iter
        return (1 if self.max_iter == PAPER else 10) * n_objects * self.n_clusters

    def n_passes(self, n_objects: int) -> int:
        """Return the largest number of stretches of steps."""
        return -(-self.max_steps(n_objects) // stretch_steps(n_objects, self.n_clusters))

    def blocks(self, pairs: PairTable) -> list[Block]:
        """Return one block."""
        return [Block(0, 0, pairs.n_objects)]

    def ready(self, pairs: PairTable, engine: Engine, scratch: Place) -> tuple[PairTable, Engine]:  # noqa: ARG002
        """Return the pairs in memory."""
        return pairs.load() if isinstance(pairs, ParquetPairTable) else pairs, local_engine(engine)

    def first(self, run: Run, begin: Begin) -> FirstRows:
        """Return the first memberships: by the limit of the paper, its uniform ones, perturbed."""
        if self.max_iter != PAPER:
            return super().first(run, begin)
        return FirstRows(lambda b: perturbed_uniform(b.n_rows, self.n_clusters, run.seed, b.index))


class Blocked(Listed):
    """Algorithm 1 within blocks of objects, on all cores or workers; pairs are read from their store."""

    kind = BLOCKED

    def held_bytes(self, ensemble: Ensemble) -> int:
        """Return the size of pairs that are yet to be counted."""
        if isinstance(self.pairs, PairTable):
            return 0
        return PAIR_BYTES * n_pair_ends(self.pairs, ensemble.n_objects) // 2

    def blocks(self, pairs: PairTable) -> list[Block]:
        """Return blocks of equal cost."""
        return cut_blocks(pairs)

    def ready(self, pairs: PairTable, engine: Engine, scratch: Place) -> tuple[PairTable, Engine]:
        """Return the pairs in a store, if they are in Parquet or in memory that workers do not share."""
        if not isinstance(pairs, ParquetPairTable):
            is_sent = pairs.path is None and not engine.shares_memory
            return pairs.save(str(scratch)) if is_sent else pairs, engine
        if self.memory is None:
            return pairs.save(str(scratch)), engine
        budget = parse_size(self.memory)
        left = max(budget - process_bytes(engine), 0)
        try:
            return pairs.save(str(scratch), memory=f"{left} B"), engine
        except MemoryBudgetError as error:
            if error.needed is None:
                raise
            needed = budget - left + error.needed
            raise MemoryBudgetError(
                f"converting {pairs.path} to rows needs {format_size(error.needed)}, over the "
                f"{format_size(left)} that memory={format_size(budget)} leaves; raise it to "
                f"{enough_for(needed)}, or store the pairs with bigcons import-pairs first.",
                needed=needed,
                budget=budget,
            ) from error


def rates_found(rates: tuple[float, float]) -> dict[str, float]:
    """Return the attributes of a calibrated co-association."""
    a, d = rates
    return {"hit_rate_": a + d, "false_join_rate_": a}


def n_pair_ends(pairs: Any, n_objects: int) -> int:
    """Return the approximate number of pair ends of listed pairs."""
    if isinstance(pairs, PairTable):
        return 2 * pairs.n_pairs
    return int((1.0 if pairs == DENSE else float(pairs)) * n_objects * (n_objects - 1))


def counted_pairs(pairs: Any, ensemble: Ensemble, seed: int, engine: Engine) -> PairTable:
    """Return the table of a variant's ``pairs``: given, or counted now."""
    if isinstance(pairs, PairTable):
        return pairs
    if pairs == DENSE:
        i, j = np.triu_indices(ensemble.n_objects, 1)
        return count(ensemble, i, j, client=engine)
    # labels of up to a gigabyte are held while pairs are counted
    return sample_in_memory(ensemble, {"share": float(pairs)}, seed, 10**9, engine)


def warn_of_few_pairs(pairs: PairTable, n_clusters: int) -> None:
    """Warn if objects are in too few pairs for these to determine their memberships in ``n_clusters``."""
    # Measured on 20 and 50 planted classes (4,000 objects, 100 partitions, the heap): adjusted Rand indices
    # of .19 and .08 for at most one pair, .66 and .57 for two, .94 and .98 for four or five. By blocks, on 10
    # clusters of 100,000 objects, 100 passes do not settle up to two.
    per_object, all_others = 2 * pairs.n_pairs / pairs.n_objects, pairs.n_objects - 1
    if n_clusters > 1 and per_object < min(3 * n_clusters, all_others):
        enough = min(3 * n_clusters / all_others, 1.0)
        warn_user(
            f"objects are in {per_object:.3g} pairs on average, too few to tell {n_clusters} clusters apart; "
            f"use pairs='all', or a share of {enough:.2g} or more, 3 pairs an object for each "
            "cluster.",
            ConsensusWarning,
        )


# The choice


def keeps_labels(ensemble: Ensemble, engine: Engine) -> bool:
    """Return whether labels are read once and kept: for few objects reading costs more than solving."""
    return engine.shares_memory and ensemble.n_objects * ensemble.row_bytes <= 32_000_000


def choose_variant(model: Any, ensemble: Ensemble, engine: Engine) -> Variant:
    """Check the parameters of a `PCC`, refuse those that do not apply, and return the variant."""
    max_iter, n_init, weights, memory = model.max_iter, model.n_init, model.weights, model.memory
    check_number("tol", model.tol, at_least=0.0)
    check_choice("coassociation", model.coassociation, (PAPER, CALIBRATED))
    divergence, calibrates = resolve_divergence(model.divergence), model.coassociation == CALIBRATED
    if max_iter not in (None, PAPER):
        max_iter = check_int("max_iter", max_iter)
    n_starts = 8 if n_init == "auto" else check_int("n_init", n_init, or_auto=True)
    if isinstance(weights, str) and weights != ENTROPY:
        raise InvalidInputError(f"weights={weights!r} is unknown; use 'entropy', numbers or None.")
    counted = weights if isinstance(weights, str) else Weights.given(weights, ensemble.offsets)
    kind, pairs = _choose_class(model, divergence, ensemble)
    if kind is Heap and memory is None and pairs == DENSE:
        memory = DEFAULT_DATA_BYTES  # all pairs as a list
    asked = (divergence, pairs, max_iter, model.tol, n_starts, counted, calibrates, memory, model._start)
    variant = kind(model.n_clusters, *asked)
    if (
        kind is Heap
        and model.solver == "auto"
        and max_iter != PAPER
        and getattr(pairs, "path", None) is not None
    ):
        # at most: with memberships in memory
        needed = variant.plan(ensemble, engine, in_memory=True).n_bytes(engine, ensemble)
        if memory is not None and needed > parse_size(memory):
            variant = Blocked(model.n_clusters, *asked)
    given = {
        "n_init": n_init != "auto",
        "start": model._start is not None,
        "max_iter='paper'": max_iter == PAPER,
        "weights": weights is not None,
        "coassociation='calibrated'": calibrates,
    }
    _refuse_others(variant, ensemble, given)
    return variant


def _refuse_others(variant: Variant, ensemble: Ensemble, given: dict[str, bool]) -> None:
    """Refuse parameters that are given but do not apply to the variant, or to each other, by `TAKES`."""
    if ensemble.is_soft:
        refused = {
            f"divergence={variant.divergence.label!r}": variant.kind not in TAKES["soft clusterings"].of,
            "coassociation='calibrated'": variant.calibrates,
            f"weights={variant.weights!r}": isinstance(variant.weights, str),
        }
        for what in (what for what, is_refused in refused.items() if is_refused):
            raise SoftEnsembleError(f"PCC with {what}", TAKES["soft clusterings"].needs)
    by_squares, is_paper = variant.divergence.label == "l2", variant.max_iter == PAPER
    for name in (name for name, is_given in given.items() if is_given):
        takes = TAKES[name]
        applies = variant.kind in takes.of and (by_squares or not takes.squares_only)
        if is_paper:
            applies &= name not in ("n_init", "start") and not variant.calibrates
        if not applies:
            raise InvalidInputError(
                f"{name} with pairs={variant.pairs!r}, divergence={variant.divergence.label!r}; it requires "
                f"{takes.needs}."
            )


def _choose_class(model: Any, divergence: Divergence, ensemble: Ensemble) -> tuple[type[Variant], Any]:
    """Return the variant for the pairs and the solver of a `PCC`, and its pairs, a table opened.

    "auto" solves pairs block by block if they are in tiles, or at least a million: it depends on the
    pairs alone, as by the number of workers a cluster would find other bits than one thread. Refuses pairs
    that are none, or of other objects, and solvers of others.
    """
    pairs: Any = model.pairs
    asked, n = model.solver, ensemble.n_objects
    is_share = isinstance(pairs, Real) and pairs is not True and 0 < float(pairs) <= 1  # not NaN
    if not (is_share or (isinstance(pairs, str) and pairs in (ALL, DENSE))):
        if not isinstance(pairs, (str, os.PathLike, PairTable)):
            raise InvalidInputError(
                f"pairs={pairs!r}; use 'all', 'dense', a share of the pairs in (0, 1], a PairTable or a path."
            )
        pairs = pairs_of(pairs, n)
        if pairs.n_objects != n:
            raise InvalidInputError(
                f"pairs are of n_objects={pairs.n_objects} but the ensemble has n_objects={n}; "
                "sample pairs of this ensemble."
            )
    check_choice("solver", asked, ("auto", ALL, HEAP, BLOCKED))
    if asked in ((HEAP, BLOCKED) if pairs == ALL else (ALL,)):
        raise InvalidInputError(
            f"solver={asked!r} is incompatible with pairs={pairs!r}; "
            "use solver='all' with pairs='all', and 'heap' or 'blocked' with sampled or dense pairs."
        )
    if pairs == ALL:
        return (Squares if divergence.label == "l2" else EveryPair if n <= SUBSAMPLE else Grouped), pairs
    if asked != "auto":
        return (Heap if asked == HEAP else Blocked), pairs
    if model.max_iter == PAPER or pairs == DENSE:
        return Heap, pairs
    is_tiled = getattr(pairs, "path", None) is not None and pairs.rows_per_block is not None
    return (Blocked if is_tiled or n_pair_ends(pairs, n) >= 2_000_000 else Heap), pairs
