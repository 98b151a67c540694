"""Comparisons over many runs: of a method with chance as samples grow, and of two methods run by run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.metrics.clusterings import LabelColumn, nmi
from bigcons.seeding import SeedLike, generator, resolve_seed
from bigcons.validation import check_int


def learning_curve(
    cluster: Callable[[np.ndarray, int], Any],
    truth: Any,
    sizes: Sequence[int],
    *,
    n_repetitions: int = 10,
    random_state: SeedLike = None,
) -> np.ndarray:
    """Return the quality of a method above chance on samples of several sizes ``(n_sizes, n_repetitions)``.

    That is the NMI of its labels with ``truth`` minus the NMI of a random labeling with as many, equally
    likely clusters, which is far from 0 on small samples (Strehl and Ghosh 2002, robust centralized
    clustering).

    Parameters
    ----------
    cluster
        Called as ``cluster(sample, seed)`` with ``(size,)`` ascending indices of objects and an integer;
        returns their ``(size,)`` labels, as in `contingency`.
    truth
        ``(n_objects,)``, as in `contingency`. Samples are drawn from the objects with a class.
    sizes
        Sizes of the samples, drawn without replacement and independently in each repetition.
    n_repetitions
        Samples of each size.
    random_state
        Seed of the samples, of the random labelings and of the seeds passed to ``cluster``.

    Raises InvalidInputError if a size exceeds the number of objects with a class.

    Examples
    --------
    >>> import bigcons as bc
    >>> import numpy as np
    >>> truth = np.repeat([0, 1], 50)
    >>> curve = bc.metrics.learning_curve(
    ...     lambda rows, seed: truth[rows], truth, [10, 50], n_repetitions=3, random_state=0
    ... )
    >>> curve.shape
    (2, 3)
    """
    column = LabelColumn("truth", truth)
    classes = column.codes(0, column.n_objects)
    known = np.flatnonzero(classes >= 0)
    for size in sizes:
        check_int("sizes", size, at_most=len(known))
    check_int("n_repetitions", n_repetitions)
    seed = resolve_seed(random_state)
    scores = np.empty((len(sizes), n_repetitions))
    for s, size in enumerate(sizes):
        for repetition in range(n_repetitions):
            rng = generator(seed, "learning_curve", s, repetition)
            sample = np.sort(rng.choice(known, size, replace=False))
            labels = cluster(sample, int(rng.integers(2**31)))
            scores[s, repetition] = _above_chance(classes[sample], labels, rng)
    return scores


class PairedTTest(NamedTuple):
    """A paired, one-sided t-test: the columns of table 4 in Wang et al. (2009), and the statistic."""

    mean_difference: float
    """Mean of ``a - b``."""
    sd_a: float
    sd_b: float
    statistic: float
    p_value: float


def paired_t_test(a: Any, b: Any) -> PairedTTest:
    """Test whether scores ``a`` have a lower mean than ``b``, paired by run: ``H_a: mean(a) < mean(b)``.

    ``a`` and ``b`` ``(n_runs,)`` are scores of two methods on the same ensembles; a small ``p_value`` means
    that ``a`` is lower. Scores equal in every run give p = 1/2. Wang, Shan and Banerjee (2009, table 4) test
    in this way whether the micro-precision of the mixture model is below that of Bayesian cluster ensembles.

    Examples
    --------
    >>> import bigcons as bc
    >>> test = bc.metrics.paired_t_test([0.61, 0.58, 0.63], [0.70, 0.66, 0.74])
    >>> round(test.p_value, 4)
    0.0044
    """
    from scipy.stats import ttest_rel

    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 1 or len(a) < 2 or not np.isfinite([a, b]).all():
        raise InvalidInputError(
            f"a has shape {a.shape} and b {b.shape}; "
            "pass finite scores of the same two or more runs, (n_runs,)."
        )
    differences = a - b
    statistic, p_value = 0.0, 0.5
    if np.ptp(differences) > 0:
        statistic, p_value = ttest_rel(a, b, alternative="less")
    elif differences[0] != 0:
        statistic, p_value = np.copysign(np.inf, differences[0]), float(differences[0] > 0)
    spread = (float(a.std(ddof=1)), float(b.std(ddof=1)))
    return PairedTTest(float(differences.mean()), *spread, float(statistic), float(p_value))


def _above_chance(classes: np.ndarray, labels: Any, rng: np.random.Generator) -> float:
    column = LabelColumn("labels", labels)
    if column.n_objects != len(classes):
        raise InvalidInputError(
            f"cluster returned {column.n_objects:,} labels for a sample of {len(classes):,} objects; "
            "return one per object of the sample."
        )
    codes = column.codes(0, len(classes))
    by_chance = rng.integers(column.n_clusters, size=len(classes))
    return nmi(classes, codes) - nmi(classes, np.where(codes >= 0, by_chance, -1))
