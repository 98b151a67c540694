"""PCC over all pairs with any Bregman divergence, as a fold over row blocks.

To one object, a group of others with like memberships is a single prototype (see ``kernels/prototypes.py``),
so that a pass costs O(n G (M + K^2)) for G groups, whatever the number of pairs. Every block starts from the
same tables and updates its own objects one after another, keeping its copy of the tables current; the blocks
add up what they changed.

The grouped objective is ``sum c_ij d(1, p_ij) + (N_ij - c_ij) d(0, p_ij)`` with the prototypes' probabilities
in place of ``p_ij = y_i.y_j``: for Kullback-Leibler the negative log-likelihood. It differs from ``sum N_ij
d(c_ij / N_ij, p_ij)`` by a sum that memberships do not change, and by the error of the prototypes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigcons.coassociation.grouped import copy_tables, tables_of_block
from bigcons.divergences import Divergence
from bigcons.kernels import prototypes as kernel
from bigcons.kernels.objective import over_votes
from bigcons.kernels.prototypes import Tables
from bigcons.methods.pcc.searches import general_search


class Change(NamedTuple):
    """What one block, or all of them, changed: the statistics of a pass."""

    tables: Tables
    """Differences of all tables but the centers."""
    gap: float
    """The largest KKT gap met."""
    n_moved: int


class Evaluation(NamedTuple):
    """What given memberships are worth, and a sample of them."""

    objective: float
    """The grouped objective over all pairs."""
    gap: float
    """The largest KKT gap."""
    labels: np.ndarray
    """(sampled rows, M)"""
    memberships: np.ndarray
    """(sampled rows, K) float32"""


def update_block(
    tables: Tables,
    labels: np.ndarray,
    offsets: np.ndarray,
    memberships: np.ndarray,
    updated: np.ndarray,
    threshold: float,
    divergence: Divergence,
) -> Change:
    """Update each object of a block given all others, and return what that changes; ``updated`` is filled.

    Objects whose KKT gap is at most ``threshold`` stay as they are. Cost: see ``kernels.prototypes.sweep``.
    """
    now = copy_tables(tables)
    totals = np.zeros(kernel.N_TOTALS)
    kernel.sweep(labels, offsets, now, memberships, updated, threshold, False, totals, *_moving(divergence))
    for changed, before in zip(now[1:], tables[1:], strict=True):
        np.subtract(changed, before, out=changed)
    return Change(now, float(totals[kernel.MAX_GAP]), int(totals[kernel.N_MOVED]))


def add_changes(a: Change, b: Change) -> Change:
    """Add ``b`` to ``a``, whose tables become those of the sum."""
    for total, part in zip(a.tables[1:], b.tables[1:], strict=True):
        np.add(total, part, out=total)
    return Change(a.tables, max(a.gap, b.gap), a.n_moved + b.n_moved)


def apply_change(tables: Tables, change: Change) -> Tables:
    """Return the tables after a pass."""
    after = (before + part for before, part in zip(tables[1:], change.tables[1:], strict=True))
    return Tables(tables.centers, *after)


def place_block(
    tables: Tables, labels: np.ndarray, offsets: np.ndarray, divergence: Divergence
) -> np.ndarray:
    """Return the best memberships (rows, K) float32 of objects that are not in ``tables``."""
    placed = np.empty((labels.shape[0], tables.centers.shape[1]), np.float32)
    totals = np.zeros(kernel.N_TOTALS)
    kernel.sweep(labels, offsets, tables, placed, placed, 0.0, True, totals, *_moving(divergence))
    return placed


def evaluate_block(
    tables: Tables,
    labels: np.ndarray,
    offsets: np.ndarray,
    memberships: np.ndarray,
    sampled: np.ndarray,
    divergence: Divergence,
) -> Evaluation:
    """Return a block's part of the objective, its largest gap, and its rows ``sampled`` (indices)."""
    totals = np.zeros(kernel.N_TOTALS)
    value, slope, _, parameter = divergence.compiled
    kernel.evaluate(labels, offsets, tables, memberships, totals, value, slope, parameter)
    return Evaluation(
        float(totals[kernel.OBJECTIVE]),
        float(totals[kernel.MAX_GAP]),
        labels[sampled],
        memberships[sampled],
    )


def add_evaluations(a: Evaluation, b: Evaluation) -> Evaluation:
    """Return the evaluation of both blocks together."""
    return Evaluation(
        a.objective + b.objective,
        max(a.gap, b.gap),
        np.concatenate([a.labels, b.labels]),
        np.concatenate([a.memberships, b.memberships]),
    )


def approximation_error(
    centers: np.ndarray, offsets: np.ndarray, sample: Evaluation, divergence: Divergence
) -> float:
    """Return by how much the prototypes misjudge the objective, relative to it; over the pairs of a sample.

    Compares the grouped objective of the sampled objects alone, in the groups that all objects have, with the
    same sum pair by pair: O(r^2 (M + K)) for r sampled objects.
    """
    value, _, _, parameter = divergence.compiled
    rows = np.flatnonzero((sample.labels >= 0).any(axis=1))
    labels, memberships = sample.labels[rows], sample.memberships[rows]
    tables = tables_of_block(centers, labels, offsets, memberships)
    grouped = evaluate_block(tables, labels, offsets, memberships, rows[:0], divergence).objective
    exact = over_votes(labels, memberships.astype(np.float64), value, parameter)
    return abs(grouped - exact) / exact if exact > 0.0 else 0.0


def _moving(divergence: Divergence) -> tuple[Any, ...]:
    """Return what kernels that move objects take of a divergence."""
    _, slope, curvature, parameter = divergence.compiled
    return divergence.is_double_convex, slope, curvature, general_search(divergence), parameter
