"""Ensembles in part by landmarks, what does not change their bits, and what labels new rows."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from scipy.sparse import csc_matrix, csr_array, random_array
from sklearn.datasets import make_moons

import bigcons as bc
from bigcons.errors import CorruptStoreError, InvalidInputError, MemoryBudgetError
from bigcons.generate import diverse, feature_views, kmeans, landmarks, mixed, object_views, weighted_kmeans
from bigcons.generate.kmeans import drawn_clusters
from bigcons.generate.training import N_LANDMARKS, embedding, n_landmarks
from tests.naive import landmarks as naive
from tests.support.engines import RepeatedTasks

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


def test_ensemble_generator__ends_its_range_of_clusters_at_the_objects_that_a_partition_sees(points):
    found = bc.EnsembleGenerator(20, n_clusters=(2, 50), sample=0.25, random_state=0).fit(points[:40])
    assert 2 <= found.n_clusters_.min() < found.n_clusters_.max() <= 10
    with pytest.raises(InvalidInputError, match=r"sample=0.01 of n_objects=40 is 0 objects"):
        bc.EnsembleGenerator(2, sample=0.01).fit(points[:40])


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


# Landmarks


def projector(vectors, degrees):
    """Return the projector onto the eigenvectors of the symmetric matrix, whatever their signs and order."""
    orthonormal = vectors * np.sqrt(degrees)[:, None]
    np.testing.assert_allclose(orthonormal.T @ orthonormal, np.eye(vectors.shape[1]), atol=1e-8)
    return orthonormal @ orthonormal.T


def compare(points, landmarks, n_vectors, *, is_sparse=False):
    """Compare all spaces of leading eigenvectors that are separated from the next one."""
    values, expected, degrees = naive.embedding(points, landmarks)
    found, of_found = embedding(csr_array(points) if is_sparse else points, landmarks, n_vectors)
    assert found.shape == (len(landmarks), min(n_vectors, len(landmarks)))
    np.testing.assert_allclose(of_found, degrees, rtol=1e-6)
    gaps = -np.diff(np.append(values, -1.0))
    compared = [k for k in range(1, found.shape[1] + 1) if gaps[k - 1] > 1e-4]
    for k in compared:
        np.testing.assert_allclose(
            projector(found[:, :k], of_found), projector(expected[:, :k], degrees), atol=1e-6
        )
    return compared


@given(
    seed=st.integers(0, 10**6),
    n_groups=st.integers(1, 5),
    width=st.integers(1, 4),
    n_points=st.integers(6, 120),
    is_sparse=st.booleans(),
)
def test_embedding__is_that_of_the_definition(seed, n_groups, width, n_points, is_sparse):
    rng = np.random.default_rng(seed)
    centers = 30 * np.arange(n_groups)[:, None] + rng.normal(size=(n_groups, width))
    points = (centers[np.arange(n_points) % n_groups] + rng.normal(size=(n_points, width))).astype(np.float32)
    n_chosen = int(rng.integers(1, n_points // 2 + 1))
    landmarks = points[rng.choice(n_points, n_chosen, replace=False)].astype(float)
    compare(points, landmarks, int(rng.integers(1, 2 * n_chosen + 1)), is_sparse=is_sparse)


def test_embedding__of_groups_apart_has_a_vector_of_each():
    rng = np.random.default_rng(0)
    group = np.arange(300) % 4
    points = (100 * np.eye(4)[group] + rng.normal(size=(300, 4))).astype(np.float32)
    assert 4 in compare(points, points[:80].astype(float), 10)
    vectors, degrees = embedding(points, points[:80].astype(float), 4)
    indicators = (group[:80, None] == np.arange(4)) / np.sqrt(np.bincount(group[:80], degrees[:80]))
    np.testing.assert_allclose(
        projector(vectors, degrees), projector(indicators, degrees), atol=1e-8
    )  # which are constant in every group


def test_n_landmarks__of_few_objects_many_and_many_features():
    assert n_landmarks(1, 3) == 1
    assert n_landmarks(3, 3) == 3
    assert n_landmarks(30, 3) == 10
    assert n_landmarks(10**6, 3) == N_LANDMARKS
    assert n_landmarks(10**6, 10**5) * 10**5 <= 1 << 23
    assert n_landmarks(10**6, 10**7) == 10


# Shapes


def circles(n):
    rng = np.random.default_rng(0)
    radius, angle = np.arange(n) % 3, rng.uniform(0, 2 * np.pi, n)
    shape = (1 + 2 * radius)[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return shape + 0.1 * rng.normal(size=(n, 2)), radius


SHAPES = {
    "moons": lambda: make_moons(1500, noise=0.05, random_state=0),
    "circles": lambda: circles(1500),
}


@pytest.mark.filterwarnings("ignore::bigcons.errors.SurplusClustersWarning")
@pytest.mark.parametrize("shape", SHAPES)
def test_landmarks__follow_curved_shapes_that_k_means_cuts(shape):
    points, truth = SHAPES[shape]()
    scores = {
        make.__name__: bc.metrics.adjusted_rand(
            truth,
            bc.consensus(make(points, random_state=0), len(np.unique(truth)), random_state=0).labels_,
        )
        for make in (bc.generate.landmarks, bc.generate.kmeans)
    }
    assert scores["landmarks"] > 0.99
    assert scores["kmeans"] < 0.9


def test_landmarks__share_three_sets():
    points = np.random.default_rng(0).normal(size=(300, 2))
    made = bc.generate.landmarks(points, n_partitions=11, random_state=0).generator.centers
    assert len(made.offsets) - 1 == 3
    assert made.sets.tolist() == [u % 3 for u in range(11)]
    assert np.diff(made.offsets).tolist() == [100, 100, 100]
    two = bc.generate.landmarks(points, n_partitions=2, random_state=0).generator.centers
    np.testing.assert_array_equal(two.packed[: 2 * 100], made.packed[: 2 * 100])


# What labels new rows

N_ROWS = 81_000  # half of which are more than a sample


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    group = rng.integers(3, size=N_ROWS)
    age = 30 + 10 * group + rng.normal(size=N_ROWS)
    return pa.table(
        {
            "who": np.arange(N_ROWS),
            "city": np.array(["Bern", "Oslo", "Rome"])[np.where(rng.random(N_ROWS) < 0.1, 0, group)],
            "age": pa.array(age, mask=rng.random(N_ROWS) < 0.1),
            "spend": np.exp(rng.normal(size=N_ROWS) + group),
        }
    )


def seen(ensemble):
    labels = np.asarray(ensemble)
    return labels, labels >= 0


MADE = {
    "samples": lambda table, **how: kmeans(table, n_partitions=6, log="spend", **how),
    "all": lambda table, **how: kmeans(table, n_partitions=6, train="all", **how),
    "mixed": lambda table, **how: mixed(table, n_partitions=6, **how),
    "landmarks": lambda table, **how: landmarks(table, n_partitions=6, log="spend", **how),
    "zipf": lambda table, **how: weighted_kmeans(table, n_partitions=6, sample=0.5, **how),
    "features": lambda table, **how: feature_views(table, n_features=3, n_clusters=4, n_partitions=6, **how),
    "objects": lambda table, **how: object_views(table, n_clusters=3, n_partitions=6, **how),
}


@pytest.mark.parametrize("scheme", MADE)
def test_assign__gives_the_first_rows_their_labels_again(table, tmp_path, scheme):
    table = table if scheme == "samples" else table.slice(0, 5000)
    held = MADE[scheme](table, id="who", random_state=0)
    stored = MADE[scheme](table, id="who", random_state=0, out=tmp_path / "e.zarr")
    assert held.provenance["train"] == ("all" if scheme == "all" else "auto")
    for ensemble in (held, stored):
        found = ensemble.generator.assign(table)
        labels, is_seen = seen(ensemble)
        np.testing.assert_array_equal(found.labels[is_seen], labels[is_seen])
        assert found.labels.min() == 0
        assert found.far_share < 0.03
    assert np.array_equal(held.generator.assign(table.slice(50, 7)).labels, found.labels[50:57])
    assert stored.verify()["ok"]
    assert repr(stored.generator) == repr(held.generator)


def test_generator__stays_with_its_partitions_through_appends_and_choices(table, tmp_path):
    few = table.slice(0, 500)
    kmeans(few, id="who", n_partitions=3, random_state=0, out=tmp_path / "e.zarr")
    ensemble = bc.Ensemble.open(tmp_path / "e.zarr", "a")
    expected = ensemble.generator.assign(few).labels
    ensemble.append_partitions(np.arange(500) % 3, names=["mine"])
    again = bc.Ensemble.open(tmp_path / "e.zarr")
    found = again.generator.assign(few).labels
    np.testing.assert_array_equal(found[:, :3], expected)
    assert (found[:, 3] == -1).all()
    chosen = again.select(["mine", "p2", "p0"]).generator.assign(few).labels
    np.testing.assert_array_equal(chosen[:, 1:], expected[:, [2, 0]])
    assert again.select(["mine"]).generator is None
    assert sorted(path.name for path in (tmp_path / "e.zarr").glob("generator*")) == ["generator.npz"]
    assert diverse(np.arange(20.0).reshape(10, 2), algorithms="ward", n_clusters=2).generator is None


def test_generator__that_is_damaged_is_found(table, tmp_path):
    kmeans(table.slice(0, 500), id="who", n_partitions=3, random_state=0, out=tmp_path / "e.zarr")
    file = tmp_path / "e.zarr" / "generator.npz"
    data = file.read_bytes()
    for broken in (data[:-9], data[:2000] + b"!" + data[2001:], None):
        file.unlink(missing_ok=True) if broken is None else file.write_bytes(broken)
        ensemble = bc.Ensemble.open(tmp_path / "e.zarr")
        with pytest.raises(CorruptStoreError, match=r"generator.npz is (damaged|missing)"):
            _ = ensemble.generator
        with pytest.raises(CorruptStoreError):
            ensemble.verify()


# Sparse features


def texts(n, width, density=0.02):
    rng = np.random.default_rng(0)
    return csr_array(random_array((n, width), density=density, format="csr", rng=rng, dtype=np.float32))


@pytest.mark.parametrize("how", [{}, {"train": "all"}], ids=str)
def test_kmeans__of_sparse_rows_is_that_of_dense_ones(how):
    width = 40 if how else 5000  # of which a sample has 838 objects
    sparse = texts(2000, width, 0.2 if how else 0.005)
    how = {"n_partitions": 4, "n_clusters": 2, "random_state": 0, **how}
    found, dense = kmeans(sparse, **how), kmeans(sparse.toarray(), **how)
    assert found.provenance["sample_rows"] == (1000 if width == 40 else 838)
    pairs = zip(np.asarray(found).T, np.asarray(dense).T, strict=True)
    assert min(bc.metrics.adjusted_rand(*pair) for pair in pairs) > 0.99  # sums in another order
    labels, is_seen = seen(found)
    for source in (sparse, csc_matrix(sparse), sparse.toarray()):
        again = found.generator.assign(source).labels
        assert (again[is_seen] == labels[is_seen]).mean() > 0.999
    assert (dense.generator.assign(sparse).labels[is_seen] == labels[is_seen]).mean() > 0.99
    np.testing.assert_array_equal(found.generator.assign(sparse).labels[is_seen], labels[is_seen])


def test_weighted_kmeans__of_sparse_rows_weighs_them():
    sparse = texts(400, 20, 0.3)
    for make, how in ((weighted_kmeans, {}), (feature_views, {"n_features": 5, "n_clusters": 3})):
        ensemble = make(sparse, n_partitions=3, random_state=0, **how)
        found = ensemble.generator.assign(sparse)
        np.testing.assert_array_equal(found.labels, np.asarray(ensemble))
        assert found.far_share < 0.05


def test_kmeans__never_makes_all_sparse_rows_dense():
    sparse = texts(4000, 5000, 0.005)
    tracemalloc.start()
    try:
        kmeans(sparse, n_partitions=4, n_clusters=4, standardize=False, memory="430MB", random_state=0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 30e6 < 4 * 4000 * 5000
