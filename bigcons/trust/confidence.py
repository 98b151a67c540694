"""Which answers to trust: probabilities of objects, and tables of clusters and partitions.

Given the labels of a consensus, every base cluster b has a share ``P(b | k)`` in each consensus cluster k,
and an object's labels are evidence for its cluster, as in naive Bayes:

    P(k | labels of i)  ~  P(k) prod_u P(label of i in u | k)^tau

The object itself is left out of all shares: see `Placement`, by which the tree places objects, too.
Partitions of the same data repeat each other, and some objects are hard for all of them, so that taken as
independent they would make too many objects all but certain: ``tau`` is the share of them that would be as
uncertain if they were, see `independent_share`.

A cluster may not be real, whatever its objects' labels say. Where fits have grouped a sample by halves of the
partitions, the probability of each label is that times the support of its cluster by these halves
(`bigcons.trust.support`): the chance that other partitions of the same data would find the cluster.

Everything follows from the contingency of the consensus with the base clusters, one pass over the labels, and
from a second pass over the labels of the objects; no pair of objects is visited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from bigcons import contingency
from bigcons.disk.schema import CLUSTER_COLUMNS, PARTITION_COLUMNS, TRUST
from bigcons.errors import InvalidInputError
from bigcons.memory import Block
from bigcons.progress import progress
from bigcons.run.engine import Engine, open_engine
from bigcons.spectra import products_of_rows
from bigcons.store.clusters import TRUST_ROW, Trust, arrow_table
from bigcons.store.consensus import ConsensusWriter, write_rows
from bigcons.store.ensemble import Ensemble, as_ensemble
from bigcons.trust.placement import (
    ClusterSupport,
    Placement,
    independent_share,
    log_rates,
    support_factor,
    trust_rows,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from bigcons.trust.n_clusters import Search


Use = TypeVar("Use")


def trust(x: Any, labels: Any, *, memberships: Any = None, client: object = None) -> Trust:
    """Return which labels of a consensus to trust, and tables of its clusters and of the partitions.

    ``confidence`` (n_objects,) is the probability that the label of an object is right, times the support of
    its cluster if ``labels`` is a model that knows it. The probability is the membership of the object in its
    cluster if memberships are probabilities. Otherwise it is found by naive Bayes on the base labels of the
    object, from the shares of base clusters in the clusters of the other objects, tempered because partitions
    of the same data repeat each other. Confidence rests on the ensemble alone: if clusters are not the
    classes you look for, or all partitions err together, as k-means of overlapping classes does, confidence
    is too high.

    The table ``clusters`` has the columns ``cluster``, its label; ``size``; ``confidence``, the mean of its
    objects; ``stability``, its mean Jaccard index with the same cluster as found by each of two random halves
    of the partitions; ``cohesion``, the mean co-association of pairs of its objects; ``tightness``, the
    cohesion minus the mean co-association of objects in different clusters; ``nearest``, the cluster whose
    objects are most often together with its own; ``separation``, the cohesion minus the mean co-association
    with this cluster; ``support``, the probability that other partitions would find the cluster, estimated
    from halves of the partitions and adjusted for chance; and ``division``, the support of the division
    between the cluster and the nearest one: below one half, nothing is lost by merging the two. Only fits of
    `ConsensusTree` and `PCC` have the last two; otherwise they are null.

    The table ``partitions`` has ``partition``, its name; ``n_labeled``; ``n_clusters``; ``nmi`` and
    ``adjusted_rand`` with the consensus; ``hit_rate`` and ``false_join_rate``, the shares of the pairs of
    objects in one consensus cluster and in different ones that the partition joins; ``weight``, its mutual
    information with the consensus beyond chance, of mean 1, near 0 if the partition is random;
    ``redundancy``, its largest adjusted Rand index with another partition, on a sample of the objects; and
    ``most_alike``, the name of this other partition. If there are more than 1,000 partitions, each is
    compared with a million / n_partitions of them, evenly spaced.

    Parameters
    ----------
    x
        An ensemble of labels, or anything `Ensemble.from_labels` takes.
    labels
        Labels ``(n_objects,)``, whole numbers, negative for none; a fitted method; or a `Consensus`.
    memberships : array-like of shape (n_objects, n_clusters) or None, default=None
        Probabilities of the clusters 0, 1, ..., from which the confidence is taken. None: the memberships of
        a fitted method if these are probabilities, as of `ConsensusTree`; otherwise naive Bayes.
    client
        Engine.

    Two passes over the ensemble, O(n_objects M K) time, and K by ``n_base_clusters`` counts; at most 2,048
    objects are sampled. Raises InvalidInputError if the lengths differ or no object has a label.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> trust = bc.metrics.trust(labels, [0, 0, 0, 0, 1, 1, 1])
    >>> trust.confidence.shape
    (7,)
    >>> trust.clusters["size"].to_pylist()
    [4, 3]
    """
    ensemble = as_ensemble(x)
    codes, values = contingency.codes_for(ensemble, labels)
    contingency.check_size((len(values), ensemble.n_base_clusters))
    if memberships is None and getattr(labels, "_states_probabilities", False):
        memberships = labels.memberships_
    if memberships is not None:
        memberships = memberships if hasattr(memberships, "shape") else np.asarray(memberships)
        shape, n = memberships.shape, ensemble.n_objects
        if len(shape) != 2 or shape[0] != n or shape[1] <= values.max():
            raise InvalidInputError(
                f"memberships has shape {shape}; pass ({n}, n_clusters), with more clusters than the largest "
                f"label, {values.max()}."
            )
    clusters = labels.trust_rows.clusters if getattr(labels, "has_trust", False) else None
    clusters = getattr(getattr(labels, "trust_", None), "clusters", clusters)
    support = None if clusters is None else ClusterSupport.of_table(clusters, values)
    with open_engine(client) as engine:
        return Evidence(ensemble, codes, values, engine, memberships, support=support).trust()


def can_weigh(ensemble: Ensemble, n_clusters: int) -> bool:
    """Return whether there are labels, and the table of clusters and base clusters is small enough."""
    return not ensemble.is_soft and 8 * n_clusters * ensemble.n_base_clusters <= contingency.MAX_TABLE_BYTES


class TrustSums(NamedTuple):
    """Sums over the objects, from which the tables of trust are made; K clusters with objects."""

    values: np.ndarray
    """(K,): the labels of the clusters."""
    sizes: np.ndarray
    """(K,) int64: the numbers of their objects."""
    table: np.ndarray
    """(K, B) int64: how many objects of each cluster are in each base cluster."""
    confidence: np.ndarray
    """(K,): the summed confidence."""
    agreements: np.ndarray
    """(3, 2, K): how many objects each of two halves of the partitions knows, assigns to the cluster, and
    both.
    """
    sample: np.ndarray
    """(rows, M): labels of some objects, by which partitions are compared with each other."""
    support: ClusterSupport

    def tables(self, ensemble: Ensemble) -> tuple[pa.Table, pa.Table]:
        """Return the tables of clusters and of partitions of `trust`."""
        from scipy.sparse import csr_array

        offsets, K = ensemble.offsets, self.sizes.size
        coverage = np.add.reduceat(self.table, offsets[:-1], axis=1)
        n_known, n_assigned, n_shared = self.agreements
        jaccard = contingency.ratio(n_shared, n_known + n_assigned - n_shared, 0.0)
        # pairs of objects of two clusters, once for each partition that joins them, or labels both
        matrices = self.table.astype(np.float64), coverage.astype(np.float64)
        matches, pairs = map(products_of_rows, map(csr_array, matrices))
        for products, counts in ((matches, matrices[0]), (pairs, matrices[1])):
            np.fill_diagonal(products, contingency.pairs_of(counts).sum(axis=1))
        share, off_diagonal = contingency.ratio(matches, pairs), ~np.eye(K, dtype=bool)
        cohesion, outer = share.diagonal(), np.where(off_diagonal & (pairs > 0), share, -1.0)
        nearest, closest = outer.argmax(axis=1), outer.max(axis=1)
        has_other = closest >= 0
        clusters = {
            "cluster": self.values,
            "size": self.sizes,
            "confidence": self.confidence / self.sizes,
            "stability": contingency.ratio(jaccard.sum(axis=0), (n_known > 0).sum(axis=0)),
            "cohesion": cohesion,
            "tightness": cohesion - contingency.ratio(matches[off_diagonal].sum(), pairs[off_diagonal].sum()),
            "separation": np.where(has_other, cohesion - closest, np.nan),
            "nearest": np.where(has_other, self.values[nearest], -1),
            "support": self.support.clusters,
            "division": np.where(has_other, self.support.divisions[np.arange(K), nearest], np.nan),
        }
        n_labeled, names = coverage.sum(axis=0), np.array([*ensemble.names, None], object)
        rows, columns, joint = contingency.of_each(contingency.entropies, self.table, offsets)
        by_chance = (K - 1) * (np.diff(offsets) - 1) / (2.0 * np.maximum(n_labeled, 1))
        information = np.maximum(np.maximum(rows + columns - joint, 0.0) - by_chance, 0.0)
        hits = np.add.reduceat(contingency.pairs_of(self.table).sum(axis=0), offsets[:-1])
        joins = np.add.reduceat(contingency.pairs_of(self.table.sum(axis=0)), offsets[:-1])
        in_cluster, in_all = contingency.pairs_of(coverage).sum(axis=0), contingency.pairs_of(n_labeled)
        adjusted_rand = contingency.adjusted_rand_of_pairs(hits, in_cluster, joins, in_all)
        index, references = contingency.adjusted_rand_of_partitions(self.sample, offsets)
        index = np.where(np.isnan(index), -np.inf, index)
        redundancy = index.max(axis=1)
        is_compared = np.isfinite(redundancy)
        partitions = {
            "partition": names[:-1],
            "n_labeled": n_labeled,
            "n_clusters": np.diff(offsets),
            "nmi": np.where(n_labeled > 0, contingency.of_each(contingency.nmi, self.table, offsets), np.nan),
            "adjusted_rand": np.where(n_labeled > 0, adjusted_rand, np.nan),
            "hit_rate": contingency.ratio(hits, in_cluster),
            "false_join_rate": contingency.ratio(joins - hits, in_all - in_cluster),
            "weight": contingency.ratio(information, information.mean(), 0.0),
            "redundancy": np.where(is_compared, redundancy, np.nan),
            "most_alike": names[np.where(is_compared, references[index.argmax(axis=1)], -1)],
        }
        return arrow_table(CLUSTER_COLUMNS, clusters), arrow_table(PARTITION_COLUMNS, partitions)


def two_largest(memberships: np.ndarray, clusters: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the membership (rows,) in ``clusters``, the other cluster of the largest one, and that one."""
    rows, labeled = np.arange(len(memberships)), clusters >= 0
    remaining = np.array(memberships, np.float64)
    shares = np.where(labeled, remaining[rows, clusters], 0.0)
    remaining[rows, clusters] = -1.0
    second = np.where(labeled & (memberships.shape[1] > 1), remaining.argmax(axis=1), -1)
    return shares, second, np.where(second >= 0, remaining.max(axis=1), 0.0)


