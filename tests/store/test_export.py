"""Exports of a consensus: what a file holds, that it is whole or not there, and that it comes back."""

import errno
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

from bigcons import Ensemble
from bigcons.disk.arrays import StoredArray
from bigcons.errors import InvalidInputError, StoreError, StoreExistsError
from tests.support.refusals import refused
from tests.support.stores import names_in, write_consensus

N_OBJECTS, N_CLUSTERS = 1000, 4
SUFFIXES = [".parquet", ".csv"]


@pytest.fixture
def solution():
    rng = np.random.default_rng(0)
    memberships = rng.dirichlet(np.full(N_CLUSTERS, 0.3), N_OBJECTS).astype(np.float32)
    labels = memberships.argmax(axis=1).astype(np.int32)
    labels[::7] = -1
    return labels, memberships


@pytest.fixture
def stored(tmp_path, solution):
    return write_consensus(tmp_path / "consensus.zarr", *solution, chunk_rows=64)


def table_of(path):
    """Read an export as a pandas frame, whatever its format."""
    return pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("memberships", [False, True])
def test_export__holds_labels_and_memberships(tmp_path, stored, solution, suffix, memberships):
    path = tmp_path / "made" / f"Labels{suffix}"
    path.parent.mkdir()
    stored.export(path, memberships=memberships)
    table = table_of(path)
    expected = [f"cluster_{k}" for k in range(N_CLUSTERS)] if memberships else []
    assert list(table) == ["label", *expected]
    np.testing.assert_array_equal(table["label"], solution[0])
    np.testing.assert_array_equal(table[expected].astype(np.float32), solution[1][:, : len(expected)])
    if suffix == ".csv":
        assert path.read_text().partition("\n")[0] == ",".join(table)
    else:
        assert table.dtypes.tolist() == [np.int32, *[np.float32] * len(expected)]
    assert names_in(path.parent) == [path.name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_export__can_be_imported_again(tmp_path, stored, solution, suffix):
    stored.export(tmp_path / f"l{suffix}")
    ensemble = Ensemble.from_labels(tmp_path / f"l{suffix}")
    assert ensemble.names == ["label"]
    np.testing.assert_array_equal(ensemble.read(0, N_OBJECTS)[:, 0], solution[0])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_export__reads_no_more_than_a_block(tmp_path, stored, monkeypatch, suffix):
    read = Mock(side_effect=StoredArray.read, autospec=True)
    monkeypatch.setattr(StoredArray, "read", lambda *given: read(*given))
    stored.export(tmp_path / f"l{suffix}", memberships=True)
    assert max(stop - start for _, start, stop in (call.args for call in read.call_args_list)) == 64


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "full")])
@pytest.mark.parametrize("before", [None, b"older"])
def test_export__that_fails_leaves_what_was_there(tmp_path, stored, monkeypatch, suffix, error, before):
    path = tmp_path / "out" / f"l{suffix}"
    path.parent.mkdir()
    if before is not None:
        path.write_bytes(before)
    original = StoredArray.read

    def fail_late(array, start, stop):
        if start > N_OBJECTS // 2:
            raise error
        return original(array, start, stop)

    monkeypatch.setattr(StoredArray, "read", fail_late)
    with pytest.raises((KeyboardInterrupt, StoreError)):
        stored.export(path, overwrite=True)
    assert {name: Path(path.parent, name).read_bytes() for name in names_in(path.parent)} == (
        {} if before is None else {path.name: before}
    )


def test_export__rejects_in_one_line(tmp_path, stored, solution):
    bare = write_consensus(tmp_path / "bare.zarr", solution[0], None)
    taken, folder = tmp_path / "taken.csv", tmp_path / "folder.csv"
    taken.write_text("mine")
    folder.mkdir()
    for consensus, path, options, error, message in [
        (stored, taken, {}, StoreExistsError, "taken.csv exists; pass overwrite=True"),
        (stored, folder, {"overwrite": True}, StoreExistsError, "is a folder; choose another path"),
        (stored, "l.npy", {}, InvalidInputError, r"suffix '.npy'; use .parquet or .csv"),
        (stored, "s3://bucket/l.csv", {}, InvalidInputError, "is a URL"),
        (bare, tmp_path / "new.csv", {"memberships": True}, InvalidInputError, "has labels only"),
    ]:
        with refused(message, error):
            consensus.export(path, **options)
    assert taken.read_text() == "mine"
    assert not (tmp_path / "new.csv").exists()
    stored.export(taken, overwrite=True)
    assert len(table_of(taken)) == N_OBJECTS
