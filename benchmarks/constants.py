"""What does every constant of the consensus tree decide? Each halved and doubled.

The default is fitted to every ninth ensemble of `accuracy.py`, once given the number of classes and once with
``n_clusters="auto"``, as it is and with one constant changed. A constant that moves nothing in either half of
the data is one too many. Those that kernels have compiled are not among them: `tree_ablation.py` has these.

``--write`` makes results/constants.md. ``--ensembles`` keeps the ensembles; ``--out`` keeps the rows, and an
interrupted run resumes.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from accuracy import GROUPS, KINDS, append, data_at_hand, kept_ensemble, kinds_of
from accuracy_report import read_rows

from bigcons import ConsensusTree, Ensemble
from bigcons.errors import ConsensusWarning
from bigcons.metrics import adjusted_rand

RESULTS = Path(__file__).parent / "results"
TABLE = "constants.md"
CONSTANTS = {
    "bigcons.trust.groups": (
        "N_GROUPS",
        "GROUPS_PER_CLUSTER",
        "N_ROWS",
        "ROWS_PER_GROUP",
        "MOST_GROUPS",
        "MOST_PRODUCTS",
        "ROUNDS",
        "MOST_LABELS",
        "FEWEST_LABELS",
        "THETA",
        "FIRST_GROUPS",
    ),
    "bigcons.trust.n_clusters": ("LEAST_OBJECTS", "HALF_WAY"),
    "bigcons.trust.placement": ("EXTRA",),
}
HALVES = {
    "choosing": [*GROUPS["choosing"], *GROUPS["pools-choosing"]],
    "reporting": [*GROUPS["reporting"], *GROUPS["pools-reporting"], *GROUPS["networks"]],
}
MEASURED = ("given", "auto")
EVERY = 9
"""One in so many ensembles is used."""


@contextmanager
def changed(module: str, name: str, factor: float) -> Iterator[None]:
    """Multiply a constant while this runs, wherever it has been imported by its name."""
    value = getattr(importlib.import_module(module), name)
    holders = [
        holder
        for key, holder in list(sys.modules.items())
        if key.startswith("bigcons.") and getattr(holder, name, None) is value
    ]
    try:
        for holder in holders:
            setattr(holder, name, type(value)(value * factor))
        yield
    finally:
        for holder in holders:
            setattr(holder, name, value)


def measured(labels: np.ndarray, classes: np.ndarray) -> dict[str, float]:
    """Return the accuracy of the default, given the number of classes and not, and the number found."""
    is_labeled = (labels >= 0).any(axis=1)
    n_classes, ensemble = len(np.unique(classes)), Ensemble.from_labels(labels)
    fixed, free = (ConsensusTree(K, random_state=0).fit(ensemble) for K in (n_classes, "auto"))
    return {
        "given": round(float(adjusted_rand(classes[is_labeled], fixed.labels_[is_labeled])), 4),
        "auto": round(float(adjusted_rand(classes[is_labeled], free.labels_[is_labeled])), 4),
        "off": abs(free.n_clusters_ - n_classes) / n_classes,
    }


def keys_of(at_hand: set[str], every: int) -> list[tuple[str, str]]:
    """Return the data sets and kinds of the ensembles that are used, of both halves alike."""
    keys = []
    for names in HALVES.values():
        kinds = [(name, kind) for name in names if name in at_hand for kind in kinds_of(name)]
        keys += kinds[::every]
    return keys


def table_of(rows: list[dict[str, Any]]) -> str:
    """Return the mean of every column, and its difference with each constant halved and doubled."""
    scores: dict[tuple[str, float], dict[tuple[str, str], dict[str, Any]]] = {}
    for row in rows:
        scores.setdefault((row["constant"], row["factor"]), {})[row["data"], row["kind"]] = row
    default = scores["", 1.0]
    columns = [
        (half, what, [key for key in default if key[0] in names])
        for half, names in HALVES.items()
        for what in MEASURED
    ]
    columns = [column for column in columns if column[2]]

    def mean(run: dict[tuple[str, str], dict[str, Any]], what: str, keys: list[tuple[str, str]]) -> float:
        return float(np.mean([run[key][what] for key in keys]))

    heads = [f"{half} ({len(keys)}), K {what}" for half, what, keys in columns]
    lines = ["| constant | times | " + " | ".join([*heads, "differ"]) + " |", "|---" * (len(heads) + 3) + "|"]
    cells = [f"{mean(default, what, keys):.3f}" for _, what, keys in columns]
    lines.append("| the default | | " + " | ".join([*cells, ""]) + " |")
    for (name, factor), run in scores.items():
        if name and run.keys() >= default.keys():
            cells = [f"{mean(run, what, keys) - mean(default, what, keys):+.3f}" for _, what, keys in columns]
            n_differ = sum(run[key][what] != row[what] for key, row in default.items() for what in MEASURED)
            lines.append(f"| `{name}` | {factor:g} | " + " | ".join([*cells, str(n_differ)]) + " |")
    return "\n".join(lines) + "\n"


INTRODUCTION = """# What the constants of the consensus tree decide

Mean adjusted Rand index of `ConsensusTree`, given the number of classes and with `n_clusters="auto"`, and
what this changes by when one constant is halved or doubled (`benchmarks/constants.py`; number of ensembles in
brackets); the last column counts the fits that differ at all.

"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--smallest", action="store_true", help="one ensemble and constant, to see that it runs"
    )
    parser.add_argument("--ensembles", type=Path, help="folder that keeps the ensembles")
    parser.add_argument("--out", type=Path, help="JSON lines, one a fit")
    parser.add_argument("--write", action="store_true", help=f"write results/{TABLE}")
    arguments = parser.parse_args()
    keys = keys_of(data_at_hand(), EVERY)
    varied = [
        (module, name, factor) for module, part in CONSTANTS.items() for name in part for factor in (0.5, 2.0)
    ]
    if arguments.smallest:
        keys, varied = [("iris", KINDS[0])], varied[:2]
    rows = read_rows(arguments.out)
    done = {(row["constant"], row["factor"], row["data"], row["kind"]) for row in rows}
    warnings.simplefilter("ignore", ConsensusWarning)
    for module, name, factor in [("bigcons", "", 1.0), *varied]:
        for data, kind in keys:
            if (name, factor, data, kind) in done:
                continue
            labels, classes = kept_ensemble(data, kind, 0, arguments.ensembles)
            row = {"constant": name, "factor": factor, "data": data, "kind": kind}
            if name:
                with changed(module, name, factor):
                    row |= measured(labels, classes)
            else:
                row |= measured(labels, classes)
            rows.append(row)
            if arguments.out:
                append(arguments.out, row)
    table = table_of(rows)
    print(table)
    if arguments.write:
        (RESULTS / TABLE).write_text(INTRODUCTION + table, encoding="utf-8")


if __name__ == "__main__":
    main()
