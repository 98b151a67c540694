"""The meter of the demo sees what a step takes."""

import threading
import time

import numpy as np
import pytest

from bigcons.cli.meter import Meter


def test_meter__sees_the_peak_and_not_only_the_end():
    with Meter() as idle:
        pass
    with Meter() as busy:
        block = np.ones(8_000_000)
        time.sleep(0.1)
        del block
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
