"""Encode the labels of one partition as the dense codes 0 .. k-1 that are stored.

An ``EncodingBuilder`` sees all blocks of a partition's column; the ``Encoding`` it builds encodes the blocks
in a second pass. Codes follow the order of the values, so they do not depend on the blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bigcons.disk.schema import MISSING
from bigcons.errors import EmptyPartitionError, InvalidInputError
from bigcons.io.reading import DEFAULT_RULE, MissingRule, number_of
from bigcons.io.table import Column

TABLE_SIZE = 1 << 16
"""Labels below this are looked up in a table, others by binary search."""


class Encoding(NamedTuple):
    """The dense codes of one partition: ``values[c]`` is the label with code ``c``."""

    name: str
    values: np.ndarray
    """``(n_clusters,)`` int64, or text as objects."""
    n_labeled: int
    """Number of labels in the first pass that were not missing."""
    lookup: Callable[[Any], np.ndarray]
    """From the keys or text of a column to codes."""
    rule: MissingRule = DEFAULT_RULE

    def encode(self, raw: Column) -> np.ndarray:
        """Return the codes ``(n_rows,)`` of a block, -1 for missing and unknown labels."""
        column = plain_column(raw, self.name, self.rule)
        if _no_label(column):
            return np.full(len(column), MISSING, np.int8)
        return self.lookup(column)

    @property
    def categories(self) -> np.ndarray | None:
        """The values, or None if every value is its own code."""
        return None if is_dense(self.values) else self.values


class EncodingBuilder:
    """Collects the label values of one partition.

    ``known`` values keep their codes; new ones come after them, and none of them is missing. With ``is_text``
    (a file without types), text labels are parsed as numbers if all of them are numbers. ``rule`` says which
    labels are missing.
    """

    def __init__(
        self,
        name: str,
        known: np.ndarray | None = None,
        *,
        is_text: bool = False,
        rule: MissingRule = DEFAULT_RULE,
    ) -> None:
        self._name = name
        self._known = np.empty(0, np.int64) if known is None else known
        if rule.numbers is None and self._known.dtype != object and np.min(self._known, initial=0) < 0:
            rule = rule._replace(numbers=frozenset())
        self._rule = rule
        self._may_be_numbers = is_text and self._known.dtype != object
        self._found: _Integers | _Texts | None = None
        self._texts = _Texts(rule, frozenset(self._known) if self._known.dtype == object else frozenset())

    def add(self, raw: Column) -> None:
        """Add the values in a block of the column; raise InvalidInputError for invalid labels."""
        column = plain_column(raw, self._name, self._rule)
        text = not isinstance(column, np.ndarray)
        if _no_label(column) or (text and not self._texts.add(column)):
            return
        if self._found is None:
            if len(self._known) and not self._may_be_numbers:
                self._check_kind(text, self._known.dtype == object)
            self._found = self._texts if text else _Integers()
        self._check_kind(text, isinstance(self._found, _Texts))
        if isinstance(self._found, _Integers):
            self._found.add(column)

    def merge(self, other: EncodingBuilder) -> None:
        """Add the values that another builder found in later blocks, which are whole numbers."""
        if isinstance(self._found, _Integers) and isinstance(other._found, _Integers):
            self._found.merge(other._found)
        self._found = self._found or other._found

    def n_bytes(self) -> int:
        """Return approximately how much memory the values take."""
        return 0 if self._found is None else self._found.n_bytes()

    def build(self) -> Encoding:
        """Return the encoding of the values; raises EmptyPartitionError if all labels are missing."""
        found = self._found
        if found is None:
            if not len(self._known):
                raise EmptyPartitionError(self._name)
            found = self._texts if self._known.dtype == object else _Integers()
        rule = self._rule
        if isinstance(found, _Integers):
            values = _after(self._known, rule.gathered(found.values()))
            lookup = integer_lookup(rule.spread(values))
            return Encoding(self._name, values, found.n_labeled, lookup, rule)
        raw = list(found.labels)
        labels = [label for label in found.labels.values() if label is not None]
        numbers = self._parsed(labels) if self._may_be_numbers else None
        if numbers is None:
            self._check_kind(True, self._known.dtype == object or not len(self._known))
            values = np.array([*self._known, *sorted(set(labels) - set(self._known))], object)
            codes: dict[str | None, int] = {value: code for code, value in enumerate(values)}
        else:
            values = _after(self._known, np.unique(numbers))
            places = integer_lookup(rule.spread(values))(rule.spread(numbers))
            codes = dict(zip(labels, places.tolist(), strict=True))
        codes[None] = MISSING
        lookup = text_lookup(
            np.array(raw, object), np.array([codes[label] for label in found.labels.values()])
        )
        n_labeled = sum(count for text, count in found.counts.items() if found.labels[text] is not None)
        return Encoding(self._name, values, n_labeled, lookup, rule)

    def _parsed(self, labels: Sequence[str]) -> np.ndarray | None:
        """Return labels as whole numbers, None if one is not a number."""
        found = [number_of(label) for label in labels]
        numbers = [number for number in found if number is not None]
        if len(numbers) < len(found):
            return None
        fractions = [number for number in numbers if isinstance(number, float)]
        _whole_numbers(np.array(fractions, float), self._name, self._rule)  # refuses them
        return _signed(np.array([int(number) for number in numbers], object), self._name)

    def _check_kind(self, text: bool, text_before: bool) -> None:
        if text != text_before:
            raise InvalidInputError(
                f"partition {self._name!r} mixes text and whole numbers, here or with those before; "
                "use one kind of label."
            )


class _Integers:
    """Whole numbers found so far."""

    def __init__(self) -> None:
        self.n_labeled = 0
        self._small = np.zeros(1, bool)  # the last entry is for missing labels
        self._large = np.empty(0, np.int64)

    def add(self, column: np.ndarray) -> None:
        self.n_labeled += int(np.count_nonzero(column >= 0))
        largest = int(column.max())
        if largest < TABLE_SIZE:
            if largest > len(self._small) - 2:
                self._small = np.append(self._small, np.zeros(largest + 2 - len(self._small), bool))
            self._small[np.maximum(column, MISSING)] = True
            self._small[MISSING] = False
        else:
            self._large = np.union1d(self._large, column[column >= 0].astype(np.int64))

    def merge(self, other: _Integers) -> None:
        self.n_labeled += other.n_labeled
        small, more = sorted((self._small, other._small), key=len)
        self._small = more.copy()
        self._small[: len(small) - 1] |= small[:-1]
        self._large = np.union1d(self._large, other._large)

    def values(self) -> np.ndarray:
        return np.union1d(np.flatnonzero(self._small), self._large)

    def n_bytes(self) -> int:
        return self._small.nbytes + self._large.nbytes


class _Texts:
    """Texts found so far, with their counts and what label each of them is."""

    def __init__(self, rule: MissingRule, known: frozenset[str]) -> None:
        self.counts: Counter[str] = Counter()
        self.labels: dict[str, str | None] = {}
        self._rule, self._known = rule, known

    def add(self, column: Any) -> bool:
        """Add a column and return whether it has a label."""
        has_label = False
        for entry in column.drop_null().value_counts().to_pylist():
            text = entry["values"]
            self.counts[text] += entry["counts"]
            if text not in self.labels:
                self.labels[text] = text if text in self._known else self._rule.label_of(text)
            has_label = has_label or self.labels[text] is not None
        return has_label

    def n_bytes(self) -> int:
        return 150 * len(self.counts)


def is_dense(values: np.ndarray) -> bool:
    """Return whether the values equal their codes: 0, 1, 2, ..."""
    return values.dtype != object and np.array_equal(values, np.arange(len(values)))


def integer_lookup(values: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from integers ``(n_rows,)`` to their positions in ``values``, or -1; it pickles."""
    if is_dense(values):
        return partial(_below, len(values))
    if int(values.max(initial=0)) < TABLE_SIZE:
        table = np.full(int(values.max(initial=0)) + 2, MISSING, np.int32)
        table[values] = np.arange(len(values))
        return partial(_in_table, table)
    order = np.argsort(values)
    return partial(_bisected, values[order], order)


