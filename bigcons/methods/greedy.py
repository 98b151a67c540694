"""Consensus by a criterion: greedy and exact search, and the best of the partitions or of several methods."""

from __future__ import annotations

import ast
import logging
import math
import re
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import product
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone

from bigcons.contingency import SYMMETRIC, mean_over_partitions
from bigcons.errors import ConvergenceWarning, InvalidInputError, UnlabeledObjectsWarning, warn_user
from bigcons.kernels.greedy import sweep, weighted_nmi
from bigcons.memory import Block
from bigcons.methods import METHODS, incidence
from bigcons.methods.base import ConsensusClusterer, MethodInfo
from bigcons.methods.pass_clusterer import checked_clusters
from bigcons.metrics import anmi
from bigcons.progress import progress
from bigcons.run.engine import Engine, fold
from bigcons.run.passes import Record, as_history, timed
from bigcons.run.results import Output
from bigcons.run.survey import take_survey
from bigcons.seeding import generator
from bigcons.store.ensemble import Ensemble, as_ensemble
from bigcons.validation import check_choice, check_int, check_number
from bigcons.weights import counts_of

logger: logging.Logger = logging.getLogger("bigcons")

# Sweeps over which the temperature of annealing falls to 0.
N_ANNEALED = 20


class GreedyANMI(ConsensusClusterer):
    """Greedy search for the clustering of highest average normalized mutual information (ANMI).

    Starting from the base partition of highest ANMI, every object in turn joins the cluster that raises the
    ANMI most, in sweeps until none moves.

    Parameters
    ----------
    n_clusters : int, default=8
        Maximum number of clusters.
    init : "best" or array of shape (n_objects,), default="best"
        "best": the base partition of highest ANMI; objects outside its ``n_clusters`` largest clusters first
        join the nearest cluster. Or labels (n_objects,) to start from, such as another method's consensus, -1
        for objects that no partition labels; without a temperature the sweeps only raise its ANMI.
    temperature : float, default=0.0
        Simulated annealing: the first sweeps move objects to any cluster with probability proportional to
        ``exp(gain / T)``, with the gain in ANMI times objects, so that 1 is high; try 0.2. T falls linearly
        from ``temperature`` to 0 over 20 sweeps; the sweeps that follow are greedy.
    max_iter : int, default=100
        Maximum number of sweeps.
    resume : bool, default=True
        Whether a repeated call finds its finished result at ``out``.
    random_state : int, RandomState, Generator or None, default=None
        Seed of annealing; nothing else is random.
    memory : str, int or None, default=None
        Memory budget such as "2GB"; a fit that would need more is refused before it starts.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_ : (n_objects,) int32, -1 for objects that no partition labeled
    objective_ : the ANMI, weighted by known labels; no sweep at T = 0 lowers it
    history_, n_passes_, n_clusters_, converged_

    Notes
    -----
    O(n M K) time a sweep in one thread, because every move changes what the next object sees. Labels are read
    block by block; memory is 4 bytes an object and start, 8 an object for a table of ``x log x``, and O(B^2)
    for the choice of the start. The naive computation, which took the paper an hour for 400 objects, costs
    O(n K) times more. The result is a local optimum, with annealing too. The paper mentions acceptance by
    Boltzmann's law without details; the draw among all clusters, the unit and the schedule are ours.

    References
    ----------
    Strehl and Ghosh (2002), *Cluster ensembles*.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.GreedyANMI(n_clusters=2, random_state=0).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    >>> round(bc.metrics.anmi(labels, model.labels_), 3)
    0.935
    """

    info: ClassVar[MethodInfo] = MethodInfo("Strehl and Ghosh 2002", "labels", distributed=False)

    init: Any = "best"
    temperature: float = 0.0
    max_iter: int = 100

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        check_int("max_iter", self.max_iter)
        check_number("temperature", self.temperature, at_least=0.0)
        n = ensemble.n_objects
        options: dict[str, Any] = {"columns": 1, "in_memory": out is None}
        incidence.check_overlaps_plan(self, ensemble, engine, extra_bytes=12 * n, **options)
        survey = take_survey(ensemble, engine, seed, 0)
        if isinstance(self.init, str):
            codes = self._best_partition(ensemble, engine)
        else:
            codes = checked_clusters(self.init, n, self.n_clusters, "'best'")
            objects = np.setdiff1d(np.flatnonzero(codes < 0), np.asarray(survey.unlabeled))
            if objects.size:
                raise InvalidInputError(
                    f"init is -1 for {objects.size} objects that a partition labels; give each a cluster."
                )
        codes[np.asarray(survey.unlabeled)] = -1
        draw = generator(seed, "greedy.anneal", 0)
        search = _Search(ensemble, engine, codes, self.n_clusters, draw)
        n_annealed, n_moved = N_ANNEALED if self.temperature else 0, 1
        records: list[Record] = []
        with progress("greedy ANMI", n * self.max_iter) as listener:
            while len(records) < self.max_iter and (n_moved or len(records) <= n_annealed):
                start, number, n_moved = time.perf_counter(), len(records) + 1, 0
                temperature = self.temperature * max(n_annealed + 1 - number, 0) / N_ANNEALED
                search.refresh()
                for block in ensemble.blocks():
                    n_moved += search.visit(block, ensemble.read(block.start, block.stop), temperature)
                    listener.advance(block.n_rows)
                record = {"objective": search.anmi, "moved": float(n_moved)}
                records.append(timed("greedy ANMI", number, record, start))
        if n_moved:
            warn_user(
                f"greedy ANMI stopped at max_iter={self.max_iter} while objects still moved; raise max_iter.",
                ConvergenceWarning,
            )
        self.objective_: float = search.anmi
        self.converged_: bool = not n_moved
        self.n_passes_: int = len(records)
        self.history_: dict[str, list[Any]] = as_history(records)
        self._publish(ensemble, codes, survey.unlabeled, out)

    def _best_partition(self, ensemble: Ensemble, engine: Engine) -> np.ndarray:
        """Return the base partition of highest ANMI as codes, undecided objects in the nearest cluster."""
        if self.init != "best":
            raise InvalidInputError(f"init={self.init!r} is unknown; pass 'best' or labels (n_objects,).")
        overlaps, offsets = incidence.fold_overlaps(ensemble, engine), ensemble.offsets
        scores = average_criteria(overlaps, offsets, np.arange(ensemble.n_partitions), "nmi")
        u = int(np.argsort(-scores, kind="stable")[0])
        span = slice(offsets[u], offsets[u + 1])
        largest = np.argsort(-np.diag(overlaps)[span], kind="stable")[: self.n_clusters]
        # the code of each cluster, -1 beyond the largest, and a last -1
        codes = np.full(offsets[u + 1] - offsets[u] + 1, -1, np.int32)
        codes[np.sort(largest)] = np.arange(largest.size)
        table = closeness_to_centers(overlaps[span], offsets)[:, codes[:-1] >= 0]

        def codes_of(block: Block) -> np.ndarray:
            labels = ensemble.read(block.start, block.stop)
            return join_nearest(codes[labels[:, u]], labels, offsets, table)

        return np.concatenate(list(engine.map(codes_of, ensemble.blocks())))


