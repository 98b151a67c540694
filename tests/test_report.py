"""The report: its numbers are those of the data, and its page stands by itself in a browser, wide or not."""

import html
import json
import re
import shutil
import subprocess

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet

from bigcons import MCLA, Ensemble, Report, generate, select
from bigcons.cli import main
from bigcons.datasets import planted_ensemble
from bigcons.errors import InvalidInputError, MemoryBudgetError, StoreExistsError, UnknownColumnError
from bigcons.metrics import cluster_profiles, partition_agreement, trust
from bigcons.report import cell
from tests.support.refusals import refused
from tests.support.stores import write_consensus

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """An ensemble, its classes with two left out, a store of them with trust and history, and features."""
    folder = tmp_path_factory.mktemp("report")
    ensemble, classes = planted_ensemble(300, 8, random_state=0)
    classes = classes.astype(np.int32)
    classes[:2] = -1
    rng = np.random.default_rng(0)
    memberships = np.full((300, classes.max() + 2), 0.01, np.float32)
    memberships[np.arange(300), classes] = 1
    memberships[:2] = 1
    memberships /= memberships.sum(axis=1, keepdims=True)
    store = write_consensus(
        folder / "c.zarr", classes, memberships, chunk_rows=64, trust=trust(ensemble, classes),
        history={"pass": [1, 2, 3, 4], "objective": [9.0, 5.0, 4.5, 4.0], "gap": [1.0, 0.1, 0.01, None],
                 "seconds": [0.5, 0.25, 0.25, 1.0], "memory": [10**9, 3 * 10**9, 2 * 10**9, 10**9]},
        parameters={"method": "PCC", "n_clusters": 7}, results={"converged": False, "objective": 4.0},
        provenance={"ensemble": "e.zarr", "run": {"labels": "<script>"}},
    )  # fmt: skip
    features = pa.table({
        "spend": np.where(rng.random(300) < 0.2, np.nan, rng.exponential(1 + np.maximum(classes, 0))),
        "region": rng.choice(["north", "south", None], 300),
        "<b>": rng.normal(size=300),
        "name": pa.array([f"n{i}" for i in range(300)]).dictionary_encode(),
        "day": pa.array(np.arange(300, dtype=np.int32), pa.date32()),
    })  # fmt: skip
    return ensemble, classes, store, features


def test_report__tells_clusters_by_falling_size_and_the_least_certain_objects(told):
    _, classes, store, _ = told
    report = Report(store, pictures=False)
    sizes, found = np.bincount(classes[classes >= 0]), store.trust
    assert report.clusters["size"].to_pylist() == sorted(sizes.tolist(), reverse=True)
    shown = report.clusters["cluster"].to_pylist()
    assert [sizes[k] for k in shown] == report.clusters["size"].to_pylist()
    np.testing.assert_allclose(report.clusters["share"], sizes[shown] / 298)
    order = np.lexsort((np.arange(300), np.where(classes >= 0, found.confidence, np.inf)))[:20]
    assert report.least_certain["object"].to_pylist() == order.tolist()
    for name, values in (("cluster", classes), ("second_labels", found.second_labels)):
        assert report.least_certain[name].to_pylist() == values[order].tolist()
    assert report.facts["mean confidence"] == pytest.approx(found.confidence[2:].mean(dtype=float))
    assert report.facts["seconds in passes"] == 2.0
    warned = " ".join(report.warnings)
    assert "max_iter" in warned
    assert "2 of 300 objects (0.7%) have no label in any partition." in warned


def test_report__notes_copies_of_partitions_and_warns_of_useless_ones(tmp_path):
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=300)
    labels = np.column_stack([truth, truth, rng.integers(3, size=300), (truth + 1) % 3])
    report = Report(MCLA(3, random_state=0).fit(labels), ensemble=labels)
    (note,) = report.notes
    assert note.startswith("3 of 4 partitions (75.0%) are near copies of another")
    assert not any("near copies" in warning for warning in report.warnings)
    assert any(warning.endswith("say almost nothing about the clusters: p2.") for warning in report.warnings)
    page = report.html()
    assert page.index("<h3>Warnings</h3>") < page.index("<h3>Notes</h3>") < page.index("near copies")


