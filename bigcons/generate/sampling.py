"""The objects and features that each partition of an ensemble sees.

Subsets are drawn segment by segment, so memory does not grow with the data.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.kernels.draws import mark_drawn
from bigcons.seeding import generator

PIECES_AT_ONCE = 64
"""Pieces of a subset that are drawn at a time where only some of their rows are needed."""


class View(NamedTuple):
    """The columns of a partition and their weights; None for all columns and for unit weights."""

    columns: np.ndarray | None = None
    weights: np.ndarray | None = None

    def of(self, points: Any) -> Any:
        """Return ``points`` as the partition sees them, dense or sparse; may modify ``points``."""
        if self.columns is not None:
            points = points[:, self.columns]
        if self.weights is not None and not isinstance(points, np.ndarray):
            points.data *= self.weights[points.indices]
        elif self.weights is not None:
            points *= self.weights
        return points

    def squares(self, n_features: int) -> np.ndarray:
        """Return the squared weights of all features, ``(n_features,)``, 0 outside the view."""
        squares = np.ones(n_features)
        if self.columns is not None:
            squares[:] = 0.0
            squares[self.columns] = 1.0
        if self.weights is not None:
            squares *= self.weights.astype(np.float64) ** 2
        return squares


class Scheme(NamedTuple):
    """A kind of ensemble: its name, what each partition sees, and how many are by landmarks."""

    name: str
    objects: RandomShare | DealtShare
    features: AllFeatures | RandomFeatures | ZipfWeights
    by_landmarks: int = 0
    """Of every two partitions, so many are spectral clusterings on landmarks, and the others k-means."""
    smooth: tuple[int, ...] | None = None
    """The columns that landmarks see, once known; None for all: see `smooth_columns`."""

    def number_by_landmarks(self, u: int) -> int | None:
        """Return how many partitions before ``u`` are by landmarks, None if it is by k-means itself."""
        turn, place = divmod(u, 2)
        return self.by_landmarks * turn + place if place < self.by_landmarks else None

    @property
    def sees_all_alike(self) -> bool:
        """Whether all partitions see the features as they are."""
        return isinstance(self.features, AllFeatures) and self.smooth is None

    def of_pool(self, points: Any) -> Scheme:
        """Return the scheme, once a pool of the scaled features is known."""
        return self._replace(smooth=smooth_columns(points)) if self.by_landmarks else self

    def parameters(self) -> dict[str, Any]:
        """Return the parameters for the provenance."""
        given = asdict(self.objects) | asdict(self.features)
        return {name: value for name, value in given.items() if name != "columns"}

    def of_columns(self, columns: Sequence[int]) -> Scheme:
        """Return the scheme for numbers of these columns of the features, of a category several."""
        if isinstance(self.features, RandomFeatures):
            return self._replace(features=replace(self.features, columns=tuple(columns)))
        return self


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


# Objects


class Drawn:
    """Base of the objects that a partition sees, drawn piece by piece, so that any part is read alone."""

    n_objects: int
    segment_rows: int

    def mask(self, start: int, stop: int) -> np.ndarray:
        """Return which of the rows from ``start`` to ``stop`` are sampled."""
        first, last = self._piece(start), self._piece(stop - 1)
        begin, marks = self._marks(first, last + 1)
        return marks[start - begin : stop - begin]

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return the sampled rows from ``start`` to ``stop``, ascending; memory for these alone."""
        first, end, found = self._piece(start), self._piece(stop - 1) + 1, []
        for piece in range(first, end, PIECES_AT_ONCE):
            begin, marks = self._marks(piece, min(piece + PIECES_AT_ONCE, end))
            found.append(begin + np.flatnonzero(marks))
        chosen = np.concatenate(found)
        return chosen[slice(*np.searchsorted(chosen, (start, stop)))]

    def segment(self, segment: int) -> np.ndarray:
        """Return the sampled rows of one segment, ascending."""
        start = segment * self.segment_rows
        return self.rows(start, min(start + self.segment_rows, self.n_objects))

    def _marks(self, first: int, end: int) -> tuple[int, np.ndarray]:
        """Return the first row of the pieces ``first`` to ``end``, and which of their rows are sampled."""
        bounds = [self._start_of(piece) for piece in range(first, end + 1)]
        marks = np.zeros(bounds[-1] - bounds[0], bool)
        self._mark(first, np.array(bounds) - bounds[0], np.diff([self.size(row) for row in bounds]), marks)
        return bounds[0], marks

    def _piece(self, row: int) -> int:
        """Return in which piece a row is."""
        raise NotImplementedError

    def _start_of(self, piece: int) -> int:
        """Return the first row of a piece; of the piece after the last one, the number of objects."""
        raise NotImplementedError

    def size(self, stop: int) -> int:
        """Return how many of the first ``stop`` objects are sampled, if these are whole pieces."""
        raise NotImplementedError

    def _mark(self, first: int, bounds: np.ndarray, counts: np.ndarray, marks: np.ndarray) -> None:
        """Mark the sampled rows of the pieces from ``first`` on, whose rows ``bounds`` separate."""
        raise NotImplementedError


