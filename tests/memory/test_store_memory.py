"""What importing, sampling, converting and reading stores takes: the peak of a child process, as promised."""

import sys
from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from bigcons import Ensemble, PairTable
from bigcons.disk.places import place_of
from bigcons.memory import PROCESS_BYTES, parse_size
from tests.memory.solving import run
from tests.support.s3 import s3_server
from tests.support.stores import names_in

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc"),
    pytest.mark.slow,
]

# Labels


N_OBJECTS, N_PARTITIONS, BUDGET = 400_000, 60, 150_000_000

IMPORT = """
import dask.array, pyarrow.parquet, zarr
from bigcons.store.ensemble import Ensemble, import_labels

out, source = options["out"], options["source"]
Ensemble.from_labels([[0], [1]]).save(out).save(out, overwrite=True)
before = peak()
x = {
    "path": lambda: source,
    "bucket": lambda: source,
    "dask": lambda: dask.array.from_zarr(source),
}[options["how"]]()
stored = import_labels(x, out, memory=options["budget"], overwrite=True)
print(json.dumps([stored.n_objects, stored.n_partitions, peak() - before]))
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The same labels, 192 MB of 64-bit numbers, in every form."""
    folder, shape, rows = tmp_path_factory.mktemp("labels"), (N_OBJECTS, N_PARTITIONS), 100_000
    labels = np.lib.format.open_memmap(folder / "l.npy", "w+", np.int64, shape)
    fortran = np.lib.format.open_memmap(folder / "f.npy", "w+", np.int64, shape, fortran_order=True)
    array = zarr.create_array(str(folder / "l.zarr"), shape=shape, chunks=(20_000, 60), dtype="int64")
    names = [f"c{u}" for u in range(N_PARTITIONS)]
    rng = np.random.default_rng(0)
    with pq.ParquetWriter(folder / "l.parquet", pa.schema([(name, pa.int64()) for name in names])) as writer:
        for start in range(0, N_OBJECTS, rows):
            block, at = rng.integers(-1, 10, (rows, N_PARTITIONS)), slice(start, start + rows)
            labels[at] = fortran[at] = array[at] = block
            writer.write_table(pa.table(dict(zip(names, block.T, strict=True))))
    return folder


@pytest.mark.parametrize(
    ("how", "source"),
    [
        *(("path", "f.npy"), ("path", "l.npy"), ("path", "l.zarr"), ("path", "l.parquet")),
        *(("bucket", "l.parquet"), ("dask", "l.zarr")),
    ],
)
def test_import_labels__keeps_within_the_budget(sources, tmp_path, how, source):
    with s3_server() if how == "bucket" else nullcontext(str(sources)) as folder:
        if how == "bucket":
            place_of(f"{folder}/{source}").write((sources / source).read_bytes())
        out = str(tmp_path / "e")
        *shape, used = run(
            IMPORT, how=how, source=f"{folder}/{source}", out=out, budget=BUDGET + PROCESS_BYTES
        )
    assert shape == [N_OBJECTS, N_PARTITIONS]
    assert 0 < used < BUDGET, f"{used / 1e6:.0f} MB in use under a budget of {BUDGET / 1e6:.0f} MB"
    assert names_in(tmp_path) == ["e"]
    expected = np.load(sources / "l.npy", mmap_mode="r")[:5]
    np.testing.assert_array_equal(Ensemble.open(out).read(0, 5), expected)


LEAST = """
from functools import partial
from bigcons import Ensemble
from bigcons.errors import MemoryBudgetError
from bigcons.store.ensemble import import_labels

needed, make = 1, partial(import_labels, options["source"], options["out"])
if options["appends"]:
    make = getattr(Ensemble.open(options["out"], "a"), "append_" + options["appends"])
    make = partial(make, options["source"])
for _ in range(3):
    try:
        make(id="id", memory=needed)
        break
    except MemoryBudgetError as refusal:
        needed = refusal.needed
print(json.dumps([peak(), needed]))
"""


def test_import_and_append__keep_all_of_the_process_within_the_least_budget(tmp_path):
    n = 1_500_000
    ids = {who: pa.array(np.char.mod(f"{who}-%012d", np.arange(n))) for who in ("customer", "visitor")}
    labels = np.random.default_rng(0).integers(5, size=(4, n))
    given = {None: ("customer", "ab"), "partitions": ("customer", "cd"), "objects": ("visitor", "abcd")}
    for appends, (who, names) in given.items():
        columns = dict(zip(names, labels, strict=False))
        pq.write_table(pa.table({"id": ids[who], **columns}), tmp_path / f"{appends}.parquet")
    del ids, labels
    for appends in given:
        paths = {"source": str(tmp_path / f"{appends}.parquet"), "out": str(tmp_path / "e.zarr")}
        peak, needed = run(LEAST, from_nothing=True, appends=appends, **paths)
        assert peak <= needed < 1 << 30
    assert Ensemble.open(tmp_path / "e.zarr").shape == (2 * n, 4)


