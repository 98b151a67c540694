"""Before a solve: the memory it needs, checked against the budget, and one read of the labels.

The read counts, finds objects without labels, and takes a sample of rows: see `Drawing`.
"""

from __future__ import annotations

import logging
import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from bigcons import errors
from bigcons.errors import InvalidInputError, MemoryBudgetError, warn_user
from bigcons.io.labels import default_chunk_rows, label_dtype, observed, partition_names
from bigcons.kernels import draws
from bigcons.memory import (
    PROCESS_BYTES,
    WORKER_BYTES,
    Block,
    DataBudget,
    RowSet,
    beside_processes,
    enough_for,
    format_size,
    parse_size,
)  # fmt: skip
from bigcons.run.engine import Engine, fold
from bigcons.seeding import draw_rows, generator
from bigcons.store.ensemble import Ensemble
from bigcons.store.ensemble_store import Header
from bigcons.store.ensemble_store import reading_bytes as rows_reading_bytes
from bigcons.weights import counts_of

logger: logging.Logger = logging.getLogger("bigcons")


class MemoryPlan(NamedTuple):
    """Memory of a solve in bytes, excluding its processes."""

    held: int
    """For the whole solve."""
    per_block: int = 0
    """For each block being processed."""
    per_result: int = 0
    """For each block result in transit."""

    def n_bytes(self, engine: Engine, ensemble: Ensemble) -> int:
        """Return the total, including the processes and their read buffers."""
        n_results = engine.in_flight + engine.n_workers  # each worker adds to one
        data = self.held + self.per_block * engine.n_workers + self.per_result * n_results
        return process_bytes(engine) + reading_bytes(engine, ensemble) + data

    def check(
        self,
        name: str,
        engine: Engine,
        ensemble: Ensemble,
        memory: str | float | None,
        remedy: str = "",
        *,
        limit: float = math.inf,
    ) -> None:
        """Log the needs of the method ``name``, and raise MemoryBudgetError if they exceed ``memory``.

        ``remedy`` continues "raise it to X". Without ``memory``, data may take ``limit`` bytes. A Dask worker
        whose own limit is too small is refused, too.
        """
        worker_bytes = WORKER_BYTES + _reading_bytes(ensemble, 1, 1, is_sent=True)
        engine.check_limits(name, worker_bytes, self.per_block + 2 * self.per_result)
        total, processes = self.n_bytes(engine, ensemble), MemoryPlan(0).n_bytes(engine, ensemble)
        sizes = (format_size(n_bytes) for n_bytes in (total, processes, *self))
        logger.info("%s plan: %s: %s for processes, %s held, blocks of %s, results of %s", name, *sizes)
        budget = processes + limit if memory is None else parse_size(memory)
        if total > budget:
            default = " by default" if memory is None else ""
            raise MemoryBudgetError(
                f"{name} needs {format_size(total)}, over memory={format_size(budget)}{default}; "
                f"raise it to {enough_for(total)}{remedy}.",
                needed=total,
                budget=budget,
            )


class LabelsNeededError(Exception):
    """A label of an ensemble that is yet to be made was asked for."""


class PlannedEnsemble(Ensemble):
    """The shape of an ensemble yet to be made at ``path``, by which to plan its solve.

    Its partitions have at most ``n_clusters`` (M,) clusters. Asking for labels, or blocks of them, raises
    LabelsNeededError.
    """

    def __init__(self, path: str, n_objects: int, n_clusters: np.ndarray) -> None:
        names, sizes = partition_names(None, len(n_clusters)), np.full(len(n_clusters), n_objects)
        rows = default_chunk_rows(n_objects, len(names))
        nothing = np.broadcast_to(np.zeros((), label_dtype(n_clusters)), (n_objects, len(names)))
        super().__init__(nothing, Header(n_objects, names, n_clusters, sizes, rows, {}), [None] * len(names))
        self.path: str | None = path

    def read(self, *_: Any, **__: Any) -> Any:
        """Raise LabelsNeededError, as all that needs labels."""
        raise LabelsNeededError

    blocks: Any = read
    read_rows: Any = read
    load: Any = read


def data_budget(memory: str | float | None, engine: Engine, ensemble: Ensemble) -> DataBudget:
    """Return what ``memory``, if given, leaves for data after processes and the labels they hold; or 4 GB."""
    n_bytes = process_bytes(engine) + (reading_bytes(engine, ensemble) if ensemble.path is None else 0)
    return beside_processes(memory, n_bytes)


