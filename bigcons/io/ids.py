"""The ids of the rows of a table: whole numbers or text, all different, none missing.

A first pass over their column checks their types, and one or more passes, in which 64-bit keys are compared,
that none is repeated; whoever stores them reads it again.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigcons.disk.schema import MISSING
from bigcons.errors import InvalidIdsError, InvalidInputError, first_line
from bigcons.io.codes import unmasked
from bigcons.memory import BLOCK_ROWS
from bigcons.progress import progress

if TYPE_CHECKING:
    import pyarrow as pa

    from bigcons.io.table import Column, Table

TEXT = "text"
NUMBERS = ("int64", "uint64")

_MOST_SUSPECTS = 10_000
_MOST_KEYS = 1 << 24
"""Keys of ids that are compared at a time."""
_WHOLE_NUMBER = r"^(0|-?[1-9][0-9]{0,18})$"


class IdFacts(NamedTuple):
    """What is known of ids besides their values."""

    name: str
    type: str
    """Arrow type of the column that they come from, and in which they are given back."""
    is_index: bool
    """Whether they are the index of a data frame."""
    dtype: str
    """int64, uint64 or text."""
    n_bytes: int
    """Size of the values: 8 for each number, the UTF-8 of text."""
    digest: str
    """Identifies the values in their order."""

    @property
    def in_words(self) -> str:
        """What determines a result: name, type, values."""
        return f"{self.name}, {self.dtype}, crc {self.digest}"


class Ids(ABC):
    """The ids of ``n_objects`` rows, given out as Arrow arrays of int64, uint64 or large_string."""

    facts: IdFacts
    n_objects: int

    @abstractmethod
    def blocks(self, rows: int = BLOCK_ROWS) -> Iterator[Any]:
        """Yield the ids in order, exactly ``rows`` at a time but the last."""

    @property
    def row_bytes(self) -> float:
        """Mean bytes of an id, with its place."""
        return 8 + self.facts.n_bytes / max(self.n_objects, 1)

    @property
    def type(self) -> pa.DataType:
        """Arrow type that they came in."""
        import pyarrow as pa

        of_values = pa.large_string() if self.facts.dtype == TEXT else pa.type_for_alias(self.facts.dtype)
        try:
            found = pa.type_for_alias(self.facts.type)
        except ValueError:  # of a version that knows other types
            return of_values
        is_number = pa.types.is_integer(found)
        return (
            found if is_number or found in (pa.string(), pa.large_string(), pa.string_view()) else of_values
        )

    def as_they_came(self, ids: Any) -> Any:
        """Return ids as an array of the type they came in."""
        return ids.cast(self.type)

    def hold(self) -> HeldIds:
        """Return the ids in memory."""
        import pyarrow as pa

        return HeldIds(pa.concat_arrays(list(self.blocks())), self.facts)


class HeldIds(Ids):
    """Ids in memory."""

    def __init__(self, values: Any, facts: IdFacts) -> None:
        self.facts: IdFacts = facts
        self.n_objects: int = len(values)
        self.values: Any = values

    @classmethod
    def of(cls, values: Any, facts: IdFacts) -> HeldIds:
        """Return other ids than those of ``facts``, in a column of the same name and type."""
        digest = Digest()
        digest.add(values)
        n_bytes = digest.n_bytes if facts.dtype == TEXT else 8 * len(values)
        return cls(values, facts._replace(n_bytes=n_bytes, digest=digest.value))

    def blocks(self, rows: int = BLOCK_ROWS) -> Iterator[Any]:
        """Yield slices."""
        for start in range(0, self.n_objects, rows):
            yield self.values.slice(start, rows)

    def hold(self) -> HeldIds:
        """Return the ids, which are in memory."""
        return self


class TableIds(Ids):
    """The only column of a table, read when asked for."""

    def __init__(self, table: Table, facts: IdFacts, n_objects: int) -> None:
        self.facts: IdFacts = facts
        self.n_objects: int = n_objects
        self._table = table

    def blocks(self, rows: int = BLOCK_ROWS) -> Iterator[Any]:
        """Read the column; raises InvalidIdsError at the end if it has changed since it was checked."""
        digest = Digest()
        for block in regrouped(_blocks_of(self._table, self.facts.name, self.facts.dtype), rows):
            digest.add(block)
            yield block
        if digest.value != self.facts.digest:
            raise InvalidIdsError(
                f"{self._table.where} changed while it was read; pass ids that do not change.",
                column=self.facts.name,
            )


class Digest:
    """The CRC-32 of ids in their order, whatever the blocks."""

    def __init__(self) -> None:
        self._ends, self._text, self._n_bytes = 0, 0, 0

    def add(self, ids: Any) -> None:
        """Add the next ids."""
        ends, text = parts_of(ids, self._n_bytes)
        self._ends = zlib.crc32(ends.data, self._ends)
        self._text = zlib.crc32(text.data, self._text)
        self._n_bytes += len(text)

    @property
    def n_bytes(self) -> int:
        """Bytes of the text."""
        return self._n_bytes

    @property
    def value(self) -> str:
        """The digest of all that was added."""
        return f"{self._ends:08x}{self._text:08x}"


def parts_of(ids: Any, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers and no bytes or, of text, the end of each id and the UTF-8 of all, uint8.

    Ends are those in a text of which ``first`` bytes come before.
    """
    import pyarrow as pa

    if not pa.types.is_large_string(ids.type):
        return np.ascontiguousarray(ids.to_numpy(zero_copy_only=False)), np.empty(0, np.uint8)
    _, offsets, text = ids.buffers()
    ends = np.frombuffer(offsets, np.int64, len(ids) + 1, 8 * ids.offset)
    begin, end = int(ends[0]), int(ends[-1])
    content = np.empty(0, np.uint8) if text is None else np.frombuffer(text, np.uint8)[begin:end]
    return ends[1:] - begin + first, content


