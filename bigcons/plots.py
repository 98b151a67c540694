"""Figures: co-association, memberships, convergence, the graph of overlapping clusters.

Every function returns a matplotlib ``Figure`` that is not registered with pyplot and shows itself in Jupyter;
save it with ``figure.savefig``. The palette is safe for color-blind readers and for grayscale printing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigcons.errors import InvalidInputError, MissingDependencyError
from bigcons.seeding import SeedLike, generator, resolve_seed
from bigcons.validation import check_choice, check_int, check_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle
    from matplotlib.ticker import ScalarFormatter

    from bigcons.metrics.confidence import Reliability
    from bigcons.picture import Picture

__all__ = [
    "cluster_graph",
    "coassociation",
    "convergence",
    "memberships",
    "n_clusters",
    "overview",
    "partitions",
    "reliability",
]

# Okabe and Ito (2008), ordered so that consecutive colors differ most, then four of Tol's muted colors
PALETTE = (
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000"),
    *("#999999", "#882255", "#44AA99", "#332288"),
)
_HEAT = "Blues"
_NEVER_SEEN = "#DDDDDD"
_GUIDE = "#888888"
_ROW = 0.09
"""Height of a line of text as a fraction of a panel."""
# The graph of clusters: inches of a unit, and in units the radius of a node, the distance of neighbors, the
# margin around the outermost centers, and how far arrows bend.
_INCHES, _RADIUS, _SPACING, _MARGIN, _BEND = 1.25, 0.34, 1.35, (0.95, 0.55), 0.13


def coassociation(
    ensemble: Any, *, labels: Any = None, n_objects: int = 500, random_state: SeedLike = 0
) -> Figure:
    """Draw how often pairs of objects share a cluster, with the objects in VAT order.

    ``ensemble`` is an Ensemble, its path, or a table of labels; of more than ``n_objects`` objects, a random
    sample is drawn. ``labels``, one for each object of the ensemble or a `Consensus`, color a strip below the
    matrix. O(n_objects^2) time and memory.
    """
    with _figure(4.4, 4.1) as figure:
        _draw_coassociation(figure.subplots(), ensemble, labels, n_objects, random_state)
    return figure


def partitions(ensemble: Any) -> Figure:
    """Draw how far every two partitions agree, by the adjusted Rand index, with the partitions in VAT order.

    ``ensemble`` is an Ensemble of labels, its path, or a table of labels; agreement is that of at most 2,048
    sampled objects, see `bigcons.metrics.partition_agreement`. Of more than a thousand partitions, some are
    drawn, evenly spaced.
    """
    from bigcons.metrics.description import partition_similarity
    from bigcons.metrics.geometry import vat_order
    from bigcons.stores.ensemble import as_ensemble

    ensemble = as_ensemble(ensemble)
    index, others = partition_similarity(ensemble)
    index = index[others]
    np.fill_diagonal(index, 1.0)
    order = vat_order(1 - index)
    with _figure(5.0, 4.0) as figure:
        axes = figure.subplots()
        image = axes.imshow(index[np.ix_(order, order)], cmap=_HEAT, vmin=0, vmax=1, interpolation="nearest")
        figure.colorbar(image, ax=axes, label="adjusted Rand index", pad=0.02)
        axes.set_facecolor(_NEVER_SEEN)
        axes.spines[:].set_visible(True)
        axes.set_xticks([])
        step = -(-len(order) // 40)
        shown = range(0, len(order), step)
        names = [_shortened(ensemble.names[others[order[row]]]) for row in shown]
        axes.set_yticks(shown, names, fontsize=9 if len(shown) <= 20 else 6)
        every = "" if step == 1 else f", every {step}th named"
        of_all = "" if len(order) == ensemble.n_partitions else f" of {ensemble.n_partitions:,}"
        axes.set_xlabel(f"{len(order):,}{of_all} partitions in VAT order{every}")
    return figure


def memberships(consensus: Any, *, n_objects: int = 2_000, random_state: SeedLike = 0) -> Figure:
    """Draw the memberships of objects sorted by cluster and, within a cluster, by confidence.

    ``consensus`` is a ``Consensus``, a fitted clusterer, or an array ``(n_objects, n_clusters)``; of more
    than ``n_objects`` objects, a random sample is drawn. Next to each cluster is the number of its objects;
    clusters without objects are left out. A store is read block by block.
    """
    sample = _sampled_memberships(consensus, n_objects, random_state)
    n_rows = int(np.count_nonzero(sample.sizes))
    with _figure(6.4, 1.3 + 0.22 * min(max(n_rows, 4), 20)) as figure:
        _draw_memberships(figure.subplots(), sample)
    return figure


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
    with _figure(4.8, 0.7 + 1.3 * len(names)) as figure:
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
    with _figure(3.8 if len(curves) == 1 else 5.6, 3.8) as figure:
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color=_GUIDE, linewidth=0.8, zorder=0.5)
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
    with _figure(5.6, 4.6) as figure:
        for axes, (what, curves) in zip(figure.subplots(2, sharex=True), panels, strict=True):
            for (name, words), color, line in zip(curves.items(), PALETTE, ("-", ":", "--"), strict=False):
                axes.plot(
                    k, table[name], line, color=color, marker="o", markersize=3, linewidth=1.2, label=words
                )
            axes.set(ylabel=what, ylim=(0, 1.05))
            axes.axvline(choice.n_clusters, color=_GUIDE, linewidth=0.8, zorder=0)
            if choice.runner_up is not None:
                axes.axvline(choice.runner_up, color=_GUIDE, linewidth=0.8, linestyle="--", zorder=0)
            axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
            axes.legend(loc="upper right")
        second = "" if choice.runner_up is None else f"; runner-up {choice.runner_up} (dashed)"
        figure.suptitle(f"{choice.n_clusters} clusters recommended{second}", fontsize=10)
        axes.set_xlabel("number of clusters")
    return figure


def cluster_graph(
    consensus: Any,
    *,
    centroids: Any = None,
    glyph: str | Callable[[Axes, np.ndarray], object] = "profile",
    names: Sequence[str] | None = None,
    threshold: float = 0.05,
    min_overlap: float = 0.05,
    n_clusters: int = 12,
    client: object = None,
) -> Figure:
    """Draw the clusters as a graph: an arrow from a to b for the share of cluster a that also lies in b.

    Arrows are as wide as their weights, those of `bigcons.metrics.cluster_overlap` (Lourenço et al. 2015,
    Figure 8), and have the color of the cluster they leave. Clusters that overlap much are neighbors on the
    circle.

    Parameters
    ----------
    consensus
        A `Consensus`, a fitted soft method, or memberships ``(n_objects, n_clusters)``, read block by block.
    centroids
        ``(n_clusters, n_features)``, as from `bigcons.metrics.cluster_centroids`, one drawn in each node.
    glyph
        How a centroid is drawn. "profile": its features as a curve. "strokes": its features ``x_1, y_1, x_2,
        y_2, ...`` as the path of a pen, which starts at the dot. Or a function that draws a centroid
        ``(n_features,)`` in the given ``Axes``.
    names
        A name for each cluster, by default its number.
    threshold
        Memberships below it are set to zero and the others normalized again.
    min_overlap
        The least weight of an arrow; raise it if there are too many arrows to read.
    n_clusters
        Maximum number of clusters to draw, the largest. Clusters without objects are left out.
    client
        Engine.
    """
    from bigcons.metrics.memberships import overlap_and_sizes

    check_number("min_overlap", min_overlap, above=0, at_most=1)
    check_int("n_clusters", n_clusters)
    overlap, sizes = overlap_and_sizes(consensus, threshold, client)
    shown = np.sort(np.argsort(-sizes, kind="stable")[:n_clusters])
    shown = shown[sizes[shown] > 0]
    if not len(shown):
        raise InvalidInputError(f"threshold={threshold} is above every membership; lower it.")
    if names is not None and len(names) != len(sizes):
        raise InvalidInputError(
            f"names has {len(names)} entries but there are {len(sizes)} clusters; give one for each."
        )
    rows = None if centroids is None else np.asarray(centroids, np.float64)
    draw = None if rows is None else _glyph_drawing(glyph, rows, len(sizes))
    places = _places_on_circle(np.maximum(overlap, overlap.T)[np.ix_(shown, shown)])
    low, high = places.min(axis=0) - _MARGIN, places.max(axis=0) + _MARGIN
    width, height = _INCHES * (high - low)
    with _figure(width, height + 0.3) as figure:
        axes = figure.subplots()
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
        axes.set_axis_off()
        nodes = {}
        for k, place in zip(shown.tolist(), places, strict=True):
            name, share = str(k if names is None else names[k]), _in_percent(sizes[k] / sizes.sum())
            color = PALETTE[k % len(PALETTE)]
            nodes[k] = _draw_node(axes, place, name, share, color, inside=draw is None)
            if draw is not None and rows is not None:
                side = 1.25 * _RADIUS
                inset = axes.inset_axes((*(place - side / 2), side, side), transform=axes.transData, zorder=4)
                draw(inset, rows[k])
                inset.set_axis_off()
        for a, b in itertools.permutations(nodes, 2):
            if overlap[a, b] >= min_overlap:
                _draw_arrow(axes, nodes[a], nodes[b], overlap[a, b])
        n_full = int(np.count_nonzero(sizes))
        left_out = f"; {len(shown)} largest of {n_full} clusters" if len(shown) < n_full else ""
        told = f"arrows: share of a cluster that lies in another, at least {min_overlap:g}{left_out}"
        figure.supxlabel(told, fontsize=8)
    return figure


def overview(
    ensemble: Any,
    consensus: Any,
    base_accuracy: Sequence[float],
    accuracy: Mapping[str, float],
    *,
    random_state: SeedLike = 0,
) -> Figure:
    """Draw an overview of an experiment on data with known classes.

    Three panels: the accuracy of the base partitions and of each consensus, the memberships of
    ``consensus``, and the co-association in VAT order. ``accuracy`` maps names of consensuses to their
    accuracy.
    """
    with _figure(9.6, 4.4) as figure:
        panels: Any = figure.subplot_mosaic(
            [["accuracy", "pairs"], ["memberships", "pairs"]], width_ratios=[1.15, 1]
        )
        _draw_accuracy(panels["accuracy"], base_accuracy, accuracy)
        labels = getattr(consensus, "labels_", getattr(consensus, "label_rows", None))
        _draw_coassociation(panels["pairs"], ensemble, labels, 500, random_state)
        _draw_memberships(panels["memberships"], _sampled_memberships(consensus, 2_000, random_state))
        for letter, name in zip("abc", ("accuracy", "memberships", "pairs"), strict=True):
            panels[name].set_title(letter, loc="left", fontweight="bold")
    return figure


def _draw_accuracy(axes: Axes, base_accuracy: Sequence[float], accuracy: Mapping[str, float]) -> None:
    """Draw a histogram of the accuracy of the base partitions and, above it, a row for each consensus."""
    from matplotlib.ticker import MaxNLocator

    axes.hist(base_accuracy, bins=np.linspace(0, 1, 51).tolist(), color="#BBBBBB")
    axes.set_ylim(0, axes.get_ylim()[1] / (1 - _ROW * (len(accuracy) + 0.5)))
    for row, ((name, value), color) in enumerate(zip(accuracy.items(), PALETTE, strict=False)):
        height = 1 - _ROW * (row + 0.5)
        axes.axvline(value, 0, height, color=color, linewidth=0.8, zorder=0.5)  # behind the bars
        axes.plot(value, height, marker="o", markersize=5, color=color, transform=axes.get_xaxis_transform())
        axes.annotate(
            f"{name}: {value:.3f}",
            (value, height),
            xycoords=axes.get_xaxis_transform(),
            xytext=(-6 if value > 0.5 else 6, 0),
            textcoords="offset points",
            ha="right" if value > 0.5 else "left",
            va="center",
        )
    axes.set_xlim(0, 1.02)
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.set_xlabel("share of objects in the correct cluster (H)")
    axes.set_ylabel("base partitions")


def _draw_coassociation(
    axes: Axes, ensemble: Any, labels: Any, n_objects: int, random_state: SeedLike
) -> None:
    """Draw the co-association matrix of a sample of objects in VAT order."""
    from bigcons.coassociation import dense
    from bigcons.metrics.geometry import vat_order
    from bigcons.stores.ensemble import as_ensemble

    ensemble = as_ensemble(ensemble)
    labels = getattr(labels, "label_rows", labels)
    shape = None if labels is None else getattr(labels, "shape", np.shape(labels))
    if shape not in (None, (ensemble.n_objects,)):
        raise InvalidInputError(
            f"labels has shape {shape} but the ensemble has {ensemble.n_objects} objects; "
            "pass one label for each object."
        )
    rows = _sample_rows(ensemble.n_objects, n_objects, random_state)
    n_agree, n_seen = dense(ensemble.read_rows(rows))
    share = np.full(n_agree.shape, np.nan)  # for pairs that no partition labels
    np.divide(n_agree, n_seen, out=share, where=n_seen > 0)
    np.fill_diagonal(share, 1.0)
    order = vat_order(1 - share)
    image = axes.imshow(share[np.ix_(order, order)], cmap=_HEAT, vmin=0, vmax=1, interpolation="nearest")
    axes.figure.colorbar(image, ax=axes, label="share of partitions that group the pair", shrink=0.7)
    axes.set_xlabel(_sample_words(len(rows), ensemble.n_objects, "in VAT order"))
    axes.set_facecolor(_NEVER_SEEN)
    axes.spines[:].set_visible(True)
    axes.set_xticks([])
    axes.set_yticks([])
    if labels is not None:
        blocks = [(b, slice(*np.searchsorted(rows, (b.start, b.stop)))) for b in ensemble.blocks()]
        found = [np.asarray(labels[b.start : b.stop])[rows[part] - b.start] for b, part in blocks]
        _draw_strip(axes, np.concatenate(found)[order])


def _draw_memberships(axes: Axes, sample: _Sample) -> None:
    """Draw memberships as a heat map, a row per cluster with objects and a column per sampled object."""
    shown = np.flatnonzero(sample.sizes)
    order = np.lexsort(
        (-sample.memberships.max(axis=1, initial=0.0), np.where(sample.labels < 0, np.inf, sample.labels))
    )
    values, winners = sample.memberships[order][:, shown], sample.labels[order]
    image = axes.imshow(
        values.T, cmap=_HEAT, vmin=0, vmax=1, aspect="auto", interpolation="nearest", origin="upper"
    )
    for last in np.flatnonzero(np.diff(winners)).tolist():
        axes.axvline(last + 0.5, color=_GUIDE, linewidth=0.6)
    for border in range(1, len(shown)):
        axes.axhline(border - 0.5, color=_GUIDE, linewidth=0.6)
    axes.spines[:].set_visible(True)
    axes.figure.colorbar(image, ax=axes, label="membership", pad=0.02)
    axes.set_xlabel(_sample_words(len(order), sample.n_total, "by cluster and confidence"))
    axes.set_ylabel("cluster, number of objects")
    axes.set_xticks([])
    ticks = range(0, len(shown), -(-len(shown) // 20))
    axes.set_yticks(ticks, [f"{shown[row]}:  {sample.sizes[shown[row]]:,}" for row in ticks])


def _places_on_circle(weight: np.ndarray) -> np.ndarray:
    """Return a place for every node ``(n, 2)``: on a flattened circle, so that no arrow passes below a node.

    The order makes the sum of weights times distances along the circle small: pairs are swapped while that
    lowers it. The first node is at the upper left, and the lower of its neighbors follows clockwise.
    """
    n = len(weight)
    along = np.abs(np.arange(n)[:, None] - np.arange(n))
    along = np.minimum(along, n - along)
    order = np.arange(n)
    cost = (weight * along).sum()
    improves = True
    while improves:
        improves = False
        for a, b in itertools.combinations(range(n), 2):
            swapped = order.copy()
            swapped[[a, b]] = order[[b, a]]
            changed = (weight[np.ix_(swapped, swapped)] * along).sum()
            if changed < cost * (1 - 1e-9):
                order, cost, improves = swapped, changed, True
    order = np.roll(order, -int(np.argmin(order)))
    if n > 2 and order[-1] < order[1]:
        order[1:] = order[:0:-1]
    angles = np.pi / 2 + np.pi / n - 2 * np.pi * np.arange(n) / n
    radius = _SPACING / (2 * np.sin(np.pi / n)) if n > 1 else 0.0
    places = np.empty((n, 2))
    places[order] = radius * np.column_stack([1.2 * np.cos(angles), np.sin(angles)])
    return places


def _draw_node(axes: Axes, place: np.ndarray, name: str, share: str, color: str, *, inside: bool) -> Circle:
    """Draw a circle and its name and share, inside or on the side away from the origin; return the circle."""
    from matplotlib.patches import Circle

    x, y = place
    node = Circle((x, y), _RADIUS, facecolor="white", edgecolor=color, linewidth=1.6, zorder=3)
    axes.add_patch(node)
    out = _RADIUS + 0.05
    if inside:
        axes.text(x, y, f"{name}\n{share}", ha="center", va="center", zorder=6)
    elif abs(y) < 0.4 * abs(x):
        is_right = x > 0
        x += out if is_right else -out
        axes.text(x, y, f"{name}\n{share}", ha="left" if is_right else "right", va="center", zorder=6)
    else:
        y += out if y > 0 else -out
        axes.text(x, y, f"{name}, {share}", ha="center", va="bottom" if y > 0 else "top", zorder=6)
    return node


def _draw_arrow(axes: Axes, start: Circle, end: Circle, weight: float) -> None:
    """Draw a bent arrow between two circles, and its weight on it, nearer to the start if it is long."""
    from matplotlib.patches import FancyArrowPatch

    first, last = np.array(start.center), np.array(end.center)
    width = 0.6 + 6 * weight
    arrow = FancyArrowPatch(
        (first[0], first[1]),
        (last[0], last[1]),
        connectionstyle=f"arc3,rad={_BEND}",
        arrowstyle="-|>",
        mutation_scale=7 + 1.6 * width,
        patchA=start,
        patchB=end,
        shrinkA=2,
        shrinkB=2,
        linewidth=width,
        color=start.get_edgecolor(),
        zorder=2,
    )
    axes.add_patch(arrow)
    dx, dy = last - first
    control = (first + last) / 2 + _BEND * np.array([dy, -dx])
    t = 0.42 if np.hypot(dx, dy) < 1.5 * _SPACING else 0.33
    x, y = (1 - t) ** 2 * first + 2 * t * (1 - t) * control + t**2 * last
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
    axes.text(x, y, f"{weight:.2f}", fontsize=7, ha="center", va="center", zorder=5, bbox=box)


def _glyph_drawing(
    glyph: str | Callable[[Axes, np.ndarray], object], rows: np.ndarray, n_clusters: int
) -> Callable[[Axes, np.ndarray], object]:
    """Return the function that draws a centroid; those of the package draw all centroids to one scale."""
    if rows.ndim != 2 or len(rows) != n_clusters:
        raise InvalidInputError(
            f"centroids has shape {rows.shape} but there are {n_clusters} clusters; "
            "pass (n_clusters, n_features), as from bigcons.metrics.cluster_centroids."
        )
    if callable(glyph):
        return glyph
    check_choice("glyph", glyph, ("profile", "strokes"))
    if glyph == "strokes" and rows.shape[1] % 2:
        raise InvalidInputError(
            f"centroids has {rows.shape[1]} features, but strokes need pairs of x and y; "
            "use glyph='profile', or drop a feature."
        )

    def draw_profile(axes: Axes, centroid: np.ndarray) -> None:
        axes.plot(centroid, color="black", linewidth=1.1)
        axes.set_ylim(np.nanmin(rows), np.nanmax(rows))

    def draw_strokes(axes: Axes, centroid: np.ndarray) -> None:
        path = centroid.reshape(-1, 2)
        axes.plot(*path.T, color="black", linewidth=1.6, solid_joinstyle="round", clip_on=False)
        axes.plot(*path[0], "o", color="black", markersize=4.5, clip_on=False)
        corners = rows.reshape(-1, 2)
        low, high = np.nanmin(corners, axis=0), np.nanmax(corners, axis=0)
        half = max((high - low).max() / 2, 1e-9)
        x, y = (low + high) / 2
        axes.set(xlim=(x - half, x + half), ylim=(y - half, y + half))

    return draw_profile if glyph == "profile" else draw_strokes


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


def _draw_strip(axes: Axes, labels: np.ndarray) -> None:
    """Draw a strip of cluster colors along the bottom of a square matrix, and its key."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    strip = axes.inset_axes((0.0, -0.045, 1.0, 0.03))
    colors = ListedColormap([PALETTE[k % len(PALETTE)] for k in range(max(int(labels.max()) + 1, 1))])
    strip.imshow(
        np.ma.masked_less(labels, 0)[None, :],
        cmap=colors,
        aspect="auto",
        interpolation="nearest",
        vmin=-0.5,
        vmax=colors.N - 0.5,
    )
    strip.set_axis_off()
    shown = np.unique(labels[labels >= 0]).tolist()
    key = [Patch(color=PALETTE[k % len(PALETTE)], label=str(k)) for k in shown[: len(PALETTE)]]
    if key:
        more = ", ..." if len(shown) > len(key) else ""
        axes.legend(
            handles=key, title=f"strip: consensus cluster{more}", loc="upper center", fontsize=8,
            bbox_to_anchor=(0.5, -0.06), ncols=6, handlelength=1.0, columnspacing=1.0, borderaxespad=0.0,
        )  # fmt: skip
    axes.set_title(axes.get_xlabel(), fontsize=9)
    axes.set_xlabel("")


