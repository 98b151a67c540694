"""Argument checks: what passes, and the one-line refusal of the rest."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons.errors import InvalidInputError
from bigcons.validation import check_flag, check_int, check_number, check_partition_weights
from tests.support.refusals import refused


@given(st.integers(-5, 5), st.integers(-3, 3), st.integers(0, 3))
def test_check_int__accepts_integers_in_range(value, at_least, width):
    at_most = at_least + width
    for number in (value, np.int32(value)):
        if at_least <= value <= at_most:
            checked = check_int("n", number, at_least=at_least, at_most=at_most)
            assert checked == value
            assert type(checked) is int
        else:
            with pytest.raises(InvalidInputError, match=f"use an integer from {at_least} to {at_most}"):
                check_int("n", number, at_least=at_least, at_most=at_most)


@pytest.mark.parametrize("value", [0, -1, 1.0, 2.5, True, "1", None, np.float64(2)])
def test_check_int__refuses_all_but_positive_integers_and_names_their_type(value):
    with pytest.raises(InvalidInputError, match=r"^n_clusters=.*use an integer >= 1 or 'auto'\.$") as refusal:
        check_int("n_clusters", value, or_auto=True)
    assert refusal.value.parameter == "n_clusters"
    assert (f"has type {type(value).__name__}" in str(refusal.value)) == (type(value) is not int)


@given(st.floats(), st.floats(-2, 2))
def test_check_number__accepts_finite_numbers_in_range(value, low):
    if np.isfinite(value) and low <= value:
        assert check_number("tol", value, at_least=low) == value
    else:
        with pytest.raises(InvalidInputError, match=r"tol=.*use a finite number >= "):
            check_number("tol", value, at_least=low)


@pytest.mark.parametrize("value", [0, 1.5, True, "0.5", None, np.nan])
def test_check_number__above_and_at_most(value):
    assert check_number("share", np.float32(0.5), above=0, at_most=1) == 0.5
    with pytest.raises(InvalidInputError, match=r"use a finite number > 0 and <= 1\.$"):
        check_number("share", value, above=0, at_most=1)


@pytest.mark.parametrize("check", [check_int, check_number, check_flag])
def test_checks__show_only_the_type_of_long_values(check):
    with refused(r"x=<ndarray> (has type ndarray|is not)"):
        check("x", np.zeros((40, 40)))


@pytest.mark.parametrize(
    ("largest", "is_taken"), [(1e-51, False), (1e300, False), (1e-50, True), (1.0, True), (1e50, True)]
)
def test_check_partition_weights__refuses_sizes_at_which_products_underflow_or_overflow(largest, is_taken):
    weights = [0.0, largest, largest * 1e-200]
    if is_taken:
        assert check_partition_weights(weights, 3).tolist() == weights
    else:
        with pytest.raises(InvalidInputError, match="the largest between 1e-50 and 1e"):
            check_partition_weights(weights, 3)
