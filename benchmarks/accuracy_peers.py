"""Consensus methods of other packages for accuracy.py, each package in an environment of its own.

``install FOLDER [PACKAGE ...]`` makes an environment for each package, with the versions with which it runs
(several need an old Python: PYTHON of `PACKAGES`, found as ``python3.9`` and the like, or in ``--pythons``).
``serve PACKAGE``, run by the Python of that environment, answers requests on standard input until it closes.

Packages without missing labels get one more cluster for them in each partition, the only way in. "pce lwea"
(and lwgp, ecpcs_mc) fails where base clusters outnumber objects, and returns zeros: a refusal here.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

TIMEOUT = 60.0
"""Seconds a solve may take."""

PACKAGES = {
    "ensembleclustering": (
        "3.9",
        [["ensembleclustering==1.0.2", "numpy<1.23", "scipy==1.7.3", "scikit-learn<1.1"]],
        ["hbgf"],
    ),
    "pce": (
        "3.11",
        [
            ["numpy<2", "scikit-learn"],
            ["py-cluster-ensemble @ git+https://github.com/HeWenjun824699/py-cluster-ensemble", "--no-deps"],
        ],
        ["usenc", "lwea", "lwgp", "ecpcs_mc", "mdecbg"],
    ),
}
"""Python, requirements in the order of installing, and methods of each package."""

NOT_RUN = {
    "ensembleclustering mcla": "82 seconds for 1,000 objects",
    "ensembleclustering hgpa": "balanced cuts, ARI .06 to .16 where others reach .99",
    "ensembleclustering cspa, nmf": "2 and 5 seconds an ensemble",
    "pce drec, ptgp": "10 and 12 seconds an ensemble",
    "pce kcc_uc, kcc_uh": "bigcons' kcc has the same objectives",
    "pce cspa, mcla, hgpa": "its bundled programs cannot be executed; it returns zeros",
    "combo eac": "average linkage of the co-association as eac-average, at 3 seconds an ensemble",
    "combo align": "every partition must have as many clusters as the consensus",
    "tsml-eval": "the same, and its method is bigcons' ivc",
    "Cluster_Ensembles": "Python 2 code of 2015; needs replaced built-ins and the program gpmetis",
    "OpenEnsembles": "does not import with current versions; 12 to 36 seconds for 1,000 objects",
    "eschr": "no public entry for labels, and no number of clusters",
    "pyckmeans": "clusters features only",
    "consensusclustering": "clusters features only",
    "kemlglearn": "clusters features only",
    "clue, diceR": "R",
}


# ----------------------------------------------------------------------------- in the peer's environment


def solve_with(package: str, method: str, labels: Any, n_clusters: int, seed: int) -> Any:
    """Return the labels that a method of a package finds; ``labels`` (n, m) has -1 for missing."""
    import numpy as np

    np.random.seed(seed)  # noqa: NPY002 - what the packages draw from
    filled = labels.astype(int)
    for u in range(labels.shape[1]):
        filled[filled[:, u] < 0, u] = filled[:, u].max() + 1
        filled[:, u] = np.unique(filled[:, u], return_inverse=True)[1]
    if package == "ensembleclustering":
        from ensembleclustering import cluster_ensembles

        rows = np.where(labels < 0, np.nan, labels.astype(float)).T
        return cluster_ensembles(rows, nclass=n_clusters, solver=method, random_state=seed)
    if package == "pce":
        import importlib
        import types

        for name in ("pce", "pce.consensus"):  # their own imports need torch
            if name not in sys.modules:
                home = next(p for p in map(Path, sys.path) if (p / "pce").is_dir())
                sys.modules[name] = types.ModuleType(name)
                sys.modules[name].__path__ = [str(home.joinpath(*name.split(".")))]
        function = getattr(importlib.import_module(f"pce.consensus.{method}"), method)
        chosen = {"nClusters": n_clusters, "nBase": labels.shape[1], "nRepeat": 1, "seed": seed}
        clusters = np.asarray(function(filled, **chosen)[0][0]).ravel()
        if np.unique(clusters).size == 1:
            raise RuntimeError("one cluster: an exception of the method, turned into zeros")
        return clusters
    raise KeyError(package)


def peak_memory() -> int:
    """Return the most memory this process has held, in bytes (Linux)."""
    import resource

    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def serve(package: str) -> None:
    """Answer requests, one JSON object a line, with the path of the labels found or the error."""
    import numpy as np

    answers, sys.stdout = sys.stdout, sys.stderr  # packages print
    for line in sys.stdin:
        request = json.loads(line)
        try:
            labels = np.load(request["labels"])
            began, wall = time.process_time(), time.perf_counter()
            clusters = solve_with(package, request["method"], labels, request["n_clusters"], request["seed"])
            answer = {
                "error": None,
                "seconds": time.process_time() - began,
                "wall": time.perf_counter() - wall,
                "peak": peak_memory(),
            }
            np.save(request["found"], np.asarray(clusters).ravel().astype(np.int64))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:200]}
        print(json.dumps(answer), file=answers, flush=True)


# ---------------------------------------------------------------------------------- in the benchmark


class Peer:
    """A process in a package's environment, which solves one ensemble after another."""

    def __init__(self, package: str, folder: Path) -> None:
        self.package, self.python = package, folder / package / "bin" / "python"
        self.process: subprocess.Popen[str] | None = None
        self.scratch = tempfile.TemporaryDirectory()

    def solve(self, method: str, labels: Any, n_clusters: int, seed: int) -> Any:
        """Return labels and seconds of processor time."""
        import numpy as np

        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [self.python, __file__, "serve", self.package],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
            )
        labels_path, clusters_path = (Path(self.scratch.name) / name for name in ("labels.npy", "found.npy"))
        np.save(labels_path, labels)
        request = {"method": method, "labels": str(labels_path), "n_clusters": n_clusters, "seed": seed}
        print(json.dumps(request | {"found": str(clusters_path)}), file=self.process.stdin, flush=True)
        if not select.select([self.process.stdout], [], [], TIMEOUT)[0]:
            self.process.kill()
            self.process.wait()
            raise TimeoutError(f"not solved in {TIMEOUT:g} seconds")
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"its process ended with status {self.process.wait()}")
        answer = json.loads(line)
        if answer["error"]:
            raise RuntimeError(answer["error"])
        return np.load(clusters_path), answer["seconds"]


