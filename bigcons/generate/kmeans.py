"""Ensembles of features, in memory or out of core: mixed, by landmarks, and by k-means of random views."""

from __future__ import annotations

from typing import Unpack

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.generate.pipeline import GeneratorOptions, make_partitions
from bigcons.generate.scheme import ClusterCount, Scheme
from bigcons.seeding import SEGMENT_ROWS
from bigcons.store.ensemble import Ensemble
from bigcons.validation import check_int, check_number


def mixed(features: object, *, n_partitions: int = 100, **options: Unpack[GeneratorOptions]) -> Ensemble:
    """Return an ensemble of two kinds of partitions of all objects, the default of all routes from features.

    Every other partition is by `landmarks`, with 2 to 20 clusters, which follow curved shapes; the others are
    k-means, with 2 to 30 clusters, which sees the directions in which features vary most. Numbers of clusters
    are drawn at random, whatever that of the consensus will be, so that one ensemble serves all.

    Parameters
    ----------
    features
        As in `kmeans`.
    n_partitions
        Number of partitions.
    **options
        ``id``, ``columns``, ``drop``, ``log``, ``out``, ``standardize``, ``train``, ``memory``,
        ``random_state``, ``overwrite``, ``client`` as in `kmeans`.

    No label is missing. Of fewer than 30 objects, partitions have at most as many clusters. Errors and memory
    are those of `kmeans`; the cost is that of `kmeans` and `landmarks`.

    Examples
    --------
    >>> import bigcons as bc
    >>> features, truth = bc.datasets.ce_8d5k(random_state=0)
    >>> bc.generate.mixed(features, n_partitions=12, random_state=0)
    Ensemble(1,000 objects x 12 partitions of 3-21 clusters, 0.0% missing, 12 kB in memory)
    """
    scheme = Scheme("mixed", n_partitions)
    return make_partitions(features, scheme, **options)


def landmarks(
    features: object,
    *,
    n_partitions: int = 100,
    n_clusters: ClusterCount = (2, 20),
    **options: Unpack[GeneratorOptions],
) -> Ensemble:
    """Return an ensemble of spectral clusterings on landmarks, which follow curved shapes.

    U-SPEC of Huang et al. 2020, simplified: up to 1,000 random objects are landmarks, a graph joins every
    object of a sample to its five nearest, and k-means in the leading eigenvectors of that graph clusters the
    landmarks; every object is in the cluster of its nearest landmark. All partitions share three sets of
    landmarks.

    Parameters
    ----------
    features, n_partitions
        As in `kmeans`.
    n_clusters
        Number of clusters, or an inclusive range (low, high) to draw it from uniformly. Partitions have at
        most as many clusters as there are landmarks, one for three objects.
    **options
        ``id``, ``columns``, ``drop``, ``log``, ``out``, ``standardize``, ``train``, ``memory``,
        ``random_state``, ``overwrite``, ``client`` as in `kmeans`; ``train`` is the sample of
        which the graphs are made.

    Landmarks do not see columns of two values, such as booleans and categories, along which a graph of
    nearest neighbors falls apart, unless these hold more than a third of the variance. No label is missing.
    Errors are those of `kmeans`.

    Cost: two passes over the features; three graphs of a sample, each with 1,000 distances of every object of
    it and eigenvectors of a matrix of landmarks; and three nearest landmarks of every object, ``3,000 *
    n_objects * n_features`` operations, whatever the number of partitions.

    References
    ----------
    Huang, Wang, Wu, Lai and Kwoh (2020), *Ultra-scalable spectral clustering and ensemble clustering*, IEEE
    Transactions on Knowledge and Data Engineering 32.

    Examples
    --------
    >>> import bigcons as bc
    >>> from sklearn.datasets import make_moons
    >>> features, truth = make_moons(600, noise=0.05, random_state=0)
    >>> ensemble = bc.generate.landmarks(features, n_partitions=20, random_state=0)
    >>> bc.metrics.adjusted_rand(truth, bc.consensus(ensemble, 2, random_state=0).labels_)
    1.0
    """
    scheme = Scheme("landmarks", n_partitions, n_clusters)
    return make_partitions(features, scheme, **options)