class _Search:
    """One start: its codes, and the counts from which its ANMI follows."""

    def __init__(
        self, ensemble: Ensemble, engine: Engine, codes: np.ndarray, n_clusters: int, rng: np.random.Generator
    ) -> None:
        self.codes = codes
        self.random = rng.integers(2**64, size=1, dtype=np.uint64)
        self.offsets = ensemble.offsets

        def count(block: Block) -> np.ndarray:
            labels = ensemble.read(block.start, block.stop)
            return counts_of(labels, ensemble.offsets, codes[block.start : block.stop], n_clusters)[0]

        # how many objects of each code are in each base cluster (n_clusters, B)
        self.counts = fold(engine, ensemble.blocks(), count, np.add).T.astype(np.int64, order="C")
        self.sizes = np.add.reduceat(self.counts, self.offsets[:-1], axis=1)
        self.n_seen = self.sizes.sum(axis=0)
        self.labels_of_an_object = self.n_seen.sum() / ensemble.n_objects
        x = np.arange(ensemble.n_objects + 2, dtype=np.float64)
        self.F: np.ndarray = x * np.log(np.maximum(x, 1.0))  # 0 at 0
        self.C = np.add.reduceat(self.F[self.counts.sum(axis=0)], self.offsets[:-1])

    def refresh(self) -> None:
        """Recompute the sums from the counts: they accumulate rounding errors as objects move."""
        self.A = np.add.reduceat(self.F[self.counts].sum(axis=0), self.offsets[:-1])
        self.B = self.F[self.sizes].sum(axis=0)

    def visit(self, block: Block, labels: np.ndarray, temperature: float) -> int:
        """Move the objects of a block in turn; return how many moved."""
        codes = self.codes[block.start : block.stop]
        n_moved = sweep(
            *(labels, self.offsets, codes, self.counts, self.sizes, self.n_seen),
            *(self.F, self.A, self.B, self.C),
            *(temperature * self.labels_of_an_object, self.random),
        )
        return int(n_moved)

    @property
    def anmi(self) -> float:
        """The ANMI of the current codes."""
        self.refresh()
        parts = zip(self.A, self.B, self.C, self.n_seen, strict=True)
        return float(sum(weighted_nmi(a, b, c, n, self.F) for a, b, c, n in parts) / self.n_seen.sum())