READ = """
import pyarrow.parquet
from bigcons import Ensemble

ensemble = Ensemble.open(options["path"])
planned = ensemble.stored.reading_bytes(1, 1) + ensemble.chunk_rows * ensemble.row_bytes
before = peak()
for block in ensemble.blocks():
    ensemble.read(block.start, block.stop)
print(json.dumps([planned, peak() - before]))
"""


def test_read__of_a_wide_ensemble_from_parquet_takes_what_is_planned(tmp_path):
    labels = np.random.default_rng(0).integers(0, 20, (1_024, 2_048), np.int8)
    Ensemble.from_labels(labels).save(tmp_path / "wide.parquet")
    planned, used = run(READ, path=str(tmp_path / "wide.parquet"))
    assert used <= planned <= 3 * used


SAMPLE_OR_SOLVE = """
from bigcons import PairTable
from bigcons.coassociation import sample
from bigcons.divergences import resolve_divergence
from bigcons.run.engine import SerialEngine
from bigcons.memory import DataBudget, parse_size
from bigcons.methods import pcc
from bigcons.methods.all_pairs import dirichlet
from bigcons.run.passes import Run, run_passes
from bigcons.disk.checkpoint import FileBlocks

def draw(ensemble, out, **others):
    return sample(ensemble, out=out, tiles=8, random_state=0, client="serial", **others)

def solve(pairs, folder, memory):
    table, engine = PairTable.open(pairs), SerialEngine()
    near = pcc.Neighborhoods.from_pairs(table, pcc.cut_blocks(table), engine, resolve_divergence("l2"))
    pcc.check_tasks(near, 2, engine, DataBudget(memory))
    run = Run(table, near.blocks, engine, 0, 1, 1e-3)
    run.arrays = FileBlocks(folder, 2)
    first = (lambda block: dirichlet(block.n_rows, 2, 0, block.index)), []
    return run_passes(run, pcc.BlockedPairs(near, lambda: first))

draw(options["small"], options["warm"], per_object=4)
solve(options["warm"], options["warm"] + "-blocks", 1 << 40)
before = from_here()
if options["step"] == "sample":
    draw(options["ensemble"], options["pairs"], per_object=60, memory=options["memory"])
else:
    solve(options["pairs"], options["pairs"] + "-blocks", parse_size(options["memory"]))
print(json.dumps(peak() - before))
"""


def test_sample_and_solve__of_three_times_the_budget_stay_within_it(tmp_path):
    budget = "15MB"  # the table of 3.8 million pairs takes 45 MB in memory
    labels = np.random.default_rng(0).integers(-1, 3, (126_000, 6)).astype(np.int8)
    names = ("ensemble", "small", "warm", "again", "pairs")
    paths = {name: str(tmp_path / f"{name}.zarr") for name in names}
    Ensemble.from_labels(labels).save(paths["ensemble"], chunk_rows=4096)
    Ensemble.from_labels(labels[:5000]).save(paths["small"])
    sampled = run(SAMPLE_OR_SOLVE, step="sample", memory=budget, **paths)
    assert PairTable.open(paths["pairs"]).n_pairs * 12 >= 3 * parse_size(budget)
    solved = run(SAMPLE_OR_SOLVE, step="solve", memory=budget, **{**paths, "warm": paths["again"]})
    assert max(sampled, solved) <= parse_size(budget), (sampled, solved)


COMMAND = """
from bigcons.cli import main

main(["sample", *options["arguments"]], standalone_mode=False)
print(json.dumps(peak()))
"""


def test_sample_command__of_all_pairs_that_fit_keeps_the_whole_process_within_its_budget(tmp_path):
    """The labels, 40 MB, are held beside the pairs while these are counted."""
    labels = np.random.default_rng(0).integers(-1, 3, (1_000_000, 40), np.int8)
    Ensemble.from_labels(labels).save(tmp_path / "e.zarr")
    out, budget = str(tmp_path / "p.zarr"), "500MB"
    how = ["--per-object", "6.8", "--memory", budget, "-o", out]
    peak = run(COMMAND, from_nothing=True, arguments=[str(tmp_path / "e.zarr"), *how])
    assert PairTable.open(out).provenance["sampled"] == "uniform"
    assert peak <= parse_size(budget)