def _below(n_values: int, column: np.ndarray) -> np.ndarray:
    return np.where(column < n_values, np.maximum(column, MISSING), MISSING)


def _in_table(table: np.ndarray, column: np.ndarray) -> np.ndarray:
    return table[np.where(column <= len(table) - 2, np.maximum(column, MISSING), MISSING)]


def _bisected(ascending: np.ndarray, order: np.ndarray, column: np.ndarray) -> np.ndarray:
    place = np.minimum(np.searchsorted(ascending, column), len(ascending) - 1)
    return np.where(ascending[place] == column, order[place], MISSING)


def text_lookup(texts: np.ndarray, codes: np.ndarray) -> Callable[[Any], np.ndarray]:
    """Return a function from an Arrow column of text ``(n_rows,)`` to codes, or -1; it pickles."""
    import pyarrow as pa

    return partial(_text_codes, pa.array(texts, pa.large_string()), np.append(codes, MISSING))


def _text_codes(known: Any, code_or_missing: np.ndarray, column: Any) -> np.ndarray:
    import pyarrow.compute as pc

    place = pc.index_in(column, value_set=known, skip_nulls=True)
    return code_or_missing[pc.fill_null(place, len(known)).to_numpy(zero_copy_only=False)]


def plain_column(raw: Column, name: str, rule: MissingRule = DEFAULT_RULE) -> Any:
    """Convert a column ``(n_rows,)`` of any type to the keys of numbers (negative: missing) or Arrow text.

    Raises InvalidInputError, with the partition's ``name``, for labels that are neither.
    """
    if not isinstance(raw, np.ndarray):
        return _plain_arrow(raw, name, rule)
    raw = unmasked(raw)
    if raw.dtype.kind == "f":
        return _whole_numbers(raw, name, rule)
    if raw.dtype == np.uint64:
        return rule.keys(_signed(raw, name))
    if raw.dtype.kind in "biu":
        return rule.keys(raw.astype(np.result_type(raw.dtype, np.int8), copy=False))
    return _plain_arrow(_to_arrow(raw, name, rule), name, rule)


