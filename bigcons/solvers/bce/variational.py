"""V-BCE as a problem of passes: starts, the E-step of a block, and what follows from its sums."""

from __future__ import annotations

import numpy as np

from bigcons.kernels import bce as kernel
from bigcons.seeding import generator
from bigcons.solvers.bce.model import ALPHA_FLOOR, Parameters, label_probabilities, m_step, objective
from bigcons.solvers.passes import Record, State, Stats

STARTS = ("base", "random")

# An object is settled when a step changes gamma by less than this share of its sum, or after so many steps.
# gamma is carried on, so that what one pass leaves undone the next continues.
E_STEP_TOL = 1e-3
E_STEPS = 20
# New objects have no next pass.
LAST_E_STEP_TOL = 1e-6
LAST_E_STEPS = 500

# The start from base columns: how sure it is of them, how it smooths, and its alpha.
CERTAINTY = 0.9
SMOOTHING = 0.1
START_ALPHA = 0.5


class VariationalBCE:
    """The `Problem` of V-BCE: variational EM (Wang, Shan, Banerjee 2009, sections 3.1 and 3.2).

    The state is alpha (K,) and beta (B, K); objects carry gamma (K,), float32. The statistics of a block are
    ``K B + K`` sums, the number of its labelled objects and its part of the bound.
    """

    name = "BCE"
    carried_dtype = "<f4"
    lower_is_better = False

    def __init__(
        self, offsets: np.ndarray, n_clusters: int, *, start: str, lap: float, update_alpha: bool
    ) -> None:
        self.offsets = offsets
        self.n_carried = n_clusters
        self.start_from = start
        self.lap = lap
        self.update_alpha = update_alpha

    def start(self, labels: np.ndarray, seed: int, number: int) -> tuple[State, None]:
        """Return the first state of start ``number``, from rows of labels (rows, M)."""
        draw = generator(seed, "bce.start", number)
        begin = random_start if self.start_from == "random" else base_start
        return begin(labels, self.offsets, self.n_carried, self.lap, draw)._asdict(), None

    def visit(self, state: State, labels: np.ndarray, carried: np.ndarray | None) -> tuple[Stats, np.ndarray]:
        """Return the statistics of a block under ``state``, and its gamma (rows, K) float32."""
        parameters = Parameters(**state)
        gamma = first_gamma(labels, parameters.alpha) if carried is None else carried
        counts, log_means = np.zeros_like(parameters.beta), np.zeros_like(parameters.alpha)
        updated = np.empty_like(gamma)
        bound, n_labelled = kernel.e_step(
            *(labels, self.offsets, parameters.beta, parameters.alpha, gamma, updated, counts, log_means),
            *(E_STEP_TOL, E_STEPS),
        )
        stats = {
            "counts": counts,
            "log_means": log_means,
            "n_labelled": np.array(float(n_labelled)),
            "bound": np.array(bound),
        }
        return stats, updated

    def finish(self, state: State, stats: Stats) -> tuple[State, Record]:
        """Return the next state, and the bound of ``state``."""
        parameters, n_labelled = Parameters(**state), float(stats["n_labelled"])
        following = m_step(
            *(parameters, stats["counts"], stats["log_means"], n_labelled, self.offsets),
            lap=self.lap,
            update_alpha=self.update_alpha,
        )
        value = objective(parameters, float(stats["bound"]), n_labelled, self.lap)
        return following._asdict(), {"objective": value, "sum_alpha": float(parameters.alpha.sum())}

    def is_settled(self, previous: Record | None, record: Record, tol: float) -> bool:
        """Tell whether the last pass raised the bound by no more than ``tol`` of it."""
        if previous is None:
            return False
        gain = record["objective"] - previous["objective"]
        return gain <= tol * abs(record["objective"])


