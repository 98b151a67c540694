from __future__ import annotations

import errno
import logging
import os
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

from bigcons import Ensemble, datasets, generate
from bigcons.disk.locks import writer_lock
from bigcons.errors import (
    CorruptStoreError,
    InvalidInputError,
    MemoryBudgetError,
    StoreError,
    StoreExistsError,
    StoreLockedError,
)
from bigcons.generate import scratch
from bigcons.generate.scaling import measure
from bigcons.generate.scheme import Subset
from bigcons.io.features import open_features
from bigcons.memory import PROCESS_BYTES
from bigcons.metrics import matching_accuracy
from bigcons.run.engine import SerialEngine

N_OBJECTS = 9000  # two whole segments and a part of one


@pytest.fixture(scope="module")
def points():
    return datasets.planted_features(N_OBJECTS, 6, separation=12)[0]


@pytest.fixture(scope="module")
def wide():
    """More objects than a sample, in the order of their classes."""
    rng = np.random.default_rng(0)
    truth = np.sort(rng.integers(3, size=30_000))
    return (10 * np.eye(3, 256)[truth] + rng.normal(size=(30_000, 256))).astype(np.float32), truth


def labels_of(ensemble):
    return np.array(ensemble.read(0, ensemble.n_objects))


def make(features, **kwargs):
    kwargs = {"n_partitions": 4, "random_state": 0, **kwargs}
    return labels_of(generate.kmeans(features, **kwargs))


# Subsets


@pytest.mark.parametrize("share", [0.5, 1.0, 0.123])
def test_kmeans__each_partition_sees_its_share_of_the_objects(points, share):
    seen = make(points, sample=share) >= 0
    assert (seen.sum(axis=0) == round(share * N_OBJECTS)).all()
    if share < 1:
        assert len(np.unique(seen, axis=1).T) == 4


@given(
    n=st.integers(1, 300),
    share=st.floats(0.01, 1),
    segment_rows=st.sampled_from([1, 8, 64]),
    cut=st.integers(0, 300),
)
def test_subset__has_its_size_and_reads_the_same_in_parts(n, share, segment_rows, cut):
    subset = Subset(n, share, segment_rows, seed=1, stream="test", index=0)
    rows = subset.rows(0, n)
    assert len(rows) == round(share * n)
    assert (np.diff(rows) > 0).all()
    assert ((rows >= 0) & (rows < n)).all()
    middle = min(cut, n)
    parts = [subset.rows(start, stop) for start, stop in ((0, middle), (middle, n)) if start < stop]
    np.testing.assert_array_equal(np.concatenate(parts), rows)
    np.testing.assert_array_equal(np.flatnonzero(subset.mask(0, n)), rows)
    masks = [subset.mask(start, stop) for start, stop in ((0, middle), (middle, n)) if start < stop]
    np.testing.assert_array_equal(np.concatenate(masks), subset.mask(0, n))


# Clusters


@pytest.mark.parametrize("train", ["auto", "all"])
def test_kmeans__finds_clusters_that_are_there_even_in_sorted_data(train, wide):
    blobs, truth = wide
    labels = make(blobs, sample=1.0, train=train, n_clusters=3, n_init=5, standardize=False)
    for column in labels.T:
        assert matching_accuracy(truth, column) > 0.999


# Scaling


@settings(deadline=None)
@given(
    seed=st.integers(0, 1000),
    n=st.integers(2, 4000),
    shift=st.sampled_from([0.0, 1e6, -1e9]),
    scale=st.sampled_from([1e-6, 1.0, 1e12]),
)
def test_measure__is_scikit_learns_standard_scaler(seed, n, shift, scale):
    values = np.random.default_rng(seed).normal(size=(n, 3)) * scale + shift
    expected = StandardScaler().fit_transform(values)
    features = open_features(values)
    features.chunk_rows = 128
    scaling = measure(features, standardize=True)[0]
    unit = np.abs(shift / scale) * 1e-12 + 1e-5  # what is left of the digits, and float32
    np.testing.assert_allclose(scaling.apply(values), expected[:, scaling.kept], atol=unit, rtol=unit)


# Stores and restarts


class DiesAfter(SerialEngine):
    """An engine that fails after some tasks."""

    name = "dying"

    def __init__(self, n_tasks, error):
        self.n_tasks, self.error = n_tasks, error

    def map(self, task, items):
        for done, item in enumerate(items):
            if done == self.n_tasks:
                raise self.error
            yield task(item)


