"""The consensus tree: groups of a sample merged into clusters, and all objects placed by naive Bayes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from bigcons.coassociation.factorized import Weights
from bigcons.errors import InvalidInputError, SurplusClustersWarning, warn_user
from bigcons.execution.blas import one_thread
from bigcons.execution.engine import Engine
from bigcons.kernels.cluster_tables import count_assigned, in_whole_vectors, padded
from bigcons.memory import Block
from bigcons.metrics.confidence import (
    ClusterSupport,
    Judged,
    Told,
    can_weigh,
    independent_share,
    log_rates,
    random_half,
    support_factor,
    trust_rows,
    trust_tables,
)
from bigcons.overlaps.embedding import Centers, bipartite_embedding
from bigcons.overlaps.incidence import one_hot, votes_of
from bigcons.overlaps.n_clusters import ChoosingClusterer
from bigcons.overlaps.spectral_start import (
    MORE_OBJECTS,
    check_embedding_plan,
    count_clusters,
    count_earlier,
    is_fine,
)
from bigcons.overlaps.tree import (
    FEWEST_LABELS,
    GROUPS_PER_CLUSTER,
    MOST_GROUPS,
    TREES,
    Groups,
    Sample,
    merge_groups,
    n_groups_for,
    nearest_pivots,
    plan_bytes,
    rows_for,
)
from bigcons.seeding import SeedLike
from bigcons.solving.estimator import ContinuingClusterer, MethodInfo
from bigcons.solving.memory_plan import MemoryPlan, block_label_bytes, label_bytes
from bigcons.solving.pass_clusterer import SoftPassClusterer
from bigcons.solving.passes import (
    BestOfStarts,
    Finalists,
    Iterate,
    Record,
    Run,
    State,
    Stats,
    Step,
    Winner,
    add_all,
)
from bigcons.solving.results import Found, Results, by_size
from bigcons.solving.survey import Survey, labeled_objects, take_survey, warn_of_dissent
from bigcons.solving.workspace import Output
from bigcons.stores.aligning import Start
from bigcons.stores.ensemble import Ensemble
from bigcons.stores.ensemble_store import observed
from bigcons.stores.trust import TRUST_ROW

_EVIDENCE = ("rates", "without", "prior", "own_prior", "temperature", "support")
"""What of the state places new objects; see `Placement.state`."""


class Placed(NamedTuple):
    """The objects of a block in their most probable clusters."""

    clusters: np.ndarray
    """(rows,) int32, -1 without labels."""
    memberships: np.ndarray
    """(rows, K) float32; no rows unless asked for."""
    trust: np.ndarray | None
    """(rows,) `TRUST_ROW`; None unless asked for, and of memberships in base clusters."""
    stats: Stats
    """What the kernel adds up."""


class Placement:
    """Naive Bayes placement of all objects in the clusters of a sample, a `Problem` of one pass.

    The labels of an object are evidence for its cluster, ``P(k | labels) ~ P(k) prod_u P(label in u | k)``,
    with the shares of base clusters in the clusters of the other objects. The pass places all objects by the
    table of the sample and counts the table anew; results, and how far to trust them, are by that.
    """

    name = "tree"
    n_carried = 1
    carried_dtype = "<i4"
    lower_is_better = False

    def __init__(self, offsets: np.ndarray, n_clusters: int, weights: Weights | None):
        self.offsets = offsets
        self.n_clusters = n_clusters
        self.weights = weights
        self.half: np.ndarray = random_half(offsets.size - 1)

    def start(self, _labels: np.ndarray, _seed: int, _number: int) -> tuple[State, np.ndarray | None]:
        """Not called: the tree is the start."""
        raise NotImplementedError

    def for_all(self, state: State) -> State:
        """Return the state itself."""
        return state

    def state(self, T: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        """Return the evidence of labels from the objects T (B, K) and sizes (K,) of the clusters."""
        n, K = sizes.sum(), self.n_clusters
        with np.errstate(divide="ignore", invalid="ignore"):  # of clusters without objects
            rates, own = log_rates(np.ascontiguousarray(T[:, :K].T), sizes, self.offsets)
            own_prior = np.log(sizes / (n - 1.0 + K))
        prior = np.where(sizes > 0, np.log((sizes + 1.0) / (n - 1.0 + K)), -np.inf)
        rates, own = np.where(sizes > 0, rates, 0.0), np.where(sizes > 0, own, 0.0)
        if self.weights is not None:
            rates, own = (of * self.weights.base_clusters[:, None] for of in (rates, own))
        return {
            "rates": in_whole_vectors(rates),
            "without": in_whole_vectors(own - rates),
            "prior": prior,
            "own_prior": own_prior,
            "temperature": np.ones(1),
            "support": np.full(K, np.nan),
        }

    def counted(self, labels: np.ndarray, clusters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what `state` takes, T (B, K) and sizes (K,), of rows in clusters (rows,), -1 for in none."""
        labels = labels if self.weights is None else self.weights.counted(labels)
        T, sizes = np.zeros((self.offsets[-1], self.n_clusters)), np.zeros(self.n_clusters)
        if labels.dtype.kind == "f":
            count_memberships(labels, clusters, T, sizes)
        else:
            count_assigned(labels, self.offsets, clusters.astype(np.int32), T, sizes)
        return T, sizes

    def place(
        self, state: State, labels: np.ndarray, carried: np.ndarray | None, *, soft: bool = False
    ) -> Placed:
        """Return a block placed by the state; ``soft`` for memberships, tempered, and how far to trust them.

        ``carried`` (rows, 1): the clusters in which the state counts the objects.
        """
        from bigcons.kernels.tree import UNPLACED, place

        rows, K = len(labels), self.n_clusters
        current = np.full(rows, -1, np.int32) if carried is None else np.ascontiguousarray(carried[:, 0])
        assigned, memberships = np.empty(rows, np.int32), np.empty((rows if soft else 0, K), np.float32)
        T, sizes, totals = np.zeros((self.offsets[-1], padded(K))), np.zeros(K), np.zeros(2 + K)
        stats = {"T": T, "sizes": sizes, "totals": totals, "agreed": np.zeros((3, 2, K))}
        temperature = float(state["temperature"][0]) if soft else 1.0
        if labels.dtype.kind == "f":
            labels = labels if self.weights is None else self.weights.counted(labels)
            scores = votes_of(labels, self.offsets, state["rates"], K)[0] + state["prior"]
            labeled: np.ndarray = np.asarray(labels.any(axis=1))
            counted = np.flatnonzero(current >= 0)
            own_k = current[counted]
            parts = labels[counted] ** 2  # of a part of an object, that part is left out
            scores[counted, own_k] += state["own_prior"][own_k] - state["prior"][own_k]
            own = votes_of(parts, self.offsets, state["without"], K)[0]
            scores[counted, own_k] += own[np.arange(counted.size), own_k]
            scores *= temperature
            assigned[:] = np.where(labeled, scores.argmax(axis=1), -1)
            highest = scores.max(axis=1, keepdims=True)
            shares = np.exp(scores - highest)
            mass = shares.sum(axis=1, keepdims=True)
            totals[0] = np.where(labeled, (highest + np.log(mass))[:, 0], 0.0).sum()
            totals[1] = np.count_nonzero(labeled & (assigned != current))
            if soft:
                memberships[:] = np.where(labeled[:, None], shares / mass, 1.0 / K)
            else:
                count_memberships(labels, assigned, T, sizes)
            return Placed(assigned, memberships, None, stats)
        if self.weights is not None and not (self.weights.partitions > 0).all():
            current[~labeled_objects(observed(labels, self.offsets), self.weights.partitions)] = UNPLACED
        shares, other_shares = np.empty((2, rows if soft else 0), np.float32)
        others = np.empty(shares.size, np.int32)
        place(
            *(labels, current, False, self.offsets, self.half),
            *(state["rates"], state["without"], state["prior"], state["own_prior"], temperature),
            *(assigned, memberships, shares, others, other_shares, *stats.values()),
        )
        if not soft:
            return Placed(assigned, memberships, None, stats)
        factor = support_factor(state["support"])
        totals[2:] *= factor
        return Placed(
            assigned, memberships, trust_rows(assigned, shares, others, other_shares, factor), stats
        )

    def visit(self, state: State, labels: np.ndarray, carried: np.ndarray | None) -> tuple[Stats, np.ndarray]:
        """Place the objects of a block and count them in their clusters."""
        placed = self.place(state, labels, carried)
        return placed.stats, placed.clusters[:, None]

    def finish(self, state: State, stats: Stats) -> tuple[State, Record]:
        """Return the evidence by all objects, and the record of the state before."""
        log_likelihood, moved = stats["totals"][:2]
        following = {**self.state(stats["T"], stats["sizes"]), "tree": state["tree"]}
        return following, {"objective": float(log_likelihood), "moved": float(moved)}

    def is_settled(self, _previous: Record | None, _record: Record, _tol: float) -> bool:
        """Return True: the table is counted anew once."""
        return True

    def results(self, state: State, labels: np.ndarray, carried: np.ndarray | None) -> np.ndarray:
        """Return the memberships (rows, K) float32 of a block."""
        return self.place(state, labels, carried, soft=True).memberships


