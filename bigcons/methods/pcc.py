"""The PCC estimator: from parameters to a solver, and from its solution to results.

All pairs by the squared divergence are solved exactly by sums (`all_pairs`); listed pairs, such as all pairs
of few objects by other divergences, by a heap in memory, or block by block.

On pairs this is Algorithm 1 of Lourenço et al. 2015, steepest two-coordinate descent, in blocks.
With one block of all objects this is the algorithm of the paper. For tables of any size it is block
coordinate descent: a task reads the pairs of one block and the memberships of its neighbor blocks, and takes
a stretch of steps with its own objects while all others are fixed. A pass visits the blocks in a few rounds,
and the blocks of a round move at once. If they share no pairs, as with pairs sampled in tiles and enough
blocks, each lowers the objective as if it were alone. Uniformly drawn pairs connect all blocks, and those of
a round share some. Together they nearly always lower the objective too; a fold over the pairs they share
measures it, and a line search shortens a pass that does not.

Blocks and rounds depend on the pairs alone, never on the number of workers. A pass reads one generation of
memberships and writes the next, so tasks and interrupted passes can be repeated.

The start must give the clusters an identity: from random memberships every block would number them in its own
way, and settling that takes hundreds of passes. Blocks start from a solved sample.

Objects that occur in no pair get their best memberships over all pairs, given all others, as new ones do.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bigcons import errors
from bigcons.coassociation import count
from bigcons.coassociation.counts import sample_in_memory
from bigcons.coassociation.factorized import AgreementSums
from bigcons.divergences import Divergence, resolve_divergence
from bigcons.errors import InvalidInputError, warn_user
from bigcons.kernels import pair_descent
from bigcons.kernels.divergences import l2_slope, newton_search
from bigcons.memory import (
    DEFAULT_DATA_BYTES,
    LABELS_TOGETHER,
    N_SAMPLED,
    Block,
    DataBudget,
    beside_processes,
    row_blocks,
)
from bigcons.methods import all_pairs
from bigcons.methods.base import ConsensusClusterer, MethodInfo
from bigcons.progress import Progress
from bigcons.run import passes
from bigcons.run.engine import Engine, fold, local_engine
from bigcons.run.passes import Run
from bigcons.run.results import Output, scratch_place
from bigcons.run.survey import (
    MemoryPlan,
    Survey,
    block_label_bytes,
    process_bytes,
    take_survey,
    warn_of_dissent,
)
from bigcons.seeding import draw_rows
from bigcons.store.clusters import TRUST_ROW
from bigcons.store.ensemble import Ensemble
from bigcons.store.pairs import PAIR_BYTES, PairTable, pairs_of
from bigcons.trust.confidence import can_weigh
from bigcons.trust.groups import FEWEST_LABELS, Sample, n_groups_for, plan_bytes
from bigcons.validation import check_choice, check_int, check_number
from bigcons.weights import Weights, incidence_of

logger: logging.Logger = logging.getLogger("bigcons")

DENSE, PAPER = "dense", "paper"
"""All pairs of few objects, as ``pairs``; the limit of the paper, as ``max_iter``."""

SAMPLE, SHARE = 16_384, 64
"""The best start is extended to so many objects before all, or to one in so many: passes over these then cost
little beside those that they save.

