"""Data with a known truth: planted ensembles and features, the papers' simulations, KDD Cup 1999."""

from bigcons.datasets.kdd import KDD_CLASSES, KDD_COLUMNS, KDD_FILE, kddcup99
from bigcons.datasets.planted import (
    PlantedFeatures,
    PlantedLabels,
    planted_blocks,
    planted_ensemble,
    planted_feature_blocks,
    planted_features,
)
from bigcons.datasets.simulated import ce_2d2k, ce_8d5k, simulated_soft_partitions

__all__ = [
    "KDD_CLASSES",
    "KDD_COLUMNS",
    "KDD_FILE",
    "PlantedFeatures",
    "PlantedLabels",
    "ce_2d2k",
    "ce_8d5k",
    "kddcup99",
    "planted_blocks",
    "planted_ensemble",
    "planted_feature_blocks",
    "planted_features",
    "simulated_soft_partitions",
]


def __dir__() -> list[str]:
    return sorted(__all__)
