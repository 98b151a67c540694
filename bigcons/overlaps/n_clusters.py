"""How many clusters an ensemble holds: the evidence for each number, and the estimators that ask for it.

The tree of distinctness (`bigcons.overlaps.tree`) merges the least distinct two clusters first. A number of
clusters lives from the merge that leads to it to the one that ends it; the number that lives longest is
recommended, as in evidence accumulation (Fred and Jain 2005). A single cluster lives from the last merge to
the distinctness of the most distinct two groups: of labels without structure, of one Gaussian or a cube, it
outlives all other numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigcons.coassociation.factorized import Weights
from bigcons.errors import InvalidInputError
from bigcons.execution.engine import Engine, fold, open_engine
from bigcons.memory import Block
from bigcons.overlaps.tree import (
    MOST_GROUPS,
    N_GROUPS,
    ROWS_PER_GROUP,
    Groups,
    enough_labels,
    plan_bytes,
)
from bigcons.progress import progress
from bigcons.seeding import SeedLike, draw_rows, resolve_seed
from bigcons.solving.estimator import AUTO, ConsensusClusterer, logger
from bigcons.solving.memory_plan import MemoryPlan, block_label_bytes, label_bytes
from bigcons.stores.ensemble import Ensemble, as_ensemble
from bigcons.validation import check_int


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
    ['distinctness', 'lifetime', 'n_clusters']
    """

    n_clusters: int
    """The number recommended."""
    runner_up: int | None
    """The next best number, None without another."""
    table: dict[str, np.ndarray]
    """Columns of equal length, a row for each number of clusters.

    ``n_clusters``; ``distinctness``, how cleanly the partitions that separate two clusters do so, of the
    least distinct two, from 0 to 1, NaN for one cluster; ``lifetime``, what that exceeds the distinctness of
    one cluster more by, which decides.
    """
    lifetime_of_one: float
    """Of a single cluster."""
    n_sampled: int
    """Number of objects on which this was measured."""

    @property
    def is_clear(self) -> bool:
        """Whether the number lives longer than a single cluster does.

        Where it does not, the labels look like those of a continuum, which has no clusters.
        """
        return self.n_clusters > 1 and self.row(self.n_clusters)["lifetime"] > self.lifetime_of_one

    def row(self, n_clusters: int) -> dict[str, float]:
        """Return the evidence for one number of clusters."""
        at = int(np.searchsorted(self.table["n_clusters"], n_clusters))
        return {name: float(values[at]) for name, values in self.table.items()}

    def __repr__(self) -> str:
        best = self.row(self.n_clusters)
        why = f"lifetime {best['lifetime']:.2f}"
        if self.n_clusters > 1:
            why += f" (a single cluster {self.lifetime_of_one:.2f}), distinctness {best['distinctness']:.2f}"
        if self.runner_up is not None:
            why += f"; next {self.runner_up} with {self.row(self.runner_up)['lifetime']:.2f}"
        doubt = "" if self.is_clear else "no number stands out; "
        return f"NClustersChoice({self.n_clusters}: {doubt}{why})"


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
        Numbers to compare, both included; None: from 2 to as many as there are, see below. With 1 as the
        least, labels that have nothing in common are recognized as one cluster.
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
    clusters, or the least distinct two are half as distinct as the most distinct, there are twice as many, up
    to one for 5 objects and to 400 of 8,000 objects. Numbers are compared by the labels alone: classes that
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
        return choose(data, engine, seed, k_range=k_range, weights=weights, memory=memory)


