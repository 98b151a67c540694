"""What is missing: one rule for every source, and the values that a call names."""

import functools

import dask.array
import dask.dataframe
import numpy as np
import pandas as pd
import polars as pl
import pytest
import zarr

import bigcons as bc
from bigcons import Ensemble
from bigcons.errors import SuspiciousFeaturesWarning, SuspiciousLabelsWarning
from bigcons.store.ensemble import import_labels
from tests.support.refusals import refused
from tests.support.stores import values_of


def routes(frame, folder):
    """Return the same table from every kind of source that has names of columns."""
    frame.to_csv(folder / "x.csv", index=False)
    frame.to_parquet(folder / "x.parquet", index=False)
    return {
        "pandas": frame,
        "object": frame.astype(object),
        "polars": pl.from_pandas(frame),
        "dask": dask.dataframe.from_pandas(frame, npartitions=2),
        "csv": folder / "x.csv",
        "parquet": folder / "x.parquet",
    }


def test_names_of_clusters_that_look_like_numbers_stay_apart(tmp_path):
    for labels in (["1_1", "11", "1"], ["1e5", "100000", "1"], ["01", "1", "2"]):
        (tmp_path / "x.csv").write_text("a\n" + "\n".join(labels))
        assert Ensemble.from_labels(tmp_path / "x.csv").n_clusters.tolist() == [3]
    np.savetxt(tmp_path / "x.csv", [[0, 0], [1, 0], [-1, 0]], delimiter=",")  # in the format 0.000e+00
    assert values_of(Ensemble.from_labels(tmp_path / "x.csv", header=False)) == [[0, 0], [1, 0], [None, 0]]


CODED = pd.DataFrame({"a": ["B", "Unknown", "T", "."], "b": [0, 1, 99, -1]})


