"""Matrices of pairs in VAT order: co-association of objects, agreement of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.plots.drawing import HEAT, NEVER_SEEN, PALETTE, new_figure, sample_rows, sample_words, shortened
from bigcons.seeding import SeedLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def coassociation(
    ensemble: Any, *, labels: Any = None, n_objects: int = 500, random_state: SeedLike = 0
) -> Figure:
    """Draw how often pairs of objects share a cluster, with the objects in VAT order.

    ``ensemble`` is an Ensemble, its path, or a table of labels; of more than ``n_objects`` objects, a random
    sample is drawn. ``labels``, one for each object of the ensemble or a `Consensus`, color a strip below the
    matrix. O(n_objects^2) time and memory.
    """
    with new_figure(4.4, 4.1) as figure:
        draw_coassociation(figure.subplots(), ensemble, labels, n_objects, random_state)
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
        every = "" if step == 1 else f", every {step}th named"
        of_all = "" if len(order) == ensemble.n_partitions else f" of {ensemble.n_partitions:,}"
        axes.set_xlabel(f"{len(order):,}{of_all} partitions in VAT order{every}")
    return figure


def draw_coassociation(
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
    rows = sample_rows(ensemble.n_objects, n_objects, random_state)
    n_agree, n_seen = dense(ensemble.read_rows(rows))
    share = np.full(n_agree.shape, np.nan)  # for pairs that no partition labels
    np.divide(n_agree, n_seen, out=share, where=n_seen > 0)
    np.fill_diagonal(share, 1.0)
    order = vat_order(1 - share)
    image = axes.imshow(share[np.ix_(order, order)], cmap=HEAT, vmin=0, vmax=1, interpolation="nearest")
    axes.figure.colorbar(image, ax=axes, label="share of partitions that group the pair", shrink=0.7)
    axes.set_xlabel(sample_words(len(rows), ensemble.n_objects, "in VAT order"))
    axes.set_facecolor(NEVER_SEEN)
    axes.spines[:].set_visible(True)
    axes.set_xticks([])
    axes.set_yticks([])
    if labels is not None:
        blocks = [(b, slice(*np.searchsorted(rows, (b.start, b.stop)))) for b in ensemble.blocks()]
        found = [np.asarray(labels[b.start : b.stop])[rows[part] - b.start] for b, part in blocks]
        _draw_strip(axes, np.concatenate(found)[order])


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
