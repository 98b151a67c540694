"""What the scripts of the papers share: their data sets, fits, counts of wins, and options.

Features are standardized unless they are asked for raw. Real sets are read from the folder that BIGCONS_DATA
names. Run as a script, this lists the sets.
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
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from machine import describe

from bigcons import Ensemble, as_in_paper
from bigcons.datasets import ce_2d2k, ce_8d5k
from bigcons.errors import ConvergenceWarning
from bigcons.seeding import generator


class Points(NamedTuple):
    """Features (n_objects, n_features), and the classes (n_objects,)."""

    features: np.ndarray
    classes: np.ndarray


def points(features: Any, classes: Any) -> Points:
    """Return features as they are, without columns that do not vary."""
    features = np.asarray(features, dtype=float)
    return Points(features[:, np.ptp(features, axis=0) > 0], np.asarray(classes))


def standardized(raw: Points) -> Points:
    features = raw.features
    return Points((features - features.mean(axis=0)) / features.std(axis=0), raw.classes)


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


def bundled(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return features and classes of a set that scikit-learn brings along, as they are."""
    from sklearn import datasets

    features, classes = getattr(datasets, f"load_{name}")(return_X_y=True)
    return features, classes


def from_sklearn(name: str) -> Points:
    return standardized(points(*bundled(name)))


VOTES = {"y": 1.0, "?": 0.5, "n": 0.0}


def table(name: str, label: int = -1, skip: int = 0, named: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return features and classes of a table, as they are; ``named`` if its first column is not a feature."""
    path = Path(os.environ["BIGCONS_DATA"]) / name
    with gzip.open(path, "rt") as file:
        lines = [line.strip() for line in list(file)[skip:]]
    rows = [line.split("," if "," in line else None) for line in lines if line]
    classes = np.asarray([row.pop(label).strip() for row in rows])
    return np.array([[VOTES.get(v) or float(VOTES.get(v, v)) for v in row[named:]] for row in rows]), classes


def from_file(name: str, label: int = -1, skip: int = 0, named: bool = False) -> Points:
    return standardized(raw_file(name, label, skip, named))


def raw_file(name: str, label: int = -1, skip: int = 0, named: bool = False) -> Points:
    return points(*table(name, label, skip, named))


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
    "iris": lambda: points(*bundled("iris")),
    "wine": lambda: points(*bundled("wine")),
    "wdbc": lambda: points(*bundled("breast_cancer")),
    "glass": lambda: raw_file("glass/glass.data.gz", named=True),
    "house-votes": lambda: raw_file("house-votes-84/house-votes-84.data.gz", label=0),
    "ionosphere": lambda: raw_file("ionosphere/ionosphere.data.gz"),
    "yeast": lambda: some(raw_file("yeast/yeast.data.gz", named=True), 500),
    "segmentation": lambda: raw_file("segmentation/segmentation.data.gz", label=0, skip=5),
    "optdigits-389": lambda: some(raw_file("optdigits/optdigits.tes.gz"), classes=["3", "8", "9"]),
    "covertype": lambda: some(raw_file("covertype_sample/covertype_ramp_test.csv.gz", skip=1), 1000),
    "letters": lambda: some(raw_file("isolet/isolet.csv.gz"), 514, [str(i) for i in range(1, 8)]),
    "pendigits": lambda: some(raw_file("pendigits/pendigits.tra.gz"), 245),
    "pendigits-train": lambda: raw_file("pendigits/pendigits.tra.gz"),
}


@cache
def load(name: str, raw: bool = False) -> Points:
    """Return a data set, standardized or raw."""
    return DATA[name]() if raw else standardized(DATA[name]())


Named = Mapping[str, tuple[str, dict[str, Any]]]


def fitted(method: str, K: int, ensemble: Ensemble, seed: int = 0, **parameters: Any) -> Any:
    """Return the fitted estimator of a method as in its paper, but for the parameters given."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return as_in_paper(method, K, random_state=seed, **parameters).fit(ensemble)


def available(methods: Named) -> Named:
    """Return the methods without those whose partitioner is not installed."""
    modules = {"metis": "pymetis", "km1": "mtkahypar", "cut": "mtkahypar"}
    missing = {option for option, module in modules.items() if find_spec(module) is None}
    return {
        name: (key, parameters)
        for name, (key, parameters) in methods.items()
        if missing.isdisjoint(map(str, as_in_paper(key, **parameters).get_params().values()))
    }


def winners(values: Mapping[str, float], sign: int) -> list[str]:
    """Return the names with the largest value, or the smallest if ``sign`` is -1."""
    best = max(sign * value for value in values.values())
    return [name for name, value in values.items() if sign * value >= best - 1e-9]


def counted(wins: Any) -> dict[str, int]:
    """Return how often each name is among the winners."""
    names = [name for best in wins for name in best]
    return {name: names.count(name) for name in sorted(set(names), key=lambda name: -names.count(name))}


Parts = Mapping[str, Callable[[], dict[str, Any]]]


def run_parts(
    description: str | None, name: str, whole: Callable[[int], Parts], smallest: Parts, n_runs: int
) -> None:
    """Run the parts that the command line asks for, and write each to ``results/NAME.json`` as it ends.

    ``whole`` returns the parts for a number of runs, ``n_runs`` by default.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smallest", action="store_true", help="a few seconds, to see that it runs")
    parser.add_argument("--parts", nargs="+", choices=list(smallest), default=list(smallest))
    parser.add_argument("--runs", type=int, default=n_runs, help="repetitions, where a part has any")
    parser.add_argument("-o", "--out", type=Path, help="write the results there as JSON")
    arguments = parser.parse_args()
    if not arguments.smallest and "BIGCONS_DATA" not in os.environ:
        parser.error("BIGCONS_DATA is not set; set it to the folder of data sets, or use --smallest.")
    parts = smallest if arguments.smallest else whole(arguments.runs)
    default = None if arguments.smallest else Path(__file__).parent / "results" / f"{name}.json"
    out = arguments.out or default
    results: dict[str, Any] = json.loads(out.read_text()) if out and out.exists() else {}
    for part in arguments.parts:
        began = time.process_time()
        table = parts[part]()
        results[part] = {**table, "cpu_seconds": round(time.process_time() - began, 1), "machine": describe()}
        if out:
            out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smallest", action="store_true", help="accepted as in the benchmarks")
    parser.parse_args()
    print(*DATA, sep="\n")
