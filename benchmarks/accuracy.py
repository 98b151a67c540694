"""How accurate is each consensus on ordinary data? Methods, variants and do-it-yourself code compared.

Real and planted data sets, each clustered into ensembles of several kinds with several seeds; every contender
is given the true number of clusters and the labels, nothing else. `accuracy_report.py` makes the tables and
the picture of the rows. Seconds are of processor time, on one thread.

The data sets are divided once and for all: defaults, thresholds and constants are chosen on `CHOOSING`, and
results are claimed on `REPORTING`. One change, of how PCC chooses its start, was prompted by failures seen on
`REPORTING`, and decided by other ensembles.

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

Results are appended to ``--out`` as they come, and an interrupted run resumes: seed 0 of the reporting half
first, then seed 0 of the choosing half, then the other seeds. ``--ensembles`` keeps the ensembles, which take
longer to make than most contenders take to solve them. ``--peers`` names the folder of the environments that
``accuracy_peers.py install`` makes; without it only bigcons and the do-it-yourself code run. Features come
from the folder that BIGCONS_DATA names; without it there are the planted sets, iris and digits.

The committed results hold the reporting half, with seeds 0 to 4 for the fast contenders (0 and 1 for one of
another package) and seed 0 for the others, of which magic04 has two kinds of ensembles; hgpa and three more
only planted sets; and the choosing half with seed 0 for the fast contenders. "pcc moments" and "pcc least
squares" were run with rarity 1 only. Five seeds of all data sets take several hours of one core.
`accuracy_noise.py` measures what shortfall chance alone gives.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import accuracy_peers
import numpy as np
from accuracy_report import read_rows, report, show
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


@cache
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

    labels = np.column_stack(list(columns())).astype(np.int16)
    if kind == "sparse":
        labels[draw.random(labels.shape) < 0.6] = -1
    if kind == "useless":
        for u in draw.choice(N_PARTITIONS, N_PARTITIONS // 4, replace=False):
            seen = labels[:, u] >= 0
            labels[seen, u] = draw.integers(int(draw.integers(2, 21)), size=int(seen.sum()))
    return labels


def kept_ensemble(name: str, kind: str, seed: int, folder: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Return labels and classes of an ensemble, read from ``folder`` if they were made before."""
    path = folder / f"{name}.{kind}.{seed}.npz" if folder else None
    if path and path.exists():
        with np.load(path) as found:
            return found["labels"], found["classes"]
    x, classes = load(name)
    labels = ensemble_of(kind, x, seed)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part.npz")
        np.savez_compressed(unfinished, labels=labels, classes=classes)
        unfinished.rename(path)
    return labels, classes


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


def spectral(labels: np.ndarray, n_clusters: int, seed: int) -> np.ndarray:
    """Spectral clustering of the co-association matrix, by scikit-learn; its size is quadratic."""
    from sklearn.cluster import SpectralClustering

    h = one_hot(labels)
    seen = (labels >= 0).astype(np.float32)
    similarity = np.asarray((h @ h.T).todense()) / np.maximum(seen @ seen.T, 1)
    model = SpectralClustering(n_clusters, affinity="precomputed", random_state=seed)
    return model.fit_predict(similarity)


DO_IT_YOURSELF = {"one-hot k-means": one_hot_kmeans, "scaled SVD": svd_kmeans, "spectral": spectral}

PAPER: dict[str, Any] = {"coassociation": "paper", "rarity": 0.0, "common_rates": False, "weights": None}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "pcc paper": ("pcc", PAPER),
    "pcc paper, entropy": ("pcc", PAPER | {"weights": "entropy"}),
    "pcc paper, information": ("pcc", PAPER | {"weights": "information"}),
    "pcc least squares": ("pcc", PAPER | {"coassociation": "least-squares"}),
    "pcc least squares, rarity 1": ("pcc", PAPER | {"coassociation": "least-squares", "rarity": 1.0}),
    "pcc moments": ("pcc", PAPER | {"coassociation": "moments"}),
    "pcc moments, rarity 1": ("pcc", PAPER | {"coassociation": "moments", "rarity": 1.0}),
}
LEFT_OUT = {
    "did": "needs features",
    "bce-gibbs": "a sampler: minutes an ensemble",
    "eac": "a threshold, no number of clusters",
    "greedy-anmi": "minutes an ensemble",
    "supra": "the best of others, by ANMI",
    "pcc kl": "all pairs of 2,000 objects, one by one: 16 to 38 seconds an ensemble",
}
ONCE = {
    *("bce", "ccc", "ccu", "hgpa", "ipc", "nmf", "spectral"),
    *("pcc paper, entropy", "pcc paper, information"),
    *("pcc least squares", "pcc least squares, rarity 1", "pcc moments", "pcc moments, rarity 1"),
    *("ensembleclustering hbgf", "pce lwea", "pce lwgp", "pce ecpcs_mc", "pce mdecbg"),
}
"""Contenders that take a quarter of a second or more, and variants, run on seed 0 of the reporting half."""

