"""Importing labels by blocks: every source gives the same store, whatever the size of the blocks."""

import os

import dask.array
import dask.dataframe
import numpy as np
import pandas as pd
import pytest
import zarr

from bigcons import Ensemble, select
from bigcons.errors import (
    BigconsError,
    CorruptStoreError,
    InvalidInputError,
    MemoryBudgetError,
    StoreExistsError,
    StoreNotFoundError,
    SuspiciousLabelsWarning,
)
from bigcons.io.labels import encode_labels, scan_labels
from bigcons.io.sources import Source, open_source, sliced
from bigcons.store.ensemble import import_labels
from tests.support.refusals import refused
from tests.support.stores import names_in, values_of

N_OBJECTS, NAMES = 3000, ["a", "b", "c"]


@pytest.fixture(scope="module")
def labels():
    rng = np.random.default_rng(0)
    matrix = rng.integers(-1, 4, (N_OBJECTS, 3))
    matrix[:, 1] = np.where(matrix[:, 1] < 0, -1, matrix[:, 1] * 1_000_000)
    return matrix


@pytest.fixture(scope="module")
def frame(labels):
    frame = pd.DataFrame(labels, columns=NAMES).astype("Int64").mask(lambda cells: cells < 0)
    frame["c"] = frame["c"].map({k: f"label {k}" for k in range(4)}, na_action="ignore").astype(object)
    return frame


def read(x):
    """Read a table of numbers and text, all of them partitions."""
    return Ensemble.from_labels(x, columns=NAMES)


@pytest.mark.parametrize("rows", [37, 999, 10_000])
def test_scan_labels__does_not_depend_on_the_blocks(labels, frame, rows):
    for x in (labels, select(frame, columns=NAMES)):
        table = open_source(x, "labels")
        _, encodings = scan_labels(table, NAMES, rows=rows)
        codes = np.concatenate(list(encode_labels(table, encodings, rows)))
        assert np.array_equal(codes, Ensemble.from_labels(x).read(0, N_OBJECTS))


def test_import_labels__numbers_in_csv_are_numbers(tmp_path):
    (tmp_path / "l.csv").write_text('x,"y",z\n10,a,1.0\n9,,2\n-1,1.5,NaN\n')
    ensemble = Ensemble.from_labels(tmp_path / "l.csv", columns="*")
    assert ensemble.names == ["x", "y", "z"]
    assert values_of(ensemble) == [[10, "a", 1], [9, None, 2], [None, "1.5", None]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,,b\n0,1,1\n1,0,1\n", "has a header of 3 columns, one without a name"),
        ("a,b\n1.5,0\n", "partition 'a' has label 1.5"),
        ("a,b\n1,0\n1\n", "cannot be read as CSV"),
        ("a,b\n,\n", "partition 'a' has no labels"),
        ("a,a\n1,1\n", "two partitions are named 'a'"),
        ("a,b\n", "empty, shape"),
        ("", "is empty"),
    ],
)
def test_import_labels__rejects_broken_csv(tmp_path, text, message):
    (tmp_path / "l.csv").write_text(text)
    with refused(message):
        import_labels(tmp_path / "l.csv", tmp_path / "e")
    assert names_in(tmp_path) == ["l.csv"]


def test_import_labels__reports_missing_and_unknown_files(tmp_path):
    (tmp_path / "l.txt").write_text("0")
    (tmp_path / "empty.parquet").mkdir()
    for name, error, message in [
        ("epmty.parquet", StoreNotFoundError, "check the path. Did you mean empty.parquet[?]$"),
        ("l.txt", InvalidInputError, "suffix '.txt'; use .npy"),
        ("empty.parquet", InvalidInputError, "is a folder without tables"),
    ]:
        with refused(message, error):
            import_labels(tmp_path / name, tmp_path / "e")
    assert not (tmp_path / "e").exists()


@pytest.mark.parametrize("suffix", [".npy", ".parquet", ".csv"])
@pytest.mark.parametrize("data", [b"", b"\x93NUMPY", b"PK\x03\x04", b"PAR1PAR1", b"\x00\xff" * 500])
def test_import_labels__rejects_damaged_files_in_one_line(tmp_path, suffix, data):
    path = tmp_path / f"l{suffix}"
    path.write_bytes(data)
    with refused(r"l\.", BigconsError):
        import_labels(path, tmp_path / "e")


