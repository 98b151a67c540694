"""Consensus methods under one estimator contract. ``METHODS`` maps each method's name to its class."""

from __future__ import annotations

from bigcons.solvers.base import ConsensusClusterer
from bigcons.solvers.pcc.estimator import PCC

METHODS: dict[str, type[ConsensusClusterer]] = {
    "pcc": PCC,
}

__all__ = ["METHODS", "PCC", "ConsensusClusterer"]