def regrouped(blocks: Iterable[Any], rows: int) -> Iterator[Any]:
    """Yield arrays of exactly ``rows`` rows, but the last."""
    import pyarrow as pa

    waiting: list[Any] = []
    n_waiting = 0
    for block in blocks:
        first = 0
        while n_waiting + len(block) - first >= rows:
            part = block.slice(first, rows - n_waiting)
            yield pa.concat_arrays([*waiting, part]) if waiting else part
            first += len(part)
            waiting, n_waiting = [], 0
        if first < len(block):
            waiting.append(block.slice(first))
            n_waiting += len(block) - first
    if waiting:
        yield pa.concat_arrays(waiting)


# Checking


def scan_ids(table: Table, name: str, *, is_index: bool = False) -> TableIds:
    """Read the only column of ``table`` once and return it as ids.

    Raises InvalidIdsError for missing and repeated ids, and for other types than whole numbers and text. In a
    file without types, ids are whole numbers if all of them look like ones that are written without zeros in
    front; else text, as it is in the file.
    """
    try:
        return _scanned(table, name, is_index)
    except InvalidIdsError as error:
        if not is_index:
            raise
        raise InvalidIdsError(
            f"{str(error).rstrip('.')}; or leave out the index, such as by df.reset_index(drop=True) or "
            "drop='index' (--drop index), or name a column of ids (id=, --id).",
            column=error.column,
            row=error.row,
        ) from None


def _scanned(table: Table, name: str, is_index: bool) -> TableIds:
    dtype = whole_or_text(table, name)
    digest, n_objects, source_type = Digest(), 0, ""
    with ExitStack() as stack:
        listener = None
        if table.n_rows is not None:
            listener = stack.enter_context(progress("check the ids", table.n_rows))
        for raw in _raw_blocks(table):
            block = canonical(raw, name, table.where, first=n_objects, dtype=dtype)
            if dtype is None:
                dtype = TEXT if block.type == "large_string" else str(block.type)
            source_type = source_type or _type_of(raw, block)
            digest.add(block)
            n_objects += len(block)
            if listener is not None:
                listener.advance(len(block))
    if not n_objects:
        raise InvalidInputError(f"{table.where} has no rows; give at least one object.")
    assert dtype is not None  # noqa: S101 - there was a block
    if table.is_text:
        source_type = "string" if dtype == TEXT else dtype
    n_bytes = digest.n_bytes if dtype == TEXT else 8 * n_objects
    facts = IdFacts(name, source_type, is_index, dtype, n_bytes, digest.value)
    ids = TableIds(table, facts, n_objects)
    check_distinct_ids(ids.blocks, n_objects, name, table.where)
    return ids


def refuse_repeated(blocks: Iterable[Any], suspects: np.ndarray, name: str, where: str) -> None:
    """Raise InvalidIdsError if two ids with one of the keys ``suspects`` are the same."""
    rows: dict[Any, int] = {}
    start = 0
    for block in blocks:
        for row in np.flatnonzero(np.isin(_keys(block), suspects)).tolist():
            value = block[row].as_py()
            if value in rows:
                raise _repeated(value, rows[value], start + row, name, where)
            rows[value] = start + row
        start += len(block)


