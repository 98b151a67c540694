"""The ablation of the consensus tree: what all variants change is the method, where no cluster is lost."""

import numpy as np
import pytest
from tree_ablation import ONCE, VARIANTS, solved

from bigcons import ConsensusTree
from bigcons.datasets import planted_ensemble
from bigcons.metrics import adjusted_rand


@pytest.mark.parametrize("missing", [0.0, 0.5])
def test_solved__once_is_the_method_where_all_objects_are_sampled_and_all_clusters_win_some(missing):
    ensemble, truth = planted_ensemble(600, 30, missing=missing, random_state=0)
    labels, classes = ensemble.read(0, 600), np.unique(truth, return_inverse=True)[1]
    found = dict(solved(labels, classes, seed=0))
    assert set(found) == set(VARIANTS)
    model = ConsensusTree(int(classes.max()) + 1, random_state=0).fit(ensemble)
    assert adjusted_rand(model.labels_, found[ONCE]) == 1.0
