"""Processes that are killed at a moment of a solve or of a write."""

import os
import signal
import time

import numpy as np

from bigcons import Ensemble
from bigcons.disk.checkpoint import FileBlocks, Snapshots
from tests.support.forks import Fork

WRITES = {"snapshot": (Snapshots, "save"), "block": (FileBlocks, "write")}


def die_after(what, n_writes):
    """Have this process killed once it has written as many snapshots or blocks of a solve."""
    kind, name = WRITES[what]
    write, n_written = getattr(kind, name), 0

    def deadly(*arguments):
        nonlocal n_written
        write(*arguments)
        n_written += 1
        if n_written == n_writes:
            os.kill(os.getpid(), signal.SIGKILL)

    setattr(kind, name, deadly)


WRITING = """
import sys
import numpy as np
from bigcons import Ensemble
action, path = sys.argv[1:]
ensemble = Ensemble.open(path, "a")
labels = ensemble.read(0, 4000)
for turn in range(10**6):
    if action == "save":
        Ensemble.from_labels(np.roll(labels, turn, axis=0)).save(path, chunk_rows=256, overwrite=True)
    elif action == "append_objects":
        ensemble.append_objects(labels)
    else:
        ensemble.append_partitions(np.tile(labels[:, :1], (ensemble.n_objects // 4000, 5)))
    print("wrote", turn, flush=True)
"""


def survivor_of_writes(action, path, seconds):
    """Kill a process that writes to an ensemble, so long after its first write, and check what is left."""
    labels = np.arange(4000)[:, None] % [2, 3, 4, 5, 6, 7]
    Ensemble.from_labels(labels).save(path, chunk_rows=256, overwrite=True)
    child = Fork(WRITING, action, path)
    assert child.stdout.readline() == "wrote 0\n"
    time.sleep(seconds)
    child.kill()
    child.end()
    survivor = Ensemble.open(path, "a")
    assert survivor.verify()["ok"]
    assert survivor.n_objects % 4000 == 0
    assert (survivor.n_partitions - 6) % 5 == 0
    if action != "save":
        np.testing.assert_array_equal(survivor.read(0, 4000)[:, :6], labels)
    return survivor
