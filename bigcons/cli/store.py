"""What commands do with stores of any kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bigcons.errors import StoreExistsError


def open_store(path: str) -> Any:
    """Open the store at ``path`` with the class of its kind."""
    import bigcons
    from bigcons.stores import manifest

    classes = {"ensemble": "Ensemble", "pairs": "PairTable", "consensus": "Consensus"}
    return getattr(bigcons, classes[manifest.read(path)["kind"]]).open(path)


def refuse_existing(path: str, overwrite: bool) -> None:
    """Raise StoreExistsError before the work rather than after it."""
    if Path(path).exists() and not overwrite:
        raise StoreExistsError(f"{path} exists; pass --overwrite or choose another path.")
