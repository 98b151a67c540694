"""A table of any sort is read with the meaning that it was written with, or refused."""

import tempfile
from pathlib import Path

import dask.array
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from bigcons import Ensemble
from bigcons.errors import InvalidInputError, UnknownColumnError
from bigcons.store.ensemble import import_labels
from tests.support.stores import values_of

TEXTS = ("B", "T cell", "x_1", "cluster 10", "é")
TEXT_GAPS = ("", " ", "NA", "nan", "<NA>", "null")
NAMED_GAPS = ("Unknown", "?")

ROUTES = (
    *("array", "object array", "pandas", "pandas nullable", "categorical", "polars", "arrow", "dask"),
    *("csv", "csv without header", "tsv.gz", "r.csv", "parquet", "npy", "zarr"),
    *("pandas with index", "parquet with index", "runs", "runs of files", "runs of series"),
    *("long", "long csv"),
)
WITH_NAMES = (
    *("pandas", "pandas nullable", "categorical", "polars", "arrow", "csv", "tsv.gz", "r.csv", "parquet"),
    *("pandas with index", "parquet with index", "runs of files", "runs of series", "long", "long csv"),
)
WITH_IDS = ("r.csv", "pandas with index", "parquet with index", "runs of series")
NAMES = ("r0", "r1", "r2", "r3"), ("2", "5", "10", "20")  # as a sweep over the number of clusters has


@st.composite
def written_tables(draw):
    """Draw the labels that are meant, None where missing, and how they are written."""
    n_objects, n_partitions = draw(st.integers(2, 6)), draw(st.integers(1, 4))
    is_text = draw(st.booleans())
    names_gaps = draw(st.booleans())  # by missing=
    labels = st.sampled_from(TEXTS) if is_text else st.integers(-3 if names_gaps else 0, 12)
    labels = labels.filter(lambda label: label != -2)  # the number that is named as missing
    column = st.lists(st.none() | labels, min_size=n_objects, max_size=n_objects)
    columns = draw(
        st.lists(
            column.filter(lambda c: any(v is not None for v in c)),
            min_size=n_partitions,
            max_size=n_partitions,
        )
    )
    if is_text:
        gaps = st.sampled_from(NAMED_GAPS if names_gaps else TEXT_GAPS)
        blanks = st.sampled_from(["", " ", "\t"])
        cells = [[draw(gaps) if v is None else v + draw(blanks) for v in c] for c in columns]
    else:
        gap = st.just(-2) if names_gaps else st.sampled_from([-1, -7])
        cells = [[draw(gap) if v is None else v for v in c] for c in columns]
    missing = None if not names_gaps else [*NAMED_GAPS] if is_text else -2
    return columns, cells, missing, draw(st.sampled_from(ROUTES)), draw(st.sampled_from(NAMES))


def write(cells, route, folder, names=NAMES[0]):
    """Return a source with these cells by columns, the way to read it, and the parameters to pass."""
    is_text = isinstance(cells[0][0], str)
    frame = pd.DataFrame(dict(zip(names, cells, strict=False)))
    named = frame.set_axis([f"row {i}" for i in range(len(frame))])
    matrix = frame.to_numpy(dtype="U" if is_text else None)
    tables = {
        "array": lambda: matrix,
        "npy": lambda: np.save(folder / "x.npy", matrix) or folder / "x.npy",
        "dask": lambda: dask.array.from_array(matrix, chunks=(2, 1)),
        "object array": lambda: matrix.astype(object),
        "list": lambda: [list(row) for row in zip(*cells, strict=True)],
        "pandas": lambda: frame,
        "pandas nullable": frame.convert_dtypes,
        "pandas with index": lambda: named,
        "categorical": lambda: frame.astype("category"),
        "polars": lambda: pl.from_pandas(frame),
        "arrow": lambda: pa.Table.from_pandas(frame),
    }
    if route == "zarr" and not is_text:
        zarr.create_array(str(folder / "x.zarr"), data=matrix)
        return folder / "x.zarr", Ensemble.from_labels, {}
    if route in (*tables, "zarr"):
        return tables["array" if route == "zarr" else route](), Ensemble.from_labels, {}
    if route in ("csv", "csv without header", "tsv.gz"):
        has_header = route != "csv without header"
        path = folder / f"x.{route.split()[0]}"
        frame.to_csv(path, index=False, header=has_header, sep="\t" if route == "tsv.gz" else ",", quoting=1)
        return path, Ensemble.from_labels, {"header": has_header}
    if route == "r.csv":
        named.to_csv(folder / "x.csv")
        return folder / "x.csv", Ensemble.from_labels, {"header": True}
    if route in ("parquet", "parquet with index"):
        (named if "index" in route else frame).to_parquet(folder / "x.parquet", index="index" in route)
        return folder / "x.parquet", Ensemble.from_labels, {}
    if route.startswith("runs"):
        runs = list(cells)
        if route == "runs of files":
            runs = [folder / f"{name}.parquet" for name, _ in zip(names, cells, strict=False)]
            for run, column in zip(runs, cells, strict=True):
                pd.DataFrame({"label": column}).to_parquet(run)
        elif route == "runs of series":
            runs = [named[name] for name in frame]
        return runs, Ensemble.from_runs, {}
    rows = [
        (i, name, label) for name, column in zip(names, cells, strict=False) for i, label in enumerate(column)
    ]
    long = pd.DataFrame(rows, columns=["object", "run", "label"]).sample(frac=1, random_state=0)
    by = {"object": "object", "partition": "run", "label": "label"}
    if route == "long":
        return long, Ensemble.from_long, by
    long.to_csv(folder / "x.csv", index=False, quoting=1)
    return folder / "x.csv", Ensemble.from_long, by


