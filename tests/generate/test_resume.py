"""Stores of ensembles of features: what an interrupted call keeps, and what a finished one refuses."""

import errno
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

import bigcons as bc
from bigcons.disk.checkpoint import Snapshots
from bigcons.disk.places import place_of
from bigcons.errors import CorruptStoreError, StoreExistsError, StoreLockedError
from bigcons.generate import kmeans, mixed
from tests.support.engines import CountingEngine, EngineThatStops
from tests.support.forks import Fork
from tests.support.refusals import refused
from tests.support.s3 import keys_below, s3_server

N_OBJECTS = 9000
HOW = {"n_partitions": 7, "train": 300, "random_state": 0}
N_SETS, N_BLOCKS = 6, 3


@pytest.fixture(scope="module")
def wide():
    """As many objects of as many values as make three blocks."""
    return bc.datasets.planted_features(N_OBJECTS, 256, separation=12)[0].astype(np.float32)


@pytest.fixture(scope="module")
def expected(wide):
    return np.asarray(mixed(wide, **HOW))


@pytest.fixture
def out(tmp_path):
    return tmp_path / "e.zarr"


@pytest.fixture
def saved(monkeypatch):
    """The names of the parts that calls keep, as they make them."""
    names, save = [], Snapshots.save

    def noted(self, arrays, facts):
        names.extend([self.folder.name] if arrays else [])
        save(self, arrays, facts)

    monkeypatch.setattr(Snapshots, "save", noted)
    return names


def interrupt(wide, out, n_done):
    """Return the folder of a call that was interrupted after some tasks."""
    with pytest.raises(KeyboardInterrupt):
        mixed(wide, out=out, client=EngineThatStops(n_done, KeyboardInterrupt), **HOW)
    assert not out.exists()
    return Path(f"{out}.partial")


@pytest.mark.slow
def test_mixed__resumes_in_a_bucket(wide, expected, saved):
    with s3_server() as url:
        out = f"{url}/e.zarr"
        with pytest.raises(KeyboardInterrupt):
            mixed(wide, out=out, client=EngineThatStops(8, KeyboardInterrupt), **HOW)
        np.testing.assert_array_equal(mixed(wide, out=out, **HOW), expected)
        assert len(saved) == len(set(saved)) == N_SETS + N_BLOCKS
        assert not keys_below(f"{out}.partial")


def parts(folder):
    return sorted(path.parent.name for path in folder.glob("*-*/snapshot.npz"))


@pytest.mark.parametrize("n_done", [2, 6, 7])
def test_mixed__resumes_what_is_unfinished(wide, expected, out, caplog, saved, n_done):
    folder = interrupt(wide, out, n_done)
    assert f"is kept in {folder}; repeat the call to resume" in caplog.text
    assert len(parts(folder)) == n_done
    for other, named in (({"train": 301}, "train="), ({"n_partitions": 6}, "n_partitions=7")):
        with refused(rf"holds an unfinished run with .*{named}.*overwrite=True"):
            mixed(wide, out=out, **{**HOW, **other})
    resumed = mixed(wide, out=out, **{**HOW, "random_state": None})
    assert len(saved) == len(set(saved)) == N_SETS + N_BLOCKS
    np.testing.assert_array_equal(resumed, expected)
    assert not folder.exists()
    again = mixed(wide, out=out, client=(engine := CountingEngine()), **HOW)
    assert engine.n_tasks == []
    np.testing.assert_array_equal(again, expected)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "full")])
def test_mixed__that_fails_before_anything_is_made_keeps_nothing(wide, out, caplog, error):
    with pytest.raises(type(error)):
        mixed(wide, out=out, client=EngineThatStops(0, error), **HOW)
    assert [*out.parent.iterdir()] == []
    assert "resume" not in caplog.text


def test_mixed__makes_again_what_was_damaged(wide, expected, out, caplog):
    folder = interrupt(wide, out, 7)
    first, second, *_, last = (folder / name / "snapshot.npz" for name in parts(folder))
    content = last.read_bytes()
    last.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    shutil.copy(second, first)  # whole, but of another set
    made = mixed(wide, out=out, **HOW)
    assert caplog.text.count("is made again") == 2
    np.testing.assert_array_equal(made, expected)


