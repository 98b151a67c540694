"""Where does the time of a fit go?

A planted ensemble of a million objects and 100 partitions of 2 to 20 clusters, half of the labels missing, in
a store, is read once, bare, and then solved by the tree and by PCC, warm, with results in memory. Reports the
seconds of each task, and of what is between them, and how many bare reads they are. Writes
``results/phases.json``.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

from machine import describe

from bigcons import PCC, ConsensusTree, Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.memory import Block
from bigcons.progress import Progress, report_progress_to
from bigcons.run.engine import ThreadsEngine

RESULTS = Path(__file__).parent / "results"


class Phases:
    """The seconds of tasks by name, without those of the tasks within them."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.running: list[str] = []

    def listener(self) -> Progress:
        """Return a listener of a task."""
        return Phase(self)


class Phase(Progress):
    """Adds the seconds of a task to those of all."""

    def __init__(self, phases: Phases) -> None:
        self.phases = phases

    def start(self, what: str, total: int, unit: str) -> None:  # noqa: ARG002
        """Begin a task."""
        self.began = time.perf_counter()
        self.phases.running.append(what)

    def finish(self) -> None:
        """End the task."""
        seconds, running = time.perf_counter() - self.began, self.phases.running
        self.phases.seconds[running.pop()] += seconds
        if running:
            self.phases.seconds[running[-1]] -= seconds


def seconds_of_read(ensemble: Ensemble) -> float:
    """Return the seconds of a bare read of all blocks, the least of three."""

    def read(block: Block) -> int:
        return len(ensemble.read(block.start, block.stop))

    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        for _ in ThreadsEngine().map(read, ensemble.blocks()):
            pass
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def main() -> None:
    """Measure both methods."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument(
        "--smallest", action="store_true", help="check that it runs; the numbers mean nothing"
    )
    parser.add_argument(
        "-o", "--out", type=Path, help="write the results there; default with --smallest nowhere"
    )
    options = parser.parse_args()
    n, M = (2_000, 10) if options.smallest else (options.objects, 100)
    warnings.simplefilter("ignore")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        ensemble = planted_ensemble(n, M, n_clusters=(2, 20))[0].save(f"{folder}/ensemble.zarr")
        small, _ = planted_ensemble(2_000, M, n_clusters=(2, 20))
        read = seconds_of_read(ensemble)
        for method in (ConsensusTree, PCC):
            method(6, random_state=0).fit(small)  # compiles
            phases = Phases()
            began = time.perf_counter()
            with report_progress_to(phases.listener):
                method(6, random_state=0).fit(ensemble)
            whole = time.perf_counter() - began
            between = whole - sum(phases.seconds.values())
            for phase, seconds in [*phases.seconds.items(), ("between them", between), ("in all", whole)]:
                row = {"method": method.__name__, "phase": phase, "seconds": seconds, "reads": seconds / read}
                rows.append(row)
                print(f"{method.__name__:14} {phase:28} {seconds:7.2f} s {row['reads']:6.1f} reads")
    measured = {"machine": describe(), "n_objects": n, "n_partitions": M, "read_seconds": read, "rows": rows}
    if out := options.out or (None if options.smallest else RESULTS / "phases.json"):
        out.write_text(json.dumps(measured, indent=1) + "\n")


if __name__ == "__main__":
    main()
