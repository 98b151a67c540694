"""The errors and warnings of bigcons.

Every message is one line: the value, the rule it breaks, the remedy. Values that a program may act on are
also attributes, so that no text need be parsed. All errors can be pickled with their attributes.
"""

from __future__ import annotations

import copyreg
import difflib
import math
import re
import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import Any


class BigconsError(Exception):
    """Base class of all errors that bigcons raises deliberately."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        vars(self).update(facts)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what restores a pickled error, whose message is not made anew."""
        return copyreg.__newobj__, (type(self),), {"args": self.args, **vars(self)}  # type: ignore[attr-defined]


class InvalidInputError(BigconsError, ValueError):
    """An argument, a file or a label matrix breaks a stated rule.

    Attributes:
        parameter: Name of the offending parameter, if any.
    """

    parameter: str | None = None


class EmptyPartitionError(InvalidInputError):
    """A partition has no labels at all.

    Attributes:
        name: Name of the partition.
    """

    name: str

    def __init__(self, name: str) -> None:
        super().__init__(f"partition {name!r} has no labels (all missing); leave it out.", name=name)


class UnknownColumnError(InvalidInputError):
    """A table has no column of a given name.

    Attributes:
        where: The table.
        column: The name, or the number in a table without names.
        nearest: The name that is most like it; None if none is.
    """

    def __init__(
        self, where: str, column: str | int, columns: Sequence[str] | None, n_columns: int | None = None
    ) -> None:
        names, text = list(columns or []), str(column)
        match = nearest(text, names)
        suffix = f", ... ({len(names):,} in total)" if len(names) > 12 else ""
        remedy = f"choose one of {', '.join(names[:12])}{suffix}."
        if columns is None:
            remedy = f"it has no names: use 0 to {(n_columns or 1) - 1}."
        if match:
            is_start = text and sum(name.startswith(text) for name in names) > 1
            hint = f", or {text}* for all that begin so" if is_start else ""
            remedy += f" Did you mean {match}{hint}?"
        has = f"no column of {where} matches" if set(text) & set("*?[") else f"{where} has no column"
        super().__init__(f"{has} {column!r}; {remedy}", where=where, column=column, nearest=match)


class UnknownMethodError(InvalidInputError, KeyError):
    """There is no consensus method of a given name.

    Attributes:
        method: The name.
        nearest: The name that is most like it; None if none is.
    """

    def __init__(
        self, method: object, names: Sequence[str], nearest: str | None, parameter: str = "method"
    ) -> None:
        value, remedy = repr(method), "choose one of " + ", ".join(names)
        if isinstance(method, type):
            value, remedy = f"the class {method.__name__}", "pass the name of a method"
        hint = "" if nearest is None else f" Did you mean {nearest!r}?"
        message = f"{parameter}={value} is unknown; {remedy}.{hint}"
        super().__init__(message, parameter=parameter, method=method, nearest=nearest)

    def __str__(self) -> str:
        return str(self.args[0])  # a KeyError shows its repr


class InvalidIdsError(InvalidInputError):
    """Ids are missing, repeated, of a type that identifies nothing, or belong to other objects.

    Attributes:
        column: Name of the ids.
        row: Row of the first one that is wrong, counted from 0; None if no single row is.
    """

    column: str | None = None
    row: int | None = None


class SoftEnsembleError(InvalidInputError):
    """Soft clusterings were given to a method or function that works on labels.

    Attributes:
        what: Name of the method or function that works on labels, where known.
        instead: What takes memberships, if anything does.
    """

    def __init__(self, what: str | None = None, instead: str | None = None) -> None:
        message = (
            f"the ensemble has memberships but {what or 'this'} works on labels; use the labels of the "
            f"largest memberships, ensemble.harden(){f', or {instead}' if instead else ''}."
        )
        super().__init__(message, what=what, instead=instead)


class InvalidPairsError(InvalidInputError):
    """A table of pairs breaks a rule of `bigcons.disk.schema.PAIR_COLUMNS`.

    Attributes:
        path: File or table that breaks it, where known.
        row: Row of that file or table, counted from 0; None if no single row breaks it.
    """

    path: str | None = None
    row: int | None = None


class StoreError(BigconsError):
    """A store or file cannot be read or written.

    Attributes:
        path: Path or URL of the store, or of its faulty part, where known.
    """

    path: str | None

    def __init__(self, message: str, *, path: object = None) -> None:
        super().__init__(message, path=None if path is None else str(path))


