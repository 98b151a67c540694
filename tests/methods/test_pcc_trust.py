"""PCC says which of its labels to trust, in memory and in stores alike."""

import pickle

import numpy as np
import pytest

from bigcons import PCC, Consensus, Ensemble, LabelKMeans
from bigcons.datasets import planted_ensemble
from bigcons.metrics import matching_accuracy, reliability, trust

pytestmark = pytest.mark.filterwarnings("ignore::bigcons.errors.DissentWarning")  # as is planted


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Return the path of an ensemble, a quarter of whose partitions are random, and its classes."""
    ensemble, classes = planted_ensemble(1600, 32, shares=(0.25,) * 4, missing=0.2, random_state=5)
    labels = np.array(ensemble.read(0, 1600), np.int64)
    rng = np.random.default_rng(0)
    labels[:, ::4] = np.where(labels[:, ::4] >= 0, rng.integers(0, 6, (1600, 8)), -1)
    path = tmp_path_factory.mktemp("planted") / "e.zarr"
    Ensemble.from_labels(labels).save(path, chunk_rows=512)
    return path, classes


@pytest.fixture(scope="module")
def model(planted):
    return PCC(4, random_state=0, client="serial").fit(planted[0])


def same(a, b):
    """Return whether what is known of every object has the same bits, and the tables are equal."""
    arrays = ("confidence", "second_labels", "second_confidence")
    return a[3:] == b[3:] and all(getattr(a, name).tobytes() == getattr(b, name).tobytes() for name in arrays)


def test_trust__is_that_of_the_labels(planted, model):
    assert same(model.trust_, trust(planted[0], model))
    assert same(pickle.loads(pickle.dumps(model)).trust_, model.trust_)


def test_trust__is_stored_with_the_result(planted, model, tmp_path):
    stored = PCC(4, random_state=0, client="threads")
    stored.fit(planted[0], out=tmp_path / "c.zarr")
    assert same(stored.trust_, model.trust_)
    opened = Consensus.open(tmp_path / "c.zarr")
    assert same(opened.trust, model.trust_)
    assert opened.verify()["n_unlabeled"] == 0
    again = PCC(4, random_state=0).fit(planted[0], out=tmp_path / "c.zarr")
    assert same(again.trust_, model.trust_)
    assert same(trust(planted[0], opened), model.trust_)


def test_trust__is_calibrated_where_memberships_are_not(planted, model):
    assert matching_accuracy(planted[1], model.labels_) > 0.9
    by_trust = reliability(planted[1], model, model.trust_.confidence)
    by_memberships = reliability(planted[1], model, model.memberships_.max(axis=1))
    assert by_trust.error < 0.03 < by_memberships.error


def test_trust__of_other_methods_is_computed_when_asked(planted):
    other = LabelKMeans(4, random_state=0).fit(planted[0])
    with pytest.raises(AttributeError, match=r"bigcons\.metrics\.trust") as caught:
        _ = other.trust_
    assert caught.value.obj is None  # or Python suggests a private attribute of it
    with pytest.raises(AttributeError, match="only soft methods have them") as caught:
        _ = other.memberships_
    assert caught.value.obj is None
    with pytest.raises(AttributeError, match="not fitted"):
        _ = PCC(2).trust_
    assert trust(planted[0], other).confidence.mean() > 0.5
