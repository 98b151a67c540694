"""What is known of clusters besides labels: the evidence for their number, their tree, and trust in them.

A consensus keeps all of it. `bigcons.trust.n_clusters` finds the number and the tree, and
`bigcons.metrics.trust` which labels to trust.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigcons.disk.schema import TRUST
from bigcons.errors import InvalidInputError
from bigcons.validation import check_int, check_number

if TYPE_CHECKING:
    import pyarrow as pa

LEAST_OBJECTS = 5
"""The fewest objects of a group, and of a cluster that counts where the number of clusters is looked for:
`benchmarks/choosing_k.py` has its effects."""

HALF_WAY = 0.5
"""Agreement, adjusted for chance, half-way between chance and identity: below it, others would not agree."""

TRUST_ROW = np.dtype([*TRUST.items()])
"""What is known of every object."""


@dataclass(frozen=True, repr=False, eq=False)
class NClustersChoice:
    """The number of clusters that an ensemble supports, and why: see `choose_n_clusters`.

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, truth = bc.datasets.planted_ensemble(600, 30, noise=(0.0, 0.2), random_state=0)
    >>> choice = bc.choose_n_clusters(ensemble, k_range=(2, 9), random_state=0)
    >>> choice.table["n_clusters"]
    array([2, 3, 4, 5, 6, 7, 8, 9])
    >>> sorted(choice.row(6))
    ['agreement', 'distinctness', 'lifetime', 'n_clusters', 'quality']
    """

    n_clusters: int
    """The number recommended."""
    runner_up: int | None
    """The next best number, None without another."""
    table: dict[str, np.ndarray]
    """Columns of equal length, a row for each number of clusters.

    ``n_clusters``; ``distinctness``, from 0 to 1, how cleanly the partitions that separate the least distinct
    two clusters do so, NaN for one cluster; ``lifetime``, how far the distinctness falls when one more
    cluster is divided, apart from outliers; ``agreement``, the mean adjusted Rand index of two halves of the
    partitions that each join the groups by themselves, NaN for a single partition; ``quality``, from 0 to 1,
    the normalized mutual information of the partitions with the tree of average link, cut at the number,
    times the agreement of its halves. The last three decide: see `merit`.
    """
    lifetime_of_one: float
    """Lifetime of a single cluster, up to the most distinct two groups as halves find them."""
    n_sampled: int
    """Number of objects on which this was measured."""

    @property
    def is_clear(self) -> bool:
        """Whether some number has more `evidence` than a single cluster, whose evidence is its lifetime.

        If none has, the labels look like those of a continuum, which has no clusters.
        """
        scores = evidence(self.table)[self.table["n_clusters"] > 1]
        return bool((scores > self.lifetime_of_one).any())

    @property
    def runner_up_share(self) -> float:
        """Merit of the runner-up (see `merit`) as a share, from 0 to 1, of that of the number recommended.

        Near 1, either number would do: other partitions of the same data may recommend another one.
        """
        rows = np.searchsorted(self.table["n_clusters"], [self.runner_up or 0, self.n_clusters])
        second, first = np.maximum(merit(self.table)[rows], 0.0)
        return float(self.runner_up is not None) * (1.0 if second >= first else float(second / first))

    def row(self, n_clusters: int) -> dict[str, float]:
        """Return the evidence for one number of clusters."""
        index = int(np.searchsorted(self.table["n_clusters"], n_clusters))
        return {name: float(values[index]) for name, values in self.table.items()}

    def in_words(self, *facts: str) -> str:
        """Return the number recommended, ``facts`` about it, and how near the next best number comes."""
        words = [count_in_words(self.n_clusters), *facts]
        if self.runner_up is not None:
            share = f" at {self.runner_up_share:.2f} of the merit" if self.is_clear else ""
            words.append(f"next best {self.runner_up}{share}")
        return "; ".join(words if self.is_clear else [*words, "no number stands out"])

    def __repr__(self) -> str:
        agreement = self.row(self.n_clusters)["agreement"]
        is_known = self.n_clusters > 1 and not np.isnan(agreement)
        return f"NClustersChoice({self.in_words(*[f'agreement of halves {agreement:.2f}'] * is_known)})"


def tree_in_words(tree: ClusterTree) -> str:
    """Return the number recommended, the support of its splits, and the next best number."""
    support, facts = tree.support[np.array(list(tree.branches()), int) - len(tree.sizes)], []
    if tree.choice.n_clusters > 1 and not np.isnan(support).any():
        facts.append(f"support of their splits {support.mean():.2f}, of the weakest {support.min():.2f}")
    if tree.p_values is not None and tree.p_values.size:
        facts.append(f"p {tree.p_values[-1]:.2g} of a single cluster")
    return tree.choice.in_words(*facts)


def count_in_words(n_clusters: int) -> str:
    """Return how many clusters there are."""
    return f"{n_clusters} clusters" if n_clusters > 1 else "a single cluster"


def least_objects(sizes: np.ndarray) -> int:
    """Return the fewest objects of a sample, in groups of ``sizes`` (G,), in a cluster that counts.

    `LEAST_OBJECTS`, or one in thirty of very few objects: smaller ones differ by chance.
    """
    return min(LEAST_OBJECTS, int(sizes.sum()) // 30)


def node_sums(sides: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the sums of the rows (G, ...) of leaves over each node of a tree, (2 G - 1, ...).

    ``sides`` (G - 1, 2): the nodes that each merge joins, leaves from 0, the results of merges from G.
    """
    sums = np.concatenate([rows, np.zeros((len(sides), *rows.shape[1:]), rows.dtype)])
    for node, (left, right) in enumerate(sides, len(rows)):
        sums[node] = sums[left] + sums[right]
    return sums


