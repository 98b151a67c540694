"""Does "auto" recommend the same number of clusters for other partitions of the same data?

For each set of `features_data.py`, real ones and shapes, of at most 3,000 objects, five default ensembles of
other random states are made, and `choose_n_clusters` recommends a number for each. By
`NClustersChoice.runner_up_share` of the numbers that stand out, the table in ``results/`` says how often
another ensemble of the set has the same number.

``--smallest`` repeats iris twice and stores nothing.
"""

from __future__ import annotations

import argparse
import json
import warnings
from itertools import pairwise
from typing import Any

import numpy as np
from features import RESULTS, scaled
from features_data import REAL, SHAPES, at_hand, read, shape
from machine import describe

import bigcons as bc

MOST, SEEDS, EDGES = 3000, 5, (0.0, 0.4, 0.6, 0.8, 1.01)


def choices(name: str, n_seeds: int) -> list[dict[str, Any]]:
    """Return the choice for each of ``n_seeds`` ensembles of a set."""
    features = scaled(shape(name) if name in SHAPES else read(name))
    if len(features) > MOST:
        features = features[np.random.default_rng(0).permutation(len(features))[:MOST]]
    rows = []
    for seed in range(n_seeds):
        ensemble = bc.generate.mixed(features, random_state=seed, standardize=False)
        choice = bc.choose_n_clusters(ensemble, random_state=seed)
        share = round(choice.runner_up_share, 3)
        rows.append(
            {"set": name, "n_clusters": choice.n_clusters, "is_clear": choice.is_clear, "share": share}
        )
    return rows


def table_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return, by the share of the runner-up, how many choices are clear and how often others are the same."""
    table = []
    for low, high in pairwise(EDGES):
        chosen = [row for row in rows if row["is_clear"] and low <= row["share"] < high]
        others = [
            [o["n_clusters"] for o in rows if o["set"] == row["set"] and o is not row] for row in chosen
        ]
        same = [
            np.mean(np.array(numbers) == row["n_clusters"])
            for row, numbers in zip(chosen, others, strict=True)
        ]
        mean = round(float(np.mean(same)), 3) if same else None
        table.append({"from": low, "to": min(high, 1.0), "choices": len(chosen), "same": mean})
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--smallest", action="store_true", help="iris, two ensembles, not stored")
    smallest = parser.parse_args().smallest
    warnings.simplefilter("ignore")
    names = ["iris"] if smallest else [*(name for name in REAL if name in at_hand()), *SHAPES]
    rows = [row for name in names for row in choices(name, 2 if smallest else SEEDS)]
    table = table_of(rows)
    print(*table, sep="\n")
    if not smallest:
        facts = {"machine": describe(), "by_share": table, "choices": rows}
        (RESULTS / "repeated_numbers.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
