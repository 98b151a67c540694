"""Curves: convergence of a solve, evidence for numbers of clusters."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.plots.drawing import GUIDE, PALETTE, ensemble_of, new_figure, refuse_ensemble
from bigcons.seeding import SeedLike
from bigcons.store.clusters import count_in_words, evidence, merit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import ScalarFormatter
ROUNDING = 1e-8
"""Relative distance at which objectives are equal: memberships are kept in single precision."""


def convergence(consensus: Any) -> Figure:
    """Draw the objective and the optimality gap of a solve against its passes or steps, on log axes.

    The objective is drawn as its distance from the best one, relative to that; the best itself, and what
    equals it within rounding, has no point. Where there are fewer than two points, the objectives themselves
    are drawn, and where these do not change, or there is a single pass, a sentence says so.

    ``consensus`` is a ``Consensus``, a fitted clusterer, or the history of one: a mapping of lists named
    ``pass`` or ``step``, ``objective`` and, if the method has one, ``gap``.

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, truth = bc.datasets.planted_ensemble(500, 20, random_state=0)
    >>> figure = bc.plots.convergence(bc.IVC(6, random_state=0).fit(ensemble))
    >>> figure.savefig("convergence.png")
    """
    refuse_ensemble(consensus)
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
    objective = np.asarray(history["objective"], float)
    distance, best = _from_best(objective)
    names = [name for name in ("objective", "gap") if history.get(name) and len(objective) > 1]
    n_apart = np.count_nonzero(distance > 0)
    told = f"{best:,.0f}" if abs(best) >= 1e9 else f"{best:,.10g}"
    if not n_apart:
        names = [name for name in names if name != "objective"]
    with new_figure(4.8, 0.7 + 1.3 * len(names)) as figure:
        if not n_apart:
            n, words = len(objective), {"pass": "passes", "step": "steps"}[unit]
            once = f"There is a single {unit}, so no curve: its objective is {told}."
            figure.suptitle(
                once if n == 1 else f"The objective is {best:,.8g} in each of {n:,} {words}.", fontsize=9
            )
        if not names:
            figure.subplots().set_axis_off()
            return figure
        panels: Any = np.atleast_1d(figure.subplots(len(names), sharex=True))
        if n_apart >= 2:
            _draw_curve(panels[0], history[unit], np.where(distance > 0, distance, np.nan), PALETTE[0])
            _set_log(panels[0])
            panels[0].set_ylabel("objective, relative\ndistance to the best")
            panels[0].set_title(f"best: {told}", loc="right", fontsize=8)
        elif n_apart:
            _draw_curve(panels[0], history[unit], objective, PALETTE[0])
            panels[0].set_ylabel("objective")
            panels[0].yaxis.set_major_formatter(_plain_numbers())
        if "gap" in names:
            _draw_curve(panels[-1], history[unit], history["gap"], PALETTE[1])
            panels[-1].set_ylabel("optimality gap")
            _set_log(panels[-1])
        panels[-1].set_xlabel({"pass": "pass over the data", "step": "single-object step"}[unit])
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
    distance = np.abs(objective - best) / (abs(best) or np.abs(known).max() or 1.0)
    return np.where(distance < ROUNDING, 0.0, distance), best


def n_clusters(choice: Any) -> Figure:
    """Draw what speaks for each number of clusters.

    ``choice`` is what `bigcons.choose_n_clusters` returned, or a clusterer or Consensus whose number of
    clusters was chosen.
    Above, the distinctness of the least distinct two of so many clusters, which falls where one of them would
    be cut, and how far halves of the partitions agree on the number. Below, how long each number lives, the
    evidence by both, and with an eighth of the quality, which decides; some number is clear if it has more
    evidence than a single cluster, the dotted line (`NClustersChoice`). Each panel has its own scale.

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, truth = bc.datasets.planted_ensemble(500, 20, random_state=0)
    >>> choice = bc.choose_n_clusters(ensemble, k_range=(2, 9), random_state=0)
    >>> figure = bc.plots.n_clusters(choice)
    >>> figure.savefig("n_clusters.png")
    """
    if hasattr(choice, "read_labels"):  # a store keeps it with the tree
        choice = getattr(choice.tree, "choice", choice)
    choice = getattr(choice, "n_clusters_choice_", choice)
    if not hasattr(choice, "runner_up"):
        raise InvalidInputError(
            f"choice has type {type(choice).__name__}; pass bigcons.choose_n_clusters(ensemble), or a "
            "consensus with n_clusters='auto'."
        )
    table, k = choice.table, choice.table["n_clusters"]
    table = table | {"evidence": evidence(table), "merit": merit(table)}
    panels = (
        {"distinctness": "distinctness of the least distinct two", "agreement": "agreement of halves"},
        {"lifetime": "lifetime", "evidence": "evidence", "merit": "with quality, which decides"},
    )
    with new_figure(5.6, 4.6) as figure:
        for axes, curves in zip(figure.subplots(2, sharex=True), panels, strict=True):
            for (name, words), color, line in zip(curves.items(), PALETTE, (":", "-", "--"), strict=False):
                axes.plot(
                    k, table[name], line, color=color, marker="o", markersize=3, linewidth=1.2, label=words
                )
            axes.axvline(choice.n_clusters, color=GUIDE, linewidth=0.8, zorder=0)
            if choice.runner_up is not None:
                axes.axvline(choice.runner_up, color=GUIDE, linewidth=0.8, linestyle="--", zorder=0)
            axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.2)
        figure.axes[0].set_ylim(0, 1.05)
        axes.axhline(choice.lifetime_of_one, color=GUIDE, linewidth=0.8, linestyle=":", zorder=0)
        second = "" if choice.runner_up is None else f"; runner-up {choice.runner_up} (dashed)"
        doubt = "" if choice.is_clear else ", but none stands out"
        figure.suptitle(f"{count_in_words(choice.n_clusters)} recommended{doubt}{second}", fontsize=10)
        axes.set_xlabel("number of clusters")
    return figure


def consensus_cdf(ensembles: Any, *, n_objects: int = 1000, random_state: SeedLike = 0) -> Figure:
    """Draw the consensus CDF: which share of the pairs is joined by at most so many of the partitions.

    ``ensembles`` is an ensemble, or ensembles by name, such as the number of clusters of their partitions
    (Monti et al. 2003). A curve that rises at 0 and at 1 only is that of partitions that agree; its rise from
    .1 to .9 is `bigcons.metrics.pac`, which the legend tells. Pairs are those of ``n_objects`` sampled
    objects.

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, truth = bc.datasets.planted_ensemble(500, 20, random_state=0)
    >>> figure = bc.plots.consensus_cdf(ensemble)
    >>> figure.savefig("cdf.png")
    """
    from bigcons.metrics.ensemble import pair_shares

    named = ensembles if isinstance(ensembles, Mapping) else {"": ensembles}
    with new_figure(4.6, 3.4) as figure:
        axes = figure.subplots()
        for (name, ensemble), color in zip(named.items(), itertools.cycle(PALETTE), strict=False):
            shares = pair_shares(ensemble_of(ensemble), n_objects, random_state)
            values, first = np.unique(shares, return_index=True)
            below = np.append(first[1:], shares.size) / shares.size
            ambiguous = float(((shares > 0.1) & (shares <= 0.9)).mean())
            axes.step([0.0, *values, 1.0], [0.0, *below, 1.0], where="post", color=color, linewidth=1.3,
                      label=f"{name}{': ' if str(name) else ''}PAC {ambiguous:.2f}")  # fmt: skip
        axes.axvspan(0.1, 0.9, color="#EEEEEE", zorder=0)
        axes.set(xlabel="share of partitions that join a pair", ylabel="share of pairs", xlim=(0, 1),
                 ylim=(0, 1.02))  # fmt: skip
        axes.legend(loc="lower right", fontsize=8)
    return figure


def _draw_curve(axes: Axes, x: Sequence[float], y: Any, color: str) -> None:
    from matplotlib.ticker import FixedLocator, MaxNLocator, StrMethodFormatter

    marker = "o" if len(x) <= 40 else None
    axes.xaxis.set_major_locator(FixedLocator(x) if len(x) < 3 else MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.plot(x, np.asarray(y, dtype=float), color=color, marker=marker, markersize=3.5, linewidth=1.4)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)


def _set_log(axes: Axes) -> None:
    """Make the vertical axis logarithmic, from power of ten to power of ten."""
    axes.set_yscale("log")
    drawn = np.asarray(axes.lines[0].get_ydata(), float)
    seen = drawn[np.isfinite(drawn) & (drawn > 0)]
    if seen.size:
        axes.set_ylim(10 ** np.floor(np.log10(seen.min())), 10 ** np.ceil(np.log10(seen.max()) + 1e-9))


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
