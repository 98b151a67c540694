"""V-BCE: Bayesian cluster ensembles by variational EM (Wang, Shan and Banerjee 2009)."""

from __future__ import annotations

import os
from typing import ClassVar, Literal

import numpy as np

from bigcons.kernels import bce as kernel
from bigcons.methods.assignment import expected_counts, first_partition, spread
from bigcons.methods.bce.model import (
    ALPHA_FLOOR,
    Parameters,
    label_probabilities,
    m_step,
    objective,
    relaxation_of,
    sums_by_partition,
)
from bigcons.methods.choosing import ChoosingClusterer
from bigcons.methods.estimator import MethodInfo
from bigcons.methods.pass_clusterer import SoftPassClusterer
from bigcons.methods.spectral_start import SpectrallyStarted
from bigcons.run.passes import Record, State, Stats
from bigcons.run.starts import gains_little
from bigcons.seeding import SeedLike, generator
from bigcons.store.ensemble import Ensemble
from bigcons.validation import check_choice, check_flag, check_number
from bigcons.weights import counts_of

# The fixed-point iteration of an object stops when a step changes gamma by less than this share of its sum,
# or after this many steps; the next pass continues from there.
E_STEP_TOL, E_STEPS = 1e-4, 100

# The smoothing and the alpha of a start from base partitions.
SMOOTHING, START_ALPHA = 0.1, 0.5

# The share of each cluster's label probabilities that is spread evenly over all labels before a start
# continues on all objects: those that the sample has driven to zero would take many passes to recover.
UNSEEN = 0.1

# The previous objective and the relaxation of the last step, of a state that has made none.
NO_STEP = (-np.inf, 1.0)


class BCE(ChoosingClusterer, SpectrallyStarted, SoftPassClusterer):
    """Bayesian cluster ensembles by variational EM.

    Every object mixes the clusters in its own proportions, drawn from a Dirichlet distribution, and every
    cluster has its own label probabilities in each partition. EM raises a lower bound of the likelihood of
    the observed labels; labels are taken to be missing at random.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Maximum number of clusters; those that are most probable for no object stay empty.
        "auto": by `bigcons.choose_n_clusters`.
    n_init : int, default=20
        Number of starts on a sample of at least 4,096 objects, of which the highest bound is kept. On six
        planted clusters of unequal sizes, a third to a half of the starts find all of them; hence 20.
        Ensembles of many small base clusters, or of so many partitions that the sample has above 4 million
        labels, start from k-means in the spectral embedding of `HBGF` instead, ``n_init`` times, and from the
        least alpha.
    init : {"partition", "random"}, default="partition"
        "partition": responsibilities give nine tenths to one base partition (intersected with others until
        there are enough clusters) and spread one tenth evenly; alpha is 0.5. "random": alpha and beta are
        drawn as in the authors' code, which needs more starts.
    update_alpha : bool, default=True
        Whether the Dirichlet prior of the proportions is estimated; otherwise it keeps its first value. On
        clean ensembles it tends to 0, where every object belongs to one cluster; it is kept above 0.001.
        Where objects have only a few, noisy labels, the bound may be highest at a large alpha, for which all
        objects are alike: then keep it (1,000 planted objects, 20 partitions, nine tenths missing: adjusted
        Rand index .42 without the update, 0 with it).
    smoothing : float, default=1e-6
        Added to every expected label count, so that no probability is zero.
    max_iter : int, default=500
        Maximum number of passes.
    tol : float, default=1e-6
        Relative gain of the objective at which to stop.
    resume : bool, default=True
        Whether to resume an interrupted solve to ``out``, with the same result as an uninterrupted one.
    random_state : int, RandomState, Generator or None, default=None
        Seed; one seed gives the same bits on any engine and any number of workers.
    memory : str, int or None, default=None
        Memory budget such as "2GB"; a fit that would need more is refused before it starts.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_ : (n_objects,) int32, -1 for objects that no partition labeled
    memberships_ : (n_objects, n_clusters) float32, expected proportions of the clusters
    objective_ : lower bound of the log-likelihood, plus ``smoothing * sum log beta`` for the prior that
        ``smoothing`` stands for; no pass lowers it
    start_objectives_ : the objective of every start on its sample, when the best was chosen
    history_, n_passes_, n_clusters_, converged_

    Notes
    -----
    O(n M K) time for every step of the fixed point of gamma, up to 100 of them a pass but few once gamma has
    settled; memory O(B K), and 8 n K bytes for gamma, which is carried from pass to pass. The authors
    reinitialize gamma in every pass, which can lower the bound. Once a pass gains less than a thousandth of
    the objective, the M-step oversteps its maximum where the bound still rises (over-relaxed EM), which saves
    a third of the passes and leads to the same optima as plain EM. A start that has settled on the sample
    continues on all objects with a tenth of its label probabilities spread evenly over the labels.

    `bigcons.federated` fits the same model to objects, or partitions, of sites that keep their labels.

    References
    ----------
    Wang, Shan and Banerjee (2009), *Bayesian cluster ensembles*.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.BCE(n_clusters=2, random_state=0).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    >>> model.memberships_.round(2)[-1]
    array([0., 1.], dtype=float32)
    """

    info: ClassVar[MethodInfo] = MethodInfo("Wang, Shan and Banerjee 2009", "labels", soft=True)

    def __init__(
        self,
        n_clusters: int | Literal["auto"] = 8,
        *,
        n_init: int = 20,
        init: str = "partition",
        update_alpha: bool = True,
        smoothing: float = 1e-6,
        max_iter: int = 500,
        tol: float = 1e-6,
        resume: bool = True,
        random_state: SeedLike = None,
        memory: str | float | None = None,
        out: str | os.PathLike[str] | None = None,
        client: object = None,
    ) -> None:
        super().__init__(
            n_clusters,
            n_init=n_init,
            max_iter=max_iter,
            tol=tol,
            resume=resume,
            random_state=random_state,
            memory=memory,
            out=out,
            client=client,
        )
        self.init = init
        self.update_alpha = update_alpha
        self.smoothing = smoothing

    def _make_problem(self, ensemble: Ensemble) -> VariationalBCE:
        return VariationalBCE(
            ensemble.offsets,
            self.n_clusters,
            init=check_choice("init", self.init, ("partition", "random")),
            smoothing=check_number("smoothing", self.smoothing, at_least=1e-12),
            update_alpha=check_flag("update_alpha", self.update_alpha),
        )


