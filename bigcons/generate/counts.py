"""How many clusters a partition has: a number, a range, or the rule that splits data into micro-blocks."""

from __future__ import annotations

import math

from bigcons.errors import InvalidInputError
from bigcons.validation import check_int

ClusterCount = int | tuple[int, int] | str
"""An integer, a range (low, high) with both ends, or "split"."""

SPLIT = "split"
_SPLIT_SPAN = 20


def check_clusters(n_clusters: ClusterCount) -> tuple[int, int] | None:
    """Return ``n_clusters`` as a range, or None for "split", which `split_range` turns into one."""
    if isinstance(n_clusters, str):
        if n_clusters != SPLIT:
            raise InvalidInputError(
                f"n_clusters={n_clusters!r} is unknown; use an integer, (low, high) or {SPLIT!r}."
            )
        return None
    return check_range(n_clusters)


def check_range(n_clusters: ClusterCount) -> tuple[int, int]:
    """Return a number or a range of clusters as ``(low, high)``."""
    if isinstance(n_clusters, (tuple, list)):
        if len(n_clusters) != 2:
            raise InvalidInputError(f"n_clusters={n_clusters!r} is no range; use an integer or (low, high).")
        low = check_int("n_clusters[0]", n_clusters[0])
        return low, check_int("n_clusters[1]", n_clusters[1], at_least=low)
    number = check_int("n_clusters", n_clusters)
    return number, number


def split_range(n_seen: int) -> tuple[int, int]:
    """Return ``(kmin, kmin + 20)`` with ``kmin = max(sqrt(n) / 2, n / 50)`` for ``n_seen`` objects.

    The rule of Aidos and Fred's DID paper; ``kmin`` is rounded up, and neither end exceeds the number
    of objects, of which the paper says nothing.
    """
    low = math.ceil(max(math.sqrt(n_seen) / 2, n_seen / 50))
    return min(low, n_seen), min(low + _SPLIT_SPAN, n_seen)
