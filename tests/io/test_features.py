from decimal import Decimal

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import bigcons as bc
from bigcons.io.features import open_features
from tests.support.refusals import refused

N_ROWS, N_COLUMNS = 1000, 4


@pytest.fixture
def matrix():
    return np.random.default_rng(0).normal(size=(N_ROWS, N_COLUMNS))


def test_open_features__every_matrix_gives_the_same_rows(matrix):
    unknown = da.from_array(matrix, chunks=(300, 2))
    for source in (
        matrix,
        matrix.tolist(),
        np.asfortranarray(matrix),
        da.from_array(matrix, chunks=(300, 2)),
        unknown[unknown[:, 0] > -np.inf],
        zarr.create_array(store={}, data=matrix, chunks=(300, 3)),
    ):
        features = open_features(source)
        assert (features.n_objects, features.n_features) == matrix.shape, source
        np.testing.assert_array_equal(features.read(123, 877), matrix[123:877], err_msg=str(source))


def test_open_features__codes_do_not_depend_on_unused_or_late_categories():
    late = pa.table({"x": ["b"] * 900 + ["a"] * 100})
    assert open_features(late).read(899, 901).tolist() == [[0.0, 1.0], [1.0, 0.0]]
    unused = pd.DataFrame({"x": pd.Categorical([20, 30, 20], categories=[10, 30, 20])})
    assert open_features(unused).names == ["x=20", "x=30"]
    assert open_features(unused).read(0, 3).tolist() == [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]


def test_open_features__takes_decimals_and_small_types():
    table = pa.table({"price": [Decimal("1.50"), Decimal("2.25")], "half": np.array([1, 2], np.float16)})
    assert open_features(table).read(0, 2).tolist() == [[1.5, 1.0], [2.25, 2.0]]
    assert open_features(np.array([[1, 0]], dtype=np.uint8)).dtype == np.float32
    assert open_features(bc.select(np.array([[1, 2]]), columns=1)).names == ["f1"]
    assert open_features(np.array([[2**40 + 1]])).read(0, 1).tolist() == [[2**40 + 1]]


@given(ends=st.tuples(st.integers(0, 50), st.integers(0, 50)).filter(lambda ends: ends[0] != ends[1]))
def test_read__any_range_of_a_parted_source_is_a_slice(ends):
    start, stop = sorted(ends)
    matrix = np.arange(100.0).reshape(50, 2)
    source = da.from_array(matrix, chunks=((1, 20, 0, 9, 20), 1))
    np.testing.assert_array_equal(open_features(source).read(start, stop), matrix[start:stop])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_read__names_row_and_column_of_what_is_not_finite(matrix, value):
    matrix[700, 2] = value
    frame = pd.DataFrame(matrix, columns=list("abcd"))
    features = open_features(frame)
    features.read(0, 700)
    with refused(r"at row 700 \(from 0\), column 'c'; features must be finite"):
        features.read(600, 800)


def test_read__missing_numbers_of_csv_are_refused_and_missing_text_is_a_value(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,x\n2,\n,y\n")
    features = open_features(tmp_path / "x.csv")
    assert features.names == ["a", "b=x", "b=y", "b is missing"]
    assert features.read(0, 2).tolist() == [[1.0, 1.0, 0.0, 0.0], [2.0, 0.0, 0.0, 1.0]]
    with refused(r"nan at row 2 .*'a'"):
        features.read(2, 3)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (np.zeros(3), "1 dimension"),
        (np.zeros((0, 3)), "has no rows; features need at least one"),
        (np.zeros((3, 0)), "has no columns"),
        (np.array([["a"]]), "cannot serve as features"),
        (np.array([[1j]]), "cannot serve as features"),
        (np.array([[1, None]]), "cannot serve as features"),
        (pd.Series([1.0]), r"pandas.Series cannot be read; .*x.to_frame"),
        (pl.LazyFrame({"x": [1]}), r"polars.LazyFrame cannot be read; .*x.collect"),
        (pd.DataFrame({"x": ["a", 1], "y": [1, "b"]}), "mixed types in 'x'"),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), "more than one column 'x'; give each its own name"),
        (pa.table([[1], [2]], names=["x", "x"]), "more than one column 'x'; give each its own name"),
        (["kmeans", "f.csv"], "kmeans does not exist; check the path"),
        (
            pd.DataFrame({"id": [f"r{row}" for row in range(1001)]}),
            "different whole numbers or texts in all rows of column 'id'; pass id='id'",
        ),
        (
            bc.select(pd.DataFrame({"id": range(300), "note": [f"r{i}" for i in range(300)]}), id="id"),
            "in all rows of column 'note'; leave it out",
        ),
        (pa.table({"x": pa.array([], type=pa.float64())}), "no rows"),
        (pa.table({"x": [[1, 2]]}), "serve as features, 'x' \\(list"),
    ],
)
def test_open_features__says_what_is_wrong_in_one_line(source, message):
    with refused(message, bc.errors.BigconsError):
        open_features(source)


def test_read__a_file_cut_after_it_was_opened(matrix, tmp_path):
    np.save(tmp_path / "x.npy", matrix)
    features = open_features(tmp_path / "x.npy")
    with open(tmp_path / "x.npy", "r+b") as file:  # noqa: PTH123
        file.truncate(1000)
    with refused("is truncated"):
        features.read(900, 1000)
