"""Partitions trained on samples, and one pass over the features that labels all objects in all partitions.

The mean of m objects of a cluster is as good a center for the others as the mean of them all, up to 1/m of
their squared distances to it. So k-means is trained on thousands of the objects that a partition sees: on a
quarter of its sample from a random start, and from there on all of it, which takes few iterations more. Where
the sample is all that the partition sees, k-means runs on that as it is. However many partitions there are,
all objects are read twice: to measure the features and draw the pool of all samples, and to label.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigcons.generate.landmarks import embedding, n_landmarks
from bigcons.generate.sampling import PIECES_AT_ONCE, DealtSubset, Scheme, Subset, View
from bigcons.kernels.nearest import normalize_rows
from bigcons.memory import Block, row_blocks
from bigcons.run.engine import one_thread
from bigcons.seeding import generator
from bigcons.store.encoding import Scaling
from bigcons.store.generator import Centers

if TYPE_CHECKING:
    from sklearn.cluster import KMeans

SETS_OF_LANDMARKS = 3
"""Sets of landmarks that all partitions by landmarks share."""


class Settings(NamedTuple):
    """Parameters of the partitions."""

    n_clusters: tuple[int, int] = (2, 30)
    landmark_clusters: tuple[int, int] = (2, 20)
    """The range of clusters of a partition by landmarks."""
    n_init: int = 1
    """Random starts of k-means."""


@dataclass(frozen=True)
class Seen:
    """What the partitions see of ``n_objects`` objects."""

    scheme: Scheme
    n_objects: int
    segment_rows: int
    seed: int

    @property
    def stream(self) -> str:
        """The name of the random streams."""
        return f"generate.{self.scheme.name}"

    def draw(self, u: int, settings: Settings) -> tuple[np.random.Generator, int]:
        """Return the generator of partition ``u``, and its number of clusters, the first draw."""
        rng = generator(self.seed, self.stream, u)
        by_kmeans = self.scheme.number_by_landmarks(u) is None
        low, high = settings.n_clusters if by_kmeans else settings.landmark_clusters
        return rng, int(rng.integers(low, high + 1))

    def subset(self, u: int) -> Subset | DealtSubset:
        """The objects of partition ``u``."""
        return self.scheme.objects.subset(self.n_objects, self.segment_rows, self.seed, self.stream, u)

    def view(self, n_features: int, u: int) -> View:
        """The features of partition ``u``."""
        smooth = self.scheme.smooth
        if smooth is not None and self.scheme.number_by_landmarks(u) is not None:
            return View(columns=np.array(smooth))
        return self.scheme.features.view(n_features, self.seed, self.stream, u)

    def pool(self, n_rows: int) -> Subset:
        """The objects from which the samples are drawn."""
        share = n_rows / self.n_objects
        return Subset(self.n_objects, share, self.segment_rows, self.seed, f"{self.stream}.pool", 0)


def sets_of(scheme: Scheme, n_partitions: int) -> list[tuple[int, ...]]:
    """Return the partitions of each set of centers: one by k-means, or several by the same landmarks."""
    shared: dict[int, list[int]] = {}
    for u in range(n_partitions):
        number = scheme.number_by_landmarks(u)
        shared.setdefault(u if number is None else -1 - number % SETS_OF_LANDMARKS, []).append(u)
    return [tuple(partitions) for partitions in shared.values()]


class Pool(NamedTuple):
    """The objects from which the samples are drawn."""

    rows: np.ndarray
    """Ascending."""
    points: Any
    """``(n_rows, n_features)`` float32, scaled; dense, or compressed sparse rows."""


def choose_sample_rows(n_clusters: int, n_features: int) -> int:
    """Return how many objects train a partition: 40,000 of up to 156 clusters and 104 features.

    256 or more per cluster, so that estimating the centers costs about 0.4 % of the inertia.
    """
    return max(256 * n_clusters, min(40_000, (1 << 22) // n_features))


def choose_pool_rows(sample_rows: int, n_objects: int, share: float) -> int:
    """Return the size of the pool: that of two samples, and enough for a sample of a ``share`` of it."""
    return min(n_objects, math.ceil(sample_rows * max(2.0, 1.1 / share)))


@dataclass(frozen=True)
class TrainTask:
    """Trains a set of centers on a sample of the objects that its partitions see."""

    seen: Seen
    settings: Settings
    pool: Pool
    sample_rows: int

    def __call__(self, partitions: tuple[int, ...]) -> np.ndarray:
        """Return the centers of a set and their clusters, float64 of `n_features + 1 + n_partitions` columns.

        Of each center the coordinates and half the squared length, as `Centers` has them, and its cluster in
        each of the ``partitions``. Every center is the nearest one of some object.
        """
        u = partitions[0]
        by_kmeans = self.seen.scheme.number_by_landmarks(u) is None
        if by_kmeans:
            rng, n_clusters = self.seen.draw(u, self.settings)
        else:
            rng = generator(self.seen.seed, f"{self.seen.stream}.landmarks", u)
        chosen = np.flatnonzero(self._is_seen(u))
        if is_sample := len(chosen) > self.sample_rows:
            chosen = np.sort(rng.choice(chosen, size=self.sample_rows, replace=False, shuffle=False))
        points = self.pool.points[chosen]
        n_rows, n_features = points.shape
        view = self.seen.view(n_features, u)
        if by_kmeans:
            found = self._means(view.of(points.copy()), n_clusters, rng, is_sample)
            centers = full_centers(found, view, n_features)
            return np.column_stack([centers, np.arange(n_clusters)])[nearest_of(points, centers)]
        rows = np.sort(rng.choice(n_rows, n_landmarks(n_rows, n_features), replace=False))
        landmarks = view.of(points[rows] if isinstance(points, np.ndarray) else points[rows].toarray())
        centers = full_centers(landmarks, view, n_features)
        is_kept = nearest_of(points, centers)  # equal ones are one
        centers = centers[is_kept]
        most = self.settings.landmark_clusters[1]
        vectors, degrees = embedding(view.of(points), landmarks[is_kept].astype(np.float64), most)
        clusters = (self._joined(vectors, degrees, v) for v in partitions)
        return np.column_stack([centers, *clusters])

    def _means(self, points: Any, n_clusters: int, rng: np.random.Generator, is_sample: bool) -> np.ndarray:
        """Return the centers that k-means finds, of a sample from those of some of its points."""
        init: str | np.ndarray = "random"
        with one_thread():
            if is_sample:
                n_start = max(points.shape[0] // 4, n_clusters)
                first = np.sort(rng.choice(points.shape[0], size=n_start, replace=False, shuffle=False))
                init = (
                    untrained(n_clusters, rng, n_init=self.settings.n_init)
                    .fit(points[first])
                    .cluster_centers_
                )
            how = {"max_iter": 20} if is_sample else {"n_init": self.settings.n_init}
            model = untrained(n_clusters, rng, init, **how)
            centers: np.ndarray = model.fit(points).cluster_centers_
        return centers

    def _joined(self, vectors: np.ndarray, degrees: np.ndarray, u: int) -> np.ndarray:
        """Return the cluster (p,) of each landmark in partition ``u``."""
        rng, n_clusters = self.seen.draw(u, self.settings)
        rows = vectors[:, : min(n_clusters, vectors.shape[1])].copy()
        normalize_rows(rows)
        with one_thread():
            model = untrained(rows.shape[1], rng, "k-means++").fit(rows, sample_weight=degrees)
        labels: np.ndarray = model.labels_
        return labels

    def _is_seen(self, u: int) -> np.ndarray:
        """Return which rows of the pool partition ``u`` sees."""
        subset, rows = self.seen.subset(u), self.pool.rows
        is_seen = np.zeros(len(rows), bool)
        for block in row_blocks(self.seen.n_objects, PIECES_AT_ONCE * self.seen.segment_rows):
            first, last = np.searchsorted(rows, (block.start, block.stop))
            is_seen[first:last] = subset.mask(block.start, block.stop)[rows[first:last] - block.start]
        return is_seen


def nearest_of(points: Any, centers: np.ndarray) -> np.ndarray:
    """Return which centers are the nearest one of some point, ascending."""
    one = np.zeros(1, np.int64)
    alone = Centers.of([centers], one, [np.arange(len(centers))], np.ones((1, 1)))
    return np.unique(alone.label(points, np.ones((1, points.shape[0]), bool))[1])


def full_centers(found: np.ndarray, view: View, n_features: int) -> np.ndarray:
    """Return centers ``(n_clusters, n_features + 1)`` for `Centers`, given those in a view.

    Weights of the features are factors of the centers, features outside the view are 0, and the last column
    is half the squared length.
    """
    found = found.astype(np.float64)
    columns = np.arange(n_features) if view.columns is None else view.columns
    centers = np.zeros((len(found), n_features + 1))
    centers[:, columns] = found if view.weights is None else found * view.weights
    centers[:, -1] = np.einsum("ij,ij->i", found, found) / 2
    return centers


def centers_of(seen: Seen, trained: list[np.ndarray], n_partitions: int, width: int) -> Centers:
    """Return the centers of all partitions, given what `TrainTask` returns for each set."""
    sets, clusters = np.empty(n_partitions, np.int64), [np.empty(0, np.int64)] * n_partitions
    squares = np.ones((1, width))
    members = sets_of(seen.scheme, n_partitions)
    for s, (partitions, found) in enumerate(zip(members, trained, strict=True)):
        sets[list(partitions)] = s
        for number, u in enumerate(partitions):
            clusters[u] = found[:, width + 1 + number].astype(np.int64)
    if not seen.scheme.sees_all_alike:
        squares = np.array([seen.view(width, partitions[0]).squares(width) for partitions in members])
    clusters = [np.unique(of, return_inverse=True)[1] for of in clusters]
    return Centers.of([found[:, : width + 1] for found in trained], sets, clusters, squares)


@dataclass(frozen=True)
class LabelTask:
    """Labels a block of objects in all partitions.

    The objects that trained a center are labeled with it again, so every cluster of every partition occurs.
    """

    seen: Seen
    scaling: Scaling
    centers: Centers

    def __call__(self, item: tuple[Block, Any]) -> np.ndarray:
        """Return the labels ``(rows, n_partitions)`` of a block of features, -1 for what is not seen."""
        block, values = item
        return self.centers.label(self.scaling.apply(values), self.is_seen(block))[0]

    def is_seen(self, block: Block) -> np.ndarray:
        """Return what each set sees of a block of objects, ``(n_sets, rows)`` bool."""
        members = sets_of(self.seen.scheme, len(self.centers.sets))
        return np.array(
            [self.seen.subset(partitions[0]).mask(block.start, block.stop) for partitions in members]
        )


def untrained(
    n_clusters: int,
    rng: np.random.Generator,
    init: str | np.ndarray = "random",
    *,
    n_init: int = 1,
    max_iter: int = 100,
) -> KMeans:
    """Return scikit-learn's k-means with a seed from ``rng``."""
    from sklearn.cluster import KMeans

    seed = int(rng.integers(2**31))
    return KMeans(n_clusters, init=init, n_init=n_init, max_iter=max_iter, random_state=seed, copy_x=False)


@contextmanager
def quiet_scikit_learn() -> Iterator[None]:
    """Use one BLAS thread and suppress warnings of empty clusters.

    Both settings are global to the process, so they are made once around all tasks.
    """
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings(), one_thread(user_api="blas"):
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield
