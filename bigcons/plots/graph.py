"""The graph of overlapping clusters."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.plots.drawing import PALETTE, in_percent, new_figure, refuse_ensemble
from bigcons.validation import check_choice, check_int, check_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle

# The graph of clusters, in units: the radius of a node, the distance of neighbors, and the size of a weight.
_RADIUS, _SPACING, _LABEL = 0.34, 1.35, np.array([0.26, 0.13])

LEAST_OVERLAP = 0.05
"""Memberships and shares from which on clusters overlap, by default."""

_BENDS = (0.13, -0.26, 0.26, -0.39, 0.39, -0.52, 0.52)
"""How far arrows bend: as little as passes by other nodes, and not as the arrow back."""


def cluster_graph(
    consensus: Any,
    *,
    centroids: Any = None,
    glyph: str | Callable[[Axes, np.ndarray], object] = "profile",
    names: Sequence[str] | None = None,
    threshold: float = LEAST_OVERLAP,
    min_overlap: float = LEAST_OVERLAP,
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

    Examples
    --------
    >>> import bigcons as bc
    >>> memberships = [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]
    >>> figure = bc.plots.cluster_graph(memberships)
    >>> figure.savefig("clusters.png")
    """
    from bigcons.metrics.memberships import overlap_and_sizes

    refuse_ensemble(consensus)
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
    margin = (0.95, 0.55) if draw is not None else (_RADIUS + 0.06, _RADIUS + 0.06)
    low, high = places.min(axis=0) - margin, places.max(axis=0) + margin
    inches = min(1.25, 7.0 / (high - low)[0])  # of a unit; the figure is between 2.6 and 7 wide
    width, height = inches * (high - low)
    width = max(width, 2.6)
    with new_figure(width, height + 0.3) as figure:
        axes = figure.subplots()
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
        axes.set_axis_off()
        nodes = {}
        for k, place in zip(shown.tolist(), places, strict=True):
            name, share = str(k if names is None else names[k]), in_percent(sizes[k] / sizes.sum())
            color = PALETTE[k % len(PALETTE)]
            nodes[k] = _draw_node(axes, place, name, share, color, inside=draw is None)
            if draw is not None and rows is not None:
                side = 1.25 * _RADIUS
                inset = axes.inset_axes((*(place - side / 2), side, side), transform=axes.transData, zorder=4)
                draw(inset, rows[k])
                inset.set_axis_off()
        drawn = [pair for pair in itertools.permutations(nodes, 2) if overlap[pair] >= min_overlap]
        labels: list[np.ndarray] = []
        for a, b in drawn:
            others = np.array([nodes[k].center for k in nodes if k not in (a, b)]).reshape(-1, 2)
            labels.append(_draw_arrow(axes, nodes[a], nodes[b], overlap[a, b], others, labels))
        n_full = int(np.count_nonzero(sizes))
        left_out = f"; {len(shown)} largest of {n_full} clusters" if len(shown) < n_full else ""
        if drawn:
            told = f"arrows: share of a cluster that\nlies in another, at least {min_overlap:g}"
        else:
            told = f"no cluster has a share of {min_overlap:g}\nor more in another"
        told = told if width < 3.6 else told.replace("\n", " ")
        figure.supxlabel(f"{told}{left_out}", fontsize=8)
    return figure


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


def _draw_arrow(
    axes: Axes,
    start: Circle,
    end: Circle,
    weight: float,
    others: np.ndarray,
    labels: Sequence[np.ndarray],
) -> np.ndarray:
    """Draw a bent arrow between two circles that passes by the others, and its weight on it.

    The weight is where it hides none of the ``labels`` there are; its place is returned.
    """
    from matplotlib.patches import FancyArrowPatch

    first, last = np.array(start.center), np.array(end.center)
    t = np.linspace(0.0, 1.0, 41)[:, None]
    dx, dy = last - first

    def curve(bend: float) -> np.ndarray:
        control = (first + last) / 2 + bend * np.array([dy, -dx])
        return (1 - t) ** 2 * first + 2 * t * (1 - t) * control + t**2 * last

    def clearance(bend: float) -> float:
        from_others = np.linalg.norm(curve(bend)[:, None] - others, axis=2)
        return min(float(from_others.min(initial=np.inf)), _RADIUS + 0.08)

    bend = max(_BENDS, key=clearance)  # the first one that passes all nodes, as the order of the bends is
    width = 0.6 + 6 * weight
    arrow = FancyArrowPatch(
        (first[0], first[1]),
        (last[0], last[1]),
        connectionstyle=f"arc3,rad={bend}",
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
    along = curve(bend)
    ends = np.minimum(*(np.linalg.norm(along - center, axis=1) for center in (first, last)))
    free = along[ends > _RADIUS + 0.15]  # between the circles, from the start to the end
    free = free if len(free) else along[[len(along) // 2]]

    def apart(place: np.ndarray) -> float:
        return min([float(np.max(np.abs(place - label) / _LABEL)) for label in labels] + [1.0])

    x, y = place = max(
        free[np.argsort(np.abs(np.arange(len(free)) - 0.4 * len(free)), kind="stable")], key=apart
    )
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
    axes.text(x, y, f"{weight:.2f}", fontsize=7, ha="center", va="center", zorder=5, bbox=box)
    return np.asarray(place)


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
