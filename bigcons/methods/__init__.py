"""Consensus methods under one estimator contract. ``METHODS`` maps each method's name to its class.

Classes are imported when they are first used, so that this package and its list of names stay light.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

_HOMES = {
    "pcc": "bigcons.methods.pcc.estimator:PCC",
    "bce": "bigcons.methods.bce.estimator:BCE",
    "bce-gibbs": "bigcons.methods.bce.gibbs:GibbsBCE",
    "mixture": "bigcons.methods.mixture:MixtureModel",
    "qmi": "bigcons.methods.qmi:QMI",
    "kcc": "bigcons.methods.qmi:KCC",
    "ivc": "bigcons.methods.voting:IVC",
    "ipvc": "bigcons.methods.voting:IPVC",
    "ipc": "bigcons.methods.voting:IPC",
    "kmeans": "bigcons.methods.kmeans:LabelKMeans",
    "cspa": "bigcons.methods.cspa:CSPA",
    "hgpa": "bigcons.methods.hgpa:HGPA",
    "mcla": "bigcons.methods.mcla:MCLA",
    "hbgf": "bigcons.methods.hbgf:HBGF",
    "ccc": "bigcons.methods.correspondence:CCC",
    "ccu": "bigcons.methods.correspondence:CCU",
    "ccsvd": "bigcons.methods.correspondence:CCSVD",
    "cumulative": "bigcons.methods.cumulative:CumulativeVoting",
    "best": "bigcons.methods.best:BEST",
    "greedy-anmi": "bigcons.methods.greedy:GreedyANMI",
    "supra": "bigcons.methods.supra:Supra",
    "eac": "bigcons.methods.evidence:EAC",
    "eac-single": "bigcons.methods.evidence:EACSingle",
    "eac-average": "bigcons.methods.evidence:EACAverage",
    "furthest": "bigcons.methods.furthest:Furthest",
    "did": "bigcons.methods.did:DID",
}

CLASSES = [home.partition(":")[2] for home in _HOMES.values()]
"""Names of the classes of all methods, each of which ``bigcons`` offers too."""

_CLASS_HOMES = {
    **{home.partition(":")[2]: home for home in _HOMES.values()},
    "ConsensusClusterer": "bigcons.solving.estimator:ConsensusClusterer",
    "MethodInfo": "bigcons.solving.estimator:MethodInfo",
}

__all__ = ["CLASSES", "METHODS", *_CLASS_HOMES]

if TYPE_CHECKING:
    from bigcons.methods.bce.estimator import BCE
    from bigcons.methods.bce.gibbs import GibbsBCE
    from bigcons.methods.best import BEST
    from bigcons.methods.correspondence import CCC, CCSVD, CCU
    from bigcons.methods.cspa import CSPA
    from bigcons.methods.cumulative import CumulativeVoting
    from bigcons.methods.did import DID
    from bigcons.methods.evidence import EAC, EACAverage, EACSingle
    from bigcons.methods.furthest import Furthest
    from bigcons.methods.greedy import GreedyANMI
    from bigcons.methods.hbgf import HBGF
    from bigcons.methods.hgpa import HGPA
    from bigcons.methods.kmeans import LabelKMeans
    from bigcons.methods.mcla import MCLA
    from bigcons.methods.mixture import MixtureModel
    from bigcons.methods.pcc.estimator import PCC
    from bigcons.methods.qmi import KCC, QMI
    from bigcons.methods.supra import Supra
    from bigcons.methods.voting import IPC, IPVC, IVC
    from bigcons.solving.estimator import ConsensusClusterer, MethodInfo


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
        raise AttributeError(f"module 'bigcons.methods' has no attribute {name!r}")
    value = _load(_CLASS_HOMES[name])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
