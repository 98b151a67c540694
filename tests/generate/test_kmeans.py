"""Ensembles of k-means: what partitions see of objects and features, and what they make of it."""

import os

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.preprocessing import StandardScaler

from bigcons import datasets, generate
from bigcons.errors import InvalidInputError, MemoryBudgetError
from bigcons.generate.training import Scheme, Subset, measure
from bigcons.io.features import Features, open_features
from bigcons.memory import PROCESS_BYTES
from bigcons.methods import CSPA, MCLA, MixtureModel
from bigcons.metrics import matching_accuracy, relative_nmi
from bigcons.run.engine import SerialEngine
from tests.naive import nearest as naive
from tests.support.refusals import refused

N_OBJECTS, N_FEATURES = 9000, 6  # two whole segments and a part of one

GENERATORS = {
    "kmeans": generate.kmeans,
    "weighted": lambda x, **how: generate.weighted_kmeans(x, **how),
    "features": lambda x, **how: generate.feature_views(x, n_features=2, **how),
    "objects": lambda x, **how: generate.object_views(x, **how),
}


@pytest.fixture(scope="module")
def points():
    return datasets.planted_features(N_OBJECTS, N_FEATURES, separation=12)[0]


@pytest.fixture(scope="module")
def wide():
    """More objects than a sample, in the order of their classes."""
    rng = np.random.default_rng(0)
    truth = np.sort(rng.integers(3, size=30_000))
    return (10 * np.eye(3, 256)[truth] + rng.normal(size=(30_000, 256))).astype(np.float32), truth


def make(features, generator="kmeans", **how):
    how = {"n_partitions": 4, "random_state": 0, **how}
    return np.asarray(GENERATORS[generator](features, **how))


def zipf(largest, low, high, width):
    return Scheme("test", alpha_range=(low, high), largest_weight=largest, features=tuple(range(width)))


def assert_same_in_parts(subset, middle):
    n = subset.n_objects
    rows, ends = subset.rows(0, n), [(a, b) for a, b in ((0, middle), (middle, n)) if a < b]
    assert (np.diff(rows) > 0).all()
    np.testing.assert_array_equal(np.concatenate([subset.rows(*end) for end in ends]), rows)
    masks = [subset.mask(*end) for end in ends]
    np.testing.assert_array_equal(np.flatnonzero(np.concatenate(masks)), rows)


def dealt(n_objects, n_partitions, repetition, segment_rows=64):
    """Return the subsets of all partitions."""
    deal = n_partitions, repetition
    return [Subset(n_objects, 0.0, segment_rows, 1, "test", u, deal) for u in range(n_partitions)]


@st.composite
def deals(draw):
    p = draw(st.integers(1, 12))
    return draw(st.integers(1, 15_000)), p, draw(st.integers(1, p))


@given(deals(), st.integers(0, 300))
def test_dealt_subset__covers_all_objects_with_equal_parts(deal, cut):
    n, p, v = deal
    subsets = dealt(*deal)
    rows = [subset.rows(0, n) for subset in subsets]
    seen = np.bincount(np.concatenate(rows), minlength=n)
    assert len(seen) == n
    assert 1 <= seen.min() <= seen.max() <= p
    assert seen.sum() == v * n
    for subset, part in zip(subsets, rows, strict=True):
        assert len(part) == subset.size(n)
        assert len(part) in (v * n // p, -(-v * n // p))
    assert_same_in_parts(subsets[-1], min(64 * cut, n))


@pytest.mark.parametrize("share", [0.5, 1.0, 0.123])
def test_kmeans__each_partition_sees_its_share_of_the_objects(points, share):
    seen = make(points, sample=share) >= 0
    assert (seen.sum(axis=0) == round(share * N_OBJECTS)).all()
    if share < 1:
        assert len(np.unique(seen, axis=1).T) == 4


@pytest.mark.parametrize(("p", "v"), [(4, 1), (8, 2), (5, 5), (7, 3)])
def test_object_views__see_every_object_in_equal_parts(points, p, v):
    seen = make(points, "objects", n_clusters=3, n_partitions=p, repetition=v) >= 0
    assert seen.any(axis=1).all()
    assert set(seen.sum(axis=0)) <= {v * N_OBJECTS // p, -(-v * N_OBJECTS // p)}
    assert (~seen).mean() == pytest.approx(1 - v / p, abs=1e-9)


# Strehl and Ghosh (2002) state that 16 partitions of an eighth of the objects each keep 90 % of the quality.
@pytest.mark.parametrize("method", [MCLA, CSPA, MixtureModel])
@pytest.mark.parametrize("data", [datasets.ce_2d2k, datasets.ce_8d5k])
def test_object_views__sixteen_of_an_eighth_keep_nine_tenths_of_the_quality(data, method):
    features, classes = data(0)
    k = classes.max() + 1
    how = {"n_clusters": k, "random_state": 0, "n_init": 10}
    views = generate.object_views(features, n_partitions=16, repetition=2, **how)
    whole = make(features, n_partitions=1, sample=1.0, **how)[:, 0]
    labels = method(k, random_state=0).fit(views).labels_
    assert relative_nmi(classes, labels, whole) >= 0.9


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


@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.5])
@pytest.mark.parametrize("largest", [1, 5, 20])
def test_zipf_weights__have_the_law_of_scipy(alpha, largest):
    weights = zipf(largest, alpha, alpha, 100_000).weights(0).astype(int)
    values = np.arange(1, largest + 1)
    expected = stats.zipfian.pmf(values, alpha, largest) if alpha else np.full(largest, 1 / largest)
    counts = np.bincount(weights, minlength=largest + 1)
    assert counts[0] == 0
    assert largest == 1 or stats.chisquare(counts[1:], expected * 100_000).pvalue > 0.001


