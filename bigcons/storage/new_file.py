"""A single file that appears under its name when it is whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from bigcons.errors import StoreExistsError
from bigcons.storage.manifest import plain_disk_errors
from bigcons.storage.place import StorePath
from bigcons.storage.places import local_path, naming


def refuse_existing_file(path: StorePath, overwrite: bool) -> Path:
    """Return the path of a file; StoreExistsError if what is there may not be replaced by one."""
    target = local_path(path)
    if target.is_dir():
        raise StoreExistsError(f"{path} exists and is a folder; choose another path.")
    if target.exists() and not overwrite:
        raise StoreExistsError(f"{path} exists; pass overwrite=True (--overwrite) or choose another path.")
    return target


@contextmanager
def new_file(path: StorePath, *, overwrite: bool) -> Iterator[IO[bytes]]:
    """Yield a file that becomes ``path``, on a disk, when the ``with`` block succeeds, and else is removed.

    Raises StoreExistsError if something is there that may not be replaced, StoreError when the disk is full.
    """
    target = refuse_existing_file(path, overwrite)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    with plain_disk_errors(target):
        with naming(target):
            opened = partial.open("wb")
        try:
            with opened as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
