"""What every consensus method promises, for each of METHODS."""

import inspect
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigcons import METHODS, Consensus, Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.errors import DisconnectedWarning, StoreExistsError, UnlabeledObjectsWarning
from bigcons.testing import check_method
from tests.support.fits import bits, quiet
from tests.support.numbering import numbered_by_size
from tests.support.refusals import refused
from tests.support.strategies import label_matrices

K = 3

# Known for it in the papers: an unlucky pair of objects, one base partition, chains, or the wrong objective.
WEAK = ("furthest", "best", "eac-single", "hgpa")

# With starts and an objective that is minimized; that of others is maximized.
MINIMIZED = ("pcc", "cspa", "hgpa", "hbgf", "ivc", "ipvc", "kcc", "kmeans")


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
def features_path(truth, tmp_path_factory):
    path = tmp_path_factory.mktemp("features") / "features.npy"
    np.save(path, np.random.default_rng(2).normal(size=(truth.size, 2)) + 6.0 * np.eye(K, 2)[truth])
    return str(path)


@pytest.fixture(params=METHODS)
def name(request):
    return request.param


@pytest.fixture
def method(name, features_path):
    """A function that makes a method with the parameters that it cannot do without here."""
    # bce does not need any, but 20 starts make it half of the time of all methods
    needed = {"bce": {"n_init": 5}, "did": {"features": features_path}}.get(name, {})
    return lambda **parameters: METHODS[name](**{"n_clusters": K, "random_state": 0, **needed, **parameters})


def test_method__keeps_what_methods_of_other_packages_are_checked_for(name, method):
    needed = {key: value for key, value in method().get_params().items() if key in ("n_init", "features")}
    check_method(METHODS[name], least_rand=0.2 if name in WEAK else 0.9, **needed)


def test_fit__takes_labels_in_any_form_and_numbers_of_numpy(name, method, labels, tmp_path):
    """Every form is one of several methods, since all of them read labels alike."""
    fitted, with_nan = quiet(method(), labels), np.where(labels < 0, np.nan, labels)
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
    for form in [*forms.values()][list(METHODS).index(name) % 4 :: 4]:
        model = quiet(method(n_clusters=np.int8(K)), form)
        np.testing.assert_array_equal(model.labels_, fitted.labels_)
        assert model.objective_ == fitted.objective_


def test_fit__gives_unlabeled_objects_no_label_and_warns(method, labels):
    labels = labels.copy()
    labels[[0, 30, 49]] = -1
    message = "3 of 50 objects have no label in any partition"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.warns(UnlabeledObjectsWarning, match=message) as warned:
            model = method().fit(labels)
    assert {warning.filename for warning in warned} == {__file__}
    assert np.flatnonzero(model.labels_ == -1).tolist() == [0, 30, 49]
    if model.info.soft:
        np.testing.assert_array_equal(model.memberships_[[0, 30, 49]], np.float32(1 / K))


@pytest.mark.parametrize("name", METHODS)
@given(labels=label_matrices(min_objects=4, max_objects=10, max_clusters=3), seed=st.integers(0, 9))
@settings(max_examples=8)
def test_fit__labels_every_object_that_a_partition_labels(name, labels, seed):
    few = {
        "bce": {"n_init": 2},
        "did": {"features": np.random.default_rng(seed).normal(size=(len(labels), 2))},
    }
    model = METHODS[name](K, random_state=seed, client="serial", **few.get(name, {}))
    found = quiet(model, labels).labels_
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
    expected = quiet(method(), ensemble)
    by_parameter, by_argument = quiet(method(out=path), ensemble), quiet(method(), ensemble, out=other)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["consensus.zarr", "ensemble.zarr", "other.zarr"]
    for model, found in ((by_parameter, Consensus.open(path)), (by_argument, Consensus.open(other))):
        assert bits(model) == bits(expected)
        np.testing.assert_array_equal(found.labels, expected.labels_)
        assert found.has_memberships == expected.info.soft
        if found.has_memberships:
            np.testing.assert_array_equal(found.memberships, expected.memberships_)
        assert found.verify()["n_unlabeled"] == 1
        assert found.history["objective"] == expected.history_["objective"]
        assert found.results["objective"] == expected.objective_
        assert found.results["n_clusters"] == expected.n_clusters_
        assert found.results.get("start_objectives") == getattr(expected, "start_objectives_", None)
        assert found.parameters["method"] == type(expected).__name__
        assert found.parameters["n_clusters"] == K
        assert found.provenance["ensemble"] == ensemble.path


