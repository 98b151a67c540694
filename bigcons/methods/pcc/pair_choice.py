"""What the ``pairs`` argument of PCC may be, and the pair table it means."""

from __future__ import annotations

import os
from numbers import Real
from typing import Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.execution.engine import Engine
from bigcons.stores.ensemble import Ensemble
from bigcons.stores.pairs import PairTable

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


def prefers_blocks(pairs: Any, budget: int | None, bytes_per_end: int) -> bool:
    """Tell whether a stored table had better be solved block by block: in tiles, or too large for memory."""
    if isinstance(pairs, Real) or (isinstance(pairs, str) and pairs in ("all", "dense")):
        return False
    table = pairs if isinstance(pairs, PairTable) else PairTable.open(pairs)
    too_large = budget is not None and bytes_per_end * 2 * table.n_pairs > budget
    return table.path is not None and (too_large or table.rows_per_block is not None)


def resolve_pairs(pairs: Any, ensemble: Ensemble, seed: int, engine: Engine) -> PairTable:
    """Return the pair table that a ``pairs`` argument means for this ensemble."""
    from bigcons.coassociation import count
    from bigcons.coassociation.sampling import sample_in_memory

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
