"""Inputs that look like others are refused with the remedy; their neighbors are read."""

import bz2
import gzip
import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse

import bigcons as bc
from bigcons import Ensemble
from bigcons.errors import InvalidInputError, SuspiciousLabelsWarning
from bigcons.stores.features import open_features
from tests.support.stores import values_of

TEXT = b"a,b\n0,1\n1,0\n"


def parquet():
    file = io.BytesIO()
    pd.DataFrame({"a": [0, 1]}).to_parquet(file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "remedy"),
    [
        (b"a|b\n0|1\n1|0\n", "separated by vertical bars; write the file with commas"),
        (b"0 1 2\n1 1 2\n", "separated by blanks"),
        (b"a;b\n1,5;2,5\n", "separated by semicolons"),
        (gzip.compress(TEXT), r"compressed by gzip; end its name with \.gz"),
        (pa.compress(TEXT, "zstd", asbytes=True), r"compressed by zstd; end its name with \.zst"),
        (parquet(), r"Parquet; call it \.parquet"),
        (b"PK\3\4 of Excel", "a workbook of Excel; write it as CSV"),
        (b"a\n0\n\n1\n", "empty line in place of row 1 .*; write NA"),
        (b"a\n0\n1\n\n", "empty line in place of row 2 "),
        (b"a\n99999999999999999999\n1\n", r"has label 99999999999999999999; .* below 2\*\*63"),
    ],
)
def test_text_that_is_no_csv_names_the_remedy(content, remedy, tmp_path):
    (tmp_path / "x.csv").write_bytes(content)
    with pytest.raises(InvalidInputError, match=remedy) as caught:
        Ensemble.from_labels(tmp_path / "x.csv")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b"cell type\nT cell\nB cell\nT cell\n", [["T cell"], ["B cell"], ["T cell"]]),
        (b"sepal length\n1\n2\n", [[1], [2]]),
        (b'a\n0\n""\n1', [[0], [None], [1]]),
        (b"a,b\n0,1\n\n1,0\n\n", [[0, 1], [1, 0]]),
    ],
)
def test_neighbors_of_such_text_are_read(content, rows, tmp_path):
    (tmp_path / "x.csv").write_bytes(content)
    assert values_of(Ensemble.from_labels(tmp_path / "x.csv")) == rows


@pytest.mark.parametrize(
    ("suffix", "compressed"),
    [
        (".gz", gzip.compress(TEXT) + gzip.compress(b"2,0\n")),
        (".bz2", bz2.compress(TEXT + b"2,0\n")),
        (".zst", pa.compress(TEXT + b"2,0\n", "zstd", asbytes=True)),
    ],
)
def test_compressed_text(suffix, compressed, tmp_path):
    (tmp_path / f"x.csv{suffix}").write_bytes(compressed)
    assert values_of(Ensemble.from_labels(tmp_path / f"x.csv{suffix}")) == [[0, 1], [1, 0], [2, 0]]
    assert open_features(tmp_path / f"x.csv{suffix}").read(0, 3).tolist() == [[0, 1], [1, 0], [2, 0]]


@pytest.mark.parametrize(
    "texts", [["1,5", "2"], ["1,200", "3"], ["$15", "$17"], ["20%", "3.5%"], ["1.5", "2"]]
)
def test_numbers_written_as_text_are_no_categories(texts):
    with pytest.raises(InvalidInputError, match="'x' of features has numbers written as text, such as"):
        open_features(pd.DataFrame({"x": texts, "y": [1.0, 2.0]}))


@pytest.mark.parametrize(
    "texts",
    [["01234", "99,5"], ["1", "2"], ["0-17", "18-64"], ["1.2.3", "1.3"], pd.Categorical(["1.5", "2"])],
)
def test_codes_and_ranges_are_categories(texts):
    assert open_features(pd.DataFrame({"x": texts, "y": [1.0, 2.0]})).n_features == 3


RUN = np.arange(30) % 3
INDICATORS = np.eye(3, dtype=int)[RUN]