def unmasked(array: np.ndarray) -> np.ndarray:
    """Return an array with None for masked entries, which are missing labels."""
    if not isinstance(array, np.ma.MaskedArray):
        return array
    values = array.data.astype(object)
    values[np.ma.getmaskarray(array)] = None
    return values


def _no_label(column: Any) -> bool:
    if isinstance(column, np.ndarray):
        return bool(column.max(initial=MISSING) < 0)
    return bool(column.null_count == len(column))


def _after(known: np.ndarray, found: np.ndarray) -> np.ndarray:
    return np.concatenate([known, np.setdiff1d(found, known, assume_unique=True)])


def _whole_numbers(raw: np.ndarray, name: str, rule: MissingRule) -> np.ndarray:
    exact = 2.0 ** (np.finfo(raw.dtype).nmant + 1)
    raw = raw.astype(np.float64, copy=False)
    missing = np.isnan(raw)
    broken = ~missing & ((np.rint(raw) != raw) | np.isinf(raw))
    if broken.any():
        raise InvalidInputError(
            f"partition {name!r} has label {raw[broken][0]}; labels must be whole numbers or text. "
            "Leave the column out with drop= (--drop) or recode it; of features make an ensemble by "
            "bigcons.generate (bigcons generate), and pass memberships to Ensemble.from_memberships (bigcons "
            "import --memberships)."
        )
    if (inexact := np.abs(raw) >= exact).any():
        raise InvalidInputError(
            f"partition {name!r} has the float {raw[inexact][0]:.0f} as a label, which several whole numbers "
            "become; pass integers, or recode it."
        )
    return rule.keys(np.where(missing, MISSING, raw).astype(np.int64), missing)


def _signed(raw: np.ndarray, name: str) -> np.ndarray:
    largest = int(raw.max(initial=0))  # exact for any integer type
    if largest >= 1 << 63:
        raise InvalidInputError(
            f"partition {name!r} has label {largest}; labels must be below 2**63: recode it or use text."
        )
    return raw.astype(np.int64)


def _to_arrow(raw: np.ndarray, name: str, rule: MissingRule) -> Any:
    import pyarrow as pa

    if raw.dtype.kind not in "OUST":
        raise InvalidInputError(
            f"partition {name!r} has labels of type {raw.dtype}; "
            "labels must be whole numbers or text: recode them."
        )
    try:
        return pa.array(raw.astype(object) if raw.dtype.kind == "T" else raw, from_pandas=True)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        is_label = [not isinstance(value, str) or rule.label_of(value) is not None for value in raw]
        if not all(is_label):  # numbers, and text where they are missing
            return _to_arrow(np.where(is_label, raw, np.array(None, object)), name, rule)
        kinds = " and ".join(sorted({type(value).__name__ for value in raw})[:4])
        raise InvalidInputError(
            f"partition {name!r} has labels of type {kinds}; "
            "the labels of a partition must be all whole numbers or all text: recode them."
        ) from None


def _plain_arrow(raw: Any, name: str, rule: MissingRule) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(raw, pa.ChunkedArray):
        raw = raw.combine_chunks()
    if pa.types.is_dictionary(raw.type):
        raw = raw.dictionary_decode()
    kind = raw.type
    if pa.types.is_null(kind):
        return np.full(len(raw), MISSING, np.int8)
    if pa.types.is_boolean(kind):
        raw = raw.cast(pa.int8())
    elif pa.types.is_floating(kind):
        numbers = pc.fill_null(raw, pa.scalar(np.nan, kind)).to_numpy(zero_copy_only=False)
        return _whole_numbers(numbers, name, rule)
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        try:
            return raw.cast(pa.large_string())
        except pa.ArrowInvalid:
            raise InvalidInputError(
                f"partition {name!r} has bytes that are not UTF-8; decode its labels first."
            ) from None
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view():
        return raw.cast(pa.large_string())
    elif not pa.types.is_integer(kind):
        what = (
            "a column of labels for each partition" if pa.types.is_nested(kind) else "whole numbers or text"
        )
        raise InvalidInputError(
            f"partition {name!r} has labels of type {kind}; use {what}, or leave it out with drop= (--drop)."
        )
    keys: np.ndarray = plain_column(pc.fill_null(raw, 0).to_numpy(zero_copy_only=False), name, rule)
    if raw.null_count:
        keys = np.where(pc.is_null(raw).to_numpy(zero_copy_only=False), MISSING, keys)
    return keys
