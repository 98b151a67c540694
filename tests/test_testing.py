"""`bigcons.testing.check_method` passes what keeps the contract, and names the promise that is broken."""

import warnings

import numpy as np
import pytest

from bigcons import EACAverage, MethodInfo, MixtureModel
from bigcons.testing import check_method


class Good(EACAverage):
    """A method that keeps all promises; those below break one each."""


class NoInfo(EACAverage):
    """Does not say what it is."""

    info = MethodInfo("", "labels")


class Changed(EACAverage):
    """Changes its results after a fit."""

    def fit(self, x, y=None, **others):
        super().fit(x, y, **others)
        self.change(x)
        return self

    def change(self, x):
        raise NotImplementedError


class LongLabels(Changed):
    """Has labels of another type."""

    def change(self, x):
        self.labels_ = self.labels_.astype(np.int64)


class Upside(Changed):
    """Numbers the smallest cluster first."""

    def change(self, x):
        self.labels_ = np.where(self.labels_ < 0, -1, self.n_clusters_ - 1 - self.labels_).astype(np.int32)


class Miscounts(Changed):
    """Counts other clusters than it found."""

    def change(self, x):
        self.n_clusters_ += 1


class Unlabels(Changed):
    """Leaves out an object that has labels."""

    def change(self, x):
        self.labels_ = self.labels_.copy()
        self.labels_[np.flatnonzero(self.labels_ == 0)[0]] = -1


class HardWithMemberships(Changed):
    """Has memberships that it does not announce."""

    def change(self, x):
        self.memberships_ = np.eye(3, dtype=np.float32)[self.labels_]


class Infinite(Changed):
    """Has no objective."""

    def change(self, x):
        self.objective_ = np.inf


class Ragged(Changed):
    """Has lists of unequal length in its history."""

    def change(self, x):
        self.history_ = {"pass": [1, 2], "objective": [0.5]}


class Wrong(Changed):
    """Finds anything but the planted clusters."""

    def change(self, x):
        turned = np.roll(self.labels_[self.labels_ >= 0], 7)
        self.labels_ = self.labels_.copy()
        self.labels_[self.labels_ >= 0] = turned


class Restless(Changed):
    """Has another objective in every fit."""

    count = 0.0

    def change(self, x):
        type(self).count += 1.0
        self.objective_ = type(self).count


class Writes(Changed):
    """Changes the labels that it is given."""

    def change(self, x):
        x[0, 0] = -1


class Sets(Changed):
    """Changes a parameter in fit."""

    def change(self, x):
        self.memory = "1GB"


class Remembers(Changed):
    """Loses a result in a pickle."""

    def change(self, x):
        pass

    def __getstate__(self):
        return {**super().__getstate__(), "objective_": 0.0}


class Silent(EACAverage):
    """Does not tell of objects without a label."""

    def fit(self, x, y=None, **others):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return super().fit(x, y, **others)


class OfEngines(Changed):
    """Has another result in one thread."""

    def change(self, x):
        self.objective_ += self.client == "serial"


class KeepsNothing(Changed):
    """Has another objective in the store than in memory."""

    def _publish(self, ensemble, read, unlabeled, out, *arguments, **others):
        if out is not None:
            self.objective_ += 1
        super()._publish(ensemble, read, unlabeled, out, *arguments, **others)
        if out is not None:
            self.objective_ -= 1

    def change(self, x):
        pass


class Soft(MixtureModel):
    """A soft method that places new objects."""


class SoftChanged(MixtureModel):
    """Changes its memberships after a fit."""

    def fit(self, x, y=None, **others):
        super().fit(x, y, **others)
        self.memberships_ = self.change(np.array(self.memberships_))
        return self

    def change(self, memberships):
        raise NotImplementedError


class Double(SoftChanged):
    """Has memberships of another type."""

    def change(self, memberships):
        return memberships.astype(np.float64)


class Unnormalized(SoftChanged):
    """Has memberships that do not sum to 1."""

    def change(self, memberships):
        return 2 * memberships


class Crossed(SoftChanged):
    """Labels objects by other memberships than the largest."""

    def change(self, memberships):
        return memberships[:, ::-1].copy()


class PlacesElsewhere(MixtureModel):
    """Places new objects by its store otherwise than in memory."""

    def take_placing(self, consensus, ensemble):
        super().take_placing(consensus, ensemble)
        self._order = self._order[::-1].copy()


class LabelsAll(MixtureModel):
    """Gives objects without a label a cluster."""

    def predict(self, x, *, out=None):
        return np.maximum(super().predict(x, out=out), 0)


BROKEN = {
    NoInfo: "info",
    LongLabels: "int32",
    Upside: "largest first",
    Miscounts: "n_clusters_",
    Unlabels: "if and only if a partition does",
    HardWithMemberships: "if and only if info.soft",
    Infinite: "finite objective_",
    Ragged: "history_",
    Wrong: "planted clusters",
    Restless: "same seed",
    Writes: "labels given",
    Sets: "change its parameters",
    Remembers: "pickle",
    Silent: "warns",
    OfEngines: "engines",
    KeepsNothing: "stores its objective",
    Double: "float32",
    Unnormalized: "sum to 1",
    Crossed: "largest membership",
    PlacesElsewhere: "by its store",
    LabelsAll: "predicts -1",
}


@pytest.mark.parametrize("method", [Good, Soft])
def test_check_method__passes_what_keeps_the_contract(method):
    check_method(method)


@pytest.mark.parametrize("method", BROKEN)
def test_check_method__names_the_promise_that_a_method_breaks(method):
    with pytest.raises(AssertionError, match=f"^a method .*{BROKEN[method]}") as broken:
        check_method(method)
    assert "\n" not in str(broken.value)
