"""Are experiments of the papers reproduced on public data? Three that no other benchmark repeats.

``uci`` (Lourenço et al. 2015): the accuracy H of PCC, evidence accumulation, CSPA, HBGF, MM and QMI on
ensembles of k-means that split data into micro-blocks (1) and of many algorithms (2). The paper's parameters
are lost; in it, EAC and CSPA lead on ensemble 1, and PCC-KL is best on 7 of 9 data sets on ensemble 2.

``did`` (Aidos and Fred): dissimilarity increments against evidence accumulation by the consistency index, and
where G-DID ranks the best of their partitions. In the paper, increments are best on 8 of 12 data sets and
evidence on 1; the best partition is ranked first on 5 and among the first three on 11. Which data sets these
are is not known.

``voting`` (Nguyen and Caruana 2007, experiment 1): wins of IVC and IPVC, which IPC equals on complete
ensembles, against eleven others by five criteria on data sets times two generators; in the paper 37 of 40
(without compactness, for which it has none). Two of its four data sets are public; another replaces the
third, none the fourth. It does not say which of 100 restarts it reports, so wins are counted in four ways
(`READINGS`). HGPA is its Laplacian here; CSPA and MCLA are cut by METIS if it is installed.

Features are standardized. They are read from the folder that BIGCONS_DATA names; ``--smallest`` needs none.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bigcons import METHODS, Ensemble
from bigcons.coassociation.increments import did_ranking
from bigcons.datasets import ce_2d2k, ce_8d5k
from bigcons.errors import ConvergenceWarning
from bigcons.generate import diverse, kmeans, weighted_kmeans
from bigcons.metrics import consistency_index, matching_accuracy, purity
from bigcons.metrics.clusterings import OF_TWO_CLUSTERINGS
from bigcons.metrics.ensemble import average_of_tables, partition_tables
from bigcons.seeding import generator


class Points(NamedTuple):
    """Standardized features (n_objects, n_features), and the classes (n_objects,)."""

    features: np.ndarray
    classes: np.ndarray


def points(features: Any, classes: Any) -> Points:
    """Standardize features; columns that do not vary are dropped."""
    features = np.asarray(features, dtype=float)
    features = features[:, np.ptp(features, axis=0) > 0]
    return Points((features - features.mean(axis=0)) / features.std(axis=0), np.asarray(classes))


def rings() -> Points:
    """Return three concentric rings of 50, 150 and 250 points."""
    draw = generator(0, "papers.rings")
    classes = np.repeat(np.arange(3), (50, 150, 250))
    angle, radius = (
        draw.uniform(0, 2 * np.pi, classes.size),
        classes + 0.4 + draw.normal(0, 0.08, classes.size),
    )
    return points(np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), classes)


def moons() -> Points:
    from sklearn.datasets import make_moons

    return points(*make_moons(400, noise=0.08, random_state=0))


def from_sklearn(name: str) -> Points:
    from sklearn import datasets

    return points(*getattr(datasets, f"load_{name}")(return_X_y=True))


VOTES = {"y": 1.0, "?": 0.5, "n": 0.0}


def from_file(name: str, label: int = -1, skip: int = 0, named: bool = False) -> Points:
    """Return a data set from a table; ``named`` if its first column is not a feature."""
    path = Path(os.environ["BIGCONS_DATA"]) / name
    with gzip.open(path, "rt") as file:
        lines = [line.strip() for line in list(file)[skip:]]
    rows = [line.split("," if "," in line else None) for line in lines if line]
    classes = [row.pop(label) for row in rows]
    return points([[VOTES.get(v) or float(VOTES.get(v, v)) for v in row[named:]] for row in rows], classes)


def some(whole: Points, n_objects: int | None = None, classes: Sequence[str] | None = None) -> Points:
    """Return a random sample of the objects of some classes."""
    rows = np.flatnonzero(np.isin(whole.classes, classes)) if classes else np.arange(len(whole.classes))
    if n_objects:
        rows = np.sort(generator(0, "papers.sample").choice(rows, n_objects, replace=False))
    return points(whole.features[rows], whole.classes[rows])


DATA: dict[str, Callable[[], Points]] = {
    "rings": rings,
    "moons": moons,
    "2d2k": lambda: points(*ce_2d2k()),
    "8d5k": lambda: points(*ce_8d5k()),
    "iris": lambda: from_sklearn("iris"),
    "wine": lambda: from_sklearn("wine"),
    "wdbc": lambda: from_sklearn("breast_cancer"),
    "glass": lambda: from_file("glass/glass.data.gz", named=True),
    "house-votes": lambda: from_file("house-votes-84/house-votes-84.data.gz", label=0),
    "ionosphere": lambda: from_file("ionosphere/ionosphere.data.gz"),
    "yeast": lambda: some(from_file("yeast/yeast.data.gz", named=True), 500),
    "segmentation": lambda: from_file("segmentation/segmentation.data.gz", label=0, skip=5),
    "optdigits-389": lambda: some(from_file("optdigits/optdigits.tes.gz"), classes=["3", "8", "9"]),
    "covertype": lambda: some(from_file("covertype_sample/covertype_ramp_test.csv.gz", skip=1), 1000),
    "letters": lambda: some(from_file("isolet/isolet.csv.gz"), 514, [str(i) for i in range(1, 8)]),
    "pendigits": lambda: some(from_file("pendigits/pendigits.tra.gz"), 245),
}

load = cache(lambda name: DATA[name]())

PARTS = ("uci", "did", "voting")

Named = Mapping[str, tuple[str, dict[str, Any]]]


def labels_of(method: str, K: int, ensemble: Ensemble, seed: int = 0, **parameters: Any) -> Any:
    """Return the labels and objective of a method."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = METHODS[method](K, random_state=seed, **parameters).fit(ensemble)
    return model.labels_, model.objective_


