"""From features to centers: what partitions see, how features are scaled, and how samples are clustered.

The mean of m objects of a cluster is as good a center for the others as the mean of them all, up to 1/m of
their squared distances to it. So k-means is trained on thousands of the objects that a partition sees: on a
quarter of its sample from a random start, and from there on all of it, which takes few iterations more. Where
the sample is all that the partition sees, k-means runs on that as it is.

Landmarks are U-SPEC (Huang, Wang, Wu, Lai and Kwoh 2020) with landmarks drawn at random: some of the objects
are landmarks, and a bipartite graph joins each object of a sample to its five nearest by Gaussian weights
that sum to 1, a row of B. Their width is the object's own mean distance to the five, not the mean over all
objects: one far from the others is joined to them as firmly as they are to each other, and outliers take no
eigenvectors. Landmarks are then as alike as ``B^T B``, a graph over landmarks alone, whose normalized
Laplacian has the leading eigenvectors of the bipartite graph (Li, Wu and Chang 2012). k-means in k
eigenvectors, rows to unit length and each landmark counted by its degree, makes k clusters of the landmarks.
An object is in the cluster of its nearest landmark, so that labeling all objects, and new ones, needs no more
than the search for that, however many partitions share the landmarks.
"""

from __future__ import annotations

import math
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bigcons.errors import InvalidInputError, SuspiciousFeaturesWarning
from bigcons.io.features import CATEGORY, HASHED, FeatureEncoding, Features, Scaling
from bigcons.io.labels import warn_of_unseen
from bigcons.kernels.draws import mark_drawn
from bigcons.kernels.nearest import normalize_rows
from bigcons.memory import BLOCK_ROWS, row_blocks
from bigcons.progress import progress
from bigcons.run.engine import one_thread
from bigcons.seeding import SEGMENT_ROWS, generator
from bigcons.store.generator import Centers
from bigcons.validation import check_int

N_LANDMARKS, OBJECTS_PER_LANDMARK = 1000, 3
"""Landmarks of a set, and the fewest objects for each."""

N_NEAREST = 5
"""Landmarks that an object is joined to."""

AT_ONCE = 1 << 21
"""Distances held at once."""

ClusterCount = int | tuple[int, int] | str
"""An integer, an inclusive range (low, high), or "split"."""

BY_LANDMARKS = {"mixed": 1, "landmarks": 2}
"""By the name of a scheme, how many of every two partitions are by landmarks."""

MOST_PER_CLUSTER = 3
"""Clusters of a partition, at most, for each of a consensus of ten or more: `benchmarks/features.py`."""

ROWS_AT_ONCE = 64 * SEGMENT_ROWS
"""Rows of a subset that are drawn at a time where only some of them are needed."""


