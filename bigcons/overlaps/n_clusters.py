"""How many clusters an ensemble holds: the evidence for each number, and the estimators that ask for it.

Everything is measured on a sample of 2,048 objects. The normalized co-association ``Hn Hn^T`` of HBGF is the
mean over the partitions of projections onto their clusters, so that an eigenvalue is the share of partitions
that follow a direction of its vector: between clusters that the partitions agree on it is large, and small
for the cuts that each makes in its own way. The eigenvectors of half of the partitions, judged by the other
half, have held-out eigenvalues, free of what the partitions of one half have in common by chance. The number
of clusters is where these fall by a large factor and the clusters of the embedding are crisp, and one more
would cut a cluster where there is no gap. Of many clusters some are near each other, and eigenvalues hardly
fall; hence it also counts whether any two are distinct, when more clusters are merged to that many
(`bigcons.overlaps.merging`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigcons.coassociation.factorized import Weights, incidence_of
from bigcons.errors import InvalidInputError
from bigcons.execution.blas import one_thread
from bigcons.execution.engine import Engine, fold, open_engine
from bigcons.memory import Block
from bigcons.overlaps.eigenvectors import Spectrum
from bigcons.overlaps.incidence import one_hot
from bigcons.overlaps.merging import LEAST_BLUR as LEAST_MERGED_BLUR
from bigcons.overlaps.merging import bytes_to_merge, merge
from bigcons.progress import progress
from bigcons.seeding import SeedLike, draw_rows, generator, resolve_seed
from bigcons.solving.estimator import AUTO, ConsensusClusterer, logger
from bigcons.solving.memory_plan import MemoryPlan, block_label_bytes, label_bytes
from bigcons.stores.ensemble import Ensemble, as_ensemble
from bigcons.validation import check_int

# Objects on which numbers of clusters are compared.
SAMPLE = 2_048

# The largest number considered by default, and the fewest objects for each cluster.
MOST_CLUSTERS, LEAST_OBJECTS = 40, 16

# Pairs of halves of the partitions over which held-out eigenvalues are averaged.
N_HALVINGS = 5

# How much crispness counts beside the fall of the eigenvalues, and the least blur told apart.
CRISPNESS_COUNTS, LEAST_BLUR = 0.25, 0.02

# How much distinctness counts beside the fall of the eigenvalues, and how many times as many clusters as are
# considered are merged.
DISTINCTNESS_COUNTS, MORE_CLUSTERS = 2.0, 1.5

# A recommendation is clear from this score on: on the ensembles by which the rule was chosen, 43 of 44 clear
# ones were right, and less than half of the others.
CLEAR = 2.5

# The clusters asked for are merged to a smaller number if its score exceeds theirs by KEEPS and no larger
# number has a distinctness of AT_MOST_BEYOND or more; only with LEAST_TO_MERGE sampled objects per cluster.
KEEPS, AT_MOST_BEYOND, LEAST_TO_MERGE = 0.1, 0.75, 8

# At least so many clusters are merged once, or three times as many as were asked for: a cut into fewer
# divides a large cluster further before it shows small ones.
MANY_TO_MERGE = 48

# No more clusters are told apart: it takes time by the third power of their number.
MOST_TOLD_APART = 100

# They are kept at once if as distinct as this, because no smaller number can then score more.
SURELY_DISTINCT = 1.0 - float(np.sqrt(LEAST_MERGED_BLUR * np.exp(KEEPS)))

# Lloyd iterations after the pivoted start, which is close to their end.
LLOYD = 30


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
    >>> sorted(choice.row(6))[:3]
    ['crispness', 'distinctness', 'eigenvalue']
    """

    n_clusters: int
    """The number recommended."""
    runner_up: int | None
    """The next best number, None without another."""
    table: dict[str, np.ndarray]
    """Columns of equal length, a row for each number of clusters.

    ``n_clusters``; ``eigenvalue``, the last of as many eigenvalues of the normalized co-association;
    ``held_out``, the same of half of the partitions, judged by the other half; ``gap``, the logarithm of the
    factor by which the next is smaller; ``crispness``, the mean silhouette of the objects in the blurriest of
    that many clusters; ``distinctness``, how cleanly the partitions that separate two clusters do so, of the
    least distinct two, from 0 to 1; ``score``, which decides: the gap, a quarter of the logarithms of the
    factors by which clusters are less blurred than those of one fewer and one more, and than without any
    structure, and twice that by which one minus the distinctness is smaller than of any larger number;
    ``stability``, the adjusted Rand index of the clusters found by two halves of the partitions;
    ``held_out_joins``, the correlation over pairs of objects of being in one cluster by one half and being
    joined by a partition of the other.
    """
    n_sampled: int
    """Number of objects on which this was measured."""

    @property
    def is_clear(self) -> bool:
        """Whether the score of the number is 2.5 or more; below, no number stands out."""
        return self.row(self.n_clusters)["score"] >= CLEAR

    def row(self, n_clusters: int) -> dict[str, float]:
        """Return the evidence for one number of clusters."""
        at = int(np.searchsorted(self.table["n_clusters"], n_clusters))
        return {name: float(values[at]) for name, values in self.table.items()}

    def __repr__(self) -> str:
        best = self.row(self.n_clusters)
        why = f"held-out eigenvalues fall {np.exp(best['gap']):.1f} times after it"
        if np.isfinite(best["crispness"]):
            why += f", crispness {best['crispness']:.2f}"
        if np.isfinite(best["distinctness"]):
            why += f", distinctness {best['distinctness']:.2f}"
        if np.isfinite(best["stability"]):
            why += f", halves of the partitions agree with ARI {best['stability']:.2f}"
        why += f"; score {best['score']:.2f}"
        if self.runner_up is not None:
            why += f", runner-up {self.runner_up} with {self.row(self.runner_up)['score']:.2f}"
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
        Numbers to compare, both included; None: from 2 to 40, or to a 16th of the objects of fewer. With 1
        as the least, labels that have nothing in common are recognized as one cluster.
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
    One pass over the labels draws 2,048 objects; all else takes a few seconds, however many objects there
    are, and up to 32 times 2,048^2 bytes (134 MB) and 64 for each label of the sample.

    ``Hn = D_r^(-1/2) H D_c^(-1/2)`` is the normalized incidence matrix of `HBGF`. To each held-out eigenvalue
    is added what a random direction gets, the mean of all eigenvalues, so that nothing below it counts as
    structure. Numbers are compared by the labels alone: classes that all partitions merge cannot be counted,
    and clusters that most partitions cut alike are counted as several. Where no number stands out, as of more
    clusters than ``k_range`` allows, ``is_clear`` is False.

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, truth = bc.datasets.planted_ensemble(600, 30, noise=(0.0, 0.2), random_state=0)
    >>> choice = bc.choose_n_clusters(ensemble, random_state=0)
    >>> choice.n_clusters, choice.is_clear
    (6, True)
    """
    data, seed = as_ensemble(ensemble, soft=True), resolve_seed(random_state)
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
    n = min(SAMPLE, ensemble.n_objects)
    given = Weights.given(weights, ensemble.offsets)
    counts = np.ones(ensemble.n_partitions) if given is None else given.partitions
    of_row = ensemble.n_base_clusters if ensemble.is_soft else ensemble.n_partitions
    plan = MemoryPlan(
        held=32 * min(n, ensemble.n_base_clusters) ** 2
        + 64 * n * of_row
        + 5 * label_bytes(ensemble, n)
        + bytes_to_merge(ensemble.n_partitions, int(MORE_CLUSTERS * MOST_CLUSTERS)),
        per_block=block_label_bytes(ensemble),
        per_result=label_bytes(ensemble, min(n, ensemble.chunk_rows)),
    )
    plan.check("choosing n_clusters", engine, ensemble, memory)
    rows = sample_rows(ensemble, engine, seed)
    with one_thread():
        incidence = incidence_of(rows, ensemble.offsets)
        counts = np.repeat(counts, np.diff(ensemble.offsets))
        labeled = (incidence @ counts) > 0
        if not labeled.any():
            raise InvalidInputError("no object of the sample has a label; give n_clusters as a number.")
        least, most = _checked_range(k_range, int(labeled.sum()))
        table = _evidence(incidence[labeled], ensemble.offsets, counts, least, most, seed)
    order = np.argsort(-table["score"], kind="stable")
    numbers = table["n_clusters"][order].tolist()
    choice = NClustersChoice(numbers[0], numbers[1] if len(numbers) > 1 else None, table, int(labeled.sum()))
    logger.info("%r", choice)
    return choice


def _checked_range(k_range: Any, n_labeled: int) -> tuple[int, int]:
    if k_range is None:
        return min(2, n_labeled), max(min(MOST_CLUSTERS, n_labeled // LEAST_OBJECTS), min(2, n_labeled))
    if isinstance(k_range, str) or not isinstance(k_range, Sequence) or len(k_range) != 2:
        raise InvalidInputError(
            f"k_range={k_range!r} is not a range; give the smallest and the largest number, such as (2, 40).",
            parameter="k_range",
        )
    least = check_int("k_range[0]", k_range[0])
    return least, check_int("k_range[1]", k_range[1], at_least=least, at_most=max(n_labeled, least))


def sample_rows(ensemble: Ensemble, engine: Engine, seed: int) -> np.ndarray:
    """Return the labels (rows, M), or memberships, of at most `SAMPLE` random objects, in order; one pass."""
    chosen = draw_rows(ensemble.n_objects, SAMPLE, seed, "n_clusters.sample")

    def take(block: Block) -> list[np.ndarray]:
        rows = block.rows_of(chosen)
        return [ensemble.read(block.start, block.stop)[rows]] if rows.size else []

    with progress("sample to choose n_clusters", ensemble.n_objects) as listener:
        parts = fold(engine, ensemble.blocks(), take, list.__add__, progress=listener)
    return np.concatenate(parts)


def _evidence(
    incidence: Any, offsets: np.ndarray, counts: np.ndarray, least: int, most: int, seed: int
) -> dict[str, np.ndarray]:
    """Return the table of `NClustersChoice` for H (rows, B) of labeled objects and weights (B,)."""
    used = np.flatnonzero(counts[offsets[:-1]] > 0)
    scaled = normalized(incidence, counts)
    n_start = max(min(int(MORE_CLUSTERS * most), scaled.shape[0] // LEAST_OBJECTS), most + 1)
    values, vectors = Spectrum.of(scaled, n_start)
    eigenvalues = _padded(values, most + 1)
    floor = float(scaled.multiply(scaled).sum()) / scaled.shape[0]
    held_out, splits = [eigenvalues], []
    if used.size > 1:
        draw, held_out = generator(seed, "n_clusters.halves"), []
        for _ in range(N_HALVINGS):
            shuffled = draw.permutation(used)
            halves = [_columns(offsets, np.sort(part)) for part in np.array_split(shuffled, 2)]
            matrices = [normalized(incidence[:, part], counts[part]) for part in halves]
            found = [Spectrum.of(matrix, most + 1).vectors for matrix in matrices]
            held_out += [
                _padded(((other.T @ of_half) ** 2).sum(axis=0), most + 1)
                for of_half, other in zip(found, matrices[::-1], strict=True)
            ]
            splits.append((halves, found))
    judged = np.mean(held_out, axis=0)
    judged = np.maximum.accumulate(judged[::-1])[::-1] + floor
    numbers = np.arange(least, most + 1)
    path = merge(incidence, offsets, counts[offsets[:-1]], cut_spectrum(vectors, n_start)[0])
    gap = np.log(judged[numbers - 1] / judged[numbers])
    crispness = np.array([crispness_of(vectors, k) for k in range(max(least - 1, 1), most + 2)])
    if least == 1:
        crispness = np.concatenate([crispness[:1], crispness])
    table = {
        "n_clusters": numbers,
        "eigenvalue": eigenvalues[numbers - 1],
        "held_out": judged[numbers - 1] - floor,
        "gap": gap,
        "crispness": crispness[1:-1],
        "distinctness": path.distinctness_of(numbers),
        "score": gap + CRISPNESS_COUNTS * _advantage(crispness) + DISTINCTNESS_COUNTS * path.scores(numbers),
        "stability": np.full(numbers.size, np.nan),
        "held_out_joins": np.full(numbers.size, np.nan),
    }
    if splits:
        halves, found = splits[0]
        compared = _compare_halves(incidence, offsets, halves, found, numbers)
        table["stability"], table["held_out_joins"] = compared
    return table


def normalized(incidence: Any, counts: np.ndarray) -> Any:
    """Return ``D_r^(-1/2) H C^(1/2) D_c^(-1/2)``, sparse, with the weights (B,) of base clusters in C."""
    n_labels, sizes = incidence @ counts, np.asarray(incidence.sum(axis=0)).ravel()
    by_row, by_column = _over_root(n_labels), _over_root(sizes) * np.sqrt(counts)
    return incidence.multiply(by_row[:, None]).multiply(by_column[None, :]).tocsr()


def cut_spectrum(vectors: np.ndarray, n_clusters: int) -> tuple[np.ndarray, np.ndarray]:
    """Return clusters (rows,) of objects by their leading vectors scaled to unit length, and all distances.

    Pivoted QR picks objects that are as orthogonal as possible as the first centers, without chance (Damle,
    Minden and Ying 2019); Lloyd iterations follow. The distances (rows, K) are squared, to the centers.
    """
    import scipy.linalg

    rows = vectors[:, :n_clusters]
    rows = rows / np.maximum(np.sqrt((rows**2).sum(axis=1)), np.finfo(float).tiny)[:, None]
    _, _, pivots = scipy.linalg.qr(rows.T, mode="economic", pivoting=True)
    centers, assigned = rows[pivots[: rows.shape[1]]], np.full(len(rows), -1)
    for _ in range(LLOYD):
        distances = (centers**2).sum(axis=1) - 2.0 * (rows @ centers.T)
        nearest = distances.argmin(axis=1)
        if (nearest == assigned).all():
            break
        assigned = nearest
        sizes = np.bincount(assigned, minlength=len(centers))
        sums = one_hot(assigned, len(centers)).T @ rows
        centers = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centers)
    return assigned, np.maximum(distances + (rows**2).sum(axis=1)[:, None], 0.0)


def crispness_of(vectors: np.ndarray, n_clusters: int) -> float:
    """Return the mean silhouette of the objects in the blurriest of ``n_clusters`` clusters.

    An object at distance ``d`` of its center and ``e`` of the next has ``1 - d / e``. 0 if there are not as
    many vectors; NaN for one cluster.
    """
    if n_clusters == 1:
        return float("nan")
    if n_clusters > vectors.shape[1]:
        return 0.0
    clusters, distances = cut_spectrum(vectors, n_clusters)
    nearest = np.sqrt(np.partition(distances, 1, axis=1)[:, :2])
    blurs = np.divide(nearest[:, 0], nearest[:, 1], out=np.ones(len(nearest)), where=nearest[:, 1] > 0)
    sizes, sums = np.bincount(clusters), np.bincount(clusters, 1.0 - blurs)
    return float((sums[sizes > 0] / sizes[sizes > 0]).min())


def _advantage(crispness: np.ndarray) -> np.ndarray:
    """Return by how much numbers of clusters are crisper than the ones before and after, and than none.

    The sum of the logarithms of these factors, in blur, which is one minus the crispness. A single cluster,
    whose crispness is NaN, counts as two.
    """
    blur = np.maximum(1.0 - crispness, LEAST_BLUR)
    known = np.isfinite(blur)
    logs = np.log(np.where(known, blur, blur[known][0])) if known.any() else np.zeros(blur.size)
    return logs[:-2] + logs[2:] - 3.0 * logs[1:-1]


def _compare_halves(
    incidence: Any,
    offsets: np.ndarray,
    halves: list[np.ndarray],
    vectors: list[np.ndarray],
    numbers: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the stability of numbers of clusters over two halves of the partitions, and the held-out joins.

    ``halves`` are base clusters, ``vectors`` the leading ones by each half.
    """
    from sklearn.metrics import adjusted_rand_score

    seen = [np.asarray(incidence[:, part].sum(axis=1)).ravel() > 0 for part in halves]
    both = np.flatnonzero(seen[0] & seen[1])
    stability, joins = np.full(numbers.size, np.nan), np.full(numbers.size, np.nan)
    if both.size < 2:
        return stability, joins
    held_out = [incidence[both][:, part].T.tocsr() for part in halves[::-1]]
    starts = [np.flatnonzero(np.isin(part, offsets[:-1])) for part in halves[::-1]]
    for at, k in enumerate(numbers.tolist()):
        found = [cut_spectrum(of_half, k)[0][both] for of_half in vectors]
        stability[at] = adjusted_rand_score(*found)
        tables = [h @ one_hot(clusters, k) for h, clusters in zip(held_out, found, strict=True)]
        joins[at] = np.mean(list(map(_held_out_joins, tables, starts)))
    return stability, joins


