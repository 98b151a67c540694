"""What do the out-of-core methods cost, and how accurate are they?

Every such method solves a planted ensemble on disk (50 partitions, half the labels missing, six unbalanced
classes) at K = 6 within a memory budget, from stored ensemble to stored result, each in a new process: by
threads on all cores and, with ``--dask``, on LocalClusters of one and two workers, whose results must have
the same bits. Reports seconds, CPU seconds of all processes, passes, the time of a pass over the labels
relative to only reading and decompressing them on the same engine, the peak memory of the process tree, and
the adjusted Rand index.

``--planted`` reports accuracy instead: the adjusted Rand index on planted ensembles of 120,000 objects and
100 partitions, complete and with half the labels missing, for several seeds of ensemble and method.
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
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import numpy as np
from machine import describe
from scale import accuracy, measured_child, plant, tree_bytes
from workers import engine_of

from bigcons import METHODS, Consensus, Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.errors import BigconsError, ConvergenceWarning, MemoryBudgetError
from bigcons.memory import Block, parse_size
from bigcons.metrics import adjusted_rand
from bigcons.progress import Progress, report_progress_to
from bigcons.run.engine import Engine, available_cores, fold, open_engine

N_PARTITIONS = 50
K = 6

# Parameters of methods: the defaults, except where these compare all pairs, hold all labels or treat them as
# numbers.
SOLVES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in METHODS if METHODS[name].info.out_of_core},
    "ipc": ("ipc", {"normalize": "all"}),
    "kmeans": ("kmeans", {"encode": "onehot"}),
    "furthest": ("furthest", {"init": "sampled"}),
    "hgpa by laplacian": ("hgpa", {"objective": "laplacian"}),
    "supra": ("supra", {"members": "cspa, hgpa(objective=laplacian), mcla"}),
    "eac-single": ("eac-single", {}),
}

# Further solves on the planted ensembles, refused where all pairs do not fit in memory; their cost is
# measured only on request.
ALSO_PLANTED: dict[str, tuple[str, dict[str, Any]]] = {
    "pcc by entropy": ("pcc", {"weights": "entropy"}),
    "pcc kl": ("pcc", {"divergence": "kl"}),
    "mixture without background": ("mixture", {"background": False}),
    "bce-gibbs": ("bce-gibbs", {"n_init": 2, "burn_in": 50, "n_samples": 50}),
    "eac-average": ("eac-average", {}),
}

BY_NAME = {**SOLVES, **ALSO_PLANTED}

THREADS, WORKER, CLUSTER = f"threads-{available_cores()}", "processes-1", "processes-2"


class Stopwatch(Progress):
    """A listener that counts the objects visited by passes over the labels, and their seconds."""

    heard: ClassVar[list[tuple[str, float, float]]] = []

    def start(self, what: str, _total: int, unit: str) -> None:
        self.what, self.unit, self.done, self.began = what, unit, 0, time.perf_counter()

    def advance(self, n: int) -> None:
        self.done += n

    def finish(self) -> None:
        if self.what not in ("results", "write to disk"):
            Stopwatch.heard.append((self.unit, self.done, time.perf_counter() - self.began))


def seconds_a_pass(n_objects: int) -> tuple[float, float]:
    """Return the number of passes and the seconds of one; each center of `Furthest` is a pass."""
    passes = [
        (done / (n_objects if unit == "rows" else 1), seconds) for unit, done, seconds in Stopwatch.heard
    ]
    n_passes = sum(number for number, _ in passes)
    return n_passes, sum(seconds for _, seconds in passes) / n_passes


def read_seconds(ensemble: Ensemble, engine: Engine) -> float:
    """Return the median seconds of three folds that only read the labels."""

    def rows(block: Block) -> int:
        return ensemble.read(block.start, block.stop).shape[0]

    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        fold(engine, ensemble.blocks(), rows, int.__add__)
        seconds.append(time.perf_counter() - began)
    return median(seconds)


def cpu_seconds(client: Any) -> float:
    """Return the CPU seconds used by this process and the workers of a Dask client."""
    workers = client.run(time.process_time).values() if hasattr(client, "scheduler_info") else ()
    return time.process_time() + sum(workers)


def child(solve: str, path: str, out: str, memory: str, engine_name: str) -> dict:
    """Solve in this process."""
    name, parameters = BY_NAME[solve]
    ensemble = Ensemble.open(path)
    with engine_of(engine_name) as client:
        model = METHODS[name](K, memory=memory, random_state=0, client=client, **parameters)
        try:
            warm_up(model)
            Stopwatch.heard.clear()
            cpu, began = cpu_seconds(client), time.perf_counter()
            with report_progress_to(Stopwatch):
                model.fit(ensemble, out=out)
        except BigconsError as refusal:
            return {"refused": f"{type(refusal).__name__}: {refusal}"}
        seconds, cpu = time.perf_counter() - began, cpu_seconds(client) - cpu
        resident = tree_bytes(os.getpid())
        with open_engine(client) as engine:
            reading = read_seconds(ensemble, engine)
    n_heard, a_pass = seconds_a_pass(ensemble.n_objects)
    return {
        "seconds": round(seconds, 3),
        "cpu_seconds": round(cpu, 3),
        "passes": getattr(model, "n_passes_", None),
        "passes_heard": round(n_heard, 1),
        "pass_seconds": round(a_pass, 4),
        "read_seconds": round(reading, 4),
        "pass_ratio": round(a_pass / reading, 2),
        "resident_after": resident,
        "clusters_found": model.n_clusters_,
        "objective": model.objective_,
        "bits": digest(Consensus.open(out)),
    }


def warm_up(model: Any) -> None:
    """Load the kernels in every process that runs tasks."""
    labels = planted_ensemble(600, 20, missing=0.5, random_state=0)[0].read(0, 600)
    with tempfile.TemporaryDirectory() as folder:
        model.fit(Ensemble.from_labels(labels).save(Path(folder) / "warm.zarr", chunk_rows=100))


def digest(consensus: Consensus) -> str:
    """Return a hash of the labels and of the memberships, if there are any."""
    checksum = hashlib.sha256(np.ascontiguousarray(consensus.labels))
    if consensus.has_memberships:
        for block in consensus.blocks():
            checksum.update(np.ascontiguousarray(consensus.read_memberships(block.start, block.stop)))
    return checksum.hexdigest()


def measure(
    solve: str, path: Path, truth_path: Path, memory: str, engine_name: str, folder: Path
) -> dict[str, Any]:
    """Solve in a new process and score the result."""
    out = folder / f"consensus-{solve.replace(' ', '-')}-{engine_name}.zarr"
    row = {"method": solve, "parameters": BY_NAME[solve][1], "engine": engine_name, "memory": memory}
    try:
        record = measured_child(["--child", solve, str(path), str(out), memory, engine_name], __file__)
    except SystemExit as failure:
        return {**row, "failed": str(failure)}
    if "refused" in record:
        return {**row, **record}
    row |= {**record, "within_memory": record["peak_memory"] <= parse_size(memory)}
    row["ARI"] = round(accuracy(out, truth_path)["ARI"], 4)
    shutil.rmtree(out)
    return row


def line_of(row: dict[str, Any]) -> str:
    """Return the line of the table for a row."""
    head = f"{row['method']:13}{row['engine']:13}"
    if "seconds" not in row:
        return head + (row.get("refused") or row["failed"])
    passes = "-" if row["passes"] is None else row["passes"]
    peak = f"{row['peak_memory'] / 1e6:.0f}{'' if row['within_memory'] else ' OVER'}"
    same = {None: "", True: "same", False: "DIFFERENT"}[row.get("same_bits")]
    return (
        f"{head}{row['seconds']:9.2f}{row['cpu_seconds']:9.2f}{passes:>7}{row['pass_seconds']:9.3f}"
        f"{row['pass_ratio']:8.1f}{peak:>11}{row['ARI']:8.4f} {same}"
    )


HEAD = (
    f"{'method':13}{'engine':13}{'seconds':>9}{'CPU s':>9}{'passes':>7}{'s/pass':>9}{'/ read':>8}"
    f"{'peak MB':>11}{'ARI':>8} bits"
)


def cost(n_objects: int, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure every method on threads and, on request, on clusters; print each row when it is ready."""
    path, truth_path = plant(n_objects, folder, N_PARTITIONS)
    budgets = {THREADS: arguments.memory}
    if arguments.dask:
        budgets |= {WORKER: arguments.memory, CLUSTER: arguments.dask_memory}
    rows: list[dict[str, Any]] = []
    print(HEAD, flush=True)
    for solve in arguments.methods or SOLVES:
        bits: set[str] = set()
        for engine_name, memory in budgets.items():
            row = measure(solve, path, truth_path, memory, engine_name, folder)
            if bits and "bits" in row:
                row["same_bits"] = row["bits"] in bits
            bits |= {row["bits"]} if "bits" in row else set()
            rows.append(row)
            print(line_of(row), flush=True)
    return {"n_objects": n_objects, "n_partitions": N_PARTITIONS, "n_clusters": K, "rows": rows}