def best_partition(x: Any, n_clusters: int, *, criterion: str = "nmi") -> tuple[np.ndarray, float]:
    """Return the clustering into exactly ``n_clusters`` clusters of highest average criterion, and its value.

    Enumerates all of them, for tests and teaching: more than a million are refused. ``criterion`` is one of
    `bigcons.metrics` of two clusterings, weighted by known labels: "nmi" makes the average the ANMI (Strehl
    and Ghosh 2002). Of ties the first is returned, with clusters numbered in order of appearance.
    """
    check_choice("criterion", criterion, tuple(SYMMETRIC))
    ensemble = as_ensemble(x)
    n = ensemble.n_objects
    n_clusters = check_int("n_clusters", n_clusters, at_most=n)
    n_candidates = n_clusters**n // math.factorial(n_clusters)  # about
    if n_candidates > (limit := 1_000_000):
        raise InvalidInputError(
            f"{n} objects have some {n_candidates:,} clusterings into {n_clusters}; at most {limit:,} "
            "are enumerated; use fewer objects or GreedyANMI."
        )
    labels, offsets = ensemble.read(0, n), ensemble.offsets
    best, best_score = np.zeros(n, np.int32), -np.inf
    for codes in clusterings(n, n_clusters):
        table = counts_of(labels, offsets, codes, n_clusters)[0].T.astype(np.int64)
        score = mean_over_partitions(SYMMETRIC[criterion], table, offsets, weighted=True)
        if score > best_score + 1e-12:
            best, best_score = codes, score
    return best, best_score


def clusterings(n_objects: int, n_clusters: int, *codes: int) -> Iterator[np.ndarray]:
    """Yield every clustering into exactly ``n_clusters`` clusters once, as restricted growth strings (n,)
    int32: an object's cluster is at most one more than the largest before it. They begin with ``codes``.
    """
    n_used, n_left = max(codes, default=-1) + 1, n_objects - len(codes)
    if n_used + n_left < n_clusters:  # too few objects are left to open the missing clusters
        return
    if not n_left:
        yield np.array(codes, np.int32)
    for k in range(min(n_used + 1, n_clusters) if n_left else 0):
        yield from clusterings(n_objects, n_clusters, *codes, k)


# The base clustering that agrees best with the others


DISTANCES = ("van_dongen", "variation_of_information")
"""The criteria that are minimized."""


