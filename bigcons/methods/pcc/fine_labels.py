"""Labels too fine for PCC: whether they join so few pairs that the model cannot fit them."""

from __future__ import annotations

import numpy as np

from bigcons.coassociation.factorized import Weights
from bigcons.errors import OversegmentationWarning, warn_user
from bigcons.methods.pcc.weights import ENTROPY, entropy_weights
from bigcons.solving.survey import Survey

# Of the pairs that clusters join at the least. Measured on planted classes (3 to 20, noise and gaps) that
# every partition cuts along a line of their own: below this all classes of unequal size were lost, 3 in 4 of
# those of equal size, which above it were all found. Of unequal ones .4 to .6 loses most, but k-means of real
# data did as well there as other methods in seven of eight ensembles. Parts at random do less harm.
ENOUGH = 0.4


def warn_of_fine_labels(
    survey: Survey, n_clusters: int, weights: Weights | str | None, offsets: np.ndarray
) -> None:
    """Warn if the labels join so few pairs of objects that memberships cannot explain it.

    ``y_i.y_j`` has a mean of at least ``1 / n_clusters``, and comes as low only with clusters of equal size:
    these are what a fit to a much lower share of joined pairs is drawn to. Information weights follow from
    a solve without weights, which is what is judged then. O(m M log m) time for a sample of ``m`` objects.
    """
    if isinstance(weights, str):
        weights = entropy_weights(survey.sample, offsets) if weights == ENTROPY else None
    joined = survey.joined_share(None if weights is None else weights.partitions)
    least = least_joined_share(n_clusters, float(survey.n_seen.mean()))
    if n_clusters > 1 and joined < ENOUGH * least:
        warn_user(
            f"the labels join {100 * joined:.2g} % of the pairs of objects, {n_clusters} clusters at least "
            f"{100 * least:.2g} %: PCC then tends to clusters of equal size, whatever the classes; "
            "try eac-average, eac-single or mcla, or a larger n_clusters.",
            OversegmentationWarning,
        )


def least_joined_share(n_clusters: int, n_objects: float) -> float:
    """Return the least share of the pairs of objects that can be together in so many clusters.

    It is the least mean of ``y_i.y_j`` over the pairs ``i != j`` too: ``sum_i y_i`` is shortest where even.
    """
    return max(n_objects / n_clusters - 1.0, 0.0) / (n_objects - 1.0) if n_objects > 1 else 0.0
