"""One partition: scikit-learn's k-means on the objects and features it sees."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigcons.execution.engine import one_thread
from bigcons.generate.sampling import DealtSubset, Scheme, Subset, View
from bigcons.generate.scratch import Scratch
from bigcons.kernels.nearest import pack_centers
from bigcons.memory import row_blocks
from bigcons.seeding import generator
from bigcons.stores.generator import label_points
from bigcons.tables.encode import label_dtype
from bigcons.tables.files import NpyTable

if TYPE_CHECKING:
    from sklearn.cluster import KMeans


class Settings(NamedTuple):
    """Parameters of k-means."""

    n_clusters: tuple[int, int]
    init: str | np.ndarray
    n_init: int
    max_iter: int
    tol: float

    @property
    def label_dtype(self) -> np.dtype:
        """Smallest signed integer that holds the labels."""
        return label_dtype([self.n_clusters[1]])


@dataclass(frozen=True)
class Plan:
    """How the work fits in the memory budget.

    Attributes
    ----------
    algorithm
        "lloyd" or "minibatch".
    matrix_in_memory
        Whether the scaled features are in memory or in a file.
    n_tasks
        Number of tasks that may run concurrently.
    chunk_rows, segment_rows
        Rows of a block and of a segment; both are independent of the budget.
    start_rows, batch_segments
        Rows of the initial sample and segments of a mini-batch for "minibatch"; both are independent of
        the budget.
    reason
        Explanation, for the log.
    """

    algorithm: str
    matrix_in_memory: bool
    n_tasks: int
    chunk_rows: int
    segment_rows: int
    batch_segments: int
    start_rows: int
    reason: str


class Matrix(NamedTuple):
    """The scaled features ``(n_objects, n_features)``, float32, in memory, dense or sparse, or in a file."""

    n_objects: int
    n_features: int
    values: Any

    def read(self, start: int, stop: int) -> Any:
        """Return rows ``start`` to ``stop``, which must not be modified."""
        if isinstance(self.values, NpyTable):
            return self.values.read(start, stop)
        return self.values[start:stop]


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

    def draw(self, u: int, n_clusters: tuple[int, int]) -> tuple[np.random.Generator, int]:
        """Return the generator of partition ``u``, and its number of clusters, the first draw."""
        rng = generator(self.seed, self.stream, u)
        return rng, draw_n_clusters(rng, n_clusters)

    def subset(self, u: int) -> Subset | DealtSubset:
        """The objects of partition ``u``."""
        return self.scheme.objects.subset(self.n_objects, self.segment_rows, self.seed, self.stream, u)

    def view(self, n_features: int, u: int) -> View:
        """The features of partition ``u``."""
        return self.scheme.features.view(n_features, self.seed, self.stream, u)

    def pool(self, n_rows: int) -> Subset:
        """The objects from which the samples are drawn."""
        share = n_rows / self.n_objects
        return Subset(self.n_objects, share, self.segment_rows, self.seed, f"{self.stream}.pool", 0)


def full_centers(found: np.ndarray, view: View, n_features: int) -> np.ndarray:
    """Return centers ``(n_clusters, n_features + 1)`` for `label_points`, given those in a view.

    Weights of the features are factors of the centers, features outside the view are 0, and the last column
    is half the squared length.
    """
    found = found.astype(np.float64)
    columns = np.arange(n_features) if view.columns is None else view.columns
    centers = np.zeros((len(found), n_features + 1))
    centers[:, columns] = found if view.weights is None else found * view.weights
    centers[:, -1] = np.einsum("ij,ij->i", found, found) / 2
    return centers


@dataclass(frozen=True)
class PartitionTask:
    """Computes partition ``u`` of the scaled features; idempotent.

    Its labels are the nearest of its centers. Both are written to ``scratch`` or, if that is None, returned.
    """

    matrix: Matrix
    seen: Seen
    settings: Settings
    plan: Plan
    scratch: Scratch | None

    def __call__(self, u: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Compute partition ``u``: labels ``(n_objects,)``, and `full_centers` of clusters with objects."""
        n_objects, n_features, _ = self.matrix
        rng, n_clusters = self.seen.draw(u, self.settings.n_clusters)
        subset, view = self.seen.subset(u), self.seen.view(n_features, u)
        points = Points(self.matrix, subset, view, self.plan)
        column = LabelColumn(n_objects, n_clusters, self.settings.label_dtype)
        with one_thread():
            if self.plan.algorithm == "lloyd":
                seen = points.gather(subset.rows(0, n_objects))
                found = untrained(self.settings, n_clusters, rng).fit(seen).cluster_centers_
                del seen
            else:
                found = self._minibatch(points, n_clusters, rng)
        centers = full_centers(found, view, n_features)
        packed, ends = pack_centers(centers), np.array([0, n_clusters])
        whole = points._replace(view=View())
        for block in row_blocks(n_objects, self.plan.chunk_rows):
            rows = subset.rows(block.start, block.stop)
            if len(rows):
                labels = np.empty((len(rows), 1), self.settings.label_dtype)
                label_points(whole.gather(rows), packed, ends, np.ones((1, len(rows)), bool), labels)
                column.put(rows, labels[:, 0])
        labels, centers = column.dense(), centers[column.has_objects]
        if self.scratch is None:
            return labels, centers
        self.scratch.write(self.scratch.found(u), centers)
        self.scratch.write(self.scratch.partition(u), labels)
        return None

    def _minibatch(self, points: Points, n_clusters: int, rng: np.random.Generator) -> np.ndarray:
        """Return the centers of Lloyd's algorithm on a sample and one pass of mini-batches.

        A mini-batch mixes random segments, because neighboring rows are often similar.
        """
        from sklearn.cluster import MiniBatchKMeans

        subset = points.subset
        segments = rng.permutation(-(-subset.n_objects // subset.segment_rows))
        start = untrained(self.settings, n_clusters, rng).fit(self._start(points, segments, rng))
        model = MiniBatchKMeans(n_clusters, init=start.cluster_centers_, n_init=1, reassignment_ratio=0)
        del start
        rng.shuffle(segments)
        for first in range(0, len(segments), self.plan.batch_segments):
            batch = segments[first : first + self.plan.batch_segments]
            parts = [points.gather(rows) for rows in map(subset.segment, batch) if len(rows)]
            if parts:
                model.partial_fit(stacked(parts))
        return np.asarray(model.cluster_centers_)

    def _start(self, points: Points, segments: np.ndarray, rng: np.random.Generator) -> Any:
        """Return points of the subset from up to 256 segments, the same number from each."""
        quota = -(-self.plan.start_rows // min(len(segments), 256))
        parts: list[Any] = []
        n_points = 0
        for segment in segments:
            rows = points.subset.segment(segment)
            if len(rows) > quota:
                rows = np.sort(rng.choice(rows, size=quota, replace=False, shuffle=False))
            if len(rows):
                parts.append(points.gather(rows))
            n_points += len(rows)
            if n_points >= self.plan.start_rows:
                break
        return stacked(parts)


def stacked(parts: list[Any]) -> Any:
    """Return rows one below the other, dense or sparse."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    from scipy.sparse import vstack

    return vstack(parts, "csr")


def draw_n_clusters(rng: np.random.Generator, limits: tuple[int, int]) -> int:
    """Return the number of clusters of a partition, the first draw of its generator."""
    return int(rng.integers(limits[0], limits[1] + 1))


def untrained(settings: Settings, n_clusters: int, rng: np.random.Generator) -> KMeans:
    """Return scikit-learn's k-means with these settings and a seed from ``rng``."""
    from sklearn.cluster import KMeans

    return KMeans(
        n_clusters,
        init=settings.init,
        n_init=settings.n_init,
        max_iter=settings.max_iter,
        tol=settings.tol,
        random_state=int(rng.integers(2**31)),
        copy_x=False,
    )


class Points(NamedTuple):
    """The matrix as one partition sees it."""

    matrix: Matrix
    subset: Subset | DealtSubset
    view: View
    plan: Plan

    def gather(self, rows: np.ndarray) -> Any:
        """Return the points of ascending ``rows``, read block by block; a copy."""
        if not isinstance(self.matrix.values, (np.ndarray, NpyTable)):
            return self.view.of(self.matrix.values[rows])
        width = self.matrix.n_features if self.view.columns is None else len(self.view.columns)
        points = np.empty((len(rows), width), dtype=np.float32)
        done = 0
        while done < len(rows):
            first = int(rows[done])
            until = int(np.searchsorted(rows, first + self.plan.chunk_rows))
            block = self.matrix.read(first, int(rows[until - 1]) + 1)
            points[done:until] = self.view.of(block[rows[done:until] - first])
            done = until
        return points


class LabelColumn:
    """The labels of one partition: -1 until set, then made dense."""

    def __init__(self, n_objects: int, n_clusters: int, dtype: np.dtype) -> None:
        self._labels = np.full(n_objects, -1, dtype=dtype)
        self._sizes = np.zeros(n_clusters, dtype=np.int64)

    def put(self, rows: np.ndarray, labels: np.ndarray) -> None:
        """Set the labels of ``rows``."""
        self._labels[rows] = labels
        self._sizes += np.bincount(labels, minlength=len(self._sizes))

    @property
    def has_objects(self) -> np.ndarray:
        """Which clusters have objects, ``(n_clusters,)`` bool."""
        return self._sizes > 0

    def dense(self) -> np.ndarray:
        """Return all labels, renumbered so that no cluster is empty."""
        if (self._sizes == 0).any():
            new = np.append(np.cumsum(self._sizes > 0) - 1, -1).astype(self._labels.dtype)
            for block in row_blocks(len(self._labels), 1 << 16):
                rows = slice(block.start, block.stop)
                self._labels[rows] = new[self._labels[rows]]
        return self._labels


@contextmanager
def quiet_scikit_learn() -> Iterator[None]:
    """Use one BLAS thread and suppress warnings of empty clusters.

    Both settings are global to the process, so they are made once around all tasks.
    """
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings(), one_thread(user_api="blas"):
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield
