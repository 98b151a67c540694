"""The benchmark from features to labels: its sets, its sampled contenders, and runs that resume."""

import json
import sys

import features
from features import FREE, GIVEN
from features_data import CHOOSING, REAL, REPORTING, SHAPES


def test_real__are_divided_into_halves():
    assert sorted([*CHOOSING, *REPORTING]) == sorted(REAL)
    assert len(CHOOSING) - len(REPORTING) in (0, 1)


def test_main__resumes_and_reports(tmp_path, monkeypatch, capsys):
    out = tmp_path / "rows.jsonl"
    argv = ["features.py", "--sets", "iris", "--contenders", "k-means", "HDBSCAN", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", argv)
    features.main()
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["contender"], row["given"]) for row in rows] == [
        ("k-means", True),
        ("HDBSCAN", True),
        ("k-means", False),
        ("HDBSCAN", False),
    ]
    assert rows[0]["clusters"] == rows[0]["classes"] == 3
    features.main()
    assert len(out.read_text().splitlines()) == 4
    assert "| k-means | 0." in capsys.readouterr().out


def test_main__writes_tables_and_a_picture(tmp_path, monkeypatch):
    told = {"seed": 0, "n": 9, "d": 2, "classes": 3, "clusters": 3, "nmi": 0.5, "seconds": 1.0}
    rows = [
        {"set": name, "contender": contender, "given": given, "ari": ari} | told
        for name in (CHOOSING[0], REPORTING[0], next(iter(SHAPES)))
        for given, solvers in ((True, GIVEN), (False, FREE))
        for contender, ari in zip(solvers, (0.5, 0.4, 0.6, *[0.5] * len(solvers)), strict=False)
    ]
    (tmp_path / "features.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(features, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["features.py", "--report"])
    features.main()
    written = (tmp_path / "features.md").read_text()
    assert "| Gaussian mixture | 0.400 (1 below, 0 above) |" in written
    assert f"| {REPORTING[0]} | reporting | 9 | 2 | 3 | 0.500 |" in written
    assert (tmp_path / "features.png").stat().st_size > 1000
