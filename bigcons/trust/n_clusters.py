"""How many clusters an ensemble holds: the evidence for each number, and the tree of clusters with support.

The tree of distinctness (`bigcons.trust.groups`) merges the least distinct two clusters first. A number of
clusters lives from the merge that leads to it to the one that ends it; the number that lives longest is
recommended, as in evidence accumulation (Fred and Jain 2005). A merge of a few objects with a cluster neither
leads to a number nor ends one: they have fallen out of the cluster, as in the condensed tree of HDBSCAN
(Campello, Moulavi and Sander 2013), and outliers are no clusters. A single cluster lives from the last merge
to the distinctness of the most distinct two groups, as other partitions would find it: of labels without
structure, of one Gaussian or a cube, it outlives all other numbers.

A lifetime counts as far as other partitions find the same clusters: times the agreement, at that number, of
halves of the partitions (`bigcons.trust.support`). What halves do not agree on, of this number and of all
smaller ones, counts against it: a continuum is divided again and again, each time elsewhere, before some
number of its parts seems to live. A single cluster is what everyone finds.

Of classes that overlap, no number lives long. So an eighth of the quality of a number counts beside its
lifetime: what the other tree, of average link, tells of the partitions where it is cut at that number, by the
mean normalized mutual information, times the agreement of halves on it.

Would data without clusters look like this? Where the features are at hand, a Monte Carlo reference says so.
The evidence for a number of clusters is its lifetime, as far as halves of the partitions agree on it and on
smaller ones. How much there is without clusters depends on the features and on the generator: partitions that
all divide a long cloud across, or all into eight, agree on more than others. So the same generator makes
partitions of a sample of the objects, and of as many points of one Gaussian with the covariance of the
sample, again and again (M3C, John et al. 2020); and the share of the draws with as much evidence is a
p-value.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import bigcons.generate
from bigcons.errors import InvalidInputError
from bigcons.io.columns import Column, Columns, select
from bigcons.memory import Block
from bigcons.progress import progress
from bigcons.run.engine import Engine, fold, one_thread, open_engine
from bigcons.run.survey import Drawing, Drawn, MemoryPlan, block_label_bytes, label_bytes
from bigcons.seeding import SeedLike, draw_rows, generator, resolve_seed
from bigcons.store.clusters import (
    HALF_WAY,
    LEAST_OBJECTS,
    ClusterTree,
    NClustersChoice,
    evidence,
    least_objects,
    merit,
    node_sums,
    numbers_of_large,
)
from bigcons.store.ensemble import Ensemble, as_ensemble
from bigcons.trust import groups as grouping
from bigcons.trust.groups import Groups, Sample
from bigcons.trust.placement import Placement
from bigcons.trust.support import Halves
from bigcons.validation import check_choice, check_int
from bigcons.weights import Weights, counts_of

logger: logging.Logger = logging.getLogger("bigcons")


def choose_n_clusters(
    ensemble: Any,
    *,
    k_range: Sequence[int] | None = None,
    weights: Any = None,
    random_state: SeedLike = None,
    memory: str | float | None = None,
    client: object = None,
    id: Column | None = None,
    columns: Columns | None = None,
    drop: Columns | None = None,
) -> NClustersChoice:
    """Recommend a number of clusters for an ensemble, as estimators with ``n_clusters="auto"`` do.

    Parameters
    ----------
    ensemble
        An Ensemble, the path of one, or a table of labels; soft clusterings, too.
    k_range : (least, most) or None, default=None
        Numbers to compare, both included. None: from 1 to half of the groups, see below. 1 is recommended
        if no number has more evidence than a single cluster. Without a range, 1 is only recommended if halves
        of the partitions also agree on the best other number less than half as well as perfect agreement,
        corrected for chance, because even a continuum can be divided usefully.
    weights : array of shape (n_partitions,) or None, default=None
        Numbers >= 0 by which each partition counts, as if it occurred that many times; 0 leaves it out.
    random_state : int, RandomState, Generator or None, default=None
        Seed; one seed gives the same bits on any engine and any number of workers.
    memory : str, int or None, default=None
        Memory budget such as "2GB"; a choice that would need more is refused before it starts.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.
    id, columns, drop
        Of a table, the column that identifies the objects, and those that are partitions or are not: see
        `bigcons.select`.

    Returns
    -------
    NClustersChoice
        ``n_clusters``, the number recommended; ``runner_up``, the next best one; ``runner_up_share``, how
        near it comes; ``is_clear``, whether some number has more evidence than a single cluster; and
        ``table``, the evidence for each number, which `bigcons.plots.n_clusters` draws.

    Notes
    -----
    One pass over the labels draws up to 2,000 objects, half of them so that small base clusters are
    represented. They form 30 groups. If half of the groups seem to be clusters, or the least distinct two
    groups are half as distinct as the most distinct two, the number of groups is doubled, with 20 objects for
    each group, up to one group for 5 objects and as long as the tree stays cheap (some thousand groups of
    fine partitions).

    Numbers are compared by the labels alone: classes that all partitions merge cannot be told apart, and
    clusters that most partitions cut in the same place are counted as several. If no number has more evidence
    than a single cluster, ``is_clear`` is False, and fits warn with NoStructureWarning: the partitions may
    divide a continuum. If the next best number is nearly as good, ``runner_up_share`` above .8, other
    partitions of the same data seldom lead to the same number, and fits with "auto" warn with
    ConsensusWarning. `bigcons.plots.n_clusters` draws the evidence, ``trust_.clusters`` has the support of
    each cluster, and `consensus_tree` with ``features`` compares the ensemble with ensembles of one Gaussian.

    References
    ----------
    Fred and Jain (2005), *Combining multiple clusterings using evidence accumulation*.

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, truth = bc.datasets.planted_ensemble(600, 30, noise=(0.0, 0.2), random_state=0)
    >>> bc.choose_n_clusters(ensemble, random_state=0).n_clusters
    6
    """
    seed = resolve_seed(random_state)
    with open_engine(client) as engine:
        data = as_ensemble(select(ensemble, id=id, columns=columns, drop=drop), soft=True)
        return search(data, engine, seed, k_range=k_range, weights=weights, memory=memory).choice


def consensus_tree(
    ensemble: Any,
    *,
    tree: str | None = None,
    weights: Any = None,
    features: Any = None,
    n_draws: int = 20,
    random_state: SeedLike = None,
    memory: str | float | None = None,
    client: object = None,
    id: Column | None = None,
    columns: Columns | None = None,
    drop: Columns | None = None,
) -> ClusterTree:
    """Return the tree of clusters of an ensemble, with the support of every split.

    Parameters
    ----------
    ensemble
        An Ensemble, the path of one, or a table of labels; soft clusterings, too.
    tree : {"average", "distinctness"} or None, default=None
        Average link of the locally weighted co-association, which finds clusters of similar sizes, or
        distinctness, for which sizes do not matter. None: the one whose cut at the recommended number agrees
        better with the partitions and is more distinct, as `ConsensusTree` chooses.
    weights : array of shape (n_partitions,) or None, default=None
        Numbers >= 0 by which each partition counts, as if it occurred that many times; 0 leaves it out.
    features : table or None, default=None
        The features from which `bigcons.generate` made the ensemble, for a p-value of each number of
        clusters: see below. Any table with the same columns.
    n_draws : int, default=20
        Draws of one Gaussian with which the features are compared; 19 or more, for p-values of .05.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the sample; one seed gives the same bits on any engine and any number of workers.
    memory : str, int or None, default=None
        Memory budget such as "2GB"; a tree that would need more is refused before it starts.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.
    id, columns, drop
        Of a table, the column that identifies the objects, and those that are partitions or are not: see
        `bigcons.select`.

    Returns
    -------
    ClusterTree
        ``table()`` has a row for each split, ``cut()`` the clusters of the leaves, ``labels()`` the clusters
        of all objects; ``merges`` is a linkage matrix of SciPy, and ``choice`` the number recommended.
        `bigcons.plots.tree` draws it.

    Notes
    -----
    The sample and its groups are the same as in `choose_n_clusters`: at least 30 groups of up to 2,000
    objects. The support of a split is the mean, over eight random halves of the partitions, of how far the
    tree of a half divides the same objects into the same two sides. Support says that the two sides are
    apart, not that all objects on a side belong together: clusters that no partition joins are split at one
    height, in a meaningless order, and every such split has support 1. Parts of a continuum may also have a
    support of .9: a split is real if it has support and some number of clusters stands out. Drawing the
    sample takes O(n) time, and the support some five times as long as the groups.

    With ``features``, the generator of the ensemble makes as many partitions of up to 2,000 of the objects,
    and of as many points of one Gaussian with their covariance, ``n_draws`` times. The p-value of K clusters
    or more is the share of the draws, the sample counted among them, in which some number of clusters has at
    least the evidence of the best number from K on in the sample: its lifetime times the agreement of halves
    on it (`NClustersChoice`). The p-value of the first split says whether there is more than a single
    cluster, and the p-values of all splits hold together. Each draw takes up to a second; the features are
    read in one pass.

    References
    ----------
    Felsenstein (1985), *Confidence limits on phylogenies: an approach using the bootstrap*, Evolution 39.
    John et al. (2020), *M3C: Monte Carlo reference-based consensus clustering*, Scientific Reports 10.
    Lemoine et al. (2018), *Renewing Felsenstein's phylogenetic bootstrap in the era of big data*, Nature 556.

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, truth = bc.datasets.planted_ensemble(600, 30, noise=(0.0, 0.2), random_state=0)
    >>> tree = bc.consensus_tree(ensemble, random_state=0)
    >>> tree.cut().max() + 1
    np.int64(6)
    >>> tree.labels(3).shape
    (600,)
    >>> tree.table().column_names[:3]
    ['split', 'n_clusters', 'height']
    """
    if tree is not None:
        check_choice("tree", tree, grouping.TREES)
    n_draws = check_int("n_draws", n_draws)
    seed = resolve_seed(random_state)
    with open_engine(client) as engine:
        data = as_ensemble(select(ensemble, id=id, columns=columns, drop=drop), soft=True)
        searched = search(data, engine, seed, weights=weights, memory=memory, purpose="the tree of clusters")
        cluster_tree = tree_of(searched, data.n_objects, grouping.TREES if tree is None else (tree,))
        p_values = None
        if features is not None:
            observed, drawn = null_reference(data, features, n_draws, engine, seed)
            p_values = p_values_of(observed, drawn, len(cluster_tree.merges))[::-1].copy()
    placer = partial(place_all, data, Weights.parse(weights, data.offsets), searched)
    return replace(cluster_tree, p_values=p_values, placer=placer)


class Search(NamedTuple):
    """The groups in which the number of clusters was looked for, by all and by halves of the partitions."""

    sample: Sample
    groups: Groups
    halves: Halves
    choice: NClustersChoice
    rows: np.ndarray
    """(rows,): the objects of the sample."""


def search(
    ensemble: Ensemble,
    engine: Engine,
    seed: int,
    *,
    k_range: Sequence[int] | None = None,
    weights: Any = None,
    memory: str | float | None = None,
    purpose: str = "choosing n_clusters",
) -> Search:
    """Return the choice for an open ensemble, and the groups it is made of."""
    parsed = Weights.parse(weights, ensemble.offsets)
    counts = None if parsed is None else parsed.partitions
    low, high = 1, None
    if k_range is not None:
        if not isinstance(k_range, Sequence) or len(k_range) != 2:
            raise InvalidInputError(
                f"k_range={k_range!r} is no range; give the least and the largest number, such as (2, 40).",
                parameter="k_range",
            )
        low = check_int("k_range[0]", k_range[0])
        high = check_int("k_range[1]", k_range[1], at_least=low, at_most=max(ensemble.n_objects, low))

    def draw(drawing: Drawing, block: Block) -> Drawn:
        return drawing.of_block(block, ensemble.read(block.start, block.stop))

    n, n_groups = ensemble.n_objects, max(grouping.FIRST_GROUPS, 2 * (high or 0))
    is_full, n_drawn = False, 0
    while True:
        n_rows = min(grouping.rows_for(n_groups), n)
        n_bytes = grouping.plan_bytes(ensemble, n_rows, n_groups, high or n_groups)
        n_bytes += 2 * label_bytes(ensemble, n_rows)
        per_result = label_bytes(ensemble, min(n_rows, ensemble.chunk_rows))
        plan = MemoryPlan(n_bytes, block_label_bytes(ensemble), per_result)
        plan.check(purpose, engine, ensemble, memory)
        if n_rows > n_drawn:  # a sample may have fewer objects than were asked for
            drawing, n_drawn = Drawing(ensemble, seed, n_rows, "n_clusters.sample", counts), n_rows
            with progress("sample to choose n_clusters", n) as listener:
                blocks, task = ensemble.blocks(), partial(draw, drawing)
                drawn = fold(engine, blocks, task, drawing.add, progress=listener)
            labels, rows, times, _ = drawing.finish(drawn)
            sample = Sample(labels, ensemble.offsets, counts, times=times)
        with progress(f"merge {n_groups:,} groups to choose n_clusters", 0):
            groups = sample.groups(n_groups, at_any_scale=True)
        n_found, heights = len(groups.table), groups.trees[grouping.DISTINCTNESS].heights[::-1]
        levels, lives = levels_of(groups)
        by_number = np.bincount(levels, lives)[2:]
        longest = int(np.argmax(levels == 2 + np.argmax(by_number))) + 1 if by_number.size else 1
        cheap = int((grouping.MOST_PRODUCTS * n_found / np.count_nonzero(groups.table)) ** 0.5)
        is_full |= n_groups >= cheap or 2 * n_groups > n // LEAST_OBJECTS
        most_distinct = groups.distinct[np.isfinite(groups.distinct)].max(initial=0.0)
        is_many = 2 * (longest + 1) >= n_found or heights[max(n_found - 2, 0)] > most_distinct / 2
        if is_full or 2 * n_found <= n_groups or not is_many:
            break
        is_full, n_groups = cheap < 2 * n_groups, min(2 * n_groups, cheap)
    searched = judge(sample, groups, n_groups, rows, low, high)
    logger.info("%r", searched.choice)
    return searched


def levels_of(groups: Groups) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of clusters at the levels of the tree of distinctness, and how long each lives.

    The first level is a single cluster, which has no lifetime here, each later one divides a cluster more;
    the last, of all groups, is left out if a partition divides one.
    """
    n_seen = np.count_nonzero(np.add.reduceat(groups.table, groups.offsets[:-1], axis=1))
    n_levels = max(len(groups.table) - int(n_seen < np.count_nonzero(groups.table)), 1)
    tree = groups.trees[grouping.DISTINCTNESS]
    n_large = numbers_of_large(tree.sides, groups.sizes, least_objects(groups.sizes))[:n_levels]
    lives = -np.diff(tree.heights[::-1][:n_levels], prepend=0.0)
    is_several = np.maximum.accumulate(n_large) > 1
    return np.maximum(n_large, 1), np.where(is_several, np.maximum(lives, 0.0), 0.0)


