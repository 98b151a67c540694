"""Inputs that look like others are refused with the remedy; their neighbors are read."""

import bz2
import gzip
import io
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse
import zarr

import bigcons as bc
from bigcons import Ensemble
from bigcons.errors import SuspiciousFeaturesWarning, SuspiciousLabelsWarning
from bigcons.io.features import open_features
from tests.support.refusals import refused
from tests.support.stores import values_of

TEXT = b"a,b\n0,1\n1,0\n"


def parquet():
    file = io.BytesIO()
    pd.DataFrame({"a": [0, 1]}).to_parquet(file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "remedy"),
    [
        (b"a|b\n0|1\n1|0\n", "may separate columns; pass sep='\\|'"),
        (b"0 1 2\n1 1 2\n", "may separate columns; pass sep=' '"),
        (b"a;b\n1,5;2,5\n", "may separate columns; pass sep=';'"),
        (b"a:b\n0:1\n1:0\n", "may separate columns; pass sep=':'"),
        (gzip.compress(TEXT, mtime=0), "NUL bytes|in UTF-8"),
        (pa.compress(TEXT, "zstd", asbytes=True), "NUL bytes|in UTF-8"),
        (parquet(), "NUL bytes|in UTF-8"),
        (b"PK\3\4 of Excel", "is no CSV, but begins with b'PK"),
        (b"\xef\xbb\xbf<!DOCTYPE html>\n<html></html>\n", "is no CSV, but begins with .*<!DOCTYPE"),
        (b'{"a": 0, "b": 1}\n{"a": 1, "b": 1}\n', "is no CSV"),
        (b"version https://git-lfs.github.com/spec/v1\nsize 9\n", "is no CSV"),
        (b"sep=,\na,b\n0,1\n", "has a header of 2 columns, one without a name"),
        (b"sep=;\na;b\n0;1\n", "may separate columns; pass sep=';'"),
        (b'a,b\nx,y\nx,"y\nx,y\nz,y\n', r"cell of several lines, 'y\\nx,y.* a quote that is not closed"),
        (b'a,b\nx,y\nx,"y\nx,y\nz,"y"\n', "a quote that is not closed"),
        (b'a\nx\n"y\nx\n', "a quote that is not closed"),
        (b"a\n0\n\n1\n", "empty line in place of row 1 .*; write NA"),
        (b"a\n0\n1\n\n", "empty line in place of row 2 "),
        (b"a\n99999999999999999999\n1\n", r"has label 99999999999999999999; .* below 2\*\*63"),
    ],
)
def test_text_that_is_no_csv_names_the_remedy(content, remedy, tmp_path):
    (tmp_path / "x.csv").write_bytes(content)
    with refused(remedy):
        Ensemble.from_labels(tmp_path / "x.csv")


@pytest.mark.parametrize(
    ("suffix", "compressed"),
    [
        (".gz", gzip.compress(TEXT, mtime=0) + gzip.compress(b"2,0\n", mtime=0)),
        (".bz2", bz2.compress(TEXT + b"2,0\n")),
        (".zst", pa.compress(TEXT + b"2,0\n", "zstd", asbytes=True)),
    ],
)
def test_compressed_text(suffix, compressed, tmp_path):
    (tmp_path / f"x.csv{suffix}").write_bytes(compressed)
    assert values_of(Ensemble.from_labels(tmp_path / f"x.csv{suffix}")) == [[0, 1], [1, 0], [2, 0]]
    assert open_features(tmp_path / f"x.csv{suffix}").read(0, 3).tolist() == [[0, 1], [1, 0], [2, 0]]


@pytest.mark.parametrize(
    "texts",
    [
        *(["1,5", "2"], ["1,200", "3"], ["$15", "$17"], ["20%", "3.5%"], ["1.5", "2"], ["1 200", "3"]),
        *(["1'200", "3"], ["\u22125", "4"], ["0-17", "18-64"], ["1", "2"], ["\u20ac 1.5", "-\u20ac 2.5"]),
        *(["31/12/2020", "1/1/2021"], ["2020/01/31", "2020/02/01"]),
        *(["3 Jan 2020", "4 May 2021"], ["January 3, 2020", "Sept 4, 2020 10:00"], ["Mar 2020", "Apr 2020"]),
        *(["?", "1"], ["1", "Unknown"], ["<5", "6"], ["1.2.3", "1.3"], ["2020-01-01", "3/4/2020"]),
    ],
)
def test_text_that_may_be_numbers_or_dates_is_a_category_if_it_is_named(texts):
    frame = pd.DataFrame({"x": texts, "y": [1.0, 2.0]})
    with refused(r"may be numbers or dates in column 'x', such as .*categorical="):
        open_features(frame)
    assert open_features(bc.select(frame, categorical="x")).n_features == 3


