"""The ablation of the consensus tree: what variants change is the method by trees, if no cluster is lost."""

import numpy as np
import pytest
from tree_ablation import ONCE, VARIANTS, solved

from bigcons import ConsensusTree
from bigcons.datasets import planted_ensemble
from bigcons.metrics import adjusted_rand


@pytest.mark.parametrize("missing", [0.0, 0.5])
def test_solved__once_is_the_method_by_its_trees_where_no_cluster_is_lost(missing, monkeypatch):
    monkeypatch.setattr("bigcons.trust.groups.Sample.divide", lambda *_: None)
    ensemble, truth = planted_ensemble(600, 30, missing=missing, random_state=0)
    labels, classes = ensemble.read(0, 600), np.unique(truth, return_inverse=True)[1]
    found = dict(solved(labels, classes, seed=0))
    assert set(found) == set(VARIANTS)
    assert adjusted_rand(ConsensusTree(6, random_state=0).fit(ensemble).labels_, found[ONCE]) == 1.0
