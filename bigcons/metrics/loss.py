"""Expected loss of a clustering where partitions are draws of the true one, and its credible ball."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.execution.engine import open_engine
from bigcons.memory import Block
from bigcons.metrics.clusterings import Criterion, LabelColumn, joined_pairs, lost_information
from bigcons.metrics.ensemble import NONE_COMPARED, average_of_tables, partition_tables, values_of_tables
from bigcons.validation import check_choice, check_number


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
    expected loss is the point estimate (Binder 1978; Wade and Ghahramani 2018): `LeastLoss` searches for it.

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


class CredibleBall(NamedTuple):
    """The partitions nearest to a clustering, a given share of all, and the most extreme of them.

    Partitions are numbers of columns, from 0. The bounds are those of Wade and Ghahramani (2018); each lists
    all partitions that are equally far.

    Examples
    --------
    >>> import bigcons as bc
    >>> ball = bc.metrics.credible_ball([[0, 0], [0, 1], [1, 2]], [0, 0, 1])
    >>> type(ball).__name__, ball.horizontal.tolist()
    ('CredibleBall', [1])
    """

    radius: float
    """The least distance within which the share of the partitions lies."""
    distances: np.ndarray
    """``(n_partitions,)`` float64, of each partition from the clustering; NaN of those not compared."""
    is_inside: np.ndarray
    """``(n_partitions,)`` bool: whether the distance is at most the radius."""
    horizontal: np.ndarray
    """The farthest partitions inside."""
    upper: np.ndarray
    """The farthest of those inside with the fewest clusters."""
    lower: np.ndarray
    """The farthest of those inside with the most clusters."""


def credible_ball(
    x: Any,
    labels: Any,
    *,
    level: float = 0.95,
    loss: str = "vi",
    split_cost: float = 1.0,
    weights: Any = None,
    client: object = None,
) -> CredibleBall:
    """Return the smallest ball around ``labels`` that holds a share ``level`` of the partitions of ``x``.

    It tells how sure a consensus is: the radius is the quantile of the losses, and the bounds are the
    partitions of the ball that differ most from ``labels``, with the fewest and with the most clusters too
    (Wade and Ghahramani 2018). Partitions of weight 0, and those without an object that ``labels`` labels,
    are not in it. Clusters are counted among the objects compared.

    Parameters, cost and errors as in `expected_loss`; each partition counts by its weight alone.

    References
    ----------
    Wade and Ghahramani (2018), *Bayesian cluster analysis: point estimation and credible balls*, Bayesian
    Analysis 13.

    Examples
    --------
    >>> import bigcons as bc
    >>> partitions = [[0, 0, 0], [0, 0, 1], [1, 0, 2], [1, 0, 2]]
    >>> ball = bc.metrics.credible_ball(partitions, [0, 0, 1, 1], level=0.6)
    >>> round(ball.radius, 3), ball.is_inside.tolist(), ball.lower.tolist()
    (0.347, [True, False, True], [2])
    """
    share = check_number("level", level, at_least=0.0, at_most=1.0)
    of_table = loss_of_table(loss, split_cost)
    tables, _ = partition_tables(x, labels, weights=weights, client=client)
    times = np.ones(len(tables)) if weights is None else np.asarray(weights, np.float64)
    distances, sizes = values_of_tables(of_table, tables)
    counted = np.flatnonzero((times > 0) & (sizes > 0))
    if not counted.size:
        raise InvalidInputError(NONE_COMPARED)
    by_distance = counted[np.argsort(distances[counted], kind="stable")]
    held = np.cumsum(times[by_distance])
    last = int(np.argmax(held >= share * held[-1] * (1.0 - 1e-12)))  # weights add up with rounding
    radius = float(distances[by_distance[last]])
    is_inside = np.zeros(len(tables), bool)
    is_inside[counted] = distances[counted] <= radius
    inside = np.flatnonzero(is_inside)
    n_clusters = np.array([np.count_nonzero(tables[u].any(axis=0)) for u in inside])

    def farthest(of: np.ndarray) -> np.ndarray:
        return of[distances[of] == distances[of].max()]

    return CredibleBall(
        radius,
        np.where(np.isin(np.arange(len(tables)), counted), distances, np.nan),
        is_inside,
        farthest(inside),
        farthest(inside[n_clusters == n_clusters.min()]),
        farthest(inside[n_clusters == n_clusters.max()]),
    )


def credible_sets(
    x: Any, labels: Any, *, level: float = 0.95, weights: Any = None, client: object = None
) -> np.ndarray:
    """Return which objects are together with joint probability ``level``, by cluster of ``labels``.

    ``(n_objects,)`` bool: the objects of a cluster that are marked are all together in a share ``level`` of
    the partitions of ``x`` that label any of the cluster. Such a set is found as follows: in each partition
    the base cluster with most objects of the cluster stands for it; the partitions that put most others of
    them elsewhere are left out, as many as ``level`` allows; the set is of the objects that all remaining
    partitions that label them, at least one, have in the base cluster that stands for it. It need not be the
    largest one, and can be empty.

    Parameters and errors as in `expected_loss`. Two passes over the ensemble; memory for ``n_clusters`` by
    ``n_base_clusters`` counts per task.

    Examples
    --------
    >>> import bigcons as bc
    >>> partitions = [[0, 0, 0], [0, 0, 0], [0, 1, 0], [1, 2, 1], [1, 2, 0]]
    >>> bc.metrics.credible_sets(partitions, [0, 0, 0, 1, 1])
    array([ True,  True, False, False,  True])
    """
    from bigcons.stores.ensemble import as_ensemble

    share = check_number("level", level, at_least=0.0, at_most=1.0)
    ensemble, column = as_ensemble(x), LabelColumn("labels", labels)
    with open_engine(client) as engine:
        tables, _ = partition_tables(ensemble, labels, weights=weights, client=engine)
        times = np.ones(len(tables)) if weights is None else np.asarray(weights, np.float64)
        seen = np.stack([table.sum(axis=1) for table in tables], axis=1)
        elsewhere = seen - np.stack([table.max(axis=1) for table in tables], axis=1)
        standing = np.stack([table.argmax(axis=1) for table in tables], axis=1)
        counts = times * (seen > 0)
        order = np.argsort(-elsewhere, axis=1, kind="stable")
        left_out = np.cumsum(np.take_along_axis(counts, order, axis=1), axis=1)
        is_left_out = left_out <= (1.0 - share) * left_out[:, -1:] * (1.0 + 1e-12)  # sums have rounding
        stays = np.empty_like(is_left_out)
        np.put_along_axis(stays, order, ~is_left_out, axis=1)
        needed = np.where(stays & (counts > 0), standing, -1)

        def inside(block: Block) -> np.ndarray:
            codes, of_block = column.codes(block.start, block.stop), ensemble.read(block.start, block.stop)
            together, known = codes >= 0, np.zeros(block.n_rows, bool)
            for u in range(ensemble.n_partitions):
                compared = (of_block[:, u] >= 0) & (needed[codes, u] >= 0)
                together &= ~compared | (of_block[:, u] == needed[codes, u])
                known |= compared
            return together & known

        return np.concatenate(list(engine.map(inside, ensemble.blocks())))


def check_loss(loss: object, split_cost: object) -> tuple[str, float]:
    """Return the name of a loss and the cost of splitting, checked."""
    chosen = check_choice("loss", loss, ("vi", "binder"))
    return chosen, check_number("split_cost", split_cost, at_least=0.0, at_most=2.0)


def loss_of_table(loss: str, split_cost: float) -> Criterion:
    """Return the loss of stacks of tables ``(..., n_clusters, k)`` of labels (rows) and a partition."""
    loss, split_cost = check_loss(loss, split_cost)
    return partial(_information_lost if loss == "vi" else _pairs_wrong, split_cost)


def _information_lost(split_cost: float, tables: np.ndarray) -> Any:
    """Return the generalized variation of information."""
    of_rows, of_columns = lost_information(tables)
    return (2.0 - split_cost) * of_rows + split_cost * of_columns


def _pairs_wrong(split_cost: float, tables: np.ndarray) -> Any:
    """Return the generalized loss of Binder, a share of pairs; 0 of a single object."""
    together, in_rows, in_columns, all_pairs = joined_pairs(tables)
    wrong = (2.0 - split_cost) * (in_rows - together) + split_cost * (in_columns - together)
    return wrong / np.maximum(all_pairs, 1.0)
