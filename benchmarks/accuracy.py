"""How accurate is each consensus on ordinary data? Methods, variants and do-it-yourself code compared.

Every contender is given the labels and the true number of classes, nothing else, and the rows in random
order: files are often sorted by class, and some published methods gain from that. Those named "auto", and
"same in every run", are not given the number; they run on networks only. `accuracy_report.py` makes tables
and a picture of the rows. Seconds are of processor time, on one thread.

What is clustered is divided once and for all: defaults, thresholds and constants are chosen on the groups for
choosing, and results are claimed on the others.

===============  ========================================================================================
choosing         13 data sets, planted and real, each in the nine kinds of ensembles below
reporting        14 other ones
pools-choosing   Aggregation, Ecoli, LS, PD, Semeion and VS: 100 base clusterings each, published with papers
                 on locally weighted ensembles, of which 20 are drawn at random for each seed
pools-reporting  Caltech20, GLIOMA, MF, SPF and Texture; the pools took turns in the order of their names
networks         three networks with planted communities, others for each seed, in 20 runs of a community
                 detection at different resolutions (`accuracy_networks.py`); for reporting
large-networks   the same of 10,000 nodes, run only if asked for
===============  ========================================================================================

Kinds of ensembles (60 partitions):

===================  ====================================================================================
halves-10, -20       k-means of random halves of the objects, 2 to 10 or 2 to 20 clusters
all-20               k-means of all objects, 2 to 20 clusters
sqrt                 k-means of all objects, sqrt(n) / 2 to sqrt(n) clusters: evidence accumulation
projections          k-means of random projections to about sqrt(d) dimensions, 2 to 20 clusters
views                k-means of random halves of the features, 2 to 20 clusters
mixed                k-means, Gaussian mixtures, and linkage (average, Ward) of subsamples
sparse               halves-20 with labels deleted until four in five are missing
useless              halves-20 with a quarter of the partitions random
===================  ====================================================================================

Results are appended to ``--out`` as they come, seed 0 of all first, and an interrupted run resumes. Beside
it, ``NAME.labels.jsonl`` keeps the labels that each contender found, in the order of the data set, a
character an object: "0" is cluster 0, the next characters of Unicode are the next clusters, and "/" is an
object that no partition labels. So `accuracy_report.py --rescore` scores anew by any other measure.

``--ensembles`` keeps the ensembles, which take longer to make than most contenders take to solve them.
``--peers`` names the folder of the environments that ``accuracy_peers.py install`` makes; without it only
bigcons and the do-it-yourself code run. Features and pools come from the folder that BIGCONS_DATA names;
without it there are the planted sets, iris, digits and networks. A variant that its method refuses is named
and left out. Contenders in `SLOW` run on seed 0 only, unless they are asked for by name.
`accuracy_noise.py` measures what shortfall chance alone gives.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import accuracy_peers
import numpy as np
from accuracy_networks import detections, network
from accuracy_report import labels_beside, read_rows, report, show
from real_data import from_file, from_sklearn

from bigcons import METHODS, Ensemble
from bigcons.datasets import KDD_FILE, planted_ensemble
from bigcons.errors import InvalidInputError
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

    arrays = loadmat(Path(os.environ["BIGCONS_DATA"]) / path)
    counts, truth = arrays[words].tocsr(), arrays[classes].ravel()
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

POOLS = ("Aggregation", "Caltech20", "Ecoli", "GLIOMA", "LS", "MF", "PD", "SPF", "Semeion", "Texture", "VS")
POOL_SIZE = 20

NETWORKS = {f"network-{mixing}": (2000, mixing) for mixing in (0.1, 0.3, 0.5)} | {
    f"large-network-{mixing}": (10_000, mixing) for mixing in (0.1, 0.3, 0.5)
}
"""Number of nodes, and share of links that leave a community."""

REPORTING = [
    *("blobs-12", "blobs-50", "blobs-one-of-80", "blobs-unequal"),
    *("breast-cancer", "classic3", "covertype", "digits", "glass", "house-votes"),
    *("iris", "isolet", "magic04", "pima"),
]
CHOOSING = [name for name in (*PLANTED, *REAL) if name not in REPORTING]

GROUPS: dict[str, list[str]] = {
    "reporting": REPORTING,
    "pools-reporting": list(POOLS[1::2]),
    "networks": list(NETWORKS)[:3],
    "choosing": CHOOSING,
    "pools-choosing": list(POOLS[::2]),
    "large-networks": list(NETWORKS)[3:],
}
"""Data sets by group; the last one is run only if asked for."""

VIEWS = GROUPS | {"reporting without planted": [name for name in REPORTING if name not in PLANTED]}
"""The groups that have tables."""


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

    kind, k, seed = draw.integers(4), int(draw.integers(2, 21)), int(draw.integers(2**31))
    labels = np.full(len(x), -1)
    if kind == 0:
        return kmeans_labels(x, 2, 20, draw)
    rows = np.sort(draw.choice(len(x), min(len(x), 1000 if kind == 1 else 500), replace=False))
    k = min(k, len(rows) // 2)
    if kind == 1:
        model: Any = GaussianMixture(k, covariance_type="diag", n_init=1, random_state=seed, reg_covar=1e-3)
    else:
        model = AgglomerativeClustering(k, linkage="average" if kind == 2 else "ward")
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
            is_labeled = labels[:, u] >= 0
            labels[is_labeled, u] = draw.integers(int(draw.integers(2, 21)), size=int(is_labeled.sum()))
    return labels


def pool(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels (n, 100) and the classes (n,) of a pool of base clusterings."""
    from scipy.io import loadmat

    arrays = loadmat(Path(os.environ["BIGCONS_DATA"]) / "pools" / f"{name}.mat")
    return arrays["members"].astype(np.int16) - 1, np.unique(arrays["gt"], return_inverse=True)[1].ravel()


