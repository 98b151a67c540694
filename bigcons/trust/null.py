"""Would data without clusters look like this? A Monte Carlo reference, where the features are at hand.

The evidence for a number of clusters is its lifetime in the tree of distinctness, as far as halves of the
partitions agree on it and on smaller ones (`bigcons.trust.n_clusters`). How much there is without clusters
depends on the features and on the generator: partitions that all divide a long cloud across, or all into
eight, agree on more than others. So the same generator makes partitions of a sample of the objects, and of as
many points of one Gaussian with the covariance of the sample, again and again (M3C, John et al. 2020); and
the share of the draws with as much evidence is a p-value.
"""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import numpy as np

import bigcons.generate
from bigcons.errors import InvalidInputError, first_line
from bigcons.progress import progress
from bigcons.run.engine import Engine, one_thread
from bigcons.seeding import draw_rows, generator
from bigcons.store.clusters import NClustersChoice, evidence
from bigcons.store.ensemble import Ensemble
from bigcons.trust.groups import N_ROWS
from bigcons.trust.n_clusters import search


class Reference(NamedTuple):
    """The evidence for numbers of clusters in a sample of the objects, and in draws of one Gaussian."""

    observed: np.ndarray
    """(most,): the largest evidence for 2, 3, ... clusters or more."""
    drawn: np.ndarray
    """(n_draws,): that for 2 clusters or more in every draw."""

    @classmethod
    def of(cls, ensemble: Ensemble, features: Any, n_draws: int, engine: Engine, seed: int) -> Reference:
        """Return the reference of an ensemble that `bigcons.generate` made of ``features``.

        Raises InvalidInputError if it made none of the partitions, or of other features.
        """
        make = _generator_of(ensemble, engine)
        points = _sampled_points(ensemble, features, seed)
        center = points.mean(axis=0)
        deviations = (points - center) / np.sqrt(len(points))
        drawn = []
        with progress("draw references", n_draws + 1, "draws") as listener:
            observed = evidence_of(search(make(points, seed), engine, seed).choice)
            listener.advance(1)
            for at in range(n_draws):
                normal = generator(seed, "null.draws", at).normal(size=(len(points),) * 2)
                with one_thread(user_api="blas"):
                    of_one = center + normal @ deviations  # has the covariance of the points
                drawn.append(evidence_of(search(make(of_one, seed), engine, seed).choice)[0])
                listener.advance(1)
        return cls(observed, np.array(drawn))

    def p_values(self, most: int) -> np.ndarray:
        """Return the p-values of 2, 3, ... clusters or more, (most,), falling with what is drawn.

        The share of the draws, the sample counted among them, in which 2 clusters or more have as much
        evidence: a number is compared with the best number of every draw, so that all p-values hold at once.
        """
        observed = np.append(self.observed, np.zeros(most))[:most]
        return (1 + (self.drawn >= observed[:, None]).sum(axis=1)) / (1 + len(self.drawn))


def evidence_of(choice: NClustersChoice) -> np.ndarray:
    """Return the largest evidence for 2, 3, ... clusters or more, (most,), 0 of more than are compared."""
    found = np.maximum(evidence(choice.table), 0.0)
    return np.append(np.maximum.accumulate(found[1:][::-1])[::-1], 0.0)


def _generator_of(ensemble: Ensemble, engine: Engine) -> Any:
    """Return what makes as many partitions of points as an ensemble has, and as it did, given a seed."""
    made_with = ensemble.provenance
    while "generator" not in made_with and "from" in made_with:
        made_with = made_with["from"]
    make = getattr(bigcons.generate, str(made_with.get("generator")), None)
    if make is None or ensemble.generator is None:
        raise InvalidInputError(
            "the ensemble does not hold its generator, which a reference needs to make others like it; "
            "use one that bigcons.generate made of features, or leave features out.",
            parameter="features",
        )
    taken = inspect.signature(make).parameters.keys() - {"features", "random_state", "client", "columns"}
    options = {name: made_with[name] for name in taken & made_with.keys()}
    options |= {"n_partitions": ensemble.n_partitions, "standardize": False, "client": engine}

    def partitions(points: np.ndarray, seed: int) -> Ensemble:
        try:
            made: Ensemble = make(points, **options, random_state=seed)
        except InvalidInputError as error:
            raise InvalidInputError(
                f"a reference is made of {len(points):,} of the objects, which cannot be clustered as the "
                f"ensemble was ({first_line(error)}); leave features out.",
                parameter="features",
            ) from None
        return made

    return partitions


def _sampled_points(ensemble: Ensemble, features: Any, seed: int) -> np.ndarray:
    """Return the features of a sample of the objects as they were clustered, (rows, width) float64."""
    made_by: Any = ensemble.generator
    data, scaling = made_by.open(features), made_by.encoding.scaling
    if data.n_objects != ensemble.n_objects:
        raise InvalidInputError(
            f"features has {data.n_objects:,} rows but the ensemble {ensemble.n_objects:,} objects; pass "
            "those that it was made of.",
            parameter="features",
        )
    chosen, parts = draw_rows(data.n_objects, N_ROWS, seed, "null.sample"), []
    for block, rows in data.iterate(gaps=True, sparse=True):
        points = scaling.apply(rows[block.rows_of(chosen)])
        parts.append(points if isinstance(points, np.ndarray) else points.toarray())
    return np.concatenate(parts).astype(np.float64)