def test_out__that_exists_is_refused_before_any_work(method, tmp_path):
    path = tmp_path / "consensus.zarr"
    path.mkdir()
    (path / "mine.txt").write_text("keep")

    class Unreadable:
        """Labels of which nothing but what kind of object they are may be looked at."""

        def __array__(self, *_, **__):
            raise AssertionError("the labels were read")

        __len__ = __iter__ = __getitem__ = __array__

    with pytest.raises(StoreExistsError, match=r"consensus\.zarr"):
        method(out=path).fit(Unreadable())
    assert (path / "mine.txt").read_text() == "keep"
    assert [p.name for p in tmp_path.iterdir()] == ["consensus.zarr"]


def test_fit__refuses_numbers_of_clusters_and_what_is_no_label_matrix_in_one_line(method, labels):
    numbers = {
        51: "n_clusters=51 but there are n_objects=50; use at most 50 clusters",
        0: "n_clusters=0 is out of range",
        2.5: r"n_clusters=2\.5 has type float; use an integer >= 1",
        "3": "n_clusters='3' (has type str; use an integer >= 1|is unknown; use an integer >= 1 or 'auto')",
        True: "n_clusters=True has type bool; use an integer >= 1",
    }
    for n_clusters, message in numbers.items():
        with refused(message):
            method(n_clusters=n_clusters).fit(labels)
    matrices = ([], np.empty((0, 3)), np.zeros(5), np.full((4, 2), -1), [[0, 1], [0]], [[0.5, 1.0]], None, 3)
    for x in matrices:
        with refused():
            method(n_clusters=1).fit(x)


def test_start_objectives__are_those_of_all_starts_and_the_best_is_carried_on(name):
    """Of labels without any groups, of which every start makes something else."""
    noise = np.random.default_rng(5).integers(-1, 5, (50, 8))
    if "n_init" not in inspect.signature(METHODS[name]).parameters:
        return
    needed = {"objective": "laplacian"} if name == "hgpa" else {}
    model = METHODS[name](5, n_init=6, random_state=2, **needed)
    found = quiet(model, noise).start_objectives_
    assert len(found) == 6
    assert np.isfinite(found).all()
    assert len(set(found)) > 1
    if name == "ccsvd":
        return  # its starts are those of k-means, which has an objective of its own
    # the starts see all objects here, so that no pass of the best can lose what it was worth
    if name in MINIMIZED:
        assert model.objective_ <= min(found) + 1e-9 * abs(min(found))
    else:
        assert model.objective_ >= max(found) - 1e-9 * abs(max(found))


@pytest.mark.parametrize("name", ["pcc", "hbgf", "mixture", "mcla", "eac-average"])
def test_fit__tells_groups_and_is_silent_about_one(name, tmp_path):
    whole = planted_ensemble(300, 12, missing=0.0, random_state=0)[0].read(0, 300)
    apart = np.full((300, 12), -1)
    apart[:200, :6], apart[200:, 6:] = whole[:200, :6], whole[200:, 6:]
    stored = Ensemble.from_labels(apart).save(tmp_path / "e.zarr", chunk_rows=64)
    few = {"n_init": 2} if name in ("pcc", "mixture") else {}
    with pytest.warns(DisconnectedWarning, match=r"2 groups \(200, 100\) that no partition labels together"):
        METHODS[name](3, random_state=0, **few).fit(stored)
    apart[0, 6:] = whole[0, 6:]
    METHODS[name](3, random_state=0, **few).fit(apart)
