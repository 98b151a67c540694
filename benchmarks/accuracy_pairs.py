"""Which model of the co-association finds the classes best from sampled pairs?

The data sets for choosing of `accuracy.py`, six kinds of ensembles each, with the true number of classes: PCC
on 20 and on 60 sampled pairs per object by each model, and over all pairs. Small ensembles that have fewer
pairs are left out. With 2,000 objects at most, 20 per object are one pair in a hundred. A model that PCC
refuses is named and left out.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from accuracy import CHOOSING, kept_ensemble, refusal
from machine import describe

from bigcons import PCC
from bigcons.coassociation import sample
from bigcons.metrics import adjusted_rand

KINDS = ("halves-20", "all-20", "projections", "mixed", "sparse", "useless")
PER_OBJECT = (20, 60)
MODELS: dict[str, dict[str, Any]] = {"paper": {}}
ALL = "paper, all pairs"


def measured(
    data: list[str], kinds: tuple[str, ...], taken: Mapping[str, dict[str, Any]], ensembles: Path | None
) -> Iterator[dict[str, Any]]:
    """Yield a row for each ensemble and number of pairs: the adjusted Rand index by model."""
    for name in data:
        for kind in kinds:
            labels, classes = kept_ensemble(name, kind, 0, ensembles)
            seen, asked = (labels >= 0).any(axis=1), {"random_state": 0, "client": "serial"}
            models = {ALL: PCC(int(classes.max()) + 1, **asked).fit(labels)}
            for per_object in PER_OBJECT:
                if per_object >= len(labels) - 1:
                    continue
                pairs = sample(labels, per_object=per_object, random_state=0)
                for model, parameters in taken.items():
                    pcc = PCC(int(classes.max()) + 1, pairs=pairs, **parameters, **asked)
                    models[model] = pcc.fit(labels)
                found = {
                    model: round(float(adjusted_rand(classes[seen], fitted.labels_[seen])), 4)
                    for model, fitted in models.items()
                }
                yield {"data": name, "kind": kind, "per_object": per_object, "ari": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--smallest", action="store_true", help="one small data set, to see that it runs")
    parser.add_argument("--ensembles", type=Path, help="folder that keeps the ensembles")
    parser.add_argument("-o", "--out", type=Path, help="write the results there as JSON")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    rows, taken = [], dict(MODELS)
    for model, parameters in MODELS.items():
        if reason := refusal("pcc", parameters):
            print(f"{model} left out: {reason}")
            del taken[model]
    data, kinds = (["blobs-5"], KINDS[:1]) if arguments.smallest else (CHOOSING, KINDS)
    for row in measured(data, kinds, taken, arguments.ensembles):
        print(json.dumps(row), flush=True)
        rows.append(row)
    summary: dict[str, Any] = {}
    for per_object in PER_OBJECT:
        found = [row["ari"] for row in rows if row["per_object"] == per_object]
        summary[str(per_object)] = {"ensembles": len(found)} | {
            model: round(float(np.mean([ari[model] for ari in found])), 4) for model in (*taken, ALL)
        }
    print(json.dumps(summary))
    if arguments.out:
        results = {"machine": describe(), "summary": summary, "rows": rows}
        arguments.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