def count_memberships(labels: np.ndarray, assigned: np.ndarray, T: np.ndarray, sizes: np.ndarray) -> None:
    """Add memberships (rows, B) of objects to their clusters in T (B, K) and sizes (K,); -1 adds nothing."""
    for k in range(sizes.size):
        inside = labels[assigned == k]
        T[:, k] += inside.sum(axis=0, dtype=np.float64)
        sizes[k] += len(inside)


class TreeStart(BestOfStarts):
    """The pass that follows from the clusters of a sample."""

    def __init__(
        self,
        problem: Placement,
        judged: Judged | None = None,
        sample: Sample | None = None,
        *,
        is_chosen: bool = False,
    ) -> None:
        super().__init__(problem, 1)
        self.placement = problem
        self.judged = judged
        self.sample = sample
        self.is_chosen = is_chosen

    def n_held(self, _n_init: int) -> int:
        """Return 0: no start is run on the sample."""
        return 0

    def start(self, run: Run) -> tuple[Finalists, list[float]]:
        """Return the evidence of the clusters of the sample; nothing else is tried."""
        placement, K, sample = self.placement, self.placement.n_clusters, self.sample
        assert sample is not None  # noqa: S101 - without one, only memory is planned
        groups = sample.groups(n_groups_for(K))
        cut = groups.cut(K, groups.least if self.is_chosen else 0)  # as the number was counted
        clusters = groups.clusters_of(cut)
        T, sizes = placement.counted(run.sample, clusters)
        carries = len(run.sample) == run.data.n_objects
        if carries:
            for block in run.blocks:
                run.arrays.write(0, block, clusters[block.start : block.stop, None].astype(np.int32))
        return self._following(T, sizes, cut.tree, carries=carries), []

    def _following(self, T: np.ndarray, sizes: np.ndarray, tree: str | None, *, carries: bool) -> Finalists:
        """Return the evidence of the clusters of a tree, by their objects T (B, K) and sizes (K,)."""
        number = -1 if tree is None else TREES.index(tree)
        state = {**self.placement.state(T, sizes), "tree": np.array([number])}
        return Finalists([], [state], [[]], carries)

    def step(self, run: Run, at: Iterate[Finalists], total: list[Stats]) -> Step[Finalists]:
        """Take the step, and temper the evidence, because partitions of the same data repeat each other.

        Also find the support of the clusters in the sample that halves of the partitions have grouped.
        """
        step, placement = super().step(run, at, total), self.placement
        (state,) = step.state.following
        if len(run.sample) == run.data.n_objects:
            clusters = np.concatenate([run.arrays.read(at.generation + 1, b)[:, 0] for b in run.blocks])
        else:
            clusters = placement.place(state, run.sample, None).clusters
        table = np.ascontiguousarray(total[0]["T"][:, : placement.n_clusters].T)
        rates = np.ascontiguousarray(state["rates"][:, : placement.n_clusters])
        own = rates + state["without"][:, : placement.n_clusters]
        weights = None if placement.weights is None else placement.weights.partitions
        share = independent_share(run.sample, clusters, placement.offsets, table, rates, own, weights)
        tempered, judged = {**state, "temperature": np.array([share])}, self.judged
        support = ClusterSupport.unknown(placement.n_clusters)
        if judged is not None:
            found = placement.place(tempered, judged.labels, None, soft=True)
            if found.trust is not None:
                confidence = found.trust["confidence"]
                support = judged.support_of(found.clusters, confidence, placement.n_clusters)
        tempered |= {"support": support.clusters, "divisions": support.divisions}
        return step._replace(state=step.state._replace(following=[tempered]))

    def winner(self, run: Run, at: Iterate[Finalists]) -> Winner:
        """Return the evidence of all objects, counted by the pass, and the clusters it counts them in."""
        found = super().winner(run, at)
        return found._replace(state=at.state.following[0])


