"""Headers, runs and long tables: what can be read in two ways is refused, or read as the call says."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import zarr

import bigcons as bc
from bigcons import Ensemble
from bigcons.errors import InvalidInputError, MemoryBudgetError
from bigcons.store.ensemble import import_labels
from tests.support.refusals import refused
from tests.support.stores import values_of

SWEEP = pd.DataFrame(
    {2: [0, 0, 1, 1, 1], 5: range(5), 10: range(5)}, index=pd.Index(list("vwxyz"), name="cell")
)


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "tsv"])
def test_a_header_of_numbers_is_kept(tmp_path, suffix):
    path = tmp_path / f"k.{suffix}"
    SWEEP.to_csv(path, sep="\t" if suffix == "tsv" else ",")
    with refused(r"begins with the line cell,2,5,10, .*header=True"):
        Ensemble.from_labels(path, id="cell")
    with refused(r"has no column '0'; choose one of cell, 2, 5, 10"):
        Ensemble.from_labels(path, id=0, header=True)
    how = {"id": "cell", "header": True}
    for ensemble in (Ensemble.from_labels(path, **how), import_labels(path, tmp_path / "e.zarr", **how)):
        assert ensemble.names == ["2", "5", "10"]
        assert ensemble.ids.tolist() == list("vwxyz")
        assert values_of(ensemble) == SWEEP.to_numpy().tolist()
        assert ensemble.n_clusters.tolist() == [2, 5, 5]


@pytest.mark.parametrize(
    ("text", "with_header", "without"),
    [
        ("0,1,2\n0,1,1\n1,1,2\n", [[0, 1, 1], [1, 1, 2]], [[0, 1, 2], [0, 1, 1], [1, 1, 2]]),
        ("2,5,10\n0,0,0\n1,1,1\n", [[0] * 3, [1] * 3], [[2, 5, 10], [0] * 3, [1] * 3]),
        ("0,1,1\n0,0,1\n", None, [[0, 1, 1], [0, 0, 1]]),
        ("-1,0\n0,0\n", [[0, 0]], [[None, 0], [0, 0]]),
        ("NA,\n0,0\n", None, [[None, None], [0, 0]]),
        ("2,5\nA,A\nB,A\n", [["A", "A"], ["B", "A"]], [["2", "5"], ["A", "A"], ["B", "A"]]),
        ("a,1\nb,2\n", None, None),  # text among numbers
        (",1,1\n0,0,1\n", None, [[None, 1, 1], [0, 0, 1]]),
    ],
)
def test_a_first_line_that_may_be_a_header_or_an_object_is_refused(tmp_path, text, with_header, without):
    path = tmp_path / "x.csv"
    path.write_text(text)
    for read in (
        Ensemble.from_labels,
        lambda x: import_labels(x, tmp_path / "e"),
        lambda x: bc.PCC(2).fit(x),
    ):
        with refused(r"header=True \(--header\) .*header=False \(--no-header\)"):
            read(path)
    for header, rows in ((True, with_header), (False, without)):
        source = bc.select(path, header=header)
        if rows is None:  # names twice, or text beside numbers
            with pytest.raises(InvalidInputError):
                Ensemble.from_labels(source)
        else:
            assert values_of(Ensemble.from_labels(path, header=header)) == rows
            assert values_of(Ensemble.from_labels(source)) == rows


# Runs

RUN = np.arange(30) % 3
AS_RUNS = {
    "list": RUN.tolist(),
    "array": RUN,
    "series": pd.Series(RUN),
    "polars": pl.Series(RUN),
    "arrow": pa.array(RUN),
    "categorical": pd.Series(pd.Categorical(RUN.astype(str))),
    "frame": pd.DataFrame({"leiden": RUN}),
}
FILES = {
    "npy": lambda path: np.save(path, RUN),
    "csv": lambda path: pd.DataFrame({"label": RUN}).to_csv(path, index=False),
    "tsv.gz": lambda path: pd.DataFrame({"label": RUN}).to_csv(path, index=False, sep="\t"),
    "parquet": lambda path: pd.DataFrame({"label": RUN}).to_parquet(path, index=False),
    "zarr": lambda path: zarr.create_array(str(path), data=RUN),
}


class Estimator:
    """What bigcons uses of a fitted estimator of scikit-learn."""

    labels_ = RUN


AS_RUNS |= {"scikit-learn": Estimator()}


@pytest.mark.parametrize("kind", AS_RUNS)
def test_from_runs__has_a_partition_for_each_entry(kind, tmp_path):
    run = AS_RUNS[kind]
    for out in (None, tmp_path / "e.zarr"):
        ensemble = Ensemble.from_runs([run, RUN[::-1], run], out=out)
        assert (ensemble.shape, ensemble.ids, ensemble.names) == ((30, 3), None, ["p0", "p1", "p2"])
        np.testing.assert_array_equal(ensemble.read(0, 30), np.column_stack([RUN, RUN[::-1], RUN]))


@pytest.mark.parametrize("suffix", FILES)
def test_from_runs__of_files(suffix, tmp_path):
    files = [tmp_path / f"run{u}.{suffix}" for u in range(3)]
    for file in files:
        FILES[suffix](file)
    for source in (files, list(map(str, files))):
        ensemble = Ensemble.from_runs(source)
        assert (ensemble.shape, ensemble.names) == ((30, 3), ["run0", "run1", "run2"])
        np.testing.assert_array_equal(ensemble.read(0, 30), np.column_stack([RUN] * 3))
        with refused(r"from_runs\(\[\.\.\.\]\) .*one file of all rows"):
            Ensemble.from_labels(source)
    if suffix in ("csv", "parquet"):
        for source in (f"{tmp_path}/run*", tmp_path):
            with refused("from_runs"):
                Ensemble.from_labels(source)


@pytest.mark.parametrize(
    "runs",
    [[[0, 1] * 100] * 30, [np.array([0, 1] * 100)] * 30, [tuple([0, 1] * 100)] * 30, [np.arange(3)] * 9],
)
def test_lists_that_may_be_runs_are_refused(runs):
    for read in (Ensemble.from_labels, bc.PCC(2).fit):
        with refused(r"Ensemble\.from_runs\(x\) .*numpy\.array\(x\)"):
            read(runs)
    shape = len(runs), len(runs[0])
    assert Ensemble.from_labels(np.array(runs)).shape == shape
    assert Ensemble.from_runs(runs).shape == shape[::-1]
    assert Ensemble.from_runs(np.array(runs)).shape == shape[::-1]


def test_a_dict_is_refused_with_both_readings():
    with refused(r"pandas\.DataFrame\(x\) .* Ensemble\.from_runs\(x\)"):
        Ensemble.from_labels({"a": [0, 1], "b": [0, 0]})


@pytest.mark.parametrize("runs", [[0, 1, 1], {"a": 0, "b": 1}])
def test_from_runs__refuses_a_single_run(runs):
    with refused(r"single run; pass \["):
        Ensemble.from_runs(runs)
    run = runs if isinstance(runs, list) else pd.Series(runs)
    assert Ensemble.from_runs([run]).n_partitions == 1


def test_from_runs__joins_named_objects():
    index = list("cab")
    runs = [pd.Series([0, 0, 1], index=index), pd.Series(["y", "x"], index=["a", "b"])]
    ensemble = Ensemble.from_runs({"louvain": runs[0], "leiden": runs[1]})
    assert (ensemble.names, ensemble.ids.tolist()) == (["louvain", "leiden"], index)
    assert values_of(ensemble) == [[0, None], [0, "y"], [1, "x"]]
    frames = [pd.DataFrame({"k": [0, 1]}, index=list("ab")), pd.DataFrame({"k": [0, 1]}, index=list("ba"))]
    assert values_of(Ensemble.from_runs(frames)) == [[0, 1], [1, 0]]
    given = Ensemble.from_runs([runs[0], [0, 0, 1, 1]], ids=list("dcba"))
    assert values_of(given) == [[None, 0], [0, 0], [1, 1], [0, 1]]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_from_runs__joins_files_by_ids(suffix, tmp_path):
    frames = [
        pd.DataFrame({"cell": list("xyz"), "k": [0, 0, 1]}),
        pd.DataFrame({"cell": list("zx"), "k": [4, 5]}),
    ]
    files = [tmp_path / f"{u}.{suffix}" for u in range(2)]
    for frame, file in zip(frames, files, strict=True):
        getattr(frame, f"to_{suffix}")(file, index=False)
    for out in (None, tmp_path / "e.zarr"):
        ensemble = Ensemble.from_runs(files, id="cell", out=out)
        assert ensemble.ids.tolist() == ["x", "y", "z"]
        assert values_of(ensemble) == [[0, 5], [0, None], [1, 4]]
    with refused(r"has 2 columns: cell, k; .*columns= .*id="):
        Ensemble.from_runs(files)


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([[0, 0, 1], [0, 1]], "'p1' has 2 labels but there are 3 objects"),
        ([pd.Series([0], ["a"]), pd.Series([0], [1])], "is int64 but the ids of the objects are text"),
        ([pd.Series([0, 0], ["a", "b"]), [0, 1]], "labels without ids, beside runs with"),
        ("labels.csv", "has type str or no entries; pass a list"),
        (pd.DataFrame({"a": [0, 1]}), r"goes to Ensemble\.from_labels"),
    ],
)
def test_from_runs__refuses_what_is_no_list_of_partitions(runs, message):
    with refused(message):
        Ensemble.from_runs(runs)


# Long tables

VOTES = pd.DataFrame(
    {"task": np.repeat(range(2000), 5), "worker": np.arange(10000) % 200, "label": np.arange(10000) % 3}
)
BY = {"object": "task", "partition": "worker", "label": "label"}


def as_matrix(votes):
    matrix = np.full((votes["task"].max() + 1, votes["worker"].max() + 1), -1)
    matrix[votes["task"], votes["worker"]] = votes["label"]
    return [[None if label < 0 else label for label in row] for row in matrix.tolist()]


WIDE = pd.DataFrame({f"run{u}": np.arange(40_000) * (u + 3) // 7 % 5 for u in range(5)})
LONG = WIDE.reset_index(names="object").melt("object", var_name="run", value_name="label")
LONGS = {
    "as melt makes it": LONG,  # sorted by run, of which the first rows are the first alone
    "filtered": LONG[LONG.index % 7 > 0],
    "named": LONG.set_axis(pd.Index([f"v{row}" for row in range(len(LONG))], name="row")),
    "of text": LONG.assign(label=LONG["label"].map("ABCDE".__getitem__))[1:],
    "of numbers": LONG.assign(run=LONG["run"].str[3:].astype(int)).set_axis(["u", "v", "w"], axis=1)[1:],
}


@pytest.mark.parametrize("kind", LONGS)
@pytest.mark.parametrize("route", ["pandas", "csv", "dask"])
def test_a_long_table_of_any_index_is_refused_as_labels(kind, route, tmp_path):
    votes, path = LONGS[kind], tmp_path / f"votes.{route}"
    source = {
        "pandas": lambda: votes,
        "csv": lambda: votes.to_csv(path),
        "dask": lambda: pytest.importorskip("dask.dataframe").from_pandas(votes, npartitions=3),
    }[route]()
    source = path if source is None else source
    asked = r"may be a long table, .*Ensemble\.from_long|text in .* beside columns of numbers"
    with refused(asked):
        Ensemble.from_labels(source)
    with refused("bigcons import --long"):
        bc.consensus(source, 3)  # reads Parquet where it is


@pytest.mark.parametrize("route", ["pandas", "dask"])
def test_the_table_that_was_melted_is_no_long_table(route):
    wide = WIDE if route != "dask" else pytest.importorskip("dask.dataframe").from_pandas(WIDE, npartitions=3)
    assert Ensemble.from_labels(wide).n_partitions == 5


@pytest.mark.parametrize("n_clusters", [3, 200, 1_000])
@pytest.mark.parametrize("index", [None, "name"])
def test_three_partitions_are_no_long_table(n_clusters, index):
    random = np.random.default_rng(0)
    wide = pd.DataFrame(random.integers(n_clusters, size=(20_000, 3)), columns=list("abc"))
    wide.index.name = index
    assert Ensemble.from_labels(wide).n_partitions == 3


@pytest.mark.parametrize("route", ["shuffled", "polars", "csv", "index.parquet", "array"])
@pytest.mark.parametrize("is_stored", [False, True])
def test_from_long__has_a_row_for_each_object(route, is_stored, tmp_path):
    path, by = tmp_path / f"votes.{route}", BY
    source = {
        "shuffled": lambda: VOTES.sample(frac=1, random_state=0),
        "polars": lambda: pl.from_pandas(VOTES),
        "csv": lambda: VOTES.to_csv(path, index=False),
        "index.parquet": lambda: pd.concat([VOTES[:5000], VOTES[:5000]]).to_parquet(path),
        "array": lambda: VOTES.to_numpy(),
    }[route]()
    by = {name: c for c, name in enumerate(BY)} if route == "array" else BY
    out = tmp_path / "e.zarr" if is_stored else None
    ensemble = Ensemble.from_long(path if source is None else source, **by, out=out, memory="500MB")
    votes = VOTES[:5000] if route == "index.parquet" else VOTES
    assert values_of(ensemble) == as_matrix(votes)
    assert ensemble.ids.tolist() == sorted(set(votes["task"]))
    assert ensemble.names == [str(u) for u in range(200)]


MIXED = pd.DataFrame(
    {
        "float": [0.0, np.nan, 2.0, 2.0],
        "int": [3, -1, 3, 4],
        "text": pd.Series(["red", None, "blue", "red"], dtype=object),
        "numbers as text": pd.Series(["1", "2", None, "1"], dtype=object),
        "bool": pd.Series([True, False, None, True], dtype=object),
    }
).set_axis(pd.Index(list("abcd"), name="o"))


@pytest.mark.parametrize("kind", ["as it is", "shuffled", "without gaps", "csv"])
@pytest.mark.parametrize("is_stored", [False, True])
def test_from_long__of_what_melt_makes_of_partitions_of_all_types(kind, is_stored, tmp_path):
    long = MIXED.reset_index().melt("o", var_name="run", value_name="label")
    assert long["label"].dtype == object
    source = {
        "as it is": lambda: long,
        "shuffled": lambda: long.sample(frac=1, random_state=0),
        "without gaps": lambda: long.dropna(),
        "csv": lambda: long.to_csv(tmp_path / "long.csv", index=False) or tmp_path / "long.csv",
    }[kind]()
    out = tmp_path / "e.zarr" if is_stored else None
    found = Ensemble.from_long(source, object="o", partition="run", label="label", out=out)
    wide = Ensemble.from_labels(MIXED).select(found.names)
    assert sorted(found.names) == sorted(MIXED)
    assert found.ids.tolist() == list("abcd")
    if kind == "csv":  # which has no types: the text of each partition is that of numbers, or not
        names = [name for name in found.names if name not in ("bool", "numbers as text")]
        found, wide = found.select(names), wide.select(names)
    assert values_of(found) == values_of(wide)
    with refused("partition 'int' has labels that are neither all whole"):
        long = pd.concat([long, pd.DataFrame({"o": ["e"], "run": ["int"], "label": ["x"]})])
        Ensemble.from_long(long, object="o", partition="run", label="label")


def test_from_long__leaves_out_what_a_mask_hides():
    votes = np.ma.masked_equal([[0, 0, 9], [0, 1, 1], [1, 0, 1], [1, 1, 0]], 9)
    assert values_of(Ensemble.from_long(votes, object=0, partition=1, label=2)) == [[None, 1], [1, 0]]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(1, 2, "x"), (1, 2, "y")], "t 1 has the labels 'x' and 'y' of w '2'; keep one"),
        ([(1, 2, "x"), (None, 2, "y")], r"row 1 \(from 0\) of labels has no t"),
        ([(1, 2, "x"), (1, 3, None)], "partition '3' has no labels"),
    ],
)
def test_from_long__refuses_what_has_no_meaning(rows, message):
    with refused(message):
        Ensemble.from_long(pd.DataFrame(rows, columns=["t", "w", "l"]), object="t", partition="w", label="l")


def test_from_long__is_read_within_a_budget(tmp_path):
    random = np.random.default_rng(0)
    keys = random.choice(3000 * 40, 60_000, replace=False)
    votes = pd.DataFrame({"task": keys // 40, "worker": keys % 40, "label": random.integers(0, 4, len(keys))})
    stored = Ensemble.from_long(votes, **BY, out=tmp_path / "e.zarr", memory="377MB")
    assert values_of(stored) == values_of(Ensemble.from_long(votes, **BY)) == as_matrix(votes)
    with refused(r"60,000 rows of labels need 376 MB, .*raise it", MemoryBudgetError):
        Ensemble.from_long(votes, **BY, out=tmp_path / "f.zarr", memory="373MB")
