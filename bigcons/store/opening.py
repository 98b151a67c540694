"""Opening and verifying a store of any kind, and the checkpoints of an unfinished solve."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from bigcons.disk.checkpoint import Snapshots, partial_folder
from bigcons.disk.commit import is_store, read_head
from bigcons.disk.files import StorePath
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
    folder = partial_folder(path)
    if not is_store(path) and not is_parquet(path) and (solve := Snapshots(folder, {})).exists():
        n_passes, n_blocks = solve.verify()
        return {"kind": "unfinished solve", "path": str(folder), "n_passes": n_passes, "n_blocks": n_blocks}
    return open_store(path).verify()
