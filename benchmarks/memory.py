"""Does every method keep to its memory budget?

Every method solves planted ensembles of two sizes, stored and in memory, by threads on all cores and on two
Dask workers, in processes of their own: with the smallest budget that it accepts, then with 2 GB. Meanwhile
the tree of processes is measured: ``at_most``, the sum of the largest resident sizes, by which it is judged,
and ``peak``, the proportional set size, every 50 ms, in which pages that several processes share count once
(also those shared with processes of others, so it is the smaller one). The promise is kept if the peak is at
most ``memory=``, or the solve was refused before it began.

Also reports how much a solve in warm processes adds, against what its plan states besides the processes,
because a plan that states too little could hide in what is set aside for compiling.

    python benchmarks/memory.py --engines threads cluster

Writes results/memory.json, and results/memory.md with a table. ``--smallest`` measures one method on
threads. A promise that is broken ends it with an error.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from machine import describe

RESULTS = Path(__file__).parent / "results"
SIZES = {"small": 20_000, "large": 300_000}
N_PARTITIONS, K = 60, 8
GENEROUS = 2_000_000_000
MOST = 4_000_000_000
"""What needs more is only refused."""
SMALLEST = ("mixture",)

# Of methods that compare all pairs, or all pairs of base clusters, what they do instead with many objects;
# and few sweeps, by which memory does not grow.
PARAMETERS: dict[str, dict[str, Any]] = {
    "supra": {"members": "cspa, hgpa(objective=laplacian), mcla"},
    "hgpa": {"objective": "laplacian"},
    "furthest": {"init": "sampled"},
    "ipc": {"normalize": "all"},
    "bce-gibbs": {"burn_in": 3, "n_samples": 3},
}


# A solve, in a process of its own


def solve(options: dict[str, Any]) -> None:
    """Solve at both sizes with both budgets, and tell the parent when each begins and ends."""
    warnings.simplefilter("ignore")
    import distributed

    from bigcons import Ensemble
    from bigcons.run import survey

    n_bytes = survey.MemoryPlan.n_bytes

    def stating(plan: Any, engine: Any, ensemble: Any) -> int:
        total = n_bytes(plan, engine, ensemble)
        STATED.append(total - survey.process_bytes(engine))
        return total

    survey.MemoryPlan.n_bytes = stating  # type: ignore[method-assign]
    is_cluster = options["engine"] == "cluster"
    cluster = (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
        if is_cluster
        else nullcontext()
    )
    with cluster as workers, workers.get_client() if workers else nullcontext("threads") as client:
        for size, path in options["ensembles"].items():
            ensemble = Ensemble.open(path)
            x = ensemble if options["where"] == "stored" else ensemble.load()
            out = Path(options["out"]) / f"{size}.zarr" if options["where"] == "stored" else None
            budget = 1000
            for _ in range(8):  # refusals of too small a budget say what is needed
                needed = fit(options["method"], x, client, budget, out, is_reported=budget > 1000)
                if needed <= budget or needed > MOST:
                    break
                budget = int(1.02 * needed)
            fit(options["method"], x, client, GENEROUS, out, is_reported=True)


def tell(**facts: Any) -> None:
    """Tell the parent that a solve begins or has ended, and wait until it has noted that."""
    print(json.dumps(facts), flush=True)
    sys.stdin.readline()


STATED: list[float] = []


def fit(method: str, x: Any, client: Any, memory: int, out: Path | None, *, is_reported: bool) -> int:
    """Solve with few passes; return the memory that a refusal states, 0 without one."""
    from bigcons import METHODS
    from bigcons.errors import BigconsError, MemoryBudgetError

    model = METHODS[method](memory=memory, client=client, random_state=0)
    names = model.get_params(deep=False)
    if "features" in names:
        model.set_params(features=np.random.default_rng(0).normal(size=(x.n_objects, 2)))
    few = {"n_clusters": K, "n_init": 1, "max_iter": 2, "tol": 0.0, **PARAMETERS.get(method, {})}
    model.set_params(**{name: value for name, value in few.items() if name in names})
    refused, needed = None, 0
    STATED.clear()
    if is_reported:
        tell(begin=x.n_objects, memory=memory)
    try:
        model.fit(x, out=out, overwrite=True)
    except MemoryBudgetError as error:
        refused, needed = f"MemoryBudgetError: {error}", error.needed or 0
    except BigconsError as error:
        refused = f"{type(error).__name__}: {error}"
    if is_reported and (needed <= memory or memory == GENEROUS):  # else it was only asked what is needed
        tell(end=x.n_objects, memory=memory, refused=refused, stated=max(STATED, default=None))
    return needed


# Measuring, in the parent


class Peak(threading.Thread):
    """Measures a tree of processes until it is over; ``reset`` begins anew."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.root = psutil.Process(pid)
        self.tree: list[psutil.Process] = []
        self.listed = 0.0
        self.n_bytes = 0
        self.is_over = False

    def run(self) -> None:
        while not self.is_over:
            self.look()
            time.sleep(0.05)

    def reset(self) -> int:
        """Forget the peak, also that which the system keeps of every process; return the size now."""
        self.n_bytes = self.listed = 0
        now = self.look()
        for process in self.tree:
            with suppress(OSError):
                Path(f"/proc/{process.pid}/clear_refs").write_text("5")
        return now

    def look(self) -> int:
        """Return the largest proportional set size of the tree so far."""
        if time.monotonic() - self.listed > 1:
            with suppress(psutil.NoSuchProcess):
                self.tree = [self.root, *self.root.children(recursive=True)]
            self.listed = time.monotonic()
        self.n_bytes = max(self.n_bytes, sum(_field(p.pid, "smaps_rollup", "Pss:") for p in self.tree))
        return self.n_bytes

    def resident(self) -> int:
        """Return the sum of the largest resident sizes, which no moment of the tree exceeds."""
        self.listed = 0
        self.look()
        return sum(_field(p.pid, "status", "VmHWM:") for p in self.tree)


