"""The clustering of least expected loss: moves of objects and merges of clusters, from cuts of trees."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from bigcons.errors import ConsensusWarning, warn_user
from bigcons.kernels.cluster_tables import in_whole_vectors, padded, summed_rows
from bigcons.kernels.least_loss import N_LEVELS, merge_costs, propose
from bigcons.methods.base import AUTO, MethodInfo
from bigcons.methods.embedding import check_embedding_plan
from bigcons.methods.pass_clusterer import PassClusterer
from bigcons.methods.tree import cut_of_all, survey_for_tree
from bigcons.metrics.ensemble import check_loss
from bigcons.run.engine import Engine
from bigcons.run.memory_plan import MemoryPlan, block_label_bytes, label_bytes
from bigcons.run.passes import BestOfStarts, Iterate, Method, Record, Run, State, Stats, Trial, Winner
from bigcons.run.results import Output
from bigcons.run.survey import start_rows
from bigcons.seeding import SeedLike
from bigcons.store.ensemble import Ensemble
from bigcons.trust.groups import (
    GROUPS_PER_CLUSTER,
    MOST_GROUPS,
    TREES,
    Sample,
    n_groups_for,
    plan_bytes,
    rows_for,
)
from bigcons.validation import check_int
from bigcons.weights import Weights, by_partition, counts_of

ROUNDING = 1e-12
"""A smaller difference of losses is rounding."""

NEVER, NOT_NOW, NOW = -1, 0, 1
"""When objects may move to a cluster of their own."""


class LossProblem(Method):
    """Moves in batches: a pass finds the best cluster of every object under fixed counts, a `Problem`.

    Moves that lower the loss one by one need not do so together. A pass therefore counts what nested shares
    of them change, drawn by the objects' labels; of these the one of least loss is taken, so that the loss
    never rises. If all raise it, the next pass tries smaller shares. Objects carry their cluster and the
    proposed move, because which share is taken is known only when all blocks have been counted.

    That ends: the loss is concave in how many of some equal rows move, so that if one lowers it, all of them
    do, and equal rows always move together.
    """

    name = "least loss"
    n_carried = 2
    carried_dtype = "<i4"
    lower_is_better = True

    def __init__(
        self, offsets: np.ndarray, n_clusters: int, loss: str, split_cost: float, weights: Weights | None
    ) -> None:
        self.offsets = offsets
        self.n_clusters = n_clusters
        self.squared: bool = loss == "binder"
        self.split_cost = split_cost
        self.weights = weights
        self.cuts: list[np.ndarray] = []

    # The loss of counts: see `bigcons.kernels.least_loss`

    def factors(self, T: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the factors v (M,) of the partitions by counts T (B, K), and what divides the loss."""
        n_seen = by_partition(T.sum(axis=1), self.offsets)
        weights = np.ones(n_seen.size) if self.weights is None else self.weights.partitions
        weights = weights / np.max(weights)
        return weights / np.maximum(n_seen - 1.0, 1.0) if self.squared else weights, float(weights @ n_seen)

    def valued(self, x: np.ndarray) -> np.ndarray:
        """Return F of counts."""
        return x * x if self.squared else x * np.log(np.maximum(x, 1.0))

    def grown(self, x: np.ndarray) -> np.ndarray:
        """Return ``F(x + 1) - F(x)`` of counts."""
        if self.squared:
            return 2.0 * x + 1.0
        return x * np.log1p(1.0 / np.maximum(x, 1.0)) + np.log(x + 1.0)

    def loss(self, T: np.ndarray) -> float:
        """Return the expected loss of counts T (B, K), infinite of none."""
        factors, total = self.factors(T)
        if not total:
            return float("inf")
        sizes, given = by_partition(T, self.offsets), self.valued(T.sum(axis=1))
        of_base = self.split_cost * given - 2.0 * self.valued(T).sum(axis=1)
        of_each = by_partition(of_base, self.offsets)
        of_each += (2.0 - self.split_cost) * self.valued(sizes).sum(axis=1)
        return float((factors * of_each).sum()) / total

    # Passes

    def cut_trees(self, sample: np.ndarray) -> None:
        """Set the clusters of a sample where each of the two trees over its groups is cut."""
        counts = None if self.weights is None else self.weights.partitions
        groups = Sample(sample, self.offsets, counts).groups(n_groups_for(self.n_clusters))
        cuts = [groups.trees[name].cut(self.n_clusters) for name in TREES]
        self.cuts = [np.append(cut, -1)[groups.groups].astype(np.int32) for cut in cuts]

    def start(self, labels: np.ndarray, _seed: int, number: int) -> tuple[State, np.ndarray]:
        """Return the clusters of the sample by one of the trees, and their state."""
        clusters = self.cuts[number]
        T, _ = counts_of(labels, self.offsets, clusters, self.n_clusters, self.weights)
        return self._state(T), np.stack([clusters, np.full_like(clusters, -1)], axis=1)

    def counted(self, labels: np.ndarray) -> np.ndarray:
        """Return labels with those of partitions of weight 0 missing."""
        return labels if self.weights is None else self.weights.counted(labels)

    def _state(self, T: np.ndarray, opening: int = NOT_NOW, number: int = 0, first_level: int = 0) -> State:
        """Return the state of pass ``number`` from counts T (B, K)."""
        sizes, (factors, total) = by_partition(T, self.offsets), self.factors(T)
        of_sizes = (2.0 - self.split_cost) * factors[:, None]
        of_cells = 2.0 * np.repeat(factors, np.diff(self.offsets))[:, None]

        def costs(sizes: np.ndarray, T: np.ndarray) -> np.ndarray:
            by_size = np.repeat(of_sizes * self.grown(sizes), np.diff(self.offsets), axis=0)
            return np.asarray(by_size - of_cells * self.grown(T))

        table = costs(sizes, T)
        own = table - costs(np.maximum(sizes - 1.0, 0.0), np.maximum(T - 1.0, 0.0))
        bias = np.where(T.any(axis=0), 0.0, np.inf)
        if opening == NOW:
            bias[np.argmax(np.isinf(bias))] = 0.0
        return {
            "T": T,
            "table": in_whole_vectors(table),
            "own": in_whole_vectors(own),
            "bias": bias,
            "codes": codes_of(T, number),
            "phase": np.array([opening, number, first_level]),
            "taken": np.array([N_LEVELS]),
            "renamed": np.arange(T.shape[1]),
            "loss": np.array([self.loss(T), ROUNDING * total]),
        }

    def state(self, T: np.ndarray, _sizes: np.ndarray) -> State:
        """Return the state from which all objects join the clusters with counts T (B, K)."""
        state = self._state(np.ascontiguousarray(T[:, T.any(axis=0)]), NEVER)
        return {**state, "T": np.zeros_like(state["T"]), "loss": np.array([np.inf, 0.0])}

    def for_all(self, state: State) -> State:
        """Return the state from which all objects join the clusters of a sample."""
        return self.state(state["T"], np.empty(0))

    def clusters(self, state: State, carried: np.ndarray) -> np.ndarray:
        """Return the clusters (rows,) int32 of objects from what they carry, -1 of those in none."""
        before, moves = carried[:, 0], carried[:, 1]
        moved = (moves >= 0) & (moves % N_LEVELS >= state["taken"][0])
        found = np.where(moved, moves // N_LEVELS, before)
        return np.append(state["renamed"], -1).astype(np.int32)[found]

    def block_stats(
        self, state: State, labels: np.ndarray, carried: np.ndarray | None = None
    ) -> tuple[Stats, np.ndarray]:
        """Propose moves of the objects of a block, and count what they change."""
        n, width = len(labels), padded(state["bias"].size)
        current = np.full(n, -1, np.int32) if carried is None else self.clusters(state, carried)
        changes, totals = np.zeros((N_LEVELS, self.offsets[-1], width)), np.zeros(1 + N_LEVELS)
        moves = np.empty(n, np.int32)
        propose(
            *(self.counted(labels), self.offsets, state["table"], state["own"], state["bias"]),
            *(float(state["loss"][1]), state["codes"], int(state["phase"][2])),
            *(current, moves, changes, totals),
        )
        return {"changes": changes, "totals": totals}, np.stack([current, moves], axis=1)

    def finish(self, state: State, stats: Stats) -> tuple[State, Record]:
        """Take the share of the moves that leaves the least loss, or merge clusters if none would move."""
        T, least = state["T"], float(state["loss"][0])
        taken, best, after = N_LEVELS, T, T.copy()
        n_better, n_tried = stats["totals"][0], stats["totals"][1:]
        for level in reversed(range(N_LEVELS)):
            after += stats["changes"][level][:, : T.shape[1]]
            if n_tried[level] and (value := self.loss(after)) < least - ROUNDING / 2:
                taken, least, best = level, value, after.copy()
        opening, number, first_level = state["phase"].tolist()
        renamed, n_merged, left = np.arange(T.shape[1]), 0, 1.0
        if taken < N_LEVELS:
            opening, first_level = min(opening, NOT_NOW), 0
        elif n_better:  # too many move, or by chance none
            first_level = max(first_level + (N_LEVELS if n_tried.any() else -N_LEVELS), 0)
        else:
            best = T.copy()
            n_merged = self._merge(best, renamed)
            first_level = 0
            if n_merged:
                least, opening = self.loss(best), min(opening, NOT_NOW)
            elif opening == NOT_NOW and not T.any(axis=0).all():
                opening = NOW
            else:
                left = 0.0
        following = self._state(best, opening, number + 1, first_level)
        record = {
            "objective": least,
            "moved": float(n_tried[taken:].sum()),
            "merged": float(n_merged),
            "n_clusters": float(np.count_nonzero(best.any(axis=0))),
            "left": left,
        }
        return {**following, "taken": np.array([taken]), "renamed": renamed}, record

    def _merge(self, T: np.ndarray, renamed: np.ndarray) -> int:
        """Merge clusters in T (B, K), in place, as long as that lowers the loss; return how often."""
        K, (factors, total) = T.shape[1], self.factors(T)
        costs, n_merged = np.empty((K, K)), 0
        while True:
            merge_costs(T, self.offsets, factors, 2.0 - self.split_cost, self.squared, costs)
            a, b = divmod(int(np.argmin(costs)), K)
            if costs[a, b] >= -ROUNDING * total:
                return n_merged
            T[:, a] += T[:, b]
            T[:, b] = 0.0
            renamed[renamed == b] = a
            n_merged += 1

    def is_settled(self, _previous: Record | None, record: Record, _tol: float) -> bool:
        """Return whether no move and no merge is left to try."""
        return not record["left"]

    def place(self, state: State, labels: np.ndarray, carried: np.ndarray | None = None) -> np.ndarray:
        """Return the clusters of a block; new objects join those where they raise the loss least."""
        if carried is not None:
            return self.clusters(state, carried)
        costs, _ = summed_rows(self.counted(labels), self.offsets, state["table"])
        return (costs[:, : state["bias"].size] + state["bias"]).argmin(axis=1)


def codes_of(T: np.ndarray, number: int) -> np.ndarray:
    """Return codes (B,) uint64 of base clusters for a pass, by their counts whatever names clusters have."""
    first, second, step = (np.uint64(x) for x in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x9E3779B97F4A7C15))

    def mixed(x: np.ndarray) -> np.ndarray:
        x = (x ^ (x >> np.uint64(30))) * first
        x = (x ^ (x >> np.uint64(27))) * second
        return x ^ (x >> np.uint64(31))

    counts = mixed(T.astype(np.uint64) + step).sum(axis=1, dtype=np.uint64)
    return mixed(counts + np.full(1, number, np.uint64) * step)


