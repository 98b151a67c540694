"""Data with a known truth: planted ensembles and features, the papers' simulations, KDD Cup 1999.

Planted data are drawn in segments of 4,096 rows, each with a generator of its own: any range of rows
can be made alone, block by block, and comes out as in the whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.errors import InvalidInputError, StoreNotFoundError
from bigcons.kernels.categorical import draw_labels
from bigcons.memory import row_blocks
from bigcons.seeding import SeedLike, generator, resolve_seed
from bigcons.validation import check_int, check_number

if TYPE_CHECKING:
    import pyarrow as pa

    from bigcons.stores.ensemble import Ensemble

SEGMENT_ROWS = 4096
"""Rows that share one generator in the simulated data."""

_TAIL = 2.5

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
_KDD_SYMBOLIC = ("protocol_type", "service", "flag")


# Planted ensembles


@dataclass(frozen=True)
class PlantedLabels:
    """The recipe of a planted ensemble: makes the labels and the truth of any range of rows.

    Partition ``u`` has ``K_u`` clusters. Where ``K_u`` is at most the number of true classes each of
    its clusters is a union of classes; where it is more, each is a class or a random part of one.
    Every object then changes its label to a uniformly random one with the noise rate of the
    partition, or with ``hard_noise`` if the object is hard, and loses it with probability ``missing``.
    """

    n_objects: int
    n_partitions: int
    shares: tuple[float, ...]
    n_clusters: tuple[int, int]
    noise: tuple[float, float]
    hard_share: float
    hard_noise: float
    missing: float
    seed: int

    def read(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Return labels ``(stop - start, n_partitions)``, -1 missing, and truth ``(stop - start,)``.

        The rows are the same whatever range they are asked for in.
        """
        return _read_segments(start, stop, self.n_objects, self._segment)

    @property
    def dtype(self) -> np.dtype:
        """Smallest signed integer that holds the labels."""
        return np.dtype(np.min_scalar_type(-self.n_clusters[1]))

    @cached_property
    def _partitions(self) -> list[tuple[np.ndarray, np.ndarray, float]]:
        """For each partition: first cluster and number of clusters of each class, and noise rate."""
        streams = (generator(self.seed, "planted.partition", u) for u in range(self.n_partitions))
        return [self._partition(rng) for rng in streams]

    def _partition(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
        n_classes = len(self.shares)
        k = int(rng.integers(self.n_clusters[0], self.n_clusters[1] + 1))
        noise = float(rng.uniform(*self.noise))
        if k <= n_classes:  # a random map of the classes onto the clusters
            first = np.concatenate([np.arange(k), rng.integers(k, size=n_classes - k)])
            return rng.permutation(first), np.ones(n_classes, dtype=np.int64), noise
        parts = 1 + rng.multinomial(k - n_classes, np.asarray(self.shares))
        return np.cumsum(parts) - parts, parts, noise

    def _segment(self, segment: int, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
        rng = generator(self.seed, "planted.objects", segment)
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


def planted_blocks(
    n_objects: int,
    n_partitions: int = 100,
    *,
    shares: Sequence[float] = (0.30, 0.22, 0.18, 0.14, 0.10, 0.06),
    n_clusters: tuple[int, int] = (2, 10),
    noise: tuple[float, float] = (0.1, 0.4),
    hard_share: float = 0.1,
    hard_noise: float = 0.8,
    missing: float = 0.5,
    random_state: SeedLike = 0,
) -> PlantedLabels:
    """Return the recipe of `planted_ensemble`, to make an ensemble of any size block by block.

    The parameters are those of `planted_ensemble`.
    """
    low = check_int("n_clusters[0]", n_clusters[0])
    quietest = check_number("noise[0]", noise[0], at_least=0, at_most=1)
    return PlantedLabels(
        n_objects=check_int("n_objects", n_objects),
        n_partitions=check_int("n_partitions", n_partitions),
        shares=_shares(shares),
        n_clusters=(low, check_int("n_clusters[1]", n_clusters[1], at_least=low)),
        noise=(quietest, check_number("noise[1]", noise[1], at_least=quietest, at_most=1)),
        hard_share=check_number("hard_share", hard_share, at_least=0, at_most=1),
        hard_noise=check_number("hard_noise", hard_noise, at_least=0, at_most=1),
        missing=check_number("missing", missing, at_least=0, at_most=1),
        seed=resolve_seed(random_state),
    )


def planted_ensemble(
    n_objects: int,
    n_partitions: int = 100,
    *,
    shares: Sequence[float] = (0.30, 0.22, 0.18, 0.14, 0.10, 0.06),
    n_clusters: tuple[int, int] = (2, 10),
    noise: tuple[float, float] = (0.1, 0.4),
    hard_share: float = 0.1,
    hard_noise: float = 0.8,
    missing: float = 0.5,
    random_state: SeedLike = 0,
) -> tuple[Ensemble, np.ndarray]:
    """Return an ensemble planted around a known truth, and that truth ``(n_objects,)``.

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
        Share of the objects that are hard, and the share of random labels these have everywhere.
    missing
        Probability of an object to be left out of a partition.
    random_state
        Seed.

    See `PlantedLabels` for how classes and clusters relate. Errors are independent between
    partitions, which real ensembles are not. Cost: ``n_objects * n_partitions`` draws, in memory.
    """
    from bigcons.stores.ensemble import Ensemble  # imports zarr, which the other data sets do not need

    recipe = planted_blocks(
        n_objects,
        n_partitions,
        shares=shares,
        n_clusters=n_clusters,
        noise=noise,
        hard_share=hard_share,
        hard_noise=hard_noise,
        missing=missing,
        random_state=random_state,
    )
    labels, truth = recipe.read(0, n_objects)
    return Ensemble.from_labels(labels), truth


# Planted features


@dataclass(frozen=True)
class PlantedFeatures:
    """The recipe of planted features: makes the points and the truth of any range of rows.

    The centres of the classes lie at the distance ``separation`` from the origin, in random
    directions. The largest class is one cloud, the next consists of two, the third of three and so
    on, each cloud ``spread`` away from the centre of its class. Clouds are spherical with the heavy
    tails of Student's t with 2.5 degrees of freedom; their widths grow from 0.3 in the largest class
    to 1 in the smallest.
    """

    n_objects: int
    n_features: int
    shares: tuple[float, ...]
    separation: float
    spread: float
    seed: int

    def read(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Return features ``(stop - start, n_features)`` float32 and truth ``(stop - start,)``.

        The rows are the same whatever range they are asked for in.
        """
        return _read_segments(start, stop, self.n_objects, self._segment)

    @cached_property
    def _clouds(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Class, probability, width and centre of every cloud."""
        rng = generator(self.seed, "planted_features.clouds")
        n_classes = len(self.shares)
        rank = np.argsort(np.argsort(self.shares)[::-1])
        classes = np.repeat(np.arange(n_classes), rank + 1)
        weights = [
            share * rng.dirichlet(np.full(r + 1, 5.0)) for share, r in zip(self.shares, rank, strict=True)
        ]
        widths = np.geomspace(0.3, 1.0, n_classes)[rank]
        centres = self.separation * _directions(rng, n_classes, self.n_features)
        offsets = self.spread * _directions(rng, len(classes), self.n_features)
        offsets[rank[classes] == 0] = 0
        return classes, np.concatenate(weights), widths[classes], centres[classes] + offsets

    def _segment(self, segment: int, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
        rng = generator(self.seed, "planted_features.objects", segment)
        classes, weights, widths, centres = self._clouds
        cloud = rng.choice(len(classes), size=n_rows, p=weights / weights.sum())
        tails = np.sqrt(rng.chisquare(_TAIL, size=n_rows) / _TAIL)
        points = rng.standard_normal((n_rows, self.n_features))
        points *= (widths[cloud] / tails)[:, None]
        points += centres[cloud]
        return points.astype(np.float32), classes[cloud]


def planted_features(
    n_objects: int = 120_000,
    n_features: int = 39,
    *,
    shares: Sequence[float] = (0.60, 0.25, 0.15),
    separation: float = 4.5,
    spread: float = 2.5,
    random_state: SeedLike = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Return features ``(n_objects, n_features)`` of unbalanced, overlapping classes, and the truth.

    A stand-in for the large-scale experiment of Lourenço et al. 2015 (KDD Cup 1999: 120,000 objects,
    three classes, 39 features; base partitions right for 79 % of the objects they saw). See
    `PlantedFeatures` for the geometry: one compact majority, smaller and wider classes of several
    kinds, heavy tails. What it imitates: k-means with 2 to 10 clusters on random halves matches the
    truth at .77 to .81 on average (Hungarian accuracy), because two clusters are too few and seven or
    more split the classes, while the consensus of 40 such partitions into 3 clusters matches it at
    .985 to .99. Features are float32. `planted_feature_blocks` makes the same points block by block.
    """
    recipe = planted_feature_blocks(
        n_objects,
        n_features,
        shares=shares,
        separation=separation,
        spread=spread,
        random_state=random_state,
    )
    return recipe.read(0, n_objects)


def planted_feature_blocks(
    n_objects: int = 120_000,
    n_features: int = 39,
    *,
    shares: Sequence[float] = (0.60, 0.25, 0.15),
    separation: float = 4.5,
    spread: float = 2.5,
    random_state: SeedLike = 0,
) -> PlantedFeatures:
    """Return the recipe of `planted_features`, to make data of any size block by block.

    The parameters are those of `planted_features`.
    """
    return PlantedFeatures(
        n_objects=check_int("n_objects", n_objects),
        n_features=check_int("n_features", n_features),
        shares=_shares(shares),
        separation=check_number("separation", separation, at_least=0),
        spread=check_number("spread", spread, at_least=0),
        seed=resolve_seed(random_state),
    )


def _directions(rng: np.random.Generator, n: int, n_features: int) -> np.ndarray:
    vectors = rng.standard_normal((n, n_features))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


# Simulated soft partitions


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

    Four isotropic Gaussians in the plane, one mean in each quadrant with both coordinates uniform in
    ``[low, high]`` up to sign, standard deviation ``sigma``, ``n_per_component`` points each. The
    memberships ``Z (4 * n_per_component, 4)`` are the posterior probabilities of the points under
    equal weights; each of the ``n_partitions`` columns of the labels ``(4 * n_per_component,
    n_partitions)`` draws every object's label from its row of ``Z``. The paper states neither the
    means nor the variances; the defaults are ours.

    Returns labels (int8) and ``Z`` (float64).
    """
    check_int("n_per_component", n_per_component)
    check_int("n_partitions", n_partitions)
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


# The Gaussian mixtures of Strehl and Ghosh 2002


def ce_2d2k(random_state: SeedLike = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return 2D2K: features ``(1000, 2)`` and classes ``(1000,)`` (Strehl and Ghosh 2002).

    500 points of each of two Gaussians in the plane, means (-0.227, 0.077) and (0.095, 0.323). Their
    "0.1" is the standard deviation of every coordinate, not the variance the text calls it: only then
    is the error of the best classifier, 2.1 %, in accord with the published results. Points of a class
    are consecutive.
    """
    return _gaussians(np.array([(-0.227, 0.077), (0.095, 0.323)]), 500, "ce_2d2k", random_state)


def ce_8d5k(random_state: SeedLike = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return 8D5K: features ``(1000, 8)`` and classes ``(1000,)`` (Strehl and Ghosh 2002).

    200 points of each of five Gaussians in eight dimensions, standard deviation 0.1 (see `ce_2d2k`),
    the means uniform in the unit hypercube; they are drawn with the points, for those of the paper are
    not stated. Points of a class are consecutive.
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


def kddcup99(
    data_dir: str | os.PathLike[str] | None = None,
    n_objects: int = 120_000,
    *,
    random_state: SeedLike = 0,
) -> tuple[pa.Table, np.ndarray]:
    """Return connections of KDD Cup 1999 as features and truth (Lourenço et al. 2015, large scale).

    A random subset, in file order, of the three large classes (normal, neptune, smurf: 485,269
    connections) of the 10 % file. The paper uses 120,000 objects of three classes and does not say
    which; these are the only three that are large enough.

    Parameters
    ----------
    data_dir
        Directory that holds ``kddcup99/kddcup.data_10_percent.gz``; by default the one that the
        environment variable BIGCONS_DATA names. Without either the file is fetched by scikit-learn.
    n_objects
        Size of the subset.
    random_state
        Seed of the subset.

    Returns
    -------
    features
        Table of 41 named columns, of which protocol_type, service and flag are text.
    truth
        Class names ``(n_objects,)``.

    Raises StoreNotFoundError if the data cannot be had, InvalidInputError if n_objects is too large.
    """
    check_int("n_objects", n_objects)
    table, classes = _kdd_table(data_dir)
    rows = np.flatnonzero(np.isin(classes, KDD_CLASSES))
    if n_objects > len(rows):
        raise InvalidInputError(
            f"n_objects={n_objects} but there are {len(rows)} connections; ask for fewer."
        )
    rng = generator(resolve_seed(random_state), "datasets.kddcup99")
    chosen = np.sort(rng.choice(rows, size=n_objects, replace=False))
    return table.take(chosen), classes[chosen]


def _kdd_table(data_dir: str | os.PathLike[str] | None) -> tuple[pa.Table, np.ndarray]:
    """All connections of the 10 % file: the 41 features, and the class names without their full stop."""
    directory = data_dir or os.environ.get("BIGCONS_DATA")
    if directory is not None:
        path = Path(directory) / KDD_FILE
        if path.is_file():
            return _parse_kdd(path)
        if data_dir is not None:
            raise StoreNotFoundError(f"{path} does not exist; data_dir must hold {KDD_FILE}.")
    return _fetch_kdd()


def _parse_kdd(path: Path) -> tuple[pa.Table, np.ndarray]:
    from pyarrow import csv, string

    table = csv.read_csv(
        path,
        read_options=csv.ReadOptions(column_names=[*KDD_COLUMNS, "class"]),
        convert_options=csv.ConvertOptions(column_types=dict.fromkeys([*_KDD_SYMBOLIC, "class"], string())),
    )
    return table.drop_columns("class"), _class_names(table["class"].to_pylist())


def _fetch_kdd() -> tuple[pa.Table, np.ndarray]:
    import pyarrow as pa
    from sklearn.datasets import fetch_kddcup99

    try:
        bunch = fetch_kddcup99(percent10=True)
    except (OSError, ValueError) as error:
        raise StoreNotFoundError(
            f"KDD Cup 1999 could not be fetched ({error}); put {KDD_FILE} into a directory and name it "
            "by data_dir= or in BIGCONS_DATA."
        ) from None
    columns = [_fetched_column(name, bunch.data[:, c]) for c, name in enumerate(KDD_COLUMNS)]
    return pa.table(dict(zip(KDD_COLUMNS, columns, strict=True))), _class_names(bunch.target)


def _fetched_column(name: str, values: np.ndarray) -> Any:
    if name in _KDD_SYMBOLIC:
        return [value.decode() for value in values]
    return values.astype(np.float64)


def _class_names(values: Sequence[str | bytes]) -> np.ndarray:
    return np.array([(v.decode() if isinstance(v, bytes) else v).rstrip(".") for v in values])


# Shared


def _read_segments(
    start: int, stop: int, n_rows: int, segment: Callable[[int, int], tuple[np.ndarray, np.ndarray]]
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows ``start`` to ``stop`` of data made by ``segment(index, rows)``, both its arrays."""
    if not 0 <= start < stop <= n_rows:
        raise InvalidInputError(
            f"rows {start}:{stop} are not within the {n_rows} rows; ask for 0 <= start < stop."
        )
    wanted = row_blocks(n_rows, SEGMENT_ROWS)[start // SEGMENT_ROWS : -(-stop // SEGMENT_ROWS)]
    first: list[np.ndarray] = []
    second: list[np.ndarray] = []
    for block in wanted:
        within = slice(max(start - block.start, 0), min(stop, block.stop) - block.start)
        values, truth = segment(block.index, block.n_rows)
        first.append(values[within])
        second.append(truth[within])
    return np.concatenate(first), np.concatenate(second)


def _shares(shares: Sequence[float]) -> tuple[float, ...]:
    if not shares or min(shares) < 0 or abs(sum(shares) - 1) > 1e-9:
        raise InvalidInputError(
            f"shares={tuple(shares)} are not probabilities; they must be >= 0 and sum to 1."
        )
    return tuple(shares)
