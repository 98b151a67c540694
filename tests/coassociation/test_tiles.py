"""Pairs in tiles: where they may lie, how many, uniform, counted right, the same on any engine."""

import tracemalloc

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from bigcons import Ensemble, PairTable
from bigcons.cli import main
from bigcons.coassociation import sample, sampling
from bigcons.errors import InvalidInputError, MemoryBudgetError, StoreExistsError
from bigcons.memory import Block
from bigcons.run.engine import SerialEngine, ThreadsEngine
from bigcons.store.pairs import Rows
from tests.naive.agreement import counts as pair_counts

N_OBJECTS, N_PARTITIONS = 300, 9


def labels(n_objects=N_OBJECTS, seed=0):
    return np.random.default_rng(seed).integers(-2, 4, (n_objects, N_PARTITIONS)).clip(-1)


@given(n_blocks=st.integers(1, 40), degree=st.integers(2, 10), seed=st.integers(0, 99))
def test_block_graph__regular_simple_and_connected(n_blocks, degree, seed):
    others = sampling.block_graph(n_blocks, degree, np.random.default_rng(seed))
    expected = min(degree + degree * n_blocks % 2, n_blocks - 1) if degree < n_blocks - 1 else n_blocks - 1
    assert [len(known) for known in others] == [expected] * n_blocks
    assert all(a not in known and all(a in others[b] for b in known) for a, known in enumerate(others))
    reached = {0}
    for _ in range(n_blocks):
        reached |= {b for a in reached for b in others[a]}
    assert len(reached) == n_blocks


def test_block_graph__every_edge_is_equally_likely():
    counts = np.zeros((12, 12))
    for seed in range(400):
        for a, known in enumerate(sampling.block_graph(12, 4, np.random.default_rng(seed))):
            counts[a, list(known)] += 1
    assert chisquare(counts[np.triu_indices(12, 1)]).pvalue > 1e-3


