"""Figures of ensembles and of what was found in them.

Every function returns a matplotlib ``Figure`` that is not registered with pyplot and shows itself in Jupyter;
save it with ``figure.savefig``. The palette is safe for color-blind readers and for grayscale printing.
"""

from __future__ import annotations

from bigcons.plots.curves import convergence, n_clusters, reliability, scatter, trust
from bigcons.plots.graphs import cluster_graph, tree
from bigcons.plots.matrices import coassociation, memberships, partitions

__all__ = [
    "cluster_graph",
    "coassociation",
    "convergence",
    "memberships",
    "n_clusters",
    "partitions",
    "reliability",
    "scatter",
    "tree",
    "trust",
]


def __dir__() -> list[str]:
    return sorted(__all__)
