"""``bigcons place``: from a CSV file as people have it to new rows in clusters, nothing cleaned by hand."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import bigcons as bc
from bigcons.cli import main
from bigcons.methods import METHODS

N = 600


def customers(n, seed, first=0):
    """Return customers with an id, text, dates, booleans and gaps, and their three groups."""
    rng = np.random.default_rng(seed)
    group = rng.integers(3, size=n)
    city = np.array(["Bern", "Oslo", "Rome"])[group].astype(object)
    city[rng.random(n) < 0.05] = None
    frame = pd.DataFrame(
        {
            "customer_id": np.arange(first, first + n),
            "city": city,
            "age": np.where(rng.random(n) < 0.1, np.nan, 20 + 20 * group + rng.normal(size=n)),
            "joined": pd.Timestamp("2020-01-01") + pd.to_timedelta(400 * group + rng.integers(0, 90, n), "D"),
            "active": np.where(rng.random(n) < 0.1, None, group == 1),
        }
    )
    return frame, group


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Customers, new ones and the output of `bigcons run`."""
    folder = tmp_path_factory.mktemp("place")
    frame, _ = customers(N, 0)
    frame.to_csv(folder / "customers.csv", index=False)
    customers(200, 1, 5000)[0].iloc[:, ::-1].to_csv(folder / "new.csv", index=False)
    result = bigcons(folder, "run customers.csv --id customer_id -k 3 -o out/ --memory 4GB")
    assert result.exit_code == 0, result.output
    return folder


def bigcons(folder, words):
    """Run a command whose paths are in a folder."""
    paths = [f"{folder}/{word}" if "." in word or word.endswith("/") else word for word in words.split()]
    return CliRunner().invoke(main, paths)


def test_generate__says_what_the_columns_are(made):
    frame = pd.read_csv(made / "customers.csv").assign(one=1, none=np.nan, flag="x")
    frame.to_csv(made / "wide.csv", index=False)
    result = bigcons(made, "generate wide.csv --id customer_id -o w.zarr --n-partitions 2")
    assert result.exit_code == 0, result.output
    assert (
        "wide.csv: 7 columns: number 'age', 'active', 'one', 'none'; date 'joined'; category "
        in result.stderr
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("append out/ensemble.zarr new.csv --objects", "place new features (bigcons place), or append"),
        ("solve out/ -k 3 -o other.zarr", "out/ensemble.zarr."),
    ],
)
def test_features_and_the_folder_of_a_run__are_refused_with_what_to_pass(made, line, words):
    result = bigcons(made, line)
    assert result.exit_code == 1
    assert words in result.stderr


def test_place__warns_of_rows_unlike_those_of_the_ensemble(made):
    frame = pd.read_csv(made / "new.csv")
    frame.assign(age=frame["age"] + 500, city=["Lima", *frame["city"][1:]]).to_csv(
        made / "far.csv", index=False
    )
    result = bigcons(made, "place far.csv --with out/ -o far_placed.csv --json")
    assert "did not occur where the ensemble was made: 'city' in 1 row; it counts as unlike" in result.stderr
    assert "of the rows are far from all centers: they are unlike the rows of the ensemble" in result.stderr
    assert json.loads(result.stdout)["n_unseen"] == {"city": 1}
    near = bigcons(made, "place new.csv --with out/ -o near_placed.csv")
    assert near.stderr == ""
    assert "n_unseen" not in near.stdout
    unknown = frame.where((frame.index > 1)[:, None] | (frame.columns == "customer_id"))
    unknown.to_csv(made / "unknown.csv", index=False)
    result = bigcons(made, "place unknown.csv --with out/ -o unknown_placed.csv")
    assert "unknown.csv has 2 rows without a known value in any feature, and so without" in result.stderr
    assert pd.read_csv(made / "unknown_placed.csv")["label"].eq(-1).sum() == 2