class Marker:
    """Unpickling an object of this class leaves a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_import_labels__never_unpickles(tmp_path):
    payload = np.array([[Marker(str(tmp_path / "ran"))]], dtype=object)
    np.save(tmp_path / "l.npy", payload, allow_pickle=True)
    with refused("pickles are never loaded"):
        import_labels(tmp_path / "l.npy", tmp_path / "e")
    assert not (tmp_path / "ran").exists()
    np.load(tmp_path / "l.npy", allow_pickle=True)
    assert (tmp_path / "ran").exists()


def test_import_labels__rejects_old_zarr_and_unknown_codecs(tmp_path):
    zarr.create_array(str(tmp_path / "v2.zarr"), data=np.zeros((2, 2), np.int8), zarr_format=2)
    with refused(r"Zarr array of version 2"):
        import_labels(tmp_path / "v2.zarr", tmp_path / "e")
    zarr.create_array(str(tmp_path / "v3.zarr"), data=np.zeros((2, 2), np.int8))
    file = tmp_path / "v3.zarr/zarr.json"
    file.write_text(file.read_text().replace('"zstd"', '"numcodecs.pickle"'))
    with refused(r"numcodecs\.pickle.*; rewrite it with zstd", CorruptStoreError):
        import_labels(tmp_path / "v3.zarr", tmp_path / "e")


def test_import_labels__reads_shards_and_tells_that_they_are_damaged(tmp_path, labels):
    zarr.create_array(str(tmp_path / "l.zarr"), data=labels, shards=(64, 4), chunks=(16, 2))
    stored = import_labels(tmp_path / "l.zarr", tmp_path / "e")
    assert stored.digest() == Ensemble.from_labels(labels).digest()
    file = tmp_path / "l.zarr/c/0/0"
    file.write_bytes(file.read_bytes()[:-20] + bytes(20))
    with refused(r"l\.zarr is damaged: rows 0 to .* cannot be read .*; restore it", CorruptStoreError):
        import_labels(tmp_path / "l.zarr", tmp_path / "e2")


def test_import_labels__again_finds_its_result_but_not_one_that_was_appended_to(tmp_path, labels):
    np.save(tmp_path / "l.npy", labels)
    asked = {"columns": np.array([0, 1]), "chunk_rows": np.int64(64)}
    import_labels(tmp_path / "l.npy", tmp_path / "e", **asked)
    assert import_labels(tmp_path / "l.npy", tmp_path / "e", **asked).n_objects == len(labels)
    Ensemble.open(tmp_path / "e", mode="a").append_objects(labels[:1, :2])
    with pytest.raises(StoreExistsError):
        import_labels(tmp_path / "l.npy", tmp_path / "e", **asked)


def test_import_labels__makes_the_chunks_of_memory_within_any_budget_or_refuses_it(tmp_path):
    wide = np.tile(np.zeros((1, 300), np.int8), (20_000, 1))
    in_memory = Ensemble.from_labels(wide)
    for name, budget in {"large": "1GB", "small": "375MB"}.items():
        stored = import_labels(wide, tmp_path / name, memory=budget)
        assert stored.chunk_rows == in_memory.chunk_rows == 2048
        assert stored.digest() == in_memory.digest()
    with refused(
        "memory=374 MB cannot hold a chunk of 2,048 rows of labels besides the process", MemoryBudgetError
    ) as caught:
        import_labels(wide, tmp_path / "e", memory="374MB")
    assert import_labels(wide, tmp_path / "least", memory=caught.value.needed).chunk_rows == 2048
    assert import_labels(wide, tmp_path / "chosen", memory="374MB", chunk_rows=1024).chunk_rows == 1024
    runs = list(wide[:, :30].T)
    with refused("memory=370 MB cannot hold a chunk of 2,048 rows", MemoryBudgetError):
        Ensemble.from_runs(runs, out=tmp_path / "e", memory="370.2MB")
    with refused("memory=390 MB cannot hold one block", MemoryBudgetError):
        import_labels(dask.array.from_array(wide, chunks=(20_000, 300)), tmp_path / "e", memory="390MB")
    named = pd.DataFrame({"a": np.arange(900_000) % 3}, index=[f"object {i}" for i in range(900_000)])
    with refused("the ids, and as much .* need 408 MB, over memory=390 MB", MemoryBudgetError):
        import_labels(named, tmp_path / "e", memory="390MB")
    identities = np.arange(200_000)[:, None] * 1_000_000
    with refused("distinct labels", MemoryBudgetError):
        import_labels(identities, tmp_path / "e", memory="375MB")
    assert names_in(tmp_path) == ["chosen", "large", "least", "small"]


def test_import_labels__detects_a_source_that_changes(tmp_path):
    rng = np.random.default_rng(0)
    load = sliced(lambda start, stop, columns: [rng.integers(-1, 1000, stop - start) for _ in columns])
    restless = Source("labels", None, 2, [500], load)
    with refused("changed while it was read"):
        import_labels(restless, tmp_path / "e")
    assert not names_in(tmp_path)


def test_import_labels__copies_another_ensemble(tmp_path, frame):
    ensemble = read(frame)
    assert values_of(import_labels(ensemble, tmp_path / "e")) == values_of(ensemble)
    copy = import_labels(tmp_path / "e", tmp_path / "copy", chunk_rows=100)
    assert copy.chunk_rows == 100
    assert copy.names == ensemble.names
    assert values_of(copy) == values_of(ensemble) == values_of(Ensemble.from_labels(tmp_path / "e"))


@pytest.mark.parametrize(("n_objects", "n_partitions"), [(5, 600), (19, 190)])
def test_labels__of_few_objects_in_very_many_partitions_are_warned_of(n_objects, n_partitions, tmp_path):
    labels = np.random.default_rng(0).integers(0, 2, (n_objects, n_partitions))
    names = [f"p{number}" for number in range(n_partitions)]
    pd.DataFrame(labels, columns=names).to_csv(tmp_path / "t.csv", index=False)
    told = f"{n_objects} objects have labels in {n_partitions} partitions; transpose the table"
    for table in (labels, pd.DataFrame(labels, columns=names), tmp_path / "t.csv"):
        with pytest.warns(SuspiciousLabelsWarning, match=told):
            Ensemble.from_labels(table)
    Ensemble.from_labels(labels[:, : 10 * n_objects - 1])
    Ensemble.from_labels(np.random.default_rng(0).integers(0, 4, (40, 4000)))  # few samples, many resamplings
