"""Tables with one row for each pair: from any source, in any order; or refused."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from dask import dataframe as dd
from hypothesis import given

from bigcons import PairTable, errors, select
from bigcons.disk import schema
from bigcons.store.pairs import import_pairs
from tests.store.test_pairs import N_OBJECTS, a_table, assert_same_table, pair_lists, table_of
from tests.support.refusals import refused
from tests.support.stores import names_in

WRITERS = {
    "pairs.parquet": lambda columns, path: pd.DataFrame(columns).to_parquet(path),
    "pairs.csv": lambda columns, path: pd.DataFrame(columns).to_csv(path, index=False),
    "pairs.csv.gz": lambda columns, path: pd.DataFrame(columns).to_csv(path, index=False),
}
FRAMES = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "arrow": pa.table,
    "stream": lambda columns: pa.table(columns).to_reader(max_chunksize=2),
    "dask": lambda columns: dd.from_pandas(pd.DataFrame(columns), npartitions=3, sort=False),
}


def columns_of(rows):
    return dict(zip(schema.PAIR_COLUMNS, np.array(rows, dtype=int).reshape(-1, 4).T, strict=True))


def a_list():
    """Pairs in descending order, some of which no partition sees, and the table of them."""
    rows = [(min(i, j), max(i, j), i % 3, 2) for i in range(12) for j in range(i)]
    rows += [(0, 12, 0, 0)]
    return columns_of(rows[::-1]), table_of([row for row in rows if row[1] < 12])


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("stores", [False, True])
def test_from_table__of_any_file(name, stores, tmp_path):
    columns, expected = a_list()
    WRITERS[name](columns, tmp_path / name)
    if stores:
        table = import_pairs(tmp_path / name, tmp_path / "pairs.zarr")
        table.verify()
        assert names_in(tmp_path) == sorted([name, "pairs.zarr"])
    else:
        table = PairTable.from_table(tmp_path / name)
    assert table.n_objects == 13
    assert table.provenance["source"] == str(tmp_path / name)
    np.testing.assert_array_equal(np.stack(table.edges()), np.stack(expected.edges()))


@pytest.mark.parametrize("kind", FRAMES)
def test_from_table__of_any_frame(kind):
    columns, expected = a_list()
    table = PairTable.from_table(FRAMES[kind](columns), n_objects=N_OBJECTS + 1)
    assert table.n_objects == N_OBJECTS + 1
    np.testing.assert_array_equal(np.stack(table.edges()), np.stack(expected.edges()))


@given(rows=pair_lists().filter(len))
def test_import_pairs__equals_from_arrays(rows, tmp_path_factory):
    rows = [(min(i, j), max(i, j), *counts) for i, j, *counts in rows]
    path = tmp_path_factory.mktemp("pairs") / "pairs.zarr"
    table = import_pairs(pd.DataFrame(columns_of(rows)), path, n_objects=N_OBJECTS)
    table.verify()
    table.provenance = {}
    assert_same_table(table, table_of(rows))
    assert names_in(path.parent) == ["pairs.zarr"]


def assert_refused(x, tmp_path, match, error=errors.InvalidPairsError, **facts):
    """Neither way of reading may pass, in one line, and nothing may be left behind."""
    before = names_in(tmp_path)
    n_objects = facts.pop("n_objects", None)
    for read in (
        lambda: PairTable.from_table(x, n_objects=n_objects),
        lambda: import_pairs(x, tmp_path / "out.zarr", n_objects=n_objects),
    ):
        with refused(match, error) as caught:
            read()
        for name, value in facts.items():
            assert getattr(caught.value, name) == value
    assert names_in(tmp_path) == before


GOOD = [(0, 1, 1, 2), (0, 2, 2, 2), (1, 3, 0, 1)]

BAD_ROWS = {
    "i > j": ([*GOOD, (3, 2, 1, 1), (2, 3, 1, 1)], 3, "i=3, j=2, .*, but 0 <= i < j < 6"),
    "beyond n_objects": ([GOOD[0], (1, 6, 1, 1), *GOOD[1:]], 1, "i=1, j=6, .*, but 0 <= i < j < 6"),
    "negative": ([(-1, 1, 1, 1), *GOOD], 0, "i=-1, j=1"),
    "negative count": ([*GOOD[:2], (1, 2, -1, 1)], 2, "n_agree=-1, n_seen=1, but .* 0 <= n_agree <= n_seen"),
    "too many": ([*GOOD[:2], (1, 2, 3, 70_000)], 2, "n_seen=70000, but .* <= 65534"),
    "twice": ([*GOOD, (0, 2, 1, 1)], None, "lists the pair i=0, j=2 twice"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_bad_rows__path_and_row(case, tmp_path):
    rows, row, match = BAD_ROWS[case]
    frame = pd.DataFrame(columns_of(rows))
    assert_refused(frame, tmp_path, match, path="pairs", row=row, n_objects=6)
    (tmp_path / "parts").mkdir()
    for part, start in enumerate(range(0, len(rows), 2)):
        frame[start : start + 2].to_parquet(tmp_path / "parts" / f"part.{part}.parquet")
    assert_refused(tmp_path / "parts", tmp_path, match, path=str(tmp_path / "parts"), row=row, n_objects=6)


BAD_COLUMNS = {
    "missing": ("n_seen", None, "it needs the integer columns i, j, n_agree, n_seen"),
    "floats": ("n_agree", [0.5, 1.0, 2.0], "integer"),
    "text": ("j", ["1", "x", "3"], "integer"),
    "nulls": ("j", pd.array([1, 2, None], "Int64"), r"row 2 of .* has no j \(null\)"),
}


@pytest.mark.parametrize("case", BAD_COLUMNS)
@pytest.mark.parametrize("name", ["pairs.parquet", "pairs.csv", "pandas"])
def test_bad_columns(case, name, tmp_path):
    column, values, match = BAD_COLUMNS[case]
    columns = columns_of(GOOD) | {column: values}
    if values is None:
        del columns[column]
    source = pd.DataFrame(columns)
    if name in WRITERS:
        WRITERS[name](columns, tmp_path / name)
        source = tmp_path / name
    assert_refused(source, tmp_path, match)


def test_bad_columns__without_names_or_rows(tmp_path):
    (tmp_path / "p.csv").write_text("0,1,1,1\n0,2,1,1\n")
    np.save(tmp_path / "p.npy", GOOD)
    for source in (select(tmp_path / "p.csv", header=False), tmp_path / "p.npy", np.array(GOOD), GOOD):
        assert_refused(source, tmp_path, "no column names; it needs the integer columns")
    empty = pd.DataFrame({column: np.empty(0, int) for column in schema.PAIR_COLUMNS})
    assert_refused(empty, tmp_path, "has 0 pairs", path="pairs")


@pytest.mark.parametrize("name", ["pairs.parquet", "pairs.csv.gz"])
def test_truncated_file(name, tmp_path):
    WRITERS[name](a_list()[0], tmp_path / name)
    content = (tmp_path / name).read_bytes()
    for length in (0, 4, len(content) // 2, len(content) - 1):
        (tmp_path / name).write_bytes(content[:length])
        assert_refused(tmp_path / name, tmp_path, name, errors.InvalidInputError)


def test_import_pairs__into_itself_or_over_another(tmp_path):
    a_table().save(tmp_path / "pairs.zarr")
    a_table().to_parquet(tmp_path / "pairs.parquet")
    with pytest.raises(errors.StoreExistsError, match="overwrite=True"):
        import_pairs(tmp_path / "pairs.parquet", tmp_path / "pairs.zarr")
    again = import_pairs(tmp_path / "pairs.parquet", tmp_path / "pairs.zarr", overwrite=True)
    assert again.provenance["source"] == str(tmp_path / "pairs.parquet")
    again.provenance = a_table().provenance
    assert_same_table(again, a_table())


def test_import_pairs__refuses_a_budget_that_is_too_small(tmp_path):
    a_table().to_parquet(tmp_path / "pairs.parquet")
    with pytest.raises(errors.MemoryBudgetError, match="raise it to") as caught:
        import_pairs(tmp_path / "pairs.parquet", tmp_path / "pairs.zarr", memory="100B")
    assert caught.value.needed > caught.value.budget
    assert "pairs.zarr" not in names_in(tmp_path)


def test_from_table__refuses_numbers_that_are_no_rows(tmp_path):
    """Identifiers of a database as numbers of objects would take memory for billions of them."""
    columns = columns_of([(0, 1, 1, 1), (1, 2_000_000_000, 1, 2)])
    for read in (PairTable.from_table, lambda x: import_pairs(x, tmp_path / "p.zarr")):
        with refused(
            r"2 pairs and a largest object 2,000,000,000.*give n_objects=2000000001", errors.InvalidPairsError
        ):
            read(pd.DataFrame(columns))
    assert names_in(tmp_path) == []
