"""Names of rows: as R, pandas and AnnData keep them, and joins by them."""

import sys

import dask.dataframe
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
import scipy.sparse

import bigcons as bc
from bigcons import Ensemble
from bigcons.errors import (
    InvalidIdsError,
    MissingDependencyError,
    SuspiciousLabelsWarning,
    UnknownColumnError,
)
from bigcons.io.features import open_features
from bigcons.store.ensemble import import_labels
from tests.support.refusals import refused
from tests.support.stores import values_of

NAMED = pd.DataFrame({"u": [0, 1, 1], "v": [0, 0, 1]}, index=list("pqr"))
ROWS = NAMED.to_numpy().tolist()


def in_r(frame, path):
    """Write a table as write.csv of R does: all text in quotes, the names of rows first, under no name."""
    lines = [",".join(f'"{name}"' for name in ["", *frame.columns])]
    lines += [
        f'"{name}",{",".join(map(str, row))}' for name, row in zip(frame.index, frame.to_numpy(), strict=True)
    ]
    path.write_text("\n".join(lines) + "\n")


WRITERS = {
    "r.csv": in_r,
    "x.csv": lambda frame, path: frame.to_csv(path),
    "x.tsv.gz": lambda frame, path: frame.to_csv(path, sep="\t"),
    "x.parquet": lambda frame, path: frame.to_parquet(path),
    "named.parquet": lambda frame, path: frame.rename_axis("cell").to_parquet(path),
    "dask": lambda frame, path: dask.dataframe.from_pandas(frame, npartitions=2).to_parquet(path),
}


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", WRITERS)
def test_names_of_rows_in_files_are_the_ids(name, tmp_path):
    path = tmp_path / name
    WRITERS[name](NAMED, path)
    own = "cell" if name == "named.parquet" else "index"
    for id in (None, "index", own):
        for ensemble in (
            Ensemble.from_labels(path, id=id),
            import_labels(path, tmp_path / "e", id=id, overwrite=True),
        ):
            assert (ensemble.names, ensemble.id_name, ensemble.ids.tolist()) == (["u", "v"], own, list("pqr"))
            assert values_of(ensemble) == ROWS
    assert Ensemble.from_labels(path, columns="v").ids.tolist() == list("pqr")
    assert Ensemble.from_labels(path, drop="index").ids is None
    assert open_features(path).names == ["u", "v"]
    assert open_features(path).ids.hold().values.to_pylist() == list("pqr")
    model = bc.METHODS["ipvc"](2, random_state=0).fit(path, out=tmp_path / "c")
    assert bc.Consensus.open(tmp_path / "c").to_pandas().index.tolist() == list("pqr")
    assert model.predict(path).tolist() == model.labels_.tolist()
    model.predict(path, out=tmp_path / "placed")
    assert bc.Consensus.open(tmp_path / "placed").ids.tolist() == list("pqr")


def test_ids_among_partitions_are_refused_or_told():
    frame = pd.DataFrame({"cell": [f"AAC{i}" for i in range(240)], "a": np.arange(240) % 3})
    with refused("text in 'cell' beside columns of numbers; pass id='cell'"):
        Ensemble.from_labels(frame)
    with pytest.warns(SuspiciousLabelsWarning, match="every object has a different label in 'cell'"):
        Ensemble.from_labels(frame.assign(cell=np.arange(240) * 7))


def test_names_of_rows_give_way_to_other_ids(tmp_path):
    NAMED.assign(who=["a", "b", "c"]).to_parquet(tmp_path / "x.parquet")
    NAMED.assign(who=["a", "b", "c"]).to_csv(tmp_path / "x.csv")
    for path in (tmp_path / "x.parquet", tmp_path / "x.csv"):
        ensemble = Ensemble.from_labels(path, id="who")
        assert (ensemble.names, ensemble.ids.tolist()) == (["u", "v"], ["a", "b", "c"])
    assert Ensemble.from_labels(tmp_path / "x.csv", id="index", drop="who").ids.tolist() == list("pqr")
    assert Ensemble.from_labels(tmp_path / "x.csv", columns=[0, 1]).names == ["u", "v"]  # of its columns


