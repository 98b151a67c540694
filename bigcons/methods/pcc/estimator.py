"""The PCC estimator: from parameters to a variant, and from its solution to results."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from bigcons.coassociation.factorized import Weights
from bigcons.divergences import Divergence
from bigcons.errors import (
    ConvergenceWarning,
    OversegmentationWarning,
    SoftEnsembleError,
    UndersegmentationWarning,
    warn_user,
)
from bigcons.execution.engine import Engine
from bigcons.methods.pcc.all_pairs import SUBSAMPLE, BySquares, entropy_weights, packed_sums, unpacked_sums
from bigcons.methods.pcc.prototypes import ByPrototypes
from bigcons.methods.pcc.variants import choose_variant, keeps_labels
from bigcons.metrics.confidence import can_weigh
from bigcons.overlaps.n_clusters import ChoosingClusterer, search_sample
from bigcons.overlaps.tree import FEWEST_LABELS, Sample, n_groups_for
from bigcons.progress import expect_steps
from bigcons.seeding import SeedLike
from bigcons.solving.estimator import (
    ContinuingClusterer,
    MethodInfo,
    ResumingClusterer,
    SoftPredictingClusterer,
)
from bigcons.solving.passes import Run, as_history
from bigcons.solving.survey import Survey, take_survey, warn_of_dissent
from bigcons.solving.workspace import Output, open_workspace
from bigcons.stores.cluster_tree import LEAST_OBJECTS
from bigcons.stores.ensemble import Ensemble
from bigcons.stores.pairs import PairTable


class PCC(ChoosingClusterer, ResumingClusterer, SoftPredictingClusterer, ContinuingClusterer):
    """Probabilistic consensus clustering using evidence accumulation.

    Every object gets a membership ``y_i`` on the simplex such that ``y_i.y_j`` explains how often objects
    ``i`` and ``j`` are clustered together. PCC minimizes ``sum N_ij d(c_ij / N_ij, y_i.y_j)``, where ``N_ij``
    partitions label both objects and ``c_ij`` of them put both in one cluster (Lourenço et al. 2015,
    equation 4). Missing labels need no special treatment. By default the co-association is calibrated
    first, which is our addition; ``coassociation="paper"`` is the published model.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Maximum number of clusters. "auto": by `bigcons.choose_n_clusters`.
    divergence : {"l2", "kl", "exponential"}, "power:<p>" or Divergence, default="l2"
        Bregman divergence ``d``. Over all pairs "l2" is solved exactly; the others pair by pair for up to
        2,048 objects, which is exact too, and for more by four prototypes per cluster, at least 16, that
        stand for all objects.
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
        n_objects n_clusters; "paper": n_objects n_clusters, which ends well above the optimum, from the
        uniform start of the paper, perturbed because it is a saddle point).
    tol : float, default=3e-4
        Largest KKT gap at convergence, relative to the mean weight ``sum_j N_ij`` of an object. 0 runs to
        ``max_iter``. With prototypes, passes end when the gap of the grouped problem is below it or a pass
        lowers the objective by less than ``tol / 1000`` of it.
    n_init : int or "auto", default="auto"
        Number of starts, "auto": 8. The first is the clusters of a tree, the others random memberships. All
        are solved on a sample of 2,048 objects; that of the lowest objective is extended to all objects.
    weights : "entropy", array of shape (n_partitions,) or None, default=None
        Weights of the partitions, for pairs="all" and "l2": numbers >= 0 by which each partition counts in
        ``c_ij`` and ``N_ij``, as if it occurred that many times. None: all count the same. "entropy": the
        entropy of the labels of each partition, estimated on the sample, with mean 1.
    coassociation : {"paper", "calibrated"}, default="paper"
        "paper": ``c_ij / N_ij``. "calibrated", for divergence="l2": ``(c_ij / N_ij - a) / d``, where every
        partition joins objects of different clusters with probability ``a`` and of one with ``a + d``, as
        estimated on the sample; our addition. For few listed pairs, labels much coarser than the
        consensus, and as an upper limit of the number of clusters.
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
        `bigcons.metrics.trust`. Not of soft clusterings, nor where a table of clusters and base clusters
        would take 1 GiB
    weights_ : (n_partitions,) float64, the weights of the partitions; for pairs="all" and "l2"
    hit_rate_, false_join_rate_ : of a calibrated co-association, ``a + d`` and ``a``: how often partitions
        join objects of one cluster, and of different clusters
    objective_ : the objective. For pairs="all" without its constant, which for "l2" is
        ``sum c_ij^2 / N_ij``. With another divergence over all pairs, ``sum c_ij d(1, p_ij) + (N_ij - c_ij)
        d(0, p_ij)`` by the probabilities ``p_ij``, or those of prototypes; for "kl" this is the negative
        log-likelihood
    gap_ : largest relative KKT gap measured, the quantity that ``tol`` bounds. With prototypes over all pairs
        of 128 random objects: larger than that of the grouped problem
    n_passes_ : number of passes; for the heap, of stretches of steps
    converged_ : whether ``gap_ <= tol``; with prototypes, whether passes ended before ``max_iter``
    history_ : one list per quantity, with one entry per pass
    start_objectives_ : objective of every start on the sample, that from the tree first; of the uniform
        start, the final one
    grouped_gap_ : with prototypes, largest gap of the grouped problem, which the passes reduce
    approximation_error_ : with prototypes, relative error of ``objective_``, from the pairs of 512 objects

    Notes
    -----
    Cost for pairs="all" and "l2": O(n M K + n K^2 M) time per pass for M partitions, and 8 n K bytes for
    memberships unless they are stored by ``out``. The starts work on 2,048 objects. "PCC in depth" in the
    documentation has the cost of the other solvers, and tells which parameters apply to which.

    K clusters of any sizes join at least 1 / K of the pairs. If the labels join far fewer, the model tends
    to clusters of equal size; an OversegmentationWarning says so. If the partitions have at most half
    as many clusters as the consensus, it merges clusters; an UndersegmentationWarning says so.

    ``predict`` and ``predict_proba`` give each new object its best membership given all fitted objects, over
    all pairs and by the same divergence. Fitted objects mostly get their own label again, if they were
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

    info: ClassVar[MethodInfo] = MethodInfo(
        "Lourenço et al. 2015", "labels, or sampled pairs", soft=True, soft_input=True
    )

    def __init__(
        self,
        n_clusters: int | Literal["auto"] = 8,
        *,
        divergence: str | Divergence = "l2",
        pairs: str | float | os.PathLike[str] | PairTable = "all",
        solver: str = "auto",
        max_iter: int | str | None = None,
        tol: float = 3e-4,
        n_init: int | str = "auto",
        weights: Any = None,
        coassociation: str = "paper",
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
        self.weights = weights
        self.coassociation = coassociation

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        variant = choose_variant(self, ensemble, engine)
        variant.check_memory(ensemble, engine, in_memory=out is None and engine.shares_memory)
        n, K = ensemble.n_objects, self.n_clusters
        trusts = can_weigh(ensemble, K)
        if steps := variant.steps(ensemble):
            n_trusted = n if trusts else 0
            expect_steps(
                {
                    "survey": (n, 0.35),
                    **steps,
                    "results": (n, 0.03 * K),
                    "compare with partitions": (n_trusted, 1.0),
                    "confidence": (n_trusted, max(4.0, 0.17 * K)),
                    "write to disk": (0 if out is None else n, 0.02 * K),
                }
            )
        labels = ensemble.load() if keeps_labels(ensemble, engine) else ensemble
        given = variant.weights.partitions if isinstance(variant.weights, Weights) else None
        survey = take_survey(labels, engine, seed, SUBSAMPLE, given)
        weights = variant.weights
        if isinstance(weights, str):
            weights = entropy_weights(survey.sample, ensemble.offsets)
        self._weights = weights
        self._is_limit = variant.calibrates
        if not ensemble.is_soft and not variant.calibrates:
            warn_of_fine_labels(survey, K, weights)
            self._is_limit = warn_of_coarse_labels(ensemble, K, weights)
            warn_of_dissent(survey, ensemble, given, "leave them out")
        sample = Sample.of(survey.sample, ensemble.offsets, weights, n_groups_for(K))
        if not (hasattr(self, "n_clusters_choice_") or survey.is_fine(ensemble, K, FEWEST_LABELS)):
            n_judged = min(len(survey.sample), LEAST_OBJECTS * n_groups_for(K))
            found = search_sample(lambda _: sample, n_judged)
            self._judge_structure(survey.rows, found, K, is_asked=K > 1)
        with open_workspace(out, engine, K) as workspace:
            run = Run(labels, engine, seed, variant.n_passes(n), self.tol, survey.sample, *workspace)
            solution = variant.solve(run, survey, partial(variant.begin, sample, weights), out)
            at = solution.at
            if self.tol > 0 and not solution.converged:
                told = (
                    f"no step lowers the objective of PCC any more, with a KKT gap of {solution.gap:.2g} > "
                    f"tol={self.tol:g}; raise tol."
                    if at.is_settled
                    else f"PCC stopped at max_iter before it settled, with a KKT gap of {solution.gap:.2g}; "
                    "raise max_iter or tol if the labels still change."
                )
                warn_user(told, ConvergenceWarning)
            self.objective_: float = at.records[-1]["objective"]
            self.gap_: float = solution.gap
            self.n_passes_: int = len(at.records)
            self.converged_: bool = solution.converged
            self.history_: dict[str, list[Any]] = as_history(at.records)
            self.start_objectives_: list[float] = at.start_objectives or [self.objective_]
            for name, value in solution.attributes.items():
                setattr(self, name, value)
            self._placing: BySquares | ByPrototypes | None = solution.placer
            share = engine if out is not None else None  # rows held in memory need no workers
            trust = engine if trusts else None
            self._publish(
                *(ensemble, solution.read, survey.unlabeled, out, share),
                trust=trust,
                judged=self._judged,
            )

    def _placer(self) -> Callable[[np.ndarray], np.ndarray]:
        if self._placing is None:
            what = f"predict of PCC with divergence={self.divergence!r}"
            raise SoftEnsembleError(what, "divergence='l2', for memberships")
        return self._placing

    def _placing_parts(self) -> dict[str, np.ndarray] | None:
        return packed_sums(self._placing.sums) if isinstance(self._placing, BySquares) else None

    def _restore_placing(self, parts: Mapping[str, np.ndarray], ensemble: Ensemble, n_clusters: int) -> None:
        sums = unpacked_sums(parts, ensemble.offsets, n_clusters)
        self._placing = BySquares(sums, ensemble.offsets)


# Whether labels suit the model of the paper: far coarser or finer ones than the consensus mislead it


def warn_of_coarse_labels(ensemble: Ensemble, n_clusters: int, weights: Weights | None) -> bool:
    """Warn if the partitions have far fewer clusters than asked for, and so join different ones by chance.

    The paper's model of the co-association has no term for that. Return whether it is so.
    """
    counted = slice(None) if weights is None else weights.partitions > 0
    mean = float(np.mean(ensemble.n_clusters[counted]))
    # Measured on 5 to 20 planted classes of equal size, with noise: below a third the paper's model lost
    # all of them, up to a half most, while the calibrated one found all.
    is_coarse = mean <= 0.5 * n_clusters
    if is_coarse:
        warn_user(
            f"the partitions have {mean:.3g} clusters on average, far fewer than n_clusters={n_clusters}: by "
            "chance they join objects of different clusters, which PCC then merges; "
            "coassociation='calibrated' allows for it.",
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
