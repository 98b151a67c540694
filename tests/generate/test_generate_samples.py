"""Partitions trained on samples and labeled in one pass, as those trained on all their objects are."""

from __future__ import annotations

import numpy as np
import pytest

from bigcons import datasets, generate
from bigcons.generate.scaling import measure
from bigcons.generate.scheme import Scheme
from bigcons.generate.training import choose_pool_rows, choose_sample_rows
from bigcons.io.features import Features, open_features
from tests.naive import nearest as naive

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


def test_samples__read_the_features_twice(points, monkeypatch):
    passes = []
    stream = Features._stream

    def counted(self, blocks, gaps):
        passes.append(sum(block.n_rows for block in blocks))
        return stream(self, blocks, gaps)

    monkeypatch.setattr(Features, "_stream", counted)
    make(points, n_partitions=30)
    assert passes == [N_OBJECTS, N_OBJECTS]
