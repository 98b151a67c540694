"""Generate ensembles from features, a soft partition or a clustering."""

from bigcons.generate.diverse import diverse
from bigcons.generate.kmeans import feature_views, kmeans, landmarks, mixed, object_views, weighted_kmeans
from bigcons.generate.simulate import from_memberships, mask_labels, noisy_copies
from bigcons.io.features import FeatureEncoding
from bigcons.store.generator import Generator

__all__ = [
    "FeatureEncoding", "Generator", "diverse", "feature_views", "from_memberships", "kmeans", "landmarks",
    "mask_labels", "mixed", "noisy_copies", "object_views", "weighted_kmeans",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