def _held_out_joins(table: np.ndarray, starts: np.ndarray) -> float:
    """Return the mean correlation, over pairs of objects, of being joined by a partition and in one cluster.

    ``table`` (base clusters, K): objects of each in each cluster; partitions begin at the rows ``starts``.
    """

    def pairs(sizes: np.ndarray) -> np.ndarray:
        return np.maximum(sizes * (sizes - 1.0) / 2.0, 0.0)

    sizes, clusters = table.sum(axis=1), np.add.reduceat(table, starts, axis=0)
    n = np.maximum(pairs(clusters.sum(axis=1)), 1.0)
    joined = np.add.reduceat(pairs(sizes), starts) / n
    together = pairs(clusters).sum(axis=1) / n
    both = np.add.reduceat(pairs(table).sum(axis=1), starts) / n
    spread = np.sqrt(np.maximum(joined * (1.0 - joined) * together * (1.0 - together), 0.0))
    return float(np.divide(both - joined * together, spread, out=np.zeros_like(n), where=spread > 0).mean())


def _columns(offsets: np.ndarray, partitions: np.ndarray) -> np.ndarray:
    """Return the base clusters of some partitions."""
    return np.concatenate([np.arange(offsets[u], offsets[u + 1]) for u in partitions])


def _padded(values: np.ndarray, n_values: int) -> np.ndarray:
    return np.pad(values[:n_values], (0, max(n_values - len(values), 0)))


