"""Is there anything to find? False claims on data without clusters, and power on planted ones.

Structureless: 1,000 points of one Gaussian in 2, 5, 10 and 50 dimensions, of a cube in 2, 3 and 10, or
along a bent curve in 10, as of a trajectory of cells, each in five kinds of ensembles of 50 k-means
partitions, and independent random labels. Planted: 2, 3 and 6 Gaussian classes of standard deviation 1, the
centers of each two ``separation`` apart, in the same ensembles. Noisy: partitions in 3 or 6 classes, each
label of which is replaced by a random one with the same probability. Structure is claimed where
`choose_n_clusters` finds a number that stands out (``is_clear``); without it, a fit warns with a
`NoStructureWarning`. Erring: partitions in 6 classes with one error in twenty labels, and a share of the
objects of whose labels four in five are errors; these are no cluster, so that the number found counts, too,
and the adjusted Rand index of some methods that are told the number.

=========  =====================================================================
range      2 to 20 clusters of all objects
half       2 to 20 clusters of a random half of the objects
proj       2 to 20 clusters in a random projection to half the dimensions
fine       31 clusters, the root of the number of objects
eight      8 clusters always, which in few dimensions all put in the same places
many       as half, of three times as many objects without structure, which form more groups
=========  =====================================================================

Nested: eight classes in pairs of pairs, at three scales. A split of the consensus tree is true if of every
class at least nine tenths are on one side of it, or outside; reported is the share of true ones by support.

With ``--reference``: the p-value of a single cluster by 19 draws of one Gaussian, of 500 points in 30
partitions by `bigcons.generate.kmeans`, of all kinds but ``proj``, beside what the labels alone claim;
`results/structure_reference.json`.

With ``--m3c``: the test of M3C (John et al. 2020) on points drawn in the same way, as they describe it with
k-means, 20 samples of 80 % of the objects for each of 2 to 6 clusters, and 19 references of one Gaussian:
structure is claimed where the share of ambiguous pairs (PAC), at the number of clusters at which it is least
compared with the references, is below 5 % of a beta distribution fitted to these;
`results/structure_m3c.json`.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from accuracy import kmeans_labels
from machine import describe

from bigcons import Ensemble, choose_n_clusters, consensus, consensus_tree
from bigcons.generate import kmeans
from bigcons.metrics import adjusted_rand, pac
from bigcons.run.engine import SerialEngine
from bigcons.seeding import generator
from bigcons.store.clusters import node_sums
from bigcons.trust.groups import TREES
from bigcons.trust.n_clusters import search

RESULTS = Path(__file__).parent / "results"
FIRST_SEED = 100
"""Lower seeds were drawn where the rule was chosen."""
KINDS = ("range", "half", "proj", "fine", "eight")
MANY, NOISY, ERRING = "many", "noisy", "erring"
SEPARATIONS = (2, 3, 4, 5, 6, 8)
CLASSES = (2, 3, 6)
N_PARTITIONS = 50
ERRORS = ((5, 0.2), (7, 0.2), (7, 0.3), (15, 0.3), (15, 0.5), (30, 0.5), (60, 0.6))
"""Partitions, and the share of the labels replaced, of noisy ensembles."""
ERRANT = tuple(product((15, 30, 60), (0.05, 0.1, 0.2)))
"""Partitions, and the share of the objects that err, of erring ensembles."""
TOLD = ("tree", "pcc", "hbgf", "mcla", "eac-average")
"""Methods that are told the number of erring ensembles."""
BINS = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95)
"""Lower bounds of the ranges of support."""


def curve(draw: np.random.Generator, n: int) -> np.ndarray:
    """Return points (n, 10) along a bent curve, thirty times as long as its noise."""
    at = draw.random(n)
    x = 0.5 * draw.normal(size=(n, 10))
    x[:, :3] += np.column_stack([5.0 * np.cos(3.0 * at), 5.0 * np.sin(3.0 * at), 6.0 * at])
    return x


CONTINUA = {
    **{f"gaussian-{d}": lambda draw, n, d=d: draw.normal(size=(n, d)) for d in (2, 5, 10, 50)},
    **{f"cube-{d}": lambda draw, n, d=d: draw.random((n, d)) for d in (2, 3, 10)},
    "curve-10": curve,
}


def partitions(x: np.ndarray, kind: str, draw: np.random.Generator) -> np.ndarray:
    """Return labels (n, `N_PARTITIONS`) by k-means, -1 missing."""
    low, high = {"fine": (int(len(x) ** 0.5),) * 2, "eight": (8, 8)}.get(kind, (2, 20))
    columns = []
    for _ in range(N_PARTITIONS):
        view = x
        if kind == "proj":
            view = x @ draw.normal(size=(x.shape[1], max(x.shape[1] // 2, 1)))
        columns.append(kmeans_labels(view, low, high, draw, 0.5 if kind in ("half", MANY) else 1.0))
    return np.column_stack(columns)


def planted(n_classes: int, separation: float, n: int, draw: np.random.Generator) -> np.ndarray:
    """Return points (n, d) of Gaussian classes, the centers of each two ``separation`` apart."""
    centers = np.eye(n_classes) * separation / 2**0.5
    return centers[draw.integers(n_classes, size=n)] + draw.normal(size=(n, n_classes))


def nested(n: int, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return points (n, 8) of eight classes in pairs of pairs, and the classes."""
    classes = draw.integers(8, size=n)
    bits = (classes[:, None] >> np.arange(3)) & 1
    shifts = [bits[:, 2] * 20.0, bits[:, 1] * 10.0, bits[:, 0] * 5.0]
    x = draw.normal(size=(n, 8))
    x[:, :3] += np.column_stack(shifts)
    return x, classes