def kmeans(
    features: object,
    *,
    n_partitions: int = 100,
    n_clusters: ClusterCount = (2, 10),
    sample: float = 0.5,
    n_init: int = 1,
    **options: Unpack[GeneratorOptions],
) -> Ensemble:
    """Return an ensemble of k-means partitions, each of a random subset of the objects.

    The ensembles of Lourenço et al. 2015 (large scale: 100 partitions of random halves into 2 to 10
    clusters, random starts). With ``sample=1`` and one number of clusters, the random restarts of
    Wang et al. 2009 and of Nguyen and Caruana 2007: all objects, a new start for each partition.

    Parameters
    ----------
    features
        Any source of `bigcons.io.features.open_features`: array, sparse matrix, table, dask collection,
        path. Text and categories become one-hot columns, dates numbers, and missing values are filled: see
        `FeatureEncoding`.
    n_partitions
        Number of partitions.
    n_clusters
        Number of clusters, or an inclusive range (low, high) to draw it from uniformly, or "split":
        the range from ``max(sqrt(n) / 2, n / 50)`` to 20 more, which splits n objects into
        micro-blocks, where n is the number of objects a partition sees (Aidos and Fred's DID paper,
        with ``sample=1``; the rule of evidence accumulation).
    sample
        Share of the objects that each partition sees; the others have no label (-1) in it.
    n_init
        Number of random starts, of which the best is kept.
    id
        Column that identifies the objects; it is no feature, and stays with the ensemble and its consensus.
    columns, drop
        The columns to use, or to leave out; see `bigcons.select`.
    log
        Columns of numbers with heavy tails, of which ``sign(x) log(1 + |x|)`` is taken.
    out
        Path of the store to write; if None, the ensemble is in memory.
    standardize
        Scale every column to mean 0 and variance 1 over all objects, so that each counts the same; sparse
        ones to variance 1. Constant columns are always dropped.
    train
        "auto": k-means runs on a sample of the objects that a partition sees, if they are more than a sample.
        A sample has 40,000 objects, fewer if there are more than 104 features, and at least 256 per cluster.
        k-means runs on a quarter of it, and from there up to 20 iterations on all of it. Centers estimated
        from m objects per cluster add about 1/m to the inertia, more if distances have heavy tails. A number:
        a sample of so many objects. "all": all objects that it sees, which are then in memory. One pass over
        the features labels the objects in all partitions.
    memory
        Memory budget such as "2GB", of the processes and what they hold: blocks, samples, and the labels
        returned if ``out`` is None, but not features that the caller holds. A call that would need more is
        refused; None allows 4 GB of data. Labels do not depend on it.
    random_state
        Seed. Partition ``u`` depends on the seed and on ``u``, not on the number of partitions or
        workers, nor on the budget.
    overwrite
        Start over, and replace the store at ``out`` once the new one is complete. Otherwise, repeating an
        interrupted call resumes from what is finished in ``<out>.partial``, centers and blocks of labels;
        repeating a finished one returns the result at ``out``; other parameters or features raise an error.
    client
        Engine: None (the active Dask client if there is one, else threads), "threads", "serial", a Dask
        client or its address, or an Engine. The engine is logged. Every task runs on one thread; ``memory``
        bounds all concurrent tasks. Dask workers need access to the disk of ``out``.

    Subsets are a fixed number of random rows from each segment of 4,096 (see `Subset`). Empty clusters
    are dropped, so a partition may have fewer clusters than requested.

    Raises InvalidInputError, also for unfinished partitions with other parameters, StoreExistsError for an
    ensemble at ``out`` with other parameters, and MemoryBudgetError if not even one task fits.

    Cost: two passes over the features, k-means of the samples, and ``n_objects * n_features`` operations per
    cluster of all partitions, in float64; of equally near centers the first wins.

    Examples
    --------
    >>> import bigcons as bc
    >>> features, truth = bc.datasets.ce_8d5k(random_state=0)
    >>> bc.generate.kmeans(features, n_partitions=10, n_clusters=(2, 8), sample=0.5, random_state=0)
    Ensemble(1,000 objects x 10 partitions of 3-8 clusters, 50.0% missing, 10 kB in memory)
    """
    sample = check_number("sample", sample, above=0, at_most=1)
    scheme = Scheme("kmeans", n_partitions, n_clusters, sample, n_init=n_init)
    return make_partitions(features, scheme, **options)


def drawn_clusters(n_objects: int, n_partitions: int, seed: int) -> np.ndarray:
    """Return the number of clusters that `mixed` draws for each partition, ``(n_partitions,)`` int64.

    It depends on the seed alone, so a solve can be planned before there are labels.
    Partitions have fewer clusters where some get no object.
    """
    scheme = Scheme("mixed", n_partitions, seed=seed).of_objects(n_objects, SEGMENT_ROWS)
    return np.array([scheme.draw(u)[1] for u in range(n_partitions)], np.int64)