def level_sums(sides: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the sums over 1, 2, ... clusters, (G, ...), of what each node of a tree has, (2 G - 1, ...)."""
    G = len(sides) + 1
    changes = values[G:] - values[sides].sum(axis=1)
    return np.cumsum([values[:G].sum(axis=0), *changes], axis=0)[::-1]


def numbers_of_large(sides: np.ndarray, sizes: np.ndarray, threshold: float) -> np.ndarray:
    """Return how many of 1, 2, ... clusters of leaves of ``sizes`` (G,) have so many objects, (G,)."""
    return level_sums(sides, (node_sums(sides, sizes) >= threshold).astype(int))


def evidence(table: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the evidence for numbers of clusters, as the ``table`` of `NClustersChoice` lists them.

    Lifetimes count as far as halves of the partitions find the same clusters, times the agreement. The rest
    of a lifetime, in which each half divides the objects elsewhere, speaks for a continuum: the rests of a
    number and of all smaller ones, whose clusters it divides, are taken off.
    """
    lifetime, agreement = table["lifetime"], table["agreement"]
    support = lifetime * np.where(np.isnan(agreement), 1.0, agreement)
    return np.asarray(support - np.cumsum(lifetime - support))


def merit(table: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return by what numbers of clusters are ranked, as the ``table`` of `NClustersChoice` lists them.

    Their `evidence`, and an eighth of their quality: of overlapping classes no number lives long.
    """
    return evidence(table) + table["quality"] / 8


@dataclass(frozen=True, repr=False, eq=False)
class ClusterTree:
    """A tree of clusters and the support of its splits: what `consensus_tree` returns.

    Its leaves are G small groups of sampled objects. Splits are numbered from the top: split 1 divides all
    objects, split 2 one of the two sides; splits of equal height have no order. Clusters count if they have
    at least five objects of the sample (a thirtieth of a very small sample), as in `choose_n_clusters`: a
    split that separates fewer makes no further cluster.

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

    The two merged, leaves numbered from 0 and merges from G; the height, at least the height of the merges
    before; the number of leaves.
    """
    sizes: np.ndarray
    """(G,) int64: the sampled objects of each leaf."""
    support: np.ndarray
    """(G - 1,), in the order of ``merges``: how far halves of the partitions separate its sides, 0 to 1."""
    support_error: np.ndarray
    """(G - 1,): the standard error of ``support``."""
    choice: NClustersChoice
    """The number of clusters recommended, and why."""
    n_objects: int
    """Objects of the ensemble."""
    objects: np.ndarray
    """(G,) float64: the objects of each leaf of all that have labels.

    Estimates, if the sample has not all objects; small clusters have more than their share of a sample."""
    p_values: np.ndarray | None = None
    """(G - 1,), in the order of ``merges``: of as many clusters as there are after the split, or more.

    None if no features were given."""
    placer: Callable[[np.ndarray, object], np.ndarray] | None = None
    """What places all objects; None of a tree that a fit or a store has kept."""

    def cut(
        self, n_clusters: int | None = None, *, min_size: int | None = None, min_support: float | None = None
    ) -> np.ndarray:
        """Return the cluster (G,) int64 of each leaf, numbered by ``objects``, largest first, -1 if left out.

        A fit numbers its clusters by the objects that it places, so that cluster 3 here need not be label 3.

        ``n_clusters``: at most so many, by the highest splits; by default as many as recommended, or no limit
        if another parameter is given. ``min_support``: a split counts if it has that support, or if a split
        below it counts. ``min_size``: clusters have at least so many of ``objects``, instead of five objects
        of the sample. Smaller clusters join the other side of their split or, if that is divided further,
        are left out.
        """
        G, sizes, level = len(self.sizes), self.sizes.astype(float), None
        threshold = least_objects(self.sizes)
        if n_clusters is not None:
            check_int("n_clusters", n_clusters)
        if min_size is not None:
            sizes, threshold = self.objects.copy(), check_int("min_size", min_size)
        if n_clusters is None and min_size is None and min_support is None:
            n_clusters = self.choice.n_clusters
        if n_clusters is not None:
            level = self._level(n_clusters, sizes, threshold)
        if min_support is not None:
            check_number("min_support", min_support, at_least=0, at_most=1)
            if np.isnan(self.support).any():
                raise InvalidInputError(
                    "the support of splits is not known, because no two halves of the partitions label the "
                    "same objects; cut without min_support=.",
                    parameter="min_support",
                )
        counts = np.ones(G - 1, bool)
        if level is not None:
            counts[: max(G - level, 0)] = False
        if min_support is not None:
            counts &= self.support >= min_support
        # Of each side that a merge joins: which cluster it is as a whole, None if it is several or left out.
        clusters, cluster_of = np.arange(G), list[int | None](range(G))
        first = list(range(G))  # the lowest leaf of every node
        for (left, right), is_counted in zip(self.merges[:, :2].astype(int), counts, strict=True):
            kept, absorbed = first[left], first[right]
            first.append(kept)
            sides = cluster_of[kept], cluster_of[absorbed]
            small = sizes[kept] < threshold, sizes[absorbed] < threshold
            if None not in sides and (any(small) or not is_counted):
                clusters[clusters == sides[1]] = sides[0]
                cluster_of[kept] = sides[0]
            else:
                for side, is_small in zip(sides, small, strict=True):
                    if side is not None and is_small:
                        clusters[clusters == side] = -1
                cluster_of[kept] = None
            sizes[kept] += sizes[absorbed]
        labeled = clusters >= 0
        numbers = np.unique(clusters[labeled], return_inverse=True)[1]
        clusters[labeled] = numbers
        cluster_sizes = np.bincount(numbers, self.objects[labeled])
        rank = np.empty(cluster_sizes.size + 1, np.int64)
        rank[np.argsort(-cluster_sizes, kind="stable")], rank[-1] = np.arange(cluster_sizes.size), -1
        return rank[clusters]

    def branches(self, n_clusters: int | None = None) -> dict[int, tuple[int, int]]:
        """Return the two sides of every split, from the top, of a cut into so many clusters; see `cut`.

        Splits and sides are nodes, numbered as in ``merges``. By default the cut has the recommended number,
        or 2 where that is 1. A side with too few objects to count is passed over.
        """
        G, threshold = len(self.sizes), least_objects(self.sizes)
        number = max(self.choice.n_clusters, 2) if n_clusters is None else n_clusters
        level = self._level(number, self.sizes, threshold)
        sides = self._sides.tolist()
        sizes = node_sums(self._sides, self.sizes)

        def visible(node: int) -> int:
            while node >= 2 * G - level and (small := sizes[sides[node - G]] < threshold).any():
                node = sides[node - G][int(small[0])]
            return node

        splits, queue = {}, [visible(2 * G - 2)]
        for node in queue:
            if node >= 2 * G - level:
                left, right = map(visible, sides[node - G])
                splits[node] = left, right
                queue += left, right
        return dict(sorted(splits.items(), reverse=True))

    def _level(self, n_clusters: int, sizes: np.ndarray, threshold: float) -> int:
        """Return the fewest nodes that a cut needs for so many clusters of ``threshold`` objects.

        If no cut has so many, for the most that a cut has.
        """
        numbers = self._numbers(sizes, threshold)
        return int(np.argmax(numbers >= min(n_clusters, numbers.max()))) + 1

    def _numbers(self, sizes: np.ndarray, threshold: float) -> np.ndarray:
        """Return how many clusters of so many objects a cut into 1, 2, ... nodes has, (G,).

        A split adds one if both of its sides are large: a small side stays with the other.
        """
        is_large = node_sums(self._sides, sizes) >= threshold
        return 1 + np.cumsum([0, *is_large[self._sides].all(axis=1)[::-1]])

    @property
    def _sides(self) -> np.ndarray:
        """The two nodes that each merge joins, (G - 1, 2)."""
        return self.merges[:, :2].astype(int)

    def labels(
        self,
        n_clusters: int | None = None,
        *,
        min_size: int | None = None,
        min_support: float | None = None,
        client: object = None,
    ) -> np.ndarray:
        """Return the clusters (n_objects,) int32 of all objects in a cut, -1 for those without labels.

        Numbered as by `cut`. Objects, also those of clusters that do not count, are placed by naive Bayes
        on their labels, as by `ConsensusTree`: by the table of the sample, which counts the table of all, and
        once more by that; two passes in blocks, O(n_objects M K) time, of any engine. They equal the clusters
        of ``ConsensusTree("auto")`` for its number, if all of these have objects; ``ConsensusTree(K)`` counts
        clusters of any size.
        """
        if self.placer is None:
            raise InvalidInputError(
                "the tree was kept without the labels of its objects; make it by consensus_tree(ensemble)."
            )
        return self.placer(self.cut(n_clusters, min_size=min_size, min_support=min_support), client)

    def table(self) -> pa.Table:
        """Return a row for each split, from the top.

        ``split``, its number, and ``n_clusters`` that count after it, the same as before where it takes off
        too few objects; ``height``, what joining the two sides costs; ``objects``, and ``larger`` and
        ``smaller`` of the two sides, estimates if the sample has not all objects; ``support`` and
        ``support_error``; and if features were given ``p_value``, of ``n_clusters`` or more.
        """
        import pyarrow as pa

        sides = np.sort(node_sums(self._sides, self.objects)[self._sides], axis=1)[::-1, ::-1]
        larger, smaller = np.rint(sides).astype(np.int64).T
        n_clusters = self._numbers(self.sizes, least_objects(self.sizes))[1:]
        p_values = {}
        if self.p_values is not None:
            p_column = np.append(np.nan, self.p_values[::-1])  # of 1, 2, ... clusters or more
            p_values = {"p_value": pa.array(p_column[n_clusters - 1], from_pandas=True)}
        return pa.table(
            {
                "split": np.arange(1, len(self.sizes)),
                "n_clusters": n_clusters,
                "height": self.merges[::-1, 2].copy(),
                "objects": np.rint(sides.sum(axis=1)).astype(np.int64),
                "larger": larger.copy(),
                "smaller": smaller.copy(),
                "support": pa.array(self.support[::-1].copy(), from_pandas=True),
                "support_error": pa.array(self.support_error[::-1].copy(), from_pandas=True),
                **p_values,
            }
        )

    @property
    def is_sampled(self) -> bool:
        """Whether the sample has not all objects with labels, so that ``objects`` are estimates."""
        return bool(round(self.objects.sum()) > self.sizes.sum())

    def __repr__(self) -> str:
        facts = f"{len(self.sizes)} leaves of {self.n_objects:,} objects, {self.tree}"
        return f"ClusterTree({tree_in_words(self)}; {facts})"

    def parts(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return facts and arrays to store, of which `of_parts` makes the tree again, without its placer."""
        choice = self.choice
        facts = {"tree": self.tree, "n_objects": self.n_objects}
        facts |= {name: getattr(choice, name) for name in _FACTS}
        arrays = {name: getattr(self, name) for name in _ARRAYS if getattr(self, name) is not None}
        return facts, arrays | {f"choice.{name}": values for name, values in choice.table.items()}

    @classmethod
    def of_parts(cls, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> ClusterTree:
        """Return the tree of `parts`; raises KeyError, TypeError or ValueError for others."""
        table = {name: arrays[f"choice.{name}"] for name in _EVIDENCE}
        choice = NClustersChoice(table=table, **{name: facts[name] for name in _FACTS})
        merges, sizes, support, error, objects = (arrays[name] for name in _ARRAYS[:5])
        fits = isinstance(choice.lifetime_of_one, (int, float)) and choice.n_clusters in table["n_clusters"]
        if merges.shape != (len(sizes) - 1, 4) or not fits:
            raise ValueError("arrays of other shapes, or other facts")
        number, p_values = facts["n_objects"], arrays.get("p_values")
        return cls(facts["tree"], merges, sizes, support, error, choice, number, objects, p_values)


_FACTS = ("n_clusters", "runner_up", "lifetime_of_one", "n_sampled")
_ARRAYS = ("merges", "sizes", "support", "support_error", "objects", "p_values")
_EVIDENCE = ("n_clusters", "distinctness", "lifetime", "agreement", "quality")


# Which labels to trust


class Trust(NamedTuple):
    """How far the labels of a consensus can be trusted; see `bigcons.metrics.trust`."""

    confidence: np.ndarray
    """(n_objects,) float32: the probability that the object's label is right; 0 without a label.

    Times the support of the object's cluster, where that is known.
    """
    second_labels: np.ndarray
    """(n_objects,) int32: the most probable other cluster; -1 if there is none."""
    second_confidence: np.ndarray
    """(n_objects,) float32: the same of it, which exceeds the confidence where the label is doubtful."""
    clusters: pa.Table
    """One row per cluster."""
    partitions: pa.Table
    """One row per partition."""
    temperature: float
    """From 0 to 1: which share of the evidence in the labels of an object counts."""

    def read(self) -> Trust:
        """Return the same with its arrays in memory: those of a store are read when sliced."""
        return self._replace(**{name: getattr(self, name)[:] for name in TRUST})

    def __repr__(self) -> str:
        n_labeled = sum(self.clusters["size"].to_pylist())  # some with a confidence of 0
        total = self.confidence.sum(dtype=np.float64)
        mean = f"mean confidence {total / n_labeled:.2f}" if n_labeled else "none labeled"
        rows = f"{self.clusters.num_rows} clusters, {self.partitions.num_rows} partitions"
        return f"Trust({self.confidence.size:,} objects, {mean}, {rows}, temperature {self.temperature:.2f})"


def mergers(clusters: pa.Table) -> dict[int, int]:
    """Return which clusters could be merged at no cost with which other one, that is at least as large.

    ``clusters`` is the table of `Trust`. A cluster could be merged if its division from the nearest has less
    than half of the full support; none could where the table lacks this column.
    """
    if "division" not in clusters.column_names:
        return {}
    rows = {row["cluster"]: row for row in clusters.to_pylist()}
    return {
        k: row["nearest"]
        for k, row in rows.items()
        if row["division"] is not None
        and row["division"] < HALF_WAY
        and row["nearest"] in rows
        and row["size"] <= rows[row["nearest"]]["size"]
    }


def arrow_table(types: Mapping[str, str], columns: Mapping[str, Any]) -> pa.Table:
    """Return a table of these types, `CLUSTER_COLUMNS` or `PARTITION_COLUMNS`; NaN and None become null.

    Raises ValueError or TypeError for other columns, and for values of other types. It does without
    ``pa.array``, which imports pandas and so takes half a second.
    """
    import pyarrow as pa

    if set(columns) != set(types):
        raise ValueError(f"the columns {sorted(columns)}")
    arrays = []
    for name, kind in types.items():
        if kind == "string":
            texts = pa.lib.StringBuilder()
            texts.append_values(list(columns[name]))
            arrays.append(texts.finish())
        else:
            values = np.array(columns[name], kind)
            validity = pa.py_buffer(np.packbits(~np.isnan(values), bitorder="little"))
            arrow_type = getattr(pa, kind)()
            arrays.append(pa.Array.from_buffers(arrow_type, values.size, [validity, pa.py_buffer(values)]))
    return pa.Table.from_arrays(arrays, names=list(types))