class FineStart(TreeStart):
    """The pass that follows from clusters of all objects, where a sample says too little of base clusters."""

    def start(self, run: Run) -> tuple[Finalists, list[float]]:
        """Return the evidence of the clusters of all objects, merged from groups of their embedding.

        All base clusters count as equally reliable.
        """
        offsets, weights, K = self.placement.offsets, self.placement.weights, self.placement.n_clusters
        counts = np.ones(offsets.size - 1) if weights is None else weights.partitions
        embedding = bipartite_embedding(
            *(run.data, run.engine, GROUPS_PER_CLUSTER * K, weights), more_objects=MORE_OBJECTS
        )
        rows, labeled = embedding.rows_of(run.sample)
        with one_thread(user_api="blas"):
            groups = np.unique(nearest_pivots(rows[labeled]), return_inverse=True)[1]
            centers = one_hot(groups, int(np.max(groups)) + 1).T @ rows[labeled]
            centers /= np.bincount(groups)[:, None]
        assign = partial(count_clusters, Centers(embedding, centers, 0.0, {}, 0, []), len(centers), weights)
        stats = run.fold(run.visit(assign, reads=[]), lambda total, part: add_all([total], [part])[0])
        table = np.ascontiguousarray(stats["counts"].T)
        merged = merge_groups(table, offsets, counts, np.ones(table.shape[1]))
        cut = Groups(groups, table, offsets, counts, *merged).cut(K)
        inside = one_hot(cut.clusters, K)
        return self._following(stats["counts"] @ inside, stats["sizes"] @ inside, cut.tree, carries=False), []


