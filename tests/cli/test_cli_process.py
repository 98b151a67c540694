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


@pytest.mark.skipif(sys.platform == "win32", reason="no POSIX signals")
def test_interrupt__that_a_process_ignores_is_ignored_while_it_imports(tmp_path):
    (tmp_path / "click.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(600)\n")
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    command = [sys.executable, "-c", f"{ignoring}; from bigcons.__main__ import main; main()"]
    child = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "importing\n"
    child.send_signal(signal.SIGINT)
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=600)
    assert child.returncode == -signal.SIGTERM


@pytest.mark.skipif(sys.platform == "win32", reason="no POSIX signals")
def test_interrupt__before_the_command_line_is_imported_ends_in_silence(start, tmp_path):
    (tmp_path / "click.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(600)\n")
    child = start("demo")  # in whose folder this click comes first
    assert child.stdout.readline() == "importing\n"
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=600) == ("", "")
    assert child.returncode == -signal.SIGINT


# A demo whose data are made until an interrupt comes, which is raised in a place of its own.
INTERRUPTED = """
import contextlib, signal, sys, time, weakref
import bigcons as bc
from bigcons.cli import main

class Kept: pass

def interrupt(*_):
    signal.raise_signal(signal.SIGINT)

def planted_features(*_, **__):
    if sys.argv[1] == "import":
        with contextlib.suppress(KeyboardInterrupt):
            interrupt()
        raise ImportError("initialization failed")
    if sys.argv[1] == "callback":
        kept = Kept()
        reference = weakref.ref(kept, interrupt)
        del kept
    if sys.argv[1] == "collection":
        Kept.__del__ = interrupt
        Kept()
    for _ in range(600):
        time.sleep(.1)

bc.datasets.planted_features = planted_features
main(["demo"], prog_name="bigcons")
"""


@pytest.mark.parametrize("place", ["import", "callback", "collection"])
def test_interrupt__that_python_drops_or_a_module_turns_into_an_error_is_told_as_such(tmp_path, place):
    command = [sys.executable, "-c", INTERRUPTED, place]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    line = "Interrupted before the output was complete; repeat the command to finish it.\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", line)
