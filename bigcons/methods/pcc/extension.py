"""A start for solvers at scale: solve a few thousand objects, then place every block by what was found."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigcons.coassociation.factorized import State
from bigcons.execution.engine import Engine
from bigcons.memory import Block
from bigcons.methods.pcc.all_pairs import place_block
from bigcons.methods.pcc.subsample import solve_subsample
from bigcons.stores.ensemble import Ensemble


class Extension(NamedTuple):
    """Memberships of any block: the optimum of each object given the solved ones, over all pairs."""

    ensemble: Ensemble
    estimate: State
    start_objectives: list[float]
    """Of every start on the objects that were solved."""

    def __call__(self, block: Block) -> np.ndarray:
        """Return the memberships (rows, K) float32 of a block."""
        labels = self.ensemble.read(block.start, block.stop)
        memberships = np.empty((block.n_rows, self.estimate.n_clusters), np.float32)
        place_block(self.estimate, labels, self.ensemble.offsets, memberships)
        return memberships


def extend_subsample(
    ensemble: Ensemble, sample: np.ndarray, n_clusters: int, n_init: int, seed: int, engine: Engine
) -> Extension:
    """Solve the rows ``sample`` of labels from ``n_init`` starts; return the way to place all objects."""
    found = solve_subsample(sample, ensemble.offsets, n_clusters, n_init, seed, engine)
    estimate = found.state.scaled(ensemble.n_objects / sample.shape[0])
    return Extension(ensemble, estimate, found.start_objectives)
