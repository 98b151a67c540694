"""Consensus methods under one estimator contract. ``METHODS`` maps each method's name to its class.

Classes are imported when they are first used, so that this package and its list of names stay light.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

_HOMES = {
    "pcc": "bigcons.solvers.pcc.estimator:PCC",
    "bce": "bigcons.solvers.bce.estimator:BCE",
    "bce-gibbs": "bigcons.solvers.bce.gibbs:GibbsBCE",
    "mixture": "bigcons.solvers.mixture:MixtureModel",
    "qmi": "bigcons.solvers.qmi:QMI",
    "kcc": "bigcons.solvers.qmi:KCC",
    "ivc": "bigcons.solvers.voting:IVC",
    "ipvc": "bigcons.solvers.voting:IPVC",
    "ipc": "bigcons.solvers.voting:IPC",
    "kmeans": "bigcons.solvers.kmeans:LabelKMeans",
    "cspa": "bigcons.solvers.hypergraph.cspa:CSPA",
    "hgpa": "bigcons.solvers.hypergraph.hgpa:HGPA",
    "mcla": "bigcons.solvers.hypergraph.mcla:MCLA",
    "hbgf": "bigcons.solvers.hypergraph.hbgf:HBGF",
    "ccc": "bigcons.solvers.correspondence:CCC",
    "ccu": "bigcons.solvers.correspondence:CCU",
    "ccsvd": "bigcons.solvers.correspondence:CCSVD",
    "cumulative": "bigcons.solvers.cumulative:CumulativeVoting",
    "best": "bigcons.solvers.best:BEST",
    "greedy-anmi": "bigcons.solvers.greedy:GreedyANMI",
    "supra": "bigcons.solvers.supra:Supra",
    "eac": "bigcons.solvers.evidence:EAC",
    "eac-single": "bigcons.solvers.evidence:EACSingle",
    "eac-average": "bigcons.solvers.evidence:EACAverage",
    "furthest": "bigcons.solvers.furthest:Furthest",
    "did": "bigcons.solvers.did:DID",
}

CLASSES = [home.partition(":")[2] for home in _HOMES.values()]
"""Names of the classes of all methods, each of which ``bigcons`` offers too."""

_CLASS_HOMES = {
    **{home.partition(":")[2]: home for home in _HOMES.values()},
    "ConsensusClusterer": "bigcons.solvers.base:ConsensusClusterer",
    "MethodFacts": "bigcons.solvers.base:MethodFacts",
}

__all__ = ["CLASSES", "METHODS", *_CLASS_HOMES]

if TYPE_CHECKING:
    from bigcons.solvers.base import ConsensusClusterer, MethodFacts
    from bigcons.solvers.bce.estimator import BCE
    from bigcons.solvers.bce.gibbs import GibbsBCE
    from bigcons.solvers.best import BEST
    from bigcons.solvers.correspondence import CCC, CCSVD, CCU
    from bigcons.solvers.cumulative import CumulativeVoting
    from bigcons.solvers.did import DID
    from bigcons.solvers.evidence import EAC, EACAverage, EACSingle
    from bigcons.solvers.furthest import Furthest
    from bigcons.solvers.greedy import GreedyANMI
    from bigcons.solvers.hypergraph.cspa import CSPA
    from bigcons.solvers.hypergraph.hbgf import HBGF
    from bigcons.solvers.hypergraph.hgpa import HGPA
    from bigcons.solvers.hypergraph.mcla import MCLA
    from bigcons.solvers.kmeans import LabelKMeans
    from bigcons.solvers.mixture import MixtureModel
    from bigcons.solvers.pcc.estimator import PCC
    from bigcons.solvers.qmi import KCC, QMI
    from bigcons.solvers.supra import Supra
    from bigcons.solvers.voting import IPC, IPVC, IVC


class _Methods(Mapping[str, "type[ConsensusClusterer]"]):
    """Classes by name, each imported when it is first asked for."""

    def __getitem__(self, name: str) -> type[ConsensusClusterer]:
        if name not in _HOMES:
            raise KeyError(f"there is no method {name!r}; choose one of {', '.join(_HOMES)}")
        method: type[ConsensusClusterer] = _load(_HOMES[name])
        return method

    def __iter__(self) -> Iterator[str]:
        return iter(_HOMES)

    def __len__(self) -> int:
        return len(_HOMES)

    def __contains__(self, name: object) -> bool:
        return name in _HOMES

    def __repr__(self) -> str:
        return f"METHODS({', '.join(_HOMES)})"


METHODS = _Methods()


def _load(home: str) -> Any:
    module, _, attribute = home.partition(":")
    return getattr(importlib.import_module(module), attribute)


def __getattr__(name: str) -> Any:
    if name not in _CLASS_HOMES:
        raise AttributeError(f"module 'bigcons.solvers' has no attribute {name!r}")
    value = _load(_CLASS_HOMES[name])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
