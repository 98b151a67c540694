"""How good a consensus is: against a known truth, against the ensemble, by features and memberships."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# not lazy, for a module of the same name would take its place in this namespace
from bigcons.metrics.contingency import contingency

_HOMES = {
    "adjusted_rand": "agreement",
    "anmi": "ensemble",
    "average_criterion": "ensemble",
    "cluster_centroids": "overlap",
    "cluster_overlap": "overlap",
    "compactness": "geometry",
    "consistency_index": "agreement",
    "error_roc_auc": "hierarchy",
    "jensen_shannon": "soft",
    "learning_curve": "experiments",
    "matching_accuracy": "agreement",
    "micro_precision": "agreement",
    "nmi": "information",
    "paired_t_test": "experiments",
    "pcc_objective": "pcc",
    "purity": "agreement",
    "rand_index": "agreement",
    "relative_nmi": "information",
    "van_dongen": "agreement",
    "variation_of_information": "information",
    "vat_order": "geometry",
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
    from bigcons.metrics.agreement import (
        adjusted_rand,
        consistency_index,
        matching_accuracy,
        micro_precision,
        purity,
        rand_index,
        van_dongen,
    )
    from bigcons.metrics.ensemble import anmi, average_criterion
    from bigcons.metrics.experiments import learning_curve, paired_t_test
    from bigcons.metrics.geometry import compactness, vat_order
    from bigcons.metrics.hierarchy import error_roc_auc
    from bigcons.metrics.information import nmi, relative_nmi, variation_of_information
    from bigcons.metrics.overlap import cluster_centroids, cluster_overlap
    from bigcons.metrics.pcc import pcc_objective
    from bigcons.metrics.soft import jensen_shannon


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bigcons.metrics' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"bigcons.metrics.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
