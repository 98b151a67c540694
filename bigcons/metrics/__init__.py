"""How good a consensus is: against a known truth, against the ensemble, by features and memberships."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_MODULES = {
    "clusterings": (
        "adjusted_rand",
        "consistency_index",
        "contingency",
        "matching_accuracy",
        "micro_precision",
        "nmi",
        "purity",
        "rand_index",
        "relative_nmi",
        "van_dongen",
        "variation_of_information",
    ),
    "ensemble": ("anmi", "average_criterion"),
    "experiments": ("learning_curve", "paired_t_test"),
    "geometry": ("compactness", "vat_order"),
    "hierarchy": ("error_roc_auc",),
    "memberships": ("cluster_centroids", "cluster_overlap", "jensen_shannon", "pcc_objective"),
}

__all__ = [
    "adjusted_rand",
    "anmi",
    "average_criterion",
    "cluster_centroids",
    "cluster_overlap",
    "compactness",
    "consistency_index",
    "contingency",
    "error_roc_auc",
    "jensen_shannon",
    "learning_curve",
    "matching_accuracy",
    "micro_precision",
    "nmi",
    "paired_t_test",
    "pcc_objective",
    "purity",
    "rand_index",
    "relative_nmi",
    "van_dongen",
    "variation_of_information",
    "vat_order",
]

if TYPE_CHECKING:
    from bigcons.metrics.clusterings import (
        adjusted_rand,
        consistency_index,
        contingency,
        matching_accuracy,
        micro_precision,
        nmi,
        purity,
        rand_index,
        relative_nmi,
        van_dongen,
        variation_of_information,
    )
    from bigcons.metrics.ensemble import anmi, average_criterion
    from bigcons.metrics.experiments import learning_curve, paired_t_test
    from bigcons.metrics.geometry import compactness, vat_order
    from bigcons.metrics.hierarchy import error_roc_auc
    from bigcons.metrics.memberships import (
        cluster_centroids,
        cluster_overlap,
        jensen_shannon,
        pcc_objective,
    )


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            value = getattr(importlib.import_module(f"bigcons.metrics.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'bigcons.metrics' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
