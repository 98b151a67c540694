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
    return nmi_of_table(contingency(a, b))


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
    return variation_of_information_of_table(contingency(a, b))


def nmi_of_table(table: np.ndarray) -> float:
    """Return the NMI from a contingency table; empty rows and columns, or no object at all, do no harm."""
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    if np.count_nonzero(rows) < 2 or np.count_nonzero(columns) < 2:
        return 0.0
    of_rows, of_columns, joint = _entropy(rows), _entropy(columns), _entropy(table.ravel())
    information = (of_rows + of_columns - joint) / np.sqrt(of_rows * of_columns)
    return float(np.clip(information, 0.0, 1.0))  # rounding may step over either end


def mutual_information_of_table(table: np.ndarray) -> float:
    """Return the mutual information in nats from a table of counts, which need not be whole.

    Empty rows and columns, or no object at all, do no harm.
    """
    if not table.any():
        return 0.0
    joint = _entropy(table.ravel())
    return max(_entropy(table.sum(axis=1)) + _entropy(table.sum(axis=0)) - joint, 0.0)


def variation_of_information_of_table(table: np.ndarray) -> float:
    """Return `variation_of_information` from a contingency table; empty rows and columns do no harm.

    Summed as the entropies of each clustering given the other, whose terms are never negative: two
    clusterings that are equal get 0, not a rounding error.
    """
    row, column = np.nonzero(table)
    cells = table[row, column]
    given_row = np.log(table.sum(axis=1)[row] / cells)
    given_column = np.log(table.sum(axis=0)[column] / cells)
    return float((cells * (given_row + given_column)).sum() / cells.sum())


def _entropy(counts: np.ndarray) -> float:
    """Return the entropy in nats of ``counts``, zeros allowed."""
    counts = counts[counts > 0]
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum())