def test_feature_views__each_partition_is_k_means_on_its_columns():
    rng = np.random.default_rng(0)
    bits = rng.integers(2, size=(1500, 5))
    noisy = bits + rng.normal(scale=0.05, size=(1500, 5))
    how = {"n_clusters": 4, "n_features": 2, "n_partitions": 8, "n_init": 10, "random_state": 0}
    ensemble = generate.feature_views(noisy, **how)
    for column, squares in zip(np.asarray(ensemble).T, ensemble.generator.centers.squares, strict=True):
        assert matching_accuracy(bits[:, np.flatnonzero(squares)] @ [1, 2], column) > 0.99


def test_feature_views__see_all_numbers_of_a_category_or_none():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"city": rng.choice(list("abcd"), 300), "x": rng.normal(size=300)})
    frame["y"] = np.where(rng.random(300) < 0.1, np.nan, rng.normal(size=300))
    how = {"n_clusters": 3, "n_features": 1, "n_partitions": 8, "random_state": 0}
    squares = generate.feature_views(frame, **how).generator.centers.squares
    seen = {tuple(np.flatnonzero(row)) for row in squares}  # four of the city, x, y, and whether y is missing
    assert seen == {(0, 1, 2, 3), (4,), (5, 6)}
    with pytest.raises(InvalidInputError, match="n_features=4 but only 3 features vary"):
        generate.feature_views(frame, **{**how, "n_features": 4})


def test_kmeans__split_cuts_into_micro_blocks():
    points = np.random.default_rng(0).normal(size=(2500, 2))
    ensemble = generate.kmeans(points, n_clusters="split", sample=1.0, n_partitions=6, random_state=0)
    assert 50 <= ensemble.n_clusters.min() <= ensemble.n_clusters.max() <= 70  # sqrt(2500) / 2 is less
    assert tuple(ensemble.provenance["n_clusters"]) == (50, 70)


@pytest.mark.parametrize("train", ["auto", "all"])
def test_kmeans__finds_clusters_that_are_there_even_in_sorted_data(train, wide):
    labels = make(wide[0], sample=1.0, train=train, n_clusters=3, n_init=5, standardize=False)
    for column in labels.T:
        assert matching_accuracy(wide[1], column) > 0.999


@pytest.mark.parametrize("generator", ["kmeans", "weighted", "features"])
def test_samples__every_object_is_in_the_cluster_of_the_nearest_center(points, generator):
    how = {"n_partitions": 4, "n_clusters": 4, "random_state": 0, "train": 300}
    ensemble = GENERATORS[generator](points, **how)
    centers, labels = ensemble.generator.centers, np.asarray(ensemble)[::50]
    scaled = measure(open_features(points), standardize=True)[0].apply(points)[::50]
    packed = centers.packed.reshape(-1, N_FEATURES + 1)[: centers.offsets[-1], :-1]
    for u in range(4):
        seen = np.flatnonzero(weights := np.sqrt(np.resize(centers.squares, (4, N_FEATURES))[u]))
        of_u = packed[centers.offsets[u] : centers.offsets[u + 1], seen] / weights[seen]
        column = labels[:, u : u + 1]
        nearest = naive.label((scaled * weights)[:, seen], of_u, np.array([0, len(of_u)]), column)
        np.testing.assert_array_equal(column, nearest)


