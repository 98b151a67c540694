"""Opens a store of any kind."""

from __future__ import annotations

from typing import Any


def open_store(path: str) -> Any:
    """Open the store at ``path`` with the class of its kind."""
    import bigcons
    from bigcons.storage.commit import read_manifest

    classes = {"ensemble": "Ensemble", "pairs": "PairTable", "consensus": "Consensus"}
    return getattr(bigcons, classes[read_manifest(path)["kind"]]).open(path)
