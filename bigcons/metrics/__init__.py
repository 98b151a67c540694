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
# Users find these here; their room stands above, and is imported when they are asked for.
_HOMES |= dict.fromkeys(("reliability", "trust"), "bigcons.trust.confidence")

if TYPE_CHECKING:
    from bigcons.metrics.clusterings import *  # noqa: F403 - every criterion
    from bigcons.metrics.description import *  # noqa: F403
    from bigcons.metrics.ensemble import *  # noqa: F403
    from bigcons.metrics.experiments import *  # noqa: F403
    from bigcons.metrics.geometry import *  # noqa: F403
    from bigcons.metrics.memberships import *  # noqa: F403
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
