"""Work that survives a kill: finished partitions in a directory beside the output."""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from reprlib import repr as short
from typing import Any

import numpy as np

from bigcons.errors import StoreError
from bigcons.storage.locks import writer_lock
from bigcons.storage.places import DiskPlace, Place, disk_errors

_log = logging.getLogger(__name__)

_PARAMETERS = "parameters.json"
_SEED = "seed"


class Scratch:
    """A directory of finished partitions, one small file each, and the parameters they were made with.

    A file is written under another name and renamed when it is whole, so every file that bears a
    partition's name counts.
    """

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.seed = seed

    def partition(self, u: int) -> Path:
        """Return the file of partition ``u``."""
        return self.directory / f"partition-{u:06d}.npy"

    def write_partition(self, u: int, labels: np.ndarray) -> None:
        """Write the labels of partition ``u``, durably and in one step."""
        with replacing(self.partition(u)) as partial, partial.open("wb") as file:
            np.save(file, labels)

    def unfinished(self, n_partitions: int) -> list[int]:
        """Return the partitions that have no file yet."""
        return [u for u in range(n_partitions) if not self.partition(u).exists()]


@contextmanager
def local_output(out: Place) -> Iterator[Path]:
    """Yield the path of ``out``, or for one in a bucket a temporary path: a kill loses what is there."""
    if isinstance(out, DiskPlace):
        with _telling_what_is_kept(out.path):
            yield out.path
        return
    with tempfile.TemporaryDirectory(prefix="bigcons-") as directory:
        _log.info("%s is in a bucket: partitions wait in %s; a killed call starts anew", out, directory)
        yield Path(directory, "ensemble")


@contextmanager
def _telling_what_is_kept(out: Path) -> Iterator[None]:
    """Tell how to go on when partitions are finished and the ``with`` block fails or is interrupted."""
    try:
        yield
    except BaseException:
        directory = _directory(out)
        n_finished = len(list(directory.glob("partition-*.npy")))
        if n_finished:
            _log.warning(
                "%d finished partitions are kept in %s; run again with the same parameters to go on.",
                n_finished,
                directory,
            )
        raise


def _directory(out: Path) -> Path:
    return out.with_name(f"{out.name}.partial")


@contextmanager
def open_scratch(
    out: Path, parameters: dict[str, Any], *, seed: int, seed_is_given: bool, resume: bool
) -> Iterator[Scratch]:
    """Hold the scratch directory of ``out``; it is removed when the ``with`` block succeeds.

    After an error, an interrupt or a kill it stays, and the next call with the same ``parameters``
    goes on from it; if that call gives no seed, it takes the seed of the first. ``resume=False``
    discards what it holds. Raises StoreError if it was made with other parameters, StoreLockedError
    if another process works on it.
    """
    directory = _directory(out)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with writer_lock(directory):
        if not resume:
            shutil.rmtree(directory, ignore_errors=True)
        seed = _join(directory, parameters, seed, seed_is_given=seed_is_given)
        yield Scratch(directory, seed)
        shutil.rmtree(directory)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path to write to; it becomes ``path``, durably, when the ``with`` block succeeds."""
    partial = path.with_name(f"{path.name}.part")
    with disk_errors(path):
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.replace(path)


def _join(directory: Path, parameters: dict[str, Any], seed: int, *, seed_is_given: bool) -> int:
    """Begin a scratch directory or check that an old one fits; return the seed to work with."""
    record = directory / _PARAMETERS
    wanted = json.loads(json.dumps(parameters))
    if not record.exists():
        directory.mkdir(exist_ok=True)
        with replacing(record) as partial:
            partial.write_text(json.dumps({**wanted, _SEED: seed}, indent=1), encoding="utf-8")
        return seed
    found = json.loads(record.read_text(encoding="utf-8"))
    old_seed = int(found.pop(_SEED))
    if seed_is_given:
        wanted[_SEED], found[_SEED] = seed, old_seed
    for name in {**found, **wanted}:
        old, new = found.get(name), wanted.get(name)
        if old != new:
            raise StoreError(
                f"{directory} holds partitions made with {name}={short(old)}, not {short(new)}; "
                "repeat the call that began them, or pass resume=False to discard them."
            )
    return old_seed
