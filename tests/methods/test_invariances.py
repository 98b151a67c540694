"""What no method should depend on: the order of objects and partitions, names of labels, forms of weights.

Partitions and objects are permuted on planted labels whose clusters methods find, so that k-means, samplers
and other searches that draw by position end at the same clusters.
"""

from functools import cache

import numpy as np
import pytest

from bigcons import METHODS
from bigcons.metrics import adjusted_rand
from tests.support.fits import quiet

K, N_OBJECTS, N_PARTITIONS = 4, 300, 12
TWICE = np.where(np.isin(np.arange(N_PARTITIONS), (2, 5, 6)), 2, 1)

# The method and the parameters of each solve.
SOLVES = {
    **{name: (name, {}) for name in METHODS},
    "bce": ("bce", {"n_init": 3}),
    "cspa all": ("cspa", {"normalize": "all"}),
    "cspa local": ("cspa", {"weights": "local"}),
    "eac ward": ("eac", {"linkage": "ward", "normalize": "all"}),
    "eac-average local": ("eac-average", {"weights": "local"}),
    "hbgf local": ("hbgf", {"weights": "local"}),
    "hgpa laplacian": ("hgpa", {"objective": "laplacian"}),
    "kmeans onehot": ("kmeans", {"encode": "onehot"}),
}

# What a solve depends on all the same, and why.
DEPENDS = {
    "bce-gibbs": {"partitions": "its chain draws labels by the sums of partitions, rounded in their order"},
    "furthest": {"objects": "of the pairs that are equally far apart it takes the first"},
    "hgpa": dict.fromkeys(
        ("objects", "partitions", "names", "copies"), "its cuts of a hypergraph start at random vertices"
    ),
    "ivc": {"partitions": "it starts from partitions drawn by their places, and objects stay on a tie"},
    "kmeans": dict.fromkeys(("objects", "names"), "it takes labels for numbers"),
    "pcc": {"ones": "weights of one choose another model of the co-association than None"},
}


def solves_that_keep(what):
    return [name for name in SOLVES if what not in DEPENDS.get(name, {})]


def taking_weights(what):
    return [
        name
        for name in solves_that_keep(what)
        if "weights" in METHODS[SOLVES[name][0]]().get_params() and "weights" not in SOLVES[name][1]
    ]


@pytest.fixture(scope="module")
def data():
    """Labels of four groups, a fifth wrong, some missing, a third of the partitions finer; and features."""
    rng = np.random.default_rng(0)
    truth = rng.integers(K, size=N_OBJECTS)
    labels = np.tile(truth[:, None], N_PARTITIONS)
    wrong = rng.random(labels.shape) < 0.2
    labels[wrong] = rng.integers(K, size=wrong.sum())
    labels[:, ::3] = 2 * labels[:, ::3] + rng.integers(2, size=labels[:, ::3].shape)
    labels[rng.random(labels.shape) < 0.15] = -1
    return labels, rng.normal(size=(N_OBJECTS, 2)) + 6.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1]])[truth]


def fit(solve, labels, features, **others):
    name, parameters = SOLVES[solve]
    needed = {"features": features} if name == "did" else {}
    return quiet(METHODS[name](K, random_state=0, **needed, **parameters, **others), labels)


@pytest.fixture(scope="module")
def fit_of(data):
    """A function that returns the fit of a solve to the data as they are."""
    return cache(lambda solve: fit(solve, *data))


@pytest.mark.parametrize("solve", SOLVES)
def test_clusters__do_not_depend_on_the_order_of_objects_and_partitions_nor_on_names(solve, data, fit_of):
    labels, features = data
    rng, expected = np.random.default_rng(9), fit_of(solve).labels_
    objects, partitions = rng.permutation(N_OBJECTS), rng.permutation(N_PARTITIONS)
    names = [np.append(rng.permutation(2 * K), -1) for _ in range(N_PARTITIONS)]
    renamed = np.stack([names[u][labels[:, u]] for u in range(N_PARTITIONS)], axis=1)
    changes = {
        "objects": ((labels[objects], features[objects]), expected[objects]),
        "partitions": ((labels[:, partitions], features), expected),
        "names": ((renamed, features), expected),
    }
    for what, (changed, clusters) in changes.items():
        if what not in DEPENDS.get(solve, {}):
            assert adjusted_rand(fit(solve, *changed).labels_, clusters) == 1.0, what


@pytest.mark.parametrize("solve", taking_weights("ones"))
def test_weights__of_one_are_no_weights_to_the_last_bit(solve, data, fit_of):
    found, expected = fit(solve, *data, weights=np.ones(N_PARTITIONS)), fit_of(solve)
    np.testing.assert_array_equal(found.labels_, expected.labels_)
    assert found.objective_ == expected.objective_


@pytest.mark.parametrize("solve", taking_weights("copies"))
def test_weights__of_two_are_partitions_given_twice(solve, data):
    labels, features = data
    found = fit(solve, *data, weights=TWICE)
    expected = fit(solve, np.repeat(labels, TWICE, axis=1), features)
    assert adjusted_rand(found.labels_, expected.labels_) == 1.0
    if solve not in ("ccc", "ccsvd", "ccu"):  # whose objectives are of other partitions, and a copy is none
        assert found.objective_ == pytest.approx(expected.objective_, rel=1e-3)