@dataclass(frozen=True)
class Scheme:
    """A kind of ensemble: what its partitions see, drawn from a seed, the name and their number."""

    name: str
    n_partitions: int = 100
    n_clusters: ClusterCount | None = None
    """None: 2 to 30 by k-means and 2 to 20 by landmarks, as far as the objects reach."""
    sample: float = 1.0
    """The share of the objects that a partition sees."""
    repetition: int | None = None
    """Partitions to which an object is dealt, on average, of `n_partitions`."""
    n_features: int | None = None
    """Features that a partition sees; None for all."""
    alpha_range: tuple[float, float] | None = None
    """The exponents of Zipf weights from 1 to `largest_weight` of the features; None for no weights."""
    largest_weight: int | None = None
    n_init: int = 1
    """Random starts of k-means."""
    seed: int = 0
    n_objects: int = 0
    segment_rows: int = SEGMENT_ROWS
    """Rows of which each subset has a fixed number."""
    ranges: tuple[tuple[int, int], tuple[int, int]] = ((2, 30), (2, 20))
    """Once known, the fewest and most clusters of a partition by k-means, and of one by landmarks."""
    features: tuple[int, ...] = ()
    """Once known, the feature of each number, counted from 0: of a category there are several numbers."""
    smooth: tuple[int, ...] | None = None
    """Once known, the columns that landmarks see; None for all: see `make_pool`."""

    def of_objects(self, n_objects: int, chunk_rows: int) -> Scheme:
        """Return the scheme for so many objects, whose ranges end at the number that a partition sees.

        Raises InvalidInputError if a partition sees fewer than a range begins with, or none.
        """
        for field, value in vars(self).items():
            if isinstance(value, np.generic):  # whose arithmetic overflows
                vars(self)[field] = value.item()
        check_int("n_partitions", self.n_partitions)
        check_int("n_init", self.n_init)
        n_seen, ranges = round(self.sample * n_objects), self.ranges
        if self.repetition is not None:
            n_seen = self.repetition * n_objects // self.n_partitions
        if str(self.n_clusters) == "split":
            # the rule of Aidos and Fred's DID paper; rounding up and ending at the objects are ours
            low = math.ceil(max(math.sqrt(n_seen) / 2, n_seen / 50))
            ranges = ((min(low, n_seen), low + 20),) * 2
        elif self.n_clusters is not None:
            ranges = (check_range(self.n_clusters),) * 2
        fewest = 1 if self.n_clusters is None else max(ranges[0][0], 1)
        if n_seen < fewest:
            names = ("sample",) if self.repetition is None else ("n_partitions", "repetition")
            settings = ", ".join(f"{name}={getattr(self, name):g}" for name in names)
            remedy = "raise sample" if self.repetition is None else "raise repetition, make fewer partitions"
            raise InvalidInputError(
                f"{settings} of n_objects={n_objects} is {n_seen} objects, fewer than n_clusters={fewest}; "
                f"{remedy} or use fewer clusters.",
                parameter=names[-1],
            )
        (a, b), (c, d) = ranges
        ranges = (min(a, n_seen), min(b, n_seen)), (min(c, n_seen), min(d, n_seen))
        segment_rows = min(SEGMENT_ROWS, chunk_rows)
        return replace(self, n_objects=n_objects, segment_rows=segment_rows, ranges=ranges)

    def generator(self, stream: str, *index: int) -> np.random.Generator:
        """Return the generator of a stream of draws."""
        return generator(self.seed, f"generate.{self.name}{stream}", *index)

    # Objects

    def subset(self, u: int) -> Subset:
        """Return the objects of partition ``u``."""
        deal = None if self.repetition is None else (self.n_partitions, self.repetition)
        stream = f"generate.{self.name}.subset"
        return Subset(self.n_objects, self.sample, self.segment_rows, self.seed, stream, u, deal)

    def pool(self, sample_rows: int) -> Subset:
        """Return the objects from which samples of so many are drawn: two, and enough for each partition."""
        n_rows = min(self.n_objects, math.ceil(sample_rows * max(2.0, 1.1 / self.sample)))
        share = n_rows / self.n_objects
        return Subset(self.n_objects, share, self.segment_rows, self.seed, f"generate.{self.name}.pool", 0)

    # Features

    def weights(self, u: int) -> np.ndarray | None:
        """Return the weights (width,) float32 of the numbers of partition ``u``, None for all alike.

        Numbers that the partition does not see have weight 0.
        """
        features, is_seen = np.array(self.features), None
        if self.smooth is not None and self.is_by_landmarks(u):
            is_seen = np.array(self.smooth)
        elif self.n_features is not None:
            rng = self.generator(".columns", u)
            is_seen = np.isin(features, rng.choice(int(features.max()) + 1, self.n_features, replace=False))
        if is_seen is not None:
            weights = np.zeros(len(features), np.float32)
            weights[is_seen] = 1.0
            return weights
        if self.alpha_range is None or self.largest_weight is None:
            return None
        rng = self.generator(".weights", u)
        values = np.arange(1, self.largest_weight + 1)
        odds = values ** -rng.uniform(*self.alpha_range)
        return rng.choice(values, size=len(features), p=odds / odds.sum()).astype(np.float32)

    # Clusters

    def is_by_landmarks(self, u: int) -> bool:
        """Return whether partition ``u`` is by landmarks, not by k-means itself."""
        return u % 2 < BY_LANDMARKS.get(self.name, 0)

    def sets(self) -> list[tuple[int, ...]]:
        """Return the partitions of each set of centers: one by k-means, or a third of those by landmarks."""
        shared: dict[int, list[int]] = {}
        n_by_landmarks = 0
        for u in range(self.n_partitions):
            key = u
            if self.is_by_landmarks(u):
                key, n_by_landmarks = -1 - n_by_landmarks % 3, n_by_landmarks + 1
            shared.setdefault(key, []).append(u)
        return list(map(tuple, shared.values()))

    def draw(self, u: int) -> tuple[np.random.Generator, int]:
        """Return the generator of partition ``u``, and its number of clusters, the first draw."""
        rng = self.generator("", u)
        low, high = self.ranges[self.is_by_landmarks(u)]
        return rng, int(rng.integers(low, high + 1))

    def draw_numbers(self) -> np.ndarray:
        """Return the number of clusters that each partition draws, ``(n_partitions,)`` int64.

        It depends on the seed alone, so a solve can be planned before there are labels.
        Partitions have fewer clusters where some get no object.
        """
        return np.array([self.draw(u)[1] for u in range(self.n_partitions)], np.int64)


