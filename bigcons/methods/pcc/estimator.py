"""The PCC estimator: from parameters to a solver, and from its solution to results.

All pairs by the squared divergence are solved exactly by sums (`all_pairs`); listed pairs, such as all pairs
of few objects by other divergences, by a heap in memory, or block by block (`pairs`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from bigcons.divergences import Divergence, resolve_divergence
from bigcons.errors import (
    ConvergenceWarning,
    InvalidInputError,
    MemoryBudgetError,
    OversegmentationWarning,
    UndersegmentationWarning,
    warn_user,
)
from bigcons.memory import (
    DEFAULT_DATA_BYTES,
    LABELS_TOGETHER,
    N_SAMPLED,
    Block,
    enough_for,
    format_size,
    parse_size,
)
from bigcons.methods.base import ConsensusClusterer, MethodInfo, judge_sample
from bigcons.methods.pcc.all_pairs import (
    AllPairs,
    Solved,
    best_memberships,
    entropy_weights,
    packed_sums,
    solve_sample,
    unpacked_sums,
)
from bigcons.methods.pcc.pairs import DENSE, PAPER, counted_pairs, n_pair_ends, solve_pairs, stretch_steps
from bigcons.run.engine import Engine, local_engine
from bigcons.run.memory_plan import MemoryPlan, block_label_bytes, process_bytes
from bigcons.run.passes import Iterate, Run, as_history, open_workspace, run_passes
from bigcons.run.results import Output
from bigcons.run.survey import Survey, take_survey, warn_of_dissent
from bigcons.seeding import draw_rows
from bigcons.store.clusters import TRUST_ROW
from bigcons.store.ensemble import Ensemble
from bigcons.store.pair_rows import PAIR_BYTES
from bigcons.store.pairs import PairTable, pairs_of
from bigcons.trust.confidence import can_weigh
from bigcons.trust.groups import FEWEST_LABELS, Sample, n_groups_for, plan_bytes
from bigcons.validation import check_choice, check_int, check_number
from bigcons.weights import Weights

SAMPLE, SHARE = 16_384, 64
"""The best start is extended to so many objects before all, or to one in so many: passes over these then cost
little beside those that they save.

