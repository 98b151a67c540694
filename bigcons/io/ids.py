"""The ids of objects, in memory: whole numbers or text, all different, none missing."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigcons.disk.schema import MISSING
from bigcons.errors import InvalidIdsError, InvalidInputError, first_line
from bigcons.memory import BLOCK_ROWS

if TYPE_CHECKING:
    import pyarrow as pa

    from bigcons.io.batches import Source

TEXT = "text"
NUMBERS = ("int64", "uint64")
_WHOLE_NUMBER = r"^(0|-?[1-9][0-9]{0,18})$"


class IdFacts(NamedTuple):
    """What is known of ids besides their values."""

    name: str
    is_index: bool
    """Whether they are the index of a data frame."""
    dtype: str
    """int64, uint64 or text."""
    n_bytes: int
    """Size of the values: 8 for each number, the UTF-8 of text."""
    digest: str
    """The CRC-32 of the values in their order."""

    @property
    def in_words(self) -> str:
        """What determines a result: name, type, values."""
        return f"{self.name}, {self.dtype}, crc {self.digest}"


class Ids:
    """The ids of ``n_objects`` rows, an Arrow array of int64, uint64 or large_string."""

    def __init__(self, values: Any, name: str, is_index: bool = False) -> None:
        ends, text = parts_of(values)
        digest = f"{zlib.crc32(ends.data):08x}{zlib.crc32(text.data):08x}"
        n_bytes = len(text) or 8 * len(values)
        self.values: Any = values
        self.n_objects: int = len(values)
        self.held_bytes: int = values.nbytes
        self.facts: IdFacts = IdFacts(name, is_index, _kind_of(values), n_bytes, digest)

    def others(self, values: Any) -> Ids:
        """Return the ids of other objects, in a column of the same name."""
        return Ids(values, self.facts.name, self.facts.is_index)

    def blocks(self, rows: int = BLOCK_ROWS) -> Iterator[Any]:
        """Yield the ids in order, exactly ``rows`` at a time but the last."""
        for start in range(0, self.n_objects, rows):
            yield self.values.slice(start, rows)

    def hold(self) -> Ids:
        """Return the ids in memory."""
        return self

    @property
    def row_bytes(self) -> float:
        """Mean bytes of an id, with its place."""
        return 8 + self.facts.n_bytes / max(self.n_objects, 1)

    @property
    def type(self) -> pa.DataType:
        """Their Arrow type."""
        import pyarrow as pa

        return pa.large_string() if self.facts.dtype == TEXT else pa.type_for_alias(self.facts.dtype)


def parts_of(ids: Any, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers and no bytes or, of text, the end of each id and the UTF-8 of all, uint8.

    Ends are those in a text of which ``first`` bytes come before.
    """
    if _kind_of(ids) != TEXT:
        return np.ascontiguousarray(ids.to_numpy(zero_copy_only=False)), np.empty(0, np.uint8)
    _, offsets, text = ids.buffers()
    ends = np.frombuffer(offsets, np.int64, len(ids) + 1, 8 * ids.offset)
    begin, end = int(ends[0]), int(ends[-1])
    content = np.empty(0, np.uint8) if text is None else np.frombuffer(text, np.uint8)[begin:end]
    return ends[1:] - begin + first, content


# Reading


def scan_ids(source: Source, name: str, *, is_index: bool = False) -> Ids:
    """Read the only column of ``source`` and return it as ids.

    Raises InvalidIdsError for missing and repeated ids, and for other types than whole numbers and text. In a
    file without types, ids are whole numbers if all of them look like ones that are written without zeros in
    front; else text, as it is in the file.
    """
    parts: list[Any] = []
    n_objects = 0
    try:
        for rows in source.batches(BLOCK_ROWS):
            raw = rows[0] if isinstance(rows, list) else rows[:, 0]
            if len(raw):
                parts.append(canonical(raw, name, source.where, n_objects))
                n_objects += len(raw)
        values = joined_ids(parts, name, source.where, is_text=source.is_text)
        refuse_repeated_ids(values, name, source.where)
    except InvalidIdsError as error:
        if not is_index:
            raise
        remedy = "or leave it out by df.reset_index(drop=True) or drop='index' (--drop index)."
        what = f"{str(error).rstrip('.')}; {remedy}"
        raise InvalidIdsError(what, column=error.column, row=error.row) from None
    return Ids(values, name, is_index)


