"""More objects than 32 bits count: heads that claim three billion, of which a few at the end are there."""

import numpy as np
import pandas as pd
import pytest

from bigcons import Consensus, Ensemble, PairTable, coassociation
from bigcons.disk.arrays import StoredArray
from bigcons.disk.commit import read_head
from bigcons.disk.places import place_of
from bigcons.disk.schema import TRUST, id_arrays
from bigcons.errors import InvalidInputError
from bigcons.metrics import trust
from bigcons.run.survey import Drawing
from bigcons.seeding import draw_rows
from bigcons.store.ensemble_store import Header
from tests.support.stores import change_head, values_of, write_consensus

CHUNK, N_LAST = 1 << 16, 100
N_CHUNKS = 45_777
N = (N_CHUNKS - 1) * CHUNK + N_LAST
N_HELD = CHUNK + N_LAST


@pytest.fixture(scope="module")
def held():
    """The objects of two chunks, with numbers for ids."""
    rng = np.random.default_rng(0)
    labels = (rng.integers(4, size=(N_HELD, 1)) + (rng.random((N_HELD, 4)) < 0.1)) % 4
    return Ensemble.from_labels(pd.DataFrame(labels, np.arange(N_HELD) + (1 << 40)), id="index")


def move_to_the_end(path):
    """Make the second chunk of all arrays the last of three billion objects."""
    for array in path.iterdir():
        if (array / "c").is_dir():
            (array / "c" / "1").rename(array / "c" / str(N_CHUNKS - 1))
    crc32c = read_head(path).body["crc32c"].items()
    change_head(path, crc32c={name: of[:8] + "0" * 8 * (N_CHUNKS - 2) + of[8:] for name, of in crc32c})


@pytest.mark.parametrize("suffix", ["zarr", "parquet"])
def test_ensemble__reads_the_last_of_three_billion_objects(held, suffix, tmp_path):
    path = tmp_path / f"e.{suffix}"
    held.save(path, chunk_rows=CHUNK)
    changes = {"n_objects": N, "n_labeled": [N] * 4}
    move_to_the_end(path)
    if suffix == "parquet":
        (path / "part-00001.parquet").rename(path / f"part-{N_CHUNKS - 1}.parquet")
        first, last = read_head(path).body["footers"]
        changes["footers"] = [first] * (N_CHUNKS - 1) + [last]
    change_head(path, **changes)
    found = Ensemble.open(path)
    assert found.shape == (N, 4)
    assert found.blocks()[-1] == (N_CHUNKS - 1, N - N_LAST, N)
    np.testing.assert_array_equal(found.read(N - 5, N), held.read(N_HELD - 5, N_HELD))
    rows = np.array([N - 1, 3, N - N_LAST])
    np.testing.assert_array_equal(found.read_rows(rows), held.read_rows([N_HELD - 1, 3, CHUNK]))
    assert found.id_column.read(N - 5, N).to_pylist() == held.ids[-5:].tolist()
    few = found[rows]
    assert few.ids.tolist() == held.ids[[N_HELD - 1, 3, CHUNK]].tolist()
    assert values_of(few) == values_of(held[[N_HELD - 1, 3, CHUNK]])


def test_text_of_ids__is_read_beyond_two_billion_bytes(held, tmp_path):
    path = tmp_path / "e.zarr"
    held.save(path, chunk_rows=CHUNK)
    move_to_the_end(path)
    names = [f"object {N - N_LAST + row:,}" for row in range(N_LAST)]
    sizes, n_before = [len(name) for name in names], 30_000 << 20
    arrays = id_arrays("text", n_before + sum(sizes), N, CHUNK)
    parts = {
        "id_ends": n_before + np.cumsum(sizes),
        "id_text": np.frombuffer("".join(names).encode(), np.uint8),
    }
    body = read_head(path).body
    for (name, array), start in zip(arrays.items(), (N - N_LAST, n_before), strict=True):
        (((_, row), (_, sums)),) = (
            StoredArray.create(place_of(path / name), array).write(start, parts[name]).items()
        )
        body["crc32c"][name] = "0" * 8 * row + sums
    body["ids"] |= {"dtype": "text", "n_bytes": n_before + sum(sizes)}
    change_head(path, **body | {"n_objects": N, "n_labeled": [N] * 4})
    assert Ensemble.open(path).id_column.read(N - 5, N).to_pylist() == names[-5:]


def test_consensus__reads_the_last_of_three_billion_objects(held, tmp_path):
    path, labels = tmp_path / "c.zarr", held.read(0, N_HELD)[:, 0].astype(np.int32)
    memberships = np.eye(labels.max() + 1, dtype=np.float32)[labels]
    told = trust(held, labels)
    write_consensus(path, labels, memberships, trust=told, ids=held.id_column, chunk_rows=CHUNK)
    move_to_the_end(path)
    change_head(path, n_objects=N)
    found = Consensus.open(path)
    np.testing.assert_array_equal(found.read_labels(N - 5, N), labels[-5:])
    np.testing.assert_array_equal(found.dask_memberships()[N - 5 :].compute(), memberships[-5:])
    for name in TRUST:
        np.testing.assert_array_equal(getattr(found.trust_rows, name)[N - 5 :], getattr(told, name)[-5:])
    columns = found._exported(found.blocks()[-1], True, True, 0.5)
    assert columns[held.id_name].to_pylist() == held.ids[CHUNK:].tolist()
    assert {len(column) for column in columns.values()} == {N_LAST}


@pytest.mark.parametrize("is_balanced", [False, True])
def test_sample__is_drawn_from_all_of_three_billion_objects(is_balanced):
    """Of blocks far apart; the others are not read."""
    row = np.array([0, 1, 2], np.int8)
    header = Header(N, ["a", "b", "c"], row + 1, np.full(3, N), CHUNK, {})
    ensemble = Ensemble(np.broadcast_to(row, (N, 3)), header, [None] * 3)
    chosen = draw_rows(N, 50_000, 0, "s")
    assert chosen.dtype == np.int64
    assert (np.diff(chosen) > 0).all()
    assert np.quantile(chosen, [0.1, 0.5, 0.9]) / N == pytest.approx([0.1, 0.5, 0.9], abs=0.01)
    drawing = Drawing(ensemble, 0, 6_000, "s", is_balanced=is_balanced)
    blocks = ensemble.blocks()
    drawn = [drawing.of_block(b, ensemble.read(b.start, b.stop)) for b in (blocks[1], *blocks[-20:])]
    for part in drawn[1:]:
        drawn[0] = drawing.add(drawn[0], part)
    labels, rows, times, is_uniform = drawing.finish(drawn[0])
    assert (labels == row).all()
    assert (times > 0).all()
    assert rows.max() > N - 20 * CHUNK
    assert (np.diff(rows) > 0).all()
    assert is_uniform.all() != is_balanced


def test_pairs__of_more_objects_than_they_can_number_are_refused():
    row = np.zeros(2, np.int8)
    header = Header(N, ["a", "b"], np.array([1, 1]), np.full(2, N), CHUNK, {})
    ensemble = Ensemble(np.broadcast_to(row, (N, 2)), header, [None] * 2)
    with pytest.raises(InvalidInputError, match="give 2 to 2,147,483,647 objects"):
        coassociation.sample(ensemble, n_pairs=10, random_state=0)
    with pytest.raises(InvalidInputError, match="use 0 to 2,147,483,647"):
        PairTable.from_arrays([0], [N - 1], [1], [1], n_objects=N)
