"""From features to labels: how accurate are consensus clusterings beside the clusterings that people use?

Every contender is given the same features, those of `features_data.py`: columns of mean 0 and variance 1, or,
if all are in one unit, columns of mean 0 divided by one number, so that their mean variance is 1. It is given
the number of classes, K, or none. Sets are real, half of them for choosing and half for reporting, or shapes
in two dimensions of 10,000 points, for reporting.

===================  =====================================================================================
k-means              ten starts; without K, the number from 2 to 25 with the best silhouette
Gaussian mixture     of diagonal covariances, the best of three starts
Ward                 agglomerative clustering of at most 2,000 objects
spectral             of the 10 nearest neighbors of at most 2,000 objects
Leiden               of the 15 nearest neighbors, at the resolution that gives nearest to K, or at 1
HDBSCAN              clusters of at least 15 objects and a hundredth of all; it takes no number
default              bigcons: its default ensemble of the features, and a consensus
landmarks            bigcons: spectral clusterings on landmarks alone, and a consensus
halves               bigcons: 100 k-means of halves with 2 to 10 clusters, and a consensus
default, hbgf        bigcons: the default ensemble, and HBGF, which needs a number
default, to 30       bigcons: the default, but partitions have up to 20 and 30 clusters, whatever K
default, trees       bigcons: the default, but no k-means in the embedding of the labels beside the trees
default, any sizes   bigcons: the default, but the tree of average link is cut into clusters of any sizes
===================  =====================================================================================

Objects outside of the sample of 2,000 get the cluster of the nearest sampled object, and noise that of the
nearest clustered one. ``--peers`` names modules with further contenders in dictionaries ``GIVEN`` and
``FREE``, of functions (features, K or None, seed) -> labels. Those of a package that is not installed are
left out. Seconds are of processor time, on one thread where a package takes heed of it.

Results are appended to ``--out`` as they come, and an interrupted run resumes. ``--report`` writes tables to
``results/features.md`` and a picture to ``results/features.png``. In tables, counts are of the sets on which
a contender is more than .05 below and above k-means in the same table.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from accuracy import append, without
from accuracy_report import read_rows
from features_data import CHOOSING, REAL, REPORTING, SHAPES, Labeled, at_hand

import bigcons as bc
from bigcons.metrics import adjusted_rand, nmi
from bigcons.run.engine import one_thread
from bigcons.seeding import generator
from bigcons.trust.groups import Sample

RESULTS = Path(__file__).parent / "results"
SAMPLE, MOST_CLUSTERS, CLEAR = 2000, 25, 0.05

Contender = Callable[[np.ndarray, int | None, int], np.ndarray]
"""Takes features, the number of clusters or None, and a seed; returns labels."""


def scaled(data: Labeled) -> np.ndarray:
    """Return columns of mean 0 and variance 1; of mean variance 1 if they are in one unit."""
    variances = data.features.var(axis=0)
    return (data.features - data.features.mean(axis=0)) / np.sqrt(
        variances.mean() if data.same_unit else variances
    )


# ---------------------------------------------------------------------------------------------- contenders


def nearest(points: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the row of ``points`` that is nearest to each row of ``x``."""
    from sklearn.neighbors import NearestNeighbors

    return NearestNeighbors(n_neighbors=1).fit(points).kneighbors(x, return_distance=False).ravel()


def on_sample(solve: Contender) -> Contender:
    """Return a contender that clusters a sample, and labels the others by the nearest sampled object."""

    @wraps(solve)
    def solved(x: np.ndarray, n_clusters: int | None, seed: int) -> np.ndarray:
        if len(x) <= SAMPLE:
            return solve(x, n_clusters, seed)
        sample = x[generator(seed, "features.sample").choice(len(x), SAMPLE, replace=False)]
        return solve(sample, n_clusters, seed)[nearest(sample, x)]

    return solved


def kmeans(x: np.ndarray, n_clusters: int | None, seed: int) -> np.ndarray:
    from sklearn.cluster import KMeans

    return KMeans(n_clusters, n_init=10, random_state=seed).fit_predict(x)


