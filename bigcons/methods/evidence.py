"""Methods that compare all pairs of objects, or of distinct label rows: evidence accumulation (Fred and Jain
2005), furthest consensus (Nguyen and Caruana 2007) and dissimilarity increments (Aidos and Fred).
"""

from __future__ import annotations

import logging
from contextlib import closing
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bigcons.coassociation import counts as agreement
from bigcons.coassociation.increments import did_matrix
from bigcons.errors import InvalidInputError
from bigcons.memory import N_SAMPLED, TILE_ROWS, Block, DataBudget, row_blocks
from bigcons.methods.base import ConsensusClusterer, MethodInfo
from bigcons.methods.incidence import weights_of
from bigcons.methods.tree import ConsensusTree
from bigcons.progress import progress
from bigcons.run.engine import Engine, map_with_progress
from bigcons.run.results import Output
from bigcons.run.survey import MemoryPlan, block_label_bytes, data_budget, take_survey
from bigcons.seeding import generator
from bigcons.store.ensemble import Ensemble
from bigcons.trust.groups import AVERAGE
from bigcons.validation import check_choice
from bigcons.weights import Weights, counted_labels, counts_of, incidence_of

logger: logging.Logger = logging.getLogger("bigcons")

LINKAGES = ("single", "complete", "average", "ward")  # the position of each is its number in the kernel


class Evidence(ConsensusClusterer):
    """Base of evidence accumulation by linkage: what `EAC` does, by the ``linkage`` of a class."""

    linkage: ClassVar[str]
    info: ClassVar[MethodInfo] = MethodInfo(
        "Fred and Jain 2005", "co-association", missing="c/N", out_of_core=False
    )

    normalize: str = "observed"
    weights: Any = None
    criterion: str = "n_clusters"
    ties: str = "lowest"

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        check_choice("linkage", self.linkage, LINKAGES)
        check_choice("normalize", self.normalize, agreement.NORMALIZATIONS)
        check_choice("criterion", self.criterion, ("n_clusters", "lifetime"))
        check_choice("ties", self.ties, ("lowest", "random"))
        budget = data_budget(self.memory, engine, ensemble)
        weights = weights_of(self, ensemble, engine)
        survey = take_survey(ensemble, engine, seed, 0, None if weights is None else weights.partitions)
        self._is_limit = self.criterion == "lifetime"
        remedy = "use eac-groups or pcc, which read the labels block by block"
        rows = unique_rows(ensemble, engine, budget=budget, remedy=remedy, weights=weights)
        n_rows = len(rows.labels)
        logger.info("%s distinct rows of %s objects", f"{n_rows:,}", f"{ensemble.n_objects:,}")
        within = _within(rows, self.normalize, weights)
        if self.ties == "lowest":
            # by how many objects share base clusters with a row, then by how many share some with these
            times = np.ones(ensemble.n_partitions) if weights is None else weights.partitions
            overlap = _summed_over_clusters(rows.labels, times, rows.weights)
            order = np.lexsort((-_summed_over_clusters(rows.labels, times, rows.weights * overlap), -overlap))
        else:
            order = generator(seed, "eac.ties").permutation(n_rows)
        labels = rows.labels[order]
        if self.linkage == "single" and weights is None:
            merges = single_link(labels, self.normalize)
        else:
            # single linkage holds distances if weighed
            remedy = "use eac-groups or pcc" if weights is not None else "use eac-groups, eac-single or pcc"
            # of each entry in flight the counts, the quotient, the distance and its position
            n_bytes, is_sparse = 50 * min(max(agreement.PAIRS_PER_TASK, n_rows), n_rows**2), False
            n_bytes = 4 * n_rows * (n_rows - 1) + n_bytes * engine.in_flight
            if self.linkage == "average":
                # by the pairs in base clusters where these are few, 40 bytes each
                sparse_bytes = 40 * int((incidence_of(labels, ensemble.offsets).sum(axis=0) ** 2).sum())
                is_sparse = sparse_bytes < 4 * n_rows**2  # on any number of workers
                n_bytes = sparse_bytes if is_sparse else n_bytes
            n_bytes += rows.row_of_object.nbytes + 2 * labels.nbytes
            subject = f"the distances of {n_rows:,} distinct rows for linkage={self.linkage!r}"
            budget.check(n_bytes, subject, remedy)
            if is_sparse:
                arguments = ensemble.offsets, self.normalize, weights
                merges = average_link(labels, *arguments, rows.weights[order])
            else:
                distances = agreement.condensed_distances(labels, self.normalize, engine, weights)
                merges = agglomerate(distances, self.linkage, rows.weights[order], within[order])
        merges = Merges(order[merges.first], order[merges.second], merges.heights)
        n_clusters = n_rows if self.n_clusters is None else min(self.n_clusters, n_rows)
        if self.criterion == "lifetime":
            is_repeated, below = rows.weights > 1, None
            if is_repeated.any() and n_rows > 1:
                below = min(within[is_repeated].max(), *merges.heights[:1])
            n_clusters = largest_lifetime(merges.heights, limit=n_clusters, below=below)
        labels = cut(merges, n_rows, n_clusters)
        heights = merges.heights[: n_rows - n_clusters]
        self.objective_: float = float(heights.sum() + ((rows.weights - 1) * within).sum())
        n_found, objective = int(labels.max()) + 1, self.objective_
        self.history_: dict[str, list[Any]] = {"n_clusters": [n_found], "objective": [objective]}
        self.linkage_: np.ndarray = linkage_matrix(merges, rows.weights)
        self.row_of_object_: np.ndarray = rows.row_of_object
        labels = np.append(labels, np.int32(-1))[rows.row_of_object]
        self._publish(ensemble, labels, survey.unlabeled, out, n_clusters=n_clusters)

    def _check_n_clusters(self, number: Any, n_objects: int) -> None:
        if number is not None:
            super()._check_n_clusters(number, n_objects)
        elif self.criterion == "n_clusters":
            raise InvalidInputError(
                "criterion='n_clusters' needs a number of clusters; give one, or criterion='lifetime'."
            )


