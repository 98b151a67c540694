"""Partitions by the numbers of a consensus: `Ensemble.align`, held against all matchings."""

from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons import METHODS, Consensus, Ensemble, match
from bigcons.errors import EmptyPartitionError, InvalidIdsError, InvalidInputError, SoftEnsembleError
from tests.support.strategies import label_matrices


def numbers_of(aligned):
    return aligned.to_pandas().to_numpy(float, na_value=-1).astype(int)


def best_matched(base, found):
    """Return the most objects that are in both of a matched pair, over all one-to-one matchings."""
    names, numbers = np.unique(base[base >= 0]), np.unique(found[found >= 0])
    few, many = sorted([(names, base), (numbers, found)], key=lambda side: len(side[0]))
    return max(
        sum(np.sum((few[1] == a) & (many[1] == b)) for a, b in zip(few[0], order, strict=False))
        for order in permutations(many[0], len(few[0]))
    )


@given(labels=label_matrices(), seed=st.integers(0, 99))
def test_align__matches_as_many_objects_as_possible(labels, seed):
    rng = np.random.default_rng(seed)
    found = rng.integers(-1, 4, len(labels))
    found[0] = 3
    ensemble = Ensemble.from_labels(labels)
    codes = np.asarray(ensemble)
    try:
        aligned = numbers_of(ensemble.align(found))
    except EmptyPartitionError:
        assert not ((codes >= 0) & (found >= 0)[:, None]).any(axis=0).all()
        return
    for u in range(labels.shape[1]):
        base, numbers = codes[:, u], aligned[:, u]
        agree = np.sum((numbers == found) & (numbers >= 0))
        assert agree >= best_matched(base, found)  # base clusters that are left add to it
        if ensemble.n_clusters[u] <= len(np.unique(found[found >= 0])):
            pairs = {(b, n) for b, n in zip(base, numbers, strict=True) if n >= 0}
            if len({n for _, n in pairs}) == ensemble.n_clusters[u]:
                assert agree == best_matched(base, found)
        for b in range(ensemble.n_clusters[u]):  # a base cluster has one number, which it overlaps
            (number,) = set(numbers[base == b])
            shared = np.sum((base == b) & (found == number) & (number >= 0))
            assert shared > 0 or (number == -1 and not (found[base == b] >= 0).any())


def test_align__numbers_any_form_of_a_consensus_alike(tmp_path):
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=300)
    labels = np.column_stack(
        [
            rng.permutation(3)[truth],
            np.where(truth == 2, -1, truth * 5),
            truth * 2 + rng.integers(2, size=300),
        ]
    )
    frame = pd.DataFrame(labels, columns=["same", "part", "fine"], index=[f"o{i}" for i in range(300)])
    ensemble = Ensemble.from_labels(frame, id="index")
    consensus = Consensus.write(tmp_path / "c.zarr", truth, None)
    expected = np.column_stack([truth, np.where(truth == 2, -1, truth), truth])
    stored = ensemble.align(consensus, tmp_path / "aligned.zarr")
    for aligned in (stored, ensemble.align(tmp_path / "c.zarr"), ensemble.align(truth)):
        np.testing.assert_array_equal(numbers_of(aligned), expected)
        assert (aligned.names, aligned.ids.tolist()) == (ensemble.names, ensemble.ids.tolist())
        assert aligned.n_labeled.tolist() == ensemble.n_labeled.tolist()
    words = np.array(["ant", "bee", "cat"])[truth]
    assert ensemble.align(words).to_pandas()["fine"].tolist() == words.tolist()
    assert ensemble.align(np.where(truth == 0, -1, truth)).to_pandas()["part"].dropna().unique().tolist() == [
        1
    ]
    with pytest.raises(InvalidInputError, match="labels are of 299 objects but the ensemble of 300"):
        ensemble.align(truth[1:])
    with pytest.raises(SoftEnsembleError, match="align works on labels"):
        Ensemble.from_memberships([np.eye(3)[truth]]).align(truth)
    with pytest.raises(EmptyPartitionError, match="part"):
        ensemble.align(np.where(truth == 2, 0, -1))


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
        elif (
            of_new.any()
        ):  # its first source has more of its objects elsewhere, or as many in an earlier cluster
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
    old = Consensus.write(tmp_path / "old.zarr", 2 - labels, None, ids=np.arange(60))
    new = Consensus.write(tmp_path / "new.zarr", labels[order][:50], None, ids=np.arange(60)[order][:50])
    found = match(new, tmp_path / "old.zarr")
    np.testing.assert_array_equal(found.labels, 2 - labels[order][:50])
    assert found.table["size_before"].to_pylist() == [20, 20, 20]
    frame = pd.DataFrame(np.stack([labels] * 3, axis=1)[order], index=order)
    model = METHODS["best"](3).fit(frame, id="index")
    np.testing.assert_array_equal(match(model, old).labels, 2 - labels[order])
    text = Consensus.write(tmp_path / "text.zarr", labels, None, ids=[f"o{i}" for i in range(60)])
    with pytest.raises(InvalidIdsError, match="no id of the new consensus is a id of the old"):
        match(text, old)
    with pytest.raises(InvalidInputError, match="old labels are of 60 objects but the new ones of 50"):
        match(new.labels, old)
    with pytest.raises(InvalidInputError, match="the old labels are text"):
        match(labels, np.array(list("abc"))[labels])
