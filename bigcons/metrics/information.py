"""Criteria from information theory, of two clusterings."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigcons.metrics.contingency import contingency


def nmi(a: Any, b: Any) -> float:
    """Return the mutual information of two clusterings over the geometric mean of their entropies.

    In [0, 1], 1 if equal up to names; 0 by definition if one of them has a single cluster
    (Strehl and Ghosh 2002, equation 2). Labels are as in `contingency`.
    """
    return nmi_of_table(contingency(a, b))


def nmi_of_table(table: np.ndarray) -> float:
    """Return the NMI from a contingency table; empty rows and columns, or no object at all, do no harm."""
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    if np.count_nonzero(rows) < 2 or np.count_nonzero(columns) < 2:
        return 0.0
    of_rows, of_columns, joint = _entropy(rows), _entropy(columns), _entropy(table.ravel())
    information = (of_rows + of_columns - joint) / np.sqrt(of_rows * of_columns)
    return float(np.clip(information, 0.0, 1.0))  # rounding may step over either end


def _entropy(counts: np.ndarray) -> float:
    """Return the entropy in nats of ``counts``, zeros allowed."""
    counts = counts[counts > 0]
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum())