@pytest.mark.parametrize("suffix", ["csv", "csv.gz"])
def test_decimal_commas_are_read_where_they_are_named(tmp_path, suffix):
    numbers = pd.DataFrame({"a": [1.5, -2.25, 7.0, 4.0], "b": [1e-3, 2.0, 3.5, -0.5], "c": [1, 2, 3, 4]})
    path = tmp_path / f"x.{suffix}"
    numbers.to_csv(path, sep=";", decimal=",", index=False)
    with refused(r"such as '-2,25'.*\(--decimal\) what stands before fractions"):
        open_features(bc.select(path, sep=";"))
    found = open_features(bc.select(path, sep=";", decimal=","))
    (tmp_path / "point.csv").write_text(numbers.to_csv(index=False))
    expected = open_features(bc.select(tmp_path / "point.csv", decimal="."))
    np.testing.assert_array_equal(found.read(0, 4), expected.read(0, 4))
    quoted = tmp_path / "quoted.csv"
    numbers.to_csv(quoted, decimal=",", index=False)
    quoted_found = open_features(bc.select(quoted, decimal=","))
    np.testing.assert_array_equal(quoted_found.read(0, 4), expected.read(0, 4))


@pytest.mark.parametrize(
    "texts",
    [
        *(["10 000 m", "5 000 m"], ["Marlin 2000", "Mayfield 1200"], ["May", "June"], ["a", "?"]),
        pd.Categorical(["1.5", "2"]),
    ],
)
def test_other_text_is_a_category(texts):
    assert open_features(pd.DataFrame({"x": texts, "y": [1.0, 2.0]})).n_features == 3


def test_what_is_missing_among_features_stays_so_for_new_rows(tmp_path):
    path = tmp_path / "x.csv"
    pd.DataFrame({"a": ["?", "1", "2.5", "7"] * 5, "b": ["x", "y", "-", "?"] * 5}).to_csv(path, index=False)
    x = bc.select(path, missing=["?", "-"])
    ensemble = bc.generate.kmeans(x, n_partitions=2, n_clusters=2, random_state=0)
    encoding = ensemble.generator.encoding
    assert encoding.names == ["a", "b=x", "b=y", "b is missing"]
    typed = pd.DataFrame({"a": [np.nan, 1, 2.5, 7] * 5, "b": ["x", "y", None, None] * 5})
    np.testing.assert_array_equal(encoding.transform(path), encoding.transform(typed))
    ensemble.save(tmp_path / "e.zarr")
    again = Ensemble.open(tmp_path / "e.zarr").generator.encoding
    np.testing.assert_array_equal(again.transform(path), encoding.transform(typed))


