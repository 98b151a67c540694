"""How good a consensus is: against a known truth, against the ensemble, by features and memberships.

Labels are whole numbers or text; negative numbers, None and NaN are missing. The objects labeled in both
clusterings are compared. Labels are read block by block, so they may be memory-mapped or in Zarr. In place of
labels stands a fitted clusterer or a `Consensus`. Each criterion of two is one of `bigcons.contingency`.

Memberships are ``(n_objects, n_clusters)`` with rows on the simplex, or anything of that shape whose rows can
be sliced; or a `Consensus` or a fitted soft method, whose unlabeled objects count as in no cluster.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from bigcons import contingency as tables
from bigcons.coassociation.counts import dense_of_rows
from bigcons.divergences import Divergence, resolve_divergence
from bigcons.errors import InvalidInputError, quote
from bigcons.io.features import (
    CATEGORY,
    DATE,
    NUMBER,
    ColumnCode,
    as_arrow,
    kind_of,
    numbers_of,
    open_features,
    texts_of,
)  # fmt: skip
from bigcons.io.labels import LabelColumn, names_of_rows, refuse_other_rows, stored_result
from bigcons.io.sources import open_source
from bigcons.memory import BLOCK_ROWS, TILE_ROWS, Block, DataBudget, parse_size, row_blocks, rows_within
from bigcons.progress import progress
from bigcons.run.engine import fold, open_engine
from bigcons.seeding import SeedLike, draw_rows, generator, resolve_seed
from bigcons.store.consensus import Consensus
from bigcons.store.ensemble import Ensemble, as_ensemble
from bigcons.store.ensemble_store import SUM_TOLERANCE, sum_to_one
from bigcons.store.pairs import PairTable, pairs_of
from bigcons.trust.confidence import trust
from bigcons.validation import check_choice, check_int, check_number, check_partition_weights

__all__ = [
    "adjusted_rand", "anmi", "average_criterion", "cluster_centroids", "cluster_names", "cluster_overlap",
    "cluster_profiles", "compactness", "consistency_index", "contingency", "error_roc", "error_roc_auc",
    "expected_loss", "jensen_shannon", "learning_curve", "matching_accuracy", "micro_precision", "nmi", "pac",
    "paired_t_test", "partition_agreement", "pcc_objective", "purity", "rand_index", "relative_nmi",
    "reliability", "trust", "van_dongen", "variation_of_information", "vat_order",
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
    table = _table_of(a=a, b=b)
    tables.check_size(table.shape)
    return table if isinstance(table, np.ndarray) else np.asarray(table.toarray())


def _table_of(**labels: Any) -> Any:
    """Return the contingency table of two clusterings, by their names in messages."""
    return tables.table_of(*(LabelColumn(name, column) for name, column in labels.items()))


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
    return float(_MODES[mode](_table_of(truth=truth, labels=labels)))


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
    return float(tables.rand_index(_table_of(a=a, b=b)))


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
    return float(tables.adjusted_rand(_table_of(truth=truth, labels=labels)))


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
    return float(tables.van_dongen(_table_of(a=a, b=b)))


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
    return float(tables.nmi(_table_of(a=a, b=b)))


def relative_nmi(truth: Any, labels: Any, reference: Any) -> float:
    """Return the NMI of ``labels`` with ``truth`` over the NMI of ``reference``, a clustering of all data.

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
    reference_nmi = nmi(truth, reference)
    if reference_nmi == 0:
        raise InvalidInputError(
            "reference has NMI 0 with truth, so the ratio is undefined; pass a better clustering."
        )
    return nmi(truth, labels) / reference_nmi


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
    return float(tables.variation_of_information(_table_of(a=a, b=b)))


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
    `matching_accuracy`. ``confidence`` (n_objects,), from 0 to 1, is what `trust` returns, or the largest
    membership of each object. Labels as in `contingency`; objects without a class or a label are left out.

    Examples
    --------
    >>> import bigcons as bc
    >>> result = bc.metrics.reliability([0, 0, 1, 1], [0, 0, 1, 0], [0.9, 0.9, 0.8, 0.4], n_bins=2)
    >>> result.accuracy
    array([0., 1.])
    >>> round(result.error, 3)
    0.2
    """
    n_bins, confidence = check_int("n_bins", n_bins), getattr(confidence, "confidence", confidence)
    columns = LabelColumn("truth", truth), LabelColumn("labels", labels)
    n, values = columns[1].n_objects, np.asarray(confidence, np.float64).ravel()
    for column in columns[::-1]:
        names, others = names_of_rows(confidence), (f"{column.name} has", column.n_objects, column.row_names)
        tables.refuse_other_objects("confidence", values.size, names, *others)
    table = tables.table_of(*columns)  # whose rows and columns are the labels of compared objects, ascending
    classes, clusters = (column.codes(0, n) for column in columns)
    is_judged = (classes >= 0) & (clusters >= 0)
    values = values[is_judged]
    classes, clusters = (np.unique(codes[is_judged], return_inverse=True)[1] for codes in (classes, clusters))
    if not ((values >= 0) & (values <= 1)).all():
        raise InvalidInputError("confidence leaves 0 to 1; pass probabilities.")
    class_of = np.full(table.shape[1], -1)
    rows, matches = tables.best_matching(table)
    class_of[matches] = rows
    bins = np.minimum((values * n_bins).astype(np.int64), n_bins - 1)
    is_right = class_of[clusters] == classes
    sizes, expected, right = (np.bincount(bins, weights, n_bins) for weights in (None, values, is_right))
    error = np.abs(right - expected).sum() / np.float64(sizes.sum())
    means = tables.ratio(expected, sizes), tables.ratio(right, sizes)
    return Reliability(sizes.astype(np.int64), *means, float(error))


# Without a truth: a consensus and its ensemble, and this with itself


def anmi(x: Any, labels: Any, *, weights: Any = None, client: object = None) -> float:
    """Return the average NMI of ``labels`` with the partitions of ``x``, in [0, 1].

    Each NMI compares the objects labeled in both, and has their number as its weight (Strehl and Ghosh
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
    mean, coverage = _mean_and_coverage(tables.nmi, x, labels, weights, client)
    return coverage * mean


def average_criterion(
    criterion: str, x: Any, labels: Any, *, weighted: bool = False, weights: Any = None, client: object = None
) -> float:
    """Return the mean of a criterion of ``labels`` with each partition of ``x``.

    The criteria ``Perf`` of Nguyen and Caruana (2007): how well a consensus agrees with its ensemble. Where
    partitions are draws from a posterior, the mean of "variation_of_information" is the expected loss of a
    clustering (Wade and Ghahramani 2018), and one minus the mean of "rand_index" the loss of Binder (1978).

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
    per task, or for the nonzero counts alone if that is more than there are labels. Raises InvalidInputError
    if the lengths differ or no object is labeled in both.

    Examples
    --------
    >>> import bigcons as bc
    >>> partitions = [[0, 0], [0, 1], [1, 2], [1, 2]]
    >>> round(bc.metrics.average_criterion("rand_index", partitions, [0, 0, 1, 1]), 3)
    0.917
    """
    function = tables.SYMMETRIC[check_choice("criterion", criterion, tuple(tables.SYMMETRIC))]
    return _mean_and_coverage(function, x, labels, weights, client, weighted=weighted)[0]


def cluster_names(x: Any, labels: Any, *, client: object = None) -> dict[Any, str]:
    """Return a name for each cluster: the text label that its objects have most often, in all partitions.

    Use it for partitions that share names, such as cell types by several annotators. Clusters with the same
    name get a number after the first: "T cell", "T cell 2". Of equally frequent names, the first in
    alphabetical order counts. Partitions whose labels are numbers are ignored.

    Parameters
    ----------
    x
        An ensemble, or anything `Ensemble.from_labels` takes.
    labels
        ``(n_objects,)``, as in `contingency`. These labels are the keys of the result.
    client
        Engine.

    One pass over the ensemble. Raises InvalidInputError if the lengths differ, or the objects of a cluster
    have no label in text.

    Examples
    --------
    >>> import bigcons as bc
    >>> types = [["T cell", "T cell"], ["T cell", "NK"], ["B cell", "B cell"], ["B cell", None]]
    >>> bc.metrics.cluster_names(types, [0, 0, 1, 1])
    {0: 'T cell', 1: 'B cell'}
    """
    from scipy.sparse import csr_array

    ensemble = as_ensemble(x)
    codes, values = tables.codes_for(ensemble, labels)
    with open_engine(client) as engine:
        counts = tables.count_with_partitions(ensemble, codes, len(values), engine, sparse=True)[0][1:]
    names = []
    for n_clusters, values_of in zip(ensemble.n_clusters, ensemble.categories, strict=True):
        originals = [None] * n_clusters if values_of is None else list(values_of)
        names += [original if isinstance(original, str) else "" for original in originals]
    distinct, inverse = np.unique(names, return_inverse=True)
    columns = np.flatnonzero(distinct[inverse] != "")
    ones = np.ones(columns.size, np.int64), (columns, inverse[columns])
    totals = counts @ csr_array(ones, (len(names), distinct.size))
    nameless = values[np.diff(totals.indptr) == 0]
    if nameless.size:
        raise InvalidInputError(
            f"the objects of cluster {nameless[0]} have no label in text; give partitions whose labels are "
            "names."
        )
    texts = [str(distinct[best]) for best in totals.argmax(axis=1)]
    times = [texts[: k + 1].count(name) for k, name in enumerate(texts)]
    numbered = [name if n == 1 else f"{name} {n}" for name, n in zip(texts, times, strict=True)]
    return dict(zip(values.tolist(), numbered, strict=True))


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
    if check_choice("loss", loss, ("vi", "binder")) == "vi":
        return _mean_and_coverage(tables.variation_of_information, x, labels, weights, client)[0]
    return 1.0 - _mean_and_coverage(tables.rand_index, x, labels, weights, client)[0]


def _mean_and_coverage(
    criterion: tables.Criterion, x: Any, labels: Any, weights: Any, client: object, *, weighted: bool = True
) -> tuple[float, float]:
    """Return the mean of a criterion, and the share of all labels that is of objects with a label here."""
    ensemble = as_ensemble(x)
    codes, values = tables.codes_for(ensemble, labels)
    column_weights: Any = 1
    if weights is not None:
        weights = check_partition_weights(weights, ensemble.n_partitions)
        column_weights = np.repeat(weights, ensemble.n_clusters)
    sparse = tables.is_sparse((len(values), ensemble.n_base_clusters), int(ensemble.n_labeled.sum()))
    with open_engine(client) as engine:
        table = tables.count_with_partitions(ensemble, codes, len(values), engine, sparse=sparse)[0]
    mean = tables.mean_over_partitions(
        criterion, table[1:], ensemble.offsets, weighted=weighted, weights=weights
    )
    return mean, float(1.0 - (column_weights * table[0]).sum() / (column_weights * table).sum())


def pac(x: Any, *, n_objects: int = 1000, random_state: SeedLike = 0) -> float:
    """Return the proportion of ambiguous clustering, from 0 to 1: pairs of which partitions disagree.

    That is the share of the pairs of objects whose co-association, the share of the partitions labeling both
    that join them, is above 0.1 and at most 0.9: the rise of the consensus CDF between these values
    (Șenbabaoğlu, Michailidis and Li 2014). Use it to compare ensembles whose partitions all have the same
    number of clusters; partitions with different numbers disagree by design. Independent labels in many
    clusters also have few ambiguous pairs, since nearly all pairs are apart: to see whether clusters are
    real, use `bigcons.choose_n_clusters`.

    ``x`` is an ensemble of labels, or anything `Ensemble.from_labels` takes; of more than ``n_objects``
    objects, a random sample. O(n_objects^2 n_partitions) time, O(n_objects^2) memory. Raises
    InvalidInputError if no partition labels two of the objects.

    Examples
    --------
    >>> import bigcons as bc
    >>> bc.metrics.pac([[0, 0], [0, 0], [1, 0], [1, 1]])
    0.5
    """
    n_objects = check_int("n_objects", n_objects, at_least=2)
    ensemble = as_ensemble(x)
    rows = draw_rows(ensemble.n_objects, n_objects, resolve_seed(random_state), "metrics.ambiguity")
    agree, seen = (counts[np.triu_indices(len(rows), 1)] for counts in dense_of_rows(ensemble, rows))
    if not seen.any():
        raise InvalidInputError(
            f"no partition labels two of {len(rows)} sampled objects; pass an ensemble with more labels, or "
            "a larger n_objects."
        )
    shares = agree[seen > 0] / seen[seen > 0]
    return float(((shares > 0.1) & (shares <= 0.9)).mean())


def partition_agreement(x: Any) -> pa.Table:
    """Return the partitions of an ensemble and how well they agree with each other.

    The table has the columns ``partition``, its name; ``n_clusters``; ``n_labeled``, its objects with a
    label; ``coverage``, their share; ``agreement``, its mean adjusted Rand index with the other partitions,
    near 0 if it is random; ``redundancy``, its largest index with another; and ``most_alike``, the name of
    that one. Agreement is measured on at most 2,048 sampled objects and, if there are more than a thousand
    partitions, with some of the others; it is null for a partition that labels no object in common with them.

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
    index, references = partition_similarity(ensemble)
    is_known, names = ~np.isnan(index), np.array([*ensemble.names, None], object)
    has_other, known_index = is_known.any(axis=1), np.where(is_known, index, -np.inf)
    columns = {
        "partition": names[:-1],
        "n_clusters": ensemble.n_clusters,
        "n_labeled": ensemble.n_labeled,
        "coverage": ensemble.n_labeled / ensemble.n_objects,
        "agreement": tables.ratio(np.where(is_known, index, 0.0).sum(axis=1), is_known.sum(axis=1)),
        "redundancy": np.where(has_other, known_index.max(axis=1), np.nan),
        "most_alike": names[np.where(has_other, references[known_index.argmax(axis=1)], -1)],
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
    seed, scores = resolve_seed(random_state), np.empty((len(sizes), n_repetitions))
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
    that ``a`` is lower. It is SciPy's, which gives NaN for scores equal in every run. Wang, Shan and Banerjee
    (2009, table 4) test in this way whether the mixture model has a lower micro-precision than
    Bayesian cluster ensembles.

    Examples
    --------
    >>> import bigcons as bc
    >>> test = bc.metrics.paired_t_test([0.61, 0.58, 0.63], [0.70, 0.66, 0.74])
    >>> round(test.p_value, 4)
    0.0044
    """
    from scipy.stats import ttest_rel

    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if a.shape != b.shape:
        raise InvalidInputError(f"a has {a.size} scores but b {b.size}; pass one of every run, in one order.")
    statistic, p_value = ttest_rel(a, b, alternative="less")
    return PairedTTest(*map(float, ((a - b).mean(), a.std(ddof=1), b.std(ddof=1), statistic, p_value)))


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
    return float(np.trapezoid(*error_roc(linkage, classes, row_of_object=row_of_object)))


def error_roc(linkage: Any, classes: Any, *, row_of_object: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the two errors ``(e1, e2)`` of every cut of a dendrogram, from the finest to the coarsest.

    ``e1`` is the share of pairs of the same class that a cut separates, ``e2`` the share of pairs of
    different classes that it joins (Aidos, Duin and Fred 2013). The curve runs from (1, 0), all objects
    apart, to (0, 1), all in one cluster.

    Parameters
    ----------
    linkage
        ``(n_points - 1, 4)``, as `scipy.cluster.hierarchy.linkage` returns, or the ``linkage_`` of `EAC` or
        `DID`. Merges are made in the order of its rows, also at equal heights.
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
    n_points = merges.size // 4 + 1
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
    pairs, sizes = np.zeros((n_points + 1, 2)), counts.sum(axis=1)
    same = (counts * (counts - 1)).sum() / 2
    pairs[1] = same, (sizes * (sizes - 1)).sum() / 2 - same
    row_of = np.concatenate([np.arange(n_points), np.zeros(len(merges), np.int64)])
    for step, (left, right) in enumerate(merges[:, :2].astype(np.int64)):
        into, merged = counts[row_of[left]], counts[row_of[right]]
        same = into @ merged
        pairs[step + 2] = same, into.sum() * merged.sum() - same
        into += merged
        row_of[n_points + step] = row_of[left]
    n_same, n_different = pairs.cumsum(axis=0).T
    if n_same[-1] == 0 or n_different[-1] == 0:
        raise InvalidInputError(
            "classes has no two objects of the same class, or none of different classes, so one of the "
            "errors is undefined; pass at least two classes, one of them with several objects."
        )
    first = 1 if row_of_object is None else 0  # points that are objects join none
    return 1.0 - n_same[first:] / n_same[-1], n_different[first:] / n_different[-1]


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
    shape, n = np.shape(dissimilarities), int(np.size(dissimilarities) ** 0.5)
    if shape != (n, n):
        raise InvalidInputError(f"dissimilarities has shape {shape}; pass (n, n), one for each two objects.")
    distances = np.nan_to_num(np.asarray(dissimilarities, np.float64), nan=np.inf, posinf=np.inf)
    order, to_placed, candidates = np.empty(n, np.int64), np.full(n, np.inf), np.arange(n)
    for position in range(n):
        current = candidates[np.argmin(to_placed[candidates])] if position else np.argmax(distances) // n
        order[position], candidates = current, candidates[candidates != current]
        np.minimum(to_placed, distances[current], out=to_placed)
    return order


def compactness(features: object, labels: Any, *, client: object = None) -> float:
    """Return the mean Euclidean distance within clusters, each weighted by its size.

    ``(1/n) sum_k n_k (mean of d(x_i, x_j) over the pairs of cluster k)`` (Nguyen and Caruana 2007), where a
    cluster of one object counts as 0. Lower is more compact; it decreases with the number of clusters, so
    compare at equal numbers.

    Parameters
    ----------
    features
        ``(n_objects, n_features)``: anything that `bigcons.io.features.open_features` takes.
    labels
        ``(n_objects,)``, as in `contingency`; ``n`` counts the objects with a label, others are left out.
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

    data, column = open_features(features), LabelColumn("labels", labels)
    reference = "the features have", data.n_objects, data.ids or names_of_rows(features)
    tables.refuse_other_objects("labels", column.n_objects, column.row_names, *reference)
    codes = column.codes(0, column.n_objects)
    sizes = np.bincount(codes[codes >= 0], minlength=column.n_clusters)

    def sums_of_block(block: Block) -> np.ndarray:
        """Return the sum of distances per cluster over the pairs of a block's rows and with later rows."""
        sums, row_codes = np.zeros(column.n_clusters), codes[block.start : block.stop]
        rows = data.read(block.start, block.stop).astype(np.float64, copy=False)
        for peer in data.blocks()[block.index :]:
            is_same, other_codes = peer.index == block.index, codes[peer.start : peer.stop]
            other_rows = rows if is_same else data.read(peer.start, peer.stop).astype(np.float64, copy=False)
            for cluster in np.intersect1d(row_codes[row_codes >= 0], other_codes).tolist():
                left, right = rows[row_codes == cluster], other_rows[other_codes == cluster]
                for a in range(0, len(left), TILE_ROWS):
                    for b in range(0, len(right), TILE_ROWS):
                        distances = cdist(left[a : a + TILE_ROWS], right[b : b + TILE_ROWS])
                        sums[cluster] += distances.sum() / (2 if is_same else 1)  # there, each pair twice
        return sums

    with open_engine(client) as engine:
        distances = fold(engine, data.blocks(), sums_of_block, np.add, progress="visit pairs")
    n_pairs = np.maximum(sizes * (sizes - 1.0) / 2.0, 1.0)  # a single object: 0 / 1
    return float((sizes * distances / n_pairs).sum() / sizes.sum())


# Of memberships


class MembershipRows:
    """Memberships read by blocks in float64, zero for objects of a consensus or model in no cluster."""

    def __init__(self, name: str, memberships: Any, n_objects: int | None = None, owner: str = "") -> None:
        """Refuse memberships without rows, or of more or fewer than the ``n_objects`` of the ``owner``."""
        self.name: str = name
        self._source = memberships = stored_result(memberships)
        self.labels: Any = None
        if hasattr(type(memberships), "fit") or hasattr(memberships, "n_partitions"):
            if not hasattr(memberships, "memberships_"):
                remedy = "it finds labels alone: use a soft method, such as ConsensusTree or PCC"
                remedy = remedy if hasattr(memberships, "labels_") else "pass a consensus that was made of it"
                raise InvalidInputError(f"{type(memberships).__name__} has no memberships_; {remedy}.")
            self.labels, rows = memberships.labels_, memberships.memberships_
        elif isinstance(memberships, Consensus):
            self.labels, rows = memberships.label_rows, memberships.membership_rows
        else:
            rows = memberships if hasattr(memberships, "shape") else np.asarray(memberships)
        self.rows: Any = rows
        if len(rows.shape) != 2 or 0 in rows.shape:
            raise InvalidInputError(
                f"{name} has shape {rows.shape}; pass memberships (n_objects, n_clusters), not empty."
            )
        self.n_objects: int = int(rows.shape[0])
        self.n_clusters: int = int(rows.shape[1])
        if n_objects is not None:
            tables.refuse_other_objects(name, self.n_objects, None, owner, n_objects)

    def blocks(self) -> list[Block]:
        """Return blocks: whole chunks of a store, some megabytes of an array."""
        if isinstance(self._source, Consensus):
            return self._source.blocks()
        return row_blocks(self.n_objects, max(1, (1 << 21) // self.n_clusters))

    def read(self, block: Block, threshold: float = 0.0) -> np.ndarray:
        """Return the memberships of a block ``(rows, n_clusters)``; refuse rows off the simplex.

        With a ``threshold``, memberships below it are 0 and the others normalized; a row without others is 0.
        """
        part = slice(block.start, block.stop)
        rows = np.asarray(self.rows[part]).astype(np.float64, order="C")
        sums = rows.sum(axis=1, keepdims=True)
        fits = (rows >= 0).all(axis=1) & sum_to_one(sums[:, 0])
        if not fits.all():
            row = int(np.argmin(fits))
            raise InvalidInputError(
                f"row {block.start + row} of {self.name} has sum {rows[row].sum():.6g} and least entry "
                f"{rows[row].min():.6g}; memberships are >= 0 and sum to 1: normalize them."
            )
        is_rounded = np.abs(sums[:, 0] - 1) > SUM_TOLERANCE
        rows[is_rounded] /= sums[is_rounded]
        if self.labels is not None:
            rows[self.labels[part] < 0] = 0.0
        if threshold > 0:
            rows[rows < threshold] = 0.0
            totals = rows.sum(axis=1, keepdims=True)
            np.divide(rows, totals, out=rows, where=totals > 0)
        return rows


def jensen_shannon(y: Any, z: Any, *, client: object = None) -> float:
    """Return the J criterion: the mean Jensen-Shannon divergence of memberships, clusters matched best.

    ``y`` ``(n_objects, ky)`` and ``z`` ``(n_objects, kz)`` have rows on the simplex; the one with fewer
    clusters is padded with zero columns. Symmetric, in bits, so between 0 (equal up to names) and 1.

    The divergence is a sum over clusters, so the best matching is an assignment problem, solved exactly
    (Lourenço et al. 2015). Arrays on disk, such as Zarr's, are read block by block. O(n_objects k^2) time.

    Examples
    --------
    >>> import bigcons as bc
    >>> round(bc.metrics.jensen_shannon([[1, 0], [0.5, 0.5]], [[0, 1], [0.4, 0.6]]), 4)
    0.0036
    """
    from scipy.optimize import linear_sum_assignment
    from scipy.special import rel_entr

    first = MembershipRows("y", y)
    second = MembershipRows("z", z, first.n_objects, "y has")
    n_clusters = max(first.n_clusters, second.n_clusters)

    def costs_of_block(block: Block) -> np.ndarray:
        """Return the divergence between each cluster of ``y`` and each of ``z``."""
        a, b = np.zeros((2, block.n_rows, n_clusters))
        a[:, : first.n_clusters], b[:, : second.n_clusters] = first.read(block), second.read(block)
        a, b = a[:, :, None], b[:, None, :]
        middle = (a + b) / 2
        divergence = rel_entr(a, middle) + rel_entr(b, middle)
        return np.asarray(divergence.sum(axis=0) / (2 * np.log(2)))

    blocks = row_blocks(first.n_objects, max(1, (1 << 21) // n_clusters**2))
    with open_engine(client) as engine:
        costs = fold(engine, blocks, costs_of_block, np.add)
    return float(costs[linear_sum_assignment(costs)].sum() / first.n_objects)


def cluster_overlap(memberships: Any, threshold: float = 0.0, *, client: object = None) -> np.ndarray:
    """Return the weights of the cluster-overlap graph ``(n_clusters, n_clusters)`` float64.

    ``[a, b]`` is the share of cluster ``a`` that also lies in ``b``, ``sum_i y_ai y_bi / sum_i y_ai``, after
    memberships below ``threshold`` are set to zero and the others normalized again (Lourenço et al. 2015,
    where the printed ``Q_j`` is a typo). Not symmetric; 1 on the diagonal by definition. The row of a cluster
    without objects is 0 elsewhere.

    Parameters
    ----------
    memberships
        ``(n_objects, n_clusters)``, rows on the simplex; or a `Consensus` or a fitted soft method, whose
        unlabeled objects are left out.
    threshold
        From 0 to 1. An object whose memberships are all below it is left out.
    client
        Engine.

    One pass; O(n_objects n_clusters^2).

    Examples
    --------
    >>> import bigcons as bc
    >>> memberships = [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]
    >>> bc.metrics.cluster_overlap(memberships).round(2)
    array([[1.  , 0.29],
           [0.38, 1.  ]])
    """
    return overlap_and_sizes(memberships, threshold, client)[0]


def overlap_and_sizes(memberships: Any, threshold: float, client: object) -> tuple[np.ndarray, np.ndarray]:
    """Return what `cluster_overlap` does, and the sums of memberships of the clusters ``(n_clusters,)``."""
    check_number("threshold", threshold, at_least=0, at_most=1)
    rows = MembershipRows("memberships", memberships)

    def overlap_of_block(block: Block) -> np.ndarray:
        weights = rows.read(block, threshold)
        return np.concatenate([np.einsum("ia,ib->ab", weights, weights), [weights.sum(axis=0)]])

    with open_engine(client) as engine:
        sums = fold(engine, rows.blocks(), overlap_of_block, np.add, progress="overlap of clusters")
    joint, sizes = sums[:-1], sums[-1]
    overlap = np.divide(joint, sizes[:, None], out=np.zeros_like(joint), where=sizes[:, None] > 0)
    np.fill_diagonal(overlap, 1.0)
    return overlap, sizes


def cluster_centroids(features: object, memberships: Any, threshold: float = 0.0) -> np.ndarray:
    """Return the mean of the features in each cluster ``(n_clusters, n_features)`` float64.

    ``sum_i y_ki x_i / sum_i y_ki``, after memberships below ``threshold`` are set to zero and the others
    normalized again (Lourenço et al. 2015); NaN for a cluster without objects.

    ``features`` is anything that `bigcons.io.features.open_features` takes; ``memberships`` and
    ``threshold`` as in `cluster_overlap`. One pass over both, block by block, in this process; O(n_objects
    n_clusters n_features) time. Raises InvalidInputError if they have different numbers of objects.

    Examples
    --------
    >>> import bigcons as bc
    >>> import numpy as np
    >>> memberships = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    >>> bc.metrics.cluster_centroids(np.array([[0.0], [3.0], [6.0]]), memberships)
    array([[1.],
           [5.]])
    """
    check_number("threshold", threshold, at_least=0, at_most=1)
    data = open_features(features)
    rows = MembershipRows("memberships", memberships, data.n_objects, "the features have")
    sums, sizes = np.zeros((rows.n_clusters, data.n_features)), np.zeros(rows.n_clusters)
    with progress("centroids of clusters", data.n_objects) as listener:
        for block, values in data.iterate():
            weights = rows.read(block, threshold)
            sums += np.einsum("ia,ib->ab", weights, values)  # not BLAS, whose sums depend on its threads
            sizes += weights.sum(axis=0)
            listener.advance(block.n_rows)
    return np.divide(sums, sizes[:, None], out=np.full_like(sums, np.nan), where=sizes[:, None] > 0)


def pcc_objective(
    x: Any,
    memberships: Any,
    *,
    divergence: str | Divergence = "l2",
    pairs: str | os.PathLike[str] | PairTable = "all",
    constant: bool = True,
    client: object = None,
) -> float:
    """Return ``sum N_ij d(c_ij / N_ij, y_i.y_j)`` over the pairs (Lourenço et al. 2015, equation 4).

    ``memberships`` are ``(n_objects, n_clusters)``, rows on the simplex. ``pairs`` is "all", a PairTable, or
    the path of one (``x`` is then not read and may be None).

    ``constant=False``, for the squared divergence over all pairs only, leaves out the term
    ``sum c_ij^2 / N_ij``, which memberships do not change, as ``PCC(pairs="all").objective_`` does. It takes
    one pass over the labels and the memberships, which may be on disk, such as
    ``Consensus.membership_rows``. Otherwise all pairs take O(n^2 (M + K)) time, with memberships in memory.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0], [0, 0], [1, 1]]
    >>> bc.metrics.pcc_objective(labels, [[1, 0], [1, 0], [0, 1]])
    0.0
    >>> bc.metrics.pcc_objective(labels, [[1, 0], [0, 1], [0, 1]])
    4.0
    """
    from bigcons.coassociation.factorized import add_sums, agreement_sums
    from bigcons.kernels.label_rows import over_pairs, over_tile

    are_all = isinstance(pairs, str) and pairs == "all"
    resolved, rows = resolve_divergence(divergence), MembershipRows("memberships", memberships)
    source = as_ensemble(x) if are_all else pairs_of(pairs, rows.n_objects)
    n = source.n_objects
    rows = MembershipRows("memberships", memberships, n, "the ensemble has" if are_all else "pairs has")
    value, _, _ = resolved.compiled
    if isinstance(source, PairTable):
        return float(over_pairs(*source.edges(), rows.read(Block(0, 0, n)), value))
    ensemble = source
    if not constant:
        if resolved.name != "l2":
            raise InvalidInputError(
                f"constant=False with divergence={resolved.name!r}; only 'l2' has such a constant."
            )

        def sums_of_block(block: Block) -> Any:
            labels = ensemble.read(block.start, block.stop)
            return agreement_sums(labels, ensemble.offsets, rows.read(block).astype(np.float32))

        with open_engine(client) as engine:
            return float(fold(engine, ensemble.blocks(), sums_of_block, add_sums).objective)
    if n > 50_000:  # a pair takes about 20 + M ns: a minute or two
        raise InvalidInputError(
            f"n_objects={n} makes {n * (n - 1) // 2:.3g} pairs, too many to visit; pass constant=False (l2), "
            "or a sampled PairTable."
        )
    labels, all_rows = ensemble.read(0, n), rows.read(Block(0, 0, n))
    side = 512  # of a tile of the n x n square, so that two blocks of labels stay in the cache

    def value_of_tiles(block: Block) -> float:
        return float(over_tile(labels, all_rows, block.start, block.stop, side, value))

    with open_engine(client) as engine:
        return fold(engine, row_blocks(n, side), value_of_tiles, lambda a, b: a + b)


# What is in each cluster, by features that are read once

MAX_CATEGORIES, N_TEXTS = 1000, 3
"""Text with more distinct values names objects or is prose; the tables list so many values of other text."""


class ClusterProfiles(NamedTuple):
    """What is in each cluster; see `cluster_profiles`."""

    numbers: pa.Table
    """One row per cluster and column of numbers."""
    categories: pa.Table
    """The most frequent values of each cluster and column of text."""
    left_out: dict[str, str]
    """Why columns are in no table, by name."""
    dates: pa.Table
    """One row per cluster and column of dates."""
    followed: list[str]
    """Columns of few values of which each cluster has one, where most columns are not like that."""

    def followed_in_words(self) -> str:
        """Return what the clusters follow in a sentence, empty if it is nothing."""
        if not self.followed:
            return ""
        subject, pronoun = ("it", "it") if len(self.followed) == 1 else ("each of them", "them")
        return (
            f"The clusters follow {quote(self.followed)}: almost all objects of a cluster have the same "
            f"value of {subject}. Unless that is what you look for, leave {pronoun} out with drop= (--drop)."
        )


def cluster_profiles(features: Any, labels: Any, *, memory: int | str = "1GB") -> ClusterProfiles:
    """Return what is in each cluster, by the columns of any table of its objects.

    The table ``numbers`` has the columns ``cluster``; ``feature``; ``n``, how many objects have a value;
    their ``mean`` and ``std``; ``overall``, the mean of the objects of all clusters; and ``difference``, the
    mean minus the overall mean, in standard deviations of all objects. The table ``categories`` has the three
    most frequent texts of each cluster: ``cluster``; ``feature``; ``category``; ``share``, of the objects of
    the cluster that have a value; ``overall``, the share in all clusters; and ``lift``, the share divided by
    the overall share. The table ``dates`` is like ``numbers``: ``mean`` and ``overall`` are dates, and
    ``std`` is in days.

    The list ``followed`` has the columns that the clusters repeat, unless these are more than half of the
    columns that vary: text, and booleans or numbers with no more different values than there are clusters, if
    at least 90 % of their variance is between the clusters (for text, the variance of its one-hot columns:
    Goodman and Kruskal's tau). Objects without a value count in the total.

    Parameters
    ----------
    features
        Anything `Ensemble.from_labels` takes, with one row per object, in the order of the objects: numbers,
        booleans, text and dates, each of which may be missing. `bigcons.select` chooses columns and says
        which values are missing. Text with more than 1,000 different values, or for 200 objects and more,
        with a different value for every two objects, is left out.
    labels
        Labels ``(n_objects,)``, negative for none; a fitted method; or a `Consensus`.
    memory
        For reading and counting, besides what the process holds.

    One pass over the features and two over the labels. Memory for a block and, of each cluster, four
    numbers per column and up to 1,000 counts per column of text. Raises InvalidInputError for another number
    of rows, MemoryBudgetError if the counts do not fit.

    Examples
    --------
    >>> import bigcons as bc
    >>> import pyarrow as pa
    >>> people = pa.table({"age": [20, 30, 60, 70], "city": ["Bern", "Bern", "Oslo", "Rome"]})
    >>> profiles = bc.metrics.cluster_profiles(people, [0, 0, 1, 1])
    >>> profiles.numbers["mean"].to_pylist()
    [25.0, 65.0]
    >>> profiles.categories.slice(0, 1).to_pylist()
    [{'cluster': 0, 'feature': 'city', 'category': 'Bern', 'share': 1.0, 'overall': 0.5, 'lift': 2.0}]
    """
    table, column = open_source(features, "features"), LabelColumn("labels", labels)
    refuse_other_rows("labels", column.row_names, table.where, table.ids or names_of_rows(features))
    names, K = table.names or [f"f{c}" for c in table.positions], column.n_clusters
    n_text = sum(kind_of(kind) == CATEGORY for kind in table.column_types() or ())
    row_bytes = 8 * table.n_columns if table.is_sparse else table.row_bytes
    rows_that_fit = rows_within(
        DataBudget(parse_size(memory)), row_bytes + 64, at_least=256,
        fixed=int(table.held_bytes + K * (32 * len(names) + 8 * MAX_CATEGORIES * (n_text + 1))),
        noun=f"counts of {K:,} clusters by {len(names):,} columns",
    )  # fmt: skip
    entries = [
        _Column(ColumnCode(name, NUMBER, missing=table.rule.more_words), c in table.categorical, K)
        for c, name in enumerate(names)
    ]
    start, n_labeled = 0, 0
    with progress("what is in each cluster", column.n_objects) as listener:
        for rows in table.batches(min(rows_that_fit, BLOCK_ROWS), columns=list(range(len(names)))):
            values = rows if isinstance(rows, list) else (rows.toarray() if table.is_sparse else rows).T
            n_rows = len(values[0])
            codes = column.codes(start, min(start + n_rows, column.n_objects))
            start += n_rows
            if start > column.n_objects:
                break
            n_labeled += int(np.count_nonzero(codes >= 0))
            for entry, cells in zip(entries, values, strict=True):
                entry.add(cells, codes, table.where)
            listener.advance(n_rows)
    if start != column.n_objects:
        raise InvalidInputError(
            f"{table.where} has {max(start, table.n_rows or 0):,} rows or more but there are "
            f"{column.n_objects:,} labels; give one row per object, in their order."
        )
    kinds: dict[str, list[_Column]] = {kind: [] for kind in (NUMBER, CATEGORY, DATE, "")}
    for entry in entries:
        if 2 * len(entry.texts) > entry.counts.sum() >= 200:
            entry.why_not = entry.why_not or "most objects have a text of their own"
        kinds["" if entry.why_not else entry.kind].append(entry)
    shares = {entry.name: entry.share_between(n_labeled) for entry in entries if entry not in kinds[""]}
    # nearly all variance of a column of few values is between clusters which follow it
    followed = [name for name, share in shares.items() if share >= 0.9]
    n_varying = np.count_nonzero(~np.isnan(list(shares.values())))
    return ClusterProfiles(
        _table_of_numbers(kinds[NUMBER], column.values),
        _table_of_texts(kinds[CATEGORY], column.values),
        {entry.name: entry.why_not or "it has no value" for entry in kinds[""]},
        _table_of_numbers(kinds[DATE], column.values, are_dates=True),
        followed if 2 * len(followed) <= n_varying else [],
    )


class _Column:
    """Sums of the numbers or counts of the texts of a column, in each of K clusters."""

    def __init__(self, code: ColumnCode, is_category: bool, n_clusters: int) -> None:
        self.name, self._code, self._is_category = code.name, code, is_category
        self.kind = ""
        """NUMBER, DATE or CATEGORY; empty before the first value."""
        self.why_not = ""
        """Why it is left out."""
        self.sums = np.zeros((3, n_clusters))
        """Number of values, their sum and the sum of their squares, less the shift."""
        self.shift: float | None = None
        self._values: np.ndarray | None = np.empty(0)
        """The different numbers; None if there are more than clusters."""
        self.texts: dict[str, int] = {}
        self.counts = np.zeros((n_clusters, 0), np.int64)
        """(K, texts): how many objects have each text."""

    def add(self, column: Any, codes: np.ndarray, where: str) -> None:
        """Count a block of values, of objects with these codes of clusters."""
        if self.why_not:
            return
        kind, numbers = NUMBER, np.empty(0)
        try:
            if self._is_category or not isinstance(column, np.ndarray) or column.dtype.kind not in "buif":
                column = as_arrow(column, self.name, where)
                kind = CATEGORY if self._is_category else kind_of(column.type) or ""
            if kind in (NUMBER, DATE):
                numbers = numbers_of(column, self._code._replace(kind=kind), where)
        except InvalidInputError:
            self.why_not = "it has values of several types"
            return
        if kind in (NUMBER, DATE) and np.isnan(numbers).all():
            return
        if kind not in (NUMBER, DATE, CATEGORY):
            self.why_not = f"it has type {column.type}"
        elif self.kind not in ("", kind):
            self.why_not = "it has values of several types"
        elif kind == CATEGORY:
            self._add_texts(*texts_of(column, self._code.missing), codes)
        else:
            self.kind = kind
            self._add_numbers(np.round(86_400.0 * numbers, 3) if kind == DATE else numbers, codes)

    def _add_numbers(self, numbers: np.ndarray, codes: np.ndarray) -> None:
        is_counted, K = np.isfinite(numbers) & (codes >= 0), self.sums.shape[1]
        numbers, codes = numbers[is_counted], codes[is_counted]
        if self.shift is None and numbers.size:
            self.shift = float(np.median(numbers))  # so that means of booleans are exact
        if self._values is not None:
            values = np.union1d(self._values, numbers)
            self._values = values if values.size <= K else None
        numbers = numbers - (self.shift or 0.0)
        for row, weights in zip(self.sums, (None, numbers, numbers**2), strict=True):
            row += np.bincount(codes, weights, K)

    def _add_texts(self, texts: Sequence[str | None], rows: np.ndarray, codes: np.ndarray) -> None:
        code_of, K = self.texts, len(self.counts)
        numbers = [-1 if text is None else code_of.setdefault(text, len(code_of)) for text in texts]
        if len(code_of) > MAX_CATEGORIES:
            self.why_not = f"it has more than {MAX_CATEGORIES:,} different texts"
        elif code_of:
            self.kind = CATEGORY
            numbers_of_rows = np.array([*numbers, -1])[rows]
            is_counted = (numbers_of_rows >= 0) & (codes >= 0)
            cells = codes[is_counted] * len(code_of) + numbers_of_rows[is_counted]
            self.counts = np.pad(self.counts, ((0, 0), (0, len(code_of) - self.counts.shape[1])))
            self.counts += np.bincount(cells, minlength=self.counts.size).reshape(K, -1)

    def share_between(self, n_labeled: int) -> float:
        """Return the share of the variance that is between clusters, times the share of objects with a value.

        0 of numbers with more values than clusters, NaN if no two values differ.
        """
        n, sums, squares = self.sums[0], self.sums[1][:, None], self.sums[2].sum()
        values = self._values
        if self.kind == CATEGORY:
            sums = self.counts.astype(np.float64)
            n, squares, values = sums.sum(axis=1), sums.sum(), np.flatnonzero(sums.any(axis=0))
        if values is None:
            return 0.0
        if values.size < 2:
            return np.nan
        within = squares - (sums**2 / np.maximum(n, 1.0)[:, None]).sum()
        total = squares - (sums.sum(axis=0) ** 2).sum() / n.sum()
        return float((1.0 - within / total) * n.sum() / n_labeled)


def _table_of_numbers(columns: list[_Column], clusters: np.ndarray, *, are_dates: bool = False) -> pa.Table:
    """Return a row for every cluster and column of numbers, or of dates in seconds, by cluster."""
    shape = len(columns), len(clusters)
    n, sums, squares = np.array([entry.sums for entry in columns]).reshape(-1, 3, shape[1]).transpose(1, 0, 2)
    shift = np.array([entry.shift or 0.0 for entry in columns])[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        mean, n_total = sums / n, n.sum(axis=1, keepdims=True)
        overall = sums.sum(axis=1, keepdims=True) / n_total
        spread = np.sqrt(np.maximum(squares.sum(axis=1, keepdims=True) / n_total - overall**2, 0.0))
        std = np.sqrt(np.maximum(squares / n - mean**2, 0.0))
        difference = np.where(spread > 0, (mean - overall) / spread, 0.0 * mean)
    arrays = {}
    for name, kind, values in (
        ("cluster", pa.string() if clusters.dtype == object else pa.int64(), clusters),
        ("feature", pa.string(), np.array([entry.name for entry in columns], object)[:, None]),
        ("n", pa.int64(), n.astype(np.int64)),
        ("mean", pa.timestamp("s") if are_dates else pa.float64(), mean + shift),
        ("std", pa.float64(), std / 86_400.0 if are_dates else std),
        ("overall", pa.timestamp("s") if are_dates else pa.float64(), overall + shift),
        ("difference", pa.float64(), difference),
    ):
        array = pa.array(np.broadcast_to(values, shape).ravel(order="F"), from_pandas=True)
        is_date = pa.types.is_timestamp(kind)
        arrays[name] = (array.cast(pa.int64(), safe=False) if is_date else array).cast(kind)
    return pa.table(arrays)


def _table_of_texts(columns: list[_Column], clusters: np.ndarray) -> pa.Table:
    """Return the most frequent texts of every cluster and column of text, by cluster."""
    rows, shares = [], [entry.counts.sum(axis=0) / np.maximum(entry.counts.sum(), 1) for entry in columns]
    for k, cluster in enumerate(clusters.tolist()):
        for entry, overall in zip(columns, shares, strict=True):
            texts, counts = list(entry.texts), entry.counts[k]
            for c in np.argsort(-counts, kind="stable")[:N_TEXTS].tolist():
                if counts[c]:
                    share = counts[c] / counts.sum()
                    rows.append((cluster, entry.name, texts[c], share, overall[c], share / overall[c]))
    names = ("cluster", "feature", "category", "share", "overall", "lift")
    kinds = (pa.string() if clusters.dtype == object else pa.int64(), *[pa.string()] * 2, *[pa.float64()] * 3)
    columns_of_rows = zip(*rows, strict=True) if rows else ((),) * len(names)
    return pa.table([pa.array(*entry) for entry in zip(columns_of_rows, kinds, strict=True)], list(names))


def __dir__() -> list[str]:
    return sorted(__all__)
