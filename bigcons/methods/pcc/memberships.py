"""Memberships of PCC: where they start, where they are stored, and the solution that every solver returns.

All-equal memberships are a saddle point at which every KKT gap is zero, so the paper's uniform start never
leaves it; a small perturbation does. On sparse pairs near-uniform starts do much better than random ones.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigcons.divergences import Calibrated, Divergence
from bigcons.errors import InvalidInputError
from bigcons.kernels.prototypes import Tables
from bigcons.memory import Block
from bigcons.seeding import generator
from bigcons.solving.passes import History, Iterate, Run, as_history
from bigcons.storage.checkpoint import BlockArrays

PERTURBATION = 1e-3

# Uniform share mixed into memberships found by another divergence.
UNIFORM_PART = 0.1

# Uniform share mixed into rows of a given start where they contradict an observed pair, where KL is infinite:
# about the least that float32 resolves next to 1. Probabilities this near 0 and 1 count as such.
LEAST_PART = 1e-6
EDGE = 1e-9
PAIRS_AT_ONCE = 2**18

# Below every gap, so all objects move: a near-uniform start has gaps near zero although it is a saddle.
MOVE_ALL = -1.0

# While the largest gap exceeds the tolerance, objects with gaps down to this share of the tolerance move too:
# otherwise those just below it would delay one another for many passes.
MOVE_SHARE = 0.25

# Most memberships of an object that are kept if there are many clusters.
MOST_SHARES = 16

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


def checked_start(init: np.ndarray, n_objects: int, n_clusters: int) -> np.ndarray:
    """Return given memberships, checked and renormalized."""
    try:
        memberships = np.asarray(init, dtype=np.float32)
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"init is not an array of numbers; pass memberships ({n_objects}, {n_clusters})."
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


def start_of_block(init: Init, block: Block, n_clusters: int, seed: int) -> np.ndarray:
    """Return a block's rows of a start: "uniform", "dirichlet", or checked memberships of all objects."""
    if not isinstance(init, str):
        return init[block.start : block.stop]
    draw = dirichlet if init == "dirichlet" else perturbed_uniform
    return draw(block.n_rows, n_clusters, seed, block.index)


def few_shares(clusters: np.ndarray, n_clusters: int) -> np.ndarray:
    """Return memberships of objects that are each in one cluster, or in none (-1), as few of many.

    (rows, 2 room) float32: the clusters of an object, -1 for none, then its memberships in them.
    """
    room = min(MOST_SHARES, n_clusters)
    kept = np.zeros((len(clusters), 2 * room), np.float32)
    kept[:, :room] = -1.0
    kept[:, 0] = clusters
    kept[:, room] = clusters >= 0
    return kept


def all_shares(kept: np.ndarray, n_clusters: int) -> np.ndarray:
    """Return memberships (rows, K) float32 from the few that are kept; uniform ones of an object in none."""
    room = kept.shape[1] // 2
    rows, at = np.nonzero(kept[:, :room] >= 0)
    found = np.zeros((len(kept), n_clusters), np.float32)
    found[rows, kept[rows, at].astype(np.int64)] = kept[rows, room + at]
    found[kept[:, 0] < 0] = 1.0 / n_clusters
    return found


def softened(memberships: np.ndarray, part: float = UNIFORM_PART) -> np.ndarray:
    """Mix memberships with a uniform part, so that no pair has probability 0 or 1."""
    return _normalized((1.0 - part) * memberships + part / memberships.shape[1])


def diverges_at_edges(divergence: Divergence) -> bool:
    """Return whether the divergence has no practical bound where a pair has probability 0 or 1, as KL."""
    value, _, _, parameter = divergence.compiled
    growth = value(1.0, EDGE, parameter) - value(1.0, 1e4 * EDGE, parameter)
    return bool(growth > 4.0 * value(1.0, 0.5, parameter))


