"""PCC says so where labels join too few pairs for it, by a share that equals a count pair by pair."""

import itertools
import re
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons import METHODS, PCC
from bigcons.errors import OversegmentationWarning
from bigcons.methods.pcc.estimator import ENOUGH, least_joined_share, warn_of_fine_labels
from bigcons.run.survey import Survey
from tests.support.strategies import label_matrices

N_CLASSES = 4
SHARES = r"join (\S+) % of the pairs of objects, but (\d+) clusters at least (\S+) %"


def fine(n_parts, n_objects=400, n_partitions=10, seed=0):
    """Return labels that cut each of four unequal classes, a circle, into so many arcs anew, and classes."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(N_CLASSES, n_objects, p=[0.5, 0.25, 0.15, 0.1])
    places = rng.random((n_objects, 1)) + rng.random(n_partitions)
    parts = np.floor(n_parts * (places % 1.0)).astype(int)
    return truth[:, None] * n_parts + parts, truth


def words_of(model, x):
    """Return what a fit says of fine labels."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(x)
    return [str(warning.message) for warning in caught if warning.category is OversegmentationWarning]


def survey_of(labels):
    unlabeled = np.flatnonzero((labels < 0).all(axis=1))
    return Survey(
        len(labels), (labels >= 0).sum(axis=0), unlabeled, labels, labels[:0], np.arange(len(labels))
    )


@given(label_matrices(), st.data())
def test_joined_share__equals_a_count_pair_by_pair(labels, data):
    labels = np.asarray(labels)
    weights = np.array(
        data.draw(st.lists(st.integers(0, 3), min_size=labels.shape[1], max_size=labels.shape[1]))
    )
    joined = seen = 0
    for a, b in itertools.combinations(labels, 2):
        both = (a >= 0) & (b >= 0)
        seen += (weights * both).sum()
        joined += (weights * (both & (a == b))).sum()
    share = survey_of(labels).joined_share(weights.astype(float))
    assert share == pytest.approx(joined / seen) if seen else np.isnan(share)


@given(st.integers(1, 6), st.integers(2, 30), st.integers(0, 2**32 - 1))
def test_least_joined_share__bounds_every_membership_and_is_met_by_even_clusters(n_clusters, n_objects, seed):
    rng = np.random.default_rng(seed)
    least = least_joined_share(n_clusters, n_objects)

    def mean_product(memberships):
        products = memberships @ memberships.T
        return products[~np.eye(len(products), dtype=bool)].mean()

    assert mean_product(rng.dirichlet(np.ones(n_clusters), n_objects)) >= least - 1e-12
    even = np.eye(n_clusters)[np.arange(n_clusters * n_objects) % n_clusters]
    assert mean_product(even) == pytest.approx(least_joined_share(n_clusters, len(even)))


@pytest.mark.parametrize("scale", [0.9, 1.1])
def test_fit__warns_below_the_share_that_is_enough_and_only_there(scale):
    labels, _ = fine(4)
    share = survey_of(labels).joined_share()
    n_clusters = scale * ENOUGH / share  # not whole: the bound itself is what is asked
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_fine_labels(survey_of(labels), n_clusters, None)
    least = least_joined_share(n_clusters, len(labels))
    assert bool(caught) == (share < ENOUGH * least)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"weights": "entropy"},
        {"weights": np.arange(1.0, 11.0)},
        {"divergence": "kl"},
        {"pairs": 0.2},
        {"pairs": "dense"},
        {"pairs": 0.2, "solver": "blocked"},
    ],
    ids=str,
)
def test_fit__of_labels_too_fine_says_so_in_one_line(parameters):
    labels, _ = fine(20)
    model = PCC(N_CLASSES, max_iter=2, n_init=1, random_state=0, **parameters)
    (word,) = words_of(model, labels)
    joined, n_clusters, least = re.search(SHARES, word).groups()
    assert float(joined) == pytest.approx(100 * survey_of(labels).joined_share(), rel=0.06)
    assert int(n_clusters) == N_CLASSES
    assert float(least) == pytest.approx(100 / N_CLASSES, rel=0.02)
    assert "\n" not in word
    assert all(name in word and name in METHODS for name in ("eac-average", "eac-single", "mcla"))
