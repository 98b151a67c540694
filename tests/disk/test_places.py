"""Files are replaced as a whole, and anything but a path is refused in one line wherever one is taken."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from bigcons.disk.places import DiskPlace, atomic_file, place_of
from bigcons.errors import DamagedFileError, InvalidInputError
from bigcons.validation import check_path
from tests.support.refusals import refused
from tests.support.stores import names_in

NO_PATHS = [5, 3.5, b"labels.zarr", "", "a\0b", ["labels.zarr"], np.zeros((40, 5))]


class BytesPath(os.PathLike):
    def __fspath__(self):
        return b"labels.zarr"


@pytest.mark.parametrize("value", [None, *NO_PATHS, BytesPath()])
def test_check_path__rejects_anything_else(value):
    with refused(r"is not a valid path; pass a local path or a URL such as s3:"):
        check_path(value)


def test_check_path__expands_the_folder_of_a_user(monkeypatch):
    monkeypatch.setenv("HOME", "home")
    assert [check_path(path) for path in ("~/x", "~no-user/x", "x/~")] == ["home/x", "~no-user/x", "x/~"]


@pytest.mark.parametrize("name", [b"caf\xe9.csv", b"\xff/e.zarr"])
def test_check_path__refuses_names_that_are_not_in_utf_8(name):
    with pytest.raises(InvalidInputError, match="is a path that is not in UTF-8; rename it") as told:
        check_path(Path(os.fsdecode(name)))
    assert str(told.value).isascii()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        *((url, "use s3://bucket/path") for url in ("s3://bucket", "s3:///path", "s3://bucket/a/../b")),
        ("https://example.org/e.zarr", "not a supported URL"),
        (Path("s3://bucket/e.zarr"), "such as s3://bucket/path"),
    ],
)
def test_place_of__rejects_urls_that_name_no_place_in_a_bucket(wrong, message):
    with refused(message):
        place_of(wrong)


def test_atomic_file__keeps_the_old_file_until_the_new_one_is_complete(tmp_path):
    place = DiskPlace(tmp_path / "f")
    place.write(b"old")
    stamp = place.stamp()

    def fail():
        with atomic_file(place.path) as file:
            file.write(b"ne")
            file.flush()
            assert place.read() == b"old"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (place.read(), place.names(), names_in(tmp_path)) == (b"old", [], ["f"])
    place.write(b"n", b"ew", durable=True)
    assert place.read() == b"new"
    assert place.stamp() != stamp
    with pytest.raises(DamagedFileError, match="3 bytes, more than the 2 "):
        place.read(at_most=2)


def test_atomic_file__may_be_written_by_many_at_once(tmp_path):
    place = DiskPlace(tmp_path / "f")
    contents = [bytes([value]) * 100_000 for value in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(place.write, contents * 5))
    assert bytes(place.read()) in contents
    assert names_in(tmp_path) == ["f"]
