"""How accurate is each consensus on ordinary data? Methods, variants and do-it-yourself code compared.

Real and planted data sets, each clustered into ensembles of several kinds with several seeds; every contender
is given the true number of clusters and the labels, nothing else. Reports the adjusted Rand index and the
normalized mutual information with the classes, ranks with the critical difference of Nemenyi's test, and
shortfalls: how far a contender is below the best of all on the same ensemble, on average and at worst.

The data sets are divided once and for all: defaults, thresholds and constants are chosen on `CHOOSING`, and
results are claimed on `REPORTING`.

Ensembles (60 partitions):

===================  ============================================================================
halves-10, -20       k-means of random halves of the objects, 2 to 10 or 2 to 20 clusters
all-20               k-means of all objects, 2 to 20 clusters
sqrt                 k-means of all objects, sqrt(n) / 2 to sqrt(n) clusters: evidence accumulation
projections          k-means of random projections to about sqrt(d) dimensions, 2 to 20 clusters
views                k-means of random halves of the features, 2 to 20 clusters
mixed                k-means, Gaussian mixtures, and linkage (average, Ward) of subsamples
sparse               halves-20 with labels deleted until four in five are missing
useless              halves-20 with a quarter of the partitions random
===================  ============================================================================

Results are appended to ``--out`` as they come, and an interrupted run resumes. Features are read from the
folder that BIGCONS_DATA names; without it, and with ``--smallest``, planted data replace them.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from real_data import from_file, from_sklearn

from bigcons import METHODS, Ensemble
from bigcons.datasets.kdd import KDD_FILE
from bigcons.metrics import adjusted_rand, nmi
from bigcons.seeding import generator

N_OBJECTS, N_PARTITIONS = 2000, 60

# ---------------------------------------------------------------------------------------------- data sets


def blobs(n_classes: int, spread: float, shares: list[float] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return Gaussian classes in 8 dimensions of standard deviation ``spread``; that of the centers is 1."""
    draw = generator(n_classes, "accuracy.blobs", int(1000 * spread), len(shares or ()))
    centers = draw.normal(size=(n_classes, 8))
    p = np.full(n_classes, 1 / n_classes) if shares is None else np.array(shares) / sum(shares)
    classes = draw.choice(n_classes, N_OBJECTS, p=p)
    classes[:n_classes] = np.arange(n_classes)
    return centers[classes] + spread * draw.normal(size=(N_OBJECTS, 8)), classes


PLANTED: dict[str, Callable[[], tuple[Any, Any]]] = {
    "blobs-5": lambda: blobs(5, 0.25),
    "blobs-12": lambda: blobs(12, 0.25),
    "blobs-12-overlapping": lambda: blobs(12, 0.55),
    "blobs-20": lambda: blobs(20, 0.25),
    "blobs-50": lambda: blobs(50, 0.2),
    "blobs-one-of-80": lambda: blobs(6, 0.3, [0.8, 0.04, 0.04, 0.04, 0.04, 0.04]),
    "blobs-tiny": lambda: blobs(8, 0.2, [0.3, 0.3, 0.2, 0.168, 0.008, 0.008, 0.008, 0.008]),
    "blobs-unequal": lambda: blobs(10, 0.3, [2.0**-i for i in range(10)]),
}


def kddcup99() -> tuple[np.ndarray, np.ndarray]:
    """Return the numeric columns of KDD Cup 1999 and all its classes, most of them rare."""
    import pandas as pd

    table = pd.read_csv(Path(os.environ["BIGCONS_DATA"]) / KDD_FILE, header=None)
    return table.select_dtypes("number").to_numpy(float), table.iloc[:, -1].to_numpy()


def text(path: str, words: str, classes: str) -> tuple[np.ndarray, np.ndarray]:
    """Return documents as 50 leading directions of TF-IDF, of length 1: k-means of them is spherical."""
    from scipy.io import loadmat
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.preprocessing import normalize

    found = loadmat(Path(os.environ["BIGCONS_DATA"]) / path)
    counts, truth = found[words].tocsr(), found[classes].ravel()
    if counts.shape[0] != truth.size:
        counts = counts.T.tocsr()
    reduced = TruncatedSVD(50, random_state=0).fit_transform(TfidfTransformer().fit_transform(counts))
    return normalize(reduced), truth