NO_IDS = {
    "text that repeats": pd.Index(["a", "b", "a"]),
    "named": pd.Index(["a", "b", "a"], name="cell"),
    "numbers that repeat": pd.Index([7, 3, 7]),
    "missing": pd.Index(["a", "b", None]),
    "dates": pd.date_range("2026-01-01", periods=3),
    "periods": pd.period_range("2026-01", periods=3),
    "fractions": pd.Index([0.5, 1.5, 2.5]),
    "mixed": pd.Index([1, "b", 2]),
    "categories of dates": pd.CategoricalIndex(pd.date_range("2026-01-01", periods=3)),
}


@pytest.mark.parametrize("kind", NO_IDS)
def test_an_index_that_cannot_be_ids_is_refused_with_what_to_do_but_where_objects_are_placed(kind, tmp_path):
    frame = NAMED.set_axis(NO_IDS[kind])
    for read in (Ensemble.from_labels, open_features, bc.METHODS["best"](2).fit):
        with refused(r"df\.reset_index\(drop=True\) or drop='index'", InvalidIdsError):
            read(frame)
    assert Ensemble.from_labels(frame, drop="index").ids is None
    assert Ensemble.from_labels(frame.reset_index(drop=True)).ids is None
    assert Ensemble.from_labels(frame.assign(who=[3, 1, 2]), id="who").ids.tolist() == [3, 1, 2]
    model = bc.METHODS["ipvc"](2, random_state=0).fit(NAMED)
    assert model.predict(frame).tolist() == model.predict(ROWS).tolist()
    assert model.score(frame) == model.score(ROWS)
    with refused("reset_index", InvalidIdsError):
        model.predict(frame, out=tmp_path / "c")


ORDER = np.random.default_rng(0).permutation(60)
IDS = {
    "text": pd.Index([f"c{i}" for i in ORDER]),
    "string of Arrow": pd.Index([f"c{i}" for i in ORDER], dtype="string[pyarrow]"),
    "permuted": pd.Index(ORDER),
    "named": pd.Index(ORDER * 7, name="cell"),
    "nullable": pd.Index(ORDER, dtype="Int64"),
    "small": pd.Index(ORDER.astype(np.int8)),
    "large": pd.Index(ORDER.astype(np.uint64) + np.uint64(1 << 63)),
    "negative": pd.Index(ORDER - 100),
    "categories": pd.CategoricalIndex([f"c{i}" for i in ORDER]),
}
DEFAULT = {
    "default": pd.RangeIndex(60),
    "named": pd.RangeIndex(60, name="row"),
    "numbers": pd.Index(np.arange(60)),
    "floats": pd.Index(np.arange(60.0)),
    "objects": pd.Index(list(range(60)), dtype=object),
}
TRUTH = np.arange(60) % 3


@pytest.mark.parametrize("kind", IDS)
def test_an_index_of_a_data_frame_is_the_ids(kind, tmp_path):
    index = IDS[kind]
    frame = pd.DataFrame({f"p{u}": TRUTH for u in range(3)}, index)
    truth = pd.Series(TRUTH, index).sample(frac=1, random_state=0)
    frame.to_parquet(tmp_path / "x.parquet")
    model = bc.METHODS["best"](3).fit(frame, out=tmp_path / "c")
    found = {
        "model": model.to_pandas(),
        "store": bc.Consensus.open(tmp_path / "c").to_pandas(),
        "ensemble": Ensemble.from_labels(frame).to_pandas(),
        "runs": Ensemble.from_runs([frame.p0, frame.p1]).to_pandas(),
        "views": bc.generate.kmeans(frame * 10.0, n_partitions=2, n_clusters=3).to_pandas(),
    }
    found["file"] = Ensemble.from_labels(tmp_path / "x.parquet").to_pandas()
    found["arrow"] = Ensemble.from_labels(pa.Table.from_pandas(frame)).to_pandas()
    for table in found.values():
        assert table.index.equals(pd.Index(index.tolist()))
        assert table.index.name == index.name
        assert pd.api.types.is_integer_dtype(table.index) == isinstance(index[0], (int, np.integer))
    joined = pd.DataFrame({"truth": truth, "label": found["model"]["label"]})
    assert bc.metrics.adjusted_rand(joined.truth, joined.label) == 1


