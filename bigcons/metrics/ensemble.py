"""Criteria without a truth: how well a consensus agrees with its ensemble, and this with itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from bigcons import contingency as tables
from bigcons.coassociation.counts import dense
from bigcons.errors import InvalidInputError
from bigcons.run.engine import open_engine
from bigcons.seeding import SeedLike, draw_rows, resolve_seed
from bigcons.store.ensemble import Ensemble, as_ensemble
from bigcons.validation import check_choice, check_int, check_number, check_partition_weights

__all__ = ["anmi", "average_criterion", "expected_loss", "pac", "partition_agreement"]

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
    criterion: str,
    x: Any,
    labels: Any,
    *,
    weighted: bool = False,
    weights: Any = None,
    client: object = None,
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
    x: Any,
    labels: Any,
    *,
    loss: str = "vi",
    weights: Any = None,
    client: object = None,
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
    x: Any,
    *,
    lower: float = 0.1,
    upper: float = 0.9,
    n_objects: int = 1000,
    random_state: SeedLike = 0,
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
