"""Resumable runs: what is finished is kept in a folder next to the output.

The rules are those of every solve: repeating an interrupted call resumes it, repeating a finished one returns
its result, other parameters raise an error that names the difference, and ``overwrite`` starts over.
"""

from __future__ import annotations

import json
import logging
import shutil
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from reprlib import repr as short
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from bigcons.disk.checkpoint import Seal, differences, key_of
from bigcons.disk.commit import (
    is_store,
    names_parquet,
    read_manifest,
    refuse_existing,
    refuse_other,
    unless_overwriting,
)
from bigcons.disk.interface import Place, StorePath
from bigcons.disk.leftovers import is_left, temporary_folder
from bigcons.disk.locks import sweep_locks, writer_lock
from bigcons.disk.places import DiskPlace, atomic_file, disk_errors, place_of
from bigcons.disk.reading import open_file, read_json
from bigcons.errors import CorruptStoreError, StoreError, StoreLockedError, first_line
from bigcons.memory import Block
from bigcons.validation import check_flag

if TYPE_CHECKING:
    from bigcons.store.ensemble import Ensemble

_log = logging.getLogger(__name__)

_PARAMETERS = "parameters.json"
_SEED = "seed"
_CHECKSUM = "checksum"
_KEPT = {
    "trained sets of centers": "centers-*.npy",
    "blocks of labels": "labels-*.npy",
}
_READ = "read"
_OF_FEATURES = ("ids", "columns", "features", "features_checksum")
"""What comes of the features and how they are read: where one differs, so may those that follow."""
_VERSIONS = ("bigcons", "scikit_learn")
"""Entries in which a finished result may differ."""


class Scratch:
    """A folder of finished arrays, one file each, written atomically and sealed, and their parameters.

    ``run`` are the 16 bytes that identify the parameters and the seed in the seals of files.
    """

    def __init__(self, folder: Path, seed: int, run: bytes) -> None:
        self.folder = folder
        self.seed = seed
        self.run = run

    def centers(self, u: int) -> Path:
        """Return the file of the set of centers of which partition ``u`` is the first."""
        return self.folder / f"centers-{u:06d}.npy"

    def block(self, block: Block) -> Path:
        """Return the file of the labels of a block of objects in all partitions."""
        return self.folder / f"labels-{block.start}-{block.stop}.npy"

    def write(self, path: Path, values: np.ndarray) -> None:
        """Write a file durably and atomically."""
        with self.writing(path) as file:
            np.save(file, values)

    @contextmanager
    def writing(self, path: Path) -> Iterator[SealedFile]:
        """Yield a file to write, durably and atomically, which is sealed at the end."""
        with disk_errors(path), atomic_file(path) as file:
            sealed = SealedFile(file)
            yield sealed
            file.write(self._seal(path).of(sealed.checksum))

    def has(self, path: Path) -> bool:
        """Return whether a file is there; one that is damaged or not of this run and name is removed.

        Cost: reads the file.
        """
        try:
            with open_file(path) as file:
                left, checksum = path.stat().st_size - Seal.n_bytes, 0
                while left > 0 and (content := file.read(min(left, 1 << 20))):
                    checksum = zlib.crc32(content, checksum)
                    left -= len(content)
                fault = self._seal(path).fault(file.read(), checksum)
        except FileNotFoundError:
            return False
        if fault is not None:
            _log.warning("%s is damaged, or of another place or run; it is made again", path)
            path.unlink()
        return fault is None

    def _seal(self, path: Path) -> Seal:
        return Seal(key_of([self.run.hex(), path.name]), 0, 0)


class SealedFile:
    """A file that is written, and the CRC-32 of what was."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.name: str = file.name
        self.checksum: int = 0

    def write(self, content: Any) -> int:
        """Write more."""
        self.checksum = zlib.crc32(content, self.checksum)
        return self._file.write(content)


def find_finished(out: StorePath | None, asked: Mapping[str, Any], *, overwrite: bool) -> Ensemble | None:
    """Return the ensemble of a finished call at ``out``; None if ``out`` is free or may be overwritten.

    Raises StoreExistsError for anything else at ``out``; for an ensemble with other parameters than those
    ``asked`` for, the error names the difference. A parameter that is None matches any value.
    """
    check_flag("overwrite", overwrite)
    if out is None:
        return None
    place = place_of(out)
    if not overwrite and is_store(place) and read_manifest(place).get("kind") == "ensemble":
        from bigcons.store.ensemble import Ensemble

        finished = Ensemble.open(str(place))
        if "generator" in finished.provenance:
            _check_same(finished, asked)
            return finished
    refuse_existing(place, overwrite, "ensemble")
    if names_parquet(place):
        from bigcons.store.parquet_ensemble import refuse_wide

        refuse_wide(place, int(asked.get("n_partitions") or 0))
    return None


def take_finished(finished: Ensemble, asked: Mapping[str, Any]) -> Ensemble:
    """Return a finished ensemble after checking that its data are those ``asked`` for."""
    _check_same(finished, asked)
    _log.info("%s holds the finished result of this call: nothing is left to compute", finished.path)
    place = place_of(finished.path or "")
    if isinstance(place, DiskPlace):
        if (folder := _folder(place.path)).exists():
            _clear_finished(folder, finished)
        sweep_locks(place.path)
    return finished


def _clear_finished(folder: Path, finished: Ensemble) -> None:
    """Remove what a call left that was killed after its result was committed; leave that of another call."""
    record = folder / _PARAMETERS
    with suppress(CorruptStoreError, StoreLockedError), writer_lock(folder):
        if record.exists():
            found, seed = _read_record(record)
            of_finished = {**finished.provenance, "n_partitions": finished.n_partitions}
            if differences(of_finished, {**found, _SEED: seed}):
                return
        shutil.rmtree(folder, ignore_errors=True)


def _check_same(finished: Ensemble, asked: Mapping[str, Any]) -> None:
    found = {**finished.provenance, "n_partitions": finished.n_partitions, "n_objects": finished.n_objects}
    wanted = json.loads(json.dumps(asked))
    wanted = {name: new for name, new in wanted.items() if name not in _VERSIONS and new is not None}
    refuse_other(finished.path or "", _told(found, wanted))


def _told(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Describe how what was made differs from what is wanted; "" if it does not.

    Features differ in what they are or in how they were read. The options that say so differ alone where
    they change nothing; where other features come of them, they are told in the place of these.
    """
    other = [name for name in _OF_FEATURES if name in wanted and found.get(name) != wanted[name]]
    was, asked = (entries.get(_READ) or {} for entries in (found, wanted))
    of_options = differences({**dict.fromkeys(asked), **was}, {**dict.fromkeys(was), **asked})
    left_out = {_READ, *(other if of_options else other[1:])}
    rest = {name: value for name, value in wanted.items() if name not in left_out}
    return "; ".join(filter(None, [of_options if other else "", differences(found, rest, short)]))


