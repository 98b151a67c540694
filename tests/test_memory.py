"""Sizes, budgets and row blocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons.errors import InvalidInputError, MemoryBudgetError
from bigcons.memory import DataBudget, enough_for, format_size, parse_size, row_blocks, rows_within


@given(st.integers(0, 500), st.integers(1, 60))
def test_row_blocks__cover_every_row_once_in_order(n_rows, rows_per_block):
    blocks = row_blocks(n_rows, rows_per_block)
    assert [row for block in blocks for row in range(block.start, block.stop)] == list(range(n_rows))
    assert [block.index for block in blocks] == list(range(len(blocks)))
    assert all(block.n_rows == rows_per_block for block in blocks[:-1])
    assert all(0 < block.n_rows <= rows_per_block for block in blocks)


@pytest.mark.parametrize(
    ("size", "expected"),
    [(1000, 1000), (2.5e9, 2_500_000_000), ("1234", 1234), ("7B", 7), ("1kB", 1000), ("2GB", 2 * 10**9),
     ("2G", 2 * 10**9), ("1.5 MB", 1_500_000), (" 512 MiB ", 512 * 2**20), ("3kib", 3072), ("1TiB", 2**40)],
)  # fmt: skip
def test_parse_size__accepts_bytes_and_units(size, expected):
    assert parse_size(size) == expected
    assert isinstance(parse_size(size), int)


@pytest.mark.parametrize(
    "size", ["", "GB", "-1GB", "1 XB", "1,5GB", 0, -5, True, None, float("nan"), 1 << 62, 1e300]
)
def test_parse_size__refuses_the_rest(size):
    with pytest.raises(InvalidInputError, match="is not a size; use bytes or text"):
        parse_size(size)


@pytest.mark.parametrize(
    ("n_bytes", "expected"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1_234_567, "1.23 MB"), (2e9, "2 GB"), (3.5e12, "3.5 TB")],
)
def test_format_size__has_three_digits_and_a_unit(n_bytes, expected):
    assert format_size(n_bytes) == expected


@given(st.integers(1, 10**9), st.integers(1, 10**4), st.integers(0, 10**6), st.integers(1, 100))
def test_rows_within__fits_the_budget_or_states_one_that_would(budget, bytes_per_row, fixed, at_least):
    asked = {"fixed": fixed, "at_least": at_least, "noun": "a block"}
    try:
        rows = rows_within(DataBudget(budget), bytes_per_row, **asked)
    except MemoryBudgetError:
        needed = fixed + at_least * bytes_per_row
        assert needed > budget
        assert rows_within(DataBudget(needed), bytes_per_row, **asked) == at_least
    else:
        assert rows >= at_least
        assert fixed + rows * bytes_per_row <= budget < fixed + (rows + 1) * bytes_per_row


def test_rows_within__states_both_sizes_when_it_refuses():
    with pytest.raises(MemoryBudgetError) as refusal:
        rows_within(DataBudget(1000), 600, fixed=500, at_least=2, noun="two rows")
    message = (
        "memory=1 kB cannot hold two rows, which needs at least 1.7 kB; raise the budget to 1.7 kB or more."
    )
    assert str(refusal.value) == message
    assert (refusal.value.needed, refusal.value.budget) == (1700, 1000)


@given(st.integers(1, 9 * 10**14))  # beyond that a size has no unit
def test_enough_for__is_a_sufficient_budget(n_bytes):
    budget = parse_size(enough_for(n_bytes))
    assert n_bytes <= budget <= max(n_bytes * 1.0101, n_bytes + 1)