def range_for(n_clusters: Any, *, is_found: bool = False) -> tuple[int, int] | None:
    """Return the numbers of clusters of partitions for a consensus of so many; None for the default ones.

    A partition that has fewer clusters than the consensus joins some of its clusters. A number that default
    partitions showed, ``is_found``, takes others only if these have more clusters.
    """
    highest = MOST_PER_CLUSTER * int(n_clusters) if isinstance(n_clusters, (int, np.integer)) else 0
    return (2, highest) if highest >= Scheme.ranges[0][1] + is_found else None


def check_range(n_clusters: Any) -> tuple[int, int]:
    """Return a number or a range of clusters as ``(low, high)``."""
    if isinstance(n_clusters, (int, np.integer)):
        return (check_int("n_clusters", n_clusters),) * 2
    if isinstance(n_clusters, (tuple, list)) and len(n_clusters) == 2:
        low = check_int("n_clusters[0]", n_clusters[0])
        return low, check_int("n_clusters[1]", n_clusters[1], at_least=low)
    raise InvalidInputError(
        f"n_clusters={n_clusters!r} is no number of clusters; use an integer >= 1, (low, high), both "
        "included, or, of k-means, 'split'.",
        parameter="n_clusters",
    )


@dataclass(frozen=True)
class Subset:
    """The objects that partition ``index`` sees, drawn piece by piece, so that any part is read alone.

    *A random share*: each segment of ``segment_rows`` objects contributes a fixed number of its rows, drawn
    without replacement; these numbers differ by at most one and add up to the share.

    *Dealt*, with ``deal`` (p, v): the coordinated sampling of Strehl and Ghosh 2002. Shuffled objects are
    dealt, ``n / p`` to each of the p partitions, so that every object is in one of them; then each partition
    draws ``(v - 1) n / p`` of the other objects. They deal contiguous ranges of one shuffle of all objects.
    Here, each stratum of 4,096 rows (or ``2 p``; the last has up to twice as many) is shuffled and dealt
    separately, so that memory does not grow with the data and any part of it is dealt evenly, up to one
    object.
    """

    n_objects: int
    share: float
    segment_rows: int
    seed: int
    stream: str
    index: int
    deal: tuple[int, int] | None = None

    def size(self, stop: Any) -> Any:
        """Return how many of the first ``stop`` objects, or of several, are sampled; if dealt, of strata."""
        if self.deal is None:
            return np.rint(self.share * stop).astype(np.int64)
        n_partitions, repetition = self.deal
        return (repetition * stop + n_partitions - 1 - self.index) // n_partitions

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return the sampled rows from ``start`` to ``stop``, ascending; memory for these alone."""
        parts = []
        for block in row_blocks(stop - start, ROWS_AT_ONCE):
            first = start + block.start
            parts.append(first + np.flatnonzero(self.mask(first, start + block.stop)))
        return np.concatenate(parts)

    def mask(self, start: int, stop: int) -> np.ndarray:
        """Return which of the rows from ``start`` to ``stop`` are sampled."""
        rows = self.segment_rows if self.deal is None else max(4096, 2 * self.deal[0])
        n_pieces = -(-self.n_objects // rows) if self.deal is None else max(self.n_objects // rows, 1)
        first, last = min(start // rows, n_pieces - 1), min((stop - 1) // rows, n_pieces - 1)
        bounds = np.arange(first, last + 2) * rows
        if last == n_pieces - 1:
            bounds[-1] = self.n_objects
        counts, marks = np.diff(self.size(bounds)), np.zeros(int(bounds[-1] - bounds[0]), bool)
        if self.deal is None:
            key = generator(self.seed, self.stream, self.index).integers(1 << 64, dtype=np.uint64)
            mark_drawn(key, first, bounds - bounds[0], counts, marks)
            return marks[start - bounds[0] : stop - bounds[0]]
        for piece, count in enumerate(counts, first):
            begin, end = bounds[piece - first : piece - first + 2]
            order = generator(self.seed, f"{self.stream}.deal", piece).permutation(end - begin)
            order += begin - bounds[0]
            is_dealt = np.arange(begin, end) % self.deal[0] == self.index
            marks[order[is_dealt]] = True
            if n_more := count - np.count_nonzero(is_dealt):
                rng = generator(self.seed, f"{self.stream}.rest", self.index, piece)
                marks[rng.choice(order[~is_dealt], size=n_more, replace=False, shuffle=False)] = True
        return marks[start - bounds[0] : stop - bounds[0]]


# Scaling


class Moments(NamedTuple):
    """Count of values, mean, sum of squared deviations, minimum and maximum of every column, float64.

    Missing values, NaN, do not count.
    """

    n: np.ndarray
    mean: np.ndarray
    squares: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def from_values(cls, values: Any) -> Moments:
        """Return the moments of the rows of a block, dense or sparse, computed in two passes."""
        n, width = values.shape
        if not isinstance(values, np.ndarray):
            numbers, columns = values.data.astype(np.float64), values.indices
            n_zeros = n - np.bincount(columns, minlength=width)
            mean = np.bincount(columns, numbers, width) / n
            squares = np.bincount(columns, (numbers - mean[columns]) ** 2, width) + n_zeros * mean**2
            low, high = np.where(n_zeros > 0, 0.0, np.inf), np.where(n_zeros > 0, 0.0, -np.inf)
            np.minimum.at(low, columns, numbers)
            np.maximum.at(high, columns, numbers)
            return cls(np.full(width, float(n)), mean, squares, low, high)
        values = values.astype(np.float64, copy=False)
        is_missing = np.isnan(values)
        counts, lows, highs = np.full(width, float(n)), values, values
        if has_gaps := is_missing.any():
            counts = (n - is_missing.sum(axis=0)).astype(np.float64)
            lows, highs = np.where(is_missing, np.inf, values), np.where(is_missing, -np.inf, values)
            values = np.where(is_missing, 0.0, values)
        mean = values.sum(axis=0) / np.maximum(counts, 1)
        deviations = values - mean
        if has_gaps:
            deviations[is_missing] = 0.0
        squares = np.einsum("ij,ij->j", deviations, deviations)
        return cls(counts, mean, squares, lows.min(axis=0), highs.max(axis=0))

    def merge(self, other: Moments) -> Moments:
        """Return the moments of both sets of rows (Chan, Golub and LeVeque 1983)."""
        n = np.maximum(self.n + other.n, 1.0)  # of columns without any value so far
        gap = other.mean - self.mean
        return Moments(
            self.n + other.n,
            self.mean + gap * (other.n / n),
            self.squares + other.squares + gap**2 * (self.n * other.n / n),
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )


def measure(
    features: Features, subset: Subset | None = None, *, standardize: bool
) -> tuple[Scaling, list[Any]]:
    """Return the scaling of ``features``, and the rows of ``subset``, in one pass over them.

    With ``standardize``, numbers are scaled to mean 0 and variance 1 over all objects (divided by n, as in
    scikit-learn) and the columns of a category together to that variance; otherwise they are only centered,
    which preserves distances. Blocks depend only on the number of columns, so the result is bit for bit the
    same for any budget. The rows are not scaled: one array, which returns its memory to the system when it is
    gone, or sparse ones of each block.

    Raises InvalidInputError if no column varies, or if one has values too large for float32.
    """
    moments: Any = None
    checksum, rows, n_taken = 0, [], 0
    n_drawn = 0 if subset is None else int(subset.size(features.n_objects))
    with progress("measure the features", features.n_objects) as listener, np.errstate(all="ignore"):
        for block, values in features.iterate(gaps=True, sparse=True):
            stored = [values]
            if not isinstance(values, np.ndarray):  # of sparse rows what is stored
                ends = np.diff(values.indptr).astype(np.int64)
                stored = [values.indices.astype(np.int64), values.data, ends]
            for array in stored:
                checksum = zlib.crc32(np.ascontiguousarray(array).data, checksum)
            part = Moments.from_values(values)
            moments = part if moments is None else moments.merge(part)
            if subset is not None:
                part_rows = values[subset.rows(block.start, block.stop) - block.start]
                if features.is_sparse:
                    rows.append(part_rows)
                else:
                    rows = rows or [np.empty((n_drawn, part_rows.shape[1]), part_rows.dtype)]
                    rows[0][n_taken : n_taken + len(part_rows)] = part_rows
                    n_taken += len(part_rows)
            listener.advance(block.n_rows)
    n, encoding = features.n_objects, features.encoding
    deviation = np.sqrt(moments.squares / np.maximum(moments.n, 1.0))
    kept = np.flatnonzero(moments.low < moments.high)
    gaps = np.flatnonzero((moments.n > 0) & (moments.n < n))
    columns = encoding.columns
    if columns[0].missing and (moments.n == n).all() and not any(code.may_miss for code in columns):
        warn_of_unseen(features.where, features.table.rule, set(), SuspiciousFeaturesWarning)
    if len(kept) + len(gaps) == 0:
        raise InvalidInputError(f"{features.where} has columns that are all constant; give some that vary.")
    for code, start in zip(encoding.columns, encoding.starts, strict=False):
        if code.kind in (CATEGORY, HASHED):  # the columns of a category share the variance of one number
            span = slice(start, start + code.width)
            deviation[span] = np.sqrt(moments.squares[span].sum() / n)
    # A gap is as far from known values as these are from each other on average, d, so that the mean over all
    # pairs is d (1 - share^2); of one known value, gaps are a boolean.
    shares = 1.0 - moments.n[gaps] / n
    has_spread = deviation[gaps] > 0
    heights = np.where(has_spread, deviation[gaps], 1.0)
    deviation[gaps] *= np.sqrt(1.0 - shares**2)
    if standardize:
        heights /= np.where(has_spread, deviation[gaps], np.sqrt(shares * (1.0 - shares)))
    mean = moments.mean[kept]
    scale = deviation[kept] if standardize else np.ones(len(kept))
    farthest = np.maximum(moments.high[kept] - mean, mean - moments.low[kept])
    # whose squares, summed over thousands of columns, fit in float32, and of some column are not 0 there
    fits = (farthest < 1e15 * scale) & np.isfinite(scale) & (farthest.max(initial=0.0) > 1e-15 * scale)
    if not fits.all():
        column = kept[int(fits.argmin())]
        raise InvalidInputError(
            f"column {features.names[column]!r} of {features.where} ranges from {moments.low[column]:g} to "
            f"{moments.high[column]:g}, too far or too near for float32; rescale or clip it."
        )
    if features.is_sparse:  # stay so; distances are the same
        mean = np.zeros(len(kept))
    return Scaling(kept, mean, scale, gaps, heights, shares, checksum), rows


# Samples


def choose_sample_rows(n_clusters: int, n_features: int) -> int:
    """Return how many objects train a partition: 40,000 of up to 156 clusters and 104 features.

    256 or more per cluster, so that estimating the centers costs about 0.4 % of the inertia.
    """
    return max(256 * n_clusters, min(40_000, (1 << 22) // n_features))


def n_landmarks(n_objects: int, n_features: int) -> int:
    """Return how many of so many objects are landmarks."""
    limit = min(N_LANDMARKS, max((1 << 23) // n_features, 2 * N_NEAREST))  # of very many features, fewer
    return min(limit, max(n_objects // OBJECTS_PER_LANDMARK, min(n_objects, N_NEAREST)))


# Centers


def train_centers(
    scheme: Scheme,
    subset: Subset,
    rows: list[Any],
    encoding: FeatureEncoding,
    sample_rows: int,
    map_sets: Callable[[Callable[[Any], np.ndarray], list[tuple[int, ...]]], Iterable[np.ndarray]],
) -> tuple[Centers, float]:
    """Return the centers of all partitions, and the distance within which 99 % of some objects are.

    ``rows`` are of the pool, a ``subset``, not yet scaled, and are gone then; ``map_sets`` maps a task over
    the sets, as an engine does.

    A graph of nearest neighbors falls apart along columns of two values: booleans, categories, and what tells
    gaps. Landmarks do not see them, unless these hold more than a third of the variance, or points are
    sparse. Raises InvalidInputError for fewer features than a partition sees.
    """
    from scipy.sparse import vstack

    scaling: Any = encoding.scaling
    positions = np.concatenate([scaling.kept, scaling.gaps])  # a category has several
    features = np.unique(np.searchsorted(encoding.starts, positions, "right"), return_inverse=True)[1]
    n_varying, width = int(features.max()) + 1, len(features)
    if scheme.n_features is not None and scheme.n_features > n_varying:
        raise InvalidInputError(
            f"n_features={scheme.n_features} but only {n_varying} features vary; use fewer."
        )
    scheme = replace(scheme, features=tuple(features.tolist()))
    if isinstance(rows[0], np.ndarray):
        points, unscaled = np.empty((len(rows[0]), scaling.width), np.float32), rows.pop()
        for block in row_blocks(len(unscaled), BLOCK_ROWS):
            points[block.start : block.stop] = scaling.apply(unscaled[block.start : block.stop])
        del unscaled
    else:
        points = vstack([scaling.apply(part) for part in rows], "csr")
        rows.clear()
    if scheme.name in BY_LANDMARKS and isinstance(points, np.ndarray):
        is_smooth = ((points != points.min(axis=0)) & (points != points.max(axis=0))).any(axis=0)
        variances = points.var(axis=0, dtype=np.float64)
        if not is_smooth.all() and 3 * variances[is_smooth].sum() >= 2 * variances.sum():
            scheme = replace(scheme, smooth=tuple(np.flatnonzero(is_smooth).tolist()))
    sets, trained = scheme.sets(), []
    train = partial(train_set, scheme, subset.rows(0, scheme.n_objects), points, sample_rows)
    with quiet_scikit_learn(), progress("train partitions", len(sets), "sets of centers") as listener:
        for table in map_sets(train, sets):
            trained.append(table)
            listener.advance(1)
    set_of, squares = np.empty(scheme.n_partitions, np.int64), np.ones((len(sets), width))
    clusters = [np.empty(0, np.int64)] * scheme.n_partitions
    for s, (partitions, table) in enumerate(zip(sets, trained, strict=True)):
        set_of[list(partitions)] = s
        for column, u in enumerate(partitions, width + 1):
            clusters[u] = np.unique(table[:, column].astype(np.int64), return_inverse=True)[1]
        weights = scheme.weights(partitions[0])
        if weights is not None:
            squares[s] = weights.astype(np.float64) ** 2
    squares = squares if (squares != 1.0).any() else squares[:1]
    centers = Centers.from_arrays([table[:, : width + 1] for table in trained], set_of, clusters, squares)
    n_chosen = min(points.shape[0], 10_000, max((1 << 22) // width, 1))
    sampled = points[np.arange(n_chosen) * points.shape[0] // n_chosen]
    nearest = centers.label(sampled, np.ones((len(sets), n_chosen), bool))[1]
    return centers, float(np.quantile(centers.distances(sampled, nearest), 0.99))


def train_set(
    scheme: Scheme, rows: np.ndarray, points: Any, sample_rows: int, partitions: tuple[int, ...]
) -> np.ndarray:
    """Return the centers of a set and their clusters, float64 of `n_features + 1 + n_partitions` columns.

    ``points`` (n_rows, n_features) float32 are scaled, dense or sparse, of the ``rows`` of the pool,
    ascending. Of each center the coordinates and half the squared length, as `Centers` has them, and its
    cluster in each of the ``partitions``. Every center is the nearest one of some object.
    """
    u = partitions[0]
    is_by_landmarks = scheme.is_by_landmarks(u)
    rng, n_clusters = (scheme.generator(".landmarks", u), 0) if is_by_landmarks else scheme.draw(u)
    parts = []  # rows of the pool that the partitions see
    subset = scheme.subset(u)
    for block in row_blocks(scheme.n_objects, ROWS_AT_ONCE):
        first, last = np.searchsorted(rows, (block.start, block.stop))
        is_seen = subset.mask(block.start, block.stop)[rows[first:last] - block.start]
        parts.append(first + np.flatnonzero(is_seen))
    positions = np.concatenate(parts)
    if is_sample := len(positions) > sample_rows:
        positions = np.sort(rng.choice(positions, size=sample_rows, replace=False, shuffle=False))
    points = points[positions]
    n_rows, width = points.shape
    weights = scheme.weights(u)
    with one_thread():
        if not is_by_landmarks:
            weighed = _weighed(points, weights)
            if is_sample:  # from the centers of a quarter of it
                n_start = max(n_rows // 4, n_clusters)
                first = np.sort(rng.choice(n_rows, size=n_start, replace=False, shuffle=False))
                fitted = fitted_kmeans(weighed[first], n_clusters, rng, "random", n_init=scheme.n_init)
                fitted = fitted_kmeans(weighed, n_clusters, rng, fitted.cluster_centers_, max_iter=20)
            else:
                fitted = fitted_kmeans(weighed, n_clusters, rng, "random", n_init=scheme.n_init)
            centers = _full(fitted.cluster_centers_, weights, width)
            return np.column_stack([centers, np.arange(n_clusters)])[_nearest_of(points, centers)]
        rows = np.sort(rng.choice(n_rows, n_landmarks(n_rows, width), replace=False))
        landmarks = _weighed(points[rows], weights)
        landmarks = landmarks if isinstance(landmarks, np.ndarray) else landmarks.toarray()
        centers = _full(landmarks, weights, width)
        is_kept = _nearest_of(points, centers)  # equal ones are one
        limit, clusters = scheme.ranges[1][1], []
        vectors, degrees = embedding(_weighed(points, weights), landmarks[is_kept].astype(np.float64), limit)
        for v in partitions:
            rng, n_clusters = scheme.draw(v)
            leading = vectors[:, :n_clusters].copy()
            normalize_rows(leading)
            fitted = fitted_kmeans(leading, leading.shape[1], rng, "k-means++", counts=degrees)
            clusters.append(fitted.labels_)
        return np.column_stack([centers[is_kept], *clusters])


def fitted_kmeans(
    points: Any,
    n_clusters: int,
    rng: np.random.Generator,
    init: Any,
    *,
    n_init: int = 1,
    max_iter: int = 100,
    counts: np.ndarray | None = None,
) -> Any:
    """Return scikit-learn's k-means, fitted with a seed from ``rng``."""
    from sklearn.cluster import KMeans

    seed = int(rng.integers(2**31))
    options = {"n_init": n_init, "max_iter": max_iter, "random_state": seed, "copy_x": False}
    return KMeans(n_clusters, init=init, **options).fit(points, sample_weight=counts)