class VariationalBCE:
    """The E-step of a block and the M-step of its sums.

    The state is alpha (K,), beta (B, K) and the last step (2,): the objective before it and its relaxation.
    Objects carry gamma (K,), float32. The statistics of a block are ``K B + K`` sums, the number of its
    labeled objects and its part of the bound.
    """

    name = "BCE"
    carried_dtype = "<f4"
    lower_is_better = False

    def __init__(
        self, offsets: np.ndarray, n_clusters: int, *, init: str, smoothing: float, update_alpha: bool
    ) -> None:
        self.offsets = offsets
        self.n_carried = n_clusters
        self.init = init
        self.smoothing = smoothing
        self.update_alpha = update_alpha

    def start(self, labels: np.ndarray, seed: int, number: int) -> tuple[State, None]:
        """Return the first state of start ``number``, from rows of labels (rows, M)."""
        begin = partition_start if self.init == "partition" else random_start
        return begin(labels, self.offsets, self.n_carried, seed, number), None

    def state_of_counts(self, counts: np.ndarray, _sizes: np.ndarray) -> State:
        """Return the state of objects that are in their clusters by nine tenths, as in `partition_start`.

        Alpha begins at its least: it rises within a few passes where objects mix clusters, but falls by ever
        smaller steps where they do not.
        """
        expected = spread(counts, counts.sum(axis=1, keepdims=True))
        return state_of(expected, self.offsets, ALPHA_FLOOR if self.update_alpha else START_ALPHA)

    def for_all(self, state: State) -> State:
        """Return the state with some probability for every label in every cluster."""
        sizes = sums_by_partition(np.ones_like(state["beta"]), self.offsets)
        beta = (1.0 - UNSEEN) * state["beta"] + UNSEEN / sizes
        return {"alpha": state["alpha"], "beta": beta, "step": np.array(NO_STEP)}

    def visit(
        self, state: State, labels: np.ndarray, carried: np.ndarray | None = None
    ) -> tuple[Stats, np.ndarray]:
        """Return the statistics of a block under ``state``, and its gamma (rows, K) float32."""
        parameters = Parameters(state["alpha"], state["beta"])
        gamma = first_gamma(labels, parameters.alpha) if carried is None else carried
        counts, log_means = np.zeros_like(parameters.beta), np.zeros_like(parameters.alpha)
        updated = np.empty_like(gamma)
        bound, n_labeled = kernel.e_step(
            *(labels, self.offsets, parameters.beta, parameters.alpha, gamma, updated, counts, log_means),
            *(E_STEP_TOL, E_STEPS),
        )
        stats = {
            "counts": counts,
            "log_means": log_means,
            "n_labeled": np.array(float(n_labeled)),
            "bound": np.array(bound),
        }
        return stats, updated

    def finish(self, state: State, stats: Stats) -> tuple[State, Record]:
        """Return the next state, and the bound of ``state``."""
        parameters, n_labeled = Parameters(state["alpha"], state["beta"]), float(stats["n_labeled"])
        value = objective(parameters, float(stats["bound"]), n_labeled, self.smoothing)
        relaxation = relaxation_of(float(state["step"][0]), value, float(state["step"][1]))
        following = m_step(
            *(parameters, stats["counts"], stats["log_means"], n_labeled, self.offsets),
            smoothing=self.smoothing,
            update_alpha=self.update_alpha,
            relaxation=relaxation,
        )
        record = {"objective": value, "sum_alpha": float(parameters.alpha.sum())}
        return {**following._asdict(), "step": np.array([value, relaxation])}, record

    def is_settled(self, previous: Record | None, record: Record, tol: float) -> bool:
        """Return whether the last pass raised the bound by no more than ``tol`` of it."""
        return gains_little(previous, record, tol)

    def results(self, state: State, labels: np.ndarray, carried: np.ndarray | None) -> np.ndarray:
        """Return the expected proportions of a block."""
        return memberships_of(state, self.offsets, labels, carried)


