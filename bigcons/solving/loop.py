"""The loop of passes: start or resume, one pass, commit, until the stopping rule holds."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from bigcons.progress import Progress, progress
from bigcons.storage.checkpoint import BlockArrays, Snapshots

State = TypeVar("State")

logger = logging.getLogger("bigcons")

Record = dict[str, float]
"""What one pass tells of itself, by name."""

History = dict[str, list[float]]
"""One list per quantity, one entry per pass, for plots and stored results."""

Packed = tuple[Mapping[str, np.ndarray], Mapping[str, Any]]
"""A state as a snapshot keeps it: arrays, and facts that JSON can write."""


class Begun(NamedTuple, Generic[State]):
    """Where the first pass sets out."""

    state: State
    start_objectives: list[float]
    """Of every start that was tried to get here; empty if there was nothing to choose."""


class Stage(NamedTuple, Generic[State]):
    """All that the next pass depends on, block arrays by reference: what a snapshot holds."""

    state: State
    """What the method carries from pass to pass; small."""
    generation: int
    """Of the block arrays that go with the state; a pass reads it and writes later ones."""
    is_settled: bool
    """Whether the stopping rule holds."""
    records: list[Record]
    start_objectives: list[float]
    """As they were begun with."""


class Pass(NamedTuple, Generic[State]):
    """Where one pass led."""

    state: State
    generation: int
    record: Record
    is_settled: bool


def run_stages(
    begin: Callable[[], Begun[State]],
    one_pass: Callable[[Stage[State], Progress], Pass[State]],
    *,
    pack: Callable[[State], Packed],
    unpack: Callable[[dict[str, np.ndarray], dict[str, Any]], State],
    max_passes: int,
    n_objects: int,
    what: str,
    arrays: BlockArrays,
    snapshots: Snapshots | None = None,
) -> Stage[State]:
    """Return the stage at which the passes end: settled, or after ``max_passes`` in all.

    ``begin`` writes generation 0 of ``arrays`` and returns what goes with it. ``one_pass`` advances its
    listener by ``n_objects`` and changes nothing it was given, so that a pass that was cut short can begin
    again. With ``snapshots``, the start and every pass are committed, and a stage that is there already is
    taken up. Generations that no pass reads any more are dropped.
    """
    stage = _resumed(snapshots, unpack)
    if stage is None:
        begun = begin()
        stage = Stage(begun.state, 0, False, [], begun.start_objectives)
        _commit(snapshots, stage, pack)
    dropped = 0
    first = len(stage.records) + 1
    with progress(what, n_objects * max(max_passes - first + 1, 0)) as listener:
        for number in range(first, max_passes + 1):
            if stage.is_settled:
                break
            began = time.perf_counter()
            done = one_pass(stage, listener)
            records = [*stage.records, _timed(what, number, done.record, began)]
            stage = Stage(done.state, done.generation, bool(done.is_settled), records, stage.start_objectives)
            _commit(snapshots, stage, pack)
            for old in range(dropped, stage.generation):
                arrays.drop(old)
            dropped = stage.generation
    return stage


def run_passes(
    one_pass: Callable[[int], Record], *, max_passes: int, what: str, first: int = 1
) -> Iterator[Record]:
    """Yield the record of each pass from ``first`` on, with its ``seconds``, until the caller stops."""
    for number in range(first, max_passes + 1):
        began = time.perf_counter()
        yield _timed(what, number, one_pass(number), began)


def as_history(records: list[Record]) -> History:
    """Turn the records of the passes into one list per quantity."""
    names = records[0] if records else {}
    return {name: [record[name] for record in records] for name in names}


def _timed(what: str, number: int, record: Record, began: float) -> Record:
    record = {"pass": number, **record, "seconds": time.perf_counter() - began}
    logger.info("%s: %s", what, ", ".join(f"{name} {value:.6g}" for name, value in record.items()))
    return record


def _commit(snapshots: Snapshots | None, stage: Stage[State], pack: Callable[[State], Packed]) -> None:
    if snapshots is not None:
        arrays, facts = pack(stage.state)
        course = {
            "generation": stage.generation,
            "is_settled": stage.is_settled,
            "records": stage.records,
            "start_objectives": stage.start_objectives,
        }
        snapshots.save(arrays, {"state": dict(facts), **course})


def _resumed(
    snapshots: Snapshots | None, unpack: Callable[[dict[str, np.ndarray], dict[str, Any]], State]
) -> Stage[State] | None:
    found = snapshots.load() if snapshots is not None else None
    if found is None:
        return None
    arrays, facts = found
    state = unpack(arrays, facts["state"])
    return Stage(state, *(facts[name] for name in Stage._fields[1:]))
