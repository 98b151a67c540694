"""Do speed, memory and accuracy stay what they were? A small set, run every night, with a history of commits.

Each case of `CASES` runs in a process of its own on planted objects in 50 partitions, half of the labels
missing, which has solved a small ensemble before: seconds, peak memory, adjusted Rand index with the truth.
What is refused or fails is a row that says why. A run adds one line to ``results/nightly.jsonl``, with its
commit, date, machine and load, and draws every case over the commits in ``nightly.png``; rows that differ
from the median of the last ten runs on such a machine by more than `APART` are told. About two minutes.

    python benchmarks/nightly.py            # such as from cron, at the newest commit
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
from machine import describe
from scale import measured_child, plant

RESULTS = Path(__file__).parent / "results"
N_PARTITIONS = 50
MEMORY = "1GB"
APART = {"seconds": 0.25, "peak": 0.1, "ARI": 0.01}
"""Share by which seconds and peak memory may differ from before, and the difference of the index."""
CASES: dict[str, tuple[str, int]] = {
    **{name: (name, 1_000_000) for name in ("tree", "eac-groups", "kcc", "mixture", "hbgf", "mcla", "best")},
    **{name: (name, 200_000) for name in ("pcc", "bce")},
    "eac-average": ("eac-average", 5_000),
    "choose the number": ("choose_n_clusters", 200_000),
    "generate k-means": ("generate", 200_000),
    "dense pcc of many objects": ("pcc(pairs=dense)", 200_000),
}
"""What is called, and with how many objects; the last is to be refused."""


def run(what: str, n_objects: int, store: str, truth: str) -> dict[str, Any]:
    """Run a case in this process, the child."""
    import bigcons as bc
    from bigcons.datasets import planted_ensemble, planted_features

    warnings.simplefilter("ignore")
    classes = np.load(truth)
    if what == "generate":
        features, classes = planted_features(n_objects, 8, random_state=0)

        def call(x: Any) -> Any:
            return bc.generate.kmeans(x, n_partitions=N_PARTITIONS, memory=MEMORY, random_state=0)

        small, full = features[:2_000], features
    elif what == "choose_n_clusters":

        def call(x: Any) -> Any:
            return bc.choose_n_clusters(x, memory=MEMORY, random_state=0)

        small, full = planted_ensemble(2_000, N_PARTITIONS, random_state=0)[0], store
    else:
        name, _, options = what.partition("(pairs=")

        def call(x: Any) -> Any:
            parameters = {"pairs": options[:-1]} if options else {}
            return bc.METHODS[name](6, memory=MEMORY, random_state=0, **parameters).fit(x)

        small, full = planted_ensemble(2_000, N_PARTITIONS, random_state=0)[0], store
    try:
        call(small)
        began = time.perf_counter()
        result = call(full)
    except bc.errors.BigconsError as error:
        return {"refused": f"{type(error).__name__}: {error}"[:200]}
    row = {"seconds": round(time.perf_counter() - began, 3)}
    if hasattr(result, "labels_"):
        row["ARI"] = round(bc.metrics.adjusted_rand(classes, result.labels_), 4)
    return row


def run_all(cases: list[str], size: float, folder: Path) -> list[dict[str, Any]]:
    """Return a row for each case, with ``size`` times its number of objects."""
    rows = []
    for case in cases:
        what, n_objects = CASES[case]
        n = int(n_objects * size)
        store, truth = plant(n, folder, N_PARTITIONS)
        try:
            record = measured_child(["--child", what, str(n), str(store), str(truth)], __file__)
        except SystemExit as error:
            record = {"failed": str(error)}
        row = {"case": case, "n_objects": n, **record}
        if "seconds" in row:
            row["peak"] = row.pop("peak_memory")
        print(json.dumps(row), flush=True)
        rows.append(row)
    return rows


def changes(history: list[dict[str, Any]]) -> list[str]:
    """Return what the last run has that differs from those before it on such a machine, in words."""
    last = history[-1]
    before = [run for run in history[:-1] if run["machine"]["processor"] == last["machine"]["processor"]][
        -10:
    ]
    lines = []
    for row in last["rows"]:
        earlier = [run_row for run in before for run_row in run["rows"] if run_row["case"] == row["case"]]
        if earlier and ("seconds" in row) != ("seconds" in earlier[-1]):
            lines.append(f"{row['case']}: {row.get('refused') or row.get('failed') or 'no longer refused'}")
        for name, apart in APART.items():
            values = [run_row[name] for run_row in earlier if name in run_row]
            if not values or name not in row:
                continue
            middle = statistics.median(values)
            if abs(row[name] - middle) > apart * (1 if name == "ARI" else middle):
                lines.append(f"{row['case']}: {name} {row[name]:g}, before {middle:g}")
    return lines


def draw(history: list[dict[str, Any]], path: Path) -> None:
    """Draw seconds, memory and accuracy of every case over the commits; list what was not measured."""
    from matplotlib.ticker import LogLocator

    from bigcons.plots import PALETTE, new_figure

    cases = [case for case in CASES if any(row["case"] == case for run in history for row in run["rows"])]
    commits = [run["commit"] for run in history]
    with new_figure(max(7.0, 0.25 * len(commits) + 4), 7.0) as figure:
        panels = figure.subplots(3, 1, sharex=True)
        for axes, name in zip(panels, APART, strict=True):
            for number, case in enumerate(cases):
                points = [
                    (x, row[name] / (1e9 if name == "peak" else 1))
                    for x, run in enumerate(history)
                    for row in run["rows"]
                    if row["case"] == case and name in row
                ]
                if points:
                    style = {"color": PALETTE[number % len(PALETTE)], "marker": "os"[number // len(PALETTE)]}
                    axes.plot(*zip(*points, strict=True), label=case, markersize=3, linewidth=1, **style)
            axes.set_ylabel({"peak": "peak memory, GB", "ARI": "adjusted Rand index"}.get(name, name))
            axes.grid(color="#DDDDDD", linewidth=0.6)
        panels[0].set_yscale("log", subs=[])
        panels[0].yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panels[0].yaxis.set_major_formatter("{x:g}")
        panels[-1].set_xticks(range(len(commits)))
        panels[-1].set_xticklabels(commits, rotation=90, fontsize=7)
        missed = [
            shorten(f"{row['case']}: {row.get('refused') or row['failed']}", 100, placeholder=" ...")
            for row in history[-1]["rows"]
            if "seconds" not in row
        ]
        figure.supxlabel("\n".join(["Not measured:", *missed] if missed else ["commit"]), fontsize=7)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
        figure.savefig(path)


def commit() -> str:
    """Return the commit that is checked out, with a plus where files differ from it."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        name = subprocess.run(
            [*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
        )
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD"], check=False).returncode
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return name.stdout.strip() + "+" * bool(changed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--smallest", action="store_true", help="a small case, into a temporary history")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--history", type=Path, default=RESULTS / "nightly.jsonl")
    parser.add_argument("--draw", action="store_true", help="draw the stored history again")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        what, n_objects, store, truth = arguments.child
        print(json.dumps(run(what, int(n_objects), store, truth)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        size = 1.0
        if arguments.smallest:
            arguments.history, size = folder / "nightly.jsonl", 0.01
            arguments.cases = ["best"]
        if not arguments.draw:
            about = {"commit": commit(), "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M}", "machine": describe()}
            about["load"] = round(os.getloadavg()[0], 1)  # more than cores: other programs slow this one down
            line = json.dumps(about | {"rows": run_all(arguments.cases, size, folder)})
            with arguments.history.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        lines = arguments.history.read_text(encoding="utf-8").splitlines()
        history = [json.loads(line) for line in lines]
        draw(history, arguments.history.with_suffix(".png"))
    print("\n".join(changes(history)) or "nothing differs from the runs before")


if __name__ == "__main__":
    main()
