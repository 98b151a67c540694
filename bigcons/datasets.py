"""Data with a known truth: planted ensembles and features, the papers' simulations, KDD Cup 1999.

Planted data are recipes that generate any range of rows with its truth. Rows are drawn in segments of 4,096,
each with its own random generator, so that a range of rows is the same alone and with the rest.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.errors import InvalidInputError, StoreNotFoundError
from bigcons.io.labels import label_dtype
from bigcons.kernels.draws import draw_labels
from bigcons.seeding import SEGMENT_ROWS, SeedLike, generator, resolve_seed
from bigcons.store.ensemble import Ensemble
from bigcons.validation import check_number, check_rows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "KDD_CLASSES", "KDD_COLUMNS", "KDD_FILE", "PlantedFeatures", "PlantedLabels", "ce_2d2k", "ce_8d5k",
    "kddcup99", "planted_blocks", "planted_ensemble", "planted_feature_blocks", "planted_features",
    "simulated_soft_partitions",
]  # fmt: skip


# Planted data


class _Planted:
    """Reads any range of rows of planted data, which are made segment by segment."""

    n_objects: int
    shares: Sequence[float]
    random_state: SeedLike

    def read(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Return values and truth of rows ``start`` to ``stop``, the same whatever the range."""
        check_rows(start, stop, self.n_objects)
        parts = []
        for segment in range(start // SEGMENT_ROWS, -(-stop // SEGMENT_ROWS)):
            first = segment * SEGMENT_ROWS
            rows = self._segment(segment, min(SEGMENT_ROWS, self.n_objects - first))
            parts.append([array[max(start - first, 0) : stop - first] for array in rows])
        values, truth = zip(*parts, strict=True)
        return np.concatenate(values), np.concatenate(truth)

    def _segment(self, segment: int, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the values and the truth of all rows of a segment."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        object.__setattr__(self, "shares", tuple(map(float, self.shares)))
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

    @cached_property
    def _partitions(self) -> list[tuple[np.ndarray, np.ndarray, float]]:
        """For each partition: each class's first cluster and number of clusters, and the noise rate."""
        partitions, n_classes = [], len(self.shares)
        for u in range(self.n_partitions):
            rng = self._generator("planted.partition", u)
            k = int(rng.integers(self.n_clusters[0], self.n_clusters[1] + 1))
            noise = float(rng.uniform(*self.noise))
            if k <= n_classes:  # a random map of the classes onto the clusters
                image = np.concatenate([np.arange(k), rng.integers(k, size=n_classes - k)])
                first, parts = rng.permutation(image), np.ones(n_classes, dtype=np.int64)
            else:
                parts = 1 + rng.multinomial(k - n_classes, np.asarray(self.shares))
                first = np.cumsum(parts) - parts
            partitions.append((first, parts, noise))
        return partitions

    def _segment(self, segment: int, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
        rng = self._generator("planted.objects", segment)
        truth = rng.choice(len(self.shares), size=n_rows, p=self.shares)
        hard = rng.random(n_rows) < self.hard_share
        labels = np.empty((n_rows, self.n_partitions), label_dtype([self.n_clusters[1]]))
        for u, (first, parts, noise) in enumerate(self._partitions):
            split, noisy, dropped = rng.random((3, n_rows), dtype=np.float32)
            column = first[truth] + (split * parts[truth]).astype(np.int64)
            is_wrong = noisy < np.where(hard, self.hard_noise, noise)
            k = int((first + parts).max())
            column[is_wrong] = rng.integers(k, size=int(is_wrong.sum()))
            column[dropped < self.missing] = -1
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

    @cached_property
    def _clouds(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Class, probability, width and center of every cloud."""
        rng = self._generator("planted_features.clouds")
        n_classes = len(self.shares)
        rank = np.argsort(np.argsort(self.shares)[::-1])
        classes = np.repeat(np.arange(n_classes), rank + 1)
        weights = [s * rng.dirichlet(np.full(r + 1, 5.0)) for s, r in zip(self.shares, rank, strict=True)]
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


# Small data sets simulated as in the papers


def simulated_soft_partitions(
    n_per_component: int = 200,
    n_partitions: int = 1000,
    *,
    low: float = 1.0,
    high: float = 3.0,
    sigma: float = 1.0,
    random_state: SeedLike = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Return hard partitions drawn from a known soft one (Lourenço et al. 2015, simulation).

    ``n_per_component`` points of each of four isotropic Gaussians in the plane, of standard deviation
    ``sigma``, with one mean in each quadrant, both coordinates uniform in ``[low, high]`` up to sign. The
    memberships ``Z (4 * n_per_component, 4)`` are the posterior probabilities of the points under equal
    weights; each column of the labels ``(4 * n_per_component, n_partitions)`` draws every object's label from
    its row of ``Z``. The paper states neither means nor variances; the defaults are ours.

    Returns labels (int8) and ``Z`` (float64).

    Examples
    --------
    >>> import bigcons as bc
    >>> labels, memberships = bc.datasets.simulated_soft_partitions(50, n_partitions=30)
    >>> labels.shape, memberships.shape
    ((200, 30), (200, 4))
    """
    check_number("sigma", sigma, above=0)
    rng = generator(resolve_seed(random_state), "datasets.simulated_soft_partitions")
    quadrants = np.array([(1, 1), (-1, 1), (-1, -1), (1, -1)])
    means = quadrants * rng.uniform(low, high, size=(4, 2))
    points = np.repeat(means, n_per_component, axis=0)
    points += rng.normal(scale=sigma, size=points.shape)
    log_density = -((points[:, None, :] - means) ** 2).sum(axis=2) / (2 * sigma**2)
    density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    memberships = density / density.sum(axis=1, keepdims=True)
    return draw_labels(memberships, rng.random((len(points), n_partitions))), memberships


def ce_2d2k(random_state: SeedLike = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return 2D2K: features ``(1000, 2)`` and classes ``(1000,)`` (Strehl and Ghosh 2002).

    500 points of each of two Gaussians in the plane, with means (-0.227, 0.077) and (0.095, 0.323). The
    paper's "0.1" is the standard deviation of each coordinate, not the variance as it says: only then is the
    error of the best classifier, 2.1 %, consistent with the published results. Points of a class are
    consecutive.

    Examples
    --------
    >>> import bigcons as bc
    >>> features, truth = bc.datasets.ce_2d2k()
    >>> features.shape
    (1000, 2)
    """
    return _gaussians(np.array([(-0.227, 0.077), (0.095, 0.323)]), 500, "ce_2d2k", random_state)


def ce_8d5k(random_state: SeedLike = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return 8D5K: features ``(1000, 8)`` and classes ``(1000,)`` (Strehl and Ghosh 2002).

    200 points of each of five Gaussians in eight dimensions of standard deviation 0.1 (see `ce_2d2k`), with
    means drawn uniformly from the unit hypercube, since the paper does not state its own. Points of a class
    are consecutive.

    Examples
    --------
    >>> import bigcons as bc
    >>> features, truth = bc.datasets.ce_8d5k()
    >>> features.shape
    (1000, 8)
    """
    seed = resolve_seed(random_state)
    means = generator(seed, "datasets.ce_8d5k.means").random((5, 8))
    return _gaussians(means, 200, "ce_8d5k", seed)


def _gaussians(
    means: np.ndarray, n_per_class: int, name: str, random_state: SeedLike
) -> tuple[np.ndarray, np.ndarray]:
    """Return points around ``means`` with standard deviation 0.1, and their classes."""
    rng = generator(resolve_seed(random_state), f"datasets.{name}")
    classes = np.repeat(np.arange(len(means)), n_per_class)
    return means[classes] + rng.normal(scale=0.1, size=(len(classes), means.shape[1])), classes


# KDD Cup 1999

KDD_FILE = "kddcup99/kddcup.data_10_percent.gz"
KDD_CLASSES = ("neptune", "normal", "smurf")
# fmt: off
KDD_COLUMNS = (
    "duration", "protocol_type", "service", "flag", "src_bytes", "dst_bytes", "land", "wrong_fragment",
    "urgent", "hot", "num_failed_logins", "logged_in", "num_compromised", "root_shell", "su_attempted",
    "num_root", "num_file_creations", "num_shells", "num_access_files", "num_outbound_cmds", "is_host_login",
    "is_guest_login", "count", "srv_count", "serror_rate", "srv_serror_rate", "rerror_rate",
    "srv_rerror_rate", "same_srv_rate", "diff_srv_rate", "srv_diff_host_rate", "dst_host_count",
    "dst_host_srv_count", "dst_host_same_srv_rate", "dst_host_diff_srv_rate", "dst_host_same_src_port_rate",
    "dst_host_srv_diff_host_rate", "dst_host_serror_rate", "dst_host_srv_serror_rate", "dst_host_rerror_rate",
    "dst_host_srv_rerror_rate",
)
# fmt: on
_SYMBOLIC = ("protocol_type", "service", "flag")


def kddcup99(
    data_dir: str | os.PathLike[str] | None = None,
    n_objects: int = 120_000,
    *,
    as_numbers: bool = False,
    random_state: SeedLike = 0,
) -> tuple[pa.Table, np.ndarray]:
    """Return connections of KDD Cup 1999 as features and truth (Lourenço et al. 2015, large scale).

    A random subset, in file order, of the three large classes (normal, neptune, smurf: 485,269 connections)
    of the 10 % file. The paper uses 120,000 objects of three classes without naming them; only these three
    are large enough.

    Parameters
    ----------
    data_dir
        Directory of ``kddcup99/kddcup.data_10_percent.gz``, by default the value of the environment variable
        BIGCONS_DATA.
    n_objects
        Size of the subset.
    as_numbers
        Whether the columns of text have the position of each value among their sorted values instead, as the
        paper discretizes the symbolic attributes.
    random_state
        Seed of the subset.

    Returns
    -------
    features
        Table of 41 named columns, of which protocol_type, service and flag are text, or numbers.
    truth
        Class names ``(n_objects,)``.

    Raises StoreNotFoundError, which says where to download the file, and InvalidInputError if n_objects is
    too large.

    Examples
    --------
    >>> import bigcons as bc
    >>> features, truth = bc.datasets.kddcup99(n_objects=1000)  # doctest: +SKIP
    """
    import pyarrow as pa
    from pyarrow import csv

    path = Path(data_dir or os.environ.get("BIGCONS_DATA", "")) / KDD_FILE
    if not path.is_file():
        raise StoreNotFoundError(
            f"{path} does not exist; download http://kdd.ics.uci.edu/databases/{KDD_FILE} to this path in a "
            "directory that you pass as data_dir= or name in BIGCONS_DATA.",
            path=path,
        )
    table = csv.read_csv(
        path,
        read_options=csv.ReadOptions(column_names=[*KDD_COLUMNS, "class"]),
        convert_options=csv.ConvertOptions(column_types=dict.fromkeys([*_SYMBOLIC, "class"], pa.string())),
    )
    classes = np.char.rstrip(table["class"].to_numpy().astype(str), ".")
    rows = np.flatnonzero(np.isin(classes, KDD_CLASSES))
    if n_objects > len(rows):
        raise InvalidInputError(
            f"n_objects={n_objects} but there are {len(rows)} connections; ask for fewer."
        )
    rng = generator(resolve_seed(random_state), "datasets.kddcup99")
    indices = np.sort(rng.choice(rows, size=n_objects, replace=False))
    table = table.take(indices).drop_columns("class")
    for name in _SYMBOLIC if as_numbers else ():
        values = np.unique(table[name].to_numpy(), return_inverse=True)[1].astype(float)
        table = table.set_column(table.column_names.index(name), name, [values])
    return table, classes[indices]


def __dir__() -> list[str]:
    return sorted(__all__)