def weighted_kmeans(
    features: object,
    *,
    n_partitions: int = 100,
    n_clusters: ClusterCount = (2, 10),
    alpha_range: tuple[float, float] = (0.0, 1.5),
    largest_weight: int = 20,
    sample: float = 1.0,
    n_init: int = 1,
    **options: Unpack[GeneratorOptions],
) -> Ensemble:
    """Return an ensemble of k-means partitions, each under random Zipf weights of the features.

    The generator of Nguyen and Caruana 2007 (after Caruana et al. 2006, *Meta Clustering*): for each
    partition draw ``alpha`` uniformly from ``alpha_range``, then for every feature a weight from 1 to
    ``largest_weight`` with probability proportional to ``weight ** -alpha``; multiply the standardized
    features by their weights and run k-means once. With ``alpha = 0`` all weights are equally
    likely; larger values make large weights rarer.

    Parameters
    ----------
    features, n_partitions, n_clusters, sample, n_init
        As in `kmeans`; by default, every partition sees all objects.
    alpha_range
        Lowest and highest exponent, >= 0. The papers do not state it; the default is ours.
    largest_weight
        Number of possible weights (T); the default is ours, too.
    **options
        ``id``, ``columns``, ``drop``, ``log``, ``out``, ``standardize``, ``train``, ``memory``,
        ``random_state``, ``overwrite``, ``client`` as in `kmeans`.

    Constant columns are dropped and have no weights. Errors, memory and cost are those of `kmeans`.

    Examples
    --------
    >>> import bigcons as bc
    >>> features, truth = bc.datasets.ce_8d5k(random_state=0)
    >>> bc.generate.weighted_kmeans(features, n_partitions=10, n_clusters=5, random_state=0)
    Ensemble(1,000 objects x 10 partitions of 5 clusters, 0.0% missing, 10 kB in memory)
    """
    if not isinstance(alpha_range, (tuple, list)) or len(alpha_range) != 2:
        raise InvalidInputError(f"alpha_range={alpha_range!r} is not a range; use (low, high).")
    low = check_number("alpha_range[0]", alpha_range[0], at_least=0)
    high = check_number("alpha_range[1]", alpha_range[1], at_least=low)
    scheme = Scheme(
        "weighted_kmeans",
        n_partitions,
        n_clusters,
        check_number("sample", sample, above=0, at_most=1),
        alpha_range=(low, high),
        largest_weight=check_int("largest_weight", largest_weight),
        n_init=n_init,
    )
    return make_partitions(features, scheme, **options)


def feature_views(
    features: object,
    *,
    n_features: int,
    n_clusters: ClusterCount,
    n_partitions: int = 10,
    n_init: int = 1,
    **options: Unpack[GeneratorOptions],
) -> Ensemble:
    """Return an ensemble of k-means partitions of all objects, each on a random subset of the features.

    Feature-distributed clustering (FDC) of Strehl and Ghosh 2002, with k-means in place of their graph
    partitioning, so that the data need not fit in memory.

    Parameters
    ----------
    features
        As in `kmeans`.
    n_features
        Number of features per view, drawn without replacement from those that vary; a category is one, with
        all its columns.
    n_clusters
        As in `kmeans`; the paper gives every view the same number.
    n_partitions
        Number of views.
    n_init
        As in `kmeans`.
    **options
        ``id``, ``columns``, ``drop``, ``log``, ``out``, ``standardize``, ``train``, ``memory``,
        ``random_state``, ``overwrite``, ``client`` as in `kmeans`.

    No label is missing. Errors, memory and cost are those of `kmeans` with ``n_features`` features,
    and InvalidInputError if fewer than ``n_features`` vary.

    Examples
    --------
    >>> import bigcons as bc
    >>> features, truth = bc.datasets.ce_8d5k(random_state=0)
    >>> bc.generate.feature_views(features, n_features=2, n_clusters=5, n_partitions=3, random_state=0)
    Ensemble(1,000 objects x 3 partitions of 5 clusters, 0.0% missing, 3 kB in memory)
    """
    check_int("n_features", n_features)
    scheme = Scheme("feature_views", n_partitions, n_clusters, n_features=n_features, n_init=n_init)
    return make_partitions(features, scheme, **options)


def object_views(
    features: object,
    *,
    n_clusters: ClusterCount,
    n_partitions: int = 16,
    repetition: int = 2,
    n_init: int = 1,
    **options: Unpack[GeneratorOptions],
) -> Ensemble:
    """Return an ensemble of k-means partitions of overlapping subsets that cover all objects.

    Object-distributed clustering (ODC) of Strehl and Ghosh 2002: each of the ``p = n_partitions``
    partitions sees ``v n / p`` of the ``n`` objects, where ``v = repetition``. ``n / p`` of them are
    dealt to it after a shuffle, so that every object is in at least one partition; the rest are drawn
    at random from the other objects. A share ``1 - v / p`` of the labels is missing.

    Parameters
    ----------
    features
        As in `kmeans`.
    n_clusters
        As in `kmeans`; the paper gives every partition the same number.
    n_partitions
        Number of partitions, p.
    repetition
        Average number of partitions that see an object, v, from 1 to ``n_partitions``; 2 in the paper.
    n_init
        As in `kmeans`.
    **options
        ``id``, ``columns``, ``drop``, ``log``, ``out``, ``standardize``, ``train``, ``memory``,
        ``random_state``, ``overwrite``, ``client`` as in `kmeans`.

    Objects are shuffled and dealt within strata of the data (see `Subset`), and k-means replaces the
    graph partitioning of the paper. Partition ``u`` depends on
    ``n_partitions``. Errors and memory are those of `kmeans`; the cost is that of ``repetition``
    partitions of all objects.

    Examples
    --------
    >>> import bigcons as bc
    >>> features, truth = bc.datasets.ce_8d5k(random_state=0)
    >>> bc.generate.object_views(features, n_clusters=5, n_partitions=8, repetition=2, random_state=0)
    Ensemble(1,000 objects x 8 partitions of 5 clusters, 75.0% missing, 8 kB in memory)
    """
    check_int("repetition", repetition, at_most=check_int("n_partitions", n_partitions))
    scheme = Scheme("object_views", n_partitions, n_clusters, None, repetition, n_init=n_init)
    return make_partitions(features, scheme, **options)
