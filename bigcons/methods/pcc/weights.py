"""Weights of partitions: how much each counts in the evidence for and against a pair.

With weights ``w_u``, ``c_ij`` sums the weights of the partitions that put two objects together and ``N_ij``
those of the partitions that saw both, as if partition ``u`` were there ``w_u`` times.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigcons.coassociation.factorized import AgreementSums, Weights
from bigcons.errors import InvalidInputError
from bigcons.metrics.clusterings import mutual_information_of_table

ENTROPY, INFORMATION = "entropy", "information"

# Of the mean weight: a partition that tells nothing counts next to nothing, and objects that no other
# partition saw are still placed by it.
LEAST_WEIGHT = 1e-3


def check_weights(weights: Any, offsets: np.ndarray) -> Weights | str | None:
    """Return weights of the partitions that ``offsets`` belongs to, the name of a rule that finds them, or
    None if all are one.
    """
    if weights is None or (isinstance(weights, str) and weights in (ENTROPY, INFORMATION)):
        return weights
    if isinstance(weights, str):
        raise InvalidInputError(
            f"weights={weights!r} is unknown; use 'entropy', 'information', numbers or None."
        )
    checked = Weights.of(weights, offsets)
    return None if (checked.partitions == 1.0).all() else checked


def entropy_weights(labels: np.ndarray, offsets: np.ndarray) -> Weights:
    """Return weights of mean 1: the entropy of each partition's labels (rows, M) among the rows that it saw.

    Two objects share label ``b`` by chance with probability ``p_b``, so that sharing it is worth
    ``log(1 / p_b)`` as evidence that they belong together; the entropy is its mean over the objects.
    """
    return _of_mean_one(np.array([_entropy(column[column >= 0]) for column in labels.T]), offsets)


def information_weights(sums: AgreementSums, offsets: np.ndarray) -> Weights:
    """Return weights of mean 1: the mutual information of each partition and the solved memberships.

    Row ``b`` of S sums the memberships of the objects in base cluster ``b``, so the rows of one partition are
    its contingency table with the consensus, over the objects that it saw.
    """
    memberships = np.maximum(sums.S[:, : sums.n_clusters], 0.0)  # what a cluster lost rounds below zero
    tables = np.split(memberships, offsets[1:-1])
    return _of_mean_one(np.array([mutual_information_of_table(table) for table in tables]), offsets)


def _entropy(labels: np.ndarray) -> float:
    """Return the entropy of labels in nats: the information that they have of themselves; 0 of none."""
    return mutual_information_of_table(np.diag(np.bincount(labels))) if labels.size else 0.0


def _of_mean_one(worth: np.ndarray, offsets: np.ndarray) -> Weights:
    """Return weights in proportion to what partitions are worth (M,), all one if none is worth anything."""
    if not worth.any():
        return Weights.of(np.ones(worth.size), offsets)
    weights = np.maximum(worth, LEAST_WEIGHT * worth.mean())
    return Weights.of(weights / weights.mean(), offsets)
