"""The choice among the starts of a method, by its own objective."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Start = TypeVar("Start")


def best_start(
    starts: Iterable[Start], objective: Callable[[Start], float], *, lower_is_better: bool = True
) -> tuple[Start, list[float]]:
    """Return the best of the starts, the first of equals, and the objectives of all in their order.

    Keeps one start while the next is made.
    """
    sign = 1.0 if lower_is_better else -1.0
    best: list[Start] = []
    objectives: list[float] = []
    least = float("inf")
    for start in starts:
        value = float(objective(start))
        objectives.append(value)
        if not best or sign * value < least:
            best, least = [start], sign * value
    return best[0], objectives