class EAC(Evidence):
    """Evidence accumulation clustering (Fred and Jain 2005): agglomerative, on the co-association.

    The distance of two objects is one minus the share of partitions that put them together. Linkage of these
    distances gives a dendrogram, which is cut.

    Parameters
    ----------
    n_clusters : int or None, default=8
        Number of clusters; for criterion="lifetime" the maximum, None for any number. Objects of equal label
        rows always stay together, so there are no more clusters than distinct rows.
    linkage : {"average", "single", "complete", "ward"}, default="average"
        "ward" treats the distances as Euclidean.
    normalize : {"observed", "all"}, default="observed"
        Denominator of the co-association. "observed": the partitions that label both objects; without any the
        similarity is 0. "all": all partitions.
    weights : {"local"}, array of shape (n_partitions,) or None, default=None
        Numbers >= 0 by which each partition counts, as if it occurred that many times; 0 leaves it out. None:
        all count the same. "local": a base cluster joins its objects by its reliability, which is the higher
        the less other partitions divide it; the denominator stays the number of partitions. With average
        linkage this is the LWEA of Huang, Wang and Lai (2018). Weights need, for single linkage too, the
        memory for the distances of all pairs of rows.
    criterion : {"n_clusters", "lifetime"}, default="n_clusters"
        "n_clusters", or "lifetime": the number of clusters, from 2 to one less than the objects, that stays
        the same over the widest range of heights; on a tie more clusters, as in the reference implementation.
    ties : {"lowest", "random"}, default="lowest"
        How to break ties: "lowest" merges the pair of the first rows (as far as the linkage visits rows in
        order), which are those of the largest base clusters, whatever the order of objects and partitions;
        "random" puts the rows in random order. Distances take few values, so ties are common; several seeds
        show how much depends on them.
    resume : bool, default=True
        Whether a repeated call finds its finished result at ``out``.
    random_state : int, RandomState, Generator or None, default=None
        Seed of random ties; nothing else is random.
    memory : str, int or None, default=None
        Budget for the distinct label rows and their distances, 4 GB by default; refused if they do not fit.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_ : (n_objects,) int32, clusters, largest first and, if of equal size, by their first objects; -1
        for objects without any label
    objective_ : sum of the heights of the merges made, including those of equal rows
    n_clusters_ : number of clusters found
    linkage_ : (n_rows - 1, 4) the dendrogram of the distinct rows as scipy's linkage matrix, sizes in
        objects. `bigcons.metrics.error_roc` takes it with ``row_of_object_``. Both are lost where a finished
        run is only read from ``out``.
    row_of_object_ : (n_objects,) int32 the distinct row of each object, -1 without any label
    history_ : the number of clusters and the objective, one entry

    Notes
    -----
    The method works on the U distinct rows, weighted by their objects: this gives the dendrogram of all
    objects, up to the order of ties, since no row is nearer to an object than a row equal to its own. Two
    passes over the labels. Single linkage takes O(U M) memory and O(U^2 M) time on one core, a second for
    10,000 rows. The others take 4 U^2 bytes (.4 GB for 10,000 rows, 14.4 GB for 60,000, 40 GB for 100,000),
    refused above ``memory``, and O(U^2 M) time, with pairs counted on all workers. If base clusters are so
    small that the pairs in them take less memory, at 40 bytes each, average linkage takes that, and time in
    proportion, as for 100,000 objects in clusters of three. `EACGroups` takes any number of objects.
    weights="local" takes one more pass, in O(n M^2) time, to count the overlaps of base clusters; equal rows
    merge first, also with missing labels.

    References
    ----------
    Fred and Jain (2005), *Combining multiple clusterings using evidence accumulation*;
    Huang, Wang and Lai (2018), *Locally weighted ensemble clustering*.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.EAC(n_clusters=2).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    >>> model.n_clusters_
    2
    """

    linkage: str = "average"  # type: ignore[misc]