class BEST(ConsensusClusterer):
    """Return the base clustering that agrees best with all, by a consensus criterion.

    Parameters
    ----------
    n_clusters : int, default=8
        Maximum number of clusters of a partition to be considered.
    criterion : str, default="nmi"
        What is averaged over the partitions: "adjusted_rand", "matching_accuracy", "nmi", "rand_index",
        "van_dongen" or "variation_of_information". Distances are minimized, the others maximized.
    unlabeled : {"nearest", "missing"}, default="nearest"
        What happens to objects that other partitions label but the winner does not: "nearest" assigns them to
        the nearest cluster center, by the partitions that label them, and "missing" gives them -1. The center
        of a cluster has the share of its objects in every base cluster.
    resume : bool, default=True
        Whether a repeated call finds its finished result at ``out``.
    random_state : int, RandomState, Generator or None, default=None
        Not used: nothing is random.
    memory : str, int or None, default=None
        Memory budget such as "2GB"; a fit that would need more is refused before it starts.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_ : (n_objects,) int32, the clusters of the winner, -1 for objects that no partition labeled
    objective_ : the average criterion of the winner, over the objects that it labels itself
    best_partition_ : index of the winner
    scores_ : (n_partitions,) the average criterion of every partition, NaN for those with too many clusters
    history_ : a list per quantity with one entry

    Notes
    -----
    Two partitions are compared on the objects that both label, and every partition also with itself. All
    contingency tables are blocks of the overlaps of base clusters, which take one pass. O(n M^2 + B^2) time,
    O(B^2) memory for B base clusters; three passes in all.

    References
    ----------
    Gionis, Mannila and Tsaparas (2007), *Clustering aggregation*; Nguyen and Caruana (2007).

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.BEST(n_clusters=2, unlabeled="nearest").fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    """

    info: ClassVar[MethodInfo] = MethodInfo("Gionis et al. 2007", "base-cluster overlaps")

    criterion: str = "nmi"
    unlabeled: str = "nearest"

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        check_choice("criterion", self.criterion, tuple(SYMMETRIC))
        self._is_limit = True
        check_choice("unlabeled", self.unlabeled, ("nearest", "missing"))
        candidates = np.flatnonzero(ensemble.n_clusters <= self.n_clusters)
        if not candidates.size:
            raise InvalidInputError(
                f"n_clusters={self.n_clusters} but every partition has at least "
                f"{ensemble.n_clusters.min()} clusters; allow as many."
            )
        incidence.check_overlaps_plan(self, ensemble, engine, columns=1, in_memory=out is None)
        survey = take_survey(ensemble, engine, seed, 0)
        overlaps = incidence.fold_overlaps(ensemble, engine)
        self.scores_: np.ndarray = average_criteria(overlaps, ensemble.offsets, candidates, self.criterion)
        best = np.nanmin if self.criterion in DISTANCES else np.nanmax
        self.best_partition_: int = int(np.flatnonzero(self.scores_ == best(self.scores_))[0])
        self._note_pass(float(self.scores_[self.best_partition_]))
        offsets, winner = ensemble.offsets, self.best_partition_
        table = None
        if self.unlabeled == "nearest":
            table = closeness_to_centers(overlaps[offsets[winner] : offsets[winner + 1]], offsets)

        def read(block: Block) -> np.ndarray:
            labels = ensemble.read(block.start, block.stop)
            codes = labels[:, winner].astype(np.int32)
            return codes if table is None else join_nearest(codes, labels, offsets, table)

        self._publish(ensemble, read, survey.unlabeled, out, engine)


