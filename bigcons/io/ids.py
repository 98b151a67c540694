"""The ids of the rows of a source: whole numbers or text, all different, none missing.

A first pass over their column checks their types, and that none is repeated, by 64-bit keys of which so many
are held as fit in 128 MB; of more ids, further passes compare the others. Whoever stores them reads it again.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
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
        blocks = (
            canonical(raw, self.facts.name, self._source.where, dtype=self.facts.dtype)
            for raw in _raw_blocks(self._source)
        )
        for block in regrouped(blocks, rows):
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
        dtype, digest, n_objects, source_type = type_in_text(source, name), Digest(), 0, ""
        keys: list[np.ndarray] = []
        with nullcontext() if source.n_rows is None else progress("check the ids", source.n_rows) as listener:
            for raw in _raw_blocks(source):
                block = canonical(raw, name, source.where, first=n_objects, dtype=dtype)
                dtype = dtype or _kind_of(block)
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
        ids = SourceIds(
            source, IdFacts(name, source_type, is_index, str(dtype), n_bytes, digest.value), n_objects
        )
        if n_objects > _MOST_KEYS or len(_twice(keys)):
            refuse_repeated_ids(ids.blocks, n_objects, name, source.where)
    except InvalidIdsError as error:
        if not is_index:
            raise
        raise InvalidIdsError(
            f"{str(error).rstrip('.')}; or leave out the index, such as by df.reset_index(drop=True) or "
            "drop='index' (--drop index), or name a column of ids (id=, --id).",
            column=error.column,
            row=error.row,
        ) from None
    return ids


def refuse_repeated_ids(blocks: Callable[[], Iterable[Any]], n_ids: int, name: str, where: str) -> None:
    """Raise InvalidIdsError if an id is repeated in the blocks that ``blocks`` gives, each time anew."""
    n_passes = -(-n_ids // _MOST_KEYS)
    for part in range(n_passes):
        suspects = _twice([keys[keys.view(np.uint64) % n_passes == part] for keys in map(_keys, blocks())])
        rows: dict[Any, int] = {}
        start = 0
        for block in blocks() if len(suspects) else ():
            for row in np.flatnonzero(np.isin(_keys(block), suspects)).tolist():
                value = block[row].as_py()
                if value in rows:
                    raise InvalidIdsError(
                        f"{name} {_shown(value)} is in rows {rows[value]} and {start + row} (from 0) of "
                        f"{where}; give every row an id of its own, or none: without ids, rows keep their "
                        "order.",
                        column=name,
                        row=start + row,
                    )
                rows[value] = start + row
            start += len(block)


def _twice(parts: list[np.ndarray]) -> np.ndarray:
    """Return keys that are there more than once, at most 10,000."""
    keys = np.sort(np.concatenate(parts))
    return np.unique(keys[1:][keys[1:] == keys[:-1]])[:10_000]


def _keys(ids: Any) -> np.ndarray:
    """Return a 64-bit key of each id, equal for equal ids: the number, or a hash of the text."""
    if _kind_of(ids) == TEXT:
        return np.fromiter(map(hash, ids.to_pylist()), np.int64, len(ids))
    return ids.to_numpy(zero_copy_only=False).view(np.int64)


def rows_of_ids(objects: Ids, ids: Ids, where: str) -> np.ndarray | None:
    """Return the row in ``ids`` of each of the ``objects``, -1 of those that have none; None if in order.

    Raises InvalidIdsError for an id that is no object, and of another type. Both are held in memory.
    """
    import pyarrow.compute as pc

    name = ids.facts.name
    if objects.facts.digest == ids.facts.digest:
        return None
    refuse_other_type(objects, ids, where)
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


def refuse_other_type(objects: Ids, ids: Ids, where: str) -> None:
    """Raise InvalidIdsError for numbers where the objects have text, and the like."""
    name = ids.facts.name
    if objects.facts.dtype != ids.facts.dtype:
        raise InvalidIdsError(
            f"{name} of {where} is {ids.facts.dtype} but the ids of the objects are {objects.facts.dtype}; "
            "convert them to one type.",
            column=name,
        )


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
                return  # as many as the number of objects, which is checked elsewhere
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
        column = rows[0] if isinstance(rows, list) else rows[:, 0]
        if len(column):
            yield column


def type_in_text(source: Source, name: str) -> str | None:
    """Return the type of ids in a file without types, int64 or text; None of another source.

    They are int64 if all are written as whole numbers below 2**63.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not source.is_text:
        return None
    first = 0
    for raw in _raw_blocks(source):
        block = canonical(raw, name, source.where, first=first, dtype=TEXT)
        if not pc.all(pc.match_substring_regex(block, _WHOLE_NUMBER)).as_py():
            return TEXT
        try:
            block.cast(pa.int64())
        except pa.ArrowInvalid:  # too large
            return TEXT
        first += len(block)
    return "int64"


