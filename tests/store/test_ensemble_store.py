"""The label matrix on disk: what is written comes back, appends included; files are read by blocks."""

import json
import pickle
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from bigcons import Ensemble
from bigcons.disk import commit
from bigcons.errors import CorruptStoreError, InvalidInputError, StoreExistsError, StoreNotFoundError
from tests.support.stores import change_head, of_rows, values_of
from tests.support.strategies import label_matrices, label_tables

SOME = np.array([[0, 5, -1], [1, 5, 2], [-1, 7, 0], [2, 9, 1]])


@given(label_tables(), st.integers(1, 4))
def test_save__round_trip(rows, chunk_rows):
    ensemble = of_rows(rows)
    with tempfile.TemporaryDirectory() as directory:
        stored = ensemble.save(Path(directory, "e.zarr"), chunk_rows=chunk_rows)
        assert values_of(stored) == rows
        assert stored.names == ensemble.names
        assert stored.dtype == ensemble.dtype
        assert stored.chunk_rows == chunk_rows
        assert stored.missing_share == ensemble.missing_share
        assert stored.provenance == ensemble.provenance
        assert stored.verify()["ok"]


@given(label_matrices(max_objects=9), st.integers(0, 9), st.integers(0, 9), st.integers(1, 4))
def test_read__any_rows_of_any_chunks(labels, start, stop, chunk_rows):
    stop = min(stop, len(labels))
    start = min(start, stop)
    ensemble = Ensemble.from_labels(labels)
    with tempfile.TemporaryDirectory() as directory:
        stored = ensemble.save(Path(directory, "e.zarr"), chunk_rows=chunk_rows)
        assert np.array_equal(stored.read(start, stop), ensemble.read(start, stop))
        rows = np.arange(start, stop)[::-1]
        assert np.array_equal(stored.read_rows(rows), ensemble.read_rows(rows))


@given(label_tables(), st.data())
def test_append__to_a_store_equals_append_in_memory(rows, data):
    cut = data.draw(st.integers(1, len(rows)))
    column = data.draw(st.integers(1, len(rows[0])))
    head = [row[:column] for row in rows[:cut]]
    if any(all(value is None for value in labels) for labels in zip(*head, strict=True)):
        return
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "e.zarr")
        memory = of_rows(head)
        memory.save(path, chunk_rows=data.draw(st.integers(1, 4)))
        stored = Ensemble.open(path, "a")
        for ensemble in (memory, stored):
            if cut < len(rows):
                ensemble.append_objects([row[:column] for row in rows[cut:]])
            if column < len(rows[0]):
                ensemble.append_partitions([row[column:] for row in rows])
        assert np.array_equal(stored.read(0, len(rows)), memory.read(0, len(rows)))
        for ensemble in (stored, Ensemble.open(path)):
            assert values_of(ensemble) == rows
            assert ensemble.verify()["ok"]


@pytest.mark.parametrize("n_rows", [1, 255, 511, 512, 513, 1000])
def test_read__checks_every_row_against_its_partition(tmp_path, n_rows):
    """A label one too high, or negative, is found wherever it is; kernels index with what is read."""
    labels = np.random.default_rng(0).integers(0, 4, (n_rows, 3))
    labels[0] = 3
    path = tmp_path / "e"
    stored = Ensemble.from_labels(labels, names=["a", "b", "c"]).save(path, chunk_rows=n_rows)
    array = zarr.open_array(str(path / "labels"), mode="r+")
    for row in {0, n_rows // 2, n_rows - 1}:
        good = array[row, 1]
        for bad in (stored.n_clusters[1], -2):
            array[row, 1] = bad
            change_head(path, crc32c={"labels": (path / "labels/c/0/0").read_bytes()[-4:].hex()})
            with pytest.raises(CorruptStoreError, match="is negative or exceeds the number of clusters"):
                Ensemble.open(path).read(0, n_rows)
        array[row, 1] = good


@pytest.mark.parametrize("n_before", [100, 128, 200, 256])
def test_append_partitions__beyond_one_chunk_of_columns(tmp_path, n_before):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, (50, 300))
    labels[:3] = [[0], [1], [2]]
    Ensemble.from_labels(labels[:, :n_before]).save(tmp_path / "e", chunk_rows=16)
    stored = Ensemble.open(tmp_path / "e", "a")
    stored.append_partitions(labels[:, n_before:])
    assert np.array_equal(stored.read(0, 50), labels)
    assert stored.verify()["n_chunks"] == 4 * 3


