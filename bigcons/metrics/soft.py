"""Criteria of memberships: probabilities of clusters instead of labels."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.execution.engine import fold, open_engine
from bigcons.memory import Block, row_blocks

BLOCK_BYTES = 1 << 24
TOLERANCE = 1e-3


def jensen_shannon(y: Any, z: Any, *, client: object = None) -> float:
    """Return the J criterion: the mean Jensen-Shannon divergence of memberships, clusters matched best.

    ``y`` ``(n_objects, ky)`` and ``z`` ``(n_objects, kz)`` have rows on the simplex; the one with fewer
    clusters is padded with zero columns. In bits, so between 0 (equal up to names) and 1. Symmetric.

    The divergence is a sum over clusters, hence the best matching is an assignment problem and found
    exactly (Lourenço et al. 2015, section 5). Arrays that are sliced, such as Zarr's, are read by rows.
    Costs O(n_objects k^2).
    """
    from scipy.optimize import linear_sum_assignment

    y, z = matrix("y", y), matrix("z", z)
    if y.shape[0] != z.shape[0]:
        raise InvalidInputError(
            f"y is for {y.shape[0]} objects but z for {z.shape[0]}; pass memberships of the same objects."
        )
    n_clusters = max(y.shape[1], z.shape[1])
    blocks = row_blocks(y.shape[0], max(1, BLOCK_BYTES // (8 * n_clusters**2)))
    with open_engine(client) as engine:
        costs = fold(engine, blocks, partial(_matching_costs, y, z, n_clusters), np.add)
    return float(costs[linear_sum_assignment(costs)].sum() / y.shape[0])


def _matching_costs(y: Any, z: Any, n_clusters: int, block: Block) -> np.ndarray:
    """Return the divergence between each cluster of ``y`` and each of ``z`` ``(n_clusters, n_clusters)``."""
    from scipy.special import rel_entr

    first = simplex_rows("y", y, block, n_clusters)[:, :, None]
    second = simplex_rows("z", z, block, n_clusters)[:, None, :]
    middle = (first + second) / 2
    divergence = rel_entr(first, middle) + rel_entr(second, middle)
    return divergence.sum(axis=0) / (2 * np.log(2))


def matrix(name: str, memberships: Any) -> Any:
    """Return memberships as something with a shape ``(n_objects, n_clusters)`` whose rows can be sliced."""
    found = memberships if hasattr(memberships, "shape") else np.asarray(memberships)
    if len(found.shape) != 2 or 0 in found.shape:
        raise InvalidInputError(
            f"{name} has shape {tuple(found.shape)}; pass memberships (n_objects, n_clusters), not empty."
        )
    return found


def simplex_rows(name: str, memberships: Any, block: Block, n_clusters: int) -> np.ndarray:
    """Return a block in double precision, padded with empty clusters; refuse rows off the simplex."""
    rows = np.asarray(memberships[block.start : block.stop])
    if rows.dtype.kind not in "biuf":
        raise InvalidInputError(f"{name} has entries of type {rows.dtype}; pass memberships as real numbers.")
    rows = rows.astype(np.float64, copy=False)
    bad = ~((rows >= 0).all(axis=1) & (np.abs(rows.sum(axis=1) - 1) <= TOLERANCE))
    if bad.any():
        row = int(np.argmax(bad))
        raise InvalidInputError(
            f"row {block.start + row} of {name} has sum {rows[row].sum():.6g} and least entry "
            f"{rows[row].min():.6g}; memberships are >= 0 and sum to 1: normalize them."
        )
    return np.pad(rows, [(0, 0), (0, n_clusters - rows.shape[1])])
