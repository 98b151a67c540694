"""Ensembles in part by landmarks, what does not change their bits, and what labels new rows."""

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from scipy.sparse import csc_matrix, csr_array, random_array
from sklearn.datasets import make_moons

import bigcons as bc
from bigcons.errors import CorruptStoreError, InvalidInputError, MemoryBudgetError
from bigcons.generate import diverse, feature_views, kmeans, landmarks, mixed, object_views, weighted_kmeans
from bigcons.generate.training import Scheme, embedding
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


def test_make__changes_bits_with_the_seed_alone(make, points, tmp_path):
    expected = check(make(points), points)
    assert not np.array_equal(np.asarray(make(points, random_state=1)), expected)
    np.save(tmp_path / "x.npy", points)
    columns = {f"x{c}": column for c, column in enumerate(points.T)}
    parquet.write_table(pa.table(columns), tmp_path / "x.parquet")
    with pytest.raises(MemoryBudgetError) as refusal:
        make(points, memory=1000)
    for features, how in (
        (points, {"client": "serial"}),
        (points, {"client": "threads"}),
        (points, {"client": RepeatedTasks()}),
        (points, {"memory": refusal.value.needed}),
        (points, {"memory": "2GB", "out": tmp_path / "a.zarr"}),
        (tmp_path / "x.npy", {"out": tmp_path / "b.zarr"}),
        (tmp_path / "x.parquet", {"out": tmp_path / "c.zarr", "client": "serial"}),
        (tmp_path / "x.parquet", {"out": tmp_path / "d.parquet"}),
    ):
        np.testing.assert_array_equal(make(features, **how), expected)
    for name in "abc":
        stored = bc.Ensemble.open(tmp_path / f"{name}.zarr")
        assert stored.verify()["ok"]
        check(stored, points)
    assert sorted(path.name for path in tmp_path.glob("*.partial")) == []


def test_mixed__is_half_by_landmarks_and_half_by_k_means(points):
    points = points[:3000]
    found = mixed(points, n_partitions=np.int8(30), random_state=0)
    is_by_kmeans = np.arange(30) % 2 == 1
    sets = found.generator.centers.sets
    assert len(np.unique(sets[is_by_kmeans])) == 15
    assert len(np.unique(sets[~is_by_kmeans])) == 3
    assert found.missing_share == 0
    np.testing.assert_array_equal(mixed(points, n_partitions=7, random_state=0), np.asarray(found)[:, :7])
    assert 2 <= found.n_clusters[is_by_kmeans].min() <= found.n_clusters[is_by_kmeans].max() <= 30
    assert 2 <= found.n_clusters[~is_by_kmeans].min() <= found.n_clusters[~is_by_kmeans].max() <= 20
    assert found.n_clusters[is_by_kmeans].max() > 20


@pytest.mark.parametrize(("n_objects", "n_clusters"), [(3, None), (17, (2, 78)), (29, None), (400, (2, 78))])
def test_clusters_that_are_drawn__are_the_most_that_there_are(n_objects, n_clusters):
    points = np.random.default_rng(0).normal(size=(n_objects, 3))
    found = mixed(points, n_partitions=40, n_clusters=n_clusters, random_state=5).n_clusters
    drawn = Scheme("mixed", 40, n_clusters, seed=5).of_objects(n_objects, n_objects).draw_numbers()
    assert (found <= drawn).all()
    if n_objects == 400:
        np.testing.assert_array_equal(found, drawn)


def test_ensemble_generator__is_the_function_of_its_scheme(points):
    points = points[:3000]
    schemes = {
        "mixed": (mixed, {}, {}),
        "landmarks": (landmarks, {"n_clusters": (2, 9)}, {}),
        "kmeans": (kmeans, {"n_clusters": 4}, {"sample": 1.0}),
    }
    for scheme, (function, how, others) in schemes.items():
        made = bc.EnsembleGenerator(7, scheme=scheme, random_state=0, **how)
        labels = made.fit_transform(points)
        np.testing.assert_array_equal(made.transform(points), labels, strict=True)
        assert labels.max(axis=0).tolist() == (made.n_clusters_ - 1).tolist()
        ensemble = function(points, n_partitions=7, random_state=0, **how, **others)
        np.testing.assert_array_equal(labels, ensemble)
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
    assert found.is_far.mean() == pytest.approx(0.01, abs=0.01)
    assert made.generator.assign(points + 100).is_far.all()


def odd():
    rng = np.random.default_rng(0)
    half, gaps = rng.normal(size=(150, 2)), rng.normal(size=(400, 3))
    gaps[:, ::2][rng.random((400, 2)) < 0.2] = np.nan
    return {
        "duplicates": np.repeat(rng.normal(size=(5, 2)), 60, axis=0),
        "two values": np.repeat(np.eye(2), 40, axis=0),
        "constant blocks": np.repeat([[1.0, 0.0, 3.0], [1.0, 1.0, 3.0]], 90, axis=0),
        "one other object": np.r_[np.zeros((99, 2)), np.ones((1, 2))],
        "two objects": half[:2],
        "three objects": half[:3],
        "twenty-nine objects": half[:29],
        "one column": half[:, :1],
        "one column of integers": rng.integers(3, size=(200, 1)),
        "two identical halves": np.tile(half, (2, 1)),
        "two halves far apart": np.r_[half, half + 1e6],
        "a far object": np.r_[half, [[1e12, 1e12]]],
        "a tiny column": half * [1e9, 1e-9],
        "heavy tails": rng.laplace(size=(300, 3)) ** 9,
        "gaps": gaps,
        "wide": rng.normal(size=(40, 2000)),
        "booleans": rng.random((300, 5)) < 0.5,
        "sparse": csr_array(random_array((300, 20), density=0.2, rng=rng, dtype=np.float32)),
        "sparse with empty rows": csr_array(random_array((300, 99), density=0.01, rng=rng)),
    }