class EACSingle(Evidence):
    """Evidence accumulation with single linkage, EAC-SL: see `EAC` for the details.

    Parameters
    ----------
    n_clusters : int or None, default=8
        Number of clusters; for criterion="lifetime" the maximum, None for any number.
    normalize : {"observed", "all"}, default="observed"
        Denominator of the co-association: the partitions that label both objects, or all partitions.
    weights : {"local"}, array of shape (n_partitions,) or None, default=None
        Weights of the partitions, or "local" of base clusters, as for `EAC`.
    criterion : {"n_clusters", "lifetime"}, default="n_clusters"
        "n_clusters", or "lifetime": the number that stays the same over the widest range of heights.
    ties : {"lowest", "random"}, default="lowest"
        How to break ties between pairs at equal distance, as for `EAC`.
    resume : bool, default=True
        Whether a repeated call finds its finished result at ``out``.
    random_state : int, RandomState, Generator or None, default=None
        Seed of random ties; nothing else is random.
    memory : str, int or None, default=None
        Budget for the distinct label rows and their distances, 4 GB by default; refused if they do not fit.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_, objective_, n_clusters_, linkage_, row_of_object_, history_ : as for `EAC`

    Notes
    -----
    Exact in O(U M) memory for U distinct rows, by Prim's algorithm in O(U^2 M) time: a second for 10,000 rows
    of 50 labels, a hundred for 100,000. Suits ensembles of many
    small clusters; with few large ones it chains.

    References
    ----------
    Fred and Jain (2005), *Combining multiple clusterings using evidence accumulation*.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.EACSingle(n_clusters=2).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    """

    info: ClassVar[MethodInfo] = EAC.info._replace(distributed=False)

    linkage: ClassVar[str] = "single"


class EACAverage(Evidence):
    """Evidence accumulation with average linkage, EAC-AL: see `EAC` for the details.

    Parameters
    ----------
    n_clusters : int or None, default=8
        Number of clusters; for criterion="lifetime" the maximum, None for any number.
    normalize : {"observed", "all"}, default="observed"
        Denominator of the co-association: the partitions that label both objects, or all partitions.
    weights : {"local"}, array of shape (n_partitions,) or None, default=None
        Weights of the partitions, or "local" of base clusters, as for `EAC`.
    criterion : {"n_clusters", "lifetime"}, default="n_clusters"
        "n_clusters", or "lifetime": the number that stays the same over the widest range of heights.
    ties : {"lowest", "random"}, default="lowest"
        How to break ties between pairs at equal distance, as for `EAC`.
    resume : bool, default=True
        Whether a repeated call finds its finished result at ``out``.
    random_state : int, RandomState, Generator or None, default=None
        Seed of random ties; nothing else is random.
    memory : str, int or None, default=None
        Budget for the distinct label rows and their distances, 4 GB by default; refused if they do not fit.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_, objective_, n_clusters_, linkage_, row_of_object_, history_ : as for `EAC`

    Notes
    -----
    Takes 4 U^2 bytes for U distinct rows, .4 GB for 10,000, and O(U^2 M) time, with pairs counted on all
    workers; or 40 bytes for each pair in each base cluster, and time in proportion, if that is less. So very
    many small clusters, such as n / 3, are found in time linear in the objects. If neither fits in
    ``memory``, use `EACGroups`.

    References
    ----------
    Fred and Jain (2005), *Combining multiple clusterings using evidence accumulation*;
    Nguyen and Caruana (2007), whose HAC consensus this is;
    Huang, Wang and Lai (2018), whose LWEA it is with weights="local".

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.EACAverage(n_clusters=2).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    >>> model.linkage_.shape
    (4, 4)
    """

    linkage: ClassVar[str] = "average"


class EACGroups(ConsensusTree):
    """Evidence accumulation with average linkage of groups of objects, for any number of objects.

    `EACAverage` of the groups that `ConsensusTree` merges, by its tree of average link with equal weights of
    base clusters: the similarity of two groups is the number of agreements over all pairs of their objects,
    divided by the number of partitions that label both objects, summed over these pairs. All objects are then
    placed as by `ConsensusTree`.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Number of clusters. "auto": by `bigcons.choose_n_clusters`.
    weights : array of shape (n_partitions,) or None, default=None
        Numbers >= 0 by which each partition counts, as if it occurred that many times; 0 leaves it out. None:
        all count the same.
    min_size : int or None, default=None
        Fewest objects of a cluster, as of `ConsensusTree`.
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
    labels_, memberships_, n_clusters_, trust_, temperature_, objective_, history_, n_passes_
        As for `ConsensusTree`, whose ``chosen_tree_`` is "average" here.

    Notes
    -----
    An approximation that leaves out the single objects and small groups of which average link of all objects
    first makes clusters if labels are noisy. If classes are clear, both give the same clusters. Time and
    memory are those of `ConsensusTree`, linear in the objects.

    References
    ----------
    Fred and Jain (2005), *Combining multiple clusterings using evidence accumulation*.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> bc.EACGroups(n_clusters=2).fit(labels).labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    """

    info: ClassVar[MethodInfo] = ConsensusTree.info._replace(paper=EAC.info.paper)
    _trees: ClassVar[tuple[str, ...]] = (AVERAGE,)
    _is_local: ClassVar[bool] = False


