"""The variants of PCC: what each does not take is refused."""

import numpy as np
import pytest

from bigcons import METHODS, PCC, Ensemble
from bigcons.errors import InvalidInputError, MemoryBudgetError
from bigcons.methods.pcc.estimator import choose_problem
from bigcons.run.engine import SerialEngine

SQUARES, HEAP, BLOCKED = "all", "heap", "blocked"

# How a user asks for each kind of variant, and gives each parameter of the table.
ASKED = {
    SQUARES: {},
    HEAP: {"pairs": 0.5, "solver": "heap"},
    BLOCKED: {"pairs": 0.5, "solver": "blocked"},
}
GIVEN = {
    "n_init": {"n_init": 2},
    "max_iter": {"max_iter": 7},
    "max_iter='paper'": {"max_iter": "paper"},
    "weights": {"weights": np.arange(1.0, 4.0)},
}


REFUSED = {
    ("max_iter='paper'", SQUARES): "it requires solver='heap'",
    ("max_iter='paper'", BLOCKED): "it requires solver='heap'",
    **{("weights", kind): "it requires pairs='all' and divergence='l2'" for kind in (HEAP, BLOCKED)},
}


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("kind", ASKED)
def test_parameters__are_taken_or_refused_with_what_they_require(kind, name):
    ensemble = Ensemble.from_labels(np.arange(60).reshape(20, 3) % 4)
    asked = {**ASKED[kind], **GIVEN[name]}
    if (name, kind) not in REFUSED:
        assert choose_problem(PCC(2, **asked), ensemble, SerialEngine()).solver == kind
        return
    with pytest.raises(InvalidInputError, match=REFUSED[name, kind]) as refusal:
        choose_problem(PCC(2, **asked), ensemble, SerialEngine())
    assert "\n" not in str(refusal.value)


def test_many_clusters__whose_tables_exceed_the_budget_are_refused_and_the_tree_is_named():
    labels = np.arange(320_000).reshape(2000, 160) % 50
    with pytest.raises(MemoryBudgetError, match=r"PCC of 1,900 clusters needs tables of .* or use Cons"):
        PCC(1900).fit(labels)
    with pytest.raises(MemoryBudgetError, match=r"PCC needs .* over memory=2 GB; .*or use ConsensusTree"):
        PCC(1000, memory="2GB").fit(labels)


@pytest.mark.parametrize("method", ["tree", "pcc", "bce"])
def test_budget_too_small__is_told_with_remedies_that_fit_it(method):
    """A store for the result, and the tree in the place of PCC, are offered only where they are enough."""
    ensemble = Ensemble.from_labels(np.arange(2_400_000).reshape(1_200_000, 2) % 3)

    def refusal(memory):
        with pytest.raises(MemoryBudgetError, match="over memory=") as found:
            METHODS[method](40, memory=memory, client="serial").fit(ensemble)
        return found.value

    hopeless = refusal("1MB")
    assert "out=" not in str(hopeless)
    assert "use ConsensusTree" not in str(hopeless)
    nearly = refusal(hopeless.needed - 1_000_000)
    assert "or write the result to a store with out=" in str(nearly)
    assert ("or use ConsensusTree" in str(nearly)) == (method == "pcc")
