"""What generators keep next to their output, so that repeating an interrupted call resumes it.

The rules are those of every solve: repeating an interrupted call resumes it, repeating a finished one returns
its result, other parameters raise an error that names the difference, and ``overwrite`` starts over.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from reprlib import repr as short
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.disk.checkpoint import differences, key_of
from bigcons.disk.commit import (
    names_parquet,
    refuse_existing,
    refuse_other,
    stored_kind,
    unless_overwriting,
)
from bigcons.disk.files import StorePath, read_json
from bigcons.disk.locks import sweep_locks, writer_lock
from bigcons.disk.places import DiskPlace, atomic_file, disk_errors, is_left, place_of
from bigcons.errors import CorruptStoreError, StoreError, StoreLockedError, first_line

if TYPE_CHECKING:
    from bigcons.store.ensemble import Ensemble

_log = logging.getLogger(__name__)

_KEPT = {"trained sets of centers": "centers-*.npy", "blocks of labels": "labels-*.npy"}
_OF_FEATURES = ("ids", "columns", "features", "features_checksum")
"""What comes of the features and how they are read: where one differs, so may those that follow."""


class Scratch:
    """A folder of finished arrays, one file each with a digest, of the run that a key identifies."""

    def __init__(self, folder: Path, key: bytes) -> None:
        self._folder = folder
        self._key = key

    def save(self, name: str, values: np.ndarray) -> None:
        """Write an array, durably and atomically."""
        path, content = self._folder / f"{name}.npy", io.BytesIO()
        np.save(content, values)
        with disk_errors(path), atomic_file(path) as file:
            file.write(content.getbuffer())
            file.write(self._digest(name, content.getbuffer()))

    def load(self, name: str) -> np.ndarray | None:
        """Return an array; None if there is none, or it is damaged or of another run, and so removed."""
        path = self._folder / f"{name}.npy"
        try:
            content = memoryview(path.read_bytes())
        except FileNotFoundError:
            return None
        if content[-16:] == self._digest(name, content[:-16]):
            values: np.ndarray = np.load(io.BytesIO(content[:-16]))
            return values
        _log.warning("%s is damaged, or of another place or run; it is made again", path)
        path.unlink()
        return None

    def _digest(self, name: str, content: memoryview) -> bytes:
        digest = hashlib.blake2b(content, digest_size=16, key=self._key)
        digest.update(name.encode())
        return digest.digest()


def find_finished(out: StorePath | None, asked: Mapping[str, Any], *, overwrite: bool) -> Ensemble | None:
    """Return the ensemble of a finished call at ``out``; None if ``out`` is free or may be overwritten.

    Raises StoreExistsError for anything else at ``out``; for an ensemble with other parameters than those
    ``asked`` for, the error names the difference. A parameter that is None matches any value.
    """
    if out is None:
        return None
    place = place_of(out)
    if not overwrite and stored_kind(place) == "ensemble":
        from bigcons.store.ensemble import Ensemble

        finished = Ensemble.open(str(place))
        if "generator" in finished.provenance:
            check_same(finished, asked)
            return finished
    refuse_existing(place, overwrite, "ensemble")
    if names_parquet(place):
        from bigcons.store.parquet import refuse_wide

        refuse_wide(place, int(asked["n_partitions"]))
    return None


def check_same(finished: Ensemble, asked: Mapping[str, Any]) -> None:
    """Raise StoreExistsError if an ensemble was made with other parameters than those ``asked`` for."""
    made_with = {**finished.provenance, "n_partitions": finished.n_partitions}
    wanted = json.loads(json.dumps(asked))
    wanted = {name: value for name, value in wanted.items() if value is not None}
    wanted = {name: value for name, value in wanted.items() if name not in ("bigcons", "scikit_learn")}
    refuse_other(finished.path or "", _difference(made_with, wanted))


def _difference(made_with: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Describe how what was made differs from what is wanted; "" if it does not.

    Features differ in what they are or in how they were read. The options of reading matter only where other
    features come of them, and are then named in the place of these.
    """
    other = [name for name in _OF_FEATURES if name in wanted and made_with.get(name) != wanted[name]]
    was, asked = (entries.get("read") or {} for entries in (made_with, wanted))
    options = differences({**dict.fromkeys(asked), **was}, {**dict.fromkeys(was), **asked})
    left_out = {"read", *(other if options else other[1:])}
    rest = {name: value for name, value in wanted.items() if name not in left_out}
    return "; ".join(filter(None, [options if other else "", differences(made_with, rest, short)]))


