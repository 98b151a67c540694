"""Curves: convergence, calibration of confidence, evidence for numbers of clusters."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.plots.drawing import GUIDE, PALETTE, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import ScalarFormatter

    from bigcons.metrics.confidence import Reliability


def convergence(consensus: Any) -> Figure:
    """Draw the objective and the optimality gap of a solve against its passes or steps, on log axes.

    The objective is drawn as its distance from the best one, relative to that; the best itself, at distance
    0, has no point. Where there are fewer than two points, the objectives themselves are drawn.

    ``consensus`` is a ``Consensus``, a fitted clusterer, or the history of one: a mapping of lists named
    ``pass`` or ``step``, ``objective`` and, if the method has one, ``gap``.
    """
    history = getattr(consensus, "history_", getattr(consensus, "history", consensus))
    if not isinstance(history, Mapping):
        raise InvalidInputError(
            f"consensus has type {type(consensus).__name__} and no history; "
            "pass a Consensus, a fitted clusterer, or its history_."
        )
    unit = "pass" if "pass" in history else "step"
    if not history.get(unit) or not history.get("objective"):
        raise InvalidInputError(
            f"history has the entries {sorted(history)}; a curve needs 'pass' or 'step', and 'objective'."
        )
    names = [name for name in ("objective", "gap") if history.get(name)]
    objective, unit_words = (
        np.asarray(history["objective"], float),
        {"pass": "pass over the data", "step": "single-object step"},
    )
    distance, best = _from_best(objective)
    shows_distance = np.count_nonzero(distance > 0) >= 2
    with new_figure(4.8, 0.7 + 1.3 * len(names)) as figure:
        panels: Any = np.atleast_1d(figure.subplots(len(names), sharex=True))
        if shows_distance:
            _draw_curve(panels[0], history[unit], np.where(distance > 0, distance, np.nan), PALETTE[0])
            panels[0].set_yscale("log")
            panels[0].set_ylabel("objective, relative\ndistance to the best")
            panels[0].set_title(f"best: {best:,.10g}", loc="right", fontsize=8)
        else:
            _draw_curve(panels[0], history[unit], objective, PALETTE[0])
            panels[0].set_ylabel("objective")
            panels[0].yaxis.set_major_formatter(_plain_numbers())
        if "gap" in names:
            _draw_curve(panels[1], history[unit], history["gap"], PALETTE[1])
            panels[1].set_ylabel("optimality gap")
            panels[1].set_yscale("log")
        panels[-1].set_xlabel(unit_words[unit])
        figure.align_ylabels()
    return figure


def _from_best(objective: np.ndarray) -> tuple[np.ndarray, float]:
    """Return how far each objective is from the best one, relative to it, and the best one.

    The best is the lowest of a solve that lowers its objective, else the highest.
    """
    known = objective[np.isfinite(objective)]
    if not known.size:
        return np.full(objective.shape, np.nan), float("nan")
    best = float(known.min() if known[-1] < known[0] else known.max())
    return np.abs(objective - best) / (abs(best) or np.abs(known).max() or 1.0), best


def reliability(found: Reliability | Mapping[str, Reliability]) -> Figure:
    """Draw how often labels of a stated confidence are right, against the confidence.

    ``found`` is what `bigcons.metrics.reliability` returns, or several of these by name. The area of a point
    grows with the objects of its bin. Points on the diagonal are calibrated, those below it overconfident.
    """
    curves = found if isinstance(found, Mapping) else {"": found}
    with new_figure(3.8 if len(curves) == 1 else 5.6, 3.8) as figure:
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color=GUIDE, linewidth=0.8, zorder=0.5)
        for (name, curve), color in zip(curves.items(), itertools.cycle(PALETTE), strict=False):
            area = 120 * curve.n_objects / curve.n_objects.sum()
            told = f"{name}: {curve.error:.3f}"
            some = curve.n_objects > 0
            axes.plot(
                curve.confidence[some], curve.accuracy[some], color=color, linewidth=1.2, marker=".",
                markersize=3, label=told,
            )  # fmt: skip
            axes.scatter(curve.confidence[some], curve.accuracy[some], area[some], color=color, alpha=0.4)
        axes.set(xlim=(0, 1.02), ylim=(0, 1.02), aspect="equal")
        axes.set_xlabel("confidence")
        axes.set_ylabel("share of labels that are right")
        if len(curves) == 1:
            axes.set_title(f"calibration error {told.removeprefix(': ')}", loc="right", fontsize=9)
        else:
            figure.legend(loc="outside right upper", title="calibration error")
    return figure


def n_clusters(choice: Any) -> Figure:
    """Draw what speaks for each number of clusters.

    ``choice`` is what `bigcons.choose_n_clusters` returned, or a clusterer fitted with ``n_clusters="auto"``.
    Above, the eigenvalues of the co-association, held out and of all partitions: the number is where they
    fall. Below, how crisp the clusters are, and how far two halves of the partitions agree on them.
    """
    choice = getattr(choice, "n_clusters_choice_", choice)
    if not hasattr(choice, "runner_up"):
        raise InvalidInputError(
            f"choice has type {type(choice).__name__}; pass what bigcons.choose_n_clusters returned, or a "
            "clusterer fitted with n_clusters='auto'."
        )
    table, k = choice.table, choice.table["n_clusters"]
    panels = (
        ("eigenvalue", {"held_out": "held-out partitions", "eigenvalue": "all partitions"}),
        (
            "quality",
            {
                "crispness": "crispness of the blurriest cluster",
                "stability": "ARI of two halves of the partitions",
                "held_out_joins": "held-out joins",
            },
        ),
    )
    with new_figure(5.6, 4.6) as figure:
        for axes, (what, curves) in zip(figure.subplots(2, sharex=True), panels, strict=True):
            for (name, words), color, line in zip(curves.items(), PALETTE, ("-", ":", "--"), strict=False):
                axes.plot(
                    k, table[name], line, color=color, marker="o", markersize=3, linewidth=1.2, label=words
                )
            axes.set(ylabel=what, ylim=(0, 1.05))
            axes.axvline(choice.n_clusters, color=GUIDE, linewidth=0.8, zorder=0)
            if choice.runner_up is not None:
                axes.axvline(choice.runner_up, color=GUIDE, linewidth=0.8, linestyle="--", zorder=0)
            axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
            axes.legend(loc="upper right")
        second = "" if choice.runner_up is None else f"; runner-up {choice.runner_up} (dashed)"
        figure.suptitle(f"{choice.n_clusters} clusters recommended{second}", fontsize=10)
        axes.set_xlabel("number of clusters")
    return figure


def _draw_curve(axes: Axes, x: Sequence[float], y: Any, color: str) -> None:
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    marker = "o" if len(x) <= 40 else None
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.plot(x, np.asarray(y, dtype=float), color=color, marker=marker, markersize=3.5, linewidth=1.4)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)


def _plain_numbers() -> ScalarFormatter:
    """Return a formatter that writes numbers in full, such as -73,656,120,000, without offset or exponent.

    Objectives are large sums that change little, which matplotlib would abbreviate to an offset.
    """
    from matplotlib.ticker import ScalarFormatter

    class PlainNumbers(ScalarFormatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            decimals = len(super().__call__(x, pos).partition(".")[2])
            return self.fix_minus(f"{x:,.{decimals}f}")

    formatter = PlainNumbers(useOffset=False)
    formatter.set_scientific(False)
    return formatter
