"""Whatever is altered in stores, checkpoints and scratch is detected or harmless, never silently wrong.

`benchmarks/faults.py` does the same with more alterations, more methods, and kills.
"""

from collections import Counter

import pytest

from benchmarks import faults
from bigcons import METHODS
from bigcons.coassociation import sample
from bigcons.datasets import planted_ensemble
from bigcons.disk.checkpoint import Snapshots
from bigcons.errors import InvalidInputError, StoreExistsError


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_alterations__are_never_silently_wrong(tmp_path):
    targets = faults.make_targets(tmp_path / "targets", ["PCC", "mixture"])
    found = list(faults.sample_alterations(targets, 3 * len(targets), 0, tmp_path / "work"))
    assert [case for case in found if case[1] in ("silent", "untyped")] == []
    counts = Counter(outcome for _, outcome, _ in found)
    assert counts["detected"] + counts["recovered"] > counts["harmless"]  # the alterations happened


@pytest.mark.parametrize("how", ["is finished", "is unfinished"])
def test_fit__refuses_a_run_of_other_pairs_at_the_same_path(tmp_path, how):
    """A run is one of its pairs, not of the path where they were."""
    ensemble = planted_ensemble(200, 8, missing=0.0, random_state=0)[0]
    options = {"n_clusters": 3, "pairs": str(tmp_path / "p.zarr"), "solver": "blocked", "random_state": 0}
    sample(ensemble, per_object=10, out=tmp_path / "p.zarr", random_state=0)
    with faults.stopping(Snapshots, "save", 2 if how == "is unfinished" else 99):
        METHODS["pcc"](**options).fit(ensemble, out=tmp_path / "c.zarr")
    sample(ensemble, per_object=10, out=tmp_path / "p.zarr", random_state=1, overwrite=True)
    error = StoreExistsError if how == "is finished" else InvalidInputError
    with pytest.raises(error, match="with other pairs"):
        METHODS["pcc"](**options).fit(ensemble, out=tmp_path / "c.zarr")
