"""PCC parameters: validation, the choice for every "auto", pairs, memory, and a warning about fine labels."""

from __future__ import annotations

import os
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np

from bigcons.coassociation import count
from bigcons.coassociation.counts import PAIR_BYTES
from bigcons.coassociation.factorized import Weights
from bigcons.coassociation.sampling import sample_in_memory
from bigcons.divergences import Divergence
from bigcons.errors import (
    ConsensusWarning,
    InvalidInputError,
    MemoryBudgetError,
    OversegmentationWarning,
    SoftEnsembleError,
    UndersegmentationWarning,
    warn_user,
)
from bigcons.execution.engine import Engine
from bigcons.memory import enough_for, format_size, parse_size
from bigcons.methods.pcc.all_pairs import MOST_PAST
from bigcons.methods.pcc.block_model import spaced_partitions, start_bytes
from bigcons.methods.pcc.calibrated import BLOCK_MODEL, LEAST_SQUARES, MOMENTS, Calibration
from bigcons.methods.pcc.many import MOST_COLUMNS_OF_TABLES, MOST_IN_TABLES, can_weigh_many, plans_of_many
from bigcons.methods.pcc.memberships import Init
from bigcons.methods.pcc.pairwise import FEW_OBJECTS
from bigcons.methods.pcc.prototypes import default_prototypes
from bigcons.methods.pcc.subsample import ENTROPY, INFORMATION, SUBSAMPLE, entropy_weights
from bigcons.metrics.confidence import can_weigh
from bigcons.overlaps.n_clusters import bytes_to_tell_apart, starts_to_merge
from bigcons.solving.memory_plan import MemoryPlan, block_label_bytes, label_bytes
from bigcons.solving.survey import Survey
from bigcons.storage.interface import Place
from bigcons.stores.ensemble import Ensemble
from bigcons.stores.pairs import PairTable, ParquetPairTable, pairs_of
from bigcons.stores.trust import TRUST_ROW
from bigcons.validation import check_choice, check_flag, check_int, check_number

# Solvers: all pairs with the squared divergence, of many clusters by the candidates of each object, or any
# other divergence by prototypes or, for few objects, pair by pair (all solver="all" to a user); Algorithm 1
# on listed pairs, in memory or block by block.
ALL, CANDIDATES = "all", "candidates"
PROTOTYPES, PAIRWISE, HEAP, BLOCKED = "prototypes", "pairwise", "heap", "blocked"

PAPER = "paper"
"""The cap of the paper on the steps of the heap, as ``max_iter``."""

# From this many pairs on, "auto" solves in blocks. It depends on the pairs alone: by the number of workers, a
# cluster would find other bits than one thread.
MANY_PAIRS = 1_000_000

# The co-association of the paper, of which rates of partitions are no part.
PAPER_MODEL = "paper"

# The models of coassociation="auto" over all pairs and on listed ones, chosen on one half of the data sets of
# benchmarks/accuracy.py.
BEST_MODEL, BEST_OF_LISTED = BLOCK_MODEL, MOMENTS

# Of rarity=None: halfway between counting all joins alike and by correspondence analysis.
RARITY = 0.5

DEFAULT_STARTS = 8
"""On the subsample, where starts are cheap."""


class Choices(NamedTuple):
    """Parameters without "auto"."""

    solver: str
    """`ALL`, `CANDIDATES`, `PROTOTYPES`, `PAIRWISE`, `HEAP` or `BLOCKED`."""
    init: Init
    """"subsample", "uniform", "dirichlet" or memberships (n_objects, n_clusters)."""
    n_init: int
    n_prototypes: int
    """0 if the solver uses none."""
    weights: Weights | str | None
    """Of the partitions, or the rule to compute them; None if all are one."""
    calibration: Calibration | None = None
    """None for the co-association of the paper."""
    least_share: float | None = None
    """Of the objects, below which clusters are pruned."""
    merges: bool = False
    """Whether clusters that the labels do not tell apart are merged."""