@given(written_tables())
@settings(max_examples=60)
@pytest.mark.filterwarnings("ignore:partition .* as its only label", "ignore:no value of labels is ")
def test_a_table_of_any_sort_has_the_meaning_it_was_written_with(table):
    columns, cells, missing, route, names = table
    meant = [list(row) for row in zip(*columns, strict=True)]
    with tempfile.TemporaryDirectory() as directory:
        source, read, how = write(cells, route, Path(directory), names)
        found = read(source, missing=missing, **how)
        in_order = list(names[: len(cells)]) if route.startswith("long") else found.names
        assert values_of(found.select(in_order)) == meant, route
        if route in WITH_NAMES:
            assert sorted(found.names) == sorted(names[: len(cells)]), route
        if route in WITH_IDS:
            assert found.ids.tolist() == [f"row {i}" for i in range(len(meant))], route
        else:
            assert found.ids is None or route.startswith("long"), route
        if read == Ensemble.from_labels:
            stored = import_labels(source, Path(directory, "e.zarr"), missing=missing, **how)
            assert values_of(stored) == meant, route
        elif route != "runs":
            stored = read(source, missing=missing, **how, out=Path(directory, "e.zarr"))
            assert values_of(stored.select(in_order)) == meant


UNCLEAR = ("csv", "csv without header", "list", "one-column files", "long csv")


@given(written_tables(), st.sampled_from(UNCLEAR))
@settings(max_examples=80)
@pytest.mark.filterwarnings("ignore:partition .* as its only label", "ignore:no value of labels is ")
def test_a_table_that_is_not_explained_is_read_as_it_was_meant_or_refused(table, route):
    columns, cells, missing, *_ = table
    meant = [list(row) for row in zip(*columns, strict=True)]
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        if route == "one-column files":
            source = [folder / f"run{u}.csv" for u in range(len(cells))]
            for file, column in zip(source, cells, strict=True):
                pd.DataFrame({"label": column}).to_csv(file, index=False, quoting=1)
        else:
            source, _, _ = write(cells, route, folder)
        try:
            found = Ensemble.from_labels(source, missing=missing)
        except InvalidInputError:
            return
        if route == "csv without header" and len(meant) > len(values_of(found)):
            assert all(isinstance(value, str) or value is None for row in meant[:1] for value in row)
            return  # a line of text is a header
        if route == "long csv":
            assert len(columns) * len(meant) < 3 or found.n_partitions != len(columns)
            return
        assert values_of(found) == meant


CHOICES = [
    ([0.5, 1.0, 1.5], {"columns": [0.5, 1.5]}, ["0.5", "1.5"]),
    ([0.5, 1.0, 1.5], {"columns": 0.5}, ["0.5"]),
    ([("a", "v"), ("a", "w"), ("b", "v")], {"columns": [("a", "v")]}, ["('a', 'v')"]),
    ([2, 5, 10], {"columns": np.array([2, 10])}, ["2", "10"]),
    ([2, 5, 10], {"drop": pd.Index([2, 10])}, ["5"]),
    (pd.date_range("2020", periods=3), {"drop": [pd.Timestamp("2020-01-01")]}, None),
]


@pytest.mark.parametrize(("names", "choice", "expected"), CHOICES)
def test_columns__are_chosen_by_names_of_any_type_in_any_list(names, choice, expected):
    labels = pd.DataFrame([[0, 1, 2], [1, 0, 2], [1, 1, 0]], columns=names)
    chosen = Ensemble.from_labels(labels, **choice).names
    assert chosen == (list(map(str, labels.columns[1:])) if expected is None else expected)


@pytest.mark.parametrize("columns", [slice(0, 2), 0.5, np.array([True, False, True]), [None]])
@pytest.mark.parametrize("names", [["a", "b", "c"], None])
def test_columns__that_are_no_names_are_refused_in_a_line(columns, names):
    labels = np.array([[0, 1, 2], [1, 0, 2], [1, 1, 0]])
    table = labels if names is None else pd.DataFrame(labels, columns=names)
    with pytest.raises(UnknownColumnError, match=r"no column|0 to 2"):
        Ensemble.from_labels(table, columns=columns)
