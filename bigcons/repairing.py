"""Repair of damaged stores: what can be made again from their sources is, and the rest is named.

The manifest of a store has a checksum of every piece of it, and how the store was made. A repair writes the
store anew: each piece as it is stored if it has its checksum, else as it is made again if that has it. One
seed gives the same bits on any engine, so what is made again is what was lost, and the checksum proves it.
The store is replaced in one step, after the new one has been verified; otherwise it stays as it was.
"""

from __future__ import annotations

import filecmp
import itertools
import logging
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from bigcons.coassociation.sampling import sample_again
from bigcons.errors import (
    BigconsError,
    CorruptStoreError,
    InvalidInputError,
    MemoryBudgetError,
    NotRepairableError,
    StoreError,
    StoreNotFoundError,
    first_line,
)
from bigcons.layout import IDS, Piece, file_names
from bigcons.methods import METHODS
from bigcons.solving.output import Output
from bigcons.storage.arrays import create_array, open_array
from bigcons.storage.checkpoint import Snapshots, differences
from bigcons.storage.commit import (
    manifest_of,
    new_file,
    new_folder_of_files,
    new_store,
    read_manifest,
    write_manifest,
)
from bigcons.storage.interface import Place, StorePath
from bigcons.storage.locks import writer_lock
from bigcons.storage.places import place_of
from bigcons.stores.consensus import PLACING, TREE, Consensus
from bigcons.stores.ensemble import Ensemble, as_ensemble, import_labels
from bigcons.stores.ids import StoredIds, write_ids
from bigcons.stores.opening import is_unfinished, open_store, partial_folder, verify_store
from bigcons.stores.pair_lists import scratch_beside
from bigcons.stores.pairs import PairTable, ParquetPairTable, import_pairs
from bigcons.stores.store import Manifested, create_arrays, list_arrays, read_layout
from bigcons.tables.files import IN_MEMORY, STANDARD_INPUT, footer_of, is_parquet
from bigcons.tables.ids import Ids
from bigcons.tables.select import select

logger: logging.Logger = logging.getLogger("bigcons")


def repair(
    path: StorePath,
    *,
    source: Any = None,
    memory: str | int | None = None,
    client: object = None,
) -> dict[str, Any]:
    """Verify the store at ``path``, and make again what is damaged in it.

    Pairs that were sampled or imported, results of ``fit``, and ensembles that were imported or hardened are
    made again from their sources, which their provenance names; labels of a consensus also from its
    memberships, and metadata of arrays from the manifest. Every piece that is made again must have the
    checksum that the manifest records, so the store ends with the bits that it had. Then the store is
    replaced in one step. Of an unfinished run whose last pass is damaged, the pass before becomes the last.

    Parameters
    ----------
    path : path or URL
        A store of an ensemble or of pairs, both also in Parquet, or of a consensus, or the output of an
        unfinished solve.
    source : path or anything that `Ensemble.from_labels` takes, default=None
        Where the source is now, if it is neither where it was nor next to the store: the ensemble of pairs
        or of a consensus, the table of an ensemble.
    memory : size, default=None
        Budget for making the source again, as for `sample` and ``fit``.
    client : default=None
        Where to make it: "threads", a Dask client or an address.

    Returns
    -------
    dict
        What ``verify`` returns, with ``repaired``, a list of what was made again, empty if nothing was
        damaged.

    Raises
    ------
    NotRepairableError
        If something cannot be made again: it names what, and the store is as it was.
    MemoryBudgetError
        If the source does not fit.

    Notes
    -----
    The store is read and written once more, which takes as much space on its disk again. A consensus is
    solved again, and pairs are sampled again, as a whole.

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, truth = bc.datasets.planted_ensemble(500, 20, random_state=0)
    >>> _ = bc.MCLA(6, random_state=0).fit(ensemble.save("ensemble.zarr"), out="consensus.zarr")
    >>> bc.repair("consensus.zarr")["repaired"]
    []
    """
    how = _How(place_of(path), source, memory, client)
    if is_parquet(path):
        return _repair_parquet(path, how)
    if is_unfinished(path):
        return _repair_run(path)
    try:
        content = read_manifest(path)
    except CorruptStoreError as error:
        reason = "it says what the store holds: make the store again, or restore it from a copy"
        raise NotRepairableError(path, ["its manifest"], reason) from error
    try:
        return {**open_store(path).verify(), "repaired": []}
    except StoreNotFoundError:
        raise
    except (CorruptStoreError, OSError) as error:
        logger.info("%s", error)
    with scratch_beside(path) as scratch:
        repaired = _write_anew(how, content, scratch)
    return {**open_store(path).verify(), "repaired": repaired}


