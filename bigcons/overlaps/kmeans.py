"""K-means of embedded objects: scikit-learn on a sample, then passes over the blocks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigcons.errors import ConvergenceWarning, warn_user
from bigcons.execution.engine import Engine
from bigcons.execution.fold import fold
from bigcons.memory import Block
from bigcons.overlaps.embedding import Embedding, best_kmeans, n_different_rows
from bigcons.progress import progress
from bigcons.seeding import generator
from bigcons.solving.loop import History, as_history, run_passes
from bigcons.stores.ensemble import Ensemble
from bigcons.validation import check_int, check_number

# Objects that k-means begins on; if there are no more, it ends there.
SAMPLE = 20_000


class KMeansSettings(NamedTuple):
    """What the user says of the k-means of an embedding."""

    n_clusters: int
    n_init: int
    max_iter: int
    tol: float

    def check(self) -> None:
        """Refuse what makes no sense."""
        check_int("n_init", self.n_init)
        check_int("max_iter", self.max_iter)
        check_number("tol", self.tol, at_least=0.0)


class Centers(NamedTuple):
    """Centers of k-means in an embedding, and how they were found."""

    embedding: Embedding
    centers: np.ndarray
    """(K, columns) float64."""
    objective: float
    """Sum of the squared distances of all rows to their centers."""
    history: History
    n_passes: int
    start_objectives: list[float]
    """The squared distances of every start, on the sample."""

    def labels_of(self, labels: np.ndarray) -> np.ndarray:
        """Return the clusters (rows,) int32 of objects by their base labels, -1 without any."""
        return _assign(*self.embedding.rows_of(labels), self.centers)[0]


class _Sums(NamedTuple):
    rows: np.ndarray
    sizes: np.ndarray
    inertia: float

    def plus(self, other: _Sums) -> _Sums:
        return _Sums(self.rows + other.rows, self.sizes + other.sizes, self.inertia + other.inertia)


def find_centers(
    embedding: Embedding,
    ensemble: Ensemble,
    sample: np.ndarray,
    extra: np.ndarray,
    settings: KMeansSettings,
    seed: int,
    engine: Engine,
) -> Centers:
    """Return the centers of k-means over all objects with a label and the rows ``extra`` (rows, columns).

    The ``sample`` of label rows is clustered by scikit-learn. If it is not all objects, Lloyd passes over the
    blocks go on from there, until the squared moves of the centers add up to no more than ``tol`` times the
    mean variance of the columns. Clusters that lose all objects keep their center.
    """
    rows, labeled = embedding.rows_of(sample)
    rows = np.concatenate([rows[labeled], extra])
    share = ensemble.n_objects / len(sample)
    weights = np.repeat([share, 1.0], [len(rows) - len(extra), len(extra)])
    first, objectives = best_kmeans(
        rows,
        min(settings.n_clusters, n_different_rows(rows)),
        settings.n_init,
        int(generator(seed, "embedding.kmeans").integers(2**31)),
        weights,
        max_iter=settings.max_iter,
        tol=settings.tol,
    )
    if len(sample) == ensemble.n_objects:
        history = {"pass": [first.n_iter_], "objective": [first.inertia_]}
        return Centers(embedding, first.cluster_centers_, float(first.inertia_), history, 0, objectives)
    threshold = settings.tol * float(np.var(rows, axis=0).mean())
    found = _pass_on(embedding, ensemble, extra, first.cluster_centers_, threshold, settings, engine)
    return found._replace(start_objectives=objectives)


def _pass_on(
    embedding: Embedding,
    ensemble: Ensemble,
    extra: np.ndarray,
    centers: np.ndarray,
    threshold: float,
    settings: KMeansSettings,
    engine: Engine,
) -> Centers:
    """Make Lloyd passes from the given centers; the result has the centers that the last pass judged."""
    judged, records, move = centers, [], np.inf

    def one_pass(_number: int) -> dict[str, float]:
        nonlocal centers, judged, move
        judged = centers
        found = _sums_over(embedding, ensemble, extra, judged, engine)
        centers = judged.copy()
        kept = found.sizes > 0
        centers[kept] = found.rows[kept] / found.sizes[kept, None]
        move = float(((centers - judged) ** 2).sum())
        return {"objective": found.inertia, "move": move}

    for record in run_passes(one_pass, max_passes=settings.max_iter, what="k-means of the embedding"):
        records.append(record)
        if move <= threshold:
            break
    else:
        warn_user(
            f"k-means stopped at max_iter={settings.max_iter} while its centers still moved; raise max_iter "
            "or tol if the labels still change.",
            ConvergenceWarning,
        )
    return Centers(embedding, judged, records[-1]["objective"], as_history(records), len(records), [])


def _sums_over(
    embedding: Embedding, ensemble: Ensemble, extra: np.ndarray, centers: np.ndarray, engine: Engine
) -> _Sums:
    def visit(block: Block) -> _Sums:
        return _assign(*embedding.rows_of(ensemble.read(block.start, block.stop)), centers)[1]

    with progress("k-means of the embedding", ensemble.n_objects) as listener:
        found = fold(engine, ensemble.blocks(), visit, _Sums.plus, progress=listener)
    return found.plus(_assign(extra, np.ones(len(extra), bool), centers)[1])


def _assign(rows: np.ndarray, counted: np.ndarray, centers: np.ndarray) -> tuple[np.ndarray, _Sums]:
    from bigcons.kernels.overlaps import nearest_centers

    assigned = np.empty(len(rows), np.int32)
    sums, sizes = np.zeros_like(centers), np.zeros(len(centers))
    inertia = nearest_centers(rows, counted, centers, assigned, sums, sizes)
    return assigned, _Sums(sums, sizes, inertia)
