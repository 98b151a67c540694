"""Base clusterings: from features, a soft partition or a clustering to an ensemble."""

from bigcons.generate.corrupt import mask_labels, noisy_copies
from bigcons.generate.diverse import diverse
from bigcons.generate.kmeans import kmeans
from bigcons.generate.soft import from_memberships
from bigcons.generate.views import feature_views, object_views
from bigcons.generate.weighted import weighted_kmeans

__all__ = [
    "diverse",
    "feature_views",
    "from_memberships",
    "kmeans",
    "mask_labels",
    "noisy_copies",
    "object_views",
    "weighted_kmeans",
]


def __dir__() -> list[str]:
    return sorted(__all__)
