"""How does time grow with objects, base clusters, clusters and partitions?

Planted ensembles of which one size grows while the others stay, solved in this process from labels in memory:

- objects: 1 to 10 million, in 20 partitions of 2 to 20 clusters, 8 clusters asked for
- base clusters: 100 to a million, in 20 partitions of 200,000 objects, 8 clusters asked for
- clusters: 3 to 3,000, as many as classes; 100,000 objects, 50 partitions of half to twice as many
- partitions: 10 to 70,000 of 1,000 objects, 5 clusters asked for

Reports the seconds of a whole solve and of a pass, and the slope of each line where both axes are
logarithmic: 1 is time proportional to the size. A point that is expected to take more than ``--limit``
seconds, or longer than ``--minutes`` leave, is left out and said to be. Writes ``results/growth.json`` and
``results/growth.png``.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from machine import describe

from bigcons import Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.methods import METHODS

RESULTS = Path(__file__).parent / "results"
SOLVED = ("pcc", "mixture", "hbgf")

SIZES = {
    "objects": (1_000_000, 2_000_000, 5_000_000, 10_000_000),
    "base clusters": (100, 1_000, 10_000, 100_000, 1_000_000),
    "clusters": (3, 10, 30, 100, 300, 1_000, 3_000),
    "partitions": (10, 100, 1_000, 10_000, 70_000),
}
SMALLEST = {
    "objects": (2_000, 4_000),
    "base clusters": (100, 200),
    "clusters": (3, 6),
    "partitions": (10, 20),
}

MEMORY = "8GB"

# Solves that take fewer seconds are run twice, and the faster counts.
SHORT = 5.0


def ensemble_of(axis: str, size: int, *, smallest: bool) -> tuple[Ensemble, int]:
    """Return the ensemble of one point, and how many clusters to ask for."""
    scale = 100 if smallest else 1
    if axis == "objects":
        return planted(size, 20, 8, (2, 20)), 8
    if axis == "base clusters":
        return planted(200_000 // scale, 20, 8, (size // 20, size // 20)), 8
    if axis == "clusters":
        return planted(100_000 // scale, 50, size, (max(size // 2, 2), 2 * size)), size
    return planted(1_000 // (5 if smallest else 1), size, 5, (2, 10)), 5


def planted(n_objects: int, n_partitions: int, n_classes: int, n_clusters: tuple[int, int]) -> Ensemble:
    """Return a planted ensemble of classes of equal size, half of the labels missing."""
    shares = [1.0 / n_classes] * n_classes
    return planted_ensemble(n_objects, n_partitions, shares=shares, n_clusters=n_clusters)[0]


COMPILED: set[tuple[str, np.dtype]] = set()
"""Methods and types of labels that this process has solved: the first solve loads or compiles kernels."""

# Objects of the solve before: enough to be sampled, and not all of a small ensemble.
FIRST_OBJECTS = 5_000


def solved(name: str, n_clusters: int, ensemble: Ensemble, *, once: bool) -> dict[str, Any]:
    """Return the seconds of a solve, of its passes, and how many these were."""
    if (name, ensemble.dtype) not in COMPILED and not once:
        few = ensemble[np.arange(min(FIRST_OBJECTS, ensemble.n_objects))]
        METHODS[name](n_clusters, random_state=0, memory=MEMORY, max_iter=3).fit(few)
        COMPILED.add((name, ensemble.dtype))
    best: dict[str, Any] = {}
    for _ in range(2):
        began = time.perf_counter()
        model = METHODS[name](n_clusters, random_state=0, memory=MEMORY).fit(ensemble)
        row: dict[str, Any] = {"seconds": round(time.perf_counter() - began, 3)}
        passes = getattr(model, "history_", {}).get("seconds", [])
        if len(passes):
            row |= {"passes": len(passes), "seconds_per_pass": round(float(np.median(passes)), 4)}
        best = min(best or row, row, key=lambda run: run["seconds"])
        if once or row["seconds"] > SHORT:
            break
    return best


def grow(axis: str, *, smallest: bool, limit: float, ends: float) -> Iterator[dict[str, Any]]:
    """Yield one row for each size and method, the sizes growing; ``ends``: when time is up."""
    done: dict[str, list[tuple[int, float]]] = {name: [] for name in SOLVED}
    for size in (SMALLEST if smallest else SIZES)[axis]:
        expected = {name: next_seconds(done[name], size) for name in SOLVED}
        ensemble, n_clusters = None, 0
        for name in SOLVED:
            row: dict[str, Any] = {"axis": axis, "size": size, "method": name}
            if expected[name] > min(limit, ends - time.perf_counter()):
                yield {**row, "left_out": f"expected to take {expected[name]:.0f} s"}
                continue
            if ensemble is None:
                ensemble, n_clusters = ensemble_of(axis, size, smallest=smallest)
            try:
                row |= solved(name, n_clusters, ensemble, once=smallest)
            except Exception as error:
                yield {**row, "refused": f"{type(error).__name__}: {error}"[:200]}
                done[name].append((size, float("inf")))
                continue
            done[name].append((size, row["seconds"]))
            yield row


def next_seconds(done: list[tuple[int, float]], size: int) -> float:
    """Return how long a solve of this size should take: as the last, at least in proportion to the size."""
    if not done:
        return 0.0
    slope = 1.0
    if len(done) > 1 and np.isfinite(done[-1][1]):
        (before, faster), (last, slower) = done[-2:]
        slope = max(slope, float(np.log(slower / faster) / np.log(last / before)))
    return float(done[-1][1] * (size / done[-1][0]) ** slope)


def lines(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the slope of every line, and by what factor the time per unit grows from its first to last."""
    table = []
    for axis in SIZES:
        for name in SOLVED:
            series = [row for row in rows if (row["axis"], row["method"]) == (axis, name)]
            line: dict[str, Any] = {"axis": axis, "method": name}
            for what in ("seconds", "seconds_per_pass"):
                points = [(row["size"], row[what]) for row in series if row.get(what)]
                if len(points) > 1:
                    x, y = np.log(np.array(points, float)).T
                    line[f"slope_of_{what}"] = round(float(np.polyfit(x, y, 1)[0]), 3)
                    line[f"largest_slope_of_{what}"] = round(float((np.diff(y) / np.diff(x)).max()), 3)
                    line[f"{what}_per_unit"] = round(float(np.exp((y - x)[-1] - (y - x)[0])), 3)
            table.append(line)
    return table


