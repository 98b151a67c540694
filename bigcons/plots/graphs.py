"""The graph of overlapping clusters, and the tree of clusters: sizes as widths, support as color."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.plots import drawing
from bigcons.store.clusters import count_in_words
from bigcons.validation import check_number

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
    glyph: Callable[[Axes, np.ndarray], object] | None = None,
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
        Function that draws a centroid ``(n_features,)`` in the given ``Axes``; by default as a curve.
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

    drawing.refuse_ensemble(consensus)
    check_number("min_overlap", min_overlap, above=0, at_most=1)
    overlap, sizes = overlap_and_sizes(consensus, threshold, client)
    shown = np.sort(drawing.largest(sizes, n_clusters))
    if not len(shown):
        raise InvalidInputError(f"threshold={threshold} is above every membership; lower it.")
    rows = None if centroids is None else np.asarray(centroids, np.float64)
    for name, given in (("names", names), ("centroids", rows)):
        if given is not None and len(given) != len(sizes):
            raise InvalidInputError(
                f"{name} has length {len(given)}; give one for each of {len(sizes)} clusters."
            )
    places = _places_on_circle(np.maximum(overlap, overlap.T)[np.ix_(shown, shown)])
    margin = (0.95, 0.55) if rows is not None else (_RADIUS + 0.06, _RADIUS + 0.06)
    low, high = places.min(axis=0) - margin, places.max(axis=0) + margin
    width, height = min(1.25, 7.0 / (high - low)[0]) * (high - low)  # at most 7 inches
    width = max(width, 2.6)
    with drawing.new_figure(width, height + 0.3) as figure:
        axes = figure.subplots()
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
        axes.set_axis_off()
        nodes = {}
        for k, place in zip(shown.tolist(), places, strict=True):
            share = sizes[k] / sizes.sum()
            words = (str(k if names is None else names[k]), "<1%" if share < 0.005 else f"{share:.0%}")
            nodes[k] = _draw_node(axes, place, words, drawing.color_of(k), is_inside=rows is None)
            if rows is not None:
                side = 1.25 * _RADIUS
                inset = axes.inset_axes((*(place - side / 2), side, side), transform=axes.transData, zorder=4)
                if glyph is None:
                    inset.plot(rows[k], color="black", linewidth=1.1)
                    inset.set_ylim(np.nanmin(rows), np.nanmax(rows))
                else:
                    glyph(inset, rows[k])
                inset.set_axis_off()
        caption = f"no cluster has a share of {min_overlap:g}\nor more in another"
        labels: list[np.ndarray] = []
        for a, b in itertools.permutations(nodes, 2):
            if overlap[a, b] >= min_overlap:
                others = np.array([nodes[k].center for k in nodes if k not in (a, b)]).reshape(-1, 2)
                labels.append(_draw_arrow(axes, nodes[a], nodes[b], overlap[a, b], others, labels))
                caption = f"arrows: share of a cluster that\nlies in another, at least {min_overlap:g}"
        n_full = int(np.count_nonzero(sizes))
        left_out = f"; {len(shown)} largest of {n_full} clusters" if len(shown) < n_full else ""
        caption = caption if width < 3.6 else caption.replace("\n", " ")
        figure.supxlabel(f"{caption}{left_out}", fontsize=8)
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
    cost, improves = (weight * along).sum(), True
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


def _draw_node(
    axes: Axes, place: np.ndarray, words: tuple[str, str], color: str, *, is_inside: bool
) -> Circle:
    """Draw a circle and its words, inside or on the side away from the origin; return the circle."""
    from matplotlib.patches import Circle

    x, y = place
    node = Circle((x, y), _RADIUS, facecolor="white", edgecolor=color, linewidth=1.6, zorder=3)
    axes.add_patch(node)
    out, text, across, along = _RADIUS + 0.05, "\n".join(words), "center", "center"
    if not is_inside and abs(y) < 0.4 * abs(x):
        x, across = x + np.copysign(out, x), "left" if x > 0 else "right"
    elif not is_inside:
        y, along, text = y + np.copysign(out, y), "bottom" if y > 0 else "top", ", ".join(words)
    axes.text(x, y, text, ha=across, va=along, zorder=6)
    return node


def _draw_arrow(
    axes: Axes, start: Circle, end: Circle, weight: float, others: np.ndarray, labels: Sequence[np.ndarray]
) -> np.ndarray:
    """Draw a bent arrow between two circles that passes by the others, and its weight on it.

    The weight is where it hides none of the ``labels`` there are; its place is returned.
    """
    from matplotlib.patches import FancyArrowPatch

    first, last = np.array(start.center), np.array(end.center)
    t, aside = np.linspace(0.0, 1.0, 41)[:, None], np.array([1, -1]) * (last - first)[::-1]
    curves, clearance = {}, {}
    for bend in _BENDS:
        middle = (first + last) / 2 + bend * aside
        curves[bend] = (1 - t) ** 2 * first + 2 * t * (1 - t) * middle + t**2 * last
        apart = np.linalg.norm(curves[bend][:, None] - others, axis=2)
        clearance[bend] = apart.min(initial=_RADIUS + 0.08)
    bend = max(_BENDS, key=lambda bend: clearance[bend])  # the first that passes all nodes
    width, color = 0.6 + 6 * weight, start.get_edgecolor()
    arrow = FancyArrowPatch(
        (first[0], first[1]), (last[0], last[1]), connectionstyle=f"arc3,rad={bend}", arrowstyle="-|>",
        mutation_scale=7 + 1.6 * width, patchA=start, patchB=end, shrinkA=2, shrinkB=2, linewidth=width,
        color=color, zorder=2,
    )  # fmt: skip
    axes.add_patch(arrow)
    curve = curves[bend]
    from_ends = np.minimum(*(np.linalg.norm(curve - center, axis=1) for center in (first, last)))
    free = curve[from_ends > _RADIUS + 0.15]  # between the circles, from the start to the end
    free = free if len(free) else curve[[len(curve) // 2]]
    free = free[np.argsort(np.abs(np.arange(len(free)) - 0.4 * len(free)), kind="stable")]
    apart = [min([np.max(np.abs(place - label) / _LABEL) for label in labels] + [1.0]) for place in free]
    x, y = place = free[int(np.argmax(apart))]
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
    axes.text(x, y, f"{weight:.2f}", fontsize=7, ha="center", va="center", zorder=5, bbox=box)
    return np.asarray(place)


def tree(tree: Any, n_clusters: int | None = None) -> Figure:
    """Draw a tree of clusters.

    ``tree`` is what `bigcons.consensus_tree` returned, or a clusterer or Consensus whose number of clusters
    was chosen; ``n_clusters``, by default the number recommended, or 2 where that is 1, says down to which
    clusters. Splits that take off too few objects to count are passed over. From left to right, every column
    is one split, as numbered in ``tree.table()``. Lines are as wide as their share of the
    objects; the color of a split, and of its two sides, is its support. On the right are the clusters,
    numbered largest first, with their shares.

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, truth = bc.datasets.planted_ensemble(600, 30, noise=(0.0, 0.2), random_state=0)
    >>> figure = bc.plots.tree(bc.consensus_tree(ensemble, random_state=0))
    >>> figure.savefig("tree.png")
    """
    if not hasattr(tree, "merges"):  # a consensus, which keeps the tree where its number was chosen
        tree = getattr(tree, "tree_", getattr(tree, "tree", tree))
    if not hasattr(tree, "merges"):
        raise drawing.refused(
            tree,
            "bigcons.consensus_tree(ensemble), or a consensus with n_clusters='auto', which keeps its tree",
        )
    G, branches = len(tree.sizes), tree.branches(n_clusters)
    members = [[leaf] for leaf in range(G)]
    for one, two in tree.merges[:, :2].astype(int).tolist():
        members.append(members[one] + members[two])
    sizes = np.array([tree.sizes[leaves].sum() for leaves in members])
    shares = sizes / sizes[-1]
    top = next(iter(branches), 2 * G - 2)
    ends, waiting = [], [top]  # the clusters of the cut, as they lie side by side
    while waiting:
        node = waiting.pop()
        waiting += reversed(branches.get(node, ()))
        ends += [] if node in branches else [node]
    K, by_size = len(ends), sorted(ends, key=lambda node: (-sizes[node], min(members[node])))
    y = {node: float(K - 1 - at) for at, node in enumerate(ends)}
    x = {node: float(2 * G - 1 - node) for node in branches}  # the number of the split
    for node in reversed(branches):
        y[node] = float(np.mean([y[side] for side in branches[node]]))
    last = max(x.values(), default=0.0) + 1.0
    is_roomy = K <= 20  # the support of every split is written beside it
    with drawing.new_figure(6.2, max(1.6, 0.55 + (0.3 if is_roomy else 0.15) * K)) as figure:
        from matplotlib import colormaps
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import Normalize

        scale = ScalarMappable(Normalize(0.0, 1.0), colormaps["viridis_r"])
        axes = figure.subplots()

        def draw_side(node: int, start: float, color: Any) -> None:
            ends, width = [start, x.get(node, last)], max(14.0 * shares[node], 1.0)
            axes.plot(ends, [y[node]] * 2, color=color, linewidth=width, solid_capstyle="butt")

        draw_side(top, 0.0, drawing.GUIDE)
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
        for node, pair in branches.items():
            support = tree.support[node - G]
            color = drawing.GUIDE if np.isnan(support) else scale.to_rgba(support)
            axes.plot([x[node]] * 2, [y[side] for side in pair], color=color, linewidth=1.0)
            for side in pair:
                draw_side(side, x[node], color)
            if is_roomy and not np.isnan(support):
                axes.annotate(f"{support:.2f}", (x[node], y[node]), (-4, 0), textcoords="offset points",
                              ha="right", va="center", fontsize=7, bbox=box)  # fmt: skip
        names = [f"{by_size.index(node)}: {shares[node]:.1%}" for node in ends]
        axes.set_yticks([y[node] for node in ends], names, fontsize=8 if is_roomy else 6)
        axes.yaxis.tick_right()
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set(xlim=(0.0, last), ylim=(-0.7, K - 0.3), xlabel="split, from the highest down")
        axes.set_xticks(sorted(x.values())[:: max((K - 1) // 12, 1)])
        sampled = f", shares of {tree.sizes.sum():,} of them" if tree.is_sampled else ""
        number = 1 if n_clusters is None and tree.choice.n_clusters == 1 else K
        split = ", and its first split" if number < K else ""
        axes.set_title(f"{count_in_words(number)} of {tree.n_objects:,} objects{split}{sampled}", fontsize=9)
        figure.colorbar(scale, ax=axes, label="support", pad=0.02, aspect=20, shrink=min(1.0, 12 / K),
                        location="left")  # fmt: skip
    return figure
