"""The supra-consensus: members by name, text and estimator, numbers of clusters, and the choice by ANMI."""

import numpy as np
import pytest

from bigcons import METHODS, Consensus, metrics
from bigcons.datasets import planted_ensemble
from bigcons.errors import InvalidInputError, StoreExistsError
from bigcons.methods import CSPA, MCLA, PCC, Supra

# the seven objects and four labelings of Strehl and Ghosh (2002), table 1
SEVEN = np.array([[1, 1, 1, 2, 2, 3, 3], [2, 2, 2, 3, 3, 1, 1], [1, 1, 2, 2, 3, 3, 3]]).T


def test_supra__keeps_the_method_of_highest_anmi():
    ensemble, _ = planted_ensemble(600, 20, missing=0.4, random_state=2)
    model = Supra(6, members=("mcla", "ivc", "best"), random_state=0).fit(ensemble)
    assert set(model.scores_) == {"mcla", "ivc", "best"}
    scores = [score for by_number in model.scores_.values() for score in by_number.values()]
    assert model.objective_ == max(scores) == model.scores_[model.best_member_][6]
    assert model.objective_ == pytest.approx(metrics.anmi(ensemble, model.labels_), abs=1e-12)
    same = Supra(6, members="mcla, ivc,best", random_state=0).fit(ensemble)
    np.testing.assert_array_equal(same.labels_, model.labels_)


@pytest.mark.filterwarnings("ignore::bigcons.errors.UnlabeledObjectsWarning")
@pytest.mark.parametrize("seed", range(3))
def test_supra__gains_nothing_from_a_member_that_leaves_objects_out(seed):
    """A partition of few objects agrees well with the others, on those objects."""
    ensemble, _ = planted_ensemble(300, 12, missing=0.7, random_state=seed)
    model = Supra(6, members="mcla, best(unlabeled=missing), ivc", random_state=0).fit(ensemble)
    assert model.best_member_ != "best(unlabeled=missing)"
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
    text = Supra(4, members="mcla(partitioner=average, ties=random), best, pcc(n_init=2)", random_state=3)
    estimators = [MCLA(partitioner="average", ties="random"), "best", PCC(99, n_init=2, random_state=5)]
    models = [text.fit(ensemble), Supra(4, members=estimators, random_state=3).fit(ensemble)]
    assert list(models[0].scores_) == ["mcla(partitioner=average, ties=random)", "best", "pcc(n_init=2)"]
    assert list(models[1].scores_)[:2] == ["MCLA(partitioner='average', ties='random')", "best"]
    assert [*models[0].scores_.values()] == [*models[1].scores_.values()]
    np.testing.assert_array_equal(models[0].labels_, models[1].labels_)
    assert not hasattr(estimators[0], "labels_")
    assert estimators[2].n_clusters == 99
    alone = MCLA(4, partitioner="average", ties="random", random_state=3).fit(ensemble)
    assert models[0].scores_["mcla(partitioner=average, ties=random)"][4] == metrics.anmi(
        ensemble, alone.labels_
    )


def test_supra__stores_the_result_and_knows_a_run_with_other_members(tmp_path):
    ensemble, _ = planted_ensemble(100, 8, random_state=1)
    out = tmp_path / "consensus.zarr"
    model = Supra([3, 4], members=[MCLA(), "ivc"], random_state=0, out=out).fit(ensemble)
    assert Consensus.open(out).n_clusters == model.best_n_clusters_
    again = Supra([3, 4], members=[MCLA(), "ivc"], random_state=0, out=out).fit(ensemble)
    np.testing.assert_array_equal(again.labels_, model.labels_)
    with pytest.raises(StoreExistsError, match="members"):
        Supra([3, 4], members=[MCLA(ties="random"), "ivc"], random_state=0, out=out).fit(ensemble)


@pytest.mark.parametrize(
    "members",
    [
        *("nonsense", ("supra",), (), 5, "", [Supra()], [CSPA], "cspa(partitioner)", "cspa(cut=1)"),
        *("cspa,cspa", [MCLA(), MCLA()]),
    ],
)
def test_supra__refuses_what_is_no_member(members):
    with pytest.raises(InvalidInputError, match="members") as refused:
        Supra(2, members=members).fit(SEVEN)
    assert refused.value.parameter == "members"
    assert "\n" not in str(refused.value)