def _field(pid: int, file: str, name: str) -> int:
    """Return the bytes that a file of /proc states of a process; 0 if it is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
            if line.startswith(name):
                return 1024 * int(line.split()[1])
    return 0


def measure(options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a record for each solve of a process."""
    command = [sys.executable, __file__, "--solve", json.dumps(options)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, **pipes) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        peak = Peak(child.pid)
        peak.start()
        before = 0
        for line in child.stdout:
            message = json.loads(line)
            if "begin" in message:
                before = peak.reset()
            else:
                yield {
                    **{name: options[name] for name in ("method", "engine", "where")},
                    "n_objects": message["end"],
                    "budget": message["memory"],
                    "peak": peak.look(),
                    "at_most": peak.resident(),
                    "added": peak.n_bytes - before,
                    "stated": message["stated"],
                    "refused": message["refused"],
                }
            child.stdin.write("\n")
            child.stdin.flush()
        peak.is_over = True
        if child.wait():
            yield {
                **{name: options[name] for name in ("method", "engine", "where")},
                "failed": child.returncode,
            }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smallest", action="store_true")
    parser.add_argument("--engines", nargs="*", default=["threads", "cluster"])
    parser.add_argument("--where", nargs="*", default=["stored", "memory"])
    parser.add_argument("--methods", nargs="*")
    parser.add_argument("--solve", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.solve:
        solve(json.loads(flags.solve))
        return
    from bigcons import METHODS

    slow = {"eac-single"}  # a quarter of an hour, whose memory is that of the labels
    methods = list(
        SMALLEST if flags.smallest else flags.methods or [name for name in METHODS if name not in slow]
    )
    kinds = (
        [("threads", "stored")] if flags.smallest else [(e, w) for e in flags.engines for w in flags.where]
    )
    records: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        sizes = {"small": 2000, "large": 20_000} if flags.smallest else SIZES
        SIZES.update(sizes)
        ensembles = store(Path(folder))
        for engine, where in kinds:
            for method in methods:
                info = METHODS[method].info
                if engine == "cluster" and not info.distributed:
                    continue
                options = {
                    "method": method,
                    "engine": engine,
                    "where": where,
                    "ensembles": ensembles,
                    "out": folder,
                }
                for record in measure(options):
                    records.append(record)
                    print(line_of(record), flush=True)
                if not flags.smallest:
                    about = {"machine": describe(), "solves": records}
                    (RESULTS / "memory.json").write_text(json.dumps(about, indent=1))
                    (RESULTS / "memory.md").write_text(table_of(records))
    broken = [record for record in records if is_broken(record)]
    if broken:
        sys.exit("\n".join(["broken:", *map(line_of, broken)]))


def store(folder: Path) -> dict[str, str]:
    """Store an ensemble of each size; return their paths."""
    from bigcons import Ensemble

    rng = np.random.default_rng(0)
    paths = {}
    for size, n_objects in SIZES.items():
        classes = rng.integers(6, size=(n_objects, 1), dtype=np.int8)
        labels = rng.integers(-1, 6, (n_objects, N_PARTITIONS), np.int8)
        labels = np.where(rng.random(labels.shape, np.float32) < 0.5, labels, classes)
        paths[size] = str(folder / f"ensemble-{size}.zarr")
        Ensemble.from_labels(labels).save(paths[size])
    return paths


def is_broken(record: dict[str, Any]) -> bool:
    """Return whether a solve took more than its budget, or ended in anything but a refusal."""
    if "failed" in record:
        return True
    if record["refused"] is not None:
        return not record["refused"].startswith("MemoryBudgetError")
    return record["at_most"] > record["budget"]


def line_of(record: dict[str, Any]) -> str:
    """Return a record in one line."""
    head = f"{record['method']:12} {record['engine']:8} {record['where']:7}"
    if "failed" in record:
        return f"{head} failed with {record['failed']}"
    head += f"{record['n_objects']:>8,} objects"
    if record["refused"] is not None:
        return f"{head} refused with {record['budget'] / 1e6:.0f} MB: {record['refused'][:80]}"
    stated = "-" if record["stated"] is None else f"{record['stated'] / 1e6:.0f}"
    return (
        f"{head} at most {record['at_most'] / 1e6:5.0f} of {record['budget'] / 1e6:5.0f} MB, "
        f"added {record['added'] / 1e6:4.0f} of {stated} stated{'  BROKEN' if is_broken(record) else ''}"
    )


def table_of(records: list[dict[str, Any]]) -> str:
    """Return a table of the largest share of its budget that each method took, by engine and place."""
    kinds = list(dict.fromkeys((r["engine"], r["where"]) for r in records))
    lines = ["| method | " + " | ".join(f"{engine}, {where}" for engine, where in kinds) + " |"]
    lines.append("|---" * (len(kinds) + 1) + "|")
    for method in dict.fromkeys(record["method"] for record in records):
        cells = []
        for kind in kinds:
            of_kind = [r for r in records if (r["method"], r["engine"], r["where"]) == (method, *kind)]
            shares = [r["at_most"] / r["budget"] for r in of_kind if r.get("refused", "") is None]
            n_not = sum(r.get("refused") is not None for r in of_kind)
            refused = f", {n_not} refused" if n_not else ""
            cells.append(f"{max(shares):.0%}{refused}" if shares else ("refused" if of_kind else "-"))
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    n_solved = sum(record.get("refused", "") is None for record in records)
    n_refused = len(records) - n_solved
    n_broken = sum(map(is_broken, records))
    about = (
        "Peak memory of all processes together (the sum of their largest resident sizes, which is at least "
        "the peak of their proportional set size) as a share of `memory=`, the largest "
        f"of {SIZES['small']:,} and {SIZES['large']:,} objects of {N_PARTITIONS} partitions, with the "
        f"smallest budget accepted and with 2 GB. {n_solved} solves, {n_refused} refused before "
        f"they began, {n_broken} above their budget. Made by `python benchmarks/memory.py`."
    )
    return f"{about}\n\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