`benchmarks/phases.py` has the time of the passes that are left.
"""


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
    divergence : {"l2", "kl"} or Divergence, default="l2"
        Bregman divergence ``d``. Over all pairs "l2" is solved at any size; the others as pairs="dense", for
        up to 2,048 objects.
    pairs : {"all", "dense"}, float, PairTable or path-like, default="all"
        "all": every pair, in one pass over the labels per iteration, without forming any pair. "dense": every
        pair, one by one, for small data. A share such as 0.25e-3: that share of the pairs, drawn uniformly.
        A PairTable or its path: the pairs in it; Parquet of up to 1 GB is read into memory.
    solver : {"auto", "all", "heap", "blocked"}, default="auto"
        "all" for pairs="all"; for other pairs "heap" (the paper's Algorithm 1 on one core, with the pairs in
        memory) or "blocked" (the same within blocks of objects, on all cores or workers, with the pairs read
        from their store). "auto" chooses "blocked" for a million pairs or more, and for pairs
        sampled in tiles, else "heap".
    max_iter : int, "paper" or None, default=None
        Maximum number of passes over the data (None: 100). For the heap, of single-object steps (None: 10
        n_objects n_clusters; "paper": n_objects n_clusters, which ends well above the optimum, from the
        uniform start of the paper, perturbed because it is a saddle point).
    tol : float, default=3e-4
        Largest KKT gap at convergence, relative to the mean weight ``sum_j N_ij`` of an object. 0 runs to
        ``max_iter``.
    n_init : int, default=1
        Number of starts. The first is from the clusters of a tree, the others from random memberships, which
        often end at a lower objective, but at labels that are no better. All starts are solved on a sample of
        2,048 objects; the one of the lowest objective is extended to all objects (over all pairs by "l2",
        first to 16,384 objects or one in 64).
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
    objective_ : the objective; for pairs="all" without its constant, which for "l2" is
        ``sum c_ij^2 / N_ij``. With another divergence over all pairs, ``sum c_ij d(1, p_ij) + (N_ij - c_ij)
        d(0, p_ij)`` of the probabilities ``p_ij``; for "kl" this is the negative log-likelihood
    gap_ : largest relative KKT gap measured, the quantity that ``tol`` bounds
    n_passes_ : number of passes; for the heap, of stretches of steps
    converged_ : whether ``gap_ <= tol``
    history_ : one list per quantity, with one entry per pass
    start_objectives_ : objective of every start on the sample, first the start from the tree; for the
        uniform start, the final objective

    Notes
    -----
    Cost for pairs="all" and "l2": O(n M K + n K^2 M) time per pass for M partitions, and 8 n K bytes for
    memberships unless they are stored by ``out``. The starts work on samples. "PCC in depth" in the
    documentation has the cost of the other solvers, and tells which parameters apply to which.

    K clusters of any sizes join at least 1 / K of the pairs. If the labels join far fewer, the model tends
    toward clusters of equal size. If the partitions have at most half as many clusters as the consensus, it
    merges clusters. A ConsensusWarning says so in either case.

    ``predict`` and ``predict_proba`` give each new object its best membership given all fitted objects, over
    all pairs and by the squared divergence. If they were solved over all pairs, most fitted objects get
    their own label again.

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
    n_init: int = 1
    weights: Any = None

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        problem = choose_problem(self, ensemble)
        remedy = " or use ConsensusTree"
        if problem.solver == "heap":
            remedy = " or use solver='blocked', pairs='all' or a smaller share"
        self._check_memory_plan(problem.plan, ensemble, engine, out, problem.memory, remedy)
        K, weights, by_sums = self.n_clusters, problem.weights, problem.solver == "all"
        labels = ensemble.load() if keeps_labels(ensemble, engine) else ensemble
        partition_weights = weights.partitions if isinstance(weights, Weights) else None
        survey = take_survey(labels, engine, seed, problem.n_sampled, partition_weights)
        unlabeled, larger, all_rows, times, is_uniform = survey
        rows = draw_rows(len(larger), N_SAMPLED, seed, "pcc.sample")
        survey = Survey(unlabeled, larger[rows], all_rows[rows], times[rows], is_uniform[rows])
        if isinstance(weights, str):
            weights = all_pairs.entropy_weights(survey.sample, ensemble.offsets)
        self._weights = weights
        self._is_limit = warn_of_labels(survey, ensemble, K, weights)
        warn_of_dissent(survey, ensemble, partition_weights, "leave them out")
        counts = None if weights is None else weights.partitions
        sample = Sample(survey.sample, ensemble.offsets, counts)
        grouped = None if survey.undersamples(ensemble, K, FEWEST_LABELS) else sample
        self._judge_sample(survey.rows, grouped)

        def begin(run: Run) -> all_pairs.Solved:
            """Solve the sample of a run over the labels, from clusters of its tree."""
            search = self._search  # with a sample of its own if it chose the number
            if search is not None and search.sample is sample:
                groups = search.groups
            else:
                groups = sample.groups(n_groups_for(K))
            clusters = groups.cut(K).labels
            return all_pairs.solve_sample(run, clusters, K, problem.n_init, weights, larger)

        with passes.open_workspace(out, engine, K) as (arrays, snapshots):
            limits = seed, problem.n_passes, self.tol
            run = Run(labels, labels.blocks(), engine, *limits, survey.sample, arrays, snapshots)
            if by_sums:
                end = passes.run_passes(run, all_pairs.AllPairs(K, begin))
                read: Callable[[Block], np.ndarray] = partial(arrays.read, end.generation)
                self._parts = end.state
            else:
                read, end, sums = solve_pairs(run, problem, begin, out)
                self._parts = all_pairs.packed_sums(sums)
            self._set_results(end)
            if by_sums:
                self.weights_: np.ndarray = np.ones(ensemble.n_partitions) if counts is None else counts
            share = engine if out is not None else local_engine(engine)  # rows in memory need no workers
            trust = engine if can_weigh(ensemble, K) else None
            self._publish(ensemble, read, survey.unlabeled, out, share, trust=trust)

    def _set_results(self, end: passes.Iterate) -> None:
        """Set the fitted attributes that follow from the passes; warn if they have not converged."""
        self.objective_: float = end.records[-1]["objective"]
        self.gap_: float = end.records[-1]["gap"]
        self.converged_: bool = self.gap_ <= self.tol
        self.n_passes_: int = len(end.records)
        self.history_: dict[str, list[Any]] = passes.as_history(end.records)
        self.start_objectives_: list[float] = end.start_objectives or [self.objective_]
        if self.tol > 0 and not self.converged_:
            warn_user(
                f"no step lowers the objective of PCC any more, with a KKT gap of {self.gap_:.2g} > "
                f"tol={self.tol:g}; raise tol."
                if end.is_settled
                else f"PCC stopped at max_iter before it settled, with a KKT gap of {self.gap_:.2g}; "
                "raise max_iter or tol if the labels still change.",
                errors.ConvergenceWarning,
            )

    def _placer(self, parts: Mapping[str, np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
        offsets = self._recoding.offsets
        sums = all_pairs.unpacked_sums(parts, offsets, self._n_columns)
        return partial(all_pairs.best_memberships, sums, offsets)


# Whether labels suit the model of the paper: far coarser or finer ones than the consensus mislead it


# Fraction of the least share of joined pairs below which to warn. Measured on planted classes (3 to 20, with
# noise and missing labels) that every partition splits differently: below it all classes of unequal size were
# lost, and 3 in 4 of those of equal size; above it all of equal size were found. Between .4 and .6 most
# unequal classes are lost, but PCC matched other methods on seven of eight k-means ensembles of real data.
# Random splits do less harm.
ENOUGH = 0.4


def warn_of_labels(survey: Survey, ensemble: Ensemble, n_clusters: int, weights: Weights | None) -> bool:
    """Warn of labels that are far finer or far coarser than the consensus; return whether they are coarser.

    Fine labels join too few pairs of objects for memberships to explain: the mean of ``y_i.y_j``, ``i != j``,
    is at least the share of pairs that clusters of equal size join, the least of all clusters, to which a
    fit to a much lower share tends. Coarse partitions, of far fewer clusters than asked for, join different
    ones by chance, for which the paper's model has no term. O(m M log m) time for a sample of m.
    """
    counts, n = None if weights is None else weights.partitions, float(ensemble.n_labeled.mean())
    # the share of co-clustered pairs of sampled objects, over partitions that label both
    sizes = incidence_of(survey.sample, ensemble.offsets).sum(axis=0)
    n_labeled, n_joined = np.add.reduceat([sizes, sizes * (sizes - 1)], ensemble.offsets[:-1], axis=1)
    times = np.ones(n_labeled.size) if counts is None else counts
    pairs = float(times @ (n_labeled * (n_labeled - 1)))
    share = float(times @ n_joined) / pairs if pairs else math.nan
    lowest = max(n / n_clusters - 1.0, 0.0) / (n - 1.0) if n > 1 else 0.0
    if n_clusters > 1 and share < ENOUGH * lowest:
        warn_user(
            f"the labels join {100 * share:.2g} % of the pairs of objects, but {n_clusters} clusters "
            f"join at least {100 * lowest:.2g} %; PCC then tends toward clusters of equal size, whatever the "
            "classes: try eac-average, eac-single or mcla, or a larger n_clusters.",
            errors.ConsensusWarning,
        )
    mean = float(np.mean(ensemble.n_clusters if counts is None else ensemble.n_clusters[counts > 0]))
    # Measured on 5 to 20 planted classes of equal size, with noise: below a third the paper's model lost
    # all of them, up to a half most.
    if mean <= 0.5 * n_clusters:
        warn_user(
            f"the partitions have {mean:.3g} clusters on average, far fewer than n_clusters={n_clusters}: by "
            "chance they join objects of different clusters, which PCC then merges; use ConsensusTree.",
            errors.ConsensusWarning,
        )
    return mean <= 0.5 * n_clusters


# Which parameters apply, and what solves


class Problem(NamedTuple):
    """What a `PCC` solves, with checked parameters, and what that takes."""

    solver: str
    """"all", "heap" or "blocked"."""
    n_clusters: int
    divergence: Divergence
    pairs: Any
    is_as_published: bool
    """Whether the heap starts from uniform memberships, for n K steps."""
    max_steps: int | None
    """The most steps of the heap."""
    n_passes: int
    """The most passes; of the heap, stretches of steps."""
    n_init: int
    n_sampled: int
    """Objects that are sampled: for the starts, or more, to which the best start is extended."""
    weights: Weights | str | None
    memory: str | float | None

    def plan(self, ensemble: Ensemble, engine: Engine, *, in_memory: bool) -> MemoryPlan:
        """Return the memory plan; ``in_memory``: whether memberships are held rather than stored."""
        n, K, rows = ensemble.n_objects, self.n_clusters, ensemble.chunk_rows
        n_sampled, statistics = min(n, N_SAMPLED), statistics_bytes(ensemble, K)
        n_generations = 2 if self.solver == "all" else 3  # one of them if a pass is shortened
        n_bytes = n * (4 + 4 * n_generations * K + TRUST_ROW.itemsize) if in_memory else 0
        n_bytes += n * ensemble.row_bytes if keeps_labels(ensemble, engine) else 0
        # of the sample: its incidence matrix, overlaps and groups, and a start; or what its judgment takes
        square = min(n_sampled, ensemble.n_base_clusters)
        start = 32 * n_sampled * ensemble.n_partitions + 24 * square**2 + 8 * n_sampled * (200 + 4 * K)
        n_bytes += max(start, plan_bytes(ensemble, n_sampled, n_groups_for(K), K))
        # labels as they are collected, and memberships before and after a pass
        n_bytes += min(n, self.n_sampled) * (3 * ensemble.row_bytes + 16 * K)
        if self.solver == "heap":  # memberships and gradients; of a pair end: index, two counts, share,
            n_bytes += 16 * n * K + 36 * n_pair_ends(self.pairs, n)  # weight, and temporaries
        elif self.solver == "blocked" and not isinstance(self.pairs, PairTable):  # yet to be counted
            n_bytes += PAIR_BYTES * n_pair_ends(self.pairs, n) // 2
        return MemoryPlan(
            held=n_bytes,
            # including the memberships before and after, and their change
            per_block=block_label_bytes(ensemble) + 16 * rows * K + 64 * rows + 3 * statistics,
            per_result=statistics + 8 * rows + (4 * rows * K if in_memory else 0),
        )


def statistics_bytes(ensemble: Ensemble, n_clusters: int) -> int:
    """Return the size of what a block reports of a pass, or of placing objects: the sums."""
    K, M = n_clusters, ensemble.n_partitions
    return 8 * ((ensemble.n_base_clusters + M) * (K + 8) + M * (K * (K + 1) + 16))


def keeps_labels(ensemble: Ensemble, engine: Engine) -> bool:
    """Return whether labels are read once and kept: for few objects reading costs more than solving."""
    return engine.shares_memory and ensemble.n_objects * ensemble.row_bytes <= 32_000_000


def choose_problem(model: Any, ensemble: Ensemble) -> Problem:
    """Check the parameters of a `PCC`, refuse those that do not apply, and return what is solved.

    "auto" solves pairs block by block if they are in tiles, or at least a million: it depends on the
    pairs alone, as by the number of workers a cluster would find other bits than one thread.
    """
    pairs: Any = model.pairs
    n, K, weights, memory = ensemble.n_objects, model.n_clusters, model.weights, model.memory
    check_number("tol", model.tol, at_least=0.0)
    check_choice("solver", model.solver, ("auto", "all", "heap", "blocked"))
    divergence = resolve_divergence(model.divergence)
    is_as_published = model.max_iter == PAPER
    max_iter = None if model.max_iter in (None, PAPER) else check_int("max_iter", model.max_iter)
    n_init = check_int("n_init", model.n_init)
    if not isinstance(weights, str):
        weights = Weights.parse(weights, ensemble.offsets)
    elif weights != "entropy":
        raise InvalidInputError(f"weights={weights!r} is unknown; use 'entropy', numbers or None.")
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
    if model.solver in (("heap", "blocked") if pairs == "all" else ("all",)):
        raise InvalidInputError(
            f"solver={model.solver!r} is incompatible with pairs={pairs!r}; "
            "use solver='all' with pairs='all', and 'heap' or 'blocked' with sampled or dense pairs."
        )
    if pairs == "all" and divergence.name != "l2":
        if n > N_SAMPLED:
            raise InvalidInputError(
                f"divergence={divergence.name!r} with pairs='all' lists all pairs of objects, of at most "
                f"{N_SAMPLED:,}, but there are n_objects={n:,}; use a share of the pairs, such as "
                f"pairs={min(10 * K / n, 1.0):.2g}, or divergence='l2'."
            )
        pairs, solver = DENSE, "heap"
    elif pairs == "all" or model.solver != "auto":
        solver = "all" if pairs == "all" else model.solver
    else:
        are_many = getattr(pairs, "rows_per_block", None) or n_pair_ends(pairs, n) >= 2_000_000
        solver = "blocked" if are_many and not is_as_published and pairs != DENSE else "heap"
    rules = {
        "max_iter='paper'": (is_as_published and solver != "heap", "solver='heap'"),
        "weights": (model.weights is not None and solver != "all", "pairs='all' and divergence='l2'"),
    }
    for name, (is_refused, needs) in rules.items():
        if is_refused:
            raise InvalidInputError(
                f"{name} with pairs={model.pairs!r}, divergence={divergence.name!r}; it requires {needs}."
            )
    max_steps, n_passes, n_sampled = None, max_iter or 100, N_SAMPLED
    if solver == "heap":
        max_steps = max_iter or (1 if is_as_published else 10) * n * K
        n_passes = -(-max_steps // stretch_steps(n, K))
    elif solver == "all":
        n_sampled = max(N_SAMPLED, min(max(SAMPLE, n // SHARE), LABELS_TOGETHER // ensemble.n_partitions))
    if memory is None and (pairs == DENSE or statistics_bytes(ensemble, K) > DEFAULT_DATA_BYTES):
        memory = DEFAULT_DATA_BYTES
    fields = solver, K, divergence, pairs, is_as_published, max_steps, n_passes, n_init, n_sampled
    return Problem(*fields, weights, memory)


# Pairs: Algorithm 1 of the paper, steepest two-coordinate descent, in blocks


class Neighborhoods(NamedTuple):
    """The blocks of a pair table and which of them share pairs, as sent to every task."""

    pairs: PairTable
    blocks: list[Block]
    neighbors: list[list[int]]
    """For each block, the other blocks that it shares pairs with, ascending."""
    colors: list[int]
    """For each block, a number that differs from those of its neighbors."""
    divergence: Divergence
    mean_weight: float
    """Mean over the objects of ``sum_j N_ij``: the scale of a KKT gap over these pairs."""
    task_entries: int
    """The largest number of pair ends in a block."""

    @classmethod
    def from_pairs(
        cls, pairs: PairTable, blocks: list[Block], engine: Engine, divergence: Divergence
    ) -> Neighborhoods:
        """Read all pairs once to find which blocks share some."""
        starts = [block.start for block in blocks]

        def find_borders(block: Block) -> tuple[list[list[int]], float, int]:
            rows = pairs.read(block.start, block.stop)
            is_neighbor = np.zeros(len(starts), bool)
            is_neighbor[np.searchsorted(starts, rows.indices, "right") - 1] = True
            is_neighbor[block.index] = False
            weight = float(rows.n_seen.sum(dtype=np.float64))
            return [np.flatnonzero(is_neighbor).tolist()], weight, len(rows.indices)

        neighbors, weight, entries = fold(
            *(engine, blocks, find_borders),
            lambda a, b: (a[0] + b[0], a[1] + b[1], max(a[2], b[2])),
            progress="blocks of pairs",
        )
        colors: list[int] = []
        for block, adjacent in enumerate(neighbors):
            used_colors = {colors[neighbor] for neighbor in adjacent if neighbor < block}
            colors.append(next(color for color in range(len(used_colors) + 1) if color not in used_colors))
        mean_weight = max(weight / pairs.n_objects, 1.0)
        return cls(pairs, blocks, neighbors, colors, divergence, mean_weight, entries)

    @property
    def n_colors(self) -> int:
        """Number of colors of the blocks."""
        return max(self.colors) + 1

    @property
    def fewest_rounds(self) -> int:
        """Rounds of a pass at first: one per color where these have at least eight blocks, two at least.

        In two rounds, less than half of an object's pairs are with blocks that move at the same time: too few
        for joint moves to overshoot often.
        """
        return min(self.n_colors, max(2, len(self.colors) // 8))

    def rounds(self, n_rounds: int) -> list[int]:
        """Return the round of each block if a pass has ``n_rounds``."""
        return [color % n_rounds for color in self.colors]

    def in_rounds(self, n_rounds: int) -> list[list[Block]]:
        """Return the blocks of each round."""
        rounds = self.rounds(n_rounds)
        return [[b for b in self.blocks if rounds[b.index] == number] for number in range(max(rounds) + 1)]

    def numbered(self, block_numbers: list[int], *, within: bool = True) -> tuple[np.ndarray, ...]:
        """Return the pairs of the first of some blocks, their objects numbered from 0, block after block.

        In CSR, each pair of two of its objects in both rows: indptr, indices, and float32 shares of agreement
        and weights. Objects of other blocks have negative numbers; so have those of the first, unless
        ``within``.
        """
        shifts, position = np.full(len(self.blocks), -self.pairs.n_objects, np.int32), 0
        for block in (self.blocks[b] for b in block_numbers):
            shifts[block.index] = position - block.start
            position += block.n_rows
        if not within:
            shifts[block_numbers[0]] = -self.pairs.n_objects
        rows = self.pairs.read(self.blocks[block_numbers[0]].start, self.blocks[block_numbers[0]].stop)
        starts, numbers = np.array([b.start for b in self.blocks], np.int32), np.empty_like(rows.indices)
        pair_descent.renumber(rows.indices, starts, shifts, numbers)
        weights = rows.n_seen.astype(np.float32)
        return rows.indptr, numbers, rows.n_agree / weights, weights


FirstRows = tuple[Callable[[Block], np.ndarray], list[float]]
"""What gives the first memberships of a block of pairs, and the objectives of the starts."""


@dataclass(eq=False)
class BlockedPairs(passes.Passes):
    """The passes of PCC on blocks of pairs; objects carry memberships (rows, K) float32.

    The gap is in units of the mean weight of an object. With several blocks it is the largest
    gap that the tasks of a pass started from; a solve has converged only after a pass without a gap above the
    tolerance, which changes nothing.

    The state is the number of rounds of a pass (with one per color, blocks that move at the same time share
    no pairs) and the objective, which is not needed, and infinite, with one round per color. ``max_steps``
    limits those of all passes over a single block. If a full pass raises the objective by more than its share
    ``rounding``, step ``lengths`` are tried.
    """

    name = "PCC on pairs"

    graph: Neighborhoods
    begin: Callable[[], FirstRows]
    max_steps: int | None = None
    lengths: tuple[float, ...] = (0.75, 0.5, 0.25, 0.125)
    rounding: float = 1e-7

    def start(self, run: Run) -> tuple[passes.State, list[float]]:
        """Write the first memberships."""
        (rows_of, start_objectives), arrays = self.begin(), run.arrays
        run.for_all(lambda block: arrays.write(0, block, rows_of(block)))
        n_rounds, objective = self.graph.fewest_rounds, np.inf
        if n_rounds < self.graph.n_colors:
            objective = self._measure(run, (0, 0))[0]
        return {"n_rounds": np.array(n_rounds), "objective": np.array(objective)}, start_objectives

    def one_pass(self, run: Run, iterate: passes.Iterate, listener: Progress) -> passes.Step:
        """Move the blocks round by round; shorten the pass if the objective has risen.

        Where it falls at no length, the pass is undone and the next has more rounds.
        """
        graph, is_alone, before = self.graph, self.graph.n_colors == 1, iterate.generation
        n_rounds, last_objective = int(iterate.state["n_rounds"]), float(iterate.state["objective"])
        # a near-uniform start is a saddle, where gaps mean nothing until all have moved
        threshold = 0.0 if not iterate.records else run.tol
        if iterate.records and not is_alone:
            threshold = run.tol * (1.0 if iterate.records[-1]["gap"] <= run.tol else all_pairs.MOVING)
        n_left = self.max_steps and self.max_steps - sum(int(r["steps"]) for r in iterate.records)
        move = self._move(run, before, n_rounds, threshold * graph.mean_weight, n_left)
        total = Stretch(0, 0.0, 0.0, 0.0)
        for blocks in graph.in_rounds(n_rounds):
            total = total.plus(fold(run.engine, blocks, move, Stretch.plus, progress=listener))
        gap = (total.gap if is_alone else total.gap_before) / graph.mean_weight
        is_settled = gap <= run.tol if is_alone else total.n_steps == 0
        objective, length = total.objective, 1.0
        if n_rounds < graph.n_colors:
            objective += float(self._measure(run, (before + 1, before + 1), n_rounds=n_rounds)[0])
            if objective > last_objective + self.rounding * abs(last_objective):
                objectives = self._measure(run, (before, before + 1), self.lengths)
                best = int(np.argmin(objectives))
                if objectives[best] < last_objective:
                    length, objective = self.lengths[best], float(objectives[best])
                else:
                    length, objective = 0.0, last_objective
                    n_rounds = min(2 * n_rounds, graph.n_colors)
                run.shorten(before, length)
            last_objective = objective
        record = {"objective": objective, "gap": gap, "steps": total.n_steps, "step_length": length}
        state = {"n_rounds": np.array(n_rounds), "objective": np.array(last_objective)}
        return passes.Step(state, record, is_settled, 1 if length == 1.0 else 2)

    def _move(
        self, run: Run, generation: int, n_rounds: int, threshold: float, limit: int | None
    ) -> Callable[[Block], Stretch]:
        """Return the task that takes a stretch of at most so many steps with a block, the steepest first.

        It stops when no KKT gap is above ``threshold``, and writes the next generation. Its objective
        covers the pairs inside the block and those with blocks of earlier rounds: summed over all blocks,
        every pair at the end of the pass except those that different blocks of one round share. Time
        O(steps l (K + log n)) for l pairs an object; memory 16 n K + 32 n bytes.
        """
        graph, arrays, rounds = self.graph, run.arrays, self.graph.rounds(n_rounds)

        def move_block(block: Block) -> Stretch:
            memberships = arrays.read(generation, block)
            n, K = memberships.shape
            neighbors = sorted(graph.neighbors[block.index], key=lambda b: (rounds[b], b))
            earlier = [graph.blocks[b] for b in neighbors if rounds[b] < rounds[block.index]]
            parts = [np.empty((0, K), np.float32), *(arrays.read(generation + 1, b) for b in earlier)]
            parts += [arrays.read(generation, graph.blocks[b]) for b in neighbors[len(earlier) :]]
            fixed, pairs = np.concatenate(parts), graph.numbered([block.index, *neighbors])
            value, slope, curvature = graph.divergence.compiled
            search = pair_descent.quadratic_search if slope is l2_slope else newton_search(slope, curvature)
            rows = np.zeros((n, 2 * K))
            rows[:, :K] = memberships
            queue = np.empty(n), np.empty(n, np.int32), np.empty(n, np.int32)
            pair_descent.prepare(rows, *pairs, fixed, *queue, slope)
            gap_before = float(queue[0][0])
            scratch = np.empty((4, max(int(np.diff(pairs[0]).max(initial=0)), 1)))
            n_steps = stretch_steps(n, K) if limit is None else min(stretch_steps(n, K), limit)
            n_taken, gap = pair_descent.descend(
                rows, *pairs, fixed, *queue, scratch, n_steps, threshold, search, slope
            )
            earlier_rows = fixed[: sum(b.n_rows for b in earlier)]
            objective = pair_descent.total_value(rows, *pairs, earlier_rows, value)
            arrays.write(generation + 1, block, rows[:, :K].astype(np.float32))
            return Stretch(n_taken, gap_before, gap, objective)

        return move_block

    def _measure(
        self, run: Run, ends: tuple[int, int], lengths: Sequence[float] = (0.0,), n_rounds: int | None = None
    ) -> np.ndarray:
        """Return the objective at steps of some ``lengths`` between two generations; float64, one for each.

        With ``n_rounds``, over the pairs that different blocks of one round share. A task has the pairs of a
        block with itself and later blocks, so that all have every pair once.
        """
        graph, arrays = self.graph, run.arrays
        rounds = None if n_rounds is None else graph.rounds(n_rounds)

        def measure_block(block: Block) -> np.ndarray:
            later = [b for b in graph.neighbors[block.index] if b > block.index]
            if rounds is not None:
                later = [b for b in later if rounds[b] == rounds[block.index]]
            totals = np.zeros(len(lengths))
            if later or rounds is None:
                rows = {g: [arrays.read(g, graph.blocks[b]) for b in (block.index, *later)] for g in {*ends}}
                inner = [rows[generation][0] for generation in ends]
                outer = [np.concatenate([inner[0][:0], *rows[generation][1:]]) for generation in ends]
                pairs = graph.numbered([block.index, *later], within=rounds is None)
                value, _, _ = graph.divergence.compiled
                pair_descent.values_along(*inner, *pairs, *outer, np.array(lengths), totals, value)
            return totals

        return fold(run.engine, run.blocks, measure_block, np.add)


def check_tasks(graph: Neighborhoods, n_clusters: int, engine: Engine, budget: DataBudget) -> None:
    """Raise MemoryBudgetError if the blocks being processed at once exceed the ``budget``.

    A task has its pairs, its own objects and those of neighbor blocks.
    """
    rows = max(block.n_rows for block in graph.blocks)
    n_neighbors = max(sum(graph.blocks[b].n_rows for b in neighbors) for neighbors in graph.neighbors)
    to_move = rows * (28 * n_clusters + 32) + 4 * n_clusters * n_neighbors
    to_measure = 8 * n_clusters * (rows + n_neighbors)  # two generations
    # counts, index, index in the task, share, weight, and temporaries
    task = 28 * graph.task_entries + max(to_move, to_measure)
    n_tasks = min(engine.n_workers, max(map(len, graph.in_rounds(graph.fewest_rounds))))
    budget.check(n_tasks * task, f"{n_tasks} blocks of pairs at once", "use fewer workers or smaller tiles")


def cut_blocks(pairs: PairTable) -> list[Block]:
    """Return blocks of equal cost; the tiles, if the pairs were sampled in tiles.

    At most 16 blocks, unless these exceed four million pair ends, of at least 65,536 pair ends: enough for a
    cluster, none too small to be worth a task or too large for a small memory.
    """
    if pairs.rows_per_block is not None:
        return pairs.blocks()
    entries = 2 * pairs.n_pairs
    n_blocks = max(min(entries >> 16, 16), -(-entries // (1 << 22)), 1)
    n, cost = pairs.n_objects, entries + 8 * pairs.n_objects  # an object costs as much as eight pair ends
    ends, total = [], 0
    for part in row_blocks(n, 1 << 20):
        costs = total + np.cumsum(pairs.degrees(part.start, part.stop) + 8)
        targets = np.arange(1, n_blocks) * cost // n_blocks
        cuts = targets[(targets >= total) & (targets < costs[-1])]
        ends += (part.start + np.searchsorted(costs, cuts, "right")).tolist()
        total = int(costs[-1])
    bounds = sorted({0, *ends, n})
    return [Block(b, start, stop) for b, (start, stop) in enumerate(itertools.pairwise(bounds))]


class Stretch(NamedTuple):
    """The report of a stretch of steps. Gaps are in units of the pairs' weights."""

    n_steps: int
    gap_before: float
    gap: float
    objective: float

    def plus(self, other: Stretch) -> Stretch:
        """Return the report of both."""
        n_steps, objective = self.n_steps + other.n_steps, self.objective + other.objective
        gap_before, gap = max(self.gap_before, other.gap_before), max(self.gap, other.gap)
        return Stretch(n_steps, gap_before, gap, objective)


