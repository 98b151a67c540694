"""PCC with a calibrated co-association beside that of the paper: accuracy, passes over all data, seconds.

Large: a million points of 12 Gaussian classes in 16 dimensions, 100 k-means partitions of 2 to 20 clusters,
of all objects or of random halves; three million planted objects, half of their labels missing, and 120,000
with all labels and with half of them, 100 partitions each. Ordinary: four data sets by every kind of ensemble
of `accuracy.py`. The number of clusters is that of the classes. Seconds count reading.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from accuracy import KINDS, kept_ensemble
from machine import describe
from scale import plant

from bigcons import PCC, Ensemble, generate
from bigcons.datasets import planted_ensemble
from bigcons.metrics import adjusted_rand
from bigcons.seeding import generator

MODELS: dict[str, dict[str, str]] = {"paper": {}, "calibrated": {"coassociation": "calibrated"}}
DATA = ("breast-cancer", "digits", "isolet", "pendigits")
Made = tuple[Any, np.ndarray]
"""An ensemble, and the classes (n,)."""


def gaussian(n_objects: int, sample: float, folder: Path) -> Made:
    """Return k-means partitions of separated Gaussian classes, from ``folder`` if they were made before."""
    draw = generator(0, "cases.gaussian", n_objects)
    centers = draw.normal(size=(12, 16)).astype(np.float32)
    classes = draw.integers(12, size=n_objects)
    path = folder / f"gaussian-{n_objects}-{sample}.zarr"
    if not path.exists():
        x = centers[classes] + np.float32(0.25) * draw.normal(size=(n_objects, 16)).astype(np.float32)
        generate.kmeans(x, n_partitions=100, n_clusters=(2, 20), sample=sample, random_state=0, out=path)
    return Ensemble.open(path), classes


def stored(n_objects: int, folder: Path) -> Made:
    """Return planted labels in a store, half of them missing."""
    path, truth = plant(n_objects, folder)
    return Ensemble.open(path), np.load(truth)


def large(scale: float, folder: Path) -> Iterator[tuple[str, Callable[[], Made]]]:
    """Yield the name of each large case, and a function that makes it."""
    million, planted = int(1e6 * scale), int(120_000 * scale)
    for name, sample in (("complete", 1.0), ("half missing", 0.5)):
        yield f"{million:,} Gaussian, {name}", lambda sample=sample: gaussian(million, sample, folder)
    yield f"{3 * million:,} planted, half missing", lambda: stored(3 * million, folder)
    for name, missing in (("complete", 0.0), ("half missing", 0.5)):
        yield (
            f"{planted:,} planted, {name}",
            lambda missing=missing: planted_ensemble(planted, missing=missing, random_state=0),
        )


def measured(name: str, made: Made, model: str, seed: int) -> dict[str, Any]:
    """Return one row: a case solved by one model."""
    ensemble, classes = made
    ensemble = ensemble if isinstance(ensemble, Ensemble) else Ensemble.from_labels(ensemble)
    n_classes, began = np.unique(classes).size, time.perf_counter()
    pcc = PCC(n_classes, random_state=seed, **MODELS[model]).fit(ensemble)
    seconds, labels = time.perf_counter() - began, np.asarray(pcc.labels_)
    seen = labels >= 0
    return {
        "case": name,
        "model": model,
        "seed": seed,
        "classes": int(n_classes),
        "clusters": int(pcc.n_clusters_),
        "ARI": round(float(adjusted_rand(np.asarray(classes)[seen], labels[seen])), 4),
        "passes": int(pcc.n_passes_),
        "seconds": round(seconds, 2),
    }


def table_of_large(rows: list[dict[str, Any]]) -> list[str]:
    """Return the table of the large cases in Markdown, both models beside each other; means over seeds."""
    lines = ["| case | ARI, paper | ARI, calibrated | passes | seconds |", "|---|---|---|---|---|"]
    cases = dict.fromkeys(row["case"] for row in rows if " / " not in row["case"])
    for case in cases:
        of_model = [[r for r in rows if (r["case"], r["model"]) == (case, model)] for model in MODELS]
        mean = {what: [np.mean([r[what] for r in part]) for part in of_model] for what in ("ARI", "seconds")}
        most = [max(r["passes"] for r in part) for part in of_model]
        lines.append(
            f"| {case} | {mean['ARI'][0]:.3f} | **{mean['ARI'][1]:.3f}** | {most[0]}, {most[1]} | "
            f"{mean['seconds'][0]:.0f}, {mean['seconds'][1]:.0f} |"
        )
    return lines if cases else []


def table_of_ordinary(rows: list[dict[str, Any]]) -> list[str]:
    """Return the table of the data sets by kinds of ensembles in Markdown: ARI of paper, calibrated."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for row in rows:
        if " / " in row["case"]:
            found.setdefault((*row["case"].split(" / "), row["model"]), []).append(row["ARI"])
    names = list(dict.fromkeys(key[0] for key in found))
    lines = [f"| partitions | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"] if names else []
    for kind in dict.fromkeys(key[1] for key in found):
        cells = [", ".join(f"{np.mean(found[name, kind, model]):.2f}" for model in MODELS)
                 for name in names if (name, kind, "calibrated") in found]  # fmt: skip
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--smallest", action="store_true", help="a run of seconds that shows it works")
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of objects of large cases")
    parser.add_argument("--seeds", type=int, default=1, help="of the solves, from 0 on")
    parser.add_argument("--data", nargs="*", default=list(DATA), help="data sets, needs BIGCONS_DATA")
    parser.add_argument("--no-large", action="store_true", help="only the data sets")
    parser.add_argument("--folder", type=Path, default=Path("cases"), help="keeps the large ensembles")
    parser.add_argument("--ensembles", type=Path, help="folder that keeps the ensembles of the data sets")
    parser.add_argument("--out", type=Path, help="JSON; rows in it are not measured again")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    cases: list[tuple[str, Callable[[], Made]]] = []
    if given.smallest:
        cases = [("small", lambda: planted_ensemble(400, 20, random_state=0))]
    else:
        for name in given.data:
            cases += [(f"{name} / {kind}", lambda told=(name, kind, 0, given.ensembles): kept_ensemble(*told))
                      for kind in KINDS]  # fmt: skip
        if not given.no_large:
            given.folder.mkdir(parents=True, exist_ok=True)
            cases += large(given.scale, given.folder)
    before = json.loads(given.out.read_text())["rows"] if given.out and given.out.exists() else []
    rows = list(before)
    if not given.smallest:  # kernels are compiled before the first row
        for model in MODELS:
            measured("small", planted_ensemble(400, 20, random_state=0), model, 0)
    done = {(row["case"], row["model"], row["seed"]) for row in rows}
    for name, make in cases:
        asked = [(model, seed) for model in MODELS for seed in range(given.seeds)]
        asked = [one for one in asked if (name, *one) not in done]
        made = make() if asked else None
        for model, seed in asked:
            rows.append(measured(name, made, model, seed))
            print(json.dumps(rows[-1]), flush=True)
        if given.out and asked:
            given.out.write_text(json.dumps({"machine": describe(), "rows": rows}, indent=1) + "\n")
    print("\n".join(["", *table_of_large(rows), "", *table_of_ordinary(rows)]))


if __name__ == "__main__":
    main()
