"""Parquet as a store of pairs: opened without being read, the same pairs as in Zarr, readable elsewhere."""

import json
import pickle

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest
from dask import dataframe as dd
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from bigcons import DID, PCC, PairTable
from bigcons.coassociation import count, sample
from bigcons.disk import schema
from bigcons.errors import (
    CorruptStoreError,
    InvalidInputError,
    InvalidPairsError,
    MemoryBudgetError,
    StoreExistsError,
    StoreNotFoundError,
)
from bigcons.metrics import pcc_objective
from bigcons.store.pairs import import_pairs
from tests.store.test_pairs import N_OBJECTS, a_table, assert_same_table, pair_lists, table_of
from tests.support.stores import names_in


@settings(max_examples=15)
@given(rows=pair_lists(), pairs_per_file=st.sampled_from([None, 1, 7]))
def test_to_parquet__is_the_same_table(rows, pairs_per_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    table = table_of(rows, provenance={"seed": 3})
    stored = table.to_parquet(folder / "pairs.parquet", pairs_per_file=pairs_per_file)
    assert_same_table(stored, table)
    stored.verify()
    assert_same_table(pickle.loads(pickle.dumps(stored)), table)
    assert_same_table(stored.load(), table)
    assert_same_table(stored.save(folder / "pairs.zarr"), table)
    if pairs_per_file is not None:
        lengths = [pq.read_metadata(file).num_rows for file in sorted((folder / "pairs.parquet").iterdir())]
        assert sum(lengths) == table.n_pairs
        assert all(length == pairs_per_file for length in lengths[:-1])


@pytest.fixture(params=["file", "folder"])
def stored(request, tmp_path):
    """A table in Parquet whose last object is in no pair."""
    rows = [
        row for row in zip(*(column.tolist() for column in a_table().edges()), strict=True) if row[1] < 11
    ]
    table = table_of(rows, provenance={"made": "by hand"})
    return table.to_parquet(
        tmp_path / "pairs.parquet", pairs_per_file=9 if request.param == "folder" else None
    )


def test_to_parquet__row_groups_are_limited(tmp_path):
    i, j = np.triu_indices(1_600, 1)
    n_agree = np.random.default_rng(0).integers(0, 3, len(i))
    made = {"made": "by hand"}
    table = PairTable.from_arrays(i, j, n_agree, np.full(len(i), 3), n_objects=1_600, provenance=made)
    assert_same_table(table.to_parquet(tmp_path / "pairs.parquet"), table)
    metadata = pq.read_metadata(tmp_path / "pairs.parquet")
    lengths = [metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)]
    assert lengths == [1 << 20, len(i) - (1 << 20)]


def test_paths_in_parquet__are_parquet(tmp_path):
    labels = np.random.default_rng(0).integers(-1, 3, (30, 6))
    options = {"n_pairs": 90, "random_state": 0}
    for tiles in (None, 2):
        expected = sample(labels, tiles=tiles, out=tmp_path / f"{tiles}.zarr", **options)
        drawn = sample(labels, tiles=tiles, out=tmp_path / f"{tiles}.parquet", **options)
        for table in (drawn, expected.save(tmp_path / "copy.parquet", overwrite=True)):
            assert table.info()["format"] == "parquet"
            assert_same_table(table, expected)
            assert table.blocks() == expected.blocks()
    with pytest.raises(StoreExistsError, match="overwrite=True"):
        sample(labels, out=tmp_path / "2.parquet", **options | {"random_state": 1})
    again = sample(labels, out=tmp_path / "2.parquet", overwrite=True, **options)
    again = import_pairs(again.path, tmp_path / "again.parquet")
    assert again.provenance.pop("imported")["made_by"] == "import_pairs"
    assert_same_table(again, PairTable.open(tmp_path / "None.parquet"))
    names = ["2.parquet", "2.zarr", "None.parquet", "None.zarr", "again.parquet", "copy.parquet"]
    assert names_in(tmp_path) == names


def test_to_parquet__keeps_the_blocks_of_tiles(tmp_path):
    table = a_table()
    table.rows_per_block = 5
    stored = table.to_parquet(tmp_path / "pairs.parquet")
    assert stored.blocks() == table.blocks() == stored.load().blocks() == stored.save(tmp_path / "z").blocks()


