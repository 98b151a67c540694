"""``bigcons demo``: the main job on built-in data, compared with the published results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from bigcons.cli.experiment import N_OBJECTS, N_STARTS, PAPER_BASE_ACCURACY, Settings, run
from bigcons.cli.options import random_state_option
from bigcons.cli.output import amount, emit, reporting, table
from bigcons.errors import StoreExistsError
from bigcons.memory import format_size

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
@click.option("--size", type=click.IntRange(min=100), default=N_OBJECTS, show_default=True, help="Objects.")
@click.option(
    "-k",
    "--n-clusters",
    type=click.IntRange(min=2),
    default=3,
    show_default=True,
    help="Clusters, at most.",
)
@click.option(
    "-o", "--out", default="bigcons-demo", show_default=True, metavar="FOLDER", help="Folder for the results."
)
@click.option("--overwrite", is_flag=True, help="Write to a folder that holds other files.")
@random_state_option
@reporting
def command(
    data: str, data_dir: str | None, size: int, n_clusters: int, out: str, overwrite: bool, random_state: int
) -> None:
    """Run the main job on simulated or real data.

    This is the large-scale experiment of Lourenço et al. 2015: 100 k-means partitions of random halves of
    120,000 objects, and their consensus over a sample of the pairs, as in the paper, and over all pairs. A
    table compares the results with the published ones. A repeated run replaces its own results.
    """
    folder = _folder(Path(out), overwrite)
    settings = Settings(data, data_dir, size, n_clusters, random_state)
    (folder / RESULT).write_text(
        json.dumps(settings._asdict()), encoding="utf-8"
    )  # so that a rerun finds its own
    result = run(settings, folder)
    (folder / RESULT).write_text(json.dumps(result, indent=1), encoding="utf-8")
    emit({**result, "folder": str(folder)}, _report(result, folder))


def _folder(folder: Path, overwrite: bool) -> Path:
    """Return the output folder, created if necessary; refuse one that holds files of anything but a demo."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / RESULT).exists() and not overwrite:
        raise StoreExistsError(
            f"{folder} holds other files; choose another folder or pass --overwrite.", path=folder
        )
    folder.mkdir(parents=True, exist_ok=True)
    return folder


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
    base = {
        "": "base partitions",
        "H": f"{result['base_accuracy']:.3f}",
        "paper: H": f"{PAPER_BASE_ACCURACY:.2f}",
    }
    return table(COLUMNS, [base, *map(_solve_row, result["solves"]), *map(_step_row, result["steps"])])


def _solve_row(solve: dict[str, Any]) -> dict[str, str]:
    paper = solve["paper_seconds"]
    return _step_row(solve) | {
        "H": f"{solve['accuracy']:.3f}",
        "ARI": f"{solve['adjusted_rand']:.3f}",
        "clusters": f"{solve['n_clusters']}",
        "paper: seconds": f"{paper:.1f}" if paper else "",
    }


def _step_row(step: dict[str, Any]) -> dict[str, str]:
    return {
        "": step["name"],
        "seconds": f"{step['seconds']:.2f}",
        "peak memory": format_size(step["peak_memory"]),
    }


def _notes(result: dict[str, Any]) -> str:
    n_different = round((1 - result["starts_agreement"]) * result["n_objects"])
    labels = f"labels that differ on {amount(n_different, 'object')}" if n_different else "the same labels"
    return (
        f"All pairs, {N_STARTS} random starts: {labels}, up to renaming of the clusters.\n"
        "Sampled pairs: Algorithm 1 of the paper, stopped after objects x clusters steps, as there.\n"
        "H: share of objects in the correct cluster (for base partitions: of the objects they saw,\n"
        "averaged). ARI: adjusted Rand index. Peak memory: of the whole process during the step,\n"
        "sampled every 10 ms. Paper: Lourenço et al. 2015, 120,000 objects of KDD Cup 1999, sampled\n"
        "pairs, one 2.8 GHz core."
    )
