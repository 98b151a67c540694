"""The walk of a user whose rows have ids: a folder of files in, labels to join by out, standard streams."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from bigcons import Consensus, Ensemble
from bigcons.cli import main
from bigcons.coassociation import sample

N_OBJECTS = 1200
RNG = np.random.default_rng(0)
SEGMENTS = RNG.integers(0, 3, N_OBJECTS)
NAMES = [f"c{number:05d}" for number in RNG.permutation(N_OBJECTS)]
POINTS = RNG.normal(size=(N_OBJECTS, 2)) + 8 * SEGMENTS[:, None]
CUSTOMERS = pd.DataFrame(POINTS, columns=["x", "y"]).assign(customer=NAMES, segment=SEGMENTS)
GENERATE = "--scheme kmeans --n-partitions 2 --n-clusters 3 --id customer"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command line in the folder of the test, which has the customers; return click's result."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "customers").mkdir()
    for number in range(3):
        rows = CUSTOMERS.iloc[400 * number : 400 * (number + 1)]
        rows.to_parquet(tmp_path / "customers" / f"part-{number}.parquet", index=False)
    return lambda line, **stdin: CliRunner().invoke(main, line.split(), **stdin)


@pytest.fixture
def ok(run):
    """Run a command line that must succeed; return what it prints."""

    def invoke(line, **stdin):
        result = run(line, **stdin)
        assert result.exit_code == 0, result.output
        return result

    return invoke


def test_walk__from_a_folder_of_customers_to_a_join(run, ok):
    for options, words in (
        ("", ("different whole numbers or texts in all rows of column 'customer'", "--id")),
        ("--id custmer", ("no column 'custmer'", "Did you mean customer?")),
        ("--id segment", ("segment ", "is in rows")),
    ):
        result = run(f"generate customers -o e.zarr {options}")
        assert result.exit_code == 1
        assert len(result.stderr.splitlines()) == 1
        for word in words:
            assert word in result.stderr
    ok(f"generate customers/ -o e.zarr --drop segment {GENERATE}")
    assert Ensemble.open("e.zarr").provenance["features"] == ["x", "y"]
    assert "already holds" in ok(f"generate customers/ -o e.zarr --drop segment {GENERATE}").stderr
    ok("solve e.zarr -m best -k 3 -o c.zarr")
    ok("verify c.zarr")
    assert json.loads(ok("info c.zarr --json").stdout)["id"] == "customer"
    ok("export c.zarr -o labels.parquet")
    joined = CUSTOMERS.merge(pd.read_parquet("labels.parquet"), on="customer", validate="1:1")
    assert len(joined) == N_OBJECTS
    solved = Consensus.open("c.zarr")
    assert np.array_equal(joined["label"], solved.labels)
    assert solved.ids.tolist() == NAMES


def test_text__of_any_separator_is_read_and_labels_go_to_standard_output(run, ok):
    paths = [f"customers/part-{number}.parquet" for number in range(3)]
    wanted = Ensemble.open(expected(ok, f"generate {' '.join(paths)} -o e.zarr --columns x,y {GENERATE}"))
    for name, sep in (("commas", ","), ("tabs", "\\t")):
        CUSTOMERS.to_csv(f"{name}.csv", index=False, sep=sep.replace("\\t", "\t"))
        ok(f"generate {name}.csv -o {name}.zarr --columns x,y --sep {sep} {GENERATE}")
        found = Ensemble.open(f"{name}.zarr")
        assert found.ids.tolist() == wanted.ids.tolist() == NAMES
        assert np.array_equal(np.asarray(found), np.asarray(wanted))
    labels = CUSTOMERS.assign(customer=range(N_OBJECTS))[["customer", "segment"]]
    labels.to_csv("numbered.csv", index=False)
    ok("solve numbered.csv -m best -k 3 -o c.zarr --id customer")
    out = ok("export c.zarr -o -").stdout.splitlines()
    assert (out[0], len(out)) == ("customer,label", N_OBJECTS + 1)
    assert [int(line.split(",")[0]) for line in out[1:]] == list(range(N_OBJECTS))
    result = run("export c.zarr -o - --json")
    assert (result.exit_code, "--json prints to standard output" in result.stderr) == (2, True)


def expected(ok, line):
    """Run a command line and return the path of its output."""
    ok(line)
    return "e.zarr"


REPEATED = {
    "import customers --columns segment --id customer -o out.zarr": (
        "--id customer",
        "",
        "--id customer, not None",
    ),
    "import --pairs pairs.csv -o out.zarr": ("-o", "--n-objects 5 -o", "no --n-objects, not 5"),
    "import --pairs drawn.parquet -o out.zarr": ("drawn", "again", "source=drawn.parquet, not again.parquet"),
    "sample e.zarr -o out.zarr --per-object 4": ("4", "5", "--per-object 4.0, not 5.0"),
}


def write_inputs(label):
    """Write an ensemble, its pairs, memberships and a list of pairs; ``label`` changes the content of all."""
    labels = SEGMENTS.copy()
    labels[0] = label
    Ensemble.from_labels(np.column_stack([labels, SEGMENTS])).save("e.zarr", overwrite=True)
    pd.DataFrame({"a": [0.5, 0.25 * label], "b": [0.5, 1 - 0.25 * label]}).to_csv("soft.csv", index=False)
    Path("pairs.csv").write_text(f"i,j,n_agree,n_seen\n0,1,1,{1 + label}\n")
    sample([[0], [0], [label]], n_pairs=3, random_state=label).to_parquet("drawn.parquet", overwrite=True)
    shutil.copyfile("drawn.parquet", "again.parquet")
    CUSTOMERS.assign(segment=labels).to_parquet("customers/part-0.parquet", index=False)


@pytest.mark.parametrize("line", REPEATED)
def test_repeated__finds_its_result_unless_an_option_or_the_input_has_changed(ok, run, line):
    write_inputs(0)
    for number in (1, 2):  # the first has them all
        Path(f"customers/part-{number}.parquet").unlink()
    first = ok(line).stdout
    out = Path("out.zarr/zarr.json")
    before = out.read_bytes(), out.stat().st_mtime_ns
    again = run(line)
    assert (again.exit_code, again.stdout) == (0, first)
    assert "already holds the result of this" in again.stderr
    old, new, told = REPEATED[line]
    refused = run(line.replace(old, new))
    assert refused.exit_code == 1
    assert f"exists and was made with {told}; pass --overwrite" in refused.stderr
    write_inputs(1)
    refused = run(line)
    assert refused.exit_code == 1
    assert (
        "exists and was made with " + ("other labels" if "e.zarr" in line else "other contents of")
        in refused.stderr
    )
    assert (out.read_bytes(), out.stat().st_mtime_ns) == before
    assert ok(f"{line} --overwrite").stderr == ""


def test_import__of_a_file_that_was_changed_in_place_to_the_same_size_and_time_is_another(ok, run):
    Path("l.csv").write_text("a,b\n0,1\n1,0\n")
    before = Path("l.csv").stat()
    line = "import l.csv -o out.zarr"
    ok(line)
    assert "already holds" in ok(line).stderr
    with Path("l.csv").open("r+") as file:
        file.write("a,b\n0,0\n")
    os.utime("l.csv", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert "other contents of l.csv" in run(line).stderr