def test_to_parquet__states_the_entries_of_the_schema(stored):
    for file in stored._pairs.files():
        facts = json.loads(pq.read_metadata(file).metadata[b"bigcons.pairs"])
        assert facts.keys() == schema.PARQUET_PAIRS.keys() - (
            set() if stored._pairs.n_files > 1 else {"n_pairs"}
        )
        assert pq.read_schema(file).names == list(schema.PAIR_COLUMNS)


def test_open__reads_no_pairs_until_asked(stored, monkeypatch):
    monkeypatch.setattr("pyarrow.parquet.ParquetFile.iter_batches", lambda *_, **__: pytest.fail("read rows"))
    table = PairTable.open(stored.path)
    info = table.info()
    assert (table.n_objects, table.n_pairs) == (N_OBJECTS, stored.n_pairs)
    assert (info["kind"], info["format"], info["n_files"]) == ("pairs", "parquet", stored._pairs.n_files)
    assert f"{table.n_pairs:,}" in repr(table)
    assert f"{table.n_pairs:,}" in table._repr_html_()
    pickle.loads(pickle.dumps(table))


def test_open__converts_large_tables_in_a_temporary_folder(stored, monkeypatch, tmp_path):
    expected = stored.load().read(0, N_OBJECTS)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = names_in(tmp_path)
    table = PairTable.open(stored.path)
    for found, wanted in zip(table._converted(memory=0), expected, strict=True):
        np.testing.assert_array_equal(found[:], wanted)
    assert len(names_in(tmp_path)) == len(before) + 1
    del table
    assert names_in(tmp_path) == before


# Dask uses an argument of pandas that pandas 3.1 deprecates
pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword")

READERS = {
    "pandas": lambda path: pd.read_parquet(path),
    "polars": lambda path: pl.read_parquet(path).to_pandas(),
    "duckdb": lambda path: duckdb.sql(f"from read_parquet('{path}{'/*' if path.is_dir() else ''}')").df(),
    "dask": lambda path: dd.read_parquet(path).compute(),
}


@pytest.mark.parametrize("program", READERS)
def test_other_programs__read_the_pairs(stored, program, tmp_path):
    frame = READERS[program](tmp_path / "pairs.parquet").sort_values(["i", "j"])
    assert list(frame.columns) == list(schema.PAIR_COLUMNS)
    np.testing.assert_array_equal(frame.to_numpy().T, stored.edges())


WRITERS = {
    "pandas": lambda frame, path: frame.to_parquet(path),
    "polars": lambda frame, path: pl.from_pandas(frame).write_parquet(path),
    "duckdb": lambda frame, path: duckdb.sql("from frame").write_parquet(str(path)),
    "dask": lambda frame, path: dd.from_pandas(frame, npartitions=3, sort=False).to_parquet(path),
}


@pytest.mark.parametrize("program", WRITERS)
def test_other_programs__write_the_pairs(stored, program, tmp_path):
    expected = stored.load()
    frame = pd.DataFrame(stored.edges()._asdict()).sample(frac=1, random_state=0)
    path = tmp_path / "theirs.parquet"
    WRITERS[program](frame.assign(weight=0.5), path)
    theirs = PairTable.open(path, n_objects=N_OBJECTS)
    assert (theirs.n_pairs, theirs.verify()["n_pairs"]) == (expected.n_pairs, expected.n_pairs)
    theirs.provenance = expected.provenance
    assert_same_table(theirs, expected)


@pytest.mark.parametrize("statistics", [True, False])
def test_open__of_files_that_state_nothing(tmp_path, statistics):
    path = tmp_path / "pairs.parquet"
    columns = {"n_seen": [3, 0, 2], "j": [1, 4, 2], "i": [0, 1, 1], "n_agree": [1, 0, 2]}
    pd.DataFrame(columns).to_parquet(path, write_statistics=statistics)
    assert PairTable.open(path).n_objects == 5
    table = PairTable.open(path, n_objects=9)
    assert (table.n_objects, table.n_pairs) == (9, 2)
    assert [column.tolist() for column in table.edges()] == [[0, 1], [1, 2], [1, 2], [3, 2]]
    with pytest.raises(InvalidPairsError, match="numbered 0 to 3"):
        PairTable.open(path, n_objects=4).verify()


