"""How what users hold is read: missing labels, headers and long tables, by the same rules from every source.

What can be read in two ways is read as a parameter says, or refused with both readings.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bigcons.disk.schema import MISSING
from bigcons.errors import InvalidInputError

# Missing labels

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
    is_verbatim: bool = False
    """Whether text is taken as it is, because this rule was applied to it before."""

    @property
    def more_words(self) -> tuple[str, ...]:
        """The texts and numbers that are missing besides those of the default, as text."""
        return tuple(sorted(self.words - DEFAULT_RULE.words))

    def label_of(self, text: str) -> str | None:
        """Return text without blanks around it, or None if it means missing."""
        if self.is_verbatim:
            return text
        text = text.strip()
        if text in self.words:
            return None
        number = number_of(text)
        if number is None or number % 1 != 0:  # of infinity it is no number
            return text
        is_missing = number < 0 if self.numbers is None else number in self.numbers
        return None if is_missing else text

    def keys(self, numbers: np.ndarray, absent: np.ndarray | None = None) -> np.ndarray:
        """Return whole numbers as keys: negative if they are missing, here or ``absent``.

        Where only some numbers are missing, negative ones are labels, whose keys are odd; see `spread`.
        """
        if self.numbers is None:
            return numbers if absent is None else np.where(absent, MISSING, numbers)
        gone = np.isin(numbers, list(self.numbers))
        return np.where(gone if absent is None else gone | absent, MISSING, self.spread(numbers))

    def spread(self, numbers: np.ndarray) -> np.ndarray:
        """Return the keys of numbers that are labels."""
        if self.numbers is None:
            return numbers
        numbers = numbers.astype(np.int64, copy=False)
        if numbers.size and (numbers.max() >= 1 << 62 or numbers.min() < -(1 << 62)):
            raise InvalidInputError(f"labels have the number {numbers.max()}; recode it, or use text.")
        return np.where(numbers < 0, -2 * numbers - 1, 2 * numbers)

    def gathered(self, keys: np.ndarray) -> np.ndarray:
        """Return the numbers with these keys, ascending."""
        if self.numbers is None:
            return keys
        return np.sort(np.where(keys & 1, -(keys >> 1) - 1, keys >> 1))


DEFAULT_RULE = MissingRule()


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
    found = {text: number_of(text) for text in texts}
    numbers = frozenset(int(n) for n in found.values() if n is not None and n % 1 == 0)
    if not texts:
        return MissingRule(frozenset({""}), frozenset())
    return MissingRule(DEFAULT_RULE.words | texts, numbers or None)


def rules_of(missing: Any, names: Sequence[str]) -> list[MissingRule] | None:
    """Return the rule of each column by ``missing``, values or a mapping from columns to values."""
    if missing is None:
        return None
    if not isinstance(missing, Mapping):
        return [missing_rule(missing)] * len(names)
    return [missing_rule(missing.get(name)) for name in names]


def rule_of_values(values: np.ndarray | None) -> MissingRule:
    """Return the rule for labels of a partition of an ensemble that are given back as these values."""
    is_signed = values is not None and values.dtype != object and values.min(initial=0) < 0
    return MissingRule(frozenset(), frozenset() if is_signed else None, is_verbatim=True)


def number_of(text: str) -> int | float | None:
    """Return a number that is written as in files, exactly if it is whole and fits a float, else None."""
    if not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    return number if "." in text or math.isinf(number) else int(text)


def _is_null(value: Any) -> bool:
    return value is None or type(value).__name__ in ("NAType", "NaTType") or bool(value != value)


# Headers


def header_names(lines: Iterator[list[str]], where: str, header: bool | None) -> list[str] | None:
    """Return the names of the columns in the first of the ``lines``; None with ``header=False``.

    The first column may have no name, "", if it has the names of the rows; it has none where there is a name
    less than the next line has cells, as write.table of R writes it. A first line with a number may be an
    object as well: it is refused unless ``header`` says what it is.
    """
    if header is False:
        return None
    first, second = next(lines, []), next(lines, [])
    is_short = len(second) == len(first) + 1 and second[-1] != ""
    names = ["", *first] if is_short else first
    if header is None and second and len(second) != len(first) and first[0].startswith("#"):
        raise InvalidInputError(
            f"{where} begins with a comment, {first[0]!r}; delete such lines, or pass header=True (--header) "
            "if it has names of columns."
        )
    values = [cell for cell in names[1 if names[0] == "" else 0 :] if loose_number(cell) is not None]
    is_named = names[0] == "" and len(second) > 1 and loose_number(second[0]) is None
    if header is None and ((values and not is_named) or all(cell in MISSING_WORDS for cell in names)):
        line = ",".join(first[:4] if len(first) <= 4 else [*first[:4], "..."])
        raise InvalidInputError(
            f"{where} begins with the line {line}, which may be a header or an object; pass header=True "
            "(--header) if these are names of columns, header=False (--no-header) if they are values."
        )
    if "" in names[1:]:
        raise InvalidInputError(
            f"{where} has no name for column {names.index('', 1)}; name it, or pass header=False "
            "(--no-header) if the first line is an object."
        )
    return list(names)


def loose_number(cell: str) -> float | None:
    """Return the finite number that Python reads in a text, else None."""
    try:
        return float(cell) if np.isfinite(float(cell)) else None
    except ValueError:
        return None


# What is no row for each object

_NAMES_OF_VOTERS = re.compile(
    r"(?i)(worker|annotator|rater|labell?er|coder|judge|partition|run|clustering).*"
)
_NAMES_OF_VOTES = re.compile(r"(?i)(label|vote|answer|response|annotation|cluster|class|rating).*")


def refuse_other_matrices(codes: np.ndarray, n_objects: int | None, where: str) -> None:
    """Raise InvalidInputError for codes of the first rows that look like memberships or a matrix of pairs.

    Of three or more columns of two labels, each object has the second one in exactly one: these are the
    clusters of one partition. A square matrix that is symmetric tells which objects belong together.
    """
    n_columns = codes.shape[1]
    if len(codes) < 20:  # which may be such by chance
        return
    are_halves = codes.min() == 0 and (codes.max(axis=0) == 1).all()
    if n_columns > 2 and are_halves and (codes.sum(axis=1) == 1).all():
        raise InvalidInputError(
            f"{where} may have a column for each cluster, because each object has the second label in "
            f"exactly one of {n_columns}; pass it to Ensemble.from_memberships([x]) (bigcons import "
            "--memberships), or name the columns (columns=, --columns) if they are partitions."
        )
    if codes.shape == (n_objects, n_objects) and np.array_equal(codes, codes.T):
        raise InvalidInputError(
            f"{where} is a symmetric matrix of {n_objects:,} rows, which may tell of each two objects "
            "whether they belong together; pass the partitions that it was made of, or name the columns "
            "(columns=, --columns) if they are partitions."
        )


def refuse_long(codes: np.ndarray, encodings: Sequence[Any], where: str) -> None:
    """Raise InvalidInputError for codes of the first rows that look like one row for each label.

    In such a long table no two rows are of the same object and partition, but each of both has many rows: of
    a sorted table, one of them among the first rows. Columns of partitions and labels are known by their
    names or, in a table of three, by that.
    """
    n_rows, n_columns = codes.shape
    names = [encoding.name for encoding in encodings]
    voters = [c for c, name in enumerate(names) if _NAMES_OF_VOTERS.fullmatch(name)]
    votes = [c for c, name in enumerate(names) if _NAMES_OF_VOTES.fullmatch(name)]
    if n_columns > 2 and voters and len(votes) == 1:
        candidates = [(thing, voter, *votes) for voter in voters for thing in range(n_columns)]
    elif n_columns == 3 and n_rows >= 200:  # fewer rows may by chance not agree in two of three partitions
        candidates = [(0, 1, 2), (0, 2, 1), (1, 2, 0)]
    else:
        return
    for thing, voter, label in candidates:
        things, voted_by = codes[:, thing].astype(np.int64), codes[:, voter]
        if len({thing, voter, label}) < 3 or np.min(things) < 0 or np.min(voted_by) < 0:
            continue
        n_pairs = len(np.unique(things * (int(voted_by.max()) + 1) + voted_by))
        if n_pairs < n_rows or 2 * min(len(np.unique(column)) for column in (things, voted_by)) > n_rows:
            continue
        counts = [len(encodings[c].values) for c in (thing, voter)]
        if 2 * max(counts) > encodings[thing].n_labeled:
            continue
        if counts[0] < counts[1] and not voters:
            thing, voter = voter, thing
        raise InvalidInputError(
            f"{where} may be a long table, because no two rows have the same {names[thing]!r} and "
            f"{names[voter]!r}; pass it to Ensemble.from_long(table, object={names[thing]!r}, "
            f"partition={names[voter]!r}, label={names[label]!r}) (bigcons import --long), or name the "
            f"columns (columns=, --columns) if each row is an object in {n_columns} partitions."
        )
