"""What every consensus method promises, for each of METHODS."""

import inspect
import pickle
import warnings
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from bigcons import METHODS, Consensus, Ensemble
from bigcons.errors import (
    ConvergenceWarning,
    InvalidInputError,
    StoreExistsError,
    UnlabeledObjectsWarning,
)
from bigcons.methods import ConsensusClusterer
from bigcons.metrics import adjusted_rand
from bigcons.run.engine import ThreadsEngine
from tests.support.numbering import numbered_by_size
from tests.support.strategies import label_matrices

K = 3

# Known for it in the papers: an unlucky pair of objects, one base partition, chains, or the wrong objective.
WEAK = ("furthest", "best", "eac-single", "hgpa")

# With starts, but no `Problem` that tells whether its objective is minimized.
MINIMIZED = ("pcc", "cspa", "hgpa", "hbgf")


class Method(NamedTuple):
    """A method with the parameters it cannot do without here."""

    name: str
    cls: type
    needed: dict

    def __call__(self, **parameters):
        return self.cls(**self.needed, **parameters)


@pytest.fixture(scope="module")
def features_path(truth, tmp_path_factory):
    path = tmp_path_factory.mktemp("features") / "features.npy"
    rng = np.random.default_rng(2)
    np.save(path, rng.normal(size=(truth.size, 2)) + 6.0 * np.eye(K, 2)[truth])
    return str(path)


@pytest.fixture(params=METHODS)
def method(request, features_path):
    needed = {
        "bce": {"n_init": 5},  # not needed, but 20 starts make it half of the time of all methods
        "did": {"features": features_path},
    }
    return Method(request.param, METHODS[request.param], needed.get(request.param, {}))


@pytest.fixture(scope="module")
def truth():
    return np.random.default_rng(0).integers(K, size=50)


@pytest.fixture(scope="module")
def labels(truth):
    """Labels of the truth, a tenth of them wrong and a fifth missing: ``(50, 12)``."""
    rng = np.random.default_rng(1)
    labels = np.tile(truth[:, None], 12)
    wrong = rng.random(labels.shape) < 0.1
    labels[wrong] = rng.integers(K, size=wrong.sum())
    labels[rng.random(labels.shape) < 0.2] = -1
    assert (labels >= 0).any(axis=1).all()
    return labels


@pytest.fixture(scope="module")
def fits():
    return {}


@pytest.fixture
def fitted(method, labels, fits):
    """The fit of a method to the labels, with which many tests compare and which none may change."""
    if method.name not in fits:
        fits[method.name] = fit(method(n_clusters=K, random_state=0), labels)
    return fits[method.name]


