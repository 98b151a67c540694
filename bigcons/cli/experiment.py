"""The large-scale experiment of Lourenço et al. 2015, as ``bigcons demo`` runs it.

120,000 objects of three classes; 100 k-means partitions, each of a random half of the objects into 2 to
10 clusters; consensus over sampled pairs, as in the paper, and over all pairs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bigcons.cli.meter import Meter
from bigcons.errors import ConvergenceWarning

if TYPE_CHECKING:
    import numpy as np

N_OBJECTS = 120_000
N_PARTITIONS = 100
PAIRS_PER_OBJECT = 30.0
"""The paper's share of pairs, 0.25 permille, at its number of objects."""
N_STARTS = 3

PAPER_SECONDS = {"l2": 13.8, "kl": 16.7}
PAPER_BASE_ACCURACY = 0.79


class Settings(NamedTuple):
    """What a user may choose."""

    data: str
    data_dir: str | None
    n_objects: int
    n_clusters: int
    random_state: int


def run(settings: Settings, folder: Path) -> dict[str, Any]:
    """Run the experiment, leave its stores and figure in ``folder`` and return its numbers."""
    import numpy as np

    from bigcons import coassociation, generate

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
    _store(folder, model)
    base = _base_accuracy(ensemble, truth)
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
            generating.as_numbers("making the partitions"),
            compiling.as_numbers("compiling or loading kernels"),
            sampling.as_numbers("counting the sampled pairs"),
        ],
    }


class Solve(NamedTuple):
    """A fitted model and what was measured of it."""

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
    """Solve a few objects in every way, so that no timed solve waits for the compiler."""
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
    """Solve over all pairs from several random starts, then over the sampled pairs as the paper does."""
    from bigcons import PCC

    def solve(name: str, paper_seconds: float | None, **options: Any) -> Solve:
        model = PCC(settings.n_clusters, **options)
        return _measured(name, paper_seconds, model, ensemble, truth)

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
                divergence=divergence,
                random_state=seed,
            )
            for divergence in PAPER_SECONDS
        ),
    ]


def _measured(name: str, paper_seconds: float | None, model: Any, ensemble: Any, truth: np.ndarray) -> Solve:
    """Fit the model and measure what that takes and how good it is."""
    from bigcons import metrics

    with Meter() as meter:
        model = model.fit(ensemble) if paper_seconds is None else _quietly(model.fit, ensemble)
    numbers = {
        **meter.as_numbers(name),
        "accuracy": metrics.matching_accuracy(truth, model.labels_),
        "adjusted_rand": metrics.adjusted_rand(truth, model.labels_),
        "n_clusters": model.n_clusters_,
        "converged": model.converged_,
        "paper_seconds": paper_seconds,
    }
    return Solve(model, numbers)


def _quietly(fit: Callable[[Any], Any], x: Any) -> Any:
    """Fit without a warning where the paper's allowance of steps ends before the tolerance is met."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fit(x)


def _base_accuracy(ensemble: Any, truth: np.ndarray) -> list[float]:
    """Return the accuracy of every partition on the objects it labels."""
    from bigcons import metrics

    labels = ensemble.read(0, ensemble.n_objects)
    return [metrics.matching_accuracy(truth, labels[:, u]) for u in range(ensemble.n_partitions)]


def _agreement(labelings: list[np.ndarray]) -> float:
    """Return the smallest share of objects on which a labeling agrees with the first, up to renaming."""
    from bigcons import metrics

    first, *others = labelings
    return min(metrics.matching_accuracy(first, other) for other in others)


def _store(folder: Path, model: Any) -> None:
    from bigcons import Consensus

    Consensus.from_estimator(
        folder / "consensus.zarr", model, provenance={"ensemble": "ensemble.zarr"}, overwrite=True
    )


def _draw(path: Path, ensemble: Any, model: Any, base: list[float], solves: list[Solve]) -> None:
    from bigcons import plots

    shown = [solves[0], *solves[N_STARTS:]]
    accuracy = {solve.numbers["name"].replace(", start 1", ""): solve.numbers["accuracy"] for solve in shown}
    plots.overview(ensemble, model, base, accuracy).savefig(path)
