"""What is every part of the consensus tree worth? Variants of it on the ensembles of accuracy.py.

The data sets, pools and kinds of ensembles are those of `accuracy.py`, which has the default; the number of
classes is given. The default also replaces clusters that win no object, and takes k-means in the embedding
where that is better by its criterion; variants do neither, and each changes one thing: the sizes of clusters,
the tree, the criterion by which one of two cuts is taken, the reliabilities of base clusters, the groups and
their number, or how often objects are placed.

Results are appended to ``--out``, and an interrupted run resumes. ``--write`` makes
results/tree_ablation.md of them. ``--ensembles`` keeps the ensembles.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from accuracy import GROUPS, KINDS, PLANTED, POOLS, append, data_at_hand, kept_ensemble, kinds_of
from accuracy_report import read_rows

from bigcons import Ensemble
from bigcons.methods.incidence import one_hot
from bigcons.metrics import adjusted_rand
from bigcons.seeding import generator
from bigcons.trust.groups import (
    AVERAGE,
    DISTINCTNESS,
    FEWEST_OBJECTS,
    GROUPS_PER_CLUSTER,
    LEAST_SHARE,
    TREES,
    Cut,
    Groups,
    Sample,
    merge_groups,
    most_probable,
    n_groups_for,
    rows_for,
)
from bigcons.trust.placement import log_rates
from bigcons.weights import incidence_of

RESULTS = Path(__file__).parent / "results"
TABLE = "tree_ablation.md"
COLUMNS = {
    "choosing": GROUPS["choosing"],
    "reporting": GROUPS["reporting"],
    "reporting, real": [name for name in GROUPS["reporting"] if name not in PLANTED],
    "pools": list(POOLS),
}
ONCE = "once"
VARIANTS = {
    ONCE: "both trees, cut once, objects of the sample moved, all placed. As this, but:",
    "share 0.0": "clusters of average link of any sizes",
    "share 0.2": "of at least 0.2 of their mean size, not 0.35",
    "share 0.5": "of at least 0.5",
    "average": "average link only",
    "distinctness": "distinctness only",
    "by anmi": "the cut of larger ANMI",
    "by distinctness": "the cut of larger distinctness",
    "by classes": "the better cut by the classes, not attainable",
    "unweighted": "average link without reliabilities",
    "lone": "lone objects may be clusters",
    "spectrum": "groups as the spectrum has them",
    "no errors": "groups of objects none of which errs more than others",
    "30 groups": "30 groups",
    "100 groups": "100 groups",
    "200 groups": "200 groups",
    "not placed": "objects of the sample as the tree has them",
    "not moved": "objects of the sample not moved, all placed twice",
    "placed again": "objects placed once more",
}
CLOSE = 0.02
"""Difference in ARI below which two variants are level."""


def placed(incidence: Any, offsets: np.ndarray, clusters: np.ndarray, n_clusters: int) -> np.ndarray:
    """Return the clusters (n,) of objects by naive Bayes, from those of some, -1 for the others.

    By their base clusters, ``incidence`` (n, B); an object itself is left out.
    """
    counted = np.flatnonzero(clusters >= 0)
    k, sizes = clusters[counted], np.bincount(clusters[counted], minlength=n_clusters)
    table = (incidence[counted].T @ one_hot(k, n_clusters)).T
    there = np.flatnonzero(sizes)
    rates, without = log_rates(table[there], sizes[there].astype(float), offsets)
    column = np.cumsum(sizes > 0) - 1
    scores = incidence @ rates + np.log(sizes[there] + 1)
    at = counted, column[k]
    scores[at] = (incidence @ without + np.log(sizes[there]))[at]
    return there[scores.argmax(axis=1)]


def solved(labels: np.ndarray, classes: np.ndarray, seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the name of every variant and its clusters (n,) of one ensemble."""
    ensemble, K = Ensemble.from_labels(labels), int(classes.max()) + 1
    n, offsets = ensemble.n_objects, ensemble.offsets
    labels = ensemble.read(0, n)
    rows = np.sort(generator(seed, "tree_ablation.rows").permutation(n)[: rows_for(n_groups_for(K))])
    sample = labels[rows]
    groups = Sample(sample, offsets).groups(n_groups_for(K))

    def cut(groups: Groups = groups, trees: Sequence[str] = TREES, share: float = LEAST_SHARE) -> Cut:
        return groups.cut(K, FEWEST_OBJECTS, trees, share)

    single = {tree: cut(trees=(tree,)) for tree in TREES}
    unweighted, _ = merge_groups(groups.table, offsets, groups.counts, np.ones(offsets[-1]))
    cuts = {
        ONCE: cut(),
        **{f"share {share}": cut(share=share) for share in (0.0, 0.2, 0.5)},
        AVERAGE: single[AVERAGE],
        DISTINCTNESS: single[DISTINCTNESS],
        "by anmi": max(single.values(), key=lambda cut: cut.anmi),
        "by distinctness": max(single.values(), key=lambda cut: cut.distinctness),
        "by classes": max(single.values(), key=lambda cut: adjusted_rand(classes[rows], cut.labels)),
        "unweighted": cut(groups._replace(trees=unweighted)),
        "lone": groups.cut(K, 0, share=LEAST_SHARE),
    }

    def moved(clusters: np.ndarray) -> np.ndarray:
        return most_probable(sample, offsets, groups.counts, clusters, left_out=True)

    as_cut = cuts[ONCE].labels
    variants = {name: moved(cut.labels) for name, cut in cuts.items()}
    placing: dict[str, tuple[str, Any]] = {
        "spectrum": ("most_probable", lambda *arrays, **_: arrays[-1]),
        "no errors": ("ERROR_RATES", {0.0: 1.0}),
    }
    for variant, (what, other) in placing.items():
        with patch(f"bigcons.trust.groups.{what}", other):
            groups = Sample(sample, offsets).groups(n_groups_for(K))
            variants[variant] = moved(cut(groups).labels)
    for n_groups in (30, 100, 200):
        groups = Sample(sample, offsets).groups(max(n_groups, GROUPS_PER_CLUSTER * K))
        variants[f"{n_groups} groups"] = moved(cut(groups).labels)
    incidence, is_labeled = incidence_of(labels, offsets), (labels >= 0).any(axis=1)

    def place(clusters: np.ndarray) -> np.ndarray:
        return np.where(is_labeled, placed(incidence, offsets, clusters, K), -1)

    def of_all(clusters: np.ndarray) -> np.ndarray:
        of_sample = np.full(n, -1)
        of_sample[rows] = clusters
        return of_sample if len(rows) == n else place(of_sample)

    for name, clusters in variants.items():
        yield name, place(of_all(clusters))
    yield "not placed", of_all(as_cut)
    yield "not moved", place(place(of_all(as_cut)))
    yield "placed again", place(place(of_all(variants[ONCE])))


