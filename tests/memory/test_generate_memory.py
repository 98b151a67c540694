"""The memory promise of the generators, against the measured peak of a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bigcons import generate
from bigcons.memory import parse_size, row_blocks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")

N_OBJECTS, N_FEATURES = 1_000_000, 40  # 160 MB as float32

CHILD = """
import json, re, sys
import numpy as np
from pathlib import Path
from bigcons import generate

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

options = json.loads(sys.argv[1])
generate.kmeans(np.random.default_rng(0).normal(size=(2000, 4)), n_partitions=2, out=options["warm"])
generate.kmeans(np.eye(9), n_partitions=2, n_clusters=2, algorithm="minibatch")
Path("/proc/self/clear_refs").write_text("5")  # from here on the peak is ours
before = peak()
ensemble = generate.kmeans(options["features"], out=options["out"], **options["arguments"])
print(json.dumps({"used": peak() - before, "n_objects": ensemble.n_objects}))
"""


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    path = tmp_path_factory.mktemp("features") / "x.npy"
    matrix = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(N_OBJECTS, N_FEATURES))
    rng = np.random.default_rng(0)
    for block in row_blocks(N_OBJECTS, 50_000):
        matrix[block.start : block.stop] = rng.normal(size=(block.n_rows, N_FEATURES))
    del matrix
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        {"memory": "110MB", "algorithm": "minibatch", "sample": 0.5},
        {"memory": "110MB", "algorithm": "auto", "sample": 0.5},
        {"memory": "110MB", "algorithm": "lloyd", "sample": 0.1},
        {"memory": "360MB", "algorithm": "lloyd", "sample": 0.1},
    ],
    ids=str,
)
def test_kmeans__keeps_its_memory_promise(features, tmp_path, arguments):
    options = {
        "features": str(features),
        "out": str(tmp_path / "e.zarr"),
        "warm": str(tmp_path / "warm.zarr"),
        "arguments": {"n_partitions": 4, "n_clusters": 3, "max_iter": 5, "random_state": 0, **arguments},
    }
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(options)],
        cwd=Path(generate.__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["n_objects"] == N_OBJECTS
    assert result["used"] <= parse_size(arguments["memory"])
