"""Engines, the fold over blocks, progress and the loop of passes."""

import threading
import time
from concurrent.futures import CancelledError

import numpy as np
import pytest

from bigcons.errors import InvalidInputError
from bigcons.memory import row_blocks
from bigcons.progress import Progress, progress, report_progress_to
from bigcons.run.engine import (
    SerialEngine,
    ThreadsEngine,
    available_cores,
    fold,
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


def test_map__yields_in_the_order_of_the_items(engine):
    def slow_at_first(item):
        time.sleep(0.002 * (20 - item))
        return item**2

    assert list(engine.map(slow_at_first, range(20))) == [item**2 for item in range(20)]


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


def test_resolve_engine__reads_what_client_may_be():
    assert resolve_engine("serial").name == "serial"
    for client in (None, "threads"):
        assert (resolve_engine(client).name, resolve_engine(client).n_workers) == (
            "threads",
            available_cores(),
        )
    own = ThreadsEngine(3)
    assert resolve_engine(own) is own


@pytest.mark.parametrize("client", ["", 4, True, object()])
def test_resolve_engine__refuses_the_rest(client):
    with pytest.raises(InvalidInputError, match="client="):
        resolve_engine(client)


def test_fold__combines_in_block_order(engine):
    blocks = row_blocks(1000, 7)
    joined = fold(engine, blocks, lambda block: [block.index], lambda a, b: a + b)
    assert joined == list(range(len(blocks)))


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


def test_fold__may_combine_in_place_and_returns_one_block_as_it_is(engine):
    def add(a, b):
        a += b
        return a

    blocks = row_blocks(10, 3)
    total = fold(engine, blocks, lambda block: np.ones(2) * block.n_rows, add)
    assert total.tolist() == [10, 10]
    assert fold(engine, row_blocks(3, 3), lambda block: "only", add) == "only"


def test_fold__passes_on_the_error_of_a_block(engine):
    def fail(block):
        raise OSError(f"block {block.index}")

    with pytest.raises(OSError, match="block 0"):
        fold(engine, row_blocks(10, 1), fail, max)


def test_fold__reports_rows_as_they_are_combined(engine):
    listener = Listener()
    fold(engine, row_blocks(10, 4), lambda block: 0, max, progress=listener)
    assert listener.heard == [("advance", 4), ("advance", 4), ("advance", 2)]


def test_progress__goes_to_the_listener_in_force():
    heard = []

    def listener():
        heard.append(Listener())
        return heard[-1]

    with report_progress_to(listener), progress("counting", 5, "pairs") as report:
        report.advance(2)
    assert heard[0].heard == [("start", "counting", 5, "pairs"), ("advance", 2), ("finish",)]
    with progress("unheard", 1) as report:
        report.advance(1)
    assert len(heard) == 1


def test_progress__ends_when_the_work_fails():
    listener = Listener()
    with (
        report_progress_to(lambda: listener),
        pytest.raises(RuntimeError, match="broken"),
        progress("work", 3),
    ):
        raise RuntimeError("broken")
    assert listener.heard[-1] == ("finish",)


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
