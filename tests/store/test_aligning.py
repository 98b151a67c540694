"""A consensus by the cluster numbers of an earlier one: `match`."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons import METHODS, match
from bigcons.errors import InvalidIdsError, InvalidInputError
from tests.support.stores import write_consensus

# Consensuses by the numbers of before

clusterings = st.lists(st.integers(-1, 4), min_size=1, max_size=12).filter(lambda labels: max(labels) >= 0)


@given(old=clusterings, more=st.lists(st.integers(-1, 4), max_size=4), data=st.data())
def test_match__keeps_numbers_where_each_has_most_of_the_other(old, more, data):
    n = len(old) + len(more)
    new = data.draw(
        st.lists(st.integers(-1, 4), min_size=n, max_size=n).filter(lambda labels: max(labels) >= 0)
    )
    new, old = np.array(new), np.array(old)
    found = match(new, old)
    np.testing.assert_array_equal(found.labels, np.append(found.numbers, -1)[new])
    kept, padded = found.labels, np.append(old, np.full(len(more), -1))
    both = (kept >= 0) & (padded >= 0)
    assert found.n_moved == np.sum(kept[both] != padded[both])
    for k in np.unique(new[new >= 0]):
        q = found.numbers[k]
        of_new, of_old = (
            np.bincount(a[both & (b == c)], minlength=9) for a, b, c in ((padded, new, k), (new, padded, q))
        )
        if q in old:
            assert of_new[q] == of_new.max() == of_old[k] == of_old.max() > 0
        elif of_new.any():  # its first source has more of its objects elsewhere, or as many in one before
            others = np.bincount(new[both & (padded == of_new.argmax())], minlength=9)
            assert others.argmax() != k
    rows = {row["number"]: row for row in found.table.to_pylist()}
    assert len(rows) == len(found.table)
    assert set(rows) == set(kept[kept >= 0].tolist()) | set(old[old >= 0].tolist())
    for number, row in rows.items():
        now, before = kept == number, padded == number
        assert row["size"] == now.sum()
        assert row["shared"] == (now & before).sum()
        assert row["size_before"] == (before.sum() or None)
        if row["event"] in ("split", "merged"):  # from, or into, the one that shares most with it
            mine, others = (now, padded) if row["event"] == "split" else (before, kept)
            counts = np.bincount(others[mine & (others >= 0)])
            assert counts[row["other"]] == counts.max() > 0
        else:
            assert row["other"] is None
            assert (row["shared"] > 0) == (row["event"] == "kept")


def test_match__joins_objects_by_ids(tmp_path):
    labels, rng = np.repeat([0, 1, 2], 20), np.random.default_rng(0)
    order = rng.permutation(60)
    old = write_consensus(tmp_path / "old.zarr", 2 - labels, None, ids=np.arange(60))
    new = write_consensus(tmp_path / "new.zarr", labels[order][:50], None, ids=np.arange(60)[order][:50])
    found = match(new, tmp_path / "old.zarr")
    np.testing.assert_array_equal(found.labels, 2 - labels[order][:50])
    assert found.table["size_before"].to_pylist() == [20, 20, 20]
    frame = pd.DataFrame(np.stack([labels] * 3, axis=1)[order], index=order)
    model = METHODS["best"](3).fit(frame, id="index")
    np.testing.assert_array_equal(match(model, old).labels, 2 - labels[order])
    text = write_consensus(tmp_path / "text.zarr", labels, None, ids=[f"o{i}" for i in range(60)])
    with pytest.raises(InvalidIdsError, match="no id of the new consensus is in the old"):
        match(text, old)
    with pytest.raises(InvalidInputError, match="old labels are of 60 objects but the new ones of 50"):
        match(new.labels, old)
    with pytest.raises(InvalidInputError, match="labels of the new or the old consensus are text"):
        match(labels, np.array(list("abc"))[labels])