@contextmanager
def local_output(out: Place, overwrite: bool) -> Iterator[Path]:
    """Yield the path of ``out`` or, if that is in a bucket, a temporary path, which a kill loses.

    If the ``with`` block fails or is interrupted, log how to resume from what is finished, unless that is
    another writer's.
    """
    if not isinstance(out, DiskPlace):
        with temporary_folder() as folder:
            _log.info("%s is in a bucket: partitions are kept in %s; a killed call starts over", out, folder)
            with writer_lock(out.sibling(f"{out.name}.partial")):
                yield folder / "ensemble"
        return
    try:
        yield out.path
    except StoreLockedError:
        raise
    except BaseException:
        folder = _folder(out.path)
        counts = [f"{n} {what}" for what, pattern in _KEPT.items() if (n := len(list(folder.glob(pattern))))]
        if counts:
            _log.warning(
                "%s are kept in %s; repeat the call%s to resume.",
                *(" and ".join(counts), folder, unless_overwriting(out, overwrite)),
            )
        raise


def _folder(out: Path) -> Path:
    return out.with_name(f"{out.name}.partial")


def kept_seed(out: StorePath | None) -> int | None:
    """Return the seed of the interrupted call with this output; None if there is none to resume."""
    place = None if out is None else place_of(out)
    if not isinstance(place, DiskPlace) or not (record := _folder(place.path) / _PARAMETERS).exists():
        return None
    return _read_record(record)[1]


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
        for left in filter(is_left, folder.glob(".*.partial")):
            left.unlink(missing_ok=True)
        seed = _join(folder, parameters, seed, seed_is_given=seed_is_given)
        determining = {name: value for name, value in parameters.items() if name != _READ}
        yield Scratch(folder, seed, key_of({**determining, _SEED: seed}))
        shutil.rmtree(folder)


def _join(folder: Path, parameters: dict[str, Any], seed: int, *, seed_is_given: bool) -> int:
    """Start a scratch folder, or check that an existing one matches; return the seed to use."""
    record = folder / _PARAMETERS
    wanted = json.loads(json.dumps(parameters))
    if not record.exists():
        with disk_errors(record), atomic_file(record) as file:
            file.write(json.dumps(_with_checksum({**wanted, _SEED: seed}), indent=1).encode())
        return seed
    found, old_seed = _read_record(record)
    if seed_is_given:
        wanted[_SEED], found[_SEED] = seed, old_seed
    if told := _told(found, {**dict.fromkeys(found), **wanted}):
        raise StoreError(
            f"{folder} holds partitions made with {told}; "
            "repeat the call that made them, or start over with overwrite=True (--overwrite).",
            path=folder,
        )
    return old_seed


def _read_record(record: Path) -> tuple[dict[str, Any], int]:
    """Return the parameters of an interrupted call and its seed; raises CorruptStoreError if damaged."""
    try:
        content = read_json(DiskPlace(record), 1 << 20)
        found = {name: value for name, value in content.items() if name != _CHECKSUM}
        if content != _with_checksum(found):
            raise ValueError("wrong checksum")
        seed = int(found.pop(_SEED))
    except (KeyError, TypeError, ValueError, AttributeError, CorruptStoreError) as error:
        raise CorruptStoreError(
            f"{record} is damaged ({first_line(error)}), so that what is finished next to it cannot be used; "
            "start over with overwrite=True (--overwrite).",
            path=record,
        ) from None
    return found, seed


def _with_checksum(facts: dict[str, Any]) -> dict[str, Any]:
    return {**facts, _CHECKSUM: zlib.crc32(json.dumps(facts, sort_keys=True).encode())}
