"""Columns of a table: which are read, which one identifies the rows, and which values are missing.

Ids are whole numbers or text, all different, none missing.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigcons.disk.schema import MISSING
from bigcons.errors import InvalidIdsError, InvalidInputError, UnknownColumnError, first_line
from bigcons.memory import BLOCK_ROWS, release_unused, row_blocks
from bigcons.validation import check_choice

if TYPE_CHECKING:
    import pyarrow as pa

    from bigcons.io.sources import Source

Column = str | int
"""A column: its name or, in a table without names, its position from 0."""

Columns = Column | Sequence[Column]
"""One or more columns."""

INDEX = "index"
"""The id that is the index of a data frame or the names of rows in a file, unless a column has this name."""


@dataclass(frozen=True)
class Selection:
    """A table with a choice of its columns and how it is read; made by `select`."""

    source: Any
    id: Column | None = None
    columns: Columns | None = None
    drop: Columns | None = None
    missing: Any = None
    header: bool | None = None
    sep: str | None = None
    decimal: str | None = None
    categorical: Columns | None = None


def select(
    source: Any,
    *,
    id: Column | None = None,
    columns: Columns | None = None,
    drop: Columns | None = None,
    missing: Any = None,
    header: bool | None = None,
    sep: str | None = None,
    decimal: str | None = None,
    categorical: Columns | None = None,
) -> Any:
    """Choose the columns of a table to use and the one that identifies its rows, and say how to read it.

    The result may be passed wherever a table may: to `Ensemble.from_labels`, ``fit`` and ``predict``, the
    functions of `bigcons.generate`, and so on. Most of these also take ``id``, ``columns`` and ``drop``
    themselves. A second ``select`` of the result replaces the parameters that it names.

    Parameters
    ----------
    source
        Any table: an array, a data frame, a path, an ensemble; see `Ensemble.from_labels`.
    id : default=None
        The column with the identifier of each row, which is neither a feature nor a partition: whole numbers
        or text, all different, none missing. "index" is the index of a data frame. By default, names of rows
        that the table has.
    columns : default=None
        The columns to use, in this order; by default all but the id. A pattern such as ``"leiden*"`` is all
        columns whose names match it.
    drop : default=None
        Columns to leave out; "index" leaves out the names of rows.
    missing : default=None
        Value, or list of values, that mean missing, besides empty text, NaN, None and masked entries. Text is
        added to the words that pandas reads as missing (NA, null, ...); for labels, numbers replace the
        negative numbers, and ``[]`` means no other value. By default, the words and, for labels, negative
        numbers are missing. Blanks around text do not count.
    header : default=None
        Whether the first line of a file of text has the names of the columns. By default it does, but a first
        line with a number in it is refused.
    sep : default=None
        The character between the columns of a file of text, such as ``";"``; the file may then have any
        suffix. By default a comma or, in .tsv, a tab.
    decimal : {".", ","}, default=None
        The decimal separator of features in a file of text. By default a point; numbers such as 1,5 are then
        refused.
    categorical : default=None
        Features whose numbers are categories, such as zip codes, and are treated like text.

    A column is given by its name, or by its number from 0 unless names of the table are numbers. Nothing is
    read here; where the table is opened, a column that does not exist raises UnknownColumnError, and ids that
    are missing or repeated raise InvalidIdsError, after a pass over that column.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = {"who": ["eve", "bob", "ann"], "a": [0, 0, 1], "b": [1, 1, 0]}
    >>> import pyarrow as pa
    >>> bc.Ensemble.from_labels(bc.select(pa.table(labels), id="who")).ids.tolist()
    ['eve', 'bob', 'ann']
    """
    if sep is not None and (not isinstance(sep, str) or len(sep.encode()) != 1 or sep in '"\r\n\0'):
        raise InvalidInputError(f"sep={sep!r} is no character such as ';'; pass one.", parameter="sep")
    if decimal is not None:
        check_choice("decimal", decimal, (".", ","))
    choice = Selection(source, id, columns, drop, missing, header, sep, decimal, categorical)
    if not (options := options_of(choice)):
        return source
    return replace(source, **options) if isinstance(source, Selection) else choice


def source_of(x: Any) -> Any:
    """Return the table whose columns a choice selects, as the user gave it."""
    return x.source if isinstance(x, Selection) else x


def options_of(x: Any) -> dict[str, Any]:
    """Return the options of `select` for a source, by parameter."""
    options = {}
    for name, value in vars(x).items() if isinstance(x, Selection) else ():
        if value is not None and name != "source":
            options[name] = value
    return options


def choose(source: Source, choice: Selection, *, with_ids: bool = True) -> Source:
    """Return a source with the columns of a choice, and with its ids; see `select`.

    Names of rows that the choice does not ask for are read ``with_ids`` only.
    """
    if not options_of(choice) and not (with_ids and source.is_named):
        return source
    drops = [column for column in listed(choice.drop) if not is_index(source, column)]
    omissions = {position for column in drops for position in positions_of(source, column)}
    positions = [position for column in listed(choice.columns) for position in positions_of(source, column)]
    if len(set(positions)) < len(positions):
        raise InvalidInputError(f"columns={choice.columns!r} has one twice; name each once.")
    rows = None
    if choice.id is not None and is_index(source, choice.id):
        rows = source.index
    elif choice.id is not None:
        (id_column,) = positions_of(source, choice.id, may_be_pattern=False)
        rows = (source.text or source).selected([id_column])
        omissions.add(id_column)
    elif with_ids and source.is_named and source.ids is None and len(drops) == len(listed(choice.drop)):
        rows = source.index
    positions = positions if choice.columns is not None else list(range(source.n_columns))
    positions = [position for position in positions if position not in omissions]
    if not positions and options_of(choice).keys() & {"columns", "drop", "id"}:
        raise InvalidInputError(f"{source.where} has no columns left; choose at least one besides the id.")
    table = source.selected(positions)
    coded = {position for column in listed(choice.categorical) for position in positions_of(source, column)}
    table.categorical |= {place for place, position in enumerate(positions) if position in coded}
    if choice.missing is not None:
        table.rule = missing_rule(choice.missing)
    if rows is not None:
        table.ids = scan_ids(rows, rows.names[0] if rows.names else "id", is_index=rows is source.index)
    return table


def listed(columns: Columns | None) -> list[Column]:
    """Return one or more columns as a list."""
    if columns is None:
        return []
    return [columns] if isinstance(columns, str) or not hasattr(columns, "__iter__") else list(columns)


def is_index(source: Source, column: Column) -> bool:
    """Return whether a column is the names of the rows of a source."""
    names = () if source.index is None else (INDEX, *(source.index.names or ()))
    return column in names and column not in (source.names or ())


def positions_of(source: Source, column: Column, *, may_be_pattern: bool = True) -> list[int]:
    """Return the positions of a column, or of all that match a pattern; raise UnknownColumnError for none."""
    names = source.names
    if isinstance(column, (bool, np.bool_)):
        raise UnknownColumnError(source.where, column, names, n_columns=source.n_columns)
    has_numbers = any(loose_number(name) is not None for name in names or ())
    is_position = isinstance(column, (int, np.integer)) and not has_numbers
    if names is not None and not is_position:
        column = str(column)  # of a data frame, whatever it is
    if names is not None and isinstance(column, str):
        positions = [c for c, name in enumerate(names) if name == column]
        if not positions and may_be_pattern:
            positions = [c for c, name in enumerate(names) if fnmatchcase(name, column)]
        elif len(positions) > 1:
            raise InvalidInputError(f"{source.where} has more than one column {column!r}; rename them.")
        if not positions:
            raise UnknownColumnError(source.where, column, names)
        return positions
    position = int(column) if str(column).isdecimal() else -1
    if not 0 <= position < source.n_columns:
        raise UnknownColumnError(source.where, column, names, n_columns=source.n_columns)
    return [position]


# Missing values

MISSING_WORDS = (
    *("", "NA", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA", "<NA>", "NaN", "nan", "-NaN", "-nan"),
    *("None", "NULL", "null", "1.#IND", "1.#QNAN", "-1.#IND", "-1.#QNAN"),
)
"""Text that means missing, as in pandas."""

_NUMBER = re.compile(r"[+-]?(0|[1-9]\d*)(\.\d*([eE][+-]?\d+)?)?")
"""How files write numbers: not 007, 1_2 or 1e5, which are rather names of clusters."""


class MissingRule(NamedTuple):
    """Which labels of a partition are missing, besides None, NaN, pd.NA and masked entries."""

    words: frozenset[str] = frozenset(MISSING_WORDS)
    """Texts, without blanks around them."""
    numbers: frozenset[int] | None = None
    """Whole numbers; None for all negative ones."""

    @property
    def more_words(self) -> tuple[str, ...]:
        """The texts and numbers that are missing besides the default ones, as text."""
        return tuple(sorted(self.words - DEFAULT_RULE.words))

    def label_of(self, text: str) -> str | None:
        """Return text without blanks around it, or None if it means missing."""
        text = text.strip()
        if text in self.words:
            return None
        number = number_of(text)
        if number is None or number % 1 != 0:  # of infinity it is no number
            return text
        is_missing = number < 0 if self.numbers is None else number in self.numbers
        return None if is_missing else text


DEFAULT_RULE = MissingRule()
NONE_MISSING = MissingRule(frozenset({""}), frozenset())
"""The rule of an empty list, and of labels to which a rule was applied before."""


def missing_rule(values: Any) -> MissingRule:
    """Return the rule of the values that a user names; None is the default.

    Text is missing in addition to the default words, numbers are so in place of the negative ones. After a
    list of neither, only empty values are missing.
    """
    if values is None:
        return DEFAULT_RULE
    is_one = isinstance(values, (str, bytes)) or not hasattr(values, "__iter__")
    items = [values] if is_one else [*values]
    texts = {str(v).strip() for v in items if v is not None and type(v).__name__ != "NAType" and v == v}
    texts |= {str(int(value)) for value in items if isinstance(value, (bool, np.bool_))}  # 0 and 1 in arrays
    if not texts:
        return NONE_MISSING
    numbers = {int(number) for number in map(number_of, texts) if number is not None and number % 1 == 0}
    return MissingRule(DEFAULT_RULE.words | texts, frozenset(numbers) or None)


def number_of(text: str) -> int | float | None:
    """Return a number that is written as in files, exactly if it is whole and fits a float, else None."""
    if not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    return number if "." in text or math.isinf(number) else int(text)


def loose_number(cell: str) -> float | None:
    """Return the finite number that Python reads in a text, else None."""
    try:
        return float(cell) if np.isfinite(float(cell)) else None
    except ValueError:
        return None


# Ids

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
        digest, n_text = digest_of_ids([values])
        n_bytes = n_text or 8 * len(values)
        self.values: Any = values
        self.n_objects: int = len(values)
        self.held_bytes: int = values.nbytes
        self.facts: IdFacts = IdFacts(name, is_index, _kind_of(values), n_bytes, digest)

    def with_values(self, values: Any) -> Ids:
        """Return the ids of other objects, in a column of the same name."""
        return Ids(values, self.facts.name, self.facts.is_index)

    def read(self, start: int, stop: int) -> Any:
        """Return the ids of a range of rows, an Arrow array."""
        return self.values.slice(start, stop - start)

    def blocks(self, rows: int = BLOCK_ROWS) -> Iterator[Any]:
        """Yield the ids in order, exactly ``rows`` at a time but the last."""
        for block in row_blocks(self.n_objects, rows):
            yield self.read(block.start, block.stop)

    def take(self, rows: np.ndarray) -> Ids:
        """Return the ids of some rows; blocks without any of these are not read."""
        import pyarrow as pa

        order, parts = np.argsort(rows, kind="stable"), [self.read(0, 0)]
        ascending = rows[order]
        for number in np.unique(ascending // BLOCK_ROWS).tolist():
            start, stop = number * BLOCK_ROWS, min((number + 1) * BLOCK_ROWS, self.n_objects)
            low, high = np.searchsorted(ascending, [start, stop])
            parts.append(self.read(start, stop).take(ascending[low:high] - start))
        return self.with_values(pa.concat_arrays(parts).take(np.argsort(order)))

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
    """Return the numbers and no bytes or, for text, the end of each id and the UTF-8 of all, uint8.

    Ends are counted in a text that has ``first`` bytes before these ids.
    """
    if _kind_of(ids) != TEXT:
        return np.ascontiguousarray(ids.to_numpy(zero_copy_only=False)), np.empty(0, np.uint8)
    _, offsets, text = ids.buffers()
    ends = np.frombuffer(offsets, np.int64, len(ids) + 1, 8 * ids.offset)
    begin, end = int(ends[0]), int(ends[-1])
    content = np.empty(0, np.uint8) if text is None else np.frombuffer(text, np.uint8)[begin:end]
    return ends[1:] - begin + first, content


def digest_of_ids(blocks: Iterable[Any]) -> tuple[str, int]:
    """Return the digest of ids, which does not depend on the blocks, and the bytes of their text, if any."""
    ends_crc = text_crc = n_text = 0
    for block in blocks:
        ends, text = parts_of(block, n_text)
        n_text += len(text)
        ends_crc, text_crc = zlib.crc32(ends.data, ends_crc), zlib.crc32(text.data, text_crc)
    return f"{ends_crc:08x}{text_crc:08x}", n_text


# Reading


def scan_ids(source: Source, name: str, *, is_index: bool = False) -> Ids:
    """Read the only column of ``source`` and return it as ids.

    Raises InvalidIdsError for missing and repeated ids, and for other types than whole numbers and text. In a
    file without types, ids are whole numbers if all of them look so and have no zeros in front; else they are
    the text of the file.
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
        parts.clear()
        release_unused()
        refuse_repeated_ids(values, name, source.where)
    except InvalidIdsError as error:
        if not is_index:
            raise
        remedy = "or leave it out by df.reset_index(drop=True) or drop='index' (--drop index)."
        message = f"{str(error).rstrip('.')}; {remedy}"
        raise InvalidIdsError(message, column=error.column, row=error.row) from None
    return Ids(values, name, is_index)


