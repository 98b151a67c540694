"""The large-scale experiment of Lourenço et al. 2015, which ``bigcons demo`` runs, and its measurements.

120,000 objects of three classes; 100 k-means partitions, each of a random half of the objects into 2 to
10 clusters; consensus over sampled pairs, as in the paper, and over all pairs.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from bigcons.errors import ConvergenceWarning

if TYPE_CHECKING:
    import numpy as np

N_OBJECTS = 120_000
N_PARTITIONS = 100
PAIRS_PER_OBJECT = 30.0
"""The paper's 0.025 % of all pairs of 120,000 objects."""
N_STARTS = 3

PAPER_SECONDS = {"l2": 13.8, "kl": 16.7}
PAPER_BASE_ACCURACY = 0.79

METER_INTERVAL = 0.01


class Settings(NamedTuple):
    """The options of the experiment."""

    data: str
    data_dir: str | None
    n_objects: int
    n_clusters: int
    random_state: int


def run(settings: Settings, folder: Path) -> dict[str, Any]:
    """Run the experiment, write its stores and its figure to ``folder``, and return its numbers."""
    import numpy as np

    from bigcons import Consensus, coassociation, generate, metrics

    seed = settings.random_state
    features, truth = _data(settings)
    np.save(folder / "truth.npy", truth)
    with Meter() as generating:
        ensemble = generate.kmeans(
            features,
            n_partitions=N_PARTITIONS,
            n_clusters=(2, 10),
            sample=0.5,
            out=str(folder / "ensemble.zarr"),
            random_state=seed,
            overwrite=True,
        )
    del features
    with Meter() as compiling:
        _compile(ensemble, settings.n_clusters)
    with Meter() as sampling:
        per_object = min(PAIRS_PER_OBJECT, ensemble.n_objects - 1)
        pairs = coassociation.sample(ensemble, per_object=per_object, random_state=seed)
    solves = _solve_all(ensemble, pairs, truth, settings)
    model = solves[0].model
    Consensus.from_estimator(
        folder / "consensus.zarr", model, provenance={"ensemble": "ensemble.zarr"}, overwrite=True
    )
    labels = ensemble.read(0, ensemble.n_objects)
    base = [metrics.matching_accuracy(truth, labels[:, u]) for u in range(ensemble.n_partitions)]
    _draw(folder / "demo.png", ensemble, model, base, solves)
    return {
        **settings._asdict(),
        "n_objects": ensemble.n_objects,
        "n_partitions": ensemble.n_partitions,
        "n_pairs": pairs.n_pairs,
        "base_accuracy": sum(base) / len(base),
        "solves": [solve.numbers for solve in solves],
        "starts_agreement": _agreement([solve.model.labels_ for solve in solves[:N_STARTS]]),
        "steps": [
            generating.as_numbers("generating the partitions"),
            compiling.as_numbers("compiling or loading kernels"),
            sampling.as_numbers("counting the sampled pairs"),
        ],
    }


class Solve(NamedTuple):
    """A fitted model and its measurements."""

    model: Any
    numbers: dict[str, Any]


def _data(settings: Settings) -> tuple[Any, np.ndarray]:
    from bigcons import datasets

    if settings.data == "kddcup99":
        return datasets.kddcup99(
            settings.data_dir, n_objects=settings.n_objects, random_state=settings.random_state
        )
    return datasets.planted_features(settings.n_objects, random_state=settings.random_state)


def _compile(ensemble: Any, n_clusters: int) -> None:
    """Solve a few objects with every solver, so that no timed solve includes compilation."""
    from bigcons import PCC, coassociation

    labels = ensemble.read(0, min(ensemble.n_objects, 200))
    pairs = coassociation.sample(labels, per_object=10, random_state=0)
    options: list[dict[str, Any]] = [
        {"pairs": "all"},
        {"pairs": pairs, "solver": "heap"},
        {"pairs": pairs, "solver": "heap", "divergence": "kl"},
    ]
    for chosen in options:
        _quietly(PCC(n_clusters, random_state=0, **chosen).fit, labels)


def _solve_all(ensemble: Any, pairs: Any, truth: np.ndarray, settings: Settings) -> list[Solve]:
    """Solve over all pairs from several random starts, then over the sampled pairs as in the paper."""
    from bigcons import PCC, metrics

    def solve(name: str, paper_seconds: float | None, **options: Any) -> Solve:
        with Meter() as meter:
            fit = PCC(settings.n_clusters, **options).fit
            model: Any = fit(ensemble) if paper_seconds is None else _quietly(fit, ensemble)
        numbers = {
            **meter.as_numbers(name),
            "accuracy": metrics.matching_accuracy(truth, model.labels_),
            "adjusted_rand": metrics.adjusted_rand(truth, model.labels_),
            "n_clusters": model.n_clusters_,
            "converged": model.converged_,
            "paper_seconds": paper_seconds,
        }
        return Solve(model, numbers)

    seed = settings.random_state
    return [
        *(
            solve(f"all pairs, l2, start {start + 1}", None, pairs="all", random_state=seed + start)
            for start in range(N_STARTS)
        ),
        *(
            solve(
                f"sampled pairs, {divergence.replace('kl', 'KL')}",
                PAPER_SECONDS[divergence],
                pairs=pairs,
                solver="heap",
                max_iter="paper",
                divergence=divergence,
                random_state=seed,
            )
            for divergence in PAPER_SECONDS
        ),
    ]


def _quietly(fit: Callable[[Any], Any], x: Any) -> Any:
    """Fit without the warning that the paper's limit on steps was reached before the tolerance."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fit(x)


def _agreement(labelings: list[np.ndarray]) -> float:
    """Return the lowest share of objects on which a labeling agrees with the first, up to renaming."""
    from bigcons import metrics

    first, *others = labelings
    return min(metrics.matching_accuracy(first, other) for other in others)


def _draw(path: Path, ensemble: Any, model: Any, base: list[float], solves: list[Solve]) -> None:
    from bigcons import plots

    shown = [solves[0], *solves[N_STARTS:]]
    accuracy = {solve.numbers["name"].replace(", start 1", ""): solve.numbers["accuracy"] for solve in shown}
    plots.overview(ensemble, model, base, accuracy).savefig(path)


class Meter:
    """Measures a ``with`` block: ``seconds`` of wall-clock time and ``peak_memory`` in bytes.

    Peak memory is the highest resident memory of the whole process, sampled by a thread every 10 ms. It
    includes the interpreter, the libraries and whatever earlier steps still hold.
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
        while not self._done.wait(METER_INTERVAL):
            self.peak_memory = max(self.peak_memory, self._memory_info().rss)
