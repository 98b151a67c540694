"""Does anything leak, linger or change while solves are killed and workers die?

An ensemble on disk is solved, grown by `append_objects`, solved again, and once more; then all begins anew.
Each solve is begun by ``bigcons solve`` in a process of its own, which is killed (SIGKILL) at a random
moment, and finished by this process, which makes the same call. Both use one Dask cluster, of whose two
workers one is killed every few seconds, whatever it does. At the end

- every result has the bits of a quiet run on threads,
- nothing is left next to the stores or in the folder for temporary files,
- no process lives that was started here,
- the memory that this process has to itself (anonymous pages) does not grow with the solves, beyond a
  megabyte per solve or three standard errors of the slope, the larger of the two; nor do its open files
  and threads.

Half an hour on two million objects, in the folder for temporary files (TMPDIR):

    python benchmarks/soak.py

Anything else than the above makes it end with status 1. ``--smallest`` is one solve, killed and finished.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import hashlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from machine import describe

from bigcons import PCC, Consensus, Ensemble
from bigcons.datasets import planted_blocks
from bigcons.errors import ExecutionError, InvalidInputError

RESULTS = Path(__file__).parent / "results" / "soak.json"
MARK = "BIGCONS_SOAK"
"""Environment variable by which the processes started here are known."""
SHARES = (0.8, 0.9, 1.0)
"""The share of the objects that are there at each solve of a round."""
N_PARTITIONS, N_CLUSTERS, SEED = 20, 6, 0
LEAK_MB = 1.0
MOST_STOPS = 20
"""Errors of one solve that name lost workers, after each of which the call is repeated."""


def model_on(client: str, tol: float) -> PCC:
    return PCC(N_CLUSTERS, tol=tol, random_state=SEED, client=client)


def bits_of(path: Path) -> str:
    """Return the digest of labels and memberships."""
    solved = Consensus.open(path)
    digest = hashlib.sha256(np.ascontiguousarray(solved.labels))
    for block in solved.blocks():
        digest.update(np.ascontiguousarray(solved.read_memberships(block.start, block.stop)))
    return digest.hexdigest()


class Growing:
    """An ensemble on disk that grows from stage to stage."""

    def __init__(self, n_objects: int, path: Path, chunk_rows: int | None) -> None:
        self.path, self.chunk_rows = path, chunk_rows
        self.sizes = [int(share * n_objects) for share in SHARES]
        self.recipe = planted_blocks(
            n_objects, N_PARTITIONS, noise=(0.3, 0.6), missing=0.3, random_state=SEED
        )

    def grow(self, stage: int) -> None:
        if stage == 0:
            first = Ensemble.from_labels(self.recipe.read(0, self.sizes[0])[0])
            first.save(self.path, chunk_rows=self.chunk_rows, overwrite=True)
        else:
            labels, _ = self.recipe.read(self.sizes[stage - 1], self.sizes[stage])
            Ensemble.open(self.path, mode="a").append_objects(labels)


# The cluster


class Cluster:
    """A LocalCluster in a process of its own, in which `serve` kills workers until its input ends."""

    def __init__(self, seconds: float, folder: Path) -> None:
        command = [sys.executable, __file__, "--serve", str(seconds)]
        with (folder / "cluster").open("w") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder
            )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        if not self.address:
            raise RuntimeError(f"the cluster does not start: {(folder / 'cluster').read_text()[-2000:]}")

    def close(self) -> list[bool]:
        """End it; return of every worker that was killed whether it was busy."""
        return [line == "busy" for line in self.process.communicate()[0].splitlines()]


def serve(seconds: float) -> None:
    """Run a cluster until standard input ends; once both workers are there, kill one from time to time.

    Prints the address, and then of every worker that it kills whether that was busy.
    """
    import dask
    import distributed

    rng = np.random.default_rng(SEED)
    # Dask gives up a worker that takes longer to come back
    dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"})
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", protocol="tcp"
    ) as cluster:
        print(cluster.scheduler_address, flush=True)
        while not select.select([sys.stdin], [], [], rng.uniform(0.5, 1.5) * seconds)[0]:
            cluster.scale(2)  # for the nannies that failed
            nannies: list[Any] = list(cluster.workers.values())
            states: list[Any] = [cluster.scheduler.workers.get(nanny.worker_address) for nanny in nannies]
            if len(nannies) == 2 and all(states):
                chosen = int(rng.integers(2))
                os.kill(nannies[chosen].pid, signal.SIGKILL)
                print("busy" if states[chosen].processing else "idle", flush=True)


# Solves


def kill_a_solve(
    ensemble: Path, out: Path, address: str, tol: float, seconds: float, rng: np.random.Generator, log: Path
) -> str:
    """Begin a solve in a process of its own and kill it; return when that was.

    That is within ``seconds`` of its first pass or, of one in five, before it.
    """
    snapshot = out.with_name(f"{out.name}.partial") / "snapshot.npz"
    options = f"-k {N_CLUSTERS} --tol {tol} --random-state {SEED} --scheduler {address} -o {out}".split()
    command = [sys.executable, "-m", "bigcons", "solve", str(ensemble), "-m", "pcc", *options]
    with log.open("a") as errors:
        process = subprocess.Popen(command, stdout=errors, stderr=errors)
    if rng.random() < 0.2:
        time.sleep(rng.uniform(0.0, 4.0))
    else:
        while process.poll() is None and not snapshot.exists():
            time.sleep(0.01)
        time.sleep(rng.uniform(0.0, seconds))
    process.kill()
    if process.wait() == 0:
        return "after its end"
    if process.returncode != -signal.SIGKILL:
        raise RuntimeError(f"the solve failed: {log.read_text()[-2000:]}")
    return "in a pass" if snapshot.exists() else "before the first pass"


def finish(ensemble: Path, out: Path, address: str, tol: float, stops: list[str]) -> None:
    """Make the call until it ends; an error of one line about lost workers may stop it."""
    for _ in range(MOST_STOPS):
        try:
            model_on(address, tol).fit(ensemble, out=out)
            return
        except (ExecutionError, InvalidInputError) as error:
            expected = ("died one after another", "does not answer", "scheduler was lost")
            if "\n" in str(error) or not any(words in str(error) for words in expected):
                raise
            stops.append(str(error))
            print(f"stopped: {error}", flush=True)
    raise RuntimeError(f"the solve does not end: {stops[-1]}")


# What is left, and what grows


def let_go() -> None:
    """Return to the system what is free: glibc keeps tens of megabytes per thread, now more, now less."""
    gc.collect()
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def memory_of(process: psutil.Process) -> float:
    """Return megabytes of anonymous pages: others depend on which processes share the same libraries."""
    pages = Path(f"/proc/{process.pid}/smaps_rollup")
    if not pages.exists():
        return float(process.memory_full_info().uss) / 1e6
    (line,) = (line for line in pages.read_text().splitlines() if line.startswith("Anonymous:"))
    return int(line.split()[1]) * 1024 / 1e6


def slope_of(values: list[float]) -> dict[str, float] | None:
    """Return the slope of a line through the values after the first round, and its standard error.

    None of fewer than ten, of which a line says little.
    """
    y = np.array(values[len(SHARES) :])
    if len(y) < 10:
        return None
    x = np.arange(len(y)) - (len(y) - 1) / 2
    slope = float(x @ y / (x @ x))
    residuals = y - y.mean() - slope * x
    return {"slope": slope, "error": float(np.sqrt(residuals @ residuals / (len(y) - 2) / (x @ x)))}


def processes_left(token: str) -> list[psutil.Process]:
    """Return the processes started here that still live, after some time to end."""
    began = time.perf_counter()
    while True:
        left = [process for process in psutil.process_iter() if mark_of(process) == token]
        if not left or time.perf_counter() - began > 30:
            return left
        time.sleep(0.5)


def mark_of(process: psutil.Process) -> str | None:
    try:
        if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
            return None
        return process.environ().get(MARK)
    except (psutil.Error, OSError):
        return None


# The run


def soak(
    n_objects: int, minutes: float, kill_seconds: float, chunk_rows: int | None, tol: float, folder: Path
) -> Any:
    work, temporary, logs = folder / "work", folder / "temporary", folder / "logs"
    for path in (work, temporary, logs):
        path.mkdir(parents=True)
    token = uuid.uuid4().hex
    os.environ.update({MARK: token, "TMPDIR": str(temporary), "DASK_TEMPORARY_DIRECTORY": str(logs)})
    tempfile.tempdir = None
    rng, me = np.random.default_rng(SEED), psutil.Process()
    growing, outs = Growing(n_objects, work / "e.zarr", chunk_rows), [work / f"c{s}.zarr" for s in range(3)]
    n_stages = len(SHARES) if minutes else 1
    quiet, seconds = [], []
    for stage in range(n_stages):
        growing.grow(stage)
        began = time.perf_counter()
        model_on("threads", tol).fit(growing.path, out=outs[stage])
        seconds.append(time.perf_counter() - began)
        quiet.append(bits_of(outs[stage]))
        print(f"quiet solve of {growing.sizes[stage]:,} objects: {seconds[-1]:.1f} s", flush=True)
    n_passes = len(next(iter(Consensus.open(outs[0]).history.values())))

    moments, stops, wrong, solves = Counter[str](), list[str](), list[str](), list[dict[str, float]]()
    began = time.perf_counter()
    cluster = Cluster(kill_seconds, logs)
    try:
        scheduler = psutil.Process(cluster.process.pid)
        while not solves or time.perf_counter() - began < 60 * minutes:
            stage = len(solves) % n_stages
            if stage == 0:
                for path in work.iterdir():
                    shutil.rmtree(path)
            growing.grow(stage)
            out = outs[stage]
            log = logs / "solves"
            moment = kill_a_solve(growing.path, out, cluster.address, tol, seconds[stage], rng, log)
            moments[moment] += 1
            started = time.perf_counter()
            finish(growing.path, out, cluster.address, tol, stops)
            took = time.perf_counter() - started
            what = f"solve {len(solves)}, killed {moment}"
            if bits_of(out) != quiet[stage]:
                wrong.append(f"{what}: other bits")
            expected = {"e.zarr", *(before.name for before in outs[: stage + 1])}
            if left := expected ^ {path.name for path in work.iterdir()}:
                wrong.append(f"{what}: left {sorted(left)}")
            Consensus.open(out).verify()
            let_go()
            measured = {
                "seconds": round(took, 2),
                "memory_mb": round(memory_of(me), 2),
                "cluster_mb": round(memory_of(scheduler), 2),
                "files": me.num_fds(),
                "threads": me.num_threads(),
            }
            solves.append(measured)
            summary = ", ".join(f"{name} {value:g}" for name, value in measured.items())
            print(f"{(time.perf_counter() - began) / 60:.1f} min, {what}: {summary}", flush=True)
    finally:
        kills = cluster.close()
    wrong += [f"left a process: {process}" for process in processes_left(token)]
    wrong += [f"left a file: {path}" for path in temporary.rglob("*") if path.is_file()]
    memory = slope_of([solve["memory_mb"] for solve in solves])
    if memory is not None and memory["slope"] > max(LEAK_MB, 3 * memory["error"]):
        wrong.append(f"memory grows by {memory['slope']:.2f} MB per solve")
    for name in ("files", "threads"):
        counts = [solve[name] for solve in solves[n_stages:]]
        if counts and min(counts[-n_stages:]) > max(counts[:n_stages]) + 2:
            wrong.append(f"{name} grow from {max(counts[:n_stages])} to {min(counts[-n_stages:])}")
    if minutes and not (kills and moments["in a pass"] + moments["before the first pass"]):
        wrong.append("no worker or no solve was killed")
    return {
        "machine": describe(),
        "n_objects": n_objects,
        "n_partitions": N_PARTITIONS,
        "n_passes": n_passes,
        "minutes": round((time.perf_counter() - began) / 60, 1),
        "n_solves": len(solves),
        "killed solves": dict(moments),
        "killed workers": {"all": len(kills), "busy": sum(kills)},
        "solves stopped by lost workers, and repeated": len(stops),
        "memory of this process, MB per solve": memory,
        "memory of Dask's scheduler, MB per solve": slope_of([solve["cluster_mb"] for solve in solves]),
        "wrong": wrong,
        "solves": solves,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--smallest", action="store_true", help="a few seconds, to see that it runs")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--millions", type=float, default=2.0, help="objects")
    parser.add_argument("--kill-seconds", type=float, default=12.0, help="between two deaths of workers")
    parser.add_argument("-o", "--out", type=Path, help=f"results, as JSON; by default {RESULTS.name}")
    parser.add_argument("--serve", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve)
        return
    with tempfile.TemporaryDirectory() as folder:
        if arguments.smallest:
            record = soak(2000, 0.0, 25.0, 800, 1e-5, Path(folder))
        else:
            n_objects = int(arguments.millions * 1e6)
            record = soak(n_objects, arguments.minutes, arguments.kill_seconds, None, 1e-7, Path(folder))
    print(json.dumps({name: value for name, value in record.items() if name != "solves"}, indent=1))
    out = arguments.out or (None if arguments.smallest else RESULTS)
    if out:
        out.write_text(json.dumps(record, indent=1) + "\n")
    if record["wrong"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
