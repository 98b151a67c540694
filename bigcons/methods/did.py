"""Consensus by dissimilarity increments: agglomerative and spectral clustering of `did_matrix`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bigcons.coassociation.increments import similarity_matrix
from bigcons.errors import InvalidInputError
from bigcons.methods.base import ConsensusClusterer, MethodInfo
from bigcons.methods.evidence import agglomerate, cut, linkage_matrix, numbered
from bigcons.run.engine import Engine, one_thread
from bigcons.run.memory_plan import data_budget
from bigcons.run.results import Output
from bigcons.run.survey import take_survey
from bigcons.seeding import generator
from bigcons.store.ensemble import Ensemble
from bigcons.validation import check_choice


@dataclass(eq=False, repr=False, kw_only=True)
class DID(ConsensusClusterer):
    """Consensus by dissimilarity increments, PCC_DID (Aidos and Fred).

    As in evidence accumulation, objects are similar if partitions put them together, but each partition is
    weighted by the likelihood of their distance under the distribution of dissimilarity increments of their
    cluster: see `bigcons.coassociation.did_matrix`. The similarity is made symmetric and clustered.

    Parameters
    ----------
    n_clusters : int, default=8
        Maximum number of clusters.
    features : array, table or path-like, default=None
        Features (n_objects, n_features) of the objects: an array, table or path. Distances are Euclidean, so
        scale the features first.
    symmetrize : {"mean", "max"}, default="mean"
        How the two directions are combined.
    linkage : {"average", "single", "spectral"}, default="average"
        "average", "single", or "spectral": normalized cuts of the symmetric matrix, with labels by pivoted QR
        of the eigenvectors. The paper leaves open how its spectral clustering treats the asymmetric matrix.
    exclude_self : bool, default=False
        As for `bigcons.coassociation.did_matrix`.
    increments : {"vertex", "sorted"}, default="vertex"
        As for `bigcons.coassociation.did_matrix`.
    pair_model : {"increments", "coassociation"}, default="increments"
        How the increment of a pair becomes the probability that it belongs together: as for
        `bigcons.coassociation.did_matrix`.
    normalize : {"observed", "all"}, default="all"
        As for `bigcons.coassociation.did_matrix`.
    weights : array of shape (n_partitions,) or None, default=None
        As for `bigcons.coassociation.did_matrix`.
    resume : bool, default=True
        Whether a repeated call finds its finished result at ``out``.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the eigensolver for linkage="spectral"; nothing else is random.
    memory : str, int or None, default=None
        Memory budget, 4 GB by default; a matrix that does not fit is refused.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_ : (n_objects,) int32, -1 for objects without any label
    objective_ : sum of the heights of the merges made; for linkage="spectral" the normalized cut: the share
        of the similarity of a cluster that goes to others, summed over the clusters
    n_clusters_ : number of clusters found
    linkage_ : (n_labeled - 1, 4) the dendrogram of the labeled objects as scipy's linkage matrix; not for
        linkage="spectral". `bigcons.metrics.error_roc` takes it with ``row_of_object_``. Both are lost where
        a finished run is only read from ``out``.
    row_of_object_ : (n_objects,) int32 number of each object among the labeled, -1 without any label; not
        for linkage="spectral"
    history_ : the number of clusters and the objective, one entry

    Notes
    -----
    Time O(n^2 (d + M) + sum of squared cluster sizes d), on all workers, and 12 n^2 bytes, 32 n^2 if
    spectral. Clusters of one or two objects
    contribute nothing, nor does a partition to an object that it does not label: see ``normalize``. The
    diagonal, which linkage ignores, is 1 for spectral clustering.

    References
    ----------
    Aidos and Fred, *DID-based probabilistic consensus clustering* (PCC_DID), Algorithm 1.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> features = [[0.0], [0.1], [0.3], [0.4], [5.0], [5.1], [5.3]]
    >>> bc.DID(n_clusters=2, features=features).fit(labels).labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    """

    info: ClassVar[MethodInfo] = MethodInfo(
        "Aidos and Fred, DID-based probabilistic consensus", "features and labels", out_of_core=False
    )

    features: Any = None
    symmetrize: str = "mean"
    linkage: str = "average"
    exclude_self: bool = False
    increments: str = "vertex"
    pair_model: str = "increments"
    normalize: str = "all"
    weights: Any = None

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        if self.features is None:
            raise InvalidInputError(
                "features=None, but DID needs distances; give features=(n_objects, n_features), "
                "or use eac-average, which needs labels only."
            )
        check_choice("symmetrize", self.symmetrize, ("mean", "max"))
        check_choice("linkage", self.linkage, ("average", "single", "spectral"))
        # a pair of objects: the matrix and condensed distances, or the workspace of the eigenvectors too
        bytes_per_pair = 32 if self.linkage == "spectral" else 12
        budget = data_budget(self.memory, engine, ensemble)
        matrix = similarity_matrix(
            *(self.features, ensemble, engine, budget, bytes_per_pair),
            normalize=self.normalize,
            weights=self.weights,
            exclude_self=self.exclude_self,
            increments=self.increments,
            pair_model=self.pair_model,
        )
        weights = None if self.weights is None else np.asarray(self.weights, np.float64)
        survey = take_survey(ensemble, engine, seed, 0, weights)
        labeled = np.setdiff1d(np.arange(ensemble.n_objects), survey.unlabeled, assume_unique=True)
        labels = np.full(ensemble.n_objects, -1, np.int32)
        n_clusters = min(self.n_clusters, len(labeled))
        if self.linkage == "spectral":
            self.objective_: float
            matrix = matrix[np.ix_(labeled, labeled)]
            labels[labeled], self.objective_ = self._spectral(matrix, n_clusters, seed)
        else:
            n, filled = len(labeled), 0
            distances = np.empty(n * (n - 1) // 2)  # of pairs of labeled objects, row by row
            for i in range(n - 1):
                others = labeled[i + 1 :]
                row = self._symmetric(matrix[labeled[i], others], matrix[others, labeled[i]])
                distances[filled : filled + len(row)] = 1.0 - row
                filled += len(row)
            del matrix
            merges = agglomerate(distances, self.linkage)
            labels[labeled] = cut(merges, n, n_clusters)
            self.objective_ = float(merges.heights[: n - n_clusters].sum())
            self.linkage_: np.ndarray = linkage_matrix(merges, np.ones(n))
            self.row_of_object_: np.ndarray = np.full(ensemble.n_objects, -1, np.int32)
            self.row_of_object_[labeled] = np.arange(n)
        self.history_: dict[str, list[Any]] = {
            "n_clusters": [int(labels.max()) + 1],
            "objective": [self.objective_],
        }
        self._publish(ensemble, lambda block: labels[block.start : block.stop], survey.unlabeled, out)

    def _spectral(self, matrix: np.ndarray, n_clusters: int, seed: int) -> tuple[np.ndarray, float]:
        """Make the matrix symmetric; return labels by normalized cuts, by their first objects, and the cut.

        That is the summed shares of each cluster's similarity that goes to other clusters.
        """
        from sklearn.cluster import spectral_clustering

        for i in range(len(matrix)):
            matrix[i, i:] = matrix[i:, i] = self._symmetric(matrix[i, i:], matrix[i:, i])
        np.fill_diagonal(matrix, 1.0)
        if n_clusters == 1:
            return np.zeros(len(matrix), np.int32), 0.0
        start = int(generator(seed, "did.spectral").integers(2**31))
        with one_thread():
            labels = numbered(
                spectral_clustering(
                    matrix, n_clusters=n_clusters, random_state=start, assign_labels="cluster_qr"
                )
            )
        degrees, total = matrix.sum(axis=1), 0.0
        for cluster in range(int(labels.max()) + 1):
            members = np.flatnonzero(labels == cluster)
            total += 1.0 - sum(matrix[i, members].sum() for i in members) / degrees[members].sum()
        return labels, float(total)

    def _symmetric(self, forward: np.ndarray, backward: np.ndarray) -> np.ndarray:
        return np.maximum(forward, backward) if self.symmetrize == "max" else (forward + backward) / 2.0
