"""The errors and warnings a user of bigcons can meet.

Every message has one form: the value got, the rule it breaks, the remedy.
"""

from __future__ import annotations

import sys
import warnings


class BigconsError(Exception):
    """Base of every error that bigcons raises on purpose."""


class InvalidInputError(BigconsError, ValueError):
    """An argument, a file or a label matrix breaks a stated rule."""


class EmptyPartitionError(InvalidInputError):
    """A partition has no label at all."""

    def __init__(self, name: str) -> None:
        super().__init__(f"partition {name!r} has no labels (all missing); leave it out.")
        self.name = name

    def __reduce__(self) -> tuple[type[EmptyPartitionError], tuple[str]]:
        return EmptyPartitionError, (self.name,)


class StoreError(BigconsError):
    """A store cannot be read or written."""


class StoreExistsError(StoreError, FileExistsError):
    """The output exists and overwriting was not asked for."""


class StoreNotFoundError(StoreError, FileNotFoundError):
    """There is no store of the expected kind at the given path."""


class CorruptStoreError(StoreError):
    """What lies on disk is not what the manifest promises."""


class StoreLockedError(StoreError):
    """Another process is writing to the store."""


class MemoryBudgetError(BigconsError, MemoryError):
    """The memory budget cannot hold the work; the message says what would."""


class ExecutionError(BigconsError, RuntimeError):
    """Workers or their scheduler were lost, or do not come on; the message says what waited for them."""


class MissingDependencyError(BigconsError, ImportError):
    """An optional package is needed; the message names the extra that brings it."""


class ConvergenceWarning(UserWarning):
    """A solver stopped at its iteration limit, before its tolerance was met."""


class UnlabeledObjectsWarning(UserWarning):
    """Some objects carry no label in any partition and therefore get none in the consensus."""


class OversegmentationWarning(UserWarning):
    """The partitions are much finer than the consensus asked for, too fine for the method."""


class SuspiciousLabelsWarning(UserWarning):
    """A table that looks like something else: turned, with a column of ids, or with numbers for names."""


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn of the line that called bigcons, however deep in bigcons this is called."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals["__name__"].partition(".")[0] == "bigcons":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
