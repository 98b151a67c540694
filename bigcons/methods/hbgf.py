"""HBGF: objects and base clusters as the two sides of one graph, cut together."""

from __future__ import annotations

import os
from typing import ClassVar

import numpy as np

from bigcons.execution.engine import Engine
from bigcons.overlaps.embedding import Embedding, embed
from bigcons.overlaps.graph_clusterer import GraphClusterer
from bigcons.overlaps.incidence import fold_overlaps
from bigcons.partitioners import BYTES_PER_ENTRY, Graph, partition_graph
from bigcons.seeding import SeedLike
from bigcons.solving.estimator import MethodInfo, Output
from bigcons.solving.memory_plan import check_plan
from bigcons.solving.survey import take_survey
from bigcons.stores.ensemble import Ensemble
from bigcons.validation import check_choice

# The budget of the bipartite graph if the user gives none.
GRAPH_MEMORY = "4GB"


class HBGF(GraphClusterer):
    """Cut the bipartite graph of objects and base clusters together.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    partitioner : {"spectral", "metis"}, default="spectral"
        "spectral": singular vectors of the normalized incidence matrix; the sizes of the clusters are free.
        "metis" (needs pymetis): a balanced cut of the graph, which is held in memory; clusters of uneven
        sizes are cut in pieces by it.
    imbalance : float or None, default=None
        With "metis", the share by which the largest part may exceed its equal share of the objects and base
        clusters; None is 0.05.
    n_init : int, default=10
        With the spectral embedding, restarts of k-means on a sample of 20,000 objects.
    max_iter : int, default=100
        With the spectral embedding, maximum number of k-means passes over all objects.
    tol : float, default=0.0001
        With the spectral embedding, squared move of the centers, relative to the variance, at which to stop.
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
    labels_ : (n_objects,) int32
        -1 for objects without any label.
    objective_ : float
        Spectral: the sum of squared distances of k-means. METIS: the number of edges cut.
    singular_values_ : (at most n_clusters,) float64
        Of the normalized incidence matrix, for "spectral"; the first is 1.
    start_objectives_ : list of float
        Spectral: the sum of squared distances of every start of k-means, on its sample.
    history_ : dict
        A list per quantity with an entry per pass.

    Notes
    -----
    ``Hn = D_r^(-1/2) H D_c^(-1/2)`` with the numbers of labels of the objects in D_r, which the authors' code
    leaves out because without missing labels they are all the same. Its right singular vectors and values are
    those of ``Hn^T Hn``, B x B, which one pass adds up; the left ones come from the labels in every later
    pass. K-means is over the normalized rows of both, objects and base clusters; its starts are
    scikit-learn's, not the authors' (rows as orthogonal to each other as can be). Three passes and those of
    k-means; O(n M^2 + B^3 + n M K) time, O(B^2) memory.
    METIS: O(n M) memory, 128 bytes a label.

    References
    ----------
    Fern and Brodley (2004), *Solving cluster ensemble problems by bipartite graph partitioning*.
    """

    info: ClassVar[MethodInfo] = MethodInfo(
        paper="Fern and Brodley 2004",
        needs="base-cluster overlaps",
        soft=False,
        missing="native",
        out_of_core=True,
        distributed=True,
    )

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        partitioner: str = "spectral",
        imbalance: float | None = None,
        n_init: int = 10,
        max_iter: int = 100,
        tol: float = 0.0001,
        random_state: SeedLike = None,
        memory: str | float | None = None,
        out: str | os.PathLike[str] | None = None,
        client: object = None,
    ) -> None:
        super().__init__(
            n_clusters,
            imbalance=imbalance,
            n_init=n_init,
            max_iter=max_iter,
            tol=tol,
            random_state=random_state,
            memory=memory,
            out=out,
            client=client,
        )
        self.partitioner = partitioner

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        check_choice("partitioner", self.partitioner, ("spectral", "metis"))
        imbalance = self._checked_imbalance(self.partitioner)
        if self.partitioner == "metis":
            self._solve_metis(ensemble, engine, seed, out, imbalance)
            return

        def make_embedding() -> Embedding:
            return bipartite_embedding(ensemble, engine, self.n_clusters)

        self._solve_spectral(ensemble, engine, seed, out, make_embedding, cluster_rows)

    def _solve_metis(
        self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None, imbalance: float
    ) -> None:
        n_entries = 2 * ensemble.n_objects * ensemble.n_partitions
        check_plan(
            "HBGF",
            engine,
            ensemble=ensemble,
            held=BYTES_PER_ENTRY * n_entries,
            per_block=0,
            per_result=0,
            memory=GRAPH_MEMORY if self.memory is None else self.memory,
            remedy=" or use partitioner='spectral'",
        )
        survey = take_survey(ensemble, engine, seed, 0)
        parts, cut = partition_graph(bipartite_graph(ensemble), self.n_clusters, imbalance, seed)
        self._publish_parts(ensemble, parts[: ensemble.n_objects], cut, survey, out)


def inverse_label_counts(labels: np.ndarray) -> np.ndarray:
    """Return ``1 / m_i`` (rows,), of no matter what without labels."""
    return 1.0 / np.maximum(np.count_nonzero(labels >= 0, axis=1), 1)


def bipartite_embedding(ensemble: Ensemble, engine: Engine, n_columns: int) -> Embedding:
    """Return the embedding by the singular vectors of ``D_r^(-1/2) H D_c^(-1/2)``; one pass."""
    overlaps = fold_overlaps(ensemble, engine, inverse_label_counts)
    sizes = overlaps.sum(axis=1)  # an object adds 1 / m_i for each of its m_i labels
    return embed(overlaps, 1.0 / np.sqrt(sizes), ensemble.offsets, n_columns)


def cluster_rows(embedding: Embedding) -> np.ndarray:
    """Return the rows of the base clusters (B, columns), of unit length."""
    from bigcons.kernels.overlaps import normalize_rows

    rows = np.ascontiguousarray(embedding.vectors)
    normalize_rows(rows)
    return rows


def bipartite_graph(ensemble: Ensemble) -> Graph:
    """Return the graph of objects, then base clusters, an edge per label."""
    import scipy.sparse

    labels = ensemble.read(0, ensemble.n_objects)
    rows, partitions = np.nonzero(labels >= 0)
    columns = ensemble.offsets[partitions] + labels[rows, partitions]
    shape = (ensemble.n_objects, ensemble.n_base_clusters)
    incidence = scipy.sparse.csr_array((np.ones(len(rows), np.int8), (rows, columns)), shape)
    graph = scipy.sparse.block_array([[None, incidence], [incidence.T, None]], format="csr")
    return Graph(graph.indptr, graph.indices)