def kmeans_silhouette(x: np.ndarray, _n_clusters: int | None, seed: int) -> np.ndarray:
    """Return the k-means clusters with the best mean silhouette of at most 2,000 objects."""
    from sklearn.metrics import silhouette_score

    rows = generator(seed, "features.silhouette").permutation(len(x))[:SAMPLE]
    candidates = [kmeans(x, k, seed) for k in range(2, min(MOST_CLUSTERS, len(x) - 1) + 1)]
    return max(candidates, key=lambda labels: silhouette_score(x[rows], labels[rows]))


def mixture(x: np.ndarray, n_clusters: int | None, seed: int) -> np.ndarray:
    from sklearn.mixture import GaussianMixture

    model = GaussianMixture(n_clusters, covariance_type="diag", n_init=3, reg_covar=1e-3, random_state=seed)
    return model.fit_predict(x)


@on_sample
def ward(x: np.ndarray, n_clusters: int | None, _seed: int) -> np.ndarray:
    from sklearn.cluster import AgglomerativeClustering

    return AgglomerativeClustering(n_clusters).fit_predict(x)


@on_sample
def spectral(x: np.ndarray, n_clusters: int | None, seed: int) -> np.ndarray:
    from sklearn.cluster import SpectralClustering

    model = SpectralClustering(n_clusters, affinity="nearest_neighbors", n_neighbors=10, random_state=seed)
    return model.fit_predict(x)


def leiden(x: np.ndarray, n_clusters: int | None, seed: int) -> np.ndarray:
    """Return communities of the graph of 15 nearest neighbors, by the Leiden algorithm."""
    from igraph import Graph
    from leidenalg import RBConfigurationVertexPartition, find_partition
    from sklearn.neighbors import kneighbors_graph

    edges = np.column_stack(kneighbors_graph(x, min(15, len(x) - 1)).nonzero())
    graph = Graph(len(x), edges.tolist()).simplify()

    def communities(resolution: float) -> np.ndarray:
        partition = find_partition(
            graph, RBConfigurationVertexPartition, resolution_parameter=resolution, seed=seed
        )
        return np.array(partition.membership)

    return communities(1.0) if n_clusters is None else bisected(communities, n_clusters)


def bisected(
    communities: Callable[[float], np.ndarray],
    n_clusters: int,
    low: float = 1e-4,
    high: float = 100.0,
    steps: int = 16,
) -> np.ndarray:
    """Return the communities whose number is nearest to ``n_clusters``, of resolutions found by bisection."""
    best = np.zeros(0, int)
    for _ in range(steps):
        middle = np.sqrt(low * high)
        labels = communities(middle)
        number = np.unique(labels).size
        if not best.size or abs(number - n_clusters) < abs(np.unique(best).size - n_clusters):
            best = labels
        if number == n_clusters:
            break
        low, high = (middle, high) if number < n_clusters else (low, middle)
    return best


