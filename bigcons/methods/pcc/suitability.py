"""Whether labels suit the model of the paper: far coarser or finer ones than the consensus mislead it."""

from __future__ import annotations

import numpy as np

from bigcons.coassociation.factorized import Weights
from bigcons.errors import OversegmentationWarning, UndersegmentationWarning, warn_user
from bigcons.methods.pcc.start import entropy_weights
from bigcons.solving.survey import Survey
from bigcons.stores.ensemble import Ensemble


def warn_of_coarse_labels(ensemble: Ensemble, n_clusters: int, weights: Weights | str | None) -> bool:
    """Warn if the partitions have far fewer clusters than asked for, and so join different ones by chance.

    The paper's model of the co-association has no term for that. Return whether it is so.
    """
    counted = ensemble.n_clusters
    if isinstance(weights, Weights):
        counted = counted[weights.partitions > 0]
    mean = float(np.mean(counted))
    # Measured on 5 to 20 planted classes of equal size, with noise: below a third the paper's model lost
    # all of them, up to a half most, while the calibrated one found all.
    is_coarse = mean <= 0.5 * n_clusters
    if is_coarse:
        warn_user(
            f"the partitions have {mean:.3g} clusters on average, far fewer than n_clusters={n_clusters}: by "
            "chance they join objects of different clusters, which PCC then merges; "
            "coassociation='calibrated' allows for it.",
            UndersegmentationWarning,
        )
    return is_coarse


# Fraction of the least share of joined pairs below which to warn. Measured on planted classes (3 to 20, with
# noise and missing labels) that every partition splits differently: below it all classes of unequal size were
# lost, and 3 in 4 of those of equal size; above it all of equal size were found. Between .4 and .6 most
# unequal classes are lost, but PCC matched other methods on seven of eight k-means ensembles of real data.
# Random splits do less harm.
ENOUGH = 0.4


def warn_of_fine_labels(
    survey: Survey, n_clusters: int, weights: Weights | str | None, offsets: np.ndarray
) -> None:
    """Warn if the labels join too few pairs of objects for memberships to explain.

    The mean of ``y_i.y_j`` is at least about ``1 / n_clusters``, attained by clusters of equal size: a fit to
    a much lower share of joined pairs tends to them. O(m M log m) time for a sample of ``m`` objects.
    """
    if isinstance(weights, str):
        weights = entropy_weights(survey.sample, offsets)
    joined = survey.joined_share(None if weights is None else weights.partitions)
    least = least_joined_share(n_clusters, float(survey.n_seen.mean()))
    if n_clusters > 1 and joined < ENOUGH * least:
        warn_user(
            f"the labels join {100 * joined:.2g} % of the pairs of objects, but {n_clusters} clusters at "
            f"least {100 * least:.2g} %: PCC then tends to clusters of equal size, whatever the classes; "
            "try eac-average, eac-single or mcla, or a larger n_clusters.",
            OversegmentationWarning,
        )


def least_joined_share(n_clusters: int, n_objects: float) -> float:
    """Return the least share of object pairs that ``n_clusters`` clusters can join.

    It is also the least mean of ``y_i.y_j`` over ``i != j``: ``sum_i y_i`` is shortest if even.
    """
    return max(n_objects / n_clusters - 1.0, 0.0) / (n_objects - 1.0) if n_objects > 1 else 0.0
