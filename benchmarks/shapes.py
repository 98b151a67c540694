"""How do methods fare away from the usual shape? Time, memory and accuracy beside what one would write.

Each cell is one shape of ensemble, its methods, and peers that scikit-learn gives in a few lines, in a
process of its own:

- fine: 100,000 objects, 50 partitions of sqrt(n) / 2 to sqrt(n) base clusters (the rule of evidence
  accumulation), around random objects of 12 Gaussian classes
- wide: many more partitions than objects, as from bootstraps of a genomics study
- many: 100 and 300 classes of 100,000 objects, in 50 partitions of a sixth to half as many clusters, half
  missing; with ``--full`` also 1,000 classes of a million objects
- evidence: 10,000 objects by single and average linkage, beside SciPy's of the whole co-association; with
  ``--full`` also 100,000 by single linkage, of which that would take 40 GB
- ordinary: 300,000 objects, with ``--full`` a million, 100 partitions such as k-means with 2 to 20 clusters
  gives, 12 classes, complete and half missing; for PCC also its passes, and the labels that a longer solve
  changes
- creeping (``--full``): the passes of PCC by both models at 3 to 20 clusters, on 100,000 such objects

A solve that takes more than ``--limit`` seconds is ended and said to be; what ``--minutes`` leave no time for
is left out. Writes ``results/shapes.json`` and, as a table, ``results/shapes.md``. A cell is a function that
yields (name of the ensemble, ensemble, classes, methods), or rows. To add one, write it and list it in
``CELLS``. Compare ratios: machines drift.
"""

from __future__ import annotations

import argparse
import json
import queue
import resource
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from machine import describe
from numba.core.event import install_recorder

from bigcons import Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.methods import METHODS
from bigcons.metrics import adjusted_rand

RESULTS = Path(__file__).parent / "results"

PEERS = ("scaled SVD, k-means", "one-hot k-means", "co-association, SciPy's linkage")

# Seconds in which a process imports and compiles, and makes the ensemble of a cell, besides its first solve.
STARTUP = 60.0

Cell = tuple[str, Ensemble, np.ndarray, dict[str, Callable[[Ensemble], Any]]]


def method(name: str, n_clusters: int | None, **parameters: Any) -> Callable[[Ensemble], Any]:
    """Return a function that fits a method of bigcons."""
    return lambda ensemble: METHODS[name](n_clusters, random_state=0, **parameters).fit(ensemble)


def one_hot_kmeans(ensemble: Ensemble, n_clusters: int) -> np.ndarray:
    """Return the labels of scikit-learn's k-means on one-hot labels."""
    from sklearn.cluster import KMeans

    return KMeans(n_clusters, random_state=0).fit_predict(one_hot(ensemble))


def scaled_svd(ensemble: Ensemble, n_clusters: int) -> np.ndarray:
    """Return the labels of k-means in the randomized SVD of scaled one-hot labels."""
    from sklearn.cluster import KMeans
    from sklearn.utils.extmath import randomized_svd

    incidence = one_hot(ensemble)
    n_labels, sizes = incidence.sum(axis=1), incidence.sum(axis=0)
    incidence.data /= np.sqrt(n_labels[np.repeat(np.arange(len(n_labels)), np.diff(incidence.indptr))])
    incidence.data /= np.sqrt(sizes[incidence.indices])
    vectors, values, _ = randomized_svd(incidence, n_clusters, random_state=0)
    return KMeans(n_clusters, random_state=0).fit_predict(vectors * values)