def test_the_rest_of_a_data_frame_is_appended():
    frame = pd.DataFrame({"u": TRUTH, "v": TRUTH})
    ensemble = Ensemble.from_labels(frame[:40])
    ensemble.append_objects(frame[40:50]).append_objects(frame[50:].reset_index(drop=True))
    assert (ensemble.ids, values_of(ensemble)) == (None, frame.to_numpy().tolist())
    for rest in (frame[20:30], frame[::-1], frame.set_axis(IDS["text"])):
        with refused(r"leave out the id of the new ones", InvalidIdsError):
            ensemble.append_objects(rest)
    named = Ensemble.from_labels(frame[20:40])
    named.append_objects(frame[50:])
    assert named.ids.tolist() == [*range(20, 40), *range(50, 60)]


def test_append_partitions__refuses_the_numbers_of_rows_in_another_order():
    frame = pd.DataFrame({"u": TRUTH, "v": TRUTH}, ORDER)
    new = pd.DataFrame({"w": TRUTH}, ORDER).sort_index()
    joined = Ensemble.from_labels(frame).append_partitions(new[:19:-1])
    expected = [int(new.w[i]) if i > 19 else None for i in ORDER.tolist()]
    assert [row[2] for row in values_of(joined)] == expected
    with refused("in another order"):
        Ensemble.from_labels(frame).append_partitions(new)
    with refused("in another order"):
        Ensemble.from_labels(frame.to_numpy()).append_partitions(frame[["u"]])
    for rows in (new.to_numpy(), new.set_axis(range(5, 65)).reset_index(drop=True).to_numpy()):
        assert Ensemble.from_labels(frame).append_partitions(rows).n_partitions == 3


def test_an_index_of_levels_is_no_partition(tmp_path):
    NAMED.assign(a=[0, 0, 1]).set_index("a", append=True).to_parquet(tmp_path / "x.parquet")
    with refused("has an index of 2 levels"):
        Ensemble.from_labels(tmp_path / "x.parquet")
    with refused("has 2 levels"):
        Ensemble.from_labels(NAMED.set_index("u", append=True), id="index")


@pytest.mark.parametrize("source", ["pandas", "parquet", "csv"])
def test_columns__may_be_patterns(source, tmp_path):
    frame = pd.DataFrame({"leiden_1": [0, 1], "n_genes": [100, 200], "leiden_2": [1, 1], "leiden": [0, 0]})
    frame.to_parquet(tmp_path / "x.parquet")
    frame.to_csv(tmp_path / "x.csv", index=False)
    x = frame if source == "pandas" else tmp_path / f"x.{source}"
    assert Ensemble.from_labels(x, columns="leiden*").names == ["leiden_1", "leiden_2", "leiden"]
    assert Ensemble.from_labels(x, columns=["leiden_?", "n_genes"]).names == [
        "leiden_1",
        "leiden_2",
        "n_genes",
    ]
    assert Ensemble.from_labels(x, drop="leiden_*").names == ["n_genes", "leiden"]
    with refused(r"no column of .* matches 'louvain\*'; choose one of", UnknownColumnError):
        Ensemble.from_labels(x, columns="louvain*")
    with refused(r"Did you mean leiden_., or leiden_\* for all that", UnknownColumnError):
        Ensemble.from_labels(x, columns="leiden_")
    assert Ensemble.from_labels(frame.rename(columns={"leiden": "a*"}), columns="a*").names == ["a*"]


