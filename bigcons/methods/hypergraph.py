"""Graphs of objects or base clusters, cut by an embedding or in balanced parts: CSPA, HBGF, HGPA, MCLA."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
import scipy.sparse

from bigcons.coassociation.counts import dense, similarity
from bigcons.errors import ConsensusWarning, InvalidInputError, SoftEnsembleError, warn_user
from bigcons.memory import DEFAULT_DATA_BYTES, Block
from bigcons.methods import incidence
from bigcons.methods.base import ConsensusClusterer, MethodInfo
from bigcons.methods.evidence import numbered
from bigcons.methods.incidence import Embedding
from bigcons.partitioners import (
    BYTES_PER_ENTRY,
    Graph,
    graph_of,
    has_mtkahypar,
    partition_graph,
    partition_hypergraph,
)
from bigcons.run.engine import Engine
from bigcons.run.results import Output, renumbered
from bigcons.run.survey import MemoryPlan, start_rows, take_survey
from bigcons.seeding import generator
from bigcons.spectra import group_rows, leading_eigenvectors
from bigcons.store.ensemble import Ensemble
from bigcons.validation import check_choice
from bigcons.weights import Weights, incidence_of


class GraphClusterer(ConsensusClusterer):
    """Base of the methods that partition a graph of the objects; they give labels without memberships.

    ``predict`` places new objects in the spectral embedding; a balanced cut has no place for them.
    """

    chooses: ClassVar[bool] = True

    _choice: ClassVar[str] = "partitioner"
    """The parameter that chooses between cuts and the embedding."""
    _embedded: ClassVar[str] = "spectral"
    """Its value that chooses the embedding."""

    weights: Any = None

    def _solve_graph(
        self,
        ensemble: Ensemble,
        engine: Engine,
        seed: int,
        out: Output | None,
        embed: Callable[[Ensemble, Engine, int, Weights | None], Embedding],
        n_bytes: int,
        cut: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, float]],
        with_base_clusters: bool = False,
    ) -> None:
        """Publish the clusters of k-means in an embedding, if asked with base clusters, or a balanced cut.

        ``cut`` returns the parts (n_objects,) of a graph of ``n_bytes`` and the weight cut, given the objects
        without labels and the weights (M,) of the partitions.
        """
        name, K, choice = type(self).__name__, self.n_clusters, getattr(self, self._choice)
        choice = getattr(self, "minimized_", choice)
        refuse_weights(self, choice)
        if choice != self._embedded:
            instead = f"{self._choice}={self._embedded!r}"
            if ensemble.is_soft:
                raise SoftEnsembleError(f"a cut by {name}", f"{instead}, which takes memberships")
            plan = MemoryPlan(n_bytes)
            plan.check(name, engine, ensemble, self.memory, f", or use {instead}", limit=DEFAULT_DATA_BYTES)
            weights = Weights.parse(self.weights, ensemble.offsets)
            times = np.ones(ensemble.n_partitions) if weights is None else weights.partitions
            survey = take_survey(ensemble, engine, seed, 0, times)
            parts, value = cut(np.asarray(survey.unlabeled), times)
            self._note_pass(value)
            self._publish(ensemble, parts, survey.unlabeled, out)
            return
        n_rows = start_rows(ensemble, K)
        sample_bytes = n_rows * (4 * 8 * K + ensemble.row_bytes)  # QR with pivots copies the embedded sample
        options: dict[str, Any] = {"columns": K, "embedded": True, "in_memory": out is None}
        incidence.check_overlaps_plan(self, ensemble, engine, extra_bytes=sample_bytes, **options)
        self._weights = incidence.weights_of(self, ensemble, engine)
        survey = take_survey(ensemble, engine, seed, n_rows, self._partition_weights())
        embedding = embed(ensemble, engine, K, self._weights)
        extra = embedding.rows_of_base_clusters()
        if not with_base_clusters:
            extra = extra[0][:0], extra[1][:0]
        sample = embedding, ensemble, survey.sample, extra, K, seed, engine
        centers, history = incidence.find_centers(*sample)
        self.history_: dict[str, list[Any]] = history
        self.objective_: float = history["objective"][-1]
        self.n_passes_: int = embedding.n_passes + len(history.get("move", ()))
        values = embedding.singular_values
        self.singular_values_: np.ndarray = values
        self._parts = {"table": embedding.table, "singular_values": values, "centers": centers}

        def read(block: Block) -> np.ndarray:
            return embedding.labels_of(ensemble.read(block.start, block.stop), centers)

        self._publish(ensemble, read, survey.unlabeled, out, engine)

    def _placer(self, parts: Mapping[str, np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
        table, values, centers = (parts[name] for name in ("table", "singular_values", "centers"))
        offsets = self._recoding.offsets
        if len(table) != offsets[-1] or not values.size == centers.shape[1] <= table.shape[1]:
            raise ValueError("the embedding has other shapes than the ensemble")
        embedding = Embedding(table, offsets, values, np.empty((0, values.size)), self._weights)
        return partial(embedding.labels_of, centers=centers)


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
        The denominator of the co-association: "observed", the partitions that label both objects; "all", all
        partitions, as in the authors' code, so that a missing label is a disagreement. The spectral form
        replaces the number of the former by ``m_i m_j / M``, its expectation when labels are missing
        independently, because the exact ratio does not factorize. Without missing labels, both are the same.
    weights : {"local"}, array of shape (n_partitions,) or None, default=None
        For the spectral form, numbers >= 0 by which each partition counts, as if it occurred that many
        times; 0 leaves it out. None: all count the same. "local": the locally weighted co-association of
        Huang, Wang and Lai (2018), in which a base cluster joins its objects by its reliability, as for
        `HBGF`, with the denominators of ``normalize``.
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
    history_ : a list per quantity with an entry per pass

    Notes
    -----
    Spectral: three passes, then k-means; O(n M^2 + B^3 + n M K) time, O(B^2) memory for B base
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

    partitioner: str = "spectral"
    normalize: str = "observed"

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        check_choice("partitioner", self.partitioner, ("spectral", "metis"))
        check_choice("normalize", self.normalize, ("observed", "all"))
        n_bytes = BYTES_PER_ENTRY * ensemble.n_objects**2

        def cut(*_: np.ndarray) -> tuple[np.ndarray, float]:
            counts = *dense(ensemble, memory=n_bytes, client=engine), ensemble.n_partitions, self.normalize
            graph = graph_of(similarity(*counts))
            if not len(graph.indices):
                raise InvalidInputError(
                    "no two objects share a cluster in any partition: there is no graph to cut; use other "
                    "labels."
                )
            parts = partition_graph(graph, self.n_clusters, seed)
            return parts, float(similarity(*counts).sum(where=parts[:, None] != parts)) / 2

        embed = partial(incidence.cut_embedding, observed=self.normalize == "observed")
        self._solve_graph(ensemble, engine, seed, out, embed, n_bytes, cut)


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
    count the overlaps of base clusters; the normalized cut of the weighted graph equals the transfer cut.
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

    partitioner: str = "spectral"

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        check_choice("partitioner", self.partitioner, ("spectral", "metis"))
        n, n_bytes = ensemble.n_objects, BYTES_PER_ENTRY * 2 * ensemble.n_objects * ensemble.n_partitions

        def cut(*_: np.ndarray) -> tuple[np.ndarray, float]:
            # the objects, then the base clusters, with an edge for every label
            H = incidence_of(ensemble.read(0, n), ensemble.offsets).astype(np.int8)
            graph = scipy.sparse.block_array([[None, H], [H.T, None]], format="csr")
            parts = partition_graph(Graph(graph.indptr, graph.indices), self.n_clusters, seed)
            rows, columns = H.nonzero()
            return parts[:n], float(np.count_nonzero(parts[rows] != parts[n + columns]))

        embed = incidence.bipartite_embedding
        self._solve_graph(ensemble, engine, seed, out, embed, n_bytes, cut, with_base_clusters=True)


class HGPA(GraphClusterer):
    """Cut the hypergraph of base clusters into balanced parts.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Number of clusters. "auto": by `bigcons.choose_n_clusters`.
    objective : {"auto", "km1", "cut", "laplacian"}, default="auto"
        The objective to minimize. "cut" and "km1" (need mtkahypar) cut the hypergraph into k balanced parts:
        "cut" counts a hyperedge once if it is cut, as in the paper's text; "km1" counts it once for every
        part it is in beyond the first. "laplacian" is not the paper's method, but the normalized hypergraph
        Laplacian of Zhou, Huang and Schölkopf (2006) with k-means; it rewards hyperedges that are nearly
        whole, leaves the sizes of the clusters free, and runs out of core. "auto": "km1" if Mt-KaHyPar is
        installed; otherwise "laplacian", with a warning.
    edge_weight : {"unit", "size"}, default="unit"
        "unit": all hyperedges count the same, as in the paper's text. "size": each counts by its number of
        objects, as in the authors' code.
    weights : array of shape (n_partitions,) or None, default=None
        Numbers >= 0 by which each partition counts, as if it occurred that many times; 0 leaves it out. None:
        all count the same.
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
    minimized_ : the objective that was minimized: "km1", "cut" or "laplacian"
    objective_ : its value; with "laplacian" the sum of squared distances of k-means
    history_ : a list per quantity with an entry per pass

    Notes
    -----
    Objects without any label are left out of the hypergraph, and an object is in no hyperedge of a partition
    that does not label it. The hypergraph is held in memory, 160 bytes a label, and cut in this process by
    Mt-KaHyPar in its deterministic mode of high quality; hMETIS, which the paper uses, is not free. The
    objective is weak on noisy labels, and clusters of uneven sizes are split: of the paper's noisy copies it
    recovers the original with an NMI of 0.58, 0.42 and 0.25 at 10, 25 and 50 % noise, where `MCLA` and `CSPA`
    reach 1.00, 0.99 and 0.86.

    With weights w_e the Laplacian belongs to the graph ``H W D_e^-1 H^T``; so "laplacian" embeds the objects
    as `HBGF` does if ``edge_weight="unit"``, and as `CSPA` with ``normalize="all"`` if "size", at their
    costs, and takes soft clusterings as they do.

    References
    ----------
    Strehl and Ghosh (2002), *Cluster ensembles*.
    Zhou, Huang and Schölkopf (2006), *Learning with hypergraphs*.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.HGPA(n_clusters=2, objective="laplacian", random_state=0).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    """

    info: ClassVar[MethodInfo] = MethodInfo(
        "Strehl and Ghosh 2002", "labels", out_of_core=False, distributed=False, soft_input=True
    )
    _choice: ClassVar[str] = "objective"
    _embedded: ClassVar[str] = "laplacian"

    objective: str = "auto"
    edge_weight: str = "unit"

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        check_choice("objective", self.objective, ("auto", "km1", "cut", "laplacian"))
        check_choice("edge_weight", self.edge_weight, ("unit", "size"))
        by_size, n = self.edge_weight == "size", ensemble.n_objects
        self.minimized_: str = self.objective
        if self.objective == "auto":
            self.minimized_ = "km1" if has_mtkahypar() else "laplacian"
            if self.minimized_ == "laplacian":
                warn_user(
                    "HGPA minimizes objective='laplacian', a relaxation of another objective, because "
                    "mtkahypar is missing; pip install 'bigcons[graph]', or pass objective='laplacian'.",
                    ConsensusWarning,
                )

        def cut(unlabeled: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, float]:
            labeled, columns = np.delete(np.arange(n), unlabeled), np.flatnonzero(times)
            labels = ensemble.read(0, n)[np.ix_(labeled, columns)]
            pins = hyperedges(labels, ensemble.n_clusters[columns])
            weights = np.repeat(times[columns], ensemble.n_clusters[columns])
            if by_size:
                weights *= [max(len(vertices), 1) for vertices in pins]
            parts, sizes = np.zeros(n, np.int32), np.ones(len(labels), np.int64)
            arguments = sizes, min(self.n_clusters, len(labeled)), seed, self.minimized_
            parts[labeled], value = partition_hypergraph(pins, weights, *arguments)
            return parts, value

        by_sizes = partial(incidence.cut_embedding, observed=False)
        embed = by_sizes if by_size else incidence.bipartite_embedding
        n_bytes = 160 * n * ensemble.n_partitions  # for a vertex of a hyperedge, and in the partitioner
        self._solve_graph(ensemble, engine, seed, out, embed, n_bytes, cut)


def hyperedges(labels: np.ndarray, n_clusters: np.ndarray) -> list[np.ndarray]:
    """Return the rows of ``labels`` (rows, M) in every base cluster, in ascending order, int32.

    ``n_clusters`` (M,) are the clusters of each partition.
    """
    clusters = []
    for column, k in zip(labels.T, n_clusters, strict=True):
        order = np.argsort(column, kind="stable").astype(np.int32)
        ends = np.searchsorted(column[order], np.arange(k + 1))
        clusters += [order[ends[c] : ends[c + 1]] for c in range(k)]
    return clusters


def refuse_weights(model: Any, choice: str) -> None:
    """Refuse weights of partitions, which METIS does not take."""
    if choice == "metis" and model.weights is not None:
        raise InvalidInputError(
            "weights do not apply to partitioner='metis'; leave them out.", parameter="weights"
        )


# The meta-clustering algorithm


class MCLA(ConsensusClusterer):
    """Group base clusters by their Jaccard similarity; objects join the group they are most associated with.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Number of meta-clusters, and so the maximum number of clusters: some may win no object.
        "auto": by `bigcons.choose_n_clusters`.
    partitioner : {"spectral", "metis"}, default="spectral"
        How the graph of base clusters is cut. "spectral": eigenvectors of the normalized Jaccard matrix and
        k-means; meta-clusters may differ in size. "metis" (needs pymetis): the paper's balanced cut, where
        every base cluster weighs the same (in the authors' code: its number of objects).
    ties : {"lowest", "random"}, default="lowest"
        How to break ties between meta-clusters of equal association: "lowest", or "random" as in the paper,
        where the membership of the chosen one is one rounding step above the others. `predict` takes the
        lowest either way.
    weights : array of shape (n_partitions,) or None, default=None
        For "spectral", numbers >= 0 by which each partition counts, as if it occurred that many times; 0
        leaves it out. None: all count the same.
    resume : bool, default=True
        Whether a repeated call finds its finished result at ``out``.
    random_state : int, RandomState, Generator or None, default=None
        Seed of METIS, of k-means and of random ties.
    memory : str, int or None, default=None
        Memory budget such as "2GB"; a fit that would need more is refused before it starts.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_ : (n_objects,) int32, -1 for objects without any label
    memberships_ : (n_objects, n_clusters) float32, associations divided by their sum
    meta_clusters_ : (n_base_clusters,) int64, the cluster that every base cluster votes for, -1 at weight 0
        or empty
    objective_ : the share of all Jaccard similarity that lies within meta-clusters
    history_ : a list per quantity with one entry

    Notes
    -----
    The association of an object with a meta-cluster is the share of its base clusters that contain the
    object; a missing label is in none. A partition of weight w is in the graph as w copies of each of its
    base clusters, whose similarity to each other is 1; there are no other copies at weights below 1. Of soft
    clusterings the similarity is the extended Jaccard measure ``a.b / (|a|^2 + |b|^2 - a.b)``. Three passes;
    O(n M^2 + B^2 + n M K) time for B base clusters, O(B^2) memory.

    References
    ----------
    Strehl and Ghosh (2002), *Cluster ensembles*.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.MCLA(n_clusters=2, random_state=0).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    >>> model.memberships_.round(2)[2]
    array([1., 0.], dtype=float32)
    """

    chooses: ClassVar[bool] = True

    info: ClassVar[MethodInfo] = MethodInfo(
        "Strehl and Ghosh 2002", "base-cluster overlaps", soft=True, soft_input=True
    )

    partitioner: str = "spectral"
    ties: str = "lowest"
    weights: Any = None

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        check_choice("partitioner", self.partitioner, ("spectral", "metis"))
        check_choice("ties", self.ties, ("lowest", "random"))
        refuse_weights(self, self.partitioner)
        self._weights = Weights.parse(self.weights, ensemble.offsets)
        K = self.n_clusters
        incidence.check_overlaps_plan(self, ensemble, engine, columns=K, in_memory=out is None)
        overlaps = incidence.fold_overlaps(ensemble, engine)
        survey = take_survey(ensemble, engine, seed, 0, self._partition_weights())
        sizes = overlaps.diagonal().copy()
        jaccard = jaccard_weights(overlaps, ensemble.offsets)
        del overlaps
        indices: Any = slice(None)
        times = None if self._weights is None else self._weights.base_clusters
        is_counted = sizes > 0 if times is None else (sizes > 0) & (times > 0)
        if not is_counted.all():
            indices = np.flatnonzero(is_counted)
            jaccard = jaccard[np.ix_(indices, indices)]
            times = None if times is None else times[indices]
        if self.partitioner == "metis":
            groups = partition_graph(graph_of(jaccard.copy()), self.n_clusters, seed)
        else:
            groups = cut_by_spectrum(jaccard, self.n_clusters, seed, times)
        groups = numbered(groups)
        all_groups = np.full(ensemble.n_base_clusters, -1)
        all_groups[indices] = groups
        self._parts = {"_groups": all_groups}
        weights = repeated(jaccard, times)
        total, inner_weight = float(weights.sum()), float(weights[groups[:, None] == groups].sum())
        self._note_pass(inner_weight / total if total > 0 else 1.0)
        place, is_random = self._placer(self._parts), self.ties == "random"

        def read(block: Block) -> np.ndarray:
            memberships = place(ensemble.read(block.start, block.stop))
            if is_random:
                draw = generator(seed, "mcla.ties", block.index)
                # of the largest memberships of a row, that of the largest draw rises by a rounding step
                best = memberships == memberships.max(axis=1, keepdims=True)
                columns = np.where(best, draw.random(memberships.shape), -1.0).argmax(axis=1)
                rows = np.flatnonzero(best.sum(axis=1) > 1)
                lifted = np.nextafter(memberships[rows, columns[rows]], np.float32(2.0))
                memberships[rows, columns[rows]] = lifted
            return memberships

        self._publish(ensemble, read, survey.unlabeled, out, engine)
        self.meta_clusters_: np.ndarray = renumbered(all_groups, self._order)

    def _placer(self, parts: Mapping[str, np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
        offsets, weights = self._recoding.offsets, self._weights
        times = None if weights is None else weights.base_clusters
        table = incidence.one_hot(parts["_groups"], self._n_columns, times)
        sizes = incidence.divisors(table.sum(axis=0))
        return lambda labels: incidence.shares(incidence.votes_of(labels, offsets, table)[0] / sizes)


def jaccard_weights(overlaps: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return ``|a and b| / |a or b|`` (B, B) float64, zero between base clusters of one partition."""
    sizes = np.diag(overlaps)
    union = sizes[:, None] + sizes
    union -= overlaps
    weights = np.divide(overlaps, union, out=union, where=union > 0)  # nothing overlaps where it is 0
    incidence.clear_same_partitions(weights, offsets)
    return weights


def repeated(weights: np.ndarray, times: np.ndarray | None) -> np.ndarray:
    """Return the weights (B, B) between base clusters that each stand for ``times`` (B,) copies.

    Copies of one base cluster are similar to each other, but not to themselves. None: one copy of each.
    """
    if times is None:
        return weights
    weights = weights * times
    weights *= times[:, None]
    np.fill_diagonal(weights, times * np.maximum(times - 1.0, 0.0))
    return weights


def cut_by_spectrum(
    weights: np.ndarray, n_groups: int, seed: int, times: np.ndarray | None = None
) -> np.ndarray:
    """Return the groups (B,) of base clusters, ``times`` copies of each, by the normalized cut.

    Eigenvectors, then k-means.
    """
    weights = repeated(weights, times)
    # a base cluster that overlaps with no other has a degree of 1e-12
    degrees = np.sqrt(np.maximum(weights.sum(axis=1, keepdims=True), 1e-12))
    normalized = weights / degrees
    normalized /= degrees.T
    normalized[np.diag_indices_from(normalized)] += 1.0  # lifts the eigenvalues from [-1, 1] to [0, 2]
    _, vectors = leading_eigenvectors(normalized, n_groups)
    return group_rows(vectors, n_groups, 1, seed, times)[0]
