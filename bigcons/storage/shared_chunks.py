"""Chunks that an ensemble in a bucket shares with earlier generations of itself.

On a disk a chunk that stays as it is when an ensemble grows is linked into the next generation. Buckets have
no links, and copies would cost as much as the labels are large: there the manifest says, for every chunk, the
folder it lies in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bigcons.storage.place import Place


class SharedChunks(NamedTuple):
    """Where the chunks of a generation lie, if not all in its own array."""

    folders: list[Place]
    """The folders of earlier generations."""
    generations: list[int]
    """The numbers of these."""
    grid: np.ndarray
    """``(rows, columns)`` of chunks: 0 for its own folder, ``i`` for ``folders[i - 1]``."""

    @classmethod
    def none(cls, shape: tuple[int, ...]) -> SharedChunks:
        """Return that of a generation that shares nothing, with so many rows and columns of chunks."""
        return cls([], [], np.zeros(shape, np.int64))

    def grown(
        self, own: Place, generation: int, shape: tuple[int, ...], kept_rows: int, kept_columns: int
    ) -> SharedChunks:
        """Return that of the next generation, which keeps chunks of this one, which lies in ``own``."""
        grid = np.zeros(shape, np.int64)
        grid[:kept_rows, :kept_columns] = 1 + self.grid[:kept_rows, :kept_columns]
        folders, generations = [own, *self.folders], [generation, *self.generations]
        used = np.unique(grid[grid > 0])
        numbers = np.zeros(len(folders) + 1, np.int64)
        numbers[used] = np.arange(1, len(used) + 1)
        return SharedChunks([folders[i - 1] for i in used], [generations[i - 1] for i in used], numbers[grid])

    def arrays(self, array_name: Callable[[int], str]) -> dict[str, Place]:
        """Return the array of every shared chunk, by its key; ``array_name`` takes a generation."""
        arrays = [
            folder / array_name(number) for folder, number in zip(self.folders, self.generations, strict=True)
        ]
        places = np.argwhere(self.grid).tolist()
        return {f"c/{row}/{column}": arrays[self.grid[row, column] - 1] for row, column in places}

    def body(self) -> dict[str, Any] | None:
        """Return what the manifest says of it."""
        return {"generations": self.generations, "chunks": self.grid.tolist()} if self.folders else None


def read_shared(said: Any, folders: list[Place], shape: tuple[int, ...]) -> SharedChunks:
    """Return what a manifest says of shared chunks; raises ValueError, TypeError or KeyError if wrong."""
    if said is None:
        return SharedChunks.none(shape)
    generations, grid = list(said["generations"]), np.array(said["chunks"], np.int64)
    fits = len(generations) == len(folders) and all(isinstance(number, int) for number in generations)
    if not fits or grid.shape != shape or grid.min() < 0 or grid.max() > len(folders):
        raise ValueError("the shared chunks")
    return SharedChunks(folders, generations, grid)
