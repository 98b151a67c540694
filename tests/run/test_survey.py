"""The sample of a survey: it has rare base clusters, in any blocks, and stands for all objects."""

import numpy as np
import pytest

from bigcons import Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.memory import row_blocks
from bigcons.run.engine import SerialEngine, ThreadsEngine
from bigcons.run.survey import Drawing, take_survey


def labels_with_rare_clusters(n_objects=20_000, n_rare=8):
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 5, size=(n_objects, 12))
    labels[draw.choice(n_objects, n_rare, replace=False)] = 5
    labels[:, 1:] = np.where(draw.random((n_objects, 11)) < 0.3, -1, labels[:, 1:])
    return labels


def surveyed(ensemble, seed=0, n_rows=2000, engine=None):
    return take_survey(ensemble, engine or SerialEngine(), seed, n_rows, is_balanced=True)


def test_sample__has_objects_of_every_base_cluster_and_as_many_as_asked_for():
    labels = labels_with_rare_clusters()
    for seed in range(5):
        survey = surveyed(Ensemble.from_labels(labels), seed)
        assert len(survey.rows) == 2000
        np.testing.assert_array_equal(survey.sample, labels[survey.rows])
        assert set(np.flatnonzero(labels[:, 0] == 5)) <= set(survey.rows)


def test_sample__is_the_same_in_any_blocks_and_on_any_engine(tmp_path):
    labels = labels_with_rare_clusters()
    one = surveyed(Ensemble.from_labels(labels))
    for rows, engine in ((700, SerialEngine()), (3000, ThreadsEngine(3))):
        stored = Ensemble.from_labels(labels).save(tmp_path / f"{rows}.zarr", chunk_rows=rows)
        for of_one, of_other in zip(one, surveyed(stored, engine=engine), strict=True):
            np.testing.assert_array_equal(of_one, of_other)


def test_times__estimate_the_numbers_of_objects_without_bias():
    labels = labels_with_rare_clusters()
    ensemble, estimates = Ensemble.from_labels(labels), []
    for seed in range(40):
        survey = surveyed(ensemble, seed, 600)
        times = survey.times * (len(labels) / survey.times.sum())
        estimates.append([times[survey.sample[:, 3] == label].sum() for label in range(5)])
    truth = [np.count_nonzero(labels[:, 3] == label) for label in range(5)]
    error = np.std(estimates, axis=0) / np.sqrt(40)
    assert (np.abs(np.mean(estimates, axis=0) - truth) < 4 * error).all()


@pytest.mark.parametrize("n_clusters", [100, 700, 5000])
def test_many_base_clusters__are_in_the_sample_as_far_as_half_of_it_holds_one_of_each(n_clusters):
    labels = np.random.default_rng(0).integers(0, n_clusters, size=(20_000, 9))
    survey = surveyed(Ensemble.from_labels(labels))
    n_whole = sum(set(survey.sample[:, u]) == set(labels[:, u]) for u in range(9))
    assert n_whole >= min(9, 1000 // n_clusters)
    assert 1000 <= survey.is_uniform.sum() <= len(survey.rows) == 2000


def test_partitions_of_weight_0__do_not_choose_objects():
    labels = labels_with_rare_clusters()
    labels[:, 11] = np.arange(20_000) % 900
    weights = np.ones(12)
    weights[11] = 0.0
    survey = take_survey(Ensemble.from_labels(labels), SerialEngine(), 0, 2000, weights, is_balanced=True)
    without = take_survey(Ensemble.from_labels(labels[:, :11]), SerialEngine(), 0, 2000, is_balanced=True)
    n_drawn = survey.is_uniform.sum()
    assert n_drawn == pytest.approx(without.is_uniform.sum(), rel=0.05)


def test_memberships__are_drawn_by_their_largest():
    ensemble = Ensemble.from_labels(labels_with_rare_clusters(4000))
    labels = ensemble.read(0, 4000)
    soft = [(column[:, None] == np.arange(6)).astype(np.float32) for column in labels.T]
    of_soft = surveyed(Ensemble.from_memberships(soft), n_rows=500)
    np.testing.assert_array_equal(of_soft.rows, surveyed(ensemble, n_rows=500).rows)
    np.testing.assert_array_equal(of_soft.times, surveyed(ensemble, n_rows=500).times)


def test_sample__of_all_objects_counts_each_once():
    ensemble, _ = planted_ensemble(500, 10, random_state=0)
    survey = surveyed(ensemble)
    np.testing.assert_array_equal(survey.rows, np.arange(500))
    assert (survey.times == 1).all()
    assert survey.is_uniform.all()


def test_blocks_of_a_drawing__may_be_added_in_any_grouping():
    ensemble = Ensemble.from_labels(labels_with_rare_clusters(3000))
    drawing, blocks = Drawing(ensemble, 0, 400, "test"), row_blocks(3000, 500)
    drawn = [drawing.of_block(block, ensemble.read(block.start, block.stop)) for block in blocks]
    left, right = drawn[0], drawn[-1]
    for one in drawn[1:]:
        left = drawing.add(left, one)
    for one in drawn[-2::-1]:
        right = drawing.add(one, right)
    for of_left, of_right in zip(drawing.finish(left), drawing.finish(right), strict=True):
        np.testing.assert_array_equal(of_left, of_right)
