"""Do the experiments of Consensus clusterings (Nguyen and Caruana 2007) come out the same?

``wins`` (experiment 1): the wins of IVC, IPVC and IPC, against eleven others, by six criteria on data sets
times two generators. In the paper they win 37 of 40 without compactness, where they win none of 8. Of its
four data sets two are public, another takes the place of the third, none of the fourth. IPC equals IPVC on
complete ensembles, so the two share their wins. The paper does not say which of 100 restarts it reports, so
wins are counted five ways (`READINGS`), nor whether features are standardized: ``wins`` has standardized
features, ``wins raw`` raw ones.

``iterations`` (experiment 2): the criteria of IVC and IPVC after each pass; in the paper they improve and it
stops within 40. ``clusterings`` (experiment 3): accuracy against compactness of 1,000 base clusterings and of
what the methods but MCLA make of them. Both draw pictures into ``results``.

Real data are read from the folder that BIGCONS_DATA names; ``--smallest`` needs none.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from real_data import Named, available, counted, fitted, load, run_parts, winners

from bigcons import Ensemble
from bigcons.errors import ConvergenceWarning
from bigcons.generate import kmeans, weighted_kmeans
from bigcons.metrics import average_criterion, compactness, purity
from bigcons.seeding import generator

warnings.simplefilter("ignore", ConvergenceWarning)

RESULTS = Path(__file__).parent / "results"

OURS = ("IVC", "IPVC")

DATA = {"pendigits": 10, "covertype": 15, "letters": 10}
"""Clusters of the base clusterings and of the consensus; pendigits, of similar shape, replaces Australia."""

METHODS_TRIED: Named = {
    "IVC": ("ivc", {}),
    "IPVC": ("ipvc", {}),
    "HAC": ("eac-average", {}),
    "QMI": ("qmi", {}),
    "CCSVD": ("ccsvd", {}),
    "BEST": ("best", {}),
    "FC": ("furthest", {}),
    "CSPA": ("cspa", {}),
    "HGPA": ("hgpa", {"objective": "km1"}),
    "MCLA": ("mcla", {"ties": "lowest"}),
    "EM": ("mixture", {"init": "partition"}),
    "CCC": ("ccc", {}),
    "CCU": ("ccu", {}),
}

# Methods whose starts are evaluated one by one; other methods with starts keep their best.
STARTED = ("IVC", "IPVC", "QMI", "EM")

GENERATORS: dict[str, Callable[..., Ensemble]] = {
    "restarts": lambda X, **made: kmeans(X, sample=1.0, random_state=0, **made),
    "zipf": lambda X, **made: weighted_kmeans(X, random_state=0, **made),
}

CRITERIA = {
    "variation_of_information": -1,
    "van_dongen": -1,
    "rand_index": +1,
    "nmi": +1,
    "purity": +1,
    "compactness": -1,
}
"""+1 if higher is better. The Rand distance of the paper is 1 - rand_index; its accuracy is purity."""

READINGS = ("objective", "nmi", "criterion", "mean", "selected")
"""The start that represents a method: the one with the best objective, with the highest mean NMI with the
ensemble, the best by each criterion, or the mean over all. "selected": for `OURS` the best by each criterion,
of "several consensus clusterings" of which the paper says the best can be selected, and for the others the
one with the best objective."""


def judge(ensemble: Ensemble, labels: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the values of the criteria (6,)."""
    consensus = [average_criterion(name, ensemble, labels) for name in list(CRITERIA)[:4]]
    return np.array([*consensus, purity(y, labels), compactness(X, labels)])


def reported(values: np.ndarray, objectives: Sequence[float], sign: int) -> dict[str, np.ndarray]:
    """Return the criteria that each reading reports, given those of single starts (n_starts, 6).

    ``sign`` is +1 if a higher objective is better.
    """
    signs = np.array(list(CRITERIA.values()))
    return {
        "objective": values[np.argmax(sign * np.asarray(objectives))],
        "nmi": values[np.argmax(values[:, list(CRITERIA).index("nmi")])],
        "criterion": (signs * values).max(axis=0) * signs,
        "mean": values.mean(axis=0),
    }


