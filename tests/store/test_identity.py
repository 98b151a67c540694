"""What is read of an opened store is of that store, or refused, whatever takes its place: every reader."""

import os
import pickle
import shutil

import numpy as np
import pandas as pd
import pytest

from bigcons import PCC, Consensus, ConsensusTree, Ensemble, PairTable, Report, coassociation
from bigcons.datasets import planted_ensemble
from bigcons.errors import StoreError
from tests.support.clusters import local_client
from tests.support.s3 import s3_server

N_OBJECTS = 400
CHANGED = "has changed since it was opened; open it again"

pytestmark = pytest.mark.filterwarnings("ignore::bigcons.errors.ConsensusWarning")


def a_table(seed, n_objects=N_OBJECTS, first=0):
    """Return labels of text with ids, of all seeds of the same sizes on the disk."""
    labels, _ = planted_ensemble(n_objects, 12, random_state=seed)
    ids = pd.Index([f"{seed}-{row:04d}" for row in range(first, first + n_objects)], name="who")
    names = np.array([f"v{seed}{k:02d}" for k in range(100)])
    return pd.DataFrame(names[np.asarray(labels)], ids, [f"p{u}" for u in range(12)])


def an_ensemble(seed, n_objects=N_OBJECTS):
    return Ensemble.from_labels(a_table(seed, n_objects), id="index")


def assert_refused(readers, opened, words=CHANGED):
    for name, read in readers.items():
        told = None
        try:
            read(opened)
        except StoreError as error:
            told = str(error)
        assert told is not None, name
        assert words in told, name


def replace(path):
    an_ensemble(2).save(path, chunk_rows=128, overwrite=True)


def replace_by_fewer(path):
    an_ensemble(2, 300).save(path, chunk_rows=100, overwrite=True)


def append(path):
    Ensemble.open(path, "a").append_objects(a_table(1, 50, first=N_OBJECTS))


def append_partitions(path):
    Ensemble.open(path, "a").append_partitions(a_table(1)[["p0"]].set_axis(["again"], axis=1))


def remove(path):
    shutil.rmtree(path)


READERS_OF_ENSEMBLES = {
    "read": lambda ensemble: ensemble.read(0, 5),
    "read the end": lambda ensemble: ensemble.read(N_OBJECTS - 5, N_OBJECTS),
    "read rows": lambda ensemble: ensemble.read_rows([3, 390]),
    "ids": lambda ensemble: ensemble.ids,
    "some ids": lambda ensemble: ensemble.id_column.read(0, 2),
    "blocks of ids": lambda ensemble: next(iter(ensemble.id_column.blocks(7))),
    "categories": lambda ensemble: ensemble.categories,
    "pandas": lambda ensemble: ensemble.to_pandas(),
    "objects": lambda ensemble: ensemble[:3],
    "select": lambda ensemble: ensemble.select(["p1"]),
    "load": lambda ensemble: ensemble.load(),
    "verify": lambda ensemble: ensemble.verify(),
    "fit": lambda ensemble: ConsensusTree(3, random_state=0).fit(ensemble),
    "pickle": lambda ensemble: pickle.loads(pickle.dumps(ensemble)),
}


@pytest.mark.parametrize("suffix", ["zarr", "parquet"])
@pytest.mark.parametrize("change", [replace, replace_by_fewer, append, append_partitions, remove])
def test_ensemble__that_has_changed_is_refused_by_every_reader(suffix, change, tmp_path):
    path = tmp_path / f"e.{suffix}"
    ensemble = an_ensemble(1).save(path, chunk_rows=128)
    ids = ensemble.id_column
    change(path)
    readers = {**READERS_OF_ENSEMBLES, "held ids": lambda _: ids.hold()}
    if change is remove:
        assert_refused({"pickle": readers.pop("pickle")}, ensemble, "does not exist")
    assert_refused(readers, ensemble)