def choose_solver(
    asked: str,
    ensemble: Ensemble,
    engine: Engine,
    n_clusters: int,
    pairs: Any,
    divergence: Divergence,
    memory: str | float | None,
    *,
    heap_only: bool = False,
) -> str:
    """Return the solver for these pairs, divergence and budget.

    "auto" solves pairs block by block if they are in tiles, at least `MANY_PAIRS`, or stored and too many for
    the heap within ``memory``; never if other parameters are ``heap_only``.
    """
    is_share = isinstance(pairs, Real) and pairs is not True and 0 < float(pairs) <= 1  # not NaN
    if not (is_share or isinstance(pairs, (str, os.PathLike, PairTable))):
        raise InvalidInputError(
            f"pairs={pairs!r}; use 'all', 'dense', a share of the pairs in (0, 1], a PairTable or a path."
        )
    check_choice("solver", asked, ("auto", ALL, HEAP, BLOCKED))
    takes_all = isinstance(pairs, str) and pairs == "all"
    if asked in ((HEAP, BLOCKED) if takes_all else (ALL,)):
        raise InvalidInputError(
            f"solver={asked!r} is incompatible with pairs={pairs!r}; "
            "use solver='all' with pairs='all', and 'heap' or 'blocked' with sampled or dense pairs."
        )
    if takes_all:
        return ALL if divergence.label == "l2" else PROTOTYPES
    if asked != "auto":
        return asked
    if heap_only or (isinstance(pairs, str) and pairs == "dense"):
        return HEAP
    if n_pair_ends(pairs, ensemble.n_objects) >= 2 * MANY_PAIRS:
        return BLOCKED
    if is_share:
        return HEAP
    table = pairs if isinstance(pairs, PairTable) else PairTable.open(pairs)
    if table.path is None:
        return HEAP
    # at most: with memberships in memory, and calibrated
    heap = plan_memory(ensemble, engine, HEAP, 0, n_clusters, pairs, in_memory=True, calibrates=True)
    is_large = memory is not None and heap.n_bytes(engine, ensemble) > parse_size(memory)
    return BLOCKED if is_large or table.rows_per_block is not None else HEAP


def takes_candidates(
    n_clusters: int, calibration: Calibration | None, init: Init, least_share: float | None
) -> bool:
    """Return whether there are too many clusters for tables of each partition, in a block model."""
    is_block_model = calibration is not None and calibration.rule == BLOCK_MODEL
    starts = isinstance(init, str) and init == "subsample"
    is_many = MOST_IN_TABLES < n_clusters <= MOST_COLUMNS_OF_TABLES
    return is_many and is_block_model and starts and least_share is None


def asks_for_heap(max_iter: Any, n_init: Any, init: Any) -> bool:
    """Return whether parameters besides ``solver`` have a meaning for the heap only."""
    return max_iter == PAPER or (is_drawn(init) and isinstance(n_init, Integral) and int(n_init) > 1)


def is_drawn(init: Any) -> bool:
    """Return whether first memberships are drawn at random, object by object."""
    return isinstance(init, str) and init in ("uniform", "dirichlet")


def choose_init(asked: Any, solver: str, calibration: Calibration | None) -> Init:
    """Return the start; given memberships are checked when the number of objects is known."""
    if not isinstance(asked, str):
        return asked
    check_choice("init", asked, ("auto", "subsample", "uniform", "dirichlet"))
    if calibration is not None and solver in (HEAP, BLOCKED):
        if is_drawn(asked):
            raise InvalidInputError(
                f"init={asked!r} with coassociation={calibration.rule!r} on listed pairs, whose rates follow "
                "from the start; use init='subsample' or memberships."
            )
        return "subsample"
    if asked == "subsample" and solver == HEAP:
        raise InvalidInputError(
            "init='subsample' requires pairs='all' or solver='blocked'; use 'uniform' or 'dirichlet'."
        )
    if asked == "auto":
        return "uniform" if solver == HEAP else "subsample"
    return asked


def choose_n_init(
    asked: int | str, init: Init, solver: str, pairs: Any, weights: Any, calibration: Calibration | None
) -> int:
    """Return the number of starts; refuse several if there is only one."""
    if asked == "auto":
        return DEFAULT_STARTS if solver != HEAP or calibration is not None else 1
    n_init = check_int("n_init", asked, or_auto=True)
    # "information" and calibration have starts of their own
    is_informed = (isinstance(weights, str) and weights == INFORMATION) or calibration is not None
    reason = None
    if not isinstance(init, str):
        reason = "init= as memberships"
    elif solver == BLOCKED and init != "subsample":
        reason = f"solver='blocked', init={init!r}"
    elif solver in (ALL, PROTOTYPES) and init != "subsample" and not is_informed:
        reason = f"pairs={pairs!r}, init={init!r}"
    if n_init > 1 and reason:
        raise InvalidInputError(f"n_init={n_init} with {reason}: one start; use n_init=1.")
    return n_init


