"""The consensus in one call."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Literal, overload

from bigcons.methods import METHODS
from bigcons.solving.estimator import ConsensusClusterer

if TYPE_CHECKING:
    from bigcons.methods.tree import ConsensusTree


@overload
def consensus(
    x: Any, n_clusters: int | Literal["auto"], method: Literal["tree"] = "tree", **parameters: Any
) -> ConsensusTree: ...


@overload
def consensus(x: Any, n_clusters: Any, method: str, **parameters: Any) -> ConsensusClusterer: ...


def consensus(x: Any, n_clusters: Any, method: str = "tree", **parameters: Any) -> ConsensusClusterer:
    """Return a fitted model of the consensus of the clusterings in ``x``.

    Short for ``METHODS[method](n_clusters, **parameters).fit(x)``. Cost and errors are those of the method.

    Parameters
    ----------
    x : Ensemble, table or path
        The clusterings: an `Ensemble` or the path of one, or labels ``(n_objects, n_partitions)`` in anything
        that `Ensemble.from_labels` takes.
    n_clusters : int or "auto"
        Number of clusters. "auto": by `choose_n_clusters`, where the method takes it.
    method : str, default="tree"
        Name of a method in `METHODS`.
    **parameters
        Parameters of the method, such as ``random_state``, ``memory``, ``out`` and ``client``, and of its
        ``fit``: ``id``, ``columns`` and ``drop`` choose the columns of a table.

    Returns
    -------
    ConsensusClusterer
        The model, with ``labels_`` and, by a soft method, ``memberships_``.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> bc.consensus(labels, n_clusters=2).labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    >>> bc.consensus(labels, n_clusters=2, method="hbgf", random_state=0)
    HBGF(n_clusters=2, random_state=0)
    """
    chosen = METHODS[method]
    own, of_fit = (inspect.signature(function).parameters for function in (chosen, chosen.fit))
    fitting = {name: parameters.pop(name) for name in of_fit if name in parameters and name not in own}
    return chosen(n_clusters, **parameters).fit(x, **fitting)