def test_a_word_far_down_among_numbers_is_named(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n" + "0.25,1\n" * 160_000 + "?,1\n")
    with refused(r"invalid value '\?'\); name in missing= of bigcons.select"):
        open_features(tmp_path / "x.csv")
    assert open_features(bc.select(tmp_path / "x.csv", missing="?")).n_objects == 160_001


@pytest.mark.parametrize("line", ['w,"u\nv"', 'w,"u\r\nv"', '"u\nv",w'])
def test_lines_within_quotes_are_read_across_blocks(line, tmp_path):
    (tmp_path / "x.csv").write_bytes(("a,b\n" + f"{line}\nlonger,x\n" * 120_000).encode())
    found = Ensemble.from_labels(tmp_path / "x.csv")
    assert (found.shape, found.n_clusters.tolist()) == ((240_000, 2), [2, 2])
    (tmp_path / "x.csv").write_text('a,b\nx,y\nx,"y\nx,y\nz,y"\nx,y\n')
    with refused("a quote that is not closed"):  # in a column that is left out
        Ensemble.from_labels(tmp_path / "x.csv", drop="b")


def test_categories_of_numbers_stay_so_in_parquet(tmp_path):
    frame = pd.DataFrame({"y": [0.5, 1.0, 2.0, 4.0], "zip": pd.Categorical([10115, 20095, 10115, None])})
    frame.to_parquet(tmp_path / "x.parquet")
    codings = [open_features(source).encoding.summary() for source in (frame, tmp_path / "x.parquet")]
    assert codings == ["2 columns: number 'y'; category 'zip'"] * 2


@pytest.mark.parametrize("column", [[[1.0, 2.0], [3.0, 4.0]], [["a"], ["b", "c"]]])
def test_columns_of_lists_are_neither_features_nor_labels(column):
    table = pa.table({"v": column, "x": [0, 1]})
    with refused(r"'v' \(list<.*lists to columns"):
        open_features(table)
    with refused("'v' has labels that are neither .*list"):
        Ensemble.from_labels(table)
    ids = pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2))
    with refused("v of labels has ids that are neither .*list"):
        Ensemble.from_labels(pa.table({"v": ids, "x": [0, 1]}), id="v")


RUN = np.arange(30) % 3
INDICATORS = np.eye(3, dtype=int)[RUN]


@pytest.mark.parametrize("x", [INDICATORS, pd.get_dummies(pd.Series(RUN.astype(str)))])
def test_indicators_of_clusters_are_no_partitions(x):
    with refused(r"a column for each cluster.*from_memberships\(\[x\]\)"):
        Ensemble.from_labels(x)
    assert Ensemble.from_memberships([x.astype(float)]).n_clusters.tolist() == [3]
    assert Ensemble.from_labels(x, columns=[0, 1, 2] if x is INDICATORS else list(x)).n_partitions == 3
    assert Ensemble.from_labels(INDICATORS[:, :2]).n_partitions == 2


def test_a_matrix_of_pairs_is_no_ensemble():
    together = (RUN[:, None] == RUN).astype(int)
    with refused("may be a symmetric matrix"):
        Ensemble.from_labels(together)
    together[0, 1] = 1
    assert Ensemble.from_labels(together).n_partitions == 30


def test_floats_that_hold_no_whole_number_exactly():
    for largest in (2.0**53, 2.0**60, np.float32(2**24)):
        with refused(r"that float.* holds exactly"):
            Ensemble.from_labels(np.array([[1], [largest]], np.asarray(largest).dtype))
    assert values_of(Ensemble.from_labels(np.array([[1.0], [2.0**53 - 1]]))) == [[1], [2**53 - 1]]
    assert values_of(Ensemble.from_labels(np.array([[1], [2**60]]))) == [[1], [2**60]]


@pytest.mark.parametrize(
    ("x", "remedy"),
    [
        (scipy.sparse.csr_matrix(INDICATORS), r"x\.toarray\(\), with missing=\[0\]"),
        (pd.DataFrame.sparse.from_spmatrix(scipy.sparse.csr_matrix(INDICATORS)), "for each cluster"),
        (pd.Series(RUN), r"x\.to_frame"),
        (pa.array(RUN), "cannot be read"),
        (np.rec.fromarrays([RUN, RUN], names="a,b"), r"array of records; pass pandas\.DataFrame"),
        (np.array([[(0, "x")], [(1, "y")]], "i4,U1"), r"array of records; pass pandas\.DataFrame"),
        (INDICATORS * 1j, "numpy complex128"),
        (np.zeros((3, 0), int), "is empty, shape"),
        (np.random.default_rng(0).dirichlet([1, 1, 1], 9), r"memberships for Ensemble\.from_memberships"),
    ],
)
def test_types_that_are_no_labels_name_the_remedy(x, remedy):
    with refused(remedy):
        Ensemble.from_labels(x)


def test_missing_may_be_a_boolean(tmp_path):
    frame = pd.DataFrame({"a": [True, False, True]})
    frame.to_csv(tmp_path / "x.csv", index=False)
    for source in (frame, frame.astype("boolean"), tmp_path / "x.csv"):
        found = Ensemble.from_labels(source, missing=False)
        assert found.n_clusters.tolist() == [1]
        assert [row == [None] for row in values_of(found)] == [False, True, False]