def solvers(folder: Path) -> dict[str, Any]:
    """Return the methods of the packages installed in a folder, by name.

    Each takes labels, the number of clusters and a seed, and returns labels and seconds of processor time.
    """
    return {
        f"{package} {method}": partial(peer.solve, method)
        for package, (_, _, methods) in PACKAGES.items()
        if (folder / package).exists()
        for peer in [Peer(package, folder)]
        for method in methods
    }


def install(folder: Path, packages: list[str], pythons: Path | None) -> None:
    for package in packages:
        version, requirements, _ = PACKAGES[package]
        paths = sorted(pythons.glob(f"{version}*/bin/python")) if pythons else []
        subprocess.run(
            [paths[-1] if paths else f"python{version}", "-m", "venv", folder / package], check=True
        )
        pip = [folder / package / "bin" / "pip", "install", "--quiet"]
        is_installed = all(subprocess.run([*pip, *of_one]).returncode == 0 for of_one in requirements)
        print(f"{package}: {'installed' if is_installed else 'not installed'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--smallest", action="store_true", help="name the packages and their methods")
    parser.add_argument("--pythons", type=Path, help="folder with a folder for each version of Python")
    parser.add_argument("command", nargs="?", choices=("install", "serve"))
    parser.add_argument("names", nargs="*", help="install: FOLDER [PACKAGE ...]; serve: PACKAGE")
    arguments = parser.parse_args()
    if arguments.command == "serve":
        serve(arguments.names[0])
    elif arguments.command == "install":
        install(Path(arguments.names[0]), arguments.names[1:] or list(PACKAGES), arguments.pythons)
    else:
        for package, (version, _, methods) in PACKAGES.items():
            print(f"{package} (Python {version}): {', '.join(methods)}")


if __name__ == "__main__":
    main()