class _How(NamedTuple):
    """What is repaired, and how its source is made again."""

    place: Place
    source: Any
    memory: str | int | None
    client: object

    def found(self, recorded: Any, what: str) -> Any:
        """Return the source given, or the path recorded if it is there or next to the store."""
        if self.source is not None:
            return self.source
        if not isinstance(recorded, str) or recorded in (IN_MEMORY, STANDARD_INPUT):
            where = STANDARD_INPUT if recorded == STANDARD_INPUT else IN_MEMORY
            raise InvalidInputError(f"{what} was {where}: pass it as source= (--source)")
        beside = self.place.sibling(recorded.rstrip("/").rpartition("/")[2])
        for place in (place_of(recorded), beside):
            if place.exists():
                return str(place)
        raise StoreNotFoundError(f"{what} is no longer at {recorded}: pass its path as source= (--source)")


# Writing a store anew


def _write_anew(how: _How, content: dict[str, Any], scratch: Path) -> list[str]:
    """Replace the store by one whose pieces all have their checksums; return what was made again."""
    found = read_layout(how.place, content["kind"], "it cannot be repaired.")
    layout = found.layout
    body = {**found.body, **({"shared": None} if "shared" in found.body else {})}
    with new_store(how.place, overwrite=True, kind=content["kind"]) as folder:
        if read_manifest(how.place) != content:
            raise StoreError(f"{how.place} has changed since it was opened; try again.", path=how.place)
        new = create_arrays(folder, layout.arrays)
        stored = _Whole(found, scratch / "metadata")
        lost: list[Piece] = []
        for piece in layout.pieces():
            values = stored.read(piece)
            if values is None:
                lost.append(piece)
            else:
                _put(new, piece, values)
        lacking = [name for name in layout.files if not _copy_file(found, folder, name)]
        has_ids = _copy_ids(found, folder)
        if lost or lacking or not has_ids:
            made = _make(how, content["kind"], body, scratch)
            still = [piece for piece in lost if not _put(new, piece, made.read(piece, layout.suffix))]
            missing = [str(piece) for piece in _joined(still)]
            for name in lacking:
                if not _copy_file(found, folder, name, made.files.get(name)):
                    missing.append(layout.files[name][1])
            if not has_ids and not _copy_ids(found, folder, made.ids):
                missing.append("the ids")
            if missing:
                rows = [piece.rows for piece in _joined(still) if piece.rows is not None]
                raise NotRepairableError(how.place, missing, made.reason, rows)
        if layout.arrays:
            list_arrays(folder, body, layout.arrays, layout.suffix)
        write_manifest(folder, content["kind"], body, name=manifest_of(how.place).name)
        open_store(str(folder)).verify()
    repaired = [str(piece) for piece in (*_joined(lost), *_joined(stored.derived))]
    repaired += [layout.files[name][1] for name in lacking]
    repaired += [] if has_ids else ["the ids"]
    return repaired or ["metadata"]


