"""The picture of a tree of clusters: sizes as widths, support as color."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.plots.drawing import GUIDE, new_figure, tree_of
from bigcons.validation import check_int

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDEST = 14.0
"""Points of the line of all objects."""

MOST_NUMBERED = 20
"""Clusters up to which the support of every split is written beside it."""

COLORS = "viridis_r"


def tree(tree: Any, n_clusters: int | None = None, *, partitions: bool = False) -> Figure:
    """Draw a tree of clusters.

    ``tree`` is what `bigcons.consensus_tree` returned, or a clusterer or Consensus whose number of clusters
    was chosen; ``n_clusters``, by default the number recommended, or
    2 where that is 1, says down to which clusters. From left to right, every column is one split, as numbered
    in ``tree.table()``. Lines are as wide as their share of the objects; the color of a split, and of its two
    sides, is its support. On the right are the clusters, numbered by falling size as in ``tree.cut()``, with
    their shares.

    ``partitions`` draws beside it what the partitions have in these clusters, one column for each, from the
    coarsest to the finest, as clustree does level by level: objects of one color in a column are in one
    cluster of that partition, which has the color of its place in the tree; paler where less of the cluster
    is in it. Of a tree that a fit or a store has kept, they are not known.

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, truth = bc.datasets.planted_ensemble(600, 30, noise=(0.0, 0.2), random_state=0)
    >>> figure = bc.plots.tree(bc.consensus_tree(ensemble, random_state=0))
    >>> figure.savefig("tree.png")
    """
    tree = tree_of(tree)
    if partitions and tree.placer is None:
        raise InvalidInputError(
            "the tree was kept without the labels of its objects; make it by consensus_tree(ensemble)."
        )
    G = len(tree.sizes)
    if n_clusters is None:
        n_clusters = max(tree.choice.n_clusters, 2)
    K = min(check_int("n_clusters", n_clusters), G)
    pairs, support = tree.merges[G - K :, :2].astype(int), tree.support[G - K :]
    members = _leaves(tree.merges, G)
    sizes = np.array([tree.sizes[leaves].sum() for leaves in members])
    shares = sizes / sizes[-1]
    numbers = tree.cut(K)
    ends = _in_order(tree.merges, 2 * G - 2, G, G - K)
    y, x = {node: float(K - 1 - at) for at, node in enumerate(ends)}, {}
    for at, pair in enumerate(pairs):
        node = 2 * G - K + at
        x[node] = float(K - 1 - at)
        y[node] = float(np.mean([y[int(side)] for side in pair]))
    height = max(1.6, 0.55 + (0.3 if K <= MOST_NUMBERED else 0.15) * K)
    with new_figure(9.6 if partitions else 6.2, height) as figure:
        from matplotlib import colormaps
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import Normalize

        scale = ScalarMappable(Normalize(0.0, 1.0), colormaps[COLORS])
        panels = figure.subplots(1, 1 + partitions, squeeze=False, sharey=True)[0]
        axes = panels[0]
        if partitions:
            image = _of_partitions(tree, [members[k] for k in ends], colormaps["turbo"])
            beside, M = panels[1], image.shape[1]
            beside.imshow(image, extent=(0.5, M + 0.5, -0.5, K - 0.5), aspect="auto", interpolation="none")
            beside.set(xlabel=f"the {M:,} partitions, by number of clusters")
            beside.tick_params(axis="y", length=0)
        top = 2 * G - 2
        axes.plot([0.0, x.get(top, K)], [y[top]] * 2, color=GUIDE, linewidth=WIDEST, solid_capstyle="butt")
        for at in range(K - 2, -1, -1):
            node, pair, told = 2 * G - K + at, pairs[at].tolist(), support[at]
            color = GUIDE if np.isnan(told) else scale.to_rgba(told)
            axes.plot([x[node]] * 2, [y[side] for side in pair], color=color, linewidth=1.0)
            for side in pair:
                along, width = [x[node], x.get(side, float(K))], max(WIDEST * shares[side], 1.0)
                axes.plot(along, [y[side]] * 2, color=color, linewidth=width, solid_capstyle="butt")
            if K <= MOST_NUMBERED and not np.isnan(told):
                axes.annotate(f"{told:.2f}", (x[node], y[node]), xytext=(-4, 0), textcoords="offset points",
                              ha="right", va="center", fontsize=7,
                              bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})  # fmt: skip
        names = [f"{numbers[members[k][0]]}: {shares[k]:.1%}" for k in ends]
        axes.set_yticks([y[k] for k in ends], names, fontsize=8 if K <= MOST_NUMBERED else 6)
        axes.yaxis.tick_right()
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set(xlim=(0.0, K), ylim=(-0.7, K - 0.3), xlabel="split, by falling height")
        step = max((K - 1) // 12, 1)
        axes.set_xticks(range(1, K, step))
        axes.set_title(f"{K} clusters of {tree.n_objects:,} objects", fontsize=9)
        figure.colorbar(scale, ax=axes, label="support", pad=0.02, aspect=20, shrink=min(1.0, 12 / K),
                        location="left")  # fmt: skip
    return figure


def _of_partitions(tree: Any, members: list[list[int]], colormap: Any) -> np.ndarray:
    """Return the colors (K, M, 3) of what partitions have in clusters of these leaves, the coarsest first."""
    groups, K = tree.placer.found.groups, len(members)
    table = np.array([groups.table[leaves].sum(axis=0) for leaves in members])
    in_all = np.maximum(table.sum(axis=0), 1.0)
    colors = np.asarray(colormap((np.arange(K) @ table) / in_all / max(K - 1, 1)))[:, :3]
    columns, sizes = [], []
    for start, stop in itertools.pairwise(groups.offsets):
        part = table[:, start:stop]
        largest, total = part.argmax(axis=1), part.sum(axis=1)
        share = (part.max(axis=1) / np.maximum(total, 1.0))[:, None]
        columns.append(1.0 - share * (1.0 - colors[start + largest]))
        sizes.append(np.count_nonzero(part.any(axis=0)))
    return np.stack(columns, axis=1)[:, np.argsort(sizes, kind="stable")]


def _leaves(merges: np.ndarray, n_leaves: int) -> list[list[int]]:
    """Return the leaves of every node."""
    members = [[leaf] for leaf in range(n_leaves)]
    for one, two in merges[:, :2].astype(int).tolist():
        members.append(members[one] + members[two])
    return members


def _in_order(merges: np.ndarray, node: int, n_leaves: int, n_merged: int) -> list[int]:
    """Return the clusters below a node, of the tree after ``n_merged`` merges, as they lie side by side."""
    waiting, found = [node], []
    while waiting:
        node = waiting.pop()
        if node < n_leaves + n_merged:
            found.append(node)
        else:
            waiting += merges[node - n_leaves, [1, 0]].astype(int).tolist()
    return found
