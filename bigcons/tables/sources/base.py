"""What a source of labels is, and how blocks of arrays and tables become columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.tables.relabel import RawColumn, unmasked


class LabelSource(ABC):
    """A label matrix ``(n_objects, n_partitions)`` that can be read more than once, from the top."""

    n_partitions: int
    row_bytes: float
    """about how much memory one row takes when it is read"""
    fixed_bytes: int = 0
    """about how much memory reading takes whatever the number of rows"""
    names: list[str] | None = None
    """names of the partitions, None if the source has none of its own"""
    least_rows: int = 1
    """the fewest rows the source can be read by"""
    untyped: bool = False
    """whether numbers come as text"""

    @abstractmethod
    def blocks(self, rows: int) -> Iterator[Sequence[RawColumn]]:
        """Yield all rows in order, as columns of at most ``rows`` rows, or of ``least_rows``."""


def columns_of(block: np.ndarray) -> list[np.ndarray]:
    """Return the columns of ``(n_rows, n_partitions)`` as contiguous arrays."""
    return list(np.ascontiguousarray(unmasked(block).T))


def frame_columns(frame: Any, start: int, stop: int) -> list[RawColumn]:
    """Return rows ``start`` to ``stop`` of a pandas frame, or a polars or pyarrow table, as columns."""
    home = type(frame).__module__.partition(".")[0]
    if home == "pandas":
        rows = frame.iloc[start:stop]
        return [_series_column(rows.iloc[:, u]) for u in range(rows.shape[1])]
    table = frame[start:stop].to_arrow() if home == "polars" else frame.slice(start, stop - start)
    return list(table.columns)


def _series_column(series: Any) -> RawColumn:
    import pyarrow as pa

    if isinstance(series.dtype, np.dtype):
        return series.to_numpy()
    try:
        return pa.array(series, from_pandas=True)
    except pa.ArrowException:
        raise InvalidInputError(
            f"partition {str(series.name)!r} has labels of type {series.dtype}; "
            "labels are whole numbers or text: recode them."
        ) from None


def check_two_dimensions(shape: tuple[float, ...]) -> None:
    """Refuse what is not a matrix."""
    if len(shape) != 2:
        raise InvalidInputError(
            f"labels has {len(shape)} dimension(s); give (n_objects, n_partitions), one column per partition."
        )
