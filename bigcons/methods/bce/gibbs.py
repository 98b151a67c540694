"""G-BCE: Bayesian cluster ensembles by collapsed Gibbs sampling."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from bigcons.errors import MemoryBudgetError
from bigcons.kernels import gibbs as kernel
from bigcons.memory import DEFAULT_DATA_BYTES, format_size
from bigcons.methods.assignment import PartitionRule, clusters_by, partition_rule
from bigcons.methods.choosing import ChoosingClusterer
from bigcons.methods.estimator import ConsensusClusterer, MethodInfo
from bigcons.progress import progress
from bigcons.run.engine import Engine, stop_if_cancelled
from bigcons.run.memory_plan import MemoryPlan, label_bytes
from bigcons.run.output import Output
from bigcons.run.starts import best_start
from bigcons.run.survey import Survey, take_survey
from bigcons.seeding import SeedLike, generator
from bigcons.store.ensemble import Ensemble
from bigcons.validation import check_choice, check_int, check_number

STARTS = ("partition", "random")


class GibbsBCE(ChoosingClusterer, ConsensusClusterer):
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

    def __init__(
        self,
        n_clusters: int | Literal["auto"] = 8,
        *,
        n_init: int = 4,
        burn_in: int = 100,
        n_samples: int = 100,
        alpha: float | str = "auto",
        omega: float | str = "auto",
        init: str = "partition",
        random_state: SeedLike = None,
        memory: str | float | None = None,
        out: str | os.PathLike[str] | None = None,
        client: object = None,
    ) -> None:
        super().__init__(n_clusters, random_state=random_state, memory=memory, out=out, client=client)
        self.n_init = n_init
        self.burn_in = burn_in
        self.n_samples = n_samples
        self.alpha = alpha
        self.omega = omega
        self.init = init

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        sampler = self._sampler(seed)
        self._check_memory(ensemble, engine)
        survey = take_survey(ensemble, engine, sampler.seed, 0)
        sampler = self._choose_priors(sampler, ensemble, survey)
        n = ensemble.n_objects

        def run(number: int) -> Chain:
            return sampler.run(ensemble.read(0, n), ensemble.offsets, number)

        chains = engine.map(run, range(self.n_init))
        best, objectives = _best_chain(chains, self.n_init, n)
        self._set_results(sampler, best.log_likelihoods, objectives)
        self._publish(ensemble, lambda b: best.memberships[b.start : b.stop], survey.unlabeled, out)

    def _choose_priors(self, sampler: Sampler, ensemble: Ensemble, survey: Survey) -> Sampler:
        """Return the sampler with the priors that "auto" stands for, and keep those used."""
        n_labels, n_labeled = int(survey.n_seen.sum()), ensemble.n_objects - survey.unlabeled.size
        if self.alpha == "auto":
            sampler = sampler._replace(alpha=auto_prior(n_labels, n_labeled * self.n_clusters))
        if self.omega == "auto":
            n_cells = ensemble.n_base_clusters * self.n_clusters
            sampler = sampler._replace(omega=auto_prior(n_labels, n_cells))
        self.alpha_: float = sampler.alpha
        self.omega_: float = sampler.omega
        return sampler

    def _set_results(self, sampler: Sampler, log_likelihoods: list[float], objectives: list[float]) -> None:
        """Set the results of the chain that is kept, and the objectives of all."""
        self.start_objectives_ = objectives
        self.objective_: float = sampler.objective(log_likelihoods)
        self.history_: dict[str, list[Any]] = {
            "sweep": [float(number) for number in range(1, len(log_likelihoods) + 1)],
            "objective": log_likelihoods,
        }

    def _sampler(self, seed: int) -> Sampler:
        check_int("n_init", self.n_init)
        return Sampler(
            check_int("n_clusters", self.n_clusters, at_most=256),  # stored in a byte
            check_int("burn_in", self.burn_in, at_least=0),
            check_int("n_samples", self.n_samples),
            1.0 if self.alpha == "auto" else check_number("alpha", self.alpha, above=0.0),
            1.0 if self.omega == "auto" else check_number("omega", self.omega, above=0.0),
            check_choice("init", self.init, STARTS),
            seed,
        )

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

    @property
    def n_sweeps(self) -> int:
        """Sweeps of a chain."""
        return self.burn_in + self.n_samples

    def run(self, labels: np.ndarray, offsets: np.ndarray, number: int) -> Chain:
        """Run chain ``number`` on labels (n, M) by exact sweeps."""
        draw = generator(self.seed, "bce.gibbs", number)
        z = self.start(labels, draw, self.rule(labels, number))
        random = draw.integers(2**64, size=1, dtype=np.uint64)
        tables = self.tables_of(labels, offsets, z)
        sums = np.zeros((len(labels), self.n_clusters), np.float32)
        log_likelihoods = []
        for sweep in range(self.n_sweeps):
            stop_if_cancelled()
            priors, keep = (self.alpha, self.omega), sweep >= self.burn_in
            kernel.sweep(labels, offsets, z, *tables, *priors, sums, keep, random)
            of_tables = self.log_probabilities(offsets, *tables)
            log_likelihoods.append(self.log_proportions(labels, z) + of_tables)
        return Chain(log_likelihoods, self.objective(log_likelihoods), shares(sums))

    def rule(self, labels: np.ndarray, number: int) -> PartitionRule | None:
        """Return the partition that chain ``number`` starts from, found on ``labels``; None for none."""
        if self.init == "random":
            return None
        return partition_rule(labels, self.n_clusters, self.seed, number)

    def start(self, labels: np.ndarray, draw: np.random.Generator, rule: PartitionRule | None) -> np.ndarray:
        """Return the first cluster of every label, (n, M) uint8: that of its object, or any if no rule."""
        if rule is None:
            return draw.integers(self.n_clusters, size=labels.shape, dtype=np.uint8)
        cluster = clusters_by(labels, rule)
        undecided = cluster < 0
        cluster[undecided] = draw.integers(self.n_clusters, size=np.count_nonzero(undecided))
        return np.repeat(cluster.astype(np.uint8)[:, None], labels.shape[1], axis=1)

    def tables_of(
        self, labels: np.ndarray, offsets: np.ndarray, z: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of labels in each cluster by base cluster (B, K) and by partition (M, K)."""
        by_label = np.zeros((int(offsets[-1]), self.n_clusters))
        by_partition = np.zeros((labels.shape[1], self.n_clusters))
        kernel.count(labels, offsets, z, by_label, by_partition)
        return by_label, by_partition

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

    def objective(self, log_likelihoods: list[float]) -> float:
        """Return the mean log-likelihood of the samples of a chain."""
        return float(np.mean(log_likelihoods[self.burn_in :]))


def shares(sums: np.ndarray) -> np.ndarray:
    """Turn sums (rows, K), how often the labels of each object were in each cluster, into shares of them."""
    return np.divide(sums, np.maximum(sums.sum(axis=1, keepdims=True), 1), out=sums)


def _best_chain(
    chains: Generator[Chain, None, None], n_chains: int, n_objects: int
) -> tuple[Chain, list[float]]:
    """Return the most likely chain, the first on ties, and the objectives of all chains."""
    with progress("GibbsBCE", n_chains * n_objects) as listener, closing(chains):

        def counted() -> Iterator[Chain]:
            for chain in chains:
                listener.advance(n_objects)
                yield chain

        return best_start(counted(), lambda chain: chain.objective, lower_is_better=False)