# AnnData


class AnnData:
    """What bigcons uses of an AnnData."""

    def __init__(self, obs, X=None):
        self.obs, self.X = obs, X


AnnData.__module__ = "anndata._core.anndata"

OBS = pd.DataFrame(
    {
        "leiden_0.5": pd.Categorical(["0", "1", "1"]),
        "leiden_1": pd.Categorical(["0", None, "2"]),
        "n_genes": np.array([812, 4798, 13], np.int32),
        "total_counts": [1.5, 2.0, 8.0],
    },
    index=["AAAC-1", "AAAG-1", "AACC-1"],
)


def test_names_of_observations_are_the_ids_of_an_anndata():
    ensemble = Ensemble.from_labels(AnnData(OBS), columns="leiden*")
    assert ensemble.names == ["leiden_0.5", "leiden_1"]
    assert ensemble.ids.tolist() == OBS.index.tolist()
    assert values_of(ensemble) == [["0", "0"], ["1", None], ["1", "2"]]
    assert Ensemble.from_labels(AnnData(OBS), columns="leiden*", drop="index").ids is None
    repeated = AnnData(OBS.set_axis(["x", "x", "y"]))
    with refused("index 'x' is in rows 0 and 1", InvalidIdsError):
        Ensemble.from_labels(repeated, columns="leiden*")
    features = open_features(AnnData(OBS, np.eye(3)))
    assert features.ids.hold().values.to_pylist() == OBS.index.tolist()


def test_partitions_of_an_anndata_are_named():
    for drop in (None, ["n_genes", "total_counts"]):
        with refused(r"may have measurements, too; pass columns='leiden\*'"):
            Ensemble.from_labels(AnnData(OBS), drop=drop)
    with refused(r"^no column of obs matches 'louvain\*'; choose one of", UnknownColumnError):
        Ensemble.from_labels(AnnData(OBS), columns="louvain*")
    assert Ensemble.from_labels(AnnData(OBS), columns=["n_genes"]).n_partitions == 1


def test_h5ad__without_anndata_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "anndata", None)
    with refused("pip install anndata", MissingDependencyError):
        Ensemble.from_labels(tmp_path / "x.h5ad")


def test_h5ad__is_read_by_anndata(tmp_path):
    anndata = pytest.importorskip("anndata")
    with anndata.settings.override(allow_write_nullable_strings=True):
        anndata.AnnData(np.eye(3, dtype=np.float32), OBS).write_h5ad(tmp_path / "x.h5ad")
    ensemble = import_labels(tmp_path / "x.h5ad", tmp_path / "e.zarr", columns="leiden*")
    assert ensemble.ids.tolist() == OBS.index.tolist()
    assert values_of(ensemble) == [["0", "0"], ["1", None], ["1", "2"]]
    assert import_labels(tmp_path / "x.h5ad", tmp_path / "e.zarr", columns="leiden*").n_objects == 3
    features = open_features(tmp_path / "x.h5ad")
    np.testing.assert_array_equal(features.read(0, 3), np.eye(3))
    adata = anndata.AnnData(scipy.sparse.eye_array(3, format="csr"), pd.DataFrame(index=list("pqr")))
    adata.write_h5ad(tmp_path / "sparse.h5ad", compression="gzip")
    features = open_features(tmp_path / "sparse.h5ad")
    assert features.is_sparse
    np.testing.assert_array_equal(features.read(0, 3), np.eye(3))
    (tmp_path / "other.h5ad").write_bytes(b"none")
    with refused("cannot be read as AnnData"):
        Ensemble.from_labels(tmp_path / "other.h5ad")


