"""The meter of the demo sees what a step takes."""

import mmap
import threading
import time

import pytest

from bigcons.cli.demo import Meter


def test_meter__sees_the_peak_and_not_only_the_end():
    with Meter() as idle:
        pass
    with Meter() as busy, mmap.mmap(-1, 64_000_000) as fresh:  # not of what the process has freed before
        for start in range(0, 64_000_000, 1000):
            fresh[start] = 1
        time.sleep(0.1)
    assert busy.peak_memory > idle.peak_memory + 50_000_000
    assert busy.seconds >= 0.1
    assert busy.as_numbers("step") == {
        "name": "step",
        "seconds": busy.seconds,
        "peak_memory": busy.peak_memory,
    }


def test_meter__leaves_no_thread_behind_an_error():
    with pytest.raises(ZeroDivisionError), Meter():
        _ = 1 / 0
    assert "bigcons-meter" not in [thread.name for thread in threading.enumerate()]
