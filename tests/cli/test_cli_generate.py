"""``bigcons generate`` with every scheme, on small real files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import csv

from bigcons import Ensemble, generate
from bigcons.cli import main

N_OBJECTS = 400


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run `bigcons generate features.npy -o e.zarr` with further options."""
    monkeypatch.chdir(tmp_path)
    np.save("features.npy", np.random.default_rng(0).normal(size=(N_OBJECTS, 5)))

    def invoke(options=""):
        return CliRunner().invoke(main, f"generate features.npy -o e.zarr {options}".split())

    return invoke


@pytest.fixture
def made(run):
    """Run a command line that must succeed, and return its ensemble."""

    def invoke(options=""):
        result = run(f"{options} --json")
        assert result.exit_code == 0, result.output
        assert result.stderr == ""
        assert json.loads(result.stdout)["n_objects"] == N_OBJECTS
        return Ensemble.open("e.zarr")

    return invoke


def labels_of(ensemble):
    return ensemble.read(0, N_OBJECTS)


def test_generate__without_options_is_mixed(made):
    expected = generate.mixed("features.npy", n_partitions=100, random_state=0)
    np.testing.assert_array_equal(labels_of(made()), labels_of(expected))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            "--scheme kmeans --n-partitions 3 --n-clusters split --sample 1",
            lambda x: generate.kmeans(x, n_partitions=3, n_clusters="split", sample=1.0, random_state=0),
        ),
        (
            "--scheme kmeans --n-partitions 3",
            lambda x: generate.kmeans(x, n_partitions=3, random_state=0),
        ),
        (
            "--scheme landmarks --n-partitions 4",
            lambda x: generate.landmarks(x, n_partitions=4, n_clusters=(2, 20), random_state=0),
        ),
        (
            "--scheme landmarks --n-partitions 4 --n-clusters 3:5 --no-standardize",
            lambda x: generate.landmarks(
                x, n_partitions=4, n_clusters=(3, 5), random_state=0, standardize=False
            ),
        ),
        (
            "--scheme zipf --n-partitions 4 --n-clusters 3:4 --alpha-range 0.5:2 --largest-weight 9",
            lambda x: generate.weighted_kmeans(
                x, n_partitions=4, n_clusters=(3, 4), alpha_range=(0.5, 2), largest_weight=9, random_state=0
            ),
        ),
        (
            "--scheme feature-views --n-features 2 --n-clusters 3 --no-standardize",
            lambda x: generate.feature_views(
                x, n_features=2, n_clusters=3, random_state=0, standardize=False
            ),
        ),
        (
            "--scheme object-views --n-clusters 3 --n-partitions 6 --repetition 3",
            lambda x: generate.object_views(x, n_clusters=3, n_partitions=6, repetition=3, random_state=0),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_generate__is_the_function_of_the_scheme(made, options, expected):
    ensemble = made(options)
    reference = expected("features.npy")
    assert ensemble.names == reference.names
    np.testing.assert_array_equal(labels_of(ensemble), labels_of(reference))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--scheme object-views --n-clusters 3 --sample 0.5", ["'object-views' takes no --sample"]),
        ("--n-features 3", ["'mixed' takes no --n-features"]),
        ("--n-clusters 3", ["'mixed' takes no --n-clusters"]),
        ("--scheme landmarks --sample 0.5", ["'landmarks' takes no --sample"]),
        ("--scheme kmeans --repetition 3", ["'kmeans' takes no --repetition; it takes --n-partitions"]),
        ("--scheme feature-views", ["'feature-views' needs --n-clusters, --n-features"]),
        ("--scheme object-views", ["'object-views' needs --n-clusters"]),
        ("--scheme hdbscan", ["'hdbscan'", "object-views"]),
    ],
)
def test_generate__refuses_what_a_scheme_does_not_have(run, options, words):
    result = run(options)
    assert result.exit_code == 2
    assert all(word in " ".join(result.stderr.split()) for word in words)
    assert [path.name for path in Path().iterdir()] == ["features.npy"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--scheme feature-views --n-features 9 --n-clusters 2", "only 5 features vary"),
        ("--scheme object-views --n-clusters 2 --n-partitions 3 --repetition 4", "--repetition 4"),
        ("--train some", "--train some"),
        ("--scheme zipf --alpha-range a:b", "--alpha-range a:b"),
        ("--scheme zipf --alpha-range 2:1", "alpha_range[1]=1"),
    ],
)
def test_generate__says_in_one_line_what_the_scheme_refuses(run, options, words):
    result = run(options)
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert [path.name for path in Path().iterdir()] == ["features.npy"]


def test_generate__the_same_command_again_finds_its_result(run):
    scheme = "kmeans --n-partitions 3"
    first, again = run(f"--scheme {scheme}"), run(f"--scheme {scheme}")
    assert (first.exit_code, again.exit_code) == (0, 0)
    assert again.stdout == first.stdout
    assert again.stderr == "e.zarr already holds the result of this call.\n"
    other = run(f"--scheme {scheme} --n-clusters 3")
    assert other.exit_code == 1
    assert "--n-clusters (2, 10), not (3, 3); pass --overwrite" in other.stderr
    assert run(f"--scheme {scheme} --n-clusters 3 --overwrite").exit_code == 0


def customers(zip_name="zip", last_city="Rome"):
    group = np.arange(60) % 3
    city = np.array(["Oslo", "Rome", "Bonn"])[group]
    city[-1] = last_city
    names = [zip_name, "age", "city"]
    return pa.table([np.array([10, 20, 30])[group], 40.5 + group + np.arange(60) / 100, city], names)


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ("", "--categorical zip", "--categorical None, not ['zip']"),
        ("--missing Bonn,Oslo", "--missing Rome", "--missing ['Bonn', 'Oslo'], not ['Rome']"),
        ("--missing city=Oslo", "", "--missing {'city': ['Oslo']}, not None"),
        ("--drop zip", "--columns zip,age", "--drop ['zip'], not None; --columns None, not ['zip', 'age']"),
        ("", "--log age", "--log None, not ['age']"),
    ],
)
def test_generate__of_features_read_otherwise_is_refused_by_the_option(run, first, second, told):
    csv.write_csv(customers(), "customers.csv")
    line = "generate customers.csv -o other.zarr --scheme kmeans --n-partitions 2 --n-clusters 2"
    assert CliRunner().invoke(main, f"{line} {first}".split()).exit_code == 0
    assert CliRunner().invoke(main, f"{line} {first} --sep ,".split()).exit_code == 0  # which changes nothing
    refused = CliRunner().invoke(main, f"{line} {second}".split())
    assert refused.exit_code == 1
    assert f"other.zarr exists and was made with {told}; pass --overwrite" in refused.stderr