# Joins by ids


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("route", ["pandas", "polars", "csv", "stream"])
@pytest.mark.parametrize("id", ["id", None])
def test_append_partitions__joins_by_id(is_stored, route, id, tmp_path):
    ensemble = Ensemble.from_labels(pd.DataFrame({"id": list("abc"), "r0": [0, 0, 1]}), id="id")
    if is_stored:
        ensemble = Ensemble.open(ensemble.save(tmp_path / "e.zarr").path, "a")
    frame = pd.DataFrame({"id": ["b", "a"], "r1": [0, 1], "r2": ["x", "y"]})
    frame.to_csv(tmp_path / "x.csv", index=False)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    source = {
        "pandas": frame,
        "polars": pl.from_pandas(frame),
        "stream": pa.RecordBatchReader.from_batches(table.schema, table.to_batches()),
    }.get(route, tmp_path / f"x.{route}")
    ensemble.append_partitions(source, id=id)
    assert ensemble.names == ["r0", "r1", "r2"]
    assert values_of(ensemble) == [[0, 1, "y"], [0, 0, "x"], [1, None, None]]
    assert ensemble.n_labeled.tolist() == [3, 2, 2]
    assert ensemble.verify()["ok"]


def test_append_partitions__joins_an_index_of_the_same_name():
    ensemble = Ensemble.from_labels(NAMED, id="index")
    ensemble.append_partitions(pd.DataFrame({"w": [5, 6]}, index=["r", "p"]))
    assert values_of(ensemble) == [[0, 0, 6], [1, 0, None], [1, 1, 5]]
    ensemble.append_partitions(pd.DataFrame({"x": [0, 1, 2]}))  # without names: in order
    ensemble.append_partitions(pd.Series([7, 8], index=["q", "r"], name="one"))
    assert [row[3:] for row in values_of(ensemble)] == [[0, None], [1, 7], [2, 8]]
    with refused(r"row 1 .* has index 'z', which no object has", InvalidIdsError):
        ensemble.append_partitions(pd.DataFrame({"y": [5, 6]}, index=["r", "z"]))
    with refused(r"2 objects but the ensemble has 3; .*or id="):
        ensemble.append_partitions(pd.DataFrame({"y": [5, 6]}))
    assert ensemble.names == ["u", "v", "w", "x", "one"]


# Labels beside an ensemble, a consensus, features or other labels