def hdbscan(x: np.ndarray, _n_clusters: int | None, _seed: int) -> np.ndarray:
    """Return the clusters of HDBSCAN, noise in that of the nearest object that has one."""
    from sklearn.cluster import HDBSCAN

    labels = HDBSCAN(min_cluster_size=max(15, len(x) // 100), copy=True).fit_predict(x)
    clustered = labels >= 0
    if not clustered.any():
        return np.zeros(len(x), int)
    return labels[clustered][nearest(x[clustered], x)]


def by_default(x: np.ndarray, n_clusters: int | None, seed: int, **method: str) -> np.ndarray:
    """Return the consensus of the default ensemble, by the default method or another."""
    generator = bc.EnsembleGenerator(standardize=False)
    model = bc.ConsensusClustering(n_clusters or "auto", generator=generator, random_state=seed, **method)
    return model.fit_predict(x)


def by_consensus(make: Callable[..., Any]) -> Contender:
    """Return the consensus of bigcons of the ensemble that a function makes of the features."""

    def solve(x: np.ndarray, n_clusters: int | None, seed: int) -> np.ndarray:
        ensemble = make(x, standardize=False, random_state=seed)
        return np.asarray(bc.consensus(ensemble, n_clusters or "auto", random_state=seed).labels_)

    return solve


def hbgf(x: np.ndarray, n_clusters: int | None, seed: int) -> np.ndarray:
    """Return the bipartite graph's clusters of the default ensemble; HBGF needs a number."""
    return by_default(x, n_clusters, seed, consensus="hbgf")


def by_trees(x: np.ndarray, n_clusters: int | None, seed: int) -> np.ndarray:
    """Return the default without the cut that k-means in the embedding makes where a number is given."""
    with patch.object(Sample, "divide", return_value=None):
        return BIGCONS[DEFAULT](x, n_clusters, seed)


def of_any_sizes(x: np.ndarray, n_clusters: int | None, seed: int) -> np.ndarray:
    """Return the default without the least share of a cluster of average link where a number is given."""
    with patch("bigcons.trust.groups.LEAST_SHARE", 0.0):
        return BIGCONS[DEFAULT](x, n_clusters, seed)


BIGCONS: dict[str, Contender] = {
    "default": by_default,
    "landmarks": by_consensus(bc.generate.landmarks),
    "halves": by_consensus(bc.generate.kmeans),
    "default, hbgf": hbgf,
    "default, to 30": by_consensus(bc.generate.mixed),
    "default, trees": by_trees,
    "default, any sizes": of_any_sizes,
}
DEFAULT, BASE = "default", "k-means"

GIVEN: dict[str, Contender] = {
    BASE: kmeans,
    "Gaussian mixture": mixture,
    "Ward": ward,
    "spectral": spectral,
    "Leiden": leiden,
    "HDBSCAN": hdbscan,
} | BIGCONS
FREE: dict[str, Contender] = {BASE: kmeans_silhouette, "Leiden": leiden, "HDBSCAN": hdbscan}
FREE |= {name: BIGCONS[name] for name in (DEFAULT, "default, to 30", "landmarks", "halves")}
"""Contenders that are given the number of classes, and that are not."""

NEEDS = {"Leiden": "leidenalg"}


def contenders(peers: list[str], names: list[str] | None) -> dict[bool, dict[str, Contender]]:
    """Return the contenders that are asked for and installed, by whether they are given a number."""
    groups = {True: dict(GIVEN), False: dict(FREE)}
    for name in peers:
        if find_spec(name) is None:
            print(f"{name} left out: it is not installed")
            continue
        module = importlib.import_module(name)
        groups = {True: groups[True] | module.GIVEN, False: groups[False] | module.FREE}
    return {
        is_given: {
            name: solve
            for name, solve in part.items()
            if (names is None or name in names) and (name not in NEEDS or find_spec(NEEDS[name]))
        }
        for is_given, part in groups.items()
    }


# ------------------------------------------------------------------------------------------------- results


def reset_peak() -> None:
    """Make the kernel forget the peak memory of this process, where it does that."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_mb() -> int | None:
    """Return the peak memory of this process since `reset_peak`, or None where it is not told."""
    with suppress(OSError):
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return int(status["VmHWM"].split()[0]) // 1000
    return None


def row_of(x: np.ndarray, classes: np.ndarray, is_given: bool, seed: int, solve: Contender) -> dict[str, Any]:
    """Return how accurate a contender is, and what it takes."""
    n_classes = int(np.unique(classes).size)
    row = {"n": len(x), "d": x.shape[1], "classes": n_classes}
    reset_peak()
    began = time.process_time()
    try:
        with one_thread():
            labels = solve(x, n_classes if is_given else None, seed)
    except Exception as error:  # a refusal counts as a result
        return row | {"ari": 0.0, "nmi": 0.0, "refused": f"{type(error).__name__}: {error}"[:200]}
    return row | {
        "ari": round(float(adjusted_rand(classes, labels)), 4),
        "nmi": round(float(nmi(classes, labels)), 4),
        "clusters": int(np.unique(labels).size),
        "seconds": round(time.process_time() - began, 3),
        "peak_mb": peak_mb(),
    }


KEY = ("set", "contender", "given", "seed")
Key = tuple[str, str, bool, int]


def rows_of(
    make: Callable[[], Labeled], seed: int, todo: Mapping[Key, Contender]
) -> Iterator[dict[str, Any]]:
    """Yield a row for each contender on one set."""
    data = make()
    x = scaled(data)
    for key, solve in todo.items():
        yield dict(zip(KEY, key, strict=True)) | row_of(x, data.classes, key[2], seed, solve)


# -------------------------------------------------------------------------------------------------- report

VIEWS = {"choosing": CHOOSING, "reporting": REPORTING, "shapes": list(SHAPES)}
TITLES = {True: "The number of classes given", False: "No number given"}
INTRODUCTION = """# From features to labels

Written by `python benchmarks/features.py --report`. Values are adjusted Rand indices (ARI) with the classes,
means over the seeds and then over the sets; in parentheses, on how many sets the contender is more than .05
below and above k-means of the same table, which has ten starts and, without a number, the best silhouette.
NMI and seconds of processor time are means over the reporting half; `exact` counts the sets, real ones and
shapes, on which it makes as many clusters as there are classes. Seconds of bigcons, `halves` left out, are of
another processor than those of the others, on which k-means takes about twice as long.
"""

Scores = dict[str, dict[str, dict[str, float]]]
"""By contender and set, the means over the seeds."""


def scores_of(rows: list[dict[str, Any]], is_given: bool) -> Scores:
    """Return the means over the seeds of every contender on every set."""
    rows_by_set: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in rows:
        if row["given"] == is_given:
            rows_by_set.setdefault(row["contender"], {}).setdefault(row["set"], []).append(row)
    measures = ("n", "d", "classes", "ari", "nmi", "clusters", "seconds")
    return {
        contender: {
            name: {what: float(np.mean([row.get(what, np.nan) for row in part])) for what in measures}
            for name, part in by_set.items()
        }
        for contender, by_set in rows_by_set.items()
    }


def mean_of(by_set: Mapping[str, Mapping[str, float]], names: list[str], what: str) -> float:
    """Return the mean over those of some sets that have a value; NaN if none has."""
    values = [by_set[name][what] for name in names if name in by_set and np.isfinite(by_set[name][what])]
    return float(np.mean(values)) if values else np.nan


def told(value: float, digits: int = 3) -> str:
    """Return a number as text, nothing for NaN."""
    return f"{value:.{digits}f}" if np.isfinite(value) else ""


def cell(scores: Scores, contender: str, names: list[str]) -> str:
    """Return the mean ARI over some sets, and how often it is clearly below and above that of k-means."""
    by_set, base = scores[contender], scores.get(BASE, {})
    gains = np.array(
        [by_set[name]["ari"] - base[name]["ari"] for name in names if name in by_set and name in base]
    )
    counts = f" ({(gains < -CLEAR).sum()} below, {(gains > CLEAR).sum()} above)" if contender != BASE else ""
    return f"{told(mean_of(by_set, names, 'ari'))}{counts if gains.size else ''}"


def summary_lines(scores: Scores) -> list[str]:
    """Return the table of the means of every contender, best on the reporting half first."""
    lines = [f"| contender | {' | '.join(VIEWS)} | NMI | seconds | exact | sets |", "|---" * 8 + "|"]
    for name in sorted(scores, key=lambda name: -mean_of(scores[name], REPORTING, "ari")):
        by_set = scores[name]
        exact = sum(row["clusters"] == row["classes"] for row in by_set.values())
        cells = [cell(scores, name, names) for names in VIEWS.values()]
        cells += [told(mean_of(by_set, REPORTING, "nmi")), told(mean_of(by_set, REPORTING, "seconds"), 2)]
        lines.append(f"| {name} | {' | '.join(cells)} | {exact} | {len(by_set)} |")
    return lines


def set_lines(scores: Scores, given: bool) -> list[str]:
    """Return a table of a row a set: the ARI of every contender, with its number of clusters if not given."""
    lines = [f"| set | half | n | d | classes | {' | '.join(scores)} |", "|---" * (5 + len(scores)) + "|"]
    for half, names in VIEWS.items():
        for name in names:
            at = [by_set.get(name) for by_set in scores.values()]
            example = next((row for row in at if row), None)
            if example is None:
                continue
            sizes = " | ".join(f"{example[what]:.0f}" for what in ("n", "d", "classes"))
            cells = [
                "" if row is None else told(row["ari"]) + ("" if given else f" ({told(row['clusters'], 0)})")
                for row in at
            ]
            lines.append(f"| {name} | {half} | {sizes} | {' | '.join(cells)} |")
    return lines


def markdown(rows: list[dict[str, Any]], details: bool = True) -> str:
    """Return the tables of means, and with ``details`` those of a row a set."""
    lines = []
    for is_given, title in TITLES.items():
        scores = scores_of(rows, is_given)
        lines += [f"## {title}", "", *summary_lines(scores), ""]
        lines += [f"### {title}, by set", "", *set_lines(scores, is_given), ""] if details else []
    return "\n".join(lines)


def draw_panel(axes: Any, scores: Scores, title: str) -> None:
    """Draw the ARI of k-means, the best contender outside of bigcons, and the default, by reporting set."""
    others = [by_set for name, by_set in scores.items() if name not in BIGCONS]
    base, default = scores.get(BASE, {}), scores.get(DEFAULT, {})
    parts = [
        sorted((n for n in VIEWS[view] if n in base), key=lambda n: base[n]["ari"])
        for view in ("shapes", "reporting")
    ]
    names = [name for part in parts for name in part]
    best = [max(by_set[name]["ari"] for by_set in others if name in by_set) for name in names]
    at = np.arange(len(names))
    axes.hlines(at, 0, 1, color="0.93", linewidth=1, zorder=0)
    axes.axhline(len(parts[0]) - 0.5, color="0.6", linewidth=0.8)
    axes.scatter(best, at, s=60, facecolors="none", edgecolors="#1f5a92", label="best other contender")
    axes.scatter([base[name]["ari"] for name in names], at, s=22, color="0.55", label="k-means")
    indices = [i for i, name in enumerate(names) if name in default]
    axes.scatter(
        [default[names[i]]["ari"] for i in indices], indices, s=22, color="#b3261e", label="bigcons, default"
    )
    axes.set_yticks(at, names, fontsize=8)
    axes.set(title=title, xlabel="adjusted Rand index", ylim=(-0.7, len(names) - 0.3))


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw the reporting sets, with the number of classes given and not."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7), layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, (is_given, title) in zip(panels, TITLES.items(), strict=True):
        draw_panel(axes, scores_of(rows, is_given), title)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--smallest", action="store_true", help="iris, to see that it runs")
    parser.add_argument("--sets", nargs="+", choices=[*REAL, *SHAPES], metavar="SET", help="by default all")
    parser.add_argument("--contenders", nargs="+", help="by default all")
    parser.add_argument("--seeds", type=int, default=1, help="0 to SEEDS - 1")
    parser.add_argument("--peers", nargs="+", default=[], metavar="MODULE", help="of further contenders")
    parser.add_argument("--again", nargs="+", default=[], help="contenders whose rows in --out are replaced")
    parser.add_argument("--out", type=Path, help="JSON lines, one a solve; results/features.jsonl")
    parser.add_argument("--report", action="store_true", help="run nothing; write tables and a picture")
    arguments = parser.parse_args()
    out = arguments.out or RESULTS / "features.jsonl"
    if arguments.report:
        rows = read_rows(out)
        (RESULTS / "features.md").write_text(f"{INTRODUCTION}\n{markdown(rows)}")
        draw(rows, RESULTS / "features.png")
        print(markdown(rows, details=False))
        return
    warnings.simplefilter("ignore")
    sets: dict[str, Callable[..., Labeled]] = {name: REAL[name] for name in at_hand()} | SHAPES
    if arguments.sets:
        sets = {name: {**REAL, **SHAPES}[name] for name in arguments.sets}
    if arguments.smallest:
        out, sets = None, {"iris": REAL["iris"]}
    taking_part = contenders(arguments.peers, arguments.contenders)
    rows = without(out, arguments.again) if out else []
    done = {tuple(row[what] for what in KEY) for row in rows}
    for seed, (name, make) in ((seed, item) for seed in range(arguments.seeds) for item in sets.items()):
        todo = {
            key: solve
            for is_given, part in taking_part.items()
            for contender, solve in part.items()
            if (key := (name, contender, is_given, seed)) not in done
        }
        for row in rows_of(make, seed, todo) if todo else ():
            rows.append(row)
            if out:
                append(out, row)
                print(json.dumps(row), flush=True)
    print(markdown(rows, details=False))


if __name__ == "__main__":
    main()
