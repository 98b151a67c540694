"""k-means on the labels themselves: the baseline of the Bayesian cluster ensembles paper."""

from __future__ import annotations

import os
from typing import Any, ClassVar, Literal

import numpy as np

from bigcons.coassociation import dense
from bigcons.errors import InvalidInputError
from bigcons.memory import MOST_BYTES
from bigcons.methods.assignment import TableProblem
from bigcons.methods.choosing import ChoosingClusterer
from bigcons.methods.estimator import MethodInfo
from bigcons.methods.qmi import CategoryUtility
from bigcons.methods.spectral_start import SpectrallyStarted
from bigcons.run.engine import Engine, one_thread
from bigcons.run.memory_plan import check_matrix_plan
from bigcons.run.output import Output
from bigcons.run.passes import Record, State, Stats
from bigcons.run.starts import best_start
from bigcons.run.survey import Survey
from bigcons.seeding import SeedLike, generator
from bigcons.store.ensemble import Ensemble
from bigcons.validation import check_choice
from bigcons.weights import Weights

ENCODINGS = ("integer", "onehot", "coassoc")


class IntegerLabels(TableProblem):
    """Squared Euclidean distance to the mean label numbers of the clusters, over the observed labels."""

    def __init__(
        self, name: str, offsets: np.ndarray, n_clusters: int, weights: Weights | None = None
    ) -> None:
        super().__init__(name, offsets, n_clusters, weights)
        self.numbers: np.ndarray = np.concatenate([np.arange(k) for k in np.diff(offsets)])[:, None]

    def table(self, T: np.ndarray, _sizes: np.ndarray) -> np.ndarray:
        """Return ``-(l - mean_kj)^2`` for label ``l`` of partition ``j``.

        Means are over the observed members or, for a cluster without any, over all observed objects.
        """
        sums = np.add.reduceat(self.numbers * T, self.offsets[:-1], axis=0)
        n_seen = np.add.reduceat(T, self.offsets[:-1], axis=0)
        overall = sums.sum(axis=1, keepdims=True) / np.maximum(n_seen.sum(axis=1, keepdims=True), 1.0)
        return self._distances(np.where(n_seen > 0, sums / np.maximum(n_seen, 1.0), overall))

    def objective(self, stats: Stats) -> float:
        """Return the summed squared distances of the objects to their centers."""
        return float(-stats["totals"][0])

    def start(self, labels: np.ndarray, seed: int, number: int) -> tuple[State, np.ndarray]:
        """Return the state of k-means++ centers, missing labels replaced by the mean of their partition."""
        from sklearn.cluster import kmeans_plusplus

        draw = generator(seed, "start.kmeans", number)
        seen = labels >= 0
        means = np.where(seen, labels, 0).sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
        lengths = 1.0 if self.weights is None else np.sqrt(self.weights.partitions)
        centers, _ = kmeans_plusplus(
            lengths * np.where(seen, labels, means), self.n_clusters, random_state=int(draw.integers(2**31))
        )
        table = np.zeros_like(self._zeros()[0])
        table[:, : self.n_clusters] = self._distances(
            centers.T / np.where(lengths > 0, lengths, 1.0)[..., None]
        )
        if self.weights is not None:
            table *= self.weights.base_clusters[:, None]
        undecided = np.full((len(labels), 1), -1, np.int32)
        return {"table": table, "bias": np.zeros(self.n_clusters)}, undecided

    def _distances(self, means: np.ndarray) -> np.ndarray:
        return -((self.numbers - np.repeat(means, np.diff(self.offsets), axis=0)) ** 2)


