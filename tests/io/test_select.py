"""Which columns of a table are read, and ids as they are read: from any source, by name or position."""

from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

import bigcons as bc
from bigcons.errors import InvalidIdsError, StoreExistsError, StoreNotFoundError, UnknownColumnError
from bigcons.io.features import open_features
from bigcons.io.sources import open_source
from bigcons.store.ensemble import import_labels
from tests.support.refusals import refused


def whole(table, rows=2):
    """Return all columns of a table as lists."""
    blocks = [block if isinstance(block, list) else list(block.T) for block in table.batches(rows)]
    return [
        [value for part in parts for value in np.asarray(part).tolist()]
        for parts in zip(*blocks, strict=True)
    ]


def ids_of(table, rows=2):
    """Return the ids of a table as a list."""
    return [value for block in table.ids.blocks(rows) for value in block.to_pylist()]


FRAME = pd.DataFrame({"who": ["eve", "bob", "ann", "007", "8"], "a": [0, 1, 1, 0, 2], "b": [5, 6, 7, 8, 9]})
SOURCES = {
    "pandas": lambda folder: FRAME,
    "polars": lambda folder: pl.from_pandas(FRAME),
    "dask": lambda folder: dd.from_pandas(FRAME, npartitions=2, sort=False),
    "x.parquet": lambda folder: FRAME.to_parquet(folder / "x.parquet", index=False),
    "x.csv": lambda folder: FRAME.to_csv(folder / "x.csv", index=False),
    "x.tsv.gz": lambda folder: FRAME.to_csv(folder / "x.tsv.gz", index=False, sep="\t"),
}


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("role", ["labels", "features"])
def test_select__takes_columns_in_order_and_the_ids(name, role, tmp_path):
    source = SOURCES[name](tmp_path)
    source = tmp_path / name if source is None else source
    table = open_source(bc.select(source, id="who", columns=["b", "a"]), role)
    assert table.names == ["b", "a"]
    columns = [[int(value) for value in column] for column in whole(table)]
    assert columns == [FRAME["b"].tolist(), FRAME["a"].tolist()]
    assert ids_of(table) == FRAME["who"].tolist()
    assert open_source(bc.select(source, id="who", drop="b"), role).names == ["a"]


def test_select__numbers_the_columns_of_a_matrix():
    matrix = np.arange(12).reshape(4, 3)
    table = open_source(bc.select(bc.select(matrix, id=0), columns=[1]), "features")
    assert whole(table) == [matrix[:, 1].tolist()]
    assert ids_of(table, rows=3) == matrix[:, 0].tolist()
    assert np.array_equal(open_features(matrix, columns=[2, 1]).read(1, 3), matrix[1:3, [2, 1]])
    with refused("no names: use 0 to 2", UnknownColumnError):
        open_source(bc.select(matrix, columns=3), "features")


def test_select__refuses_columns_that_are_not_there():
    with refused("Did you mean who", UnknownColumnError) as caught:
        open_source(bc.select(FRAME, id="whoo"), "labels")
    assert (caught.value.column, caught.value.nearest) == ("whoo", "who")
    with refused("no columns left"):
        open_source(bc.select(FRAME, id="who", drop=["a", "b"]), "labels")
    with refused("one twice"):
        open_source(bc.select(FRAME, columns=["a", "a"]), "labels")


@pytest.mark.parametrize(
    ("ids", "row", "message"),
    [
        (["a", "b", "a"], 2, "who 'a' is in rows 0 and 2"),
        ([5, 7, 7], 2, "who 7 is in rows 1 and 2"),
        (["a", None, "b"], 1, "row 1 .* has no who"),
        ([1, 2, None], 2, "row 2 .* has no who"),
        (["a", "", "b"], 1, "row 1 .* has no who"),
        ([0.5, 1.0, 2.0], None, "neither all whole numbers nor all text .type double"),
        (["a", 1, 2], None, "neither all whole numbers nor all text"),
        (pd.to_datetime(["2020", "2021", "2022"]), None, "type timestamp"),
    ],
)
def test_ids__that_identify_nothing_are_refused(ids, row, message):
    frame = pd.DataFrame({"who": ids, "a": [0, 1, 2]})
    with refused(message, InvalidIdsError) as caught:
        open_source(bc.select(frame, id="who"), "labels")
    assert (caught.value.column, caught.value.row) == ("who", row)


