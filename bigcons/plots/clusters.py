"""Memberships of objects in clusters, and an overview of an experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.io.labels import names_of_rows, refuse_other_rows
from bigcons.plots.drawing import (
    GUIDE,
    HEAT,
    NEVER_SEEN,
    PALETTE,
    is_consensus,
    labels_to_draw,
    new_figure,
    refuse_ensemble,
    sample_rows,
    sample_words,
)
from bigcons.plots.pairs import draw_coassociation
from bigcons.seeding import SeedLike
from bigcons.validation import check_int

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def memberships(
    consensus: Any, *, n_objects: int = 2_000, n_clusters: int = 40, random_state: SeedLike = 0
) -> Figure:
    """Draw the memberships of objects sorted by cluster and, within a cluster, by confidence.

    ``consensus`` is a ``Consensus``, a fitted clusterer, or an array ``(n_objects, n_clusters)``; of more
    than ``n_objects`` objects, a random sample is drawn. Next to each cluster is the number of its objects;
    clusters that share objects are neighbors (in VAT order). Clusters without objects are left out, and of
    more than ``n_clusters`` the smaller ones with theirs. A store is read block by block.

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, truth = bc.datasets.planted_ensemble(500, 20, random_state=0)
    >>> figure = bc.plots.memberships(bc.MCLA(6, random_state=0).fit(ensemble))
    >>> figure.savefig("memberships.png")
    """
    check_int("n_clusters", n_clusters)
    sample = _sampled_memberships(consensus, n_objects, random_state)
    n_rows = min(int(np.count_nonzero(sample.sizes)), n_clusters)
    with new_figure(6.4, 1.1 + (0.25 if n_rows <= 10 else 0.12) * max(n_rows, 4)) as figure:
        _draw_memberships(figure.subplots(), sample, n_clusters)
    return figure


def _draw_memberships(axes: Axes, sample: _Sample, n_clusters: int = 10) -> None:
    """Draw memberships as a heat map, a row per cluster with objects and a column per sampled object."""
    from bigcons.metrics.geometry import vat_order

    n_full = int(np.count_nonzero(sample.sizes))
    shown = np.sort(np.argsort(-sample.sizes, kind="stable")[: min(n_clusters, n_full)])
    likeness = sample.memberships[:, shown].T @ sample.memberships[:, shown]
    norms = np.sqrt(np.diag(likeness))
    apart = 1 - likeness / np.maximum(np.outer(norms, norms), 1e-12)
    np.fill_diagonal(apart, 0.0)
    shown = shown[vat_order(apart)]
    row_of = np.full(sample.sizes.size, -1)
    row_of[shown] = np.arange(len(shown))
    rows = np.where(sample.labels < 0, len(shown), row_of[sample.labels])
    order = np.lexsort((-sample.memberships.max(axis=1, initial=0.0), rows))
    order = order[rows[order] >= 0]
    values, winners = sample.memberships[order][:, shown], sample.labels[order]
    image = axes.imshow(
        values.T, cmap=HEAT, vmin=0, vmax=1, aspect="auto", interpolation="nearest", origin="upper"
    )
    color, width = (GUIDE, 0.6) if len(shown) <= 12 else ("#DDDDDD", 0.4)
    for last in np.flatnonzero(np.diff(winners)).tolist():
        axes.axvline(last + 0.5, color=color, linewidth=width)
    for border in range(1, len(shown)):
        axes.axhline(border - 0.5, color=color, linewidth=width)
    axes.spines[:].set_visible(True)
    axes.figure.colorbar(
        image, ax=axes, label="membership", pad=0.02, aspect=20, shrink=min(1.0, 14 / len(shown))
    )
    largest = "" if len(shown) == n_full else f"\nthe {len(shown)} largest of {n_full:,} clusters"
    axes.set_xlabel(sample_words(len(order), sample.n_total, "by cluster and confidence") + largest)
    axes.set_ylabel("cluster: number of objects")
    axes.set_xticks([])
    names = [f"{k}: {sample.sizes[k]:,}" for k in shown.tolist()]
    axes.set_yticks(range(len(shown)), names, fontsize=9 if len(shown) <= 8 else 7 if len(shown) <= 12 else 6)


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
    refuse_ensemble(consensus)
    if hasattr(consensus, "read_memberships"):
        rows = sample_rows(consensus.n_objects, n_objects, random_state)
        sizes = np.zeros(consensus.n_clusters, np.int64)
        parts, labels = [], []
        for block in consensus.blocks():
            of_block = block.rows_of(rows)
            winners = consensus.read_labels(block.start, block.stop)
            sizes += np.bincount(winners[winners >= 0], minlength=sizes.size)
            labels.append(winners[of_block])
            if of_block.size:
                parts.append(consensus.read_memberships(block.start, block.stop)[of_block])
        return _Sample(consensus.n_objects, np.concatenate(labels), np.concatenate(parts), sizes)
    if hasattr(consensus, "fit"):
        from bigcons.metrics.memberships import refuse_without_memberships

        refuse_without_memberships(consensus)
    values = getattr(consensus, "memberships_", consensus)
    values = values if hasattr(values, "shape") else np.asarray(values)
    if len(values.shape) != 2:
        raise InvalidInputError(f"memberships has shape {values.shape}; pass (n_objects, n_clusters).")
    rows = sample_rows(len(values), n_objects, random_state)
    winners = getattr(consensus, "labels_", None)
    winners = np.asarray(values.argmax(axis=1)) if winners is None else winners
    sizes = np.bincount(winners[winners >= 0], minlength=values.shape[1])
    return _Sample(len(values), winners[rows], np.asarray(values[rows]), sizes)


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
    points, labels = np.asarray(coordinates), labels_to_draw(consensus)
    is_stored = hasattr(consensus, "read_labels")
    if points.shape != (*labels.shape, 2):
        raise InvalidInputError(
            f"coordinates has shape {points.shape}; pass ({labels.shape[0]}, 2), a row for each object."
        )
    refuse_other_rows("coordinates", names_of_rows(coordinates), "consensus", names_of_rows(consensus))
    from matplotlib.lines import Line2D

    rows = sample_rows(len(points), n_objects, random_state)
    trust = getattr(consensus, "trust_", None)
    if trust is not None:
        confidence = np.asarray(trust.confidence)[rows]
    elif is_stored and consensus.has_trust:
        confidence = consensus.read_trust(0, len(points))["confidence"][rows]
    else:
        confidence = np.ones(len(rows))
    of_rows = (consensus.read_labels(0, len(points)) if is_stored else np.asarray(labels))[rows]
    with new_figure(5.6, 4.4) as figure:
        axes = figure.subplots()
        marks = []
        for k in np.unique(of_rows).tolist():
            own, color = of_rows == k, NEVER_SEEN if k < 0 else PALETTE[k % len(PALETTE)]
            size, alpha = max(2.0, min(16.0, 20_000 / len(rows))), 0.15 + 0.85 * confidence[own]
            x, y = points[rows[own]].T
            axes.scatter(x, y, s=size, linewidths=0, color=color, alpha=alpha)
            marks.append(
                Line2D([], [], color=color, marker="o", linestyle="", label=str(k) if k >= 0 else "none")
            )
        axes.set(xticks=[], yticks=[], xlabel=sample_words(len(rows), len(points), "pale: low confidence"))
        if len(marks) <= 2 * len(PALETTE):
            figure.legend(handles=marks, loc="outside right upper", title="cluster")
    return figure


def overview(
    ensemble: Any,
    consensus: Any = None,
    base_accuracy: Sequence[float] = (),
    accuracy: Mapping[str, float] | None = None,
    *,
    random_state: SeedLike = 0,
) -> Figure:
    """Draw what is given of an experiment in one figure.

    Up to three panels: with ``accuracy``, a mapping from names of consensuses to their accuracy, this and
    that of the base partitions, ``base_accuracy``; the memberships of the ``consensus``; and the
    co-association in the ``ensemble``. A consensus may be given alone, in place of the ensemble.
    """
    if consensus is None and is_consensus(ensemble):
        ensemble, consensus = None, ensemble
    given = {"accuracy": accuracy, "memberships": consensus, "pairs": ensemble}
    names = [name for name, value in given.items() if value is not None]
    left, right = [name for name in names if name != "pairs"], [name for name in names if name == "pairs"]
    rows: Any = [[name, *right] for name in left] or [right]
    with new_figure(4.8 * len(rows[0]), 4.4 if right else 2.4 * len(rows)) as figure:
        panels: Any = figure.subplot_mosaic(rows, width_ratios=[1.15, 1][-len(rows[0]) :])
        if accuracy is not None:
            _draw_accuracy(panels["accuracy"], base_accuracy, accuracy)
        if ensemble is not None:
            labels = consensus if hasattr(consensus, "labels_") or hasattr(consensus, "label_rows") else None
            draw_coassociation(panels["pairs"], ensemble, labels, 500, random_state)
        if consensus is not None:
            _draw_memberships(panels["memberships"], _sampled_memberships(consensus, 2_000, random_state))
        for letter, name in zip("abc", names, strict=False):
            panels[name].set_title(letter if len(names) > 1 else "", loc="left", fontweight="bold")
    return figure


def _draw_accuracy(axes: Axes, base_accuracy: Sequence[float], accuracy: Mapping[str, float]) -> None:
    """Draw a histogram of the accuracy of the base partitions and, above it, a row for each consensus."""
    from matplotlib.ticker import MaxNLocator

    axes.hist(base_accuracy, bins=np.linspace(0, 1, 51).tolist(), color="#BBBBBB")
    line = 0.09  # height of a line of text as a fraction of the panel
    axes.set_ylim(0, axes.get_ylim()[1] / (1 - line * (len(accuracy) + 0.5)))
    for row, ((name, value), color) in enumerate(zip(accuracy.items(), PALETTE, strict=False)):
        height = 1 - line * (row + 0.5)
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
