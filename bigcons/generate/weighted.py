"""k-means on randomly weighted features: partitions from low to high quality, and of different views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from bigcons.errors import InvalidInputError
from bigcons.generate.counts import ClusterCount
from bigcons.generate.out_of_core import KMeansOptions, make_partitions
from bigcons.generate.schemes import RandomShare, Scheme, ZipfWeights
from bigcons.validation import check_int, check_number

if TYPE_CHECKING:
    from bigcons.stores.ensemble import Ensemble


def weighted_kmeans(
    features: object,
    *,
    n_partitions: int = 100,
    n_clusters: ClusterCount = (2, 10),
    alpha_range: tuple[float, float] = (0.0, 1.5),
    largest_weight: int = 20,
    sample: float = 1.0,
    **options: Unpack[KMeansOptions],
) -> Ensemble:
    """Return an ensemble of k-means partitions, each under random Zipf weights of the features.

    The generator of Nguyen and Caruana 2007 (after Caruana et al. 2006, *Meta Clustering*): for each
    partition draw ``alpha`` uniformly from ``alpha_range``, then for every feature a weight from 1 to
    ``largest_weight`` with probability proportional to ``weight ** -alpha``; multiply the standardized
    features by their weights and run k-means once. With ``alpha = 0`` all weights are equally likely;
    the larger it is, the rarer are the large ones.

    Parameters
    ----------
    features, n_partitions, n_clusters, sample
        As in `kmeans`; here every partition sees all objects unless ``sample`` says otherwise.
    alpha_range
        Lowest and highest exponent, both >= 0. The papers do not state it; the default is ours.
    largest_weight
        Number of values a weight may have (T); as above, 20 is ours.
    **options
        ``out``, ``standardize``, ``algorithm``, ``init``, ``n_init``, ``max_iter``, ``tol``,
        ``memory``, ``random_state``, ``overwrite``, ``resume``, ``client`` as in `kmeans`.

    Constant columns are dropped and have no weights. Errors, memory and cost are those of `kmeans`.
    """
    if not isinstance(alpha_range, (tuple, list)) or len(alpha_range) != 2:
        raise InvalidInputError(f"alpha_range={alpha_range!r} is no range; use (low, high).")
    low = check_number("alpha_range[0]", alpha_range[0], at_least=0)
    weights = ZipfWeights(
        alpha_range=(low, check_number("alpha_range[1]", alpha_range[1], at_least=low)),
        largest_weight=check_int("largest_weight", largest_weight),
    )
    objects = RandomShare(check_number("sample", sample, above=0, at_most=1))
    scheme = Scheme("weighted_kmeans", objects, weights)
    return make_partitions(features, scheme, n_partitions=n_partitions, n_clusters=n_clusters, **options)
