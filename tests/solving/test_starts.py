"""The choice among starts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons.solving.passes import best_start


@pytest.mark.parametrize("lower_is_better", [True, False])
@given(values=st.lists(st.integers(-2, 2) | st.just(float("inf")), min_size=1))
def test_best_start__is_the_first_of_the_best_and_all_are_told(lower_is_better, values):
    best, objectives = best_start(
        iter(enumerate(values)), lambda start: start[1], lower_is_better=lower_is_better
    )
    wanted = min(values) if lower_is_better else max(values)
    assert best == (values.index(wanted), wanted)
    assert objectives == values
