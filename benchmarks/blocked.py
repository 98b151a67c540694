"""Does the solver by blocks match the heap in less time, and solve a table of pairs ten times the memory?

(a) Uniformly sampled pairs, 30 per object, of the KDD Cup 1999 file (or planted labels): the heap with up to
9 n K steps against blocks of a sixteenth of the objects. ``to_1_percent`` is a solve by blocks that ends
after the first pass whose objective is within 1 % of the heap's final one, including its start; ``whole`` is
one to the same tolerance, or of 40 passes. Blocks start from a solved subsample, as in PCC, and from the
heap's near-uniform start. Seconds are processor time of one thread, medians of runs in turn; uniform pairs
connect every block to every other, so that blocks run one at a time here.
(b) Pairs in tiles, written directly to a store: seconds, and bytes per pair on disk.
(c) PCC on a stored table of pairs ten times as large as the memory budget: the peak memory of the process
tree against the budget. With ``--smallest`` the table is small, and only shows that this runs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from machine import describe
from scale import measured_child

from bigcons import PCC, Ensemble
from bigcons.coassociation import sample
from bigcons.datasets import kddcup99, planted_ensemble
from bigcons.divergences import resolve_divergence
from bigcons.errors import BigconsError, ConvergenceWarning
from bigcons.execution.engine import SerialEngine
from bigcons.generate import kmeans
from bigcons.memory import parse_size, row_blocks
from bigcons.methods.pcc.all_pairs import extend_subsample
from bigcons.methods.pcc.blocked import solve_blocked
from bigcons.methods.pcc.heap import solve_pairs
from bigcons.methods.pcc.memberships import Solution
from bigcons.solving.survey import take_survey
from bigcons.stores.pairs import PairTable

RESULTS = Path(__file__).parent / "results" / "blocked.json"

PASSES = 40
TOL = 1e-3
N_BLOCKS = 16
WITHIN = 0.01
STARTS = ("subsample", "uniform")
SUBSAMPLE, RESTARTS = 2048, 4

BUDGET = "500MB"  # mostly for a process with compiled kernels
BYTES_PER_PAIR = 12  # of a table in memory: in two rows, a number of four bytes and two counts
PER_OBJECT = 120


def against_heap(
    ensemble: Ensemble, pairs: PairTable, name: str, n_clusters: int, repeats: int
) -> list[dict[str, Any]]:
    """Measure (a) for one divergence and number of clusters; a row for each start."""
    divergence, n, engine = resolve_divergence(name), pairs.n_objects, SerialEngine()
    blocks = row_blocks(n, -(-n // N_BLOCKS))

    def by_heap(max_steps: int = 9 * n * n_clusters) -> Solution:
        options = {"init": "uniform", "n_init": 1, "max_steps": max_steps, "tol": TOL, "seed": 0}
        return solve_pairs(pairs, n_clusters, divergence, **options)

    def by_blocks(start: str, max_passes: int = PASSES) -> Solution:
        init: Any = start
        if start == "subsample":
            known = take_survey(ensemble, engine, 0, SUBSAMPLE).sample
            init = extend_subsample(ensemble, known, n_clusters, RESTARTS, 0, engine)
        options = {"init": init, "max_passes": max_passes, "tol": TOL, "seed": 0}
        return solve_blocked(pairs, n_clusters, divergence, engine=engine, blocks=blocks, **options)

    by_heap(1000), [by_blocks(start, 1) for start in STARTS]  # compiles
    heap = by_heap()
    whole = {start: seconds_of(lambda start=start: by_blocks(start)) for start in STARTS}
    passes = {start: first_within(solution, heap) for start, (_, solution) in whole.items()}
    seconds: dict[str, list[float]] = {name: [] for name in ("heap", *STARTS)}
    for _ in range(repeats):
        seconds["heap"].append(seconds_of(by_heap)[0])
        for start in STARTS:
            if passes[start]:
                run = seconds_of(lambda start=start: by_blocks(start, passes[start]))
                seconds[start].append(run[0])
    about = {"divergence": name, "n_clusters": n_clusters}
    return [
        about | compared(start, heap, *whole[start], passes[start], seconds["heap"], seconds[start])
        for start in STARTS
    ]


def seconds_of(run: Callable[[], Solution]) -> tuple[float, Solution]:
    """Return the processor time of a run and its result."""
    began = time.process_time()
    solution = run()
    return time.process_time() - began, solution


def first_within(solution: Solution, heap: Solution) -> int:
    """Return the first pass whose objective is near enough to the heap's last; 0 if there is none."""
    near = np.array(solution.history["objective"]) <= (1 + WITHIN) * heap.objective
    return int(near.argmax()) + 1 if near.any() else 0


def compared(
    start: str,
    heap: Solution,
    whole_seconds: float,
    blocks: Solution,
    passes: int,
    heap_seconds: list[float],
    seconds: list[float],
) -> dict[str, Any]:
    """Return the row of a start."""
    objective = np.array(blocks.history["objective"])
    shares = np.cumsum(heap.history["seconds"]) / sum(heap.history["seconds"])
    ratio = median(a / b for a, b in zip(seconds, heap_seconds, strict=True)) if passes else None
    return {
        "start": start,
        "objective_heap": heap.objective,
        "objective_to_1_percent": float(objective[passes - 1]) if passes else None,
        "objective_whole": blocks.objective,
        "difference_to_1_percent": float(objective[passes - 1] / heap.objective - 1) if passes else None,
        "difference_whole": blocks.objective / heap.objective - 1,
        "passes": {"to_1_percent": passes, "whole": blocks.n_passes},
        "gaps": {"heap": heap.gap, "blocks": blocks.gap},
        "seconds_heap": round(median(heap_seconds), 3),
        "share_of_heap_to_1_percent": round(float(shares[first_within(heap, heap) - 1]), 2),
        "seconds_to_1_percent": round(median(seconds), 3) if passes else None,
        "seconds_whole": round(whole_seconds, 3),
        "ratio": round(ratio, 3) if ratio else None,
        "holds": bool(ratio and ratio < 1),
        "never_rises": bool((np.diff(objective) <= 1e-6 * objective[:-1]).all()),
    }