def _weighed(points: Any, weights: np.ndarray | None) -> Any:
    """Return a copy of points, dense or sparse, times the weights, without the columns of weight 0."""
    if weights is None:
        return points.copy()
    columns = np.flatnonzero(weights)
    points = points[:, columns]
    if isinstance(points, np.ndarray):
        points *= weights[columns]
    else:
        points.data *= weights[columns][points.indices]
    return points


def _full(centers: np.ndarray, weights: np.ndarray | None, width: int) -> np.ndarray:
    """Return centers ``(n_clusters, width + 1)`` for `Centers`, given the centers of `_weighed` points.

    Weights of the features are factors of the centers, and the last column is half the squared length.
    """
    centers = centers.astype(np.float64)
    columns = np.arange(width) if weights is None else np.flatnonzero(weights)
    full = np.zeros((len(centers), width + 1))
    full[:, columns] = centers if weights is None else centers * weights[columns]
    full[:, -1] = np.einsum("ij,ij->i", centers, centers) / 2
    return full


def _nearest_of(points: Any, centers: np.ndarray) -> np.ndarray:
    """Return which centers are the nearest one of some point, ascending."""
    alone = Centers.from_arrays([centers], np.zeros(1, np.int64), [np.arange(len(centers))], np.ones((1, 1)))
    return np.unique(alone.label(points, np.ones((1, points.shape[0]), bool))[1])