@pytest.mark.parametrize(
    ("log", "kind"), [("_delta_log", "Delta Lake"), (".hoodie", "Hudi"), ("metadata", "Iceberg")]
)
def test_folders_in_which_not_all_files_count_are_refused(log, kind, tmp_path):
    (tmp_path / log).mkdir()
    (tmp_path / log / "v1.metadata.json").touch()
    data = tmp_path / "data" if kind == "Iceberg" else tmp_path
    data.mkdir(exist_ok=True)
    for part in ("part-0", "part-1"):
        pd.DataFrame({"a": [0, 1], "b": [1, 0]}).to_parquet(data / f"{part}.parquet")
    for read in (Ensemble.from_labels, open_features):
        with refused(f"is a table of {kind}, in which not all files count; pass the data frame"):
            read(data / "*.parquet")
        with refused(f"is a table of {kind}"):
            read(tmp_path)
    shutil.rmtree(tmp_path / log)
    assert Ensemble.from_labels(data).shape == (4, 2)


@pytest.mark.parametrize("pattern", ["*", "*/*.csv", "**/*.csv"])
def test_folders_named_by_values_are_refused(pattern, tmp_path):
    for folder in ("run=a", "run=b", "none"):
        (tmp_path / folder).mkdir()
        for part in "01":
            (tmp_path / folder / f"k={part}.csv").write_bytes(TEXT)
    for read in (Ensemble.from_labels, open_features):
        with refused("run=a and run=b are named by values of a column that is in none of their files"):
            read(tmp_path / pattern)
    for one in ("run=a", "none"):
        assert Ensemble.from_labels(tmp_path / one).shape == (4, 2)


def test_an_array_with_names_of_dimensions_is_a_matrix():
    xarray = pytest.importorskip("xarray")
    labels = INDICATORS[:, :2] + RUN[:, None]
    for array in (xarray.DataArray(labels), xarray.DataArray(labels).chunk({"dim_0": 7})):
        assert values_of(Ensemble.from_labels(array)) == labels.tolist()
        assert open_features(array).read(0, 30).tolist() == labels.tolist()


@pytest.mark.parametrize("name", ["_FillValue", "missing_value"])
def test_arrays_of_netcdf_with_a_number_for_missing_values_are_refused(name, tmp_path):
    data = INDICATORS[:, :2]
    zarr.create_array(tmp_path / "nan", data=data, attributes={name: "AAAAAAAA+H8="})
    assert values_of(Ensemble.from_labels(tmp_path / "nan")) == data.tolist()
    for source in (zarr.create_array(tmp_path / "x", data=data, attributes={name: -9999}), tmp_path / "x"):
        with refused("has -9999 where a value is missing; pass the array of xarray"):
            Ensemble.from_labels(source)


@pytest.mark.parametrize("as_table", [pd.DataFrame, lambda frame: pa.Table.from_pandas(frame)])
def test_a_number_is_a_name_where_names_are_numbers(as_table):
    frame = pd.DataFrame([[0, 1, 2, 3], [1, 0, 3, 2]], columns=[1, 2, 3, 4])
    table = as_table(frame)
    assert Ensemble.from_labels(table, columns=[1, 2]).names == ["1", "2"]
    assert Ensemble.from_labels(table, drop=4).names == ["1", "2", "3"]
    with refused("has no column '1'; choose one of 1.0, 2.0, 3.0, 4.0"):
        Ensemble.from_labels(as_table(frame.set_axis([1.0, 2.0, 3.0, 4.0], axis=1)), columns=1)
    for column in (0, 5, True):
        with refused(f"has no column '?{column}'?; choose one of 1, 2, 3, 4"):
            Ensemble.from_labels(table, columns=column)
    assert Ensemble.from_labels(table).select([1, 2]).names == ["1", "2"]
    named = as_table(frame.set_axis(list("abcd"), axis=1))
    assert Ensemble.from_labels(named, columns=[1, 2]).names == ["b", "c"]
    with refused("has no column True"):
        Ensemble.from_labels(named, columns=[True, False])
    with refused("the ensemble has no column True"):
        Ensemble.from_labels(named).select([True, False])