def check_distinct_ids(parts: Callable[[], Iterable[Any]], n_ids: int, name: str, where: str) -> None:
    """Raise InvalidIdsError if an id is repeated in the blocks that ``parts`` gives, each time anew."""
    if len(suspects := repeated_keys(parts, n_ids)):
        refuse_repeated(parts(), suspects, name, where)


def rows_of_ids(known: Ids, ids: Ids, where: str) -> np.ndarray | None:
    """Return the row in ``ids`` of each of the ``known`` ids, -1 of those that have none; None if in order.

    Raises InvalidIdsError for an id that is not known. Beyond a gigabyte of ids, rows must be in order.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    name = ids.facts.name
    if known.facts.digest == ids.facts.digest:
        return None
    if known.facts.dtype != ids.facts.dtype:
        raise InvalidIdsError(
            f"{name} of {where} is {ids.facts.dtype} but the ids of the objects are {known.facts.dtype}; "
            "convert them.",
            column=name,
        )
    if known.facts.n_bytes + ids.facts.n_bytes > 1 << 30:
        refuse_other_ids(known.blocks(), ids.blocks(), name, where)
        if known.n_objects != ids.n_objects:
            raise InvalidIdsError(
                f"{where} has {ids.n_objects:,} rows but there are {known.n_objects:,} objects, too many ids "
                "to join by; give one row for each, in their order.",
                column=name,
            )
        return None
    wanted, values = known.hold().values, ids.hold().values
    rows = pc.index_in(wanted, value_set=values)
    if len(rows) - rows.null_count < len(values):
        unknown = pc.is_null(pc.index_in(values, value_set=wanted))
        first = unknown.index(pa.scalar(True)).as_py()
        raise InvalidIdsError(
            f"row {first} (from 0) of {where} has {name} {_shown(values[first].as_py())}, which is no "
            "object; drop it, or append it as an object first.",
            column=name,
            row=first,
        )
    return np.asarray(pc.fill_null(rows, MISSING).to_numpy(zero_copy_only=False), np.int64)


def are_positions(ids: Ids, start: int = 0) -> bool:
    """Return whether ids are ``start``, ``start + 1``, ...."""
    if ids.facts.dtype == TEXT:
        return False
    for block in ids.blocks():
        if not np.array_equal(block.to_numpy(), np.arange(start, start + len(block))):
            return False
        start += len(block)
    return True


def refuse_other_ids(blocks: Iterable[Any], others: Iterable[Any], name: str, where: str) -> None:
    """Raise InvalidIdsError at the first row where two sequences of ids differ."""
    start = 0
    for block, other in zip(regrouped(blocks, BLOCK_ROWS), regrouped(others, BLOCK_ROWS), strict=False):
        if not block.equals(other):
            pairs = zip(block.to_pylist(), other.to_pylist(), strict=False)
            row = next((i for i, (ours, theirs) in enumerate(pairs) if ours != theirs), None)
            if row is None:
                break  # as many as the number of objects, which is checked elsewhere
            raise InvalidIdsError(
                f"row {start + row} (from 0) of {where} has {name} {_shown(other[row].as_py())} but the "
                f"object there is {_shown(block[row].as_py())}; give the rows in the order of the objects.",
                column=name,
                row=start + row,
            )
        start += len(block)


def _repeated(value: Any, first: int, second: int, name: str, where: str) -> InvalidIdsError:
    return InvalidIdsError(
        f"{name} {_shown(value)} is in rows {first} and {second} (from 0) of {where}; give every row an id "
        "of its own, or none: without ids, rows keep their order.",
        column=name,
        row=second,
    )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


def repeated_keys(parts: Callable[[], Iterable[Any]], n_ids: int) -> np.ndarray:
    """Return keys that several of the ids in the blocks of ``parts`` have, at most a few thousand.

    So many keys are held at a time that they take 128 MB; more ids are read several times.
    """
    n_passes = -(-n_ids // _MOST_KEYS)
    found = []
    for number in range(n_passes):
        held = [keys[keys.view(np.uint64) % n_passes == number] for keys in map(_keys, parts())]
        keys = np.sort(np.concatenate([np.empty(0, np.int64), *held]))
        found.append(np.unique(keys[1:][keys[1:] == keys[:-1]])[:_MOST_SUSPECTS])
    return np.concatenate(found)[:_MOST_SUSPECTS]


def _keys(ids: Any) -> np.ndarray:
    """Return a 64-bit key of each id, equal for equal ids: the number, or a hash of the text."""
    import pyarrow as pa

    if pa.types.is_large_string(ids.type):
        return np.fromiter(map(hash, ids.to_pylist()), np.int64, len(ids))
    return ids.to_numpy(zero_copy_only=False).view(np.int64)


# Types


def _raw_blocks(table: Table) -> Iterator[Column]:
    for rows in table.blocks(BLOCK_ROWS):
        if len(rows[0] if isinstance(rows, list) else rows):
            yield rows[0] if isinstance(rows, list) else rows[:, 0]


def _blocks_of(table: Table, name: str, dtype: str | None) -> Iterator[Any]:
    first = 0
    for raw in _raw_blocks(table):
        block = canonical(raw, name, table.where, first=first, dtype=dtype)
        first += len(block)
        yield block


def whole_or_text(table: Table, name: str) -> str | None:
    """Return the type of ids in a file without types, int64 or text; None of another table."""
    if not table.is_text:
        return None
    return "int64" if _are_whole_numbers(table, name) else TEXT


def _are_whole_numbers(table: Table, name: str) -> bool:
    """Return whether every id of a file without types is written as a whole number below 2**63."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for block in _blocks_of(table, name, TEXT):
        if not pc.all(pc.match_substring_regex(block, _WHOLE_NUMBER)).as_py():
            return False
        try:
            block.cast(pa.int64())
        except pa.ArrowInvalid:  # too large
            return False
    return True


