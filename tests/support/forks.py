"""Processes that are forks of one that has imported what they need, which would take each of them 2 s."""

import multiprocessing
import os
import sys
import tempfile
from multiprocessing.connection import Pipe
from pathlib import Path

import dask
from distributed.utils import get_mp_context

IMPORTED = (
    *("distributed.nanny", "distributed.worker", "matplotlib.figure", "pandas", "pyarrow.parquet"),
    *("scipy.sparse.linalg", "sklearn.cluster", "bigcons.cli", "bigcons.federated", "bigcons.generate"),
    *("bigcons.methods", "bigcons.plots", "bigcons.report"),
)


def forking():
    """Return what starts processes, also workers of Dask: by forks, or where there are none as usual."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context()
    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    context = get_mp_context()
    context.set_forkserver_preload(list(IMPORTED))
    return context


class Fork:
    """A process that runs code of Python in a folder, with arguments; a part of what `subprocess` offers."""

    def __init__(self, code, *arguments, folder="."):
        told, self.stdin = Pipe(duplex=False)
        self.stdout, said = Pipe(duplex=False)
        self.errors = tempfile.NamedTemporaryFile()  # noqa: SIM115 - until the process is forgotten
        ends = told, said, self.errors.name
        begun = code, [str(argument) for argument in arguments], str(folder), dict(os.environ)
        self.process = forking().Process(target=_begin, args=(*ends, *begun))
        self.process.start()
        told.close()
        said.close()
        self.stdin, self.stdout = (
            os.fdopen(os.dup(end.fileno()), mode) for end, mode in ((self.stdin, "w"), (self.stdout, "r"))
        )
        self.pid, self.kill = self.process.pid, self.process.kill

    def wait(self):
        """Return the exit status, negative for a signal."""
        self.process.join()
        return self.process.exitcode

    def end(self):
        """Close standard input; return the exit status and what was still said on both streams."""
        self.stdin.close()
        with self.stdout, self.errors:
            said = self.stdout.read()
            return self.wait(), said, Path(self.errors.name).read_text()


def _begin(told, said, errors, code, arguments, folder, environment):
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    os.dup2(told.fileno(), 0)
    os.dup2(said.fileno(), 1)
    os.dup2(os.open(errors, os.O_WRONLY), 2)
    for end in (told, said):
        end.close()
    sys.stdin = open(0)  # noqa: SIM115
    sys.argv = ["-c", *arguments]
    exec(compile(code, "a fork", "exec"), {"__name__": "__main__"})
