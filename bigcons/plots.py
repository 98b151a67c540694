"""Figures of ensembles and of their consensus.

Every function returns a matplotlib ``Figure`` that is not registered with pyplot: it is freed with its last
name, and Jupyter shows it once. Save it with ``figure.savefig``; to see it in a window, call
``pyplot.figure(figure)``, which Matplotlib 3.11 has, and ``pyplot.show()``. A function with one panel draws
into the ``Axes`` that ``ax`` gives, such as ``pyplot.gca()``, and returns their figure. The first twelve
colors are safe for color-blind readers; clusters have numbers, too.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.errors import InvalidInputError, MissingDependencyError
from bigcons.io.labels import LabelColumn, labels_of, names_of_rows, refuse_other_rows, stored_result
from bigcons.memory import BLOCK_ROWS, row_blocks
from bigcons.seeding import SeedLike, draw_rows, resolve_seed
from bigcons.store.clusters import count_in_words, evidence, merit
from bigcons.validation import check_int, check_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle

__all__ = [
    "cluster_graph", "coassociation", "convergence", "memberships", "n_clusters", "partitions", "reliability",
    "scatter", "tree", "trust",
]  # fmt: skip

# Okabe and Ito (2008), ordered so that consecutive colors differ most, then Tol's muted colors and others
PALETTE = (
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000"),
    *("#999999", "#882255", "#44AA99", "#332288", "#A6761D", "#B2DF8A", "#E7298A", "#117733"),
    *("#FB9A99", "#6A3D9A", "#DDCC77", "#00D5D5", "#661100", "#CAB2D6", "#999933", "#FF2D2D"),
    *("#2B4BFF", "#00C800", "#F032E6", "#4B4B1E", "#69B40F", "#9696FF", "#8700C3", "#FF87FF"),
)
UNKNOWN, GUIDE, BLACK = "#DDDDDD", "#888888", "#000000"

STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "savefig.dpi": 200,
    "svg.hashsalt": "bigcons",
}


def color_of(cluster: int, ink: Any = BLACK) -> Any:
    """Return the color of a cluster, gray for none, -1; in place of black, the color of text, ``ink``."""
    color = UNKNOWN if cluster < 0 else PALETTE[cluster % len(PALETTE)]
    return ink if color == BLACK else color


@contextmanager
def new_figure(width: float, height: float) -> Iterator[Figure]:
    """Yield a figure of a size in inches, in the style of this module; any notebook shows it as an image."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError(
            "figures need matplotlib, which is not installed; run pip install 'bigcons[plot]'.", extra="plot"
        ) from error
    with rc_context(STYLE):
        figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
        figure._repr_png_ = partial(image_of, figure, "png", dpi=120)  # type: ignore[attr-defined]
        yield figure