REAL: dict[str, Callable[[], tuple[Any, Any]]] = {
    "balance-scale": lambda: from_file("balance-scale/balance-scale.data.gz", label=0),
    "breast-cancer": lambda: from_sklearn("breast_cancer"),
    "bupa": lambda: from_file("bupa/bupa.data.gz"),
    "classic3": lambda: text("text_classic3/classic3.mat", "A", "labels"),
    "covertype": lambda: from_file("covertype_sample/covertype_ramp_test.csv.gz", skip=1),
    "digits": lambda: from_sklearn("digits"),
    "glass": lambda: from_file("glass/glass.data.gz", named=True),
    "house-votes": lambda: from_file("house-votes-84/house-votes-84.data.gz", label=0),
    "ionosphere": lambda: from_file("ionosphere/ionosphere.data.gz"),
    "iris": lambda: from_sklearn("iris"),
    "isolet": lambda: from_file("isolet/isolet.csv.gz"),
    "k1b": lambda: text("text_k1b/k1b.mat", "dtm", "classid"),
    "kddcup99": kddcup99,
    "magic04": lambda: from_file("magic04/magic04.data.gz"),
    "pendigits": lambda: from_file("pendigits/pendigits.tra.gz"),
    "pima": lambda: from_file("pima/pima-indians-diabetes.data.gz"),
    "segmentation": lambda: from_file("segmentation/segmentation.test.gz", label=0, skip=5),
    "wine": lambda: from_sklearn("wine"),
    "yeast": lambda: from_file("yeast/yeast.data.gz", named=True),
}

