"""EM among sites that hold different objects and never see each other's rows.

Works for every `Problem` of passes, such as V-BCE and the mixture of multinomials: what the M-step needs of
the objects are sums over them. (On a Dask cluster the estimators do the same without any of this: there a
block is a site.) A site may be a stub that sends its argument to another machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.solving.passes import Problem, Record, State, Stats, add_all
from bigcons.validation import check_int


class RowSite(Protocol):
    """What the others know of a site."""

    def begin(self) -> None:
        """Forget what the objects carried in an earlier run."""
        ...

    def statistics(self, state: State) -> Stats:
        """Return the sums over the objects of the site under ``state``, and keep what the objects carry."""
        ...


class Site:
    """A site with its labels in memory. It hands out sums over its objects, and nothing else.

    The messages do not grow with the number of objects. Of V-BCE: a state of ``K B + K`` numbers comes in;
    counts ``K B``, summed expectations ``K``, and two scalars for the bound go out.
    """

    def __init__(self, problem: Problem, labels: np.ndarray) -> None:
        self._problem = problem
        self._labels = labels
        self.carried: np.ndarray | None = None
        """What the objects carry, for the site's own use: the gamma of V-BCE."""

    def begin(self) -> None:
        """Forget what the objects carried in an earlier run."""
        self.carried = None

    def start(self, seed: int, number: int) -> State:
        """Return the state of start ``number``, from the objects of this site."""
        return self._problem.start(self._labels, seed, number)[0]

    def statistics(self, state: State) -> Stats:
        """Return the sums over the objects of the site under ``state``, and keep what the objects carry."""
        stats, self.carried = self._problem.visit(state, self._labels, self.carried)
        return stats


class RowSolution(NamedTuple):
    """Where the sites arrived."""

    state: State
    records: list[Record]
    """One an iteration, or a cycle; the last judges ``state``."""
    converged: bool


def fit_rows(
    problem: Problem, sites: Sequence[RowSite], state: State, *, max_iter: int = 500, tol: float = 1e-6
) -> RowSolution:
    """Run exact EM from ``state``: what the central run does, up to the order of summation.

    One exchange with every site an iteration. Wang, Shan and Banerjee (2009, section 4.1) exchange messages
    in every Newton iteration for alpha; but gamma is fixed in the M-step, and Newton needs of it only the
    sums that are here already.
    """
    _begin(sites)
    records: list[Record] = []
    judged = state
    for _ in range(check_int("max_iter", max_iter)):
        following, record = problem.finish(state, _sum([site.statistics(state) for site in sites]))
        settled = problem.is_settled(records[-1] if records else None, record, tol)
        records.append(record)
        if settled:
            return RowSolution(state, records, converged=True)
        judged, state = state, following
    return RowSolution(judged, records, converged=False)


def fit_rows_in_turn(
    problem: Problem, sites: Sequence[RowSite], state: State, *, max_cycles: int = 10, tol: float = 0.01
) -> RowSolution:
    """Hand ``state`` from site to site, each of which takes one EM step on its own objects alone.

    The heuristic of the paper's experiments (section 4.1): fewer messages, no guarantee that it converges. It
    counts as converged when a cycle changes the state by at most ``tol`` of its absolute sum. The authors'
    code looks at beta alone; of V-BCE that is most of the state where alpha, on clean ensembles, goes on
    towards zero for long. The objective of a record sums what the sites saw as the state came by.
    """
    _begin(sites)
    records: list[Record] = []
    for _ in range(check_int("max_cycles", max_cycles)):
        before, value = state, 0.0
        for site in sites:
            state, record = problem.finish(state, site.statistics(state))
            value += record["objective"]
        change = relative_change(before, state)
        records.append({"objective": value, "change": change})
        if change <= tol:
            return RowSolution(state, records, converged=True)
    return RowSolution(state, records, converged=False)


def relative_change(before: State, after: State) -> float:
    """Return the summed absolute change of all arrays of a state over their absolute sum."""
    changed = sum(np.abs(after[name] - values).sum() for name, values in before.items())
    return float(changed / sum(np.abs(values).sum() for values in before.values()))


def _begin(sites: Sequence[RowSite]) -> None:
    if not sites:
        raise InvalidInputError("there are no sites; give at least one.")
    for site in sites:
        site.begin()


def _sum(parts: list[Stats]) -> Stats:
    total = [{name: values.copy() for name, values in parts[0].items()}]
    for part in parts[1:]:
        add_all([*total], [part])
    return total[0]