@contextmanager
def one_panel(ax: Axes | None, width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    """Yield the axes given, or the axes of a new figure of a size in inches, and their figure."""
    if ax is None:
        with new_figure(width, height) as figure:
            yield figure, figure.subplots()
    elif hasattr(ax, "imshow") and (parent := ax.get_figure(root=True)):
        yield parent, ax
    else:
        raise InvalidInputError(f"ax is {type(ax).__name__}; pass one Axes of matplotlib.", parameter="ax")


def image_of(figure: Figure, kind: str, **options: Any) -> bytes:
    """Return a figure as PNG, SVG or PDF; without a date, the same bytes for the same figure."""
    from matplotlib import rc_context

    file = io.BytesIO()
    with rc_context(STYLE):
        figure.savefig(file, format=kind, **options)
    return file.getvalue()


def draw_heat_map(axes: Axes, values: np.ndarray, words: str, **colorbar: Any) -> None:
    """Draw numbers from 0 to 1 as a heat map, gray where they are not known, and its scale."""
    image = axes.imshow(values, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axes.figure.colorbar(image, ax=axes, label=words, pad=0.02, **colorbar)
    axes.set_facecolor(UNKNOWN)
    axes.spines[:].set_visible(True)
    axes.set_xticks([])


def sample_rows(n_total: int, n_objects: int, random_state: SeedLike) -> np.ndarray:
    """Return at most ``n_objects`` sorted row indices."""
    n_objects = check_int("n_objects", n_objects, at_least=2)
    return draw_rows(n_total, n_objects, resolve_seed(random_state), "plots.sample")


def take_rows(column: Any, rows: np.ndarray) -> np.ndarray:
    """Return ascending rows of what can be sliced; blocks without one are not read."""
    blocks = [block for block in row_blocks(column.shape[0], BLOCK_ROWS) if block.rows_of(rows).size]
    return np.concatenate([np.asarray(column[b.start : b.stop])[b.rows_of(rows)] for b in blocks])


def sample_words(n_shown: int, n_total: int, order: str) -> str:
    """Return how many objects are drawn of how many, and in which order."""
    objects = f"{n_total:,} objects" if n_shown == n_total else f"{n_shown:,} of {n_total:,} objects"
    return f"{objects}, {order}"


def largest(sizes: np.ndarray, limit: int) -> np.ndarray:
    """Return the numbers of the clusters with objects, at most so many, the largest first."""
    return np.argsort(-sizes, kind="stable")[: min(limit, int(np.count_nonzero(sizes)))]


def refusal(value: Any, remedy: str) -> InvalidInputError:
    """Return the error that something cannot be drawn, and what to pass."""
    return InvalidInputError(f"{type(value).__name__} cannot be drawn so; pass {remedy}.")


def trust_of(result: Any, remedy: str = "a consensus of the tree or PCC, which has confidences") -> Any:
    """Return the `Trust` of a clusterer or Consensus, unread; raise InvalidInputError if there is none."""
    result = stored_result(result)
    for name in ("trust_rows", "trust_"):
        if hasattr(type(result), name):
            try:
                return getattr(result, name)
            except AttributeError as error:
                raise InvalidInputError(str(error)) from None
    raise refusal(result, remedy)


# Curves and points


def convergence(consensus: Any) -> Figure:
    """Draw the objective and the optimality gap of a solve against its passes or steps, on log axes.

    The objective is drawn as its relative distance from the best one; the best itself, and what equals it
    within rounding, has no point. Raises InvalidInputError if no pass has a point.

    ``consensus`` is a ``Consensus``, a fitted clusterer, or the history of one: a mapping of lists named
    ``pass`` or ``step``, ``objective`` and, if the method has one, ``gap``.

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, truth = bc.datasets.planted_ensemble(500, 20, random_state=0)
    >>> figure = bc.plots.convergence(bc.MixtureModel(6, random_state=0).fit(ensemble))
    >>> figure.savefig("convergence.png")
    """
    consensus = stored_result(consensus)
    history = getattr(consensus, "history_", getattr(consensus, "history", consensus))
    history = history if isinstance(history, Mapping) else {}
    unit = "step" if "step" in history else "pass"
    objective, n = np.asarray(history.get("objective", ()), float), len(history.get(unit, ()))
    finite = objective[np.isfinite(objective)]
    if not n or not finite.size:
        raise refusal(consensus, "a consensus whose history has 'pass' or 'step', and 'objective'")
    best = float(finite.min() if finite[-1] < finite[0] else finite.max())  # the lowest, if it is lowered
    distance = np.abs(objective - best) / (abs(best) or np.abs(finite).max() or 1.0)
    distance[distance < 1e-8] = np.nan  # equal up to rounding: memberships are kept in single precision
    curves = {"objective, relative\ndistance to the best": distance}
    if history.get("gap") and n > 1:
        curves["optimality gap"] = np.asarray(history["gap"], float)
    words = f"best objective: {best:,.0f}" if abs(best) >= 1e9 else f"best objective: {best:,.10g}"
    if not any((y > 0).any() for y in curves.values()):
        raise InvalidInputError(
            f"there is no curve to draw: the objective has one value ({words}, passes: {n}); read history."
        )
    with new_figure(4.8, 0.7 + 1.3 * len(curves)) as figure:
        figure.suptitle(words, fontsize=9)
        panels = figure.subplots(len(curves), sharex=True, squeeze=False)[:, 0]
        for axes, (name, y), color in zip(panels, curves.items(), PALETTE, strict=False):
            marker = "o" if n <= 40 else None
            axes.plot(history[unit], y, color=color, marker=marker, markersize=3.5, linewidth=1.4)
            axes.grid(axis="y", color=UNKNOWN, linewidth=0.6)
            axes.set(ylabel=name, yscale="log")
            decades = np.log10(y[y > 0])
            if decades.size:
                axes.set_ylim(10 ** np.floor(decades.min()), 10 ** np.ceil(decades.max() + 1e-9))
        axes.set_xlim(history[unit][0] - 0.2, history[unit][-1] + 0.2)
        axes.locator_params(axis="x", nbins=6, integer=True)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlabel("pass over the data" if unit == "pass" else "single-object step")
        figure.align_ylabels()
    return figure


def n_clusters(choice: Any) -> Figure:
    """Draw the evidence for each number of clusters.

    ``choice`` is the result of `bigcons.choose_n_clusters`, or a clusterer or Consensus whose number of
    clusters was chosen. The upper panel has the distinctness of the least distinct two of so many clusters,
    which falls when a cluster is cut, and how far halves of the partitions agree on the number. The lower
    panel has the lifetime of each number, the evidence (the lifetime times the agreement), and the merit (the
    evidence with an eighth of the quality), which decides. Vertical lines mark the number recommended and,
    dashed, the next best. A number is clear if it has more evidence than a single cluster, the dotted line
    (`NClustersChoice`). Each panel has its own scale. Both end at 15 clusters, or at twice the recommended
    number and the runner-up, even if more were compared.

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, truth = bc.datasets.planted_ensemble(500, 20, random_state=0)
    >>> choice = bc.choose_n_clusters(ensemble, k_range=(2, 9), random_state=0)
    >>> figure = bc.plots.n_clusters(choice)
    >>> figure.savefig("n_clusters.png")
    """
    choice = stored_result(choice)
    stored = getattr(choice, "tree", None)  # a Consensus keeps the choice with the tree
    choice = getattr(stored, "choice", getattr(choice, "n_clusters_choice_", choice))
    if not hasattr(choice, "runner_up"):
        raise refusal(choice, "bigcons.choose_n_clusters(ensemble), or a consensus with n_clusters='auto'")
    table = choice.table | {"evidence": evidence(choice.table), "merit": merit(choice.table)}
    is_shown = table["n_clusters"] <= max(2 * choice.n_clusters, 2 * (choice.runner_up or 0), 15)
    panels = (
        {"distinctness": "distinctness of the least distinct two", "agreement": "agreement of halves"},
        {"lifetime": "lifetime", "evidence": "evidence", "merit": "merit, which decides"},
    )
    with new_figure(5.6, 4.6) as figure:
        for axes, curves in zip(figure.subplots(2, sharex=True), panels, strict=True):
            lines = zip(curves.items(), PALETTE, (":", "-", "--"), strict=False)
            for (name, words), color, line in lines:
                x, y = table["n_clusters"][is_shown], table[name][is_shown]
                axes.plot(x, y, line, color=color, marker="o", markersize=3, linewidth=1.2, label=words)
            for number, line in ((choice.n_clusters, "-"), (choice.runner_up, "--")):
                if number is not None:
                    axes.axvline(number, color=GUIDE, linewidth=0.8, linestyle=line, zorder=0)
            axes.grid(axis="y", color=UNKNOWN, linewidth=0.6)
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.2)
        figure.axes[0].set_ylim(0, 1.05)
        axes.axhline(choice.lifetime_of_one, color=GUIDE, linewidth=0.8, linestyle=":", zorder=0)
        figure.suptitle(choice.in_words(), fontsize=10)
        axes.locator_params(axis="x", integer=True, min_n_ticks=1)
        more = "" if is_shown.all() else f" (compared: up to {table['n_clusters'][-1]})"
        axes.set_xlabel(f"number of clusters{more}")
    return figure


def trust(result: Any, *, n_clusters: int = 40) -> Figure:
    """Draw how far clusters and objects can be trusted.

    On the left, for each cluster with its number of objects, the mean confidence of its objects, its
    stability under halves of the partitions, its tightness and, where known, its support, see
    `bigcons.metrics.trust`; of more than ``n_clusters``, the largest. On the right, the share of the objects
    below each confidence, on a logarithmic axis.

    ``result`` is what `bigcons.metrics.trust` returns, a fitted clusterer, or a `Consensus` that has trust,
    which is read block by block.

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, truth = bc.datasets.planted_ensemble(500, 20, random_state=0)
    >>> model = bc.MCLA(6, random_state=0).fit(ensemble)
    >>> figure = bc.plots.trust(bc.metrics.trust(ensemble, model))
    >>> figure.savefig("trust.png")
    """
    if not (hasattr(result, "confidence") and hasattr(result, "clusters")):
        result = trust_of(result, "bigcons.metrics.trust(ensemble, labels), or a consensus of tree or PCC")
    clusters, confidence, edges = result.clusters, result.confidence[:], np.linspace(0, 1, 1001)
    below = np.append(0.0, np.cumsum(np.histogram(confidence[confidence > 0], edges)[0]))
    below /= max(below[-1], 1.0)
    measures = {"confidence": "mean confidence"} | {m: m for m in ("stability", "tightness", "support")}
    table = {name: clusters[name].to_numpy() for name in ("cluster", "size", *measures)}
    numbers = largest(table["size"], n_clusters)
    with new_figure(6.8, 1.1 + (0.32 if len(numbers) <= 10 else 0.24) * max(len(numbers), 6)) as figure:
        left, right = figure.subplots(1, 2, width_ratios=[1.4, 1])
        rows = np.arange(len(numbers))
        columns = [name for name in measures if not np.isnan(table[name]).all()]
        for index, (name, marker) in enumerate(zip(columns, "oDxs", strict=False)):
            y = rows + 0.21 * (index - (len(columns) - 1) / 2)  # so that none hides another
            color, x = PALETTE[index], table[name][numbers]
            left.plot(x, y, marker, color=color, markersize=3.2, label=measures[name])
        left.hlines(rows, 0, 1, color=UNKNOWN, linewidth=0.6, zorder=0.5)
        names = [f"{table['cluster'][k]}: {table['size'][k]:,}" for k in numbers.tolist()]
        left.set_yticks(rows, names, fontsize=9 if len(numbers) <= 10 else 7)
        left.set(xlim=(min(0.0, *left.get_xlim()), 1.02), ylim=(len(numbers) - 0.4, -0.6))
        remark = "" if len(numbers) == len(clusters) else f", the {len(numbers)} largest of {len(clusters):,}"
        left.set_ylabel(f"cluster: number of objects{remark}")
        figure.legend(loc="outside upper left", ncols=4, handletextpad=0.1, columnspacing=1.0)
        right.step(edges, below, where="post", color=PALETTE[0], linewidth=1.4)
        is_used = below > 0
        lowest = min(0.01, 10 ** np.floor(np.log10(below[is_used].min())))
        right.set(yscale="log", xlim=(np.floor(edges[is_used.argmax() - 1] * 10) / 10, 1), ylim=(lowest, 1))
        right.yaxis.set_major_formatter(lambda y, _: f"{y:.9f}".rstrip("0").rstrip("."))
        right.grid(color=UNKNOWN, linewidth=0.6)
        right.set(xlabel="confidence", ylabel="share of objects below it")
    return figure


def reliability(result: Any, truth: Any = None) -> Figure:
    """Draw how often labels of a stated confidence are right, against the confidence.

    ``result`` is what `bigcons.metrics.reliability` returns, or several of these by name, or, with the
    ``truth``, one class for each object, a fitted clusterer or a Consensus with confidences. Points on the
    diagonal are calibrated, points below it overconfident. Bars are 95 % intervals (Wilson 1927), wide where
    a bin has few objects; the panel below shows how many, on a logarithmic axis.

    Examples
    --------
    >>> import bigcons as bc
    >>> result = bc.metrics.reliability([0, 0, 1, 1], [0, 0, 1, 0], [0.9, 0.9, 0.8, 0.4])
    >>> figure = bc.plots.reliability(result)
    >>> figure.savefig("reliability.png")
    """
    if truth is not None:
        from bigcons.metrics import reliability as judge

        result = judge(truth, result, trust_of(result).confidence[:])
    curves: Mapping[str, Any] = result if isinstance(result, Mapping) else {"": result}
    for curve in curves.values():
        if not hasattr(curve, "accuracy"):
            raise refusal(curve, "bigcons.metrics.reliability(...), or a model and the truth")
    with new_figure(4.0 if len(curves) == 1 else 5.6, 4.6) as figure:
        axes, below = figure.subplots(2, sharex=True, height_ratios=[4, 1])
        axes.plot([0, 1], [0, 1], color=GUIDE, linewidth=0.8, zorder=0.5)
        lowest = 1.0
        for (name, curve), color in zip(curves.items(), itertools.cycle(PALETTE), strict=False):
            n, is_used = curve.n_objects, curve.n_objects > 0
            x, y, edges = curve.confidence[is_used], curve.accuracy[is_used], np.linspace(0, 1, len(n) + 1)
            z = 1.96**2 / n[is_used]
            middle, half = (y + z / 2) / (1 + z), np.sqrt(z * y * (1 - y) + z**2 / 4) / (1 + z)
            bars = np.maximum([y - middle + half, middle + half - y], 0)
            axes.errorbar(x, y, bars, color=color, marker="o", markersize=3.5, elinewidth=0.8,
                          linewidth=float(len(curves) > 1), label=f"{name}: {curve.error:.3f}")  # fmt: skip
            below.stairs(n, edges, baseline=0.5, color=color, fill=len(curves) == 1, alpha=0.6)
            lowest = min(lowest, float(edges[:-1][is_used][0]))
        axes.set(xlim=(np.floor(10 * lowest) / 10 - 0.01, 1.02), ylim=(-0.02, 1.03))
        axes.set_ylabel("share of labels that are right")
        axes.grid(color=UNKNOWN, linewidth=0.6)
        below.set(xlabel="confidence", ylabel="objects", yscale="log", ylim=(0.5, None))
        below.yaxis.set_major_formatter("{x:,.0f}")
        if len(curves) == 1:
            axes.set_title(f"calibration error {curve.error:.3f}", loc="right", fontsize=9)
        else:
            figure.legend(loc="outside right upper", title="calibration error")
    return figure


def scatter(
    coordinates: Any, consensus: Any, *, n_objects: int = 20_000, random_state: SeedLike = 0, ax: Any = None
) -> Figure:
    """Draw objects at given coordinates, such as from UMAP or PCA, colored by cluster.

    ``coordinates (n_objects, 2)`` are in the order of the objects. ``consensus`` is a fitted clusterer, a
    `Consensus`, or labels. Every cluster has its number, or name, among its objects. Objects of low
    confidence, where it is known, are pale, and objects without a label gray. Of more than ``n_objects``, a
    random sample is drawn, into the Axes ``ax`` if given. The points are an image in PDF and SVG, too.

    Examples
    --------
    >>> import bigcons as bc
    >>> features, truth = bc.datasets.planted_features(300, 5)
    >>> model = bc.consensus(bc.generate.kmeans(features, random_state=0), 3, random_state=0)
    >>> figure = bc.plots.scatter(features[:, :2], model)
    >>> figure.savefig("scatter.png")
    """
    points, column = np.asarray(coordinates), LabelColumn("consensus", consensus)
    if points.shape != (column.n_objects, 2):
        words = f"pass ({column.n_objects}, 2), a row for each object."
        raise InvalidInputError(f"coordinates has shape {points.shape}; {words}")
    names = dict(enumerate(column.values)) if column.values.dtype == object else {}
    labels = np.append(list(names) or column.values, -1)[column.codes(0, column.n_objects)]
    refuse_other_rows("coordinates", names_of_rows(coordinates), "consensus", names_of_rows(consensus))
    rows = sample_rows(len(points), n_objects, random_state)
    consensus = stored_result(consensus)
    has_trust = getattr(consensus, "has_trust", hasattr(consensus, "trust_"))
    confidence = trust_of(consensus).confidence[:] if has_trust else np.ones(len(points))
    points, labels, alpha = points[rows], labels[rows], 0.15 + 0.85 * confidence[rows]
    with one_panel(ax, 5.6, 4.4) as (figure, axes):
        from matplotlib.colors import to_rgba_array

        clusters, indices = np.unique(labels, return_inverse=True)
        ink = axes.xaxis.label.get_color()
        colors = to_rgba_array([color_of(k, ink) for k in clusters.tolist()])[indices]
        colors[:, 3] *= alpha
        size = max(2.0, min(16.0, 20_000 / len(rows)))
        axes.scatter(points[:, 0], points[:, 1], s=size, linewidths=0, c=colors, rasterized=True)
        for k, (x, y) in _number_places(points, labels).items():
            face, edge = axes.get_facecolor(), color_of(k, ink)
            box = {"facecolor": face, "edgecolor": edge, "boxstyle": "round,pad=0.12"}
            fontsize = 8 if len(clusters) <= 25 else 6
            axes.text(x, y, str(names.get(k, k)), ha="center", va="center", fontsize=fontsize, bbox=box)
        words = sample_words(len(rows), len(confidence), "pale: low confidence")
        axes.set(xticks=[], yticks=[], xlabel=words)
    return figure


def _number_places(points: np.ndarray, labels: np.ndarray) -> dict[int, np.ndarray]:
    """Return where to write the number of each cluster, the smallest first, so that it hides no other.

    It is at the object nearest to the median of its cluster with no other number in a box around it.
    """
    box, places = np.array([0.04, 0.05]) * np.maximum(np.ptp(points, axis=0), 1e-300), dict[int, np.ndarray]()
    clusters, sizes = np.unique(labels[labels >= 0], return_counts=True)
    for k in clusters[np.argsort(sizes, kind="stable")].tolist():
        dots = points[labels == k]
        dots = dots[np.argsort(np.linalg.norm((dots - np.median(dots, axis=0)) / box, axis=1), kind="stable")]
        distances = [np.max(np.abs(dots - place) / box, axis=1) for place in places.values()]
        places[k] = dots[int(np.argmax(np.min([np.ones(len(dots)), *distances], axis=0)))]
    return places


# Heat maps


def memberships(
    consensus: Any,
    *,
    n_objects: int = 2_000,
    n_clusters: int = 40,
    random_state: SeedLike = 0,
    ax: Axes | None = None,
) -> Figure:
    """Draw the memberships of objects sorted by cluster and, within a cluster, by confidence.

    ``consensus`` is a ``Consensus``, a fitted clusterer, or an array ``(n_objects, n_clusters)``; of more
    than ``n_objects`` objects, a random sample is drawn. Next to each cluster is the number of its objects;
    clusters that share objects are neighbors (in VAT order). Clusters without objects are left out, and of
    more than ``n_clusters`` the smaller ones with their objects. A store is read block by block. The picture
    goes into the Axes ``ax`` if given.

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, truth = bc.datasets.planted_ensemble(500, 20, random_state=0)
    >>> figure = bc.plots.memberships(bc.MCLA(6, random_state=0).fit(ensemble))
    >>> figure.savefig("memberships.png")
    """
    from bigcons.metrics import MembershipRows, vat_order

    consensus = stored_result(consensus)
    source = MembershipRows("memberships", consensus)
    values = source.rows
    labels = np.asarray(values).argmax(axis=1) if source.labels is None else source.labels
    if hasattr(consensus, "cluster_sizes"):
        sizes = consensus.cluster_sizes()
    else:
        sizes = np.bincount(labels[labels >= 0], minlength=source.n_clusters)
    rows = sample_rows(labels.shape[0], n_objects, random_state)
    winners, sample = take_rows(labels, rows), take_rows(values, rows)
    numbers, n_full = np.sort(largest(sizes, n_clusters)), int(np.count_nonzero(sizes))
    likeness = sample[:, numbers].T @ sample[:, numbers]
    norms = np.sqrt(np.diag(likeness))
    distances = 1 - likeness / np.maximum(np.outer(norms, norms), 1e-12)
    np.fill_diagonal(distances, 0.0)
    numbers = numbers[vat_order(distances)]
    row_of = np.full(sizes.size + 1, -1)  # the last is of objects without a label
    row_of[[*numbers, -1]] = np.arange(len(numbers) + 1)
    order = np.lexsort((-sample.max(axis=1, initial=0.0), row_of[winners]))
    order = order[row_of[winners[order]] >= 0]
    height = 1.1 + (0.25 if len(numbers) <= 10 else 0.12) * max(len(numbers), 4)
    with one_panel(ax, 6.4, height) as (figure, axes):
        shrink = min(1.0, 14 / max(len(numbers), 1))
        draw_heat_map(axes, sample[order][:, numbers].T, "membership", aspect=20, shrink=shrink)
        color, width = (GUIDE, 0.6) if len(numbers) <= 12 else (UNKNOWN, 0.4)
        for last in np.flatnonzero(np.diff(winners[order])).tolist():
            axes.axvline(last + 0.5, color=color, linewidth=width)
        for border in range(1, len(numbers)):
            axes.axhline(border - 0.5, color=color, linewidth=width)
        words = sample_words(len(order), labels.shape[0], "by cluster and confidence")
        remark = "" if len(numbers) == n_full else f"\nthe {len(numbers)} largest of {n_full:,} clusters"
        axes.set_xlabel(words + remark)
        axes.set_ylabel("cluster: number of objects")
        names = [f"{k}: {sizes[k]:,}" for k in numbers.tolist()]
        fontsize = 9 if len(numbers) <= 8 else 7 if len(numbers) <= 12 else 6
        axes.set_yticks(range(len(numbers)), names, fontsize=fontsize)
    return figure


def coassociation(
    ensemble: Any, labels: Any = None, *, n_objects: int = 500, random_state: SeedLike = 0, ax: Any = None
) -> Figure:
    """Draw how often pairs of objects share a cluster.

    Objects are in VAT order (`bigcons.metrics.vat_order`), in which clusters are blocks on the diagonal.
    ``ensemble`` is an Ensemble, its path, or a table of labels; of more than ``n_objects`` objects, a random
    sample is drawn, into the Axes ``ax`` if given. ``labels``, one for each object of the ensemble, a fitted
    clusterer or a `Consensus`, put the objects of a cluster together, in VAT order, next to clusters that are
    often joined with it. O(n_objects^2) time and memory.

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, truth = bc.datasets.planted_ensemble(500, 20, random_state=0)
    >>> figure = bc.plots.coassociation(ensemble, labels=truth, n_objects=200)
    >>> figure.savefig("coassociation.png")
    """
    from bigcons.coassociation.counts import dense_of_rows
    from bigcons.contingency import refuse_other_objects
    from bigcons.metrics import vat_order
    from bigcons.store.ensemble import as_ensemble

    ensemble = as_ensemble(ensemble)
    rows = sample_rows(ensemble.n_objects, n_objects, random_state)
    clusters = None
    if labels is not None:
        column = labels_of(labels)
        column = column if hasattr(column, "shape") else np.asarray(column)
        reference = "the ensemble has", ensemble.n_objects, names_of_rows(ensemble)
        refuse_other_objects("labels", column.shape[0], names_of_rows(labels), *reference)
        clusters = take_rows(column, rows)
    n_agree, n_seen = dense_of_rows(ensemble, rows)
    share = np.full(n_agree.shape, np.nan)  # for pairs that no partition labels
    np.divide(n_agree, n_seen, out=share, where=n_seen > 0)
    np.fill_diagonal(share, 1.0)
    order = vat_order(1 - share) if clusters is None else _by_cluster(share, clusters)
    with one_panel(ax, 4.4, 4.1) as (figure, axes):
        words = "share of partitions that group the pair"
        draw_heat_map(axes, share[np.ix_(order, order)], words, shrink=0.7)
        axes.set(yticks=[], aspect="equal")
        words = "in VAT order" if clusters is None else "by cluster"
        axes.set_xlabel(sample_words(len(rows), ensemble.n_objects, words))
        if clusters is not None:
            last = np.flatnonzero(np.diff(clusters[order], append=-2))  # row of each cluster
            middle, n_rows = last - np.diff(last, prepend=-1) / 2 + 0.5, np.diff(last, prepend=-1)
            names = [str(k) if k >= 0 else "none" for k in clusters[order[last]].tolist()]
            ticks: list[int] = []  # the largest first; a name that would hide another is left out
            for k in np.argsort(-n_rows, kind="stable").tolist():
                if all(abs(middle[k] - middle[other]) > len(rows) / 26 for other in ticks):
                    ticks.append(k)
            ticks.sort()
            axes.set_yticks(middle[ticks], [names[k] for k in ticks], fontsize=9 if len(ticks) <= 15 else 7)
            axes.set_ylabel("cluster")
    return figure


def _by_cluster(share: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the order of objects by cluster: clusters by their mean co-association, objects by their own.

    Both are VAT orders; objects without a label come last.
    """
    from bigcons.metrics import vat_order

    clusters = np.unique(labels[labels >= 0])
    member = (labels[:, None] == clusters).astype(float)
    sums, pairs = (np.einsum("ik,ij->kj", member, x) @ member for x in (np.nan_to_num(share), share >= 0))
    distances = 1 - np.divide(sums, pairs, out=np.zeros_like(sums), where=pairs > 0)
    np.fill_diagonal(distances, 0.0)
    parts = [np.flatnonzero(labels == clusters[k]) for k in vat_order(distances)]
    parts.append(np.flatnonzero(labels < 0))
    return np.concatenate([part[vat_order(1 - share[np.ix_(part, part)])] for part in parts])


def partitions(ensemble: Any, *, ax: Axes | None = None) -> Figure:
    """Draw the adjusted Rand index of each two partitions, in VAT order (`bigcons.metrics.vat_order`).

    ``ensemble`` is an Ensemble of labels, its path, or a table of labels; agreement is measured on at most
    2,048 sampled objects, see `bigcons.metrics.partition_agreement`. Of more than a thousand partitions, some
    are drawn, evenly spaced. They are drawn into the Axes ``ax`` if given.

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, truth = bc.datasets.planted_ensemble(500, 20, random_state=0)
    >>> figure = bc.plots.partitions(ensemble)
    >>> figure.savefig("partitions.png")
    """
    from bigcons.metrics import partition_similarity, vat_order
    from bigcons.store.ensemble import as_ensemble

    ensemble = as_ensemble(ensemble)
    index, references = partition_similarity(ensemble)
    index = index[references]
    np.fill_diagonal(index, 1.0)
    order = vat_order(1 - index)
    with one_panel(ax, 5.0, 4.0) as (figure, axes):
        draw_heat_map(axes, index[np.ix_(order, order)], "adjusted Rand index")
        room = axes.bbox.height * 72 / figure.dpi / 5.5  # names, of 6 points or nearly so
        step = -(-len(order) // max(int(room), 1))
        ticks = range(0, len(order), step)
        names = [ensemble.names[references[order[row]]] for row in ticks]
        names = [name if len(name) <= 16 else f"{name[:8]}…{name[-7:]}" for name in names]
        axes.set_yticks(ticks, names, parse_math=False, fontsize=9 if len(ticks) <= 20 else 6)
        every = "" if step == 1 else f", one in {step} named"
        whole = "" if len(order) == ensemble.n_partitions else f" of {ensemble.n_partitions:,}"
        axes.set_xlabel(f"{len(order):,}{whole} partitions in VAT order{every}")
    return figure


# Clusters as a graph and as a tree


# In units of the graph: the radius of a node, the distance of neighbors, and the size of a weight.
_RADIUS, _SPACING, _LABEL = 0.34, 1.35, np.array([0.26, 0.13])


def cluster_graph(
    consensus: Any,
    *,
    centroids: Any = None,
    glyph: Callable[[Axes, np.ndarray], object] | None = None,
    threshold: float = 0.05,
    min_overlap: float = 0.05,
    n_clusters: int = 12,
    client: object = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw the clusters as a graph: an arrow from a to b for the share of cluster a that also lies in b.

    Arrows are as wide as their weights, from `bigcons.metrics.cluster_overlap` (Lourenço et al. 2015,
    Figure 8), and have the color of the cluster they leave. Clusters that overlap much are neighbors on the
    circle. Raises InvalidInputError if there is neither an arrow nor a centroid to draw.

    Parameters
    ----------
    consensus
        A `Consensus`, a fitted soft method, or memberships ``(n_objects, n_clusters)``, read block by block.
    centroids
        ``(n_clusters, n_features)``, as from `bigcons.metrics.cluster_centroids`, one drawn in each node.
    glyph
        Function that draws a centroid ``(n_features,)`` in the given ``Axes``; by default as a curve.
    threshold
        Memberships below it are set to zero and the others normalized again.
    min_overlap
        The least weight of an arrow; raise it if there are too many arrows to read.
    n_clusters
        Maximum number of clusters to draw, the largest. Clusters without objects are left out.
    client
        Engine.
    ax
        Axes to draw into; by default a new figure.

    Examples
    --------
    >>> import bigcons as bc
    >>> memberships = [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]
    >>> figure = bc.plots.cluster_graph(memberships)
    >>> figure.savefig("clusters.png")
    """
    from bigcons.metrics import overlap_and_sizes

    check_number("min_overlap", min_overlap, above=0, at_most=1)
    overlap, sizes = overlap_and_sizes(consensus, threshold, client)
    numbers = np.sort(largest(sizes, n_clusters))
    if not len(numbers):
        raise InvalidInputError(f"threshold={threshold} is above every membership; lower it.")
    rows = None if centroids is None else np.asarray(centroids, np.float64)
    if rows is not None and len(rows) != len(sizes):
        fault = f"centroids has length {len(rows)}; give one for each of {len(sizes)} clusters."
        raise InvalidInputError(fault)
    pairs = [(a, b) for a, b in itertools.permutations(numbers.tolist(), 2) if overlap[a, b] >= min_overlap]
    if rows is None and not pairs:
        raise InvalidInputError(
            f"there is no graph to draw: no cluster has a share of min_overlap={min_overlap:g} or more in "
            "another; lower it, or draw memberships."
        )
    places = _places_on_circle(np.maximum(overlap, overlap.T)[np.ix_(numbers, numbers)])
    margin = (_RADIUS + 0.06, _RADIUS + (0.06 if rows is None else 0.3))
    low, high = places.min(axis=0) - margin, places.max(axis=0) + margin
    width, height = min(1.25, 7.0 / (high - low)[0]) * (high - low)  # at most 7 inches
    width = max(width, 2.6)
    with one_panel(ax, width, height + 0.3) as (figure, axes):
        from matplotlib.patches import Circle

        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal", xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        axes.apply_aspect()
        edges = axes.transData.transform([(0, 0), (_RADIUS, 0)])[:, 0]  # in pixels, to fit text into circles
        fontsize = min(9.0, 0.6 * 72 * float(np.diff(edges)[0]) / figure.dpi)
        ink, nodes = axes.xaxis.label.get_color(), {}
        for k, (x, y) in zip(numbers.tolist(), places.tolist(), strict=True):
            face, edge = axes.get_facecolor(), color_of(k, ink)
            nodes[k] = Circle((x, y), _RADIUS, facecolor=face, edgecolor=edge, linewidth=1.6, zorder=3)
            axes.add_patch(nodes[k])
            share = sizes[k] / sizes.sum()
            words = str(k), "<1%" if share < 0.005 else f"{share:.0%}"
            if rows is None:
                axes.text(x, y, "\n".join(words), ha="center", va="center", zorder=6, fontsize=fontsize)
            else:  # a centroid is inside, and the words on the outer side, where no arrow is
                side = 1.25 * _RADIUS
                box = x - side / 2, y - side / 2, side, side
                inset = axes.inset_axes(box, transform=axes.transData, zorder=4)
                if glyph is None:
                    inset.plot(rows[k], color=ink, linewidth=1.1)
                    inset.set_ylim(np.nanmin(rows), np.nanmax(rows))
                else:
                    glyph(inset, rows[k])
                inset.set_axis_off()
                offset, va = (_RADIUS + 0.05, "bottom") if y > 1e-9 else (-_RADIUS - 0.05, "top")
                axes.text(x, y + offset, ", ".join(words), ha="center", va=va, zorder=6)
        labels: list[np.ndarray] = []
        for a, b in pairs:
            bend = 0.12 if a < b else 0.36
            labels.append(_draw_arrow(axes, nodes[a], nodes[b], overlap[a, b], bend, labels))
            (x, y), weight = labels[-1], f"{overlap[a, b]:{'.2f' if overlap[a, b] >= 0.01 else '.1g'}}"
            text = axes.text(x, y, weight, fontsize=0.78 * fontsize, ha="center", va="center", zorder=5)
            text.set_bbox({"facecolor": axes.get_facecolor(), "edgecolor": "none", "pad": 0.6})
        n_full = int(np.count_nonzero(sizes))
        left_out = f"; {len(numbers)} largest of {n_full} clusters" if len(numbers) < n_full else ""
        caption = f"arrows: share of a cluster that\nlies in another, at least {min_overlap:g}"
        caption = caption if width < 3.6 else caption.replace("\n", " ")
        axes.set_xlabel(f"{caption if pairs else 'no arrows'}{left_out}", fontsize=8, wrap=True)
    return figure


def _places_on_circle(weight: np.ndarray) -> np.ndarray:
    """Return a place for every node ``(n, 2)``: on a flattened circle, so that no arrow passes below a node.

    The order makes the sum of weights times distances along the circle small: pairs are swapped while that
    lowers it. The first node is at the upper left, and the lower of its neighbors follows clockwise.
    """
    n = len(weight)
    steps = np.abs(np.arange(n)[:, None] - np.arange(n))
    steps = np.minimum(steps, n - steps)
    order = np.arange(n)
    cost, has_improved = (weight * steps).sum(), True
    while has_improved:
        has_improved = False
        for a, b in itertools.combinations(range(n), 2):
            candidate = order.copy()
            candidate[[a, b]] = order[[b, a]]
            changed = (weight[np.ix_(candidate, candidate)] * steps).sum()
            if changed < cost * (1 - 1e-9):
                order, cost, has_improved = candidate, changed, True
    order = np.roll(order, -int(np.argmin(order)))
    if n > 2 and order[-1] < order[1]:
        order[1:] = order[:0:-1]
    angles = np.pi / 2 + np.pi / n - 2 * np.pi * np.arange(n) / n
    radius = _SPACING / (2 * np.sin(np.pi / n)) if n > 1 else 0.0
    places = np.empty((n, 2))
    places[order] = radius * np.column_stack([1.2 * np.cos(angles), np.sin(angles)])
    return places


def _draw_arrow(
    axes: Axes, start: Circle, end: Circle, weight: float, bend: float, labels: Sequence[np.ndarray]
) -> np.ndarray:
    """Draw an arrow between two circles, bent to the middle of all, where no other is.

    Returns where on it to write its weight, so that it hides none of the ``labels`` there are.
    """
    from matplotlib.patches import FancyArrowPatch

    first, last = np.array(start.center), np.array(end.center)
    t, normal = np.linspace(0.0, 1.0, 41)[:, None], np.array([1, -1]) * (last - first)[::-1]
    bend = bend if normal @ (first + last) < 1e-9 else -bend
    curve = (1 - t) ** 2 * first + 2 * t * (1 - t) * ((first + last) / 2 + bend * normal) + t**2 * last
    width, color = 0.6 + 6 * weight, start.get_edgecolor()
    arrow = FancyArrowPatch(
        (first[0], first[1]), (last[0], last[1]), connectionstyle=f"arc3,rad={bend}", arrowstyle="-|>",
        mutation_scale=7 + 1.6 * width, patchA=start, patchB=end, shrinkA=2, shrinkB=2, linewidth=width,
        color=color, zorder=2,
    )  # fmt: skip
    axes.add_patch(arrow)
    from_ends = np.minimum(*(np.linalg.norm(curve - center, axis=1) for center in (first, last)))
    free = curve[from_ends > _RADIUS + 0.15]  # between the circles, from the start to the end
    free = free if len(free) else curve[[len(curve) // 2]]
    free = free[np.argsort(np.abs(np.arange(len(free)) - 0.4 * len(free)), kind="stable")]
    distances = [min([np.max(np.abs(place - label) / _LABEL) for label in labels] + [1.0]) for place in free]
    return np.asarray(free[int(np.argmax(distances))])


def tree(tree: Any, n_clusters: int | None = None, *, ax: Axes | None = None) -> Figure:
    """Draw a tree of clusters, into the Axes ``ax`` if given.

    ``tree`` is the result of `bigcons.consensus_tree`, or a clusterer or Consensus whose number of clusters
    was chosen. The tree is drawn down to ``n_clusters``, by default the number recommended, or 2 if that is
    1. Splits that separate too few objects to count are left out. Every split is at its height, as in
    ``tree.table()``; splits of equal height, which have no order, are drawn as one split of many sides.
    The width of a line is its share of the objects; the color of a split and of its sides is its support (of
    several splits, the least). On the right are the clusters, numbered as by ``tree.labels``, with their
    shares.

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, truth = bc.datasets.planted_ensemble(600, 30, noise=(0.0, 0.2), random_state=0)
    >>> figure = bc.plots.tree(bc.consensus_tree(ensemble, random_state=0))
    >>> figure.savefig("tree.png")
    """
    if not hasattr(tree, "merges"):  # a consensus, which keeps the tree where its number was chosen
        tree = stored_result(tree)
        tree = getattr(tree, "tree_", getattr(tree, "tree", tree))
    if not hasattr(tree, "merges"):
        raise refusal(tree, "bigcons.consensus_tree(ensemble), or a consensus with n_clusters='auto'")
    G, branches, support = len(tree.sizes), dict[int, list[int]](), dict[int, Any]()
    heights = np.append(np.zeros(G), tree.merges[:, 2])
    for node, pair in reversed(tree.branches(n_clusters).items()):
        equal = [side for side in pair if side in branches and heights[side] == heights[node]]
        support[node] = np.min([tree.support[node - G], *(support[side] for side in equal)])
        branches[node] = [end for side in pair for end in (branches.pop(side) if side in equal else [side])]
    members = [[leaf] for leaf in range(G)]
    for left, right in tree.merges[:, :2].astype(int).tolist():
        members.append(members[left] + members[right])
    sizes = np.array([tree.objects[leaves].sum() for leaves in members])
    shares = sizes / sizes[-1]
    top = max(branches, default=2 * G - 2)
    ends, stack = [], [top]  # the clusters of the cut, as they lie side by side
    while stack:
        node = stack.pop()
        stack += reversed(branches.get(node, ()))
        ends += [] if node in branches else [node]
    K, by_size = len(ends), sorted(ends, key=lambda node: (-sizes[node], min(members[node])))
    y = {node: float(K - 1 - position) for position, node in enumerate(ends)}
    for node in branches:
        y[node] = float(np.mean([y[side] for side in branches[node]]))
    last = float(heights[ends].max())  # of the next split
    height = float(heights[top]) if branches else 1.0
    span = max(height - last, 1e-3 * height) or 1.0  # of splits at one height, too
    first, last = height + 0.1 * span, height - span
    is_roomy = K <= 20  # the support of every split is written beside it
    with one_panel(ax, 6.2, max(1.6, 0.55 + (0.3 if is_roomy else 0.15) * K)) as (figure, axes):
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import to_rgb

        is_dark = sum(to_rgb(axes.get_facecolor())) < 1.5
        scale = ScalarMappable(cmap="viridis" if is_dark else "viridis_r")  # full support stands out
        scale.set_clim(0.0, 1.0)

        def draw_side(node: int, start: float, color: Any) -> None:
            ends, width = [start, heights[node] if node in branches else last], max(14.0 * shares[node], 1.0)
            axes.plot(ends, [y[node]] * 2, color=color, linewidth=width, solid_capstyle="butt")

        draw_side(top, first, GUIDE)
        box = {"facecolor": axes.get_facecolor(), "edgecolor": "none", "pad": 0.6}
        for node, sides in reversed(branches.items()):
            color = GUIDE if np.isnan(support[node]) else scale.to_rgba(support[node])
            axes.plot([heights[node]] * 2, [y[sides[0]], y[sides[-1]]], color=color, linewidth=1.0)
            for side in sides:
                draw_side(side, heights[node], color)
            if is_roomy and not np.isnan(support[node]):
                axes.annotate(f"{support[node]:.2f}", (heights[node], y[node]), (-4, 0),
                              textcoords="offset points", ha="right", va="center", fontsize=7,
                              bbox=box)  # fmt: skip
        names = [f"{by_size.index(node)}: {shares[node]:.1%}" for node in ends]
        axes.set_yticks([y[node] for node in ends], names, fontsize=8 if is_roomy else 6)
        axes.yaxis.tick_right()
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set(xlim=(first, last), ylim=(-0.7, K - 0.3), xlabel=f"height of the split ({tree.tree})")
        sampled = f", shares estimated by {tree.sizes.sum():,}" if tree.is_sampled else ""
        number = 1 if n_clusters is None and tree.choice.n_clusters == 1 else K
        split = ", and its first split" if number < K else ""
        axes.set_title(f"{count_in_words(number)} of {tree.n_objects:,} objects{split}{sampled}", fontsize=9)
        axes.figure.colorbar(scale, ax=axes, label="support", pad=0.02, aspect=20, shrink=min(1.0, 12 / K),
                             location="left")  # fmt: skip
    return figure


def __dir__() -> list[str]:
    return sorted(__all__)
