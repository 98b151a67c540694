"""Objects without pairs: placed over all pairs, given all that have some."""

from functools import partial

import numpy as np
import pytest

from bigcons import PCC, Ensemble
from bigcons.coassociation import sample
from bigcons.datasets import planted_ensemble
from bigcons.methods.pcc.all_pairs import best_memberships, solved_sums
from bigcons.methods.pcc.pairs import place_isolated
from bigcons.run.engine import SerialEngine, ThreadsEngine
from bigcons.run.passes import Run
from tests.naive import pcc as naive

pytestmark = pytest.mark.filterwarnings("ignore:PCC stopped at max_iter:bigcons.errors.ConvergenceWarning")

N, K = 160, 3


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    """Return an ensemble in five blocks, the objects that a sampled table leaves out, and a solution."""
    labels = planted_ensemble(N, 12, missing=0.3, random_state=0)[0].read(0, N)
    path = tmp_path_factory.mktemp("placing") / "e.zarr"
    ensemble = Ensemble.from_labels(labels).save(path, chunk_rows=32)
    isolated = np.flatnonzero(sample(ensemble, per_object=2, random_state=0).degrees(0, N) == 0)
    assert 5 < isolated.size < 50
    memberships = PCC(K, divergence="kl", pairs="dense", random_state=0).fit(ensemble).memberships_.copy()
    memberships[isolated] = 1 / K
    return ensemble, isolated, memberships


def sums(solved, run, memberships):
    for block in run.blocks:
        run.arrays.write(0, block, memberships[block.start : block.stop])
    read = partial(run.arrays.read, 0)
    return read, solved_sums(run, read, solved[1])


def placed(solved, engine=None):
    ensemble, isolated, memberships = solved
    run = Run(ensemble, engine or SerialEngine(), 0, 1, 0.0)
    read, found = sums(solved, run, memberships)
    place_isolated(run, read, 1, isolated, found)
    return np.concatenate([run.arrays.read(1, block) for block in ensemble.blocks()])


def test_place_isolated__is_best_over_the_pairs_with_all_others(solved):
    ensemble, isolated, memberships = solved
    lonely = set(isolated.tolist())
    pairs = [p for p in naive.all_pairs(ensemble.read(0, N)) if len(lonely & set(p[:2])) == 1]
    found = placed(solved).astype(np.float64)
    least = naive.objective(pairs, found, naive.l2)
    for i in isolated:
        for k in range(K):
            other = found.copy()
            other[i] = 0.99 * found[i] + 0.01 * np.eye(K)[k]
            assert naive.objective(pairs, other, naive.l2) >= least - 1e-6
    kept = np.setdiff1d(np.arange(N), isolated)
    np.testing.assert_array_equal(placed(solved)[kept], memberships[kept])


def test_place_isolated__has_the_same_bits_on_threads(solved):
    np.testing.assert_array_equal(placed(solved, ThreadsEngine(3)), placed(solved))


def test_solved_sums__does_not_look_at_what_is_left_out(solved):
    ensemble, isolated, memberships = solved
    changed, labels = memberships.copy(), ensemble.read(0, N)
    changed[isolated] = np.eye(K)[0]
    runs = [Run(ensemble, SerialEngine(), 0, 1, 0.0) for _ in range(2)]
    found, expected = (
        best_memberships(sums(solved, run, rows)[1], ensemble.offsets, labels)
        for run, rows in zip(runs, (changed, memberships), strict=True)
    )
    np.testing.assert_array_equal(found, expected)
