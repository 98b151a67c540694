"""Parquet as a store of ensembles: the same ensemble as in Zarr, opened lazily, readable elsewhere."""

import pickle
import shutil

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dask import dataframe as dd
from hypothesis import given, settings
from hypothesis import strategies as st

from bigcons import PCC, Ensemble, PairTable
from bigcons.errors import BigconsError, CorruptStoreError, InvalidInputError, StoreError, StoreExistsError
from bigcons.store import ensemble_store
from bigcons.store.ensemble import import_labels
from tests.support.clusters import local_client
from tests.support.stores import names_in, of_rows, values_of, write_consensus
from tests.support.strategies import label_columns

RNG = np.random.default_rng(0)
N_OBJECTS = 300


def a_table(n_objects=N_OBJECTS, first=0):
    """Labels of every kind, with gaps, and ids."""
    words = np.array(["x", "y", "a longer name", None], object)
    return pa.table(
        {
            "who": [f"é{number}" for number in range(first, first + n_objects)],
            "dense": RNG.integers(-1, 3, n_objects),
            "words": words[RNG.integers(0, 4, n_objects)],
            "numbers": RNG.choice([-1, 5, 70_000, 1 << 40], n_objects),
            "a.b": RNG.integers(0, 20, n_objects),
        }
    )


def assert_same(found, expected):
    assert found.digest() == expected.digest()
    assert values_of(found) == values_of(expected)
    n_objects = expected.n_objects
    np.testing.assert_array_equal(found.read(0, n_objects), expected.read(0, n_objects))
    assert (found.names, found.dtype, found.id_name) == (expected.names, expected.dtype, expected.id_name)
    np.testing.assert_array_equal(found.n_labeled, expected.n_labeled)
    if expected.id_name is not None:
        assert found.id_column.facts == expected.id_column.facts
        np.testing.assert_array_equal(found.ids, expected.ids)
    assert found.verify()["n_chunks"] == len(expected.blocks())


