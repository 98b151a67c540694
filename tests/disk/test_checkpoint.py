"""Checkpoints come back as they were written, or are refused."""

import io

import numpy as np
import pytest

from bigcons.disk import checkpoint
from bigcons.disk.checkpoint import FileBlocks, Snapshots
from bigcons.errors import CorruptStoreError, InvalidInputError
from bigcons.memory import Block
from bigcons.run.passes import MemoryBlocks
from tests.support.refusals import refused
from tests.support.stores import names_in

BLOCK = Block(2, 10, 15)
ROWS = np.arange(15, dtype=np.float32).reshape(5, 3)


@pytest.fixture(params=["memory", "files"])
def arrays(request, tmp_path):
    return MemoryBlocks() if request.param == "memory" else FileBlocks(tmp_path, 3)


def test_blocks__round_trip_by_generation(arrays):
    arrays.write(0, BLOCK, ROWS)
    arrays.write(1, BLOCK, ROWS + 1)
    arrays.write(1, BLOCK, ROWS + 2)
    np.testing.assert_array_equal(arrays.read(0, BLOCK), ROWS)
    np.testing.assert_array_equal(arrays.read(1, BLOCK), ROWS + 2)
    arrays.drop([0, 5])
    np.testing.assert_array_equal(arrays.read(1, BLOCK), ROWS + 2)
    with pytest.raises((KeyError, CorruptStoreError)):
        arrays.read(0, BLOCK)


@pytest.mark.parametrize("cut", [lambda c: c[:-1], lambda c: c[1:], lambda c: b"", lambda c: b"\1" + c[1:]])
def test_file_blocks__reject_damage(tmp_path, cut):
    arrays = FileBlocks(tmp_path, 3)
    arrays.write(0, BLOCK, ROWS)
    file = tmp_path / "generation-0" / "block-2"
    file.write_bytes(cut(file.read_bytes()))
    with pytest.raises(CorruptStoreError, match=r"block-2 is (damaged|truncated)"):
        arrays.read(0, BLOCK)


@pytest.mark.parametrize(
    ("generation", "index", "run"), [(1, 2, bytes(16)), (0, 3, bytes(16)), (0, 2, b"x" * 16)]
)
def test_file_blocks__reject_whole_blocks_of_others(tmp_path, generation, index, run):
    """A block exchanged with another, with that of the generation before, or with that of another solve."""
    FileBlocks(tmp_path / "other", 3, run=run).write(generation, Block(index, 10, 15), ROWS)
    arrays = FileBlocks(tmp_path / "own", 3)
    arrays.write(0, BLOCK, ROWS)
    (tmp_path / f"other/generation-{generation}/block-{index}").replace(tmp_path / "own/generation-0/block-2")
    with pytest.raises(CorruptStoreError, match="of another pass, place or run") as caught:
        arrays.read(0, BLOCK)
    assert caught.value.path.endswith("block-2")


def test_snapshots__are_replaced_atomically(tmp_path):
    snapshots = Snapshots(tmp_path, {"k": 3, "path": tmp_path})
    assert not snapshots.exists()
    assert snapshots.load() is None
    snapshots.save({"a": ROWS}, {"passes": 1})
    snapshots.save({"b": ROWS + 1}, {"passes": 2, "gap": 0.5})
    assert snapshots.exists()
    kept = Snapshots(tmp_path, {"k": 3, "path": tmp_path}).load()
    arrays, facts = kept.arrays, kept.facts
    assert facts == {"passes": 2, "gap": 0.5}
    assert list(arrays) == ["b"]
    np.testing.assert_array_equal(arrays["b"], ROWS + 1)
    assert names_in(tmp_path) == ["snapshot.npz"]


def test_snapshots__that_fail_leave_the_last_one(tmp_path, monkeypatch):
    snapshots = Snapshots(tmp_path, {})
    snapshots.save({"a": ROWS}, {"passes": 1})
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        snapshots.save({"a": ROWS}, {"passes": 2})
    assert snapshots.load().facts == {"passes": 1}
    assert names_in(tmp_path) == ["snapshot.npz"]


def rewrite(file, change):
    """Change what a snapshot holds, under a right seal."""
    content = file.read_bytes()[: -checkpoint.SEAL_BYTES]
    with np.load(io.BytesIO(content)) as members:
        arrays = dict(members)
    new = io.BytesIO()
    (change(arrays) or np.savez)(new, **arrays)
    file.write_bytes(new.getvalue() + checkpoint._hash(new.getvalue()))


def test_snapshots__reject_another_solve_another_format_and_damage(tmp_path):
    snapshots = Snapshots(tmp_path, {"k": 3, "seed": 0})
    snapshots.save({"a": ROWS}, {})
    with pytest.raises(InvalidInputError, match="with k=3, not 4"):
        Snapshots(tmp_path, {"k": 4, "seed": 0}).load()
    file = tmp_path / "snapshot.npz"
    whole = file.read_bytes()
    for damage in (whole[:-20], whole[1:], whole[:99] + bytes([whole[99] ^ 1]) + whole[100:], b""):
        file.write_bytes(damage)
        with pytest.raises(CorruptStoreError, match="is damaged"):
            snapshots.load()
    file.write_bytes(whole)

    def other_format(arrays):
        head = arrays["facts"].tobytes().replace(b'"format": ', b'"format": 2')
        arrays["facts"] = np.frombuffer(head, np.uint8)

    rewrite(file, other_format)
    with refused(r"with format=2\d+, not \d+; repeat the call .* same version"):
        snapshots.load()
