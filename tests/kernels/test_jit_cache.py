"""Compiled kernels on disk: found again by another process, never mistaken, harmless when damaged."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
needs_posix = pytest.mark.skipif(os.name != "posix", reason="processes do not wait for each other")

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
assert pair_descent.total_value(rows, *csr, others, divergences.l2_value, 0.0) == 0.0625
assert pair_descent.total_value(rows, *csr, others, divergences.exponential_value, 1.0) > 0
for kernel in (label_rows.count_tile, pair_descent.total_value):
    print(sum(kernel.stats.cache_hits.values()))
"""


# As after an edit of a kernel: the same code under another hash of the sources.
EDITED = "from bigcons.kernels import _cache; _cache._sources = lambda modules: 'f' * 64\n"
COUNT = """
import sys
import numpy as np
from bigcons.kernels.label_rows import count_tile
labels, counts = np.zeros((1, 2), sys.argv[1]), np.zeros((2, 1, 1), np.int32)
count_tile(labels, labels, *counts)
print(sum(count_tile.stats.cache_hits.values()))
"""


def start(cache: Path, dtype: str = "int8", code: str = CALL) -> subprocess.Popen[str]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(Path(__file__).parents[2])}
    environment.pop("BIGCONS_JIT_CACHE", None)
    return subprocess.Popen(
        [sys.executable, "-c", code, dtype],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def hits(process: subprocess.Popen[str]) -> list[int]:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return [int(word) for word in out.split()]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that four processes filled at the same time, two signatures each twice."""
    cache = tmp_path_factory.mktemp("jit")
    for process in [start(cache, dtype) for dtype in ("int8", "int16", "int8", "int16")]:
        hits(process)
    return cache


def test_keep_on_disk__next_process_finds_kernels_and_those_that_take_functions(filled: Path) -> None:
    assert hits(start(filled, "int8")) == [1, 2]
    assert hits(start(filled, "int16")) == [1, 2]


@needs_posix
def test_keep_on_disk__processes_that_begin_together_compile_each_kernel_once(tmp_path: Path) -> None:
    found = [hits(process) for process in [start(tmp_path) for _ in range(3)]]
    assert [sum(counts) for counts in zip(*found, strict=True)] == [2, 4]


# A process that begins to compile, and a second one that hears of it.
BEGINS = """
import time
from bigcons.kernels.label_rows import count_tile
def compile(*arguments):
    print("begun", flush=True)
    {then}
count_tile._compiler.compile = compile
"""
WAITS = "from bigcons.kernels import _cache; _cache._PATIENCE = {seconds}\n"


@needs_posix
@pytest.mark.parametrize("end", ["is killed", "fails and lives on", "is suspended"])
def test_keep_on_disk__a_process_that_does_not_finish_a_kernel_holds_up_no_other(tmp_path, end) -> None:
    begins = BEGINS.format(then="1 / 0" if end == "fails and lives on" else "time.sleep(1000)")
    count = "try:" + COUNT.replace("\n", "\n    ") + "\nexcept ZeroDivisionError: print(flush=True)\n"
    with start(tmp_path, code=begins + count + "time.sleep(1000)") as first:
        try:
            assert first.stdout is not None
            assert first.stdout.readline() == "begun\n"
            if end == "is killed":
                first.kill()
                first.wait()
            elif end == "fails and lives on":
                assert first.stdout.readline() == "\n"
            waits = WAITS.format(seconds=0 if end == "is suspended" else 1e9)
            assert hits(start(tmp_path, code=waits + COUNT)) == [0]
        finally:
            first.kill()
    assert hits(start(tmp_path, code=COUNT)) == [1]


def test_keep_on_disk__where_nothing_can_be_locked_kernels_are_kept_as_well(tmp_path: Path) -> None:
    (tmp_path / "bigcons" / "locks").mkdir(parents=True)
    assert [hits(start(tmp_path, code=COUNT)) for _ in range(2)] == [[0], [1]]


def test_keep_on_disk__damaged_entries_are_compiled_anew(filled: Path) -> None:
    entries = sorted(filled.rglob("*.nbc"))
    assert entries
    for number, entry in enumerate(entries):
        content = entry.read_bytes()
        entry.write_bytes(
            content[: len(content) // 2]
            if number % 2
            else content[:100] + bytes([content[100] ^ 255]) + content[101:]
        )
    assert hits(start(filled)) == [0, 0]
    assert hits(start(filled)) == [1, 2]


def test_keep_on_disk__entries_of_another_python_are_compiled_anew(filled: Path) -> None:
    """What one version of Python pickled another may not read, though it is whole."""
    for entry in filled.rglob("*.nbc"):
        content = b"a pickle from elsewhere"
        entry.write_bytes(hashlib.sha256(entry.name.encode() + content).digest() + content)
    assert hits(start(filled)) == [0, 0]
    assert hits(start(filled)) == [1, 2]


def test_keep_on_disk__exchanged_entries_are_compiled_anew(tmp_path: Path) -> None:
    """Each is whole, and is the machine code of another kernel or of other types."""
    for process in [start(tmp_path, dtype, COUNT) for dtype in ("int8", "int16")]:
        hits(process)
    first, second = sorted(tmp_path.rglob("*-count_tile-*.nbc"))
    contents = first.read_bytes(), second.read_bytes()
    second.write_bytes(contents[0])
    first.write_bytes(contents[1])
    assert [hits(start(tmp_path, dtype, COUNT)) for dtype in ("int8", "int16")] == [[0], [0]]
    assert [hits(start(tmp_path, dtype, COUNT)) for dtype in ("int8", "int16")] == [[1], [1]]


def test_keep_on_disk__all_copies_of_the_package_share_a_cache(tmp_path: Path) -> None:
    package = Path(__file__).parents[2] / "bigcons"
    shutil.copytree(package, tmp_path / "copy" / "bigcons", ignore=shutil.ignore_patterns("__pycache__"))
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "caches"), "LOCALAPPDATA": str(tmp_path)}
    inherited = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    for folder, expected in ((package.parent, "0"), (tmp_path / "copy", "1")):
        done = subprocess.run(
            [sys.executable, "-c", COUNT, "int8"],
            env={**inherited, **home, "PYTHONPATH": str(folder)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == [expected]


def test_keep_on_disk__leaves_no_temporary_files(filled: Path) -> None:
    assert not list(filled.rglob("*.tmp"))


def make_old(entries: list[Path], days: float) -> None:
    for entry in entries:
        os.utime(entry, (time.time() - days * 86400,) * 2)


def test_keep_on_disk__entries_of_older_sources_go_when_unused_for_a_day(tmp_path: Path) -> None:
    for process in [start(tmp_path, dtype, COUNT) for dtype in ("int8", "int16")]:
        hits(process)
    make_old(list(tmp_path.rglob("*.nbc")), days=2)
    assert hits(start(tmp_path, "int8", COUNT)) == [1]  # which is a use
    for process in [start(tmp_path, dtype, EDITED + COUNT) for dtype in ("int8", "int16", "int16")]:
        hits(process)
    assert hits(start(tmp_path, "int8", COUNT)) == [1]
    assert hits(start(tmp_path, "int16", EDITED + COUNT)) == [1]
    assert hits(start(tmp_path, "int16", COUNT)) == [0]


def test_keep_on_disk__entries_of_other_kernels_and_versions_stay_however_old(tmp_path: Path) -> None:
    hits(start(tmp_path, code=COUNT))
    (entry,) = tmp_path.rglob("*-count_tile-*.nbc")
    elsewhere = [
        entry.with_name(f"bigcons-count_tile-{'0' * 32}-{'0' * 32}.nbc"),  # of another numba, say
        entry.with_name(entry.name.replace("count_tile", "count")),
        entry.with_name("another.pyc"),
    ]
    torn = entry.with_name(f"{entry.stem}-abcdefgh.tmp")
    for path in (*elsewhere, torn):
        path.touch()
    make_old([*elsewhere, torn, entry], days=400)
    hits(start(tmp_path, code=EDITED + COUNT))
    assert [path for path in (*elsewhere, torn, entry) if path.exists()] == elsewhere


def test_keep_on_disk__a_users_function_is_never_kept(tmp_path: Path) -> None:
    from bigcons.kernels import _cache
    from bigcons.kernels.divergences import bregman_functions

    value, slope, curvature = bregman_functions(lambda x: x * x)
    for kernel in (value, slope, curvature):
        assert not _cache._is_ours(kernel)
        assert not isinstance(kernel._cache, _cache.KernelCache)


@pytest.mark.skipif(os.name != "posix", reason="no POSIX permissions")
def test_keep_on_disk__nothing_is_loaded_from_where_others_may_write(filled: Path) -> None:
    (folder,) = {entry.parent for entry in filled.rglob("*-count_tile-*.nbc")}
    assert hits(start(filled, code=COUNT)) == [1]
    folder.chmod(0o777)
    process = start(filled, code=COUNT)
    out, err = process.communicate(timeout=120)
    assert out.split() == ["0"]
    assert f"kernels in {folder} are not loaded, because other users may write to it" in err
    folder.chmod(0o755)
    for entry in folder.glob("*-count_tile-*.nbc"):
        entry.chmod(0o666)
    assert hits(start(filled, code=COUNT)) == [0]  # which replaces the entry
    assert hits(start(filled, code=COUNT)) == [1]


@pytest.mark.skipif(os.name != "posix", reason="no POSIX permissions")
@pytest.mark.parametrize(
    ("mode", "user", "group", "said"),
    [
        (0o40700, 1000, 1000, None),
        (0o40775, 1000, 1000, None),  # the user's private group
        (0o40755, 0, 0, None),
        (0o40755, 77, 0, None),  # who owns the sources
        (0o40775, 1000, 100, "other users may write to it"),
        (0o41777, 0, 0, "other users may write to it"),  # as /tmp: others may add entries
        (0o40755, 1001, 1001, "it belongs to user 1001"),
    ],
)
def test_distrust__by_owner_and_permissions(
    monkeypatch: pytest.MonkeyPatch, mode: int, user: int, group: int, said: str | None
) -> None:
    from bigcons.kernels import _cache

    found = os.stat_result((mode, 0, 0, 0, user, group, 0, 0, 0, 0))
    sources = os.stat_result((0o100644, 0, 0, 0, 77, 77, 0, 0, 0, 0))
    monkeypatch.setattr(_cache.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(_cache.Path, "stat", lambda _: sources)
    assert _cache._distrust(found) == said
