"""The choice of the number of clusters inside a fit, and what it tells of the structure of the labels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from bigcons.errors import NoStructureWarning, warn_user
from bigcons.run.engine import Engine
from bigcons.store.clusters import LEAST_OBJECTS, NClustersChoice
from bigcons.store.ensemble import Ensemble
from bigcons.trust.confidence import Judged
from bigcons.trust.groups import TREES, Sample
from bigcons.trust.n_clusters import Search, rows_of_sample, search, search_sample, tree_of


def judge_sample(
    model: Any, rows: np.ndarray, sample: Sample | None, n_groups: int
) -> NClustersChoice | None:
    """Judge structure and clusters of a fit by the ``rows`` of a sample; return the choice, if any is needed.

    None is if "auto" has chosen. At most ``n_groups`` are made. ``sample``: None if it says too little; a
    warning then says that nothing is known.
    """
    if hasattr(model, "n_clusters_choice_"):
        return None
    model.has_structure_ = None
    if sample is not None:
        found = search_sample(lambda _: sample, min(len(rows), LEAST_OBJECTS * n_groups))
        judge_structure(model, rows, found, model.n_clusters)
        return found.choice if model.n_clusters > 1 else None
    if model.n_clusters > 1:
        warn_user(
            f"whether the labels have cluster structure is not known: the {len(rows):,} sampled objects "
            "have too few labels for each of so many base clusters, and confidence does not count whether"
            f" clusters are real. Partitions into fewer clusters show it.{_features_in_words(model)}",
            NoStructureWarning,
        )
    return None


def judge_structure(model: Any, rows: np.ndarray, found: Search, n_clusters: int) -> None:
    """Take the sample ``rows`` of a search to judge clusters by, and tell whether any number stands out.

    Warn if none does; of a single cluster that was asked for, nothing is told.
    """
    model._judged = Judged(rows, found.sample.given, found.halves.of_clusters, n_clusters)
    choice = found.choice
    if model.n_clusters == 1:
        return
    model.has_structure_ = choice.is_clear
    if not choice.is_clear:
        other = "" if choice.runner_up is None else f", next best {choice.runner_up}"
        warn_user(
            "the labels may have no cluster structure: random halves of the partitions find no number of "
            "clusters again more reliably than in data without clusters. "
            f"Best guess: {choice.n_clusters}{other}; see help(bigcons.choose_n_clusters)."
            f"{_features_in_words(model)}",
            NoStructureWarning,
        )


def _features_in_words(model: Any) -> str:
    """Return that a column may be a feature, if one is not numbered as clusters are; of none, nothing."""
    for name, values in zip(model._recoding.names, model._recoding.values, strict=True):
        if values.dtype != object and (largest := int(values.max())) > len(values):
            return (
                f" Column {name!r} has numbers up to {largest} but only {len(values)} different ones: if "
                "they are measurements, such as ages, counts or pixels, and no names of clusters, make "
                "partitions of them first, by bigcons.generate.kmeans (bigcons generate)."
            )
    return ""


@contextmanager
def choosing(model: Any, ensemble: Ensemble, engine: Engine, seed: int) -> Iterator[None]:
    """Set the ``n_clusters`` of an estimator, if it is "auto", to the number chosen, for a ``with`` block.

    The choice is ``n_clusters_choice_`` and ``tree_``; inside the block ``_found`` has what it is made of.
    """
    asked = model.n_clusters
    if isinstance(asked, str):
        weights = getattr(model, "weights", None)
        weights = None if isinstance(weights, str) else weights
        found = search(ensemble, engine, seed, weights=weights, memory=model.memory)
        choice = found.choice
        rows = rows_of_sample(ensemble, seed, len(found.sample.given))
        judge_structure(model, rows, found, choice.n_clusters)
        model._found = found
        model.n_clusters_choice_ = choice
        model.tree_ = tree_of(found, ensemble.n_objects, getattr(model, "_trees", TREES))
        model.n_clusters = choice.n_clusters
    try:
        yield
    finally:
        model.n_clusters = asked
        model._judged = model._found = None
