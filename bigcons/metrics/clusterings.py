"""Criteria of clusterings: of two, of one and its ensemble, and those of the papers' experiments.

Labels are whole numbers or text; negative numbers, None and NaN are missing. The objects labeled in both
clusterings are compared. Labels are read block by block, so they may be memory-mapped or in Zarr. In place of
labels stands a fitted clusterer or a `Consensus`. Each is a criterion of `bigcons.contingency`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from bigcons import contingency as tables
from bigcons.coassociation.counts import dense
from bigcons.errors import InvalidInputError
from bigcons.io.features import open_features
from bigcons.io.labels import LabelColumn, names_of_rows
from bigcons.memory import TILE_ROWS, Block
from bigcons.progress import progress
from bigcons.run.engine import fold, open_engine
from bigcons.seeding import SeedLike, draw_rows, generator, resolve_seed
from bigcons.store.ensemble import Ensemble, as_ensemble
from bigcons.validation import check_choice, check_int, check_number, check_partition_weights

__all__ = [
    "adjusted_rand", "anmi", "average_criterion", "compactness", "consistency_index", "contingency",
    "error_roc", "error_roc_auc", "expected_loss", "learning_curve", "matching_accuracy", "micro_precision",
    "nmi", "pac", "paired_t_test", "partition_agreement", "purity", "rand_index", "relative_nmi",
    "reliability", "van_dongen", "variation_of_information", "vat_order",
]  # fmt: skip

_MODES = {"greedy": tables.greedy_accuracy, "majority": tables.purity, "hungarian": tables.matching_accuracy}


def contingency(a: Any, b: Any) -> np.ndarray:
    """Return how many objects lie in each cluster of ``a`` and each of ``b``: ``(ka, kb)`` int64.

    ``a`` and ``b`` are ``(n_objects,)`` labels, whole numbers or text, a fitted clusterer or a `Consensus`.
    Objects whose label is negative, None or NaN in either are left out. Rows and columns are in ascending
    order of the labels; labels of no compared object are left out, so no row or column is empty. Arrays are
    compared in their order; where indexes or ids show that the rows are others, or in another order, they are
    refused.

    Raises InvalidInputError for these, and if the lengths differ or no object is labeled in both.

    Examples
    --------
    >>> import bigcons as bc
    >>> bc.metrics.contingency([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7])
    array([[2, 1],
           [0, 3]])
    """
    return tables.table_of(LabelColumn("a", a), LabelColumn("b", b))


def _of_truth(truth: Any, labels: Any) -> np.ndarray:
    """Return the contingency of ``truth`` (rows) with ``labels`` (columns)."""
    return tables.table_of(LabelColumn("truth", truth), LabelColumn("labels", labels))


def matching_accuracy(truth: Any, labels: Any) -> float:
    """Return the H criterion: the share of objects in agreement under the best one-to-one matching.

    Clusters of ``labels`` are matched with classes of ``truth`` by the Hungarian method; if their numbers
    differ, some match nothing (Lourenço et al. 2015). In (0, 1], 1 if equal up to names. Labels as in
    `contingency`.

    Examples
    --------
    >>> import bigcons as bc
    >>> round(bc.metrics.matching_accuracy([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7]), 3)
    0.833
    """
    return micro_precision(truth, labels, mode="hungarian")


def consistency_index(truth: Any, labels: Any, *, matching: str = "hungarian") -> float:
    """Return the consistency index (CI), the share of objects in agreement under a one-to-one matching.

    With ``matching="hungarian"``, the best matching, it is the H criterion (`matching_accuracy`); with
    "greedy" the largest overlaps are matched first, as in Fred (2001).

    Examples
    --------
    >>> import bigcons as bc
    >>> round(bc.metrics.consistency_index([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7]), 3)
    0.833
    """
    check_choice("matching", matching, ("hungarian", "greedy"))
    return micro_precision(truth, labels, mode=matching)


def micro_precision(truth: Any, labels: Any, *, mode: str = "greedy") -> float:
    """Return the micro-precision (MP): the share of objects whose cluster represents their class.

    ``mode`` decides which class a cluster represents. "greedy" takes the largest cell of the contingency
    table, then the largest among the classes and clusters that remain, and so on (ties in ascending order of
    class, then of cluster); "hungarian" is the best one-to-one matching (`matching_accuracy`); "majority"
    lets several clusters represent one class (`purity`).

    Wang, Shan and Banerjee (2009) define it by the majority, but their tables have values below the share of
    the largest class, which is impossible with a majority: compare with them by the default.

    Examples
    --------
    >>> import bigcons as bc
    >>> round(bc.metrics.micro_precision([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7]), 3)
    0.833
    """
    check_choice("mode", mode, tuple(_MODES))
    return float(_MODES[mode](_of_truth(truth, labels)))


def purity(truth: Any, labels: Any) -> float:
    """Return the share of objects whose class is the most frequent one of their cluster.

    The accuracy of Nguyen and Caruana (2007). Many clusters may represent one class, so it grows with the
    number of clusters and is 1 for singletons: compare it at equal numbers of clusters only.

    Examples
    --------
    >>> import bigcons as bc
    >>> round(bc.metrics.purity([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7]), 3)
    0.833
    """
    return micro_precision(truth, labels, mode="majority")


def rand_index(a: Any, b: Any) -> float:
    """Return the share of pairs of objects that both clusterings join or both separate (Rand 1971).

    Symmetric, in [0, 1], 1 if equal up to names or if there is one object. With many clusters it is near 1 by
    chance alone; `adjusted_rand` corrects for that. The Rand distance of Nguyen and Caruana (2007), which
    they call adjusted, is 1 minus this index.

    Examples
    --------
    >>> import bigcons as bc
    >>> round(bc.metrics.rand_index([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7]), 3)
    0.667
    """
    return float(tables.rand_index(contingency(a, b)))


def adjusted_rand(truth: Any, labels: Any) -> float:
    """Return the adjusted Rand index of Hubert and Arabie (1985): 1 if equal, 0 on average by chance.

    Symmetric. 1 if both clusterings have a single cluster, or both have only singletons. Labels as in
    `contingency`: objects labeled -1, None or NaN in either are left out, whereas scikit-learn's
    ``adjusted_rand_score`` takes -1 as a cluster.

    Examples
    --------
    >>> import bigcons as bc
    >>> round(bc.metrics.adjusted_rand([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7]), 3)
    0.324
    """
    return float(tables.adjusted_rand(_of_truth(truth, labels)))


def van_dongen(a: Any, b: Any) -> float:
    """Return the normalized van Dongen distance: the share of objects to move to turn one into the other.

    ``1 - (sum of row maxima + sum of column maxima) / 2n`` of the contingency table (Nguyen and Caruana
    2007). A symmetric distance in [0, 1), 0 if equal up to names.

    Examples
    --------
    >>> import bigcons as bc
    >>> round(bc.metrics.van_dongen([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7]), 3)
    0.167
    """
    return float(tables.van_dongen(contingency(a, b)))


def nmi(a: Any, b: Any) -> float:
    """Return the mutual information of two clusterings over the geometric mean of their entropies.

    In [0, 1], 1 if equal up to names; 0 by definition if one of them has a single cluster (Strehl and Ghosh
    2002). Labels as in `contingency`.

    Examples
    --------
    >>> import bigcons as bc
    >>> round(bc.metrics.nmi([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7]), 3)
    0.479
    """
    return float(tables.nmi(contingency(a, b)))


def relative_nmi(truth: Any, labels: Any, reference: Any) -> float:
    """Return the NMI of ``labels`` with ``truth`` over that of ``reference``, a clustering of all the data.

    The quality of a consensus of clusterings of parts of the data relative to one clustering of all (Strehl
    and Ghosh 2002, object-distributed clustering); above 1 if it is better. Each NMI compares the objects
    labeled in both. Raises InvalidInputError if the reference has NMI 0 with the truth.

    Examples
    --------
    >>> import bigcons as bc
    >>> truth, reference = [0, 0, 1, 1], [0, 1, 1, 1]
    >>> round(bc.metrics.relative_nmi(truth, [0, 0, 1, 1], reference), 3)
    2.894
    """
    whole = nmi(truth, reference)
    if whole == 0:
        raise InvalidInputError(
            "reference has NMI 0 with truth, so the ratio is undefined; pass a better clustering."
        )
    return nmi(truth, labels) / whole


def variation_of_information(a: Any, b: Any) -> float:
    """Return the variation of information ``H(a) + H(b) - 2 I(a; b)`` of two clusterings, in nats.

    A metric of clusterings (Meilă 2007): symmetric, 0 exactly if they are equal up to names, at most
    ``log n``. Labels as in `contingency`. Nguyen and Caruana (2007) do not say which logarithm they use.

    Examples
    --------
    >>> import bigcons as bc
    >>> round(bc.metrics.variation_of_information([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7]), 3)
    0.693
    """
    return float(tables.variation_of_information(contingency(a, b)))


class Reliability(NamedTuple):
    """How often labels of a stated confidence are right; see `reliability`."""

    n_objects: np.ndarray
    """(n_bins,) int64"""
    confidence: np.ndarray
    """(n_bins,): the mean confidence of the objects of each bin, NaN if it has none."""
    accuracy: np.ndarray
    """(n_bins,): the share of them whose label is right."""
    error: float
    """The expected calibration error: the mean of ``|accuracy - confidence|``, bins by their objects."""


def reliability(truth: Any, labels: Any, confidence: Any, *, n_bins: int = 15) -> Reliability:
    """Return how often labels of a stated confidence are right, in bins of equal width from 0 to 1.

    A label is right if its cluster is matched with the object's class, in the best one-to-one matching, as in
    `matching_accuracy`. ``confidence`` (n_objects,), from 0 to 1, is that of `trust`, or the largest
    membership of each object. Labels as in `contingency`; objects without a class or a label are left out.

    Examples
    --------
    >>> import bigcons as bc
    >>> found = bc.metrics.reliability([0, 0, 1, 1], [0, 0, 1, 0], [0.9, 0.9, 0.8, 0.4], n_bins=2)
    >>> found.accuracy
    array([0., 1.])
    >>> round(found.error, 3)
    0.2
    """
    from scipy.optimize import linear_sum_assignment

    check_int("n_bins", n_bins)
    columns = LabelColumn("truth", truth), LabelColumn("labels", labels)
    n, names = columns[0].n_objects, columns[0].row_names
    tables.refuse_other_objects("labels", columns[1].n_objects, columns[1].row_names, "truth has", n, names)
    stated = np.asarray(confidence, np.float64).ravel()
    of_labels = columns[1].row_names
    tables.refuse_other_objects(
        "confidence", stated.size, names_of_rows(confidence), "labels has", n, of_labels
    )
    classes, clusters = (column.codes(0, n) for column in columns)
    judged = (classes >= 0) & (clusters >= 0)
    classes, clusters, stated = classes[judged], clusters[judged], stated[judged]
    if not ((stated >= 0) & (stated <= 1)).all():
        raise InvalidInputError("confidence leaves 0 to 1; pass probabilities.")
    table = np.zeros([column.n_clusters for column in columns], np.int64)
    np.add.at(table, (classes, clusters), 1)
    class_of = np.full(table.shape[1], -1)
    rows, matched = linear_sum_assignment(table, maximize=True)
    class_of[matched] = rows
    bins = np.minimum((stated * n_bins).astype(np.int64), n_bins - 1)
    is_right = class_of[clusters] == classes
    sizes, summed, right = (np.bincount(bins, weights, n_bins) for weights in (None, stated, is_right))
    error = np.abs(right - summed).sum() / np.float64(sizes.sum())
    return Reliability(
        sizes.astype(np.int64), tables.ratio(summed, sizes), tables.ratio(right, sizes), float(error)
    )


# Without a truth: a consensus and its ensemble, and this with itself


LOSSES = {"vi": tables.variation_of_information, "binder": tables.binder_loss}


def anmi(x: Any, labels: Any, *, weights: Any = None, client: object = None) -> float:
    """Return the average NMI of ``labels`` with the partitions of ``x``, in [0, 1].

    Each NMI is that of the objects labeled in both, and has their number as its weight (Strehl and Ghosh
    2002, for missing labels). In the paper a consensus labels every object. Here the labels of an object that
    it leaves out count with NMI 0, so that leaving out objects in doubt earns nothing; `average_criterion`
    with ``weighted=True`` leaves them out too. With ``weights`` (n_partitions,), numbers >= 0, each partition
    counts as if it occurred that many times. Cost and errors as in `average_criterion`.

    Examples
    --------
    >>> import bigcons as bc
    >>> partitions = [[0, 0], [0, 1], [1, 2], [1, 2]]
    >>> round(bc.metrics.anmi(partitions, [0, 0, 1, 1]), 3)
    0.908
    """
    mean, covered = _mean_and_coverage(tables.nmi, x, labels, weights, client)
    return covered * mean


def average_criterion(
    criterion: str, x: Any, labels: Any, *, weighted: bool = False, weights: Any = None, client: object = None
) -> float:
    """Return the mean of a criterion of ``labels`` with each partition of ``x``.

    The criteria ``Perf`` of Nguyen and Caruana (2007): how well a consensus agrees with its ensemble. Where
    partitions are draws from a posterior, the mean of "variation_of_information" is the expected loss of a
    clustering (Wade and Ghahramani 2018), and one minus that of "rand_index" the one of Binder (1978).

    Parameters
    ----------
    criterion
        "adjusted_rand", "matching_accuracy", "nmi", "rand_index", "van_dongen" or
        "variation_of_information".
    x
        An ensemble, or anything `Ensemble.from_labels` takes.
    labels
        ``(n_objects,)``, as in `contingency`.
    weighted
        Weight partitions by their number of compared objects instead of equally. `anmi` also counts the
        objects that ``labels`` leaves out.
    weights
        ``(n_partitions,)`` numbers >= 0 by which each partition counts, as if it occurred that many times;
        None: all count the same.
    client
        Engine.

    Each value compares the objects that both the partition and ``labels`` label; partitions without such an
    object are left out. One pass over the ensemble; memory for ``n_clusters`` by ``n_base_clusters`` counts
    per task. Raises InvalidInputError if the lengths differ or no object is labeled in both.

    Examples
    --------
    >>> import bigcons as bc
    >>> partitions = [[0, 0], [0, 1], [1, 2], [1, 2]]
    >>> round(bc.metrics.average_criterion("rand_index", partitions, [0, 0, 1, 1]), 3)
    0.917
    """
    of_tables = tables.SYMMETRIC[check_choice("criterion", criterion, tuple(tables.SYMMETRIC))]
    return _mean_and_coverage(of_tables, x, labels, weights, client, weighted=weighted)[0]


def expected_loss(
    x: Any, labels: Any, *, loss: str = "vi", weights: Any = None, client: object = None
) -> float:
    """Return the mean loss of ``labels`` over the partitions of ``x``, as if these were draws of the truth.

    In Bayesian cluster analysis the partitions are draws from a posterior, and the clustering of least
    expected loss is the point estimate (Binder 1978; Wade and Ghahramani 2018).

    Parameters
    ----------
    x
        An ensemble, or anything `Ensemble.from_labels` takes.
    labels
        ``(n_objects,)``, as in `contingency`.
    loss
        "vi", the `variation_of_information` in nats, or "binder", the share of pairs of objects that one of
        both clusterings joins and the other separates: one minus `rand_index`.
    weights
        ``(n_partitions,)`` numbers >= 0 by which each partition counts, as if it occurred that many times;
        None: all count the same.
    client
        Engine.

    Each loss compares the objects that both the partition and ``labels`` label, and has their number as its
    weight: a label counts the same in every partition. Of complete labels this is the plain mean. One pass
    over the ensemble; memory for ``n_clusters`` by ``n_base_clusters`` counts per task. Raises
    InvalidInputError if the lengths differ or no object is labeled in both.

    Examples
    --------
    >>> import bigcons as bc
    >>> partitions = [[0, 0], [0, 1], [1, 2], [1, 2]]
    >>> round(bc.metrics.expected_loss(partitions, [0, 0, 1, 1], loss="binder"), 3)
    0.083
    """
    of_tables = LOSSES[check_choice("loss", loss, tuple(LOSSES))]
    return _mean_and_coverage(of_tables, x, labels, weights, client)[0]


def _mean_and_coverage(
    criterion: tables.Criterion, x: Any, labels: Any, weights: Any, client: object, *, weighted: bool = True
) -> tuple[float, float]:
    """Return the mean of a criterion, and the share of all labels that is of objects with a label here."""
    ensemble = as_ensemble(x)
    codes, values = tables.codes_for(ensemble, labels)
    of_columns: Any = 1
    if weights is not None:
        weights = check_partition_weights(weights, ensemble.n_partitions)
        of_columns = np.repeat(weights, ensemble.n_clusters)
    with open_engine(client) as engine:
        table = tables.count_with_partitions(ensemble, codes, len(values), engine)[0]
    mean = tables.mean_over_partitions(
        criterion, table[1:], ensemble.offsets, weighted=weighted, weights=weights
    )
    return mean, float(1.0 - (of_columns * table[0]).sum() / (of_columns * table).sum())


def pac(
    x: Any, *, lower: float = 0.1, upper: float = 0.9, n_objects: int = 1000, random_state: SeedLike = 0
) -> float:
    """Return the proportion of ambiguous clustering, from 0 to 1: pairs of which partitions disagree.

    That is the share of the pairs of objects whose co-association, the share of the partitions labeling both
    that join them, is above ``lower`` and at most ``upper``: the rise of the consensus CDF between them
    (Șenbabaoğlu, Michailidis and Li 2014). It compares ensembles whose partitions all have one number of
    clusters; partitions of many numbers disagree by design. Independent labels of many clusters have few
    ambiguous pairs, too, as nearly all are apart: whether clusters are real, `bigcons.choose_n_clusters`
    tells.

    ``x`` is an ensemble of labels, or anything `Ensemble.from_labels` takes; of more than ``n_objects``
    objects, a random sample. O(n_objects^2 n_partitions) time, O(n_objects^2) memory. Raises
    InvalidInputError if no partition labels two of the objects.

    Examples
    --------
    >>> import bigcons as bc
    >>> bc.metrics.pac([[0, 0], [0, 0], [1, 0], [1, 1]])
    0.5
    """
    check_number("lower", lower, at_least=0, at_most=1)
    check_number("upper", upper, at_least=lower, at_most=1)
    check_int("n_objects", n_objects, at_least=2)
    ensemble = as_ensemble(x)
    rows = draw_rows(ensemble.n_objects, n_objects, resolve_seed(random_state), "metrics.ambiguity")
    agree, seen = (counts[np.triu_indices(len(rows), 1)] for counts in dense(ensemble.read_rows(rows)))
    if not seen.any():
        raise InvalidInputError(
            f"no partition labels two of {len(rows)} sampled objects; pass an ensemble with more labels, or "
            "a larger n_objects."
        )
    shares = agree[seen > 0] / seen[seen > 0]
    return float(((shares > lower) & (shares <= upper)).mean())


def partition_agreement(x: Any) -> pa.Table:
    """Return the partitions of an ensemble and how well they agree with each other.

    The table has the columns ``partition``, its name; ``n_clusters``; ``n_labeled``, its objects with a
    label; ``coverage``, their share; ``agreement``, its mean adjusted Rand index with the other partitions,
    near 0 if it is random; ``redundancy``, its largest; and ``most_alike``, the partition that has it.
    Agreement is of at most 2,048 sampled objects and, of more than a thousand partitions, with some of the
    others; null where no two partitions label the same.

    ``x`` is an ensemble of labels, or anything `Ensemble.from_labels` takes; `Ensemble.select` chooses
    among its partitions.

    Examples
    --------
    >>> import bigcons as bc
    >>> found = bc.metrics.partition_agreement([[0, 0, 0], [0, 0, 1], [1, 1, 0], [1, 1, 1]])
    >>> found.select(["partition", "agreement", "most_alike"]).to_pylist()[0]
    {'partition': 'p0', 'agreement': 0.25, 'most_alike': 'p1'}
    """
    ensemble = as_ensemble(x)
    index, others = partition_similarity(ensemble)
    is_known, names = ~np.isnan(index), np.array([*ensemble.names, None], object)
    has_other, filled = is_known.any(axis=1), np.where(is_known, index, -np.inf)
    columns = {
        "partition": names[:-1],
        "n_clusters": ensemble.n_clusters,
        "n_labeled": ensemble.n_labeled,
        "coverage": ensemble.n_labeled / ensemble.n_objects,
        "agreement": tables.ratio(np.where(is_known, index, 0.0).sum(axis=1), is_known.sum(axis=1)),
        "redundancy": np.where(has_other, filled.max(axis=1), np.nan),
        "most_alike": names[np.where(has_other, others[filled.argmax(axis=1)], -1)],
    }
    return pa.table({name: pa.array(values, from_pandas=True) for name, values in columns.items()})


def partition_similarity(ensemble: Ensemble) -> tuple[np.ndarray, np.ndarray]:
    """Return `adjusted_rand_of_partitions` on sampled objects."""
    rows = tables.sampled_rows(ensemble)
    labels = np.ascontiguousarray(ensemble.read_rows(rows), np.int32)
    return tables.adjusted_rand_of_partitions(labels, ensemble.offsets)


# Of the papers' experiments


def learning_curve(
    cluster: Callable[[np.ndarray, int], Any],
    truth: Any,
    sizes: Sequence[int],
    *,
    n_repetitions: int = 10,
    random_state: SeedLike = None,
) -> np.ndarray:
    """Return the quality of a method above chance on samples of several sizes ``(n_sizes, n_repetitions)``.

    That is the NMI of its labels with ``truth`` minus the NMI of a random labeling with as many, equally
    likely clusters, which is far from 0 on small samples (Strehl and Ghosh 2002, robust centralized
    clustering).

    Parameters
    ----------
    cluster
        Called as ``cluster(sample, seed)`` with ``(size,)`` ascending indices of objects and an integer;
        returns their ``(size,)`` labels, as in `contingency`.
    truth
        ``(n_objects,)``, as in `contingency`. Samples are drawn from the objects with a class.
    sizes
        Sizes of the samples, drawn without replacement and independently in each repetition.
    n_repetitions
        Samples of each size.
    random_state
        Seed of the samples, of the random labelings and of the seeds passed to ``cluster``.

    Raises InvalidInputError if a size exceeds the number of objects with a class.

    Examples
    --------
    >>> import bigcons as bc
    >>> import numpy as np
    >>> truth = np.repeat([0, 1], 50)
    >>> curve = bc.metrics.learning_curve(
    ...     lambda rows, seed: truth[rows], truth, [10, 50], n_repetitions=3, random_state=0
    ... )
    >>> curve.shape
    (2, 3)
    """
    column = LabelColumn("truth", truth)
    classes = column.codes(0, column.n_objects)
    labeled = np.flatnonzero(classes >= 0)
    for size in sizes:
        check_int("sizes", size, at_most=len(labeled))
    check_int("n_repetitions", n_repetitions)
    seed = resolve_seed(random_state)
    scores = np.empty((len(sizes), n_repetitions))
    for s, size in enumerate(sizes):
        for repetition in range(n_repetitions):
            rng = generator(seed, "learning_curve", s, repetition)
            sample = np.sort(rng.choice(labeled, size, replace=False))
            labels = LabelColumn("labels", cluster(sample, int(rng.integers(2**31))))
            codes = labels.codes(0, labels.n_objects)
            by_chance = rng.integers(labels.n_clusters, size=size)
            quality = nmi(classes[sample], codes)  # refuses labels of more or fewer objects
            scores[s, repetition] = quality - nmi(classes[sample], np.where(codes >= 0, by_chance, -1))
    return scores


class PairedTTest(NamedTuple):
    """A paired, one-sided t-test: the columns of table 4 in Wang et al. (2009), and the statistic."""

    mean_difference: float
    """Mean of ``a - b``."""
    sd_a: float
    sd_b: float
    statistic: float
    p_value: float


def paired_t_test(a: Any, b: Any) -> PairedTTest:
    """Test whether scores ``a`` have a lower mean than ``b``, paired by run: ``H_a: mean(a) < mean(b)``.

    ``a`` and ``b`` ``(n_runs,)`` are scores of two methods on the same ensembles; a small ``p_value`` means
    that ``a`` is lower. Scores equal in every run give p = 1/2. Wang, Shan and Banerjee (2009, table 4) test
    in this way whether the micro-precision of the mixture model is below that of Bayesian cluster ensembles.

    Examples
    --------
    >>> import bigcons as bc
    >>> test = bc.metrics.paired_t_test([0.61, 0.58, 0.63], [0.70, 0.66, 0.74])
    >>> round(test.p_value, 4)
    0.0044
    """
    from scipy.stats import ttest_rel

    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 1 or len(a) < 2 or not np.isfinite([a, b]).all():
        raise InvalidInputError(
            f"a has shape {a.shape} and b {b.shape}; "
            "pass finite scores of the same two or more runs, (n_runs,)."
        )
    differences = a - b
    statistic, p_value = 0.0, 0.5
    if np.ptp(differences) > 0:
        statistic, p_value = ttest_rel(a, b, alternative="less")
    elif differences[0] != 0:
        statistic, p_value = np.copysign(np.inf, differences[0]), float(differences[0] > 0)
    spread = (float(a.std(ddof=1)), float(b.std(ddof=1)))
    return PairedTTest(float(differences.mean()), *spread, float(statistic), float(p_value))


def error_roc_auc(linkage: Any, classes: Any, *, row_of_object: Any = None) -> float:
    """Return the area under the error curve of a dendrogram over all its cuts; lower is more robust.

    The area under `error_roc` by the trapezoidal rule (Aidos, Duin and Fred 2013), with the same parameters
    and errors: 0 if some cut equals the classes, and 1/2 by chance.

    Examples
    --------
    >>> import bigcons as bc
    >>> model = bc.EACAverage(2).fit([[0, 0], [0, 0], [0, 1], [1, 2]])
    >>> bc.metrics.error_roc_auc(model.linkage_, [0, 0, 0, 1], row_of_object=model.row_of_object_)
    0.0
    """
    separated, joined = error_roc(linkage, classes, row_of_object=row_of_object)
    return float(np.trapezoid(separated, joined))


def error_roc(linkage: Any, classes: Any, *, row_of_object: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the two errors ``(e1, e2)`` of every cut of a dendrogram, from the finest to the coarsest.

    ``e1`` is the share of pairs of the same class that a cut separates, ``e2`` the share of pairs of
    different classes that it joins (Aidos, Duin and Fred 2013). The curve runs from (1, 0), all objects
    apart, to (0, 1), all in one cluster.

    Parameters
    ----------
    linkage
        ``(n_points - 1, 4)``, as `scipy.cluster.hierarchy.linkage` returns, or the ``linkage_`` of `EAC` or
        `DID`. Merges are made in the order of its rows, those of equal height too.
    classes
        ``(n_objects,)``, as in `contingency`; objects without a class are in no pair.
    row_of_object
        ``(n_objects,)`` integers, the point of the dendrogram that stands for each object, -1 for none: the
        ``row_of_object_`` of `EAC` or `DID`. The objects of a point are joined before all others, in one
        step; objects of none are in no pair. By default the points are the objects.

    Returns two arrays float64, of length n_points; with ``row_of_object`` n_points + 1, where the first cut
    is the one before the objects of each point are joined.

    Raises InvalidInputError if no two objects share a class, or all do. O(n_objects + n_points n_classes)
    time and memory.

    Examples
    --------
    >>> import bigcons as bc
    >>> model = bc.EACAverage(2).fit([[0, 0], [0, 0], [0, 1], [1, 2]])
    >>> separated, joined = bc.metrics.error_roc(
    ...     model.linkage_, [0, 0, 0, 1], row_of_object=model.row_of_object_
    ... )
    >>> separated.round(2), joined.round(2)
    (array([1.  , 0.67, 0.  , 0.  ]), array([0., 0., 0., 1.]))
    """
    merges, column = np.asarray(linkage), LabelColumn("classes", classes)
    n_points = len(merges) + 1
    # every cluster but the last is merged once, after it is formed
    is_linkage = merges.shape[1:] == (4,) and set(merges[:, :2].ravel()) == set(range(2 * len(merges)))
    if not is_linkage or (merges[:, :2].max(axis=1) >= np.arange(n_points, 2 * n_points - 1)).any():
        raise InvalidInputError(
            f"linkage of shape {merges.shape} is not a linkage matrix; pass what "
            "scipy.cluster.hierarchy.linkage returns, (n_objects - 1, 4)."
        )
    rows = np.arange(n_points) if row_of_object is None else np.asarray(row_of_object)
    if rows.shape != (column.n_objects,) or rows.max() >= n_points:
        raise InvalidInputError(
            f"classes has {column.n_objects:,} objects but the linkage has {n_points:,}; pass one class per "
            "object, and the row_of_object_ of the estimator whose linkage_ it is."
        )
    codes = column.codes(0, column.n_objects)
    labeled = (codes >= 0) & (rows >= 0)
    counts = np.zeros((n_points, column.n_clusters))
    np.add.at(counts, (rows[labeled], codes[labeled]), 1)
    # pairs of the same class and of different ones: none at first, then within points, then of each merge
    joined, sizes = np.zeros((n_points + 1, 2)), counts.sum(axis=1)
    same = (counts * (counts - 1)).sum() / 2
    joined[1] = same, (sizes * (sizes - 1)).sum() / 2 - same
    row_of = np.concatenate([np.arange(n_points), np.zeros(len(merges), np.int64)])
    for step, (left, right) in enumerate(merges[:, :2].astype(np.int64)):
        into, gone = counts[row_of[left]], counts[row_of[right]]
        same = into @ gone
        joined[step + 2] = same, into.sum() * gone.sum() - same
        into += gone
        row_of[n_points + step] = row_of[left]
    of_same, of_different = joined.cumsum(axis=0).T
    if of_same[-1] == 0 or of_different[-1] == 0:
        raise InvalidInputError(
            "classes has no two objects of the same class, or none of different classes, so one of the "
            "errors is undefined; pass at least two classes, one of them with several objects."
        )
    first = 1 if row_of_object is None else 0  # points that are objects join none
    return 1.0 - of_same[first:] / of_same[-1], of_different[first:] / of_different[-1]