def canonical(raw: Any, name: str, where: str, first: int = 0) -> Any:
    """Return a column of ids as int64, uint64 or large_string; ``first`` is its first row, for messages."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = plain_arrow(raw)
    kind = values if isinstance(values, str) else f"type {values.type}"
    is_text, is_number = kind == "type large_string", "int" in kind and kind.startswith("type ")
    if isinstance(values, str) or not (is_text or is_number or values.null_count):
        what = f"{name} of {where} has ids that are neither all whole numbers nor all text ({kind})."
        raise InvalidIdsError(what, column=name)
    missing = values.is_null(nan_is_null=True)
    missing = pc.or_kleene(missing, pc.equal(values, "")) if is_text else missing
    if (row := missing.index(True).as_py()) >= 0:
        what = f"row {first + row} (from 0) of {where} has no {name}; fill or drop the rows without one."
        raise InvalidIdsError(what, column=name, row=first + row)
    return values if is_text or values.type == pa.uint64() else values.cast(pa.int64())


def joined_ids(parts: Sequence[Any], name: str, where: str, *, is_text: bool) -> Any:
    """Return canonical ids as one array, text of a file without types as numbers if nothing is lost."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not parts:
        raise InvalidInputError(f"{where} has no rows; give at least one object.")
    kinds = sorted({_kind_of(part) for part in parts})
    if len(kinds) > 1:
        raise InvalidIdsError(f"{name} of {where} mixes {' and '.join(kinds)}; convert it.", column=name)
    values = pa.concat_arrays(parts)
    if is_text and pc.all(pc.match_substring_regex(values, _WHOLE_NUMBER)).as_py():
        with suppress(pa.ArrowInvalid):  # too large
            return values.cast(pa.int64())
    return values


def _kind_of(ids: Any) -> str:
    return TEXT if ids.type == "large_string" else str(ids.type)


def plain_arrow(raw: Any) -> Any:
    """Return a column of any type as one Arrow array without dictionary, its text as large_string.

    Masked entries and NaN are null. Of what Arrow cannot hold, return why, in a line.
    """
    import pyarrow as pa

    try:
        if isinstance(raw, np.ndarray):
            raw = pa.array(raw, from_pandas=True)
        if isinstance(raw, pa.ChunkedArray):
            raw = raw.combine_chunks()
        if pa.types.is_dictionary(raw.type):
            raw = raw.dictionary_decode()
        is_text = raw.type in (pa.string(), pa.string_view(), pa.binary(), pa.large_binary())
        return raw.cast(pa.large_string()) if is_text else raw
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:  # of Unicode, too
        return first_line(error)


# Comparing


def refuse_repeated_ids(values: Any, name: str, where: str) -> None:
    """Raise InvalidIdsError if an id is repeated."""
    import pyarrow.compute as pc

    if _kind_of(values) == TEXT:  # hashes of a few at a time, which take less memory than a table of all
        parts = (values.slice(start, BLOCK_ROWS).to_pylist() for start in range(0, len(values), BLOCK_ROWS))
        keys = np.fromiter((hash(text) for part in parts for text in part), np.int64, len(values))
    else:
        keys = values.to_numpy(zero_copy_only=False).copy()
    keys.sort()
    if not (keys[1:] == keys[:-1]).any():
        return
    counts = values.value_counts()
    if (at := pc.greater(counts.field("counts"), 1).index(True).as_py()) >= 0:
        value = counts.field("values")[at]
        rows = np.flatnonzero(pc.equal(values, value))[:2].tolist()
        what = f"{name} {_shown(value)} is in rows {rows[0]} and {rows[1]} (from 0) of {where}; change it."
        raise InvalidIdsError(what, column=name, row=rows[1])


def rows_of_ids(objects: Ids, ids: Ids, where: str) -> np.ndarray | None:
    """Return the row in ``ids`` of each of the ``objects``, -1 of those that have none; None if in order.

    Raises InvalidIdsError for an id that is no object, and of another type.
    """
    import pyarrow.compute as pc

    name = ids.facts.name
    if objects.facts.digest == ids.facts.digest:
        return None
    refuse_other_type(objects, ids, where)
    wanted, values = objects.hold().values, ids.hold().values
    unknown = pc.is_null(pc.index_in(values, value_set=wanted))
    if (first := unknown.index(True).as_py()) >= 0:
        what = f"row {first} (from 0) of {where} has {name} {_shown(values[first])}, which is no object."
        raise InvalidIdsError(what, column=name, row=first)
    rows = pc.fill_null(pc.index_in(wanted, value_set=values), MISSING)
    return np.asarray(rows.to_numpy(zero_copy_only=False), np.int64)


def refuse_other_type(objects: Ids, ids: Ids, where: str) -> None:
    """Raise InvalidIdsError for numbers where the objects have text, and the like."""
    name = ids.facts.name
    if objects.facts.dtype != ids.facts.dtype:
        what = f"{name} of {where} is {ids.facts.dtype} but the ids of the objects are {objects.facts.dtype}"
        raise InvalidIdsError(f"{what}; convert them to one type.", column=name)


def are_positions(ids: Ids, start: int = 0) -> bool:
    """Return whether ids are ``start``, ``start + 1``, ...."""
    if ids.facts.dtype == TEXT:
        return False
    return np.array_equal(ids.hold().values, np.arange(start, start + ids.n_objects))


def _shown(value: Any) -> str:
    text = repr(value.as_py())
    return text if len(text) <= 40 else f"{text[:40]}..."
