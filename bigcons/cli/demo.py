"""``bigcons demo``: the large-scale experiment of Lourenço et al. 2015, compared with the published results.

120,000 objects of three classes; 100 k-means partitions, each splitting a random half of the objects
into 2 to 10 clusters; consensus by PCC, over sampled pairs as in the paper and over all pairs, and by the
tree.
"""

from __future__ import annotations

import json
import threading
import time
import warnings
from pathlib import Path
from types import TracebackType
from typing import Any

import click

from bigcons.cli.options import random_state_option
from bigcons.cli.output import amount, emit, reporting, table
from bigcons.errors import ConvergenceWarning, StoreExistsError
from bigcons.memory import format_size
from bigcons.storage.places import disk_errors

N_STARTS = 3

AS_IN_PAPER: dict[str, Any] = {"solver": "heap", "max_iter": "paper"}
"""How pairs are solved."""

PAPER_SECONDS = {"l2": 13.8, "kl": 16.7}

RESULT = "demo.json"
COLUMNS = ["", "H", "ARI", "clusters", "seconds", "peak memory", "paper: H", "paper: seconds"]


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
    """Run the large experiment of the PCC paper.

    This is the one of Lourenço et al. 2015, on simulated or real data: 100 k-means partitions of random
    halves of 120,000 objects, and their consensus by PCC, over a sample of the pairs as in the paper and over
    all pairs, and by the consensus tree, the default of the other commands. A table compares the results with
    the published ones. A run that was interrupted
    resumes; a finished one is replaced.
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

    from bigcons import PCC, Consensus, ConsensusTree, coassociation, datasets, generate, metrics, plots

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
            train="all",  # as in the paper
            out=str(folder / "ensemble.zarr"),
            random_state=random_state,
            overwrite=overwrite,
        )
    del features

    with Meter() as compiling, warnings.catch_warnings():  # so that no timed solve includes compilation
        warnings.simplefilter("ignore", ConvergenceWarning)
        few = ensemble.read(0, min(ensemble.n_objects, 200))
        few_pairs = coassociation.sample(few, per_object=10, random_state=0)
        PCC(n_clusters, random_state=0).fit(few)
        ConsensusTree(n_clusters, random_state=0).fit(few)
        for divergence in PAPER_SECONDS:
            PCC(n_clusters, pairs=few_pairs, divergence=divergence, random_state=0, **AS_IN_PAPER).fit(few)
    with Meter() as sampling:
        per_object = min(30.0, ensemble.n_objects - 1)  # the paper's 0.025 % of all pairs of 120,000 objects
        pairs = coassociation.sample(ensemble, per_object=per_object, random_state=random_state)

    def solve(
        name: str, paper_seconds: float | None, method: Any = PCC, **options: Any
    ) -> tuple[Any, dict[str, Any]]:
        with Meter() as meter, warnings.catch_warnings():
            if paper_seconds is not None:  # the paper's limit on steps is reached before the tolerance
                warnings.simplefilter("ignore", ConvergenceWarning)
            model = method(n_clusters, **options).fit(ensemble)
        return model, {
            **meter.as_numbers(name),
            "accuracy": metrics.matching_accuracy(truth, model.labels_),
            "adjusted_rand": metrics.adjusted_rand(truth, model.labels_),
            "n_clusters": model.n_clusters_,
            "n_tiny_clusters": model.n_tiny_clusters_,
            "converged": getattr(model, "converged_", True),
            "paper_seconds": paper_seconds,
        }

    starts = [
        solve(
            f"all pairs, l2, start {start + 1}",
            None,
            coassociation="paper",
            random_state=random_state + start,
        )
        for start in range(N_STARTS)
    ]
    of_pairs = {"pairs": pairs, "random_state": random_state, **AS_IN_PAPER}
    sampled = [
        solve(f"sampled pairs, {name.replace('kl', 'KL')}", seconds, divergence=name, **of_pairs)
        for name, seconds in PAPER_SECONDS.items()
    ]
    tree = solve("consensus tree", None, ConsensusTree, random_state=random_state)
    model = starts[0][0]
    Consensus.from_estimator(
        folder / "consensus.zarr", model, provenance={"ensemble": "ensemble.zarr"}, overwrite=True
    )
    labels = ensemble.read(0, ensemble.n_objects)
    base = [metrics.matching_accuracy(truth, labels[:, u]) for u in range(ensemble.n_partitions)]
    solves = [numbers for _, numbers in (*starts, *sampled, tree)]
    shown = {
        numbers["name"].replace(", start 1", ""): numbers["accuracy"]
        for numbers in (solves[0], *solves[N_STARTS:])
    }
    plots.overview(ensemble, model, base, shown).savefig(folder / "demo.png")
    return {
        "n_objects": ensemble.n_objects,
        "n_partitions": ensemble.n_partitions,
        "n_pairs": pairs.n_pairs,
        "base_accuracy": sum(base) / len(base),
        "solves": solves,
        "starts_agreement": min(
            metrics.matching_accuracy(model.labels_, other.labels_) for other, _ in starts[1:]
        ),
        "steps": [
            generating.as_numbers("generating the partitions"),
            compiling.as_numbers("compiling or loading kernels"),
            sampling.as_numbers("counting the sampled pairs"),
        ],
    }


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
        f"random halves into 2 to 10 clusters, {result['n_pairs']:,} sampled pairs, at most\n"
        f"{result['n_clusters']} consensus clusters."
    )
    files = (
        f"Figure: {folder / 'demo.png'}; numbers: {folder / RESULT}. To continue, for example:\n"
        f"  bigcons solve {folder / 'ensemble.zarr'} -k 5 -o {folder / 'five.zarr'}\n"
        f"  bigcons score {folder / 'five.zarr'} --truth {folder / 'truth.npy'}"
    )
    return "\n\n".join([setting, _table(result), _notes(result), files])


def _table(result: dict[str, Any]) -> str:
    base, paper = f"{result['base_accuracy']:.3f}", "0.79"
    rows = [{"": "base partitions", "H": base, "paper: H": paper}]
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
                "paper: seconds": f"{step['paper_seconds']:.1f}" if step["paper_seconds"] else "",
            }
    return table(COLUMNS, rows)


def _notes(result: dict[str, Any]) -> str:
    n_different = round((1 - result["starts_agreement"]) * result["n_objects"])
    labels = f"labels that differ on {amount(n_different, 'object')}" if n_different else "the same labels"
    has_tiny = any(step["n_tiny_clusters"] for step in result["solves"])
    tiny = "Tiny: of less than a tenth of the mean size.\n" if has_tiny else ""
    return (
        f"PCC over all pairs, {N_STARTS} random states: {labels}, up to renaming of the clusters.\n"
        "Sampled pairs: Algorithm 1 of the paper, stopped after objects x clusters steps, as there.\n"
        "H: share of objects in the correct cluster (for base partitions: of the objects they saw,\n"
        f"averaged). ARI: adjusted Rand index. {tiny}Peak memory: of the whole process during the step,\n"
        "sampled every 10 ms. Paper: Lourenço et al. 2015, 120,000 objects of KDD Cup 1999, sampled pairs,\n"
        "one 2.8 GHz core."
    )
