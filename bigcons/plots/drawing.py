"""What all pictures share: the figure, its colors, the sample of objects, and words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.errors import InvalidInputError, MissingDependencyError
from bigcons.io.labels import labels_of
from bigcons.seeding import SeedLike, generator, resolve_seed

if TYPE_CHECKING:
    from bigcons.plots.picture import Picture
    from bigcons.store.clusters import ClusterTree

# Okabe and Ito (2008), ordered so that consecutive colors differ most, then four of Tol's muted colors
PALETTE = (
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000"),
    *("#999999", "#882255", "#44AA99", "#332288"),
)
HEAT = "Blues"
NEVER_SEEN = "#DDDDDD"
GUIDE = "#888888"


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


def sample_rows(n_total: int, n_objects: int, random_state: SeedLike) -> np.ndarray:
    """Return at most ``n_objects`` sorted row indices."""
    if n_objects < 2:
        raise InvalidInputError(f"n_objects={n_objects} is out of range; draw at least 2 objects.")
    if n_total <= n_objects:
        return np.arange(n_total)
    rng = generator(resolve_seed(random_state), "plots.sample")
    return np.sort(rng.choice(n_total, n_objects, replace=False))


def shortened(name: str) -> str:
    """Return a name that fits on an axis, with its beginning and its end."""
    return name if len(name) <= 16 else f"{name[:8]}…{name[-7:]}"


def is_consensus(found: Any) -> bool:
    """Return whether something is a clusterer or a Consensus, which keep no partitions."""
    return hasattr(found, "fit") or hasattr(found, "read_labels")


def ensemble_of(ensemble: Any) -> Any:
    """Return the ensemble to draw, opened; raise InvalidInputError for a consensus."""
    from bigcons.store.ensemble import as_ensemble

    if is_consensus(ensemble):
        raise InvalidInputError(
            f"ensemble has type {type(ensemble).__name__}, which keeps no partitions; pass the ensemble that "
            "it was made of."
        )
    return as_ensemble(ensemble)


def refuse_ensemble(found: Any) -> None:
    """Raise InvalidInputError for an ensemble in place of what was found in it."""
    if hasattr(found, "n_partitions") and not is_consensus(found):
        raise InvalidInputError(
            f"an {type(found).__name__} has no consensus to draw; pass one that was made of it, such as "
            "bigcons.consensus(ensemble, n_clusters)."
        )


def tree_of(found: Any) -> ClusterTree:
    """Return a tree of clusters, or the one that a fit or a store has kept."""
    if is_consensus(found):
        kept = getattr(found, "tree_", getattr(found, "tree", None))
        if kept is None:
            raise InvalidInputError(
                f"this {type(found).__name__} has kept no tree, because its number of clusters was given; "
                "pass bigcons.consensus_tree(ensemble), or a consensus with n_clusters='auto'."
            )
        found = kept
    if not hasattr(found, "merges"):
        raise InvalidInputError(
            f"tree has type {type(found).__name__}; pass bigcons.consensus_tree(ensemble), or a "
            "consensus with n_clusters='auto'."
        )
    tree: ClusterTree = found
    return tree


def labels_to_draw(consensus: Any) -> Any:
    """Return the labels (n_objects,) of a fitted clusterer, a Consensus (lazily) or an array."""
    found = labels_of(consensus)
    return found if hasattr(found, "shape") else np.asarray(found)


def in_percent(share: float) -> str:
    """Return a share as a whole percentage, or that it is below one."""
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def sample_words(n_shown: int, n_total: int, order: str) -> str:
    """Return how many objects are drawn of how many, and in which order."""
    objects = f"{n_total:,} objects" if n_shown == n_total else f"{n_shown:,} of {n_total:,} objects"
    return f"{objects}, {order}"