UCI_DATA = [
    *("rings", "iris", "wine", "house-votes", "ionosphere", "yeast", "wdbc"),
    *("optdigits-389", "segmentation"),
]

UCI_METHODS: Named = {
    "PCC-l2": ("pcc", {}),
    "PCC-KL": ("pcc", {"divergence": "kl"}),
    "EAC-SL": ("eac-single", {}),
    "EAC-AL": ("eac-average", {}),
    "CSPA": ("cspa", {"partitioner": "metis"}),
    "CSPA spectral": ("cspa", {}),
    "HBGF": ("hbgf", {"partitioner": "metis"}),
    "HBGF spectral": ("hbgf", {}),
    "MM": ("mixture", {"background": False}),
    "QMI": ("qmi", {}),
}

KINDS: dict[str, Callable[..., Ensemble]] = {
    "1": lambda X, seed: kmeans(X, n_partitions=100, n_clusters="split", sample=1.0, random_state=seed),
    "2": lambda X, seed: diverse(X, n_clusters=(2, 10), random_state=seed),
}


def uci(names: Sequence[str], n_runs: int) -> dict[str, Any]:
    """Return the mean, spread and extremes of H over ensembles of several seeds, and the best methods."""
    rows: list[dict[str, Any]] = []
    for name in names:
        X, y = load(name)
        for kind, make in KINDS.items():
            ensembles = [make(X, seed) for seed in range(n_runs)]
            H = {
                method: [
                    matching_accuracy(y, labels_of(how, len(np.unique(y)), ensemble, seed, **parameters)[0])
                    for seed, ensemble in enumerate(ensembles)
                ]
                for method, (how, parameters) in available(UCI_METHODS).items()
            }
            means = {method: round(float(np.mean(values)), 4) for method, values in H.items()}
            spread = {
                method: [round(float(f(values)), 4) for f in (np.std, np.max, np.min)]
                for method, values in H.items()
            }
            row = {
                "data": name,
                "ensemble": kind,
                "H": means,
                "sd_max_min": spread,
                "best": winners(means, +1),
            }
            rows.append(row)
            print(f"{name:14}{kind}  " + "  ".join(f"{m} {v:.3f}" for m, v in means.items()), flush=True)
    best = {kind: counted(row["best"] for row in rows if row["ensemble"] == kind) for kind in KINDS}
    print("best:", best, flush=True)
    return {"n_runs": n_runs, "rows": rows, "best_on": best}


def available(methods: Named) -> Named:
    """Return the methods without those that need METIS if it is not installed."""
    from importlib.util import find_spec

    metis = find_spec("pymetis") is not None
    return {name: how for name, how in methods.items() if metis or how[1].get("partitioner") != "metis"}


def winners(values: Mapping[str, float], sign: int) -> list[str]:
    """Return the names with the largest value, or the smallest if ``sign`` is -1."""
    best = max(sign * value for value in values.values())
    return [name for name, value in values.items() if sign * value >= best - 1e-9]


def counted(wins: Any) -> dict[str, int]:
    """Return how often each name is among the winners."""
    names = [name for best in wins for name in best]
    return {name: names.count(name) for name in sorted(set(names), key=lambda name: -names.count(name))}


DID_DATA = ["moons", "2d2k", "8d5k", "glass", *(name for name in UCI_DATA if name != "yeast")]