def test_report__weighs_labels_by_the_ensemble_where_the_store_has_no_trust(told, tmp_path):
    ensemble, classes, store, _ = told
    bare = write_consensus(tmp_path / "bare.zarr", classes, None)
    weighed, stored = Report(bare, ensemble=ensemble, pictures=False), Report(store, pictures=False)
    assert weighed.least_certain.equals(stored.least_certain)
    assert weighed.clusters.equals(stored.clusters)
    assert {"weight", "agreement", "coverage"} <= set(weighed.partitions.column_names)
    assert Report(bare).least_certain is None
    assert "confidence" not in Report(bare).clusters.column_names


def test_profiles__are_those_of_a_data_frame(told):
    pandas = pytest.importorskip("pandas")
    _, classes, store, features = told
    found = cluster_profiles(features, store)
    frame = features.to_pandas()[classes >= 0].assign(cluster=classes[classes >= 0])
    spend = found.numbers.to_pandas().query("feature == 'spend'").set_index("cluster")
    by_cluster = frame.groupby("cluster")["spend"]
    np.testing.assert_allclose(spend["mean"], by_cluster.mean())
    np.testing.assert_allclose(spend["std"], by_cluster.std(ddof=0))
    np.testing.assert_array_equal(spend["n"], by_cluster.count())
    np.testing.assert_allclose(
        spend["difference"], (by_cluster.mean() - frame["spend"].mean()) / frame["spend"].std(ddof=0)
    )
    shares = pandas.crosstab(frame["cluster"], frame["region"], normalize="index")
    for row in found.categories.to_pandas().query("feature == 'region'").itertuples():
        assert row.share == pytest.approx(shares.loc[row.cluster, row.category])
        assert row.lift == pytest.approx(
            row.share / frame["region"].value_counts(normalize=True)[row.category]
        )
    assert list(found.left_out) == ["name"]
    day = pandas.to_datetime(frame["day"])
    days = day.groupby(frame["cluster"])
    of_days = found.dates.to_pandas().set_index("cluster")
    np.testing.assert_array_equal(of_days["mean"], days.mean().dt.floor("s"))
    np.testing.assert_array_equal(of_days["n"], days.count())
    numbers = (day - pandas.Timestamp("2000-01-01")) / pandas.Timedelta(days=1)
    np.testing.assert_allclose(of_days["std"], numbers.groupby(frame["cluster"]).std(ddof=0))
    blocks = cluster_profiles(select(features, columns=["spend"]), store, memory="1.1MB").numbers
    np.testing.assert_allclose(blocks.to_pandas()["mean"], spend["mean"])


def test_report__notes_that_clusters_follow_a_column_and_leaves_out_the_convergence_of_one_pass(tmp_path):
    rng = np.random.default_rng(0)
    is_member = rng.random(300) < 0.5
    model = MCLA(2, random_state=0).fit(np.column_stack([is_member, is_member, is_member]))
    day = pa.array(np.full(300, 19_000, np.int32), pa.date32())
    income = np.where(model.labels_ == 0, 50_250.4, 50_249.6)
    features = drawn(rng.integers(3, size=300), member=is_member, income=income, day=day)
    report = Report(model, features=features, pictures=False)
    (note,) = report.notes
    assert note.startswith("The clusters follow 'member'")
    others = select(features, drop=["member", "income"])
    assert Report(model, features=others, pictures=False).notes == []
    shown = html.unescape(re.search(r'srcdoc="(.*?)"', report._repr_html_(), re.DOTALL)[1])
    assert "Convergence" not in shown
    assert {">50,250</td>", ">2022-01-08</td>"} <= set(re.findall(r">[^<>]*</td>", shown))


