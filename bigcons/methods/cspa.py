"""CSPA: cluster the objects by their co-association, as a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigcons.coassociation.counts import dense
from bigcons.errors import InvalidInputError
from bigcons.methods.base import MethodInfo
from bigcons.methods.embedding import Embedding, cut_embedding
from bigcons.methods.graph_clusterer import GraphClusterer
from bigcons.partitioners import BYTES_PER_ENTRY, graph_of, partition_graph
from bigcons.run.engine import Engine
from bigcons.run.output import Output
from bigcons.run.survey import take_survey
from bigcons.store.ensemble import Ensemble
from bigcons.validation import check_choice
from bigcons.weights import Weights


@dataclass(eq=False, repr=False, kw_only=True)
class CSPA(GraphClusterer):
    """Partition the graph of objects weighted by co-association.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Number of clusters. "auto": by `bigcons.choose_n_clusters`.
    partitioner : {"spectral", "metis"}, default="spectral"
        "spectral": the normalized cut by eigenvectors, which never forms the graph and leaves the sizes of
        the clusters free. "metis" (needs pymetis): the paper's balanced cut of the graph of all pairs, for a
        few thousand objects; it splits clusters of uneven sizes.
    normalize : {"observed", "all"}, default="observed"
        With missing labels, the denominator of the co-association: "observed", the partitions that label both
        objects; "all", as in the authors' code, which takes a missing label for a disagreement. The spectral
        form replaces the former by ``m_i m_j / M``, its expectation when labels are missing independently,
        because the exact ratio does not factorize. The two are the same without missing labels.
    weights : {"local"}, array of shape (n_partitions,) or None, default=None
        For the spectral form, numbers >= 0 by which each partition counts, as if it occurred that many
        times; 0 leaves it out. None: all count the same. "local": of the locally weighted co-association of
        Huang, Wang and Lai (2018), in which a base cluster joins its objects by its reliability, as for
        `HBGF`; the denominators are those of ``normalize``.
    imbalance : float or None, default=None
        With a balanced cut, the share by which clusters may exceed their equal share; None is 0.05.
    n_init : int, default=1
        With the spectral embedding, starts of k-means on a sample of 4,096 objects, or more for many
        clusters, the first from rows that are as orthogonal as possible.
    max_iter : int, default=100
        With the spectral embedding, maximum number of k-means passes over all objects.
    tol : float, default=0.0001
        With the spectral embedding, squared move of the centers, relative to the variance, at which to stop.
    resume : bool, default=True
        Whether a repeated call finds its finished result at ``out``.
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
    labels_ : (n_objects,) int32, -1 for objects without any label
    objective_ : spectral: the sum of squared distances of k-means; METIS: the weight of the edges cut
    singular_values_ : (at most n_clusters,) float64, of the normalized incidence matrix, if "spectral"
    start_objectives_ : spectral: the sum of squared distances of every start of k-means, on its sample
    history_ : a list per quantity with an entry per pass

    Notes
    -----
    Spectral: three passes and those of k-means; O(n M^2 + B^3 + n M K) time, O(B^2) memory for B base
    clusters; of many base clusters a handful of passes more, each O(n M K), and O(B K) memory, as `HBGF`. The
    graph is ``S = H R H^T`` with a loop at every object; with ``s = H^T r`` and degrees
    ``d_i = r_i h_i.s`` it is normalized by weights ``r_i / h_i.s`` of the objects, ``r_i`` 1 or ``1 / m_i``.
    METIS: O(n^2 M) time, 64 bytes for each of n^2 pairs. Of soft clusterings (spectral form only) H has the
    memberships, so that the co-association of two objects is the expected number of joint labels.

    References
    ----------
    Strehl and Ghosh (2002), *Cluster ensembles*;
    Huang, Wang and Lai (2018), *Locally weighted ensemble clustering*.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.CSPA(n_clusters=2, random_state=0).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    """

    info: ClassVar[MethodInfo] = MethodInfo(
        "Strehl and Ghosh 2002", "base-cluster overlaps", missing="c/N or c/M", soft_input=True
    )

    normalize: str = "observed"

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        check_choice("partitioner", self.partitioner, ("spectral", "metis"))
        check_choice("normalize", self.normalize, ("observed", "all"))
        imbalance = self._checked_imbalance(self.partitioner)
        observed = self.normalize == "observed"
        if self.partitioner == "spectral":

            def embed(weights: Weights | None) -> Embedding:
                return cut_embedding(ensemble, engine, self.n_clusters, weights, observed=observed)

            self._solve_spectral(ensemble, engine, seed, out, embed)
            return
        self._check_graph_memory(ensemble, engine, BYTES_PER_ENTRY * ensemble.n_objects**2)
        survey = take_survey(ensemble, engine, seed, 0)
        similarity = similarity_matrix(ensemble, engine, observed=observed)
        if not similarity.any():
            raise InvalidInputError(
                "no two objects share a cluster in any partition: there is no graph to cut; use other labels."
            )
        parts, cut = partition_graph(graph_of(similarity), self.n_clusters, imbalance, seed)
        self._publish_parts(ensemble, parts, cut, survey, out)


def similarity_matrix(ensemble: Ensemble, engine: Engine, *, observed: bool) -> np.ndarray:
    """Return the co-association ``c / N`` or ``c / M`` (n, n) float64 of all pairs, 0 on the diagonal."""
    n_agree, n_seen = dense(ensemble, memory=BYTES_PER_ENTRY * ensemble.n_objects**2, client=engine)
    similarity = n_agree / (np.maximum(n_seen, 1) if observed else ensemble.n_partitions)
    np.fill_diagonal(similarity, 0.0)
    return similarity
