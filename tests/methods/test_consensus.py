"""The consensus in one call: the fit of a method, the tree by default."""

import numpy as np
import pandas as pd
import pytest

import bigcons as bc
from bigcons.datasets import planted_ensemble
from bigcons.errors import InvalidInputError


def test_consensus__is_the_fit_of_the_method_with_its_parameters(tmp_path):
    ensemble, _ = planted_ensemble(300, 10, missing=0.2, random_state=0)
    weights = np.arange(1.0, 11.0)
    for method, parameters in (("tree", {"weights": weights}), ("hbgf", {"weights": weights})):
        expected = bc.METHODS[method](4, random_state=0, **parameters).fit(ensemble)
        found = bc.consensus(ensemble, 4, method, random_state=0, **parameters, out=tmp_path / method)
        assert type(found) is type(expected)
        np.testing.assert_array_equal(found.labels_, expected.labels_)
        np.testing.assert_array_equal(bc.Consensus.open(tmp_path / method).labels, expected.labels_)


def test_consensus__is_a_tree_unless_another_method_is_named():
    ensemble, _ = planted_ensemble(200, 8, missing=0.0, random_state=0)
    assert isinstance(bc.consensus(ensemble, n_clusters=3), bc.ConsensusTree)
    assert isinstance(bc.consensus(ensemble, n_clusters="auto", random_state=0), bc.ConsensusTree)


def test_consensus__of_a_table_passes_its_columns_on_to_fit():
    ensemble, _ = planted_ensemble(200, 4, missing=0.0, random_state=0)
    names = ["mine", "yours", "hers", "theirs"]
    table = pd.DataFrame(ensemble.read(0, 200), columns=names).assign(who=np.arange(200), city=1)
    model = bc.consensus(table, 3, id="who", drop=["city"], random_state=0)
    assert list(model.feature_names_in_) == names


def test_consensus__refuses_a_method_and_a_parameter_that_there_is_not():
    with pytest.raises(
        InvalidInputError, match=r"^method='pca' is unknown; .*Did you mean 'pcc'\?$"
    ) as refused:
        bc.consensus([[0], [1]], 2, method="pca")
    assert (refused.value.parameter, refused.value.nearest) == ("method", "pcc")
    for given in (bc.PCC, bc.PCC(2), ["pcc"]):
        with pytest.raises(InvalidInputError, match=r"Did you mean 'pcc'\?$"):
            bc.consensus([[0], [1]], 2, method=given)
    with pytest.raises(TypeError, match="prior"):
        bc.consensus([[0], [1]], 2, prior=1)
