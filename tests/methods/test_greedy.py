"""Greedy ANMI and the exact search; BEST by the criteria of partitions; the choice of the supra-consensus."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons import METHODS, Ensemble, metrics
from bigcons.contingency import SYMMETRIC
from bigcons.datasets import planted_ensemble
from bigcons.errors import ConvergenceWarning, UnlabeledObjectsWarning
from bigcons.memory import Block
from bigcons.methods import MCLA, PCC, GreedyANMI, Supra
from bigcons.methods.greedy import BEST, DISTANCES, _Search, best_partition
from bigcons.metrics import anmi, average_criterion
from bigcons.run.engine import SerialEngine
from tests.naive import greedy as naive
from tests.naive.bce import SplitMix
from tests.naive.correspondence import nearest_clusters
from tests.support.labels import SEVEN
from tests.support.numbering import numbered_by_size
from tests.support.stores import dense_codes
from tests.support.strategies import label_matrices

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
    best = BEST(3).fit(SEVEN)  # of the four labelings, too
    assert best.best_partition_ == 0
    assert best.objective_ == pytest.approx(0.717818, abs=5e-7)
    second = metrics.anmi(SEVEN, np.array([0, 0, 0, 1, 2, 2, 2]))
    assert second == pytest.approx(0.715889, abs=5e-7)


@pytest.mark.parametrize("start", [0, 1, 2])
def test_seven_objects__greedy_reaches_the_optimum_from_every_complete_labeling(start):
    model = GreedyANMI(3, init=SEVEN[:, start] - 1).fit(SEVEN)
    assert metrics.adjusted_rand(OPTIMUM, model.labels_) == 1.0
    assert model.objective_ == pytest.approx(0.717818, abs=5e-7)


@given(labels=label_matrices(min_objects=4, max_objects=25, max_partitions=5), k=st.integers(1, 4))
def test_greedy__reports_the_anmi_and_ends_where_no_single_move_helps(labels, k):
    ensemble = Ensemble.from_labels(labels)
    model = GreedyANMI(k).fit(ensemble)
    assert model.objective_ == pytest.approx(metrics.anmi(ensemble, model.labels_), abs=1e-9)
    assert model.converged_
    assert (np.diff(model.history_["objective"]) >= -1e-12).all()
    for i in np.flatnonzero(model.labels_ >= 0):
        for other in range(k):
            moved = model.labels_.copy()
            moved[i] = other
            assert metrics.anmi(ensemble, moved) <= model.objective_ + 1e-6


@given(
    labels=label_matrices(min_objects=4, max_objects=9, max_partitions=4),
    k=st.integers(1, 4),
    temperature=st.sampled_from([0.02, 0.2, 1.0, 10.0]),
    seed=st.integers(0, 2**64 - 1),
)
def test_sweep__at_a_temperature_draws_as_judging_every_clustering_does(labels, k, temperature, seed):
    ensemble, labels = dense_codes(labels)
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


@given(label_matrices(), st.sampled_from(sorted(SYMMETRIC)))
def test_best__scores_are_the_criteria_of_the_labels(labels, criterion):
    ensemble, labels = dense_codes(labels[(labels >= 0).any(axis=1)])
    model = BEST(len(labels), criterion=criterion, unlabeled="missing").fit(ensemble)
    columns = [np.where(column < 0, np.nan, column) for column in labels.T]
    if criterion == "nmi":
        expected = [anmi(ensemble, column) for column in columns]
    else:
        expected = [average_criterion(criterion, ensemble, column, weighted=True) for column in columns]
    np.testing.assert_allclose(model.scores_, expected, atol=1e-12)
    best = min(model.scores_) if criterion in DISTANCES else max(model.scores_)
    assert model.objective_ == model.scores_[model.best_partition_] == best
    assert model.best_partition_ == np.flatnonzero(model.scores_ == best)[0]
    np.testing.assert_array_equal(model.labels_, numbered_by_size(labels[:, model.best_partition_]))


@given(label_matrices(min_partitions=2))
def test_best__places_unlabeled_objects_by_the_nearest_center(labels):
    ensemble, labels = dense_codes(labels[(labels >= 0).any(axis=1)])
    model = BEST(len(labels)).fit(ensemble)
    assert (model.labels_ >= 0).all()
    clusters = model._order[model.labels_]  # of the winner
    for found, expected in zip(clusters, nearest_clusters(labels, model.best_partition_), strict=True):
        if isinstance(expected, list):
            assert expected[found] == pytest.approx(min(expected), abs=1e-9)
        else:
            assert found == expected


def test_supra__keeps_the_method_of_highest_anmi():
    ensemble, _ = planted_ensemble(600, 20, missing=0.4, random_state=2)
    model = Supra(6, members=("mcla", "ivc", "best"), random_state=0).fit(ensemble)
    assert set(model.scores_) == {"mcla", "ivc", "best"}
    scores = [score for by_number in model.scores_.values() for score in by_number.values()]
    assert model.objective_ == max(scores) == model.scores_[model.best_member_][6]
    assert model.objective_ == pytest.approx(metrics.anmi(ensemble, model.labels_), abs=1e-12)
    same = Supra(6, members="mcla, ivc,best", random_state=0).fit(ensemble)
    np.testing.assert_array_equal(same.labels_, model.labels_)


@pytest.mark.parametrize("seed", range(2))
def test_supra__gains_nothing_from_a_member_that_leaves_objects_out(seed):
    """A partition of few objects agrees well with the others, on those objects."""
    ensemble, _ = planted_ensemble(300, 12, missing=0.7, random_state=seed)
    model = Supra(6, members=["mcla", BEST(unlabeled="missing"), "ivc"], random_state=0).fit(ensemble)
    assert model.best_member_ in ("mcla", "ivc")
    np.testing.assert_array_equal(model.labels_ >= 0, (ensemble.read(0, 300) >= 0).any(axis=1))


def test_supra__tries_every_member_with_every_number_of_clusters():
    ensemble, truth = planted_ensemble(
        400, 20, n_clusters=(6, 6), noise=(0.05, 0.1), hard_share=0.0, missing=0.2, random_state=0
    )
    model = Supra(range(3, 9), members=["mcla", "ivc"], random_state=0).fit(ensemble)
    assert {name: list(scores) for name, scores in model.scores_.items()} == {
        "mcla": [3, 4, 5, 6, 7, 8],
        "ivc": [3, 4, 5, 6, 7, 8],
    }
    assert model.objective_ == model.scores_[model.best_member_][model.best_n_clusters_]
    assert model.best_n_clusters_ == 6
    assert metrics.adjusted_rand(truth, model.labels_) > 0.9
    alone = METHODS[model.best_member_](6, random_state=0).fit(ensemble)
    np.testing.assert_array_equal(alone.labels_, model.labels_)


def test_supra__takes_members_with_parameters_as_text_and_as_estimators():
    ensemble, _ = planted_ensemble(200, 10, random_state=1)
    members = [MCLA(ties="random"), "best", PCC(99, n_init=2, random_state=5)]
    scores = Supra(4, members=members, random_state=3).fit(ensemble).scores_
    text = Supra(4, members="mcla(ties=random), best, pcc(n_init=2)", random_state=3).fit(ensemble)
    assert list(scores)[:2] == ["MCLA(ties='random')", "best"]
    assert list(text.scores_) == ["mcla(ties=random)", "best", "pcc(n_init=2)"]
    assert [*text.scores_.values()] == [*scores.values()]
    assert not hasattr(members[0], "labels_")
    assert members[2].n_clusters == 99
    alone = MCLA(4, ties="random", random_state=3).fit(ensemble)
    assert scores["MCLA(ties='random')"][4] == metrics.anmi(ensemble, alone.labels_)
