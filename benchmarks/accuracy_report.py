"""Tables and picture of the rows of accuracy.py.

Every ensemble ranks the contenders by adjusted Rand index (ARI), and says how far each is below the best of
all: its shortfall. Ensembles of one data set are not independent, so tests compare mean ARI on data sets:
Wilcoxon's signed-rank test, with Holm's correction for the number of comparisons. Slow contenders are run on
fewer seeds; hence up to two tables of each group: every contender on the ensembles that all have, and those
with most ensembles on these. Nothing is dropped without being named.

``--rows`` names the JSON lines; ``--write`` writes accuracy.json, .md, .png and .jsonl.gz of them to results,
and accuracy.labels.jsonl.xz of the labels of seed 0. ``--rescore`` scores the labels beside the rows
by another function of classes and clusters, such as sklearn.metrics.adjusted_mutual_info_score, and prints
means.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import lzma
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

RESULTS = Path(__file__).parent / "results"
NOISE = RESULTS / "accuracy_noise.json"
DEFAULT = "tree"
IN_DIAGRAM = 14
LEVEL = 0.05
ENOUGH = 0.8
"""Share of the ensembles that a contender must have to be in a table."""

INTRODUCTION = """# Accuracy of the methods

Mean scores of the rows of `accuracy.py`, which are in `accuracy.jsonl.gz`; the labels that every
contender found with seed 0 are in `accuracy.labels.jsonl.xz`, for other measures. Every contender gets
the labels, their rows in random order, and the number of classes; those named "auto", and "same in
every run", do not get the number. Defaults are chosen on the groups for choosing. Rank and shortfall,
the distance from the best contender of the table in ARI, are of single ensembles. p is of the
difference from the default, in bold: Wilcoxon's signed-rank test of mean ARI over data sets, with
Holm's correction. Seconds are medians of processor time on one thread. Contenders named pce and
ensembleclustering are other packages; "one-hot k-means", "scaled SVD", "spectral", "EAC by SciPy",
"LWEA in NumPy" and "same in every run" are a few lines of NumPy, SciPy and scikit-learn; "local" is
`weights="local"`; "clusters" is their number for each class. A refusal counts as ARI 0.

Rows are shuffled because files are sorted by class, and some published methods gain from that. Two
leaders of the field's survey of 2026 lose most of their lead when rows are shuffled: CELTA falls from
an ARI of .85 to .03 on UMIST, GTLEC from .98 to .73 on orlraws10P.

![Mean ranks](accuracy.png)

