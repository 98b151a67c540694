"""Consensus methods under one estimator contract. ``METHODS`` maps each method's name to its class."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from bigcons.solvers.base import ConsensusClusterer, MethodFacts

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
    "best": "bigcons.solvers.best:BEST",
    "greedy-anmi": "bigcons.solvers.greedy:GreedyANMI",
    "supra": "bigcons.solvers.supra:Supra",
    "eac": "bigcons.solvers.evidence:EAC",
    "eac-single": "bigcons.solvers.evidence:EACSingle",
    "eac-average": "bigcons.solvers.evidence:EACAverage",
    "furthest": "bigcons.solvers.furthest:Furthest",
    "did": "bigcons.solvers.did:DID",
}


class _Methods(Mapping[str, type[ConsensusClusterer]]):
    """Classes by name, each imported when it is first asked for."""

    def __getitem__(self, name: str) -> type[ConsensusClusterer]:
        module, _, attribute = _HOMES[name].partition(":")
        method: type[ConsensusClusterer] = getattr(importlib.import_module(module), attribute)
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

_CLASSES = {home.partition(":")[2]: name for name, home in _HOMES.items()}

__all__ = ["METHODS", "ConsensusClusterer", "MethodFacts", *_CLASSES]

if TYPE_CHECKING:
    from bigcons.solvers.pcc.estimator import PCC


def __getattr__(name: str) -> Any:
    if name not in _CLASSES:
        raise AttributeError(f"module 'bigcons.solvers' has no attribute {name!r}")
    return METHODS[_CLASSES[name]]
