"""The estimator of Bayesian cluster ensembles: what it finds, and what does not matter to it."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine

from bigcons import Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.errors import InvalidInputError, UnlabeledObjectsWarning
from bigcons.generate import mask_labels
from bigcons.methods.bce import BCE
from bigcons.metrics import adjusted_rand, micro_precision

SIX_CLASSES = 6


@pytest.fixture(scope="module", params=[0.0, 0.5], ids=["complete", "half missing"])
def planted(request):
    return planted_ensemble(1000, missing=request.param, random_state=0)


@pytest.mark.parametrize("seed", range(3))
def test_fit__finds_unbalanced_planted_classes_from_any_seed(planted, seed):
    ensemble, truth = planted
    model = BCE(SIX_CLASSES, random_state=seed).fit(ensemble)
    assert adjusted_rand(truth, model.labels_) > 0.95  # where two classes are one cluster it is .92 at most
    assert (np.diff(model.history_["objective"]) >= -1e-9 * abs(model.objective_)).all()


@pytest.fixture(scope="module")
def wine_of_few_labels():
    """Return k-means labels of wine of which nine tenths are deleted, and its classes."""
    features, classes = load_wine(return_X_y=True)
    labels = [KMeans(3, init="random", n_init=1, random_state=u).fit(features).labels_ for u in range(20)]
    return mask_labels(np.stack(labels, axis=1), share=0.9, random_state=0), classes


def micro_precision_and_bound(wine_of_few_labels, init, seed):
    ensemble, classes = wine_of_few_labels
    with pytest.warns(UnlabeledObjectsWarning):
        model = BCE(3, n_init=1, init=init, random_state=seed).fit(ensemble)
    seen = model.labels_ >= 0
    return micro_precision(classes[seen], model.labels_[seen]), model.objective_


def test_fit__from_partitions_stands_missing_labels_that_a_random_start_does_not(wine_of_few_labels):
    scores = {
        init: [micro_precision_and_bound(wine_of_few_labels, init, seed) for seed in range(8)]
        for init in ("partition", "random")
    }
    mean = {init: np.mean([score for score, _ in runs]) for init, runs in scores.items()}
    of_best_bound = max(scores["partition"], key=lambda run: run[1])[0]
    assert mean["partition"] > mean["random"] + 0.05
    assert of_best_bound >= mean["partition"] - 0.03


@pytest.fixture(scope="module")
def small():
    return planted_ensemble(600, 20, shares=(0.5, 0.3, 0.2), missing=0.3, random_state=1)


def test_fit__of_fine_labels_begins_at_the_least_alpha_unless_it_is_to_stay():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 4, 6000)
    ensemble = Ensemble.from_labels(50 * truth[:, None] + rng.integers(0, 50, (6000, 20)))
    model, fixed = BCE(4, random_state=0), BCE(4, update_alpha=False, random_state=0)
    assert adjusted_rand(truth, model.fit_predict(ensemble)) > 0.99
    assert model.n_passes_ < 10  # alpha falls like one over the passes: from .5, it takes 150
    assert model.objective_ > fixed.fit(ensemble).objective_
    assert set(fixed.history_["sum_alpha"]) == {2.0}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"init": "base"}, "init='base'"),
        ({"smoothing": 0.0}, "smoothing=0.0"),
        ({"update_alpha": "no"}, "update_alpha='no'"),
    ],
)
def test_fit__refuses_bad_parameters(small, parameters, message):
    with pytest.raises(InvalidInputError, match=message):
        BCE(3, **parameters).fit(small[0])
