"""Who solves the same stored ensembles, up to which size, in how much time and memory, and how well?

Planted ensembles (30 partitions, six unbalanced classes, errors independent from partition to partition) of
three kinds: coarse, of 2 to 10 clusters; fine, of 30 to 60; incomplete, coarse with half the labels missing.
bigcons reads the store; packages and the usual few lines of scikit-learn and SciPy read the same labels as an
array. Each solve is a process of its own: seconds from labels to labels, imports not counted; the peak memory
of the process, imports counted; the adjusted Rand index with the classes. bigcons solves twice, and the
second process counts, for which kernels are compiled. A solve that takes longer or more memory than allowed
has failed, and is not tried at larger sizes; nor is one that would take longer at its pace.

Packages come from the environments that ``accuracy_peers.py install`` makes (``--peers``); without them only
bigcons and the do-it-yourself code run. About half an hour.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import accuracy_peers
import numpy as np
from accuracy import one_hot_kmeans, svd_kmeans
from machine import describe

from bigcons import METHODS
from bigcons.datasets import planted_ensemble
from bigcons.metrics import adjusted_rand

RESULTS = Path(__file__).parent / "results"
N_PARTITIONS = 30
SIZES = [1_000, 10_000, 100_000, 1_000_000]
KINDS: dict[str, dict[str, Any]] = {
    "coarse": {"n_clusters": (2, 10), "missing": 0.0},
    "fine": {"n_clusters": (30, 60), "missing": 0.0},
    "incomplete": {"n_clusters": (2, 10), "missing": 0.5},
}
OURS = ("pcc", "kcc", "hbgf")
COMPILING = 300.0
"""Seconds that compiling kernels may take."""
PACE = 7.0
"""Least factor of the seconds expected for ten times the objects."""


def linkage(labels: np.ndarray, n_clusters: int, seed: int) -> np.ndarray:  # noqa: ARG001 - no randomness
    """Average linkage of the co-association matrix by SciPy, ten lines; its size is quadratic."""
    from scipy.cluster.hierarchy import fcluster
    from scipy.cluster.hierarchy import linkage as link
    from scipy.spatial.distance import squareform

    agree = np.zeros((len(labels), len(labels)), np.float32)
    seen = np.zeros_like(agree)
    for partition in labels.T:
        known = partition >= 0
        agree += (partition[:, None] == partition) & known
        seen += known[:, None] & known
    apart = 1 - agree / np.maximum(seen, 1)
    np.fill_diagonal(apart, 0)
    return fcluster(link(squareform(apart, checks=False), "average"), n_clusters, "maxclust")


DO_IT_YOURSELF = {
    "scikit-learn: k-means of one-hot labels": one_hot_kmeans,
    "SciPy: sparse SVD, k-means": svd_kmeans,
    "SciPy: average linkage": linkage,
}


def serve() -> None:
    """Answer one request on standard input by bigcons or a few lines, as ``accuracy_peers.py serve`` does."""
    request = json.loads(sys.stdin.readline())
    family, _, method = request["solver"].partition(" ")
    if family == "bigcons":
        model = METHODS[method](request["n_clusters"], random_state=request["seed"])
        began = time.perf_counter()
        found = np.asarray(model.fit(request["store"]).labels_)
    else:
        labels = np.load(request["labels"])
        began = time.perf_counter()
        found = DO_IT_YOURSELF[request["solver"]](labels, request["n_clusters"], request["seed"])
    wall = time.perf_counter() - began
    np.save(request["found"], found)
    print(json.dumps({"error": None, "wall": wall, "peak": accuracy_peers.peak_memory()}))


def solve(solver: str, given: dict[str, Any], peers: Path | None, timeout: float, memory: float) -> dict:
    """Return seconds, peak memory and labels of a solve in a process of its own, or how it failed."""
    package, _, method = solver.partition(" ")
    command = [sys.executable, __file__, "--serve"]
    if package in accuracy_peers.PACKAGES:
        assert peers is not None
        command = [str(peers / package / "bin" / "python"), accuracy_peers.__file__, "serve", package]
    limit = int(memory * 2**30)
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)),
    )
    request = {**given, "solver": solver, "method": method}
    try:
        told, errors = child.communicate(json.dumps(request) + "\n", timeout=timeout)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return {"failed": f"more than {timeout:g} s"}
    if child.returncode:
        is_memory = "MemoryError" in errors or "allocate" in errors or child.returncode == -9
        last = errors.strip().splitlines()[-1][:120] if errors.strip() else f"status {child.returncode}"
        return {"failed": f"more than {memory:g} GB" if is_memory else last}
    answer = json.loads(told.splitlines()[-1])
    if answer["error"]:
        is_memory = "MemoryError" in answer["error"] or "allocate" in answer["error"]
        return {"failed": f"more than {memory:g} GB" if is_memory else answer["error"]}
    return {"seconds": answer["wall"], "peak": answer["peak"], "labels": np.load(given["found"])}


def measure(
    arguments: argparse.Namespace, solvers: list[str], kind: str, folder: Path
) -> list[dict[str, Any]]:
    """Return a row for every solver and size."""
    rows: list[dict[str, Any]] = []
    last: dict[str, dict[str, Any]] = {}
    for n in arguments.sizes:
        ensemble, classes = planted_ensemble(n, N_PARTITIONS, random_state=0, **KINDS[kind])
        given = {
            **{name: str(folder / f"{name}.npy") for name in ("labels", "found")},
            "store": str(folder / "ensemble.zarr"),
            "n_clusters": int(classes.max()) + 1,
            "seed": 0,
        }
        ensemble.save(given["store"], overwrite=True)
        np.save(given["labels"], np.asarray(ensemble))
        for solver in solvers:
            before = last.get(solver)
            row: dict[str, Any] = {"solver": solver, "kind": kind, "n_objects": n}
            if before is not None and "failed" in before:
                row["failed"] = "not tried: failed at a smaller size"
            elif (
                before is not None
                and before["seconds"] > 1
                and (
                    (expected := before["seconds"] * PACE * n / before["n_objects"] / 10) > arguments.timeout
                )
            ):
                row["failed"] = f"not tried: {expected:.0f} s or more at its pace"
            else:
                if solver.startswith("bigcons") and not arguments.smallest:
                    solve(solver, given, None, COMPILING + arguments.timeout, arguments.memory)
                row |= solve(solver, given, arguments.peers, arguments.timeout, arguments.memory)
                if "labels" in row:
                    row["ARI"] = adjusted_rand(classes, row.pop("labels"))
            last[solver] = row
            rows.append(row)
            print(told(row), flush=True)
    return rows


def told(row: dict[str, Any]) -> str:
    """Return a row in words."""
    where = f"{row['kind']:10} {row['n_objects']:>9,} {row['solver']:42}"
    if "failed" in row:
        return f"{where} {row['failed']}"
    return f"{where} {row['seconds']:7.1f} s {row['peak'] / 1e9:6.2f} GB  ARI {row['ARI']:.3f}"


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw seconds, memory and accuracy against the number of objects."""
    from bigcons.plots.drawing import PALETTE, new_figure

    rows = found["rows"]
    solvers = list(dict.fromkeys(row["solver"] for row in rows))
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    panels = {"seconds": "seconds", "peak": "peak memory, GB", "ARI": "adjusted Rand index"}
    with new_figure(2.6 * len(kinds) + 2.2, 6.6) as figure:
        axes = figure.subplots(3, len(kinds), sharex=True, sharey="row", squeeze=False)
        for number, solver in enumerate(solvers):
            is_ours = solver.startswith("bigcons")
            style = {
                "color": PALETTE[number % len(PALETTE)], "linestyle": "-" if is_ours else "--",
                "linewidth": 2.0 if is_ours else 1.0, "zorder": 3 if is_ours else 2,
                "marker": "o" if is_ours else "sD^v<>P"[number % 7], "markersize": 3,
            }  # fmt: skip
            for column, kind in enumerate(kinds):
                solved = [
                    row
                    for row in rows
                    if row["solver"] == solver and row["kind"] == kind and "failed" not in row
                ]
                for line, name in enumerate(panels):
                    values = [row[name] / (1e9 if name == "peak" else 1) for row in solved]
                    axes[line, column].plot(
                        [row["n_objects"] for row in solved], values, label=solver, **style
                    )
        for line, words in enumerate(panels.values()):
            axes[line, 0].set_ylabel(words)
        for panel in axes.ravel():
            panel.set_xscale("log")
            panel.grid(color="#DDDDDD", linewidth=0.6)
        for panel in axes[:2].ravel():
            panel.set_yscale("log")
        for column, kind in enumerate(kinds):
            axes[0, column].set_title(kind)
            axes[2, column].set_xlabel("objects")
        handles, names = axes[0, 0].get_legend_handles_labels()
        limits = (
            f"a line ends where a solve takes\nmore than {found['timeout']:g} s or {found['memory']:g} GB"
        )
        figure.legend(handles, names, loc="outside right upper", fontsize=8, title=limits, title_fontsize=8)
        figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--smallest", action="store_true", help="one small ensemble, no packages; writes nothing"
    )
    parser.add_argument("--peers", type=Path, help="folder with the environments of the packages")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--solvers", nargs="+", help="names; by default all")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds a solve may take")
    parser.add_argument("--memory", type=float, default=8.0, help="gigabytes a solve may take")
    parser.add_argument("--out", type=Path, default=RESULTS / "peers.json")
    parser.add_argument("--draw", action="store_true", help="draw the stored results again")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
        return
    if arguments.draw:
        draw(json.loads(arguments.out.read_text()), arguments.out.with_suffix(".png"))
        return
    solvers = [f"bigcons {method}" for method in OURS] + list(DO_IT_YOURSELF)
    if arguments.smallest:
        arguments.sizes, arguments.kinds, solvers = [200], ["incomplete"], [solvers[0], solvers[-1]]
    elif arguments.peers:
        for package, (_, _, methods) in accuracy_peers.PACKAGES.items():
            if (arguments.peers / package).exists():
                solvers += [f"{package} {method}" for method in methods]
    if arguments.solvers:
        solvers = [solver for solver in solvers if solver in arguments.solvers]
    found: dict[str, Any] = {"machine": describe(), "n_partitions": N_PARTITIONS}
    found |= {"timeout": arguments.timeout, "memory": arguments.memory, "load": [], "rows": []}
    with tempfile.TemporaryDirectory() as folder:
        for kind in arguments.kinds:
            found["load"].append(round(os.getloadavg()[0], 1))
            found["rows"] += measure(arguments, solvers, kind, Path(folder))
            if not arguments.smallest:
                arguments.out.write_text(json.dumps(found, indent=1) + "\n")
                draw(found, arguments.out.with_suffix(".png"))
    if arguments.smallest:
        assert all("ARI" in row for row in found["rows"])


if __name__ == "__main__":
    main()
