"""The memory that PCC needs, and the choices that follow from it."""

from __future__ import annotations

from typing import Any, NamedTuple

from bigcons.execution.engine import Engine
from bigcons.memory import parse_size
from bigcons.methods.pcc.pair_choice import n_pair_ends, prefers_blocks
from bigcons.solving.memory_plan import block_label_bytes, check_plan, label_bytes
from bigcons.stores.ensemble import Ensemble

# Bytes of a dense run for each of the n (n - 1) ends of pairs: index, two counts, share, weight, and its
# making.
DENSE_BYTES_PER_END = 36
DENSE_MEMORY = 4_000_000_000

# Labels of at most this many bytes are kept in memory while they are solved.
FEW_LABELS = 32_000_000


class Work(NamedTuple):
    """What decides how much memory a solve takes."""

    n_clusters: int
    n_prototypes: int
    """0 without them."""
    pairs: Any
    """As PCC takes it."""
    by_blocks: bool
    """Whether pairs are read from their store, block by block."""
    in_memory: bool
    """Whether memberships are held rather than stored."""


def keeps_labels(ensemble: Ensemble, engine: Engine) -> bool:
    """Return whether labels are read once and kept: of few objects reading costs more than solving."""
    return engine.shares_memory and label_bytes(ensemble, ensemble.n_objects) <= FEW_LABELS


def chooses_blocks(pairs: Any, memory: str | float | None) -> bool:
    """Tell whether stored pairs had better be solved block by block."""
    return prefers_blocks(pairs, None if memory is None else parse_size(memory), DENSE_BYTES_PER_END)


def check_memory(ensemble: Ensemble, engine: Engine, work: Work, memory: str | float | None) -> None:
    """State the memory the solve needs, and refuse a budget that cannot hold it.

    Raises MemoryBudgetError. Blocks of pairs are counted when their borders are known, see
    ``blocked.solve_blocked``.
    """
    ends = 0 if work.by_blocks else n_pair_ends(work.pairs, ensemble.n_objects)
    dense = isinstance(work.pairs, str) and work.pairs == "dense"
    budget = memory if memory is not None else (DENSE_MEMORY if dense else None)
    state, rows = _state_bytes(ensemble, work), ensemble.chunk_rows
    check_plan(
        "PCC",
        engine,
        ensemble=ensemble,
        held=_held_bytes(ensemble, engine, work, ends),
        # with the memberships before and after
        per_block=block_label_bytes(ensemble) + 12 * rows * work.n_clusters + 3 * state,
        per_result=state + 8 * rows + (4 * rows * work.n_clusters if work.in_memory else 0),
        memory=budget,
        remedy=_remedy(ends, work),
    )


def _remedy(ends: int, work: Work) -> str:
    """Return what else would do than a larger budget, if anything."""
    if ends:
        return " or use pairs='all' or a share"
    return " or write the result to a store with out=" if work.in_memory else ""


def _held_bytes(ensemble: Ensemble, engine: Engine, work: Work, ends: int) -> int:
    """Return what lives as long as the solve: the labels found, memberships, pairs, labels that are kept."""
    n, K = ensemble.n_objects, work.n_clusters
    generations = 3 if work.n_prototypes else 2  # a third while a pass is shortened
    held = 4 * n + (4 * generations * n * K if work.in_memory else 0)
    held += 16 * n * K + DENSE_BYTES_PER_END * ends if ends else 0
    return held + (label_bytes(ensemble, n) if keeps_labels(ensemble, engine) else 0)


def _state_bytes(ensemble: Ensemble, work: Work) -> int:
    """Return what the statistics of a block take."""
    K, B, M = work.n_clusters, ensemble.n_base_clusters, ensemble.n_partitions
    if work.n_prototypes:
        return 8 * (work.n_prototypes + 8) * (B + M)
    return 8 * (B * (K + 8) + M * (K * (K + 1) + 16))