def stretch_steps(n_objects: int, n_clusters: int) -> int:
    """Return the number of steps in a stretch: a quarter of n K, at least one per object.

    Between stretches gradients are computed anew, which bounds their drift, and the objective is recorded.
    """
    return max(n_objects * n_clusters // 4, n_objects, 1)


# A solve


def solve_pairs(
    run: Run, problem: Problem, begin: all_pairs.Begin, out: Output | None
) -> tuple[Callable[[Block], np.ndarray], passes.Iterate, AgreementSums]:
    """Solve PCC on pairs; return a reader of memberships, the last iterate, and the sums of all objects.

    ``run`` is over the labels. With the heap, pairs are in one block, in memory; else in blocks that workers
    read. The first memberships are those of a solved sample, extended to all objects or, with the limit of
    the paper, the paper's uniform ones, perturbed. Objects in no pair are placed over all pairs.
    """
    data, n, engine, is_squared = run.data, run.data.n_objects, run.engine, problem.divergence.name == "l2"
    K, pairs, arrays, seed = problem.n_clusters, problem.pairs, run.arrays, run.seed
    if pairs == DENSE:
        i, j = np.triu_indices(n, 1)
        pairs = count(data, i, j, client=engine)
    elif not isinstance(pairs, PairTable):
        # labels of up to a gigabyte are held while pairs are counted
        pairs = sample_in_memory(data, {"share": float(pairs)}, seed, 10**9, engine)

    def first() -> FirstRows:
        if problem.is_as_published:
            return lambda block: all_pairs.perturbed_uniform(block.n_rows, K, seed, block.index), []
        solved = begin(run)

        def rows_of(block: Block) -> np.ndarray:
            rows = all_pairs.first_rows(data, solved, block, data.read(block.start, block.stop))
            return rows if is_squared else all_pairs.softened(rows)

        return rows_of, solved.start_objectives

    # Measured on 20 and 50 planted classes (4,000 objects, 100 partitions, the heap): adjusted Rand indices
    # of .19 and .08 for at most one pair, .66 and .57 for two, .94 and .98 for four or five. By blocks, on 10
    # clusters of 100,000 objects, 100 passes do not settle up to two.
    per_object = 2 * pairs.n_pairs / n
    if K > 1 and per_object < min(3 * K, n - 1):
        warn_user(
            f"objects are in {per_object:.3g} pairs on average, too few to tell {K} clusters apart; use "
            f"pairs='all', or a share of {min(3 * K / (n - 1), 1.0):.2g} or more, 3 pairs an object for each "
            "cluster.",
            errors.ConsensusWarning,
        )
    with scratch_place(out) as scratch:
        if problem.solver == "heap":
            engine, blocks = local_engine(engine), [Block(0, 0, n)]
        else:
            if pairs.path is None and not engine.shares_memory:
                pairs = pairs.save(str(scratch))
            blocks = cut_blocks(pairs)
        graph = Neighborhoods.from_pairs(pairs, blocks, engine, problem.divergence)
        if problem.solver == "blocked" and problem.memory is not None:
            check_tasks(graph, K, engine, beside_processes(problem.memory, process_bytes(engine)))
        over_pairs = replace(run, data=pairs, engine=engine, blocks=graph.blocks)
        end = passes.run_passes(over_pairs, BlockedPairs(graph, first, problem.max_steps))

        def read(block: Block) -> np.ndarray:
            """Return the memberships of a block, which may have been written in other blocks."""
            parts = [
                arrays.read(end.generation, other)[
                    max(block.start - other.start, 0) : block.stop - other.start
                ]
                for other in blocks
                if other.start < block.stop and block.start < other.stop
            ]
            return np.concatenate(parts)

        degrees = [(part, pairs.degrees(part.start, part.stop)) for part in pairs.blocks()]
        isolated = np.concatenate([part.start + np.flatnonzero(degree == 0) for part, degree in degrees])
        if isolated.size:
            logger.info("%d objects in no sampled pair are placed over all pairs", isolated.size)
            solved_sums, generation = all_pairs.solved_sums(run, read, isolated), end.generation + 1

            def place_isolated(block: Block) -> None:
                places, rows = block.rows_of(isolated), np.array(read(block))
                if places.size:
                    labels = data.read(block.start, block.stop)[places]
                    rows[places] = all_pairs.best_memberships(solved_sums, data.offsets, labels)
                arrays.write(generation, block, rows)

            run.for_all(place_isolated)
            placed = partial(arrays.read, generation)
            return placed, end, all_pairs.solved_sums(run, placed)
        return read, end, all_pairs.solved_sums(run, read)


def n_pair_ends(pairs: Any, n_objects: int) -> int:
    """Return the approximate number of pair ends of listed pairs."""
    if isinstance(pairs, PairTable):
        return 2 * pairs.n_pairs
    return int((1.0 if pairs == DENSE else float(pairs)) * n_objects * (n_objects - 1))
