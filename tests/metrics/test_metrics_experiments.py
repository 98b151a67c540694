"""Learning curves above chance, and the paired t-test."""

import math

import numpy as np
import pytest
from scipy.stats import t as student
from sklearn.cluster import KMeans

from bigcons.errors import InvalidInputError
from bigcons.metrics import learning_curve, paired_t_test


def test_learning_curve__of_the_truth_is_1_less_chance_which_fades_with_size():
    truth = np.random.default_rng(0).integers(0, 4, 5000)
    scores = learning_curve(lambda sample, _: truth[sample], truth, [10, 100, 5000], random_state=0)
    means = scores.mean(axis=1)
    assert (scores <= 1).all()
    assert means[0] < means[1] < means[2]
    assert means[2] == pytest.approx(1, abs=0.01)
    assert means[0] < 0.9


def test_learning_curve__rises_for_k_means_and_repeats_with_its_seed():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 600)
    points = rng.normal(size=(600, 2)) + 4 * np.array([[0, 0], [1, 0], [0, 1]])[truth]

    def cluster(sample, seed):
        return KMeans(3, n_init=3, random_state=seed).fit_predict(points[sample])

    scores = learning_curve(cluster, truth, [12, 300], n_repetitions=5, random_state=3)
    np.testing.assert_array_equal(
        scores, learning_curve(cluster, truth, [12, 300], n_repetitions=5, random_state=3)
    )
    assert scores[1].mean() > scores[0].mean()


@pytest.mark.parametrize(
    ("sizes", "cluster", "message"),
    [
        ([5], lambda sample, _: sample, "sizes=5"),
        ([0], lambda sample, _: sample, "sizes=0"),
        ([2], lambda sample, _: [0], "1 labels for a sample of 2"),
    ],
)
def test_learning_curve__refuses_in_one_line(sizes, cluster, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        learning_curve(cluster, [0, 1, 1, -1, 0], sizes)
    assert "\n" not in str(caught.value)


def test_paired_t_test__by_the_textbook():
    a, b = np.array([0.61, 0.55, 0.58, 0.60]), np.array([0.66, 0.58, 0.66, 0.62])
    found = paired_t_test(a, b)
    differences = a - b
    expected = differences.mean() / (differences.std(ddof=1) / 2)
    assert found.mean_difference == pytest.approx(-0.045)
    assert found.statistic == pytest.approx(expected)
    assert found.p_value == pytest.approx(student.cdf(expected, df=3))
    assert (found.sd_a, found.sd_b) == pytest.approx((a.std(ddof=1), b.std(ddof=1)))
    assert found.p_value < 0.05


@pytest.mark.parametrize(
    ("a", "b"), [([1], [2]), ([1, 2], [1]), ([[1, 2]], [[1, 2]]), ([1, math.nan], [1, 2])]
)
def test_paired_t_test__refuses_in_one_line(a, b):
    with pytest.raises(InvalidInputError, match="finite scores of the same") as caught:
        paired_t_test(a, b)
    assert "\n" not in str(caught.value)
