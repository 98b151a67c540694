"""The tree of clusters of an ensemble, with the support of every split: see `consensus_tree`.

Would data without clusters look like this? Where the features are at hand, a Monte Carlo reference says so.
The evidence for a number of clusters is its lifetime in the tree of distinctness, as far as halves of the
partitions agree on it and on smaller ones (`bigcons.trust.n_clusters`). How much there is without clusters
depends on the features and on the generator: partitions that all divide a long cloud across, or all into
eight, agree on more than others. So the same generator makes partitions of a sample of the objects, and of as
many points of one Gaussian with the covariance of the sample, again and again (M3C, John et al. 2020); and
the share of the draws with as much evidence is a p-value.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

import bigcons.generate
from bigcons.errors import InvalidInputError, first_line
from bigcons.io.columns import Column, Columns, select
from bigcons.memory import Block
from bigcons.progress import progress
from bigcons.run.engine import Engine, one_thread, open_engine
from bigcons.run.results import by_size, renumbered, sizes_of
from bigcons.seeding import SeedLike, draw_rows, generator, resolve_seed
from bigcons.store.clusters import ClusterTree, NClustersChoice, evidence
from bigcons.store.ensemble import Ensemble, as_ensemble
from bigcons.trust.groups import N_ROWS, TREES, most_probable
from bigcons.trust.n_clusters import Search, search, tree_of
from bigcons.trust.placement import Placement
from bigcons.validation import check_int
from bigcons.weights import Weights, counts_of


class Reference(NamedTuple):
    """The evidence for numbers of clusters in a sample of the objects, and in draws of one Gaussian."""

    observed: np.ndarray
    """(most,): the largest evidence for 2, 3, ... clusters or more."""
    drawn: np.ndarray
    """(n_draws,): that for 2 clusters or more in every draw."""

    @classmethod
    def of(cls, ensemble: Ensemble, features: Any, n_draws: int, engine: Engine, seed: int) -> Reference:
        """Return the reference of an ensemble that `bigcons.generate` made of ``features``.

        Raises InvalidInputError if it made none of the partitions, or of other features.
        """
        make = _generator_of(ensemble, engine)
        points = _sampled_points(ensemble, features, seed)
        center = points.mean(axis=0)
        deviations = (points - center) / np.sqrt(len(points))
        drawn = []
        with progress("draw references", n_draws + 1, "draws") as listener:
            observed = evidence_of(search(make(points, seed), engine, seed).choice)
            listener.advance(1)
            for at in range(n_draws):
                normal = generator(seed, "null.draws", at).normal(size=(len(points),) * 2)
                with one_thread(user_api="blas"):
                    of_one = center + normal @ deviations  # has the covariance of the points
                drawn.append(evidence_of(search(make(of_one, seed), engine, seed).choice)[0])
                listener.advance(1)
        return cls(observed, np.array(drawn))

    def p_values(self, most: int) -> np.ndarray:
        """Return the p-values of 2, 3, ... clusters or more, (most,), falling with what is drawn.

        The share of the draws, the sample counted among them, in which 2 clusters or more have as much
        evidence: a number is compared with the best number of every draw, so that all p-values hold at once.
        """
        observed = np.append(self.observed, np.zeros(most))[:most]
        return (1 + (self.drawn >= observed[:, None]).sum(axis=1)) / (1 + len(self.drawn))


def evidence_of(choice: NClustersChoice) -> np.ndarray:
    """Return the largest evidence for 2, 3, ... clusters or more, (most,), 0 of more than are compared."""
    found = np.maximum(evidence(choice.table), 0.0)
    return np.append(np.maximum.accumulate(found[1:][::-1])[::-1], 0.0)


def _generator_of(ensemble: Ensemble, engine: Engine) -> Any:
    """Return what makes as many partitions of points as an ensemble has, and as it did, given a seed."""
    made_with = ensemble.provenance
    while "generator" not in made_with and "from" in made_with:
        made_with = made_with["from"]
    make = getattr(bigcons.generate, str(made_with.get("generator")), None)
    if make is None or ensemble.generator is None:
        raise InvalidInputError(
            "the ensemble does not hold its generator, which a reference needs to make others like it; "
            "use one that bigcons.generate made of features, or leave features out.",
            parameter="features",
        )
    taken = inspect.signature(make).parameters.keys() - {"features", "random_state", "client", "columns"}
    options = {name: made_with[name] for name in taken & made_with.keys()}
    options |= {"n_partitions": ensemble.n_partitions, "standardize": False, "client": engine}

    def partitions(points: np.ndarray, seed: int) -> Ensemble:
        try:
            made: Ensemble = make(points, **options, random_state=seed)
        except InvalidInputError as error:
            raise InvalidInputError(
                f"a reference is made of {len(points):,} of the objects, which cannot be clustered as the "
                f"ensemble was ({first_line(error)}); leave features out.",
                parameter="features",
            ) from None
        return made

    return partitions


def _sampled_points(ensemble: Ensemble, features: Any, seed: int) -> np.ndarray:
    """Return the features of a sample of the objects as they were clustered, (rows, width) float64."""
    made_by: Any = ensemble.generator
    data, scaling = made_by.open(features), made_by.encoding.scaling
    if data.n_objects != ensemble.n_objects:
        raise InvalidInputError(
            f"features has {data.n_objects:,} rows but the ensemble {ensemble.n_objects:,} objects; pass "
            "those that it was made of.",
            parameter="features",
        )
    chosen, parts = draw_rows(data.n_objects, N_ROWS, seed, "null.sample"), []
    for block, rows in data.iterate(gaps=True, sparse=True):
        points = scaling.apply(rows[block.rows_of(chosen)])
        parts.append(points if isinstance(points, np.ndarray) else points.toarray())
    return np.concatenate(parts).astype(np.float64)


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
