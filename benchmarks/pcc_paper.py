"""Do the experiments of the PCC paper (Lourenço et al. 2015) come out the same?

``simulation``: J between the true soft partition and the memberships found with K = 8, on four Gaussians, at
the published setting and at growing overlap, next to J of the label frequencies themselves, the least that
can be expected. Published: .0012 for both divergences, four significant clusters; the means and variances
are not.

``uci``: H and adjusted Rand index (ARI) on ensembles of k-means that split data into micro-blocks (1) and of
many algorithms (2). The paper's tables and parameters are lost; it has EAC and CSPA in the lead on ensemble
1, PCC-KL best on 7 of 9 data sets on ensemble 2, and almost no deviation between runs. It does not say
whether features are standardized: ``uci`` has standardized features, ``uci raw`` raw ones.

``convergence``: how far the heap is above its optimum after so many times n K steps, and all pairs after so
many passes. The paper bounds the heap by n K steps.

``digit`` (figures 7 and 8): the co-association of the images of one digit of PENDIG, in the order of VAT, and
the graph of how five clusters of it overlap, each drawn as the path of the pen of its centroid. In the paper,
digit 2 has five blocks, and .48 of one cluster lies in two others. The pictures are
``results/pcc_paper_pairs.png`` and ``results/pcc_paper_graph.png``.

The large-scale experiment is ``kddcup99.py``. Real data are read from the folder that BIGCONS_DATA names;
``--smallest`` needs none.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from real_data import Named, available, counted, fitted, load, run_parts, winners

from bigcons import PCC, Ensemble, plots
from bigcons.coassociation import sample
from bigcons.datasets import simulated_soft_partitions
from bigcons.errors import ConvergenceWarning, NoStructureWarning
from bigcons.generate import diverse, kmeans
from bigcons.metrics import (
    adjusted_rand,
    cluster_centroids,
    cluster_overlap,
    jensen_shannon,
    matching_accuracy,
)

warnings.simplefilter("ignore", ConvergenceWarning)
warnings.simplefilter("ignore", NoStructureWarning)

DIVERGENCES = ("l2", "kl")

SPREADS = ((1.0, 3.0, 1.0), (0.0, 3.0, 1.0), (0.5, 2.0, 1.0), (0.0, 1.0, 0.5))
"""Least and largest coordinate of the means, and standard deviation, from little to much overlap."""


def simulation(
    n_data_sets: int,
    spreads: Sequence[tuple[float, float, float]] = SPREADS,
    size: tuple[int, int] = (200, 1000),  # points of a Gaussian, and partitions
) -> dict[str, Any]:
    """Return J and the number of clusters that win objects at each overlap, by divergence."""
    rows: list[dict[str, Any]] = []
    for low, high, sigma in spreads:
        J: dict[str, list[float]] = {name: [] for name in (*DIVERGENCES, "frequencies")}
        clusters, entropies = [], []
        for seed in range(n_data_sets):
            labels, truth = simulated_soft_partitions(
                *size, low=low, high=high, sigma=sigma, random_state=seed
            )
            entropies.append(-(truth * np.log2(np.maximum(truth, 1e-300))).sum(axis=1).mean())
            shares = np.stack([(labels == h).mean(axis=1) for h in range(truth.shape[1])], axis=1)
            J["frequencies"].append(jensen_shannon(truth, shares))
            for divergence in DIVERGENCES:
                model = PCC(8, divergence=divergence, random_state=seed).fit(labels)
                J[divergence].append(jensen_shannon(truth, model.memberships_))
                clusters.append(model.n_clusters_)
        row = {
            "means": [low, high],
            "sigma": sigma,
            "bits_of_truth": round(float(np.mean(entropies)), 2),
            **{f"J {name}": round(float(np.mean(values)), 5) for name, values in J.items()},
            **{f"J {name} sd": round(float(np.std(values)), 5) for name, values in J.items()},
            "clusters": sorted(set(clusters)),
        }
        rows.append(row)
        print(row, flush=True)
    return {"n_data_sets": n_data_sets, "published": 0.0012, "rows": rows}


UCI_DATA = [
    *("rings", "iris", "wine", "house-votes", "ionosphere", "yeast", "wdbc"),
    *("optdigits-389", "segmentation"),
]

UCI_METHODS: Named = {
    "PCC-l2": ("pcc", {"pairs": "all", "solver": "auto"}),
    "PCC-KL": ("pcc", {"pairs": "all", "solver": "auto", "divergence": "kl"}),
    "EAC-SL": ("eac-single", {}),
    "EAC-AL": ("eac-average", {}),
    "CSPA": ("cspa", {}),
    "CSPA spectral": ("cspa", {"partitioner": "spectral"}),
    "HBGF": ("hbgf", {}),
    "HBGF spectral": ("hbgf", {"partitioner": "spectral"}),
    "MM": ("mixture", {"n_init": 10}),
    "QMI": ("qmi", {}),
}

KINDS: dict[str, Callable[..., Ensemble]] = {
    "1": lambda X, **own: kmeans(X, n_partitions=100, n_clusters="split", sample=1.0, **own),
    "2": lambda X, **own: diverse(X, n_clusters=(2, 10), **own),
}


def uci(names: Sequence[str], n_runs: int, raw: bool = False) -> dict[str, Any]:
    """Return the mean, spread and extremes of H and ARI over ensembles of other seeds, and who is best."""
    rows: list[dict[str, Any]] = []
    for name in names:
        X, y = load(name, raw)
        K = len(np.unique(y))
        for kind, make in KINDS.items():
            ensembles = [make(X, random_state=seed, standardize=not raw) for seed in range(n_runs)]
            row: dict[str, Any] = {"data": name, "ensemble": kind}
            runs_of = {
                method: [
                    fitted(key, K, ensemble, seed, **parameters).labels_
                    for seed, ensemble in enumerate(ensembles)
                ]
                for method, (key, parameters) in available(UCI_METHODS).items()
            }
            for criterion, judge in (("H", matching_accuracy), ("ARI", adjusted_rand)):
                values = {method: [judge(y, labels) for labels in runs] for method, runs in runs_of.items()}
                means = {method: round(float(np.mean(v)), 4) for method, v in values.items()}
                row[criterion] = means
                row[f"{criterion} sd_max_min"] = {
                    method: [round(float(f(v)), 4) for f in (np.std, np.max, np.min)]
                    for method, v in values.items()
                }
                row[f"best {criterion}"] = winners(means, +1)
            rows.append(row)
            print(f"{name:14}{kind}  " + "  ".join(f"{m} {v:.3f}" for m, v in row["H"].items()), flush=True)
    best = {
        f"{criterion}, ensemble {kind}": counted(
            row[f"best {criterion}"] for row in rows if row["ensemble"] == kind
        )
        for criterion in ("H", "ARI")
        for kind in KINDS
    }
    print("best:", best, flush=True)
    return {"n_runs": n_runs, "rows": rows, "best_on": best}


STEPS = (0.25, 0.5, 1, 2, 3, 5, 10)
"""Multiples of n K steps of the heap."""


def convergence(name: str, n_passes: int = 12, steps: Sequence[float] = STEPS) -> dict[str, Any]:
    """Return relative excesses over the optimum: of the heap on sampled pairs, and of all pairs by pass."""
    X, y = load(name)
    K, n = len(np.unique(y)), len(y)
    ensemble = kmeans(X, n_partitions=100, n_clusters=(2, 10), sample=0.5, train="all", random_state=0)
    pairs = sample(ensemble, per_object=min(30, n // 8), random_state=0)
    rows: list[dict[str, Any]] = []
    for divergence in DIVERGENCES:
        settings: dict[str, Any] = {"divergence": divergence, "random_state": 0}
        ends = [
            PCC(K, pairs=pairs, max_iter=round(share * n * K), tol=0, **settings).fit(ensemble).objective_
            for share in (*steps, 30)
        ]
        heap = {str(s): end / min(ends) - 1 for s, end in zip((*steps, 30), ends, strict=True)}
        passes = PCC(K, max_iter=n_passes, tol=0, **settings).fit(ensemble).history_["objective"]
        rows.append(
            {
                "divergence": divergence,
                "heap, by steps / (n K)": {step: round(excess, 6) for step, excess in heap.items()},
                "all pairs, by pass": [
                    round((value - min(passes)) / abs(min(passes)), 9) for value in passes
                ],
            }
        )
        print(rows[-1], flush=True)
    return {"data": name, "n_objects": n, "n_clusters": K, "n_pairs": pairs.n_pairs, "rows": rows}


THRESHOLD = 0.05
"""Memberships below it count as none in the graph of clusters."""


def draw_strokes(axes: Any, centroid: np.ndarray) -> None:
    """Draw features x, y, x, y, ... as the path of a pen, which starts at the dot."""
    path = centroid.reshape(-1, 2)
    axes.plot(*path.T, color="black", linewidth=1.6, solid_joinstyle="round", clip_on=False)
    axes.plot(*path[0], "o", color="black", markersize=4.5, clip_on=False)
    axes.set(xlim=(0, 100), ylim=(0, 100))


def digit(name: str, numeral: str, K: int, folder: Path | None) -> dict[str, Any]:
    """Return how the clusters of the objects of one class overlap, and draw it if there is a folder."""
    X, y = load(name, raw=True)
    rows = X[y.astype(str) == numeral]
    ensemble = kmeans(
        rows, n_partitions=100, n_clusters=(2, 10), sample=0.5, standardize=False, random_state=0
    )
    record: dict[str, Any] = {
        "data": name,
        "class": numeral,
        "n_objects": len(rows),
        "published": {"overlap": 0.48},
    }
    for divergence in DIVERGENCES:
        model = PCC(K, divergence=divergence, random_state=0).fit(ensemble)
        overlap = cluster_overlap(model.memberships_, threshold=THRESHOLD)
        shares = model.memberships_.mean(axis=0, dtype=float)
        record[divergence] = {
            "overlap": np.round(overlap, 3).tolist(),
            "shares": np.round(shares, 3).tolist(),
            "largest overlap": round(float(overlap[~np.eye(K, dtype=bool)].max()), 3),
        }
        print(divergence, record[divergence], flush=True)
        if folder and divergence == "kl":
            centroids = cluster_centroids(rows, model.memberships_, threshold=THRESHOLD)
            graph = plots.cluster_graph(model, centroids=centroids, glyph=draw_strokes, threshold=THRESHOLD)
            graph.savefig(folder / "pcc_paper_graph.png", dpi=110)
            plots.coassociation(ensemble, n_objects=len(rows)).savefig(
                folder / "pcc_paper_pairs.png", dpi=110
            )
    return record


if __name__ == "__main__":
    run_parts(
        __doc__,
        "pcc_paper",
        lambda n_runs: {
            "simulation": lambda: simulation(10),
            "uci": lambda: uci(UCI_DATA, n_runs),
            "uci raw": lambda: uci(UCI_DATA, n_runs, raw=True),
            "convergence": lambda: convergence("segmentation"),
            "digit": lambda: digit("pendigits-train", "2", 5, Path(__file__).parent / "results"),
        },
        {
            "simulation": lambda: simulation(1, SPREADS[:1], size=(50, 100)),
            "uci": lambda: uci(["iris"], 1),
            "uci raw": lambda: uci(["iris"], 1, raw=True),
            "convergence": lambda: convergence("iris", 3, STEPS[:1]),
            "digit": lambda: digit("iris", "1", 2, None),
        },
        n_runs=3,
    )
