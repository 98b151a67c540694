"""What a source of features is, and what of it is refused whatever its kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from bigcons.errors import InvalidInputError
from bigcons.tables.column_names import refuse_index

Piece = Any
"""ndarray (rows, n_features), or pyarrow Table or RecordBatch of the columns asked for."""


class Source(Protocol):
    """What the reader of features needs to know of a source."""

    @property
    def where(self) -> str:
        """What messages call it."""
        ...

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        ...

    @property
    def schema(self) -> pa.Schema | None:
        """Types of the columns; None for arrays, and for tables whose types only their values show."""
        ...

    @property
    def dtype(self) -> np.dtype | None:
        """Type of the values of an array; None for tables."""
        ...

    @property
    def n_rows(self) -> int | None:
        """None until a first pass has counted them."""
        ...

    @property
    def held_bytes(self) -> int:
        """About how much it decodes at a time, beside the piece it yields."""
        ...

    def pieces(
        self, start: int, stop: int | None, rows: int, columns: Sequence[str] | None = None
    ) -> Iterator[Piece]:
        """Yield rows ``start`` to ``stop`` (None: to the end) in pieces of about ``rows``.

        ``columns`` restricts the pieces of a table; arrays come whole.
        """
        ...


def check_matrix(shape: tuple[int, ...], dtype: np.dtype, where: str) -> np.dtype:
    """Return ``dtype`` if the array is a two-dimensional one of real numbers with at least one row."""
    if len(shape) != 2:
        raise InvalidInputError(f"{where} has {len(shape)} dimensions; features are (n_objects, n_features).")
    if 0 in shape:
        raise InvalidInputError(
            f"{where} has shape {tuple(shape)}; it needs at least one row and one column."
        )
    if np.dtype(dtype).kind not in "buif":
        raise InvalidInputError(
            f"{where} has dtype {dtype}; an array must hold real numbers: use a table for columns of text."
        )
    return np.dtype(dtype)


def default_names(n_features: int) -> list[str]:
    """Return the names of columns that have none: f0, f1, ..."""
    return [f"f{c}" for c in range(n_features)]


def check_names(names: Sequence[object], where: str) -> list[str]:
    """Return the column names as text; refuse none, repeated ones and an index."""
    texts = [str(name) for name in names]
    repeated = sorted({name for name in texts if texts.count(name) > 1})
    if repeated:
        raise InvalidInputError(f"{where} has more than one column {repeated[0]!r}; give each its own name.")
    if not texts:
        raise InvalidInputError(f"{where} has no columns; features need at least one.")
    refuse_index(texts, where)
    return texts


def first_line(error: Exception) -> str:
    """Return the reason that a message quotes."""
    return str(error).partition("\n")[0].rstrip(".")