class _Whole:
    """The pieces of a damaged store that are still whole."""

    def __init__(self, found: Manifested, scratch: Path) -> None:
        """Prepare to read with the stored metadata of each array and, where these fail, with their own."""
        self.derived: list[Piece] = []
        """Those read whose labels follow from their memberships."""
        self._readings: list[dict[str, Any]] = [{}, {}]
        elsewhere = found.elsewhere()
        for name, array in found.layout.arrays.items():
            fresh = place_of(scratch) / name
            create_array(fresh, *array)
            stored = dict.fromkeys(array.keys(), found.data / name) | elsewhere
            for reading, place, chunks in (
                (self._readings[0], found.data / name, elsewhere), (self._readings[1], fresh, stored)
            ):  # fmt: skip
                with suppress(StoreError, OSError):
                    opened = open_array(place, chunks)
                    if (opened.shape, opened.dtype) == (array.shape, array.dtype):
                        reading[name] = opened

    def read(self, piece: Piece) -> list[np.ndarray] | None:
        """Return a piece if it has its checksum, else None."""
        for reading in self._readings:
            parts = [_part_of(reading.get(name), piece.part) for name in piece.arrays]
            if piece.arrays == ("labels", "memberships") and parts[1] is not None:
                candidates = [[labels, parts[1]] for labels in (parts[0], *_labels_of(parts[1]))]
            else:
                candidates = [parts]
            for values in candidates:
                if all(part is not None for part in values) and piece.is_proven_by(values):
                    if values[0] is not parts[0]:
                        self.derived.append(piece)
                    return values
        return None


def _part_of(array: Any, part: tuple[slice, ...]) -> Any:
    """Return part of an array, None if it cannot be read."""
    if array is None:
        return None
    try:
        return np.ascontiguousarray(array[part])
    except MemoryError:
        raise
    except Exception:  # codecs raise errors of many types, and disks that fail OSError
        return None


def _labels_of(memberships: np.ndarray) -> Iterator[np.ndarray]:
    """Yield labels that memberships may have: of the largest, and -1 where they are uniform."""
    labels = memberships.argmax(axis=1).astype(np.int32)
    yield labels
    uniform = (memberships == np.float32(1.0 / memberships.shape[1])).all(axis=1)
    yield np.where(uniform, np.int32(-1), labels)


def _put(arrays: Mapping[str, Any], piece: Piece, values: Sequence[np.ndarray] | None) -> bool:
    """Write a piece if it has its checksum; return whether it has."""
    if values is None or not piece.is_proven_by(values):
        return False
    for name, rows in zip(piece.arrays, values, strict=True):
        arrays[name][piece.part] = rows
    return True


def _joined(pieces: list[Piece]) -> list[Piece]:
    """Return pieces with those that follow each other as one."""
    found: list[Piece] = []
    for piece in pieces:
        last = found[-1] if found else None
        follows = last is not None and (last.arrays, last.part[1:]) == (piece.arrays, piece.part[1:])
        if last is None or not follows or last.part[0].stop != piece.part[0].start:
            found.append(piece)
            continue
        part = slice(last.part[0].start, piece.part[0].stop)
        rows = None if last.rows is None or piece.rows is None else (last.rows[0], piece.rows[1])
        found[-1] = last._replace(part=(part, *last.part[1:]), rows=rows)
    return found


def _copy_file(found: Manifested, folder: Place, name: str, source: Place | None = None) -> bool:
    """Copy a file besides the arrays; return whether it has its checksum, or the store has none."""
    checksum, _ = found.layout.files[name]
    if checksum is None:
        return True
    try:
        content = (source or found.data / name).read()
    except OSError:
        return False
    if zlib.crc32(content) != checksum:
        return False
    (folder / name).write(content)
    return True


def _copy_ids(found: Manifested, folder: Place, ids: Ids | None = None) -> bool:
    """Write ids; return whether they are those that the manifest records."""
    entry, suffix = found.body.get("ids"), found.layout.suffix
    if entry is None or not found.layout.arrays:  # files of Parquet hold their ids
        return True
    sizes = (found.body["n_objects"], found.body["chunk_rows"])
    try:
        if ids is None:
            ids = StoredIds(found.data, suffix, entry, *sizes)
        if write_ids(folder, suffix, ids, *sizes) == entry:
            return True
    except (StoreError, KeyError, TypeError, ValueError, OSError):
        pass
    for name in IDS:
        (folder / f"{name}{suffix}").remove()
    return False


# Making what a store holds again


class _Made(NamedTuple):
    """What was made again from a source, if it was."""

    reason: str
    """Why nothing, or not the same, was made."""
    arrays: Callable[[str], Any] = lambda _: None
    """Returns an array by its name in the schema, None if there is none."""
    ids: Ids | None = None
    files: Mapping[str, Place] = MappingProxyType({})
    """Those besides the arrays, by name."""

    def read(self, piece: Piece, suffix: str) -> list[np.ndarray] | None:
        """Return what was made in the place of a piece; None if nothing was."""
        parts = [_part_of(self.arrays(name.removesuffix(suffix)), piece.part) for name in piece.arrays]
        return None if any(part is None for part in parts) else parts


