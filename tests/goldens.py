"""The public calls whose answers ``goldens.json`` records; ``python -m tests.goldens`` records them anew."""

import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import bigcons as bc

PATH = Path(__file__).with_name("goldens.json")


def planted(n_clusters, n_objects, n_partitions, errors, gaps):
    """Labels (n_objects, n_partitions) of equal clusters, with errors, gaps and pairs of merged clusters."""
    rng = np.random.default_rng(n_clusters)
    truth = np.arange(n_objects) % n_clusters
    columns = []
    for partition in range(n_partitions):
        merged = np.arange(n_clusters)
        if n_clusters > 2 and partition % 3 == 0:
            merged[rng.integers(1, n_clusters)] = 0
        labels = rng.permutation(n_clusters)[merged[truth]]
        labels = np.where(rng.random(n_objects) < errors, rng.integers(0, n_clusters, n_objects), labels)
        columns.append(np.where(rng.random(n_objects) < gaps, -1, labels))
    return np.column_stack(columns)


ENSEMBLES = {
    "clear": (3, planted(3, 150, 9, 0.05, 0.1)),
    "noisy": (4, planted(4, 200, 12, 0.25, 0.3)),
    "many": (12, planted(12, 360, 15, 0.1, 0.0)),
}
SPECTRAL = {"cspa", "hgpa", "hbgf", "mcla", "ccsvd", "kmeans", "supra"}
"""Methods whose labels depend on how eigenvectors are found or what k-means starts from."""

SLOW = {"bce-gibbs", "greedy-anmi", "best", "furthest", "supra"}  # asked on one ensemble


def noisy_features(n_clusters, n_objects):
    """Features (n_objects, 4) of Gaussian clusters, those of `planted`."""
    noise = np.random.default_rng(0).normal(size=(n_objects, 4))
    return noise + 4 * (np.arange(n_objects) % n_clusters)[:, None]


FEATURES = noisy_features(3, 300)


def numbered(labels):
    """Labels as a string that does not depend on how clusters are numbered; unlabeled objects are dots."""
    labels = np.asarray(labels)
    order = list(dict.fromkeys(labels[labels >= 0].tolist()))
    return "".join("." if label < 0 else chr(ord("A") + order.index(label)) for label in labels)


def of_methods():
    """Labels of each method on each ensemble, and its objective where it has one that is compared."""
    answers: dict[str, Any] = {}
    for name, method in bc.METHODS.items():
        for of, (n_clusters, labels) in ENSEMBLES.items():
            if name in SLOW and of != "clear":
                continue
            options = {"features": noisy_features(n_clusters, len(labels))} if name == "did" else {}
            model = method(n_clusters, random_state=0, **options).fit(labels)
            answers[f"{name} {of}"] = {"labels": numbered(model.labels_)}
            objective = getattr(model, "objective_", None)
            if objective is not None and name not in SPECTRAL:
                answers[f"{name} {of}"]["objective"] = float(objective)
    return answers


def of_calls():
    """Labels and numbers of the calls beside the methods."""
    n_clusters, labels = ENSEMBLES["clear"]
    answers: dict[str, Any] = {}
    answers["auto"] = {"labels": numbered(bc.consensus(labels, "auto", random_state=0).labels_)}
    answers["n_clusters"] = {"value": int(bc.choose_n_clusters(labels, random_state=0).n_clusters)}
    for divergence in ("l2", "kl"):
        model = bc.PCC(n_clusters, divergence=divergence, random_state=0).fit(labels)
        answers[f"pcc {divergence}"] = {"labels": numbered(model.labels_)}
    model = bc.PCC(n_clusters, pairs=0.3, random_state=0).fit(labels)
    answers["pcc pairs"] = {"labels": numbered(model.labels_)}
    with tempfile.TemporaryDirectory() as folder:
        for form in ("zarr", "parquet"):
            store = Path(folder) / f"e.{form}"
            bc.Ensemble.from_labels(labels).save(store)
            out = Path(folder) / f"c.{form}"
            model = bc.PCC(n_clusters, random_state=0).fit(store, out=str(out) if form == "zarr" else None)
            answers[f"pcc {form}"] = {"labels": numbered(model.labels_)}
    for generator in ("mixed", "landmarks", "kmeans"):
        ensemble = getattr(bc.generate, generator)(FEATURES, n_partitions=20, random_state=0)
        answers[f"generate.{generator}"] = {
            "labels": numbered(bc.consensus(ensemble, 3, random_state=0).labels_)
        }
    model = bc.ConsensusClustering(3, random_state=0).fit(FEATURES)
    answers["ConsensusClustering"] = {"labels": numbered(model.labels_)}
    return answers


REFUSED = {
    "no cluster": lambda: bc.consensus(ENSEMBLES["clear"][1], 0),
    "more clusters than objects": lambda: bc.PCC(99).fit(ENSEMBLES["clear"][1][:9]),
    "an unknown method": lambda: bc.consensus(ENSEMBLES["clear"][1], 3, method="treee"),
    "no labels": lambda: bc.consensus(np.empty((0, 3), int), 2),
    "an object that nobody labels": lambda: bc.Ensemble.from_labels(np.full((4, 2), -1)),
    "fractions": lambda: bc.consensus(np.random.default_rng(0).normal(size=(9, 3)), 2),
    "a file that is not there": lambda: bc.consensus("no-such-file.csv", 2),
    "a folder that is no store": lambda: bc.Ensemble.open(tempfile.gettempdir()),
    "too little memory": lambda: bc.PCC(3, memory="1kB").fit(ENSEMBLES["clear"][1]),
    "not fitted": lambda: bc.PCC(3).predict(ENSEMBLES["clear"][1]),
    "a divergence that is none": lambda: bc.PCC(3, divergence="cosine").fit(ENSEMBLES["clear"][1]),
    "ragged rows": lambda: bc.Ensemble.from_labels([[0, 1], [0]]),
}


def of_refusals():
    """The class of the error of each wrong call."""
    answers: dict[str, Any] = {}
    for name, call in REFUSED.items():
        try:
            call()
        except (bc.errors.BigconsError, OSError, ValueError, TypeError) as error:
            answers[name] = {"error": type(error).__name__, "lines": len(str(error).splitlines())}
        else:
            answers[name] = {"error": None}
    return answers


def record():
    """Return the answers of all calls."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {"methods": of_methods(), "calls": of_calls(), "refusals": of_refusals()}


if __name__ == "__main__":
    PATH.write_text(json.dumps(record(), indent=1) + "\n")
