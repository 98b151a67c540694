"""Which line search fits a divergence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bigcons.divergences import Divergence
from bigcons.kernels.line_search import newton_search, sampling_search


def general_search(divergence: Divergence) -> Callable[..., Any]:
    """Return the compiled search: Newton if the divergence is double-convex, else sampling."""
    value, slope, curvature, _ = divergence.compiled
    return newton_search(slope, curvature) if divergence.is_double_convex else sampling_search(value)
