"""The loop of passes: until the stopping rule holds, with a record of every pass."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

logger = logging.getLogger("bigcons")

History = dict[str, list[float]]
"""One list per quantity, one entry per pass, for plots and stored results."""


def run_passes(
    one_pass: Callable[[int], dict[str, float]], *, max_passes: int, what: str, first: int = 1
) -> Iterator[dict[str, float]]:
    """Yield the record of each pass from ``first`` on, with its ``seconds``, until the caller stops."""
    for number in range(first, max_passes + 1):
        began = time.perf_counter()
        record = {"pass": number, **one_pass(number), "seconds": time.perf_counter() - began}
        logger.info("%s: %s", what, ", ".join(f"{name} {value:.6g}" for name, value in record.items()))
        yield record


def as_history(records: list[dict[str, float]]) -> History:
    """Turn the records of the passes into one list per quantity."""
    names = records[0] if records else {}
    return {name: [record[name] for record in records] for name in names}
