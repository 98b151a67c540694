"""Settings that every test shares."""

import gc
import os
import signal
import sys

import dask
import pytest
from hypothesis import HealthCheck, settings

# The first example of a test may compile a kernel, so none has a deadline; the draws are the same every run,
# but for --hypothesis-profile=thorough.
COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("bigcons", derandomize=True, max_examples=25, **COMMON)
settings.register_profile("thorough", max_examples=400, **COMMON)
settings.load_profile("bigcons")

# Other processes share the processors: threads of OpenMP and OpenBLAS that wait shall sleep, not spin. They
# read it when loaded, which the processes of xdist do after this, and those that tests start.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

# A cluster that lost a worker looks 15 s later whether it is there, and if not closes its nanny for good. By
# then the next test may have killed that worker, and its nanny is about to bring it back.
dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"})

# A shell has the jobs in its background ignore Ctrl-C, and so would the processes that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Files and folders to begin with, in this order. The solves of all methods compile most kernels; beside them
# runs what compiles next to nothing, or other kernels, lest two processes compile the same. What takes long
# comes early, lest a process be left with it at the end.
FIRST = {
    "methods/test_estimator_contract.py": 0,
    "faults/test_engine_faults.py": 1,
    "tests/test_divergences.py": 2,
    **dict.fromkeys(("cases", "io", "store"), 2),
    **dict.fromkeys(("methods", "run", "disk"), 3),
    **dict.fromkeys(("trust", "generate"), 4),
}


def pytest_xdist_auto_num_workers():
    """Take a process more than there are processors: tests wait for other processes and for clusters."""
    return os.cpu_count() + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Look for garbage neither during the collection nor, afterwards, among what it made and imported."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


def pytest_collection_modifyitems(items):
    """Begin with `FIRST` and files of slow tests."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}

    def place(item):
        folder = item.path.parent.name
        return FIRST.get(f"{folder}/{item.path.name}", FIRST.get(folder, 4 if item.path in slow else 5))

    items.sort(key=place)


@pytest.fixture(autouse=True)
def no_client_is_left():
    """Fail a test that leaves a client of Dask on which later tests would compute without asking for it."""
    yield
    if distributed := sys.modules.get("distributed"):
        left = distributed.client._get_global_client()
        distributed.client._set_global_client(None)
        assert left is None, f"the test leaves {left} as the default"
