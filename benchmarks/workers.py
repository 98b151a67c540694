"""What does Dask cost on one machine, and what does a second worker gain?

A planted ensemble on disk (100 partitions, half the labels missing) is solved by two passes of all-pairs PCC
at K = 10, to a store: on one thread, on two, on a LocalCluster of one and of two worker processes, every time
in a process of its own. Reports wall-clock seconds, what the second worker gains, what Dask costs over plain
threads of the same number; the bits of labels and memberships must be the same every time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from machine import describe
from scale import N_CLUSTERS, plant

PASSES = 2
ENGINES = ["threads-1", "threads-2", "processes-1", "processes-2"]


@contextmanager
def engine_of(name: str):
    """Yield the engine that a name means; starting a cluster is not measured."""
    kind, n_workers = name.split("-")
    if kind == "threads":
        from bigcons.execution.engine import ThreadsEngine

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
    """Solve in this process; this is what the child runs."""
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
    """Load the kernels in every process that will work."""
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


def measure(n_objects: int, repeats: int, folder: Path) -> dict:
    path, _ = plant(n_objects, folder)
    runs = [run(name, path, folder) for _ in range(repeats) for name in ENGINES]
    if len({result["bits"] for result in runs}) != 1:
        raise SystemExit("the engines do not agree on the bits of the result")
    best = {name: min(r["seconds"] for r in runs if r["engine"] == name) for name in ENGINES}
    return {
        "n_objects": n_objects,
        "passes": PASSES,
        "runs": runs,
        "seconds": best,
        "speed_up_of_second_thread": best["threads-1"] / best["threads-2"],
        "speed_up_of_second_process": best["processes-1"] / best["processes-2"],
        "overhead_of_one_process": best["processes-1"] / best["threads-1"] - 1.0,
        "overhead_of_two_processes": best["processes-2"] / best["threads-2"] - 1.0,
        "same_bits": True,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smallest", action="store_true", help="a few seconds, to see that it runs")
    parser.add_argument("--millions", type=float, default=4.0)
    parser.add_argument("--repeats", type=int, default=3, help="the fastest counts")
    parser.add_argument("--folder", type=Path, help="keep the ensemble there; default a temporary one")
    parser.add_argument("-o", "--out", type=Path, help="write the results there as JSON")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(solve(*arguments.child)))
        return
    n_objects = 20_000 if arguments.smallest else int(arguments.millions * 1e6)
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        repeats = 1 if arguments.smallest else arguments.repeats
        results = {"machine": describe(), **measure(n_objects, repeats, folder)}
    print(json.dumps({name: value for name, value in results.items() if name not in ("machine", "runs")}))
    out = arguments.out or (None if arguments.smallest else Path(__file__).parent / "results" / "dask.json")
    if out:
        out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
