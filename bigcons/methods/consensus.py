"""The consensus in one call."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

from bigcons.errors import nearest
from bigcons.io.columns import Selection
from bigcons.methods import METHODS
from bigcons.methods.base import ConsensusClusterer
from bigcons.metrics import micro_precision
from bigcons.validation import check_choice

if TYPE_CHECKING:
    from bigcons.methods.tree import ConsensusTree

AS_IN_PAPER: dict[str, dict[str, Any]] = {
    # Lourenço et al. 2015: the heap over all pairs; their cap of n K steps is max_iter="paper"
    "pcc": {"pairs": "dense", "solver": "heap"},
    # Aidos and Fred
    "did": {},
    "eac": {},
    "eac-single": {},
    "eac-average": {},
    # Wang, Shan and Banerjee 2009: one random start; tables of the best and the mean over runs
    "bce": {"init": "random", "n_init": 1},
    "bce-gibbs": {"init": "random", "n_init": 1},
    "mixture": {"background": False, "init": "dirichlet", "n_init": 1},
    "kmeans": {"encode": "integer", "n_init": 1},
    "micro_precision": {"mode": "majority"},
    # Strehl and Ghosh 2002
    "cspa": {"partitioner": "metis", "normalize": "all"},
    "hgpa": {"objective": "cut"},
    "mcla": {"partitioner": "metis", "ties": "random"},
    "supra": {
        "members": "cspa(partitioner=metis, normalize=all), hgpa(objective=cut), "
        "mcla(partitioner=metis, ties=random)"
    },
    "greedy-anmi": {},
    # Fern and Brodley 2004
    "hbgf": {"partitioner": "metis"},
    # Nguyen and Caruana 2007: 100 restarts; similarities over all partitions
    "ivc": {"n_init": 100},
    "ipvc": {"n_init": 100},
    "ipc": {"normalize": "all", "n_init": 100},
    "qmi": {},
    "furthest": {},
    "best": {},
    "ccc": {},
    "ccu": {},
    "ccsvd": {},
}
"""Parameters as published, by method or criterion, where they are not the defaults."""


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
    >>> labels = 3 * [[0, 0, 1, 0]] + [[0, 2, -1, 0]] + 3 * [[1, 1, 0, 1]] + [[1, -1, 0, 1]]
    >>> bc.consensus(labels, n_clusters=2).labels_
    array([0, 0, 0, 0, 1, 1, 1, 1], dtype=int32)
    >>> bc.consensus(labels, n_clusters=2, method="hbgf", random_state=0)
    HBGF(n_clusters=2, random_state=0)
    """
    chosen = METHODS[method]
    own, of_fit = inspect.signature(chosen).parameters, inspect.signature(chosen.fit).parameters
    fitting = {}
    for name in [*parameters]:
        if name in own:
            continue
        if name not in of_fit:
            near = nearest(name, [*own])
            hint = f"it has {', '.join(own)}." if near is None else f"did you mean {near}?"
            if name in Selection.__dataclass_fields__:
                hint = f"pass bigcons.select(x, {name}=...) in place of x."
            raise TypeError(f"{chosen.__name__} has no parameter {name!r}; {hint}")
        fitting[name] = parameters.pop(name)
    return chosen(n_clusters, **parameters).fit(x, **fitting)


def as_in_paper(name: str, *arguments: Any, **parameters: Any) -> Any:
    """Return a method, not fitted, with the parameters that its paper has.

    The defaults of bigcons are chosen for results and size; this is for repeating what was published. A paper
    that leaves a parameter open has our default.

    Parameters
    ----------
    name : str
        Name of a method in `METHODS`, or "micro_precision", for the criterion as Wang, Shan and Banerjee
        define it (their tables are by another).
    *arguments, **parameters
        Number of clusters and parameters of the method; they come before those of the paper.

    Returns
    -------
    ConsensusClusterer, or for "micro_precision" the function

    Raises
    ------
    InvalidInputError
        If no paper has the method.

    Examples
    --------
    >>> import bigcons as bc
    >>> bc.as_in_paper("hgpa", 3)
    HGPA(n_clusters=3, objective='cut')
    >>> bc.as_in_paper("pcc", 8, divergence="kl")
    PCC(divergence='kl', pairs='dense', solver='heap')
    """
    check_choice("name", name, tuple(AS_IN_PAPER))
    chosen = {**AS_IN_PAPER[name], **parameters}
    if name == "micro_precision":
        return partial(micro_precision, *arguments, **chosen)
    return METHODS[name](*arguments, **chosen)
