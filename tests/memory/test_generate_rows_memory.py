"""The memory promise of ensembles made row by row, against the measured peak of a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bigcons import generate
from bigcons.memory import parse_size

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc"),
    pytest.mark.slow,
]

N_OBJECTS, N_PARTITIONS, MEMORY = 1_000_000, 80, "70MB"  # 80 MB of labels

CHILD = """
import json, re, sys
import numpy as np
from pathlib import Path
from bigcons import Ensemble, generate

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

n_objects, n_partitions, memory, folder = json.loads(sys.argv[1])
folder = Path(folder)
common = {"random_state": 0, "memory": memory, "client": "serial"}

def measured(make, *args, **kwargs):
    Path("/proc/self/clear_refs").write_text("5")  # from here on the peak is this call's
    before = peak()
    ensemble = make(*args, **kwargs, **common)
    assert ensemble.n_objects == n_objects
    return peak() - before

generate.from_memberships(np.eye(3), n_partitions=2, out=folder / "warm.zarr")
generate.mask_labels(folder / "warm.zarr", 0.1, out=folder / "warm2.zarr")
labels = np.arange(n_objects) % 10
print(json.dumps({
    "soft": measured(generate.from_memberships, folder / "z.npy", n_partitions=n_partitions,
                     out=folder / "soft.zarr"),
    "deleted": measured(generate.mask_labels, folder / "soft.zarr", 0.3, out=folder / "deleted.zarr"),
    "copies": measured(generate.noisy_copies, labels, noise=0.3, n_partitions=n_partitions,
                       out=folder / "copies.zarr"),
}))
"""


def test_rows__keep_within_the_budget(tmp_path):
    soft = np.lib.format.open_memmap(tmp_path / "z.npy", mode="w+", dtype=np.float32, shape=(N_OBJECTS, 4))
    soft[:] = 0.25
    del soft
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps([N_OBJECTS, N_PARTITIONS, MEMORY, str(tmp_path)])],
        cwd=Path(generate.__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    used = json.loads(done.stdout)
    assert all(n_bytes <= parse_size(MEMORY) for n_bytes in used.values()), used
