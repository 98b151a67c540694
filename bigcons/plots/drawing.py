"""What all pictures share: the figure, its colors, the sample of objects, and words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.errors import InvalidInputError, MissingDependencyError
from bigcons.memory import BLOCK_ROWS, row_blocks
from bigcons.seeding import SeedLike, generator, resolve_seed
from bigcons.validation import check_int

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bigcons.plots.picture import Picture

# Okabe and Ito (2008), ordered so that consecutive colors differ most, then four of Tol's muted colors
PALETTE = (
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000"),
    *("#999999", "#882255", "#44AA99", "#332288"),
)
UNKNOWN = "#DDDDDD"
GUIDE = "#888888"


def color_of(cluster: int) -> str:
    """Return the color of a cluster, gray for none, -1."""
    return UNKNOWN if cluster < 0 else PALETTE[cluster % len(PALETTE)]


@contextmanager
def new_figure(width: float, height: float) -> Iterator[Picture]:
    """Yield a figure of a size in inches, to be drawn in the style of this module."""
    try:
        from matplotlib import rc_context

        from bigcons.plots.picture import STYLE, Picture
    except ImportError as error:
        raise MissingDependencyError(
            "figures need matplotlib, which is not installed; run pip install 'bigcons[plot]'.", extra="plot"
        ) from error
    with rc_context(STYLE):
        yield Picture(figsize=(width, height), dpi=150, layout="constrained")


def draw_heat_map(axes: Axes, values: np.ndarray, words: str, **colorbar: Any) -> None:
    """Draw numbers from 0 to 1 as a heat map, gray where they are not known, and its scale."""
    image = axes.imshow(values, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axes.figure.colorbar(image, ax=axes, label=words, pad=0.02, **colorbar)
    axes.set_facecolor(UNKNOWN)
    axes.spines[:].set_visible(True)
    axes.set_xticks([])


def sample_rows(n_total: int, n_objects: int, random_state: SeedLike) -> np.ndarray:
    """Return at most ``n_objects`` sorted row indices."""
    check_int("n_objects", n_objects, at_least=2)
    if n_total <= n_objects:
        return np.arange(n_total)
    rng = generator(resolve_seed(random_state), "plots.sample")
    return np.sort(rng.choice(n_total, n_objects, replace=False))


def take_rows(column: Any, rows: np.ndarray) -> np.ndarray:
    """Return ascending rows of what can be sliced; blocks without one are not read."""
    blocks = [block for block in row_blocks(column.shape[0], BLOCK_ROWS) if block.rows_of(rows).size]
    return np.concatenate(
        [np.asarray(column[block.start : block.stop])[block.rows_of(rows)] for block in blocks]
    )


def sample_words(n_shown: int, n_total: int, order: str) -> str:
    """Return how many objects are drawn of how many, and in which order."""
    objects = f"{n_total:,} objects" if n_shown == n_total else f"{n_shown:,} of {n_total:,} objects"
    return f"{objects}, {order}"


def largest(sizes: np.ndarray, most: int) -> np.ndarray:
    """Return the numbers of the clusters with objects, at most so many, the largest first."""
    return np.argsort(-sizes, kind="stable")[: min(most, int(np.count_nonzero(sizes)))]


def ensemble_of(ensemble: Any) -> Any:
    """Return the ensemble to draw, opened; raise InvalidInputError for a consensus."""
    from bigcons.store.ensemble import as_ensemble

    if hasattr(ensemble, "fit") or hasattr(ensemble, "read_labels"):
        kind = type(ensemble).__name__
        raise InvalidInputError(f"{kind} keeps no partitions; pass the ensemble that it was made of.")
    return as_ensemble(ensemble)


def refuse_ensemble(given: Any) -> None:
    """Raise InvalidInputError for an ensemble in place of a consensus; its labels are no memberships."""
    if hasattr(given, "n_partitions") and not hasattr(given, "fit"):
        raise refused(given, "one that was made of it, such as bigcons.consensus(ensemble, n_clusters)")


def refused(given: Any, remedy: str) -> InvalidInputError:
    """Return the error that something cannot be drawn, and what to pass."""
    return InvalidInputError(f"{type(given).__name__} cannot be drawn so; pass {remedy}.")


def trust_of(given: Any) -> Any:
    """Return the `Trust` of a clusterer or of a Consensus; raise InvalidInputError if there is none."""
    try:
        return given.trust if hasattr(given, "read_trust") else given.trust_
    except AttributeError as error:
        raise InvalidInputError(str(error)) from None
