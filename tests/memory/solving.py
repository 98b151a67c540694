"""Calls in processes of their own: what they really take, in all and beyond processes that are warm."""

import json
import os
import select
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

import bigcons
from tests.support.forks import Fork

ROOT = str(Path(bigcons.__file__).parents[1])

PEAK = """
import json, re, sys
from pathlib import Path

def peak():  # not ru_maxrss, which begins with the peak of the parent
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

def from_here():
    Path("/proc/self/clear_refs").write_text("5")  # from here on the peak is ours
    return peak()

options = json.loads(sys.argv[1])
"""

SOLVE = """
import json, re, sys, warnings
from contextlib import nullcontext

def fit(options, client, x, out, memory, max_iter=1):
    from bigcons import METHODS
    model = METHODS[options["method"]](memory=memory, client=client, random_state=0)
    short = {"n_init": 1, "max_iter": max_iter, "tol": 0.0}
    model.set_params(**{name: short[name] for name in short.keys() & model.get_params()})
    model.set_params(**options["parameters"])
    model.fit(x, out=out)

def fit_within(options, client):
    from bigcons import Ensemble
    from bigcons.errors import MemoryBudgetError
    from bigcons.memory import parse_size
    x, out = options["ensemble"], options["out"]
    try:
        fit(options, client, Ensemble.open(x).load() if options["held"] else x, out, "1kB")
    except MemoryBudgetError as refusal:
        budget = parse_size(re.search(r"raise it to (\\S+ [A-Z]?B)", str(refusal))[1])
    fit(options, client, Ensemble.open(x).load() if options["held"] else x, out, budget)
    if options["again"]:  # the process is larger now, and the call takes no more than before
        fit(options, client, x, out + "-again", budget)
    status = open("/proc/self/status").read()
    print(json.dumps([int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) * 1024, budget]))

def grow(options, client):
    from bigcons.run import survey
    stated = []
    check = survey.MemoryPlan.check

    def stating(self, name, engine, ensemble, *others, **options):
        stated.append(self.n_bytes(engine, ensemble) - survey.process_bytes(engine))
        check(self, name, engine, ensemble, *others, **options)

    survey.MemoryPlan.check = stating
    fit(options, client, options["small"], options["out"] + "-small", "64GB", 2)  # so that it plans
    stated.clear()
    print("warm", flush=True)
    input()
    fit(options, client, options["ensemble"], options["out"], "64GB", 2)
    print(max(stated), flush=True)
    sys.stdin.read()

def cluster():
    import distributed
    return distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    options = json.loads(sys.argv[1])
    with cluster() if options["engine"] == "cluster" else nullcontext() as workers:
        with workers.get_client() if workers else nullcontext(options["engine"]) as client:
            (grow if "small" in options else fit_within)(options, client)
"""


def run(script, *, from_nothing=False, **options):
    """Return what a script says last in a process of its own, in which `options` are known.

    ``from_nothing``: the process imports all that it needs, which then is part of its peak.
    """
    code, arguments = f"{PEAK}{script}", json.dumps(options)
    if from_nothing:
        command = [sys.executable, "-c", code, arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        status, said, errors = done.returncode, done.stdout, done.stderr
    else:
        status, said, errors = Fork(code, arguments).end()
    assert status == 0, errors
    return json.loads(said.splitlines()[-1])


def tree_bytes(root):
    """Return the resident memory of a process and its descendants now.

    A child that was only just forked still shows its parent's memory, and command line: it does not count.
    """
    total = root.memory_info().rss
    for process in root.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            parent = process.parent() or root
            if process.cmdline() != parent.cmdline():
                total += process.memory_info().rss
    return total


def solve(folder, *, again=False, held=False, **options):
    """Solve in processes of their own; return their peak, of several as is seen, and the smallest budget.

    ``again``: twice; ``held``: with the ensemble in memory.
    """
    with start(folder, {**options, "again": again, "held": held}) as child:
        root, seen = psutil.Process(child.pid), 0
        while options["engine"] == "cluster" and child.poll() is None:
            with suppress(psutil.NoSuchProcess):
                seen = max(seen, tree_bytes(root))
            time.sleep(0.1)  # a look takes a tenth of it
        peak, budget = json.loads(child.stdout.read())
        assert child.wait() == 0
    return max(peak, seen), budget


def growth(folder, **options):
    """Solve ``ensemble`` in processes that solved ``small`` before, and so have loaded and compiled all.

    Return the most by which all of them grew together, and what the plan says of data. A task of Dask that
    frees its memory gives it to later ones, not back: this counts as used.
    """
    with start(folder, options) as child:
        try:
            if child.stdout.readline() != "warm\n":
                raise RuntimeError("the first solve failed; its error is on standard error")
            root = psutil.Process(child.pid)
            family = [root, *root.children(recursive=True)]
            before = peak = sum(process.memory_info().rss for process in family)
            child.stdin.write("\n")
            child.stdin.flush()
            while not select.select([child.stdout], [], [], 0.02)[0]:
                peak = max(peak, sum(process.memory_info().rss for process in family))
            stated = int(child.stdout.readline())
            if {root, *root.children(recursive=True)} != set(family):
                raise RuntimeError("a process that was warm is gone, or another came")
        finally:
            child.stdin.close()  # the last input() ends
    return peak - before, stated


@contextmanager
def start(folder, options):
    """Run a solve with options in a process that can be talked with, or as many as the cluster has."""
    options = {**options, "out": str(folder / "consensus.zarr")}
    if "small" in options and options["engine"] != "cluster":  # what it imports does not count
        child = Fork(SOLVE, json.dumps(options))
        try:
            yield child
        finally:
            print(child.end()[2], file=sys.stderr)
        return
    (folder / "solve.py").write_text(SOLVE)
    command = [sys.executable, folder / "solve.py", json.dumps(options)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": ROOT}, **pipes) as child:
        yield child
