"""A solve whose disk, clock, scheduler or process fails in mid-pass: one line, passes kept, the same bits."""

import errno
import os
import shutil
import signal
import sys
import threading
import time
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import distributed
import pytest
from click.testing import CliRunner

from bigcons import PCC, Consensus
from bigcons.cli import main
from bigcons.datasets import planted_ensemble
from bigcons.disk.checkpoint import FileBlocks
from bigcons.disk.places import DiskPlace
from bigcons.errors import BigconsError, ExecutionError, StoreError
from tests.support.fits import bits

PARAMETERS: dict[str, Any] = {"n_clusters": 4, "random_state": 3, "tol": 0.0, "max_iter": 4}
OPTIONS = ["-m", "pcc", "-k", "4", "--random-state", "3", "--tol", "0", "--max-iter", "4"]
N_BLOCKS = 5
MIDDLE = 2 * N_BLOCKS + 3
"""The write of a block in the middle of pass 2, when pass 1 is committed."""


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory):
    path = tmp_path_factory.mktemp("solve") / "ensemble.zarr"
    planted_ensemble(256 * N_BLOCKS, 10, missing=0.2, random_state=3)[0].save(path, chunk_rows=256)
    return path


@pytest.fixture(scope="module")
def quiet(ensemble):
    return bits(PCC(**PARAMETERS, client="serial").fit(ensemble))


@contextmanager
def during(act):
    """Act in the middle of pass 2 of a solve in this process; yields a list with the number of writes."""
    write, calls = FileBlocks.write, [0]

    def acting(*arguments):
        calls[0] += 1
        if calls[0] == MIDDLE:
            act()
        write(*arguments)

    with patch.object(FileBlocks, "write", acting):
        yield calls


def fit(ensemble, out, client="serial"):
    return PCC(**PARAMETERS, client=client).fit(ensemble, out=out)


def assert_resumes(ensemble, out, quiet):
    """Assert that the passes are kept, and that the next run makes only those that lack."""
    assert (out.parent / f"{out.name}.partial/snapshot.npz").exists()
    with during(lambda: None) as calls:
        assert bits(fit(ensemble, out)) == quiet
    assert calls[0] <= (PARAMETERS["max_iter"] - 1) * N_BLOCKS
    assert [path.name for path in out.parent.iterdir()] == [out.name]


@pytest.mark.parametrize(
    "code", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO], ids=errno.errorcode.get
)
def test_solve__whose_disk_fails_in_a_pass_keeps_those_before(ensemble, quiet, tmp_path, code):
    out = tmp_path / "c.zarr"

    def fail(place, *_, **__):
        raise OSError(code, os.strerror(code), str(place))

    with (
        pytest.MonkeyPatch.context() as failing,
        during(lambda: failing.setattr(DiskPlace, "write", fail)),
        pytest.raises(StoreError) as caught,
    ):
        fit(ensemble, out)
    assert "\n" not in str(caught.value)
    assert "c.zarr.partial" in str(caught.value)
    assert_resumes(ensemble, out, quiet)


@pytest.mark.parametrize("what", ["labels/c", "."], ids=["chunks", "store"])
def test_solve__whose_ensemble_is_removed_stops_and_resumes_when_it_is_back(ensemble, quiet, tmp_path, what):
    own, kept, out = tmp_path / "in/e.zarr", tmp_path / "kept/e.zarr", tmp_path / "out/c.zarr"
    for copy in (own, kept):
        shutil.copytree(ensemble, copy)
    with during(lambda: shutil.rmtree(own / what)), pytest.raises(BigconsError) as caught:
        fit(own, out)
    assert "\n" not in str(caught.value)
    shutil.copytree(kept, own, dirs_exist_ok=True)
    assert_resumes(own, out, quiet)


def test_solve__does_not_mind_a_clock_that_jumps(ensemble, quiet, tmp_path):
    real, jumps = time.time, iter([4e7, -4e7] * 10_000)
    with pytest.MonkeyPatch.context() as patched:

        def stop():
            raise KeyboardInterrupt

        patched.setattr(time, "time", lambda: real() + next(jumps))
        with during(stop), pytest.raises(KeyboardInterrupt):
            fit(ensemble, tmp_path / "c.zarr")
        assert_resumes(ensemble, tmp_path / "c.zarr", quiet)
        assert Consensus.open(tmp_path / "c.zarr").verify()
    assert next(jumps) is not None


@contextmanager
def cluster(**options):
    """A scheduler and a worker in this process, which others can reach."""
    with distributed.LocalCluster(
        **{"n_workers": 1, "threads_per_worker": 1, "processes": False, "protocol": "tcp", **options},
        dashboard_address=":0",
    ) as found:
        yield found


def test_solve__whose_scheduler_is_lost_keeps_its_passes(ensemble, quiet, tmp_path):
    with cluster() as found, distributed.Client(found, set_as_default=False) as client:
        ended = threading.Thread(target=found.close)
        with during(ended.start), pytest.raises(ExecutionError) as caught:
            fit(ensemble, tmp_path / "c.zarr", client)
        ended.join()
    assert "\n" not in str(caught.value)
    assert "scheduler was lost" in str(caught.value)
    assert_resumes(ensemble, tmp_path / "c.zarr", quiet)


@pytest.mark.skipif(sys.platform == "win32", reason="no POSIX signals")
@pytest.mark.parametrize(
    ("sent", "word", "status"), [(signal.SIGINT, "Interrupted", 130), (signal.SIGTERM, "Terminated", 143)]
)
def test_solve_command__on_a_scheduler_stops_on_signals(
    ensemble, quiet, tmp_path, sent, word, status, caplog
):
    out, go_on = tmp_path / "c.zarr", threading.Event()

    def hold():
        os.kill(os.getpid(), sent)
        go_on.wait(60)

    handler = signal.getsignal(sent)
    with cluster() as found:
        with during(hold):
            asked = ["solve", str(ensemble), *OPTIONS, "--scheduler", found.scheduler_address, "-o", str(out)]
            stopped = CliRunner().invoke(main, asked)
            go_on.set()
        while found.scheduler.tasks or any(worker.state.executing for worker in found.workers.values()):
            time.sleep(0.02)
    assert stopped.exit_code == status
    assert stopped.stderr.splitlines()[-1].startswith(f"{word} before the output was complete; repeat")
    assert f"What is finished is kept in {out}.partial; repeat the call to resume" in caplog.text
    assert signal.getsignal(sent) is handler
    assert_resumes(ensemble, out, quiet)
