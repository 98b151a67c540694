"""Planted data of any size: recipes that generate any range of rows with its truth.

Rows are drawn in segments of 4,096, each with its own random generator, so that a range of rows is the same
whether it is generated alone or with the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.io.factorize import label_dtype
from bigcons.memory import row_blocks
from bigcons.seeding import SEGMENT_ROWS, SeedLike, generator, resolve_seed
from bigcons.validation import check_int, check_number

if TYPE_CHECKING:
    from bigcons.store.ensemble import Ensemble


class _Planted:
    """Reads any range of rows of planted data, which are made segment by segment."""

    n_objects: int
    shares: Sequence[float]
    random_state: SeedLike

    def read(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Return values and truth of rows ``start`` to ``stop``, the same whatever the range."""
        if not 0 <= start < stop <= self.n_objects:
            raise InvalidInputError(
                f"rows {start}:{stop} are not within the {self.n_objects:,} rows; ask for 0 <= start < stop."
            )
        parts = []
        for block in row_blocks(self.n_objects, SEGMENT_ROWS)[
            start // SEGMENT_ROWS : -(-stop // SEGMENT_ROWS)
        ]:
            within = slice(max(start - block.start, 0), min(stop, block.stop) - block.start)
            parts.append([array[within] for array in self._segment(block.index, block.n_rows)])
        values, truth = zip(*parts, strict=True)
        return np.concatenate(values), np.concatenate(truth)

    def _segment(self, segment: int, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the values and the truth of all rows of a segment."""
        raise NotImplementedError

    def _set_checked(self) -> None:
        """Check what all recipes have, and settle the seed."""
        check_int("n_objects", self.n_objects)
        shares = tuple(map(float, self.shares))
        if not shares or min(shares) < 0 or abs(sum(shares) - 1) > 1e-9:
            raise InvalidInputError(f"shares={shares} are not probabilities; they must be >= 0 and sum to 1.")
        object.__setattr__(self, "shares", shares)
        object.__setattr__(self, "random_state", resolve_seed(self.random_state))

    def _generator(self, stream: str, *index: int) -> np.random.Generator:
        return generator(resolve_seed(self.random_state), stream, *index)


@dataclass(frozen=True)
class PlantedLabels(_Planted):
    """A recipe of a planted ensemble: generates the labels and the truth of any range of rows.

    Partition ``u`` has ``K_u`` clusters. If ``K_u`` is at most the number of true classes, each cluster is a
    union of classes; otherwise each is a class or a random part of one. The label of every object is then
    replaced by a uniformly random one at the noise rate of the partition, or at ``hard_noise`` if the object
    is hard, and is missing with probability ``missing``. `read` returns labels ``(rows, n_partitions)``, -1
    missing, and truth ``(rows,)``. Unlike in real ensembles, errors are independent between partitions.

    Parameters
    ----------
    n_objects, n_partitions
        Size of the label matrix.
    shares
        Probability of each true class.
    n_clusters
        Lowest and highest number of clusters of a partition, drawn uniformly.
    noise
        Lowest and highest share of random labels of a partition, drawn uniformly.
    hard_share, hard_noise
        Share of objects that are hard, and the share of random labels these have in every partition.
    missing
        Probability that an object is missing from a partition.
    random_state
        Seed.

    Examples
    --------
    >>> import bigcons as bc
    >>> recipe = bc.datasets.PlantedLabels(10**7, 20)
    >>> labels, truth = recipe.read(5000, 5010)
    >>> labels.shape, truth.shape
    ((10, 20), (10,))
    """

    n_objects: int
    n_partitions: int = 100
    _: KW_ONLY
    shares: Sequence[float] = (0.30, 0.22, 0.18, 0.14, 0.10, 0.06)
    n_clusters: tuple[int, int] = (2, 10)
    noise: tuple[float, float] = (0.1, 0.4)
    hard_share: float = 0.1
    hard_noise: float = 0.8
    missing: float = 0.5
    random_state: SeedLike = 0

    def __post_init__(self) -> None:
        self._set_checked()
        check_int("n_partitions", self.n_partitions)
        low = check_int("n_clusters[0]", self.n_clusters[0])
        check_int("n_clusters[1]", self.n_clusters[1], at_least=low)
        quietest = check_number("noise[0]", self.noise[0], at_least=0, at_most=1)
        check_number("noise[1]", self.noise[1], at_least=quietest, at_most=1)
        for name in ("hard_share", "hard_noise", "missing"):
            check_number(name, getattr(self, name), at_least=0, at_most=1)

    @property
    def dtype(self) -> np.dtype:
        """Smallest signed integer that holds the labels."""
        return label_dtype([self.n_clusters[1]])

    @cached_property
    def _partitions(self) -> list[tuple[np.ndarray, np.ndarray, float]]:
        """For each partition: each class's first cluster and number of clusters, and the noise rate."""
        partitions, n_classes = [], len(self.shares)
        for u in range(self.n_partitions):
            rng = self._generator("planted.partition", u)
            k = int(rng.integers(self.n_clusters[0], self.n_clusters[1] + 1))
            noise = float(rng.uniform(*self.noise))
            if k <= n_classes:  # a random map of the classes onto the clusters
                onto = np.concatenate([np.arange(k), rng.integers(k, size=n_classes - k)])
                first, parts = rng.permutation(onto), np.ones(n_classes, dtype=np.int64)
            else:
                parts = 1 + rng.multinomial(k - n_classes, np.asarray(self.shares))
                first = np.cumsum(parts) - parts
            partitions.append((first, parts, noise))
        return partitions

    def _segment(self, segment: int, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
        rng = self._generator("planted.objects", segment)
        truth = rng.choice(len(self.shares), size=n_rows, p=self.shares)
        hard = rng.random(n_rows) < self.hard_share
        labels = np.empty((n_rows, self.n_partitions), dtype=self.dtype)
        for u, (first, parts, noise) in enumerate(self._partitions):
            split, noisy, seen = rng.random((3, n_rows), dtype=np.float32)
            column = first[truth] + (split * parts[truth]).astype(np.int64)
            wrong = noisy < np.where(hard, self.hard_noise, noise)
            k = int((first + parts).max())
            column[wrong] = rng.integers(k, size=int(wrong.sum()))
            column[seen < self.missing] = -1
            labels[:, u] = column
        return labels, truth


def planted_ensemble(n_objects: int, n_partitions: int = 100, **recipe: Any) -> tuple[Ensemble, np.ndarray]:
    """Return an ensemble planted around a known truth, and that truth ``(n_objects,)``.

    ``recipe`` are the other parameters of `PlantedLabels`, as ``shares``, ``missing`` and ``random_state``.
    ``n_objects * n_partitions`` draws, in memory.

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, truth = bc.datasets.planted_ensemble(1000, 20, random_state=0)
    >>> ensemble.shape, truth.max()
    ((1000, 20), np.int64(5))
    """
    from bigcons.store.ensemble import Ensemble  # imports zarr, which the other data sets do not need

    labels, truth = PlantedLabels(n_objects, n_partitions, **recipe).read(0, n_objects)
    return Ensemble.from_labels(labels, columns=range(labels.shape[1])), truth


@dataclass(frozen=True)
class PlantedFeatures(_Planted):
    """A recipe of planted features: generates the points and the truth of any range of rows.

    The centers of the classes lie at the distance ``separation`` from the origin, in random
    directions. The largest class is one cloud, the next consists of two, the third of three and so
    on, each cloud ``spread`` away from the center of its class. Clouds are spherical with the heavy
    tails of Student's t with 2.5 degrees of freedom; their widths grow from 0.3 in the largest class
    to 1 in the smallest. `read` returns features ``(rows, n_features)`` float32 and truth ``(rows,)``.

    By default they imitate the large-scale experiment of Lourenço et al. 2015 (KDD Cup 1999: 120,000 objects,
    three classes, 39 features; base partitions right for 79 % of the objects they saw): one compact majority,
    smaller and wider classes of several kinds, heavy tails. k-means with 2 to 10 clusters on random halves
    matches the truth at .77 to .81 on average (Hungarian accuracy), because two clusters are too few and
    seven or more split the classes, while the consensus of 40 such partitions into 3 clusters matches it at
    .985 to .99.

    Examples
    --------
    >>> import bigcons as bc
    >>> recipe = bc.datasets.PlantedFeatures(10**7, 4)
    >>> features, truth = recipe.read(5000, 5010)
    >>> features.shape, truth.shape
    ((10, 4), (10,))
    """

    n_objects: int = 120_000
    n_features: int = 39
    _: KW_ONLY
    shares: Sequence[float] = (0.60, 0.25, 0.15)
    separation: float = 4.5
    spread: float = 2.5
    random_state: SeedLike = 0

    def __post_init__(self) -> None:
        self._set_checked()
        check_int("n_features", self.n_features)
        check_number("separation", self.separation, at_least=0)
        check_number("spread", self.spread, at_least=0)

    @cached_property
    def _clouds(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Class, probability, width and center of every cloud."""
        rng = self._generator("planted_features.clouds")
        n_classes = len(self.shares)
        rank = np.argsort(np.argsort(self.shares)[::-1])
        classes = np.repeat(np.arange(n_classes), rank + 1)
        weights = [
            share * rng.dirichlet(np.full(r + 1, 5.0)) for share, r in zip(self.shares, rank, strict=True)
        ]
        widths = np.geomspace(0.3, 1.0, n_classes)[rank]
        centers = self.separation * _directions(rng, n_classes, self.n_features)
        offsets = self.spread * _directions(rng, len(classes), self.n_features)
        offsets[rank[classes] == 0] = 0
        return classes, np.concatenate(weights), widths[classes], centers[classes] + offsets

    def _segment(self, segment: int, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
        rng = self._generator("planted_features.objects", segment)
        classes, weights, widths, centers = self._clouds
        cloud = rng.choice(len(classes), size=n_rows, p=weights / weights.sum())
        tails = np.sqrt(rng.chisquare(2.5, size=n_rows) / 2.5)
        points = rng.standard_normal((n_rows, self.n_features))
        points *= (widths[cloud] / tails)[:, None]
        points += centers[cloud]
        return points.astype(np.float32), classes[cloud]


def planted_features(
    n_objects: int = 120_000, n_features: int = 39, **recipe: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return features ``(n_objects, n_features)`` of unbalanced, overlapping classes, and the truth.

    ``recipe`` are the other parameters of `PlantedFeatures`, which makes the same points block by block.

    Examples
    --------
    >>> import bigcons as bc
    >>> features, truth = bc.datasets.planted_features(1000, 10)
    >>> features.shape
    (1000, 10)
    """
    return PlantedFeatures(n_objects, n_features, **recipe).read(0, n_objects)


def _directions(rng: np.random.Generator, n: int, n_features: int) -> np.ndarray:
    vectors = rng.standard_normal((n, n_features))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


planted_blocks: type[PlantedLabels] = PlantedLabels
planted_feature_blocks: type[PlantedFeatures] = PlantedFeatures
"""The recipes, under the names of the functions that read them as a whole."""
