"""What every PCC solver returns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigcons.execution.loop import History


class Solution(NamedTuple):
    """The memberships found, and how far they are from a KKT point."""

    memberships: np.ndarray
    """(n, K) float32, rows on the simplex."""
    objective: float
    gap: float
    converged: bool
    n_passes: int
    history: History
