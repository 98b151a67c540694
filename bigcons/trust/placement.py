"""Naive Bayes placement of objects in clusters by their labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigcons.contingency import SEED, ratio
from bigcons.disk.schema import TRUST
from bigcons.io.labels import are_labeled, observed
from bigcons.kernels.cluster_tables import in_whole_vectors, padded
from bigcons.seeding import generator
from bigcons.store.clusters import TRUST_ROW
from bigcons.weights import Weights, count_memberships, counted_labels, incidence_of

if TYPE_CHECKING:
    import pyarrow as pa


EXTRA = 1.0
"""Objects added to every base cluster, see `log_rates`."""


class ClusterSupport(NamedTuple):
    """How far halves of the partitions find clusters again, from 0 by chance to 1, NaN where not known."""

    clusters: np.ndarray
    """(K,)"""
    divisions: np.ndarray
    """(K, K): how far they tell two apart, of the objects of both: the less certain side."""

    @classmethod
    def of_table(cls, clusters: pa.Table, values: np.ndarray) -> ClusterSupport:
        """Return the support of the clusters with these ascending labels (K,), by the table of `Trust`."""
        result = cls.unknown(values.size)
        names = ("cluster", "nearest", "support", "division")
        labels, nearest, support, division = (clusters[name].to_numpy() for name in names)
        rows, columns = np.searchsorted(values, labels), np.searchsorted(values, nearest)
        result.clusters[rows] = support
        result.divisions[rows[nearest >= 0], columns[nearest >= 0]] = division[nearest >= 0]
        return result

    @classmethod
    def unknown(cls, n_clusters: int) -> ClusterSupport:
        """Return the support without halves: not known."""
        return cls(np.full(n_clusters, np.nan), np.full((n_clusters, n_clusters), np.nan))


def support_factor(support: np.ndarray) -> np.ndarray:
    """Return what support (K,) multiplies probabilities by, float32: 1 where it is not known."""
    return np.where(np.isnan(support), 1.0, support).astype(np.float32)


class Placed(NamedTuple):
    """The objects of a block in their most probable clusters, or in the clusters that they have."""

    clusters: np.ndarray
    """(rows,) int32, -1 without labels."""
    memberships: np.ndarray
    """(rows, K) float32; no rows unless asked for."""
    trust: np.ndarray
    """(rows,) `TRUST_ROW`; no rows unless asked for, and of memberships in base clusters."""
    stats: dict[str, np.ndarray]
    """What the kernel adds up."""


@dataclass(frozen=True)
class Placement:
    """Naive Bayes placement of objects in clusters.

    The labels of an object are evidence for its cluster, ``P(k | labels) ~ P(k) prod_u P(label in u | k)``,
    with the shares of base clusters in the clusters of the other objects.
    """

    offsets: np.ndarray
    weights: Weights | None
    rates: np.ndarray
    """(B, padded K): the log-probabilities of base clusters in each cluster, times their weights."""
    without: np.ndarray
    """(B, padded K): what is added to the rates of the object's own cluster, as if it were in none."""
    prior: np.ndarray
    """(K,): the log-probabilities of the clusters; -inf of those without objects."""
    support: np.ndarray
    """(K,): the support of the clusters by halves of the partitions, NaN where not known."""
    temperature: float = 1.0
    """Factor of the evidence in memberships and confidence."""

    @classmethod
    def fit(cls, T: np.ndarray, sizes: np.ndarray, offsets: np.ndarray, weights: Weights | None) -> Placement:
        """Return the evidence of labels from the objects T (B, K or more) and sizes (K,) of the clusters."""
        K = sizes.size
        with np.errstate(divide="ignore", invalid="ignore"):  # of clusters without objects
            rates, left_out = log_rates(np.ascontiguousarray(T[:, :K].T), sizes, offsets)
            prior = np.log(sizes / sizes.sum())
        rates, left_out = np.where(sizes > 0, rates, 0.0), np.where(sizes > 0, left_out, 0.0)
        if weights is not None:
            by_row = weights.base_clusters[:, None]
            rates, left_out = rates * by_row, left_out * by_row
        rates, without = in_whole_vectors(rates), in_whole_vectors(left_out - rates)
        return cls(offsets, weights, rates, without, prior, np.full(K, np.nan))

    def parts(self) -> dict[str, np.ndarray]:
        """Return the evidence as arrays, of which `restored` makes the placement again."""
        arrays = {}
        for name in _EVIDENCE:
            arrays[name] = getattr(self, name)
        return arrays | {"temperature": np.array([self.temperature])}

    @classmethod
    def restored(
        cls, parts: Mapping[str, np.ndarray], offsets: np.ndarray, n_clusters: int, weights: Weights | None
    ) -> Placement:
        """Return the placement of `parts`; raises KeyError or ValueError for others."""
        default, table = (n_clusters,), (int(offsets[-1]), padded(n_clusters))
        shapes = {"rates": table, "without": table, "temperature": (1,)}
        evidence: dict[str, Any] = {}
        for name in (*_EVIDENCE, "temperature"):
            if parts[name].shape != shapes.get(name, default) or parts[name].dtype != float:
                raise ValueError("arrays of other shapes")
            evidence[name] = parts[name]
        return cls(offsets, weights, **{**evidence, "temperature": float(parts["temperature"][0])})

    def place(
        self, labels: np.ndarray, clusters: np.ndarray | None, *, soft: bool = False, fixed: bool = False
    ) -> Placed:
        """Return a block placed by the evidence; ``soft``: with memberships, tempered, and how far to trust.

        ``clusters`` (rows,): where the evidence counts the objects, -1 for nowhere; None if it counts no
        object. ``fixed``: the objects stay in them, and labels tell only how far to trust that.
        """
        from bigcons.kernels.tree import UNPLACED, place

        rows, K, B = len(labels), self.prior.size, self.offsets[-1]
        current = np.full(rows, -1, np.int32) if clusters is None else clusters.astype(np.int32)
        assigned, memberships = np.empty(rows, np.int32), np.empty((rows if soft else 0, K), np.float32)
        T, sizes, totals = np.zeros((0 if fixed else B, padded(K))), np.zeros(K), np.zeros(2)
        confidence, agreements = np.zeros(K), np.zeros((3, 2, K))
        stats = {"T": T, "sizes": sizes, "totals": totals, "confidence": confidence, "agreements": agreements}
        temperature = self.temperature if soft else 1.0
        if labels.dtype.kind == "f":
            from scipy.sparse import csr_array

            labels = counted_labels(labels, self.weights)
            objects = np.flatnonzero(current >= 0)
            numbers = current[objects]
            scores = csr_array(labels) @ self.rates[:, :K] + self.prior
            shifts = csr_array(labels[objects] ** 2) @ self.without[:, :K]  # without the object itself
            scores[objects, numbers] += shifts[np.arange(objects.size), numbers]
            scores *= temperature
            labeled: np.ndarray = np.asarray(labels.any(axis=1))
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
            return Placed(assigned, memberships, np.empty(0, TRUST_ROW), stats)
        if self.weights is not None and not (self.weights.partitions > 0).all():
            current[~are_labeled(labels, self.offsets, self.weights.partitions)] = UNPLACED
        shares, other_shares = np.empty((2, rows if soft or fixed else 0), np.float32)
        runners_up = np.empty(shares.size, np.int32)
        place(
            *(labels, current, fixed, self.offsets, random_half(self.offsets.size - 1)),
            *(self.rates, self.without, self.prior, temperature),
            *(assigned, memberships, shares, runners_up, other_shares, *stats.values()),
        )
        factor = support_factor(self.support)
        confidence *= factor
        trust = trust_rows(assigned[: shares.size], shares, runners_up, other_shares, factor)
        return Placed(assigned, memberships, trust, stats)

    def memberships(self, labels: np.ndarray) -> np.ndarray:
        """Return the memberships (rows, K) float32 of objects that the evidence does not count."""
        return self.place(labels, None, soft=True).memberships


