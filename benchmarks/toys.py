"""Are methods right on a few objects, where anybody sees the answer?

Ensembles of 4 to 30 objects in 2 to 5 classes, of a lone object or more, and 3 to 12 partitions, which are
the classes with their names exchanged: `exact`; with one label in ten, or one in five, replaced by any; or
`merged`, of 3 classes or more, every partition with two of them in one cluster, so that none has the answer.
The number of classes is given. The adjusted Rand index with the classes is a mean over the ensembles.
`tree, errors alike` is the tree by which objects that err are as frequent in clusters as others.

Writes results/toys.json.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from unittest.mock import patch

import numpy as np
from machine import describe

from bigcons import consensus
from bigcons.metrics import adjusted_rand
from bigcons.seeding import generator
from bigcons.trust import groups

METHODS = ("tree", "tree, errors alike", "pcc", "hbgf", "cspa", "mcla", "qmi", "kcc", "eac-average")
NOISE = {"exact": 0.0, "one in ten": 0.1, "one in five": 0.2}


def toy(kind: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels (n, M) and the classes (n,) of an ensemble."""
    draw = generator(seed, f"toys.{kind}")
    n, M = int(draw.integers(6 if kind == "merged" else 4, 31)), int(draw.integers(3, 13))
    K = int(draw.integers(3 if kind == "merged" else 2, min(5, n // 2) + 1))
    shares = draw.dirichlet(np.ones(K))
    classes = draw.permutation(np.append(np.arange(K), draw.choice(K, n - K, p=shares)))
    labels = np.empty((n, M), np.int64)
    for u in range(M):
        names = draw.permutation(K)
        if kind == "merged":
            names[draw.integers(K)] = names[draw.integers(K)]
        labels[:, u] = names[classes]
    is_error = draw.random((n, M)) < NOISE.get(kind, 0.0)
    return np.where(is_error, draw.integers(K, size=(n, M)), labels), classes


def score(method: str, labels: np.ndarray, classes: np.ndarray) -> float:
    """Return the adjusted Rand index of a method, told the number of classes."""
    name, _, variant = method.partition(", ")
    alike = dict.fromkeys(groups.ERROR_RATES, 1.0)
    with patch.object(groups, "ERROR_RATES", alike if variant else groups.ERROR_RATES):
        model = consensus(labels, int(classes.max()) + 1, name, random_state=0, client="serial")
    return float(adjusted_rand(classes, model.labels_))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--smallest", action="store_true", help="two ensembles of each kind, not stored")
    parser.add_argument("--seeds", type=int, default=100, help="ensembles of each kind")
    arguments = parser.parse_args()
    seeds = range(2 if arguments.smallest else arguments.seeds)
    warnings.simplefilter("ignore")
    means: dict[str, dict[str, float]] = {method: {} for method in METHODS}
    for kind in (*NOISE, "merged"):
        toys = [toy(kind, seed) for seed in seeds]
        for method in METHODS:
            means[method][kind] = round(float(np.mean([score(method, *each) for each in toys])), 4)
            print(f"{method:<20}{kind:<14}{means[method][kind]:.3f}", flush=True)
    if not arguments.smallest:
        facts = {"machine": describe(), "ensembles": len(seeds), "ari": means}
        path = Path(__file__).parent / "results" / "toys.json"
        path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
