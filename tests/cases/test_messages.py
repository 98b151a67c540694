"""What cannot be read is refused in one line that names the remedy."""

import inspect
import shlex

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

import bigcons
from bigcons import Ensemble
from bigcons.cli import main
from bigcons.errors import SoftEnsembleError
from tests.support.refusals import refused


@pytest.mark.parametrize(
    ("source", "remedy"),
    [
        (pl.DataFrame({"a": [0, 1]}).lazy(), r"collect\(\)"),
        (pl.DataFrame, "type type, which is not a table"),
        ([{0, 1}, {2, 3}], "not a matrix"),
        ([[{0, 1}], [{1, 0}]], r"all text in UTF-8 .list"),
    ],
)
def test_types_that_are_no_table(source, remedy):
    with refused(remedy):
        Ensemble.from_labels(source)


def test_files_in_utf8_keep_their_letters(tmp_path):
    for encoding in ("utf-8", "utf-8-sig"):
        (tmp_path / "x.csv").write_text("ä,b\nö,x\nü,y\n", encoding=encoding)
        ensemble = Ensemble.from_labels(tmp_path / "x.csv")
        assert (ensemble.names, ensemble.categories[0].tolist()) == (["ä", "b"], ["ö", "ü"])


def test_solve__quotes_paths_in_what_to_run_next(tmp_path):
    (tmp_path / "my labels.csv").write_text("a,b\n0,0\n0,1\n1,1\n")
    out = str(tmp_path / "my result.zarr")
    told = CliRunner().invoke(
        main, ["solve", str(tmp_path / "my labels.csv"), "-k", "2", "-m", "best", "-o", out]
    )
    command = told.stdout.strip().splitlines()[-1].removeprefix("More: ")
    assert shlex.split(command)[2] == out


def test_solve__names_no_input_as_the_output_of_what_to_run_next(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "labels.csv").write_text("a,b\n0,0\n0,1\n1,1\n")
    told = CliRunner().invoke(main, ["solve", "labels.csv", "-k", "2", "-m", "best", "-o", "labels.zarr"])
    command = shlex.split(told.stdout.strip().splitlines()[-1].removeprefix("More: "))
    assert CliRunner().invoke(main, command[1:]).exit_code == 0
    assert (tmp_path / "labels.csv").read_text().startswith("a,b")


def test_public_names__that_are_misspelt():
    with pytest.raises(AttributeError, match="no attribute 'PPC'") as refused:
        bigcons.PPC  # noqa: B018
    assert (refused.value.name, refused.value.obj) == ("PPC", bigcons)  # by which Python suggests a name
    assert not hasattr(bigcons, "zzz")


def test_soft_clusterings_name_what_takes_them():
    rows = np.random.default_rng(0).dirichlet([0.1, 0.1, 0.1], 60)
    soft = Ensemble.from_memberships([rows, rows[:, ::-1], rows])
    with pytest.raises(SoftEnsembleError, match=r"ensemble\.harden\(\).*such as ConsensusTree"):
        bigcons.METHODS["best"](3).fit(soft)
    default = inspect.signature(bigcons.consensus).parameters["method"].default
    assert bigcons.METHODS[default] is bigcons.ConsensusTree
    assert bigcons.METHODS[default].info.soft_input
    model = bigcons.consensus(soft, 3, random_state=0)
    with pytest.raises(AttributeError, match=r"bigcons\.metrics\.trust\(ensemble\.harden\(\), model\)"):
        model.trust_  # noqa: B018
    assert bigcons.metrics.trust(soft.harden(), model).confidence.shape == (60,)
