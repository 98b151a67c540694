"""The starts of a method: each makes passes in memory, the best is kept by the method's own objective."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from bigcons.execution.engine import stop_if_cancelled

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


def go_on(
    start: Start, one_pass: Callable[[Start], tuple[Start, bool]], max_passes: int
) -> tuple[Start, bool]:
    """Return a start after further passes, ``max_passes`` at most, and whether it has settled.

    ``one_pass`` returns where it leads and whether that is the last. A cancelled task ends between passes.
    """
    settled = False
    for _ in range(max_passes):
        stop_if_cancelled()
        start, settled = one_pass(start)
        if settled:
            break
    return start, settled
