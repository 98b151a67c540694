"""Ensembles of soft clusterings: from tables of memberships, in memory and stored."""

import pickle
import shutil

import numpy as np
import pandas as pd
import pytest
import zarr

from bigcons import Ensemble
from bigcons.errors import CorruptStoreError, EmptyPartitionError, InvalidInputError, SoftEnsembleError
from bigcons.metrics import anmi
from tests.support.refusals import refused

N = 300
SIZES = (3, 4, 70, 80)  # more columns than one chunk has


@pytest.fixture(scope="module")
def tables():
    rng = np.random.default_rng(0)
    found = [rng.dirichlet(np.ones(k), N) for k in SIZES]
    found[1][5], found[2][7] = np.nan, 0.0
    return found


@pytest.fixture
def ensemble(tables):
    return Ensemble.from_memberships(tables)


@pytest.fixture
def path(ensemble, tmp_path):
    ensemble.save(tmp_path / "soft.zarr", chunk_rows=64)
    return tmp_path / "soft.zarr"


def test_from_memberships__holds_the_tables_side_by_side(tables, ensemble):
    assert ensemble.is_soft
    assert (ensemble.shape, ensemble.n_clusters.tolist()) == ((N, 4), list(SIZES))
    assert ensemble.names == ["p0", "p1", "p2", "p3"]
    assert (ensemble.dtype, ensemble.row_bytes) == (np.float32, 4 * sum(SIZES))
    assert ensemble.missing_share == pytest.approx(2 / (4 * N))
    expected = np.nan_to_num(np.hstack(tables))
    np.testing.assert_allclose(ensemble.read(0, N), expected, atol=1e-7)
    np.testing.assert_array_equal(ensemble.read_rows([9, 5]), ensemble.read(0, N)[[9, 5]])
    np.testing.assert_array_equal(np.asarray(ensemble), ensemble.read(0, N))
    assert "4 soft partitions" in repr(ensemble)
    assert ensemble.info()["is_soft"]


def test_from_memberships__takes_tables_in_any_form(tables, ensemble, tmp_path):
    np.save(tmp_path / "first.npy", tables[0])
    zarr.create_array(str(tmp_path / "second.zarr"), data=tables[1], chunks=(64, 4))
    pd.DataFrame(tables[3]).add_prefix("cluster").to_csv(tmp_path / "fourth.csv", index=False)
    forms = [
        tmp_path / "first.npy",
        tmp_path / "second.zarr",
        pd.DataFrame(tables[2]),
        tmp_path / "fourth.csv",
    ]
    found = Ensemble.from_memberships(forms, names=["a", "b", "c", "d"])
    assert found.names == ["a", "b", "c", "d"]
    np.testing.assert_allclose(found.read(0, N), ensemble.read(0, N), atol=1e-6)
    lists = Ensemble.from_memberships([tables[0].tolist(), tables[3].tolist()])
    np.testing.assert_array_equal(lists.read(0, N)[:, :3], ensemble.read(0, N)[:, :3])
    stacked = Ensemble.from_memberships(np.stack([tables[0], tables[0]]))
    assert stacked.shape == (N, 2)


def test_from_memberships__divides_rows_by_their_sums_and_keeps_empty_clusters():
    rows = np.array([[0.5004, 0.5, 0.0], [1.0, 0.0, 0.0]])
    found = Ensemble.from_memberships([rows]).read(0, 2)
    np.testing.assert_allclose(found, rows / rows.sum(axis=1, keepdims=True), atol=1e-7)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda tables: tables[0], InvalidInputError),
        (lambda tables: [], InvalidInputError),
        (lambda tables: [2 * tables[0]], InvalidInputError),
        (lambda tables: [tables[0] - 0.1, tables[1]], InvalidInputError),
        (lambda tables: [np.where(np.arange(3) == 1, np.nan, tables[0])], InvalidInputError),
        (lambda tables: [np.where(tables[0] > 0.9, np.inf, tables[0])], InvalidInputError),
        (lambda tables: [tables[0], tables[1][:-1]], InvalidInputError),
        (lambda tables: [tables[0], np.full((N, 2), np.nan)], EmptyPartitionError),
        (lambda tables: [tables[0].astype(str)], InvalidInputError),
        (lambda tables: [pd.DataFrame(tables[0]), pd.DataFrame(tables[1])[::-1]], InvalidInputError),
        (lambda tables: [pd.DataFrame(tables[0])[::-1], tables[1]], InvalidInputError),
    ],
)
def test_from_memberships__refuses_what_is_not_on_the_simplex(tables, change, error):
    with refused(kind=error):
        Ensemble.from_memberships(change(tables))


