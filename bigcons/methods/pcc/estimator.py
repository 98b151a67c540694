"""The PCC estimator: from parameters to a solver, and from its solution to results."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from bigcons.coassociation.factorized import Rates, Weights
from bigcons.divergences import Divergence, resolve_divergence
from bigcons.errors import (
    ConvergenceWarning,
    InvalidInputError,
    SoftEnsembleError,
    SurplusClustersWarning,
    warn_user,
)
from bigcons.execution.engine import Engine
from bigcons.memory import Block, parse_size
from bigcons.methods.pcc.all_pairs import USUAL_CALIBRATED, AllPairs, LargerSample
from bigcons.methods.pcc.block_model import some_partitions
from bigcons.methods.pcc.blocked import solve_blocked
from bigcons.methods.pcc.calibrated import (
    BLOCK_MODEL,
    FEWEST_LABELS,
    MOMENTS,
    MOST_SURPLUS,
    Calibration,
    EmbeddedStart,
    join_rates,
    solve_calibrated,
)
from bigcons.methods.pcc.calibrated_pairs import calibrated, unit_of
from bigcons.methods.pcc.choices import (
    ALL,
    BLOCKED,
    CANDIDATES,
    HEAP,
    PAIRWISE,
    PAPER,
    PAPER_MODEL,
    PROTOTYPES,
    Choices,
    asks_for_heap,
    check_memory,
    choose_calibration,
    choose_init,
    choose_n_init,
    choose_n_prototypes,
    choose_prune,
    choose_solver,
    choose_weights,
    finds_trust,
    is_drawn,
    keeps_labels,
    n_larger,
    resolve_pairs,
    store_rows,
    takes_candidates,
    warn_of_coarse_labels,
    warn_of_few_pairs,
    warn_of_fine_labels,
)
from bigcons.methods.pcc.heap import solve_pairs
from bigcons.methods.pcc.many import ManyClusters, ManySums, sample_rows
from bigcons.methods.pcc.memberships import (
    MOST_SHARES,
    PERTURBATION,
    BlockMemberships,
    Init,
    Solution,
    checked_start,
    dirichlet,
    perturbed_uniform,
    softened,
    solution_at,
)
from bigcons.methods.pcc.pairwise import Pairwise, sampled_gap
from bigcons.methods.pcc.placing import (
    Placing,
    Widened,
    isolated_objects,
    place_isolated,
    placing_of,
    refuse_isolated,
)
from bigcons.methods.pcc.prototypes import Prototypes
from bigcons.methods.pcc.pruning import PrunedPairs, settled
from bigcons.methods.pcc.subsample import INFORMATION, SUBSAMPLE, Extension, extend_subsample, extension_of
from bigcons.overlaps.eigenvectors import Spectrum
from bigcons.overlaps.kmeans import STARTS_OF_MANY
from bigcons.overlaps.n_clusters import ChoosingClusterer, distinct_clusters
from bigcons.overlaps.spectral_start import check_embedding_plan, is_fine
from bigcons.progress import expect_steps
from bigcons.seeding import SeedLike
from bigcons.solving.estimator import MethodInfo, ResumingClusterer, SoftPredictingClusterer
from bigcons.solving.memory_plan import process_bytes
from bigcons.solving.passes import Run, run_passes
from bigcons.solving.survey import Survey, take_survey, warn_of_dissent
from bigcons.solving.workspace import Output, open_workspace, scratch_place
from bigcons.storage.interface import Place
from bigcons.stores.ensemble import Ensemble
from bigcons.stores.pairs import PairTable, ParquetPairTable
from bigcons.validation import check_int, check_number

logger: logging.Logger = logging.getLogger("bigcons")

DEFAULT_PASSES = 100

# The paper stops Algorithm 1 after n_objects * n_clusters steps, which is short of the optimum; the default
# is this many times as much.
CAPS = 10

# Labels in the sample for each base cluster below which no clusters are merged: with half a label all of them
# seemed distinct, whatever the number (8 classes in 20 partitions).
FEWEST_TO_MERGE = 1


class PCC(ChoosingClusterer, ResumingClusterer, SoftPredictingClusterer):
    """Probabilistic consensus clustering using evidence accumulation.

    Every object gets a membership ``y_i`` on the simplex such that ``y_i.y_j`` explains how often objects
    ``i`` and ``j`` are clustered together. PCC minimizes ``sum N_ij d(c_ij / N_ij, y_i.y_j)``, where ``N_ij``
    partitions label both objects and ``c_ij`` of them put both in one cluster (Lourenço et al. 2015,
    equation 4). Missing labels need no special treatment. By default the co-association is calibrated
    first, which is our addition; ``coassociation="paper"`` is the published model.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Maximum number of clusters. By default those that the labels do not tell apart are merged, see
        ``prune``. "auto": by `bigcons.choose_n_clusters`.
    divergence : {"l2", "kl", "exponential"}, "power:<p>" or Divergence, default="l2"
        Bregman divergence ``d``. Over all pairs "l2" is solved exactly and the others by prototypes.
    pairs : {"all", "dense"}, float, PairTable or path-like, default="all"
        "all": every pair, in one pass over the labels per iteration, without forming any pair. A share such
        as 0.25e-3: that share of the pairs, drawn uniformly. A PairTable or its path: the pairs it holds;
        Parquet is converted first, block by block within ``memory`` unless the heap solves it.
        "dense": every pair, one by one, for small data. Soft clusterings take "all" with divergence="l2".
    solver : {"auto", "all", "heap", "blocked"}, default="auto"
        "all" for pairs="all"; for other pairs "heap" (the paper's Algorithm 1 on one core, with the pairs in
        memory) or "blocked" (the same within blocks of objects, on all cores or workers, with the pairs read
        from their store). "auto" chooses "blocked" for a million pairs or more, and for stored pairs that
        were sampled in tiles or whose heap would exceed ``memory``, else "heap".
    max_iter : int, "paper" or None, default=None
        Maximum number of passes over the data (None: 100). For the heap, of single-object steps (None: 10
        n_objects n_clusters; "paper": n_objects n_clusters, which ends well above the optimum).
    tol : float, default=3e-5
        Largest KKT gap at convergence, relative to the mean weight ``sum_j N_ij`` of an object. 0 runs to
        ``max_iter``. Passes of a calibrated model over all pairs by "l2" also end, after three or more, when
        all further ones are estimated to change no membership by more than ``30 tol``, from how their changes
        shrink; lower it for memberships closer to the optimum. With prototypes, passes end when the gap of
        the grouped problem is below it or a pass lowers the objective by less than ``tol / 1000`` of it.
    n_init : int or "auto", default="auto"
        Number of starts, of which the one with the lowest objective is kept. "auto": 8 on the subsample,
        else 1.
    init : {"auto", "subsample", "uniform", "dirichlet"} or array, default="auto"
        First memberships. "subsample": solve 2,048 objects and extend the solution to all; a
        calibrated model of 131,072 objects or more solves a larger sample in between. "uniform":
        perturbed uniform. "dirichlet": random. For solver="blocked" these two are single starts of the
        subsample. An array: memberships (n_objects, n_clusters); uniform ones, a saddle point, are perturbed,
        and rows that a divergence such as "kl" finds infinite are mixed with a millionth of the uniform
        membership. "auto": "uniform" for the heap by the model of the paper, else "subsample"; over all
        pairs of many small base clusters, of which a subsample says too little, k-means in the spectral
        embedding of `HBGF`, whose clusters of all objects give the rates of the block model.
    n_prototypes : int or "auto", default="auto"
        For pairs="all" with a divergence other than "l2": number of prototypes that stand for all objects,
        grouped by similar memberships. Time is proportional to it. "auto": as many as objects up to 2,048 of
        them, which is exact and takes time quadratic in their number; for more, four per cluster, at least
        16.
    weights : {"entropy", "information"}, array of shape (n_partitions,) or None, default=None
        Weights of the partitions, for pairs="all" and "l2": numbers >= 0 by which each partition counts in
        ``c_ij`` and ``N_ij``, as if it occurred that many times. None: all count the same. "entropy": the
        entropy of the labels of each partition. "information": its mutual information with an unweighted
        consensus. Both are estimated on the subsample and have mean 1.
    prune : float, "auto" or None, default="auto"
        What becomes of surplus clusters. "auto": in the block model, if the labels of 2,048 objects clearly
        tell a smaller number of clusters apart than ``n_clusters``, the solve has that number; and clusters
        that win next to none of these objects are left out. A SurplusClustersWarning says so; the others are
        the last columns of ``memberships_``, which are empty.
        Other models, and starts from given memberships, keep all. None: all are kept. A share, for
        pairs="all" and "l2": no cluster wins less than this share of the objects, where removing it raises
        the objective by at most 1e-4 of its magnitude. 0 removes empty clusters. Removal is judged with a
        table of K x K for each partition, so that a pass of more than 50 clusters costs O(n K^2 M); so does
        one from given memberships, in which an object may be in any number of clusters.
    coassociation : {"auto", "paper", "block-model", "moments", "least-squares"}, default="auto"
        Model of the co-association. "paper": partitions join objects ``i`` and ``j`` with probability
        ``y_i.y_j``. The others calibrate it: partition ``u`` joins them with probability ``a_u + d_u
        y_i.y_j``, its false-join rate and the excess of its hit rate. "block-model", for pairs="all" and
        "l2": with ``y_i' theta y_j`` for ``y_i.y_j``, as two clusters may be near each other, and one be
        split more often than another. "moments": rates with which pairs that are surely together or apart
        have probability 1 or 0, so that ``n_clusters`` is an upper limit. "least-squares": rates of the best
        fit, which use all ``n_clusters`` and leave memberships soft; for "l2" only. "auto": "block-model"
        over all pairs, "moments" for other pairs, by "l2" and without ``weights``; else, and with
        ``max_iter="paper"`` or a random ``init`` for other pairs, "paper".
    rarity : float or None, default=None
        Over all pairs by "l2", calibrated models weigh a join in base cluster ``b`` by ``(n_u / n_b) **
        rarity``, ``n_b`` of ``n_u`` labeled objects being in it: 0 counts all joins alike, 1 is the weight of
        correspondence analysis. None: 0.5.
    common_rates : bool or "auto", default="auto"
        If True, all partitions share one pair of rates and count equally. If False, they still share the
        rates in the block model, but one that says almost nothing about the clusters gets almost no weight;
        in the other models, and where small clusters beside a large one are to be kept, each partition has
        its own rates and counts by the inverse variance of its residuals. "auto": False over all
        pairs by "l2", True in all other solves, where a pair has one share of agreement, whichever partitions
        join it.
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
    memberships_ : (n_objects, n_clusters) float32, rows sum to 1; fewer columns if a share was pruned
    n_clusters_ : number of clusters with at least one object in ``labels_``
    trust_ : how far the labels can be trusted: for every object the ``confidence`` that its label is right,
        and the second most probable cluster; tables of ``clusters`` and ``partitions``. In the block model
        by its memberships, else by naive Bayes: see `bigcons.metrics.trust`. Not of soft clusterings, nor
        where a table of clusters and base clusters would take 1 GiB, or 134 MB for more than 50 clusters
    coassociation_ : the model that was solved, such as "block-model"
    hit_rates_, false_join_rates_ : (n_partitions,) float64, of calibrated models: how often a partition joins
        objects of one cluster, and of different clusters. Over all pairs by "l2" as counted, whatever the
        rarity of base clusters; else as estimated, ``a + d`` and ``a``
    affinities_ : (n_clusters, n_clusters) float64, ``theta`` of the block model: how often objects of two
        clusters are joined, 1 being the mean of objects of one cluster and 0 that of different ones
    weights_ : (n_partitions,) float64, the weights of the partitions; for pairs="all" and "l2"
    objective_ : the objective. For pairs="all" without its constant, which for "l2" is
        ``sum c_ij^2 / N_ij``; for a calibrated model without what it is where all ``y_i.y_j`` are zero. With
        prototypes, ``sum c_ij d(1, p_ij) + (N_ij - c_ij) d(0, p_ij)`` by
        their probabilities ``p_ij``; for "kl" this is the negative log-likelihood
    gap_ : largest relative KKT gap measured, the quantity that ``tol`` bounds; before the last step, if
        passes ended by the change they still make. With prototypes it is exact too, over all pairs of 128
        random objects (of all objects, up to 2,048)
    n_passes_ : number of passes; for the heap, of stretches of steps
    converged_ : whether ``gap_ <= tol``, or of a calibrated model over all pairs by "l2", passes ended by
        the change of memberships that ``tol`` bounds; of more than 50 clusters in the block model, whether
        passes ended before ``max_iter``. Fewer prototypes than objects do not reach the default ``tol``
    history_ : one list per quantity, with one entry per pass
    start_objectives_ : what every start was judged by, if the best of several was chosen: "l2" over the pairs
        of the subsample; for a calibrated model the squared distances of its k-means; of the heap, and of a
        single start from random or given memberships, the final objective
    grouped_gap_ : with prototypes, largest gap of the grouped problem, which the passes reduce
    approximation_error_ : with prototypes, relative error of ``objective_``, from the pairs of 512 objects

    Notes
    -----
    Cost for pairs="all" and "l2": O(n M K + n K^2 M) time per pass for M partitions, and 8 n K bytes for
    memberships unless they are stored by ``out``; for more than 50 clusters in the block model O(n M K) and
    256 n bytes. The starts work on 2,048 objects. "PCC in depth" in the documentation has the cost of the
    other solvers, the starts, the rule by which clusters are merged, and what all of this was measured to do.

    Which model is better? With the true number of clusters, the mean adjusted Rand index on 117 ensembles of
    13 data sets was .584 with "block-model", .556 with "moments" and .514 with "paper"
    (`benchmarks/accuracy.py`); from 20 sampled pairs per object, on 78 others, .492 with "moments" and .410
    with "paper". With noise that is independent between partitions, as in the planted
    experiments of the paper, "paper" with weights="entropy" is as good, within .001. "paper" is also for
    comparison with published results.

    K clusters of any sizes join at least 1 / K of the pairs. If the labels join far fewer, the paper's model
    tends to clusters of equal size; an OversegmentationWarning says so. If the partitions have at most half
    as many clusters as the consensus, it merges clusters; an UndersegmentationWarning says so.

    ``predict`` and ``predict_proba`` give each new object its best membership given all fitted objects, over
    all pairs and by the same divergence. Fitted objects mostly get their own label again; of a model fitted
    to as few as ten pairs per object, seven in eight do by "moments" and about half by "paper".

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
    array([[1.  , 0.  ],
           [1.  , 0.  ],
           [0.88, 0.12]], dtype=float32)
    """

    info: ClassVar[MethodInfo] = MethodInfo(
        "Lourenço et al. 2015", "labels, or sampled pairs", soft=True, soft_input=True
    )

    def __init__(
        self,
        n_clusters: int | str = 8,
        *,
        divergence: str | Divergence = "l2",
        pairs: str | float | os.PathLike[str] | PairTable = "all",
        solver: str = "auto",
        max_iter: int | str | None = None,
        tol: float = 3e-5,
        n_init: int | str = "auto",
        init: Init = "auto",
        n_prototypes: int | str = "auto",
        weights: Any = None,
        prune: float | str | None = "auto",
        coassociation: str = "auto",
        rarity: float | None = None,
        common_rates: bool | str = "auto",
        resume: bool = True,
        random_state: SeedLike = None,
        memory: str | float | None = None,
        out: str | os.PathLike[str] | None = None,
        client: object = None,
    ) -> None:
        super().__init__(
            n_clusters, resume=resume, random_state=random_state, memory=memory, out=out, client=client
        )
        self.divergence = divergence
        self.pairs = pairs
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.init = init
        self.n_prototypes = n_prototypes
        self.weights = weights
        self.prune = prune
        self.coassociation = coassociation
        self.rarity = rarity
        self.common_rates = common_rates

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        choices = self._choose(ensemble, engine)
        held = {"in_memory": out is None and engine.shares_memory, "prunes": choices.least_share is not None}
        check_memory(ensemble, engine, choices, self.n_clusters, self.pairs, self.memory, **held)
        self._expect_steps(ensemble, choices, self.n_clusters, in_memory=out is None)
        labels = ensemble.load() if keeps_labels(ensemble, engine) else ensemble
        given = choices.weights.partitions if isinstance(choices.weights, Weights) else None
        is_many = choices.solver == CANDIDATES
        n_rows = max(sample_rows(self.n_clusters), SUBSAMPLE) if is_many else SUBSAMPLE
        survey = take_survey(labels, engine, seed, n_rows, given, n_larger(ensemble, choices))
        n_clusters, known = self._distinct(ensemble, survey) if choices.merges else (self.n_clusters, None)
        self._expect_steps(ensemble, choices, n_clusters, in_memory=out is None)
        self._is_coarse = False
        if not ensemble.is_soft and choices.calibration is None:
            warn_of_fine_labels(survey, self.n_clusters, choices.weights, ensemble.offsets)
            self._is_coarse = warn_of_coarse_labels(ensemble, self.n_clusters, choices.weights)
            if choices.weights != INFORMATION:
                counted = ", or count them less by weights='information'" if choices.solver == ALL else ""
                warn_of_dissent(survey, ensemble, given, f"leave them out{counted}")
        width = 2 * min(MOST_SHARES, n_clusters) if is_many else n_clusters
        with open_workspace(out, engine, width) as workspace:
            passes = DEFAULT_PASSES if self.max_iter in (None, PAPER) else int(self.max_iter)
            run = Run(labels, engine, seed, passes, self.tol, survey.sample)
            run.larger, run.n_init, run.init = survey.larger, choices.n_init, choices.init
            if self._starts_spectrally(ensemble, survey, choices, n_clusters):
                check_embedding_plan("PCC", ensemble, engine, self.memory, n_clusters)
                weights = choices.weights if isinstance(choices.weights, Weights) else None
                run.init = EmbeddedStart(n_clusters, weights, choices.calibration)
            run.arrays, run.snapshots = workspace
            solution = self._solution(run, choices, survey, n_clusters, known, out)
            self._keep(solution, ensemble.offsets)
            model = PAPER_MODEL if choices.calibration is None else choices.calibration.rule
            self.coassociation_: str = model
            self._placing: Placing | None = None
            if not self._needs_labels(ensemble):
                self._placing = placing_of(labels, solution, self.divergence, seed, engine)
            # rows held in memory need no workers
            share = out is not None and isinstance(solution.memberships, BlockMemberships)
            width = n_clusters if solution.sums is None else solution.sums.n_clusters
            self._merges: bool = choices.merges and width < self.n_clusters
            if choices.merges and width < n_clusters:
                warn_user(
                    f"{n_clusters - width} of n_clusters={self.n_clusters} clusters win almost no objects "
                    "of a sample and were left out; prune=None keeps them.",
                    SurplusClustersWarning,
                )
            trust = engine if finds_trust(ensemble, choices.solver, width) else None
            read: Callable[[Block], np.ndarray] = solution.read
            if self._merges:
                read, width = Widened(read, self.n_clusters), self.n_clusters
            self._publish(ensemble, read, survey.unlabeled, out, engine if share else None, width, trust)
            if solution.sums is not None and (theta := solution.sums.theta) is not None:
                order = self._order[self._order < len(theta)]
                self.affinities_: np.ndarray = theta[np.ix_(order, order)]

    def _expect_steps(
        self, ensemble: Ensemble, choices: Choices, n_clusters: int, *, in_memory: bool
    ) -> None:
        """State the steps of a solve over all pairs, with costs relative to that of comparing partitions."""
        names = {ALL: AllPairs.name, CANDIDATES: ManyClusters.name}
        if choices.solver not in names:
            return
        n, K = ensemble.n_objects, n_clusters
        n_trusted = n if finds_trust(ensemble, choices.solver, K) else 0
        n_passed, of_pass = None, 0.1 * K
        if choices.calibration is None:
            of_pass = 0.8 + 0.06 * K
        elif choices.solver == ALL:
            n_passed, of_pass = USUAL_CALIBRATED * n, max(1.0, 0.2 * K - 0.2)
        n_sampled = n_larger(ensemble, choices)
        larger = {LargerSample.name: (USUAL_CALIBRATED * n_sampled, of_pass)} if n_sampled else {}
        expect_steps(
            {
                "survey": (n, 0.35),
                **larger,
                "start of PCC": (n, 1.7 * of_pass),
                names[choices.solver]: (n_passed, of_pass),
                "results": (n if in_memory else 2 * n, 0.03 * self.n_clusters),
                "compare with partitions": (n_trusted, 1.0),
                "confidence": (n_trusted, max(4.0, 0.17 * K)),
                "write to disk": (0 if in_memory else n, 0.02 * self.n_clusters),
            }
        )

    def _starts_spectrally(
        self, ensemble: Ensemble, survey: Survey, choices: Choices, n_clusters: int
    ) -> bool:
        """Return whether the subsample that "auto" would start from says too little of the base clusters."""
        if ensemble.is_soft or choices.solver != ALL or not isinstance(self.init, str) or self.init != "auto":
            return False
        return is_fine(ensemble, survey.sample, n_clusters, FEWEST_LABELS)

    def _distinct(self, ensemble: Ensemble, survey: Survey) -> tuple[int, Spectrum | None]:
        """Return the number of clusters to solve for: those asked for, or the fewer that are distinct.

        Also the spectrum of the subsample, where that takes it.
        """
        if hasattr(self, "n_clusters_choice_"):
            return self.n_clusters, None
        if is_fine(ensemble, survey.sample, self.n_clusters, FEWEST_TO_MERGE):
            return self.n_clusters, None
        some = survey.sample[:: max(len(survey.sample) // SUBSAMPLE, 1)]
        found, known = distinct_clusters(*some_partitions(some, ensemble.offsets), self.n_clusters)
        if found >= self.n_clusters:
            return self.n_clusters, known
        is_few = MOST_SURPLUS * found < self.n_clusters
        told = (
            f"n_clusters={found} or 'auto' may fit better."
            if is_few
            else "the others were merged into these. prune=None keeps all."
        )
        warn_user(
            f"the labels distinguish only {found} of n_clusters={self.n_clusters} clusters; {told}",
            SurplusClustersWarning,
        )
        return self.n_clusters if is_few else found, known

    def _solution(
        self,
        run: Run,
        choices: Choices,
        survey: Survey,
        n_clusters: int,
        known: Spectrum | None,
        out: Output | None,
    ) -> Solution:
        """Run the solver that was chosen, ``known`` the spectrum of the sample if it has been found."""
        divergence, calibration, solve = resolve_divergence(self.divergence), choices.calibration, None
        if calibration is not None:
            solve = partial(solve_calibrated, calibration=calibration, known=known)
        if choices.solver == ALL:
            if solve is not None and choices.merges:
                solve = partial(solve, merges=True)
            asked = n_clusters, survey.n_seen, choices.weights, solve
            if choices.least_share is None:
                at = run_passes(run, AllPairs(*asked))
                return solution_at(run, at, sums=at.state.sums)
            least_won = choices.least_share * (run.data.n_objects - survey.unlabeled.size)
            at = run_passes(run, PrunedPairs(*asked, least_won))
            return settled(run, solution_at(run, at, sums=at.state.sums), least_won)
        if choices.solver == CANDIDATES and calibration is not None:
            many = ManyClusters(n_clusters, survey.n_seen, calibration)
            return many.solution(run, run_passes(run, many))
        if choices.solver == PAIRWISE:
            exact = run_passes(run, Pairwise(self.n_clusters, divergence, survey.mean_weight, solve))
            solution = solution_at(run, exact).by(calibrated(divergence, exact.state.rates))
            return solution._replace(converged=solution.gap <= self.tol)
        if choices.solver == PROTOTYPES:
            size = choices.n_prototypes, survey.mean_weight
            grouped = run_passes(run, Prototypes(self.n_clusters, divergence, *size, solve))
            divergence = calibrated(divergence, grouped.state.rates)
            unit = survey.mean_weight * unit_of(divergence)
            gap = sampled_gap(run, grouped.generation, divergence) / unit
            solution = solution_at(run, grouped, tables=grouped.state.tables)
            return solution._replace(gap=gap, converged=gap <= self.tol).by(divergence)
        with scratch_place(out) as scratch:
            return self._solve_pairs(run, choices, scratch)

    def _solve_pairs(self, run: Run, choices: Choices, scratch: Place) -> Solution:
        """Solve listed pairs; objects that are in none are placed over all pairs.

        Pairs in Parquet are converted to rows first: in memory for the heap, else at ``scratch``.
        """
        ensemble, divergence, n_clusters = run.data, resolve_divergence(self.divergence), self.n_clusters
        pairs = resolve_pairs(self.pairs, ensemble, run.seed, run.engine)
        warn_of_few_pairs(pairs, n_clusters)
        by_blocks, calibration = choices.solver == BLOCKED, choices.calibration
        rule = None if calibration is None else calibration.rule
        memory = None if self.memory is None else max(parse_size(self.memory) - process_bytes(run.engine), 0)
        if isinstance(pairs, ParquetPairTable):
            pairs = store_rows(pairs, scratch, self.memory, memory) if by_blocks else pairs.load()
        if self._needs_labels(ensemble):
            refuse_isolated(ensemble, pairs)
        logger.info("PCC on %d pairs, %s", pairs.n_pairs, "block by block" if by_blocks else "by a heap")
        if by_blocks:
            # Dask workers would be sent the whole table
            if pairs.path is None and not run.engine.shares_memory:
                pairs = pairs.save(str(scratch))
            init = choices.init
            start: Any = init
            if isinstance(init, str):
                start = self._start_of_blocks(run, init, calibration)
            solution = solve_blocked(
                pairs,
                n_clusters,
                divergence,
                init=start,
                max_passes=run.max_passes,
                tol=self.tol,
                seed=run.seed,
                engine=run.engine,
                arrays=run.arrays,
                snapshots=run.snapshots,
                memory=memory,
                rule=rule,
            )
        else:
            init, objectives = choices.init, []
            if isinstance(init, str) and init == "subsample":
                extension = self._start_of_blocks(run, init, calibration)
                init = np.concatenate(list(run.engine.map(extension, run.blocks)))
                init = init if divergence.label == "l2" else softened(init)
                objectives = extension.start_objectives
            cap = pairs.n_objects * n_clusters
            solution = solve_pairs(
                pairs,
                n_clusters,
                divergence,
                init=init,
                n_init=choices.n_init,
                max_steps=cap if self.max_iter == PAPER else int(self.max_iter or CAPS * cap),
                tol=self.tol,
                seed=run.seed,
                rule=rule,
            )
            solution = solution._replace(start_objectives=objectives or solution.start_objectives)
        isolated = isolated_objects(pairs)
        if not isolated.size or self._needs_labels(ensemble):
            return solution
        logger.info("%d objects are in no sampled pair; placing them over all pairs", isolated.size)
        return place_isolated(ensemble, isolated, solution, self.divergence, run.seed, run.arrays, run.engine)

    def _start_of_blocks(self, run: Run, init: str, calibration: Calibration | None) -> Extension:
        """Return a function that gives the first memberships of a block of pairs."""
        if calibration is not None:
            found = solve_calibrated(
                run.sample, run.data.offsets, self.n_clusters, run.n_init, run.seed, calibration
            )
            return extension_of(found, run.data, run.sample)
        n_init, draw = run.n_init, dirichlet
        if init != "subsample":
            n_init, draw = 1, perturbed_uniform if init == "uniform" else dirichlet
        solved = extend_subsample(run.data, run.sample, self.n_clusters, n_init, run.seed, run.engine, draw)
        return solved if init == "subsample" else replace(solved, start_objectives=[])

    def _choose(self, ensemble: Ensemble, engine: Engine) -> Choices:
        """Check the parameters and return them without "auto"."""
        check_number("tol", self.tol, at_least=0.0)
        pairs, divergence = self.pairs, resolve_divergence(self.divergence)
        heap_only = asks_for_heap(self.max_iter, self.n_init, self.init)
        solver = choose_solver(
            self.solver,
            ensemble,
            engine,
            self.n_clusters,
            pairs,
            divergence,
            self.memory,
            heap_only=heap_only,
        )
        if self.max_iter == PAPER and solver != HEAP:
            raise InvalidInputError(f"max_iter='paper' with solver={solver!r}; it requires solver='heap'.")
        if self.max_iter not in (None, PAPER):
            check_int("max_iter", self.max_iter)
        if ensemble.is_soft:
            if solver in (PROTOTYPES, PAIRWISE):
                what = f"PCC with pairs={pairs!r} and divergence={divergence.label!r}"
                raise SoftEnsembleError(what, "divergence='l2' or sampled pairs, for memberships")
            refused = {"prune": self.prune not in (None, "auto"), "weights": isinstance(self.weights, str)}
            for name in (name for name, is_refused in refused.items() if is_refused):
                raise SoftEnsembleError(f"PCC with {name}={getattr(self, name)!r}", f"PCC without {name}")
        calibration = choose_calibration(
            *(self.coassociation, self.rarity, self.common_rates, self.weights),
            *(solver, pairs, divergence),
            is_soft=ensemble.is_soft,
            as_in_paper=self.max_iter == PAPER or is_drawn(self.init),
        )
        init = choose_init(self.init, solver, calibration)
        n_init = choose_n_init(self.n_init, init, solver, pairs, self.weights, calibration)
        size = ensemble.n_objects, self.n_clusters
        n_prototypes = choose_n_prototypes(self.n_prototypes, solver, *size, pairs, divergence)
        if solver == PROTOTYPES and n_prototypes >= ensemble.n_objects:
            solver = PAIRWISE
        prune = choose_prune(self.prune, init, solver, pairs, divergence, calibration)
        weights = choose_weights(self.weights, ensemble.offsets, solver, pairs, divergence)
        if solver == ALL and takes_candidates(self.n_clusters, calibration, init, prune[0]):
            solver, n_init = CANDIDATES, STARTS_OF_MANY if self.n_init == "auto" else n_init
        if not isinstance(init, str):
            given = checked_start(init, ensemble.n_objects, self.n_clusters)
            init = "uniform" if np.ptp(given, axis=1).max() < PERTURBATION / self.n_clusters / 100 else given
        return Choices(solver, init, n_init, n_prototypes, weights, calibration, *prune)

    def _needs_labels(self, ensemble: Ensemble) -> bool:
        """Return whether objects cannot be placed: by prototypes, there is no form for memberships."""
        return ensemble.is_soft and resolve_divergence(self.divergence).label != "l2"

    def _keep(self, solution: Solution, offsets: np.ndarray) -> None:
        """Set the attributes besides labels and memberships, and warn if the solve has not converged."""
        n_partitions = offsets.size - 1
        if self.tol > 0 and not solution.converged:
            gap = f"a KKT gap of {solution.gap:.2g} > tol={self.tol:g}"
            if not solution.settled:
                told = (
                    f"PCC stopped at max_iter before it settled, with a KKT gap of {solution.gap:.2g}; "
                    "raise max_iter or tol if the labels still change."
                )
            elif solution.tables is not None:
                told = (
                    f"{len(solution.tables.centers)} prototypes leave {gap} over all pairs; "
                    "raise n_prototypes, or tol to accept it."
                )
            else:
                told = f"no step lowers the objective of PCC any more, with {gap}; raise tol."
            warn_user(told, ConvergenceWarning)
        self.objective_: float = solution.objective
        self.gap_: float = solution.gap
        self.n_passes_: int = solution.n_passes
        self.converged_: bool = solution.converged
        self.history_: dict[str, list[Any]] = solution.history
        self.start_objectives_: list[float] = solution.start_objectives
        if solution.tables is not None:
            self.approximation_error_: float = solution.history["error"][-1]
            self.grouped_gap_: float = solution.history["gap"][-1]
        sums = solution.sums
        if sums is not None:
            given = sums.weights
            self.weights_: np.ndarray = np.ones(n_partitions) if given is None else given.partitions
            if isinstance(given, Rates):
                self.weights_ = given.w
                self.hit_rates_: np.ndarray
                self.false_join_rates_: np.ndarray
                self.hit_rates_, self.false_join_rates_ = (
                    sums.join_rates(offsets) if isinstance(sums, ManySums) else join_rates(sums, offsets)
                )
        elif solution.calibrated is not None:
            a, d = solution.calibrated.a, solution.calibrated.d
            self.hit_rates_, self.false_join_rates_ = np.full(n_partitions, a + d), np.full(n_partitions, a)

    @property
    def _states_probabilities(self) -> bool:
        """Whether memberships are the probabilities of clusters, as they are in the block model."""
        return getattr(self, "coassociation_", None) == BLOCK_MODEL

    def _expects_surplus(self) -> bool:
        is_limit = self._merges or not (self.prune is None or isinstance(self.prune, str))
        return is_limit or self.coassociation_ == MOMENTS or self._is_coarse

    def _remedy_of_surplus(self, n_large: int) -> str:
        prunes = isinstance(self.pairs, str) and self.pairs == ALL and self.divergence == "l2"
        enough = super()._remedy_of_surplus(n_large) + (", or prune=0.01" if prunes else "")
        if prunes or self.coassociation_ != PAPER_MODEL:
            return enough
        return f"a calibrated model, such as coassociation='moments', may tell more apart, or {enough}"

    def _placer(self) -> Callable[[np.ndarray], np.ndarray]:
        if self._placing is None:
            what = f"predict of PCC with divergence={self.divergence!r}"
            raise SoftEnsembleError(what, "divergence='l2', for memberships")
        return Widened(self._placing, self._n_columns) if self._merges else self._placing

    def _partition_weights(self) -> np.ndarray | None:
        return None if self._placing is None else self._placing.weights
