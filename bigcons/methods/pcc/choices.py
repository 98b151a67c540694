"""What the parameters of PCC come to: each checked, every "auto" decided; pairs, memory, and a warning."""

from __future__ import annotations

import os
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from bigcons.coassociation import count
from bigcons.coassociation.factorized import Weights
from bigcons.coassociation.sampling import sample_in_memory
from bigcons.divergences import Divergence
from bigcons.errors import InvalidInputError, OversegmentationWarning, warn_user
from bigcons.execution.engine import Engine
from bigcons.memory import parse_size
from bigcons.methods.pcc.prototypes import default_prototypes
from bigcons.methods.pcc.start import Init
from bigcons.methods.pcc.weights import ENTROPY, INFORMATION, check_weights, entropy_weights
from bigcons.solving.memory_plan import MemoryPlan, block_label_bytes, label_bytes
from bigcons.solving.survey import Survey
from bigcons.stores.ensemble import Ensemble
from bigcons.stores.pairs import PairTable
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


# Pairs

LABELS_BUDGET = 10**9
"""What labels may take while sampled pairs are counted; more of them are read block against block."""


def check_pairs(pairs: Any) -> None:
    """Refuse what is neither "all", "dense", a share, a PairTable nor a path."""
    if isinstance(pairs, (str, os.PathLike, PairTable)):
        return
    if isinstance(pairs, Real) and pairs is not True and 0 < float(pairs) <= 1:  # NaN is neither
        return
    raise InvalidInputError(
        f"pairs={pairs!r}; use 'all', 'dense', a share of the pairs from 0 to 1, a PairTable or a path."
    )


def n_pair_ends(pairs: Any, n_objects: int) -> int:
    """Return about how many ends of pairs a solve will hold; 0 if it forms none."""
    if isinstance(pairs, PairTable):
        return 2 * pairs.n_pairs
    if isinstance(pairs, Real):
        return int(float(pairs) * n_objects * (n_objects - 1))
    if isinstance(pairs, str) and pairs in ("all", "dense"):
        return n_objects * (n_objects - 1) if pairs == "dense" else 0
    return 2 * PairTable.open(pairs).n_pairs


def chooses_blocks(pairs: Any, memory: str | float | None) -> bool:
    """Return whether stored pairs are better solved block by block: in tiles, or too large for memory."""
    if isinstance(pairs, Real) or (isinstance(pairs, str) and pairs in ("all", "dense")):
        return False
    table = pairs if isinstance(pairs, PairTable) else PairTable.open(pairs)
    is_large = memory is not None and DENSE_BYTES_PER_END * 2 * table.n_pairs > parse_size(memory)
    return table.path is not None and (is_large or table.rows_per_block is not None)


def resolve_pairs(pairs: Any, ensemble: Ensemble, seed: int, engine: Engine) -> PairTable:
    """Return the pair table that a ``pairs`` argument means for this ensemble."""
    if isinstance(pairs, str) and pairs == "dense":
        i, j = np.triu_indices(ensemble.n_objects, 1)
        return count(ensemble, i, j, client=engine)
    if isinstance(pairs, Real):
        return sample_in_memory(ensemble, {"share": float(pairs)}, seed, LABELS_BUDGET, engine)
    table = pairs if isinstance(pairs, PairTable) else PairTable.open(pairs)
    if table.n_objects != ensemble.n_objects:
        raise InvalidInputError(
            f"pairs are of n_objects={table.n_objects} but the ensemble has n_objects={ensemble.n_objects}; "
            "sample pairs of this ensemble."
        )
    return table


# Memory

# Bytes of a dense run for each of the n (n - 1) ends of pairs: index, two counts, share, weight, and its
# making.
DENSE_BYTES_PER_END = 36
DENSE_MEMORY = 4_000_000_000

# Labels of at most this many bytes are kept in memory while they are solved.
FEW_LABELS = 32_000_000