def clear_finished(finished: Ensemble) -> None:
    """Remove what a call left that was killed after its result was committed; leave that of another call."""
    place = place_of(finished.path or "")
    _log.info("%s holds the finished result of this call: nothing is left to compute", place)
    if not isinstance(place, DiskPlace):
        return
    folder = _folder(place.path)
    if folder.exists():
        with suppress(CorruptStoreError, StoreLockedError), writer_lock(folder):
            found = _parameters_in(folder) or {}
            made_with = {**finished.provenance, "n_partitions": finished.n_partitions}
            if not differences(made_with, found):
                shutil.rmtree(folder, ignore_errors=True)
    sweep_locks(place.path)


def kept_seed(out: StorePath | None) -> int | None:
    """Return the seed of the interrupted call with this output; None if there is none to resume."""
    place = None if out is None else place_of(out)
    found = _parameters_in(_folder(place.path)) if isinstance(place, DiskPlace) else None
    return None if found is None else int(found["seed"])


@contextmanager
def open_scratch(
    out: StorePath | None, parameters: dict[str, Any], *, overwrite: bool
) -> Iterator[Scratch | None]:
    """Lock and yield the scratch of ``out``; it is removed when the ``with`` block succeeds.

    After an error, an interrupt or a kill it remains, and the next call with the same ``parameters`` resumes
    from it. With ``overwrite``, its content is discarded. Raises StoreError if its parameters differ,
    StoreLockedError if another process uses it. None for a result in memory, or in a bucket, which is
    computed as a whole.
    """
    place = None if out is None else place_of(out)
    if not isinstance(place, DiskPlace):
        yield None
        return
    folder = _folder(place.path)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with writer_lock(folder):
        if overwrite:
            shutil.rmtree(folder, ignore_errors=True)
        for left in filter(is_left, folder.glob(".*.partial")):
            left.unlink(missing_ok=True)
        wanted, record = json.loads(json.dumps(parameters)), folder / "parameters.json"
        if (found := _parameters_in(folder)) is None:
            with disk_errors(record), atomic_file(record) as file:
                file.write(json.dumps(wanted, indent=1).encode())
        elif difference := _difference(found, {**dict.fromkeys(found), **wanted}):
            raise StoreError(
                f"{folder} holds partitions made with {difference}; "
                "repeat the call that made them, or start over with overwrite=True (--overwrite).",
                path=folder,
            )
        try:
            yield Scratch(folder, key_of({name: wanted[name] for name in wanted if name != "read"}))
        except BaseException:
            kept = {what: len(list(folder.glob(pattern))) for what, pattern in _KEPT.items()}
            if counts := " and ".join(f"{n} {what}" for what, n in kept.items() if n):
                repeat = f"repeat the call{unless_overwriting(place, overwrite)} to resume."
                _log.warning("%s are kept in %s; %s", counts, folder, repeat)
            raise
        shutil.rmtree(folder)


def _folder(out: Path) -> Path:
    return out.with_name(f"{out.name}.partial")


def _parameters_in(folder: Path) -> dict[str, Any] | None:
    """Return the parameters of an interrupted call, None if there is none; CorruptStoreError if damaged."""
    record = folder / "parameters.json"
    try:
        found: dict[str, Any] = read_json(DiskPlace(record), 1 << 20)
        int(found["seed"])
        return found
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError, CorruptStoreError) as error:
        raise CorruptStoreError(
            f"{record} is damaged ({first_line(error)}), so that what is finished next to it cannot be used; "
            "start over with overwrite=True (--overwrite).",
            path=record,
        ) from None
