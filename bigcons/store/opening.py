"""Opening and verifying a store of any kind, and the checkpoints of an unfinished solve."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from bigcons.disk.checkpoint import Snapshots
from bigcons.disk.commit import is_store, read_head
from bigcons.disk.files import Place, StorePath
from bigcons.disk.places import place_of
from bigcons.errors import InvalidPairsError
from bigcons.io.files import is_parquet
from bigcons.store.consensus import Consensus
from bigcons.store.ensemble import Ensemble
from bigcons.store.pairs import PairTable


def open_store(path: StorePath) -> Ensemble | PairTable | Consensus:
    """Open the store at ``path`` with the class for its kind."""
    if is_parquet(path):
        with suppress(InvalidPairsError):
            return PairTable.open(path)
    kind = read_head(path).kind
    if kind == "ensemble":
        return Ensemble.open(path)
    return PairTable.open(path) if kind == "pairs" else Consensus.open(path)


def verify_store(path: StorePath) -> dict[str, Any]:
    """Check all data of a store or, if there is none at ``path`` yet, of the unfinished solve of it.

    Returns what its ``verify`` returns, of a solve ``{"kind", "path", "n_passes", "n_blocks"}``; raises
    CorruptStoreError.
    """
    if is_unfinished(path):
        folder = partial_folder(path)
        n_passes, n_blocks = Snapshots(folder, {}).verify()
        return {"kind": "unfinished solve", "path": str(folder), "n_passes": n_passes, "n_blocks": n_blocks}
    return open_store(path).verify()


def is_unfinished(path: StorePath) -> bool:
    """Return whether there is no store at ``path``, but a solve that can be resumed."""
    return not is_store(path) and not is_parquet(path) and Snapshots(partial_folder(path), {}).exists()


def partial_folder(path: StorePath) -> Place:
    """Return the folder of the unfinished solve with output ``path``."""
    place = place_of(path)
    return place.sibling(f"{place.name}.partial")
