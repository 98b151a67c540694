"""Opening a store of any kind."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from bigcons.disk.commit import read_head
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
    kinds: dict[str, Any] = {"ensemble": Ensemble, "pairs": PairTable, "consensus": Consensus}
    store: Ensemble | PairTable | Consensus = kinds[read_head(path).kind].open(path)
    return store