@settings(max_examples=15)
@given(data=st.data(), n_objects=st.integers(1, 20), chunk_rows=st.sampled_from([1, 4, 64]))
def test_save__is_the_same_ensemble(data, n_objects, chunk_rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ensemble")
    columns = data.draw(st.lists(label_columns(n_objects), min_size=1, max_size=3))
    ensemble = of_rows(list(zip(*columns, strict=True)))
    stored = ensemble.save(folder / "e.parquet", chunk_rows=chunk_rows)
    assert_same(stored, ensemble.save(folder / "e.zarr", chunk_rows=chunk_rows))
    assert values_of(Ensemble.open(folder / "e.parquet").load()) == values_of(ensemble)
    parts = [(chunk_rows // 2, n_objects), (0, n_objects // 2), (n_objects, n_objects)]
    for start, stop in parts:
        start = min(start, stop)
        np.testing.assert_array_equal(stored.read(start, stop), ensemble.read(start, stop))


@pytest.fixture
def stored(tmp_path):
    return Ensemble.from_labels(a_table(), id="who").save(tmp_path / "e.parquet", chunk_rows=64)


def test_store__pickles_and_gives_what_others_of_its_kind_give(stored, tmp_path):
    assert_same(pickle.loads(pickle.dumps(stored)), stored)
    rows = RNG.permutation(N_OBJECTS)[:40]
    np.testing.assert_array_equal(stored.read_rows(rows), stored.load().read_rows(rows))
    part = stored.select(["a.b", "words"], tmp_path / "part.parquet")
    np.testing.assert_array_equal(part.read(0, N_OBJECTS), stored.read(0, N_OBJECTS)[:, [3, 1]])
    assert (
        import_labels(stored.path, tmp_path / "copy.zarr").digest()
        == import_labels(stored.load(), tmp_path / "of-memory.zarr").digest()
    )


@pytest.mark.parametrize("grows", [False, True], ids=["same types", "another type"])
def test_append__gives_what_it_gives_in_zarr(stored, grows, tmp_path):
    zarr = stored.save(tmp_path / "e.zarr")
    more = a_table(70, first=N_OBJECTS)
    if grows:
        more = more.set_column(1, "dense", pa.array([7] * 70))
    both = [Ensemble.open(each.path, "a") for each in (stored, zarr)]
    for each in both:
        each.append_objects(more)
    assert_same(*both)
    with pytest.raises(StoreError, match="has changed since it was opened"):
        stored.read(0, 5)
    new = RNG.integers(0, 4, (N_OBJECTS + 70, 2))
    for each in both:
        each.append_partitions(new, ["v", "w"])
    assert_same(*both)
    assert pd.read_parquet(stored.path).shape == (N_OBJECTS + 70, 7)
    with pytest.raises(InvalidInputError, match="mode='a'"):
        Ensemble.open(stored.path).append_objects(more)


@pytest.mark.filterwarnings("ignore:The inplace keyword")
def test_readers__of_others_find_the_labels(stored):
    path, expected = stored.path, values_of(stored)
    names = ["who", *stored.names]

    def same(columns):
        rows = [tuple(row) for row in zip(*columns, strict=True)]
        assert rows == [(who, *row) for who, row in zip(stored.ids.tolist(), expected, strict=True)]

    same([column.to_pylist() for column in pq.read_table(path, columns=names).columns])
    same([column.to_list() for column in pl.read_parquet(f"{path}/*.parquet").select(names)])
    with duckdb.connect() as database:
        columns = ", ".join(f'"{name}"' for name in names)
        same(zip(*database.sql(f"select {columns} from '{path}/*.parquet'").fetchall(), strict=True))
    for frame in (pd.read_parquet(path), dd.read_parquet(path).compute()):
        assert isinstance(frame["words"].dtype, pd.CategoricalDtype)
        same([[None if pd.isna(value) else value for value in frame[name].astype(object)] for name in names])


def test_failed_writes__leave_what_was(stored, tmp_path, monkeypatch):
    before = {file.name: file.read_bytes() for file in (tmp_path / "e.parquet").iterdir()}

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(ensemble_store, "write_head", interrupt)
    with pytest.raises(KeyboardInterrupt):
        stored.save(tmp_path / "new.parquet")
    with pytest.raises(KeyboardInterrupt):
        Ensemble.open(stored.path, "a").append_objects(a_table(70, first=N_OBJECTS))
    assert names_in(tmp_path) == ["e.parquet"]
    assert {file.name: file.read_bytes() for file in (tmp_path / "e.parquet").iterdir()} == before
    stored.verify()


def test_alterations__are_found(tmp_path):
    path = tmp_path / "e.parquet"
    intact = Ensemble.from_labels(a_table(60), id="who").save(path, chunk_rows=32)
    values, ids = intact.read(0, 60), intact.ids
    files = sorted(path.iterdir())
    sizes = np.cumsum([file.stat().st_size for file in files])
    told = []
    for position in RNG.integers(0, sizes[-1], 100):
        number = int(np.searchsorted(sizes, position, "right"))
        file, place = files[number], int(position) - (int(sizes[number - 1]) if number else 0)
        content = file.read_bytes()
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(RNG.integers(8))
        file.write_bytes(damaged)
        refused = None
        try:
            Ensemble.open(path).verify()
        except BigconsError as error:
            refused = error
        try:  # what is read is right or refused, by verify at the latest
            found = Ensemble.open(path)
            same = np.array_equal(found.read(0, 60), values) and np.array_equal(found.ids, ids)
            assert same or refused is not None
        except BigconsError as error:
            told.append(str(error))
        file.write_bytes(content)
    assert len(told) > 50
    assert all(len(text.splitlines()) == 1 for text in told)
    assert Ensemble.open(path).verify()["ok"]


def test_damage__is_named(stored, tmp_path):
    path = tmp_path / "e.parquet"
    shutil.copy(path / "part-00000.parquet", path / "more.parquet")
    with pytest.raises(CorruptStoreError, match=r"more.parquet is not part of the ensemble.*remove it"):
        stored.verify()
    (path / "more.parquet").unlink()
    (path / "part-00001.parquet").unlink()
    np.testing.assert_array_equal(stored.read(0, 64).shape, (64, 4))
    with pytest.raises(CorruptStoreError, match=r"rows 64 to 128 \(part-00001.parquet is missing\)"):
        stored.read(64, 128)
    with pytest.raises(CorruptStoreError, match="is missing"):
        _ = stored.ids
    (path / "part-00000.parquet").write_bytes(b"PAR1")
    with pytest.raises(CorruptStoreError, match="damaged footer"):
        stored.read(0, 64)


def test_unfit__is_refused(stored, tmp_path):
    soft = Ensemble.from_memberships([np.full((9, 2), 0.5)])
    with pytest.raises(InvalidInputError, match=r"soft clusterings .* store them as \.zarr"):
        soft.save(tmp_path / "soft.parquet")
    with pytest.raises(InvalidInputError, match=r"suffix '.csv', but an ensemble .* \.zarr .*\.parquet"):
        stored.save(tmp_path / "e.csv")
    with pytest.raises(InvalidInputError, match=r"suffix '.parquet', but a consensus .*export"):
        PCC(3).fit(stored, out=tmp_path / "c.parquet")
    with pytest.raises(InvalidInputError, match=r"suffix '.parquet'"):
        write_consensus(tmp_path / "c.parquet", np.arange(2), None)
    with pytest.raises(InvalidInputError, match=r"suffix '.npy'"):
        PairTable.from_arrays([0], [1], [1], [1], n_objects=2).save(tmp_path / "pairs.npy")
    with pytest.raises(StoreExistsError, match="exists"):
        stored.save(stored.path)
    same = Ensemble.from_labels(pa.table({"a": [1, 2], "b": [1, 1]}), id="a", names=["a"])
    with pytest.raises(InvalidInputError, match="the ids have the name of the partition 'a'"):
        same.save(tmp_path / "same.parquet")
    assert names_in(tmp_path) == ["e.parquet"]


def test_fit__has_the_same_bits_from_every_store(tmp_path):
    ensemble = Ensemble.from_labels(RNG.integers(-1, 3, (3_000, 9)))
    sources = [
        ensemble.save(tmp_path / "e.zarr").path,
        ensemble.save(tmp_path / "e.parquet").path,
        str(tmp_path / "given.parquet"),
    ]
    ensemble.to_pandas().to_parquet(sources[2], row_group_size=1_300)
    found, placed = [], []
    with local_client(n_workers=2, processes=False) as client:
        for engine in ("threads", client):
            for number, source in enumerate(sources):
                model = PCC(3, max_iter=4, tol=0, random_state=0, client=engine, memory="8GB")
                out = tmp_path / f"c{number}-{engine == 'threads'}.zarr"
                found.append(model.fit(source, out=out).memberships_.compute().tobytes())
                placed.append(model.predict(source).tobytes())
    assert len(set(found)) == len(set(placed)) == 1