def keeps_labels(ensemble: Ensemble, engine: Engine) -> bool:
    """Return whether labels are read once and kept: of few objects reading costs more than solving."""
    return engine.shares_memory and label_bytes(ensemble, ensemble.n_objects) <= FEW_LABELS


def check_memory(
    ensemble: Ensemble,
    engine: Engine,
    choices: Choices,
    n_clusters: int,
    pairs: Any,
    memory: str | float | None,
    *,
    in_memory: bool,
) -> None:
    """State the memory the solve takes, and refuse a budget that cannot hold it.

    Raises MemoryBudgetError. Blocks of pairs are counted when their borders are known, see
    ``blocked.solve_blocked``. ``in_memory`` says whether memberships are held rather than stored.
    """
    n, K, rows, M = ensemble.n_objects, n_clusters, ensemble.chunk_rows, ensemble.n_partitions
    B, G = ensemble.n_base_clusters, choices.n_prototypes
    statistics = 8 * (G + 8) * (B + M) if G else 8 * (B * (K + 8) + M * (K * (K + 1) + 16))
    generations = 3 if G else 2  # a third while a pass is shortened
    ends = 0 if choices.solver == BLOCKED else n_pair_ends(pairs, n)
    held = 4 * n + (4 * generations * n * K if in_memory else 0)
    held += 16 * n * K + DENSE_BYTES_PER_END * ends if ends else 0
    held += label_bytes(ensemble, n) if keeps_labels(ensemble, engine) else 0
    plan = MemoryPlan(
        held=held,
        # with the memberships before and after
        per_block=block_label_bytes(ensemble) + 12 * rows * K + 3 * statistics,
        per_result=statistics + 8 * rows + (4 * rows * K if in_memory else 0),
    )
    if memory is None and isinstance(pairs, str) and pairs == "dense":
        memory = DENSE_MEMORY
    remedy = " or write the result to a store with out=" if in_memory else ""
    plan.check("PCC", engine, ensemble, memory, " or use pairs='all' or a share" if ends else remedy)


# Labels too fine for PCC

# Share of the pairs that clusters join at least. Measured on planted classes (3 to 20, with noise and missing
# labels) that every partition cuts in its own way: below this share all classes of unequal size were lost,
# and 3 in 4 of those of equal size, all of which were found above it. Between .4 and .6 most unequal classes
# are lost, but on k-means ensembles of real data PCC did as well there as other methods in seven of eight.
# Random splits do less harm.
ENOUGH = 0.4


def warn_of_fine_labels(
    survey: Survey, n_clusters: int, weights: Weights | str | None, offsets: np.ndarray
) -> None:
    """Warn if the labels join so few pairs of objects that memberships cannot explain it.

    ``y_i.y_j`` has a mean of at least ``1 / n_clusters``, and comes as low only with clusters of equal size:
    these are what a fit to a much lower share of joined pairs is drawn to. Information weights follow from
    a solve without weights, which is what is judged then. O(m M log m) time for a sample of ``m`` objects.
    """
    if isinstance(weights, str):
        weights = entropy_weights(survey.sample, offsets) if weights == ENTROPY else None
    joined = survey.joined_share(None if weights is None else weights.partitions)
    least = least_joined_share(n_clusters, float(survey.n_seen.mean()))
    if n_clusters > 1 and joined < ENOUGH * least:
        warn_user(
            f"the labels join {100 * joined:.2g} % of the pairs of objects, {n_clusters} clusters at least "
            f"{100 * least:.2g} %: PCC then tends to clusters of equal size, whatever the classes; "
            "try eac-average, eac-single or mcla, or a larger n_clusters.",
            OversegmentationWarning,
        )


def least_joined_share(n_clusters: int, n_objects: float) -> float:
    """Return the least share of the pairs of objects that can be together in so many clusters.

    It is the least mean of ``y_i.y_j`` over the pairs ``i != j`` too: ``sum_i y_i`` is shortest where even.
    """
    return max(n_objects / n_clusters - 1.0, 0.0) / (n_objects - 1.0) if n_objects > 1 else 0.0
