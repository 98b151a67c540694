"""Curves and points: convergence, numbers of clusters, trust, reliability, scatter."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.io.labels import labels_of, names_of_rows, refuse_other_rows
from bigcons.plots import drawing
from bigcons.seeding import SeedLike
from bigcons.store.clusters import count_in_words, evidence, merit

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def convergence(consensus: Any) -> Figure:
    """Draw the objective and the optimality gap of a solve against its passes or steps, on log axes.

    The objective is drawn as its distance from the best one, relative to that; the best itself, and what
    equals it within rounding, has no point. Where that leaves no curve, a sentence tells the objective.

    ``consensus`` is a ``Consensus``, a fitted clusterer, or the history of one: a mapping of lists named
    ``pass`` or ``step``, ``objective`` and, if the method has one, ``gap``.

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, truth = bc.datasets.planted_ensemble(500, 20, random_state=0)
    >>> figure = bc.plots.convergence(bc.IVC(6, random_state=0).fit(ensemble))
    >>> figure.savefig("convergence.png")
    """
    history = getattr(consensus, "history_", getattr(consensus, "history", consensus))
    history = history if isinstance(history, Mapping) else {}
    unit, units = ("step", "steps") if "step" in history else ("pass", "passes")
    objective, n = np.asarray(history.get("objective", ()), float), len(history.get(unit, ()))
    known = objective[np.isfinite(objective)]
    if not n or not known.size:
        raise drawing.refused(
            consensus, "a Consensus or a fitted clusterer whose history has 'pass' or 'step', and 'objective'"
        )
    best = float(known.min() if known[-1] < known[0] else known.max())  # the lowest, if it is lowered
    distance = np.abs(objective - best) / (abs(best) or np.abs(known).max() or 1.0)
    distance[distance < 1e-8] = np.nan  # equal up to rounding: memberships are kept in single precision
    curves = {"objective, relative\ndistance to the best": distance}
    if np.count_nonzero(distance > 0) < 2:
        curves = {}
    if history.get("gap") and n > 1:
        curves["optimality gap"] = np.asarray(history["gap"], float)
    words = f"best objective: {best:,.0f}" if abs(best) >= 1e9 else f"best objective: {best:,.10g}"
    with drawing.new_figure(4.8, 0.7 + 1.3 * len(curves)) as figure:
        from matplotlib.ticker import MaxNLocator

        if not curves:
            figure.suptitle(f"{words}; no curve of {n:,} {unit if n == 1 else units}", fontsize=9)
            figure.subplots().set_axis_off()
            return figure
        figure.suptitle(words, fontsize=9)
        panels = figure.subplots(len(curves), sharex=True, squeeze=False)[:, 0]
        for axes, (name, y), color in zip(panels, curves.items(), drawing.PALETTE, strict=False):
            marker = "o" if n <= 40 else None
            axes.plot(history[unit], y, color=color, marker=marker, markersize=3.5, linewidth=1.4)
            axes.grid(axis="y", color=drawing.UNKNOWN, linewidth=0.6)
            axes.set(ylabel=name, yscale="log")
            decades = np.log10(y[y > 0])
            if decades.size:
                axes.set_ylim(10 ** np.floor(decades.min()), 10 ** np.ceil(decades.max() + 1e-9))
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlabel("pass over the data" if unit == "pass" else "single-object step")
        figure.align_ylabels()
    return figure


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
    stored = getattr(choice, "tree", None)  # a Consensus keeps the choice with the tree
    choice = getattr(stored, "choice", getattr(choice, "n_clusters_choice_", choice))
    if not hasattr(choice, "runner_up"):
        raise drawing.refused(
            choice, "bigcons.choose_n_clusters(ensemble), or a consensus with n_clusters='auto'"
        )
    table = choice.table | {"evidence": evidence(choice.table), "merit": merit(choice.table)}
    panels = (
        {"distinctness": "distinctness of the least distinct two", "agreement": "agreement of halves"},
        {"lifetime": "lifetime", "evidence": "evidence", "merit": "with quality, which decides"},
    )
    with drawing.new_figure(5.6, 4.6) as figure:
        for axes, curves in zip(figure.subplots(2, sharex=True), panels, strict=True):
            lines = zip(curves.items(), drawing.PALETTE, (":", "-", "--"), strict=False)
            for (name, words), color, line in lines:
                x, y = table["n_clusters"], table[name]
                axes.plot(x, y, line, color=color, marker="o", markersize=3, linewidth=1.2, label=words)
            for number, line in ((choice.n_clusters, "-"), (choice.runner_up, "--")):
                if number is not None:
                    axes.axvline(number, color=drawing.GUIDE, linewidth=0.8, linestyle=line, zorder=0)
            axes.grid(axis="y", color=drawing.UNKNOWN, linewidth=0.6)
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.2)
        figure.axes[0].set_ylim(0, 1.05)
        axes.axhline(choice.lifetime_of_one, color=drawing.GUIDE, linewidth=0.8, linestyle=":", zorder=0)
        second = "" if choice.runner_up is None else f"; runner-up {choice.runner_up} (dashed)"
        doubt = "" if choice.is_clear else ", but none stands out"
        figure.suptitle(f"{count_in_words(choice.n_clusters)} recommended{doubt}{second}", fontsize=10)
        axes.set_xlabel("number of clusters")
    return figure


def trust(found: Any, *, n_clusters: int = 40) -> Figure:
    """Draw how far clusters and objects can be trusted.

    On the left, for each cluster with its number of objects, the mean confidence of its objects, its
    stability under halves of the partitions, its cohesion and, where known, its support, see
    `bigcons.metrics.trust`; of more than ``n_clusters``, the largest. On the right, the share of the objects
    below each confidence, on a logarithmic axis.

    ``found`` is what `bigcons.metrics.trust` returned, a fitted clusterer, or a `Consensus` with it, which
    is read block by block.

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, truth = bc.datasets.planted_ensemble(500, 20, random_state=0)
    >>> model = bc.MCLA(6, random_state=0).fit(ensemble)
    >>> figure = bc.plots.trust(bc.metrics.trust(ensemble, model))
    >>> figure.savefig("trust.png")
    """
    found = drawing.trust_of(found) if hasattr(type(found), "trust_") else found
    if hasattr(found, "read_trust"):
        clusters = found.trust_tables[0]
        parts = [found.read_trust(block.start, block.stop)["confidence"] for block in found.blocks()]
    elif hasattr(found, "confidence") and hasattr(found, "clusters"):
        clusters, parts = found.clusters, [found.confidence]
    else:
        raise drawing.refused(
            found, "bigcons.metrics.trust(ensemble, labels), or a consensus of the tree or PCC"
        )
    edges = np.linspace(0, 1, 51)
    below = np.cumsum(sum(np.histogram(part[part > 0], edges)[0] for part in parts)).astype(float)
    below /= max(below[-1], 1.0)
    measures = {"confidence": "mean confidence"} | {m: m for m in ("stability", "cohesion", "support")}
    table = {name: clusters[name].to_numpy() for name in ("cluster", "size", *measures)}
    shown = drawing.largest(table["size"], n_clusters)
    with drawing.new_figure(6.8, 1.1 + (0.28 if len(shown) <= 10 else 0.2) * max(len(shown), 6)) as figure:
        left, right = figure.subplots(1, 2, width_ratios=[1.4, 1])
        rows = np.arange(len(shown))
        drawn = [name for name in measures if not np.isnan(table[name]).all()]
        for at, (name, marker) in enumerate(zip(drawn, "oDx|", strict=False)):
            y = rows + 0.18 * (at - (len(drawn) - 1) / 2)  # so that none hides another
            color, x = drawing.PALETTE[at], table[name][shown]
            left.plot(x, y, marker, color=color, markersize=4.0, label=measures[name])
        left.hlines(rows, 0, 1, color=drawing.UNKNOWN, linewidth=0.6, zorder=0.5)
        names = [f"{table['cluster'][k]}: {table['size'][k]:,}" for k in shown.tolist()]
        left.set_yticks(rows, names, fontsize=9 if len(shown) <= 10 else 7)
        left.set(xlim=(min(0.0, *left.get_xlim()), 1.02), ylim=(len(shown) - 0.4, -0.6))
        most = "" if len(shown) == len(clusters) else f", the {len(shown)} largest of {len(clusters):,}"
        left.set_ylabel(f"cluster: number of objects{most}")
        figure.legend(loc="outside upper left", ncols=4, handletextpad=0.1, columnspacing=1.0)
        right.stairs(below, edges, color=drawing.PALETTE[0], linewidth=1.4, baseline=None)
        some = below > 0
        lowest = min(0.1, 10 ** np.floor(np.log10(below[some].min())))
        right.set(yscale="log", xlim=(np.floor(edges[:-1][some][0] * 10) / 10, 1), ylim=(lowest, 1))
        right.yaxis.set_major_formatter("{x:g}")
        right.grid(color=drawing.UNKNOWN, linewidth=0.6)
        right.set(xlabel="confidence", ylabel="share of objects below it")
    return figure


def reliability(found: Any, truth: Any = None) -> Figure:
    """Draw how often labels of a stated confidence are right, against the confidence.

    ``found`` is what `bigcons.metrics.reliability` returns, or several of these by name, or, with the
    ``truth``, one class for each object, a fitted clusterer or a Consensus with confidences. Points on the
    diagonal are calibrated, those below it overconfident. Below is the share of the objects in each bin, and
    the area of a point grows with it.

    Examples
    --------
    >>> import bigcons as bc
    >>> found = bc.metrics.reliability([0, 0, 1, 1], [0, 0, 1, 0], [0.9, 0.9, 0.8, 0.4])
    >>> figure = bc.plots.reliability(found)
    >>> figure.savefig("reliability.png")
    """
    if truth is not None:
        from bigcons.metrics import reliability as judge

        found = judge(truth, found, drawing.trust_of(found).confidence)
    curves: Mapping[str, Any] = found if isinstance(found, Mapping) else {"": found}
    for curve in curves.values():
        if not hasattr(curve, "accuracy"):
            raise drawing.refused(curve, "bigcons.metrics.reliability(...), or a model and the truth")
    with drawing.new_figure(4.0 if len(curves) == 1 else 5.6, 4.6) as figure:
        from matplotlib.ticker import PercentFormatter

        axes, below = figure.subplots(2, sharex=True, height_ratios=[4, 1])
        axes.plot([0, 1], [0, 1], color=drawing.GUIDE, linewidth=0.8, zorder=0.5)
        lowest = 1.0
        for (name, curve), color in zip(curves.items(), itertools.cycle(drawing.PALETTE), strict=False):
            some, share = curve.n_objects > 0, curve.n_objects / curve.n_objects.sum()
            x, y, edges = curve.confidence[some], curve.accuracy[some], np.linspace(0, 1, len(share) + 1)
            words = f"{name}: {curve.error:.3f}"
            axes.plot(x, y, color=color, linewidth=1.2, marker=".", markersize=3, label=words)
            axes.scatter(x, y, 120 * share[some], color=color, alpha=0.4)
            below.stairs(share, edges, color=color, fill=len(curves) == 1, alpha=0.6)
            lowest = min(lowest, float(edges[:-1][some][0]))
        axes.set(xlim=(np.floor(10 * lowest) / 10, 1.01), ylim=(0, 1.02))
        axes.set_ylabel("share of labels that are right")
        axes.grid(color=drawing.UNKNOWN, linewidth=0.6)
        below.set(xlabel="confidence", ylabel="objects")
        below.yaxis.set_major_formatter(PercentFormatter(1.0, 0))
        if len(curves) == 1:
            axes.set_title(f"calibration error {curve.error:.3f}", loc="right", fontsize=9)
        else:
            figure.legend(loc="outside right upper", title="calibration error")
    return figure


def scatter(
    coordinates: Any, consensus: Any, *, n_objects: int = 20_000, random_state: SeedLike = 0
) -> Figure:
    """Draw objects at given coordinates, such as those of UMAP or PCA, colored by cluster.

    ``coordinates (n_objects, 2)`` are in the order of the objects. ``consensus`` is a fitted clusterer, a
    `Consensus`, or labels. Objects of low confidence, where it is known, are pale, and those without a label
    gray. Of more than ``n_objects``, a random sample is drawn.

    Examples
    --------
    >>> import bigcons as bc
    >>> features, truth = bc.datasets.planted_features(300, 5)
    >>> model = bc.consensus(bc.generate.kmeans(features, random_state=0), 3, random_state=0)
    >>> figure = bc.plots.scatter(features[:, :2], model)
    >>> figure.savefig("scatter.png")
    """
    points, labels = np.asarray(coordinates), labels_of(consensus)
    labels = np.asarray(labels[0 : labels.shape[0]] if hasattr(labels, "shape") else labels)
    if points.shape != (*labels.shape, 2):
        raise InvalidInputError(
            f"coordinates has shape {points.shape}; pass ({labels.shape[0]}, 2), a row for each object."
        )
    refuse_other_rows("coordinates", names_of_rows(coordinates), "consensus", names_of_rows(consensus))
    rows = drawing.sample_rows(len(points), n_objects, random_state)
    has_trust = getattr(consensus, "has_trust", hasattr(consensus, "trust_"))
    confidence = np.asarray(drawing.trust_of(consensus).confidence) if has_trust else np.ones(len(points))
    points, labels, alpha = points[rows], labels[rows], 0.15 + 0.85 * confidence[rows]
    size = max(2.0, min(16.0, 20_000 / len(rows)))
    with drawing.new_figure(5.6, 4.4) as figure:
        from matplotlib.lines import Line2D

        axes, marks = figure.subplots(), []
        for k in np.unique(labels).tolist():
            color, members, name = drawing.color_of(k), labels == k, str(k) if k >= 0 else "none"
            x, y = points[members].T
            axes.scatter(x, y, s=size, linewidths=0, color=color, alpha=alpha[members])
            marks.append(Line2D([], [], color=color, marker="o", linestyle="", label=name))
        words = drawing.sample_words(len(rows), len(confidence), "pale: low confidence")
        axes.set(xticks=[], yticks=[], xlabel=words)
        if len(marks) <= 2 * len(drawing.PALETTE):
            figure.legend(handles=marks, loc="outside right upper", title="cluster")
    return figure
