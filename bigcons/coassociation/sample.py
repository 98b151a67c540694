"""Pairs of objects drawn uniformly without repetition.

The draw is one of numbers (see `pair_numbers`) and needs memory for the pairs asked for and nothing else.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.coassociation.count import COUNTED_PAIR_BYTES, OBJECT_BYTES, PAIR_BYTES, count
from bigcons.coassociation.pair_numbers import count_all_pairs, distinct_numbers, pairs_of_numbers
from bigcons.errors import InvalidInputError, MemoryBudgetError
from bigcons.execution.engine import open_engine
from bigcons.memory import enough_for, format_size, parse_size
from bigcons.seeding import SeedLike, generator, resolve_seed
from bigcons.storage.commit import refuse_existing, refuse_source
from bigcons.validation import check_int, check_number

if TYPE_CHECKING:
    from bigcons.stores.ensemble import Ensemble
    from bigcons.stores.pairs import PairTable

logger: logging.Logger = logging.getLogger("bigcons")

# What a process takes once it has read a store and counted pairs, whatever their number. It is fixed and not
# measured, for which pairs are drawn must not depend on what else the process holds.
PROCESS_BYTES = 250_000_000

# With fewer other blocks, regions far apart in the graph of blocks may order their clusters differently.
TILES = 8


def sample(
    x: Any,
    *,
    share: float | None = None,
    per_object: float | None = None,
    n_pairs: int | None = None,
    tiles: int | str | None = "auto",
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    random_state: SeedLike = None,
    memory: int | str = "1GB",
    client: object = None,
) -> PairTable:
    """Draw pairs of objects of the ensemble ``x`` and count the partitions that see and that join them.

    How many is said as in `sample_pairs`. With ``out`` the table goes to a store there and is returned
    opened. ``memory`` is the budget of the whole process; half of it at least is for pairs and labels.

    ``tiles`` says from which pairs. None: from all, as `sample_pairs` does, the table in memory. A number: in
    tiles of a grid of row blocks, each block with itself and so many others, straight to ``out`` within
    ``memory`` (see `tiles.sample_tiles`). "auto": None, unless the table goes to ``out`` and would take more
    than ``memory`` on the way; then 8. Raises MemoryBudgetError if it would take more and is not drawn in
    tiles.
    """
    from bigcons.stores.ensemble import as_ensemble

    ensemble = as_ensemble(x)
    seed, budget = resolve_seed(random_state), parse_size(memory)
    asked = {"share": share, "per_object": per_object, "n_pairs": n_pairs}
    given = {name: value for name, value in asked.items() if value is not None}
    total = count_all_pairs(ensemble.n_objects)
    wanted = _number_of_pairs(ensemble.n_objects, total, share, n_pairs, per_object)
    if out is not None:
        refuse_existing(out, overwrite)
        refuse_source(out, ensemble.path)
    tiles = _resolve_tiles(tiles, wanted, ensemble.n_objects, budget, out)
    if tiles is not None and out is not None:
        from bigcons.coassociation.tiles import sample_tiles

        made = {"ensemble": ensemble.path, "n_partitions": ensemble.n_partitions, "sampled": "tiles"}
        with open_engine(client) as engine:
            return sample_tiles(
                ensemble,
                out,
                n_pairs=wanted,
                tiles=tiles,
                seed=seed,
                memory=budget,
                engine=engine,
                overwrite=overwrite,
                provenance={**made, "tiles": tiles, **given, "random_state": seed},
            )
    _refuse_too_many(wanted, ensemble.n_objects, budget)
    table = sample_in_memory(ensemble, given, seed, budget, client)
    return table if out is None else table.save(out, overwrite=overwrite)


def sample_in_memory(
    ensemble: Ensemble, asked: Mapping[str, Any], seed: int, memory: int, client: object
) -> PairTable:
    """Draw pairs from all objects and count them; ``memory`` bounds what the labels take, not the table.

    ``asked`` says how many, as in `sample_pairs`.
    """
    i, j = sample_pairs(ensemble.n_objects, **asked, random_state=seed)
    room = _room(memory)
    labels = max(room - COUNTED_PAIR_BYTES * len(i), room // 2)
    table = count(ensemble, i, j, memory=labels, client=client)
    table.provenance |= {"sampled": "uniform", **asked, "random_state": seed}
    return table


def _needed(n_pairs: int, n_objects: int) -> int:
    """Return the bytes that a table takes on its way into memory."""
    return PAIR_BYTES * n_pairs + OBJECT_BYTES * n_objects


def _refuse_too_many(n_pairs: int, n_objects: int, memory: int) -> None:
    """Raise MemoryBudgetError, with a budget that would do, if a table does not fit into memory."""
    needed = _needed(n_pairs, n_objects)
    if needed > _room(memory):
        raise MemoryBudgetError(
            f"{n_pairs:,} pairs take {format_size(needed)} in memory, over the {format_size(_room(memory))} "
            f"that memory={format_size(memory)} has for them; raise it to "
            f"{enough_for(min(needed + PROCESS_BYTES, 2 * needed))}, or draw them in tiles to a store: pass "
            "out= and leave tiles='auto'.",
            needed=needed,
            budget=_room(memory),
        )


def _room(memory: int) -> int:
    """Return the bytes for pairs and labels: what the process leaves of a budget, of a small one half."""
    return max(memory - PROCESS_BYTES, memory // 2)


def _resolve_tiles(
    tiles: int | str | None, n_pairs: int, n_objects: int, memory: int, out: object
) -> int | None:
    """Return with how many other blocks each is paired, or None for pairs from all; say why."""
    if tiles == "auto":
        needed = _needed(n_pairs, n_objects)
        if out is None or needed <= _room(memory):
            return None
        logger.info(
            "%s pairs take %s in memory, over the %s that %s has for them: drawn in tiles, "
            "each row block with %d others",
            *(f"{n_pairs:,}", format_size(needed), format_size(_room(memory)), format_size(memory), TILES),
        )
        return TILES
    if tiles is None:
        return None
    if out is None:
        raise InvalidInputError(f"tiles={tiles!r} without out=; pairs of tiles go to a store: pass its path.")
    return check_int("tiles", tiles, at_least=2)


def sample_pairs(
    n_objects: int,
    *,
    share: float | None = None,
    n_pairs: int | None = None,
    per_object: float | None = None,
    random_state: SeedLike = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw distinct pairs ``i < j`` of ``n_objects`` objects, every set of pairs equally likely.

    How many is said in one of three ways: ``share`` of all ``n (n - 1) / 2`` pairs (0.25e-3 is 0.25
    permille), ``n_pairs``, or ``per_object``, the mean number of pairs an object is in.

    Returns ``(i, j)``, both ``(n_pairs,)`` int32, in ascending order of i, then j. Takes O(n_pairs)
    memory, about 30 bytes a pair, and O(n_pairs log n_pairs) time, however many objects there are.
    """
    total = count_all_pairs(n_objects)
    wanted = _number_of_pairs(n_objects, total, share, n_pairs, per_object)
    rng = generator(resolve_seed(random_state), "coassociation.sample_pairs")
    return pairs_of_numbers(distinct_numbers(rng, total, wanted), n_objects)


def _number_of_pairs(
    n_objects: int, total: int, share: float | None, n_pairs: int | None, per_object: float | None
) -> int:
    asked = {"share": share, "n_pairs": n_pairs, "per_object": per_object}
    given = {name: value for name, value in asked.items() if value is not None}
    if len(given) != 1:
        got = ", ".join(f"{name}={value}" for name, value in given.items()) or "nothing"
        raise InvalidInputError(
            f"got {got} to say how many pairs; give one of share, n_pairs and per_object."
        )
    if n_pairs is not None:
        return check_int("n_pairs", n_pairs, at_most=total)
    if share is not None:
        wanted = round(check_number("share", share, above=0, at_most=1) * total)
    else:
        wanted = round(check_number("per_object", per_object, above=0, at_most=n_objects - 1) * n_objects / 2)
    if wanted == 0:
        raise InvalidInputError(
            f"{next(iter(given))}={next(iter(given.values()))} asks for less than one of the {total} pairs; "
            "use a larger number."
        )
    return min(wanted, total)