class _Sample(NamedTuple):
    """Memberships of sampled objects."""

    n_total: int
    """Number of objects sampled from."""
    labels: np.ndarray
    """(rows,): clusters, -1 without any."""
    memberships: np.ndarray
    """(rows, n_clusters)"""
    sizes: np.ndarray
    """(n_clusters,): the number of all objects in each cluster."""


def _sampled_memberships(consensus: Any, n_objects: int, random_state: SeedLike) -> _Sample:
    """Return the memberships of sampled objects."""
    if hasattr(consensus, "read_memberships"):
        rows = _sample_rows(consensus.n_objects, n_objects, random_state)
        sizes = np.zeros(consensus.n_clusters, np.int64)
        parts, labels = [], []
        for block in consensus.blocks():
            of_block = rows[slice(*np.searchsorted(rows, (block.start, block.stop)))] - block.start
            winners = consensus.read_labels(block.start, block.stop)
            sizes += np.bincount(winners[winners >= 0], minlength=sizes.size)
            labels.append(winners[of_block])
            if of_block.size:
                parts.append(consensus.read_memberships(block.start, block.stop)[of_block])
        return _Sample(consensus.n_objects, np.concatenate(labels), np.concatenate(parts), sizes)
    if hasattr(consensus, "fit") and not hasattr(consensus, "memberships_"):
        raise InvalidInputError(
            f"{type(consensus).__name__} has no memberships_; fit it first, or use a soft method."
        )
    values = getattr(consensus, "memberships_", consensus)
    values = values if hasattr(values, "shape") else np.asarray(values)
    if len(values.shape) != 2:
        raise InvalidInputError(f"memberships has shape {values.shape}; pass (n_objects, n_clusters).")
    rows = _sample_rows(len(values), n_objects, random_state)
    winners = getattr(consensus, "labels_", None)
    winners = np.asarray(values.argmax(axis=1)) if winners is None else winners
    sizes = np.bincount(winners[winners >= 0], minlength=values.shape[1])
    return _Sample(len(values), winners[rows], np.asarray(values[rows]), sizes)


