"""Do blocks find what the heap finds, how fast, and how fast are pairs sampled in tiles to disk?

(a) Uniformly sampled pairs, 30 an object: the heap with up to 9 n K steps against blocks of a sixteenth of
the objects, both from the same kind of start. ``excess`` is how much higher the blocks' objective is;
seconds are processor time, the least of the repeats. Uniform pairs join every block to every other, so that
the blocks work one at a time here.
(b) Pairs in tiles straight to a store: seconds, and bytes on disk a pair.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from machine import describe

from bigcons import Ensemble
from bigcons.coassociation import sample
from bigcons.datasets import planted_ensemble
from bigcons.divergences import resolve_divergence
from bigcons.execution.engine import SerialEngine
from bigcons.memory import row_blocks
from bigcons.solvers.pcc.blocked import solve_blocked
from bigcons.solvers.pcc.heap import solve_pairs
from bigcons.stores.pairs import PairTable

PASSES = 40
TOL = 1e-3
N_BLOCKS = 16


def least_seconds(run: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Return the least processor time of a few runs, and the result."""
    run()  # compiles
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        result = run()
        seconds.append(time.process_time() - began)
    return min(seconds), result


def against_heap(pairs: PairTable, name: str, n_clusters: int, repeats: int) -> dict[str, Any]:
    """Measure (a) for one divergence and number of clusters."""
    divergence = resolve_divergence(name)
    n = pairs.n_objects
    blocks = row_blocks(n, -(-n // N_BLOCKS))

    def heap() -> Any:
        steps = 9 * n * n_clusters
        options = {"init": "uniform", "n_init": 1, "max_steps": steps, "tol": TOL, "seed": 0}
        return solve_pairs(pairs, n_clusters, divergence, **options)

    def in_blocks() -> Any:
        options = {"init": "uniform", "max_passes": PASSES, "tol": TOL, "seed": 0}
        return solve_blocked(pairs, n_clusters, divergence, engine=SerialEngine(), blocks=blocks, **options)

    heap_seconds, by_heap = least_seconds(heap, repeats)
    seconds, by_blocks = least_seconds(in_blocks, repeats)
    objective = np.array(by_blocks.history["objective"])
    return {
        "divergence": name,
        "n_clusters": n_clusters,
        "excess": round(by_blocks.objective / by_heap.objective - 1, 5),
        "excess_by_pass": [round(float(f), 4) for f in (objective / by_heap.objective - 1)[4::5]],
        "passes": by_blocks.n_passes,
        "gaps": [round(by_heap.gap, 6), round(by_blocks.gap, 6)],
        "seconds_heap": round(heap_seconds, 2),
        "seconds_blocks": round(seconds, 2),
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smallest", action="store_true", help="a run of seconds that shows it works")
    parser.add_argument("--labels", type=Path, help=".npy of labels to use instead of a planted ensemble")
    parser.add_argument("--repeats", type=int, default=3, help="runs of which the fastest counts")
    parser.add_argument("-o", "--out", type=Path, help="file for the results as JSON")
    options = parser.parse_args()
    n_objects, n_clusters, repeats = (
        (2_000, (3,), 1) if options.smallest else (120_000, (3, 8), options.repeats)
    )
    if options.labels:
        ensemble = Ensemble.from_labels(np.load(options.labels))
    else:
        ensemble, _ = planted_ensemble(n_objects, 100, missing=0.5, random_state=0)
    pairs = sample(ensemble, per_object=30, random_state=0)
    rows = []
    for K in n_clusters:
        for divergence in ("l2", "kl"):
            rows.append(against_heap(pairs, divergence, K, repeats))
            print(json.dumps(rows[-1]), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        tiles = in_tiles(ensemble, 30, Path(folder))
    print(json.dumps(tiles))
    if options.out:
        results = {"machine": describe(), "against_heap": rows, "in_tiles": tiles}
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
