"""Objects that fit did not see."""

from __future__ import annotations

import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigcons import IVC, METHODS, PCC, Consensus, Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.errors import InvalidInputError, SuspiciousLabelsWarning, UnlabeledObjectsWarning
from bigcons.metrics import matching_accuracy
from tests.support.strategies import label_matrices

# Methods that label an object by a function of its base labels alone, with options that change the function.
TABLES = {
    **{name: (name, {}) for name in ("mcla", "ccc", "ccu", "ccsvd", "cspa", "hbgf")},
    "hgpa": ("hgpa", {"objective": "laplacian"}),
    "cspa all": ("cspa", {"normalize": "all"}),
    "hgpa size": ("hgpa", {"objective": "laplacian", "edge_weight": "size"}),
    "mcla average": ("mcla", {"partitioner": "average"}),
}


@pytest.fixture(scope="module")
def halves() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ensemble, truth = planted_ensemble(3000, 40, random_state=1)
    labels = ensemble.read(0, 3000)
    return labels[:2000], labels[2000:], truth[2000:]


@pytest.fixture(scope="module")
def model(halves: tuple[np.ndarray, ...]) -> PCC:
    return PCC(6, random_state=0).fit(halves[0])


def test_predict__unseen_objects_find_the_planted_classes(model: PCC, halves: tuple[np.ndarray, ...]) -> None:
    _, new, truth = halves
    labels = model.predict(new)
    assert labels.dtype == np.int32
    fitted = PCC(6, random_state=0).fit(np.concatenate(halves[:2]))
    assert matching_accuracy(truth, labels) >= matching_accuracy(truth, fitted.labels_[2000:]) - 0.02


def test_predict__memberships_are_on_the_simplex_and_agree_with_labels(
    model: PCC, halves: tuple[np.ndarray, ...]
) -> None:
    memberships = model.predict_proba(halves[1])
    assert memberships.dtype == np.float32
    assert (memberships >= 0).all()
    np.testing.assert_allclose(memberships.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(memberships.argmax(axis=1), model.predict(halves[1]))


def test_predict__unseen_labels_are_missing_labels(model: PCC, halves: tuple[np.ndarray, ...]) -> None:
    new = halves[1].astype(np.int64).copy()
    strange = new.copy()
    strange[:, 0] = 77
    without = new.copy()
    without[:, 0] = -1
    with pytest.warns(SuspiciousLabelsWarning, match="1 of 40 partitions have labels.*as 77 in 'p0'"):
        labels = model.predict(strange)
    np.testing.assert_array_equal(labels, model.predict(without))


def test_predict__refuses_partitions_in_another_order(halves: tuple[np.ndarray, ...]) -> None:
    old, new, _ = halves
    model = IVC(6, random_state=0).fit(pd.DataFrame(old).add_prefix("run"))
    turned = pd.DataFrame(new).add_prefix("run").iloc[:, ::-1]
    with pytest.raises(InvalidInputError, match=r"'run39' where 'run0' was fitted; give .* the same order"):
        model.predict(turned)
    np.testing.assert_array_equal(model.predict(turned.iloc[:, ::-1]), model.predict(new))
    numbered = pd.DataFrame(new).add_prefix("p")
    with pytest.raises(InvalidInputError, match=r"'p39' where 'p0' was fitted"):
        IVC(6, random_state=0).fit(old).predict(numbered.iloc[:, ::-1])


def test_predict__store_to_store(model: PCC, halves: tuple[np.ndarray, ...], tmp_path) -> None:  # type: ignore[no-untyped-def]
    Ensemble.from_labels(halves[1]).save(tmp_path / "new.zarr", chunk_rows=128)
    labels = model.predict(tmp_path / "new.zarr", out=tmp_path / "placed.zarr")
    np.testing.assert_array_equal(labels, model.predict(halves[1]))
    np.testing.assert_array_equal(
        Consensus.open(tmp_path / "placed.zarr").memberships, model.predict_proba(halves[1])
    )


# Methods that label objects by a table of base clusters


@pytest.mark.parametrize("name", TABLES)
@settings(max_examples=12)
@given(label_matrices(min_objects=3, max_partitions=4), st.integers(1, 3))
def test_predict__of_fitted_objects_is_their_labels(name: str, labels: np.ndarray, n_clusters: int) -> None:
    method, parameters = TABLES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnlabeledObjectsWarning)
        model = METHODS[method](n_clusters, random_state=0, **parameters).fit(labels)
    np.testing.assert_array_equal(model.predict(labels), model.labels_)
    np.testing.assert_array_equal(model.predict(labels[::-1]), model.labels_[::-1])
    assert hasattr(model, "predict_proba") == model.info.soft
    if model.info.soft:
        np.testing.assert_array_equal(model.predict_proba(labels), model.memberships_)
    assert (model.predict(np.full((1, labels.shape[1]), -1)) == -1).all()


@pytest.mark.parametrize("name", TABLES)
def test_predict__of_unseen_objects_finds_the_planted_classes(
    name: str, halves: tuple[np.ndarray, ...]
) -> None:
    old, new, truth = halves
    method, parameters = TABLES[name]
    model = pickle.loads(pickle.dumps(METHODS[method](6, random_state=0, **parameters).fit(old)))
    found = model.predict(new)
    assert matching_accuracy(truth, found) > 0.85
    strange, without = new.astype(np.int64), new.copy()
    strange[:, 0], without[:, 0] = 77, -1
    with pytest.warns(SuspiciousLabelsWarning, match="did not occur in fit"):
        labels = model.predict(strange)
    np.testing.assert_array_equal(labels, model.predict(without))


def test_page_of_methods__names_those_that_do_not_predict() -> None:
    page = (Path(__file__).parents[2] / "docs/methods.md").read_text(encoding="utf-8")
    named = re.search(r"All but (.*?) place new objects", page, flags=re.DOTALL)
    assert named is not None
    stated = set(re.findall(r"`([\w*-]+)`", named[1]))
    expected = {name for name, method in METHODS.items() if not method.places()}
    assert stated == expected
