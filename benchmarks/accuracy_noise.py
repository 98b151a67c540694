"""What shortfall does noise alone give? Contenders of accuracy.py against themselves.

The shortfall of `accuracy.py` is from the best of many contenders, for each ensemble another. Contenders that
were equally good would have one, too, for their results differ by chance. So each contender here is run on an
ensemble many times over, and the best of its results is compared with their mean: from other random states,
and in addition on as many partitions drawn with replacement.

The data sets are those of the choosing half. Rows are kept in results/accuracy_noise.json, from which
`accuracy_report.py` makes a paragraph; an interrupted run resumes.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from accuracy import CHOOSING, KINDS, PLANTED, Solver, contenders, kept_ensemble, taking_part

from bigcons.metrics import adjusted_rand
from bigcons.seeding import generator

CONTENDERS = ("tree", "pcc", "hbgf", "scaled SVD")
REPEATS = 20


def repeated(
    labels: np.ndarray, classes: np.ndarray, solve: Solver, repeats: int, draw: np.random.Generator | None
) -> list[float]:
    """Return the adjusted Rand indices from other random states, with ``draw`` of partitions drawn again."""
    scores = []
    for state in range(repeats):
        sample = labels if draw is None else labels[:, draw.integers(labels.shape[1], size=labels.shape[1])]
        clusters, _ = solve(sample, int(classes.max()) + 1, state)
        is_labeled = (sample >= 0).any(axis=1)
        scores.append(round(float(adjusted_rand(classes[is_labeled], clusters[is_labeled])), 4))
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--smallest", action="store_true", help="one small data set, to see that it runs")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--contenders", nargs="+", default=CONTENDERS)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS, metavar="KIND")
    parser.add_argument("--ensembles", type=Path, help="folder that keeps the ensembles")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "accuracy_noise.json")
    arguments = parser.parse_args()
    names, kinds, repeats = list(arguments.contenders), arguments.kinds, arguments.repeats
    data = [name for name in CHOOSING if name in PLANTED or os.environ.get("BIGCONS_DATA")]
    if arguments.smallest:
        data, kinds, repeats, names = ["blobs-5"], ["halves-10"], 2, ["scaled SVD"]
    warnings.simplefilter("ignore")
    solvers = taking_part(contenders(None), names)
    is_kept = not arguments.smallest and arguments.out.exists()
    rows: list[dict[str, Any]] = json.loads(arguments.out.read_text()) if is_kept else []
    done = {(row["data"], row["kind"], row["contender"]) for row in rows}
    for kind in kinds:
        for name in data:
            for contender, solve in solvers.items():
                if (name, kind, contender) in done:
                    continue
                inputs = *kept_ensemble(name, kind, 0, arguments.ensembles), solve, repeats
                row = {"data": name, "kind": kind, "contender": contender}
                row["states"] = repeated(*inputs, None)
                row["drawn"] = repeated(*inputs, generator(0, f"accuracy.noise.{name}.{kind}"))
                rows.append(row)
                if not arguments.smallest:
                    lines = ",\n".join(json.dumps(row) for row in rows)
                    arguments.out.write_text(f"[\n{lines}\n]\n")
    for row in rows:
        spread = {what: max(row[what]) - float(np.mean(row[what])) for what in ("states", "drawn")}
        print(row["data"], row["kind"], row["contender"], {k: round(v, 4) for k, v in spread.items()})


if __name__ == "__main__":
    main()
