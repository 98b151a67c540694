"""Consensus of KDD-scale data from sampled pairs on a cluster: as good as one heap, in less time and memory?

A planted ensemble (100 partitions, half of the labels missing) lies in Zarr, and uniformly drawn pairs of its
objects in Zarr and in Parquet. Each of the divergences l2 and KL is minimized over the pairs, by
the model of the paper:

- by one heap, the paper's Algorithm 1, to the default tolerance or 10 n K steps;
- in blocks: on one thread, on two, on one Dask worker, on two, and on two from Parquet, to the same tolerance
  or 20 passes.

Every solve is a process of its own, from stored pairs to a stored consensus, within a memory budget. Reports
the objective against that of the heap, seconds, what the second worker gains, the first pass within 1 % of
the heap, the peak memory of all processes, and whether blocks gave the same bits on every engine and from
both stores. Rows measured again replace those in the file, the others stay.

A last part is a table of pairs ten times the memory budget, drawn in tiles straight to a store and solved
from there. With ``--smallest`` all tables are small and show only that the benchmark runs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from machine import describe
from scale import measured_child, plant
from workers import engine_of

from bigcons import PCC, Consensus, PairTable
from bigcons.coassociation import sample
from bigcons.datasets import planted_ensemble
from bigcons.errors import ConvergenceWarning
from bigcons.memory import parse_size

RESULTS = Path(__file__).parent / "results" / "card.json"

N_CLUSTERS = 6
SIZES = {120_000: 1_800_000, 1_000_000: 10_000_000}  # objects and pairs; the first are the paper's
DIVERGENCES = ("l2", "kl")
BLOCKS = ("serial", "threads-2", "processes-1", "processes-2")
PASSES = 20
MEMORY = "2GB"
WITHIN = 0.01

TILES_MEMORY = "500MB"  # of which a process with compiled kernels takes the most
BYTES_PER_PAIR = 12  # of a table in memory: at both ends a number of four bytes and two counts
PER_OBJECT = 120


def solve(options: dict[str, Any]) -> dict[str, Any]:
    """Solve in this process; this is what the child runs."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    name = options.pop("engine")
    with nullcontext("serial") if name == "serial" else engine_of(name) as engine:
        ensemble, out = options.pop("ensemble"), options.pop("out")
        warm_up(options, engine)
        model = PCC(random_state=0, client=engine, **options)
        began = time.perf_counter()
        model.fit(ensemble, out=out)
        seconds = time.perf_counter() - began
    digest, consensus = hashlib.sha256(), Consensus.open(out)
    for block in consensus.blocks():
        digest.update(np.ascontiguousarray(consensus.read_memberships(block.start, block.stop)))
    return {
        "seconds": round(seconds, 2),
        "pass_seconds": round(sum(model.history_["seconds"]), 2),
        "passes": model.n_passes_,
        "objective": model.objective_,
        "gap": model.gap_,
        "objectives": model.history_["objective"],
        "bits": digest.hexdigest(),
    }


def warm_up(options: dict[str, Any], engine: object) -> None:
    """Load the kernels in every process that will work: small, but with enough pairs for all blocks."""
    labels = planted_ensemble(2000, 20, missing=0.5, random_state=0)[0].read(0, 2000)
    parameters = {"n_clusters": 3}
    parameters |= {name: options[name] for name in ("divergence", "solver")}
    PCC(**parameters, pairs=0.3, max_iter=1, n_init=1, random_state=0, client=engine).fit(labels)


