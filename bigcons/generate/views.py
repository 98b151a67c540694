"""Distributed views of one data set: partitions of some of its features or objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from bigcons.generate.pipeline import ClusterCount, KMeansOptions, make_partitions
from bigcons.generate.sampling import AllFeatures, DealtShare, RandomFeatures, RandomShare, Scheme
from bigcons.validation import check_int

if TYPE_CHECKING:
    from bigcons.stores.ensemble import Ensemble


def feature_views(
    features: object,
    *,
    n_features: int,
    n_clusters: ClusterCount,
    n_partitions: int = 10,
    **options: Unpack[KMeansOptions],
) -> Ensemble:
    """Return an ensemble of k-means partitions of all objects, each on a random subset of the features.

    Feature-distributed clustering (FDC) of Strehl and Ghosh 2002, with k-means in place of their graph
    partitioning, so that the data need not fit in memory.

    Parameters
    ----------
    features
        As in `kmeans`.
    n_features
        Number of features per view, drawn without replacement from those that vary.
    n_clusters
        As in `kmeans`; the paper gives every view the same number.
    n_partitions
        Number of views.
    **options
        ``out``, ``standardize``, ``algorithm``, ``init``, ``n_init``, ``max_iter``, ``tol``,
        ``memory``, ``random_state``, ``overwrite``, ``resume``, ``client`` as in `kmeans`.

    No label is missing. Errors, memory and cost are those of `kmeans` with ``n_features`` features,
    and InvalidInputError if fewer than ``n_features`` vary.
    """
    scheme = Scheme("feature_views", RandomShare(1.0), RandomFeatures(check_int("n_features", n_features)))
    return make_partitions(features, scheme, n_partitions=n_partitions, n_clusters=n_clusters, **options)


def object_views(
    features: object,
    *,
    n_clusters: ClusterCount,
    n_partitions: int = 16,
    repetition: int = 2,
    **options: Unpack[KMeansOptions],
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
    **options
        ``out``, ``standardize``, ``algorithm``, ``init``, ``n_init``, ``max_iter``, ``tol``,
        ``memory``, ``random_state``, ``overwrite``, ``resume``, ``client`` as in `kmeans`.

    Objects are shuffled and dealt within strata of the data (see `DealtSubset`), and k-means replaces the
    graph partitioning of the paper. Partition ``u`` depends on
    ``n_partitions``. Errors and memory are those of `kmeans`; the cost is that of ``repetition``
    partitions of all objects.
    """
    p = check_int("n_partitions", n_partitions)
    objects = DealtShare(p, check_int("repetition", repetition, at_most=p))
    scheme = Scheme("object_views", objects, AllFeatures())
    return make_partitions(features, scheme, n_partitions=p, n_clusters=n_clusters, **options)