def did(names: Sequence[str], n_partitions: int) -> dict[str, Any]:
    """Return the consistency index of increments and of evidence, and G-DID's rank of the best partition."""
    rows: list[dict[str, Any]] = []
    for name in names:
        X, y = load(name)
        K = len(np.unique(y))
        ensemble = kmeans(X, n_partitions=n_partitions, n_clusters="split", sample=1.0, random_state=0)
        found = {}
        for short, linkage in (("SL", "single"), ("AL", "average")):
            found[f"EAC-{short}"] = labels_of(f"eac-{linkage}", K, ensemble)[0]
            for symmetrize in ("mean", "max"):
                parameters = {"features": X, "linkage": linkage, "symmetrize": symmetrize}
                found[f"DID-{symmetrize}-{short}"] = labels_of("did", K, ensemble, **parameters)[0]
        CI = {method: round(100 * consistency_index(y, labels), 2) for method, labels in found.items()}
        best = winners(CI, +1)
        candidates = Ensemble.from_labels(np.column_stack(list(found.values())))
        order = [list(found)[u] for u in did_ranking(X, candidates)[0]]
        rank = 1 + min(order.index(method) for method in best)
        rows.append({"data": name, "CI": CI, "best": best, "order_by_gdid": order, "rank_of_best": rank})
        print(f"{name:14}rank {rank}  " + "  ".join(f"{m} {v:.1f}" for m, v in CI.items()), flush=True)
    sides = [{method.split("-")[0] for method in row["best"]} for row in rows]
    ranks = [row["rank_of_best"] for row in rows]
    summary = {
        "best_is_DID_alone": sum(side == {"DID"} for side in sides),
        "best_is_EAC_alone": sum(side == {"EAC"} for side in sides),
        "tied": sum(len(side) == 2 for side in sides),
        "gdid_first": sum(rank == 1 for rank in ranks),
        "gdid_in_three": sum(rank <= 3 for rank in ranks),
        "n_data_sets": len(rows),
    }
    print(summary, flush=True)
    return {"n_partitions": n_partitions, "rows": rows, "summary": summary}


OURS = ("IVC", "IPVC")

VOTING_DATA = {"pendigits": 10, "covertype": 15, "letters": 10}
"""Clusters of the base clusterings and of the consensus; pendigits, of similar shape, replaces Australia."""

VOTING_METHODS: Named = {
    "IVC": ("ivc", {}),
    "IPVC": ("ipvc", {}),
    "HAC": ("eac-average", {}),
    "QMI": ("qmi", {}),
    "CCSVD": ("ccsvd", {}),
    "BEST": ("best", {}),
    "FC": ("furthest", {}),
    "CSPA": ("cspa", {"partitioner": "metis"}),
    "HGPA": ("hgpa", {"objective": "laplacian"}),
    "MCLA": ("mcla", {"partitioner": "metis"}),
    "EM": ("mixture", {"background": False}),
    "CCC": ("ccc", {}),
    "CCU": ("ccu", {}),
}

# Methods whose starts are evaluated one by one; other methods with starts keep their best.
STARTED = ("IVC", "IPVC", "QMI", "EM")

GENERATORS: dict[str, Callable[..., Ensemble]] = {
    "restarts": lambda X, K, M: kmeans(X, n_partitions=M, n_clusters=K, sample=1.0, random_state=0),
    "zipf": lambda X, K, M: weighted_kmeans(X, n_partitions=M, n_clusters=K, random_state=0),
}

CRITERIA = {
    "variation_of_information": -1,
    "van_dongen": -1,
    "rand_index": +1,
    "nmi": +1,
    "purity": +1,
}
"""+1 if higher is better. The Rand distance of the paper is 1 - rand_index; its accuracy is purity."""

READINGS = ("objective", "nmi", "criterion", "mean")
"""The start that represents a method: the one with the best objective, with the highest mean NMI with the
ensemble, the best by each criterion, or the mean over all."""