def _within(rows: UniqueRows, normalize: str, weights: Weights | None) -> np.ndarray:
    """Return the distance (n_rows,) between two objects of each row.

    0 if partitions count the same, or are weighed; the share of labels missing if c / M.
    """
    if weights is None:
        n_labels = np.count_nonzero(rows.labels >= 0, axis=1)
        return 1.0 - agreement.similarity(n_labels, n_labels, rows.labels.shape[1], normalize)
    n_agree, n_seen = np.zeros((2, len(rows.labels)))
    for labels, offset, weight in zip(rows.labels.T, weights.offsets, weights.partitions, strict=False):
        is_labeled = labels >= 0
        n_agree[is_labeled] += weights.base_clusters[offset + labels[is_labeled]]
        n_seen[is_labeled] += weight
    return 1.0 - agreement.similarity(n_agree, n_seen, float(weights.partitions.sum()), normalize)


# Agglomerative clustering of label rows. Objects with equal rows cannot be told apart: `unique_rows` has each
# row once with its number of objects, and `agglomerate` merges weighted points as SciPy would merge these.


class UniqueRows(NamedTuple):
    """The distinct rows of an ensemble, numbered in the order in which they first appear."""

    labels: np.ndarray
    """(n_rows, n_partitions) the rows, each with a label."""
    weights: np.ndarray
    """(n_rows,) int64 number of objects of each."""
    row_of_object: np.ndarray
    """(n_objects,) int32 number of each object's row, -1 for objects without any label."""


def unique_rows(
    ensemble: Ensemble, engine: Engine, *, budget: DataBudget, remedy: str, weights: Weights | None = None
) -> UniqueRows:
    """Collect the distinct label rows in one pass; rows that differ in what is missing are distinct.

    Labels in partitions of weight 0 are missing. O(n_objects n_partitions) time; memory of 4 bytes per
    object, and twice the labels and 200 bytes for each distinct row. Raises MemoryBudgetError, with
    ``remedy`` as its advice, if that exceeds ``budget``.
    """
    numbers: dict[bytes, int] = {}
    row_of_object = np.empty(ensemble.n_objects, np.int32)
    row_bytes = ensemble.dtype.itemsize * ensemble.n_partitions

    def distinct_of(block: Block) -> tuple[np.ndarray, np.ndarray]:
        """Return a block's distinct rows that have a label, and the number of each object's row, or -1."""
        labels = ensemble.read(block.start, block.stop)
        labels = np.ascontiguousarray(counted_labels(labels, weights))
        labeled = np.flatnonzero((labels >= 0).any(axis=1))
        keys = labels.view(np.dtype((np.void, row_bytes)))[labeled, 0]
        _, first, code = np.unique(keys, return_index=True, return_inverse=True)
        order = np.argsort(first)
        numbers_in_block = np.full(block.n_rows, -1)
        numbers_in_block[labeled] = np.argsort(order)[code]
        return labels[labeled[first[order]]], numbers_in_block

    blocks, step = ensemble.blocks(), "distinct rows"
    for block, (rows, number_in_block) in map_with_progress(engine, distinct_of, blocks, step):
        row_numbers = [numbers.setdefault(row.tobytes(), len(numbers)) for row in rows]
        n_bytes = (2 * row_bytes + 200) * len(numbers) + row_of_object.nbytes
        budget.check(n_bytes, f"the labels of {len(numbers):,} or more distinct rows", remedy)
        row_of_object[block.start : block.stop] = np.array([*row_numbers, -1], np.int32)[number_in_block]
    labels = np.frombuffer(b"".join(numbers), ensemble.dtype).reshape(-1, ensemble.n_partitions)
    sizes = np.bincount(row_of_object[row_of_object >= 0], minlength=len(labels))
    return UniqueRows(labels, sizes, row_of_object)