def whole_linkage(ensemble: Ensemble, n_clusters: int, method: str) -> np.ndarray:
    """Return the labels of SciPy's linkage of the co-association of all pairs."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    incidence = one_hot(ensemble)
    distances = 1.0 - (incidence @ incidence.T).toarray() / ensemble.n_partitions
    merges = linkage(squareform(distances, checks=False), method)
    return fcluster(merges, n_clusters, "maxclust")


def one_hot(ensemble: Ensemble) -> Any:
    """Return the labels as a sparse (n_objects, n_base_clusters) float32 matrix of ones."""
    from scipy.sparse import csr_array

    labels = ensemble.read(0, ensemble.n_objects)
    is_labeled = labels >= 0
    columns = (labels + ensemble.offsets[:-1].astype(np.int32))[is_labeled]
    starts = np.concatenate([[0], np.cumsum(is_labeled.sum(axis=1))]).astype(np.int32)
    shape = ensemble.n_objects, ensemble.n_base_clusters
    return csr_array((np.ones(columns.size, np.float32), columns, starts), shape=shape)


def equal_classes(
    n_objects: int, n_partitions: int, n_classes: int, **options: Any
) -> tuple[Ensemble, np.ndarray]:
    """Return a planted ensemble of classes of equal size."""
    shares = [1.0 / n_classes] * n_classes
    return planted_ensemble(n_objects, n_partitions, shares=shares, **options)


def ordinary(*, smallest: bool, full: bool) -> Iterator[Cell]:
    """Yield ensembles of many objects, with PCC and what one would write."""
    n, M = (2_000, 20) if smallest else (1_000_000 if full else 300_000, 100)
    for missing in (0.5,) if smallest else (0.0, 0.5):
        ensemble, classes = equal_classes(n, M, 12, n_clusters=(2, 20), missing=missing)
        methods: dict[str, Callable[[Ensemble], Any]] = {
            "PCC": method("pcc", 12),
            "PCC, longer": method("pcc", 12, tol=1e-7, max_iter=12 if smallest else 200),
            "mixture": method("mixture", 12),
            "kcc": method("kcc", 12),
            "one-hot k-means": partial(one_hot_kmeans, n_clusters=12),
        }
        yield f"{n:,} x {M}, {100 * missing:.0f} % missing", ensemble, classes, methods


def creeping(*, smallest: bool) -> Iterator[dict[str, Any]]:
    """Yield the passes by number of clusters, and the labels that a longer solve changes."""
    n, M = (1_000, 20) if smallest else (100_000, 100)
    for missing in (0.5,) if smallest else (0.0, 0.5):
        ensemble, classes = equal_classes(n, M, 12, n_clusters=(2, 20), missing=missing)
        for n_clusters in (3,) if smallest else (3, 8, 12, 20):
            solve = partial(METHODS["pcc"], n_clusters, random_state=0)
            most = {"max_iter": 5 if smallest else 300}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model, longer = solve(**most).fit(ensemble), solve(tol=1e-7, **most).fit(ensemble)
            yield {
                "ensemble": f"{n:,} x {M}, {100 * missing:.0f} % missing",
                "n_clusters": n_clusters,
                "passes": model.n_passes_,
                "shortened": sum(length < 1.0 for length in model.history_["step_length"]),
                "gap": model.gap_,
                "labels_changed": float(np.mean(longer.labels_ != model.labels_)),
                "adjusted_rand": round(adjusted_rand(classes, model.labels_), 4),
            }


def wide(*, smallest: bool) -> Iterator[Cell]:
    """Yield ensembles of many more partitions than objects."""
    for n, M in ((60, 300),) if smallest else ((500, 70_000), (5_000, 20_000)):
        ensemble, classes = equal_classes(n, M, 5, missing=0.3)
        methods: dict[str, Callable[[Ensemble], Any]] = {
            "scaled SVD, k-means": partial(scaled_svd, n_clusters=5),
            "one-hot k-means": partial(one_hot_kmeans, n_clusters=5),
        }
        names = ("pcc", "bce", "mixture", "kcc", "hbgf", "cspa")
        methods |= {name: method(name, 5, memory="8GB") for name in names}
        yield f"{n:,} x {M:,}", ensemble, classes, methods


def fine_ensemble(n_objects: int, n_partitions: int) -> tuple[Ensemble, np.ndarray]:
    """Return labels by the nearest of random objects, and the classes of the objects."""
    draw, root = np.random.default_rng(0), int(n_objects**0.5)
    centers = 4.0 * draw.normal(size=(12, 16))
    classes = draw.integers(12, size=n_objects)
    features = (centers[classes] + draw.normal(size=(n_objects, 16))).astype(np.float32)
    labels = np.empty((n_objects, n_partitions), np.int16)
    for u in range(n_partitions):
        k = int(draw.integers(root // 2, root + 1))
        seeds = features[draw.choice(n_objects, k, replace=False)]
        half = 0.5 * (seeds**2).sum(axis=1)
        for start in range(0, n_objects, 4096):
            rows = slice(start, start + 4096)
            labels[rows, u] = (half - features[rows] @ seeds.T).argmin(axis=1)
    return Ensemble.from_labels(labels), classes


def fine(*, smallest: bool) -> Iterator[Cell]:
    """Yield an ensemble of many base clusters, for methods within 8 GB and the scaled SVD."""
    n, M = (2_000, 12) if smallest else (100_000, 50)
    ensemble, classes = fine_ensemble(n, M)
    names = [
        "pcc",
        "hbgf",
        "cspa",
        "mcla",
        "ccc",
        "ccu",
        "ccsvd",
        "kcc",
        "mixture",
        "furthest",
        "bce",
    ]
    names = names[:2] if smallest else names
    methods: dict[str, Callable[[Ensemble], Any]] = {
        "scaled SVD, k-means": partial(scaled_svd, n_clusters=12),
        **{name: method(name, 12, memory="8GB") for name in names},
        "hgpa by laplacian": method("hgpa", 12, memory="8GB", objective="laplacian"),
    }
    yield f"{n:,} x {M}, {ensemble.n_base_clusters:,} base clusters", ensemble, classes, methods


def evidence(*, smallest: bool, full: bool) -> Iterator[Cell]:
    """Yield fine ensembles for evidence accumulation."""
    n = 500 if smallest else 10_000
    ensemble, classes = fine_ensemble(n, 50)
    for linkage in ("single", "average"):
        yield (
            *(f"{n:,} x 50, {ensemble.n_base_clusters:,} base clusters, {linkage}", ensemble, classes),
            {
                "co-association, SciPy's linkage": partial(whole_linkage, n_clusters=12, method=linkage),
                f"eac-{linkage}": method(f"eac-{linkage}", 12, memory="4GB"),
            },
        )
    if full:
        ensemble, classes = fine_ensemble(100_000, 50)
        methods: dict[str, Callable[[Ensemble], Any]] = {
            "eac-single": method("eac-single", 12, memory="4GB"),
            "scaled SVD, k-means": partial(scaled_svd, n_clusters=12),
        }
        yield f"100,000 x 50, {ensemble.n_base_clusters:,} base clusters", ensemble, classes, methods


def many(*, smallest: bool, full: bool) -> Iterator[Cell]:
    """Yield ensembles of many classes."""
    shapes = [(1_000, 20, 24)] if smallest else [(100_000, 50, 100), (100_000, 50, 300)]
    for n, M, K in shapes + ([(1_000_000, 100, 1_000)] if full else []):
        ensemble, classes = equal_classes(n, M, K, n_clusters=(K // 6, K // 2))
        methods: dict[str, Callable[[Ensemble], Any]] = {
            "scaled SVD, k-means": partial(scaled_svd, n_clusters=K),
            "kcc": method("kcc", K),
        }
        if n <= 100_000:
            methods |= {name: method(name, K, memory="8GB") for name in ("hbgf", "mcla", "mixture")}
        yield f"{n:,} x {M}, {K:,} classes", ensemble, classes, methods


CELLS: dict[str, Callable[..., Iterator[Any]]] = {
    "fine": fine,
    "wide": wide,
    "many": many,
    "evidence": evidence,
    "ordinary": ordinary,
    "creeping": creeping,
}

GROWING = ("many", "evidence", "ordinary")
"""Cells that have more, or larger, ensembles with ``--full``."""

SLOW = ("creeping",)
"""Cells that only ``--full`` or ``--cells`` runs."""


def run_cell(cell: str, *, smallest: bool, full: bool, skip: int = 0) -> Iterator[dict[str, Any]]:
    """Yield one row for each method and ensemble of a cell, after the first ``skip``.

    Before each solve, yields its row with "begins".
    """
    done = 0
    reference = None
    further = {"full": full} if cell in GROWING else {}
    for drawn in CELLS[cell](smallest=smallest, **further):
        if isinstance(drawn, dict):
            done += 1
            if done > skip:
                yield {"cell": cell, **drawn}
            continue
        name, ensemble, classes, methods = drawn
        corner = Ensemble.from_labels(ensemble.read(0, min(ensemble.n_objects, 2_000))[:, :1_000])
        for what, fit in methods.items():
            done += 1
            if done <= skip:
                continue
            row: dict[str, Any] = {"cell": cell, "ensemble": name, "method": what}
            if not smallest:
                with warnings.catch_warnings(), suppress(Exception):  # load and compile what the solve runs
                    warnings.simplefilter("ignore")
                    fit(corner)
            yield {**row, "begins": True}
            try:
                result, seconds, cpu = timed(fit, ensemble, once=smallest)
            except Exception as error:
                yield {**row, "refused": f"{type(error).__name__}: {error}"[:200]}
                continue
            labels = np.asarray(getattr(result, "labels_", result))
            row |= {
                "seconds": round(seconds, 2),
                "cpu_seconds": round(cpu, 2),
                "adjusted_rand": round(adjusted_rand(classes, labels), 4),
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,  # so far, in order
            }
            if hasattr(result, "n_passes_"):
                row["passes"] = result.n_passes_
            if what == "PCC":
                reference = labels
            elif what == "PCC, longer" and reference is not None:
                row["labels_changed"] = float(np.mean(labels != reference))
            yield row


# Solves that take fewer seconds are run twice, and the faster counts: the first may load kernels.
SHORT = 5.0


def timed(fit: Callable[[Ensemble], Any], ensemble: Ensemble, *, once: bool) -> tuple[Any, float, float]:
    """Return what a method finds, its seconds and those of all processors.

    Unless this is to be done once, a run that compiled kernels does not count.
    """
    best: tuple[Any, float, float] | None = None
    while True:
        with warnings.catch_warnings(), install_recorder("numba:compile") as compiled:
            warnings.simplefilter("ignore")
            began, used = time.perf_counter(), time.process_time()
            result = fit(ensemble)
            seconds, cpu = time.perf_counter() - began, time.process_time() - used
        if best is not None:
            return min(best, (result, seconds, cpu), key=lambda run: run[1])
        if once:
            return result, seconds, cpu
        if not compiled.buffer:
            best = result, seconds, cpu
            if seconds >= SHORT:
                return best


def run_limited(cell: str, *, full: bool, limit: float, ends: float) -> Iterator[dict[str, Any]]:
    """Yield the rows of a cell from processes of its own; one whose solve exceeds ``limit`` is ended."""
    done = 0
    while time.perf_counter() < ends:
        command = [sys.executable, __file__, "--cells", cell, "--child", str(done)] + ["--full"] * full
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=forward, args=(process, lines), daemon=True).start()
        begun: dict[str, Any] | None = None
        allowed = STARTUP + limit
        try:
            while (line := lines.get(timeout=min(allowed, max(ends - time.perf_counter(), 0.1)))) is not None:
                row = json.loads(line)
                if row.pop("begins", False):
                    begun, allowed = row, limit
                    continue
                begun, allowed = None, STARTUP + limit
                done += 1
                yield row
        except queue.Empty:
            process.kill()
            process.wait()
            if begun is None or time.perf_counter() >= ends:
                break
            yield {**begun, "left_out": f"takes more than {limit:g} s"}
            done += 1
            continue
        if process.wait():
            raise SystemExit(f"the cell {cell} failed")
        return
    yield {"cell": cell, "left_out": f"after {done} rows: no time left"}


def forward(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    """Put the lines that a process prints into a queue, and None when it ends."""
    for line in process.stdout or ():
        lines.put(line)
    lines.put(None)


def table(rows: list[dict[str, Any]]) -> str:
    """Return the solves as a table in Markdown; times also relative to the fastest peer."""
    text = ["| shape | method | s | peer's s | ARI | passes |", "|---|---|---:|---:|---:|---:|"]
    for row in rows:
        if "method" not in row:
            continue
        start = f"| {row['ensemble']} | {row['method']} | "
        if "seconds" not in row:
            text.append(f"{start}{row.get('left_out') or row['refused']} | | | |")
            continue
        peers = [
            peer["seconds"]
            for peer in rows
            if (peer["cell"], peer.get("ensemble")) == (row["cell"], row["ensemble"])
            and peer["method"] in PEERS
            and "seconds" in peer
        ]
        ratio = f"{row['seconds'] / min(peers):.2f} x" if peers else ""
        numbers = f"{row['seconds']:.2f} | {ratio} | {row['adjusted_rand']:.3f} | {row.get('passes', '')}"
        text.append(f"{start}{numbers} |")
    return "\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smallest", action="store_true", help="a few seconds, to see that it runs")
    parser.add_argument("--full", action="store_true", help="also what takes many minutes")
    parser.add_argument("--cells", nargs="+", choices=CELLS)
    parser.add_argument("--limit", type=float, default=30.0, help="seconds of a solve")
    parser.add_argument("--minutes", type=float, default=8.0, help="for all of it")
    parser.add_argument("-o", "--out", type=Path, default=RESULTS / "shapes.json")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        for row in run_cell(arguments.cells[0], smallest=False, full=arguments.full, skip=arguments.child):
            print(json.dumps(row), flush=True)
        return
    all_cells = arguments.full or arguments.smallest
    cells = arguments.cells or [cell for cell in CELLS if all_cells or cell not in SLOW]
    rows = []
    ends = time.perf_counter() + 60 * arguments.minutes
    for cell in cells:
        rows_of_cells = (
            run_cell(cell, smallest=True, full=False)
            if arguments.smallest
            else run_limited(cell, full=arguments.full, limit=arguments.limit, ends=ends)
        )
        for row in rows_of_cells:
            if not row.get("begins"):
                print(json.dumps(row), flush=True)
                rows.append(row)
    if arguments.smallest:
        return
    old_rows = []
    if arguments.out.exists():  # cells that are not measured now
        all_rows = json.loads(arguments.out.read_text())["rows"]
        old_rows = [row for row in all_rows if row["cell"] not in cells]
    rows = [row for cell in CELLS for row in [*old_rows, *rows] if row["cell"] == cell]
    arguments.out.write_text(json.dumps({"machine": describe(), "rows": rows}, indent=1) + "\n")
    arguments.out.with_suffix(".md").write_text(table(rows))


if __name__ == "__main__":
    main()
