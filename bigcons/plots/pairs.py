"""Matrices of pairs: co-association of objects, agreement of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.io.labels import names_of_rows, refuse_other_rows
from bigcons.memory import Block
from bigcons.plots.drawing import (
    HEAT,
    NEVER_SEEN,
    PALETTE,
    ensemble_of,
    labels_to_draw,
    new_figure,
    sample_rows,
    sample_words,
    shortened,
)
from bigcons.seeding import SeedLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def coassociation(
    ensemble: Any, labels: Any = None, *, n_objects: int = 500, random_state: SeedLike = 0
) -> Figure:
    """Draw how often pairs of objects share a cluster, with the objects in VAT order.

    ``ensemble`` is an Ensemble, its path, or a table of labels; of more than ``n_objects`` objects, a random
    sample is drawn. ``labels``, one for each object of the ensemble, a fitted clusterer or a `Consensus`, put
    the objects of a cluster together, in VAT order, next to clusters that are often joined with it, and color
    a strip below the matrix. O(n_objects^2) time and memory.

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, truth = bc.datasets.planted_ensemble(500, 20, random_state=0)
    >>> figure = bc.plots.coassociation(ensemble, labels=truth, n_objects=200)
    >>> figure.savefig("coassociation.png")
    """
    with new_figure(4.4, 4.1) as figure:
        draw_coassociation(figure.subplots(), ensemble, labels, n_objects, random_state)
    return figure


def partitions(ensemble: Any) -> Figure:
    """Draw how far every two partitions agree, by the adjusted Rand index, with the partitions in VAT order.

    ``ensemble`` is an Ensemble of labels, its path, or a table of labels; agreement is that of at most 2,048
    sampled objects, see `bigcons.metrics.partition_agreement`. Of more than a thousand partitions, some are
    drawn, evenly spaced.

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, truth = bc.datasets.planted_ensemble(500, 20, random_state=0)
    >>> figure = bc.plots.partitions(ensemble)
    >>> figure.savefig("partitions.png")
    """
    from bigcons.metrics.description import partition_similarity
    from bigcons.metrics.geometry import vat_order

    ensemble = ensemble_of(ensemble)
    index, others = partition_similarity(ensemble)
    index = index[others]
    np.fill_diagonal(index, 1.0)
    order = vat_order(1 - index)
    with new_figure(5.0, 4.0) as figure:
        axes = figure.subplots()
        image = axes.imshow(index[np.ix_(order, order)], cmap=HEAT, vmin=0, vmax=1, interpolation="nearest")
        figure.colorbar(image, ax=axes, label="adjusted Rand index", pad=0.02)
        axes.set_facecolor(NEVER_SEEN)
        axes.spines[:].set_visible(True)
        axes.set_xticks([])
        step = -(-len(order) // 40)
        shown = range(0, len(order), step)
        names = [shortened(ensemble.names[others[order[row]]]) for row in shown]
        axes.set_yticks(shown, names, fontsize=9 if len(shown) <= 20 else 6)
        every = "" if step == 1 else f", one in {step} named"
        of_all = "" if len(order) == ensemble.n_partitions else f" of {ensemble.n_partitions:,}"
        axes.set_xlabel(f"{len(order):,}{of_all} partitions in VAT order{every}")
    return figure


def draw_coassociation(
    axes: Axes, ensemble: Any, labels: Any, n_objects: int, random_state: SeedLike
) -> None:
    """Draw the co-association matrix of a sample of objects in VAT order."""
    from bigcons.coassociation import dense
    from bigcons.metrics.geometry import vat_order

    ensemble = ensemble_of(ensemble)
    of_rows = names_of_rows(labels)
    labels = None if labels is None else labels_to_draw(labels)
    if labels is not None and labels.shape != (ensemble.n_objects,):
        raise InvalidInputError(
            f"labels has shape {labels.shape} but the ensemble has {ensemble.n_objects:,} objects; "
            "pass one label for each object."
        )
    refuse_other_rows("labels", of_rows, "the ensemble", names_of_rows(ensemble))
    rows = sample_rows(ensemble.n_objects, n_objects, random_state)
    n_agree, n_seen = dense(ensemble.read_rows(rows))
    share = np.full(n_agree.shape, np.nan)  # for pairs that no partition labels
    np.divide(n_agree, n_seen, out=share, where=n_seen > 0)
    np.fill_diagonal(share, 1.0)
    found = None if labels is None else _labels_of(labels, rows, ensemble.blocks())
    order = vat_order(1 - share) if found is None else _by_cluster(share, found)
    image = axes.imshow(share[np.ix_(order, order)], cmap=HEAT, vmin=0, vmax=1, interpolation="nearest")
    axes.figure.colorbar(image, ax=axes, label="share of partitions that group the pair", shrink=0.7)
    axes.set_facecolor(NEVER_SEEN)
    axes.spines[:].set_visible(True)
    axes.set_xticks([])
    axes.set_yticks([])
    if found is None:
        axes.set_xlabel(sample_words(len(rows), ensemble.n_objects, "in VAT order"))
    else:
        axes.set_title(sample_words(len(rows), ensemble.n_objects, "by cluster"), fontsize=9)
        _draw_strip(axes, found[order])


def _labels_of(labels: Any, rows: np.ndarray, blocks: list[Block]) -> np.ndarray:
    """Return the labels of ascending ``rows``; blocks without one are not read."""
    found = np.empty(len(rows), np.int64)
    for block in blocks:
        part = slice(*np.searchsorted(rows, (block.start, block.stop)))
        if part.start < part.stop:
            found[part] = np.asarray(labels[block.start : block.stop])[rows[part] - block.start]
    return found


def _by_cluster(share: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the order of objects by cluster: clusters by their mean co-association, objects by their own.

    Both are VAT orders; objects without a label come last.
    """
    from bigcons.metrics.geometry import vat_order

    clusters = np.unique(labels[labels >= 0])
    member = (labels[:, None] == clusters).astype(float)
    joined, seen = (np.einsum("ik,ij->kj", member, x) @ member for x in (np.nan_to_num(share), share >= 0))
    apart = 1 - np.divide(joined, seen, out=np.zeros_like(joined), where=seen > 0)
    np.fill_diagonal(apart, 0.0)
    parts = [np.flatnonzero(labels == clusters[k]) for k in vat_order(apart)]
    parts.append(np.flatnonzero(labels < 0))
    return np.concatenate([part[vat_order(1 - share[np.ix_(part, part)])] for part in parts])


def _draw_strip(axes: Axes, labels: np.ndarray) -> None:
    """Draw a strip of cluster colors along the bottom of a square matrix, and which cluster each one is."""
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
    if shown and len(shown) <= len(PALETTE):
        axes.legend(
            handles=[Patch(color=PALETTE[k % len(PALETTE)], label=str(k)) for k in shown],
            title="cluster", loc="upper center", fontsize=8, bbox_to_anchor=(0.5, -0.06), ncols=6,
            handlelength=1.0, columnspacing=1.0, borderaxespad=0.0,
        )  # fmt: skip
        return
    last, apart = -np.inf, len(labels) / 40
    for k in labels[np.sort(np.unique(labels, return_index=True)[1])].tolist():  # as they lie
        center = float(np.flatnonzero(labels == k).mean())
        if k >= 0 and center - last >= apart:
            strip.text(center, 0.8, str(k), fontsize=5.5, rotation=90, ha="center", va="top")
            last = center
    axes.set_xlabel("strip: cluster", labelpad=26)