def planted(n_objects: int, n_seeds: int, names: list[str] | None) -> dict[str, Any]:
    """Measure how well every method finds the planted classes; print each row when it is ready."""
    rows: list[dict[str, Any]] = []
    print(f"{'method':28}{'missing':9}{'ARI by seed':26}CPU s", flush=True)
    for missing in (0.0, 0.5):
        ensembles = [planted_ensemble(n_objects, missing=missing, random_state=s) for s in range(n_seeds)]
        for solve in names or BY_NAME:
            name, parameters = BY_NAME[solve]
            row: dict[str, Any] = {"method": solve, "parameters": parameters, "missing": missing}
            began = time.process_time()
            try:
                row["ARI"] = [
                    round(found(name, parameters, *planted, s), 4) for s, planted in enumerate(ensembles)
                ]
            except MemoryBudgetError as refusal:
                row["refused"] = str(refusal)
            row["cpu_seconds_per_fit"] = round((time.process_time() - began) / n_seeds, 2)
            rows.append(row)
            values = row.get("refused") or "  ".join(f"{value:.4f}" for value in row["ARI"])
            print(f"{solve:28}{missing:<9}{values:26}{row['cpu_seconds_per_fit']}", flush=True)
    return {"n_objects": n_objects, "n_partitions": 100, "n_clusters": K, "rows": rows}


