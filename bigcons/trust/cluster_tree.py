"""The tree of clusters of an ensemble, with the support of every split: see `consensus_tree`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.io.columns import Column, Columns, select
from bigcons.memory import Block
from bigcons.progress import progress
from bigcons.run.engine import Engine, open_engine
from bigcons.run.results import by_size, renumbered, sizes_of
from bigcons.seeding import SeedLike, resolve_seed
from bigcons.store.clusters import ClusterTree
from bigcons.store.ensemble import Ensemble, as_ensemble
from bigcons.trust.groups import TREES, most_probable
from bigcons.trust.n_clusters import Search, search, tree_of
from bigcons.trust.null import Reference
from bigcons.trust.placement import Placement
from bigcons.validation import check_int
from bigcons.weights import Weights, counts_of


@dataclass(frozen=True)
class Placer:
    """What places all objects in the clusters of a cut."""

    ensemble: Ensemble
    weights: Weights | None
    found: Search

    def __call__(self, clusters: np.ndarray, client: object) -> np.ndarray:
        """Return the clusters (n_objects,) int32 of all objects, given those of the leaves (G,)."""
        n, K = self.ensemble.n_objects, int(clusters.max()) + 1
        sample, offsets, weights = self.found.sample.given, self.ensemble.offsets, self.weights
        of_sample = np.append(clusters, -1)[self.found.groups.groups]
        counts = np.ones(offsets.size - 1) if weights is None else weights.partitions
        of_sample = most_probable(sample, offsets, counts, of_sample, left_out=True).astype(np.int32)
        T, sizes = counts_of(sample, offsets, of_sample, K, weights)
        labels = np.full(n, -1, np.int32)
        with open_engine(client) as engine:
            if len(sample) < n:
                T, sizes = self._place(engine, Placement.of(T, sizes, offsets, weights), labels)
            else:
                labels[:] = of_sample
            self._place(engine, Placement.of(T, sizes, offsets, weights), labels)
        return renumbered(labels, by_size(sizes_of(labels, K)))

    def _place(
        self, engine: Engine, placement: Placement, labels: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Place all objects, in place; return the table (B, padded K) and sizes (K,) of their clusters."""
        ensemble = self.ensemble

        def place(part: tuple[Block, np.ndarray]) -> tuple[np.ndarray, Any]:
            block, current = part
            read = ensemble.read(block.start, block.stop)
            placed = placement.place(read, current)
            return placed.clusters, placed.stats

        blocks = ensemble.blocks()
        parts: Iterator[Any] = ((block, labels[block.start : block.stop].copy()) for block in blocks)
        T, sizes = 0.0, 0.0
        with (
            closing(engine.map(place, parts)) as done,
            progress("place", ensemble.n_objects) as listener,
        ):
            for block, (assigned, stats) in zip(blocks, done, strict=True):
                labels[block.start : block.stop] = assigned
                T, sizes = T + stats["T"], sizes + stats["sizes"]
                listener.advance(block.n_rows)
        return np.asarray(T), np.asarray(sizes)


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
        The features that `bigcons.generate` made the ensemble of, for a p-value of each number of clusters:
        see below. Any table with the same columns.
    n_draws : int, default=20
        Draws with which they are compared; 19 or more, for p-values of .05.
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
        Merges, support and sizes; its ``cut`` and ``labels`` give clusters, `bigcons.plots.tree` draws it.

    Notes
    -----
    The sample and its groups are those of `choose_n_clusters`: at least 30 groups of up to 2,000 objects.
    The support of a split is the mean, over eight random halves of the partitions, of how far the tree of a
    half divides the same objects in the same two sides: see `bigcons.trust.support`. Parts of a continuum
    may have a support of .9, too: a split is real if it has support and some number of clusters stands out.
    Drawing the sample takes O(n) time, and the support some five times that of the groups.

    With ``features``, the generator of the ensemble makes as many partitions of up to 2,000 of the objects,
    and of as many points of one Gaussian with their covariance, ``n_draws`` times. The p-value of K clusters
    or more is the share of the draws, the sample counted among them, in which some number of clusters has as
    much evidence as the best number from K on has in the sample: its lifetime times the agreement of halves
    on it (`NClustersChoice`). That of the first split says whether there is more than a single cluster, and
    those of all splits hold together. Half a second to a second for each draw, and a pass over the features.

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
    if tree is not None and tree not in TREES:
        raise InvalidInputError(f"tree={tree!r} is unknown; use {' or '.join(map(repr, TREES))}, or None.",
                                parameter="tree")  # fmt: skip
    check_int("n_draws", n_draws)
    seed = resolve_seed(random_state)
    with open_engine(client) as engine:
        data = as_ensemble(select(ensemble, id=id, columns=columns, drop=drop), soft=True)
        found = search(data, engine, seed, weights=weights, memory=memory, purpose="the tree of clusters")
        made = tree_of(found, data.n_objects, TREES if tree is None else (tree,))
        if features is not None:
            p_values = Reference.of(data, features, n_draws, engine, seed).p_values(len(made.merges))
            made = replace(made, p_values=p_values[::-1].copy())
    return replace(made, placer=Placer(data, Weights.given(weights, data.offsets), found))
