"""The consensus tree: groups of a sample merged into clusters, and all objects placed by naive Bayes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np

from bigcons.errors import InvalidInputError, SurplusClustersWarning, warn_user
from bigcons.kernels.cluster_tables import padded
from bigcons.memory import Block
from bigcons.methods import incidence
from bigcons.methods.base import ConsensusClusterer, MethodInfo
from bigcons.progress import Progress
from bigcons.run import passes
from bigcons.run.engine import Engine, fold, one_thread
from bigcons.run.passes import Run, Stats
from bigcons.run.results import BlockResult, Output, Results, by_size
from bigcons.run.survey import MemoryPlan, Survey, block_label_bytes, take_survey, warn_of_dissent
from bigcons.store.clusters import LEAST_OBJECTS, TRUST_ROW, ClusterTree, least_objects
from bigcons.store.ensemble import Ensemble
from bigcons.trust import groups as grouping
from bigcons.trust.confidence import TrustSums, can_weigh
from bigcons.trust.groups import Groups, Sample
from bigcons.trust.n_clusters import Search
from bigcons.trust.placement import ClusterSupport, Placement, independent_share
from bigcons.validation import check_int
from bigcons.weights import Weights, counts_of


@dataclass(eq=False)
class TreePass(passes.Passes):
    """The pass over all objects that follows from the first clusters.

    It places all objects by the table of the first clusters, unless they are in clusters, and counts the
    table anew; results, and how far to trust them, are by that. The state is the placement, if objects are
    not in clusters yet, and the ``tree`` that was cut; after the pass also ``divisions`` (K, K), how far
    halves of the partitions tell two clusters apart: see `ClusterSupport`. Of clusters that the pass leaves
    fewer than ``min_size`` objects, results have none.
    """

    name = "tree"

    first: Callable[[Run], First]
    offsets: np.ndarray
    n_clusters: int
    weights: Weights | None
    search: Search | None = None
    min_size: int = 0

    def start(self, run: Run) -> tuple[passes.State, list[float]]:
        """Return the first clusters; if those of all objects are known, they have been written."""
        counts, tree = self.first(run)
        parts = {} if counts is None else Placement.fit(*counts, self.offsets, self.weights).parts()
        return {**parts, "tree": np.array(tree)}, []

    def placement_of(self, state: passes.State) -> Placement:
        """Return the placement of a state."""
        return Placement.restored(state, self.offsets, self.n_clusters, self.weights)

    def one_pass(self, run: Run, iterate: passes.Iterate, listener: Progress) -> passes.Step:
        """Place all objects, and return the evidence by all of them.

        It is tempered because partitions of the same data repeat each other. The support of the clusters is
        measured in the sample, which halves of the partitions have grouped.
        """
        K, offsets, weights = self.n_clusters, self.offsets, self.weights
        data, arrays, n = run.data, run.arrays, run.data.n_objects
        first = self.placement_of(iterate.state) if "rates" in iterate.state else None

        def count_block(block: Block) -> Stats:
            labels = data.read(block.start, block.stop)
            if first is not None:
                clusters, _, _, stats = first.place(labels, None)
            else:
                clusters = arrays.read(0, block)[:, 0]
                T, sizes = counts_of(labels, offsets, clusters, K, weights)
                stats = {"T": T, "sizes": sizes, "totals": np.zeros(2)}
            arrays.write(1, block, clusters[:, None])
            return stats

        total = fold(run.engine, run.blocks, count_block, passes.add_stats, progress=listener)
        is_kept = total["sizes"] >= self.min_size
        is_kept[total["sizes"].argmax()] = True
        placement = Placement.fit(total["T"], np.where(is_kept, total["sizes"], 0), offsets, weights)
        start = None
        if len(run.sample) == n:
            start = np.concatenate([arrays.read(1, block)[:, 0] for block in run.blocks])
        placed = placement.place(run.sample, start)
        clusters = placed.clusters if start is None else np.where(np.append(is_kept, True)[start], start, -1)
        log_likelihood, n_moved = total["totals"].tolist()
        if first is None:
            log_likelihood = float(placed.stats["totals"][0]) * n / len(run.sample)
        table = np.ascontiguousarray(total["T"][:, :K].T)
        rates = np.ascontiguousarray(placement.rates[:, :K])
        rate_pair = rates, rates + placement.without[:, :K]
        counts = None if weights is None else weights.partitions
        share = independent_share(run.sample, clusters, offsets, table, *rate_pair, counts)
        placement, divisions = replace(placement, temperature=share), np.full((K, K), np.nan)
        if self.search is not None:
            sample = self.search.sample.all_labels
            sure = placement.place(sample, start if len(sample) == n else None, soft=True)
            if sure.trust.size:
                confidence = sure.trust["confidence"]
                support, divisions = self.search.halves.of_clusters(sure.clusters, confidence, K)
                placement = replace(placement, support=support)
        state = {**placement.parts(), "tree": iterate.state["tree"], "divisions": divisions}
        return passes.Step(state, {"objective": log_likelihood, "moved": n_moved}, is_settled=True)


First = tuple[passes.Counts | None, str]
"""Objects (B, K) and sizes (K,) of the clusters of a sample, None of all objects; the tree that was cut."""


class ConsensusTree(ConsensusClusterer):
    """Merge small groups of objects into a tree, cut it, and place all objects by their labels.

    The default method: it has no start to choose, and gives the same answer for every seed as long as the
    sample contains all objects. It takes clusters of equal and of very unequal sizes, and incomplete,
    weighted and soft ensembles. See `PCC` for memberships as the paper of evidence accumulation defines them.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Number of clusters. "auto": by `bigcons.choose_n_clusters`.
    weights : array of shape (n_partitions,) or None, default=None
        Numbers >= 0 by which each partition counts, as if it occurred that many times; 0 leaves it out. None:
        all count the same.
    min_size : int or None, default=None
        Fewest objects in a cluster. Smaller clusters join others, and the tree is cut further if that gives
        as many large ones as are asked for. Sizes are counted before the last placement, which may move a few
        objects.
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
    chosen_tree_ : the source of the clusters: the tree "average" or "distinctness", or the "spectrum"
    has_structure_ : whether some number of clusters stands out: see `bigcons.choose_n_clusters`. None if
        unknown: for a single cluster, if the sample has too few labels of many base clusters, or if it has
        fewer than 5 objects for each cluster
    n_told_apart_ : the number of clusters that the labels support, if one stands out and ``n_clusters`` is
        given
    temperature_ : factor that multiplies the evidence of the labels, because partitions repeat each other
    objective_ : log-probability of the labels of all objects by the clusters of the sample
    history_, n_passes_

    Notes
    -----
    A sample of 2,000 objects (60 more for each cluster beyond 33), half of it drawn so that small base
    clusters are represented, forms groups in the spectral embedding of its labels, from at most 500 evenly
    spaced partitions. Two trees merge the groups: by average link of the locally weighted co-association, and
    by distinctness, which says how cleanly the partitions that separate two clusters do so. Cuts of both
    trees (of average link, into clusters of at least .35 of their mean size, if there are as many) and
    spherical k-means in the embedding are compared by the product of mean normalized mutual information with
    the partitions and mean distinctness: see "Methods" in the documentation. "auto" cuts the better tree,
    which is ``tree_``. All objects are then placed by naive Bayes, first by the table of the sample, then by
    the table of all objects. Memberships are the probabilities of the second placement, in which an object
    does not count itself, tempered because partitions repeat each other (`bigcons.metrics.trust`).

    If the sample has fewer than 4 labels for each of many base clusters, groups are of all objects, in the
    spectral embedding of `HBGF`, which takes up to 14 passes. Clusters of fewer than 5 objects each are not
    judged, and refused for some thousand objects: use `EACAverage`, which finds very many small clusters in
    linear time if base clusters are as small. Otherwise labels are read three times, for the sample, the
    table, and the results with ``trust_``, in O(n M K) time, with O(B K) memory and some hundred MB for the
    sample.

    References
    ----------
    Huang, Wang and Lai (2018), *Locally weighted ensemble clustering*, IEEE Transactions on Cybernetics 48.
    Strehl and Ghosh (2002), *Cluster ensembles*, Journal of Machine Learning Research 3.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = 3 * [[0, 0, 1, 0]] + [[0, 2, -1, 0]] + 3 * [[1, 1, 0, 1]] + [[1, -1, 0, 1]]
    >>> model = bc.ConsensusTree(n_clusters=2).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1, 1], dtype=int32)
    """

    chooses: ClassVar[bool] = True
    _trees: ClassVar[tuple[str, ...]] = grouping.TREES
    """The trees that may be cut."""

    info: ClassVar[MethodInfo] = MethodInfo("Huang et al. 2018", "labels", soft=True, soft_input=True)

    weights: Any = None
    min_size: int | None = None

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        K, offsets = self.n_clusters, ensemble.offsets
        weights = self._weights = Weights.parse(self.weights, offsets)
        min_size = 0 if self.min_size is None else check_int("min_size", self.min_size)
        self._check_memory_plan(self._memory_plan, ensemble, engine, out, self.memory)
        n = ensemble.n_objects
        products = ensemble.n_partitions * min(grouping.n_groups_for(K), n) ** 2
        if not ensemble.is_soft and n < LEAST_OBJECTS * K and products > grouping.MOST_PRODUCTS:
            raise InvalidInputError(
                f"n_clusters={K:,} of {n:,} objects are too many for a tree of groups, with fewer than "
                f"{LEAST_OBJECTS} objects each; use eac-average, which merges single objects.",
                parameter="n_clusters",
            )
        counts = None if weights is None else weights.partitions
        n_groups = grouping.n_groups_for(K)
        survey = take_survey(ensemble, engine, seed, grouping.rows_for(n_groups), counts, is_balanced=True)
        warn_of_dissent(survey, ensemble, counts, "leave them out, or give them weights= of 0")
        # whether the sample says too little of the base clusters
        is_too_fine = survey.undersamples(ensemble, K, grouping.FEWEST_LABELS)
        sample = None if is_too_fine else Sample(survey.sample, offsets, counts, times=survey.times)
        choice = self._judge_sample(survey.rows, sample)
        first: Callable[[Run], First] = partial(self._cut_of_all, survey.sample)
        if sample is None:
            columns = grouping.GROUPS_PER_CLUSTER * K
            incidence.check_overlaps_plan(self, ensemble, engine, columns=columns, embedded=True)
        else:
            if choice is not None and choice.is_clear:
                self.n_told_apart_: int = choice.n_clusters
                self._is_limit = choice.n_clusters < K  # which one warning says
            if not self._is_local:
                ones = np.ones(ensemble.n_base_clusters)
                sample = Sample(survey.sample, offsets, counts, ones, survey.times)
            if self._is_local and self._search is not None:
                groups, sample = self._search.groups, self._search.sample
            else:
                groups = sample.groups(n_groups, at_any_scale=True)
            first = partial(self._cut_sample, sample, groups)
        method = TreePass(first, offsets, K, weights, None if is_too_fine else self._search, min_size)
        uniform = survey.sample[survey.is_uniform]
        with passes.open_workspace(out, engine, 1, "<i4") as workspace:
            run = Run(ensemble, ensemble.blocks(), engine, seed, 1, 0.0, uniform, *workspace)
            end = passes.run_passes(run, method)
            (record,) = end.records
            self._note_pass(record["objective"])
            self.history_["moved"] = [record["moved"]]
            self.chosen_tree_: str = str(end.state["tree"])
            placement = method.placement_of(end.state)
            self._parts = placement.parts()
            self.temperature_: float = placement.temperature
            if self._search is not None and hasattr(self, "tree_") and self.tree_.is_sampled:
                # the objects of a leaf, now that the sizes of the clusters are known
                clusters = placement.place(self._search.sample.all_labels, None).clusters + 1
                in_sample = np.maximum(np.bincount(clusters, minlength=K + 1), 1)
                times = np.append(0.0, np.exp(placement.prior)) / in_sample
                leaf_sizes = np.bincount(self._search.groups.groups + 1, times[clusters])[1:]
                objects = leaf_sizes * (self.tree_.objects.sum() / leaf_sizes.sum())
                self.tree_: ClusterTree = replace(self.tree_, objects=objects)
            self._publish_placed(run, placement, end.state["divisions"], survey, out)
        words = []
        if self.n_clusters_ < K:
            least = f" (others would have fewer than {min_size:,})" if min_size else ""
            words += [f"only {self.n_clusters_:,} of n_clusters={K:,} clusters have objects{least}"]
        if self._is_limit:
            claim = f"halves of the partitions confirm {self.n_told_apart_:,} of n_clusters={K:,} clusters"
            words += [f"{claim}; more may be real, but these partitions do not show it"]
        if words:
            warn_user(", and ".join(words) + ".", SurplusClustersWarning)

    def _cut_sample(self, sample: Sample, groups: Groups, run: Run) -> First:
        """Return clusters of a sample, cut from its trees; a chosen number has the cut of its choice.

        Where some of them win no object of the sample, or fewer than ``min_size`` objects by it, more are
        cut, up to twice as many, and the ones that win enough are returned. A chosen number is not cut
        further for its size.
        """
        K, is_chosen, offsets = self.n_clusters, hasattr(self, "n_clusters_choice_"), run.data.offsets
        labeled, n = (sample.labels, sample.offsets, sample.counts), run.data.n_objects
        min_size = (self.min_size or 0) * len(sample.all_labels) / n
        least = max(grouping.fewest_objects(len(sample.all_labels), K), math.ceil(min_size))
        is_fixed = self._is_local and not is_chosen
        share = grouping.LEAST_SHARE if is_fixed else 0.0
        if is_chosen:
            least = least_objects(groups.sizes)
        most_cut = K if is_chosen and min_size else max(min(2 * K, len(groups.sizes)), K)
        is_whole, n_best = len(sample.all_labels) == n, 0
        for n_cut in range(K, most_cut + 1):
            cut = groups.cut(n_cut, least, self._trees, share)
            if is_fixed and (divided := sample.divide(n_cut)) is not None:
                cut = max(cut, divided, key=attrgetter("merit"))
            # a tree merges groups of objects that err with each other, or all with one of the clusters
            clusters = grouping.most_probable(*labeled, cut.labels, left_out=True)
            T, sizes = counts_of(sample.all_labels, offsets, clusters, n_cut, self._weights, sample.times)
            placement = Placement.fit(T, sizes, offsets, self._weights)
            placed = placement.place(sample.all_labels, clusters if is_whole else None).clusters
            votes = np.bincount(placed + 1, sample.times, n_cut + 1)[1:]
            is_winning = votes >= max(min_size, np.finfo(float).tiny)
            is_winning[votes.argmax()] = True
            winning = np.flatnonzero(is_winning)
            if n_best < winning.size <= K:
                n_best, tree, table, best_sizes = winning.size, cut.tree, T[:, winning], sizes[winning]
                chosen = np.where(np.isin(clusters, winning), np.searchsorted(winning, clusters), -1)
            if n_best == K:
                break
        if not is_whole:
            return (np.pad(table, ((0, 0), (0, K - n_best))), np.pad(best_sizes, (0, K - n_best))), tree
        for block in run.blocks:
            run.arrays.write(0, block, chosen[block.start : block.stop, None].astype(np.int32))
        return None, tree

    def _cut_of_all(self, sample: np.ndarray, run: Run) -> First:
        """Return clusters of all objects, merged from groups of their embedding.

        For fine base clusters, of which a sample says too little; all count as equally reliable.
        """
        offsets, K, weights = run.data.offsets, self.n_clusters, self._weights
        counts = np.ones(offsets.size - 1) if weights is None else weights.partitions
        arguments = run.data, run.engine, grouping.GROUPS_PER_CLUSTER * K, weights
        embedding = incidence.bipartite_embedding(*arguments, more_objects=incidence.MORE_OBJECTS)
        rows, labeled = embedding.rows_of(sample)
        with one_thread(user_api="blas"):
            groups = grouping.nearest_pivots(rows[labeled])
            centers = incidence.one_hot(groups, int(np.max(groups)) + 1).T @ rows[labeled]
            centers /= np.bincount(groups)[:, None]
        group_counts, sizes = incidence.count_nearest(run, embedding, centers, len(centers), weights)
        content = np.ascontiguousarray(group_counts.T), offsets, counts, np.ones(len(group_counts))
        cluster_groups = Groups(groups, np.bincount(groups), *content, *grouping.merge_groups(*content))
        cut = cluster_groups.cut(K, trees=self._trees)
        indicators = incidence.one_hot(cut.clusters, K)
        return (group_counts @ indicators, sizes @ indicators), cut.tree

    def _publish_placed(
        self, run: Run, placement: Placement, divisions: np.ndarray, survey: Survey, out: Output | None
    ) -> None:
        """Publish the objects in the clusters in which they are placed, and how far to trust that."""
        ensemble, arrays = run.data, run.arrays
        has_trust = can_weigh(ensemble, self.n_clusters)

        def read(block: Block) -> BlockResult:
            labels = ensemble.read(block.start, block.stop)
            placed = placement.place(labels, arrays.read(1, block)[:, 0], soft=True)
            return BlockResult(placed.memberships, placed.trust if has_trust else None, placed.stats)

        def tables(results: Results) -> tuple[Any, Any, float]:
            stats, numbers = results.total, np.flatnonzero(results.sizes)
            indices = results.order[numbers]
            sums = TrustSums(
                values=numbers,
                sizes=results.sizes[numbers],
                table=stats["T"].T[indices].astype(np.int64),
                confidence=stats["confidence"][indices],
                agreements=stats["agreements"][..., indices],
                sample=run.sample,
                support=ClusterSupport(placement.support[indices], divisions[np.ix_(indices, indices)]),
            )
            return *sums.tables(ensemble), placement.temperature

        self._publish(
            *(ensemble, read, survey.unlabeled, out, run.engine),
            tables=tables if has_trust else None,
            order=by_size(placement.prior),
            add=passes.add_stats,
        )

    def _memory_plan(self, ensemble: Ensemble, engine: Engine, *, in_memory: bool) -> MemoryPlan:
        """Return the plan of the passes, or of the groups of the sample if they need more."""
        n, B, K, rows = ensemble.n_objects, ensemble.n_base_clusters, self.n_clusters, ensemble.chunk_rows
        state, tables = 8 * B * (K + 8), 8 * 8 * B * padded(K)  # tables: to temper the evidence
        result = 4 * K + 2 * TRUST_ROW.itemsize  # memberships, and how far to trust the labels, twice
        n_rows = min(n, grouping.rows_for(grouping.n_groups_for(K)))
        sample = 2 * n_rows * ensemble.row_bytes
        start = grouping.plan_bytes(ensemble, n_rows, min(grouping.n_groups_for(K), n_rows), K)
        pass_plan = MemoryPlan(
            held=(n * (12 + result) if in_memory else 0) + (4 * state + tables + sample),
            per_block=block_label_bytes(ensemble) + rows * (16 + 2 * result) + 2 * state,
            per_result=state + rows * ((result if in_memory else 0) + 8),
        )
        groups = MemoryPlan(sample + start, block_label_bytes(ensemble), sample)
        return max(pass_plan, groups, key=lambda plan: plan.n_bytes(engine, ensemble))

    def _placer(self, parts: Mapping[str, np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
        offsets = self._recoding.offsets
        return Placement.restored(parts, offsets, self._n_columns, self._weights).memberships

    _is_local: ClassVar[bool] = True
    """Whether base clusters of a sample count by their reliability."""
    _states_probabilities: ClassVar[bool] = True
    """Memberships are the probabilities of clusters, by which `bigcons.metrics.trust` goes."""
