"""The picture of a tree of clusters: sizes as widths, support as color."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.plots.drawing import GUIDE, new_figure, shortened, tree_of
from bigcons.store.clusters import count_in_words
from bigcons.validation import check_flag, check_int

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDEST = 14.0
"""Points of the line of all objects."""

MOST_NUMBERED = 20
"""Clusters up to which the support of every split is written beside it."""

MOST_NAMED = 40
"""Partitions of which each is named; of more, only some."""

COLORS = "viridis_r"


def tree(tree: Any, n_clusters: int | None = None, *, partitions: bool = False) -> Figure:
    """Draw a tree of clusters.

    ``tree`` is what `bigcons.consensus_tree` returned, or a clusterer or Consensus whose number of clusters
    was chosen; ``n_clusters``, by default the number recommended, or 2 where that is 1, says down to which
    clusters. Splits that take off too few objects to count are passed over. From left to right, every column
    is one split, as numbered in ``tree.table()``. Lines are as wide as their share of the
    objects; the color of a split, and of its two sides, is its support. On the right are the clusters,
    numbered largest first, with their shares.

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
    check_flag("partitions", partitions)
    tree = tree_of(tree)
    if partitions and tree.placer is None:
        raise InvalidInputError(
            "the tree was kept without the labels of its objects; make it by consensus_tree(ensemble)."
        )
    if n_clusters is not None:
        check_int("n_clusters", n_clusters)
    G, branches = len(tree.sizes), tree.branches(n_clusters)
    members = _leaves(tree.merges, G)
    sizes = np.array([tree.sizes[leaves].sum() for leaves in members])
    shares = sizes / sizes[-1]
    ends = _in_order(branches, 2 * G - 2)
    K, by_size = len(ends), sorted(ends, key=lambda node: (-sizes[node], min(members[node])))
    y = {node: float(K - 1 - at) for at, node in enumerate(ends)}
    x = {node: float(2 * G - 1 - node) for node in branches}  # the number of the split
    for node in reversed(branches):
        y[node] = float(np.mean([y[side] for side in branches[node]]))
    last = max(x.values(), default=0.0) + 1.0
    height = max(1.6, 0.55 + (0.3 if K <= MOST_NUMBERED else 0.15) * K)
    with new_figure(9.6 if partitions else 6.2, height) as figure:
        from matplotlib import colormaps
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import Normalize

        scale = ScalarMappable(Normalize(0.0, 1.0), colormaps[COLORS])
        panels = figure.subplots(1, 1 + partitions, squeeze=False, sharey=True)[0]
        axes = panels[0]
        if partitions:
            image, order = _of_partitions(tree, [members[k] for k in ends], colormaps["turbo"])
            beside, M = panels[1], len(order)
            beside.imshow(image, extent=(0.5, M + 0.5, -0.5, K - 0.5), aspect="auto", interpolation="none")
            beside.set(xlabel=f"the {M:,} partitions, by number of clusters")
            named = np.arange(0, M, -(-M // MOST_NAMED))
            names = [shortened(tree.placer.ensemble.names[order[at]]) for at in named]
            beside.set_xticks(named + 1, names, rotation=90, fontsize=6)
            beside.tick_params(axis="y", length=0)
        top = next(iter(branches), 2 * G - 2)
        axes.plot([0.0, x.get(top, last)], [y[top]] * 2, color=GUIDE, linewidth=WIDEST, solid_capstyle="butt")
        for node, pair in branches.items():
            told = tree.support[node - G]
            color = GUIDE if np.isnan(told) else scale.to_rgba(told)
            axes.plot([x[node]] * 2, [y[side] for side in pair], color=color, linewidth=1.0)
            for side in pair:
                along, width = [x[node], x.get(side, last)], max(WIDEST * shares[side], 1.0)
                axes.plot(along, [y[side]] * 2, color=color, linewidth=width, solid_capstyle="butt")
            if K <= MOST_NUMBERED and not np.isnan(told):
                axes.annotate(f"{told:.2f}", (x[node], y[node]), xytext=(-4, 0), textcoords="offset points",
                              ha="right", va="center", fontsize=7,
                              bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})  # fmt: skip
        names = [f"{by_size.index(node)}: {shares[node]:.1%}" for node in ends]
        axes.set_yticks([y[node] for node in ends], names, fontsize=8 if K <= MOST_NUMBERED else 6)
        axes.yaxis.tick_right()
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set(xlim=(0.0, last), ylim=(-0.7, K - 0.3), xlabel="split, from the highest down")
        axes.set_xticks(sorted(x.values())[:: max((K - 1) // 12, 1)])
        shares = f", shares of {tree.sizes.sum():,} of them" if tree.is_sampled else ""
        told = 1 if n_clusters is None and tree.choice.n_clusters == 1 else K
        split = ", and its first split" if told < K else ""
        title = f"{count_in_words(told)} of {tree.n_objects:,} objects{split}{shares}"
        axes.set_title(title, fontsize=9)
        figure.colorbar(scale, ax=axes, label="support", pad=0.02, aspect=20, shrink=min(1.0, 12 / K),
                        location="left")  # fmt: skip
    return figure


def _of_partitions(tree: Any, members: list[list[int]], colormap: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the colors (K, M, 3) of what partitions have in clusters of these leaves, the coarsest first.

    And the partitions in this order.
    """
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
    order = np.argsort(sizes, kind="stable")
    return np.stack(columns, axis=1)[:, order], order


def _leaves(merges: np.ndarray, n_leaves: int) -> list[list[int]]:
    """Return the leaves of every node."""
    members = [[leaf] for leaf in range(n_leaves)]
    for one, two in merges[:, :2].astype(int).tolist():
        members.append(members[one] + members[two])
    return members


def _in_order(branches: dict[int, tuple[int, int]], root: int) -> list[int]:
    """Return the clusters of a cut as they lie side by side."""
    waiting, found = [next(iter(branches), root)], []
    while waiting:
        node = waiting.pop()
        if node in branches:
            waiting += reversed(branches[node])
        else:
            found.append(node)
    return found