def rows_of(name: str, kind: str, seed: int, ensembles: Path | None) -> Iterator[dict[str, Any]]:
    """Yield a row for each variant on one ensemble."""
    labels, classes = kept_ensemble(name, kind, seed, ensembles)
    is_labeled = (labels >= 0).any(axis=1)
    for variant, clusters in solved(labels, classes, seed):
        ari = float(adjusted_rand(classes[is_labeled], clusters[is_labeled]))
        yield {"data": name, "kind": kind, "seed": seed, "variant": variant, "ari": round(ari, 4)}


def table_of(rows: list[dict[str, Any]]) -> str:
    """Return the means of all variants as a table."""
    scores: dict[str, dict[tuple[str, str, int], float]] = {variant: {} for variant in VARIANTS}
    for row in rows:
        scores[row["variant"]][row["data"], row["kind"], row["seed"]] = row["ari"]
    keys = sorted(set.intersection(*(set(values) for values in scores.values())))
    counted = {column: [key for key in keys if key[0] in names] for column, names in COLUMNS.items()}
    counted = {column: chosen for column, chosen in counted.items() if chosen}
    heads = [f"{column} ({len(chosen)})" for column, chosen in counted.items()]
    lines = ["| variant | " + " | ".join([*heads, "better, worse"]) + " |", "|---" * (len(heads) + 2) + "|"]
    for variant, values in scores.items():
        means = [f"{np.mean([values[key] for key in chosen]):.3f}" for chosen in counted.values()]
        above = np.array([values[key] - scores[ONCE][key] for key in keys])
        differ = f"{(above > CLOSE).sum()}, {(above < -CLOSE).sum()}" if variant != ONCE else ""
        lines.append(f"| {VARIANTS[variant]} | " + " | ".join([*means, differ]) + " |")
    return "\n".join(lines) + "\n"


INTRODUCTION = """# What the parts of the consensus tree are worth

Mean adjusted Rand index of the better cut of both trees and of variants that change one thing, given the
number of classes (`benchmarks/tree_ablation.py`; number of ensembles in brackets); the last column counts
ensembles on which a variant is better or worse than the first row by more than .02. The default, which also
replaces clusters that win no object and takes k-means in the embedding where that is better by its
criterion, is in `accuracy.md`.

"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--smallest", action="store_true", help="one ensemble, to see that it runs")
    parser.add_argument("--seeds", type=int, default=1, help="0 to SEEDS - 1")
    parser.add_argument("--ensembles", type=Path, help="folder that keeps the ensembles")
    parser.add_argument("--out", type=Path, help="JSON lines, one a variant of an ensemble")
    parser.add_argument("--write", action="store_true", help=f"write results/{TABLE}")
    arguments = parser.parse_args()
    at_hand = data_at_hand()
    data = [name for names in COLUMNS.values() for name in names if name in at_hand]
    kinds: tuple[str, ...] = ("pool", *KINDS)
    if arguments.smallest:
        data, kinds = ["iris"], ("halves-10",)
    rows = read_rows(arguments.out)
    done = {(row["data"], row["kind"], row["seed"]) for row in rows}
    for seed, kind in ((seed, kind) for seed in range(arguments.seeds) for kind in kinds):
        for name in dict.fromkeys(data):
            if name not in at_hand or kind not in kinds_of(name) or (name, kind, seed) in done:
                continue
            new_rows = list(rows_of(name, kind, seed, arguments.ensembles))
            rows += new_rows
            for row in new_rows if arguments.out else ():
                append(arguments.out, row)
    table = table_of(rows)
    print(table)
    if arguments.write:
        (RESULTS / TABLE).write_text(INTRODUCTION + table, encoding="utf-8")


if __name__ == "__main__":
    main()
