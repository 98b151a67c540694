"""What does Dask cost on one machine, and what does a second worker gain?

Two passes of all-pairs PCC at K = 10 solve a planted ensemble on disk (100 partitions, half the labels
missing) to a store: on one thread, on two, and on LocalClusters of one and two worker processes, each in a
new process. Reports wall-clock seconds, the gain of the second worker, and the cost of Dask over as many
plain threads; the bits of labels and memberships must always be the same.

``--simulate`` asks how many workers one client keeps busy. A pass over 100 million objects is folded on
clusters of 2 to 50 threads, whose tasks sleep as long as a block takes and return as many bytes as it does,
so that they need no processors: a thread asks of the client and the scheduler what a worker of one thread
does. Reports the share of the threads' time that is outside tasks (the median of three folds), and the
processor seconds of client, scheduler and workers, and writes ``results/workers.json``. As with a real
cluster, the scheduler is a process of its own. Unlike there, all processes share the cores of this machine,
so that what is outside tasks includes their waits for a core, and no network lies between them, whose time
is left out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from machine import describe
from scale import N_CLUSTERS, plant

from bigcons.memory import Block, row_blocks
from bigcons.run.engine import fold

PASSES = 2
ENGINES = ["threads-1", "processes-1", "processes-2", "threads-2"]


@contextmanager
def engine_of(name: str):
    """Yield the engine of this name; starting a cluster is not measured."""
    kind, n_workers = name.split("-")
    if kind == "threads":
        from bigcons.run.engine import ThreadsEngine

        yield ThreadsEngine(int(n_workers))
        return
    import distributed

    with (
        distributed.LocalCluster(
            n_workers=int(n_workers), threads_per_worker=1, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def solve(name: str, path: str, out: str) -> dict:
    """Solve in this process, the child."""
    from bigcons import PCC, Consensus

    with engine_of(name) as engine:
        model = PCC(N_CLUSTERS, max_iter=PASSES, tol=0.0, random_state=0, client=engine)
        warm_up(model)
        began = time.perf_counter()
        model.fit(path, out=out)
        seconds = time.perf_counter() - began
    consensus = Consensus.open(out)
    digest = hashlib.sha256()
    for block in consensus.blocks():
        digest.update(np.ascontiguousarray(consensus.read_memberships(block.start, block.stop)))
    digest.update(np.ascontiguousarray(consensus.labels))
    return {
        "engine": name,
        "seconds": seconds,
        "pass_seconds": model.history_["seconds"],
        "bits": digest.hexdigest(),
    }


def warm_up(model) -> None:
    """Load the kernels in every process that runs tasks."""
    from bigcons import Ensemble
    from bigcons.datasets import planted_ensemble

    labels = planted_ensemble(4000, 20, missing=0.5, random_state=0)[0].read(0, 4000)
    with tempfile.TemporaryDirectory() as folder:
        ensemble = Ensemble.from_labels(labels).save(Path(folder) / "warm.zarr", chunk_rows=256)
        model.fit(ensemble)


def run(name: str, path: Path, folder: Path) -> dict:
    out = folder / f"consensus-{name}.zarr"
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, __file__, "--child", name, str(path), str(out)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    print(f"{name}: {result['seconds']:.2f} s", flush=True)
    return result


def measure(n_objects: int, engines: list[str], repeats: int, folder: Path) -> dict:
    path, _ = plant(n_objects, folder)
    rounds = [[run(name, path, folder) for name in engines] for _ in range(repeats)]
    if len({result["bits"] for results in rounds for result in results}) != 1:
        raise SystemExit("the engines do not agree on the bits of the result")
    return {"n_objects": n_objects, "passes": PASSES, "rounds": rounds, **compared(engines, rounds)}


RATIOS = {
    "speed_up_of_second_thread": ("threads-1", "threads-2"),
    "speed_up_of_second_process": ("processes-1", "processes-2"),
    "one_process_by_one_thread": ("processes-1", "threads-1"),
    "two_processes_by_two_threads": ("processes-2", "threads-2"),
}
"""Engines whose seconds are compared, the first by the second."""


def compared(engines: list[str], rounds: list[list[dict]]) -> dict:
    """Return what the engines took in each round, by another, as medians over the rounds."""
    seconds = {name: [results[at]["seconds"] for results in rounds] for at, name in enumerate(engines)}
    in_passes = {
        name: [sum(results[at]["pass_seconds"]) for results in rounds] for at, name in enumerate(engines)
    }
    table = {
        "seconds": {name: statistics.median(values) for name, values in seconds.items()},
        "same_bits": True,
    }
    for ratio, (first, other) in RATIOS.items():
        if first in engines and other in engines:
            table[ratio] = middle_ratio(seconds[first], seconds[other])
            table[f"{ratio}_in_passes"] = middle_ratio(in_passes[first], in_passes[other])
    return table


def middle_ratio(seconds: list[float], others: list[float]) -> float:
    """Return the median of the ratios within a round, since a machine's speed drifts between rounds."""
    return statistics.median(first / other for first, other in zip(seconds, others, strict=True))