def found(name: str, parameters: dict[str, Any], ensemble: Ensemble, truth: np.ndarray, seed: int) -> float:
    """Return the adjusted Rand index of a method on a planted ensemble."""
    return adjusted_rand(truth, METHODS[name](K, random_state=seed, **parameters).fit(ensemble).labels_)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smallest", action="store_true", help="seconds, to see that it runs")
    parser.add_argument("--planted", action="store_true", help="accuracy on planted ensembles, not cost")
    parser.add_argument("--seeds", type=int, default=3, help="of --planted, from 0 on")
    parser.add_argument("--dask", action="store_true", help="also on Dask workers, one and two")
    parser.add_argument("--millions", type=float, default=2.0, help="objects, in millions")
    parser.add_argument("--memory", default="1GB", help="budget on threads and on one worker")
    parser.add_argument("--dask-memory", default="2GB", help="budget of the three processes of two workers")
    parser.add_argument("--methods", nargs="+", metavar="METHOD", help=f"only these of {', '.join(BY_NAME)}")
    parser.add_argument("--folder", type=Path, help="keep the ensemble there; default a temporary one")
    parser.add_argument("-o", "--out", type=Path, help="write the results there as JSON")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    if arguments.smallest and not arguments.methods:
        arguments.methods = ["mixture"]
    if arguments.child:
        print(json.dumps(child(*arguments.child)))
        return
    results: dict[str, Any] = {"machine": describe()}
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if arguments.planted:
            size = (2_000, 1) if arguments.smallest else (120_000, arguments.seeds)
            results |= planted(*size, arguments.methods)
        else:
            n_objects = 20_000 if arguments.smallest else int(arguments.millions * 1e6)
            results |= cost(n_objects, folder, arguments)
    name = "methods-planted.json" if arguments.planted else "methods.json"
    out = arguments.out or (None if arguments.smallest else Path(__file__).parent / "results" / name)
    if out:
        if arguments.methods and out.exists():  # the others' rows stay
            old_rows = json.loads(out.read_text())["rows"]
            others = [row for row in old_rows if row["method"] not in arguments.methods]
            results["rows"] = others + results["rows"]
        out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
