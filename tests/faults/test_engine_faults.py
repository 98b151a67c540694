"""Workers that die, freeze or never come, a dead scheduler, Ctrl-C: the same bits or one line, no hang."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import dask
import distributed
import numba
import numpy as np
import pytest

from bigcons.errors import ExecutionError
from bigcons.memory import row_blocks
from bigcons.run.dask import DaskEngine, connect
from bigcons.run.engine import SerialEngine, fold
from bigcons.version import __version__
from tests.support.clusters import local_client

pytestmark = pytest.mark.slow

SETTINGS = {"distributed.scheduler.allowed-failures": 1, "distributed.worker.memory.pause": False}
SCHEDULER = """
import distributed, time
if __name__ == "__main__":
    workers = {"processes": False, "n_workers": 1, "threads_per_worker": 1}
    with distributed.LocalCluster(dashboard_address=":0", protocol="tcp", **workers) as cluster:
        print(cluster.scheduler_address, flush=True)
        time.sleep(600)
"""
PYTHON = sys.version_info[:2]


@contextmanager
def workers(n_workers, **options):
    with dask.config.set(SETTINGS), local_client(n_workers, **options) as client:
        yield client


@pytest.fixture(scope="module", params=[1, 2], ids=["one process", "two processes"])
def shared(request):
    with workers(request.param) as client:
        yield client, request.param


@pytest.fixture
def client(shared):
    """A client whose workers are there, also those that the test before killed."""
    client, n_workers = shared
    try:
        client.wait_for_workers(n_workers, timeout=30)
    except TimeoutError:  # a nanny that was busy may give up its worker
        client.cluster.scale(0)
        client.cluster.scale(n_workers)
        client.wait_for_workers(n_workers, timeout=600)
    return client


@pytest.fixture
def scheduler_process(tmp_path):
    """A scheduler with one worker in a process of its own, and a client of it."""
    script = tmp_path / "scheduler.py"
    script.write_text(SCHEDULER)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as process:
        try:
            client = distributed.Client(process.stdout.readline().strip(), timeout=5, set_as_default=False)
            yield process, client
        finally:
            process.kill()
            client.close()


@pytest.fixture
def foreign_worker(tmp_path):
    """Have a worker join whose bigcons is a file of this text."""
    processes = []

    def start(client, text):
        package = tmp_path / "foreign" / "bigcons"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(text)
        address, options = client.cluster.scheduler_address, ("--no-nanny", "--nthreads=1", "--no-dashboard")
        before = len(client.nthreads())
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "distributed.cli.dask_worker", address, *options],
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": str(package.parent)},
                stderr=subprocess.DEVNULL,
            )
        )
        wait_until(lambda: len(client.nthreads()) > before)

    yield start
    for process in processes:
        process.kill()
        process.wait()


def wait_until(condition):
    """Wait until ``condition()`` holds, but not for ever."""
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it never came to that")


def is_first(path):
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def block_sums(rng=0):
    """Return blocks, a task that sums floats whose order of addition shows, and the sum."""
    values = np.random.default_rng(rng).standard_normal(200) * 10.0 ** np.arange(-100, 100)
    blocks = row_blocks(200, 10)

    def task(block):
        return values[block.start : block.stop].sum()

    return blocks, task, fold(SerialEngine(), blocks, task, lambda a, b: a + b)


def assert_one_line(caught, *words):
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize("n_bytes", [0, 3_000_000], ids=["small state", "large state"])
def test_fold__survives_a_killed_worker_with_the_same_bits(client, tmp_path, n_bytes, caplog):
    blocks, block_sum, expected = block_sums()
    ballast = np.random.default_rng(0).bytes(n_bytes)

    def task(block):
        assert len(ballast) == n_bytes
        if block.index == 7 and is_first(tmp_path / "killed"):
            os.kill(os.getpid(), signal.SIGKILL)
        return block_sum(block)

    total = fold(DaskEngine(client), blocks, task, lambda a, b: a + b)
    assert (tmp_path / "killed").exists()
    assert total.tobytes() == expected.tobytes()
    assert sum("it had run again" in line for line in caplog.messages) == 1


@pytest.mark.parametrize("shared", [1], indirect=True, ids=["one process"])
def test_fold__survives_a_worker_that_its_nanny_restarts_for_memory(client, tmp_path, caplog):
    blocks, block_sum, expected = block_sums()
    (nanny,) = client.cluster.workers.values()

    def task(block):
        if block.index == 7 and is_first(tmp_path / "hoards"):
            held = np.ones(1 << 26)
            while held.all():
                time.sleep(0.1)
        return block_sum(block)

    before, limit = nanny.pid, nanny.memory_manager.memory_limit
    nanny.memory_manager.memory_limit = 1 << 29
    try:
        total = fold(DaskEngine(client), blocks, task, lambda a, b: a + b)
    finally:
        nanny.memory_manager.memory_limit = limit
    assert (tmp_path / "hoards").exists()
    assert nanny.pid != before
    assert total.tobytes() == expected.tobytes()
    assert sum("it had run again" in line for line in caplog.messages) == 1


@pytest.mark.parametrize("n_workers", [1, 2])
def test_map__a_task_that_kills_every_worker_ends_in_one_line(n_workers):
    with workers(n_workers) as client:
        with pytest.raises(ExecutionError) as caught:
            list(DaskEngine(client, patience=60.0).map(lambda _: os.kill(os.getpid(), signal.SIGKILL), [0]))
        assert_one_line(caught, "task 0", "2 workers that died one after another", "more memory")


@pytest.mark.parametrize("shared", [1], indirect=True, ids=["one process"])
def test_fold__waits_for_a_frozen_worker_that_goes_on_later(client, tmp_path):
    blocks, block_sum, expected = block_sums()
    (pid,), frozen = client.run(os.getpid).values(), []

    def freeze():
        wait_until((tmp_path / "begun").exists)
        os.kill(pid, signal.SIGSTOP)
        frozen.append(time.monotonic())
        time.sleep(1.5)
        os.kill(pid, signal.SIGCONT)

    def task(block):
        (tmp_path / "begun").touch()
        time.sleep(0.03)
        return block_sum(block)

    thread = threading.Thread(target=freeze)
    thread.start()
    total = fold(DaskEngine(client), blocks, task, lambda a, b: a + b)
    thread.join()
    assert total.tobytes() == expected.tobytes()
    assert time.monotonic() - frozen[0] > 1.5


def test_map__a_frozen_worker_ends_in_one_line(tmp_path):
    def task(_):
        (tmp_path / "pid.new").write_text(str(os.getpid()))
        (tmp_path / "pid.new").rename(tmp_path / "pid")
        time.sleep(60)

    def freeze():
        wait_until((tmp_path / "pid").exists)
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGSTOP)

    with workers(1) as client:
        threading.Thread(target=freeze).start()
        try:
            with pytest.raises(ExecutionError) as caught:
                list(DaskEngine(client, patience=2.0).map(task, range(3)))
        finally:
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert_one_line(caught, "task 0", "no Dask worker worked", "1 running")


def test_map__no_worker_ends_in_one_line():
    with workers(0, processes=False) as client:
        with pytest.raises(ExecutionError) as caught:
            list(DaskEngine(client, patience=1.0).map(abs, [-1]))
        assert_one_line(caught, "task 0", "none there", "start workers")


def test_map__waits_for_a_worker_that_comes_late():
    with workers(0, processes=False) as client:
        threading.Timer(1.0, client.cluster.scale, [1]).start()
        assert list(DaskEngine(client, patience=30.0).map(abs, [-1, -2])) == [1, 2]


def test_map__a_lost_scheduler_is_not_waited_for_under_load(scheduler_process):
    """Whatever Dask is configured to wait for a connection: results come all the time as it is killed."""
    process, client = scheduler_process
    results = DaskEngine(client).map(lambda _: bytes(500_000), range(10_000))
    for _ in range(20):
        next(results)
    process.kill()
    began = time.monotonic()
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "300s"}),
        pytest.raises(ExecutionError) as caught,
    ):
        list(results)
    assert_one_line(caught, "scheduler was lost")
    assert time.monotonic() - began < 200  # it was what is configured


def test_open_engine__waits_for_a_scheduler_that_is_busy(scheduler_process):
    process, client = scheduler_process
    process.send_signal(signal.SIGSTOP)
    threading.Timer(1.0, process.send_signal, [signal.SIGCONT]).start()
    with connect(client.scheduler.address, grace=0.3) as engine:
        assert engine.client.status == "running"


FOREIGN = {
    "none": ("raise ImportError('one\\ntwo')", "cannot load bigcons (one)"),
    "another version": ("__version__ = '0.0.1'", "has bigcons 0.0.1"),
    "another Python": (
        f"import sys; __version__ = {__version__!r}; sys.version_info = (3, 9, 0)",
        "has Python 3.9; install Python {}.{}, as run here".format(*PYTHON),
    ),
    "another NumPy": (
        f"import importlib.metadata as m; __version__ = {__version__!r}; m.version = lambda name: '0.1'",
        f"has numba 0.1, numpy 0.1; install numba {numba.__version__}, numpy {np.__version__}, as run here",
    ),
    "no version": ("", "cannot load bigcons (module 'bigcons' has no attribute '__version__')"),
}


@pytest.mark.parametrize(("text", "said"), FOREIGN.values(), ids=FOREIGN)
def test_engine__gives_a_worker_without_this_bigcons_no_tasks(foreign_worker, text, said, caplog):
    with workers(1, processes=False, protocol="tcp", threads_per_worker=1) as client:
        (good,) = client.nthreads()

        def task(_):
            time.sleep(0.05)
            return distributed.get_worker().address

        results = DaskEngine(client).map(task, range(100))
        used = {next(results)}
        foreign_worker(client, text)  # while the map runs
        used.update(results)
        (foreign,) = set(client.nthreads()) - {good}
        wait_until(lambda: foreign in caplog.text or not DaskEngine(client))
        used.update(DaskEngine(client).map(task, range(20)))
        assert used == {good}
        (told,) = [line for line in caplog.messages if line.startswith("no tasks go to a worker: ")]
        assert f"Dask worker {foreign} {said}" in told
        assert "; install " in told or f"install bigcons {__version__}, as run here" in told
        assert set(client.nthreads()) == {good, foreign}


def test_engine__refuses_a_cluster_without_any_worker_that_has_this_bigcons(foreign_worker):
    with workers(0, processes=False, protocol="tcp") as client:
        foreign_worker(client, "")
        for _ in range(2):
            with pytest.raises(ExecutionError) as caught:
                DaskEngine(client)
            assert_one_line(caught, "cannot load bigcons", "in the environment", "restart")


@pytest.mark.parametrize("is_alone", [True, False], ids=["alone", "beside another"])
def test_engine__gives_a_worker_no_tasks_before_it_has_answered(is_alone):
    """However long it takes: a worker that starts, or is stopped, answers later than the engine waits."""
    with workers(2, threads_per_worker=1) as client:
        pids = client.run(os.getpid)
        stopped = [*pids][: 2 if is_alone else 1]
        for address in stopped:
            os.kill(pids[address], signal.SIGSTOP)
        timers = [threading.Timer(9.0, os.kill, [pids[address], signal.SIGCONT]) for address in stopped]
        for timer in timers:
            timer.start()
        engine = DaskEngine(client)
        assert engine.workers.keys() == pids.keys() - set(stopped)

        def task(_):
            time.sleep(0.2)
            return distributed.get_worker().address

        used = list(engine.map(task, range(80)))
        assert set(used[:20]) <= ({*stopped} if is_alone else pids.keys() - set(stopped))
        assert engine.workers.keys() == pids.keys()
        assert set(used) == set(pids)
