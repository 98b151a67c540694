"""Weighted k-means, feature views and object views: the same road as k-means, other things seen."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from sklearn.preprocessing import StandardScaler

from bigcons import datasets, generate
from bigcons.errors import InvalidInputError
from bigcons.generate.scheme import Scheme
from bigcons.methods import CSPA, MCLA, MixtureModel
from bigcons.metrics import matching_accuracy, relative_nmi

N_OBJECTS = 9000

GENERATORS = {
    "weighted": lambda x, **kwargs: generate.weighted_kmeans(x, **{"n_clusters": 4, **kwargs}),
    "features": lambda x, **kwargs: generate.feature_views(x, **{"n_clusters": 4, "n_features": 2, **kwargs}),
    "objects": lambda x, **kwargs: generate.object_views(x, **{"n_clusters": 4, **kwargs}),
}


@pytest.fixture(scope="module")
def points():
    return datasets.planted_features(N_OBJECTS, 6, separation=12)[0]


@pytest.fixture(params=GENERATORS)
def make(request):
    """Make an ensemble and return its labels."""

    def labels_of(x, **kwargs):
        kwargs = {"n_partitions": 4, "random_state": 0, **kwargs}
        return np.array(GENERATORS[request.param](x, **kwargs).read(0, len(x)))

    return labels_of


# What they share


def test_views__take_no_unknown_option(points, make):
    with pytest.raises(TypeError, match="n_jobs"):
        make(points, n_jobs=2)


# Weighted k-means


def test_weighted_kmeans__with_equal_weights_is_k_means(points):
    ones = generate.weighted_kmeans(points, n_clusters=3, n_partitions=3, largest_weight=1, random_state=0)
    scaled = StandardScaler().fit_transform(points)
    for column in ones.read(0, N_OBJECTS).T:
        # a fixed point of Lloyd's algorithm on the unweighted features
        means = np.stack([scaled[column == k].mean(axis=0) for k in range(3)])
        again = KMeans(3, init=means, n_init=1).fit_predict(scaled)
        assert matching_accuracy(column, again) > 0.99


def test_weighted_kmeans__weights_decide_which_of_two_groupings_is_found():
    rng = np.random.default_rng(0)
    bits = rng.integers(2, size=(2000, 2))
    square = bits + rng.normal(scale=0.05, size=(2000, 2))
    ensemble = generate.weighted_kmeans(square, n_clusters=2, n_partitions=12, random_state=0)
    for u, column in enumerate(ensemble.read(0, 2000).T):
        weights = Scheme("weighted_kmeans", alpha_range=(0.0, 1.5), largest_weight=20).weights(2, u)
        if weights.max() > 2 * weights.min():
            assert matching_accuracy(bits[:, weights.argmax()], column) > 0.99


def test_kmeans__split_cuts_into_micro_blocks():
    points = np.random.default_rng(0).normal(size=(2500, 2))
    ensemble = generate.kmeans(points, n_clusters="split", sample=1.0, n_partitions=6, random_state=0)
    assert ensemble.n_clusters.min() >= 50  # sqrt(2500) / 2 is less than 2500 / 50
    assert ensemble.n_clusters.max() <= 70
    assert tuple(ensemble.provenance["n_clusters"]) == (50, 70)


# Feature views


def test_feature_views__each_partition_is_k_means_on_its_columns():
    rng = np.random.default_rng(0)
    bits = rng.integers(2, size=(1500, 5))
    noisy = bits + rng.normal(scale=0.05, size=(1500, 5))
    ensemble = generate.feature_views(noisy, n_clusters=4, n_features=2, n_partitions=8, random_state=0,
                                      n_init=10)  # fmt: skip
    for u, column in enumerate(ensemble.read(0, 1500).T):
        seen = np.flatnonzero(Scheme("feature_views", n_features=2).weights(5, u))
        assert matching_accuracy(bits[:, seen] @ [1, 2], column) > 0.99


@pytest.mark.parametrize("train", ["auto", "all"])
def test_feature_views__see_all_numbers_of_a_category_or_none(train):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"city": rng.choice(list("abcd"), 300), "x": rng.normal(size=300)})
    frame["y"] = np.where(rng.random(300) < 0.1, np.nan, rng.normal(size=300))
    how = {"n_clusters": 3, "n_features": 1, "n_partitions": 8, "random_state": 0}
    squares = generate.feature_views(frame, **how, train=train).generator.centers.squares
    seen = {tuple(np.flatnonzero(row)) for row in squares}  # four of the city, x, y, and whether y is missing
    assert seen == {(0, 1, 2, 3), (4,), (5, 6)}
    with pytest.raises(InvalidInputError, match="n_features=4 but only 3 features vary"):
        generate.feature_views(frame, **{**how, "n_features": 4})


# Object views


@pytest.mark.parametrize(("p", "v"), [(4, 1), (8, 2), (5, 5), (7, 3)])
def test_object_views__see_every_object_in_equal_parts(points, p, v):
    labels = generate.object_views(points, n_clusters=3, n_partitions=p, repetition=v, random_state=0).read(
        0, N_OBJECTS
    )
    seen = labels >= 0
    assert seen.any(axis=1).all()
    assert set(seen.sum(axis=0)) <= {v * N_OBJECTS // p, -(-v * N_OBJECTS // p)}
    assert (~seen).mean() == pytest.approx(1 - v / p, abs=1e-9)


# Strehl and Ghosh (2002) state that 16 partitions of an eighth of the objects each keep 90 % of the quality.
@pytest.mark.parametrize("method", [MCLA, CSPA, MixtureModel])
@pytest.mark.parametrize("make", [datasets.ce_2d2k, datasets.ce_8d5k])
def test_object_views__sixteen_of_an_eighth_keep_nine_tenths_of_the_quality(make, method):
    features, classes = make(0)
    k = classes.max() + 1
    settings = {"n_clusters": k, "random_state": 0, "n_init": 10}
    views = generate.object_views(features, n_partitions=16, repetition=2, **settings)
    whole = generate.kmeans(features, n_partitions=1, sample=1.0, **settings).read(0, len(classes))[:, 0]
    found = method(k, random_state=0).fit(views).labels_
    assert relative_nmi(classes, found, whole) >= 0.9


# Errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: generate.weighted_kmeans(x, alpha_range=(1, 0)), r"alpha_range\[1\]=0"),
        (lambda x: generate.weighted_kmeans(x, alpha_range=(-1, 0)), r"alpha_range\[0\]=-1"),
        (lambda x: generate.weighted_kmeans(x, alpha_range=2), "alpha_range=2 is not a range"),
        (lambda x: generate.weighted_kmeans(x, largest_weight=0), "largest_weight=0"),
        (lambda x: generate.weighted_kmeans(x, n_clusters="many"), "n_clusters='many'"),
        (lambda x: generate.feature_views(x, n_clusters=2, n_features=0), "n_features=0"),
        (lambda x: generate.object_views(x, n_clusters=2, n_partitions=4, repetition=5), "repetition=5"),
        (
            lambda x: generate.object_views(x[:30], n_clusters=5, n_partitions=15),
            "n_partitions=15, repetition=2 of n_objects=30 is 4 objects, fewer than n_clusters=5; raise rep",
        ),
    ],
)
def test_views__say_what_is_wrong_in_one_line(points, call, message):
    with pytest.raises(InvalidInputError, match=message) as error:
        call(points)
    assert "\n" not in str(error.value)
