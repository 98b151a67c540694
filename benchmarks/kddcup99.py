"""The large-scale experiment of the PCC paper (Lourenço et al. 2015, section 6.3) on the KDD Cup 1999 file.

120,000 objects of three classes, 100 k-means partitions of random halves with 2 to 10 clusters. Sweeps the
number of clusters K = 2..10 and the share of sampled pairs 0.02..0.25 permille, and reports accuracy (H),
adjusted Rand index, clusters that win objects, the all-pairs objective and seconds, for all-pairs PCC and
for sampled PCC with the squared and the Kullback-Leibler divergence, and by number of clusters for CSPA
(figure 5), whose spectral form holds no similarities of all pairs. Without the file, or with
``--smallest``, it uses planted data of the same shape.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from machine import describe

from bigcons import CSPA, PCC, Ensemble
from bigcons.coassociation import sample
from bigcons.datasets import kddcup99, planted_features
from bigcons.errors import ConvergenceWarning
from bigcons.generate import kmeans
from bigcons.metrics import adjusted_rand, matching_accuracy, pcc_objective

CLUSTERS = range(2, 11)
PERMILLE = (0.02, 0.04, 0.08, 0.12, 0.16, 0.20, 0.25)
BEST_PERMILLE = 0.25
AS_IN_PAPER = {"max_iter": "paper"}  # how sampled pairs are solved
FIGURES = {"all pairs": "#0072B2", "sampled l2": "#D55E00", "sampled kl": "#009E73", "CSPA": "#CC79A7"}


def measure(ensemble: Ensemble, truth: np.ndarray, kind: str, model: PCC | CSPA) -> dict:
    """Fit and score one model."""
    began = time.perf_counter()
    model.fit(ensemble)
    seconds = time.perf_counter() - began
    return {
        "solver": kind,
        "n_clusters": model.n_clusters,
        "H": round(matching_accuracy(truth, model.labels_), 4),
        "ARI": round(adjusted_rand(truth, model.labels_), 4),
        "clusters_found": model.n_clusters_,
        "objective_per_n2": round(
            pcc_objective(ensemble, memberships(model), constant=False) / len(truth) ** 2, 5
        ),
        "seconds": round(seconds, 2),
    }


def memberships(model: PCC | CSPA) -> np.ndarray:
    """Return the memberships of a model, of CSPA those of its labels."""
    if isinstance(model, PCC):
        return model.memberships_
    return np.eye(model.n_clusters, dtype=np.float32)[model.labels_]


def sweep_clusters(
    ensemble: Ensemble, truth: np.ndarray, permille: float, clusters: range, seed: int
) -> list[dict]:
    pairs = sample(ensemble, share=permille / 1000, random_state=seed)
    rows = []
    for k in clusters:
        rows.append(measure(ensemble, truth, "all pairs", PCC(k, random_state=seed)))
        rows.append(measure(ensemble, truth, "CSPA", CSPA(k, random_state=seed)))
        for divergence in ("l2", "kl"):
            model = PCC(k, divergence=divergence, pairs=pairs, random_state=seed, **AS_IN_PAPER)
            rows.append(measure(ensemble, truth, f"sampled {divergence}", model))
        print(*map(json.dumps, rows[-4:]), sep="\n", flush=True)
    return rows


def sweep_shares(ensemble: Ensemble, truth: np.ndarray, shares: tuple[float, ...], seed: int) -> list[dict]:
    rows = []
    for permille in shares:
        pairs = sample(ensemble, share=permille / 1000, random_state=seed)
        for divergence in ("l2", "kl"):
            model = PCC(3, divergence=divergence, pairs=pairs, random_state=seed, **AS_IN_PAPER)
            rows.append({"permille": permille, **measure(ensemble, truth, f"sampled {divergence}", model)})
        print(*map(json.dumps, rows[-2:]), sep="\n", flush=True)
    return rows


def draw(results: dict, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for kind, color in FIGURES.items():  # the dashed line in (b): all pairs
        rows = [row for row in results["clusters"] if row["solver"] == kind]
        left.plot(
            [r["n_clusters"] for r in rows],
            [r["H"] for r in rows],
            "o-",
            color=color,
            label=kind,
            markersize=4,
        )
        rows = [row for row in results["shares"] if row["solver"] == kind]
        if rows:
            permille, accuracy = [r["permille"] for r in rows], [r["H"] for r in rows]
            right.plot(permille, accuracy, "o-", color=color, label=kind, markersize=4)
    best = max(
        row["H"] for row in results["clusters"] if row["solver"] == "all pairs" and row["n_clusters"] == 3
    )
    right.axhline(best, color=FIGURES["all pairs"], linewidth=1, linestyle="--", label="all pairs, K = 3")
    base = results["base_accuracy"]
    for axes in (left, right):
        axes.axhline(base, color="0.5", linewidth=1, linestyle=":", label="mean base partition")
        axes.grid(color="0.92")
    left.set(xlabel="clusters asked for, K", ylabel="accuracy H", title="(a) number of clusters")
    right.set(xlabel="sampled pairs, permille of all", title="(b) share of pairs, K = 3")
    left.legend(fontsize=8, loc="lower right")
    right.legend(fontsize=8, loc="lower right")
    figure.savefig(path, dpi=150)


def write_table(results: dict, path: Path) -> None:
    lines = [
        f"# {results['data']}: {results['n_objects']:,} objects, 100 partitions",
        "",
        f"Mean accuracy of a base partition on the objects it saw: {results['base_accuracy']:.3f}.",
        "{processor}, {cores} cores; Python {python}.".format(**results["machine"]),
        "",
    ]
    for title, rows in (
        ("Number of clusters", results["clusters"]),
        ("Share of sampled pairs", results["shares"]),
    ):
        names = list(rows[0])
        lines += [f"## {title}", "", "| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
        lines += ["| " + " | ".join(str(row[name]) for name in names) + " |" for row in rows]
        lines.append("")
    path.write_text("\n".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smallest", action="store_true", help="a few seconds on planted data")
    parser.add_argument("--data-dir", help="folder of the KDD Cup 1999 file; default $BIGCONS_DATA")
    parser.add_argument("--random-state", type=int, default=0)
    parser.add_argument("-o", "--out", type=Path, help="folder for kddcup99.md, .json and .png")
    arguments = parser.parse_args()
    seed = arguments.random_state
    warnings.simplefilter("ignore", ConvergenceWarning)  # n K steps are the paper's cap, not convergence
    if arguments.smallest:
        data, (features, truth) = "planted", planted_features(1500)
        clusters, shares, permille = range(3, 4), (20.0,), 20.0
    else:
        data, (features, truth) = "KDD Cup 1999", kddcup99(arguments.data_dir, as_numbers=True)
        clusters, shares, permille = CLUSTERS, PERMILLE, BEST_PERMILLE
    ensemble = kmeans(features, train="all", random_state=seed)
    labels = ensemble.read(0, ensemble.n_objects)
    base = [matching_accuracy(truth, labels[:, u]) for u in range(ensemble.n_partitions)]
    # compile before the clock runs
    PCC(3, random_state=0, max_iter=1, tol=0).fit(labels[:1000])
    for divergence in ("l2", "kl"):
        PCC(3, divergence=divergence, pairs=0.05, max_iter=1, tol=0).fit(labels[:1000])
    results = {
        "data": data,
        "n_objects": len(truth),
        "machine": describe(),
        "base_accuracy": float(np.mean(base)),
        "clusters": sweep_clusters(ensemble, truth, permille, clusters, seed),
        "shares": sweep_shares(ensemble, truth, shares, seed),
    }
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "kddcup99.json").write_text(json.dumps(results, indent=1) + "\n")
        write_table(results, arguments.out / "kddcup99.md")
        draw(results, arguments.out / "kddcup99.png")


if __name__ == "__main__":
    main()