@pytest.mark.parametrize("kind", ["pandas", "polars", "csv", "parquet", "object", "dask"])
@pytest.mark.parametrize(
    ("missing", "a", "b"),
    [
        (["Unknown", ".", 99], ["B", None, "T", None], [0, 1, None, -1]),
        (["Unknown", "."], ["B", None, "T", None], [0, 1, 99, None]),
        ([], ["B", "Unknown", "T", "."], [0, 1, 99, -1]),
        ([np.int64(1), "Unknown", "."], ["B", None, "T", None], [0, None, 99, -1]),
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_missing__names_values(kind, missing, a, b, tmp_path):
    source = routes(CODED, tmp_path)[kind]
    expected = [list(row) for row in zip(a, b, strict=True)]
    with refused(r"text in 'a' beside columns of numbers; pass id='a' .*columns="):
        Ensemble.from_labels(source, missing=missing)
    source = bc.select(source, columns=["a", "b"])
    ensemble = Ensemble.from_labels(source, missing=missing)
    stored = import_labels(source, tmp_path / "e.zarr", missing=missing)
    assert values_of(ensemble) == values_of(stored) == expected
    assert values_of(Ensemble.from_labels(bc.select(source, missing=missing))) == expected
    assert values_of(stored[[3, 0]]) == [expected[3], expected[0]]  # negative labels stay labels
    again = import_labels(stored, tmp_path / "again.zarr")
    assert values_of(again) == expected


@pytest.mark.parametrize("kind", ["array", "float", "npy", "csv", "zarr", "dask"])
def test_missing__of_a_matrix(kind, tmp_path):
    labels = np.array([[0, 1, 2], [9, 1, -1], [2, 9, 2]])
    path = tmp_path / f"x.{kind}"
    source = {
        "array": lambda: labels,
        "float": lambda: labels.astype(float),
        "npy": lambda: np.save(path, labels),
        "csv": lambda: np.savetxt(path, labels, "%d", ",", header="a,b,c", comments=""),
        "zarr": lambda: zarr.create_array(str(path), data=labels) and None,
        "dask": lambda: dask.array.from_array(labels, chunks=2),
    }[kind]()
    source = path if source is None else source
    assert values_of(Ensemble.from_labels(source, missing=9)) == [[0, 1, 2], [None, 1, -1], [2, None, 2]]


@pytest.mark.parametrize("kind", ["pandas", "polars", "csv", "parquet", "object", "dask"])
@pytest.mark.parametrize("of", ["labels", "features"])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_missing__that_occurs_nowhere_is_told(kind, of, tmp_path, recwarn):
    frame = pd.DataFrame({"a": [*"xy?z"] * 9, "b": [0, -99, 4, 2] * 9, "c": [-0.5, 2, 5, 3] * 9})
    columns = ["a", "b"] if of == "labels" else ["a", "b", "c"]
    of_features = functools.partial(bc.generate.kmeans, n_partitions=2, n_clusters=2, random_state=0)
    make = Ensemble.from_labels if of == "labels" else of_features
    source = routes(frame.astype({"c": np.float32}), tmp_path)[kind]
    for missing in (["?", -99], ["?", -0.5][: len(columns) - 1]):
        make(bc.select(source, columns=columns, missing=missing))
    assert [str(told.message) for told in recwarn if told.category is not FutureWarning] == []
    warning = SuspiciousLabelsWarning if of == "labels" else SuspiciousFeaturesWarning
    with pytest.warns(warning, match="^no value of .* is '-9', 'n', which missing= "):
        make(bc.select(source, columns=columns, missing=["n", -9]))


VOTES = np.array([[1, -1], [1, 1], [-1, 1], [-1, -1]])


@pytest.mark.parametrize("kind", ["float", "pandas", "csv", "object"])
def test_votes_of_plus_and_minus_one_are_told(kind, tmp_path):
    frame = pd.DataFrame(VOTES, columns=["a", "b"])
    source = {
        "float": VOTES.astype(float),
        "object": VOTES.astype(object),
        "pandas": frame,
        "csv": tmp_path / "x.csv",
    }[kind]
    frame.to_csv(tmp_path / "x.csv", index=False)
    for read in (Ensemble.from_labels, lambda x: import_labels(x, tmp_path / "e.zarr")):
        with pytest.warns(SuspiciousLabelsWarning, match=r"1 as its only label, and 2 .* pass missing=\[\]"):
            assert read(source).n_clusters.tolist() == [1, 1]
    ensemble = Ensemble.from_labels(source, missing=[])
    assert values_of(ensemble) == VOTES.tolist()
    assert ensemble.n_clusters.tolist() == [2, 2]
    assert values_of(ensemble.append_objects(VOTES[:1])) == [*VOTES.tolist(), VOTES[0].tolist()]
    assert values_of(Ensemble.from_labels(np.array([[-1], [0], [1]]), missing=0)) == [[-1], [None], [1]]


def test_votes__of_new_objects_are_those_of_the_fit():
    model = bc.PCC(2, random_state=0).fit(bc.select(np.tile(VOTES[:, :1], (5, 3)), missing=[]))
    assert model.predict(np.array([[-1] * 3, [1] * 3])).tolist() == [model.labels_[2], model.labels_[0]]


@pytest.mark.parametrize(
    ("read", "options", "message"),
    [
        (Ensemble.from_labels, {"sep": ";"}, "sep= has no effect on labels in ndarray"),
        (Ensemble.from_labels, {"categorical": "a"}, "categorical= has no effect on labels in ndarray"),
        (bc.generate.kmeans, {"decimal": ","}, "decimal= has no effect on features in ndarray"),
        (bc.generate.kmeans, {"header": False}, "header= has no effect on features in ndarray"),
    ],
)
def test_options_of_reading__are_for_what_they_change(read, options, message):
    with refused(message):
        read(bc.select(np.zeros((4, 2), int), **options))


def test_missing__is_for_tables(tmp_path):
    stored = Ensemble.from_labels([[0], [1]]).save(tmp_path / "e.zarr")
    for source in (stored, tmp_path / "e.zarr"):
        with refused("missing= has no effect on an ensemble"):
            Ensemble.from_labels(source, missing=0)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize("kind", ["pandas", "polars", "parquet", "dask"])
def test_minus_one_in_an_unsigned_type_is_refused(dtype, kind, tmp_path):
    frame = pd.DataFrame(np.array([[0, 1], [-1, 0], [1, 1]]).astype(dtype), columns=["a", "b"])
    largest = int(np.iinfo(dtype).max)
    source = routes(frame, tmp_path)[kind]
    with refused(
        f"'a' has the label {largest}, which is what {np.dtype(dtype)} makes of -1; .*missing={largest}"
    ):
        Ensemble.from_labels(source)
    assert values_of(Ensemble.from_labels(source, missing=largest)) == [[0, 1], [None, 0], [1, 1]]
    if dtype == np.uint64:  # which no label may be
        with refused(f"has label {largest};"):
            Ensemble.from_labels(source, missing=[])
    else:
        assert values_of(Ensemble.from_labels(source, missing=[])) == [[0, 1], [largest, 0], [1, 1]]
    if kind == "pandas":
        masked = np.ma.masked_equal(frame.to_numpy(), largest)
        assert values_of(Ensemble.from_labels(masked)) == [[0, 1], [None, 0], [1, 1]]
    below = frame.where(frame != largest, largest // 2 - 1)
    assert values_of(Ensemble.from_labels(below)) == [[0, 1], [largest // 2 - 1, 0], [1, 1]]


ROWS = np.column_stack([np.arange(60) % 5, np.arange(60) % 3])


@pytest.mark.parametrize("kind", ["pandas", "polars", "csv", "parquet", "object", "dask"])
@pytest.mark.parametrize(
    ("labels", "odd"),
    [
        *((np.uint8, [254]), (np.uint16, [65533, 65534]), (str, ["255"]), (float, [99]), (int, [2**31 - 1])),
        *((str, ["noise"]), (str, ["Total 2020", "\u22121"]), (int, []), (str, []), (np.uint8, [7])),
        *((str, ["0,1", "1_1"]), (str, ["B", "T", "NK", "DC", "M"])),
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_labels_unlike_all_others_are_told(labels, odd, kind, tmp_path):
    table = ROWS.astype(str).astype(object) if labels is str else ROWS.astype(labels)
    for row, label in enumerate(odd):
        table[row::9, 0] = label
    source = routes(pd.DataFrame(table, columns=["a", "b"]), tmp_path)[kind]
    source = bc.select(source, columns=["a", "b"])
    if not odd or odd[0] in (7, "0,1", "B"):
        Ensemble.from_labels(source)  # warnings are errors
        return
    with pytest.warns(SuspiciousLabelsWarning, match=rf"^'a' has '?{odd[0]}.* name in missing="):
        Ensemble.from_labels(source)
    for missing, n_clusters in ((odd, 5), ([], 5 + len(odd))):
        assert Ensemble.from_labels(source, missing=missing).n_clusters.tolist() == [n_clusters, 3]


@pytest.mark.parametrize("kind", ["pandas", "object", "polars", "dask", "csv", "parquet", "array", "text"])
def test_negative_numbers_that_may_be_labels_are_refused(kind, tmp_path):
    def source(values):
        frame = pd.DataFrame({"a": values, "b": [0, 1, 1, 0]})
        if kind == "text":
            return frame.astype(str)
        return frame.to_numpy() if kind == "array" else routes(frame, tmp_path)[kind]

    hashed = source([-5547843131917349437, -12, 5547843131917349437, 77])
    with refused("has the labels -5547843131917349437 and -12, and negative numbers mean missing; .*miss"):
        Ensemble.from_labels(hashed)
    assert Ensemble.from_labels(hashed, missing=[]).n_clusters.tolist() == [4, 2]
    assert Ensemble.from_labels(hashed, missing=[-12, "-12"]).n_clusters.tolist() == [3, 2]
    for signs in ([-1, -9, -99, -888], [-1, -2, -3, -32768]):  # one that is unusual may be a sign, too
        found = Ensemble.from_labels(source([*signs[1:], 5]))
        assert found.n_clusters.tolist() == [1, 2]