@pytest.mark.parametrize("place", [0, 30, 60])
@pytest.mark.parametrize(
    ("line", "as_text", "told"),
    [
        ("#q2:types\tcategory\tcategory\tx", "c", "labels that no other has .*'category', 'category', 'x'"),
        ("#Source\tme\t\t", "c", r"labels that no other has in any partition \('me'\)"),
        ("#TYPE\tgroup\tgroup\t", "c", r"labels that no other has in any partition \('group', 'group'\)"),
        ("\tk0\tk1\tk2", "c", r"names of the partitions are labels, too \('k0', 'k1', 'k2'\)"),
        ("\tk0\tk1\tk2", "", "'k0', 'k1', 'k2' has 'k0', unlike its other labels, which are numbers"),
        ("kg\tkg\tkg\tkg", "", "'k0', 'k1', 'k2' has 'kg', unlike its other labels, which are numbers"),
        ("Total\t90\t60\t90", "", "'k0', 'k1', 'k2' has 90, unlike its other labels, which are far"),
    ],
)
def test_rows_of_names_types_units_and_totals_are_told(place, line, as_text, told, tmp_path):
    rows = [f"S{i}\t{as_text}{i % 4}\t{as_text}{i % 3}\t{as_text}{i // 2 % 3}" for i in range(60)]
    (tmp_path / "x.tsv").write_text("\n".join(["\tk0\tk1\tk2", *rows]))
    assert Ensemble.from_labels(tmp_path / "x.tsv", drop="index").shape == (60, 3)  # warnings are errors
    (tmp_path / "x.tsv").write_text("\n".join(["\tk0\tk1\tk2", *rows[:place], line, *rows[place:]]))
    if (line[0], place) == ("#", 30):
        return
    with pytest.warns(SuspiciousLabelsWarning, match=told):
        Ensemble.from_labels(tmp_path / "x.tsv", drop="index")


def test_numbers_far_above_others_are_told_if_many_partitions_have_them():
    labels = np.column_stack([np.arange(60) % k for k in (3, 4, 5, 6)])
    labels[labels == 2] = 254
    with pytest.warns(SuspiciousLabelsWarning, match="'p0', 'p1', 'p2', 'p3' has 254, unlike"):
        Ensemble.from_labels(np.where(labels == 254, 254, labels % 2))
    chosen = np.column_stack([labels[:, 0], *(np.arange(60) % k for k in (3, 4, 5))])
    Ensemble.from_labels(chosen)  # warnings are errors


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize(("factor", "is_told"), [(1, True), (0.5, False)])
def test_a_last_row_of_the_sums_of_features_is_told(suffix, factor, is_told, tmp_path):
    frame = pd.DataFrame({"x": np.arange(40.0), "n": np.arange(40.0)[::-1] % 7, "t": ["u", "v"] * 20})
    frame.loc[40] = [*(factor * frame[["x", "n"]].sum()), "Total"]
    getattr(frame, f"to_{suffix}")(tmp_path / f"x.{suffix}", index=False)
    for source in (frame, tmp_path / f"x.{suffix}"):
        if is_told:
            with pytest.warns(SuspiciousFeaturesWarning, match="the sum of all other rows in its last one"):
                open_features(source)
        else:
            open_features(source)


def test_partitions_of_one_cluster_are_told():
    labels = np.column_stack([np.arange(40) % 2, np.zeros(40, int), np.arange(40) % 3])
    with pytest.warns(SuspiciousLabelsWarning, match="all objects are in one cluster in 'p1', .*drop="):
        Ensemble.from_labels(labels)


def test_memberships_that_are_rounded_are_taken():
    rows = np.array([[0.058, 0.121, 0.82], [0.333, 0.333, 0.333], [0.33, 0.34, 0.335]])
    held = Ensemble.from_memberships([rows]).read(0, 3)
    np.testing.assert_allclose(held, rows / rows.sum(axis=1, keepdims=True), rtol=1e-6)
    for rows in ([[0.5, 0.5], [1.0]], [[(0, 0.5), (1, 0.5)], [(0, 1.0), (1, 0.0)]]):
        with refused("memberships is a list, but not a matrix"):
            Ensemble.from_memberships([rows])
    with refused(r"have sum 0.98 and minimum 0.3; give probabilities, whose sum is within 0.01 of 1"):
        Ensemble.from_memberships([np.array([[0.3, 0.68]])])