def _kind_of(ids: Any) -> str:
    return TEXT if ids.type == "large_string" else str(ids.type)


def _type_of(raw: Any, ids: Any) -> str:
    """Return the Arrow type of a column, of what is encoded by a dictionary that of the values."""
    import pyarrow as pa

    kind = pa.from_numpy_dtype(raw.dtype) if isinstance(raw, np.ndarray) and raw.dtype.kind in "iu" else None
    kind = getattr(raw, "type", kind)
    kind = kind.value_type if kind is not None and pa.types.is_dictionary(kind) else kind
    is_plain = kind is not None and not pa.types.is_binary(kind) and not pa.types.is_large_binary(kind)
    return str(kind) if is_plain else "string" if _kind_of(ids) == TEXT else str(ids.type)


def canonical(raw: Any, name: str, where: str, *, first: int = 0, dtype: str | None = None) -> Any:
    """Return a column of ids as int64, uint64 or large_string; ``first`` is its first row, for messages."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = plain_arrow(raw)
    is_number = not isinstance(values, str) and pa.types.is_integer(values.type)
    if isinstance(values, str) or not (
        is_number or pa.types.is_large_string(values.type) or values.null_count
    ):
        kind = values if isinstance(values, str) else f"type {values.type}"
        raise InvalidIdsError(
            f"{name} of {where} has ids that are neither all whole numbers nor all text ({kind}); convert "
            "them to one type.",
            column=name,
        )
    missing = values.is_null(nan_is_null=True)
    missing = (
        missing if is_number or values.type != "large_string" else pc.or_kleene(missing, pc.equal(values, ""))
    )
    if (row := missing.index(True).as_py()) >= 0:
        raise InvalidIdsError(
            f"row {first + row} (from 0) of {where} has no {name}; fill or drop the rows without one.",
            column=name,
            row=first + row,
        )
    if is_number or dtype == "int64":
        with suppress(pa.ArrowInvalid):
            values = values.cast(pa.uint64() if values.type == pa.uint64() else pa.int64())
    if dtype not in (None, _kind_of(values)):
        raise InvalidIdsError(
            f"{name} of {where} mixes {dtype} and {_kind_of(values)}; convert the ids to one type.",
            column=name,
        )
    return values


def plain_arrow(raw: Any) -> Any:
    """Return a column of any type as one Arrow array without dictionary, its text as large_string.

    Masked entries and NaN are null. Of what Arrow cannot hold, return why, in a line.
    """
    import pyarrow as pa

    try:
        if isinstance(raw, np.ndarray):
            mask = np.ma.getmaskarray(raw) if isinstance(raw, np.ma.MaskedArray) else None
            values = np.asarray(raw.data if mask is not None else raw)
            raw = pa.array(
                values.astype(object) if values.dtype.kind == "T" else values, mask=mask, from_pandas=True
            )
        if isinstance(raw, pa.ChunkedArray):
            raw = raw.combine_chunks()
        if pa.types.is_dictionary(raw.type):
            raw = raw.dictionary_decode()
        is_text = raw.type in (pa.string(), pa.string_view(), pa.binary(), pa.large_binary())
        return raw.cast(pa.large_string()) if is_text else raw
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:  # of Unicode, too
        return first_line(error)
