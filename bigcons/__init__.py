"""bigcons: consensus clustering for data bigger than memory.

Public names are imported when they are first used, so that ``import bigcons`` stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bigcons.methods import CLASSES, METHODS
from bigcons.version import __version__

_HOMES = {
    "Ensemble": "bigcons.stores.ensemble",
    "PairTable": "bigcons.stores.pairs",
    "Consensus": "bigcons.stores.consensus",
    "Divergence": "bigcons.divergences",
    **dict.fromkeys(CLASSES, "bigcons.methods"),
}
_MODULES = ["coassociation", "datasets", "errors", "generate", "metrics", "plots"]

__all__ = ["METHODS", "__version__", *_HOMES, *_MODULES]

if TYPE_CHECKING:
    from bigcons import coassociation, datasets, errors, generate, metrics, plots
    from bigcons.divergences import Divergence
    from bigcons.methods import (
        BCE,
        BEST,
        CCC,
        CCSVD,
        CCU,
        CSPA,
        DID,
        EAC,
        HBGF,
        HGPA,
        IPC,
        IPVC,
        IVC,
        KCC,
        MCLA,
        PCC,
        QMI,
        CumulativeVoting,
        EACAverage,
        EACSingle,
        Furthest,
        GibbsBCE,
        GreedyANMI,
        LabelKMeans,
        MixtureModel,
        Supra,
    )
    from bigcons.stores.consensus import Consensus
    from bigcons.stores.ensemble import Ensemble
    from bigcons.stores.pairs import PairTable


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"bigcons.{name}")
    else:
        raise AttributeError(f"module 'bigcons' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