class ContinuedTree(TreeStart):
    """The pass that follows from the clusters of an earlier consensus."""

    def __init__(self, problem: Placement, earlier: Start, judged: Judged | None) -> None:
        super().__init__(problem, judged)
        self.earlier = earlier

    def start(self, run: Run) -> tuple[Finalists, list[float]]:
        """Return the evidence of the earlier clusters by all objects; no tree is made."""
        T, sizes = count_earlier(run, self.earlier, self.placement.counted)
        return self._following(T, sizes, None, carries=False), []


class ConsensusTree(ChoosingClusterer, SoftPassClusterer, ContinuingClusterer):
    """Merge small groups of objects into a tree, cut it, and place all objects by their labels.

    The default method: it has no start to choose and the same answer for every seed as far as the sample is
    all objects; it takes clusters of equal and of very unequal sizes, and incomplete, weighted and soft
    ensembles. See `PCC` for memberships as the paper of evidence accumulation defines them.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Number of clusters. "auto": by `bigcons.choose_n_clusters`.
    weights : array of shape (n_partitions,) or None, default=None
        Numbers >= 0 by which each partition counts, as if it occurred that many times; 0 leaves it out. None:
        all count the same.
    resume : bool, default=True
        Whether to resume an interrupted solve to ``out``, with the same result as an uninterrupted one.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the sample; one seed gives the same bits on any engine and any number of workers.
    memory : str, int or None, default=None
        Memory budget such as "2GB"; a fit that would need more is refused before it starts.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_ : (n_objects,) int32, -1 for objects that no partition labeled
    memberships_ : (n_objects, n_clusters) float32, probabilities of the clusters by the labels of each object
    n_clusters_ : number of clusters with at least one object in ``labels_``
    trust_ : how far the labels can be trusted: see `bigcons.metrics.trust`. Not of soft clusterings
    chosen_tree_ : which tree was cut, "average" or "distinctness"; None from a start
    has_structure_ : whether some number of clusters stands out: see `bigcons.choose_n_clusters`; where the
        sample says enough of base clusters
    temperature_ : by what the evidence of the labels is multiplied, because partitions repeat each other
    objective_ : log-probability of the labels of all objects by the clusters of the sample
    history_, n_passes_

    Notes
    -----
    Up to 2,000 objects for 33 clusters, and 60 for each further one, form groups by the spectral embedding of
    their labels; of more than 500 labels of an object, by those of evenly spaced partitions. Two trees merge
    the groups: by average link of the locally weighted co-association, and by distinctness, how cleanly the
    partitions that separate two clusters do so. Both are cut, and the cut with the larger product of mean
    normalized mutual information with the partitions and mean distinctness is taken: see
    `bigcons.overlaps.tree`. Where a sample has fewer than 4 labels for each of many base clusters, groups are
    of all objects, three for each cluster, in the spectral embedding of `HBGF`, which takes up to 14 passes.
    All objects are then placed by naive Bayes on their labels, by the table of these clusters and once more
    by that of all objects. Memberships are the probabilities of that placement, an object itself left out,
    tempered by the share of partitions that would be as uncertain were they independent
    (`bigcons.metrics.trust`). Labels are read three times, for the sample, the table, and the results with
    all of ``trust_``, in O(n M K) time; O(B K) memory and some hundred MB for the sample.

    References
    ----------
    Huang, Wang and Lai (2018), *Locally weighted ensemble clustering*, IEEE Transactions on Cybernetics 48.
    Strehl and Ghosh (2002), *Cluster ensembles*, Journal of Machine Learning Research 3.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.ConsensusTree(n_clusters=2).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    """

    info: ClassVar[MethodInfo] = MethodInfo("Huang et al. 2018", "labels", soft=True, soft_input=True)

    def __init__(
        self,
        n_clusters: int | Literal["auto"] = 8,
        *,
        weights: Any = None,
        resume: bool = True,
        random_state: SeedLike = None,
        memory: str | float | None = None,
        out: str | os.PathLike[str] | None = None,
        client: object = None,
    ) -> None:
        super().__init__(
            n_clusters,
            n_init=1,
            max_iter=1,
            tol=0.0,
            resume=resume,
            random_state=random_state,
            memory=memory,
            out=out,
            client=client,
        )
        self.weights = weights

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        self.__dict__.pop("_problem", None)
        self._weights = Weights.given(self.weights, ensemble.offsets)
        counted = self._partition_weights()
        method = TreeStart(Placement(ensemble.offsets, self.n_clusters, self._weights))
        self._check_memory(ensemble, engine, method, in_memory=out is None and engine.shares_memory)
        survey = take_survey(ensemble, engine, seed, rows_for(self.n_clusters), counted)
        warn_of_dissent(survey, ensemble, counted, "leave them out, or give them weights= of 0")
        if not labeled_objects(observed(survey.sample, ensemble.offsets), counted).any():
            raise InvalidInputError(
                f"none of the {len(survey.sample)} sampled objects has a label; leave out those without any."
            )
        is_too_fine = not ensemble.is_soft and is_fine(
            ensemble, survey.sample, self.n_clusters, FEWEST_LABELS
        )
        if is_too_fine and self._start is None:
            name, n_groups = type(self).__name__, GROUPS_PER_CLUSTER * self.n_clusters
            check_embedding_plan(name, ensemble, engine, self.memory, n_groups)
            method = FineStart(method.placement)
        else:
            K = self.n_clusters
            sample = Sample.of(survey.sample, ensemble.offsets, self._weights, n_groups_for(K))
            told = self._judge_structure(ensemble, survey, sample, MOST_GROUPS)
            if told is not None and told.is_clear and told.n_clusters < K:
                warn_user(
                    f"the tree tells {told.n_clusters} clusters apart, fewer than n_clusters={K}: {told!r}.",
                    SurplusClustersWarning,
                )
            is_chosen = hasattr(self, "n_clusters_choice_")
            method = TreeStart(method.placement, self._judged, sample, is_chosen=is_chosen)
        if self._start is not None:
            method = ContinuedTree(method.placement, self._start, self._judged)
        self._run_passes(ensemble, engine, seed, out, survey, method)

    def _make_problem(self, ensemble: Ensemble, _survey: Survey) -> Placement:
        return Placement(ensemble.offsets, self.n_clusters, self._weights)

    def _memory_plans(self, ensemble: Ensemble, method: BestOfStarts, *, in_memory: bool) -> list[MemoryPlan]:
        n, B, K = ensemble.n_objects, ensemble.n_base_clusters, self.n_clusters
        (passes,) = super()._memory_plans(ensemble, method, in_memory=in_memory)
        tables = 8 * 8 * B * padded(K)  # to temper the evidence
        n_rows = min(n, rows_for(K))
        start = plan_bytes(ensemble, n_rows, max(n_groups_for(K), MOST_GROUPS), K)
        sample = 2 * label_bytes(ensemble, n_rows)
        trust = 2 * TRUST_ROW.itemsize
        return [
            passes._replace(
                held=passes.held + tables + sample + (trust * n if in_memory else 0),
                per_block=passes.per_block + 2 * trust * ensemble.chunk_rows,
                per_result=passes.per_result + (trust * ensemble.chunk_rows if in_memory else 0),
            ),
            MemoryPlan(4 * n + sample + start, block_label_bytes(ensemble), sample),
        ]

    def _placing_parts(self) -> dict[str, np.ndarray]:
        return {name: self._state[name] for name in _EVIDENCE}

    def _restore_placing(self, parts: Mapping[str, np.ndarray], offsets: np.ndarray, n_clusters: int) -> None:
        table = int(offsets[-1]), padded(n_clusters)
        shapes: dict[str, tuple[int, ...]] = {"rates": table, "without": table}
        shapes |= {"prior": (n_clusters,), "own_prior": (n_clusters,), "temperature": (1,)}
        shapes["support"] = (n_clusters,)
        if any(parts[name].shape != shape or parts[name].dtype != float for name, shape in shapes.items()):
            raise ValueError("arrays of other shapes")
        self._weights = Weights.given(self.weights, offsets)
        self._problem = Placement(offsets, n_clusters, self._weights)
        self._state = {name: parts[name] for name in _EVIDENCE}

    def _set_results(self, records: list[Record], start_objectives: list[float], *, converged: bool) -> None:
        super()._set_results(records, start_objectives, converged=converged)
        del self.start_objectives_, self.converged_  # there is one start, and one pass

    def _publish_winner(
        self, ensemble: Ensemble, engine: Engine, winner: Winner, survey: Survey, out: Output | None
    ) -> None:
        placement: Any = self._problem
        state = winner.state
        tree = int(state["tree"][0])
        self.chosen_tree_: str | None = None if tree < 0 else TREES[tree]
        self.temperature_: float = float(state["temperature"][0])

        def read(block: Block) -> Found:
            labels = ensemble.read(block.start, block.stop)
            placed = placement.place(state, labels, winner.carried(block), soft=True)
            return Found(placed.memberships, placed.trust if trusted else None, placed.stats)

        def collect(stats: Stats) -> None:
            total[:] = add_all(total, [stats]) if total else [stats]

        def tables(results: Results) -> tuple[Any, Any, float]:
            (stats,), numbers = total, np.flatnonzero(results.sizes)
            found = results.order[numbers]
            told = Told(
                *(numbers, results.sizes[numbers], stats["T"].T[found].astype(np.int64)),
                *(stats["totals"][2:][found], stats["agreed"][..., found], survey.sample),
                ClusterSupport(state["support"], state["divisions"]).take(found),
            )
            return *trust_tables(ensemble, told, engine), self.temperature_

        total: list[Stats] = []
        trusted = not ensemble.is_soft and can_weigh(ensemble, self.n_clusters)
        self._publish(
            *(ensemble, read, survey.unlabeled, out, engine),
            tables=tables if trusted else None,
            order=by_size(state["prior"]),
            collect=collect,
        )

    _states_probabilities: ClassVar[bool] = True
    """Memberships are the probabilities of clusters, by which `bigcons.metrics.trust` goes."""
