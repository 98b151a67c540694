"""Criteria from information theory, of two clusterings."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.metrics.contingency import contingency


def nmi(a: Any, b: Any) -> float:
    """Return the mutual information of two clusterings over the geometric mean of their entropies.

    In [0, 1], 1 if equal up to names; 0 by definition if one of them has a single cluster
    (Strehl and Ghosh 2002, equation 2). Labels are as in `contingency`.
    """
    return float(nmi_of_table(contingency(a, b)))


def relative_nmi(truth: Any, labels: Any, reference: Any) -> float:
    """Return the NMI of ``labels`` with ``truth`` over that of ``reference``, a clustering of all the data.

    What a consensus of clusterings of parts keeps of the quality of one clustering of the whole (Strehl and
    Ghosh 2002, object-distributed clustering); above 1 if it is better. Each NMI is over the objects that the
    clustering and the truth label. Raises InvalidInputError if the reference has nothing in common with the
    truth.
    """
    whole = nmi(truth, reference)
    if whole == 0:
        raise InvalidInputError(
            "reference has NMI 0 with truth, which nothing is relative to; pass a better clustering."
        )
    return nmi(truth, labels) / whole


def variation_of_information(a: Any, b: Any) -> float:
    """Return the variation of information ``H(a) + H(b) - 2 I(a; b)`` of two clusterings, in nats.

    A metric of clusterings (Meilă 2007): symmetric, 0 exactly if they are equal up to names, at most
    ``log n``. Labels are as in `contingency`. Nguyen and Caruana (2007) do not say which logarithm they take.
    """
    return float(variation_of_information_of_table(contingency(a, b)))


def nmi_of_table(tables: np.ndarray) -> Any:
    """Return the NMI from contingency tables ``(..., ka, kb)``, one each.

    Empty rows and columns, or no object at all, do no harm.
    """
    of_rows, of_columns, joint = _entropies(tables)
    both = of_rows * of_columns
    is_single = both == 0  # the entropy of a single cluster is 0 exactly, that of more is not
    information = (of_rows + of_columns - joint) / np.sqrt(both + is_single)
    return np.clip(information, 0.0, 1.0) * ~is_single  # rounding may step over either end


def mutual_information_of_table(tables: np.ndarray) -> Any:
    """Return the mutual information in nats from tables of counts ``(..., ka, kb)``, which need not be whole.

    Empty rows and columns, or no object at all, do no harm.
    """
    of_rows, of_columns, joint = _entropies(tables)
    return np.maximum(of_rows + of_columns - joint, 0.0)


def variation_of_information_of_table(tables: np.ndarray) -> Any:
    """Return `variation_of_information` from contingency tables ``(..., ka, kb)``, one each.

    Empty rows and columns do no harm. Summed as the entropies of each clustering given the other, whose terms
    are never negative: two clusterings that are equal get 0, not a rounding error.
    """
    from scipy.special import xlogy

    rows, columns = tables.sum(axis=-1, keepdims=True), tables.sum(axis=-2, keepdims=True)
    cells = np.where(tables > 0, tables, 1)
    lost = xlogy(tables, (rows / cells) * (columns / cells))
    return lost.sum(axis=(-2, -1)) / tables.sum(axis=(-2, -1))


def _entropies(tables: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the entropies in nats of the rows, of the columns and of the cells of each table."""
    from scipy.special import entr

    total = np.asarray(tables.sum(axis=(-2, -1)))
    n = np.where(total > 0, total, 1)
    in_rows, in_columns = tables.sum(axis=-1), tables.sum(axis=-2)
    return (
        entr(in_rows / n[..., None]).sum(axis=-1),
        entr(in_columns / n[..., None]).sum(axis=-1),
        entr(tables / n[..., None, None]).sum(axis=(-2, -1)),
    )
