"""Consensus methods under one estimator contract.

``METHODS`` maps the name of each method to its class. Classes are imported when they are first used, which
keeps this package and its list of names light. A new method takes a module, an entry in ``_REGISTRY`` and the
import that shows it to type checkers and editors; the names of ``bigcons``, the command line and the tests
of every method follow.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

_REGISTRY = {
    "tree": "tree:ConsensusTree",
    "pcc": "pcc:PCC",
    "bce": "bce:BCE",
    "bce-gibbs": "bce:GibbsBCE",
    "mixture": "bce:MixtureModel",
    "qmi": "assignment:QMI",
    "kcc": "assignment:KCC",
    "ivc": "assignment:IVC",
    "ipvc": "assignment:IPVC",
    "ipc": "assignment:IPC",
    "kmeans": "assignment:LabelKMeans",
    "cspa": "hypergraph:CSPA",
    "hgpa": "hypergraph:HGPA",
    "mcla": "hypergraph:MCLA",
    "hbgf": "hypergraph:HBGF",
    "ccc": "correspondence:CCC",
    "ccu": "correspondence:CCU",
    "ccsvd": "correspondence:CCSVD",
    "best": "greedy:BEST",
    "greedy-anmi": "greedy:GreedyANMI",
    "supra": "greedy:Supra",
    "eac": "evidence:EAC",
    "eac-single": "evidence:EACSingle",
    "eac-average": "evidence:EACAverage",
    "eac-groups": "evidence:EACGroups",
    "furthest": "evidence:Furthest",
    "did": "evidence:DID",
}
"""Module (within this package) and class of each method."""

if TYPE_CHECKING:
    from bigcons.methods.assignment import IPC as IPC
    from bigcons.methods.assignment import IPVC as IPVC
    from bigcons.methods.assignment import IVC as IVC
    from bigcons.methods.assignment import KCC as KCC
    from bigcons.methods.assignment import QMI as QMI
    from bigcons.methods.assignment import LabelKMeans as LabelKMeans
    from bigcons.methods.base import ConsensusClusterer as ConsensusClusterer
    from bigcons.methods.base import MethodInfo as MethodInfo
    from bigcons.methods.bce import BCE as BCE
    from bigcons.methods.bce import GibbsBCE as GibbsBCE
    from bigcons.methods.bce import MixtureModel as MixtureModel
    from bigcons.methods.correspondence import CCC as CCC
    from bigcons.methods.correspondence import CCSVD as CCSVD
    from bigcons.methods.correspondence import CCU as CCU
    from bigcons.methods.evidence import DID as DID
    from bigcons.methods.evidence import EAC as EAC
    from bigcons.methods.evidence import EACAverage as EACAverage
    from bigcons.methods.evidence import EACGroups as EACGroups
    from bigcons.methods.evidence import EACSingle as EACSingle
    from bigcons.methods.evidence import Furthest as Furthest
    from bigcons.methods.greedy import BEST as BEST
    from bigcons.methods.greedy import GreedyANMI as GreedyANMI
    from bigcons.methods.greedy import Supra as Supra
    from bigcons.methods.hypergraph import CSPA as CSPA
    from bigcons.methods.hypergraph import HBGF as HBGF
    from bigcons.methods.hypergraph import HGPA as HGPA
    from bigcons.methods.hypergraph import MCLA as MCLA
    from bigcons.methods.pcc import PCC as PCC
    from bigcons.methods.tree import ConsensusTree as ConsensusTree

_HOMES = {
    **{home.partition(":")[2]: f"bigcons.methods.{home.partition(':')[0]}" for home in _REGISTRY.values()},
    "ConsensusClusterer": "bigcons.methods.base",
    "MethodInfo": "bigcons.methods.base",
}

if not TYPE_CHECKING:  # type checkers take the names from the imports above
    __all__ = ["METHODS", *_HOMES]


class _Methods(Mapping[str, "type[Any]"]):
    """Classes by name, each imported when it is first asked for."""

    def __getitem__(self, name: str) -> type[Any]:
        if not isinstance(name, str) or name not in _REGISTRY:
            from bigcons.errors import UnknownMethodError, nearest

            given: Any = name  # a method, its estimator or a misspelled name
            kind = given if isinstance(given, type) else type(given)
            of_class = {home.partition(":")[2]: method for method, home in _REGISTRY.items()}
            near = of_class.get(kind.__name__) or nearest(str(name), _REGISTRY)
            raise UnknownMethodError(name, tuple(_REGISTRY), near)
        method: type[Any] = __getattr__(_REGISTRY[name].partition(":")[2])
        return method

    def __iter__(self) -> Iterator[str]:
        return iter(_REGISTRY)

    def __len__(self) -> int:
        return len(_REGISTRY)


METHODS = _Methods()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        words = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(words, name=name, obj=sys.modules[__name__])  # Python suggests one
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(["METHODS", *_HOMES])
