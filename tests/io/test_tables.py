"""Labels and features come in through the same door: one rule for each kind of table."""

import gzip

import dask.array
import dask.dataframe
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from bigcons import Ensemble, generate
from bigcons.errors import InvalidInputError
from bigcons.io.columns import select
from bigcons.io.features import open_features
from bigcons.io.sources import open_source
from bigcons.store.ensemble import import_labels
from tests.support.refusals import refused
from tests.support.stores import values_of

N_ROWS = 600


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    columns = {name: rng.integers(0, 5, N_ROWS) for name in ("a", "b")}
    return pd.DataFrame({**columns, "c": rng.choice(["x", "y"], N_ROWS).astype(object)})


class Stream:
    """What DuckDB and others offer: nothing but the Arrow C stream interface."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


class Batch:
    """Nothing but the Arrow C array interface."""

    def __init__(self, batch):
        self._batch = batch

    def __arrow_c_array__(self, requested_schema=None):
        return self._batch.__arrow_c_array__(requested_schema)


def as_read(x, columns=None):
    """Return the label values and the features of a source, as lists of rows."""
    features = open_features(x)
    n = features.n_objects
    values = features.read(0, n)
    np.testing.assert_array_equal(features.read(n // 5, n - n // 4), values[n // 5 : n - n // 4])
    blocks = list(features.iterate(128))
    assert [block for block, _ in blocks] == features.blocks(128)
    np.testing.assert_array_equal(np.concatenate([rows for _, rows in blocks]), values)
    return values_of(Ensemble.from_labels(x, columns=columns)), values.tolist()


def arrow_sources(frame):
    table = pa.Table.from_pandas(frame, preserve_index=False)
    category = frame.astype({"c": "category"})
    return {
        "stream": Stream(table),
        "array": Batch(table.combine_chunks().to_batches()[0]),
        "polars categorical": Stream(pl.from_pandas(frame).cast({"c": pl.Categorical})),
        "polars": pl.from_pandas(frame),
        "pandas": frame.set_axis(np.arange(len(frame))[::-1], axis="index"),
        "pandas category": category,
        "dask": dask.dataframe.from_pandas(frame, npartitions=3),
    }


def one_hot(frame):
    """The features of a frame whose only text is in its last column, c, of x and y."""
    return frame.assign(c=frame["c"] == "x", y=frame["c"] == "y")


@pytest.mark.parametrize("kind", arrow_sources(pd.DataFrame({"a": [0], "c": ["x"]})))
@pytest.mark.filterwarnings("default")
def test_tables__in_memory_are_labels_and_features(frame, kind):
    if kind == "dask":
        frame = frame.astype({"c": object})
    labels, features = as_read(arrow_sources(frame)[kind], "*")
    assert labels == frame.to_numpy().tolist()
    assert features == one_hot(frame).to_numpy(float).tolist()


@pytest.mark.parametrize("x", [pl.Series([1, 2]), pa.array([1, 2]), Stream(pa.chunked_array([[1, 2]]))])
@pytest.mark.parametrize("reader", [Ensemble.from_labels, open_features])
def test_tables__reject_a_single_column_of_arrow(x, reader):
    with refused(r"is not a table|cannot be read"):
        reader(x)


FILES = {
    "x.csv": lambda frame, path: frame.to_csv(path, index=False),
    "x.csv.gz": lambda frame, path: frame.to_csv(path, index=False),
    "x.parquet": lambda frame, path: frame.to_parquet(path, index=False, row_group_size=70),
    "folder": lambda frame, path: in_parts(frame, path),
}


def in_parts(frame, folder):
    """Twelve files, whose names do not sort as their numbers do."""
    folder.mkdir()
    for index, start in enumerate(range(0, N_ROWS, 50)):
        frame.iloc[start : start + 50].to_parquet(folder / f"part.{index}.parquet", index=False)


@pytest.mark.parametrize("name", FILES)
def test_tables__in_files_are_labels_and_features(frame, tmp_path, name):
    FILES[name](frame, tmp_path / name)
    labels, features = as_read(tmp_path / name, "*")
    assert labels == frame.to_numpy().tolist()
    assert features == one_hot(frame).to_numpy(float).tolist()


@pytest.mark.parametrize("name", ["x.npy", "fortran.npy", "x.zarr"])
def test_tables__matrices_in_files_are_labels_and_features(tmp_path, name):
    matrix = np.random.default_rng(0).integers(0, 5, (N_ROWS, 3))
    ordered = np.asfortranarray(matrix) if name.startswith("fortran") else matrix
    if name.endswith(".npy"):
        np.save(tmp_path / name, ordered)
    else:
        zarr.create_array(str(tmp_path / name), data=matrix, chunks=(70, 2))
    assert as_read(tmp_path / name) == (matrix.tolist(), matrix.tolist())
    stored = import_labels(tmp_path / name, tmp_path / "e")
    assert values_of(stored) == matrix.tolist()
    assert stored.provenance.items() >= {"made_by": "import_labels", "source": str(tmp_path / name)}.items()


@pytest.mark.parametrize("reader", [Ensemble.from_labels, open_features])
def test_csv__rejects_a_damaged_archive_in_one_line(tmp_path, reader):
    content = gzip.compress(b"a,b\n" + b"1,2\n" * 100_000)
    for data in (b"a,b\n1,2\n", content[:-20], content[:5]):
        (tmp_path / "x.csv.gz").write_bytes(data)
        with refused(r"x\.csv\.gz cannot be read as CSV"):
            reader(tmp_path / "x.csv.gz")


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_files__must_have_the_same_columns(tmp_path, suffix):
    frame = pd.DataFrame({"key": range(10, 16), "a": [0, 1] * 3, "b": [0, 0, 1] * 2})
    for part, rows in enumerate((frame[:2], frame[2:3], frame[3:])):
        path = tmp_path / f"part-{part}.{suffix}"
        rows.to_csv(path, index=False) if suffix == "csv" else rows.to_parquet(path, index=False)
    ensemble = Ensemble.from_labels(tmp_path, id="key", columns=["b", "a"])
    np.testing.assert_array_equal(ensemble, frame[["b", "a"]])
    np.testing.assert_array_equal(ensemble.ids, frame["key"])
    np.testing.assert_array_equal(open_features(tmp_path, id="key").read(0, 6), frame[["a", "b"]])
    frame = frame[["key", "b", "a"]][:2]
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path, index=False)
    with refused(rf"part-2\.{suffix} has other columns .* another order"):
        Ensemble.from_labels(tmp_path, id="key")


def test_parquet__types_may_differ_as_far_as_they_fit(tmp_path):
    pq.write_table(pa.table({"x": [1, 2], "y": [0, 0]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"x": [3.0, 4.0], "y": [0, 0]}), tmp_path / "2.parquet")
    assert as_read(tmp_path) == (
        [[1, 0], [2, 0], [3, 0], [4, 0]],
        [[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 0.0]],
    )
    pq.write_table(pa.table({"x": ["5"], "y": [0]}), tmp_path / "3.parquet")
    with refused("mixes text and whole numbers"):
        Ensemble.from_labels(tmp_path)
    with refused(r"column 'x' of .* has type string, where it had numbers before"):
        open_features(tmp_path).read(0, 5)


def test_dask__delayed_and_chunks_of_another_shape_than_declared_are_refused():
    for take in (open_features, Ensemble.from_labels):
        with refused(r"has type dask Delayed.*from_delayed\(x, shape, dtype\)"):
            take(dask.delayed(np.ones)((10, 3)))

    def chunk(shape, declared):
        return dask.array.from_delayed(dask.delayed(np.ones)(shape), declared, float)

    for shape in ((5, 3), (11, 3)):
        array = dask.array.concatenate([chunk((10, 3), (10, 3)), chunk(shape, (10, 3))])
        with pytest.raises(InvalidInputError, match=r"rows where [12]0 are declared"):
            generate.kmeans(array, n_partitions=2, n_clusters=2, random_state=0)
    unknown = dask.array.concatenate([chunk((7, 3), (np.nan, 3)), chunk((4, 3), (np.nan, 3))])
    assert sum(len(rows) for rows in open_source(unknown, "features").batches(5)) == 11


def test_dask__partitions_that_dask_fuses_are_read(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.random((200, 12))).add_prefix("x")
    frame = frame.assign(key=rng.permutation(200), a=rng.integers(3, size=200), b=rng.integers(2, size=200))
    for part in range(4):
        frame[part * 50 : part * 50 + 50].to_parquet(tmp_path / f"{part}.parquet")
    read = dask.dataframe.read_parquet(tmp_path)[["key", "a", "b"]]
    for source, expected in (
        (select(read, id="key"), frame),
        (select(read.set_index("key"), id="index"), frame.sort_values("key")),
    ):
        ensemble = Ensemble.from_labels(source)
        np.testing.assert_array_equal(ensemble.ids, expected["key"])
        np.testing.assert_array_equal(ensemble, expected[["a", "b"]])