_EVIDENCE = ("rates", "without", "prior", "support")


def trust_rows(
    clusters: np.ndarray,
    confidence: np.ndarray,
    second: np.ndarray,
    second_confidence: np.ndarray,
    factor: np.ndarray,
) -> np.ndarray:
    """Return how far to trust objects, (rows,) `TRUST_ROW`: probabilities times the ``factor`` (K,).

    ``clusters`` (rows,) and ``second``: -1 for none.
    """
    rows, factor = np.empty(confidence.size, TRUST_ROW), np.append(factor, np.float32(0))
    columns = confidence * factor[clusters], second, second_confidence * factor[second]
    for name, values in zip(TRUST, columns, strict=True):
        rows[name] = values
    return rows


def log_rates(table: np.ndarray, sizes: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``log P(b | k)`` (B, K) from the contingency table (K, B), and without one object of k in b.

    Every base cluster gets `EXTRA` more objects, of the clusters in proportion to their sizes, so that no
    label excludes a cluster, and one that no other object has tells nothing.
    """
    extra = EXTRA * sizes / sizes.sum()
    width = np.diff(offsets)
    partition_counts = np.repeat(np.add.reduceat(table, offsets[:-1], axis=1), width, axis=1)
    added = np.repeat(width, width) * extra[:, None]
    rates = np.log((table + extra[:, None]) / (partition_counts + added)).T
    left_out = (np.maximum(table - 1, 0) + extra[:, None]) / (np.maximum(partition_counts - 1, 0) + added)
    left_out = np.log(left_out).T
    return np.ascontiguousarray(rates), np.ascontiguousarray(left_out)


def random_half(n_partitions: int) -> np.ndarray:
    """Return which partitions (M,) are in the first of two halves, bool."""
    return np.asarray(generator(SEED, "trust.halves").permutation(n_partitions) < n_partitions // 2)


def independent_share(
    labels: np.ndarray,
    clusters: np.ndarray,
    offsets: np.ndarray,
    table: np.ndarray,
    log_rates: np.ndarray,
    own_log_rates: np.ndarray,
    weights: np.ndarray | None = None,
) -> float:
    """Return the temperature: the share of the partitions that would be as uncertain if independent.

    The evidence of the labels (rows, M) of a sample for their cluster, against the cluster that comes next on
    average, would vary within a cluster as much as the sum over its partitions if these were independent
    given the cluster. It varies more if they repeat each other, or if some objects are harder than others.
    The share is the expected variance over the observed one, at most 1 and at least that of one partition:
    any number of copies are worth one. ``table`` (K, B) as of `Evidence`, the rates (B, K) as in `log_rates`,
    each times the weight of its partition in ``weights`` (M,), which stands for that many independent ones.
    Of soft clusterings, ``labels`` are memberships (rows, B), and the variances are measured in the sample.
    """
    labeled = clusters >= 0
    if not labeled.all():
        labels, clusters = labels[labeled], clusters[labeled]
    K, M, widths = table.shape[0], offsets.size - 1, np.diff(offsets)
    if K == 1:
        return 1.0
    incidence = incidence_of(labels, offsets)
    sums = incidence @ log_rates
    totals = np.array([sums[clusters == k].sum(axis=0) for k in range(K)])
    np.fill_diagonal(totals, -np.inf)
    following = totals.round(6).argmax(axis=1)  # round: rounding settles no tie
    weights = np.ones(M) if weights is None else weights
    inverses = np.divide(1.0, weights, out=np.zeros(M), where=weights > 0)
    if labels.dtype.kind == "f":
        expected, observed_variance = 0.0, 0.0
        for k in range(K):
            rows = labels[clusters == k].astype(np.float64)
            evidence = rows * (log_rates[:, k] - log_rates[:, following[k]])
            evidence += rows**2 * (own_log_rates[:, k] - log_rates[:, k])
            evidence, is_seen = np.add.reduceat(evidence, offsets[:-1], axis=1), observed(rows, offsets)
            evidence -= is_seen * (evidence.sum(axis=0) / np.maximum(is_seen.sum(axis=0), 1))
            expected += float(((evidence**2).sum(axis=0) * inverses).sum())
            observed_variance += float((evidence.sum(axis=1) ** 2).sum())
        return float(np.clip(ratio(expected, observed_variance, 1.0), 1 / max(weights.sum(), 1), 1))
    evidence = own_log_rates - np.take(log_rates, following, axis=1)
    counts = np.maximum(np.add.reduceat(table, offsets[:-1], axis=1).T, 1)
    means = np.add.reduceat(table.T * evidence, offsets[:-1], axis=0) / counts
    deviations = evidence - np.repeat(means, widths, axis=0)
    variances = np.add.reduceat(table.T * deviations**2, offsets[:-1], axis=0) / counts * inverses[:, None]
    cells = np.arange(clusters.size), clusters
    observed_variance = ((incidence @ deviations)[cells] ** 2).sum()
    expected = (incidence @ np.repeat(variances, widths, axis=0))[cells].sum()
    return float(np.clip(ratio(expected, observed_variance, 1.0), 1 / max(weights.sum(), 1), 1))
