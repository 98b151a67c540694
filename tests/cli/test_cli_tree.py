"""``bigcons tree``: the tree of clusters of an ensemble, for people and for programs, and its picture."""

import json

import pytest
from click.testing import CliRunner

from bigcons import MCLA, consensus_tree
from bigcons.cli import main
from bigcons.datasets import planted_ensemble


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command line in a folder with e.zarr."""
    monkeypatch.chdir(tmp_path)
    planted_ensemble(600, 30, noise=(0.0, 0.2), random_state=0)[0].save("e.zarr")
    return lambda line: CliRunner().invoke(main, line.split())


def test_tree__prints_the_number_recommended_and_the_splits(run):
    shown = run("tree e.zarr -k 6 --random-state 0").stdout.splitlines()
    assert shown[0].startswith("ClusterTree(6 clusters, support")
    assert shown[2].split()[:3] == ["split", "n_clusters", "height"]
    assert len(shown) == 4 + 5 + 2
    found = consensus_tree("e.zarr", random_state=0)
    assert shown[-1] == f"... and {len(found.table()) - 5} lower splits; -o FILE.csv writes all."


def test_tree__tells_programs_what_the_library_does_and_draws_it(run, tmp_path):
    told = json.loads(run("tree e.zarr --tree average -o t.png --random-state 0 --json").stdout)
    found = consensus_tree(tmp_path / "e.zarr", tree="average", random_state=0)
    assert told["splits"] == found.table().slice(0, len(told["splits"])).to_pylist()
    assert (told["n_clusters"], told["is_clear"], told["tree"]) == (6, True, "average")
    assert (tmp_path / "t.png").read_bytes()[:4] == b"\x89PNG"
    again = run("tree e.zarr -o t.png")
    assert again.exit_code == 1
    assert "t.png" in again.stderr
    assert run("tree e.zarr --tree average -o t.csv --random-state 0").exit_code == 0
    written = (tmp_path / "t.csv").read_text().splitlines()
    assert written[0].split(",") == found.table().column_names
    assert len(written) == 1 + len(found.table())


def test_tree__of_a_consensus_is_the_one_it_has_kept(run):
    MCLA("auto", random_state=0).fit("e.zarr", out="c.zarr")
    MCLA(3, random_state=0).fit("e.zarr", out="three.zarr")
    assert run("tree c.zarr").stdout == run("tree e.zarr --random-state 0").stdout
    refused = [run("tree three.zarr"), run("tree c.zarr --features x.npy")]
    assert [told.exit_code for told in refused] == [1, 1]
    assert "its number of clusters was given" in refused[0].stderr
    assert "pass the ensemble" in refused[1].stderr
