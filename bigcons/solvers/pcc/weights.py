"""Weights of partitions: how much each counts in the evidence for and against a pair.

With weights ``w_u``, ``c_ij`` sums the weights of the partitions that put two objects together and ``N_ij``
those of the partitions that saw both, as if partition ``u`` were there ``w_u`` times.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigcons.coassociation.factorised import State, Weights
from bigcons.errors import InvalidInputError
from bigcons.metrics.information import mutual_information_of_table

INFORMATION = "information"

# Of the mean weight: a partition that tells nothing of the consensus counts next to nothing, and objects that
# no other partition saw are still placed by it.
LEAST_WEIGHT = 1e-3


def check_weights(weights: Any, offsets: np.ndarray) -> Weights | str | None:
    """Return weights of the partitions that ``offsets`` belongs to, "information", or None if all are one."""
    if weights is None or (isinstance(weights, str) and weights == INFORMATION):
        return weights
    if isinstance(weights, str):
        raise InvalidInputError(f"weights={weights!r} is unknown; use 'information', numbers or None.")
    checked = Weights.of(weights, offsets)
    return None if (checked.partitions == 1.0).all() else checked


def information_weights(state: State, offsets: np.ndarray) -> Weights:
    """Return weights of mean 1: the mutual information of each partition and the solved memberships.

    Row ``b`` of S sums the memberships of the objects in base cluster ``b``, so the rows of one partition are
    its contingency table with the consensus, over the objects that it saw.
    """
    tables = np.split(state.S[:, : state.n_clusters], offsets[1:-1])
    information = np.array([mutual_information_of_table(table) for table in tables])
    if not information.any():
        return Weights.of(np.ones(len(tables)), offsets)
    weights = np.maximum(information, LEAST_WEIGHT * information.mean())
    return Weights.of(weights / weights.mean(), offsets)
