"""Importing keeps within its budget: peak resident memory of a child process, against the promise."""

import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from bigcons import Ensemble
from bigcons.disk.places import place_of
from tests.support.s3 import s3_server
from tests.support.stores import names_in

N_OBJECTS, N_PARTITIONS = 800_000, 60
BUDGET = 150_000_000

CHILD = """
import sys
import dask.array, numpy, pyarrow.parquet, zarr
from bigcons.store.ensemble import Ensemble, import_labels

def peak():  # not ru_maxrss, which begins with the peak of the parent
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024

how, source, out, budget = sys.argv[1:]
Ensemble.from_labels([[0], [1]]).save(out).save(out, overwrite=True)
before = peak()
x = {
    "path": lambda: source,
    "bucket": lambda: source,
    "memmap": lambda: numpy.load(source, mmap_mode="r"),
    "dask": lambda: dask.array.from_zarr(source),
}[how]()
stored = import_labels(x, out, memory=int(budget), overwrite=True)
print(stored.n_objects, stored.n_partitions, peak() - before)
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The same labels, 384 MB of 64-bit numbers, in every form."""
    folder = tmp_path_factory.mktemp("labels")
    labels = np.lib.format.open_memmap(folder / "l.npy", "w+", np.int64, (N_OBJECTS, N_PARTITIONS))
    fortran = np.lib.format.open_memmap(
        folder / "f.npy", "w+", np.int64, (N_OBJECTS, N_PARTITIONS), fortran_order=True
    )
    array = zarr.create_array(str(folder / "l.zarr"), shape=labels.shape, chunks=(20_000, 60), dtype="int64")
    names = [f"c{u}" for u in range(N_PARTITIONS)]
    table = pa.schema([(name, pa.int64()) for name in names])
    rng = np.random.default_rng(0)
    with pq.ParquetWriter(folder / "l.parquet", table) as writer:
        for start in range(0, N_OBJECTS, 100_000):
            block = rng.integers(-1, 10, (100_000, N_PARTITIONS))
            labels[start : start + 100_000] = fortran[start : start + 100_000] = block
            array[start : start + 100_000] = block
            writer.write_table(pa.table(dict(zip(names, block.T, strict=True))))
    return folder


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak as Linux tells it")
@pytest.mark.parametrize(
    ("how", "source"),
    [
        ("path", "f.npy"),
        ("memmap", "l.npy"),
        ("path", "l.zarr"),
        ("path", "l.parquet"),
        ("bucket", "l.parquet"),
        ("dask", "l.zarr"),
    ],
)
def test_import_labels__keeps_within_the_budget(sources, tmp_path, how, source):
    with s3_server() if how == "bucket" else nullcontext(str(sources)) as folder:
        if how == "bucket":
            place_of(f"{folder}/{source}").write((sources / source).read_bytes())
        result = subprocess.run(
            [sys.executable, "-c", CHILD, how, f"{folder}/{source}", str(tmp_path / "e"), str(BUDGET)],
            capture_output=True,
            text=True,
            check=False,
            cwd=Path(__file__).parents[2],
        )
    assert result.returncode == 0, result.stderr
    n_objects, n_partitions, used = map(int, result.stdout.split())
    assert (n_objects, n_partitions) == (N_OBJECTS, N_PARTITIONS)
    assert 0 < used < BUDGET, f"{used / 1e6:.0f} MB in use under a budget of {BUDGET / 1e6:.0f} MB"
    assert names_in(tmp_path) == ["e"]
    assert (
        Ensemble.open(tmp_path / "e").read(0, 5).tolist()
        == np.load(sources / "l.npy", mmap_mode="r")[:5].tolist()
    )