# Of a pass of PCC over 100 partitions, a task's function and result, and the seconds of 65,536 objects on one
# core.
FUNCTION_BYTES, RESULT_BYTES, BLOCK_SECONDS = 122_779, 160_000, 0.049
SIMULATED = ((2, 1), (2, 2), (2, 4), (4, 4), (5, 10))
"""Worker processes, and the threads of each."""
BOUNDS = (
    "seconds outside tasks include waits of client, scheduler and all workers for the cores of this machine, "
    "and leave out the time of a network"
)


@dataclass
class Sleep:
    """A task of a pass that needs no processor."""

    seconds: float
    carried: bytes

    def __call__(self, _block: Block) -> np.ndarray:
        time.sleep(self.seconds)
        return np.ones(RESULT_BYTES // 8)


def simulate(n_objects: int, n_processes: int, n_threads: int) -> dict:
    """Return the share of threads' time outside tasks in the fold of a pass, of the middle run of three."""
    import distributed
    from distributed.deploy.subprocess import SubprocessCluster

    from bigcons.run.dask import DaskEngine

    blocks = row_blocks(n_objects, 65_536)
    n_workers, task = n_processes * n_threads, Sleep(BLOCK_SECONDS, bytes(FUNCTION_BYTES))
    slept = task.seconds * len(blocks) / n_workers
    runs = []
    with (
        SubprocessCluster(
            n_workers=n_processes, threads_per_worker=n_threads, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):

        def used() -> np.ndarray:
            workers = sum(client.run(time.process_time).values())
            return np.array([time.process_time(), client.run_on_scheduler(time.process_time), workers])

        client.wait_for_workers(n_processes)
        engine = DaskEngine(client)
        fold(engine, blocks[: 4 * n_workers], task, np.add)  # which imports what tasks need
        for _ in range(3):
            before, began = used(), time.perf_counter()
            total = fold(engine, blocks, task, np.add)
            wall = time.perf_counter() - began
            if total[0] != len(blocks):
                raise SystemExit("a block is lost")
            runs.append((wall, *(used() - before)))
    wall, of_client, of_scheduler, of_workers = sorted(runs)[1]
    return {
        "threads": n_workers,
        "blocks": len(blocks),
        "seconds": round(wall, 3),
        "share_outside_tasks": round(1.0 - slept / wall, 3),
        "shares_of_runs": [round(1.0 - slept / run[0], 3) for run in runs],
        "processor_seconds": {
            "client": round(of_client, 3),
            "scheduler": round(of_scheduler, 3),
            "workers": round(of_workers, 3),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smallest", action="store_true", help="a few seconds, to see that it runs")
    parser.add_argument("--millions", type=float, default=4.0)
    parser.add_argument("--repeats", type=int, default=3, help="rounds; medians are reported")
    parser.add_argument("--folder", type=Path, help="keep the ensemble there; default a temporary one")
    parser.add_argument("-o", "--out", type=Path, help="write the results there as JSON")
    parser.add_argument("--simulate", action="store_true", help="how many workers a client keeps busy")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(solve(*arguments.child)))
        return
    if arguments.simulate:
        rows = []
        for pair in SIMULATED[:1] if arguments.smallest else SIMULATED:
            rows.append(simulate(1_000_000 if arguments.smallest else 100_000_000, *pair))
            print(json.dumps(rows[-1]), flush=True)
        if not arguments.smallest:
            path = Path(__file__).parent / "results" / "workers.json"
            results = {"machine": describe(), "bounds": BOUNDS, "rows": rows}
            path.write_text(json.dumps(results, indent=1) + "\n")
        return
    n_objects = 20_000 if arguments.smallest else int(arguments.millions * 1e6)
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        repeats = 1 if arguments.smallest else arguments.repeats
        engines = ["threads-1", "processes-1"] if arguments.smallest else ENGINES
        results = {"machine": describe(), **measure(n_objects, engines, repeats, folder)}
    print(json.dumps({name: value for name, value in results.items() if name not in ("machine", "rounds")}))
    out = arguments.out or (None if arguments.smallest else Path(__file__).parent / "results" / "dask.json")
    if out:
        out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