@pytest.fixture
def interrupted(points, tmp_path):
    """Where two of five partitions were made before an interrupt."""
    out = tmp_path / "e.zarr"
    with pytest.raises(KeyboardInterrupt):
        make(points, n_partitions=5, out=out, client=DiesAfter(2, KeyboardInterrupt()))
    return out


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "full")])
@pytest.mark.parametrize("n_finished", [0, 2])
def test_kmeans__that_fails_says_what_is_kept(points, tmp_path, caplog, error, n_finished):
    with pytest.raises(type(error)):
        make(points, n_partitions=5, out=tmp_path / "e.zarr", client=DiesAfter(n_finished, error))
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    place = tmp_path / "e.zarr.partial"
    expected = f"2 trained sets of centers are kept in {place}; repeat the call to resume."
    assert told == ([expected] if n_finished else [])


def test_kmeans__clears_what_a_call_left_that_was_killed_after_its_commit(points, interrupted, tmp_path):
    shutil.copytree(tmp_path / "e.zarr.partial", tmp_path / "kept")
    make(points, n_partitions=5, out=interrupted)
    shutil.copytree(tmp_path / "kept", tmp_path / "e.zarr.partial")
    make(points, n_partitions=5, out=interrupted)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.zarr", "kept"]
    (tmp_path / ".e.zarr.partial.lock").write_text("999999")
    make(points, n_partitions=5, out=interrupted)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.zarr", "kept"]


def test_kmeans__mixes_no_runs_where_parameters_are_damaged(points, interrupted):
    record = interrupted.with_name("e.zarr.partial") / "parameters.json"
    content = record.read_text()
    record.write_text(content[:50])
    with pytest.raises(CorruptStoreError, match=r"is damaged .*overwrite=True"):
        make(points, n_partitions=5, out=interrupted, random_state=None)
    record.write_text(content.replace('"seed": 0', '"seed": 1'))  # then what is kept is of another run
    labels = make(points, n_partitions=5, out=interrupted, random_state=None)
    np.testing.assert_array_equal(labels, make(points, n_partitions=5, random_state=1))


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"n_clusters": 3}, r"n_clusters=\[2, 10\], not \[3, 3\]"),
        ({"n_partitions": 5}, "n_partitions=4, not 5"),
        ({"sample": 0.4}, "sample=0.5, not 0.4"),
        ({"random_state": 1}, "seed=0, not 1"),
        ({"train": "all"}, "train='auto', not 'all'"),
        ({"features": lambda points: points * 2 + 1}, "other features"),
        ({"features": lambda points: points[::-1]}, "other features"),
    ],
)
def test_kmeans__rejects_to_replace_a_result_of_other_parameters(points, tmp_path, other, named):
    labels = make(points, out=tmp_path / "e.zarr")
    x = other.get("features", lambda points: points)(points)
    other = {name: value for name, value in other.items() if name != "features"}
    with pytest.raises(StoreExistsError, match=rf"was made with {named}; pass overwrite=True"):
        make(x, out=tmp_path / "e.zarr", **other)
    np.testing.assert_array_equal(labels_of(Ensemble.open(tmp_path / "e.zarr")), labels)


class Counted(SerialEngine):
    """Three workers in other processes, as far as a plan can see; keeps how many items it was given."""

    name = "counted"
    n_workers, in_flight, n_processes = 3, 1, 3
    shares_memory = False

    def __init__(self):
        self.at_once = []

    def map(self, task, items):
        items = list(items)
        self.at_once.append(len(items))
        yield from map(task, items)


@pytest.mark.parametrize(("memory", "at_once"), [(75_000_000, [2, 2, 1]), (10**9, [5])])
def test_kmeans__bounds_the_tasks_of_any_engine(wide, memory, at_once):
    engine = Counted()
    memory += engine.n_processes * PROCESS_BYTES
    labels = make(wide[0][:N_OBJECTS], n_partitions=5, memory=memory, client=engine)
    assert engine.at_once[:-1] == at_once  # and then the blocks of labels
    np.testing.assert_array_equal(labels, make(wide[0][:N_OBJECTS], n_partitions=5))


def test_kmeans__rejects_a_concurrent_call(points, interrupted, caplog):
    """What is kept is of the call that goes on, and not to be resumed by this one."""
    caplog.clear()
    with writer_lock(interrupted.with_name("e.zarr.partial")), pytest.raises(StoreLockedError):
        make(points, n_partitions=5, out=interrupted)
    assert "resume" not in caplog.text