FRAME = pd.DataFrame({f"p{u}": TRUTH for u in range(3)})
KINDS = {**IDS, "dates": pd.date_range("2026-01-01", periods=60), "fractions": pd.Index(ORDER + 0.5)}
KINDS["levels"] = pd.MultiIndex.from_arrays([ORDER // 10, ORDER])
BESIDE = {
    "adjusted_rand": lambda _, model, t: bc.metrics.adjusted_rand(t, model),
    "nmi": lambda _, model, t: bc.metrics.nmi(model, t),
    "purity": lambda _, model, t: bc.metrics.purity(t, model),
    "reliability": lambda _, model, t: bc.metrics.reliability(t, model, model.trust_),
    "confidence": lambda _, model, t: bc.metrics.reliability(TRUTH, model, t / 3.0),
    "of a truth": lambda _, model, t: bc.metrics.reliability(model, TRUTH, t / 3.0),
    "trust": lambda ensemble, _, t: bc.metrics.trust(ensemble, t),
    "expected_loss": lambda ensemble, _, t: bc.metrics.expected_loss(ensemble, t),
    "mask": lambda ensemble, _, t: ensemble[t == 0],
    "anmi": lambda ensemble, _, t: bc.metrics.anmi(ensemble, t),
    "average_criterion": lambda ensemble, _, t: bc.metrics.average_criterion("nmi", ensemble, t),
    "cluster_profiles": lambda ensemble, _, t: bc.metrics.cluster_profiles(ensemble.to_pandas(), t),
    "compactness": lambda ensemble, _, t: bc.metrics.compactness(ensemble.to_pandas(), t),
    "plots.reliability": lambda _, model, t: bc.plots.reliability(model, t),
    "plots.coassociation": lambda ensemble, _, t: bc.plots.coassociation(ensemble, labels=t),
    "plots.scatter": lambda _, model, t: bc.plots.scatter(pd.DataFrame({"x": t, "y": t}), model),
}


@pytest.fixture(scope="module", params=["text", "numbers"])
def solved(request):
    """An ensemble of these ids, and its consensus."""
    ensemble = Ensemble.from_labels(FRAME.set_axis({**IDS, **DEFAULT}[request.param]))
    return ensemble, bc.consensus(ensemble, 3, random_state=0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BESIDE)
def test_labels_of_rows_in_another_order_are_refused_beside(name, solved):
    index = solved[0].to_pandas().index
    truth = pd.Series(TRUTH, index)
    for given in (truth, TRUTH, truth.sample(frac=1, random_state=0).loc[index]):
        BESIDE[name](*solved, given)
    with refused(r"have rows of different names, or in another order; ") as caught:
        BESIDE[name](*solved, truth.sample(frac=1, random_state=0))
    assert ".to_numpy() if they are" in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_series_in_another_order_are_refused_whatever_their_index(kind):
    truth = pd.Series(TRUTH, KINDS[kind])
    others = truth.sample(frac=1, random_state=0)
    with refused(r"such as truth\.loc\[labels\.index\], or truth\.to_numpy\(\)"):
        bc.metrics.adjusted_rand(truth, others)
    assert bc.metrics.adjusted_rand(others.copy(), others.set_axis(others.index.copy())) == 1
    assert bc.metrics.adjusted_rand(truth, TRUTH) == bc.metrics.adjusted_rand(TRUTH, truth) == 1
    is_shuffled = sorted(truth.index.tolist(), key=str) == sorted(range(60), key=str)
    if not is_shuffled:  # as a split leaves it beside predicted labels
        assert bc.metrics.adjusted_rand(truth, pd.Series(TRUTH)) == 1
    else:
        with refused("in another order"):
            bc.metrics.adjusted_rand(truth, pd.Series(TRUTH))


def test_metrics_take_a_consensus_in_place_of_its_labels(tmp_path):
    model = bc.consensus(FRAME, 3, random_state=0, out=tmp_path / "c")
    found = bc.Consensus.open(tmp_path / "c")
    for metric in (bc.metrics.adjusted_rand, bc.metrics.nmi, bc.metrics.contingency, bc.metrics.van_dongen):
        assert np.array_equal(metric(found, TRUTH), metric(model.labels_, TRUTH))
        assert np.array_equal(metric(TRUTH, found), metric(TRUTH, model.labels_))
    ensemble = Ensemble.from_labels(FRAME)
    for metric in (bc.metrics.expected_loss, bc.metrics.anmi):
        assert np.array_equal(metric(ensemble, found), metric(ensemble, model.labels_))
    for x in (bc.PCC(3), ensemble):
        with refused(r"call fit first|pass one that was made of it"):
            bc.metrics.adjusted_rand(TRUTH, x)


ODD = [b"", b"[]", b"3", b"null", b"\xff", b"[" * 100_000, b"{}"]
ODD += [b'{"columns": %s}' % value for value in (b"3", b"[3]", b'[{"pandas_type": "categorical"}]')]
ODD += [b'{"index_columns": %s}' % value for value in (b"null", b"3", b'"u"', b'{"u": 0}', b'[["u"]]', b"[]")]


@pytest.mark.parametrize("stated", ODD, ids=lambda stated: repr(stated[:30]))
def test_metadata_that_only_have_the_name_of_those_of_pandas_name_no_rows(stated, tmp_path):
    table = pa.table({"u": [0, 1, 1], "v": [0, 0, 1]}).replace_schema_metadata({b"pandas": stated})
    pa.parquet.write_table(table, tmp_path / "x.parquet")
    for source in (table, tmp_path / "x.parquet"):
        ensemble = Ensemble.from_labels(source)
        assert (ensemble.names, ensemble.id_column) == (["u", "v"], None)
