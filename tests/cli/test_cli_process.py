"""The command line as its own process: exit status, interrupts, terminals."""

import signal
import subprocess
import sys
import time

import numpy as np
import pytest


@pytest.fixture
def start(tmp_path):
    """Start ``bigcons`` with the given arguments in an empty folder."""

    def start(*arguments):
        return subprocess.Popen(
            [sys.executable, "-m", "bigcons", *arguments],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.mark.parametrize(
    ("arguments", "status"), [(["--version"], 0), (["info", "nowhere.zarr"], 1), (["nonsense"], 2)]
)
def test_status__tells_what_happened(start, arguments, status):
    child = start(*arguments)
    _, errors = child.communicate(timeout=600)
    assert child.returncode == status
    assert "Traceback" not in errors


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no POSIX signals")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_run__stops_at_a_signal_and_says_so(start, tmp_path, number, status):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(100_000, 20)))
    child = start("run", "x.npy", "-k", "4", "-o", "out", "--n-partitions", "400")
    while not list(tmp_path.glob("out/ensemble.zarr.partial/*")):
        assert child.poll() is None, child.stderr.read()
        time.sleep(0.05)
    child.send_signal(number)
    _, errors = child.communicate(timeout=600)
    assert child.returncode == status
    *kept, line = errors.strip().splitlines()
    assert all("What is finished is kept in" in before for before in kept)
    assert "ed before the output was complete; repeat" in line