def embedding(points: Any, landmarks: np.ndarray, n_vectors: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the leading eigenvectors (p, n_vectors) of the graph of landmarks, and their degrees (p,).

    ``points`` (rows, d) are of the sample, dense or sparse, ``landmarks`` (p, d) float64, all different. In
    one thread of BLAS. O(rows p d + p^3) time.
    """
    import scipy.linalg
    from scipy.sparse import csr_array

    n, p = points.shape[0], len(landmarks)
    n_nearest = min(N_NEAREST, p)
    nearest, squares = np.empty((n, n_nearest), np.int64), np.empty((n, n_nearest))
    with one_thread(user_api="blas"):
        halves = np.einsum("ij,ij->i", landmarks, landmarks) / 2
        for first in range(0, n, max(AT_ONCE // p, 1)):
            rows = points[first : first + max(AT_ONCE // p, 1)].astype(np.float64)
            lengths = np.asarray((rows**2).sum(axis=1)).ravel()
            distances = halves - np.asarray(rows @ landmarks.T)  # half of the squared one, less a constant
            closest = np.argpartition(distances, n_nearest - 1, axis=1)[:, :n_nearest]
            last = first + len(closest)
            nearest[first:last] = closest
            squares[first:last] = lengths[:, None] + 2 * np.take_along_axis(distances, closest, axis=1)
        np.maximum(squares, 0.0, out=squares)
        widths = 2 * np.sqrt(squares).mean(axis=1) ** 2
        squares -= squares.min(axis=1)[:, None]
        weights = np.exp(-squares / np.where(widths > 0, widths, 1.0)[:, None])
        weights /= weights.sum(axis=1)[:, None]
        starts = np.arange(0, n * n_nearest + 1, n_nearest)
        graph = csr_array((weights.ravel(), nearest.ravel(), starts), (n, p))
        similarity = (graph.T @ graph).toarray()
        degrees = similarity.sum(axis=1)
        scales = 1.0 / np.sqrt(degrees)
        span = [max(p - n_vectors, 0), p - 1]
        vectors = scipy.linalg.eigh(similarity * scales * scales[:, None], subset_by_index=span)[1]
    return vectors[:, ::-1] * scales[:, None], degrees


@contextmanager
def quiet_scikit_learn() -> Iterator[None]:
    """Use one BLAS thread and suppress warnings of empty clusters.

    Both settings are global to the process, so they are made once around all tasks.
    """
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings(), one_thread(user_api="blas"):
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield
