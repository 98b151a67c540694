"""A power cut: before a commit its data are on the disk, and the commit is there when the call returns."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import system_calls
from bigcons import Ensemble, PairTable
from bigcons.disk import commit
from bigcons.disk.checkpoint import Snapshots
from tests.support.stores import write_consensus

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds the path of a descriptor in /proc")

LABELS = np.arange(60).reshape(20, 3) % 4


def state_of(path):
    found = Path(path).stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


class Recorder:
    """What is flushed and renamed, in order; on every commit, what it names that was not flushed before."""

    def __init__(self, patch, folder):
        self.folder = folder
        self.events, self.missed = [], []
        self.flushed = {}
        fsync, exchange = os.fsync, commit._exchange

        def recorded_fsync(descriptor):
            fsync(descriptor)
            path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
            self.events.append(("flush", path))
            self.flushed[os.fstat(descriptor).st_ino] = state_of(path)

        def recorded(move):
            def renamed(source, target, *rest):
                self.check(Path(source), Path(target))
                found = move(source, target, *rest)
                self.events.append(("rename", str(target)))
                return found

            return renamed

        patch.setattr(os, "fsync", recorded_fsync)
        for name in ("replace", "rename"):
            patch.setattr(os, name, recorded(getattr(os, name)))
        patch.setattr(commit, "_exchange", recorded(exchange))

    def check(self, source, target):
        """Note what is not on the disk as it is, of what ``target`` will name if it is a commit."""
        if target.name != "snapshot.npz" and target.parent != self.folder:
            return
        files = [source] if source.is_file() else [path for path in source.rglob("*") if path.is_file()]
        self.missed += [str(path) for path in files if self.flushed.get(path.stat().st_ino) != state_of(path)]


def stored(folder):
    Ensemble.from_labels(LABELS).save(folder / "x", chunk_rows=8)
    return Ensemble.open(folder / "x", "a")


def pairs():
    return PairTable.from_arrays([0, 1, 0], [1, 2, 3], [1, 0, 2], [2, 2, 2], n_objects=4)


def consensus(folder):
    return write_consensus(folder / "x", LABELS[:, 0], None, chunk_rows=8)


# What prepares, and what is recorded of it: everything that commits at `x`.
COMMITS = {
    "ensemble": (lambda f: None, lambda f, _: Ensemble.from_labels(LABELS).save(f / "x", chunk_rows=8)),
    "soft ensemble": (
        lambda f: None,
        lambda f, _: Ensemble.from_memberships([np.eye(3, dtype=np.float32)[LABELS[:, 0] % 3]]).save(f / "x"),
    ),
    "words": (lambda f: None, lambda f, _: Ensemble.from_labels([["a"], ["b"]]).save(f / "x")),
    "replaced ensemble": (
        stored,
        lambda f, _: Ensemble.from_labels(LABELS).save(f / "x", chunk_rows=4, overwrite=True),
    ),
    "appended objects": (stored, lambda f, ensemble: ensemble.append_objects(LABELS)),
    "appended partitions": (stored, lambda f, ensemble: ensemble.append_partitions(LABELS[:, :1])),
    "pairs": (lambda f: None, lambda f, _: pairs().save(f / "x")),
    "pairs in Parquet": (lambda f: None, lambda f, _: pairs().to_parquet(f / "x.parquet")),
    "ensemble in Parquet": (lambda f: None, lambda f, _: Ensemble.from_labels(LABELS).save(f / "x.parquet")),
    "consensus": (lambda f: None, lambda f, _: consensus(f)),
    "replaced consensus": (
        consensus,
        lambda f, _: write_consensus(f / "x", LABELS[:, 1], None, overwrite=True),
    ),
    "export": (consensus, lambda f, found: found.export(f / "x.csv")),
    "snapshot": (lambda f: None, lambda f, _: Snapshots(f / "x", {}).save({"a": LABELS}, {})),
}


@pytest.mark.parametrize("what", COMMITS)
def test_commit__is_flushed_before_it_is_named_and_its_name_after(what, tmp_path, monkeypatch):
    prepare, write = COMMITS[what]
    prepared = prepare(tmp_path)
    with monkeypatch.context() as patch:
        recorder = Recorder(patch, tmp_path)
        write(tmp_path, prepared)
    assert recorder.missed == []
    renames = [n for n, (kind, _) in enumerate(recorder.events) if kind == "rename"]
    last = Path(recorder.events[renames[-1]][1])
    assert ("flush", str(last.parent)) in recorder.events[renames[-1] :]


def test_commit__that_is_not_flushed_is_noticed(tmp_path, monkeypatch):
    """The control of the recorder."""
    monkeypatch.setattr("bigcons.disk.places.DiskPlace.flush", lambda _: None)
    with monkeypatch.context() as patch:
        recorder = Recorder(patch, tmp_path)
        pairs().save(tmp_path / "x")
    assert any("indices" in path for path in recorder.missed)


@pytest.mark.slow
@pytest.mark.parametrize("fault", system_calls.FAULTS)
@pytest.mark.parametrize(("work", "every"), [("append", 9), ("commit", 7), ("passes", 90)])
def test_calls__that_fail_leave_the_old_state_or_the_new(tmp_path, work, every, fault):
    """A few of what `benchmarks/faults.py` does with every call."""
    outcomes, wrong = system_calls.fail_every_call(tmp_path / "x", work, fault, every)
    assert wrong == []
    assert outcomes["old"] > 0
    assert outcomes["other"] == 0


def test_calls__a_commit_that_is_not_flushed_does_not_survive_a_power_cut(tmp_path, monkeypatch):
    """The control: without flushes, a power cut leaves neither state."""
    monkeypatch.setattr("bigcons.disk.places.DiskPlace.flush", lambda self: None)
    _, wrong = system_calls.fail_every_call(tmp_path / "x", "commit", "power cut")
    assert wrong