def vat_order(dissimilarities: np.ndarray) -> np.ndarray:
    """Return the order of objects in which clusters show as blocks on the diagonal (VAT).

    Bezdek and Hathaway (2002): begin at one end of the largest dissimilarity, then repeatedly append the
    object nearest to those already placed (Prim's algorithm). Ties go to the lower index.

    ``dissimilarities`` is ``(n, n)`` and symmetric, for example ``1 - n_agree / n_seen``; NaN, for pairs
    that no partition labels, counts as farther than anything else. Returns a permutation ``(n,)`` int64.
    O(n^2) time and one copy of the matrix in memory, so order a sample if there are many objects.

    Examples
    --------
    >>> import bigcons as bc
    >>> import numpy as np
    >>> points = np.array([0.0, 9.0, 1.0, 10.0])
    >>> bc.metrics.vat_order(abs(points[:, None] - points))
    array([0, 2, 1, 3])
    """
    distances = np.asarray(dissimilarities, dtype=np.float64)
    if distances.ndim != 2 or distances.shape[0] != distances.shape[1]:
        raise InvalidInputError(
            f"dissimilarities has shape {distances.shape}; pass a square (n_objects, n_objects) matrix."
        )
    n = len(distances)
    distances = np.where(np.isnan(distances), np.inf, distances)
    order, to_placed, waiting = np.empty(n, np.int64), np.full(n, np.inf), np.arange(n)
    for position in range(n):
        current = waiting[np.argmin(to_placed[waiting])] if position else np.argmax(distances) // n
        order[position], waiting = current, waiting[waiting != current]
        np.minimum(to_placed, distances[current], out=to_placed)
    return order


