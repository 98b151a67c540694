"""Criteria of a consensus, averaged over its ensemble: plain definition, worked examples, stores, engines."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigcons import Ensemble
from bigcons.errors import InvalidInputError, MemoryBudgetError
from bigcons.metrics import average_criterion
from bigcons.metrics.clusterings import OF_TWO_CLUSTERINGS
from tests.naive import metrics as naive
from tests.support.strategies import label_matrices

SIX_ITEMS = np.array([(1, 1, 1, 2, 2, 1), (2, 1, 1, 2, 2, 2), (2, 1, 2, 1, 2, 2), (1, 1, 2, 1, 2, 2)]).T
"""The four clusterings of Nguyen and Caruana (2007); truth is {1, 2, 3} and {4, 5, 6}."""

NAIVE = {
    "adjusted_rand": lambda a, b: 1 if naive.adjusted_rand(a, b) is None else naive.adjusted_rand(a, b),
    "matching_accuracy": naive.matching_accuracy,
    "nmi": naive.nmi,
    "rand_index": lambda a, b: 1 if naive.rand_index(a, b) is None else naive.rand_index(a, b),
    "van_dongen": naive.van_dongen,
    "variation_of_information": naive.variation_of_information,
}


def columns(labels):
    return [[None if label < 0 else label for label in column] for column in labels.T.tolist()]


def test_average__has_every_symmetric_criterion():
    assert NAIVE.keys() == OF_TWO_CLUSTERINGS.keys()


@settings(deadline=None)
@given(data=st.data(), labels=label_matrices(min_objects=2, max_objects=15), weighted=st.booleans())
def test_average__equals_naive(data, labels, weighted):
    n = len(labels)
    consensus = data.draw(st.lists(st.integers(-1, 3), min_size=n, max_size=n))
    known = [None if label < 0 else label for label in consensus]
    if not any(naive.known(partition, known) for partition in columns(labels)):
        return
    for name, criterion in NAIVE.items():
        expected = naive.average(criterion, columns(labels), known, weighted=weighted)
        found = average_criterion(name, labels, consensus, weighted=weighted)
        assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", OF_TWO_CLUSTERINGS)
def test_average__stored_equals_memory_for_any_engine(name, tmp_path):
    rng = np.random.default_rng(0)
    labels, consensus = rng.integers(-1, 5, (200, 9)), rng.integers(-1, 4, 200)
    stored = Ensemble.from_labels(labels).save(tmp_path / "ensemble.zarr", chunk_rows=32)
    values = {
        average_criterion(name, x, consensus, client=client)
        for x in (labels, stored)
        for client in ("serial", "threads")
    }
    assert len(values) == 1


@pytest.mark.filterwarnings("ignore::bigcons.errors.SuspiciousLabelsWarning")  # all labels differ
def test_average__refuses_in_one_line():
    with pytest.raises(InvalidInputError, match="choose one of 'adjusted_rand'") as caught:
        average_criterion("purity", SIX_ITEMS, [0] * 6)
    assert "\n" not in str(caught.value)
    with pytest.raises(InvalidInputError, match="2 objects but the ensemble has 6"):
        average_criterion("nmi", SIX_ITEMS, [0, 1])
    many = np.arange(20_000)
    with pytest.raises(MemoryBudgetError, match="20,000 by 20,000"):
        average_criterion("nmi", many[:, None], many)
