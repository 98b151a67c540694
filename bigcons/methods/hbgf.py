"""HBGF: objects and base clusters as the two sides of a bipartite graph, cut together."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import numpy as np

from bigcons.methods.base import MethodInfo
from bigcons.methods.embedding import bipartite_embedding
from bigcons.methods.graph_clusterer import GraphClusterer
from bigcons.partitioners import BYTES_PER_ENTRY, Graph, partition_graph
from bigcons.run.engine import Engine
from bigcons.run.output import Output
from bigcons.run.survey import take_survey
from bigcons.store.ensemble import Ensemble
from bigcons.validation import check_choice
from bigcons.weights import incidence_of


class HBGF(GraphClusterer):
    """Cut the bipartite graph of objects and base clusters together.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Number of clusters. "auto": by `bigcons.choose_n_clusters`.
    partitioner : {"spectral", "metis"}, default="spectral"
        "spectral": singular vectors of the normalized incidence matrix; the sizes of the clusters are free.
        "metis" (needs pymetis): a balanced cut of the graph, which is held in memory; it splits clusters of
        uneven sizes.
    weights : {"local"}, array of shape (n_partitions,) or None, default=None
        For the spectral form, numbers >= 0 by which each partition counts, as if it occurred that many
        times; 0 leaves it out. None: all count the same. "local": the edges of a base cluster have its
        reliability as their weight, which is the higher the less other partitions divide it; this is the LWGP
        of Huang, Wang and Lai (2018).
    imbalance : float or None, default=None
        With "metis", the share by which parts may exceed their equal share of the graph; None is 0.05.
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
    objective_ : spectral: the sum of squared distances of k-means; METIS: the number of edges cut
    singular_values_ : (at most n_clusters,) float64, of the normalized incidence matrix, if "spectral"
    start_objectives_ : spectral: the sum of squared distances of every start of k-means, on its sample
    history_ : a list per quantity with an entry per pass

    Notes
    -----
    ``Hn = D_r^(-1/2) H D_c^(-1/2)``, with the number of labels of each object in D_r; the
    authors' code omits it because it is constant without missing labels. The right singular vectors and the
    singular values follow from ``Hn^T Hn`` (B, B), which takes one pass; of more than 2,000 base clusters
    from a handful of passes that multiply it by a few columns (LOBPCG), with residuals of at most .001. The
    left vectors are computed from the labels in every later pass. Spherical k-means runs on the normalized
    rows of both objects and base clusters. Starts take about ten rows of the sample for each cluster; the
    first is the authors', rows that are as orthogonal as possible, by QR with pivots. Four passes and those
    of k-means; O(n M^2 + B^3 + n M K) time, O(B^2) memory; of many base clusters O(n M K) a pass and O(B K)
    memory. METIS: O(n M) memory, 128 bytes a label. weights="local" takes one pass more, O(n M^2) time, to
    count the overlaps of base clusters; the normalized cut of the weighted graph is that of the transfer cut.
    Soft clusterings put their memberships in H (spectral form only), and take O(n b^2) time for b memberships
    > 0 of an object.

    References
    ----------
    Fern and Brodley (2004), *Solving cluster ensemble problems by bipartite graph partitioning*;
    Huang, Wang and Lai (2018), *Locally weighted ensemble clustering*.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.HBGF(n_clusters=2, random_state=0).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    """

    info: ClassVar[MethodInfo] = MethodInfo("Fern and Brodley 2004", "base-cluster overlaps", soft_input=True)

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        check_choice("partitioner", self.partitioner, ("spectral", "metis"))
        imbalance = self._checked_imbalance(self.partitioner)
        if self.partitioner == "spectral":
            embed = partial(bipartite_embedding, ensemble, engine, self.n_clusters)
            self._solve_spectral(ensemble, engine, seed, out, embed, with_base_clusters=True)
            return
        n_entries = 2 * ensemble.n_objects * ensemble.n_partitions
        self._check_graph_memory(ensemble, engine, BYTES_PER_ENTRY * n_entries)
        survey = take_survey(ensemble, engine, seed, 0)
        parts, cut = partition_graph(bipartite_graph(ensemble), self.n_clusters, imbalance, seed)
        self._publish_parts(ensemble, parts[: ensemble.n_objects], cut, survey, out)


def bipartite_graph(ensemble: Ensemble) -> Graph:
    """Return the graph of the objects, then the base clusters, with an edge for every label."""
    import scipy.sparse

    labels = ensemble.read(0, ensemble.n_objects)
    incidence = incidence_of(labels, ensemble.offsets).astype(np.int8)
    graph = scipy.sparse.block_array([[None, incidence], [incidence.T, None]], format="csr")
    return Graph(graph.indptr, graph.indices)
