"""Consensus methods under one estimator contract.

``METHODS`` maps the name of each method to its class. Classes are imported when they are first used, which
keeps this package and its list of names light. A new method takes a module, an entry in ``_REGISTRY`` and the
import that shows it to type checkers and editors; the names of ``bigcons``, the command line and the tests
of every method follow.

Another package adds its methods to ``METHODS`` by entry points of the group "bigcons.methods", which map the
name of a method to its class; `bigcons.testing.check_method` checks such a class.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from functools import cache
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


@cache
def _installed() -> tuple[dict[str, type[Any]], dict[str, str]]:
    """Return the methods of other packages by name and, in a line each, why some cannot be used."""
    from importlib.metadata import entry_points

    from bigcons.errors import first_line

    methods: dict[str, type[Any]] = {}
    faults: dict[str, str] = {}
    names = {*_REGISTRY, *_HOMES}
    for point in entry_points(group="bigcons.methods"):
        try:
            method = point.load()
            if not (issubclass(method, __getattr__("ConsensusClusterer")) and hasattr(method, "info")):
                raise TypeError("a method is a subclass of bigcons.ConsensusClusterer with an info")
            if names & {point.name, method.__name__} or point.name != point.name.lower():
                raise ValueError("a method has a name in lower case and a class that no other has")
        except Exception as error:  # whatever the import of another package raises
            package = point.value if point.dist is None else f"{point.dist.name} {point.dist.version}"
            why = f"{type(error).__name__}: {first_line(error)}"
            fault = f"method {point.name!r} of the package {package} cannot be used ({why}); update or "
            faults[point.name] = f"{fault}uninstall the package."
            continue
        names |= {point.name, method.__name__}
        methods[point.name] = method
    return methods, faults


class _Methods(Mapping[str, "type[Any]"]):
    """Classes by name, each imported when it is first asked for; those of other packages come last."""

    def __getitem__(self, name: str) -> type[Any]:
        value: Any = name  # a method, its estimator or a misspelled name
        key = value if isinstance(value, str) else ""
        if key in _REGISTRY:
            method: type[Any] = __getattr__(_REGISTRY[key].partition(":")[2])
            return method
        installed, faults = _installed()
        if key in installed:
            return installed[key]
        from bigcons.errors import InvalidInputError, UnknownMethodError, nearest

        if key in faults:
            raise InvalidInputError(faults[key], parameter="method")
        kind = value if isinstance(value, type) else type(value)
        method_names = {home.partition(":")[2]: method for method, home in _REGISTRY.items()}
        names = (*_REGISTRY, *installed)
        raise UnknownMethodError(name, names, method_names.get(kind.__name__) or nearest(str(name), names))

    def __iter__(self) -> Iterator[str]:
        from bigcons.errors import warn_user

        installed, faults = _installed()
        for fault in faults.values():
            warn_user(fault, UserWarning)
        return iter((*_REGISTRY, *installed))

    def __len__(self) -> int:
        return len(_REGISTRY) + len(_installed()[0])

    def __repr__(self) -> str:
        return f"<{len(self)} methods: {', '.join(self)}>"

    _ipython_key_completions_ = Mapping.keys


def class_named(name: str) -> type[Any] | None:
    """Return the method whose class has a name, as stores keep it; None if no package has it."""
    if name in _HOMES:
        method: type[Any] = __getattr__(name)
        return method
    return next((method for method in _installed()[0].values() if method.__name__ == name), None)


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