def contradicted(
    indptr: np.ndarray, indices: np.ndarray, observed: np.ndarray, rows: np.ndarray, others: np.ndarray
) -> np.ndarray:
    """Return which of ``rows`` rule out a share ``observed`` of one of their pairs: p = 0 < x or p = 1 > x.

    CSR over the rows; ``indices`` are rows of ``others``. Such a pair makes KL infinite.
    """
    found = np.zeros(rows.shape[0], bool)
    n_rows, degrees = rows.shape[0], np.diff(indptr)
    step = max(PAIRS_AT_ONCE * n_rows // max(indices.size, 1), 1)
    for start in range(0, n_rows, step):
        stop = min(start + step, n_rows)
        pairs = slice(indptr[start], indptr[stop])
        own = np.repeat(np.arange(start, stop), degrees[start:stop])
        p, x = np.einsum("ek,ek->e", rows[own], others[indices[pairs]]), observed[pairs]
        found[own[((p <= EDGE) & (x > 0.0)) | ((p >= 1.0 - EDGE) & (x < 1.0))]] = True
    return found


def threshold_after(gap: float, tol: float) -> float:
    """Return the relative gap up to which objects do not move, if the largest is ``gap``."""
    return tol * (1.0 if gap <= tol else MOVE_SHARE)


def _normalized(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows / rows.sum(axis=1, keepdims=True), dtype=np.float32)


# Solutions


class BlockMemberships(NamedTuple):
    """Memberships stored in block arrays."""

    arrays: BlockArrays
    generation: int
    blocks: list[Block] | None = None
    """The blocks they were written in, if those may differ from the blocks that are read."""
    columns: int | None = None
    """Number of columns to read; None for all."""
    n_clusters: int | None = None
    """Of memberships of which only few are stored, see `few_shares`."""

    def read(self, block: Block) -> np.ndarray:
        """Return the memberships of a block, read-only."""
        if self.n_clusters is not None:
            return all_shares(self.arrays.read(self.generation, block), self.n_clusters)
        if self.columns is not None:
            return self._replace(columns=None).read(block)[:, : self.columns]
        if self.blocks is None:
            return self.arrays.read(self.generation, block)
        parts = [
            self.arrays.read(self.generation, own)[max(block.start - own.start, 0) : block.stop - own.start]
            for own in self.blocks
            if own.start < block.stop and block.start < own.stop
        ]
        return np.concatenate(parts)


class Solution(NamedTuple):
    """The memberships found, and their distance from a KKT point."""

    memberships: np.ndarray | BlockMemberships
    """(n, K) float32, rows on the simplex."""
    objective: float
    gap: float
    converged: bool
    n_passes: int
    history: History
    start_objectives: list[float]
    """Of every start at the time of choice; the final objective if there was one start."""
    sums: Any = None
    """`AgreementSums` or `many.ManySums` of the memberships over all pairs, if the solver computes them."""
    tables: Tables | None = None
    """The prototype tables of the memberships, if the solver uses prototypes."""
    n_large: int | None = None
    """Number of clusters, the first, that may win objects; None for all."""
    calibrated: Calibrated | None = None
    """The divergence with the rates, if these are estimated and the same for all partitions."""
    settled: bool = False
    """Whether passes ended by their own rule, which need not bound the gap, rather than by max_iter."""

    def by(self, divergence: Divergence) -> Solution:
        """Return the solution with its divergence, if that is calibrated."""
        return self._replace(calibrated=divergence if isinstance(divergence, Calibrated) else None)

    def read(self, block: Block) -> np.ndarray:
        """Return the memberships of a block, read-only."""
        if isinstance(self.memberships, BlockMemberships):
            return self.memberships.read(block)
        return self.memberships[block.start : block.stop]


def solution_at(
    run: Run,
    at: Iterate[Any],
    *,
    sums: Any = None,
    tables: Tables | None = None,
    blocks: list[Block] | None = None,
) -> Solution:
    """Return the solution of a finished run; see `BlockMemberships` for ``blocks``."""
    last = at.records[-1]
    return Solution(
        BlockMemberships(run.arrays, at.generation, blocks, None if sums is None else sums.n_clusters),
        last["objective"],
        last["gap"],
        at.is_settled,
        len(at.records),
        as_history(at.records),
        at.start_objectives or [last["objective"]],
        sums,
        tables,
        settled=at.is_settled,
    )
