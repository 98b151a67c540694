"""Estimators that choose their number of clusters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from bigcons.errors import NoStructureWarning, warn_user
from bigcons.methods.estimator import ConsensusClusterer
from bigcons.run.engine import Engine
from bigcons.store.clusters import LEAST_OBJECTS, ClusterTree, NClustersChoice
from bigcons.store.ensemble import Ensemble
from bigcons.trust.confidence import Judged
from bigcons.trust.groups import TREES, Sample
from bigcons.trust.n_clusters import Search, rows_of_sample, search, search_sample, tree_of


class ChoosingClusterer(ConsensusClusterer):
    """Base of the methods that take ``n_clusters="auto"``."""

    n_clusters: int
    _chooses: ClassVar[bool] = True
    _trees: ClassVar[tuple[str, ...]] = TREES
    """The trees that may be cut."""
    _judged: Judged | None = None
    """During a fit, a sample that halves of the partitions have grouped."""
    _found: Search | None = None
    """During a fit to "auto", what has chosen the number."""

    def _judge_sample(self, rows: np.ndarray, sample: Sample | None, n_groups: int) -> NClustersChoice | None:
        """Judge structure and clusters by the ``rows`` of a sample; return the choice, if any is asked for.

        Not if "auto" has. At most ``n_groups`` are made. ``sample``: None if it says too little; a warning
        then says that nothing is known.
        """
        if hasattr(self, "n_clusters_choice_"):
            return None
        self.has_structure_: bool | None = None
        if sample is not None:
            found = search_sample(lambda _: sample, min(len(rows), LEAST_OBJECTS * n_groups))
            self._judge_structure(rows, found, self.n_clusters)
            return found.choice if self.n_clusters > 1 else None
        if self.n_clusters > 1:
            warn_user(
                f"whether the labels have cluster structure is not known: the {len(rows):,} sampled objects "
                "have too few labels for each of so many base clusters, and confidence does not count whether"
                f" clusters are real. Partitions into fewer clusters show it.{self._features_in_words()}",
                NoStructureWarning,
            )
        return None

    def _judge_structure(self, rows: np.ndarray, found: Search, n_clusters: int) -> None:
        """Take the sample ``rows`` of a search to judge clusters by, and tell whether any number stands out.

        Warn if none does; of a single cluster that was asked for, nothing is told.
        """
        self._judged = Judged(rows, found.sample.given, found.halves.of_clusters, n_clusters)
        told = found.choice
        if self.n_clusters == 1:
            return
        self.has_structure_ = told.is_clear
        if not told.is_clear:
            other = "" if told.runner_up is None else f", next best {told.runner_up}"
            warn_user(
                "the labels may have no cluster structure: random halves of the partitions find no number of "
                "clusters again more reliably than in data without clusters. "
                f"Best guess: {told.n_clusters}{other}; see help(bigcons.choose_n_clusters)."
                f"{self._features_in_words()}",
                NoStructureWarning,
            )

    def _features_in_words(self) -> str:
        """Return that a column may be a feature, if one is not numbered as clusters are; of none, nothing."""
        for name, values in zip(self._recoding.names, self._recoding.values, strict=True):
            if values.dtype != object and (largest := int(values.max())) > len(values):
                return (
                    f" Column {name!r} has numbers up to {largest} but only {len(values)} different ones: if "
                    "they are measurements, such as ages, counts or pixels, and no names of clusters, make "
                    "partitions of them first, by bigcons.generate.kmeans (bigcons generate)."
                )
        return ""

    def _remedy_of_surplus(self, n_large: int) -> str:
        return f"n_clusters={n_large} may be enough, 'auto' chooses the number"

    @contextmanager
    def _n_clusters_chosen(self, ensemble: Ensemble, engine: Engine, seed: int) -> Iterator[None]:
        asked: Any = self.n_clusters
        if isinstance(asked, str):
            weights = getattr(self, "weights", None)
            weights = None if isinstance(weights, str) else weights
            found = search(ensemble, engine, seed, weights=weights, memory=self.memory)
            choice = found.choice
            rows = rows_of_sample(ensemble, seed, len(found.sample.given))
            self._judge_structure(rows, found, choice.n_clusters)
            self._found = found
            self.n_clusters_choice_: NClustersChoice = choice
            self.tree_: ClusterTree = tree_of(found, ensemble.n_objects, self._trees)
            self.n_clusters = choice.n_clusters
        try:
            yield
        finally:
            self.n_clusters = asked
            self._judged = self._found = None
