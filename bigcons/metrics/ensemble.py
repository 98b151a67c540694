"""Criteria without a truth: how well a consensus agrees with its ensemble, and this with itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bigcons.coassociation.counts import dense
from bigcons.errors import InvalidInputError
from bigcons.metrics.clusterings import OF_TWO_CLUSTERINGS, Criterion, joined_pairs, lost_information
from bigcons.metrics.partitions import codes_for, count_with_partitions
from bigcons.run.engine import open_engine
from bigcons.seeding import SeedLike, draw_rows, resolve_seed
from bigcons.store.ensemble import as_ensemble
from bigcons.validation import check_choice, check_int, check_number, check_partition_weights

NONE_COMPARED = (
    "no object is labeled both in labels and in a partition; pass labels of the ensemble's objects."
)


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
    return anmi_of_tables(*partition_tables(x, labels, weights=weights, client=client), weights)


def anmi_of_tables(tables: Sequence[np.ndarray], covered: float, weights: Any = None) -> float:
    """Return `anmi` from what `partition_tables` returns."""
    return covered * average_of_tables(OF_TWO_CLUSTERINGS["nmi"], tables, weighted=True, weights=weights)


def average_criterion(
    criterion: str | Criterion,
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
        "variation_of_information"; or a function of a contingency table whose rows are the clusters of
        ``labels``, without empty rows or columns.
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
    if isinstance(criterion, str):
        check_choice("criterion", criterion, tuple(OF_TWO_CLUSTERINGS))
        of_table: Criterion = OF_TWO_CLUSTERINGS[criterion]
    elif callable(criterion):
        of_table = _one_by_one(criterion)
    else:
        raise InvalidInputError(
            f"criterion has type {type(criterion).__name__}; pass a name such as 'nmi' or a function of a "
            "contingency table."
        )
    tables, _ = partition_tables(x, labels, weights=weights, client=client)
    return average_of_tables(of_table, tables, weighted=weighted, weights=weights)


def expected_loss(
    x: Any,
    labels: Any,
    *,
    loss: str = "vi",
    split_cost: float = 1.0,
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
    split_cost
        What it costs to separate what belongs together, from 0 to 2, if to join what belongs apart costs 2
        minus that: 1 gives the usual losses, more gives fewer and larger clusters (Dahl, Johnson and Müller
        2022). Of "vi" the two costs are of the entropy of ``labels`` given the partition and of the partition
        given ``labels``.
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
    of_table = loss_of_table(loss, split_cost)
    tables, _ = partition_tables(x, labels, weights=weights, client=client)
    return average_of_tables(of_table, tables, weighted=True, weights=weights)


def check_loss(loss: object, split_cost: object) -> tuple[str, float]:
    """Return the name of a loss and the cost of splitting, checked."""
    chosen = check_choice("loss", loss, ("vi", "binder"))
    return chosen, check_number("split_cost", split_cost, at_least=0.0, at_most=2.0)


def loss_of_table(loss: str, split_cost: float) -> Criterion:
    """Return the loss of stacks of tables ``(..., n_clusters, k)`` of labels (rows) and a partition."""
    loss, split_cost = check_loss(loss, split_cost)

    def of_table(tables: np.ndarray) -> Any:
        if loss == "vi":
            of_rows, of_columns = lost_information(tables)
            return (2.0 - split_cost) * of_rows + split_cost * of_columns
        together, in_rows, in_columns, all_pairs = joined_pairs(tables)
        wrong = (2.0 - split_cost) * (in_rows - together) + split_cost * (in_columns - together)
        return wrong / np.maximum(all_pairs, 1.0)

    return of_table


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
    shares = pair_shares(x, n_objects, random_state)
    return float(((shares > lower) & (shares <= upper)).mean())


def pair_shares(x: Any, n_objects: int, random_state: SeedLike) -> np.ndarray:
    """Return the co-association, ascending, of all pairs of sampled objects that some partition labels."""
    ensemble = as_ensemble(x)
    check_int("n_objects", n_objects, at_least=2)
    rows = draw_rows(ensemble.n_objects, n_objects, resolve_seed(random_state), "metrics.ambiguity")
    upper = np.triu_indices(len(rows), 1)
    agree, seen = (counts[upper] for counts in dense(ensemble.read_rows(rows)))
    known = seen > 0
    if not known.any():
        raise InvalidInputError(
            f"no partition labels two of {len(rows)} sampled objects; pass an ensemble with more labels, or "
            "a larger n_objects."
        )
    return np.sort(agree[known] / seen[known])


# Sums over partitions


def average_of_tables(
    criterion: Criterion, tables: Sequence[np.ndarray], *, weighted: bool, weights: Any = None
) -> float:
    """Return `average_criterion` from the contingency tables of labels with every partition.

    ``criterion`` takes stacks of tables, as those of `OF_TWO_CLUSTERINGS` do.
    """
    values, sizes = values_of_tables(criterion, tables)
    given = np.ones(len(tables)) if weights is None else np.asarray(weights, np.float64)
    counted = (given > 0) & (sizes > 0)
    if not counted.any():
        raise InvalidInputError(NONE_COMPARED)
    counts = given * sizes if weighted else given
    return float(np.average(values[counted], weights=counts[counted]))


def values_of_tables(criterion: Criterion, tables: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return a criterion of each table, as `average_of_tables` takes it, and the number of objects in it.

    (n_partitions,) float64 each; the criterion is 0 of a table without objects.
    """
    widths = np.array([table.shape[1] for table in tables])
    values, sizes = np.zeros(len(tables)), np.array([float(table.sum()) for table in tables])
    for width in np.unique(widths):
        if (alike := np.flatnonzero((widths == width) & (sizes > 0))).size:
            values[alike] = criterion(np.stack([tables[u] for u in alike.tolist()]))
    return values, sizes


def _one_by_one(criterion: Criterion) -> Criterion:
    """Return a criterion of stacks from one of single tables without empty rows or columns."""

    def of_stack(tables: np.ndarray) -> np.ndarray:
        return np.array([criterion(table[table.any(axis=1)][:, table.any(axis=0)]) for table in tables])

    return of_stack


def partition_tables(
    x: Any, labels: Any, *, weights: Any = None, client: object = None
) -> tuple[list[np.ndarray], float]:
    """Return the contingency of ``labels`` with every partition, ``(n_clusters, k)`` int64 each, and the
    share of all labels of the partitions that is in them: those of objects that ``labels`` labels.

    The share counts partitions by their ``weights``, which are checked.
    """
    ensemble = as_ensemble(x)
    codes, values = codes_for(ensemble, labels)
    times: Any = 1
    if weights is not None:
        times = np.repeat(check_partition_weights(weights, ensemble.n_partitions), ensemble.n_clusters)
    with open_engine(client) as engine:
        table = count_with_partitions(ensemble, codes, len(values), engine)[0]
    left_out, of_clusters = table[0], table[1:]
    covered = 1.0 - (times * left_out).sum() / (times * table).sum()
    return np.split(of_clusters, ensemble.offsets[1:-1], axis=1), float(covered)