def _make(how: _How, kind: str, body: dict[str, Any], scratch: Path) -> _Made:
    """Make what a store holds again from its source, as far as its provenance says how."""
    makers = {"ensemble": _make_ensemble, "pairs": _make_pairs, "consensus": _make_consensus}
    try:
        return makers[kind](how, body, scratch)
    except MemoryBudgetError:
        raise
    except (BigconsError, OSError) as error:
        return _Made(first_line(error))


_DIFFERS = "what its source gives has another checksum"


def _make_ensemble(how: _How, body: dict[str, Any], scratch: Path) -> _Made:
    made_with = body["provenance"]
    out, made_by = scratch / "ensemble.zarr", made_with.get("made_by")
    if made_by == "harden":
        made = Ensemble.open(how.found(made_with.get("source"), "its soft ensemble")).harden(out)
    elif made_by in ("import_labels", "from_labels"):
        names = list(body["names"])
        ids = body.get("ids")
        made = import_labels(
            how.found(made_with.get("source"), "its table"),
            out,
            id=None if ids is None or ids["is_index"] else ids["name"],
            columns=None if names == [f"p{u}" for u in range(len(names))] else names,
            memory=how.memory or "1GB",
            **made_with.get("read", {}),
        )
    elif "seed" in made_with:
        raise InvalidInputError(
            f"it was generated from {made_with.get('source')} with random_state={made_with['seed']}: "
            "generate it again"
        )
    else:
        raise InvalidInputError("it does not say what it was made from: restore it from a copy")
    dtype = np.dtype(body["dtype"])

    class Labels:
        def __getitem__(self, part: tuple[slice, slice]) -> np.ndarray:
            rows, columns = part
            return made.read(rows.start, rows.stop)[:, columns].astype(dtype)

    if "files" in body:
        again = place_of(scratch / "ensemble.parquet")
        made.save(scratch / "ensemble.parquet", chunk_rows=body["chunk_rows"])
        return _Made(_DIFFERS, files={name: again / name for name in again.names()})
    stored, first = (
        file_names("ensemble", f"-{number}")["categories_checksum"] for number in (body["generation"], 1)
    )
    files = {stored: place_of(out) / first}
    return _Made(_DIFFERS, lambda _: Labels(), made.id_column, files)


def _make_pairs(how: _How, body: dict[str, Any], scratch: Path) -> _Made:
    out = scratch / "pairs.zarr"
    made = _pairs_again(how, body["provenance"], body["n_objects"], body.get("rows_per_block"), out)
    return _Made(_DIFFERS, lambda name: getattr(made._columns, name))


def _pairs_again(
    how: _How, made_with: Mapping[str, Any], n_objects: int, rows_per_block: int | None, out: Path
) -> PairTable:
    """Sample or import pairs again, to a store at ``out``."""
    if "sampled" in made_with:
        ensemble = as_ensemble(how.found(made_with.get("ensemble"), "its ensemble"), soft=True)
        return sample_again(
            ensemble, made_with, rows_per_block, out, memory=how.memory or "1GB", client=how.client
        )
    if "source" not in made_with:
        raise InvalidInputError("it does not say what it was made from: restore it from a copy")
    source = how.found(made_with["source"], "its table")
    return import_pairs(source, out, n_objects=n_objects, memory=how.memory or "1GB")


