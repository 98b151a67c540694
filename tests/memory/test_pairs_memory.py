"""Pair tables that just fit the budget, and three times it: sampled and solved, against the measured peak."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bigcons
from bigcons import Ensemble, PairTable
from bigcons.memory import parse_size

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc"),
    pytest.mark.slow,
]

N_OBJECTS, PER_OBJECT, K = 126_000, 60, 2
BUDGET = "15MB"  # the table of 3.8 million pairs takes 45 MB in memory

PEAK = """
import json, re, sys
from pathlib import Path
from bigcons import PairTable
from bigcons.coassociation import sample
from bigcons.divergences import resolve_divergence
from bigcons.run.engine import SerialEngine
from bigcons.memory import parse_size
from bigcons.methods.pcc import pairs as pcc
from bigcons.methods.pcc.all_pairs import dirichlet
from bigcons.run.passes import Run, run_passes
from bigcons.disk.checkpoint import FileBlocks

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

def draw(ensemble, out, **options):
    return sample(ensemble, out=out, tiles=8, random_state=0, client="serial", **options)

def solve(pairs, folder, memory):
    table, K, engine = PairTable.open(pairs), options["K"], SerialEngine()
    near = pcc.Neighborhoods.of(table, pcc.cut_blocks(table), engine, resolve_divergence("l2"))
    pcc.check_tasks(near, K, engine, memory)
    run = Run(table, engine, 0, 1, 1e-3, blocks=near.blocks)
    run.arrays = FileBlocks(folder, K)
    first = (lambda block: dirichlet(block.n_rows, K, 0, block.index)), []
    return run_passes(run, pcc.BlockedPairs(near, lambda: first))

options = json.loads(sys.argv[1])
draw(options["small"], options["warm"], per_object=4)
solve(options["warm"], options["warm"] + "-blocks", None)
Path("/proc/self/clear_refs").write_text("5")  # from here on the peak is ours
before = peak()
if options["step"] == "sample":
    draw(options["ensemble"], options["pairs"], per_object=options["per_object"], memory=options["memory"])
else:
    solve(options["pairs"], options["pairs"] + "-blocks", parse_size(options["memory"]))
print(json.dumps({"used": peak() - before}))
"""

COMMAND = """
import json, re, sys
from pathlib import Path
from bigcons.cli import main

main(["sample", *sys.argv[1:]], standalone_mode=False)
peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
print(json.dumps({"used": peak}))
"""


def used(step, options):
    return run(PEAK, json.dumps({**options, "step": step}))


def run(script, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=Path(bigcons.__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])["used"]


def test_sample_and_solve__of_three_times_the_budget_stay_within_it(tmp_path):
    labels = np.random.default_rng(0).integers(-1, 3, (N_OBJECTS, 6)).astype(np.int8)
    Ensemble.from_labels(labels).save(tmp_path / "e.zarr", chunk_rows=4096)
    Ensemble.from_labels(labels[:5000]).save(tmp_path / "small.zarr")
    options = {
        "ensemble": str(tmp_path / "e.zarr"),
        "small": str(tmp_path / "small.zarr"),
        "warm": str(tmp_path / "warm.zarr"),
        "pairs": str(tmp_path / "p.zarr"),
        "per_object": PER_OBJECT,
        "memory": BUDGET,
        "K": K,
    }
    sampled = used("sample", options)
    table = PairTable.open(tmp_path / "p.zarr")
    assert table.n_pairs * 12 >= 3 * parse_size(BUDGET)
    solved = used("solve", {**options, "warm": str(tmp_path / "warm-again.zarr")})
    assert (sampled <= parse_size(BUDGET), solved <= parse_size(BUDGET)) == (True, True), (sampled, solved)


def test_sample_command__of_all_pairs_that_fit_keeps_the_whole_process_within_its_budget(tmp_path):
    """The labels, 40 MB, are held beside the pairs while these are counted."""
    labels = np.random.default_rng(0).integers(-1, 3, (1_000_000, 40), np.int8)
    Ensemble.from_labels(labels).save(tmp_path / "e.zarr")
    out, budget = tmp_path / "p.zarr", "500MB"
    arguments = ["--n-pairs", "3400000", "--memory", budget, "-o", str(out)]
    peak = run(COMMAND, str(tmp_path / "e.zarr"), *arguments)
    assert PairTable.open(out).provenance["sampled"] == "uniform"
    assert peak <= parse_size(budget)
