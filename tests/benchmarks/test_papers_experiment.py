"""How the scripts of the papers read data, judge and count, against plain definitions."""

import os

import numpy as np
import pytest

from benchmarks.consensus_clusterings_paper import judge, voted, voting_costs
from benchmarks.real_data import load
from bigcons import METHODS
from bigcons.datasets import planted_ensemble
from tests.naive import metrics as naive


@pytest.fixture(scope="module")
def planted():
    ensemble, truth = planted_ensemble(120, 12, missing=0.0, random_state=0)
    return ensemble, ensemble.read(0, 120), np.asarray(truth)


def test_judge__is_the_plain_mean_of_criteria(planted):
    ensemble, labels, truth = planted
    draw = np.random.default_rng(0)
    found, points = draw.integers(0, 4, 120), draw.normal(size=(120, 2))
    expected = [
        naive.average(naive.variation_of_information, labels.T, found, weighted=False),
        naive.average(naive.van_dongen, labels.T, found, weighted=False),
        naive.average(naive.rand_index, labels.T, found, weighted=False),
        naive.average(naive.nmi, labels.T, found, weighted=False),
        naive.purity(truth, found),
        naive.compactness(points, found, "euclidean"),
    ]
    assert judge(ensemble, found, points, truth) == pytest.approx(expected)


@pytest.mark.parametrize("method", ["ivc", "ipvc"])
def test_voted__costs_what_the_method_says_and_stays_where_it_ends(planted, method):
    ensemble, labels, _ = planted
    model = METHODS[method](6, random_state=0).fit(ensemble)
    assert model.converged_
    assert voting_costs(labels, model.labels_)[method.upper()] == pytest.approx(model.objective_)
    assert (voted(method.upper(), labels, model.labels_, 6) == model.labels_).all()


@pytest.mark.parametrize(
    ("name", "n_objects", "n_classes"),
    [
        ("rings", 450, 3),
        ("moons", 400, 2),
        *(
            pytest.param(*row, marks=[pytest.mark.data, pytest.mark.skipif(
                "BIGCONS_DATA" not in os.environ, reason="BIGCONS_DATA names no directory")])
            for row in [
                ("glass", 214, 6), ("house-votes", 435, 2), ("ionosphere", 351, 2), ("yeast", 500, 10),
                ("segmentation", 210, 7), ("pendigits", 245, 10),
            ]
        ),
    ],
)  # fmt: skip
def test_load__has_the_objects_and_classes_of_its_description(name, n_objects, n_classes):
    features, classes = load(name)
    assert (len(features), len(np.unique(classes))) == (n_objects, n_classes)
    assert features.mean(axis=0) == pytest.approx(0, abs=1e-9)
    assert features.std(axis=0) == pytest.approx(1)