def compactness(features: object, labels: Any, *, metric: str = "euclidean", client: object = None) -> float:
    """Return the mean distance between objects of the same cluster, clusters weighted by their size.

    ``(1/n) sum_k n_k (mean of d(x_i, x_j) over the pairs of cluster k)`` (Nguyen and Caruana 2007), where a
    cluster of one object counts as 0. Lower is more compact; it decreases with the number of clusters, so
    compare at equal numbers.

    Parameters
    ----------
    features
        ``(n_objects, n_features)``: anything that `bigcons.io.features.open_features` takes.
    labels
        ``(n_objects,)``, as in `contingency`; ``n`` counts the objects with a label, others are left out.
    metric
        "euclidean", "sqeuclidean" or "cityblock".
    client
        Engine for the pairs; a task holds two blocks of about a million values and a tile of distances.

    Every pair of a cluster is visited, in O(sum n_k^2 n_features) time, and each block is read n_blocks / 2
    times (convert a CSV file first: each read starts at its beginning).

    Raises InvalidInputError if the lengths differ or no object has a label.

    Examples
    --------
    >>> import bigcons as bc
    >>> import numpy as np
    >>> bc.metrics.compactness(np.array([[0.0], [2.0], [9.0], [10.0]]), [0, 0, 1, 1])
    1.5
    """
    from scipy.spatial.distance import cdist

    check_choice("metric", metric, ("euclidean", "sqeuclidean", "cityblock"))
    data, column = open_features(features), LabelColumn("labels", labels)
    others = "the features have", data.n_objects, data.ids or names_of_rows(features)
    tables.refuse_other_objects("labels", column.n_objects, column.row_names, *others)
    codes = column.codes(0, column.n_objects)
    sizes = np.bincount(codes[codes >= 0], minlength=column.n_clusters)

    def sums_of_block(block: Block) -> np.ndarray:
        """Return the sum of distances per cluster over the pairs of a block's rows and with later rows."""
        sums, here = np.zeros(column.n_clusters), codes[block.start : block.stop]
        rows = data.read(block.start, block.stop).astype(np.float64, copy=False)
        for other in data.blocks()[block.index :]:
            is_same, there = other.index == block.index, codes[other.start : other.stop]
            others = rows if is_same else data.read(other.start, other.stop).astype(np.float64, copy=False)
            for cluster in np.intersect1d(here[here >= 0], there).tolist():
                left, right = rows[here == cluster], others[there == cluster]
                for a in range(0, len(left), TILE_ROWS):
                    for b in range(0, len(right), TILE_ROWS):
                        distances = cdist(left[a : a + TILE_ROWS], right[b : b + TILE_ROWS], metric)
                        sums[cluster] += distances.sum() / (2 if is_same else 1)  # there, each pair twice
        return sums

    with open_engine(client) as engine, progress("visit pairs", data.n_objects) as listener:
        distances = fold(engine, data.blocks(), sums_of_block, np.add, progress=listener)
    n_pairs = np.maximum(sizes * (sizes - 1.0) / 2.0, 1.0)  # a single object: 0 / 1
    return float((sizes * distances / n_pairs).sum() / sizes.sum())