class StoreExistsError(StoreError, FileExistsError):
    """The output exists and may not be overwritten."""


class StoreNotFoundError(StoreError, FileNotFoundError):
    """The path does not exist, or holds no store of the expected kind."""


class CorruptStoreError(StoreError):
    """The contents of a store do not match its head."""


class DamagedFileError(CorruptStoreError, InvalidInputError):
    """A file with a table is truncated, damaged, or not what its suffix says."""


class StoreLockedError(StoreError):
    """Another process is writing to the store."""


class MemoryBudgetError(MemoryError, BigconsError):  # tblib unpickles it in this order only
    """The work does not fit in the memory budget.

    Attributes:
        needed: Bytes required, where known.
        budget: Bytes available: the memory budget, or the part of it reserved for this work.
    """

    def __init__(self, message: str, *, needed: float | None = None, budget: float | None = None) -> None:
        super().__init__(message)
        self.needed: int | None = None if needed is None else math.ceil(needed)
        self.budget: int | None = None if budget is None else int(budget)


class ExecutionError(BigconsError, RuntimeError):
    """The Dask scheduler or its workers were lost, incompatible, or made no progress."""


class MissingDependencyError(BigconsError, ImportError):
    """An optional package is needed but not installed.

    Attributes:
        extra: The extra that installs it, as in ``pip install "bigcons[extra]"``.
    """

    extra: str | None = None


class ConvergenceWarning(UserWarning):
    """A solver reached its iteration limit before its tolerance."""


class UnlabeledObjectsWarning(UserWarning):
    """Some objects have no label in any partition, and so get none in the consensus."""


class ConsensusWarning(UserWarning):
    """Another option, which the message names, would probably give a better consensus.

    For example, partitions are far finer or coarser than the consensus, "auto" chose between two numbers of
    clusters that are nearly as good, an optional package is missing, or the disk may be too small.
    """


class SurplusClustersWarning(ConsensusWarning):
    """Many of the clusters asked for are empty or tiny."""


class NoStructureWarning(ConsensusWarning):
    """The labels may have no cluster structure: no number of clusters stands out."""


class DissentWarning(ConsensusWarning):
    """Some partitions agree with no other partition."""


class DisconnectedWarning(ConsensusWarning):
    """Some groups of objects have no partition in common, even by way of other objects."""


class SuspiciousLabelsWarning(UserWarning):
    """The table of labels may be transposed, contain an id column, or lack its header."""


class SuspiciousFeaturesWarning(UserWarning):
    """A number may stand for missing values, or new rows are unlike the first ones or have unknown text."""


_OTHER_NAMES = {"k": "n_clusters", "n_jobs": "client", "seed": "random_state"}
"""Parameters by the names that they have elsewhere."""


def nearest(word: str, names: Iterable[str]) -> str | None:
    """Return the known name that is most like a word, upper or lower case, or means it; None if none is."""
    plain = {name.lower(): name for name in names}
    for name in plain:
        if name.strip("-").replace("-", "_") == _OTHER_NAMES.get(word.strip("-").lower()):
            return plain[name]
    matches = difflib.get_close_matches(word.lower(), plain, n=len(plain) or 1)
    matches.sort(key=lambda name: not name.startswith(word.lower()))  # of equals, the most alike stays first
    return plain[matches[0]] if matches else None


def quote(names: Sequence[object]) -> str:
    """Return names for a message: the first ten, and how many more there are."""
    suffix = f" and {len(names) - 10:,} more" if len(names) > 10 else ""
    return ", ".join(map(repr, names[:10])) + suffix


def first_line(error: Exception) -> str:
    """Return the first line of an error, to quote in a message."""
    return next(filter(None, str(error).splitlines()), type(error).__name__).rstrip(".")[:160]


def is_of_process(error: BaseException) -> bool:
    """Return whether an error tells of a lack of memory or threads."""
    words = "can't start new thread|failed to map segment|allocate memory"  # RuntimeError, ImportError
    return isinstance(error, MemoryError) or re.search(words, str(error)) is not None


def warn_user(message: str, category: type[Warning]) -> None:
    """Issue a warning that points at the first caller outside bigcons, scikit-learn and Python itself."""
    packages = {"bigcons", "sklearn", *sys.stdlib_module_names}
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in packages:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
