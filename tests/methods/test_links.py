"""Groups of objects that no partition labels together: found exactly, and told by methods with a survey."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons import METHODS, Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.errors import DisconnectedWarning
from bigcons.run.survey import linked


def components(seen):
    """Return the objects of each group, by a search from object to object over the partitions they share."""
    left, groups = {i for i in range(len(seen)) if seen[i].any()}, []
    while left:
        group, ends = set(), [left.pop()]
        while ends:
            i = ends.pop()
            group.add(i)
            near = {j for j in left if (seen[i] & seen[j]).any()}
            left -= near
            ends += near
        groups.append(group)
    return groups


@given(
    n_objects=st.integers(1, 100), n_partitions=st.integers(1, 8), share=st.floats(0.02, 0.6),
    rows=st.integers(1, 100), seed=st.integers(0, 999),
)  # fmt: skip
def test_linked__of_any_blocks_has_the_groups_of_objects(n_objects, n_partitions, share, rows, seed):
    seen = np.random.default_rng(seed).random((n_objects, n_partitions)) < share
    parts = [linked(seen[start : start + rows]) for start in range(0, n_objects, rows)]
    found = parts[0]
    for part in parts[1:]:
        found = linked(np.concatenate([np.equal.outer(np.unique(group), group) for group in (found, part)]))
    for group in components(seen):
        own = np.flatnonzero(seen[sorted(group)].any(axis=0))
        assert (found[own] == own[0]).all()


@pytest.mark.parametrize("name", ["pcc", "hbgf", "mixture", "mcla", "eac-average"])
def test_methods__tell_groups_and_are_silent_about_one(name, tmp_path):
    whole = planted_ensemble(300, 12, missing=0.0, random_state=0)[0].read(0, 300)
    apart = np.full((300, 12), -1)
    apart[:200, :6], apart[200:, 6:] = whole[:200, :6], whole[200:, 6:]
    stored = Ensemble.from_labels(apart).save(tmp_path / "e.zarr", chunk_rows=64)
    few = {"n_init": 2} if name in ("pcc", "mixture") else {}
    with pytest.warns(DisconnectedWarning, match=r"2 groups \(200, 100\) that no partition labels together"):
        METHODS[name](3, random_state=0, **few).fit(stored)
    linked = apart.copy()
    linked[0, 6:] = whole[0, 6:]
    METHODS[name](3, random_state=0, **few).fit(linked)
