"""Bayesian cluster ensembles by collapsed Gibbs sampling (Wang, Shan and Banerjee 2009)."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bigcons.errors import MemoryBudgetError
from bigcons.kernels import gibbs as kernel
from bigcons.memory import DEFAULT_DATA_BYTES, format_size
from bigcons.methods.base import ConsensusClusterer, MethodInfo
from bigcons.methods.first_clusters import first_partition
from bigcons.progress import progress
from bigcons.run.engine import Engine, stop_if_cancelled
from bigcons.run.memory_plan import MemoryPlan, label_bytes
from bigcons.run.passes import best_start
from bigcons.run.results import Output
from bigcons.run.survey import take_survey
from bigcons.seeding import generator
from bigcons.store.ensemble import Ensemble
from bigcons.validation import check_choice, check_int, check_number


@dataclass(eq=False, repr=False, kw_only=True)
class GibbsBCE(ConsensusClusterer):
    """Bayesian cluster ensembles by collapsed Gibbs sampling.

    The model of `BCE` with fixed symmetric priors: proportions and label probabilities are integrated out,
    and the cluster of every label is sampled given those of all others. Missing labels have no cluster.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Number of clusters, at most 256. "auto": by `bigcons.choose_n_clusters`.
    n_init : int, default=4
        Number of chains, of which the most likely is kept. Samples are averaged within a chain only, since
        chains number their clusters differently.
    burn_in : int, default=100
        Number of sweeps before the first sample.
    n_samples : int, default=100
        Number of sweeps after them, each of which is a sample.
    alpha : float or "auto", default="auto"
        Parameter of the Dirichlet prior of the proportions, which counts like ``alpha`` labels in each
        cluster. The paper gives no value. 1, which is uniform, outweighs the labels of objects that have few:
        "auto" is ``m / (4 K)`` for a mean of m labels per object, a quarter of their weight, and at most 1.
    omega : float or "auto", default="auto"
        The same for the label probabilities: counts like ``omega`` objects with each label in each cluster.
        "auto" is a quarter of the mean number of labels of a base cluster in a cluster, and at most 1.
    init : {"partition", "random"}, default="partition"
        "partition": all labels of an object begin in its cluster in one base partition (intersected with
        others until there are enough clusters). "random": every label begins in a random cluster.
    resume : bool, default=True
        Whether a repeated call finds its finished result at ``out``.
    random_state : int, RandomState, Generator or None, default=None
        Seed; one seed gives the same bits on any engine and any number of workers.
    memory : str, int or None, default=None
        Budget such as "2GB"; a fit that would need more is refused before it starts. By default
        labels, clusters and samples may take 4 GB.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_ : (n_objects,) int32, -1 for objects that no partition labeled
    memberships_ : (n_objects, n_clusters) float32, mean share of each cluster in the labels of the object
    alpha_, omega_ : the priors used
    objective_ : log-likelihood of labels and clusters, mean over the samples of the chain kept
    start_objectives_ : the same of every chain
    history_ : the log-likelihood after each sweep of the chain kept
    n_clusters_

    Notes
    -----
    O(n M K) time a sweep. A chain holds n M bytes for labels, as much for clusters, and 4 n K; the engine
    runs chains side by side.

    References
    ----------
    Wang, Shan and Banerjee (2009), *Bayesian cluster ensembles*. "x_ij | z ~ Dirichlet" there
    should read Discrete; ``n_hj`` counts partition ``j`` only, as the normalizer ``k_j omega`` requires.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.GibbsBCE(n_clusters=2, random_state=0).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    """

    info: ClassVar[MethodInfo] = MethodInfo(
        "Wang, Shan and Banerjee 2009", "labels", soft=True, out_of_core=False
    )
    chooses: ClassVar[bool] = True

    n_init: int = 4
    burn_in: int = 100
    n_samples: int = 100
    alpha: float | str = "auto"
    omega: float | str = "auto"
    init: str = "partition"

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        check_int("n_init", self.n_init)
        sampler = Sampler(
            check_int("n_clusters", self.n_clusters, at_most=256),  # stored in a byte
            check_int("burn_in", self.burn_in, at_least=0),
            check_int("n_samples", self.n_samples),
            1.0 if self.alpha == "auto" else check_number("alpha", self.alpha, above=0.0),
            1.0 if self.omega == "auto" else check_number("omega", self.omega, above=0.0),
            check_choice("init", self.init, ("partition", "random")),
            seed,
        )
        self._check_memory(ensemble, engine)
        survey = take_survey(ensemble, engine, seed, 0)
        n, n_labels = ensemble.n_objects, int(survey.n_seen.sum())
        if self.alpha == "auto":
            n_labeled = n - survey.unlabeled.size
            sampler = sampler._replace(alpha=auto_prior(n_labels, n_labeled * self.n_clusters))
        if self.omega == "auto":
            sampler = sampler._replace(omega=auto_prior(n_labels, ensemble.n_base_clusters * self.n_clusters))
        self.alpha_: float = sampler.alpha
        self.omega_: float = sampler.omega

        def run(number: int) -> Chain:
            return sampler.run(ensemble.read(0, n), ensemble.offsets, number)

        with (
            progress("GibbsBCE", self.n_init, "chains") as listener,
            closing(engine.map(run, range(self.n_init))) as chains,
        ):

            def objective(chain: Chain) -> float:
                listener.advance(1)
                return chain.objective

            best, self.start_objectives_ = best_start(chains, objective, lower_is_better=False)
        self.objective_: float = best.objective
        self.history_: dict[str, list[Any]] = {
            "sweep": [float(number) for number in range(1, len(best.log_likelihoods) + 1)],
            "objective": best.log_likelihoods,
        }
        self._publish(ensemble, lambda b: best.memberships[b.start : b.stop], survey.unlabeled, out)

    def _check_memory(self, ensemble: Ensemble, engine: Engine) -> None:
        n, K = ensemble.n_objects, self.n_clusters
        chain = label_bytes(ensemble, n) + n * ensemble.n_partitions + 4 * n * K
        remedy = "; or use BCE, which works from blocks"
        chains = min(engine.n_workers, self.n_init)
        if self.memory is None and chain * chains > DEFAULT_DATA_BYTES:
            raise MemoryBudgetError(
                f"GibbsBCE holds {format_size(chain * chains)} for {chains} chains at a time, more than "
                f"{format_size(DEFAULT_DATA_BYTES)}; allow it with memory=, run fewer at a time "
                f"(client='serial'){remedy}.",
                needed=chain * chains,
                budget=DEFAULT_DATA_BYTES,
            )
        plan = MemoryPlan(held=12 * n * K, per_block=chain, per_result=4 * n * K)
        plan.check("GibbsBCE", engine, ensemble, self.memory, remedy)


def auto_prior(n_labels: int, n_cells: int) -> float:
    """Return the prior that counts a quarter as much as labels spread over so many cells, or 1."""
    return min(1.0, n_labels / (4.0 * n_cells))


class Chain(NamedTuple):
    """The result of a chain."""

    log_likelihoods: list[float]
    """Log-likelihood of the labels and their clusters after every sweep."""
    objective: float
    """Their mean over the samples."""
    memberships: np.ndarray
    """(n, K) float32: shares of the clusters in the labels of each object, over the samples."""


class Sampler(NamedTuple):
    """The parameters of a chain."""

    n_clusters: int
    burn_in: int
    n_samples: int
    alpha: float
    omega: float
    init: str
    seed: int

    def run(self, labels: np.ndarray, offsets: np.ndarray, number: int) -> Chain:
        """Run chain ``number`` on labels (n, M) by exact sweeps."""
        draw = generator(self.seed, "bce.gibbs", number)
        if self.init == "random":
            z = draw.integers(self.n_clusters, size=labels.shape, dtype=np.uint8)
        else:  # every label begins in the cluster of its object in a base partition
            clusters = first_partition(labels, self.n_clusters, self.seed, number)
            undecided = clusters < 0
            clusters[undecided] = draw.integers(self.n_clusters, size=np.count_nonzero(undecided))
            z = np.repeat(clusters.astype(np.uint8)[:, None], labels.shape[1], axis=1)
        random = draw.integers(2**64, size=1, dtype=np.uint64)
        by_label = np.zeros((int(offsets[-1]), self.n_clusters))
        by_partition = np.zeros((labels.shape[1], self.n_clusters))
        kernel.count(labels, offsets, z, by_label, by_partition)
        sums = np.zeros((len(labels), self.n_clusters), np.float32)
        log_likelihoods = []
        for sweep in range(self.burn_in + self.n_samples):
            stop_if_cancelled()
            tables, keep = (by_label, by_partition), sweep >= self.burn_in
            kernel.sweep(labels, offsets, z, *tables, self.alpha, self.omega, sums, keep, random)
            log_likelihoods.append(self.log_proportions(labels, z) + self.log_probabilities(offsets, *tables))
        shares = np.divide(sums, np.maximum(sums.sum(axis=1, keepdims=True), 1), out=sums)
        return Chain(log_likelihoods, float(np.mean(log_likelihoods[self.burn_in :])), shares)

    def log_proportions(self, labels: np.ndarray, z: np.ndarray) -> float:
        """Return ``log p(z)``, proportions integrated out; ``log p(labels, z)`` has a second term."""
        from scipy.special import gammaln

        K, seen = self.n_clusters, (labels >= 0).sum(axis=1)
        log_gammas = gammaln(self.alpha + np.arange(labels.shape[1] + 1.0)) - gammaln(self.alpha)
        proportions = kernel.log_prior(labels, z, log_gammas, K)
        return float(proportions + (gammaln(K * self.alpha) - gammaln(K * self.alpha + seen)).sum())

    def log_probabilities(self, offsets: np.ndarray, by_label: np.ndarray, by_partition: np.ndarray) -> float:
        """Return ``log p(labels | z)``, label probabilities integrated out."""
        from scipy.special import gammaln

        sizes = np.diff(offsets)[:, None] * self.omega
        probabilities = (gammaln(sizes) - gammaln(sizes + by_partition)).sum()
        return float(probabilities + (gammaln(self.omega + by_label) - gammaln(self.omega)).sum())