def judge(
    sample: Sample, groups: Groups, n_groups: int, rows: np.ndarray, least: int = 1, most: int | None = None
) -> Search:
    """Return the choice by at most ``n_groups`` groups of a sample, the objects ``rows``.

    From ``least`` to ``most`` clusters, by default to one for two groups, or as many as objects differ.
    Without ``most``, a single cluster gives way to the best other number, if halves of the partitions
    agree on it more than half-way: even a continuum can be divided usefully.
    """
    halves, (levels, lives) = Halves.from_groups(groups, sample.labels), levels_of(groups)
    most_told = min(len(groups.table), max(n_groups // 2, 1))
    is_told = levels <= most_told
    half_way = HALF_WAY if most is None else np.inf
    choice = choice_of_tree(halves, levels[is_told], lives[is_told], least, most or most_told, half_way)
    return Search(sample, groups, halves, choice, rows)


def tree_of(searched: Search, n_objects: int, trees: Sequence[str] = grouping.TREES) -> ClusterTree:
    """Return the tree of a search, of ``trees`` the one that the criterion takes at its number."""
    groups, choice = searched.groups, searched.choice
    name = groups.cut(max(choice.n_clusters, 2), least_objects(groups.sizes), trees).tree
    sides, heights = groups.trees[name]
    G = len(heights)
    merges = np.column_stack([sides, heights[1:], node_sums(sides, np.ones(G))[G:]])
    leaf_sizes = np.bincount(groups.groups + 1, searched.sample.times, G + 1)[1:]
    objects = leaf_sizes * (n_objects / len(searched.rows))
    support = searched.halves.support(name)
    return ClusterTree(name, merges, groups.sizes, *support, choice, n_objects, objects)


def choice_of_tree(
    halves: Halves, levels: np.ndarray, lives: np.ndarray, least: int, most: int, half_way: float
) -> NClustersChoice:
    """Return the choice among numbers of clusters.

    By the levels of the tree of distinctness, their numbers of clusters and lifetimes (n_levels,). A single
    cluster is chosen if none has more evidence, unless halves agree ``half_way`` on the best other number.
    """
    groups, numbers = halves.groups, np.arange(least, most + 1)
    average, distinctness = grouping.TREES
    heights, shared = groups.trees[distinctness].heights[::-1], groups.mutual_information(average)
    by_level, by_average = halves.agreement((distinctness, average), max(most, lives.size))
    quality = np.nan_to_num(by_average, nan=1.0)[:most] * shared[np.minimum(np.arange(most), shared.size - 1)]
    agreed = np.where(levels == 1, 1.0, by_level[: lives.size])
    lifetime = np.bincount(levels, lives, minlength=most + 1)
    reproduced = np.bincount(levels, lives * agreed, minlength=most + 1)
    lifetime[1] += halves.lifetime_of_one()
    reproduced[1] = lifetime[1]
    agreement = np.concatenate([[np.nan], by_level])[: lifetime.size]
    np.divide(reproduced, lifetime, out=agreement, where=lifetime > 0)
    table = {
        "n_clusters": numbers,
        "distinctness": np.where(numbers > 1, heights[np.clip(numbers - 2, 0, heights.size - 1)], np.nan),
        "lifetime": lifetime[numbers],
        "agreement": agreement[numbers],
        "quality": quality[numbers - 1],
    }
    ranked = numbers[np.argsort(-merit(table), kind="stable")]
    best = ranked[ranked > 1].tolist()
    if least == 1 and (evidence(table)[1:] <= lifetime[1]).all():
        best.insert(int(bool(best) and agreement[best[0]] >= half_way), 1)
    fields = best[0], best[1] if len(best) > 1 else None, table, float(lifetime[1])
    return NClustersChoice(*fields, n_sampled=int(groups.sizes.sum()))


def place_all(
    ensemble: Ensemble, weights: Weights | None, searched: Search, clusters: np.ndarray, client: object
) -> np.ndarray:
    """Return the clusters (n_objects,) int32 of all objects, given the ``clusters`` (G,) of leaves."""
    n, K, offsets = ensemble.n_objects, int(clusters.max()) + 1, ensemble.offsets
    sample = searched.sample.all_labels
    cut_labels = np.append(clusters, -1)[searched.groups.groups]
    counts = np.ones(offsets.size - 1) if weights is None else weights.partitions
    cut_labels = grouping.most_probable(sample, offsets, counts, cut_labels, left_out=True).astype(np.int32)
    T, sizes = counts_of(sample, offsets, cut_labels, K, weights, searched.sample.times)
    is_whole, blocks = len(sample) == n, ensemble.blocks()
    labels = cut_labels if is_whole else np.full(n, -1, np.int32)
    with open_engine(client) as engine:
        for _ in range(1 if is_whole else 2):
            placement = Placement.fit(T, sizes, offsets, weights)

            def place(part: tuple[Block, np.ndarray], placement: Placement = placement) -> tuple[Any, Any]:
                block, current = part
                placed = placement.place(ensemble.read(block.start, block.stop), current)
                return placed.clusters, placed.stats

            parts = ((block, labels[block.start : block.stop].copy()) for block in blocks)
            T, sizes = np.zeros(1), np.zeros(1)
            with closing(engine.map(place, parts)) as placed, progress("place", n) as listener:
                for block, (assigned, stats) in zip(blocks, placed, strict=True):
                    labels[block.start : block.stop] = assigned
                    T, sizes = T + stats["T"], sizes + stats["sizes"]
                    listener.advance(block.n_rows)
    return labels


# The null reference


def null_reference(
    ensemble: Ensemble, features: Any, n_draws: int, engine: Engine, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the evidence for clusters in a sample of the objects, and in draws of one Gaussian.

    Of the sample, the largest evidence for 2, 3, ... clusters or more, (most,); of each draw, the largest for
    2 or more, (n_draws,). Both are partitioned as `bigcons.generate` partitioned ``features``. Raises
    InvalidInputError if it did not make the ensemble, or made it of other features.
    """
    provenance = ensemble.provenance
    while "generator" not in provenance and "from" in provenance:
        provenance = provenance["from"]
    make: Any = getattr(bigcons.generate, str(provenance.get("generator")), None)
    fitted: Any = ensemble.generator
    if make is None or fitted is None:
        raise InvalidInputError(
            "the ensemble does not hold its generator, which a reference needs to make others like it; "
            "use one that bigcons.generate made of features, or leave features out.",
            parameter="features",
        )
    names = inspect.signature(make).parameters.keys() - {"features", "random_state", "client", "columns"}
    options = {name: provenance[name] for name in names & provenance.keys()}
    options |= {"n_partitions": ensemble.n_partitions, "standardize": False, "client": engine}
    data, parts = fitted.open(features), []
    if data.n_objects != ensemble.n_objects:
        raise InvalidInputError(
            f"features has {data.n_objects:,} rows but the ensemble {ensemble.n_objects:,} objects; pass "
            "those that it was made of.",
            parameter="features",
        )
    sampled = draw_rows(data.n_objects, grouping.N_ROWS, seed, "null.sample")
    for block, rows in data.iterate(gaps=True, sparse=True):
        rows = fitted.encoding.scaling.apply(rows[block.rows_of(sampled)])
        parts.append(rows if isinstance(rows, np.ndarray) else rows.toarray())
    points = np.concatenate(parts).astype(np.float64)  # as they were clustered
    center = points.mean(axis=0)
    deviations = (points - center) / np.sqrt(len(points))

    def evidence_in(points: np.ndarray) -> np.ndarray:
        """Return the largest evidence for 2, 3, ... clusters or more, 0 of more than are compared."""
        reference = make(points, **options, random_state=seed)
        scores = np.maximum(evidence(search(reference, engine, seed).choice.table), 0.0)
        return np.append(np.maximum.accumulate(scores[1:][::-1])[::-1], 0.0)

    drawn = np.empty(n_draws)
    with progress("draw references", n_draws + 1, "draws") as listener:
        observed = evidence_in(points)
        listener.advance(1)
        for number in range(n_draws):
            normal = generator(seed, "null.draws", number).normal(size=(len(points),) * 2)
            with one_thread(user_api="blas"):
                reference_points = center + normal @ deviations  # has the covariance of the points
            drawn[number] = evidence_in(reference_points)[0]
            listener.advance(1)
    return observed, drawn


def p_values_of(observed: np.ndarray, drawn: np.ndarray, limit: int) -> np.ndarray:
    """Return the p-values of 2, 3, ... clusters or more, (limit,), by what is ``drawn``.

    The share of the draws, the sample counted among them, in which 2 clusters or more have as much
    evidence: a number is compared with the best number of every draw, so that all p-values hold at once.
    """
    observed = np.append(observed, np.zeros(limit))[:limit]
    return (1 + (drawn >= observed[:, None]).sum(axis=1)) / (1 + len(drawn))
