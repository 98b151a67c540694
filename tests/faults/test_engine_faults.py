"""Workers that die, freeze or never come, a dead scheduler, Ctrl-C: the same bits or one line, no hang."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import dask
import distributed
import numpy as np
import pytest

from bigcons.errors import ExecutionError
from bigcons.execution.dask_engine import DaskEngine
from bigcons.execution.engine import SerialEngine, ThreadsEngine
from bigcons.execution.fold import fold
from bigcons.memory import row_blocks

SETTINGS = {"distributed.scheduler.allowed-failures": 1, "distributed.worker.memory.pause": False}
SCHEDULER = """
import distributed, time
if __name__ == "__main__":
    workers = {"processes": False, "n_workers": 1, "threads_per_worker": 1}
    with distributed.LocalCluster(dashboard_address=":0", protocol="tcp", **workers) as cluster:
        print(cluster.scheduler_address, flush=True)
        time.sleep(60)
"""


@contextmanager
def workers(n_workers, **options):
    with (
        dask.config.set(SETTINGS),
        distributed.LocalCluster(
            dashboard_address=":0", n_workers=n_workers, threads_per_worker=1, **options
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module", params=[1, 2], ids=["one process", "two processes"])
def client(request):
    with workers(request.param) as client:
        yield client


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


def wait_until(condition):
    """Wait until ``condition()`` holds, but not for ever."""
    for _ in range(400):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it never came to that")


def wait_for(path):
    """Wait until a file is there."""
    wait_until(path.exists)


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
def test_fold__survives_a_killed_worker_with_the_same_bits(client, tmp_path, n_bytes):
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


def test_map__results_lost_before_they_were_collected_are_computed_again(client, tmp_path):
    def task(position):
        (tmp_path / f"done-{position}-{time.monotonic_ns()}").touch()
        return position, os.getpid()

    results = DaskEngine(client).map(task, range(5))
    first, pid = next(results)
    wait_until(lambda: len(list(tmp_path.iterdir())) >= 2)
    os.kill(pid, signal.SIGKILL)
    assert [first, *(position for position, _ in results)] == list(range(5))


def test_map__a_task_that_kills_its_workers_ends_in_one_line(client):
    def task(block):
        if block.index == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.1)

    with pytest.raises(ExecutionError) as caught:
        list(DaskEngine(client).map(task, row_blocks(20, 10)))
    assert_one_line(caught, "block ", "(rows ", "workers that died", "memory")


def test_map__an_interrupt_in_the_driver_leaves_nothing_queued(client, tmp_path):
    def task(position):
        (tmp_path / f"begun-{position}").touch()
        wait_for(tmp_path / "go")

    def interrupt():
        wait_for(tmp_path / "begun-0")
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        list(DaskEngine(client).map(task, range(1000)))
    wait_until(lambda: not client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))
    (tmp_path / "go").touch()
    assert list(DaskEngine(client).map(abs, [-1])) == [1]
    assert 1 <= len(list(tmp_path.glob("begun-*"))) <= sum(client.nthreads().values())


def test_map__a_frozen_worker_ends_in_one_line(tmp_path):
    def task(_):
        (tmp_path / "pid.new").write_text(str(os.getpid()))
        (tmp_path / "pid.new").rename(tmp_path / "pid")
        time.sleep(60)

    def freeze():
        wait_for(tmp_path / "pid")
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGSTOP)

    with workers(1) as client:
        threading.Thread(target=freeze).start()
        try:
            with pytest.raises(ExecutionError) as caught:
                list(DaskEngine(client, patience=2.0).map(task, range(3)))
        finally:
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert_one_line(caught, "task 0", "no Dask worker worked", "1 running")


def test_map__a_paused_worker_ends_in_one_line():
    def pause(dask_worker):
        dask_worker.status = distributed.Status.paused

    with workers(1, processes=False) as client:
        client.run(pause)
        with pytest.raises(ExecutionError) as caught:
            list(DaskEngine(client, patience=1.0).map(abs, [-1]))
    assert_one_line(caught, "task 0", "1 paused", "free the memory")


def test_map__no_worker_ends_in_one_line():
    with workers(0, processes=False) as client:
        with pytest.raises(ExecutionError) as caught:
            list(DaskEngine(client, patience=1.0).map(abs, [-1]))
        assert_one_line(caught, "task 0", "none there", "start workers")


def test_map__waits_for_a_worker_that_comes_late():
    with workers(0, processes=False) as client:
        threading.Timer(1.0, client.cluster.scale, [1]).start()
        assert list(DaskEngine(client, patience=30.0).map(abs, [-1, -2])) == [1, 2]


def test_map__patience_is_not_for_tasks_that_run():
    with workers(1, processes=False) as client:
        assert list(DaskEngine(client, patience=2.0).map(time.sleep, [4.0])) == [None]


def test_map__a_dead_scheduler_ends_in_one_line(scheduler_process, tmp_path):
    process, client = scheduler_process

    def task(_):
        (tmp_path / "begun").touch()
        time.sleep(60)

    def kill():
        wait_for(tmp_path / "begun")
        process.kill()

    threading.Thread(target=kill).start()
    with pytest.raises(ExecutionError) as caught:
        list(DaskEngine(client).map(task, range(3)))
    assert_one_line(caught, "scheduler was lost", "task 0")


def test_map__a_frozen_scheduler_ends_in_one_line(scheduler_process, tmp_path, monkeypatch):
    monkeypatch.setattr("bigcons.execution.dask_engine.CONNECT_SECONDS", 0.5)
    process, client = scheduler_process
    engine = DaskEngine(client, patience=2.0)
    process.send_signal(signal.SIGSTOP)
    with pytest.raises(ExecutionError) as caught:
        list(engine.map(abs, [-1]))
    assert_one_line(caught, "task 0", "no Dask worker worked")


@pytest.mark.parametrize("n_workers", [1, 2])
def test_map__an_interrupt_ends_threads_within_a_block(n_workers, tmp_path):
    begun = []

    def task(position):
        begun.append(position)
        if len(begun) == n_workers:
            os.kill(os.getpid(), signal.SIGINT)
        wait_for(tmp_path / "go")

    threading.Timer(1.0, (tmp_path / "go").touch).start()
    with pytest.raises(KeyboardInterrupt):
        list(ThreadsEngine(n_workers).map(task, range(1000)))
    assert len(begun) == n_workers


def test_script__ends_quietly(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import distributed\n"
        "from bigcons.execution.engine import resolve_engine\n"
        "if __name__ == '__main__':\n"
        "    with distributed.LocalCluster(n_workers=1, dashboard_address=':0') as cluster:\n"
        "        with distributed.Client(cluster):\n"
        "            print(sum(resolve_engine().map(abs, range(-50, 0))))\n"
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", script],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        timeout=60,
    )
    assert (run.stdout.strip(), run.stderr) == ("1275", "")
