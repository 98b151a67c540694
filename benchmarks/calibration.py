"""Is the stated confidence of a label the probability that it is right? Reliability on planted classes.

On data with known classes, labels of confidence .8 should be right eight times in ten. Compared are the
largest memberships of the tree and of PCC, the confidence of
``trust_``, which is naive Bayes with a temperature times the support of clusters, and naive Bayes with
temperature 1, as if partitions were independent. Reported is the expected calibration error in 15 bins; a
label is right if its cluster is matched with the object's class.

Ensembles: planted labels whose errors are independent, and k-means and other partitions of Gaussian classes
of several overlaps, of the kinds of `accuracy.py`. The number of clusters is that of the classes. Where the
labels do not show the classes, no confidence can tell, so the share of right labels is reported, too.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from accuracy import ensemble_of

from bigcons import PCC, ConsensusTree, plots
from bigcons.datasets import planted_ensemble
from bigcons.metrics import Reliability, reliability, trust
from bigcons.seeding import generator

MODELS = ("tree", "pcc")
Made = tuple[np.ndarray, np.ndarray]
"""Labels (n, M), -1 missing, and classes (n,)."""


def planted(n_objects: int = 3000, n_partitions: int = 60, **options: Any) -> Callable[[int], Made]:
    """Return a recipe of planted labels, by seed."""

    def make(seed: int) -> Made:
        ensemble, classes = planted_ensemble(n_objects, n_partitions, random_state=seed, **options)
        return ensemble.read(0, n_objects), classes

    return make


def blobs(n_classes: int, spread: float, kind: str, shares: Any = None) -> Callable[[int], Made]:
    """Return a recipe of partitions of 2,000 points in Gaussian classes of standard deviation ``spread``.

    They lie in 8 dimensions; the standard deviation of their centers is 1.
    """

    def make(seed: int) -> Made:
        draw = generator(seed, "calibration.blobs", n_classes, int(1000 * spread))
        centers = draw.normal(size=(n_classes, 8))
        p = np.full(n_classes, 1 / n_classes) if shares is None else np.array(shares) / sum(shares)
        classes = draw.choice(n_classes, 2000, p=p)
        classes[:n_classes] = np.arange(n_classes)
        x = centers[classes] + spread * draw.normal(size=(2000, 8))
        return ensemble_of(kind, (x - x.mean(axis=0)) / x.std(axis=0), seed), classes

    return make


CHOOSING: dict[str, Callable[[int], Made]] = {
    "planted": planted(),
    "planted, complete": planted(missing=0.0),
    "planted, 20 partitions": planted(n_partitions=20),
    "planted, noisy": planted(noise=(0.3, 0.7), n_clusters=(2, 8)),
    "5 apart, halves-10": blobs(5, 0.25, "halves-10"),
    "12 overlapping, halves-10": blobs(12, 0.55, "halves-10"),
    "12 overlapping, halves-20": blobs(12, 0.55, "halves-20"),
    "12 overlapping, all-20": blobs(12, 0.55, "all-20"),
    "12 overlapping, sqrt": blobs(12, 0.55, "sqrt"),
    "12 overlapping, useless": blobs(12, 0.55, "useless"),
    "5 far overlapping, halves-10": blobs(5, 0.8, "halves-10"),
}
"""Data on which the constants of `bigcons.metrics.trust` were chosen."""

REPORTING: dict[str, Callable[[int], Made]] = {
    "planted, 3 classes": planted(shares=(0.6, 0.25, 0.15), n_clusters=(2, 6), noise=(0.2, 0.6)),
    "planted, 12 classes": planted(shares=(1 / 12,) * 12, n_clusters=(2, 20), missing=0.3),
    "planted, 40 partitions, hard": planted(n_partitions=40, hard_share=0.3, missing=0.2),
    "8 apart, halves-20": blobs(8, 0.3, "halves-20"),
    "8 overlapping, halves-20": blobs(8, 0.65, "halves-20"),
    "8 overlapping, halves-10": blobs(8, 0.65, "halves-10"),
    "8 overlapping, sqrt": blobs(8, 0.65, "sqrt"),
    "8 overlapping, useless": blobs(8, 0.65, "useless"),
    "15 overlapping, halves-20": blobs(15, 0.5, "halves-20"),
    "15 overlapping, sparse": blobs(15, 0.5, "sparse"),
    "15 overlapping, mixed": blobs(15, 0.5, "mixed"),
    "unequal, halves-20": blobs(7, 0.45, "halves-20", [2.0**-i for i in range(7)]),
}
"""Data on which calibration is reported."""


def stated(labels: np.ndarray, n_clusters: int, seed: int, model: str) -> tuple[Any, dict[str, np.ndarray]]:
    """Return a fitted tree or PCC, and the confidence in its labels (n,) by each way to state it."""
    method = ConsensusTree if model == "tree" else PCC
    pcc = method(n_clusters, random_state=seed, client="serial").fit(labels)
    with (
        patch("bigcons.trust.confidence.independent_share", return_value=1.0),
        patch.object(pcc, "_states_probabilities", False, create=True),
    ):
        plain = trust(labels, pcc, client="serial")
    return pcc, {
        "memberships": pcc.memberships_.max(axis=1),
        "naive Bayes": plain.confidence,
        "trust": pcc.trust_.confidence,
    }


def measured(
    recipes: Mapping[str, Callable[[int], Made]], seeds: int, models: list[str]
) -> list[dict[str, Any]]:
    """Return a row for each recipe, seed and model: errors by way, and the bins of the pooled diagram."""
    rows = []
    for name, make in recipes.items():
        for seed in range(seeds):
            labels, classes = make(seed)
            for model in models:
                pcc, ways = stated(labels, int(classes.max()) + 1, seed, model)
                curves = {way: reliability(classes, pcc, confidence) for way, confidence in ways.items()}
                first = next(iter(curves.values()))
                row = {
                    "data": name,
                    "seed": seed,
                    "model": model,
                    "right": float(np.nansum(first.n_objects * first.accuracy) / first.n_objects.sum()),
                    "temperature": pcc.trust_.temperature,
                    "error": {way: curve.error for way, curve in curves.items()},
                    "bins": {way: binned(curve) for way, curve in curves.items()},
                }
                rows.append(row)
                errors = "  ".join(f"{way} {error:.3f}" for way, error in row["error"].items())
                print(f"{name:<30} {model:<14} right {row['right']:.3f}  error: {errors}", flush=True)
    return rows


def binned(curve: Reliability) -> list[list[float]]:
    """Return objects, summed confidence and right labels of every bin."""
    n = curve.n_objects
    return [[int(a), float(a * b) if a else 0.0, float(a * c) if a else 0.0]
            for a, b, c in zip(n, curve.confidence, curve.accuracy, strict=True)]  # fmt: skip


def pooled(rows: list[dict[str, Any]], way: str) -> Reliability:
    """Return the reliability over the objects of several rows."""
    n, summed, right = np.sum([row["bins"][way] for row in rows], axis=0).T
    with np.errstate(invalid="ignore"):
        return Reliability(
            n.astype(int), summed / n, right / n, float(np.abs(right - summed).sum() / n.sum())
        )


def main() -> None:
    """Measure, print a table, and write results and a picture to ``--out``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--choosing", action="store_true", help="measure on the data for choosing")
    parser.add_argument("--out", type=Path, help="folder for calibration.json and calibration.png")
    parser.add_argument("--smallest", action="store_true", help="one small ensemble, as in CI")
    arguments = parser.parse_args()
    recipes, models, seeds = CHOOSING if arguments.choosing else REPORTING, list(MODELS), arguments.seeds
    if arguments.smallest:
        recipes, models, seeds = {"planted": planted(400, 20, missing=0.2)}, ["pcc"], 1
    rows = measured(recipes, seeds, models)
    ways = list(rows[0]["error"])
    summary = {}
    print(f"\n{'mean (worst) calibration error':<32}" + "".join(f"{way:>18}" for way in ways))
    for model in models:
        of_model = [row for row in rows if row["model"] == model]
        summary[model] = {
            way: {
                "mean": float(np.mean([row["error"][way] for row in of_model])),
                "worst": float(max(row["error"][way] for row in of_model)),
                "pooled": pooled(of_model, way).error,
            }
            for way in ways
        }
        cells = (f"{one['mean']:.3f} ({one['worst']:.3f})" for one in summary[model].values())
        print(f"{model:<32}" + "".join(f"{cell:>18}" for cell in cells))
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
        content = {
            "summary": summary,
            "rows": [{k: v for k, v in row.items() if k != "bins"} for row in rows],
        }
        (arguments.out / "calibration.json").write_text(json.dumps(content, indent=1) + "\n")
        curves = {f"memberships, {model}": pooled([r for r in rows if r["model"] == model], "memberships")
                  for model in models}  # fmt: skip
        for way in ways[1:]:
            of_model = [row for row in rows if row["model"] == models[-1]]
            curves[f"{way}, {models[-1]}"] = pooled(of_model, way)
        plots.reliability(curves).savefig(arguments.out / "calibration.png")


if __name__ == "__main__":
    main()