def in_tiles(ensemble: Ensemble, per_object: float, folder: Path) -> dict[str, Any]:
    """Measure (b)."""
    out = folder / "pairs.zarr"
    began = time.perf_counter()
    table = sample(ensemble, per_object=per_object, tiles=8, out=out, random_state=0)
    seconds = time.perf_counter() - began
    return {
        "n_pairs": table.n_pairs,
        "rows_per_block": table.rows_per_block,
        "seconds": round(seconds, 2),
        "pairs_per_second": round(table.n_pairs / seconds),
        "bytes_per_pair": round(table.info()["n_bytes"] / table.n_pairs, 2),
    }


def within_budget(n_pairs: int, folder: Path) -> dict[str, Any]:
    """Measure (c): a child solves the table; it alone counts."""
    ensemble_path, pairs_path = folder / "ensemble.zarr", folder / "budget-pairs.zarr"
    n_objects = 2 * n_pairs // PER_OBJECT
    ensemble = planted_ensemble(n_objects, 10, missing=0.3, random_state=0)[0].save(ensemble_path)
    table = sample(ensemble, per_object=PER_OBJECT, tiles=8, out=pairs_path, random_state=0, memory=BUDGET)
    paths = [str(ensemble_path), str(pairs_path), str(folder / "consensus.zarr")]
    found = measured_child(["--child", *paths], __file__)
    budget, table_bytes = parse_size(BUDGET), BYTES_PER_PAIR * table.n_pairs
    return {
        "n_objects": n_objects,
        "n_pairs": table.n_pairs,
        "table_bytes": table_bytes,
        "memory": budget,
        "table_by_memory": round(table_bytes / budget, 2),
        **found,
        "within_memory": found["peak_memory"] <= budget,
    }


def solve_stored(ensemble: str, pairs: str, out: str) -> dict[str, Any]:
    """Solve in this process, within the budget."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    model = PCC(3, pairs=pairs, solver="blocked", max_iter=3, tol=TOL, memory=BUDGET, random_state=0)
    began = time.perf_counter()
    model.fit(Ensemble.open(ensemble), out=out)
    return {
        "seconds": round(time.perf_counter() - began, 2),
        "passes": model.n_passes_,
        "objective": model.objective_,
        "gap": model.gap_,
    }


def labels_of(options: argparse.Namespace) -> tuple[str, Ensemble]:
    """Return the data's name and its ensemble."""
    if options.labels:
        return options.labels.name, Ensemble.from_labels(np.load(options.labels))
    if not options.smallest:
        try:
            return "KDD Cup 1999", kmeans(kddcup99(options.data_dir)[0], random_state=0)
        except (BigconsError, OSError) as error:
            print(f"planted labels, for there is no KDD Cup 1999: {error}", flush=True)
    n_objects = 2_000 if options.smallest else 120_000
    return "planted", planted_ensemble(n_objects, 100, missing=0.5, random_state=0)[0]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smallest", action="store_true", help="a run of seconds that shows it works")
    parser.add_argument("--data-dir", help="folder of the KDD Cup 1999 file; default $BIGCONS_DATA")
    parser.add_argument("--labels", type=Path, help=".npy of labels to use instead")
    parser.add_argument("--repeats", type=int, default=3, help="runs in turn, of which the medians count")
    parser.add_argument("--parts", default="abc", help="which of (a), (b) and (c) to measure; default abc")
    parser.add_argument(
        "-o", "--out", type=Path, nargs="?", const=RESULTS, help=f"write JSON there; alone, {RESULTS.name}"
    )
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(solve_stored(*options.child)))
        return
    results: dict[str, Any] = {"machine": describe()}
    with tempfile.TemporaryDirectory() as folder:
        for measured in measure(options, Path(folder)):
            results |= measured
            if options.out:
                options.out.write_text(json.dumps(results, indent=1) + "\n")


def measure(options: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the results of the parts that are asked for, by name, and print them."""
    if set("ab") & set(options.parts):
        data, ensemble = labels_of(options)
        yield {"data": data}
    if "a" in options.parts:
        pairs = sample(ensemble, per_object=30, random_state=0)
        repeats = 1 if options.smallest else options.repeats
        rows: list[dict[str, Any]] = []
        for K in (3,) if options.smallest else (3, 8):
            for divergence in ("l2", "kl"):
                new = against_heap(ensemble, pairs, divergence, K, repeats)
                print(*map(json.dumps, new), sep="\n", flush=True)
                rows += new
        yield {"against_heap": rows}
    if "b" in options.parts:
        found = in_tiles(ensemble, 30, folder)
        print(json.dumps(found), flush=True)
        yield {"in_tiles": found}
    if "c" in options.parts:
        n_pairs = 200_000 if options.smallest else 101 * (parse_size(BUDGET) // BYTES_PER_PAIR) // 10
        found = within_budget(n_pairs, folder)
        print(json.dumps(found), flush=True)
        yield {"within_budget": found}


if __name__ == "__main__":
    main()
