"""Heat maps: memberships of objects, co-association of objects, agreement of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.io.labels import labels_of, names_of_rows, refuse_other_rows
from bigcons.plots import drawing
from bigcons.seeding import SeedLike

if TYPE_CHECKING:
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
    from bigcons.metrics.experiments import vat_order
    from bigcons.metrics.memberships import refuse_without_memberships

    drawing.refuse_ensemble(consensus)
    if hasattr(consensus, "read_memberships"):
        labels, values, sizes = consensus.label_rows, consensus.membership_rows, consensus.cluster_sizes()
    else:
        if hasattr(consensus, "fit"):
            refuse_without_memberships(consensus)
        values = getattr(consensus, "memberships_", consensus)  # of a store, an array of dask
        values = values if hasattr(values, "shape") else np.asarray(values)
        if len(values.shape) != 2:
            raise InvalidInputError(f"memberships has shape {values.shape}; pass (n_objects, n_clusters).")
        labels = getattr(consensus, "labels_", None)
        labels = np.asarray(values).argmax(axis=1) if labels is None else labels
        sizes = np.bincount(labels[labels >= 0], minlength=values.shape[1])
    rows = drawing.sample_rows(labels.shape[0], n_objects, random_state)
    winners, sampled = drawing.take_rows(labels, rows), drawing.take_rows(values, rows)
    shown, n_full = np.sort(drawing.largest(sizes, n_clusters)), int(np.count_nonzero(sizes))
    likeness = sampled[:, shown].T @ sampled[:, shown]
    norms = np.sqrt(np.diag(likeness))
    apart = 1 - likeness / np.maximum(np.outer(norms, norms), 1e-12)
    np.fill_diagonal(apart, 0.0)
    shown = shown[vat_order(apart)]
    row_of = np.full(sizes.size + 1, -1)  # the last is of objects without a label
    row_of[[*shown, -1]] = np.arange(len(shown) + 1)
    order = np.lexsort((-sampled.max(axis=1, initial=0.0), row_of[winners]))
    order = order[row_of[winners[order]] >= 0]
    with drawing.new_figure(6.4, 1.1 + (0.25 if len(shown) <= 10 else 0.12) * max(len(shown), 4)) as figure:
        axes = figure.subplots()
        shrink = min(1.0, 14 / max(len(shown), 1))
        drawing.draw_heat_map(axes, sampled[order][:, shown].T, "membership", aspect=20, shrink=shrink)
        color, width = (drawing.GUIDE, 0.6) if len(shown) <= 12 else (drawing.UNKNOWN, 0.4)
        for last in np.flatnonzero(np.diff(winners[order])).tolist():
            axes.axvline(last + 0.5, color=color, linewidth=width)
        for border in range(1, len(shown)):
            axes.axhline(border - 0.5, color=color, linewidth=width)
        words = drawing.sample_words(len(order), labels.shape[0], "by cluster and confidence")
        most = "" if len(shown) == n_full else f"\nthe {len(shown)} largest of {n_full:,} clusters"
        axes.set_xlabel(words + most)
        axes.set_ylabel("cluster: number of objects")
        names = [f"{k}: {sizes[k]:,}" for k in shown.tolist()]
        fontsize = 9 if len(shown) <= 8 else 7 if len(shown) <= 12 else 6
        axes.set_yticks(range(len(shown)), names, fontsize=fontsize)
    return figure


def coassociation(
    ensemble: Any, labels: Any = None, *, n_objects: int = 500, random_state: SeedLike = 0
) -> Figure:
    """Draw how often pairs of objects share a cluster, with the objects in VAT order.

    ``ensemble`` is an Ensemble, its path, or a table of labels; of more than ``n_objects`` objects, a random
    sample is drawn. ``labels``, one for each object of the ensemble, a fitted clusterer or a `Consensus`, put
    the objects of a cluster together, in VAT order, next to clusters that are often joined with it.
    O(n_objects^2) time and memory.

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, truth = bc.datasets.planted_ensemble(500, 20, random_state=0)
    >>> figure = bc.plots.coassociation(ensemble, labels=truth, n_objects=200)
    >>> figure.savefig("coassociation.png")
    """
    from bigcons.coassociation import dense
    from bigcons.metrics.experiments import vat_order

    ensemble = drawing.ensemble_of(ensemble)
    rows = drawing.sample_rows(ensemble.n_objects, n_objects, random_state)
    sampled = None
    if labels is not None:
        refuse_other_rows("labels", names_of_rows(labels), "the ensemble", names_of_rows(ensemble))
        column = labels_of(labels)
        column = column if hasattr(column, "shape") else np.asarray(column)
        if column.shape != (ensemble.n_objects,):
            raise InvalidInputError(
                f"labels has shape {column.shape} but the ensemble has {ensemble.n_objects:,} objects; "
                "pass one label for each object."
            )
        sampled = drawing.take_rows(column, rows)
    n_agree, n_seen = dense(ensemble.read_rows(rows))
    share = np.full(n_agree.shape, np.nan)  # for pairs that no partition labels
    np.divide(n_agree, n_seen, out=share, where=n_seen > 0)
    np.fill_diagonal(share, 1.0)
    order = vat_order(1 - share) if sampled is None else _by_cluster(share, sampled)
    with drawing.new_figure(4.4, 4.1) as figure:
        axes = figure.subplots()
        words = "share of partitions that group the pair"
        drawing.draw_heat_map(axes, share[np.ix_(order, order)], words, shrink=0.7)
        axes.set(yticks=[], aspect="equal")
        words = drawing.sample_words(
            len(rows), ensemble.n_objects, "in VAT order" if sampled is None else "by cluster"
        )
        axes.set_xlabel(words)
        if sampled is not None:
            last = np.flatnonzero(np.diff(sampled[order], append=-2))  # row of each cluster
            middle, n_rows = last - np.diff(last, prepend=-1) / 2 + 0.5, np.diff(last, prepend=-1)
            names = [str(k) if k >= 0 else "none" for k in sampled[order[last]].tolist()]
            named = np.flatnonzero(n_rows > len(rows) / 50)  # the names of others would hide each other
            axes.set_yticks(middle[named], [names[k] for k in named])
            axes.set_ylabel("cluster")
    return figure


def _by_cluster(share: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the order of objects by cluster: clusters by their mean co-association, objects by their own.

    Both are VAT orders; objects without a label come last.
    """
    from bigcons.metrics.experiments import vat_order

    clusters = np.unique(labels[labels >= 0])
    member = (labels[:, None] == clusters).astype(float)
    joined, seen = (np.einsum("ik,ij->kj", member, x) @ member for x in (np.nan_to_num(share), share >= 0))
    apart = 1 - np.divide(joined, seen, out=np.zeros_like(joined), where=seen > 0)
    np.fill_diagonal(apart, 0.0)
    parts = [np.flatnonzero(labels == clusters[k]) for k in vat_order(apart)]
    parts.append(np.flatnonzero(labels < 0))
    return np.concatenate([part[vat_order(1 - share[np.ix_(part, part)])] for part in parts])


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
    from bigcons.metrics.ensemble import partition_similarity
    from bigcons.metrics.experiments import vat_order

    ensemble = drawing.ensemble_of(ensemble)
    index, others = partition_similarity(ensemble)
    index = index[others]
    np.fill_diagonal(index, 1.0)
    order = vat_order(1 - index)
    with drawing.new_figure(5.0, 4.0) as figure:
        axes = figure.subplots()
        drawing.draw_heat_map(axes, index[np.ix_(order, order)], "adjusted Rand index")
        axes.set_aspect("equal")
        step = -(-len(order) // 40)
        shown = range(0, len(order), step)
        names = [ensemble.names[others[order[row]]] for row in shown]
        names = [name if len(name) <= 16 else f"{name[:8]}…{name[-7:]}" for name in names]
        axes.set_yticks(shown, names, fontsize=9 if len(shown) <= 20 else 6)
        every = "" if step == 1 else f", one in {step} named"
        of_all = "" if len(order) == ensemble.n_partitions else f" of {ensemble.n_partitions:,}"
        axes.set_xlabel(f"{len(order):,}{of_all} partitions in VAT order{every}")
    return figure