def ensembles(n: int, seeds: range, *, smallest: bool = False) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
    """Yield what every ensemble is, and its labels (n, M); if ``smallest`` of one data set for each kind."""
    n_each = 1 if smallest else None
    for seed, (name, make), kind in product(seeds, list(CONTINUA.items())[:n_each], (*KINDS, MANY)):
        draw = generator(seed, f"structure.{name}.{kind}")
        labels = partitions(make(draw, 3 * n if kind == MANY else n), kind, draw)
        yield {"data": name, "kind": kind, "separation": None}, labels
    for seed in (seed + part for seed in seeds for part in (0, 1000)):
        draw = generator(seed, "structure.random")
        numbers = draw.integers(2, 21, size=N_PARTITIONS)
        yield (
            {"data": "random", "kind": "random", "separation": None},
            draw.integers(numbers, size=(n, N_PARTITIONS)),
        )
    for seed, K, separation, kind in product(seeds[::2], CLASSES[:n_each], SEPARATIONS[:n_each], KINDS):
        draw = generator(seed, f"structure.planted.{K}.{separation}.{kind}")
        labels = partitions(planted(K, separation, n, draw), kind, draw)
        yield {"data": f"planted-{K}", "kind": kind, "separation": separation}, labels
    for seed, K, (M, share) in product(seeds[::2], CLASSES[1:][:n_each], ERRORS[:n_each]):
        draw = generator(seed, f"structure.noisy.{K}.{M}.{share}")
        wrong = draw.integers(K, size=(n, M))
        yield {"data": "random", "kind": f"random-{K}", "separation": None}, wrong
        labels = np.where(draw.random((n, M)) < share, wrong, draw.integers(K, size=(n, 1)))
        yield {"data": f"noisy-{K}", "kind": f"{M} x {share}", "separation": NOISY}, labels
    for seed, (M, share) in product(seeds[::2], ERRANT[:n_each]):
        draw = generator(seed, f"structure.erring.{M}.{share}")
        errs = draw.random((n, M)) < np.where(draw.random(n) < share, 0.8, 0.05)[:, None]
        wrong, classes = draw.integers(6, size=(n, M)), draw.integers(6, size=n)
        labels = np.where(errs, wrong, classes[:, None])
        facts = {"data": "erring-6", "kind": f"{M} x {share}", "separation": ERRING}
        for method in TOLD:
            model = consensus(labels, 6, method=method, random_state=0, client="serial")
            facts[method] = round(float(adjusted_rand(classes, model.labels_)), 4)
        yield facts, labels


def row_of(labels: np.ndarray) -> dict[str, Any]:
    """Return whether structure is claimed, and why."""
    choice = choose_n_clusters(labels[(labels >= 0).any(axis=1)], random_state=0, client="serial")
    best = choice.row(choice.n_clusters)
    return {
        "claimed": bool(choice.is_clear),
        "n_clusters": choice.n_clusters,
        "lifetime_of_one": round(choice.lifetime_of_one, 4),
        **{name: round(best[name], 4) for name in ("lifetime", "agreement")},
    }


