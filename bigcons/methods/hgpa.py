"""HGPA: cut the hypergraph whose hyperedges are the base clusters."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from bigcons.errors import MissingDependencyWarning, warn_user
from bigcons.methods.base import MethodInfo
from bigcons.methods.embedding import bipartite_embedding, cut_embedding
from bigcons.methods.graph_clusterer import GraphClusterer
from bigcons.partitioners import has_mtkahypar, partition_hypergraph
from bigcons.run.engine import Engine
from bigcons.run.output import Output
from bigcons.run.survey import take_survey
from bigcons.seeding import SeedLike
from bigcons.store.ensemble import Ensemble
from bigcons.validation import check_choice
from bigcons.weights import Weights


class HGPA(GraphClusterer):
    """Cut the hypergraph of base clusters into balanced parts.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Number of clusters. "auto": by `bigcons.choose_n_clusters`.
    objective : {"auto", "km1", "cut", "laplacian"}, default="auto"
        What is minimized. "cut" and "km1" (need mtkahypar) are of a balanced cut of the hypergraph into k
        parts: "cut" counts a hyperedge once if it is cut, as in the paper's text; "km1" counts it once for
        every part it is in beyond the first. "laplacian": not the paper's method but a relaxation of another,
        the normalized hypergraph Laplacian of Zhou, Huang and Schölkopf (2006) and k-means; it rewards
        hyperedges that are nearly whole, leaves the sizes of the clusters free, and runs out of core.
        "auto": "km1" where Mt-KaHyPar is installed; elsewhere "laplacian", with a warning.
    edge_weight : {"unit", "size"}, default="unit"
        "unit": all hyperedges count the same, as in the paper's text. "size": each counts by its number of
        objects, as in the authors' code.
    weights : array of shape (n_partitions,) or None, default=None
        Numbers >= 0 by which each partition counts, as if it occurred that many times; 0 leaves it out. None:
        all count the same.
    imbalance : float or None, default=None
        With a balanced cut, the share by which clusters may exceed their equal share; None is 0.05.
    n_init : int, default=1
        With "laplacian", starts of k-means on a sample of 4,096 objects, or more for many clusters, the first
        from rows that are as orthogonal as possible.
    max_iter : int, default=100
        With "laplacian", maximum number of k-means passes over all objects.
    tol : float, default=0.0001
        With "laplacian", squared move of the centers, relative to the variance, at which to stop.
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
    start_objectives_ : "laplacian": the sum of squared distances of every start of k-means, on its sample
    history_ : a list per quantity with an entry per pass

    Notes
    -----
    Objects without any label are left out of the hypergraph, and an object is in no hyperedge of a partition
    that does not label it. Objects of equal labels are one vertex, or several of at most ``imbalance`` times
    an equal share of the objects, so that parts can be balanced. The hypergraph is held in memory, 80 bytes a
    label, and cut in this process by Mt-KaHyPar in its deterministic mode of high quality; hMETIS, which the
    paper uses, is not free. The objective is weak on noisy labels, and clusters of uneven sizes are split: of
    the paper's noisy copies it recovers the original with an NMI of 0.59, 0.42 and 0.25 at 10, 25 and 50 %
    noise, where `MCLA` and `CSPA` reach 1.00, 0.99 and 0.86.

    With weights w_e the Laplacian is that of the graph ``H W D_e^-1 H^T``; so "laplacian" embeds the objects
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

    def __init__(
        self,
        n_clusters: int | Literal["auto"] = 8,
        *,
        objective: str = "auto",
        edge_weight: str = "unit",
        weights: Any = None,
        imbalance: float | None = None,
        n_init: int = 1,
        max_iter: int = 100,
        tol: float = 0.0001,
        random_state: SeedLike = None,
        memory: str | float | None = None,
        out: str | os.PathLike[str] | None = None,
        client: object = None,
        resume: bool = True,
    ) -> None:
        super().__init__(
            n_clusters,
            weights=weights,
            imbalance=imbalance,
            n_init=n_init,
            max_iter=max_iter,
            tol=tol,
            random_state=random_state,
            memory=memory,
            out=out,
            client=client,
            resume=resume,
        )
        self.objective = objective
        self.edge_weight = edge_weight

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        check_choice("objective", self.objective, ("auto", "km1", "cut", "laplacian"))
        check_choice("edge_weight", self.edge_weight, ("unit", "size"))
        self.minimized_: str = self.objective
        if self.objective == "auto":
            self.minimized_ = "km1" if has_mtkahypar() else "laplacian"
            if self.minimized_ == "laplacian":
                warn_user(
                    "HGPA minimizes objective='laplacian', a relaxation of another objective, for mtkahypar "
                    "is not installed; pip install 'bigcons[graph]', or pass objective='laplacian'.",
                    MissingDependencyWarning,
                )
        imbalance = self._checked_imbalance(self.minimized_)
        if self.minimized_ == "laplacian":
            by_size = partial(cut_embedding, observed=False)
            embedding = by_size if self.edge_weight == "size" else bipartite_embedding
            embed = partial(embedding, ensemble, engine, self.n_clusters)
            self._solve_spectral(ensemble, engine, seed, out, embed)
            return
        n_labels = ensemble.n_objects * ensemble.n_partitions
        # bytes of a vertex of a hyperedge, in arrays and in the partitioner
        self._check_graph_memory(ensemble, engine, 80 * n_labels)
        given = Weights.given(self.weights, ensemble.offsets)
        times = np.ones(ensemble.n_partitions) if given is None else given.partitions
        survey = take_survey(ensemble, engine, seed, 0, times)
        labeled = np.delete(np.arange(ensemble.n_objects), survey.unlabeled)
        labels, counted = ensemble.read(0, ensemble.n_objects), np.flatnonzero(times)
        labels = labels[np.ix_(labeled, counted)]
        slack = int(imbalance * len(labeled) / self.n_clusters)
        first, vertex_of, sizes = joined_rows(labels, max(slack, 1))
        pins = hyperedges(labels[first], ensemble.n_clusters[counted])
        weights = np.repeat(times[counted], ensemble.n_clusters[counted])
        if self.edge_weight == "size":
            weights *= [max(sizes[vertices].sum(), 1) for vertices in pins]
        parts = np.zeros(ensemble.n_objects, np.int32)
        found, value = partition_hypergraph(
            *(pins, weights, sizes, min(self.n_clusters, len(labeled)), imbalance, seed, self.minimized_)
        )
        parts[labeled] = found[vertex_of]
        self._publish_parts(ensemble, parts, value, survey, out)


def joined_rows(labels: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return objects of equal labels (rows, M) in vertices of at most ``most``, in order of their first ones.

    These (V,), the vertex (rows,) of each object, and the sizes (V,) of the vertices.
    """
    n, labels = len(labels), np.ascontiguousarray(labels)
    # the bytes of each row as one sortable item
    keys = labels.view(np.dtype((np.void, labels.dtype.itemsize * labels.shape[1])))[:, 0]
    order = np.argsort(keys, kind="stable")
    is_new = np.append(True, keys[order[1:]] != keys[order[:-1]])
    begins = np.flatnonzero(is_new)[is_new.cumsum() - 1]
    is_new |= (np.arange(n) - begins) % most == 0
    first = order[is_new]
    numbers = np.argsort(np.argsort(first))
    vertex_of = np.empty(n, np.int64)
    vertex_of[order] = numbers[is_new.cumsum() - 1]
    return np.sort(first), vertex_of, np.bincount(vertex_of)


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