def choose(
    ensemble: Ensemble,
    engine: Engine,
    seed: int,
    *,
    k_range: Sequence[int] | None = None,
    weights: Any = None,
    memory: str | float | None = None,
) -> NClustersChoice:
    """Return the choice for an open ensemble: see `choose_n_clusters`."""
    given = Weights.given(weights, ensemble.offsets)
    least, most = _checked_range(k_range, ensemble.n_objects)
    n_groups, rows = max(30, (most or 0) + 1), np.empty((0, 0))
    while True:
        n_rows = min(ROWS_PER_GROUP * max(n_groups, N_GROUPS), ensemble.n_objects)
        plan = MemoryPlan(
            held=2 * label_bytes(ensemble, n_rows) + plan_bytes(ensemble, n_rows, n_groups, most or n_groups),
            per_block=block_label_bytes(ensemble),
            per_result=label_bytes(ensemble, min(n_rows, ensemble.chunk_rows)),
        )
        plan.check("choosing n_clusters", engine, ensemble, memory)
        if len(rows) < n_rows:
            rows = sample_rows(ensemble, engine, seed, n_rows)
        grouped, offsets, counts = enough_labels(rows, ensemble.offsets, given)
        groups = Groups.of(grouped, offsets, n_groups, counts)
        n_found = len(groups.table)
        if not n_found:
            raise InvalidInputError("no object of the sample has a label; give n_clusters as a number.")
        choice = choice_of_tree(groups, least, most or max(n_found - (n_found == n_groups), least))
        # groups of fewer than five objects differ by chance
        is_full = n_found < n_groups or 2 * n_groups > min(MOST_GROUPS, ensemble.n_objects // 5)
        all_distinct = groups.costs(n_found - 1)[-1:] > groups.most_distinct / 2
        is_many = 2 * (choice.n_clusters + 1) >= n_found or all_distinct.all()
        if is_full or not is_many:
            break
        n_groups *= 2
    logger.info("%r", choice)
    return choice


def choice_of_tree(groups: Groups, least: int, most: int) -> NClustersChoice:
    """Return the choice among the numbers of clusters of a tree."""
    numbers = np.arange(least, most + 1)
    top = np.nan_to_num(groups.most_distinct)
    distinctness = np.concatenate([[np.nan, top], groups.costs(most + 1)])[: most + 2]  # by number
    lifetime = distinctness[1:-1] - distinctness[2:]
    distinctness[1] = np.nan
    table = {
        "n_clusters": numbers,
        "distinctness": distinctness[numbers],
        "lifetime": lifetime[numbers - 1],
    }
    order = np.argsort(-table["lifetime"], kind="stable")
    best = numbers[order].tolist()
    n_sampled = int((groups.groups >= 0).sum())
    return NClustersChoice(best[0], best[1] if len(best) > 1 else None, table, float(lifetime[0]), n_sampled)


def _checked_range(k_range: Any, n_objects: int) -> tuple[int, int | None]:
    if k_range is None:
        return min(2, n_objects), None
    if isinstance(k_range, str) or not isinstance(k_range, Sequence) or len(k_range) != 2:
        raise InvalidInputError(
            f"k_range={k_range!r} is not a range; give the smallest and the largest number, such as (2, 40).",
            parameter="k_range",
        )
    least = check_int("k_range[0]", k_range[0])
    return least, check_int("k_range[1]", k_range[1], at_least=least, at_most=max(n_objects, least))


def sample_rows(ensemble: Ensemble, engine: Engine, seed: int, n_rows: int) -> np.ndarray:
    """Return the labels (rows, M), or memberships, of at most ``n_rows`` random objects, in order."""
    chosen = draw_rows(ensemble.n_objects, n_rows, seed, "n_clusters.sample")

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

    def _remedy_of_surplus(self, n_large: int) -> str:
        return f"n_clusters={n_large} may be enough, 'auto' chooses the number"

    @contextmanager
    def _n_clusters_chosen(self, ensemble: Ensemble, engine: Engine, seed: int) -> Iterator[None]:
        asked: Any = self.n_clusters
        if isinstance(asked, str):
            weights = getattr(self, "weights", None)
            weights = None if isinstance(weights, str) else weights
            choice = choose(ensemble, engine, seed, weights=weights, memory=self.memory)
            self.n_clusters_choice_: NClustersChoice = choice
            self.n_clusters = choice.n_clusters
        try:
            yield
        finally:
            self.n_clusters = asked