def _make_consensus(how: _How, body: dict[str, Any], scratch: Path) -> _Made:
    made_with, out = body["provenance"], scratch / "consensus.zarr"
    run, given = made_with.get("run"), dict(body["parameters"])
    classes = {method.__name__: method for method in METHODS.values()}
    method = classes.get(str(given.pop("method", None)))
    if not isinstance(run, dict) or method is None:
        raise InvalidInputError("it is not the result of a fit, which could be repeated")
    source = select(how.found(made_with.get("ensemble"), "its ensemble"), **made_with.get("read", {}))
    ensemble = as_ensemble(source, soft=True)
    model = method()
    known = model.get_params(deep=False)
    free = {"out": None, "client": how.client, "memory": how.memory, "random_state": made_with["seed"]}
    asked = {**{name: value for name, value in given.items() if name not in ("resume",)}, **free}
    model.set_params(**{name: value for name, value in asked.items() if name in known})
    output = Output(out, False, False, model._fingerprint(ensemble, made_with["seed"]))
    if told := differences(run, model._provenance(output)["run"]):
        raise InvalidInputError(f"the run that made it cannot be repeated from what is stored: {told}")
    model.fit(ensemble, out=out)
    made = Consensus.open(out)
    files = {PLACING: place_of(out) / PLACING, TREE: place_of(out) / TREE}
    return _Made(_DIFFERS, made._store.arrays.get, made.id_column, files)


# Pairs in Parquet, and unfinished runs


def _repair_parquet(path: StorePath, how: _How) -> dict[str, Any]:
    """Replace the files of a table of pairs if their footers, and all columns still whole, are made again."""
    table = PairTable.open(path)
    try:
        return {**table.verify(), "repaired": []}
    except (BigconsError, OSError) as error:
        logger.info("%s", error)
    assert isinstance(table, ParquetPairTable)  # noqa: S101 - it is Parquet
    files = table._pairs.files()
    is_folder = how.place.exists() and not how.place.is_file()
    with scratch_beside(path) as scratch:
        try:
            made = _pairs_again(
                how, table.provenance, table.n_objects, table.rows_per_block, scratch / "pairs.zarr"
            )
        except MemoryBudgetError:
            raise
        except (BigconsError, OSError) as error:
            raise NotRepairableError(how.place, ["pairs"], first_line(error)) from error
        made.provenance = table.provenance  # where the source was then
        new = scratch / ("parts" if is_folder else "pairs.parquet")
        n_rows = parquet.read_metadata(files[0]).num_rows
        made.to_parquet(new, pairs_per_file=n_rows if is_folder else None)
        again = sorted(new.iterdir()) if is_folder else [new]
        same_names = not is_folder or [file.name for file in files] == [file.name for file in again]
        if not same_names or not all(map(_agree, files, again)):
            raise NotRepairableError(how.place, ["pairs"], _DIFFERS)
        damaged = [
            file.name for file, other in zip(files, again, strict=True) if not _same_bytes(file, other)
        ]
        if is_folder:
            with new_folder_of_files(path, "part-*.parquet", overwrite=True) as folder:
                for file in again:
                    shutil.copyfile(file, folder / file.name)
        else:
            with new_file(path, overwrite=True) as target, new.open("rb") as content:
                shutil.copyfileobj(content, target, 1 << 20)
    return {**PairTable.open(path).verify(), "repaired": damaged}


def _agree(damaged: Path, again: Path) -> bool:
    """Return whether a file of pairs has the footer of a damaged one, and what is still whole in that."""
    if footer_of(damaged) != footer_of(again):
        return False
    old, new = (parquet.ParquetFile(file, page_checksum_verification=True) for file in (damaged, again))
    for group, name in itertools.product(range(new.num_row_groups), new.schema_arrow.names):
        try:
            found = old.read_row_group(group, columns=[name])
        except (OSError, pa.ArrowException):
            continue
        if not found.equals(new.read_row_group(group, columns=[name])):
            return False
    return True


def _same_bytes(file: Path, other: Path) -> bool:
    return filecmp.cmp(file, other, shallow=False)


def _repair_run(path: StorePath) -> dict[str, Any]:
    """Make the pass before the last one of an unfinished solve, if that is damaged."""
    snapshots = Snapshots(partial_folder(path), {})
    try:
        return {**verify_store(path), "repaired": []}
    except CorruptStoreError as error:
        logger.info("%s", error)
    try:
        snapshots.verify(before=True)
    except CorruptStoreError as error:
        reason = "start over with overwrite=True (--overwrite)"
        raise NotRepairableError(snapshots.folder, ["its last two passes"], reason) from error
    with writer_lock(snapshots.folder):
        snapshots.go_back()
    return {**verify_store(path), "repaired": ["the pass before is the last"]}