@pytest.mark.parametrize("x", [INDICATORS, pd.get_dummies(pd.Series(RUN.astype(str)))])
def test_indicators_of_clusters_are_no_partitions(x):
    with pytest.raises(InvalidInputError, match=r"a column for each cluster.*from_memberships\(\[x\]\)"):
        Ensemble.from_labels(x)
    assert Ensemble.from_memberships([x.astype(float)]).n_clusters.tolist() == [3]
    assert Ensemble.from_labels(x, orientation="objects").n_partitions == 3
    assert Ensemble.from_labels(INDICATORS[:, :2]).n_partitions == 2


def test_a_matrix_of_pairs_is_no_ensemble():
    together = (RUN[:, None] == RUN).astype(int)
    with pytest.raises(InvalidInputError, match="is a symmetric matrix of 30 rows"):
        Ensemble.from_labels(together)
    together[0, 1] = 1
    assert Ensemble.from_labels(together).n_partitions == 30


def test_rows_that_are_partitions_are_told():
    rng = np.random.default_rng(0)
    runs = np.array([rng.permutation(8)[np.arange(200) % 8] for _ in range(30)])
    with pytest.warns(
        SuspiciousLabelsWarning, match="30 objects .* 200 partitions .*orientation='partitions'"
    ):
        Ensemble.from_labels(runs)
    assert Ensemble.from_labels(bc.select(runs, orientation="partitions")).shape == (200, 30)
    for few_objects in (runs.T[:150], np.sort(runs % 2, axis=0)):
        Ensemble.from_labels(few_objects[:, :100])


def test_floats_that_hold_no_whole_number_exactly():
    for largest in (2.0**53, 2.0**60, np.float32(2**24)):
        with pytest.raises(
            InvalidInputError, match=r"float .* which several whole numbers become; pass integers"
        ):
            Ensemble.from_labels(np.array([[1], [largest]], np.asarray(largest).dtype))
    assert values_of(Ensemble.from_labels(np.array([[1.0], [2.0**53 - 1]]))) == [[1], [2**53 - 1]]
    assert values_of(Ensemble.from_labels(np.array([[1], [2**60]]))) == [[1], [2**60]]


@pytest.mark.parametrize(
    ("x", "remedy"),
    [
        (scipy.sparse.csr_matrix(INDICATORS), r"x\.toarray\(\), with missing=\[0\]"),
        (pd.DataFrame.sparse.from_spmatrix(scipy.sparse.csr_matrix(INDICATORS)), r"sparse\.to_dense"),
        (pd.Series(RUN), r"x\.to_frame"),
        (np.random.default_rng(0).dirichlet([1, 1, 1], 9), r"pass memberships to Ensemble\.from_memberships"),
    ],
)
def test_types_that_are_no_labels_name_the_remedy(x, remedy):
    with pytest.raises(InvalidInputError, match=remedy):
        Ensemble.from_labels(x)


def test_a_folder_of_several_kinds_or_none_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match=r"is a folder without tables; .*\*\*/\*\.parquet"):
        Ensemble.from_labels(tmp_path)
    (tmp_path / "x.csv").write_bytes(TEXT)
    (tmp_path / "x.parquet").write_bytes(parquet())
    with pytest.raises(InvalidInputError, match=r"files of Parquet and of text, x\.parquet and x\.csv"):
        Ensemble.from_labels(tmp_path)
    assert Ensemble.from_labels(tmp_path / "*.csv").n_objects == 2


@pytest.mark.parametrize(
    ("texts", "days"),
    [
        (["2020-01-01T00:00:00Z", "2020-01-02T02:00:00+02:00"], [18262.0, 18263.0]),
        (["2020-01-01 12:00", "2020-01-02"], [18262.5, 18263.0]),
        (["2020-01-01", "2020-01-02"], [18262.0, 18263.0]),
    ],
)
def test_dates_in_text_with_and_without_a_zone(texts, days):
    features = open_features(pd.DataFrame({"x": texts, "y": [1.0, 2.0]}))
    assert features.read(0, 2)[:, 0].tolist() == days


def test_missing_may_be_a_boolean(tmp_path):
    frame = pd.DataFrame({"a": [True, False, True]})
    frame.to_csv(tmp_path / "x.csv", index=False)
    for source in (frame, frame.astype("boolean"), tmp_path / "x.csv"):
        found = Ensemble.from_labels(source, missing=False)
        assert found.n_clusters.tolist() == [1]
        assert [row == [None] for row in values_of(found)] == [False, True, False]
