"""The memory promise of ensembles made row by row, against the measured peak of a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bigcons import generate

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc"),
    pytest.mark.slow,
]

N_OBJECTS, N_PARTITIONS = 1_000_000, 80  # 80 MB of labels

CHILD = """
import json, re, sys
import numpy as np
from pathlib import Path
from bigcons import generate
from bigcons.errors import MemoryBudgetError

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

n_objects, n_partitions, folder = json.loads(sys.argv[1])
folder = Path(folder)
labels = np.arange(n_objects) % 10

def smallest(make, *args, **kwargs):
    try:
        make(*args, **kwargs, random_state=0, client="serial", memory=1000)
    except MemoryBudgetError as refusal:
        needed = refusal.needed
    ensemble = make(*args, **kwargs, random_state=0, client="serial", memory=needed)
    assert ensemble.n_objects == n_objects
    return peak(), needed

print(json.dumps({
    "soft": smallest(generate.from_memberships, folder / "z.npy", n_partitions=n_partitions,
                     out=folder / "soft.zarr"),
    "deleted": smallest(generate.mask_labels, folder / "soft.zarr", 0.3, out=folder / "deleted.zarr"),
    "copies": smallest(generate.noisy_copies, labels, noise=0.3, n_partitions=n_partitions,
                       out=folder / "copies.zarr"),
    "held": smallest(generate.from_memberships, folder / "z.npy", n_partitions=n_partitions),
}))
"""


def test_rows__keep_the_promise_of_the_smallest_budget(tmp_path):
    soft = np.lib.format.open_memmap(tmp_path / "z.npy", mode="w+", dtype=np.float32, shape=(N_OBJECTS, 4))
    soft[:] = 0.25
    del soft
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps([N_OBJECTS, N_PARTITIONS, str(tmp_path)])],
        cwd=Path(generate.__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    used = json.loads(done.stdout)
    assert all(peak <= needed for peak, needed in used.values()), used