@dataclass(frozen=True)
class Subset(Drawn):
    """A random share of ``n_objects`` objects, independent of how it is read.

    Each segment of ``segment_rows`` objects contributes a fixed number of its rows, drawn without
    replacement; these numbers differ by at most one and add up to the share.
    """

    n_objects: int
    share: float
    segment_rows: int
    seed: int
    stream: str
    index: int

    def size(self, stop: int) -> int:
        """Return how many of the first ``stop`` objects are sampled."""
        return subset_size(stop, self.share)

    def _piece(self, row: int) -> int:
        return row // self.segment_rows

    def _start_of(self, piece: int) -> int:
        return min(piece * self.segment_rows, self.n_objects)

    def _mark(self, first: int, bounds: np.ndarray, counts: np.ndarray, marks: np.ndarray) -> None:
        key = generator(self.seed, self.stream, self.index).integers(1 << 64, dtype=np.uint64)
        mark_drawn(key, first, bounds, counts, marks)


@dataclass(frozen=True)
class DealtSubset(Drawn):
    """The objects of partition ``index`` if all objects are dealt to ``n_partitions`` partitions.

    The coordinated sampling of Strehl and Ghosh 2002 (object-distributed clustering): shuffled objects are
    dealt, ``n / p`` to each of the ``p`` partitions, so that every object is in one of them; then each
    partition draws ``(v - 1) n / p`` of the other objects, where v is ``repetition``. They deal contiguous
    ranges of one shuffle of all objects. Here, each stratum of 4,096 rows (or ``2 p``; the last has up to
    twice as many) is shuffled and dealt separately, so that memory does not grow with the data and any
    part of the data is dealt evenly, up to one object.
    """

    n_objects: int
    n_partitions: int
    repetition: int
    segment_rows: int
    seed: int
    stream: str
    index: int

    @property
    def _stratum_rows(self) -> int:
        return max(4096, 2 * self.n_partitions)  # large enough for every deal

    @property
    def _n_strata(self) -> int:
        return max(1, self.n_objects // self._stratum_rows)

    def size(self, stop: int) -> int:
        """Return how many of the first ``stop`` objects are sampled."""
        return (self.repetition * stop + self.n_partitions - 1 - self.index) // self.n_partitions

    def _piece(self, row: int) -> int:
        return min(row // self._stratum_rows, self._n_strata - 1)

    def _start_of(self, piece: int) -> int:
        return self.n_objects if piece == self._n_strata else piece * self._stratum_rows

    def _mark(self, first: int, bounds: np.ndarray, counts: np.ndarray, marks: np.ndarray) -> None:
        for piece, start, stop, count in zip(
            itertools.count(first), bounds[:-1], bounds[1:], counts, strict=False
        ):
            order = start + generator(self.seed, f"{self.stream}.deal", piece).permutation(stop - start)
            is_dealt = (self._start_of(piece) + np.arange(stop - start)) % self.n_partitions == self.index
            dealt, others = order[is_dealt], order[~is_dealt]
            marks[dealt] = True
            if n_more := count - len(dealt):
                rng = generator(self.seed, f"{self.stream}.rest", self.index, piece)
                marks[rng.choice(others, size=n_more, replace=False, shuffle=False)] = True


def subset_size(n_objects: int, share: float) -> int:
    """Return how many of the first ``n_objects`` objects are in a subset of ``share``."""
    return round(share * n_objects)


@dataclass(frozen=True)
class RandomShare:
    """A random share of the objects, drawn independently for each partition."""

    sample: float
    remedy: ClassVar[str] = "raise sample"
    """How to let a partition see more objects, for errors."""

    @property
    def share(self) -> float:
        """The share of the objects."""
        return self.sample

    def least(self, n_objects: int) -> int:
        """The number of objects each partition sees."""
        return subset_size(n_objects, self.sample)

    most = least

    def subset(self, n_objects: int, segment_rows: int, seed: int, stream: str, u: int) -> Subset:
        """The objects of partition ``u``."""
        return Subset(n_objects, self.sample, segment_rows, seed, f"{stream}.subset", u)


@dataclass(frozen=True)
class DealtShare:
    """All objects dealt to ``n_partitions`` partitions, each object to about ``repetition`` of them."""

    n_partitions: int
    repetition: int
    remedy: ClassVar[str] = "raise repetition, make fewer partitions"

    @property
    def share(self) -> float:
        """The share of the objects."""
        return self.repetition / self.n_partitions

    def least(self, n_objects: int) -> int:
        """The fewest objects a partition may see."""
        return self.repetition * n_objects // self.n_partitions

    def most(self, n_objects: int) -> int:
        """The most objects a partition may see."""
        return -(-self.repetition * n_objects // self.n_partitions)

    def subset(self, n_objects: int, segment_rows: int, seed: int, stream: str, u: int) -> DealtSubset:
        """The objects of partition ``u``."""
        return DealtSubset(
            n_objects, self.n_partitions, self.repetition, segment_rows, seed, f"{stream}.subset", u
        )


# Features


@dataclass(frozen=True)
class AllFeatures:
    """Every feature as it is."""

    def width(self, n_features: int) -> int:
        """All of them."""
        return n_features

    def view(self, n_features: int, seed: int, stream: str, u: int) -> View:  # noqa: ARG002 - nothing is drawn
        """Return the same view for every partition."""
        return View()


@dataclass(frozen=True)
class RandomFeatures:
    """``n_features`` features, drawn without replacement, independently for each partition."""

    n_features: int
    columns: tuple[int, ...] | None = None
    """The feature of each number, once known; None of one number each."""

    def width(self, n_features: int) -> int:
        """The largest count of numbers of the features drawn."""
        sizes = np.ones(n_features, np.int64)
        if self.columns is not None:
            sizes = np.unique(self.columns, return_counts=True)[1]
        if self.n_features > len(sizes):
            raise InvalidInputError(
                f"n_features={self.n_features} but only {len(sizes)} features vary; use fewer."
            )
        return int(np.sort(sizes)[-self.n_features :].sum())

    def view(self, n_features: int, seed: int, stream: str, u: int) -> View:
        """The numbers of the features of partition ``u``, ascending."""
        rng = generator(seed, f"{stream}.columns", u)
        of_number = np.arange(n_features)
        if self.columns is not None:
            of_number = np.unique(self.columns, return_inverse=True)[1]
        drawn = rng.choice(int(np.max(of_number)) + 1, size=self.n_features, replace=False)
        return View(columns=np.flatnonzero(np.isin(of_number, drawn)))


@dataclass(frozen=True)
class ZipfWeights:
    """A random integer weight from 1 to ``largest_weight`` for each feature and partition.

    Weight ``v`` has probability proportional to ``v ** -alpha``, where ``alpha`` is uniform in
    ``alpha_range`` for each partition.
    """

    alpha_range: tuple[float, float]
    largest_weight: int

    def width(self, n_features: int) -> int:
        """All of them."""
        return n_features

    def view(self, n_features: int, seed: int, stream: str, u: int) -> View:
        """The weights of partition ``u``."""
        rng = generator(seed, f"{stream}.weights", u)
        return View(weights=self.draw(rng.uniform(*self.alpha_range), n_features, rng).astype(np.float32))

    def draw(self, alpha: float, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return ``n`` integer weights with exponent ``alpha``."""
        values = np.arange(1, self.largest_weight + 1)
        odds = values**-alpha
        return rng.choice(values, size=n, p=odds / odds.sum())
