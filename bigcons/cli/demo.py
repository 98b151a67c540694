"""``bigcons demo``: the data of the large experiment of Lourenço et al. 2015, solved by PCC and by the tree.

120,000 objects of three classes; 100 k-means partitions, each splitting a random half of the objects
into 2 to 10 clusters; consensus by PCC over all pairs of objects, and by the tree.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import TracebackType
from typing import Any

import click

from bigcons.cli.options import random_state_option
from bigcons.cli.output import emit, reporting, table
from bigcons.disk.places import disk_errors
from bigcons.errors import MissingDependencyError, StoreExistsError
from bigcons.memory import format_size
from bigcons.progress import progress

RESULT = "demo.json"
COLUMNS = ["", "H", "ARI", "clusters", "seconds", "peak memory"]


@click.command()
@click.option(
    "--data",
    type=click.Choice(["planted", "kddcup99"]),
    default="planted",
    show_default=True,
    help="Simulated data with the shape of the experiment, or the real connections of KDD Cup 1999.",
)
@click.option(
    "--data-dir",
    metavar="FOLDER",
    help="Folder of kddcup99/kddcup.data_10_percent.gz.  [default: $BIGCONS_DATA, else downloaded]",
)
@click.option("--size", type=click.IntRange(min=100), default=120_000, show_default=True, help="Objects.")
@click.option(
    "-k",
    "--n-clusters",
    type=click.IntRange(min=2),
    default=3,
    show_default=True,
    help="Maximum number of clusters.",
)
@click.option(
    "-o", "--out", default="bigcons-demo", show_default=True, metavar="FOLDER", help="Folder for the results."
)
@click.option("--overwrite", is_flag=True, help="Write to a folder that holds other files.")
@random_state_option
@reporting
def demo(
    data: str, data_dir: str | None, size: int, n_clusters: int, out: str, overwrite: bool, random_state: int
) -> None:
    """Solve the data of the PCC paper's large experiment.

    This is the one of Lourenço et al. 2015, on simulated or real data: 100 k-means partitions of random
    halves of 120,000 objects. Their consensus is found by PCC over all pairs of objects, and by the consensus
    tree, the default of the other commands. A table has the accuracy and the cost of both. A run that was
    interrupted resumes; a finished one is replaced.
    """
    folder = Path(out)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / RESULT).exists() and not overwrite:
        raise StoreExistsError(
            f"{folder} holds other files; choose another folder or pass --overwrite.", path=folder
        )
    folder.mkdir(parents=True, exist_ok=True)
    asked: dict[str, Any] = {"data": data, "data_dir": data_dir, "n_objects": size, "n_clusters": n_clusters}
    asked["random_state"] = random_state
    with disk_errors(folder):
        earlier = json.loads((folder / RESULT).read_bytes()) if (folder / RESULT).exists() else asked
        if earlier != asked:
            click.echo(f"{folder} holds the results of an earlier demo, which are replaced.", err=True)
        (folder / RESULT).write_text(json.dumps(asked), encoding="utf-8")  # so that a rerun finds its own
        result = {**asked, **_run(folder, **asked, overwrite=earlier != asked)}
        (folder / RESULT).write_text(json.dumps(result, indent=1), encoding="utf-8")
    emit({**result, "folder": str(folder)}, _report(result, folder))


# The experiment


def _run(
    folder: Path,
    data: str,
    data_dir: str | None,
    n_objects: int,
    n_clusters: int,
    random_state: int,
    overwrite: bool,
) -> dict[str, Any]:
    """Run the experiment, write its stores and its figure to ``folder``, and return its numbers."""
    import numpy as np

    from bigcons import PCC, Consensus, ConsensusTree, datasets, generate, metrics, plots

    with _compiling_of_pcc(n_clusters) as others:
        if data == "kddcup99":
            features: Any
            features, truth = datasets.kddcup99(
                data_dir, n_objects=n_objects, as_numbers=True, random_state=random_state
            )
        else:
            features, truth = datasets.planted_features(n_objects, random_state=random_state)
        np.save(folder / "truth.npy", truth)
        with Meter() as generating:
            ensemble = generate.kmeans(
                features,
                n_partitions=100,
                n_clusters=(2, 10),
                sample=0.5,
                out=str(folder / "ensemble.zarr"),
                random_state=random_state,
                overwrite=overwrite,
            )
        del features
        with Meter() as waiting, progress("compile the kernels", 0):
            _solve_few(ConsensusTree, n_clusters)
            others.join()
            _solve_few(PCC, n_clusters)  # loads them, or compiles them if they cannot be kept on disk

    def solve(name: str, method: Any, **options: Any) -> tuple[Any, dict[str, Any]]:
        with Meter() as meter:
            model = method(n_clusters, random_state=random_state, **options).fit(ensemble)
        return model, {
            **meter.as_numbers(name),
            "accuracy": metrics.matching_accuracy(truth, model.labels_),
            "adjusted_rand": metrics.adjusted_rand(truth, model.labels_),
            "n_clusters": model.n_clusters_,
            "n_tiny_clusters": model.n_tiny_clusters_,
            "converged": getattr(model, "converged_", True),
        }

    model, of_pcc = solve("PCC, all pairs", PCC)
    solves = [of_pcc, solve("consensus tree", ConsensusTree)[1]]
    Consensus.from_estimator(
        folder / "consensus.zarr", model, provenance={"ensemble": "ensemble.zarr"}, overwrite=True
    )
    labels = ensemble.read(0, ensemble.n_objects)
    base = [metrics.matching_accuracy(truth, labels[:, u]) for u in range(ensemble.n_partitions)]
    left_out = None
    try:
        plots.memberships(model).savefig(folder / "demo.png")
    except MissingDependencyError as error:
        (folder / "demo.png").unlink(missing_ok=True)  # of an earlier demo
        left_out = f"The figure is left out: {error}"
    return {
        "left_out": left_out,
        "n_objects": ensemble.n_objects,
        "n_partitions": ensemble.n_partitions,
        "base_accuracy": sum(base) / len(base),
        "solves": solves,
        "steps": [
            generating.as_numbers("generating the partitions"),
            waiting.as_numbers("waiting for compiled kernels"),
        ],
    }


@contextmanager
def _compiling_of_pcc(n_clusters: int) -> Iterator[SpawnProcess]:
    """Compile the kernels of PCC in another process, as numba compiles one at a time in each."""
    process = multiprocessing.get_context("spawn").Process(target=_compile, args=(n_clusters,))
    process.start()
    try:
        yield process
    finally:
        process.terminate()
        process.join()


def _compile(n_clusters: int) -> None:
    from bigcons import PCC

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of Ctrl-C this process hears by the one that began it
    _solve_few(PCC, n_clusters)


def _solve_few(method: Any, n_clusters: int) -> None:
    """Solve a small ensemble, which needs all kernels of a solve but that of steps over several blocks."""
    import numpy as np

    few = np.random.default_rng(0).integers(-1, 3, (200, 10), dtype=np.int8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        method(n_clusters, random_state=0).fit(few)


class Meter:
    """Measures a ``with`` block: ``seconds`` of wall-clock time and ``peak_memory`` in bytes.

    Peak memory is the highest resident memory of the process, sampled by a thread every 10 ms. It includes
    the interpreter, the libraries and whatever earlier steps still hold.
    """

    seconds: float
    peak_memory: int

    def __enter__(self) -> Meter:
        import psutil

        self._memory_info = psutil.Process().memory_info
        self.peak_memory = self._memory_info().rss
        self._done = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="bigcons-meter", daemon=True)
        self._watcher.start()
        self._began = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.seconds = time.perf_counter() - self._began
        self._done.set()
        self._watcher.join()

    def as_numbers(self, name: str) -> dict[str, Any]:
        """Return the measurements of the step ``name`` for JSON."""
        return {"name": name, "seconds": self.seconds, "peak_memory": self.peak_memory}

    def _watch(self) -> None:
        while not self._done.wait(0.01):
            self.peak_memory = max(self.peak_memory, self._memory_info().rss)


# The report


def _report(result: dict[str, Any], folder: Path) -> str:
    """Lay out the result as text."""
    data = {"planted": "Simulated data", "kddcup99": "KDD Cup 1999"}[result["data"]]
    setting = (
        f"{data}: {result['n_objects']:,} objects, {result['n_partitions']} k-means partitions of\n"
        f"random halves into 2 to 10 clusters, at most {result['n_clusters']} consensus clusters."
    )
    figure = result["left_out"] or f"Figure: {folder / 'demo.png'}."
    files = (
        f"{figure}\nNumbers: {folder / RESULT}. To continue, for example:\n"
        f"  bigcons report {folder / 'consensus.zarr'} --ensemble {folder / 'ensemble.zarr'} -o demo.html\n"
        f"  bigcons solve {folder / 'ensemble.zarr'} -m hbgf -k {result['n_clusters']} "
        f"-o {folder / 'hbgf.zarr'}"
    )
    return "\n\n".join([setting, _table(result), _notes(result), files])


def _table(result: dict[str, Any]) -> str:
    rows = [{"": "base partitions", "H": f"{result['base_accuracy']:.3f}"}]
    for step in result["solves"] + result["steps"]:
        rows.append(
            {
                "": step["name"],
                "seconds": f"{step['seconds']:.2f}",
                "peak memory": format_size(step["peak_memory"]),
            }
        )
        if "accuracy" in step:
            tiny = step["n_tiny_clusters"]
            rows[-1] |= {
                "H": f"{step['accuracy']:.3f}",
                "ARI": f"{step['adjusted_rand']:.3f}",
                "clusters": f"{step['n_clusters']}" + (f" ({tiny} tiny)" if tiny else ""),
            }
    return table(COLUMNS, rows)


def _notes(result: dict[str, Any]) -> str:
    has_tiny = any(step["n_tiny_clusters"] for step in result["solves"])
    tiny = "Tiny: of less than a tenth of the mean size.\n" if has_tiny else ""
    return (
        "H: share of objects in the correct cluster (for base partitions: of the objects they saw,\n"
        f"averaged; .79 in the paper, on KDD Cup 1999). ARI: adjusted Rand index. {tiny}Peak memory: of\n"
        "the whole process during the step, sampled every 10 ms."
    )
