"""Partitions trained on samples and labeled in one pass, as those trained on all their objects are."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bigcons import Ensemble, datasets, generate, select
from bigcons.errors import InvalidInputError, MemoryBudgetError, StoreError, StoreExistsError
from bigcons.generate.scaling import measure
from bigcons.generate.scheme import Scheme
from bigcons.generate.training import choose_pool_rows, choose_sample_rows
from bigcons.progress import report_progress_to
from bigcons.run.engine import SerialEngine
from bigcons.store.features import Features, open_features
from tests.naive import nearest as naive
from tests.support.engines import CountingEngine
from tests.support.listening import Recorder

N_OBJECTS, N_FEATURES = 9000, 6  # two whole segments and a part of one

GENERATORS = {
    "kmeans": lambda x, **kwargs: generate.kmeans(x, **kwargs),
    "weighted": lambda x, **kwargs: generate.weighted_kmeans(x, **kwargs),
    "features": lambda x, **kwargs: generate.feature_views(x, n_features=2, **kwargs),
    "objects": lambda x, **kwargs: generate.object_views(x, **kwargs),
}


@pytest.fixture(scope="module")
def points():
    return datasets.planted_features(N_OBJECTS, N_FEATURES, separation=12)[0]


@pytest.fixture(scope="module")
def wide():
    """As many objects of as many values as make three blocks."""
    return datasets.planted_features(N_OBJECTS, 256, separation=12)[0].astype(np.float32)


def make(features, generator="kmeans", **kwargs):
    kwargs = {"n_partitions": 4, "n_clusters": 4, "random_state": 0, "train": 300, **kwargs}
    ensemble = GENERATORS[generator](features, **kwargs)
    assert ensemble.provenance["train"] == kwargs["train"]
    return np.array(ensemble.read(0, ensemble.n_objects))


# The sizes of samples


def test_choose_sample_rows__few_features_and_clusters_and_many():
    assert choose_sample_rows(10, 16) == 40_000
    assert choose_sample_rows(1000, 16) == 256_000
    assert choose_sample_rows(10, 1000) == 4194
    assert choose_sample_rows(10, 100_000) == 2560


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_choose_pool_rows__hold_a_sample_of_what_a_partition_sees(share):
    assert choose_pool_rows(300, 10**6, share) * share >= 1.1 * 300
    assert choose_pool_rows(300, 1000, share) <= 1000


def test_kmeans__trains_on_few_objects_as_on_all(points):
    few, every = (
        generate.kmeans(points, n_partitions=2, random_state=0, train=train) for train in ("auto", "all")
    )
    assert few.provenance["sample_rows"] == every.provenance["sample_rows"] == N_OBJECTS // 2
    np.testing.assert_array_equal(few.read(0, N_OBJECTS), every.read(0, N_OBJECTS))


# What a partition is


@pytest.mark.parametrize("generator", GENERATORS)
def test_samples__labels_depend_neither_on_workers_nor_budget_nor_store(points, generator, tmp_path):
    expected = make(points, generator)
    for other in ({"client": "serial"}, {"memory": "378MB"}, {"out": tmp_path / "e.zarr"}):
        np.testing.assert_array_equal(make(points, generator, **other), expected, strict=True)
    assert [path.name for path in tmp_path.iterdir()] == ["e.zarr"]
    Ensemble.open(tmp_path / "e.zarr").verify()
    assert not np.array_equal(make(points, generator, random_state=1), expected)


def test_samples__labels_depend_neither_on_the_source_nor_on_how_many_partitions(points, tmp_path):
    np.savetxt(tmp_path / "x.csv", points, delimiter=",", fmt="%.9g")
    source = select(tmp_path / "x.csv", header=False)
    np.testing.assert_array_equal(make(source, n_partitions=2), make(points)[:, :2])


@pytest.mark.parametrize("generator", GENERATORS)
def test_samples__partitions_see_what_they_see_when_trained_on_all(points, generator):
    np.testing.assert_array_equal(make(points, generator) >= 0, make(points, generator, train="all") >= 0)


@pytest.mark.parametrize("generator", ["kmeans", "weighted", "features"])
def test_samples__every_object_is_in_the_cluster_of_the_nearest_center(points, generator, monkeypatch):
    from bigcons.generate import pipeline

    trained = []

    class Keeping(pipeline.TrainTask):
        def __call__(self, partitions):
            trained.append(super().__call__(partitions)[:, :-1])
            return np.column_stack([trained[-1], np.arange(len(trained[-1]))])

    monkeypatch.setattr(pipeline, "TrainTask", Keeping)
    labels = make(points, generator, client="serial")[::50]
    scaled = measure(open_features(points), standardize=True)[0].apply(points)[::50]
    for u, centers in enumerate(trained):
        seen, found = scaled, centers[:, :-1]
        if generator == "weighted":
            weights = Scheme("weighted_kmeans", alpha_range=(0.0, 1.5), largest_weight=20).weights(
                N_FEATURES, u
            )
            seen, found = seen * weights, found / weights
        if generator == "features":
            columns = np.flatnonzero(Scheme("feature_views", n_features=2).weights(N_FEATURES, u))
            seen, found = seen[:, columns], found[:, columns]
        column = labels[:, u : u + 1]
        offsets = np.array([0, len(found)])
        np.testing.assert_array_equal(column, naive.label(seen, found, offsets, column))


def test_samples__cost_little_inertia(points):
    def inertia(labels):
        scaled = measure(open_features(points), standardize=True)[0].apply(points)
        return sum(
            ((scaled[column == k] - scaled[column == k].mean(axis=0)) ** 2).sum()
            for column in labels.T
            for k in range(column.max() + 1)
        )

    options = {"n_init": 5, "n_clusters": 3}  # so that both find the best
    trained_on_all = inertia(make(points, train="all", **options))
    assert inertia(make(points, **options)) < 1.02 * trained_on_all  # 100 objects per cluster


def test_samples__fewer_distinct_points_than_clusters_give_dense_labels_in_silence():
    three = np.repeat(np.eye(3), 500, axis=0)
    labels = make(three, n_clusters=8)
    assert labels.max() == 2
    for column in labels.T:
        np.testing.assert_array_equal(np.unique(column[column >= 0]), np.arange(column.max() + 1))


def test_samples__read_the_features_twice(points, monkeypatch):
    passes = []
    stream = Features._stream

    def counted(self, blocks, gaps):
        passes.append(sum(block.n_rows for block in blocks))
        return stream(self, blocks, gaps)

    monkeypatch.setattr(Features, "_stream", counted)
    make(points, n_partitions=30)
    assert passes == [N_OBJECTS, N_OBJECTS]


# Stores and restarts


class DiesAfter(SerialEngine):
    """An engine that fails after some tasks."""

    name = "dying"

    def __init__(self, n_tasks):
        self.n_left = n_tasks

    def map(self, task, items):
        for item in items:
            if not self.n_left:
                raise KeyboardInterrupt
            self.n_left -= 1
            yield task(item)


@pytest.fixture(params=[2, 6])
def interrupted(request, wide, tmp_path):
    """Where two of five partitions were trained before an interrupt, or all, and one block labeled."""
    out = tmp_path / "e.zarr"
    with pytest.raises(KeyboardInterrupt):
        make(wide, n_partitions=5, out=out, client=DiesAfter(request.param))
    return out, request.param


def test_samples__an_interrupt_says_what_is_kept(wide, tmp_path, caplog):
    with pytest.raises(KeyboardInterrupt):
        make(wide, n_partitions=5, out=tmp_path / "e.zarr", client=DiesAfter(7))
    assert "5 trained sets of centers and 2 blocks of labels are kept in" in caplog.text
    assert not (tmp_path / "e.zarr").exists()


@pytest.mark.parametrize("seed", [{}, {"random_state": None}], ids=["same seed", "no seed"])
def test_samples__resume_what_is_unfinished(wide, interrupted, seed, monkeypatch):
    out, n_done = interrupted
    rows = []
    iterate = Features.iterate

    def counted(self, *args, **how):
        for block, values in iterate(self, *args, **how):
            rows.append(block.n_rows)
            yield block, values

    monkeypatch.setattr(Features, "iterate", counted)
    recorder, engine = Recorder(), CountingEngine()
    with report_progress_to(lambda: recorder):
        labels = make(wide, n_partitions=5, out=out, client=engine, **seed)
    assert sum(engine.n_tasks) == 5 + 3 - n_done
    assert recorder.work["train partitions"] == [5, 5]
    assert sum(rows) == 2 * N_OBJECTS - 4096 * (n_done - 5) * (n_done > 5)
    np.testing.assert_array_equal(labels, make(wide, n_partitions=5))
    assert not out.with_name("e.zarr.partial").exists()


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"n_clusters": 3}, "n_clusters="),
        ({"n_partitions": 6}, "n_partitions=5"),
        ({"train": "all"}, "train="),
    ],
    ids=str,
)
def test_samples__reject_resuming_with_other_parameters(wide, interrupted, other, named):
    with pytest.raises(StoreError, match=rf"holds partitions made with .*{named}.*overwrite=True"):
        make(wide, **{"n_partitions": 5, "out": interrupted[0], **other})


def test_samples__make_again_what_was_damaged(wide, interrupted, caplog):
    out, _ = interrupted
    files = sorted(out.with_name("e.zarr.partial").glob("*-*.npy"))
    contents = [file.read_bytes() for file in files]
    files[-1].write_bytes(contents[-1][:-1] + bytes([contents[-1][-1] ^ 1]))
    files[0].write_bytes(contents[1])  # whole, but not of this partition
    labels = make(wide, n_partitions=5, out=out)
    assert caplog.text.count("it is made again") == 2
    np.testing.assert_array_equal(labels, make(wide, n_partitions=5))


def test_samples__find_the_result_of_a_finished_call(points, tmp_path, caplog):
    labels = make(points, out=tmp_path / "e.zarr")
    recorder = Recorder()
    with report_progress_to(lambda: recorder), caplog.at_level(logging.INFO, logger="bigcons"):
        again = make(points, out=tmp_path / "e.zarr", random_state=None)
    np.testing.assert_array_equal(again, labels)
    assert "train partitions" not in recorder.work
    assert "holds the finished result of this call" in caplog.text
    for other, named in (
        ({"train": "all"}, "train=300, not 'all'"),
        ({"train": 200}, "train=300, not 200"),
        ({"n_partitions": 5}, "4, not 5"),
    ):
        with pytest.raises(StoreExistsError, match=named):
            make(points, out=tmp_path / "e.zarr", **other)
    with pytest.raises(StoreExistsError, match="was made with other features;"):
        make(points[::-1], out=tmp_path / "e.zarr")


CHILD = """
import sys
from bigcons import generate
generate.kmeans(sys.argv[1], n_partitions=40, n_clusters=4, train=300, out=sys.argv[2], random_state=0)
"""


@pytest.mark.slow
def test_samples__after_kill_9_only_what_is_unfinished_is_made(tmp_path):
    np.save(tmp_path / "x.npy", datasets.planted_features(120_000, 256)[0].astype(np.float32))
    out, scratch = tmp_path / "e.zarr", tmp_path / "e.zarr.partial"
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path / "x.npy"), str(out)],
        cwd=Path(generate.__file__).parents[2],
    )
    deadline = time.monotonic() + 60
    while len(list(scratch.glob("labels-*.npy"))) < 3 and time.monotonic() < deadline and not child.poll():
        time.sleep(0.005)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    n_done = len(list(scratch.glob("labels-*.npy")))
    assert 3 <= n_done < 30
    engine = CountingEngine()
    labels = make(tmp_path / "x.npy", n_partitions=40, out=out, client=engine)
    assert sum(engine.n_tasks) == 30 - n_done
    np.testing.assert_array_equal(labels, make(tmp_path / "x.npy", n_partitions=40))


# Errors


def test_samples__reject_too_small_a_budget(points, tmp_path):
    with pytest.raises(MemoryBudgetError, match="samples of 300 objects") as refusal:
        make(points, memory="100kB", out=tmp_path / "e.zarr")
    assert refusal.value.needed > refusal.value.budget == 100_000
    make(points, memory=refusal.value.needed, out=tmp_path / "e.zarr")


def test_samples__reject_views_of_more_features_than_vary(points):
    flat = points.copy()
    flat[:, 1:] = 1.0
    with pytest.raises(InvalidInputError, match="n_features=2 but only 1 features vary"):
        make(flat, "features")


def test_kmeans__rejects_an_unknown_train(points):
    with pytest.raises(InvalidInputError, match="train='some'"):
        generate.kmeans(points, train="some")
