"""Compiled kernels on disk: found by another process, never mistaken, harmless if damaged."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bigcons.kernels import _jit
from bigcons.kernels._jit import jit, leaf
from bigcons.kernels.divergences import bregman_functions

CALL = """
import sys
import numpy as np
from bigcons.kernels import divergences, label_rows, pair_descent
dtype = np.dtype(sys.argv[1])
left = np.arange(12, dtype=dtype).reshape(4, 3) % 3 - 1
right = np.ones((4, 3), dtype=dtype)
n_agree, n_seen = np.zeros((4, 4), np.int32), np.zeros((4, 4), np.int32)
label_rows.count_tile(left, right, n_agree, n_seen)
expected = ((left[:, None] == right[None]) & (left[:, None] >= 0)).sum(axis=2)
assert (n_agree == expected).all(), n_agree
rows = np.full((2, 4), 0.5)
csr = np.array([0, 1, 2]), np.array([1, 0], np.int32), np.full(2, 0.25, np.float32), np.ones(2, np.float32)
others = np.empty((0, 0), np.float32)
value = pair_descent.total_value(rows, *csr, others, divergences.kl_value)
assert pair_descent.total_value(rows, *csr, others, divergences.l2_value) == 0.0625
print(sum(label_rows.count_tile.stats.cache_hits.values()),
      sum(pair_descent.total_value.stats.cache_hits.values()), value.hex())
"""


@pytest.mark.slow
def test_jit__later_processes_find_what_others_compiled_at_the_same_time(tmp_path):
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    said = []
    for dtypes in (("int8", "int8", "int16"), ("int16",)):
        started = [
            subprocess.Popen(
                [sys.executable, "-c", CALL, dtype], env=environment, stdout=subprocess.PIPE, text=True
            )
            for dtype in dtypes
        ]
        said += [process.communicate(timeout=600)[0].split() for process in started]
    assert len({value for *_, value in said}) == 1  # the same bits, compiled or loaded
    assert said[-1][:2] == ["1", "2"]  # found: without and with functions as arguments
    assert not list(tmp_path.rglob("*.partial"))


FAULTS = ["cut", "flipped", "exchanged", "edited", "foreign", "unwritable", "a pipe", "a device", "200 GB"]


@pytest.mark.parametrize("fault", FAULTS)
def test_jit__damaged_or_foreign_entries_are_compiled_anew(tmp_path, monkeypatch, fault):
    entries = _jit._Entries(tmp_path, "kernel")
    entries.save("of int8", ["code of int8"])
    entries.save("of int16", ["code of int16"])
    assert entries.load("of int8") == ["code of int8"]
    file, other = entries._path("of int8"), entries._path("of int16")
    content = file.read_bytes()
    if fault == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif fault == "flipped":
        file.write_bytes(content[:40] + bytes([content[40] ^ 255]) + content[41:])
    elif fault == "exchanged":  # whole, and machine code of other types
        file.write_bytes(other.read_bytes())
    elif fault == "edited":
        monkeypatch.setattr(_jit, "_sources", lambda: b"of edited kernels")
    elif fault == "foreign":  # others may write here
        if os.name != "posix":
            pytest.skip("no POSIX permissions")
        tmp_path.chmod(0o777)
        _jit._is_safe.cache_clear()
    elif fault == "200 GB":  # on the disk nothing
        os.truncate(file, 200_000_000_000)
    else:
        file.unlink()
        if fault == "a pipe":
            os.mkfifo(file)
        elif fault == "a device":
            file.symlink_to("/dev/zero")
        else:
            file.mkdir()
    assert entries.load("of int8") is None
    entries.save("of int8", ["code of int8"])
    assert entries.load("of int8") == (None if fault in ("foreign", "unwritable") else ["code of int8"])


def test_jit__an_entry_that_a_full_disk_does_not_take_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    entries = _jit._Entries(tmp_path, "kernel")
    monkeypatch.setattr(Path, "replace", fail)
    entries.save("of int8", ["code of int8"])
    assert not list(tmp_path.iterdir())


def test_jit__never_keeps_the_function_of_a_user():
    for kernel in bregman_functions(lambda x: x * x):
        assert _jit._stable_name(kernel) is None


def test_leaf__is_compiled_once_for_constants_and_numbers_and_runs_as_written_in_python():
    @leaf
    def add(a, b):
        return a + b

    @jit
    def sums(n):
        return add(n, 1), add(2, n), add(n, n)

    assert sums(5) == (6, 7, 10)
    assert len(add.signatures) == 1
    assert add("a", "b") == "ab"
