"""The proportion of ambiguous clustering, against a count of pairs."""

from itertools import combinations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bigcons.errors import InvalidInputError
from bigcons.metrics import pac


@given(arrays(int, st.tuples(st.integers(2, 9), st.integers(1, 6)), elements=st.integers(-1, 2)),
       st.floats(0, 1), st.floats(0, 1))  # fmt: skip
def test_pac__is_the_share_of_pairs_that_some_but_not_most_partitions_join(labels, one, two):
    assume((labels >= 0).any(axis=0).all())
    lower, upper = sorted((one, two))
    shares = []
    for a, b in combinations(labels.tolist(), 2):
        both = [(p, q) for p, q in zip(a, b, strict=True) if min(p, q) >= 0]
        if both:
            shares.append(sum(p == q for p, q in both) / len(both))
    if not shares:
        with pytest.raises(InvalidInputError, match="no partition labels two"):
            pac(labels)
        return
    expected = sum(lower < share <= upper for share in shares) / len(shares)
    assert pac(labels, lower=lower, upper=upper) == pytest.approx(expected)