def process_bytes(engine: Engine) -> int:
    """Return the memory of the processes of a solve without data, on the machine that runs most of them.

    It is what they take at most, so that a plan depends on the call alone: what this process has loaded,
    compiled or kept so far, and what it will, cannot be told from its size.
    """
    return PROCESS_BYTES + WORKER_BYTES * (engine.n_processes - 1)


def reading_bytes(engine: Engine, ensemble: Ensemble) -> int:
    """Return what reading takes in all processes, besides blocks: buffers, or an ensemble in memory."""
    return _reading_bytes(ensemble, engine.n_processes, engine.n_workers, is_sent=not engine.shares_memory)


def _reading_bytes(ensemble: Ensemble, n_processes: int, n_workers: int, *, is_sent: bool) -> int:
    if ensemble.path is None:
        # Sent to workers, each process has it pickled, too, and as much again that it has freed and not
        # returned; the scheduler has what it passes on.
        copies = 4 * n_processes + 1 if is_sent else 1
        return label_bytes(ensemble, ensemble.n_objects) * copies
    # the client reads nothing, unless the workers are its threads
    n_readers = max(n_processes - 1, 1) if is_sent else 1
    if ensemble.stored is not None:
        return ensemble.stored.reading_bytes(n_readers, n_workers)
    return rows_reading_bytes(ensemble.chunk_rows, ensemble.row_bytes, ensemble.dtype, n_workers)


def block_label_bytes(ensemble: Ensemble) -> int:
    """Return the memory of one block's labels and their mask, doubled for (measured) allocator overhead."""
    return 4 * ensemble.chunk_rows * ensemble.row_bytes


def label_bytes(ensemble: Ensemble, n_rows: int) -> int:
    """Return the bytes of the labels, or memberships, of ``n_rows`` objects."""
    return n_rows * ensemble.row_bytes


# One read of the labels


class Survey(NamedTuple):
    """Facts of an ensemble that solves start from."""

    unlabeled: RowSet
    """The objects without any label."""
    sample: np.ndarray
    """(rows, M) labels, or memberships, of some objects, in order: see `Drawing`."""
    rows: np.ndarray
    """(rows,): which objects the sample has."""
    times: np.ndarray
    """(rows,): how many objects each stands for, in proportion; 1 in the mean."""
    is_uniform: np.ndarray
    """(rows,) bool: whether an object is one of those drawn uniformly."""

    def undersamples(self, ensemble: Ensemble, n_clusters: int, fewest_labels: int) -> bool:
        """Return whether the sample has fewer labels for each base cluster, which are many and small."""
        n_labels, B = int(np.count_nonzero(self.sample >= 0)), ensemble.n_base_clusters
        is_finer = not ensemble.is_soft and 3 * n_clusters * ensemble.n_partitions < B
        return is_finer and n_labels < fewest_labels * B and len(self.sample) < ensemble.n_objects


def mean_pair_weight(n_seen: np.ndarray, n_objects: int, weights: np.ndarray | None = None) -> float:
    """Return the mean over the objects of ``sum_j N_ij``, partitions weighted by ``weights``.

    ``n_seen (M,)``: number of objects that each partition labels.
    """
    counts = n_seen.astype(np.float64)
    weights = np.ones_like(counts) if weights is None else weights
    return max(float((weights * counts * (counts - 1.0)).sum()) / n_objects, float(weights.mean()))