def _sample_rows(n_total: int, n_objects: int, random_state: SeedLike) -> np.ndarray:
    """Return at most ``n_objects`` sorted row indices."""
    if n_objects < 2:
        raise InvalidInputError(f"n_objects={n_objects} is out of range; draw at least 2 objects.")
    if n_total <= n_objects:
        return np.arange(n_total)
    rng = generator(resolve_seed(random_state), "plots.sample")
    return np.sort(rng.choice(n_total, n_objects, replace=False))


def _shortened(name: str) -> str:
    return name if len(name) <= 16 else f"{name[:15]}…"


def _in_percent(share: float) -> str:
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def _sample_words(n_shown: int, n_total: int, order: str) -> str:
    objects = f"{n_total:,} objects" if n_shown == n_total else f"{n_shown:,} of {n_total:,} objects"
    return f"{objects}, {order}"


@contextmanager
def _figure(width: float, height: float) -> Iterator[Picture]:
    """Yield a figure of a size in inches, to be drawn in the style of this module."""
    try:
        from matplotlib import rc_context

        from bigcons.picture import STYLE, Picture
    except ImportError as error:
        raise MissingDependencyError(
            "figures need matplotlib, which is not installed; run pip install 'bigcons[plot]'.", extra="plot"
        ) from error
    with rc_context(STYLE):
        yield Picture(figsize=(width, height), dpi=150, layout="constrained")


def __dir__() -> list[str]:
    return sorted(__all__)
