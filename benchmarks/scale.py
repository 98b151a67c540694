"""Is the size of an ensemble limited by the disk and not by memory?

Planted ensembles (100 partitions, or ``--partitions``, half the labels missing, six unbalanced classes) are
written directly to disk; the consensus tree and PCC then solve each at K = 10, each in a new process, from
stored ensemble to stored labels with their confidence. Reports seconds, processor seconds of all threads,
passes, the peak memory of the process tree, and the accuracy.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from machine import describe

from bigcons.datasets import PlantedLabels, planted_blocks
from bigcons.io.labels import default_chunk_rows
from bigcons.memory import Block, row_blocks
from bigcons.run.engine import ThreadsEngine
from bigcons.store.ensemble_store import Content, Header, write_store

N_PARTITIONS = 100
N_CLUSTERS = 10


def plant(
    n_objects: int, folder: Path, n_partitions: int = N_PARTITIONS, missing: float = 0.5, **kind: Any
) -> tuple[Path, Path]:
    """Write a planted ensemble and its truth unless they exist; a few blocks are in memory at a time."""
    name = f"{n_objects}x{n_partitions}"
    path, truth_path = folder / f"planted-{name}.zarr", folder / f"truth-{name}.npy"
    if path.exists() and truth_path.exists():
        return path, truth_path
    recipe = planted_blocks(n_objects, n_partitions, missing=missing, random_state=0, **kind)
    chunk_rows = default_chunk_rows(n_objects, n_partitions)
    n_clusters = recipe.read(0, min(n_objects, 100_000))[0].max(axis=0).astype(np.int64) + 1
    n_labeled = np.zeros(n_partitions, np.int64)
    truth = np.lib.format.open_memmap(truth_path, "w+", np.int8, (n_objects,))
    names = [f"p{u}" for u in range(n_partitions)]
    head = Header(n_objects, names, n_clusters, n_labeled, chunk_rows, {"made_by": "benchmarks/scale.py"})
    blocks = labels_in_order(recipe, row_blocks(n_objects, chunk_rows), n_labeled, truth)
    write_store(path, Content(head, [None] * n_partitions, blocks), True)
    truth.flush()
    return path, truth_path


def labels_in_order(
    recipe: PlantedLabels, blocks: list[Block], n_labeled: np.ndarray, truth: np.ndarray
) -> Iterator[np.ndarray]:
    parts = ThreadsEngine().map(lambda block: recipe.read(block.start, block.stop), blocks)
    for block, (labels, classes) in zip(blocks, parts, strict=True):
        truth[block.start : block.stop] = classes
        n_labeled += np.count_nonzero(labels >= 0, axis=0)
        yield labels


def solve(method: str, path: str, out: str, memory: str) -> dict:
    """Solve in this process, the child."""
    import warnings

    from bigcons.methods import METHODS

    warnings.simplefilter("ignore")  # of the six classes that ten clusters are
    model = METHODS[method](N_CLUSTERS, random_state=0, memory=memory)
    began, used = time.perf_counter(), time.process_time()
    model.fit(path, out=out)
    return {
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - used,
        "passes": model.n_passes_,
        "clusters_found": model.n_clusters_,
    }


def tree_bytes(root: int) -> int:
    """Return the resident memory of a process and its descendants now (Linux).

    A child that has just been forked still shows its parent's memory and command line and is not counted.
    """
    parents, resident, commands = {}, {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            pid = int(stat.parent.name)
            commands[pid] = stat.with_name("cmdline").read_bytes()
            parents[pid] = int(fields[1])
            resident[pid] = int(fields[21]) * 4096
        except (OSError, IndexError, ValueError):
            continue
    total, family = 0, {root}
    while family:
        total += sum(resident.get(pid, 0) for pid in family)
        family = {
            pid
            for pid, parent in parents.items()
            if parent in family and commands[pid] != commands.get(parent)
        }
    return total


def measured_child(arguments: list[str], script: str = __file__) -> dict:
    """Run a script as a child; return its JSON and the peak memory of its tree, sampled every 50 ms."""
    child = subprocess.Popen([sys.executable, script, *arguments], stdout=subprocess.PIPE, text=True)
    peak, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.05):
            peak[0] = max(peak[0], tree_bytes(child.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, _ = child.communicate()
    ended.set()
    watcher.join()
    if child.returncode:
        raise SystemExit(f"the solve ended with status {child.returncode}")
    return {**json.loads(output.splitlines()[-1]), "peak_memory": peak[0]}


def accuracy(out: Path, truth_path: Path) -> dict:
    """Compare the labels with the truth; beyond 100 million objects, those of some of the blocks."""
    from bigcons import Consensus
    from bigcons.metrics import adjusted_rand, matching_accuracy

    consensus, classes = Consensus.open(out), np.load(truth_path, mmap_mode="r")
    blocks = consensus.blocks()[:: -(-consensus.n_objects // 100_000_000)]
    labels = np.concatenate([consensus.read_labels(block.start, block.stop) for block in blocks])
    truth = np.concatenate([classes[block.start : block.stop] for block in blocks])
    return {"ARI": adjusted_rand(truth, labels), "H": matching_accuracy(truth, labels)}


def measure(method: str, n_objects: int, folder: Path, arguments: argparse.Namespace) -> dict:
    path, truth_path = plant(n_objects, folder, arguments.partitions)
    out = folder / f"consensus-{n_objects}.zarr"
    if out.exists():
        import shutil

        shutil.rmtree(out)
    result = measured_child(["--child", method, str(path), str(out), "--memory", arguments.memory])
    stored = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    row = {
        "method": method,
        "n_objects": n_objects,
        "n_partitions": arguments.partitions,
        "memory": arguments.memory,
        **result,
        "microseconds_per_object": 1e6 * result["seconds"] / n_objects,
        "bytes_stored": stored,
        **accuracy(out, truth_path),
    }
    print(json.dumps(row), flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smallest", action="store_true", help="a few seconds, to see that it runs")
    parser.add_argument(
        "--millions",
        type=float,
        nargs="+",
        default=[1, 4, 10],
        help="sizes; 100 is full size, and 1000 of 20 partitions with a budget of 1GB",
    )
    parser.add_argument("--methods", nargs="+", default=["tree", "pcc"])
    parser.add_argument("--partitions", type=int, default=N_PARTITIONS)
    parser.add_argument("--memory", default="4GB")
    parser.add_argument(
        "--folder", type=Path, help="keep ensembles and results there; default a temporary one"
    )
    parser.add_argument("-o", "--out", type=Path, help="write the results there as JSON")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(solve(*arguments.child, arguments.memory)))
        return
    sizes, methods = [round(million * 1e6) for million in arguments.millions], arguments.methods
    if arguments.smallest:
        sizes, methods = [20_000], methods[:1]
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        runs = [measure(method, n, folder, arguments) for n in sizes for method in methods]
        results = {"machine": describe(), "runs": runs}
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