def test_samples__read_the_features_twice(points, monkeypatch):
    passes, stream = [], Features._stream

    def counted(self, blocks, **how):
        passes.append(sum(block.n_rows for block in blocks))
        return stream(self, blocks, **how)

    monkeypatch.setattr(Features, "_stream", counted)
    make(points, n_partitions=30, train=300)
    assert passes == [N_OBJECTS, N_OBJECTS]


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


@pytest.mark.parametrize(
    ("generator", "wrong", "message"),
    [
        ("kmeans", {"n_partitions": 0}, "n_partitions=0"),
        ("kmeans", {"n_clusters": 0}, "n_clusters=0"),
        ("kmeans", {"n_clusters": (5, 2)}, r"n_clusters\[1\]=2 is out of range; use an integer >= 5"),
        ("kmeans", {"n_clusters": np.array([2, 3, 4])}, "no number of clusters"),
        ("kmeans", {"overwrite": "no"}, "overwrite='no' is not a boolean"),
        ("kmeans", {"sample": 0.0001}, "sample=0.0001 of n_objects=9000 is 1 objects, fewer than n_clusters"),
        ("kmeans", {"out": "https://example.org/e.zarr"}, "not a supported URL"),
        ("weighted", {"alpha_range": (1, 0)}, r"alpha_range\[1\]=0"),
        ("weighted", {"alpha_range": 2}, "alpha_range=2 is not a range"),
        (
            "objects",
            {"n_clusters": 5, "n_partitions": 8000},
            "n_partitions=8000, repetition=2 of n_objects=9000 is 2 objects, fewer than n_clusters=5; raise",
        ),
    ],
)
def test_make__says_what_is_wrong_in_one_line(points, tmp_path, monkeypatch, generator, wrong, message):
    monkeypatch.chdir(tmp_path)
    with refused(message):
        make(points, generator, **{"out": "e.zarr", **wrong})
    assert list(tmp_path.iterdir()) == []


def test_kmeans__states_a_budget_that_is_enough_with_gaps(points, tmp_path):
    gappy = np.where(np.arange(points.size).reshape(points.shape) % 7 == 0, np.nan, points)
    with pytest.raises(MemoryBudgetError, match=r"memory=100 kB; raise it to \d+ MB\.$") as refusal:
        make(gappy, memory="100kB", out=tmp_path / "e.zarr")
    assert list(tmp_path.iterdir()) == []
    assert make(gappy, memory=refusal.value.needed, out=tmp_path / "e.zarr").shape == (N_OBJECTS, 4)


@pytest.mark.parametrize(
    ("column", "how", "message"),
    [
        ([1.0] * 50, {}, "all constant"),
        ([0.0] * 49 + [1e200], {"standardize": False}, "'f0' of features ranges from 0 to 1e\\+200"),
        *(([0.0] * 49 + [x], {}, "too far or too near for float32") for x in (1e300, 1e-200, 5e-324)),
        ([0.0] * 49 + [1e-20], {"standardize": False}, "too far or too near for float32"),
        ([0.0] * 49 + [np.inf], {}, "inf at row 49"),
        ([np.nan] * 50, {}, "all constant"),
    ],
)
def test_kmeans__rejects_features_it_cannot_cluster(tmp_path, column, how, message):
    with pytest.raises(InvalidInputError, match=message):
        make(np.array([column]).T, out=tmp_path / "e.zarr", **how)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.data
@pytest.mark.skipif("BIGCONS_DATA" not in os.environ, reason="BIGCONS_DATA names no directory")
def test_kmeans__real_kdd_partitions_are_as_good_as_the_paper_says():
    table, truth = datasets.kddcup99(n_objects=20_000)
    accuracy = [matching_accuracy(truth, column) for column in make(table, n_partitions=30).T]
    assert 0.72 < np.mean(accuracy) < 0.95