def test_save__never_replaces_another_folder(tmp_path):
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "thesis.tex").write_text("years of work")
    with pytest.raises(StoreExistsError, match="not a bigcons store"):
        Ensemble.from_labels(SOME).save(tmp_path / "e", overwrite=True)
    assert (tmp_path / "e" / "thesis.tex").read_text() == "years of work"


def test_save__of_a_store_over_itself(tmp_path):
    stored = Ensemble.from_labels(SOME).save(tmp_path / "e")
    again = stored.save(tmp_path / "e", chunk_rows=2, overwrite=True)
    assert again.chunk_rows == 2
    assert values_of(again) == values_of(Ensemble.from_labels(SOME))


def test_open__says_what_is_wrong(tmp_path):
    with commit.new_store(tmp_path / "p") as directory:
        commit.write_head(directory, "pairs", {})
    kinds = {"nothing": "does not exist", "": "not a bigcons store", "p": "is a table of pairs"}
    for name, words in kinds.items():
        with pytest.raises(StoreNotFoundError, match=words):
            Ensemble.open(tmp_path / name)
    with pytest.raises(InvalidInputError, match="mode='w'"):
        Ensemble.open(tmp_path, mode="w")
    with pytest.raises(InvalidInputError, match="not a supported URL"):
        Ensemble.open("https://example.org/ensemble.zarr")


def test_open__reads_from_many_threads(tmp_path):
    labels = np.random.default_rng(0).integers(-1, 5, (5000, 7))
    stored = Ensemble.from_labels(labels).save(tmp_path / "e", chunk_rows=256)
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda block: stored.read(block.start, block.stop), stored.blocks(64) * 3))
    assert np.array_equal(np.concatenate(parts), np.vstack([stored.read(0, 5000)] * 3))


def test_pickle__of_a_stored_ensemble_opens_it_again(tmp_path):
    stored = Ensemble.from_labels(SOME).save(tmp_path / "e")
    data = pickle.dumps(stored)
    assert len(data) < 1000
    assert values_of(pickle.loads(data)) == values_of(stored)


@pytest.mark.parametrize("is_stored", [False, True])
def test_ensemble__is_an_array_of_its_labels(tmp_path, is_stored):
    ensemble = Ensemble.from_labels(SOME)
    expected = ensemble.read(0, 4).copy()
    if is_stored:
        ensemble = ensemble.save(tmp_path / "e", chunk_rows=2)
    assert (ensemble.shape, len(ensemble)) == ((4, 3), 4)
    labels = np.asarray(ensemble)
    assert (labels.shape, labels.dtype) == (ensemble.shape, ensemble.dtype)
    np.testing.assert_array_equal(labels, expected)
    assert np.asarray(ensemble, dtype=np.float64).dtype == np.float64
    np.array(ensemble)[...] = 7  # a copy
    np.testing.assert_array_equal(ensemble.read(0, 4), expected)


def test_info__is_json_and_reads_no_labels(tmp_path):
    stored = Ensemble.from_labels(SOME).save(tmp_path / "<e>", chunk_rows=2)
    for chunk in (tmp_path / "<e>/labels/c").rglob("0"):
        if chunk.is_file():
            chunk.unlink()
    info = json.loads(json.dumps(stored.info()))
    expected = {"n_objects": 4, "n_partitions": 3, "chunk_rows": 2, "path": str(tmp_path / "<e>")}
    assert info.items() >= expected.items()
    assert info["missing_share"] == pytest.approx(2 / 12)
    assert str(tmp_path / "<e>") in repr(stored)
