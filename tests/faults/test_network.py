"""A cluster whose workers are behind another network, as on other machines that share a disk."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bigcons
from bigcons import Consensus
from bigcons.datasets import planted_ensemble

APART = ["unshare", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]

# Everything here ends with the first process of the process namespace.
SCRIPT = """
set -e
unshare --net sleep 300 &
far=$!
while [ "$(readlink /proc/$far/ns/net)" = "$(readlink /proc/$$/ns/net)" ]; do sleep 0.05; done
ip link set lo up
ip link add name near type veth peer name far netns $far
ip address add 10.77.0.1/24 dev near
ip link set near up
there="nsenter --net=/proc/$far/ns/net"
$there ip link set lo up
$there ip address add 10.77.0.2/24 dev far
$there ip link set far up
python=$1 folder=$2
shift 2
$python -m dask scheduler --host 10.77.0.1 --port 8786 --no-dashboard --no-show > $folder/scheduler.log 2>&1 &
$there $python -m dask worker tcp://10.77.0.1:8786 --host 10.77.0.2 --nworkers 2 --nthreads 1 \
    --no-dashboard --local-directory $folder > $folder/worker.log 2>&1 &
for attempt in $(seq 300); do
    [ "$(grep -c 'Register worker' $folder/scheduler.log)" = 2 ] && break
    sleep 0.1
done
exec_status=0
$python -m bigcons "$@" --scheduler tcp://10.77.0.1:8786 || exec_status=$?
grep -o 'Register worker addr: [^ ]*' $folder/scheduler.log
exit $exec_status
"""


def can_be_apart() -> bool:
    """Return whether this system lets us make network namespaces."""
    if not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
        return False
    probe = [*APART, "sh", "-c", "ip link add name near type veth peer name far"]
    return subprocess.run(probe, capture_output=True, timeout=20, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are of Linux")
def test_solve__on_workers_behind_another_network_has_the_bits_of_threads(tmp_path: Path) -> None:
    if not can_be_apart():
        pytest.skip("this system allows no network namespaces")
    ensemble = tmp_path / "ensemble.zarr"
    planted_ensemble(4000, 20, missing=0.5, random_state=0)[0].save(ensemble, chunk_rows=256)
    asked = ["solve", str(ensemble), "-m", "pcc", "-k", "4", "--random-state", "1"]
    here = run([sys.executable, "-m", "bigcons", *asked, "-o", str(tmp_path / "here.zarr")])
    assert here.returncode == 0, here.stderr
    command = [*APART, "sh", "-c", SCRIPT, "sh", sys.executable, str(tmp_path), *asked]
    there = run([*command, "-o", str(tmp_path / "there.zarr")])
    assert there.returncode == 0, there.stderr
    assert there.stdout.count("tcp://10.77.0.2:") == 2
    expected, found = (Consensus.open(tmp_path / name) for name in ("here.zarr", "there.zarr"))
    np.testing.assert_array_equal(found.memberships, expected.memberships)
    np.testing.assert_array_equal(found.labels, expected.labels)
    assert found.history["objective"] == expected.history["objective"]


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    root = Path(bigcons.__file__).parents[1]
    return subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=120, check=False)
