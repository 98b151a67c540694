"""Place: one small interface to files and folders on a disk or in a bucket."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from typing import Any

from bigcons.disk.reading import MOST_BYTES

StorePath = str | os.PathLike[str]

READ_AHEAD = 1 << 22
"""The most bytes that are read ahead of a file in a bucket."""


class Place(ABC):
    """A file, or a folder with everything below it; it need not exist.

    ``str(place)`` is its path or URL, ``place / name`` a place inside it. In a bucket, a file is an object
    and a folder is a common prefix of keys.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The last part of the path."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    @abstractmethod
    def __truediv__(self, name: str) -> Place: ...

    @abstractmethod
    def sibling(self, name: str) -> Place:
        """Return the place called ``name`` in the same folder."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether a file or folder exists here."""

    @abstractmethod
    def is_file(self) -> bool:
        """Return whether this is a file."""

    def is_link(self) -> bool:
        """Return whether this is a symbolic link; buckets have none."""
        return False

    def links(self) -> Iterator[Place]:
        """Yield the symbolic links below; buckets have none."""
        return iter(())

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names in this folder, sorted; empty if it does not exist."""

    @abstractmethod
    def n_bytes(self) -> int:
        """Return the total size of the files below."""

    @abstractmethod
    def stamp(self) -> Hashable:
        """Return a value that changes when the file is replaced; None if it does not exist."""

    @abstractmethod
    def read(self, at_most: int = MOST_BYTES) -> bytearray:
        """Return the content of the file.

        Raises FileNotFoundError, and DamagedFileError, without reading, if this is something else than a file
        or has more than ``at_most`` bytes.
        """

    @abstractmethod
    def write(self, *parts: Any, durable: bool = False) -> None:
        """Write the concatenated ``parts``; a reader sees the old content or the new.

        With ``durable``, the file survives a power failure once this returns.
        """

    def copy_to(self, other: Place) -> None:
        """Make ``other``, in the same store, a copy of this file; a reader sees its old content or the new.

        The copy is durable as soon as something else in the folder is. Raises FileNotFoundError.
        """
        other.write(self.read(), durable=True)

    @abstractmethod
    def flush(self) -> None:
        """Make everything below durable."""

    @abstractmethod
    def remove(self) -> None:
        """Remove the file, or the folder with everything below it, if it exists."""

    @abstractmethod
    def for_zarr(self, *, read_only: bool) -> Any:
        """Return this folder as a Zarr store."""