def against_heap(
    n_objects: int,
    n_pairs: int,
    divergences: Sequence[str],
    engines: Sequence[str],
    folder: Path,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each divergence."""
    ensemble, _ = plant(n_objects, folder)
    zarr, parquet = folder / f"pairs-{n_pairs}.zarr", folder / f"pairs-{n_pairs}.parquet"
    if not zarr.exists():
        sample(ensemble, n_pairs=n_pairs, tiles=None, out=zarr, random_state=0, memory=MEMORY)
    if not parquet.exists():
        PairTable.open(zarr).to_parquet(parquet)
    for divergence in divergences:
        load = round(os.getloadavg()[0], 1)  # seconds of two engines compare only if nothing else runs
        options = {"n_clusters": N_CLUSTERS, "divergence": divergence, "memory": MEMORY, "pairs": str(zarr)}
        options |= {"ensemble": str(ensemble), "out": str(folder / "consensus.zarr")}
        heap = run({**options, "solver": "heap", "engine": "serial"})
        options |= {"solver": "blocked", "max_iter": PASSES}
        blocks = {name: run({**options, "engine": name}) for name in engines}
        parquet_too = {**options, "pairs": str(parquet), "engine": engines[-1]}
        blocks[f"{engines[-1]} from Parquet"] = run(parquet_too)
        about = {"n_objects": n_objects, "n_pairs": PairTable.open(zarr).n_pairs, "divergence": divergence}
        about["load_at_start"] = load
        yield about | compared(heap, blocks)


def run(options: dict[str, Any]) -> dict[str, Any]:
    """Return what a solve in a process of its own reports."""
    shutil.rmtree(options["out"], ignore_errors=True)
    record = measured_child(["--child", json.dumps(options)], __file__)
    summary = {name: record[name] for name in ("seconds", "passes", "objective", "gap", "peak_memory")}
    names = [options.get(name, "") for name in ("solver", "divergence", "engine")]
    print(*names, json.dumps(summary), flush=True)
    return record


def compared(heap: dict[str, Any], blocks: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the row of one divergence."""
    near = np.array(blocks["serial"]["objectives"]) <= (1 + WITHIN) * heap["objective"]
    peaks = {"heap": heap["peak_memory"]} | {name: record["peak_memory"] for name, record in blocks.items()}
    objective = blocks["serial"]["objective"]
    two, single = blocks.get("processes-2"), blocks.get("processes-1")
    return {
        "objective_heap": heap["objective"],
        "objective_blocks": objective,
        "difference": objective / heap["objective"] - 1,
        "within_1_percent": bool(near[-1]),
        "first_pass_within_1_percent": int(near.argmax()) + 1 if near.any() else None,
        "passes": blocks["serial"]["passes"],
        "gaps": {"heap": heap["gap"], "blocks": blocks["serial"]["gap"]},
        "never_rises": bool((np.diff(blocks["serial"]["objectives"]) <= 1e-6 * objective).all()),
        "same_bits": len({record["bits"] for record in blocks.values()}) == 1,
        "seconds": {"heap": heap["seconds"]} | {name: record["seconds"] for name, record in blocks.items()},
        "pass_seconds": {name: record["pass_seconds"] for name, record in blocks.items()},
        "speed_up_of_second_worker": single and two and round(single["seconds"] / two["seconds"], 2),
        "speed_up_of_second_worker_in_passes": single
        and two
        and round(single["pass_seconds"] / two["pass_seconds"], 2),
        "heap_by_two_workers": two and round(heap["seconds"] / two["seconds"], 2),
        "peak_memory": peaks,
        "memory": parse_size(MEMORY),
        "within_memory": max(peaks.values()) <= parse_size(MEMORY),
    }


def ten_times_the_memory(n_pairs: int, folder: Path) -> dict[str, Any]:
    """Return the row of a table in tiles that takes ten times the budget."""
    n_objects = 2 * n_pairs // PER_OBJECT
    stored = planted_ensemble(n_objects, 10, missing=0.3, random_state=0)[0].save(folder / "ensemble.zarr")
    out = folder / "tiles.zarr"
    began = time.perf_counter()
    table = sample(stored, per_object=PER_OBJECT, tiles=8, out=out, random_state=0, memory=TILES_MEMORY)
    seconds = time.perf_counter() - began
    options = {
        "n_clusters": 3,
        "divergence": "l2",
        "memory": TILES_MEMORY,
        "max_iter": 3,
        "engine": "threads-2",
    }
    paths = {"ensemble": str(stored.path), "pairs": str(out), "out": str(folder / "consensus.zarr")}
    record = run({**options, **paths, "solver": "blocked"})
    n_bytes = sum(file.stat().st_size for file in Path(out).rglob("*") if file.is_file())
    return {
        "n_objects": n_objects,
        "n_pairs": table.n_pairs,
        "seconds_to_sample": round(seconds, 2),
        "bytes_per_pair": round(n_bytes / table.n_pairs, 2),
        "table_by_memory": round(BYTES_PER_PAIR * table.n_pairs / parse_size(TILES_MEMORY), 2),
        "seconds": record["seconds"],
        "passes": record["passes"],
        "objective": record["objective"],
        "gap": record["gap"],
        "memory": parse_size(TILES_MEMORY),
        "peak_memory": record["peak_memory"],
        "within_memory": record["peak_memory"] <= parse_size(TILES_MEMORY),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smallest", action="store_true", help="a few seconds, to see that it runs")
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES), help="numbers of objects")
    parser.add_argument("--divergences", nargs="*", default=list(DIVERGENCES))
    parser.add_argument("--no-tiles", action="store_true", help="without the table of ten times the memory")
    parser.add_argument("--folder", type=Path, help="keep the stores there; default a temporary one")
    parser.add_argument(
        "-o", "--out", type=Path, nargs="?", const=RESULTS, help=f"write JSON there; alone, {RESULTS.name}"
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(solve(json.loads(options.child))))
        return
    results: dict[str, Any] = {"machine": describe(), "against_heap": []}
    if options.out and options.out.exists():
        results = json.loads(options.out.read_text()) | {"machine": describe()}
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for part in measure(options, folder):
            print(json.dumps(part), flush=True)
            if "divergence" in part:
                others = [row for row in results["against_heap"] if key_of(row) != key_of(part)]
                results["against_heap"] = sorted([*others, part], key=key_of)
            else:
                results["ten_times_the_memory"] = part
            if options.out:
                options.out.write_text(json.dumps(results, indent=1) + "\n")


def key_of(row: dict[str, Any]) -> tuple[int, int]:
    """Return what a row is of: its size and divergence, in their order."""
    return row["n_objects"], DIVERGENCES.index(row["divergence"])


def measure(options: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows as they are measured."""
    if options.smallest:
        yield from against_heap(2_000, 20_000, DIVERGENCES[:1], BLOCKS[:1], folder)
        return
    for n_objects in options.sizes:
        n_pairs = SIZES.get(n_objects, 15 * n_objects)
        yield from against_heap(n_objects, n_pairs, options.divergences, BLOCKS, folder)
    if not options.no_tiles:
        n_pairs = 101 * (parse_size(TILES_MEMORY) // BYTES_PER_PAIR) // 10
        yield ten_times_the_memory(n_pairs, folder)


if __name__ == "__main__":
    main()