@pytest.mark.filterwarnings("ignore:PCC stopped at max_iter:bigcons.errors.ConvergenceWarning")
def test_users_of_pairs__take_files_that_state_nothing(tmp_path):
    """The last objects are in no pair, so that only the labels tell their number."""
    rng = np.random.default_rng(0)
    labels, features = rng.integers(0, 3, (40, 5)), rng.random((40, 2))
    i, j = (ends[::3] for ends in np.triu_indices(38, 1))
    counted = count(labels, i, j)
    pd.DataFrame(counted.edges()._asdict()).to_parquet(tmp_path / "pairs.parquet")
    memberships = rng.dirichlet(np.ones(3), 40)
    expected = pcc_objective(None, memberships, pairs=counted)
    for pairs in (tmp_path / "pairs.parquet", PairTable.open(tmp_path / "pairs.parquet")):
        assert pcc_objective(None, memberships, pairs=pairs) == expected
        for method in (PCC(3, random_state=0), DID(3, features=features, linkage="single")):
            found = clone(method).set_params(pairs=pairs).fit(labels)
            wanted = clone(method).set_params(pairs=counted).fit(labels)
            assert found.objective_ == wanted.objective_
            np.testing.assert_array_equal(found.labels_, wanted.labels_)


def test_fit__states_the_memory_to_convert_pairs(tmp_path):
    labels = np.random.default_rng(0).integers(0, 3, (40, 5))
    pairs = sample(labels, n_pairs=200, random_state=0, out=tmp_path / "pairs.parquet")
    with pytest.raises(MemoryBudgetError, match="10 MB that memory=380 MB leaves; raise it to") as caught:
        PCC(2, pairs=pairs, solver="blocked", memory="380MB").fit(labels, out=tmp_path / "c.zarr")
    assert caught.value.needed > caught.value.budget == 380_000_000
    assert names_in(tmp_path) == ["pairs.parquet"]


def test_open__another_number_of_objects(stored, tmp_path):
    stored.save(tmp_path / "pairs.zarr")
    for path in (stored.path, tmp_path / "pairs.zarr"):
        assert PairTable.open(path, n_objects=N_OBJECTS).n_objects == N_OBJECTS
        with pytest.raises(InvalidInputError, match="n_objects=12, not 13"):
            PairTable.open(path, n_objects=13)


def test_open__a_lost_part(tmp_path):
    a_table().to_parquet(tmp_path / "pairs", pairs_per_file=20)
    (tmp_path / "pairs" / "part-00001.parquet").unlink()
    with pytest.raises(CorruptStoreError, match="restore the missing files") as caught:
        PairTable.open(tmp_path / "pairs")
    assert caught.value.path == str(tmp_path / "pairs")


def test_open__parts_of_two_tables(tmp_path):
    a_table().to_parquet(tmp_path / "pairs", pairs_per_file=20)
    table = PairTable.from_arrays([0], [1], [1], [1], n_objects=2)
    table.to_parquet(tmp_path / "pairs" / "part-9.parquet")
    with pytest.raises(CorruptStoreError, match="different tables"):
        PairTable.open(tmp_path / "pairs")


def test_open__a_table_that_is_no_store(tmp_path):
    (tmp_path / "pairs.csv").write_text("i,j,n_agree,n_seen\n0,1,1,1\n")
    with pytest.raises(StoreNotFoundError, match="import-pairs"):
        PairTable.open(tmp_path / "pairs.csv")


def test_to_parquet__replaces_only_parts(tmp_path):
    table = a_table()
    table.to_parquet(tmp_path / "pairs", pairs_per_file=5)
    with pytest.raises(StoreExistsError, match="overwrite=True"):
        table.to_parquet(tmp_path / "pairs", pairs_per_file=20)
    table.to_parquet(tmp_path / "pairs", pairs_per_file=20, overwrite=True)
    assert len(names_in(tmp_path / "pairs")) == -(-table.n_pairs // 20)
    (tmp_path / "pairs" / "notes.txt").touch()
    with pytest.raises(StoreExistsError, match="choose another path"):
        table.to_parquet(tmp_path / "pairs", pairs_per_file=5, overwrite=True)
    assert names_in(tmp_path) == ["pairs"]