REPORTING = [
    *("blobs-12", "blobs-50", "blobs-one-of-80", "blobs-unequal"),
    *("breast-cancer", "classic3", "covertype", "digits", "glass", "house-votes"),
    *("iris", "isolet", "magic04", "pima"),
]
CHOOSING = [name for name in (*PLANTED, *REAL) if name not in REPORTING]


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return standardized features and classes of at most `N_OBJECTS` objects."""
    features, classes = {**PLANTED, **REAL}[name]()
    features, classes = np.asarray(features, float), np.unique(classes, return_inverse=True)[1]
    if len(features) > N_OBJECTS:
        rows = np.sort(generator(0, "accuracy.rows").choice(len(features), N_OBJECTS, replace=False))
        features, classes = features[rows], np.unique(classes[rows], return_inverse=True)[1]
    features = features[:, np.ptp(features, axis=0) > 0]
    if name not in ("classic3", "k1b"):
        features = (features - features.mean(axis=0)) / features.std(axis=0)
    return features, classes


# ---------------------------------------------------------------------------------------------- ensembles


def kmeans_labels(x: np.ndarray, low: int, high: int, draw: np.random.Generator, share: float = 1.0) -> Any:
    """Return one k-means partition (n,) of a random share of the objects, the others at -1."""
    from sklearn.cluster import KMeans

    rows = np.flatnonzero(draw.permutation(len(x)) < share * len(x))
    k = min(int(draw.integers(low, high + 1)), len(rows))
    model = KMeans(k, init="random", n_init=1, random_state=int(draw.integers(2**31)))
    labels = np.full(len(x), -1)
    labels[rows] = model.fit_predict(x[rows])
    return labels


def mixed_labels(x: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Return one partition by an algorithm drawn at random; linkage sees at most 500 objects."""
    from sklearn.cluster import AgglomerativeClustering
    from sklearn.mixture import GaussianMixture

    which, k, seed = draw.integers(4), int(draw.integers(2, 21)), int(draw.integers(2**31))
    labels = np.full(len(x), -1)
    if which == 0:
        return kmeans_labels(x, 2, 20, draw)
    rows = np.sort(draw.choice(len(x), min(len(x), 1000 if which == 1 else 500), replace=False))
    k = min(k, len(rows) // 2)
    if which == 1:
        model: Any = GaussianMixture(k, covariance_type="diag", n_init=1, random_state=seed, reg_covar=1e-3)
    else:
        model = AgglomerativeClustering(k, linkage="average" if which == 2 else "ward")
    labels[rows] = model.fit_predict(x[rows])
    return labels


def ensemble_of(kind: str, x: np.ndarray, seed: int) -> np.ndarray:
    """Return the labels (n, N_PARTITIONS) of an ensemble, -1 missing."""
    draw = generator(seed, f"accuracy.{kind}")
    n, d = x.shape
    root = int(np.sqrt(n))

    def columns() -> Iterator[np.ndarray]:
        for _ in range(N_PARTITIONS):
            if kind == "halves-10":
                yield kmeans_labels(x, 2, 10, draw, 0.5)
            elif kind in ("halves-20", "sparse", "useless"):
                yield kmeans_labels(x, 2, 20, draw, 0.5)
            elif kind == "all-20":
                yield kmeans_labels(x, 2, 20, draw)
            elif kind == "sqrt":
                yield kmeans_labels(x, max(root // 2, 2), root, draw)
            elif kind == "projections":
                yield kmeans_labels(x @ draw.normal(size=(d, max(int(np.sqrt(d)), 2))), 2, 20, draw)
            elif kind == "views":
                chosen = draw.choice(d, max(d // 2, 1), replace=False)
                yield kmeans_labels(x[:, chosen], 2, 20, draw)
            else:
                yield mixed_labels(x, draw)

    labels = np.column_stack(list(columns()))
    if kind == "sparse":
        labels[draw.random(labels.shape) < 0.6] = -1
    if kind == "useless":
        for u in draw.choice(N_PARTITIONS, N_PARTITIONS // 4, replace=False):
            seen = labels[:, u] >= 0
            labels[seen, u] = draw.integers(int(draw.integers(2, 21)), size=int(seen.sum()))
    return labels


KINDS = ("halves-10", "halves-20", "all-20", "sqrt", "projections", "views", "mixed", "sparse", "useless")

# -------------------------------------------------------------------------------------------- contenders


def one_hot(labels: np.ndarray) -> Any:
    """Return a sparse one-hot matrix (n, base clusters) of labels; missing ones leave their columns 0."""
    from scipy import sparse

    offsets = np.concatenate([[0], np.cumsum(labels.max(axis=0) + 1)])
    rows, parts = np.nonzero(labels >= 0)
    indices = labels[rows, parts] + offsets[parts]
    return sparse.csr_matrix((np.ones(rows.size), (rows, indices)), shape=(len(labels), offsets[-1]))


def one_hot_kmeans(labels: np.ndarray, n_clusters: int, seed: int) -> np.ndarray:
    """Five lines of scikit-learn: k-means of one-hot labels, divided by the object's number of labels."""
    from sklearn.cluster import KMeans

    h = one_hot(labels)
    h = h.multiply(1 / np.maximum(h.sum(axis=1), 1)).tocsr()
    return KMeans(n_clusters, n_init=10, random_state=seed).fit_predict(h)


def svd_kmeans(labels: np.ndarray, n_clusters: int, seed: int) -> np.ndarray:
    """Fifteen lines of SciPy: one-hot labels scaled as in correspondence analysis, SVD, k-means."""
    from scipy import sparse
    from sklearn.cluster import KMeans
    from sklearn.utils.extmath import randomized_svd

    h = one_hot(labels)
    h = h[:, np.asarray(h.sum(axis=0)).ravel() > 0]
    scaled = (
        sparse.diags(1 / np.sqrt(np.maximum(np.asarray(h.sum(axis=1)).ravel(), 1)))
        @ h
        @ sparse.diags(1 / np.sqrt(np.asarray(h.sum(axis=0)).ravel()))
    )
    u, _, _ = randomized_svd(scaled, min(n_clusters, min(scaled.shape)), random_state=seed)
    u /= np.maximum(np.linalg.norm(u, axis=1, keepdims=True), 1e-12)
    return KMeans(n_clusters, n_init=10, random_state=seed).fit_predict(u)


VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "pcc by entropy": ("pcc", {"weights": "entropy"}),
    "pcc by information": ("pcc", {"weights": "information"}),
    "pcc kl": ("pcc", {"divergence": "kl"}),
    "pcc by least squares": ("pcc", {"coassociation": "least-squares"}),
    "pcc by moments": ("pcc", {"coassociation": "moments"}),
}
LEFT_OUT = {
    "did": "needs features",
    "bce-gibbs": "a sampler: minutes an ensemble",
    "eac": "a threshold, no number of clusters",
    "greedy-anmi": "minutes an ensemble",
    "supra": "the best of others, by ANMI",
}


def contenders() -> dict[str, Callable[[np.ndarray, int, int], np.ndarray]]:
    """Return every contender by name, as a function of labels, number of clusters and seed."""

    def by(method: str, parameters: Mapping[str, Any]) -> Callable[[np.ndarray, int, int], np.ndarray]:
        def solve(labels: np.ndarray, n_clusters: int, seed: int) -> np.ndarray:
            model = METHODS[method](n_clusters, random_state=seed, client="serial", **parameters)
            return np.asarray(model.fit(Ensemble.from_labels(labels)).labels_)

        return solve

    ours = {name: (name, {}) for name in METHODS if name not in LEFT_OUT} | VARIANTS
    found = {name: by(method, parameters) for name, (method, parameters) in ours.items()}
    return found | {"one-hot k-means": one_hot_kmeans, "scaled SVD": svd_kmeans}


def rows_of(name: str, kind: str, seed: int, todo: list[str]) -> Iterator[dict[str, Any]]:
    """Yield a row for each contender on one ensemble."""
    x, classes = load(name)
    n_clusters = int(classes.max()) + 1
    labels = ensemble_of(kind, x, seed)
    seen = (labels >= 0).any(axis=1)
    solvers = contenders()
    for contender in todo:
        began = time.perf_counter()
        row = {"data": name, "kind": kind, "seed": seed, "contender": contender}
        try:
            found = solvers[contender](labels, n_clusters, seed)
        except Exception as error:  # a refusal counts as a result
            yield row | {"ari": 0.0, "nmi": 0.0, "refused": f"{type(error).__name__}: {error}"[:200]}
            continue
        seconds = time.perf_counter() - began
        yield row | {
            "ari": round(float(adjusted_rand(classes[seen], found[seen])), 4),
            "nmi": round(float(nmi(classes[seen], found[seen])), 4),
            "seconds": round(seconds, 3),
        }


# ----------------------------------------------------------------------------------------------- report


def summary(rows: list[dict[str, Any]], data: list[str]) -> dict[str, Any]:
    """Return means, ranks, shortfalls and times of all contenders over the ensembles of some data sets."""
    from scipy.stats import rankdata, studentized_range

    names = sorted({row["contender"] for row in rows})
    cells: dict[tuple[str, str, int], dict[str, dict[str, Any]]] = {}
    for row in rows:
        if row["data"] in data:
            cells.setdefault((row["data"], row["kind"], row["seed"]), {})[row["contender"]] = row
    whole = [found for found in cells.values() if set(names) <= set(found)]
    if not whole:
        return {"ensembles": 0, "contenders": {}}
    scores = np.array([[found[name]["ari"] for name in names] for found in whole])
    mutual = np.array([[found[name]["nmi"] for name in names] for found in whole])
    seconds = np.array([[found[name].get("seconds", np.nan) for name in names] for found in whole])
    ranks = rankdata(-scores, axis=1).mean(axis=0)
    shortfall = scores.max(axis=1, keepdims=True) - scores
    n_data = len({key[0] for key, found in cells.items() if set(names) <= set(found)})
    # ensembles of one data set are not independent: the test counts data sets
    q = studentized_range.ppf(0.95, len(names), np.inf) / np.sqrt(2)
    difference = q * np.sqrt(len(names) * (len(names) + 1) / (6 * n_data))
    table = {
        name: {
            "ari": round(float(scores[:, i].mean()), 4),
            "nmi": round(float(mutual[:, i].mean()), 4),
            "rank": round(float(ranks[i]), 2),
            "shortfall": round(float(shortfall[:, i].mean()), 4),
            "worst": round(float(shortfall[:, i].max()), 4),
            "seconds": round(float(np.nanmedian(seconds[:, i])), 3),
            "refused": int(np.isnan(seconds[:, i]).sum()),
        }
        for i, name in enumerate(names)
    }
    return {
        "data": sorted({key[0] for key in cells}),
        "ensembles": len(whole),
        "critical_difference": round(float(difference), 2),
        "contenders": dict(sorted(table.items(), key=lambda entry: entry[1]["rank"])),
    }


def show(title: str, found: dict[str, Any]) -> None:
    print(
        f"\n{title}: {found['ensembles']} ensembles; ranks closer than the critical difference "
        f"({found.get('critical_difference')}) may be chance"
    )
    print(f"{'':20}{'ARI':>7}{'NMI':>7}{'rank':>7}{'short':>8}{'worst':>7}{'s':>8}{'refused':>9}")
    for name, row in found["contenders"].items():
        print(
            f"{name:20}{row['ari']:7.3f}{row['nmi']:7.3f}{row['rank']:7.2f}{row['shortfall']:8.3f}"
            f"{row['worst']:7.3f}{row['seconds']:8.2f}{row['refused']:9d}"
        )


def draw_ranks(found: dict[str, Any], path: Path) -> None:
    """Draw mean ranks, best at the top, with the critical difference as a bar from the best."""
    import matplotlib.pyplot as plt

    table = found["contenders"]
    names, ranks = list(table), [row["rank"] for row in table.values()]
    figure, axes = plt.subplots(figsize=(7, 0.24 * len(names) + 1.1), layout="constrained")
    within = [rank <= ranks[0] + found["critical_difference"] for rank in ranks]
    axes.axvspan(ranks[0], ranks[0] + found["critical_difference"], color="#dbe7f3", zorder=0)
    axes.scatter(ranks, range(len(names)), c=["#1f5a92" if ok else "#999999" for ok in within], s=22)
    for i, name in enumerate(names):
        axes.annotate(
            f"{table[name]['ari']:.3f}", (ranks[i], i), (6, -3), textcoords="offset points", fontsize=7
        )
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("mean rank by ARI (next to the dots: mean ARI; shaded: not different from the best)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main() -> None:
    from machine import describe  # the other benchmarks

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--smallest", action="store_true", help="one planted data set, to see that it runs")
    parser.add_argument("--data", nargs="+", help="data sets, by default all that are at hand")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS, metavar="KIND")
    parser.add_argument("--seeds", type=int, default=5, help="0 to SEEDS - 1")
    parser.add_argument("--contenders", nargs="+", help="by default all")
    parser.add_argument("--out", type=Path, help="JSON lines, one a solve; results/accuracy.jsonl")
    arguments = parser.parse_args()
    here = Path(__file__).parent / "results"
    out = arguments.out or (None if arguments.smallest else here / "accuracy.jsonl")
    data = arguments.data or [*PLANTED, *(REAL if os.environ.get("BIGCONS_DATA") else ["iris", "digits"])]
    kinds, seeds, names = arguments.kinds, arguments.seeds, arguments.contenders or list(contenders())
    if arguments.smallest:
        data, kinds, seeds, names = ["iris"], ["halves-10"], 1, ["pcc", "hbgf", "one-hot k-means"]
    warnings.simplefilter("ignore")
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out and out.exists() else []
    done = {(row["data"], row["kind"], row["seed"], row["contender"]) for row in rows}
    for seed in range(seeds):
        for name in data:
            for kind in kinds:
                todo = [c for c in names if (name, kind, seed, c) not in done]
                for row in rows_of(name, kind, seed, todo) if todo else ():
                    rows.append(row)
                    if out:
                        with out.open("a") as file:
                            file.write(json.dumps(row) + "\n")
    choosing, reporting = summary(rows, CHOOSING), summary(rows, REPORTING)
    show("Choosing half", choosing)
    show("Reporting half", reporting)
    if out and arguments.out is None:
        found = {"machine": describe(), "left_out": LEFT_OUT, "choosing": choosing, "reporting": reporting}
        (here / "accuracy.json").write_text(json.dumps(found, indent=1) + "\n")
        draw_ranks(reporting, here / "accuracy.png")


if __name__ == "__main__":
    main()
