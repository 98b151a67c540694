"""How many clusters an ensemble holds: the evidence for each number, and the estimators that ask for it.

The tree of distinctness (`bigcons.overlaps.tree`) merges the least distinct two clusters first. A number of
clusters lives from the merge that leads to it to the one that ends it; the number that lives longest is
recommended, as in evidence accumulation (Fred and Jain 2005). A merge of a few objects with a cluster neither
leads to a number nor ends one: they have fallen out of the cluster, as in the condensed tree of HDBSCAN
(Campello, Moulavi and Sander 2013), and outliers are no clusters. A single cluster lives from the last merge
to the distinctness of the most distinct two groups: of labels without structure, of one Gaussian or a cube,
it outlives all other numbers.

A lifetime counts as far as others would find it, too: times the agreement at that number with as many other
partitions, by halves of them (`bigcons.overlaps.support`). A single cluster is what everyone finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from bigcons.coassociation.factorized import Weights
from bigcons.errors import InvalidInputError, NoStructureWarning, warn_user
from bigcons.execution.engine import Engine, fold, open_engine
from bigcons.memory import Block
from bigcons.metrics.confidence import HALF_WAY, Judged
from bigcons.overlaps.spectral_start import is_fine
from bigcons.overlaps.support import Halves
from bigcons.overlaps.tree import (
    DISTINCTNESS,
    FEWEST_LABELS,
    MOST_PRODUCTS,
    Groups,
    enough_labels,
    plan_bytes,
    rows_for,
    rows_for_groups,
)
from bigcons.progress import progress
from bigcons.seeding import SeedLike, draw_rows, resolve_seed
from bigcons.solving.estimator import AUTO, ConsensusClusterer, logger
from bigcons.solving.memory_plan import MemoryPlan, block_label_bytes, label_bytes
from bigcons.solving.survey import Survey
from bigcons.stores.display import facts_table, first_rows
from bigcons.stores.ensemble import Ensemble, as_ensemble
from bigcons.validation import check_int

FIRST_GROUPS, LEAST_OBJECTS = 30, 5
"""Groups with which the search begins, and the fewest objects of each and of a cluster that counts: smaller
ones differ by chance. `benchmarks/choosing_k.py` has what they lead to."""


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
    ['agreement', 'distinctness', 'lifetime', 'n_clusters']
    """

    n_clusters: int
    """The number recommended."""
    runner_up: int | None
    """The next best number, None without another."""
    table: dict[str, np.ndarray]
    """Columns of equal length, a row for each number of clusters.

    ``n_clusters``; ``distinctness``, how cleanly the partitions that separate two clusters do so, of the
    least distinct two, from 0 to 1, NaN for one cluster; ``lifetime``, what that exceeds the distinctness of
    one cluster more by, while outliers fall out of the clusters; ``agreement``, the adjusted Rand index with
    the clusters that as many partitions more would give, as halves tell, NaN if none can be compared. The
    product of the last two decides, or the lifetime alone.
    """
    lifetime_of_one: float
    """Lifetime of a single cluster."""
    n_sampled: int
    """Number of objects on which this was measured."""

    @property
    def is_clear(self) -> bool:
        """Whether the number lives longer than a single cluster does, as far as halves agree on it.

        Where it does not, the labels look like those of a continuum, which has no clusters.
        """
        return self.n_clusters > 1 and self._reproduced(self.n_clusters) > self.lifetime_of_one

    def is_shared(self, n_clusters: int) -> bool:
        """Whether a number lives at all, and other partitions would agree on it more than half-way."""
        row = self.row(n_clusters)
        return row["lifetime"] > 0.0 and row["agreement"] >= HALF_WAY

    def row(self, n_clusters: int) -> dict[str, float]:
        """Return the evidence for one number of clusters."""
        at = int(np.searchsorted(self.table["n_clusters"], n_clusters))
        return {name: float(values[at]) for name, values in self.table.items()}

    def _reproduced(self, n_clusters: int) -> float:
        """Return the lifetime of a number times the agreement on it."""
        row = self.row(n_clusters)
        return float(reproduced_lifetime(row["lifetime"], row["agreement"]))

    def __repr__(self) -> str:
        best = self.row(self.n_clusters)
        why = f"lifetime {best['lifetime']:.2f}"
        if self.n_clusters > 1:
            why += f" (a single cluster {self.lifetime_of_one:.2f}), agreement {best['agreement']:.2f}"
        if self.runner_up is not None:
            other = self.row(self.runner_up)
            why += f"; next {self.runner_up} with {other['lifetime']:.2f} and {other['agreement']:.2f}"
        doubt = "" if self.is_clear else "no number stands out; "
        return f"NClustersChoice({self.n_clusters}: {doubt}{why})"

    def _repr_html_(self) -> str:
        facts = {
            "clusters recommended": self.n_clusters,
            "stands out": "yes" if self.is_clear else "no",
            "next best": self.runner_up,
            "objects sampled": f"{self.n_sampled:,}",
        }
        order = np.argsort(
            -reproduced_lifetime(self.table["lifetime"], self.table["agreement"]), kind="stable"
        )
        best = {name: values[order] for name, values in self.table.items()}
        shown = {"clusters": [f"{K:,}" for K in best["n_clusters"]]}
        for name in ("lifetime", "agreement", "distinctness"):
            shown[name] = ["" if np.isnan(value) else f"{value:.2f}" for value in best[name]]
        return facts_table(repr(self), facts) + first_rows("Numbers of clusters, the best first", shown)