def test_profiles__count_numbers_that_are_named_as_categories_and_read_sparse_features():
    codes, labels = [7, 7, 8, -1, 8, 8], [0, 0, 0, 1, 1, 1]
    source = select(pa.table({"code": codes, "x": codes}), categorical="code", missing=[-1])
    found = cluster_profiles(source, labels)
    assert set(found.numbers["feature"].to_pylist()) == {"x"}
    assert found.categories["category"].to_pylist() == ["7", "8", "8"]
    values = np.where(np.arange(60)[:, None] % np.arange(2, 6) == 0, 2.0, 0.0)
    sparse = pytest.importorskip("scipy.sparse").csr_array(values)
    assert cluster_profiles(sparse, np.arange(60) % 2) == cluster_profiles(values, np.arange(60) % 2)
    made = generate.kmeans(source, n_partitions=3, n_clusters=2, sample=1.0, random_state=0)
    report = Report(MCLA(2, random_state=0).fit(made), ensemble=made, features=source.source, pictures=False)
    assert sum(report.profiles.numbers["n"].to_pylist()) == 10


def test_profiles__leave_out_text_that_names_objects_and_refuse_what_does_not_fit():
    labels = np.zeros(1500, int)
    of_few = {"note": [f"{i % 800}." for i in range(1500)], "city": [f"{i % 700}." for i in range(1500)]}
    names = pa.table({"id": [f"c{i}" for i in range(1500)], "x": np.arange(1500.0), **of_few})
    found = cluster_profiles(names, labels)
    assert list(found.left_out) == ["id", "note"]
    assert set(found.categories["feature"].to_pylist()) == {"city"}
    assert found.numbers["mean"].to_pylist() == [749.5]
    masked = cluster_profiles(np.ma.masked_greater([[1.0], [3.0], [9.0]], 5), ["u", "u", "v"]).numbers
    assert masked.select(["cluster", "n", "overall"]).to_pylist()[1] == {"cluster": "v", "n": 0, "overall": 2}
    with pytest.raises(InvalidInputError, match="1,500 rows"):
        cluster_profiles(names, labels[:9])
    with pytest.raises(MemoryBudgetError):
        cluster_profiles(names, labels, memory="5kB")


@pytest.mark.parametrize(("share", "is_drawn"), [(0.04, False), (0.3, True)])
def test_report__draws_the_graph_of_clusters_if_any_overlap(tmp_path, share, is_drawn):
    memberships = np.where(np.arange(60)[:, None] % 3 == np.arange(3), 1 - share, share / 2)
    labels = memberships.argmax(axis=1).astype(np.int32)
    store = write_consensus(tmp_path / "c.zarr", labels, memberships.astype(np.float32))
    assert ("Graph of the clusters" in Report(store).html()) == is_drawn


def drawn(truth, **columns):
    """Return a table of four columns of Gaussians around the classes, and of others."""
    rng = np.random.default_rng(0)
    centers = 6.0 * rng.normal(size=(truth.max() + 1, 4))
    points = centers[truth] + rng.normal(size=(truth.size, 4))
    return pa.table({f"x{c}": points[:, c] for c in range(4)} | columns)


