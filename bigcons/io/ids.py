"""The ids of the rows of a source: whole numbers or text, all different, none missing.

A first pass over their column checks their types, and that none is repeated, by 64-bit keys of which so many
are held as fit in 128 MB; of more ids, further passes compare the others. Whoever stores them reads it again.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigcons.disk.schema import MISSING
from bigcons.errors import InvalidIdsError, InvalidInputError, first_line
from bigcons.memory import BLOCK_ROWS
from bigcons.progress import progress

if TYPE_CHECKING:
    import pyarrow as pa

    from bigcons.io.batches import Source

TEXT = "text"
NUMBERS = ("int64", "uint64")

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
            kind = pa.type_for_alias(self.facts.type)
        except ValueError:  # of a version that knows other types
            return of_values
        is_text = kind in (pa.string(), pa.large_string(), pa.string_view())
        return kind if pa.types.is_integer(kind) or is_text else of_values

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


class SourceIds(Ids):
    """The only column of a source, read when asked for."""

    def __init__(self, source: Source, facts: IdFacts, n_objects: int) -> None:
        self.facts: IdFacts = facts
        self.n_objects: int = n_objects
        self._source = source

    def blocks(self, rows: int = BLOCK_ROWS) -> Iterator[Any]:
        """Read the column; raises InvalidIdsError at the end if it has changed since it was checked."""
        digest = Digest()
        for block in regrouped(_blocks_of(self._source, self.facts.name, self.facts.dtype), rows):
            digest.add(block)
            yield block
        if digest.value != self.facts.digest:
            raise InvalidIdsError(
                f"{self._source.where} changed while it was read; pass ids that do not change.",
                column=self.facts.name,
            )


class Digest:
    """The CRC-32 of ids in their order, whatever the blocks."""

    def __init__(self) -> None:
        self._ends, self._text = 0, 0
        self.n_bytes: int = 0
        """The bytes of the text so far."""

    def add(self, ids: Any) -> None:
        """Add the next ids."""
        ends, text = parts_of(ids, self.n_bytes)
        self._ends = zlib.crc32(ends.data, self._ends)
        self._text = zlib.crc32(text.data, self._text)
        self.n_bytes += len(text)

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


def regrouped(
    blocks: Iterable[Any], rows: int, join: Callable[[list[Any]], Any] | None = None
) -> Iterator[Any]:
    """Yield arrays of exactly ``rows`` rows, but the last; ``join`` is by default that of Arrow arrays."""
    if join is None:
        import pyarrow as pa

        join = pa.concat_arrays
    waiting: list[Any] = []
    n_waiting = 0
    for block in blocks:
        while n_waiting + len(block) >= rows:
            head = block[: rows - n_waiting]
            yield join([*waiting, head]) if waiting else head
            block = block[len(head) :]
            waiting, n_waiting = [], 0
        if len(block):
            waiting.append(block)
            n_waiting += len(block)
    if waiting:
        yield join(waiting)


# Checking


def scan_ids(source: Source, name: str, *, is_index: bool = False) -> SourceIds:
    """Read the only column of ``source`` and return it as ids.

    Raises InvalidIdsError for missing and repeated ids, and for other types than whole numbers and text. In a
    file without types, ids are whole numbers if all of them look like ones that are written without zeros in
    front; else text, as it is in the file.
    """
    try:
        return _scanned(source, name, is_index)
    except InvalidIdsError as error:
        if not is_index:
            raise
        raise InvalidIdsError(
            f"{str(error).rstrip('.')}; or leave out the index, such as by df.reset_index(drop=True) or "
            "drop='index' (--drop index), or name a column of ids (id=, --id).",
            column=error.column,
            row=error.row,
        ) from None


def _scanned(source: Source, name: str, is_index: bool) -> SourceIds:
    dtype = type_in_text(source, name)
    digest, n_objects, source_type = Digest(), 0, ""
    keys: list[np.ndarray] = []
    with nullcontext() if source.n_rows is None else progress("check the ids", source.n_rows) as listener:
        for raw in _raw_blocks(source):
            block = canonical(raw, name, source.where, first=n_objects, dtype=dtype)
            dtype = dtype or (TEXT if block.type == "large_string" else str(block.type))
            source_type = source_type or _type_of(raw, block)
            digest.add(block)
            n_objects += len(block)
            keys = [*keys, _keys(block)] if n_objects <= _MOST_KEYS else []
            if listener is not None:
                listener.advance(len(block))
    if not n_objects:
        raise InvalidInputError(f"{source.where} has no rows; give at least one object.")
    if source.is_text:
        source_type = "string" if dtype == TEXT else str(dtype)
    n_bytes = digest.n_bytes if dtype == TEXT else 8 * n_objects
    facts = IdFacts(name, source_type, is_index, str(dtype), n_bytes, digest.value)
    ids = SourceIds(source, facts, n_objects)
    if n_objects > _MOST_KEYS or len(_twice(keys)):
        refuse_repeated_ids(ids.blocks, n_objects, name, source.where)
    return ids


def refuse_repeated_ids(blocks: Callable[[], Iterable[Any]], n_ids: int, name: str, where: str) -> None:
    """Raise InvalidIdsError if an id is repeated in the blocks that ``blocks`` gives, each time anew."""
    n_passes = -(-n_ids // _MOST_KEYS)
    suspects = np.concatenate(
        [
            _twice([keys[keys.view(np.uint64) % n_passes == part] for keys in map(_keys, blocks())])
            for part in range(n_passes)
        ]
    )
    if not len(suspects):
        return
    rows: dict[Any, int] = {}
    start = 0
    for block in blocks():
        for row in np.flatnonzero(np.isin(_keys(block), suspects)).tolist():
            value = block[row].as_py()
            if value in rows:
                raise InvalidIdsError(
                    f"{name} {_shown(value)} is in rows {rows[value]} and {start + row} (from 0) of {where}; "
                    "give every row an id of its own, or none: without ids, rows keep their order.",
                    column=name,
                    row=start + row,
                )
            rows[value] = start + row
        start += len(block)


def _twice(held: list[np.ndarray]) -> np.ndarray:
    """Return keys that are there more than once, at most 10,000."""
    keys = np.concatenate([np.empty(0, np.int64), *held])
    keys.sort()
    return np.unique(keys[1:][keys[1:] == keys[:-1]])[:10_000]


def _keys(ids: Any) -> np.ndarray:
    """Return a 64-bit key of each id, equal for equal ids: the number, or a hash of the text."""
    import pyarrow as pa

    if pa.types.is_large_string(ids.type):
        return np.fromiter(map(hash, ids.to_pylist()), np.int64, len(ids))
    return ids.to_numpy(zero_copy_only=False).view(np.int64)


def rows_of_ids(objects: Ids, ids: Ids, where: str) -> np.ndarray | None:
    """Return the row in ``ids`` of each of the ``objects``, -1 of those that have none; None if in order.

    Raises InvalidIdsError for an id that is no object. Beyond a gigabyte of ids, rows must be in order.
    """
    import pyarrow.compute as pc

    name = ids.facts.name
    if objects.facts.digest == ids.facts.digest:
        return None
    if objects.facts.dtype != ids.facts.dtype:
        raise InvalidIdsError(
            f"{name} of {where} is {ids.facts.dtype} but the ids of the objects are {objects.facts.dtype}; "
            "convert them.",
            column=name,
        )
    if objects.facts.n_bytes + ids.facts.n_bytes > 1 << 30:
        refuse_other_ids(objects.blocks(), ids.blocks(), name, where)
        if objects.n_objects != ids.n_objects:
            raise InvalidIdsError(
                f"{where} has {ids.n_objects:,} rows but there are {objects.n_objects:,} objects, too many "
                "ids to join by; give one row for each, in their order.",
                column=name,
            )
        return None
    wanted, values = objects.hold().values, ids.hold().values
    unknown = pc.is_null(pc.index_in(values, value_set=wanted))
    if (first := unknown.index(True).as_py()) >= 0:
        raise InvalidIdsError(
            f"row {first} (from 0) of {where} has {name} {_shown(values[first].as_py())}, which is no "
            "object; drop it, or append it as an object first.",
            column=name,
            row=first,
        )
    rows = pc.fill_null(pc.index_in(wanted, value_set=values), MISSING)
    return np.asarray(rows.to_numpy(zero_copy_only=False), np.int64)


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


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


# Types


def _raw_blocks(source: Source) -> Iterator[Any]:
    for rows in source.batches(BLOCK_ROWS):
        if len(rows[0] if isinstance(rows, list) else rows):
            yield rows[0] if isinstance(rows, list) else rows[:, 0]


def _blocks_of(source: Source, name: str, dtype: str | None) -> Iterator[Any]:
    first = 0
    for raw in _raw_blocks(source):
        block = canonical(raw, name, source.where, first=first, dtype=dtype)
        first += len(block)
        yield block


def type_in_text(source: Source, name: str) -> str | None:
    """Return the type of ids in a file without types, int64 or text; None of another source.

    They are int64 if all are written as whole numbers below 2**63.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not source.is_text:
        return None
    for block in _blocks_of(source, name, TEXT):
        if not pc.all(pc.match_substring_regex(block, _WHOLE_NUMBER)).as_py():
            return TEXT
        try:
            block.cast(pa.int64())
        except pa.ArrowInvalid:  # too large
            return TEXT
    return "int64"