@pytest.mark.parametrize("suffix", ["zarr", "parquet"])
def test_ensemble__that_has_changed_takes_nothing_until_it_is_opened_again(suffix, tmp_path):
    path = tmp_path / f"e.{suffix}"
    opened = an_ensemble(1).save(path, chunk_rows=128), Ensemble.open(path, "a"), Ensemble.open(path, "a")
    opened[1].append_objects(a_table(1, 50, first=N_OBJECTS))
    with pytest.raises(StoreError, match=CHANGED):
        opened[2].append_objects(a_table(1, 50, first=N_OBJECTS + 50))
    opened[1].append_objects(a_table(1, 50, first=N_OBJECTS + 50))
    assert opened[1].ids.tolist() == Ensemble.open(path).ids.tolist() == an_ensemble(1, 500).ids.tolist()


READERS_OF_CONSENSUSES = {
    "labels": lambda consensus: consensus.labels,
    "memberships": lambda consensus: consensus.memberships,
    "some labels": lambda consensus: consensus.read_labels(0, 3),
    "lazy memberships": lambda consensus: np.asarray(consensus.dask_memberships()),
    "sizes": lambda consensus: consensus.cluster_sizes(),
    "ids": lambda consensus: consensus.ids,
    "trust": lambda consensus: consensus.trust,
    "confidence": lambda consensus: consensus.trust_rows.confidence[:3],
    "tree": lambda consensus: consensus.tree,
    "placing": lambda consensus: consensus.read_placing(),
    "arrow": lambda consensus: consensus.to_arrow(),
    "pandas": lambda consensus: consensus.to_pandas(memberships=True),
    "report": Report,
    "verify": lambda consensus: consensus.verify(),
    "pickle": lambda consensus: pickle.loads(pickle.dumps(consensus)),
}

READERS_OF_MODELS = {
    "labels": lambda model: model.labels_,
    "memberships": lambda model: np.asarray(model.memberships_),
    "trust": lambda model: model.trust_,
    "pandas": lambda model: model.to_pandas(),
    "report": Report,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
}


@pytest.mark.parametrize("n_objects", [N_OBJECTS, 300])
def test_consensus__that_was_replaced_is_refused_by_every_reader(n_objects, tmp_path):
    path = tmp_path / "c.zarr"
    model = ConsensusTree("auto", random_state=0).fit(an_ensemble(1), out=path)
    consensus, memberships = Consensus.open(path), model.memberships_
    before = pickle.dumps([model, consensus, memberships])
    again = ConsensusTree("auto", random_state=0).fit(an_ensemble(2, n_objects), out=path, overwrite=True)
    assert_refused(READERS_OF_CONSENSUSES, consensus)
    assert_refused(READERS_OF_MODELS, model)
    assert_refused({"early memberships": np.asarray}, memberships)
    assert_refused({"early pickle": pickle.loads}, before)
    assert_refused({"export": lambda opened: opened.export(tmp_path / "c.csv")}, consensus)
    assert not (tmp_path / "c.csv").exists()
    np.testing.assert_array_equal(again.labels_, Consensus.open(path).labels)
    assert model.predict(an_ensemble(1)).shape == (N_OBJECTS,)  # by what the model holds


def test_export__of_a_consensus_that_is_replaced_meanwhile_leaves_no_file(tmp_path):
    path, pair = tmp_path / "c.zarr", [an_ensemble(1), an_ensemble(2)]
    for ensemble in pair:
        ensemble.save(tmp_path / "e.zarr", chunk_rows=100, overwrite=True)
        how = {"out": path, "overwrite": path.exists()}
        model = ConsensusTree(3, random_state=0).fit(tmp_path / "e.zarr", **how)
        if ensemble is pair[0]:
            consensus, early = Consensus.open(path), model.to_pandas()
            shutil.copytree(path, tmp_path / "kept.zarr")
    shutil.rmtree(path)
    shutil.copytree(tmp_path / "kept.zarr", path)  # the store that was opened, restored
    pd.testing.assert_frame_equal(consensus.to_pandas(), early)
    blocks = consensus.blocks

    def replacing():
        for block in blocks():
            if block.index == 2:
                ConsensusTree(3, random_state=0).fit(tmp_path / "e.zarr", out=path, overwrite=True)
            yield block

    consensus.blocks = replacing
    with pytest.raises(StoreError, match=CHANGED):
        consensus.export(tmp_path / "c.parquet")
    assert not (tmp_path / "c.parquet").exists()