def choose_n_clusters(
    ensemble: Any,
    *,
    k_range: Sequence[int] | None = None,
    weights: Any = None,
    random_state: SeedLike = None,
    memory: str | float | None = None,
    client: object = None,
) -> NClustersChoice:
    """Recommend a number of clusters for an ensemble; ``n_clusters="auto"`` of the estimators asks here.

    Parameters
    ----------
    ensemble
        An Ensemble, the path of one, or a table of labels; soft clusterings, too.
    k_range : (least, most) or None, default=None
        Numbers to compare, both included; None: from 1 to as many as there are, see below, and 1 only where
        as many other partitions would agree on the next best number less than half-way between chance and
        identity: many a continuum has useful parts.
    weights : array of shape (n_partitions,) or None, default=None
        Numbers >= 0 by which each partition counts, as if it occurred that many times; 0 leaves it out.
    random_state : int, RandomState, Generator or None, default=None
        Seed; one seed gives the same bits on any engine and any number of workers.
    memory : str, int or None, default=None
        Memory budget such as "2GB"; a choice that would need more is refused before it starts.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Returns
    -------
    NClustersChoice
        The number recommended, the runner-up and the evidence; `bigcons.plots.n_clusters` draws it.

    Notes
    -----
    One pass over the labels draws 2,000 objects, which form 30 groups. Where half of them seem to be
    clusters, or the least distinct two are half as distinct as the most distinct, there are twice as many,
    of 20 objects each, up to one for 5 objects and as far as their tree stays cheap: some thousand groups of
    fine partitions. Many groups, and those of very many base clusters, are found by k-means of the labels.
    Numbers are compared by the labels alone: classes that
    all partitions merge cannot be counted, and clusters that most partitions cut alike are counted as
    several. Where no number lives longer than a single cluster, ``is_clear`` is False.

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
    data = as_ensemble(ensemble, soft=True)
    with open_engine(client) as engine:
        return search(data, engine, seed, k_range=k_range, weights=weights, memory=memory).choice


class Search(NamedTuple):
    """The groups in which the number of clusters was looked for, by all and by halves of the partitions."""

    sample: np.ndarray
    """(rows, M) labels, or memberships, of the objects in the groups."""
    groups: Groups
    halves: Halves
    choice: NClustersChoice


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
    given = Weights.given(weights, ensemble.offsets)
    least, most = _checked_range(k_range, ensemble.n_objects)
    rows = np.empty((0, 0))

    def labels_for(n_groups: int) -> np.ndarray:
        nonlocal rows
        n_rows = min(rows_for_groups(n_groups), ensemble.n_objects)
        plan = MemoryPlan(
            held=2 * label_bytes(ensemble, n_rows) + plan_bytes(ensemble, n_rows, n_groups, most or n_groups),
            per_block=block_label_bytes(ensemble),
            per_result=label_bytes(ensemble, min(n_rows, ensemble.chunk_rows)),
        )
        plan.check(purpose, engine, ensemble, memory)
        if len(rows) < n_rows:
            rows = sample_rows(ensemble, engine, seed, n_rows)
        return rows

    found = search_sample(labels_for, ensemble.n_objects, ensemble.offsets, given, least, most)
    choice = found.choice
    other = choice.runner_up
    if k_range is None and choice.n_clusters == 1 and other is not None and choice.is_shared(other):
        found = found._replace(choice=replace(choice, n_clusters=other, runner_up=1))
    logger.info("%r", found.choice)
    return found


def search_sample(
    labels_for: Callable[[int], np.ndarray],
    n_objects: int,
    offsets: np.ndarray,
    weights: Weights | None,
    least: int,
    most: int | None,
) -> Search:
    """Return the choice by a sample of the objects, given the labels for so many groups."""
    n_groups = max(FIRST_GROUPS, 2 * (most or 0))
    while True:
        sample = labels_for(n_groups)
        grouped, starts, counts = enough_labels(sample, offsets, weights)
        groups = Groups.at_any_scale(grouped, starts, n_groups, counts)
        n_found = len(groups.table)
        if not n_found:
            raise InvalidInputError("no object of the sample has a label; give n_clusters as a number.")
        of_level, lives = levels_of(groups, max(n_found - (n_found == n_groups), 1))
        by_number = np.bincount(of_level, lives)[2:]
        longest = int(np.argmax(of_level == 2 + np.argmax(by_number))) + 1 if by_number.size else 1
        products = np.count_nonzero(groups.table) / n_found * (2 * n_groups) ** 2
        is_full = products > MOST_PRODUCTS or 2 * n_groups > n_objects // LEAST_OBJECTS
        is_full |= 2 * n_found <= n_groups
        all_distinct = groups.costs(n_found - 1)[-1:] > groups.most_distinct() / 2
        is_many = 2 * (longest + 1) >= n_found or all_distinct.all()
        if is_full or not is_many:
            break
        n_groups *= 2
    halves = Halves.of(grouped, starts, n_groups, counts)
    choice = choice_of_tree(groups, halves, n_groups, least, most or most_told(n_found, n_groups))
    return Search(sample, groups, halves, choice)


def most_told(n_found: int, n_groups: int) -> int:
    """Return how many clusters groups can tell apart, of which so many were found of those asked for.

    Two groups for each; or fewer groups than that, if there are no more different objects.
    """
    return min(n_found, max(n_groups // 2, 1))


def levels_of(groups: Groups, n_levels: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of clusters and the lifetimes of levels of the tree of distinctness, (n_levels,).

    The first level is a single cluster, each later one divides a cluster more. Clusters of fewer than
    `LEAST_OBJECTS` objects, or than one in thirty of very few objects, do not count, and a single cluster
    lives from the distinctness of the most distinct two groups of it, without outliers.
    """
    least = min(LEAST_OBJECTS, int(np.count_nonzero(groups.groups >= 0)) // FIRST_GROUPS)
    of_level, heights = groups.n_large(least)[:n_levels], groups.costs(n_levels)
    n_of_one = int(np.argmax(np.append(of_level > 1, True)))  # levels until its outliers have fallen out
    of_groups = groups.trees[DISTINCTNESS].cut(n_of_one)
    largest = np.argmax(np.bincount(of_groups[groups.groups[groups.groups >= 0]]))
    lives = np.maximum(-np.diff(heights, prepend=0.0), 0.0)
    lives[:n_of_one] = 0.0
    lives[0] = max(groups.most_distinct(of_groups == largest) - heights[n_of_one - 1], 0.0)
    return np.maximum(of_level, 1), lives


def reproduced_lifetime(lifetime: Any, agreement: Any) -> np.ndarray:
    """Return lifetimes as far as others would find them: times the agreement, where that is known."""
    return np.asarray(lifetime * np.where(np.isnan(agreement), 1.0, agreement))


def choice_of_tree(groups: Groups, halves: Halves, n_groups: int, least: int, most: int) -> NClustersChoice:
    """Return the choice among the numbers of clusters of the tree of so many groups, or fewer."""
    numbers = np.arange(least, most + 1)
    of_level, lives = levels_of(groups, most_told(len(groups.table), n_groups))
    by_level = halves.agreement(DISTINCTNESS, max(most, lives.size))
    shared = np.where(of_level == 1, 1.0, by_level[: lives.size])
    lifetime = np.bincount(of_level, lives, minlength=most + 1)
    reproduced = np.bincount(of_level, lives * shared, minlength=most + 1)
    agreement = np.concatenate([[np.nan], by_level])[: lifetime.size]
    np.divide(reproduced, lifetime, out=agreement, where=lifetime > 0)
    distinctness = np.concatenate([[np.nan, np.nan], groups.costs(most)])
    table = {
        "n_clusters": numbers,
        "distinctness": distinctness[numbers],
        "lifetime": lifetime[numbers],
        "agreement": agreement[numbers],
    }
    order = np.argsort(-reproduced_lifetime(table["lifetime"], table["agreement"]), kind="stable")
    best = numbers[order].tolist()
    n_sampled = int((groups.groups >= 0).sum())
    return NClustersChoice(best[0], best[1] if len(best) > 1 else None, table, float(lifetime[1]), n_sampled)


def _checked_range(k_range: Any, n_objects: int) -> tuple[int, int | None]:
    if k_range is None:
        return 1, None
    if isinstance(k_range, str) or not isinstance(k_range, Sequence) or len(k_range) != 2:
        raise InvalidInputError(
            f"k_range={k_range!r} is not a range; give the smallest and the largest number, such as (2, 40).",
            parameter="k_range",
        )
    least = check_int("k_range[0]", k_range[0])
    return least, check_int("k_range[1]", k_range[1], at_least=least, at_most=max(n_objects, least))


def rows_of_sample(ensemble: Ensemble, seed: int, n_rows: int) -> np.ndarray:
    """Return which objects are sampled, at most ``n_rows``, ascending."""
    return draw_rows(ensemble.n_objects, n_rows, seed, "n_clusters.sample")


def sample_rows(ensemble: Ensemble, engine: Engine, seed: int, n_rows: int) -> np.ndarray:
    """Return the labels (rows, M), or memberships, of at most ``n_rows`` random objects, in order."""
    chosen = rows_of_sample(ensemble, seed, n_rows)

    def take(block: Block) -> list[np.ndarray]:
        rows = block.rows_of(chosen)
        return [ensemble.read(block.start, block.stop)[rows]] if rows.size else []

    with progress("sample to choose n_clusters", ensemble.n_objects) as listener:
        parts = fold(engine, ensemble.blocks(), take, list.__add__, progress=listener)
    return np.concatenate(parts)


class ChoosingClusterer(ConsensusClusterer):
    """Base of the methods that take ``n_clusters="auto"``."""

    n_clusters: int

    def _check_n_clusters(self, n_objects: int) -> None:
        given: Any = self.n_clusters
        if isinstance(given, str) and given != AUTO:
            raise InvalidInputError(
                f"n_clusters={given!r} is unknown; use an integer >= 1 or 'auto'.", parameter="n_clusters"
            )
        if not isinstance(given, str):
            super()._check_n_clusters(n_objects)

    _judged: Judged | None = None
    """During a fit, a sample that halves of the partitions have grouped."""

    def _judge_structure(
        self, ensemble: Ensemble, survey: Survey, weights: Weights | None, most_groups: int
    ) -> NClustersChoice | None:
        """Return what stands out in a sample, as in `enough_labels`, and warn if nothing does.

        Of at most so many groups, which tell half as many clusters apart. None where more than 33 are asked
        for, where the sample says too little of many base clusters, or where the number has been chosen, and
        so judged with all others.
        """
        K, sample = self.n_clusters, survey.sample
        if hasattr(self, "n_clusters_choice_") or rows_for(K) > rows_for(1):
            return None
        if not ensemble.is_soft and is_fine(ensemble, sample, K, FEWEST_LABELS):
            return None
        n_objects = min(len(sample), LEAST_OBJECTS * most_groups)
        found = search_sample(lambda _: sample, n_objects, ensemble.offsets, weights, 1, None)
        self._judged = Judged(survey.rows, sample, found.halves.of_clusters, K)
        self._note_structure(found.choice, is_asked=K > 1)
        return found.choice

    def _note_structure(self, told: NClustersChoice, *, is_asked: bool) -> None:
        """Set whether any number of clusters stands out, and warn if not but several are asked for."""
        self.has_structure_: bool = told.is_clear
        if not told.is_clear and is_asked:
            warn_user(
                "no number of clusters stands out: halves of the partitions find none that are more distinct "
                f"than the parts of data without clusters are ({told!r}).",
                NoStructureWarning,
            )

    def _remedy_of_surplus(self, n_large: int) -> str:
        return f"n_clusters={n_large} may be enough, 'auto' chooses the number"

    @contextmanager
    def _n_clusters_chosen(self, ensemble: Ensemble, engine: Engine, seed: int) -> Iterator[None]:
        asked: Any = self.n_clusters
        if isinstance(asked, str):
            weights = getattr(self, "weights", None)
            weights = None if isinstance(weights, str) else weights
            found = search(ensemble, engine, seed, weights=weights, memory=self.memory)
            choice = found.choice
            rows = rows_of_sample(ensemble, seed, len(found.sample))
            self._judged = Judged(rows, found.sample, found.halves.of_clusters, choice.n_clusters)
            self._note_structure(choice, is_asked=True)
            self.n_clusters_choice_: NClustersChoice = choice
            self.n_clusters = choice.n_clusters
        try:
            yield
        finally:
            self.n_clusters = asked
            self._judged = None
