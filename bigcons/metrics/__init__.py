"""How good a consensus is: against a known truth, against the ensemble, against memberships."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# not lazy, for a module of the same name would take its place in this namespace
from bigcons.metrics.contingency import contingency

_HOMES = {
    "adjusted_rand": "agreement",
    "anmi": "ensemble",
    "jensen_shannon": "soft",
    "matching_accuracy": "agreement",
    "nmi": "information",
    "pcc_objective": "pcc",
    "purity": "agreement",
    "vat_order": "geometry",
}

__all__ = [
    "adjusted_rand",
    "anmi",
    "contingency",
    "jensen_shannon",
    "matching_accuracy",
    "nmi",
    "pcc_objective",
    "purity",
    "vat_order",
]

if TYPE_CHECKING:
    from bigcons.metrics.agreement import adjusted_rand, matching_accuracy, purity
    from bigcons.metrics.ensemble import anmi
    from bigcons.metrics.geometry import vat_order
    from bigcons.metrics.information import nmi
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