@pytest.mark.parametrize(("a", "b"), [(0, 0), (0, 1), (1, 1)])
def test_draw_tile__distinct_ascending_and_uniform(a, b):
    blocks = [Block(0, 0, 9), Block(1, 9, 16)]
    size = sampling._tile_size(blocks[a], blocks[b])
    counts = np.zeros((16, 16))
    for seed in range(500):
        i, j = sampling.draw_tile(blocks[a], blocks[b], size // 3, seed)
        pairs = list(zip(i.tolist(), j.tolist(), strict=True))
        assert pairs == sorted(set(pairs))
        assert len(pairs) == size // 3
        counts[i + blocks[a].start, j + blocks[b].start] += 1
    assert np.count_nonzero(counts) == size
    assert chisquare(counts[counts > 0]).pvalue > 1e-3


def test_sample__tiles_hold_the_pairs_and_their_counts(tmp_path):
    x = labels()
    table = sample(x, n_pairs=2000, tiles=4, out=tmp_path / "p.zarr", random_state=1)
    i, j, n_agree, n_seen = table.edges()
    expected = np.array([pair_counts(x, a, b) for a, b in zip(i, j, strict=True)])
    np.testing.assert_array_equal(np.stack([n_agree, n_seen], axis=1), expected)
    assert table.rows_per_block == 8  # at most 14, the pairs of an object, and a power of two
    joined = np.zeros((38, 38), bool)
    joined[i // 8, j // 8] = joined[j // 8, i // 8] = True
    np.testing.assert_array_equal(joined.sum(axis=1), 5)  # itself and four others
    unseen = 2000 - table.n_pairs
    assert 0 <= unseen < 100
    assert table.verify()["n_pairs"] == table.n_pairs
    assert table.provenance["tiles"] == 4


def test_sample__every_pair_of_the_tiles(tmp_path):
    x = np.zeros((50, 3), int)
    table = sample(x, share=1, tiles=8, out=tmp_path / "p.zarr", random_state=0)
    assert table.n_pairs == 50 * 49 // 2
    assert (table.n_agree == 3).all()


def test_sample__tiles_are_the_same_on_any_engine(tmp_path):
    stored = Ensemble.from_labels(labels()).save(tmp_path / "e.zarr", chunk_rows=64)
    tables = [
        sample(x, per_object=10, tiles=2, out=tmp_path / f"p{n}.zarr", random_state=3, client=engine)
        for n, (x, engine) in enumerate(
            [(stored, SerialEngine()), (stored, ThreadsEngine(3)), (stored, "threads")]
        )
    ]
    for table in tables[1:]:
        for column, expected in zip(table.edges(), tables[0].edges(), strict=True):
            np.testing.assert_array_equal(column, expected)


def test_sample__out_without_tiles_is_the_saved_table(tmp_path):
    stored = sample(labels(), per_object=6, out=tmp_path / "p.zarr", random_state=3)
    table = sample(labels(), per_object=6, random_state=3)
    for column, expected in zip(stored.edges(), table.edges(), strict=True):
        np.testing.assert_array_equal(column, expected)
    assert stored.rows_per_block is None


def test_sample__takes_tiles_where_the_pairs_do_not_fit_and_says_so(tmp_path, caplog):
    with caplog.at_level("INFO", "bigcons"):
        table = sample(labels(), n_pairs=5000, out=tmp_path / "p.zarr", memory="500kB", random_state=0)
    assert table.provenance["sampled"] == "tiles"
    assert "5,000 pairs take 312 kB in memory, over the 250 kB" in caplog.text
    assert "in tiles" in caplog.text


def test_sample_command__takes_tiles_where_the_pairs_do_not_fit(tmp_path):
    Ensemble.from_labels(labels(3000)).save(tmp_path / "e.zarr")
    out = str(tmp_path / "p.zarr")
    command = ["sample", str(tmp_path / "e.zarr"), "-o", out, "--per-object", "20", "--memory", "3MB"]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    assert PairTable.open(out).provenance["sampled"] == "tiles"


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"tiles": 4}, InvalidInputError, "tiles=4 without out="),
        ({"tiles": 1, "out": "p.zarr"}, InvalidInputError, "tiles=1"),
        ({"tiles": "many", "out": "p.zarr"}, InvalidInputError, "tiles='many'"),
        (
            {"tiles": 2, "out": "p.zarr", "share": 0.5, "per_object": None, "memory": "1MB"},
            InvalidInputError,
            "more than the",
        ),
        ({"tiles": 2, "out": "p.zarr", "memory": 1000}, MemoryBudgetError, "raise the budget to"),
        ({"tiles": 2, "out": "p.zarr", "client": ThreadsEngine(40)}, MemoryBudgetError, "fewer workers"),
    ],
)
def test_sample__refuses_in_one_line_and_leaves_nothing(tmp_path, asked, error, message):
    asked = {"per_object": 5, **asked}
    if "out" in asked:
        asked["out"] = tmp_path / asked["out"]
    with pytest.raises(error) as caught:
        sample(labels(), **asked)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_sample__refuses_what_exists_before_any_work(tmp_path):
    (tmp_path / "p.zarr").mkdir()
    with pytest.raises(StoreExistsError):
        sample(labels(), per_object=5, out=tmp_path / "p.zarr")


@pytest.mark.parametrize("rows", [1, 7, 300])
def test_store_blocks__any_blocks_make_the_same_store(tmp_path, rows):
    table = sample(labels(), per_object=4, random_state=0)
    parts = (table.read(block.start, block.stop) for block in table.blocks(rows))
    dtype = table.n_seen.dtype
    stored = PairTable.store_blocks(
        tmp_path / "p.zarr", parts, n_objects=N_OBJECTS, counts_dtype=dtype, chunk_entries=50
    )
    stored.verify()
    for name in ("indptr", "indices", "n_agree", "n_seen"):
        np.testing.assert_array_equal(getattr(stored, name), getattr(table, name))


def test_store_blocks__refuses_parts_that_are_no_table(tmp_path):
    empty = np.empty(0, np.uint8)
    part = Rows(np.zeros(4, np.int64), np.empty(0, np.int32), empty, empty)
    with pytest.raises(ValueError, match="not the rows of a symmetric table"):
        PairTable.store_blocks(tmp_path / "p", [part], n_objects=4, counts_dtype=np.dtype(np.uint8))
    assert not list(tmp_path.iterdir())


def test_block_graph__of_a_fine_grid_holds_little_more_than_the_graph():
    """A small budget makes many blocks, and the draws that mix their graph come on top of it."""
    tracemalloc.start()
    try:
        others = sampling.block_graph(600, 8, np.random.default_rng(0))
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(map(len, others)) == 600 * 8
    assert peak < 2 * held
