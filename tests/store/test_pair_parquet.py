"""Pairs in Parquet: written for other programs, and read from theirs."""

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
from dask import dataframe as dd
from hypothesis import given, settings

from bigcons import PCC, PairTable
from bigcons.coassociation import count
from bigcons.disk import schema
from bigcons.errors import InvalidPairsError, StoreExistsError
from bigcons.metrics import pcc_objective
from tests.store.test_pairs import N_OBJECTS, a_table, assert_same_table, pair_lists, table_of

# Dask uses an argument of pandas that pandas 3.1 deprecates
pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword")


@settings(max_examples=15)
@given(rows=pair_lists())
def test_to_parquet__is_the_same_table(rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    table = table_of(rows)
    table.to_parquet(folder / "pairs.parquet")
    opened = PairTable.open(folder / "pairs.parquet")
    opened.provenance = table.provenance
    assert_same_table(opened, table)
    with pytest.raises(StoreExistsError, match="overwrite=True"):
        table.to_parquet(folder / "pairs.parquet")


READERS = {
    "pandas": lambda path: pd.read_parquet(path),
    "polars": lambda path: pl.read_parquet(path).to_pandas(),
    "duckdb": lambda path: duckdb.sql(f"from read_parquet('{path}')").df(),
    "dask": lambda path: dd.read_parquet(path).compute(),
}
WRITERS = {
    "pandas": lambda frame, path: frame.to_parquet(path),
    "polars": lambda frame, path: pl.from_pandas(frame).write_parquet(path),
    "duckdb": lambda frame, path: duckdb.sql("from frame").write_parquet(str(path)),
    "dask": lambda frame, path: dd.from_pandas(frame, npartitions=3, sort=False).to_parquet(path),
}


@pytest.mark.parametrize("program", READERS)
def test_other_programs__read_and_write_the_pairs(program, tmp_path):
    table, path = a_table(), tmp_path / "theirs.parquet"
    table.to_parquet(tmp_path / "pairs.parquet")
    frame = READERS[program](tmp_path / "pairs.parquet").sort_values(["i", "j"])
    assert list(frame.columns) == list(schema.PAIR_COLUMNS)
    np.testing.assert_array_equal(frame.to_numpy().T, table.edges())
    WRITERS[program](frame.sample(frac=1, random_state=0).assign(weight=0.5), path)
    theirs = PairTable.open(path, n_objects=N_OBJECTS)
    theirs.provenance = table.provenance
    assert_same_table(theirs, table)


@pytest.mark.parametrize("statistics", [True, False])
def test_open__of_files_that_state_nothing(tmp_path, statistics):
    path = tmp_path / "pairs.parquet"
    columns = {"n_seen": [3, 0, 2], "j": [1, 4, 2], "i": [0, 1, 1], "n_agree": [1, 0, 2]}
    pd.DataFrame(columns).to_parquet(path, write_statistics=statistics)
    assert PairTable.open(path).n_objects == 5
    table = PairTable.open(path, n_objects=9)
    assert (table.n_objects, table.n_pairs) == (9, 2)
    assert [column.tolist() for column in table.edges()] == [[0, 1], [1, 2], [1, 2], [3, 2]]
    with pytest.raises(InvalidPairsError, match="0 <= i < j < 4"):
        PairTable.open(path, n_objects=4)


@pytest.mark.filterwarnings("ignore:PCC stopped at max_iter:bigcons.errors.ConvergenceWarning")
def test_users_of_pairs__take_files(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, (40, 5))
    counted = count(labels, *(ends[::3] for ends in np.triu_indices(40, 1)))
    pd.DataFrame(counted.edges()._asdict()).to_parquet(tmp_path / "pairs.parquet")
    memberships = rng.dirichlet(np.ones(3), 40)
    expected = pcc_objective(None, memberships, pairs=counted)
    assert pcc_objective(None, memberships, pairs=tmp_path / "pairs.parquet") == expected
    found = PCC(3, random_state=0, pairs=str(tmp_path / "pairs.parquet")).fit(labels)
    wanted = PCC(3, random_state=0, pairs=counted).fit(labels)
    np.testing.assert_array_equal(found.labels_, wanted.labels_)
