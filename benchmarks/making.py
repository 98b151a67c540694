"""How fast are k-means ensembles made, and what does training on samples cost?

(a) Planted features x 16 in a .npy file, 100 partitions of random halves into 2 to 20 clusters, by k-means on
all objects of each half (``train="all"``), on samples (``train="auto"``), and by FAISS on 256 points per
cluster, each in a process of its own, a seed for each repeat: seconds, those of the processor (for busy
machines), and the inertia of the partitions on the objects they saw, relative to that of ``train="all"``.
(b) A larger file in Parquet: seconds to make the ensemble within 1 GB, peak memory of the process.
(c) ``bigcons run`` on that file: seconds from features to consensus labels, peak memory, accuracy.

``--faiss`` names a Python with faiss-cpu; without it FAISS is left out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from machine import describe
from pyarrow import parquet
from scale import measured_child

from bigcons import Consensus, metrics
from bigcons.datasets import planted_feature_blocks
from bigcons.memory import row_blocks

N_FEATURES = 16
N_CLUSTERS = (2, 20)

FAISS = """
import json, sys, time
import faiss
import numpy as np

path, n_partitions, low, high, seed = sys.argv[1], *map(int, sys.argv[2:6])
X = np.load(path)
began, used = time.perf_counter(), time.process_time()
X = (X - X.mean(axis=0)) / X.std(axis=0)
rng = np.random.default_rng(seed)
labels = np.full((n_partitions, len(X)), -1, np.int8)
for u in range(n_partitions):
    rows = np.sort(rng.choice(len(X), len(X) // 2, replace=False))
    points = X[rows]
    k = int(rng.integers(low, high + 1))
    model = faiss.Kmeans(X.shape[1], k, niter=25, seed=1000 * seed + u, max_points_per_centroid=256)
    model.train(points)
    labels[u, rows] = model.index.search(points, 1)[1][:, 0]
seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - used
np.save(sys.argv[6], labels.T)
print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds}))
"""


def write_npy(n_objects: int, path: Path) -> None:
    np.save(path, planted_feature_blocks(n_objects, N_FEATURES).read(0, n_objects)[0])


def write_parquet(n_objects: int, path: Path, truth_path: Path) -> None:
    """Write features and truth; a few blocks are in memory at a time."""
    recipe = planted_feature_blocks(n_objects, N_FEATURES)
    truth = np.empty(n_objects, np.int8)
    schema = pa.schema([(f"x{f}", pa.float32()) for f in range(N_FEATURES)])
    with parquet.ParquetWriter(path, schema, write_page_checksum=True) as writer:
        for block in row_blocks(n_objects, 1 << 18):
            values, truth[block.start : block.stop] = recipe.read(block.start, block.stop)
            writer.write_table(pa.table(list(values.T.copy()), schema=schema))
    np.save(truth_path, truth)


def generate(path: str, out: str, options: str) -> dict:
    """Make an ensemble in this process, the child."""
    from bigcons.generate import kmeans

    kmeans(np.eye(9), n_partitions=2, n_clusters=2)  # imports scikit-learn
    began, used = time.perf_counter(), time.process_time()
    kmeans(path, out=out, n_clusters=N_CLUSTERS, **json.loads(options))
    return {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - used}


def inertias(path: Path, labels: np.ndarray) -> np.ndarray:
    """Return the inertia of each partition per object that it saw, of standardized features.

    That of the first 200,000 objects; they are in random order.
    """
    X = np.load(path).astype(np.float64)
    X = ((X - X.mean(axis=0)) / X.std(axis=0))[:200_000]
    lengths = np.einsum("ij,ij->i", X, X)
    found = []
    for column in labels[:200_000].T:
        rows = np.flatnonzero(column >= 0)
        points, clusters = X[rows], column[rows]
        sizes = np.bincount(clusters)
        sums = np.stack([np.bincount(clusters, points[:, f]) for f in range(X.shape[1])])
        found.append((lengths[rows].sum() - (sums**2 / np.maximum(sizes, 1)).sum()) / len(rows))
    return np.array(found)


def compare(
    n_objects: int, n_partitions: int, folder: Path, faiss: str | None, repeats: int, *, smallest: bool
) -> dict:
    """Measure (a): the ways in turn, ``repeats`` times."""
    from bigcons import Ensemble

    path = folder / "features.npy"
    write_npy(n_objects, path)
    seconds: dict[str, list[float]] = {"all": [], "auto": []} | ({"faiss": []} if faiss else {})
    cpu_seconds: dict[str, list[float]] = {train: [] for train in seconds}
    peaks: dict[str, int] = {}
    found: dict[str, list[np.ndarray]] = {train: [] for train in seconds}
    for repeat in range(smallest, repeats + 1):  # 0 compiles kernels and is not counted
        for train in seconds:
            if repeat == 0 and train != "auto":
                continue
            if train == "faiss":
                values = map(str, (n_partitions, *N_CLUSTERS, repeat, folder / "faiss.npy"))
                command = [str(faiss), "-c", FAISS, str(path), *values]
                result = json.loads(
                    subprocess.run(command, capture_output=True, text=True, check=True).stdout
                )
                labels = np.load(folder / "faiss.npy")
            else:
                out = folder / f"{train}.zarr"
                shutil.rmtree(out, ignore_errors=True)
                options = json.dumps({"n_partitions": n_partitions, "train": train, "random_state": repeat})
                result = measured_child(["--child", str(path), str(out), options], __file__)
                labels = Ensemble.open(out).read(0, n_objects)
                peaks[train] = result["peak_memory"]
            if repeat:
                seconds[train].append(result["seconds"])
                cpu_seconds[train].append(result["cpu_seconds"])
                found[train].append(inertias(path, labels))
    inertia = {train: np.concatenate(each) for train, each in found.items()}
    ratios = inertia["auto"] / inertia["all"]
    row = {
        "n_objects": n_objects,
        "n_partitions": n_partitions,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "peak_memory": peaks,
        "speedup": median(a / b for a, b in zip(seconds["all"], seconds["auto"], strict=True)),
        "inertia": float(ratios.mean()),
        "inertia_standard_error": float(ratios.std() / np.sqrt(len(ratios))),
        "mean_inertia": {train: float(each.mean()) for train, each in inertia.items()},
    }
    if faiss:  # with other numbers of clusters
        row["faiss_over_auto"] = median(a / b for a, b in zip(seconds["faiss"], seconds["auto"], strict=True))
    print(json.dumps(row), flush=True)
    return row


def from_parquet(n_objects: int, n_partitions: int, folder: Path, memory: str) -> dict:
    """Measure (b) and (c)."""
    path, truth = folder / "features.parquet", folder / "truth.npy"
    if not path.exists():
        write_parquet(n_objects, path, truth)
    options = json.dumps({"n_partitions": n_partitions, "memory": memory, "random_state": 0})
    made = measured_child(["--child", str(path), str(folder / "made.zarr"), options], __file__)
    shutil.rmtree(folder / "made.zarr")
    row = {"n_objects": n_objects, "n_partitions": n_partitions, "memory": memory, "generate": made}
    print(json.dumps(row), flush=True)
    row["run"] = measured_child(["--run", str(path), str(folder), str(n_partitions), memory], __file__)
    print(json.dumps(row["run"]), flush=True)
    return row


def run(path: str, folder: str, n_partitions: str, memory: str) -> dict:
    """Run the command in this process, the child."""
    from click.testing import CliRunner

    from bigcons.cli import main

    command = ["run", path, "-k", "10", "-o", f"{folder}/out", "--json"]
    command += ["--n-partitions", n_partitions, "--memory", memory]
    began = time.perf_counter()
    result = CliRunner().invoke(main, command, catch_exceptions=False)
    if result.exit_code:
        raise SystemExit(result.stderr)
    seconds = time.perf_counter() - began
    labels = Consensus.open(f"{folder}/out/consensus.zarr").labels
    score = metrics.adjusted_rand(np.load(f"{folder}/truth.npy"), labels)
    return {"seconds": seconds, "printed": json.loads(result.stdout), "adjusted_rand": score}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smallest", action="store_true", help="a few seconds, to see that it runs")
    parser.add_argument("--objects", type=float, default=1e6, help="of (a)")
    parser.add_argument("--large", type=float, default=1e7, help="objects of (b) and (c); 0 omits them")
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory", default="1GB", help="of (b) and (c)")
    parser.add_argument("--faiss", help="a Python with faiss-cpu")
    parser.add_argument("--folder", type=Path, help="keep files there; default a temporary folder")
    parser.add_argument("-o", "--out", type=Path, help="write the results there as JSON")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--run", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child or arguments.run:
        result = generate(*arguments.child) if arguments.child else run(*arguments.run)
        print(json.dumps(result))
        return
    n_objects, large = int(arguments.objects), int(arguments.large)
    n_partitions, repeats = arguments.partitions, arguments.repeats
    if arguments.smallest:
        n_objects, large, n_partitions, repeats = 90_000, 10_000, 2, 1
    results: dict = {"machine": describe()}
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if n_objects:
            asked = n_objects, n_partitions, folder, arguments.faiss, repeats
            results["ways"] = compare(*asked, smallest=arguments.smallest)
        if large:
            results["large"] = from_parquet(large, n_partitions, folder, arguments.memory)
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