@pytest.mark.parametrize("kind", [int, str])
def test_ids__repeated_far_apart_are_found(kind):
    values = np.random.default_rng(0).permutation(150_000).astype(kind)
    frame = pd.DataFrame({"who": values, "a": 0})
    assert ids_of(open_source(bc.select(frame, id="who"), "labels"), rows=30_000) == values.tolist()
    frame.loc[149_990, "who"] = values[3]
    with refused("rows 3 and 149990", InvalidIdsError) as caught:
        open_source(bc.select(frame, id="who"), "labels")
    assert caught.value.row == 149_990


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", "-20", "0", "9223372036854775807"], int),
        (["1", "007"], str),
        (["1", "9223372036854775808"], str),
        (["NA", "nan"], str),
        (["1.0", "2"], str),
        (["-0", "0"], str),
    ],
)
def test_ids__in_a_csv_are_numbers_only_if_nothing_is_lost(texts, kind, tmp_path):
    Path(tmp_path / "x.csv").write_text("who,a\n" + "".join(f"{text},1\n" for text in texts))
    table = open_source(bc.select(tmp_path / "x.csv", id="who"), "features")
    assert ids_of(table) == [kind(text) for text in texts]


def test_open__takes_folders_patterns_and_lists_of_files(tmp_path):
    for folder, write in (
        ("parquet", lambda frame, path: frame.to_parquet(f"{path}.parquet", index=False)),
        ("csv", lambda frame, path: frame.to_csv(f"{path}.csv", index=False)),
        ("tsv", lambda frame, path: frame.to_csv(f"{path}.tsv.gz", index=False, sep="\t")),
    ):
        (tmp_path / folder).mkdir()
        for number, start in ((2, 0), (10, 3)):
            write(FRAME.iloc[start : start + 3 - number // 10], tmp_path / folder / f"part{number}")
        files = sorted((tmp_path / folder).iterdir(), key=lambda path: len(path.name))
        for source in (tmp_path / folder, f"{tmp_path}/{folder}/p*", files, list(map(str, files))):
            table = open_source(bc.select(source, id="who", columns="b"), "features")
            assert whole(table) == [FRAME["b"].tolist()]
            assert ids_of(table) == FRAME["who"].tolist()
    assert open_features(tmp_path / "csv", id="who").n_objects == 5
    with refused("no file matches", StoreNotFoundError):
        open_source(f"{tmp_path}/*.csv", "features")
    parquet.write_table(pa.table({"a": [1]}), tmp_path / "parquet" / "part11.parquet")
    with refused(r"part11.parquet has other columns than part2.parquet"):
        whole(open_source(tmp_path / "parquet", "features"))


@pytest.mark.parametrize("sep", [";", "\t", "|", " "])
@pytest.mark.parametrize("name", ["x.csv.gz", "X"])
def test_select__reads_text_with_any_separator_as_with_commas(tmp_path, sep, name):
    plain, other = tmp_path / "plain.csv", tmp_path / name
    frame = FRAME.assign(a=[0, 1, 0, 1, 1])[["who", "a"]]
    frame.to_csv(plain, index=False)
    frame.to_csv(other, index=False, sep=sep)
    for source in (other, [other], [str(other)], f"{other}*"):
        features = open_features(bc.select(source, sep=sep), id="who")
        assert np.array_equal(features.read(0, 5), open_features(plain, id="who").read(0, 5))
        ensemble = bc.Ensemble.from_labels(bc.select(source, sep=sep), id="who")
        assert ensemble.ids.tolist() == frame["who"].tolist()
        assert ensemble.read(0, 5)[:, 0].tolist() == frame["a"].tolist()
    runs = bc.Ensemble.from_runs([bc.select(other, sep=sep)], id="who")
    assert runs.names == [name.partition(".")[0]]
    out = tmp_path / "e.zarr"
    made = import_labels(bc.select(other, sep=sep), out, id="who")
    assert import_labels(bc.select(other, sep=sep), out, id="who").names == made.names
    with refused("sep=", StoreExistsError):
        import_labels(bc.select(other, sep="%"), out, id="who")