def test_kmeans__rejects_an_existing_output_before_any_work(points, tmp_path):
    make(points, out=tmp_path / "e.zarr")
    for other in ({"n_clusters": 3}, {"n_partitions": 5}, {"random_state": 1}):
        with pytest.raises(StoreExistsError, match="overwrite=True"):
            make("features that are never read", out=tmp_path / "e.zarr", **other)
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(StoreExistsError, match="not a bigcons store"):
        make("features that are never read", out=tmp_path / "notes", overwrite=True)
    again = make(points, out=tmp_path / "e.zarr", overwrite=True, n_partitions=2)
    assert again.shape == (N_OBJECTS, 2)


def test_kmeans__a_full_disk_is_one_line_and_keeps_what_is_finished(points, tmp_path, monkeypatch):
    def full(path, atomic_file=scratch.atomic_file):
        if "000002" in path.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return atomic_file(path)

    monkeypatch.setattr(scratch, "atomic_file", full)
    with pytest.raises(StoreError, match="No space left while writing"):
        make(points, out=tmp_path / "e.zarr", client="serial")
    monkeypatch.undo()
    finished = sorted(path.name for path in (tmp_path / "e.zarr.partial").glob("*.npy"))
    assert finished == ["centers-000000.npy", "centers-000001.npy"]


# Errors


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_partitions": 0}, "n_partitions=0"),
        ({"n_clusters": 0}, "n_clusters=0"),
        ({"n_clusters": (2, 1)}, r"n_clusters=\(2, 1\) is not a range"),
        ({"standardize": "none"}, "standardize='none' is not a boolean"),
        ({"standardize": None}, "standardize=None is not a boolean"),
        ({"overwrite": "no"}, "overwrite='no' is not a boolean"),
        ({"n_clusters": (5, 2)}, r"n_clusters=\(5, 2\) is not a range; .*low first"),
        ({"n_clusters": (2, 3, 4)}, "is not a range"),
        ({"n_clusters": 2.5}, r"type float; use an integer >= 1, or \(low, high\), both included"),
        ({"n_clusters": {2, 9}}, r"type set; use an integer >= 1, or \(low, high\), both included"),
        ({"n_clusters": range(9, 2)}, r"range\(9, 2\) has type range; use an integer >= 1, or \(low, high\)"),
        ({"n_clusters": range(2, 9, 3)}, r"type range; use an integer >= 1, or \(low, high\)"),
        ({"sample": 0}, "sample=0"),
        ({"sample": 1.1}, "sample=1.1"),
        ({"sample": 0.0001}, "sample=0.0001 of n_objects=9000 is 1 objects, fewer than n_clusters=10"),
        ({"n_init": 0}, "n_init=0"),
        ({"memory": "much"}, "memory='much'"),
        ({"client": "nowhere"}, "client='nowhere'"),
        ({"random_state": -1}, "random_state=-1"),
        ({"out": "https://example.org/e.zarr"}, "not a supported URL"),
    ],
)
def test_kmeans__says_what_is_wrong_in_one_line(points, tmp_path, monkeypatch, wrong, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError, match=message) as error:
        make(points, **{"out": "e.zarr", **wrong})
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("train", ["auto", "all"])
def test_kmeans__rejects_too_small_a_budget(points, tmp_path, train):
    with pytest.raises(MemoryBudgetError, match=r"memory=1e\+05 B|memory=100 kB"):
        make(points, memory="100kB", train=train, out=tmp_path / "e.zarr")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("column", "kwargs", "message"),
    [
        ([1.0] * 50, {}, "all constant"),
        ([0.0] * 49 + [1e200], {"standardize": False}, "'f0' of features ranges from 0 to 1e\\+200"),
        ([0.0] * 49 + [1e300], {}, "too far for float32"),
        ([0.0] * 49 + [np.inf], {}, "inf at row 49"),
        ([np.nan] * 50, {}, "all constant"),
    ],
)
def test_kmeans__rejects_features_it_cannot_cluster(tmp_path, column, kwargs, message):
    with pytest.raises(InvalidInputError, match=message):
        make(np.array([column]).T, out=tmp_path / "e.zarr", **kwargs)
    assert list(tmp_path.iterdir()) == []


# Real data


@pytest.mark.data
@pytest.mark.skipif("BIGCONS_DATA" not in os.environ, reason="BIGCONS_DATA names no directory")
def test_kmeans__real_kdd_partitions_are_as_good_as_the_paper_says():
    table, truth = datasets.kddcup99(n_objects=20_000)
    labels = make(table, n_partitions=30)
    accuracy = [matching_accuracy(truth, column) for column in labels.T]
    assert 0.72 < np.mean(accuracy) < 0.95