class LabelKMeans(ChoosingClusterer, SpectrallyStarted):
    """k-means on the label matrix: a baseline that treats labels as numbers.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Maximum number of clusters; one that loses its last object stays empty.
        "auto": by `bigcons.choose_n_clusters`.
    encode : {"integer", "onehot", "coassoc"}, default="integer"
        "integer": labels as numbers, as the published figures suggest. "onehot": a column for
        every base cluster, the same as `QMI`. "coassoc": the rows of the co-association matrix c/N (Kuncheva
        and Vetrov 2006), in O(n^2) memory and with scikit-learn's meaning of ``tol``;
        an interrupted run starts anew.
    weights : array of shape (n_partitions,) or None, default=None
        For "integer" and "onehot", numbers >= 0 by which each partition counts, as if it occurred that many
        times; 0 leaves it out. None: all count the same.
    n_init : int, default=10
        Number of starts, of which the best objective is kept: by k-means++ for "integer" and "coassoc", from
        base partitions for "onehot". They run on a sample of at least 4,096 objects, for "coassoc" on all.
        With "onehot", ensembles of many small base clusters, or of so many partitions that the sample has
        above 4 million labels, start from k-means in the spectral embedding of `HBGF` instead.
    max_iter : int, default=100
        Maximum number of passes.
    tol : float, default=1e-6
        Share of the objects that may still move in the last pass.
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
    objective_ : squared distances to the centers, lower is better; for "onehot" the utility of `QMI`
    start_objectives_ : the objective of every start on its sample, when the best was chosen
    history_, n_passes_, n_clusters_, converged_

    Notes
    -----
    O(n M K) time a pass and O(B K) memory, but O(n^2 K) and O(n^2) for "coassoc". The paper's baseline takes
    no missing labels; here distances go over the observed labels and means over the members observed.

    References
    ----------
    Wang, Shan and Banerjee (2011), *Bayesian cluster ensembles*.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.LabelKMeans(n_clusters=2, encode="onehot", random_state=0).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    """

    info: ClassVar[MethodInfo] = MethodInfo("Wang, Shan and Banerjee 2011", "labels")

    def __init__(
        self,
        n_clusters: int | Literal["auto"] = 8,
        *,
        encode: str = "integer",
        weights: Any = None,
        n_init: int = 10,
        max_iter: int = 100,
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
        self.encode = encode
        self.weights = weights

    def _make_problem(self, ensemble: Ensemble) -> TableProblem:
        if self.encode == "onehot":
            return CategoryUtility("k-means", ensemble.offsets, self.n_clusters, self._weights)
        return IntegerLabels("k-means", ensemble.offsets, self.n_clusters, self._weights)

    def _solve_surveyed(
        self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None, survey: Survey
    ) -> None:
        check_choice("encode", self.encode, ENCODINGS)
        if self.encode != "coassoc":
            super()._solve_surveyed(ensemble, engine, seed, out, survey)
            return
        if self._weights is not None:
            raise InvalidInputError(
                "weights do not apply to encode='coassoc'; leave them out, or use encode='onehot'.",
                parameter="weights",
            )
        check_matrix_plan(
            "k-means on the co-association",
            engine,
            ensemble,
            memory=self.memory,
            remedy=", or use encode='onehot'",
        )
        self._solve_coassociation(ensemble, engine, seed, out, survey)

    def _solve_coassociation(
        self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None, survey: Survey
    ) -> None:
        n_agree, n_seen = dense(ensemble, memory=MOST_BYTES, client=engine)
        shares = np.divide(n_agree, n_seen, out=np.zeros(n_agree.shape, np.float32), where=n_seen > 0)
        labeled = np.ones(ensemble.n_objects)
        labeled[survey.unlabeled] = 0.0  # otherwise they would form a cluster of their own
        draw = int(generator(seed, "start.kmeans").integers(2**31))
        settings = {"max_iter": self.max_iter, "tol": self.tol}
        found, objectives = best_kmeans(shares, self.n_clusters, self.n_init, draw, labeled, **settings)
        record: Record = {"objective": float(found.inertia_)}
        self._set_results([record], objectives, converged=bool(found.n_iter_ < self.max_iter))
        self.n_passes_: int = int(found.n_iter_)
        labels = found.labels_.astype(np.int32)
        self._publish(ensemble, lambda b: labels[b.start : b.stop], survey.unlabeled, out)


def best_kmeans(
    rows: np.ndarray, n_clusters: int, n_init: int, draw: int, weights: np.ndarray | None, **settings: float
) -> tuple[Any, list[float]]:
    """Return scikit-learn's KMeans of the start with the least squared distances, and those of all starts.

    The starts draw from one stream, as in scikit-learn, which returns the distances of the best one only.
    """
    from sklearn.cluster import KMeans
    from sklearn.utils import check_random_state

    stream = check_random_state(draw)

    def start(_number: int) -> KMeans:
        model = KMeans(n_clusters, n_init=1, random_state=stream, **settings)
        return model.fit(rows, sample_weight=weights)

    with one_thread():
        return best_start(map(start, range(n_init)), lambda model: model.inertia_)
