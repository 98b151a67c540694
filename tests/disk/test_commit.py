"""Whole stores or none, and heads written last."""

import json

import numpy as np
import pytest

from bigcons.disk import commit
from bigcons.disk.places import place_of
from bigcons.errors import StoreError, StoreExistsError
from bigcons.store.ensemble import open_store
from tests.support.refusals import refused
from tests.support.stores import names_in


def make_store(path, value, overwrite=False):
    with commit.new_store(path, overwrite) as directory:
        (directory / "data").write(str(value).encode())
        commit.write_head(directory, "pairs", {"value": value})


def test_new_store__appears_when_it_is_complete(tmp_path):
    with commit.new_store(tmp_path / "s") as directory:
        assert not (tmp_path / "s").exists()
        assert directory.path.parent == tmp_path
        commit.write_head(directory, "pairs", {"value": 1})
    assert commit.read_head(tmp_path / "s", "pairs").body == {"value": 1}
    assert names_in(tmp_path) == ["s"]


@pytest.mark.parametrize("can_swap", [True, False])
def test_new_store__replaces_in_one_step(tmp_path, monkeypatch, can_swap):
    if not can_swap:
        monkeypatch.setattr(commit, "_exchange", lambda a, b: False)
    make_store(tmp_path / "s", 1)
    with pytest.raises(StoreExistsError, match="pass overwrite=True"):
        make_store(tmp_path / "s", 2)
    make_store(tmp_path / "s", 2, overwrite=True)
    assert commit.read_head(tmp_path / "s", "pairs").body == {"value": 2}
    assert (tmp_path / "s/data").read_text() == "2"
    assert names_in(tmp_path) == ["s"]


def test_new_store__overwrites_its_own_kind_only(tmp_path):
    make_store(tmp_path / "s", 1)
    with (
        pytest.raises(StoreExistsError, match="is a table of pairs, which would be lost"),
        commit.new_store(tmp_path / "s", True, "consensus"),
    ):
        pass
    head = tmp_path / "s" / commit.HEAD
    head.write_bytes(head.read_bytes()[:-9])  # whatever it was, it is lost
    with commit.new_store(tmp_path / "s", True, "consensus") as folder:
        commit.write_head(folder, "consensus", {"value": 2})
    assert commit.read_head(tmp_path / "s", "consensus").body == {"value": 2}


def test_outputs__inside_another_store_are_refused(tmp_path):
    """They would go with it when it is replaced, as the control shows."""
    make_store(tmp_path / "s", 1)
    (tmp_path / "s/lost").write_text("kept by hand")
    (tmp_path / "link").symlink_to(tmp_path / "s")
    for path in (tmp_path / "s/t", tmp_path / "s/deep/t", tmp_path / "link/t"):
        for overwrite in (False, True):
            with pytest.raises(StoreExistsError, match=f"is inside the store {tmp_path / 's'}, "):
                make_store(path, 2, overwrite=overwrite)
        with pytest.raises(StoreExistsError, match="is inside"), commit.new_file(path, overwrite=False):
            pass
    make_store(tmp_path / "s", 2, overwrite=True)
    assert not (tmp_path / "s/lost").exists()
    make_store(tmp_path / "s.partial/t", 1)  # a name that begins alike


def test_outputs__through_a_link_replace_what_it_leads_to_and_leave_the_link(tmp_path):
    (tmp_path / "real").mkdir()
    make_store(tmp_path / "real/s", 1)
    (tmp_path / "real/f.csv").write_text("old")
    for name in ("s", "f.csv"):
        (tmp_path / name).symlink_to(tmp_path / "real" / name)
    make_store(tmp_path / "s", 2, overwrite=True)
    with commit.new_file(tmp_path / "f.csv", overwrite=True) as file:
        file.write(b"new")
    assert (tmp_path / "s").is_symlink()
    assert (tmp_path / "f.csv").is_symlink()
    assert commit.read_head(tmp_path / "real/s", "pairs").body == {"value": 2}
    assert (tmp_path / "real/f.csv").read_text() == "new"
    assert (names_in(tmp_path), names_in(tmp_path / "real")) == (["f.csv", "real", "s"], ["f.csv", "s"])


@pytest.mark.parametrize("overwrite", [False, True])
def test_new_store__leaves_nothing_after_a_failure(tmp_path, overwrite):
    path = tmp_path / "s"
    if overwrite:
        make_store(path, 1)
    with pytest.raises(ZeroDivisionError), commit.new_store(path, overwrite):
        raise ZeroDivisionError
    assert names_in(tmp_path) == (["s"] if overwrite else [])
    if overwrite:
        assert commit.read_head(path, "pairs").body == {"value": 1}


def test_new_store__clears_what_a_killed_writer_left(tmp_path):
    (tmp_path / ".s.123.partial").mkdir()
    others = [".other.123.partial", ".s.zarr.123.partial"]  # of what another process may be filling
    for name in others:
        (tmp_path / name).mkdir()
    make_store(tmp_path / "s", 1)
    assert names_in(tmp_path) == [*others, "s"]


def test_commit__takes_numpy_values(tmp_path):
    commit.write_head(place_of(tmp_path), "pairs", {"a": np.int64(3), "b": np.arange(2), "c": tmp_path})
    assert commit.read_head(tmp_path).body == {"a": 3, "b": [0, 1], "c": str(tmp_path)}


def test_read_head__rejects_every_changed_byte(tmp_path):
    make_store(tmp_path / "s", 1)
    file = tmp_path / "s/zarr.json"
    data = file.read_bytes()
    meaning = json.loads(data)
    for place in range(len(data)):
        changed = data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]
        file.write_bytes(changed)
        try:
            same = json.loads(changed) == meaning
        except ValueError:
            same = False
        if not same:
            with refused("damaged", StoreError):
                commit.read_head(tmp_path / "s", "pairs")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"kind": "pairs"}', "[" * 100_000, "\xff"])
def test_read_head__rejects_broken_and_foreign_json(tmp_path, text):
    (tmp_path / "zarr.json").write_text(text, encoding="latin-1")
    with refused("damaged", StoreError):
        commit.read_head(tmp_path, "pairs")


def change(path, **entries):
    """Change entries of a head under a right checksum."""
    file = path / "zarr.json"
    content = json.loads(file.read_text())
    head = content["attributes"]["bigcons"]
    del head["checksum"]
    head |= entries
    head["checksum"] = commit._checksum(content)
    file.write_text(json.dumps(content))


def test_open__rejects_other_formats_and_kinds(tmp_path):
    make_store(tmp_path / "s", 1)
    cases = (99, "pairs", "upgrade"), (1, "pairs", "make it"), (True, "pairs", "make it"), (None, "x", "kind")
    for version, kind, told in cases:
        change(tmp_path / "s", format_version=version or commit.FORMAT_VERSION, kind=kind)
        with pytest.raises(StoreError, match=told):
            open_store(tmp_path / "s")
