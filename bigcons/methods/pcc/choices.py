"""What the parameters of PCC come to: each checked, and all together, and every "auto" decided."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigcons.coassociation.factorized import Weights
from bigcons.divergences import Divergence
from bigcons.errors import InvalidInputError
from bigcons.methods.pcc.pair_choice import check_pairs
from bigcons.methods.pcc.plan import chooses_blocks
from bigcons.methods.pcc.prototypes import default_prototypes
from bigcons.methods.pcc.start import Init
from bigcons.methods.pcc.weights import INFORMATION, check_weights
from bigcons.validation import check_choice, check_int

# What solves: over all pairs the squared divergence, or any other by prototypes; or Algorithm 1 on listed
# pairs, in memory or block by block. A user names the first two alike.
ALL, PROTOTYPES, HEAP, BLOCKED = "all", "prototypes", "heap", "blocked"

DEFAULT_STARTS = 8
"""On a subsample, where a start costs little."""


class Choices(NamedTuple):
    """How to solve, without an "auto"."""

    solver: str
    """`ALL`, `PROTOTYPES`, `HEAP` or `BLOCKED`."""
    init: Init
    """"subsample", "uniform", "dirichlet" or memberships (n_objects, n_clusters)."""
    n_init: int
    n_prototypes: int
    """0 without them."""
    weights: Weights | str | None
    """Of the partitions, or the rule that finds them; None if all are one."""


def choose_solver(asked: str, pairs: Any, divergence: Divergence, memory: str | float | None) -> str:
    """Return what solves these pairs, by this divergence and within this budget."""
    check_pairs(pairs)
    check_choice("solver", asked, ("auto", ALL, HEAP, BLOCKED))
    takes_all = isinstance(pairs, str) and pairs == "all"
    if asked in ((HEAP, BLOCKED) if takes_all else (ALL,)):
        raise InvalidInputError(
            f"solver={asked!r} does not go with pairs={pairs!r}; "
            "use solver='all' with pairs='all', and 'heap' or 'blocked' with sampled or dense pairs."
        )
    if takes_all:
        return ALL if divergence.label == "l2" else PROTOTYPES
    if asked == "auto":
        return BLOCKED if chooses_blocks(pairs, memory) else HEAP
    return asked


def choose_init(asked: Any, solver: str) -> Init:
    """Return where memberships begin; given ones are checked when the number of objects is known."""
    if not isinstance(asked, str):
        return asked
    check_choice("init", asked, ("auto", "subsample", "uniform", "dirichlet"))
    if asked == "subsample" and solver == HEAP:
        raise InvalidInputError(
            "init='subsample' goes with pairs='all' and solver='blocked'; use 'uniform' or 'dirichlet'."
        )
    if asked == "auto":
        return "uniform" if solver == HEAP else "subsample"
    return asked


def choose_n_init(asked: int | str, init: Init, solver: str, pairs: Any, weights: Any) -> int:
    """Return the number of starts; refuse several where there is but one."""
    if asked == "auto":
        return 1 if solver == HEAP else DEFAULT_STARTS
    n_init = check_int("n_init", asked)
    if n_init > 1 and (reason := _one_start(init, solver, pairs, weights)):
        raise InvalidInputError(f"n_init={n_init} with {reason}: one start; use n_init=1.")
    return n_init


def _one_start(init: Init, solver: str, pairs: Any, weights: Any) -> str | None:
    """Return the parameters, if any, by which there is one start only."""
    if not isinstance(init, str):
        return "init= as memberships"
    if solver == BLOCKED and init != "subsample":
        return f"solver='blocked', init={init!r}"
    is_informed = isinstance(weights, str) and weights == INFORMATION  # by starts of its own
    if solver in (ALL, PROTOTYPES) and init != "subsample" and not is_informed:
        return f"pairs={pairs!r}, init={init!r}"
    return None


def choose_n_prototypes(
    asked: int | str, solver: str, n_clusters: int, pairs: Any, divergence: Divergence
) -> int:
    """Return how many prototypes stand for all objects; refuse a number where none do."""
    if asked == "auto":
        return default_prototypes(n_clusters) if solver == PROTOTYPES else 0
    n_prototypes = check_int("n_prototypes", asked)
    if solver != PROTOTYPES:
        raise InvalidInputError(
            f"n_prototypes={n_prototypes} with pairs={pairs!r}, divergence={divergence.label!r}; "
            "it goes with pairs='all' and a divergence other than 'l2'."
        )
    return n_prototypes


def choose_weights(
    asked: Any, offsets: np.ndarray, solver: str, pairs: Any, divergence: Divergence
) -> Weights | str | None:
    """Return `check_weights` of what was asked for; refuse weights where partitions cannot have any."""
    weights = check_weights(asked, offsets)
    if asked is not None and solver != ALL:
        raise InvalidInputError(
            f"weights with pairs={pairs!r}, divergence={divergence.label!r}; "
            "they go with pairs='all' and divergence='l2'."
        )
    return weights
