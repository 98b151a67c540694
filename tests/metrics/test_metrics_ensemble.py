"""ANMI: the published example, the plain definition, and stores against memory."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigcons.errors import InvalidInputError
from bigcons.metrics import anmi
from bigcons.metrics.ensemble import average_criterion
from tests.naive import metrics as naive
from tests.support.strategies import label_matrices

STREHL_GHOSH = np.array(
    [(0, 0, 0, 1, 1, 2, 2), (1, 1, 1, 2, 2, 0, 0), (0, 0, 1, 1, 2, 2, 2), (0, 1, -1, 0, 1, -1, -1)]
).T
"""The seven objects and four clusterings, one with gaps, of Strehl and Ghosh (2002)."""


def partitions_of(labels):
    return [[None if label < 0 else label for label in column] for column in labels.T.tolist()]


def test_anmi__published_grouping_is_best_of_all():
    values = {tuple(labels): anmi(STREHL_GHOSH, labels) for labels in naive.groupings(7, 3)}
    assert len(values) == 301
    best, second = sorted(values, key=values.__getitem__, reverse=True)[:2]
    assert best == (0, 0, 0, 1, 1, 2, 2)
    assert values[best] == pytest.approx(0.717818, abs=1e-6)
    assert second == (0, 0, 0, 1, 2, 2, 2)
    assert values[second] == pytest.approx(0.715889, abs=1e-6)


@settings(deadline=None)
@given(data=st.data(), labels=label_matrices(min_objects=2, max_objects=20))
def test_anmi__equals_naive(data, labels):
    n = len(labels)
    consensus = data.draw(st.lists(st.integers(-1, 3), min_size=n, max_size=n))
    known = [None if label < 0 else label for label in consensus]
    if any(naive.known(partition, known) for partition in partitions_of(labels)):
        expected = naive.anmi(partitions_of(labels), known)
        assert anmi(labels, consensus) == pytest.approx(expected, abs=1e-12)
        names = [None if label is None else "abcd"[label] for label in known]
        assert anmi(labels, names) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("consensus", "message"),
    [
        ([0, 1], "2 objects but the ensemble has 7"),
        ([-1] * 7, "no labels"),
        ([-1, -1, 0, -1, -1, -1, -1], "no object is labeled"),
    ],
)
def test_anmi__refuses_in_one_line(consensus, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        anmi(np.where(np.arange(7) == 2, -1, STREHL_GHOSH.T).T, consensus)
    assert "\n" not in str(caught.value)


def test_anmi__counts_what_is_left_out_as_no_agreement():
    """Of nine labels the consensus covers those of the first two objects, on which all agree."""
    labels = np.array([[0, 0, 0], [1, 1, 1], [0, 1, 1]])
    assert anmi(labels, [0, 1, -1]) == pytest.approx(6 / 9)
    assert average_criterion("nmi", labels, [0, 1, -1], weighted=True) == pytest.approx(1.0)
