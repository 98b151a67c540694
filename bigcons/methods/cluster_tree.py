"""The tree of clusters of an ensemble, with the support of every split: see `consensus_tree`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.coassociation.factorized import Weights
from bigcons.errors import InvalidInputError
from bigcons.execution.engine import Engine, open_engine
from bigcons.memory import Block
from bigcons.methods.tree import Placement
from bigcons.overlaps.n_clusters import NClustersChoice, Search, search
from bigcons.overlaps.tree import TREES, Tree
from bigcons.progress import progress
from bigcons.seeding import SeedLike, resolve_seed
from bigcons.solving.results import by_size, renumbered, sizes_of
from bigcons.stores.display import facts_table, first_rows
from bigcons.stores.ensemble import Ensemble, as_ensemble
from bigcons.validation import check_int, check_number

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, repr=False, eq=False)
class ClusterTree:
    """A tree of clusters and the support of its splits: what `consensus_tree` returns.

    Its leaves are G small groups of sampled objects. Splits are numbered from the top: split 1 makes two
    clusters of all objects, split 2 divides one of these, and after split k there are k + 1.

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, truth = bc.datasets.planted_ensemble(600, 30, noise=(0.0, 0.2), random_state=0)
    >>> tree = bc.consensus_tree(ensemble, random_state=0)
    >>> tree.merges.shape == (len(tree.sizes) - 1, 4)
    True
    >>> tree.cut(3).max() + 1
    np.int64(3)
    """

    tree: str
    """Which tree it is: "average" or "distinctness"."""
    merges: np.ndarray
    """(G - 1, 4) float64, from the leaves to the top, as `scipy.cluster.hierarchy.dendrogram` takes them.

    The two merged, leaves numbered from 0 and merges from G; the height, raised to that of the merges before;
    the number of leaves.
    """
    sizes: np.ndarray
    """(G,) int64: the sampled objects of each leaf."""
    support: np.ndarray
    """(G - 1,), in the order of ``merges``: how far halves of the partitions reproduce the split, 0 to 1."""
    support_error: np.ndarray
    """(G - 1,): the standard error of ``support``."""
    choice: NClustersChoice
    """The number of clusters recommended, and why."""
    n_objects: int
    """Number of objects of the ensemble."""
    _tree: Tree
    _ensemble: Ensemble
    _weights: Weights | None
    _search: Search

    @classmethod
    def of(cls, found: Search, ensemble: Ensemble, weights: Weights | None, tree: str | None) -> ClusterTree:
        """Return the tree of a search; the one that the criterion takes at its number, if none is given."""
        groups, choice = found.groups, found.choice
        name = groups.cut(max(choice.n_clusters, 2)).tree if tree is None else tree
        support = found.halves.support(groups, name)
        sizes = np.bincount(groups.groups[groups.groups >= 0], minlength=len(groups.table))
        merges = linkage_of(groups.trees[name])
        return cls(
            tree=name,
            merges=merges,
            sizes=sizes,
            support=support.mean,
            support_error=support.error,
            choice=choice,
            n_objects=ensemble.n_objects,
            _tree=groups.trees[name],
            _ensemble=ensemble,
            _weights=weights,
            _search=found,
        )

    def cut(
        self, n_clusters: int | None = None, *, min_size: int | None = None, min_support: float | None = None
    ) -> np.ndarray:
        """Return the cluster (G,) int64 of each leaf, numbered by falling size, -1 for leaves left out.

        ``n_clusters``: at most so many, by the highest splits; by default the number recommended or, with one
        of the others, no limit. ``min_support``: a split counts if it has that support, or if a split below
        it counts. ``min_size``: clusters have at least so many objects, estimated by the sample; smaller ones
        are joined with the other side of their split or, where that is divided further, left out.
        """
        G = len(self.sizes)
        if n_clusters is not None:
            check_int("n_clusters", n_clusters)
        elif min_size is None and min_support is None:
            n_clusters = self.choice.n_clusters
        least = 0.0
        if min_size is not None:
            least = check_int("min_size", min_size) * self.sizes.sum() / self.n_objects
        if min_support is not None:
            check_number("min_support", min_support, at_least=0, at_most=1)
            if np.isnan(self.support).any():
                raise InvalidInputError(
                    "the support of splits is not known, because no two halves of the partitions label the "
                    "same objects; cut without min_support=.",
                    parameter="min_support",
                )
        counts = np.ones(G - 1, bool)
        if n_clusters is not None:
            counts[: max(G - n_clusters, 0)] = False
        if min_support is not None:
            counts &= self.support >= min_support
        # Of each side that a merge joins: which cluster it is as a whole, None if it is several or left out.
        found, whole = np.arange(G), list[int | None](range(G))
        sizes = self.sizes.astype(float)
        for (kept, merged), is_counted in zip(self._tree.merges, counts, strict=True):
            sides = whole[kept], whole[merged]
            small = sizes[kept] < least, sizes[merged] < least
            if None not in sides and (any(small) or not is_counted):
                found[found == sides[1]] = sides[0]
                whole[kept] = sides[0]
            else:
                for side, is_small in zip(sides, small, strict=True):
                    if side is not None and is_small:
                        found[found == side] = -1
                whole[kept] = None
            sizes[kept] += sizes[merged]
        labeled = found >= 0
        numbers = np.unique(found[labeled], return_inverse=True)[1]
        found[labeled] = numbers
        of_cluster = np.bincount(numbers, self.sizes[labeled])
        return renumbered(found, by_size(of_cluster))

    def labels(
        self,
        n_clusters: int | None = None,
        *,
        min_size: int | None = None,
        min_support: float | None = None,
        client: object = None,
    ) -> np.ndarray:
        """Return the clusters (n_objects,) int32 of all objects in a cut, -1 for those without labels.

        Numbered by falling size. Objects are placed by naive Bayes on their labels, as by `ConsensusTree`: by
        the table of the sample, which counts the table of all, and once more by that; two passes in blocks,
        O(n_objects M K) time, of any engine.
        """
        clusters = self.cut(n_clusters, min_size=min_size, min_support=min_support)
        K = int(clusters.max()) + 1
        placement = Placement(self._ensemble.offsets, K, self._weights)
        sample = self._search.sample
        of_sample = np.append(clusters, -1)[self._search.groups.groups].astype(np.int32)
        T, sizes = placement.counted(sample, of_sample)
        labels = np.full(self.n_objects, -1, np.int32)
        if len(sample) == self.n_objects:
            labels[:] = of_sample
        with open_engine(client) as engine:
            for _ in range(2):
                T, sizes = self._place(engine, placement, placement.state(T, sizes), labels)
        return renumbered(labels, by_size(sizes_of(labels, K)))

    def _place(
        self, engine: Engine, placement: Placement, state: Any, labels: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Place all objects, in place; return the table (B, padded K) and sizes (K,) of their clusters."""
        ensemble = self._ensemble

        def place(part: tuple[Block, np.ndarray]) -> tuple[np.ndarray, Any]:
            block, current = part
            read = ensemble.read(block.start, block.stop)
            placed = placement.place(state, read, current[:, None])
            return placed.clusters, placed.stats

        blocks = ensemble.blocks()
        parts: Iterator[Any] = ((block, labels[block.start : block.stop].copy()) for block in blocks)
        T, sizes = 0.0, 0.0
        with (
            closing(engine.map(place, parts)) as done,
            progress("place", self.n_objects) as listener,
        ):
            for block, (assigned, stats) in zip(blocks, done, strict=True):
                labels[block.start : block.stop] = assigned
                T, sizes = T + stats["T"], sizes + stats["sizes"]
                listener.advance(block.n_rows)
        return np.asarray(T), np.asarray(sizes)

    def table(self) -> pa.Table:
        """Return a row for each split, from the top.

        ``split``, its number, and ``n_clusters`` after it; ``height``, what joining the two sides costs;
        ``objects``, and ``larger`` and ``smaller``, of the two sides, estimated by the sample; ``support``
        and ``support_error``.
        """
        import pyarrow as pa

        G = len(self.sizes)
        of_node = np.concatenate([self.sizes, np.zeros(G - 1, np.int64)])
        sides = np.zeros((G - 1, 2), np.int64)
        for at, pair in enumerate(self.merges[:, :2].astype(int)):
            sides[at] = np.sort(of_node[pair])[::-1]
            of_node[G + at] = sides[at].sum()
        objects = np.rint(sides * (self.n_objects / max(float(self.sizes.sum()), 1.0))).astype(np.int64)[::-1]
        number = np.arange(1, G)
        return pa.table(
            {
                "split": number,
                "n_clusters": number + 1,
                "height": self.merges[::-1, 2].copy(),
                "objects": objects.sum(axis=1),
                "larger": objects[:, 0].copy(),
                "smaller": objects[:, 1].copy(),
                "support": pa.array(self.support[::-1].copy(), from_pandas=True),
                "support_error": pa.array(self.support_error[::-1].copy(), from_pandas=True),
            }
        )

    @property
    def in_words(self) -> str:
        """The number recommended, the support of its splits, and the next best number."""
        K, next_best = self.choice.n_clusters, self.choice.runner_up
        support = self.support[::-1][: K - 1]
        told = f"{K} clusters" if K > 1 else "a single cluster"
        if K > 1 and not np.isnan(support).any():
            told += f", support {support.mean():.2f}, at least {support.min():.2f}"
        if next_best is not None:
            told += f"; next best {next_best}"
        return told if self.choice.is_clear else f"{told}; no number stands out"

    def __repr__(self) -> str:
        of = f"{len(self.sizes)} leaves of {self.n_objects:,} objects, {self.tree}"
        return f"ClusterTree({self.in_words}; {of})"

    def _repr_html_(self) -> str:
        facts = {
            "clusters recommended": self.choice.n_clusters,
            "stands out": "yes" if self.choice.is_clear else "no",
            "next best": self.choice.runner_up,
            "tree": self.tree,
            "leaves": len(self.sizes),
            "objects": f"{self.n_objects:,}",
            "of them sampled": f"{int(self.sizes.sum()):,}",
        }
        columns = self.table().to_pydict()
        names = ("split", "objects", "larger", "smaller", "support")
        shown = {name: [_in_words(value) for value in columns[name]] for name in names}
        return facts_table(repr(self), facts) + (first_rows("Splits", shown) if shown["split"] else "")


