"""Ensembles drawn from memberships, with labels deleted, of noisy copies, and of different algorithms."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn.datasets import make_blobs

from bigcons import Consensus, Ensemble, datasets, generate
from bigcons.errors import InvalidInputError, MemoryBudgetError
from bigcons.generate.diverse import CLUSTERERS, SETS, correlation, cosine, euclidean, jaccard
from bigcons.kernels.draws import draw_labels
from bigcons.metrics import matching_accuracy
from tests.naive import categorical as naive
from tests.support.refusals import refused
from tests.support.stores import values_of, write_consensus

N_OBJECTS = 9000

# Drawn from memberships


@pytest.fixture(scope="module")
def memberships():
    return np.random.default_rng(0).dirichlet(np.full(5, 0.5), size=N_OBJECTS)


def drawn(memberships, **how):
    """The labels with their own numbers: a partition without some cluster has renumbered the others."""
    ensemble = generate.from_memberships(memberships, **{"n_partitions": 6, "random_state": 0, **how})
    columns = [
        column if values is None else np.append(values, -1)[column]
        for column, values in zip(np.asarray(ensemble).T, ensemble.categories, strict=True)
    ]
    return np.stack(columns, axis=1)


@given(
    arrays.arrays(
        np.float32, (4, 3), elements=st.sampled_from([0, 0.1, 0.25, 1 / 3, 0.5, 1]), fill=st.nothing()
    ),
    arrays.arrays(np.float64, (4, 5), elements=st.floats(0, 1, exclude_max=True), fill=st.nothing()),
)
def test_draw_labels__is_the_naive_draw(memberships, draws):
    expected = naive.draw_labels(memberships.astype(float).tolist(), draws.tolist())
    expected = [[-1 if label is None else label for label in row] for row in expected]
    np.testing.assert_array_equal(draw_labels(memberships, draws), expected)


def test_from_memberships__frequencies_are_the_memberships():
    soft = np.random.default_rng(1).dirichlet(np.ones(4), size=60)
    labels = drawn(soft, n_partitions=20_000)
    frequencies = np.stack([(labels == k).mean(axis=1) for k in range(4)], axis=1)
    np.testing.assert_allclose(frequencies, soft, atol=0.02)  # more than five standard deviations


def test_from_memberships__the_same_however_stored_and_run(memberships, tmp_path):
    expected = drawn(memberships)
    write_consensus(tmp_path / "z.zarr", memberships.argmax(axis=1), memberships, chunk_rows=1000)
    rounded = drawn(memberships.astype(np.float32))
    np.testing.assert_array_equal(drawn(Consensus.open(tmp_path / "z.zarr")), rounded)
    assert not np.array_equal(drawn(memberships, random_state=1), expected)


def test_from_memberships__unlabeled_objects_stay_so(memberships, tmp_path):
    labels = np.where(np.arange(N_OBJECTS) % 10 == 0, -1, memberships.argmax(axis=1))
    write_consensus(tmp_path / "z.zarr", labels, memberships)
    labels_of_store = drawn(Consensus.open(tmp_path / "z.zarr"))
    np.testing.assert_array_equal(labels_of_store < 0, np.repeat(labels[:, None] < 0, 6, axis=1))
    zeros = np.where(labels[:, None] < 0, 0, memberships).astype(np.float32)
    np.testing.assert_array_equal(drawn(zeros), labels_of_store)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([[0.5, 0.5], [0.5, 0.4]], "memberships has row 1 with minimum 0.4 and sum 0.9"),
        ([[0.5, 0.5], [1.5, -0.5]], "row 1 with minimum -0.5"),
        ([[0.5, 0.5], [0.5, np.nan]], "row 1 with minimum nan"),
    ],
)
def test_from_memberships__names_the_row_off_the_simplex(wrong, message):
    with pytest.raises(InvalidInputError, match=message):
        drawn(np.array(wrong))


def test_from_memberships__rejects_labels_only(tmp_path):
    with Consensus.create(tmp_path / "hard.zarr", n_objects=3, n_clusters=2, memberships=False) as writer:
        writer.write(0, np.array([0, 1, 1]))
    with pytest.raises(InvalidInputError, match="labels only"):
        drawn(Consensus.open(tmp_path / "hard.zarr"))


@pytest.fixture(scope="module")
def labels():
    return np.random.default_rng(0).integers(4, size=(N_OBJECTS, 7))


def delete(x, share=0.3, **how):
    return np.asarray(generate.mask_labels(x, share, **{"random_state": 0, **how}))


def copies(x, noise=0.25, **how):
    return np.asarray(generate.noisy_copies(x, noise=noise, **{"random_state": 0, **how}))


@given(share=st.floats(0, 0.9), n=st.integers(20, 5000))
def test_mask_labels__deletes_exactly_the_share(share, n):
    whole = np.zeros((n, 3), dtype=int)
    spoiled = delete(whole, share)
    assert (spoiled < 0).sum() == round(share * 3 * n)


def test_mask_labels__keeps_names_and_values():
    rows = [["a", 10], ["b", 10], ["a", 30], ["c", 20]] * 50
    ensemble = Ensemble.from_labels(rows, names=["letters", "tens"], columns=[0, 1])
    spoiled = generate.mask_labels(ensemble, 0.5, random_state=0)
    assert spoiled.names == ["letters", "tens"]
    for found, row in zip(values_of(spoiled), rows, strict=True):
        assert all(value in (None, original) for value, original in zip(found, row, strict=True))


def test_mask_labels__keeps_negative_numbers_that_are_labels():
    votes = np.tile([[-1], [1], [0]], (20, 3))
    spoiled = generate.mask_labels(Ensemble.from_labels(votes, missing=[]), 0.25, random_state=0)
    found = np.array([row if None not in row else [9, 9, 9] for row in values_of(spoiled)])
    is_whole = (found != 9).all(axis=1)
    assert is_whole.any()
    np.testing.assert_array_equal(found[is_whole], votes[is_whole])
    assert sum(value is None for row in values_of(spoiled) for value in row) == round(0.25 * votes.size)


@pytest.mark.parametrize(
    ("share", "message"),
    [
        (-0.1, "share=-0.1"),
        (1, "masks every label"),
        ("half", "share='half'"),
        (0.75, r"'p\d' has no labels"),
    ],
)
def test_mask_labels__rejects_shares_that_leave_nothing(share, message):
    with pytest.raises(InvalidInputError, match=message):
        delete(np.zeros((2, 2), dtype=int), share)


@given(noise=st.floats(0, 1), n=st.integers(5, 5000))
def test_noisy_copies__change_no_more_labels_than_the_share(noise, n):
    truth = np.arange(n) % 5
    for column in copies(truth, noise=noise, n_partitions=2).T:
        assert (1 - matching_accuracy(truth, column)) * n <= round(noise * n) + 1e-6


def test_noisy_copies__take_any_labels_and_keep_gaps():
    truth = np.array(["red", "green", "blue"] * 100)
    assert all(matching_accuracy(truth, column) == 1 for column in copies(truth, noise=0).T)
    gappy = np.where(np.arange(600) % 4 == 0, -1, np.arange(600) % 3)
    np.testing.assert_array_equal(copies(gappy) < 0, np.repeat(gappy[:, None] < 0, 8, axis=1))


@pytest.mark.parametrize(
    ("how", "message"), [({"noise": 1.5}, "noise=1.5"), ({"noise": 0.1, "n_partitions": 0}, "n_partitions=0")]
)
def test_noisy_copies__say_what_is_wrong(how, message):
    with pytest.raises(InvalidInputError, match=message):
        generate.noisy_copies([0, 1, 2], **how)


# Different algorithms

WITHOUT_METIS = [name for name in CLUSTERERS if not name.startswith(("graph", "hyper"))]


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(300, n_features=4, centers=4, cluster_std=0.5, random_state=1)


def diverse_of(x, **kwargs):
    """The labels of every partition by its name."""
    ensemble = generate.diverse(x, **{"random_state": 0, **kwargs})
    return dict(zip(ensemble.names, ensemble.read(0, ensemble.n_objects).T, strict=True))


def test_diverse__each_algorithm_for_each_number_of_clusters(blobs):
    partitions = diverse_of(blobs[0], n_clusters=(2, 5))
    assert list(partitions) == [f"{name}-{k}" for name in SETS["pcc"] for k in range(2, 6)]
    for name, labels in partitions.items():
        assert labels.min() == 0
        assert labels.max() + 1 == int(name[-1])


def test_diverse__does_not_depend_on_memory_or_the_other_algorithms(blobs):
    expected = diverse_of(blobs[0], n_clusters=(2, 4), algorithms=WITHOUT_METIS)
    other = diverse_of(blobs[0], n_clusters=(2, 4), algorithms=WITHOUT_METIS, memory="375MB")
    for name, labels in expected.items():
        np.testing.assert_array_equal(other[name], labels)
    alone = diverse_of(blobs[0], n_clusters=(2, 4), algorithms="kmeans")
    np.testing.assert_array_equal(alone["kmeans-3"], expected["kmeans-3"])
    assert not np.array_equal(diverse_of(blobs[0], algorithms="random", random_state=1)["random-5"],
                              diverse_of(blobs[0], algorithms="random")["random-5"])  # fmt: skip


def test_similarities__are_their_formulas():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(6, 4)), rng.normal(size=(5, 4))
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            dot = sum(x * y)
            assert euclidean(a, b)[i, j] == pytest.approx(np.exp(-sum((x - y) ** 2)))
            assert cosine(a, b)[i, j] == pytest.approx(dot / np.sqrt(sum(x * x) * sum(y * y)))
            assert correlation(a, b)[i, j] == pytest.approx((np.corrcoef(x, y)[0, 1] + 1) / 2)
            assert jaccard(a, b)[i, j] == pytest.approx(dot / (sum(x * x) + sum(y * y) - dot))


@pytest.mark.parametrize("name", [name for name in CLUSTERERS if name.startswith("graph")])
def test_graph__parts_are_balanced_and_good(name):
    pytest.importorskip("pymetis")
    x, truth = datasets.ce_8d5k(1)
    partitions = diverse_of(x, n_clusters=5, algorithms=name, standardize=name != "graph-euclidean")
    assert np.bincount(partitions[f"{name}-5"]).max() <= 1.05 * 200 + 1
    assert matching_accuracy(truth, partitions[f"{name}-5"]) > 0.95


def test_hypergraph__parts_of_features_are_balanced_and_good():
    pytest.importorskip("mtkahypar")
    truth = np.repeat([0, 1, 2], 40)
    shares = np.where(truth[:, None] == np.arange(30) % 3, 0.4, 0.002)
    words = (np.random.default_rng(0).random((120, 30)) < shares).astype(float)
    found = diverse_of(words, n_clusters=3, algorithms="hypergraph", standardize=False)["hypergraph-3"]
    assert np.bincount(found).max() <= 1.05 * 40 + 1
    assert matching_accuracy(truth, found) > 0.95


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"algorithms": "gas"}, "algorithms='gas' is unknown"),
        ({"algorithms": ["kmeans", "pcc"]}, "algorithms='pcc' is unknown"),
        ({"n_clusters": "split"}, "n_clusters='split'"),
        ({"n_clusters": 300}, "n_clusters=300 but there are 300 objects"),
        ({"memory": "no"}, "memory='no'"),
    ],
)
def test_diverse__says_what_is_wrong_in_one_line(blobs, kwargs, message):
    with refused(message):
        diverse_of(blobs[0], **kwargs)


def test_diverse__rejects_all_pairs_of_many_objects_with_the_number():
    many = np.random.default_rng(0).normal(size=(50_000, 2))
    with pytest.raises(MemoryBudgetError, match=r"pairs of 'ward' need 20.4 GB, over memory=4.37 GB"):
        diverse_of(many, algorithms=["ward", "kmeans"])
    assert len(diverse_of(many, n_clusters=2, algorithms="kmeans")) == 1
