"""Labels to the dense codes 0 .. k-1 that are held and stored, in two passes over batches of any size.

An `Encoding` learns the labels of a partition from all batches, and encodes them in a second pass. Codes
follow the order of the values, so they do not depend on the batches. Memory: a batch and the distinct values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from bigcons.disk.schema import MISSING
from bigcons.errors import EmptyPartitionError, InvalidInputError, SuspiciousLabelsWarning, quote, warn_user
from bigcons.io.columns import DEFAULT_RULE, Ids, MissingRule, number_of, plain_arrow
from bigcons.io.sources import Source, columns_of
from bigcons.memory import BLOCK_ROWS, DataBudget, row_blocks, rows_within

TABLE_SIZE = 1 << 16
"""Labels below this are looked up in a table, others by binary search."""

MIN_CHUNK_ROWS = 1_024


class Encoding:
    """The dense codes of one partition: ``values[c]``, int64 or text, is the label with code ``c``.

    `add` takes the batches of a first pass, `finish` ends it, and `encode` encodes those of a second one; a
    batch is a column of any type, or what `plain_column` returned for it.
    ``known_values`` keep their codes; new ones come after them. With ``is_text`` (a file without types), text
    labels are numbers if all of them are.

    Attributes: ``name``, ``values``, ``categories`` (the values, or None if each is its own code), and
    ``n_labeled``, how many labels of the first pass were not missing.
    """

    def __init__(
        self,
        name: str,
        known_values: np.ndarray | None = None,
        rule: MissingRule = DEFAULT_RULE,
        *,
        is_text: bool = False,
    ) -> None:
        self.name: str = name
        self.values: np.ndarray = np.empty(0, np.int64) if known_values is None else known_values
        self.categories: np.ndarray | None = None
        self.n_labeled: int = 0
        is_named = self.values.dtype == object
        if rule.numbers is None and not is_named and self.values.min(initial=0) < 0:
            rule = rule._replace(numbers=frozenset())
        self.rule: MissingRule = rule
        self._may_be_numbers = is_text and not is_named
        self._numbers = np.empty(0, np.int64)
        self._texts: dict[str, str | None] = {text: text for text in self.values} if is_named else {}
        """The label that each text is, None where it means missing."""
        self._words: Any = None
        self._code_of_word = self._code_of_number = self._order = np.empty(0, np.int64)
        self.missing: set[Any] = set(filter((1 << 63).__le__, rule.numbers or ()))
        """Texts and numbers that occur and are named as missing; numbers beyond int64 are not looked for."""
        self._unusual: set[int] = set()
        """Negative numbers that are missing by default, but that seldom mean it."""

    def add(self, raw: Any) -> None:
        """Learn the labels in a batch of the column; raise InvalidInputError for invalid ones."""
        column = raw if isinstance(raw, tuple) else plain_column(raw, self.name, self.rule)
        if isinstance(column, tuple):
            low = column[0][column[0] < -9]  # the others have one digit
            if low.size and self.rule.numbers is None and len(self._unusual) < 2:
                self._unusual |= _unusual_of(np.unique(low).tolist())
            if self.rule.numbers:
                self.missing.update(np.unique(column[0][~column[1]]).tolist())
            values, n_labeled = distinct(*column)
            self.n_labeled += n_labeled
            self._numbers = np.union1d(self._numbers, values) if len(self._numbers) else values
            return
        for entry in column.drop_null().value_counts().to_pylist():
            text = entry["values"]
            if text not in self._texts:
                self._texts[text] = label = self.rule.label_of(text)
                if label is None:
                    self.missing |= {text.strip(), number_of(text.strip())}
                if label is None and self.rule.numbers is None:
                    self._unusual |= _unusual_of([number_of(text.strip()) or 0])
            if self._texts[text] is not None:
                self.n_labeled += entry["counts"]

    def n_bytes(self) -> int:
        """Return approximately how much memory the values take."""
        return self._numbers.nbytes + 150 * len(self._texts)

    def finish(self) -> Encoding:
        """Return the encoding of the labels that were added.

        Raises EmptyPartitionError if all labels are missing, and InvalidInputError for text beside numbers,
        and for negative numbers that may be labels.
        """
        if len(self._unusual) > 1:
            examples = " and ".join(map(str, sorted(self._unusual)[:2]))
            raise InvalidInputError(
                f"partition {self.name!r} has the labels {examples}, and negative numbers mean missing; pass "
                "missing=[] (--missing '') if they are labels, or in missing= (--missing) what is missing."
            )
        values, labels = self.values, self._labels_of_texts() if self._texts else []
        distinct: Any = set(labels) - {None}
        has_text = bool(distinct) and isinstance(next(iter(distinct)), str)  # all of them, or none
        has_numbers = bool(distinct) and not has_text
        has_numbers |= len(self._numbers) > 0 or (len(values) > 0 and values.dtype != object)
        if not has_text and not has_numbers:
            raise EmptyPartitionError(self.name)
        if has_text and has_numbers:
            raise InvalidInputError(
                f"partition {self.name!r} mixes text and whole numbers, here or with those before; recode it."
            )
        if has_text:
            self.values = np.array([*values, *sorted(distinct.difference(values))], object)
        else:
            numbers = np.union1d(self._numbers, [*distinct]).astype(np.int64) if distinct else self._numbers
            new_numbers = np.setdiff1d(numbers, values, assume_unique=True) if len(values) else numbers
            self.values = np.append(values, new_numbers)
        is_dense = not has_text and np.array_equal(self.values, np.arange(len(self.values)))
        self.categories = None if is_dense else self.values
        if self._texts:
            import pyarrow as pa

            codes = {value: code for code, value in enumerate(self.values.tolist())}
            self._words = pa.array(self._texts, pa.large_string())
            self._code_of_word = np.array([*(codes.get(label, MISSING) for label in labels), MISSING])
        elif not is_dense and self.values.min() >= 0 and self.values.max() < TABLE_SIZE:
            self._code_of_number = np.full(self.values.max() + 2, MISSING, np.int32)  # the last is missing
            self._code_of_number[self.values] = np.arange(len(self.values))
        elif not is_dense:
            self._order = np.argsort(self.values)
        return self

    def _labels_of_texts(self) -> list[Any]:
        """Return the label of each text, None where it is missing: numbers if all in a file are numbers."""
        labels: list[Any] = list(self._texts.values())
        numbers: dict[str, Any] = {label: number_of(label) for label in labels if label is not None}
        if not self._may_be_numbers or None in numbers.values():
            return labels
        floats = [number for number in numbers.values() if isinstance(number, float)]
        _whole(np.array(floats, float), self.name)
        _whole(np.array([int(number) for number in numbers.values()], object), self.name)
        return [None if label is None else int(numbers[label]) for label in labels]

    def encode(self, raw: Any) -> np.ndarray:
        """Return the codes ``(n_rows,)`` of a column, -1 for missing and unknown labels."""
        column = raw if isinstance(raw, tuple) else plain_column(raw, self.name, self.rule)
        if not isinstance(column, tuple) and self._words is not None:
            import pyarrow.compute as pc

            place = pc.fill_null(pc.index_in(column, value_set=self._words), len(self._words))
            return self._code_of_word[place.to_numpy(zero_copy_only=False)]
        if not isinstance(column, tuple) or self.values.dtype == object:  # without a label
            return np.full(len(raw), MISSING, np.int8)
        numbers, are_labels = column
        if self.categories is None:
            return np.where(are_labels & (numbers < len(self.values)), numbers, MISSING)
        if table := len(self._code_of_number):
            return self._code_of_number[np.where(are_labels & (numbers < table), numbers, MISSING)]
        ascending = self.values[self._order]
        place = np.minimum(np.searchsorted(ascending, numbers), len(ascending) - 1)
        return np.where(are_labels & (ascending[place] == numbers), self._order[place], MISSING)


def _unusual_of(numbers: Iterable[float]) -> set[int]:
    """Return the negative numbers with different digits, such as -12, which -9 and -99 have not."""
    return {int(number) for number in numbers if number < 0 and len(set(str(int(-number)))) > 1}


def distinct(numbers: np.ndarray, are_labels: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the different labels among whole numbers, ascending, int64, and how many labels there are."""
    codes = np.where(are_labels, numbers, MISSING)
    is_small = len(codes) and codes.max() < TABLE_SIZE
    if is_small and (numbers.min() >= 0 or not are_labels[numbers < 0].any()):
        counts = np.bincount(codes.astype(np.int64) + 1)
        return np.flatnonzero(counts[1:]), len(codes) - int(counts[0])
    labels = numbers[are_labels]
    parts = np.array_split(labels, len(labels) // BLOCK_ROWS + 1)  # sorted within the cache
    return np.unique(np.concatenate([np.unique(part) for part in parts])).astype(np.int64), len(labels)


# Columns of any type


def plain_column(raw: Any, name: str, rule: MissingRule = DEFAULT_RULE) -> Any:
    """Return a column ``(n_rows,)`` as whole numbers and which of them are labels, or as Arrow text.

    Raises InvalidInputError, with the partition's ``name``, for labels that are neither.
    """
    is_missing: Any = np.False_
    if isinstance(raw, np.ma.MaskedArray) and raw.dtype.kind in "biuf":
        is_missing, raw = np.ma.getmaskarray(raw), raw.data
    elif not isinstance(raw, np.ndarray) or raw.dtype.kind not in "biuf":
        import pyarrow as pa
        import pyarrow.compute as pc

        column = plain_arrow(raw)
        kind = column if isinstance(column, str) else column.type
        if kind == pa.large_string():
            return column
        if kind == pa.null() or kind == pa.bool_():
            column = column.cast(pa.int8())
        elif isinstance(column, str) or not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise InvalidInputError(
                f"partition {name!r} has labels that are neither all whole numbers nor all text in UTF-8 "
                f"({kind}); recode it, or leave it out with drop= (--drop)."
            )
        if column.null_count:
            is_missing = column.is_null().to_numpy(zero_copy_only=False)
            column = pc.fill_null(column, pa.scalar(0, column.type))
        raw = column.to_numpy(zero_copy_only=False)
    top = np.iinfo(raw.dtype).max if raw.dtype.kind == "u" and rule.numbers is None else None
    if top is not None and raw.max(initial=0, where=~is_missing) == top:
        raise InvalidInputError(
            f"partition {name!r} has the label {top}, which is what {raw.dtype} makes of -1; pass "
            f"missing={top} (--missing {top}) if it means missing, or missing=[] (--missing '') if not."
        )
    if raw.dtype.kind == "f":
        is_missing = is_missing | np.isnan(raw)
        raw = _whole(np.where(is_missing, 0, raw), name)
    elif raw.dtype == np.uint64:
        is_missing = is_missing | np.isin(raw, [number for number in rule.numbers or () if number >= 1 << 63])
        raw = _whole(np.where(is_missing, np.uint64(0), raw), name)
    elif raw.dtype.kind in "bu":
        raw = raw.astype(np.result_type(raw.dtype, np.int8))
    are_labels = raw >= 0 if rule.numbers is None else ~np.isin(raw, list(rule.numbers))
    return raw, are_labels & ~is_missing


def _whole(raw: np.ndarray, name: str) -> np.ndarray:
    """Return numbers as int64; refuse fractions, and those so large that several integers become one."""
    limit = 2.0 ** min(np.finfo(raw.dtype).nmant + 1, 63) if raw.dtype.kind == "f" else 1 << 63
    broken = raw >= limit
    if raw.dtype.kind == "f":
        broken |= (raw <= -limit) | (raw != np.rint(raw))
    if broken.any():
        raise InvalidInputError(
            f"partition {name!r} has label {raw[broken][0]}; labels are text, or whole numbers that "
            f"{raw.dtype} holds exactly, below 2**63. Features are for bigcons.generate (bigcons run), "
            "memberships for Ensemble.from_memberships (--memberships); leave others out by drop= (--drop)."
        )
    return raw.astype(np.int64)


# Sources of labels


def scan_labels(
    source: Source,
    names: Sequence[str],
    *,
    values: Sequence[np.ndarray | None] | None = None,
    rows: int = BLOCK_ROWS,
    budget: DataBudget | None = None,
) -> tuple[int, list[Encoding]]:
    """Read ``source`` once; return its rows and the encodings of its partitions, new values after ``values``.

    Raises InvalidInputError for an empty matrix, invalid labels and partitions without labels, and
    MemoryBudgetError if the distinct labels take more than a quarter of ``budget``.
    """
    partitions = zip(names, values or [None] * source.n_columns, strict=True)
    encodings = [Encoding(name, encoded, source.rule, is_text=source.is_text) for name, encoded in partitions]
    n_objects = 0
    for block in source.batches(rows):
        columns = columns_of(block)
        for encoding, column in zip(encodings, columns, strict=True):
            encoding.add(column)
        n_objects += len(columns[0]) if columns else 0
        del block, columns  # before the source makes the next ones
        n_bytes = sum(encoding.n_bytes() for encoding in encodings)
        if budget is not None:  # of which blocks need three times as much
            budget.check(4 * n_bytes, "the process and the distinct labels", "leave out columns")
    if not n_objects or not source.n_columns:
        raise InvalidInputError(
            f"{source.where} is empty, shape ({n_objects}, {source.n_columns}); give at least one label."
        )
    for encoding in encodings:
        encoding.finish()
    return n_objects, encodings


def encode_labels(
    source: Source, encodings: Sequence[Encoding], rows: int = BLOCK_ROWS, *, are_new: bool = False
) -> Iterator[np.ndarray]:
    """Read ``source`` again and yield its rows as codes ``(n_rows, n_partitions)``.

    Warns of suspicious labels of partitions that ``are_new``.

    Raises InvalidInputError for a first batch whose rows are no objects, and at the end if the labels differ
    from the first pass.
    """
    n_labeled = np.zeros(len(encodings), np.int64)
    dtype, is_first = label_dtype([len(encoding.values) for encoding in encodings]), True
    for block in source.batches(rows):
        columns = columns_of(block)
        codes = np.empty((len(encodings), len(columns[0])), dtype)
        for u, encoding in enumerate(encodings):
            codes[u] = encoding.encode(columns[u])
        del block, columns  # before the source makes the next ones
        if is_first and source.may_be_other:
            refuse_no_objects(source.where, source.n_rows, codes.T, encodings, source.ids)
        if is_first and source.is_raw and are_new:
            warn_of_labels(source.n_rows or 0, encodings, codes.T)
        is_first = False
        n_labeled += np.count_nonzero(codes != MISSING, axis=1)
        yield np.ascontiguousarray(codes.T)
    changed = np.flatnonzero(n_labeled != [encoding.n_labeled for encoding in encodings])
    if changed.size:
        raise InvalidInputError(
            f"partition {encodings[changed[0]].name!r} changed while it was read; pass labels that do not."
        )


def refuse_no_objects(
    name: str, n_objects: int | None, codes: np.ndarray, encodings: Sequence[Encoding], ids: Ids | None = None
) -> None:
    """Raise InvalidInputError if the codes ``(n_rows, n_partitions)`` of the first rows are of no objects.

    Text beside columns of numbers may name the objects. Of three or more columns of two labels, each object
    has the second one in exactly one: these are the clusters of one partition. A square matrix that is
    symmetric tells which objects belong together. In a long table of three columns, no two rows are of the
    same object and partition, but each of both has many rows. Few rows may be like that by chance.
    """
    n_rows, n_columns = codes.shape
    texts = [encoding.name for encoding in encodings if encoding.values.dtype == object]
    if ids is None and 0 < len(texts) < n_columns:
        raise InvalidInputError(
            f"{name} has text in {quote(texts)} beside columns of numbers; pass id={texts[0]!r} "
            f"(--id {texts[0]}) if it names the objects, use Ensemble.from_long (bigcons import --long) for "
            "a row for each label, or name the partitions in columns= (--columns)."
        )
    form = ""
    are_halves = n_rows >= 20 and n_columns > 2 and codes.min() == 0 and (codes.max(axis=0) == 1).all()
    may_be_long = ids is None or ids.facts.is_index  # which may number rows
    if are_halves and (codes.sum(axis=1) == 1).all():
        form = "a column for each cluster: then pass Ensemble.from_memberships([x]) (--memberships)"
    elif n_rows >= 20 and codes.shape == (n_objects, n_objects) and np.array_equal(codes, codes.T):
        form = "a symmetric matrix that tells which objects belong together: then pass its partitions"
    elif may_be_long and n_columns == 3 and n_rows >= 200:
        for task, voter in ((0, 1), (0, 2), (1, 2)):
            pairs = codes[:, [task, voter]]
            n_pairs = len(np.unique(pairs, axis=0))
            n_here = min(len(np.unique(column)) for column in pairs.T)
            n_values = max(len(encodings[c].values) for c in (task, voter))
            is_long = pairs.min() >= 0 and n_pairs == n_rows and 2 * n_here <= n_rows
            if is_long and 2 * n_values <= encodings[task].n_labeled:
                form = f"a long table, of {encodings[task].name!r} and {encodings[voter].name!r}: then pass "
                form += "it to Ensemble.from_long (bigcons import --long)"
    if form:
        raise InvalidInputError(
            f"{name} may be {form}; or name the columns in columns= (--columns) if each is a partition."
        )


def warn_of_labels(n_objects: int, encodings: Sequence[Encoding], codes: np.ndarray) -> None:
    """Warn of columns that may be votes or ids, or are of one cluster, and of rows that may be no objects.

    Fewer than 20 rows of ten times as many columns, or more, may be partitions.
    Negative numbers may be votes if partitions with missing labels have one number besides. Ids differ in
    each of 200 objects or more; they are none if all columns are so. Labels unlike the others may be codes of
    missing ones, or totals: words among more numbers, but for those that begin with a digit, such as 0,1, and
    one or two numbers, in half of the partitions, that are further above consecutive ones than these are. The
    first or the last row of text may be types, units or totals if it has labels of its own in all partitions:
    ``codes`` (rows, M) of the first rows tell; a row of names repeats the header.
    """
    messages: list[str] = []
    if n_objects < 20 and len(encodings) >= 10 * n_objects:
        told = f"{n_objects} objects have labels in {len(encodings):,} partitions; transpose the table"
        messages.append(f"{told} if its rows are partitions.")
    gaps = [e for e in encodings if e.n_labeled < n_objects and e.rule == DEFAULT_RULE]
    votes = [e for e in gaps if e.values.dtype != object]
    if votes and all(len(encoding.values) == 1 for encoding in gaps):
        messages.append(
            f"partition {votes[0].name!r} has {votes[0].values[0]} as its only label, and "
            f"{n_objects - votes[0].n_labeled:,} of the objects have none; pass missing=[] (--missing '') if "
            "negative numbers are labels."
        )
    single = [e.name for e in encodings if len(e.values) == 1 and e.n_labeled == n_objects]
    if 0 < len(single) < len(encodings) and n_objects >= 20:
        messages.append(
            f"all objects are in one cluster in {quote(single)}, which tells nothing, and misleads PCC and "
            "MCLA; leave it out with drop= (--drop)."
        )
    oddities: dict[str, list[Any]] = {}
    for e in encodings if n_objects >= 20 else ():
        if e.rule.numbers is not None and min(e.rule.numbers, default=-1) < 0:
            continue  # all other labels are meant
        numbers: Any = [*map(number_of, e.values)] if e.values.dtype == object else e.values
        if words := [word for word, number in zip(e.values, numbers, strict=True) if number is None]:
            outliers = [word for word in words if 2 * len(words) < len(numbers) and not word[0].isdigit()]
        else:
            labels = np.sort(numbers)
            last = int(np.argmax(np.diff(labels, append=labels[-1:]) > 1))
            is_far = last > 0 and len(labels) - last < 4 and labels[last + 1] - labels[last] > last + 1
            outliers = labels[last + 1 :].tolist() if is_far else []
        if outliers:
            oddities[e.name] = outliers
    if 0 < 2 * len(oddities) < len(encodings):  # by chance, of few objects of many clusters
        oddities = {name: outliers for name, outliers in oddities.items() if isinstance(outliers[0], str)}
    if oddities:
        example = next(iter(oddities.values()))
        kind = "numbers" if isinstance(example[0], str) else "far smaller"
        messages.append(
            f"{quote([*oddities])} has {quote(example)}, unlike its other labels, which are {kind}; name in "
            "missing= (--missing) what is no cluster, leave out a row of names, units or totals, or pass "
            "missing=[] (--missing '') if all are clusters."
        )
    are_words = n_objects >= 20 and not oddities and all(e.values.dtype == object for e in encodings)
    if are_words and all(e.name in e.values for e in encodings):
        are_words = False
        messages.append(
            f"the names of the partitions are labels, too ({quote([e.name for e in encodings])}); leave out "
            "a row that repeats the header."
        )
    are_full = min(e.n_labeled for e in encodings) >= n_objects - 1
    for row, ordinal in ((0, "first"), (-1, "last")) if are_words and len(encodings) > 1 else ():
        labeled = codes[row] >= 0
        are_alone = (codes == codes[row]).sum(axis=0)[labeled] == 1
        if are_alone.all() and (labeled.all() or (are_full and labeled.any())):
            texts = quote([str(e.values[c]) for e, c in zip(encodings, codes[row], strict=True) if c >= 0])
            messages.append(
                f"the {ordinal} row has labels that no other has in any partition ({texts}); leave it out if "
                "it has types, units or totals."
            )
    ids = [encoding.name for encoding in encodings if len(encoding.values) == n_objects >= 200]
    if 0 < len(ids) < len(encodings):
        messages.append(
            f"every object has a different label in {quote(ids)}; pass id={ids[0]!r} (--id {ids[0]}) if that "
            "names the objects, and leave out with drop= (--drop) what is no partition."
        )
    for message in messages:
        warn_user(message, SuspiciousLabelsWarning)


def warn_of_unseen(where: str, rule: MissingRule, values: set[Any], category: type[Warning]) -> None:
    """Warn of values named as missing that occur nowhere; ``values`` has texts and numbers that do."""
    texts = [text for text in rule.more_words if values.isdisjoint({text, number_of(text)} - {None})]
    if texts and rule.words.isdisjoint({"True", "False"}):  # which are named as 1 and 0, too
        warn_user(
            f"no value of {where} is {quote(texts)}, which missing= (--missing) names; name what is missing "
            "as it is written there, or leave that out.",
            category,
        )


def counts_of(encodings: Sequence[Encoding]) -> tuple[np.ndarray, np.ndarray, list[np.ndarray | None]]:
    """Return the numbers of clusters and of labeled objects of each partition, and the categories.

    Warns of values named as missing that no partition has.
    """
    if (rule := encodings[0].rule) != DEFAULT_RULE:
        values: set[Any] = set().union(*(encoding.missing for encoding in encodings))
        warn_of_unseen("labels", rule, values, SuspiciousLabelsWarning)
    n_clusters, n_labeled = np.empty((2, len(encodings)), np.int64)
    categories: list[np.ndarray | None] = []
    for u, encoding in enumerate(encodings):
        n_clusters[u], n_labeled[u] = len(encoding.values), encoding.n_labeled
        categories.append(encoding.categories)
    return n_clusters, n_labeled, categories


# Names and sizes


def rechunk(blocks: Iterable[np.ndarray], rows: int) -> Iterator[np.ndarray]:
    """Regroup consecutive blocks into blocks of exactly ``rows`` rows (the last may be smaller)."""
    queue: list[np.ndarray] = []
    n_waiting = 0
    for block in blocks:
        while n_waiting + len(block) >= rows:
            head = block[: rows - n_waiting]
            yield np.concatenate([*queue, head]) if queue else head
            block = block[len(head) :]
            queue, n_waiting = [], 0
        if len(block):
            queue.append(block)
            n_waiting += len(block)
    if queue:
        yield np.concatenate(queue)


def label_dtype(n_clusters: Iterable[int]) -> np.dtype:
    """Return the smallest type for -1 and the codes of partitions with ``n_clusters`` clusters."""
    return np.min_scalar_type(-int(max(n_clusters)))


def default_chunk_rows(n_objects: int, n_columns: int) -> int:
    """Return a power of two that makes about 16 chunks.

    From 1,024 to 65,536, but fewer than 1,024 where these are more than 16 million labels.
    """
    ideal = 1 << max(0, (n_objects + 16 - 1) // 16 - 1).bit_length()
    fewest = MIN_CHUNK_ROWS
    while fewest > 1 and 3 * fewest * n_columns > 4 * 16_000_000:  # the nearest power of two
        fewest //= 2
    return min(max(ideal, fewest), BLOCK_ROWS)


def rows_per_read(source: Source, budget: DataBudget) -> int:
    """Return how many rows of ``source`` to read and encode at a time within half of ``budget``."""
    # columns are encoded one at a time, in 64-bit numbers, beside the batches
    per_row = source.row_bytes + 2 * 4 * source.n_columns + 40
    fixed, purpose = 2 * source.fixed_bytes, "one block of the labels"
    rows = rows_within(budget, 2 * per_row, fixed=fixed, at_least=source.least_rows, noun=purpose)
    return min(rows, max(BLOCK_ROWS, source.least_rows))


def partition_names(
    names: Sequence[object] | None, n: int, kind: str = "partitions", first: int = 0
) -> list[str]:
    """Return names as text, ``p0, p1, ...`` numbered from ``first`` by default.

    Raises InvalidInputError if there is not one for each, or one is repeated.
    """
    if names is None:
        return list(map("p{}".format, range(first, first + n)))
    if len(names) != n:
        raise InvalidInputError(f"names has {len(names)} entries for {n} {kind}; pass one for each.")
    texts = list(map(str, names))
    check_distinct(texts)
    return texts


def check_distinct(names: Sequence[str], existing: Sequence[str] = ()) -> None:
    """Raise InvalidInputError if a name is repeated, or is one of those ``existing`` in an ensemble."""
    used_names = set(existing)
    for name in names:
        if name in used_names:
            fault = "the ensemble has already" if name in existing else "two partitions are named"
            raise InvalidInputError(f"{fault} {name!r}; leave one out, or give each a name of its own.")
        used_names.add(name)


# Rows of labels, and one clustering


def observed(rows: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return which partitions label each object (rows, M), given labels (rows, M) or memberships (rows, B).

    Partition ``u`` has the columns of memberships from ``offsets[u]``, all 0 where it is missing.
    """
    if rows.dtype.kind != "f":
        return rows >= 0
    return np.maximum.reduceat(rows, offsets[:-1], axis=1) > 0


def are_labeled(rows: np.ndarray, offsets: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Return which objects (rows,) have a label; partitions of weight 0 do not count."""
    labeled = observed(rows, offsets)
    return np.asarray((labeled if weights is None else labeled[:, weights > 0]).any(axis=1))


def names_of_rows(x: Any) -> Any:
    """Return what identifies the rows of something: an index of pandas, `Ids`, or a range without ids.

    None of arrays, whose rows have no names. An ensemble, a consensus or a fitted clusterer has ids; without,
    its rows have numbers, of which an index may be a permutation.
    """
    x = stored_result(x)
    if hasattr(index := getattr(x, "index", None), "nlevels"):
        return index
    if hasattr(x, "id_column"):
        return range(x.n_objects) if x.id_column is None else x.id_column
    if hasattr(x, "_ids"):
        return range(len(x.labels_)) if x._ids is None else x._ids
    return None


def are_other_rows(names: Any, other_names: Any) -> bool:
    """Return whether two results of `names_of_rows` are known to differ, in names or in order.

    The names 0, 1, ... in order say nothing, unless the other names are these in another order.
    """
    if names is None or other_names is None or names is other_names:
        return False
    if isinstance(names, range) and isinstance(other_names, range):
        return False
    if hasattr(names, "facts") and hasattr(other_names, "facts") and names.facts[2:] == other_names.facts[2:]:
        return False  # of one type, size and digest
    arrays = []
    for rows in (names, other_names):
        if hasattr(rows, "hold"):
            rows = rows.hold().values.to_numpy(zero_copy_only=False)
        array = rows.to_numpy() if hasattr(rows, "nlevels") else np.asarray(rows)
        arrays.append(array if array.dtype.kind in "iu" else array.astype(object))
    first, second = arrays
    if np.array_equal(first, second):
        return False
    is_default = any(np.array_equal(array, np.arange(len(array))) for array in arrays)
    return not is_default or set(first.tolist()) == set(second.tolist())


def refuse_other_rows(a: str, a_rows: Any, b: str, b_rows: Any) -> None:
    """Raise InvalidInputError for `are_other_rows`; ``a`` and ``b`` say whose names they are."""
    if not are_other_rows(a_rows, b_rows):
        return
    if not hasattr(a_rows, "nlevels"):
        a, a_rows, b, b_rows = b, b_rows, a, a_rows
    remedy = ""
    if hasattr(a_rows, "nlevels"):
        in_order = f"{a}.sort_index()" if isinstance(b_rows, range) else f"{a}.loc[the ids of {b}]"
        in_order = f"{a}.loc[{b}.index]" if hasattr(b_rows, "nlevels") else in_order
        remedy = f", such as {in_order}, or {a}.to_numpy() if they are"
    raise InvalidInputError(
        f"{a} and {b} have rows of different names, or in another order; pass them in one order{remedy}."
    )


def stored_result(result: Any) -> Any:
    """Return the `Consensus` of a fitted clusterer whose result is stored; anything else stays.

    In place of a `ConsensusClustering` stands the method that it has fitted. Raises InvalidInputError for a
    clusterer that is not fitted.
    """
    result = getattr(result, "consensus_", result)
    result = getattr(result, "_stored", None) or result
    if hasattr(type(result), "fit") and not hasattr(result, "labels_"):
        raise InvalidInputError(f"{type(result).__name__} is not fitted; call fit first.")
    return result


def labels_of(result: Any) -> Any:
    """Return the labels ``(n_objects,)`` of a fitted clusterer or a `Consensus`, or labels as given.

    Labels of a store are read when sliced. Raises InvalidInputError for an ensemble.
    """
    result = stored_result(result)
    if hasattr(result, "n_partitions") and not hasattr(result, "fit"):
        raise InvalidInputError(
            f"an {type(result).__name__} has no labels of a consensus; pass one that was made of it."
        )
    return getattr(result, "label_rows", getattr(result, "labels_", result))


class LabelColumn:
    """Labels ``(n_objects,)`` of a clustering, recoded to 0 .. n_clusters - 1 as they are read.

    A fitted clusterer and a `Consensus` have labels; labels with an index keep it as `row_names`.
    """

    def __init__(self, name: str, labels: Any) -> None:
        self.name = name
        self.row_names: Any = names_of_rows(labels)
        labels = labels_of(labels)
        if type(labels).__module__.partition(".")[0] not in ("numpy", "pyarrow", "zarr", "bigcons"):
            labels = np.asarray(labels, dtype=None if hasattr(labels, "__array__") else object)
        self._labels = labels  # slices are arrays of numpy or pyarrow
        shape = self._labels.shape if hasattr(self._labels, "shape") else (len(self._labels),)
        if len(shape) != 1:
            raise InvalidInputError(f"{name} has shape {shape}; pass one label per object, (n_objects,).")
        self.n_objects: int = shape[0]

    @property
    def n_clusters(self) -> int:
        """Number of different labels."""
        return len(self.values)

    @cached_property
    def values(self) -> np.ndarray:
        """The different labels ``(n_clusters,)``, ascending; label k has code k."""
        return self._encoding.values

    def codes(self, start: int, stop: int) -> np.ndarray:
        """Return the codes ``(stop - start,)`` int64 of a range of objects, -1 where missing."""
        return self._encoding.encode(self._labels[start:stop]).astype(np.int64, copy=False)

    @cached_property
    def _encoding(self) -> Encoding:
        encoding = Encoding(self.name)
        for block in row_blocks(self.n_objects, BLOCK_ROWS):
            encoding.add(self._labels[block.start : block.stop])
        only = encoding.finish().categories
        if only is not None and len(only) == 1 and 20 <= self.n_objects > encoding.n_labeled:
            words = f"{self.name} has {only[0]} as its only label, and negative numbers mean missing; number "
            warn_user(f"{words}the clusters from 0 if those are labels.", SuspiciousLabelsWarning)
        return encoding
