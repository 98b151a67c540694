"""Partitions by the numbers of a consensus: `Ensemble.align`, held against all matchings."""

from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigcons import Consensus, Ensemble
from bigcons.errors import EmptyPartitionError, InvalidInputError, SoftEnsembleError
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


@settings(max_examples=40, deadline=None)
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
