"""Evidence accumulation: agglomerative clustering of the co-association matrix."""

from __future__ import annotations

import os
from typing import ClassVar

from bigcons.seeding import SeedLike
from bigcons.solvers.accumulation import EvidenceAccumulation
from bigcons.solvers.base import MethodFacts


class EAC(EvidenceAccumulation):
    """Evidence accumulation clustering (Fred and Jain 2005): agglomerative, on how often objects go together.

    The distance of two objects is one less the share of partitions that put them together. Linkage of these
    distances gives a tree, which is cut.

    Parameters
    ----------
    n_clusters
        Number of clusters; for criterion="lifetime" the most there may be, None for any number. Objects of
        equal label rows always stay together, so there are fewer if there are fewer distinct rows.
    linkage
        "average", "single", "complete" or "ward", which takes the distances for Euclidean ones.
    neighbors
        For linkage="single": "all", or a number of likely neighbours with which each distinct row is
        compared, for ensembles where all pairs would take too long. An approximation that can only miss
        links: exact on the graph of the pairs compared, which are found by sorting the rows in random orders.
        On 5,999 distinct rows the tree was 328 % heavier than the exact one with 8 neighbours, 57 % with 32,
        23 % with 64, 7.8 % with 128 and 2.0 % with 256.
    normalize
        "observed": of the partitions that label both objects, none giving similarity 0; "all": of all.
    criterion
        "n_clusters", or "lifetime": the number of clusters, from 2 to one less than the objects, that stays
        the same over the widest range of heights.
    allow_one
        For criterion="lifetime", let one cluster live from the last merge to distance 1. Not in the paper.
    tie
        Of equal lifetimes take the one of "more" clusters, as the reference implementation did, or "fewer".
    random_state
        Seed of the orders of ``neighbors``; nothing else is random.
    memory
        Budget, 4 GB by default: refused with the size that would do if the distances do not fit.
    out, client
        As for every method: see PCC.

    Attributes
    ----------
    labels_ : (n_objects,) int32, clusters numbered by their first objects, -1 for objects without any label
    objective_ : sum of the heights of the merges that were made, those of equal rows among them
    n_clusters_ : clusters found
    linkage_ : (n_rows - 1, 4) the tree of the distinct rows as scipy's linkage matrix, sizes in objects
    row_of_object_ : (n_objects,) int32 the distinct row of each object, -1 without any label
    history_ : the number of clusters and the objective, one entry

    Notes
    -----
    Works on the U distinct rows, weighted: the same tree as of all objects, up to the order of ties, since
    no other row is nearer to an object than one equal to its own. Two passes over the labels. Single link:
    O(U^2 M) time on one core and O(U M) memory; with q neighbours O(q U (M + log U)) time. The others: 4 U^2
    bytes and O(U^2 M) time, the counting of pairs on all workers. Of equal distances the one of the rows that
    come first is merged first, as far as chains of nearest neighbours follow that order.

    References
    ----------
    Fred and Jain (2005), *Combining multiple clusterings using evidence accumulation*.
    """

    facts: ClassVar[MethodFacts] = MethodFacts(
        paper="Fred and Jain 2005",
        needs="co-association",
        soft=False,
        missing="c/N",
        out_of_core=False,
        distributed=False,
    )

    def __init__(
        self,
        n_clusters: int | None = 8,
        *,
        linkage: str = "average",
        neighbors: int | str = "all",
        normalize: str = "observed",
        criterion: str = "n_clusters",
        allow_one: bool = False,
        tie: str = "more",
        random_state: SeedLike = None,
        memory: int | str | None = None,
        out: str | os.PathLike[str] | None = None,
        client: object = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.linkage = linkage
        self.neighbors = neighbors
        self.normalize = normalize
        self.criterion = criterion
        self.allow_one = allow_one
        self.tie = tie
        self.random_state = random_state
        self.memory = memory
        self.out = out
        self.client = client


class EACSingle(EvidenceAccumulation):
    """Evidence accumulation with single link, EAC-SL: `EAC` with linkage="single", which has the details.

    Parameters
    ----------
    n_clusters
        Number of clusters, or the most there may be, or None: as for `EAC`.
    neighbors
        "all", or a number of likely neighbours with which each distinct row is compared: as for `EAC`.
    normalize, criterion, allow_one, tie
        As for `EAC`.
    random_state
        Seed of the orders of ``neighbors``; nothing else is random.
    memory
        Budget, 4 GB by default, for the distinct label rows; refused with the size that would do.
    out, client
        As for every method: see PCC.

    Attributes
    ----------
    labels_, objective_, n_clusters_, linkage_, row_of_object_, history_ : as of `EAC`

    Notes
    -----
    O(U^2 M) time on one core and O(U M) memory for U distinct rows: Prim's algorithm keeps no distance.
    With q neighbours O(q U (M + log U)) time. Suits ensembles of many small clusters; few large ones chain.

    References
    ----------
    Fred and Jain (2005), *Combining multiple clusterings using evidence accumulation*.
    """

    facts = EAC.facts
    linkage = "single"

    def __init__(
        self,
        n_clusters: int | None = 8,
        *,
        neighbors: int | str = "all",
        normalize: str = "observed",
        criterion: str = "n_clusters",
        allow_one: bool = False,
        tie: str = "more",
        random_state: SeedLike = None,
        memory: int | str | None = None,
        out: str | os.PathLike[str] | None = None,
        client: object = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.neighbors = neighbors
        self.normalize = normalize
        self.criterion = criterion
        self.allow_one = allow_one
        self.tie = tie
        self.random_state = random_state
        self.memory = memory
        self.out = out
        self.client = client


class EACAverage(EvidenceAccumulation):
    """Evidence accumulation with average link, EAC-AL: `EAC` with linkage="average", which has the details.

    Parameters
    ----------
    n_clusters
        Number of clusters, or the most there may be, or None: as for `EAC`.
    normalize, criterion, allow_one, tie
        As for `EAC`.
    random_state
        Taken as by every method; nothing is random.
    memory
        Budget, 4 GB by default, for the distances of distinct rows; refused with the size that would do.
    out, client
        As for every method: see PCC.

    Attributes
    ----------
    labels_, objective_, n_clusters_, linkage_, row_of_object_, history_ : as of `EAC`

    Notes
    -----
    4 U^2 bytes and O(U^2 M) time for U distinct rows, the counting of pairs on all workers.

    References
    ----------
    Fred and Jain (2005), *Combining multiple clusterings using evidence accumulation*;
    Nguyen and Caruana (2007), whose HAC consensus this is.
    """

    facts = EAC.facts
    linkage = "average"

    def __init__(
        self,
        n_clusters: int | None = 8,
        *,
        normalize: str = "observed",
        criterion: str = "n_clusters",
        allow_one: bool = False,
        tie: str = "more",
        random_state: SeedLike = None,
        memory: int | str | None = None,
        out: str | os.PathLike[str] | None = None,
        client: object = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.normalize = normalize
        self.criterion = criterion
        self.allow_one = allow_one
        self.tie = tie
        self.random_state = random_state
        self.memory = memory
        self.out = out
        self.client = client