class LossStart(BestOfStarts):
    """The passes from the better of two trees on the sample, or from groups of all objects."""

    def __init__(self, problem: LossProblem, *, fine: bool) -> None:
        super().__init__(problem)
        self.fine = fine

    def n_held(self, n_init: int) -> int:
        """Return the most starts on the sample that are held at once."""
        return 0 if self.fine else super().n_held(n_init)

    def start(self, run: Run) -> tuple[Trial, list[float]]:
        """Return the clusters of the sample, or of groups of all objects where it says too little."""
        problem: Any = self.method
        if self.fine:
            (T, sizes), _ = cut_of_all(run, problem.n_clusters, problem.weights)
            return Trial({}, problem.state(T, sizes), [], carries=False), []
        problem.cut_trees(run.sample)
        found = super().start(run)
        problem.cuts = []
        return found

    def winner(self, run: Run, at: Iterate[Trial]) -> Winner:
        """Return the clusters after the last pass, with its moves."""
        return super().winner(run, at)._replace(state=at.state.following)


class LeastLoss(PassClusterer):
    """Search for the clustering of least expected loss, as if the partitions were draws of the true one.

    The point estimate of Bayesian cluster analysis: of the variation of information or of Binder's loss, to
    any of the partitions in the mean. Of other ensembles it is the clustering nearest to all partitions.

    Parameters
    ----------
    n_clusters : int or "auto", default="auto"
        Maximum number of clusters: the loss decides how many there are. "auto": as many as the partition of
        most clusters has, at most 133.
    loss : {"vi", "binder"}, default="vi"
        "vi": the variation of information. "binder": the share of pairs of objects that one of both
        clusterings joins and the other separates, which has more and smaller clusters.
    split_cost : float, default=1.0
        What it costs to separate objects that belong together, from 0 to 2, if to join what belongs apart
        costs 2 minus that. 1: the usual losses; more gives fewer clusters. See `metrics.expected_loss`.
    weights : array of shape (n_partitions,) or None, default=None
        Numbers >= 0 by which each partition counts, as if it occurred that many times; 0 leaves it out. None:
        all count the same.
    max_iter : int, default=100
        Maximum number of passes over all objects, and of those on the sample.
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
    objective_ : the expected loss, as `metrics.expected_loss` has it; no pass raises it
    history_, n_passes_, n_clusters_, converged_

    Notes
    -----
    A sample of 4,096 objects, or more for many clusters, is grouped and merged by the two trees of
    `ConsensusTree`. From the cut of each into the maximum number of clusters, objects move to the cluster
    that lowers the loss most, also to one of their own, until none does; then the two clusters are merged
    that lower it most, and so on. A finer start ends lower: on 6 ensembles cuts into the maximum number
    ended lowest of all, or within .002, where those into half as many ended up to .1 higher. The better of
    both searches goes on with all objects, which join the clusters where they raise the loss least. Passes
    move them in batches and end where no move of an object and no merge lowers the loss.

    A single cluster has the least loss if partitions disagree much, sooner by "vi" than by "binder"; a
    ConsensusWarning says so, unless one cluster was asked for or no partition has more.

    Of at most as many objects as the sample has, the result is a local optimum of moves, to clusters of their
    own too, and merges. O(n M K) time a pass, mostly fewer than ten, with Binder's loss some tens; O(B K)
    memory and 16 bytes an object. The trees of many clusters take longest: of 133, half a minute. Where
    samples say too little of base clusters, groups are of all objects, as for `ConsensusTree`.

    References
    ----------
    Binder (1978), *Bayesian cluster analysis*, Biometrika 65.
    Wade and Ghahramani (2018), *Bayesian cluster analysis: point estimation and credible balls*, Bayesian
    Analysis 13.
    Dahl, Johnson and Müller (2022), *Search algorithms and loss functions for Bayesian clustering*, Journal
    of Computational and Graphical Statistics 31.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.LeastLoss().fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    >>> round(model.objective_, 3)
    0.118
    """

    info: ClassVar[MethodInfo] = MethodInfo("Wade and Ghahramani 2018", "labels")
    chooses: ClassVar[bool] = True

    def __init__(
        self,
        n_clusters: int | Literal["auto"] = AUTO,
        *,
        loss: str = "vi",
        split_cost: float = 1.0,
        weights: Any = None,
        max_iter: int = 100,
        resume: bool = True,
        random_state: SeedLike = None,
        memory: str | float | None = None,
        out: str | os.PathLike[str] | None = None,
        client: object = None,
    ) -> None:
        super().__init__(
            n_clusters,
            n_init=len(TREES),
            max_iter=max_iter,
            tol=0.0,
            resume=resume,
            random_state=random_state,
            memory=memory,
            out=out,
            client=client,
        )
        self.loss = loss
        self.split_cost = split_cost
        self.weights = weights

    @contextmanager
    def _n_clusters_chosen(self, ensemble: Ensemble, _engine: Engine, _seed: int) -> Iterator[None]:
        asked: Any = self.n_clusters
        if isinstance(asked, str):
            self.n_clusters: int = min(int(ensemble.n_clusters.max()), MOST_GROUPS // GROUPS_PER_CLUSTER)
        try:
            yield
        finally:
            self.n_clusters = asked

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        check_int("max_iter", self.max_iter)
        self._solved, self._is_limit = None, True
        self._weights = Weights.given(self.weights, ensemble.offsets)
        problem, counted = self._method(ensemble), self._partition_weights()
        plan = partial(self._memory_plan, LossStart(problem, fine=False))
        self._check_memory_plan(plan, ensemble, engine, out, self.memory)
        survey, fine = survey_for_tree(
            ensemble, engine, seed, self._n_sampled(ensemble), self.n_clusters, counted
        )
        if fine:
            n_groups = GROUPS_PER_CLUSTER * self.n_clusters
            check_embedding_plan(type(self).__name__, ensemble, engine, self.memory, columns=n_groups)
        self._run_passes(ensemble, engine, seed, out, survey, LossStart(problem, fine=fine))

    def _set_results(self, records: list[Record], start_objectives: list[float], *, converged: bool) -> None:
        super()._set_results(records, start_objectives, converged=converged)
        del self.start_objectives_  # the two starts are no choice of the user's
        if self.n_clusters > 1 and records[-1]["n_clusters"] == 1 and self.objective_ > ROUNDING:
            finer = "loss='binder', or " if self.loss == "vi" else ""
            warn_user(
                "LeastLoss found one cluster: of all it tried, it has the least expected loss "
                f"({self.objective_:.3g}, loss={self.loss!r}), as is common where partitions disagree much. "
                f"For more clusters use {finer}a split_cost below {self.split_cost:g}, or a method that "
                "makes as many as are asked for, such as ConsensusTree.",
                ConsensusWarning,
            )

    def _method(self, ensemble: Ensemble) -> LossProblem:
        loss, split_cost = check_loss(self.loss, self.split_cost)
        return LossProblem(ensemble.offsets, self.n_clusters, loss, split_cost, self._weights)

    def _n_sampled(self, ensemble: Ensemble) -> int:
        K = self.n_clusters
        return max(start_rows(ensemble, K), min(ensemble.n_objects, rows_for(n_groups_for(K))))

    def _memory_plans(self, ensemble: Ensemble, method: BestOfStarts, *, in_memory: bool) -> list[MemoryPlan]:
        K, n_rows = self.n_clusters, self._n_sampled(ensemble)
        passes, starts = super()._memory_plans(ensemble, method, in_memory=in_memory)
        changes = 8 * N_LEVELS * ensemble.n_base_clusters * padded(K)
        groups = plan_bytes(ensemble, n_rows, n_groups_for(K), K) + 2 * label_bytes(ensemble, n_rows)
        return [
            passes._replace(
                held=passes.held + 2 * changes,
                per_block=passes.per_block + changes,
                per_result=passes.per_result + changes,
            ),
            starts._replace(
                held=starts.held + changes + groups,
                per_block=starts.per_block + changes + block_label_bytes(ensemble),
            ),
        ]