def find_dissent(sample: np.ndarray) -> np.ndarray:
    """Return the partitions that agree with no other: surely by less than a tenth of the median.

    The agreement of two partitions of k and l clusters is the square of Tschuprow's coefficient,
    ``chi^2 / (n sqrt((k - 1) (l - 1)))``, less its mean under independence: 0 if they are independent. It is
    not judged for fewer objects than 50 or than ``(k - 1) (l - 1)``, and with at most 17 others. O(m M) time
    for ``m`` rows.
    """
    rows = sample[:: max(len(sample) // 1024, 1)][:1024]
    codes = np.full((len(rows), rows.shape[1]), -1)  # without gaps
    for u, column in enumerate(rows.T):
        codes[column >= 0, u] = np.unique(column[column >= 0], return_inverse=True)[1]
    sizes, M = codes.max(axis=0, initial=-1) + 1, codes.shape[1]
    references = np.unique(np.linspace(0, M - 1, min(M, 17)).astype(np.int64))
    agreement = np.full((M, references.size), np.nan)
    for place, v in enumerate(references):
        n_cells = np.maximum(sizes - 1, 0) * max(sizes[v] - 1, 0)
        partners = np.flatnonzero((n_cells > 0) & (n_cells <= len(rows)) & (np.arange(M) != v))
        if not partners.size:
            continue
        offsets = np.concatenate([[0], np.cumsum(sizes[partners])])
        table, _ = counts_of(codes[:, partners], offsets, codes[:, v], sizes[v])
        in_first, in_second = table.sum(axis=1), np.add.reduceat(table, offsets[:-1])
        expected = in_first[:, None] * np.repeat(in_second, sizes[partners], axis=0)
        squares = (table**2 / np.maximum(expected, 1)).sum(axis=1)
        chi, n = np.add.reduceat(squares, offsets[:-1]) - 1.0, in_second.sum(axis=1)
        n_first = np.add.reduceat((in_first > 0).astype(np.int64), offsets[:-1])
        freedom = (n_first - 1) * (np.count_nonzero(in_second, axis=1) - 1)
        is_judged = (n >= np.maximum(50, n_cells[partners])) & (freedom > 0)
        chi, n, freedom = chi[is_judged], n[is_judged], freedom[is_judged]
        agreement[partners[is_judged], place] = (chi - freedom / (n - 1)) / np.sqrt(freedom)
    n_others = np.count_nonzero(~np.isnan(agreement), axis=1)
    partitions = np.flatnonzero(n_others >= 4)
    if not partitions.size:
        return partitions
    mean = np.nanmean(agreement[partitions], axis=1)
    error = np.nanstd(agreement[partitions], axis=1) / np.sqrt(n_others[partitions])
    median = float(np.median(mean))
    # Random partitions had less than .02 of the median agreement; the least of partitions by two random
    # features of digits, the most diverse we measured, had .13. Where hardly any agree, no partition stands
    # out.
    return partitions[(mean + 2 * error < 0.1 * median) & (median >= 0.02)]


def warn_of_dissent(survey: Survey, ensemble: Ensemble, weights: np.ndarray | None, remedy: str) -> None:
    """Warn of partitions of weight > 0 that agree with no other, by the sample of the survey.

    Of more than a thousand partitions, as many are judged.
    """
    if ensemble.is_soft or "generator" in ensemble.provenance:  # none is a stray column
        return
    partitions = np.arange(ensemble.n_partitions) if weights is None else np.flatnonzero(weights > 0)
    noun = "partitions"
    if partitions.size > 1000:  # evenly spaced
        partitions, noun = partitions[np.arange(1000) * partitions.size // 1000], "partitions examined"
    alone = partitions[find_dissent(survey.sample[survey.is_uniform][:, partitions])]
    if alone.size:
        names = ", ".join(ensemble.names[u] for u in alone[:3]) + (", ..." if alone.size > 3 else "")
        warn_user(
            f"{alone.size} of {partitions.size} {noun} agree with no other ({names}); {remedy}.",
            errors.DissentWarning,
        )


def start_rows(ensemble: Ensemble, n_clusters: int) -> int:
    """Return the size of the sample on which starts run: 4,096 objects, or more for many clusters.

    A partition then has 16 labels for each cluster, unless these are more than two million labels. With 2
    (100,000 objects, 50 partitions, half missing), KCC and the mixture model lost all of 1,000 planted
    classes.
    """
    n, n_labels = ensemble.n_objects, max(int(ensemble.n_labeled.sum()), 1)
    enough = -(-16 * n_clusters * n * ensemble.n_partitions // n_labels)
    return min(n, max(4096, min(enough, (1 << 21) * n // n_labels)))


def link_partitions(labeled: np.ndarray) -> np.ndarray:
    """Return the first partition (M,) that each is linked to by the objects that are ``labeled`` (rows, M).

    Partitions are linked that label some of the same objects, directly or by way of others. O(rows M) time a
    group.
    """
    M = labeled.shape[1]
    # a part of the objects of a block that nearly always links all of its partitions
    part = labeled[: len(labeled) // 32]
    if len(part) and not (group := link_partitions(part)).any():
        return group  # the rest can link no more
    group, rows = np.arange(M), labeled[labeled.any(axis=1)]
    while len(rows):
        members, wider = np.zeros(M, bool), rows[np.argmax(rows.sum(axis=1))]
        while (wider != members).any():
            members = wider
            touching = rows[:, members].any(axis=1)
            wider = rows[touching].any(axis=0)
        group[members] = np.flatnonzero(members)[0]
        rows = rows[~touching]
    return group


class Drawn(NamedTuple):
    """What a `Drawing` has taken from some of the blocks."""

    rows: np.ndarray
    """(rows,): which objects."""
    labels: np.ndarray
    """(rows, M) or, of memberships, (rows, B)."""
    keys: np.ndarray
    """(S, m + 1) uint64, ascending: the least random numbers of the objects of each base cluster."""
    least: np.ndarray
    """(S, m + 1): these objects."""


class Drawing:
    """The draw of a sample, uniform or of rare base clusters, too, in one read of the labels.

    With ``is_balanced``, at most half of the objects are those with the least random numbers of every base
    cluster, as many of each; of more base clusters than that, one of each of evenly spaced partitions. In
    each partition objects have other numbers, so the more partitions have an object in small base clusters,
    the more certainly it is in the sample: a cluster that a uniform sample has no object of, and all
    partitions show, is seen. In clustering that is known as sampling by sensitivity (Feldman and Langberg
    2011), and the least of random numbers as bottom-k (Cohen and Kaplan 2007). Others are drawn uniformly
    until there are ``n_rows``. What is drawn does not depend on the blocks.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        seed: int,
        n_rows: int,
        stream: str,
        weights: np.ndarray | None = None,
        *,
        is_balanced: bool = True,
    ) -> None:
        n, M, widths = ensemble.n_objects, ensemble.n_partitions, np.diff(ensemble.offsets)
        partitions = np.arange(M) if weights is None else np.flatnonzero(weights > 0)
        limit = n_rows // 2 if is_balanced and n_rows < n else 0
        n_each = limit // int(widths[partitions].sum())
        if n_each == 0 and limit:
            n_chosen = limit * partitions.size // int(widths[partitions].sum())
            partitions = partitions[np.arange(n_chosen) * partitions.size // max(n_chosen, 1)]
            partitions = partitions[np.cumsum(widths[partitions]) <= limit]
            n_each = int(partitions.size > 0)
        self._offsets, self._n_objects = ensemble.offsets, n
        self._partitions = partitions[: M if n_each else 0]
        self._starts = np.concatenate([[0], np.cumsum(widths[self._partitions])])
        self._shape = int(self._starts[-1]), n_each + 1
        self._uniform_rows, self._n_rows = draw_rows(n, n_rows, seed, stream), n_rows
        self._turns = generator(seed, f"{stream}.turns").permutation(self._uniform_rows.size)
        numbers = generator(seed, f"{stream}.keys").integers(1 << 64, size=M + 1, dtype=np.uint64)
        self._key, self._factors = numbers[0], numbers[1:][self._partitions] | np.uint64(1)

    def of_block(self, block: Block, labels: np.ndarray) -> Drawn:
        """Return the objects drawn from a block of labels, or memberships."""
        keys, least = np.full(self._shape, np.iinfo(np.uint64).max, np.uint64), np.full(self._shape, -1)
        draws.keep_least(
            *(largest(labels, self._offsets), self._partitions, self._starts[:-1], block.start),
            *(self._key, self._factors, keys, least),
        )
        rows = np.union1d(block.rows_of(self._uniform_rows) + block.start, least[:, :-1][least[:, :-1] >= 0])
        return Drawn(rows, labels[rows - block.start], keys, least)

    def add(self, left: Drawn, right: Drawn) -> Drawn:
        """Return the objects drawn from the blocks of both, ``left`` before ``right``."""
        keys, least = np.hstack([left.keys, right.keys]), np.hstack([left.least, right.least])
        order = np.argsort(keys, axis=1, kind="stable")[:, : self._shape[1]]
        keys, least = np.take_along_axis(keys, order, axis=1), np.take_along_axis(least, order, axis=1)
        rows, labels = np.concatenate([left.rows, right.rows]), np.concatenate([left.labels, right.labels])
        is_kept = np.isin(rows, self._uniform_rows) | np.isin(rows, least[:, :-1])
        return Drawn(rows[is_kept], labels[is_kept], keys, least)

    def finish(self, drawn: Drawn) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the sample of all blocks: labels, rows, times and whether drawn uniformly, as of `Survey`.

        An object counts by the reciprocal of the chance to be in the sample, given the numbers of others.
        """
        rows, turns = drawn.rows, np.full(drawn.rows.size, self._uniform_rows.size)
        turns[np.isin(rows, self._uniform_rows)] = self._turns[np.isin(self._uniform_rows, rows)]
        is_rare = np.isin(rows, drawn.least[:, :-1])
        pool = np.sort(turns[~is_rare])  # as many of these are drawn as make the sample full
        n_drawn = np.append(pool, self._uniform_rows.size)[min(self._n_rows - int(is_rare.sum()), pool.size)]
        is_uniform = turns < n_drawn
        is_kept = is_rare | is_uniform
        rows, is_uniform = rows[is_kept], is_uniform[is_kept]
        labels = np.ascontiguousarray(drawn.labels[is_kept])
        if not self._partitions.size:
            return labels, rows, np.ones(rows.size), is_uniform
        least = np.append(np.minimum(drawn.keys[:, -1] * 2.0**-53, 1.0), 0.0)
        cells = largest(labels, self._offsets)[:, self._partitions].astype(np.int64)
        cells = np.where(cells >= 0, cells + self._starts[:-1], -1)
        with np.errstate(divide="ignore"):  # of objects that are surely in the sample
            log_chances = np.log1p(-least)[cells].sum(axis=1) + np.log1p(-n_drawn / self._n_objects)
        times = -1.0 / np.expm1(log_chances)
        return labels, rows, times / times.mean(), is_uniform


def largest(rows: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return labels (rows, M) as they are; of memberships (rows, B), the largest, -1 where there are none."""
    if rows.dtype.kind != "f":
        return rows
    best = [rows[:, a:b].argmax(axis=1) for a, b in pairwise(offsets)]
    return np.where(observed(rows, offsets), np.stack(best, axis=1), -1)


def take_survey(
    ensemble: Ensemble,
    engine: Engine,
    seed: int,
    sample_size: int,
    weights: np.ndarray | None = None,
    *,
    is_balanced: bool = False,
) -> Survey:
    """Read every block once, in O(n M) time; warn of objects without labels in partitions of weight > 0, and
    of groups of objects that no partition labels together.

    The sample is uniform or, with ``is_balanced``, has rare base clusters, too: see `Drawing`.
    """
    n = ensemble.n_objects
    drawing = Drawing(ensemble, seed, sample_size, "survey.sample", weights, is_balanced=is_balanced)

    def survey_block(block: Block) -> tuple[Any, ...]:
        labels = ensemble.read(block.start, block.stop)
        is_labeled = observed(labels, ensemble.offsets)
        is_counted = is_labeled if weights is None else is_labeled[:, weights > 0]
        first = is_counted.argmax(axis=1)
        labeled = np.take_along_axis(is_counted, first[:, None], axis=1)[:, 0]
        firsts = np.bincount(first[labeled], minlength=is_counted.shape[1])
        unlabeled = [] if labeled.all() else [(block, np.packbits(~labeled))]
        return firsts, unlabeled, link_partitions(is_counted), drawing.of_block(block, labels)

    def add(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
        links = np.concatenate([np.equal.outer(np.unique(group), group) for group in (a[2], b[2])])
        return a[0] + b[0], a[1] + b[1], link_partitions(links), drawing.add(a[3], b[3])

    firsts, unlabeled, group, drawn = fold(engine, ensemble.blocks(), survey_block, add, progress="survey")
    sizes = np.bincount(group, firsts).astype(np.int64)  # of objects, by their first labels
    groups = np.sort(sizes[sizes > 0])[::-1]
    survey = Survey(RowSet(unlabeled), *drawing.finish(drawn))
    if survey.unlabeled.size == n:
        raise InvalidInputError(f"all {n} objects are unlabeled; at least one partition must label some.")
    if survey.unlabeled.size:
        warn_user(
            f"{survey.unlabeled.size:,} of {n:,} objects have no label in any partition; they get label -1 "
            "(and uniform memberships, if the method has any).",
            errors.UnlabeledObjectsWarning,
        )
    if groups.size > 1:
        listing = ", ".join(f"{size:,}" for size in groups[:5]) + (", ..." * (groups.size > 5))
        warn_user(
            f"the objects are in {groups.size} groups ({listing}) that no partition labels together: "
            "nothing tells how their clusters correspond, so compare clusters within a group only.",
            errors.DisconnectedWarning,
        )
    return survey