def truths(n: int, seed: int, kind: str) -> list[tuple[float, bool]]:
    """Return the support of the splits of the chosen tree of nested classes, and whether they are true."""
    draw = generator(seed, f"structure.nested.{kind}")
    x, classes = nested(n, draw)
    labels = partitions(x, kind, draw)
    ensemble = Ensemble.from_labels(labels)
    result = search(ensemble, SerialEngine(), 0)
    groups, rows = result.groups, []
    members = np.zeros((8, len(groups.table)))
    is_grouped = groups.groups >= 0
    np.add.at(members, (classes[is_grouped], groups.groups[is_grouped]), 1)
    for name in TREES:
        support = result.halves.support(name).mean
        sides = groups.trees[name].sides
        first, two = (members @ side.T for side in node_sums(sides, np.eye(groups.sizes.size))[sides.T])
        most = np.stack([first, two, members.sum(axis=1)[:, None] - first - two]).max(axis=0)
        right = (most >= 0.9 * members.sum(axis=1)[:, None]).all(axis=0)
        proper = (first.sum(axis=0) > 0) & (two.sum(axis=0) > 0)
        whole = ((first > two).any(axis=0)) & ((two > first).any(axis=0))  # each side has a class of its own
        rows += [(float(s), bool(r)) for s, r in zip(support[proper], (right & whole)[proper], strict=True)]
    return rows


GENERATED: dict[str, dict[str, Any]] = {
    "range": {"n_clusters": (2, 20), "sample": 1.0},
    "half": {"n_clusters": (2, 20)},
    "fine": {"n_clusters": 22, "sample": 1.0},
    "eight": {"n_clusters": 8, "sample": 1.0},
}


def references(n: int, seeds: range) -> Iterator[dict[str, Any]]:
    """Yield the p-value of every data set and kind, and whether the labels alone claim structure."""
    recipes: dict[tuple[str, int | None], Any] = {(name, None): make for name, make in CONTINUA.items()}
    for s in SEPARATIONS[1:4]:
        recipes["planted-2", s] = lambda draw, n, s=s: planted(2, s, n, draw)
    for seed, (data, separation), (kind, options) in product(seeds, recipes, GENERATED.items()):
        x = recipes[data, separation](generator(seed, f"structure.reference.{data}.{separation}"), n)
        ensemble = kmeans(x, n_partitions=30, random_state=seed, client="serial", **options)
        tree = consensus_tree(ensemble, features=x, n_draws=19, random_state=0, client="serial")
        yield {
            "data": data,
            "kind": kind,
            "separation": separation,
            "p_value": float(tree.p_values[-1]),
            "claimed": bool(tree.choice.is_clear),
        }


def m3c(x: np.ndarray, draw: np.random.Generator) -> float:
    """Return the p-value of a single cluster by the test of M3C."""
    from scipy.stats import beta

    def shares(points: np.ndarray) -> list[float]:
        return [
            pac(np.column_stack([kmeans_labels(points, K, K, draw, 0.8) for _ in range(20)]), n_objects=300)
            for K in range(2, 7)
        ]

    center, factor = x.mean(axis=0), np.linalg.cholesky(np.cov(x.T))
    drawn = [shares(center + draw.normal(size=x.shape) @ factor.T) for _ in range(19)]
    reference, observed = np.array(drawn), np.array(shares(x))
    at = int(np.argmax(np.log(reference.mean(axis=0) + 1e-6) - np.log(observed + 1e-6)))
    mean, variance = reference[:, at].mean(), reference[:, at].var(ddof=1)
    size = mean * (1.0 - mean) / variance - 1.0
    return float(beta.cdf(observed[at], mean * size, (1.0 - mean) * size))


def by_m3c(n: int, seeds: range) -> Iterator[dict[str, Any]]:
    """Yield whether M3C's test claims structure in continua and in planted classes."""
    recipes: dict[tuple[str, int | None], Any] = {(name, None): make for name, make in CONTINUA.items()}
    for K, s in product(CLASSES, SEPARATIONS):
        recipes[f"planted-{K}", s] = lambda draw, n, K=K, s=s: planted(K, s, n, draw)
    for seed, ((data, separation), make) in product(seeds, recipes.items()):
        draw = generator(seed, f"structure.m3c.{data}.{separation}")
        p = m3c(make(draw, n), draw)
        yield {"data": data, "separation": separation, "p_value": p, "claimed": p < 0.05}


