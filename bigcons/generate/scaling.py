"""Measure features in one pass over blocks: how they are scaled, and which columns are constant."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.generate.scheme import Subset
from bigcons.io.features import CATEGORY, HASHED, Features, Scaling
from bigcons.progress import progress


@dataclass
class Moments:
    """Count of values, mean, sum of squared deviations, minimum and maximum of every column, float64.

    Missing values, NaN, do not count.
    """

    n: np.ndarray
    mean: np.ndarray
    squares: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, values: Any) -> Moments:
        """Return the moments of the rows of a block, dense or sparse, computed in two passes."""
        n, width = values.shape
        if not isinstance(values, np.ndarray):
            numbers, columns = values.data.astype(np.float64), values.indices
            n_zeros = n - np.bincount(columns, minlength=width)
            mean = np.bincount(columns, numbers, width) / n
            squares = np.bincount(columns, (numbers - mean[columns]) ** 2, width) + n_zeros * mean**2
            low, high = np.where(n_zeros > 0, 0.0, np.inf), np.where(n_zeros > 0, 0.0, -np.inf)
            np.minimum.at(low, columns, numbers)
            np.maximum.at(high, columns, numbers)
            return cls(np.full(width, float(n)), mean, squares, low, high)
        values = values.astype(np.float64, copy=False)
        is_missing = np.isnan(values)
        counts, lows, highs = np.full(width, float(n)), values, values
        if has_gaps := is_missing.any():
            counts = (n - is_missing.sum(axis=0)).astype(np.float64)
            lows, highs = np.where(is_missing, np.inf, values), np.where(is_missing, -np.inf, values)
            values = np.where(is_missing, 0.0, values)
        mean = values.sum(axis=0) / np.maximum(counts, 1)
        deviations = values - mean
        if has_gaps:
            deviations[is_missing] = 0.0
        squares = np.einsum("ij,ij->j", deviations, deviations)
        return cls(counts, mean, squares, lows.min(axis=0), highs.max(axis=0))

    def merge(self, other: Moments) -> Moments:
        """Return the moments of both sets of rows (Chan, Golub and LeVeque 1983)."""
        n = np.maximum(self.n + other.n, 1.0)  # of columns without any value so far
        gap = other.mean - self.mean
        return Moments(
            self.n + other.n,
            self.mean + gap * (other.n / n),
            self.squares + other.squares + gap**2 * (self.n * other.n / n),
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )


def measure(features: Features, subset: Subset | None = None, *, standardize: bool) -> tuple[Scaling, Any]:
    """Return the scaling of ``features``, and the rows of ``subset``, not scaled, in one pass over them.

    With ``standardize``, numbers are scaled to mean 0 and variance 1 over all objects (divided by n, as in
    scikit-learn) and the columns of a category together to that variance; otherwise they are only centered,
    which preserves distances. Blocks depend only on the number of columns, so the result is bit for bit the
    same for any budget.

    Raises InvalidInputError if no column varies, or if one has values too large for float32.
    """
    total: Moments | None = None
    checksum = n_sampled = 0
    n_rows = 0 if subset is None or features.is_sparse else subset.size(features.n_objects)
    sampled, sparse_parts = np.empty((n_rows, features.n_features), features.dtype), []
    with (
        progress("measure the features", features.n_objects) as listener,
        np.errstate(all="ignore"),
    ):
        for block, values in features.iterate(gaps=True, sparse=True):
            checksum = checksum_of(values, checksum)
            part = Moments.of(values)
            total = part if total is None else total.merge(part)
            if subset is not None:
                rows = values[subset.rows(block.start, block.stop) - block.start]
                if features.is_sparse:
                    sparse_parts.append(rows)
                else:
                    sampled[n_sampled : n_sampled + len(rows)] = rows
                    n_sampled += len(rows)
            listener.advance(block.n_rows)
    assert total is not None  # noqa: S101 - features have at least one row
    scaling = _scaling(features, total, checksum, standardize)
    if sparse_parts:
        from scipy.sparse import vstack

        return scaling, vstack(sparse_parts, "csr")
    return scaling, sampled


def checksum_of(values: Any, before: int) -> int:
    """Return the CRC-32 of the values of a block, continued; of sparse rows that of what is stored."""
    if isinstance(values, np.ndarray):
        return zlib.crc32(values.data, before)
    for part in (values.indices.astype(np.int64), values.data, np.diff(values.indptr).astype(np.int64)):
        before = zlib.crc32(np.ascontiguousarray(part).data, before)
    return before


def _scaling(features: Features, moments: Moments, checksum: int, standardize: bool) -> Scaling:
    """Return the scaling by the moments of all rows."""
    n, encoding = features.n_objects, features.encoding
    deviation = np.sqrt(moments.squares / np.maximum(moments.n, 1.0))
    kept = np.flatnonzero((moments.low < moments.high) & (deviation != 0))
    gaps = np.flatnonzero((moments.n > 0) & (moments.n < n))
    if len(kept) + len(gaps) == 0:
        columns = encoding.columns
        n_columns, n_texts = len(columns), sum(code.kind in (CATEGORY, HASHED) for code in columns)
        constant = "text of one value" if n_texts == n_columns else "constant"
        some_text = f" ({n_texts} of them text)" if 0 < n_texts < n_columns else ""
        raise InvalidInputError(
            f"{features.where} has {n_columns} column{'s' if n_columns > 1 else ''}, all {constant}"
            f"{some_text}; give features that vary."
        )
    for code, start in zip(encoding.columns, encoding.starts, strict=False):
        if code.kind in (CATEGORY, HASHED):  # the columns of a category share the variance of one number
            of_column = slice(start, start + code.width)
            deviation[of_column] = np.sqrt(moments.squares[of_column].sum() / n)
    # A gap is as far from known values as these are from each other on average, d, so that the mean over all
    # pairs is d (1 - share^2); of one known value, gaps are a boolean.
    shares = 1.0 - moments.n[gaps] / n
    has_spread = deviation[gaps] > 0
    heights = np.where(has_spread, deviation[gaps], 1.0)
    deviation[gaps] *= np.sqrt(1.0 - shares**2)
    if standardize:
        heights /= np.where(has_spread, deviation[gaps], np.sqrt(shares * (1.0 - shares)))
    mean = moments.mean[kept]
    scale = deviation[kept] if standardize else np.ones(len(kept))
    farthest = np.maximum(moments.high[kept] - mean, mean - moments.low[kept]) / scale
    # whose square, summed over thousands of columns, fits in float32
    fits = (farthest < 1e15) & np.isfinite(scale)
    if not fits.all():
        column = kept[int(fits.argmin())]
        raise InvalidInputError(
            f"column {features.names[column]!r} of {features.where} ranges from {moments.low[column]:g} to "
            f"{moments.high[column]:g}, too far for float32; rescale or clip it."
        )
    if features.is_sparse:  # stay so; distances are the same
        mean = np.zeros(len(kept))
    return Scaling(kept, mean, scale, gaps, heights, shares, checksum)
