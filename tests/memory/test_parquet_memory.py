"""What Parquet takes: a table of pairs converted within its budget, and an ensemble read as it is planned.

Peaks are those of a child process.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bigcons
from bigcons import Ensemble, PairTable
from tests.support.stores import names_in

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc"),
    pytest.mark.slow,
]

N_OBJECTS, N_PAIRS = 200_000, 2_600_000
BUDGET = 30_000_000  # the pairs take 31 MB as columns, 156 MB while they are read into memory

CHILD = """
import json, re, sys
from pathlib import Path
from bigcons.store.pairs import import_pairs

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

warm, source, out, budget = sys.argv[1:]
import_pairs(warm, out, memory=int(budget))
Path("/proc/self/clear_refs").write_text("5")  # from here on the peak is ours
before = peak()
stored = import_pairs(source, out, memory=int(budget), overwrite=True)
print(json.dumps({"used": peak() - before, "n_pairs": stored.n_pairs}))
"""


def test_import_pairs__of_a_table_larger_than_the_budget(tmp_path):
    rng = np.random.default_rng(0)
    i = rng.integers(0, N_OBJECTS - 1, N_PAIRS)
    numbers = np.unique(i << 32 | rng.integers(i + 1, N_OBJECTS))
    rng.shuffle(numbers)
    seen = rng.integers(1, 100, len(numbers), np.uint8)
    columns = {
        "i": numbers >> 32,
        "j": numbers & 0xFFFFFFFF,
        "n_agree": rng.integers(0, seen + 1),
        "n_seen": seen,
    }
    table = pa.table(columns)
    pq.write_table(table, tmp_path / "pairs.parquet", row_group_size=50_000)
    pq.write_table(table[:1000], tmp_path / "warm.parquet")
    paths = [str(tmp_path / name) for name in ("warm.parquet", "pairs.parquet", "pairs.zarr")]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *paths, str(BUDGET)],
        cwd=Path(bigcons.__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["n_pairs"] == len(numbers)
    assert 0 < result["used"] <= BUDGET, result
    assert names_in(tmp_path) == ["pairs.parquet", "pairs.zarr", "warm.parquet"]
    stored = PairTable.open(tmp_path / "pairs.zarr").edges()
    order = np.argsort(numbers)
    for name, column in columns.items():
        np.testing.assert_array_equal(getattr(stored, name), column[order])


READER = """
import re, sys
from pathlib import Path
import pyarrow.parquet
from bigcons import Ensemble

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

ensemble = Ensemble.open(sys.argv[1])
planned = ensemble.stored.reading_bytes(1, 1) + ensemble.chunk_rows * ensemble.row_bytes
before = peak()
for block in ensemble.blocks():
    ensemble.read(block.start, block.stop)
print(planned, peak() - before)
"""


def test_read__of_a_wide_ensemble_takes_what_is_planned(tmp_path):
    labels = np.random.default_rng(0).integers(0, 20, (1_024, 2_048), np.int8)
    Ensemble.from_labels(labels).save(tmp_path / "wide.parquet")
    done = subprocess.run(
        [sys.executable, "-c", READER, str(tmp_path / "wide.parquet")],
        cwd=Path(bigcons.__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    planned, used = map(int, done.stdout.split())
    assert used <= planned <= 3 * used