def judge(ensemble: Ensemble, labels: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the values of the criteria (5,)."""
    tables, _ = partition_tables(ensemble, labels)
    consensus = [average_of_tables(OF_TWO_CLUSTERINGS[c], tables, weighted=False) for c in list(CRITERIA)[:4]]
    return np.array([*consensus, purity(y, labels)])


def reported(values: np.ndarray, objectives: Sequence[float], sign: int) -> dict[str, np.ndarray]:
    """Return the criteria that each reading reports, given those of single starts (n_starts, 5).

    ``sign`` is +1 if a higher objective is better.
    """
    signs = np.array(list(CRITERIA.values()))
    return {
        "objective": values[np.argmax(sign * np.asarray(objectives))],
        "nmi": values[np.argmax(values[:, list(CRITERIA).index("nmi")])],
        "criterion": (signs * values).max(axis=0) * signs,
        "mean": values.mean(axis=0),
    }


def voting_costs(labels: np.ndarray, consensus: np.ndarray) -> dict[str, float]:
    """Return the objectives of IVC and IPVC for any consensus, by plain counting.

    IVC: labels that differ from the majority of their cluster. IPVC: summed mean distances to the cluster.
    """
    costs = {"IVC": 0.0, "IPVC": 0.0}
    for cluster in np.unique(consensus):
        members = labels[consensus == cluster]
        for column in members.T:
            counts = np.bincount(column)
            costs["IVC"] += len(members) - int(counts.max())
            costs["IPVC"] += len(members) - float((counts**2).sum()) / len(members)
    return costs


def voting(data: Mapping[str, int], n_partitions: int, n_starts: int) -> dict[str, Any]:
    """Return the criteria of every method on every ensemble, and the wins by each reading."""
    rows = [
        voting_row(name, K, made, n_partitions, n_starts) for name, K in data.items() for made in GENERATORS
    ]
    return {"n_partitions": n_partitions, "n_starts": n_starts, **count_wins(rows), "rows": rows}


def count_wins(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the wins of every method, and of IVC and IPVC together, by reading."""
    wins = {
        reading: counted(row["wins"][reading][c] for row in rows for c in CRITERIA) for reading in READINGS
    }
    ours = {
        reading: sum(not set(OURS).isdisjoint(row["wins"][reading][c]) for row in rows for c in CRITERIA)
        for reading in READINGS
    }
    print(f"wins of {OURS} of {len(CRITERIA) * len(rows)}:", ours, flush=True)
    return {"wins": wins, "wins_of_ours": ours, "of": len(CRITERIA) * len(rows)}


def voting_row(name: str, K: int, made: str, n_partitions: int, n_starts: int) -> dict[str, Any]:
    X, y = load(name)
    ensemble = GENERATORS[made](X, K, n_partitions)
    labels = ensemble.read(0, ensemble.n_objects)
    values: dict[str, dict[str, np.ndarray]] = {}
    costs: dict[str, dict[str, float]] = {}
    for method, (how, parameters) in available(VOTING_METHODS).items():
        if method in STARTED:
            single = [labels_of(how, K, ensemble, s, n_init=1, **parameters) for s in range(n_starts)]
        else:
            single = [labels_of(how, K, ensemble, **parameters)]
        lower = method in ("IVC", "IPVC")
        objectives = [objective for _, objective in single]
        judged = np.array([judge(ensemble, found, y) for found, _ in single])
        values[method] = reported(judged, objectives, -1 if lower else +1)
        best = np.argmin(objectives) if lower else np.argmax(objectives)
        costs[method] = voting_costs(labels, single[best][0])
    wins = {
        reading: {
            c: winners({m: v[reading][i] for m, v in values.items()}, sign)
            for i, (c, sign) in enumerate(CRITERIA.items())
        }
        for reading in READINGS
    }
    print(f"{name:11}{made:10}" + "  ".join("=".join(w) for w in wins["objective"].values()), flush=True)
    return {
        "data": name,
        "generator": made,
        "K": K,
        "values": {m: {r: [round(float(x), 5) for x in v[r]] for r in READINGS} for m, v in values.items()},
        "voting_costs": {m: {which: round(c, 1) for which, c in found.items()} for m, found in costs.items()},
        "wins": wins,
    }


def main() -> None:
    from machine import describe  # the other benchmarks, also when the tests import this one

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smallest", action="store_true", help="seconds, to see that it runs")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--runs", type=int, default=2, help="ensembles of uci, each of another seed")
    parser.add_argument("--starts", type=int, default=100, help="of IVC, IPVC, QMI and EM in voting")
    parser.add_argument("-o", "--out", type=Path, help="write the results there as JSON")
    arguments = parser.parse_args()
    if not arguments.smallest and "BIGCONS_DATA" not in os.environ:
        parser.error("BIGCONS_DATA names no folder of data; set it, or run --smallest.")
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "uci": lambda: uci(UCI_DATA, arguments.runs),
        "did": lambda: did(DID_DATA, 100),
        "voting": lambda: voting(VOTING_DATA, 200, arguments.starts),
    }
    if arguments.smallest:
        parts = {
            "uci": lambda: uci(["iris"], 1),
            "did": lambda: did(["iris"], 10),
            "voting": lambda: voting({"iris": 4}, 10, 2),
        }
    out = arguments.out or (None if arguments.smallest else Path(__file__).parent / "results" / "papers.json")
    results: dict[str, Any] = json.loads(out.read_text()) if out and out.exists() else {}
    for part in arguments.parts:
        began = time.process_time()
        found = parts[part]()
        results[part] = {**found, "cpu_seconds": round(time.process_time() - began, 1), "machine": describe()}
    if out:
        out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
