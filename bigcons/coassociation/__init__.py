"""Co-association: how often pairs of objects share a cluster, for sampled pairs or for all."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bigcons.coassociation.counts import count, dense
from bigcons.coassociation.sampling import sample, sample_pairs
from bigcons.errors import no_attribute

if TYPE_CHECKING:
    from bigcons.methods.did import did_matrix as did_matrix
    from bigcons.methods.did import did_ranking as did_ranking

__all__ = ["count", "dense", "did_matrix", "did_ranking", "sample", "sample_pairs"]


def __getattr__(name: str) -> Any:
    if name not in ("did_matrix", "did_ranking", "increments"):
        raise no_attribute(__name__, name, __all__)
    module = importlib.import_module("bigcons.methods.did")
    return module if name == "increments" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
