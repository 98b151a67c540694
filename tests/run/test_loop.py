"""The loop of passes: start or resume, one pass, commit, stop."""

from __future__ import annotations

import operator

import numpy as np
import pytest

from bigcons import Ensemble
from bigcons.disk.checkpoint import FileBlocks, Snapshots
from bigcons.memory import Block
from bigcons.run.engine import SerialEngine, fold
from bigcons.run.passes import Passes, Run, Step, run_passes

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
        run = Run(Ensemble.from_labels([[0], [0], [1]]), SerialEngine(), 0, max_passes, 0.0)
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
    last_two = {f"generation-{2 * (LAST - 1)}", f"generation-{2 * LAST}"}
    assert {path.name for path in tmp_path.glob("generation-*")} == last_two


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
    assert len(list((tmp_path / "killed").glob("generation-*"))) == 2


def test_run_passes__stops_at_the_most_passes_and_goes_on_when_more_are_allowed(tmp_path):
    assert not Halving(tmp_path).run(2).is_settled
    more = Halving(tmp_path)
    assert more.run().is_settled
    assert more.begun == [3, 4, 5]


def test_run_passes__a_settled_solve_is_only_read(tmp_path):
    Halving(tmp_path).run()
    again = Halving(tmp_path)
    assert again.run().is_settled
    assert again.begun == []
