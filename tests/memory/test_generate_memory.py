"""The memory promise of the generators, against the measured peak of a process of its own."""

import sys

import numpy as np
import pyarrow as pa
import pytest
import zarr
from pyarrow import csv, parquet

from bigcons.memory import row_blocks
from tests.memory.solving import run

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc"),
    pytest.mark.slow,
]

N_OBJECTS, N_FEATURES = 1_000_000, 40  # 160 MB as float32

GENERATE = """
from bigcons import generate
from bigcons.errors import MemoryBudgetError

def make(memory):
    out = options["out"] if options["stored"] else None
    scheme = getattr(generate, options["scheme"])
    return scheme(options["features"], out=out, memory=memory, **options["arguments"])

try:
    make(1000)
except MemoryBudgetError as refusal:
    needed = refusal.needed
ensemble = make(needed)
print(json.dumps({"peak": peak(), "needed": needed, "n_objects": ensemble.n_objects}))
"""
RUN = """
from bigcons import generate
from bigcons.cli import main
from bigcons.errors import MemoryBudgetError

path = options["features"]
try:
    generate.mixed(path, id="id", memory=1000)
except MemoryBudgetError as refusal:
    needed = refusal.needed
command = ["run", path, "--id", "id", "-k", "3", "-o", options["out"], "--memory", str(needed)]
try:
    main(command)
except SystemExit as ended:
    print(json.dumps({"peak": peak(), "needed": needed, "status": ended.code}))
"""
READ = """
from bigcons.io.features import open_features

open_features(options["warm"]).read(0, 1)
before = from_here()
features = open_features(options["features"])
n_objects = sum(block.n_rows for block, _ in features.iterate())
print(json.dumps({"used": peak() - before, "held": features.held_bytes, "n_objects": n_objects}))
"""


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    path = tmp_path_factory.mktemp("features") / "x.npy"
    matrix = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(N_OBJECTS, N_FEATURES))
    rng = np.random.default_rng(0)
    for block in row_blocks(N_OBJECTS, 50_000):
        matrix[block.start : block.stop] = rng.normal(size=(block.n_rows, N_FEATURES))
    matrix[::1000] = np.nan  # a gap in every column
    del matrix
    return path


@pytest.mark.parametrize(
    ("scheme", "arguments", "stored"),
    [
        ("kmeans", {"n_partitions": 2, "n_clusters": 3, "train": "all", "sample": 0.3}, True),
        ("kmeans", {"n_partitions": 2, "n_clusters": 3, "sample": 0.5}, False),
        ("mixed", {"n_partitions": 2}, True),
        ("landmarks", {"n_partitions": 2, "train": 30_000}, False),
    ],
    ids=str,
)
def test_generate__keeps_the_promise_of_the_smallest_budget(features, tmp_path, scheme, arguments, stored):
    options = {
        "scheme": scheme,
        "features": str(features),
        "out": str(tmp_path / "e.zarr"),
        "stored": stored,
        "arguments": {"random_state": 0, **arguments},
    }
    result = run(GENERATE, from_nothing=True, **options)
    assert result["n_objects"] == N_OBJECTS
    assert result["peak"] <= result["needed"]
    assert result["peak"] + 4 * N_OBJECTS * N_FEATURES > result["needed"], "a run that held all would pass"


def test_run__keeps_the_promise_of_the_smallest_budget_with_the_ids_in_memory(tmp_path):
    n_objects = 4_000_000
    ids = pa.array(np.char.mod("customer-%012d", np.arange(n_objects)))  # 116 MB
    numbers = np.random.default_rng(0).normal(size=(2, n_objects)).astype(np.float32)
    parquet.write_table(pa.table({"id": ids, "x": numbers[0], "y": numbers[1]}), tmp_path / "x.parquet")
    del ids, numbers
    result = run(RUN, from_nothing=True, features=str(tmp_path / "x.parquet"), out=str(tmp_path / "out"))
    assert result["status"] == 0
    assert result["peak"] <= result["needed"]


@pytest.mark.parametrize("kind", ["npy", "parquet", "csv", "zarr"])
def test_features__reading_holds_a_block_and_what_the_source_decodes(tmp_path, kind):
    n_objects, n_features = 300_000, 40  # 96 MB as float64
    matrix = np.random.default_rng(0).normal(size=(n_objects, n_features))
    path, warm = tmp_path / f"x.{kind}", tmp_path / f"warm.{kind}"
    for target, values in ((path, matrix), (warm, matrix[:100])):
        write(target, kind, values)
    result = run(READ, features=str(path), warm=str(warm))
    assert result["n_objects"] == n_objects
    assert result["used"] <= result["held"] + 48 * 2**20


def write(path, kind, values):
    table = pa.table({f"x{c}": column for c, column in enumerate(values.T)})
    if kind == "npy":
        np.save(path, values)
    elif kind == "parquet":
        parquet.write_table(table, path)
    elif kind == "csv":
        csv.write_csv(table, path)
    else:
        zarr.create_array(store=str(path), data=values, chunks=(20_000, values.shape[1]))
