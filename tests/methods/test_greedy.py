"""Greedy ANMI and the exact search."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigcons import Ensemble, metrics
from bigcons.datasets import planted_ensemble
from bigcons.errors import ConvergenceWarning, InvalidInputError, UnlabeledObjectsWarning
from bigcons.execution.engine import SerialEngine
from bigcons.memory import Block
from bigcons.methods import GreedyANMI
from bigcons.methods.greedy import _Search, best_partition, clusterings, stirling
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


def test_greedy__never_lowers_the_anmi_it_starts_from():
    ensemble, truth = planted_ensemble(400, 20, missing=0.4, random_state=0)
    rng = np.random.default_rng(0)
    start = np.where(rng.random(400) < 0.3, rng.integers(0, 6, 400), truth)
    model = GreedyANMI(6, init=start).fit(ensemble)
    assert model.objective_ > metrics.anmi(ensemble, start)
    assert metrics.adjusted_rand(truth, model.labels_) > metrics.adjusted_rand(truth, start)


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


@given(
    labels=label_matrices(min_objects=4, max_objects=12, max_partitions=4),
    k=st.integers(1, 4),
    temperature=st.floats(0.01, 20.0),
)
def test_annealing__ends_where_no_single_move_helps_with_the_anmi_it_reports(labels, k, temperature):
    ensemble = Ensemble.from_labels(labels)
    model = GreedyANMI(k, temperature=temperature, n_annealed=4, random_state=0).fit(ensemble)
    assert model.objective_ == pytest.approx(metrics.anmi(ensemble, model.labels_), abs=1e-9)
    assert model.converged_
    assert model.n_passes_ > 4
    assert (np.diff(model.history_["objective"][3:]) >= -1e-12).all()
    for i in np.flatnonzero(model.labels_ >= 0):
        assert max(naive.gains(labels.tolist(), model.labels_.tolist(), i, k)) < 1e-5


def test_annealing__leaves_a_local_optimum_in_which_greedy_moves_stay():
    """Planted clusters, begun with two of them in one and one halved: no single move repairs that."""
    ensemble, truth = planted_ensemble(300, 20, shares=(0.25,) * 4, hard_share=0.0, random_state=0)
    start = np.where(truth == 3, 2, truth)
    start[np.flatnonzero(truth == 0)[::2]] = 3
    stuck = GreedyANMI(4, init=start).fit(ensemble)
    free = GreedyANMI(4, init=start, temperature=0.3, random_state=0).fit(ensemble)
    assert free.objective_ > stuck.objective_ + 0.05


def test_annealing__has_the_same_bits_whatever_the_engine_and_blocks(tmp_path):
    ensemble, _ = planted_ensemble(300, 10, random_state=1)
    stored = ensemble.save(tmp_path / "e.zarr", chunk_rows=64)
    found = [
        GreedyANMI(5, temperature=0.4, n_init=2, random_state=4, client=client).fit(x)
        for client, x in (("serial", ensemble), ("serial", stored), ("threads", stored))
    ]
    for model in found[1:]:
        assert model.labels_.tobytes() == found[0].labels_.tobytes()
        assert model.start_objectives_ == found[0].start_objectives_
    other = GreedyANMI(5, temperature=0.4, n_init=2, random_state=5).fit(ensemble)
    assert other.history_["moved"] != found[0].history_["moved"]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"temperature": -0.1}, "temperature=-0.1 is out of range"),
        ({"n_annealed": 3}, "n_annealed=3 has no effect with temperature=0"),
        ({"temperature": 0.1, "n_annealed": 0}, "n_annealed=0 is out of range"),
        ({"temperature": 0.1, "max_iter": 20}, "20 annealed sweeps leave none of max_iter=20"),
    ],
)
def test_annealing__refuses_parameters_in_one_line(parameters, message):
    with pytest.raises(InvalidInputError, match=message) as refusal:
        GreedyANMI(3, **parameters).fit(SEVEN)
    assert "\n" not in str(refusal.value)


def test_greedy__blocks_of_a_store_make_no_difference(tmp_path):
    ensemble, _ = planted_ensemble(500, 10, random_state=1)
    stored = ensemble.save(tmp_path / "e.zarr", chunk_rows=64)
    np.testing.assert_array_equal(GreedyANMI(5).fit(ensemble).labels_, GreedyANMI(5).fit(stored).labels_)


def test_greedy__refuses_starts_that_are_none():
    for init in ("worst", [0, 1], np.full(7, 3), np.zeros(7)):
        with pytest.raises(InvalidInputError, match="init"):
            GreedyANMI(3, init=init).fit(SEVEN)


def test_clusterings__are_as_many_as_stirling_says_and_all_different():
    assert stirling(7, 3) == 301
    assert stirling(16, 4) == 171_798_901
    for n in range(1, 7):
        for k in range(1, n + 1):
            found = {tuple(codes) for codes in clusterings(n, k)}
            assert len(found) == stirling(n, k)
            assert all(len(set(codes)) == k for codes in found)


def test_best_partition__refuses_what_would_take_for_ever():
    with pytest.raises(InvalidInputError, match="171,798,901 clusterings"):
        best_partition(np.zeros((16, 1), int), 4)


@pytest.mark.parametrize(
    ("n_clusters", "criterion", "message"),
    [(0, "nmi", "n_clusters=0"), (4, "nmi", "integer from 1 to 3"), (2, "ami", "criterion='ami' is unknown")],
)
def test_best_partition__refuses_what_makes_no_sense(n_clusters, criterion, message):
    with pytest.raises(InvalidInputError, match=message):
        best_partition([[0, 0], [1, 0], [1, 1]], n_clusters, criterion=criterion)


def test_greedy__labels_the_objects_that_init_leaves_out():
    ensemble, truth = planted_ensemble(400, 20, missing=0.4, random_state=0)
    start = np.where(np.arange(400) < 200, truth, -1)
    start[start == 4] = -1  # a cluster that nobody is given to begin with
    model = GreedyANMI(6, init=start).fit(ensemble)
    assert (model.labels_ >= 0).all()
    assert metrics.adjusted_rand(truth, model.labels_) > 0.8
    assert model.objective_ == pytest.approx(metrics.anmi(ensemble, model.labels_))
    with pytest.raises(InvalidInputError, match="init labels none of the objects"):
        GreedyANMI(6, init=np.full(400, -1)).fit(ensemble)