def classes_of(name: str, seed: int) -> np.ndarray:
    """Return the classes (n,) of a data set, a pool, or the network of a seed."""
    if name in POOLS:
        return pool(name)[1]
    return network(*NETWORKS[name], seed)[1] if name in NETWORKS else load(name)[1]


def made(name: str, kind: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return labels and classes of an ensemble."""
    if name in POOLS:
        labels, classes = pool(name)
        drawn = generator(seed, f"accuracy.pool.{name}").choice(labels.shape[1], POOL_SIZE, replace=False)
        return labels[:, drawn], classes
    if name in NETWORKS:
        graph, classes = network(*NETWORKS[name], seed)
        return detections(graph, seed).astype(np.int16), classes
    x, classes = load(name)
    return ensemble_of(kind, x, seed), classes


def kept_ensemble(name: str, kind: str, seed: int, folder: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Return labels and classes of an ensemble, read from ``folder`` if they were made before."""
    path = folder / f"{name}.{kind}.{seed}.npz" if folder else None
    if path and path.exists():
        with np.load(path) as arrays:
            return arrays["labels"], arrays["classes"]
    labels, classes = made(name, kind, seed)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part.npz")
        np.savez_compressed(unfinished, labels=labels, classes=classes)
        unfinished.rename(path)
    return labels, classes


KINDS = ("halves-10", "halves-20", "all-20", "sqrt", "projections", "views", "mixed", "sparse", "useless")


def data_at_hand() -> set[str]:
    """Return the data sets that are made, come with scikit-learn, or are in the folder of BIGCONS_DATA."""
    return {
        *PLANTED,
        *NETWORKS,
        "iris",
        "digits",
        *([*REAL, *POOLS] if os.environ.get("BIGCONS_DATA") else ()),
    }


def kinds_of(name: str) -> tuple[str, ...]:
    """Return the kinds of ensembles of a data set, of which pools and networks have one."""
    return ("pool",) if name in POOLS else ("louvain",) if name in NETWORKS else KINDS


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
    is_labeled = (labels >= 0).astype(np.float32)
    similarity = np.asarray((h @ h.T).todense()) / np.maximum(is_labeled @ is_labeled.T, 1)
    model = SpectralClustering(n_clusters, affinity="precomputed", random_state=seed)
    return model.fit_predict(similarity)


def coassociation(labels: np.ndarray, weights: Any = 1.0) -> np.ndarray:
    """Return the co-association (n, n), base clusters weighed, of the partitions that label both objects."""
    h, is_labeled = one_hot(labels).toarray().astype(np.float32), (labels >= 0).astype(np.float32)
    return (h * np.float32(weights)) @ h.T / np.maximum(is_labeled @ is_labeled.T, 1)


def average_link(similarity: np.ndarray, n_clusters: int) -> np.ndarray:
    """Return the clusters of average linkage by a matrix of similarities."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    tree = linkage(squareform(1 - similarity, checks=False), "average")
    return fcluster(tree, n_clusters, "maxclust")


def eac(labels: np.ndarray, n_clusters: int, _seed: int) -> np.ndarray:
    """Fifteen lines of SciPy: average linkage of the co-association (Fred and Jain, 2005)."""
    return average_link(coassociation(labels), n_clusters)


def lwea(labels: np.ndarray, n_clusters: int, _seed: int) -> np.ndarray:
    """Twenty lines: the same, base clusters weighed by their entropy (Huang, Wang and Lai, 2018)."""
    h = one_hot(labels)
    owner = np.repeat(np.arange(labels.shape[1]), labels.max(axis=0) + 1)
    overlaps = (h.T @ h).toarray()
    totals = np.column_stack([overlaps[:, owner == u].sum(axis=1) for u in range(labels.shape[1])])[:, owner]
    shares = overlaps / np.maximum(totals, 1)
    entropy = -(shares * np.log2(np.where(shares > 0, shares, 1))).sum(axis=1)
    return average_link(coassociation(labels, np.exp(-entropy / (0.4 * labels.shape[1]))), n_clusters)


def same_in_every_run(labels: np.ndarray, _n_clusters: int, _seed: int) -> np.ndarray:
    """One line: objects with the same label in every partition."""
    return np.unique(labels, axis=0, return_inverse=True)[1].ravel()


DO_IT_YOURSELF = {
    "one-hot k-means": one_hot_kmeans,
    "scaled SVD": svd_kmeans,
    "spectral": spectral,
    "EAC by SciPy": eac,
    "LWEA in NumPy": lwea,
    "same in every run": same_in_every_run,
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "tree auto": ("tree", {"n_clusters": "auto"}),
    "pcc auto": ("pcc", {"n_clusters": "auto"}),
    "pcc entropy": ("pcc", {"weights": "entropy"}),
    "pcc of 8 starts": ("pcc", {"n_init": 8}),
    "eac-average local": ("eac-average", {"weights": "local"}),
    "hbgf local": ("hbgf", {"weights": "local"}),
    "cspa local": ("cspa", {"weights": "local"}),
}
LEFT_OUT = {
    "did": "needs features",
    "bce-gibbs": "a sampler: minutes an ensemble",
    "eac": "a threshold, no number of clusters",
    "greedy-anmi": "minutes an ensemble",
    "supra": "the best of others, by ANMI",
    "pcc kl": "all pairs of 2,000 objects, one by one: 16 to 38 seconds an ensemble",
}
NUMBER_UNKNOWN = {"tree auto", "pcc auto", "same in every run"}
"""Contenders that are not given the number of classes: for networks."""

SLOW = {
    *("bce", "ccc", "ccu", "hgpa", "ipc", "spectral", "pcc entropy", "pcc of 8 starts"),
    *("ensembleclustering hbgf", "pce lwea", "pce lwgp", "pce ecpcs_mc", "pce mdecbg"),
}
"""Contenders that take a quarter of a second or more, and a variant."""

Solver = Callable[[np.ndarray, int, int], tuple[np.ndarray, float | None]]
"""Takes labels, number of clusters and seed; returns labels, and seconds if spent in another process."""


def refusal(method: str, parameters: dict[str, Any]) -> str | None:
    """Return why a method does not take parameters, asked with a small ensemble, or None."""
    if method not in METHODS:
        return f"there is no method {method!r}"
    small, _ = planted_ensemble(200, 10, missing=0.0, random_state=0)
    try:
        METHODS[method](**{"n_clusters": 6, "client": "serial"} | parameters).fit(small)
    except (InvalidInputError, TypeError) as error:
        return str(error)
    return None


def contenders(peers: Path | None) -> dict[str, Solver]:
    """Return every contender by name."""

    def ours(labels: np.ndarray, n_clusters: int, seed: int, *, method: str, **parameters: Any) -> Any:
        chosen = {"n_clusters": n_clusters, "random_state": seed, "client": "serial"} | parameters
        model = METHODS[method](**chosen)
        return np.asarray(model.fit(Ensemble.from_labels(labels)).labels_), None

    def own(labels: np.ndarray, n_clusters: int, seed: int, *, solve: Callable[..., np.ndarray]) -> Any:
        return solve(labels, n_clusters, seed), None

    solvers: dict[str, Solver] = {
        name: partial(ours, method=name) for name in METHODS if name not in LEFT_OUT
    } | {name: partial(ours, method=method, **parameters) for name, (method, parameters) in VARIANTS.items()}
    solvers |= {name: partial(own, solve=solve) for name, solve in DO_IT_YOURSELF.items()}
    return solvers | (accuracy_peers.solvers(peers) if peers else {})


def taking_part(solvers: Mapping[str, Solver], names: Iterable[str] | None) -> dict[str, Solver]:
    """Return the contenders asked for, or all; those that their method refuses are named and left out."""
    accepted = {}
    for name in names or solvers:
        reason = refusal(*VARIANTS[name]) if name in VARIANTS else None
        if name not in solvers:
            reason = "there is no such contender"
        if reason:
            print(f"{name} left out: {reason}")
        else:
            accepted[name] = solvers[name]
    return accepted


def as_text(labels: np.ndarray) -> str:
    """Return labels as characters, clusters numbered as they first appear; "/" for negative ones."""
    is_labeled = labels >= 0
    _, first, clusters = np.unique(labels[is_labeled], return_index=True, return_inverse=True)
    numbers = np.full(labels.size, -1)
    numbers[is_labeled] = np.argsort(np.argsort(first))[clusters]
    return "".join(map(chr, numbers + ord("0")))


def as_labels(text: str) -> np.ndarray:
    """Return the labels (n,) of a text made by `as_text`, -1 for "/"."""
    return np.array([ord(character) for character in text]) - ord("0")


def rows_of(
    name: str, kind: str, seed: int, solvers: Mapping[str, Solver], ensembles: Path | None
) -> Iterator[tuple[dict[str, Any], str | None]]:
    """Yield a row for each contender on one ensemble, and the labels found, as text."""
    labels, classes = kept_ensemble(name, kind, seed, ensembles)
    n_clusters = int(classes.max()) + 1
    is_labeled = (labels >= 0).any(axis=1)
    order = generator(seed, f"accuracy.order.{name}.{kind}").permutation(len(labels))
    shuffled, clusters = labels[order], np.empty(len(labels), int)
    for contender, solve in solvers.items():
        began = time.process_time()
        row = {"data": name, "kind": kind, "seed": seed, "contender": contender, "classes": n_clusters}
        try:
            clusters[order], elsewhere = solve(shuffled, n_clusters, seed)
        except Exception as error:  # a refusal counts as a result
            yield row | {"ari": 0.0, "nmi": 0.0, "refused": f"{type(error).__name__}: {error}"[:200]}, None
            continue
        seconds = elsewhere or time.process_time() - began
        clusters[~is_labeled] = -1
        row |= {
            "ari": round(float(adjusted_rand(classes[is_labeled], clusters[is_labeled])), 4),
            "nmi": round(float(nmi(classes[is_labeled], clusters[is_labeled])), 4),
            "clusters": int(np.unique(clusters[is_labeled]).size),
            "seconds": round(seconds, 3),
        }
        yield row, as_text(clusters)


KEY = ("data", "kind", "seed", "contender")


def append(path: Path, row: dict[str, Any]) -> None:
    """Append a row to a file of JSON lines."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")