def first_gamma(labels: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Return the gamma (rows, K) float32 that favors no cluster: ``alpha + m_i / K`` (as the authors do)."""
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
        # new objects have no next pass
        kernel.e_step(labels, offsets, beta, alpha, gamma, gamma, *unused, 1e-6, 500)
    return gamma / gamma.sum(axis=1, keepdims=True)


def partition_start(
    labels: np.ndarray, offsets: np.ndarray, n_clusters: int, seed: int, number: int
) -> State:
    """Return a state from random base partitions, which leads to higher bounds than the authors' start.

    An object gives nine tenths to its cluster in `first_partition`; undecided ones are spread evenly.
    """
    clusters = first_partition(labels, n_clusters, seed, number)
    expected, _ = expected_counts(labels, offsets, clusters, n_clusters)
    return state_of(expected, offsets)


def state_of(expected: np.ndarray, offsets: np.ndarray, alpha: float = START_ALPHA) -> State:
    """Return the state that starts from expected label counts (B, K)."""
    beta = label_probabilities(expected + SMOOTHING, offsets)
    return {"alpha": np.full(expected.shape[1], alpha), "beta": beta, "step": np.array(NO_STEP)}


def random_start(labels: np.ndarray, offsets: np.ndarray, n_clusters: int, seed: int, number: int) -> State:
    """Return a state as the authors' code draws it: alpha from the spacings of [0, 1], beta from Dirichlet
    distributions with the label frequencies as parameters.
    """
    draw = generator(seed, "bce.start", number)
    alpha = np.diff(np.sort(draw.random(n_clusters - 1)), prepend=0.0, append=1.0)
    sizes, _ = counts_of(labels, offsets, np.zeros(labels.shape[0], np.int32), 1)
    frequencies = label_probabilities(sizes + 1e-6, offsets)
    beta = draw.standard_gamma(np.repeat(frequencies, n_clusters, axis=1)) + 1e-6  # above zero
    return {
        "alpha": np.maximum(alpha, ALPHA_FLOOR),
        "beta": label_probabilities(beta, offsets),
        "step": np.array(NO_STEP),
    }
