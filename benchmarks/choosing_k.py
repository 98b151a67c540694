"""How many clusters? `choose_n_clusters` and the rules of other tools, on planted and real ensembles.

Planted: 100 k-means partitions of 2 to 20 clusters, of 2,000 objects in 3 to 30 Gaussian classes of 16
features, of equal sizes, from 5 to 1 or from 30 to 1 (`very-unequal`), with all objects in every partition or
a random half. Nested: 30 partitions of 3,000 objects by a coarse, a middle or a fine level of classes in
classes, with 3 % of the labels exchanged; the fine one counts. Real: data sets and ensembles of
`accuracy.py`; the rule and its constants were chosen on its choosing half and on other draws of the planted
data, of which none was very unequal. Networks: those of `accuracy.py`, of 80 and of some 400 communities.
Classes need not be clusters, so beside the numbers stands the ARI with the classes of one consensus (HBGF)
with as many clusters as each rule says, and with as many as there are classes.

================  ===================================================================================
auto              `choose_n_clusters`
eigengap          the largest difference of two eigenvalues of the normalized co-association
lifetime-single   the number of clusters with the largest lifetime, single linkage (Fred and Jain 2005)
lifetime-average  the same, average linkage
pac               the least share of pairs that are together in .1 to .9 of the samples
delta             the last number that raises the area under the consensus CDF by 5 %
merging           the median left when merges inside partitions stop to raise their mean ARI (Dune 2024)
================  ===================================================================================

For pac and delta, as ConsensusClusterPlus does, k-means clusters 10 samples of 80 % of the objects (300 here)
for every number of clusters. Of the objects it sees the labels, as 40 leading directions of the scaled
one-hot matrix, because a consensus has no features. Results are appended to ``--out`` as they come; an
interrupted run resumes.

With ``--surplus``: whether the tree tells the planted number when asked for that number, or two or three
times as many, on ensembles drawn from seed 400 on, by which nothing was chosen; `results/surplus_k.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from accuracy import (
    CHOOSING,
    KINDS,
    NETWORKS,
    PLANTED,
    REAL,
    REPORTING,
    kept_ensemble,
    kinds_of,
    kmeans_labels,
    one_hot,
)
from machine import describe

from bigcons import HBGF, ConsensusTree, EACAverage, EACSingle, Ensemble, choose_n_clusters, plots
from bigcons.metrics import adjusted_rand
from bigcons.run.engine import one_thread
from bigcons.seeding import generator
from bigcons.spectra import spectrum

RESULTS = Path(__file__).parent / "results"
CLASSES = (3, 4, 5, 7, 10, 12, 15, 20, 25, 30)
LARGEST = {"equal": 1, "unequal": 5, "very-unequal": 30}
LEVELS = {"nested-27": (3, 9, 27), "nested-20": (5, 20), "nested-240": (6, 30, 240)}
MOST, MOST_SCORED, N_SAMPLES, N_COMPARED = 40, 500, 10, 300
RULES = ("auto", "eigengap", "lifetime-single", "lifetime-average", "pac", "delta", "merging")


def planted(
    n_classes: int, sizes: str, coverage: str, seed: int, n_objects: int = 2000
) -> tuple[np.ndarray, np.ndarray]:
    """Return labels (n_objects, 100) by k-means of separated Gaussian classes, and these."""
    draw = generator(seed, f"choosing.planted.{sizes}.{coverage}", n_classes)
    centers = draw.normal(size=(n_classes, 16))
    p = np.geomspace(LARGEST[sizes], 1, n_classes)
    classes = draw.choice(n_classes, n_objects, p=p / p.sum())
    classes[:n_classes] = np.arange(n_classes)
    x = centers[classes] + 0.25 * draw.normal(size=(n_objects, 16))
    share = 1.0 if coverage == "complete" else 0.5
    return np.column_stack([kmeans_labels(x, 2, 20, draw, share) for _ in range(100)]), classes


def nested(levels: tuple[int, ...], seed: int, n_objects: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    """Return labels (n_objects, 30) by one of several levels of classes, and the finest classes."""
    draw = generator(seed, "choosing.nested", levels[-1])
    classes = draw.choice(levels[-1], n_objects, p=draw.dirichlet(np.full(levels[-1], 3.0)))
    columns = []
    for u in range(30):
        level = classes % levels[u * len(levels) // 30]
        wrong = draw.random(n_objects) < 0.03
        columns.append(np.where(wrong, draw.permutation(level), level))
    return np.column_stack(columns), classes


# ------------------------------------------------------------------------------------------------- rules


def consensus_shares(labels: np.ndarray, seed: int) -> list[np.ndarray]:
    """Return, for 2 to `MOST` clusters, in what share of the samples pairs of objects are together."""
    from sklearn.cluster import KMeans
    from sklearn.utils.extmath import randomized_svd

    draw, h = generator(seed, "choosing.consensus"), one_hot(labels)
    h = h[:, np.asarray(h.sum(axis=0)).ravel() > 0]
    by_row = 1 / np.sqrt(np.maximum(np.asarray(h.sum(axis=1)), 1))
    scaled = h.multiply(by_row).multiply(1 / np.sqrt(np.asarray(h.sum(axis=0)))).tocsr()
    u, s, _ = randomized_svd(scaled, min(MOST, min(scaled.shape) - 1), random_state=seed)
    x = (u * s)[np.sort(draw.choice(len(labels), min(N_COMPARED, len(labels)), replace=False))]
    upper, shares = np.triu_indices(len(x), 1), []
    for k in range(2, min(MOST, len(x) // 3) + 1):
        together, sampled = np.zeros((len(x), len(x))), np.zeros((len(x), len(x)))
        for _ in range(N_SAMPLES):
            chosen = np.sort(draw.choice(len(x), int(0.8 * len(x)), replace=False))
            model = KMeans(k, n_init=1, random_state=int(draw.integers(2**31))).fit(x[chosen])
            sampled[np.ix_(chosen, chosen)] += 1
            together[np.ix_(chosen, chosen)] += model.labels_[:, None] == model.labels_
        is_sampled = sampled[upper] > 0
        shares.append(together[upper][is_sampled] / sampled[upper][is_sampled])
    return shares


def gained(table: np.ndarray) -> np.ndarray:
    """Return how much every merge of two rows raises the ARI of a contingency table (k, l), (k, k)."""
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    n_pairs = max(rows.sum() * (rows.sum() - 1) / 2, 1.0)
    both, in_rows, in_columns = ((x * (x - 1) / 2).sum() for x in (table, rows, columns))

    def ari(both: Any, in_rows: Any) -> Any:
        chance = in_rows * in_columns / n_pairs
        return (both - chance) / np.maximum((in_rows + in_columns) / 2 - chance, 1e-9)

    return ari(both + table @ table.T, in_rows + np.outer(rows, rows)) - ari(both, in_rows)


def merged_inside(labels: np.ndarray) -> int:
    """Return the median number of clusters of partitions whose clusters merge while the mean ARI rises.

    Of all merges of two clusters of a partition the one that raises the mean ARI of the pairs of partitions
    most, each on the objects that both label.
    """
    counts, cuts = one_hot(labels), np.cumsum(labels.max(axis=0) + 1)[:-1]
    tables = [np.split(part, cuts, axis=1) for part in np.split((counts.T @ counts).toarray(), cuts)]
    others = [[v for v in range(len(tables)) if v != u] for u in range(len(tables))]
    gains = [sum(gained(tables[u][v]) for v in others[u]) for u in range(len(tables))]
    while True:
        best = [np.triu(gain, 1).max() for gain in gains]
        u = int(np.argmax(best))
        if best[u] <= 1e-9:
            return int(np.median([len(gain) for gain in gains]))
        a, b = np.unravel_index(np.argmax(np.triu(gains[u], 1)), gains[u].shape)
        for v in others[u]:
            gains[v] = gains[v] - gained(tables[v][u])
            tables[u][v][a] += tables[u][v][b]
            tables[u][v] = np.delete(tables[u][v], b, axis=0)
            tables[v][u] = tables[u][v].T.copy()
            gains[v] = gains[v] + gained(tables[v][u])
        gains[u] = sum(gained(tables[u][v]) for v in others[u])


def numbers_of(labels: np.ndarray, seed: int) -> dict[str, int]:
    """Return the number of clusters by every rule."""
    numbers: dict[str, int] = {}
    choice = choose_n_clusters(labels, random_state=seed, client="serial")
    numbers["auto"] = choice.n_clusters
    counts = one_hot(labels)
    eigenvalues, _ = spectrum(counts, np.ones(counts.shape[1]), MOST + 1)
    numbers["eigengap"] = 2 + int(np.argmax(-np.diff(eigenvalues[1:])))
    for name, linkage in (("lifetime-single", EACSingle), ("lifetime-average", EACAverage)):
        model = linkage(None, criterion="lifetime", random_state=seed, client="serial")
        numbers[name] = int(model.fit(Ensemble.from_labels(labels)).n_clusters_)
    with one_thread():
        shares = consensus_shares(labels, seed)
    numbers["pac"] = 2 + int(np.argmin([((share > 0.1) & (share < 0.9)).mean() for share in shares]))
    areas = np.array([1.0 - share.mean() for share in shares])  # under the CDF of the shares
    gains = np.concatenate([[1.0], np.diff(areas) / areas[:-1]])
    numbers["delta"] = 2 + int(np.flatnonzero(gains >= 0.05)[-1])
    numbers["merging"] = merged_inside(labels)
    return numbers


def row_of(
    labels: np.ndarray, classes: np.ndarray, seed: int, before: dict[str, Any] | None = None, again: str = ""
) -> dict[str, Any]:
    """Return the number of clusters by every rule on one ensemble, and the ARI of HBGF with each.

    ``before``: a row of which only the number of one rule is found ``again``.
    """
    is_labeled = (labels >= 0).any(axis=1)
    labels, classes = labels[is_labeled], np.unique(classes[is_labeled], return_inverse=True)[1]
    if before is None:
        numbers = numbers_of(labels, seed)
    elif again == "auto":
        auto = choose_n_clusters(labels, random_state=seed, client="serial").n_clusters
        numbers = {**before["numbers"], "auto": auto}
    else:
        numbers = {**before["numbers"], "merging": merged_inside(labels)}
    n_classes, ensemble = int(classes.max()) + 1, Ensemble.from_labels(labels)
    numbers_by_name = {name: min(k, MOST_SCORED) for name, k in {**numbers, "classes": n_classes}.items()}
    scores = {} if before is None else {min(before["numbers"].get(name, n_classes), MOST_SCORED): value
                                        for name, value in before["ari"].items()}  # fmt: skip
    for k in set(numbers_by_name.values()) - set(scores):
        model = HBGF(k, random_state=seed, client="serial").fit(ensemble)
        scores[k] = round(float(adjusted_rand(classes, model.labels_)), 4)
    ari = {name: scores[k] for name, k in numbers_by_name.items()}
    return {"n_classes": n_classes, "numbers": numbers, "ari": ari}


def ensembles_of(arguments: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """Yield a name for every ensemble, and a function that makes it."""
    for seed in range(arguments.seeds):
        for n_classes in arguments.classes:
            for sizes in LARGEST:
                for coverage in ("complete", "half"):
                    key = n_classes, sizes, coverage, seed, 200 if arguments.smallest else 2000
                    yield f"planted/{n_classes}/{sizes}/{coverage}/{seed}", lambda key=key: planted(*key)
    for name, levels in LEVELS.items():
        for seed in range(arguments.seeds):
            yield f"{name}/{seed}", lambda key=(levels, seed): nested(*key)
    for data in arguments.data:
        for kind in kinds_of(data) if data in NETWORKS else arguments.kinds:
            key = data, kind, 0, arguments.ensembles
            yield f"{data}/{kind}/0", lambda key=key: kept_ensemble(*key)


# -------------------------------------------------------------------------------------- surplus clusters


def surplus(classes: list[int], seeds: int) -> dict[str, Any]:
    """Return how often the tree tells planted numbers of clusters, asked for 1, 2 and 3 times as many."""
    rows: list[dict[str, Any]] = []
    for parameters in product(range(400, 400 + seeds), classes, ("equal", "unequal"), ("complete", "half")):
        seed, n_classes, sizes, coverage = parameters
        labels, truth = planted(n_classes, sizes, coverage, seed)
        is_labeled, name = (labels >= 0).any(axis=1), f"planted/{n_classes}/{sizes}/{coverage}/{seed}"
        row: dict[str, Any] = {"ensemble": name, "n_classes": n_classes, "found": [], "ari": []}
        for times in (1, 2, 3):
            choice = choose_n_clusters(labels, k_range=(2, times * n_classes), client="serial")
            tree = ConsensusTree(choice.n_clusters, client="serial").fit(labels)
            row["found"].append(choice.n_clusters)
            row["ari"].append(round(float(adjusted_rand(truth[is_labeled], tree.labels_[is_labeled])), 4))
        rows.append(row)
        print(row, flush=True)
    numbers, ari = np.array([row["found"] for row in rows]), np.array([row["ari"] for row in rows])
    right = numbers == np.array([row["n_classes"] for row in rows])[:, None]
    near = ari >= ari[:, :1] - 0.02
    summary = {"ensembles": len(rows), "right": right.sum(axis=0).tolist(), "ari": ari.mean(axis=0).tolist(),
               "ari_within_.02_of_that_at_the_number": near.sum(axis=0).tolist()}  # fmt: skip
    print(json.dumps(summary))
    return {"machine": describe(), "times_too_many": [1, 2, 3], "summary": summary, "rows": rows}


# ------------------------------------------------------------------------------------------------ report


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return for every rule how often it finds the number of classes, how far it is off, and the mean ARI."""
    rules = {}
    for name in (*RULES, "classes"):
        if not all(name in row["ari"] for row in rows):
            continue
        k = np.array([row["numbers"].get(name, row["n_classes"]) for row in rows])
        true = np.array([row["n_classes"] for row in rows])
        rules[name] = {
            "exact": round(float((k == true).mean()), 3),
            "within_one": round(float((np.abs(k - true) <= 1).mean()), 3),
            "median_factor": round(float(np.median(np.maximum(k / true, true / k))), 2),
            "ari": round(float(np.mean([row["ari"][name] for row in rows])), 4),
        }
    return {"ensembles": len(rows), "rules": rules}