def _over_root(values: np.ndarray) -> np.ndarray:
    """Return ``values^(-1/2)``, 0 where there is nothing."""
    return np.divide(1.0, np.sqrt(values), out=np.zeros(values.shape), where=values > 0)


def distinct_clusters(labels: np.ndarray, offsets: np.ndarray, most: int) -> tuple[int, Spectrum | None]:
    """Return how many clusters the labels (rows, M) of a sample tell apart, ``most`` if in doubt.

    Also the spectrum of the scaled labels of the objects that have any, unless it was not needed.

    A smaller number has to stand out more than ``most`` itself by `KEEPS`, and no larger one may be distinct;
    from each of several numbers of clusters that are merged. A cut into ``most`` may divide a large cluster
    and join small ones, which a cut into many more does not.
    """
    labels, found = labels[(labels >= 0).any(axis=1)], 2
    starts = starts_to_merge(len(labels), most)
    numbers = np.arange(2, most + 1)
    if not starts:
        return most, None
    with one_thread():
        incidence = incidence_of(labels, offsets)
        spectrum = Spectrum.of(normalized(incidence, np.ones(incidence.shape[1])), starts[-1])
        for n_start in starts:
            clusters, _ = cut_spectrum(spectrum.vectors, n_start)
            path = merge(incidence, offsets, np.ones(offsets.size - 1), clusters, SURELY_DISTINCT)
            scores, beyond = path.scores(numbers), path.distinctness_of(np.arange(2, n_start + 2))
            beyond = np.maximum.accumulate(beyond[::-1])[::-1][1:]
            scores[:-1][beyond[: most - 2] >= AT_MOST_BEYOND] = -np.inf
            scores[-1] += KEEPS
            found = max(found, int(numbers[scores.argmax()]))
            if found == most:
                break
    return found, spectrum


def starts_to_merge(n_rows: int, n_clusters: int) -> list[int]:
    """Return the numbers of clusters that are merged to tell ``n_clusters`` apart; none if those are many."""
    most = n_rows // LEAST_TO_MERGE
    if not 2 < n_clusters <= min(most, MOST_TOLD_APART):
        return []
    many = min(max(MANY_TO_MERGE, 3 * n_clusters), most)
    return sorted({n_clusters, int(MORE_CLUSTERS * n_clusters), many})


def bytes_to_tell_apart(n_rows: int, n_partitions: int, n_base_clusters: int, n_clusters: int) -> int:
    """Return the bytes that `distinct_clusters` holds."""
    starts = starts_to_merge(n_rows, n_clusters)
    if not starts:
        return 0
    spectrum = 32 * n_rows * n_partitions + 24 * min(n_rows, n_base_clusters) ** 2
    tables = 8 * starts[-1] * (8 * n_base_clusters + 3 * n_rows)
    return spectrum + tables + bytes_to_merge(n_partitions, starts[-1])


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
