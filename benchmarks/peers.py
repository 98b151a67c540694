"""Who solves the same stored ensembles, up to which size, in how much time and memory, and how well?

Planted ensembles (30 partitions, six unbalanced classes, errors independent from partition to partition) of
three kinds: coarse, of 2 to 10 clusters; fine, of 30 to 60; incomplete, coarse with half the labels missing.
bigcons goes from store to store; packages and the usual few lines of scikit-learn and SciPy read the same
labels as an array. Each solve is a process of its own: seconds from labels to labels, imports not counted;
the peak memory of the process, imports counted; the adjusted Rand index with the classes. bigcons solves
twice, and the second process counts, for which kernels are compiled. A solve that takes longer or more memory
than allowed has failed, and is not tried at larger sizes; nor is one that would take longer at its pace.

Packages come from the environments that ``accuracy_peers.py install`` makes (``--peers``); without them only
bigcons and the do-it-yourself code run. All of it takes more than an hour; with ``--solvers``, ``--kinds`` or
``--sizes`` the rows measured again replace those in the file, and the others stay.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
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
from scale import plant

from bigcons import METHODS, Ensemble
from bigcons.metrics import adjusted_rand

RESULTS = Path(__file__).parent / "results"
N_PARTITIONS = 30
SIZES = [10**power for power in range(3, 9)]
KINDS: dict[str, dict[str, Any]] = {
    "coarse": {"n_clusters": (2, 10), "missing": 0.0},
    "fine": {"n_clusters": (30, 60), "missing": 0.0},
    "incomplete": {"n_clusters": (2, 10), "missing": 0.5},
}
OURS = ("tree", "pcc", "kcc", "hbgf")
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
    n_seen = np.zeros_like(agree)
    for partition in labels.T:
        is_labeled = partition >= 0
        agree += (partition[:, None] == partition) & is_labeled
        n_seen += is_labeled[:, None] & is_labeled
    apart = 1 - agree / np.maximum(n_seen, 1)
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
        model.fit(request["store"], out=request["out"])
        seconds, peak = time.perf_counter() - began, accuracy_peers.peak_memory()
        clusters = np.asarray(model.labels_)
    else:
        labels = np.load(request["labels"])
        began = time.perf_counter()
        clusters = DO_IT_YOURSELF[request["solver"]](labels, request["n_clusters"], request["seed"])
        seconds, peak = time.perf_counter() - began, accuracy_peers.peak_memory()
    np.save(request["found"], clusters)
    print(json.dumps({"error": None, "wall": seconds, "peak": peak}))


def solve(solver: str, order: dict[str, Any], peers: Path | None, timeout: float, memory: float) -> dict:
    """Return seconds, peak memory and labels of a solve in a process of its own, or how it failed."""
    shutil.rmtree(order["out"], ignore_errors=True)
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
    request = {**order, "solver": solver, "method": method}
    try:
        output, errors = child.communicate(json.dumps(request) + "\n", timeout=timeout)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return {"failed": f"more than {timeout:g} s"}
    if child.returncode:
        is_memory = "MemoryError" in errors or "allocate" in errors or child.returncode == -9
        last = errors.strip().splitlines()[-1][:120] if errors.strip() else f"status {child.returncode}"
        return {"failed": f"more than {memory:g} GB" if is_memory else last}
    answer = json.loads(output.splitlines()[-1])
    if answer["error"]:
        is_memory = "MemoryError" in answer["error"] or "allocate" in answer["error"]
        return {"failed": f"more than {memory:g} GB" if is_memory else answer["error"]}
    return {"seconds": answer["wall"], "peak": answer["peak"], "labels": np.load(order["found"])}


def measure(
    arguments: argparse.Namespace, solvers: list[str], kind: str, folder: Path
) -> list[dict[str, Any]]:
    """Return a row for every solver and size."""
    rows: list[dict[str, Any]] = []
    last: dict[str, dict[str, Any]] = {}
    for n in arguments.sizes:
        store, truth = plant(n, folder, N_PARTITIONS, **KINDS[kind])
        classes = np.load(truth, mmap_mode="r")
        request = {
            **{name: str(folder / f"{name}.npy") for name in ("labels", "found")},
            "store": str(store),
            "out": str(folder / "consensus.zarr"),
            "n_clusters": int(classes.max()) + 1,
            "seed": 0,
        }
        others = [solver for solver in solvers if not is_ours(solver)]
        if any("failed" not in last.get(solver, {}) for solver in others):
            np.save(request["labels"], np.asarray(Ensemble.open(store)))
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
                if is_ours(solver) and not arguments.smallest:
                    solve(solver, request, None, COMPILING + arguments.timeout, arguments.memory)
                row |= solve(solver, request, arguments.peers, arguments.timeout, arguments.memory)
                if "labels" in row:
                    row["ARI"] = adjusted_rand(classes, row.pop("labels"))
            last[solver] = row
            rows.append(row)
            print(told(row), flush=True)
    return rows


def is_ours(solver: str) -> bool:
    return solver.startswith("bigcons")


def key_of(row: dict[str, Any]) -> tuple[str, str, int]:
    """Return what a row is of."""
    return row["solver"], row["kind"], row["n_objects"]


def told(row: dict[str, Any]) -> str:
    """Return a row in words."""
    where = f"{row['kind']:10} {row['n_objects']:>9,} {row['solver']:42}"
    if "failed" in row:
        return f"{where} {row['failed']}"
    return f"{where} {row['seconds']:7.1f} s {row['peak'] / 1e9:6.2f} GB  ARI {row['ARI']:.3f}"


PANELS = {"seconds": "seconds", "peak": "peak memory, GB", "ARI": "adjusted Rand index"}
DRAWN = {
    "bigcons tree": ("bigcons", "#0072B2"),
    "SciPy: average linkage": ("SciPy average linkage", "#D55E00"),
    "scikit-learn: k-means of one-hot labels": ("scikit-learn k-means", "#CC79A7"),
    "ensembleclustering hbgf": ("ensembleclustering", "#B8A000"),
    "pce usenc": ("U-SENC", "#555555"),
    "pce ecpcs_mc": ("ECPCS-MC", "#009E73"),
}
"""Names and colors of what the first picture shows: all that ends early, and the fastest of the others."""


def solved(facts: dict[str, Any], solver: str, kind: str) -> list[dict[str, Any]]:
    """Return the rows of a solver that did not fail, by the number of objects."""
    rows = [row for row in facts["rows"] if row["solver"] == solver and row["kind"] == kind]
    return sorted((row for row in rows if "failed" not in row), key=lambda row: row["n_objects"])


def draw(facts: dict[str, Any], path: Path, kind: str = "coarse") -> None:
    """Draw seconds and memory against the number of objects, for few solvers whose lines are named."""
    from matplotlib.patheffects import withStroke

    from bigcons.plots import new_figure

    with new_figure(9.0, 3.6) as figure:
        for axes, name in zip(figure.subplots(1, 2), ("seconds", "peak"), strict=True):
            for solver, (words, color) in DRAWN.items():
                rows, ours = solved(facts, solver, kind), is_ours(solver)
                if not rows:
                    continue
                x = [row["n_objects"] for row in rows]
                y = [row[name] / (1e9 if name == "peak" else 1) for row in rows]
                axes.plot(x, y, color=color, lw=3.5 if ours else 1.5, zorder=3 if ours else 2)
                axes.plot(x[-1], y[-1], "o" if ours else "x", color=color, ms=7, mew=2, zorder=6)
                is_early = not ours and x[-1] < 10**6  # its name would cross other lines
                axes.annotate(
                    words, (x[-1], y[-1]), (0, 8) if is_early else (8, -3 if ours else 4),
                    textcoords="offset points",
                    color=color, ha="center" if is_early else "left", va="bottom" if is_early else "center",
                    fontsize=12 if ours else 8.5, weight="bold" if ours else "normal",
                    path_effects=[withStroke(linewidth=3, foreground="white")], zorder=5,
                )  # fmt: skip
            most = max(row["n_objects"] for row in facts["rows"] if row["kind"] == kind)
            ticks = {"1k": 1e3, "10k": 1e4, "100k": 1e5, "1M": 1e6, "10M": 1e7, "100M": 1e8}
            ticks = {name: size for name, size in ticks.items() if size <= most}
            axes.set(xscale="log", yscale="log", xlim=(700, 40 * most))  # with room for the last name
            axes.set_xticks(list(ticks.values()), list(ticks))
            axes.margins(y=0.12)
            axes.yaxis.set_major_formatter("{x:g}")
            axes.set_title(PANELS[name].capitalize().replace("gb", "GB"), loc="left", fontsize=11)
            axes.grid(axis="y", color="#E5E5E5", linewidth=0.8)
            axes.minorticks_off()
        limits = f"more than {facts['timeout']:g} s or {facts['memory']:g} GB"
        figure.supxlabel(f"objects; at a cross, ten times as many take {limits}", fontsize=9)
        figure.savefig(path)


def draw_all(facts: dict[str, Any], path: Path) -> None:
    """Draw seconds, memory and accuracy of all solvers against the number of objects, by kind of ensemble."""
    from bigcons.plots import PALETTE, new_figure

    names = [f"bigcons {method}" for method in OURS] + [row["solver"] for row in facts["rows"]]
    solvers = [name for name in dict.fromkeys(names) if any(row["solver"] == name for row in facts["rows"])]
    kinds = list(dict.fromkeys(row["kind"] for row in facts["rows"]))
    with new_figure(2.6 * len(kinds) + 2.2, 6.6) as figure:
        axes = figure.subplots(3, len(kinds), sharex=True, sharey="row", squeeze=False)
        for number, solver in enumerate(solvers):
            ours = is_ours(solver)
            style = {
                "color": PALETTE[number % len(PALETTE)], "linestyle": "-" if ours else "--",
                "linewidth": 2.0 if ours else 1.0, "zorder": 3 if ours else 2,
                "marker": "o" if ours else "sD^v<>P"[number % 7], "markersize": 3,
            }  # fmt: skip
            for column, kind in enumerate(kinds):
                rows = solved(facts, solver, kind)
                for line, name in enumerate(PANELS):
                    values = [row[name] / (1e9 if name == "peak" else 1) for row in rows]
                    axes[line, column].plot([row["n_objects"] for row in rows], values, label=solver, **style)
        for line, words in enumerate(PANELS.values()):
            axes[line, 0].set_ylabel(words)
        for panel in axes.ravel():
            panel.set_xscale("log")
            panel.grid(color="#DDDDDD", linewidth=0.6)
        for panel in axes[:2].ravel():
            panel.set_yscale("log")
        for column, kind in enumerate(kinds):
            axes[0, column].set_title(kind)
            axes[2, column].set_xlabel("objects")
        handles, labels = axes[0, 0].get_legend_handles_labels()
        limits = (
            f"a line ends where a solve takes\nmore than {facts['timeout']:g} s or {facts['memory']:g} GB"
        )
        figure.legend(handles, labels, loc="outside right upper", fontsize=8, title=limits, title_fontsize=8)
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
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds a solve may take")
    parser.add_argument("--memory", type=float, default=8.0, help="gigabytes a solve may take")
    parser.add_argument("--out", type=Path, default=RESULTS / "peers.json")
    parser.add_argument("--draw", action="store_true", help="draw the stored results again")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
        return
    pictures = arguments.out.with_suffix(".png"), arguments.out.with_name(f"{arguments.out.stem}_all.png")
    if arguments.draw:
        facts = json.loads(arguments.out.read_text())
        draw(facts, pictures[0])
        draw_all(facts, pictures[1])
        return
    solvers = [f"bigcons {method}" for method in OURS] + list(DO_IT_YOURSELF)
    if arguments.smallest:
        arguments.sizes, arguments.kinds, solvers = [200], ["incomplete"], [solvers[0], solvers[-1]]
    elif arguments.peers:
        for package, (_, _, methods) in accuracy_peers.PACKAGES.items():
            if (arguments.peers / package).exists():
                solvers += [f"{package} {method}" for method in methods]
    is_part = arguments.solvers or arguments.sizes != SIZES or arguments.kinds != list(KINDS)
    if arguments.solvers:
        solvers = [solver for solver in solvers if solver in arguments.solvers]
    facts: dict[str, Any] = {"machine": describe(), "n_partitions": N_PARTITIONS}
    facts |= {"timeout": arguments.timeout, "memory": arguments.memory, "load": [], "rows": []}
    if is_part and arguments.out.exists() and not arguments.smallest:
        before = json.loads(arguments.out.read_text())
        if any(before[name] != facts[name] for name in ("timeout", "memory")):
            parser.error(f"the rows of {arguments.out} have other limits; state its --timeout and --memory")
        facts["rows"] = before["rows"]
    for kind in arguments.kinds:
        facts["load"].append(round(os.getloadavg()[0], 1))
        with tempfile.TemporaryDirectory() as folder:
            rows = measure(arguments, solvers, kind, Path(folder))
        again = {key_of(row) for row in rows}
        facts["rows"] = sorted(
            [*(row for row in facts["rows"] if key_of(row) not in again), *rows],
            key=lambda row: (list(KINDS).index(row["kind"]), row["n_objects"], not is_ours(row["solver"])),
        )
        if not arguments.smallest:
            arguments.out.write_text(json.dumps(facts, indent=1) + "\n")
            draw(facts, pictures[0])
            draw_all(facts, pictures[1])
    if arguments.smallest:
        assert all("ARI" in row for row in facts["rows"])


if __name__ == "__main__":
    main()
