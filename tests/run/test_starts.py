"""Starts: the sample that they run on, and the choice among them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons import Ensemble
from bigcons.run.passes import best_start
from bigcons.run.survey import start_rows


@pytest.mark.parametrize("lower_is_better", [True, False])
@given(values=st.lists(st.integers(-2, 2) | st.just(float("inf")), min_size=1))
def test_best_start__is_the_first_of_the_best_and_all_are_told(lower_is_better, values):
    best, objectives = best_start(
        iter(enumerate(values)), lambda start: start[1], lower_is_better=lower_is_better
    )
    wanted = min(values) if lower_is_better else max(values)
    assert best == (values.index(wanted), wanted)
    assert objectives == values


@pytest.mark.parametrize(
    ("missing", "n_clusters", "wanted"),
    [(0, 12, 4096), (0, 256, 4096), (0.5, 128, 4096), (0, 500, 8000), (0.5, 500, 16_000), (0.5, 900, 20_000)],
)
def test_start_rows__grow_with_clusters_and_missing_labels(missing, n_clusters, wanted):
    labels = np.random.default_rng(0).integers(0, 9, (20_000, 4), np.int8)
    labels[: int(missing * 20_000)] = -1
    assert start_rows(Ensemble.from_labels(labels), n_clusters) == wanted
