"""Standardize features in one pass over blocks, and drop constant columns."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.generate.sampling import Subset
from bigcons.progress import progress
from bigcons.stores.features import Features


@dataclass
class Moments:
    """Count, mean, sum of squared deviations, minimum and maximum of every column, all float64."""

    n: int
    mean: np.ndarray
    squares: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> Moments:
        """Return the moments of the rows of a block, computed in two passes."""
        values = values.astype(np.float64, copy=False)
        mean = values.mean(axis=0)
        deviations = values - mean
        squares = np.einsum("ij,ij->j", deviations, deviations)
        return cls(len(values), mean, squares, values.min(axis=0), values.max(axis=0))

    def merge(self, other: Moments) -> Moments:
        """Return the moments of both sets of rows (Chan, Golub and LeVeque 1983)."""
        n = self.n + other.n
        gap = other.mean - self.mean
        return Moments(
            n,
            self.mean + gap * (other.n / n),
            self.squares + other.squares + gap**2 * (self.n * other.n / n),
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )


@dataclass(frozen=True)
class Scaling:
    """The transformation of features into the float32 values that are clustered.

    Attributes
    ----------
    kept
        Positions of the columns that vary.
    mean, scale
        Subtracted from them, and their divisor.
    checksum
        CRC-32 of all features, which identifies them when a run is resumed.
    """

    kept: np.ndarray
    mean: np.ndarray
    scale: np.ndarray
    checksum: int

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Return ``(rows, len(kept))`` float32, C-contiguous."""
        scaled = values[:, self.kept] - self.mean
        scaled /= self.scale
        return scaled.astype(np.float32, order="C")


def measure(features: Features, *, standardize: bool) -> Scaling:
    """Return the scaling of ``features`` in one pass over its blocks.

    With ``standardize``, columns are scaled to mean 0 and variance 1 over all objects (divided by n, as in
    scikit-learn); otherwise they are only centered, which preserves distances. Blocks depend only on the
    number of columns, so the result is bit for bit the same for any budget.

    Raises InvalidInputError if no column varies, or if one has values too large for float32.
    """
    return measure_and_sample(features, None, standardize=standardize)[0]


def measure_and_sample(
    features: Features, subset: Subset | None, *, standardize: bool
) -> tuple[Scaling, np.ndarray]:
    """Return the scaling, as `measure` does, and the rows of ``subset``, not scaled, in the same pass."""
    total: Moments | None = None
    checksum = n_sampled = 0
    size = 0 if subset is None else subset.size(features.n_objects)
    sampled = np.empty((size, features.n_features), features.dtype)
    with progress("measure the features", features.n_objects) as listener, np.errstate(all="ignore"):
        for block, values in features.iterate():
            checksum = zlib.crc32(values.data, checksum)
            part = Moments.of(values)
            total = part if total is None else total.merge(part)
            if subset is not None:
                rows = subset.rows(block.start, block.stop) - block.start
                sampled[n_sampled : n_sampled + len(rows)] = values[rows]
                n_sampled += len(rows)
            listener.advance(block.n_rows)
    assert total is not None  # noqa: S101 - features have at least one row
    moments = total
    deviation = np.sqrt(moments.squares / moments.n)
    kept = np.flatnonzero((moments.low < moments.high) & (deviation != 0))
    if len(kept) == 0:
        n_columns, n_texts = features.n_features, len(features.categories)
        constant = "text of one value" if n_texts == n_columns else "constant"
        some_text = f" ({n_texts} of them text)" if 0 < n_texts < n_columns else ""
        raise InvalidInputError(
            f"{features.where} has {n_columns} column{'s' if n_columns > 1 else ''}, all {constant}"
            f"{some_text}; give features that vary."
        )
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
    return Scaling(kept, mean, scale, checksum), sampled