"""

Key = tuple[str, str, int]
"""Data set, kind of ensemble and seed."""


def read_rows(path: Path | None) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON lines, compressed or not; none if there is none."""
    if path is None or not path.exists():
        return []
    opened: Callable[..., Any] = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    with opened(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def labels_beside(rows: Path) -> Path:
    """Return where the labels of a file of rows are: X.labels.jsonl, or X.labels.jsonl.xz of X.jsonl.gz."""
    name = rows.name.removesuffix(".gz").removesuffix(".jsonl")
    return rows.with_name(f"{name}.labels.jsonl{'.xz' if rows.suffix == '.gz' else ''}")


class Scores(NamedTuple):
    """Scores of contenders on ensembles that all of them have."""

    keys: list[Key]
    names: list[str]
    ari: np.ndarray
    nmi: np.ndarray
    seconds: np.ndarray
    clusters: np.ndarray
    """Number found, for each class."""

    @classmethod
    def of(cls, cells: Mapping[Key, Mapping[str, Any]], names: Iterable[str]) -> Scores:
        names = sorted(names)
        keys = sorted(key for key, scores in cells.items() if set(names) <= set(scores))
        ari, nmi, seconds, clusters, classes = (
            np.array([[cells[key][name].get(what, np.nan) for name in names] for key in keys], float)
            for what in ("ari", "nmi", "seconds", "clusters", "classes")
        )
        return cls(keys, names, ari, nmi, seconds, clusters / classes)

    def shortfall(self) -> np.ndarray:
        return self.ari.max(axis=1, keepdims=True) - self.ari

    def ranks(self) -> np.ndarray:
        from scipy.stats import rankdata

        return rankdata(-self.ari, axis=1)

    def of_data(self, table: np.ndarray) -> tuple[list[str], np.ndarray]:
        """Return the data sets and a table's means over the ensembles of each."""
        data = sorted({key[0] for key in self.keys})
        data_of_row = np.array([key[0] for key in self.keys])
        return data, np.array([table[data_of_row == name].mean(axis=0) for name in data])


# ------------------------------------------------------------------------------------------------ tests


def wilcoxon_p(a: np.ndarray, b: np.ndarray) -> float:
    """Return the two-sided p-value of Wilcoxon's signed-rank test, 1 where nothing differs."""
    from scipy.stats import wilcoxon

    difference = np.round(a - b, 6)
    return 1.0 if not difference.any() else float(wilcoxon(difference, zero_method="zsplit").pvalue)


def holm(p: list[float]) -> np.ndarray:
    """Return p-values corrected for their number, by Holm's method."""
    order = np.argsort(p)
    corrected = np.empty(len(p))
    factors = len(p) - np.arange(len(p))
    corrected[order] = np.minimum(np.maximum.accumulate(np.array(p)[order] * factors), 1)
    return corrected


def against_default(scores: Scores) -> dict[str, float]:
    """Return the corrected p-value of each contender's difference from the default, over data sets."""
    _, means = scores.of_data(scores.ari)
    others = [name for name in scores.names if name != DEFAULT]
    ours = means[:, scores.names.index(DEFAULT)]
    p_values = holm([wilcoxon_p(ours, means[:, scores.names.index(name)]) for name in others])
    return dict(zip(others, p_values.tolist(), strict=True))


def alike(scores: Scores, names: list[str]) -> list[tuple[int, int]]:
    """Return the longest runs of ``names``, first and last, of which no two differ significantly."""
    _, means = scores.of_data(scores.ari)
    columns = [means[:, scores.names.index(name)] for name in names]
    pairs = list(combinations(range(len(names)), 2))
    corrected = holm([wilcoxon_p(columns[i], columns[j]) for i, j in pairs])
    differ = {pair for pair, p in zip(pairs, corrected, strict=True) if p < LEVEL}
    runs: list[tuple[int, int]] = []
    for first in range(len(names)):
        last = first
        while last + 1 < len(names) and not any((i, last + 1) in differ for i in range(first, last + 1)):
            last += 1
        if last > first and not any(last <= end for _, end in runs):
            runs.append((first, last))
    return runs


# ----------------------------------------------------------------------------------------------- tables


def table_of(scores: Scores) -> dict[str, Any]:
    """Return means, ranks, shortfalls, times and tests of the contenders, best mean rank first."""
    ranks, shortfall = scores.ranks(), scores.shortfall()
    p = against_default(scores) if DEFAULT in scores.names else {}
    contenders = {}
    for i in np.argsort(ranks.mean(axis=0)):
        name, refused, at = scores.names[i], np.isnan(scores.seconds[:, i]), int(shortfall[:, i].argmax())
        contenders[name] = {
            "ari": round(float(scores.ari[:, i].mean()), 4),
            "nmi": round(float(scores.nmi[:, i].mean()), 4),
            "rank": round(float(ranks[:, i].mean()), 2),
            "shortfall": round(float(shortfall[:, i].mean()), 4),
            "worst": round(float(shortfall[at, i]), 4),
            "worst_at": " ".join(map(str, scores.keys[at])),
            "p": round(p[name], 4) if name in p else None,
            "clusters": None if refused.all() else round(float(scores.clusters[~refused, i].mean()), 3),
            "seconds": None if refused.all() else round(float(np.median(scores.seconds[~refused, i])), 3),
            "refused": int(refused.sum()),
        }
    data = sorted({key[0] for key in scores.keys})
    seeds = sorted({key[2] for key in scores.keys})
    return {"ensembles": len(scores.keys), "data": data, "seeds": seeds, "contenders": contenders}


def default_by(scores: Scores, part: int) -> dict[str, Any]:
    """Return how the default stands on each data set (``part`` 0) or kind of ensemble (1)."""
    at, ranks, shortfall = scores.names.index(DEFAULT), scores.ranks(), scores.shortfall()
    table = {}
    for value in sorted({key[part] for key in scores.keys}):
        is_part = np.array([key[part] == value for key in scores.keys])
        means = scores.ari[is_part].mean(axis=0)
        table[value] = {
            "ensembles": int(is_part.sum()),
            "ARI": round(float(means[at]), 3),
            "best": scores.names[int(means.argmax())],
            "its ARI": round(float(means.max()), 3),
            "mean rank": round(float(ranks[is_part, at].mean()), 1),
            "shortfall": round(float(shortfall[is_part, at].mean()), 3),
            "worst": round(float(shortfall[is_part, at].max()), 3),
        }
    return table


def cells_of(rows: list[dict[str, Any]], data: Iterable[str]) -> dict[Key, dict[str, dict[str, Any]]]:
    cells: dict[Key, dict[str, dict[str, Any]]] = {}
    for row in rows:
        if row["data"] in data:
            cells.setdefault((row["data"], row["kind"], row["seed"]), {})[row["contender"]] = row
    return cells


def group_of(rows: list[dict[str, Any]], data: Iterable[str]) -> dict[str, Any]:
    """Return the tables of one group of data sets, and how the default stands in them."""
    cells = cells_of(rows, data)
    counts: dict[str, int] = {}
    for by_name in cells.values():
        for name in by_name:
            counts[name] = counts.get(name, 0) + 1
    once = sum(key[2] == 0 for key in cells)
    tables = {
        "every contender": [name for name, count in counts.items() if count >= ENOUGH * once],
        "most ensembles": [name for name, count in counts.items() if count >= ENOUGH * max(counts.values())],
    }
    result: dict[str, Any] = {}
    for title, names in tables.items():
        scores = Scores.of(cells, names)
        if not scores.keys or (title == "most ensembles" and set(names) == set(tables["every contender"])):
            continue
        result[title] = table_of(scores) | {"not in it": {}}
        for name in sorted(set(counts) - set(names)):
            shared = [by_name for by_name in cells.values() if {name, DEFAULT} <= set(by_name)]
            result[title]["not in it"][name] = {"ensembles": counts[name]} | {
                who: round(float(np.mean([by_name[who]["ari"] for by_name in shared])), 4)
                for who in ((name, DEFAULT) if shared else ())
            }
        if DEFAULT in names:
            result[title] |= {"by data": default_by(scores, 0), "by kind": default_by(scores, 1)}
    return result


def report(rows: list[dict[str, Any]], groups: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return all tables of all groups that have rows."""
    return {group: group_of(rows, data) for group, data in groups.items() if cells_of(rows, data)}


def main_table(group: dict[str, Any]) -> dict[str, Any]:
    """Return the table of a group that has most ensembles."""
    return dict(group.get("most ensembles") or group["every contender"])


def rescored(
    labels: list[dict[str, Any]], measure: Callable[[np.ndarray, np.ndarray], float]
) -> Iterator[dict[str, Any]]:
    """Yield rows whose ``ari`` is a measure of classes and clusters instead, of rows of labels."""
    from accuracy import as_labels, classes_of

    classes = {}
    for row in labels:
        name, seed = row["data"], row["seed"]
        if (name, seed) not in classes:
            classes = {(name, seed): classes_of(name, seed)}
        clusters = as_labels(row["labels"])
        is_labeled = clusters >= 0
        score = float(measure(classes[name, seed][is_labeled], clusters[is_labeled]))
        yield {what: row[what] for what in ("data", "kind", "seed", "contender")} | {"ari": score}


def attainable(rows: list[dict[str, Any]], data: Iterable[str], names: Iterable[str]) -> dict[str, float]:
    """Return the mean shortfall of the default, and of the best choices of a contender in hindsight.

    These are one for all ensembles, one for each kind of ensemble, and one for each data set.
    """
    scores = Scores.of(cells_of(rows, data), names)
    shortfall, parts = scores.shortfall(), {"kind": 1, "data set": 0}
    table = {"default": shortfall[:, scores.names.index(DEFAULT)].mean(), "all": shortfall.mean(axis=0).min()}
    for what, part in parts.items():
        values = np.array([key[part] for key in scores.keys])
        table[what] = sum(shortfall[values == value].sum(axis=0).min() for value in set(values)) / values.size
    return {what: round(float(value), 4) for what, value in table.items()}


def by_noise(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return by how much the best of many results of a contender is above their mean, by `accuracy_noise`."""
    table: dict[str, dict[str, float]] = {}
    for name in dict.fromkeys(row["contender"] for row in rows):
        series = [row for row in rows if row["contender"] == name]
        table[name] = {
            what: round(float(np.mean([max(row[what]) - np.mean(row[what]) for row in series])), 4)
            for what in ("states", "drawn")
        } | {"ensembles": len(series), "repeats": len(series[0]["states"])}
    return table


# ---------------------------------------------------------------------------------------------- showing


def summary_lines(groups: dict[str, Any]) -> list[str]:
    """Return the mean ARI of each contender on each group in Markdown, those on most groups first."""
    tables = {group: tables["every contender"]["contenders"] for group, tables in groups.items()}
    means = {
        name: [tables[group][name]["ari"] if name in tables[group] else np.nan for group in tables]
        for name in {name: None for table in tables.values() for name in table}
    }
    lines = ["| contender |" + "".join(f" {group} |" for group in tables), "|---" * (len(tables) + 1) + "|"]
    for name in sorted(means, key=lambda name: (np.isnan(means[name]).sum(), -np.nanmean(means[name]))):
        values = (" |" if np.isnan(value) else f" {value:.3f} |" for value in means[name])
        lines.append(f"| {f'**{name}**' if name == DEFAULT else name} |" + "".join(values))
    return lines


def table_lines(table: dict[str, Any]) -> list[str]:
    """Return a table of contenders in Markdown."""
    lines = [
        "| contender | ARI | NMI | mean rank | shortfall | worst | p | clusters | seconds | refused |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in table["contenders"].items():
        p, clusters, seconds = (
            "" if row[what] is None else f"{row[what]:.{digits}f}"
            for what, digits in (("p", 3), ("clusters", 2), ("seconds", 3))
        )
        lines.append(
            f"| {f'**{name}**' if name == DEFAULT else name} | {row['ari']:.3f} | {row['nmi']:.3f} "
            f"| {row['rank']:.1f} | {row['shortfall']:.3f} | {row['worst']:.3f} "
            f"| {p} | {clusters} | {seconds} | {row['refused'] or ''} |"
        )
    return lines


def default_lines(table: dict[str, Any], what: str) -> list[str]:
    columns = list(next(iter(table.values())))
    lines = [f"| {what} | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    return lines + [f"| {name} | {' | '.join(str(v) for v in row.values())} |" for name, row in table.items()]


def markdown(groups: dict[str, Any], details: bool = True) -> str:
    """Return all tables of groups as Markdown, with ``details`` those of the default by data set and kind."""
    lines = ["## Mean ARI by group", "", *summary_lines(groups), ""]
    for group, tables in groups.items():
        for selection, part in tables.items():
            title = f"{group.capitalize()}, {selection}"
            seeds = f"seed{'s' * (len(part['seeds']) > 1)} {', '.join(map(str, part['seeds']))}"
            lines += [
                f"## {title}",
                "",
                f"{part['ensembles']} ensembles of {len(part['data'])} data sets, {seeds}.",
            ]
            if part["not in it"]:
                names = (
                    f"{name} ({row['ensembles']}"
                    + (f": ARI {row[name]:.3f}, default {row[DEFAULT]:.3f})" if DEFAULT in row else ")")
                    for name, row in part["not in it"].items()
                )
                lines += [f"Not in this table, because run on fewer ensembles: {', '.join(names)}."]
            lines += ["", *table_lines(part), ""]
            for what in ("data", "kind") if details and DEFAULT in part["contenders"] else ():
                lines += [f"### {title}: the default by {what}", ""]
                lines += [*default_lines(part[f"by {what}"], what), ""]
    return "\n".join(lines)


def attainable_lines(halves: dict[str, Any], noise: dict[str, Any]) -> list[str]:
    """Return what part of the shortfall is attainable, in words."""
    repeats = next(iter(noise.values()))["repeats"]
    lines = ["## What shortfall is attainable", ""]
    lines += ["The best of all contenders is another one for each ensemble, in part by chance. The best of"]
    lines += [f"{repeats} results of one contender on the same ensemble (for choosing, `accuracy_noise.py`)"]
    lines += ["is above their mean by so much, from other random states alone, and with partitions drawn"]
    lines += ["with replacement, too:", ""]
    lines += ["| contender | ensembles | random states | and partitions |", "|---|---|---|---|"]
    for name, row in noise.items():
        lines += [f"| {name} | {row['ensembles']} | {row['states']:.3f} | {row['drawn']:.3f} |"]
    lines += ["", "The best choices of a contender in hindsight, which no rule can make without the classes,"]
    lines += ["have these mean shortfalls:", ""]
    lines += ["| group | default | one contender for all | one for each kind | one for each data set |"]
    lines += ["|---|---|---|---|---|"]
    for half, row in halves.items():
        lines += [f"| {half} | {' | '.join(f'{value:.3f}' for value in row.values())} |"]
    return [*lines, ""]


def show(groups: dict[str, Any]) -> None:
    print(markdown(groups, details=False))


def draw_ranks(scores: Scores, path: Path) -> None:
    """Draw Demšar's diagram of the best contenders: mean ranks, bars joining those that do not differ."""
    import matplotlib.pyplot as plt

    ranks = scores.ranks().mean(axis=0)
    by_rank = [scores.names[i] for i in np.argsort(ranks)]
    names = [
        name for i, name in enumerate(by_rank) if i < IN_DIAGRAM or name in (DEFAULT, "pcc", "EAC by SciPy")
    ]
    at = [float(ranks[scores.names.index(name)]) for name in names]
    ari = [float(scores.ari[:, scores.names.index(name)].mean()) for name in names]
    runs, half = alike(scores, names), (len(names) + 1) // 2
    low, high = np.floor(min(at)), np.ceil(max(at))
    bars = 0.35 * len(runs) + 0.6
    figure, axes = plt.subplots(figsize=(9, 0.24 * (half + bars) + 1), layout="constrained")
    for i, (name, rank) in enumerate(zip(names, at, strict=True)):
        left = i < half
        height = -bars - (i if left else len(names) - 1 - i)
        edge = low - 0.05 * (high - low) if left else high + 0.05 * (high - low)
        color = "#b3261e" if name == DEFAULT else "#1f5a92" if name.startswith("pcc") else "black"
        axes.plot([rank, rank, edge], [0, height, height], color=color, linewidth=0.8)
        text = f"{name}  {ari[i]:.3f}" if left else f"{ari[i]:.3f}  {name}"
        axes.text(
            edge, height, f" {text} ", ha="right" if left else "left", va="center", fontsize=9, color=color
        )
    for i, (first, last) in enumerate(runs):
        axes.plot([at[first] - 0.06, at[last] + 0.06], [-0.4 - 0.35 * i] * 2, color="black", linewidth=3)
    axes.plot([low, high], [0, 0], color="black", linewidth=1)
    for tick in np.arange(low, high + 1):
        axes.plot([tick, tick], [0, 0.25], color="black", linewidth=1)
        axes.text(tick, 0.4, f"{tick:g}", ha="center", va="bottom", fontsize=8)
    data = len({key[0] for key in scores.keys})
    axes.set_title(
        f"Mean rank by ARI among {len(scores.names)} contenders on {len(scores.keys)} ensembles of {data} "
        "data sets (beside the names: mean ARI)\nBars join contenders that do not differ "
        f"(Wilcoxon's test over data sets, Holm's correction, {len(names)} contenders)",
        fontsize=9,
    )
    axes.set_xlim(low - 0.5 * (high - low), high + 0.5 * (high - low))
    axes.axis("off")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main() -> None:
    from accuracy import GROUPS, LEFT_OUT, VIEWS
    from accuracy_peers import NOT_RUN
    from machine import describe

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--smallest", action="store_true", help="one group, to see that it runs")
    parser.add_argument("--rows", type=Path, default=RESULTS / "accuracy.jsonl.gz", help="JSON lines")
    parser.add_argument("--groups", nargs="+", choices=list(VIEWS), default=list(VIEWS))
    parser.add_argument("--rescore", metavar="MODULE.FUNCTION", help="another measure of the labels found")
    parser.add_argument("--write", action="store_true", help="write the results")
    arguments = parser.parse_args()
    if arguments.write and len(arguments.groups) < len(VIEWS):
        parser.error("--write takes all groups; leave --groups out.")
    groups = {group: VIEWS[group] for group in arguments.groups[: 1 if arguments.smallest else None]}
    if arguments.rescore:
        module, _, function = arguments.rescore.rpartition(".")
        labels = read_rows(labels_beside(arguments.rows))
        rows = list(rescored(labels, getattr(importlib.import_module(module), function)))
        print("\n".join(summary_lines(report(rows, groups))))
        return
    rows = read_rows(arguments.rows)
    content = report(rows, groups)
    text = markdown(content)
    about: dict[str, Any] = {"machine": describe(), "left_out": LEFT_OUT | NOT_RUN, "groups": GROUPS}
    tables = {group: main_table(part)["contenders"] for group, part in content.items()}
    about["attainable"] = {
        group: attainable(rows, groups[group], names) for group, names in tables.items() if DEFAULT in names
    }
    if NOISE.exists():
        about["noise"] = by_noise(json.loads(NOISE.read_text()))
        text += "\n" + "\n".join(attainable_lines(about["attainable"], about["noise"]))
    print(text)
    if not arguments.write:
        return
    (RESULTS / "accuracy.json").write_text(json.dumps(about | content, indent=1) + "\n")
    (RESULTS / "accuracy.md").write_text(INTRODUCTION + text)
    compact = {"separators": (",", ":"), "ensure_ascii": False}
    lines = "".join(json.dumps(row, **compact) + "\n" for row in rows)
    (RESULTS / "accuracy.jsonl.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
    labels = [row for row in read_rows(labels_beside(arguments.rows)) if row["seed"] == 0]
    labels.sort(key=lambda row: (row["data"], row["kind"]))
    lines = "".join(json.dumps(row, **compact) + "\n" for row in labels)
    (RESULTS / "accuracy.labels.jsonl.xz").write_bytes(lzma.compress(lines.encode(), preset=9))
    entrants = content["reporting"]["every contender"]["contenders"]
    draw_ranks(Scores.of(cells_of(rows, GROUPS["reporting"]), entrants), RESULTS / "accuracy.png")


if __name__ == "__main__":
    main()
