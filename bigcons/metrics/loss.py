"""Expected loss of a clustering where partitions are draws of the true one."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bigcons.metrics.clusterings import Criterion, joined_pairs, lost_information
from bigcons.metrics.ensemble import average_of_tables, partition_tables
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