def parts_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the summaries of the planted ensembles, by kind, and of both halves of the data sets."""

    def has(row: dict[str, Any], *words: str) -> bool:
        return row["ensemble"].startswith("planted/") and set(words) <= set(row["ensemble"].split("/"))

    parts = {"planted, very-unequal": [row for row in rows if has(row, "very-unequal")]}
    rows = [row for row in rows if not has(row, "very-unequal")]
    parts["planted"] = [row for row in rows if has(row)]
    for words in ("equal", "unequal", "complete", "half"):
        parts[f"planted, {words}"] = [row for row in rows if has(row, words)]
    for least, most in ((3, 10), (11, 20), (21, 30)):
        part = [row for row in rows if has(row) and least <= row["n_classes"] <= most]
        parts[f"planted, {least} to {most} classes"] = part
    for name, data in (
        *(("choosing half", CHOOSING), ("reporting half", REPORTING)),
        *(("nested", LEVELS), ("networks", NETWORKS)),
    ):
        parts[name] = [row for row in rows if row["ensemble"].split("/")[0] in data]
    return {name: summary(part) for name, part in parts.items() if part}


def show(parts: dict[str, Any]) -> None:
    """Print the summaries."""
    for name, part in parts.items():
        print(f"\n{name}: {part['ensembles']} ensembles")
        print(f"{'rule':<18}{'exact':>8}{'within 1':>10}{'factor':>8}{'ARI':>8}")
        for rule, row in part["rules"].items():
            values = f"{row['exact']:>8.2f}{row['within_one']:>10.2f}{row['median_factor']:>8.2f}"
            print(f"{rule:<18}{values}{row['ari']:>8.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--smallest", action="store_true", help="one planted ensemble, to see that it runs")
    parser.add_argument("--classes", type=int, nargs="*", default=list(CLASSES), help="of planted ensembles")
    parser.add_argument("--seeds", type=int, default=1, help="of planted ensembles: 0 to SEEDS - 1")
    parser.add_argument("--data", nargs="*", help="data sets, by default all that are at hand")
    parser.add_argument("--kinds", nargs="+", default=["halves-20"], choices=KINDS, metavar="KIND")
    parser.add_argument("--ensembles", type=Path, help="folder that keeps the ensembles of the data sets")
    parser.add_argument("--out", type=Path, help="JSON lines, one an ensemble; results/choosing_k.jsonl")
    parser.add_argument("--again", choices=("auto", "merging"), help="find the numbers of one rule again")
    parser.add_argument("--surplus", action="store_true", help="the tree asked for too many clusters")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.surplus:
        record = surplus(arguments.classes, arguments.seeds)
        if not arguments.smallest:
            (arguments.out or RESULTS / "surplus_k.json").write_text(json.dumps(record, indent=1) + "\n")
        return
    if arguments.data is None:
        arguments.data = [
            *PLANTED,
            *(REAL if os.environ.get("BIGCONS_DATA") else ["iris", "digits"]),
            *NETWORKS,
        ]
    out = arguments.out or RESULTS / "choosing_k.jsonl"
    if arguments.smallest:
        arguments.classes, arguments.seeds, arguments.data, out = [3], 1, [], None
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out and out.exists() else []
    done = {row["ensemble"]: at for at, row in enumerate(rows)}
    for name, make in ensembles_of(arguments):
        if name in done and arguments.again:
            before = rows[done[name]]
            rows[done[name]] = {"ensemble": name, **row_of(*make(), 0, before, arguments.again)}
            record = [row["numbers"].get(arguments.again) for row in (before, rows[done[name]])]
            change = f"{record[0]} -> {record[1]}"
            print(f"{name}: {before['n_classes']} classes, {change}", flush=True)
        if name in done or (arguments.smallest and rows):
            continue
        rows.append({"ensemble": name, **row_of(*make(), 0)})
        if out:
            with out.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    if out and arguments.again:
        out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    parts = parts_of(rows)
    show(parts)
    if out and arguments.out is None:
        record = {"machine": describe(), "parts": parts}
        (RESULTS / "choosing_k.json").write_text(json.dumps(record, indent=1) + "\n")
        choice = choose_n_clusters(planted(12, "unequal", "half", 0)[0], random_state=0)
        plots.n_clusters(choice).savefig(RESULTS / "choosing_k.png")


if __name__ == "__main__":
    main()
