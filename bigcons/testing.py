"""Checks for those who write a method: that it keeps what every method of bigcons promises."""

from __future__ import annotations

import pickle
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from bigcons import errors
from bigcons.methods.base import ConsensusClusterer, MethodInfo
from bigcons.metrics import adjusted_rand
from bigcons.run.engine import ThreadsEngine
from bigcons.store.consensus import Consensus
from bigcons.store.ensemble import Ensemble

__all__ = ["check_method"]


def check_method(method: type[ConsensusClusterer], *, least_rand: float = 0.9, **parameters: Any) -> None:
    """Check that a method keeps what every method of bigcons promises.

    It is fitted to planted labels of 50 objects in three clusters and 12 partitions, a tenth of them wrong
    and a fifth missing, and has to: find the clusters; set results of the stated shapes, types and numbers;
    repeat them for a seed, when fitted again, on any engine, and after a pickle; give an object -1 if and
    only if no partition labels it, and say so; leave parameters and labels alone; store what it returns in
    memory; and place new objects, if it places any, by the store as before. It takes seconds.

    Parameters
    ----------
    method : subclass of ConsensusClusterer
        The method, registered or not.
    least_rand : float, default=0.9
        Adjusted Rand index with the planted clusters that its labels have to exceed.
    **parameters
        Parameters that it cannot do without.

    Raises
    ------
    AssertionError
        Names the first promise that is not kept.

    Examples
    --------
    >>> import bigcons as bc
    >>> bc.testing.check_method(bc.METHODS["eac-average"])
    """

    def make(**changed: Any) -> Any:
        return method(**{"n_clusters": 3, "random_state": 0, **parameters, **changed})

    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=50)
    labels = np.where(rng.random((50, 12)) < 0.1, rng.integers(3, size=(50, 12)), truth[:, None])
    labels[rng.random(labels.shape) < 0.2] = -1
    fitted = _fit(make(), labels.copy())
    _check_results(fitted, labels)
    score = adjusted_rand(truth, fitted.labels_)
    _require(score > least_rand, f"finds the planted clusters, not at {score:.3f} <= {least_rand} of 1")
    _check_repeats(make(), labels, fitted)
    labels[[0, 30, 49]] = -1
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        _check_results(make().fit(labels), labels)
    has_warned = any(warning.category is errors.UnlabeledObjectsWarning for warning in warned)
    _require(has_warned, "warns of objects without a label (take_survey does)")
    with tempfile.TemporaryDirectory() as folder:
        ensemble = Ensemble.from_labels(labels).save(Path(folder, "ensemble.zarr"), chunk_rows=8)
        _check_stores(make, ensemble, Path(folder, "consensus.zarr"))


def _require(is_kept: Any, promise: str) -> None:
    if not is_kept:
        raise AssertionError(f"a method {promise}.")


def _fit(model: Any, x: Any, **options: Any) -> Any:
    """Fit without warnings of convergence, of objects without labels and of what an ensemble looks like."""
    with warnings.catch_warnings():
        for warning in (errors.ConsensusWarning, errors.ConvergenceWarning, errors.UnlabeledObjectsWarning):
            warnings.simplefilter("ignore", warning)
        return model.fit(x, **options)


def _bits(model: Any) -> tuple[Any, ...]:
    """Return labels, memberships, history, objective, starts and dendrogram of a fitted model."""
    memberships = np.asarray(model.memberships_).tobytes() if model.info.soft else b""
    history = {name: values for name, values in model.history_.items() if name not in ("seconds", "memory")}
    tree = model.linkage_.tobytes() if hasattr(model, "linkage_") else b""
    starts = getattr(model, "start_objectives_", None)
    return np.asarray(model.labels_).tobytes(), memberships, history, model.objective_, starts, tree


def _check_results(model: Any, labels: np.ndarray) -> None:
    n, K, codes, info = len(labels), model.n_clusters, model.labels_, model.info
    _require(isinstance(info, MethodInfo) and info.paper and info.needs, "says in info what it is and needs")
    _require((codes.shape, codes.dtype) == ((n,), np.int32), "sets labels_ (n_objects,) int32")
    is_labeled = (labels >= 0).any(axis=1)
    _require(((codes >= 0) == is_labeled).all(), "labels an object if and only if a partition does")
    sizes = np.bincount(codes[is_labeled])
    _require((np.diff(sizes) <= 0).all() and sizes.all(), "numbers clusters from 0, largest first")
    _require(model.n_clusters_ == sizes.size <= K, "sets n_clusters_, at most n_clusters")
    _require(hasattr(model, "memberships_") == info.soft, "has memberships_ if and only if info.soft")
    if info.soft:
        soft = model.memberships_
        _require((soft.shape, soft.dtype) == ((n, K), np.float32), "has memberships_ (n_objects, K) float32")
        _require((soft >= 0).all() and np.allclose(soft.sum(1), 1, 0, 1e-6), "has memberships that sum to 1")
        _require((codes == soft.argmax(axis=1))[is_labeled].all(), "labels objects by the largest membership")
        _require((soft[~is_labeled] == np.float32(1 / K)).all(), "has uniform memberships of the unlabeled")
    _require(np.isfinite(model.objective_), "sets a finite objective_")
    lengths = {len(values) for values in model.history_.values()}
    _require(len(lengths) == 1 and lengths != {0}, "sets history_, lists of one length")


def _check_repeats(model: Any, labels: np.ndarray, fitted: Any) -> None:
    params, original, bits = model.get_params(), labels.copy(), _bits(fitted)
    _require(_bits(_fit(model, labels)) == bits, "has the same results for the same seed")
    _require((labels == original).all(), "does not change the labels given")
    _require(_bits(_fit(model, labels)) == bits, "has the same results when it is fitted again")
    _require(model.get_params() == params, "does not change its parameters")
    restored, copy = pickle.loads(pickle.dumps(fitted)), clone(fitted)  # noqa: S301 - its own
    _require(_bits(restored) == bits and restored.get_params() == params, "comes back whole from a pickle")
    _require(copy.get_params() == params and not hasattr(copy, "labels_"), "has clones to be fitted")
    coarse = _fit(copy.set_params(n_clusters=2), np.minimum(labels, 1))
    _require(coarse.labels_.max() <= 1, "finds no more clusters than set_params asks for")


def _check_stores(make: Callable[..., Any], ensemble: Ensemble, path: Path) -> None:
    expected = _fit(make(client="serial"), ensemble)
    threaded, stored = _fit(make(client=ThreadsEngine(3)), ensemble), _fit(make(), ensemble, out=path)
    _require(_bits(threaded) == _bits(expected), "has the same results on all engines")
    _require(_bits(stored) == _bits(expected), "has the same results with out= as in memory")
    store, soft = Consensus.open(path), expected.info.soft
    _require(np.array_equal(store.labels, expected.labels_), "stores its labels")
    _require(store.has_memberships == soft, "stores memberships if and only if it has them")
    _require(not soft or np.array_equal(store.memberships, expected.memberships_), "stores its memberships")
    _require(store.results["objective"] == expected.objective_, "stores its objective")
    if hasattr(expected, "predict"):
        placed, is_labeled = expected.predict(ensemble), expected.labels_ >= 0
        _require((placed.shape, placed.dtype) == (is_labeled.shape, np.int32), "predicts int32 labels")
        _require(((placed >= 0) == is_labeled).all(), "predicts -1 of objects without a label, only of them")
        model = _fit(make(), ensemble, out=path)  # which is found there
        _require(np.array_equal(model.predict(ensemble), placed), "places new objects by its store as before")


def __dir__() -> list[str]:
    return sorted(__all__)