def selected(method: str, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return what the reading "selected" reports of a method."""
    return values["criterion" if method in OURS else "objective"]


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


def wins(data: Mapping[str, int], n_partitions: int, n_starts: int, raw: bool = False) -> dict[str, Any]:
    """Return the criteria of every method on every ensemble, and the wins by each reading."""
    cases = product(data.items(), GENERATORS)
    rows = [row_of(name, K, source, n_partitions, n_starts, raw) for (name, K), source in cases]
    return {"n_partitions": n_partitions, "n_starts": n_starts, **count_wins(rows), "rows": rows}


def count_wins(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the wins of every method by reading, and of `OURS` together with and without compactness."""
    wins = {
        reading: counted(row["wins"][reading][c] for row in rows for c in CRITERIA) for reading in READINGS
    }
    ours = {
        reading: {c: sum(not set(OURS).isdisjoint(row["wins"][reading][c]) for row in rows) for c in CRITERIA}
        for reading in READINGS
    }
    without = {reading: sum(n for c, n in by.items() if c != "compactness") for reading, by in ours.items()}
    n_possible = (len(CRITERIA) - 1) * len(rows)
    print(f"wins of {OURS} of {n_possible}, without compactness:", without, flush=True)
    return {"wins": wins, "ours_by_criterion": ours, "ours_without_compactness": without, "of": n_possible}


def row_of(name: str, K: int, source: str, n_partitions: int, n_starts: int, raw: bool) -> dict[str, Any]:
    X, y = load(name, raw)
    ensemble = GENERATORS[source](X, n_partitions=n_partitions, n_clusters=K, standardize=not raw)
    labels = ensemble.read(0, ensemble.n_objects)
    values: dict[str, dict[str, np.ndarray]] = {}
    costs: dict[str, dict[str, float]] = {}
    for method, (key, parameters) in available(METHODS_TRIED).items():
        if method in STARTED:
            single = [fitted(key, K, ensemble, s, n_init=1, **parameters) for s in range(n_starts)]
        else:
            single = [fitted(key, K, ensemble, **parameters)]
        lower = method in ("IVC", "IPVC")
        objectives = [model.objective_ for model in single]
        judged = np.array([judge(ensemble, model.labels_, X, y) for model in single])
        values[method] = reported(judged, objectives, -1 if lower else +1)
        values[method]["selected"] = selected(method, values[method])
        best = np.argmin(objectives) if lower else np.argmax(objectives)
        costs[method] = voting_costs(labels, single[best].labels_)
    wins = {
        reading: {
            c: winners({m: v[reading][i] for m, v in values.items()}, sign)
            for i, (c, sign) in enumerate(CRITERIA.items())
        }
        for reading in READINGS
    }
    print(f"{name:11}{source:10}" + "  ".join("=".join(w) for w in wins["objective"].values()), flush=True)
    return {
        "data": name,
        "generator": source,
        "K": K,
        "values": {m: {r: [round(float(x), 5) for x in v[r]] for r in READINGS} for m, v in values.items()},
        "voting_costs": {m: {rule: round(c, 1) for rule, c in terms.items()} for m, terms in costs.items()},
        "wins": wins,
    }


def voted(method: str, labels: np.ndarray, consensus: np.ndarray, K: int) -> np.ndarray:
    """Return the clusters after one pass of IVC or IPVC over complete labels; on a tie an object stays.

    An object goes where most partitions agree with it: by the majority label of a cluster (IVC), or by the
    share of its objects that have the same label (IPVC).
    """
    agreement, sizes = np.zeros((len(labels), K)), np.bincount(consensus, minlength=K)
    for column in labels.T:
        table = np.zeros((K, column.max() + 1))
        np.add.at(table, (consensus, column), 1)
        if method == "IVC":
            shares = np.eye(table.shape[1])[table.argmax(axis=1)]
        else:
            shares = table / np.maximum(sizes, 1)[:, None]
        agreement += shares[:, column].T
    agreement[:, sizes == 0] = -1
    most = agreement.max(axis=1) - 1e-9
    votes = np.take_along_axis(agreement, consensus[:, None], axis=1)[:, 0]
    return np.where(votes >= most, consensus, agreement.argmax(axis=1))


def iterations(data: Mapping[str, int], n_partitions: int, folder: Path | None) -> dict[str, Any]:
    """Return the criteria after each pass, until nothing changes, and draw them if there is a folder.

    From the first base clustering, and from random labels.
    """
    rows: list[dict[str, Any]] = []
    for name, K in data.items():
        X, y = load(name)
        ensemble = GENERATORS["restarts"](X, n_partitions=n_partitions, n_clusters=K)
        labels = np.asarray(ensemble.read(0, ensemble.n_objects))
        starts = {"base": labels[:, 0], "random": generator(0, "papers.start").integers(K, size=len(labels))}
        for method, start in product(OURS, starts):
            clusters, judged = starts[start], []
            while len(judged) < 100:
                judged.append([round(float(value), 5) for value in judge(ensemble, clusters, X, y)])
                before, clusters = clusters, voted(method, labels, clusters, K)
                if (clusters == before).all():
                    break
            row = {"data": name, "method": method, "start": start, "criteria": list(CRITERIA)}
            rows.append({**row, "by_pass": judged})
            print(
                f"{name:11}{method:5}{start:7}{len(judged)} passes: {judged[0]} -> {judged[-1]}", flush=True
            )
    if folder:
        draw_iterations(rows, folder / "consensus_clusterings_paper_iterations.png")
    return {"rows": rows}


def draw_iterations(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw each criterion by pass, a line for each data set: of IVC solid, of IPVC dashed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6), layout="constrained")
    for c, (axes, criterion) in enumerate(zip(figure.subplots(2, 3).flat, CRITERIA, strict=True)):
        for row in rows:
            if row["start"] == "random":
                color = f"C{list(DATA).index(row['data'])}"
                style = "-" if row["method"] == "IVC" else "--"
                values = np.array(row["by_pass"])[:, c] / row["by_pass"][-1][c]
                label = f"{row['data']}, {row['method']}"
                axes.plot(np.arange(len(values)), values, style, color=color, label=label)
        better = "higher" if CRITERIA[criterion] > 0 else "lower"
        axes.set(title=f"{criterion.replace('_', ' ')} ({better} is better)", xlabel="pass")
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("value / value at the end")
    figure.axes[3].set_ylabel("value / value at the end")
    figure.axes[0].legend(fontsize=8)
    figure.savefig(path, dpi=90)


