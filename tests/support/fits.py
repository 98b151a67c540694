"""Fits without a word, and what of a fitted model has to have the same bits however it was fitted."""

import warnings

import numpy as np

from bigcons.errors import ConsensusWarning, ConvergenceWarning, UnlabeledObjectsWarning


def quiet(model, x, **others):
    """Fit without warnings of convergence, of objects without labels and of what an ensemble looks like."""
    with warnings.catch_warnings():
        for warning in (ConsensusWarning, ConvergenceWarning, UnlabeledObjectsWarning):
            warnings.simplefilter("ignore", warning)
        return model.fit(x, **others)


def bits(model):
    """Return labels, memberships, history, objective, starts and dendrogram of a fitted model."""
    memberships = np.asarray(model.memberships_).tobytes() if model.info.soft else b""
    history = {name: values for name, values in model.history_.items() if name not in ("seconds", "memory")}
    tree = model.linkage_.tobytes() if hasattr(model, "linkage_") else b""
    starts = getattr(model, "start_objectives_", None)
    return np.asarray(model.labels_).tobytes(), memberships, history, model.objective_, starts, tree
