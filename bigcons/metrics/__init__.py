"""How good a consensus is: against a known truth, against the ensemble, by features and memberships."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bigcons.errors import no_attribute

_MODULES = {
    "clusterings": "adjusted_rand consistency_index contingency matching_accuracy micro_precision nmi purity "
    "rand_index relative_nmi van_dongen variation_of_information",
    "ensemble": "anmi average_criterion expected_loss pac",
    "experiments": "error_roc error_roc_auc learning_curve paired_t_test",
    "geometry": "compactness vat_order",
    "memberships": "cluster_centroids cluster_overlap jensen_shannon pcc_objective",
    "description": "cluster_profiles partition_agreement",
}
_HOMES = {name: f"bigcons.metrics.{module}" for module, names in _MODULES.items() for name in names.split()}
_HOMES |= dict.fromkeys(("reliability", "trust"), "bigcons.trust.confidence")

if TYPE_CHECKING:
    from bigcons.metrics.clusterings import adjusted_rand as adjusted_rand
    from bigcons.metrics.clusterings import consistency_index as consistency_index
    from bigcons.metrics.clusterings import contingency as contingency
    from bigcons.metrics.clusterings import matching_accuracy as matching_accuracy
    from bigcons.metrics.clusterings import micro_precision as micro_precision
    from bigcons.metrics.clusterings import nmi as nmi
    from bigcons.metrics.clusterings import purity as purity
    from bigcons.metrics.clusterings import rand_index as rand_index
    from bigcons.metrics.clusterings import relative_nmi as relative_nmi
    from bigcons.metrics.clusterings import van_dongen as van_dongen
    from bigcons.metrics.clusterings import variation_of_information as variation_of_information
    from bigcons.metrics.description import cluster_profiles as cluster_profiles
    from bigcons.metrics.description import partition_agreement as partition_agreement
    from bigcons.metrics.ensemble import anmi as anmi
    from bigcons.metrics.ensemble import average_criterion as average_criterion
    from bigcons.metrics.ensemble import expected_loss as expected_loss
    from bigcons.metrics.ensemble import pac as pac
    from bigcons.metrics.experiments import error_roc as error_roc
    from bigcons.metrics.experiments import error_roc_auc as error_roc_auc
    from bigcons.metrics.experiments import learning_curve as learning_curve
    from bigcons.metrics.experiments import paired_t_test as paired_t_test
    from bigcons.metrics.geometry import compactness as compactness
    from bigcons.metrics.geometry import vat_order as vat_order
    from bigcons.metrics.memberships import cluster_centroids as cluster_centroids
    from bigcons.metrics.memberships import cluster_overlap as cluster_overlap
    from bigcons.metrics.memberships import jensen_shannon as jensen_shannon
    from bigcons.metrics.memberships import pcc_objective as pcc_objective
    from bigcons.trust.confidence import reliability as reliability
    from bigcons.trust.confidence import trust as trust
else:  # type checkers take the names from the imports above
    __all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise no_attribute(__name__, name, _HOMES)
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_HOMES)