def summary(rows: list[dict[str, Any]], splits: list[tuple[float, bool]]) -> dict[str, Any]:
    """Return the rates of claims by kind, by separation and by data, and of true splits by support."""

    def rate(some: list[dict[str, Any]]) -> dict[str, Any]:
        return {"ensembles": len(some), "claimed": round(float(np.mean([r["claimed"] for r in some])), 3)}

    null = [row for row in rows if row["separation"] is None]
    table: dict[str, Any] = {"structureless": rate(null)}
    for key in ("kind", "data"):
        for name in dict.fromkeys(row[key] for row in null):
            table[f"structureless, {name}"] = rate([row for row in null if row[key] == name])
    for separation in SEPARATIONS:
        some = [row for row in rows if row["separation"] == separation]
        table[f"separation {separation}"] = rate(some)
        for kind in KINDS:
            table[f"separation {separation}, {kind}"] = rate([row for row in some if row["kind"] == kind])
    for group in (NOISY, ERRING):
        of_group = [row for row in rows if row["separation"] == group]
        for name in ("", *dict.fromkeys(row["kind"] for row in of_group)):
            some = [row for row in of_group if row["kind"] == name or not name]
            is_right = [row["n_clusters"] == int(row["data"].split("-")[1]) for row in some]
            table[f"{group}, {name}" if name else group] = rate(some) | {
                "right_number": round(float(np.mean(is_right)), 3)
            }
            if group == ERRING:
                table[f"{group}, {name}" if name else group] |= {
                    method: round(float(np.mean([row[method] for row in some])), 3) for method in TOLD
                }
    support, true = np.array(splits).T
    bins = np.searchsorted(BINS, support, side="right") - 1
    for at, least in enumerate(BINS):
        if (bins == at).any():
            table[f"support from {least}"] = {
                "splits": int((bins == at).sum()),
                "true": round(float(true[bins == at].mean()), 3),
            }
    return table


def draw_power(table: dict[str, Any], path: Path) -> None:
    """Draw the share of ensembles in which structure is claimed, by separation and kind, beside M3C's."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.4), layout="constrained")
    axes = figure.subplots()
    for kind, color in zip(KINDS, ("#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"), strict=True):
        null = table[f"structureless, {kind}"]["claimed"]
        power = [table[f"separation {s}, {kind}"]["claimed"] for s in SEPARATIONS]
        axes.plot([0, *SEPARATIONS], [null, *power], color=color, marker="o", markersize=3, label=kind)
    if (RESULTS / "structure_m3c.json").exists():
        table = json.loads((RESULTS / "structure_m3c.json").read_text())
        power = [np.mean([r["claimed"] for r in table["rows"] if r["separation"] == s])
                 for s in (None, *SEPARATIONS)]  # fmt: skip
        axes.plot(
            [0, *SEPARATIONS], power, color="black", linestyle=":", marker="s", markersize=3, label="M3C"
        )
    axes.axhline(0.05, color="#999999", linewidth=0.8, linestyle="--")
    axes.set(xlabel="separation of two classes (standard deviations); 0: one cluster",
             ylabel="share of ensembles with structure", ylim=(-0.03, 1.03))  # fmt: skip
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=6, help="draws of each kind, half as many of planted")
    parser.add_argument("--smallest", action="store_true", help="one small ensemble of each kind, not stored")
    parser.add_argument("--reference", action="store_true", help="p-values by one Gaussian instead")
    parser.add_argument("--m3c", action="store_true", help="the test of M3C instead")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.reference or arguments.m3c:
        name, rows_by_seed, n = ("m3c", by_m3c, 1000) if arguments.m3c else ("reference", references, 500)
        n, n_seeds = (100, 1) if arguments.smallest else (n, arguments.seeds // 2)
        facts = []
        for row in rows_by_seed(n, range(FIRST_SEED, FIRST_SEED + n_seeds)):
            facts.append(row)
            print(row, flush=True)
            if arguments.smallest:
                return
        content = json.dumps({"machine": describe(), "rows": facts}, indent=1)
        (RESULTS / f"structure_{name}.json").write_text(content + "\n")
        return
    n, seeds = 200 if arguments.smallest else 1000, range(FIRST_SEED, FIRST_SEED + arguments.seeds)
    seeds = seeds[:1] if arguments.smallest else seeds
    rows = []
    for facts, labels in ensembles(n, seeds, smallest=arguments.smallest):
        rows.append({**facts, **row_of(labels)})
        print(rows[-1], flush=True)
    kinds = KINDS[:1] if arguments.smallest else KINDS
    splits = [row for seed in seeds for kind in kinds for row in truths(n, seed, kind)]
    table = summary(rows, splits) if not arguments.smallest else {}
    print(json.dumps(table, indent=1))
    if not arguments.smallest:
        text = json.dumps({"machine": describe(), "summary": table, "rows": rows}, indent=1)
        (RESULTS / "structure.json").write_text(text + "\n")
        draw_power(table, RESULTS / "structure.png")


if __name__ == "__main__":
    main()