def test_mixed__mixes_no_runs_where_the_head_is_damaged_or_of_another(wide, out):
    head = interrupt(wide, out, 2) / "snapshot.npz"
    content = head.read_bytes()
    head.write_bytes(content[:50])
    with pytest.raises(CorruptStoreError, match=r"is damaged.*overwrite=True"):
        mixed(wide, out=out, **HOW)
    head.unlink()
    labels = mixed(wide, out=out, **{**HOW, "random_state": 1})  # what is kept is of another run
    np.testing.assert_array_equal(labels, mixed(wide, **{**HOW, "random_state": 1}))


def test_mixed__clears_what_a_call_left_that_was_killed_after_its_commit(wide, out):
    folder = interrupt(wide, out, 2)
    shutil.copytree(folder, out.with_name("kept"))
    mixed(wide, out=out, **HOW)
    shutil.copytree(out.with_name("kept"), folder)
    out.with_name(".e.zarr.partial.lock").write_text("999999")
    mixed(wide, out=out, **HOW)
    assert sorted(path.name for path in out.parent.iterdir()) == ["e.zarr", "kept"]


def test_mixed__rejects_a_concurrent_call(wide, out, caplog):
    """What is kept is of the call that goes on, and not to be resumed by this one."""
    folder = interrupt(wide, out, 2)
    caplog.clear()
    with place_of(folder).lock(), pytest.raises(StoreLockedError):
        mixed(wide, out=out, **HOW)
    assert "resume" not in caplog.text


CHILD = """
import sys
from bigcons import generate
from tests.support.deaths import die_after
die_after("snapshot", int(sys.argv[3]))
generate.mixed(sys.argv[1], n_partitions=30, train=300, out=sys.argv[2], random_state=0)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "n_saved"), [("centers", 5), ("labels", 21)])
def test_mixed__after_kill_9_only_what_is_unfinished_is_made(wide, tmp_path, out, saved, stage, n_saved):
    x, folder = tmp_path / "x.npy", Path(f"{out}.partial")
    np.save(x, wide)
    assert Fork(CHILD, x, out, n_saved).end()[0] == -signal.SIGKILL
    n_done, n_tasks = len(parts(folder)), 3 + 15 + N_BLOCKS
    assert any(stage in name for name in parts(folder))
    assert 3 <= n_done < n_tasks
    how = {**HOW, "n_partitions": 30}
    made = mixed(x, out=out, **how)
    assert len(saved) == n_tasks - n_done
    np.testing.assert_array_equal(made, mixed(x, **how))


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"n_clusters": 3}, r"n_clusters=\[2, 10\], not \[3, 3\]"),
        ({"n_partitions": 5}, "n_partitions=2, not 5"),
        ({"sample": 0.4}, "sample=0.5, not 0.4"),
        ({"random_state": 1}, "random_state=0, not 1"),
        ({"train": "all"}, "train=auto, not all"),
        ({"features": lambda points: points * 2 + 1}, "other features"),
        ({"features": lambda points: points[::-1]}, "other features"),
    ],
)
def test_kmeans__rejects_to_replace_a_result_of_other_parameters(wide, out, other, named):
    points, how = wide[:500, :6], {"n_partitions": 2, "random_state": 0, "out": out}
    labels = np.asarray(kmeans(points, **how))
    change = other.pop("features", None)
    features = points if change is None else change(points)
    with pytest.raises(StoreExistsError, match=rf"was made with .*{named}; pass overwrite=True"):
        kmeans(features, **{**how, **other})
    np.testing.assert_array_equal(bc.Ensemble.open(out), labels)
    assert kmeans(points, **{**how, "n_partitions": 3}, overwrite=True).shape == (500, 3)


def test_kmeans__overwrites_no_file_that_is_not_a_store(tmp_path):
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(StoreExistsError, match="not a bigcons store"):
        kmeans("features that are never read", out=tmp_path / "notes", overwrite=True)