def test_place__new_customers_without_any_cleaning(made):
    result = bigcons(made, "place new.csv --with out/ -o placed.csv")
    assert result.exit_code == 0, result.output
    placed = pd.read_csv(made / "placed.csv")
    assert f"mean_confidence  {placed['confidence'].mean():g}" in result.stdout
    assert placed.columns.tolist() == ["customer_id", "label", "confidence", "is_far"]
    assert placed["customer_id"].tolist() == list(range(5000, 5200))
    assert bc.metrics.adjusted_rand(customers(200, 1)[1], placed["label"].to_numpy()) > 0.9
    ensemble = bc.Ensemble.open(made / "out" / "ensemble.zarr")
    model = bc.ConsensusTree(3, random_state=0).fit(ensemble)
    assert placed["label"].tolist() == model.predict_features(made / "new.csv").labels.tolist()


def test_place__writes_memberships_into_any_file_and_says_json(made):
    result = bigcons(made, "place new.csv --with out/ -o placed.parquet --memberships --json")
    said = json.loads(result.stdout)
    assert sum(said["sizes"]) == said["n_objects"] == 200
    placed = pd.read_parquet(made / "placed.parquet")
    shares = placed[["cluster_0", "cluster_1", "cluster_2"]].to_numpy()
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-6)
    model = bc.ConsensusTree(3, random_state=0).fit(bc.Ensemble.open(made / "out" / "ensemble.zarr"))
    expected = model.predict_features(made / "new.csv")
    np.testing.assert_array_equal(placed["confidence"], expected.confidence)
    np.testing.assert_array_equal(shares, expected.memberships)
    shutil.copytree(made / "out", made / "moved")
    (made / "out/ensemble.zarr").rename(made / "hidden.zarr")  # it lies beside the consensus
    assert bigcons(made, "place new.csv --with moved/ -o after.csv").exit_code == 0
    (made / "hidden.zarr").rename(made / "out/ensemble.zarr")
    assert pd.read_csv(made / "after.csv")["label"].tolist() == placed["label"].tolist()
    streamed = bigcons(made, "place new.csv --with out/consensus.zarr -o -")
    assert streamed.stdout.startswith("customer_id,label,confidence,is_far\n5000,")


@pytest.mark.parametrize(
    ("method", "options", "columns"),
    [
        ("pcc", {"weights": np.linspace(0.5, 1.5, 100)}, ["label", "confidence", "is_far"]),
        ("qmi", {}, ["label", "is_far"]),
    ],
)
def test_place__is_what_the_fitted_model_says(made, method, options, columns):
    ensemble = bc.Ensemble.open(made / "out" / "ensemble.zarr")
    model = METHODS[method](3, random_state=0, **options).fit(ensemble, out=made / f"{method}.zarr")
    result = bigcons(made, f"place new.csv --with {method}.zarr -o {method}.parquet")
    assert result.exit_code == 0, result.output
    assert ("mean_confidence  -" in result.stdout) == (method == "qmi")
    expected, placed = model.predict_features(made / "new.csv"), pd.read_parquet(made / f"{method}.parquet")
    assert placed.columns.tolist() == ["customer_id", *columns]
    for name in columns:
        np.testing.assert_array_equal(placed[name], expected.to_arrow()[name])


def test_place__refuses_what_it_cannot_do_in_one_line(made):
    (made / "short.csv").write_text("city,age\nBern,3\n")
    result = bigcons(made, "place short.csv --with out/ -o x.csv")
    assert "short.csv has no column 'joined', 'active', of which the" in result.output
    for method, words in (("best", "because BEST did not store it"), ("ivc", "memberships")):
        solved = bigcons(made, f"solve out/ensemble.zarr -m {method} -k 3 -o {method}.zarr")
        assert solved.exit_code == 0, solved.output
        result = bigcons(made, f"place new.csv --with {method}.zarr -o x.csv --memberships")
        assert result.exit_code == 1
        assert words in result.output
    assert not (made / "x.csv").exists()
    features = (made / "new.csv").read_bytes()
    result = bigcons(made, "place new.csv --with out/ -o new.csv --overwrite")
    assert "new.csv is the input " in result.output
    assert (made / "new.csv").read_bytes() == features
    result = bigcons(made, "run customers.csv -k 3 -o other/")
    assert "column 'customer_id'" in result.output
    assert "pass --id customer_id" in result.output
