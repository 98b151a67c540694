"""Where a result is stored, which run it is of, and what earlier runs have left there."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any, NamedTuple

from bigcons.disk.checkpoint import Snapshots
from bigcons.disk.commit import stored_kind, unless_overwriting
from bigcons.disk.interface import Place
from bigcons.disk.leftovers import temporary_folder
from bigcons.disk.locks import sweep_locks, writer_lock
from bigcons.disk.places import DiskPlace, place_of
from bigcons.errors import CorruptStoreError, StoreLockedError
from bigcons.io.files import IN_MEMORY
from bigcons.store.consensus import KIND, Consensus
from bigcons.store.opening import partial_folder

logger: logging.Logger = logging.getLogger("bigcons")


class Output(NamedTuple):
    """Where a result is stored, and what identifies its run."""

    path: str | os.PathLike[str]
    overwrite: bool
    """Whether it replaces an existing store."""
    resume: bool
    """Whether an unfinished run to this path continues; otherwise it is discarded."""
    fingerprint: dict[str, Any]
    """Method, parameters, seed and labels: a run continues only with the same."""
    source: str = IN_MEMORY
    """What the labels are read from, in words."""
    read: Mapping[str, Any] = MappingProxyType({})
    """The entry of the provenance with what was chosen of a table, and how it was read."""


@contextmanager
def scratch_place(output: Output | None) -> Iterator[Place]:
    """Yield a place for a store that a solve needs until it ends, which all of its workers can reach.

    It is in the folder of the unfinished solve or, without ``output``, in a temporary one.
    """
    if output is None:
        with temporary_folder() as directory:
            yield place_of(directory) / "scratch.zarr"
        return
    folder = partial_folder(output.path)
    for name in folder.names():
        if name.startswith("scratch-"):  # of a killed run
            (folder / name).remove()
    place = (
        folder / f"scratch-{uuid.uuid4().hex}.zarr"
    )  # in a bucket a killed run keeps its lock for a minute
    try:
        yield place
    finally:
        place.remove()


@contextmanager
def logging_how_to_resume(out: str | os.PathLike[str], overwrite: bool) -> Iterator[None]:
    """Log how to resume if the ``with`` block fails or is interrupted with finished passes on file.

    Those of a writer that is still at work are not the caller's to resume.
    """
    try:
        yield
    except StoreLockedError:
        raise
    except BaseException:
        if can_resume(out):
            logger.warning(
                "Finished passes are kept in %s; repeat the call%s to resume.",
                *(partial_folder(out), unless_overwriting(out, overwrite)),
            )
        raise


def can_resume(out: str | os.PathLike[str]) -> bool:
    """Return whether an unfinished solve with output ``out`` can be resumed."""
    return Snapshots(partial_folder(out), {}).exists()


def finished_run(out: str | os.PathLike[str]) -> Consensus | None:
    """Return the result that a finished ``fit`` stored at ``out``, None if there is none."""
    if stored_kind(out) != KIND:
        return None
    consensus = Consensus.open(out)
    return consensus if "run" in consensus.provenance else None


def clear_finished(output: Output) -> None:
    """Remove the checkpoints and locks of a run that was killed after its result was committed, on a disk.

    Those of another run, which is to replace the result, and of one that is still running stay.
    """
    place, folder = place_of(output.path), partial_folder(output.path)
    if not isinstance(place, DiskPlace):
        return
    if folder.exists():
        snapshots = Snapshots(folder, output.fingerprint)
        with suppress(CorruptStoreError, StoreLockedError), writer_lock(folder):
            if snapshots.fingerprint_kept() in (None, snapshots.fingerprint):
                folder.remove()
    sweep_locks(place.path)


def seed_of_run(out: str | os.PathLike[str], finished: Consensus | None) -> int | None:
    """Return the seed of the ``finished`` run, or of the unfinished run with output ``out``, if any."""
    if finished is not None:
        return int(finished.provenance["seed"])
    try:
        kept = Snapshots(partial_folder(out), {}).fingerprint_kept()
    except CorruptStoreError:
        return None  # resuming raises it
    seed = (kept or {}).get("seed")
    return seed if isinstance(seed, int) else None  # resuming raises what is wrong


def refuse_conflicting_run(output: Output) -> None:
    """Raise InvalidInputError if an unfinished run with other parameters or data has the same output."""
    Snapshots(partial_folder(output.path), output.fingerprint).load()
