"""The label matrix in memory: what it takes, what it tells, what it refuses."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from bigcons import Ensemble
from bigcons.errors import InvalidInputError, SuspiciousLabelsWarning
from bigcons.store.ensemble import import_labels
from tests.naive import ensemble as naive
from tests.support.refusals import refused
from tests.support.stores import of_rows, values_of
from tests.support.strategies import label_matrices, label_tables


@given(label_tables())
def test_from_labels__keeps_labels_of_any_kind_in_the_order_of_the_values(rows):
    ensemble = of_rows(rows)
    assert values_of(ensemble) == rows
    for u, column in enumerate(zip(*rows, strict=True)):
        codes, values = naive.relabel(column)
        assert ensemble.read(0, ensemble.n_objects)[:, u].tolist() == codes
        assert ensemble.n_clusters[u] == len(values)


@given(label_matrices(), st.sampled_from(["C", "F"]), st.sampled_from(["int8", "int16", "int64", "float32"]))
def test_from_labels__of_an_array_of_any_layout_and_type(labels, order, dtype):
    ensemble = Ensemble.from_labels(np.asarray(labels, dtype=dtype, order=order))
    assert values_of(ensemble) == naive.without_missing(labels.tolist())
    read = ensemble.read(0, ensemble.n_objects)
    assert read.flags.c_contiguous
    assert read.dtype == ensemble.dtype == np.int8


@pytest.mark.parametrize(
    "column",
    [
        [0, -1, 1, 1],
        [0, None, 1, 1],
        [0.0, np.nan, 1.0, 1.0],
        np.array([0, -7, 1, 1], dtype=object),
        np.array([0.0, np.nan, 1.0, 1.0], dtype=np.float16),
        pd.array([0, None, 1, 1], dtype="Int64"),
        pd.array([False, None, True, True], dtype="boolean"),
        pd.array([0, None, 1, 1], dtype="UInt8"),
    ],
    ids=lambda column: str(getattr(column, "dtype", type(column[1]))),
)
def test_from_labels__recognizes_missing_labels(column):
    frame = pd.DataFrame({"a": column})
    for x in (frame, np.asarray(frame, dtype=object), frame.to_numpy().tolist()):
        assert Ensemble.from_labels(x).read(0, 4)[:, 0].tolist() == [0, -1, 1, 1]


@pytest.mark.parametrize("kind", ["int64", "uint8", "uint64", "float32", "bool", "U5", "O"])
def test_from_labels__treats_masked_entries_as_missing(kind):
    values = np.array([[1, 0], [0, 1], [1, 1]])
    labels = np.ma.array(values.astype(kind), mask=[[0, 0], [1, 0], [0, 1]])
    ensemble = Ensemble.from_labels(labels).append_partitions(labels[:, 0])
    expected = [[1, 0, 1], [None, 1, None], [1, None, 1]]
    assert values_of(ensemble) == [
        [v if v is None else str(v) if kind == "U5" else v for v in row] for row in expected
    ]


KINDS = "neither all whole numbers nor all text"


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[1.5]], "partition 'p0' has label 1.5"),
        ([[np.inf]], "partition 'p0' has label inf"),
        *((x, "a list, but not a matrix") for x in ([[0, 1], [0]], [[0, 1], 7], [], [[0, 1], "ab"], [0, 1])),
        *((x, r"not a matrix; .* pandas\.Series\({v: c for c, vs in") for x in (["a", "b"], [{0, 1}, {2}])),
        ([[]], r"empty, shape \(0, 0\)"),
        (np.empty((0, 3)), r"empty, shape \(0, 3\)"),
        ([[0, -1], [1, None]], "partition 'p1' has no labels"),
        (pd.DataFrame({"a": [1, 2], "b": [np.nan, np.nan]}), "partition 'b' has no labels"),
        (np.zeros((2, 2, 2)), "3 dimension"),
        *((x, KINDS) for x in ([["a"], [1]], [[2**64]], np.array([[1 + 2j]]), np.array([["2020"]], "M8[Y]"))),
        *((np.array([[2**63]], dtype), "has label 9") for dtype in (np.uint64, "g")),
        (pd.DataFrame({"t": pd.to_datetime(["2020-01-01"])}), "partition 't' has labels that are neither"),
        (pd.DataFrame({"i": pd.interval_range(0, 1)}), "partition 'i' has labels that are neither"),
        (pl.DataFrame({"l": [[1]]}), "partition 'l' has labels that are neither"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "two partitions are named 'a'"),
        (np.array([[b"\xff"]]), "partition 'p0' has .* in UTF-8 .Invalid"),
        (csr_array(np.eye(2, dtype=int)), "labels is a sparse csr_array"),
        ({"a": 1}, r"labels of type dict cannot be read; .* of each object in a dict pandas\.Series\(x\)"),
        (3, "labels of type int cannot be read"),
    ],
    ids=str,
)
def test_from_labels__rejects_in_one_line(labels, message):
    with refused(message) as caught:
        Ensemble.from_labels(labels)
    assert ";" in str(caught.value)


def test_from_labels__names_partitions():
    labels = np.array([[0, 1]])
    assert Ensemble.from_labels(labels).names == ["p0", "p1"]
    assert Ensemble.from_labels(labels, names=["a", "b"]).names == ["a", "b"]
    with pytest.raises(InvalidInputError, match="names has 1 entries"):
        Ensemble.from_labels(labels, names=["a"])


@pytest.mark.parametrize(("k", "dtype"), [(127, "int8"), (128, "int8"), (129, "int16"), (32769, "int32")])
def test_from_labels__chooses_the_smallest_type(k, dtype):
    ensemble = Ensemble.from_labels(np.repeat(np.arange(k), 4)[:, None])
    assert ensemble.dtype == dtype
    assert ensemble.read(4 * k - 1, 4 * k).tolist() == [[k - 1]]


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (2, 1), (0, 4)])
def test_read__rejects_rows_out_of_range(start, stop):
    with pytest.raises(InvalidInputError, match="not within the 3 objects"):
        Ensemble.from_labels([[0], [1], [2]]).read(start, stop)


@given(label_matrices(), st.lists(st.integers(0, 100), max_size=8))
def test_read_rows__in_the_order_asked_for(labels, indices):
    ensemble = Ensemble.from_labels(labels)
    indices = [index % len(labels) for index in indices]
    rows = ensemble.read_rows(indices)
    assert rows.tolist() == [ensemble.read(i, i + 1)[0].tolist() for i in indices]


@pytest.mark.parametrize("indices", [[-1], [3], [[0]], [0.5]])
def test_read_rows__rejects_other_indices(indices):
    with pytest.raises(InvalidInputError, match="has no item"):
        Ensemble.from_labels([[0], [1], [2]]).read_rows(indices)


@given(st.integers(1, 20_000), st.integers(1, 9_000))
def test_blocks__cover_all_rows_without_splitting_chunks(n_objects, rows):
    ensemble = Ensemble.from_labels(np.zeros((n_objects, 1), np.int8))
    blocks = ensemble.blocks(rows)
    edges = [0, *(block.stop for block in blocks)]
    assert edges == [block.start for block in blocks] + [n_objects]
    length = blocks[0].n_rows
    assert length <= max(rows, 1)
    if len(blocks) > 1:
        assert length % ensemble.chunk_rows == 0 or ensemble.chunk_rows % length == 0


def test_append_objects__goes_by_the_names_of_a_table():
    ensemble = Ensemble.from_labels(pd.DataFrame({"a": [0, 1], "b": ["x", "y"]}), columns="*")
    ensemble.append_objects(pd.DataFrame({"b": ["y"], "a": [1]}))
    assert ensemble.read(2, 3).tolist() == [[1, 1]]
    for frame, message in (
        ({"a": [1], "c": ["y"]}, "has other columns than the 2 partitions"),
        ({"a": [1], "b": ["y"], "c": ["y"]}, "other columns than .*'a', 'b'; .*--drop"),
        ({"a": [1]}, "other columns .*add empty ones"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            ensemble.append_objects(pd.DataFrame(frame))
    ensemble.append_objects(pd.DataFrame({"a": [1], "b": [None], "c": ["y"]}), drop="c")
    assert ensemble.read(3, 4).tolist() == [[1, -1]]
    with pytest.raises(InvalidInputError, match="other columns than"):
        ensemble.append_objects(pa.table([[1], [1], ["y"]], names=["a", "a", "b"]))


@pytest.mark.parametrize(
    ("append", "message"),
    [
        (lambda e: e.append_objects([[1]]), "other columns than the 2 partitions"),
        (lambda e: e.append_objects([["a", 0]]), "mixes text and whole numbers"),
        (lambda e: e.append_objects([[1.5, 0]]), "label 1.5"),
        (lambda e: e.append_partitions([[1], [2], [3]]), "3 objects but the ensemble has 2"),
        (lambda e: e.append_partitions([[1], [2]], names=["p0"]), "the ensemble has already 'p0'; leave"),
        (lambda e: e.append_partitions([[None], [None]]), "no labels"),
    ],
)
def test_append__rejects_and_changes_nothing(append, message):
    ensemble = Ensemble.from_labels([[0, 1], [1, 0]])
    with pytest.raises(InvalidInputError, match=message):
        append(ensemble)
    assert values_of(ensemble) == [[0, 1], [1, 0]]


def test_repr__shows_size_and_missing_labels():
    ensemble = Ensemble.from_labels([[0, 1], [-1, 1]])
    assert "2 objects x 2 partitions" in repr(ensemble)
    assert "25.0% missing" in repr(ensemble)
    assert "1 partition of 2 clusters" in repr(Ensemble.from_labels([[0], [1]]))


def test_from_labels__warns_of_suspicious_labels(tmp_path):
    table = pd.DataFrame({"run": [0, 1] * 100, "id": range(200)})
    advice = "every object has a different label in 'id'; pass id='id'"
    with pytest.warns(SuspiciousLabelsWarning, match=advice) as caught:
        read = Ensemble.from_labels(table)
    assert caught[0].filename == __file__
    with pytest.warns(SuspiciousLabelsWarning, match=advice):
        stored = import_labels(table, tmp_path / "e.zarr")
    assert values_of(stored) == values_of(read) == np.asarray(table).tolist()


def test_digest__is_the_same_in_memory_and_stored(tmp_path):
    labels = np.random.default_rng(0).integers(-1, 5, (3000, 130))
    ensemble = Ensemble.from_labels(labels)
    stored = ensemble.save(tmp_path / "e.zarr")
    assert stored.digest() == ensemble.digest() == stored.load().digest()
    changed = labels.copy()
    changed[2999, 129] = (changed[2999, 129] + 1) % 5
    assert Ensemble.from_labels(changed).digest() != ensemble.digest()