def clusterings(data: Mapping[str, int], n_partitions: int, folder: Path | None) -> dict[str, Any]:
    """Return accuracy and compactness of many base clusterings and of what is made of them, and draw them.

    Also the rank correlation of the two over the base clusterings, and the share of these above which the
    accuracy of a consensus is.
    """
    from scipy.stats import spearmanr

    rows: list[dict[str, Any]] = []
    for (name, K), source in product(data.items(), GENERATORS):
        X, y = load(name)
        ensemble = GENERATORS[source](X, n_partitions=n_partitions, n_clusters=K)
        labels = np.asarray(ensemble.read(0, ensemble.n_objects))
        base = np.array([[purity(y, column), compactness(X, column)] for column in labels.T])
        table = {}
        for method, (spec, parameters) in available(METHODS_TRIED).items():
            if method == "MCLA":  # takes minutes to compare all base clusters
                continue
            consensus = fitted(spec, K, ensemble, **parameters).labels_
            table[method] = [round(float(of), 4) for of in (purity(y, consensus), compactness(X, consensus))]
        row = {
            "data": name,
            "generator": source,
            "rank_correlation": round(float(spearmanr(*base.T).statistic), 3),
            "base": np.round(base, 4).tolist(),
            "consensus": table,
            "accuracy_above_share_of_base": {
                method: round(float((base[:, 0] < accuracy).mean()), 3)
                for method, (accuracy, _) in table.items()
            },
        }
        rows.append(row)
        print({key: value for key, value in row.items() if key != "base"}, flush=True)
    if folder:
        draw_clusterings(rows, folder / "consensus_clusterings_paper_clusterings.png")
    for row in rows:
        accuracies, distances = np.array(row.pop("base")).T
        row["base_accuracy"] = np.quantile(accuracies, (0, 0.25, 0.5, 0.75, 1)).tolist()
        row["base_compactness"] = np.quantile(distances, (0, 0.25, 0.5, 0.75, 1)).tolist()
    return {"n_partitions": n_partitions, "rows": rows}


def draw_clusterings(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw accuracy against compactness: base clusterings as dots, and what is made of them by name."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 7.5), layout="constrained")
    panels = figure.subplots(len(GENERATORS), len(rows) // len(GENERATORS), squeeze=False)
    for row, axes in zip(rows, panels.T.flat, strict=True):
        accuracy, distance = np.array(row["base"]).T
        axes.plot(distance, accuracy, ".", color="0.75", markersize=3)
        for number, (method, (score, at)) in enumerate(row["consensus"].items()):
            marker, color = "osD^v"[number // 10 + 2 * (method in OURS)], f"C{number % 10}"
            axes.plot(at, score, marker, color=color, label=method, markersize=9 if method in OURS else 6)
        axes.set(title=f"{row['data']}, {row['generator']}", xlabel="compactness", ylabel="accuracy")
        axes.grid(alpha=0.3)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right center")
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    run_parts(
        __doc__,
        "consensus_clusterings_paper",
        lambda n_runs: {
            "wins": lambda: wins(DATA, 200, n_runs),
            "wins raw": lambda: wins(DATA, 200, n_runs, raw=True),
            "iterations": lambda: iterations(DATA, 200, RESULTS),
            "clusterings": lambda: clusterings(DATA, 1000, RESULTS),
        },
        {
            "wins": lambda: wins({"iris": 4}, 10, 2),
            "wins raw": lambda: wins({"iris": 4}, 10, 2, raw=True),
            "iterations": lambda: iterations({"iris": 4}, 10, None),
            "clusterings": lambda: clusterings({"iris": 4}, 10, None),
        },
        n_runs=100,
    )
