"""What an ensemble was made by: new rows get the base labels that the first ones have."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from scipy.sparse import csc_matrix, csr_array, random_array

import bigcons as bc
from bigcons.errors import CorruptStoreError
from bigcons.generate import diverse, feature_views, kmeans, landmarks, mixed, object_views, weighted_kmeans
from bigcons.store.generator import Generator
from bigcons.store.store import unpacked_parts

N = 81_000  # half of which are more than a sample


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    group = rng.integers(3, size=N)
    age = 30 + 10 * group + rng.normal(size=N)
    return pa.table(
        {
            "who": np.arange(N),
            "city": np.array(["Bern", "Oslo", "Rome"])[np.where(rng.random(N) < 0.1, 0, group)],
            "age": pa.array(age, mask=rng.random(N) < 0.1),
            "spend": np.exp(rng.normal(size=N) + group),
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
    for ensemble in (held, stored, stored.load()):
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


def test_of_parts__is_the_generator_again():
    made = mixed(np.random.default_rng(0).normal(size=(50, 3)), n_partitions=4, random_state=0).generator
    again = Generator.of_parts(*unpacked_parts(made.to_bytes()))
    for name in ("packed", "offsets", "sets", "squares"):
        np.testing.assert_array_equal(getattr(again.centers, name), getattr(made.centers, name), strict=True)
    for found, expected in zip(again.centers.clusters, made.centers.clusters, strict=True):
        np.testing.assert_array_equal(found, expected, strict=True)
    assert (again.names, again.reach) == (made.names, made.reach)
    assert again.encoding.to_dict() == made.encoding.to_dict()
    assert again.to_bytes() == made.to_bytes()
    with pytest.raises(ValueError):  # noqa: PT011 - whatever zip says
        unpacked_parts(b"PK nothing")


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
