"""`bigcons.testing.check_method` passes what keeps the contract, and names the promise that is broken."""

import itertools
import warnings

import numpy as np
import pytest

from bigcons import EACAverage, MethodInfo, MixtureModel
from bigcons.testing import check_method
from tests.support.refusals import refused


class Good(EACAverage):
    """A method that keeps all promises; those below break one each."""


class NoInfo(EACAverage):
    """Does not say what it is."""

    info = MethodInfo("", "labels")


class Remembers(EACAverage):
    """Loses a result in a pickle."""

    def __getstate__(self):
        return {**super().__getstate__(), "objective_": 0.0}


class KeepsNothing(EACAverage):
    """Has another objective in the store than in memory."""

    def _publish(self, ensemble, read, unlabeled, out, *arguments, **others):
        if out is not None:
            self.objective_ += 1
        super()._publish(ensemble, read, unlabeled, out, *arguments, **others)
        if out is not None:
            self.objective_ -= 1


class Writes(EACAverage):
    """Changes the labels that it is given."""

    def fit(self, x, y=None, **others):
        super().fit(x, y, **others)
        x[0, 0] = -1
        return self


class Silent(EACAverage):
    """Does not tell of objects without a label."""

    def fit(self, x, y=None, **others):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return super().fit(x, y, **others)


class Soft(MixtureModel):
    """A soft method that places new objects."""


class PlacesElsewhere(MixtureModel):
    """Places new objects by its store otherwise than in memory."""

    def _take_placing(self, consensus, ensemble):
        super()._take_placing(consensus, ensemble)
        self._order = self._order[::-1].copy()


class LabelsAll(MixtureModel):
    """Gives objects without a label a cluster."""

    def predict(self, x, *, out=None):
        return np.maximum(super().predict(x, out=out), 0)


def without_one(labels):
    """Return labels of which one is left out."""
    return np.where(np.arange(labels.size) == np.flatnonzero(labels == 0)[0], -1, labels).astype(np.int32)


def turned(labels):
    """Return labels that the labeled objects have exchanged."""
    found = labels.copy()
    found[labels >= 0] = np.roll(labels[labels >= 0], 7)
    return found


class Changed:
    """Changes a result, or a parameter, after a fit."""

    def fit(self, x, y=None, **others):
        super().fit(x, y, **others)
        setattr(self, self.changed, self.change())
        return self


fits = itertools.count()
CHANGES = {  # the promise that is broken by another value of an attribute
    "int32": ("labels_", lambda m: m.labels_.astype(np.int64)),
    "largest first": ("labels_", lambda m: np.where(m.labels_ < 0, -1, m.labels_.max() - m.labels_)),
    "if and only if a partition does": ("labels_", lambda m: without_one(m.labels_)),
    "planted clusters": ("labels_", lambda m: turned(m.labels_)),
    "n_clusters_": ("n_clusters_", lambda m: m.n_clusters_ + 1),
    "if and only if info.soft": ("memberships_", lambda m: np.eye(3, dtype=np.float32)[m.labels_]),
    "finite objective_": ("objective_", lambda m: np.inf),
    "same seed": ("objective_", lambda m: float(next(fits))),
    "engines": ("objective_", lambda m: m.objective_ + (m.client == "serial")),
    "history_": ("history_", lambda m: {"pass": [1, 2], "objective": [0.5]}),
    "change its parameters": ("memory", lambda m: "1GB"),
    "float32": ("memberships_", lambda m: np.array(m.memberships_, float)),
    "sum to 1": ("memberships_", lambda m: 2 * np.array(m.memberships_)),
    "largest membership": ("memberships_", lambda m: np.array(m.memberships_)[:, ::-1].copy()),
}
BROKEN = {"info": NoInfo, "labels given": Writes, "pickle": Remembers, "warns": Silent}
BROKEN |= {"stores its objective": KeepsNothing, "by its store": PlacesElsewhere, "predicts -1": LabelsAll}
for promise, (name, change) in CHANGES.items():
    base = Soft if promise in ("float32", "sum to 1", "largest membership") else EACAverage
    own = {"changed": name, "change": change, "__module__": __name__}
    BROKEN[promise] = type(f"Changed{len(BROKEN)}", (Changed, base), own)
    globals()[BROKEN[promise].__name__] = BROKEN[promise]  # where a pickle finds it


@pytest.mark.parametrize("method", [Good, Soft])
def test_check_method__passes_what_keeps_the_contract(method):
    check_method(method)


@pytest.mark.parametrize("promise", BROKEN)
def test_check_method__names_the_promise_that_a_method_breaks(promise):
    with refused(f"^a method .*{promise}", AssertionError):
        check_method(BROKEN[promise])
