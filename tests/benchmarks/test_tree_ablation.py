"""The ablation of the consensus tree: its default is the method, and its table the means of the rows."""

import numpy as np
import pytest
from tree_ablation import COLUMNS, DEFAULT, VARIANTS, solved, table_of

from bigcons import ConsensusTree
from bigcons.datasets import planted_ensemble
from bigcons.metrics import adjusted_rand


@pytest.mark.parametrize("missing", [0.0, 0.5])
def test_solved__default_is_the_method_where_all_objects_are_sampled(missing):
    ensemble, truth = planted_ensemble(600, 30, missing=missing, random_state=0)
    labels, classes = ensemble.read(0, 600), np.unique(truth, return_inverse=True)[1]
    found = dict(solved(labels, classes, seed=0))
    assert set(found) == set(VARIANTS)
    model = ConsensusTree(int(classes.max()) + 1, random_state=0).fit(ensemble)
    assert adjusted_rand(model.labels_, found[DEFAULT]) == 1.0


def test_table_of__has_the_means_of_every_variant():
    name = COLUMNS["choosing"][0]
    rows = [
        {"data": name, "kind": kind, "seed": 0, "variant": variant, "ari": ari}
        for kind, shift in (("all-20", 0.0), ("views", 0.5))
        for variant, ari in ((each, 0.25 + shift + 0.125 * (each != DEFAULT)) for each in VARIANTS)
    ]
    head, _, default, *others = table_of(rows).splitlines()
    assert head == "| variant | choosing (2) | better, worse |"
    assert default.endswith("| 0.500 |  |")
    assert all(line.endswith("| 0.625 | 2, 0 |") for line in others)
    assert len(others) == len(VARIANTS) - 1
