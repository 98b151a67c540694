"""Damage to a stored table of pairs ends in an error, never in numbers."""

import json

import numpy as np
import pytest

from bigcons import PairTable
from bigcons.disk import commit
from bigcons.errors import BigconsError, CorruptStoreError
from tests.support.stores import change_head

N_OBJECTS = 40
COLUMNS = ("indptr", "indices", "n_agree", "n_seen")


@pytest.fixture
def store(tmp_path):
    rng = np.random.default_rng(0)
    i, j = (ends[::13] for ends in np.triu_indices(N_OBJECTS, 1))
    n_seen = rng.integers(1, 100, len(i))
    table = PairTable.from_arrays(i, j, rng.integers(0, n_seen + 1), n_seen, n_objects=N_OBJECTS)
    table._chunk_entries = 16
    table.save(tmp_path / "pairs.zarr")
    return tmp_path / "pairs.zarr"


def chunk_of(store, name):
    return sorted((store / name / "c").iterdir())[1]


def assert_refused(store, name):
    """Neither a range of rows, nor a whole array, nor a check may pass."""
    for read in (lambda pairs: pairs.read(0, 40), lambda pairs: getattr(pairs, name), PairTable.verify):
        with pytest.raises(CorruptStoreError):
            read(PairTable.open(store))


@pytest.mark.parametrize("name", COLUMNS)
def test_read__flipped_bits(store, name):
    chunk = chunk_of(store, name)
    content = chunk.read_bytes()
    for position in np.random.default_rng(0).integers(8 * len(content), size=10):
        flipped = bytearray(content)
        flipped[position // 8] ^= 1 << (position % 8)
        chunk.write_bytes(flipped)
        assert_refused(store, name)


def test_open__inconsistent_head(store):
    head = commit.read_head(store).body
    for change in (
        *({"n_objects": -1}, {"n_objects": 2**40}, {"n_pairs": "many"}, {"counts_dtype": "object"}),
        *({"chunk_entries": 0}, {"digest": {}}, {"provenance": None}),
    ):
        change_head(store, **{**head, **change})
        with pytest.raises(CorruptStoreError, match="is inconsistent"):
            PairTable.open(store)


def test_parquet__flipped_bits(store):
    path = store.parent / "pairs.parquet"
    table = PairTable.open(store)
    table.to_parquet(path)
    content = path.read_bytes()
    outcomes = []
    for position in np.random.default_rng(0).integers(8 * len(content), size=60):
        flipped = bytearray(content)
        flipped[position // 8] ^= 1 << (position % 8)
        path.write_bytes(flipped)
        try:
            edges = PairTable.open(path).edges()
        except BigconsError:
            outcomes.append("refused")
        else:  # the bit was in a name, a statistic or a header that nobody needs
            np.testing.assert_array_equal(np.stack(edges), np.stack(table.edges()))
            outcomes.append("harmless")
    assert outcomes.count("refused") > len(outcomes) / 2


@pytest.mark.parametrize("name", COLUMNS)
def test_verify__finds_damaged_metadata_which_nobody_needs_to_read(store, name):
    path, before = store / name / "zarr.json", PairTable.open(store).edges()
    text = path.read_text()
    for damaged in (None, text[:40], json.dumps(json.loads(text) | {"shape": [10**12]})):
        path.unlink() if damaged is None else path.write_text(damaged)
        np.testing.assert_array_equal(PairTable.open(store).edges(), before)
        with pytest.raises(CorruptStoreError, match=name):
            PairTable.open(store).verify()