class Evidence:
    """What base labels tell about the clusters of objects, and hence about clusters and partitions.

    Sizes: K clusters with objects, B base clusters, M partitions.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        codes: contingency.Codes,
        values: np.ndarray,
        engine: Engine,
        memberships: Any = None,
        *,
        support: ClusterSupport | None = None,
        search: Search | None = None,
        n_clusters: int = 0,
    ) -> None:
        """Count the clusters, with labels ``values`` (K,), and take their ``support``, or that in a sample.

        The sample is that of a ``search``, whose halves of the partitions propose at least ``n_clusters``.
        """
        self._ensemble, self._codes, self._engine = ensemble, codes, engine
        if values.dtype.kind not in "iu" or values.max() > np.iinfo(np.int32).max:
            raise InvalidInputError("labels must be whole numbers below 2^31; pass a consensus.")
        samples = [contingency.sampled_rows(ensemble), *([] if search is None else [search.rows])]
        K = values.size
        counts = contingency.count_with_partitions(ensemble, codes, K, engine, *samples)
        table, sizes, parts, *sample_parts = counts
        table, sizes, sample = table[1:], sizes[1:], np.concatenate(parts)
        clusters = [np.concatenate(parts) for parts in sample_parts]
        rates = log_rates(table, sizes, ensemble.offsets)
        self.temperature: float = independent_share(sample, clusters[0], ensemble.offsets, table, *rates)
        placement = Placement.fit(table.T, sizes, ensemble.offsets, None)
        tempered = placement.rates * self.temperature, placement.without * self.temperature
        placement = replace(placement, rates=tempered[0], without=tempered[1])
        if search is not None:
            placed = placement.place(search.sample.all_labels, clusters[1], fixed=True)
            confidence = placed.trust["confidence"]
            support = search.halves.of_clusters(clusters[1], confidence, max(K, n_clusters))
            support = ClusterSupport(support.clusters[:K], support.divisions[:K, :K])
        support = support or ClusterSupport.unknown(K)
        self._memberships, self._placement = memberships, replace(placement, support=support.clusters)
        self.sums: TrustSums = TrustSums(
            values, sizes, table, np.zeros(K), np.zeros((3, 2, K)), sample, support
        )
        """Complete once all blocks have been weighed."""

    def weigh_blocks(self, use: Callable[[Block, np.ndarray], Use]) -> Iterator[tuple[Block, Use]]:
        """Yield every block with ``use(block, rows)``, part of its task."""
        ensemble, codes, sums, memberships = self._ensemble, self._codes, self.sums, self._memberships
        placement, values, blocks = self._placement, sums.values, ensemble.blocks()

        def task(part: tuple[Block, np.ndarray | None]) -> tuple[Use, np.ndarray, np.ndarray]:
            block, shares = part
            labels, clusters = ensemble.read(block.start, block.stop), codes(block.start, block.stop)
            _, _, rows, stats = placement.place(labels, clusters, fixed=True)
            confidence = stats["confidence"]
            if shares is not None:
                factor, largest = support_factor(placement.support), two_largest(shares[:, values], clusters)
                rows, labeled = trust_rows(clusters, *largest, factor), clusters >= 0
                confidence = np.bincount(clusters[labeled], largest[0][labeled], values.size) * factor
            second = rows["second_labels"]
            rows["second_labels"] = np.where(second >= 0, values[second], -1)
            return use(block, rows), confidence, stats["agreements"]

        parts = (
            (block, None if memberships is None else np.asarray(memberships[block.start : block.stop]))
            for block in blocks
        )
        with (
            closing(self._engine.map(task, parts)) as results,
            progress("confidence", ensemble.n_objects) as listener,
        ):
            for block, (result, confidence, agreements) in zip(blocks, results, strict=True):
                sums.confidence[...] += confidence
                sums.agreements[...] += agreements
                yield block, result
                listener.advance(block.n_rows)

    def trust(self) -> Trust:
        """Return which labels to trust, all objects in memory."""
        confidence, second, sure = (np.empty(self._ensemble.n_objects, TRUST_ROW[name]) for name in TRUST)
        for block, rows in self.weigh_blocks(lambda _, rows: rows):
            for name, values in zip(TRUST, (confidence, second, sure), strict=True):
                values[block.start : block.stop] = rows[name]
        return Trust(confidence, second, sure, *self.sums.tables(self._ensemble), self.temperature)

    def write(self, writer: ConsensusWriter) -> None:
        """Write which labels to trust to a consensus whose rows have been written, in the tasks."""
        writer.create_arrays(trust=True)
        arrays = writer.arrays
        for _, chunk_sums in self.weigh_blocks(lambda block, rows: write_rows(arrays, block.start, rows)):
            writer.note(chunk_sums)
        writer.describe_trust(*self.sums.tables(self._ensemble), self.temperature)