def fit(model, x, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(x, **kwargs)


def assert_same_fit(model, expected):
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    assert hasattr(model, "memberships_") == hasattr(expected, "memberships_") == model.info.soft
    if model.info.soft:
        np.testing.assert_array_equal(np.asarray(model.memberships_), np.asarray(expected.memberships_))
    assert model.objective_ == expected.objective_


def test_methods__have_lower_case_names_and_one_base():
    for name, cls in METHODS.items():
        assert name == name.lower()
        assert issubclass(cls, ConsensusClusterer)
        assert cls.info.paper
        assert cls.info.needs
        assert cls.info.missing
        parameters = inspect.signature(cls).parameters
        assert {"n_clusters", "random_state", "memory", "out", "client"} <= parameters.keys()
        assert next(iter(parameters)) == "n_clusters"


def test_docstring__tells_parameters_results_cost_and_source(method):
    text = inspect.getdoc(method.cls)
    assert text.split("\n")[0].endswith((".", ":"))
    for section in ("Parameters", "Attributes", "Notes", "References"):
        assert f"\n{section}\n---" in text, section
    undocumented = [name for name in inspect.signature(method.cls).parameters if name not in text]
    assert not undocumented


def test_fit__finds_the_planted_clusters(method, fitted, truth):
    assert adjusted_rand(truth, fitted.labels_) > (0.2 if method.name in WEAK else 0.9)


def test_fit__sets_results_of_the_stated_shapes_and_types(method, fitted):
    assert (fitted.labels_.shape, fitted.labels_.dtype) == ((50,), np.int32)
    assert hasattr(fitted, "memberships_") == method.cls.info.soft
    if method.cls.info.soft:
        assert (fitted.memberships_.shape, fitted.memberships_.dtype) == ((50, K), np.float32)
        assert (fitted.memberships_ >= 0).all()
        np.testing.assert_allclose(fitted.memberships_.sum(axis=1), 1, atol=1e-6)
        np.testing.assert_array_equal(fitted.labels_, fitted.memberships_.argmax(axis=1))
    assert np.isfinite(fitted.objective_)
    assert fitted.n_clusters_ == np.unique(fitted.labels_).size <= K
    assert fitted.n_features_in_ == 12
    assert fitted.history_
    assert len({len(values) for values in fitted.history_.values()}) == 1


def test_params__survive_clone_and_set(method, labels, fitted):
    params = method(n_clusters=K, random_state=7).get_params()
    assert {"n_clusters", "random_state", "out", "client"} <= set(params)
    assert (params["n_clusters"], params["random_state"]) == (K, 7)
    copied = clone(fitted).set_params(random_state=7)
    assert copied.get_params() == params
    assert not hasattr(copied, "labels_")
    assert copied.set_params(n_clusters=2) is copied
    assert fit(copied, np.minimum(labels, 1)).labels_.max() <= 1


def test_fit__repeats_the_result_and_does_not_change_parameters_or_labels(method, labels, fitted):
    model, before = method(n_clusters=K, random_state=0), labels.copy()
    params = model.get_params()
    assert_same_fit(fit(model, labels), fitted)
    assert model.get_params() == params
    np.testing.assert_array_equal(labels, before)


def test_client__makes_no_difference(method, labels, tmp_path):
    ensemble = Ensemble.from_labels(labels).save(tmp_path / "ensemble.zarr", chunk_rows=8)
    expected = fit(method(n_clusters=K, random_state=0, client="serial"), ensemble)
    for client in (None, ThreadsEngine(3)):  # None is threads
        assert_same_fit(fit(method(n_clusters=K, random_state=0, client=client), ensemble), expected)


def test_pickle__keeps_parameters_and_results(method, labels, fitted):
    again = pickle.loads(pickle.dumps(fitted))
    assert again.get_params() == fitted.get_params()
    assert_same_fit(again, fitted)
    assert_same_fit(fit(again, labels), fitted)


def test_fit__takes_labels_in_any_form(method, labels, fitted, tmp_path):
    """Every form is one of several methods, since all of them read labels alike."""
    with_nan = np.where(labels < 0, np.nan, labels)
    names = np.array(["ant", "bee", "cat", None], dtype=object)  # -1 is the last
    Ensemble.from_labels(labels).save(tmp_path / "ensemble.zarr")
    np.save(tmp_path / "labels.npy", labels)
    forms = {
        "array with NaN": with_nan,
        "lists": labels.tolist(),
        "lists with None": [[None if label < 0 else label for label in row] for row in labels.tolist()],
        "frame": pd.DataFrame(with_nan),
        "frame of nullable integers": pd.DataFrame(with_nan).astype("Int8"),
        "names": names[labels],
        "ensemble": Ensemble.from_labels(labels),
        "opened store": Ensemble.open(tmp_path / "ensemble.zarr"),
        "path of a store": tmp_path / "ensemble.zarr",
        "text of a path": str(tmp_path / "ensemble.zarr"),
        "path of an array": tmp_path / "labels.npy",
    }
    for form in [*forms.values()][list(METHODS).index(method.name) % 4 :: 4]:
        assert_same_fit(fit(method(n_clusters=K, random_state=0), form), fitted)


def test_fit__gives_unlabeled_objects_no_label_and_warns(method, labels):
    labels = labels.copy()
    labels[[0, 30, 49]] = -1
    told = "3 of 50 objects have no label in any partition"
    with pytest.warns(UnlabeledObjectsWarning, match=told) as warned:
        model = fit(method(n_clusters=K, random_state=0), labels)
    assert {warning.filename for warning in warned} == {__file__}
    assert np.flatnonzero(model.labels_ == -1).tolist() == [0, 30, 49]
    if method.cls.info.soft:
        np.testing.assert_array_equal(model.memberships_[[0, 30, 49]], np.float32(1 / K))
    assert (np.delete(model.labels_, [0, 30, 49]) >= 0).all()


@pytest.mark.filterwarnings("ignore::bigcons.errors.UnlabeledObjectsWarning")
@pytest.mark.filterwarnings("ignore::bigcons.errors.ConsensusWarning")
@pytest.mark.parametrize("name", METHODS)
@given(labels=label_matrices(min_objects=4, max_objects=10, max_clusters=3), seed=st.integers(0, 9))
@settings(max_examples=8)
def test_fit__labels_every_object_that_a_partition_labels(name, labels, seed):
    few = {
        "bce": {"n_init": 2},
        "did": {"features": np.random.default_rng(seed).normal(size=(len(labels), 2))},
    }
    model = METHODS[name](K, random_state=seed, client="serial", **few.get(name, {}))
    found = fit(model, labels).labels_
    np.testing.assert_array_equal(found >= 0, (labels >= 0).any(axis=1))
    np.testing.assert_array_equal(found, numbered_by_size(found))
    assert found.max() == model.n_clusters_ - 1
    if model.info.soft:
        np.testing.assert_array_equal(found[found >= 0], model.memberships_[found >= 0].argmax(axis=1))


def test_out__writes_a_consensus_that_reads_back_equal(method, labels, tmp_path):
    labels = labels.copy()
    labels[4] = -1
    ensemble = Ensemble.from_labels(labels).save(tmp_path / "ensemble.zarr", chunk_rows=16)
    path, other = tmp_path / "consensus.zarr", tmp_path / "other.zarr"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnlabeledObjectsWarning)
        expected = fit(method(n_clusters=K, random_state=0), ensemble)
        by_parameter = fit(method(n_clusters=K, random_state=0, out=path), ensemble)
        by_argument = fit(method(n_clusters=K, random_state=0), ensemble, out=other)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["consensus.zarr", "ensemble.zarr", "other.zarr"]
    for model, found in ((by_parameter, Consensus.open(path)), (by_argument, Consensus.open(other))):
        assert_same_fit(model, expected)
        np.testing.assert_array_equal(found.labels, expected.labels_)
        assert found.has_memberships == method.cls.info.soft
        if found.has_memberships:
            np.testing.assert_array_equal(found.memberships, expected.memberships_)
        assert found.verify()["n_unlabeled"] == 1
        assert found.history["objective"] == expected.history_["objective"]
        assert found.results["objective"] == expected.objective_
        assert found.results["n_clusters"] == expected.n_clusters_
        assert found.results.get("start_objectives") == getattr(expected, "start_objectives_", None)
        assert found.parameters["method"] == method.cls.__name__
        assert found.parameters["n_clusters"] == K
        assert found.provenance["ensemble"] == ensemble.path


