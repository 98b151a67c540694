"""Ensembles and solves, used and killed in any order, against plain models in memory."""

import shutil
import tempfile
import warnings
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bigcons import METHODS, Consensus, Ensemble
from bigcons.disk.checkpoint import FileBlocks, Snapshots
from bigcons.disk.places import DiskPlace
from bigcons.errors import InvalidInputError
from bigcons.store import consensus, ensemble_store
from tests.support.strategies import label_matrices

FEW = settings(max_examples=8, stateful_step_count=8)


class Killed(BaseException):
    """Stands for a kill."""


@contextmanager
def killed(kind, name, *, after):
    """Kill the ``with`` block at the first call of ``kind.name``, or after it; nothing is cleaned up."""
    original = getattr(kind, name)
    with ExitStack() as dead:

        def dying(*arguments, **named):
            if after:
                original(*arguments, **named)
            dead.enter_context(patch.object(DiskPlace, "remove", lambda _: None))
            dead.enter_context(patch.object(shutil, "rmtree", lambda *_, **__: None))
            raise Killed

        with patch.object(kind, name, dying):
            try:
                yield
            except Killed:
                return
    raise AssertionError("the block ended before it could be killed")


class Machine(RuleBasedStateMachine):
    """A folder that lasts as long as the machine."""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())

    def teardown(self):
        shutil.rmtree(self.folder)


class EnsembleMachine(Machine):
    """A stored ensemble; its model is the matrix of labels, whose rows and columns grow."""

    @initialize(labels=label_matrices(), chunk_rows=st.integers(1, 4))
    def create(self, labels, chunk_rows):
        self.path, self.labels = self.folder / "e.zarr", labels
        Ensemble.from_labels(labels).save(self.path, chunk_rows=chunk_rows)

    def change(self, write, new, kill):
        """Write, perhaps killed before or after the commit: the old labels are there or the new ones."""
        if kill is None:
            write()
            self.labels = new
            return
        with killed(ensemble_store, "write_head", after=kill == "after"):
            write()
        found = decoded(Ensemble.open(self.path))
        if not np.array_equal(found, self.labels):
            np.testing.assert_array_equal(found, new)
            self.labels = new

    @rule(
        labels=label_matrices(max_objects=5),
        chunk_rows=st.integers(1, 4),
        kill=st.sampled_from([None, "before", "after"]),
    )
    def replace(self, labels, chunk_rows, kill):
        ensemble = Ensemble.from_labels(labels)
        self.change(lambda: ensemble.save(self.path, chunk_rows=chunk_rows, overwrite=True), labels, kill)

    @precondition(lambda self: len(self.labels) < 30)
    @rule(seed=st.integers(0, 99), n=st.integers(1, 4), kill=st.sampled_from([None, None, "before", "after"]))
    def append_objects(self, seed, n, kill):
        new = np.random.default_rng(seed).integers(-1, 5, (n, self.labels.shape[1]))
        ensemble = Ensemble.open(self.path, "a")
        self.change(lambda: ensemble.append_objects(new), np.vstack([self.labels, new]), kill)

    @precondition(lambda self: self.labels.shape[1] < 8)
    @rule(seed=st.integers(0, 99), kill=st.sampled_from([None, None, "before", "after"]))
    def append_partition(self, seed, kill):
        new = np.random.default_rng(seed).integers(-1, 4, (len(self.labels), 1))
        new[0] = 0
        ensemble = Ensemble.open(self.path, "a")
        self.change(lambda: ensemble.append_partitions(new), np.hstack([self.labels, new]), kill)

    @rule(seed=st.integers(0, 99))
    def refuse(self, seed):
        bad = [[0.5] * self.labels.shape[1]]
        try:
            Ensemble.open(self.path, "a").append_objects(bad)
        except InvalidInputError:
            return
        raise AssertionError("fractions are no labels")

    @invariant()
    def holds_its_labels(self):
        if hasattr(self, "labels"):
            ensemble = Ensemble.open(self.path)
            np.testing.assert_array_equal(decoded(ensemble), self.labels)
            assert ensemble.verify()["ok"]


def decoded(ensemble):
    """Return the labels as they were given, -1 where missing."""
    codes = ensemble.read(0, ensemble.n_objects).astype(np.int64)
    for u, values in enumerate(ensemble.categories):
        if values is not None:
            codes[:, u] = np.where(codes[:, u] < 0, -1, values[codes[:, u]])
    return codes


LABELS = np.random.default_rng(0).integers(-1, 4, (60, 6))


class SolveMachine(Machine):
    """A solve with an output, killed and repeated; its model is the solve in memory."""

    @initialize(seed=st.integers(0, 3), method=st.sampled_from(["kcc", "mixture"]))
    def begin(self, seed, method):
        self.ensemble = Ensemble.from_labels(LABELS).save(self.folder / "e.zarr", chunk_rows=16)
        self.asked = {"n_clusters": 3, "random_state": seed, "n_init": 2, "tol": 0.0, "max_iter": 6}
        self.method, self.out, self.done = METHODS[method], self.folder / "c.zarr", False
        self.expected = self.fit(None)

    def fit(self, out, **changed):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = self.method(**{**self.asked, **changed}, client="serial").fit(self.ensemble, out=out)
        return model.labels_.tobytes(), model.objective_

    @rule(
        what=st.sampled_from([(Snapshots, "save"), (FileBlocks, "write"), (consensus, "write_head")]),
        after=st.booleans(),
    )
    def kill(self, what, after):
        if self.done or (what[1] == "write" and self.method.__name__ != "KCC"):
            return
        try:
            with killed(*what, after=after):
                self.fit(self.out)
        except AssertionError:  # nothing was left to do before the commit
            self.done = True

    @rule()
    def run(self):
        assert self.fit(self.out) == self.expected
        self.done = True
        assert sorted(path.name for path in self.folder.iterdir()) == ["c.zarr", "e.zarr"]

    @precondition(lambda self: self.done)
    @rule()
    def replace(self):
        shutil.rmtree(self.out)
        self.done = False

    @invariant()
    def holds_the_result_or_nothing(self):
        if hasattr(self, "expected"):
            assert self.out.exists() == self.done
            if self.done:
                found = Consensus.open(self.out)
                found.verify()
                assert found.labels.tobytes() == self.expected[0]


TestEnsemble, TestSolve = (EnsembleMachine.TestCase, SolveMachine.TestCase)
TestEnsemble.settings = TestSolve.settings = FEW
