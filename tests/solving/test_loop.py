"""The loop of passes: start or resume, one pass, commit, stop."""

from __future__ import annotations

import numpy as np
import pytest

from bigcons.memory import Block
from bigcons.solving.loop import Begun, Pass, run_stages
from bigcons.storage.checkpoint import FileBlocks, Snapshots

BLOCK = Block(0, 0, 3)
LAST = 5


class Killed(BaseException):
    """What ends a run between two instructions."""


class Halving:
    """Halves one row of numbers a pass until the pass ``LAST``; each pass writes two generations."""

    def __init__(self, folder, dies_in=None):
        self.arrays, self.snapshots = FileBlocks(folder, 1), Snapshots(folder, {})
        self.dies_in = dies_in
        self.begun = []

    def begin(self):
        self.begun.append(0)
        rows = np.array([[1.0], [3.0], [7.0]], np.float32)
        self.arrays.write(0, BLOCK, rows)
        return Begun(rows.sum(dtype=np.float64), [3.5, 2.5])

    def one_pass(self, stage, listener):
        self.begun.append(len(stage.records) + 1)
        rows = self.arrays.read(stage.generation, BLOCK) / 2
        self.arrays.write(stage.generation + 1, BLOCK, rows * np.nan)
        self.arrays.write(stage.generation + 2, BLOCK, rows)
        if len(stage.records) + 1 == self.dies_in:
            raise Killed
        listener.advance(3)
        total = stage.state / 2
        return Pass(total, stage.generation + 2, {"total": total}, len(stage.records) + 1 == LAST)

    def run(self, max_passes=100):
        return run_stages(
            self.begin,
            self.one_pass,
            pack=lambda total: ({"total": np.array(total)}, {"name": "total"}),
            unpack=lambda arrays, facts: float(arrays[facts["name"]]),
            max_passes=max_passes,
            n_objects=3,
            what="test",
            arrays=self.arrays,
            snapshots=self.snapshots,
        )


def course(stage):
    return [{name: value for name, value in record.items() if name != "seconds"} for record in stage.records]


def test_run_stages__passes_until_settled(tmp_path):
    work = Halving(tmp_path)
    stage = work.run()
    assert work.begun == list(range(LAST + 1))
    assert (stage.is_settled, stage.state) == (True, 11 / 2**LAST)
    assert course(stage) == [{"pass": p, "total": 11 / 2**p} for p in range(1, LAST + 1)]
    assert work.arrays.read(stage.generation, BLOCK).sum() == 11 / 2**LAST
    assert [path.name for path in tmp_path.glob("generation-*")] == [f"generation-{2 * LAST}"]


@pytest.mark.parametrize("dies_in", range(1, LAST + 1))
def test_run_stages__takes_up_the_last_whole_pass(tmp_path, dies_in):
    expected = Halving(tmp_path / "undisturbed").run()
    with pytest.raises(Killed):
        Halving(tmp_path / "killed", dies_in).run()
    resumed = Halving(tmp_path / "killed")
    stage = resumed.run()
    assert resumed.begun == list(range(dies_in, LAST + 1))
    assert (stage.state, stage.generation, course(stage)) == (
        expected.state,
        expected.generation,
        course(expected),
    )
    assert stage.start_objectives == expected.start_objectives == [3.5, 2.5]
    assert len(list((tmp_path / "killed").glob("generation-*"))) == 1


def test_run_stages__stops_at_the_most_passes_and_goes_on_when_more_are_allowed(tmp_path):
    assert not Halving(tmp_path).run(2).is_settled
    more = Halving(tmp_path)
    assert more.run().is_settled
    assert more.begun == [3, 4, 5]


def test_run_stages__a_settled_solve_is_only_read(tmp_path):
    Halving(tmp_path).run()
    again = Halving(tmp_path)
    assert again.run().is_settled
    assert again.begun == []
