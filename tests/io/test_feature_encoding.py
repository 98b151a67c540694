"""Features as people have them: what columns of every kind become, in blocks and whole."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bigcons as bc
from bigcons.errors import SuspiciousFeaturesWarning, UnknownColumnError
from bigcons.generate import FeatureEncoding
from bigcons.generate.training import measure
from bigcons.io.features import open_features
from tests.support.refusals import refused


def encoding_of(table, *, standardize=True, **choice):
    """Return the encoding of a table, fitted."""
    features = open_features(table, **choice)
    return replace(features.encoding, scaling=measure(features, standardize=standardize)[0])


@st.composite
def tables(draw):
    """Draw a table of columns of all kinds, with gaps; at least one varies."""
    n = draw(st.integers(4, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    columns = {"varies": pa.array(rng.normal(size=n).round(3) + np.arange(n))}
    makers = {
        "number": lambda: rng.normal(draw(st.sampled_from([0.0, 1e6])), 3, n),
        "whole": lambda: rng.integers(0, 5, n),
        "boolean": lambda: rng.random(n) < 0.5,
        "text": lambda: rng.choice(["a", " a", "b ", "", "NA", "ü"], n),
        "many": lambda: [f"v{v}" for v in rng.integers(0, 200, n)],
        "day": lambda: np.datetime64("2020-01-01") + rng.integers(0, 900, n).astype("timedelta64[D]"),
        "time": lambda: np.datetime64("2020-01-01T00:00", "us") + rng.integers(0, 10**12, n),
    }
    for position, kind in enumerate(draw(st.lists(st.sampled_from(sorted(makers)), max_size=6))):
        missing = rng.random(n) < draw(st.sampled_from([0.0, 0.3, 1.0]))
        column = pa.array(np.asarray(makers[kind]()), mask=missing)
        if kind == "text" and draw(st.booleans()):
            column = column.dictionary_encode()
        columns[f"{kind} {position}"] = column
    return pa.table(columns)


@given(tables(), st.booleans(), st.integers(1, 39))
def test_encoding__of_any_columns_is_finite_and_the_same_in_blocks_and_stored(table, standardize, cut):
    encoding = encoding_of(table, standardize=standardize)
    whole = encoding.transform(table)
    assert whole.shape == (len(table), len(encoding.column_names()))
    assert np.isfinite(whole).all()
    parts = [encoding.transform(part) for part in (table.slice(0, cut), table.slice(cut)) if len(part)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    again = FeatureEncoding.from_dict(json.loads(json.dumps(encoding.to_dict())))
    others = table.select(table.column_names[::-1]).append_column("new", [["x"] * len(table)])
    np.testing.assert_array_equal(again.transform(others), whole)
    assert repr(again) == repr(encoding)


@given(tables())
def test_encoding__every_column_counts_the_same(table):
    encoding = encoding_of(table)
    points = encoding.transform(table).astype(float)
    names = np.array(encoding.column_names())
    for column in table.column_names:
        own = points[:, [name.startswith((f"{column}=", f"{column} is")) or name == column for name in names]]
        if own.shape[1]:  # not constant: the mean over all ordered pairs, of an object with itself, too
            pairs = ((own[:, None] - own[None]) ** 2).sum(axis=2)
            assert pairs.mean() == pytest.approx(2.0, rel=1e-4)


def test_encoding__a_missing_number_is_as_far_from_others_as_these_from_each_other():
    values = [0.0, 3.0, 4.0, 9.0, None, None]
    points = encoding_of(pa.table({"x": values})).transform(pa.table({"x": values})).astype(float)
    pairs = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    assert pairs[:4, :4].mean() == pytest.approx(pairs[:4, 4:].mean())
    assert pairs[4, 5] == 0


FRAME = pd.DataFrame(
    {
        "city": ["Oslo", "Rome", " Oslo ", "", None, "Bern"] * 3,
        "age": [30.5, np.nan, 40.0, 50.0, 20.0, 33.0] * 3,
        "joined": pd.to_datetime(
            ["2020-01-31", "2021-05-01", "2020-02-03", "2019-12-31"] * 4 + ["2020-07-07"] * 2
        ),
        "active": [True, False, True, True, False, True] * 3,
        "zip": [f"z{v}" for v in range(18)],
    }
)


def test_encoding__is_the_same_from_every_source(tmp_path):
    choice = {"columns": ["city", "age", "joined", "active"]}
    FRAME.to_csv(tmp_path / "x.csv", index=False)
    FRAME.to_parquet(tmp_path / "x.parquet")
    typed = FRAME.assign(city=FRAME["city"].astype("category"))
    sources = [FRAME, typed, pa.Table.from_pandas(FRAME), tmp_path / "x.csv", tmp_path / "x.parquet"]
    expected = encoding_of(FRAME, **choice)
    assert expected.scaling.shares.tolist() == [pytest.approx(1 / 6)]  # of the only column of numbers
    points = expected.transform(FRAME)
    for source in sources:
        np.testing.assert_allclose(encoding_of(source, **choice).transform(source), points, atol=1e-6)
        np.testing.assert_allclose(expected.transform(source), points, atol=1e-6)
    assert expected.summary() == "4 columns: number 'age', 'active'; date 'joined'; category 'city'"


def test_encoding__values_that_did_not_occur_are_none_of_the_known_ones():
    known = pa.table({"c": ["a", "b", "a", "b"], "x": [1.0, 2.0, 3.0, 5.0]})
    encoding = encoding_of(known)
    a, other, gap = encoding.transform(pa.table({"c": ["a", "new", None], "x": [1.0, None, 1.0]}))
    assert (other[:2] < 0).all()
    assert np.array_equal(other[:2], gap[:2])
    assert other[2] == 0  # the mean
    assert (a[:2] > 0).tolist() == [True, False]


@pytest.mark.parametrize("words", [["true", "FALSE", "?"], ["007", "1.50", "x"], ["2", "02", "x"]])
def test_encoding__knows_its_words_where_rows_without_the_others_have_types(words, tmp_path):
    pd.DataFrame({"a": np.arange(9) % 4, "b": words * 3}).to_csv(tmp_path / "x.csv", index=False)
    encoding = encoding_of(bc.select(tmp_path / "x.csv", categorical="b"))
    pd.DataFrame({"a": [0, 1], "b": words[:2]}).to_csv(tmp_path / "y.csv", index=False)
    points = [encoding.transform(tmp_path / name) for name in ("x.csv", "y.csv")]
    assert np.array_equal(points[0][:2], points[1]) == (words[0] != "2")  # of two like these, the first


def test_encoding__hashes_many_values_into_few_columns_without_keeping_them():
    texts = [f"city {v % 100}" for v in range(1000)]
    encoding = encoding_of(pa.table({"c": texts}))
    (code,) = encoding.columns
    assert (code.kind, code.levels, code.width) == ("hashed", (), 64)
    points = encoding.transform(pa.table({"c": texts}))
    assert len(np.unique(points, axis=0)) > 40
    np.testing.assert_array_equal(points[:100], points[100:200])


@pytest.mark.parametrize("kind", ["csv", "pandas", "array"])
def test_encoding__takes_numbers_that_are_named_as_categories_as_text(tmp_path, kind):
    rng, n = np.random.default_rng(0), 300
    codes = rng.choice([10115.0, 1.5, -99.0, np.nan], n)
    frame = pd.DataFrame({"x": rng.normal(size=n).round(3), "zip": codes, "row": np.arange(n)})
    sources = {
        "csv": lambda: frame.to_csv(tmp_path / "x.csv", index=False) or tmp_path / "x.csv",
        "pandas": lambda: frame,
        "array": lambda: frame.to_numpy(),
    }
    text = [f"z{code:g}" if code > 0 else "" for code in codes]
    as_text = frame.assign(zip=text, row=[f"r{r}" for r in frame["row"]])
    named = [1, 2] if kind == "array" else ["zip", "row"]
    source = bc.select(sources[kind](), categorical=named, missing=-99)
    found = encoding_of(source)
    expected = encoding_of(as_text, columns=list(frame))
    assert [c.kind for c in found.columns] == ["number", "category", "hashed"]
    assert [f"z{level}" for level in found.columns[1].levels] == list(expected.columns[1].levels)
    np.testing.assert_array_equal(found.transform(source)[:, :4], expected.transform(as_text)[:, :4])
    new = frame.to_numpy()[:9] if kind == "array" else frame.iloc[:9]  # of which no choice is repeated
    np.testing.assert_array_equal(found.transform(new), found.transform(source)[:9])
    assert FeatureEncoding.from_dict(json.loads(json.dumps(found.to_dict()))).columns == found.columns


def test_categories__are_of_columns_that_exist():
    frame = pd.DataFrame({"a": [0, 1, 1], "b": [2, 1, 2]})
    with refused("'c'", UnknownColumnError):
        open_features(bc.select(frame, categorical="c"))
    assert open_features(bc.select(frame, categorical="*")).names == ["a=0", "a=1", "b=1", "b=2"]


# What is refused


def test_features__of_text_among_numbers_are_refused_with_one_of_each():
    column = [f"{number / 4:.2f}" for number in range(200)] + ["about 5"]
    table = pa.table({"x": column, "day": ["3/4/2020"] * 201, "y": np.arange(201) % 5})
    told = "x', such as '0.00' beside 'about 5'; 'day', such as '3/4/2020'; convert it, name in decimal= of"
    with refused(re.escape(told)):
        open_features(table)


@pytest.mark.parametrize(
    "column", [["4", "?", "2.5", "?"], [*map(str, range(80)), "Unknown"], ["a", "b", "3/4/2020"] * 70_000]
)
def test_features__refuse_text_that_may_be_meant_as_numbers_or_dates(column, tmp_path):
    pd.DataFrame({"x": column, "y": np.arange(len(column)) % 3}).to_csv(tmp_path / "x.csv", index=False)
    with refused(r"x\.csv has text that may be numbers or dates in column 'x', such as '.*'"):
        open_features(tmp_path / "x.csv")
    kinds = [c.kind for c in open_features(bc.select(tmp_path / "x.csv", categorical="x")).encoding.columns]
    assert kinds == ["hashed" if len(set(column)) > 64 else "category", "number"]


@pytest.mark.parametrize("is_text", [False, True])
def test_features__refuse_a_column_of_different_whole_numbers_unless_it_is_chosen(is_text):
    rows = np.random.default_rng(0).permutation(300)
    table = pa.table({"no": [f"r{v}" for v in rows] if is_text else rows, "x": rows % 7})
    with refused("different whole numbers or texts in all rows of column 'no'; pass id"):
        bc.generate.kmeans(table, n_partitions=2)
    for choice in ({"id": "no"}, {"drop": "no"}, {"columns": ["no", "x"]}):
        made = bc.generate.kmeans(table, n_partitions=2, **choice)
        assert made.id_name == choice.get("id")
    few = table.slice(0, 50)
    assert bc.generate.kmeans(few, n_partitions=2, n_clusters=2).provenance["columns"] == ["no", "x"]


@pytest.mark.parametrize(
    ("code", "others", "named"),
    [
        (-999.0, (0, 100), "-999"),
        (-1.0, (0.0, 0.5), "-1"),
        (-99999999.0, (-50, 50), "-99999999"),
        (999.0, (18, 90), "999"),
        (-1.0, (0, 100), None),  # not far from the others
        (-10.0, (-8, 8), None),  # nor alone in being negative
        (1000.0, (0, 100), None),
    ],
)
def test_features__warn_of_a_number_that_may_stand_for_missing_values_before_any_work(code, others, named):
    values = np.random.default_rng(0).uniform(*others, size=400)
    values[::9] = code
    table = pa.table({"score": values, "x": values[::-1] % 7})
    if named is None:
        open_features(table)  # warnings are errors
        return
    with pytest.warns(SuspiciousFeaturesWarning, match=rf"{named} far .* 'score', .*\(--missing {named}\)"):
        open_features(table)
    open_features(bc.select(table, missing=float(named)))


def test_features__do_not_warn_of_a_number_that_is_there_once_or_of_columns_of_few_numbers():
    rng = np.random.default_rng(0)
    once, few = rng.uniform(size=400), rng.choice([-9, 1, 2, 3], size=400)
    once[5] = -999
    open_features(pa.table({"once": once, "few": np.where(few == 3, 2, few)}))


def test_transform__refuses_columns_that_are_missing_or_of_another_kind():
    table = pa.table({"c": ["a", "b", "a"], "x": [1.0, 2.0, 4.0], "day": pa.array([1, 2, 9], pa.date32())})
    encoding = encoding_of(table)
    with refused("no column 'c'", UnknownColumnError):
        encoding.transform(table.select(["x"]))
    for name, column in {"x": ["1", "z", "2"], "day": [1, 2, 3]}.items():
        with refused(f"column '{name}' of features"):
            encoding.transform(table.set_column(table.column_names.index(name), name, pa.array(column)))
    with refused("has 2 columns, not 3"):
        encoding.transform(np.zeros((2, 2)))