def show(table: list[dict[str, Any]]) -> None:
    """Print the slopes as a table."""
    print(f"{'axis':<15}{'method':<9}{'solve: slope':>14}{'largest':>9}{'per unit':>10}", end="")
    print(f"{'pass: slope':>14}{'largest':>9}{'per unit':>10}")
    for line in table:
        print(f"{line['axis']:<15}{line['method']:<9}", end="")
        for what in ("seconds", "seconds_per_pass"):
            values = (line.get(f"{part}{what}") for part in ("slope_of_", "largest_slope_of_"))
            values = (*values, line.get(f"{what}_per_unit"))
            for value, width in zip(values, (14, 9, 10), strict=True):
                print(f"{'-' if value is None else f'{value:.2f}':>{width}}", end="")
        print()


def draw(rows: list[dict[str, Any]], table: list[dict[str, Any]], path: Path) -> None:
    """Draw seconds of a solve against each size, both axes logarithmic."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 8), layout="constrained")
    for axes, axis in zip(figure.subplots(2, 2).flat, SIZES, strict=True):
        for name in SOLVED:
            runs = [row for row in rows if (row["axis"], row["method"]) == (axis, name) and "seconds" in row]
            line = next(line for line in table if (line["axis"], line["method"]) == (axis, name))
            slope = line.get("slope_of_seconds")
            label = name if slope is None else f"{name}, slope {slope:.2f}"
            axes.loglog([row["size"] for row in runs], [row["seconds"] for row in runs], "o-", label=label)
        axes.set(xlabel=axis, ylabel="seconds of a solve")
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smallest", action="store_true", help="a few seconds, to see that it runs")
    parser.add_argument("--axes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--limit", type=float, default=40.0, help="seconds of a solve")
    parser.add_argument("--minutes", type=float, default=8.0, help="for all of it")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    old_rows, path = [], RESULTS / "growth.json"
    if path.exists() and not arguments.smallest:  # axes that are not measured now
        old_rows = [row for row in json.loads(path.read_text())["rows"] if row["axis"] not in arguments.axes]
    rows = []
    options = {"smallest": arguments.smallest, "limit": np.inf if arguments.smallest else arguments.limit}
    ends = time.perf_counter() + 60 * arguments.minutes
    for axis in arguments.axes:
        for row in grow(axis, **options, ends=ends):
            print(json.dumps(row), flush=True)
            rows.append(row)
    rows = [row for axis in SIZES for row in [*old_rows, *rows] if row["axis"] == axis]
    table = lines(rows)
    show(table)
    if not arguments.smallest:
        result = {"machine": describe(), "rows": rows, "lines": table}
        path.write_text(json.dumps(result, indent=1) + "\n")
        draw(rows, table, RESULTS / "growth.png")


if __name__ == "__main__":
    main()