def choose_n_prototypes(
    asked: int | str, solver: str, n_objects: int, n_clusters: int, pairs: Any, divergence: Divergence
) -> int:
    """Return the number of prototypes, few objects each its own; refuse a number the solver does not use."""
    if asked == "auto":
        if solver != PROTOTYPES:
            return 0
        return n_objects if n_objects <= FEW_OBJECTS else default_prototypes(n_clusters)
    n_prototypes = check_int("n_prototypes", asked, or_auto=True)
    if solver != PROTOTYPES:
        raise InvalidInputError(
            f"n_prototypes={n_prototypes} with pairs={pairs!r}, divergence={divergence.label!r}; "
            "it requires pairs='all' and a divergence other than 'l2'."
        )
    return n_prototypes


def choose_weights(
    asked: Any, offsets: np.ndarray, solver: str, pairs: Any, divergence: Divergence
) -> Weights | str | None:
    """Return the weights of the partitions or the rule that finds them; None if all weights are one."""
    if asked is not None and solver != ALL:
        raise _only_squares("weights", pairs, divergence)
    if asked is None or (isinstance(asked, str) and asked in (ENTROPY, INFORMATION)):
        return asked
    if isinstance(asked, str):
        raise InvalidInputError(
            f"weights={asked!r} is unknown; use 'entropy', 'information', numbers or None."
        )
    return Weights.given(asked, offsets)


def choose_calibration(
    coassociation: str,
    rarity: float | None,
    common: Any,
    weights: Any,
    solver: str,
    pairs: Any,
    divergence: Divergence,
    *,
    is_soft: bool,
    as_in_paper: bool,
) -> Calibration | None:
    """Return how to calibrate the co-association; None for that of the paper.

    "auto" calibrates that of hard clusterings by squares, if partitions have no given weights; on listed
    pairs, if nothing else is ``as_in_paper``, such as a random start.
    Rarity, rates of each partition and the block model require all pairs and squares: a pair of objects has
    one share of agreement, which does not tell partitions or base clusters apart. Least squares require
    squares, because other divergences are not defined for the probabilities above 1 that they can give.
    """
    check_choice("coassociation", coassociation, ("auto", PAPER_MODEL, BLOCK_MODEL, MOMENTS, LEAST_SQUARES))
    if rarity is not None:
        check_number("rarity", rarity, at_least=0.0)
    is_auto = isinstance(common, str) and common == "auto"
    common = solver != ALL if is_auto else check_flag("common_rates", common)
    if coassociation == "auto":
        best = BEST_MODEL if solver == ALL else PAPER_MODEL if as_in_paper else BEST_OF_LISTED
        can_calibrate = divergence.label == "l2" and weights is None and not is_soft
        coassociation = best if can_calibrate else PAPER_MODEL
    if coassociation == PAPER_MODEL:
        if rarity or (common and not is_auto):
            given = f"rarity={rarity:g}" if rarity else "common_rates=True"
            raise InvalidInputError(
                f"{given} with the co-association of the paper; it requires a calibrated one, such as "
                "'block-model', which takes pairs='all', divergence='l2' and no weights."
            )
        return None
    if is_soft:
        raise SoftEnsembleError(f"PCC with coassociation={coassociation!r}", "coassociation='paper'")
    if weights is not None:
        raise InvalidInputError(
            f"weights with coassociation={coassociation!r}, which finds its own; leave one of them out."
        )
    if solver != ALL and (rarity or not common or coassociation == BLOCK_MODEL):
        given = f"rarity={rarity:g}" if rarity else "common_rates=False"
        if coassociation == BLOCK_MODEL:
            given = "coassociation='block-model'"
        raise _only_squares(given, pairs, divergence)
    if coassociation == LEAST_SQUARES and divergence.label != "l2":
        raise InvalidInputError(
            f"coassociation='least-squares' with divergence={divergence.label!r}, which is not defined for "
            "the probabilities above 1 that it can give; use coassociation='moments'."
        )
    if rarity is None:
        rarity = RARITY if solver == ALL else 0.0
    return Calibration(coassociation, rarity, common)


def choose_prune(
    asked: Any,
    init: Init,
    solver: str,
    pairs: Any,
    divergence: Divergence,
    calibration: Calibration | None,
) -> tuple[float | None, bool]:
    """Return the share below which clusters are removed, if any, and whether indistinct ones are merged.

    "auto" merges in the block model, unless the clusters are those of given memberships. Refuse a share if
    the solver does not prune.
    """
    if asked is None:
        return None, False
    if isinstance(asked, str) and asked == "auto":
        of_block_model = calibration is not None and calibration.rule == BLOCK_MODEL
        return None, of_block_model and isinstance(init, str)
    if solver != ALL:
        raise _only_squares("prune", pairs, divergence)
    return check_number("prune", asked, at_least=0.0, at_most=1.0), False