def _type_of(raw: Column, block: Any) -> str:
    """Return the Arrow type of a column, of what is encoded by a dictionary that of the values."""
    import pyarrow as pa

    if isinstance(raw, np.ndarray):
        return str(pa.from_numpy_dtype(raw.dtype)) if raw.dtype.kind in "iu" else _plain(block)
    kind = raw.type.value_type if pa.types.is_dictionary(raw.type) else raw.type
    return _plain(block) if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else str(kind)


def _plain(block: Any) -> str:
    return "string" if block.type == "large_string" else str(block.type)


def canonical(raw: Column, name: str, where: str, *, first: int = 0, dtype: str | None = None) -> Any:
    """Return a column of ids as int64, uint64 or large_string; ``first`` is its first row, for messages."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = _as_arrow(raw, name, where)
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), None, values)  # what pandas makes of missing numbers
    is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    missing = values.is_null()
    if is_text:
        missing = pc.or_kleene(missing, pc.equal(values, ""))
    if values.null_count or (is_text and pc.any(missing).as_py()):
        row = first + missing.index(True).as_py()
        raise InvalidIdsError(
            f"row {row} (from 0) of {where} has no {name}; fill or drop the rows without one.",
            column=name,
            row=row,
        )
    if is_text:
        found = values.cast(pa.large_string())
        found = found.cast(pa.int64()) if dtype == "int64" else found
    elif pa.types.is_integer(values.type):
        found = values.cast(pa.uint64() if values.type == pa.uint64() else pa.int64())
    else:
        raise InvalidIdsError(
            f"{name} of {where} has type {values.type}; ids must be whole numbers or text: convert them.",
            column=name,
        )
    if dtype is not None and found.type != (pa.large_string() if dtype == TEXT else dtype):
        raise InvalidIdsError(
            f"{name} of {where} mixes {dtype} and {_plain(found)}; convert the ids to one type.", column=name
        )
    return found


def _as_arrow(raw: Column, name: str, where: str) -> Any:
    import pyarrow as pa

    if isinstance(raw, np.ndarray):
        raw = unmasked(raw)
        try:
            if raw.dtype.kind == "T":
                raw = raw.astype(object)
            return pa.array(raw, from_pandas=True)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError, TypeError, ValueError) as error:
            raise InvalidIdsError(
                f"{name} of {where} has ids that are neither all whole numbers nor all text "
                f"({first_line(error)}); convert them to one type.",
                column=name,
            ) from None
    if isinstance(raw, pa.ChunkedArray):
        raw = raw.combine_chunks()
    if pa.types.is_dictionary(raw.type):
        raw = raw.dictionary_decode()
    if pa.types.is_binary(raw.type) or pa.types.is_large_binary(raw.type):
        try:
            return raw.cast(pa.large_string())
        except pa.ArrowInvalid:
            raise InvalidIdsError(
                f"{name} of {where} has bytes that are not UTF-8; decode them first.", column=name
            ) from None
    return raw.cast(pa.large_string()) if raw.type == pa.string_view() else raw
