"""Ensembles that are in part by landmarks: what does not change their bits, and what features they take."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from scipy.sparse import csr_array, random_array

import bigcons as bc
from bigcons.errors import InvalidInputError, MemoryBudgetError, StoreError, StoreExistsError
from bigcons.generate import kmeans, landmarks, mixed
from bigcons.generate.kmeans import drawn_clusters
from tests.support.engines import CountingEngine, RepeatedTasks

N_OBJECTS = 9000  # two whole segments and a part of one
MAKES = {"mixed": mixed, "landmarks": landmarks}


@pytest.fixture(scope="module")
def points():
    return bc.datasets.planted_features(N_OBJECTS, 4, separation=6)[0]


@pytest.fixture(params=MAKES)
def make(request):
    """A generator of few partitions, of a sample of the objects, without a seed by chance."""

    def ensemble(features, **how):
        return MAKES[request.param](features, **{"n_partitions": 7, "train": 900, "random_state": 0, **how})

    return ensemble


def check(ensemble, features):
    """Check what holds of every ensemble by these generators; return the labels."""
    labels = np.asarray(ensemble)
    for column, n_clusters in zip(labels.T, ensemble.n_clusters, strict=True):
        np.testing.assert_array_equal(np.unique(column), np.arange(n_clusters))
    made_by = ensemble.generator
    np.testing.assert_array_equal(made_by.centers.n_clusters, ensemble.n_clusters)
    np.testing.assert_array_equal(made_by.assign(features).labels, labels, strict=True)
    return labels


# The bits


def test_make__changes_bits_with_the_seed_alone(make, points, tmp_path):
    expected = check(make(points), points)
    assert not np.array_equal(np.asarray(make(points, random_state=1)), expected)
    np.save(tmp_path / "x.npy", points)
    parquet.write_table(
        pa.table({f"x{c}": column for c, column in enumerate(points.T)}), tmp_path / "x.parquet"
    )
    with pytest.raises(MemoryBudgetError) as refusal:
        make(points, memory=1000)
    for features, how in (
        (points, {"client": "serial"}),
        (points, {"client": "threads"}),
        (points, {"client": RepeatedTasks()}),
        (points, {"memory": refusal.value.needed}),
        (points, {"memory": "2GB", "out": tmp_path / "a.zarr"}),
        (tmp_path / "x.npy", {}),
        (tmp_path / "x.npy", {"out": tmp_path / "b.zarr"}),
        (tmp_path / "x.parquet", {"out": tmp_path / "c.zarr", "client": "serial"}),
        (tmp_path / "x.parquet", {"out": tmp_path / "d.parquet"}),
    ):
        found = make(features, **how)
        np.testing.assert_array_equal(found.read(0, N_OBJECTS), expected)
    for name in "abc":
        stored = bc.Ensemble.open(tmp_path / f"{name}.zarr")
        assert stored.verify()["ok"]
        check(stored, points)
    assert sorted(path.name for path in tmp_path.glob("*.partial")) == []


@given(n_partitions=st.integers(1, 9))
def test_make__has_partitions_that_do_not_depend_on_how_many_there_are(n_partitions):
    points = np.random.default_rng(0).normal(size=(150, 2))
    for function in MAKES.values():
        few, many = (
            np.asarray(function(points, n_partitions=n, random_state=0, client="serial"))
            for n in (n_partitions, 10)
        )
        np.testing.assert_array_equal(few, many[:, :n_partitions])


def test_mixed__is_half_by_landmarks_and_half_by_k_means(points):
    found = mixed(points, n_partitions=30, random_state=0)
    is_by_kmeans = np.arange(30) % 2 == 1
    sets = found.generator.centers.sets
    assert len(np.unique(sets[is_by_kmeans])) == 15
    assert len(np.unique(sets[~is_by_kmeans])) == 3
    assert found.missing_share == 0
    assert 2 <= found.n_clusters[is_by_kmeans].min() <= found.n_clusters[is_by_kmeans].max() <= 30
    assert 2 <= found.n_clusters[~is_by_kmeans].min() <= found.n_clusters[~is_by_kmeans].max() <= 20
    assert found.n_clusters[is_by_kmeans].max() > 20
    provenance = found.provenance
    assert (provenance["generator"], provenance["train"], provenance["seed"]) == ("mixed", "auto", 0)


@pytest.mark.parametrize("n_objects", [3, 17, 29, 400])
def test_drawn_clusters__are_the_most_that_there_are(n_objects):
    points = np.random.default_rng(0).normal(size=(n_objects, 3))
    found = mixed(points, n_partitions=40, random_state=5).n_clusters
    drawn = drawn_clusters(n_objects, 40, 5)
    assert (found <= drawn).all()
    if n_objects == 400:
        np.testing.assert_array_equal(found, drawn)


@pytest.mark.parametrize(
    "option",
    [{"n_clusters": 3}, {"sample": 0.5}, {"n_init": 2}, {"algorithm": "lloyd"}],
    ids=str,
)
def test_mixed__takes_no_options_of_k_means(points, option):
    with pytest.raises(TypeError, match=next(iter(option))):
        mixed(points, n_partitions=2, **option)


# Generators


def test_ensemble_generator__is_the_function_of_its_scheme(points):
    for scheme, how in (("mixed", {}), ("landmarks", {}), ("kmeans", {"sample": 1.0})):
        made = bc.EnsembleGenerator(7, scheme=scheme, n_clusters=(2, 9), random_state=0)
        labels = made.fit_transform(points)
        np.testing.assert_array_equal(made.fit(points).transform(points), labels, strict=True)
        np.testing.assert_array_equal(made.set_params(client="serial").fit_transform(points), labels)
        assert labels.max(axis=0).tolist() == (made.n_clusters_ - 1).tolist()
        if scheme != "mixed":
            function = {"landmarks": landmarks, "kmeans": kmeans}[scheme]
            found = function(points, n_partitions=7, n_clusters=(2, 9), random_state=0, **how)
            np.testing.assert_array_equal(labels, np.asarray(found))
    made = bc.EnsembleGenerator(7, random_state=0)
    np.testing.assert_array_equal(
        made.fit_transform(points), np.asarray(mixed(points, n_partitions=7, random_state=0))
    )
    with pytest.raises(InvalidInputError, match="scheme='spectral'"):
        bc.EnsembleGenerator(scheme="spectral").fit(points)


def test_assign__of_new_rows_does_not_depend_on_the_rows_around(make, points):
    made = make(points[:4000])
    found = made.generator.assign(points)
    np.testing.assert_array_equal(found.labels[5000:5100], made.generator.assign(points[5000:5100]).labels)
    assert found.far_share == pytest.approx(0.01, abs=0.01)
    assert made.generator.assign(points + 100).far_share == 1.0


# Kinds of features


def odd(name):
    rng = np.random.default_rng(0)
    half = rng.normal(size=(150, 2))
    gaps = rng.normal(size=(400, 3))
    gaps[rng.random((400, 3)) < 0.2] = np.nan
    gaps[:, 1] = rng.normal(size=400)
    return {
        "duplicates": lambda: np.repeat(rng.normal(size=(5, 2)), 60, axis=0),
        "two values": lambda: np.repeat(np.eye(2), 40, axis=0),
        "constant blocks": lambda: np.repeat([[1.0, 0.0, 3.0], [1.0, 1.0, 3.0]], 90, axis=0),
        "one other object": lambda: np.r_[np.zeros((99, 2)), np.ones((1, 2))],
        "two objects": lambda: half[:2],
        "three objects": lambda: half[:3],
        "eleven objects": lambda: half[:11],
        "twenty-nine objects": lambda: half[:29],
        "one column": lambda: half[:, :1],
        "one column of integers": lambda: rng.integers(3, size=(200, 1)),
        "two identical halves": lambda: np.tile(half, (2, 1)),
        "two halves far apart": lambda: np.r_[half, half + 1e6],
        "a far object": lambda: np.r_[half, [[1e12, 1e12]]],
        "a tiny column": lambda: half * [1e9, 1e-9],
        "heavy tails": lambda: rng.laplace(size=(300, 3)) ** 9,
        "gaps": lambda: gaps,
        "wide": lambda: rng.normal(size=(40, 2000)),
        "booleans": lambda: rng.random((300, 5)) < 0.5,
        "sparse": lambda: csr_array(random_array((300, 20), density=0.2, rng=rng, dtype=np.float32)),
        "sparse with empty rows": lambda: csr_array(random_array((300, 99), density=0.01, rng=rng)),
    }[name]()


ODD = """duplicates|two values|constant blocks|one other object|two objects|three objects|eleven objects
twenty-nine objects|one column|one column of integers|two identical halves|two halves far apart|a far object
a tiny column|heavy tails|gaps|wide|booleans|sparse|sparse with empty rows""".replace("\n", "|").split("|")


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("name", ODD)
def test_mixed__takes_odd_features_in_silence(name, standardize):
    features = odd(name)
    made = mixed(features, n_partitions=9, random_state=0, standardize=standardize, client="serial")
    labels = check(made, features)
    by_landmarks = landmarks(
        features, n_partitions=9, n_clusters=2, random_state=0, standardize=standardize, client="serial"
    )
    check(by_landmarks, features)
    if name == "two identical halves":
        np.testing.assert_array_equal(labels[:150], labels[150:])
    if name in ("duplicates", "two values", "constant blocks"):
        assert made.n_clusters.max() == len(np.unique(features, axis=0))


@settings(deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(2, 120),
    width=st.integers(1, 4),
    n_values=st.sampled_from([2, 3, 10, 1000]),
    gaps=st.sampled_from([0.0, 0.1]),
)
def test_mixed__of_drawn_features_labels_each_cluster(seed, n, width, n_values, gaps):
    rng = np.random.default_rng(seed)
    features = rng.integers(n_values, size=(n, width)).astype(float)
    features[rng.random(features.shape) < gaps] = np.nan
    features[:, 0] = np.where(np.arange(n) == 0, n_values + 1, np.nan_to_num(features[:, 0]))
    check(mixed(features, n_partitions=4, random_state=seed, client="serial"), features)


def test_mixed__of_sparse_rows_is_close_to_that_of_dense_ones():
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(3), 200)
    dense = (rng.random((600, 30)) < 0.05 + 0.6 * (np.arange(30) % 3 == group[:, None])).astype(np.float32)
    sparse, how = csr_array(dense), {"n_partitions": 12, "random_state": 0}
    for features in (sparse, dense):
        ensemble = mixed(features, **how)
        assert bc.metrics.adjusted_rand(group, bc.consensus(ensemble, 3, random_state=0).labels_) > 0.95
        found = ensemble.generator.assign(dense if features is sparse else sparse).labels
        assert (found == np.asarray(ensemble)).mean() > 0.99


def test_make__takes_categories_ids_and_gaps_of_a_table(make, tmp_path):
    rng = np.random.default_rng(0)
    group = rng.integers(3, size=700)
    table = pd.DataFrame(
        {
            "who": [f"c{number}" for number in range(700)],
            "city": np.array(["Bern", "Oslo", "Rome"])[group],
            "age": np.where(rng.random(700) < 0.1, np.nan, 20 + 9 * group + rng.normal(size=700)),
            "spend": np.exp(rng.normal(size=700)),
        }
    )
    held = make(table, id="who", log="spend", train="all")
    stored = make(table, id="who", log="spend", train="all", out=tmp_path / "e.zarr")
    np.testing.assert_array_equal(stored.read(0, 700), check(held, table))
    assert stored.ids[:2].tolist() == ["c0", "c1"]
    shuffled = table.iloc[::-1][["spend", "age", "city", "who"]]
    np.testing.assert_array_equal(stored.generator.assign(shuffled).labels[::-1], np.asarray(held))


@pytest.mark.parametrize("n", [3, 5, 12])
def test_consensus_clustering__of_few_objects_does_not_fail(n):
    points = np.random.default_rng(0).normal(size=(n, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = bc.ConsensusClustering(2, random_state=0).fit(points)
    assert found.labels_.shape == (n,)


# Stores and restarts


class DiesAfter(CountingEngine):
    """An engine that is interrupted after some tasks."""

    def __init__(self, n_tasks):
        super().__init__()
        self.n_left = n_tasks

    def map(self, task, items):
        for found in super().map(task, items):
            if not self.n_left:
                raise KeyboardInterrupt
            self.n_left -= 1
            yield found


@pytest.fixture(scope="module")
def wide():
    """As many objects of as many values as make three blocks."""
    return bc.datasets.planted_features(N_OBJECTS, 256, separation=12)[0].astype(np.float32)


@pytest.mark.parametrize(("n_done", "kept"), [(2, "2 trained"), (6, "6 trained"), (7, "1 blocks")])
def test_mixed__resumes_what_is_unfinished(wide, tmp_path, caplog, n_done, kept):
    out, how = tmp_path / "e.zarr", {"n_partitions": 7, "train": 300, "random_state": 0}
    expected = np.asarray(mixed(wide, **how))
    with pytest.raises(KeyboardInterrupt):
        mixed(wide, out=out, client=DiesAfter(n_done), **how)
    assert f"{kept}" in caplog.text
    assert not out.exists()
    names = sorted(path.name for path in Path(f"{out}.partial").glob("centers-*.npy"))
    assert names == [f"centers-{u:06d}.npy" for u in range(min(n_done, 6))]
    for other, named in (({"train": 301}, "train="), ({"n_partitions": 6}, "n_partitions=7")):
        with pytest.raises(StoreError, match=rf"holds partitions made with .*{named}.*overwrite=True"):
            mixed(wide, out=out, **{**how, **other})
    engine = CountingEngine()
    resumed = mixed(wide, out=out, client=engine, **{**how, "random_state": None})
    assert sum(engine.n_tasks) == 6 + 3 - n_done
    np.testing.assert_array_equal(np.asarray(resumed), expected)
    assert not Path(f"{out}.partial").exists()
    again = mixed(wide, out=out, client=(engine := CountingEngine()), **how)
    assert engine.n_tasks == []
    np.testing.assert_array_equal(np.asarray(again), expected)
    with pytest.raises(StoreExistsError, match="n_partitions=7, not 8"):
        mixed(wide, out=out, **{**how, "n_partitions": 8})


def test_mixed__makes_again_what_was_damaged(wide, tmp_path, caplog):
    out, how = tmp_path / "e.zarr", {"n_partitions": 7, "train": 300, "random_state": 0}
    with pytest.raises(KeyboardInterrupt):
        mixed(wide, out=out, client=DiesAfter(7), **how)
    files = sorted(Path(f"{out}.partial").glob("*-*.npy"))
    contents = [file.read_bytes() for file in files]
    files[-1].write_bytes(contents[-1][:-1] + bytes([contents[-1][-1] ^ 1]))
    files[0].write_bytes(contents[1])  # whole, but of another set
    found = mixed(wide, out=out, **how)
    assert caplog.text.count("it is made again") == 2
    np.testing.assert_array_equal(np.asarray(found), np.asarray(mixed(wide, **how)))


CHILD = """
import sys
from bigcons import generate
generate.mixed(sys.argv[1], n_partitions=30, train=300, out=sys.argv[2], random_state=0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["centers", "labels"])
def test_mixed__after_kill_9_only_what_is_unfinished_is_made(tmp_path, stage):
    np.save(tmp_path / "x.npy", bc.datasets.planted_features(120_000, 256)[0].astype(np.float32))
    out, scratch = tmp_path / "e.zarr", tmp_path / "e.zarr.partial"
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path / "x.npy"), str(out)],
        cwd=Path(bc.__file__).parents[1],
    )
    deadline = time.monotonic() + 60
    while len(list(scratch.glob(f"{stage}-*.npy"))) < 3 and time.monotonic() < deadline and not child.poll():
        time.sleep(0.002)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    n_done = len(list(scratch.glob("*-*.npy")))
    n_sets, n_blocks = 3 + 15, 30
    assert 3 <= n_done < n_sets + n_blocks
    engine, how = CountingEngine(), {"n_partitions": 30, "train": 300, "random_state": 0}
    found = mixed(tmp_path / "x.npy", out=out, client=engine, **how)
    assert sum(engine.n_tasks) == n_sets + n_blocks - n_done
    np.testing.assert_array_equal(np.asarray(found), np.asarray(mixed(tmp_path / "x.npy", **how)))


def test_ensemble_generator__ends_its_range_of_clusters_at_the_objects_that_a_partition_sees(points):
    found = bc.EnsembleGenerator(20, n_clusters=(2, 50), sample=0.25, random_state=0).fit(points[:40])
    assert 2 <= found.n_clusters_.min() < found.n_clusters_.max() <= 10
    with pytest.raises(InvalidInputError, match=r"sample=0.01 of n_objects=40 is 0 objects"):
        bc.EnsembleGenerator(2, sample=0.01).fit(points[:40])
