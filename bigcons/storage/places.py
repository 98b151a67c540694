"""Places on a disk, and which place a path or a URL names."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bigcons.errors import InvalidInputError
from bigcons.storage.place import Place, StorePath, checked_size
from bigcons.validation import check_path

URL_KINDS = ("s3", "gs", "az")
"""The kinds of URLs that name a place in a bucket; only s3 is tested."""
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SHORTENED_URL = re.compile(rf"({'|'.join(URL_KINDS)}):/[^/]")


class DiskPlace(Place):
    """A file or folder of a local or mounted disk."""

    def __init__(self, path: StorePath) -> None:
        self.path = Path(path).absolute()

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.name

    def __str__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"DiskPlace({str(self)!r})"

    def __truediv__(self, name: str) -> DiskPlace:
        return DiskPlace(self.path / name)

    def sibling(self, name: str) -> DiskPlace:
        """Return the place of that name beside this one."""
        return DiskPlace(self.path.with_name(name))

    def exists(self) -> bool:
        """Tell whether a file or folder is here, or a link wherever it leads."""
        return self.path.exists() or self.path.is_symlink()

    def is_file(self) -> bool:
        """Tell whether a file is here."""
        return self.path.is_file()

    def is_link(self) -> bool:
        """Tell whether this is a symbolic link."""
        return self.path.is_symlink()

    def links(self) -> Iterator[DiskPlace]:
        """Yield the symbolic links below."""
        return (DiskPlace(entry) for entry in self.path.rglob("*") if entry.is_symlink())

    def names(self) -> list[str]:
        """Return the names in this folder, ascending; none if it is not there."""
        try:
            return sorted(entry.name for entry in self.path.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def n_bytes(self) -> int:
        """Return the size of all files below."""
        return sum(entry.stat().st_size for entry in self.path.rglob("*") if entry.is_file())

    def stamp(self) -> Hashable:
        """Return number, time and size of the file: one that replaces it is a new one."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def read(self, at_most: int | None = None) -> bytearray:
        """Return the file."""
        with self.path.open("rb") as file:
            content = bytearray(checked_size(os.fstat(file.fileno()).st_size, at_most))
            file.readinto(content)
        return content

    def write(self, *parts: Any, durable: bool = False) -> None:
        """Write the file under a name of this process' own, then give it the final name."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}.{id(parts)}.tmp")
        try:
            with temporary.open("wb") as file:
                for part in parts:
                    file.write(part)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            temporary.replace(self.path)
        finally:
            temporary.unlink(missing_ok=True)

    def write_last(self, content: bytes) -> None:
        """Write the file, flush it with all beside and below it to the disk, then give it its name."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_name(f"{self.path.name}.partial")
        try:
            partial.write_bytes(content)
            sync_tree(self.path.parent)
            partial.replace(self.path)
        finally:
            partial.unlink(missing_ok=True)
        sync(self.path.parent)

    def remove(self) -> None:
        """Remove the file, or of the folder all that the system lets go."""
        if self.path.is_dir() and not self.path.is_symlink():
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            with suppress(FileNotFoundError, NotADirectoryError):
                self.path.unlink()

    def for_zarr(self, *, read_only: bool) -> Any:
        """Return Zarr's store of this directory."""
        from zarr.storage import LocalStore

        return LocalStore(self.path, read_only=read_only)


def place_of(path: StorePath | Place) -> Place:
    """Return the place that a path or a URL names.

    Raises InvalidInputError for what is no path, for URLs of other kinds than ``URL_KINDS``, and if obstore
    is not installed.
    """
    if isinstance(path, Place):
        return path
    text = check_path(path)
    if shortened := _SHORTENED_URL.match(text):
        raise InvalidInputError(
            f"{text} is a URL that lost a slash in a Path; give it as text: {shortened[1]}://..."
        )
    url = _URL.match(text)
    if url is None:
        return DiskPlace(text)
    if url[1].lower() not in URL_KINDS:
        raise InvalidInputError(f"{text} is no place for a store; give a path of a disk or s3://bucket/path.")
    from bigcons.storage.objects import object_place

    return object_place(text)


def local_path(path: StorePath) -> Path:
    """Return ``path`` as an absolute Path; refuse URLs, and what is no path, with a one-line error."""
    text = check_path(path)
    if "://" in text:
        raise InvalidInputError(f"{text} is a URL; give a path on a local or mounted disk.")
    return Path(text).absolute()


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an error of the system name ``path``, not the hidden file that is made beside it."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def sync_tree(directory: Path) -> int:
    """Flush all files and directories under ``directory`` to the disk; return the bytes of the files."""
    n_bytes = 0
    for root, _, files in os.walk(directory, topdown=False):
        for name in files:
            n_bytes += sync(Path(root) / name)
        sync(Path(root))
    return n_bytes


def sync(path: Path) -> int:
    """Flush a file or directory to the disk; return its size."""
    if path.is_dir() and sys.platform == "win32":  # directories cannot be opened there
        return 0
    descriptor = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
