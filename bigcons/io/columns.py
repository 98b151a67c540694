"""Columns: which of a table are read, which one identifies its rows, and what is missing in them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigcons.errors import InvalidInputError, UnknownColumnError
from bigcons.io.ids import scan_ids
from bigcons.validation import check_choice

if TYPE_CHECKING:
    from bigcons.io.batches import Source

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
    """Choose which columns of a table to use, the one that identifies its rows, and how it is read.

    The result goes wherever a table goes: into `Ensemble.from_labels`, ``fit`` and ``predict``, the functions
    of `bigcons.generate`, and so on. Most of these take the first parameters themselves. A choice of a choice
    replaces what it names.

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
        Which labels or features are missing, besides empty text, NaN, None and masked entries: a value, or a
        list. Text is missing in addition to the words that pandas reads
        as missing (NA, null, ...); of labels, numbers are so in place of the negative ones, and ``[]`` is
        nothing else. By default, the words and, of labels, negative numbers. Blanks around text do not count.
    header : default=None
        Whether the first line of a file of text has the names of the columns. By default it does, but a first
        line with a number in it is refused.
    sep : default=None
        The character between the columns of a file of text, such as ``";"``; the file may then have any
        suffix. By default a comma or, in .tsv, a tab.
    decimal : {".", ","}, default=None
        What stands before the fractions of features in a file of text. By default a point; numbers such as
        1,5 are then refused.
    categorical : default=None
        Features whose numbers are categories, such as zip codes, and are taken as text is.

    Columns are named or, in a table without names, numbered from 0. Nothing is read here; where the table is
    opened, a column that does not exist raises UnknownColumnError, and ids that are missing or repeated
    raise InvalidIdsError, after a pass over that column.

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
    if not (given := given_for(choice)):
        return source
    return replace(source, **given) if isinstance(source, Selection) else choice


def source_of(x: Any) -> Any:
    """Return what was chosen from, as the user gave it."""
    return x.source if isinstance(x, Selection) else x


def given_for(x: Any) -> dict[str, Any]:
    """Return what `select` was given for a source, by parameter."""
    given = {}
    for name, value in vars(x).items() if isinstance(x, Selection) else ():
        if value is not None and name != "source":
            given[name] = value
    return given


def choose(source: Source, choice: Selection, *, with_ids: bool = True) -> Source:
    """Return a source with the columns of a choice, and with its ids; see `select`.

    Names of rows that were not asked for are read ``with_ids`` only.
    """
    if not given_for(choice) and not (with_ids and source.is_named):
        return source
    drops = [column for column in listed(choice.drop) if not is_index(source, column)]
    dropped = {position for column in drops for position in positions_of(source, column)}
    positions = [position for column in listed(choice.columns) for position in positions_of(source, column)]
    if len(set(positions)) < len(positions):
        raise InvalidInputError(f"columns={choice.columns!r} has one twice; name each once.")
    rows = None
    if choice.id is not None and is_index(source, choice.id):
        rows = source.index
    elif choice.id is not None:
        (at,) = positions_of(source, choice.id, may_be_pattern=False)
        rows = (source.text or source).selected([at])
        dropped.add(at)
    elif with_ids and source.is_named and source.ids is None and len(drops) == len(listed(choice.drop)):
        rows = source.index
    positions = positions if choice.columns is not None else list(range(source.n_columns))
    positions = [position for position in positions if position not in dropped]
    if not positions and (choice.columns, choice.drop, choice.id) != (None, None, None):
        raise InvalidInputError(f"{source.where} has no columns left; choose at least one besides the id.")
    chosen = source.selected(positions)
    named = {position for column in listed(choice.categorical) for position in positions_of(source, column)}
    chosen.categorical |= {place for place, position in enumerate(positions) if position in named}
    if choice.missing is not None:
        chosen.rule = missing_rule(choice.missing)
    if rows is not None:
        chosen.ids = scan_ids(rows, rows.names[0] if rows.names else "id", is_index=rows is source.index)
    return chosen


def listed(columns: Columns | None) -> list[Column]:
    """Return one or more columns as a list."""
    if columns is None:
        return []
    return [columns] if isinstance(columns, (str, int, np.integer)) else list(columns)


def is_index(source: Source, column: Column) -> bool:
    """Return whether a column is the names of the rows of a source."""
    if source.index is None or column in (source.names or ()):
        return False
    return column in (INDEX, *(source.index.names or ()))


def positions_of(source: Source, column: Column, *, may_be_pattern: bool = True) -> list[int]:
    """Return the positions of a column, or of all that match a pattern; raise UnknownColumnError for none."""
    names = source.names
    if names is not None and isinstance(column, str):
        positions = [c for c, name in enumerate(names) if name == column]
        if not positions and may_be_pattern:
            positions = [c for c, name in enumerate(names) if fnmatchcase(name, column)]
        elif len(positions) > 1:
            raise InvalidInputError(f"{source.where} has more than one column {column!r}; rename them.")
        if not positions:
            raise UnknownColumnError(source.where, column, names)
        return positions
    position = int(column) if isinstance(column, (int, np.integer)) or column.isdecimal() else -1
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
        """The texts and numbers that are missing besides those of the default, as text."""
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

    Text is missing in addition to the default words, numbers are so in place of the negative ones. A list
    of neither leaves what is empty.
    """
    if values is None:
        return DEFAULT_RULE
    is_one = isinstance(values, (str, bytes)) or not hasattr(values, "__iter__")
    given = [value for value in ([values] if is_one else values) if not _is_null(value)]
    texts = {str(value).strip() for value in given}
    texts |= {str(int(value)) for value in given if isinstance(value, (bool, np.bool_))}  # 0 and 1 in arrays
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


def _is_null(value: Any) -> bool:
    return value is None or type(value).__name__ in ("NAType", "NaTType") or bool(value != value)