def _type_of(raw: Any, block: Any) -> str:
    """Return the Arrow type of a column, of what is encoded by a dictionary that of the values."""
    import pyarrow as pa

    plain = "string" if block.type == "large_string" else str(block.type)
    if isinstance(raw, np.ndarray):
        return str(pa.from_numpy_dtype(raw.dtype)) if raw.dtype.kind in "iu" else plain
    kind = raw.type.value_type if pa.types.is_dictionary(raw.type) else raw.type
    return plain if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else str(kind)


def canonical(raw: Any, name: str, where: str, *, first: int = 0, dtype: str | None = None) -> Any:
    """Return a column of ids as int64, uint64 or large_string; ``first`` is its first row, for messages."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = plain_arrow(raw)
    if isinstance(values, str):
        raise InvalidIdsError(
            f"{name} of {where} has ids that are neither all whole numbers nor all text ({values}); convert "
            "them to one type.",
            column=name,
        )
    is_text = pa.types.is_large_string(values.type)
    missing = values.is_null(nan_is_null=True)
    if is_text:
        missing = pc.or_kleene(missing, pc.equal(values, ""))
    if (row := missing.index(True).as_py()) >= 0:
        raise InvalidIdsError(
            f"row {first + row} (from 0) of {where} has no {name}; fill or drop the rows without one.",
            column=name,
            row=first + row,
        )
    if is_text and dtype == "int64":
        values = values.cast(pa.int64())
    elif pa.types.is_integer(values.type):
        values = values.cast(pa.uint64() if values.type == pa.uint64() else pa.int64())
    elif not is_text:
        raise InvalidIdsError(
            f"{name} of {where} has type {values.type}; ids must be whole numbers or text: convert them.",
            column=name,
        )
    kind = TEXT if values.type == "large_string" else str(values.type)
    if dtype not in (None, kind):
        raise InvalidIdsError(
            f"{name} of {where} mixes {dtype} and {kind}; convert the ids to one type.", column=name
        )
    return values


def plain_arrow(raw: Any) -> Any:
    """Return a column of any type as one Arrow array without dictionary, its text as large_string.

    Masked entries and NaN are null. Of what Arrow cannot hold, return why, in a line.
    """
    import pyarrow as pa

    if isinstance(raw, np.ndarray):
        mask = np.ma.getmaskarray(raw) if isinstance(raw, np.ma.MaskedArray) else None
        values = np.asarray(raw.data if mask is not None else raw)
        values = values.astype(object) if values.dtype.kind == "T" else values
        try:
            raw = pa.array(values, mask=mask, from_pandas=True)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError, TypeError, ValueError) as error:
            return first_line(error)
    if isinstance(raw, pa.ChunkedArray):
        raw = raw.combine_chunks()
    if pa.types.is_dictionary(raw.type):
        raw = raw.dictionary_decode()
    if raw.type in (pa.string(), pa.string_view(), pa.binary(), pa.large_binary()):
        try:
            return raw.cast(pa.large_string())
        except pa.ArrowInvalid:
            return "bytes that are not UTF-8"
    return raw
