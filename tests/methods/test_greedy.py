"""Greedy ANMI and the exact search."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigcons import Ensemble, metrics
from bigcons.datasets import planted_ensemble
from bigcons.errors import ConvergenceWarning, InvalidInputError, UnlabeledObjectsWarning
from bigcons.memory import Block
from bigcons.methods import GreedyANMI
from bigcons.methods.greedy import _Search, best_partition
from bigcons.run.engine import SerialEngine
from tests.naive import greedy as naive
from tests.naive.bce import SplitMix
from tests.support.strategies import label_matrices

# the seven objects and four labelings of Strehl and Ghosh (2002), table 1
SEVEN = np.array(
    [
        [1, 1, 1, 2, 2, 3, 3],
        [2, 2, 2, 3, 3, 1, 1],
        [1, 1, 2, 2, 3, 3, 3],
        [1, 2, np.nan, 1, 2, np.nan, np.nan],
    ]
).T
OPTIMUM = [0, 0, 0, 1, 1, 2, 2]

# with objects that nobody labeled, or not settled: said by others' tests
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{warning.__module__}.{warning.__name__}")
    for warning in (UnlabeledObjectsWarning, ConvergenceWarning)
]


def test_seven_objects__exact_search_finds_the_published_optimum():
    """Section 2: of the 301 clusterings into three the known-label-weighted ANMI picks the expected one."""
    labels, score = best_partition(SEVEN, 3)
    assert labels.tolist() == OPTIMUM
    assert score == pytest.approx(0.717818, abs=5e-7)
    second = metrics.anmi(SEVEN, np.array([0, 0, 0, 1, 2, 2, 2]))
    assert second == pytest.approx(0.715889, abs=5e-7)


@pytest.mark.parametrize("start", [0, 1, 2])
def test_seven_objects__greedy_reaches_the_optimum_from_every_complete_labeling(start):
    init = SEVEN[:, start].astype(int) - 1
    model = GreedyANMI(3, init=init).fit(SEVEN)
    assert metrics.adjusted_rand(OPTIMUM, model.labels_) == 1.0
    assert model.objective_ == pytest.approx(0.717818, abs=5e-7)


@given(
    labels=label_matrices(min_objects=4, max_objects=25, max_partitions=5),
    k=st.integers(1, 4),
    n_init=st.integers(1, 3),
)
def test_greedy__reports_the_anmi_and_ends_where_no_single_move_helps(labels, k, n_init):
    ensemble = Ensemble.from_labels(labels)
    model = GreedyANMI(k, n_init=n_init).fit(ensemble)
    assert model.objective_ == pytest.approx(metrics.anmi(ensemble, model.labels_), abs=1e-9)
    assert model.converged_
    assert (np.diff(model.history_["objective"]) >= -1e-12).all()
    for i in np.flatnonzero(model.labels_ >= 0):
        for other in range(k):
            moved = model.labels_.copy()
            moved[i] = other
            assert metrics.anmi(ensemble, moved) <= model.objective_ + 1e-6


@given(labels=label_matrices(min_objects=5, max_objects=7, min_partitions=2, max_partitions=4))
@settings(max_examples=15)
def test_greedy__is_never_above_the_exact_search(labels):
    ensemble = Ensemble.from_labels(labels)
    best = max(best_partition(ensemble, k)[1] for k in range(1, 4))
    model = GreedyANMI(3, n_init=3).fit(ensemble)
    if (model.labels_ >= 0).all():
        assert model.objective_ <= best + 1e-9


@given(
    labels=label_matrices(min_objects=4, max_objects=9, max_partitions=4),
    k=st.integers(1, 4),
    temperature=st.sampled_from([0.02, 0.2, 1.0, 10.0]),
    seed=st.integers(0, 2**64 - 1),
)
def test_sweep__at_a_temperature_draws_as_judging_every_clustering_does(labels, k, temperature, seed):
    ensemble = Ensemble.from_labels(labels)
    labels = ensemble.read(0, ensemble.n_objects)
    codes = np.random.default_rng(seed).integers(k, size=len(labels)).astype(np.int32)
    codes[(labels < 0).all(axis=1)] = -1
    expected, twin = codes.tolist(), SplitMix(seed)
    search = _Search(ensemble, SerialEngine(), codes, k, np.random.default_rng(0))
    search.random[0] = seed
    for _ in range(3):
        search.refresh()
        search.visit(Block(0, 0, len(labels)), labels, temperature)
        naive.annealed_sweep(labels.tolist(), expected, k, temperature, twin)
        assert codes.tolist() == expected
    assert search.anmi == pytest.approx(metrics.anmi(ensemble, codes))


def test_annealing__leaves_a_local_optimum_in_which_greedy_moves_stay():
    """Planted clusters, begun with two of them in one and one halved: no single move repairs that."""
    ensemble, truth = planted_ensemble(300, 20, shares=(0.25,) * 4, hard_share=0.0, random_state=0)
    start = np.where(truth == 3, 2, truth)
    start[np.flatnonzero(truth == 0)[::2]] = 3
    stuck = GreedyANMI(4, init=start).fit(ensemble)
    free = GreedyANMI(4, init=start, temperature=0.3, random_state=0).fit(ensemble)
    assert free.objective_ > stuck.objective_ + 0.05


def test_greedy__refuses_starts_that_leave_objects_out_which_a_partition_labels():
    with pytest.raises(InvalidInputError, match="init is -1 for 2 objects that a partition labels"):
        GreedyANMI(2, init=[0, 0, -1, -1, 1, 1]).fit([[0], [0], [0], [1], [1], [1]])
