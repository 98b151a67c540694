"""HGPA: cut the hypergraph whose hyperedges are the base clusters."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, ClassVar

import numpy as np

from bigcons.execution.engine import Engine
from bigcons.overlaps.embedding import bipartite_embedding, cut_embedding
from bigcons.overlaps.graph_clusterer import GraphClusterer
from bigcons.partitioners import BYTES_PER_PIN, has_mtkahypar, partition_hypergraph
from bigcons.seeding import SeedLike
from bigcons.solving.estimator import MethodInfo
from bigcons.solving.survey import take_survey
from bigcons.solving.workspace import Output
from bigcons.stores.ensemble import Ensemble
from bigcons.validation import check_choice


class HGPA(GraphClusterer):
    """Cut the hypergraph of base clusters. Experimental.

    The objective is weak: a hyperedge counts as cut no matter how it is split, so a cluster that every
    partition finds except for a few objects earns nothing. On 20,000 objects with 2, 10 and 25 % random
    labels, Mt-KaHyPar found lower cuts than those of the planted clusters, and adjusted Rand indices of
    0.20, 0.09 and 0.02. Other methods do better on the same overlaps.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    partitioner : {"auto", "mtkahypar", "spectral"}, default="spectral"
        "mtkahypar" (needs mtkahypar): a balanced cut of the fewest hyperedges, as in the paper. "spectral":
        not the paper's objective but a relaxation of another, the normalized hypergraph Laplacian of Zhou,
        Huang and Schölkopf (2006) and k-means; it rewards hyperedges that are nearly whole and leaves the
        sizes of the clusters free. "auto": "mtkahypar" where it is installed, else "spectral".
    edge_weight : {"unit", "size"}, default="unit"
        "unit": all hyperedges count the same, as in the paper's text. "size": each counts by its number of
        objects, as in the authors' code.
    weights : array of shape (n_partitions,) or None, default=None
        For the spectral form, numbers >= 0 by which each partition counts, as if it occurred that many
        times; 0 leaves it out. None: all count the same.
    imbalance : float or None, default=None
        With a balanced cut, the share by which clusters may exceed their equal share; None is 0.05.
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
    labels_ : (n_objects,) int32, -1 for objects without any label
    objective_ : the weight of the hyperedges cut or, if "spectral", the sum of squared distances of k-means
    partitioner_ : the partitioner that was used
    start_objectives_ : "spectral": the sum of squared distances of every start of k-means, on its sample
    history_ : a list per quantity with an entry per pass

    Notes
    -----
    With weights w_e the Laplacian is that of the graph ``H W D_e^-1 H^T``; so "spectral" embeds the objects
    as `HBGF` does if ``edge_weight="unit"``, and as `CSPA` with ``normalize="all"`` if "size", at their
    costs. An object is in no hyperedge of a partition that does not label it. Mt-KaHyPar: the hypergraph is
    held in memory, 80 bytes a label.

    References
    ----------
    Strehl and Ghosh (2002), *Cluster ensembles*.
    Zhou, Huang and Schölkopf (2006), *Learning with hypergraphs*.
    """

    info: ClassVar[MethodInfo] = MethodInfo("Strehl and Ghosh 2002", "base-cluster overlaps")

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        partitioner: str = "spectral",
        edge_weight: str = "unit",
        weights: Any = None,
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
            partitioner=partitioner,
            weights=weights,
            imbalance=imbalance,
            n_init=n_init,
            max_iter=max_iter,
            tol=tol,
            random_state=random_state,
            memory=memory,
            out=out,
            client=client,
        )
        self.edge_weight = edge_weight

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        check_choice("partitioner", self.partitioner, ("auto", "mtkahypar", "spectral"))
        check_choice("edge_weight", self.edge_weight, ("unit", "size"))
        self.partitioner_: str = self.partitioner
        if self.partitioner == "auto":
            self.partitioner_ = "mtkahypar" if has_mtkahypar() else "spectral"
        imbalance = self._checked_imbalance(self.partitioner_)
        if self.partitioner_ == "spectral":
            by_size = partial(cut_embedding, observed=False)
            embedding = by_size if self.edge_weight == "size" else bipartite_embedding
            embed = partial(embedding, ensemble, engine, self.n_clusters)
            self._solve_spectral(ensemble, engine, seed, out, embed)
            return
        n_labels = ensemble.n_objects * ensemble.n_partitions
        self._check_graph_memory(ensemble, engine, BYTES_PER_PIN * n_labels)
        survey = take_survey(ensemble, engine, seed, 0)
        pins = hyperedges(ensemble)
        sizes = np.array([len(vertices) for vertices in pins])
        weights = sizes if self.edge_weight == "size" else np.ones_like(sizes)
        parts, cut = partition_hypergraph(pins, weights, ensemble.n_objects, self.n_clusters, imbalance, seed)
        self._publish_parts(ensemble, parts, cut, survey, out)


def hyperedges(ensemble: Ensemble) -> list[np.ndarray]:
    """Return the objects of every base cluster, in ascending order."""
    labels = ensemble.read(0, ensemble.n_objects)
    clusters = []
    for u, k in enumerate(ensemble.n_clusters):
        order = np.argsort(labels[:, u], kind="stable")
        ends = np.searchsorted(labels[order, u], np.arange(k + 1))
        clusters += [order[ends[c] : ends[c + 1]] for c in range(k)]
    return clusters
