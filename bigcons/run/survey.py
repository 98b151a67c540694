"""One read of the labels before a solve: counts, unlabeled objects and a uniform sample of rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigcons.errors import (
    DisconnectedWarning,
    DissentWarning,
    InvalidInputError,
    UnlabeledObjectsWarning,
    warn_user,
)
from bigcons.io.labels import observed
from bigcons.memory import Block
from bigcons.progress import progress
from bigcons.run.engine import Engine, fold, one_thread
from bigcons.seeding import draw_rows
from bigcons.store.ensemble import Ensemble


class Survey(NamedTuple):
    """Facts of an ensemble that solves start from."""

    n_objects: int
    n_seen: np.ndarray
    """(M,) number of objects with a label in each partition."""
    unlabeled: np.ndarray
    """Indices of the objects without any label."""
    sample: np.ndarray
    """(sample_size, M) labels, or memberships, of objects drawn uniformly without replacement, in order."""
    groups: np.ndarray
    """Sizes of the groups of objects that no partition labels together, largest first."""
    rows: np.ndarray
    """(sample_size,): which objects the sample has."""

    @property
    def mean_weight(self) -> float:
        """Mean over the objects of ``sum_j N_ij``: the scale of a KKT gap over all pairs."""
        return mean_pair_weight(self.n_seen, self.n_objects)

    def joined_share(self, weights: np.ndarray | None = None) -> float:
        """Return the share of co-clustered pairs among the sampled objects, over partitions that label both.

        Partitions are weighted by ``weights``. NaN if no partition labels two objects.
        """
        sizes = [np.unique(column[column >= 0], return_counts=True)[1] for column in self.sample.T]
        seen = np.array([of_clusters.sum() for of_clusters in sizes])
        joined = np.array([(of_clusters * (of_clusters - 1)).sum() for of_clusters in sizes])
        weights = np.ones(seen.size) if weights is None else weights
        pairs = float(weights @ (seen * (seen - 1)))
        return float(weights @ joined) / pairs if pairs else float("nan")

    def is_fine(self, ensemble: Ensemble, n_clusters: int, fewest_labels: int) -> bool:
        """Return whether the sample has fewer labels for each base cluster, which are many and small."""
        n_labels, B = int(np.count_nonzero(self.sample >= 0)), ensemble.n_base_clusters
        is_finer = not ensemble.is_soft and 3 * n_clusters * ensemble.n_partitions < B
        return is_finer and n_labels < fewest_labels * B and len(self.sample) < ensemble.n_objects


def mean_pair_weight(n_seen: np.ndarray, n_objects: int, weights: np.ndarray | None = None) -> float:
    """Return the mean over the objects of ``sum_j N_ij``, partitions weighted by ``weights``.

    ``n_seen (M,)``: number of objects that each partition labels.
    """
    seen = n_seen.astype(np.float64)
    weights = np.ones_like(seen) if weights is None else weights
    return max(float((weights * seen * (seen - 1.0)).sum()) / n_objects, float(weights.mean()))


def agreements(sample: np.ndarray) -> np.ndarray:
    """Return the agreement (M, others) of each partition with at most 17, NaN where it cannot be told.

    The agreement of two partitions of k and l clusters is the square of Tschuprow's coefficient,
    ``chi^2 / (n sqrt((k - 1) (l - 1)))``, less its mean under independence: 0 if they are independent. It is
    NaN with itself, and for fewer objects than 50 or than ``(k - 1) (l - 1)``. O(m M) time for ``m`` rows.
    """
    spaced = sample[:: max(len(sample) // 1024, 1)][:1024]
    columns = np.full(spaced.T.shape, -1)  # codes without gaps
    for u, column in enumerate(spaced.T):
        columns[u, column >= 0] = np.unique(column[column >= 0], return_inverse=True)[1]
    M = len(columns)
    sizes = columns.max(axis=1, initial=-1) + 1
    others = np.unique(np.linspace(0, M - 1, min(M, 17)).astype(np.int64))
    others = others[np.argsort(sizes[others], kind="stable")]
    # codes as zeros and ones (rows, codes), of which products are exact
    marks = np.concatenate([columns[v][:, None] == np.arange(max(sizes[v], 1)) for v in others], axis=1)
    marks = marks.astype(np.float32)
    starts = np.cumsum([0, *np.maximum(sizes[others], 1)])
    found = np.full((M, others.size), np.nan)
    with one_thread(user_api="blas"):  # on a busy machine, more would wait for each other
        for u in range(M):
            n_cells = (sizes[u] - 1) * (sizes[others] - 1)
            told = np.count_nonzero(n_cells <= len(spaced))  # the first ones, with the fewest clusters
            if not told:
                continue
            own = (np.arange(max(sizes[u], 1))[:, None] == columns[u]).astype(np.float32)
            tables = (own @ marks[:, : starts[told]]).astype(np.float64)
            first, width = starts[:told], np.diff(starts[: told + 1])
            rows, totals = np.add.reduceat(tables, first, axis=1), tables.sum(axis=0)
            n = rows.sum(axis=0)  # only the objects that both label are counted
            other = np.add.reduceat((totals > 0).astype(np.int64), first)
            freedom = ((rows > 0).sum(axis=0) - 1) * (other - 1)
            expected = np.maximum(np.repeat(rows, width, axis=1) * totals, 1.0)
            chi = np.add.reduceat((tables**2 / expected).sum(axis=0), first)
            known = np.flatnonzero((n >= np.maximum(50, n_cells[:told])) & (freedom != 0))
            d = freedom[known]
            found[u, known] = (chi[known] - 1.0 - d / (n[known] - 1)) / np.sqrt(d)
    found[others, np.arange(others.size)] = np.nan
    return found[:, np.argsort(others)]


def dissenting(sample: np.ndarray) -> np.ndarray:
    """Return the partitions that agree with nobody: by less than a tenth of the median, surely."""
    found = agreements(sample)
    found = np.where((~np.isnan(found)).sum(axis=1, keepdims=True) >= 4, found, np.nan)
    judged = np.flatnonzero(~np.isnan(found).all(axis=1))
    if not judged.size:
        return judged
    known = found[judged]
    mean, n_known = np.nanmean(known, axis=1), (~np.isnan(known)).sum(axis=1)
    error = np.nanstd(known, axis=1) / np.sqrt(n_known)
    median = float(np.median(mean))
    # Random partitions had less than .02 of the median agreement; the least of partitions by two random
    # features of digits, the most diverse we measured, had .13. Where hardly any agree, no partition stands
    # out.
    return judged[(mean + 2 * error < 0.1 * median) & (median >= 0.02)]


def warn_of_dissent(survey: Survey, ensemble: Ensemble, weights: np.ndarray | None, remedy: str) -> None:
    """Warn of partitions that agree with nobody, of those of weight > 0, by the sample of the survey.

    Of more than a thousand partitions, as many are judged.
    """
    if ensemble.is_soft or "generator" in ensemble.provenance:  # none is a stray column
        return
    counted = np.arange(ensemble.n_partitions) if weights is None else np.flatnonzero(weights > 0)
    judged = "partitions"
    if counted.size > 1000:  # evenly spaced: it takes about a millisecond each
        counted, judged = counted[np.arange(1000) * counted.size // 1000], "partitions examined"
    alone = counted[dissenting(survey.sample[:, counted])]
    if alone.size:
        names = ", ".join(ensemble.names[u] for u in alone[:3]) + (", ..." if alone.size > 3 else "")
        warn_user(
            f"{alone.size} of {counted.size} {judged} agree with no other ({names}); {remedy}.",
            DissentWarning,
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


def linked(seen: np.ndarray) -> np.ndarray:
    """Return the first partition (M,) that each is linked to by what is labeled, ``seen`` (rows, M).

    Those are linked that label some of the same objects, directly or by way of others. O(rows M) time a
    group.
    """
    M = seen.shape[1]
    # a part of the objects of a block that nearly always links all of its partitions
    few = seen[: len(seen) // 32]
    if len(few) and not (group := linked(few)).any():
        return group  # the rest can link no more
    group, left = np.arange(M), seen[seen.any(axis=1)]
    while len(left):
        found = left[np.argmax(left.sum(axis=1))]
        while True:
            touching = left[:, found].any(axis=1)
            wider = left[touching].any(axis=0)
            if (wider == found).all():
                break
            found = wider
        group[found] = np.flatnonzero(found)[0]
        left = left[~touching]
    return group


def take_survey(
    ensemble: Ensemble,
    engine: Engine,
    seed: int,
    sample_size: int,
    weights: np.ndarray | None = None,
) -> Survey:
    """Read every block once, in O(n M) time; warn of objects without labels in partitions of weight > 0, and
    of groups of objects that no partition labels together.
    """
    n = ensemble.n_objects
    chosen = draw_rows(n, sample_size, seed, "survey.sample")

    def survey_block(block: Block) -> tuple[Any, ...]:
        labels = ensemble.read(block.start, block.stop)
        seen = observed(labels, ensemble.offsets)
        counted = seen if weights is None else seen[:, weights > 0]
        first = counted.argmax(axis=1)
        labeled = np.take_along_axis(counted, first[:, None], axis=1)[:, 0]
        firsts = np.bincount(first[labeled], minlength=counted.shape[1])
        unlabeled = np.flatnonzero(~labeled) + block.start
        sampled = labels[block.rows_of(chosen)]
        return firsts, [unlabeled], [sampled], linked(counted)

    def add(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
        links = np.concatenate([np.equal.outer(np.unique(group), group) for group in (a[3], b[3])])
        return *(x + y for x, y in zip(a[:3], b[:3], strict=True)), linked(links)

    with progress("survey", n) as listener:
        firsts, unlabeled, sampled, group = fold(
            engine, ensemble.blocks(), survey_block, add, progress=listener
        )
    sample = np.ascontiguousarray(np.concatenate(sampled))
    sizes = np.bincount(group, firsts).astype(np.int64)  # of objects, by their first labels
    groups = np.sort(sizes[sizes > 0])[::-1]
    survey = Survey(n, ensemble.n_labeled, np.concatenate(unlabeled), sample, groups, chosen)
    if survey.unlabeled.size == n:
        raise InvalidInputError(
            f"all {n} objects are unlabeled; at least one partition must label some of them."
        )
    if survey.unlabeled.size:
        warn_user(
            f"{survey.unlabeled.size:,} of {n:,} objects have no label in any partition; they get label -1 "
            "(and uniform memberships, if the method has any).",
            UnlabeledObjectsWarning,
        )
    if survey.groups.size > 1:
        listed = ", ".join(f"{size:,}" for size in survey.groups[:5]) + (", ..." * (survey.groups.size > 5))
        warn_user(
            f"the objects are in {survey.groups.size} groups ({listed}) that no partition labels together: "
            "nothing tells how their clusters correspond, so compare clusters within a group only.",
            DisconnectedWarning,
        )
    return survey
