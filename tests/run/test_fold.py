"""Engines of this process, the fold over blocks, progress, and the threads of BLAS."""

import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from bigcons.errors import InvalidInputError
from bigcons.memory import row_blocks
from bigcons.progress import Progress, progress, report_progress_to
from bigcons.run.engine import (
    SerialEngine,
    ThreadsEngine,
    available_cores,
    fold,
    one_thread,
    resolve_engine,
    stop_if_cancelled,
)

ENGINES = [SerialEngine(), ThreadsEngine(1), ThreadsEngine(2), ThreadsEngine(5)]
NAMES = ["serial", "1 thread", "2 threads", "5 threads"]
PATIENCE = 10  # seconds until a test gives up waiting


class Listener(Progress):
    """A progress listener that writes down what it hears."""

    def __init__(self):
        self.heard = []

    def start(self, what, total, unit):
        self.heard.append(("start", what, total, unit))

    def advance(self, n):
        self.heard.append(("advance", n))

    def finish(self):
        self.heard.append(("finish",))


@pytest.fixture(params=ENGINES, ids=NAMES)
def engine(request):
    return request.param


def test_map__keeps_a_bounded_number_in_flight(engine):
    begun, collected, most = [], 0, 0
    for _ in engine.map(begun.append, range(50)):
        collected += 1
        most = max(most, len(begun) - collected + 1)
    assert (len(begun), collected) == (50, 50)
    assert most <= engine.in_flight


def test_map__an_exception_stops_what_has_not_begun(engine):
    begun = []

    def fail_at_two(item):
        begun.append(item)
        if item == 2:
            raise RuntimeError("the task failed")
        time.sleep(0.01)

    with pytest.raises(RuntimeError, match="the task failed"):
        list(engine.map(fail_at_two, range(1000)))
    assert len(begun) <= 3 + engine.in_flight
    assert not [t for t in threading.enumerate() if t.name.startswith("bigcons")]


def test_map__left_half_way_leaves_no_thread_behind():
    results = ThreadsEngine(2).map(abs, range(1000))
    next(results)
    results.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("bigcons")]


@pytest.mark.parametrize("engine", [SerialEngine(), ThreadsEngine(2)], ids=["serial", "threads"])
def test_fold__an_interrupt_while_combining_ends_within_a_block(engine):
    begun = []

    def combine(a, b):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fold(engine, row_blocks(1000, 1), lambda block: begun.append(block.index), combine)
    assert len(begun) <= 2 + engine.in_flight
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("bigcons")]


@pytest.mark.parametrize("client", ["", 4, True, object()])
def test_resolve_engine__takes_names_and_engines_and_refuses_the_rest(client):
    assert resolve_engine("serial").name == "serial"
    assert resolve_engine(None).n_workers == resolve_engine("threads").n_workers == available_cores()
    given = ThreadsEngine(3)
    assert resolve_engine(given) is given
    with pytest.raises(InvalidInputError, match="client="):
        resolve_engine(client)


def test_fold__sums_floats_to_the_same_bits_on_any_engine(engine):
    values = np.random.default_rng(0).standard_normal(10_000) * 10.0 ** np.arange(10_000).clip(0, 30)

    def total(chosen):
        blocks = row_blocks(values.size, 13)
        return fold(chosen, blocks, lambda block: values[block.start : block.stop].sum(), lambda a, b: a + b)

    assert total(engine) == total(SerialEngine())


def test_fold__has_workers_combine_most_blocks_and_single_ones_at_the_end():
    collected = []

    class Collecting(SerialEngine):
        def map(self, task, items):
            collected.extend(len(group) for group in items)
            return super().map(task, items)

    fold(Collecting(), row_blocks(1526, 1), lambda block: block.index, max)
    assert sum(collected) == 1526
    assert max(collected) == collected[0] == 8
    assert sum(collected[-40:]) == 40
    assert len(collected) < 300
    collected.clear()
    fold(Collecting(), row_blocks(79, 1), lambda block: block.index, max)
    assert collected == [1] * 79


def test_progress__goes_to_the_listener_in_force_and_ends_when_the_work_fails():
    heard = []

    def listener():
        heard.append(Listener())
        return heard[-1]

    with report_progress_to(listener):
        with progress("counting", 10, "pairs") as report:
            fold(SerialEngine(), row_blocks(10, 4), lambda block: 0, max, progress=report)
        with pytest.raises(RuntimeError, match="broken"), progress("work", 3):
            raise RuntimeError("broken")
    advances = [("advance", n) for n in (4, 4, 2)]
    assert heard[0].heard == [("start", "counting", 10, "pairs"), *advances, ("finish",)]
    assert heard[1].heard[-1] == ("finish",)
    with progress("unheard", 1):
        assert len(heard) == 2


def test_threads__a_task_of_many_steps_ends_when_nobody_waits_for_it():
    begun, ended = threading.Event(), threading.Event()

    def task(number):
        if number:
            begun.set()
        for _ in range(10_000 * number):
            try:
                stop_if_cancelled()
            except CancelledError:
                ended.set()
                raise
            time.sleep(0.001)

    results = ThreadsEngine(2).map(task, range(2))
    next(results)
    assert begun.wait(PATIENCE)
    results.close()
    assert ended.is_set()
    stop_if_cancelled()  # outside of tasks nothing is cancelled


def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_one_thread__holds_until_the_last_of_several_threads_leaves():
    with one_thread(user_api="blas"):  # which loads the libraries
        pass
    if not any(pool.get("threading_layer") == "pthreads" for pool in threadpool_info()):
        pytest.skip("no library counts its threads for the process")
    with ThreadPoolExecutor(1) as one:  # a thread that lives would keep others from setting limits
        before = one.submit(threadpool_limits, 2, "blas").result()
    with ThreadPoolExecutor(1) as a, ThreadPoolExecutor(1) as b:
        assert blas_threads() == {2}
        blocks = [one_thread(user_api="blas") for _ in range(2)]
        for thread, block in zip((a, b), blocks, strict=True):
            thread.submit(block.__enter__).result()
        assert blas_threads() == {1}
        a.submit(blocks[0].__exit__, None, None, None).result()
        assert blas_threads() == {1}
        with one_thread(user_api="blas"):
            assert blas_threads() == {1}
        b.submit(blocks[1].__exit__, None, None, None).result()
        assert blas_threads() == {2}
        with one_thread(user_api="blas"):
            assert blas_threads() == {1}
        assert blas_threads() == {2}
    with ThreadPoolExecutor(1) as one:
        one.submit(before.restore_original_limits).result()
