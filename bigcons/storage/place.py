"""A place: where a store or a part of one lies, on a disk or in a bucket, behind one small interface."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from typing import Any

StorePath = str | os.PathLike[str]


class Place(ABC):
    """A file, or a folder and all below it; ``str(place)`` is its path or URL, ``place / name`` a part of it.

    In a bucket a file is an object and a folder a common beginning of keys. Nothing needs to be there.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The last part of the path."""

    @abstractmethod
    def __truediv__(self, name: str) -> Place: ...

    @abstractmethod
    def sibling(self, name: str) -> Place:
        """Return the place of that name beside this one."""

    @abstractmethod
    def exists(self) -> bool:
        """Tell whether a file, or anything below, is here."""

    @abstractmethod
    def is_file(self) -> bool:
        """Tell whether a file is here."""

    @abstractmethod
    def is_link(self) -> bool:
        """Tell whether this is a link to another place, which is never followed."""

    @abstractmethod
    def links(self) -> Iterator[Place]:
        """Yield the links below."""

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names in this folder, ascending; none if it is not there."""

    @abstractmethod
    def n_bytes(self) -> int:
        """Return the size of all files below."""

    @abstractmethod
    def stamp(self) -> Hashable:
        """Return what tells this file from the one that replaces it, None if it is not there."""

    @abstractmethod
    def read(self, at_most: int | None = None) -> bytearray:
        """Return the file.

        Raises FileNotFoundError, and ValueError, before it is read, if it has more than ``at_most`` bytes.
        """

    @abstractmethod
    def write(self, *parts: Any, durable: bool = False) -> None:
        """Write the file, of parts one after the other; readers see the old or the new as a whole.

        With ``durable`` it is sure to last when this returns.
        """

    @abstractmethod
    def write_last(self, content: bytes) -> None:
        """Write the file as a whole, once everything beside and below it is sure to last."""

    @abstractmethod
    def remove(self) -> None:
        """Remove the file, or the folder with all below it; nothing needs to be here."""

    @abstractmethod
    def for_zarr(self, *, read_only: bool) -> Any:
        """Return this folder as a Zarr store."""


def checked_size(n_bytes: int, at_most: int | None) -> int:
    """Return ``n_bytes``; raises ValueError if that is more than ``at_most``."""
    if at_most is not None and n_bytes > at_most:
        raise ValueError(f"{n_bytes} bytes, more than {at_most}")
    return n_bytes