Solver = Callable[[np.ndarray, int, int], tuple[np.ndarray, float | None]]
"""Takes labels, number of clusters and seed; returns labels, and seconds if spent in another process."""


def contenders(peers: Path | None) -> dict[str, Solver]:
    """Return every contender by name."""

    def ours(labels: np.ndarray, n_clusters: int, seed: int, *, method: str, **parameters: Any) -> Any:
        model = METHODS[method](n_clusters, random_state=seed, client="serial", **parameters)
        return np.asarray(model.fit(Ensemble.from_labels(labels)).labels_), None

    def own(labels: np.ndarray, n_clusters: int, seed: int, *, solve: Callable[..., np.ndarray]) -> Any:
        return solve(labels, n_clusters, seed), None

    found: dict[str, Solver] = {
        name: partial(ours, method=name) for name in METHODS if name not in LEFT_OUT
    } | {name: partial(ours, method=method, **parameters) for name, (method, parameters) in VARIANTS.items()}
    found |= {name: partial(own, solve=solve) for name, solve in DO_IT_YOURSELF.items()}
    return found | (accuracy_peers.solvers(peers) if peers else {})


def rows_of(
    name: str, kind: str, seed: int, solvers: Mapping[str, Solver], ensembles: Path | None
) -> Iterator[dict[str, Any]]:
    """Yield a row for each contender on one ensemble."""
    labels, classes = kept_ensemble(name, kind, seed, ensembles)
    n_clusters = int(classes.max()) + 1
    seen = (labels >= 0).any(axis=1)
    for contender, solve in solvers.items():
        began = time.process_time()
        row = {"data": name, "kind": kind, "seed": seed, "contender": contender}
        try:
            found, elsewhere = solve(labels, n_clusters, seed)
        except Exception as error:  # a refusal counts as a result
            yield row | {"ari": 0.0, "nmi": 0.0, "refused": f"{type(error).__name__}: {error}"[:200]}
            continue
        seconds = elsewhere or time.process_time() - began
        yield row | {
            "ari": round(float(adjusted_rand(classes[seen], found[seen])), 4),
            "nmi": round(float(nmi(classes[seen], found[seen])), 4),
            "clusters": int(np.unique(found[seen]).size),
            "seconds": round(seconds, 3),
        }


def order(data: list[str], seeds: int) -> Iterator[tuple[int, str]]:
    """Yield seeds and data sets, what matters most first."""
    for first, halves in ((0, (REPORTING, CHOOSING)), (1, (REPORTING, CHOOSING))):
        for half in halves:
            for seed in range(first, seeds if first else min(seeds, 1)):
                yield from ((seed, name) for name in data if name in half)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--smallest", action="store_true", help="one small data set, to see that it runs")
    parser.add_argument("--data", nargs="+", help="data sets, by default all that are at hand")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS, metavar="KIND")
    parser.add_argument("--seeds", type=int, default=5, help="0 to SEEDS - 1")
    parser.add_argument("--contenders", nargs="+", help="by default all")
    parser.add_argument("--again", nargs="+", default=[], help="contenders whose rows in --out are replaced")
    parser.add_argument("--ensembles", type=Path, help="folder that keeps the ensembles")
    parser.add_argument("--peers", type=Path, help="folder of the peers' environments")
    parser.add_argument("--out", type=Path, help="JSON lines, one a solve; results/accuracy.jsonl")
    arguments = parser.parse_args()
    out = arguments.out or Path(__file__).parent / "results" / "accuracy.jsonl"
    data = arguments.data or [*PLANTED, *(REAL if os.environ.get("BIGCONS_DATA") else ["iris", "digits"])]
    solvers = contenders(arguments.peers)
    names, kinds, seeds = arguments.contenders or list(solvers), arguments.kinds, arguments.seeds
    if arguments.smallest:
        out, data, kinds, seeds, names = None, ["iris"], ["halves-10"], 1, ["pcc", "hbgf", "one-hot k-means"]
    warnings.simplefilter("ignore")
    rows = read_rows(out) if out else []
    if out and arguments.again:
        rows = [row for row in rows if row["contender"] not in arguments.again]
        out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = {(row["data"], row["kind"], row["seed"], row["contender"]) for row in rows}
    for seed, name in order(data, seeds):
        for kind in kinds:
            todo = {
                contender: solvers[contender]
                for contender in names
                if (name, kind, seed, contender) not in done
                and (contender not in ONCE or (seed == 0 and name in REPORTING))
            }
            for row in rows_of(name, kind, seed, todo, arguments.ensembles) if todo else ():
                rows.append(row)
                if out:
                    with out.open("a") as file:
                        file.write(json.dumps(row) + "\n")
    show(report(rows, {"choosing": CHOOSING, "reporting": REPORTING}))


if __name__ == "__main__":
    main()
