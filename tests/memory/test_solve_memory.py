"""The memory promise of stored solves: the smallest budget that is accepted, against the measured peak.

The peak is that of all processes of the solve together, workers too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

import bigcons
from bigcons import Ensemble
from bigcons.solvers.plan import COMPILER_BYTES

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="resident memory as Linux counts it"),
    pytest.mark.slow,
]

N_OBJECTS, N_PARTITIONS, K = 600_000, 250, 4

CHILD = """
import json, re, sys, warnings
from contextlib import nullcontext

def fit(options, client, memory):
    from bigcons import PCC
    model = PCC(memory=memory, client=client, n_init=1, max_iter=1, tol=0.0, random_state=0)
    model.set_params(**options["parameters"]).fit(options["ensemble"], out=options["out"])

def smallest_budget(options, client):
    from bigcons.errors import MemoryBudgetError
    from bigcons.memory import parse_size
    try:
        fit(options, client, "1kB")
    except MemoryBudgetError as refusal:
        needed = re.search(r"raise it to (\\S+ [A-Z]?B)", str(refusal))[1]
    return int(1.02 * parse_size(needed))  # the message is rounded, and an attempt leaves something behind

def cluster():
    import distributed
    return distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    options = json.loads(sys.argv[1])
    with cluster() if options["engine"] == "cluster" else nullcontext() as workers:
        with workers.get_client() if workers else nullcontext("threads") as client:
            budget = smallest_budget(options, client)
            fit(options, client, budget)
    print(budget)
"""


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory):
    """A store of 150 MB; wide, not long, for the time goes into objects."""
    path = tmp_path_factory.mktemp("ensemble") / "e.zarr"
    rng = np.random.default_rng(0)
    labels = rng.integers(-1, 2, (N_OBJECTS, N_PARTITIONS), np.int8)
    labels[: N_OBJECTS // 2, ::2] = 0
    return Ensemble.from_labels(labels).save(path).path


def tree_bytes(root):
    """Return the resident memory of a process and its descendants now."""
    total = 0
    for process in [root, *root.children(recursive=True)]:
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def solve(folder, **options):
    """Solve in processes of their own; return their peak and their budget."""
    script = folder / "solve.py"
    script.write_text(CHILD)
    environment = {**os.environ, "PYTHONPATH": str(Path(bigcons.__file__).parents[1])}
    command = [sys.executable, script, json.dumps({**options, "out": str(folder / "consensus.zarr")})]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        root, peak = psutil.Process(child.pid), 0
        while child.poll() is None:
            with suppress(psutil.NoSuchProcess):
                peak = max(peak, tree_bytes(root))
            time.sleep(0.05)
        assert child.returncode == 0
        return peak, int(child.stdout.read())


def test_data__do_not_fit_into_what_is_set_aside_for_compiling():
    """Else a solve that held everything would keep the promise as well."""
    assert N_OBJECTS * (N_PARTITIONS + 8 * K) > COMPILER_BYTES


@pytest.mark.parametrize("engine", ["threads", "cluster"])
@pytest.mark.parametrize("parameters", [{}, {"divergence": "kl", "n_prototypes": 4}], ids=["l2", "kl"])
def test_fit__keeps_the_promise_of_the_smallest_budget(ensemble, tmp_path, engine, parameters):
    asked = {"n_clusters": K, **parameters}
    peak, budget = solve(tmp_path, engine=engine, ensemble=ensemble, parameters=asked)
    print(f"peak {peak / 1e6:.0f} MB of {budget / 1e6:.0f} MB")
    assert peak <= budget, f"{peak / 1e6:.0f} MB in use under a budget of {budget / 1e6:.0f} MB"