def _summed_over_clusters(rows: np.ndarray, times: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return for each row the ``values`` (n_rows,) summed over its base clusters, ``times`` by partition."""
    sums = np.zeros(len(rows))
    for labels, weight in zip(rows.T, times, strict=True):
        is_labeled = labels >= 0
        sums[is_labeled] += weight * np.bincount(labels[is_labeled], values[is_labeled])[labels[is_labeled]]
    return sums


# Merges


class Merges(NamedTuple):
    """The merges of n points into one cluster, in the order they are made: three arrays ``(n - 1,)``."""

    first: np.ndarray
    """A point of one of the two clusters, int64."""
    second: np.ndarray
    """A point of the other cluster."""
    heights: np.ndarray
    """The distance at which they merge, float64, ascending."""


def sorted_merges(first: np.ndarray, second: np.ndarray, heights: np.ndarray) -> Merges:
    """Return merges by ascending height; ties keep their order."""
    order = np.argsort(heights, kind="stable")
    return Merges(first[order], second[order], heights[order])


def agglomerate(
    distances: np.ndarray, linkage: str, weights: np.ndarray | None = None, within: np.ndarray | None = None
) -> Merges:
    """Merge n points, given by condensed ``distances`` (n (n - 1) / 2,) float64, which are overwritten.

    Point i stands for ``weights[i]`` objects at distance ``within[i]`` from each other (default 1 and 0),
    which is at most the distance of any of them to any other object. The merges are then those that scipy's
    linkage finds for all objects, without those inside a point, up to the order of ties. "ward" takes the
    distances to be Euclidean, as scipy does. O(n^2) time; no memory besides the distances.
    """
    from bigcons.kernels.linkage import chain_merges

    n = 1 + int(np.sqrt(2 * len(distances)) + 0.5) if len(distances) else 1
    sizes = np.ones(n) if weights is None else weights.astype(np.float64)
    within = np.zeros(n) if within is None else within
    first, second, heights = np.empty(n - 1, np.int64), np.empty(n - 1, np.int64), np.empty(n - 1)
    if linkage == "ward" and weights is not None:
        # the squared distance of the centers of two clusters is the mean squared distance between their
        # objects less half that within each; that of Ward is 2 p q / (p + q) times that
        spread, position = within**2 * (sizes - 1) / (2 * sizes), 0
        for i in range(len(sizes) - 1):
            later = slice(i + 1, None)
            row = distances[position : position + len(sizes) - 1 - i]
            squares = row**2 - spread[i] - spread[later]
            row[:] = np.sqrt(2 * sizes[i] * sizes[later] / (sizes[i] + sizes[later]) * squares)
            position += len(row)
    chain_merges(distances, sizes, LINKAGES.index(linkage), first, second, heights)
    return sorted_merges(first, second, heights)


def cut(merges: Merges, n_points: int, n_clusters: int = 1) -> np.ndarray:
    """Return the labels ``(n_points,)`` int32 at ``n_clusters`` clusters, numbered by their first points.

    The merges may be those of a forest; there are at least as many clusters as it has trees.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    span = slice(0, max(n_points - n_clusters, 0))
    edges = (merges.first[span], merges.second[span])
    graph = coo_array((np.ones(len(edges[0]), bool), edges), shape=(n_points, n_points))
    labels = connected_components(graph, directed=False)[1]
    return numbered(labels).astype(np.int32)


def numbered(labels: np.ndarray) -> np.ndarray:
    """Return labels numbered from 0 by their first members, int64."""
    _, first, code = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[code]


def largest_lifetime(heights: np.ndarray, *, limit: int, below: float | None) -> int:
    """Return the number of clusters with the largest lifetime (Fred and Jain 2005).

    ``heights`` (n - 1,) are ascending. The lifetime of k clusters is the gap between the merge that leads to
    k and the one that ends it, for k = 2 .. n - 1 up to ``limit``. ``below``, at most the first height, is
    where the n points were formed and admits k = n. On a tie the larger k, as the authors' implementation.
    """
    lifetimes = np.diff(heights if below is None else np.append(below, heights))
    largest = len(heights) + (below is not None)
    numbers = np.arange(largest, largest - len(lifetimes), -1)
    lifetimes, numbers = lifetimes[numbers <= limit], numbers[numbers <= limit]
    return int(numbers[lifetimes.argmax()]) if len(lifetimes) else min(limit, len(heights) + 1)


def linkage_matrix(merges: Merges, weights: np.ndarray) -> np.ndarray:
    """Return the merges as scipy's linkage matrix ``(n - 1, 4)``, whose last column sums ``weights``.

    Merge t forms cluster n + t; scipy.cluster.hierarchy draws and cuts such a matrix.
    """
    from bigcons.kernels.linkage import number_clusters

    n = len(weights)
    matrix = np.empty((n - 1, 4))
    number_clusters(merges.first, merges.second, weights.astype(np.float64), matrix)
    matrix[:, 2] = merges.heights
    return matrix


def average_link(
    rows: np.ndarray, offsets: np.ndarray, normalize: str, weights: Weights | None, sizes: np.ndarray
) -> Merges:
    """Return the average-link merges of label rows ``(n, n_partitions)`` of ``sizes`` (n,) objects each.

    Exact, by the pairs in base clusters: all others have a similarity of 0. Time and memory in proportion to
    these pairs.
    """
    from scipy.sparse import diags_array

    from bigcons.kernels.linkage import chain_sparse_merges

    incidence = incidence_of(rows, offsets)
    gains = np.ones(incidence.shape[1]) if weights is None else weights.base_clusters
    counts = np.ones(rows.shape[1]) if weights is None else weights.partitions
    agreements = (incidence @ diags_array(gains) @ incidence.T).tocsr()
    n, sizes, is_labeled = len(rows), sizes.astype(np.float64), rows >= 0
    for block in row_blocks(agreements.nnz, agreement.PAIRS_PER_TASK):
        part = slice(block.start, block.stop)
        i = np.searchsorted(agreements.indptr, np.arange(block.start, block.stop), side="right") - 1
        j = agreements.indices[part]
        n_seen = (is_labeled[i] & is_labeled[j]) @ counts
        similar = agreement.similarity(agreements.data[part], n_seen, float(counts.sum()), normalize)
        agreements.data[part] = similar * sizes[i] * sizes[j]
    first, second, heights = np.empty(n - 1, np.int64), np.empty(n - 1, np.int64), np.empty(n - 1)
    graph = agreements.indptr, agreements.indices, agreements.data
    chain_sparse_merges(*graph, sizes, first, second, heights)
    return sorted_merges(first, second, heights)


# Single link


def single_link(rows: np.ndarray, normalize: str) -> Merges:
    """Return the single-link merges of label rows ``(n, n_partitions)``, from their spanning tree.

    Exact, in O(n) memory and O(n^2 n_partitions) time.
    """
    from bigcons.kernels.linkage import grow_tree

    n, over_all = len(rows), normalize == "all"
    edges = first, second, n_agree, n_seen = np.zeros((4, n), np.int64)  # by which each row joins the tree
    # of each row agreement with the nearest row of the tree, that row, and whether it is in the tree
    state = np.full(n, -1), np.ones(n, np.int64), np.zeros(n, np.int64), np.zeros(n, bool)
    with progress("spanning tree", n - 1, "edges") as listener:
        for part in row_blocks(n - 1, 1 << 8):  # progress is reported in between
            grow_tree(rows, over_all, part.start, part.stop, *state, *edges)
            listener.advance(part.n_rows)
    heights = 1.0 - agreement.similarity(n_agree[1:], n_seen[1:], rows.shape[1], normalize)
    return sorted_merges(first[1:], second[1:], heights)


# Furthest consensus


class Furthest(ConsensusClusterer):
    """Furthest consensus: clusters around objects that are as dissimilar as possible.

    The first two centers are the least similar pair of objects; each further center is the object whose
    largest similarity to a center is smallest. Every object joins the center it is most similar to. The
    similarity is the share of partitions that put two objects together, of those that label both; 0 if none
    does.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers. There are fewer if no other object differs from the centers.
    init : {"exact", "sampled"}, default="exact"
        The first pair: "exact", the least similar of all distinct label rows, or "sampled", of 2,048 objects.
    resume : bool, default=True
        Whether a repeated call finds its finished result at ``out``.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the sample.
    memory : str, int or None, default=None
        Budget for the distinct rows of init="exact", 4 GB by default; refused if they do not fit.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_ : (n_objects,) int32, -1 for objects without any label
    centers_ : ``(n_clusters_,)`` int64, the object at the center of each cluster; of a single one, its seed
    objective_ : disagreements with the partitions
    n_clusters_, n_passes_ : number of clusters found; passes over the labels for the centers
    history_ : the number of clusters and the objective after each center

    Notes
    -----
    Of equally similar pairs, the one of the first objects is taken, and objects join the earlier center. One
    pass per center, each O(n M), with 12 bytes an object in memory; before that two passes and, for U
    distinct rows and init="exact", O(U^2 M) time on all workers. Counting disagreements takes O(B k) memory.

    References
    ----------
    Nguyen and Caruana (2007); Gionis, Mannila and Tsaparas (2007), *Clustering aggregation*.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.Furthest(n_clusters=2, random_state=0).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    """

    info: ClassVar[MethodInfo] = MethodInfo("Nguyen and Caruana 2007", "labels", missing="c/N")

    init: str = "exact"

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        check_choice("init", self.init, ("exact", "sampled"))
        budget = data_budget(self.memory, engine, ensemble)
        n, rows = ensemble.n_objects, ensemble.chunk_rows
        plan = MemoryPlan(12 * n, block_label_bytes(ensemble) + 16 * rows, 12 * rows)
        plan.check("Furthest", engine, ensemble, self.memory)
        survey = take_survey(ensemble, engine, seed, 0)
        if self.init == "exact":
            unique = unique_rows(ensemble, engine, budget=budget, remedy="use init='sampled'")
            candidates, distinct = np.flatnonzero(unique.row_of_object >= 0), unique.labels
            candidates = candidates[np.unique(unique.row_of_object[candidates], return_index=True)[1]]
        else:
            candidates = np.setdiff1d(np.arange(n), np.asarray(survey.unlabeled), assume_unique=True)
            if len(candidates) > N_SAMPLED:
                draw = generator(seed, "furthest.sample")
                candidates = np.sort(draw.choice(candidates, N_SAMPLED, replace=False, shuffle=False))
            distinct = ensemble.read_rows(candidates)
        first, second = (int(candidates[row]) for row in _least_similar(distinct, engine))
        closest, assigned = np.full(n, -1.0), np.full(n, -1, np.int32)  # of each object to its center
        centers: list[int] = []
        objectives: list[float] = []
        lowest, furthest = -1.0, first
        with progress("centers", self.n_clusters, "centers") as listener:
            while len(centers) < self.n_clusters and lowest < 1.0:
                centers.append(furthest)
                center = ensemble.read_rows(np.array([furthest]))
                offer = partial(_offer, ensemble, center, len(centers) - 1)
                parts = [
                    (block, closest[block.start : block.stop], assigned[block.start : block.stop])
                    for block in ensemble.blocks()
                ]
                table = np.zeros((len(centers), ensemble.n_base_clusters), np.int64)
                lowest, furthest = np.inf, -1
                with closing(engine.map(offer, parts)) as results:
                    for (_, *before), (*after, counts, candidate) in zip(parts, results, strict=True):
                        for rows_before, rows_after in zip(before, after, strict=True):
                            rows_before[:] = rows_after
                        table += counts
                        if candidate[0] < lowest:
                            lowest, furthest = candidate
                if len(centers) == 1 and closest[second] < 1.0:  # else all of the sample are alike
                    furthest = second
                # the pairs that exactly one of the clusters and a partition joins
                n_labeled = np.add.reduceat(table, ensemble.offsets[:-1], axis=1)
                n_pairs = [(n * (n - 1) // 2).sum() for n in (n_labeled, table.sum(axis=0), table)]
                objectives.append(float(n_pairs[0] + n_pairs[1] - 2 * n_pairs[2]))
                listener.advance(1)
        self.n_passes_: int = len(centers)
        self.objective_: float = objectives[-1]
        numbers = list(range(1, len(centers) + 1))
        self.history_: dict[str, list[Any]] = {"n_clusters": numbers, "objective": objectives}
        self._publish(ensemble, assigned, survey.unlabeled, out)
        self.centers_: np.ndarray = np.array(centers, np.int64)[self._order[: len(centers)]]


def _offer(
    ensemble: Ensemble, center: np.ndarray, number: int, part: tuple[Block, np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[float, int]]:
    """Offer a new center (1, M) to a block, given similarities (rows,) and clusters (rows,) of its objects.

    Return both anew, the contingency table, and the furthest object after its similarity, which is infinity
    if the block has no labeled object.
    """
    block, closest, assigned = part
    labels = ensemble.read(block.start, block.stop)
    labeled = (labels >= 0).any(axis=1)
    similarities = _similarities(labels, center)[:, 0]
    nearer = labeled & (similarities > closest)
    closest = np.where(nearer, similarities, closest)
    assigned = np.where(nearer, np.int32(number), assigned)
    table = counts_of(labels, ensemble.offsets, assigned, number + 1)[0].T.astype(np.int64, order="C")
    lowest = float(closest[labeled].min(initial=np.inf))
    furthest = np.flatnonzero(labeled & (closest == lowest))
    candidate = (lowest, block.start + int(furthest[0])) if furthest.size else (np.inf, -1)
    return closest, assigned, table, candidate


def _similarities(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the similarities (rows of left, rows of right) float64."""
    return agreement.similarity(*agreement.count_all(left, right), left.shape[1], "observed")


def _least_similar(rows: np.ndarray, engine: Engine) -> tuple[int, int]:
    """Return the least similar pair of rows, the first on ties; (0, 0) for a single row."""
    blocks = row_blocks(len(rows), TILE_ROWS)
    tiles = [(left, right) for left in blocks for right in blocks[left.index :]]

    def least_of(tile: tuple[Block, Block]) -> tuple[float, int, int]:
        left, right = tile
        values = _similarities(rows[left.start : left.stop], rows[right.start : right.stop])
        a, b = divmod(int(np.argmin(values)), right.n_rows)
        return float(values.min()), left.start + a, right.start + b

    lowest = (np.inf, 0, 0)
    candidates = map_with_progress(engine, least_of, tiles, "least similar pair", "tiles")
    for (left, _), candidate in candidates:
        if lowest[0] == 0.0 and lowest[1] <= left.start:
            break  # no later pair is less similar, or of a lower row
        lowest = min(lowest, candidate)
    return lowest[1], lowest[2]


class DID(ConsensusClusterer):
    """Consensus by dissimilarity increments, PCC_DID (Aidos and Fred).

    As in evidence accumulation, objects are similar if partitions put them together, but each partition is
    weighted by the likelihood of their distance under the distribution of dissimilarity increments of their
    cluster: see `bigcons.coassociation.did_matrix`. The similarity is made symmetric and clustered.

    Parameters
    ----------
    n_clusters : int, default=8
        Maximum number of clusters.
    features : array, table or path-like, default=None
        Features (n_objects, n_features) of the objects: an array, table or path. Distances are Euclidean, so
        scale the features first.
    symmetrize : {"mean", "max"}, default="mean"
        How the two directions are combined.
    linkage : {"average", "single"}, default="average"
        How clusters are merged.
    exclude_self : bool, default=False
        As for `bigcons.coassociation.did_matrix`.
    increments : {"vertex", "sorted"}, default="vertex"
        As for `bigcons.coassociation.did_matrix`.
    pair_model : {"increments", "coassociation"}, default="increments"
        How the increment of a pair becomes the probability that it belongs together: as for
        `bigcons.coassociation.did_matrix`.
    normalize : {"observed", "all"}, default="all"
        As for `bigcons.coassociation.did_matrix`.
    weights : array of shape (n_partitions,) or None, default=None
        As for `bigcons.coassociation.did_matrix`.
    resume : bool, default=True
        Whether a repeated call finds its finished result at ``out``.
    random_state : int, RandomState, Generator or None, default=None
        Not used: nothing is random.
    memory : str, int or None, default=None
        Memory budget, 4 GB by default; a matrix that does not fit is refused.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_ : (n_objects,) int32, -1 for objects without any label
    objective_ : sum of the heights of the merges made
    n_clusters_ : number of clusters found
    linkage_ : (n_labeled - 1, 4) the dendrogram of the labeled objects as scipy's linkage matrix.
        `bigcons.metrics.error_roc` takes it with ``row_of_object_``. Both are lost where a finished run is
        only read from ``out``.
    row_of_object_ : (n_objects,) int32 number of each object among the labeled, -1 without any label
    history_ : the number of clusters and the objective, one entry

    Notes
    -----
    Time O(n^2 (d + M) + sum of squared cluster sizes d), on all workers, and 12 n^2 bytes. Clusters of one or
    two objects contribute nothing, nor does a partition to an object that it does not label: see
    ``normalize``.

    References
    ----------
    Aidos and Fred, *DID-based probabilistic consensus clustering* (PCC_DID), Algorithm 1.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> features = [[0.0], [0.1], [0.3], [0.4], [5.0], [5.1], [5.3]]
    >>> bc.DID(n_clusters=2, features=features).fit(labels).labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    """

    info: ClassVar[MethodInfo] = MethodInfo(
        "Aidos and Fred, DID-based probabilistic consensus", "features and labels", out_of_core=False
    )

    features: Any = None
    symmetrize: str = "mean"
    linkage: str = "average"
    exclude_self: bool = False
    increments: str = "vertex"
    pair_model: str = "increments"
    normalize: str = "all"
    weights: Any = None

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        if self.features is None:
            raise InvalidInputError(
                "features=None, but DID needs distances; give features=(n_objects, n_features), "
                "or use eac-average, which needs labels only."
            )
        check_choice("symmetrize", self.symmetrize, ("mean", "max"))
        check_choice("linkage", self.linkage, ("average", "single"))
        budget, condensed = data_budget(self.memory, engine, ensemble), 4 * ensemble.n_objects**2
        matrix = did_matrix(
            *(self.features, ensemble),
            normalize=self.normalize,
            weights=self.weights,
            exclude_self=self.exclude_self,
            increments=self.increments,
            pair_model=self.pair_model,
            memory=DataBudget(budget.n_bytes - condensed, budget.processes + condensed),
            client=engine,
        )
        weights = None if self.weights is None else np.asarray(self.weights, np.float64)
        survey = take_survey(ensemble, engine, seed, 0, weights)
        labeled = np.delete(np.arange(ensemble.n_objects), np.asarray(survey.unlabeled))
        labels = np.full(ensemble.n_objects, -1, np.int32)
        n, position = len(labeled), 0
        n_clusters = min(self.n_clusters, n)
        distances = np.empty(n * (n - 1) // 2)  # of pairs of labeled objects, row by row
        for i in range(n - 1):
            columns = labeled[i + 1 :]
            forward, backward = matrix[labeled[i], columns], matrix[columns, labeled[i]]
            row = np.maximum(forward, backward) if self.symmetrize == "max" else (forward + backward) / 2.0
            distances[position : position + len(row)] = 1.0 - row
            position += len(row)
        del matrix
        merges = agglomerate(distances, self.linkage)
        labels[labeled] = cut(merges, n, n_clusters)
        self.objective_: float = float(merges.heights[: n - n_clusters].sum())
        self.linkage_: np.ndarray = linkage_matrix(merges, np.ones(n))
        self.row_of_object_: np.ndarray = np.full(ensemble.n_objects, -1, np.int32)
        self.row_of_object_[labeled] = np.arange(n)
        n_found, objective = int(labels.max()) + 1, self.objective_
        self.history_: dict[str, list[Any]] = {"n_clusters": [n_found], "objective": [objective]}
        self._publish(ensemble, labels, survey.unlabeled, out)