def average_criteria(
    overlaps: np.ndarray, offsets: np.ndarray, candidates: np.ndarray, criterion: str
) -> np.ndarray:
    """Return the average criterion (M,) of each candidate with all partitions, NaN for the others.

    Partitions count by the objects that they and the candidate label: by "nmi" it is the ANMI, see
    `bigcons.metrics.anmi`. Contingency tables in a batch have about a million cells.
    """
    scores = np.full(len(offsets) - 1, np.nan)
    n_labels = float(np.trace(overlaps)) if criterion == "nmi" else None
    n_clusters, function = np.diff(offsets), SYMMETRIC[criterion]
    for k in np.unique(n_clusters[candidates]):
        group = candidates[n_clusters[candidates] == k]
        # no batch of one: numpy would sum in another order, and equal partitions must score the same
        n_parts = max(1, min(len(group) // 2, len(group) * k * len(overlaps) >> 20))
        for batch in np.array_split(group, n_parts):
            rows = offsets[batch] + np.arange(k)[:, None]
            total, weight = np.zeros(len(batch)), np.zeros(len(batch))
            for n_others in np.unique(n_clusters):
                columns = offsets[:-1][n_clusters == n_others] + np.arange(n_others)[:, None]
                # tables last, for sums over many at once
                tables = overlaps[rows[:, None, :, None], columns[:, None, :]]
                sizes = tables.sum(axis=(0, 1))
                tables[0, 0][sizes == 0] = 1.0  # avoids a table without objects; its weight is 0
                values = function(np.moveaxis(tables, (0, 1), (-2, -1)))
                total += (values * sizes).sum(axis=1)
                weight += sizes.sum(axis=1)
            # of the ANMI, the labels of objects that a candidate leaves out count 0
            scores[batch] = total / (weight if n_labels is None else n_labels)
    return scores


def join_nearest(codes: np.ndarray, labels: np.ndarray, offsets: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Return codes (rows,), where objects without one get the cluster of the nearest center."""
    undecided = codes < 0
    votes, _ = incidence.votes_of(np.ascontiguousarray(labels[undecided]), offsets, table)
    codes[undecided] = votes.argmax(axis=1)
    return codes


def closeness_to_centers(counts: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the table (B, k) whose votes are largest for the nearest center of k clusters.

    ``counts`` (k, B) are the objects of each cluster in every base cluster. With ``p_b`` the share of a
    cluster's objects in base cluster b, of those that its partition labels, the squared distance of an object
    to the center over one partition is ``1 - 2 p_b + sum_b' p_b'^2``.
    """
    partition = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    n_labeled = np.add.reduceat(counts, offsets[:-1], axis=1)[:, partition].astype(np.float64)
    centers = np.divide(counts, n_labeled, out=np.zeros_like(n_labeled), where=n_labeled > 0)
    squares = np.add.reduceat(centers**2, offsets[:-1], axis=1)[:, partition]
    return np.asarray((2.0 * centers - squares).T)


# The supra-consensus: the best of several methods


class Supra(ConsensusClusterer):
    """Supra-consensus: solve by several methods and keep the result of highest ANMI.

    Parameters
    ----------
    n_clusters : int or sequence of int, default=8
        Maximum number of clusters; of several, such as ``range(2, 11)``, all are tried with every member.
    members : str or sequence of str or estimators, default=("cspa", "hgpa", "mcla")
        The methods: names from `METHODS`, which may have parameters, such as "cspa(partitioner=metis)", as a
        sequence or separated by commas; or estimators, such as ``CSPA(partitioner="metis")``, which are
        cloned. All take the ``n_clusters``, ``random_state``, ``memory`` and ``client`` given here. The
        paper's own are "cspa(partitioner=metis), hgpa, mcla(partitioner=metis)".
    resume : bool, default=True
        Whether a repeated call finds its finished result at ``out``.
    random_state : int, RandomState, Generator or None, default=None
        Seed; one seed gives the same bits on any engine and any number of workers.
    memory : str, int or None, default=None
        Memory budget such as "2GB"; a fit that would need more is refused before it starts.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_ : (n_objects,) int32, -1 for objects that no partition labeled
    objective_ : the ANMI of the winner: see `bigcons.metrics.anmi`
    scores_ : the ANMI by member and number of clusters, as in ``scores_["cspa"][8]``
    best_member_ : the winning member, as the text that was given or its estimator as text; the first on ties
    best_n_clusters_ : the number of clusters that the winner was asked for; the first given on ties
    history_ : the number of clusters asked for and the ANMI, one entry for every consensus tried
    n_clusters_

    Notes
    -----
    It costs the sum of its members, and a pass for each consensus to score it. It runs out of core if its
    members do; for HGPA among the defaults, use "hgpa(objective=laplacian)". If a member refuses the
    ensemble, for example for its size, so does this method, rather than leave the member out silently. (The
    authors' code drops CSPA above 1,000 objects, which the spectral CSPA makes unnecessary.) Objects that a
    member leaves without a label count against it.

    References
    ----------
    Strehl and Ghosh (2002), *Cluster ensembles*.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.Supra(n_clusters=2, members=("cspa", "mcla", "hbgf"), random_state=0).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    >>> sorted(model.scores_)
    ['cspa', 'hbgf', 'mcla']
    """

    info: ClassVar[MethodInfo] = MethodInfo("Strehl and Ghosh 2002", "labels", out_of_core=False)

    members: str | Sequence[str | ConsensusClusterer] = ("cspa", "hgpa", "mcla")

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        entries: Any = self.members
        entries = re.split(r",(?![^(]*\))", entries) if isinstance(entries, str) else entries
        members: dict[str, ConsensusClusterer] = {}
        for item in entries if isinstance(entries, (list, tuple)) and entries else [entries]:
            member = _parsed(item) if isinstance(item, str) else item
            if not isinstance(member, ConsensusClusterer) or isinstance(member, Supra):
                raise InvalidInputError(
                    f"members has {item!r}; give methods such as 'cspa' or CSPA(), other than Supra itself.",
                    parameter="members",
                )
            members[item.strip() if isinstance(item, str) else repr(item)] = member
        survey = take_survey(ensemble, engine, seed, 0)
        self.scores_: dict[str, dict[int, float]] = {name: {} for name in members}
        self.history_: dict[str, list[Any]] = {"n_clusters": [], "objective": []}
        best = np.empty(0, np.int32)
        self.objective_: float = -1.0
        options = {"random_state": seed, "memory": self.memory, "out": None, "client": engine}
        for (name, member), n_clusters in product(members.items(), self._numbers()):
            model = clone(member).set_params(n_clusters=n_clusters, **options)
            with warnings.catch_warnings():  # this fit has already warned of objects without labels
                warnings.simplefilter("ignore", UnlabeledObjectsWarning)
                labels = np.asarray(model.fit(ensemble).labels_)
            score = anmi(ensemble, labels, client=engine)
            logger.info("supra-consensus: %s with %d clusters has ANMI %.6g", name, n_clusters, score)
            self.scores_[name][n_clusters] = score
            self.history_["n_clusters"].append(n_clusters)
            self.history_["objective"].append(score)
            if score > self.objective_:
                best, self.objective_ = labels, score
                self.best_member_: str = name
                self.best_n_clusters_: int = n_clusters
        K, unlabeled = self.best_n_clusters_, survey.unlabeled
        self._publish(ensemble, best, unlabeled, out, n_clusters=K)

    def _check_n_clusters(self, number: Any, n_objects: int) -> None:  # noqa: ARG002 - each number of it
        for n_clusters in self._numbers():
            super()._check_n_clusters(n_clusters, n_objects)

    def _numbers(self) -> list[int]:
        """Return the numbers of clusters to try."""
        numbers: Any = self.n_clusters
        if (isinstance(numbers, Sequence) and not isinstance(numbers, str)) or np.ndim(numbers) == 1:
            return [int(K) if isinstance(K, np.integer) else K for K in numbers]
        return [numbers]  # checked later


def _parsed(text: str) -> ConsensusClusterer:
    """Return the estimator of a text such as "cspa" or "cspa(partitioner=metis)"."""
    name, _, arguments = text.strip().partition("(")
    parameters: dict[str, Any] = {}
    try:
        for assignment in arguments.removesuffix(")").split(",") if arguments else ():
            key, value = (part.strip() for part in assignment.split("="))
            parameters[key] = value
            with suppress(SyntaxError, ValueError):  # a number, True or None, no text
                parameters[key] = ast.literal_eval(value)
        return METHODS[name.strip()](**parameters)
    except (KeyError, ValueError, TypeError) as error:
        raise InvalidInputError(
            f"members has {text!r}, which is none ({error}); give names of methods, with parameters as in "
            "cspa(partitioner=metis).",
            parameter="members",
        ) from None