`benchmarks/phases.py` has the time of the passes that are left.
"""


@dataclass(eq=False, repr=False, kw_only=True)
class PCC(ConsensusClusterer):
    """Probabilistic consensus clustering using evidence accumulation.

    Every object gets a membership ``y_i`` on the simplex such that ``y_i.y_j`` explains how often objects
    ``i`` and ``j`` are clustered together. PCC minimizes ``sum N_ij d(c_ij / N_ij, y_i.y_j)``, where ``N_ij``
    partitions label both objects and ``c_ij`` of them put both in one cluster (Lourenço et al. 2015,
    equation 4). Missing labels need no special treatment. Without options this is the published
    model.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Maximum number of clusters. "auto": by `bigcons.choose_n_clusters`.
    divergence : {"l2", "kl", "exponential"}, "power:<p>" or Divergence, default="l2"
        Bregman divergence ``d``. Over all pairs "l2" is solved at any size; the others as pairs="dense", for
        up to 2,048 objects.
    pairs : {"all", "dense"}, float, PairTable or path-like, default="all"
        "all": every pair, in one pass over the labels per iteration, without forming any pair. A share such
        as 0.25e-3: that share of the pairs, drawn uniformly. A PairTable or its path: the pairs it holds;
        Parquet of up to 1 GB is read into memory.
        "dense": every pair, one by one, for small data.
    solver : {"auto", "all", "heap", "blocked"}, default="auto"
        "all" for pairs="all"; for other pairs "heap" (the paper's Algorithm 1 on one core, with the pairs in
        memory) or "blocked" (the same within blocks of objects, on all cores or workers, with the pairs read
        from their store). "auto" chooses "blocked" for a million pairs or more, and for stored pairs that
        were sampled in tiles or whose heap would exceed ``memory``, else "heap".
    max_iter : int, "paper" or None, default=None
        Maximum number of passes over the data (None: 100). For the heap, of single-object steps (None: 10
        n_objects n_clusters; "paper": n_objects n_clusters, which ends well above the optimum, from the
        uniform start of the paper, perturbed because it is a saddle point).
    tol : float, default=3e-4
        Largest KKT gap at convergence, relative to the mean weight ``sum_j N_ij`` of an object. 0 runs to
        ``max_iter``.
    n_init : int or "auto", default="auto"
        Number of starts, "auto": 8. The first is the clusters of a tree, the others random memberships. All
        are solved on a sample of 2,048 objects; that of the lowest objective is extended to all objects,
        over all pairs by "l2" first to 16,384, or one in 64.
    weights : "entropy", array of shape (n_partitions,) or None, default=None
        Weights of the partitions, for pairs="all" and "l2": numbers >= 0 by which each partition counts in
        ``c_ij`` and ``N_ij``, as if it occurred that many times. None: all count the same. "entropy": the
        entropy of the labels of each partition, estimated on the sample, with mean 1.
    resume : bool, default=True
        Whether to resume an interrupted solve to ``out``, with the same result as an uninterrupted one.
    random_state : int, RandomState, Generator or None, default=None
        Seed; one seed gives the same bits on any engine and any number of workers.
    memory : str, int or None, default=None
        Memory budget such as "2GB"; a fit that would need more is refused before it starts.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_ : (n_objects,) int32, -1 for objects that no partition labeled
    memberships_ : (n_objects, n_clusters) float32, rows sum to 1
    n_clusters_ : number of clusters with at least one object in ``labels_``
    trust_ : how far the labels can be trusted: for every object the ``confidence`` that its label is right,
        and the second most probable cluster; tables of ``clusters`` and ``partitions``: see
        `bigcons.metrics.trust`. Not where a table of clusters and base clusters would take 1 GiB
    has_structure_ : whether some number of clusters stands out, None where that is not known: see
        `ConsensusTree`
    weights_ : (n_partitions,) float64, the weights of the partitions; for pairs="all" and "l2"
    objective_ : the objective. For pairs="all" without its constant, which for "l2" is
        ``sum c_ij^2 / N_ij``. With another divergence over all pairs, ``sum c_ij d(1, p_ij) + (N_ij - c_ij)
        d(0, p_ij)`` by the probabilities ``p_ij``; for "kl" this is the negative log-likelihood
    gap_ : largest relative KKT gap measured, the quantity that ``tol`` bounds
    n_passes_ : number of passes; for the heap, of stretches of steps
    converged_ : whether ``gap_ <= tol``
    history_ : one list per quantity, with one entry per pass
    start_objectives_ : objective of every start on the sample, that from the tree first; of the uniform
        start, the final one

    Notes
    -----
    Cost for pairs="all" and "l2": O(n M K + n K^2 M) time per pass for M partitions, and 8 n K bytes for
    memberships unless they are stored by ``out``. The starts work on samples. "PCC in depth" in the
    documentation has the cost of the other solvers, and tells which parameters apply to which.

    K clusters of any sizes join at least 1 / K of the pairs. If the labels join far fewer, the model tends
    to clusters of equal size; an OversegmentationWarning says so. If the partitions have at most half
    as many clusters as the consensus, it merges clusters; an UndersegmentationWarning says so.

    ``predict`` and ``predict_proba`` give each new object its best membership given all fitted objects, over
    all pairs and by the squared divergence. Fitted objects mostly get their own label again, if they were
    solved over all pairs.

    References
    ----------
    Lourenço, Rota Bulò, Rebagliati, Fred, Figueiredo and Pelillo (2015), *Probabilistic consensus clustering
    using evidence accumulation*, Machine Learning 98.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.PCC(n_clusters=2, random_state=0).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    >>> model.memberships_.round(2)[:3]
    array([[0.99, 0.01],
           [0.99, 0.01],
           [0.82, 0.18]], dtype=float32)
    """

    info: ClassVar[MethodInfo] = MethodInfo("Lourenço et al. 2015", "labels, or sampled pairs", soft=True)
    chooses: ClassVar[bool] = True

    divergence: str | Divergence = "l2"
    pairs: str | float | os.PathLike[str] | PairTable = "all"
    solver: str = "auto"
    max_iter: int | str | None = None
    tol: float = 3e-4
    n_init: int | str = "auto"
    weights: Any = None

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        problem = choose_problem(self, ensemble, engine)
        self._check_memory_plan(problem.plan, ensemble, engine, out, problem.memory, problem.remedy)
        K, weights, by_sums = self.n_clusters, problem.weights, problem.solver == "all"
        trusts = can_weigh(ensemble, K)
        labels = ensemble.load() if keeps_labels(ensemble, engine) else ensemble
        given = weights.partitions if isinstance(weights, Weights) else None
        survey = take_survey(labels, engine, seed, problem.n_sampled(ensemble), given)
        rows, more = draw_rows(len(survey.sample), N_SAMPLED, seed, "pcc.sample"), survey.sample
        survey = survey._replace(sample=more[rows], rows=survey.rows[rows])
        if isinstance(weights, str):
            weights = entropy_weights(survey.sample, ensemble.offsets)
        self._weights = weights
        warn_of_fine_labels(survey, K, weights)
        self._is_limit = warn_of_coarse_labels(ensemble, K, weights)
        warn_of_dissent(survey, ensemble, given, "leave them out")
        counts = None if weights is None else weights.partitions
        sample = Sample(survey.sample, ensemble.offsets, counts, n_groups=n_groups_for(K))
        grouped = None if survey.undersamples(ensemble, K, FEWEST_LABELS) else sample
        judge_sample(self, survey.rows, grouped, n_groups_for(K))

        def begin(run: Run) -> Solved:
            """Solve the sample of a run over the labels, from clusters of its tree."""
            clusters = sample.groups(n_groups_for(K)).cut(K).of_objects
            return solve_sample(run, clusters, K, problem.n_init, weights, more)

        with open_workspace(out, engine, K) as (arrays, snapshots):
            n_passes = problem.n_passes(ensemble.n_objects)
            run = Run(labels, engine, seed, n_passes, self.tol, survey.sample, arrays, snapshots)
            if by_sums:
                at = run_passes(run, AllPairs(ensemble.offsets, K, survey.n_seen, begin))
                read: Callable[[Block], np.ndarray] = partial(arrays.read, at.generation)
                self._parts = at.state
            else:
                left = None
                if problem.solver == "blocked" and problem.memory is not None:
                    left = max(parse_size(problem.memory) - process_bytes(engine), 0)
                read, at, sums = solve_pairs(
                    *(run, counted_pairs(problem.pairs, labels, seed, engine), problem.divergence),
                    None if problem.max_iter == PAPER else begin,
                    n_clusters=K,
                    max_steps=problem.max_steps(ensemble.n_objects) if problem.solver == "heap" else None,
                    memory=left,
                    out=out,
                )
                self._parts = packed_sums(sums)
            self._set_results(at)
            if by_sums:
                self.weights_: np.ndarray = np.ones(ensemble.n_partitions) if counts is None else counts
            share = engine if out is not None else local_engine(engine)  # rows in memory need no workers
            self._publish(
                *(ensemble, read, survey.unlabeled, out, share),
                trust=engine if trusts else None,
                grouped=self._grouped_sample,
            )

    def _set_results(self, at: Iterate) -> None:
        """Set the fitted attributes that follow from the passes; warn if they have not converged."""
        self.objective_: float = at.records[-1]["objective"]
        self.gap_: float = at.records[-1]["gap"]
        self.converged_: bool = self.gap_ <= self.tol
        self.n_passes_: int = len(at.records)
        self.history_: dict[str, list[Any]] = as_history(at.records)
        self.start_objectives_: list[float] = at.start_objectives or [self.objective_]
        if self.tol > 0 and not self.converged_:
            warn_user(
                f"no step lowers the objective of PCC any more, with a KKT gap of {self.gap_:.2g} > "
                f"tol={self.tol:g}; raise tol."
                if at.is_settled
                else f"PCC stopped at max_iter before it settled, with a KKT gap of {self.gap_:.2g}; "
                "raise max_iter or tol if the labels still change.",
                ConvergenceWarning,
            )

    def _placer(self, parts: Mapping[str, np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
        offsets = self._recoding.offsets
        return partial(best_memberships, unpacked_sums(parts, offsets, self._n_columns), offsets)


# Whether labels suit the model of the paper: far coarser or finer ones than the consensus mislead it


def warn_of_coarse_labels(ensemble: Ensemble, n_clusters: int, weights: Weights | None) -> bool:
    """Warn if the partitions have far fewer clusters than asked for, and so join different ones by chance.

    The paper's model of the co-association has no term for that. Return whether it is so.
    """
    counted = slice(None) if weights is None else weights.partitions > 0
    mean = float(np.mean(ensemble.n_clusters[counted]))
    # Measured on 5 to 20 planted classes of equal size, with noise: below a third the paper's model lost
    # all of them, up to a half most.
    is_coarse = mean <= 0.5 * n_clusters
    if is_coarse:
        warn_user(
            f"the partitions have {mean:.3g} clusters on average, far fewer than n_clusters={n_clusters}: by "
            "chance they join objects of different clusters, which PCC then merges; "
            "use ConsensusTree.",
            UndersegmentationWarning,
        )
    return is_coarse


# Fraction of the least share of joined pairs below which to warn. Measured on planted classes (3 to 20, with
# noise and missing labels) that every partition splits differently: below it all classes of unequal size were
# lost, and 3 in 4 of those of equal size; above it all of equal size were found. Between .4 and .6 most
# unequal classes are lost, but PCC matched other methods on seven of eight k-means ensembles of real data.
# Random splits do less harm.
ENOUGH = 0.4


def warn_of_fine_labels(survey: Survey, n_clusters: int, weights: Weights | None) -> None:
    """Warn if the labels join too few pairs of objects for memberships to explain.

    The mean of ``y_i.y_j`` is at least about ``1 / n_clusters``, attained by clusters of equal size: a fit to
    a much lower share of joined pairs tends to them. O(m M log m) time for a sample of ``m`` objects.
    """
    joined = survey.joined_share(None if weights is None else weights.partitions)
    least = least_joined_share(n_clusters, float(survey.n_seen.mean()))
    if n_clusters > 1 and joined < ENOUGH * least:
        warn_user(
            f"the labels join {100 * joined:.2g} % of the pairs of objects, but {n_clusters} clusters at "
            f"least {100 * least:.2g} %: PCC then tends to clusters of equal size, whatever the classes; "
            "try eac-average, eac-single or mcla, or a larger n_clusters.",
            OversegmentationWarning,
        )


def least_joined_share(n_clusters: int, n_objects: float) -> float:
    """Return the least share of object pairs that ``n_clusters`` clusters can join.

    It is also the least mean of ``y_i.y_j`` over ``i != j``: ``sum_i y_i`` is shortest if even.
    """
    return max(n_objects / n_clusters - 1.0, 0.0) / (n_objects - 1.0) if n_objects > 1 else 0.0


# Which parameters apply, and what solves


@dataclass(frozen=True)
class Problem:
    """What a `PCC` solves, with checked parameters, and what that takes."""

    solver: str
    """"all", "heap" or "blocked"."""
    n_clusters: int
    divergence: Divergence
    pairs: Any
    max_iter: int | str | None
    n_init: int
    weights: Weights | str | None
    memory: str | float | None

    def max_steps(self, n_objects: int) -> int:
        """Return the most steps of the heap: n K in the paper, short of the optimum, else 10 n K."""
        if isinstance(self.max_iter, int):
            return self.max_iter
        return (1 if self.max_iter == PAPER else 10) * n_objects * self.n_clusters

    def n_passes(self, n_objects: int) -> int:
        """Return the most passes; of the heap, stretches of steps."""
        if self.solver == "heap":
            return -(-self.max_steps(n_objects) // stretch_steps(n_objects, self.n_clusters))
        return 100 if self.max_iter is None else int(self.max_iter)

    def n_sampled(self, ensemble: Ensemble) -> int:
        """Return how many objects are sampled: those of the starts, or more that the best is extended to."""
        if self.solver != "all":
            return N_SAMPLED
        most = LABELS_TOGETHER // ensemble.n_partitions
        return max(N_SAMPLED, min(max(SAMPLE, ensemble.n_objects // SHARE), most))

    def statistics_bytes(self, ensemble: Ensemble) -> int:
        """Return the size of what a block reports of a pass, or of placing objects: the sums."""
        K, M = self.n_clusters, ensemble.n_partitions
        return 8 * ((ensemble.n_base_clusters + M) * (K + 8) + M * (K * (K + 1) + 16))

    def plan(self, ensemble: Ensemble, engine: Engine, *, in_memory: bool) -> MemoryPlan:
        """Return the memory plan; ``in_memory``: whether memberships are held rather than stored."""
        n, K, rows = ensemble.n_objects, self.n_clusters, ensemble.chunk_rows
        n_sampled, statistics = min(n, N_SAMPLED), self.statistics_bytes(ensemble)
        n_generations = 2 if self.solver == "all" else 3  # one of them if a pass is shortened
        held = 4 * n + (4 * n_generations * n * K + TRUST_ROW.itemsize * n if in_memory else 0)
        held += n * ensemble.row_bytes if keeps_labels(ensemble, engine) else 0
        # of the sample: its incidence matrix, overlaps and groups, and a start; or what its judgment takes
        square = min(n_sampled, ensemble.n_base_clusters)
        start = 32 * n_sampled * ensemble.n_partitions + 24 * square**2 + 8 * n_sampled * (200 + 4 * K)
        held += max(start, plan_bytes(ensemble, n_sampled, n_groups_for(K), K))
        # labels as they are collected, and memberships before and after a pass
        held += min(n, self.n_sampled(ensemble)) * (3 * ensemble.row_bytes + 16 * K)
        if self.solver == "heap":  # memberships and gradients; of a pair end: index, two counts, share,
            held += 16 * n * K + 36 * n_pair_ends(self.pairs, n)  # weight, and temporaries
        elif self.solver == "blocked" and not isinstance(self.pairs, PairTable):  # yet to be counted
            held += PAIR_BYTES * n_pair_ends(self.pairs, n) // 2
        return MemoryPlan(
            held=held,
            # including the memberships before and after, and their change
            per_block=block_label_bytes(ensemble) + 16 * rows * K + 64 * rows + 3 * statistics,
            per_result=statistics + 8 * rows + (4 * rows * K if in_memory else 0),
        )

    def remedy(self, ensemble: Ensemble, engine: Engine, budget: int, *, in_memory: bool) -> str:
        """Return what to use within a budget that is too small for this, if anything."""
        from bigcons.methods.tree import ConsensusTree

        if self.solver == "heap":
            return " or use solver='blocked', pairs='all' or a smaller share"
        plan = ConsensusTree(self.n_clusters).memory_plan(ensemble, engine, in_memory=in_memory)
        return " or use ConsensusTree" if plan.n_bytes(engine, ensemble) <= budget else ""


def keeps_labels(ensemble: Ensemble, engine: Engine) -> bool:
    """Return whether labels are read once and kept: for few objects reading costs more than solving."""
    return engine.shares_memory and ensemble.n_objects * ensemble.row_bytes <= 32_000_000


def choose_problem(model: Any, ensemble: Ensemble, engine: Engine) -> Problem:
    """Check the parameters of a `PCC`, refuse those that do not apply, and return what is solved.

    Without a budget, refuse so many clusters that tables of them are too large.
    """
    max_iter, n_init, weights, memory = model.max_iter, model.n_init, model.weights, model.memory
    check_number("tol", model.tol, at_least=0.0)
    divergence = resolve_divergence(model.divergence)
    if max_iter not in (None, PAPER):
        max_iter = check_int("max_iter", max_iter)
    n_starts = 8 if n_init == "auto" else check_int("n_init", n_init, or_auto=True)
    if isinstance(weights, str) and weights != "entropy":
        raise InvalidInputError(f"weights={weights!r} is unknown; use 'entropy', numbers or None.")
    counted = weights if isinstance(weights, str) else Weights.given(weights, ensemble.offsets)
    solver, pairs = _choose_solver(model, divergence, ensemble)
    if solver == "heap" and memory is None and pairs == DENSE:
        memory = DEFAULT_DATA_BYTES  # all pairs as a list
    problem = Problem(solver, model.n_clusters, divergence, pairs, max_iter, n_starts, counted, memory)
    is_stored = getattr(pairs, "path", None) is not None
    may_be_blocked = solver == "heap" and model.solver == "auto" and max_iter != PAPER and is_stored
    if may_be_blocked and memory is not None:
        # at most: with memberships in memory
        needed = problem.plan(ensemble, engine, in_memory=True).n_bytes(engine, ensemble)
        if needed > parse_size(memory):
            problem = replace(problem, solver="blocked")
    refused = {
        "max_iter='paper'": (max_iter == PAPER and problem.solver != "heap", "solver='heap'"),
        "n_init": (max_iter == PAPER and n_init != "auto", "a start other than that of max_iter='paper'"),
        "weights": (weights is not None and solver != "all", "pairs='all' and divergence='l2'"),
    }
    for name, (is_refused, needs) in refused.items():
        if is_refused:
            raise InvalidInputError(
                f"{name} with pairs={model.pairs!r}, divergence={divergence.label!r}; it requires {needs}."
            )
    n_bytes = problem.statistics_bytes(ensemble)
    if memory is None and n_bytes > DEFAULT_DATA_BYTES:
        raise MemoryBudgetError(
            f"PCC of {problem.n_clusters:,} clusters needs tables of {format_size(n_bytes)} a block; "
            f"pass memory='{enough_for(8 * n_bytes)}' to allow it, or use ConsensusTree.",
            needed=n_bytes,
            budget=DEFAULT_DATA_BYTES,
        )
    return problem


def _choose_solver(model: Any, divergence: Divergence, ensemble: Ensemble) -> tuple[str, Any]:
    """Return the solver of a `PCC`, and its pairs, a table opened.

    "auto" solves pairs block by block if they are in tiles, or at least a million: it depends on the
    pairs alone, as by the number of workers a cluster would find other bits than one thread. Refuses pairs
    that are none, or of other objects, and solvers of others.
    """
    pairs: Any = model.pairs
    asked, n = model.solver, ensemble.n_objects
    is_share = isinstance(pairs, Real) and pairs is not True and 0 < float(pairs) <= 1  # not NaN
    if not (is_share or (isinstance(pairs, str) and pairs in ("all", DENSE))):
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
    check_choice("solver", asked, ("auto", "all", "heap", "blocked"))
    if asked in (("heap", "blocked") if pairs == "all" else ("all",)):
        raise InvalidInputError(
            f"solver={asked!r} is incompatible with pairs={pairs!r}; "
            "use solver='all' with pairs='all', and 'heap' or 'blocked' with sampled or dense pairs."
        )
    if pairs == "all":
        if divergence.label != "l2" and n > N_SAMPLED:
            share = min(10 * model.n_clusters / n, 1.0)
            raise InvalidInputError(
                f"divergence={divergence.label!r} with pairs='all' lists all pairs of objects, of at most "
                f"{N_SAMPLED:,}, but there are n_objects={n:,}; use a share of the pairs, such as "
                f"pairs={share:.2g}, or divergence='l2'."
            )
        return ("all", pairs) if divergence.label == "l2" else ("heap", DENSE)
    if asked != "auto":
        return asked, pairs
    if model.max_iter == PAPER or pairs == DENSE:
        return "heap", pairs
    is_tiled = getattr(pairs, "rows_per_block", None) is not None
    return "blocked" if is_tiled or n_pair_ends(pairs, n) >= 2_000_000 else "heap", pairs