def test_profiles__name_the_columns_of_few_values_that_clusters_follow():
    rng = np.random.default_rng(1)
    truth, is_member = rng.integers(5, size=1000), rng.random(1000) < 0.5
    both, one = 2 * truth + is_member, is_member.astype(int)
    few = rng.random(1000) < 0.02
    for labels in (both, one):
        for values in (
            is_member, one, one - 0.5, np.where(is_member, "yes", "no"), pa.array(is_member, mask=few),
            is_member ^ (rng.random(1000) < 0.01), pa.array(np.int32(one), pa.date32()),
        ):  # fmt: skip
            assert cluster_profiles(drawn(truth, member=values), labels).followed == ["member"]
        two = drawn(truth, member=is_member, code=np.array(["a", "b"])[one])
        assert cluster_profiles(two, labels).followed == ["member", "code"]
        for values in (is_member ^ (rng.random(1000) < 0.2), rng.random(1000) < 0.5, np.ones(1000), few):
            assert cluster_profiles(drawn(truth, other=values), labels).followed == []
    assert cluster_profiles(drawn(truth, member=pa.array(is_member, mask=is_member)), one).followed == []
    assert cluster_profiles(drawn(truth, member=is_member), np.zeros(1000, int)).followed == []
    assert cluster_profiles(drawn(truth, same=truth), truth).followed == ["same"]
    assert cluster_profiles(pa.table({"few": few}), few + 0).numbers["mean"].to_pylist() == [0.0, 1.0]
    words = {f"w{c}": np.roll(np.array(list("abcde")), c)[truth] for c in range(4)}
    assert cluster_profiles(drawn(truth, **words), truth).followed == list(words)
    assert cluster_profiles(drawn(truth, **words, w4=words["w0"]), truth).followed == []  # most have it


def test_report__refuses_in_one_line(told, tmp_path):
    _, _, store, features = told
    for asked, error in (
        ({"memory": "2kB"}, MemoryBudgetError),
        ({"features": select(features, drop=["spent"])}, UnknownColumnError),
        ({"ensemble": [[0], [1]]}, InvalidInputError),
        ({"features": features.slice(0, 9)}, InvalidInputError),
    ):
        with refused(kind=error):
            Report(store, pictures=False, **asked)
    (tmp_path / "r.html").write_text("mine")
    for name, error in (("r.html", StoreExistsError), ("r.pdf", InvalidInputError)):
        with pytest.raises(error):
            Report(store, pictures=False).save(tmp_path / name)
    assert (tmp_path / "r.html").read_text() == "mine"


def test_partition_agreement__is_that_of_every_two_partitions():
    from bigcons.metrics import adjusted_rand

    ensemble, _ = planted_ensemble(200, 5, random_state=1)
    labels = np.asarray(ensemble)
    index = np.array([[adjusted_rand(labels[:, u], labels[:, v]) for v in range(5)] for u in range(5)])
    np.fill_diagonal(index, np.nan)
    found = partition_agreement(ensemble).to_pydict()
    np.testing.assert_allclose(found["agreement"], np.nanmean(index, axis=1))
    np.testing.assert_allclose(found["redundancy"], np.nanmax(index, axis=1))
    assert found["most_alike"] == [ensemble.names[v] for v in np.nanargmax(index, axis=1)]
    np.testing.assert_allclose(found["coverage"], (labels >= 0).mean(axis=0))


@pytest.fixture(scope="module")
def page(told, tmp_path_factory):
    """The page that the command writes of all that there is."""
    ensemble, _, store, features = told
    folder = tmp_path_factory.mktemp("page")
    ensemble.save(folder / "e.zarr")
    parquet.write_table(features, folder / "f.parquet")
    words = f"report {store.path} -o {folder}/r.html --ensemble {folder}/e.zarr --features {folder}/f.parquet"
    result = CliRunner().invoke(main, words.split())
    assert result.exit_code == 0, result.output
    return (folder / "r.html").read_text(encoding="utf-8")


def test_page__needs_nothing_else_and_escapes_what_others_wrote(page):
    assert not re.search(r"https?://", re.sub(r"base64,[^\"]*", "", page))
    assert "&lt;script&gt;" in page
    assert "&lt;b&gt;" in page
    assert "<script" not in page
    assert page.count("<img") == 5  # without a graph, because no clusters overlap
    assert [page.count(f"<{tag}") for tag in ("table", "section")] == [
        page.count(f"</{tag}") for tag in ("table", "section")
    ]
    assert all(' alt="' in image for image in re.findall(r"<img[^>]*>", page))
    assert all(" scope=" in head for head in re.findall(r"<th[ >][^>]*>?", page))
    levels = [int(level) for level in re.findall(r"<h(\d)", page)]
    assert max(np.diff(levels)) == 1  # none is skipped