def _only_squares(given: str, pairs: Any, divergence: Divergence) -> InvalidInputError:
    """Return the error for a parameter of solves over all pairs by the squared divergence alone."""
    verb = "they require" if given == "weights" else "it requires"
    return InvalidInputError(
        f"{given} with pairs={pairs!r}, divergence={divergence.label!r}; "
        f"{verb} pairs='all' and divergence='l2'."
    )


# Pairs

LABELS_BUDGET = 10**9
"""Memory for labels while sampled pairs are counted; larger ensembles are read block by block."""


def n_pair_ends(pairs: Any, n_objects: int) -> int:
    """Return the approximate number of pair ends a solve holds; 0 if it forms no pairs."""
    if isinstance(pairs, PairTable):
        return 2 * pairs.n_pairs
    if isinstance(pairs, Real):
        return int(float(pairs) * n_objects * (n_objects - 1))
    if isinstance(pairs, str) and pairs in ("all", "dense"):
        return n_objects * (n_objects - 1) if pairs == "dense" else 0
    return 2 * PairTable.open(pairs).n_pairs


def resolve_pairs(pairs: Any, ensemble: Ensemble, seed: int, engine: Engine) -> PairTable:
    """Return the pair table of a ``pairs`` argument for this ensemble."""
    if isinstance(pairs, str) and pairs == "dense":
        i, j = np.triu_indices(ensemble.n_objects, 1)
        return count(ensemble, i, j, client=engine)
    if isinstance(pairs, Real):
        return sample_in_memory(ensemble, {"share": float(pairs)}, seed, LABELS_BUDGET, engine)
    table = pairs_of(pairs, ensemble.n_objects)
    if table.n_objects != ensemble.n_objects:
        raise InvalidInputError(
            f"pairs are of n_objects={table.n_objects} but the ensemble has n_objects={ensemble.n_objects}; "
            "sample pairs of this ensemble."
        )
    return table


# Pairs that an object must be in for each cluster. Measured on 20 and 50 planted classes (4,000 objects, 100
# partitions, the heap): adjusted Rand indices of .19 and .08 for at most one pair, .66 and .57 for two, .94
# and .98 for four or five. By blocks, on 10 clusters of 100,000 objects, 100 passes do not settle up to two.
FEWEST_PAIRS = 3


def warn_of_few_pairs(pairs: PairTable, n_clusters: int) -> None:
    """Warn if objects are in too few pairs for these to determine their memberships in ``n_clusters``."""
    per_object, all_others = 2 * pairs.n_pairs / pairs.n_objects, pairs.n_objects - 1
    if n_clusters > 1 and per_object < min(FEWEST_PAIRS * n_clusters, all_others):
        enough = min(FEWEST_PAIRS * n_clusters / all_others, 1.0)
        warn_user(
            f"objects are in {per_object:.3g} pairs on average, too few to tell {n_clusters} clusters apart; "
            f"use pairs='all', or a share of {enough:.2g} or more, {FEWEST_PAIRS} pairs an object for each "
            "cluster.",
            ConsensusWarning,
        )


def store_rows(
    pairs: ParquetPairTable, scratch: Place, memory: str | float | None, left: int | None
) -> PairTable:
    """Return pairs in Parquet converted to rows at ``scratch``, within what ``memory`` leaves for them."""
    if memory is None or left is None:
        return pairs.save(str(scratch))
    try:
        return pairs.save(str(scratch), memory=f"{left} B")
    except MemoryBudgetError as error:
        if error.needed is None:
            raise
        needed = parse_size(memory) - left + error.needed
        raise MemoryBudgetError(
            f"converting {pairs.path} to rows needs {format_size(error.needed)}, over the "
            f"{format_size(left)} that memory={format_size(parse_size(memory))} leaves; raise it to "
            f"{enough_for(needed)}, or store the pairs with bigcons import-pairs first.",
            needed=needed,
            budget=parse_size(memory),
        ) from error


# Memory

# Bytes of the heap per pair end: index, two counts, share, weight, and temporaries.
DENSE_BYTES_PER_END = 36
DENSE_MEMORY = 4_000_000_000

# Labels of at most this many bytes are kept in memory during a solve.
FEW_LABELS = 32_000_000


