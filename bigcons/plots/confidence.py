"""How far labels can be trusted: confidence and stability of clusters, calibration against a truth."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.plots.drawing import GUIDE, PALETTE, is_consensus, new_figure, refuse_ensemble
from bigcons.validation import check_int

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bigcons.trust.confidence import Reliability

_MEASURES = {
    "confidence": ("mean confidence", "o"),
    "stability": ("stability", "D"),
    "cohesion": ("cohesion", "x"),
    "support": ("support", "|"),
}
"""Columns of the table of clusters, with words and marks."""


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
    refuse_ensemble(found)
    check_int("n_clusters", n_clusters)
    if hasattr(type(found), "trust_"):  # a clusterer
        try:
            found = found.trust_
        except AttributeError as error:
            raise InvalidInputError(str(error)) from None
    if hasattr(found, "read_trust"):
        clusters = found.trust_tables[0]
        parts: Iterator[np.ndarray] = (
            found.read_trust(b.start, b.stop)["confidence"] for b in found.blocks()
        )
    elif hasattr(found, "confidence") and hasattr(found, "clusters"):
        clusters, parts = found.clusters, iter([found.confidence])
    else:
        raise InvalidInputError(
            f"found has type {type(found).__name__}; pass what bigcons.metrics.trust returned, a fitted "
            "clusterer, or a Consensus."
        )
    table = {name: clusters[name].to_numpy() for name in ("cluster", "size", *_MEASURES)}
    shown = np.argsort(-table["size"], kind="stable")[:n_clusters]
    height = 1.1 + (0.28 if len(shown) <= 10 else 0.2) * max(len(shown), 6)
    with new_figure(6.8, height) as figure:
        left, right = figure.subplots(1, 2, width_ratios=[1.4, 1])
        rows = np.arange(len(shown))
        known = [name for name in _MEASURES if not np.isnan(table[name]).all()]
        for at, name in enumerate(known):  # one below the other, so that none hides another
            words, marker = _MEASURES[name]
            y = rows + 0.18 * (at - (len(known) - 1) / 2)
            left.plot(table[name][shown], y, marker, color=PALETTE[at], markersize=4.0, label=words)
        left.hlines(rows, 0, 1, color="#E4E4E4", linewidth=0.6, zorder=0.5)
        names = [f"{table['cluster'][k]}: {table['size'][k]:,}" for k in shown.tolist()]
        left.set_yticks(rows, names, fontsize=9 if len(shown) <= 10 else 7)
        left.set(xlim=(min(0.0, *left.get_xlim()), 1.02), ylim=(len(shown) - 0.4, -0.6))
        largest = "" if len(shown) == len(clusters) else f", the {len(shown)} largest of {len(clusters):,}"
        left.set_ylabel(f"cluster: number of objects{largest}")
        figure.legend(loc="outside upper left", ncols=4, handletextpad=0.1, columnspacing=1.0)
        edges, share = _share_below(parts)
        right.stairs(share, edges, color=PALETTE[0], linewidth=1.4, baseline=None)
        right.set_yscale("log")
        least = share[share > 0].min()
        right.set(
            xlim=(np.floor(edges[:-1][share > 0][0] * 10) / 10, 1),
            ylim=(min(0.1, 10 ** np.floor(np.log10(least))), 1),
        )
        right.yaxis.set_major_formatter("{x:g}")
        right.grid(color="#DDDDDD", linewidth=0.6)
        right.set_xlabel("confidence")
        right.set_ylabel("share of objects below it")
    return figure


def _share_below(parts: Iterator[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return edges of confidence and the share of the objects with a label below the upper edge of each."""
    n_bins = 50
    counts = np.zeros(n_bins, np.int64)
    for confidence in parts:
        known = confidence[confidence > 0]
        counts += np.bincount(np.minimum((known * n_bins).astype(np.int64), n_bins - 1), minlength=n_bins)
    return np.linspace(0, 1, n_bins + 1), np.cumsum(counts) / max(int(counts.sum()), 1)


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
    refuse_ensemble(found)
    if is_consensus(found):
        from bigcons.trust.confidence import reliability as judge

        if truth is None:
            raise InvalidInputError("truth is missing; pass reliability(model, truth).")
        is_stored = not hasattr(found, "fit")
        trust = found.read_trust(0, found.n_objects)["confidence"] if is_stored else found.trust_.confidence
        found = judge(truth, found, trust)
    curves: Mapping[str, Reliability] = found if isinstance(found, Mapping) else {"": found}
    for curve in curves.values():
        if not hasattr(curve, "accuracy"):
            raise InvalidInputError(
                f"found has type {type(curve).__name__}; pass what bigcons.metrics.reliability returned, or "
                "a model with its confidence, and the truth."
            )
    with new_figure(4.0 if len(curves) == 1 else 5.6, 4.6) as figure:
        from matplotlib.ticker import PercentFormatter

        axes, below = figure.subplots(2, sharex=True, height_ratios=[4, 1])
        axes.plot([0, 1], [0, 1], color=GUIDE, linewidth=0.8, zorder=0.5)
        for (name, curve), color in zip(curves.items(), itertools.cycle(PALETTE), strict=False):
            some, share = curve.n_objects > 0, curve.n_objects / curve.n_objects.sum()
            told = f"{name}: {curve.error:.3f}"
            axes.plot(
                curve.confidence[some], curve.accuracy[some], color=color, linewidth=1.2, marker=".",
                markersize=3, label=told,
            )  # fmt: skip
            axes.scatter(
                curve.confidence[some], curve.accuracy[some], 120 * share[some], color=color, alpha=0.4
            )
            edges = np.linspace(0, 1, len(share) + 1)
            below.stairs(share, edges, color=color, fill=len(curves) == 1, alpha=0.6)
        least = min(float(np.flatnonzero(c.n_objects)[0]) / len(c.n_objects) for c in curves.values())
        axes.set(xlim=(np.floor(10 * least) / 10, 1.01), ylim=(0, 1.02))
        axes.set_ylabel("share of labels that are right")
        axes.grid(color="#DDDDDD", linewidth=0.6)
        below.set_ylabel("objects")
        below.yaxis.set_major_formatter(PercentFormatter(1.0, 0))
        below.set_xlabel("confidence")
        if len(curves) == 1:
            axes.set_title(f"calibration error {told.removeprefix(': ')}", loc="right", fontsize=9)
        else:
            figure.legend(loc="outside right upper", title="calibration error")
    return figure