def canonical(raw: Any, name: str, where: str, first: int = 0) -> Any:
    """Return a column of ids as int64, uint64 or large_string; ``first`` is its first row, for messages."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = plain_arrow(raw)
    kind = values if isinstance(values, str) else f"type {values.type}"
    is_text = kind == "type large_string"
    if isinstance(values, str) or not (is_text or pa.types.is_integer(values.type) or values.null_count):
        fault = f"{name} of {where} has ids that are neither all whole numbers nor all text ({kind})"
        raise InvalidIdsError(f"{fault}; convert them.", column=name)
    missing = values.is_null(nan_is_null=True)
    missing = pc.or_kleene(missing, pc.equal(values, "")) if is_text else missing
    if (row := missing.index(True).as_py()) >= 0:
        fault = f"row {first + row} (from 0) of {where} has no {name}; fill or drop the rows without one."
        raise InvalidIdsError(fault, column=name, row=first + row)
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
            if raw.dtype.kind in "cV":  # of which Arrow tells a number
                return f"numpy {raw.dtype}"
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
    if (index := pc.greater(counts.field("counts"), 1).index(True).as_py()) >= 0:
        value = counts.field("values")[index]
        rows = np.flatnonzero(pc.equal(values, value))[:2].tolist()
        message = f"{name} {_quote(value)} is in rows {rows[0]} and {rows[1]} (from 0) of {where}; change it."
        raise InvalidIdsError(message, column=name, row=rows[1])


def rows_of_ids(objects: Ids, ids: Ids, where: str) -> np.ndarray | None:
    """Return the row in ``ids`` of each of the ``objects``, -1 without one; None if both have one order.

    Raises InvalidIdsError for an id that is no object, and for ids of another type.
    """
    import pyarrow.compute as pc

    name = ids.facts.name
    if objects.facts.digest == ids.facts.digest:
        return None
    refuse_other_type(objects, ids, where)
    object_ids, values = objects.hold().values, ids.hold().values
    unknown = pc.is_null(pc.index_in(values, value_set=object_ids))
    if (row := unknown.index(True).as_py()) >= 0:
        message = f"row {row} (from 0) of {where} has {name} {_quote(values[row])}, which no object has."
        raise InvalidIdsError(message, column=name, row=row)
    rows = pc.fill_null(pc.index_in(object_ids, value_set=values), MISSING)
    return np.asarray(rows.to_numpy(zero_copy_only=False), np.int64)


def refuse_other_type(objects: Ids, ids: Ids, where: str) -> None:
    """Raise InvalidIdsError for numbers where the objects have text, and the like."""
    name = ids.facts.name
    if objects.facts.dtype != ids.facts.dtype:
        fault = f"{name} of {where} is {ids.facts.dtype} but the ids of the objects are {objects.facts.dtype}"
        kind = "str" if objects.facts.dtype == TEXT else objects.facts.dtype
        raise InvalidIdsError(f"{fault}; convert it, as by df[{name!r}].astype({kind!r}).", column=name)


def are_positions(ids: Ids, start: int = 0) -> bool:
    """Return whether ids are ``start``, ``start + 1``, ...."""
    if ids.facts.dtype == TEXT:
        return False
    return np.array_equal(ids.hold().values, np.arange(start, start + ids.n_objects))


def _quote(value: Any) -> str:
    text = repr(value.as_py())
    return text if len(text) <= 40 else f"{text[:40]}..."
