"""Small data sets simulated as in the papers: a known soft partition, Gaussian mixtures."""

from __future__ import annotations

import numpy as np

from bigcons.kernels.draws import draw_labels
from bigcons.seeding import SeedLike, generator, resolve_seed
from bigcons.validation import check_int, check_number


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
