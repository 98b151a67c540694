"""Starts of PCC: where the memberships begin.

All-equal memberships are a saddle point, at which every KKT gap is zero, so the paper's "uniform" start
returns itself unchanged; a small perturbation escapes. On sparse pairs near-uniform starts do much better
than random ones.
"""

from __future__ import annotations

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.memory import Block
from bigcons.seeding import generator

PERTURBATION = 1e-3

# Added to given memberships as a uniform part: KL is infinite where a crisp start contradicts a pair.
UNIFORM_PART = 0.1

# Below every gap: all objects move. A near-uniform start has gaps near zero although it is a saddle.
MOVE_ALL = -1.0

# While the largest gap is above the tolerance, objects down to this share of it move too: those just below
# would otherwise wait at the threshold for one another, pass after pass.
MOVE_SHARE = 0.25

Init = str | np.ndarray


def perturbed_uniform(n_rows: int, n_clusters: int, seed: int, *index: int) -> np.ndarray:
    """Return rows ``1/K (1 + 0.001 gaussian)``, renormalized; float32."""
    noise = generator(seed, "pcc.start.uniform", *index).standard_normal((n_rows, n_clusters), np.float32)
    return _normalized(1.0 + PERTURBATION * noise)


def dirichlet(n_rows: int, n_clusters: int, seed: int, *index: int) -> np.ndarray:
    """Return rows drawn uniformly from the simplex; float32."""
    draws = generator(seed, "pcc.start.dirichlet", *index).standard_exponential(
        (n_rows, n_clusters), np.float32
    )
    return _normalized(draws)


def given(init: np.ndarray, n_objects: int, n_clusters: int) -> np.ndarray:
    """Return given memberships, checked and renormalized, as the start."""
    try:
        memberships = np.asarray(init, dtype=np.float32)
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"init is no array of numbers; pass memberships ({n_objects}, {n_clusters})."
        ) from None
    if memberships.shape != (n_objects, n_clusters):
        raise InvalidInputError(
            f"init has shape {memberships.shape}; a start needs ({n_objects}, {n_clusters}): "
            "one row per object and one column per cluster."
        )
    sums = memberships.sum(axis=1)
    bad = ~((memberships >= 0).all(axis=1) & (np.abs(sums - 1.0) < 1e-3))
    if bad.any():
        raise InvalidInputError(
            f"init row {int(np.argmax(bad))} sums to {sums[np.argmax(bad)]:.4g} or is negative; "
            "every row must be >= 0 and sum to 1."
        )
    return _normalized(memberships)


def rows_of(init: Init, block: Block, n_clusters: int, seed: int) -> np.ndarray:
    """Return a block's rows of a start: "uniform", "dirichlet", or checked memberships of all objects."""
    if not isinstance(init, str):
        return init[block.start : block.stop]
    draw = dirichlet if init == "dirichlet" else perturbed_uniform
    return draw(block.n_rows, n_clusters, seed, block.index)


def softened(memberships: np.ndarray) -> np.ndarray:
    """Mix memberships with uniform ones, so that no pair has probability zero."""
    return _normalized((1.0 - UNIFORM_PART) * memberships + UNIFORM_PART / memberships.shape[1])


def threshold_after(gap: float, tol: float) -> float:
    """Return the relative gap up to which objects stay as they are, where the largest is ``gap``."""
    return tol * (1.0 if gap <= tol else MOVE_SHARE)


def _normalized(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows / rows.sum(axis=1, keepdims=True), dtype=np.float32)
