"""What each partition of an ensemble sees of the objects and features, and how many clusters it has."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.kernels.draws import mark_drawn
from bigcons.memory import row_blocks
from bigcons.seeding import SEGMENT_ROWS, generator
from bigcons.validation import check_int

ClusterCount = int | tuple[int, int] | range | str
"""An integer, an inclusive range (low, high), a range of Python, or "split"."""

ROWS_AT_ONCE = 64 * SEGMENT_ROWS
"""Rows of a subset that are drawn at a time where only some of them are needed."""


@dataclass(frozen=True)
class Scheme:
    """A kind of ensemble: what its partitions see, drawn from a seed, the stream and their number."""

    name: str
    n_clusters: ClusterCount | None = None
    """None: 2 to 30 by k-means and 2 to 20 by landmarks, as far as the objects reach."""
    sample: float | None = 1.0
    """The share of the objects that a partition sees; None if they are dealt."""
    repetition: int | None = None
    """Partitions to which an object is dealt, on average, of `n_partitions`."""
    n_features: int | None = None
    """Features that a partition sees; None for all."""
    alpha_range: tuple[float, float] | None = None
    """The exponents of Zipf weights from 1 to `largest_weight` of the features; None for no weights."""
    largest_weight: int | None = None
    by_landmarks: int = 0
    """Of every two partitions, so many are spectral clusterings on landmarks, and the others k-means."""
    n_partitions: int = 100
    n_init: int = 1
    """Random starts of k-means."""
    seed: int = 0
    n_objects: int = 0
    segment_rows: int = SEGMENT_ROWS
    """Rows of which each subset has a fixed number."""
    ranges: tuple[tuple[int, int], tuple[int, int]] = ((2, 30), (2, 20))
    """Once known, the fewest and most clusters of a partition by k-means, and of one by landmarks."""
    feature_of_column: tuple[int, ...] | None = None
    """Once known, the feature of each number: of a category there are several."""
    smooth: tuple[int, ...] | None = None
    """Once known, the columns that landmarks see; None for all: see `smooth_columns`."""

    @property
    def stream(self) -> str:
        """The name of the random streams."""
        return f"generate.{self.name}"

    def parameters(self) -> dict[str, Any]:
        """Return what callers may give, for the provenance."""
        names = (
            "n_partitions",
            "n_init",
            "sample",
            "repetition",
            "n_features",
            "alpha_range",
            "largest_weight",
        )
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def of_objects(self, n_objects: int, segment_rows: int, *, limit: bool = False) -> Scheme:
        """Return the scheme for so many objects; raises InvalidInputError if partitions see too few.

        ``limit``: partitions have at most as many clusters as objects instead.
        """
        scheme = replace(self, n_objects=n_objects, segment_rows=segment_rows)
        n_seen, ranges = scheme.least_seen, self.ranges
        if isinstance(self.n_clusters, str):
            ranges = (split_range(n_seen),) * 2
        elif self.n_clusters is not None:
            ranges = (check_range(self.n_clusters),) * 2
        if limit or self.n_clusters is None:
            (a, b), (c, d) = ranges
            ranges = (min(a, n_seen), min(b, n_seen)), (min(c, n_seen), min(d, n_seen))
        most = max(ranges[0][1], 1)
        if n_seen < most:
            names = ("sample",) if self.repetition is None else ("n_partitions", "repetition")
            given = ", ".join(f"{name}={getattr(self, name):g}" for name in names)
            remedy = "raise sample" if self.repetition is None else "raise repetition, make fewer partitions"
            raise InvalidInputError(
                f"{given} of n_objects={n_objects} is {n_seen} objects, fewer than n_clusters={most}; "
                f"{remedy} or use fewer clusters.",
                parameter=names[-1],
            )
        return replace(scheme, ranges=ranges)

    # Objects

    @property
    def share(self) -> float:
        """The share of the objects that a partition sees."""
        return self.repetition / self.n_partitions if self.repetition else float(self.sample or 1.0)

    @property
    def least_seen(self) -> int:
        """The fewest objects that a partition sees; others may see one more if objects are dealt."""
        if self.repetition is None:
            return round(self.share * self.n_objects)
        return self.repetition * self.n_objects // self.n_partitions

    def subset(self, u: int) -> Subset:
        """Return the objects of partition ``u``."""
        deal = None if self.repetition is None else (self.n_partitions, self.repetition)
        stream = f"{self.stream}.subset"
        return Subset(self.n_objects, self.share, self.segment_rows, self.seed, stream, u, deal)

    def pool(self, n_rows: int) -> Subset:
        """Return the objects from which samples of so many are drawn in all."""
        share = n_rows / self.n_objects
        return Subset(self.n_objects, share, self.segment_rows, self.seed, f"{self.stream}.pool", 0)

    # Features

    def weights(self, width: int, u: int) -> np.ndarray | None:
        """Return the weights (width,) float32 of the numbers of partition ``u``, None for all alike.

        Those that it does not see are 0.
        """
        if self.smooth is not None and self.landmarks_before(u) is not None:
            return _marked(width, np.array(self.smooth))
        if self.n_features is not None:
            rng = generator(self.seed, f"{self.stream}.columns", u)
            features = self._features(width)
            drawn = rng.choice(int(np.max(features)) + 1, size=self.n_features, replace=False)
            return _marked(width, np.isin(features, drawn))
        if self.alpha_range is None or self.largest_weight is None:
            return None
        rng = generator(self.seed, f"{self.stream}.weights", u)
        alpha = rng.uniform(*self.alpha_range)
        values = np.arange(1, self.largest_weight + 1)
        odds = values**-alpha
        return rng.choice(values, size=width, p=odds / odds.sum()).astype(np.float32)

    def check_features(self, width: int) -> None:
        """Raise InvalidInputError if fewer features vary than a partition sees."""
        n_varying = int(np.max(self._features(width))) + 1
        if self.n_features is not None and self.n_features > n_varying:
            raise InvalidInputError(
                f"n_features={self.n_features} but only {n_varying} features vary; use fewer."
            )

    def _features(self, width: int) -> np.ndarray:
        """Return the number, among those that vary, of the feature of each column."""
        columns = range(width) if self.feature_of_column is None else self.feature_of_column
        return np.asarray(np.unique(columns, return_inverse=True)[1])

    # Clusters

    def landmarks_before(self, u: int) -> int | None:
        """Return how many partitions before ``u`` are by landmarks, None if it is by k-means itself."""
        turn, place = divmod(u, 2)
        return self.by_landmarks * turn + place if place < self.by_landmarks else None

    def sets(self) -> list[tuple[int, ...]]:
        """Return the partitions of each set of centers: one by k-means, or a third of those by landmarks."""
        shared: dict[int, list[int]] = {}
        for u in range(self.n_partitions):
            number = self.landmarks_before(u)
            shared.setdefault(u if number is None else -1 - number % 3, []).append(u)
        return [tuple(partitions) for partitions in shared.values()]

    def draw(self, u: int) -> tuple[np.random.Generator, int]:
        """Return the generator of partition ``u``, and its number of clusters, the first draw."""
        rng = generator(self.seed, self.stream, u)
        low, high = self.ranges[0 if self.landmarks_before(u) is None else 1]
        return rng, int(rng.integers(low, high + 1))


def _marked(width: int, columns: np.ndarray) -> np.ndarray:
    weights = np.zeros(width, np.float32)
    weights[columns] = 1.0
    return weights


def smooth_columns(points: Any) -> tuple[int, ...] | None:
    """Return the columns of points (rows, d) with more than two values; None for all.

    A graph of nearest neighbors falls apart along columns of two values: booleans, categories, and what tells
    gaps. All columns count where these hold more than a third of the variance, and of sparse points.
    """
    if not isinstance(points, np.ndarray):
        return None
    is_smooth = ((points != points.min(axis=0)) & (points != points.max(axis=0))).any(axis=0)
    variances = points.var(axis=0, dtype=np.float64)
    if is_smooth.all() or 3 * variances[is_smooth].sum() < 2 * variances.sum():
        return None
    return tuple(np.flatnonzero(is_smooth).tolist())


def check_range(n_clusters: ClusterCount) -> tuple[int, int]:
    """Return a number or a range of clusters as ``(low, high)``."""
    if isinstance(n_clusters, range) and len(n_clusters) and n_clusters.step == 1:
        n_clusters = n_clusters[0], n_clusters[-1]
    if isinstance(n_clusters, (tuple, list)):
        if len(n_clusters) == 2:
            low, high = check_int("n_clusters[0]", n_clusters[0]), check_int("n_clusters[1]", n_clusters[1])
            if low <= high:
                return low, high
        raise InvalidInputError(
            f"n_clusters={n_clusters!r} is not a range; use an integer or (low, high), low first."
        )
    if isinstance(n_clusters, (int, np.integer)):
        return (check_int("n_clusters", n_clusters),) * 2
    if isinstance(n_clusters, str):
        raise InvalidInputError(
            f"n_clusters={n_clusters!r} is unknown; use an integer, (low, high) or 'split'."
        )
    raise InvalidInputError(
        f"n_clusters={n_clusters!r} has type {type(n_clusters).__name__}; use an integer >= 1, or (low, "
        "high), both included.",
        parameter="n_clusters",
    )


def split_range(n_seen: int) -> tuple[int, int]:
    """Return ``(kmin, kmin + 20)`` with ``kmin = max(sqrt(n) / 2, n / 50)`` for ``n_seen`` objects.

    The rule of Aidos and Fred's DID paper. Rounding ``kmin`` up and limiting both ends to the number of
    objects are ours.
    """
    low = math.ceil(max(math.sqrt(n_seen) / 2, n_seen / 50))
    return min(low, n_seen), min(low + 20, n_seen)


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
            order = (
                begin
                - bounds[0]
                + generator(self.seed, f"{self.stream}.deal", piece).permutation(end - begin)
            )
            is_dealt = np.arange(begin, end) % self.deal[0] == self.index
            marks[order[is_dealt]] = True
            if n_more := count - np.count_nonzero(is_dealt):
                rng = generator(self.seed, f"{self.stream}.rest", self.index, piece)
                marks[rng.choice(order[~is_dealt], size=n_more, replace=False, shuffle=False)] = True
        return marks[start - bounds[0] : stop - bounds[0]]
