"""Expected loss."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bigcons import metrics
from bigcons.errors import InvalidInputError
from bigcons.run.engine import ThreadsEngine
from tests.naive import loss as naive
from tests.support.strategies import label_matrices

losses = st.sampled_from(["vi", "binder"])


@st.composite
def compared(draw):
    """Draw an ensemble with gaps, labels with gaps, and weights; some objects are in both."""
    x = draw(label_matrices(min_objects=2))
    labels = np.array(draw(st.lists(st.integers(-1, 3), min_size=len(x), max_size=len(x))))
    weights = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=x.shape[1], max_size=x.shape[1]))
    known = ((x >= 0) & (labels >= 0)[:, None]).any(axis=0) & (np.array(weights) > 0)
    assume(known.any())
    return x, labels, weights


@given(case=compared(), loss=losses, split_cost=st.sampled_from([0.0, 0.5, 1.0, 2.0]))
def test_expected_loss__is_the_mean_by_objects_compared_and_weights(case, loss, split_cost):
    x, labels, weights = case
    found = metrics.expected_loss(x, labels, loss=loss, split_cost=split_cost, weights=weights)
    assert found == pytest.approx(naive.expected(x, labels, loss, split_cost, weights), abs=1e-12)


def test_expected_loss__has_the_same_bits_on_every_engine_and_is_zero_of_copies():
    x = np.random.default_rng(0).integers(-1, 5, (500, 7))
    labels = np.abs(x[:, 0])
    found = {metrics.expected_loss(x, labels, client=client) for client in ("serial", ThreadsEngine(3))}
    assert len(found) == 1
    assert metrics.expected_loss(x[:, [0, 0]] + 1, x[:, 0]) == 0.0


@pytest.mark.parametrize("wrong", [{"loss": "rand"}, {"split_cost": 2.5}, {"weights": [1.0]}])
def test_expected_loss__refuses_what_it_does_not_know(wrong):
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        metrics.expected_loss([[0, 0], [1, 1]], [0, 1], **wrong)