def finds_trust(ensemble: Ensemble, solver: str, n_clusters: int) -> bool:
    """Return whether a solve tells how far its labels can be trusted: where the tables for that are small."""
    is_small = can_weigh_many if solver == CANDIDATES else can_weigh
    return not ensemble.is_soft and is_small(ensemble, n_clusters)


# Objects of the larger sample: this share of all, within bounds, and at most these bytes of labels.
LARGER_SHARE, FEWEST_LARGER, MOST_LARGER, LARGER_BYTES = 16, 4 * SUBSAMPLE, 1 << 18, 1 << 26


def n_larger(ensemble: Ensemble, choices: Choices) -> int:
    """Return how many objects the larger sample has, on which a calibrated solve goes on; 0 for none."""
    if choices.solver != ALL or choices.calibration is None or not isinstance(choices.init, str):
        return 0
    return larger_rows(ensemble) if choices.init == "subsample" else 0


def larger_rows(ensemble: Ensemble) -> int:
    """Return the size of the larger sample of an ensemble, 0 if it would be hardly larger."""
    n_rows = min(ensemble.n_objects // LARGER_SHARE, MOST_LARGER, LARGER_BYTES // ensemble.row_bytes)
    return n_rows if n_rows >= FEWEST_LARGER else 0


def keeps_labels(ensemble: Ensemble, engine: Engine) -> bool:
    """Return whether labels are read once and kept: for few objects reading costs more than solving."""
    return engine.shares_memory and label_bytes(ensemble, ensemble.n_objects) <= FEW_LABELS


def plan_memory(
    ensemble: Ensemble,
    engine: Engine,
    solver: str,
    n_prototypes: int,
    n_clusters: int,
    pairs: Any,
    *,
    in_memory: bool,
    prunes: bool = False,
    calibrates: bool = False,
    merges: bool = False,
) -> MemoryPlan:
    """Return the memory plan of a solve; ``in_memory``: whether memberships are held rather than stored.

    Blocks of pairs being processed are counted once their borders are known, see ``blocked.solve_blocked``.
    """
    if solver == CANDIDATES:
        plans = plans_of_many(ensemble, n_clusters, keeps_labels(ensemble, engine), in_memory=in_memory)
        plan = max(plans, key=lambda plan: plan.n_bytes(engine, ensemble))
        size = ensemble.n_partitions, ensemble.n_base_clusters, n_clusters
        return plan._replace(held=plan.held + bytes_to_tell_apart(SUBSAMPLE, *size)) if merges else plan
    n, K, rows, M = ensemble.n_objects, n_clusters, ensemble.chunk_rows, ensemble.n_partitions
    B, G = ensemble.n_base_clusters, n_prototypes
    everything = 0
    if solver == PAIRWISE:  # labels and memberships of all objects, and the terms of one of them
        everything, G = label_bytes(ensemble, n) + 20 * n * K + 32 * n, default_prototypes(K)
    statistics = 8 * (G + 8) * (B + M) if G else 8 * ((B + M) * (K + 8) + M * (K * (K + 1) + 16))
    generations = (
        3 if G or prunes or solver == BLOCKED else 2
    )  # a third if a pass is shortened or a cluster is removed
    ends = 0 if solver == BLOCKED else n_pair_ends(pairs, n)
    held = 4 * n + (4 * generations * n * K + TRUST_ROW.itemsize * n if in_memory else 0)
    held += 16 * n * K + DENSE_BYTES_PER_END * ends if ends else 0
    held += 16 * min(n, SUBSAMPLE) * M  # how far to trust the clusters: labels of a sample
    if solver == BLOCKED and (isinstance(pairs, Real) or pairs == "dense"):
        held += PAIR_BYTES * n_pair_ends(pairs, n) // 2
    held += label_bytes(ensemble, n) if keeps_labels(ensemble, engine) else 0
    if calibrates:
        few = spaced_partitions(M)
        sample = min(n, SUBSAMPLE), few.size, int(ensemble.n_clusters[few].sum()), K
        held += max(start_bytes(*sample), bytes_to_tell_apart(*sample) if merges else 0)
        held += 8 * sample[0] * max(starts_to_merge(sample[0], K), default=0) if merges else 0  # a spectrum
        statistics += 8 * M * (K + 8)
        held += 4 * statistics  # of the last two passes, and sums extrapolated from these and further ones
        if solver == ALL:
            held += 8 * MOST_PAST * (2 * (B + M) * (K + 8) + M * (K * (K + 1) // 2 + 8))
            held += larger_rows(ensemble) * (ensemble.row_bytes + 16 * K)
    return MemoryPlan(
        held=held,
        # including the memberships before and after, and their change
        per_block=block_label_bytes(ensemble) + 16 * rows * K + 64 * rows + 3 * statistics + everything,
        per_result=statistics + 8 * rows + (4 * rows * K if in_memory else 0),
    )


def check_memory(
    ensemble: Ensemble,
    engine: Engine,
    choices: Choices,
    n_clusters: int,
    pairs: Any,
    memory: str | float | None,
    *,
    in_memory: bool,
    prunes: bool,
) -> None:
    """Log the memory plan of the solve; raise MemoryBudgetError if it exceeds the budget."""
    solver, G = choices.solver, choices.n_prototypes
    how = {"in_memory": in_memory, "prunes": prunes, "calibrates": choices.calibration is not None}
    how["merges"] = choices.merges
    plan = plan_memory(ensemble, engine, solver, G, n_clusters, pairs, **how)
    is_dense = isinstance(pairs, str) and pairs == "dense"
    if memory is None and is_dense:
        memory = DENSE_MEMORY
    remedy = " or write the result to a store with out=" if in_memory else ""
    if solver == HEAP:
        blocked = "" if is_dense else "solver='blocked', "
        remedy = f" or use {blocked}pairs='all' or a smaller share"
    plan.check("PCC", engine, ensemble, memory, remedy)


# Labels too coarse for PCC

# Mean number of clusters of the partitions, as a share of those asked for, up to which to warn. Measured on 5
# to 20 planted classes of equal size, with noise: below a third the paper's model lost all of them, up to a
# half most, while calibrated models found all.
FEW = 0.5


def warn_of_coarse_labels(ensemble: Ensemble, n_clusters: int, weights: Weights | str | None) -> bool:
    """Warn if the partitions have far fewer clusters than asked for, and so join different ones by chance.

    The paper's model of the co-association has no term for that. Return whether it is so.
    """
    counted = ensemble.n_clusters
    if isinstance(weights, Weights):
        counted = counted[weights.partitions > 0]
    mean = float(np.mean(counted))
    is_coarse = mean <= FEW * n_clusters
    if is_coarse:
        warn_user(
            f"the partitions have {mean:.3g} clusters on average, far fewer than n_clusters={n_clusters}: by "
            "chance they join objects of different clusters, which PCC then merges; calibrated models allow "
            "for it, such as coassociation='moments', without weights.",
            UndersegmentationWarning,
        )
    return is_coarse


# Labels too fine for PCC

# Fraction of the least share of joined pairs below which to warn. Measured on planted classes (3 to 20, with
# noise and missing labels) that every partition splits differently: below it all classes of unequal size were
# lost, and 3 in 4 of those of equal size; above it all of equal size were found. Between .4 and .6 most
# unequal classes are lost, but PCC matched other methods on seven of eight k-means ensembles of real data.
# Random splits do less harm.
ENOUGH = 0.4


def warn_of_fine_labels(
    survey: Survey, n_clusters: int, weights: Weights | str | None, offsets: np.ndarray
) -> None:
    """Warn if the labels join too few pairs of objects for memberships to explain.

    The mean of ``y_i.y_j`` is at least about ``1 / n_clusters``, attained by clusters of equal size: a fit to
    a much lower share of joined pairs tends to them. Information weights come from an unweighted solve, which
    is assessed instead. O(m M log m) time for a sample of ``m`` objects.
    """
    if isinstance(weights, str):
        weights = entropy_weights(survey.sample, offsets) if weights == ENTROPY else None
    joined = survey.joined_share(None if weights is None else weights.partitions)
    least = least_joined_share(n_clusters, float(survey.n_seen.mean()))
    if n_clusters > 1 and joined < ENOUGH * least:
        warn_user(
            f"the labels join {100 * joined:.2g} % of the pairs of objects, but {n_clusters} clusters at "
            f"least {100 * least:.2g} %: PCC then tends to clusters of equal size, whatever the classes; "
            "try eac-average, eac-single or mcla, or a larger n_clusters.",
            OversegmentationWarning,
        )


def least_joined_share(n_clusters: int, n_objects: float) -> float:
    """Return the least share of object pairs that ``n_clusters`` clusters can join.

    It is also the least mean of ``y_i.y_j`` over ``i != j``: ``sum_i y_i`` is shortest if even.
    """
    return max(n_objects / n_clusters - 1.0, 0.0) / (n_objects - 1.0) if n_objects > 1 else 0.0