READERS_OF_PAIRS = {
    "read": lambda pairs: pairs.read(0, 5),
    "degrees": lambda pairs: pairs.degrees(0, 5),
    "indices": lambda pairs: pairs.indices,
    "edges": lambda pairs: pairs.edges(),
    "verify": lambda pairs: pairs.verify(),
    "fit": lambda pairs: PCC(3, pairs=pairs, random_state=0).fit(an_ensemble(1)),
    "pickle": lambda pairs: pickle.loads(pickle.dumps(pairs)),
}


@pytest.mark.parametrize("are_held", [False, True])
def test_pairs__that_were_sampled_anew_are_refused_by_every_reader(are_held, tmp_path):
    first, second = (coassociation.sample(an_ensemble(1), n_pairs=900, random_state=seed) for seed in (0, 1))
    pairs = first.save(tmp_path / "p.zarr")
    if are_held:
        _ = [getattr(pairs, name) for name in ("indptr", "indices", "n_agree", "n_seen")]
    second.save(tmp_path / "p.zarr", overwrite=True)
    readers = READERS_OF_PAIRS
    if are_held:
        readers = {name: readers[name] for name in ("verify", "pickle")}
    assert_refused(readers, pairs)
    if are_held:
        np.testing.assert_array_equal(pairs.read(0, N_OBJECTS).indices, first.indices)
    assert PairTable.open(tmp_path / "p.zarr").digest() == second.digest()


@pytest.mark.parametrize("suffix", ["zarr", "parquet"])
def test_store__that_was_copied_or_written_anew_is_the_same(suffix, tmp_path):
    path = tmp_path / f"e.{suffix}"
    ensemble = an_ensemble(1).save(path, chunk_rows=128)
    kept = pickle.dumps(ensemble)
    an_ensemble(1).save(path, chunk_rows=128, overwrite=True)
    np.testing.assert_array_equal(ensemble.read(0, N_OBJECTS), an_ensemble(1).read(0, N_OBJECTS))
    path.rename(tmp_path / "other")
    shutil.copytree(tmp_path / "other", path)
    for entry in path.rglob("*"):
        os.utime(entry)
    for opened in (ensemble, pickle.loads(kept)):
        assert opened.ids.tolist() == an_ensemble(1).ids.tolist()
        assert opened.categories[0].tolist() == an_ensemble(1).categories[0].tolist()
        assert opened.verify()["ok"]


def test_store__in_a_bucket_that_has_changed_is_refused_by_every_reader():
    with s3_server() as bucket:
        ensemble = an_ensemble(1).save(f"{bucket}/e.zarr", chunk_rows=128)
        append(f"{bucket}/e.zarr")
        assert_refused(READERS_OF_ENSEMBLES, ensemble)
        how = {"out": f"{bucket}/c.zarr", "random_state": 0}
        model = ConsensusTree(3, **how).fit(an_ensemble(1))
        consensus, few = Consensus.open(how["out"]), ("labels", "memberships", "trust", "pandas", "pickle")
        for seed in (1, 2):  # the same once more has another folder
            ConsensusTree(3, **how).fit(an_ensemble(seed), overwrite=True)
            assert_refused({name: READERS_OF_CONSENSUSES[name] for name in few}, consensus)
            assert_refused({name: READERS_OF_MODELS[name] for name in few}, model)


@pytest.mark.slow
def test_workers__refuse_a_store_that_has_changed_since_it_was_opened(tmp_path):
    ensemble = an_ensemble(1).save(tmp_path / "e.zarr", chunk_rows=128)
    with local_client() as client:
        model = ConsensusTree(3, random_state=0, client=client)
        labels = model.fit(ensemble).labels_.copy()
        replace(tmp_path / "e.zarr")
        with pytest.raises(StoreError, match=CHANGED):
            model.fit(ensemble)
        assert model.fit(tmp_path / "e.zarr").labels_.tolist() != labels.tolist()
