"""What each partition of an ensemble sees of the objects and features, and how many clusters it has."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigcons.errors import InvalidInputError, SuspiciousLabelsWarning, warn_user
from bigcons.kernels.draws import mark_drawn
from bigcons.memory import row_blocks
from bigcons.seeding import SEGMENT_ROWS, generator
from bigcons.validation import check_int

ClusterCount = int | tuple[int, int] | range | str
"""An integer, an inclusive range (low, high), a range of Python, or "split"."""

BY_LANDMARKS = {"mixed": 1, "landmarks": 2}
"""By the name of a scheme, how many of every two partitions are by landmarks."""

ROWS_AT_ONCE = 64 * SEGMENT_ROWS
"""Rows of a subset that are drawn at a time where only some of them are needed."""


@dataclass(frozen=True)
class Scheme:
    """A kind of ensemble: what its partitions see, drawn from a seed, the name and their number."""

    name: str
    n_partitions: int = 100
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
    """Once known, the columns that landmarks see; None for all: see `of_points`."""

    def __post_init__(self) -> None:
        check_int("n_partitions", self.n_partitions)
        check_int("n_init", self.n_init)

    def parameters(self) -> dict[str, Any]:
        """Return what callers may give besides the number of clusters, for the provenance."""
        names = ("n_partitions", "n_init", "sample", "repetition", "n_features", "alpha_range")
        values = {name: getattr(self, name) for name in (*names, "largest_weight")}
        return {name: value for name, value in values.items() if value is not None}

    def of_objects(self, n_objects: int, chunk_rows: int, *, limit: bool = False) -> Scheme:
        """Return the scheme for so many objects; raises InvalidInputError if partitions see too few.

        ``limit``: partitions have at most as many clusters as objects instead.
        """
        n_seen, ranges = round(self.share * n_objects), self.ranges
        if self.repetition is not None:
            n_seen = self.repetition * n_objects // self.n_partitions
        if self.n_clusters == "split":
            ranges = (split_range(n_seen),) * 2
        elif self.n_clusters is not None:
            ranges = (check_range(self.n_clusters),) * 2
            if ranges[0][1] == 1:
                warn_user(
                    "partitions of a single cluster say nothing; use n_clusters of at least 2.",
                    SuspiciousLabelsWarning,
                )
        if limit or self.n_clusters is None:
            (a, b), (c, d) = ranges
            ranges = (min(a, n_seen), min(b, n_seen)), (min(c, n_seen), min(d, n_seen))
        if n_seen < max(ranges[0][1], 1):
            names = ("sample",) if self.repetition is None else ("n_partitions", "repetition")
            given = ", ".join(f"{name}={getattr(self, name):g}" for name in names)
            remedy = "raise sample" if self.repetition is None else "raise repetition, make fewer partitions"
            raise InvalidInputError(
                f"{given} of n_objects={n_objects} is {n_seen} objects, fewer than "
                f"n_clusters={max(ranges[0][1], 1)}; {remedy} or use fewer clusters.",
                parameter=names[-1],
            )
        segment_rows = min(SEGMENT_ROWS, chunk_rows)
        return replace(self, n_objects=n_objects, segment_rows=segment_rows, ranges=ranges)

    def of_features(self, columns: list[int]) -> Scheme:
        """Return the scheme for numbers of these columns of a table; refuse fewer than a partition sees."""
        features = np.unique(columns, return_inverse=True)[1]
        n_varying = int(features.max()) + 1
        if self.n_features is not None and self.n_features > n_varying:
            raise InvalidInputError(
                f"n_features={self.n_features} but only {n_varying} features vary; use fewer."
            )
        return replace(self, features=tuple(features.tolist()))

    def of_points(self, points: Any) -> Scheme:
        """Return the scheme whose landmarks see the columns of points (rows, d) with more than two values.

        A graph of nearest neighbors falls apart along columns of two values: booleans, categories, and what
        tells gaps. All columns count where these hold more than a third of the variance, and of sparse
        points.
        """
        if not isinstance(points, np.ndarray):
            return self
        is_smooth = ((points != points.min(axis=0)) & (points != points.max(axis=0))).any(axis=0)
        variances = points.var(axis=0, dtype=np.float64)
        if is_smooth.all() or 3 * variances[is_smooth].sum() < 2 * variances.sum():
            return self
        return replace(self, smooth=tuple(np.flatnonzero(is_smooth).tolist()))

    def generator(self, stream: str, *index: int) -> np.random.Generator:
        """Return the generator of a stream of draws."""
        return generator(self.seed, f"generate.{self.name}{stream}", *index)

    # Objects

    @property
    def share(self) -> float:
        """The share of the objects that a partition sees."""
        return self.repetition / self.n_partitions if self.repetition else float(self.sample or 1.0)

    def subset(self, u: int) -> Subset:
        """Return the objects of partition ``u``."""
        deal = None if self.repetition is None else (self.n_partitions, self.repetition)
        stream = f"generate.{self.name}.subset"
        return Subset(self.n_objects, self.share, self.segment_rows, self.seed, stream, u, deal)

    def pool(self, n_rows: int) -> Subset:
        """Return the objects from which samples of so many are drawn in all."""
        share = n_rows / self.n_objects
        return Subset(self.n_objects, share, self.segment_rows, self.seed, f"generate.{self.name}.pool", 0)

    # Features

    def weights(self, u: int) -> np.ndarray | None:
        """Return the weights (width,) float32 of the numbers of partition ``u``, None for all alike.

        Those that it does not see are 0.
        """
        features, seen = np.array(self.features), None
        if self.smooth is not None and self.is_by_landmarks(u):
            seen = np.array(self.smooth)
        elif self.n_features is not None:
            rng = self.generator(".columns", u)
            seen = np.isin(features, rng.choice(int(features.max()) + 1, self.n_features, replace=False))
        if seen is not None:
            weights = np.zeros(len(features), np.float32)
            weights[seen] = 1.0
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


def check_range(n_clusters: Any) -> tuple[int, int]:
    """Return a number or a range of clusters as ``(low, high)``."""
    if isinstance(n_clusters, range) and len(n_clusters) and n_clusters.step == 1:
        n_clusters = n_clusters[0], n_clusters[-1]
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
            order = generator(self.seed, f"{self.stream}.deal", piece).permutation(end - begin)
            order += begin - bounds[0]
            is_dealt = np.arange(begin, end) % self.deal[0] == self.index
            marks[order[is_dealt]] = True
            if n_more := count - np.count_nonzero(is_dealt):
                rng = generator(self.seed, f"{self.stream}.rest", self.index, piece)
                marks[rng.choice(order[~is_dealt], size=n_more, replace=False, shuffle=False)] = True
        return marks[start - bounds[0] : stop - bounds[0]]
