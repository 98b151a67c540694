"""bigcons: consensus clustering for data larger than memory.

`consensus` combines given clusterings, an `Ensemble`, into one; `generate.mixed` makes an ensemble from
features; `choose_n_clusters` and `consensus_tree` find the number of clusters; `metrics`, `plots` and
`Report` describe the result. ``METHODS`` maps names to the classes of all methods. The documentation begins
with "Quickstart".

Public names are imported when they are first used, so that ``import bigcons`` stays light.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from bigcons import methods
from bigcons.version import __version__ as __version__

_NAMES = {
    "divergences": ["Divergence"],
    "generate.transformer": ["EnsembleGenerator"],
    "io.columns": ["select"],
    "methods": methods.__all__,
    "methods.consensus": ["ConsensusClustering", "as_in_paper", "consensus"],
    "progress": ["ProgressBar"],
    "report": ["Report"],
    "store.clusters": ["ClusterTree", "NClustersChoice"],
    "store.consensus": ["Consensus", "match"],
    "store.ensemble": ["Ensemble"],
    "store.pairs": ["PairTable"],
    "trust.n_clusters": ["choose_n_clusters", "consensus_tree"],
}
_HOMES = {name: f"bigcons.{module}" for module, names in _NAMES.items() for name in names}
_MODULES = ["coassociation", "datasets", "errors", "federated", "generate", "methods", "metrics", "plots"]
_MODULES += ["testing"]

if TYPE_CHECKING:
    from bigcons import coassociation as coassociation
    from bigcons import datasets as datasets
    from bigcons import errors as errors
    from bigcons import federated as federated
    from bigcons import generate as generate
    from bigcons import metrics as metrics
    from bigcons import plots as plots
    from bigcons import testing as testing
    from bigcons.divergences import Divergence as Divergence
    from bigcons.generate.transformer import EnsembleGenerator as EnsembleGenerator
    from bigcons.io.columns import select as select
    from bigcons.methods import *  # noqa: F403 - the class of every method
    from bigcons.methods.consensus import ConsensusClustering as ConsensusClustering
    from bigcons.methods.consensus import as_in_paper as as_in_paper
    from bigcons.methods.consensus import consensus as consensus
    from bigcons.progress import ProgressBar as ProgressBar
    from bigcons.report import Report as Report
    from bigcons.store.clusters import ClusterTree as ClusterTree
    from bigcons.store.clusters import NClustersChoice as NClustersChoice
    from bigcons.store.consensus import Consensus as Consensus
    from bigcons.store.consensus import match as match
    from bigcons.store.ensemble import Ensemble as Ensemble
    from bigcons.store.pairs import PairTable as PairTable
    from bigcons.trust.n_clusters import choose_n_clusters as choose_n_clusters
    from bigcons.trust.n_clusters import consensus_tree as consensus_tree
else:
    __all__ = ["__version__", *_HOMES, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"bigcons.{name}")
    else:
        words = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(words, name=name, obj=sys.modules[__name__])  # Python suggests one
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(["__version__", *_HOMES, *_MODULES])
