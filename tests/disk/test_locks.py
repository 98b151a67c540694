"""One writer at a time, on a disk."""

import os
import re
import threading

import pytest

from bigcons.disk.places import place_of
from bigcons.errors import StoreError, StoreLockedError
from tests.support.stores import names_in


def test_writer_lock__rejects_a_second_writer_and_ignores_the_file_of_a_dead_one(tmp_path):
    (tmp_path / ".s.lock").write_text("999999")
    with place_of(tmp_path / "s").lock():
        with pytest.raises(StoreLockedError, match=f"process {os.getpid()}"), place_of(tmp_path / "s").lock():
            pass
        with place_of(tmp_path / "other").lock():
            pass
    with place_of(tmp_path / "s").lock():
        pass
    assert not names_in(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="pipes and links")
@pytest.mark.parametrize("kind", ["a link", "a folder"])
def test_writer_lock__something_else_in_its_place_is_told_and_left(tmp_path, kind):
    (tmp_path / "precious").write_text("precious")
    lock = tmp_path / ".s.lock"
    if kind == "a link":
        lock.symlink_to(tmp_path / "precious")
    else:
        lock.mkdir()
    with pytest.raises(StoreError, match=re.escape(f"({lock}); check")), place_of(tmp_path / "s").lock():
        pass
    assert (tmp_path / "precious").read_text() == "precious"


def test_writer_lock__that_cannot_be_made_names_the_store_not_the_hidden_file(tmp_path):
    path = tmp_path / ("s" * 255)  # as long as a name may be, and that of the hidden file is longer
    with pytest.raises(StoreError, match=f"Writing {path} failed: .*too long"), place_of(path).lock():
        pass


def test_writer_lock__lets_one_thread_in_at_a_time(tmp_path):
    inside, most, refused = 0, 0, 0

    def work():
        nonlocal inside, most, refused
        for _ in range(50):
            try:
                with place_of(tmp_path / "s").lock():
                    inside += 1
                    most = max(most, inside)
                    inside -= 1
            except StoreLockedError:
                refused += 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
