"""Resumable runs: what is finished is kept in a folder next to the output.

The rules are those of every solve: repeating an interrupted call resumes it, repeating a finished one returns
its result, other parameters raise an error that names the difference, and ``overwrite`` starts over.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from reprlib import repr as short
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.errors import StoreError, StoreExistsError
from bigcons.memory import Block
from bigcons.storage.checkpoint import differences
from bigcons.storage.commit import is_store, read_manifest, refuse_existing
from bigcons.storage.interface import Place, StorePath
from bigcons.storage.locks import writer_lock
from bigcons.storage.places import DiskPlace, atomic_file, disk_errors, place_of

if TYPE_CHECKING:
    from bigcons.stores.ensemble import Ensemble

_log = logging.getLogger(__name__)

_PARAMETERS = "parameters.json"
_SEED = "seed"
_KEPT = {
    "finished partitions": "partition-*.npy",
    "trained partitions": "centers-*.npy",
    "blocks of labels": "labels-*.npy",
}
_VERSIONS = ("bigcons", "scikit_learn")
"""Entries in which a finished result may differ."""


class Scratch:
    """A folder of finished arrays, one file each, written atomically, and their parameters."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.seed = seed

    def partition(self, u: int) -> Path:
        """Return the file of the labels of partition ``u``."""
        return self.folder / f"partition-{u:06d}.npy"

    def centers(self, u: int) -> Path:
        """Return the file of the centers of partition ``u``."""
        return self.folder / f"centers-{u:06d}.npy"

    def block(self, block: Block) -> Path:
        """Return the file of the labels of a block of objects in all partitions."""
        return self.folder / f"labels-{block.start}-{block.stop}.npy"

    def write_centers(self, u: int, centers: np.ndarray) -> None:
        """Write the centers of partition ``u``."""
        self.write(self.centers(u), centers)

    def write(self, path: Path, values: np.ndarray) -> None:
        """Write a file durably and atomically."""
        with disk_errors(path), atomic_file(path) as file:
            np.save(file, values)


def find_finished(
    out: StorePath | None, asked: Mapping[str, Any], *, overwrite: bool, resume: bool = True
) -> Ensemble | None:
    """Return the ensemble of a finished call at ``out``; None if ``out`` is free or may be overwritten.

    Raises StoreExistsError for anything else at ``out``; for an ensemble with other parameters than those
    ``asked`` for, the error names the difference. A parameter that is None matches any value.
    """
    if out is None:
        return None
    place = place_of(out)
    if resume and not overwrite and is_store(place) and read_manifest(place).get("kind") == "ensemble":
        from bigcons.stores.ensemble import Ensemble

        finished = Ensemble.open(str(place))
        if "generator" in finished.provenance:
            _check_same(finished, asked)
            return finished
    refuse_existing(place, overwrite)
    return None


def take_finished(finished: Ensemble, asked: Mapping[str, Any]) -> Ensemble:
    """Return a finished ensemble after checking that its data are those ``asked`` for."""
    _check_same(finished, asked)
    _log.info("%s holds the finished result of this call: nothing is left to compute", finished.path)
    return finished


def _check_same(finished: Ensemble, asked: Mapping[str, Any]) -> None:
    found = {"train": "all", **finished.provenance}  # results of older versions do not say it
    found |= {"n_partitions": finished.n_partitions, "n_objects": finished.n_objects}
    wanted = json.loads(json.dumps(asked))
    wanted = {name: new for name, new in wanted.items() if name not in _VERSIONS and new is not None}
    if told := differences(found, wanted, short):
        raise StoreExistsError(
            f"{finished.path} exists and was made with {told}; "
            "pass overwrite=True (--overwrite) to replace it, or choose another path.",
            path=finished.path,
        )


@contextmanager
def local_output(out: Place) -> Iterator[Path]:
    """Yield the path of ``out`` or, if that is in a bucket, a temporary path, which a kill loses.

    If the ``with`` block fails or is interrupted, log how to resume from what is finished.
    """
    if not isinstance(out, DiskPlace):
        with tempfile.TemporaryDirectory(prefix="bigcons-") as name:
            _log.info("%s is in a bucket: partitions are kept in %s; a killed call starts over", out, name)
            yield Path(name, "ensemble")
        return
    try:
        yield out.path
    except BaseException:
        folder = _folder(out.path)
        counts = [f"{n} {what}" for what, pattern in _KEPT.items() if (n := len(list(folder.glob(pattern))))]
        if counts:
            _log.warning(
                "%s are kept in %s; the same call, without overwrite, resumes%s.",
                *(" and ".join(counts), folder, f" once {out} is moved away" if is_store(out) else ""),
            )
        raise


def _folder(out: Path) -> Path:
    return out.with_name(f"{out.name}.partial")


def kept_seed(out: StorePath | None) -> int | None:
    """Return the seed of the interrupted call with this output; None if there is none to resume."""
    place = None if out is None else place_of(out)
    if not isinstance(place, DiskPlace) or not (record := _folder(place.path) / _PARAMETERS).exists():
        return None
    return int(json.loads(record.read_text(encoding="utf-8"))[_SEED])


@contextmanager
def open_scratch(
    out: Path, parameters: dict[str, Any], *, seed: int, seed_is_given: bool, resume: bool
) -> Iterator[Scratch]:
    """Lock and yield the scratch folder of ``out``; it is removed when the ``with`` block succeeds.

    After an error, an interrupt or a kill it remains, and the next call with the same ``parameters`` resumes
    from it, with its seed unless another is given. Without ``resume``, its content is discarded. Raises
    StoreError if its parameters differ, StoreLockedError if another process uses it.
    """
    folder = _folder(out)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with writer_lock(folder):
        if not resume:
            shutil.rmtree(folder, ignore_errors=True)
        yield Scratch(folder, _join(folder, parameters, seed, seed_is_given=seed_is_given))
        shutil.rmtree(folder)


def _join(folder: Path, parameters: dict[str, Any], seed: int, *, seed_is_given: bool) -> int:
    """Start a scratch folder, or check that an existing one matches; return the seed to use."""
    record = folder / _PARAMETERS
    wanted = json.loads(json.dumps(parameters))
    if not record.exists():
        with disk_errors(record), atomic_file(record) as file:
            file.write(json.dumps({**wanted, _SEED: seed}, indent=1).encode())
        return seed
    found = json.loads(record.read_text(encoding="utf-8"))
    old_seed = int(found.pop(_SEED))
    if seed_is_given:
        wanted[_SEED], found[_SEED] = seed, old_seed
    if told := differences(found, {**dict.fromkeys(found), **wanted}, short):
        raise StoreError(
            f"{folder} holds partitions made with {told}; "
            "repeat the call that made them, or start over with overwrite=True (--overwrite).",
            path=folder,
        )
    return old_seed