def test_ids__come_with_the_least_certain_objects_and_are_compared_with_the_features(tmp_path):
    ensemble, classes = planted_ensemble(40, 5, random_state=0)
    labels = np.asarray(ensemble)
    table = pa.table(
        {"who": [f"c{i}" for i in range(40)], **{n: labels[:, u] for u, n in enumerate("abcde")}}
    )
    known = Ensemble.from_labels(table, id="who")
    assert known.to_pandas().index.tolist() == table["who"].to_pylist()
    assert known.select(["b"]).ids.tolist() == known.save(tmp_path / "e.zarr").select(["b"]).ids.tolist()
    stored = write_consensus(tmp_path / "c.zarr", classes, np.eye(classes.max() + 1)[classes], ids=known)
    report = Report(stored, features=table, pictures=False)
    rows = report.least_certain["object"].to_pylist()
    assert report.least_certain["id"].to_pylist() == [f"c{row}" for row in rows]
    assert set(report.profiles.numbers["feature"].to_pylist()) == set("abcde")
    fewer = Report(stored, features=select(table, drop=["a"]), pictures=False)
    assert set(fewer.profiles.numbers["feature"].to_pylist()) == set("bcde")
    with pytest.raises(InvalidInputError, match="of different names, or in another order"):
        Report(stored, features=table.take(np.arange(40)[::-1]), pictures=False)


LOOK = """
<script>
addEventListener('load', () => {
  const found = [...document.querySelectorAll('iframe')].map(frame => {
    const d = frame.contentDocument, root = d.documentElement, all = q => [...d.querySelectorAll(q)];
    const heads = all('h1,h2,h3').map(h => +h.tagName[1]);
    return {
      broken: [...d.images].filter(i => !i.complete || !i.naturalWidth || !i.alt).length,
      overflow: root.scrollWidth - root.clientWidth,
      jumps: heads.filter((h, n) => n && h - heads[n - 1] > 1).length,
      unscoped: all('th:not([scope])').length,
      small: all('p,td,th,dd,li').filter(e => parseFloat(getComputedStyle(e).fontSize) < 12).length,
    };
  });
  const pre = document.createElement('pre');
  pre.id = 'found'; pre.textContent = JSON.stringify(found);
  document.body.replaceChildren(pre);
});
</script>
"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_page__stands_in_a_browser_wide_and_narrow(page, tmp_path):
    frames = "".join(
        f'<iframe width={w} height=900 srcdoc="{html.escape(page)}"></iframe>' for w in (1280, 400)
    )
    (tmp_path / "look.html").write_text(f"<!DOCTYPE html><body>{frames}{LOOK}", encoding="utf-8")
    seen = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--no-first-run", "--enable-logging=stderr",
         f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", (tmp_path / "look.html").as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "CONSOLE" not in seen.stderr
    found = json.loads(html.unescape(re.search(r'<pre id="found">(.*?)</pre>', seen.stdout)[1]))
    assert found == [{"broken": 0, "overflow": 0, "jumps": 0, "unscoped": 0, "small": 0}] * 2


@pytest.mark.parametrize(
    ("column", "value", "shown"),
    [
        *(("objective", -224382096228.0, "-224,382,096,228"), ("adjusted_rand", -0.00097, "-0.00097")),
        *(("false_join_rate", 0.0006712, "<0.001"), ("false_join_rate", 0.0, "0.000")),
        *(("share", 1e-5, "<0.1%"), ("share", 0.5, "50.0%"), ("share", 0.99999, ">99.9%")),
        *(("age", float("nan"), "\N{EN DASH}"), ("lift", 2.0, "2.000\N{MULTIPLICATION SIGN}")),
    ],
)
def test_page__keeps_numbers_short(column, value, shown):
    assert cell(column, value) == shown
