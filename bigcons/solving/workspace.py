"""Where a solve keeps what it works on: in memory, or in a folder beside its output that survives a kill."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

from bigcons.errors import CorruptStoreError, InvalidInputError
from bigcons.execution.engine import Engine
from bigcons.solving.loop import passes_kept
from bigcons.storage.checkpoint import BlockArrays, FileBlocks, MemoryBlocks, Snapshots
from bigcons.storage.locks import writer_lock
from bigcons.storage.places import DiskPlace, Place, place_of

logger = logging.getLogger("bigcons")


class Workspace(NamedTuple):
    """Block arrays of memberships, and snapshots between passes if the solve can be resumed."""

    arrays: BlockArrays
    snapshots: Snapshots | None


@contextmanager
def open_workspace(
    out: str | os.PathLike[str] | None,
    engine: Engine,
    n_columns: int,
    fingerprint: Mapping[str, Any],
    *,
    resume: bool,
    dtype: str = "<f4",
) -> Iterator[Workspace]:
    """Yield the workspace of a solve whose result goes to ``out``, or to memory if None.

    Its block arrays have ``n_columns`` of ``dtype``.
    With ``out`` it is the folder ``<out>.partial``: removed when the solve succeeds, and when it fails or is
    interrupted before its first snapshot, else kept; emptied at the start unless ``resume``, with a warning
    if passes are lost. Raises StoreLockedError, on a disk, if another solve works in it.
    """
    if out is None and engine.shares_memory:
        yield Workspace(MemoryBlocks(), None)
        return
    if out is None:
        with tempfile.TemporaryDirectory(prefix="bigcons-") as directory:
            yield Workspace(FileBlocks(directory, n_columns, dtype), None)
        return
    folder = partial_folder(out)
    snapshots = Snapshots(folder, fingerprint)
    with _locked(folder):
        if not resume:
            _tell_what_is_discarded(snapshots)
            folder.remove()
        # of a solve that is resumed `fit` tells, for there is something to keep before the workspace is open
        with nullcontext() if resume else telling_what_is_kept(out):
            try:
                yield Workspace(FileBlocks(folder, n_columns, dtype), snapshots)
            except BaseException:
                if not snapshots.exists():
                    folder.remove()
                raise
        folder.remove()


def _locked(folder: Place) -> AbstractContextManager[object]:
    """Return the sole right to a folder of a disk; in a bucket a killed solve would hold it for a minute."""
    return writer_lock(folder) if isinstance(folder, DiskPlace) else nullcontext()


def _tell_what_is_discarded(snapshots: Snapshots) -> None:
    """Tell of passes of an earlier run that are about to be removed, and whether it could have gone on."""
    try:
        n_passes = passes_kept(snapshots)
    except CorruptStoreError:  # nothing that anybody could go on with
        return
    except InvalidInputError:
        logger.warning("What %s keeps of a run with other parameters or data is discarded.", snapshots.folder)
        return
    if n_passes is not None:
        logger.warning(
            "What an earlier run kept in %s (passes: %d) is discarded; "
            "resume=True (--resume) would have gone on with it.",
            *(snapshots.folder, n_passes),
        )


@contextmanager
def telling_what_is_kept(out: str | os.PathLike[str]) -> Iterator[None]:
    """Tell how to go on when the ``with`` block fails or is interrupted, if a solve can go on."""
    try:
        yield
    except BaseException:
        if is_kept(out):
            folder = partial_folder(out)
            logger.warning("What is done is kept in %s; run again with resume=True (--resume).", folder)
        raise


def is_kept(out: str | os.PathLike[str]) -> bool:
    """Return whether there is an unfinished solve to take up whose result will go to ``out``."""
    return Snapshots(partial_folder(out), {}).exists()


def partial_folder(out: str | os.PathLike[str]) -> Place:
    """Return the folder that holds an unfinished solve whose result will go to ``out``."""
    place = place_of(out)
    return place.sibling(f"{place.name}.partial")
