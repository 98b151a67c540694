"""Starts and the loop of passes: a killed run goes on to the same bits."""

import inspect
import operator
import warnings

import numpy as np
import pytest

from bigcons import METHODS, Consensus, Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.disk.checkpoint import FileBlocks, Snapshots
from bigcons.errors import ConvergenceWarning, UnlabeledObjectsWarning
from bigcons.memory import Block
from bigcons.methods.pass_clusterer import PassClusterer
from bigcons.run.engine import SerialEngine, fold
from bigcons.run.passes import Passes, Run, Step, run_passes
from tests.support.engines import EngineThatStops, StopError

NAMES = [
    name
    for name, cls in METHODS.items()
    if issubclass(cls, PassClusterer) and "n_init" in inspect.signature(cls).parameters
]
NEEDED = {"ipc": {"normalize": "all"}}  # otherwise it compares all pairs


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("passes") / "ensemble.zarr"
    planted_ensemble(9000, 12, random_state=4)[0].save(path, chunk_rows=3000)
    return path


def fit(name, stored, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UnlabeledObjectsWarning)
        parameters |= NEEDED.get(name, {})
        return METHODS[name](n_clusters=5, random_state=3, n_init=3, **parameters).fit(stored)


def assert_same(model, expected):
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    assert model.history_["objective"] == expected.history_["objective"]
    assert model.start_objectives_ == expected.start_objectives_
    assert len(model.start_objectives_) == 3
    if model.info.soft:
        np.testing.assert_array_equal(np.asarray(model.memberships_), np.asarray(expected.memberships_))


def n_kept(arrays, generation):
    return len((arrays.folder / f"generation-{generation}").names())


def test_passes__drop_what_no_pass_reads(stored, tmp_path, monkeypatch):
    dropped, drop = [], FileBlocks.drop

    def watched(self, generations):
        if generations:
            dropped.append([(generation, n_kept(self, generation)) for generation in generations])
        drop(self, generations)
        assert not any(n_kept(self, generation) for generation in generations)

    monkeypatch.setattr(FileBlocks, "drop", watched)
    model = METHODS["pcc"](5, random_state=3, max_iter=6, tol=0.0, out=tmp_path / "c.zarr", client="serial")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(Ensemble.open(stored))
    assert model.n_passes_ == 6
    assert dropped == [[(g, 3)] for g in range(6)]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_resume__after_a_stop_in_any_pass_ends_with_the_same_bits(name, stored, tmp_path):
    expected = fit(name, stored, out=tmp_path / "expected.zarr", max_iter=6)
    out = tmp_path / "consensus.zarr"
    blocks = 3
    start = blocks + 3  # the survey, and three starts
    for n_tasks in range(start - 1, start + blocks * (expected.n_passes_ + 1), blocks + 1):
        with pytest.raises(StopError):
            fit(name, stored, out=out, client=EngineThatStops(n_tasks), max_iter=6)
        assert not out.exists()
        assert_same(fit(name, stored, out=out, max_iter=6), expected)
        Consensus.open(out).verify()
        out = tmp_path / f"consensus{n_tasks}.zarr"
    assert not list(tmp_path.glob("*.partial"))


# The loop alone

BLOCK = Block(0, 0, 3)
LAST = 5


class Killed(BaseException):
    """What ends a run between two instructions."""


class Halving(Passes):
    """Halves one row of numbers a pass until the pass ``LAST``; each pass writes two generations."""

    name = "test"

    def __init__(self, folder, dies_in=None):
        self.arrays, self.snapshots = FileBlocks(folder, 1), Snapshots(folder, {})
        self.dies_in = dies_in
        self.begun = []

    def start(self, run):
        self.begun.append(0)
        rows = np.array([[1.0], [3.0], [7.0]], np.float32)
        run.arrays.write(0, BLOCK, rows)
        return {"total": rows.sum(dtype=np.float64)}, [3.5, 2.5]

    def one_pass(self, run, at, listener):
        self.begun.append(len(at.records) + 1)
        nonsense = run.visit(
            lambda labels, rows: (0, rows * np.nan), reads=[at.generation], writes=at.generation + 1
        )
        fold(run.engine, run.blocks, nonsense, operator.add, progress=listener)
        rows = run.arrays.read(at.generation, BLOCK) / 2
        run.arrays.write(at.generation + 2, BLOCK, rows)
        if len(at.records) + 1 == self.dies_in:
            raise Killed
        half = float(at.state["total"]) / 2
        return Step({"total": np.array(half)}, {"total": half}, len(at.records) + 1 == LAST, 2)

    def run(self, max_passes=100):
        run = Run(Ensemble.from_labels([[0], [0], [1]]), [BLOCK], SerialEngine(), 0, max_passes, 0.0)
        run.arrays, run.snapshots = self.arrays, self.snapshots
        return run_passes(run, self)


def quantities(stage):
    return [
        {name: value for name, value in record.items() if name not in ("seconds", "memory")}
        for record in stage.records
    ]


def test_run_passes__passes_until_settled(tmp_path):
    work = Halving(tmp_path)
    stage = work.run()
    assert work.begun == list(range(LAST + 1))
    assert (stage.is_settled, stage.state["total"]) == (True, 11 / 2**LAST)
    assert quantities(stage) == [{"pass": p, "total": 11 / 2**p} for p in range(1, LAST + 1)]
    assert work.arrays.read(stage.generation, BLOCK).sum() == 11 / 2**LAST
    assert [path.name for path in tmp_path.glob("generation-*")] == [f"generation-{2 * LAST}"]


@pytest.mark.parametrize("dies_in", range(1, LAST + 1))
def test_run_passes__resumes_the_last_whole_pass(tmp_path, dies_in):
    expected = Halving(tmp_path / "undisturbed").run()
    with pytest.raises(Killed):
        Halving(tmp_path / "killed", dies_in).run()
    resumed = Halving(tmp_path / "killed")
    stage = resumed.run()
    assert resumed.begun == list(range(dies_in, LAST + 1))
    assert (stage.state, stage.generation, quantities(stage)) == (
        expected.state,
        expected.generation,
        quantities(expected),
    )
    assert stage.start_objectives == expected.start_objectives == [3.5, 2.5]
    assert len(list((tmp_path / "killed").glob("generation-*"))) == 1


def test_run_passes__a_settled_solve_is_only_read(tmp_path):
    Halving(tmp_path).run()
    again = Halving(tmp_path)
    assert again.run().is_settled
    assert again.begun == []
