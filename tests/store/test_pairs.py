"""PairTable: symmetric rows from pairs in any order, and the same table back from disk."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigcons import PairTable
from bigcons.disk.arrays import StoredArray
from bigcons.errors import InvalidInputError, StoreNotFoundError
from tests.support.refusals import refused

COLUMNS = ("indptr", "indices", "n_agree", "n_seen")
N_OBJECTS = 12


@st.composite
def pair_lists(draw, most=300):
    """Distinct pairs of N_OBJECTS objects, either way round and in any order, with their counts."""
    two = st.tuples(st.integers(0, N_OBJECTS - 1), st.integers(0, N_OBJECTS - 1))
    pairs = draw(st.lists(two.filter(lambda p: p[0] != p[1]), unique_by=frozenset))
    counts = [sorted(draw(st.tuples(st.integers(0, most), st.integers(0, most)))) for _ in pairs]
    return [(*pair, *count) for pair, count in zip(pairs, counts, strict=True)]


def table_of(rows, **options):
    return PairTable.from_arrays(*np.array(rows, dtype=int).reshape(-1, 4).T, n_objects=N_OBJECTS, **options)


def a_table():
    rng = np.random.default_rng(0)
    i, j = np.triu_indices(N_OBJECTS, 1)
    n_seen = rng.integers(0, 90, len(i))
    return PairTable.from_arrays(
        i, j, rng.integers(0, n_seen + 1), n_seen, n_objects=N_OBJECTS, provenance={"made": "by hand"}
    )


def assert_same_table(table, expected):
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(table, name), getattr(expected, name))
        assert getattr(table, name).dtype == getattr(expected, name).dtype
    assert (table.n_objects, table.n_pairs) == (expected.n_objects, expected.n_pairs)
    assert table.provenance == expected.provenance


@given(rows=pair_lists())
def test_from_arrays__every_seen_pair_at_both_ends_ascending(rows):
    table = table_of(rows)
    expected = [[] for _ in range(N_OBJECTS)]
    for i, j, n_agree, n_seen in rows:
        if n_seen:
            expected[i].append((j, n_agree, n_seen))
            expected[j].append((i, n_agree, n_seen))
    for r, row in enumerate(expected):
        part = slice(table.indptr[r], table.indptr[r + 1])
        got = zip(table.indices[part], table.n_agree[part], table.n_seen[part], strict=True)
        assert list(got) == sorted(row)
    table.verify()


@given(rows=pair_lists())
def test_edges__give_the_table_back(rows):
    table = table_of(rows)
    edges = table.edges()
    seen = sorted((min(i, j), max(i, j), a, s) for i, j, a, s in rows if s)
    assert list(zip(*(column.tolist() for column in edges), strict=True)) == seen
    assert_same_table(PairTable.from_arrays(*edges, n_objects=N_OBJECTS), table)


@given(rows=pair_lists(), ends=st.tuples(st.integers(0, N_OBJECTS), st.integers(0, N_OBJECTS)))
def test_read__is_a_range_of_rows(rows, ends):
    table, (start, stop) = table_of(rows), sorted(ends)
    part = table.read(start, stop)
    np.testing.assert_array_equal(part.indptr, table.indptr[start : stop + 1] - table.indptr[start])
    entries = slice(table.indptr[start], table.indptr[stop])
    for name in COLUMNS[1:]:
        np.testing.assert_array_equal(getattr(part, name), getattr(table, name)[entries])


@settings(max_examples=12)
@given(rows=pair_lists(), chunk_entries=st.sampled_from([7, 1 << 20]))
def test_save__round_trip(rows, chunk_entries, tmp_path_factory):
    path = tmp_path_factory.mktemp("pairs") / "pairs.zarr"
    table = table_of(rows, provenance={"seed": 3})
    table._chunk_entries = chunk_entries
    stored = table.save(path)
    for block in stored.blocks(5):
        for got, expected in zip(
            stored.read(block.start, block.stop), table.read(block.start, block.stop), strict=True
        ):
            np.testing.assert_array_equal(got, expected)
    stored.verify()
    assert_same_table(stored, table)
    assert_same_table(pickle.loads(pickle.dumps(stored)), table)
    assert_same_table(stored.save(path, overwrite=True), table)


@pytest.mark.parametrize("n_objects", [0, 1, 5])
def test_save__without_pairs(n_objects, tmp_path):
    table = PairTable.from_arrays([], [], [], [], n_objects=n_objects).save(tmp_path / "pairs.zarr")
    table.verify()
    assert table.n_pairs == len(table.edges().i) == 0
    assert table.indptr.tolist() == [0] * (n_objects + 1)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(0, 0, 1, 1)], "pair 0 has i=0, j=0, but a pair has two different objects"),
        (
            [(0, 1, 1, 1), (0, N_OBJECTS, 1, 1)],
            f"pair 1 has i=0, j={N_OBJECTS}, but objects are numbered 0 to",
        ),
        ([(-1, 1, 1, 1)], "i=-1, j=1"),
        ([(0, 1, 2, 1)], "n_agree=2, n_seen=1"),
        ([(0, 1, -1, 1)], "n_agree=-1"),
        ([(0, 1, 1, 70_000)], "n_seen=70000"),
        ([(3, 7, 1, 1), (0, 1, 1, 1), (7, 3, 1, 1)], "i=3, j=7, but each pair must be given once"),
    ],
)
def test_from_arrays__rejects_in_one_line(rows, message):
    with refused(message):
        table_of(rows)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (([0], [1], [1], [1, 1]), "differ in length"),
        (([0], [1], [0.5], [1]), "n_agree .* integers"),
        (([0], [1], [[1]], [1]), "n_agree has shape"),
        ((["a"], [1], [1], [1]), "i has .* integers"),
    ],
)
def test_from_arrays__rejects_columns(columns, message):
    with pytest.raises(InvalidInputError, match=message):
        PairTable.from_arrays(*columns, n_objects=5)


@pytest.mark.parametrize("read", [PairTable.open, PairTable.from_table])
@pytest.mark.parametrize("name", ["absent", "absent.parquet"])
def test_open__nothing_there(read, name, tmp_path):
    with pytest.raises(StoreNotFoundError, match="check the path"):
        read(tmp_path / name)


def test_open__reads_nothing_until_asked(tmp_path, monkeypatch):
    a_table().save(tmp_path / "pairs.zarr")
    monkeypatch.setattr(StoredArray, "read", lambda *_: pytest.fail("read an array"))
    table = PairTable.open(tmp_path / "pairs.zarr")
    assert table.n_pairs > 0
    table.info()
    repr(table)