def test_store__reads_back_equal_and_verifies(ensemble, path):
    stored = Ensemble.open(path)
    np.testing.assert_array_equal(np.asarray(stored), np.asarray(ensemble))
    np.testing.assert_array_equal(stored.read_rows([200, 3]), ensemble.read_rows([200, 3]))
    assert stored.verify()["n_chunks"] == 5 * 2
    assert stored.info()["is_soft"]
    assert (stored.digest(), stored.load().digest()) == (stored.load().digest(), stored.digest())
    assert stored.digest() != ensemble.digest()  # of other chunks
    again = pickle.loads(pickle.dumps(stored))
    np.testing.assert_array_equal(np.asarray(again), np.asarray(ensemble))
    assert pickle.loads(pickle.dumps(ensemble)).is_soft


def test_append__is_the_same_in_memory_and_stored(tables, ensemble, path):
    more = [table[:70] for table in tables]
    further = np.random.default_rng(1).dirichlet(np.ones(5), N + 70)
    stored = Ensemble.open(path, "a").append_objects(more).append_partitions([further], names=["last"])
    ensemble.append_objects(more).append_partitions([further], names=["last"])
    np.testing.assert_array_equal(np.asarray(stored), np.asarray(ensemble))
    assert stored.names == ensemble.names == ["p0", "p1", "p2", "p3", "last"]
    assert stored.missing_share == ensemble.missing_share
    stored.verify()
    assert sorted(file.name for file in path.iterdir()) == ["memberships", "zarr.json"]
    with refused("'p1'"):
        stored.append_objects([more[0], more[0], *more[2:], further[:70]])
    with refused("70 objects"):
        stored.append_partitions([further[:70]])
    stored.verify()


def test_store__that_is_damaged_is_refused(path):
    chunk = path / "memberships" / "c" / "1" / "1"
    kept = chunk.read_bytes()
    chunk.unlink()
    with refused("rows 64 to 128", CorruptStoreError):
        Ensemble.open(path).verify()
    chunk.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    with pytest.raises(CorruptStoreError):
        Ensemble.open(path).verify()
    shutil.copyfile(path / "memberships" / "c" / "2" / "1", chunk)  # valid, but another chunk
    with pytest.raises(CorruptStoreError):
        Ensemble.open(path).verify()


def test_from_memberships__in_a_store_is_that_in_memory(tables, ensemble, tmp_path):
    paths = []
    for u, table in enumerate(tables):
        np.save(tmp_path / f"{u}.npy", table)
        paths.append(tmp_path / f"{u}.npy")
    stored = Ensemble.from_memberships(paths, out=tmp_path / "soft.zarr", memory="420MB", chunk_rows=64)
    np.testing.assert_array_equal(np.asarray(stored), np.asarray(ensemble))
    stored.verify()
    with pytest.raises(InvalidInputError):
        Ensemble.from_memberships([2 * tables[0]], out=tmp_path / "wrong.zarr")
    assert not (tmp_path / "wrong.zarr").exists()


def test_harden__takes_the_largest_membership(tables, ensemble, path, tmp_path):
    expected = np.stack([table.argmax(axis=1) for table in tables], axis=1)
    expected[5, 1] = expected[7, 2] = -1
    for hard in (
        ensemble.harden(),
        ensemble.harden(tmp_path / "hard.zarr"),
        Ensemble.open(path).harden(tmp_path / "more.zarr"),
    ):
        assert not hard.is_soft
        assert hard.names == ensemble.names
        found = np.asarray(hard).astype(np.int64)
        for u, values in enumerate(hard.categories):
            values = np.arange(hard.n_clusters[u]) if values is None else values
            found[:, u] = np.where(found[:, u] < 0, -1, np.append(values, -1)[found[:, u]])
        np.testing.assert_array_equal(found, expected)
        assert hard.harden() is hard


def test_functions_of_labels__refuse_soft_clusterings(ensemble, path):
    for work in (
        lambda: anmi(ensemble, np.zeros(N, int)),
        lambda: Ensemble.from_labels(ensemble),
        lambda: Ensemble.from_labels(path),
        lambda: Ensemble.from_labels(np.zeros((N, 2), int)).append_partitions(ensemble),
    ):
        with refused(kind=SoftEnsembleError) as refusal:
            work()
        assert pickle.loads(pickle.dumps(refusal.value)).args == refusal.value.args
