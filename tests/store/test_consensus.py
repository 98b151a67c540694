"""Consensus: what was written comes back, and damage never passes for data."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigcons.disk import commit
from bigcons.errors import CorruptStoreError, InvalidInputError
from bigcons.metrics import trust
from bigcons.store.consensus import Consensus
from tests.support.stores import change_head, write_consensus

N_OBJECTS, N_CLUSTERS, CHUNK_ROWS = 25, 3, 8


def a_solution(seed=0, n_objects=N_OBJECTS, n_clusters=N_CLUSTERS):
    rng = np.random.default_rng(seed)
    memberships = rng.dirichlet(np.full(n_clusters, 0.3), n_objects).astype(np.float32)
    labels = memberships.argmax(axis=1).astype(np.int32)
    labels[:1] = -1
    return labels, memberships


@pytest.fixture
def stored(tmp_path):
    labels, memberships = a_solution()
    return write_consensus(
        tmp_path / "consensus.zarr",
        labels,
        memberships,
        history={"pass": [1, 2], "objective": np.array([3.5, 2.5]), "gap": [math.inf, 0.1]},
        parameters={"method": "PCC", "init": np.zeros((2, 2)), "tol": np.float64(1e-3)},
        results={"objective": 2.5},
        provenance={"ensemble": "ensemble.zarr"},
        chunk_rows=CHUNK_ROWS,
    )


def chunk_files(consensus, array):
    return sorted(path for path in (Path(consensus.path) / array / "c").rglob("*") if path.is_file())


@settings(max_examples=15)
@given(
    n_objects=st.integers(1, 40),
    n_clusters=st.integers(1, 5),
    chunk_rows=st.integers(1, 50),
    seed=st.integers(0, 99),
)
def test_consensus__round_trip(tmp_path_factory, n_objects, n_clusters, chunk_rows, seed):
    labels, memberships = a_solution(seed, n_objects, n_clusters)
    path = tmp_path_factory.mktemp("store") / "c.zarr"
    write_consensus(path, labels, memberships, chunk_rows=chunk_rows)
    opened = Consensus.open(path)
    np.testing.assert_array_equal(opened.labels, labels)
    np.testing.assert_array_equal(opened.memberships, memberships)
    assert (opened.labels.dtype, opened.memberships.dtype) == (np.int32, np.float32)
    np.testing.assert_array_equal(opened.label_rows[3:20], labels[3:20])
    np.testing.assert_array_equal(opened.membership_rows[3:99, :1], memberships[3:, :1])
    assert (opened.label_rows.shape, opened.membership_rows.shape) == (labels.shape, memberships.shape)
    assert opened.verify()["n_unlabeled"] == np.count_nonzero(labels < 0)
    blocks = [opened.read_memberships(block.start, block.stop) for block in opened.blocks(7)]
    np.testing.assert_array_equal(np.concatenate(blocks), memberships)


def test_consensus__keeps_history_parameters_and_provenance_and_shows_itself(stored):
    opened = Consensus.open(stored.path)
    assert opened.history == {"pass": [1, 2], "objective": [3.5, 2.5], "gap": [None, 0.1]}
    assert opened.parameters == {"method": "PCC", "init": "array (2, 2) float64", "tol": 1e-3}
    assert opened.results == {"objective": 2.5}
    assert opened.provenance == {"ensemble": "ensemble.zarr"}
    assert json.loads(json.dumps(opened.info()))["n_objects"] == N_OBJECTS
    assert repr(stored).startswith("<Consensus by PCC: 25 objects, 3 clusters")


def test_create__accepts_blocks_in_any_order(tmp_path):
    labels, memberships = a_solution()
    with Consensus.create(
        tmp_path / "c.zarr", n_objects=N_OBJECTS, n_clusters=N_CLUSTERS, chunk_rows=CHUNK_ROWS
    ) as writer:
        for start, stop in ((16, 25), (0, 16)):
            writer.write(start, labels[start:stop], memberships[start:stop])
    opened = Consensus.open(tmp_path / "c.zarr")
    opened.verify()
    np.testing.assert_array_equal(opened.memberships, memberships)


def test_create__leaves_nothing_when_rows_are_missing(tmp_path):
    labels, memberships = a_solution()
    with (
        pytest.raises(InvalidInputError, match="6 of 8 chunks were not written"),
        Consensus.create(
            tmp_path / "c.zarr", n_objects=N_OBJECTS, n_clusters=N_CLUSTERS, chunk_rows=CHUNK_ROWS
        ) as writer,
    ):
        writer.write(0, labels[:CHUNK_ROWS], memberships[:CHUNK_ROWS])
    assert not list(tmp_path.iterdir())


def test_verify__rejects_memberships_off_the_simplex(tmp_path):
    labels, memberships = a_solution()
    memberships[3] *= 2
    stored = write_consensus(tmp_path / "c.zarr", labels, memberships)
    with pytest.raises(CorruptStoreError, match="off the simplex"):
        stored.verify()


def test_a_consensus_of_labels_only(tmp_path):
    labels, _ = a_solution()
    path = tmp_path / "labels.zarr"
    with Consensus.create(
        path, n_objects=N_OBJECTS, n_clusters=N_CLUSTERS, chunk_rows=CHUNK_ROWS, memberships=False
    ) as writer:
        writer.write(0, labels)
    stored = Consensus.open(path)
    assert not stored.has_memberships
    assert not (path / "memberships").exists()
    np.testing.assert_array_equal(stored.labels, labels)
    assert stored.verify()["n_unlabeled"] == 1
    with pytest.raises(InvalidInputError, match="labels only"):
        _ = stored.memberships


@pytest.mark.parametrize("is_lost", [True, False])
def test_read__names_the_rows_of_the_damaged_chunk_and_what_to_do(stored, is_lost):
    for name in ("memberships", "labels"):
        chunk = chunk_files(stored, name)[1]
        assert len(chunk_files(stored, name)) == 4
        chunk.unlink() if is_lost else chunk.write_bytes(b"damage")
    for read in (lambda: np.asarray(stored.memberships), lambda: stored.read_labels(3, N_OBJECTS)):
        with pytest.raises(CorruptStoreError, match=r"rows 8 to 16 .*restore it from a copy"):
            read()


@pytest.fixture
def trusted(tmp_path):
    """Return a consensus that says which labels to trust, and what it was given."""
    rng = np.random.default_rng(0)
    labels = np.concatenate([[-1], rng.integers(0, 3, N_OBJECTS - 1)])
    found = trust(rng.integers(-1, 4, (N_OBJECTS, 3)), labels, client="serial")
    return write_consensus(tmp_path / "t.zarr", labels, None, trust=found, chunk_rows=CHUNK_ROWS), found


def test_trust__comes_back(trusted, tmp_path):
    stored, found = trusted
    assert stored.has_trust
    again = Consensus.open(stored.path).trust
    for name in ("confidence", "second_labels", "second_confidence"):
        assert getattr(again, name).tobytes() == getattr(found, name).tobytes()
    assert again[3:] == found[3:]
    assert stored.verify()["n_unlabeled"] == 1
    rows = stored.to_arrow()
    assert rows.column_names == ["label", "confidence", "second_labels", "second_confidence"]
    assert rows["confidence"].to_numpy().tobytes() == found.confidence.tobytes()


def test_trust__of_a_store_without_it_is_refused(stored, tmp_path):
    assert not stored.has_trust
    for read in (lambda: stored.trust, lambda: stored.export(tmp_path / "t.csv", confidence=True)):
        with pytest.raises(InvalidInputError, match="does not say which labels to trust"):
            read()
    assert not (tmp_path / "t.csv").exists()


@pytest.mark.parametrize(
    "damage",
    [{"temperature": 2.0}, {"clusters": {}}, {"clusters": 3}, {"partitions": {"partition": [1]}},
     {"cluster": 2**31}, {"cluster": -1}],
)  # fmt: skip
def test_trust__that_is_inconsistent_is_refused(trusted, damage):
    stored, _ = trusted
    told, damage = commit.read_head(stored.path).body["trust"], dict(damage)
    if "cluster" in damage:
        told["clusters"]["cluster"][0] = damage.pop("cluster")
    change_head(stored.path, trust=told | damage)
    with pytest.raises(CorruptStoreError, match="is inconsistent"):
        Consensus.open(stored.path)


@pytest.mark.parametrize(
    "change",
    [{"n_objects": 0}, {"n_objects": "9"}, {"n_clusters": None}, {"chunk_rows": 0}, {"digest": 3},
     {"history": 3}, {"provenance": None}, {"parameters": [1]}, {"trust": ...}, {"results": ...},
     {"files": None}],
    ids=str,
)  # fmt: skip
def test_open__rejects_an_inconsistent_head(stored, change):
    change_head(stored.path, **change)
    with pytest.raises(CorruptStoreError, match="is inconsistent"):
        Consensus.open(stored.path)
