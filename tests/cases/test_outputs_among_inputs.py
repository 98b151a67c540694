"""No output replaces what it is made from, or becomes a part of it for the next reader."""

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import bigcons as bc
from bigcons.cli import main
from bigcons.io.sources import refuse_inputs
from bigcons.store.ensemble import import_labels
from bigcons.store.pairs import import_pairs
from tests.support.refusals import refused

LONG = {"object": "o", "partition": "p", "label": "l"}
CALLS = {
    "import_labels": lambda x, out: import_labels(x, out, overwrite=True),
    "from_runs": lambda x, out: bc.Ensemble.from_runs([[0, 1], x], out=out, overwrite=True),
    "from_runs by name": lambda x, out: bc.Ensemble.from_runs({"a": x, "b": [0, 1]}, out=out, overwrite=True),
    "from_long": lambda x, out: bc.Ensemble.from_long(x, **LONG, out=out, overwrite=True),
    "from_memberships": lambda x, out: bc.Ensemble.from_memberships([x], out=out, overwrite=True),
    "import_pairs": lambda x, out: import_pairs(x, out, overwrite=True),
    "generate": lambda x, out: bc.generate.mixed(x, out=out, overwrite=True),
    "sample": lambda x, out: bc.coassociation.sample(x, n_pairs=1, out=out, overwrite=True),
    "fit": lambda x, out: bc.PCC(2).fit(x, out=out, overwrite=True),
    "fit of pairs": lambda x, out: bc.PCC(2, pairs=x).fit([[0, 1], [1, 0]], out=out, overwrite=True),
    "predict": lambda x, out: bc.PCC(2, random_state=0).fit([[0, 1], [1, 0]] * 9).predict(x, out=out),
    "a choice": lambda x, out: bc.MCLA(2).fit(bc.select(x, header=False), out=out, columns=[0]),
    "a list": lambda x, out: import_labels(["new.csv", x], out),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lab").mkdir()
    (tmp_path / "link").symlink_to("lab")
    (tmp_path / "loop").symlink_to("loop")
    pd.DataFrame({"p": [0, 1], "q": [1, 0]}).to_parquet("lab/a.parquet")
    return tmp_path


def all_files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("call", CALLS)
def test_calls__refuse_an_output_within_their_input(folder, call):
    before = all_files(folder)
    for source, out in (("lab", "lab/out.zarr"), ("lab", "link/out.zarr"), ("link", "lab/x/out.zarr")):
        with refused(f"the output {out} lies within the input {source}, "):
            CALLS[call](source, out)
    assert all_files(folder) == before


@pytest.mark.parametrize(
    ("source", "out", "how"),
    [
        ("lab/a.parquet", "lab/a.parquet", "is"),
        ("link/a.parquet", "./lab/../lab/a.parquet", "is"),
        ("lab/", "lab", "is"),
        ("lab/x.zarr/labels", "lab/x.zarr", "contains"),
        ("link/x/b.csv", "lab/x", "contains"),
        ("lab/*.parquet", "link/out.parquet", "lies within"),
        ("lab/*", "lab/out.zarr", "lies within"),
        ("l*", "lab/x/out.zarr", "lies within"),
        ("lab/**/*.parquet", "lab/x/y/out.parquet", "lies within"),
        ("lab/**/*.parquet", "lab/out.parquet", "lies within"),
        ("s3://b/lab", "s3://b/lab/out.zarr", "lies within"),
        ("s3://b/lab/", "s3://b//lab", "is"),
        ("S3://b/lab/*.parquet", "s3://b/lab/x.parquet", "lies within"),
        ("s3://b/out.zarr/labels", "s3://b/out.zarr", "contains"),
    ],
)
def test_output__that_is_contains_or_lies_within_an_input_is_refused(source, out, how):
    if "//" in out:
        pytest.importorskip("obstore")
    with refused(f"the output {out} {how} the input ") as caught:
        refuse_inputs(out, [], [[0]], source)
    assert caught.value.parameter == "out"


@pytest.mark.parametrize(
    ("source", "out"),
    [
        ("loop", "lab/out.zarr"),
        *(("lab", "lab2/out.zarr"), ("lab/a.parquet", "lab/out.parquet"), ("lab/*.csv", "lab/out.parquet")),
        *(("*.parquet", "lab/out.parquet"), ("lab/**/*.csv", "lab/x/out.parquet"), ("lab", None)),
        *((np.zeros((2, 2)), "lab/out.zarr"), (["a", "b"], "lab/out.zarr")),
        *(("s3://b/lab", "lab/out.zarr"), ("s3://b/lab", "s3://c/lab/out.zarr")),
    ],
    ids=str,
)
def test_output__beside_an_input_is_taken(source, out):
    if "s3" in str(source):
        pytest.importorskip("obstore")
    refuse_inputs(out, source)


def test_harden_and_select__do_not_replace_the_ensemble_that_they_read(folder):
    soft = bc.Ensemble.from_memberships([[[0.5, 0.5], [1, 0]], [[0.2, 0.8], [0, 1]]]).save("s.zarr")
    (folder / "also.zarr").symlink_to("s.zarr")
    for out in ("s.zarr", "also.zarr"):
        with refused(f"the output {out} is the input "):
            soft.harden(out, overwrite=True)
        with refused(f"the output {out} is the input "):
            soft.select([0], out, overwrite=True)
    assert bc.Ensemble.open("s.zarr").shape == soft.shape


@pytest.mark.parametrize("line", ["import lab -o lab/ens.parquet", "generate lab -o lab/e.zarr",
                                  "run lab -k 2 -o lab/out", "solve lab -k 2 -o link/c.zarr"])  # fmt: skip
def test_commands__refuse_an_output_within_their_input(folder, line):
    before = all_files(folder)
    told = CliRunner().invoke(main, line.split())
    assert (told.exit_code, told.stdout) == (2, "")
    assert told.stderr.splitlines()[-1].startswith("Error: the output l")
    assert "lies within the input lab, which it would change; choose another path." in told.stderr
    assert all_files(folder) == before


@pytest.mark.parametrize("where", ["lab", "lab/*", "lab/*.parquet"])
def test_table__has_no_part_that_is_a_store(where):
    """Its rows would count as further objects."""
    bc.Ensemble.from_labels([[0, 1], [1, 0]]).save("e.parquet").select([0], out="lab/b.parquet")
    for read in (bc.Ensemble.from_labels, bc.generate.mixed):
        with refused("lab/b.parquet is a store of bigcons, no table of "):
            read(where)
    assert bc.Ensemble.from_labels("lab/a.parquet").n_objects == 2
    with refused("e.parquet is a store of bigcons, no table of features"):
        bc.generate.mixed("e.parquet")
