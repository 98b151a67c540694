"""The objective of PCC for given memberships, whoever found them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from bigcons.divergences import CompiledDivergence, Divergence, resolve_divergence
from bigcons.errors import InvalidInputError
from bigcons.execution.engine import Engine, fold, open_engine
from bigcons.memory import Block
from bigcons.metrics.soft import matrix, simplex_rows
from bigcons.stores.ensemble import Ensemble, as_ensemble
from bigcons.stores.pairs import PairTable

# Visiting every pair takes about 20 ns and M ns for each: a minute or two at this size.
MOST_OBJECTS_PAIR_BY_PAIR = 50_000

# Rows of one tile of the n x n square, so that two blocks of labels stay in the cache.
TILE_ROWS = 512


def pcc_objective(
    x: Any,
    memberships: Any,
    *,
    divergence: str | Divergence = "l2",
    pairs: str | os.PathLike[str] | PairTable = "all",
    constant: bool = True,
    weights: Any = None,
    client: object = None,
) -> float:
    """Return ``sum N_ij d(c_ij / N_ij, y_i.y_j)`` over the pairs (Lourenço et al. 2015, equation 4).

    memberships (n_objects, n_clusters), rows on the simplex. ``pairs``: "all", or a PairTable or the path of
    one (``x`` is then not read, and may be None). With ``constant=False`` and the squared divergence over
    all pairs, ``sum c_ij^2 / N_ij``, which memberships do not change, is left out: one pass over the labels
    and memberships, which may be anything that is sliced, such as ``Consensus.membership_rows``, for any
    n_objects; it is what ``PCC(pairs="all").objective_`` reports; ``weights`` (n_partitions,), as
    of PCC, go with this form only. Otherwise all pairs cost O(n^2 (M + K)), memberships in memory.
    """
    if weights is not None and (constant or not (isinstance(pairs, str) and pairs == "all")):
        raise InvalidInputError(
            f"weights with pairs={pairs!r}, constant={constant}; they go with pairs='all', constant=False."
        )
    chosen = resolve_divergence(divergence)
    memberships = matrix("memberships", memberships)
    if not (isinstance(pairs, str) and pairs == "all"):
        table = pairs if isinstance(pairs, PairTable) else PairTable.open(pairs)
        _check_rows(memberships, table.n_objects)
        return _over_table(table, _all_rows(memberships), chosen.compiled)
    ensemble = as_ensemble(x)
    _check_rows(memberships, ensemble.n_objects)
    if not constant:
        if chosen.label != "l2":
            raise InvalidInputError(
                f"constant=False with divergence={chosen.label!r}; only 'l2' has such a constant."
            )
        with open_engine(client) as engine:
            return _factorized(ensemble, memberships, weights, engine)
    if ensemble.n_objects > MOST_OBJECTS_PAIR_BY_PAIR:
        n = ensemble.n_objects
        raise InvalidInputError(
            f"n_objects={n} makes {n * (n - 1) // 2:.3g} pairs to visit; pass constant=False (l2), "
            "or a sampled PairTable."
        )
    with open_engine(client) as engine:
        return _pair_by_pair(ensemble, _all_rows(memberships), chosen.compiled, engine)


def _check_rows(memberships: Any, n_objects: int) -> None:
    if memberships.shape[0] != n_objects:
        raise InvalidInputError(
            f"memberships has {memberships.shape[0]} rows but there are n_objects={n_objects}; "
            "pass one row per object."
        )


def _all_rows(memberships: Any) -> np.ndarray:
    n_objects, n_clusters = memberships.shape
    return np.ascontiguousarray(simplex_rows("memberships", memberships, Block(0, 0, n_objects), n_clusters))


def _over_table(table: PairTable, rows: np.ndarray, divergence: CompiledDivergence) -> float:
    from bigcons.kernels.objective import over_pairs

    value, _, _, parameter = divergence
    i, j, n_agree, n_seen = table.edges()
    return float(over_pairs(i, j, n_agree, n_seen, rows, value, parameter))


def _factorized(ensemble: Ensemble, memberships: Any, weights: Any, engine: Engine) -> float:
    from bigcons.coassociation.factorized import Weights, add_sums, agreement_sums

    counted = None if weights is None else Weights.of(weights, ensemble.offsets)

    def account(block: Block) -> Any:
        labels = ensemble.read(block.start, block.stop)
        rows = simplex_rows("memberships", memberships, block, memberships.shape[1])
        return agreement_sums(labels, ensemble.offsets, rows.astype(np.float32, order="C"), counted)

    return float(fold(engine, ensemble.blocks(), account, add_sums).objective)


def _pair_by_pair(
    ensemble: Ensemble, rows: np.ndarray, divergence: CompiledDivergence, engine: Engine
) -> float:
    from bigcons.kernels.objective import over_tile

    value, _, _, parameter = divergence
    labels = ensemble.read(0, ensemble.n_objects)

    def tile_row(block: Block) -> float:
        return float(over_tile(labels, rows, block.start, block.stop, TILE_ROWS, value, parameter))

    n = ensemble.n_objects
    blocks = [Block(b, start, min(start + TILE_ROWS, n)) for b, start in enumerate(range(0, n, TILE_ROWS))]
    return fold(engine, blocks, tile_row, lambda a, b: a + b)