ODD = odd()


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("name", ODD)
def test_mixed__takes_odd_features_in_silence(name, standardize):
    features, how = ODD[name], {"random_state": 0, "standardize": standardize, "client": "serial"}
    made = mixed(features, n_partitions=9, **how)
    labels = check(made, features)
    check(landmarks(features, n_partitions=9, n_clusters=2, **how), features)
    if name == "two identical halves":
        np.testing.assert_array_equal(labels[:150], labels[150:])
    if name in ("duplicates", "two values", "constant blocks"):
        assert made.n_clusters.max() == len(np.unique(features, axis=0))


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 4), st.integers(6, 120), st.booleans())
def test_embedding__is_that_of_the_definition(seed, n_groups, width, n_points, is_sparse):
    rng = np.random.default_rng(seed)
    centers = 30 * np.arange(n_groups)[:, None] + rng.normal(size=(n_groups, width))
    points = (centers[np.arange(n_points) % n_groups] + rng.normal(size=(n_points, width))).astype(np.float32)
    n_chosen = int(rng.integers(1, n_points // 2 + 1))
    landmarks = points[rng.choice(n_points, n_chosen, replace=False)].astype(float)
    n_vectors = int(rng.integers(1, n_chosen + 1))
    values, expected, degrees = naive.embedding(points, landmarks)
    vectors, weights = embedding(csr_array(points) if is_sparse else points, landmarks, n_vectors)
    assert vectors.shape == (n_chosen, n_vectors)
    np.testing.assert_allclose(weights, degrees, rtol=1e-6)
    gaps = -np.diff(np.append(values, -1.0))
    for k in range(1, n_vectors + 1):
        if gaps[k - 1] > 1e-4:  # the space of these is apart from the next, whatever their signs and order
            spaces = [v[:, :k] * np.sqrt(degrees)[:, None] for v in (vectors, expected)]
            np.testing.assert_allclose(*(space @ space.T for space in spaces), atol=1e-6)


def circles(n):
    rng = np.random.default_rng(0)
    radius, angle = np.arange(n) % 3, rng.uniform(0, 2 * np.pi, n)
    shape = (1 + 2 * radius)[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return shape + 0.1 * rng.normal(size=(n, 2)), radius


SHAPES = {"moons": make_moons(900, noise=0.05, random_state=0), "circles": circles(900)}


@pytest.mark.filterwarnings("ignore::bigcons.errors.SurplusClustersWarning")
@pytest.mark.parametrize("shape", SHAPES)
def test_landmarks__follow_curved_shapes_that_k_means_cuts(shape):
    points, truth = SHAPES[shape]
    made = (make(points, n_partitions=40, random_state=0) for make in (landmarks, kmeans))
    labels = [bc.consensus(ensemble, truth.max() + 1, random_state=0).labels_ for ensemble in made]
    by_landmarks, by_kmeans = (bc.metrics.adjusted_rand(truth, each) for each in labels)
    assert by_kmeans < 0.9 < 0.99 < by_landmarks


def test_landmarks__far_from_all_others_become_no_clusters_alone():
    rng = np.random.default_rng(1)
    truth = rng.integers(4, size=600)
    features = rng.normal(size=(600, 5)) + 6 * np.eye(4, 5)[truth]
    features[:12] = 40 * rng.normal(size=(12, 5))
    labels = np.asarray(landmarks(features, n_partitions=9, n_clusters=4, random_state=0))
    assert all(bc.metrics.adjusted_rand(truth[12:], column[12:]) == 1.0 for column in labels.T)


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


MADE = {
    "samples": lambda table, **how: kmeans(table, n_partitions=6, **how),
    "all": lambda table, **how: kmeans(table, n_partitions=6, train="all", **how),
    "mixed": lambda table, **how: mixed(table, n_partitions=6, **how),
    "landmarks": lambda table, **how: landmarks(table, n_partitions=6, **how),
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
        labels = np.asarray(ensemble)
        is_seen = labels >= 0
        np.testing.assert_array_equal(found.labels[is_seen], labels[is_seen])
        assert found.labels.min() == 0
        assert found.is_far.mean() < 0.03
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


def texts(n, width, density):
    rng = np.random.default_rng(0)
    return csr_array(random_array((n, width), density=density, format="csr", rng=rng, dtype=np.float32))


@pytest.mark.parametrize("train", [300, "all"])
def test_kmeans__of_sparse_rows_is_that_of_dense_ones(train):
    sparse = texts(2000, 40, 0.2)
    how = {"n_partitions": 4, "n_clusters": 2, "random_state": 0, "train": train}
    found, dense = kmeans(sparse, **how), kmeans(sparse.toarray(), **how)
    pairs = zip(np.asarray(found).T, np.asarray(dense).T, strict=True)
    assert min(bc.metrics.adjusted_rand(*pair) for pair in pairs) > 0.99  # sums in another order
    labels = np.asarray(found)
    is_seen = labels >= 0
    for source in (sparse, csc_matrix(sparse), sparse.toarray()):
        again = found.generator.assign(source).labels
        assert (again[is_seen] == labels[is_seen]).mean() > 0.999
    assert (dense.generator.assign(sparse).labels[is_seen] == labels[is_seen]).mean() > 0.99
    np.testing.assert_array_equal(found.generator.assign(sparse).labels[is_seen], labels[is_seen])


def test_kmeans__never_makes_all_sparse_rows_dense():
    sparse = texts(4000, 5000, 0.005)
    tracemalloc.start()
    try:
        kmeans(sparse, n_partitions=4, n_clusters=4, standardize=False, memory="430MB", random_state=0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 30e6 < 4 * 4000 * 5000
