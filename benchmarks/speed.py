"""How fast are the solvers? Ratios measured in one run.

(a) the heap solver against a plain C program of the same algorithm, on one thread, on the same pairs and for
the same number of steps (n K), with squared and Kullback-Leibler divergence, K = 3 and 8;
(b) all-pairs PCC from a stored ensemble to labels, K = 3, all cores, against the optimizer of that program;
(c) one pass of all-pairs PCC at K = 3, 5 and 10 over a larger store against only reading and decompressing it
with the same threads.

The C program is not part of bigcons; ``--reference`` names its binary, called as ``PAIRS N K ITERATIONS
l2|kl SEED`` with PAIRS a file of records (int32 i, int32 j, uint8 c, uint8 N), printing its seconds,
iterations, gap and objective. Without it, only the times of bigcons are printed. The program's squared
divergence has a factor of 2.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from statistics import median

import numpy as np
from machine import describe

from bigcons import PCC, Ensemble, PairTable
from bigcons.coassociation import sample
from bigcons.datasets import kddcup99, planted_ensemble
from bigcons.divergences import resolve_divergence
from bigcons.errors import ConvergenceWarning
from bigcons.generate import kmeans
from bigcons.memory import Block
from bigcons.methods.all_pairs import dirichlet, perturbed_uniform
from bigcons.methods.pcc import BlockedPairs, Neighborhoods, stretch_steps
from bigcons.metrics import matching_accuracy, pcc_objective
from bigcons.run.engine import SerialEngine, ThreadsEngine
from bigcons.run.passes import Run, run_passes

SHARE = 0.25e-3

PASS_CLUSTERS = (3, 5, 10)


def timed(function, repeats: int):  # type: ignore[no-untyped-def]
    """Call ``repeats`` times; return the last result and all times."""
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        result = function()
        seconds.append(time.perf_counter() - began)
    return result, seconds


def reference_program(binary: Path, pairs: PairTable, n_clusters: int, divergence: str, folder: Path) -> dict:
    """Run the C program once on the pairs."""
    file = folder / "pairs.bin"
    if not file.exists():
        i, j, n_agree, n_seen = pairs.edges()
        records = np.empty(i.size, dtype=[("i", "<i4"), ("j", "<i4"), ("c", "u1"), ("N", "u1")])
        records["i"], records["j"], records["c"], records["N"] = i, j, n_agree, n_seen
        records.tofile(file)
    n = pairs.n_objects
    command = [str(binary), str(file), str(n), str(n_clusters), str(n * n_clusters), divergence, "1"]
    seconds, steps, _, objective = subprocess.run(
        command, capture_output=True, text=True, check=True
    ).stdout.split()
    return {
        "seconds": float(seconds),
        "steps": int(steps),
        "objective": float(objective) / (2 if divergence == "l2" else 1),
    }


def heap_against_c(pairs: PairTable, binary: Path | None, folder: Path, repeats: int) -> list[dict]:
    """Measure (a): the two programs in turn, the ratio pair by pair."""
    rows = []
    for divergence in ("l2", "kl"):
        for n_clusters in (3, 8):

            def ours(  # type: ignore[no-untyped-def]
                start: str, divergence: str = divergence, n_clusters: int = n_clusters, steps: int = 0
            ) -> float:
                """Return the objective after so many steps of the heap."""
                n, draw = pairs.n_objects, dirichlet if start == "dirichlet" else perturbed_uniform
                steps = steps or n * n_clusters
                block, engine = Block(0, 0, n), SerialEngine()
                near = Neighborhoods.from_pairs(pairs, [block], engine, resolve_divergence(divergence))
                run = Run(pairs, [block], engine, 0, -(-steps // stretch_steps(n, n_clusters)), 0.0)
                first = (lambda block: draw(block.n_rows, n_clusters, 0, block.index)), []
                at = run_passes(run, BlockedPairs(near, lambda: first, steps))
                return at.records[-1]["objective"]

            ours("uniform", steps=1000)  # compile or load the kernels
            row: dict = {
                "divergence": divergence,
                "n_clusters": n_clusters,
                "steps": pairs.n_objects * n_clusters,
            }
            for start in ("uniform", "dirichlet"):
                seconds, ratios = [], []
                for _ in range(repeats):
                    objective, (second,) = timed(lambda start=start: ours(start), 1)
                    seconds.append(second)
                    if binary:
                        reference = reference_program(binary, pairs, n_clusters, divergence, folder)
                        ratios.append(second / reference["seconds"])
                        row["c_seconds"] = reference["seconds"]
                        row["c_objective"] = reference["objective"]
                row[f"{start}_seconds"] = round(median(seconds), 3)
                row[f"{start}_objective"] = objective
                if ratios:
                    row[f"{start}_ratio"] = round(median(ratios), 3)
            rows.append(row)
            print(json.dumps(row), flush=True)
    return rows


def all_pairs_against_c(
    path: Path, truth: np.ndarray, pairs: PairTable, binary: Path | None, folder: Path, repeats: int
) -> dict:
    """Measure (b)."""

    def ours() -> PCC:
        return PCC(3, random_state=0).fit(Ensemble.open(path))

    ours()
    seconds, ratios = [], []
    for _ in range(repeats):
        model, (second,) = timed(ours, 1)
        seconds.append(second)
        if binary:
            ratios.append(second / reference_program(binary, pairs, 3, "l2", folder)["seconds"])
    ensemble = Ensemble.open(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        sampled = PCC(3, pairs=pairs, tol=0.0, max_iter="paper", random_state=0).fit(ensemble)
    scale = float(ensemble.n_objects) ** 2
    row = {
        "seconds": round(median(seconds), 3),
        "ratio": round(median(ratios), 3) if ratios else None,
        "matching_accuracy": matching_accuracy(truth, model.labels_),
        "objective": pcc_objective(ensemble, model.memberships_, constant=False) / scale,
        "objective_of_sampled_heap": pcc_objective(ensemble, sampled.memberships_, constant=False) / scale,
    }
    print(json.dumps(row), flush=True)
    return row


def pass_against_read(n_objects: int, folder: Path, repeats: int) -> list[dict]:
    """Measure (c): the slowest kind of pass, in which every object moves, and the reading, in turn.

    All numbers of clusters take turns in every repeat; the median of the ratios within a repeat is reported.
    """
    ensemble = planted_ensemble(n_objects, missing=0.5)[0].save(folder / "planted.zarr")
    engine = ThreadsEngine()

    def read() -> int:
        return sum(
            engine.map(lambda block: ensemble.read(block.start, block.stop).shape[0], ensemble.blocks())
        )

    def two_passes(n_clusters: int) -> PCC:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return PCC(n_clusters, random_state=0, max_iter=2, tol=0.0).fit(ensemble)

    measured: dict[int, list[tuple[float, float, float]]] = {n_clusters: [] for n_clusters in PASS_CLUSTERS}
    moved = {n_clusters: two_passes(n_clusters).history_["moved"] for n_clusters in PASS_CLUSTERS}
    for _ in range(repeats):
        for n_clusters, times in measured.items():
            reading = timed(read, 1)[1][0]
            first, second = two_passes(n_clusters).history_["seconds"]
            times.append((reading, first, second))
    return [
        pass_row(n_objects, n_clusters, times, moved[n_clusters]) for n_clusters, times in measured.items()
    ]


def pass_row(
    n_objects: int, n_clusters: int, times: list[tuple[float, float, float]], moved: list[int]
) -> dict:
    """Return the medians of (reading, first pass, second pass), and of the ratios of passes to reading."""
    reading, first, second = (np.array(column) for column in zip(*times, strict=True))
    row = {
        "n_objects": n_objects,
        "n_clusters": n_clusters,
        "read_seconds": round(median(reading), 3),
        "first_pass_seconds": round(median(first), 3),
        "second_pass_seconds": round(median(second), 3),
        "first_pass_ratio": round(median(first / reading), 2),
        "second_pass_ratio": round(median(second / reading), 2),
        "moved": moved,
    }
    print(json.dumps(row), flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smallest", action="store_true", help="a few seconds, to see that it runs")
    parser.add_argument("--reference", type=Path, help="binary of the C program")
    parser.add_argument("--data-dir", help="folder of the KDD Cup 1999 file; default $BIGCONS_DATA")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("-o", "--out", type=Path, help="write the results there as JSON")
    arguments = parser.parse_args()
    repeats = 1 if arguments.smallest else arguments.repeats
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.smallest:
            ensemble, truth = planted_ensemble(2000, 20)
            ensemble = ensemble.save(folder / "kdd.zarr")
        else:
            features, truth = kddcup99(arguments.data_dir, as_numbers=True)
            ensemble = kmeans(features, train="all", out=folder / "kdd.zarr", random_state=0)
        pairs = sample(ensemble, share=0.01 if arguments.smallest else SHARE, random_state=0)
        results = {
            "machine": describe(),
            "heap_against_c": heap_against_c(pairs, arguments.reference, folder, repeats),
            "all_pairs_against_c": all_pairs_against_c(
                folder / "kdd.zarr", truth, pairs, arguments.reference, folder, repeats
            ),
            "pass_against_read": pass_against_read(
                4_000 if arguments.smallest else 2_000_000, folder, repeats
            ),
        }
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