def test_out__that_exists_is_refused_before_any_work(method, tmp_path):
    path = tmp_path / "consensus.zarr"
    path.mkdir()
    (path / "mine.txt").write_text("keep")

    class Unreadable:
        """Labels that must not be looked at."""

        def __getattr__(self, name):
            raise AssertionError("the labels were read")

    with pytest.raises(StoreExistsError, match=r"consensus\.zarr"):
        method(n_clusters=K, out=path).fit(Unreadable())
    assert (path / "mine.txt").read_text() == "keep"
    assert [p.name for p in tmp_path.iterdir()] == ["consensus.zarr"]


@pytest.mark.parametrize(
    ("n_clusters", "message"),
    [
        (51, "n_clusters=51 but there are n_objects=50; use at most 50 clusters"),
        (0, "n_clusters=0 is out of range"),
        (-2, "n_clusters=-2 is out of range"),
        (2.0, r"n_clusters=2\.0 has type float; use an integer >= 1"),
        ("3", "n_clusters='3' (has type str; use an integer >= 1|is unknown; use an integer >= 1 or 'auto')"),
        (True, "n_clusters=True has type bool; use an integer >= 1"),
    ],
)
def test_fit__refuses_numbers_of_clusters(method, labels, n_clusters, message):
    with pytest.raises(InvalidInputError, match=message) as refusal:
        method(n_clusters=n_clusters).fit(labels)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "x",
    [[], np.empty((0, 3)), np.zeros(5), np.full((4, 2), -1), [[0, 1], [0]], [[0.5, 1.0]], None, 3],
    ids=["empty", "no rows", "one dimension", "unlabeled", "ragged", "fractions", "none", "number"],
)
def test_fit__refuses_what_is_no_label_matrix(method, x):
    with pytest.raises(InvalidInputError) as refusal:
        method(n_clusters=1).fit(x)
    assert "\n" not in str(refusal.value)


def test_fit__refuses_flags_that_are_neither_true_nor_false(method, labels, tmp_path):
    with pytest.raises(InvalidInputError, match="overwrite='no' is not a boolean"):
        method(n_clusters=K).fit(labels, out=tmp_path / "c.zarr", overwrite="no")
    if "resume" in method(n_clusters=K).get_params():
        with pytest.raises(InvalidInputError, match="resume='no' is not a boolean"):
            method(n_clusters=K, resume="no").fit(labels)
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def noise():
    """Labels without any groups, of which every start makes something else: ``(50, 8)``."""
    return np.random.default_rng(5).integers(-1, 5, (50, 8))


def test_start_objectives__are_those_of_all_starts_and_the_best_is_carried_on(method, noise):
    if "n_init" not in inspect.signature(method.cls).parameters:
        assert not hasattr(fit(method(n_clusters=5, random_state=2), noise), "start_objectives_")
        return
    needed = {"objective": "laplacian"} if method.name == "hgpa" else method.needed
    model = method.cls(**{**needed, "n_init": 6}, n_clusters=5, random_state=2)
    found = fit(model, noise).start_objectives_
    assert len(found) == 6
    assert np.isfinite(found).all()
    assert len(set(found)) > 1
    if method.name == "ccsvd":
        return  # its starts are those of k-means, which has an objective of its own
    # the starts see all objects here, so that no pass of the best can lose what it was worth
    solved = getattr(model, "_solved", None)
    if method.name in MINIMIZED if solved is None else solved[0].lower_is_better:
        assert model.objective_ <= min(found) + 1e-9 * abs(min(found))
    else:
        assert model.objective_ >= max(found) - 1e-9 * abs(max(found))