def first_gamma(labels: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Return the gamma (rows, K) float32 that prefers no cluster: ``alpha + m_i / K`` (the authors')."""
    seen = (labels >= 0).sum(axis=1, keepdims=True)
    return (alpha + seen / alpha.size).astype(np.float32)


def memberships_of(
    state: State, offsets: np.ndarray, labels: np.ndarray, carried: np.ndarray | None
) -> np.ndarray:
    """Return the expected theta (rows, K) float32 of objects: ``gamma`` over its sum."""
    gamma = carried
    if gamma is None:
        alpha, beta = state["alpha"], state["beta"]
        gamma = first_gamma(labels, alpha)
        unused = np.zeros_like(beta), np.zeros_like(alpha)
        kernel.e_step(labels, offsets, beta, alpha, gamma, gamma, *unused, LAST_E_STEP_TOL, LAST_E_STEPS)
    return gamma / gamma.sum(axis=1, keepdims=True)


def base_start(
    labels: np.ndarray, offsets: np.ndarray, n_clusters: int, lap: float, draw: np.random.Generator
) -> Parameters:
    """Start from what randomly chosen partitions say: measured better than the authors' random start.

    Objects in the K largest cells of one partition, or of as many as it takes to have K cells, belong to
    these with certainty 0.9; the others to all clusters alike.
    """
    cells = _largest_cells(labels, n_clusters, draw)
    memberships = np.full((labels.shape[0], n_clusters), 1.0 / n_clusters)
    known = cells >= 0
    memberships[known] = (1.0 - CERTAINTY) / n_clusters
    memberships[known, cells[known]] += CERTAINTY
    beta = label_probabilities(_soft_counts(labels, offsets, memberships) + SMOOTHING + lap, offsets)
    return Parameters(np.full(n_clusters, START_ALPHA), beta)


def random_start(
    labels: np.ndarray, offsets: np.ndarray, n_clusters: int, lap: float, draw: np.random.Generator
) -> Parameters:
    """Start as the authors' code does: alpha from spacings of [0, 1], beta from Dirichlet distributions with
    the label frequencies as parameters.
    """
    frequencies = label_probabilities(
        _soft_counts(labels, offsets, np.ones((labels.shape[0], 1))) + lap, offsets
    )
    spacings = np.diff(np.sort(draw.random(n_clusters - 1)), prepend=0.0, append=1.0)
    beta = draw.standard_gamma(np.repeat(frequencies, n_clusters, axis=1)) + lap
    return Parameters(np.maximum(spacings, ALPHA_FLOOR), label_probabilities(beta, offsets))


def _largest_cells(labels: np.ndarray, n_clusters: int, draw: np.random.Generator) -> np.ndarray:
    """Return for every row its cell (0 the largest) among the K largest of random partitions, or -1."""
    cells = np.zeros(labels.shape[0], np.int64)
    order: np.ndarray = cells[:0]
    for u in draw.permutation(labels.shape[1]):
        both = (cells >= 0) & (labels[:, u] >= 0)
        if not both.any():
            continue
        wide = np.where(both, cells * (labels[:, u].max() + 1) + labels[:, u], -1)
        values, codes, sizes = np.unique(wide, return_inverse=True, return_counts=True)
        cells = np.where(both, codes, -1)
        sizes[values < 0] = 0
        order = np.argsort(-sizes, kind="stable")
        if np.count_nonzero(sizes) >= n_clusters:
            break
    ranks = np.full(order.size, -1)
    chosen = order[:n_clusters]
    ranks[chosen] = np.arange(chosen.size)
    return np.where(cells >= 0, ranks[cells], -1)


def _soft_counts(labels: np.ndarray, offsets: np.ndarray, memberships: np.ndarray) -> np.ndarray:
    """Return the summed memberships (B, K) of the objects of each base cluster."""
    i, u = np.nonzero(labels >= 0)
    base = offsets[u] + labels[i, u]
    n_base_clusters = int(offsets[-1])
    columns = [np.bincount(base, column[i], n_base_clusters) for column in memberships.T]
    return np.stack(columns, axis=1)