def without(path: Path, contenders: Iterable[str]) -> list[dict[str, Any]]:
    """Remove the rows of some contenders from a file of JSON lines; return the others."""
    rows = [row for row in read_rows(path) if row["contender"] not in contenders]
    if path.exists():
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--smallest", action="store_true", help="an ensemble of each group, to see that it runs"
    )
    parser.add_argument("--groups", nargs="+", default=list(GROUPS)[:-1], choices=list(GROUPS))
    parser.add_argument("--data", nargs="+", help="data sets, by default all of the groups that are at hand")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS, metavar="KIND")
    parser.add_argument("--seeds", type=int, default=5, help="0 to SEEDS - 1")
    parser.add_argument("--contenders", nargs="+", help="by default all")
    parser.add_argument("--again", nargs="+", default=[], help="contenders whose rows in --out are replaced")
    parser.add_argument("--ensembles", type=Path, help="folder that keeps the ensembles")
    parser.add_argument("--peers", type=Path, help="folder of the peers' environments")
    parser.add_argument("--out", type=Path, help="JSON lines, one a solve; results/accuracy.jsonl")
    arguments = parser.parse_args()
    out = arguments.out or Path(__file__).parent / "results" / "accuracy.jsonl"
    at_hand = data_at_hand()
    data = arguments.data or [name for group in arguments.groups for name in GROUPS[group] if name in at_hand]
    kinds, seeds, names = (*arguments.kinds, "pool", "louvain"), arguments.seeds, arguments.contenders
    if arguments.smallest:
        out, kinds, seeds = None, ("halves-10", "pool", "louvain"), 1
        data = [name for name in ("blobs-5", "iris", "Ecoli", "GLIOMA", "network-0.1") if name in at_hand]
        names = ["tree", "hbgf", "eac-average local", "LWEA in NumPy", "same in every run"]
    warnings.simplefilter("ignore")
    solvers = taking_part(contenders(arguments.peers), names)
    rows: list[dict[str, Any]] = []
    if out:
        without(labels_beside(out), arguments.again)
        rows = without(out, arguments.again)
    done = {(row["data"], row["kind"], row["seed"], row["contender"]) for row in rows}
    for seed, name in ((seed, name) for seed in range(seeds) for name in data):
        for kind in kinds_of(name):
            todo = {
                contender: solve
                for contender, solve in solvers.items()
                if kind in kinds
                and (name, kind, seed, contender) not in done
                and (name in NETWORKS or contender not in NUMBER_UNKNOWN)
                and (seed == 0 or names or contender not in SLOW)
            }
            for row, labels in rows_of(name, kind, seed, todo, arguments.ensembles) if todo else ():
                rows.append(row)
                if out:
                    if labels is not None:
                        append(labels_beside(out), {what: row[what] for what in KEY} | {"labels": labels})
                    append(out, row)
    show(report(rows, VIEWS))


if __name__ == "__main__":
    main()