def _in_words(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else f"{value:,}"


def linkage_of(tree: Tree) -> np.ndarray:
    """Return the merges of a tree (G - 1, 4) as SciPy has them, their heights raised to those before."""
    G = len(tree.merges) + 1
    node, leaves = np.arange(G), np.ones(G)
    found = np.empty((G - 1, 4))
    heights = np.maximum(np.maximum.accumulate(tree.heights), 0.0)
    for at, (kept, merged) in enumerate(tree.merges):
        leaves[kept] += leaves[merged]
        found[at] = node[kept], node[merged], heights[at], leaves[kept]
        node[kept] = G + at
    return found


def consensus_tree(
    ensemble: Any,
    *,
    tree: str | None = None,
    weights: Any = None,
    random_state: SeedLike = None,
    memory: str | float | None = None,
    client: object = None,
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
    random_state : int, RandomState, Generator or None, default=None
        Seed of the sample; one seed gives the same bits on any engine and any number of workers.
    memory : str, int or None, default=None
        Memory budget such as "2GB"; a tree that would need more is refused before it starts.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Returns
    -------
    ClusterTree
        Merges, support and sizes; its ``cut`` and ``labels`` give clusters, `bigcons.plots.tree` draws it.

    Notes
    -----
    Sample and groups are those of `choose_n_clusters`, from 30 groups of 2,000 objects on.
    The support of a split is the mean, over eight random halves of the partitions, of how far the tree of a
    half divides the same objects in the same two sides: see `bigcons.overlaps.support`. That of parts of a
    continuum may reach .9: a split is real where it has support and the number of clusters stands out. O(n)
    time for the sample, and some five times that of the groups.

    References
    ----------
    Felsenstein (1985), *Confidence limits on phylogenies: an approach using the bootstrap*, Evolution 39.
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
    seed = resolve_seed(random_state)
    data = as_ensemble(ensemble, soft=True)
    with open_engine(client) as engine:
        found = search(data, engine, seed, weights=weights, memory=memory, purpose="the tree of clusters")
    return ClusterTree.of(found, data, Weights.given(weights, data.offsets), tree)
