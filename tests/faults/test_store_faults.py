"""Damage to stored labels is found and named, never read as labels; a kill leaves the old or the new."""

import errno
import os
import signal

import numpy as np
import pytest
import zarr
from pyarrow import parquet

from bigcons import Ensemble
from bigcons.disk import arrays
from bigcons.errors import CorruptStoreError, StoreError
from tests.support.deaths import survivor_of_writes
from tests.support.refusals import refused
from tests.support.stores import change_head, names_in, of_rows

LABELS = np.random.default_rng(0).integers(-1, 6, (4000, 30))
WIDE = np.random.default_rng(1).integers(-1, 300, (4000, 30))


@pytest.fixture(params=[LABELS, WIDE], ids=["int8", "int16"])
def store(request, tmp_path):
    Ensemble.from_labels(request.param).save(tmp_path / "e", chunk_rows=1024)
    return tmp_path / "e"


def chunk(store, row, column=0):
    return store / "labels" / "c" / str(row) / str(column)


def assert_found_by_read_and_verify(store, row):
    """The damaged chunk is named; the others are still read."""
    ensemble = Ensemble.open(store)
    for check in (lambda: ensemble.read(row * 1024, row * 1024 + 5), ensemble.verify):
        with refused(kind=CorruptStoreError) as caught:
            check()
        assert f"rows {row * 1024} to" in str(caught.value)
        assert "restore" in str(caught.value)
    other = (row + 1) % 4
    assert ensemble.read(other * 1024, other * 1024 + 5).shape == (5, 30)


@pytest.mark.parametrize("seed", range(6))
def test_read__finds_a_flipped_bit(store, seed):
    rng = np.random.default_rng(seed)
    row = int(rng.integers(4))
    data = bytearray(chunk(store, row).read_bytes())
    place, bit = int(rng.integers(len(data))), int(rng.integers(8))
    data[place] ^= 1 << bit
    chunk(store, row).write_bytes(data)
    assert_found_by_read_and_verify(store, row)


def test_read__tells_a_lost_chunk_from_missing_labels(tmp_path):
    labels = np.full((4096, 2), -1)
    labels[:10] = 0
    Ensemble.from_labels(labels).save(tmp_path / "e", chunk_rows=1024)
    ensemble = Ensemble.open(tmp_path / "e")
    assert (ensemble.read(1024, 4096) == -1).all()
    assert ensemble.verify()["n_chunks"] == 4
    chunk(tmp_path / "e", 3).unlink()
    with pytest.raises(CorruptStoreError, match="rows 3072 to 4096"):
        ensemble.read(3072, 4096)


def test_read__finds_swapped_chunks(store):
    kept = chunk(store, 0).read_bytes()
    chunk(store, 0).write_bytes(chunk(store, 2).read_bytes())
    chunk(store, 2).write_bytes(kept)
    assert_found_by_read_and_verify(store, 0)


@pytest.fixture
def named_store(tmp_path):
    of_rows([["a", 5], ["b", 6], ["a", 5]]).save(tmp_path / "e")
    return tmp_path / "e"


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_categories__damaged(named_store, damage):
    file = named_store / "categories.json"
    if damage == "remove":
        file.unlink()
    else:
        data = file.read_bytes()
        file.write_bytes(data[:-3] if damage == "cut" else data.replace(b"a", b"c", 1))
    with pytest.raises(CorruptStoreError, match="categories"):
        _ = Ensemble.open(named_store).categories


HOSTILE = {
    "n_objects": [10**12, float("inf"), 0, "3", 2.5],
    "names": [["a"], 3, ["0", 1]],
    "n_clusters": [[2, 10**6], [0, 2], [2, 2**80], [2.0, 2], [True, 2]],
    "n_labeled": [[3, 4], ["3", 3]],
    "dtype": ["object", "float32", "int64"],
    "chunk_rows": [10**12, 1],
    "digest": [..., 3],
    "provenance": [3],
    "files": [None, {"../x": 0}, {"categories.json": 0}],
}
CHANGES = [{name: value} for name, values in HOSTILE.items() for value in values]


@pytest.mark.parametrize("changes", [*CHANGES, {"n_objects": 10**15, "chunk_rows": 10**9}], ids=str)
def test_open__refuses_hostile_heads(named_store, changes):
    change_head(named_store, **changes)
    with refused(kind=CorruptStoreError):
        Ensemble.open(named_store).verify()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("action", ["append_objects", "append_partitions", "save"])
def test_write__on_a_full_disk_leaves_the_old_store(store, monkeypatch, action, code):
    ensemble = Ensemble.open(store, "a")
    before = ensemble.read(0, 4000)
    digest = arrays.rows_digest
    calls = iter(range(100))

    def full_at_the_third_chunk(*arguments):
        if next(calls) == 2:
            raise OSError(code, os.strerror(code))
        return digest(*arguments)

    monkeypatch.setattr(arrays, "rows_digest", full_at_the_third_chunk)
    write = {
        "append_objects": lambda: ensemble.append_objects(Ensemble.from_labels(LABELS)),
        "append_partitions": lambda: ensemble.append_partitions(Ensemble.from_labels(LABELS)),
        "save": lambda: ensemble.save(store, overwrite=True),
    }[action]
    with pytest.raises(StoreError, match=r"Writing .* failed: (No space left|Disk quota)"):
        write()
    monkeypatch.undo()
    assert names_in(store) == ["labels", "zarr.json"]
    assert names_in(store.parent) == ["e"]
    assert np.array_equal(Ensemble.open(store).read(0, 4000), before)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="kills as POSIX systems do")
@pytest.mark.parametrize(
    ("name", "action"),
    [("e", "save"), ("e", "append_objects"), ("e", "append_partitions"), ("e.parquet", "append_objects")],
)
def test_write__killed_at_any_moment_leaves_a_whole_store(tmp_path, name, action):
    """Each kill meets a store with labels in it; what is left passes verify and can be written to."""
    path = tmp_path / name
    for seconds in (0.02, 0.17, 0.32):
        survivor = survivor_of_writes(action, path, seconds)
        if name == "e":
            assert len(list(zarr.open_group(path, mode="r").arrays())) == 1
        else:  # what others read is the ensemble, too
            assert parquet.read_table(path).num_rows == survivor.n_objects
        survivor.append_objects(survivor.read(0, 1))
        assert survivor.verify()["ok"]
        survivor.save(path, overwrite=True)
        assert names_in(tmp_path) == [name]
